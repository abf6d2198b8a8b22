//! Reader of /proc/self/mountinfo: mounts, their places and their options (proc(5)).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One line of /proc/self/mountinfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// The mount's id, unique on this host at a time.
    pub id: u64,
    /// The device number of the files on the mount.
    pub device: (u32, u32),
    /// The directory of the file system that is mounted: `/`, or a part of it for a bind mount.
    pub root: PathBuf,
    /// The directory that it is mounted on.
    pub point: PathBuf,
    /// The type of the file system: `nfs`, `nfs4`, `fuse.glusterfs`, `ext4`.
    pub kind: String,
    /// The source of the mount: `server:/export`, `/dev/sda1`.
    pub source: String,
    /// Options of the mount and of the file system, in their order, each once.
    pub options: Vec<(String, Option<String>)>,
}

impl Mount {
    /// The value of an option; an empty text for an option without a value. None if the mount does not have the option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_deref().unwrap_or_default())
    }

    /// True if the file system is NFS, of any version.
    pub fn is_nfs(&self) -> bool {
        matches!(self.kind.as_str(), "nfs" | "nfs4")
    }

    /// The version of NFS: `3`, `4.0`, `4.1`, `4.2`; None for anything else.
    pub fn nfs_version(&self) -> Option<&str> {
        if !self.is_nfs() {
            return None;
        }
        match self.option("vers").or_else(|| self.option("nfsvers")) {
            // Old kernels say vers=4,minorversion=1.
            Some("4") => Some(match self.option("minorversion") {
                Some("1") => "4.1",
                Some("2") => "4.2",
                _ => "4.0",
            }),
            version => version,
        }
    }

    /// True if the client recognises that several addresses are one server, and uses one connection for them all (RFC
    /// 8881, section 2.10.5: trunking; Linux does so since 3.9 or so, by server owner).
    pub fn trunks(&self) -> bool {
        self.nfs_version().is_some_and(|version| version != "3" && version != "2" && version != "4.0")
    }
}

/// Every mount, in the order of the file. Lines that make no sense are left out.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let id = number(fields.next()?)?;
    let _parent = fields.next()?;
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let (root, point) = (path(fields.next()?), path(fields.next()?));
    let mount_options = fields.next()?;
    // Optional fields end with a dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let (kind, source) = (text_of(fields.next()?), text_of(fields.next()?));
    let mut options: Vec<(String, Option<String>)> = Vec::new();
    for list in [mount_options, fields.next().unwrap_or_default()] {
        for option in text_of(list).split(',').filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (option.to_owned(), None),
            };
            if !options.contains(&(name.clone(), value.clone())) {
                options.push((name, value));
            }
        }
    }
    Some(Mount { id, device, root, point, kind, source, options })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn path(field: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(&unescape(field))).into()
}

fn text_of(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).chars().filter(|c| !c.is_control()).collect()
}

/// Blanks, tabs, newlines and backslashes are written as `\040` and so on.
pub(super) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let digits =
                std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|d| d.is_ascii_digit()))?;
            u8::from_str_radix(digits, 8).ok()
        });
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn four_lanes_of_nfs_3() {
        let mounts = parse(include_bytes!("../../tests/golden/mountinfo-nfs-3.txt"));
        let lanes: Vec<&Mount> = mounts.iter().filter(|mount| mount.is_nfs()).collect();
        assert_eq!(lanes.len(), 4);
        assert_eq!(
            (lanes[0].point.as_path(), lanes[0].source.as_str()),
            (Path::new("/mnt/v32"), "127.0.0.32:/run/export")
        );
        assert_eq!((lanes[0].nfs_version(), lanes[0].trunks()), (Some("3"), false));
        assert_eq!(
            (lanes[0].option("rsize"), lanes[0].option("hard"), lanes[0].option("soft")),
            (Some("262144"), Some(""), None)
        );
        let devices: std::collections::BTreeSet<_> = lanes.iter().map(|mount| mount.device).collect();
        assert_eq!(devices.len(), 4, "a superblock each");
    }

    #[test]
    fn four_lanes_of_nfs_4_1_that_are_one() {
        let mounts = parse(include_bytes!("../../tests/golden/mountinfo-nfs-4.1.txt"));
        let lanes: Vec<&Mount> = mounts.iter().filter(|mount| mount.is_nfs()).collect();
        assert_eq!(lanes.len(), 4);
        assert!(lanes.iter().all(|mount| mount.trunks() && mount.device == lanes[0].device));
        assert!(lanes.iter().all(|mount| mount.source == "127.0.0.32:/"), "whatever address was asked for");
    }

    #[test]
    fn paths_with_blanks_and_optional_fields() {
        let text = b"36 35 98:0 /a\\040b /mnt/x\\134y\\011z rw,noatime shared:3 master:1 - ext3 /dev/root rw,errors=continue\n\
                     37 35 0:4 / /proc rw - proc proc rw";
        let mounts = parse(text);
        assert_eq!(
            (mounts[0].root.as_path(), mounts[0].point.as_path()),
            (Path::new("/a b"), Path::new("/mnt/x\\y\tz"))
        );
        assert_eq!((mounts[0].kind.as_str(), mounts[0].option("errors")), ("ext3", Some("continue")));
        assert_eq!((mounts[1].kind.as_str(), mounts[1].device), ("proc", (0, 4)));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in prop::collection::vec(prop_oneof![Just(b' '), Just(b'-'), Just(b'\n'), Just(b'\\'), any::<u8>()], 0..200)) {
            parse(&text);
        }

        #[test]
        fn any_damage_to_a_real_file_is_read_without_harm(at in any::<prop::sample::Index>(), with in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut text = include_bytes!("../../tests/golden/mountinfo-nfs-3.txt").to_vec();
            let place = at.index(text.len());
            text[place] = with;
            text.truncate(cut.index(text.len()));
            for mount in parse(&text) {
                let _ = (mount.nfs_version(), mount.trunks());
            }
        }
    }
}

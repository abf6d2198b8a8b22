//! The connections that an NFS mount uses, from /proc/self/mountstats (nfsiostat(8), `xprt:` lines of
//! net/sunrpc/xprtsock.c).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::mounts::unescape;

/// The connections of one mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// The directory that it is mounted on.
    pub point: PathBuf,
    /// The connections; more than one with nconnect.
    pub all: Vec<Connection>,
}

/// One TCP connection of this machine, as the kernel lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The transport: `tcp`, `udp`, `rdma`, `local`.
    pub kind: String,
    /// The client's port; 0 where the kernel does not say, as for ports that are not reserved.
    pub port: u16,
    /// The number of requests sent.
    pub sends: u64,
    /// The number of replies received.
    pub receives: u64,
}

/// The connections of every mount that has any, in the order of the file. Lines that make no sense are left out.
pub fn parse(text: &[u8]) -> Vec<Connections> {
    let mut found: Vec<Connections> = Vec::new();
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii();
        if let Some(device) = line.strip_prefix(b"device ") {
            // Each device begins a new mount, also a device that this parser is not made for.
            found.push(Connections { point: mount_point(device).unwrap_or_default(), all: Vec::new() });
        } else if let Some(transport) = line.strip_prefix(b"xprt:")
            && let Some(mount) = found.last_mut()
        {
            mount.all.extend(connection(transport));
        }
    }
    found.retain(|mount| !mount.all.is_empty() && mount.point != Path::new(""));
    found
}

/// The mount point in `server:/export mounted on /mnt/x with fstype nfs statvers=1.1`.
fn mount_point(device: &[u8]) -> Option<PathBuf> {
    let after = |text: &[u8], word: &[u8]| text.windows(word.len()).position(|window| window == word);
    const ON: &[u8] = b" mounted on ";
    let point = device.get(after(device, ON)? + ON.len()..)?;
    let point = point.get(..after(point, b" with fstype ")?)?;
    Some(Path::new(OsStr::from_bytes(&unescape(point))).into())
}

/// `tcp 947 0 2 0 0 7 7 0 7 0 2 0 0`: port, binds, connects, connect time, idle time, sends, receives, ...; without
/// connects and idle time for udp.
fn connection(transport: &[u8]) -> Option<Connection> {
    let text = std::str::from_utf8(transport).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let kind = fields.next()?.to_owned();
    let numbers: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
    let sends = if kind == "udp" { 2 } else { 5 };
    let at = |index: usize| numbers.get(index).copied().unwrap_or(0);
    Some(Connection { port: at(0).try_into().unwrap_or(0), sends: at(sends), receives: at(sends + 1), kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nfs_3_has_a_connection_a_mount() {
        let mounts = parse(include_bytes!("../../tests/golden/mountstats-nfs-3.txt"));
        let ports: Vec<u16> = mounts.iter().map(|mount| mount.all[0].port).collect();
        assert_eq!(ports, [947, 890, 950, 1003]);
        assert_eq!(mounts[0].point, Path::new("/mnt/v32"));
        assert_eq!(mounts[0].all, [Connection { kind: "tcp".into(), port: 947, sends: 7, receives: 7 }]);
    }

    #[test]
    fn nfs_4_1_shows_one_connection_four_times() {
        let mounts = parse(include_bytes!("../../tests/golden/mountstats-nfs-4.1.txt"));
        assert_eq!(mounts.len(), 4);
        assert!(mounts.iter().all(|mount| mount.all == mounts[0].all && mount.all[0].sends == 41));
    }

    #[test]
    fn nconnect_and_other_transports() {
        let text = b"device s:/e mounted on /mnt/a\\040b with fstype nfs statvers=1.1\n\
                     \txprt:\ttcp 700 1 1 0 0 10 9 0 1 0 2 0 0\n\txprt:\ttcp 701 1 1 0 0 11 10 0 1 0 2 0 0\n\
                     device tmpfs mounted on /tmp with fstype tmpfs\n\
                     device t:/e mounted on /mnt/u with fstype nfs statvers=1.1\n\txprt:\tudp 800 1 5 4 0 1 0\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].point, Path::new("/mnt/a b"));
        assert_eq!(mounts[0].all.iter().map(|one| (one.port, one.sends)).collect::<Vec<_>>(), [(700, 10), (701, 11)]);
        assert_eq!(mounts[1].all, [Connection { kind: "udp".into(), port: 800, sends: 5, receives: 4 }]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "(device |xprt:|tcp |mounted on |[0-9 ]{0,9}|\n|[^a]){0,40}") {
            parse(text.as_bytes());
        }

        #[test]
        fn any_damage_to_a_real_file_is_read_without_harm(at in any::<prop::sample::Index>(), with in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut text = include_bytes!("../../tests/golden/mountstats-nfs-3.txt").to_vec();
            let place = at.index(text.len());
            text[place] = with;
            text.truncate(cut.index(text.len()));
            parse(&text);
        }
    }
}

//! Identities: the numbers and names that tell one target, device or namespace from every other one.
//!
//! Hosts with several paths (Linux's native multipath) take namespaces with equal identities for one namespace and
//! spread writes over them. So nothing here is the same for two things unless the user gave both the same value:
//!
//! - a subsystem's serial number follows from the machine and the NQN;
//! - the UUID of a file or block device follows from the machine, the file system and the file ([`file`](fn@file)): it
//!   survives restarts, and a copy of the file has another one;
//! - memory and null devices have a random UUID each time they are made;
//! - a device that is stacked on another one has a UUID that follows from that one's and from what it does to it;
//! - NGUID and EUI-64 of a namespace follow from its UUID.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use nvme::uuid;
use sha2::{Digest, Sha256};

/// The machine among all others, as a digest: neither the machine's id nor its addresses can be read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine([u8; 32]);

/// The machine, from the moment on at which somebody asks for it.
static THIS: OnceLock<Machine> = OnceLock::new();

/// Has the machine keep its random identity in a file, if it has no lasting one of its own. Call it before anything
/// asks for an identity.
///
/// # Errors
/// The file cannot be read or written.
pub fn keep_machine(file: &Path) -> std::io::Result<()> {
    if THIS.get().is_none() && Machine::read(Path::new("/")).is_none() {
        let _ = THIS.set(Machine::kept(file)?); // another thread has asked first: its answer stays
    }
    Ok(())
}

impl Machine {
    /// This machine. Without a machine id and a network card nothing lasting is known of it: a random one then, the
    /// same for as long as this process runs.
    pub(crate) fn this() -> &'static Machine {
        THIS.get_or_init(|| Machine::read(Path::new("/")).unwrap_or_else(|| Machine(digest(&[&random_uuid()]))))
    }

    /// The machine that a file names; a new one, if the file is not there.
    fn kept(file: &Path) -> std::io::Result<Machine> {
        let name = match fs::read_to_string(file) {
            Ok(text) => uuid::parse(text.trim()).ok_or(std::io::Error::other("its file \"machine\" is damaged"))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let name = random_uuid();
                sys::replace::replace(file, format!("{}\n", uuid::text(&name)).as_bytes())?;
                name
            }
            Err(error) => return Err(error),
        };
        Ok(Machine(digest(&[&name])))
    }

    /// The machine whose files are below `root`: its machine-id(5) and the address of its first network card, because
    /// clones of a virtual machine often share the machine id and never the address. `None` if there is neither.
    fn read(root: &Path) -> Option<Machine> {
        let id = line(&root.join("etc/machine-id")).unwrap_or_default();
        let address = first_network_card(&root.join("sys/class/net")).unwrap_or_default();
        (!id.is_empty() || !address.is_empty())
            .then(|| Machine(digest(&[b"machine", id.as_bytes(), address.as_bytes()])))
    }

    /// The serial number of a subsystem of this machine: 20 characters.
    pub(crate) fn serial(&self, nqn: &str) -> String {
        let digest = digest(&[b"serial", &self.0, nqn.as_bytes()]);
        digest[..10].iter().map(|byte| format!("{byte:02X}")).collect()
    }

    /// The UUID of what `text` names on this machine.
    pub(crate) fn uuid(&self, text: &str) -> [u8; 16] {
        custom_uuid(digest(&[b"backing", &self.0, text.as_bytes()]))
    }
}

/// A UUID of random numbers (RFC 9562, version 4).
///
/// # Panics
/// The system has no random numbers: Linux has them from the first moments of its start on.
pub(crate) fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).expect("Linux has random numbers");
    versioned(uuid, 4)
}

/// A UUID that follows from another one and from `what`: the same for the same two, and for no others.
pub(crate) fn derived_uuid(base: &[u8; 16], what: &str) -> [u8; 16] {
    custom_uuid(digest(&[b"derived", base, what.as_bytes()]))
}

/// The NGUID that goes with a UUID: the same bytes, as in SPDK.
pub(crate) fn nguid(uuid: &[u8; 16]) -> [u8; 16] {
    *uuid
}

/// The EUI-64 that goes with a UUID: individual, and locally administered in the sense of IEEE, because there is no OUI
/// to make one from.
pub(crate) fn eui64(uuid: &[u8; 16]) -> [u8; 8] {
    let bytes = first_bytes(digest(&[b"nguid", uuid]));
    let mut eui64 = std::array::from_fn(|at| bytes[8 + at]);
    eui64[0] = eui64[0] & !1 | 2;
    eui64
}

/// A text that tells the content of an open file from every other content of this machine, and that stays the same for
/// as long as the file or block device is the same.
///
/// # Errors
/// The errors of fstat(2) and fstatvfs(3).
pub(crate) fn file(file: &fs::File) -> std::io::Result<String> {
    let meta = file.metadata()?;
    if is_block_device(&meta) {
        return Ok(format!("block device {}", disk(Path::new("/sys/dev/block"), meta.rdev())));
    }
    // The number of a file system's device changes when disks are found in another order, the disk's identity does not.
    // Two mounted copies of one file system have its id in common, but not the disk.
    let fsid = rustix::fs::fstatvfs(file)?.f_fsid;
    let place = match (rustix::fs::major(meta.dev()), fsid) {
        // File systems without a disk (btrfs, NFS, overlay): their device numbers last as long as the mount.
        (0, 1..) => format!("file system {fsid:x}"),
        _ => format!("file system {fsid:x} on {}", disk(Path::new("/sys/dev/block"), meta.dev())),
    };
    // Numbers of files are used again, with another time of birth.
    let born = meta.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    Ok(format!("{place} file {} born {}", meta.ino(), born.unwrap_or_default().as_nanos()))
}

fn is_block_device(meta: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(&meta.file_type())
}

/// A text for a block device of this machine: what its driver knows it by, or else its number.
fn disk(sysfs: &Path, device: u64) -> String {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let Ok(directory) = fs::canonicalize(sysfs.join(&number)) else { return number };
    let (whole, part) = match line(&directory.join("partition")) {
        Some(part) => {
            (directory.join(".."), format!(" part {part} at {}", line(&directory.join("start")).unwrap_or_default()))
        }
        None => (directory, String::new()),
    };
    const NAMES: [&str; 6] = ["dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "loop/backing_file"];
    let known = NAMES.iter().find_map(|name| Some(format!("{name} {}", line(&whole.join(name))?)));
    format!("{}{part}", known.unwrap_or(number))
}

/// The address of the Ethernet card that comes first on the buses of the machine, of those with an address that lasts.
fn first_network_card(sysfs: &Path) -> Option<String> {
    let address = |interface: PathBuf| -> Option<(PathBuf, String)> {
        let card = fs::canonicalize(interface.join("device")).ok()?; // bridges, tunnels and containers' links have none
        let is = |name: &str, values: &[&str]| {
            line(&interface.join(name)).is_some_and(|value| values.contains(&value.as_str()))
        };
        let is_wireless = interface.join("phy80211").exists() || interface.join("wireless").exists();
        // Type 1 is Ethernet; an address is permanent (0) or was set (3), not random (1) or stolen (2).
        let lasts = is("type", &["1"]) && is("addr_assign_type", &["0", "3"]) && !is_wireless;
        lasts.then_some((card, line(&interface.join("address"))?))
    };
    let interfaces = fs::read_dir(sysfs).ok()?.flatten().filter_map(|entry| address(entry.path()));
    interfaces.min().map(|(_, address)| address)
}

/// The first line of a file, if there is one and it is not blank.
fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_string()).filter(|line| !line.is_empty())
}

/// SHA-256 over the parts, each with its length before it, so that no two lists of parts are the same text.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix("plimsoll identity");
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn first_bytes(digest: [u8; 32]) -> [u8; 16] {
    std::array::from_fn(|at| digest[at])
}

/// RFC 9562, version 8: a UUID by a rule of our own.
fn custom_uuid(digest: [u8; 32]) -> [u8; 16] {
    versioned(first_bytes(digest), 8)
}

fn versioned(mut uuid: [u8; 16], version: u8) -> [u8; 16] {
    uuid[6] = uuid[6] & 0x0f | version << 4;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine's files: its id and the address of its card, behind a bridge that comes first by name.
    fn machine(id: &str, address: &str) -> Option<Machine> {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |path: &str| directory.path().join(path);
        let write = |path: &str, text: &str| {
            fs::create_dir_all(at(path).parent().expect("a directory")).expect("made");
            fs::write(at(path), format!("{text}\n")).expect("written");
        };
        write("etc/machine-id", id);
        write("sys/class/net/br0/type", "1");
        write("sys/class/net/br0/address", "16:9a:51:d7:18:35");
        if !address.is_empty() {
            for (name, bus, address) in [("eth9", "0000:01", address), ("eth0", "0000:02", "52:54:00:00:00:02")] {
                fs::create_dir_all(at(&format!("sys/devices/{bus}"))).expect("made");
                write(&format!("sys/class/net/{name}/type"), "1");
                write(&format!("sys/class/net/{name}/addr_assign_type"), "0");
                write(&format!("sys/class/net/{name}/address"), address);
                std::os::unix::fs::symlink(
                    at(&format!("sys/devices/{bus}")),
                    at(&format!("sys/class/net/{name}/device")),
                )
                .expect("a link");
            }
        }
        Machine::read(directory.path())
    }

    #[test]
    fn clones_of_a_machine_differ_and_a_machine_stays_itself() {
        let (id, nqn) = ("3d1219c7c4c5404aaa1f6d2a48adfda4", "nqn.2016-06.io.spdk:cnode1");
        let this = machine(id, "52:54:00:12:34:56").expect("a machine");
        assert_eq!(machine(id, "52:54:00:12:34:56").expect("a machine"), this);
        let clone = machine(id, "52:54:00:12:34:57").expect("a machine");
        let other = machine("11112222333344445555666677778888", "52:54:00:12:34:56").expect("a machine");
        let bare = machine(id, "").expect("a machine");
        for different in [&clone, &other, &bare] {
            assert_ne!(different.serial(nqn), this.serial(nqn));
            assert_ne!(different.uuid("file"), this.uuid("file"));
        }
        assert!(machine("", "").is_none());
        assert_ne!(this.serial(nqn), this.serial("nqn.2016-06.io.spdk:cnode2"));
        let serial = this.serial(nqn);
        assert!(
            serial.len() == 20 && serial.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !serial.contains(&id[..6])
        );
    }

    #[test]
    fn a_file_is_itself_under_any_name_and_its_copy_is_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let of = |name: &str| file(&fs::File::open(at(name)).expect("it opens")).expect("it has an identity");
        fs::write(at("a"), "content").expect("written");
        let first = of("a");
        fs::rename(at("a"), at("b")).expect("renamed");
        fs::write(at("b"), "other content").expect("written");
        assert_eq!(of("b"), first);
        fs::copy(at("b"), at("c")).expect("copied");
        assert_ne!(of("c"), first);
        // A file is a new one even if it takes the place, and maybe the number, of a removed file.
        fs::remove_file(at("b")).expect("removed");
        fs::write(at("b"), "content").expect("written");
        assert_ne!(of("b"), first);
    }

    #[test]
    fn disks_are_known_by_what_their_drivers_know_them_by() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |path: &str| directory.path().join(path);
        let write = |path: &str, text: &str| {
            fs::create_dir_all(at(path).parent().expect("a directory")).expect("made");
            fs::write(at(path), format!("{text}\n")).expect("written");
        };
        write("block/nvme0n1/wwid", "uuid.1234");
        write("block/nvme0n1/nvme0n1p2/partition", "2");
        write("block/nvme0n1/nvme0n1p2/start", "2048");
        write("block/sdb/device/wwid", " ");
        for (number, path) in [("259:0", "nvme0n1"), ("259:2", "nvme0n1/nvme0n1p2"), ("8:16", "sdb")] {
            std::os::unix::fs::symlink(at("block").join(path), at(number)).expect("a link");
        }
        let of = |major, minor| disk(directory.path(), rustix::fs::makedev(major, minor));
        assert_eq!(of(259, 0), "wwid uuid.1234");
        assert_eq!(of(259, 2), "wwid uuid.1234 part 2 at 2048");
        assert_eq!((of(8, 16), of(8, 32)), ("8:16".to_string(), "8:32".to_string()));
    }

    #[test]
    fn derived_identities_differ_and_have_their_form() {
        let uuid = random_uuid();
        assert_ne!(uuid, random_uuid());
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2));
        let part = derived_uuid(&uuid, "slice 0 4096");
        assert_eq!((part[6] >> 4, part[8] >> 6), (8, 2));
        assert!(
            part != uuid
                && part != derived_uuid(&uuid, "slice 4096 4096")
                && part == derived_uuid(&uuid, "slice 0 4096")
        );
        assert_eq!(eui64(&uuid)[0] & 3, 2);
        assert!(eui64(&uuid) != eui64(&part) && nguid(&uuid) != nguid(&part));
    }
}

//! Block devices: their size, their users, and the signatures on them.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::file;

/// A device number, as stat(2) gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// The major number of the device: its driver.
    pub major: u32,
    /// The device's number within it.
    pub minor: u32,
}

impl Device {
    /// From `st_dev` or `st_rdev`.
    pub fn from_number(number: u64) -> Device {
        Device { major: libc::major(number), minor: libc::minor(number) }
    }

    /// The directory in which the kernel describes the device: `/sys/dev/block/8:1`, resolved.
    pub fn sysfs(self) -> Option<PathBuf> {
        fs::canonicalize(format!("/sys/dev/block/{}:{}", self.major, self.minor)).ok()
    }

    /// The kernel's name: `sda1`.
    pub fn name(self) -> Option<String> {
        Some(self.sysfs()?.file_name()?.to_string_lossy().into_owned())
    }
}

/// Bytes of a device (or file): where its end is.
///
/// # Errors
/// ESPIPE on a file that has no end, such as a pipe.
pub fn bytes(file: &File) -> io::Result<u64> {
    (&mut &*file).seek(SeekFrom::End(0))
}

/// Bytes of a logical block, the unit of direct I/O (BLKSSZGET); None if the file is not a block device.
pub fn logical_block_bytes(file: &File) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes an int.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &mut bytes) };
    (status == 0).then_some(bytes as u32)
}

/// The users of a device (or of one of its partitions), each a phrase: `mounted on /srv`, `in use by dm-0`, `swap`.
/// Empty when no user is found.
pub fn users(path: &Path) -> Vec<String> {
    let Ok(metadata) = fs::metadata(path) else { return Vec::new() };
    let device = Device::from_number(metadata.rdev());
    let mut users = Vec::new();
    for (part, device) in with_partitions(device) {
        let on = |what: String| if part.is_empty() { what } else { format!("its partition {part} is {what}") };
        users.extend(mount_points(device).into_iter().map(|place| on(format!("mounted on {place}"))));
        users.extend(holders(device).into_iter().map(|holder| on(format!("in use by {holder}"))));
        users.extend(swaps(device).then(|| on("active swap space".into())));
    }
    // The kernel itself refuses O_EXCL for a device that is claimed exclusively by a mount (of another namespace), md,
    // dm, bcache, ...
    let exclusive = File::options().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(path);
    if users.is_empty() && exclusive.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
        users.push("claimed by another part of the system (open with O_EXCL says EBUSY)".into());
    }
    users
}

/// The users of the file at `path`: those that [`users`] finds of a block device; of a regular file, swap space and
/// loop devices on it.
pub fn users_of(path: &Path) -> Vec<String> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(metadata) = fs::metadata(path) else { return Vec::new() };
    if metadata.file_type().is_block_device() {
        return users(path);
    }
    let is_it = |other: &Path| file::identity(other) == Some((metadata.dev(), metadata.ino()));
    let swap = swap_paths().iter().any(|path| is_it(path)).then(|| "active swap space".to_string());
    let loops = loop_backing_files().into_iter().filter(|(path, _)| is_it(path));
    swap.into_iter().chain(loops.map(|(_, name)| format!("the file behind /dev/{name}"))).collect()
}

/// The device and its partitions: the name (empty for the device itself) and number of each.
fn with_partitions(device: Device) -> Vec<(String, Device)> {
    let mut all = vec![(String::new(), device)];
    let Some(directory) = device.sysfs() else { return all };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.path().join("partition").exists() {
            continue;
        }
        if let Some(number) = fs::read_to_string(entry.path().join("dev")).ok().as_deref().and_then(parse_device) {
            all.push((entry.file_name().to_string_lossy().into_owned(), number));
        }
    }
    all
}

/// `8:1\n` as a device.
fn parse_device(text: &str) -> Option<Device> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// The mount points of the device's file system in this mount namespace.
fn mount_points(device: Device) -> Vec<String> {
    mounts()
        .into_iter()
        .filter(|mount| mount.device == device || mount.source_device() == Some(device))
        .map(|m| m.place)
        .collect()
}

/// A line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `st_dev` of its files; an anonymous number for btrfs and network file systems.
    pub device: Device,
    /// The directory on which the file system is mounted.
    pub place: String,
    /// The type of file system.
    pub kind: String,
    /// The mounted device or export: `/dev/sda1`, `server:/export`.
    pub source: String,
    /// The options of the mount and of its file system: `rw,relatime,errors=remount-ro`.
    pub options: String,
}

impl Mount {
    /// The block device named by [`Mount::source`], if it is one.
    pub fn source_device(&self) -> Option<Device> {
        use std::os::unix::fs::FileTypeExt;
        let metadata = fs::metadata(&self.source).ok()?;
        metadata.file_type().is_block_device().then(|| Device::from_number(metadata.rdev()))
    }
}

/// All mounts of this mount namespace.
pub fn mounts() -> Vec<Mount> {
    fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines().filter_map(parse_mount).collect()
}

/// The mount, one of [`mounts`], that a path lies on; of a path that does not exist, that of the nearest directory that
/// does. None for a device, and where mountinfo has no line for the path.
pub fn mount_of<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let existing: PathBuf = path.ancestors().find_map(|path| fs::canonicalize(path).ok())?;
    let metadata = fs::metadata(&existing).ok()?;
    let is_device = metadata.mode() & libc::S_IFMT == libc::S_IFBLK || metadata.mode() & libc::S_IFMT == libc::S_IFCHR;
    let device = Device::from_number(metadata.dev());
    let holds = |mount: &&Mount| mount.device == device && existing.starts_with(&mount.place);
    // A later mount covers an earlier one on the same directory.
    mounts.iter().filter(|mount| !is_device && holds(mount)).max_by_key(|mount| mount.place.len())
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let (kind, source) = (right.next()?.to_string(), unescape(right.next()?));
    let mut options: Vec<&str> = left.get(5)?.split(',').collect();
    options.extend(right.next().unwrap_or_default().split(',').filter(|option| !option.is_empty()));
    let mut seen = std::collections::HashSet::new();
    options.retain(|option| seen.insert(*option));
    Some(Mount {
        device: parse_device(left.get(2)?)?,
        place: unescape(left.get(4)?),
        kind,
        source,
        options: options.join(","),
    })
}

/// `\040` and the like, as the kernel writes blanks in paths.
pub fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = (byte == b'\\').then(|| tail.get(..3)).flatten();
        match octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()) {
            Some(decoded) => {
                out.push(decoded);
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Stacked devices that are built on this one.
fn holders(device: Device) -> Vec<String> {
    device.sysfs().map(|directory| names_in(&directory.join("holders"))).unwrap_or_default()
}

/// Names of a directory's entries, sorted; empty if it cannot be read.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// True if the device is active swap space.
fn swaps(device: Device) -> bool {
    swap_paths().iter().any(|path| fs::metadata(path).is_ok_and(|m| Device::from_number(m.rdev()) == device))
}

/// Devices and files that are active swap space.
pub fn swap_paths() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    table.lines().skip(1).filter_map(|line| Some(PathBuf::from(unescape(line.split_whitespace().next()?)))).collect()
}

/// Files that stand behind loop devices in use, with the device's name.
pub fn loop_backing_files() -> Vec<(PathBuf, String)> {
    names_in(Path::new("/sys/block"))
        .into_iter()
        .filter(|name| name.starts_with("loop"))
        .filter_map(|name| {
            let path = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
            Some((PathBuf::from(path.trim_end()), name))
        })
        .collect()
}

/// The place of a magic number.
#[derive(Clone, Copy)]
enum At {
    /// An offset in bytes from the start of the device.
    Start(u64),
    /// An offset in bytes before the end of the device.
    End(u64),
    /// Bytes before the end once that is rounded down to the alignment (md's superblocks).
    AlignedEnd { align: u64, before: u64 },
}

/// Magic numbers, from the headers of Linux and the formats' specifications (as libblkid lists them).
const SIGNATURES: &[(&str, At, &[u8])] = &[
    ("ext2/ext3/ext4", At::Start(1080), b"\x53\xef"),
    ("xfs", At::Start(0), b"XFSB"),
    ("btrfs", At::Start(65_600), b"_BHRfS_M"),
    ("btrfs", At::Start((64 << 20) + 64), b"_BHRfS_M"),
    ("bcachefs", At::Start(4096 + 24), b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    ("bcache", At::Start(4096 + 24), b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("f2fs", At::Start(1024), b"\x10\x20\xf5\xf2"),
    ("erofs", At::Start(1024), b"\xe2\xe1\xf5\xe0"),
    ("squashfs", At::Start(0), b"hsqs"),
    ("nilfs2", At::Start(1030), b"\x34\x34"),
    ("jfs", At::Start(32_768), b"JFS1"),
    ("reiserfs", At::Start(65_588), b"ReIsEr"),
    ("gfs2", At::Start(65_536), b"\x01\x16\x19\x70"),
    ("ocfs2", At::Start(8192), b"OCFSV2"),
    ("ocfs2", At::Start(4096), b"OCFSV2"),
    ("ocfs2", At::Start(2048), b"OCFSV2"),
    ("ocfs2", At::Start(1024), b"OCFSV2"),
    ("ntfs", At::Start(3), b"NTFS    "),
    ("exfat", At::Start(3), b"EXFAT   "),
    ("refs", At::Start(3), b"ReFS\0\0\0\0"),
    ("BitLocker", At::Start(3), b"-FVE-FS-"),
    ("vfat", At::Start(82), b"FAT32   "),
    ("vfat", At::Start(54), b"FAT12   "),
    ("vfat", At::Start(54), b"FAT16   "),
    ("vfat", At::Start(54), b"FAT     "),
    ("hfs+", At::Start(1024), b"H+\0\x04"),
    ("apfs", At::Start(32), b"NXSB"),
    ("iso9660", At::Start(32_769), b"CD001"),
    ("udf", At::Start(32_769), b"BEA01"),
    ("swap", At::Start(4086), b"SWAPSPACE2"),
    ("swap", At::Start(16_374), b"SWAPSPACE2"),
    ("swap", At::Start(65_526), b"SWAPSPACE2"),
    ("swap", At::Start(4086), b"S1SUSPEND"),
    ("LUKS", At::Start(0), b"LUKS\xba\xbe"),
    ("LUKS", At::Start(16_384), b"SKUL\xba\xbe"),
    ("LVM2 physical volume", At::Start(24), b"LVM2 001"),
    ("LVM2 physical volume", At::Start(512 + 24), b"LVM2 001"),
    ("LVM2 physical volume", At::Start(1024 + 24), b"LVM2 001"),
    ("LVM2 physical volume", At::Start(1536 + 24), b"LVM2 001"),
    ("Linux RAID member", At::Start(0), b"\xfc\x4e\x2b\xa9"),
    ("Linux RAID member", At::Start(4096), b"\xfc\x4e\x2b\xa9"),
    ("Linux RAID member", At::AlignedEnd { align: 4096, before: 8192 }, b"\xfc\x4e\x2b\xa9"),
    ("Linux RAID member", At::AlignedEnd { align: 65_536, before: 65_536 }, b"\xfc\x4e\x2b\xa9"),
    ("Intel RAID member", At::End(1024), b"Intel Raid ISM Cfg Sig. "),
    ("DDF RAID member", At::End(512), b"\xde\x11\xde\x11"),
    ("DRBD", At::AlignedEnd { align: 4096, before: 4096 - 60 }, b"\x83\x74\x02\x67"),
    ("DRBD", At::AlignedEnd { align: 4096, before: 4096 - 60 }, b"\x83\x74\x02\x6b"),
    ("Ceph BlueStore", At::Start(0), b"bluestore block device"),
    ("VDO", At::Start(0), b"dmvdo001"),
    ("Stratis", At::Start(516), b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("Oracle ASM", At::Start(32), b"ORCLDISK"),
    ("GPT", At::Start(512), b"EFI PART"),
    ("GPT", At::Start(4096), b"EFI PART"),
    ("GPT (backup table)", At::End(512), b"EFI PART"),
    ("GPT (backup table)", At::End(4096), b"EFI PART"),
];

/// The formats of the content of a device of `bytes` bytes, by name: file systems, partition tables, members of volume
/// managers and RAID sets, encryption. `read_exact_at` reads a few pieces of the device's beginning and end, wherever
/// the device is. Empty if no known format is found.
///
/// # Errors
/// The errors of reading: the content of the device is then unknown.
pub fn signatures(
    bytes: u64,
    mut read_exact_at: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<Vec<&'static str>> {
    let mut read = |offset: u64, len: usize| {
        let mut piece = vec![0; len];
        read_exact_at(&mut piece, offset).map(|()| piece)
    };
    let mut found: Vec<&'static str> = Vec::new();
    for &(name, at, magic) in SIGNATURES {
        let offset = match at {
            At::Start(offset) => Some(offset),
            At::End(before) => bytes.checked_sub(before),
            At::AlignedEnd { align, before } => (bytes / align * align).checked_sub(before),
        };
        let Some(offset) = offset.filter(|offset| offset + magic.len() as u64 <= bytes) else { continue };
        if !found.contains(&name) && read(offset, magic.len())? == magic {
            found.push(name);
        }
    }
    if has_zfs_label(bytes, &mut read)? {
        found.push("zfs");
    }
    if found.is_empty() && has_mbr(bytes, &mut read)? {
        found.push("MBR partition table");
    }
    Ok(found)
}

/// Reads a number of bytes at an offset.
type Read<'a> = &'a mut dyn FnMut(u64, usize) -> io::Result<Vec<u8>>;

/// An uberblock of a label at the start: 128 of 1 KiB each from 128 KiB, magic 0x00bab10c in either byte order.
fn has_zfs_label(bytes: u64, read: Read) -> io::Result<bool> {
    if bytes < 256 << 10 {
        return Ok(false);
    }
    let ring = read(128 << 10, 128 << 10)?;
    Ok(ring
        .chunks(1024)
        .any(|block| block[..8] == 0x00ba_b10c_u64.to_le_bytes() || block[..8] == 0x00ba_b10c_u64.to_be_bytes()))
}

/// A boot record whose table has at least one partition and only sane entries: a boot sector of a file system has
/// the same last two bytes.
fn has_mbr(bytes: u64, read: Read) -> io::Result<bool> {
    if bytes < 512 {
        return Ok(false);
    }
    let sector = read(0, 512)?;
    let mut entries = sector[446..510].chunks(16);
    let sane = entries.clone().all(|entry| entry[0] & 0x7f == 0);
    let used = entries.any(|entry| entry[4] != 0 && entry[12..16] != [0; 4]);
    Ok(sector[510..] == [0x55, 0xaa] && sane && used)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn image(bytes: u64) -> File {
        let here = std::env::current_exe().unwrap();
        let file =
            File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(here.parent().unwrap()).unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    fn signatures(file: &File, bytes: u64) -> io::Result<Vec<&'static str>> {
        super::signatures(bytes, |piece, offset| file.read_exact_at(piece, offset))
    }

    #[test]
    fn every_signature_is_found_and_a_blank_or_random_device_has_none() {
        const BYTES: u64 = (96 << 20) + 3 * 512;
        assert!(signatures(&image(BYTES), BYTES).unwrap().is_empty());
        assert!(signatures(&image(0), 0).unwrap().is_empty());
        assert!(signatures(&image(700), 700).unwrap().is_empty());
        for &(name, at, magic) in SIGNATURES {
            let file = image(BYTES);
            let offset = match at {
                At::Start(offset) => offset,
                At::End(before) => BYTES - before,
                At::AlignedEnd { align, before } => BYTES / align * align - before,
            };
            file.write_all_at(magic, offset).unwrap();
            assert_eq!(signatures(&file, BYTES).unwrap(), [name]);
        }
    }

    #[test]
    fn a_partition_table_is_told_from_a_boot_sector() {
        let file = image(1 << 20);
        file.write_all_at(&[0x55, 0xaa], 510).unwrap();
        assert!(signatures(&file, 1 << 20).unwrap().is_empty(), "no partition");
        file.write_all_at(&[0x80, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0], 446).unwrap();
        assert_eq!(signatures(&file, 1 << 20).unwrap(), ["MBR partition table"]);
        file.write_all_at(&[0x13], 462).unwrap();
        assert!(signatures(&file, 1 << 20).unwrap().is_empty(), "a status byte that no table has");
    }

    #[test]
    fn a_zfs_uberblock_is_found_wherever_it_is() {
        let file = image(1 << 20);
        file.write_all_at(&0x00ba_b10c_u64.to_be_bytes(), (128 + 77) << 10).unwrap();
        assert_eq!(signatures(&file, 1 << 20).unwrap(), ["zfs"]);
    }

    #[test]
    fn mountinfo_is_read_with_blanks_and_optional_fields() {
        let mount =
            parse_mount(r"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue").unwrap();
        let device = Device { major: 98, minor: 0 };
        assert_eq!(
            mount,
            Mount {
                device,
                place: "/mnt 2".into(),
                kind: "ext3".into(),
                source: "/dev/root".into(),
                options: "rw,noatime,errors=continue".into()
            }
        );
        assert!(mounts().iter().any(|mount| mount.place == "/"));
    }

    #[test]
    fn a_path_lies_on_the_closest_mount() {
        let mounts = mounts();
        assert_eq!(mount_of(Path::new("/proc/self/status"), &mounts).unwrap().kind, "proc");
        assert_eq!(mount_of(Path::new("/proc/nonexistent/file"), &mounts).unwrap().place, "/proc");
        assert_eq!(mount_of(Path::new("/dev/null"), &mounts), None);
    }
}

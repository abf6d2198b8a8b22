//! The mounts of the NFS client: their options, and the list of its file systems in /proc/fs/nfsfs/volumes
//! (`nfs_volume_list_show`, fs/nfs/client.c).

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};

/// The FSID that a server has given to the file system with this device number; None if the list does not have the
/// device, as in another network namespace. The FSID and an inode number together identify a file on a server (RFC
/// 7530, 5.8.1.9).
///
/// The function allocates nothing and makes raw system calls only.
pub fn fsid(device: (u32, u32)) -> Option<(u64, u64)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, c"/proc/fs/nfsfs/volumes", flags, Mode::empty()).ok()?;
    let found = search(|room| read(&file, room), device);
    sys::raw::close(file);
    found
}

/// True if a file system of NFS with this device number (`st_dev`) is mounted with the option soft: its client gives a
/// request up that the server may carry out later. True as well if the list of mounts cannot be read.
///
/// The function allocates nothing and makes raw system calls only.
pub fn is_soft(device: u64) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(CWD, c"/proc/self/mountinfo", flags, Mode::empty()) else { return true };
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let soft = find(|room| read(&file, room), |line| softness(line, device)).unwrap_or(false);
    sys::raw::close(file);
    soft
}

/// True if the mount in a line of mountinfo gives requests up; None if the line is of another device or not of NFS.
fn softness(line: &[u8], device: (u32, u32)) -> Option<bool> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    if (major.parse(), minor.parse()) != (Ok(device.0), Ok(device.1)) {
        return None;
    }
    fields.find(|&field| field == b"-")?;
    if !fields.next()?.starts_with(b"nfs") {
        return None;
    }
    let options = fields.nth(1)?.split(|&byte| byte == b',');
    Some(options.into_iter().any(|option| matches!(option, b"soft" | b"softerr")))
}

fn read(file: &OwnedFd, room: &mut [u8]) -> usize {
    rustix::io::read(file, room).unwrap_or(0)
}

/// Searches the text that `read` fills its room with, until `read` fills nothing.
fn search(read: impl FnMut(&mut [u8]) -> usize, device: (u32, u32)) -> Option<(u64, u64)> {
    find(read, |line| fsid_in(line, device))
}

/// The first answer that `in_line` gives for a line of the text that `read` fills its room with.
fn find<T>(mut read: impl FnMut(&mut [u8]) -> usize, in_line: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let mut room = [0u8; 2048];
    let mut filled = 0;
    loop {
        let got = read(room.get_mut(filled..)?);
        filled = (filled + got).min(room.len());
        let mut rest = room.get(..filled)?;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = rest.split_at_checked(end)?;
            if let Some(found) = in_line(line) {
                return Some(found);
            }
            rest = after.get(1..)?;
        }
        let (from, left) = (filled - rest.len(), rest.len());
        if got == 0 {
            return in_line(room.get(from..filled)?);
        }
        // The kernel writes no line longer than the room into this file: such a line is dropped.
        let left = if left == room.len() { 0 } else { left };
        room.copy_within(from..from + left, 0);
        filled = left;
    }
}

/// The FSID in a line such as `v4 7f000020  801 0:27         0:0                               no`; None if the line is
/// of another device.
fn fsid_in(line: &[u8], (major, minor): (u32, u32)) -> Option<(u64, u64)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (found_major, found_minor) = fields.nth(3)?.split_once(':')?;
    if (found_major.parse(), found_minor.parse()) != (Ok(major), Ok(minor)) {
        return None;
    }
    let (high, low) = fields.next()?.split_once(':')?;
    Some((u64::from_str_radix(high, 16).ok()?, u64::from_str_radix(low, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: &[u8] = b"NV SERVER   PORT DEV          FSID                              FSC\n\
        v4 7f000020  801 0:27         0:0                               no \n\
        v3 7f000021  801 0:28         1f2e3d4c5b6a7988:ffffffffffffffff yes\n\
        v4 20010db8000000000000000000000001 801 0:290        a:b                               no \n";

    /// The text of the file, in pieces of at most `most` bytes.
    fn pieces(mut text: &[u8], most: usize) -> impl FnMut(&mut [u8]) -> usize {
        move |room| {
            let length = text.len().min(most).min(room.len());
            room[..length].copy_from_slice(&text[..length]);
            text = &text[length..];
            length
        }
    }

    #[test]
    fn a_file_system_is_found_by_its_device() {
        for most in [1, 7, 100, 4096] {
            let find = |device| search(pieces(FILE, most), device);
            assert_eq!(find((0, 27)), Some((0, 0)));
            assert_eq!(find((0, 28)), Some((0x1f2e_3d4c_5b6a_7988, u64::MAX)));
            assert_eq!(find((0, 290)), Some((10, 11)));
            assert_eq!(find((0, 29)), None);
            assert_eq!(find((0, 2)), None);
        }
        assert_eq!(search(pieces(&FILE[..FILE.len() - 1], 9), (0, 290)), Some((10, 11)), "without its last newline");
    }

    #[test]
    fn soft_mounts_are_told_from_hard_ones() {
        let line = |kind: &str, options: &str| {
            format!("36 29 0:40 / /mnt/a rw,relatime shared:1 - {kind} 127.0.0.1:/e {options}").into_bytes()
        };
        assert_eq!(softness(&line("nfs", "rw,vers=3,soft,proto=tcp"), (0, 40)), Some(true));
        assert_eq!(softness(&line("nfs4", "rw,vers=4.0,softerr"), (0, 40)), Some(true));
        assert_eq!(softness(&line("nfs4", "rw,vers=4.0,hard,softreval"), (0, 40)), Some(false));
        assert_eq!(softness(&line("nfs", "rw,soft"), (0, 41)), None);
        assert_eq!(softness(&line("ext4", "rw,soft"), (0, 40)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(
            text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b':'), any::<u8>()], 0..5000),
            most in 1usize..3000,
        ) {
            search(pieces(&text, most), (0, 27));
        }
    }
}

//! The other ways by which the process has a file that is about to be spread: descriptors that no hook saw come, and
//! memory that is mapped from the file.
//!
//! A descriptor may be inherited over exec or fork, received over a socket, opened by libc inside itself or by a ring.
//! A mapping lives on when its descriptor has been closed. Each of them uses the page cache of one lane, and a request
//! that goes to another lane passes that cache by. So before the first request of an open file is spread, the library
//! asks the kernel for all of them: /proc/thread-self/fd and /proc/self/maps. Descriptors and mappings that come later
//! pass through a hook.
//!
//! The functions here use system calls and the stack only, because they run inside open(2).

use core::ffi::{CStr, c_int};

use crate::abi::raw;
use crate::abi::readable;
use crate::open::tracking;
use crate::state::group::{self, GroupRef, Opened};
use crate::state::lane;
use crate::state::node::{Lock, NodeRef};
use crate::state::process;
use crate::state::proof;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

/// Looks for other descriptors and for mappings of the group's file, which is open as `fd` under this path.
///
/// A descriptor that is not tracked yet is tracked from now on, as an open file that stays on its lane. A mapping ends
/// the spreading of the file, and so does a failure of the search.
pub fn look_for(group: &GroupRef, fd: c_int, path: &[u8]) {
    let node = group.node_ref();
    match is_mapped(node.get().identity(), path) {
        Ok(false) => {}
        Ok(true) => node.get().end(Reason::Mapped),
        Err(_) => node.get().end(Reason::Unseen),
    }
    let found = each_descriptor(|other| {
        let (device, inode) = node.get().identity();
        let Ok(found) = raw::identity(other) else { return };
        // Files without a type are the kernel's own: a set of watches, for example.
        if node.get().is_remote() && found.mode & libc::S_IFMT == 0 && watches(other, device, inode) {
            node.get().end(Reason::Watched);
        }
        if found.inode != inode {
            return;
        }
        if found.device != device {
            // It may be the same file on another lane. Opening and closing the file there would drop the lock.
            if found.mode & libc::S_IFMT == libc::S_IFREG && lock_by(other).is_some() {
                node.get().end(Reason::Locked);
            }
            return;
        }
        if let Some(lock) = lock_by(other) {
            node.get().end(Reason::Locked);
            node.get().first_lock(lock, || {
                if lock == Lock::OfOpenFile {
                    group::unwatch_all(node); // for a lock of the process that would be the end
                }
            });
        }
        if other != fd {
            adopt(other, node, group.pool_index(), group.own());
        }
    });
    if found.is_err() {
        node.get().end(Reason::Unseen);
    }
}

/// Tracks a descriptor of a known file that no hook saw come. Nothing of the descriptor is spread; in its effects on
/// the file it counts like any other. The flags come from the kernel, whatever the number meant before.
pub fn adopt(fd: c_int, node: NodeRef, pool: usize, lane: usize) {
    let Ok(flags) = raw::fcntl(fd, libc::F_GETFL, 0) else { return };
    // O_PATH neither reads nor writes; a lane's file that is being opened is not in the table yet.
    if flags & (libc::O_PATH | tracking::LANES_FLAG) != 0 {
        return;
    }
    const MATTER: c_int = libc::O_ACCMODE | libc::O_DIRECT | libc::O_APPEND;
    let before = table::get(fd);
    match before {
        Entry::Lane(name) if GroupRef::acquire(name).is_none_or(|group| group.owns(fd)) => return,
        Entry::File(name) | Entry::Quiet(name) => {
            let same = |group: &GroupRef| group.node_ref() == node && (group.flags() ^ flags) & MATTER == 0;
            if GroupRef::acquire(name).is_some_and(|group| same(&group)) {
                return; // known
            }
        }
        Entry::Lane(_) | Entry::Nothing => {}
    }
    let Some(held) = node.again() else { return };
    let group = match GroupRef::new(Opened { node: held, pool, own: lane, flags }) {
        Ok(group) => group,
        Err(opened) => {
            opened.node.get().end(Reason::Tables);
            opened.node.release();
            return;
        }
    };
    group.end(Reason::Unseen);
    if !group.is_direct() {
        // The page cache of the lane must not be filled with data that lanes are about to replace.
        group.node().drain();
        group.node().revalidate(fd);
    }
    // Other threads make and enter their private duplicates under this guard. So a descriptor that is not entered now
    // is not a private duplicate.
    let _guard = process::HighNumbers::reserve();
    if table::get(fd) == before && proof::is_inode(fd, node.get().identity()) {
        tracking::enter(fd, group);
    }
}

/// Tracks a descriptor that no hook has opened, if its file is known: the program has received it over a socket, or
/// taken it from another process. A descriptor of any other file is found when that file is to be spread.
pub fn came(fd: c_int) {
    if !lane::active() || !process::is_own() {
        return;
    }
    is_new(fd);
    if let Some(node) = tracking::node_of_file(fd) {
        adopt_known(fd, node, tracking::place_of(fd));
        node.release();
    }
}

/// Tracks a descriptor that the program has opened by a path off the lanes, if the file is known: one superblock may
/// have several mounts. The flags are those of open(2).
pub fn came_off_the_lanes(fd: c_int, flags: c_int) {
    if let Some(node) = tracking::node_of_file(fd) {
        if flags & libc::O_TRUNC != 0 {
            node.get().measure(fd);
        }
        adopt_known(fd, node, None);
        node.release();
    }
}

/// Tracks a descriptor of a pool's file that no hook saw come, and whose node the caller has found or made. False if
/// the tables have no room for the descriptor.
pub fn tracks(fd: c_int, node: NodeRef) -> bool {
    adopt_known(fd, node, tracking::place_of(fd));
    GroupRef::of(fd).is_some_and(|group| group.node_ref() == node)
}

/// Tracks a descriptor of a known file at this place (pool and lane), or, without a place, at that of another open file
/// of the program.
fn adopt_known(fd: c_int, node: NodeRef, place: Option<(usize, usize)>) {
    match place.or_else(|| group::place_of(node)) {
        Some((pool, lane)) => adopt(fd, node, pool, lane),
        None => node.get().end(Reason::Unseen),
    }
}

/// Drops the entry of a number that the kernel has given for something that is not a file of a pool: the file that the
/// number meant before was closed.
#[inline]
pub fn is_new(fd: c_int) {
    if table::get(fd) != Entry::Nothing && process::is_own() {
        drop(GroupRef::held_by(tracking::take_of_program(fd)));
    }
}

/// Notes that an open file goes where no hook sees its uses, and may outlive its descriptor there. If the file belongs
/// to a pool, and its page cache may be read or written that way, nothing of the file is spread any more in this
/// process.
pub fn goes_out_of_sight(fd: c_int) {
    if !lane::active() || !process::is_own() {
        return;
    }
    let past_the_cache = raw::fcntl(fd, libc::F_GETFL, 0).is_ok_and(|flags| flags & libc::O_DIRECT != 0);
    if !past_the_cache && let Some(node) = tracking::node_of_pool_file(fd) {
        end_for_good(node);
    }
}

/// Notes files that a ring keeps: a request names a place in the ring's table, and the descriptor may be closed.
pub fn go_out_of_sight(files: *const c_int, count: u32) {
    /// IORING_MAX_FIXED_FILES: the kernel refuses more at a time.
    const MOST: u32 = 1 << 20;
    if count > MOST || !lane::active() {
        return;
    }
    let _errno = crate::abi::errno::kept();
    readable::for_each(files, count as usize, |_, fd| goes_out_of_sight(fd));
}

/// Notes that a file is about to be opened where no hook sees its descriptor: if it is a file of a pool, nothing of it
/// is spread any more.
///
/// # Safety
/// `path` is the path that the program gives openat(2).
pub unsafe fn is_opened_out_of_sight(at: c_int, path: *const libc::c_char) {
    if !lane::active() || !process::is_own() {
        return;
    }
    let flags = raw::arg(libc::O_PATH | libc::O_CLOEXEC);
    // SAFETY: the kernel reads the path; a bad one is its EFAULT.
    let fd = unsafe { raw::call(libc::SYS_openat, raw::arg(at), path as usize, flags, 0, 0, 0) };
    let Ok(fd) = raw::check(fd).map(|fd| fd as c_int) else { return };
    if let Some(node) = tracking::node_of_pool_file(fd) {
        end_for_good(node);
    }
    let _ = raw::close(fd);
}

/// Ends the spreading of a file in this process. The reference to the node is kept: a descriptor that nobody sees come,
/// nobody sees go.
fn end_for_good(node: NodeRef) {
    node.get().end(Reason::Unseen);
    node.get().drain();
}

/// True if the process has memory mapped from a file. The file is found by device and inode number, and by path where a
/// file system shows other numbers in /proc (Btrfs, overlays).
fn is_mapped((device, inode): (u64, u64), path: &[u8]) -> raw::Result<bool> {
    let maps = raw::open(c"/proc/self/maps", libc::O_RDONLY)?;
    let mut room = [0u8; 8192];
    let (mut kept, mut found, mut result) = (0, false, Ok(()));
    while !found {
        let Some(free) = room.get_mut(kept..).filter(|free| !free.is_empty()) else {
            result = Err(libc::ENAMETOOLONG); // a line has at most a path of 4096 bytes, four times that if escaped
            break;
        };
        // SAFETY: the slice is valid for its length.
        let got = unsafe { raw::call(libc::SYS_read, raw::arg(maps), free.as_mut_ptr() as usize, free.len(), 0, 0, 0) };
        match raw::check(got) {
            Ok(0) => break,
            Ok(got) => kept += got,
            Err(libc::EINTR) => continue,
            Err(error) => {
                result = Err(error);
                break;
            }
        }
        let whole = room.iter().take(kept).rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let lines = room.get(..whole).unwrap_or_default().split(|&byte| byte == b'\n');
        found = lines.filter_map(Mapping::of).any(|mapping| {
            mapping.inode != 0 && ((mapping.device, mapping.inode) == (device, inode) || mapping.path == path)
        });
        room.copy_within(whole..kept, 0);
        kept -= whole;
    }
    let _ = raw::close(maps);
    result.map(|()| found)
}

/// A line of /proc/self/maps (proc_pid_maps(5)): `start-end perms offset major:minor inode path`.
struct Mapping<'l> {
    device: u64,
    inode: u64,
    path: &'l [u8],
}

impl Mapping<'_> {
    fn of(line: &[u8]) -> Option<Mapping<'_>> {
        let mut words = line.splitn(6, |&byte| byte == b' ').skip(3);
        let (device, inode) = (words.next()?, words.next()?);
        let path = words.next().map_or(&b""[..], |rest| rest.trim_ascii_start());
        let colon = device.iter().position(|&byte| byte == b':')?;
        let part = |digits: Option<&[u8]>| number(digits?, 16).and_then(|value| u32::try_from(value).ok());
        let (major, minor) = (part(device.get(..colon))?, part(device.get(colon + 1..))?);
        Some(Mapping { device: libc::makedev(major, minor), inode: number(inode, 10)?, path })
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let digit =
        |value: u64, &byte: &u8| value.checked_mul(radix.into())?.checked_add(char::from(byte).to_digit(radix)?.into());
    if digits.is_empty() { None } else { digits.iter().try_fold(0u64, digit) }
}

/// The lock that was taken by a descriptor: before execve(2), before the process inherited it, or where no hook saw it.
/// Of several, the one that ends first. (proc_pid_fdinfo(5): a line for each.)
fn lock_by(fd: c_int) -> Option<Lock> {
    // The lines about locks follow four short ones.
    let mut room = [0u8; 512];
    let bytes = room.len();
    let said = match told_about(fd, &mut room) {
        Ok(said) => said,
        Err(libc::ENOENT) => return None, // another thread has just closed the descriptor
        Err(_) => return Some(Lock::OfProcess),
    };
    let says = |word: &[u8]| said.windows(word.len()).any(|found| found == word);
    // A text that fills the room may be cut.
    let sure = said.len() < bytes;
    says(b"\nlock:").then_some(if says(b": POSIX ") || !sure { Lock::OfProcess } else { Lock::OfOpenFile })
}

/// True if the descriptor is an inotify(7) instance that watches the file, or one with more watches than the library
/// looks at. (proc_pid_fdinfo(5): a line for each watch, with hexadecimal numbers.)
fn watches(fd: c_int, device: u64, inode: u64) -> bool {
    let mut room = [0u8; 4096];
    let bytes = room.len();
    let Ok(said) = told_about(fd, &mut room) else { return false };
    let mut lines = said.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"inotify "));
    let number = |line: &[u8], name: &[u8]| {
        let mut words = line.split(|&byte| byte == b' ');
        let digits = words.find_map(|word| word.strip_prefix(name))?;
        u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
    };
    // The kernel's own notation of a device: 20 bits are the minor number.
    let device_in = |sdev: u64| libc::makedev((sdev >> 20) as u32, (sdev & 0xf_ffff) as u32);
    let this =
        |line: &[u8]| number(line, b"ino:") == Some(inode) && number(line, b"sdev:").map(device_in) == Some(device);
    lines.any(this) || (said.len() == bytes && said.windows(9).any(|found| found == b"\ninotify "))
}

/// The beginning of the text of /proc/thread-self/fdinfo about a descriptor, in `room`.
fn told_about(fd: c_int, room: &mut [u8]) -> raw::Result<&[u8]> {
    let mut path = raw::Digits::new(b"/proc/thread-self/fdinfo/");
    path.number(fd as u64);
    let file = raw::open(path.c_str().ok_or(libc::ENAMETOOLONG)?, libc::O_RDONLY)?;
    let (to, bytes) = (room.as_mut_ptr() as usize, room.len());
    // SAFETY: the slice is valid for its length.
    let got = unsafe { raw::call(libc::SYS_read, raw::arg(file), to, bytes, 0, 0, 0) };
    let _ = raw::close(file);
    Ok(room.get(..raw::check(got)?).unwrap_or_default())
}

/// Calls `each` for every descriptor of the calling thread.
fn each_descriptor(mut each: impl FnMut(c_int)) -> raw::Result<()> {
    const NAME: &CStr = c"/proc/thread-self/fd";
    let directory = raw::open(NAME, libc::O_RDONLY | libc::O_DIRECTORY)?;
    let mut room = [0u64; 512];
    let result = loop {
        let (to, bytes) = (room.as_mut_ptr() as usize, size_of_val(&room));
        // SAFETY: the buffer is valid for its length.
        let got = unsafe { raw::call(libc::SYS_getdents64, raw::arg(directory), to, bytes, 0, 0, 0) };
        match raw::check(got) {
            Ok(0) => break Ok(()),
            Ok(got) => {
                let filled: &[u8] =
                    // SAFETY: bytes of the array, which is initialised and longer than what was filled.
                    unsafe { core::slice::from_raw_parts(room.as_ptr().cast::<u8>(), got.min(bytes)) };
                numbers_of(filled).filter(|&fd| fd != directory).for_each(&mut each);
            }
            Err(error) => break Err(error),
        }
    };
    let _ = raw::close(directory);
    result
}

/// The names of a buffer of getdents64(2) that are numbers.
fn numbers_of(entries: &[u8]) -> impl Iterator<Item = c_int> {
    /// The offsets of `d_reclen` and `d_name` in a `struct linux_dirent64`.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut rest = entries;
    let names = core::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*rest.get(LENGTH)?, *rest.get(LENGTH + 1)?]));
        let name = rest.get(NAME..length)?;
        rest = rest.get(length..)?;
        Some(name.split(|&byte| byte == 0).next().unwrap_or_default())
    });
    names.filter_map(|name| number(name, 10).and_then(|value| c_int::try_from(value).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn lines_of_maps() {
        let line = b"7f0000000000-7f0000001000 rw-s 00001000 fd:0a 4711                       /mnt/a file (deleted)";
        let mapping = Mapping::of(line).unwrap();
        assert_eq!((mapping.device, mapping.inode), (libc::makedev(0xfd, 10), 4711));
        assert_eq!(mapping.path, b"/mnt/a file (deleted)");
        assert_eq!(Mapping::of(b"7f00-7f01 rw-p 00000000 00:00 0").unwrap().inode, 0);
        assert!(Mapping::of(b"nonsense").is_none());
    }

    #[test]
    fn own_descriptors_are_found() {
        let file = tempfile::tempfile().unwrap();
        let mut found = Vec::new();
        each_descriptor(|fd| found.push(fd)).unwrap();
        assert!(found.contains(&file.as_raw_fd()), "{found:?}");
    }

    #[test]
    fn locks_are_found_by_their_kinds() {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        assert_eq!(lock_by(fd), None);
        // SAFETY: integers only.
        assert_eq!(unsafe { libc::flock(fd, libc::LOCK_EX) }, 0);
        assert_eq!(lock_by(fd), Some(Lock::OfOpenFile));
        let lock = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
        // SAFETY: the pointer is to a lock that lives for the call.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const lock) }, 0);
        assert_eq!(lock_by(fd), Some(Lock::OfProcess), "the one that ends first");
        assert_eq!(lock_by(c_int::MAX), None, "a descriptor that another thread has closed");
    }

    #[test]
    fn own_mappings_are_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let identity = raw::identity(file.as_file().as_raw_fd()).unwrap();
        let known = (identity.device, identity.inode);
        assert_eq!(is_mapped(known, b"/no such path"), Ok(false));
        // SAFETY: a new shared mapping of an open file.
        let memory = unsafe {
            libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_file().as_raw_fd(), 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        assert!(
            is_mapped(known, b"/no such path") == Ok(true)
                || is_mapped(known, file.path().as_os_str().as_encoded_bytes()) == Ok(true)
        );
        // SAFETY: this function has made the mapping above, and nobody else unmaps it.
        assert_eq!(unsafe { libc::munmap(memory, 4096) }, 0);
        assert_eq!(is_mapped(known, b"/no such path"), Ok(false));
    }
}

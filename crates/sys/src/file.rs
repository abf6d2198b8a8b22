//! Files beyond what std offers: alignment of direct I/O, reservation, advice, and which of a file's bytes are in
//! the page cache or on the disk at all.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Alignment in bytes that O_DIRECT asks of memory and of offsets and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlignment {
    /// The alignment of addresses in memory, in bytes.
    pub memory: u32,
    /// The alignment of offsets and lengths, in bytes.
    pub offset: u32,
}

/// The alignment that direct I/O on this file needs; None where the kernel does not say (before 6.1, or a file system
/// that does not report it). Zero in both fields: direct I/O is not supported on this file. Source: statx(2),
/// STATX_DIOALIGN.
pub fn direct_alignment(file: &File) -> Option<DirectAlignment> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor; stat is large enough for the kernel.
    let status = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, stat.as_mut_ptr())
    };
    // SAFETY: zeroed memory is a valid statx, whatever the kernel filled in.
    let stat = unsafe { stat.assume_init() };
    (status == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0)
        .then_some(DirectAlignment { memory: stat.stx_dio_mem_align, offset: stat.stx_dio_offset_align })
}

/// The call by which [`reserve`] reserves space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// fallocate(2); the file grows.
    Native,
    /// fallocate(2) that leaves the size.
    KeepSize,
    /// posix_fallocate(3): writes zeros where the file system cannot reserve.
    Posix,
}

/// Reserves blocks for `len` bytes from `offset`.
///
/// # Errors
/// ENOSPC, EFBIG; EOPNOTSUPP for the two native forms where the file system cannot.
pub fn reserve(file: &File, how: Reserve, offset: u64, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let (offset, len) = (offset as i64, len as i64);
    let mode = match how {
        Reserve::Native => 0,
        Reserve::KeepSize => libc::FALLOC_FL_KEEP_SIZE,
        Reserve::Posix => {
            // SAFETY: posix_fallocate takes no memory; it returns the error number.
            let errno = unsafe { libc::posix_fallocate64(file.as_raw_fd(), offset, len) };
            return if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) };
        }
    };
    // SAFETY: fallocate takes no memory.
    checked(unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset, len) })
}

/// An advice for posix_fadvise(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// POSIX_FADV_SEQUENTIAL.
    Sequential,
    /// POSIX_FADV_RANDOM.
    Random,
    /// POSIX_FADV_DONTNEED: drops clean pages.
    DontNeed,
}

/// Advises the kernel about a range of a file; `len` 0 is to its end.
///
/// # Errors
/// ESPIPE on a descriptor that is not a file or device.
pub fn advise(file: &File, advice: Advice, offset: u64, len: u64) -> io::Result<()> {
    let advice = match advice {
        Advice::Sequential => libc::POSIX_FADV_SEQUENTIAL,
        Advice::Random => libc::POSIX_FADV_RANDOM,
        Advice::DontNeed => libc::POSIX_FADV_DONTNEED,
    };
    // SAFETY: posix_fadvise takes no memory; it returns the error number.
    let errno = unsafe { libc::posix_fadvise64(file.as_raw_fd(), offset as i64, len as i64, advice) };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Waits for an exclusive flock(2) on the file; released when the file is closed.
///
/// # Errors
/// EINTR, or ENOLCK on file systems without locks.
pub fn lock(file: &File) -> io::Result<()> {
    // SAFETY: flock takes no memory.
    checked(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) })
}

/// Takes a flock(2) if nobody holds one that excludes it: shared, or exclusive. Returns true if the lock was taken.
///
/// # Errors
/// ENOLCK on file systems without locks.
pub fn try_lock(file: &File, exclusive: bool) -> io::Result<bool> {
    let kind = if exclusive { libc::LOCK_EX } else { libc::LOCK_SH };
    // SAFETY: flock takes no memory.
    match checked(unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) }) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// The time for which a process that was killed may keep a file locked: its end takes a moment, and its ring lets go of
/// files, and of the writes that are in flight, after it.
const LAST_MOMENTS: Duration = Duration::from_secs(2);

/// As [`try_lock`], and waits for the end of a process that was killed, for at most two seconds.
///
/// # Errors
/// ENOLCK on file systems without locks.
pub fn lock_after_others(file: &File, exclusive: bool) -> io::Result<bool> {
    let until = Instant::now() + LAST_MOMENTS;
    loop {
        if try_lock(file, exclusive)? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The process that holds a flock(2) of the file, as proc_locks(5) tells it; `None` if nobody does, or if the process
/// is on another machine or in another namespace of processes.
pub fn lock_holder(file: &File) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let mut holders = locks.lines().filter_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 7211 fd:00:1234 0 EOF; a line of one that waits has -> after its number.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = words[..] else { return None };
        let same = place.rsplit(':').next() == Some(&inode);
        same.then(|| pid.parse().ok()).flatten().filter(|pid| *pid > 0)
    });
    let first = holders.next()?;
    // Files of two file systems may share a number: with two candidates, neither is certain.
    holders.all(|other| other == first).then_some(first)
}

/// Releases a flock(2).
pub fn unlock(file: &File) {
    // SAFETY: flock takes no memory; unlocking an open file of this process cannot fail.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// A part of a whole that was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Bytes with the property.
    pub bytes: u64,
    /// Bytes that were looked at, with the property or without.
    pub of: u64,
}

impl Share {
    /// The fraction, 0..=1; None if nothing was looked at.
    pub fn fraction(self) -> Option<f64> {
        (self.of > 0).then(|| self.bytes as f64 / self.of as f64)
    }
}

impl std::ops::AddAssign for Share {
    fn add_assign(&mut self, other: Share) {
        self.bytes += other.bytes;
        self.of += other.of;
    }
}

/// Pages are counted in full up to this many bytes, in evenly spaced windows beyond: a terabyte takes no longer.
const SCAN_BYTES: u64 = 4 << 30;
const WINDOWS: u64 = 512;
const WINDOW_BYTES: u64 = 2 << 20;

/// The bytes of a range that are in the page cache; None where the kernel does not tell (no cachestat(2), which came
/// with Linux 6.5, and mincore(2) refused too).
pub fn cached(file: &File, offset: u64, len: u64) -> Option<Share> {
    let mut total = Share::default();
    for (start, len) in windows(offset, len) {
        total += cached_by_cachestat(file, start, len).or_else(|| cached_by_mincore(file, start, len))?;
    }
    Some(total)
}

/// The whole range if it is small, else [`WINDOWS`] evenly spaced parts of it.
fn windows(offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let (count, width) = if len <= SCAN_BYTES { (1, len) } else { (WINDOWS, WINDOW_BYTES) };
    let stride = if count == 1 { 0 } else { (len - width) / (count - 1) / 4096 * 4096 };
    (0..count).map(move |index| (offset + index * stride, width))
}

fn cached_by_cachestat(file: &File, offset: u64, len: u64) -> Option<Share> {
    const SYS_CACHESTAT: libc::c_long = 451; // the same on all architectures
    let range = [offset, len];
    // nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted
    let mut pages = [0u64; 5];
    // SAFETY: the kernel reads two and writes five 64-bit numbers (cachestat(2)).
    let status = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0 as libc::c_uint)
    };
    (status == 0).then(|| Share { bytes: (pages[0] * page_bytes()).min(len), of: len })
}

fn cached_by_mincore(file: &File, offset: u64, len: u64) -> Option<Share> {
    let page = page_bytes();
    let start = offset / page * page;
    let len = (offset + len).min(file.metadata().ok()?.len()).checked_sub(start)?;
    if len == 0 {
        return Some(Share::default());
    }
    // SAFETY: a private read-only mapping at an address of the kernel's choice; it is never dereferenced.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len as usize,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            start as i64,
        )
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    let mut resident = vec![0u8; len.div_ceil(page) as usize];
    // SAFETY: the range is the mapping just made; resident has a byte a page.
    let status = unsafe { libc::mincore(address, len as usize, resident.as_mut_ptr()) };
    // SAFETY: exactly the mapping just made, once.
    unsafe { libc::munmap(address, len as usize) };
    let pages = resident.iter().filter(|&&byte| byte & 1 != 0).count() as u64;
    (status == 0).then(|| Share { bytes: (pages * page).min(len), of: len })
}

/// The name of the file system that a file is on, if it keeps its files in memory alone (linux/magic.h).
pub fn memory_filesystem(file: &File) -> Option<&'static str> {
    const RAMFS_MAGIC: u32 = 0x8584_58f6;
    let mut stat = MaybeUninit::<libc::statfs64>::zeroed();
    // SAFETY: stat is a struct statfs64 that lives to the end of the call, and the descriptor is open.
    checked(unsafe { libc::fstatfs64(file.as_raw_fd(), stat.as_mut_ptr()) }).ok()?;
    // SAFETY: the call filled it in; before that it was zeroed.
    let stat = unsafe { stat.assume_init() };
    match stat.f_type as u32 {
        magic if magic == libc::TMPFS_MAGIC as u32 => Some("tmpfs"),
        magic if magic == libc::HUGETLBFS_MAGIC as u32 => Some("hugetlbfs"),
        RAMFS_MAGIC => Some("ramfs"),
        _ => None,
    }
}

/// Extents are counted up to this many: a fragmented terabyte is judged by its beginning.
const EXTENT_LIMIT: usize = 16_384;

/// The bytes of a range of a regular file that have no data on the disk: holes, and extents that are reserved but were
/// never written. Reading them costs no device I/O. None where the file system tells neither FIEMAP nor SEEK_HOLE.
pub fn unwritten(file: &File, offset: u64, len: u64) -> Option<Share> {
    if len == 0 {
        return Some(Share::default());
    }
    unwritten_by_fiemap(file, offset, len).or_else(|| unwritten_by_seek(file, offset, len))
}

const FIEMAP_BATCH: usize = 128;

/// linux/fiemap.h
#[repr(C)]
#[derive(Clone, Copy)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// linux/fiemap.h, with room for a batch of extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; FIEMAP_BATCH],
}

fn unwritten_by_fiemap(file: &File, offset: u64, len: u64) -> Option<Share> {
    const FIEMAP_FLAG_SYNC: u32 = 1;
    const FIEMAP_EXTENT_LAST: u32 = 1;
    const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
    // _IOWR('f', 11, struct fiemap): the header alone, 32 bytes.
    const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;

    let end = offset + len;
    let (mut at, mut written, mut seen) = (offset, 0, 0);
    'all: while at < end && seen < EXTENT_LIMIT {
        let none = FiemapExtent { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };
        let mut map = Fiemap {
            start: at,
            length: end - at,
            // Extents whose allocation is delayed, or being converted, read as unwritten until they are on the disk.
            flags: FIEMAP_FLAG_SYNC,
            mapped_extents: 0,
            extent_count: FIEMAP_BATCH as u32,
            reserved: 0,
            extents: [none; FIEMAP_BATCH],
        };
        // SAFETY: map is a struct fiemap followed by extent_count extents, as the ioctl wants it.
        checked(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &mut map) }).ok()?;
        let extents = &map.extents[..(map.mapped_extents as usize).min(FIEMAP_BATCH)];
        if extents.is_empty() {
            at = end; // a hole to the end
        }
        for extent in extents {
            let (first, last) = (extent.logical.max(offset), (extent.logical + extent.length).min(end));
            if extent.flags & FIEMAP_EXTENT_UNWRITTEN == 0 {
                written += last.saturating_sub(first);
            }
            at = extent.logical + extent.length;
            seen += 1;
            if extent.flags & FIEMAP_EXTENT_LAST != 0 {
                at = end;
                break 'all;
            }
        }
    }
    let of = at.min(end) - offset;
    Some(Share { bytes: of.saturating_sub(written), of })
}

fn unwritten_by_seek(file: &File, offset: u64, len: u64) -> Option<Share> {
    let end = offset + len;
    let (mut at, mut holes) = (offset, 0);
    for _ in 0..EXTENT_LIMIT {
        if at >= end {
            break;
        }
        let data = match seek(file, at, libc::SEEK_DATA) {
            Ok(data) => data.min(end),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => end, // no data from here on
            Err(_) => return None,
        };
        holes += data - at;
        at = if data < end { seek(file, data, libc::SEEK_HOLE).ok()?.min(end) } else { end };
    }
    Some(Share { bytes: holes, of: at - offset })
}

/// Moves the descriptor's own position: not for descriptors that a workload uses with `sync`.
fn seek(file: &File, offset: u64, whence: libc::c_int) -> io::Result<u64> {
    // SAFETY: lseek takes no memory.
    let at = unsafe { libc::lseek64(file.as_raw_fd(), offset as i64, whence) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error())
}

/// Room on the file system of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that any user may still use.
    pub available: u64,
    /// Bytes that are free, those that the file system keeps for root too.
    pub free: u64,
    /// The file system's magic number (statfs(2)).
    pub kind: i64,
    /// True if the file system is mounted read-only.
    pub read_only: bool,
}

/// Device and inode of the file at `path`, the same by whatever name it is reached (stat(2)). None if it is not there.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

/// Room on the file system that holds `path`.
///
/// # Errors
/// ENOENT, EACCES.
pub fn space(path: &Path) -> io::Result<Space> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::<libc::statfs64>::zeroed();
    // SAFETY: path is NUL-terminated, stat large enough.
    checked(unsafe { libc::statfs64(path.as_ptr(), stat.as_mut_ptr()) })?;
    // SAFETY: the successful call has filled stat in.
    let stat = unsafe { stat.assume_init() };
    // ramfs and proc count no blocks: nothing is known of a limit.
    let bytes = |blocks: u64| if stat.f_blocks == 0 { u64::MAX } else { blocks.saturating_mul(stat.f_bsize as u64) };
    Ok(Space {
        available: bytes(stat.f_bavail),
        free: bytes(stat.f_bfree),
        #[allow(clippy::unnecessary_cast, reason = "narrower on some architectures")]
        kind: stat.f_type as i64,
        #[allow(clippy::unnecessary_cast, reason = "narrower on some architectures")]
        read_only: stat.f_flags as u64 & libc::ST_RDONLY as u64 != 0,
    })
}

/// Stores all data of the file system that the file is on (syncfs(2)).
///
/// # Errors
/// EIO, ENOSPC: data that could not be stored.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and no memory.
    checked(unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// True if the data of files may take less space than the files have bytes: on file systems that compress or share
/// blocks, and where another machine or program keeps the data.
pub fn may_store_less(kind: i64) -> bool {
    !matches!(file_system_name(kind), "ext4" | "xfs" | "tmpfs" | "ramfs" | "vfat" | "exfat")
}

/// The name of a file system's magic number; `this file system` for those that are not listed.
pub fn file_system_name(kind: i64) -> &'static str {
    match kind & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlayfs",
        0x6969 => "nfs",
        0x6573_5546 => "fuse",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x9660 => "iso9660",
        0x7371_7368 => "squashfs",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        0x0bd0_0bd0 => "lustre",
        0x00c3_6400 => "ceph",
        0x4750_4653 => "gpfs",
        0x0102_1997 => "9p",
        _ => "this file system",
    }
}

/// Descriptors that this process may have open after asking for `wanted`: raises the soft limit up to the hard one.
pub fn raise_descriptor_limit(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: limit is a valid rlimit to fill.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return 1024;
    }
    if limit.rlim_cur < wanted {
        let raised = libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), rlim_max: limit.rlim_max };
        // SAFETY: raised is a valid rlimit.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            return raised.rlim_cur;
        }
    }
    limit.rlim_cur
}

/// Closes a descriptor and says what close(2) said: dropping it would not. The descriptor is closed in any case.
///
/// # Errors
/// EIO, ENOSPC, EDQUOT: what became of earlier writes, on network file systems.
pub fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor was owned, and into_raw_fd gave that up: it is closed exactly once.
    match checked(unsafe { libc::close(fd.into_raw_fd()) }) {
        // Linux has closed it: trying again could hit another's descriptor.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        done => done,
    }
}

/// Bytes of a page of memory.
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf takes no memory.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn checked(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const _: () = assert!(size_of::<FiemapExtent>() == 56);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A file without a name on the file system of the build directory.
    fn scratch() -> File {
        use std::os::unix::fs::OpenOptionsExt;
        let here = std::env::current_exe().unwrap();
        File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(here.parent().unwrap()).unwrap()
    }

    #[test]
    fn holes_and_reserved_extents_are_unwritten_and_written_ones_are_not() {
        let file = scratch();
        file.set_len(8 * MIB).unwrap();
        assert_eq!(unwritten(&file, 0, 8 * MIB).unwrap(), Share { bytes: 8 * MIB, of: 8 * MIB });
        file.write_all_at(&vec![1; MIB as usize], 2 * MIB).unwrap();
        file.sync_all().unwrap();
        assert_eq!(unwritten(&file, 0, 8 * MIB).unwrap(), Share { bytes: 7 * MIB, of: 8 * MIB });
        assert_eq!(unwritten(&file, 2 * MIB, MIB).unwrap().bytes, 0);
        assert_eq!(unwritten_by_seek(&file, 0, 8 * MIB).unwrap().bytes, 7 * MIB);
        match reserve(&file, Reserve::Native, 4 * MIB, MIB) {
            Ok(()) => assert_eq!(unwritten(&file, 0, 8 * MIB).unwrap().bytes, 7 * MIB),
            Err(error) => eprintln!("skipped the reserved part: fallocate: {error}"),
        }
    }

    /// Until ext4 and XFS write a page of a reserved extent to the disk, FIEMAP calls the extent unwritten.
    #[test]
    fn data_that_the_page_cache_still_holds_counts_as_written() {
        let file = scratch();
        if let Err(error) = reserve(&file, Reserve::Native, 0, 8 * MIB) {
            eprintln!("skipped: fallocate: {error}");
            return;
        }
        file.write_all_at(&vec![1; 8 * MIB as usize], 0).unwrap();
        assert_eq!(unwritten(&file, 0, 8 * MIB).unwrap(), Share { bytes: 0, of: 8 * MIB });
    }

    #[test]
    fn the_page_cache_is_seen_filling_and_emptying() {
        let file = scratch();
        file.write_all_at(&vec![1; 4 * MIB as usize], 0).unwrap();
        file.sync_all().unwrap();
        for look in [cached_by_cachestat, cached_by_mincore] {
            let mut page = [0; 4096];
            for index in 0..1024 {
                file.read_exact_at(&mut page, index * 4096).unwrap();
            }
            let Some(share) = look(&file, 0, 4 * MIB) else {
                eprintln!("skipped one way of looking: not in this kernel");
                continue;
            };
            assert_eq!(share.fraction(), Some(1.0));
            // A page that somebody else holds for a moment stays: again, until all are dropped.
            let limit = Instant::now() + Duration::from_secs(60);
            advise(&file, Advice::DontNeed, 0, 0).unwrap();
            while look(&file, 0, 4 * MIB).unwrap().bytes > 0 {
                assert!(Instant::now() < limit, "the cache keeps what it was told to drop");
                advise(&file, Advice::DontNeed, 0, 0).unwrap();
            }
            file.read_exact_at(&mut page, 0).unwrap();
            assert!((1..4 * MIB).contains(&look(&file, 0, 4 * MIB).unwrap().bytes));
        }
    }

    #[test]
    fn large_ranges_are_sampled_at_a_bounded_cost() {
        let parts: Vec<_> = windows(1 << 40, 64 << 40).collect();
        assert_eq!(parts.len() as u64, WINDOWS);
        assert_eq!(parts[0].0, 1 << 40);
        let (last, width) = *parts.last().unwrap();
        assert!(last + width <= 65 << 40 && last > 64 << 40);
        assert_eq!(windows(5, 100).collect::<Vec<_>>(), [(5, 100)]);
    }

    #[test]
    fn space_is_that_of_the_file_system() {
        assert!(space(Path::new("/")).unwrap().available > 0);
        assert_eq!(file_system_name(space(Path::new("/proc")).unwrap().kind), "proc");
        assert!(may_store_less(0x9123_683e) && !may_store_less(0x0102_1994), "btrfs compresses, tmpfs does not");
        assert!(space(Path::new("/no/such/place")).is_err());
    }
}

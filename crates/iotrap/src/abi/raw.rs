//! System calls without libc. They work before libc is found, never come back into the library's own hooks, and leave
//! `errno` alone.
//!
//! libc's `open`, `close` and `syscall` are, inside this library, the hooks themselves. So everything that the
//! library does on its own behalf (lane files, proofs, flushes) goes through here.

use core::ffi::{CStr, c_int, c_long, c_uint, c_void};

/// The value that a system call returned, or the errno it failed with (positive).
pub type Result<T> = core::result::Result<T, c_int>;

/// The system call that the program makes, or a call without which the program cannot go on.
pub use crate::abi::dispatch::call as pass;
use crate::abi::sealed;

/// A system call of the library's own: refused with ENOSYS in a process that is sealed ([`sealed`]).
///
/// # Safety
/// The arguments are valid for the system call `number`.
#[inline]
pub unsafe fn call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    if sealed::is_sealed() {
        return -(libc::ENOSYS as isize);
    }
    // SAFETY: the caller gives arguments that are valid for this system call.
    unsafe { pass(number, a, b, c, d, e, f) }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("libiotrap knows the system calls of x86-64 and AArch64 only");

/// io_pgetevents(2), which the libc crate does not know.
#[cfg(target_arch = "x86_64")]
pub const SYS_IO_PGETEVENTS: c_long = 333;
/// io_pgetevents(2), which the libc crate does not know.
#[cfg(target_arch = "aarch64")]
pub const SYS_IO_PGETEVENTS: c_long = 292;

/// Splits the kernel's convention into value and errno.
#[inline]
pub fn check(result: isize) -> Result<usize> {
    if (-4095..0).contains(&result) { Err(-result as c_int) } else { Ok(result as usize) }
}

/// A file descriptor as the kernel takes it: sign-extended.
#[inline]
pub fn arg(value: c_int) -> usize {
    value as isize as usize
}

/// open(2) with O_CLOEXEC.
pub fn open(path: &CStr, flags: c_int) -> Result<c_int> {
    open_at(libc::AT_FDCWD, path, flags)
}

/// open(2) of a file that is made if there is none, and to which writes are added. ENXIO for a named pipe that nobody
/// reads.
pub fn open_to_add(path: &CStr) -> Result<c_int> {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let (at, mode) = (arg(libc::AT_FDCWD), 0o644);
    // SAFETY: the path is NUL-terminated; nothing else is passed by address.
    let opened = check(unsafe { call(libc::SYS_openat, at, path.as_ptr() as usize, arg(flags), mode, 0, 0) });
    let fd = opened? as c_int;
    let _ = fcntl(fd, libc::F_SETFL, libc::O_APPEND as usize); // writes wait again for room in a pipe
    Ok(fd)
}

/// openat(2) with O_CLOEXEC.
pub fn open_at(directory: c_int, path: &CStr, flags: c_int) -> Result<c_int> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path is NUL-terminated; nothing else is passed by address.
    let result = unsafe { call(libc::SYS_openat, arg(directory), path.as_ptr() as usize, arg(flags), 0, 0, 0) };
    check(result).map(|fd| fd as c_int)
}

/// The real user id of the process.
pub fn user() -> u32 {
    // SAFETY: nothing is passed.
    let id = unsafe { call(libc::SYS_getuid, 0, 0, 0, 0, 0, 0) };
    id as u32
}

/// The address of the list of robust futexes that the first thread of a process has; 0 without one, or if the caller
/// may not ask (get_robust_list(2)).
pub fn robust_list_of(process: u64) -> u64 {
    let mut found = [0u64; 2];
    let [list, bytes] = &mut found;
    let (list, bytes) = (core::ptr::from_mut(list) as usize, core::ptr::from_mut(bytes) as usize);
    // SAFETY: the kernel fills two words.
    let result = unsafe { call(libc::SYS_get_robust_list, process as usize, list, bytes, 0, 0, 0) };
    if result == 0 { found[0] } else { 0 }
}

/// close(2). The number is free afterwards whatever it returns (Linux).
pub fn close(fd: c_int) -> Result<()> {
    // SAFETY: closing passes nothing by address; callers own what they close.
    check(unsafe { call(libc::SYS_close, arg(fd), 0, 0, 0, 0, 0) }).map(drop)
}

/// fcntl(2) with an integer argument.
pub fn fcntl(fd: c_int, command: c_int, argument: usize) -> Result<c_int> {
    // SAFETY: the commands used here take integers.
    check(unsafe { call(libc::SYS_fcntl, arg(fd), arg(command), argument, 0, 0, 0) }).map(|value| value as c_int)
}

/// fstat(2).
pub fn fstat(fd: c_int) -> Result<libc::stat> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills one stat, which is what it is given.
    let result = unsafe { call(libc::SYS_fstat, arg(fd), stat.as_mut_ptr() as usize, 0, 0, 0, 0) };
    // SAFETY: zeroed, and filled on success: every bit pattern is a valid stat.
    check(result).map(|_| unsafe { stat.assume_init() })
}

/// The identity of the file of a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// `st_dev`
    pub device: u64,
    /// `st_ino`
    pub inode: u64,
    /// `st_mode`, of which only the type is certain to be there.
    pub mode: u32,
}

/// Device, inode number and type of an open file, as the kernel knows them without asking a server (statx(2)).
pub fn identity(fd: c_int) -> Result<Identity> {
    let found = statx(fd, libc::AT_STATX_DONT_SYNC, libc::STATX_INO | libc::STATX_TYPE)?;
    Ok(identity_in(&found))
}

/// The size of an open file in bytes, as its own client knows it without asking a server (statx(2)).
pub fn size(fd: c_int) -> Result<u64> {
    statx(fd, libc::AT_STATX_DONT_SYNC, libc::STATX_SIZE).map(|found| found.stx_size)
}

/// The identity and the size in bytes of an open file, of the same age as fstat(2) has them. Unlike fstat(2), the call
/// does not ask a server because of the time of the last access, which every read makes unknown to a client of NFS.
pub fn measured(fd: c_int) -> Result<(Identity, u64)> {
    let found = statx(fd, libc::AT_STATX_SYNC_AS_STAT, libc::STATX_INO | libc::STATX_TYPE | libc::STATX_SIZE)?;
    Ok((identity_in(&found), found.stx_size))
}

fn identity_in(found: &libc::statx) -> Identity {
    let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    Identity { device, inode: found.stx_ino, mode: found.stx_mode.into() }
}

/// Device, inode number and type of a file by its name, as the kernel knows them without asking a server (statx(2)).
///
/// # Safety
/// `path` is a path that the program gives stat(2).
pub unsafe fn identity_at(directory: c_int, path: *const libc::c_char, flags: c_int) -> Result<Identity> {
    let how = flags | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the contract of this function.
    let found = unsafe { statx_at(directory, path, how, libc::STATX_INO | libc::STATX_TYPE) };
    found.map(|found| identity_in(&found))
}

/// statx(2) of an open file.
fn statx(fd: c_int, how: c_int, mask: c_uint) -> Result<libc::statx> {
    // SAFETY: an empty NUL-terminated path.
    unsafe { statx_at(fd, c"".as_ptr(), libc::AT_EMPTY_PATH | how, mask) }
}

/// statx(2).
///
/// # Safety
/// `path` is a path that the program gives stat(2), or NUL-terminated.
unsafe fn statx_at(directory: c_int, path: *const libc::c_char, how: c_int, mask: c_uint) -> Result<libc::statx> {
    let mut room = core::mem::MaybeUninit::<libc::statx>::zeroed();
    let (path, flags, to) = (path as usize, arg(how), room.as_mut_ptr() as usize);
    // SAFETY: the kernel reads the path, of which a bad one is its EFAULT, and fills one statx.
    let result = unsafe { call(libc::SYS_statx, arg(directory), path, flags, mask as usize, to, 0) };
    check(result)?;
    // SAFETY: zeroed, and filled on success: every bit pattern is a valid statx.
    Ok(unsafe { room.assume_init() })
}

/// The type of the file system that an open file lies on (`f_type` of fstatfs(2)).
pub fn file_system(fd: c_int) -> Result<i64> {
    let mut room = core::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel fills one statfs, which is what it is given.
    let result = unsafe { call(libc::SYS_fstatfs, arg(fd), room.as_mut_ptr() as usize, 0, 0, 0, 0) };
    // SAFETY: zeroed, and filled on success: every bit pattern is a valid statfs.
    check(result).map(|_| unsafe { room.assume_init() }.f_type)
}

/// stat(2) of a path relative to a directory; symbolic links are followed.
///
/// # Safety
/// `path` is NUL-terminated, or at least as valid as the program's own system call would need it to be.
pub unsafe fn stat_at(directory: c_int, path: *const libc::c_char) -> Result<libc::stat> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel reads the path and fills one stat; a bad path is its EFAULT.
    let result =
        unsafe { call(libc::SYS_newfstatat, arg(directory), path as usize, stat.as_mut_ptr() as usize, 0, 0, 0) };
    // SAFETY: zeroed, and filled on success: every bit pattern is a valid stat.
    check(result).map(|_| unsafe { stat.assume_init() })
}

/// Asks the server for the file's attributes, whatever the cache says: size, times and change counter of this lane
/// are fresh afterwards, and the kernel drops cached pages that turn out to be older (statx(2), AT_STATX_FORCE_SYNC).
pub fn revalidate(fd: c_int) {
    answers(fd); // a failure changes nothing: it is a refresh
    // Clean cached pages of this lane go: FUSE keeps them past a change of attributes.
    drop_cached(fd, 0, 0);
}

/// The size of a page, in bytes: on AArch64 the kernel's build decides (getauxval(3)).
fn page_bytes() -> u64 {
    if cfg!(target_arch = "x86_64") {
        return 4096;
    }
    // SAFETY: an integer goes in, an integer comes out.
    let page = unsafe { libc::getauxval(libc::AT_PAGESZ) };
    if page.is_power_of_two() { page } else { 64 << 10 }
}

/// Drops the clean cached pages of a part of a file, also those of which the part has only a piece. A part of 0 bytes
/// reaches to the end of the file.
pub fn drop_cached(fd: c_int, offset: u64, bytes: u64) {
    let page = page_bytes();
    let from = offset / page * page;
    let length = (offset - from).saturating_add(bytes).div_ceil(page).saturating_mul(page);
    let (from, length) = (from as usize, length as usize);
    // SAFETY: integers only.
    let _ = unsafe { call(libc::SYS_fadvise64, arg(fd), from, length, libc::POSIX_FADV_DONTNEED as usize, 0, 0) };
}

/// True if the file's server answers a question for its attributes that no cache may answer.
pub fn answers(fd: c_int) -> bool {
    // SAFETY: an empty NUL-terminated path.
    unsafe { answers_at(fd, c"".as_ptr(), libc::AT_EMPTY_PATH) }
}

/// [`answers`] of a file by its name.
///
/// # Safety
/// `path` is a path that the program gives stat(2), or NUL-terminated.
pub unsafe fn answers_at(directory: c_int, path: *const libc::c_char, flags: c_int) -> bool {
    // SAFETY: the contract of this function.
    unsafe { statx_at(directory, path, flags | libc::AT_STATX_FORCE_SYNC, libc::STATX_BASIC_STATS) }.is_ok()
}

/// The path that an open file has at this moment, without its NUL, in `room` (readlink(2) of /proc/self/fd).
pub fn path_of(fd: c_int, room: &mut [u8]) -> Option<&[u8]> {
    let mut name = Digits::new(b"/proc/self/fd/");
    name.number(fd as u64);
    let name = name.c_str()?;
    // SAFETY: a NUL-terminated path and a buffer with its true length.
    let result = unsafe {
        call(
            libc::SYS_readlinkat,
            arg(libc::AT_FDCWD),
            name.as_ptr() as usize,
            room.as_mut_ptr() as usize,
            room.len(),
            0,
            0,
        )
    };
    let length = check(result).ok().filter(|&length| length < room.len())?;
    room.get(..length)
}

/// pread(2) or pwrite(2) (`number`).
///
/// # Safety
/// `buffer` points to `count` bytes that the program gave for such a call.
pub unsafe fn transfer(number: c_long, fd: c_int, buffer: *mut c_void, count: usize, offset: i64) -> isize {
    // SAFETY: the caller promises what this system call needs.
    unsafe { call(number, arg(fd), buffer as usize, count, offset as usize, 0, 0) }
}

/// preadv2(2) or pwritev2(2) (`number`); the offset is passed in halves, of which 64-bit kernels use the first.
///
/// # Safety
/// `vectors` points to `count` vectors that the program gave for such a call.
pub unsafe fn transfer_vectors(
    number: c_long,
    fd: c_int,
    vectors: *const libc::iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> isize {
    // SAFETY: the caller promises what this system call needs.
    unsafe { call(number, arg(fd), vectors as usize, arg(count), offset as usize, 0, arg(flags)) }
}

/// fsync(2) or fdatasync(2).
pub fn sync(fd: c_int, data_only: bool) -> Result<()> {
    let number = if data_only { libc::SYS_fdatasync } else { libc::SYS_fsync };
    // SAFETY: the system call takes no address.
    check(unsafe { call(number, arg(fd), 0, 0, 0, 0, 0) }).map(drop)
}

/// Writes out every dirty page of the file and waits, without asking the server to commit: other lanes see the
/// data then (sync_file_range(2) over everything).
pub fn write_out(fd: c_int) -> Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the system call takes no address.
    check(unsafe { call(libc::SYS_sync_file_range, arg(fd), 0, 0, all as usize, 0, 0) }).map(drop)
}

/// Waits until no direct I/O of the file is under way in its own client, whoever has begun it: the kernel lets a
/// buffered transfer wait, also one of no bytes. The descriptor has no O_DIRECT; `writes` says that it is open for
/// writing.
pub fn waits_for_direct(fd: c_int, writes: bool) -> Result<()> {
    /// Behind the end of every file: nothing is read into the page cache.
    const FAR: usize = 1 << 62;
    let mut byte = 0u8;
    let room = &raw mut byte as usize;
    let result = if writes {
        // SAFETY: nothing is read from the room.
        unsafe { call(libc::SYS_pwrite64, arg(fd), room, 0, 0, 0, 0) }
    } else {
        // SAFETY: room for one byte.
        unsafe { call(libc::SYS_pread64, arg(fd), room, 1, FAR, 0, 0) }
    };
    check(result).map(drop)
}

/// ftruncate(2).
pub fn cut(fd: c_int, bytes: u64) -> Result<()> {
    // SAFETY: integers only.
    check(unsafe { call(libc::SYS_ftruncate, arg(fd), bytes as usize, 0, 0, 0, 0) }).map(drop)
}

/// write(2): bytes or `-errno`. A pipe without readers raises SIGPIPE.
pub fn write(fd: c_int, bytes: &[u8]) -> isize {
    // SAFETY: the slice is valid for its length.
    unsafe { call(libc::SYS_write, arg(fd), bytes.as_ptr() as usize, bytes.len(), 0, 0, 0) }
}

/// write(2) of a message or a trace; true if all of it was written. The program did not ask for the write, so the
/// program gets no SIGPIPE for it.
pub fn tell(fd: c_int, bytes: &[u8]) -> bool {
    const SIGPIPE: u64 = 1 << (libc::SIGPIPE - 1);
    let before = change_mask(libc::SIG_BLOCK, SIGPIPE);
    let mut pending = 0u64;
    let to = &raw mut pending as usize;
    // SAFETY: the kernel fills one set of this size.
    let _ = unsafe { call(libc::SYS_rt_sigpending, to, size_of::<u64>(), 0, 0, 0, 0) };
    let written = write(fd, bytes);
    if written == -libc::EPIPE as isize && pending & SIGPIPE == 0 {
        let (set, now) = (SIGPIPE, [0i64; 2]);
        let (set, now) = (&raw const set as usize, &raw const now as usize);
        // SAFETY: the kernel reads one set of this size, and one timespec.
        let _ = unsafe { call(libc::SYS_rt_sigtimedwait, set, 0, now, size_of::<u64>(), 0, 0) };
    }
    restore_mask(before);
    usize::try_from(written) == Ok(bytes.len())
}

/// Blocks all signals of the calling thread, and returns those that were blocked before. (A dispatched call kills a
/// thread that blocks SIGSYS.)
pub fn block_signals() -> u64 {
    change_mask(libc::SIG_SETMASK, !crate::abi::dispatch::SIGSYS_BIT)
}

/// Changes the blocked signals of the calling thread, by a set of the kernel's size, and returns those of before
/// (rt_sigprocmask(2)).
pub fn change_mask(how: c_int, signals: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (&raw const signals as usize, &raw mut before as usize);
    // SAFETY: one set is read, the other written.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, arg(how), new, old, size_of::<u64>(), 0, 0) };
    before
}

/// Puts the blocked signals of the calling thread back that [`change_mask`] has returned.
pub fn restore_mask(signals: u64) {
    let (how, set) = (arg(libc::SIG_SETMASK), &raw const signals as usize);
    // SAFETY: one set is read.
    let _ = unsafe { pass(libc::SYS_rt_sigprocmask, how, set, 0, size_of::<u64>(), 0, 0) };
}

/// The id of the process, as the kernel sees it at this moment: a vfork child is another process than its parent.
pub fn pid() -> u32 {
    // SAFETY: the system call takes no arguments, so it accesses no memory of this process.
    unsafe { call(libc::SYS_getpid, 0, 0, 0, 0, 0, 0) as u32 }
}

/// The id of the calling thread, as the kernel counts threads.
pub fn thread() -> u32 {
    // SAFETY: the system call takes no arguments, so it accesses no memory of this process.
    unsafe { call(libc::SYS_gettid, 0, 0, 0, 0, 0, 0) as u32 }
}

/// The size beyond which the process may not write a file (RLIMIT_FSIZE), in bytes; the largest number without a limit.
pub fn largest_file() -> u64 {
    let mut limit = [u64::MAX; 2];
    let (resource, place) = (libc::RLIMIT_FSIZE as usize, limit.as_mut_ptr() as usize);
    // SAFETY: one limit of two words is written.
    let result = unsafe { call(libc::SYS_prlimit64, 0, resource, 0, place, 0, 0) };
    let [now, _] = limit;
    if result == 0 { now } else { u64::MAX }
}

/// The program's soft limit of descriptor numbers (RLIMIT_NOFILE).
pub fn descriptor_limit() -> Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let (resource, to) = (libc::RLIMIT_NOFILE as usize, &raw mut limit as usize);
    // SAFETY: pid 0 is this process; one structure is written.
    check(unsafe { call(libc::SYS_prlimit64, 0, resource, 0, to, 0, 0) })?;
    Ok(limit.rlim_cur)
}

/// Lets another thread run (sched_yield(2)).
pub fn pause() {
    // SAFETY: the system call takes no arguments, so it accesses no memory of this process.
    let _ = unsafe { call(libc::SYS_sched_yield, 0, 0, 0, 0, 0, 0) };
}

/// Sleeps for about `us` microseconds; fewer than a million.
pub fn sleep_us(us: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: us * 1000 };
    // SAFETY: one timespec, read only.
    let _ = unsafe { call(libc::SYS_nanosleep, &raw const time as usize, 0, 0, 0, 0, 0) };
}

/// `CLOCK_MONOTONIC` in nanoseconds, without libc and without a hook of anybody ([`crate::abi::clock`]).
#[inline]
pub fn now_ns() -> u64 {
    crate::abi::clock::monotonic_ns()
}

/// A short text with numbers, put together without allocating; what does not fit is left out.
pub struct Digits<const N: usize = 64> {
    bytes: [u8; N],
    length: usize,
}

impl Digits {
    /// A text that begins with `text`.
    pub fn new(text: &[u8]) -> Digits {
        Digits::empty().text(text)
    }
}

impl<const N: usize> Digits<N> {
    /// A text without characters.
    pub const fn empty() -> Digits<N> {
        Digits { bytes: [0; N], length: 0 }
    }

    fn text(mut self, text: &[u8]) -> Digits<N> {
        self.push(text);
        self
    }

    /// Adds bytes, as far as there is room.
    pub fn push(&mut self, text: &[u8]) {
        for &byte in text {
            // One byte stays for the NUL.
            if self.length + 1 < N
                && let Some(place) = self.bytes.get_mut(self.length)
            {
                *place = byte;
                self.length += 1;
            }
        }
    }

    /// Adds a number in decimal.
    pub fn number(&mut self, mut value: u64) {
        let mut digits = [0u8; 20];
        let mut used = 0;
        for place in digits.iter_mut().rev() {
            *place = b'0' + (value % 10) as u8;
            value /= 10;
            used += 1;
            if value == 0 {
                break;
            }
        }
        self.push(digits.get(20 - used..).unwrap_or_default());
    }

    /// Adds a number that may be negative.
    pub fn signed(&mut self, value: i64) {
        if value < 0 {
            self.push(b"-");
        }
        self.number(value.unsigned_abs());
    }

    /// The bytes of the text so far.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The text as a C string; None if it contains a NUL.
    pub fn c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(self.bytes.get(..=self.length)?).ok()
    }

    /// Removes all characters from the text.
    pub fn clear(&mut self) {
        self.bytes = [0; N];
        self.length = 0;
    }
}

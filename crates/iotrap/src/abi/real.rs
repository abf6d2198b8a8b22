//! The real functions: the next definition of each name behind the library's own, found once.
//!
//! Before `.init_array` has run (constructors of other libraries, allocators of other preloads) nothing is looked up.
//! Until then a call is made as its system call, where it has one: see [`crate::abi::raw`].

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr};

/// A function of libc, or of another library that interposes it after this one.
pub struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Real {
        Real { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The address of the function; null if it has not been found.
    #[inline(always)]
    fn found(&self) -> *mut c_void {
        self.address.load(Acquire)
    }

    /// Looks the function up. dlsym allocates only to describe a failure.
    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: a NUL-terminated name; RTLD_NEXT is the pseudo-handle for whatever comes after this library.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Release);
        address
    }
}

/// Declares real functions. `else` is the code to run without one: before they are found, or where libc has none.
macro_rules! real {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $otherwise:expr;)*) => {
        $(
            $(#[$attribute])*
            /// The real function of that name.
            ///
            /// # Safety
            /// As the function of that name.
            #[inline]
            pub unsafe fn $name($($argument: $type),*) -> $result {
                let address = table::$name.found();
                if address.is_null() {
                    return $otherwise;
                }
                // SAFETY: the address is that of the function of this name, which has this type.
                let function: unsafe extern "C-unwind" fn($($type),*) -> $result = unsafe { core::mem::transmute(address) };
                // SAFETY: the caller keeps the contract of the function of this name.
                unsafe { function($($argument),*) }
            }
        )*
        #[allow(non_upper_case_globals, reason = "named as the functions are")]
        mod table {
            use super::Real;
            $(pub static $name: Real = Real::new({
                // SAFETY: concat! ends with the one NUL.
                unsafe { core::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) }
            });)*
            pub static ALL: &[&Real] = &[$(&$name),*];
        }
    };
}

/// Looks up all real functions.
pub fn find_all() {
    for real in table::ALL {
        real.find();
    }
    let liburing = object_of(&table::io_uring_queue_init);
    let ones = [&table::io_uring_setup, &table::io_uring_enter, &table::io_uring_enter2, &table::io_uring_register];
    CALLS_OF_LIBURING.store(liburing != 0 && ones.map(object_of) == [liburing; 4], Release);
}

/// True if liburing has functions that are system calls of io_uring and nothing else (since 2.3).
static CALLS_OF_LIBURING: AtomicBool = AtomicBool::new(false);

/// True if io_uring_setup, io_uring_enter, io_uring_enter2 and io_uring_register are liburing's. The system calls have
/// the same names, and other libraries have functions of these names with other arguments.
pub fn are_calls_of_liburing() -> bool {
    CALLS_OF_LIBURING.load(Acquire)
}

/// The address of the shared object that a function lies in; 0 if it was not found.
fn object_of(real: &Real) -> usize {
    // SAFETY: an all-zero structure is a valid one.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address will do; the structure is written.
    let known = !real.found().is_null() && unsafe { libc::dladdr(real.found(), &raw mut found) } != 0;
    if known { found.dli_fbase as usize } else { 0 }
}

/// A function that has no system call to stand in for it: looked up when it is first needed.
macro_rules! late {
    ($name:ident ( $($argument:ident),* ) : ($($type:ty),*) -> $result:ty, $without:expr) => {{
        let address = table::$name.find();
        if address.is_null() {
            return $without;
        }
        // SAFETY: the address is that of the function of this name, which has this type.
        let function: unsafe extern "C-unwind" fn($($type),*) -> $result = unsafe { core::mem::transmute(address) };
        // SAFETY: the caller keeps the contract of the function of this name.
        unsafe { function($($argument),*) }
    }};
}

/// The system call `$number`, with libc's convention for errors.
macro_rules! kernel {
    ($number:expr $(, $argument:expr)*) => {{
        let mut arguments = [$($argument as usize),*].into_iter().chain(core::iter::repeat(0));
        let mut next = || arguments.next().unwrap_or(0);
        let (a, b, c, d, e, f) = (next(), next(), next(), next(), next(), next());
        // SAFETY: the caller keeps the contract of the function of this name.
        let result = unsafe { crate::abi::raw::pass($number, a, b, c, d, e, f) };
        crate::abi::errno::libc_result(result) as _
    }};
}

type Mode = libc::mode_t;
type File = *mut libc::FILE;
type Text = *const c_char;
type List = *const Text;
type Stat = *mut libc::stat;
type Nothing = ();
type ThreadFunction = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type ShortFunction = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// SIG_ERR
const NOT_SET: *mut c_void = core::ptr::without_provenance_mut(libc::SIG_ERR);
const HERE: isize = libc::AT_FDCWD as isize;
const LINK: c_int = libc::AT_SYMLINK_NOFOLLOW;
const CREATE: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

real! {
    fn open(path: Text, flags: c_int, mode: Mode) -> c_int, else kernel!(libc::SYS_openat, HERE, path, flags, mode);
    fn open64(path: Text, flags: c_int, mode: Mode) -> c_int, else kernel!(libc::SYS_openat, HERE, path, flags, mode);
    fn openat(at: c_int, path: Text, flags: c_int, mode: Mode) -> c_int,
        else kernel!(libc::SYS_openat, at as isize, path, flags, mode);
    fn openat64(at: c_int, path: Text, flags: c_int, mode: Mode) -> c_int,
        else kernel!(libc::SYS_openat, at as isize, path, flags, mode);
    fn creat(path: Text, mode: Mode) -> c_int, else kernel!(libc::SYS_openat, HERE, path, CREATE, mode);
    fn creat64(path: Text, mode: Mode) -> c_int, else kernel!(libc::SYS_openat, HERE, path, CREATE, mode);
    fn __open_2(path: Text, flags: c_int) -> c_int, else kernel!(libc::SYS_openat, HERE, path, flags);
    fn __open64_2(path: Text, flags: c_int) -> c_int, else kernel!(libc::SYS_openat, HERE, path, flags);
    fn __openat_2(at: c_int, path: Text, flags: c_int) -> c_int, else kernel!(libc::SYS_openat, at as isize, path, flags);
    fn __openat64_2(at: c_int, path: Text, flags: c_int) -> c_int, else kernel!(libc::SYS_openat, at as isize, path, flags);
    fn fopen(path: Text, mode: Text) -> File, else late!(fopen(path, mode): (Text, Text) -> File, core::ptr::null_mut());
    fn fopen64(path: Text, mode: Text) -> File, else late!(fopen64(path, mode): (Text, Text) -> File, core::ptr::null_mut());
    fn freopen(path: Text, mode: Text, file: File) -> File,
        else late!(freopen(path, mode, file): (Text, Text, File) -> File, core::ptr::null_mut());
    fn freopen64(path: Text, mode: Text, file: File) -> File,
        else late!(freopen64(path, mode, file): (Text, Text, File) -> File, core::ptr::null_mut());
    fn fdopen(fd: c_int, mode: Text) -> File, else late!(fdopen(fd, mode): (c_int, Text) -> File, core::ptr::null_mut());
    fn fclose(file: File) -> c_int, else late!(fclose(file): (File) -> c_int, libc::EOF);

    fn mkstemp(template: *mut c_char) -> c_int,
        else late!(mkstemp(template): (*mut c_char) -> c_int, -1);
    fn mkstemp64(template: *mut c_char) -> c_int,
        else late!(mkstemp64(template): (*mut c_char) -> c_int, -1);
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int,
        else late!(mkostemp(template, flags): (*mut c_char, c_int) -> c_int, -1);
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int,
        else late!(mkostemp64(template, flags): (*mut c_char, c_int) -> c_int, -1);
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int,
        else late!(mkstemps(template, suffix): (*mut c_char, c_int) -> c_int, -1);
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int,
        else late!(mkstemps64(template, suffix): (*mut c_char, c_int) -> c_int, -1);
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int,
        else late!(mkostemps(template, suffix, flags): (*mut c_char, c_int, c_int) -> c_int, -1);
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int,
        else late!(mkostemps64(template, suffix, flags): (*mut c_char, c_int, c_int) -> c_int, -1);
    fn tmpfile() -> File,
        else late!(tmpfile(): () -> File, core::ptr::null_mut());
    fn tmpfile64() -> File,
        else late!(tmpfile64(): () -> File, core::ptr::null_mut());
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int,
        else kernel!(libc::SYS_open_by_handle_at, mount as isize, handle, flags);
    fn accept(socket: c_int, address: *mut c_void, length: *mut c_void) -> c_int,
        else kernel!(libc::SYS_accept, socket as isize, address, length);
    fn accept4(socket: c_int, address: *mut c_void, length: *mut c_void, flags: c_int) -> c_int,
        else kernel!(libc::SYS_accept4, socket as isize, address, length, flags);
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int,
        else kernel!(libc::SYS_socket, domain as isize, kind as isize, protocol as isize);
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int,
        else kernel!(libc::SYS_socketpair, domain as isize, kind as isize, protocol as isize, pair);
    fn pipe(pair: *mut c_int) -> c_int, else kernel!(libc::SYS_pipe2, pair, 0);
    fn pipe2(pair: *mut c_int, flags: c_int) -> c_int, else kernel!(libc::SYS_pipe2, pair, flags);
    fn eventfd(initial: u32, flags: c_int) -> c_int, else kernel!(libc::SYS_eventfd2, initial, flags);
    fn epoll_create(size: c_int) -> c_int, else {
        let _ = size; // unused by the kernel, too
        kernel!(libc::SYS_epoll_create1, 0)
    };
    fn epoll_create1(flags: c_int) -> c_int, else kernel!(libc::SYS_epoll_create1, flags);
    fn memfd_create(name: Text, flags: u32) -> c_int, else kernel!(libc::SYS_memfd_create, name, flags);
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int, else kernel!(libc::SYS_timerfd_create, clock, flags);
    fn inotify_init() -> c_int, else kernel!(libc::SYS_inotify_init1, 0);
    fn inotify_init1(flags: c_int) -> c_int, else kernel!(libc::SYS_inotify_init1, flags);
    fn fanotify_init(flags: u32, event_flags: u32) -> c_int, else kernel!(libc::SYS_fanotify_init, flags, event_flags);
    fn signalfd(fd: c_int, mask: *const c_void, flags: c_int) -> c_int,
        else late!(signalfd(fd, mask, flags): (c_int, *const c_void, c_int) -> c_int, -1);
    fn pidfd_open(process: c_int, flags: u32) -> c_int, else kernel!(libc::SYS_pidfd_open, process, flags);
    fn posix_openpt(flags: c_int) -> c_int, else late!(posix_openpt(flags): (c_int) -> c_int, -1);
    fn getpt() -> c_int, else late!(getpt(): () -> c_int, -1);
    fn forkpty(master: *mut c_int, name: *mut c_char, terminal: *const c_void, window: *const c_void) -> libc::pid_t,
        else late!(forkpty(master, name, terminal, window): (*mut c_int, *mut c_char, *const c_void, *const c_void) -> libc::pid_t, -1);
    fn fsopen(name: Text, flags: u32) -> c_int, else kernel!(libc::SYS_fsopen, name, flags);
    fn fsmount(context: c_int, flags: u32, attributes: u32) -> c_int,
        else kernel!(libc::SYS_fsmount, context as isize, flags, attributes);
    fn fspick(at: c_int, path: Text, flags: u32) -> c_int, else kernel!(libc::SYS_fspick, at as isize, path, flags);
    fn open_tree(at: c_int, path: Text, flags: u32) -> c_int, else kernel!(libc::SYS_open_tree, at as isize, path, flags);
    fn mq_open(name: Text, flags: c_int, mode: Mode, attributes: *const c_void) -> c_int,
        else late!(mq_open(name, flags, mode, attributes): (Text, c_int, Mode, *const c_void) -> c_int, -1);
    fn __mq_open_2(name: Text, flags: c_int) -> c_int, else late!(__mq_open_2(name, flags): (Text, c_int) -> c_int, -1);
    fn rresvport(port: *mut c_int) -> c_int, else late!(rresvport(port): (*mut c_int) -> c_int, -1);
    fn rresvport_af(port: *mut c_int, family: u16) -> c_int,
        else late!(rresvport_af(port, family): (*mut c_int, u16) -> c_int, -1);
    fn setmntent(path: Text, kind: Text) -> File,
        else late!(setmntent(path, kind): (Text, Text) -> File, core::ptr::null_mut());
    fn openpty(master: *mut c_int, slave: *mut c_int, name: *mut c_char, terminal: *const c_void, window: *const c_void) -> c_int,
        else late!(openpty(master, slave, name, terminal, window): (*mut c_int, *mut c_int, *mut c_char, *const c_void, *const c_void) -> c_int, -1);
    fn shm_open(name: Text, flags: c_int, mode: u32) -> c_int,
        else late!(shm_open(name, flags, mode): (Text, c_int, u32) -> c_int, -1);
    fn popen(command: Text, kind: Text) -> File, else late!(popen(command, kind): (Text, Text) -> File, core::ptr::null_mut());
    fn io_uring_setup(entries: u32, parameters: *mut c_void) -> c_int,
        else late!(io_uring_setup(entries, parameters): (u32, *mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_enter(fd: u32, count: u32, least: u32, flags: u32, mask: *mut c_void) -> c_int,
        else late!(io_uring_enter(fd, count, least, flags, mask): (u32, u32, u32, u32, *mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_enter2(fd: u32, count: u32, least: u32, flags: u32, argument: *mut c_void, size: usize) -> c_int,
        else late!(io_uring_enter2(fd, count, least, flags, argument, size): (u32, u32, u32, u32, *mut c_void, usize) -> c_int, -libc::ENOSYS);
    fn io_uring_register(fd: u32, what: u32, argument: *const c_void, count: u32) -> c_int,
        else late!(io_uring_register(fd, what, argument, count): (u32, u32, *const c_void, u32) -> c_int, -libc::ENOSYS);
    fn io_uring_queue_init(entries: u32, ring: *mut c_void, flags: u32) -> c_int,
        else late!(io_uring_queue_init(entries, ring, flags): (u32, *mut c_void, u32) -> c_int, -libc::ENOSYS);
    fn io_uring_queue_init_params(entries: u32, ring: *mut c_void, parameters: *mut c_void) -> c_int,
        else late!(io_uring_queue_init_params(entries, ring, parameters): (u32, *mut c_void, *mut c_void) -> c_int, -libc::ENOSYS);
    fn opendir(path: Text) -> *mut libc::DIR,
        else late!(opendir(path): (Text) -> *mut libc::DIR, core::ptr::null_mut());
    fn recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> isize,
        else kernel!(libc::SYS_recvmsg, socket as isize, message, flags);
    fn recvmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: u32, flags: c_int, timeout: *mut libc::timespec) -> c_int,
        else kernel!(libc::SYS_recvmmsg, socket as isize, messages, count, flags, timeout);
    fn execve(path: Text, arguments: List, environment: List) -> c_int,
        else kernel!(libc::SYS_execve, path, arguments, environment);
    fn execveat(at: c_int, path: Text, arguments: List, environment: List, flags: c_int) -> c_int,
        else kernel!(libc::SYS_execveat, at as isize, path, arguments, environment, flags);
    fn execv(path: Text, arguments: List) -> c_int, else late!(execv(path, arguments): (Text, List) -> c_int, -1);
    fn execvp(file: Text, arguments: List) -> c_int, else late!(execvp(file, arguments): (Text, List) -> c_int, -1);
    fn execvpe(file: Text, arguments: List, environment: List) -> c_int,
        else late!(execvpe(file, arguments, environment): (Text, List, List) -> c_int, -1);
    fn fexecve(fd: c_int, arguments: List, environment: List) -> c_int,
        else late!(fexecve(fd, arguments, environment): (c_int, List, List) -> c_int, -1);
    fn daemon(keep_directory: c_int, keep_streams: c_int) -> c_int,
        else late!(daemon(keep_directory, keep_streams): (c_int, c_int) -> c_int, -1);

    fn pidfd_getfd(pidfd: c_int, number: c_int, flags: u32) -> c_int,
        else kernel!(libc::SYS_pidfd_getfd, pidfd as isize, number as isize, flags);
    fn posix_spawn(pid: *mut libc::pid_t, path: Text, actions: *const c_void, attributes: *const c_void, arguments: List, environment: List) -> c_int,
        else late!(posix_spawn(pid, path, actions, attributes, arguments, environment): (*mut libc::pid_t, Text, *const c_void, *const c_void, List, List) -> c_int, libc::ENOSYS);
    fn posix_spawnp(pid: *mut libc::pid_t, file: Text, actions: *const c_void, attributes: *const c_void, arguments: List, environment: List) -> c_int,
        else late!(posix_spawnp(pid, file, actions, attributes, arguments, environment): (*mut libc::pid_t, Text, *const c_void, *const c_void, List, List) -> c_int, libc::ENOSYS);

    fn close(fd: c_int) -> c_int, else kernel!(libc::SYS_close, fd as isize);

    fn dup(fd: c_int) -> c_int, else kernel!(libc::SYS_dup, fd as isize);
    fn dup2(from: c_int, to: c_int) -> c_int, else kernel!(libc::SYS_dup3, from as isize, to as isize, 0);
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int, else kernel!(libc::SYS_dup3, from as isize, to as isize, flags);
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int, else kernel!(libc::SYS_fcntl, fd as isize, command, argument);
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int, else kernel!(libc::SYS_fcntl, fd as isize, command, argument);

    fn pread(fd: c_int, buffer: *mut c_void, count: usize, offset: i64) -> isize,
        else kernel!(libc::SYS_pread64, fd as isize, buffer, count, offset);
    fn pread64(fd: c_int, buffer: *mut c_void, count: usize, offset: i64) -> isize,
        else kernel!(libc::SYS_pread64, fd as isize, buffer, count, offset);
    fn __pread_chk(fd: c_int, buffer: *mut c_void, count: usize, offset: i64, room: usize) -> isize, else {
        let _ = room; // code before main passes no count larger than the room
        kernel!(libc::SYS_pread64, fd as isize, buffer, count, offset)
    };
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, count: usize, offset: i64, room: usize) -> isize, else {
        let _ = room;
        kernel!(libc::SYS_pread64, fd as isize, buffer, count, offset)
    };
    fn pwrite(fd: c_int, buffer: *const c_void, count: usize, offset: i64) -> isize,
        else kernel!(libc::SYS_pwrite64, fd as isize, buffer, count, offset);
    fn pwrite64(fd: c_int, buffer: *const c_void, count: usize, offset: i64) -> isize,
        else kernel!(libc::SYS_pwrite64, fd as isize, buffer, count, offset);
    fn preadv(fd: c_int, vectors: *const libc::iovec, count: c_int, offset: i64) -> isize,
        else kernel!(libc::SYS_preadv, fd as isize, vectors, count as isize, offset);
    fn preadv64(fd: c_int, vectors: *const libc::iovec, count: c_int, offset: i64) -> isize,
        else kernel!(libc::SYS_preadv, fd as isize, vectors, count as isize, offset);
    fn preadv2(fd: c_int, vectors: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> isize,
        else kernel!(libc::SYS_preadv2, fd as isize, vectors, count as isize, offset, 0, flags);
    fn preadv64v2(fd: c_int, vectors: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> isize,
        else kernel!(libc::SYS_preadv2, fd as isize, vectors, count as isize, offset, 0, flags);
    fn pwritev(fd: c_int, vectors: *const libc::iovec, count: c_int, offset: i64) -> isize,
        else kernel!(libc::SYS_pwritev, fd as isize, vectors, count as isize, offset);
    fn pwritev64(fd: c_int, vectors: *const libc::iovec, count: c_int, offset: i64) -> isize,
        else kernel!(libc::SYS_pwritev, fd as isize, vectors, count as isize, offset);
    fn pwritev2(fd: c_int, vectors: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> isize,
        else kernel!(libc::SYS_pwritev2, fd as isize, vectors, count as isize, offset, 0, flags);
    fn pwritev64v2(fd: c_int, vectors: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> isize,
        else kernel!(libc::SYS_pwritev2, fd as isize, vectors, count as isize, offset, 0, flags);
    fn read(fd: c_int, buffer: *mut c_void, count: usize) -> isize, else kernel!(libc::SYS_read, fd as isize, buffer, count);
    fn __read_chk(fd: c_int, buffer: *mut c_void, count: usize, room: usize) -> isize, else {
        let _ = room; // code before main passes no count larger than the room
        kernel!(libc::SYS_read, fd as isize, buffer, count)
    };
    fn readv(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize,
        else kernel!(libc::SYS_readv, fd as isize, vectors, count as isize);
    fn write(fd: c_int, buffer: *const c_void, count: usize) -> isize, else kernel!(libc::SYS_write, fd as isize, buffer, count);
    fn writev(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize,
        else kernel!(libc::SYS_writev, fd as isize, vectors, count as isize);

    fn fsync(fd: c_int) -> c_int, else kernel!(libc::SYS_fsync, fd as isize);
    fn fdatasync(fd: c_int) -> c_int, else kernel!(libc::SYS_fdatasync, fd as isize);
    fn syncfs(fd: c_int) -> c_int, else kernel!(libc::SYS_syncfs, fd as isize);
    fn msync(address: *mut c_void, length: usize, flags: c_int) -> c_int,
        else kernel!(libc::SYS_msync, address, length, flags as isize);
    fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int,
        else kernel!(libc::SYS_madvise, address, length, advice as isize);
    fn sync() -> Nothing, else {
        let _: c_int = kernel!(libc::SYS_sync);
    };
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int,
        else kernel!(libc::SYS_ioctl, fd as isize, request, argument);
    fn sync_file_range(fd: c_int, offset: i64, count: i64, flags: u32) -> c_int,
        else kernel!(libc::SYS_sync_file_range, fd as isize, offset, count, flags);

    fn fstat(fd: c_int, to: Stat) -> c_int, else kernel!(libc::SYS_fstat, fd as isize, to);
    fn fstat64(fd: c_int, to: Stat) -> c_int, else kernel!(libc::SYS_fstat, fd as isize, to);
    fn stat(path: Text, to: Stat) -> c_int, else kernel!(libc::SYS_newfstatat, HERE, path, to);
    fn stat64(path: Text, to: Stat) -> c_int, else kernel!(libc::SYS_newfstatat, HERE, path, to);
    fn lstat(path: Text, to: Stat) -> c_int, else kernel!(libc::SYS_newfstatat, HERE, path, to, LINK);
    fn lstat64(path: Text, to: Stat) -> c_int, else kernel!(libc::SYS_newfstatat, HERE, path, to, LINK);
    fn fstatat(at: c_int, path: Text, to: Stat, flags: c_int) -> c_int,
        else kernel!(libc::SYS_newfstatat, at as isize, path, to, flags);
    fn fstatat64(at: c_int, path: Text, to: Stat, flags: c_int) -> c_int,
        else kernel!(libc::SYS_newfstatat, at as isize, path, to, flags);
    fn statx(at: c_int, path: Text, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int,
        else kernel!(libc::SYS_statx, at as isize, path, flags, mask, to);
    fn lseek(fd: c_int, offset: i64, from: c_int) -> i64, else kernel!(libc::SYS_lseek, fd as isize, offset, from);
    fn lseek64(fd: c_int, offset: i64, from: c_int) -> i64, else kernel!(libc::SYS_lseek, fd as isize, offset, from);
    // Where the version is that of this architecture, the structure is the kernel's.
    fn __fxstat(_version: c_int, fd: c_int, to: Stat) -> c_int, else kernel!(libc::SYS_fstat, fd as isize, to);
    fn __fxstat64(_version: c_int, fd: c_int, to: Stat) -> c_int, else kernel!(libc::SYS_fstat, fd as isize, to);
    fn __xstat(_version: c_int, path: Text, to: Stat) -> c_int, else kernel!(libc::SYS_newfstatat, HERE, path, to);
    fn __xstat64(_version: c_int, path: Text, to: Stat) -> c_int, else kernel!(libc::SYS_newfstatat, HERE, path, to);
    fn __lxstat(_version: c_int, path: Text, to: Stat) -> c_int,
        else kernel!(libc::SYS_newfstatat, HERE, path, to, LINK);
    fn __lxstat64(_version: c_int, path: Text, to: Stat) -> c_int,
        else kernel!(libc::SYS_newfstatat, HERE, path, to, LINK);
    fn __fxstatat(_version: c_int, at: c_int, path: Text, to: Stat, flags: c_int) -> c_int,
        else kernel!(libc::SYS_newfstatat, at as isize, path, to, flags);
    fn __fxstatat64(_version: c_int, at: c_int, path: Text, to: Stat, flags: c_int) -> c_int,
        else kernel!(libc::SYS_newfstatat, at as isize, path, to, flags);

    fn inotify_add_watch(fd: c_int, path: Text, mask: u32) -> c_int,
        else kernel!(libc::SYS_inotify_add_watch, fd as isize, path, mask);

    fn ftruncate(fd: c_int, length: i64) -> c_int, else kernel!(libc::SYS_ftruncate, fd as isize, length);
    fn ftruncate64(fd: c_int, length: i64) -> c_int, else kernel!(libc::SYS_ftruncate, fd as isize, length);
    fn truncate(path: Text, length: i64) -> c_int, else kernel!(libc::SYS_truncate, path, length);
    fn truncate64(path: Text, length: i64) -> c_int, else kernel!(libc::SYS_truncate, path, length);
    fn fallocate(fd: c_int, mode: c_int, offset: i64, length: i64) -> c_int,
        else kernel!(libc::SYS_fallocate, fd as isize, mode, offset, length);
    fn fallocate64(fd: c_int, mode: c_int, offset: i64, length: i64) -> c_int,
        else kernel!(libc::SYS_fallocate, fd as isize, mode, offset, length);
    fn posix_fallocate(fd: c_int, offset: i64, length: i64) -> c_int,
        else late!(posix_fallocate(fd, offset, length): (c_int, i64, i64) -> c_int, libc::ENOSYS);
    fn posix_fallocate64(fd: c_int, offset: i64, length: i64) -> c_int,
        else late!(posix_fallocate64(fd, offset, length): (c_int, i64, i64) -> c_int, libc::ENOSYS);
    fn sendfile(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize,
        else kernel!(libc::SYS_sendfile, out as isize, from as isize, offset, count);
    fn sendfile64(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize,
        else kernel!(libc::SYS_sendfile, out as isize, from as isize, offset, count);
    fn copy_file_range(from: c_int, at: *mut i64, to: c_int, to_at: *mut i64, count: usize, flags: u32) -> isize,
        else kernel!(libc::SYS_copy_file_range, from as isize, at, to as isize, to_at, count, flags);
    fn splice(from: c_int, at: *mut i64, to: c_int, to_at: *mut i64, count: usize, flags: u32) -> isize,
        else kernel!(libc::SYS_splice, from as isize, at, to as isize, to_at, count, flags);

    fn io_uring_submit(uring: *mut c_void) -> c_int,
        else late!(io_uring_submit(uring): (*mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_submit_and_wait(uring: *mut c_void, count: u32) -> c_int,
        else late!(io_uring_submit_and_wait(uring, count): (*mut c_void, u32) -> c_int, -libc::ENOSYS);
    fn io_uring_submit_and_get_events(uring: *mut c_void) -> c_int,
        else late!(io_uring_submit_and_get_events(uring): (*mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_submit_and_wait_timeout(uring: *mut c_void, found: *mut c_void, count: u32, timeout: *mut c_void, mask: *mut c_void) -> c_int,
        else late!(io_uring_submit_and_wait_timeout(uring, found, count, timeout, mask): (*mut c_void, *mut c_void, u32, *mut c_void, *mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_wait_cqes(uring: *mut c_void, found: *mut c_void, count: u32, timeout: *mut c_void, mask: *mut c_void) -> c_int,
        else late!(io_uring_wait_cqes(uring, found, count, timeout, mask): (*mut c_void, *mut c_void, u32, *mut c_void, *mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_wait_cqe_timeout(uring: *mut c_void, found: *mut c_void, timeout: *mut c_void) -> c_int,
        else late!(io_uring_wait_cqe_timeout(uring, found, timeout): (*mut c_void, *mut c_void, *mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_submit_and_wait_min_timeout(uring: *mut c_void, found: *mut c_void, count: u32, timeout: *mut c_void, least: u32, mask: *mut c_void) -> c_int,
        else late!(io_uring_submit_and_wait_min_timeout(uring, found, count, timeout, least, mask): (*mut c_void, *mut c_void, u32, *mut c_void, u32, *mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_submit_and_wait_reg(uring: *mut c_void, found: *mut c_void, count: u32, index: c_int) -> c_int,
        else late!(io_uring_submit_and_wait_reg(uring, found, count, index): (*mut c_void, *mut c_void, u32, c_int) -> c_int, -libc::ENOSYS);
    fn io_uring_wait_cqes_min_timeout(uring: *mut c_void, found: *mut c_void, count: u32, timeout: *mut c_void, least: u32, mask: *mut c_void) -> c_int,
        else late!(io_uring_wait_cqes_min_timeout(uring, found, count, timeout, least, mask): (*mut c_void, *mut c_void, u32, *mut c_void, u32, *mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_register_files(uring: *mut c_void, files: *const c_int, count: u32) -> c_int,
        else late!(io_uring_register_files(uring, files, count): (*mut c_void, *const c_int, u32) -> c_int, -libc::ENOSYS);
    fn io_uring_register_files_tags(uring: *mut c_void, files: *const c_int, tags: *mut c_void, count: u32) -> c_int,
        else late!(io_uring_register_files_tags(uring, files, tags, count): (*mut c_void, *const c_int, *mut c_void, u32) -> c_int, -libc::ENOSYS);
    fn io_uring_register_files_update(uring: *mut c_void, from: u32, files: *const c_int, count: u32) -> c_int,
        else late!(io_uring_register_files_update(uring, from, files, count): (*mut c_void, u32, *const c_int, u32) -> c_int, -libc::ENOSYS);
    fn io_uring_register_files_update_tag(uring: *mut c_void, from: u32, files: *const c_int, tags: *mut c_void, count: u32) -> c_int,
        else late!(io_uring_register_files_update_tag(uring, from, files, tags, count): (*mut c_void, u32, *const c_int, *mut c_void, u32) -> c_int, -libc::ENOSYS);
    fn io_uring_resize_rings(uring: *mut c_void, parameters: *mut c_void) -> c_int,
        else late!(io_uring_resize_rings(uring, parameters): (*mut c_void, *mut c_void) -> c_int, -libc::ENOSYS);
    fn io_uring_queue_exit(uring: *mut c_void) -> Nothing,
        else late!(io_uring_queue_exit(uring): (*mut c_void) -> Nothing, Nothing::default());
    fn aio_read(of: *mut libc::aiocb) -> c_int,
        else late!(aio_read(of): (*mut libc::aiocb) -> c_int, unavailable());
    fn aio_write(of: *mut libc::aiocb) -> c_int,
        else late!(aio_write(of): (*mut libc::aiocb) -> c_int, unavailable());
    fn aio_fsync(operation: c_int, of: *mut libc::aiocb) -> c_int,
        else late!(aio_fsync(operation, of): (c_int, *mut libc::aiocb) -> c_int, unavailable());
    fn aio_error(of: *const libc::aiocb) -> c_int,
        else late!(aio_error(of): (*const libc::aiocb) -> c_int, libc::EINVAL);
    fn aio_return(of: *mut libc::aiocb) -> isize, else late!(aio_return(of): (*mut libc::aiocb) -> isize, -1);
    fn aio_suspend(list: *const *const libc::aiocb, count: c_int, timeout: *const libc::timespec) -> c_int,
        else late!(aio_suspend(list, count, timeout): (*const *const libc::aiocb, c_int, *const libc::timespec) -> c_int,
            unavailable());
    fn aio_cancel(fd: c_int, of: *mut libc::aiocb) -> c_int,
        else late!(aio_cancel(fd, of): (c_int, *mut libc::aiocb) -> c_int, unavailable());
    fn lio_listio(mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut libc::sigevent) -> c_int,
        else late!(lio_listio(mode, list, count, event): (c_int, *const *mut libc::aiocb, c_int, *mut libc::sigevent) -> c_int,
            unavailable());

    fn ulimit(command: c_int, limit: c_long) -> c_long,
        else late!(ulimit(command, limit): (c_int, c_long) -> c_long, unavailable() as c_long);
    fn getrlimit(resource: c_uint, to: *mut libc::rlimit) -> c_int,
        else kernel!(libc::SYS_prlimit64, 0, resource, 0, to);
    fn getrlimit64(resource: c_uint, to: *mut libc::rlimit) -> c_int,
        else kernel!(libc::SYS_prlimit64, 0, resource, 0, to);
    fn setrlimit(resource: c_uint, from: *const libc::rlimit) -> c_int,
        else kernel!(libc::SYS_prlimit64, 0, resource, from, 0);
    fn setrlimit64(resource: c_uint, from: *const libc::rlimit) -> c_int,
        else kernel!(libc::SYS_prlimit64, 0, resource, from, 0);
    fn prlimit(process: libc::pid_t, resource: c_uint, from: *const libc::rlimit, to: *mut libc::rlimit) -> c_int,
        else kernel!(libc::SYS_prlimit64, process as isize, resource, from, to);
    fn prlimit64(process: libc::pid_t, resource: c_uint, from: *const libc::rlimit, to: *mut libc::rlimit) -> c_int,
        else kernel!(libc::SYS_prlimit64, process as isize, resource, from, to);

    fn unshare(flags: c_int) -> c_int, else kernel!(libc::SYS_unshare, flags as isize);
    fn flock(fd: c_int, operation: c_int) -> c_int, else kernel!(libc::SYS_flock, fd as isize, operation);
    fn lockf(fd: c_int, command: c_int, length: i64) -> c_int,
        else late!(lockf(fd, command, length): (c_int, c_int, i64) -> c_int, -1);
    fn lockf64(fd: c_int, command: c_int, length: i64) -> c_int,
        else late!(lockf64(fd, command, length): (c_int, c_int, i64) -> c_int, -1);

    fn sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int,
        else late!(sigaction(signal, action, before): (c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int, -1);
    fn __sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int,
        else late!(__sigaction(signal, action, before): (c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int, -1);
    fn signal(signal: c_int, handler: *mut c_void) -> *mut c_void,
        else late!(signal(signal, handler): (c_int, *mut c_void) -> *mut c_void, NOT_SET);
    fn bsd_signal(signal: c_int, handler: *mut c_void) -> *mut c_void,
        else late!(bsd_signal(signal, handler): (c_int, *mut c_void) -> *mut c_void, NOT_SET);
    fn ssignal(signal: c_int, handler: *mut c_void) -> *mut c_void,
        else late!(ssignal(signal, handler): (c_int, *mut c_void) -> *mut c_void, NOT_SET);
    fn sysv_signal(signal: c_int, handler: *mut c_void) -> *mut c_void,
        else late!(sysv_signal(signal, handler): (c_int, *mut c_void) -> *mut c_void, NOT_SET);
    fn __sysv_signal(signal: c_int, handler: *mut c_void) -> *mut c_void,
        else late!(__sysv_signal(signal, handler): (c_int, *mut c_void) -> *mut c_void, NOT_SET);
    fn sigset(signal: c_int, handler: *mut c_void) -> *mut c_void,
        else late!(sigset(signal, handler): (c_int, *mut c_void) -> *mut c_void, NOT_SET);
    fn sigignore(signal: c_int) -> c_int, else late!(sigignore(signal): (c_int) -> c_int, unavailable());
    fn sighold(signal: c_int) -> c_int, else late!(sighold(signal): (c_int) -> c_int, unavailable());
    fn sigblock(mask: c_int) -> c_int, else late!(sigblock(mask): (c_int) -> c_int, unavailable());
    fn sigsetmask(mask: c_int) -> c_int, else late!(sigsetmask(mask): (c_int) -> c_int, unavailable());
    fn sigpause(mask: c_int) -> c_int, else late!(sigpause(mask): (c_int) -> c_int, unavailable());
    fn __sigpause(what: c_int, is_signal: c_int) -> c_int,
        else late!(__sigpause(what, is_signal): (c_int, c_int) -> c_int, unavailable());
    fn __sigsuspend(mask: *const libc::sigset_t) -> c_int, else kernel!(libc::SYS_rt_sigsuspend, mask, 8);
    fn __ppoll_chk(list: *mut c_void, count: libc::nfds_t, timeout: *const libc::timespec, mask: *const libc::sigset_t, room: usize) -> c_int,
        else late!(__ppoll_chk(list, count, timeout, mask, room): (*mut c_void, libc::nfds_t, *const libc::timespec, *const libc::sigset_t, usize) -> c_int, unavailable());
    fn setcontext(context: *const libc::ucontext_t) -> c_int,
        else late!(setcontext(context): (*const libc::ucontext_t) -> c_int, unavailable());
    fn swapcontext(kept: *mut libc::ucontext_t, context: *const libc::ucontext_t) -> c_int,
        else late!(swapcontext(kept, context): (*mut libc::ucontext_t, *const libc::ucontext_t) -> c_int, unavailable());
    fn sigprocmask(how: c_int, set: *const libc::sigset_t, before: *mut libc::sigset_t) -> c_int,
        else kernel!(libc::SYS_rt_sigprocmask, how as isize, set, before, 8);
    fn pthread_sigmask(how: c_int, set: *const libc::sigset_t, before: *mut libc::sigset_t) -> c_int,
        else late!(pthread_sigmask(how, set, before): (c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int, libc::ENOSYS);
    fn sigsuspend(mask: *const libc::sigset_t) -> c_int, else kernel!(libc::SYS_rt_sigsuspend, mask, 8);
    fn ppoll(list: *mut c_void, count: libc::nfds_t, timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int,
        else late!(ppoll(list, count, timeout, mask): (*mut c_void, libc::nfds_t, *const libc::timespec, *const libc::sigset_t) -> c_int, unavailable());
    fn pselect(count: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void, timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int,
        else late!(pselect(count, read, write, other, timeout, mask): (c_int, *mut c_void, *mut c_void, *mut c_void, *const libc::timespec, *const libc::sigset_t) -> c_int, unavailable());
    fn epoll_pwait(epoll: c_int, events: *mut c_void, count: c_int, timeout: c_int, mask: *const libc::sigset_t) -> c_int,
        else kernel!(libc::SYS_epoll_pwait, epoll as isize, events, count as isize, timeout as isize, mask, 8);
    fn epoll_pwait2(epoll: c_int, events: *mut c_void, count: c_int, timeout: *const libc::timespec, mask: *const libc::sigset_t) -> c_int,
        else kernel!(libc::SYS_epoll_pwait2, epoll as isize, events, count as isize, timeout, mask, 8);
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int,
        else kernel!(libc::SYS_prctl, option as isize, a, b, c, d);
    fn pthread_create(thread: *mut c_void, attributes: *const c_void, function: ThreadFunction, argument: *mut c_void) -> c_int,
        else late!(pthread_create(thread, attributes, function, argument): (*mut c_void, *const c_void, ThreadFunction, *mut c_void) -> c_int, libc::EAGAIN);
    fn thrd_create(thread: *mut c_void, function: ShortFunction, argument: *mut c_void) -> c_int,
        else late!(thrd_create(thread, function, argument): (*mut c_void, ShortFunction, *mut c_void) -> c_int, 2);

    fn mmap(address: *mut c_void, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void,
        else kernel!(libc::SYS_mmap, address, length, protection, flags, fd as isize, offset);
    fn mmap64(address: *mut c_void, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void,
        else kernel!(libc::SYS_mmap, address, length, protection, flags, fd as isize, offset);
}

/// The replacement of a function of POSIX aio where libc has none.
fn unavailable() -> c_int {
    crate::abi::errno::set(libc::ENOSYS);
    -1
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// pread and pwrite are cancellation points (pthreads(7)), but the library's own calls on lanes are not. So a hook
/// calls this function before it holds anything that unwinding would have to give back.
pub fn cancellation_point() {
    // SAFETY: a function without arguments.
    unsafe { pthread_testcancel() };
}

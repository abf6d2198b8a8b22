//! Descriptor numbers for the program: when it has hardly any left, the library closes the files on lanes, and frees
//! their numbers.
//!
//! Lanes lie above the program's soft limit where the hard limit permits, or where the process may raise that limit.
//! Otherwise lanes share the program's numbers. Lanes then live only while the last numbers are free, for calls that no
//! hook sees: when the program gets one of them, all lanes give their numbers back. Lanes do so too when a call fails
//! for want of a number, and the library makes the call once more.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::errno;
use crate::abi::raw;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::others;
use crate::state::group;
use crate::state::lane;
use crate::state::process::{self, LimitForChild};

/// Makes a call of libc that returns something with a descriptor. Makes it once more if it fails for want of a number
/// and the library could give numbers up. `number` is the descriptor of a result, negative if the call has failed.
#[inline]
pub fn needing<T>(number: impl Fn(&T) -> c_int, call: impl Fn() -> T) -> T {
    let mut result = call();
    if number(&result) < 0 && is_full(errno::get()) {
        result = call();
    }
    got(number(&result));
    result
}

/// Makes a call of libc that returns a descriptor or -1, and makes it once more as `needing` does.
#[inline]
pub fn needing_number(call: impl Fn() -> c_int) -> c_int {
    needing(|&fd| fd, call)
}

/// Notes a number that the program has got. If hardly any are left, the lanes give their numbers back.
#[inline]
pub fn got(fd: c_int) {
    if process::is_crowded(fd) {
        is_full(libc::EMFILE);
    }
}

/// Makes room for as many descriptors as a message may bring: the kernel drops descriptors that find all numbers taken.
pub fn for_a_message(control_bytes: usize) {
    if control_bytes / size_of::<c_int>() > process::SPARE as usize / 2 && process::shares_numbers() {
        is_full(libc::EMFILE);
    }
}

/// True if a call that has failed with this error is worth another try, because lanes have given numbers back.
#[cold]
pub fn is_full(error: c_int) -> bool {
    if !matches!(error, libc::EMFILE | libc::ENFILE) || !lane::active() || !process::is_own() {
        return false;
    }
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    let limit = raw::descriptor_limit().unwrap_or(0);
    // ENFILE: the table of the whole system is full, so any number helps. EMFILE: only numbers below the process's
    // limit help.
    let limit = if error == libc::ENFILE { u64::MAX } else { limit };
    let (freed, left) = group::make_room(c_int::try_from(limit).unwrap_or(c_int::MAX));
    process::owe(left && error == libc::EMFILE);
    freed > 0
}

macro_rules! numbers {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            /// The function of that name of libc, which makes a descriptor that is not a file of a pool.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the contract of the function of that name, which the program keeps.
                let fd = needing_number(|| unsafe { real::$name($($argument),*) });
                others::is_new(fd);
                fd
            }
        )*
    };
}

numbers! {
    accept(socket: c_int, address: *mut c_void, length: *mut c_void);
    accept4(socket: c_int, address: *mut c_void, length: *mut c_void, flags: c_int);
    socket(domain: c_int, kind: c_int, protocol: c_int);
    eventfd(initial: c_uint, flags: c_int);
    epoll_create(size: c_int);
    epoll_create1(flags: c_int);
    memfd_create(name: *const c_char, flags: c_uint);
    timerfd_create(clock: c_int, flags: c_int);
    inotify_init();
    inotify_init1(flags: c_int);
    fanotify_init(flags: c_uint, event_flags: c_uint);
    signalfd(fd: c_int, mask: *const c_void, flags: c_int);
    pidfd_open(process: c_int, flags: c_uint);
    posix_openpt(flags: c_int);
    getpt();
    shm_open(name: *const c_char, flags: c_int, mode: c_uint);
    mq_open(name: *const c_char, flags: c_int, mode: libc::mode_t, attributes: *const c_void);
    __mq_open_2(name: *const c_char, flags: c_int);
    fsopen(name: *const c_char, flags: c_uint);
    fsmount(context: c_int, flags: c_uint, attributes: c_uint);
    fspick(at: c_int, path: *const c_char, flags: c_uint);
    open_tree(at: c_int, path: *const c_char, flags: c_uint);
    rresvport(port: *mut c_int);
    rresvport_af(port: *mut c_int, family: u16);
}

macro_rules! pairs {
    ($($name:ident($($argument:ident: $type:ty),*; $pair:ident $(, $after:ident: $after_type:ty)?);)*) => {
        $(
            /// The function of that name of libc, which makes two descriptors.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type,)* $pair: *mut c_int $(, $after: $after_type)?) -> c_int {
                // SAFETY: the contract of the function of that name, which the program keeps.
                let result = needing_number(|| unsafe { real::$name($($argument,)* $pair $(, $after)?) });
                for at in 0..if result == 0 { 2 } else { 0 } {
                    // SAFETY: the kernel has written both.
                    let fd = unsafe { $pair.wrapping_add(at).read() };
                    others::is_new(fd);
                    got(fd);
                }
                result
            }
        )*
    };
}

pairs! {
    pipe(; pair);
    pipe2(; pair, flags: c_int);
    socketpair(domain: c_int, kind: c_int, protocol: c_int; pair);
}

/// openpty(3).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn openpty(
    master: *mut c_int,
    slave: *mut c_int,
    name: *mut c_char,
    terminal: *const c_void,
    window: *const c_void,
) -> c_int {
    // SAFETY: the contract of openpty(3), which the program keeps.
    let result = needing_number(|| unsafe { real::openpty(master, slave, name, terminal, window) });
    for at in [master, slave].into_iter().filter(|_| result == 0) {
        // SAFETY: libc has written both.
        let fd = unsafe { at.read() };
        others::is_new(fd);
        got(fd);
    }
    result
}

/// forkpty(3): the parent gets a descriptor.
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    terminal: *const c_void,
    window: *const c_void,
) -> libc::pid_t {
    // SAFETY: the contract of forkpty(3), which the program keeps.
    let child =
        needing(|child: &libc::pid_t| (*child).min(0), || unsafe { real::forkpty(master, name, terminal, window) });
    if child > 0 {
        // SAFETY: libc has written it.
        let fd = unsafe { master.read() };
        others::is_new(fd);
        got(fd);
    }
    child
}

/// opendir(3).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn opendir(path: *const c_char) -> *mut libc::DIR {
    let number = |directory: &*mut libc::DIR| match directory.is_null() {
        true => -1,
        // SAFETY: libc has just made it.
        false => unsafe { libc::dirfd(*directory) },
    };
    // SAFETY: the contract of opendir(3), which the program keeps.
    needing(number, || unsafe { real::opendir(path) })
}

/// The descriptor of a stream that libc has just made; -1 if it has not.
pub fn number_of_stream(file: &*mut libc::FILE) -> c_int {
    // SAFETY: null, or a stream that libc has just made.
    if file.is_null() { -1 } else { unsafe { libc::fileno(*file) } }
}

/// setmntent(3).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setmntent(path: *const c_char, kind: *const c_char) -> *mut libc::FILE {
    // SAFETY: the contract of setmntent(3), which the program keeps.
    needing(number_of_stream, || unsafe { real::setmntent(path, kind) })
}

/// popen(3).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn popen(command: *const c_char, kind: *const c_char) -> *mut libc::FILE {
    // SAFETY: the contract of popen(3), which the program keeps.
    let open = || unsafe { real::popen(command, kind) };
    let _limit = LimitForChild::begin();
    needing(number_of_stream, open)
}

/// Makes a call that returns `-errno` if it fails, and makes it once more if it fails for want of a number and the
/// library could give numbers up.
pub fn needing_by_errno(call: impl Fn() -> isize) -> isize {
    let result = call();
    if c_int::try_from(result).is_ok_and(|result| is_full(result.wrapping_neg())) { call() } else { result }
}

macro_rules! rings {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            /// liburing's function of that name, which returns 0 or `-errno`.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the contract of the function of that name, which the program keeps.
                let call = || unsafe { real::$name($($argument),*) };
                needing_by_errno(|| call() as isize) as c_int
            }
        )*
    };
}

rings! {
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint);
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void);
}

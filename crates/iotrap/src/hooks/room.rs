//! Descriptor numbers for the program: when it has none left, the library first closes the files on lanes, and frees
//! their numbers.
//!
//! Lanes lie above the program's soft limit where the hard limit permits. Otherwise lanes share the program's numbers,
//! and the library repeats a call that fails with EMFILE after it has closed the lanes of some open files.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::errno;
use crate::abi::raw;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::others;
use crate::state::group;
use crate::state::lane;
use crate::state::process;

/// Makes a call of libc that returns a new descriptor or -1, or a stream or null. Makes it once more if it fails for
/// want of a number and the library could give numbers up.
#[inline]
pub fn needing<T>(failed: impl Fn(&T) -> bool, call: impl Fn() -> T) -> T {
    let result = call();
    if failed(&result) && is_full(errno::get()) { call() } else { result }
}

/// Makes a call of libc that returns a descriptor or -1, and makes it once more as `needing` does.
#[inline]
pub fn needing_number(call: impl Fn() -> c_int) -> c_int {
    let fd = needing(|&fd| fd < 0, call);
    if process::is_crowded(fd) {
        leave_spare_numbers();
    }
    fd
}

/// Has open files give up their lanes before the program's numbers are used up: libc opens files and sockets by calls
/// that no hook sees, and they must not fail either.
#[cold]
fn leave_spare_numbers() {
    is_full(libc::EMFILE);
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
    group::make_room(c_int::try_from(limit).unwrap_or(c_int::MAX))
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
                    others::is_new(unsafe { $pair.wrapping_add(at).read() });
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

/// opendir(3).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn opendir(path: *const c_char) -> *mut libc::DIR {
    // SAFETY: the contract of opendir(3), which the program keeps.
    needing(|directory: &*mut libc::DIR| directory.is_null(), || unsafe { real::opendir(path) })
}

//! getrlimit, setrlimit and prlimit: the limit of descriptor numbers is the program's. The library raises the limit for
//! moments ([`crate::state::process::HighNumbers`]); meanwhile the program's own calls wait. A new limit of file sizes
//! waits for the writes that were submitted under the old one.

use core::ffi::{c_int, c_long, c_uint};

use crate::abi::real;
use crate::aio::async_io;
use crate::state::lane;
use crate::state::process::LimitHeld;

/// Carries out a call about a limit, when nobody has raised it and no write in flight could meet it.
pub fn around<T>(resource: c_uint, call: impl FnOnce() -> T) -> T {
    if resource == libc::RLIMIT_FSIZE {
        async_io::settle_writes();
    }
    let _held = (resource == libc::RLIMIT_NOFILE && lane::active()).then(LimitHeld::begin);
    call()
}

macro_rules! limits {
    ($($name:ident($($argument:ident: $type:ty),*) of $resource:ident;)*) => {
        $(
            /// The function of that name of getrlimit(2).
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the contract of the function of that name, which the program keeps.
                around($resource, || unsafe { real::$name($($argument),*) })
            }
        )*
    };
}

limits! {
    getrlimit(resource: c_uint, to: *mut libc::rlimit) of resource;
    getrlimit64(resource: c_uint, to: *mut libc::rlimit) of resource;
    setrlimit(resource: c_uint, from: *const libc::rlimit) of resource;
    setrlimit64(resource: c_uint, from: *const libc::rlimit) of resource;
    prlimit(process: libc::pid_t, resource: c_uint, from: *const libc::rlimit, to: *mut libc::rlimit) of resource;
    prlimit64(process: libc::pid_t, resource: c_uint, from: *const libc::rlimit, to: *mut libc::rlimit) of resource;
}

/// ulimit(3): it may set the limit of file sizes.
///
/// # Safety
/// No argument has to be valid for memory safety. (The variadic argument is passed like any other on x86-64 and
/// AArch64.)
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ulimit(command: c_int, limit: c_long) -> c_long {
    async_io::settle_writes();
    // SAFETY: the function takes integers only.
    unsafe { real::ulimit(command, limit) }
}

//! POSIX aio: aio_read, aio_write, aio_fsync, lio_listio and what goes with them. [`crate::aio::posix`] does the work.

use core::ffi::c_int;

use libc::aiocb;

use crate::abi::real;
use crate::aio::posix;
use crate::policy::spread::Kind;

macro_rules! both {
    ($(#[$doc:meta])* fn $name:ident, $name64:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block) => {
        both! { @one $(#[$doc])* fn $name($($argument: $type),*) -> $result $body }
        both! { @one $(#[$doc])* fn $name64($($argument: $type),*) -> $result $body }
    };
    (@one $(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The program's contract ([`crate::hooks`]). (On 64-bit machines the functions with and without 64 are the
        /// same.)
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result $body
    };
}

both! {
    /// aio_read(3).
    fn aio_read, aio_read64(of: *mut aiocb) -> c_int {
        // SAFETY: the program's contract, or a shadow of it.
        let real = |of: *mut aiocb| unsafe { real::aio_read(of) };
        // SAFETY: the program's contract.
        unsafe { posix::submit(of, Kind::Read, real) }
    }
}

both! {
    /// aio_write(3).
    fn aio_write, aio_write64(of: *mut aiocb) -> c_int {
        // SAFETY: the program's contract, or a shadow of it.
        let real = |of: *mut aiocb| unsafe { real::aio_write(of) };
        // SAFETY: the program's contract.
        unsafe { posix::submit(of, Kind::Write, real) }
    }
}

both! {
    /// aio_fsync(3).
    fn aio_fsync, aio_fsync64(operation: c_int, of: *mut aiocb) -> c_int {
        // SAFETY: the program's contract.
        unsafe { posix::fsync(operation, of) }
    }
}

both! {
    /// aio_error(3).
    fn aio_error, aio_error64(of: *const aiocb) -> c_int {
        // SAFETY: the program's contract.
        unsafe { posix::error(of) }
    }
}

both! {
    /// aio_return(3).
    fn aio_return, aio_return64(of: *mut aiocb) -> isize {
        // SAFETY: the program's contract.
        unsafe { posix::result(of) }
    }
}

both! {
    /// aio_suspend(3).
    fn aio_suspend, aio_suspend64(list: *const *const aiocb, count: c_int, timeout: *const libc::timespec) -> c_int {
        // SAFETY: the program's contract.
        unsafe { posix::suspend(list, count, timeout) }
    }
}

both! {
    /// aio_cancel(3).
    fn aio_cancel, aio_cancel64(fd: c_int, of: *mut aiocb) -> c_int {
        // SAFETY: the program's contract.
        unsafe { posix::cancel(fd, of) }
    }
}

both! {
    /// lio_listio(3).
    fn lio_listio, lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut libc::sigevent) -> c_int {
        // SAFETY: the program's contract.
        unsafe { posix::list(mode, list, count, event) }
    }
}

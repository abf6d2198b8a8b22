//! liburing's functions that submit, register files, and end a ring. [`crate::aio::uring`] does the work.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::liburing::Uring;
use crate::abi::real;
use crate::aio::uring::{before, ends};
use crate::open::others;

macro_rules! submits {
    ($($name:ident(uring: *mut Uring $(, $argument:ident: $type:ty)*);)*) => {
        $(
            /// The function of liburing of that name.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(uring: *mut Uring $(, $argument: $type)*) -> c_int {
                // SAFETY: the program's contract.
                unsafe { before(uring) };
                // SAFETY: the program's contract.
                unsafe { real::$name(uring.cast() $(, $argument)*) }
            }
        )*
    };
}

submits! {
    io_uring_submit(uring: *mut Uring);
    io_uring_submit_and_wait(uring: *mut Uring, count: c_uint);
    io_uring_submit_and_get_events(uring: *mut Uring);
    io_uring_submit_and_wait_timeout(uring: *mut Uring, found: *mut c_void, count: c_uint, timeout: *mut c_void,
                                     mask: *mut c_void);
    io_uring_wait_cqes(uring: *mut Uring, found: *mut c_void, count: c_uint, timeout: *mut c_void, mask: *mut c_void);
    io_uring_wait_cqe_timeout(uring: *mut Uring, found: *mut c_void, timeout: *mut c_void);
    io_uring_submit_and_wait_min_timeout(uring: *mut Uring, found: *mut c_void, count: c_uint, timeout: *mut c_void,
                                         least: c_uint, mask: *mut c_void);
    io_uring_submit_and_wait_reg(uring: *mut Uring, found: *mut c_void, count: c_uint, index: c_int);
    io_uring_wait_cqes_min_timeout(uring: *mut Uring, found: *mut c_void, count: c_uint, timeout: *mut c_void,
                                   least: c_uint, mask: *mut c_void);
}

macro_rules! registering {
    ($($name:ident($($before:ident: $before_type:ty),*; $files:ident; $($between:ident: $between_type:ty),*; $count:ident);)*) => {
        $(
            /// The function of liburing of that name.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                $($before: $before_type,)* $files: *const c_int, $($between: $between_type,)* $count: c_uint
            ) -> c_int {
                // SAFETY: the contract of io_uring_register_files(3), which the program keeps.
                unsafe { others::go_out_of_sight($files, $count) };
                // SAFETY: the contract of io_uring_register_files(3), which the program keeps.
                unsafe { real::$name($($before,)* $files, $($between,)* $count) }
            }
        )*
    };
}

registering! {
    io_uring_register_files(uring: *mut c_void; files; ; count);
    io_uring_register_files_tags(uring: *mut c_void; files; tags: *mut c_void; count);
    io_uring_register_files_update(uring: *mut c_void, from: c_uint; files; ; count);
    io_uring_register_files_update_tag(uring: *mut c_void, from: c_uint; files; tags: *mut c_void; count);
}

/// io_uring_queue_exit(3): the ring is unmapped. Requests in flight are cancelled, or go on without the library.
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_exit(uring: *mut Uring) {
    ends(uring);
    // SAFETY: the program's contract.
    unsafe { real::io_uring_queue_exit(uring.cast()) };
}

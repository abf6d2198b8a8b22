//! liburing's functions that submit, register files, and end a ring: [`crate::aio::uring`] does the work. And the
//! system calls of io_uring, also by the functions of liburing that are nothing else: [`crate::aio::raw_ring`] does the
//! work.

use core::ffi::{c_int, c_uint, c_void};

use super::{masks, room};
use crate::abi::liburing::Uring;
use crate::abi::real;
use crate::aio::raw_ring;
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
                others::go_out_of_sight($files, $count);
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
    // SAFETY: the program's contract.
    unsafe { ends(uring) };
    // SAFETY: the program's contract.
    unsafe { real::io_uring_queue_exit(uring.cast()) };
}

/// io_uring_resize_rings(3): the ring gets other queues, with the requests in flight.
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_resize_rings(uring: *mut Uring, parameters: *mut c_void) -> c_int {
    // SAFETY: the program's contract.
    unsafe { ends(uring) };
    // SAFETY: the program's contract.
    unsafe { real::io_uring_resize_rings(uring.cast(), parameters) }
}

/// io_uring_setup(2). Returns the ring's descriptor or `-errno`.
///
/// # Safety
/// As the system call.
pub unsafe fn set_up(entries: usize, parameters: *mut c_void) -> isize {
    // SAFETY: the program's arguments.
    let result = room::needing_by_errno(|| unsafe { raw_ring::set_up(entries, parameters) });
    room::got(result as c_int);
    result
}

/// io_uring_enter(2). Returns its result or `-errno`.
///
/// # Safety
/// As the system call.
pub unsafe fn enter(fd: c_int, count: c_uint, least: usize, flags: usize, argument: usize, size: usize) -> isize {
    let mut without = masks::Changed::none();
    let argument = without.of_ring(flags, argument, size);
    let wait = raw_ring::Wait { least, flags, argument, size };
    // SAFETY: the program's arguments.
    unsafe { raw_ring::enter(fd, count, &wait) }
}

/// The functions of liburing that are system calls and nothing else: `-errno` if they fail.
macro_rules! calls {
    ($($name:ident($($argument:ident: $type:ty),*) by $by:expr;)*) => {
        $(
            /// The function of liburing of that name; or the function of that name of another library, which may have
            /// other arguments: it gets them as they are.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                if !real::are_calls_of_liburing() {
                    // SAFETY: the program's contract.
                    return unsafe { real::$name($($argument),*) };
                }
                // SAFETY: the program's contract.
                let result = unsafe { $by };
                result as c_int
            }
        )*
    };
}

/// The bytes of the kernel's set of signals.
const SIGNALS_BYTES: usize = size_of::<u64>();

calls! {
    io_uring_setup(entries: c_uint, parameters: *mut c_void) by set_up(entries as usize, parameters);
    io_uring_enter(fd: c_uint, count: c_uint, least: c_uint, flags: c_uint, mask: *mut c_void)
        by enter(fd as c_int, count, least as usize, flags as usize, mask as usize, SIGNALS_BYTES);
    io_uring_enter2(fd: c_uint, count: c_uint, least: c_uint, flags: c_uint, argument: *mut c_void, size: usize)
        by enter(fd as c_int, count, least as usize, flags as usize, argument as usize, size);
    io_uring_register(fd: c_uint, what: c_uint, argument: *const c_void, count: c_uint)
        by raw_ring::register(fd as c_int, what, argument as usize, count);
}

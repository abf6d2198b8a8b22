//! libaio's functions: io_setup, io_submit, io_getevents, io_pgetevents, io_destroy, with libaio's convention (`-errno`
//! is returned, `errno` is left alone). [`crate::aio::libaio`] does the work.

use core::ffi::{c_int, c_long};

use super::masks::Changed;
use crate::abi::libaio::{Event, Iocb};
use crate::abi::readable;
use crate::aio::async_io;
use crate::aio::context;
use crate::aio::libaio::{Timeout, destroy, get_events, setup, submit};
use crate::state::lane;

/// libaio's io_setup(3).
///
/// # Safety
/// As io_setup(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_setup(events: c_int, context: *mut u64) -> c_int {
    // SAFETY: the program's contract.
    let result = unsafe { setup(events as usize, context) };
    result as c_int
}

/// libaio's io_destroy(3).
///
/// # Safety
/// As io_destroy(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_destroy(context: u64) -> c_int {
    // SAFETY: the program's contract.
    let result = unsafe { destroy(context) };
    result as c_int
}

/// libaio's io_submit(3).
///
/// # Safety
/// As io_submit(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_submit(context: u64, count: c_long, iocbs: *mut *mut Iocb) -> c_int {
    // SAFETY: the program's contract.
    let result = unsafe { submit(context, count, iocbs) };
    result as c_int
}

/// libaio's io_getevents(3), in both of its versions. LIBAIO_0.1 had no `min_count`: the argument that is now the
/// number of events was their address then. No program asks for that many events.
///
/// # Safety
/// As io_getevents(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_getevents(
    context: u64,
    min_count: c_long,
    count: c_long,
    events: *mut Event,
    timeout: Timeout,
) -> c_int {
    const ADDRESSES: c_long = 1 << 16;
    if count >= ADDRESSES && (count as usize).is_multiple_of(align_of::<Event>()) && is_old_call(events, timeout) {
        let old_events: *mut Event = core::ptr::with_exposed_provenance_mut(count as usize);
        // SAFETY: the program's contract, of the older convention: (context, count, events, timeout).
        return unsafe { get_events(context, 1, min_count, old_events, events.cast(), None) as c_int };
    }
    // As libaio does, return without a system call if the ring is empty and the time to wait is zero.
    if (lane::active() || async_io::active())
        && let Some([0, 0]) = readable::read::<[i64; 2]>(timeout.cast())
        && context::is_empty(context)
    {
        if let Some((_, found)) = context::find(context) {
            found.fetched(found.fetching(), 0);
        }
        return 0;
    }
    // SAFETY: the program's contract.
    unsafe { get_events(context, min_count, count, events, timeout, None) as c_int }
}

/// libaio's io_pgetevents(3).
///
/// # Safety
/// As io_pgetevents(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_pgetevents(
    context: u64,
    min_count: c_long,
    count: c_long,
    events: *mut Event,
    timeout: Timeout,
    mask: *mut libc::sigset_t,
) -> c_int {
    /// Bytes of the kernel's signal set.
    const MASK_BYTES: usize = 8;
    let mut without = Changed::none();
    let mask = [without.set(mask as usize), MASK_BYTES];
    // SAFETY: the program's contract.
    unsafe { get_events(context, min_count, count, events, timeout, Some(mask.as_ptr().cast())) as c_int }
}

/// True if a call with a huge count is one of LIBAIO_0.1, whose fourth argument is a timeout.
fn is_old_call(fourth: *mut Event, _fifth: Timeout) -> bool {
    // Null, or, in a call of the present convention, the room for events, which is larger than a timespec.
    let plausible = |[seconds, ns]: [i64; 2]| (0..1_000_000_000).contains(&ns) && seconds >= 0;
    fourth.is_null() || readable::read(fourth.cast_const().cast()).is_some_and(plausible)
}

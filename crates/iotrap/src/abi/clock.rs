//! `CLOCK_MONOTONIC` without libc: the kernel's own function in the vDSO (vdso(7)), which uses no thread-local
//! variable.
//!
//! libc's public `clock_gettime` is not safe here: another preloaded library may have replaced it (libfaketime), and
//! that library relies on thread-local variables, which the threads of [`crate::abi::raw_thread`] do not have. It may
//! also tell another time than the kernel's timeouts use.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use crate::abi::raw;

type ClockGettime = unsafe extern "C" fn(c_int, *mut libc::timespec) -> c_int;

/// The function in the vDSO; null until it is found, and where the kernel maps none.
static CLOCK_GETTIME: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

#[cfg(target_arch = "x86_64")]
const NAME: &CStr = c"__vdso_clock_gettime";
#[cfg(target_arch = "aarch64")]
const NAME: &CStr = c"__kernel_clock_gettime";

/// Finds the function in the vDSO. Until then, and without a vDSO, [`monotonic_ns`] makes a system call.
pub fn prepare() {
    // SAFETY: a NUL-terminated name. RTLD_NOLOAD: the vDSO is among the loaded objects, or nothing is found.
    let vdso = unsafe { libc::dlopen(c"linux-vdso.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if !vdso.is_null() {
        // SAFETY: a handle that dlopen has returned, and a NUL-terminated name. The vDSO is never unmapped.
        let found = unsafe { libc::dlsym(vdso, NAME.as_ptr()) };
        CLOCK_GETTIME.store(found, Release);
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds (clock_gettime(2)).
#[inline]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let found = CLOCK_GETTIME.load(Acquire);
    if found.is_null() {
        let (clock, place) = (libc::CLOCK_MONOTONIC as usize, &raw mut time as usize);
        // SAFETY: the kernel fills one timespec.
        let _ = unsafe { raw::call(libc::SYS_clock_gettime, clock, place, 0, 0, 0, 0) };
    } else {
        // SAFETY: the vDSO's function of that name has this type (vdso(7)).
        let function = unsafe { transmute::<*mut c_void, ClockGettime>(found) };
        // SAFETY: the function fills one timespec.
        let _ = unsafe { function(libc::CLOCK_MONOTONIC, &raw mut time) };
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

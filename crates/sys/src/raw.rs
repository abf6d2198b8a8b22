//! System calls that no interposed function of libc gets to see, and that leave `errno` alone.

use std::ffi::c_long;
use std::os::fd::{IntoRawFd, OwnedFd};

/// The bare system call: its result, or `-errno`.
///
/// # Safety
/// The arguments are valid for the system call `number`.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel's convention on x86-64: rcx and r11 are clobbered. The caller upholds what the call demands.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The bare system call: its result, or `-errno`.
///
/// # Safety
/// The arguments are valid for the system call `number`.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel's convention on AArch64: the number in x8, arguments and result from x0. The caller upholds
    // what the call demands.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

/// The system call by libc's syscall(2): its result, or `-errno`. On other processors than x86-64 and AArch64.
///
/// # Safety
/// The arguments are valid for the system call `number`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    // SAFETY: the caller upholds what the call demands.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => -(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize),
        result => result as isize,
    }
}

/// Closes a descriptor by the system call itself: dropping it would call `close` of whatever library comes first.
pub fn close(file: OwnedFd) {
    // SAFETY: the descriptor was owned, and is given up here.
    unsafe { rustix::io::close(file.into_raw_fd()) };
}

/// `CLOCK_REALTIME` in nanoseconds since 1970, from the kernel itself: valgrind maps no vDSO where the kernel says that
/// it is.
pub fn realtime_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let place = &raw mut time as usize;
    // SAFETY: the kernel fills one timespec.
    let _ = unsafe { call(libc::SYS_clock_gettime, libc::CLOCK_REALTIME as usize, place, 0, 0, 0, 0) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

//! `errno`, which belongs to the program: read, set, and kept.

use core::ffi::c_int;

/// The errno of the calling thread.
#[inline]
pub fn get() -> c_int {
    // SAFETY: libc's location of this thread's errno is always there.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the location is valid in the calling thread (libc's contract), and this thread alone uses it.
    unsafe { *place }
}

/// Sets the calling thread's errno.
#[inline]
pub fn set(value: c_int) {
    // SAFETY: libc's location of this thread's errno is always there.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the location is valid in the calling thread (libc's contract), and this thread alone uses it.
    unsafe { *place = value };
}

/// Puts errno back to the value of the moment at which this was made: for calls of the library behind the program's
/// back.
pub struct Kept(c_int);

/// Keeps errno until the value is dropped.
pub fn kept() -> Kept {
    Kept(get())
}

impl Drop for Kept {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// The kernel's convention (`-errno`) turned into libc's (-1 and errno).
#[inline]
pub fn libc_result(result: isize) -> isize {
    if (-4095..0).contains(&result) {
        set(-result as c_int);
        return -1;
    }
    result
}

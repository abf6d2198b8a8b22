//! Tells ThreadSanitizer what passes from thread to thread through the library.
//!
//! A program that is built with `-fsanitize=thread` does not see the locks of this library. The C part refers to the
//! sanitizer's functions weakly: in all other programs this costs one test of a pointer.

use std::ffi::c_void;

#[cfg(feature = "c-abi")]
unsafe extern "C" {
    fn guasi_internal_released(place: *mut c_void);
    fn guasi_internal_acquired(place: *mut c_void);
}

/// Everything that the caller did before becomes visible to a thread that calls [`acquired`] with the same place later.
#[inline]
pub(crate) fn released(place: *mut c_void) {
    #[cfg(feature = "c-abi")]
    // SAFETY: the sanitizer takes the address only as a key and does not read through it.
    unsafe {
        guasi_internal_released(place)
    };
    #[cfg(not(feature = "c-abi"))]
    let _ = place;
}

/// Makes visible what other threads did before they called [`released`] with the same place.
#[inline]
pub(crate) fn acquired(place: *mut c_void) {
    #[cfg(feature = "c-abi")]
    // SAFETY: the sanitizer takes the address only as a key and does not read through it.
    unsafe {
        guasi_internal_acquired(place)
    };
    #[cfg(not(feature = "c-abi"))]
    let _ = place;
}

//! A descriptor in a static table, or none.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

/// A place for a descriptor; -1 where there is none.
///
/// The word is the descriptor's complement, so that an empty place is zero: a table of empty places takes no room in
/// the library's file, and no memory before its places are used.
pub struct Descriptor(AtomicI32);

impl Descriptor {
    /// An empty place.
    pub const fn none() -> Descriptor {
        Descriptor(AtomicI32::new(0))
    }

    /// The descriptor, or -1.
    #[inline]
    pub fn load(&self, order: Ordering) -> c_int {
        !self.0.load(order)
    }

    /// Puts a descriptor into the place; -1 empties it.
    #[inline]
    pub fn store(&self, fd: c_int, order: Ordering) {
        self.0.store(!fd, order);
    }

    /// Puts a descriptor into the place, and returns the one that was there, or -1.
    #[inline]
    pub fn swap(&self, fd: c_int, order: Ordering) -> c_int {
        !self.0.swap(!fd, order)
    }

    /// Replaces the descriptor `current` by `new`; -1 stands for an empty place.
    ///
    /// # Errors
    /// The place holds another descriptor, which comes back.
    #[inline]
    pub fn compare_exchange(
        &self,
        current: c_int,
        new: c_int,
        success: Ordering,
        failure: Ordering,
    ) -> Result<c_int, c_int> {
        self.0.compare_exchange(!current, !new, success, failure).map(|fd| !fd).map_err(|fd| !fd)
    }
}

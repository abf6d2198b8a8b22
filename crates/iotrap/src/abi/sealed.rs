//! The seal of a process. The kernel kills a process whose filter of system calls (seccomp(2)) forbids a call that it
//! makes, and the program wrote the filter for its own calls. So a process that gets a filter is sealed first: from
//! then on the library makes no call of its own, and passes on those of the program.
//!
//! [`crate::abi::raw::call`] refuses the library's calls in a sealed process, whoever makes them;
//! [`crate::abi::raw::pass`] carries out the program's. [`crate::hooks::filter`] gives the lanes up before it seals. A
//! seal is never broken: the kernel takes no filter back, and a child has the filters and the memory of its parent.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};

static SEALED: AtomicBool = AtomicBool::new(false);

/// True if the library makes no system calls of its own any more.
#[inline]
pub fn is_sealed() -> bool {
    SEALED.load(Acquire)
}

/// Seals the process, for good. Nothing of the library is under way that needs a call to end well.
pub fn seal() {
    SEALED.store(true, Release);
}

//! The test that this process is the one that made a context.
//!
//! A forked child has the memory of a context but neither its threads nor its ring, and a lock may have been held at
//! the moment of the fork. The child therefore leaves contexts of its parent untouched and refuses them (ECHILD).

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

extern "C" fn in_the_child() {
    GENERATION.fetch_add(1, Relaxed);
}

/// The number of forks between the first context and this process, on the child's side of each.
pub(crate) fn generation() -> u64 {
    WATCH.call_once(|| {
        // SAFETY: the handler only increments an atomic, which is allowed after fork.
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    });
    GENERATION.load(Relaxed)
}

//! Descriptors that the library closes beside locks of the program.
//!
//! Closing any descriptor of a file drops the POSIX locks that the process has on the file (fcntl_locking(2)), whoever
//! has opened the descriptor. So a thread of the library begins a [`Closing`], looks if the file is locked, and then
//! closes. A thread that is about to take a lock notes the lock first ([`crate::state::node::Node::first_lock`]), and
//! waits for all that have begun. One of the two sees the other.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::SeqCst;

use crate::abi::raw;

/// The number of threads that may be closing a descriptor of some file of the program.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// A guard of a thread that is about to close a descriptor of a file of the program, if the file is not locked. The
/// thread asks no server while it holds the guard.
pub struct Closing;

impl Closing {
    /// Begins: from now on a thread that takes a lock waits for this one.
    pub fn begin() -> Closing {
        UNDER_WAY.fetch_add(1, SeqCst);
        Closing
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, SeqCst);
    }
}

/// Waits until a condition of other threads holds, which takes them microseconds, and for one second at most: the
/// program must not hang should a thread of it be held up there.
pub fn wait_until(holds: impl Fn() -> bool) {
    const TURN_US: i64 = 20;
    const TURNS: u32 = 50_000;
    (0..TURNS).take_while(|_| !holds()).for_each(|_| raw::sleep_us(TURN_US));
}

/// Waits until every thread that was closing has done so.
pub fn wait_for_all() {
    wait_until(|| UNDER_WAY.load(SeqCst) == 0);
}

/// Forgets the parent's threads, in a forked child.
pub fn forget_all() {
    UNDER_WAY.store(0, SeqCst);
}

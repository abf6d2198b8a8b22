//! Descriptors that the library closes beside locks of the program.
//!
//! Closing any descriptor of a file drops the POSIX locks that the process has on the file (fcntl_locking(2)), whoever
//! has opened the descriptor. So a thread of the library begins a [`Closing`], looks if the file is locked, and then
//! closes. A thread that is about to take a lock notes the lock first ([`crate::state::node::Node::first_lock`]), and
//! waits for all that have begun. One of the two sees the other. The library keeps a descriptor that it may not close
//! until the program has no descriptor of the file any more, and with that no lock.

use core::ffi::c_int;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU64, AtomicUsize};

use crate::abi::raw;
use crate::state::process;

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

/// The most descriptors that are kept: a lock has to come while a lane is opened. Further ones stay open.
const MOST_KEPT: usize = 256;

/// Descriptors that are kept, each with the number of its node: 0 for none.
static KEPT: [AtomicU64; MOST_KEPT] = [const { AtomicU64::new(0) }; MOST_KEPT];
/// The number of these: nobody looks at them without any.
static KEPT_NOW: AtomicUsize = AtomicUsize::new(0);

fn kept_word(node: u32, fd: c_int) -> u64 {
    u64::from(node) << 32 | u64::from(fd as u32 + 1)
}

/// Keeps a descriptor of a file until the node of the file ends.
pub fn keep(node: u32, fd: c_int) {
    KEPT_NOW.fetch_add(1, SeqCst);
    let free = |place: &&AtomicU64| place.compare_exchange(0, kept_word(node, fd), SeqCst, SeqCst).is_ok();
    if !KEPT.iter().any(|place| free(&place)) {
        KEPT_NOW.fetch_sub(1, SeqCst);
    }
}

/// Closes the descriptors that are kept for a node: the program has closed all of its own. The program may have opened
/// the file anew at this moment, as another node, and have locked it: `keeps` keeps a descriptor for that node then.
pub fn close_kept(node: u32, keeps: impl Fn(&Closing, c_int) -> bool) {
    if KEPT_NOW.load(SeqCst) == 0 {
        return;
    }
    let closing = Closing::begin();
    take_kept(
        |word| (word >> 32) as u32 == node,
        |fd| {
            if !keeps(&closing, fd) {
                let _ = raw::close(fd);
            }
        },
    );
}

fn take_kept(is_wanted: impl Fn(u64) -> bool, mut take: impl FnMut(c_int)) {
    for place in &KEPT {
        let word = place.load(SeqCst);
        if word != 0 && is_wanted(word) && place.compare_exchange(word, 0, SeqCst, SeqCst).is_ok() {
            KEPT_NOW.fetch_sub(1, SeqCst);
            take(word as u32 as c_int - 1);
        }
    }
}

/// Forgets the parent's threads, in a forked child, and closes the child's copies of what the parent keeps, unless
/// they are the parent's own (clone(2) with CLONE_FILES).
pub fn forget_all() {
    UNDER_WAY.store(0, SeqCst);
    if !process::shares_descriptors() {
        take_kept(
            |_| true,
            |fd| {
                let _ = raw::close(fd);
            },
        );
    }
}

//! Completions that come right behind a poll: for tests of what a thread does between two polls.

use std::cell::Cell;

thread_local! {
    static MISSES: Cell<u32> = const { Cell::new(0) };
}

/// The next `polls` polls of this thread find nothing, on all fabrics.
pub fn miss(polls: u32) {
    MISSES.set(polls);
}

/// True if the poll that begins finds nothing.
pub(super) fn is_missed() -> bool {
    let left = MISSES.get();
    MISSES.set(left.saturating_sub(1));
    left > 0
}

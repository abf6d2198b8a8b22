//! The calls of the data path that a thread makes: for tests of how much work a command costs.

use std::cell::Cell;

/// Calls of one thread, on all fabrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Work posted to send queues.
    pub posts: u64,
    /// Work among it whose success makes a completion.
    pub signaled: u64,
    /// Receives posted.
    pub receives: u64,
    /// Polls of completion queues.
    pub polls: u64,
    /// Completions that the polls gave.
    pub completions: u64,
    /// Requests for a notice.
    pub arms: u64,
    /// Looks at notices and at events of the connection manager: with rdma-core each is a system call.
    pub looks: u64,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts {
        posts: 0, signaled: 0, receives: 0, polls: 0, completions: 0, arms: 0, looks: 0,
    }) };
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// The calls that this thread has made so far.
pub fn counts() -> Counts {
    COUNTS.get()
}

/// True while this thread is in a call of the data path: a counting allocator leaves the fabric's own memory out.
pub fn is_inside() -> bool {
    INSIDE.get() > 0
}

/// A call under way.
pub(super) struct Inside;

impl Inside {
    /// Begins a call, which `count` counts.
    pub fn begin(count: impl FnOnce(&mut Counts)) -> Inside {
        let mut counts = COUNTS.get();
        count(&mut counts);
        COUNTS.set(counts);
        INSIDE.set(INSIDE.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
    }
}

/// Counts completions of a poll.
pub(super) fn polled(completions: usize) {
    let mut counts = COUNTS.get();
    counts.completions += completions as u64;
    COUNTS.set(counts);
}

//! The one interface of every pacing method.

use crate::{Admit, Op, OpId, Purge, Released, Stats};

/// A finished comparison of two windows in turns: see [`crate::AutoPacer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Bytes of the window that was in force.
    pub window_bytes: u64,
    /// Bytes of the window that was tried.
    pub candidate_bytes: u64,
    /// The part by which the candidate delivered more.
    pub gain: f64,
    /// The standard error of the gain.
    pub error: f64,
}

/// Decides when an op may be issued. Not thread-safe on purpose: one per reactor, or behind the caller's lock.
///
/// The caller's duties: time never goes back; every `Go` and every `Released` is `complete`d exactly once; `poll`
/// is called until it returns `None` after each batch of admissions and completions, and again no later than
/// [`Admission::wakeup_ns`].
pub trait Admission: Send {
    /// The decision if `op` may be issued now. Admin ops always may.
    fn admit(&mut self, now_ns: u64, op: Op) -> Admit;

    /// True if `id` was in flight: its bytes are given back, and its latency is learnt from. False for a stale handle
    /// (completed twice, or still held), which changes nothing.
    fn complete(&mut self, now_ns: u64, id: OpId) -> bool;

    /// The next held op that may be issued now, if any.
    fn poll(&mut self, now_ns: u64) -> Option<Released>;

    /// When `poll` may next release something although nothing completes; `None` if only a completion can help.
    fn wakeup_ns(&self) -> Option<u64>;

    /// The cookie of a held op that is now forgotten; `None` if it is not held (it may be in flight).
    fn abort(&mut self, now_ns: u64, id: OpId) -> Option<u64>;

    /// The cookie of one held op that matches and is now forgotten: call until `None`. Costs a pass over all slots.
    fn purge(&mut self, now_ns: u64, which: Purge) -> Option<u64>;

    /// The op in flight keeps its memory, but nothing moves, through no fault of its drive: from now on it counts in
    /// the budget and no longer in the window and its drive's share. Complete it as ever. `auto` does this; the other
    /// methods go on counting it.
    fn set_aside(&mut self, _now_ns: u64, _id: OpId) {}

    /// Holds what is held of that queue, and what comes, until [`Admission::resume`]: whoever is behind it takes what
    /// it gets slowly, and would fill the memory with what has not been taken. `auto` does; the methods of the
    /// prototype know no queues, and go on.
    fn pause(&mut self, _queue: u32) {}

    /// Ends a pause; without one, nothing.
    fn resume(&mut self, _queue: u32) {}

    /// Counters since construction, per drive and per tenant.
    fn stats(&self) -> &Stats;

    /// Bytes in flight that are admitted at most at this moment; `u64::MAX` where the method does not bound them.
    fn window_bytes(&self) -> u64;

    /// The period between releases of rate methods in nanoseconds (of one credit); 0 for others.
    fn period_ns(&self) -> u64 {
        0
    }

    /// The last comparison of two windows; `None` before the first, and of methods that compare none.
    fn last_trial(&self) -> Option<Trial> {
        None
    }
}

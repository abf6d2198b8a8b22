//! The gate of a device: a fused operation holds a range of blocks, and nobody else changes the range meanwhile.
//!
//! ```text
//! close ─► fence: every reactor waits for its changes of the range in the device ─► compare, write ─► open
//! ```
//!
//! A command that changes blocks looks at the gate as the last thing before it goes into the device. A reactor that
//! hears of a fence has therefore all changes in its devices that passed before the gate was closed: those that come
//! later wait. A device without fused operations costs such a command one atomic load.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Shared;
use super::mailbox::{Message, Token};

/// A range of bytes on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub offset: u64,
    pub len: u64,
}

impl Span {
    pub fn overlaps(self, other: Span) -> bool {
        let begins_before = |one: Span, end: Span| one.offset < end.offset.saturating_add(end.len);
        self.len > 0 && other.len > 0 && begins_before(self, other) && begins_before(other, self)
    }
}

/// The gate of one device, which all reactors share.
#[derive(Default)]
pub(super) struct Gate {
    /// The number of ranges that are held.
    held: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holds: Vec<(u64, Span)>,
    /// The reactors that have commands which wait.
    waiting: BTreeSet<u32>,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a change of that range must wait: the reactor hears of the opening of the gate then.
    #[inline]
    pub fn bars(&self, span: Span, reactor: u32) -> bool {
        self.held.load(Ordering::Acquire) > 0 && self.state().bars(span, reactor)
    }

    /// Holds the range from now on. `None` if somebody holds a part of it: the reactor hears of the opening then.
    pub fn close(self: &Arc<Gate>, span: Span, reactor: u32, shared: &Arc<Shared>) -> Option<Hold> {
        let mut state = self.state();
        if state.bars(span, reactor) {
            return None;
        }
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed);
        state.holds.push((id, span));
        self.held.store(state.holds.len(), Ordering::Release);
        Some(Hold { gate: Arc::clone(self), id, shared: Arc::clone(shared) })
    }
}

impl State {
    fn bars(&mut self, span: Span, reactor: u32) -> bool {
        let bars = self.holds.iter().any(|(_, held)| held.overlaps(span));
        if bars {
            self.waiting.insert(reactor);
        }
        bars
    }
}

/// A range that a fused operation holds until this value is dropped.
pub(super) struct Hold {
    gate: Arc<Gate>,
    /// Distinguishes the hold from all others.
    pub id: u64,
    shared: Arc<Shared>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.gate.state();
            state.holds.retain(|(id, _)| *id != self.id);
            self.gate.held.store(state.holds.len(), Ordering::Release);
            std::mem::take(&mut state.waiting)
        };
        // They look again, each at the range that it waits for.
        waiting.into_iter().for_each(|reactor| self.shared.send(reactor, Message::GateOpened));
    }
}

/// A question to all reactors, which ends when none of them has a change of the range in the device any more: the
/// reactors drop their references then.
pub(super) struct Fence {
    /// The uid of the device.
    pub device: u64,
    pub span: Span,
    /// The command that waits, and the id of its hold.
    pub queue: Token,
    pub slot: u16,
    pub hold: u64,
    pub shared: Arc<Shared>,
}

impl Drop for Fence {
    fn drop(&mut self) {
        let Fence { queue, slot, hold, .. } = *self;
        self.shared.send(queue.reactor, Message::Fenced { queue, slot, hold });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_where_they_share_a_byte() {
        let span = |offset, len| Span { offset, len };
        for (one, other, overlap) in [
            (span(0, 512), span(512, 512), false),
            (span(0, 513), span(512, 512), true),
            (span(512, 1), span(0, 4096), true),
            (span(0, 0), span(0, 4096), false),
            (span(u64::MAX - 1, u64::MAX), span(u64::MAX - 1, 1), true),
        ] {
            assert_eq!((one.overlaps(other), other.overlaps(one)), (overlap, overlap), "{one:?} {other:?}");
        }
    }
}

//! The parts that every method needs: the slots, the counters, the limits.

use crate::slab::{Slab, State};
use crate::{Admit, Limits, Op, OpId, Refusal, Released, Stats};

#[derive(Debug)]
pub(crate) struct Core {
    pub slab: Slab,
    pub stats: Stats,
    limits: Limits,
    /// The hard memory budget in bytes; `u64::MAX` for none.
    pub budget: u64,
}

impl Core {
    pub fn new(limits: Limits, budget: Option<u64>) -> Core {
        Core {
            slab: Slab::new(limits.ops),
            stats: Stats::new(limits.drives, limits.tenants),
            limits,
            budget: budget.unwrap_or(u64::MAX),
        }
    }

    /// The answer that does not depend on the load: admin ops go, impossible ones are refused.
    #[inline]
    pub fn screen(&self, op: &Op) -> Option<Admit> {
        if op.admin {
            return Some(Admit::Go(OpId::UNTRACKED));
        }
        if op.drive >= self.limits.drives || op.tenant >= self.limits.tenants {
            return Some(Admit::Refused(Refusal::UnknownId));
        }
        if u64::from(op.bytes) > self.budget {
            return Some(Admit::Refused(Refusal::TooLarge));
        }
        None
    }

    /// True if the hard budget has room for `bytes` more.
    #[inline]
    pub fn in_budget(&self, bytes: u32) -> bool {
        u64::from(bytes) <= self.budget.saturating_sub(self.stats.total.in_flight_bytes)
    }

    #[inline]
    pub fn go(&mut self, now_ns: u64, op: Op) -> Admit {
        match self.slab.insert(op, State::InFlight, now_ns) {
            Some(index) => {
                self.stats.admit(&op);
                Admit::Go(self.slab.id(index))
            }
            None => Admit::Refused(Refusal::Full),
        }
    }

    /// The slot of an op that now waits; the caller links it into a queue.
    pub fn hold(&mut self, now_ns: u64, op: Op) -> Result<u32, Admit> {
        match self.slab.insert(op, State::Held, now_ns) {
            Some(index) => {
                self.stats.hold(&op);
                Ok(index)
            }
            None => Err(Admit::Refused(Refusal::Full)),
        }
    }

    /// A held op, already unlinked, goes.
    pub fn release(&mut self, now_ns: u64, index: u32) -> Released {
        let slot = &mut self.slab[index];
        let op = slot.op;
        let hold_ns = now_ns.saturating_sub(slot.since_ns);
        slot.since_ns = now_ns;
        slot.state = State::InFlight;
        self.stats.unhold(&op, Some(hold_ns));
        self.stats.admit(&op);
        Released { id: self.slab.id(index), cookie: op.cookie }
    }

    /// A held op, already unlinked, is forgotten.
    pub fn forget(&mut self, index: u32) -> u64 {
        let op = self.slab[index].op;
        self.stats.unhold(&op, None);
        self.slab.remove(index);
        op.cookie
    }

    /// The op, in flight until now, that from now on is aside; `None` if it is not in flight.
    pub fn set_aside(&mut self, id: OpId) -> Option<Op> {
        let index = self.slab.find(id, State::InFlight)?;
        self.slab[index].state = State::Aside;
        Some(self.slab[index].op)
    }

    /// The op that was aside, and ends; `None` if it was not.
    pub fn finish_aside(&mut self, id: OpId) -> Option<Op> {
        let index = self.slab.find(id, State::Aside)?;
        let op = self.slab[index].op;
        self.slab.remove(index);
        self.stats.complete(&op);
        Some(op)
    }

    /// The op and its time in flight; `None` for a stale handle.
    #[inline]
    pub fn finish(&mut self, now_ns: u64, id: OpId) -> Option<(Op, u64)> {
        let index = self.slab.find(id, State::InFlight)?;
        let slot = &self.slab[index];
        let (op, latency_ns) = (slot.op, now_ns.saturating_sub(slot.since_ns));
        self.slab.remove(index);
        self.stats.complete(&op);
        Some((op, latency_ns))
    }
}

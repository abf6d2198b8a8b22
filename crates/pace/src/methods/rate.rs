//! A rate: one credit of bytes per period and core, with the prototype's tuners and per-drive credits.
//!
//! Every period a core gets `credit_bytes`, never more than one credit in all, and sends held ops round robin over
//! its (drive, tenant) queues, op by op, while it has any left (an op may overdraw it). A poll that comes late by whole
//! periods has lost their credits: that is the prototype's behaviour, and why its period had to be set a little below
//! the line rate.

use std::collections::VecDeque;

use super::Core;
use crate::slab::{List, NONE, State};
use crate::{Admission, Admit, Credits, Limits, Op, OpId, Purge, Released, Stats};

/// The rule by which the period of a rate changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RateTuner {
    Fixed,
    /// One step shorter than the measured period per credit, one step at a time, between P and 2P.
    Delivered {
        every_ns: u64,
        step_ns: u64,
    },
    /// P + (bytes in flight beyond a threshold, in units) x factor, at most 4P.
    InFlight {
        every_ns: u64,
        threshold_bytes: u64,
        ns_per_mib: u64,
    },
}

struct CoreClock {
    period_ns: u64,
    credit: i64,
    last_ns: u64,
    /// When the last period was seen to have ended.
    ended_ns: u64,
    held: u64,
    /// Queues that may have something, in the order of their turns.
    ring: VecDeque<u32>,
    sent_bytes: u64,
    sent_bytes_at_tune: u64,
    next_tune_ns: u64,
}

#[derive(Clone, Copy)]
struct Queue {
    ops: List,
    /// An aborted queue stays in the ring until its turn.
    in_ring: bool,
}

pub(crate) struct Rate {
    core: Core,
    base_period_ns: u64,
    credit_bytes: i64,
    tuner: RateTuner,
    /// Ops in flight per drive beyond which the drive is passed over; 0 for no limit.
    drive_credit: u64,
    /// Ops of at most this many bytes are not paced.
    bypass_bytes: u32,
    /// True if ops leave only when a period ends.
    at_period_end: bool,
    clocks: Box<[CoreClock]>,
    /// The queues of held ops, by core, then drive, then tenant.
    queues: Box<[Queue]>,
    drives: usize,
    tenants: usize,
    next_core: usize,
}

impl Rate {
    pub fn new(limits: Limits, credits: &Credits, tuner: RateTuner, budget: Option<u64>) -> Rate {
        let Credits { period_us, credit_bytes, cores, drive_credit, bypass_bytes, at_period_end } = *credits;
        let period_ns = (period_us * 1e3).round() as u64;
        let (drives, tenants) = (limits.drives as usize, limits.tenants as usize);
        let clock = |i: u64| CoreClock {
            period_ns,
            credit: 0,
            // Cores start out of phase, as their reactors do.
            last_ns: i * period_ns / u64::from(cores),
            ended_ns: u64::MAX,
            held: 0,
            ring: VecDeque::with_capacity(drives * tenants),
            sent_bytes: 0,
            sent_bytes_at_tune: 0,
            next_tune_ns: 0,
        };
        Rate {
            core: Core::new(limits, budget),
            base_period_ns: period_ns,
            credit_bytes: credit_bytes as i64,
            tuner,
            drive_credit: u64::from(drive_credit),
            bypass_bytes,
            at_period_end,
            clocks: (0..u64::from(cores)).map(clock).collect(),
            queues: vec![Queue { ops: List::EMPTY, in_ring: false }; drives * tenants * cores as usize].into(),
            drives,
            tenants,
            next_core: 0,
        }
    }

    fn core_of(&self, op: &Op) -> usize {
        op.queue as usize % self.clocks.len()
    }

    fn queue_of(&self, op: &Op) -> usize {
        (self.core_of(op) * self.drives + op.drive as usize) * self.tenants + op.tenant as usize
    }

    /// Gives the credit of the period that has ended, one at most however late this is.
    fn tick(&mut self, core: usize, now_ns: u64) {
        let clock = &mut self.clocks[core];
        let passed = now_ns.saturating_sub(clock.last_ns);
        if passed >= clock.period_ns {
            clock.last_ns = now_ns - passed % clock.period_ns;
            clock.ended_ns = now_ns;
            clock.credit = (clock.credit + self.credit_bytes).min(self.credit_bytes);
        }
        let every_ns = match self.tuner {
            RateTuner::Fixed => return,
            RateTuner::Delivered { every_ns, .. } | RateTuner::InFlight { every_ns, .. } => every_ns,
        };
        if clock.next_tune_ns == 0 {
            clock.next_tune_ns = now_ns + every_ns;
        }
        if now_ns < clock.next_tune_ns {
            return;
        }
        let elapsed_ns = now_ns - (clock.next_tune_ns - every_ns);
        clock.next_tune_ns = now_ns + every_ns;
        clock.period_ns = match self.tuner {
            RateTuner::Fixed => clock.period_ns,
            RateTuner::Delivered { step_ns, .. } => {
                let credits = (clock.sent_bytes - clock.sent_bytes_at_tune) / self.credit_bytes as u64;
                // Nothing sent says nothing about the rate; the prototype divides by zero here.
                let measured_ns = elapsed_ns.checked_div(credits).unwrap_or(clock.period_ns);
                let wanted = measured_ns.saturating_sub(step_ns);
                wanted
                    .clamp(clock.period_ns.saturating_sub(step_ns), clock.period_ns + step_ns)
                    .clamp(self.base_period_ns, 2 * self.base_period_ns)
            }
            RateTuner::InFlight { threshold_bytes, ns_per_mib, .. } => {
                let beyond = self.core.stats.total.in_flight_bytes.saturating_sub(threshold_bytes);
                (self.base_period_ns + ((beyond as u128 * ns_per_mib as u128) >> 20) as u64)
                    .min(4 * self.base_period_ns)
            }
        };
        clock.sent_bytes_at_tune = clock.sent_bytes;
    }

    /// The next op of `core` that its credit, its drives' credits and the budget let through.
    fn take(&mut self, core: usize, now_ns: u64) -> Option<u32> {
        if self.at_period_end && self.clocks[core].ended_ns != now_ns {
            return None;
        }
        if self.clocks[core].credit <= 0 || self.clocks[core].held == 0 {
            return None;
        }
        for _ in 0..self.clocks[core].ring.len() {
            let queue = *self.clocks[core].ring.front()?;
            let index = self.queues[queue as usize].ops.head;
            if index == NONE {
                self.clocks[core].ring.pop_front();
                self.queues[queue as usize].in_ring = false;
                continue;
            }
            let op = self.core.slab[index].op;
            let in_flight = self.core.stats.drives[op.drive as usize].in_flight;
            if self.drive_credit > 0 && in_flight > self.drive_credit {
                self.clocks[core].ring.rotate_left(1);
                continue;
            }
            if !self.core.in_budget(op.bytes) {
                return None;
            }
            self.clocks[core].ring.rotate_left(1);
            self.queues[queue as usize].ops.unlink(&mut self.core.slab, index);
            return Some(index);
        }
        None
    }
}

impl Admission for Rate {
    fn admit(&mut self, now_ns: u64, op: Op) -> Admit {
        if let Some(answer) = self.core.screen(&op) {
            return answer;
        }
        if op.bytes <= self.bypass_bytes && self.core.in_budget(op.bytes) {
            return self.core.go(now_ns, op);
        }
        let (core, queue) = (self.core_of(&op), self.queue_of(&op));
        match self.core.hold(now_ns, op) {
            Ok(index) => {
                self.queues[queue].ops.push(&mut self.core.slab, index);
                if !self.queues[queue].in_ring {
                    self.queues[queue].in_ring = true;
                    self.clocks[core].ring.push_back(queue as u32);
                }
                self.clocks[core].held += 1;
                Admit::Held(self.core.slab.id(index))
            }
            Err(refused) => refused,
        }
    }

    fn complete(&mut self, now_ns: u64, id: OpId) -> bool {
        self.core.finish(now_ns, id).is_some()
    }

    fn poll(&mut self, now_ns: u64) -> Option<Released> {
        for _ in 0..self.clocks.len() {
            let core = self.next_core;
            self.tick(core, now_ns);
            if let Some(index) = self.take(core, now_ns) {
                let bytes = self.core.slab[index].op.bytes;
                let clock = &mut self.clocks[core];
                clock.credit -= i64::from(bytes);
                clock.sent_bytes += u64::from(bytes);
                clock.held -= 1;
                return Some(self.core.release(now_ns, index));
            }
            self.next_core = (core + 1) % self.clocks.len();
        }
        None
    }

    fn wakeup_ns(&self) -> Option<u64> {
        self.clocks.iter().filter(|c| c.held > 0).map(|c| c.last_ns + c.period_ns).min()
    }

    fn abort(&mut self, _now_ns: u64, id: OpId) -> Option<u64> {
        let index = self.core.slab.find(id, State::Held)?;
        let op = self.core.slab[index].op;
        let (core, queue) = (self.core_of(&op), self.queue_of(&op));
        self.queues[queue].ops.unlink(&mut self.core.slab, index);
        self.clocks[core].held -= 1;
        Some(self.core.forget(index))
    }

    fn purge(&mut self, now_ns: u64, which: Purge) -> Option<u64> {
        let index = self.core.slab.find_held(which)?;
        self.abort(now_ns, self.core.slab.id(index))
    }

    fn stats(&self) -> &Stats {
        &self.core.stats
    }

    fn window_bytes(&self) -> u64 {
        self.core.budget
    }

    fn period_ns(&self) -> u64 {
        self.clocks.iter().map(|c| c.period_ns).sum::<u64>() / self.clocks.len() as u64
    }
}

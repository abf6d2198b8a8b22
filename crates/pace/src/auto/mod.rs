//! The self-tuning pacer: the smallest window on the plateau, shared by buffer-time, queued fairly.
//!
//! The scarce resource is buffer-time: bytes x seconds. Three parts, one file each: [`window`] finds how many bytes in
//! flight the machine needs and no more, from the delivered rate alone; [`share`] divides that window between drives by
//! what each occupies, so that a slow one cannot hold it all; [`fair`] orders the ops that wait: drive, then tenant,
//! then queue, by bytes. This file joins them behind [`Admission`].

mod fair;
mod share;
mod tuning;
mod window;

use crate::methods::Core;
use crate::slab::State;
use crate::{Admission, Admit, Limits, Op, OpId, Purge, Released, Stats};
use fair::{FairQueues, SizeClass};
use share::Shares;
pub use tuning::Tuning;
use window::{Seen, Window};

/// The default pacer. See the [module documentation](self) and docs/pacing.md for the law.
pub struct AutoPacer {
    core: Core,
    tuning: Tuning,
    window: Window,
    shares: Shares,
    queues: FairQueues,
    /// Bytes of small ops in flight: what their priority is bounded by.
    small_bytes: u64,
    /// Bytes in flight that are out of the window: only the budget bounds them.
    aside_bytes: u64,
    /// Bytes sent from each class, to alternate once the small class has used its priority.
    class_sent: [u64; 2],
    part: Part,
    /// Parts that have ended.
    parts: u64,
    /// When nothing was in flight any more, as far as that time is not taken off the part.
    idle_since_ns: u64,
}

/// Parts after which the drives' latencies count as measured.
const LATENCY_PARTS: u64 = 10;

/// The counts since the current part of a measurement began.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Later than now while the previous window's ops still drain.
    begins_ns: u64,
    ends_ns: u64,
    /// Until when few completions may stretch it.
    at_most_ns: u64,
    delivered_bytes: u64,
    delivered_ops: u64,
    admitted_ops: u64,
    released_ops: u64,
    latency_sum_ns: u64,
}

impl Part {
    /// The part's clock stands while nothing is in flight: a pause of the load is not a low rate.
    fn stand(&mut self, ns: u64) {
        if self.ends_ns > 0 {
            self.begins_ns += ns;
            self.ends_ns += ns;
            self.at_most_ns += ns;
        }
    }
}

impl AutoPacer {
    /// A pacer that starts with `tuning.start_bytes` of window, or the budget if that is less.
    pub fn new(limits: Limits, tuning: Tuning, budget_bytes: Option<u64>) -> AutoPacer {
        AutoPacer {
            core: Core::new(limits, budget_bytes),
            window: Window::new(&tuning, budget_bytes),
            shares: Shares::new(limits.drives),
            queues: FairQueues::new(limits.drives, limits.ops),
            small_bytes: 0,
            aside_bytes: 0,
            class_sent: [0; 2],
            part: Part::default(),
            parts: 0,
            idle_since_ns: 0,
            tuning,
        }
    }

    fn class_of(&self, op: &Op) -> SizeClass {
        if op.bytes <= self.tuning.small_op_bytes { SizeClass::Small } else { SizeClass::Large }
    }

    /// True if window and budget have room. An op larger than the window goes alone: the budget was checked on arrival.
    #[inline]
    fn fits(&self, bytes: u32) -> bool {
        let moving = self.core.stats.total.in_flight_bytes - self.aside_bytes;
        (moving == 0 || moving + u64::from(bytes) <= self.window.bytes()) && self.core.in_budget(bytes)
    }

    #[inline]
    fn note_admitted(&mut self, now_ns: u64, op: &Op) {
        self.shares.admit(now_ns, op, self.class_of(op));
        if op.bytes <= self.tuning.small_op_bytes {
            self.small_bytes += u64::from(op.bytes);
        }
        self.part.admitted_ops += 1;
    }

    /// The op no longer takes part in window and share.
    #[inline]
    fn leave(&mut self, now_ns: u64, op: &Op) {
        if op.bytes <= self.tuning.small_op_bytes {
            self.small_bytes -= u64::from(op.bytes);
        }
        self.shares.leave(now_ns, op, self.class_of(op));
        self.queues.unblock(op.drive);
    }

    /// The bound on small ops with priority: a part of the window, but always a few ops.
    fn small_class_bytes(&self) -> u64 {
        (self.window.bytes() as f64 * self.tuning.small_class_fraction) as u64
    }

    /// The class that sends next, and true if it lends: small ops first until they fill their part of the window, then
    /// byte for byte; drives that are over their share only when no other waits.
    fn next_class(&self) -> Option<(SizeClass, bool)> {
        let choose = |small: bool, large: bool| match (small, large) {
            (false, false) => None,
            (true, false) => Some(SizeClass::Small),
            (false, true) => Some(SizeClass::Large),
            (true, true) => {
                let priority = self.small_bytes < self.small_class_bytes();
                let behind = self.class_sent[SizeClass::Small as usize] <= self.class_sent[SizeClass::Large as usize];
                Some(if priority || behind { SizeClass::Small } else { SizeClass::Large })
            }
        };
        let queues = &self.queues;
        choose(queues.has_ready(SizeClass::Small), queues.has_ready(SizeClass::Large))
            .map(|class| (class, false))
            .or_else(|| {
                choose(queues.has_debtor(SizeClass::Small), queues.has_debtor(SizeClass::Large))
                    .map(|class| (class, true))
            })
    }

    fn release(&mut self, now_ns: u64, index: u32, class: SizeClass) -> Released {
        let op = self.core.slab[index].op;
        self.queues.charge(&self.core.slab, index);
        self.queues.remove(&mut self.core.slab, index);
        let released = self.core.release(now_ns, index);
        self.shares.unhold(&op);
        self.note_admitted(now_ns, &op);
        self.part.released_ops += 1;
        let (mine, other) = (class as usize, 1 - class as usize);
        self.class_sent[mine] += u64::from(op.bytes) + fair::OP_COST_BYTES;
        // A class that had nothing to send must not save up a claim.
        if !self.queues.has_ready(if other == 0 { SizeClass::Small } else { SizeClass::Large }) {
            self.class_sent[other] = self.class_sent[mine];
        }
        released
    }

    /// The end of an op that was aside: it left window, share and measurement long ago.
    #[cold]
    fn complete_aside(&mut self, now_ns: u64, id: OpId) -> bool {
        let Some(op) = self.core.finish_aside(id) else { return false };
        self.aside_bytes -= u64::from(op.bytes);
        self.note_idle(now_ns);
        true
    }

    #[inline]
    fn note_idle(&mut self, now_ns: u64) {
        if self.core.stats.total.in_flight == 0 {
            self.idle_since_ns = now_ns;
        }
    }

    /// The periodic work, both parts off the per-op path.
    #[inline]
    fn tick(&mut self, now_ns: u64) {
        if self.core.stats.total.in_flight == 0 {
            self.part.stand(now_ns.saturating_sub(self.idle_since_ns));
            self.idle_since_ns = now_ns;
        }
        if self.shares.due(now_ns) {
            self.reshare(now_ns);
        }
        if now_ns >= self.part.ends_ns {
            self.end_part(now_ns);
        }
    }

    #[cold]
    fn reshare(&mut self, now_ns: u64) {
        self.shares.recompute(now_ns, self.window.bytes(), &self.tuning);
        self.queues.unblock_all();
    }

    #[cold]
    fn end_part(&mut self, now_ns: u64) {
        let part = self.part;
        let part_ns = self.tuning.part_ms * 1_000_000;
        if part.ends_ns == 0 {
            self.part = Part { begins_ns: now_ns, ends_ns: now_ns + part_ns, ..Part::default() };
            self.part.at_most_ns = now_ns + 20 * part_ns;
            return;
        }
        if part.delivered_ops < self.tuning.part_min_ops && now_ns < part.at_most_ns {
            // Too few completions to call it a rate: measure on.
            self.part.ends_ns = now_ns + part_ns;
            return;
        }
        let elapsed_s = now_ns.saturating_sub(part.begins_ns).max(1) as f64 / 1e9;
        let rate_bytes_per_s = part.delivered_bytes as f64 / elapsed_s;
        let limited = part.released_ops > 0
            && part.released_ops as f64 >= self.tuning.limited_fraction * part.admitted_ops as f64;
        let largest_op_bytes = self.shares.largest_op_bytes();
        let moved = self.window.add_part(&self.tuning, Seen { rate_bytes_per_s, limited, largest_op_bytes });
        // The ops in flight were admitted under the previous window: let a few residences pass before measuring.
        let mut begins_ns = now_ns;
        if moved {
            let residence_ns = part.latency_sum_ns / part.delivered_ops.max(1);
            begins_ns += (self.tuning.settle_residences * residence_ns)
                .clamp(self.tuning.settle_min_ms * 1_000_000, 20 * part_ns);
        }
        self.parts += 1;
        let latencies_measured = self.parts.is_multiple_of(LATENCY_PARTS);
        if latencies_measured {
            self.shares.end_measurement(&self.tuning);
        }
        if moved || latencies_measured {
            self.reshare(now_ns);
        }
        self.part =
            Part { begins_ns, ends_ns: begins_ns + part_ns, at_most_ns: begins_ns + 20 * part_ns, ..Part::default() };
    }
}

impl Admission for AutoPacer {
    #[inline]
    fn admit(&mut self, now_ns: u64, op: Op) -> Admit {
        if let Some(answer) = self.core.screen(&op) {
            return answer;
        }
        self.tick(now_ns);
        let class = self.class_of(&op);
        if !self.queues.any_ready()
            && !self.queues.is_paused(op.queue)
            && !self.queues.drive_waits(op.drive, class)
            && self.fits(op.bytes)
            && self.shares.eligible(now_ns, &op, class)
        {
            let answer = self.core.go(now_ns, op);
            if matches!(answer, Admit::Go(_)) {
                self.note_admitted(now_ns, &op);
            }
            return answer;
        }
        match self.core.hold(now_ns, op) {
            Ok(index) => {
                self.shares.hold(&op);
                self.queues.push(&mut self.core.slab, index, class);
                Admit::Held(self.core.slab.id(index))
            }
            Err(refused) => refused,
        }
    }

    #[inline]
    fn complete(&mut self, now_ns: u64, id: OpId) -> bool {
        let Some((op, latency_ns)) = self.core.finish(now_ns, id) else { return self.complete_aside(now_ns, id) };
        if now_ns >= self.part.begins_ns {
            self.part.delivered_bytes += u64::from(op.bytes);
            self.part.delivered_ops += 1;
            self.part.latency_sum_ns += latency_ns;
        }
        self.leave(now_ns, &op);
        self.shares.learn(&op, latency_ns);
        self.note_idle(now_ns);
        self.tick(now_ns);
        true
    }

    fn poll(&mut self, now_ns: u64) -> Option<Released> {
        self.tick(now_ns);
        while let Some((class, lending)) = self.next_class() {
            let Some((index, drive)) = self.queues.next(&self.core.slab, class, lending) else { continue };
            let op = self.core.slab[index].op;
            if lending {
                // Nobody within its share waits: lend to whoever is below its cap, so that the window is not left idle.
                if !self.shares.below_cap(&op, class) {
                    self.queues.block(drive, class);
                    continue;
                }
            } else if !self.shares.eligible(now_ns, &op, class) {
                if self.shares.below_cap(&op, class) {
                    self.queues.defer(drive, class);
                } else {
                    self.queues.block(drive, class);
                }
                continue;
            }
            if !self.fits(op.bytes) {
                return None;
            }
            return Some(self.release(now_ns, index, class));
        }
        None
    }

    fn wakeup_ns(&self) -> Option<u64> {
        // Shares move with time even when nothing completes; whoever waits must be looked at again.
        (self.core.stats.total.held_now > 0).then(|| self.shares.next_due_ns())
    }

    fn abort(&mut self, _now_ns: u64, id: OpId) -> Option<u64> {
        let index = self.core.slab.find(id, State::Held)?;
        let op = self.core.slab[index].op;
        self.queues.remove(&mut self.core.slab, index);
        self.shares.unhold(&op);
        Some(self.core.forget(index))
    }

    fn purge(&mut self, now_ns: u64, which: Purge) -> Option<u64> {
        let index = self.core.slab.find_held(which)?;
        self.abort(now_ns, self.core.slab.id(index))
    }

    fn set_aside(&mut self, now_ns: u64, id: OpId) {
        if let Some(op) = self.core.set_aside(id) {
            self.aside_bytes += u64::from(op.bytes);
            self.leave(now_ns, &op);
        }
    }

    fn pause(&mut self, queue: u32) {
        self.queues.pause(queue);
    }

    fn resume(&mut self, queue: u32) {
        self.queues.resume(queue);
    }

    fn stats(&self) -> &Stats {
        &self.core.stats
    }

    fn last_trial(&self) -> Option<crate::Trial> {
        self.window.last_trial()
    }

    fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }
}

//! The times at which ops are due: open-loop arrivals, and the pauses of a thinking user. The code reads no clock: time
//! is passed in.

use job::Job;
use job::workload::arrivals::{Arrivals, Think};
use job::workload::{Op, OpKind};
use measure::{Direction, PerDirection};

/// The timing of one clone's ops.
#[derive(Debug)]
pub struct Timing {
    arrivals: Option<Arrivals>,
    think: Option<Think>,
    /// `cpuload`: the percentage of the time that ops take.
    busy_percent: Option<u32>,
    /// `rate_ignore_thinktime`: the schedule waits while the user thinks; otherwise it is caught up with.
    postpones: bool,
    started_at: u64,
    issued: u64,
    completed: u64,
    spin_until: u64,
    not_before: u64,
}

impl Timing {
    /// The timing of clone `clone`.
    pub fn new(job: &Job, clone: u32) -> Timing {
        Timing {
            arrivals: Arrivals::new(job, clone),
            think: Think::new(&job.rate),
            busy_percent: job.rate.busy_percent,
            postpones: job.rate.ignore_think_time,
            started_at: 0,
            issued: 0,
            completed: 0,
            spin_until: 0,
            not_before: 0,
        }
    }

    /// Begins at `now`: the schedule's time 0.
    pub fn start(&mut self, now: u64) {
        self.started_at = now;
    }

    /// The time at which the schedule begins.
    pub fn started_at(&self) -> u64 {
        self.started_at
    }

    /// The direction of an op that is drawn now, where rates of reads and writes decide it.
    #[inline]
    pub fn wanted(&self, now: u64) -> Option<Direction> {
        self.arrivals.as_ref().and_then(|arrivals| arrivals.first(now.saturating_sub(self.started_at)))
    }

    /// The time at which a freshly drawn op is due; 0: at once. Call this function once an op: it moves the schedule
    /// on.
    #[inline(always)]
    pub fn due(&mut self, op: &Op) -> u64 {
        match self.arrivals {
            None => self.not_before,
            Some(_) => self.arrival(op.kind, op.len).max(self.not_before),
        }
    }

    fn arrival(&mut self, kind: OpKind, bytes: u64) -> u64 {
        match (&mut self.arrivals, kind) {
            (Some(arrivals), OpKind::Io(direction)) => self.started_at + arrivals.next(direction, bytes),
            _ => 0,
        }
    }

    /// The ops of an open loop that are due by `now` and were not drawn yet, by the mean rate; 0 in a closed loop.
    pub fn overdue(&self, now: u64) -> f64 {
        self.arrivals.as_ref().map_or(0.0, |arrivals| arrivals.overdue(now.saturating_sub(self.started_at)))
    }

    /// Takes note that the job rested for `rest_ns` nanoseconds: its schedule continues behind the rest.
    pub fn rested(&mut self, rest_ns: u64) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.rested(rest_ns);
        }
    }

    /// Until when to wait with the processor busy (`thinktime_spin`).
    pub fn spin_until(&self) -> u64 {
        self.spin_until
    }

    /// Takes note of an issued op.
    #[inline]
    pub fn issued(&mut self, now: u64) {
        self.issued += 1;
        if self.think.is_some() {
            self.consider_pause(now);
        }
    }

    /// Takes note of a completed op, which took `latency_ns`.
    #[inline]
    pub fn completed(&mut self, now: u64, latency_ns: u64) {
        self.completed += 1;
        if let Some(percent) = self.busy_percent {
            self.not_before = now + latency_ns.saturating_mul(u64::from(100 - percent)) / u64::from(percent);
        }
        if self.think.is_some() {
            self.consider_pause(now);
        }
    }

    fn consider_pause(&mut self, now: u64) {
        let Some(think) = &mut self.think else { return };
        if let Some(pause) = think.pause(self.issued, self.completed, now.saturating_sub(self.started_at)) {
            self.spin_until = now.saturating_add(pause.spin_ns);
            self.not_before = self.spin_until.saturating_add(pause.sleep_ns);
            if let Some(arrivals) = self.arrivals.as_mut().filter(|_| self.postpones) {
                arrivals.paused(pause.spin_ns.saturating_add(pause.sleep_ns));
            }
        }
    }
}

/// Time that a job has to get going before its minima are looked at, as in fio.
const SETTLING_NS: u64 = 2_000_000_000;

/// `rate_min`, `rate_iops_min`: the least that must be reached in every `rate_cycle`, in each direction that the job
/// has.
///
/// A cycle ends when an op ends, as in fio: a look between two ops would find that nothing happened, at a rate of less
/// than one op a cycle. A direction whose ops do not end at all is judged once one more op should have ended.
#[derive(Debug)]
pub struct Minimum {
    bytes: PerDirection<Option<u64>>,
    iops: PerDirection<Option<u64>>,
    cycle_ns: u64,
    /// The time that the largest op takes at the minimum.
    op_ns: PerDirection<u64>,
    /// The time at which the job began.
    began_ns: Option<u64>,
    /// The present cycle of each direction.
    cycles: PerDirection<Option<Cycle>>,
}

/// A cycle in progress.
#[derive(Clone, Copy, Debug)]
struct Cycle {
    start_ns: u64,
    /// Ops and bytes that were counted at the start.
    ops: u64,
    bytes: u64,
    /// The time of the last look, and the ops that were counted then.
    seen_ns: u64,
    seen: u64,
}

impl Minimum {
    /// The minimum that `job` demands; None if it demands none.
    pub fn new(job: &Job) -> Option<Minimum> {
        let rate = &job.rate;
        // One value stands for all directions: those that the job does not have reach nothing.
        let of =
            |minima: &PerDirection<Option<u64>>| PerDirection::from_fn(|d| minima[d].filter(|_| job.rw.directions[d]));
        let (bytes, iops) = (of(&rate.min_bytes), of(&rate.min_iops));
        let op_ns = PerDirection::from_fn(|d| {
            let of_bytes =
                bytes[d].map_or(0, |least| job.blocks.largest(d).saturating_mul(1_000_000_000) / least.max(1));
            of_bytes.max(iops[d].map_or(0, |least| 1_000_000_000 / least.max(1)))
        });
        let wanted = Direction::ALL.iter().any(|&d| bytes[d].is_some() || iops[d].is_some());
        wanted.then(|| Minimum {
            bytes,
            iops,
            cycle_ns: rate.cycle_ns.max(1),
            op_ns,
            began_ns: None,
            cycles: PerDirection::default(),
        })
    }

    /// The job does something else than its load: its data are read back. The next look begins a new cycle.
    pub fn interrupt(&mut self) {
        self.cycles = PerDirection::default();
    }

    /// The shortfall in the cycle that has ended by `now`, as a phrase; None if nothing fell short, or no cycle has
    /// ended.
    pub fn missed(&mut self, now: u64, ops: &PerDirection<u64>, bytes: &PerDirection<u64>) -> Option<String> {
        if now.saturating_sub(*self.began_ns.get_or_insert(now)) < SETTLING_NS {
            return None;
        }
        Direction::ALL.into_iter().find_map(|d| {
            if self.iops[d].is_none() && self.bytes[d].is_none() {
                return None;
            }
            let fresh = Cycle { start_ns: now, ops: ops[d], bytes: bytes[d], seen_ns: now, seen: ops[d] };
            let cycle = self.cycles[d].get_or_insert(fresh);
            let (seen_ns, seen) = (cycle.seen_ns, cycle.seen);
            (cycle.seen_ns, cycle.seen) = (now, ops[d]);
            let until = match seen != ops[d] {
                // The op ended after the last look: the time until then is counted, in favour of the job.
                true => now.min(seen_ns.max(cycle.start_ns.saturating_add(self.cycle_ns))),
                false => now.saturating_sub(self.op_ns[d]),
            };
            let elapsed = until.saturating_sub(cycle.start_ns);
            if elapsed < self.cycle_ns {
                return None;
            }
            let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 * 1e9 / elapsed as f64) as u64;
            let (iops, bandwidth) = (rate(ops[d], cycle.ops), rate(bytes[d], cycle.bytes));
            *cycle = fresh;
            let name = d.name();
            match (self.iops[d], self.bytes[d]) {
                (Some(min), _) if iops < min => Some(format!("{name}: {iops} iops, rate_iops_min asks for {min}")),
                (_, Some(min)) if bandwidth < min => {
                    Some(format!("{name}: {bandwidth} bytes/s, rate_min asks for {min}"))
                }
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_is_judged_once_a_cycle_after_the_job_has_settled() {
        const MS: u64 = 1_000_000;
        let mut job = Job::default();
        assert!(Minimum::new(&job).is_none());
        // One value, as rate_iops_min=100 is read: for each direction.
        job.rate.min_iops = PerDirection { read: Some(100), write: Some(100), trim: Some(100) };
        job.rate.cycle_ns = 1000 * MS;
        let mut minimum = Minimum::new(&job).unwrap();
        let bytes = PerDirection::default();
        let ops = |read| PerDirection { read, ..PerDirection::default() };
        assert_eq!(minimum.missed(5, &ops(0), &bytes), None);
        assert_eq!(minimum.missed(1500 * MS, &ops(0), &bytes), None, "it settles");
        assert_eq!(minimum.missed(2000 * MS + 5, &ops(0), &bytes), None, "the first cycle begins");
        assert_eq!(minimum.missed(2500 * MS, &ops(1), &bytes), None, "the cycle is not over");
        assert_eq!(minimum.missed(3000 * MS + 5, &ops(100), &bytes), None);
        minimum.interrupt();
        assert_eq!(minimum.missed(4500 * MS, &ops(100), &bytes), None, "a new cycle begins");
        let missed = minimum.missed(5500 * MS, &ops(199), &bytes).unwrap();
        assert!(missed.contains("99 iops") && missed.contains("100"), "{missed}");

        job.rw.directions = PerDirection::default();
        assert!(Minimum::new(&job).is_none(), "a job has to reach nothing in directions that it does not have");
    }

    /// A rate of 1250 bytes/s is a block of 4 KiB every 3.3 s: no cycle of a second has the minimum in it.
    #[test]
    fn a_minimum_of_less_than_an_op_a_cycle_is_judged_from_op_to_op() {
        const MS: u64 = 1_000_000;
        let mut job = Job::default();
        job.blocks.range.read = (4096, 4096);
        job.rate.min_bytes.read = Some(1024);
        job.rate.cycle_ns = 1000 * MS;
        // The time between two ops, and the first time at which they are too slow.
        for (apart_ms, missed_ms) in [(3276, None), (3900, None), (4300, Some(10_000)), (u64::MAX, Some(8_000))] {
            let mut minimum = Minimum::new(&job).unwrap();
            let missed = (0..60_000).step_by(50).find(|ms| {
                let ops = PerDirection { read: ms / apart_ms, ..PerDirection::default() };
                let bytes = PerDirection { read: ops.read * 4096, ..PerDirection::default() };
                minimum.missed(ms * MS, &ops, &bytes).is_some()
            });
            assert_eq!(missed.is_some(), missed_ms.is_some(), "{apart_ms} ms apart: {missed:?}");
            assert!(missed <= missed_ms.map(|ms| ms + 5_000), "{apart_ms} ms apart: {missed:?}");
        }
    }

    #[test]
    fn thinking_holds_the_next_op_back() {
        let mut job = Job::default();
        job.rate.think_ns = 1000;
        job.rate.think_blocks = 2;
        let mut timing = Timing::new(&job, 0);
        timing.start(10);
        let op = Op { kind: OpKind::Sync, file: 0, offset: 0, len: 0 };
        assert_eq!(timing.due(&op), 0);
        timing.completed(20, 0);
        assert_eq!(timing.due(&op), 0);
        timing.completed(30, 0);
        assert_eq!(timing.due(&op), 1030);
    }
}

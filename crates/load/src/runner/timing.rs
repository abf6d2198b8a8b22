//! When the next op is due: open-loop arrivals, and the pauses of a thinking user. Pure: time is passed in.

use job::Job;
use job::workload::Op;
use measure::{Direction, PerDirection};

/// The timing of one clone's ops.
#[derive(Debug)]
pub struct Timing {
    think: Option<Think>,
    started_at: u64,
}

/// `thinktime`: a pause after so many ops.
#[derive(Debug)]
struct Think {
    pause_ns: u64,
    blocks: u32,
    on_issue: bool,
    io_time_ns: u64,
    count: u32,
    busy_since: u64,
    not_before: u64,
}

impl Timing {
    /// The timing that `job` asks for; `seed` is the clone's own.
    pub fn new(job: &Job, _seed: u64) -> Timing {
        let rate = &job.rate;
        let think = (rate.think_ns > 0).then(|| Think {
            pause_ns: rate.think_ns,
            blocks: rate.think_blocks.max(1),
            on_issue: rate.think_on_issue,
            io_time_ns: rate.think_io_time_ns,
            count: 0,
            busy_since: 0,
            not_before: 0,
        });
        Timing { think, started_at: 0 }
    }

    /// Begins at `now`: the schedule's time 0.
    pub fn start(&mut self, now: u64) {
        self.started_at = now;
        if let Some(think) = &mut self.think {
            think.busy_since = now;
        }
    }

    /// The schedule's time 0.
    pub fn started_at(&self) -> u64 {
        self.started_at
    }

    /// When a freshly drawn op is due; 0: at once. Call it once an op: it moves the schedule on.
    #[inline]
    pub fn due(&mut self, _op: &Op, now: u64) -> u64 {
        let arrival = 0;
        match &self.think {
            Some(think) if think.not_before > now => arrival.max(think.not_before),
            _ => arrival,
        }
    }

    /// Takes note of an issued op.
    #[inline]
    pub fn issued(&mut self, now: u64) {
        if let Some(think) = &mut self.think
            && think.on_issue
        {
            think.count_one(now);
        }
    }

    /// Takes note of a completed op.
    #[inline]
    pub fn completed(&mut self, now: u64) {
        if let Some(think) = &mut self.think
            && !think.on_issue
        {
            think.count_one(now);
        }
    }
}

impl Think {
    fn count_one(&mut self, now: u64) {
        self.count += 1;
        let busy_too_long = self.io_time_ns > 0 && now.saturating_sub(self.busy_since) >= self.io_time_ns;
        if self.count >= self.blocks || busy_too_long {
            self.count = 0;
            self.not_before = now + self.pause_ns;
            self.busy_since = self.not_before;
        }
    }
}

/// `rate_min`, `rate_iops_min`: the least that must be reached in every `rate_cycle`.
#[derive(Debug)]
pub struct Minimum {
    bytes: PerDirection<Option<u64>>,
    iops: PerDirection<Option<u64>>,
    cycle_ns: u64,
    cycle_start_ns: u64,
    at_start: (PerDirection<u64>, PerDirection<u64>),
}

impl Minimum {
    /// The minimum that `job` demands; None if it demands none. Its first cycle begins with the first look.
    pub fn new(job: &Job) -> Option<Minimum> {
        let rate = &job.rate;
        let wanted = Direction::ALL.iter().any(|&d| rate.min_bytes[d].is_some() || rate.min_iops[d].is_some());
        wanted.then(|| Minimum {
            bytes: rate.min_bytes,
            iops: rate.min_iops,
            cycle_ns: rate.cycle_ns.max(1),
            cycle_start_ns: 0,
            at_start: Default::default(),
        })
    }

    /// What fell short in the cycle that has ended by `now`, as a phrase; None if nothing did, or none has ended.
    pub fn missed(&mut self, now: u64, ops: &PerDirection<u64>, bytes: &PerDirection<u64>) -> Option<String> {
        if self.cycle_start_ns == 0 {
            (self.cycle_start_ns, self.at_start) = (now, (*ops, *bytes));
        }
        let elapsed = now.saturating_sub(self.cycle_start_ns);
        if elapsed < self.cycle_ns {
            return None;
        }
        let (ops_before, bytes_before) = std::mem::replace(&mut self.at_start, (*ops, *bytes));
        self.cycle_start_ns = now;
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 * 1e9 / elapsed as f64) as u64;
        Direction::ALL.into_iter().find_map(|d| {
            let (iops, bandwidth) = (rate(ops[d], ops_before[d]), rate(bytes[d], bytes_before[d]));
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
    fn a_minimum_is_judged_once_a_cycle() {
        let mut job = Job::default();
        assert!(Minimum::new(&job).is_none());
        job.rate.min_iops.read = Some(100);
        job.rate.cycle_ns = 1_000_000_000;
        let mut minimum = Minimum::new(&job).unwrap();
        let bytes = PerDirection::default();
        let ops = |read| PerDirection { read, ..PerDirection::default() };
        assert_eq!(minimum.missed(5, &ops(0), &bytes), None);
        assert_eq!(minimum.missed(500_000_000, &ops(1), &bytes), None, "the cycle is not over");
        assert_eq!(minimum.missed(1_000_000_005, &ops(100), &bytes), None);
        let missed = minimum.missed(2_000_000_005, &ops(199), &bytes).unwrap();
        assert!(missed.contains("99 iops") && missed.contains("100"), "{missed}");
    }

    #[test]
    fn thinking_holds_the_next_op_back() {
        let mut job = Job::default();
        job.rate.think_ns = 1000;
        job.rate.think_blocks = 2;
        let mut timing = Timing::new(&job, 1);
        timing.start(10);
        let op = Op { kind: job::workload::OpKind::Sync, file: 0, offset: 0, len: 0 };
        assert_eq!(timing.due(&op, 10), 0);
        timing.completed(20);
        assert_eq!(timing.due(&op, 20), 0);
        timing.completed(30);
        assert_eq!(timing.due(&op, 30), 1030);
        assert_eq!(timing.due(&op, 1030), 0);
    }
}

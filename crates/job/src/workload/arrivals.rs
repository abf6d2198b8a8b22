//! The times at which the ops of an open loop are meant to start, and at which a job pauses to think. The code reads no
//! clock: time is passed in.
//!
//! An open loop does not wait for completions: op n of a direction is due at a time that only the rate decides. The
//! latency that a user of the storage would see counts from there, whether or not the generator kept up.

use measure::{Direction, PerDirection};

use super::random::{Random, mix};
use crate::job::{Job, Rate};

const SECOND: u64 = 1_000_000_000;

/// The intended start times of one clone's ops.
#[derive(Clone, Debug)]
pub struct Arrivals {
    schedules: PerDirection<Option<Schedule>>,
    /// The directions that the job has: one value of `rate` stands for all, and the others never draw an op.
    used: PerDirection<bool>,
    /// True if the mix has reads and writes.
    mixes: bool,
    poisson: bool,
    random: Random,
}

/// The schedule of one direction.
#[derive(Clone, Debug)]
struct Schedule {
    /// Units a second: bytes, or ops.
    rate: u64,
    by_op: bool,
    /// The units of the smallest op: 1, or its bytes.
    block: u64,
    /// When the next op is due: whole nanoseconds, and that many parts of `rate` of another.
    due_ns: u64,
    remainder: u64,
    /// The last gap: `units`, and its nanoseconds and remainder. Saves a division where blocks are of one size.
    gap: (u64, u64, u64),
    /// Poisson: the fraction of a nanosecond that rounding left.
    fraction: f64,
}

impl Arrivals {
    /// The schedule of clone `clone`; None if the job has no rate: a closed loop.
    ///
    /// `rate` counts bytes and `rate_iops` ops, per clone and direction, as in fio; `rate_iops` goes before `rate`.
    pub fn new(job: &Job, clone: u32) -> Option<Arrivals> {
        let rate = &job.rate;
        let schedules = PerDirection::from_fn(|d| match (rate.iops[d], rate.bytes[d]) {
            (Some(ops), _) if ops > 0 => Some(Schedule::new(ops, true, 1)),
            (_, Some(bytes)) if bytes > 0 => Some(Schedule::new(bytes, false, smallest(job, d))),
            _ => None,
        });
        let any = schedules.iter().any(|(_, schedule)| schedule.is_some());
        let seed = job.clone_seed(clone);
        let used = job.rw.directions;
        let mixes = used.read && used.write && (1..100).contains(&job.pattern.mix_read);
        let mut arrivals =
            Arrivals { schedules, used, mixes, poisson: rate.poisson, random: Random::new(mix(seed ^ mix(7))) };
        if rate.poisson {
            // Unlike a clock, a Poisson process does not begin with an arrival.
            for direction in Direction::ALL {
                arrivals.skip_first(direction, smallest(job, direction));
            }
        }
        any.then_some(arrivals)
    }

    fn skip_first(&mut self, direction: Direction, bytes: u64) {
        if let Some(schedule) = &mut self.schedules[direction] {
            schedule.advance(if schedule.by_op { 1 } else { bytes }, true, &mut self.random);
        }
    }

    /// The time at which the next op of that direction, of `bytes` bytes, is meant to start: nanoseconds since the
    /// start of the load, never before the op that preceded it. A direction without a rate is always due: 0.
    #[inline]
    pub fn next(&mut self, direction: Direction, bytes: u64) -> u64 {
        let Some(schedule) = &mut self.schedules[direction] else { return 0 };
        let due = schedule.due_ns;
        schedule.advance(if schedule.by_op { 1 } else { bytes }, self.poisson, &mut self.random);
        due
    }

    /// The time at which the next op of that direction will be due, without taking the op.
    #[inline]
    pub fn due(&self, direction: Direction) -> u64 {
        self.schedules[direction].as_ref().map_or(0, |schedule| schedule.due_ns)
    }

    /// The ops that are due by `now`, nanoseconds since the start of the load, and were not taken yet: counted by the
    /// mean rate, and rates in bytes by the smallest block.
    pub fn overdue(&self, now: u64) -> f64 {
        let of = |schedule: &Schedule| match now.checked_sub(schedule.due_ns) {
            Some(late) => 1.0 + late as f64 * schedule.rate as f64 / (SECOND as f64 * schedule.block as f64),
            None => 0.0,
        };
        let used = self.schedules.iter().filter(|(direction, _)| self.used[*direction]);
        used.filter_map(|(_, schedule)| schedule.as_ref()).map(of).sum()
    }

    /// The direction of the next op of a mix, as in fio: pass it to [`Workload::next_of`](super::Workload::next_of).
    /// None if `rwmixread` decides, as where the mix has one direction only.
    ///
    /// Where each direction has a rate, the one that is due first: the rates decide the mix. Where one has a rate, it
    /// is the other's turn until an op of the first is due `now`, nanoseconds since the start of the load: that rate
    /// holds back nothing else.
    #[inline]
    pub fn first(&self, now: u64) -> Option<Direction> {
        match (&self.schedules.read, &self.schedules.write) {
            _ if !self.mixes => None,
            (Some(read), Some(write)) if write.due_ns < read.due_ns => Some(Direction::Write),
            (Some(_), Some(_)) => Some(Direction::Read),
            (Some(read), None) if read.due_ns > now => Some(Direction::Write),
            (None, Some(write)) if write.due_ns > now => Some(Direction::Read),
            _ => None,
        }
    }

    /// Takes note of a pause that is not caught up (`rate_ignore_thinktime`). As in fio, the op behind a pause of at
    /// least an interval goes at once: its interval is part of the pause.
    pub fn paused(&mut self, pause_ns: u64) {
        for (_, schedule) in self.schedules.iter_mut() {
            if let Some(schedule) = schedule {
                let units = if schedule.by_op { 1 } else { schedule.block };
                let interval_ns = u64::try_from(u128::from(units) * u128::from(SECOND) / u128::from(schedule.rate));
                let rest_ns =
                    interval_ns.map_or(pause_ns, |interval| pause_ns.checked_sub(interval).unwrap_or(pause_ns));
                schedule.due_ns = schedule.due_ns.saturating_add(rest_ns);
            }
        }
    }

    /// Takes note of a rest, in nanoseconds: all arrivals that are left come later by it.
    pub fn rested(&mut self, rest_ns: u64) {
        for (_, schedule) in self.schedules.iter_mut() {
            if let Some(schedule) = schedule {
                schedule.due_ns = schedule.due_ns.saturating_add(rest_ns);
            }
        }
    }
}

/// The block that fio takes as the size of an op where only the rate in bytes is known beforehand.
fn smallest(job: &Job, direction: Direction) -> u64 {
    job.blocks.range[direction].0.max(1)
}

impl Schedule {
    fn new(rate: u64, by_op: bool, block: u64) -> Schedule {
        Schedule { rate, by_op, block, due_ns: 0, remainder: 0, gap: (0, 0, 0), fraction: 0.0 }
    }

    /// The next due time: `units` later at this rate; exactly, so that nothing drifts however long the run.
    #[inline]
    fn advance(&mut self, units: u64, poisson: bool, random: &mut Random) {
        if poisson {
            let mean = units as f64 * SECOND as f64 / self.rate as f64;
            let gap = -(1.0 - random.unit()).ln() * mean + self.fraction;
            self.fraction = gap.fract();
            self.due_ns = self.due_ns.saturating_add(gap as u64);
            return;
        }
        if self.gap.0 != units {
            let product = u128::from(units) * u128::from(SECOND);
            let rate = u128::from(self.rate);
            self.gap = (units, u64::try_from(product / rate).unwrap_or(u64::MAX), (product % rate) as u64);
        }
        self.due_ns = self.due_ns.saturating_add(self.gap.1);
        self.remainder += self.gap.2;
        if self.remainder >= self.rate {
            self.remainder -= self.rate;
            self.due_ns = self.due_ns.saturating_add(1);
        }
    }
}

/// `thinktime`: pauses after a number of blocks, or after a time with I/O.
#[derive(Clone, Debug)]
pub struct Think {
    sleep_ns: u64,
    spin_ns: u64,
    blocks: u64,
    on_issue: bool,
    io_time_ns: u64,
    last_blocks: u64,
    last_ns: u64,
}

/// A pause that is due: spin first, then sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Nanoseconds to spend with the processor busy.
    pub spin_ns: u64,
    /// Nanoseconds for which the clone sleeps.
    pub sleep_ns: u64,
}

impl Think {
    /// The thinking of a job; None if it never pauses.
    pub fn new(rate: &Rate) -> Option<Think> {
        (rate.think_ns > 0).then(|| Think {
            spin_ns: rate.think_spin_ns.min(rate.think_ns),
            sleep_ns: rate.think_ns.saturating_sub(rate.think_spin_ns),
            // With an I/O time, fio ignores the block count unless it was set: its default of one would always win.
            blocks: if rate.think_io_time_ns > 0 && rate.think_blocks <= 1 {
                u64::MAX
            } else {
                u64::from(rate.think_blocks.max(1))
            },
            on_issue: rate.think_on_issue,
            io_time_ns: rate.think_io_time_ns,
            last_blocks: 0,
            last_ns: 0,
        })
    }

    /// The pause that is due after `issued` and `completed` ops in all, `now_ns` after the start of the load.
    pub fn pause(&mut self, issued: u64, completed: u64, now_ns: u64) -> Option<Pause> {
        let blocks = if self.on_issue { issued } else { completed };
        let long = self.io_time_ns > 0
            && now_ns.saturating_sub(self.last_ns) >= self.io_time_ns + self.spin_ns + self.sleep_ns;
        if !long && blocks.saturating_sub(self.last_blocks) < self.blocks {
            return None;
        }
        self.last_blocks = blocks;
        self.last_ns = now_ns;
        Some(Pause { spin_ns: self.spin_ns, sleep_ns: self.sleep_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(edit: impl FnOnce(&mut Rate)) -> Job {
        let mut job = Job::default();
        edit(&mut job.rate);
        job
    }

    fn times(job: &Job, bytes: u64, count: usize) -> Vec<u64> {
        let mut arrivals = Arrivals::new(job, 0).unwrap();
        (0..count).map(|_| arrivals.next(Direction::Read, bytes)).collect()
    }

    #[test]
    fn without_a_rate_the_loop_is_closed() {
        assert!(Arrivals::new(&Job::default(), 0).is_none());
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        // 3 a second does not divide a second: after three million ops the clock is still exact.
        let due = times(&job(|rate| rate.iops.read = Some(3)), 4096, 3_000_001);
        assert_eq!(due[..4], [0, 333_333_333, 666_666_666, 1_000_000_000]);
        assert_eq!(due[3_000_000], 1_000_000 * SECOND);
        let due = times(&job(|rate| rate.bytes.read = Some(7_000_000)), 4096, 7_000_001);
        assert_eq!(due[7_000_000], 4096 * SECOND);
    }

    #[test]
    fn bytes_count_by_size_and_directions_apart() {
        let mut job = job(|rate| (rate.bytes.read, rate.iops.write) = (Some(1000), Some(10)));
        job.rw.directions = PerDirection { read: true, write: true, trim: false };
        let mut arrivals = Arrivals::new(&job, 0).unwrap();
        assert_eq!(
            [500, 250, 1000, 1].map(|bytes| arrivals.next(Direction::Read, bytes)),
            [0, SECOND / 2, SECOND * 3 / 4, SECOND * 7 / 4]
        );
        assert_eq!([1, 99, 1].map(|bytes| arrivals.next(Direction::Write, bytes)), [0, SECOND / 10, SECOND / 5]);
        assert_eq!(arrivals.next(Direction::Trim, 1), 0);
        assert_eq!(arrivals.due(Direction::Write), SECOND * 3 / 10);
        assert_eq!(arrivals.first(0), Some(Direction::Write));
        // The interval before the op that is due is part of the pause.
        arrivals.paused(SECOND);
        assert_eq!(arrivals.next(Direction::Write, 1), SECOND * 12 / 10);
        arrivals.paused(SECOND / 20);
        assert_eq!(arrivals.due(Direction::Write), SECOND * 135 / 100, "a pause that is shorter than an interval");
    }

    #[test]
    fn rates_decide_the_mix() {
        let mut job = job(|rate| (rate.iops.read, rate.iops.write) = (Some(300), Some(100)));
        job.rw.directions = PerDirection { read: true, write: true, trim: false };
        let mut arrivals = Arrivals::new(&job, 0).unwrap();
        let mut reads = 0;
        for _ in 0..4000 {
            let direction = arrivals.first(0).unwrap();
            arrivals.next(direction, 4096);
            reads += u32::from(direction == Direction::Read);
        }
        assert_eq!(reads, 3000);
        // A mix without writes has none, whatever their rate is.
        job.pattern.mix_read = 100;
        assert_eq!(Arrivals::new(&job, 0).unwrap().first(0), None);
    }

    #[test]
    fn a_rate_of_one_direction_holds_back_no_other() {
        let mut job = job(|rate| rate.iops.write = Some(100));
        job.rw.directions = PerDirection { read: true, write: true, trim: false };
        job.pattern.mix_read = 70;
        let mut arrivals = Arrivals::new(&job, 0).unwrap();
        assert_eq!(arrivals.first(0), None, "the mix decides while a write is due");
        arrivals.next(Direction::Write, 4096);
        assert_eq!(arrivals.first(SECOND / 100 - 1), Some(Direction::Read));
        assert_eq!(arrivals.first(SECOND / 100), None);
        // A mix of writes alone has nothing else to do.
        job.pattern.mix_read = 0;
        let mut arrivals = Arrivals::new(&job, 0).unwrap();
        arrivals.next(Direction::Write, 4096);
        assert_eq!(arrivals.first(0), None);
    }

    /// Kolmogorov and Smirnov against the exponential distribution; the count of a window against the Poisson one.
    #[test]
    fn ops_that_are_due_and_not_taken_are_counted() {
        let reads = |edit: fn(&mut Rate)| {
            let mut job = job(edit);
            job.rw.directions = PerDirection { read: true, ..PerDirection::default() };
            Arrivals::new(&job, 0).unwrap()
        };
        // `rate_iops=1000` of a job that only reads: the schedules of writes and trims never move.
        let mut arrivals = reads(|rate| rate.iops = PerDirection::from_fn(|_| Some(1000)));
        assert_eq!(arrivals.overdue(0), 1.0, "a clock begins with an arrival");
        arrivals.next(Direction::Read, 4096);
        assert_eq!(arrivals.overdue(999_999), 0.0);
        assert_eq!(arrivals.overdue(1_000_000), 1.0);
        assert_eq!(arrivals.overdue(10_000_000), 10.0);
        let by_bytes = reads(|rate| rate.bytes.read = Some(4096 * 1000));
        assert_eq!(by_bytes.overdue(9_000_000), 10.0);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let job = job(|rate| (rate.iops.read, rate.poisson) = (Some(10_000), true));
        let due = times(&job, 4096, 100_001);
        assert!(due[0] > 0 && due.is_sorted());
        let mut gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 100_000.0).collect();
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, gap)| ((i as f64 + 0.5) / n - (1.0 - (-gap).exp())).abs())
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / n.sqrt(), "{distance}");
        // Windows of 10 ms hold 100 on average, with a variance of 100: a constant rate would have none.
        let windows = 900;
        let counts: Vec<f64> =
            (0..windows).map(|w| due.iter().filter(|&&t| t / 10_000_000 == w).count() as f64).collect();
        let mean = counts.iter().sum::<f64>() / windows as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / windows as f64;
        assert!((mean - 100.0).abs() < 1.5 && (75.0..130.0).contains(&variance), "mean {mean}, variance {variance}");
        assert_ne!(times(&job, 4096, 10), (0..10).map(|_| 0).collect::<Vec<_>>());
        let mut other = Arrivals::new(&job, 1).unwrap();
        assert_ne!(other.next(Direction::Read, 4096), due[0], "clones arrive independently");
    }

    #[test]
    fn thinking_counts_blocks_or_time() {
        let think = |edit: fn(&mut Rate)| Think::new(&job(edit).rate);
        assert!(think(|_| {}).is_none());
        let mut every_four =
            think(|rate| (rate.think_ns, rate.think_spin_ns, rate.think_blocks) = (1000, 300, 4)).unwrap();
        let due: Vec<u64> = (1..=12)
            .filter(|&done| every_four.pause(done + 5, done, 0) == Some(Pause { spin_ns: 300, sleep_ns: 700 }))
            .collect();
        assert_eq!(due, [4, 8, 12]);
        let mut issued = think(|rate| (rate.think_ns, rate.think_on_issue) = (1000, true)).unwrap();
        assert!(issued.pause(1, 0, 0).is_some() && issued.pause(1, 1, 0).is_none());
        let mut timed = think(|rate| (rate.think_ns, rate.think_io_time_ns) = (1000, 5000)).unwrap();
        let due: Vec<u64> =
            (0..20).map(|step| step * 1000).filter(|&now| timed.pause(now, now, now).is_some()).collect();
        assert_eq!(due, [6000, 12_000, 18_000]);
    }
}

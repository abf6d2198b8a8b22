//! Rates over even steps of time, from intervals of uneven length.
//!
//! A generator that was blocked past the end of its interval closes a longer one, and a shorter one after it. The mean
//! of the rates of such intervals is not the rate of the whole: a second in which storage stood still would count as
//! much as the tenth of a second before it. So what an interval counted is spread evenly over its true length, and
//! each step of time gives one rate.

use crate::Direction;
use crate::schema::{Interval, JobResult};

/// The most steps: results from files may claim any time.
const MOST: u64 = 1 << 22;

/// The rate per second of each step from the start on: what `count` gives for the intervals, each moved by `shift_ns`.
/// None for a step of which the intervals cover less than half: the end of a run, and the time between two runs.
pub(crate) fn over_steps(
    intervals: &[Interval],
    step_ns: u64,
    shift_ns: u64,
    count: impl Fn(&Interval) -> u64,
) -> Vec<Option<f64>> {
    let step_ns = step_ns.max(1);
    let last = intervals.iter().map(|interval| interval.end_ns).max().unwrap_or(0).saturating_add(shift_ns);
    // Of each step: what was counted, and the nanoseconds that intervals cover. Clones that ran together overlap.
    let mut steps = vec![(0.0, 0u64); last.div_ceil(step_ns).min(MOST) as usize];
    let mut reached = 0;
    for interval in intervals.iter().filter(|interval| interval.length_ns > 0) {
        let end = interval.end_ns.saturating_add(shift_ns);
        let start = end.saturating_sub(interval.length_ns);
        let per_ns = count(interval) as f64 / interval.length_ns as f64;
        let (first, after) = ((start / step_ns) as usize, end.div_ceil(step_ns) as usize);
        for (index, (counted, covered)) in steps.iter_mut().enumerate().take(after).skip(first) {
            let from = (index as u64 * step_ns).max(start);
            let to = (index as u64 + 1).saturating_mul(step_ns).min(end);
            *counted += per_ns * (to - from) as f64;
            *covered += to.saturating_sub(from.max(reached));
        }
        reached = reached.max(end);
    }
    let rate = |(counted, covered): (f64, u64)| (covered * 2 >= step_ns).then(|| counted * 1e9 / covered as f64);
    steps.into_iter().map(rate).collect()
}

impl JobResult {
    /// Ops per second of each step of the length of an interval.
    pub fn iops_over_time(&self) -> Vec<f64> {
        self.over_time(|interval| Direction::ALL.iter().map(|&direction| interval.ops[direction]).sum())
    }

    /// Bytes per second of each step of the length of an interval.
    pub fn bytes_over_time(&self) -> Vec<f64> {
        self.over_time(|interval| Direction::ALL.iter().map(|&direction| interval.bytes[direction]).sum())
    }

    fn over_time(&self, count: impl Fn(&Interval) -> u64) -> Vec<f64> {
        over_steps(&self.intervals, self.step_ns(), 0, count).into_iter().flatten().collect()
    }

    /// The nominal length of an interval. Replays of versions before 0.3 claim 1 ns for passes of any length: then the
    /// mean.
    fn step_ns(&self) -> u64 {
        // The intervals of a window cover all of it, and so do its steps: their mean is its rate.
        if self.is_window && self.interval_ns > 1 {
            let steps = (self.runtime_ns + self.interval_ns / 2) / self.interval_ns;
            return self.runtime_ns.div_ceil(steps.max(1));
        }
        if self.interval_ns > 1 {
            return self.interval_ns;
        }
        let total: u64 = self.intervals.iter().map(|interval| interval.length_ns).sum();
        total / self.intervals.len().max(1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::mean;

    fn job(intervals: &[(u64, u64, u64)]) -> JobResult {
        let of = |&(end_ns, length_ns, ops): &(u64, u64, u64)| {
            let mut interval = Interval { end_ns, length_ns, ..Interval::default() };
            (interval.ops.read, interval.bytes.read) = (ops, ops * 512);
            interval
        };
        let intervals: Vec<Interval> = intervals.iter().map(of).collect();
        JobResult { interval_ns: 100, intervals, ..JobResult::default() }
    }

    #[test]
    fn even_intervals_are_their_own_steps() {
        let job = job(&[(100, 100, 10), (200, 100, 20), (300, 100, 0)]);
        assert_eq!(job.iops_over_time(), [1e8, 2e8, 0.0]);
        assert_eq!(job.bytes_over_time(), [512e8, 1024e8, 0.0]);
        assert!(JobResult::default().iops_over_time().is_empty());
    }

    /// Ten ops in each hundredth, but from 200 to 710 the storage stands still. The ops of the whole are 80 in 1,200.
    #[test]
    fn a_stall_counts_for_its_whole_length() {
        let stalled = job(&[
            (100, 100, 10),
            (200, 100, 10),
            (710, 510, 0),
            (800, 90, 20),
            (900, 100, 10),
            (1000, 100, 10),
            (1100, 100, 10),
            (1200, 100, 10),
        ]);
        let rates = stalled.iops_over_time();
        assert_eq!(rates.len(), 12);
        assert!((mean(&rates) - 80e9 / 1200.0).abs() < 1.0, "{rates:?}");
        // The burst after a stall, in an interval shorter than half a step.
        let burst = job(&[(100, 100, 10), (280, 180, 0), (300, 20, 20), (400, 100, 10)]);
        assert!((mean(&burst.iops_over_time()) - 40e9 / 400.0).abs() < 1.0, "{:?}", burst.iops_over_time());
    }

    #[test]
    fn clones_that_overlap_add_up() {
        // One clone counts 10 a step; the other is blocked for three steps, and its 30 ops come with the fourth.
        let both = job(&[(100, 100, 10), (200, 100, 10), (300, 100, 10), (400, 400, 40)]);
        let rates = both.iops_over_time();
        assert_eq!(rates.len(), 4);
        assert!((mean(&rates) - 70e9 / 400.0).abs() < 1.0, "{rates:?}");
    }

    #[test]
    fn a_step_that_is_hardly_covered_gives_no_rate() {
        assert_eq!(job(&[(100, 100, 10), (130, 30, 9)]).iops_over_time(), [1e8]);
        assert_eq!(job(&[(100, 100, 10), (160, 60, 6)]).iops_over_time(), [1e8, 1e8]);
        // The time between two runs that follow each other.
        assert_eq!(job(&[(100, 100, 10), (300, 100, 10)]).iops_over_time(), [1e8, 1e8]);
        let intervals = job(&[(100, 100, 10), (200, 100, 10)]).intervals;
        let moved = over_steps(&intervals, 100, 260, |interval| interval.ops.read);
        assert_eq!(moved, [None, None, None, Some(1e8), Some(1e8)]);
    }
}

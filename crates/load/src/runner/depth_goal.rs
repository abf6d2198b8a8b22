//! `latency_target`: the largest depth at which enough ops are fast enough, found by bisection.
//!
//! Windows of `latency_window` are judged one by one: a window meets the goal when at least
//! `latency_percentile` percent of its ops took no longer than the target. Pure: time is passed in.

use job::job::LatencyGoal;
use measure::schema::LatencyTarget;

/// The search, and after it (with `latency_run`) the watch over the depth found.
#[derive(Debug)]
pub struct DepthGoal {
    goal: LatencyGoal,
    /// The largest depth known to meet the goal; 0 before the first.
    good: usize,
    /// The smallest depth known to miss it; one beyond the largest allowed before the first.
    bad: usize,
    depth: usize,
    settled: bool,
    window_end_ns: u64,
    ops: u64,
    slow_ops: u64,
}

impl DepthGoal {
    /// A search between depth 1 and `iodepth`; its first window begins with the first op.
    pub fn new(goal: LatencyGoal, iodepth: u32) -> DepthGoal {
        DepthGoal {
            goal,
            good: 0,
            bad: iodepth as usize + 1,
            depth: 1,
            settled: false,
            window_end_ns: 0,
            ops: 0,
            slow_ops: 0,
        }
    }

    /// The depth to run at now.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Counts an op that finished at `now_ns`. True when the search is over and the job is to end.
    pub fn completed(&mut self, latency_ns: u64, now_ns: u64) -> bool {
        if self.window_end_ns == 0 {
            self.window_end_ns = now_ns + self.goal.window_ns;
        }
        self.ops += 1;
        self.slow_ops += u64::from(latency_ns > self.goal.target_ns);
        if now_ns < self.window_end_ns {
            return false;
        }
        let fast_percent = 100.0 * (self.ops - self.slow_ops) as f64 / self.ops as f64;
        self.adjust_depth(fast_percent >= self.goal.percentile);
        (self.ops, self.slow_ops) = (0, 0);
        self.window_end_ns = now_ns + self.goal.window_ns;
        self.settled && !self.goal.run
    }

    fn adjust_depth(&mut self, met: bool) {
        if met {
            self.good = self.good.max(self.depth);
        } else {
            self.bad = self.bad.min(self.depth);
            // The storage has become slower since this depth was found good.
            self.good = self.good.min(self.bad - 1);
        }
        self.settled = self.good + 1 >= self.bad;
        self.depth = match () {
            () if self.settled => self.good.max(1),
            // Nothing has missed yet: double. Then bisect.
            () if met => (self.depth * 2).min((self.good + self.bad) / 2).max(self.good + 1).min(self.bad - 1),
            () => (self.good + self.bad) / 2,
        };
        self.depth = self.depth.max(1);
    }

    /// The outcome; None if not even depth 1 met the goal, or no window ended.
    pub fn outcome(&self) -> Option<LatencyTarget> {
        (self.good > 0).then_some(LatencyTarget {
            depth: self.good as u32,
            target_ns: self.goal.target_ns,
            window_ns: self.goal.window_ns,
            percentile: self.goal.percentile,
        })
    }

    /// True if the goal was missed at every depth.
    pub fn is_hopeless(&self) -> bool {
        self.bad <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The depth found when an op at depth d takes `latency_of(d)`, and the windows that it took.
    fn search(iodepth: u32, latency_of: impl Fn(usize) -> u64) -> (DepthGoal, u32) {
        let goal = LatencyGoal { target_ns: 1000, window_ns: 10_000, percentile: 99.0, run: false };
        let mut search = DepthGoal::new(goal, iodepth);
        let mut now = 0;
        for op in 1..1_000_000 {
            now += 100;
            if search.completed(latency_of(search.depth()), now) {
                return (search, op / 100);
            }
        }
        panic!("no end: {search:?}");
    }

    #[test]
    fn every_threshold_is_found_in_logarithmic_time() {
        for threshold in 1..=128 {
            let (search, windows) = search(128, |depth| if depth <= threshold { 900 } else { 1100 });
            assert_eq!(search.outcome().unwrap().depth as usize, threshold);
            assert!(windows <= 16, "{windows} windows for {threshold}");
        }
    }

    #[test]
    fn a_hopeless_target_ends_and_a_trivial_one_reaches_iodepth() {
        let (search_, _) = search(64, |_| 2000);
        assert!(search_.is_hopeless() && search_.outcome().is_none());
        assert_eq!(search(64, |_| 10).0.outcome().unwrap().depth, 64);
    }
}

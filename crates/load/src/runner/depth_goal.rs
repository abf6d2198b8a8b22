//! `latency_target`: the largest depth at which enough ops are fast enough, found by doubling and bisection.
//!
//! Windows of `latency_window` are judged one by one: a window meets the goal when at least
//! `latency_percentile` percent of its ops took no longer than the target. If all of them must be fast, the first slow
//! op decides, as in fio. Pure: time is passed in.

use job::job::LatencyGoal;
use measure::schema::LatencyTarget;

/// The search, and after it (with `latency_run`) the watch over the depth found.
#[derive(Debug)]
pub struct DepthGoal {
    goal: LatencyGoal,
    iodepth: usize,
    /// The largest depth known to meet the goal; 0 before the first.
    good: usize,
    /// The smallest depth known to miss it; one beyond the largest allowed before the first.
    bad: usize,
    depth: usize,
    /// Time of the last change of the depth: ops from before it say nothing about this depth.
    depth_since_ns: u64,
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
            iodepth: iodepth as usize,
            good: 0,
            bad: iodepth as usize + 1,
            depth: 1,
            depth_since_ns: 0,
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

    /// Counts an op that lasted from `created_ns` to `now_ns`. True when the search is over and the job is to end.
    pub fn completed(&mut self, created_ns: u64, now_ns: u64) -> bool {
        if created_ns < self.depth_since_ns {
            return false;
        }
        if self.window_end_ns == 0 {
            self.window_end_ns = now_ns + self.goal.window_ns;
        }
        self.ops += 1;
        self.slow_ops += u64::from(now_ns - created_ns > self.goal.target_ns);
        let is_decided = self.slow_ops > 0 && self.goal.percentile >= 100.0;
        if now_ns < self.window_end_ns && !is_decided {
            return false;
        }
        let fast_percent = 100.0 * (self.ops - self.slow_ops) as f64 / self.ops as f64;
        let depth = self.depth;
        self.adjust_depth(fast_percent >= self.goal.percentile);
        if self.depth != depth {
            self.depth_since_ns = now_ns;
        }
        (self.ops, self.slow_ops) = (0, 0);
        self.window_end_ns = now_ns + self.goal.window_ns;
        self.settled && !self.goal.run || is_decided && self.is_hopeless()
    }

    fn adjust_depth(&mut self, met: bool) {
        let missed_before = self.bad <= self.iodepth;
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
            () if met && !missed_before => (self.depth * 2).min(self.iodepth),
            () => (self.good + self.bad) / 2,
        };
        self.depth = self.depth.max(1);
    }

    /// The outcome, with depth 0 if not even depth 1 met the goal, or no window ended.
    pub fn outcome(&self) -> LatencyTarget {
        LatencyTarget {
            depth: self.good as u32,
            target_ns: self.goal.target_ns,
            window_ns: self.goal.window_ns,
            percentile: self.goal.percentile,
        }
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
        let mut now = 10_000;
        for op in 1..1_000_000 {
            now += 100;
            if search.completed(now - latency_of(search.depth()), now) {
                return (search, op / 100);
            }
        }
        panic!("no end: {search:?}");
    }

    #[test]
    fn every_threshold_is_found_in_logarithmic_time() {
        for threshold in 1..=128 {
            let (search, windows) = search(128, |depth| if depth <= threshold { 900 } else { 1100 });
            assert_eq!(search.outcome().depth as usize, threshold);
            assert!(windows <= 16, "{windows} windows for {threshold}");
        }
    }

    #[test]
    fn a_hopeless_target_ends_and_a_trivial_one_reaches_iodepth() {
        let (search_, _) = search(64, |_| 2000);
        assert!(search_.is_hopeless() && search_.outcome().depth == 0);
        assert_eq!(search(64, |_| 10).0.outcome().depth, 64);
    }

    #[test]
    fn one_slow_op_decides_where_all_ops_must_be_fast() {
        let goal = LatencyGoal { target_ns: 1000, window_ns: 10_000, percentile: 100.0, run: false };
        let mut search = DepthGoal::new(goal, 8);
        assert!(!search.completed(100_000, 100_500));
        assert!(!search.completed(110_000, 110_500), "the window ends, and depth 1 is good");
        assert_eq!(search.depth(), 2);
        assert!(!search.completed(110_400, 112_000), "an op that began at depth 1");
        assert_eq!(search.depth(), 2);
        assert!(search.completed(110_600, 112_000), "one slow op at depth 2");
        assert_eq!(search.outcome().depth, 1);

        let mut hopeless = DepthGoal::new(LatencyGoal { run: true, ..goal }, 8);
        assert!(hopeless.completed(100_000, 102_000) && hopeless.is_hopeless());
    }

    #[test]
    fn the_depth_doubles_until_a_window_misses() {
        let goal = LatencyGoal { target_ns: 9, window_ns: 1, percentile: 50.0, run: false };
        let (mut search, mut depths) = (DepthGoal::new(goal, 24), vec![1]);
        for op in 1..20 {
            let ends = search.completed(op * 100, op * 100 + 2);
            depths.push(search.depth());
            if ends {
                break;
            }
        }
        depths.dedup();
        assert_eq!(depths, [1, 2, 4, 8, 16, 24]);
    }
}

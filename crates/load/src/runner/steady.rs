//! `steadystate`: whether a figure, sampled once a second, has become steady. Pure.
//!
//! As fio(1) defines it: over the last `steadystate_duration` seconds either the largest deviation from the mean, or
//! the slope of the least-squares line, stays within the limit.

use std::collections::VecDeque;

use job::job::SteadyState;

/// Seconds between samples.
pub const SAMPLE_NS: u64 = 1_000_000_000;

/// The watch over one job.
#[derive(Debug)]
pub struct Watch {
    criterion: SteadyState,
    samples: VecDeque<f64>,
    capacity: usize,
    skip: u64,
}

impl Watch {
    /// A watch that has seen nothing.
    pub fn new(criterion: SteadyState) -> Watch {
        let capacity = (criterion.window_ns / SAMPLE_NS).max(2) as usize;
        Watch { criterion, samples: VecDeque::with_capacity(capacity), capacity, skip: criterion.ramp_ns / SAMPLE_NS }
    }

    /// Adds the figure of one more second. True when it is steady.
    pub fn push(&mut self, iops: f64, bytes_per_second: f64) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.samples.len() == self.capacity {
            self.samples.pop_front();
        }
        self.samples.push_back(if self.criterion.bandwidth { bytes_per_second } else { iops });
        self.samples.len() == self.capacity && self.measure() <= self.limit()
    }

    fn mean(&self) -> f64 {
        self.samples.iter().sum::<f64>() / self.samples.len() as f64
    }

    fn limit(&self) -> f64 {
        let limit = self.criterion.limit_millionths as f64 / 1e6;
        if self.criterion.percent { limit * self.mean() } else { limit }
    }

    fn measure(&self) -> f64 {
        let mean = self.mean();
        if !self.criterion.slope {
            return self.samples.iter().map(|sample| (sample - mean).abs()).fold(0.0, f64::max);
        }
        let middle = (self.samples.len() - 1) as f64 / 2.0;
        let (mut products, mut squares) = (0.0, 0.0);
        for (second, sample) in self.samples.iter().enumerate() {
            let x = second as f64 - middle;
            products += x * (sample - mean);
            squares += x * x;
        }
        (products / squares).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds_until_steady(slope: bool, figure: impl Fn(u64) -> f64) -> Option<u64> {
        let criterion = SteadyState {
            bandwidth: false,
            slope,
            limit_millionths: 10_000, // 1 %
            percent: true,
            window_ns: 5 * SAMPLE_NS,
            ramp_ns: 2 * SAMPLE_NS,
        };
        let mut watch = Watch::new(criterion);
        (1..100).find(|&second| watch.push(figure(second), 0.0))
    }

    #[test]
    fn steady_begins_when_the_window_is_flat() {
        // Two seconds of ramp, then five to fill the window.
        assert_eq!(seconds_until_steady(true, |_| 1000.0), Some(7));
        assert_eq!(seconds_until_steady(false, |_| 1000.0), Some(7));
        // A jump at second 20 must have left the window.
        assert_eq!(
            seconds_until_steady(false, |second| if second < 20 { second as f64 * 100.0 } else { 1e4 }),
            Some(24)
        );
        assert_eq!(seconds_until_steady(true, |second| 1000.0 * 1.1f64.powi(second as i32)), None);
        // Alternating by 5 %: the slope is flat, the deviation is not.
        let alternating = |second: u64| 1000.0 + if second.is_multiple_of(2) { 50.0 } else { -50.0 };
        assert_eq!(seconds_until_steady(false, alternating), None);
    }
}

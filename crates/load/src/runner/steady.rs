//! `steadystate`: tells when a figure, sampled every `steadystate_check_interval`, has become steady. Pure.
//!
//! As fio(1) defines it: over the last `steadystate_duration` seconds either the largest deviation from the mean, or
//! the slope of the least-squares line, stays within the limit.

use std::collections::VecDeque;

use job::job::SteadyState;
use measure::schema;

/// The watch over one job.
#[derive(Debug)]
pub struct Watch {
    criterion: SteadyState,
    /// Ops and bytes a second, of each sample of the window.
    window: VecDeque<(u64, u64)>,
    capacity: usize,
    skip: u64,
    attained: bool,
}

impl Watch {
    /// A watch that has seen nothing.
    pub fn new(criterion: SteadyState) -> Watch {
        let capacity = (criterion.window_ns / criterion.interval_ns).max(2) as usize;
        let skip = criterion.ramp_ns.div_ceil(criterion.interval_ns);
        Watch { criterion, window: VecDeque::with_capacity(capacity), capacity, skip, attained: false }
    }

    /// Time between two samples, in nanoseconds.
    pub fn interval_ns(&self) -> u64 {
        self.criterion.interval_ns
    }

    /// Adds the ops and bytes of one more interval. True when the figure is steady.
    pub fn push(&mut self, ops: u64, bytes: u64) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.window.len() == self.capacity {
            self.window.pop_front();
        }
        let a_second = |count: u64| {
            (u128::from(count) * 1_000_000_000 / u128::from(self.criterion.interval_ns)).min(u128::from(u64::MAX))
                as u64
        };
        self.window.push_back((a_second(ops), a_second(bytes)));
        let limit = self.criterion.limit_millionths as f64 / 1e6;
        self.attained = self.window.len() == self.capacity && self.value() <= limit;
        self.attained
    }

    /// The findings so far. As in fio, samples of the window that have not been seen yet are listed as zeros, and
    /// nothing is concluded from a window that is not full.
    pub fn outcome(&self) -> schema::SteadyState {
        let figure = if self.criterion.bandwidth { "bw" } else { "iops" };
        let scale = if self.criterion.percent { 100.0 } else { 1.0 };
        let full = self.window.len() == self.capacity;
        let once_full = |figure: f64| if full { figure } else { 0.0 };
        let listed = || self.window.iter().copied().chain(std::iter::repeat((0, 0))).take(self.capacity);
        schema::SteadyState {
            criterion: format!("{figure}{}", if self.criterion.slope { "_slope" } else { "" }),
            limit: self.criterion.limit_millionths as f64 / 1e6 * scale,
            percent: self.criterion.percent,
            duration_ns: self.criterion.window_ns,
            attained: self.attained,
            value: once_full(self.value() * scale),
            max_deviation: once_full(self.max_deviation()),
            slope: once_full(self.slope()),
            iops: listed().map(|(ops, _)| ops).collect(),
            bytes_per_second: listed().map(|(_, bytes)| bytes).collect(),
        }
    }

    fn samples(&self) -> impl Iterator<Item = f64> {
        self.window.iter().map(|&(ops, bytes)| if self.criterion.bandwidth { bytes as f64 } else { ops as f64 })
    }

    fn mean(&self) -> f64 {
        self.samples().sum::<f64>() / self.window.len().max(1) as f64
    }

    /// The criterion's value: relative to the mean if the limit is.
    fn value(&self) -> f64 {
        let absolute = if self.criterion.slope { self.slope().abs() } else { self.max_deviation() };
        match self.mean() {
            mean if self.criterion.percent && mean > 0.0 => absolute / mean,
            _ => absolute,
        }
    }

    fn max_deviation(&self) -> f64 {
        let mean = self.mean();
        self.samples().map(|sample| (sample - mean).abs()).fold(0.0, f64::max)
    }

    /// The slope of the least-squares line, per sample, as in fio.
    fn slope(&self) -> f64 {
        let middle = self.window.len().saturating_sub(1) as f64 / 2.0;
        let mean = self.mean();
        let (mut products, mut squares) = (0.0, 0.0);
        for (number, sample) in self.samples().enumerate() {
            let x = number as f64 - middle;
            products += x * (sample - mean);
            squares += x * x;
        }
        if squares > 0.0 { products / squares } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE_NS: u64 = 1_000_000_000;

    fn seconds_until_steady(slope: bool, figure: impl Fn(u64) -> f64) -> Option<u64> {
        let criterion = SteadyState {
            bandwidth: false,
            slope,
            limit_millionths: 10_000, // 1 %
            percent: true,
            window_ns: 5 * SAMPLE_NS,
            ramp_ns: 2 * SAMPLE_NS,
            interval_ns: SAMPLE_NS,
        };
        let mut watch = Watch::new(criterion);
        (1..100).find(|&second| watch.push(figure(second) as u64, 0))
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

    #[test]
    fn longer_intervals_make_fewer_samples_of_the_same_rates() {
        let criterion = SteadyState {
            bandwidth: false,
            slope: false,
            limit_millionths: 10_000,
            percent: true,
            window_ns: 20 * SAMPLE_NS,
            ramp_ns: 7 * SAMPLE_NS,
            interval_ns: 5 * SAMPLE_NS,
        };
        let mut watch = Watch::new(criterion);
        let pushed: Vec<bool> = (0..6).map(|_| watch.push(5000, 5 << 20)).collect();
        assert_eq!(pushed, [false, false, false, false, false, true], "two samples of ramp, four in the window");
        let outcome = watch.outcome();
        assert_eq!((outcome.iops, outcome.bytes_per_second), (vec![1000; 4], vec![1 << 20; 4]));
    }

    #[test]
    fn the_outcome_names_the_criterion_and_its_window() {
        let criterion = SteadyState {
            bandwidth: true,
            slope: false,
            limit_millionths: 50_000,
            percent: true,
            window_ns: 2 * SAMPLE_NS,
            ramp_ns: 0,
            interval_ns: SAMPLE_NS,
        };
        let mut watch = Watch::new(criterion);
        let before = watch.outcome();
        assert_eq!((before.iops, before.bytes_per_second, before.value), (vec![0, 0], vec![0, 0], 0.0));
        assert!(!watch.push(1, 900));
        assert_eq!((watch.outcome().bytes_per_second, watch.outcome().slope), (vec![900, 0], 0.0));
        assert!(!watch.push(1, 1100));
        assert!(watch.push(1, 1000));
        let outcome = watch.outcome();
        assert_eq!((outcome.criterion.as_str(), outcome.limit, outcome.attained), ("bw", 5.0, true));
        assert_eq!((outcome.bytes_per_second, outcome.max_deviation), (vec![1100, 1000], 50.0));
        assert!((outcome.value - 100.0 * 50.0 / 1050.0).abs() < 1e-9 && (outcome.slope + 100.0).abs() < 1e-9);
    }
}

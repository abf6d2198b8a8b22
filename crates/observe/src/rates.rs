//! Rates over the time between two looks.

use crate::counters::{Counters, Flow};
use crate::passive::Window;

/// Rates of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowRates {
    /// Completed requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Mean latency of the requests that completed, in nanoseconds; None without any, or where the source has no times.
    pub latency_ns: Option<f64>,
}

/// The work of a target over an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Length of the interval in seconds.
    pub seconds: f64,
    /// Reads.
    pub read: FlowRates,
    /// Writes.
    pub write: FlowRates,
    /// All other requests.
    pub other: FlowRates,
    /// Mean requests in flight by Little's law: the sum of the latencies over the length. A request counts in the
    /// interval in which it ends. None where the source has no times.
    pub depth: Option<f64>,
    /// Requests in flight at the end of the interval.
    pub in_flight: Option<u64>,
    /// The part of the interval with a request in flight, 0..=1.
    pub busy: Option<f64>,
    /// Mean time in the client's queue in nanoseconds (NFS).
    pub queue_ns: Option<f64>,
    /// Mean time from request to answer in nanoseconds (NFS).
    pub round_trip_ns: Option<f64>,
    /// Requests sent once more (NFS).
    pub sent_again: u64,
}

/// The kernel prints sums of latencies in milliseconds: a smaller sum is 0, and its mean would be a latency of nothing.
const TICK_NS: u64 = 1_000_000;

impl Rates {
    /// The rates of a growth of counters over some seconds.
    pub fn of(growth: &Counters, seconds: f64) -> Rates {
        let seconds = seconds.max(1e-9);
        let flow = |flow: &Flow| FlowRates {
            iops: flow.ops as f64 / seconds,
            bytes_per_second: flow.bytes as f64 / seconds,
            latency_ns: (growth.has_times && flow.ops > 0 && flow.time_ns >= TICK_NS)
                .then(|| flow.time_ns as f64 / flow.ops as f64),
        };
        let flows = [growth.read, growth.write, growth.other];
        let ops: u64 = flows.iter().map(|flow| flow.ops).fold(0, u64::saturating_add);
        let time_ns: u64 = flows.iter().map(|flow| flow.time_ns).fold(0, u64::saturating_add);
        let mean = |sum: Option<u64>| sum.filter(|_| ops > 0).map(|sum| sum as f64 / ops as f64);
        Rates {
            seconds,
            read: flow(&growth.read),
            write: flow(&growth.write),
            other: flow(&growth.other),
            depth: growth.has_times.then(|| time_ns as f64 / 1e9 / seconds),
            in_flight: growth.in_flight,
            busy: growth.busy_ns.map(|ns| (ns as f64 / 1e9 / seconds).min(1.0)),
            queue_ns: mean(growth.queue_ns),
            round_trip_ns: mean(growth.round_trip_ns),
            sent_again: growth.sent_again,
        }
    }

    /// Requests of all kinds per second.
    pub fn iops(&self) -> f64 {
        self.read.iops + self.write.iops + self.other.iops
    }

    /// The mean latency of all requests in nanoseconds; None without any, without times, or if their sum is less than
    /// the kernel's clock counts.
    pub fn latency_ns(&self) -> Option<f64> {
        let depth = self.depth.filter(|_| self.iops() > 0.0 && !self.is_below_the_clock())?;
        Some(depth / self.iops() * 1e9)
    }

    /// A bound of the mean latency in nanoseconds, where the latencies of all requests together are less than the
    /// kernel's clock counts; None where they are known, or without requests or times.
    pub fn latency_below_ns(&self) -> Option<f64> {
        let ops = self.iops() * self.seconds;
        // Each direction has a sum of its own, and each sum may lack a tick.
        let sums = [&self.read, &self.write, &self.other].into_iter().filter(|flow| flow.iops > 0.0).count();
        (ops > 0.0 && self.depth.is_some() && self.is_below_the_clock()).then(|| sums as f64 * TICK_NS as f64 / ops)
    }

    /// True if the sum of all latencies is below one tick.
    fn is_below_the_clock(&self) -> bool {
        self.depth.is_some_and(|depth| depth * self.seconds * 1e9 < TICK_NS as f64 * 0.999)
    }

    /// The interval as the estimator takes it; None without work or without times.
    pub fn window(&self, end_ns: u64) -> Option<Window> {
        let iops = self.iops();
        let depth = self.depth.filter(|_| iops > 0.0)?;
        let moved = self.read.bytes_per_second + self.write.bytes_per_second;
        Some(Window {
            end_ns,
            seconds: self.seconds as f32,
            depth: depth as f32,
            busy: self.busy.unwrap_or(1.0) as f32,
            iops: iops as f32,
            bytes_per_op: (moved / iops) as f32,
            read_share: (self.read.iops / iops) as f32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn littles_law_gives_the_depth() {
        let read = Flow { ops: 1000, bytes: 4_096_000, time_ns: 16_000_000_000 };
        let growth = Counters { read, has_times: true, busy_ns: Some(1_900_000_000), ..Counters::default() };
        let rates = Rates::of(&growth, 2.0);
        assert_eq!((rates.read.iops, rates.depth, rates.busy), (500.0, Some(8.0), Some(0.95)));
        assert_eq!(rates.latency_ns(), Some(16_000_000.0));
        let window = rates.window(7).unwrap();
        assert_eq!((window.depth, window.iops, window.bytes_per_op, window.read_share), (8.0, 500.0, 4096.0, 1.0));
    }

    #[test]
    fn a_sum_below_the_kernels_clock_is_a_bound_and_no_latency() {
        let of = |read_ns, write_ns| {
            let [read, write] = [read_ns, write_ns].map(|time_ns| Flow { ops: 10, bytes: 40_960, time_ns });
            Rates::of(&Counters { read, write, has_times: true, ..Counters::default() }, 2.0)
        };
        let quick = of(0, 0);
        assert_eq!((quick.latency_ns(), quick.read.latency_ns), (None, None), "0 ns would be wrong");
        assert_eq!(
            quick.latency_below_ns(),
            Some(100_000.0),
            "two sums of less than a millisecond over twenty requests"
        );
        let mixed = of(4_000_000, 0);
        assert_eq!((mixed.latency_ns(), mixed.latency_below_ns()), (Some(200_000.0), None));
        assert_eq!((mixed.read.latency_ns, mixed.write.latency_ns), (Some(400_000.0), None));
        assert_eq!(Rates::of(&Counters { has_times: true, ..Counters::default() }, 1.0).latency_below_ns(), None);
    }

    #[test]
    fn without_times_there_is_no_depth() {
        let growth = Counters { read: Flow { ops: 10, bytes: 10, time_ns: 0 }, ..Counters::default() };
        let rates = Rates::of(&growth, 1.0);
        assert_eq!((rates.depth, rates.latency_ns(), rates.window(0)), (None, None, None));
    }
}

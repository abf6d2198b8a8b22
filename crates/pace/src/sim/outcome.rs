//! The measurements of a simulation.

use measure::Histogram;
use serde::Serialize;

use super::confidence::Confidence;

/// The result of one run. Rates are over the measured seconds, without the warm-up. Measured rows near the scenario
/// correct its throughput ([`Outcome::corrected`]).
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub name: String,
    /// The seed of the random generator.
    pub seed: u64,
    /// Simulated seconds that were measured.
    pub seconds: f64,
    /// The throughput of the payload, Gb/s.
    pub gbps: f64,
    /// The throughput as the model alone has it, Gb/s.
    pub simulated_gbps: f64,
    /// The trust in the throughput: an interval, or the reason why there is none.
    pub confidence: Confidence,
    /// Ops per second.
    pub iops: f64,
    /// The throughput on the wire, Gb/s.
    pub wire_gbps: f64,
    /// Latencies of all ops.
    pub all: ClassOutcome,
    /// Latencies of ops of at most 16 KiB.
    pub small: ClassOutcome,
    /// Latencies of larger ops.
    pub large: ClassOutcome,
    /// Mean bytes in flight, MiB.
    pub in_flight_mib: f64,
    /// The window at the end, MiB; none where the method has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_mib: Option<f64>,
    /// The pacer's mean period, microseconds; 0 for methods without a period.
    pub period_us: f64,
    /// Part of the ops that were held.
    pub held_fraction: f64,
    /// Microseconds for which the pacer held ops: mean and 99th percentile.
    pub hold_us: (f64, f64),
    /// Part of the cores' time that was used.
    pub core_busy: f64,
    /// Payload Gb/s by tenant.
    pub tenant_gbps: Vec<f64>,
    /// Payload Gb/s by namespace.
    pub drive_gbps: Vec<f64>,
    /// Commands that the pacer refused because it remembered as many as it can (they are sent again).
    pub refused: u64,
    /// The course over time, warm-up included.
    pub curve: Vec<Point>,
    /// The number of discrete events that the simulation processed.
    pub events: u64,
}

impl Outcome {
    /// This outcome with `gbps` for its throughput. The correction stretches the clock: rates grow by as much as the
    /// throughput, latencies shrink by as much, and what is in flight stays, as Little's law wants.
    pub(super) fn corrected(mut self, gbps: f64) -> Outcome {
        if gbps == self.gbps {
            return self;
        }
        let factor = gbps / self.gbps;
        let of_curve = |point: &mut Point| {
            point.gbps *= factor;
            point.tenant_gbps.iter_mut().for_each(|rate| *rate *= factor);
        };
        self.curve.iter_mut().for_each(of_curve);
        for rate in [&mut self.gbps, &mut self.iops, &mut self.wire_gbps] {
            *rate *= factor;
        }
        self.tenant_gbps.iter_mut().chain(&mut self.drive_gbps).for_each(|rate| *rate *= factor);
        for class in [&mut self.all, &mut self.small, &mut self.large] {
            for time in [&mut class.lat_us, &mut class.p50_us, &mut class.p99_us, &mut class.target_us] {
                *time /= factor;
            }
        }
        self.hold_us = (self.hold_us.0 / factor, self.hold_us.1 / factor);
        self
    }
}

/// Latencies of one class of ops, microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClassOutcome {
    /// The number of ops that completed.
    pub ops: u64,
    /// The mean latency as the initiator sees it.
    pub lat_us: f64,
    /// The median of the latency as the initiator sees it.
    pub p50_us: f64,
    /// The 99th percentile of the latency as the initiator sees it.
    pub p99_us: f64,
    /// The mean latency as the target sees it, from the command's arrival to the buffer's release, hold included.
    pub target_us: f64,
}

/// One point of the curves.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Seconds since the beginning of the warm-up.
    pub t_s: f64,
    /// The throughput of the payload, Gb/s.
    pub gbps: f64,
    /// The window, MiB; 0 where there is none.
    pub window_mib: f64,
    /// Bytes in flight, MiB.
    pub in_flight_mib: f64,
    /// Ops that the pacer holds at this moment.
    pub held: u64,
    /// The pacer's period, microseconds.
    pub period_us: f64,
    /// Payload Gb/s by tenant.
    pub tenant_gbps: Vec<f64>,
}

impl ClassOutcome {
    pub(super) fn of(initiator_ns: &Histogram, target_ns: &Histogram) -> ClassOutcome {
        ClassOutcome {
            ops: initiator_ns.count(),
            lat_us: initiator_ns.mean() / 1e3,
            p50_us: initiator_ns.quantile(0.5) as f64 / 1e3,
            p99_us: initiator_ns.quantile(0.99) as f64 / 1e3,
            target_us: target_ns.mean() / 1e3,
        }
    }
}

/// Jain's fairness index of `shares`: 1 when all are equal, 1/n when one has everything; 1 for none.
///
/// R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness" (DEC TR-301, 1984).
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) = (shares.iter().sum(), shares.iter().map(|s| s * s).sum());
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

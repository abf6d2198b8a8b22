//! The figures of a run: the course over time, and the outcome.

use super::{Engine, NS};
use crate::config::Error;
use crate::sim::confidence::Trusted;
use crate::sim::outcome::{ClassOutcome, Outcome, Point};

impl Engine<'_> {
    pub(super) fn sample(&mut self) {
        let elapsed_s = (self.now - self.sampled_ns) as f64 / NS;
        self.sampled_ns = self.now;
        let gbps = |bytes: u64| bytes as f64 * 8.0 / elapsed_s / 1e9;
        let total = &self.pacer.stats().total;
        let window = self.pacer.window_bytes();
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        let period_us = self.pacer.period_ns() as f64 / 1e3;
        self.curve.push(Point {
            t_s: self.now as f64 / NS,
            gbps: gbps(self.sample_bytes),
            window_mib: if window == u64::MAX { 0.0 } else { mib(window) },
            in_flight_mib: mib(total.in_flight_bytes),
            held: total.held_now,
            period_us,
            tenant_gbps: self.sample_tenant_bytes.iter().map(|&b| gbps(b)).collect(),
        });
        if self.now >= self.measure_from_ns {
            self.in_flight_sum += mib(total.in_flight_bytes);
            self.period_sum += period_us;
            self.samples += 1;
        }
        self.sample_bytes = 0;
        self.sample_tenant_bytes.fill(0);
    }

    pub(super) fn outcome(mut self) -> Result<Outcome, Error> {
        let seconds = (self.end_ns - self.measure_from_ns) as f64 / NS;
        let gbps = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e9;
        let stats = &self.pacer.stats().total;
        let window = self.pacer.window_bytes();
        let wire_bytes = self.bytes as f64 * self.machine.wire_factor + self.ops as f64 * self.machine.wire_op_bytes;
        let samples = self.samples.max(1) as f64;
        let [small, large] = &self.latency;
        let simulated_gbps = gbps(self.bytes);
        let trusted = Trusted::of(self.scenario, simulated_gbps)?;
        let outcome = Outcome {
            name: self.scenario.name.clone(),
            seed: self.scenario.seed,
            seconds,
            gbps: simulated_gbps,
            simulated_gbps,
            confidence: trusted.confidence,
            iops: self.ops as f64 / seconds,
            wire_gbps: wire_bytes * 8.0 / seconds / 1e9,
            all: ClassOutcome::of(&self.all_latency[0], &self.all_latency[1]),
            small: ClassOutcome::of(&small[0], &small[1]),
            large: ClassOutcome::of(&large[0], &large[1]),
            in_flight_mib: self.in_flight_sum / samples,
            window_mib: (window < 1 << 49).then_some(window as f64 / 1_048_576.0),
            period_us: self.period_sum / samples,
            held_fraction: stats.held as f64 / (stats.admitted + stats.held_now).max(1) as f64,
            hold_us: (stats.hold_ns.mean() / 1e3, stats.hold_ns.quantile(0.99) as f64 / 1e3),
            core_busy: self.cores_busy_ns / (seconds * NS * self.cores_free_ns.len() as f64),
            tenant_gbps: self.tenant_bytes.iter().map(|&b| gbps(b)).collect(),
            drive_gbps: self.drive_bytes.iter().map(|&b| gbps(b)).collect(),
            refused: self.refused,
            curve: std::mem::take(&mut self.curve),
            events: self.events,
        };
        Ok(outcome.corrected(trusted.gbps))
    }
}

//! The load of a scenario as numbers, and the distance between two loads.

use super::ids;
use super::kinds;
use super::machine::Machine;
use super::scenario::Scenario;
use crate::config::{Error, Method};

/// A load on a machine, as numbers that a distance can be taken of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// The name of the machine's profile.
    pub profile: String,
    /// The name of the pacing method.
    pub method: &'static str,
    /// Ops in flight over all jobs and hosts.
    pub ops: u64,
    /// Copies of a job on a host.
    pub per_host: u32,
    /// Cores of the target.
    pub cores: u32,
    /// Bytes of the smallest op.
    pub bytes: u64,
    /// Percent of the ops that are larger than 16 KiB.
    pub large_percent: f64,
    /// Bytes of the pool of buffers; 0 without one.
    pub pool_bytes: u64,
    /// True if the smallest ops bypass the pacer.
    pub bypass: bool,
    /// Part of the namespaces that is delayed.
    pub delayed: f64,
    /// True if the data of the smallest ops come with their commands.
    pub in_capsule: bool,
    /// The fixed part of the latency of the initiators and the fabric, microseconds.
    pub turnaround_us: f64,
}

impl Load {
    /// The load of `scenario` on `machine`.
    ///
    /// # Errors
    /// Namespaces or hosts that cannot be read.
    pub(super) fn of(scenario: &Scenario, machine: &Machine) -> Result<Load, Error> {
        let jobs = &scenario.jobs;
        let ops: u64 = jobs.iter().map(kinds::ops).sum();
        let sizes = || jobs.iter().flat_map(|job| &job.sizes).filter(|size| size.percent > 0.0);
        let bytes = sizes().map(|size| size.bytes).min().unwrap_or(0);
        let large = |job: &super::Job| -> f64 {
            let percent = |least: u64| job.sizes.iter().filter(|s| s.bytes > least).map(|s| s.percent).sum::<f64>();
            kinds::ops(job) as f64 * percent(kinds::SMALL_BYTES) / percent(0).max(f64::MIN_POSITIVE)
        };
        let namespaces = scenario.namespaces.unwrap_or(machine.drive_count());
        let mut delayed = 0;
        for delay in &scenario.delay {
            delayed += ids::parse(&delay.namespaces, namespaces, "delay.namespaces")?.len();
        }
        let (method, pool_bytes, bypass_bytes) = method(&scenario.pacing.method);
        Ok(Load {
            profile: scenario.machine.get("profile").and_then(toml::Value::as_str).unwrap_or_default().into(),
            method,
            ops,
            per_host: jobs.first().map_or(1, |job| job.per_host),
            cores: machine.cores,
            bytes,
            large_percent: 100.0 * jobs.iter().map(large).sum::<f64>() / ops.max(1) as f64,
            pool_bytes,
            bypass: bypass_bytes >= bytes,
            delayed: delayed as f64 / f64::from(namespaces.max(1)),
            in_capsule: jobs.iter().any(|job| job.write_percent > 0.0) && bytes <= machine.in_capsule_bytes.into(),
            turnaround_us: machine.turnaround_us,
        })
    }

    /// The distance to `other`: an octave of a number counts as much as another method or another machine.
    pub fn distance(&self, other: &Load) -> f64 {
        let octaves = |a: f64, b: f64| (a.max(1.0) / b.max(1.0)).log2().abs();
        let pool = match (self.pool_bytes, other.pool_bytes) {
            (0, 0) => 0.0,
            (0, _) | (_, 0) => 1.0,
            (a, b) => octaves(a as f64, b as f64),
        };
        0.5 * (f64::from(u8::from(self.profile != other.profile))
            + f64::from(u8::from(self.method != other.method))
            + f64::from(u8::from(self.bypass != other.bypass))
            + f64::from(u8::from(self.in_capsule != other.in_capsule))
            + octaves(self.turnaround_us, other.turnaround_us)
            + octaves(self.ops as f64, other.ops as f64)
            + octaves(f64::from(self.per_host), f64::from(other.per_host))
            + octaves(f64::from(self.cores), f64::from(other.cores))
            + octaves(self.bytes as f64, other.bytes as f64)
            + pool)
            + 2.0 * ((self.large_percent / 100.0).sqrt() - (other.large_percent / 100.0).sqrt()).abs()
            + 1.5 * (self.delayed - other.delayed).abs()
    }
}

/// The name of a method, the bytes of its pool, and the size up to which ops bypass it.
fn method(method: &Method) -> (&'static str, u64, u64) {
    match method {
        Method::Buffers { count, unit_bytes, .. } => ("buffers", u64::from(*count) * u64::from(*unit_bytes), 0),
        Method::Rate { credits } => ("rate", 0, credits.bypass_bytes.into()),
        Method::RateDelivered { credits, .. } => ("rate-delivered", 0, credits.bypass_bytes.into()),
        Method::RateInFlight { credits, .. } => ("rate-in-flight", 0, credits.bypass_bytes.into()),
        _ => ("none", 0, 0),
    }
}

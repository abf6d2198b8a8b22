//! The simulated machine: the machine's profile, its numbers and its cache.

use serde::{Deserialize, Serialize};

use super::learn::Learned;
use crate::config::Error;

/// A target machine with its initiators' links. Profiles are calibrated once and then frozen (docs/pacing.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// One line: the machine that the profile stands for.
    pub about: String,
    /// Network ports of the target.
    pub ports: u32,
    /// Wire rate of one, Gb/s, each direction.
    pub port_gbps: f64,
    /// Wire rate of each initiator's link, Gb/s.
    pub host_gbps: f64,
    /// Wire bytes per payload byte.
    pub wire_factor: f64,
    /// Wire bytes per op beyond that.
    pub wire_op_bytes: f64,
    /// Microseconds from an initiator's completion of an op to the arrival of its next command at the target.
    pub turnaround_us: f64,
    /// Microseconds more until the target has the data of a write: the round trip by which it fetches them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fetch_us: f64,
    /// Microseconds of a core when these data are there. Default: half of an op's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_op_us: Option<f64>,
    /// Writes of up to this many bytes carry their data with the command, so that the target fetches nothing.
    #[serde(default, skip_serializing_if = "is_zero_bytes")]
    pub in_capsule_bytes: u32,
    /// Microseconds of an initiator's core per op; each copy of a job has a separate core.
    pub initiator_op_us: f64,
    /// Measured work of an initiator's core: bytes of an op, ops in flight of a copy of the job, microseconds per op.
    /// An initiator that has more in flight takes more completions at a time, and works less for each of them. Without
    /// these points, an op takes `initiator_op_us`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initiator_by_depth: Vec<(u64, u32, f64)>,
    /// Commands that a connection carries at a time; further ones wait at the initiator. Without it, no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<u32>,
    /// Cores that process commands; a connection belongs to one of them.
    pub cores: u32,
    /// Microseconds of a core per op.
    pub op_us: f64,
    /// Microseconds more per op on a core that has very many ops, whose records do not stay in the core's cache. Half
    /// of them at `deep_ops` ops on the core.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deep_us: f64,
    /// The number of ops on a core at which an op takes half of `deep_us` more.
    #[serde(default = "deep_ops", skip_serializing_if = "is_deep_ops")]
    pub deep_ops: f64,
    /// The last-level cache, and what spilling it costs.
    pub cache: Cache,
    /// The drives, which are all equal unless there are `other_drives`.
    pub drives: Drives,
    /// Drives of other kinds in the same machine. Their numbers follow those of `drives`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_drives: Vec<Drives>,
    /// The measurements that the profile was learnt from, where `sim --fit` wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
}

/// The path from memory to the network, whose rate falls as buffers in use spill out of the cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// MiB of buffers in use against the Gb/s of payload that the memory path then carries: at least two points, MiB
    /// ascending. Below the first it is not a bottleneck; between them a monotone cubic in log MiB; beyond the last it
    /// is level.
    pub curve: Vec<(f64, f64)>,
    /// Buffers are taken from stacks, one per core, so that the set in use is larger than what is in flight by this
    /// factor at `few_cores`, ...
    pub spread: f64,
    /// ... by this one from `many_cores` on, ...
    pub many_cores_spread: f64,
    /// ... but never larger than the pool, MiB.
    pub pool_mib: f64,
    /// The rate of the spilled part at `many_cores` cores relative to `few_cores`; geometric in between.
    pub many_cores_factor: f64,
    /// Cores that the curve was taken with.
    pub few_cores: u32,
    /// Cores from which on the factor applies in full.
    pub many_cores: u32,
    /// The set in use follows the buffers in flight while the path carries this many MiB: what the cache holds changes
    /// as data pass, not at once. Default: at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lag_mib: f64,
    /// The factor sets in between the first point of the curve and this many times it.
    pub onset: f64,
}

/// Drives: some channels work on ops side by side, then one bus carries the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drives {
    /// The number of drives.
    pub count: u32,
    /// Ops that a drive works on at a time.
    pub channels: u32,
    /// True if a read has to wait for the one channel that has its blocks; else it takes the first that is free.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub placed: bool,
    /// True if a write has to wait for the one channel that gets its blocks; else it takes the first that is free.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub write_placed: bool,
    /// Microseconds of a channel per read.
    pub read_us: f64,
    /// Microseconds of a read beside those of its channel, such as the controller's: they delay it, and occupy nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub read_fixed_us: f64,
    /// Microseconds of a channel per write.
    pub write_us: f64,
    /// Uniform variation of both, as a fraction: 0.2 is 0.8 to 1.2.
    pub jitter: f64,
    /// Gigabytes per second of the bus.
    pub bus_gbytes: f64,
    /// Microseconds of the bus per op beyond its bytes.
    pub bus_op_us: f64,
    /// Microseconds of the target's core per op for the drive's queue. A null device has none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub core_us: f64,
    /// Gigabytes per second that a drive writes. Default: `bus_gbytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_gbytes: Option<f64>,
    /// Microseconds from one write to the next, however small they are: the limit of writes per second. The limit of
    /// bytes is separate, and a write waits for both. Default: writes take `bus_op_us` of the bus, as reads do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_op_us: Option<f64>,
    /// KiB of a drive's memory for writes, which it takes as fast as the bus brings them and empties at `write_gbytes`.
    /// Default: none, a write is done when it has left the bus at `write_gbytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_buffer_kib: Option<f64>,
}

impl Drives {
    fn check(&self) -> Result<(), String> {
        let fail = |what: &str| Err(format!("drives: {what}"));
        if self.count == 0 || !(1..=4096).contains(&self.channels) {
            return fail("count must be at least 1, channels 1 to 4096");
        }
        if !positive(self.bus_gbytes) || !self.write_gbytes.is_none_or(positive) {
            return fail("bus_gbytes and write_gbytes must be above 0");
        }
        if !self.write_buffer_kib.is_none_or(|kib| (0.0..=1e9).contains(&kib)) {
            return fail("write_buffer_kib must be 0 to 1e9");
        }
        let times = [self.read_us, self.read_fixed_us, self.write_us, self.bus_op_us, self.core_us];
        if !times.into_iter().chain(self.write_op_us).all(is_time) {
            return fail("times in microseconds must be 0 to 1e9");
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return fail("jitter is a fraction, 0 to 1");
        }
        Ok(())
    }
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// True if these can be microseconds of a machine.
fn is_time(us: f64) -> bool {
    (0.0..=1e9).contains(&us)
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn is_zero_bytes(bytes: &u32) -> bool {
    *bytes == 0
}

fn deep_ops() -> f64 {
    1000.0
}

fn is_deep_ops(value: &f64) -> bool {
    *value == deep_ops()
}

const PROFILES: &[(&str, &str)] = &[
    ("intel-16", include_str!("../../profiles/intel-16.toml")),
    ("samsung-16", include_str!("../../profiles/samsung-16.toml")),
    ("intel-12-samsung-4", include_str!("../../profiles/intel-12-samsung-4.toml")),
    ("samsung-12-intel-4", include_str!("../../profiles/samsung-12-intel-4.toml")),
    ("small-cache", include_str!("../../profiles/small-cache.toml")),
    ("big-cache", include_str!("../../profiles/big-cache.toml")),
    ("rack-1000", include_str!("../../profiles/rack-1000.toml")),
];

/// The names of the shipped profiles.
pub fn profiles() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|(name, _)| *name)
}

/// The text of a shipped profile.
///
/// # Errors
/// No profile of this name; the message lists those there are.
pub fn profile(name: &str) -> Result<&'static str, Error> {
    PROFILES.iter().find(|(n, _)| *n == name).map(|(_, text)| *text).ok_or_else(|| {
        let names: Vec<_> = profiles().collect();
        Error(format!("machine.profile = {name:?}: no such profile; one of {}", names.join(", ")))
    })
}

impl Machine {
    /// The shipped profile `name`.
    ///
    /// # Errors
    /// As [`profile`].
    pub fn shipped(name: &str) -> Result<Machine, Error> {
        toml::from_str(profile(name)?).map_err(|e| Error(format!("profile {name}: {e}")))
    }

    /// Microseconds of an initiator's core per op of these bytes, of a job with `depth` in flight: those of the nearest
    /// measured size, between two depths on a line of both logarithms.
    pub(super) fn initiator_us(&self, bytes: u64, depth: u32) -> f64 {
        let octaves = |of: u64| (of.max(1) as f64 / bytes.max(1) as f64).log2().abs();
        let sizes = self.initiator_by_depth.iter().map(|of| of.0);
        let Some(size) = sizes.min_by(|a, b| octaves(*a).total_cmp(&octaves(*b))) else { return self.initiator_op_us };
        let mut below: Option<(u32, f64)> = None;
        for &(_, at, us) in self.initiator_by_depth.iter().filter(|of| of.0 == size) {
            match below {
                _ if at < depth => below = Some((at, us)),
                Some((from, from_us)) => {
                    let part = (f64::from(depth) / f64::from(from)).ln() / (f64::from(at) / f64::from(from)).ln();
                    return from_us * (us / from_us).powf(part);
                }
                None => return us,
            }
        }
        below.map_or(self.initiator_op_us, |(_, us)| us)
    }

    /// The kinds of its drives.
    pub(super) fn kinds_of_drives(&self) -> impl Iterator<Item = &Drives> {
        std::iter::once(&self.drives).chain(&self.other_drives)
    }

    /// The number of its drives, of all kinds.
    pub(super) fn drive_count(&self) -> u32 {
        self.kinds_of_drives().map(|drives| drives.count).fold(0, u32::saturating_add)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let fail = |what: &str| Err(Error(format!("machine: {what}")));
        let curve = &self.cache.curve;
        if self.ports == 0
            || self.cores == 0
            || self.ports > 4096
            || self.cores > 65_536
            || self.drive_count() > 100_000
        {
            return fail("ports must be 1 to 4096, cores 1 to 65536, and the drives at most 100000");
        }
        if ![self.port_gbps, self.host_gbps, self.cache.pool_mib, self.deep_ops].into_iter().all(positive) {
            return fail("port_gbps, host_gbps, cache.pool_mib and deep_ops must be above 0");
        }
        if self.queue_depth == Some(0) {
            return fail("queue_depth must be at least 1");
        }
        let times = [self.turnaround_us, self.fetch_us, self.initiator_op_us, self.op_us, self.deep_us];
        if !times.into_iter().chain(self.fetch_op_us).all(is_time) || !(0.0..=1e6).contains(&self.wire_op_bytes) {
            return fail("times in microseconds must be 0 to 1e9, and wire_op_bytes 0 to 1e6");
        }
        if !(1.0..=16.0).contains(&self.wire_factor) {
            return fail("wire_factor must be 1 to 16");
        }
        let by_depth = &self.initiator_by_depth;
        if by_depth.iter().any(|&(bytes, depth, us)| bytes == 0 || depth == 0 || !positive(us))
            || by_depth.windows(2).any(|w| (w[0].0, w[0].1) >= (w[1].0, w[1].1))
        {
            return fail("initiator_by_depth needs [bytes, depth, microseconds], ascending, all above 0");
        }
        for drives in self.kinds_of_drives() {
            drives.check().or_else(|what| fail(&what))?;
        }
        if curve.len() < 2
            || curve.iter().any(|&(x, y)| !positive(x) || !positive(y))
            || curve.windows(2).any(|w| w[1].0 <= w[0].0)
        {
            return fail("cache.curve needs two or more [MiB, Gb/s] points above 0, MiB ascending");
        }
        if !(1.0..=16.0).contains(&self.cache.spread)
            || !(1.0..=16.0).contains(&self.cache.many_cores_spread)
            || !(0.0..=1e6).contains(&self.cache.lag_mib)
            || !positive(self.cache.many_cores_factor)
            || self.cache.many_cores <= self.cache.few_cores
            || self.cache.few_cores == 0
            || self.cache.onset <= 1.0
        {
            return fail(
                "cache: spread 1 to 16, lag_mib 0 to 1e6, many_cores_factor above 0, few_cores 1 or more and below many_cores, onset above 1",
            );
        }
        Ok(())
    }
}

/// The memory path's rate as a table over bytes in use, for `cores` cores: one look-up per op.
#[derive(Debug)]
pub(super) struct MemoryPath {
    /// Nanoseconds per byte, by `in use / STEP`.
    ns_per_byte: Vec<f32>,
    spread: f64,
    pool_bytes: f64,
    lag_bytes: f64,
    /// The bytes in flight as the cache knows them.
    followed_bytes: f64,
}

const STEP_BYTES: f64 = 131_072.0;
const STEPS: usize = 8192;

impl MemoryPath {
    pub fn new(cache: &Cache, cores: u32) -> MemoryPath {
        let first_mib = cache.curve[0].0;
        let (few, many) = (f64::from(cache.few_cores), f64::from(cache.many_cores));
        let weight = ((f64::from(cores) / few).ln() / (many / few).ln()).clamp(0.0, 1.0);
        let ns_per_byte = (0..STEPS)
            .map(|i| {
                let mib = i as f64 * STEP_BYTES / 1_048_576.0;
                if mib < first_mib {
                    return 0.0;
                }
                let onset = ((mib / first_mib - 1.0) / (cache.onset - 1.0)).clamp(0.0, 1.0);
                let gbps = monotone_cubic(&cache.curve, mib) * cache.many_cores_factor.powf(weight * onset);
                (8.0 / gbps) as f32
            })
            .collect();
        let spread = cache.spread * (cache.many_cores_spread / cache.spread).powf(weight);
        let (pool_bytes, lag_bytes) = (cache.pool_mib * 1_048_576.0, cache.lag_mib * 1_048_576.0);
        MemoryPath { ns_per_byte, spread, pool_bytes, lag_bytes, followed_bytes: 0.0 }
    }

    /// Nanoseconds that `bytes` take when `in_flight` bytes of buffers are out; `pool_bytes` bounds the set in use.
    #[inline]
    pub fn service_ns(&mut self, bytes: u64, in_flight: u64, pool_bytes: f64) -> f64 {
        let part = if self.lag_bytes > 0.0 { (bytes as f64 / self.lag_bytes).min(1.0) } else { 1.0 };
        self.followed_bytes += (in_flight as f64 - self.followed_bytes) * part;
        let in_use = (self.followed_bytes * self.spread).min(pool_bytes.min(self.pool_bytes));
        let index = ((in_use / STEP_BYTES) as usize).min(STEPS - 1);
        f64::from(self.ns_per_byte[index]) * bytes as f64
    }
}

/// Fritsch and Carlson's monotone cubic through `points` in ln x; level outside them.
fn monotone_cubic(points: &[(f64, f64)], x: f64) -> f64 {
    let last = points.len() - 1;
    if x <= points[0].0 {
        return points[0].1;
    }
    if x >= points[last].0 {
        return points[last].1;
    }
    let k = points.iter().rposition(|p| p.0 <= x).unwrap_or(0).min(last - 1);
    let slope = |i: usize| (points[i + 1].1 - points[i].1) / (points[i + 1].0 / points[i].0).ln();
    // The harmonic mean of neighbouring slopes; one-sided at the ends; 0 at a turn.
    let tangent = |i: usize| match i {
        0 => slope(0),
        i if i == last => slope(last - 1),
        i => {
            let (a, b) = (slope(i - 1), slope(i));
            if a * b <= 0.0 { 0.0 } else { 2.0 * a * b / (a + b) }
        }
    };
    let h = (points[k + 1].0 / points[k].0).ln();
    let t = (x / points[k].0).ln() / h;
    let (t2, t3) = (t * t, t * t * t);
    (2.0 * t3 - 3.0 * t2 + 1.0) * points[k].1
        + (t3 - 2.0 * t2 + t) * h * tangent(k)
        + (3.0 * t2 - 2.0 * t3) * points[k + 1].1
        + (t3 - t2) * h * tangent(k + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_valid() {
        for name in profiles() {
            let machine = Machine::shipped(name).unwrap_or_else(|e| panic!("{e}"));
            machine.check().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }

    #[test]
    fn the_curve_goes_through_its_points_and_stays_between_them() {
        let points = [(10.0, 184.0), (12.0, 177.0), (32.0, 162.0), (256.0, 136.0)];
        for (x, y) in points {
            assert!((monotone_cubic(&points, x) - y).abs() < 1e-9);
        }
        let mut last = f64::INFINITY;
        for i in 0..1000 {
            let y = monotone_cubic(&points, 5.0 + f64::from(i) * 0.4);
            assert!(y <= last + 1e-9 && (136.0..=184.0).contains(&y));
            last = y;
        }
    }
}

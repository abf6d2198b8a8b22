//! The constants of the control law: one set, found by simulation, for every machine.

use serde::{Deserialize, Serialize};

/// Constants of [`AutoPacer`](crate::AutoPacer). The defaults are what every test and figure uses; they are fields so
/// that a simulation can sweep them and show that they are not knife-edges (docs/pacing.md).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// The first window, bytes.
    pub start_bytes: u64,
    /// The smallest window, bytes; two of the largest ops seen, if that is more.
    pub floor_bytes: u64,
    /// A rate is measured in parts of this many ms ...
    pub part_ms: u64,
    /// ... and two windows are compared in at least this many pairs of them ...
    pub pairs_min: u32,
    /// ... and in at most this many, until the difference is sure or precise.
    pub pairs_max: u32,
    /// A difference that is this many standard errors from the bar is sure.
    pub sure: f64,
    /// The standard error of a difference, as a fraction of the rate, that ends a comparison.
    pub precise: f64,
    /// Completions that a part has at least; it lasts up to 20 times longer for them.
    pub part_min_ops: u64,
    /// After a change of window: residences that pass before measuring ...
    pub settle_residences: u64,
    /// ... and at least these ms.
    pub settle_min_ms: u64,
    /// Part of the admissions that had been held, from which on the window counts as the limit.
    pub limited_fraction: f64,
    /// The first probe multiplies (or divides) the window by this; success squares it, up to `step_max`.
    pub step: f64,
    /// The largest step.
    pub step_max: f64,
    /// A larger window is kept if the rate rises by more than this fraction.
    pub keep_up: f64,
    /// A smaller window is kept if the rate falls by less than this fraction.
    pub keep_down: f64,
    /// A probe that loses more than this fraction in its first part is over at once.
    pub bail_out: f64,
    /// A rate that moved by this fraction between epochs is news: probe again at once.
    pub news: f64,
    /// Epochs between probes: doubles with every probe that fails, up to this.
    pub patience_max: u32,
    /// Ops of at most this many bytes are small.
    pub small_op_bytes: u32,
    /// Part of the window that small ops may fill with priority.
    #[serde(alias = "small_lane_fraction")]
    pub small_class_fraction: f64,
    /// Microseconds between recomputations of the drives' shares.
    pub share_us: u64,
    /// Milliseconds over which a drive's recent demand counts as its claim.
    pub demand_ms: u64,
    /// A drive's latency may be this many times its floor before the pacer lends less to the drive.
    pub latency_tolerance: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            start_bytes: 8 << 20,
            floor_bytes: 256 << 10,
            part_ms: 10,
            pairs_min: 2,
            pairs_max: 30,
            sure: 3.0,
            precise: 0.001,
            part_min_ops: 64,
            settle_residences: 4,
            settle_min_ms: 2,
            limited_fraction: 0.1,
            step: 1.25,
            step_max: 2.0,
            keep_up: 0.006,
            keep_down: 0.003,
            bail_out: 0.04,
            news: 0.05,
            patience_max: 16,
            small_op_bytes: 16 << 10,
            small_class_fraction: 0.25,
            share_us: 1000,
            demand_ms: 50,
            latency_tolerance: 1.5,
        }
    }
}

impl Tuning {
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let fraction = |v: f64| (0.0..=1.0).contains(&v);
        if self.start_bytes < 4096 || self.floor_bytes < 4096 {
            Err("start_bytes and floor_bytes must be at least 4096")
        } else if self.part_ms == 0 || self.share_us == 0 || self.demand_ms == 0 {
            Err("part_ms, share_us and demand_ms must be at least 1")
        } else if self.pairs_min == 0 || self.pairs_max < self.pairs_min {
            Err("pairs_min must be at least 1, and pairs_max at least pairs_min")
        } else if !(self.sure >= 0.0 && self.sure.is_finite()) {
            Err("sure must be at least 0")
        } else if !(self.step > 1.0 && self.step_max >= self.step && self.step_max <= 16.0) {
            Err("step must be above 1, and step_max between step and 16")
        } else if ![
            self.limited_fraction,
            self.keep_up,
            self.keep_down,
            self.bail_out,
            self.precise,
            self.news,
            self.small_class_fraction,
        ]
        .into_iter()
        .all(fraction)
        {
            Err("limited_fraction, keep_up, keep_down, news and small_class_fraction are fractions, 0 to 1")
        } else if !(self.latency_tolerance >= 1.0 && self.latency_tolerance.is_finite()) {
            Err("latency_tolerance must be at least 1")
        } else {
            Ok(())
        }
    }
}

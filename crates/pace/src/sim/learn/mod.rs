//! A machine learnt from measured curves: throughput over depth becomes a profile, whose figures have intervals.
//!
//! ```text
//! results of sweeps ─► curves ─► search ─► correction ─► profile, answers
//!                                └ twice on half of the points, then on all
//! ```
//! A curve of one size shows three things: the latency of one op, the highest throughput, and how soon the one turns
//! into the other. A drive of some channels, of which each op needs a certain one, has all three: its fixed latency,
//! its channels' time and their number. Curves of several sizes tell the time of an op from the time of its bytes;
//! curves of several numbers of drives or cores tell the drives' time from the cores'. The measured points correct the
//! errors that remain.

mod answers;
mod correction;
mod curves;
mod fit;
mod search;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use answers::{Answer, answers};
pub use correction::{KnownCurve, Law};
pub use curves::{Curve, Line, Place, Point, curves};
pub use fit::{Figure, Fitted, fit};
pub use search::Constant;

use correction::{Correction, Load};

use super::confidence::{Confidence, Trusted, interval, score};
use super::machine::Machine;
use super::process::Expected;
use super::scenario::Scenario;
use crate::config::Method;

/// The measurements that a profile was learnt from, and the errors of the profile on points that it had not seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// The curves, for people.
    pub from: Vec<String>,
    /// Bytes of the measured ops.
    pub bytes: Vec<u64>,
    /// Percent of the measured ops that wrote.
    pub write_percent: Vec<f64>,
    /// The most ops in flight of a measured point, over all jobs and hosts.
    pub ops_in_flight: u64,
    /// Measured over predicted throughput of steady points that the fit had not seen, ascending.
    pub ratios: Vec<f64>,
    /// The errors of all points that the fit had not seen, in units of the deviation that was expected, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f64>,
    /// The law of the errors of the simulation. Profiles of before have none, and no correction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub law: Option<Law>,
    /// The measured curves, and their simulation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<KnownCurve>,
    /// Of each constant: the values between which it changes the mean error by less than a hundredth.
    pub ranges: BTreeMap<String, (f64, f64)>,
    /// Properties of the machine that the results do not determine.
    pub undetermined: Vec<String>,
    /// The field in which a scenario's machine differs from the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<String>,
}

/// The name of the kind of scenarios for which a learnt profile vouches.
pub const KIND: &str = "points of the fitted results";

impl Learned {
    /// The throughput of `scenario` on a machine that was learnt from these measurements, of which the model says
    /// `simulated_gbps`.
    pub(super) fn trust(&self, scenario: &Scenario, machine: &Machine, simulated_gbps: f64) -> Trusted {
        let outside = |why| Trusted { gbps: simulated_gbps, confidence: Confidence::Outside(why) };
        match (self.outside(scenario, machine), self.correction()) {
            (Some(why), _) => outside(why),
            (None, None) => Trusted { gbps: simulated_gbps, confidence: interval(KIND, &self.ratios, simulated_gbps) },
            (None, Some(correction)) => {
                let expected = correction.measured(&Load::of(scenario, machine));
                let gbps = simulated_gbps * expected.log.exp();
                let rows = self.scores.len();
                let Some((factor, coverage)) = self.factor(expected) else {
                    let confidence = interval(KIND, &self.scores, gbps);
                    return Trusted { gbps, confidence };
                };
                let (low_gbps, high_gbps) = (gbps / factor, gbps * factor);
                let confidence = Confidence::Interval { low_gbps, high_gbps, coverage, kind: KIND.into(), rows };
                Trusted { gbps, confidence }
            }
        }
    }

    /// The correction by the measured curves; None for a profile without them.
    fn correction(&self) -> Option<Correction> {
        self.law.map(|law| Correction::of(&self.curves, law))
    }

    /// The factor by which a throughput may be wrong, to both sides, and the probability that it is not by more; None
    /// if too few points were predicted.
    fn factor(&self, expected: Expected) -> Option<(f64, f64)> {
        let (score, coverage) = score(self.scores.clone())?;
        Some(((score * expected.deviation).exp(), coverage))
    }

    /// The reason why the measurements do not vouch for `scenario`, as a clause.
    fn outside(&self, scenario: &Scenario, machine: &Machine) -> Option<String> {
        if let Some(field) = &self.changed {
            return Some(format!("machine.{field} is not that of the fitted profile"));
        }
        if !matches!(scenario.pacing.method, Method::None) || scenario.pacing.budget_bytes.is_some() {
            return Some("the fitted results were measured without pacing".into());
        }
        let jobs = &scenario.jobs;
        if !scenario.events.is_empty() || !scenario.delay.is_empty() || jobs.iter().any(|j| j.iops.is_some()) {
            return Some("the fitted results were measured with full queues on a machine that does not change".into());
        }
        let sizes = jobs.iter().flat_map(|job| &job.sizes).filter(|size| size.percent > 0.0);
        for size in sizes {
            let alone = (size.percent - 100.0).abs() < 1e-6;
            if !self.bytes.contains(&size.bytes) || !alone {
                return Some(format!("no fitted result has {} % of ops of {} bytes", size.percent, size.bytes));
            }
        }
        let near = |percent: f64| self.write_percent.iter().any(|known| (known - percent).abs() <= 1.0);
        if let Some(job) = jobs.iter().find(|job| !near(job.write_percent)) {
            return Some(format!("no fitted result writes with {} % of its ops", job.write_percent));
        }
        let ops: u64 = jobs.iter().map(super::kinds::ops).sum();
        if ops > self.ops_in_flight {
            return Some(format!("the fitted results have at most {} ops in flight, not {ops}", self.ops_in_flight));
        }
        (machine.drive_count() == 0).then(|| "the machine has no drives".into())
    }
}

//! A machine learnt from measured curves: throughput over depth becomes a profile, whose figures have intervals.
//!
//! ```text
//! results of sweeps ─► curves ─► search (twice on half of the points, then on all) ─► profile, answers
//! ```
//! A curve of one size shows three things: the latency of one op, the highest throughput, and how soon the one turns
//! into the other. A drive of some channels, of which each op needs a certain one, has all three: its fixed latency,
//! its channels' time and their number. Curves of several sizes tell the time of an op from the time of its bytes;
//! curves of several numbers of drives or cores tell the drives' time from the cores'.

mod answers;
mod curves;
mod search;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use answers::{Answer, answers};
pub use curves::{Curve, Line, Place, Point, curves};
pub use search::{Constant, Fitted, fit};

use super::confidence::{Confidence, interval};
use super::machine::Machine;
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
    /// Measured over simulated throughput of points that the fit had not seen, ascending.
    pub ratios: Vec<f64>,
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
    /// The trust in `gbps`, which `scenario` gave on a machine that was learnt from these measurements.
    pub(super) fn trust(&self, scenario: &Scenario, machine: &Machine, gbps: f64) -> Confidence {
        match self.outside(scenario, machine) {
            Some(why) => Confidence::Outside(why),
            None => interval(KIND, &self.ratios, gbps),
        }
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

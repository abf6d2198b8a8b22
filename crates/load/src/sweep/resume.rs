//! A sweep that resumes an earlier one: it takes over the points of the earlier one, if both measure the same thing.
//!
//! Every visit to a point is in the result of a sweep, with its round, so a result is all that a sweep needs in order
//! to go on. The visits of the new part are of new rounds: the machine may be in another state by now, and the load
//! line takes the effect of each round out ([`measure::load_line`]).

use std::collections::BTreeMap;
use std::path::PathBuf;

use measure::schema::{Curve, JobResult, Point, Provenance, SweepResult};
use sys::process;

use super::workload::{RAMP_NS, Workload};
use super::{Axis, Effort};
use crate::Error;

/// The result of a sweep that is to be resumed.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// The file of the result.
    pub path: PathBuf,
    /// The result.
    pub result: SweepResult,
}

impl Resume {
    /// The bytes of the earlier target: a new scratch file is to have as many.
    pub(super) fn target_bytes(&self) -> Option<u64> {
        self.points().filter_map(|point| point.job.facts.target_bytes).max()
    }

    /// The provenance of all parts so far, oldest first.
    pub(super) fn parts(&self) -> Vec<Provenance> {
        let last = std::iter::once(&self.result.provenance);
        self.result.resumed.iter().chain(last).cloned().collect()
    }

    /// Refuses to resume a sweep of another machine, target, axis or recording, and one that began with another state
    /// of the target.
    ///
    /// # Errors
    /// The first difference.
    pub(super) fn check(&self, workload: &Workload, effort: &Effort) -> Result<(), Error> {
        let there = &self.result.provenance.machine;
        let here = process::host();
        let machine =
            |name: &str, kernel: &str, cpus: u32, cpu: &str| format!("host {name} with {kernel} and {cpus} x {cpu}");
        let was = machine(&there.hostname, &there.kernel, there.cpus, &there.cpu);
        self.same("machine", was, machine(&here.name, &here.kernel, here.cpus, &here.cpu))?;

        let hosts = if self.result.ranks.is_empty() { "one process" } else { "many ranks" };
        self.same("number of hosts", hosts, "one process")?;

        let paths = |paths: &[PathBuf]| match paths {
            [] => "no file".to_string(),
            paths => paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        };
        self.same("target", paths(&self.result.paths), paths(&workload.paths))?;

        let axes = |one: &str, other: &str| if other.is_empty() { one.into() } else { format!("{one} and {other}") };
        let across = effort.across.as_ref().map(|across| across.name()).unwrap_or_default();
        self.same("axis", axes(&self.result.axis, &self.result.across), axes(effort.axis.name(), across))?;

        let state = |preconditioned: bool| if preconditioned { "preconditioned" } else { "not preconditioned" };
        self.same(
            "state of the target",
            state(self.result.preconditioning.is_some()),
            state(effort.precondition.is_some()),
        )?;

        let replayed = workload.recorded().map(|recorded| recorded.described());
        let was = replayed.as_ref().and_then(|now| self.result.verdicts.iter().find(|was| was.code == now.code));
        let what =
            |verdict: Option<&measure::verdict::Verdict>| verdict.map_or("none".into(), |said| said.what.clone());
        self.same("recording", what(was), what(replayed.as_ref()))
    }

    /// Refuses an earlier curve that is none of `labels`.
    ///
    /// # Errors
    /// The name of the curve.
    pub(super) fn check_curves(&self, labels: &[&str]) -> Result<(), Error> {
        let lost = self.result.curves.iter().find(|curve| !labels.contains(&curve.label.as_str()));
        lost.map_or(Ok(()), |curve| self.same("set of curves", curve.label.as_str(), labels.join(", ")))
    }

    /// Refuses an earlier point at a place that no sweep along this axis visits.
    ///
    /// # Errors
    /// The place.
    pub(super) fn check_places(&self, axis: &Axis) -> Result<(), Error> {
        let strange = self.points().find(|point| !axis.takes(point.x as u64));
        strange.map_or(Ok(()), |point| {
            let place = format!("{}: it has a point at {} {}", self.path.display(), axis.name(), point.x);
            Err(Error::usage("cannot resume", place, "no sweep visits that: was the file edited? Sweep anew"))
        })
    }

    /// The earlier curve of that name; an empty one if there was none.
    pub(super) fn curve(&self, label: &str) -> Curve {
        let earlier = self.result.curves.iter().find(|curve| curve.label == label);
        let points = earlier.map(|curve| curve.points.iter().cloned().map(as_visited).collect()).unwrap_or_default();
        Curve { label: label.into(), points, ..Curve::default() }
    }

    /// Refuses job options that an earlier point did not have.
    ///
    /// # Errors
    /// The first option that differs.
    pub(super) fn check_options(&self, earlier: &JobResult, options: &[(String, String)]) -> Result<(), Error> {
        let [was, is] = [&earlier.options[..], options].map(in_force);
        let names = was.keys().chain(is.keys());
        let value =
            |options: &BTreeMap<&str, &str>, name: &str| options.get(name).copied().unwrap_or("not set").to_owned();
        // Paths are compared already, and the name of a scratch file never comes twice.
        names
            .filter(|name| **name != "filename")
            .try_for_each(|name| self.same(&format!("job option {name}"), value(&was, name), value(&is, name)))
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.result.curves.iter().flat_map(|curve| &curve.points)
    }

    fn same(&self, what: &str, was: impl AsRef<str>, is: impl AsRef<str>) -> Result<(), Error> {
        let (was, is) = (was.as_ref(), is.as_ref());
        if was == is {
            return Ok(());
        }
        let place = format!("{}: another {what}: {was} there, {is} here", self.path.display());
        Err(Error::usage("cannot resume", place, HINT))
    }
}

const HINT: &str = "give the arguments of that sweep, or sweep anew";

/// Refuses a visit to a target that had another size before.
///
/// # Errors
/// Both sizes.
pub(super) fn check_size(earlier: &Curve, now: &Point, axis: &Axis) -> Result<(), Error> {
    // Along an axis of sizes, only visits to the same place had this one.
    let like = |point: &&Point| point.x == now.x || axis.name() != "size";
    let before = earlier.points.iter().find(like).and_then(|point| point.job.facts.target_bytes);
    match before.zip(now.job.facts.target_bytes) {
        Some((was, is)) if was != is => {
            let place = format!("another size of the target: {was} bytes then, {is} bytes now");
            Err(Error::usage("cannot resume:", place, HINT))
        }
        _ => Ok(()),
    }
}

/// The options that are in force: the last one of a name counts.
fn in_force(options: &[(String, String)]) -> BTreeMap<&str, &str> {
    options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// A point as its visits left it, without the wider intervals and the verdicts that ended the earlier sweep.
fn as_visited(mut point: Point) -> Point {
    (point.job.verdicts, point.job.checks) = Default::default();
    point.estimated()
}

/// Nanoseconds from the start of a curve to the end of its last visit.
pub(super) fn spent_ns(curve: &Curve) -> u64 {
    let end = |point: &Point| {
        let last = point.visits.iter().map(|visit| visit.at_ns).max()?;
        Some(last + RAMP_NS + point.job.runtime_ns / point.visits.len() as u64)
    };
    curve.points.iter().filter_map(end).max().unwrap_or(0)
}

/// The number of visits to a curve.
pub(super) fn visits(curve: &Curve) -> u64 {
    curve.points.iter().map(|point| point.visits.len() as u64).sum()
}

/// The last round of a curve; 0 before the first.
pub(super) fn last_round(curve: &Curve) -> u32 {
    curve.points.iter().flat_map(|point| &point.visits).map(|visit| visit.round).max().unwrap_or(0)
}

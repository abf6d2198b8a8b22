//! The correction of a learnt machine by the points that it was learnt from.
//!
//! The logarithm of measured over simulated throughput is a Gaussian process over the load: near points have near
//! errors. Each point counts by its own interval. The points tell how large the errors of the simulation are, and how
//! soon they change: the law is the one of [`Law::all`] under which the errors are most probable.

use serde::{Deserialize, Serialize};

use super::super::kinds;
use super::super::machine::Machine;
use super::super::process::{Expected, Process};
use super::super::scenario::Scenario;

/// The standard deviation of a point whose sweep knows it exactly: the noise of a simulation.
const EXACT: f64 = 0.01;
/// A part of the throughput to each side that has 95 % of a normal law, in standard deviations.
const SIDES: f64 = 1.96;
/// Octaves between ops that only read and ops that only write.
const WRITES: f64 = 4.0;

/// A load on a learnt machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Bytes of an op.
    pub bytes: u64,
    /// Percent of the ops that write.
    pub write_percent: f64,
    /// Ops in flight over all jobs and hosts.
    pub ops: f64,
    /// Copies of the job over all hosts.
    pub jobs: u64,
    /// Drives of the machine.
    pub drives: u32,
    /// Cores of the target.
    pub cores: u32,
}

impl Load {
    /// The load of `scenario` on `machine`; all its ops have one size.
    pub fn of(scenario: &Scenario, machine: &Machine) -> Load {
        let jobs = &scenario.jobs;
        let sizes = jobs.iter().flat_map(|job| &job.sizes).filter(|size| size.percent > 0.0);
        Load {
            bytes: sizes.map(|size| size.bytes).max().unwrap_or(0),
            write_percent: jobs.first().map_or(0.0, |job| job.write_percent),
            ops: jobs.iter().map(kinds::ops).sum::<u64>() as f64,
            jobs: jobs.iter().map(|job| kinds::ops(job) / u64::from(job.depth)).sum(),
            drives: machine.drive_count(),
            cores: machine.cores,
        }
    }

    /// The distance to `other`, octaves.
    pub fn octaves(&self, other: &Load) -> f64 {
        let octaves = |a: f64, b: f64| (a.max(1.0) / b.max(1.0)).log2().abs();
        octaves(self.bytes as f64, other.bytes as f64)
            + octaves(self.ops, other.ops)
            + octaves(self.jobs as f64, other.jobs as f64)
            + octaves(self.drives.into(), other.drives.into())
            + octaves(self.cores.into(), other.cores.into())
            + WRITES * (self.write_percent - other.write_percent).abs() / 100.0
    }
}

/// A measured curve, and its simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownCurve {
    /// Bytes of an op.
    pub bytes: u64,
    /// Percent of the ops that wrote.
    pub write_percent: f64,
    /// Copies of the job over all hosts.
    pub jobs: u64,
    /// Drives of the machine.
    pub drives: u32,
    /// Cores of the target.
    pub cores: u32,
    /// Of each point: ops in flight over all jobs, measured ops per second, half of their interval as a part of them,
    /// simulated ops per second.
    pub points: Vec<(u64, f64, f64, f64)>,
}

impl KnownCurve {
    fn points(&self) -> impl Iterator<Item = Known> {
        let KnownCurve { bytes, write_percent, jobs, drives, cores, ref points } = *self;
        let comparable = points.iter().filter(|point| point.1 > 0.0 && point.3 > 0.0);
        comparable.map(move |&(ops, iops, uncertain, simulated_iops)| Known {
            load: Load { bytes, write_percent, ops: ops as f64, jobs, drives, cores },
            error: (iops / simulated_iops).ln(),
            variance: variance(uncertain),
        })
    }
}

/// The variance of the logarithm of a measurement by itself, by half of its interval.
pub fn variance(uncertain: f64) -> f64 {
    EXACT * EXACT + (uncertain / SIDES).powi(2)
}

/// The error of a simulation at a measured point.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    load: Load,
    /// The logarithm of measured over simulated throughput.
    error: f64,
    /// The variance of the measurement by itself.
    variance: f64,
}

/// The covariance of the errors of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Law {
    /// The standard deviation of the errors, in units of a natural logarithm.
    pub deviation: f64,
    /// The octaves of the load over which the covariance falls to the e-th part.
    pub octaves: f64,
}

impl Law {
    /// The laws that the points choose from.
    fn all() -> impl Iterator<Item = Law> {
        [0.01, 0.02, 0.04, 0.08, 0.16, 0.32]
            .into_iter()
            .flat_map(|deviation| [1.0, 2.0, 4.0, 8.0].map(|octaves| Law { deviation, octaves }))
    }

    /// The law under which the errors of the points are most probable.
    pub fn of(curves: &[KnownCurve]) -> Law {
        let probable = |law: &Law| Correction::of(curves, *law).process.likelihood();
        let laws = Law::all().map(|law| (probable(&law), law));
        laws.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are laws").1
    }

    /// The covariance of the errors of two loads that are these octaves apart.
    fn covariance(&self, octaves: f64) -> f64 {
        self.deviation.powi(2) * (-octaves / self.octaves).exp()
    }
}

/// The correction by points under a law.
pub struct Correction {
    points: Vec<Known>,
    law: Law,
    process: Process,
}

impl Correction {
    pub fn of(curves: &[KnownCurve], law: Law) -> Correction {
        let points: Vec<Known> = curves.iter().flat_map(KnownCurve::points).collect();
        let line = |(n, point): (usize, &Known)| {
            let mut line: Vec<f64> =
                points.iter().map(|other| law.covariance(point.load.octaves(&other.load))).collect();
            line[n] += point.variance;
            line
        };
        let covariance = points.iter().enumerate().map(line).collect();
        let process = Process::of(points.iter().map(|point| point.error).collect(), covariance);
        Correction { points, law, process }
    }

    /// The expected error at `load`, without the noise of a measurement.
    pub fn expected(&self, load: &Load) -> Expected {
        let with: Vec<f64> = self.points.iter().map(|point| self.law.covariance(load.octaves(&point.load))).collect();
        let (log, known) = self.process.expected(&with);
        Expected { log, deviation: (self.law.deviation.powi(2) - known).max(0.0).sqrt() }
    }

    /// The expected error at `load`, with the noise of a measurement as that of the nearest point.
    pub fn measured(&self, load: &Load) -> Expected {
        let expected = self.expected(load);
        let octaves = |point: &&Known| point.load.octaves(load);
        let nearest = self.points.iter().min_by(|a, b| octaves(a).total_cmp(&octaves(b)));
        let own = nearest.map_or(0.0, |point| point.variance);
        Expected { deviation: (expected.deviation.powi(2) + own).sqrt(), ..expected }
    }

    /// The expected error after a change of the machine or the load by these octaves from `load`: that at `load`, and a
    /// deviation by which the errors before and after may differ, too.
    pub fn changed(&self, load: &Load, octaves: f64) -> Expected {
        let here = self.measured(load);
        let apart = 2.0 * (self.law.deviation.powi(2) - self.law.covariance(octaves));
        Expected { deviation: (here.deviation.powi(2) + apart).sqrt(), ..here }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: Vec<(u64, f64, f64, f64)>) -> KnownCurve {
        KnownCurve { bytes: 4096, write_percent: 0.0, jobs: 1, drives: 1, cores: 1, points }
    }

    fn load(ops: f64) -> Load {
        Load { bytes: 4096, write_percent: 0.0, ops, jobs: 1, drives: 1, cores: 1 }
    }

    #[test]
    fn a_figure_follows_the_points_and_its_deviation_grows_away_from_them() {
        // A simulation that is 20 % too fast from 16 ops in flight on.
        let point = |ops: u64| (ops, if ops < 16 { 100.0 } else { 80.0 }, 0.02, 100.0);
        let curves = [curve([1, 4, 16, 64, 256].map(point).to_vec())];
        let law = Law::of(&curves);
        assert!(law.deviation >= 0.08, "{law:?}");
        let correction = Correction::of(&curves, law);
        let at = |ops: f64| correction.expected(&load(ops));
        assert!(at(4.0).log.abs() < 0.02 && (at(64.0).log - 0.8f64.ln()).abs() < 0.02, "{:?}", at(64.0));
        assert!(at(4.0).deviation < at(8.0).deviation && at(256.0).deviation < at(1024.0).deviation);
        // A change keeps the error, and makes it less certain.
        let (still, changed) = (correction.changed(&load(64.0), 0.0), correction.changed(&load(64.0), 1.0));
        assert!(still.log == changed.log && still.deviation < changed.deviation, "{still:?} {changed:?}");
    }

    #[test]
    fn an_uncertain_point_counts_less_and_errors_that_are_not_there_leave_a_small_deviation() {
        let with = |uncertain: f64| {
            let curves = [curve(vec![(1, 100.0, 0.02, 100.0), (8, 60.0, uncertain, 100.0), (64, 100.0, 0.02, 100.0)])];
            let law = Law { deviation: 0.16, octaves: 4.0 };
            Correction::of(&curves, law).expected(&load(8.0)).log
        };
        assert!(with(0.02) < -0.4 && with(0.5) > -0.2, "{} {}", with(0.02), with(0.5));
        let exact = [curve([1, 4, 16, 64].map(|ops| (ops, 100.0, 0.02, 100.0)).to_vec())];
        assert_eq!(Law::of(&exact).deviation, 0.01);
    }
}

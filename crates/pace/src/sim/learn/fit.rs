//! The fit: a machine searched on all points, its correction, and the errors on points that a half did not see.

use std::collections::BTreeMap;

use super::super::machine::Machine;
use super::Learned;
use super::correction::{Correction, KnownCurve, Law, Load, variance};
use super::curves::Curve;
use super::search::{Constant, FINALISTS, OPS, STEPS, Told, UNCERTAIN, WIDEST, ranges, rounded, search, simulate};
use crate::config::Error;

/// A profile and its distance from what it was fitted on.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The profile.
    pub machine: Machine,
    /// The fitted constants of the profile.
    pub constants: Vec<Constant>,
    /// Ops per second of each point of each curve, as the model alone has them.
    pub simulated: Vec<Vec<f64>>,
    /// Ops per second of each point of each curve, as the profile has them after its correction.
    pub learnt: Vec<Vec<Figure>>,
    /// Ops per second that a fit on the other half of the points predicts, corrected by that half; NaN where both
    /// halves have the point.
    pub predicted: Vec<Vec<f64>>,
}

/// A corrected throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Ops per second.
    pub iops: f64,
    /// The factor by which they may be wrong, to both sides, and the probability that they are not by more. None if
    /// the results have too few points.
    pub error: Option<(f64, f64)>,
}

impl Fitted {
    /// Measured over predicted throughput of the steady points that the fits of the halves had not seen, ascending.
    pub fn ratios(&self) -> &[f64] {
        self.machine.learned.as_ref().map_or(&[], |learned| &learned.ratios)
    }

    /// The factor by which the figure of a measured point may be wrong, to both sides, and the probability that it is
    /// not by more; half of the points have a smaller factor. None if the results have too few points.
    pub fn error(&self) -> Option<(f64, f64)> {
        let mut errors: Vec<_> = self.learnt.iter().flatten().filter_map(|figure| figure.error).collect();
        errors.sort_by(|a, b| a.0.total_cmp(&b.0));
        errors.get(errors.len() / 2).copied()
    }
}

/// The machine that agrees best with `curves`. `progress` is told the part that is done.
///
/// # Errors
/// No curves; a machine that cannot be simulated.
pub fn fit(curves: &[Curve], threads: usize, progress: &dyn Fn(f64)) -> Result<Fitted, Error> {
    if curves.is_empty() {
        return Err(Error("there is no curve to fit".into()));
    }
    let told = Told::by(curves);
    let (mut steps, total) = (0.0, (3 * (1 + FINALISTS * STEPS.len()) + 1) as f64);
    let mut step = || {
        steps += 1.0;
        progress(f64::min(steps / total, 1.0));
    };
    let mut judged = Judged::before(curves);
    for half in 0..2 {
        judged.predict(curves, half, &told, threads, &mut step)?;
    }
    let (mut machine, least) = search(curves, &told, threads, &mut step)?;
    // Until somebody measures them, writes are as reads, and reads as writes.
    let drives = &mut machine.drives;
    if !told.writes {
        (drives.write_us, drives.write_gbytes) = (drives.read_us, Some(drives.bus_gbytes));
    } else if !told.reads {
        (drives.read_us, drives.bus_gbytes) = (drives.write_us, drives.write_gbytes.unwrap_or(drives.bus_gbytes));
    }
    let constants = ranges(&machine, least, curves, &told, threads)?;
    step();
    let simulated = simulate(&machine, curves, curves, OPS.1, threads)?;
    let learned = learned(curves, &told, &constants, &judged, known(&machine, curves, &simulated));
    let learnt = learned.figures(&machine, curves, &simulated);
    machine.learned = Some(learned);
    Ok(Fitted { machine, constants, simulated, learnt, predicted: judged.predicted })
}

/// Points as halves that had not seen them predict them.
struct Judged {
    /// Ops per second of each point of each curve; NaN where no half predicted it.
    predicted: Vec<Vec<f64>>,
    /// The errors in units of the deviation that was expected.
    scores: Vec<f64>,
}

impl Judged {
    fn before(curves: &[Curve]) -> Judged {
        let predicted = curves.iter().map(|curve| vec![f64::NAN; curve.points.len()]).collect();
        Judged { predicted, scores: Vec::new() }
    }

    /// Fits a half, and predicts the points that it lacks by it alone. Either half has every other point, and both have
    /// the ends: a fit is not asked for what lies beyond its points.
    fn predict(
        &mut self,
        curves: &[Curve],
        half: usize,
        told: &Told,
        threads: usize,
        step: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let kept = |n: usize, last: usize| n % 2 == half || n == 0 || n == last;
        let seen: Vec<Curve> = curves.iter().map(|curve| thinned(curve, &kept)).collect();
        let (machine, _) = search(&seen, told, threads, step)?;
        let simulated = simulate(&machine, &seen, curves, OPS.1, threads)?;
        let of_seen = |(curve, simulated): (&Curve, &Vec<f64>)| {
            let last = curve.points.len() - 1;
            simulated.iter().enumerate().filter(|(n, _)| kept(*n, last)).map(|(_, iops)| *iops).collect::<Vec<f64>>()
        };
        let simulated_seen: Vec<Vec<f64>> = curves.iter().zip(&simulated).map(of_seen).collect();
        let known = known(&machine, &seen, &simulated_seen);
        let correction = Correction::of(&known, Law::of(&known));
        for (at, curve) in curves.iter().enumerate() {
            let last = curve.points.len() - 1;
            for (n, point) in curve.points.iter().enumerate().filter(|(n, _)| !kept(*n, last)) {
                let expected = correction.expected(&curve.load(&machine, point.depth));
                let iops = simulated[at][n] * expected.log.exp();
                let deviation = (expected.deviation.powi(2) + variance(point.uncertain)).sqrt();
                self.predicted[at][n] = iops;
                self.scores.push(rounded((point.iops / iops).ln().abs() / deviation));
            }
        }
        Ok(())
    }
}

fn thinned(curve: &Curve, kept: &dyn Fn(usize, usize) -> bool) -> Curve {
    let last = curve.points.len() - 1;
    let points = curve.points.iter().enumerate().filter(|(n, _)| kept(*n, last)).map(|(_, point)| *point).collect();
    Curve { points, ..curve.clone() }
}

/// The curves as a correction knows them, with their simulation on `machine`.
fn known(machine: &Machine, curves: &[Curve], simulated: &[Vec<f64>]) -> Vec<KnownCurve> {
    let of_curve = |(curve, simulated): (&Curve, &Vec<f64>)| {
        let Load { bytes, write_percent, jobs, drives, cores, .. } = curve.load(machine, 1);
        let point = |(point, simulated): (&super::Point, &f64)| {
            (curve.in_flight(point.depth), rounded(point.iops), rounded(point.uncertain), rounded(*simulated))
        };
        let points = curve.points.iter().zip(simulated).map(point).collect();
        KnownCurve { bytes, write_percent, jobs, drives, cores, points }
    };
    curves.iter().zip(simulated).map(of_curve).collect()
}

fn learned(curves: &[Curve], told: &Told, constants: &[Constant], judged: &Judged, known: Vec<KnownCurve>) -> Learned {
    let mut bytes: Vec<u64> = curves.iter().map(|curve| curve.bytes).collect();
    bytes.sort_unstable();
    bytes.dedup();
    let mut write_percent: Vec<f64> = curves.iter().map(|curve| curve.write_percent).collect();
    write_percent.sort_by(f64::total_cmp);
    write_percent.dedup();
    let pairs = curves.iter().zip(&judged.predicted).flat_map(|(curve, of)| curve.points.iter().zip(of));
    let steady = pairs.filter(|(point, predicted)| predicted.is_finite() && point.uncertain <= UNCERTAIN);
    let ascending = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    let mut undetermined = told.undetermined(curves);
    let loose = |c: &&Constant| c.range.1 / c.value >= WIDEST * 0.99 && c.value / c.range.0 >= WIDEST * 0.99;
    for constant in constants.iter().filter(loose) {
        undetermined.push(format!("{}: a fourth of it and four times it fit alike", constant.name));
    }
    let in_flight = curves.iter().flat_map(|curve| curve.points.iter().map(|point| curve.in_flight(point.depth)));
    Learned {
        from: curves.iter().map(|curve| curve.name.clone()).collect(),
        bytes,
        write_percent,
        ops_in_flight: in_flight.max().unwrap_or(0),
        ratios: ascending(steady.map(|(point, predicted)| rounded(point.iops / predicted)).collect()),
        scores: ascending(judged.scores.clone()),
        law: Some(Law::of(&known)),
        curves: known,
        ranges: constants.iter().map(|c| (c.name.to_string(), c.range)).collect::<BTreeMap<_, _>>(),
        undetermined,
        changed: None,
    }
}

impl Learned {
    /// The corrected throughput of each point of `curves`, of which the model says `simulated`.
    fn figures(&self, machine: &Machine, curves: &[Curve], simulated: &[Vec<f64>]) -> Vec<Vec<Figure>> {
        let Some(correction) = self.correction() else { return Vec::new() };
        let of_curve = |(curve, simulated): (&Curve, &Vec<f64>)| {
            let figure = |(point, simulated): (&super::Point, &f64)| {
                let expected = correction.measured(&curve.load(machine, point.depth));
                Figure { iops: simulated * expected.log.exp(), error: self.factor(expected) }
            };
            curve.points.iter().zip(simulated).map(figure).collect()
        };
        curves.iter().zip(simulated).map(of_curve).collect()
    }
}

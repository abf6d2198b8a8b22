//! The search for the machine that gives the measured curves.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::machine::{Cache, Drives, Machine};
use super::super::sweep::{Run, run_all};
use super::curves::{Curve, Point};
use crate::config::Error;

/// A fitted constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Constant {
    /// The path of its field in the profile.
    pub name: &'static str,
    /// The value that fits best.
    pub value: f64,
    /// The values between which the mean error changes by less than a hundredth.
    pub range: (f64, f64),
}

struct Parameter {
    name: &'static str,
    get: fn(&mut Machine) -> &mut f64,
    low: f64,
    high: f64,
}

macro_rules! parameter {
    ($name:literal, |$m:ident| $get:expr, $low:literal..$high:literal) => {
        Parameter { name: $name, get: |$m| &mut $get, low: $low, high: $high }
    };
}

const TURNAROUND: Parameter = parameter!("turnaround_us", |m| m.turnaround_us, 0.1..1e7);
const READ: Parameter = parameter!("drives.read_us", |m| m.drives.read_us, 0.02..1e7);
const WRITE: Parameter = parameter!("drives.write_us", |m| m.drives.write_us, 0.02..1e7);
const JITTER: Parameter = parameter!("drives.jitter", |m| m.drives.jitter, 0.05..1.0);
const BUS: Parameter = parameter!("drives.bus_gbytes", |m| m.drives.bus_gbytes, 1e-4..1e4);
const BUS_WRITE: Parameter =
    parameter!("drives.write_gbytes", |m| *m.drives.write_gbytes.get_or_insert(1.0), 1e-4..1e4);
const CORE: Parameter = parameter!("op_us", |m| m.op_us, 0.02..1e6);
const DEEP: Parameter = parameter!("deep_us", |m| m.deep_us, 0.02..1e6);
const DEEP_OPS: Parameter = parameter!("deep_ops", |m| m.deep_ops, 1.0..1e6);

/// The numbers of channels that the search tries.
const CHANNELS: [u32; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128];
/// Of these, the ones that it moves the other constants for.
pub(super) const FINALISTS: usize = 2;
/// Steps of the search, as factors.
pub(super) const STEPS: [f64; 4] = [1.5, 1.2, 1.08, 1.03];
/// Ops of a simulated point while the search compares machines, and at the end.
pub(super) const OPS: (f64, f64) = (1500.0, 6000.0);
/// A point counts as if it were uncertain by this much more: the noise of a short simulation.
const NOISE: f64 = 0.03;
/// A throughput this far below the highest one of its curve, at a larger depth, has fallen.
const FALLEN: f64 = 0.95;
/// A point whose interval reaches further than this part to each side says too little to judge a model by.
pub(super) const UNCERTAIN: f64 = 0.15;
/// Gb/s of a part that never limits anything.
const NO_LIMIT: f64 = 1e6;

/// The properties that a set of curves lets the search tell apart.
pub(super) struct Told {
    sizes: bool,
    pub reads: bool,
    pub writes: bool,
    drives: bool,
    cores: bool,
    falls: bool,
}

impl Told {
    pub fn by(curves: &[Curve]) -> Told {
        let differ = |of: &dyn Fn(&Curve) -> u64| curves.iter().any(|curve| of(curve) != of(&curves[0]));
        Told {
            sizes: differ(&|curve| curve.bytes),
            reads: curves.iter().any(|curve| curve.write_percent < 100.0),
            writes: curves.iter().any(|curve| curve.write_percent > 0.0),
            drives: differ(&|curve| u64::from(curve.drives)),
            cores: differ(&|curve| u64::from(curve.cores.unwrap_or(1))),
            falls: curves.iter().any(|curve| fallen(curve).next().is_some()),
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut all = vec![TURNAROUND, JITTER];
        all.extend(self.reads.then_some(READ));
        all.extend(self.writes.then_some(WRITE));
        all.extend((self.sizes && self.reads).then_some(BUS));
        all.extend((self.sizes && self.writes).then_some(BUS_WRITE));
        all.extend((self.drives || self.cores).then_some(CORE));
        if self.falls && self.sizes {
            all.extend([DEEP, DEEP_OPS]);
        }
        all
    }

    /// Properties that the curves leave open, with the measurement that would tell.
    pub fn undetermined(&self, curves: &[Curve]) -> Vec<String> {
        let mut open = Vec::new();
        if !self.sizes {
            let other = if curves[0].bytes > 16 << 10 { "4k" } else { "128k" };
            open.push(format!(
                "the time of an op and that of its bytes: all results have one size; add a sweep of bs={other} to \
                 tell the cost of each op"
            ));
        }
        if !self.drives && !self.cores {
            open.push(
                "the part that limits the throughput, drives or cores: all results have the same number of both; add a sweep \
                 over more drives (FILE,drives=N), or with fewer cores of the target (FILE,cores=N)"
                    .into(),
            );
        }
        if !self.reads || !self.writes {
            let (missing, rw) = if self.reads { ("writes", "randwrite") } else { ("reads", "randread") };
            open.push(format!("{missing}: add a sweep of rw={rw}"));
        }
        if self.falls && !self.sizes {
            open.push(
                "the cause of the fall, the number or the bytes of ops in flight: the profile says bytes; \
                 add a sweep of another size"
                    .into(),
            );
        }
        open
    }
}

/// The points of a curve beyond its plateau.
fn fallen(curve: &Curve) -> impl Iterator<Item = &Point> {
    let top = curve.points.iter().max_by(|a, b| a.iops.total_cmp(&b.iops));
    let (depth, iops) = top.map_or((u32::MAX, 0.0), |top| (top.depth, top.iops));
    curve.points.iter().filter(move |point| point.depth > depth && point.iops < FALLEN * iops)
}

fn gbps(curve: &Curve, iops: f64) -> f64 {
    iops * curve.bytes as f64 * 8.0 / 1e9
}

fn mib(curve: &Curve, depth: u32) -> f64 {
    (curve.in_flight(depth) * curve.bytes) as f64 / 1_048_576.0
}

/// The memory path by the curve of the largest ops that falls: its rates beyond the plateau are measured ones.
fn memory_path(curves: &[Curve]) -> Vec<(f64, f64)> {
    let never = vec![(1.0, NO_LIMIT), (2.0, NO_LIMIT)];
    let largest = curves.iter().map(|curve| curve.bytes).max();
    let falling = curves.iter().filter(|curve| Some(curve.bytes) == largest && fallen(curve).next().is_some());
    let Some(curve) = falling.max_by(|a, b| a.plateau().total_cmp(&b.plateau())) else { return never };
    let first = fallen(curve).map(|point| point.depth).min().unwrap_or(u32::MAX);
    let last_good = curve.points.iter().rfind(|point| point.depth < first);
    let Some(good) = last_good else { return never };
    let known: Vec<&Point> = fallen(curve).filter(|point| point.uncertain <= UNCERTAIN).collect();
    if known.is_empty() {
        return never;
    }
    let mut knots = vec![(mib(curve, good.depth) * 1.001, 1.02 * gbps(curve, curve.plateau()))];
    knots.extend(known.iter().map(|point| (mib(curve, point.depth), gbps(curve, point.iops))));
    // More bytes in flight never make the path faster: the rate at a knot is at least that at any later one.
    for n in (1..knots.len() - 1).rev() {
        knots[n].1 = knots[n].1.max(knots[n + 1].1);
    }
    knots
}

/// The work of the initiators as the points have it, ascending; of points with one size and depth, the mean.
fn initiator_by_depth(curves: &[Curve]) -> Vec<(u64, u32, f64)> {
    let mut of: BTreeMap<(u64, u32), Vec<f64>> = BTreeMap::new();
    for (curve, point) in curves.iter().flat_map(|curve| curve.points.iter().map(move |point| (curve, point))) {
        of.entry((curve.bytes, point.depth)).or_default().push(point.initiator_us.max(0.001));
    }
    let mean = |us: Vec<f64>| rounded(us.iter().sum::<f64>() / us.len() as f64);
    of.into_iter().map(|((bytes, depth), us)| (bytes, depth, mean(us))).collect()
}

/// A machine with these many channels that has about the latency and the throughput of the curves.
fn start(curves: &[Curve], told: &Told, channels: u32) -> Machine {
    let per_drive = |curve: &Curve| f64::from(curve.drives);
    // The curve with the most ops per second tells the time of an op, that with the most bytes the time of a byte.
    let most = |of: &dyn Fn(&Curve) -> f64| curves.iter().map(of).fold(0.0, f64::max);
    let ops = most(&|curve| curve.plateau() / per_drive(curve));
    let gbytes = most(&|curve| curve.plateau() * curve.bytes as f64 / 1e9 / per_drive(curve));
    let latency_us = |curve: &Curve| {
        let first = curve.points[0];
        1e6 * curve.in_flight(first.depth) as f64 / first.iops
    };
    let least_us = curves.iter().map(latency_us).fold(f64::INFINITY, f64::min);
    let service_us = f64::from(channels) * 1e6 / ops;
    let falls = curves.iter().map(|curve| fallen(curve).count()).max().unwrap_or(0) > 0;
    Machine {
        about: "Learnt from measured results".into(),
        ports: 1,
        port_gbps: NO_LIMIT,
        host_gbps: NO_LIMIT,
        wire_factor: 1.0,
        wire_op_bytes: 0.0,
        turnaround_us: (least_us - service_us).max(1.0),
        fetch_us: 0.0,
        fetch_op_us: None,
        in_capsule_bytes: 0,
        initiator_op_us: rounded(curves.iter().map(Curve::initiator_us).fold(f64::INFINITY, f64::min)),
        initiator_by_depth: initiator_by_depth(curves),
        queue_depth: None,
        cores: curves[0].cores.unwrap_or(1),
        op_us: if told.drives || told.cores { 0.2e6 / ops } else { 0.0 },
        deep_us: if told.falls && told.sizes && falls { 0.5e6 / ops } else { 0.0 },
        deep_ops: 1000.0,
        cache: Cache {
            curve: memory_path(curves),
            spread: 1.0,
            many_cores_spread: 1.0,
            pool_mib: 1e6,
            many_cores_factor: 1.0,
            few_cores: 1,
            many_cores: 65_536,
            lag_mib: 0.0,
            onset: 1.5,
        },
        drives: Drives {
            count: curves[0].drives,
            channels,
            placed: true,
            write_placed: true,
            read_us: service_us,
            read_fixed_us: 0.0,
            write_us: service_us,
            jitter: 0.5,
            bus_gbytes: if told.sizes { 1.2 * gbytes } else { 1e4 },
            bus_op_us: 0.0,
            core_us: 0.0,
            write_gbytes: Some(if told.sizes { 1.2 * gbytes } else { 1e4 }),
            write_buffer_kib: None,
            write_op_us: None,
        },
        other_drives: Vec::new(),
        learned: None,
    }
}

/// The scenario of a curve's point on `machine`, with the drives and the cores of the curve.
pub(super) fn run_of(machine: &Machine, curve: &Curve, point: &Point, ops: f64) -> Result<Run, Error> {
    let mut own = machine.clone();
    own.drives.count = curve.drives;
    own.cores = curve.cores.unwrap_or(machine.cores);
    own.initiator_op_us = curve.initiator_us();
    own.initiator_by_depth = initiator_by_depth(std::slice::from_ref(curve));
    let mut scenario = curve.scenario(point.depth, point.iops, ops);
    scenario.machine = toml::Table::try_from(&own).map_err(|e| Error(format!("machine: {e}")))?;
    Ok(Run { set: Vec::new(), scenario })
}

/// Ops per second on `machine` at each point of `at`, which are further points of `curves`.
pub(super) fn simulate(
    machine: &Machine,
    curves: &[Curve],
    at: &[Curve],
    ops: f64,
    threads: usize,
) -> Result<Vec<Vec<f64>>, Error> {
    let of_curve =
        |(curve, at): (_, &Curve)| at.points.iter().map(|point| run_of(machine, curve, point, ops)).collect::<Vec<_>>();
    let runs = curves.iter().zip(at).flat_map(of_curve).collect::<Result<Vec<_>, _>>()?;
    let mut rest = run_all(&runs, threads, &|_| {})?.into_iter().map(|outcome| outcome.iops);
    Ok(at.iter().map(|curve| rest.by_ref().take(curve.points.len()).collect()).collect())
}

/// The weighted mean of the errors, each curve's alike. An error above a half counts as a half.
fn cost(machine: &Machine, curves: &[Curve], threads: usize) -> Result<f64, Error> {
    let simulated = simulate(machine, curves, curves, OPS.0, threads)?;
    let of_curve = |(curve, simulated): (&Curve, &Vec<f64>)| {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (point, simulated) in curve.points.iter().zip(simulated) {
            let weight = NOISE / (NOISE + point.uncertain);
            sum += weight * (simulated / point.iops).ln().abs().min(0.5);
            weights += weight;
        }
        sum / weights
    };
    Ok(curves.iter().zip(&simulated).map(of_curve).sum::<f64>() / curves.len() as f64)
}

pub(super) fn search(
    curves: &[Curve],
    told: &Told,
    threads: usize,
    step: &mut dyn FnMut(),
) -> Result<(Machine, f64), Error> {
    let mut starts = Vec::new();
    for channels in CHANNELS {
        let machine = start(curves, told, channels);
        starts.push((cost(&machine, curves, threads)?, machine));
    }
    step();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let parameters = told.parameters();
    let mut best: Option<(Machine, f64)> = None;
    for (mut least, mut machine) in starts.into_iter().take(FINALISTS) {
        for factor in STEPS {
            for parameter in &parameters {
                for factor in [factor, 1.0 / factor] {
                    let (mut tries, before) = (0, least);
                    while tries < 4 {
                        let next = moved(&machine, parameter, factor);
                        let cost = cost(&next, curves, threads)?;
                        if cost >= least - 1e-5 {
                            break;
                        }
                        (machine, least, tries) = (next, cost, tries + 1);
                    }
                    if least < before {
                        break;
                    }
                }
            }
            step();
        }
        if best.as_ref().is_none_or(|(_, cost)| least < *cost) {
            best = Some((machine, least));
        }
    }
    best.ok_or_else(|| Error("no machine to begin with".into()))
}

fn moved(machine: &Machine, parameter: &Parameter, factor: f64) -> Machine {
    let mut next = machine.clone();
    let value = (parameter.get)(&mut next);
    *value = rounded((*value * factor).clamp(parameter.low, parameter.high));
    next
}

/// A value with four digits: a profile is read by people.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The errors that a change of a constant may add before the results speak against it.
const ADDED: f64 = 0.01;
/// A constant that may change by this factor to both sides is not determined.
pub(super) const WIDEST: f64 = 4.0;

pub(super) fn ranges(
    machine: &Machine,
    least: f64,
    curves: &[Curve],
    told: &Told,
    threads: usize,
) -> Result<Vec<Constant>, Error> {
    let mut constants = Vec::new();
    for parameter in told.parameters() {
        let value = *(parameter.get)(&mut machine.clone());
        let mut ends = [value; 2];
        for (end, sign) in ends.iter_mut().zip([-1.0, 1.0]) {
            for factor in [1.05f64, 1.1, 1.2, 1.5, 2.0, WIDEST] {
                let next = moved(machine, &parameter, factor.powf(sign));
                if cost(&next, curves, threads)? > least + ADDED {
                    break;
                }
                *end = *(parameter.get)(&mut next.clone());
            }
        }
        constants.push(Constant { name: parameter.name, value, range: (ends[0], ends[1]) });
    }
    Ok(constants)
}

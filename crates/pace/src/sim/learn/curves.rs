//! Curves of throughput over depth, taken from results of `plimsoll sweep`.

use measure::schema::{self, Answer, SweepResult};

use super::super::machine::Machine;
use super::super::scenario::{Job, Order, Scenario, SizeShare};
use super::correction::Load;
use crate::config::{Config, Error};

/// The machine of a result, as far as its user says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Place {
    /// The number of drives; by the paths of the result unless given.
    pub drives: Option<u32>,
    /// The number of the target's cores.
    pub cores: Option<u32>,
}

/// A measured curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The curve's name, for people.
    pub name: String,
    /// Bytes of an op.
    pub bytes: u64,
    /// Percent of the ops that write.
    pub write_percent: f64,
    /// Hosts with one job each.
    pub hosts: u32,
    /// Copies of the job on a host.
    pub copies: u32,
    /// Drives of the machine.
    pub drives: u32,
    /// Cores of the target; None if the user does not say.
    pub cores: Option<u32>,
    /// The points by ascending depth.
    pub points: Vec<Point>,
    /// The load line as the sweep names it.
    pub load_line: Line,
    /// The depth of the overload.
    pub overload: Option<f64>,
}

/// The load line of a curve.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// At this depth, the upper end where the sweep gives bounds.
    At(f64),
    /// Not within the measured depths: throughput still rises.
    Beyond,
    /// The sweep cannot name it, for this reason.
    Unknown(String),
}

/// A measured point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Ops in flight of each copy.
    pub depth: u32,
    /// Ops per second.
    pub iops: f64,
    /// Half of the interval of the ops per second, as a part of them.
    pub uncertain: f64,
    /// Microseconds of an initiator's processor for each op.
    pub initiator_us: f64,
}

impl Curve {
    /// The highest measured throughput, ops per second.
    pub fn plateau(&self) -> f64 {
        self.points.iter().map(|point| point.iops).fold(0.0, f64::max)
    }

    /// Microseconds of an initiator's processor for each op, at the highest throughput.
    pub fn initiator_us(&self) -> f64 {
        self.points.iter().max_by(|a, b| a.iops.total_cmp(&b.iops)).map_or(0.0, |best| best.initiator_us)
    }

    /// Ops in flight over all hosts and copies at `depth`.
    pub fn in_flight(&self, depth: u32) -> u64 {
        u64::from(depth) * u64::from(self.hosts) * u64::from(self.copies)
    }

    /// The load of this curve at `depth` on `machine`.
    pub(super) fn load(&self, machine: &Machine, depth: u32) -> Load {
        Load {
            bytes: self.bytes,
            write_percent: self.write_percent,
            ops: self.in_flight(depth) as f64,
            jobs: u64::from(self.hosts) * u64::from(self.copies),
            drives: self.drives,
            cores: self.cores.unwrap_or(machine.cores),
        }
    }

    /// The scenario of this curve at `depth`, without a machine; `iops` is about what it gives, and sets the simulated
    /// time so that about `ops` complete.
    pub(super) fn scenario(&self, depth: u32, iops: f64, ops: f64) -> Scenario {
        let seconds = ops / iops;
        Scenario {
            name: format!("{} depth {depth}", self.name),
            about: String::new(),
            seconds,
            // Until the queues have their lengths: three times what is in flight.
            warmup_seconds: seconds / 4.0 + 3.0 * self.in_flight(depth) as f64 / iops,
            seed: 1,
            sample_ms: 10.0,
            machine: toml::Table::new(),
            pacing: Config::none(),
            namespaces: Some(self.drives * self.copies),
            delay: Vec::new(),
            jobs: vec![Job {
                hosts: format!("0-{}", self.hosts - 1),
                per_host: self.copies,
                namespaces: None,
                depth,
                iops: None,
                sizes: vec![SizeShare { bytes: self.bytes, percent: 100.0 }],
                write_percent: self.write_percent,
                order: Order::RoundRobin,
                start_s: 0.0,
                stop_s: None,
            }],
            events: Vec::new(),
            sweep: Vec::new(),
        }
    }
}

/// The fewest points that have a shape.
const POINTS_LEAST: usize = 4;

/// The curves of a result.
///
/// # Errors
/// A sweep over something else than depth, ops of several sizes, too few points.
pub fn curves(result: &SweepResult, place: Place) -> Result<Vec<Curve>, Error> {
    if result.axis != "iodepth" {
        return Err(Error(format!("a sweep over {}; the fit needs sweeps over iodepth", result.axis)));
    }
    result.curves.iter().map(|curve| of(result, curve, place)).collect()
}

fn point(point: &schema::Point) -> Point {
    let (iops, job) = (point.iops, &point.job);
    let cpu = &job.cpu;
    let worked_ns = (cpu.user_ns + cpu.system_ns).saturating_sub(cpu.looked_ns) as f64;
    let ops = job.directions.read.ops + job.directions.write.ops;
    // No more than what leaves the initiators idle for a twentieth of the time: the curve itself says what they can.
    let most_us = 0.95e6 * f64::from(copies(point)) / iops.mean;
    Point {
        depth: point.x.round() as u32,
        iops: iops.mean,
        uncertain: (iops.high - iops.low) / 2.0 / iops.mean,
        initiator_us: (worked_ns / ops.max(1) as f64 / 1e3).min(most_us),
    }
}

/// The copies of the job of which each has ops in flight.
fn copies(point: &schema::Point) -> u32 {
    let facts = &point.job.facts;
    if facts.synchronous { 1 } else { facts.numjobs.max(1) }
}

fn of(result: &SweepResult, curve: &schema::Curve, place: Place) -> Result<Curve, Error> {
    let label = &curve.label;
    let mut points: Vec<&schema::Point> = curve.points.iter().filter(|p| p.iops.mean > 0.0 && p.x >= 1.0).collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let Some(best) = points.iter().max_by(|a, b| a.iops.mean.total_cmp(&b.iops.mean)) else {
        return Err(Error(format!("curve {label}: it has no points")));
    };
    if points.len() < POINTS_LEAST {
        return Err(Error(format!(
            "curve {label}: {} depths do not show its shape; sweep at least {POINTS_LEAST}",
            points.len()
        )));
    }
    let facts = &best.job.facts;
    let directions = &best.job.directions;
    let (reads, writes) = (directions.read.ops as f64, directions.write.ops as f64);
    let blocks = [(reads, facts.block_bytes.read), (writes, facts.block_bytes.write)];
    let mut sizes = blocks.iter().filter(|(ops, _)| *ops > 0.0).flat_map(|(_, (low, high))| [*low, *high]);
    let bytes = sizes.next().unwrap_or(0);
    if bytes == 0 || sizes.any(|size| size != bytes) || directions.trim.ops > 0 {
        return Err(Error(format!("curve {label}: the fit needs reads and writes of one size")));
    }
    let line = curve.line.as_ref();
    let load_line = match line.map(|line| line.answer()) {
        Some(Answer::At(at)) => Line::At(at.mean),
        Some(Answer::Between(_, high)) => Line::At(high),
        Some(Answer::Beyond) => Line::Beyond,
        Some(Answer::Unnamed(why)) => Line::Unknown(why.into()),
        None => Line::Unknown("too little was measured".into()),
    };
    Ok(Curve {
        name: format!("{label} {} {}", facts.rw, measure::figures::bytes(bytes as f64)),
        bytes,
        write_percent: (100.0 * writes / (reads + writes)).round(),
        hosts: result.ranks.len().max(1) as u32,
        copies: copies(best),
        drives: place.drives.unwrap_or(result.paths.len().max(1) as u32),
        cores: place.cores,
        points: points.iter().copied().map(point).collect(),
        load_line,
        overload: line.and_then(|line| line.overload).map(|overload| overload.mean),
    })
}

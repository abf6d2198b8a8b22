//! The sweep over the depth: one curve an engine, side by side, and the ceiling of the generator itself.
//!
//! ```text
//! Request ─► Workload (scratch file) ─► layout ─► points ◄─ measure::refine ─► load line ─► ceiling
//! ```
//!
//! Curves take turns, a point each: whatever drifts, drifts through all of them.

mod crew;
mod depths;
mod scratch;
mod workload;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use job::job::Plan;
use measure::refine::{self, Limits, Step, Why};
use measure::schema::{Curve, Ended, Estimate, JobError, JobResult, Point, Provenance, SweepResult};
use measure::verdict::{self, Judgement, Verdict};

use crate::peers::Peers;
use crate::run::{Control, Progress};
use crate::{Error, ErrorKind};

pub use crew::{Crew, Order};
pub use depths::Depths;
pub use scratch::Doomed;
use workload::Workload;
pub use workload::{Request, best_engine};

/// Length of the intervals that are the samples of a point: a few ops of a slow disk, and a dozen in the shortest
/// point.
const INTERVAL_NS: u64 = 50_000_000;
/// The least time for each requested depth, ramp included, even if the sweep then exceeds its time.
const LEAST_NS: u64 = 700_000_000;
/// The time for which the null engine runs, in nanoseconds.
const CEILING_NS: u64 = 1_000_000_000;

/// The effort of a sweep: its depths, its precision, and its duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// The depths that the sweep measures.
    pub depths: Depths,
    /// Half of the 95 % confidence interval, relative to the mean, at which the depths that decide are known well
    /// enough.
    pub bound: f64,
    /// The time for which a visit to a depth measures.
    pub first: Duration,
    /// The longest time for which a depth is measured, all visits together.
    pub point_cap: Duration,
    /// Duration of everything, layout included. A measurement that is under way is finished.
    pub total: Duration,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            depths: Depths::default(),
            bound: 0.005,
            first: Duration::from_millis(400),
            point_cap: Duration::from_secs(4),
            total: Duration::from_secs(40),
        }
    }
}

/// The activity of a sweep.
#[derive(Clone, Copy, Debug)]
pub enum Doing<'a> {
    /// The scratch file is being written.
    Layout,
    /// A point of the named engine, and why.
    Point(&'a str, u32, Why),
    /// The null engine, as deep as the named engine's load line.
    Ceiling(&'a str, u32),
}

/// A moment of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The activity of the sweep at this moment.
    pub doing: Doing<'a>,
    /// The part of the time that has passed, 0..=1.
    pub done: f64,
    /// The run at this moment.
    pub run: &'a Progress,
}

/// Controls that the caller of [`sweep`] keeps in hand.
pub struct Watch<'a> {
    /// Set to end the sweep early: the points so far are the result.
    pub stop: Arc<AtomicBool>,
    /// The list in which the scratch file is entered while it exists.
    pub doomed: Doomed,
    /// Called a few times a second.
    pub progress: &'a mut dyn FnMut(&Moment),
    /// Called after every visit with the curves so far, by the sweep that leads.
    pub measured: &'a mut dyn FnMut(&[Curve]),
    /// Called once, when the curves are final and before the generator's ceiling is measured: they and the target, the
    /// rest is still empty.
    pub concluded: &'a mut dyn FnMut(&SweepResult),
    /// Called for each scratch file of a killed sweep that was removed, with its path and its size in bytes.
    pub removed: &'a mut dyn FnMut(&Path, u64),
    /// The members that sweep together with this process, which leads them in [`sweep`]. None: this process sweeps
    /// alone.
    pub crew: Option<&'a mut dyn Crew>,
}

/// The curves of all engines over the depth, with their load lines and verdicts. The advice is left to the caller.
///
/// A depth that cannot be run (too many threads, too much memory) ends its curve with a verdict; one that fails
/// before there is any point is an error.
///
/// # Errors
/// A fault in the request; a system that fails before the first point.
pub fn sweep(request: &Request, effort: &Effort, watch: &mut Watch) -> Result<SweepResult, Error> {
    let began = Instant::now();
    let mut crew = watch.crew.take();
    let mut workload = Workload::prepare(request, &watch.doomed)?;
    workload.removed().iter().for_each(|(path, bytes)| (watch.removed)(path, *bytes));
    let spent = |began: Instant| began.elapsed().as_secs_f64() / effort.total.as_secs_f64().max(1e-9);
    let mut provenance = Provenance::default();
    if let Some(plan) = workload.layout()? {
        let (job, _) = run(&plan, &watch.stop, None, &mut |now| {
            (watch.progress)(&Moment { doing: Doing::Layout, done: spent(began).min(1.0), run: now });
        })?;
        if !watch.stop.load(Ordering::Relaxed) {
            workload.laid_out(job.directions.write.bytes)?;
        }
    }
    let left = effort.total.saturating_sub(began.elapsed()).saturating_sub(Duration::from_nanos(2 * CEILING_NS));
    let mut measure = |engine: &str, depth: u32, why: Why, runtime_ns: u64| {
        let order = Order { engine: engine.into(), depth, runtime_ns, ceiling: false };
        let mut shown = |now: &Progress| {
            let doing = Doing::Point(engine, depth, why);
            (watch.progress)(&Moment { doing, done: spent(began).min(1.0), run: now });
        };
        let (job, by) = match crew.as_deref_mut() {
            None => run(&workload.plan(engine, depth, runtime_ns)?, &watch.stop, None, &mut shown)?,
            Some(crew) => {
                if !crew.tell(Some(&order)) {
                    return Err(stopped());
                }
                together(&workload, &order, &watch.stop, crew, &mut shown)?.ok_or_else(stopped)?
            }
        };
        if provenance.schema == 0 {
            provenance = by; // that of the first point: when the measurement began
        }
        Ok(job)
    };
    let (curves, mut verdicts) = curves(&workload.engines, effort, left, &watch.stop, &mut measure, watch.measured)?;

    let mut target = workload.name.clone();
    let ranks = crew.as_deref().map(Crew::hosts).unwrap_or_default();
    target.extend(crew.as_deref().map(|crew| format!(", {}", crew.described())));
    let mut result =
        SweepResult { provenance, target, axis: "iodepth".into(), curves, ranks, ..SweepResult::default() };
    (watch.concluded)(&result);
    if !watch.stop.load(Ordering::Relaxed) {
        let crew = crew.as_mut().map(|crew| &mut **crew as &mut dyn Crew);
        result.ceiling_iops = ceiling(&workload, &result.curves, &watch.stop, crew, &mut |doing, now| {
            (watch.progress)(&Moment { doing, done: spent(began).min(1.0), run: now });
        })?;
    }
    if let Some(crew) = crew {
        crew.tell(None);
    }
    if watch.stop.load(Ordering::Relaxed) {
        result.ended = Ended::Interrupted;
    }
    if workload.direct_refused {
        verdicts.push(verdict::no_direct_io(&workload.name));
    }
    if let Some((wanted, reason)) = &workload.engine_replaced {
        verdicts.push(verdict::engine_replaced(wanted, &workload.engines[0], reason));
    }
    let mut judged = Judgement::of_found(verdicts);
    for curve in &result.curves {
        judged.add(verdict::for_curve(curve, result.ceiling_iops));
    }
    (result.verdicts, result.checks) = (judged.verdicts, judged.checks);
    Ok(result)
}

/// Sweeps as a member of `watch.crew`, as its leader orders.
///
/// # Errors
/// The fault in the request on this member's side.
pub fn follow(request: &Request, watch: &mut Watch) -> Result<(), Error> {
    let Some(crew) = watch.crew.take() else { return Ok(()) };
    let mut workload = Workload::prepare(request, &watch.doomed)?;
    workload.removed().iter().for_each(|(path, bytes)| (watch.removed)(path, *bytes));
    let mut shown = |now: &Progress| (watch.progress)(&Moment { doing: Doing::Layout, done: 0.0, run: now });
    if let Some(plan) = workload.layout()? {
        let (job, _) = run(&plan, &watch.stop, None, &mut shown)?;
        if !watch.stop.load(Ordering::Relaxed) {
            workload.laid_out(job.directions.write.bytes)?;
        }
    }
    while let Some(order) = crew.listen() {
        together(&workload, &order, &watch.stop, crew, &mut shown)?;
    }
    Ok(())
}

/// Runs one point together with all members: the sum at the leader, None at the other members.
fn together(
    workload: &Workload,
    order: &Order,
    stop: &Arc<AtomicBool>,
    crew: &mut dyn Crew,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<(JobResult, Provenance)>, Error> {
    let Order { engine, depth, runtime_ns, ceiling } = order;
    let share = crew.share(*depth);
    let (mut mine, mut by) = (None, Provenance::default());
    if share > 0 {
        let plan = match ceiling {
            true => workload.ceiling(engine, share, *runtime_ns),
            false => workload.plan(engine, share, *runtime_ns),
        };
        let outcome = plan.and_then(|mut plan| {
            crew.own(&mut plan);
            run(&plan, stop, Some(crew.peers()), progress)
        });
        // A depth that one member cannot run has no point: all members learn this with the sum.
        mine = Some(match outcome {
            Ok((job, provenance)) => {
                by = provenance;
                job
            }
            Err(error) => {
                let error = JobError { errno: error.errno(), message: error.to_string() };
                JobResult { error: Some(error), ..JobResult::default() }
            }
        });
    }
    match crew.sum(mine) {
        Some(JobResult { error: Some(error), .. }) => Err(failure(ErrorKind::System, &error.message)),
        sum => Ok(sum.map(|job| (job, by))),
    }
}

fn failure(kind: ErrorKind, what: &str) -> Error {
    Error { kind, what: what.into(), place: String::new(), hint: String::new(), source: None }
}

fn stopped() -> Error {
    failure(ErrorKind::System, "the sweep was stopped")
}

/// Runs a plan of one job: the job's result, and its provenance. A failure of the job is an error.
fn run(
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    peers: Option<&mut dyn Peers>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(JobResult, Provenance), Error> {
    let mut control = Control {
        stop: stop.clone(),
        progress: Some(progress),
        interval_ns: Some(INTERVAL_NS),
        threads_only: true,
        peers: peers.map(|peers| peers as _),
        ..Control::default()
    };
    let result = crate::run(plan, &mut control)?;
    let job =
        result.jobs.into_iter().next().ok_or_else(|| failure(ErrorKind::Internal, "a run of one job has no result"))?;
    match &job.error {
        Some(error) => Err(failure(ErrorKind::System, &error.message)),
        None => Ok((job, result.provenance)),
    }
}

/// Carries out one point: engine, depth, why, and for how many nanoseconds.
type Measure<'a> = dyn FnMut(&str, u32, Why, u64) -> Result<JobResult, Error> + 'a;

/// The curve of each engine, in turns of a point each; and verdicts on curves that ended before their time.
fn curves(
    engines: &[String],
    effort: &Effort,
    left: Duration,
    stop: &AtomicBool,
    measure: &mut Measure,
    measured: &mut dyn FnMut(&[Curve]),
) -> Result<(Vec<Curve>, Vec<Verdict>), Error> {
    let asked: Vec<f64> = effort.depths.asked().into_iter().map(f64::from).collect();
    let limits = Limits {
        bound: effort.bound,
        first_ns: nanos(effort.first),
        point_cap_ns: nanos(effort.point_cap),
        curve_cap_ns: (nanos(left) / engines.len().max(1) as u64).max(asked.len() as u64 * LEAST_NS),
        finest: effort.depths.finest(),
    };
    let mut verdicts = Vec::new();
    let mut curves: Vec<Curve> =
        engines.iter().map(|label| Curve { label: label.clone(), ..Curve::default() }).collect();
    let mut spent_ns: HashMap<&str, u64> = HashMap::new();
    let mut open: Vec<usize> = (0..engines.len()).collect();
    while !open.is_empty() {
        let mut failure = None;
        open.retain(|&index| {
            if stop.load(Ordering::Relaxed) || failure.is_some() {
                return false;
            }
            let (label, curve) = (engines[index].as_str(), &mut curves[index]);
            let spent = spent_ns.entry(label).or_default();
            let counted = reserve(&asked, &curve.points, *spent, &limits);
            let Step::Measure { x, runtime_ns, round, why } = refine::next(&asked, &curve.points, counted, &limits)
            else {
                return false;
            };
            let (began, at_ns) = (Instant::now(), *spent);
            let measured = measure(label, x as u32, why, runtime_ns);
            *spent += nanos(began.elapsed());
            match measured {
                // A visit cut short does not count as a point, and does not mean that the depth cannot be run.
                Ok(_) | Err(_) if stop.load(Ordering::Relaxed) => false,
                Ok(job) => {
                    let mut point = Point::of(x, job);
                    point.visits.iter_mut().for_each(|visit| (visit.at_ns, visit.round) = (at_ns, round));
                    enter(curve, point);
                    true
                }
                Err(error) if curve.points.is_empty() || error.kind == ErrorKind::Internal => {
                    failure = Some(error);
                    false
                }
                Err(error) => {
                    verdicts.push(verdict::depth_not_possible(label, x, &error.to_string()));
                    false
                }
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }
        measured(&curves);
    }
    for curve in &mut curves {
        for point in &mut curve.points {
            point.job.judge();
        }
        curve.conclude();
    }
    curves.retain(|curve| !curve.points.is_empty());
    Ok((curves, verdicts))
}

/// The part of the time spent on a curve that counts: depths that were asked for and not visited yet keep their least,
/// however long the depths before them took.
fn reserve(asked: &[f64], points: &[Point], spent_ns: u64, limits: &Limits) -> u64 {
    let missing = asked.iter().filter(|&&x| !points.iter().any(|point| point.x == x)).count() as u64;
    spent_ns.min(limits.curve_cap_ns.saturating_sub(missing * LEAST_NS))
}

/// Puts a point in its place, or adds it to the one that is there.
fn enter(curve: &mut Curve, point: Point) {
    match curve.points.binary_search_by(|other| other.x.total_cmp(&point.x)) {
        Ok(at) => curve.points[at].extend(point),
        Err(at) => curve.points.insert(at, point),
    }
}

/// Measures the generator alone with the null engine, at the load line of the fastest curve.
fn ceiling(
    workload: &Workload,
    curves: &[Curve],
    stop: &Arc<AtomicBool>,
    crew: Option<&mut dyn Crew>,
    progress: &mut dyn FnMut(Doing, &Progress),
) -> Result<Option<Estimate>, Error> {
    let plateau = |curve: &Curve| curve.points.iter().map(|point| point.iops.mean).fold(0.0, f64::max);
    let Some(best) = curves.iter().max_by(|a, b| plateau(a).total_cmp(&plateau(b))) else { return Ok(None) };
    let deepest = best.points.last().map_or(1.0, |point| point.x);
    let line = best.line.as_ref().and_then(|line| line.load_line);
    let depth = line.map_or(deepest, |line| line.mean.ceil()) as u32;
    let mut shown = |now: &Progress| progress(Doing::Ceiling(&best.label, depth), now);
    let job = match crew {
        None => {
            let plan = workload.ceiling(&best.label, depth.max(1), CEILING_NS)?;
            Some(run(&plan, stop, None, &mut shown)?)
        }
        Some(crew) => {
            let engine = best.label.clone();
            let order = Order { engine, depth: depth.max(1), runtime_ns: CEILING_NS, ceiling: true };
            if crew.tell(Some(&order)) { together(workload, &order, stop, crew, &mut shown)? } else { None }
        }
    };
    Ok(job.map(|(job, _)| Point::of(f64::from(depth), job).iops))
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::PerDirection;
    use measure::schema::Interval;

    /// A system that serves 1000 ops per second and op in flight, up to 20,000; one percent of noise.
    fn ran(depth: u32, runtime_ns: u64) -> JobResult {
        let rate = f64::from(depth.min(20)) * 1000.0;
        let intervals = (0..runtime_ns / INTERVAL_NS).map(|i| {
            let noise = 1.0 + 0.01 * ((i * 7919 % 13) as f64 / 6.0 - 1.0);
            let ops = (rate * noise * INTERVAL_NS as f64 / 1e9) as u64;
            Interval {
                end_ns: (i + 1) * INTERVAL_NS,
                length_ns: INTERVAL_NS,
                ops: PerDirection { read: ops, ..PerDirection::default() },
                bytes: PerDirection { read: ops * 4096, ..PerDirection::default() },
                ..Interval::default()
            }
        });
        let mut job = JobResult {
            clones: 1,
            runtime_ns,
            interval_ns: INTERVAL_NS,
            intervals: intervals.collect(),
            ..JobResult::default()
        };
        job.directions.read.ops = job.intervals.iter().map(|interval| interval.ops.read).sum();
        job.directions.read.bytes = job.directions.read.ops * 4096;
        job.directions.read.runtime_ns = runtime_ns;
        job
    }

    fn engines(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    fn failure(what: &str) -> Error {
        Error { kind: ErrorKind::System, what: what.into(), place: String::new(), hint: String::new(), source: None }
    }

    const LEFT: Duration = Duration::from_secs(30);

    #[test]
    fn a_curve_has_every_asked_depth_in_order_and_a_load_line() {
        let effort = Effort { depths: Depths::Range(1, 64), ..Effort::default() };
        let stop = AtomicBool::new(false);
        let mut measure = |_: &str, depth, _, ns| Ok(ran(depth, ns));
        let mut rows = Vec::new();
        let mut measured = |curves: &[Curve]| rows.push(curves[0].points.len());
        let (curves, verdicts) =
            curves(&engines(&["io_uring"]), &effort, LEFT, &stop, &mut measure, &mut measured).unwrap();
        assert_eq!(rows[..7], [1, 2, 3, 4, 5, 6, 7], "each row is told as soon as it is measured");
        let depths: Vec<f64> = curves[0].points.iter().map(|point| point.x).collect();
        assert!(
            depths.is_sorted() && [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0].iter().all(|x| depths.contains(x)),
            "{depths:?}"
        );
        assert!(verdicts.is_empty());
        let line = curves[0].line.as_ref().expect("seven points give a load line");
        assert!((line.plateau_iops.mean / 20_000.0 - 1.0).abs() < 0.02, "{line:?}");
        assert!((18.0..=22.0).contains(&line.load_line.unwrap().mean), "97 % of 20 ops in flight: {line:?}");
    }

    #[test]
    fn every_asked_depth_is_visited_however_long_the_first_one_took() {
        let asked = [1.0, 2.0, 8.0];
        let cap_ns = asked.len() as u64 * LEAST_NS;
        let limits = Limits { first_ns: 400_000_000, ..Limits::within(cap_ns, asked.len()) };
        let (mut points, mut spent_ns) = (Vec::new(), 0);
        while let Step::Measure { x, runtime_ns, .. } =
            refine::next(&asked, &points, reserve(&asked, &points, spent_ns, &limits), &limits)
        {
            assert!(points.len() < 3 && runtime_ns >= LEAST_NS.min(limits.first_ns), "{x}: {runtime_ns}");
            points.push(Point::of(x, ran(x as u32, runtime_ns)));
            spent_ns += 10 * cap_ns; // the machine stood still
        }
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>(), asked);
    }

    #[test]
    fn engines_take_turns() {
        let effort = Effort { depths: Depths::List(vec![1, 2]), ..Effort::default() };
        let stop = AtomicBool::new(false);
        let mut order = Vec::new();
        let mut measure = |engine: &str, depth, why, ns| {
            if why == Why::Asked {
                order.push(format!("{engine} {depth}"));
            }
            Ok(ran(depth, ns))
        };
        curves(&engines(&["a", "b"]), &effort, LEFT, &stop, &mut measure, &mut |_| {}).unwrap();
        assert_eq!(order[..4], ["a 1", "b 1", "a 2", "b 2"]);
    }

    #[test]
    fn a_depth_that_cannot_be_run_ends_its_curve_and_no_other() {
        let effort = Effort { depths: Depths::List(vec![1, 64, 512]), ..Effort::default() };
        let stop = AtomicBool::new(false);
        let mut measure = |engine: &str, depth: u32, _, ns| match (engine, depth) {
            ("psync", 512) => Err(failure("cannot start a thread")),
            _ => Ok(ran(depth, ns)),
        };
        let (curves, verdicts) =
            curves(&engines(&["io_uring", "psync"]), &effort, LEFT, &stop, &mut measure, &mut |_| {}).unwrap();
        assert_eq!((curves[0].points.len(), curves[1].points.len()), (3, 2));
        assert_eq!(verdicts.len(), 1);
        assert!(verdicts[0].what.contains("psync ends below 512: cannot start a thread"), "{verdicts:?}");
    }

    #[test]
    fn a_failure_before_the_first_point_is_an_error() {
        let stop = AtomicBool::new(false);
        let mut measure = |_: &str, _, _, _| Err(failure("no such device"));
        let error =
            curves(&engines(&["io_uring"]), &Effort::default(), LEFT, &stop, &mut measure, &mut |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "no such device");
    }

    #[test]
    fn an_interrupted_sweep_keeps_its_whole_points() {
        let stop = AtomicBool::new(false);
        let mut measure = |_: &str, depth: u32, _, ns: u64| {
            stop.store(depth == 4, Ordering::Relaxed);
            Ok(ran(depth, ns / if depth == 4 { 2 } else { 1 }))
        };
        let (curves, _) =
            curves(&engines(&["io_uring"]), &Effort::default(), LEFT, &stop, &mut measure, &mut |_| {}).unwrap();
        assert_eq!(curves[0].points.iter().map(|point| point.x).collect::<Vec<_>>(), [1.0, 2.0]);
    }
}

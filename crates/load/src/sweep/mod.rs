//! The sweep over an axis, most often the depth: curves side by side, one an engine or one a value of a second axis,
//! and the ceiling of the generator itself.
//!
//! ```text
//! Request ─► Workload (scratch file) ─► layout ─► points ◄─ measure::refine ─► load line, limits ─► ceiling
//! ```
//!
//! Curves take turns, a point each: whatever drifts, drifts through all of them.

mod axis;
mod crew;
mod job_file;
mod precondition;
mod recorded;
mod resume;
mod scratch;
mod sliced;
mod values;
mod workload;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use job::job::Plan;
use measure::Objective;
use measure::PerDirection;
use measure::figures;
use measure::limit::Condition;
use measure::refine::{self, Goal, Limits, Step, Why};
use measure::schema::{Curve, Ended, Estimate, Interval, JobError, JobResult, Point, Provenance, SweepResult};
use measure::slices::{self, Slice};
use measure::verdict::{self, Judgement, Verdict};

use crate::peers::Peers;
use crate::run::{Control, Progress};
use crate::{Error, ErrorKind, storage};

pub use axis::{Axis, Role};
pub use crew::{Crew, Order, Spot};
pub use job_file::take_in;
pub use precondition::{Rounds, Stage};
use recorded::Recorded;
pub use resume::Resume;
pub use scratch::Doomed;
pub use values::Values;
use workload::Workload;
pub use workload::{Request, best_engine, files_of};

/// Length of the intervals that are the samples of a point: a few ops of a slow disk, and a dozen in the shortest
/// point.
const INTERVAL_NS: u64 = 50_000_000;
/// The least time for each requested depth, ramp included, even if the sweep then exceeds its time.
const LEAST_NS: u64 = 700_000_000;
/// The time for which the null engine runs, in nanoseconds.
const CEILING_NS: u64 = 1_000_000_000;

/// Requests in flight of the preconditioning, at least.
const PRECONDITION_DEPTH: u32 = 32;
/// Rates of an open loop that are measured where nobody gives any, as parts of the throughput at full depth.
const PARTS: [f64; 9] = [0.125, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.3, 2.0];
/// Arrivals that a visit of an open loop should have: the noise of fewer hides the growth of a queue.
const ARRIVALS: f64 = 2000.0;
/// Rates around a limit are at most this factor apart.
const FINEST_RATE: f64 = 1.05;
/// Depths, and values of other axes, around a limit are at most this factor apart.
const FINEST_DEPTH: f64 = 1.1;

/// The effort of a sweep: its axes, its precision, and its duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// The option that the points of a curve differ in.
    pub axis: Axis,
    /// The option that the curves differ in; None: the engine.
    pub across: Option<Axis>,
    /// Requests in flight where no axis decides it; None: as many as suit the axis.
    pub depth: Option<u32>,
    /// Latencies that are to be kept.
    pub objectives: Vec<Objective>,
    /// Preconditions the target first, beside the time of the sweep.
    pub precondition: Option<Rounds>,
    /// Half of the 95 % confidence interval, relative to the mean, at which the depths that decide are known well
    /// enough.
    pub bound: f64,
    /// Goes on until the bounds of the load line are within this factor, or the time is over.
    pub until: Option<f64>,
    /// The time for which a visit to a depth measures.
    pub first: Duration,
    /// The longest time for which a depth is measured, all visits together.
    pub point_cap: Duration,
    /// Duration of everything, layout included. A measurement that is under way is finished.
    pub total: Duration,
    /// Time between two calls of [`Watch::save`].
    pub save_every: Duration,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            axis: Axis::depths(Values::Range(1, 1024)),
            across: None,
            depth: None,
            objectives: Vec::new(),
            precondition: None,
            bound: 0.005,
            until: None,
            first: Duration::from_millis(400),
            point_cap: Duration::from_secs(4),
            total: Duration::from_secs(40),
            save_every: Duration::from_secs(60),
        }
    }
}

impl Effort {
    /// The axes.
    pub fn axes(&self) -> impl Iterator<Item = &Axis> {
        [Some(&self.axis), self.across.as_ref()].into_iter().flatten()
    }

    /// Requests in flight where no axis decides it.
    pub fn depth(&self) -> u32 {
        let usual = || self.axes().map(Axis::usual_depth).max().unwrap_or(1);
        self.depth.unwrap_or_else(|| if self.axes().any(|axis| axis.role() == Role::Clones) { 1 } else { usual() })
    }

    /// The questions that the sweep answers.
    pub fn goal(&self) -> Goal {
        let keeps_up = self.axis.is_rate().then_some(Condition::KeepsUp);
        let mut limits: Vec<Vec<Condition>> = keeps_up.into_iter().map(|condition| vec![condition]).collect();
        if !self.objectives.is_empty() {
            let objectives = self.objectives.iter().copied().map(Condition::Objective);
            limits.push(keeps_up.into_iter().chain(objectives).collect());
        }
        Goal { line: self.axis.has_load_line(), limits }
    }
}

/// The activity of a sweep.
#[derive(Clone, Copy, Debug)]
pub enum Doing<'a> {
    /// The scratch file is being written.
    Layout,
    /// The target is preconditioned.
    Precondition(Stage),
    /// A first look at the throughput of the named curve, which chooses the rates.
    Look(&'a str),
    /// A point of the named curve: its place on the axis in words, its depth, and why.
    Point(&'a str, &'a str, u32, Why),
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
    /// Called every [`Effort::save_every`] with the sweep so far, as if it had been interrupted.
    pub save: &'a mut dyn FnMut(SweepResult),
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
    let mut began = Instant::now();
    let mut crew = watch.crew.take();
    let mut workload = Workload::prepare(request, effort, &watch.doomed)?;
    if effort.axes().any(Axis::is_rate) && crew.is_some() {
        let hint = "sweep the depth, or one host";
        return Err(Error::usage("not from many hosts:", "an axis of rates", hint));
    }
    if effort.precondition.is_some() && crew.is_some() {
        return Err(Error::usage(
            "not from many hosts:",
            "--precondition",
            "precondition the target from one host first",
        ));
    }
    if workload.recorded().is_some() && crew.is_some() {
        return Err(Error::usage("not from many hosts:", "--workload", "replay the recording on one host"));
    }
    if request.resume.is_some() && crew.is_some() {
        return Err(Error::usage("not from many hosts:", "--resume", "sweep anew"));
    }
    let mut variants = variants(&workload.engines, effort);
    let alone = crew.is_none() && workload.recorded().is_none() && effort.axis.role() == Role::Depth;
    for variant in variants.iter_mut().filter(|_| alone) {
        variant.in_place = workload.changes_in_place(&spot(variant, effort, None, &|_, _| Ok(Default::default()))?)?;
    }
    if let Some(resume) = &request.resume {
        resume.check(&workload, effort)?;
        resume.check_places(&effort.axis)?;
        resume.check_curves(&variants.iter().map(|variant| variant.label.as_str()).collect::<Vec<_>>())?;
        variants.iter_mut().for_each(|variant| variant.earlier = resume.curve(&variant.label));
    }
    let recorded_depth = workload.recorded().map(|recorded| recorded.depth().try_into().unwrap_or(u32::MAX));
    let effort = &Effort { depth: recorded_depth.or(effort.depth), ..effort.clone() };
    workload.removed().iter().for_each(|(path, bytes)| (watch.removed)(path, *bytes));
    let spent = |began: Instant| began.elapsed().as_secs_f64() / effort.total.as_secs_f64().max(1e-9);
    let provenance = RefCell::new(Provenance::default());
    if let Some(plan) = workload.layout()? {
        let (job, _) = run(&plan, &watch.stop, None, &mut |now| {
            (watch.progress)(&Moment { doing: Doing::Layout, done: spent(began).min(1.0), run: now });
        })?;
        if !watch.stop.load(Ordering::Relaxed) {
            workload.laid_out(job.directions.write.bytes)?;
        }
    }
    // Before the preconditioning, which writes for hours to a target that the sweep would then refuse.
    if let Some(resume) = request.resume.as_ref().filter(|_| !watch.stop.load(Ordering::Relaxed)) {
        check_options(resume, &variants, effort, &workload)?;
    }
    let mut preconditioning = None;
    if let Some(rounds) = effort.precondition
        && !watch.stop.load(Ordering::Relaxed)
    {
        let plans = workload.precondition(nanos(rounds.round), effort.depth().max(PRECONDITION_DEPTH))?;
        preconditioning = precondition::precondition(&plans, rounds, &mut |stage, plan| {
            let done = match stage {
                Stage::Purge | Stage::Fill => 0.0,
                Stage::Round(number) => f64::from(number - 1) / f64::from(rounds.most),
            };
            let doing = Doing::Precondition(stage);
            let (job, _) = run(plan, &watch.stop, None, &mut |now| {
                (watch.progress)(&Moment { doing, done, run: now });
            })?;
            Ok((!watch.stop.load(Ordering::Relaxed)).then_some(job))
        })?;
        // The time of the sweep begins when the target is ready.
        began = Instant::now();
    }
    let offered = |by_bytes: bool, total: u64| workload.offered(by_bytes, total);
    let mut result = frame(request, effort, &workload, crew.as_deref());
    result.preconditioning = preconditioning.clone();
    let left = effort.total.saturating_sub(began.elapsed()).saturating_sub(Duration::from_nanos(2 * CEILING_NS));
    let mut measure = |doing: Doing, spot: &Spot, stretch: Stretch| {
        let mut shown = |now: &Progress| {
            (watch.progress)(&Moment { doing, done: spent(began).min(1.0), run: now });
        };
        let (job, by) = match (crew.as_deref_mut(), stretch) {
            (None, Stretch::Visit(runtime_ns)) => {
                run(&workload.plan(spot, runtime_ns)?, &watch.stop, None, &mut shown)?
            }
            (_, Stretch::Slices(slices)) => {
                run(&workload.plan_in_slices(spot, slices)?, &watch.stop, None, &mut shown)?
            }
            (Some(crew), Stretch::Visit(runtime_ns)) => {
                let order = Order { spot: spot.clone(), runtime_ns, ceiling: false };
                if !crew.tell(Some(&order)) {
                    return Err(stopped());
                }
                together(&workload, &order, &watch.stop, crew, &mut shown)?.ok_or_else(stopped)?
            }
        };
        if provenance.borrow().schema == 0 {
            *provenance.borrow_mut() = by; // that of the first point: when the measurement began
        }
        let stopped = watch.stop.load(Ordering::Relaxed);
        match workload.recorded() {
            Some(recorded) if !stopped => whole_passes(job, recorded),
            _ => Ok(job),
        }
    };
    let mut saved = Instant::now();
    let mut visited = |curves: &[Curve]| {
        (watch.measured)(curves);
        if saved.elapsed() >= effort.save_every {
            let curves = concluded(curves.to_vec(), effort);
            let provenance = provenance.borrow().clone();
            (watch.save)(SweepResult { provenance, curves, ended: Ended::Interrupted, ..result.clone() });
            saved = Instant::now();
        }
    };
    let (curves, mut verdicts) = curves(variants, effort, left, &watch.stop, &mut measure, &offered, &mut visited)?;
    result.curves = curves;
    result.provenance = provenance.into_inner();
    if result.provenance.schema == 0 {
        // Nothing was left to measure.
        result.provenance = result.resumed.pop().unwrap_or_default();
    }
    (watch.concluded)(&result);
    // Where neither depth nor rate is varied, the curve does not show how much the storage can do.
    let has_top = effort.axis.has_load_line() || effort.axis.is_rate();
    if has_top && !watch.stop.load(Ordering::Relaxed) {
        let crew = crew.as_mut().map(|crew| &mut **crew as &mut dyn Crew);
        result.ceiling_iops = ceiling(&workload, effort, &result.curves, &watch.stop, crew, &mut |doing, now| {
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
    if let Some(request) = &workload.not_direct {
        verdicts.push(verdict::replay_not_direct(request));
    }
    if let Some((wanted, reason)) = &workload.engine_replaced {
        verdicts.push(verdict::engine_replaced(wanted, &workload.engines[0], reason));
    }
    let mut judged = Judgement::of_found(verdicts);
    let unsteady = preconditioning.as_ref().filter(|found| !found.is_steady());
    judged.verdicts.extend(unsteady.map(verdict::not_preconditioned));
    if let Some(recorded) = workload.recorded() {
        judged.verdicts.push(recorded.described());
        let at_recorded =
            |curve: &Curve| curve.points.iter().find(|point| point.x == 100.0).map(|point| point.iops.mean);
        let behind = result.curves.iter().filter_map(at_recorded).filter_map(|iops| recorded.judged(iops));
        judged.verdicts.extend(behind.take(1));
    }
    for curve in &result.curves {
        judged.add(verdict::for_curve(curve, effort.axis.name(), result.ceiling_iops));
    }
    (result.verdicts, result.checks) = (judged.verdicts, judged.checks);
    Ok(result)
}

/// The result of a sweep in which nothing is measured yet.
fn frame(request: &Request, effort: &Effort, workload: &Workload, crew: Option<&dyn Crew>) -> SweepResult {
    let among = crew.map(|crew| format!(", {}", crew.described())).unwrap_or_default();
    SweepResult {
        resumed: request.resume.as_ref().map(Resume::parts).unwrap_or_default(),
        target: workload.name.clone() + &among,
        paths: workload.paths.clone(),
        storage: storage::of(workload.paths.iter().map(|path| path.as_path())),
        axis: effort.axis.name().into(),
        across: effort.across.as_ref().map(|across| across.name().into()).unwrap_or_default(),
        objectives: effort.objectives.iter().map(Objective::to_string).collect(),
        ranks: crew.map(Crew::hosts).unwrap_or_default(),
        verdicts: workload.recorded().map(Recorded::described).into_iter().collect(),
        ..SweepResult::default()
    }
}

/// Refuses to resume a sweep that measured its points with other job options.
fn check_options(resume: &Resume, variants: &[Variant], effort: &Effort, workload: &Workload) -> Result<(), Error> {
    for variant in variants {
        for point in &variant.earlier.points {
            let offered = |by_bytes: bool, total: u64| workload.offered(by_bytes, total);
            let spot = spot(variant, effort, Some(point.x as u64), &offered)?;
            let plan = workload.plan(&spot, LEAST_NS)?;
            plan.jobs.iter().try_for_each(|job| resume.check_options(&point.job, &job.options))?;
        }
    }
    Ok(())
}

/// Sweeps as a member of `watch.crew`, as its leader orders.
///
/// # Errors
/// The fault in the request on this member's side.
pub fn follow(request: &Request, effort: &Effort, watch: &mut Watch) -> Result<(), Error> {
    let Some(crew) = watch.crew.take() else { return Ok(()) };
    let mut workload = Workload::prepare(request, effort, &watch.doomed)?;
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
    let Order { spot, runtime_ns, ceiling } = order;
    let share = crew.share(spot.depth);
    let (mut mine, mut by) = (None, Provenance::default());
    if share > 0 {
        let own = Spot { depth: share, ..spot.clone() };
        let plan = match ceiling {
            true => workload.ceiling(&own, *runtime_ns),
            false => workload.plan(&own, *runtime_ns),
        };
        let outcome = plan.and_then(|mut plan| {
            // Members measure together, and end together.
            plan.jobs.iter_mut().filter_map(|job| job.time.window.as_mut()).for_each(|window| window.extends = false);
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
    // A slice has two intervals at least.
    let part = if plan.jobs.iter().any(|job| !job.time.slices.is_empty()) { 2 } else { 1 };
    let mut control = Control {
        stop: stop.clone(),
        progress: Some(progress),
        interval_ns: Some(INTERVAL_NS / part),
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

/// The result of a visit that replayed whole passes: one sample, because the requests of a pass differ from moment to
/// moment, and passes do not.
///
/// # Errors
/// The visit ended within its first pass.
fn whole_passes(mut job: JobResult, recorded: &Recorded) -> Result<JobResult, Error> {
    if job.total_ops() < recorded.transfers() {
        let limit = figures::nanoseconds(recorded::PASS_MOST_NS as f64);
        let what = format!("one pass of {} requests takes longer than {limit}", recorded.requests());
        return Err(Error::usage(what, "", "replay less of the recording: a smaller --point-time"));
    }
    let directions = &job.directions;
    let whole = Interval {
        end_ns: job.runtime_ns,
        length_ns: job.runtime_ns,
        ops: PerDirection::from_fn(|direction| directions[direction].ops),
        bytes: PerDirection::from_fn(|direction| directions[direction].bytes),
        lat_sum_ns: PerDirection::from_fn(|direction| directions[direction].lat_ns.sum() as u64),
        ..Interval::default()
    };
    (job.intervals, job.interval_ns) = (vec![whole], job.runtime_ns);
    Ok(job)
}

/// The settings that a curve has for itself.
#[derive(Clone, Debug, Default)]
struct Variant {
    label: String,
    engine: String,
    /// Of a map: the axis across and its value.
    across: Option<(Axis, u64)>,
    /// The curve as the sweep left it that is resumed.
    earlier: Curve,
    /// True if the depth can change while the load goes on.
    in_place: bool,
}

/// The curves of a sweep: one an engine, or one a value of the axis across.
fn variants(engines: &[String], effort: &Effort) -> Vec<Variant> {
    let of_engine = |engine: &String| Variant { label: engine.clone(), engine: engine.clone(), ..Variant::default() };
    let Some(across) = &effort.across else { return engines.iter().map(of_engine).collect() };
    let engine = engines.first().cloned().unwrap_or_default();
    let values = across.values().map(Values::asked).unwrap_or_default();
    let of_value = |value: u64| Variant {
        label: format!("{} {}", across.name(), figures::axis_value(across.name(), value as f64)),
        engine: engine.clone(),
        across: Some((across.clone(), value)),
        ..Variant::default()
    };
    values.into_iter().map(of_value).collect()
}

/// The rates that a job option offers: the option and its value, from the sum of all directions.
type Offered<'a> = dyn Fn(bool, u64) -> Result<(String, String), Error> + 'a;

/// The settings of a curve's point at `x`; None: those of the curve without a rate.
fn spot(variant: &Variant, effort: &Effort, x: Option<u64>, offered: &Offered) -> Result<Spot, Error> {
    let mut spot = Spot { engine: variant.engine.clone(), depth: effort.depth(), ..Spot::default() };
    let places = x.map(|x| (&effort.axis, x)).into_iter();
    for (axis, value) in places.chain(variant.across.iter().map(|(axis, value)| (axis, *value))) {
        match axis.role() {
            Role::Depth => spot.depth = value.try_into().unwrap_or(u32::MAX),
            role @ (Role::Ops | Role::Bytes) => spot.options.push(offered(role == Role::Bytes, value)?),
            Role::Clones | Role::Other => spot.options.push((axis.name().into(), axis.written(value))),
        }
    }
    Ok(spot)
}

/// The extent of one measurement.
#[derive(Clone, Copy, Debug)]
enum Stretch<'a> {
    /// A visit, and its nanoseconds.
    Visit(u64),
    /// Slices of one run.
    Slices(&'a [Slice]),
}

/// Carries out one measurement: its name, its settings, and its extent.
type Measure<'a> = dyn FnMut(Doing, &Spot, Stretch) -> Result<JobResult, Error> + 'a;

/// A curve that is being measured.
struct Open {
    variant: Variant,
    asked: Vec<f64>,
    limits: Limits,
    /// The points without slices, as long as slices are believed.
    whole: Vec<Point>,
    spent_ns: u64,
    /// True if depths whose queues take too long are left out.
    skips: bool,
    is_resumed: bool,
    is_done: bool,
}

/// All curves, in turns of a point each; and verdicts on curves that ended before their time.
fn curves(
    variants: Vec<Variant>,
    effort: &Effort,
    left: Duration,
    stop: &AtomicBool,
    measure: &mut Measure,
    offered: &Offered,
    measured: &mut dyn FnMut(&[Curve]),
) -> Result<(Vec<Curve>, Vec<Verdict>), Error> {
    let goal = effort.goal();
    let cap_ns = nanos(left) / variants.len().max(1) as u64;
    let mut number = variants.iter().map(|variant| resume::visits(&variant.earlier)).sum();
    let (mut open, mut curves) = (Vec::new(), Vec::new());
    for mut variant in variants {
        let began = Instant::now();
        let earlier = std::mem::take(&mut variant.earlier);
        let earlier_ns = resume::spent_ns(&earlier);
        // Bounds cannot be closer than the depths are.
        let finest = effort.until.map_or(f64::INFINITY, f64::sqrt);
        let mut limits = Limits {
            bound: effort.bound,
            until: effort.until,
            first_ns: nanos(effort.first),
            point_cap_ns: nanos(effort.point_cap),
            curve_cap_ns: earlier_ns + cap_ns,
            closed: resume::last_round(&earlier),
            finest: effort.axis.values().map_or(f64::INFINITY, Values::finest).min(finest),
            in_place: variant.in_place && earlier.memory.is_none(),
            finest_limit: if effort.axis.is_rate() { FINEST_RATE } else { FINEST_DEPTH },
        };
        if let Some(Values::List(_)) = effort.axis.values() {
            limits.finest_limit = f64::INFINITY;
        }
        let asked = match effort.axis.is_rate() && !stop.load(Ordering::Relaxed) {
            false => effort.axis.values().map(Values::asked).unwrap_or_default(),
            true => {
                let spot = spot(&variant, effort, None, offered)?;
                let job = measure(Doing::Look(&variant.label), &spot, Stretch::Visit(limits.first_ns))?;
                let point = Point::of(0.0, job);
                // Slow storage needs longer visits for as many arrivals.
                let needed_ns = (ARRIVALS / point.iops.mean.max(1.0) * 1e9) as u64;
                limits.first_ns = needed_ns.clamp(limits.first_ns, (cap_ns / 40).max(limits.first_ns));
                limits.point_cap_ns = limits.point_cap_ns.max(limits.first_ns * 12);
                let full = if effort.axis.role() == Role::Bytes { point.bytes_per_second } else { point.iops };
                let rounded = |part: f64| (full.mean * part).round().max(1.0) as u64;
                let mut rates: Vec<u64> = earlier.points.iter().map(|point| point.x as u64).collect();
                let known = rates.last().map_or(0.0, |known| *known as f64 * FINEST_RATE);
                rates.extend(PARTS.into_iter().map(rounded).filter(|rate| *rate as f64 > known));
                rates.dedup();
                effort.axis.values().map_or(rates, Values::asked)
            }
        };
        let asked: Vec<f64> = asked.into_iter().map(|value| value as f64).collect();
        limits.curve_cap_ns = limits.curve_cap_ns.max(earlier_ns + missing(&asked, &earlier.points) * LEAST_NS);
        let across = variant.across.as_ref().map(|(_, value)| *value as f64);
        let (label, memory) = (variant.label.clone(), earlier.memory);
        curves.push(Curve { label, across, points: earlier.points, memory, ..Curve::default() });
        open.push(Open {
            variant,
            asked,
            limits,
            whole: Vec::new(),
            spent_ns: earlier_ns + nanos(began.elapsed()),
            is_resumed: earlier_ns > 0,
            skips: goal.line && !matches!(effort.axis.values(), Some(Values::List(_))),
            is_done: false,
        });
    }
    let mut verdicts = Vec::new();
    while open.iter().any(|one| !one.is_done) {
        for (one, curve) in open.iter_mut().zip(&mut curves) {
            if one.is_done || stop.load(Ordering::Relaxed) {
                one.is_done = true;
                continue;
            }
            if one.skips
                && let Some((x, turn_ns)) = one.limits.too_slow(&one.asked, &curve.points)
            {
                let deepest = one.asked.iter().copied().fold(x, f64::max);
                let needed_ns = turn_ns as f64 * deepest / x * refine::TURNS as f64;
                let axis = effort.axis.name();
                verdicts.push(verdict::depths_left_out(&curve.label, axis, x, turn_ns as f64, needed_ns));
                one.asked.retain(|asked| *asked < x);
            }
            let counted = reserve(&one.asked, &curve.points, one.spent_ns, &one.limits);
            let step = refine::next(&goal, &one.asked, &curve.points, counted, &one.limits);
            let (x, slices, round, why) = match &step {
                Step::Measure { x, round, why, .. } => (*x, &[][..], *round, *why),
                Step::Slices { slices, round, why } => (sliced::deepest(slices), &slices[..], *round, *why),
                Step::Done(_) => {
                    one.is_done = true;
                    continue;
                }
            };
            let stretch = match step {
                Step::Measure { runtime_ns, .. } => Stretch::Visit(runtime_ns),
                _ => Stretch::Slices(slices),
            };
            let (began, at_ns) = (Instant::now(), one.spent_ns);
            let mut spot = spot(&one.variant, effort, Some(x as u64), offered)?;
            number += 1;
            spot.number = number;
            let place = sliced::place(effort.axis.name(), x, slices);
            let measured = measure(Doing::Point(&curve.label, &place, spot.depth, why), &spot, stretch);
            one.spent_ns += nanos(began.elapsed());
            match measured {
                // A visit cut short does not count as a point, and does not mean that the depth cannot be run.
                Ok(_) | Err(_) if stop.load(Ordering::Relaxed) => one.is_done = true,
                Ok(job) => {
                    let points =
                        if slices.is_empty() { Some(vec![Point::of(x, job)]) } else { sliced::points(slices, job) };
                    // Work that is over before the last slice is measured in visits.
                    one.limits.in_place &= points.is_some();
                    for mut point in points.into_iter().flatten() {
                        point.visits.iter_mut().for_each(|visit| (visit.at_ns, visit.round) = (at_ns, round));
                        if one.is_resumed {
                            resume::check_size(curve, &point, &effort.axis)?;
                        }
                        if slices.is_empty() && one.limits.in_place {
                            enter(&mut one.whole, point.clone());
                        }
                        enter(&mut curve.points, point);
                    }
                    let axis = effort.axis.name();
                    // The points of a sweep that is resumed cannot be had without their slices.
                    if !one.is_resumed
                        && let Some(sign) = slices::memory(&curve.points, axis, one.spent_ns, &one.limits)
                    {
                        curve.memory = Some(sign);
                        curve.points = std::mem::take(&mut one.whole);
                        one.limits.in_place = false;
                    }
                }
                Err(error) if curve.points.is_empty() || error.kind == ErrorKind::Internal => return Err(error),
                Err(error) => {
                    verdicts.push(verdict::depth_not_possible(&curve.label, effort.axis.name(), x, &error.to_string()));
                    one.is_done = true;
                }
            }
        }
        measured(&curves);
    }
    let curves = concluded(curves, effort);
    let asked = effort.until.filter(|_| !stop.load(Ordering::Relaxed));
    verdicts.extend(
        asked
            .iter()
            .flat_map(|&factor| curves.iter().filter_map(move |curve| verdict::wider_than_asked(curve, factor))),
    );
    Ok((curves, verdicts))
}

/// The curves that have points, with the answers and the verdicts that follow from their points.
fn concluded(mut curves: Vec<Curve>, effort: &Effort) -> Vec<Curve> {
    for curve in &mut curves {
        for point in &mut curve.points {
            point.job.judge();
        }
        curve.conclude(&effort.goal());
    }
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

/// The part of the time spent on a curve that counts: depths that were asked for and not visited yet keep their least,
/// however long the depths before them took.
fn reserve(asked: &[f64], points: &[Point], spent_ns: u64, limits: &Limits) -> u64 {
    spent_ns.min(limits.curve_cap_ns.saturating_sub(missing(asked, points) * LEAST_NS))
}

/// The number of values that were asked for and not visited yet.
fn missing(asked: &[f64], points: &[Point]) -> u64 {
    asked.iter().filter(|&&x| !points.iter().any(|point| point.x == x)).count() as u64
}

/// Puts a point in its place among points in order, or adds it to the one that is there.
fn enter(points: &mut Vec<Point>, point: Point) {
    match points.binary_search_by(|other| other.x.total_cmp(&point.x)) {
        Ok(at) => points[at].extend(point),
        Err(at) => points.insert(at, point),
    }
}

/// Measures the generator alone with the null engine, at the load line of the fastest curve.
fn ceiling(
    workload: &Workload,
    effort: &Effort,
    curves: &[Curve],
    stop: &Arc<AtomicBool>,
    crew: Option<&mut dyn Crew>,
    progress: &mut dyn FnMut(Doing, &Progress),
) -> Result<Option<Estimate>, Error> {
    let plateau = |curve: &Curve| curve.points.iter().map(|point| point.iops.mean).fold(0.0, f64::max);
    let Some(best) = curves.iter().max_by(|a, b| plateau(a).total_cmp(&plateau(b))) else { return Ok(None) };
    let deepest = best.points.last().map_or(1.0, |point| point.x);
    let line = best.line.as_ref().and_then(|line| line.load_line);
    let x = line.map_or(deepest, |line| line.mean.ceil()).max(1.0);
    // A rate would be the ceiling: the job runs without one.
    let across = effort.across.clone().zip(best.across.map(|value| value as u64));
    let engine = workload.engines.iter().find(|engine| **engine == best.label).or(workload.engines.first());
    let engine = engine.cloned().unwrap_or_default();
    let variant = Variant { label: best.label.clone(), engine, across, ..Variant::default() };
    let x = (!effort.axis.is_rate()).then_some(x as u64);
    let spot = spot(&variant, effort, x, &|by_bytes, total| workload.offered(by_bytes, total))?;
    let depth = spot.depth;
    let mut shown = |now: &Progress| progress(Doing::Ceiling(&best.label, depth), now);
    let job = match crew {
        None => Some(run(&workload.ceiling(&spot, CEILING_NS)?, stop, None, &mut shown)?),
        Some(crew) => {
            let order = Order { spot, runtime_ns: CEILING_NS, ceiling: true };
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

    fn visit_ns(stretch: Stretch) -> u64 {
        let Stretch::Visit(ns) = stretch else { panic!("no curve of these tests changes in place: {stretch:?}") };
        ns
    }

    fn engines(names: &[&str]) -> Vec<Variant> {
        let of = |name: &&str| Variant { label: name.to_string(), engine: name.to_string(), ..Variant::default() };
        names.iter().map(of).collect()
    }

    fn depths(values: Values) -> Effort {
        Effort { axis: Axis::depths(values), ..Effort::default() }
    }

    /// No test offers a rate.
    fn no_rate(_: bool, _: u64) -> Result<(String, String), Error> {
        Err(failure("no rate"))
    }

    fn failure(what: &str) -> Error {
        Error { kind: ErrorKind::System, what: what.into(), place: String::new(), hint: String::new(), source: None }
    }

    const LEFT: Duration = Duration::from_secs(30);

    #[test]
    fn a_curve_has_every_asked_depth_in_order_and_a_load_line() {
        let effort = depths(Values::Range(1, 64));
        let stop = AtomicBool::new(false);
        let mut measure = |_: Doing, spot: &Spot, stretch: Stretch| Ok(ran(spot.depth, visit_ns(stretch)));
        let mut rows = Vec::new();
        let mut measured = |curves: &[Curve]| rows.push(curves[0].points.len());
        let (curves, verdicts) =
            curves(engines(&["io_uring"]), &effort, LEFT, &stop, &mut measure, &no_rate, &mut measured).unwrap();
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
            refine::next(&Goal::load_line(), &asked, &points, reserve(&asked, &points, spent_ns, &limits), &limits)
        {
            assert!(points.len() < 3 && runtime_ns >= LEAST_NS.min(limits.first_ns), "{x}: {runtime_ns}");
            points.push(Point::of(x, ran(x as u32, runtime_ns)));
            spent_ns += 10 * cap_ns; // the machine stood still
        }
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>(), asked);
    }

    #[test]
    fn engines_take_turns() {
        let effort = depths(Values::List(vec![1, 2]));
        let stop = AtomicBool::new(false);
        let mut order = Vec::new();
        let mut measure = |doing: Doing, spot: &Spot, stretch: Stretch| {
            if matches!(doing, Doing::Point(.., Why::Asked)) {
                order.push(format!("{} {}", spot.engine, spot.depth));
            }
            Ok(ran(spot.depth, visit_ns(stretch)))
        };
        curves(engines(&["a", "b"]), &effort, LEFT, &stop, &mut measure, &no_rate, &mut |_| {}).unwrap();
        assert_eq!(order[..4], ["a 1", "b 1", "a 2", "b 2"]);
    }

    #[test]
    fn a_depth_that_cannot_be_run_ends_its_curve_and_no_other() {
        let effort = depths(Values::List(vec![1, 64, 512]));
        let stop = AtomicBool::new(false);
        let mut measure = |_: Doing, spot: &Spot, stretch: Stretch| match (spot.engine.as_str(), spot.depth) {
            ("psync", 512) => Err(failure("cannot start a thread")),
            (_, depth) => Ok(ran(depth, visit_ns(stretch))),
        };
        let (curves, verdicts) =
            curves(engines(&["io_uring", "psync"]), &effort, LEFT, &stop, &mut measure, &no_rate, &mut |_| {}).unwrap();
        assert_eq!((curves[0].points.len(), curves[1].points.len()), (3, 2));
        assert_eq!(verdicts.len(), 1);
        assert!(verdicts[0].what.contains("psync ends below iodepth 512: cannot start a thread"), "{verdicts:?}");
    }

    #[test]
    fn a_failure_before_the_first_point_is_an_error() {
        let stop = AtomicBool::new(false);
        let mut measure = |_: Doing, _: &Spot, _: Stretch| Err(failure("no such device"));
        let error =
            curves(engines(&["io_uring"]), &Effort::default(), LEFT, &stop, &mut measure, &no_rate, &mut |_| {})
                .unwrap_err();
        assert_eq!(error.to_string(), "no such device");
    }

    #[test]
    fn an_interrupted_sweep_keeps_its_whole_points() {
        let stop = AtomicBool::new(false);
        let mut measure = |_: Doing, spot: &Spot, stretch: Stretch| {
            let depth = spot.depth;
            stop.store(depth == 4, Ordering::Relaxed);
            Ok(ran(depth, visit_ns(stretch) / if depth == 4 { 2 } else { 1 }))
        };
        let (curves, _) =
            curves(engines(&["io_uring"]), &Effort::default(), LEFT, &stop, &mut measure, &no_rate, &mut |_| {})
                .unwrap();
        assert_eq!(curves[0].points.iter().map(|point| point.x).collect::<Vec<_>>(), [1.0, 2.0]);
    }
}

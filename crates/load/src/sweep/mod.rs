//! The sweep over an axis, most often the depth: curves side by side, one an engine or one a value of a second axis,
//! and the ceiling of the generator itself.
//!
//! ```text
//! Request ─► Workload (scratch file) ─► layout ─► points ◄─ measure::refine ─► load line, limits ─► ceiling
//! ```
//!
//! Curves take turns, a point each: whatever drifts, drifts through all of them.

mod axis;
mod ceiling;
mod crew;
mod curves;
mod effort;
mod job_file;
mod precondition;
mod recorded;
mod refusals;
mod resume;
mod scratch;
mod sliced;
mod values;
mod variant;
mod visit;
mod workload;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use measure::Objective;
use measure::refine::Why;
use measure::schema::{Curve, Ended, Preconditioning, Provenance, SweepResult};
use measure::verdict::{self, Judgement, Verdict};

use crate::run::Progress;
use crate::{Error, storage};

use ceiling::CEILING_NS;
use curves::{LEAST_NS, Shared, concluded, curves};
use recorded::Recorded;
use variant::{Variant, spot};
use visit::{Stretch, run, together, whole_passes};
use workload::Workload;

pub use axis::{Axis, Role};
pub use crew::{Crew, Order, Spot};
pub use effort::Effort;
pub use job_file::take_in;
pub use precondition::{Rounds, Stage};
pub use resume::Resume;
pub use scratch::Doomed;
pub use values::Values;
pub use workload::{Request, best_engine, files_of};

/// Requests in flight of the preconditioning, at least.
const PRECONDITION_DEPTH: u32 = 32;

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
    let began = Instant::now();
    let mut crew = watch.crew.take();
    let workload = Workload::prepare(request, effort, &watch.doomed)?;
    if crew.is_some() {
        refusals::check_many_hosts(request, effort)?;
    }
    let variants = variant::of_sweep(&workload, effort, request.resume.as_ref(), crew.is_none())?;
    workload.removed().iter().for_each(|(path, bytes)| (watch.removed)(path, *bytes));
    let mut sweep = Sweep { request, effort: workload.suit(effort), workload, watch, began };
    sweep.lay_out()?;
    // Before the preconditioning, which writes for hours to a target that the sweep would then refuse.
    sweep.check_options(&variants)?;
    let preconditioning = sweep.precondition()?;
    let mut result = SweepResult { preconditioning, ..sweep.frame(crew.as_deref()) };
    let found = sweep.measure(variants, &mut crew, &mut result)?;
    (sweep.watch.concluded)(&result);
    sweep.add_ceiling(&mut crew, &mut result)?;
    if let Some(crew) = crew {
        crew.tell(None);
    }
    if sweep.is_stopped() {
        result.ended = Ended::Interrupted;
    }
    sweep.judge(found, &mut result);
    Ok(result)
}

/// A sweep that is under way.
struct Sweep<'a, 'w> {
    request: &'a Request,
    effort: Effort,
    workload: Workload,
    watch: &'a mut Watch<'w>,
    /// The moment at which the time of the sweep began.
    began: Instant,
}

impl Sweep<'_, '_> {
    fn is_stopped(&self) -> bool {
        self.watch.stop.load(Ordering::Relaxed)
    }

    /// Writes the scratch file.
    fn lay_out(&mut self) -> Result<(), Error> {
        let (began, total) = (self.began, self.effort.total);
        lay_out(&mut self.workload, self.watch, &|| part(began, total))
    }

    /// Refuses to resume a sweep that measured its points with other job options.
    fn check_options(&self, variants: &[Variant]) -> Result<(), Error> {
        let Some(resume) = self.request.resume.as_ref().filter(|_| !self.is_stopped()) else { return Ok(()) };
        let offered = |by_bytes: bool, total: u64| self.workload.offered(by_bytes, total);
        for variant in variants {
            for point in &variant.earlier.points {
                let spot = spot(variant, &self.effort, Some(point.x as u64), &offered)?;
                let plan = self.workload.plan(&spot, LEAST_NS)?;
                plan.jobs.iter().try_for_each(|job| resume.check_options(&point.job, &job.options))?;
            }
        }
        Ok(())
    }

    /// Preconditions the target, if that was asked for. The time of the sweep begins when the target is ready.
    fn precondition(&mut self) -> Result<Option<Preconditioning>, Error> {
        let Some(rounds) = self.effort.precondition.filter(|_| !self.is_stopped()) else { return Ok(None) };
        let depth = self.effort.depth().max(PRECONDITION_DEPTH);
        let plans = self.workload.precondition(nanos(rounds.round), depth)?;
        let Watch { stop, progress, .. } = &mut *self.watch;
        let found = precondition::precondition(&plans, rounds, &mut |stage, plan| {
            let done = match stage {
                Stage::Purge | Stage::Fill => 0.0,
                Stage::Round(number) => f64::from(number - 1) / f64::from(rounds.most),
            };
            let doing = Doing::Precondition(stage);
            let (job, _) = run(plan, stop, None, &mut |now| progress(&Moment { doing, done, run: now }))?;
            Ok((!stop.load(Ordering::Relaxed)).then_some(job))
        })?;
        self.began = Instant::now();
        Ok(found)
    }

    /// The result of a sweep in which nothing is measured yet.
    fn frame(&self, crew: Option<&dyn Crew>) -> SweepResult {
        let Sweep { request, effort, workload, .. } = self;
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

    /// Measures all curves into the result, and saves it now and then. Returns the verdicts on curves that ended early.
    fn measure(
        &mut self,
        variants: Vec<Variant>,
        crew: &mut Option<&mut dyn Crew>,
        result: &mut SweepResult,
    ) -> Result<Vec<Verdict>, Error> {
        let (began, effort, workload) = (self.began, &self.effort, &self.workload);
        let Watch { stop, progress, measured, save, .. } = &mut *self.watch;
        let left = effort.total.saturating_sub(began.elapsed()).saturating_sub(Duration::from_nanos(2 * CEILING_NS));
        let provenance = std::cell::RefCell::new(Provenance::default());
        let mut measure = |doing: Doing, spot: &Spot, stretch: Stretch| {
            let mut shown = |now: &Progress| progress(&Moment { doing, done: part(began, effort.total), run: now });
            let crew = crew.as_mut().map(|crew| &mut **crew as &mut dyn Crew);
            let (job, by) = visit::measure(workload, spot, stretch, stop, crew, &mut shown)?;
            if provenance.borrow().schema == 0 {
                *provenance.borrow_mut() = by; // that of the first point: when the measurement began
            }
            match workload.recorded().filter(|_| !stop.load(Ordering::Relaxed)) {
                Some(recorded) => whole_passes(job, recorded),
                None => Ok(job),
            }
        };
        let mut saved = Instant::now();
        let mut visited = |curves: &[Curve]| {
            measured(curves);
            if saved.elapsed() >= effort.save_every {
                let curves = concluded(curves.to_vec(), effort);
                let provenance = provenance.borrow().clone();
                save(SweepResult { provenance, curves, ended: Ended::Interrupted, ..result.clone() });
                saved = Instant::now();
            }
        };
        let offered = |by_bytes: bool, total: u64| workload.offered(by_bytes, total);
        let shared = Shared { effort, stop, offered: &offered };
        let (curves, verdicts) = curves(variants, &shared, left, &mut measure, &mut visited)?;
        result.curves = curves;
        result.provenance = provenance.into_inner();
        if result.provenance.schema == 0 {
            // Nothing was left to measure.
            result.provenance = result.resumed.pop().unwrap_or_default();
        }
        Ok(verdicts)
    }

    /// Measures the generator's ceiling. Where neither depth nor rate is varied, the curve does not show how much the
    /// storage can do, and the ceiling tells nothing.
    fn add_ceiling(&mut self, crew: &mut Option<&mut dyn Crew>, result: &mut SweepResult) -> Result<(), Error> {
        let has_top = self.effort.axis.has_load_line() || self.effort.axis.is_rate();
        if !has_top || self.is_stopped() {
            return Ok(());
        }
        let (began, total) = (self.began, self.effort.total);
        let Watch { stop, progress, .. } = &mut *self.watch;
        let crew = crew.as_mut().map(|crew| &mut **crew as &mut dyn Crew);
        result.ceiling_iops =
            ceiling::ceiling(&self.workload, &self.effort, &result.curves, stop, crew, &mut |doing, now| {
                progress(&Moment { doing, done: part(began, total), run: now });
            })?;
        Ok(())
    }

    /// Judges the result. `found`: the verdicts on curves that ended early.
    fn judge(&self, found: Vec<Verdict>, result: &mut SweepResult) {
        let mut judged = Judgement::of_found(found.into_iter().chain(self.workload.verdicts()).collect());
        let unsteady = result.preconditioning.as_ref().filter(|found| !found.is_steady());
        judged.verdicts.extend(unsteady.map(verdict::not_preconditioned));
        if let Some(recorded) = self.workload.recorded() {
            judged.verdicts.push(recorded.described());
            let at_recorded =
                |curve: &Curve| curve.points.iter().find(|point| point.x == 100.0).map(|point| point.iops.mean);
            let behind = result.curves.iter().filter_map(at_recorded).filter_map(|iops| recorded.judged(iops));
            judged.verdicts.extend(behind.take(1));
        }
        for curve in &result.curves {
            judged.add(verdict::for_curve(curve, self.effort.axis.name(), result.ceiling_iops));
        }
        (result.verdicts, result.checks) = (judged.verdicts, judged.checks);
    }
}

/// Writes the scratch file, if there is one. `done`: the part of the time that has passed.
fn lay_out(workload: &mut Workload, watch: &mut Watch, done: &dyn Fn() -> f64) -> Result<(), Error> {
    let Some(plan) = workload.layout()? else { return Ok(()) };
    let Watch { stop, progress, .. } = watch;
    let (job, _) = run(&plan, stop, None, &mut |now| {
        progress(&Moment { doing: Doing::Layout, done: done(), run: now });
    })?;
    if stop.load(Ordering::Relaxed) { Ok(()) } else { workload.laid_out(job.directions.write.bytes) }
}

/// Sweeps as a member of `watch.crew`, as its leader orders.
///
/// # Errors
/// The fault in the request on this member's side.
pub fn follow(request: &Request, effort: &Effort, watch: &mut Watch) -> Result<(), Error> {
    let Some(crew) = watch.crew.take() else { return Ok(()) };
    let mut workload = Workload::prepare(request, effort, &watch.doomed)?;
    workload.removed().iter().for_each(|(path, bytes)| (watch.removed)(path, *bytes));
    lay_out(&mut workload, watch, &|| 0.0)?;
    let mut shown = |now: &Progress| (watch.progress)(&Moment { doing: Doing::Layout, done: 0.0, run: now });
    while let Some(order) = crew.listen() {
        together(&workload, &order, &watch.stop, crew, &mut shown)?;
    }
    Ok(())
}

/// The part of a time that has passed, 0..=1.
fn part(began: Instant, total: Duration) -> f64 {
    (began.elapsed().as_secs_f64() / total.as_secs_f64().max(1e-9)).min(1.0)
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

//! One measurement: a run of one job, by this process alone or by all members of a crew together.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use job::job::Plan;
use measure::schema::{Interval, JobError, JobResult, Provenance};
use measure::slices::Slice;
use measure::{PerDirection, figures};

use super::crew::{Crew, Order, Spot};
use super::recorded::{self, Recorded};
use super::workload::Workload;
use crate::peers::Peers;
use crate::run::{Control, Progress};
use crate::{Error, ErrorKind};

/// Length of the intervals that are the samples of a point: a few ops of a slow disk, and a dozen in the shortest
/// point.
pub(super) const INTERVAL_NS: u64 = 50_000_000;

/// The extent of one measurement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stretch<'a> {
    /// A visit, and its nanoseconds.
    Visit(u64),
    /// Slices of one run.
    Slices(&'a [Slice]),
}

/// Runs one measurement, with the crew if there is one: its result, and its provenance.
///
/// # Errors
/// The failure of the run; the end of the crew.
pub(super) fn measure(
    workload: &Workload,
    spot: &Spot,
    stretch: Stretch,
    stop: &Arc<AtomicBool>,
    crew: Option<&mut dyn Crew>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(JobResult, Provenance), Error> {
    match stretch {
        Stretch::Slices(slices) => run(&workload.plan_in_slices(spot, slices)?, stop, None, progress),
        Stretch::Visit(runtime_ns) => {
            let order = Order { spot: spot.clone(), runtime_ns, ceiling: false };
            carry_out(workload, &order, stop, crew, progress)?.ok_or_else(stopped)
        }
    }
}

/// Runs a point, with the crew if there is one. None: no member of the crew listens any more.
pub(super) fn carry_out(
    workload: &Workload,
    order: &Order,
    stop: &Arc<AtomicBool>,
    crew: Option<&mut dyn Crew>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<(JobResult, Provenance)>, Error> {
    match crew {
        None => run(&plan_of(workload, &order.spot, order)?, stop, None, progress).map(Some),
        Some(crew) => match crew.tell(Some(order)) {
            true => together(workload, order, stop, crew, progress),
            false => Ok(None),
        },
    }
}

/// The plan of a point, at the settings of one member.
fn plan_of(workload: &Workload, spot: &Spot, order: &Order) -> Result<Plan, Error> {
    match order.ceiling {
        true => workload.ceiling(spot, order.runtime_ns),
        false => workload.plan(spot, order.runtime_ns),
    }
}

/// Runs one point together with all members: the sum at the leader, None at the other members.
pub(super) fn together(
    workload: &Workload,
    order: &Order,
    stop: &Arc<AtomicBool>,
    crew: &mut dyn Crew,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<(JobResult, Provenance)>, Error> {
    let share = crew.share(order.spot.depth);
    let (mut mine, mut by) = (None, Provenance::default());
    if share > 0 {
        let own = Spot { depth: share, ..order.spot.clone() };
        let outcome = plan_of(workload, &own, order).and_then(|mut plan| {
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
pub(super) fn run(
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
pub(super) fn whole_passes(mut job: JobResult, recorded: &Recorded) -> Result<JobResult, Error> {
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

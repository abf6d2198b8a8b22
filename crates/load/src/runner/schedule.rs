//! The schedule of the clones: stonewalls, `wait_for`, start delays, `exitall`, and the merging of reports.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use job::Job;
use job::engines::EngineSpec;
use job::iolog::Summary;
use job::job::{ExitWhat, Plan};
use job::workload::random;
use measure::schema::{Ended, JobResult, RunResult, Storage};
use measure::{PerDirection, verdict};
use sys::clock::{Clock, monotonic_ns, realtime_ns};

use super::clone::{self, Orders, Report};
use super::seats::{Published, Seats};
use super::shared::refuse_shared_writes;
use super::sources::{self, largest_block, survey};
use super::statements::Statements;
use super::steady::Watch;
use super::trial;
use super::workers::Worker;
use super::zones::Tables;
use crate::Error;
use crate::content::Filler;
use crate::engine::Maker;
use crate::failures::Failures;
use crate::files::{self, Backing, Context, Target, elsewhere, seats_of};
use crate::machine::{DiskWatch, provenance};
use crate::peers::{self, Peers, Stage};
use crate::run::{CloneState, Control, Phase, Progress};
use crate::storage;

/// The time between two looks of the runner at its clones.
const POLL: Duration = Duration::from_millis(1);
const PROGRESS_NS: u64 = 200_000_000;

/// One clone of the plan.
struct Clone {
    job: usize,
    number: u32,
    group: u32,
    largest_block: u64,
    /// True if the clone's files are prepared only when its turn comes: earlier jobs make them.
    is_postponed: bool,
    target: Mutex<Target>,
}

/// The state of a clone in the schedule.
enum Stand<'scope> {
    Waiting,
    Running(Worker<'scope>),
    Ended(Box<Report>),
}

/// Runs a plan: see [`crate::run()`].
pub(crate) fn run(plan: &Plan, control: &mut Control) -> Result<RunResult, Error> {
    let (started_ns, started_unix_ms) = (monotonic_ns(), realtime_ns() / 1_000_000);
    let makers = plan.jobs.iter().map(|job| Maker::find(&job.engine)).collect::<Result<Vec<_>, _>>()?;
    let mut failures = Failures::new(control.clones_fail_alone);
    let logs = replayed_logs(plan, &mut failures)?;
    let mut plan = with_directions_of(&logs, plan);
    draw_seeds(&mut plan);
    let plan = &plan;
    files::preflight_of(plan, &mut failures)?;
    sources::find_states(plan, &places(plan), &mut failures)?;
    trial::trial(plan, &makers, &mut failures)?;
    let clock = clock_for(plan);
    measure_wake(&makers);
    let clones = prepare_in_turn(plan, &logs, &makers, control, &mut failures)?;
    let tables = look_at_zones(plan, &clones, &mut failures)?;
    refuse_shared(plan, &makers, &clones)?;
    if let Some(peers) = control.peers.as_deref_mut() {
        // If it never opens, `stop` is set, and no clone is started.
        peers::wait(peers, Stage::LaidOut, &control.stop, &mut |_| {});
    }
    let seats = Seats::new(clones.len()).map_err(no_memory)?;
    let statements = statements(control, clones.len())?;
    let (disks, storage) = watch_disks(plan, &makers, &clones);
    let account = Account { plan, places: places(plan), clock, started_unix_ms, disks, storage };
    if clones.is_empty() {
        let untouched = account.places.iter().map(|&(job, _)| clone::untouched(&plan.jobs[job], makers[job].spec));
        return Ok(account.describe(untouched.collect(), Ended::Interrupted));
    }
    let flows = flows(plan, &clones);
    let describe = |results, ended| account.describe(results, ended);
    let mut reports = std::thread::scope(|scope| {
        let mut schedule = Schedule {
            plan,
            makers: &makers,
            clones: &clones,
            seats: &seats,
            flows: &flows,
            tables: &tables,
            statements: statements.as_ref(),
            describe: &describe,
            next_status_ns: None,
            status_is_awaited: false,
            clock,
            stands: clones.iter().map(|_| Stand::Waiting).collect(),
            watches: plan.jobs.iter().map(|job| job.time.steady_state.map(Watch::new)).collect(),
            last_sample: vec![Published::default(); plan.jobs.len()],
            last_sample_ns: vec![monotonic_ns(); plan.jobs.len()],
            started_ns,
            closing: false,
            aligned: Vec::new(),
            failure: None,
        };
        schedule.end_failed(&mut failures);
        schedule.run(control, scope)
    });
    finish_targets(clones, &mut reports);
    let ended = ended(&reports, control.stop.load(Relaxed));
    Ok(account.describe(reports.into_iter().map(|report| report.result).collect(), ended))
}

/// Measures the cost of a wake-up for the engines that need it, before there are clones, which would all measure it at
/// once.
fn measure_wake(makers: &[Maker]) {
    if makers.iter().any(|maker| ["nvme_tcp", "nvme_rdma"].contains(&maker.spec.name)) {
        sys::wake::cost_ns();
    }
}

/// The contents of the logs that jobs replay; None for the other jobs.
fn replayed_logs(plan: &Plan, failures: &mut Failures) -> Result<Vec<Option<Summary>>, Error> {
    let mut logs = Vec::with_capacity(plan.jobs.len());
    for (job, seats) in plan.jobs.iter().zip(seats_of(plan)) {
        logs.push(match job.iolog.is_replay().then(|| survey(job)) {
            Some(Err(error)) => failures.of_all(seats, error).map(|()| None)?,
            Some(Ok(log)) => Some(log),
            None => None,
        });
    }
    Ok(logs)
}

/// The clones with their files, which peers that share them make first; none if the run was stopped meanwhile.
fn prepare_in_turn(
    plan: &Plan,
    logs: &[Option<Summary>],
    makers: &[Maker],
    control: &mut Control,
    failures: &mut Failures,
) -> Result<Vec<Clone>, Error> {
    let stopped = Arc::clone(&control.stop);
    let may_be_shared = |job: &Job| !job.files.names.is_empty() || job.files.opendir.is_some();
    if let Some(peers) = control.peers.as_deref_mut()
        && plan.jobs.iter().any(may_be_shared)
    {
        peers::await_turn(peers, &stopped);
    }
    match prepare(plan, logs, makers, control, failures) {
        // The run was stopped while files were made: the files are removed, and the result says that nothing ran.
        Err(_) if stopped.load(Relaxed) => Ok(Vec::new()),
        prepared => prepared,
    }
}

fn no_memory(error: std::io::Error) -> Error {
    Error::system("cannot share memory", "", error)
}

/// The place for statements of running clones, if the caller may ask for them.
fn statements(control: &Control, clones: usize) -> Result<Option<Statements>, Error> {
    // Each clone takes a descriptor. Where no interval is asked for, they are not worth a failure.
    const ON_REQUEST: usize = 256;
    let wanted =
        control.status.as_ref().is_some_and(|(interval_ns, _)| *interval_ns != u64::MAX || clones <= ON_REQUEST);
    let hint = "--status-interval takes a descriptor for each clone: ulimit -n";
    wanted.then(|| Statements::new(clones)).transpose().map_err(|error| no_memory(error).hint(hint))
}

/// The facts that turn the results of clones into the result of the run.
struct Account<'a> {
    plan: &'a Plan,
    places: Vec<(usize, u32)>,
    clock: Clock,
    started_unix_ms: u64,
    disks: DiskWatch,
    storage: Storage,
}

impl Account<'_> {
    fn describe(&self, results: Vec<JobResult>, ended: Ended) -> RunResult {
        let mut result = RunResult {
            provenance: provenance(&self.clock, self.started_unix_ms),
            global_options: self.plan.global_options.clone(),
            jobs: merge(self.plan, &self.places, results),
            disks: self.disks.so_far(),
            storage: self.storage.clone(),
            verdicts: Vec::new(),
            checks: Vec::new(),
            ended,
            remaining_ns: None,
            taken_unix_ms: Some(realtime_ns() / 1_000_000),
            hosts: None,
        };
        for job in &mut result.jobs {
            job.judge();
        }
        let judged = verdict::for_run(&result);
        (result.verdicts, result.checks) = (judged.verdicts, judged.checks);
        result
    }
}

/// Each target removes the files that it made or was asked to remove, however its clone ended.
fn finish_targets(clones: Vec<Clone>, reports: &mut [Report]) {
    for (clone, report) in clones.into_iter().zip(reports) {
        let target = clone.target.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = target.finish() {
            report.fail(&error);
        }
    }
}

/// The end of the run: a failure goes before an interruption. A clone that another job ended (`exitall`) is neither.
fn ended(reports: &[Report], is_stopped: bool) -> Ended {
    match () {
        () if reports.iter().any(|report| report.ended == Ended::Failed) => Ended::Failed,
        () if is_stopped => Ended::Interrupted,
        () => Ended::Complete,
    }
}

/// For each job, the seats and weights of all clones with its `flow_id`; empty for jobs without `flow`.
fn flows(plan: &Plan, clones: &[Clone]) -> Vec<Vec<(usize, u32)>> {
    let of = |clone: &Clone| plan.jobs[clone.job].rate.flow;
    let share = |id| {
        clones
            .iter()
            .enumerate()
            .filter_map(move |(seat, clone)| Some((seat, of(clone).filter(|flow| flow.id == id)?.weight)))
    };
    plan.jobs.iter().map(|job| job.rate.flow.map_or_else(Vec::new, |flow| share(flow.id).collect())).collect()
}

/// The disks below the files of all jobs that want to know of them, and their description.
fn watch_disks(plan: &Plan, makers: &[Maker], clones: &[Clone]) -> (DiskWatch, Storage) {
    let mut paths = Vec::new();
    for clone in clones {
        let engine = makers[clone.job].spec;
        let on_disk = !engine.diskless || engine.on_names; // calls on names reach the disk below the directory
        if plan.jobs[clone.job].reporting.disk_util && on_disk && !engine.opens_files {
            let target = clone.target.lock().unwrap_or_else(PoisonError::into_inner);
            paths.extend(target.names().map(str::to_owned));
        }
    }
    let storage = storage::of(paths.iter().map(Path::new));
    (DiskWatch::start(&storage), storage)
}

/// The zones of all files of jobs with `zonemode=zbd`, before any clone starts: clones share them.
fn look_at_zones(plan: &Plan, clones: &[Clone], failures: &mut Failures) -> Result<Tables, Error> {
    let mut tables = Tables::default();
    for (clone, seat) in clones.iter().zip(0..) {
        if failures.has(seat) {
            continue;
        }
        let mut target = clone.target.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = tables.add(&plan.jobs[clone.job], seat as u64, &mut target) {
            failures.of(seat, error)?;
        }
    }
    Ok(tables)
}

/// Refuses clones that write blocks that another clone verifies: [`refuse_shared_writes`].
fn refuse_shared(plan: &Plan, makers: &[Maker], clones: &[Clone]) -> Result<(), Error> {
    let targets: Vec<_> =
        clones.iter().map(|clone| clone.target.lock().unwrap_or_else(PoisonError::into_inner)).collect();
    let files = clones.iter().zip(&targets).map(|(clone, target)| {
        let files = target.names().zip(target.extents().iter().copied()).filter(|_| !makers[clone.job].spec.diskless);
        (clone.job, clone.number, files.collect())
    });
    refuse_shared_writes(plan, files)
}

/// The clock that the jobs ask for: one for all, so that their times compare.
fn clock_for(plan: &Plan) -> Clock {
    use job::job::ClockSource;
    match plan.jobs.first().map(|job| job.reporting.clock) {
        Some(ClockSource::ClockGettime) => Clock::monotonic(),
        Some(ClockSource::Cpu) => Clock::tsc(),
        _ => Clock::calibrated(),
    }
}

/// The plan with the directions of the replayed logs: `rw=` says nothing about them.
fn with_directions_of(logs: &[Option<Summary>], plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for (job, log) in plan.jobs.iter_mut().zip(logs) {
        if let Some(log) = log {
            job.rw.directions = PerDirection::from_fn(|direction| log.ops[direction] > 0);
        }
    }
    plan
}

/// Gives each job with `randrepeat=0` a seed that no earlier run had. [`crate::run()`] does so for the jobs that have
/// none yet.
pub fn draw_seeds(plan: &mut Plan) {
    for (job, number) in plan.jobs.iter_mut().zip(0u64..) {
        if !job.pattern.repeatable && !job.pattern.seed_drawn {
            job.pattern.seed_drawn = true;
            let moment = realtime_ns() ^ u64::from(std::process::id()) << 40;
            job.pattern.seed = random::mix(random::mix(moment) ^ number);
        }
    }
}

/// The job and the reporting group of every clone, in order.
fn places(plan: &Plan) -> Vec<(usize, u32)> {
    let mut places = Vec::new();
    for (index, (job, group)) in plan.jobs.iter().zip(plan.groups()).enumerate() {
        places.extend((0..job.process.clones.max(1)).map(|_| (index, group)));
    }
    places
}

/// Expands clones and prepares their files, in order. A clone that has failed gets none.
fn prepare(
    plan: &Plan,
    logs: &[Option<Summary>],
    makers: &[Maker],
    control: &mut Control,
    failures: &mut Failures,
) -> Result<Vec<Clone>, Error> {
    let mut clones: Vec<Clone> = Vec::new();
    let mut groups = places(plan).into_iter().map(|(_, group)| group);
    let postponed = files::postponed(plan)?;
    for (index, job) in plan.jobs.iter().enumerate() {
        let replayed = logs[index].as_ref();
        let largest_block = match replayed {
            Some(log) => log.largest.max(1),
            None => largest_block(job),
        };
        for number in 0..job.process.clones.max(1) {
            let names = replayed.map(|log| log.files.iter().map(|file| file.name.clone()).collect());
            let is_postponed = postponed[index];
            let seat = clones.len();
            let target = if is_postponed || failures.has(seat) {
                Target::postponed(job)
            } else {
                match prepare_target(job, number, makers[index].spec, names, control) {
                    Ok(target) => target,
                    // A layout that was stopped is the end of the run.
                    Err(error) if control.stop.load(Relaxed) => return Err(error),
                    Err(error) => failures.of(seat, error).map(|()| Target::postponed(job))?,
                }
            };
            let (group, target) = (groups.next().unwrap_or_default(), Mutex::new(target));
            clones.push(Clone { job: index, number, group, largest_block, is_postponed, target });
        }
    }
    Ok(clones)
}

/// The files of one clone, laid out.
fn prepare_target(
    job: &Job,
    number: u32,
    engine: &EngineSpec,
    names: Option<Vec<String>>,
    control: &mut Control,
) -> Result<Target, Error> {
    let mut filler = Filler::for_layout(job, number);
    let block = job.blocks.range.write.1;
    let mut laid_out = 0;
    let progress = &mut control.progress;
    let mut context = Context {
        backing: if engine.diskless { Backing::Nowhere } else { Backing::Host },
        names,
        stop: &control.stop,
        fill: &mut |bytes, offset| filler.lay_out(bytes, offset, block),
        progress: &mut |bytes| {
            laid_out += bytes;
            if let Some(progress) = progress {
                let bytes = PerDirection { write: laid_out, ..PerDirection::default() };
                progress(&Progress { phase: Phase::Layout, bytes, ..Progress::default() });
            }
        },
    };
    if !engine.opens_files {
        return Target::prepare(job, number, &mut context);
    }
    let found = elsewhere::prepare(job, number, &mut context)?;
    Target::prepare(job, number, &mut Context { backing: Backing::Engine(&found), ..context })
}

struct Schedule<'scope, 'run> {
    plan: &'run Plan,
    makers: &'run [Maker],
    clones: &'run [Clone],
    seats: &'run Seats,
    /// For each job, the seats and weights of the clones with which it shares (`flow`).
    flows: &'run [Vec<(usize, u32)>],
    tables: &'run Tables,
    statements: Option<&'run Statements>,
    describe: &'run dyn Fn(Vec<JobResult>, Ended) -> RunResult,
    /// The time at which the runner asks for the next statements, and whether it has asked.
    next_status_ns: Option<u64>,
    status_is_awaited: bool,
    clock: Clock,
    stands: Vec<Stand<'scope>>,
    /// For each job, the watch over its `steadystate`.
    watches: Vec<Option<Watch>>,
    last_sample: Vec<Published>,
    /// For each job, the time of the last sample of its watch.
    last_sample_ns: Vec<u64>,
    started_ns: u64,
    /// True if no more clones are to be started.
    closing: bool,
    /// Clones that began together with those of the peers, and the time of the start that was agreed on.
    aligned: Vec<(usize, u64)>,
    /// A failure that the peers do not know yet.
    failure: Option<String>,
}

impl<'scope, 'run: 'scope> Schedule<'scope, 'run> {
    /// Ends the clones that failed before any clone began. As in fio, `exitall` and its like take no notice of them.
    fn end_failed(&mut self, failures: &mut Failures) {
        for index in 0..self.stands.len() {
            if let Some(error) = failures.take(index) {
                let job = &self.plan.jobs[self.clones[index].job];
                self.seats.seat(index).leave();
                let report = Report::failed_with(job, self.untouched(index).facts, error);
                self.stands[index] = Stand::Ended(Box::new(report));
            }
        }
    }

    fn run<'env>(&mut self, control: &mut Control, scope: &'scope Scope<'scope, 'env>) -> Vec<Report> {
        let mut next_progress_ns = 0;
        loop {
            let stopping = control.stop.load(Relaxed);
            if stopping {
                self.seats.stop_all();
            }
            let now_ns = monotonic_ns();
            if !stopping && !self.closing {
                let due = self.due(now_ns);
                self.start(&due, control, scope);
            }
            self.collect();
            self.end_with_io();
            if let Some(peers) = control.peers.as_deref_mut() {
                self.tell_failure(peers);
            }
            self.watch(now_ns);
            if now_ns >= next_progress_ns {
                next_progress_ns = now_ns + PROGRESS_NS;
                self.report_progress(control, now_ns);
            }
            self.report_status(control, now_ns);
            let running = self.stands.iter().any(|stand| matches!(stand, Stand::Running(_)));
            let waiting = self.stands.iter().any(|stand| matches!(stand, Stand::Waiting));
            if !running && (!waiting || stopping || self.closing) {
                break;
            }
            std::thread::sleep(POLL);
        }
        self.report_progress(control, monotonic_ns());
        if let Some(peers) = control.peers.as_deref_mut() {
            let began = |index: usize| self.seats.seat(index).began_at();
            self.aligned.iter().for_each(|&(index, agreed_ns)| {
                began(index).into_iter().for_each(|actual_ns| peers.started(agreed_ns, actual_ns));
            });
        }
        let mut reports = Vec::new();
        for (index, stand) in std::mem::take(&mut self.stands).into_iter().enumerate() {
            let mut report = match stand {
                Stand::Ended(report) => *report,
                // Never started: the run ended before its turn.
                _ => Report { result: self.untouched(index), ended: Ended::Interrupted },
            };
            report.result.steady_state = self.watches[self.clones[index].job].as_ref().map(Watch::outcome);
            reports.push(report);
        }
        reports
    }

    /// The clones whose turn it is: all that follow up to the first stonewall that still has to wait.
    fn due(&self, now_ns: u64) -> Vec<usize> {
        let mut due: Vec<usize> = Vec::new();
        let mut held_back = false;
        let busy = self.stands.iter().any(|stand| matches!(stand, Stand::Running(_)));
        for (index, clone) in self.clones.iter().enumerate() {
            if !matches!(self.stands[index], Stand::Waiting) {
                continue;
            }
            let time = &self.plan.jobs[clone.job].time;
            // Clones after the first drop the stonewall: they start with it.
            if time.stonewall && clone.number == 0 && (busy || held_back || !due.is_empty()) {
                break;
            }
            let awaits = time.wait_for.as_ref().is_some_and(|awaited| !self.has_ended(awaited));
            let delayed = now_ns - self.started_ns < self.delay_ns(clone);
            if awaits || delayed || (clone.number > 0 && self.first_clone_waits(index, &due)) {
                held_back = true;
            } else {
                due.push(index);
            }
        }
        due
    }

    /// True if the first clone of the same job has neither started nor is about to.
    fn first_clone_waits(&self, index: usize, due: &[usize]) -> bool {
        let first = index - self.clones[index].number as usize;
        matches!(self.stands[first], Stand::Waiting) && !due.contains(&first)
    }

    fn has_ended(&self, job_name: &str) -> bool {
        self.clones
            .iter()
            .zip(&self.stands)
            .filter(|(clone, _)| self.plan.jobs[clone.job].name == job_name)
            .all(|(_, stand)| matches!(stand, Stand::Ended(_)))
    }

    /// `startdelay`: each clone draws its delay from the range once, reproducibly.
    fn delay_ns(&self, clone: &Clone) -> u64 {
        let job = &self.plan.jobs[clone.job];
        let (low, high) = job.time.start_delay_ns;
        if high <= low {
            return low;
        }
        let draw = job.clone_seed(clone.number).wrapping_mul(0xd129_0d3f_6c5b_4a27) >> 11;
        low + (draw as f64 / (1u64 << 53) as f64 * (high - low) as f64) as u64
    }

    /// Starts clones together: all set up, then one gate opens for all.
    fn start<'env>(&mut self, due: &[usize], control: &mut Control, scope: &'scope Scope<'scope, 'env>) {
        let Some(&first) = due.first() else { return };
        // Clones that start while other clones run do not wait for the peers: this side alone opens their gate.
        let together = !self.stands.iter().any(|stand| matches!(stand, Stand::Running(_)));
        // Children first: a fork carries over no thread that might hold a lock.
        let as_thread = |index: &usize| control.threads_only || self.plan.jobs[self.clones[*index].job].process.thread;
        let (threads, processes): (Vec<usize>, Vec<usize>) = due.iter().partition(|index| as_thread(index));
        for (indices, as_thread) in [(processes, false), (threads, true)] {
            for index in indices {
                if let Err(error) = self.prepare_postponed(index, control) {
                    self.stands[index] = self.ended(index, Err(error));
                    self.after_end(index);
                    continue;
                }
                let orders = self.orders(index, control);
                self.stands[index] = match Worker::start(orders, as_thread, scope) {
                    Ok(worker) => Stand::Running(worker),
                    Err(error) => self.ended(index, Err(error)),
                };
            }
        }
        while due.iter().any(|&index| self.is_getting_ready(index)) {
            self.collect_some(due);
            if control.stop.load(Relaxed) {
                self.seats.stop_all();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        // The start is near enough not to be noticed, and far enough for every clone to be asleep on it.
        let mut start_at_ns = monotonic_ns() + self.seats.gate_poll_ns() + 500_000;
        if let Some(peers) = control.peers.as_deref_mut().filter(|_| together) {
            let stage = Stage::Start(self.clones[first].job as u32);
            let agreed = peers::wait(peers, stage, &control.stop, &mut |peers| {
                self.collect_some(due);
                self.tell_failure(peers);
            });
            match agreed {
                Some(at_ns) => {
                    start_at_ns = at_ns;
                    self.aligned.extend(due.iter().map(|&index| (index, at_ns)));
                }
                // The clones are let go, and end at once.
                None => self.seats.stop_all(),
            }
        }
        for &index in due {
            self.seats.seat(index).open_gate(start_at_ns);
        }
    }

    /// Prepares the files of a clone that had to wait for those of earlier jobs.
    fn prepare_postponed(&self, index: usize, control: &mut Control) -> Result<(), Error> {
        let clone = &self.clones[index];
        if clone.is_postponed {
            let (job, engine) = (&self.plan.jobs[clone.job], self.makers[clone.job].spec);
            let target = prepare_target(job, clone.number, engine, None, control)?;
            *clone.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        }
        Ok(())
    }

    fn tell_failure(&mut self, peers: &mut dyn Peers) {
        if let Some(failure) = self.failure.take() {
            peers.failed(&failure);
        }
    }

    fn is_getting_ready(&self, index: usize) -> bool {
        matches!(self.stands[index], Stand::Running(_)) && !self.seats.seat(index).is_ready()
    }

    fn orders(&self, index: usize, control: &Control) -> Orders<'run> {
        let clone = &self.clones[index];
        Orders {
            job: &self.plan.jobs[clone.job],
            maker: self.makers[clone.job],
            target: &clone.target,
            largest_block: clone.largest_block,
            clone: clone.number,
            seat: index,
            flow: self.flows[clone.job].as_slice(),
            seats: self.seats,
            tables: self.tables,
            clock: self.clock,
            statement: self.statements.map(|statements| statements.of(index)),
            interval_ns: control.interval_ns,
            interval_histograms: control.interval_histograms,
        }
    }

    fn collect(&mut self) {
        let all: Vec<usize> = (0..self.stands.len()).collect();
        self.collect_some(&all);
    }

    fn collect_some(&mut self, indices: &[usize]) {
        for &index in indices {
            let Stand::Running(worker) = &mut self.stands[index] else {
                continue;
            };
            if let Some(report) = worker.try_finish() {
                self.stands[index] = self.ended(index, report);
                self.after_end(index);
            }
        }
    }

    fn ended(&self, index: usize, report: Result<Report, Error>) -> Stand<'scope> {
        self.seats.seat(index).leave();
        let clone = &self.clones[index];
        let job = &self.plan.jobs[clone.job];
        Stand::Ended(Box::new(report.unwrap_or_else(|error| Report::failed(job, self.untouched(index).facts, &error))))
    }

    /// The result of a clone that has no numbers.
    fn untouched(&self, index: usize) -> JobResult {
        let clone = &self.clones[index];
        clone::untouched(&self.plan.jobs[clone.job], self.makers[clone.job].spec)
    }

    /// Draws the consequences of the end of one clone for the other clones.
    fn after_end(&mut self, index: usize) {
        let Stand::Ended(report) = &self.stands[index] else {
            return;
        };
        let clone = &self.clones[index];
        let time = &self.plan.jobs[clone.job].time;
        let failed = report.ended == Ended::Failed;
        if failed {
            self.failure =
                report.result.error.as_ref().map(|error| format!("job {}: {}", report.result.name, error.message));
        }
        if failed && time.exit_all_on_error {
            self.closing = true;
            self.seats.stop_all();
        }
        if time.exit_all {
            match time.exit_what {
                ExitWhat::All => {
                    self.closing = true;
                    self.seats.stop_all();
                }
                ExitWhat::Stonewall => self.stop(|_| true),
                ExitWhat::Group => self.stop(|peer| peer.group == clone.group),
            }
        }
    }

    /// `exit_on_io_done`: ends such jobs when every job that moves data has ended. Without a job that moves data they
    /// go on, as in fio.
    fn end_with_io(&self) {
        let mut moves_data =
            self.clones.iter().zip(&self.stands).filter(|(clone, _)| !self.makers[clone.job].spec.without_data);
        let some_wait = self.plan.jobs.iter().any(|job| job.time.ends_with_io);
        if some_wait
            && moves_data.clone().next().is_some()
            && moves_data.all(|(_, stand)| matches!(stand, Stand::Ended(_)))
        {
            self.stop(|clone| self.plan.jobs[clone.job].time.ends_with_io);
        }
    }

    /// Tells the chosen clones to end, if they run.
    fn stop(&self, chosen: impl Fn(&Clone) -> bool) {
        for (index, clone) in self.clones.iter().enumerate() {
            if chosen(clone) && matches!(self.stands[index], Stand::Running(_)) {
                self.seats.seat(index).stop();
            }
        }
    }

    /// `steadystate`: looks at each job's figure when its interval is over.
    fn watch(&mut self, now_ns: u64) {
        for job in 0..self.plan.jobs.len() {
            let Some(interval_ns) = self.watches[job].as_ref().map(Watch::interval_ns) else {
                continue;
            };
            let measures = self.measures(job);
            if measures && now_ns < self.last_sample_ns[job] + interval_ns {
                continue;
            }
            let total = self.total(|clone| clone.job == job);
            let last = std::mem::replace(&mut self.last_sample[job], total);
            if !measures {
                // The first interval begins with the measurement: one that begins before would show a lower figure.
                self.last_sample_ns[job] = now_ns;
                continue;
            }
            self.last_sample_ns[job] += interval_ns;
            let Some(watch) = &mut self.watches[job] else {
                continue;
            };
            let sum = |values: &PerDirection<u64>| values.read + values.write + values.trim;
            let ops = sum(&total.ops).saturating_sub(sum(&last.ops));
            let bytes = sum(&total.bytes).saturating_sub(sum(&last.bytes));
            if watch.push(ops, bytes) {
                self.stop(|clone| clone.job == job);
            }
        }
    }

    /// True if clones of the job run, and all of those measure.
    fn measures(&self, job: usize) -> bool {
        let of_job = self.clones.iter().zip(&self.stands).enumerate().filter(|(_, (clone, _))| clone.job == job);
        let mut running = of_job.filter(|(_, (_, stand))| matches!(stand, Stand::Running(_))).peekable();
        running.peek().is_some() && running.all(|(index, _)| self.seats.seat(index).read().phase == Phase::Run)
    }

    /// The sum of the numbers that the chosen clones have published; the phase of the clone that is furthest behind.
    fn total(&self, chosen: impl Fn(&Clone) -> bool) -> Published {
        let mut total = Published { phase: Phase::Verify, ..Published::default() };
        let mut any = false;
        for (index, clone) in self.clones.iter().enumerate() {
            if !chosen(clone) || matches!(self.stands[index], Stand::Waiting) {
                continue;
            }
            let one = self.seats.seat(index).read();
            for (direction, ops) in total.ops.iter_mut() {
                *ops += one.ops[direction];
            }
            for (direction, bytes) in total.bytes.iter_mut() {
                *bytes += one.bytes[direction];
            }
            total.lat_sum_ns += one.lat_sum_ns;
            if matches!(self.stands[index], Stand::Running(_)) {
                any = true;
                total.phase = if (one.phase as u8) < total.phase as u8 { one.phase } else { total.phase };
            }
        }
        if !any {
            total.phase = Phase::Run;
        }
        total
    }

    fn report_progress(&self, control: &mut Control, now_ns: u64) {
        if let Some(clones) = &mut control.clones {
            let states = (0..self.clones.len()).map(|index| (self.clones[index].job, self.state(index)));
            clones(&states.collect::<Vec<_>>());
        }
        let Some(progress) = &mut control.progress else {
            return;
        };
        let total = self.total(|_| true);
        let running = self.stands.iter().filter(|stand| matches!(stand, Stand::Running(_))).count();
        let elapsed_ns = now_ns - self.started_ns;
        let (done, remaining_ns) = self.done(now_ns);
        progress(&Progress {
            phase: total.phase,
            running: (running as u32, self.clones.len() as u32),
            elapsed_ns,
            done,
            remaining_ns,
            ops: total.ops,
            bytes: total.bytes,
            lat_sum_ns: total.lat_sum_ns,
        });
    }

    fn state(&self, index: usize) -> CloneState {
        match &self.stands[index] {
            Stand::Waiting => CloneState::Waiting,
            Stand::Running(_) => match self.seats.seat(index).read().phase {
                Phase::Layout => CloneState::Layout,
                Phase::Ramp => CloneState::Ramp,
                Phase::Run => CloneState::Run,
                Phase::Verify => CloneState::Verify,
            },
            Stand::Ended(report) if report.result.error.is_some() => CloneState::Failed,
            Stand::Ended(_) => CloneState::Ended,
        }
    }

    /// The part of the work that is done, and the nanoseconds that the rest will take; None where nothing tells.
    fn done(&self, now_ns: u64) -> (Option<f64>, Option<u64>) {
        let parts: Vec<f64> = (0..self.clones.len()).map(|index| self.part_done(index, now_ns)).collect();
        let known = parts.iter().all(|part| part.is_finite());
        let done = known.then(|| parts.iter().sum::<f64>() / parts.len().max(1) as f64);
        (done, self.remaining_ns(now_ns))
    }

    /// The time that the rest takes: stages follow one another, and the clones of a stage run side by side.
    fn remaining_ns(&self, now_ns: u64) -> Option<u64> {
        let (mut before, mut stage) = (0, 0);
        for (index, clone) in self.clones.iter().enumerate() {
            if self.plan.jobs[clone.job].time.stonewall && clone.number == 0 {
                before += std::mem::take(&mut stage);
            }
            stage = stage.max(self.clone_remaining_ns(index, now_ns)?);
        }
        Some(before + stage)
    }

    /// The time until a clone ends, by work or by time, whichever comes first; None where nothing tells.
    fn clone_remaining_ns(&self, index: usize, now_ns: u64) -> Option<u64> {
        let clone = &self.clones[index];
        let time = &self.plan.jobs[clone.job].time;
        let whole = time.runtime_ns.map(|runtime| runtime + time.ramp_ns);
        match &self.stands[index] {
            Stand::Ended(_) => Some(0),
            Stand::Waiting => {
                let due_ns = self.started_ns.saturating_add(self.delay_ns(clone));
                whole.map(|whole| whole.saturating_add(due_ns.saturating_sub(now_ns)))
            }
            Stand::Running(_) => {
                let seat = self.seats.seat(index);
                let ran_ns = seat.began_at().map_or(0, |began| now_ns.saturating_sub(began));
                let done = seat.read().done_millionths as f64 / 1e6;
                let by_work = (done > 0.01).then(|| (ran_ns as f64 * (1.0 / done - 1.0)) as u64);
                let by_time = whole.map(|whole| whole.saturating_sub(ran_ns));
                match by_time {
                    Some(by_time) if !time.time_based => Some(by_work.map_or(by_time, |work| work.min(by_time))),
                    Some(by_time) => Some(by_time),
                    None => by_work,
                }
            }
        }
    }

    /// `--status-interval`: asks the clones that run for their figures, and hands them on when all are there. A clone
    /// that is slow to answer delays the status, never the load.
    fn report_status(&mut self, control: &mut Control, now_ns: u64) {
        let (Some(statements), Some((interval_ns, status))) = (self.statements, &mut control.status) else {
            return;
        };
        let measuring = |schedule: &Self, index: usize| {
            matches!(schedule.stands[index], Stand::Running(_))
                && matches!(schedule.seats.seat(index).read().phase, Phase::Run | Phase::Verify)
        };
        let all = 0..self.stands.len();
        let mut next_ns = *self.next_status_ns.get_or_insert(now_ns.saturating_add(*interval_ns));
        if control.status_wanted.swap(false, Relaxed) {
            next_ns = next_ns.min(now_ns);
            self.next_status_ns = Some(next_ns);
        }
        if now_ns < next_ns {
            return;
        }
        if !self.status_is_awaited {
            all.clone().filter(|&index| measuring(self, index)).for_each(|index| statements.of(index).ask());
            self.status_is_awaited = true;
        }
        let awaited = |index: usize| measuring(self, index) && statements.of(index).is_awaited();
        if all.clone().any(awaited) {
            return;
        }
        let results = all.map(|index| match &self.stands[index] {
            Stand::Ended(report) => report.result.clone(),
            Stand::Running(_) if measuring(self, index) => {
                statements.of(index).read().unwrap_or_else(|| self.untouched(index))
            }
            _ => self.untouched(index),
        });
        let mut result = (self.describe)(results.collect(), Ended::Complete);
        result.remaining_ns = self.done(now_ns).1;
        status(result);
        self.status_is_awaited = false;
        let behind = (now_ns - next_ns) / *interval_ns;
        self.next_status_ns = Some(next_ns.saturating_add((behind + 1).saturating_mul(*interval_ns)));
    }

    /// The part of a clone's work that is done, by work or by time, whichever is further; NaN if it has no known end.
    fn part_done(&self, index: usize, now_ns: u64) -> f64 {
        let clone = &self.clones[index];
        match &self.stands[index] {
            Stand::Ended(_) => 1.0,
            Stand::Waiting => 0.0,
            Stand::Running(_) => {
                let time = &self.plan.jobs[clone.job].time;
                let by_work = self.seats.seat(index).read().done_millionths as f64 / 1e6;
                let began_ns = self.seats.seat(index).began_at().unwrap_or(now_ns);
                let elapsed_ns = now_ns.saturating_sub(began_ns);
                match time.runtime_ns {
                    Some(runtime) => {
                        let by_time = elapsed_ns as f64 / (runtime + time.ramp_ns).max(1) as f64;
                        if time.time_based { by_time.min(1.0) } else { by_time.max(by_work).min(1.0) }
                    }
                    None if by_work > 0.0 => by_work,
                    None => f64::NAN,
                }
            }
        }
    }
}

/// One result a job, or one a group of jobs with `group_reporting`.
fn merge(plan: &Plan, places: &[(usize, u32)], all: Vec<JobResult>) -> Vec<JobResult> {
    let mut results: Vec<(Option<u32>, JobResult)> = Vec::new();
    for (&(job, group), mut result) in places.iter().zip(all) {
        let job = &plan.jobs[job];
        if !job.reporting.stats {
            continue;
        }
        result.group = group;
        let key = job.process.group_reporting.then_some(group);
        match results.iter_mut().find(|(known, _)| key.is_some() && *known == key) {
            Some((_, merged)) => {
                merged.merge(&result);
                // As in fio, the group has the name of its first job, and the options of its last one.
                merged.options = result.options;
            }
            None => results.push((key, result)),
        }
    }
    results.into_iter().map(|(_, result)| result).collect()
}

//! One clone's life: set up, gate, generator loop, clean up, result.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, PoisonError};

use job::Job;
use job::engines::EngineSpec;
use job::job::{Amount, FileLock, MemoryKind, MemoryPolicy, OpenSync};
use measure::PerDirection;
use measure::figures::ByteUnits;
use measure::schema::{CpuUsage, Ended, Facts, JobError, JobResult, Reporting, Unified, Verified};
use sys::buffer::Memory;
use sys::clock::{Clock, monotonic_ns, realtime_ns, sleep_until_ns};
use sys::process;

use super::commands;
use super::depth_goal::DepthGoal;
use super::flow::Share;
use super::generator::{End, Gear, Generator, engine_failed};
use super::logs::OpLogs;
use super::opened::{Access, Opened};
use super::priorities::Priorities;
use super::recorder::{Recorded, Recorder};
use super::recording::Recording;
use super::seats::Seats;
use super::sources::Source;
use super::statements::Statement;
use super::timing::{Minimum, Timing};
use super::traffic::Traffic;
use super::zones::Tables;
use crate::Error;
use crate::engine::{Engine, Locked, Maker, Offload, Paced, Setup, Slot, Slots, Told, without_thread_and_locks};
use crate::files::Target;
use crate::machine::cpu_usage;

/// The orders of a clone: all that the runner tells it. They are cheap to hand to a thread, and survive a fork.
#[derive(Clone, Copy)]
pub(super) struct Orders<'a> {
    /// The job of the clone.
    pub job: &'a Job,
    /// The row of the job's engine in the table of engines.
    pub maker: Maker,
    /// The files of the clone, which the clone alone uses while it lives.
    pub target: &'a Mutex<Target>,
    /// Bytes of the clone's largest block.
    pub largest_block: u64,
    /// Number among the job's clones, from 0.
    pub clone: u32,
    /// Number among all clones of the run, from 0: the clone's seat on the seats.
    pub seat: usize,
    /// The seats and weights of the clones with which the clone shares (`flow`), itself included; empty: with none.
    pub flow: &'a [(usize, u32)],
    /// The words that the clones and the runner share.
    pub seats: &'a Seats,
    /// The zones of the files of all clones (`zonemode=zbd`).
    pub tables: &'a Tables,
    /// The clock of the run.
    pub clock: Clock,
    /// The place at which the runner asks the clone for its measurements so far. None: the runner never asks.
    pub statement: Option<Statement<'a>>,
    /// Length of intervals; None: the job's.
    pub interval_ns: Option<u64>,
    /// True if intervals carry distributions.
    pub interval_histograms: bool,
}

/// The report of a clone that has ended.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Report {
    /// Numbers of the clone; valid also when the clone failed, as far as it came.
    pub result: JobResult,
    /// The manner in which the clone ended.
    pub ended: Ended,
}

impl Report {
    /// The report as it goes from a child process to its parent, the measurements of its turns beside it.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&(self, &self.result.slices)).unwrap_or_default()
    }

    /// The report from a child process.
    ///
    /// # Errors
    /// The bytes hold no report.
    pub fn from_bytes(bytes: &[u8]) -> Result<Report, serde_json::Error> {
        let (mut report, slices): (Report, Vec<JobResult>) = serde_json::from_slice(bytes)?;
        report.result.slices = slices;
        Ok(report)
    }

    /// Notes a failure after the end: the first one counts.
    pub fn fail(&mut self, error: &Error) {
        self.ended = Ended::Failed;
        let error = JobError { errno: error.errno(), message: error.to_string() };
        self.result.error.get_or_insert(error);
    }

    /// The report of a clone that could not even report.
    pub fn failed(job: &Job, facts: Facts, error: &Error) -> Report {
        let error = JobError { errno: error.errno(), message: error.to_string() };
        Report::failed_with(job, facts, error)
    }

    /// The report of a clone that never began.
    pub fn failed_with(job: &Job, facts: Facts, error: JobError) -> Report {
        Report { result: JobResult { error: Some(error), ..blank(job, facts) }, ended: Ended::Failed }
    }
}

/// Runs the clone in the calling thread: from set-up, through the gate, to its report.
pub(super) fn run(orders: &Orders) -> Report {
    let created_ns = monotonic_ns();
    let mut target = orders.target.lock().unwrap_or_else(PoisonError::into_inner);
    let mut facts = facts(orders.job, orders.maker.spec);
    match live(orders, &mut target, &mut facts, created_ns) {
        Ok(report) => report,
        Err(error) => Report::failed(orders.job, facts, &error),
    }
}

fn live(orders: &Orders, target: &mut Target, facts: &mut Facts, created_ns: u64) -> Result<Report, Error> {
    let job = orders.job;
    place(job, orders.clone)?;
    sys::clock::precise_timers();
    if job.files.create_only {
        return Ok(Report { result: blank(job, facts.clone()), ended: Ended::Complete });
    }
    if let Some(command) = &job.process.before {
        commands::run(command, &job.name, "prerun")?;
    }
    work(orders, target, facts, created_ns)
}

/// Sets up what the generator needs, runs it, and reports.
fn work(orders: &Orders, target: &mut Target, facts: &mut Facts, created_ns: u64) -> Result<Report, Error> {
    let Orders { job, maker, .. } = *orders;
    let synchronous = is_synchronous(job, maker.spec);
    let depth = if synchronous { 1 } else { job.queue.depth.max(1) };
    let (slots, free) = buffers(job, depth, slot_bytes(orders)?)?;
    let names: Vec<String> = target.names().map(str::to_owned).collect();
    let setup =
        Setup { job, slots: Arc::clone(&slots), depth, files: target.files(), names: &names, clone: orders.clone };
    let mut engine = engine(orders, &setup)?;
    let zones = orders.tables.of_clone(job, orders.seat as u64, target)?;
    let source = Source::new(job, orders.clone, orders.seat as u32, target.extents(), zones)?;
    look_at_files(job, target, facts);
    let mut opened = Opened::new(target, Access::of(maker.spec), job);
    let opening_ns = monotonic_ns();
    opened.open_all(&mut *engine)?;
    let open_ns = monotonic_ns() - opening_ns;
    let logs = OpLogs::open(job, orders.seat + 1, realtime_ns() / 1_000_000, synchronous)?.map(Box::new);
    let cpu_at_start = Cell::new(cpu_usage());
    let recorder = Recorder::new(job, synchronous, orders.interval_ns, orders.interval_histograms);
    let interval_ns = recorder.interval_ns();
    let slices = RefCell::new(Vec::new());
    let account = Account { job, facts, created_ns, open_ns, interval_ns, cpu_at_start, slices };
    let gear = Gear {
        job,
        engine,
        depth: slots.count() as usize,
        slots,
        free,
        opened,
        timing: Timing::new(job, orders.clone),
        share: job.rate.flow.map(|flow| Share::new(orders.seats, orders.seat, flow.sleep_ns, orders.flow)),
        minimum: Minimum::new(job),
        recorder,
        goal: job.rate.latency_target.map(|goal| DepthGoal::new(goal, depth)),
        priorities: Priorities::new(job, job.clone_seed(orders.clone)),
        logs,
        recording: Recording::open(job, orders.clone, &names)?,
        clock: orders.clock,
        seat: orders.seats.seat(orders.seat),
        stop_all: orders.seats.stop_word(),
        statement: orders.statement,
        on_asked: &|statement, recorded, verified| account.answer(statement, recorded, verified),
        on_measured: &mut || account.cpu_at_start.set(cpu_usage()),
        windowed: None,
        on_slice: &|depth, recorded| account.note_slice(depth, recorded),
    };
    let measured = match source {
        Source::Plain(traffic) => measure(Generator { gear, traffic: *traffic }, orders),
        Source::Verifying(traffic) => measure(Generator { gear, traffic: *traffic }, orders),
        Source::Threads(traffic) => measure(Generator { gear, traffic: *traffic }, orders),
        Source::Replay(traffic) => measure(Generator { gear, traffic: *traffic }, orders),
        Source::Pulses(traffic) => measure(Generator { gear, traffic: *traffic }, orders),
    };
    Ok(account.close(measured))
}

/// Bytes of a buffer: those of the largest block.
fn slot_bytes(orders: &Orders) -> Result<usize, Error> {
    if u32::try_from(orders.largest_block).is_err() {
        let place = format!("in job {}", orders.job.name);
        return Err(Error::usage("bs is too large", place, "blocks up to 4 GiB are supported"));
    }
    Ok(usize::try_from(orders.largest_block).unwrap_or(usize::MAX))
}

/// The engine of the job, in the layers that the job asks for.
fn engine(orders: &Orders, setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    let Orders { job, maker, .. } = *orders;
    without_thread_and_locks(job, maker.spec)?;
    let mut engine = if job.queue.offload { Offload::make(maker, setup)? } else { maker.make(setup)? };
    if job.files.lock != FileLock::None && Access::of(maker.spec) == Access::Descriptors {
        engine = Locked::make(engine, setup)?;
    }
    if let Some(method) = &job.rate.pace {
        engine = Paced::make(method, engine, setup, orders.clock)?;
    }
    if job.reporting.tells_ops {
        engine = Told::make(engine, setup);
    }
    Ok(engine)
}

/// The facts about the files before the first op.
fn look_at_files(job: &Job, target: &Target, facts: &mut Facts) {
    facts.target_bytes = Some(target.extents().iter().map(|extent| extent.size).sum());
    let cache = target.cache_facts();
    // Data that are read back after having been written say nothing of the file before.
    if job.rw.directions.read {
        facts.cached_fraction = cache.cached_fraction;
    }
    // First writes allocate, and reads of bytes that were never written do not reach the storage.
    facts.unwritten_fraction = cache.unwritten_fraction;
    (facts.examined, facts.memory, facts.loop_device) = (true, cache.memory, cache.loop_device);
}

/// The facts that turn the measurements of a clone into results.
struct Account<'a> {
    job: &'a Job,
    facts: &'a Facts,
    created_ns: u64,
    open_ns: u64,
    interval_ns: u64,
    /// The use of processors before the measured part.
    cpu_at_start: Cell<CpuUsage>,
    /// The results of the slices or turns that are over.
    slices: RefCell<Vec<JobResult>>,
}

impl Account<'_> {
    fn result(&self, recorded: Recorded, start_unix_ms: u64, verified: Option<Verified>) -> JobResult {
        JobResult {
            start_unix_ms,
            runtime_ns: recorded.runtime_ns,
            elapsed_ns: monotonic_ns() - self.created_ns,
            open_ns: self.open_ns,
            directions: recorded.directions,
            first_error: recorded.first_error,
            sync: recorded.sync,
            cpu: cpu_usage().since(&self.cpu_at_start.get()),
            depth: recorded.depth,
            intervals: recorded.intervals,
            disturbances: recorded.disturbances,
            backlog: recorded.backlog,
            ramp: recorded.ramp,
            is_window: recorded.is_window,
            interval_ns: self.interval_ns,
            verified,
            ..blank(self.job, self.facts.clone())
        }
    }

    /// The result of a clone that goes on.
    fn so_far(&self, recorded: Recorded, verified: Option<Verified>) -> JobResult {
        let (elapsed_ms, now_ms) = (recorded.runtime_ns / 1_000_000, realtime_ns() / 1_000_000);
        self.result(recorded, now_ms.saturating_sub(elapsed_ms), verified)
    }

    fn answer(&self, statement: Statement, recorded: Recorded, verified: Option<Verified>) {
        statement.answer(&self.so_far(recorded, verified));
    }

    fn note_slice(&self, depth: u32, recorded: Recorded) {
        let elapsed_ns = recorded.runtime_ns;
        let result = self.so_far(recorded, None);
        let facts = Facts { iodepth: depth, ..result.facts };
        self.slices.borrow_mut().push(JobResult { facts, elapsed_ns, open_ns: 0, ..result });
    }

    /// The report of the clone, after its generator has ended.
    fn close(self, measured: Measured) -> Report {
        let job = self.job;
        let Measured { start_unix_ms, closed_ns, recorded, mut outcome, goal, verified, zone_resets } = measured;
        let mut result = self.result(recorded, start_unix_ms, verified);
        result.slices = self.slices.take();
        (result.zone_resets, result.closed_ns) = (zone_resets, closed_ns);
        // As in fio, the job has done its work when this command fails.
        let after = job.process.after.as_ref();
        if let Some(error) = after.and_then(|command| commands::run(command, &job.name, "postrun").err()) {
            result.facts.notes.push(error.to_string());
        }
        if let Some(goal) = goal {
            result.latency_target = Some(goal.outcome());
            if goal.is_hopeless() && outcome.is_ok() {
                let late = std::io::Error::from_raw_os_error(libc::ETIMEDOUT);
                outcome = Err(Error::system("latency_target is missed even with one op in flight,", &job.name, late));
            }
        }
        let ended = match outcome {
            Ok(End::Stopped) => Ended::Interrupted,
            Ok(End::Done | End::TimeOver) => Ended::Complete,
            Err(error) => {
                result.error = Some(JobError { errno: error.errno(), message: error.to_string() });
                Ended::Failed
            }
        };
        Report { result, ended }
    }
}

/// The numbers and the outcome that the generator leaves.
struct Measured {
    start_unix_ms: u64,
    /// From the common start until the last file was closed.
    closed_ns: u64,
    recorded: Recorded,
    outcome: Result<End, Error>,
    goal: Option<DepthGoal>,
    verified: Option<Verified>,
    zone_resets: u64,
}

fn measure<T: Traffic>(mut generator: Generator<T>, orders: &Orders) -> Measured {
    generator.prepare();
    let gate_ns = wait_at_gate(orders);
    let (start_ns, begun) = generator.begin(gate_ns);
    let start_unix_ms = realtime_ns() / 1_000_000;
    let mut outcome = begun.and_then(|()| generator.run(start_ns));
    let Generator { mut gear, mut traffic } = generator;
    if let Some(error) = gear.engine.failure() {
        outcome = outcome.and(Err(engine_failed("the work of", gear.job, error)));
    }
    gear.recorder.disturbed(gear.engine.disturbances());
    gear.recorder.lost(gear.engine.lost_messages());
    gear.recorder.take_back(gear.engine.stray_bytes());
    if gear.recorder.is_verifying() {
        gear.recorder.switch(gear.clock.now_ns());
    }
    // As in fio, the job is over when its data are stored: the last sync is part of its time.
    if gear.job.syncs.at_end() && outcome.is_ok() {
        outcome = gear.opened.sync_all(&mut *gear.engine).and(outcome);
        if outcome.is_ok() {
            traffic.all_synced();
        }
    }
    let closed = if gear.job.syncs.fsync_on_close { gear.opened.close_all(&mut *gear.engine) } else { Ok(()) };
    outcome = outcome.and_then(|end| closed.map(|()| end));
    let end_ns = gear.clock.now_ns();
    if let Some(logs) = gear.logs.take() {
        outcome = outcome.and_then(|end| logs.finish(end_ns).map(|()| end));
    }
    if let Some(recording) = gear.recording.take() {
        let finished = recording.finish(end_ns.saturating_sub(start_ns));
        outcome = outcome.and_then(|end| finished.map(|()| end));
    }
    let opened = &gear.opened;
    let finished = traffic.finish(&|file| opened.name(file).to_owned());
    outcome = outcome.and_then(|end| finished.map(|()| end));
    // Records are written and verified after the last transfer: closing has a time of its own.
    let closing_ns = gear.clock.now_ns();
    let closed = gear.opened.close_all(&mut *gear.engine);
    let close_ns = gear.clock.now_ns() - closing_ns;
    outcome = outcome.and_then(|end| closed.map(|()| end));
    Measured {
        start_unix_ms,
        closed_ns: end_ns.saturating_sub(start_ns) + close_ns,
        outcome,
        goal: gear.goal,
        verified: traffic.verified(),
        zone_resets: traffic.zone_resets(),
        recorded: gear.windowed.unwrap_or_else(|| gear.recorder.finish(end_ns)),
    }
}

/// Reports ready and waits for the common start. Returns the start time, already reached.
fn wait_at_gate(orders: &Orders) -> u64 {
    let seat = orders.seats.seat(orders.seat);
    seat.report_ready();
    loop {
        if let Some(at) = seat.gate() {
            sleep_until_ns(at);
            seat.began(monotonic_ns());
            return orders.clock.now_ns();
        }
        sleep_until_ns(monotonic_ns() + orders.seats.gate_poll_ns());
    }
}

/// The buffers of `depth` requests, in the memory that the job wants.
pub(super) fn buffers(job: &Job, depth: u32, slot_bytes: usize) -> Result<(Arc<Slots>, Vec<Slot>), Error> {
    let memory = match job.buffers.memory {
        MemoryKind::Anonymous => Memory::Anonymous,
        MemoryKind::Huge => Memory::Huge,
        MemoryKind::Shared => Memory::Shared,
    };
    Slots::new(depth, slot_bytes, job.buffers.align as usize % 4096, &memory).map_err(|error| {
        let hint = match memory {
            Memory::Huge => "there are not enough huge pages: sysctl vm.nr_hugepages",
            _ => "iodepth times bs is more than the free memory",
        };
        Error::system("cannot allocate the I/O buffers", format!("of job {}", job.name), error).hint(hint)
    })
}

/// Puts the calling thread where the job wants it: processors, niceness, I/O priority, user and group.
fn place(job: &Job, clone: u32) -> Result<(), Error> {
    place_on_processors(job, clone)?;
    let options = &job.process;
    let failed = |what: &str, error| Error::system(what, format!("in job {}", job.name), error);
    set_memory_policy(&options.memory_policy)
        .map_err(|error| failed("cannot take memory as numa_mem_policy= asks for", error))?;
    if let Some(name) = &options.comm {
        process::set_thread_name(name).map_err(|error| failed("cannot take the name of comm=", error))?;
    }
    if options.nice != 0 {
        process::set_nice(options.nice).map_err(|error| failed("cannot set nice=", error))?;
    }
    if let Some((class, level)) = options.io_priority {
        process::set_io_priority(class, level, options.io_priority_hint)
            .map_err(|error| failed("cannot set prio=, prioclass=, priohint=", error))?;
    }
    // Last: the new user may not be allowed to do the rest.
    process::set_identity(options.user, options.group)
        .map_err(|error| failed("cannot become the user and group of uid= and gid=", error))?;
    Ok(())
}

fn set_memory_policy(policy: &MemoryPolicy) -> std::io::Result<()> {
    match policy {
        MemoryPolicy::Default => Ok(()),
        MemoryPolicy::Local => process::set_memory_policy(process::MemoryPolicy::Local, &[]),
        MemoryPolicy::Prefer(node) => process::set_memory_policy(process::MemoryPolicy::Prefer, &[*node]),
        MemoryPolicy::Bind(nodes) => process::set_memory_policy(process::MemoryPolicy::Bind, nodes),
        MemoryPolicy::Interleave(nodes) => process::set_memory_policy(process::MemoryPolicy::Interleave, nodes),
    }
}

/// The part of it that is about processors.
pub(super) fn place_on_processors(job: &Job, clone: u32) -> Result<(), Error> {
    let options = &job.process;
    let failed = |what: &str, error| Error::system(what, format!("in job {}", job.name), error);
    if !options.numa_cpu_nodes.is_empty() {
        let cpus = process::cpus_of_nodes(&options.numa_cpu_nodes).and_then(|cpus| process::set_affinity(&cpus));
        cpus.map_err(|error| failed("cannot run on the nodes of numa_cpu_nodes=", error))?;
    }
    if !options.cpus.is_empty() {
        let mine = clone as usize % options.cpus.len();
        let cpus = if options.cpus_split { &options.cpus[mine..=mine] } else { &options.cpus };
        process::set_affinity(cpus).map_err(|error| {
            failed("cannot run on the processors of cpus_allowed=", error)
                .hint("one does not exist, or none is online and allowed here")
        })?;
    }
    Ok(())
}

/// A result of the job in which every count is zero.
fn blank(job: &Job, facts: Facts) -> JobResult {
    JobResult {
        name: job.name.clone(),
        description: job.description.clone(),
        clones: 1,
        options: job.options.clone(),
        facts,
        reporting: reporting(job),
        continue_on_error: job.errors.tolerates_some(),
        ..JobResult::default()
    }
}

/// The figures that the job wants reported: a result is read without its job.
fn reporting(job: &Job) -> Reporting {
    let wanted = &job.reporting;
    Reporting {
        percentiles: wanted.percentiles.clone(),
        slat_percentiles: wanted.slat_percentiles,
        clat_percentiles: wanted.clat_percentiles,
        lat_percentiles: wanted.lat_percentiles,
        unified: match wanted.unified {
            job::job::Unified::None => Unified::None,
            job::job::Unified::Mixed => Unified::Mixed,
            job::job::Unified::Both => Unified::Both,
        },
        bytes: ByteUnits { kb_base: wanted.kb_base, unit_base: wanted.unit_base },
    }
}

/// The result of a clone that never ran.
pub(super) fn untouched(job: &Job, engine: &EngineSpec) -> JobResult {
    blank(job, facts(job, engine))
}

/// True if a clone can have only one op in flight.
fn is_synchronous(job: &Job, engine: &EngineSpec) -> bool {
    // As in fio, `null` finishes each op in its submission where only one is in flight.
    let at_once = engine.synchronous || engine.name == "null" && job.queue.depth <= 1;
    at_once && !job.queue.offload
}

/// The facts that are known of a clone before it runs.
fn facts(job: &Job, engine: &EngineSpec) -> Facts {
    Facts {
        engine: engine.name.to_owned(),
        synchronous: is_synchronous(job, engine),
        iodepth: job.queue.depth,
        numjobs: job.process.clones,
        direct: job.files.direct,
        elsewhere: engine.opens_files,
        rw: if job.iolog.threads.is_some() { "replay".into() } else { job.rw.name() },
        block_bytes: job.iolog.threads.as_ref().map_or(job.blocks.range, |replayed| replayed.recording.block_bytes()),
        is_replay: job.iolog.is_replay() && !job.iolog.no_stall,
        rate_iops: PerDirection::from_fn(|d| job.rate.iops[d].filter(|_| job.rw.directions[d]).map(|rate| rate as f64)),
        rate_bytes: PerDirection::from_fn(|d| {
            job.rate.bytes[d].filter(|_| job.rw.directions[d]).map(|rate| rate as f64)
        }),
        clones_on_same_blocks: same_blocks(job),
        writes_synced: (job.rw.directions.write && Access::of(engine) != Access::Nothing).then(|| makes_durable(job)),
        ..Facts::default()
    }
}

/// True if the clones go through the same blocks in order: the names of the files are given, not made for each clone,
/// and every clone starts at the same offset.
fn same_blocks(job: &Job) -> bool {
    let same_offset = matches!(job.extent.offset_increment, Amount::Bytes(0));
    job.process.clones > 1 && !job.rw.random && !job.files.names.is_empty() && same_offset
}

/// True if the job asks that its writes reach the storage within its time.
fn makes_durable(job: &Job) -> bool {
    let syncs = &job.syncs;
    let calls = syncs.fsync > 0 || syncs.fdatasync > 0 || syncs.range.is_some();
    calls || syncs.at_end() || syncs.fsync_on_close || job.files.sync != OpenSync::None
}

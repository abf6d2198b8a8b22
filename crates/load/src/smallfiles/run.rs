//! From a plan to its result: processes, threads, gates, and the merging of their reports.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use measure::schema::{Ended, FilesFacts, FilesResult, JobError, PhaseInterval, PhaseResult, Storage, Work};
use measure::verdict;
use sys::child::{self, Child, Outcome};
use sys::clock::{Clock, monotonic_ns, realtime_ns};

use super::content::Content;
use super::fs::{EntryKind, FileSystem};
use super::gates::{Gates, LEFT, Stop};
use super::operation::Operation;
use super::plan::Plan;
use super::target::Target;
use super::worker::{self, Desk, Orders, Report};
use crate::machine::{DiskWatch, provenance};
use crate::peers::{self, Peers, Stage};
use crate::{Error, ErrorKind, storage};

/// The caller's means to stop, watch, hold back and join a plan while it runs.
#[derive(Default)]
pub struct Control<'a> {
    /// Set (by a signal handler) to end the run early: threads finish the file at hand, clean up and report.
    pub stop: Arc<AtomicBool>,
    /// Called a few times a second.
    pub progress: Option<&'a mut dyn FnMut(&Moment)>,
    /// Called when all threads are ready, before the first phase; returns false if it was told to stop. Only a run in
    /// one process calls it.
    pub gate: Option<&'a mut Gate<'a>>,
    /// The other hosts that carry out the same plan: every phase begins on all hosts together.
    pub peers: Option<&'a mut dyn Peers>,
    /// Called with the result of the phases, before the clean-up: a clean-up may take long, and whoever ends the
    /// program in it ends no figures with it. [`run`] returns the result with the outcome of the clean-up.
    pub hand_over: Option<&'a mut dyn FnMut(&FilesResult)>,
}

/// A function that holds back a run that is ready: see [`Control::gate`].
pub type Gate<'a> = dyn FnMut(&dyn FileSystem) -> Result<bool, Error> + 'a;

/// A moment of a run.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The phase's name; empty before the first.
    pub phase: &'a str,
    /// Number of phases that are over, and number of all phases.
    pub phases: (usize, usize),
    /// Number of threads that have not finished the phase.
    pub busy: usize,
    /// The work done in the phase so far.
    pub work: Work,
    /// Nanoseconds since the phase began.
    pub elapsed_ns: u64,
    /// Part of the phase that is done, 0..=1.
    pub done: f64,
}

const POLL: Duration = Duration::from_micros(500);
const PROGRESS_NS: u64 = 200_000_000;
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Runs a plan.
///
/// Operations that fail are in the result, with their first error (`ended` is then `Failed`); a run that was stopped is
/// `Interrupted`. With `cleanup` the run removes the objects that it made in every case.
///
/// # Errors
/// A failure before the run makes any file: a plan that cannot be carried out, a directory that is missing or too
/// small, a volume that cannot be reached; also a process or thread that cannot be started.
pub fn run(plan: &Plan, control: &mut Control) -> Result<FilesResult, Error> {
    plan.check()?;
    let started_unix_ms = realtime_ns() / 1_000_000;
    let clock = Clock::calibrated();
    let content_of = |seed| if plan.incompressible { Content::incompressible(seed) } else { Content::new(seed) };
    let content = content_of(plan.seed);
    let content_abroad = plan.abroad.as_ref().map(|abroad| content_of(abroad.seed));
    let gates = Gates::new(plan.phases.len(), plan.workers() as usize)
        .map_err(|error| Error::system("cannot share memory", "", error))?;
    // A library that keeps threads, as libgfapi does, must not be opened on this side of a fork.
    let in_children = plan.processes > 1;
    let seen = match (in_children, &plan.target) {
        (true, Target::Gluster(_)) => in_child(|| check_bases(plan, &*plan.target.open()?))?,
        _ => check_bases(plan, &*plan.target.open()?)?,
    };
    if let Some(directory) = &plan.response_times {
        std::fs::create_dir_all(directory)
            .map_err(|error| Error::system("cannot make directory", directory.display().to_string(), error))?;
    }
    if plan.drop_caches {
        file_that_drops_caches()?;
    }
    let storage = storage::of(local_path(plan));
    let disks = DiskWatch::start(&storage);

    let orders = Orders {
        plan,
        gates: &gates,
        content: &content,
        content_abroad: content_abroad.as_ref().unwrap_or(&content),
        clock,
        process: 0,
        thread: 0,
    };
    let mut result = None;
    let mut figures = |reports: Reports, pulse: Pulse, control: &mut Control| {
        let stopped = control.stop.load(Relaxed);
        let mut whole = described(plan, &seen, &clock, started_unix_ms, reports, pulse, stopped);
        (whole.disks, whole.storage) = (disks.so_far(), storage.clone());
        judge(&mut whole);
        if let Some(hand_over) = &mut control.hand_over {
            hand_over(&whole);
        }
        result = Some(whole);
    };
    let left_behind = match in_children {
        true => processes(orders, control, &mut figures)?,
        false => one_process(orders, control, &mut figures)?,
    };
    let mut result = result.ok_or_else(|| internal("a run has no figures: this is a defect of plimsoll".into()))?;

    if plan.makes_base && (plan.cleanup || plan.does(Operation::RemoveTree)) {
        // The removal fails if objects are left in the directory: this run did not make them.
        let _ = match (in_children, &plan.target) {
            (true, Target::Gluster(_)) => in_child(|| Ok(remove_bases(plan, &*plan.target.open()?))),
            _ => plan.target.open().map(|fs| remove_bases(plan, &*fs)),
        };
    }
    if let Some(error) = left_behind {
        result.error.get_or_insert(error.clone());
        result.clean_up = Some(error);
        result.ended = Ended::Failed;
        judge(&mut result);
    }
    Ok(result)
}

/// Judges a result and its phases.
fn judge(result: &mut FilesResult) {
    for phase in &mut result.phases {
        phase.judge(&result.facts);
    }
    let judged = verdict::for_files(result);
    (result.verdicts, result.checks) = (judged.verdicts, judged.checks);
}

/// The result of the phases, not judged yet. `stopped` is true if the user ended the run.
fn described(
    plan: &Plan,
    seen: &Seen,
    clock: &Clock,
    started_unix_ms: u64,
    reports: Reports,
    pulse: Pulse,
    stopped: bool,
) -> FilesResult {
    // The error of a lost process comes first: it explains the errors that followed.
    let error = reports.error.or_else(|| reports.of.iter().find_map(|report| report.error.clone()));
    let facts = FilesFacts {
        access: seen.access.clone(),
        target: plan.target.to_string(),
        directory: plan.layout.bases().map(|base| base.to_string_lossy()).collect::<Vec<_>>().join(", "),
        file_system: seen.file_system.clone(),
        threads: plan.threads,
        processes: plan.processes,
        files: plan.files,
        sizes: plan.sizes.to_string(),
        mean_bytes: plan.sizes.mean(),
        record_bytes: plan.record_bytes,
        direct: plan.direct,
        fsync: plan.fsync,
        shared: plan.layout.shared,
        pause_ns: plan.pause_ns,
        continue_on_error: plan.continue_on_error,
        lost_processes: reports.lost,
    };
    let failed = error.is_some();
    FilesResult {
        provenance: provenance(clock, started_unix_ms),
        options: plan.options.clone(),
        facts,
        phases: merged(reports.of, pulse),
        disks: Vec::new(),
        storage: Storage::default(),
        error,
        clean_up: None,
        verdicts: Vec::new(),
        checks: Vec::new(),
        hosts: None,
        ended: match (failed, stopped) {
            (true, _) => Ended::Failed,
            (_, true) => Ended::Interrupted,
            _ => Ended::Complete,
        },
    }
}

/// The phases of all threads, each merged into one.
fn merged(reports: Vec<Report>, pulse: Pulse) -> Vec<PhaseResult> {
    let mut phases: Vec<PhaseResult> = Vec::new();
    for report in reports {
        for (index, phase) in report.phases.into_iter().enumerate() {
            match phases.get_mut(index) {
                Some(known) => known.merge(&phase),
                None => phases.push(phase),
            }
        }
    }
    for (phase, intervals) in phases.iter_mut().zip(pulse.phases) {
        phase.intervals = intervals;
        phase.threads.sort_unstable_by_key(|thread| thread.thread);
        // Most of the time first.
        phase.calls.sort_by_key(|call| std::cmp::Reverse(call.lat_ns.sum()));
    }
    phases
}

/// The work that all threads together had done, at even intervals of each phase.
#[derive(Default)]
struct Pulse {
    phases: Vec<Vec<PhaseInterval>>,
    /// Nanoseconds between beats of the phase that runs: doubled when there are too many of them.
    every_ns: u64,
    running: usize,
}

const BEAT_NS: u64 = 50_000_000;
const MOST_BEATS: usize = 512;

impl Pulse {
    fn of(plan: &Plan) -> Pulse {
        Pulse { phases: vec![Vec::new(); plan.phases.len()], every_ns: BEAT_NS, running: 0 }
    }

    /// Records the work done until now, if the next beat is due.
    fn beat(&mut self, phase: usize, elapsed_ns: u64, total: impl FnOnce() -> Work) {
        if phase != self.running {
            (self.running, self.every_ns) = (phase, BEAT_NS);
        }
        let Some(beats) = self.phases.get_mut(phase) else { return };
        let last_ns = beats.last().map_or(0, |beat| beat.end_ns);
        if elapsed_ns < last_ns + self.every_ns {
            return;
        }
        let done = total();
        beats.push(PhaseInterval { end_ns: elapsed_ns, files: done.files, bytes: done.bytes });
        if beats.len() >= MOST_BEATS {
            self.every_ns *= 2;
            let mut index = 0;
            beats.retain(|_| {
                index += 1;
                index % 2 == 0
            });
        }
    }
}

/// The facts that a look at the file system gave.
#[derive(serde::Serialize, serde::Deserialize)]
struct Seen {
    access: String,
    file_system: String,
}

/// Removes the base directories; true if all were empty.
fn remove_bases(plan: &Plan, fs: &dyn FileSystem) -> bool {
    plan.layout.bases().all(|base| fs.rmdir(base).is_ok())
}

/// Checks that the directories are there and have room; makes them if the plan asks for that. Returns the facts about
/// the first.
fn check_bases(plan: &Plan, fs: &dyn FileSystem) -> Result<Seen, Error> {
    let mut seen = plan.layout.bases().map(|base| check_base(plan, base, fs)).collect::<Result<Vec<_>, _>>()?;
    Ok(seen.swap_remove(0))
}

fn check_base(plan: &Plan, base: &CStr, fs: &dyn FileSystem) -> Result<Seen, Error> {
    let place = base.to_string_lossy();
    if plan.makes_base {
        match fs.mkdir(base, 0o777) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                let hint = "the directory above it must exist, and be writable";
                return Err(Error::system("cannot make directory", place.clone(), error).hint(hint));
            }
            _ => {}
        }
    }
    let found = fs.stat(base).map_err(|error| {
        let hint = match error.raw_os_error() {
            Some(libc::ENOENT) => "it must exist: make it, or look for a typing error",
            _ => "",
        };
        Error::system("cannot use directory", place.clone(), error).hint(hint)
    })?;
    if found.kind != EntryKind::Directory {
        return Err(Error::usage("cannot use", place, "it is not a directory"));
    }
    let bases = 1 + plan.layout.others.len() as u64;
    let share = plan.needs().map(|(bytes, files)| (bytes / bases as f64, files / bases));
    if let (Some((bytes, files)), Ok(space)) = (share, fs.space(base)) {
        let too_little = |needed: String, left: String| {
            let hint = "use fewer --files, a smaller --size, or another directory";
            Err(Error::usage(format!("the files need {needed}, but only {left} left in"), place.clone(), hint))
        };
        if bytes > space.available_bytes as f64 {
            use measure::figures::bytes as text;
            return too_little(text(bytes), format!("{} are", text(space.available_bytes as f64)));
        }
        if files > space.available_files {
            return too_little(format!("{files} inodes"), format!("{} are", space.available_files));
        }
    }
    let kind = match plan.target {
        Target::Posix => sys::file::space(std::path::Path::new(&*place))
            .map(|space| sys::file::file_system_name(space.kind).to_owned())
            .ok()
            .filter(|name| name != "this file system"),
        Target::Gluster(_) => Some("glusterfs".into()),
    };
    Ok(Seen { access: fs.name().into(), file_system: kind.unwrap_or_default() })
}

fn local_path(plan: &Plan) -> Option<&Path> {
    (plan.target == Target::Posix).then(|| Path::new(OsStr::from_bytes(plan.layout.base.to_bytes())))
}

/// Writes out what the file systems of the run have in memory, then lets the kernel forget all that it need not keep:
/// contents, names and attributes.
fn drop_caches(plan: &Plan) -> Result<(), Error> {
    let bases = plan.layout.bases().filter(|_| plan.target == Target::Posix);
    for path in bases.map(|base| Path::new(OsStr::from_bytes(base.to_bytes()))) {
        File::open(path)
            .and_then(|base| sys::file::sync_file_system(&base))
            .map_err(|error| Error::system("cannot write out the file system of", path.display().to_string(), error))?;
    }
    let all = b"3"; // contents, names and attributes
    file_that_drops_caches()?.write_all(all).map_err(|error| Error::system("cannot write to", DROP_CACHES, error))
}

/// Opens the file that drops the caches, for a look before the run touches anything, too.
fn file_that_drops_caches() -> Result<File, Error> {
    File::options().write(true).open(DROP_CACHES).map_err(|error| {
        let hint = "--drop-caches needs root, and a /proc/sys that can be written";
        Error::system("cannot open", DROP_CACHES, error).hint(hint)
    })
}

/// Does `work` in a child process: for libraries that must not be open in a process that forks.
fn in_child<T: serde::Serialize + serde::de::DeserializeOwned>(
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let started = child::spawn(|| {
        let outcome = work().map_err(|error| Sent::of(&error));
        serde_json::to_vec(&outcome).unwrap_or_default()
    });
    let mut child = started.map_err(|error| Error::system("cannot start a process", "", error))?;
    loop {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(POLL),
            Ok(Some(Outcome::Answer(bytes))) => {
                let outcome: Result<T, Sent> = serde_json::from_slice(&bytes)
                    .map_err(|error| internal(format!("a child's answer cannot be read: {error}")))?;
                return outcome.map_err(Sent::error);
            }
            Ok(Some(outcome)) => return Err(internal(format!("a process ended unexpectedly: {outcome:?}"))),
            Err(error) => return Err(Error::system("cannot wait for", "a process", error)),
        }
    }
}

/// An error on its way between processes.
#[derive(serde::Serialize, serde::Deserialize)]
struct Sent {
    usage: bool,
    message: String,
}

impl Sent {
    fn of(error: &Error) -> Sent {
        Sent { usage: error.kind == ErrorKind::Usage, message: error.to_string() }
    }

    fn error(self) -> Error {
        let kind = if self.usage { ErrorKind::Usage } else { ErrorKind::System };
        Error { kind, what: self.message, place: String::new(), hint: String::new(), source: None }
    }
}

fn internal(what: String) -> Error {
    Error { kind: ErrorKind::Internal, what, place: String::new(), hint: String::new(), source: None }
}

/// Takes the figures of all threads, before any of them cleans up.
type Figures<'a> = dyn FnMut(Reports, Pulse, &mut Control) + 'a;

/// All threads in this process. Returns the failure of the clean-up.
fn one_process(orders: Orders, control: &mut Control, figures: &mut Figures) -> Result<Option<JobError>, Error> {
    let fs = orders.plan.target.open()?;
    let desk = Desk::new(orders.plan.threads, None);
    std::thread::scope(|scope| {
        let threads = start_threads(orders, &*fs, &desk, scope)?;
        let held = control.gate.take();
        let held = held.map(|gate| {
            let begins = gate(&*fs);
            match &begins {
                Ok(true) => {}
                Ok(false) => orders.gates.stop(Stop::Interrupted),
                Err(_) => orders.gates.stop(Stop::Failed),
            }
            begins
        });
        let mut conductor = Conductor::new(orders);
        conductor.phases(control, &mut || true);
        if let (Some(of), None | Some(Ok(_))) = (desk.take(), &held) {
            let error = conductor.failure.take();
            figures(Reports { of, lost: Vec::new(), error }, std::mem::take(&mut conductor.pulse), control);
        }
        conductor.clean_up(control, &mut || true);
        let left_behind = join(threads);
        held.transpose()?;
        left_behind
    })
}

type Thread<'scope> = std::thread::ScopedJoinHandle<'scope, Option<JobError>>;

fn start_threads<'scope, 'env>(
    orders: Orders<'scope>,
    fs: &'scope dyn FileSystem,
    desk: &'scope Desk<'env>,
    scope: &'scope std::thread::Scope<'scope, 'env>,
) -> Result<Vec<Thread<'scope>>, Error> {
    let mut threads = Vec::new();
    for number in 0..orders.plan.threads {
        let thread = orders.process * orders.plan.threads + number;
        let orders = Orders { thread, ..orders };
        let started = std::thread::Builder::new()
            .name(format!("files-{thread}"))
            .spawn_scoped(scope, move || worker::run(orders, fs, desk));
        match started {
            Ok(started) => threads.push(started),
            Err(error) => {
                // Let the threads go that wait at the gate.
                orders.gates.stop(Stop::Failed);
                orders.gates.open_clean_up();
                let first = orders.process * orders.plan.threads;
                (thread..first + orders.plan.threads).for_each(|seat| orders.gates.reach(seat as usize, LEFT));
                let hint = "the limit of processes is reached (ulimit -u), or memory is: use fewer --threads";
                return Err(Error::system("cannot start a thread", "", error).hint(hint));
            }
        }
    }
    Ok(threads)
}

/// Waits for all threads; the first failure of their clean-ups.
fn join(threads: Vec<Thread>) -> Result<Option<JobError>, Error> {
    let panicked = |_| internal("a thread panicked: this is a defect of plimsoll, please report it".into());
    let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().map_err(panicked)).collect();
    let failures: Result<Vec<_>, Error> = ended.into_iter().collect();
    Ok(failures?.into_iter().flatten().next())
}

/// All threads, in `plan.processes` child processes. Returns the failure of the clean-up.
fn processes(orders: Orders, control: &mut Control, figures: &mut Figures) -> Result<Option<JobError>, Error> {
    let plan = orders.plan;
    let mut crowd = Crowd { orders, all: Vec::new() };
    for number in 0..plan.processes {
        let orders = Orders { process: number, ..orders };
        // Dropping the children ends those that were started.
        let failed = |error| Error::system("cannot start a process", "", error);
        let reports = child::memory_file().map_err(failed)?;
        let started = child::spawn(|| {
            let outcome = in_this_process(orders, &reports).map_err(|error| Sent::of(&error));
            serde_json::to_vec(&outcome).unwrap_or_default()
        });
        crowd.all.push(Process { number, child: started.map_err(failed)?, reports, lost: false, ended: None });
    }
    let mut conductor = Conductor::new(orders);
    conductor.phases(control, &mut || crowd.look_after());
    let mut reports = crowd.reports();
    reports.error = reports.error.or(conductor.failure.take());
    let worked = reports.of.iter().any(|report| !report.phases.is_empty());
    if worked || reports.lost.is_empty() {
        figures(reports, std::mem::take(&mut conductor.pulse), control);
    }
    conductor.clean_up(control, &mut || crowd.look_after());
    while !crowd.look_after() {
        std::thread::sleep(POLL);
    }
    let mut first = None;
    for process in crowd.all {
        let failure = match process.ended {
            Some(Ok(failure)) => failure,
            // No process did any work: its failure is one before the start.
            Some(Err(error)) if !worked => return Err(error),
            Some(Err(mut error)) if !process.lost => {
                error.what += " in the clean-up";
                Some(JobError { errno: error.errno(), message: error.to_string() })
            }
            _ => None, // in the figures
        };
        first = first.or(failure);
    }
    Ok(first)
}

/// The child processes of a run.
struct Crowd<'a> {
    orders: Orders<'a>,
    all: Vec<Process>,
}

/// A child process.
struct Process {
    number: u32,
    child: Child,
    /// The file in which the process leaves the reports of its threads.
    reports: File,
    /// True if it has left none.
    lost: bool,
    /// The failure of its clean-up, or the reason why it ended early; None while it runs.
    ended: Option<Result<Option<JobError>, Error>>,
}

impl Crowd<'_> {
    /// Takes note of processes that have ended; true if all have.
    fn look_after(&mut self) -> bool {
        let Orders { plan, gates, .. } = self.orders;
        for process in self.all.iter_mut().filter(|process| process.ended.is_none()) {
            let (number, id) = (process.number, process.child.id());
            let ended = match process.child.try_wait() {
                Ok(None) => continue,
                Ok(Some(Outcome::Answer(bytes))) => serde_json::from_slice::<Result<Option<JobError>, Sent>>(&bytes)
                    .map_err(|error| internal(format!("a process's answer cannot be read: {error}")))
                    .and_then(|outcome| outcome.map_err(Sent::error)),
                Ok(Some(Outcome::Signal(signal))) => {
                    Err(died(plan, number, id, format!("was killed by signal {signal}")))
                }
                Ok(Some(Outcome::Status(status))) => Err(died(plan, number, id, format!("ended with status {status}"))),
                Err(error) => Err(Error::system("cannot wait for", "a process", error)),
            };
            if ended.is_err() {
                gates.stop(Stop::Failed);
            }
            process.ended = Some(ended);
            // However the process ended, nobody waits for its threads any more.
            let first = number * plan.threads;
            (first..first + plan.threads).for_each(|seat| gates.reach(seat as usize, LEFT));
        }
        self.all.iter().all(|process| process.ended.is_some())
    }

    /// The reports of the processes, whose threads have come to the end of the phases.
    fn reports(&mut self) -> Reports {
        let mut all = Reports { of: Vec::new(), lost: Vec::new(), error: None };
        for process in &mut self.all {
            let mut bytes = Vec::new();
            let read = process.reports.rewind().and_then(|()| process.reports.read_to_end(&mut bytes));
            if let Some(reports) = read.ok().and_then(|_| serde_json::from_slice::<Vec<Report>>(&bytes).ok()) {
                all.of.extend(reports);
                continue;
            }
            process.lost = true;
            all.lost.push(process.number);
            let (errno, how) = match &process.ended {
                Some(Err(error)) => (error.errno(), error.to_string()),
                _ => (libc::EIO, format!("process {} has left no report", process.number)),
            };
            let message = format!("{how}; nothing of what it did is in the figures");
            all.error.get_or_insert(JobError { errno, message });
        }
        all
    }
}

/// The reports of the threads.
struct Reports {
    of: Vec<Report>,
    /// Processes that ended without a report.
    lost: Vec<u32>,
    /// The reason why the first lost process ended.
    error: Option<JobError>,
}

fn died(plan: &Plan, process: u32, id: i32, how: String) -> Error {
    let first = process * plan.threads;
    let threads = match plan.threads {
        1 => format!("thread {first}"),
        threads => format!("threads {first} to {}", first + threads - 1),
    };
    Error {
        kind: ErrorKind::System,
        what: format!("process {process} ({threads}, id {id}) {how}"),
        place: String::new(),
        hint: "was it killed from outside, or by the kernel for lack of memory? `--op cleanup` removes what it left"
            .into(),
        source: None,
    }
}

/// The side of a child process: it runs its threads; the parent conducts them.
fn in_this_process(orders: Orders, reports: &File) -> Result<Option<JobError>, Error> {
    let fs = orders.plan.target.open()?;
    let desk = Desk::new(orders.plan.threads, Some(reports));
    std::thread::scope(|scope| join(start_threads(orders, &*fs, &desk, scope)?))
}

/// The time to sleep between looks at a phase. It is short at first, so that the next phase follows a short one without
/// delay. It grows, so that the looks do not disturb a long phase, whose threads may want every processor.
fn pause(elapsed_ns: u64) -> Duration {
    Duration::from_nanos((elapsed_ns / 64).clamp(200_000, 10_000_000))
}

/// Opens gate after gate, hands on the wish to stop, reports progress.
struct Conductor<'a> {
    orders: Orders<'a>,
    pulse: Pulse,
    /// The time at which the phase that runs began.
    began_ns: u64,
    next_progress_ns: u64,
    /// The reason why the conductor has ended the run.
    failure: Option<JobError>,
}

/// Watches the child processes; true if all have ended.
type LookAfter<'a> = dyn FnMut() -> bool + 'a;

impl<'a> Conductor<'a> {
    fn new(orders: Orders<'a>) -> Conductor<'a> {
        let pulse = Pulse::of(orders.plan);
        Conductor { orders, pulse, began_ns: monotonic_ns(), next_progress_ns: 0, failure: None }
    }

    /// Conducts all phases, until every thread has left its report.
    fn phases(&mut self, control: &mut Control, look_after: &mut LookAfter) {
        let Orders { plan, gates, .. } = self.orders;
        let last = plan.phases.len();
        for phase in 0..last {
            self.wait_for(phase as u64 + 1, phase, control, look_after);
            if gates.stopped() != Stop::No {
                break;
            }
            if plan.drop_caches
                && let Err(error) = drop_caches(plan)
            {
                self.failure = Some(JobError { errno: error.errno(), message: error.to_string() });
                gates.stop(Stop::Failed);
                break;
            }
            // The start is so near that nobody notices the wait, and so far that every thread sleeps until it by then.
            self.began_ns = monotonic_ns() + 2 * gates.poll_ns() + 200_000;
            if let Some(peers) = control.peers.as_deref_mut() {
                let stop = &control.stop;
                let before = if phase == 0 { peers::wait(peers, Stage::LaidOut, stop, &mut |_| {}) } else { Some(0) };
                match before.and_then(|_| peers::wait(peers, Stage::Start(phase as u32), stop, &mut |_| {})) {
                    Some(at_ns) => self.began_ns = at_ns,
                    None => {
                        gates.stop(Stop::Interrupted);
                        break;
                    }
                }
            }
            gates.open_gate(phase, self.began_ns);
        }
        self.wait_for(last as u64 + 1, last, control, look_after);
        for phase in 0..last {
            if let (Some(peers), Some(agreed_ns), Some((first, last))) =
                (control.peers.as_deref_mut(), gates.gate(phase), gates.began(phase))
            {
                peers.started(agreed_ns, first);
                peers.started(agreed_ns, last);
            }
        }
    }

    /// Lets the threads clean up, and waits until they have left.
    fn clean_up(&mut self, control: &mut Control, look_after: &mut LookAfter) {
        self.orders.gates.open_clean_up();
        self.wait_for(LEFT, 0, control, look_after);
    }

    /// Waits until all threads have come to a gate. `phase` is the number of phases that have begun, 0 before the first
    /// and after the last.
    fn wait_for(&mut self, gate: u64, phase: usize, control: &mut Control, look_after: &mut LookAfter) {
        let Orders { plan, gates, .. } = self.orders;
        let Conductor { pulse, began_ns, next_progress_ns, .. } = self;
        while !gates.have_reached(gate) {
            look_after();
            if control.stop.load(Relaxed) {
                gates.stop(Stop::Interrupted);
            }
            let now_ns = monotonic_ns();
            let elapsed_ns = now_ns.saturating_sub(*began_ns);
            if let Some(running) = phase.checked_sub(1) {
                pulse.beat(running, elapsed_ns, || gates.total());
            }
            if now_ns >= *next_progress_ns
                && let Some(progress) = &mut control.progress
            {
                *next_progress_ns = now_ns + PROGRESS_NS;
                let work = gates.total();
                let all = plan.files as f64 * f64::from(plan.workers());
                let by_time = plan.runtime_ns.map_or(0.0, |runtime| elapsed_ns as f64 / runtime as f64);
                progress(&Moment {
                    phase: phase.checked_sub(1).map_or("", |phase| plan.phases[phase].name.as_str()),
                    phases: (phase.saturating_sub(1), plan.phases.len()),
                    busy: gates.behind(gate),
                    work,
                    elapsed_ns,
                    done: (work.files as f64 / all.max(1.0)).max(by_time).min(1.0),
                });
            }
            std::thread::sleep(pause(elapsed_ns));
        }
    }
}

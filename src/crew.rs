//! Runs on many hosts, seen from one rank: its work together with the other ranks.
//!
//! ```text
//! join ─► agree (everyone can take part) ─► load, through the gates of all ─► conclude ─► the leader reports ─► part
//! ```

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::PathBuf;

use hosts::launch::{self, Launched};
use hosts::ssh::{self, Pipes};
use hosts::{Conclusion, Flags, Identity, Offset, Part, Team, Wire};
use job::Rank;
use load::{Gate, Peers, Phase, Progress, Stage};
use measure::schema::{ClockComparison, Ended, HostResult, HostsResult, JobResult, RankFailure, RunResult, WireUse};
use measure::{Direction, PerDirection};
use sys::clock::{Clock, monotonic_ns};

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::over_ssh;
use crate::progress::Show;

/// The part of this process in a run.
pub enum Joined {
    /// The process runs on its own.
    Alone,
    /// The process is one of many ranks, which run.
    Among(Box<Crew>),
    /// The process has nothing more to do or to say: another rank has said why, or all ranks have ended.
    Mute(Exit),
}

/// The message of a build without MPI that mpirun or srun starts.
#[cfg(not(feature = "mpi"))]
const NO_MPI: &str = "this build of plimsoll knows --hosts, not mpirun: for mpirun and srun, build it with `cargo build --release \
                      --features mpi` (Debian: apt-get install libopenmpi-dev openmpi-bin), or install the package \
                      plimsoll-mpi, on all hosts";

/// Joins the ranks that mpirun, srun or `--hosts` has started together with this process. The program that was given
/// `--hosts` starts them, and ends with their status.
///
/// # Errors
/// A build that cannot; ranks of different versions. Only the first rank says so. Hosts that cannot be reached.
pub fn join(interrupt: &Interrupt) -> anyhow::Result<Joined> {
    if let Some(status) = over_ssh::lead(interrupt)? {
        return Ok(Joined::Mute(status));
    }
    if launch::bound_unasked(variable) {
        let _ = sys::process::unbind(); // the binding stays where it cannot be changed
    }
    let Some(launched) = launch::launched(variable) else { return Ok(Joined::Alone) };
    match team(interrupt, launched) {
        Ok(team) => Ok(Joined::Among(Box::new(Crew::new(team)))),
        Err(error) if launched.rank == 0 => Err(anyhow::Error::msg(error)),
        // mpirun ends all ranks as soon as one ends badly: the one that speaks must come first.
        Err(_) if hosts::HAS_MPI => Ok(Joined::Mute(Exit::Ok)),
        Err(_) => Ok(Joined::Mute(Exit::BadInput)),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn team(interrupt: &Interrupt, launched: Launched) -> Result<Team, String> {
    let host = sys::process::host().name;
    let machine = hosts::machine_number(&host);
    let identity = Identity { host, machine, version: asked(), grace: launch::grace(variable) };
    let flags = Flags { signalled: interrupt.signalled.clone(), stop: interrupt.stop.clone() };
    match Pipes::join(launched.rank, launched.ranks, variable) {
        Some(pipes) => {
            let pipes = pipes.map_err(|error| format!("cannot reach the other ranks: {error}"))?;
            Team::join(move || Ok(pipes), identity, flags, monotonic_ns)
        }
        None => team_of_mpi(identity, flags),
    }
}

#[cfg(feature = "mpi")]
fn team_of_mpi(identity: Identity, flags: Flags) -> Result<Team, String> {
    let connect = || hosts::Mpi::join().map_err(|error| format!("MPI cannot be initialised: error {error}"));
    Team::join(connect, identity, flags, monotonic_ns)
}

#[cfg(not(feature = "mpi"))]
fn team_of_mpi(_identity: Identity, _flags: Flags) -> Result<Team, String> {
    hand_over()?;
    Err(NO_MPI.into())
}

/// Becomes plimsoll-mpi, the same program with MPI, where that package is installed beside this program. Returns where
/// it is not.
#[cfg(not(feature = "mpi"))]
fn hand_over() -> Result<(), String> {
    use std::os::unix::process::CommandExt;
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("plimsoll-mpi"));
    let Some(program) = beside.filter(|program| program.exists()) else { return Ok(()) };
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    let error = std::process::Command::new(&program).arg0(name).args(words).exec();
    Err(format!("cannot start {}: {error}", program.display()))
}

/// The version that all ranks must have in common. The tests find it in copies of the program and change it there.
fn version() -> &'static str {
    static MARKED: &str = concat!("version of all ranks: ", env!("CARGO_PKG_VERSION"));
    std::hint::black_box(MARKED).trim_start_matches("version of all ranks: ")
}

/// Options that ranks may have each for itself: where their files are, and where results go.
const OWN: [&str; 7] =
    ["--dir", "--directory", "--filename", "--output", "--response-times", "--save", "--smallfile-json"];

/// The program and its orders: its version, its commit, and a hash of its command line. A job file counts with its
/// contents, not with its path.
fn asked() -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        if OWN.contains(&name) {
            if !text.contains('=') {
                words.next();
            }
            continue;
        }
        let path = std::path::Path::new(text.strip_prefix("--input=").unwrap_or(&text));
        match path.metadata().is_ok_and(|found| found.is_file() && found.len() <= 1 << 20) {
            true => std::fs::read(path).unwrap_or_default().hash(&mut hasher),
            false => text.hash(&mut hasher),
        }
    }
    format!("{} of commit {} with command {:016x}", version(), env!("PLIMSOLL_GIT_HASH"), hasher.finish())
}

/// The place of a process that runs alone.
pub fn alone() -> Rank {
    let host = sys::process::host().name;
    Rank { rank: 0, ranks: 1, hosts: vec![host.clone()], host }
}

/// This rank and its way to the others.
pub struct Crew {
    /// The place of this rank among all ranks.
    pub rank: Rank,
    team: Team,
    clock: RefCell<ClockComparison>,
    compared: Cell<bool>,
    started_ns: Cell<Option<(i64, i64)>>,
    wire: Cell<(Wire, u64)>,
    stated: Cell<u64>,
    /// The leader waits for this file before it lets anybody begin.
    pub awaits: Option<PathBuf>,
}

impl Crew {
    fn new(team: Team) -> Crew {
        let mut hosts: Vec<String> = (0..team.size()).map(|rank| team.host(rank).to_owned()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let rank = Rank { rank: team.rank(), ranks: team.size(), host: team.host(team.rank()).to_owned(), hosts };
        Crew {
            rank,
            team,
            clock: RefCell::default(),
            compared: Cell::new(false),
            started_ns: Cell::new(None),
            wire: Cell::new((Wire::now(), monotonic_ns())),
            stated: Cell::new(0),
            awaits: None,
        }
    }

    /// True if this rank speaks for all.
    pub fn is_leader(&self) -> bool {
        self.team.is_leader()
    }

    /// The progress that this rank shows: one rank shows it for all. mpirun hands on what is written, not what it is
    /// written to: on its terminal the line does not move, it is written again.
    pub fn show(&self) -> Show {
        let terminal = |link: PathBuf| link.starts_with("/dev/pts") || link.starts_with("/dev/tty");
        let mpirun = format!("/proc/{}/fd/2", std::os::unix::process::parent_id());
        match self.is_leader() {
            true if variable(ssh::ON_TERMINAL).is_some() => Show::Always,
            true if std::fs::read_link(mpirun).is_ok_and(terminal) => Show::Always,
            true => Show::Auto,
            false => Show::Never,
        }
    }

    /// The hosts of all ranks.
    pub fn hosts(&self) -> Vec<String> {
        (0..self.rank.ranks).map(|rank| self.team.host(rank).to_owned()).collect()
    }

    /// The request of this rank, if all ranks can do what they were asked for. Otherwise the leader has said which rank
    /// cannot, and why; this rank then has to [`Crew::leave`] with that status.
    pub fn agree<T>(&self, mine: anyhow::Result<T>) -> Result<T, Exit> {
        let objection = mine.as_ref().err().map(|error| format!("{error:#}"));
        let objections = self.team.objections(objection).unwrap_or_else(|_| self.troubles());
        match mine {
            Ok(mine) if objections.is_empty() => Ok(mine),
            _ => {
                self.complain(&objections);
                Err(if self.is_leader() { Exit::BadInput } else { Exit::Ok })
            }
        }
    }

    fn troubles(&self) -> Vec<(u32, String)> {
        self.team.troubles().into_iter().map(|trouble| (trouble.rank, trouble.what)).collect()
    }

    /// At the leader: writes the objections to standard error, once where all ranks have the same.
    fn complain(&self, wrong: &[(u32, String)]) {
        let mut err = std::io::stderr();
        let Some((_, first)) = wrong.first().filter(|_| self.is_leader()) else { return };
        if wrong.len() as u32 == self.rank.ranks && wrong.iter().all(|(_, what)| what == first) {
            let _ = writeln!(err, "plimsoll: {first}"); // a closed standard error: the status still tells
            return;
        }
        for (rank, what) in wrong {
            let _ = writeln!(err, "plimsoll: rank {rank} on {}: {what}", self.team.host(*rank));
        }
    }

    /// Says what is wrong on this rank alone, when the figures of all are handed over.
    pub fn complain_alone(&self, what: &str) {
        let _ = writeln!(std::io::stderr(), "plimsoll: rank {} on {}: {what}", self.rank.rank, self.rank.host);
    }

    /// Something went wrong here: the others are to stop.
    pub fn report(&self, what: &str) {
        self.team.report(what);
    }

    /// Sends the activity of this rank to the others, and returns the activity of all ranks as far as this rank knows
    /// it.
    pub fn share(&self, now: &Progress) -> Progress {
        let three = |values: &PerDirection<u64>| [values.read, values.write, values.trim];
        self.team.set_moment(hosts::Moment {
            phase: now.phase as u8,
            clones: now.running,
            elapsed_ns: now.elapsed_ns,
            done: now.done.unwrap_or(f64::NAN),
            ranks: 1,
            ops: three(&now.ops),
            bytes: three(&now.bytes),
            lat_sum_ns: now.lat_sum_ns,
        });
        let all = self.team.moment();
        let done = Some(all.done / f64::from(all.ranks.max(1))).filter(|done| done.is_finite());
        let each = |values: [u64; 3]| PerDirection { read: values[0], write: values[1], trim: values[2] };
        Progress {
            phase: [Phase::Layout, Phase::Ramp, Phase::Run, Phase::Verify][usize::from(all.phase.min(3))],
            running: all.clones,
            elapsed_ns: all.elapsed_ns,
            done,
            remaining_ns: now.remaining_ns,
            ops: each(all.ops),
            bytes: each(all.bytes),
            lat_sum_ns: all.lat_sum_ns,
        }
    }

    /// Sends the measurements of this rank so far to the others (`--status-interval`).
    pub fn state(&self, result: RunResult) {
        self.stated.set(self.stated.get() + 1);
        let part = Part::of_run(self.rank.rank, result, self.so_far());
        self.team.state(self.stated.get(), part.written(), Part::merge_written);
    }

    /// Tells the others that this rank will state nothing more.
    pub fn state_last(&self, part: &Part) {
        self.team.state(hosts::LAST_STATEMENT, part.written(), Part::merge_written);
    }

    /// At the leader: the measurements of all ranks so far, if any are new.
    pub fn take_statement(&self) -> Option<RunResult> {
        let whole = Part::read_all(vec![self.team.take_statement()?])?;
        Some(whole.into_run(self.rank.ranks))
    }

    /// The facts about this host and its clock after the load, for the result.
    pub fn describe(&self) -> HostResult {
        let so_far = self.so_far();
        if self.compared.get() && self.team.troubles().is_empty() {
            let before = *self.clock.borrow();
            if let Ok(after) = self.team.compare_clocks() {
                self.clock.borrow_mut().drift_ns = Some(after.ahead_ns - before.ahead_ns);
                let ClockComparison { ahead_ns, bound_ns, .. } = before;
                if let Some(moved_ns) = (Offset { ahead_ns, bound_ns }).moved(after, so_far.wire.length_ns) {
                    self.report(&format!(
                        "its clock moved by {} during the run (was the virtual machine restored?): its work cannot be \
                         placed beside that of the others",
                        measure::figures::nanoseconds(moved_ns as f64)
                    ));
                }
            }
        }
        HostResult { clock: *self.clock.borrow(), ..so_far }
    }

    fn so_far(&self) -> HostResult {
        let (before, since_ns) = self.wire.get();
        let (used, length_ns) = (Wire::now().since(&before), monotonic_ns().saturating_sub(since_ns));
        HostResult {
            host: self.rank.host.clone(),
            machine: load::machine(&Clock::monotonic()),
            wire: WireUse { received: used.received, sent: used.sent, length_ns },
            started_ns: self.started_ns.get(),
            clock: *self.clock.borrow(),
            ..HostResult::default()
        }
    }

    /// The part of a rank that has measured nothing.
    pub fn failed(&self, what: &str) -> Part {
        self.report(what);
        let rank = self.rank.rank;
        let host = self.rank.host.clone();
        let failure = RankFailure { rank, host: host.clone(), what: what.to_owned(), lost: false };
        Part::failed(failure, HostResult { host, started_ns: self.started_ns.get(), ..HostResult::default() })
    }

    /// Hands over what this rank has measured. At the one rank that speaks for all: what all have, and what went wrong.
    pub fn conclude(&self, part: &Part) -> Option<(Part, Vec<RankFailure>)> {
        let Conclusion::Speak(whole, missing) = self.team.conclude(part.written(), Part::merge_written) else {
            return None;
        };
        let mut whole = Part::read_all(vec![whole]).unwrap_or_default();
        let mut failures = std::mem::take(&mut whole.failures);
        let mut add = |rank: u32, what: String, lost: bool| {
            if !failures.iter().any(|known| known.rank == rank) {
                failures.push(RankFailure { rank, host: self.team.host(rank).to_owned(), what, lost });
            }
        };
        for trouble in self.team.troubles() {
            add(trouble.rank, trouble.what, trouble.lost);
        }
        for rank in missing {
            add(rank, "was lost: killed, its host is down, or its I/O did not end when the run was ended".into(), true);
        }
        let there = whole.ranks + failures.iter().filter(|failure| failure.lost).count() as u32;
        if there < self.rank.ranks {
            let what = format!(
                "the results of {} ranks cannot be read: this is a defect of plimsoll, please report it",
                self.rank.ranks - there
            );
            failures.push(RankFailure { rank: self.rank.rank, host: self.rank.host.clone(), what, lost: false });
        }
        failures.sort_by_key(|failure| failure.rank);
        Some((whole, failures))
    }

    /// Enters what went wrong into the result, and whether the run was whole.
    pub fn enter(&self, failures: Vec<RankFailure>, hosts: &mut Option<Box<HostsResult>>, ended: &mut Ended) {
        if !failures.is_empty() {
            *ended = Ended::Failed;
        }
        if let Some(hosts) = hosts {
            hosts.failures = failures;
        }
    }

    /// At the one that speaks for all, when everything is said: the others may go. A bad status of the run is the last
    /// line, because mpirun may hide it: with --enable-recovery its own status is 0 when a rank is lost.
    pub fn farewell(&self, status: Exit) {
        if matches!(status, Exit::JobFailed | Exit::Interrupted) {
            let _ = writeln!(std::io::stderr(), "plimsoll: all ranks: status {}", status as u8);
        }
        self.team.farewell();
    }

    /// Leaves the others, with the status that is right for this rank: a bad one ends all ranks that are still there.
    pub fn leave(self, status: Exit) -> Exit {
        match self.team.leave() {
            true => status,
            false if status == Exit::Ok => Exit::Interrupted,
            false => status,
        }
    }

    /// The leader's order; the leader passes its order in.
    ///
    /// # Errors
    /// An error if everyone was told to stop.
    pub fn order<T: serde::Serialize + serde::de::DeserializeOwned>(
        &self,
        mine: Option<T>,
    ) -> Result<T, hosts::Stopped> {
        self.team.announce(mine)
    }

    /// The sum of the jobs that ranks give, at the leader; None at the others, and if everyone was told to stop.
    fn sum(&self, job: Option<JobResult>) -> Option<JobResult> {
        let sum = self.team.gather(&job, |parts| {
            let mut jobs = parts.iter().filter_map(|bytes| hosts::from_bytes::<Option<JobResult>>(bytes)).flatten();
            let mut all = jobs.next();
            if let Some(all) = &mut all {
                jobs.for_each(|job| all.merge(&job));
            }
            hosts::to_bytes(&all)
        });
        sum.ok().flatten().flatten()
    }
}

/// A crew that sweeps.
pub struct Sweepers<'a> {
    /// The crew that sweeps.
    pub crew: &'a Crew,
    /// True if depths are those of all ranks together.
    pub total: bool,
    /// The gates of the crew.
    gates: Quiet<'a>,
}

impl<'a> Sweepers<'a> {
    /// Makes the crew that a sweep sees.
    pub fn new(crew: &'a Crew, total: bool) -> Sweepers<'a> {
        Sweepers { crew, total, gates: Quiet(crew) }
    }
}

impl load::sweep::Crew for Sweepers<'_> {
    fn peers(&mut self) -> &mut dyn Peers {
        &mut self.gates
    }

    fn share(&self, depth: u32) -> u32 {
        if self.total { self.crew.rank.share_of(depth.into()) as u32 } else { depth }
    }

    fn own(&self, plan: &mut job::Plan) {
        self.crew.rank.seed_apart(plan);
    }

    fn described(&self) -> String {
        let ranks = self.crew.rank.ranks;
        let mut hosts = self.hosts();
        hosts.sort();
        hosts.dedup();
        let whose = if self.total { "of all together" } else { "of each" };
        let on = if hosts.len() > 8 { format!("{} hosts", hosts.len()) } else { hosts.join(", ") };
        format!("from {ranks} ranks on {on}; iodepth {whose}")
    }

    fn hosts(&self) -> Vec<String> {
        self.crew.hosts()
    }

    fn tell(&mut self, order: Option<&load::sweep::Order>) -> bool {
        self.crew.order(Some(order.cloned())).is_ok()
    }

    fn listen(&mut self) -> Option<load::sweep::Order> {
        self.crew.order::<Option<load::sweep::Order>>(None).ok().flatten()
    }

    fn sum(&mut self, job: Option<JobResult>) -> Option<JobResult> {
        self.crew.sum(job)
    }
}

/// A crew that does not stop when one point fails: the point tells of the failure.
struct Quiet<'a>(&'a Crew);

impl Peers for Quiet<'_> {
    fn turn(&self) -> u32 {
        self.0.turn()
    }

    fn gate(&mut self, stage: Stage) -> Gate {
        Peers::gate(&mut self.0, stage)
    }

    fn started(&mut self, agreed_ns: u64, actual_ns: u64) {
        Peers::started(&mut self.0, agreed_ns, actual_ns);
    }

    fn failed(&mut self, _what: &str) {}
}

impl Peers for &Crew {
    fn turn(&self) -> u32 {
        self.team.turn()
    }

    fn gate(&mut self, stage: Stage) -> Gate {
        if stage == Stage::LaidOut && self.is_leader() && self.awaits.as_ref().is_some_and(|gun| !gun.exists()) {
            return Gate::Wait;
        }
        match self.team.gate(stage.number()) {
            hosts::Gate::Wait => Gate::Wait,
            hosts::Gate::Closed => Gate::Closed,
            hosts::Gate::Open(at_ns) => {
                if stage == Stage::LaidOut {
                    match self.team.compare_clocks() {
                        Ok(Offset { ahead_ns, bound_ns }) => {
                            *self.clock.borrow_mut() = ClockComparison { ahead_ns, bound_ns, drift_ns: None };
                            self.compared.set(true);
                        }
                        Err(_) => return Gate::Closed,
                    }
                    self.wire.set((Wire::now(), monotonic_ns()));
                }
                Gate::Open(at_ns)
            }
        }
    }

    fn started(&mut self, agreed_ns: u64, actual_ns: u64) {
        let after = actual_ns.wrapping_sub(agreed_ns) as i64;
        let (first, last) = self.started_ns.get().unwrap_or((after, after));
        self.started_ns.set(Some((first.min(after), last.max(after))));
    }

    fn failed(&mut self, what: &str) {
        self.report(what);
    }
}

/// The status of a run of which not every rank is there, or of one that measured nothing at all.
pub fn status(ended: Ended, hosts: Option<&HostsResult>, measured: bool) -> Exit {
    match ended {
        Ended::Failed if !measured && hosts.is_some_and(|hosts| !hosts.failures.is_empty()) => Exit::BadInput,
        ended => ended.into(),
    }
}

/// Writes the failures of ranks to standard error, a line each.
pub fn complain<'a>(failures: impl IntoIterator<Item = &'a RankFailure>) {
    for failure in failures {
        let _ = writeln!(std::io::stderr(), "plimsoll: rank {} on {}: {}", failure.rank, failure.host, failure.what);
    }
}

/// The status of an outcome, its error said: mpirun ends whoever is left when one rank ends, and with it its words.
pub fn said(outcome: anyhow::Result<Exit>) -> Exit {
    outcome.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "plimsoll: {error:#}");
        Exit::BadInput
    })
}

/// True if any job has transferred anything.
pub fn measured(jobs: &[JobResult]) -> bool {
    jobs.iter().any(|job| Direction::ALL.iter().any(|&direction| job.directions[direction].ops > 0))
}

//! Verdicts: statements on how far a result can be believed. All of them are in this file.
//!
//! Each verdict is a function from the results of a job, run or curve to `Option<Verdict>`. Tests check that each fires
//! and that each keeps silent. docs/verdicts.md lists them for readers; a test holds the two together.

use serde::{Deserialize, Serialize};

use crate::figures::{self, count, nanoseconds, percent, plain};
use crate::hosts::{HostResult, HostsResult, window_of};
use crate::schema::{
    Answer, Curve, Estimate, FilesFacts, FilesResult, Interval, JobResult, PhaseResult, Point, RunResult,
};
use crate::stats::{self, relative_half_width};
use crate::{Direction, Histogram};

/// How much a verdict takes away from the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The fact is worth knowing; the numbers stand.
    Note,
    /// The numbers are real, but likely not the ones that were wanted.
    Warning,
    /// The numbers do not describe the storage.
    Invalid,
}

impl Severity {
    /// `note`, `warning` or `invalid`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Invalid => "invalid",
        }
    }
}

/// One statement on a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// A stable name for scripts: `depth-not-achieved`.
    pub code: String,
    /// How much the verdict takes away from the numbers.
    pub severity: Severity,
    /// The observation, with its figures.
    pub what: String,
    /// The meaning of the observation for the numbers.
    pub means: String,
    /// The change that would avoid it.
    pub advice: String,
}

/// The outcome of one statement that was tried on a result. A statement that cannot apply (a rate that was not asked
/// for) is not tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "WrittenCheck", from = "WrittenCheck")]
pub struct Check {
    /// The code of the verdict that this check gives when it fails.
    pub code: String,
    /// The outcome of the check.
    pub outcome: Outcome,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check was made, and nothing speaks against the numbers.
    Passed,
    /// The result does not hold the facts that the check needs.
    NotCheckable {
        /// The missing facts, and why they are missing: "fio does not record what was in the page cache".
        reason: String,
    },
    /// The check was made and found something: the verdict of this code stands beside.
    Failed,
}

/// A [`Check`] as results hold it: a fixed row of fields, because ranks send results to each other in a form that has
/// no names of fields.
#[derive(Serialize, Deserialize)]
struct WrittenCheck {
    code: String,
    outcome: OutcomeWord,
    reason: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OutcomeWord {
    Passed,
    NotCheckable,
    Failed,
}

impl From<Check> for WrittenCheck {
    fn from(Check { code, outcome }: Check) -> WrittenCheck {
        let (outcome, reason) = match outcome {
            Outcome::Passed => (OutcomeWord::Passed, None),
            Outcome::NotCheckable { reason } => (OutcomeWord::NotCheckable, Some(reason)),
            Outcome::Failed => (OutcomeWord::Failed, None),
        };
        WrittenCheck { code, outcome, reason }
    }
}

impl From<WrittenCheck> for Check {
    fn from(WrittenCheck { code, outcome, reason }: WrittenCheck) -> Check {
        let outcome = match outcome {
            OutcomeWord::Passed => Outcome::Passed,
            OutcomeWord::NotCheckable => Outcome::NotCheckable { reason: reason.unwrap_or_default() },
            OutcomeWord::Failed => Outcome::Failed,
        };
        Check { code, outcome }
    }
}

/// The codes of all verdicts.
pub const CODES: [&str; 33] = [
    "verify-mismatch",
    "page-cache-read",
    "memory-filesystem",
    "loop-page-cache",
    "unwritten-read",
    "depth-not-achieved",
    "generator-cpu-bound",
    "rate-not-met",
    "queued-before-issue",
    "not-steady",
    "steadiness-unknown",
    "clones-on-same-blocks",
    "writes-not-synced",
    "allocating-writes",
    "errors-tolerated",
    "interval-too-short",
    "too-few-samples",
    "machine-cpu-bound",
    "too-few-points",
    "no-load-line",
    "lone-peak",
    "rate-limited",
    "still-rising",
    "generator-ceiling",
    "uncertain",
    "engine-replaced",
    "no-direct-io",
    "depth-not-possible",
    "process-lost",
    "threads-uneven",
    "host-slow",
    "start-skew",
    "different-blocks",
];

/// Part of the data in the page cache from which on its speed shows in the mean.
const CACHE_MATTERS: f64 = 0.05;
/// Part of the data in the page cache from which on the numbers are mainly those of memory.
const CACHE_DECIDES: f64 = 0.5;
/// Rounds over the same bytes from which on a third of the reads or more came from the page cache.
const READ_AGAIN: f64 = 1.5;
/// Part of the bytes unwritten from which on the numbers show it: a smaller part is the tail of a file.
const UNWRITTEN_MATTERS: f64 = 0.01;
/// Part of the bytes unwritten from which on the numbers are mainly those of the file system.
const UNWRITTEN_DECIDES: f64 = 0.5;
/// Part of the latency spent in submission from which on requests hardly overlap.
const BLOCKED: f64 = 0.5;
/// Part of the depth that counts as reached: batches as large as the depth fill the queue from empty each time, which
/// is (depth + 1) / 2 in the mean.
const DEPTH_REACHED: f64 = 0.5;
/// Nanoseconds below which the kernel's accounting of CPU time, by ticks, says nothing.
const LEAST_ACCOUNTED_NS: u64 = 100_000_000;
/// Part of a CPU from which on a clone has none left; the rest is the accounting's error.
const BUSY_CLONE: f64 = 0.95;
/// Part of all CPUs from which on clones wait for one.
const BUSY_MACHINE: f64 = 0.9;
/// Part of the time of threads on files, spent on contents, from which on a faster storage would not show.
const BUSY_WITH_CONTENT: f64 = 0.5;
/// Part of an asked rate that counts as met: a rate limiter's burst and the last interval are a few percent.
const RATE_MET: f64 = 0.95;
/// Nanoseconds that a timer may wake its sleeper late: that is not a queue.
const LATE_NS: f64 = 100_000.0;
/// Change of the mean without the warm-up from which on the warm-up matters.
const WARM_UP_MATTERS: f64 = 0.05;
/// Change from start to end, as a part of the mean, from which on a drift matters.
const DRIFT_MATTERS: f64 = 0.1;
/// Standard deviation between intervals, as a part of the mean, from which on the mean describes no interval.
const WILD: f64 = 0.5;
/// Nanoseconds below which start-up and a few slow requests weigh heavily.
const SHORT_NS: u64 = 1_000_000_000;
/// Ops below which the 99th percentile has fewer than ten samples beyond it.
const FEW: u64 = 1000;
/// Ops below which the 90th percentile has fewer than ten samples beyond it.
const VERY_FEW: u64 = 100;
/// Part of the time of the last thread before which the first one may be through.
const EVEN: f64 = 0.8;
/// Part of the median host's rate below which a host is slow, not unlucky.
const SLOW_HOST: f64 = 0.5;
/// Nanoseconds between the first start and the last from which on short runs show it.
const START_SKEW_NS: u64 = 1_000_000;
/// Part of the generator's own rate above which the curve may be the generator's: its cost adds to that of the storage.
const NEAR_CEILING: f64 = 0.8;
/// Half an interval, as a part of the mean, from which on neighbouring depths cannot be told apart.
const UNCERTAIN: f64 = 0.05;
/// Factor between a visit and all others from which on it is an accident: the error of a visit that names a line is
/// less than 4 %.
const LONE_PEAK: f64 = 1.1;

fn verdict(code: &str, severity: Severity, what: String, means: &str, advice: &str) -> Verdict {
    debug_assert!(CODES.contains(&code), "{code} is not in the list");
    Verdict { code: code.into(), severity, what, means: means.into(), advice: advice.into() }
}

/// The verdicts on something, worst first, and how each statement that was tried came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// The verdicts that were found, worst first.
    pub verdicts: Vec<Verdict>,
    /// Every statement that was tried, and how it came out.
    pub checks: Vec<Check>,
}

impl Judgement {
    /// Enters the outcome of one statement.
    fn enter(&mut self, code: &str, basis: Basis, found: Option<Verdict>) {
        let outcome = match (found, basis) {
            (Some(verdict), _) => {
                self.verdicts.push(verdict);
                Outcome::Failed
            }
            (None, Basis::Known) => Outcome::Passed,
            (None, Basis::Missing(reason)) => Outcome::NotCheckable { reason: reason.into() },
            (None, Basis::DoesNotApply) => return,
        };
        self.checks.push(Check { code: code.into(), outcome });
        self.verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.severity));
    }

    /// The judgement that consists of these verdicts.
    pub fn of_found(verdicts: Vec<Verdict>) -> Judgement {
        let checks = verdicts.iter().map(|one| Check { code: one.code.clone(), outcome: Outcome::Failed }).collect();
        Judgement { verdicts, checks }
    }

    /// Adds the judgement of another part: of one code, a part that failed counts before one that could not be checked,
    /// and that before one that passed.
    pub fn add(&mut self, other: Judgement) {
        let Judgement { verdicts, checks } = other;
        self.verdicts.extend(verdicts);
        self.verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.severity));
        let rank = |outcome: &Outcome| match outcome {
            Outcome::Passed => 0,
            Outcome::NotCheckable { .. } => 1,
            Outcome::Failed => 2,
        };
        for check in checks {
            match self.checks.iter_mut().find(|known| known.code == check.code) {
                Some(known) if rank(&known.outcome) < rank(&check.outcome) => *known = check,
                Some(_) => {}
                None => self.checks.push(check),
            }
        }
    }
}

/// The basis that a statement about a result would rest on.
enum Basis {
    /// The facts are there.
    Known,
    /// A fact is missing: the reason, as [`Outcome::NotCheckable`] shows it.
    Missing(&'static str),
    /// The statement has no meaning for this result.
    DoesNotApply,
}

impl Basis {
    /// Known if the statement applies, else DoesNotApply.
    fn applies(applies: bool) -> Basis {
        if applies { Basis::Known } else { Basis::DoesNotApply }
    }

    /// This basis where the fact is known; Missing with `reason` where it is not.
    fn needs(self, known: bool, reason: &'static str) -> Basis {
        match self {
            Basis::Known if !known => Basis::Missing(reason),
            basis => basis,
        }
    }
}

/// One statement that is tried on a `T`.
struct Rule<T> {
    code: &'static str,
    basis: fn(&T) -> Basis,
    find: fn(&T) -> Option<Verdict>,
}

/// The statements that are tried on each job. To add one: a function below, a row here, its code in [`CODES`], a
/// section in docs/verdicts.md, and a real run that gives it in tests/verdicts.rs.
const JOB_RULES: [Rule<JobResult>; 17] = [
    Rule { code: "verify-mismatch", basis: |job| Basis::applies(job.verified.is_some()), find: verify_mismatch },
    Rule {
        code: "memory-filesystem",
        basis: |job| Basis::applies(!is_null(job) && !job.facts.elsewhere).needs(is_local(job), UNTOLD),
        find: memory_filesystem,
    },
    Rule {
        code: "loop-page-cache",
        basis: |job| Basis::applies(!is_null(job) && !job.facts.elsewhere).needs(is_local(job), UNTOLD),
        find: loop_page_cache,
    },
    Rule {
        code: "page-cache-read",
        basis: |job| {
            let facts = &job.facts;
            let reads = job.directions.read.ops > 0 && !facts.elsewhere && !is_null(job);
            let known = facts.direct || facts.cached_fraction.is_some();
            Basis::applies(reads).needs(known, "nothing tells how much of the data was in the page cache")
        },
        find: page_cache_read,
    },
    Rule {
        code: "unwritten-read",
        basis: |job| {
            let reads = job.directions.read.ops > 0 && !job.facts.elsewhere && !is_null(job);
            let known = job.facts.unwritten_fraction.is_some();
            Basis::applies(reads).needs(known, "nothing tells which extents of the file were written")
        },
        find: unwritten_read,
    },
    Rule {
        code: "depth-not-achieved",
        basis: |job| {
            let known = job.depth.in_flight.iter().any(|ops| *ops > 0) || job.facts.synchronous;
            Basis::applies(job.facts.iodepth > 1 && !is_null(job)).needs(known, "nothing tells how deep the queue was")
        },
        find: depth_not_achieved,
    },
    Rule {
        code: "generator-cpu-bound",
        basis: |job| {
            let long = job.runtime_ns >= LEAST_ACCOUNTED_NS;
            Basis::applies(!is_null(job)).needs(long, "the job is too short for the kernel's accounting of CPU time")
        },
        find: generator_cpu_bound,
    },
    Rule { code: "rate-not-met", basis: |job| Basis::applies(has_rate(job)), find: rate_not_met },
    Rule {
        code: "queued-before-issue",
        basis: |job| Basis::applies(job.directions.iter().any(|(_, result)| result.lat_intended_ns.is_some())),
        find: queued_before_issue,
    },
    Rule {
        code: "not-steady",
        basis: |job| {
            Basis::Known.needs(
                rates_over_time(job).len() >= stats::FEWEST_TO_JUDGE,
                "steadiness needs eight intervals, and the result has fewer",
            )
        },
        find: not_steady,
    },
    Rule {
        code: "steadiness-unknown",
        basis: |job| Basis::applies(!job.intervals.is_empty()),
        find: steadiness_unknown,
    },
    Rule {
        code: "clones-on-same-blocks",
        basis: |job| {
            let applies = job.facts.numjobs > 1 && !is_null(job);
            Basis::applies(applies).needs(is_local(job), "nothing tells which blocks the clones went through")
        },
        find: clones_on_same_blocks,
    },
    Rule {
        code: "writes-not-synced",
        basis: |job| {
            let applies = job.directions.write.ops > 0 && !job.facts.direct && !is_null(job);
            Basis::applies(applies).needs(job.facts.writes_synced.is_some(), "nothing tells whether writes were synced")
        },
        find: writes_not_synced,
    },
    Rule {
        code: "allocating-writes",
        basis: |job| {
            let applies = job.directions.write.ops > 0 && job.directions.read.ops == 0;
            let known = job.facts.unwritten_fraction.is_some();
            Basis::applies(applies && !job.facts.elsewhere && !is_null(job))
                .needs(known, "nothing tells which extents of the file were written")
        },
        find: allocating_writes,
    },
    Rule { code: "errors-tolerated", basis: |job| Basis::applies(job.continue_on_error), find: errors_tolerated },
    Rule { code: "interval-too-short", basis: |_| Basis::Known, find: interval_too_short },
    Rule { code: "too-few-samples", basis: |_| Basis::Known, find: too_few_samples },
];

/// The reason why a statement on the kind of storage cannot be tried.
const UNTOLD: &str = "nothing tells what kind of storage the files are on";

/// True if the result comes from a run that looked at its files, not from fio's JSON.
fn is_local(job: &JobResult) -> bool {
    job.facts.examined
}

fn has_rate(job: &JobResult) -> bool {
    job.facts.rate_iops.iter().any(|(_, rate)| rate.is_some())
        || job.facts.rate_bytes.iter().any(|(_, rate)| rate.is_some())
}

/// The judgement on one job's numbers. It uses the job's result and nothing else.
pub fn for_job(job: &JobResult) -> Judgement {
    let mut judged = Judgement::default();
    // A job that moved nothing has no numbers to doubt; its error says why.
    if job.total_ops() == 0 && job.verified.is_none_or(|verified| verified.mismatches == 0) {
        return judged;
    }
    for rule in &JOB_RULES {
        judged.enter(rule.code, (rule.basis)(job), (rule.find)(job));
    }
    judged
}

impl JobResult {
    /// Judges the job anew.
    pub fn judge(&mut self) {
        let Judgement { verdicts, checks } = for_job(self);
        (self.verdicts, self.checks) = (verdicts, checks);
    }
}

impl PhaseResult {
    /// Judges the phase anew.
    pub fn judge(&mut self, facts: &FilesFacts) {
        let Judgement { verdicts, checks } = for_phase(self, facts);
        (self.verdicts, self.checks) = (verdicts, checks);
    }
}

/// The judgement on a run as a whole ([`for_job`] judges each job).
pub fn for_run(run: &RunResult) -> Judgement {
    let mut judged = Judgement::default();
    let ran = run.jobs.iter().any(|job| job.total_ops() > 0);
    let basis = Basis::applies(ran && several_clones(run))
        .needs(run.provenance.machine.cpus > 0, "nothing tells how many CPUs the machine has");
    judged.enter("machine-cpu-bound", basis, machine_cpu_bound(run));
    judged
}

/// The judgement on a curve as a whole.
pub fn for_curve(curve: &Curve, ceiling_iops: Option<Estimate>) -> Judgement {
    let mut judged = Judgement::default();
    let line = || Basis::applies(curve.line.is_some());
    judged.enter("too-few-points", Basis::Known, too_few_points(curve));
    judged.enter("no-load-line", line(), no_load_line(curve));
    let revisited = curve.points.iter().any(|point| point.visits.len() > 1);
    let peak = Basis::Known.needs(revisited, "no depth was visited at several times");
    judged.enter("lone-peak", peak, lone_peak(curve));
    judged.enter(
        "rate-limited",
        Basis::applies(curve.points.iter().any(|point| has_rate(&point.job))),
        rate_limited(curve),
    );
    judged.enter("still-rising", line(), still_rising(curve));
    let ceiling = line().needs(ceiling_iops.is_some(), "the generator was not measured without storage");
    judged.enter("generator-ceiling", ceiling, generator_ceiling(curve, ceiling_iops));
    judged.enter("uncertain", Basis::Known, uncertain(curve));
    judged
}

/// The judgement on one phase of a run on files.
pub fn for_phase(phase: &PhaseResult, facts: &FilesFacts) -> Judgement {
    let mut judged = Judgement::default();
    if phase.operations_done() == 0 && phase.total.failed == 0 {
        return judged;
    }
    let posix = facts.access == "posix";
    judged.enter("verify-mismatch", Basis::applies(phase.verified.is_some()), files_differ(phase));
    judged.enter("page-cache-read", Basis::applies(phase.reads_own_writes && posix), read_own_writes(phase, facts));
    judged.enter("errors-tolerated", Basis::applies(facts.continue_on_error), files_failed(phase, facts));
    judged.enter("threads-uneven", Basis::applies(phase.threads.len() > 1), threads_uneven(phase));
    let long = phase.runtime_ns >= LEAST_ACCOUNTED_NS;
    let cpu = Basis::applies(posix).needs(long, "the phase is too short for the kernel's accounting of CPU time");
    judged.enter("generator-cpu-bound", cpu, files_cpu_bound(phase, facts));
    judged.enter("writes-not-synced", Basis::applies(writes_files(phase) && posix), files_not_synced(phase, facts));
    judged.enter("interval-too-short", Basis::Known, phase_too_short(phase));
    judged.enter("too-few-samples", Basis::Known, too_few_files(phase));
    judged
}

/// The judgement on a run on files as a whole.
pub fn for_files(result: &FilesResult) -> Judgement {
    let cpus = result.provenance.machine.cpus;
    let (available, used) = result.phases.iter().fold((0.0, 0.0), |(available, used), phase| {
        let (all, busy) = (phase.runtime_ns as f64 * f64::from(cpus), phase.cpu.user_ns + phase.cpu.system_ns);
        (available + all, used + busy as f64)
    });
    let threads = result.facts.threads * result.facts.processes;
    let long = available > LEAST_ACCOUNTED_NS as f64 * f64::from(cpus);
    let busy = (cpus > 1 && threads > 1 && long).then_some((available, used));
    let busy = busy.and_then(|(available, used)| machine_busy(cpus, available, used));
    let mut judged = Judgement::default();
    judged.enter("process-lost", Basis::applies(result.facts.processes > 1), processes_lost(&result.facts));
    let basis = Basis::applies(threads > 1).needs(long, "the run is too short for the kernel's accounting of CPU time");
    judged.enter("machine-cpu-bound", basis, busy);
    judged
}

/// The judgement on how several hosts did together.
pub fn for_hosts(hosts: &HostsResult) -> Judgement {
    let mut judged = Judgement::default();
    judged.enter("host-slow", Basis::applies(hosts.hosts.len() > 1), host_slow(hosts));
    judged.enter("start-skew", Basis::Known, start_skew(hosts));
    judged
}

fn host_slow(hosts: &HostsResult) -> Option<Verdict> {
    // The rate of a host is in ops of one rank a second; for a run on files, in files.
    let rate = |host: &HostResult| {
        let (files, ns) = host
            .phases
            .iter()
            .fold((0, 0), |(files, ns), phase| (files + phase.total.files + phase.total.failed, ns + phase.runtime_ns));
        let all = if ns > 0 { files as f64 * 1e9 / ns as f64 } else { window_of(&host.jobs).iops() };
        all / f64::from(host.ranks.max(1))
    };
    let rates: Vec<f64> = hosts.hosts.iter().map(rate).collect();
    let mut sorted = rates.clone();
    sorted.sort_by(f64::total_cmp);
    let median = (sorted.get(sorted.len().checked_sub(1)? / 2)? + sorted.get(sorted.len() / 2)?) / 2.0;
    let slow: Vec<String> = (hosts.hosts.iter().zip(&rates))
        .filter(|(_, rate)| **rate < SLOW_HOST * median)
        .map(|(host, rate)| format!("{} on {}", count(*rate), host.host))
        .collect();
    // The failure of a host that failed says why the host did less.
    if slow.is_empty() || !hosts.failures.is_empty() {
        return None;
    }
    let what = if hosts.hosts.iter().all(|host| host.phases.is_empty()) { "ops" } else { "files" };
    let more = if slow.len() > 4 { format!(" and {} more", slow.len() - 4) } else { String::new() };
    let slow = slow[..slow.len().min(4)].join(", ");
    Some(verdict(
        "host-slow",
        Severity::Warning,
        format!("{what} a second and rank: {slow}{more}; the median of all hosts is {}", count(median)),
        "The total is less than as many hosts like the others would reach, and its latencies are a mixture.",
        "Compare the row of this host: Wire BW for its link, AVG_LAT for its way to the storage; look at its mount and its CPUs, \
         and run on it alone (mpirun --host).",
    ))
}

fn start_skew(hosts: &HostsResult) -> Option<Verdict> {
    let skew_ns = hosts.start_skew_ns;
    (skew_ns > START_SKEW_NS).then(|| {
        verdict(
            "start-skew",
            Severity::Note,
            format!("the last clone of all hosts began {} after the first", nanoseconds(skew_ns as f64)),
            "For so long not all were at work: it matters where the run is short, or its beginning is what was measured.",
            "A host far from 0 in the column start skew has fewer free CPUs than clones; a wide +- there means that the network \
             was too busy for its clock to be compared.",
        )
    })
}

fn processes_lost(facts: &FilesFacts) -> Option<Verdict> {
    let lost: Vec<String> = facts.lost_processes.iter().map(u32::to_string).collect();
    let first = facts.lost_processes.first()?;
    let one = lost.len() == 1;
    Some(verdict(
        "process-lost",
        Severity::Invalid,
        match one {
            true => format!("process {first} of {} ended before it could report", facts.processes),
            false => format!("processes {} of {} ended before they could report", lost.join(", "), facts.processes),
        },
        "The figures are partial: what these processes did is in none of them, while they shared the load until they ended.",
        "Find out what ended them (dmesg tells of the kernel's out-of-memory killer), and run again.",
    ))
}

fn files_differ(phase: &PhaseResult) -> Option<Verdict> {
    let verified = phase.verified.filter(|verified| verified.mismatches > 0)?;
    Some(verdict(
        "verify-mismatch",
        Severity::Invalid,
        format!(
            "{} differences were found in {} verified blocks of files and {} entries of directories",
            verified.mismatches, verified.blocks, verified.entries
        ),
        "The storage, or something on the way to it, returned wrong data; or the files were made by another plan.",
        "Look at the error for file, offset and what was found; --seed, --size and --threads must be those of the writer.",
    ))
}

fn read_own_writes(phase: &PhaseResult, facts: &FilesFacts) -> Option<Verdict> {
    (phase.reads_own_writes && !facts.direct && facts.access == "posix").then(|| {
        verdict(
            "page-cache-read",
            Severity::Warning,
            "files were read that this run had written just before".into(),
            "What still was in the page cache came from memory, not from the storage.",
            "Use --direct; or read in a run of its own, after dropping the caches or remounting, or more than fits memory.",
        )
    })
}

fn files_failed(phase: &PhaseResult, facts: &FilesFacts) -> Option<Verdict> {
    let (failed, all) = (phase.total.failed, phase.total.failed + phase.operations_done());
    (failed > 0 && facts.continue_on_error).then(|| {
        verdict(
            "errors-tolerated",
            Severity::Warning,
            format!("{failed} of {all} operations failed ({})", percent(failed as f64 / all as f64)),
            "Failed operations count in no rate: what is reported is what succeeded.",
            "Look at the errors and the kernel's log; leave out --continue-on-error to stop at the first.",
        )
    })
}

fn threads_uneven(phase: &PhaseResult) -> Option<Verdict> {
    let (wall, end) = (phase.stonewall_ns as f64, phase.runtime_ns as f64);
    (phase.threads.len() > 1 && end > 0.0 && wall < EVEN * end).then(|| {
        verdict(
            "threads-uneven",
            Severity::Warning,
            format!("the first thread was through after {}, the last after {}", nanoseconds(wall), nanoseconds(end)),
            "For the rest of the time not all threads were at work: the rate over the whole time is that of fewer threads.",
            "Believe the rate up to the stonewall; use more --files, or --runtime to end all threads together.",
        )
    })
}

fn files_cpu_bound(phase: &PhaseResult, facts: &FilesFacts) -> Option<Verdict> {
    let available = phase.runtime_ns as f64 * phase.threads.len() as f64;
    let user = phase.cpu.user_ns as f64;
    // In the kernel the file system is busy; libgfapi works in user mode.
    if facts.access != "posix" || phase.runtime_ns < LEAST_ACCOUNTED_NS || user < BUSY_WITH_CONTENT * available {
        return None;
    }
    Some(verdict(
        "generator-cpu-bound",
        Severity::Warning,
        format!(
            "the threads spent {} of their time in this program, not in the file system",
            percent(user / available)
        ),
        "Making and comparing contents took as long as storing them: a faster storage would not have shown.",
        "Leave out --verify, or raise --threads.",
    ))
}

fn writes_files(phase: &PhaseResult) -> bool {
    const WRITES: [&str; 4] = ["create", "append", "overwrite", "truncate-overwrite"];
    phase.total.bytes > 0 && phase.operations.iter().any(|one| WRITES.contains(&one.operation.as_str()))
}

fn files_not_synced(phase: &PhaseResult, facts: &FilesFacts) -> Option<Verdict> {
    (writes_files(phase) && !facts.fsync && !facts.direct && facts.access == "posix").then(|| {
        verdict(
            "writes-not-synced",
            Severity::Note,
            "files were written without fsync".into(),
            "The data may be in memory only: the rate is that of making files, not of storing them.",
            "Use --fsync for what a database or a mail server does.",
        )
    })
}

fn phase_too_short(phase: &PhaseResult) -> Option<Verdict> {
    (phase.runtime_ns < SHORT_NS).then(|| {
        verdict(
            "interval-too-short",
            Severity::Note,
            format!("the phase took {}", nanoseconds(phase.runtime_ns as f64)),
            "Start-up, caches and a few slow calls weigh heavily in so short a time.",
            "Use more --files.",
        )
    })
}

fn too_few_files(phase: &PhaseResult) -> Option<Verdict> {
    let files = phase.operations_done();
    (files < FEW).then(|| {
        let severity = if files < VERY_FEW { Severity::Warning } else { Severity::Note };
        verdict(
            "too-few-samples",
            severity,
            format!("{files} operations were measured"),
            "A percentile needs ten samples beyond it: with 1,000 operations that is the 99th, with 100 the 90th.",
            "Use more --files before quoting high percentiles.",
        )
    })
}

fn seconds(job: &JobResult) -> f64 {
    job.runtime_ns as f64 / 1e9
}

/// The number of clones of this entry.
fn clones(job: &JobResult) -> f64 {
    f64::from(job.clones.max(1))
}

/// An engine that touches no storage has nothing to misrepresent.
fn is_null(job: &JobResult) -> bool {
    job.facts.engine == "null"
}

fn verify_mismatch(job: &JobResult) -> Option<Verdict> {
    let verified = job.verified.filter(|verified| verified.mismatches > 0)?;
    Some(verdict(
        "verify-mismatch",
        Severity::Invalid,
        format!("{} of {} verified blocks hold other data than was written", verified.mismatches, verified.blocks),
        "The storage, or something on the way to it, returned wrong data.",
        "Look at the job's error for file, offset, expected and got; do not trust this storage with data.",
    ))
}

fn page_cache_read(job: &JobResult) -> Option<Verdict> {
    let facts = &job.facts;
    let reads = &job.directions.read;
    if reads.ops == 0 || facts.direct || facts.elsewhere || is_null(job) {
        return None;
    }
    let means =
        "These reads came from memory, wholly or partly: the numbers are those of the page cache, not of the storage.";
    let advice = "Use direct=1; or leave invalidate=1 and read files larger than memory, once.";
    let cached = facts.cached_fraction.unwrap_or(0.0);
    if cached >= CACHE_MATTERS {
        let severity = if cached >= CACHE_DECIDES { Severity::Invalid } else { Severity::Warning };
        let what = format!("{} of the data was in the page cache when the job began", percent(cached));
        return Some(verdict("page-cache-read", severity, what, means, advice));
    }
    // Bytes that were read twice came from memory the second time, unless the file is larger than memory.
    let target = facts.target_bytes.filter(|&bytes| bytes > 0)?;
    let rounds = reads.bytes as f64 / clones(job) / target as f64;
    (rounds >= READ_AGAIN).then(|| {
        let what = format!(
            "the same {} were read {} times through the page cache",
            figures::bytes(target as f64),
            plain(rounds)
        );
        verdict("page-cache-read", Severity::Warning, what, means, advice)
    })
}

fn memory_filesystem(job: &JobResult) -> Option<Verdict> {
    let memory = job.facts.memory.as_ref().filter(|_| !is_null(job))?;
    Some(verdict(
        "memory-filesystem",
        Severity::Invalid,
        format!("the files are on {memory}, which keeps them in memory"),
        "The numbers are those of this machine's memory and CPUs: no storage took part.",
        "Give a file or a directory on the storage that is to be measured.",
    ))
}

fn loop_page_cache(job: &JobResult) -> Option<Verdict> {
    let device = job.facts.loop_device.as_ref().filter(|_| !is_null(job))?;
    let cached = device.cached_fraction.unwrap_or(0.0);
    let reads = job.directions.read.ops > 0 && cached >= CACHE_MATTERS;
    let writes = job.directions.write.ops > 0;
    let what = match (reads, writes) {
        (true, _) => {
            format!("{} of the file behind {} was in the page cache when the job began", percent(cached), device.name)
        }
        (false, true) => format!("{} keeps what is written in the page cache of the file behind it", device.name),
        (false, false) => return None,
    };
    let severity = if !writes && cached < CACHE_DECIDES { Severity::Warning } else { Severity::Invalid };
    Some(verdict(
        "loop-page-cache",
        severity,
        what,
        "direct=1 ends at the loop device: the numbers are those of the page cache, wholly or partly.",
        "Attach the file with losetup --direct-io=on, or measure the storage below it.",
    ))
}

fn unwritten_read(job: &JobResult) -> Option<Verdict> {
    let unwritten = job.facts.unwritten_fraction.filter(|fraction| *fraction >= UNWRITTEN_MATTERS)?;
    if job.directions.read.ops == 0 || is_null(job) {
        return None;
    }
    let severity = if unwritten >= UNWRITTEN_DECIDES { Severity::Invalid } else { Severity::Warning };
    Some(verdict(
        "unwritten-read",
        severity,
        format!("{} of what was read had never been written", percent(unwritten)),
        "The file system answers reads of holes and unwritten extents with zeros, without asking the storage.",
        "Write the file first: rw=write over its whole size, or overwrite=1; fallocate alone does not write.",
    ))
}

fn depth_not_achieved(job: &JobResult) -> Option<Verdict> {
    let facts = &job.facts;
    if facts.iodepth <= 1 {
        return None;
    }
    let asked = f64::from(facts.iodepth);
    let found = |what: String, means: &str, advice: &str| {
        Some(verdict("depth-not-achieved", Severity::Warning, what, means, advice))
    };
    if facts.synchronous {
        return found(
            format!("iodepth={} with {}, which has one request in flight a clone", facts.iodepth, facts.engine),
            "The engine is synchronous: iodepth has no effect, and the numbers are those of depth 1 a clone.",
            "Use ioengine=io_uring, or as many clones (numjobs) as requests are wanted.",
        );
    }
    if facts.engine == "libaio" && !facts.direct {
        return found(
            format!("iodepth={} with libaio on buffered files", facts.iodepth),
            "Linux carries out buffered libaio requests one by one inside io_submit: the depth is 1 in truth.",
            "Use direct=1, or ioengine=io_uring, which is asynchronous on buffered files too.",
        );
    }
    let (submission, total) = job.directions.iter().fold((0.0, 0.0), |(submission, total), (_, result)| {
        (submission + result.slat_ns.sum() as f64, total + result.lat_ns.sum() as f64)
    });
    if total > 0.0 && submission > total * BLOCKED && !is_null(job) {
        return found(
            format!("{} of the latency was spent submitting", percent(submission / total)),
            "Submission blocks (a full device queue, or a file system that cannot go on without waiting), so requests do not overlap.",
            "Use direct=1 on a preallocated and written file; look at slat; raise the device's nr_requests.",
        );
    }
    let limited = job.latency_target.is_some() || has_rate(job);
    let ops: u64 = job.depth.in_flight.iter().sum();
    let mean = job.depth.mean();
    // Batches as large as the depth fill the queue from empty each time: (depth + 1) / 2 on average is as asked.
    if limited || is_null(job) || ops < 10 * u64::from(facts.iodepth) || mean >= asked * DEPTH_REACHED {
        return None;
    }
    found(
        format!("iodepth={}, but {} requests were in flight on average", facts.iodepth, plain(mean)),
        "The numbers are those of the depth that was reached, not of the depth that was asked for.",
        "Look for what held it back: thinktime, a short job, iodepth_batch_complete, or a generator short of CPU.",
    )
}

fn generator_cpu_bound(job: &JobResult) -> Option<Verdict> {
    let available = job.runtime_ns as f64 * clones(job);
    let used = (job.cpu.user_ns + job.cpu.system_ns) as f64;
    if is_null(job) || job.runtime_ns < LEAST_ACCOUNTED_NS || used < available * BUSY_CLONE {
        return None;
    }
    let user = job.cpu.user_ns as f64 / used;
    Some(verdict(
        "generator-cpu-bound",
        Severity::Warning,
        format!(
            "the job used {} of its CPU ({} of that in the kernel)",
            percent((used / available).min(1.0)),
            percent(1.0 - user)
        ),
        "One CPU a clone was busy all the time: a faster storage would not have shown.",
        "Raise numjobs, use io_uring with batches, registered files and fixed buffers, or larger blocks. Polling (hipri) is busy by design.",
    ))
}

fn rate_not_met(job: &JobResult) -> Option<Verdict> {
    let time = seconds(job);
    let short = Direction::ALL.into_iter().find_map(|direction| {
        let result = &job.directions[direction];
        let behind = |asked: Option<f64>, done: u64| {
            let asked = asked? * clones(job);
            let got = done as f64 / time;
            (time > 0.0 && got < asked * RATE_MET).then_some((asked, got))
        };
        behind(job.facts.rate_iops[direction], result.ops)
            .map(|(asked, got)| (direction, format!("{} IOPS", count(asked)), format!("{} IOPS", count(got))))
            .or_else(|| {
                behind(job.facts.rate_bytes[direction], result.bytes)
                    .map(|(asked, got)| (direction, figures::bytes_per_second(asked), figures::bytes_per_second(got)))
            })
    });
    let (direction, asked, got) = short?;
    Some(verdict(
        "rate-not-met",
        Severity::Warning,
        format!("{}s were to come at {asked} and came at {got}", direction.name()),
        "The storage (or the generator) cannot keep up with the arrivals: latencies grow as long as the job runs.",
        "Lower the rate, raise iodepth or numjobs; latencies of an overloaded system depend on the run's length.",
    ))
}

fn queued_before_issue(job: &JobResult) -> Option<Verdict> {
    let (mut intended, mut issued) = (Histogram::new(), Histogram::new());
    for (_, result) in job.directions.iter() {
        if let Some(from_start) = &result.lat_intended_ns {
            intended.merge(from_start);
            issued.merge(&result.lat_ns);
        }
    }
    let waited_ns = intended.mean() - issued.mean();
    if intended.is_empty() || issued.is_empty() || waited_ns < issued.mean().max(LATE_NS) {
        return None;
    }
    Some(verdict(
        "queued-before-issue",
        Severity::Note,
        format!(
            "requests took {} from their intended start, {} from when they were issued",
            nanoseconds(intended.mean()),
            nanoseconds(issued.mean())
        ),
        "Most of the time passed before a request could be issued: the depth limit held it back. Users wait for both.",
        "Believe lat_intended; raise iodepth if the storage can take more.",
    ))
}

/// Ops per second of each interval that is at least half as long as the others.
fn rates_over_time(job: &JobResult) -> Vec<f64> {
    let interval_ns = job.interval_ns;
    let whole = job.intervals.iter().filter(|interval| interval.length_ns > 0 && interval.length_ns * 2 >= interval_ns);
    let rate = |interval: &Interval| {
        Direction::ALL.iter().map(|&d| interval.ops[d]).sum::<u64>() as f64 * 1e9 / interval.length_ns as f64
    };
    whole.map(rate).collect()
}

fn not_steady(job: &JobResult) -> Option<Verdict> {
    let found = stats::steadiness(&rates_over_time(job));
    let what = if found.warm_up_effect.abs() > WARM_UP_MATTERS {
        let warm_up_ns = job.intervals.get(found.warm_up.saturating_sub(1)).map_or(0, |interval| interval.end_ns);
        let than = if found.warm_up_effect < 0.0 { "faster" } else { "slower" };
        format!(
            "the first {} were {than}: without them the mean changes by {}",
            nanoseconds(warm_up_ns as f64),
            figures::change(found.warm_up_effect)
        )
    } else if found.drift_is_significant && found.drift.abs() > DRIFT_MATTERS {
        format!("IOPS changed by {} from start to end", figures::change(found.drift))
    } else if found.variation > WILD {
        format!("IOPS varied by {} (standard deviation) from interval to interval", percent(found.variation))
    } else {
        return None;
    };
    Some(verdict(
        "not-steady",
        Severity::Warning,
        what,
        "The mean depends on when the measurement began and ended: caches filling, flash being tidied, another user.",
        "Use ramp_time to leave the start out, a longer runtime, or preconditioning; look at the chart over time.",
    ))
}

fn steadiness_unknown(job: &JobResult) -> Option<Verdict> {
    let intervals = rates_over_time(job).len();
    (!job.intervals.is_empty() && intervals < stats::FEWEST_TO_JUDGE).then(|| {
        verdict(
            "steadiness-unknown",
            Severity::Note,
            format!(
                "the job has {intervals} intervals of {}, too few to tell whether throughput was steady",
                nanoseconds(job.interval_ns as f64)
            ),
            "A warm-up, a drift or another user of the storage would not have been noticed.",
            "Use time_based with a longer runtime: eight intervals at least.",
        )
    })
}

fn clones_on_same_blocks(job: &JobResult) -> Option<Verdict> {
    (job.facts.clones_on_same_blocks && !is_null(job)).then(|| {
        verdict(
            "clones-on-same-blocks",
            Severity::Warning,
            format!("{} sequential clones went through the same blocks", job.facts.numjobs.max(job.clones)),
            "All but the first find the data in a cache, or write what was just written: the sum is not the storage's.",
            "Set offset_increment and size so that each clone has its own part, or give each its own file (no filename).",
        )
    })
}

fn writes_not_synced(job: &JobResult) -> Option<Verdict> {
    let unsynced = job.facts.writes_synced == Some(false) && !job.facts.direct && job.sync.lat_ns.is_empty();
    (unsynced && job.directions.write.ops > 0 && !is_null(job)).then(|| {
        verdict(
            "writes-not-synced",
            Severity::Warning,
            format!(
                "{} were written to the page cache and not synced",
                figures::bytes(job.directions.write.bytes as f64)
            ),
            "A buffered write is done when memory holds the data: these are the speeds of memory until it is full.",
            "Use direct=1, end_fsync=1 with the time it takes, or fsync=N.",
        )
    })
}

fn allocating_writes(job: &JobResult) -> Option<Verdict> {
    let unwritten = job.facts.unwritten_fraction.filter(|fraction| *fraction >= UNWRITTEN_DECIDES)?;
    (job.directions.write.ops > 0 && job.directions.read.ops == 0 && !is_null(job)).then(|| {
        verdict(
            "allocating-writes",
            Severity::Note,
            format!("{} of the file was a hole or unwritten when writing began", percent(unwritten)),
            "First writes make the file system allocate or convert extents; overwriting is another figure.",
            "Use overwrite=1 (lay the file out first), or run the job twice and use the second run.",
        )
    })
}

fn errors_tolerated(job: &JobResult) -> Option<Verdict> {
    let failed: u64 = job.directions.iter().map(|(_, result)| result.failed_ops).sum();
    (failed > 0).then(|| {
        let all = failed + job.total_ops();
        verdict(
            "errors-tolerated",
            Severity::Warning,
            format!("{failed} of {all} ops failed ({})", percent(failed as f64 / all as f64)),
            "Failed ops count in no other figure: what is reported is what succeeded.",
            "Look at the job's error and the kernel's log; leave out continue_on_error to stop at the first.",
        )
    })
}

fn interval_too_short(job: &JobResult) -> Option<Verdict> {
    (job.runtime_ns < SHORT_NS).then(|| {
        verdict(
            "interval-too-short",
            Severity::Note,
            format!("the job ran for {}", nanoseconds(job.runtime_ns as f64)),
            "Start-up, caches and a few slow requests weigh heavily in so short a time.",
            "Use time_based with runtime=10s or more, or a larger size.",
        )
    })
}

fn too_few_samples(job: &JobResult) -> Option<Verdict> {
    let ops = job.total_ops();
    (ops < FEW).then(|| {
        let severity = if ops < VERY_FEW { Severity::Warning } else { Severity::Note };
        verdict(
            "too-few-samples",
            severity,
            format!("{ops} ops were measured"),
            "A percentile needs ten samples beyond it: with 1,000 ops that is the 99th, with 100 the 90th.",
            "Run longer before quoting high percentiles.",
        )
    })
}

fn machine_cpu_bound(run: &RunResult) -> Option<Verdict> {
    let start = run.jobs.iter().map(|job| job.start_unix_ms).min()?;
    let end = run.jobs.iter().map(|job| job.start_unix_ms + job.elapsed_ns / 1_000_000).max()?;
    let cpus = run.provenance.machine.cpus;
    let available = (end - start) as f64 * 1e6 * f64::from(cpus);
    let used: f64 = run.jobs.iter().map(|job| (job.cpu.user_ns + job.cpu.system_ns) as f64).sum();
    // On one CPU, or with a single clone, the job's own verdict says it.
    if cpus > 1 && several_clones(run) && end - start >= LEAST_ACCOUNTED_NS / 1_000_000 {
        machine_busy(cpus, available, used)
    } else {
        None
    }
}

fn several_clones(run: &RunResult) -> bool {
    run.jobs.iter().map(|job| job.clones.max(1)).sum::<u32>() > 1
}

fn machine_busy(cpus: u32, available: f64, used: f64) -> Option<Verdict> {
    (used >= available * BUSY_MACHINE).then(|| {
        verdict(
            "machine-cpu-bound",
            Severity::Warning,
            format!(
                "all {cpus} CPUs were busy ({} of their time) with generating load",
                percent((used / available).min(1.0))
            ),
            "Clones wait for CPUs: latencies contain that wait, and throughput is that of the machine.",
            "Use fewer clones, larger blocks, or more machines.",
        )
    })
}

fn too_few_points(curve: &Curve) -> Option<Verdict> {
    curve.line.is_none().then(|| {
        verdict(
            "too-few-points",
            Severity::Warning,
            format!("{}: {} depths were measured", curve.label, curve.points.len()),
            "A load line needs at least three depths.",
            "Give a wider --iodepth, or more time.",
        )
    })
}

fn no_load_line(curve: &Curve) -> Option<Verdict> {
    let Answer::Unnamed(reason) = curve.line.as_ref()?.answer() else { return None };
    Some(verdict(
        "no-load-line",
        Severity::Warning,
        format!("{}: no load line can be named: {reason}", curve.label),
        "The rows were measured, but nothing tells which differences between them are the storage's.",
        "Quiet the machine, or give the sweep more --time, and sweep again.",
    ))
}

fn lone_peak(curve: &Curve) -> Option<Verdict> {
    let peaks = curve.points.iter().filter_map(|point| {
        let mut means = point.visit_means();
        means.sort_by(f64::total_cmp);
        let (highest, others) = means.split_last()?;
        let next = others.last()?;
        let level = curve.line.as_ref().map_or(*next, |line| line.plateau_iops.mean).max(*next);
        (*highest > level * LONE_PEAK).then_some((point.x, *highest, others[0], *next))
    });
    let (x, highest, low, high) = peaks.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = if low < high { format!("{} to {}", count(low), count(high)) } else { count(high) };
    Some(verdict(
        "lone-peak",
        Severity::Note,
        format!("{}: one visit to {} gave {} IOPS, the others {others}", curve.label, plain(x), count(highest)),
        "The machine was faster for that moment, or answered from a cache: plateau and load line rest on the other visits.",
        "Look for a cache below the target, or for what ran beside; give the sweep more --time.",
    ))
}

fn rate_limited(curve: &Curve) -> Option<Verdict> {
    let at_rate = |point: &Point| {
        Direction::ALL.into_iter().any(|direction| {
            let (job, result) = (&point.job, &point.job.directions[direction]);
            let near = |asked: Option<f64>, done: u64| {
                asked.is_some_and(|asked| done as f64 / seconds(job).max(1e-9) >= asked * clones(job) * RATE_MET)
            };
            near(job.facts.rate_iops[direction], result.ops) || near(job.facts.rate_bytes[direction], result.bytes)
        })
    };
    let point = curve.points.iter().find(|point| at_rate(point))?;
    Some(verdict(
        "rate-limited",
        Severity::Warning,
        format!("{}: from depth {} on, the rate that the job asks for is the limit", curve.label, plain(point.x)),
        "The plateau is the rate, and the load line the depth that carries it: the storage may do more.",
        "Leave out rate and rate_iops to find the storage's own load line.",
    ))
}

/// The verdict on a sweep whose default engine does not work here, for the reason given.
pub fn engine_replaced(wanted: &str, taken: &str, reason: &str) -> Verdict {
    verdict(
        "engine-replaced",
        Severity::Warning,
        format!("{wanted} cannot be used here ({reason}), so {taken} took its place"),
        "The curve is that of another engine than on other machines.",
        "Remove the limit (ulimit -l, sysctl kernel.io_uring_disabled, a container's seccomp filter), or name the engine.",
    )
}

fn still_rising(curve: &Curve) -> Option<Verdict> {
    let line = curve.line.as_ref().filter(|line| line.answer() == Answer::Beyond)?;
    let deepest = curve.points.last()?.x;
    Some(verdict(
        "still-rising",
        Severity::Warning,
        format!("{}: throughput still rises at {}, the deepest measured", curve.label, plain(deepest)),
        "The plateau lies beyond: plateau and load line are lower bounds.",
        if line.load_line.is_some_and(|line| line.mean >= deepest / 4.0) {
            "Sweep deeper: --iodepth 1..4096, or raise numjobs."
        } else {
            "Sweep deeper."
        },
    ))
}

/// The verdict on a comparison of sides `a` and `b` that move blocks of different sizes, each given as people write it.
pub fn different_blocks(a: &str, b: &str) -> Verdict {
    verdict(
        "different-blocks",
        Severity::Warning,
        format!("A moves blocks of {a}, B of {b}"),
        "An op of one side is not the same work as an op of the other: IOPS, latency and CPU time per op differ for that \
         reason alone.",
        "Give both sides the same bs, or compare them in bandwidth (--figure=bw).",
    )
}

/// The verdict on a sweep whose target does not take O_DIRECT.
pub fn no_direct_io(target: &str) -> Verdict {
    verdict(
        "no-direct-io",
        Severity::Warning,
        format!("{target} does not take O_DIRECT, so the sweep goes through the page cache"),
        "What is read twice is read from memory, and what is written may not have reached the device.",
        "Sweep a directory on a filesystem with direct I/O, or the block device.",
    )
}

/// The verdict on a curve that ended because a depth cannot be run at all, for the reason given.
pub fn depth_not_possible(label: &str, depth: f64, reason: &str) -> Verdict {
    verdict(
        "depth-not-possible",
        Severity::Note,
        format!("{label} ends below {}: {reason}", plain(depth)),
        "The curve is right as far as it goes.",
        "Remove the limit, or give --iodepth a smaller range.",
    )
}

fn generator_ceiling(curve: &Curve, ceiling_iops: Option<Estimate>) -> Option<Verdict> {
    let plateau = curve.line.as_ref()?.plateau_iops.mean;
    let ceiling = ceiling_iops?.mean;
    (curve.label != "null" && plateau > ceiling * NEAR_CEILING).then(|| {
        verdict(
            "generator-ceiling",
            Severity::Warning,
            format!(
                "{}: the plateau of {} IOPS is {} of what the generator alone reaches ({})",
                curve.label,
                count(plateau),
                percent(plateau / ceiling),
                count(ceiling)
            ),
            "The curve may be the generator's, not the storage's.",
            "Raise numjobs, use larger blocks, or a machine with more CPUs.",
        )
    })
}

fn uncertain(curve: &Curve) -> Option<Verdict> {
    let wide: Vec<String> = curve
        .points
        .iter()
        .filter(|point| point.samples.len() < 2 || relative_half_width(&point.iops) > UNCERTAIN)
        .map(|point| plain(point.x))
        .collect();
    (!wide.is_empty()).then(|| {
        verdict(
            "uncertain",
            Severity::Note,
            format!("{}: IOPS are known to no better than 5 % at {}", curve.label, wide.join(", ")),
            "Differences between neighbouring depths may be noise there; the intervals of plateau and load line account for it.",
            "Give the sweep more time, or quiet the machine.",
        )
    })
}

#[cfg(test)]
mod tests;

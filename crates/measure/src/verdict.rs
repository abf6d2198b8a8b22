//! Verdicts: statements on whether a result can be believed. All of them are in this file.
//!
//! Each verdict is a function from what a job, run or curve left behind to `Option<Verdict>`, tested for firing and for
//! keeping silent. docs/verdicts.md lists them for readers; a test holds the two together.

use serde::{Deserialize, Serialize};

use crate::figures::{self, count, nanoseconds, percent, plain};
use crate::schema::{Curve, Estimate, FilesFacts, FilesResult, JobResult, PhaseResult, RunResult};
use crate::stats::{self, relative_half_width};
use crate::{Direction, Histogram};

/// How much a verdict takes away from the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; the numbers stand.
    Note,
    /// The numbers are real, but likely not what was meant.
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
    /// How much it takes away.
    pub severity: Severity,
    /// What was seen, with its figures.
    pub what: String,
    /// What that means for the numbers.
    pub means: String,
    /// What to change.
    pub advice: String,
}

/// The codes of all verdicts.
pub const CODES: [&str; 24] = [
    "verify-mismatch",
    "page-cache-read",
    "unwritten-read",
    "depth-not-achieved",
    "generator-cpu-bound",
    "rate-not-met",
    "queued-before-issue",
    "not-steady",
    "clones-on-same-blocks",
    "writes-not-synced",
    "allocating-writes",
    "clock-skew",
    "errors-tolerated",
    "ops-dropped",
    "interval-too-short",
    "too-few-samples",
    "machine-cpu-bound",
    "too-few-points",
    "still-rising",
    "generator-ceiling",
    "uncertain",
    "no-direct-io",
    "depth-not-possible",
    "threads-uneven",
];

fn verdict(code: &str, severity: Severity, what: String, means: &str, advice: &str) -> Verdict {
    debug_assert!(CODES.contains(&code), "{code} is not in the list");
    Verdict { code: code.into(), severity, what, means: means.into(), advice: advice.into() }
}

/// The verdicts on one job's numbers, worst first. Uses what the job left behind and nothing else.
pub fn for_job(job: &JobResult) -> Vec<Verdict> {
    let checks: [fn(&JobResult) -> Option<Verdict>; 16] = [
        verify_mismatch,
        page_cache_read,
        unwritten_read,
        depth_not_achieved,
        generator_cpu_bound,
        rate_not_met,
        queued_before_issue,
        not_steady,
        clones_on_same_blocks,
        writes_not_synced,
        allocating_writes,
        clock_skew,
        errors_tolerated,
        ops_dropped,
        interval_too_short,
        too_few_samples,
    ];
    // A job that moved nothing has no numbers to doubt; its error says why.
    if job.total_ops() == 0 && job.verified.is_none_or(|verified| verified.mismatches == 0) {
        return Vec::new();
    }
    worst_first(checks.iter().filter_map(|check| check(job)).collect())
}

/// The verdicts on a run as a whole (what concerns one job is [`for_job`]'s).
pub fn for_run(run: &RunResult) -> Vec<Verdict> {
    worst_first(machine_cpu_bound(run).into_iter().collect())
}

/// The verdicts on a curve as a whole: too few or uncertain points, still rising, at the generator's ceiling.
pub fn for_curve(curve: &Curve, ceiling_iops: Option<Estimate>) -> Vec<Verdict> {
    let found = [too_few_points(curve), still_rising(curve), generator_ceiling(curve, ceiling_iops), uncertain(curve)];
    worst_first(found.into_iter().flatten().collect())
}

/// The verdicts on one phase of a run on files, worst first.
pub fn for_phase(phase: &PhaseResult, facts: &FilesFacts) -> Vec<Verdict> {
    if phase.total.files == 0 && phase.total.failed == 0 {
        return Vec::new();
    }
    let found = [
        files_differ(phase),
        read_own_writes(phase, facts),
        files_failed(phase, facts),
        threads_uneven(phase),
        files_cpu_bound(phase, facts),
        files_not_synced(phase, facts),
        phase_too_short(phase),
        too_few_files(phase),
    ];
    worst_first(found.into_iter().flatten().collect())
}

/// The verdicts on a run on files as a whole.
pub fn for_files(result: &FilesResult) -> Vec<Verdict> {
    let cpus = result.provenance.machine.cpus;
    let (available, used) = result.phases.iter().fold((0.0, 0.0), |(available, used), phase| {
        let (all, busy) = (phase.runtime_ns as f64 * f64::from(cpus), phase.cpu.user_ns + phase.cpu.system_ns);
        (available + all, used + busy as f64)
    });
    let threads = result.facts.threads * result.facts.processes;
    let busy = (cpus > 1 && threads > 1 && available > 1e8 * f64::from(cpus)).then_some((available, used));
    worst_first(busy.and_then(|(available, used)| machine_busy(cpus, available, used)).into_iter().collect())
}

fn files_differ(phase: &PhaseResult) -> Option<Verdict> {
    let verified = phase.verified.filter(|verified| verified.mismatches > 0)?;
    Some(verdict(
        "verify-mismatch",
        Severity::Invalid,
        format!("{} differences were found in {} verified blocks of files", verified.mismatches, verified.blocks),
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
    let (failed, all) = (phase.total.failed, phase.total.failed + phase.total.files);
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
    (phase.threads.len() > 1 && end > 0.0 && wall < 0.8 * end).then(|| {
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
    // In the kernel it is the file system that is busy; libgfapi works in user mode.
    if facts.access != "posix" || phase.runtime_ns < 100_000_000 || user < 0.5 * available {
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

fn files_not_synced(phase: &PhaseResult, facts: &FilesFacts) -> Option<Verdict> {
    const WRITES: [&str; 4] = ["create", "append", "overwrite", "truncate-overwrite"];
    let writes = phase.operations.iter().any(|one| WRITES.contains(&one.operation.as_str()));
    (writes && phase.total.bytes > 0 && !facts.fsync && !facts.direct && facts.access == "posix").then(|| {
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
    (phase.runtime_ns < 1_000_000_000).then(|| {
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
    let files = phase.total.files;
    (files < 1000).then(|| {
        let severity = if files < 100 { Severity::Warning } else { Severity::Note };
        verdict(
            "too-few-samples",
            severity,
            format!("{files} operations were measured"),
            "A percentile needs ten samples beyond it: with 1,000 operations that is the 99th, with 100 the 90th.",
            "Use more --files before quoting high percentiles.",
        )
    })
}

fn worst_first(mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.severity));
    verdicts
}

fn seconds(job: &JobResult) -> f64 {
    job.runtime_ns as f64 / 1e9
}

/// All clones of this entry.
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
    if reads.ops == 0 || facts.direct || is_null(job) {
        return None;
    }
    let means =
        "These reads came from memory, wholly or partly: the numbers are those of the page cache, not of the storage.";
    let advice = "Use direct=1; or leave invalidate=1 and read files larger than memory, once.";
    let cached = facts.cached_fraction.unwrap_or(0.0);
    if cached >= 0.05 {
        let severity = if cached >= 0.5 { Severity::Invalid } else { Severity::Warning };
        let what = format!("{} of the data was in the page cache when the job began", percent(cached));
        return Some(verdict("page-cache-read", severity, what, means, advice));
    }
    // Whatever was read twice came from memory the second time, unless the file is larger than memory.
    let target = facts.target_bytes.filter(|&bytes| bytes > 0)?;
    let rounds = reads.bytes as f64 / clones(job) / target as f64;
    (rounds >= 1.5).then(|| {
        let what = format!(
            "the same {} were read {} times through the page cache",
            figures::bytes(target as f64),
            plain(rounds)
        );
        verdict("page-cache-read", Severity::Warning, what, means, advice)
    })
}

fn unwritten_read(job: &JobResult) -> Option<Verdict> {
    let unwritten = job.facts.unwritten_fraction.filter(|fraction| *fraction >= 0.01)?;
    if job.directions.read.ops == 0 || is_null(job) {
        return None;
    }
    let severity = if unwritten >= 0.5 { Severity::Invalid } else { Severity::Warning };
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
    if total > 0.0 && submission > total / 2.0 && !is_null(job) {
        return found(
            format!("{} of the latency was spent submitting", percent(submission / total)),
            "Submission blocks (a full device queue, or a file system that cannot go on without waiting), so requests do not overlap.",
            "Use direct=1 on a preallocated and written file; look at slat; raise the device's nr_requests.",
        );
    }
    let limited = job.latency_target.is_some()
        || facts.rate_iops.iter().any(|(_, rate)| rate.is_some())
        || facts.rate_bytes.iter().any(|(_, rate)| rate.is_some());
    let ops: u64 = job.depth.in_flight.iter().sum();
    let mean = job.depth.mean();
    // Batches as large as the depth fill the queue from empty each time: (depth + 1) / 2 on average is as asked.
    if limited || is_null(job) || ops < 10 * u64::from(facts.iodepth) || mean >= asked / 2.0 {
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
    // Shorter than this, the kernel's accounting of CPU time (per tick) says nothing.
    if is_null(job) || job.runtime_ns < 100_000_000 || used < available * 0.95 {
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
            (time > 0.0 && got < asked * 0.95).then_some((asked, got))
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
    // A timer wakes its sleeper some tens of microseconds late: that is no queue.
    const LATE_NS: f64 = 100_000.0;
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

fn not_steady(job: &JobResult) -> Option<Verdict> {
    let interval_ns = job.interval_ns;
    let whole = job.intervals.iter().filter(|interval| interval.length_ns > 0 && interval.length_ns * 2 >= interval_ns);
    let samples: Vec<f64> = whole
        .map(|interval| {
            Direction::ALL.iter().map(|&d| interval.ops[d]).sum::<u64>() as f64 * 1e9 / interval.length_ns as f64
        })
        .collect();
    let found = stats::steadiness(&samples);
    let what = if found.warm_up_effect.abs() > 0.05 {
        let warm_up_ns = job.intervals.get(found.warm_up.saturating_sub(1)).map_or(0, |interval| interval.end_ns);
        let than = if found.warm_up_effect < 0.0 { "faster" } else { "slower" };
        format!(
            "the first {} were {than}: without them the mean changes by {}",
            nanoseconds(warm_up_ns as f64),
            figures::change(found.warm_up_effect)
        )
    } else if found.drift_is_significant && found.drift.abs() > 0.1 {
        format!("IOPS changed by {} from start to end", figures::change(found.drift))
    } else if found.variation > 0.5 {
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
    let unwritten = job.facts.unwritten_fraction.filter(|fraction| *fraction >= 0.5)?;
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

fn clock_skew(job: &JobResult) -> Option<Verdict> {
    let skew = job.facts.clock_skew_ns as f64;
    let latency = job.lat_ns().mean();
    let matters = skew >= 1000.0 || (latency > 0.0 && skew > latency * 0.05);
    if !matters || skew == 0.0 {
        return None;
    }
    let severity = if latency > 0.0 && skew > latency { Severity::Invalid } else { Severity::Warning };
    Some(verdict(
        "clock-skew",
        severity,
        format!("the clock was seen to be off by {} between readings or processors", nanoseconds(skew)),
        "Latencies may be wrong by as much. Counts and throughput are not affected.",
        "Use clocksource=clock_gettime, or pin the job with cpus_allowed.",
    ))
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

fn ops_dropped(job: &JobResult) -> Option<Verdict> {
    let dropped: u64 = job.directions.iter().map(|(_, result)| result.dropped_ops).sum();
    (dropped > 0).then(|| {
        verdict(
            "ops-dropped",
            Severity::Note,
            format!("{dropped} ops were dropped"),
            "They were due, but were skipped: at the end of a file, or because the rate had run away.",
            "Check size and offset against the file, or lower the rate.",
        )
    })
}

fn interval_too_short(job: &JobResult) -> Option<Verdict> {
    (job.runtime_ns < 1_000_000_000).then(|| {
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
    (ops < 1000).then(|| {
        let severity = if ops < 100 { Severity::Warning } else { Severity::Note };
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
    let clones: u32 = run.jobs.iter().map(|job| job.clones.max(1)).sum();
    if cpus > 1 && clones > 1 && end - start >= 100 { machine_busy(cpus, available, used) } else { None }
}

fn machine_busy(cpus: u32, available: f64, used: f64) -> Option<Verdict> {
    (used >= available * 0.9).then(|| {
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

fn still_rising(curve: &Curve) -> Option<Verdict> {
    let line = curve.line.as_ref().filter(|line| line.still_rising)?;
    let deepest = curve.points.last()?.x;
    Some(verdict(
        "still-rising",
        Severity::Warning,
        format!("{}: throughput still rises at {}, the deepest measured", curve.label, plain(deepest)),
        "The plateau lies beyond: plateau and load line are lower bounds.",
        if line.load_line.mean >= deepest / 4.0 {
            "Sweep deeper: --iodepth 1..4096, or raise numjobs."
        } else {
            "Sweep deeper."
        },
    ))
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
    (curve.label != "null" && plateau > ceiling * 0.8).then(|| {
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
        .filter(|point| point.samples.len() < 2 || relative_half_width(&point.iops) > 0.05)
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
mod tests {
    use super::*;
    use crate::schema::{Interval, LoadLine, Point, Verified};

    /// A job that nothing is wrong with: direct random reads at depth 8 for ten seconds.
    fn sound() -> JobResult {
        let mut job =
            JobResult { clones: 1, runtime_ns: 10_000_000_000, interval_ns: 500_000_000, ..JobResult::default() };
        job.facts.engine = "io_uring".into();
        job.facts.iodepth = 8;
        job.facts.numjobs = 1;
        job.facts.direct = true;
        job.facts.cached_fraction = Some(0.0);
        job.facts.unwritten_fraction = Some(0.0);
        job.facts.target_bytes = Some(1 << 30);
        job.cpu.user_ns = 2_000_000_000;
        job.depth.in_flight = vec![1, 2, 4, 99_993];
        job.depth.in_flight_sum = 799_000;
        let read = &mut job.directions.read;
        (read.ops, read.bytes) = (100_000, 100_000 * 4096);
        read.slat_ns.record_many(2_000, 100_000);
        read.lat_ns.record_many(800_000, 100_000);
        job.intervals = (1..=20)
            .map(|i| {
                let mut interval = Interval { end_ns: i * 500_000_000, length_ns: 500_000_000, ..Interval::default() };
                interval.ops.read = 5_000 + i % 3;
                interval
            })
            .collect();
        job
    }

    fn writing() -> JobResult {
        let mut job = sound();
        job.directions.write = std::mem::take(&mut job.directions.read);
        job
    }

    /// The codes that a change to a sound job brings up.
    fn codes(base: JobResult, change: impl FnOnce(&mut JobResult)) -> Vec<String> {
        let mut job = base;
        change(&mut job);
        for_job(&job).into_iter().map(|verdict| verdict.code).collect()
    }

    fn severity(change: impl FnOnce(&mut JobResult)) -> Severity {
        let mut job = sound();
        change(&mut job);
        for_job(&job)[0].severity
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn a_sound_job_has_no_verdicts() {
        assert_eq!(codes(sound(), |_| {}), NONE);
        assert_eq!(codes(writing(), |_| {}), NONE);
        assert_eq!(codes(JobResult::default(), |_| {}), NONE, "nothing was measured, nothing is doubted");
    }

    #[test]
    fn depth_not_achieved() {
        assert_eq!(codes(sound(), |job| job.facts.synchronous = true), ["depth-not-achieved"]);
        assert_eq!(codes(sound(), |job| (job.facts.synchronous, job.facts.iodepth) = (true, 1)), NONE);
        let buffered_libaio = |job: &mut JobResult| (job.facts.engine, job.facts.direct) = ("libaio".into(), false);
        assert_eq!(codes(sound(), buffered_libaio), ["depth-not-achieved"]);
        assert_eq!(codes(sound(), |job| job.facts.engine = "libaio".into()), NONE);
        let blocking = |job: &mut JobResult| job.directions.read.slat_ns.record_many(700_000, 100_000);
        assert_eq!(codes(sound(), blocking), ["depth-not-achieved"]);
        let shallow = |job: &mut JobResult| job.depth.in_flight_sum = 300_000;
        assert_eq!(codes(sound(), shallow), ["depth-not-achieved"]);
        let batches = |job: &mut JobResult| job.depth.in_flight_sum = 450_000;
        assert_eq!(codes(sound(), batches), NONE);
        let limited = |job: &mut JobResult| {
            job.depth.in_flight_sum = 150_000;
            job.facts.rate_iops.read = Some(10_000.0);
        };
        assert_eq!(codes(sound(), limited), NONE, "a rate decides the depth");
        let searching = |job: &mut JobResult| {
            job.depth.in_flight_sum = 150_000;
            job.latency_target = Some(crate::schema::LatencyTarget {
                depth: 4,
                target_ns: 1_000_000,
                window_ns: 1_000_000_000,
                percentile: 99.0,
            });
        };
        assert_eq!(codes(sound(), searching), NONE, "latency_target decides the depth");
    }

    #[test]
    fn generator_cpu_bound() {
        assert_eq!(codes(sound(), |job| job.cpu.system_ns = 7_900_000_000), ["generator-cpu-bound"]);
        assert_eq!(codes(sound(), |job| job.cpu.system_ns = 7_000_000_000), NONE);
        let two_clones = |job: &mut JobResult| (job.cpu.system_ns, job.clones) = (7_900_000_000, 2);
        assert_eq!(codes(sound(), two_clones), NONE);
        let null = |job: &mut JobResult| (job.cpu.system_ns, job.facts.engine) = (8_000_000_000, "null".into());
        assert_eq!(codes(sound(), null), NONE);
    }

    #[test]
    fn page_cache_read() {
        let cached = |fraction| {
            move |job: &mut JobResult| (job.facts.direct, job.facts.cached_fraction) = (false, Some(fraction))
        };
        assert_eq!(codes(sound(), cached(0.9)), ["page-cache-read"]);
        assert_eq!((severity(cached(0.9)), severity(cached(0.1))), (Severity::Invalid, Severity::Warning));
        assert_eq!(codes(sound(), cached(0.01)), NONE);
        assert_eq!(codes(sound(), |job| job.facts.cached_fraction = Some(1.0)), NONE, "O_DIRECT does not read it");
        assert_eq!(codes(writing(), cached(0.9)), NONE);
        let twice = |job: &mut JobResult| (job.facts.direct, job.facts.target_bytes) = (false, Some(100_000 * 2048));
        assert_eq!(codes(sound(), twice), ["page-cache-read"]);
        let two_clones = |job: &mut JobResult| {
            twice(job);
            job.clones = 2;
        };
        assert_eq!(codes(sound(), two_clones), NONE, "each read its own once");
    }

    #[test]
    fn unwritten_read_and_allocating_writes() {
        let unwritten = |fraction| move |job: &mut JobResult| job.facts.unwritten_fraction = Some(fraction);
        assert_eq!(codes(sound(), unwritten(1.0)), ["unwritten-read"]);
        assert_eq!((severity(unwritten(1.0)), severity(unwritten(0.1))), (Severity::Invalid, Severity::Warning));
        assert_eq!(codes(sound(), unwritten(0.001)), NONE);
        assert_eq!(codes(sound(), |job| job.facts.unwritten_fraction = None), NONE);
        assert_eq!(codes(writing(), unwritten(1.0)), ["allocating-writes"]);
        assert_eq!(codes(writing(), unwritten(0.1)), NONE);
    }

    #[test]
    fn not_steady() {
        let shaped = |of: fn(u64) -> u64| {
            move |job: &mut JobResult| (0..).zip(&mut job.intervals).for_each(|(i, interval)| interval.ops.read = of(i))
        };
        assert_eq!(codes(sound(), shaped(|i| if i < 5 { 20_000 } else { 5_000 + i % 3 })), ["not-steady"]);
        assert_eq!(codes(sound(), shaped(|i| 5_000 - 100 * i + i % 2)), ["not-steady"]);
        assert_eq!(codes(sound(), shaped(|i| if i % 2 == 0 { 100 } else { 9_000 })), ["not-steady"]);
        assert_eq!(codes(sound(), shaped(|i| 5_000 + 300 * (i * 7 % 5))), NONE);
        assert_eq!(codes(sound(), |job| job.intervals.truncate(4)), NONE, "too few to tell");
    }

    #[test]
    fn rate_not_met_and_queued_before_issue() {
        let rate = |iops| move |job: &mut JobResult| job.facts.rate_iops.read = Some(iops);
        assert_eq!(codes(sound(), rate(12_000.0)), ["rate-not-met"]);
        assert_eq!(codes(sound(), rate(10_200.0)), NONE);
        let bytes = |job: &mut JobResult| job.facts.rate_bytes.read = Some(50e6);
        assert_eq!(codes(sound(), bytes), ["rate-not-met"]);
        let intended = |latency| {
            move |job: &mut JobResult| {
                let mut histogram = Histogram::new();
                histogram.record_many(latency, 100_000);
                job.directions.read.lat_intended_ns = Some(histogram);
            }
        };
        assert_eq!(codes(sound(), intended(5_000_000)), ["queued-before-issue"]);
        assert_eq!(codes(sound(), intended(900_000)), NONE);
    }

    #[test]
    fn clones_sync_clock_errors_and_size() {
        assert_eq!(codes(sound(), |job| job.facts.clones_on_same_blocks = true), ["clones-on-same-blocks"]);
        let unsynced = |job: &mut JobResult| (job.facts.direct, job.facts.writes_synced) = (false, Some(false));
        assert_eq!(codes(writing(), unsynced), ["writes-not-synced"]);
        assert_eq!(codes(sound(), unsynced), NONE);
        assert_eq!(codes(writing(), |job| job.facts.writes_synced = Some(false)), NONE, "O_DIRECT");
        assert_eq!(codes(sound(), |job| job.facts.clock_skew_ns = 5_000), ["clock-skew"]);
        assert_eq!(severity(|job| job.facts.clock_skew_ns = 900_000), Severity::Invalid);
        assert_eq!(codes(sound(), |job| job.facts.clock_skew_ns = 50), NONE);
        assert_eq!(codes(sound(), |job| job.directions.read.failed_ops = 3), ["errors-tolerated"]);
        assert_eq!(codes(sound(), |job| job.directions.read.dropped_ops = 3), ["ops-dropped"]);
        assert_eq!(codes(sound(), |job| job.runtime_ns = 900_000_000), ["generator-cpu-bound", "interval-too-short"]);
        assert_eq!(codes(sound(), |job| job.directions.read.ops = 999), ["too-few-samples"]);
        let mismatch = |mismatches| move |job: &mut JobResult| job.verified = Some(Verified { blocks: 10, mismatches });
        assert_eq!(codes(sound(), mismatch(1)), ["verify-mismatch"]);
        assert_eq!(codes(sound(), mismatch(0)), NONE);
    }

    #[test]
    fn the_worst_comes_first() {
        let many = |job: &mut JobResult| {
            job.facts.unwritten_fraction = Some(1.0);
            job.runtime_ns = 900_000_000;
            job.facts.clones_on_same_blocks = true;
        };
        let mut job = sound();
        many(&mut job);
        let severities: Vec<Severity> = for_job(&job).iter().map(|verdict| verdict.severity).collect();
        assert!(severities.len() == 4 && severities.is_sorted_by(|a, b| a >= b), "{severities:?}");
    }

    #[test]
    fn machine_cpu_bound() {
        let mut run = RunResult::default();
        run.provenance.machine.cpus = 2;
        let mut job = sound();
        job.elapsed_ns = job.runtime_ns;
        job.cpu.user_ns = 9_500_000_000;
        run.jobs = vec![job.clone(), job];
        assert_eq!(for_run(&run)[0].code, "machine-cpu-bound");
        run.provenance.machine.cpus = 4;
        assert_eq!(for_run(&run), []);
        assert_eq!(for_run(&RunResult::default()), []);
    }

    #[test]
    fn curves() {
        let near = |mean: f64, part: f64| Estimate { mean, low: mean * (1.0 - part), high: mean * (1.0 + part) };
        let point = |x, part| Point { x, iops: near(1e5, part), samples: vec![1e5; 3], ..Point::default() };
        let sound = Curve {
            label: "io_uring".into(),
            points: vec![point(1.0, 0.01), point(2.0, 0.01), point(4.0, 0.02)],
            line: Some(LoadLine { plateau_iops: near(1e5, 0.01), load_line: near(2.0, 0.1), ..LoadLine::default() }),
        };
        let codes = |curve: &Curve, ceiling| -> Vec<String> {
            for_curve(curve, ceiling).into_iter().map(|verdict| verdict.code).collect()
        };
        assert_eq!(codes(&sound, Some(near(1e6, 0.01))), NONE);
        assert_eq!(codes(&sound, None), NONE);
        assert_eq!(codes(&sound, Some(near(1.1e5, 0.01))), ["generator-ceiling"]);
        let mut other = sound.clone();
        other.line.as_mut().unwrap().still_rising = true;
        assert_eq!(codes(&other, None), ["still-rising"]);
        other.line = None;
        assert_eq!(codes(&other, None), ["too-few-points"]);
        let mut other = sound.clone();
        other.points[1] = point(2.0, 0.06);
        assert_eq!(codes(&other, None), ["uncertain"]);
    }

    #[test]
    fn files() {
        let facts = FilesFacts { access: "posix".into(), threads: 2, processes: 1, ..FilesFacts::default() };
        let sound = || {
            let mut phase =
                PhaseResult { runtime_ns: 2_000_000_000, stonewall_ns: 1_900_000_000, ..PhaseResult::default() };
            phase.threads = vec![Default::default(); 2];
            phase.operations =
                vec![crate::schema::OperationResult { operation: "create".into(), ..Default::default() }];
            (phase.total.files, phase.total.bytes) = (10_000, 0);
            phase
        };
        let codes = |change: &dyn Fn(&mut PhaseResult, &mut FilesFacts)| -> Vec<String> {
            let (mut phase, mut facts) = (sound(), facts.clone());
            change(&mut phase, &mut facts);
            for_phase(&phase, &facts).into_iter().map(|verdict| verdict.code).collect()
        };
        assert_eq!(codes(&|_, _| {}), NONE);
        assert_eq!(codes(&|phase, _| phase.total.bytes = 1), ["writes-not-synced"]);
        assert_eq!(codes(&|phase, facts| (phase.total.bytes, facts.fsync) = (1, true)), NONE);
        assert_eq!(codes(&|phase, _| phase.stonewall_ns = 1_000_000_000), ["threads-uneven"]);
        assert_eq!(codes(&|phase, _| phase.reads_own_writes = true), ["page-cache-read"]);
        assert_eq!(codes(&|phase, facts| (phase.reads_own_writes, facts.direct) = (true, true)), NONE);
        assert_eq!(
            codes(&|phase, facts| (phase.total.failed, facts.continue_on_error) = (1, true)),
            ["errors-tolerated"]
        );
        assert_eq!(codes(&|phase, _| phase.cpu.user_ns = 3_000_000_000), ["generator-cpu-bound"]);
        assert_eq!(codes(&|phase, facts| (phase.cpu.user_ns, facts.access) = (3_000_000_000, "gfapi".into())), NONE);
        assert_eq!(codes(&|phase, _| (phase.runtime_ns, phase.stonewall_ns) = (9, 9)), ["interval-too-short"]);
        assert_eq!(codes(&|phase, _| phase.total.files = 999), ["too-few-samples"]);
        let differ = crate::schema::Verified { blocks: 9, mismatches: 1 };
        assert_eq!(codes(&|phase, _| phase.verified = Some(differ)), ["verify-mismatch"]);
        let mut run = FilesResult { facts: facts.clone(), phases: vec![sound()], ..FilesResult::default() };
        run.provenance.machine.cpus = 2;
        assert_eq!(for_files(&run), []);
        run.phases[0].cpu.system_ns = 3_900_000_000;
        assert_eq!(for_files(&run)[0].code, "machine-cpu-bound");
    }

    #[test]
    fn the_page_lists_every_code_once() {
        let page = include_str!("../../../docs/verdicts.md");
        for code in CODES {
            assert_eq!(
                page.matches(&format!("\n### `{code}`\n")).count(),
                1,
                "docs/verdicts.md has no section on {code}"
            );
        }
        assert_eq!(page.matches("\n### ").count(), CODES.len(), "docs/verdicts.md has a section too many");
    }
}

//! Statements about the generator: whether it offered the load that the job asked for, and had the CPU time for it.

use super::check::{Basis, Judgement};
use super::job::{clones, has_rate, seconds, touches_no_storage};
use super::{LEAST_ACCOUNTED_NS, Severity, Verdict, verdict};
use crate::figures::{self, count, nanoseconds, percent, plain};
use crate::schema::{CpuUsage, JobResult, RunResult};
use crate::{Direction, Histogram};

/// Part of the latency spent in submission from which on requests hardly overlap.
const BLOCKED: f64 = 0.5;
/// Part of the depth that counts as reached: batches as large as the depth wait for one another.
const DEPTH_REACHED: f64 = 0.5;
/// Ops for each request of the depth below which the mean depth is that of filling and draining the queue.
const ROUNDS_TO_SETTLE: u64 = 10;
/// Part of a CPU from which on a clone has none left; the rest is the accounting's error.
const BUSY_CLONE: f64 = 0.95;
/// Part of the time from which on a clone's waits for a CPU matter. On two CPUs that nobody else uses, the kernel's own
/// work for a deep queue makes a clone wait for up to 15 %; beside one busy program on its CPU a clone waits for 20 %.
const STARVED: f64 = 0.2;
/// Part of all CPUs from which on clones wait for one.
const BUSY_MACHINE: f64 = 0.9;
/// Part of an asked rate that counts as met: a rate limiter's burst and the last interval are a few percent.
pub(super) const RATE_MET: f64 = 0.95;
/// Part of the ops missing from an asked rate that wait at the end where storage does not keep up; without arrivals by
/// chance all of them do.
const WAITS: f64 = 0.5;
/// Part of the depth that is in flight when the queue is full most of the time: places are free for a moment after each
/// reaping call.
const QUEUE_FULL: f64 = 0.75;
/// Nanoseconds that a timer may wake its sleeper late: that is not a queue.
const LATE_NS: f64 = 100_000.0;

pub(super) fn depth_not_achieved(job: &JobResult) -> Option<Verdict> {
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
            format!("iodepth={} with {}, which has one request in flight for each clone", facts.iodepth, facts.engine),
            "The engine is synchronous: iodepth has no effect, and the numbers describe depth 1 for each clone.",
            "Use ioengine=io_uring, or one clone (numjobs) for each request in flight.",
        );
    }
    if facts.engine == "libaio" && !facts.direct {
        return found(
            format!("iodepth={} with libaio on buffered files", facts.iodepth),
            "Linux carries out buffered libaio requests one by one inside io_submit: the real depth is 1.",
            "Use direct=1, or ioengine=io_uring, which is asynchronous on buffered files too.",
        );
    }
    let (submission, total) = job.directions.iter().fold((0.0, 0.0), |(submission, total), (_, result)| {
        (submission + result.slat_ns.sum() as f64, total + result.lat_ns.sum() as f64)
    });
    if total > 0.0 && submission > total * BLOCKED && !touches_no_storage(job) {
        return found(
            format!("submission took {} of the latency", percent(submission / total)),
            "Submission blocks (a full device queue, or a file system that cannot go on without waiting), so requests do not overlap.",
            "Use direct=1 on a preallocated and written file; look at slat; raise the device's nr_requests.",
        );
    }
    let limited = job.latency_target.is_some() || has_rate(job) || facts.is_replay;
    let mean = job.in_flight() / clones(job);
    if limited || touches_no_storage(job) || !is_settled(job) || mean >= asked * DEPTH_REACHED {
        return None;
    }
    found(
        format!("iodepth={}, but {} requests were in flight on average", facts.iodepth, plain(mean)),
        "The numbers describe the depth that the job reached, not its iodepth.",
        "Possible causes: thinktime, a short job, iodepth_batch_complete, or too little CPU for the generator.",
    )
}

/// True if the job's mean depth is not that of filling and draining the queue.
pub(super) fn is_settled(job: &JobResult) -> bool {
    job.depth.in_flight.iter().sum::<u64>() >= ROUNDS_TO_SETTLE * u64::from(job.facts.iodepth)
}

impl CpuUsage {
    /// Nanoseconds of CPU time that the work took: all but those in which an engine looked for completions where it
    /// could have slept.
    fn needed_ns(&self) -> u64 {
        (self.user_ns + self.system_ns).saturating_sub(self.looked_ns)
    }

    /// True if the result holds CPU time: a program that ran used some.
    pub(super) fn is_known(&self) -> bool {
        self.user_ns + self.system_ns > 0
    }
}

/// True if each clone needed a whole CPU for as long as the job ran, whether it had one or not.
fn keeps_cpus_busy(job: &JobResult) -> bool {
    let available = job.runtime_ns as f64 * clones(job);
    let wanted = job.cpu.needed_ns() as f64 + job.cpu.waited_ns as f64;
    job.runtime_ns >= LEAST_ACCOUNTED_NS && wanted >= available * BUSY_CLONE
}

pub(super) fn generator_cpu_bound(job: &JobResult) -> Option<Verdict> {
    if touches_no_storage(job) || job.runtime_ns < LEAST_ACCOUNTED_NS {
        return None;
    }
    let available = job.runtime_ns as f64 * clones(job);
    let waited = job.cpu.waited_ns as f64 / available;
    if waited >= STARVED {
        return Some(verdict(
            "generator-cpu-bound",
            Severity::Warning,
            format!("the job was ready to run and waited for a CPU for {} of the time", percent(waited.min(1.0))),
            "Other programs, or more clones than CPUs, had the CPU: the job issued and reaped late, so latencies hold that wait, and rates may be too low.",
            "Stop the other programs, give the job CPUs of its own (cpus_allowed), or use fewer clones.",
        ));
    }
    if !keeps_cpus_busy(job) {
        return None;
    }
    let used = (job.cpu.user_ns + job.cpu.system_ns) as f64;
    let user = job.cpu.user_ns as f64 / used;
    Some(verdict(
        "generator-cpu-bound",
        Severity::Warning,
        format!(
            "the job used {} of its CPU ({} of that in the kernel)",
            percent((used / available).min(1.0)),
            percent(1.0 - user)
        ),
        "Each clone kept a CPU busy all the time: faster storage would give the same figures.",
        "Raise numjobs, use io_uring with batches, registered files and fixed buffers, or larger blocks. Polling (hipri) is busy by design.",
    ))
}

/// Part by which the rate times the mean latency may differ from the depth.
const IN_BALANCE: f64 = 0.03;

pub(super) fn queue_out_of_balance(job: &JobResult) -> Option<Verdict> {
    let ratio = job.little_ratio().filter(|ratio| (ratio - 1.0).abs() > IN_BALANCE)?;
    Some(verdict(
        "queue-out-of-balance",
        Severity::Note,
        format!(
            "IOPS times mean latency is {} of the {} requests that were kept in flight",
            percent(ratio),
            plain(job.asked_depth())
        ),
        "By Little's law it would be all of them. The measured part is so short that requests of the filling or the draining queue make up much of it, or a few slow requests.",
        "Measure for ten times the mean latency or more. ramp_time leaves the filling out.",
    ))
}

pub(super) fn rate_not_met(job: &JobResult) -> Option<Verdict> {
    let time = seconds(job);
    let short = Direction::ALL.into_iter().find_map(|direction| {
        let result = &job.directions[direction];
        let behind = |asked: Option<f64>, done: u64| {
            let asked = asked? * clones(job);
            let got = done as f64 / time;
            // Arrivals at random may be fewer by chance. Where they are, nothing waits.
            let by_chance = |growth: f64| growth < (1.0 - got / asked) * WAITS;
            let few = job.backlog.is_some_and(|backlog| by_chance(backlog.growth()));
            (time > 0.0 && got < asked * RATE_MET && !few).then_some((asked, got))
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
        format!("the intended rate of {}s is {asked}, the real rate {got}", direction.name()),
        "The storage (or the generator) cannot keep up with the arrivals: latencies grow as long as the job runs.",
        "Lower the rate, raise iodepth or numjobs; latencies of an overloaded system depend on the run's length.",
    ))
}

pub(super) fn queued_before_issue(job: &JobResult) -> Option<Verdict> {
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
    let (means, advice) = waited_for(job, &intended, &issued).words();
    Some(verdict(
        "queued-before-issue",
        Severity::Note,
        format!(
            "requests took {} from their intended start, {} from their issue",
            nanoseconds(intended.mean()),
            nanoseconds(issued.mean())
        ),
        means,
        advice,
    ))
}

/// The cause for which requests wait before the job issues them.
enum WaitedFor {
    /// A place in the queue: the depth limit.
    Queue,
    /// CPU time of the generator.
    Cpu,
    /// The generator, which was late although the queue had places.
    Generator,
    /// The queue or the generator: the result cannot tell.
    Either,
}

impl WaitedFor {
    /// The meaning and the advice of the verdict.
    fn words(&self) -> (&'static str, &'static str) {
        match self {
            WaitedFor::Queue => (
                "The queue was full most of the time, so requests waited before the job issued them. Users see both waits.",
                "Use lat_intended; raise iodepth if the storage can take more.",
            ),
            WaitedFor::Cpu => (
                "The generator had no CPU time left, and issued requests late: the wait is this machine's, not the storage's.",
                "Lower the rate, raise numjobs, or use more CPUs; a larger iodepth does not help.",
            ),
            WaitedFor::Generator => (
                "The generator issued requests late although the queue had places: the wait is this machine's, not that of a full queue.",
                "Look for other programs on these CPUs, thinktime, and submission that blocks (slat).",
            ),
            WaitedFor::Either => (
                "Requests waited before the job issued them, for a place in the queue or for a late generator: the result cannot tell which.",
                "Use lat_intended; see whether a larger iodepth, or a quieter machine, shortens the wait.",
            ),
        }
    }
}

/// The cause of the wait between the intended starts and the issues of an open loop's requests.
fn waited_for(job: &JobResult, intended: &Histogram, issued: &Histogram) -> WaitedFor {
    // Without storage nothing holds a place in the queue for long.
    match (is_queue_full(job) && !touches_no_storage(job), keeps_cpus_busy(job)) {
        (true, false) => WaitedFor::Queue,
        (false, true) => WaitedFor::Cpu,
        (false, false) if touches_no_storage(job) || places_were_free(job, intended, issued) => WaitedFor::Generator,
        // A stall of the storage fills the queue for a small part of the time, and many requests wait then.
        (true, true) | (false, false) => WaitedFor::Either,
    }
}

/// True if the queue was full most of the time.
fn is_queue_full(job: &JobResult) -> bool {
    job.in_flight_while_issuing() >= job.asked_depth() * QUEUE_FULL
}

/// True if a full queue surely does not explain most of the wait: the requests that found the queue at least half full
/// would each have had to wait for longer than any request did. The result records depths in powers of two.
fn places_were_free(job: &JobResult, intended: &Histogram, issued: &Histogram) -> bool {
    let (depth, in_flight) = (job.facts.iodepth, &job.depth.in_flight);
    let ops: u64 = in_flight.iter().sum();
    if job.facts.synchronous || depth < 4 {
        return false;
    }
    let half = depth.ilog2() as usize - 1;
    let near_full = in_flight.iter().skip(half).sum::<u64>() as f64;
    let waited_ns = (intended.mean() - issued.mean()) * ops as f64;
    near_full * (intended.max() as f64) < waited_ns / 2.0
}

/// The judgement on a run as a whole ([`super::for_job`] judges each job).
pub fn for_run(run: &RunResult) -> Judgement {
    let mut judged = Judgement::default();
    let ran = run.jobs.iter().any(|job| job.total_ops() > 0);
    let cpus = run.provenance.machine.cpus;
    // On one CPU the job's own verdict says it.
    let basis = Basis::applies(ran && several_clones(run) && cpus != 1)
        .needs(cpus > 0, "the result does not record the number of CPUs")
        .needs(took_ms(run) >= LEAST_ACCOUNTED_MS, "the run is too short for the kernel's accounting of CPU time")
        .needs(run.jobs.iter().all(|job| job.cpu.is_known()), "the result does not record CPU time");
    judged.enter("machine-cpu-bound", basis, machine_cpu_bound(run));
    judged
}

fn machine_cpu_bound(run: &RunResult) -> Option<Verdict> {
    let cpus = run.provenance.machine.cpus;
    let available = took_ms(run) as f64 * 1e6 * f64::from(cpus);
    let used: f64 = run.jobs.iter().map(|job| job.cpu.needed_ns() as f64).sum();
    // On one CPU, or with a single clone, the job's own verdict says it.
    if cpus > 1 && several_clones(run) && took_ms(run) >= LEAST_ACCOUNTED_MS {
        machine_busy(cpus, available, used)
    } else {
        None
    }
}

/// Milliseconds below which the kernel's accounting of CPU time says nothing.
const LEAST_ACCOUNTED_MS: u64 = LEAST_ACCOUNTED_NS / 1_000_000;

/// Milliseconds from the first start of a job to the last end; 0 without jobs.
fn took_ms(run: &RunResult) -> u64 {
    let start = run.jobs.iter().map(|job| job.start_unix_ms).min().unwrap_or(0);
    let end = run.jobs.iter().map(|job| job.start_unix_ms + job.elapsed_ns / 1_000_000).max().unwrap_or(0);
    end - start
}

fn several_clones(run: &RunResult) -> bool {
    run.jobs.iter().map(|job| job.clones.max(1)).sum::<u32>() > 1
}

pub(super) fn machine_busy(cpus: u32, available: f64, used: f64) -> Option<Verdict> {
    (used >= available * BUSY_MACHINE).then(|| {
        verdict(
            "machine-cpu-bound",
            Severity::Warning,
            format!(
                "all {cpus} CPUs were busy generating load for {} of the time",
                percent((used / available).min(1.0))
            ),
            "Clones wait for CPUs: the latencies include this wait, and the machine limits the throughput.",
            "Use fewer clones, larger blocks, or more machines.",
        )
    })
}

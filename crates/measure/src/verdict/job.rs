//! The judgement on one job: the table of the statements that are tried, and those about its data and errors.

use super::check::{Basis, Judgement, Rule};
use super::course::*;
use super::generator::*;
use super::storage::*;
use super::{LEAST_ACCOUNTED_NS, Severity, Verdict, verdict};
use crate::figures::percent;
use crate::schema::{Disturbances, JobResult};
use crate::stats;

/// The statements that are tried on each job. CONTRIBUTING.md says what a new one needs.
pub(super) static JOB_RULES: &[Rule<JobResult>] = &[
    Rule { code: "verify-mismatch", basis: |job| Basis::applies(job.verified.is_some()), find: verify_mismatch },
    Rule {
        code: "memory-filesystem",
        basis: |job| Basis::applies(!touches_no_storage(job) && !job.facts.elsewhere).needs(is_local(job), UNTOLD),
        find: memory_filesystem,
    },
    Rule {
        code: "loop-page-cache",
        basis: |job| {
            let device = job.facts.loop_device.as_ref();
            let reads = job.directions.read.ops > 0;
            let known = !reads || device.is_none_or(|device| device.cached_fraction.is_some());
            Basis::applies(!touches_no_storage(job) && !job.facts.elsewhere)
                .needs(is_local(job), UNTOLD)
                .needs(known, "the result does not record how much of the file behind the loop device was in memory")
        },
        find: loop_page_cache,
    },
    Rule {
        code: "page-cache-read",
        basis: |job| {
            let facts = &job.facts;
            let reads = job.directions.read.ops > 0 && !facts.elsewhere && !touches_no_storage(job);
            let known = facts.direct || facts.cached_fraction.is_some();
            Basis::applies(reads)
                .needs(known, "the result does not record how much of the data was in the page cache")
                .needs(
                    facts.direct || facts.target_bytes.is_some(),
                    "the result does not record how many bytes the files have, so nothing tells reads of the same bytes",
                )
        },
        find: page_cache_read,
    },
    Rule {
        code: "unwritten-read",
        basis: |job| {
            let reads = job.directions.read.ops > 0 && !only_reads_back(job);
            let reads = reads && !job.facts.elsewhere && !touches_no_storage(job);
            let known = job.facts.unwritten_fraction.is_some();
            Basis::applies(reads).needs(known, "the result does not record which extents of the file were written")
        },
        find: unwritten_read,
    },
    Rule {
        code: "depth-not-achieved",
        basis: |job| {
            let known = job.depth.in_flight.iter().any(|ops| *ops > 0) || job.facts.synchronous;
            Basis::applies(job.facts.iodepth > 1 && !touches_no_storage(job))
                .needs(known, "the result does not record the depth of the queue")
                .needs(
                    job.facts.synchronous || is_settled(job),
                    "the job has fewer than ten ops for each request of the depth",
                )
        },
        find: depth_not_achieved,
    },
    Rule {
        code: "queue-out-of-balance",
        basis: |job| {
            let closed = !has_rate(job) && job.latency_target.is_none() && !job.facts.is_replay;
            Basis::applies(closed && !touches_no_storage(job))
                .needs(job.depth.issuing_ns > 0, "the result does not record the requests in flight over time")
        },
        find: queue_out_of_balance,
    },
    Rule {
        code: "generator-cpu-bound",
        basis: |job| {
            let long = job.runtime_ns >= LEAST_ACCOUNTED_NS;
            Basis::applies(!touches_no_storage(job))
                .needs(long, "the job is too short for the kernel's accounting of CPU time")
                .needs(job.cpu.is_known(), "the result does not record CPU time")
        },
        find: generator_cpu_bound,
    },
    Rule {
        code: "rate-not-met",
        basis: |job| {
            Basis::applies(has_rate(job)).needs(job.runtime_ns > 0, "the result does not record how long the job ran")
        },
        find: rate_not_met,
    },
    Rule {
        code: "queued-before-issue",
        basis: |job| {
            let intended = || job.directions.iter().filter_map(|(_, one)| Some((one, one.lat_intended_ns.as_ref()?)));
            let known = intended().any(|(one, intended)| !intended.is_empty() && !one.lat_ns.is_empty());
            Basis::applies(intended().next().is_some()).needs(known, "the result does not record latencies")
        },
        find: queued_before_issue,
    },
    Rule {
        code: "not-steady",
        basis: |job| {
            // A replay has the course of its recording.
            Basis::applies(!job.facts.is_replay).needs(
                job.iops_over_time().len() >= stats::FEWEST_TO_JUDGE,
                "steadiness needs eight intervals, and the result has fewer",
            )
        },
        find: not_steady,
    },
    Rule {
        code: "steadiness-unknown",
        basis: |job| Basis::applies(!job.intervals.is_empty() && !job.facts.is_replay),
        find: steadiness_unknown,
    },
    Rule {
        code: "clones-on-same-blocks",
        basis: |job| {
            let applies = job.facts.numjobs > 1 && !touches_no_storage(job);
            Basis::applies(applies)
                .needs(is_local(job), "the result does not record which blocks the clones went through")
        },
        find: clones_on_same_blocks,
    },
    Rule {
        code: "writes-not-synced",
        basis: |job| {
            let applies = job.directions.write.ops > 0 && !passes_the_page_cache_by(job) && !touches_no_storage(job);
            Basis::applies(applies).needs(
                job.facts.writes_synced.is_some(),
                "the result does not record whether the job synced its writes",
            )
        },
        find: writes_not_synced,
    },
    Rule {
        code: "allocating-writes",
        basis: |job| {
            let applies = job.directions.write.ops > 0 && only_reads_back(job);
            let known = job.facts.unwritten_fraction.is_some();
            Basis::applies(applies && !job.facts.elsewhere && !touches_no_storage(job))
                .needs(known, "the result does not record which extents of the file were written")
        },
        find: allocating_writes,
    },
    Rule { code: "disturbed", basis: |_| Basis::Known, find: |job| disturbed(&job.disturbances) },
    Rule { code: "errors-tolerated", basis: |job| Basis::applies(job.continue_on_error), find: errors_tolerated },
    Rule { code: "interval-too-short", basis: |_| Basis::Known, find: interval_too_short },
    Rule { code: "too-few-samples", basis: |_| Basis::Known, find: too_few_samples },
];

/// The reason why a statement on the kind of storage cannot be tried.
const UNTOLD: &str = "the result does not record the kind of storage";

/// The judgement on one job's numbers. It uses the job's result and nothing else.
pub fn for_job(job: &JobResult) -> Judgement {
    let mut judged = Judgement::default();
    // A job that moved nothing has no numbers to doubt; its error says why, and its events say how it came to that.
    if job.total_ops() == 0 && job.verified.is_none_or(|verified| verified.mismatches == 0) {
        let happened = disturbed(&job.disturbances);
        judged.enter("disturbed", Basis::applies(happened.is_some()), happened);
        return judged;
    }
    for rule in JOB_RULES {
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

/// True if the result comes from a run that looked at its files, not from fio's JSON.
fn is_local(job: &JobResult) -> bool {
    job.facts.examined
}

pub(super) fn has_rate(job: &JobResult) -> bool {
    job.facts.rate_iops.iter().any(|(_, rate)| rate.is_some())
        || job.facts.rate_bytes.iter().any(|(_, rate)| rate.is_some())
}

pub(super) fn seconds(job: &JobResult) -> f64 {
    job.runtime_ns as f64 / 1e9
}

/// The number of clones of this entry.
pub(super) fn clones(job: &JobResult) -> f64 {
    f64::from(job.clones.max(1))
}

/// True if no page cache of this host holds the job's data: O_DIRECT, and engines that send commands to a device.
pub(super) fn passes_the_page_cache_by(job: &JobResult) -> bool {
    job.facts.direct || ["nvme_tcp", "nvme_rdma", "io_uring_cmd", "sg"].contains(&job.facts.engine.as_str())
}

/// True if the job's engine touches no storage: the engine has nothing to misrepresent.
pub(super) fn touches_no_storage(job: &JobResult) -> bool {
    matches!(job.facts.engine.as_str(), "null" | "cpuio" | "exec")
}

fn verify_mismatch(job: &JobResult) -> Option<Verdict> {
    let verified = job.verified.filter(|verified| verified.mismatches > 0)?;
    Some(verdict(
        "verify-mismatch",
        Severity::Invalid,
        format!("{} of {} verified blocks differ from the data that was written", verified.mismatches, verified.blocks),
        "The storage, or a part on the way to it, returned wrong data.",
        "The job's error names the file, the offset, the expected and the actual value; do not trust this storage with data.",
    ))
}

/// The verdict on events that distort the figures of a job or a phase.
pub(super) fn disturbed(disturbances: &Disturbances) -> Option<Verdict> {
    let happened = disturbances.listed();
    (!happened.is_empty()).then(|| {
        verdict(
            "disturbed",
            Severity::Warning,
            format!("the run met {happened}"),
            "Throughput and latency hold the time of the recovery, and not only that of the storage.",
            "Look at the target's log and at the network, and measure again when nothing breaks.",
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
            "The other figures count successful ops only.",
            "Look at the job's error and the kernel's log; leave out continue_on_error to stop at the first.",
        )
    })
}

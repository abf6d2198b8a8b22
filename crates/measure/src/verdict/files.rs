//! The judgement on a run on files: on each phase, and on the run as a whole.

use super::check::{Basis, Judgement};
use super::generator::machine_busy;
use super::job::disturbed;
use super::{FEW, LEAST_ACCOUNTED_NS, SHORT_NS, Severity, VERY_FEW, Verdict, verdict};
use crate::figures::{nanoseconds, percent};
use crate::schema::{FilesFacts, FilesResult, PhaseResult};

/// Part of the time of threads on files, spent on contents, from which on a faster storage would not show.
const BUSY_WITH_CONTENT: f64 = 0.5;
/// Part of the time of the last thread before which the first one may be through.
const EVEN: f64 = 0.8;

/// The judgement on one phase of a run on files.
pub fn for_phase(phase: &PhaseResult, facts: &FilesFacts) -> Judgement {
    let mut judged = Judgement::default();
    if phase.operations_done() == 0 && phase.total.failed == 0 {
        return judged;
    }
    let posix = facts.access == "posix";
    judged.enter("verify-mismatch", Basis::applies(phase.verified.is_some()), files_differ(phase));
    judged.enter("page-cache-read", Basis::applies(phase.reads_own_writes && posix), read_own_writes(phase, facts));
    judged.enter("disturbed", Basis::Known, disturbed(&phase.disturbances));
    judged.enter("errors-tolerated", Basis::applies(facts.continue_on_error), files_failed(phase, facts));
    let uneven = Basis::applies(phase.threads.len() > 1)
        .needs(phase.stonewall_ns > 0, "the result does not record when the first thread ended");
    judged.enter("threads-uneven", uneven, threads_uneven(phase));
    let long = phase.runtime_ns >= LEAST_ACCOUNTED_NS;
    let cpu = Basis::applies(posix)
        .needs(long, "the phase is too short for the kernel's accounting of CPU time")
        .needs(phase.cpu.is_known(), "the result does not record CPU time");
    judged.enter("generator-cpu-bound", cpu, files_cpu_bound(phase, facts));
    judged.enter("writes-not-synced", Basis::applies(writes_files(phase) && posix), files_not_synced(phase, facts));
    judged.enter("interval-too-short", Basis::Known, phase_too_short(phase));
    judged.enter("too-few-samples", Basis::Known, too_few_files(phase));
    judged
}

impl PhaseResult {
    /// Judges the phase anew.
    pub fn judge(&mut self, facts: &FilesFacts) {
        let Judgement { verdicts, checks } = for_phase(self, facts);
        (self.verdicts, self.checks) = (verdicts, checks);
    }
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
    let basis = Basis::applies(threads > 1 && cpus != 1)
        .needs(cpus > 0, "the result does not record the number of CPUs")
        .needs(long, "the run is too short for the kernel's accounting of CPU time")
        .needs(result.phases.iter().any(|phase| phase.cpu.is_known()), "the result does not record CPU time");
    judged.enter("machine-cpu-bound", basis, busy);
    judged
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
        "The figures are partial: they lack the work of these processes, which shared the load until they ended.",
        "Find the reason (dmesg shows the kernel's out-of-memory killer), and run again.",
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
        "The storage, or a part on the way to it, returned wrong data; or another plan made the files.",
        "The error names the file, the offset and the data; --seed, --size and --threads must be those of the writer.",
    ))
}

fn read_own_writes(phase: &PhaseResult, facts: &FilesFacts) -> Option<Verdict> {
    (phase.reads_own_writes && !facts.direct && facts.access == "posix").then(|| {
        verdict(
            "page-cache-read",
            Severity::Warning,
            "the run read files that it had just written".into(),
            "Data in the page cache came from memory, not from the storage.",
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
            "The rates count successful operations only.",
            "Look at the errors and the kernel's log; leave out --continue-on-error to stop at the first.",
        )
    })
}

fn threads_uneven(phase: &PhaseResult) -> Option<Verdict> {
    let (wall, end) = (phase.stonewall_ns as f64, phase.runtime_ns as f64);
    (phase.threads.len() > 1 && wall > 0.0 && wall < EVEN * end).then(|| {
        verdict(
            "threads-uneven",
            Severity::Warning,
            format!("the first thread ended after {}, the last after {}", nanoseconds(wall), nanoseconds(end)),
            "After the first thread had ended, fewer threads were at work: the rate over the whole time is too low for all threads.",
            "Use the rate up to the stonewall; use more --files, or --runtime to end all threads together.",
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
        "Making and comparing contents took as long as storing them: faster storage would give the same figures.",
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
            "The data may be in memory only: the rate shows how fast files are made, not how fast they are stored.",
            "Use --fsync to measure as a database or a mail server writes.",
        )
    })
}

fn phase_too_short(phase: &PhaseResult) -> Option<Verdict> {
    (phase.runtime_ns < SHORT_NS).then(|| {
        verdict(
            "interval-too-short",
            Severity::Note,
            format!("the phase took {}", nanoseconds(phase.runtime_ns as f64)),
            "In a short time, start-up, caches and a few slow calls have a large effect.",
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
            format!("the phase has {files} operations"),
            "A percentile needs ten samples beyond it: with 1,000 operations that is the 99th, with 100 the 90th.",
            "Use more --files before quoting high percentiles.",
        )
    })
}

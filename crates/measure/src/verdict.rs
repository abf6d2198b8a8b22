//! Verdicts: statements on how far a result can be believed.
//!
//! Each statement is a function from a result to `Option<Verdict>`, in the file of its subject. `check` tries all
//! statements, and records which of them passed, failed or could not be checked. Tests check that each statement fires
//! and that each keeps silent. docs/verdicts.md lists them for readers; a test holds the two together.

use serde::{Deserialize, Serialize};

mod check;
mod course;
mod curve;
mod files;
mod gather;
mod generator;
mod hosts;
mod job;
mod storage;

pub use check::{Check, Judgement, Outcome};
pub use curve::{
    depth_not_possible, depths_left_out, different_blocks, engine_replaced, for_curve, no_direct_io,
    not_preconditioned, replay_behind, replay_not_direct, replayed, wider_than_asked,
};
pub use files::{for_files, for_phase};
pub use gather::{Gathered, gather};
pub use generator::for_run;
pub use hosts::for_hosts;
pub use job::for_job;

/// The weight of a verdict: the trust that it takes away from the numbers.
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

/// One statement on how far a result can be believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// A stable name for scripts: `depth-not-achieved`.
    pub code: String,
    /// The weight of the verdict.
    pub severity: Severity,
    /// The observation, with its figures.
    pub what: String,
    /// The meaning of the observation for the numbers.
    pub means: String,
    /// The change that would avoid it.
    pub advice: String,
}

/// The codes of all verdicts.
pub const CODES: &[&str] = &[
    "verify-mismatch",
    "page-cache-read",
    "memory-filesystem",
    "loop-page-cache",
    "unwritten-read",
    "depth-not-achieved",
    "queue-out-of-balance",
    "generator-cpu-bound",
    "rate-not-met",
    "queued-before-issue",
    "not-steady",
    "steadiness-unknown",
    "clones-on-same-blocks",
    "writes-not-synced",
    "allocating-writes",
    "disturbed",
    "errors-tolerated",
    "interval-too-short",
    "too-few-samples",
    "machine-cpu-bound",
    "too-few-points",
    "no-limit",
    "no-load-line",
    "lone-peak",
    "rate-limited",
    "still-rising",
    "generator-ceiling",
    "uncertain",
    "engine-replaced",
    "no-direct-io",
    "depth-not-possible",
    "depths-left-out",
    "wider-than-asked",
    "not-preconditioned",
    "replayed",
    "replay-behind",
    "process-lost",
    "threads-uneven",
    "host-slow",
    "start-skew",
    "different-blocks",
];

/// Nanoseconds below which the kernel's accounting of CPU time, by ticks, says nothing.
const LEAST_ACCOUNTED_NS: u64 = 100_000_000;
/// Nanoseconds below which start-up and a few slow requests weigh heavily.
const SHORT_NS: u64 = 1_000_000_000;
/// Ops below which the 99th percentile has fewer than ten samples beyond it.
const FEW: u64 = 1000;
/// Ops below which the 90th percentile has fewer than ten samples beyond it.
const VERY_FEW: u64 = 100;

fn verdict(code: &str, severity: Severity, what: String, means: &str, advice: &str) -> Verdict {
    debug_assert!(CODES.contains(&code), "{code} is not in the list");
    Verdict { code: code.into(), severity, what, means: means.into(), advice: advice.into() }
}

#[cfg(test)]
mod tests;

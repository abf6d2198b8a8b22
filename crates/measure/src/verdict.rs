//! Verdicts: statements on whether a result can be believed. All of them are in this file.

use serde::{Deserialize, Serialize};

use crate::schema::{Curve, Estimate, JobResult, RunResult};

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

/// The verdicts on one job's numbers, worst first. Uses what the job left behind and nothing else.
pub fn for_job(_job: &JobResult) -> Vec<Verdict> {
    Vec::new()
}

/// The verdicts on a run as a whole (what concerns one job is [`for_job`]'s).
pub fn for_run(_run: &RunResult) -> Vec<Verdict> {
    Vec::new()
}

/// The verdicts on a curve as a whole: points too uncertain, still rising, at the generator's ceiling.
pub fn for_curve(_curve: &Curve, _ceiling_iops: Option<Estimate>) -> Vec<Verdict> {
    Vec::new()
}

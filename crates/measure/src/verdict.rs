//! Verdicts: statements on whether a result can be believed. All of them are in this file.

use serde::{Deserialize, Serialize};

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

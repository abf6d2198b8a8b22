//! Effects: how much the second of two sides differs, with a confidence interval.

use crate::schema::{Effect, RunResult};

/// The effects of pairs of runs that were interleaved A B A B: each pair shares its drift.
pub fn paired(_runs: &[(RunResult, RunResult)]) -> Vec<Effect> {
    Vec::new()
}

/// The effects of two results measured apart, from the samples of their intervals.
pub fn unpaired(_a: &RunResult, _b: &RunResult) -> Vec<Effect> {
    Vec::new()
}

/// One plain sentence: which side is faster, by how much, how sure that is.
pub fn sentence(_sides: (&str, &str), _effects: &[Effect]) -> String {
    String::new()
}

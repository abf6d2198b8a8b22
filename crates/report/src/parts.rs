//! The parts of a sweep that was resumed, in words.

use measure::schema::SweepResult;

use crate::time;

/// The number of parts and the time of the first one: "measured in 2 parts, the first one on 2026-11-24 10:00:00 UTC".
/// None for a sweep in one part.
pub fn said(sweep: &SweepResult) -> Option<String> {
    let first = sweep.resumed.first()?;
    let began = time::utc(first.started_unix_ms / 1000);
    Some(format!("measured in {} parts, the first one on {began}", sweep.resumed.len() + 1))
}

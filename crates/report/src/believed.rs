//! The statements that were tried on a result, gathered over its parts: which hold, which could not be checked and why.
//!
//! A result says so itself (`checks`). For results that do not (of earlier versions, or of fio), the missing facts say
//! which statements could not be checked.

use std::collections::BTreeMap;

use measure::schema::{Document, JobResult};
use measure::verdict::{Check, Outcome};

/// Fewer intervals than these say nothing of steadiness; see `not-steady` in docs/verdicts.md.
const FEWEST_INTERVALS: usize = 8;

/// How the statements on some results came out, each code once: a statement that fails anywhere has failed, one that
/// cannot be checked anywhere is not checkable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Codes of the statements that were checked and hold.
    pub passed: Vec<String>,
    /// Codes of the statements that could not be checked, and why.
    pub not_checkable: Vec<(String, String)>,
}

impl Checked {
    /// The statements on these documents.
    pub fn of_documents<'a>(documents: impl Iterator<Item = &'a Document>) -> Checked {
        Checked::of(documents.flat_map(of_document))
    }

    /// The statements on one job.
    pub fn of_job(job: &JobResult) -> Checked {
        Checked::of(of_job(job).into_iter())
    }

    fn of(checks: impl Iterator<Item = Check>) -> Checked {
        let mut worst: BTreeMap<String, Outcome> = BTreeMap::new();
        let rank = |outcome: &Outcome| match outcome {
            Outcome::Passed => 0,
            Outcome::NotCheckable { .. } => 1,
            Outcome::Failed => 2,
        };
        for Check { code, outcome } in checks {
            match worst.get_mut(&code) {
                Some(known) if rank(known) >= rank(&outcome) => {}
                Some(known) => *known = outcome,
                None => drop(worst.insert(code, outcome)),
            }
        }
        let mut checked = Checked::default();
        for (code, outcome) in worst {
            match outcome {
                Outcome::Passed => checked.passed.push(code),
                Outcome::NotCheckable { reason } => checked.not_checkable.push((code, reason)),
                Outcome::Failed => {}
            }
        }
        checked
    }
}

fn of_document(document: &Document) -> Vec<Check> {
    match document {
        Document::Run(run) => run.checks.iter().cloned().chain(run.jobs.iter().flat_map(of_job)).collect(),
        Document::Sweep(sweep) => {
            let points = sweep.curves.iter().flat_map(|curve| &curve.points);
            // The points of a sweep are short on purpose, and its intervals say how steady they were.
            let of_points = points
                .flat_map(|point| of_job(&point.job))
                .filter(|check| !["interval-too-short", "not-steady"].contains(&check.code.as_str()));
            sweep.checks.iter().cloned().chain(of_points).collect()
        }
        Document::Comparison(comparison) => {
            comparison.runs.iter().flat_map(|(a, b)| a.jobs.iter().chain(&b.jobs)).flat_map(of_job).collect()
        }
        Document::Files(files) => {
            files.checks.iter().chain(files.phases.iter().flat_map(|phase| &phase.checks)).cloned().collect()
        }
    }
}

fn of_job(job: &JobResult) -> Vec<Check> {
    if !job.checks.is_empty() {
        return job.checks.clone();
    }
    let found = |verdict: &measure::verdict::Verdict| Check { code: verdict.code.clone(), outcome: Outcome::Failed };
    let mut checks: Vec<Check> = job.verdicts.iter().map(found).collect();
    let mut add = |code: &str, known: bool, reason: &str| {
        // A verdict stands for itself.
        if !job.verdicts.iter().any(|verdict| verdict.code == code) {
            let outcome = match known {
                true => Outcome::Passed,
                false => Outcome::NotCheckable { reason: reason.into() },
            };
            checks.push(Check { code: code.into(), outcome });
        }
    };
    let facts = &job.facts;
    if job.directions.read.ops > 0 {
        let reason = "the result does not record how much of the data was in the page cache";
        add("page-cache-read", facts.cached_fraction.is_some() || facts.elsewhere, reason);
        let reason = "the result does not record how much of the data was holes or unwritten extents";
        add("unwritten-read", facts.unwritten_fraction.is_some() || facts.elsewhere, reason);
    }
    if job.directions.write.ops > 0 {
        let reason = "the result does not record whether writes were made durable";
        add("writes-not-synced", facts.direct || facts.writes_synced.is_some(), reason);
    }
    let reason = format!("fewer than {FEWEST_INTERVALS} intervals were recorded");
    add("not-steady", job.intervals.len() >= FEWEST_INTERVALS, &reason);
    let reason = "the result does not record how deep the queue was";
    add("depth-not-achieved", facts.iodepth <= 1 || !job.depth.in_flight.is_empty(), reason);
    let reason = "the result does not record the use of processors";
    add("generator-cpu-bound", job.cpu.user_ns + job.cpu.system_ns > 0, reason);
    add("interval-too-short", true, "");
    add("too-few-samples", true, "");
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, outcome: Outcome) -> Check {
        Check { code: code.into(), outcome }
    }

    #[test]
    fn the_worst_outcome_of_a_code_counts() {
        let reason = || Outcome::NotCheckable { reason: "no facts".into() };
        let checks =
            [check("a", Outcome::Passed), check("a", reason()), check("b", reason()), check("b", Outcome::Failed)];
        let checked = Checked::of(checks.into_iter());
        assert_eq!(checked.not_checkable, [("a".to_string(), "no facts".to_string())]);
        assert!(checked.passed.is_empty());
    }

    #[test]
    fn facts_that_a_result_does_not_have_are_not_taken_for_good() {
        let mut job = JobResult::default();
        job.directions.read.ops = 1000;
        let codes =
            |job: &JobResult| Checked::of_job(job).not_checkable.into_iter().map(|(code, _)| code).collect::<Vec<_>>();
        assert_eq!(codes(&job), ["generator-cpu-bound", "not-steady", "page-cache-read", "unwritten-read"]);
        job.facts.cached_fraction = Some(0.0);
        job.facts.unwritten_fraction = Some(0.0);
        assert_eq!(codes(&job), ["generator-cpu-bound", "not-steady"]);
        // A statement that failed on one job does not pass because it passes on another job.
        let mut other = job.clone();
        other.facts.cached_fraction = Some(1.0);
        other.judge();
        let both = Checked::of([job, other].iter().flat_map(of_job));
        assert!(!both.passed.contains(&"page-cache-read".to_string()), "{both:?}");
    }
}

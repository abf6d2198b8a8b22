//! The statements that were tried on a result, gathered over its parts: which hold, which could not be checked and why.
//!
//! The result says so itself (`checks`); this file derives nothing. A job without checks, which moved no data or was
//! saved by an early version, adds nothing.

use measure::schema::{Document, JobResult};
use measure::verdict::{Check, Judgement, Outcome};

/// The outcomes of the statements on some results, each code once: a statement that fails anywhere has failed, one that
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
        Checked::of(job.checks.iter().cloned())
    }

    fn of(checks: impl Iterator<Item = Check>) -> Checked {
        let mut all = Judgement::default();
        checks.for_each(|check| all.add(Judgement { verdicts: Vec::new(), checks: vec![check] }));
        all.checks.sort_by(|a, b| a.code.cmp(&b.code));
        let mut checked = Checked::default();
        for Check { code, outcome } in all.checks {
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
        Document::Run(run) => run.checks.iter().chain(of_jobs(&run.jobs)).cloned().collect(),
        Document::Sweep(sweep) => {
            let points = sweep.curves.iter().flat_map(|curve| &curve.points);
            // The points of a sweep are short on purpose, and its intervals say how steady they were.
            let of_points = points
                .flat_map(|point| &point.job.checks)
                .filter(|check| !["interval-too-short", "not-steady"].contains(&check.code.as_str()));
            sweep.checks.iter().chain(of_points).cloned().collect()
        }
        Document::Comparison(comparison) => {
            comparison.runs.iter().flat_map(|(a, b)| of_jobs(&a.jobs).chain(of_jobs(&b.jobs))).cloned().collect()
        }
        Document::Files(files) => {
            files.checks.iter().chain(files.phases.iter().flat_map(|phase| &phase.checks)).cloned().collect()
        }
    }
}

fn of_jobs(jobs: &[JobResult]) -> impl Iterator<Item = &Check> {
    jobs.iter().flat_map(|job| &job.checks)
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
    fn a_statement_that_failed_on_one_job_does_not_pass_because_it_passes_on_another() {
        let mut job = JobResult { runtime_ns: 1_000_000_000, ..JobResult::default() };
        job.directions.read.ops = 1000;
        (job.facts.cached_fraction, job.facts.target_bytes) = (Some(0.0), Some(1 << 30));
        let mut cached = job.clone();
        cached.facts.cached_fraction = Some(1.0);
        [&mut job, &mut cached].into_iter().for_each(JobResult::judge);
        assert!(Checked::of_job(&job).passed.contains(&"page-cache-read".to_string()), "{job:?}");
        let both = Checked::of(of_jobs(&[job, cached]).cloned());
        assert!(!both.passed.contains(&"page-cache-read".to_string()), "{both:?}");
    }

    #[test]
    fn a_result_that_says_nothing_of_its_checks_has_passed_none() {
        let mut job = JobResult::default();
        job.directions.read.ops = 1000;
        assert_eq!(Checked::of_job(&job), Checked::default());
    }
}

//! Is B different from A, and by how much? Interleaved runs of two plans, or two results.
//!
//! A B A B ...: whatever drifts (temperature, free space, a neighbour) drifts through both sides alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use job::job::Plan;
use measure::effect;
use measure::schema::{ComparisonResult, Document, Effect, Ended, Estimate, RunResult, SweepResult};

use crate::run::{Control, Progress};
use crate::{Error, ErrorKind};

/// One side of a comparison.
#[derive(Clone, Debug)]
pub struct Side {
    /// What it is called.
    pub name: String,
    /// What it runs.
    pub plan: Plan,
}

/// How often the sides are run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeats {
    /// Pairs at the least; an interval needs two.
    pub fewest: u32,
    /// Pairs at the most.
    pub most: u32,
    /// Half-width of the interval of the change in iops that ends it: 0.02 is two percent.
    pub bound: f64,
}

impl Default for Repeats {
    fn default() -> Repeats {
        Repeats { fewest: 3, most: 10, bound: 0.02 }
    }
}

/// What the caller of [`interleaved`] sees while it runs: the pair, the side (0 or 1), the run.
pub type Watch<'a> = dyn FnMut(u32, usize, &Progress) + 'a;

/// The effects of B against A from interleaved runs; partial (`Interrupted`) if `stop` was set on the way.
///
/// # Errors
/// What a run says before it starts; a job that failed.
pub fn interleaved(
    sides: [&Side; 2],
    repeats: Repeats,
    stop: &Arc<AtomicBool>,
    watch: &mut Watch,
) -> Result<ComparisonResult, Error> {
    let runs = pairs(repeats, stop, |pair, side| {
        let mut tick = |now: &Progress| watch(pair, side, now);
        crate::run(
            &sides[side].plan,
            &mut Control { stop: stop.clone(), progress: Some(&mut tick), ..Control::default() },
        )
    })?;
    Ok(ComparisonResult {
        provenance: runs.first().map(|(a, _)| a.provenance.clone()).unwrap_or_default(),
        effects: effect::paired(&runs),
        runs,
        ended: if stop.load(Ordering::Relaxed) { Ended::Interrupted } else { Ended::Complete },
        ..named(sides.map(|side| side.name.as_str()))
    })
}

/// A comparison without content.
fn named([a, b]: [&str; 2]) -> ComparisonResult {
    ComparisonResult { sides: (a.into(), b.into()), ..ComparisonResult::default() }
}

/// Pairs of runs until the change in iops is known well enough.
fn pairs(
    repeats: Repeats,
    stop: &AtomicBool,
    mut run: impl FnMut(u32, usize) -> Result<RunResult, Error>,
) -> Result<Vec<(RunResult, RunResult)>, Error> {
    let mut runs = Vec::new();
    for pair in 0..repeats.most.max(1) {
        let a = succeeded(run(pair, 0)?)?;
        if stop.load(Ordering::Relaxed) {
            break; // half a pair says nothing
        }
        let b = succeeded(run(pair, 1)?)?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        runs.push((a, b));
        if pair + 1 >= repeats.fewest.max(2) && is_known(&effect::paired(&runs), repeats.bound) {
            break;
        }
    }
    Ok(runs)
}

fn is_known(effects: &[Effect], bound: f64) -> bool {
    let iops = effects.iter().find(|effect| effect.figure == "iops");
    iops.is_some_and(|effect| (effect.change.high - effect.change.low) / 2.0 <= bound)
}

fn succeeded(result: RunResult) -> Result<RunResult, Error> {
    match result.jobs.iter().find_map(|job| job.error.as_ref()) {
        None => Ok(result),
        Some(error) => Err(Error {
            kind: ErrorKind::System,
            what: error.message.clone(),
            place: String::new(),
            hint: "nothing can be concluded from a run with a failed job".into(),
            source: None,
        }),
    }
}

/// The effects of B against A from two results of the same kind.
///
/// # Errors
/// Results of different kinds; comparisons, which cannot be compared again; sweeps without a common engine.
pub fn of_documents(names: [&str; 2], documents: [&Document; 2]) -> Result<ComparisonResult, Error> {
    let effects = match documents {
        [Document::Run(a), Document::Run(b)] => effect::unpaired(a, b),
        [Document::Sweep(a), Document::Sweep(b)] => of_sweeps(a, b),
        [Document::Files(a), Document::Files(b)] => effect::of_files(a, b),
        _ => {
            let hint = "give two results of `run --save`, two of `sweep`, or two of `files`";
            return Err(Error::usage("cannot compare", names.join(" with "), hint));
        }
    };
    if effects.is_empty() {
        let hint = match documents {
            [Document::Run(_), Document::Run(_)] => {
                "noise is told from change by the intervals of a run, and these have none, or too few: fio's JSON keeps \
                 only sums, so keep results of runs of some seconds with --save"
            }
            [Document::Files(_), Document::Files(_)] => "the results have no phase in common: give both the same --op",
            _ => "the results have no figure in common: sweeps need a load line for the same engine",
        };
        return Err(Error::usage("nothing to compare in", names.join(" and "), hint));
    }
    Ok(ComparisonResult { effects, ..named(names) })
}

/// Plateau and load line of each engine that both sweeps have; of the only engine of both, whatever its name.
fn of_sweeps(a: &SweepResult, b: &SweepResult) -> Vec<Effect> {
    let alone = a.curves.len() == 1 && b.curves.len() == 1;
    let mut effects = Vec::new();
    for curve in &a.curves {
        let other = b.curves.iter().find(|other| alone || other.label == curve.label);
        let lines = curve.line.as_ref().zip(other.and_then(|other| other.line.as_ref()));
        let Some((line, other)) = lines else { continue };
        let name = |figure: &str| if alone { figure.to_string() } else { format!("{figure} of {}", curve.label) };
        effects.push(of_estimates(name("plateau_iops"), true, line.plateau_iops, other.plateau_iops));
        if let (Some(line), Some(other)) = (line.load_line, other.load_line) {
            effects.push(of_estimates(name("load_line"), false, line, other));
        }
    }
    effects
}

/// The change between two independent estimates: relative errors add in quadrature.
fn of_estimates(figure: String, larger_is_better: bool, a: Estimate, b: Estimate) -> Effect {
    let mean = if a.mean > 0.0 { b.mean / a.mean - 1.0 } else { 0.0 };
    let relative = |side: Estimate| (side.high - side.low) / 2.0 / side.mean.max(f64::MIN_POSITIVE);
    let half = relative(a).hypot(relative(b)) * (1.0 + mean);
    let change = Estimate { mean, low: (mean - half).max(-1.0), high: mean + half };
    Effect { figure, larger_is_better, a, b, change, no_interval: false }
}

/// Whether B is worse than A in this figure by more than `tolerance` (0.03: three percent), with an interval
/// that excludes that nothing has changed.
pub fn is_slower(effect: &Effect, tolerance: f64) -> bool {
    let Estimate { mean, low, high } = effect.change;
    if effect.no_interval {
        return false;
    }
    if effect.larger_is_better { mean < -tolerance && high < 0.0 } else { mean > tolerance && low > 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::schema::{Curve, JobError, JobResult, LoadLine};

    fn ran(iops: u64) -> RunResult {
        let mut job = JobResult { runtime_ns: 10_000_000_000, clones: 1, ..JobResult::default() };
        job.directions.read.ops = iops * 10;
        job.directions.read.bytes = iops * 10 * 4096;
        job.directions.read.runtime_ns = job.runtime_ns;
        RunResult { jobs: vec![job], ..RunResult::default() }
    }

    fn compared(a: [u64; 6], b: [u64; 6], repeats: Repeats) -> Vec<(RunResult, RunResult)> {
        pairs(repeats, &AtomicBool::new(false), |pair, side| Ok(ran([a, b][side][pair as usize]))).unwrap()
    }

    #[test]
    fn sides_alternate_and_end_when_the_change_is_known() {
        let repeats = Repeats { fewest: 3, most: 6, bound: 0.02 };
        let runs = compared([1000, 1001, 999, 1000, 1000, 1000], [1100, 1101, 1099, 1100, 1100, 1100], repeats);
        assert_eq!(runs.len(), 3);
        let noisy = compared([1000, 1300, 1000, 1300, 1000, 1300], [1000; 6], repeats);
        assert_eq!(noisy.len(), 6);
    }

    #[test]
    fn a_pair_that_a_signal_cut_in_half_does_not_count() {
        let stop = AtomicBool::new(false);
        let runs = pairs(Repeats::default(), &stop, |pair, side| {
            stop.store((pair, side) == (1, 0), Ordering::Relaxed);
            Ok(ran(1000))
        });
        assert_eq!(runs.unwrap().len(), 1);
    }

    #[test]
    fn a_failed_job_ends_the_comparison() {
        let mut failed = ran(1);
        failed.jobs[0].error = Some(JobError { errno: 5, message: "write to x failed".into() });
        let error = pairs(Repeats::default(), &AtomicBool::new(false), |_, _| Ok(failed.clone())).unwrap_err();
        assert!(error.to_string().contains("write to x failed"));
    }

    fn changed(larger_is_better: bool, mean: f64, half: f64) -> Effect {
        let change = Estimate { mean, low: mean - half, high: mean + half };
        Effect { larger_is_better, change, ..Effect::default() }
    }

    #[test]
    fn slower_needs_both_the_size_and_the_certainty() {
        assert!(is_slower(&changed(true, -0.05, 0.01), 0.03));
        assert!(!is_slower(&changed(true, -0.02, 0.01), 0.03), "too small");
        assert!(!is_slower(&changed(true, -0.05, 0.06), 0.03), "could be nothing");
        assert!(!is_slower(&changed(true, 0.05, 0.01), 0.03), "faster");
        assert!(is_slower(&changed(false, 0.05, 0.01), 0.03), "a latency that grew");
        assert!(!is_slower(&changed(false, -0.05, 0.01), 0.03));
    }

    fn swept(label: &str, plateau: f64) -> SweepResult {
        let around = |mean: f64| Estimate { mean, low: mean * 0.99, high: mean * 1.01 };
        let line = LoadLine { plateau_iops: around(plateau), load_line: Some(around(16.0)), ..LoadLine::default() };
        SweepResult {
            curves: vec![Curve { label: label.into(), line: Some(line), points: Vec::new() }],
            ..SweepResult::default()
        }
    }

    #[test]
    fn sweeps_are_compared_by_their_plateaus() {
        let documents = [swept("io_uring", 1000.0), swept("libaio", 900.0)].map(Document::Sweep);
        let result = of_documents(["a", "b"], documents.each_ref()).unwrap();
        let plateau = &result.effects[0];
        assert_eq!(plateau.figure, "plateau_iops");
        assert!((plateau.change.mean + 0.1).abs() < 1e-9 && is_slower(plateau, 0.03), "{plateau:?}");
        assert!(!is_slower(&result.effects[1], 0.0), "the load line is the same");
    }

    #[test]
    fn results_that_have_nothing_in_common_are_refused() {
        let (run, sweep) = (Document::Run(RunResult::default()), Document::Sweep(SweepResult::default()));
        assert!(of_documents(["a", "b"], [&run, &sweep]).unwrap_err().to_string().contains("a with b"));
        assert!(of_documents(["a", "b"], [&sweep, &sweep]).unwrap_err().to_string().contains("a and b"));
    }
}

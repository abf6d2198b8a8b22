//! Is B different from A, and by how much? Interleaved runs of two plans, or two results.
//!
//! A B A B ...: whatever drifts (temperature, free space, a neighbour) drifts through both sides alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use job::job::Plan;
use measure::Objective;
use measure::axis::AxisKind;
use measure::effect::{self, Outcome};
use measure::figures;
use measure::limit::{self, Condition, Kept};
use measure::schema::{
    CannotTell, ComparisonResult, Curve, Difference, Document, Effect, Ended, Estimate, JobResult, RunResult,
    SweepResult,
};
use measure::verdict::{self, Verdict};

use crate::run::{Control, Progress};
use crate::{Error, ErrorKind};

mod turns;
pub use turns::in_turns;

/// One side of a comparison: a name, and the jobs that it runs.
#[derive(Clone, Debug)]
pub struct Side {
    /// The name of the side: that of its job file or engine.
    pub name: String,
    /// The jobs that the side runs.
    pub plan: Plan,
}

/// The number of runs of each side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeats {
    /// Pairs at the least; an interval needs two.
    pub fewest: u32,
    /// The largest number of pairs.
    pub most: u32,
    /// Half-width of the interval of the change in the figure that ends the comparison: 0.02 is two percent.
    pub bound: f64,
}

impl Repeats {
    /// The number of times that the runs may be looked at to decide on their end: after `fewest` pairs, and after each
    /// further one.
    pub fn looks(&self) -> u32 {
        self.most.saturating_sub(self.fewest.max(2)) + 1
    }
}

impl Default for Repeats {
    fn default() -> Repeats {
        Repeats { fewest: 3, most: 10, bound: 0.02 }
    }
}

/// A function that [`interleaved`] and [`in_turns`] call while they run, with the pair, the side (0 or 1), and the run.
pub type Watch<'a> = dyn FnMut(u32, usize, &Progress) + 'a;

/// The effects of B against A from interleaved runs; partial (`Interrupted`) if `stop` was set on the way. Pairs are
/// run until the change in `figure`, one of [`effect::figures_of_runs`], is known to `repeats.bound`.
///
/// # Errors
/// A figure that runs do not have. An error of a run before it starts; a job that failed.
pub fn interleaved(
    sides: [&Side; 2],
    figure: &str,
    repeats: Repeats,
    stop: &Arc<AtomicBool>,
    watch: &mut Watch,
) -> Result<ComparisonResult, Error> {
    check_figure(figure)?;
    let runs = pairs(figure, repeats, stop, |pair, side| {
        let mut tick = |now: &Progress| watch(pair, side, now);
        crate::run(
            &sides[side].plan,
            &mut Control { stop: stop.clone(), progress: Some(&mut tick), ..Control::default() },
        )
    })?;
    let effects = effect::paired(&runs, repeats.looks());
    let estimator = "The values of A and B are geometric means of their runs. The change is the ratio of the two means, with \
                     the interval of the ratios of the pairs. The interval holds however many pairs it takes: it is \
                     wide enough for each look at which the comparison might have ended.";
    Ok(concluded(sides, figure, runs, effects, estimator.into(), stop))
}

fn check_figure(figure: &str) -> Result<(), Error> {
    if effect::figures_of_runs().any(|known| known == figure) {
        return Ok(());
    }
    let known = effect::figures_of_runs().collect::<Vec<_>>().join(", ");
    Err(Error::usage("runs have no figure", figure, format!("expected one of {known}")))
}

/// The result of a comparison of runs, with the verdicts on them; partial if `stop` is set.
fn concluded(
    sides: [&Side; 2],
    figure: &str,
    runs: Vec<(RunResult, RunResult)>,
    effects: Vec<Effect>,
    estimator: String,
    stop: &AtomicBool,
) -> ComparisonResult {
    let [a, b] = sides.map(|side| JobOptions::of_plan(&side.plan));
    let verdicts = worst_first(
        of_side('A', runs.iter().map(|(a, _)| of_run(a)))
            .into_iter()
            .chain(of_side('B', runs.iter().map(|(_, b)| of_run(b))))
            .chain(runs.first().and_then(|(a, b)| different_blocks(&a.jobs, &b.jobs)))
            .collect(),
    );
    let names = sides.map(|side| side.name.clone());
    ComparisonResult {
        provenance: runs.first().map(|(a, _)| a.provenance.clone()).unwrap_or_default(),
        sentence: effect::sentence((&names[0], &names[1]), &effects, figure, &verdicts),
        sides: names.into(),
        effects,
        figure: figure.into(),
        estimator,
        differences: differences(&a, &b),
        verdicts,
        runs,
        ended: if stop.load(Ordering::Relaxed) { Ended::Interrupted } else { Ended::Complete },
    }
}

/// The options that a job was given, those of the global sections included.
struct JobOptions {
    name: String,
    options: BTreeMap<String, String>,
}

impl JobOptions {
    fn new(name: &str, engine: &str, options: [&[(String, String)]; 2]) -> JobOptions {
        let mut options: BTreeMap<String, String> = options.concat().into_iter().collect();
        // The engine counts that runs, wherever it comes from.
        options.insert("ioengine".into(), engine.into());
        JobOptions { name: name.into(), options }
    }

    fn of_plan(plan: &Plan) -> Vec<JobOptions> {
        let of = |job: &job::job::Job| JobOptions::new(&job.name, &job.engine, [&plan.global_options, &job.options]);
        plan.jobs.iter().map(of).collect()
    }

    fn of_results(globals: &[(String, String)], jobs: &[JobResult]) -> Vec<JobOptions> {
        jobs.iter().map(|job| JobOptions::new(&job.name, &job.facts.engine, [globals, &job.options])).collect()
    }
}

/// The options in which the jobs of A differ from those of B: the first job of A against the first of B, the second
/// against the second, and so on.
fn differences(a: &[JobOptions], b: &[JobOptions]) -> Vec<Difference> {
    let mut found = Vec::new();
    for index in 0..a.len().max(b.len()) {
        let (Some(of_a), Some(of_b)) = (a.get(index), b.get(index)) else {
            let [a, b] = [a, b].map(|jobs| jobs.get(index).map(|job| job.name.clone()));
            let job = a.clone().or(b.clone()).unwrap_or_default();
            found.push(Difference { job, option: "name".into(), a, b });
            continue;
        };
        let names: BTreeSet<&String> = of_a.options.keys().chain(of_b.options.keys()).collect();
        for option in names {
            let (a, b) = (of_a.options.get(option), of_b.options.get(option));
            if a != b {
                let [a, b] = [a, b].map(|value| value.cloned());
                found.push(Difference { job: of_a.name.clone(), option: option.clone(), a, b });
            }
        }
    }
    found
}

/// The verdict on sides whose jobs move blocks of different sizes.
fn different_blocks(a: &[JobResult], b: &[JobResult]) -> Option<Verdict> {
    let written = |job: &JobResult| {
        let used = job.facts.block_bytes.iter().filter(|(_, range)| range.1 > 0);
        let size = |&(low, high): &(u64, u64)| match low == high {
            true => figures::bytes(low as f64),
            false => format!("{} to {}", figures::bytes(low as f64), figures::bytes(high as f64)),
        };
        let mut sizes: Vec<String> = used.map(|(_, range)| size(range)).collect();
        // Most jobs have one size for all directions.
        if sizes.iter().all(|size| size == &sizes[0]) {
            sizes.truncate(1);
        }
        sizes.join(" / ")
    };
    let known = |(a, b): &(String, String)| !a.is_empty() && !b.is_empty() && a != b;
    let (a, b) = a.iter().zip(b).map(|(a, b)| (written(a), written(b))).find(known)?;
    Some(verdict::different_blocks(&a, &b))
}

/// The verdicts on a run and on its jobs.
fn of_run(run: &RunResult) -> Vec<&Verdict> {
    run.verdicts.iter().chain(run.jobs.iter().flat_map(|job| &job.verdicts)).collect()
}

/// The verdicts on a result and on its parts.
fn of_document(document: &Document) -> Vec<&Verdict> {
    match document {
        Document::Run(run) => of_run(run),
        Document::Sweep(sweep) => {
            let points = sweep.curves.iter().flat_map(|curve| &curve.points).flat_map(|point| &point.job.verdicts);
            // The points of a sweep are short on purpose.
            sweep.verdicts.iter().chain(points.filter(|verdict| verdict.code != "interval-too-short")).collect()
        }
        Document::Files(files) => {
            files.verdicts.iter().chain(files.phases.iter().flat_map(|phase| &phase.verdicts)).collect()
        }
        Document::Comparison(comparison) => comparison.verdicts.iter().collect(),
    }
}

/// The verdicts of a side's runs: each finding once, with the number of runs that share it.
fn of_side<'a>(side: char, runs: impl Iterator<Item = Vec<&'a Verdict>>) -> Vec<Verdict> {
    let mut found = Vec::new();
    let mut count = 0;
    for (run, verdicts) in runs.enumerate() {
        count += 1;
        for verdict in verdicts {
            verdict::gather(&mut found, verdict, &verdict.what, &run.to_string());
        }
    }
    let located =
        |runs: &[String]| if count > 1 { format!(" ({} of {count} runs)", runs.len()) } else { String::new() };
    let of_side = |one: Verdict| Verdict { what: format!("{side}: {}", one.what), ..one };
    found.into_iter().map(|one| of_side(one.joined(located))).collect()
}

fn worst_first(mut verdicts: Vec<Verdict>) -> Vec<Verdict> {
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.severity));
    verdicts
}

/// Pairs of runs until the change in the figure is known well enough.
fn pairs(
    figure: &str,
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
        let is_look = pair + 1 >= repeats.fewest.max(2);
        if is_look && is_known(&effect::paired(&runs, repeats.looks()), figure, repeats.bound) {
            break;
        }
    }
    Ok(runs)
}

fn is_known(effects: &[Effect], figure: &str, bound: f64) -> bool {
    let asked = effects.iter().find(|effect| effect.figure == figure);
    asked.is_some_and(|effect| (effect.change.high - effect.change.low) / 2.0 <= bound)
}

fn succeeded(result: RunResult) -> Result<RunResult, Error> {
    match result.jobs.iter().find_map(|job| job.error.as_ref()) {
        None => Ok(result),
        Some(error) => Err(Error {
            kind: ErrorKind::System,
            what: error.message.clone(),
            place: String::new(),
            hint: "a run with a failed job allows no conclusion".into(),
            source: None,
        }),
    }
}

/// The name of the figure that [`of_documents`] derives from objectives.
pub const KEPT_IOPS: &str = "kept_iops";

/// The effects of B against A from two results of the same kind, in `figure` above all. `objectives` are for sweeps;
/// without any, those that both sweeps looked for count.
///
/// # Errors
/// Results of different kinds; comparisons, which cannot be compared again; sweeps without a common engine; results
/// without `figure`.
pub fn of_documents(
    names: [&str; 2],
    documents: [&Document; 2],
    figure: &str,
    objectives: &[Objective],
) -> Result<ComparisonResult, Error> {
    let Compared { effects, estimator, differences, blocks } = match documents {
        [Document::Run(a), Document::Run(b)] => of_runs(a, b),
        [Document::Sweep(a), Document::Sweep(b)] => of_two_sweeps(a, b, objectives)?,
        [Document::Files(a), Document::Files(b)] => Compared {
            effects: effect::of_files(a, b),
            estimator: "The values of A and B come from one run each, phase by phase.".into(),
            ..Compared::default()
        },
        _ => {
            let hint = "give two results of `run --save`, two of `sweep`, or two of `files`";
            return Err(Error::usage("cannot compare", names.join(" with "), hint));
        }
    };
    refuse_without(&effects, names, documents, figure)?;
    let [a, b] = documents;
    let sides = of_side('A', std::iter::once(of_document(a))).into_iter();
    let verdicts = worst_first(sides.chain(of_side('B', std::iter::once(of_document(b)))).chain(blocks).collect());
    Ok(ComparisonResult {
        sides: (names[0].into(), names[1].into()),
        sentence: effect::sentence((names[0], names[1]), &effects, figure, &verdicts),
        effects,
        figure: figure.into(),
        estimator,
        differences,
        verdicts,
        ..ComparisonResult::default()
    })
}

/// Two documents of one sort, compared.
#[derive(Default)]
struct Compared {
    effects: Vec<Effect>,
    /// The source of the values, in sentences.
    estimator: String,
    differences: Vec<Difference>,
    /// The verdict on sizes of blocks that differ.
    blocks: Option<Verdict>,
}

fn of_runs(a: &RunResult, b: &RunResult) -> Compared {
    let effects = effect::unpaired(a, b);
    let over_time = effects.iter().any(|effect| effect.cannot_tell != Some(CannotTell::NoInterval));
    let estimator = match over_time {
        true => {
            "The values of A and B are means over the intervals of one run each, also for the 99th percentile \
             (the report of a run has the percentile of all its ops). The change includes every change of the \
             machine between the two runs."
        }
        false => {
            "The values of A and B come from one run each. A result of fio has no samples over time, so that \
             a difference may be noise: run both job files in turns (`plimsoll compare A.fio B.fio`), or keep \
             results of some seconds with `plimsoll run --save`."
        }
    };
    Compared {
        effects,
        estimator: estimator.into(),
        differences: differences(
            &JobOptions::of_results(&a.global_options, &a.jobs),
            &JobOptions::of_results(&b.global_options, &b.jobs),
        ),
        blocks: different_blocks(&a.jobs, &b.jobs),
    }
}

fn of_two_sweeps(a: &SweepResult, b: &SweepResult, objectives: &[Objective]) -> Result<Compared, Error> {
    let objectives = objectives_of(a, b, objectives)?;
    let estimator = if objectives.is_empty() {
        "The values of A and B are plateau and load line of one sweep each.".into()
    } else {
        let named = objectives.iter().map(Objective::to_string).collect::<Vec<_>>().join(", ");
        format!(
            "The values of A and B come from one sweep each. IOPS within the objectives ({named}) are those \
             at the highest {} that surely keeps them; their interval goes on to the smallest that surely \
             does not, or to the plateau.",
            AxisKind::of(&a.axis).one()
        )
    };
    let first = |sweep: &SweepResult| -> Vec<JobResult> {
        let point = sweep.curves.first().and_then(|curve| curve.points.first());
        point.map(|point| point.job.clone()).into_iter().collect()
    };
    let blocks = different_blocks(&first(a), &first(b));
    Ok(Compared { effects: of_sweeps(a, b, &objectives), estimator, blocks, ..Compared::default() })
}

/// Two documents without a figure in common, or without the figure that decides, are not compared.
fn refuse_without(effects: &[Effect], names: [&str; 2], documents: [&Document; 2], figure: &str) -> Result<(), Error> {
    if effects.is_empty() {
        let hint = match documents {
            [Document::Run(_), Document::Run(_)] => "at least one of the results has no completed op",
            [Document::Files(_), Document::Files(_)] => "the results have no phase in common: give both the same --op",
            _ => "the results have no figure in common: sweeps need a load line for the same engine",
        };
        return Err(Error::usage("nothing to compare in", names.join(" and "), hint));
    }
    if effect::of_figure(effects, figure).is_empty() {
        let known: Vec<&str> = effects.iter().map(|effect| effect.figure.as_str()).collect();
        let hint = match (documents, figure) {
            ([Document::Run(_), Document::Run(_)], "lat_p99") => {
                "a result has fewer than 1,000 ops, too few for this percentile: let the jobs run longer".into()
            }
            _ => format!("expected one of {}", known.join(", ")),
        };
        return Err(Error::usage("these results have no figure", figure, hint));
    }
    Ok(())
}

/// Plateau and load line of each engine that both sweeps have; of the only engine of both, whatever its name.
fn of_sweeps(a: &SweepResult, b: &SweepResult, objectives: &[Objective]) -> Vec<Effect> {
    let alone = a.curves.len() == 1 && b.curves.len() == 1;
    let mut effects = Vec::new();
    for curve in &a.curves {
        let other = b.curves.iter().find(|other| alone || other.label == curve.label);
        let name = |figure: &str| if alone { figure.to_string() } else { format!("{figure} of {}", curve.label) };
        if let Some(other) = other.filter(|_| !objectives.is_empty()) {
            effects.push(of_kept(name(KEPT_IOPS), [curve, other], &a.axis, objectives));
        }
        let lines = curve.line.as_ref().zip(other.and_then(|other| other.line.as_ref()));
        let Some((line, other)) = lines else { continue };
        let bound = line.still_rising || other.still_rising;
        let mut plateau = of_estimates(name("plateau_iops"), Some(true), line.plateau_iops, other.plateau_iops, bound);
        if line.plateau().is_none() || other.plateau().is_none() {
            plateau.cannot_tell = Some(CannotTell::Unnamed);
        }
        effects.push(plateau);
        // Clones do not compare with requests in flight.
        if let (Some(line), Some(other), true) = (line.load_line, other.load_line, same_axis(a, b)) {
            effects.push(of_estimates(name("load_line"), None, line, other, bound));
        }
    }
    effects
}

/// True if the points of both sweeps differ in the same option.
fn same_axis(a: &SweepResult, b: &SweepResult) -> bool {
    axis_of(a) == axis_of(b)
}

/// The objectives to compare two sweeps by: those that are asked for, else those that both sweeps looked for.
fn objectives_of(a: &SweepResult, b: &SweepResult, asked: &[Objective]) -> Result<Vec<Objective>, Error> {
    let kind = AxisKind::of(&a.axis);
    let suits = same_axis(a, b) && (kind.has_load_line() || kind == AxisKind::Rate);
    if !asked.is_empty() && !suits {
        let axes = format!("{} and {}", axis_of(a), axis_of(b));
        let hint = "both sweeps need the same axis: iodepth, numjobs, rate_iops or rate";
        return Err(Error::usage("objectives cannot compare sweeps over", axes, hint));
    }
    let theirs = || a.objectives.iter().filter_map(|text| text.parse().ok()).collect();
    Ok(match asked {
        [] if suits && a.objectives == b.objectives => theirs(),
        asked => asked.to_vec(),
    })
}

/// The axis of a sweep. Results of versions before 0.2 name none and sweep the depth.
fn axis_of(sweep: &SweepResult) -> &str {
    if sweep.axis.is_empty() { "iodepth" } else { &sweep.axis }
}

/// The change in the highest throughput that keeps the objectives.
fn of_kept(figure: String, curves: [&Curve; 2], axis: &str, objectives: &[Objective]) -> Effect {
    let keeps_up = (AxisKind::of(axis) == AxisKind::Rate).then_some(Condition::KeepsUp);
    let objectives = objectives.iter().copied().map(Condition::Objective);
    let conditions: Vec<Condition> = keeps_up.into_iter().chain(objectives).collect();
    let kept = curves.map(|curve| limit::kept_iops(curve, &limit::find(curve, &conditions)));
    let [a, b] = kept.map(|kept| match kept {
        Kept::Unknown => Estimate::default(),
        Kept::AtLeast(iops) | Kept::Within(iops) => iops,
    });
    let mut effect = Effect { figure, larger_is_better: Some(true), a, b, ..Effect::default() };
    effect.cannot_tell = match kept {
        [Kept::Unknown, _] | [_, Kept::Unknown] => Some(CannotTell::NotKept),
        [Kept::AtLeast(_), _] | [_, Kept::AtLeast(_)] => Some(CannotTell::NotBroken),
        [Kept::Within(_), Kept::Within(_)] if a.low > 0.0 && b.low > 0.0 => {
            // The limits lie anywhere between their bounds, so the ends are those of the furthest pairs.
            let ratio = |b: f64, a: f64| b / a - 1.0;
            effect.change =
                Estimate { mean: ratio(b.mean, a.mean), low: ratio(b.low, a.high), high: ratio(b.high, a.low) };
            effect::beyond_sense(&effect.change)
        }
        [Kept::Within(_), Kept::Within(_)] => Some(CannotTell::BeyondSense),
    };
    effect
}

/// The change between two independent estimates. `bound`: one of them is a lower bound.
///
/// On the scale of logarithms, the distances from each mean to the end of its interval that matters add in quadrature
/// (Zou and Donner, "Construction of confidence limits about effect measures: a general approach", Statistics in
/// Medicine 27, 2008): the intervals of plateaus and load lines reach further to one side than to the other.
fn of_estimates(figure: String, larger_is_better: Option<bool>, a: Estimate, b: Estimate, bound: bool) -> Effect {
    // Beyond this nothing makes sense, and infinite numbers have no place in JSON.
    let ln = |value: f64| value.max(f64::MIN_POSITIVE).ln().clamp(-100.0, 100.0);
    let mean = if a.mean > 0.0 { ln(b.mean) - ln(a.mean) } else { 0.0 };
    let below = (ln(b.mean) - ln(b.low)).hypot(ln(a.high) - ln(a.mean));
    let above = (ln(b.high) - ln(b.mean)).hypot(ln(a.mean) - ln(a.low));
    let change = Estimate { mean: mean.exp_m1(), low: (mean - below).exp_m1(), high: (mean + above).exp_m1() };
    let cannot_tell = if bound { Some(CannotTell::LowerBound) } else { effect::beyond_sense(&change) };
    Effect { figure, larger_is_better, a, b, change, cannot_tell }
}

/// True if B is worse than A in this figure by more than `tolerance` (0.03: three percent), with an interval that
/// excludes that nothing has changed.
pub fn is_slower(effect: &Effect, tolerance: f64) -> bool {
    effect.outcome() == Outcome::Worse && effect.change.mean.abs() > tolerance
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::schema::{JobError, JobResult, LoadLine, Point, Visit};

    fn ran(iops: u64) -> RunResult {
        let mut job = JobResult { runtime_ns: 10_000_000_000, clones: 1, ..JobResult::default() };
        job.directions.read.ops = iops * 10;
        job.directions.read.bytes = iops * 10 * 4096;
        job.directions.read.runtime_ns = job.runtime_ns;
        RunResult { jobs: vec![job], ..RunResult::default() }
    }

    fn compared(a: [u64; 6], b: [u64; 6], repeats: Repeats) -> Vec<(RunResult, RunResult)> {
        pairs("iops", repeats, &AtomicBool::new(false), |pair, side| Ok(ran([a, b][side][pair as usize]))).unwrap()
    }

    #[test]
    fn sides_alternate_and_end_when_the_change_is_known() {
        let repeats = Repeats { fewest: 3, most: 6, bound: 0.02 };
        let runs = compared([1000, 1001, 999, 1000, 1000, 1000], [1100, 1101, 1099, 1100, 1100, 1100], repeats);
        assert_eq!(runs.len(), 3);
        let noisy = compared([1000, 1300, 1000, 1300, 1000, 1300], [1000; 6], repeats);
        assert_eq!(noisy.len(), 6);
    }

    /// The claims of a difference by the rule of [`pairs`], which ends when an interval is narrow: of `trials`
    /// comparisons of sides whose true ratio is `ratio`, with noise that remembers `memory` of itself.
    fn claims(trials: u64, ratio: f64, spread: f64, memory: f64) -> usize {
        let repeats = Repeats::default();
        let claim = |seed: u64| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut uniform = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) as f64 / (1u64 << 53) as f64
            };
            let mut drift = 0.0;
            let runs = pairs("iops", repeats, &AtomicBool::new(false), |_, side| {
                let normal = (-2.0 * uniform().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
                drift = memory * drift + (1.0 - memory * memory).sqrt() * normal;
                let level = if side == 1 { ratio } else { 1.0 };
                Ok(ran((1e6 * level * (1.0 + spread * drift)) as u64))
            })
            .unwrap();
            let effects = effect::paired(&runs, repeats.looks());
            effects.iter().find(|effect| effect.figure == "iops").unwrap().outcome() != Outcome::Undecided
        };
        (1..=trials).filter(|seed| claim(*seed)).count()
    }

    #[test]
    fn equal_sides_differ_in_one_of_twenty_comparisons_at_most() {
        for (spread, memory) in [(0.003, 0.0), (0.01, 0.0), (0.03, 0.0), (0.01, 0.5), (0.03, 0.9)] {
            let claimed = claims(2000, 1.0, spread, memory);
            println!("A/A, spread {spread}, memory {memory}: {claimed} of 2000 claim a difference");
            assert!(claimed <= 100, "{claimed} of 2000 with a spread of {spread} and a memory of {memory}");
        }
    }

    #[test]
    fn three_percent_is_found() {
        for memory in [0.0, 0.5] {
            let found = claims(500, 1.03, 0.01, memory);
            println!("3 %, memory {memory}: {found} of 500 found");
            assert!(found >= 450, "{found} of 500 with a memory of {memory}");
        }
    }

    #[test]
    fn a_pair_that_a_signal_cut_in_half_does_not_count() {
        let stop = AtomicBool::new(false);
        let runs = pairs("iops", Repeats::default(), &stop, |pair, side| {
            stop.store((pair, side) == (1, 0), Ordering::Relaxed);
            Ok(ran(1000))
        });
        assert_eq!(runs.unwrap().len(), 1);
    }

    #[test]
    fn a_failed_job_ends_the_comparison() {
        let mut failed = ran(1);
        failed.jobs[0].error = Some(JobError { errno: 5, message: "write to x failed".into() });
        let error = pairs("iops", Repeats::default(), &AtomicBool::new(false), |_, _| Ok(failed.clone())).unwrap_err();
        assert!(error.to_string().contains("write to x failed"));
    }

    fn changed(larger_is_better: bool, mean: f64, half: f64) -> Effect {
        let change = Estimate { mean, low: mean - half, high: mean + half };
        Effect { larger_is_better: Some(larger_is_better), change, ..Effect::default() }
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
            curves: vec![Curve { label: label.into(), line: Some(line), ..Curve::default() }],
            ..SweepResult::default()
        }
    }

    #[test]
    fn sweeps_are_compared_by_their_plateaus() {
        let documents = [swept("io_uring", 1000.0), swept("libaio", 900.0)].map(Document::Sweep);
        let result = of_documents(["a", "b"], documents.each_ref(), "iops", &[]).unwrap();
        let plateau = &result.effects[0];
        assert_eq!(plateau.figure, "plateau_iops");
        assert!((plateau.change.mean + 0.1).abs() < 1e-9 && is_slower(plateau, 0.03), "{plateau:?}");
        assert!(!is_slower(&result.effects[1], 0.0), "the load line is the same");
    }

    #[test]
    fn a_deeper_load_line_is_neither_better_nor_worse() {
        let (shallow, mut deep) = (swept("io_uring", 1000.0), swept("io_uring", 1000.0));
        let line = deep.curves[0].line.as_mut().unwrap();
        line.load_line = Some(Estimate { mean: 64.0, low: 60.0, high: 70.0 });
        let [shallow, deep] = [shallow, deep].map(Document::Sweep);
        let result = of_documents(["a", "b"], [&shallow, &deep], "load_line", &[]).unwrap();
        let deeper = &result.effects[1];
        assert_eq!((deeper.outcome(), is_slower(deeper, 0.0)), (Outcome::Larger, false));
        assert!(
            !["better than", "worse than"].iter().any(|word| result.sentence.contains(word)),
            "{}",
            result.sentence
        );
        let back = of_documents(["b", "a"], [&deep, &shallow], "load_line", &[]).unwrap();
        assert_eq!(back.effects[1].outcome(), Outcome::Smaller);
    }

    /// The interval of A reaches far above its mean, and holds all that B may be.
    #[test]
    fn an_interval_that_reaches_to_one_side_does_so_in_the_change() {
        let (mut wide, higher) = (swept("io_uring", 2048.0), swept("io_uring", 2300.0));
        let line = wide.curves[0].line.as_mut().unwrap();
        line.plateau_iops = Estimate { mean: 2048.0, low: 2047.0, high: 2517.0 };
        line.load_line = Some(Estimate { mean: 76.0, low: 1.0, high: 124.0 });
        let documents = [wide, higher].map(Document::Sweep);
        for (names, sides) in [(["a", "b"], [0, 1]), (["b", "a"], [1, 0])] {
            let result = of_documents(names, sides.map(|side| &documents[side]), "plateau_iops", &[]).unwrap();
            for effect in &result.effects {
                assert_eq!(effect.outcome(), Outcome::Undecided, "{effect:?}");
            }
        }
    }

    #[test]
    fn results_that_have_nothing_in_common_are_refused() {
        let (run, sweep) = (Document::Run(RunResult::default()), Document::Sweep(SweepResult::default()));
        assert!(of_documents(["a", "b"], [&run, &sweep], "iops", &[]).unwrap_err().to_string().contains("a with b"));
        assert!(of_documents(["a", "b"], [&sweep, &sweep], "iops", &[]).unwrap_err().to_string().contains("a and b"));
    }

    #[test]
    fn a_lower_bound_is_neither_better_nor_worse() {
        let (mut rising, whole) = (swept("io_uring", 1000.0), swept("io_uring", 500.0));
        rising.curves[0].line.as_mut().unwrap().still_rising = true;
        let documents = [whole, rising].map(Document::Sweep);
        let result = of_documents(["a", "b"], documents.each_ref(), "plateau_iops", &[]).unwrap();
        for effect in &result.effects {
            assert_eq!((effect.outcome(), effect.cannot_tell), (Outcome::Undecided, Some(CannotTell::LowerBound)));
        }
        assert!(result.sentence.contains("lower bound"), "{}", result.sentence);
    }

    #[test]
    fn the_figure_of_a_sweep_stands_for_that_of_every_engine() {
        let mut two = swept("io_uring", 1000.0);
        two.curves.extend(swept("libaio", 900.0).curves);
        let documents = [two.clone(), two].map(Document::Sweep);
        let result = of_documents(["a", "b"], documents.each_ref(), "plateau_iops", &[]).unwrap();
        assert_eq!(effect::of_figure(&result.effects, "plateau_iops").len(), 2);
        let error = of_documents(["a", "b"], documents.each_ref(), "lat_p99", &[]).unwrap_err().to_string();
        assert!(error.contains("lat_p99") && error.contains("plateau_iops of libaio"), "{error}");
    }

    /// A sweep whose depth `x` gives 1000 `x` ops per second up to `most`, and whose ops take `slow_ns` beyond depth 8.
    fn swept_for_objectives(most: f64, slow_ns: u64) -> SweepResult {
        let visit = |x: f64| {
            let mut visit = Visit { samples: 1, ..Visit::default() };
            visit.lat_ns.read.record_many(if x > 8.0 { slow_ns } else { 100_000 }, 10_000);
            visit
        };
        let point = |x: f64| Point {
            x,
            iops: Estimate { mean: (x * 1000.0).min(most), low: (x * 990.0).min(most), high: (x * 1010.0).min(most) },
            visits: vec![visit(x); 5],
            ..Point::default()
        };
        let points = [1.0, 2.0, 4.0, 8.0, 9.0, 16.0].map(point).into();
        SweepResult {
            curves: vec![Curve { label: "io_uring".into(), points, ..Curve::default() }],
            axis: "iodepth".into(),
            ..SweepResult::default()
        }
    }

    fn kept(sweeps: [SweepResult; 2], objective: &str) -> ComparisonResult {
        let [a, b] = sweeps.map(Document::Sweep);
        of_documents(["a", "b"], [&a, &b], KEPT_IOPS, &[objective.parse().unwrap()]).unwrap()
    }

    #[test]
    fn sweeps_are_compared_by_what_keeps_an_objective() {
        let swept = |most| swept_for_objectives(most, 2_000_000);
        let result = kept([swept(20_000.0), swept(4000.0)], "p99<1ms");
        let [effect] = &result.effects[..] else { panic!("{:?}", result.effects) };
        // A keeps it at 8, breaks it at 9: between 7.92k and 9.09k; B has 4k.
        assert_eq!((effect.a.mean, effect.a.low, effect.a.high), (8000.0, 7920.0, 9090.0));
        assert_eq!((effect.b.mean, effect.outcome()), (4000.0, Outcome::Worse));
        assert!((effect.change.low - (4000.0 / 9090.0 - 1.0)).abs() < 1e-9, "{effect:?}");
        assert!(is_slower(effect, 0.03));
        assert!(result.sentence.contains("IOPS within the objectives -50 %"), "{}", result.sentence);
        assert!(result.estimator.contains("(p99<1ms)") && result.estimator.contains("depth"), "{}", result.estimator);
        // The limits of equal systems lie anywhere between their bounds.
        let same = kept([swept(20_000.0), swept(20_000.0)], "p99<1ms");
        assert_eq!(same.effects[0].outcome(), Outcome::Undecided);
    }

    #[test]
    fn an_objective_that_a_side_never_breaks_or_never_keeps_decides_nothing() {
        let swept = |slow_ns| swept_for_objectives(20_000.0, slow_ns);
        for (slow_ns, objective, why, word) in [
            (100_000, "p99<1ms", CannotTell::NotBroken, "lower bound"),
            (2_000_000, "p99<50us", CannotTell::NotKept, "cannot tell what keeps"),
        ] {
            let result = kept([swept(2_000_000), swept(slow_ns)], objective);
            assert_eq!(result.effects[0].cannot_tell, Some(why), "{:?}", result.effects);
            assert!(result.sentence.contains(word), "{}", result.sentence);
        }
    }

    #[test]
    fn objectives_need_the_same_axis() {
        let swept = || swept_for_objectives(20_000.0, 2_000_000);
        let [depth, clones] = [swept(), SweepResult { axis: "numjobs".into(), ..swept() }].map(Document::Sweep);
        let objective = ["p99<1ms".parse().unwrap()];
        let error = of_documents(["a", "b"], [&depth, &clones], KEPT_IOPS, &objective).unwrap_err().to_string();
        assert!(error.contains("iodepth and numjobs"), "{error}");
    }

    #[test]
    fn results_without_a_course_have_values_and_no_outcome() {
        let documents = [ran(1000), ran(2000)].map(Document::Run);
        let result = of_documents(["a", "b"], documents.each_ref(), "iops", &[]).unwrap();
        let iops = &result.effects[0];
        assert_eq!((iops.figure.as_str(), iops.cannot_tell), ("iops", Some(CannotTell::NoInterval)));
        assert!((iops.change.mean - 1.0).abs() < 1e-9 && result.estimator.contains("no samples over time"));
    }

    #[test]
    fn verdicts_of_the_runs_and_differing_options_are_told() {
        let (mut a, mut b) = (ran(1000), ran(1000));
        a.global_options = vec![("bs".into(), "4k".into()), ("rw".into(), "read".into())];
        b.global_options = vec![("bs".into(), "64k".into())];
        b.jobs[0].options = vec![("rw".into(), "read".into()), ("iodepth".into(), "8".into())];
        a.jobs[0].facts.block_bytes.read = (4096, 4096);
        b.jobs[0].facts.block_bytes.read = (65536, 65536);
        b.jobs[0].facts.cached_fraction = Some(1.0);
        b.jobs[0].judge();
        let result = of_documents(["a", "b"], [&Document::Run(a), &Document::Run(b)], "iops", &[]).unwrap();
        let told: Vec<(&str, Option<&str>, Option<&str>)> =
            result.differences.iter().map(|one| (one.option.as_str(), one.a.as_deref(), one.b.as_deref())).collect();
        assert_eq!(told, [("bs", Some("4k"), Some("64k")), ("iodepth", None, Some("8"))]);
        let cached = result.verdicts.iter().find(|verdict| verdict.code == "page-cache-read").unwrap();
        assert!(cached.what.starts_with("B: "), "{cached:?}");
        assert!(result.verdicts.iter().any(|verdict| verdict.code == "different-blocks"));
        assert!(result.sentence.starts_with("Invalid (page-cache-read)"), "{}", result.sentence);
    }
}

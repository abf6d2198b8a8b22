//! Effects: how much the second of two sides differs, with a confidence interval.
//!
//! Runs that alternate A B A B share the machine's drift pair by pair, so their ratios are averaged; results measured
//! apart are compared by the samples of their intervals.

use crate::figures;
use crate::rates;
use crate::schema::{CannotTell, Effect, Estimate, FilesResult, Interval, JobResult, PhaseResult, RunResult};
use crate::stats;
use crate::verdict::{Severity, Verdict};
use crate::{Direction, Histogram};

/// One figure of a run, by which sides are compared.
struct Figure {
    name: &'static str,
    larger_is_better: bool,
    of: fn(&RunResult) -> Option<f64>,
    /// The figure's samples over time; None where a run has one value only.
    samples: Option<fn(&RunResult) -> Vec<f64>>,
}

const FIGURES: [Figure; 5] = [
    Figure { name: "iops", larger_is_better: true, of: iops, samples: Some(iops_samples) },
    Figure { name: "bw", larger_is_better: true, of: bytes_per_second, samples: Some(bytes_samples) },
    Figure { name: "lat_mean", larger_is_better: false, of: lat_mean, samples: Some(lat_mean_samples) },
    Figure { name: "lat_p99", larger_is_better: false, of: lat_p99, samples: Some(lat_p99_samples) },
    Figure { name: "cpu_per_op", larger_is_better: false, of: cpu_per_op, samples: None },
];

/// A change by more than this factor, up or down, is taken for a defect of the measurement: between the page cache and
/// a single drive lie five powers of ten.
const FURTHEST: f64 = 1e6;
/// An interval whose ends are further apart than this factor, and that holds "no change", says nothing at all.
const WIDEST: f64 = 100.0;

/// The names of the figures that runs are compared by, in the order of the effects.
pub fn figures_of_runs() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|figure| figure.name)
}

/// The effects that `figure` stands for. `iops` also stands for the plateau of sweeps and for the rate of each phase on
/// files; the name of a sweep's figure stands for that figure of every engine.
pub fn of_figure<'a>(effects: &'a [Effect], figure: &str) -> Vec<&'a Effect> {
    let is_asked = |effect: &&Effect| {
        let name = effect.figure.split(" of ").next().unwrap_or_default();
        let rate = name == "plateau_iops" || name.ends_with(":files_per_s");
        effect.figure == figure || name == figure || (figure == "iops" && rate)
    };
    effects.iter().filter(is_asked).collect()
}

/// The effects of pairs of runs that were interleaved A B A B: each pair shares its drift. Figures that fewer than two
/// pairs have are left out. The values of a side are geometric means, so that their ratio is the change.
///
/// A comparison that may end at each of `looks` looks shares the 5 % among them (Bonferroni): its interval holds
/// the truth with 95 % at whichever look it ends.
pub fn paired(runs: &[(RunResult, RunResult)], looks: u32) -> Vec<Effect> {
    let error = 0.05 / f64::from(looks.max(1));
    let effect = |figure: &Figure| {
        let pairs: Vec<(f64, f64)> =
            runs.iter().filter_map(|(a, b)| Some(((figure.of)(a)?, (figure.of)(b)?))).collect();
        let change = stats::paired_change(&pairs, error)?;
        let side = |of: fn(&(f64, f64)) -> f64| geometric(&pairs.iter().map(of).collect::<Vec<f64>>());
        Some(Effect {
            figure: figure.name.into(),
            larger_is_better: Some(figure.larger_is_better),
            a: side(|pair| pair.0),
            b: side(|pair| pair.1),
            change,
            cannot_tell: beyond_sense(&change),
        })
    };
    FIGURES.iter().filter_map(effect).collect()
}

/// The geometric mean of positive values with its 95 % interval.
fn geometric(values: &[f64]) -> Estimate {
    // The values are compared with one: the "change" of each is the value itself, less one.
    let change = stats::paired_change(&values.iter().map(|&value| (1.0, value)).collect::<Vec<_>>(), 0.05);
    change.map_or_else(Estimate::default, |Estimate { mean, low, high }| Estimate {
        mean: mean + 1.0,
        low: low + 1.0,
        high: high + 1.0,
    })
}

/// [`CannotTell::BeyondSense`] if two measurements cannot have this change; None if they can.
pub fn beyond_sense(change: &Estimate) -> Option<CannotTell> {
    let [mean, low, high] = [change.mean, change.low, change.high].map(|change| change + 1.0);
    let sensible = mean.is_finite() && mean > 0.0 && (1.0 / FURTHEST..=FURTHEST).contains(&mean);
    let blind = low <= 1.0 && high >= 1.0 && high > low.max(0.0) * WIDEST;
    (!sensible || blind).then_some(CannotTell::BeyondSense)
}

/// The effects of two results measured apart, from the samples of their intervals. A figure without samples over time
/// has its value over the whole run, and [`CannotTell::NoInterval`].
pub fn unpaired(a: &RunResult, b: &RunResult) -> Vec<Effect> {
    let effect = |figure: &Figure| {
        let of_samples = figure.samples.and_then(|samples| {
            let (a, b) = (samples(a), samples(b));
            let change = stats::unpaired_change(&a, &b)?;
            Some(Effect {
                figure: figure.name.into(),
                larger_is_better: Some(figure.larger_is_better),
                a: stats::estimate(&a),
                b: stats::estimate(&b),
                change,
                cannot_tell: beyond_sense(&change),
            })
        });
        of_samples.or_else(|| of_values(figure.name.into(), figure.larger_is_better, (figure.of)(a)?, (figure.of)(b)?))
    };
    FIGURES.iter().filter_map(effect).collect()
}

/// The effects of two runs on files measured apart: of each phase that both have, the rate and the 99th percentile of
/// each operation's latency. Rates have intervals where both phases took long enough to be looked at time and again.
pub fn of_files(a: &FilesResult, b: &FilesResult) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut seen = std::collections::HashMap::<&str, usize>::new();
    for phase in &a.phases {
        // A phase that is there several times is compared with its own like: the second with the second.
        let nth = seen.entry(&phase.name).or_default();
        let Some(other) = b.phases.iter().filter(|other| other.name == phase.name).nth(*nth) else { continue };
        *nth += 1;
        let name = if *nth > 1 { format!("{}#{nth}", phase.name) } else { phase.name.clone() };
        effects.extend(of_rates(format!("{name}:files_per_s"), phase, other));
        for operation in &phase.operations {
            let theirs = other.operations.iter().find(|theirs| theirs.operation == operation.operation);
            // With fewer than ten samples beyond it, a percentile is noise.
            let enough = |latencies: &Histogram| latencies.count() >= 1000;
            let Some(theirs) = theirs.filter(|theirs| enough(&theirs.lat_ns) && enough(&operation.lat_ns)) else {
                continue;
            };
            let figure = match phase.operations.len() {
                1 => format!("{name}:lat_p99"),
                _ => format!("{name}:{}:lat_p99", operation.operation),
            };
            let p99 = |latencies: &Histogram| latencies.quantile(0.99) as f64;
            effects.extend(of_values(figure, false, p99(&operation.lat_ns), p99(&theirs.lat_ns)));
        }
    }
    effects
}

fn of_rates(figure: String, a: &PhaseResult, b: &PhaseResult) -> Option<Effect> {
    let rate = |phase: &PhaseResult| phase.total.files_per_second(phase.runtime_ns);
    let mut effect = of_values(figure, true, rate(a), rate(b))?;
    let (of_a, of_b) = (rates_over_time(a), rates_over_time(b));
    // With fewer rates, the interval says more of luck than of the phase.
    const FEWEST: usize = 8;
    if of_a.len() >= FEWEST
        && of_b.len() >= FEWEST
        && let Some(change) = stats::unpaired_change(&of_a, &of_b)
    {
        let cannot_tell = beyond_sense(&change);
        effect = Effect { a: stats::estimate(&of_a), b: stats::estimate(&of_b), change, cannot_tell, ..effect };
    }
    Some(effect)
}

fn of_values(figure: String, larger_is_better: bool, a: f64, b: f64) -> Option<Effect> {
    let alone = |value: f64| Estimate { mean: value, low: value, high: value };
    let change = alone(positive(b)? / positive(a)? - 1.0);
    Some(Effect {
        figure,
        larger_is_better: Some(larger_is_better),
        a: alone(a),
        b: alone(b),
        change,
        cannot_tell: Some(CannotTell::NoInterval),
    })
}

/// Files per second in each interval of a phase.
fn rates_over_time(phase: &PhaseResult) -> Vec<f64> {
    let mut before = crate::schema::PhaseInterval::default();
    let rate = |now: &crate::schema::PhaseInterval| {
        let (files, ns) = (now.files.saturating_sub(before.files), now.end_ns.saturating_sub(before.end_ns));
        before = *now;
        files as f64 * 1e9 / ns.max(1) as f64
    };
    phase.intervals.iter().map(rate).collect()
}

/// The side that an effect speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The whole interval is on the better side of zero.
    Better,
    /// The whole interval is on the worse side of zero.
    Worse,
    /// The whole interval is above zero, and neither side is better for it.
    Larger,
    /// The whole interval is below zero, and neither side is better for it.
    Smaller,
    /// The interval holds zero, or there is no interval.
    Undecided,
}

impl Effect {
    /// The second side against the first, as far as the interval tells.
    pub fn outcome(&self) -> Outcome {
        if self.cannot_tell.is_some() {
            return Outcome::Undecided;
        }
        match (self.change.low > 0.0, self.change.high < 0.0, self.larger_is_better) {
            (false, false, _) => Outcome::Undecided,
            (true, _, Some(true)) | (_, true, Some(false)) => Outcome::Better,
            (true, _, Some(false)) | (_, true, Some(true)) => Outcome::Worse,
            (true, _, None) => Outcome::Larger,
            (_, true, None) => Outcome::Smaller,
        }
    }
}

/// A figure as a sentence names it.
pub fn in_words(figure: &str) -> String {
    let rate_of_phase = figure.strip_suffix(":files_per_s").map(|phase| format!("files/s of {phase}"));
    match figure {
        "iops" => "IOPS".into(),
        "bw" => "bandwidth".into(),
        "lat_mean" => "mean latency".into(),
        "lat_p99" => "99th percentile of latency".into(),
        "cpu_per_op" => "CPU time per op".into(),
        other => rate_of_phase.unwrap_or_else(|| {
            other
                .replace("plateau_iops", "plateau")
                .replace("load_line", "load line")
                .replace("kept_iops", "IOPS within the objectives")
        }),
    }
}

/// Plain sentences that say which side is better in `figure`, by how much, and how sure that is. The text begins with
/// the verdicts that make the numbers invalid, if there are any. `sides` are the names of A and B.
pub fn sentence(sides: (&str, &str), effects: &[Effect], figure: &str, verdicts: &[Verdict]) -> String {
    let mut invalid: Vec<&str> =
        verdicts.iter().filter(|one| one.severity == Severity::Invalid).map(|one| one.code.as_str()).collect();
    invalid.dedup();
    let (a, b) = (format!("A ({})", sides.0), format!("B ({})", sides.1));
    let asked = of_figure(effects, figure);
    let told = match asked.as_slice() {
        [] => format!("{a} and {b} cannot be compared in {}: they have no value of it in common.", in_words(figure)),
        asked => {
            asked.iter().map(|effect| told(&a, &b, effect, &against(effect, effects))).collect::<Vec<_>>().join(" ")
        }
    };
    match invalid.as_slice() {
        [] => told,
        codes => format!("Invalid ({}): the numbers do not describe the storage. {told}", codes.join(", ")),
    }
}

/// The latencies in which B is worse, where B is better in throughput: the one is often the price of the other.
fn against<'a>(effect: &Effect, effects: &'a [Effect]) -> Vec<&'a Effect> {
    let is_against = |one: &&Effect| one.figure.starts_with("lat_") && one.outcome() == Outcome::Worse;
    if matches!(effect.figure.as_str(), "iops" | "bw") {
        effects.iter().filter(is_against).collect()
    } else {
        Vec::new()
    }
}

fn worse(effect: &Effect) -> String {
    let Estimate { mean, low, high } = effect.change;
    let range = format!("95 % interval {} to {}", figures::change(low), figures::change(high));
    format!("its {} is worse: {} ({range})", in_words(&effect.figure), figures::change(mean))
}

fn told(a: &str, b: &str, effect: &Effect, against: &[&Effect]) -> String {
    let name = in_words(&effect.figure);
    let Estimate { mean, low, high } = effect.change;
    let range = format!("95 % interval {} to {}", figures::change(low), figures::change(high));
    match (effect.cannot_tell, effect.outcome()) {
        (Some(CannotTell::NoInterval), _) => format!(
            "{b} has {} {name} against {a}, but nothing tells that from noise: each side has one value and no course \
             over time.",
            figures::change(mean)
        ),
        (Some(CannotTell::Unnamed), _) => format!(
            "{name}: it cannot be told which of {a} and {b} is better; the sweep of a side cannot name a load line, so \
             its plateau means nothing."
        ),
        (Some(CannotTell::LowerBound), _) => format!(
            "{name}: it cannot be told which of {a} and {b} is better; a curve still rose at its deepest point, so its \
             value is a lower bound."
        ),
        (Some(CannotTell::NotKept), _) => format!(
            "{name}: it cannot be told which of {a} and {b} is better; the sweep of a side cannot tell what keeps the \
             objectives."
        ),
        (Some(CannotTell::NotBroken), _) => format!(
            "{name}: it cannot be told which of {a} and {b} is better; nothing that a side measured breaks the \
             objectives, so its value is a lower bound."
        ),
        (Some(CannotTell::Remembers), _) => format!(
            "{name}: it cannot be told which of {a} and {b} is better; their ratio depends on how long a turn lasts, so \
             the storage remembers the side before."
        ),
        (Some(CannotTell::BeyondSense), _) => format!(
            "{name}: it cannot be told which of {a} and {b} is better; their values are further apart, or scatter \
             more, than two measurements of the same thing can."
        ),
        (None, Outcome::Undecided) => {
            let widest = figures::change(if low.abs() > high.abs() { low } else { high });
            format!(
                "No difference in {name} between {a} and {b} can be told from noise ({range}); if there is one, it is \
                 within {}.",
                widest.trim_start_matches(['+', '-'])
            )
        }
        (None, Outcome::Better) if !against.is_empty() => format!(
            "{b} and {a} each have something for them: {name} of B {} ({range}), but {}.",
            figures::change(mean),
            against.iter().map(|effect| worse(effect)).collect::<Vec<_>>().join(", ")
        ),
        (None, Outcome::Better) => format!("{b} is better than {a}: {name} {} ({range}).", figures::change(mean)),
        (None, Outcome::Worse) => format!("{b} is worse than {a}: {name} {} ({range}).", figures::change(mean)),
        (None, Outcome::Larger | Outcome::Smaller) => format!(
            "{b} has another {name} than {a}: {} ({range}); throughput and latency tell which is better.",
            figures::change(mean)
        ),
    }
}

fn seconds(job: &JobResult) -> Option<f64> {
    (job.runtime_ns > 0).then_some(job.runtime_ns as f64 / 1e9)
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

fn iops(run: &RunResult) -> Option<f64> {
    positive(run.jobs.iter().filter_map(|job| Some(job.total_ops() as f64 / seconds(job)?)).sum())
}

fn bytes_per_second(run: &RunResult) -> Option<f64> {
    positive(run.jobs.iter().filter_map(|job| Some(job.total_bytes() as f64 / seconds(job)?)).sum())
}

fn latencies(run: &RunResult) -> Histogram {
    let mut all = Histogram::new();
    run.jobs.iter().for_each(|job| all.merge(&job.lat_ns()));
    all
}

fn lat_mean(run: &RunResult) -> Option<f64> {
    positive(latencies(run).mean())
}

fn lat_p99(run: &RunResult) -> Option<f64> {
    let all = latencies(run);
    // With fewer than ten samples beyond it, a percentile is noise.
    (all.count() >= 1000).then(|| all.quantile(0.99) as f64)
}

fn cpu_per_op(run: &RunResult) -> Option<f64> {
    let used: f64 = run.jobs.iter().map(|job| (job.cpu.user_ns + job.cpu.system_ns) as f64).sum();
    let ops: u64 = run.jobs.iter().map(JobResult::total_ops).sum();
    positive(used / ops.max(1) as f64)
}

/// A figure of the intervals of all jobs; jobs that ran together are added up interval by interval.
fn over_time(run: &RunResult, of: impl Fn(&[&Interval]) -> Option<f64>) -> Vec<f64> {
    let mut together: std::collections::BTreeMap<u64, Vec<&Interval>> = Default::default();
    let start = run.jobs.iter().map(|job| job.start_unix_ms).min().unwrap_or(0);
    for job in &run.jobs {
        let step = job.interval_ns.max(1);
        for interval in job.intervals.iter().filter(|interval| interval.length_ns > 0 && interval.length_ns * 2 >= step)
        {
            let end_ns = interval.end_ns.saturating_add((job.start_unix_ms - start).saturating_mul(1_000_000));
            together.entry(end_ns.saturating_sub(1) / step).or_default().push(interval);
        }
    }
    together.values().filter_map(|intervals| of(intervals)).collect()
}

fn total(intervals: &[&Interval], of: impl Fn(&Interval, Direction) -> u64) -> f64 {
    intervals.iter().flat_map(|interval| Direction::ALL.map(|direction| of(interval, direction))).sum::<u64>() as f64
}

/// The rate of all jobs together in each step of time.
fn together(run: &RunResult, of: impl Fn(&Interval, Direction) -> u64) -> Vec<f64> {
    let start = run.jobs.iter().map(|job| job.start_unix_ms).min().unwrap_or(0);
    let step_ns = run.jobs.iter().map(|job| job.interval_ns).max().unwrap_or(0);
    let mut sums: Vec<Option<f64>> = Vec::new();
    for job in &run.jobs {
        let shift_ns = (job.start_unix_ms - start).saturating_mul(1_000_000);
        let count = |interval: &Interval| Direction::ALL.iter().map(|&direction| of(interval, direction)).sum();
        let mine = rates::over_steps(&job.intervals, step_ns, shift_ns, count);
        sums.resize(sums.len().max(mine.len()), None);
        for (sum, mine) in sums.iter_mut().zip(mine) {
            *sum = mine.map(|mine| sum.unwrap_or(0.0) + mine).or(*sum);
        }
    }
    sums.into_iter().flatten().collect()
}

fn iops_samples(run: &RunResult) -> Vec<f64> {
    together(run, |interval, direction| interval.ops[direction])
}

fn bytes_samples(run: &RunResult) -> Vec<f64> {
    together(run, |interval, direction| interval.bytes[direction])
}

fn lat_mean_samples(run: &RunResult) -> Vec<f64> {
    over_time(run, |intervals| {
        let ops = total(intervals, |interval, d| interval.ops[d]);
        positive(total(intervals, |interval, d| interval.lat_sum_ns[d]) / ops.max(1.0))
    })
}

fn lat_p99_samples(run: &RunResult) -> Vec<f64> {
    over_time(run, |intervals| {
        let mut all = Histogram::new();
        intervals.iter().filter_map(|interval| interval.lat_ns.as_ref()).for_each(|histogram| all.merge(histogram));
        (all.count() >= 1000).then(|| all.quantile(0.99) as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{OperationResult, PhaseInterval, Work};

    /// A phase at `rate` files per second, looked at `intervals` times.
    fn phase(name: &str, rate: u64, intervals: u64, noise: &mut Noise) -> PhaseResult {
        let (mut at, mut beats) = (0, Vec::new());
        for index in 1..=intervals {
            at += (rate as f64 / 20.0 * (1.0 + 0.02 * noise.normal())) as u64;
            beats.push(PhaseInterval { end_ns: index * 50_000_000, files: at, bytes: at * 4096 });
        }
        let mut lat_ns = Histogram::new();
        lat_ns.record_many(1_000_000_000 / rate, 2000);
        PhaseResult {
            name: name.into(),
            runtime_ns: 1_000_000_000,
            total: Work { files: rate, ..Work::default() },
            operations: vec![OperationResult { operation: name.into(), lat_ns }],
            intervals: beats,
            ..PhaseResult::default()
        }
    }

    #[test]
    fn runs_on_files_are_compared_phase_by_phase() {
        let mut noise = Noise::new(5);
        let mut files = |rates: [(&str, u64, u64); 3]| FilesResult {
            phases: rates.map(|(name, rate, intervals)| phase(name, rate, intervals, &mut noise)).into(),
            ..FilesResult::default()
        };
        let a = files([("create", 1000, 20), ("stat", 9000, 3), ("create", 500, 20)]);
        let b = files([("create", 900, 20), ("stat", 18_000, 20), ("create", 500, 20)]);
        let effects = of_files(&a, &b);
        let create = of(&effects, "create:files_per_s");
        assert!(create.outcome() == Outcome::Worse && (create.change.mean + 0.1).abs() < 0.02, "{create:?}");
        let stat = of(&effects, "stat:files_per_s");
        assert!(
            stat.cannot_tell == Some(CannotTell::NoInterval)
                && stat.outcome() == Outcome::Undecided
                && stat.change.mean == 1.0,
            "{stat:?}"
        );
        assert!(of(&effects, "create#2:files_per_s").change.mean.abs() < 0.02);
        assert!(of(&effects, "stat:lat_p99").change.mean < -0.4);
        let said = sentence(("a", "b"), &effects, "iops", &[]);
        assert!(said.starts_with("B (b) is worse than A (a): files/s of create -"), "{said}");
        assert!(said.contains("B (b) has +100 % files/s of stat against A (a), but nothing tells"), "{said}");
    }

    use crate::stats::test_noise::Noise;

    /// Ten seconds at `rate` ops per second, in intervals of half a second, each off by two percent.
    fn run(rate: f64, latency_ns: u64, noise: &mut Noise) -> RunResult {
        let mut job = JobResult { runtime_ns: 10_000_000_000, interval_ns: 500_000_000, ..JobResult::default() };
        for index in 1..=20u64 {
            let ops = (rate / 2.0 * (1.0 + 0.02 * noise.normal())) as u64;
            let mut interval = Interval { end_ns: index * 500_000_000, length_ns: 500_000_000, ..Interval::default() };
            (interval.ops.read, interval.bytes.read, interval.lat_sum_ns.read) = (ops, ops * 4096, ops * latency_ns);
            job.intervals.push(interval);
            job.directions.read.ops += ops;
            job.directions.read.bytes += ops * 4096;
            job.directions.read.lat_ns.record_many(latency_ns, ops);
        }
        job.cpu.user_ns = job.directions.read.ops * 3_000;
        RunResult { jobs: vec![job], ..RunResult::default() }
    }

    #[test]
    fn a_stall_counts_for_its_whole_length() {
        let mut stalled = run(10_000.0, 100_000, &mut Noise::new(5));
        // Four seconds without an op: one long interval, which the blocked generator closed at its end.
        let intervals = &mut stalled.jobs[0].intervals;
        let stall = Interval { end_ns: 9_000_000_000, length_ns: 4_000_000_000, ..Interval::default() };
        intervals.splice(10..18, [stall]);
        let (ops, mean) = (intervals.iter().map(|i| i.ops.read).sum::<u64>(), stats::mean(&iops_samples(&stalled)));
        assert!((mean - ops as f64 / 10.0).abs() < 1.0, "{mean} of {ops} in ten seconds");
    }

    fn of<'a>(effects: &'a [Effect], figure: &str) -> &'a Effect {
        effects.iter().find(|effect| effect.figure == figure).unwrap()
    }

    #[test]
    fn a_difference_is_found_and_a_shared_drift_is_not_taken_for_one() {
        let mut noise = Noise::new(3);
        let runs: Vec<_> = (0..6)
            .map(|i| {
                let drift = 1.0 + 0.2 * f64::from(i);
                (run(10_000.0 * drift, 100_000, &mut noise), run(11_000.0 * drift, 90_000, &mut noise))
            })
            .collect();
        let effects = paired(&runs, 1);
        assert_eq!(effects.len(), 5);
        let iops = of(&effects, "iops");
        assert!(iops.outcome() == Outcome::Better && (iops.change.low..=iops.change.high).contains(&0.1), "{iops:?}");
        assert!(of(&effects, "lat_mean").outcome() == Outcome::Better);
        assert!(iops.a.high - iops.a.low > 0.2 * iops.a.mean, "the sides alone are drowned in drift");
        let said = sentence(("old", "new"), &effects, "iops", &[]);
        assert!(said.starts_with("B (new) is better than A (old): IOPS +1"), "{said}");
        for effect in &effects {
            let ratio = effect.b.mean / effect.a.mean - 1.0;
            assert!((ratio - effect.change.mean).abs() < 1e-9, "columns and change disagree: {effect:?}");
        }
    }

    #[test]
    fn two_results_are_compared_by_their_intervals() {
        let mut noise = Noise::new(4);
        let (a, b) = (run(10_000.0, 100_000, &mut noise), run(9_000.0, 111_000, &mut noise));
        let effects = unpaired(&a, &b);
        let iops = of(&effects, "iops");
        assert!(iops.outcome() == Outcome::Worse && (-0.2..-0.03).contains(&iops.change.mean), "{iops:?}");
        assert!(of(&effects, "lat_mean").outcome() == Outcome::Worse);
        let cpu = of(&effects, "cpu_per_op");
        assert!(cpu.cannot_tell == Some(CannotTell::NoInterval) && cpu.outcome() == Outcome::Undecided, "{cpu:?}");
    }

    #[test]
    fn the_same_twice_is_no_difference() {
        let mut noise = Noise::new(5);
        let (a, b) = (run(10_000.0, 100_000, &mut noise), run(10_000.0, 100_000, &mut noise));
        let effects = unpaired(&a, &b);
        assert_eq!(of(&effects, "iops").outcome(), Outcome::Undecided);
        assert!(sentence(("a", "b"), &effects, "iops", &[]).starts_with("No difference in IOPS"));
    }

    #[test]
    fn nothing_to_compare_is_said() {
        assert_eq!(unpaired(&RunResult::default(), &RunResult::default()), []);
        assert_eq!(paired(&[], 1), []);
        assert!(sentence(("a", "b"), &[], "iops", &[]).contains("cannot be compared"));
    }

    #[test]
    fn more_throughput_at_the_price_of_latency_is_not_better() {
        let changed = |figure: &str, larger_is_better, mean: f64| Effect {
            figure: figure.into(),
            larger_is_better: Some(larger_is_better),
            change: Estimate { mean, low: mean * 0.9, high: mean * 1.1 },
            ..Effect::default()
        };
        let said = sentence(("a", "b"), &[changed("iops", true, 0.5), changed("lat_p99", false, 6.0)], "iops", &[]);
        assert!(!said.contains("is better than") && said.contains("99th percentile of latency is worse"), "{said}");
        let said = sentence(("a", "b"), &[changed("iops", true, 0.5), changed("lat_p99", false, -0.3)], "iops", &[]);
        assert!(said.contains("B (b) is better than A (a)"), "{said}");
    }

    #[test]
    fn the_sentence_speaks_of_the_figure_that_was_asked_for() {
        let mut noise = Noise::new(6);
        let effects = unpaired(&run(10_000.0, 100_000, &mut noise), &run(9_000.0, 50_000, &mut noise));
        let said = sentence(("a", "b"), &effects, "lat_mean", &[]);
        assert!(said.starts_with("B (b) is better than A (a): mean latency -"), "{said}");
    }

    #[test]
    fn two_pairs_that_scatter_wildly_say_nothing() {
        let mut noise = Noise::new(7);
        let mut at = |rate| run(rate, 100_000, &mut noise);
        let runs = [(at(1_000.0), at(1_000.0)), (at(1_000.0), at(40_000.0))];
        let effects = paired(&runs, 1);
        let iops = of(&effects, "iops");
        assert_eq!((iops.cannot_tell, iops.outcome()), (Some(CannotTell::BeyondSense), Outcome::Undecided), "{iops:?}");
        assert!(sentence(("a", "b"), &effects, "iops", &[]).contains("cannot be told"));
        // A difference that is large and sure makes sense.
        let change = Estimate { mean: -0.99999, low: -0.999995, high: -0.9999 };
        assert_eq!(beyond_sense(&change), None);
        assert_eq!(beyond_sense(&Estimate { mean: 2e7, low: 1e7, high: 3e7 }), Some(CannotTell::BeyondSense));
    }
}

//! The judgement on a curve of a sweep, and the statements that a sweep or a comparison makes as it goes.

use super::check::{Basis, Judgement};
use super::generator::RATE_MET;
use super::job::{clones, has_rate, seconds};
use super::{Severity, Verdict, verdict};
use crate::Direction;
use crate::figures::{count, percent, plain};
use crate::schema::{Answer, Curve, Estimate, Limit, Point};
use crate::stats::relative_half_width;

/// Part of the generator's own rate above which the curve may be the generator's: its cost adds to that of the storage.
const NEAR_CEILING: f64 = 0.8;
/// Half an interval, as a part of the mean, from which on neighbouring depths cannot be told apart.
const UNCERTAIN: f64 = 0.05;
/// Part of the deepest depth from which on a load line shows that the range of depths is too narrow, not the sweep.
const NEAR_DEEPEST: f64 = 0.25;
/// Factor between a visit and all others from which on it is an accident: the error of a visit that names a line is
/// less than 4 %.
const LONE_PEAK: f64 = 1.1;

/// The judgement on a curve as a whole. `has_line` tells whether throughput over the axis rises to a plateau.
pub fn for_curve(curve: &Curve, has_line: bool, ceiling_iops: Option<Estimate>) -> Judgement {
    let mut judged = Judgement::default();
    let line = || Basis::applies(curve.line.is_some());
    let limits = || [&curve.saturation, &curve.kept].into_iter().flatten();
    judged.enter(
        "no-limit",
        Basis::applies(limits().next().is_some()),
        limits().find_map(|limit| no_limit(curve, limit)),
    );
    judged.enter("too-few-points", Basis::applies(has_line), too_few_points(curve).filter(|_| has_line));
    judged.enter("no-load-line", line(), no_load_line(curve));
    let revisited = curve.points.iter().any(|point| point.visits.len() > 1);
    let peak = Basis::Known.needs(revisited, "no depth was visited at several times");
    judged.enter("lone-peak", peak, lone_peak(curve));
    judged.enter(
        "rate-limited",
        Basis::applies(has_line && curve.points.iter().any(|point| has_rate(&point.job))),
        rate_limited(curve).filter(|_| has_line),
    );
    let plateau = || {
        let known = curve.line.as_ref().is_none_or(|line| line.plateau().is_some());
        line().needs(known, "the sweep cannot name a load line, so its plateau is not known")
    };
    judged.enter("still-rising", plateau(), still_rising(curve));
    let ceiling = plateau().needs(ceiling_iops.is_some(), "the generator was not measured without storage");
    judged.enter("generator-ceiling", ceiling, generator_ceiling(curve, ceiling_iops));
    let points = Basis::Known.needs(!curve.points.is_empty(), "the curve has no points");
    judged.enter("uncertain", points, uncertain(curve));
    judged
}

fn no_limit(curve: &Curve, limit: &Limit) -> Option<Verdict> {
    let reason = limit.unnamed.as_ref()?;
    let conditions = limit.conditions.join(", ");
    Some(verdict(
        "no-limit",
        Severity::Warning,
        format!("{}: the sweep cannot name a limit for {conditions}: {reason}", curve.label),
        "The rows are real, but no row is sure to keep the conditions.",
        "Give the sweep more --time, smaller values of the axis, or a wider objective.",
    ))
}

fn too_few_points(curve: &Curve) -> Option<Verdict> {
    curve.line.is_none().then(|| {
        verdict(
            "too-few-points",
            Severity::Warning,
            format!("{}: the sweep has {} depths", curve.label, curve.points.len()),
            "A load line needs at least three depths.",
            "Give a wider --iodepth, or more time.",
        )
    })
}

fn no_load_line(curve: &Curve) -> Option<Verdict> {
    let Answer::Unnamed(reason) = curve.line.as_ref()?.answer() else { return None };
    Some(verdict(
        "no-load-line",
        Severity::Warning,
        format!("{}: the sweep cannot name a load line: {reason}", curve.label),
        "The rows are real, but the storage may not be the cause of the differences between them.",
        "Quiet the machine, or give the sweep more --time, and sweep again.",
    ))
}

fn lone_peak(curve: &Curve) -> Option<Verdict> {
    let peaks = curve.points.iter().filter_map(|point| {
        let mut means = point.visit_means();
        means.sort_by(f64::total_cmp);
        let (highest, others) = means.split_last()?;
        let next = others.last()?;
        let level = curve.line.as_ref().map_or(*next, |line| line.plateau_iops.mean).max(*next);
        (*highest > level * LONE_PEAK).then_some((point.x, *highest, others[0], *next))
    });
    let (x, highest, low, high) = peaks.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = if low < high { format!("{} to {}", count(low), count(high)) } else { count(high) };
    Some(verdict(
        "lone-peak",
        Severity::Note,
        format!("{}: one visit to {} gave {} IOPS, the others {others}", curve.label, plain(x), count(highest)),
        "The machine was faster at that moment, or answered from a cache: plateau and load line come from the other visits.",
        "Look for a cache below the target, or for another program; give the sweep more --time.",
    ))
}

fn rate_limited(curve: &Curve) -> Option<Verdict> {
    let at_rate = |point: &Point| {
        Direction::ALL.into_iter().any(|direction| {
            let (job, result) = (&point.job, &point.job.directions[direction]);
            let near = |asked: Option<f64>, done: u64| {
                asked.is_some_and(|asked| done as f64 / seconds(job).max(1e-9) >= asked * clones(job) * RATE_MET)
            };
            near(job.facts.rate_iops[direction], result.ops) || near(job.facts.rate_bytes[direction], result.bytes)
        })
    };
    let point = curve.points.iter().find(|point| at_rate(point))?;
    Some(verdict(
        "rate-limited",
        Severity::Warning,
        format!("{}: from depth {} on, the job's rate is the limit", curve.label, plain(point.x)),
        "The plateau is the rate, and the load line is the smallest depth that reaches it: the storage may do more.",
        "Leave out rate and rate_iops to find the storage's own load line.",
    ))
}

fn still_rising(curve: &Curve) -> Option<Verdict> {
    let line = curve.line.as_ref().filter(|line| line.answer() == Answer::Beyond)?;
    let deepest = curve.points.last()?.x;
    Some(verdict(
        "still-rising",
        Severity::Warning,
        format!("{}: throughput still rises at {}, the deepest measured", curve.label, plain(deepest)),
        "The real plateau lies beyond this depth: plateau and load line are lower bounds.",
        if line.load_line.is_some_and(|line| line.mean >= deepest * NEAR_DEEPEST) {
            "Sweep deeper: --iodepth 1..4096, or raise numjobs."
        } else {
            "Sweep deeper."
        },
    ))
}

fn generator_ceiling(curve: &Curve, ceiling_iops: Option<Estimate>) -> Option<Verdict> {
    let plateau = curve.line.as_ref()?.plateau()?.mean;
    let ceiling = ceiling_iops?.mean;
    (curve.label != "null" && plateau > ceiling * NEAR_CEILING).then(|| {
        verdict(
            "generator-ceiling",
            Severity::Warning,
            format!(
                "{}: the plateau of {} IOPS is {} of the generator's throughput without storage ({})",
                curve.label,
                count(plateau),
                percent(plateau / ceiling),
                count(ceiling)
            ),
            "The curve may describe the generator, not the storage.",
            "Raise numjobs, use larger blocks, or a machine with more CPUs.",
        )
    })
}

fn uncertain(curve: &Curve) -> Option<Verdict> {
    let wide: Vec<String> = curve
        .points
        .iter()
        .filter(|point| point.samples.len() < 2 || relative_half_width(&point.iops) > UNCERTAIN)
        .map(|point| plain(point.x))
        .collect();
    (!wide.is_empty()).then(|| {
        verdict(
            "uncertain",
            Severity::Note,
            format!("{}: IOPS are uncertain by more than 5 % at {}", curve.label, wide.join(", ")),
            "Differences between neighbouring depths may be noise there; the intervals of plateau and load line include it.",
            "Give the sweep more time, or quiet the machine.",
        )
    })
}

/// The verdict on a sweep whose default engine does not work here, for the reason given.
pub fn engine_replaced(wanted: &str, taken: &str, reason: &str) -> Verdict {
    verdict(
        "engine-replaced",
        Severity::Warning,
        format!("{wanted} does not work here ({reason}), so {taken} replaces it"),
        "On machines where the preferred engine works, the curve belongs to that engine.",
        "Remove the limit (ulimit -l, sysctl kernel.io_uring_disabled, a container's seccomp filter), or name the engine.",
    )
}

/// The verdict on a comparison of sides `a` and `b` that move blocks of different sizes, each given as people write it.
pub fn different_blocks(a: &str, b: &str) -> Verdict {
    verdict(
        "different-blocks",
        Severity::Warning,
        format!("A moves blocks of {a}, B of {b}"),
        "An op of one side is not the same work as an op of the other: IOPS, latency and CPU time per op differ for that \
         reason alone.",
        "Give both sides the same bs, or compare them in bandwidth (--figure=bw).",
    )
}

/// The verdict on a sweep whose target does not take O_DIRECT.
pub fn no_direct_io(target: &str) -> Verdict {
    verdict(
        "no-direct-io",
        Severity::Warning,
        format!("{target} does not take O_DIRECT, so the sweep goes through the page cache"),
        "Data that are read twice come from memory, and written data may not have reached the device.",
        "Sweep a directory on a filesystem with direct I/O, or the block device.",
    )
}

/// The verdict on a curve that ended because a depth cannot be run at all, for the reason given.
pub fn depth_not_possible(label: &str, depth: f64, reason: &str) -> Verdict {
    verdict(
        "depth-not-possible",
        Severity::Note,
        format!("{label} ends below {}: {reason}", plain(depth)),
        "The measured part of the curve is right.",
        "Remove the limit, or give --iodepth a smaller range.",
    )
}

//! The judgement on a curve of a sweep, and the statements that a sweep or a comparison makes as it goes.

use super::check::{Basis, Judgement};
use super::generator::RATE_MET;
use super::job::{clones, has_rate, seconds};
use super::{Severity, Verdict, verdict};
use crate::Direction;
use crate::axis::{AxisKind, flag, place};
use crate::figures::{axis_value, change, count, nanoseconds, percent};
use crate::limit::KEEPS_UP;
use crate::schema::{Answer, Curve, Estimate, Limit, Point, Preconditioning, Visit};
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
/// Standard deviations of random arrivals that a peak must exceed, too: a visit under a rate has more ops than others
/// by chance.
const CHANCE_OF_ARRIVALS: f64 = 4.0;

/// The judgement on a curve as a whole. `axis` is the option that its points differ in; empty means `iodepth`.
pub fn for_curve(curve: &Curve, axis: &str, ceiling_iops: Option<Estimate>) -> Judgement {
    let mut judged = Judgement::default();
    let has_line = AxisKind::of(axis).has_load_line();
    let line = || Basis::applies(curve.line.is_some());
    let limits = || [&curve.saturation, &curve.kept].into_iter().flatten();
    judged.enter(
        "no-limit",
        Basis::applies(limits().next().is_some()),
        limits().find_map(|limit| no_limit(curve, axis, limit)),
    );
    judged.enter("too-few-points", Basis::applies(has_line), too_few_points(curve, axis).filter(|_| has_line));
    judged.enter("no-load-line", line(), no_load_line(curve));
    let revisited = curve.points.iter().any(|point| point.visits.len() > 1);
    let peak = Basis::Known.needs(revisited, AxisKind::of(axis).visited_once());
    judged.enter("lone-peak", peak, lone_peak(curve, axis));
    judged.enter(
        "rate-limited",
        Basis::applies(has_line && curve.points.iter().any(|point| has_rate(&point.job))),
        rate_limited(curve, axis).filter(|_| has_line),
    );
    let plateau = || {
        let known = curve.line.as_ref().is_none_or(|line| line.plateau().is_some());
        line().needs(known, "the sweep cannot name a load line, so its plateau is not known")
    };
    judged.enter("still-rising", plateau(), still_rising(curve, axis));
    let ceiling = plateau().needs(ceiling_iops.is_some(), "the generator was not measured without storage");
    judged.enter("generator-ceiling", ceiling, generator_ceiling(curve, axis, ceiling_iops));
    let points = Basis::Known.needs(!curve.points.is_empty(), "the curve has no points");
    judged.enter("uncertain", points, uncertain(curve, axis));
    judged
}

fn no_limit(curve: &Curve, axis: &str, limit: &Limit) -> Option<Verdict> {
    let reason = limit.unnamed.as_ref()?;
    let objectives: Vec<&str> =
        limit.conditions.iter().map(String::as_str).filter(|condition| *condition != KEEPS_UP).collect();
    let wanted = match objectives.is_empty() {
        true => "the rate that the system keeps up with".to_string(),
        false => format!("a limit for {}", objectives.join(", ")),
    };
    let smaller = format!("smaller {} ({})", AxisKind::of(axis).several(), flag(axis));
    let advice = match objectives.is_empty() {
        true => format!("Give the sweep more --time, or {smaller}."),
        false => format!("Give the sweep more --time, {smaller}, or a wider objective."),
    };
    Some(verdict(
        "no-limit",
        Severity::Warning,
        format!("{}: the sweep cannot name {wanted}: {reason}", curve.label),
        "The rows are real, but no row is sure to keep the conditions.",
        &advice,
    ))
}

fn too_few_points(curve: &Curve, axis: &str) -> Option<Verdict> {
    let several = AxisKind::of(axis).several();
    curve.line.is_none().then(|| {
        verdict(
            "too-few-points",
            Severity::Warning,
            match curve.points.len() {
                1 => format!("{}: the sweep has one {}", curve.label, AxisKind::of(axis).one()),
                many => format!("{}: the sweep has {many} {several}", curve.label),
            },
            &format!("A load line needs at least three {several}."),
            &format!("Give a wider {}, or more time.", flag(axis)),
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

fn lone_peak(curve: &Curve, axis: &str) -> Option<Verdict> {
    let kind = AxisKind::of(axis);
    let peaks = curve.points.iter().filter_map(|point| {
        let mut means = point.visit_means();
        means.sort_by(f64::total_cmp);
        let (highest, others) = means.split_last()?;
        let next = others.last()?;
        let level = curve.line.as_ref().map_or(*next, |line| line.plateau_iops.mean).max(*next);
        let factor = if kind == AxisKind::Rate { LONE_PEAK + chance_of_arrivals(point) } else { LONE_PEAK };
        (*highest > level * factor).then_some((point.x, *highest, others[0], *next, means.len()))
    });
    let (x, highest, low, high, visits) = peaks.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let the_others = if visits > 2 { "the others" } else { "the other" };
    let others = if low < high { format!("{} to {}", count(low), count(high)) } else { count(high) };
    let is_named = curve.line.as_ref().is_some_and(|line| line.plateau().is_some());
    let consequence = match (is_named, kind) {
        (true, _) => "plateau and load line come from the other visits".to_string(),
        (false, AxisKind::Rate) => "the limit is judged from all visits to each rate".to_string(),
        (false, _) => format!("the throughput of this {} includes that visit", kind.one()),
    };
    Some(verdict(
        "lone-peak",
        Severity::Note,
        format!("{}: one visit to {} gave {} IOPS, {the_others} {others}", curve.label, place(axis, x), count(highest)),
        &format!("The machine was faster at that moment, or answered from a cache: {consequence}."),
        "Look for a cache below the target, or for another program; give the sweep more --time.",
    ))
}

/// The part by which a visit may exceed another one because random arrivals differ: both have about as many ops, and
/// the number of arrivals has the variance of its mean. Infinite where the visits do not record their ops.
fn chance_of_arrivals(point: &Point) -> f64 {
    let ops = |visit: &Visit| visit.lat_ns.iter().map(|(_, lat_ns)| lat_ns.count()).sum::<u64>();
    let fewest = point.visits.iter().map(ops).min().unwrap_or(0);
    CHANCE_OF_ARRIVALS * (2.0 / fewest as f64).sqrt()
}

fn rate_limited(curve: &Curve, axis: &str) -> Option<Verdict> {
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
    let smallest = AxisKind::of(axis).one();
    Some(verdict(
        "rate-limited",
        Severity::Warning,
        format!("{}: from {} on, the job's rate is the limit", curve.label, place(axis, point.x)),
        &format!(
            "The plateau is the rate, and the load line is the smallest {smallest} that reaches it: the storage may do \
             more."
        ),
        "Leave out rate and rate_iops to find the storage's own load line.",
    ))
}

fn still_rising(curve: &Curve, axis: &str) -> Option<Verdict> {
    let line = curve.line.as_ref().filter(|line| line.answer() == Answer::Beyond)?;
    let largest = curve.points.last()?.x;
    let narrow = line.load_line.is_some_and(|line| line.mean >= largest * NEAR_DEEPEST);
    Some(verdict(
        "still-rising",
        Severity::Warning,
        format!("{}: throughput still rises at {}, the largest measured", curve.label, place(axis, largest)),
        "The real plateau lies beyond: plateau and load line are lower bounds.",
        match (AxisKind::of(axis), narrow) {
            (AxisKind::Clones, _) => "Sweep more clones: --axis numjobs=1..N.",
            (AxisKind::Speed, _) => "Replay faster: --axis replay_time_scale=100..N.",
            (_, true) => "Sweep deeper: --iodepth 1..4096, or raise numjobs.",
            (_, false) => "Sweep deeper.",
        },
    ))
}

fn generator_ceiling(curve: &Curve, axis: &str, ceiling_iops: Option<Estimate>) -> Option<Verdict> {
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
            match AxisKind::of(axis) {
                AxisKind::Clones | AxisKind::Speed => "Use larger blocks, or a machine with more CPUs.",
                _ => "Raise numjobs, use larger blocks, or a machine with more CPUs.",
            },
        )
    })
}

fn uncertain(curve: &Curve, axis: &str) -> Option<Verdict> {
    let kind = AxisKind::of(axis);
    let wide: Vec<String> = curve
        .points
        .iter()
        .filter(|point| point.samples.len() < 2 || relative_half_width(&point.iops) > UNCERTAIN)
        .map(|point| axis_value(axis, point.x))
        .collect();
    let is_named = curve.line.as_ref().is_some_and(|line| line.plateau().is_some());
    let consequence = match (is_named, curve.kept.is_some() || curve.saturation.is_some()) {
        (true, _) => "; the intervals of plateau and load line include it",
        (false, true) => "; the limit rests on latencies and queues, and has its own bounds",
        (false, false) => "",
    };
    (!wide.is_empty()).then(|| {
        verdict(
            "uncertain",
            Severity::Note,
            format!("{}: IOPS are uncertain by more than 5 % at {}", curve.label, wide.join(", ")),
            &format!("Differences between neighbouring {} may be noise there{consequence}.", kind.several()),
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

/// The verdict on a replay whose recording has a request, such as `request`, that O_DIRECT does not take.
pub fn replay_not_direct(request: &str) -> Verdict {
    verdict(
        "no-direct-io",
        Severity::Warning,
        format!(
            "the recording has requests that O_DIRECT does not take ({request}), so the replay goes through the page cache"
        ),
        "Data that are read twice come from memory, and written data may not have reached the device.",
        "An application that uses the page cache issues other requests than its device sees: record the device with \
         blktrace to replay those.",
    )
}

/// The verdict on a target that was not steady after the last round of its preconditioning.
pub fn not_preconditioned(found: &Preconditioning) -> Verdict {
    let how = match &found.window {
        Some(window) => format!(
            "the last five differ by {} and drift by {} of their average",
            percent(window.excursion),
            change(window.slope)
        ),
        None => "five are needed, each with ops".into(),
    };
    verdict(
        "not-preconditioned",
        Severity::Warning,
        format!("the target was not steady after {} rounds of preconditioning: {how}", found.rounds.len()),
        "The drive still changed when the sweep began: its figures hold for that moment.",
        "Give more or longer rounds: --precondition-rounds, --precondition-round.",
    )
}

/// The statement on the recorded application that a sweep replays: `what` it replays, and the meaning of its `pauses`.
pub fn replayed(what: String, pauses: &str) -> Verdict {
    verdict(
        "replayed",
        Severity::Note,
        what,
        &format!(
            "{pauses} The plateau is that of these threads without pauses: more threads may reach more on the same \
             storage."
        ),
        "A larger --point-time replays more of a long recording.",
    )
}

/// The verdict on a replay that at the recorded speed gives fewer IOPS than were recorded.
pub fn replay_behind(iops: f64, recorded: f64, threads_unknown: bool) -> Verdict {
    let (means, advice) = match threads_unknown {
        true => (
            "The storage is slower than the recorded one, or the application found data in the page cache, which direct I/O \
             passes by, or the log holds requests that did not wait for one another.",
            "If the application had several requests in flight, say how many: --iodepth N.",
        ),
        false => (
            "The storage is slower than the recorded one: the application cannot run at its recorded speed here.",
            "Compare with a recording that was made on this storage.",
        ),
    };
    verdict(
        "replay-behind",
        Severity::Warning,
        format!("at the recorded speed the replay gives {} IOPS, the recording {}", count(iops), count(recorded)),
        means,
        advice,
    )
}

/// The verdict on a curve that ends below `x`: a queue of that depth takes `turn_ns` nanoseconds for one turn, and all
/// values that were asked for need a sweep of `needed_ns`.
pub fn depths_left_out(label: &str, axis: &str, x: f64, turn_ns: f64, needed_ns: f64) -> Verdict {
    verdict(
        "depths-left-out",
        Severity::Note,
        format!(
            "{label} ends below {}: a queue of that depth takes {} for one turn",
            place(axis, x),
            nanoseconds(turn_ns)
        ),
        "The measured part of the curve is right. Deeper queues would have had too few visits.",
        &format!("Give the sweep --time {}m, or a list: {} 1,16,256.", (needed_ns / 60e9).ceil(), flag(axis)),
    )
}

/// The verdict on a curve whose bounds lie farther apart than the factor of `--until`; None if they do not.
pub fn wider_than_asked(curve: &Curve, asked: f64) -> Option<Verdict> {
    let apart = curve.line.as_ref()?.factor().filter(|apart| *apart > asked)?;
    let by = |factor: f64| format!("{factor:.2}");
    Some(verdict(
        "wider-than-asked",
        Severity::Note,
        format!("{}: the bounds of the load line are a factor of {} apart, not {}", curve.label, by(apart), by(asked)),
        "The bounds are right, and wider than --until asks for.",
        "Give the sweep more --time, or quiet the machine.",
    ))
}

/// The verdict on a curve that ended because the value `x` of `axis` cannot be run at all, for the reason given.
pub fn depth_not_possible(label: &str, axis: &str, x: f64, reason: &str) -> Verdict {
    verdict(
        "depth-not-possible",
        Severity::Note,
        format!("{label} ends below {}: {reason}", place(axis, x)),
        "The measured part of the curve is right.",
        &format!("Remove the limit, or give {} a smaller range.", flag(axis)),
    )
}

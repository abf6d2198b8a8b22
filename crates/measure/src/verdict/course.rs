//! Statements about the course of a job: its steadiness, and the length of time and the number of ops it rests on.

use super::{FEW, SHORT_NS, Severity, VERY_FEW, Verdict, verdict};
use crate::figures::{self, nanoseconds, percent};
use crate::schema::JobResult;
use crate::stats;

/// Change of the mean without the warm-up from which on the warm-up matters.
const WARM_UP_MATTERS: f64 = 0.05;
/// Change from start to end, as a part of the mean, from which on a drift matters.
const DRIFT_MATTERS: f64 = 0.1;
/// Part of the time from which on stalls matter.
const STALLS_MATTER: f64 = 0.05;
/// Standard deviation between intervals, as a part of the mean, from which on the mean describes no interval.
const WILD: f64 = 0.5;
/// Standard deviations of a count within which chance explains it.
const CHANCE: f64 = 3.0;

pub(super) fn not_steady(job: &JobResult) -> Option<Verdict> {
    if job.facts.is_replay {
        return None;
    }
    let rates = job.iops_over_time();
    let found = stats::steadiness(&rates);
    // Where few ops fall into a step, their number varies by itself: that of n ops that arrive at random has the
    // variance n (Poisson). Variation within that says nothing of the storage.
    let counts: Vec<f64> = rates.iter().map(|rate| rate * job.interval_ns as f64 / 1e9).collect();
    let (all, rest) = (counts.iter().sum::<f64>(), counts.iter().skip(found.warm_up).sum::<f64>());
    let warm_up_by_chance = CHANCE * (1.0 / rest.max(1.0) - 1.0 / all.max(1.0)).max(0.0).sqrt();
    let variation_by_chance = stats::mean(&counts[found.warm_up.min(counts.len())..]).max(1.0).recip();
    let stalled = found.stalled as f64 / rates.len().max(1) as f64;
    // By chance, a step of few ops has less than half of the median now and then.
    let stalls_by_chance = CHANCE * variation_by_chance.sqrt();
    let warmed_up = found.warm_up_is_significant && found.warm_up_effect.abs() > WARM_UP_MATTERS.max(warm_up_by_chance);
    let what = if warmed_up {
        let warm_up_ns = found.warm_up as u64 * job.interval_ns;
        let than = if found.warm_up_effect < 0.0 { "faster" } else { "slower" };
        format!(
            "the first {} were {than}: without them the mean changes by {}",
            nanoseconds(warm_up_ns as f64),
            figures::change(found.warm_up_effect)
        )
    } else if found.drift_is_significant && found.drift.abs() > DRIFT_MATTERS {
        // The drift is a part of the mean, which lies in the middle of the line.
        let half = (found.drift / 2.0).clamp(-0.95, 0.95);
        format!("IOPS changed by {} from start to end", figures::change((1.0 + half) / (1.0 - half) - 1.0))
    } else if stalled >= STALLS_MATTER && stalls_by_chance < 0.5 {
        let each = job.interval_ns as f64;
        format!(
            "for {} of {} IOPS were less than half of the usual",
            nanoseconds(found.stalled as f64 * each),
            nanoseconds(rates.len() as f64 * each)
        )
    } else if found.variation.powi(2) - variation_by_chance > WILD.powi(2) {
        format!("IOPS varied by {} (standard deviation) from interval to interval", percent(found.variation))
    } else {
        return None;
    };
    Some(verdict(
        "not-steady",
        Severity::Warning,
        what,
        "The mean depends on the moment of the measurement. Possible causes: filling caches, garbage collection in flash, another user.",
        "Use ramp_time to leave the start out, a longer runtime, or preconditioning; see the chart over time.",
    ))
}

pub(super) fn steadiness_unknown(job: &JobResult) -> Option<Verdict> {
    let intervals = job.iops_over_time().len();
    (!job.facts.is_replay && !job.intervals.is_empty() && intervals < stats::FEWEST_TO_JUDGE).then(|| {
        verdict(
            "steadiness-unknown",
            Severity::Note,
            format!(
                "the job has {intervals} intervals of {}, too few to tell whether throughput was steady",
                nanoseconds(job.interval_ns as f64)
            ),
            "Eight intervals would show a warm-up, a drift or another user of the storage.",
            "Use time_based with a longer runtime, for at least eight intervals.",
        )
    })
}

pub(super) fn interval_too_short(job: &JobResult) -> Option<Verdict> {
    (job.runtime_ns < SHORT_NS).then(|| {
        verdict(
            "interval-too-short",
            Severity::Note,
            format!("the job ran for {}", nanoseconds(job.runtime_ns as f64)),
            "In a short time, start-up, caches and a few slow requests have a large effect.",
            "Use time_based with runtime=10s or more, or a larger size.",
        )
    })
}

pub(super) fn too_few_samples(job: &JobResult) -> Option<Verdict> {
    let ops = job.total_ops();
    (ops < FEW).then(|| {
        let severity = if ops < VERY_FEW { Severity::Warning } else { Severity::Note };
        verdict(
            "too-few-samples",
            severity,
            format!("the job has {ops} ops"),
            "A percentile needs ten samples beyond it: with 1,000 ops that is the 99th, with 100 the 90th.",
            "Run longer before quoting high percentiles.",
        )
    })
}

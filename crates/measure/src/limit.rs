//! The limit of an axis: the highest depth or rate at which conditions hold, from several visits to each point.
//!
//! A condition (a latency objective, or "the system keeps up") gets its verdict at each point from all visits there:
//! [`Stand`]. A condition that breaks at a point stays broken beyond it; nothing else is assumed of the curve. See
//! docs/decisions/limits-of-sweeps.md.

use std::fmt;

use crate::burst::{Bucket, Start, starts};
use crate::figures::{nanoseconds, percent};
use crate::load_line;
use crate::objective::{LatencyFigure, Objective};
use crate::schema::{Answer, Curve, Estimate, Limit, Point, Visit};
use crate::stats::{mean, t_quantile};
use crate::{Direction, Histogram};

/// The probability of a wrong statement that a condition holds (or breaks) at a point. Several points and several
/// rounds have a chance to be wrong, and each end of the 95 % interval may be wrong with 2.5 %.
const WRONG: f64 = 0.005;
/// Visits below which nothing is sure: a variance between few visits is small by chance now and then, and the first
/// look chose the point.
const FEWEST_VISITS: usize = 4;
/// The system keeps up if its backlog grows by less than this part of the arrivals.
pub const MAY_GROW: f64 = 0.01;
/// At saturation, a queue that starts empty grows by this many standard deviations of its growth while it is measured:
/// less than the 0.8 / 0.6 of a reflected Brownian motion from its start on (Harrison, "Brownian Motion and Stochastic
/// Flow Systems", 1985), because the ramp is not measured.
const GROWS_AT_FIRST: f64 = 0.8;
/// Seconds of its limit that a limiter may give at once without a sign of it elsewhere: Linux counts I/O of control
/// groups in slices of a tenth of a second.
const HIDDEN_BURST_S: f64 = 0.1;
/// The name of the condition that an open loop's queue does not grow without bound, as results write it.
pub const KEEPS_UP: &str = "keeps up";
/// The smallest relative error of a mean: visits that agree by chance are not exact.
const LEAST_ERROR: f64 = 0.001;

/// A condition that a system keeps at small depths and rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// The queue of an open loop does not grow without bound.
    KeepsUp,
    /// A latency objective.
    Objective(Objective),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::KeepsUp => f.write_str(KEEPS_UP),
            Condition::Objective(objective) => objective.fmt(f),
        }
    }
}

/// The verdict of the visits to a point on a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// The condition holds, at 99.5 %.
    Holds,
    /// The visits cannot tell.
    Unsure,
    /// The condition does not hold, at 99.5 %.
    Breaks,
}

/// A quantity with its one-sided bounds, and the value that it may reach.
struct Judged {
    mean: f64,
    low: f64,
    high: f64,
    may_reach: f64,
}

impl Judged {
    fn stand(&self) -> Stand {
        match () {
            () if self.high <= self.may_reach => Stand::Holds,
            () if self.low > self.may_reach => Stand::Breaks,
            () => Stand::Unsure,
        }
    }
}

impl Condition {
    /// The verdict of the visits to a point.
    pub fn stand(&self, visits: &[&Visit]) -> Stand {
        match self.judged(visits) {
            Some(judged) if visits.len() >= FEWEST_VISITS => judged.stand(),
            _ => Stand::Unsure,
        }
    }

    /// True if the condition holds by the mean of the visits, sure or not. Without ops nothing holds.
    pub fn seems_to_hold(&self, visits: &[&Visit]) -> bool {
        self.judged(visits).is_some_and(|judged| judged.mean <= judged.may_reach)
    }

    fn judged(&self, visits: &[&Visit]) -> Option<Judged> {
        match self {
            Condition::KeepsUp => {
                let growth: Vec<f64> = visits.iter().filter_map(|visit| Some(visit.backlog?.growth())).collect();
                growing(&growth)
            }
            Condition::Objective(objective) => latency(objective, visits),
        }
    }

    /// The figure that the visits gave, in words: "p99 is 1.4 ms".
    fn seen(&self, visits: &[&Visit]) -> String {
        match self {
            Condition::KeepsUp => {
                let growth = self.judged(visits).map_or(0.0, |judged| judged.mean);
                format!("the queue grows by {} of the arrivals", percent(growth))
            }
            Condition::Objective(objective) => {
                let mut all = Histogram::new();
                let parts = visits.iter().flat_map(|visit| of_direction(visit, objective.direction));
                parts.for_each(|lat_ns| all.merge(lat_ns));
                let value = match objective.figure {
                    LatencyFigure::Mean => all.mean(),
                    LatencyFigure::Quantile(q) => all.quantile(q) as f64,
                };
                let of = objective.direction.map(|way| format!(" of {}s", way.name())).unwrap_or_default();
                format!("{}{of} is {}", objective.figure, nanoseconds(value))
            }
        }
    }
}

/// The growth of a backlog as a part of the arrivals; what a queue below saturation gains at first does not count.
fn growing(growth: &[f64]) -> Option<Judged> {
    let k = growth.len() as f64;
    if growth.is_empty() {
        return None;
    }
    let (mean, deviation) = (crate::stats::mean(growth), crate::stats::variance(growth).sqrt());
    let half = t_quantile(1.0 - WRONG, k - 1.0) * (deviation / k.sqrt()).max(LEAST_ERROR);
    // A single visit has no deviation: the planner only needs the mean then.
    let half = if half.is_finite() { half } else { 0.0 };
    Some(Judged { mean, low: mean - half - GROWS_AT_FIRST * deviation, high: mean + half, may_reach: MAY_GROW })
}

/// The histograms of a visit that an objective is about.
fn of_direction(visit: &Visit, direction: Option<Direction>) -> impl Iterator<Item = &Histogram> {
    let wanted = move |way: Direction| direction.is_none_or(|only| only == way);
    visit.lat_ns.iter().filter(move |(way, _)| wanted(*way)).map(|(_, lat_ns)| lat_ns)
}

/// The figure of an objective over the visits: the mean in nanoseconds, or the part of the ops beyond the limit. None
/// without ops.
fn latency(objective: &Objective, visits: &[&Visit]) -> Option<Judged> {
    let limit = objective.limit_ns as f64;
    // Of each visit: the amount, and the number of ops that it is the amount of.
    let parts: Vec<(f64, f64)> = visits
        .iter()
        .map(|visit| {
            let of = |lat_ns: &Histogram| match objective.figure {
                LatencyFigure::Mean => lat_ns.sum() as f64,
                LatencyFigure::Quantile(_) => beyond(lat_ns, objective.limit_ns),
            };
            let ways = || of_direction(visit, objective.direction);
            (ways().map(of).sum(), ways().map(|lat_ns| lat_ns.count() as f64).sum())
        })
        .filter(|(_, ops)| *ops > 0.0)
        .collect();
    let (k, ops) = (parts.len() as f64, parts.iter().map(|(_, ops)| ops).sum::<f64>());
    if parts.is_empty() {
        return None;
    }
    let mean = parts.iter().map(|(amount, _)| amount).sum::<f64>() / ops;
    // The variance of a ratio over clusters (Cochran, "Sampling Techniques", 1977, chapter 6).
    let between = parts.iter().map(|(amount, of)| (amount - mean * of).powi(2)).sum::<f64>();
    let variance = if k > 1.0 { between / (ops * ops) * k / (k - 1.0) } else { 0.0 };
    let t = t_quantile(1.0 - WRONG, k - 1.0);
    let t = if t.is_finite() { t } else { 0.0 };
    match objective.figure {
        LatencyFigure::Mean => {
            let half = t * variance.sqrt().max(LEAST_ERROR * mean);
            Some(Judged { mean, low: mean - half, high: mean + half, may_reach: limit })
        }
        LatencyFigure::Quantile(q) => {
            let independent = mean * (1.0 - mean) / ops;
            let effect = if independent > 0.0 { (variance / independent).max(1.0) } else { 1.0 };
            let (low, high) = wilson(mean, ops / effect, t);
            Some(Judged { mean, low, high, may_reach: 1.0 - q })
        }
    }
}

/// The samples above a limit. A bucket that the limit cuts counts in part.
fn beyond(lat_ns: &Histogram, limit_ns: u64) -> f64 {
    let above = |(lowest, highest, count): (u64, u64, u64)| {
        let width = (highest - lowest + 1) as f64;
        let over = highest.saturating_sub(limit_ns.max(lowest.saturating_sub(1))) as f64;
        count as f64 * (over / width).clamp(0.0, 1.0)
    };
    if limit_ns >= lat_ns.max() { 0.0 } else { lat_ns.buckets().map(above).sum() }
}

/// The interval of a part `p` of `n` independent trials: Wilson (1927), with `z` standard errors.
fn wilson(p: f64, n: f64, z: f64) -> (f64, f64) {
    let scale = 1.0 + z * z / n;
    let middle = (p + z * z / (2.0 * n)) / scale;
    let half = z / scale * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    (middle - half, middle + half)
}

/// The worst verdict of several conditions on a point, and the first condition that has it.
pub(crate) fn worst(conditions: &[Condition], visits: &[&Visit]) -> (Stand, Option<Condition>) {
    let stands = conditions.iter().map(|condition| (condition.stand(visits), Some(*condition)));
    stands.fold((Stand::Holds, None), |worst, one| if rank(one.0) > rank(worst.0) { one } else { worst })
}

fn rank(stand: Stand) -> u8 {
    match stand {
        Stand::Holds => 0,
        Stand::Unsure => 1,
        Stand::Breaks => 2,
    }
}

/// A point with the visits that count.
pub(crate) struct Seen<'a> {
    /// The value of the axis.
    pub x: f64,
    /// The visits, in order of time.
    pub visits: Vec<&'a Visit>,
    /// The ops of a burst on which the visits may have lived: conditions that hold there may break later. None if the
    /// point gives no more than the storage sustains.
    pub burst: Option<f64>,
}

impl Seen<'_> {
    /// The points that were visited before a round, ascending.
    pub fn before(points: &[Point], round: u32) -> Vec<Seen<'_>> {
        let of = |point| {
            let Point { x, visits, .. }: &Point = point;
            Seen { x: *x, visits: visits.iter().filter(|visit| visit.round < round).collect(), burst: None }
        };
        let mut seen: Vec<Seen> = points.iter().map(of).collect();
        let all: Vec<&Point> = points.iter().collect();
        let starts: Vec<Start> = starts(&all).into_iter().filter(|start| start.round < round).collect();
        // An open loop shows the limit at rates beyond it only: others give what was asked for, by chance more or less.
        let breaks = |start: &&Start| Condition::KeepsUp.stand(&seen[start.depth].visits) == Stand::Breaks;
        let bucket = match points.iter().flat_map(|point| &point.visits).any(|visit| visit.backlog.is_some()) {
            true => Bucket::of_rates(&starts.iter().filter(breaks).copied().collect::<Vec<_>>()),
            false => Bucket::of(&starts),
        };
        if let Some(bucket) = bucket {
            for (index, point) in seen.iter_mut().enumerate() {
                let of_point: Vec<&Start> = starts.iter().filter(|start| start.depth == index).collect();
                point.burst = Some(bucket.ops).filter(|_| bucket.feeds(&of_point));
            }
        }
        seen.retain(|seen| !seen.visits.is_empty());
        seen.sort_by(|a, b| a.x.total_cmp(&b.x));
        Seen::doubt_hidden_bursts(&mut seen);
        seen
    }

    /// Doubts the rates of an open loop that are little above the throughput of an overloaded storage: a limiter that
    /// lets ops of [`HIDDEN_BURST_S`] pass at once hides the difference in a short visit. A storage that only
    /// collapses under overload keeps these rates, and then the doubt widens the answer.
    fn doubt_hidden_bursts(seen: &mut [Seen]) {
        // Overloaded visits show the throughput with an error of their own: they begin with a burst, or pay for one.
        let sustained = |point: &Seen| {
            let growth: Vec<f64> = point.visits.iter().filter_map(|visit| Some(visit.backlog?.growth())).collect();
            (Condition::KeepsUp.stand(&point.visits) == Stand::Breaks).then(|| point.x * (1.0 - mean(&growth)))
        };
        let all: Vec<f64> = seen.iter().filter_map(sustained).collect();
        let (least, most) = all.iter().fold((f64::INFINITY, 0.0f64), |(least, most), x| (least.min(*x), most.max(*x)));
        for point in seen.iter_mut().filter(|point| point.x > least * (1.0 + MAY_GROW)) {
            let seconds: Vec<f64> = point.visits.iter().map(|visit| visit.measured_ns as f64 / 1e9).collect();
            let hidden = (point.x - most).max(0.0) * mean(&seconds);
            if hidden < most * HIDDEN_BURST_S {
                point.burst.get_or_insert(hidden);
            }
        }
    }

    /// The worst verdict of several conditions, and the first condition that has it.
    fn worst(&self, conditions: &[Condition]) -> (Stand, Option<Condition>) {
        match worst(conditions, &self.visits) {
            (Stand::Holds, condition) if self.burst.is_some() => (Stand::Unsure, condition),
            worst => worst,
        }
    }

    /// True if all conditions hold by the mean of the visits, sure or not.
    pub fn seems_to_keep(&self, conditions: &[Condition]) -> bool {
        self.burst.is_none() && conditions.iter().all(|condition| condition.seems_to_hold(&self.visits))
    }

    /// True if further visits cannot make the verdict surer.
    pub fn is_exhausted(&self) -> bool {
        self.burst.is_some() && self.visits.len() >= FEWEST_VISITS
    }
}

/// Where the limit lies among points: indices, ascending by `x`.
pub(crate) struct Bracket {
    /// The highest point at which all conditions surely hold, and no smaller point surely breaks one.
    pub low: Option<usize>,
    /// The smallest point beyond `low` at which a condition surely breaks.
    pub high: Option<usize>,
}

impl Bracket {
    /// The bracket of some points, ascending by `x`.
    pub fn of(points: &[Seen], conditions: &[Condition]) -> Bracket {
        let stands: Vec<Stand> = points.iter().map(|point| point.worst(conditions).0).collect();
        // A point that breaks below one that holds: one of the two is wrong, so neither end goes beyond the other.
        let first_break = stands.iter().position(|stand| *stand == Stand::Breaks);
        let last_hold = stands.iter().rposition(|stand| *stand == Stand::Holds);
        let low = (0..first_break.unwrap_or(stands.len())).rev().find(|&index| stands[index] == Stand::Holds);
        let beyond = last_hold.map_or(0, |index| index + 1);
        let high = (beyond..stands.len()).find(|&index| stands[index] == Stand::Breaks);
        Bracket { low, high }
    }
}

/// The limit of a curve, given its line where it has one. Points may be in any order; only visited ones count.
pub fn find(curve: &Curve, conditions: &[Condition]) -> Limit {
    let points = Seen::before(&curve.points, u32::MAX);
    let bracket = Bracket::of(&points, conditions);
    let broken = |index: usize| points[index].worst(conditions).1;
    let mut limit = Limit {
        conditions: conditions.iter().map(Condition::to_string).collect(),
        low: bracket.low.map(|index| points[index].x),
        high: bracket.high.map(|index| points[index].x),
        burst: points.iter().find_map(|point| point.burst),
        ..Limit::default()
    };
    let Some(low) = bracket.low else {
        limit.unnamed = Some(match (bracket.high, points.first()) {
            (Some(0), Some(first)) => {
                let seen = broken(0).map_or(String::new(), |condition| condition.seen(&first.visits));
                format!("nothing that was measured keeps it: at the smallest value {seen}")
            }
            _ if points.iter().all(|point| point.visits.len() < FEWEST_VISITS) => {
                "no point was visited often enough: give the sweep more --time".into()
            }
            _ if points.iter().any(|point| point.burst.is_some()) => {
                "visits live on the burst of a limit, so nothing tells what the storage sustains: measure smaller values"
                    .into()
            }
            _ => "the visits differ too much, or have too few ops: give the sweep more --time".into(),
        });
        return limit;
    };
    // Where throughput is the same at a smaller depth, requests only wait longer at the limit.
    let line = curve.line.as_ref().and_then(|line| match line.answer() {
        Answer::At(at) if at.mean <= points[low].x => Some(at.mean),
        Answer::At(_) | Answer::Between(..) | Answer::Beyond | Answer::Unnamed(_) => None,
    });
    let at = line.unwrap_or(points[low].x);
    limit.at = Some(at);
    let point = curve.points.iter().find(|point| point.x == at);
    limit.iops = point.map(|point| point.iops);
    limit.bytes_per_second = point.map(|point| point.bytes_per_second);
    limit.beyond = match (line, bracket.high.and_then(broken)) {
        (Some(_), _) => Some(format!("throughput: {} of the plateau", percent(load_line::LOAD_LINE_FRACTION))),
        (None, Some(Condition::KeepsUp)) => Some("the queue, which grows without bound".into()),
        (None, Some(Condition::Objective(objective))) => Some(format!("{objective}, which breaks")),
        (None, None) => None,
    };
    limit
}

/// The throughput that a curve has within conditions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kept {
    /// The sweep cannot tell what keeps the conditions.
    Unknown,
    /// Nothing that was measured breaks the conditions, and throughput may rise further.
    AtLeast(Estimate),
    /// The throughput at the limit. The interval goes on to the smallest value that surely breaks a condition, or to
    /// the plateau: the limit lies somewhere between.
    Within(Estimate),
}

/// The highest ops per second of `curve` that keep the conditions of `limit`, which [`find`] found on it.
pub fn kept_iops(curve: &Curve, limit: &Limit) -> Kept {
    let (Some(at), Some(x)) = (limit.iops, limit.at) else { return Kept::Unknown };
    let plateau = curve.line.as_ref().filter(|line| !line.still_rising).and_then(|line| line.plateau());
    let highest = |end: f64| {
        let within = curve.points.iter().filter(|point| (x..=end).contains(&point.x));
        within.map(|point| point.iops.high).fold(at.high, f64::max)
    };
    match (limit.high, plateau) {
        (Some(high), _) => Kept::Within(Estimate { high: highest(high), ..at }),
        (None, Some(plateau)) => Kept::Within(Estimate { high: highest(f64::INFINITY).max(plateau.high), ..at }),
        (None, None) => Kept::AtLeast(at),
    }
}

impl Limit {
    /// True if the largest measured value keeps the conditions: the limit lies beyond it.
    pub fn is_beyond(&self, largest: f64) -> bool {
        self.low.is_some_and(|low| low >= largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PerDirection;
    use crate::schema::{Backlog, LoadLine};
    use crate::stats::test_noise::Noise;

    fn visit(latencies: impl IntoIterator<Item = u64>) -> Visit {
        let mut lat_ns = PerDirection::<Histogram>::default();
        latencies.into_iter().for_each(|ns| lat_ns.read.record(ns));
        Visit { lat_ns, ..Visit::default() }
    }

    fn stand(condition: Condition, visits: &[Visit]) -> Stand {
        condition.stand(&visits.iter().collect::<Vec<_>>())
    }

    fn objective(text: &str) -> Condition {
        Condition::Objective(text.parse().unwrap())
    }

    /// Visits of 1000 ops, of which `slow` take 10 ms and the others 100 us.
    fn slow(slow: &[u64]) -> Vec<Visit> {
        slow.iter().map(|&slow| visit((0..1000).map(|op| if op < slow { 10_000_000 } else { 100_000 }))).collect()
    }

    #[test]
    fn a_percentile_is_a_part_of_all_ops() {
        let p99 = objective("p99<1ms");
        assert_eq!(stand(p99, &slow(&[0, 1, 0, 2, 1])), Stand::Holds);
        assert_eq!(stand(p99, &slow(&[30, 28, 33, 31, 29])), Stand::Breaks);
        assert_eq!(stand(p99, &slow(&[10, 9, 11, 10, 10])), Stand::Unsure);
        // The median visit has no slow op, and 4 % of all ops are slow: one burst, so nobody knows.
        assert_eq!(stand(p99, &slow(&[0, 0, 200, 0, 0])), Stand::Unsure);
        assert_eq!(stand(p99, &slow(&[0, 0, 0])), Stand::Unsure, "three visits");
        assert!(!p99.seems_to_hold(&[&visit([])]), "no op");
    }

    #[test]
    fn few_ops_say_nothing_of_high_percentiles() {
        let visits = slow(&[0; 8]);
        assert_eq!(stand(objective("p99<1ms"), &visits), Stand::Holds);
        assert_eq!(stand(objective("p99.99<1ms"), &visits), Stand::Unsure, "8000 ops expect less than one beyond");
    }

    #[test]
    fn a_mean_is_judged_by_the_difference_between_visits() {
        let of = |means: &[u64]| -> Vec<Visit> { means.iter().map(|&ns| visit([ns; 100])).collect() };
        assert_eq!(stand(objective("mean<1ms"), &of(&[900_000, 910_000, 905_000, 900_000])), Stand::Holds);
        assert_eq!(stand(objective("mean<1ms"), &of(&[700_000, 1_200_000, 905_000, 900_000])), Stand::Unsure);
        assert_eq!(stand(objective("mean<1ms"), &of(&[1_100_000, 1_110_000, 1_105_000, 1_100_000])), Stand::Breaks);
    }

    #[test]
    fn directions_are_judged_apart() {
        let mut visits = slow(&[0, 0, 0, 0]);
        visits.iter_mut().for_each(|visit| (0..500).for_each(|_| visit.lat_ns.write.record(5_000_000)));
        assert_eq!(stand(objective("read:p99<1ms"), &visits), Stand::Holds);
        assert_eq!(stand(objective("write:p99<1ms"), &visits), Stand::Breaks);
        assert_eq!(stand(objective("p50<1ms"), &visits), Stand::Holds);
        assert_eq!(stand(objective("p90<1ms"), &visits), Stand::Breaks);
    }

    #[test]
    fn a_limit_within_a_bucket_counts_the_bucket_in_part() {
        let mut lat_ns = Histogram::new();
        lat_ns.record_many(1_000_003, 100);
        let (lowest, highest, _) = lat_ns.buckets().next().unwrap();
        let middle = lowest + (highest - lowest) / 2;
        assert!((beyond(&lat_ns, middle) - 50.0).abs() < 1.0 || middle >= lat_ns.max());
        assert_eq!(beyond(&lat_ns, lowest.saturating_sub(1)), 100.0);
        assert_eq!(beyond(&lat_ns, highest), 0.0);
    }

    fn growths(of: &[f64]) -> Vec<Visit> {
        of.iter()
            .map(|growth| Visit {
                backlog: Some(Backlog { arrived: 1000.0, start: 0.0, end: 1000.0 * growth }),
                ..Visit::default()
            })
            .collect()
    }

    #[test]
    fn a_queue_that_only_starts_to_fill_does_not_grow_without_bound() {
        assert_eq!(stand(Condition::KeepsUp, &growths(&[0.001, -0.002, 0.002, 0.0])), Stand::Holds);
        assert_eq!(stand(Condition::KeepsUp, &growths(&[0.2, 0.21, 0.19, 0.2])), Stand::Breaks);
        assert_eq!(stand(Condition::KeepsUp, &growths(&[0.03, 0.0, 0.05, 0.015])), Stand::Unsure);
        // At saturation exactly, the backlog is the distance of a random walk from its minimum.
        let mut noise = Noise::new(3);
        let walks: Vec<f64> = (0..400).map(|_| noise.normal().abs() * 0.03).collect();
        let wrong = walks.chunks(8).filter(|walk| stand(Condition::KeepsUp, &growths(walk)) == Stand::Breaks).count();
        assert!(wrong <= 1, "{wrong} of 50");
    }

    fn curve(stands: &[&[u64]]) -> Curve {
        let points = stands.iter().enumerate().map(|(index, of)| Point {
            x: f64::from(1 << index),
            iops: Estimate { mean: 1000.0 * (index + 1) as f64, low: 0.0, high: 1e6 },
            visits: slow(of),
            ..Point::default()
        });
        Curve { points: points.collect(), ..Curve::default() }
    }

    const HOLDS: &[u64] = &[0, 0, 0, 0];
    const UNSURE: &[u64] = &[10, 9, 11, 10];
    const BREAKS: &[u64] = &[30, 28, 33, 31];

    #[test]
    fn the_limit_is_the_last_point_that_holds() {
        let p99 = [objective("p99<1ms")];
        let limit = find(&curve(&[HOLDS, HOLDS, UNSURE, BREAKS, BREAKS]), &p99);
        assert_eq!((limit.at, limit.low, limit.high), (Some(2.0), Some(2.0), Some(8.0)));
        assert_eq!(limit.iops.unwrap().mean, 2000.0);
        assert!(limit.beyond.unwrap().contains("p99<1ms"));
        let limit = find(&curve(&[HOLDS, HOLDS]), &p99);
        assert!(limit.is_beyond(2.0) && limit.high.is_none() && limit.beyond.is_none());
        let limit = find(&curve(&[BREAKS, BREAKS]), &p99);
        assert!(limit.at.is_none() && limit.unnamed.unwrap().contains("p99 is 9.9"), "the reason has the figure");
        // One of two contradicting points is wrong.
        let limit = find(&curve(&[HOLDS, BREAKS, HOLDS, BREAKS]), &p99);
        assert_eq!((limit.low, limit.high), (Some(1.0), Some(8.0)));
    }

    #[test]
    fn where_the_plateau_comes_first_the_load_line_is_the_answer() {
        let mut curve = curve(&[HOLDS, HOLDS, HOLDS, BREAKS]);
        let near = |mean: f64| Estimate { mean, low: mean, high: mean };
        curve.line = Some(LoadLine { plateau_iops: near(2e3), load_line: Some(near(2.0)), ..LoadLine::default() });
        let limit = find(&curve, &[objective("p99<1ms")]);
        assert_eq!((limit.at, limit.low, limit.high), (Some(2.0), Some(4.0), Some(8.0)));
        assert!(limit.beyond.unwrap().contains("plateau"));
    }
}

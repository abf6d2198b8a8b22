//! Slices: rounds in which the depth changes while the load goes on.
//!
//! ```text
//! depth  256 ─┐      ┌─ 256 ─┐             one block: each depth once
//!             └─ 32 ─┘       └─ 64 ─ ...   a round: several blocks, one run
//! ```
//!
//! A visit of its own takes most of a second, and whatever the machine does meanwhile falls on one depth. Slices of a
//! block follow one another within tenths of a second, so that the depths share it. The order within a block is that
//! of a Latin square in which each depth follows each other depth equally often (Williams, "Experimental designs
//! balanced for the estimation of residual effects of treatments", 1949), with the depths drawn anew for each round.
//!
//! A slice may live on what the slice before left: tokens of a limit, room in a cache, requests that a throttle holds
//! back. So short and long slices take turns, round by round. A storage that remembers shows it twice: the depths
//! differ from one another by another amount in short slices than in long ones, or slices end faster or slower than
//! they begin. Then slices mean nothing, and whole visits take their place ([`memory`]). A difference that may be
//! chance stays in the interval ([`doubts`]).

use std::collections::{BTreeMap, BTreeSet};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::Direction;
use crate::burst::{Bucket, starts};
use crate::figures;
use crate::refine::Limits;
use crate::schema::{Interval, JobResult, Point, Slices};
use crate::stats::{mean, sorted_quantile, t_quantile, variance};

/// A stretch of a round at one depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// The depth.
    pub x: f64,
    /// Nanoseconds of the measured part.
    pub measured_ns: u64,
    /// Nanoseconds that the measured part of a slice has in this round, slow depths excepted.
    pub nominal_ns: u64,
    /// Nanoseconds that the measured part waits for the requests that were in flight before.
    pub patience_ns: u64,
}

/// The settling of a slice, at least.
pub const SETTLE_NS: u64 = 10_000_000;
/// The shortest slice.
const SHORTEST_NS: u64 = 50_000_000;
/// Long slices are this many times as long as short ones.
const LONG: u64 = 4;
/// Slices that have to be longer than this are as long as visits.
const LONGEST_NS: u64 = 150_000_000;
/// Completions of a slice, in the mean.
const COMPLETIONS: f64 = 50.0;
/// The length of a slice in times by which the latency of the requests in flight exceeds that of all requests: slow
/// requests that began before a slice, or end after it, must not decide its rate.
const STRAGGLERS: f64 = 4.0;
/// The time that a round should take.
pub(crate) const ROUND_NS: u64 = 4_000_000_000;
/// A difference below this part moves no answer: a point is off by half of it ([`doubts`]).
const LEAST: f64 = 0.02;
/// The probability of a false memory, at each look.
const FALSE_MEMORY: f64 = 0.003;

/// The length of a short slice of a sweep; None where slices would be as long as visits, or nothing is known yet.
fn short_ns(points: &[Point]) -> Option<u64> {
    // The part of the mean latency of the requests in flight that is not the queue's: variance over mean.
    let tail = |point: &Point| {
        let latencies = point.lat_ns();
        (latencies.count() > 1).then(|| latencies.stddev().powi(2) / latencies.mean().max(1.0))
    };
    let mut tails: Vec<f64> = points.iter().filter(|point| first_look(point).is_some()).filter_map(tail).collect();
    tails.sort_by(f64::total_cmp);
    let tail_ns = if tails.is_empty() { 0.0 } else { sorted_quantile(&tails, 0.5) };
    // Tokens that a shallow slice saves feed the next deep one.
    if Bucket::is_suspected(&starts(&ascending(points))) {
        return None;
    }
    const STEP_NS: u64 = 10_000_000;
    let ns = ((STRAGGLERS * tail_ns) as u64).max(SHORTEST_NS).div_ceil(STEP_NS) * STEP_NS;
    (ns <= LONGEST_NS && points.iter().any(|point| first_look(point).is_some())).then_some(ns)
}

/// The mean of the first look at a point.
fn first_look(point: &Point) -> Option<f64> {
    let first = point.visits.first().filter(|visit| visit.round == 0)?;
    Some(mean(point.samples.get(..first.samples as usize)?))
}

/// The slices of a round over `depths` (ascending), in order; empty where `left_ns` is too short for one block. None
/// where slices would be as long as visits.
pub(crate) fn schedule(points: &[Point], depths: &[f64], round: u32, left_ns: u64) -> Option<Vec<Slice>> {
    let short_ns = short_ns(points)?;
    let nominal_ns = if round.is_multiple_of(2) { short_ns * LONG } else { short_ns };
    let levels = levels(points);
    let rate = |x: f64| near(&levels, x).max(1e-3);
    // A slice is as long as the queue, too: shorter ones would spend the time on settling.
    let measured_ns = |x: f64| nominal_ns.max((COMPLETIONS.max(x) / rate(x) * 1e9) as u64);
    if depths.len() < 2 || depths.iter().any(|&x| measured_ns(x) > LONG * LONGEST_NS) {
        return None;
    }
    let settle_ns = |before: f64, x: f64| SETTLE_NS + (before.max(x) / rate(x) * 1e9) as u64;
    let own_ns = |x: f64| settle_ns(x, x) + measured_ns(x);
    let mut usual_ns: Vec<u64> = depths.iter().map(|&x| own_ns(x)).collect();
    usual_ns.sort_unstable();
    let usual_ns = usual_ns[(depths.len() - 1) / 2];
    // A deep queue that takes as long as several others takes part in one of as many blocks.
    let takes_part = |block: usize, x: f64| block.is_multiple_of((own_ns(x) / usual_ns).max(1) as usize);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(round));
    let square = williams(depths, &mut random);
    let (mut slices, mut before, mut spent_ns) = (Vec::new(), 0.0, 0);
    for (block, order) in square.iter().cycle().enumerate() {
        let order: Vec<f64> = order.iter().copied().filter(|&x| takes_part(block, x)).collect();
        let previous = [before].into_iter().chain(order.iter().copied());
        let costs = previous.zip(&order).map(|(before, &x)| (x, settle_ns(before, x)));
        let ns: u64 = costs.clone().map(|(x, settle_ns)| settle_ns + measured_ns(x)).sum();
        let most_ns = if block == 0 { left_ns } else { ROUND_NS.min(left_ns) };
        if spent_ns + ns > most_ns {
            break;
        }
        const SPARE_NS: u64 = 100_000_000;
        slices.extend(costs.map(|(x, settle_ns)| Slice {
            x,
            measured_ns: measured_ns(x),
            nominal_ns,
            patience_ns: 3 * settle_ns + SPARE_NS,
        }));
        spent_ns += ns;
        before = order[order.len() - 1];
    }
    Some(slices)
}

/// The nanoseconds that a round in slices takes; None where rounds consist of visits.
pub(crate) fn round_ns(points: &[Point]) -> Option<u64> {
    short_ns(points).map(|_| ROUND_NS)
}

/// The level of each point, by ascending depth.
fn levels(points: &[Point]) -> Vec<(f64, f64)> {
    let mut levels: Vec<(f64, f64)> = points.iter().map(|point| (point.x, mean(&point.samples))).collect();
    levels.sort_by(|a, b| a.0.total_cmp(&b.0));
    levels
}

/// The level at `x`, or at the nearest smaller depth.
fn near(levels: &[(f64, f64)], x: f64) -> f64 {
    let at = levels.partition_point(|(other, _)| *other <= x);
    levels.get(at.saturating_sub(1)).map_or(0.0, |(_, level)| *level)
}

/// Orders of some depths in which each depth follows each other one equally often: Williams (1949). The places of the
/// depths are drawn.
fn williams(depths: &[f64], random: &mut Xoshiro256PlusPlus) -> Vec<Vec<f64>> {
    let n = depths.len();
    let mut drawn = depths.to_vec();
    for last in (1..n).rev() {
        drawn.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    // 0, 1, n - 1, 2, n - 2, ...
    let zigzag = |place: usize| if place % 2 == 1 { place / 2 + 1 } else { (n - place / 2) % n };
    let mut rows: Vec<Vec<f64>> =
        (0..n).map(|row| (0..n).map(|place| drawn[(zigzag(place) + row) % n]).collect()).collect();
    if n % 2 == 1 {
        let mirrored: Vec<Vec<f64>> = rows.iter().map(|row| row.iter().rev().copied().collect()).collect();
        rows.extend(mirrored);
    }
    for last in (1..rows.len()).rev() {
        rows.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    rows
}

impl Point {
    /// The point that the slices of a round at depth `x` make, as one visit: the measurements of each slice, in order
    /// of time, and the nominal length of a slice.
    pub fn of_slices(x: f64, slices: Vec<JobResult>, nominal_ns: u64) -> Option<Point> {
        let trends: Vec<f64> = slices.iter().filter_map(trend).collect();
        let samples: Vec<Vec<f64>> = slices.iter().map(JobResult::iops_samples).collect();
        let mut slices = slices.into_iter();
        let mut whole = slices.next()?;
        let mut count = 1;
        for slice in slices {
            whole.append(slice);
            count += 1;
        }
        let mut point = Point::of(x, whole);
        let counts: Vec<u32> = samples.iter().map(|samples| samples.len() as u32).collect();
        for visit in &mut point.visits {
            visit.samples = counts.iter().sum();
            visit.slices = Some(Slices { count, ns: nominal_ns, trends: trends.clone(), samples: counts.clone() });
        }
        point.samples = samples.concat();
        Some(point.estimated())
    }
}

/// The logarithm of the throughput of a slice's last half over that of its first. Where the queue is full, throughput
/// is the depth over the mean latency (Little's law). Latencies tell it from any completions; rates would need a whole
/// number of bursts in each half.
fn trend(slice: &JobResult) -> Option<f64> {
    let all = &slice.intervals;
    let latency = |part: &[Interval]| {
        let (ops, lat_sum_ns) = part.iter().fold((0, 0), |(ops, sum), interval| {
            let of = |direction: Direction| (interval.ops[direction], interval.lat_sum_ns[direction]);
            Direction::ALL.into_iter().map(of).fold((ops, sum), |(ops, sum), (more, ns)| (ops + more, sum + ns))
        });
        (ops > 0 && lat_sum_ns > 0).then(|| lat_sum_ns as f64 / ops as f64)
    };
    let (first, last) = (latency(&all[..all.len() / 2])?, latency(&all[all.len().div_ceil(2)..])?);
    Some((first / last).ln())
}

/// A figure that is 0 without memory.
struct Sign {
    /// The index of the depth.
    depth: usize,
    by: f64,
    error: f64,
    freedom: f64,
    /// True if the sign does not rest on a few large values.
    is_clear: bool,
    is_trend: bool,
}

/// The signs of memory that the visits in slices show. `points` by ascending depth.
fn signs(points: &[&Point]) -> Vec<Sign> {
    let mut out = differences(points);
    out.extend(trends(points));
    out
}

/// A visit in slices.
struct Sliced {
    depth: usize,
    round: u32,
    is_long: bool,
    /// The logarithm of its throughput; later what depth and round leave of it.
    rest: f64,
}

/// The visits in slices.
fn sliced(points: &[&Point]) -> Vec<Sliced> {
    let all = || points.iter().flat_map(|point| &point.visits).filter_map(|visit| visit.slices.as_ref());
    let shortest_ns = all().map(|slices| slices.ns).min().unwrap_or(0);
    let mut out = Vec::new();
    for (depth, point) in points.iter().enumerate() {
        for (visit, samples) in point.by_visit() {
            let level = mean(samples);
            if let Some(slices) = visit.slices.as_ref().filter(|_| level > 0.0) {
                let is_long = slices.ns >= 2 * shortest_ns;
                out.push(Sliced { depth, round: visit.round, is_long, rest: level.ln() });
            }
        }
    }
    out
}

/// The throughput of each depth in short slices over that in long ones (a logarithm), relative to the other depths.
///
/// Depths and rounds are taken out by their medians in turns ("median polish": Tukey, "Exploratory Data Analysis",
/// 1977): one visit that a neighbour disturbed moves none of them.
fn differences(points: &[&Point]) -> Vec<Sign> {
    let mut visits = sliced(points);
    const POLISHED: usize = 6;
    for _ in 0..POLISHED {
        polish(&mut visits, |visit| visit.depth);
        polish(&mut visits, |visit| visit.round as usize);
    }
    let rounds = visits.iter().map(|visit| visit.round).collect::<BTreeSet<u32>>().len();
    let of = |depth: usize, is_long: bool| -> Vec<f64> {
        visits.iter().filter(|visit| visit.depth == depth && visit.is_long == is_long).map(|visit| visit.rest).collect()
    };
    let pairs: Vec<(usize, Vec<f64>, Vec<f64>)> =
        (0..points.len()).map(|depth| (depth, of(depth, false), of(depth, true))).collect();
    let groups = || pairs.iter().flat_map(|(_, short, long)| [short, long]).filter(|group| group.len() > 1);
    let freedom = groups().map(|group| group.len() as f64 - 1.0).sum::<f64>() - (rounds as f64 - 2.0).max(0.0);
    if freedom < FEWEST {
        return Vec::new();
    }
    let variance = groups().map(|group| variance(group) * (group.len() as f64 - 1.0)).sum::<f64>() / freedom;
    let sign = |(depth, short, long): &(usize, Vec<f64>, Vec<f64>)| {
        let several = short.len() > 1 && long.len() > 1;
        several.then(|| {
            let error = (variance * (1.0 / short.len() as f64 + 1.0 / long.len() as f64)).sqrt();
            let by = mean(short) - mean(long);
            let is_clear = (median(short) - median(long)) / by > 0.5;
            Sign { depth: *depth, by, error, freedom, is_clear, is_trend: false }
        })
    };
    pairs.iter().filter_map(sign).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    sorted_quantile(&values, 0.5)
}

/// Takes the median of the visits with the same key from each of them.
fn polish(visits: &mut [Sliced], key: impl Fn(&Sliced) -> usize) {
    let mut groups: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    visits.iter().for_each(|visit| groups.entry(key(visit)).or_default().push(visit.rest));
    let medians: BTreeMap<usize, f64> = groups.into_iter().map(|(key, rests)| (key, median(&rests))).collect();
    visits.iter_mut().for_each(|visit| visit.rest -= medians[&key(visit)]);
}

/// The trend within the slices of each depth. Slices of a deep queue are longer than others, so each depth has an error
/// of its own. Trends that are as often up as down say nothing, however large some of them are.
fn trends(points: &[&Point]) -> Vec<Sign> {
    let sign = |(depth, point): (usize, &&Point)| {
        let slices = point.visits.iter().filter_map(|visit| visit.slices.as_ref());
        let trends: Vec<f64> = slices.flat_map(|slices| slices.trends.iter().copied()).collect();
        let freedom = trends.len() as f64 - 1.0;
        if freedom < FEWEST {
            return None;
        }
        let error = (variance(&trends) / trends.len() as f64).sqrt();
        let is_clear = signed_ranks(&trends).abs() > LOPSIDED;
        Some(Sign { depth, by: mean(&trends), error, freedom, is_clear, is_trend: true })
    };
    points.iter().enumerate().filter_map(sign).collect()
}

/// Standard deviations of the signed ranks beyond which values lie to one side of 0: one-sided, 2.5 %.
const LOPSIDED: f64 = 1.96;

/// The sum of the signed ranks of some values, in its standard deviations if they lie evenly around 0: Wilcoxon,
/// "Individual comparisons by ranking methods", 1945.
fn signed_ranks(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let sum: f64 = sorted.iter().enumerate().map(|(rank, value)| (rank + 1) as f64 * value.signum()).sum();
    let squares: f64 = (1..=sorted.len()).map(|rank| (rank * rank) as f64).sum();
    sum / squares.sqrt()
}

/// Degrees of freedom below which signs mean nothing.
const FEWEST: f64 = 6.0;
/// The part of a sweep's time that whole visits need.
const LATEST: f64 = 0.7;

/// The sign that the storage remembers the slice before, as a clause: whole visits have to take the place of slices.
/// None where no sign is larger than chance, and where whole visits would come too late: there the doubt stays in the
/// interval.
pub fn memory(points: &[Point], axis: &str, spent_ns: u64, limits: &Limits) -> Option<String> {
    if spent_ns as f64 > LATEST * limits.curve_cap_ns as f64 {
        return None;
    }
    let points = ascending(points);
    let signs = signs(&points);
    let level = 1.0 - FALSE_MEMORY / 2.0 / signs.len().max(1) as f64;
    let clear = |sign: &&Sign| sign.is_clear && sign.by.abs() > LEAST.max(t_quantile(level, sign.freedom) * sign.error);
    let worst = signs.iter().filter(clear).max_by(|a, b| a.by.abs().total_cmp(&b.by.abs()))?;
    let at = format!("{axis} {}", figures::axis_value(axis, points[worst.depth].x));
    let by = figures::change(worst.by.exp_m1());
    Some(match worst.is_trend {
        true => format!("at {at} slices end {by} faster than they begin"),
        false => format!("at {at} short slices give {by} against long ones"),
    })
}

/// Squared errors that a sign may well have by chance.
const EXPECTED: f64 = 2.0;

/// The standard error of each point, by ascending depth, for the memory that the slices may hide: what the signs show
/// beyond their own errors.
pub(crate) fn doubts(points: &[&Point]) -> Vec<f64> {
    let mut squares = vec![0.0; points.len()];
    for sign in signs(points) {
        // The mean of short and long slices, or of both halves, is off by half of their difference.
        squares[sign.depth] += (sign.by.powi(2) - EXPECTED * sign.error.powi(2)).max(0.0) / 4.0;
    }
    squares.into_iter().map(f64::sqrt).collect()
}

fn ascending(points: &[Point]) -> Vec<&Point> {
    let mut points: Vec<&Point> = points.iter().collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Visit;
    use crate::stats::test_noise::Noise;

    /// A first look at each depth, at these rates.
    fn first_looks(rates: &[(f64, f64)]) -> Vec<Point> {
        let visits = || vec![Visit { samples: 2, ..Visit::default() }];
        rates
            .iter()
            .map(|&(x, rate)| Point { x, samples: vec![rate; 2], visits: visits(), ..Point::default() })
            .collect()
    }

    fn limits() -> Limits {
        Limits { in_place: true, ..Limits::within(40_000_000_000, 4) }
    }

    #[test]
    fn each_depth_follows_each_other_equally_often() {
        for n in 2..=9u32 {
            let depths: Vec<f64> = (1..=n).map(f64::from).collect();
            let rows = williams(&depths, &mut Xoshiro256PlusPlus::seed_from_u64(n.into()));
            let mut follows: BTreeMap<(u64, u64), u32> = BTreeMap::new();
            for row in &rows {
                let mut sorted = row.clone();
                sorted.sort_by(f64::total_cmp);
                assert_eq!(sorted, depths);
                row.windows(2).for_each(|pair| *follows.entry((pair[0] as u64, pair[1] as u64)).or_default() += 1);
            }
            let times = rows.len() as u32 / n;
            assert_eq!(follows.len() as u32, n * (n - 1), "{n}");
            assert!(follows.values().all(|count| *count == times), "{n}: {follows:?}");
        }
    }

    #[test]
    fn slices_are_as_long_as_they_must_be() {
        let fast = first_looks(&[(1.0, 1e4), (8.0, 5e4), (64.0, 5e4), (512.0, 5e4)]);
        let slices = schedule(&fast, &[8.0, 64.0, 512.0], 1, u64::MAX).unwrap();
        assert!(slices.iter().all(|slice| slice.measured_ns == SHORTEST_NS), "{slices:?}");
        assert!(slices.len() > 30 && slices.len().is_multiple_of(3), "{}", slices.len());
        let long = schedule(&fast, &[8.0, 64.0, 512.0], 2, u64::MAX).unwrap();
        assert!(long.iter().all(|slice| slice.measured_ns == LONG * SHORTEST_NS), "{long:?}");
        assert_eq!(schedule(&fast, &[8.0, 64.0], 1, SHORTEST_NS), Some(Vec::new()), "no time for one block");
        // 500 ops a second: 50 of them take 100 ms, and a generation of 256 half a second.
        let slow = first_looks(&[(1.0, 500.0), (16.0, 500.0), (256.0, 500.0)]);
        let slices = schedule(&slow, &[1.0, 16.0, 256.0], 1, u64::MAX).unwrap();
        let of = |x: f64| slices.iter().find(|slice| slice.x == x).unwrap().measured_ns;
        assert_eq!((of(1.0), of(16.0), of(256.0)), (100_000_000, 100_000_000, 512_000_000));
        // A generation of more than 600 ms.
        assert_eq!(schedule(&slow, &[1.0, 512.0], 1, u64::MAX), None);
    }

    #[test]
    fn slow_requests_make_slices_longer_than_visits() {
        let mut points = first_looks(&[(1.0, 1e4), (8.0, 5e4), (64.0, 5e4)]);
        assert_eq!(short_ns(&points), Some(SHORTEST_NS));
        for point in &mut points {
            point.job.directions.read.lat_ns.record_many(4_000_000, 99);
            point.job.directions.read.lat_ns.record(200_000_000);
        }
        assert_eq!(short_ns(&points), None);
        assert_eq!(short_ns(&[]), None);
    }

    /// A round over some depths: the rate of a slice by its depth, the depth before and the part of the slice.
    fn round(points: &mut Vec<Point>, round: u32, noise: &mut Noise, rate: impl Fn(f64, f64, bool, bool) -> f64) {
        let slices = schedule(points, &[8.0, 16.0, 32.0, 64.0], round, u64::MAX).unwrap();
        let mut before = 0.0;
        let mut jobs: BTreeMap<u64, Vec<JobResult>> = BTreeMap::new();
        for slice in &slices {
            let half_ns = slice.measured_ns / 2;
            let mut job = JobResult { runtime_ns: slice.measured_ns, interval_ns: half_ns, ..JobResult::default() };
            for last in [false, true] {
                let end_ns = half_ns * if last { 2 } else { 1 };
                let mut interval = Interval { end_ns, length_ns: half_ns, ..Interval::default() };
                let rate = rate(slice.x, before, last, slice.nominal_ns > SHORTEST_NS) * (1.0 + 0.01 * noise.normal());
                interval.ops.read = (rate * half_ns as f64 / 1e9) as u64;
                interval.lat_sum_ns.read = slice.x as u64 * half_ns;
                job.intervals.push(interval);
            }
            before = slice.x;
            jobs.entry(slice.x as u64).or_default().push(job);
        }
        for (x, jobs) in jobs {
            let mut point = Point::of_slices(x as f64, jobs, slices[0].nominal_ns).unwrap();
            point.visits.iter_mut().for_each(|visit| visit.round = round);
            match points.iter_mut().find(|known| known.x == point.x) {
                Some(known) => known.extend(point),
                None => points.push(point),
            }
        }
    }

    fn rounds(seed: u64, rate: impl Fn(f64, f64, bool, bool) -> f64) -> Vec<Point> {
        let mut noise = Noise::new(seed);
        let mut points = first_looks(&[(8.0, 3e4), (16.0, 5e4), (32.0, 5e4), (64.0, 5e4)]);
        (1..=4).for_each(|number| round(&mut points, number, &mut noise, &rate));
        points
    }

    #[test]
    fn a_storage_that_remembers_is_found_out() {
        let plain = |x: f64, _: f64, _: bool, _: bool| x.min(20.0) * 2e3;
        for seed in 0..20 {
            let points = rounds(seed, plain);
            assert_eq!(memory(&points, "iodepth", 0, &limits()), None, "{seed}");
            let doubts = doubts(&ascending(&points));
            assert!(doubts.iter().all(|doubt| *doubt < 0.01), "{doubts:?}");
        }
        // Tokens that a shallow slice left.
        let bucket =
            |x: f64, before: f64, last: bool, _: bool| x.min(20.0) * 2e3 * if before < x && !last { 1.3 } else { 1.0 };
        let sign = memory(&rounds(1, bucket), "iodepth", 0, &limits()).unwrap();
        assert!(sign.contains("slices end -"), "{sign}");
        let throttle =
            |x: f64, _: f64, _: bool, long: bool| x.min(20.0) * 2e3 * if x == 8.0 && !long { 0.8 } else { 1.0 };
        let points = rounds(1, throttle);
        let sign = memory(&points, "iodepth", 0, &limits()).unwrap();
        assert!(sign == "at iodepth 8 short slices give -20 % against long ones", "{sign}");
        let limits = limits();
        assert_eq!(memory(&points, "iodepth", limits.curve_cap_ns, &limits), None, "too late for visits");
        assert!(doubts(&ascending(&points))[0] > 0.05, "the doubt stays");
    }
}

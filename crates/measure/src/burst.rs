//! The burst of a limit: what the storage gives at the start of a visit, and does not sustain.
//!
//! Clouds, control groups and targets limit storage with token buckets. While nobody asks, the bucket fills; a visit
//! that begins empties it, and only then shows the limit. At depths that ask for much more than the limit the bucket is
//! empty before the ramp ends. A depth that asks for little more than the limit lives on the bucket for its whole
//! visit: it seems to give more than every deeper one, and nothing in that visit tells that the bucket runs dry.
//!
//! The ramps of other depths do tell. Their visits give more in the ramp than at their ends, surely and at several
//! times; that surplus is the content of the bucket. A depth whose throughput is above the level of the drained depths
//! by no more than the bucket explains may sustain that level only.
//!
//! Rates of an open loop are the same: a rate little above the limit lives on the bucket, and no queue grows. Visits to
//! rates that the storage surely does not keep up with show the bucket.

use std::collections::{BTreeMap, BTreeSet};

use crate::schema::Point;
use crate::stats::{mean, sorted_quantile, t_exceeds, variance};
use crate::visits::Look;

/// A visit with its ramp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Start {
    /// The index of the visit among the looks of [`crate::visits::looks`].
    look: usize,
    /// The index of the depth.
    pub depth: usize,
    /// The round of the visit.
    pub round: u32,
    /// Ops of the ramp beyond those that the rate of the measured part would have given.
    surplus: f64,
    /// The surplus as a part of those.
    part: f64,
    /// The logarithm of the ramp's rate over that of the end of the visit, which is as long if the visit allows it.
    excess: f64,
    /// Ops of the ramp and of the measured part.
    ops: f64,
    /// Duration of both.
    seconds: f64,
    /// Ops per second of the measured part.
    rate: f64,
    /// Ops per second of its end, when a bucket that ran dry before no longer counts.
    late: f64,
}

/// A visit with fewer samples has no second half, unless it replayed whole passes: they are one sample, and the first
/// pass is the ramp.
const FEWEST_SAMPLES: usize = 4;

/// The visits to all points that have a ramp, in the order of the points.
pub(crate) fn starts(points: &[&Point]) -> Vec<Start> {
    let mut out = Vec::new();
    let mut looks = 0;
    for (depth, point) in points.iter().enumerate() {
        let passes = point.passes();
        for (number, (visit, samples)) in point.by_visit().enumerate() {
            let rate = mean(samples);
            if !(rate.is_finite() && rate > 0.0) {
                continue;
            }
            looks += 1;
            let measured_ns = match passes {
                Some(passes) => passes[number].length_ns,
                None if samples.len() < FEWEST_SAMPLES => continue,
                None if visit.measured_ns > 0 => visit.measured_ns,
                None => samples.len() as u64 * point.job.interval_ns,
            };
            let Some(ramp) = visit.ramp.filter(|ramp| ramp.ns > 0) else { continue };
            let (ramp_s, measured_s) = (ramp.ns as f64 / 1e9, measured_ns as f64 / 1e9);
            let last = (ramp.ns.div_ceil(point.job.interval_ns.max(1)) as usize).clamp(1, samples.len().div_ceil(2));
            let late = mean(&samples[samples.len() - last..]);
            let surplus = ramp.ops as f64 - rate * ramp_s;
            out.push(Start {
                look: looks - 1,
                depth,
                round: visit.round,
                surplus,
                part: surplus / (rate * ramp_s),
                // Half an op: a ramp, or an end, without a completion.
                excess: ((ramp.ops as f64).max(0.5) / ramp_s / late.max(0.5 / ramp_s)).ln(),
                ops: ramp.ops as f64 + rate * measured_s,
                seconds: ramp_s + measured_s,
                rate,
                late: mean(&samples[samples.len() / 2..]),
            });
        }
        looks += usize::from(point.visits.is_empty());
    }
    out
}

/// A smaller surplus, as a part of what the ramp usually gives, moves no plateau by more than its least error.
const LEAST_SURPLUS: f64 = 0.005;
/// Visits on which the evidence has to rest at least.
const FEWEST_VISITS: usize = 3;
/// The probability of a false burst in a sweep: each range of depths and each test has its part (Bonferroni).
const FALSE_SURPLUS: f64 = 0.001;
/// The probability of a false burst at a range of rates of an open loop: one or two rates show the limit by a few
/// visits, and a false burst takes the word only from rates that gave more than the limit.
const FALSE_SURPLUS_OF_A_RATE: f64 = 0.05;
/// The probability of a false suspicion at one range, which costs no more than the precision of slices.
const SUSPECTED: f64 = 0.045;
/// A visit with this part of the usual surplus was drained before its second half.
const DRAINED: f64 = 0.5;
/// Drained visits within this part of their median show the limit.
const SAME_LEVEL: f64 = 0.03;
/// A visit may have used this many times the largest surplus: a large bucket is full after shallow visits, which leave
/// tokens, and holds what the moment between two visits gave after others.
const FULLER: f64 = 5.0;

/// The smallest error of a limit, relative: an exact limiter leaves visits that agree to the last digit.
const LEAST_ERROR: f64 = 0.001;
/// Rates that differ by less are the same.
const SAME_RATE: f64 = 0.003;

/// The burst that the visits show.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// The largest surplus of a visit, in ops.
    pub ops: f64,
    /// Ops per second that the storage sustains once the bucket is empty, and its standard error.
    pub limit: (f64, f64),
    /// Indices of looks, and what their depth sustains less what the visit gave (logarithms).
    away: Vec<(usize, f64)>,
}

impl Bucket {
    /// The burst; None where no depth surely gives more at first than later.
    pub fn of(starts: &[Start]) -> Option<Bucket> {
        let depths = starts.iter().map(|start| start.depth).collect::<BTreeSet<_>>().len();
        let ranges = depths * (depths + 1) / 2;
        Bucket::unless_false(starts, FALSE_SURPLUS / (2 * ranges.max(1)) as f64)
    }

    /// True if the visits may have begun with a burst.
    pub fn is_suspected(starts: &[Start]) -> bool {
        let depths: BTreeSet<usize> = starts.iter().map(|start| start.depth).collect();
        drained_range(starts, &depths, SUSPECTED).is_some()
    }

    /// The burst of an open loop's visits, at rates that the storage surely does not keep up with.
    pub fn of_rates(starts: &[Start]) -> Option<Bucket> {
        Bucket::unless_false(starts, FALSE_SURPLUS_OF_A_RATE)
    }

    fn unless_false(starts: &[Start], false_surplus: f64) -> Option<Bucket> {
        let depths: BTreeSet<usize> = starts.iter().map(|start| start.depth).collect();
        let of = |depth: usize| starts.iter().filter(move |start| start.depth == depth);
        let shown = drained_range(starts, &depths, false_surplus)?;
        let usual = median(shown.iter().map(|start| start.surplus));
        let is_drained = |start: &&Start| start.part > LEAST_SURPLUS && start.surplus >= DRAINED * usual;
        // All visits of the range: those with the largest surplus are those that were slow later by chance.
        let level = median(shown.iter().map(|start| start.late));
        let levels: Vec<f64> =
            shown.iter().map(|start| start.late).filter(|late| (late / level - 1.0).abs() <= SAME_LEVEL).collect();
        let limit = mean(&levels);
        if !limit.is_finite() || limit <= 0.0 {
            return None;
        }
        let most = starts.iter().map(|start| start.surplus).fold(f64::MIN, f64::max);

        let lives_on_it = |start: &&Start| {
            !is_drained(start) && start.rate > limit && start.ops - limit * start.seconds <= FULLER * most
        };
        let drained: Vec<&Start> = starts.iter().filter(is_drained).collect();
        let mut away: Vec<(usize, f64)> = Vec::new();
        for (depth, by) in decays(&drained) {
            away.extend(drained.iter().filter(|start| start.depth == depth).map(|start| (start.look, by)));
        }
        for depth in depths {
            // All by the same: the difference between these visits stays.
            let by = (limit / mean(&of(depth).filter(lives_on_it).map(|start| start.rate).collect::<Vec<_>>())).ln();
            away.extend(of(depth).filter(lives_on_it).map(|start| (start.look, by)));
        }
        away.retain(|(_, by)| by.is_finite());
        let error =
            if levels.len() > 1 { (variance(&levels) / levels.len() as f64).sqrt() } else { SAME_LEVEL * limit };
        Some(Bucket { ops: most, limit: (limit, error.max(LEAST_ERROR * limit)), away })
    }

    /// True if visits to one point gave more than the storage sustains, and no more than the bucket explains.
    pub fn feeds(&self, starts: &[&Start]) -> bool {
        let of = |part: fn(&Start) -> f64| mean(&starts.iter().map(|start| part(start)).collect::<Vec<_>>());
        let (limit, error) = self.limit;
        let surplus = of(|start| start.ops) - limit * of(|start| start.seconds);
        of(|start| start.rate) > limit * (1.0 + SAME_RATE) + error && surplus <= FULLER * self.ops
    }

    /// The visits with the throughput that their depths sustain.
    pub fn without(&self, looks: &[Look]) -> Vec<Look> {
        let mut out = looks.to_vec();
        for &(look, by) in &self.away {
            out[look].ln += by;
        }
        out
    }
}

/// The quantile 0.99 of chi-squared with that many degrees of freedom: Wilson and Hilferty (1931).
fn by_chance(freedom: f64) -> f64 {
    let part = 2.0 / (9.0 * freedom);
    freedom * (1.0 - part + 2.326 * part.sqrt()).powi(3)
}

/// The fall of the visits to each depth once they have drained the bucket: the logarithm of their late rate over their
/// whole one, 0 at most.
///
/// Half a visit is short, and storage that serves in bursts gives one more or one less of them by chance. So a depth
/// speaks for itself only as far as depths surely differ by more than the visits to each of them do, and shares that of
/// all depths otherwise: empirical Bayes, with the variance between depths by moments (DerSimonian and Laird,
/// "Meta-analysis in clinical trials", 1986), less what chance gives it in 99 of 100 cases.
fn decays(drained: &[&Start]) -> Vec<(usize, f64)> {
    let mut of_depth: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for start in drained {
        let decay = (start.late / start.rate).ln();
        of_depth.entry(start.depth).or_default().extend(decay.is_finite().then_some(decay));
    }
    // Medians: a burst that falls beside half of a visit is a large part of it.
    let usual = |decays: &[f64]| median(decays.iter().copied());
    let common = usual(&of_depth.values().flatten().copied().collect::<Vec<_>>());
    let several: Vec<&Vec<f64>> = of_depth.values().filter(|decays| decays.len() >= FEWEST_VISITS).collect();
    let sum =
        |of: &dyn Fn(&[f64], f64) -> f64| -> f64 { several.iter().map(|decays| of(decays, decays.len() as f64)).sum() };
    let (visits, depths) = (sum(&|_, count| count), several.len() as f64);
    let within = sum(&|decays, count| variance(decays) * (count - 1.0)) / (visits - depths);
    let apart = sum(&|decays, count| count * (usual(decays) - common).powi(2));
    let between = (apart - by_chance(depths - 1.0) * within) / (visits - sum(&|_, count| count * count) / visits);
    let shrunk = |decays: &[f64]| {
        let share = between / (between + within / decays.len() as f64);
        let speaks = decays.len() >= FEWEST_VISITS && between > 0.0;
        (common + if speaks { share * (usual(decays) - common) } else { 0.0 }).min(0.0)
    };
    of_depth.iter().map(|(&depth, decays)| (depth, shrunk(decays))).collect()
}

/// The visits to those neighbouring depths that show best that visits give more at first than later; None where chance
/// explains all of it.
///
/// A visit's ramp and the end of its measured part are two samples of the same storage. Without a bucket, neither of
/// the two is more likely to be the faster one, however the noise is distributed and however long it lasts: their
/// difference is symmetric. So the sign test holds exactly, and Student's t is conservative (Benjamini, 1983).
/// `false_surplus` is the probability of an error of one test at one range.
fn drained_range(starts: &[Start], depths: &BTreeSet<usize>, false_surplus: f64) -> Option<Vec<Start>> {
    let depths: Vec<usize> = depths.iter().copied().collect();
    let range = |from: usize, to: usize| starts.iter().filter(move |start| (from..=to).contains(&start.depth));
    let all = depths.iter().enumerate().flat_map(|(index, &from)| depths[index..].iter().map(move |&to| (from, to)));
    let sure = all.filter_map(|(from, to)| {
        let excess: Vec<f64> = range(from, to).map(|start| start.excess - LEAST_SURPLUS).collect();
        let chance = by_sign(&excess).min(by_mean(&excess));
        (excess.len() >= FEWEST_VISITS && chance <= false_surplus).then_some((chance, from, to))
    });
    let (_, from, to) = sure.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(range(from, to).copied().collect())
}

/// The probability that as many of some differences are positive, if each is as likely negative.
fn by_sign(differences: &[f64]) -> f64 {
    let n = differences.len() as i32;
    let positive = differences.iter().filter(|difference| **difference > 0.0).count() as i32;
    let mut ways = 0.5f64.powi(n);
    let mut chance = 0.0;
    for negative in 0..=n - positive {
        chance += ways;
        ways *= f64::from(n - negative) / f64::from(negative + 1);
    }
    chance
}

/// The probability of such a mean of some differences, if it is 0 in truth.
fn by_mean(differences: &[f64]) -> f64 {
    let count = differences.len() as f64;
    if differences.len() < FEWEST_VISITS {
        return 1.0;
    }
    let error = (variance(differences) / count).sqrt().max(f64::MIN_POSITIVE);
    t_exceeds(mean(differences) / error, count - 1.0)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    sorted_quantile(&values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_line;
    use crate::schema::{JobResult, Ramp, Visit};
    use crate::stats::test_noise::Noise;

    /// Visits of 0.4 s after a ramp of 0.2 s, five to each depth, to a storage with a limit of 2,048 ops a second and a
    /// bucket of 20 ops that is full at each start, as those of `plimsoll serve`. Each depth would give `asked` ops a
    /// second without it.
    fn points(asked: &[f64], limit: f64, bucket: f64) -> Vec<Point> {
        let mut noise = Noise::new(7);
        let point = |(index, asked): (usize, &f64)| {
            let job = JobResult { interval_ns: 50_000_000, ..JobResult::default() };
            let mut point = Point { x: f64::from(1u32 << index), job, ..Point::default() };
            for round in 0..5 {
                let given = |seconds: f64| (asked * seconds).min(bucket + limit * seconds);
                for step in 0..8 {
                    let from = 0.2 + 0.05 * f64::from(step);
                    point.samples.push((given(from + 0.05) - given(from)) / 0.05 * (1.0 + 0.001 * noise.normal()));
                }
                let ramp = Some(Ramp { ops: given(0.2) as u64, ns: 200_000_000 });
                point.visits.push(Visit { round, samples: 8, ramp, ..Visit::default() });
            }
            point
        };
        asked.iter().enumerate().map(point).collect()
    }

    #[test]
    fn a_depth_that_lives_on_the_bucket_is_not_the_plateau() {
        let points = points(&[2076.0, 4100.0, 8000.0, 15_000.0, 20_000.0], 2048.0, 20.0);
        assert!((mean(&points[0].samples) - 2076.0).abs() < 5.0, "the visits do not see the limit");
        let line = load_line::find(&points).unwrap();
        let plateau = line.plateau().unwrap();
        assert!(plateau.low <= 2048.0 && 2048.0 <= plateau.high && plateau.low > 2030.0, "{line:?}");
        let burst = line.burst.unwrap();
        assert!((15.0..25.0).contains(&burst.ops) && line.overload.is_none(), "{line:?}");
    }

    #[test]
    fn the_end_of_a_burst_is_no_overload() {
        // Depth 2 lives on the bucket, and gives a tenth more than the limit.
        let line = load_line::find(&points(&[1500.0, 2253.0, 8000.0, 15_000.0, 20_000.0], 2048.0, 150.0)).unwrap();
        assert!(line.overload.is_none() && line.hides_overload(), "{line:?}");
        assert!(line.plateau_iops.low <= 2048.0 && line.plateau_iops.high >= 2048.0, "{line:?}");
    }

    /// The kernel's limit of 1,000 a second: it lets 100 through every 100 ms. A visit is measured from the end of one
    /// such burst to that of another; its ramp meets more than its share, and half of it one burst more or less. Every
    /// depth has the limit, so that the smallest is the load line.
    #[test]
    fn a_limit_that_serves_in_bursts_has_a_sharp_line() {
        let mut bursts = 0;
        for seed in 0..20 {
            let mut noise = Noise::new(seed);
            let mut visit = |samples: &mut Vec<f64>, round: u32| {
                let count = if noise.normal() < 1.3 { 8 } else { 10 };
                let whole = 1.0 + 0.005 * noise.normal();
                samples.extend((0..count).map(|at| if at % 2 == 1 { 2000.0 * whole } else { 0.0 }));
                let ramp =
                    Some(Ramp { ns: 270_000_000 + 5_000_000 * u64::from(round), ops: 298 - u64::from(3 * round) });
                Visit { at_ns: u64::from(round), round, samples: count as u32, ramp, ..Visit::default() }
            };
            let points: Vec<Point> = (0..11)
                .map(|index| {
                    let mut samples = Vec::new();
                    let visits = (0..if index < 5 { 6 } else { 3 }).map(|round| visit(&mut samples, round)).collect();
                    let job = JobResult { interval_ns: 50_000_000, ..JobResult::default() };
                    Point { x: f64::from(1u32 << index), job, samples, visits, ..Point::default() }
                })
                .collect();
            let line = load_line::find(&points).unwrap();
            bursts += u32::from(line.burst.is_some());
            let bounds = line.load_line.unwrap();
            assert!(bounds.low == 1.0 && bounds.high <= 4.0, "seed {seed}: {bounds:?}");
            assert!(line.plateau_iops.low <= 1000.0 && line.plateau_iops.high >= 1000.0, "seed {seed}: {line:?}");
        }
        assert!(bursts > 5, "{bursts} of 20 sweeps look as if they began with a burst");
    }

    /// A device keeps its speed for 0.3 s, and its visits differ by 10 %.
    #[test]
    fn noise_that_lasts_is_no_burst() {
        for seed in 0..300 {
            let mut noise = Noise::new(seed);
            let visits = (0..80).map(|number| {
                let mut speed = [0.0; 3].map(|_: f64| (0.1 * noise.normal()).exp());
                speed[2] = (speed[1] + speed[2]) / 2.0;
                let [ramp, early, late] = speed.map(|speed| 1000.0 * speed);
                let rate = (early + late) / 2.0;
                let surplus = (ramp - rate) * 0.2;
                Start {
                    look: number,
                    depth: number % 10,
                    round: (number / 10) as u32,
                    surplus,
                    part: surplus / (rate * 0.2),
                    excess: (ramp / late).ln(),
                    ops: ramp * 0.2 + rate * 0.4,
                    seconds: 0.6,
                    rate,
                    late,
                }
            });
            assert!(Bucket::of(&visits.collect::<Vec<_>>()).is_none(), "{seed}");
        }
    }

    #[test]
    fn storage_without_a_bucket_has_no_burst() {
        for asked in [&[500.0, 1000.0, 1900.0, 2000.0, 1990.0], &[500.0, 1000.0, 2000.0, 1600.0, 1200.0]] {
            let line = load_line::find(&points(asked, f64::MAX, 0.0)).unwrap();
            assert_eq!(line.burst, None);
        }
    }
}

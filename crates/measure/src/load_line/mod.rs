//! The load line: the smallest depth that reaches 97 % of the plateau, and where overload begins.
//!
//! This module estimates the curve of the storage itself. A visit to a depth also shows the machine at that moment, so
//! nothing is claimed from one visit:
//!
//! - [`crate::visits`] tells the effect of a depth from that of a round of visits, and gives the error of a whole
//!   visit. Everything here is on the logarithmic scale.
//! - Throughput over depth rises to a plateau and may fall beyond it: the depths are fitted by the closest curve that
//!   rises and then falls ([`crate::unimodal`]).
//! - The plateau is the mean over all points at the top that differ by no more than their noise: the maximum of noisy
//!   points would be biased upwards. Points that truly rise by less than their noise bias that mean downwards, so the
//!   upper end of the interval is the top of the closest concave curve ([`crate::concave`]) from half of the plateau
//!   on: more requests in flight add ever less. A fit that only has to rise follows the noise at its end (Woodroofe
//!   and Sun, "A penalized maximum likelihood estimate of f(0+) when f is nonincreasing", 1993).
//! - Between measured depths the fit is a power law (a straight line in log depth and log throughput: exact while
//!   throughput is proportional to depth). A concave curve lies between that chord and the prolonged chord before it,
//!   which bounds where it crosses a level: the confidence interval holds that uncertainty as well as the noise.
//! - The noise is that of a parametric bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
//!   chapter 6): curves drawn with the covariance of the least-squares fit and an error that is itself drawn from its
//!   distribution, which makes the marginal intervals those of Student's t. The seed is fixed: the same points give the
//!   same line.
//! - Where rounds differ by more than the error within them, the machine was not the same all the time: the interval of
//!   the plateau then spans the rounds.
//! - Where visits to the same depths differ so much that 97 % of the plateau is hard to tell from the plateau
//!   ([`LoadLine::scatter`]), the errors are not normal: the machine has states, and the few visits to a depth may all
//!   have met the slowest. The lower end of the load line then rests on no distribution
//!   ([`Seen::surely_below`]), the plateau's interval holds a typical visit, and an overload
//!   is one that all visits to its depth show.
//! - Where visits give more in their ramps than later ([`crate::burst`]), the intervals hold both what the visits gave
//!   and what remains without that burst.
//! - Where the visits have nothing in common, no load line is named, and [`LoadLine::unnamed`] says why.

mod drawn;
mod seen;
mod shape;

use crate::burst::Bucket;
use crate::figures::percent;
use crate::limit::{self, Condition};
use crate::refine::Goal;
use crate::schema::{Answer, Burst, Curve, Estimate, LoadLine, Point};
use crate::stats::{mean, t_quantile, variance};
use crate::visits::Effects;
use drawn::line_of;
use seen::{Normal, Seen};
pub(crate) use shape::{plateau, weights};

/// A depth times this lies beyond it.
const JUST_BEYOND: f64 = 1.0 + 1e-6;
/// The load line is the smallest depth with this part of the plateau.
pub const LOAD_LINE_FRACTION: f64 = 0.97;
/// Overload is where throughput has fallen to this part of the plateau.
pub const OVERLOAD_FRACTION: f64 = 0.95;
/// A curve that gains more than this part over the last doubling of depth is still rising: one more doubling could move
/// the plateau by more than the load line's own tolerance.
const RISING_A_DOUBLING: f64 = 0.03;
/// The smallest error of a depth, relative: two builds of the same program differ by as much.
const LEAST_ERROR: f64 = 0.001;
/// Visits whose error is larger than this (a standard deviation, beyond what the samples within them explain) place a
/// level 3 % below the plateau within bounds at best: a dozen of them would be needed for each depth.
const SCATTERED: f64 = 0.03;
/// [`SCATTERED`] of visits in slices: each of them saw several moments of the machine, so their errors are nearly
/// normal.
const SCATTERED_SLICES: f64 = 0.045;
/// Visits that were set aside show another state of the machine. Visits that were kept may lie between the two states,
/// and their error is then too small, because the farthest are gone (Tukey and McLaughlin, 1963). [`SCATTERED`] shrinks
/// by this many times the part that was set aside.
const HIDDEN: f64 = 2.5;
/// Part of the visits that may be set aside as accidents: the lucky second, a burst of another program.
const RARE: f64 = 0.1;
/// The part of visits set aside beyond which they are a second state of the machine, and nothing tells which of the two
/// states is the storage.
const OFTEN: f64 = 0.15;
/// The probability, for each depth, of a wrong statement that the depth lies below the load line: the few depths just
/// above the line have it together, and 2.5 % is what an end of the interval may have.
const WRONGLY_BELOW: f64 = 0.005;
/// An error of a visit (a logarithm) that is too large for bounds: in a third of the visits the machine gave less than
/// 55 % of its usual throughput, or more than 180 %.
const LARGEST_ERROR: f64 = 0.6;
/// Errors of a visit on each side of the plateau that its interval holds where visits are scattered.
const TYPICAL: f64 = 1.25;
/// Part of the visits that may be set aside at all: with more, the usual state of the machine is a matter of chance.
const MOST_ODD: f64 = 0.4;
/// Rounds that lie farther apart than this saw different machines.
const LARGEST_SPAN: f64 = 0.7;

/// Plateau, load line and overload of a curve, each with its 95 % confidence interval; None when fewer than three
/// points have samples. Points may be in any order. Deterministic: the bootstrap's seed is fixed.
pub fn find(points: &[Point]) -> Option<LoadLine> {
    let seen = Seen::of(points)?;
    let given = line_of(&seen);
    let Some(bucket) = Bucket::of(&seen.starts) else { return Some(given) };
    let sustained = line_of(&Seen { looks: bucket.without(&seen.looks), ..seen });
    Some(with_burst(given, sustained, &bucket, points))
}

/// Standard errors of a limit below which the plateau's interval begins.
const SURE: f64 = 2.6;

/// The line of a storage that gives more at first than later: the visits give the line `given`, and `sustained` remains
/// without the burst. A true peak followed by a fall looks the same, so the intervals hold both.
fn with_burst(given: LoadLine, sustained: LoadLine, bucket: &Bucket, points: &[Point]) -> LoadLine {
    let union = |a: Estimate, b: Estimate| Estimate { mean: a.mean, low: a.low.min(b.low), high: a.high.max(b.high) };
    let both = |a: Option<Estimate>, b: Option<Estimate>| a.zip(b).map(|(a, b)| union(a, b));
    let (limit, error) = bucket.limit;
    // Throughput that comes down to the limit is the end of the burst.
    let is_below = |overload: &Estimate| {
        let at = points.iter().find(|point| point.x == overload.mean);
        at.is_some_and(|point| mean(&point.samples) < OVERLOAD_FRACTION * (limit + SURE * error))
    };
    let overload = both(sustained.overload, given.overload).filter(is_below);
    let hides_overload = overload.is_none() && (sustained.overload.is_some() || given.overload.is_some());
    let plateau_iops = union(sustained.plateau_iops, given.plateau_iops);
    LoadLine {
        plateau_iops: Estimate { low: plateau_iops.low.min(limit - SURE * error), ..plateau_iops },
        load_line: both(sustained.load_line, given.load_line),
        may_fall: overload.is_none() && (sustained.may_fall || given.may_fall),
        overload,
        still_rising: sustained.still_rising || given.still_rising,
        scatter: sustained.scatter.or(given.scatter),
        burst: Some(Burst { ops: bucket.ops, hides_overload }),
        unnamed: sustained.unnamed.or(given.unnamed),
    }
}

impl Curve {
    /// Judges the curve once all its points are there: sets its line and its limits, as far as `goal` asks for them,
    /// and the throughput of each point with an interval that holds the difference between visits, too.
    pub fn conclude(&mut self, goal: &Goal) {
        self.line = if goal.line { find(&self.points) } else { None };
        match goal.is_open_loop() {
            true => self.points.iter_mut().for_each(Point::widen),
            false => self.widen(),
        }
        for conditions in &goal.limits {
            let limit = Some(limit::find(self, conditions));
            match conditions.as_slice() {
                [Condition::KeepsUp] => self.saturation = limit,
                _ => self.kept = limit,
            }
        }
    }

    /// Gives the throughput of each point an interval that holds the difference between visits.
    fn widen(&mut self) {
        let Some((seen, effects)) =
            Seen::beyond(&self.points, 0.0).and_then(|seen| Effects::of(&seen.looks).map(|effects| (seen, effects)))
        else {
            return;
        };
        let levels = seen.levels(&effects);
        let t = t_quantile(0.975, effects.freedom);
        for point in &mut self.points {
            let Some(index) = seen.x.iter().position(|x| *x == point.x) else { continue };
            let level = match levels.confirmed[index] {
                true => (levels.ln_y[index] + effects.lost).exp(),
                false => point.iops.mean,
            };
            let factor = (t * levels.errors[index]).exp();
            for estimate in [&mut point.iops, &mut point.bytes_per_second] {
                let scale = level / mean(&point.samples);
                let (was, mean) = (*estimate, estimate.mean * scale);
                *estimate = Estimate {
                    mean,
                    low: (mean / factor).min(was.low * scale),
                    high: (mean * factor).max(was.high * scale),
                };
            }
        }
    }
}

impl Point {
    /// Gives the throughput of a point of an open loop an interval that holds the difference between its visits. The
    /// arrivals set the throughput of a rate that is kept. Round effects have no place there: a round in which the
    /// queue of a higher rate grew longer than in others says nothing about this one.
    fn widen(&mut self) {
        let means = self.visit_means();
        if means.len() < 2 {
            return;
        }
        let count = means.len() as f64;
        let half =
            t_quantile(0.975, count - 1.0) * (variance(&means) / count).sqrt() / mean(&means).max(f64::MIN_POSITIVE);
        for Estimate { mean, low, high } in [&mut self.iops, &mut self.bytes_per_second] {
            *low = low.min(*mean * (1.0 - half)).max(0.0);
            *high = high.max(*mean * (1.0 + half));
        }
    }
}

/// The beginning of most reasons for naming no load line.
const CHANGED: &str = "the machine changed during the sweep";

/// The difference between visits to the same depths, in words, where their `error`, or the part of it that needs a
/// reason, is too large for the fit's own errors; None where the visits agree.
fn scattered(effects: &Effects, error: f64, largest: f64) -> Option<String> {
    let odd = effects.odd_part();
    if error > largest * (1.0 - HIDDEN * odd) {
        return Some(format!("visits to the same point differ by {}", percent(effects.error)));
    }
    (odd > OFTEN).then(|| format!("{} of the visits do not agree with the others at the same point", percent(odd)))
}

/// The reason why the visits cannot name a load line; None if they can.
fn reason_against(effects: &Effects) -> Option<String> {
    let changed = |how: String| Some(format!("{CHANGED}: {how}"));
    if effects.error > LARGEST_ERROR || effects.odd_part() > MOST_ODD {
        return scattered(effects, effects.error, SCATTERED).and_then(changed);
    }
    let (slowest, fastest) = span(effects);
    if fastest - slowest > LARGEST_SPAN {
        return changed(format!(
            "it gave {} at one time of what it gave at another",
            percent((slowest - fastest).exp())
        ));
    }
    None
}

/// The distance of the slowest round below the machine's mean over the rounds, and of the fastest above it: the rounds
/// that differ by more than the error of the visits explains, and visits that were set aside unless they are rare; (0,
/// 0) where there are none.
fn span(effects: &Effects) -> (f64, f64) {
    // In one sweep of ten, one of a dozen rounds differs by this much by chance.
    let limit = t_quantile(0.995, effects.freedom);
    let differs = |&(effect, visits): &(f64, usize)| {
        visits > 0 && effect.abs() > limit * effects.error.max(LEAST_ERROR) / (visits as f64).sqrt()
    };
    let rounds = effects.rounds.iter().copied().filter(differs).map(|(effect, _)| effect);
    let rare = effects.odd_part() <= RARE;
    let visits = effects.set_aside.iter().map(|(_, away)| *away).filter(|_| !rare);
    rounds.chain(visits).fold((0.0, 0.0), |(slowest, fastest), effect| (effect.min(slowest), effect.max(fastest)))
}

/// A drawn error of the mean of the rounds: the error of the throughput as a whole.
fn common_shift(effects: &Effects, random: &mut Normal) -> f64 {
    let rounds: Vec<f64> = effects.rounds[1..].iter().map(|(effect, _)| *effect).collect();
    (variance(&rounds) / rounds.len() as f64).sqrt() * random.student(rounds.len() as f64 - 1.0)
}

impl Curve {
    /// The measured point at the load line; None where no load line is named.
    pub fn at_load_line(&self) -> Option<&Point> {
        match self.line.as_ref()?.answer() {
            Answer::At(line) => self.points.iter().find(|point| point.x == line.mean),
            Answer::Between(..) | Answer::Beyond | Answer::Unnamed(_) => None,
        }
    }

    /// The measured point at which overload begins; None without overload.
    pub fn at_overload(&self) -> Option<&Point> {
        let overload = self.line.as_ref()?.overload?;
        self.points.iter().find(|point| point.x == overload.mean)
    }
}

/// An interval of the load line that spans more than this factor is given as "between", without a depth of its own: two
/// steps of the grid of doubling depths, so that at least one measured depth inside may as well be the line.
const WIDEST: f64 = 4.0;

impl LoadLine {
    /// The plateau; None where no load line can be named: then no interval of throughput means anything either.
    pub fn plateau(&self) -> Option<Estimate> {
        self.unnamed.is_none().then_some(self.plateau_iops)
    }

    /// True if nothing can be said of overload: the visits to the same depths differ too much, or allow a fall that
    /// they do not prove.
    pub fn hides_overload(&self) -> bool {
        let hidden = self.burst.is_some_and(|burst| burst.hides_overload);
        self.overload.is_none() && (self.unnamed.is_some() || self.scatter.is_some() || self.may_fall || hidden)
    }

    /// The reason why the sweep does not rule an overload out; None where the visits give no such reason.
    pub fn doubt(&self) -> Option<&'static str> {
        self.may_fall.then_some("the visits allow a fall by 5 %, and do not prove one")
    }

    /// The factor between the bounds of the load line; None where the sweep names neither a depth nor bounds.
    pub fn factor(&self) -> Option<f64> {
        match self.answer() {
            Answer::At(Estimate { low, high, .. }) | Answer::Between(low, high) => Some(high / low),
            Answer::Beyond | Answer::Unnamed(_) => None,
        }
    }

    /// The answer of the sweep about the load line. Every table, sentence, tile and title shows this and nothing else.
    pub fn answer(&self) -> Answer<'_> {
        match (&self.unnamed, self.still_rising, self.load_line) {
            (Some(reason), ..) => Answer::Unnamed(reason),
            (None, true, _) => Answer::Beyond,
            (None, false, None) => Answer::Unnamed("too little was measured"),
            (None, false, Some(line)) if line.high > line.low * WIDEST => Answer::Between(line.low, line.high),
            (None, false, Some(line)) => Answer::At(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Visit;
    use crate::stats::test_noise::Noise;

    const DEPTHS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

    /// Eight samples a visit, each off by `noise` (a fraction); a first look and `rounds` visits to each depth.
    fn sweep(curve: impl Fn(f64) -> f64, depths: &[f64], rounds: u32, noise: f64, seed: u64) -> Vec<Point> {
        let mut random = Noise::new(seed);
        let mut point = |&x: &f64| {
            let samples = (0..8 * (1 + rounds)).map(|_| curve(x) * (1.0 + noise * random.normal())).collect();
            let visits = (0..=rounds)
                .map(|round| Visit { at_ns: u64::from(round), round, samples: 8, ..Visit::default() })
                .collect();
            Point { x, samples, visits, ..Point::default() }
        };
        depths.iter().map(&mut point).collect()
    }

    /// A closed system by Little's law: proportional to depth until 24; `sharp` large makes a hard knee.
    fn saturating(sharp: f64) -> impl Fn(f64) -> f64 {
        move |depth| 1e5 * (1.0 + (24.0 / depth).powf(sharp)).powf(-1.0 / sharp)
    }

    /// Multiplies the samples of each visit by `factor`, given the depth and the visit's index.
    fn change(points: &mut [Point], factor: impl Fn(f64, u32) -> f64) {
        for point in points {
            for (index, sample) in point.samples.iter_mut().enumerate() {
                *sample *= factor(point.x, index as u32 / 8);
            }
        }
    }

    /// Rounds of an open loop differ where the queue overflows, and nowhere else.
    #[test]
    fn a_rate_that_is_kept_has_the_throughput_of_its_arrivals() {
        let rates = [1000.0, 1500.0, 1900.0, 3000.0, 4000.0];
        let mut points = sweep(|rate| rate, &rates, 4, 0.02, 3);
        change(&mut points, |rate, visit| if rate > 2000.0 { [0.9, 0.6, 0.3, 0.6, 0.2][visit as usize] } else { 1.0 });
        points.iter_mut().for_each(|point| point.iops = crate::stats::estimate(&point.samples));
        let goal = Goal { line: false, limits: vec![vec![Condition::KeepsUp]] };
        let mut curve = Curve { points, ..Curve::default() };
        curve.conclude(&goal);
        for point in &curve.points[..3] {
            let Estimate { mean, low, high } = point.iops;
            assert!((mean / point.x - 1.0).abs() < 0.02, "{} {mean}", point.x);
            assert!(low <= point.x && point.x <= high && high - low < 0.06 * point.x, "{} {low} {high}", point.x);
        }
        let Estimate { mean, low, high } = curve.points[3].iops;
        assert!(low < 0.4 * 3000.0 && high > 0.7 * 3000.0, "visits differ: {low} {mean} {high}");
    }

    #[test]
    fn exact_curves_give_exact_plateaus_and_the_same_points_the_same_line() {
        let points = sweep(saturating(40.0), &DEPTHS, 4, 0.0, 0);
        let found = find(&points).unwrap();
        assert!((found.plateau_iops.mean - 1e5).abs() < 1.0 && found.overload.is_none() && !found.still_rising);
        let mut reversed = points;
        reversed.reverse();
        assert_eq!(find(&reversed).unwrap(), found);
    }

    #[test]
    fn the_line_is_a_measured_depth_with_whole_bounds_around_the_true_one() {
        let fine: Vec<f64> = DEPTHS.into_iter().chain([19.0, 22.0, 24.0, 27.0]).collect();
        let found = find(&sweep(saturating(40.0), &fine, 5, 0.002, 1)).unwrap();
        let Answer::At(line) = found.answer() else { panic!("{found:?}") };
        assert_eq!(line.mean, 24.0);
        assert!((line.low..=line.high).contains(&24.0) && line.low >= 22.0 && line.high <= 27.0, "{line:?}");
    }

    #[test]
    fn overload_is_where_it_is_and_nowhere_else() {
        let falling = |depth: f64| saturating(40.0)(depth) * 0.8f64.powf((depth / 100.0).log2().max(0.0));
        let overload = find(&sweep(falling, &DEPTHS, 4, 0.01, 2)).unwrap().overload.unwrap();
        // 0.8 to the power of log2(x / 100) is 0.95 at 117.
        assert!((overload.low..=overload.high).contains(&118.0) && overload.high <= 256.0, "{overload:?}");
        assert_eq!(find(&sweep(saturating(40.0), &DEPTHS, 4, 0.01, 3)).unwrap().overload, None);
    }

    #[test]
    fn a_curve_that_rises_to_its_end_has_no_line_yet() {
        let found = find(&sweep(|depth| 1e3 * depth.powf(0.8), &DEPTHS, 4, 0.01, 4)).unwrap();
        assert!(found.still_rising && found.answer() == Answer::Beyond, "{found:?}");
    }

    #[test]
    fn one_lucky_visit_is_no_plateau() {
        let mut points = sweep(saturating(40.0), &DEPTHS, 4, 0.01, 5);
        change(&mut points, |x, round| if x == 256.0 && round == 2 { 1.5 } else { 1.0 });
        let found = find(&points).unwrap();
        assert!((found.plateau_iops.mean / 1e5 - 1.0).abs() < 0.01 && found.plateau_iops.high < 1.03e5, "{found:?}");
        let Answer::At(line) = found.answer() else { panic!("{found:?}") };
        assert!(line.low <= 24.0 && line.high <= 64.0, "{line:?}");
    }

    #[test]
    fn a_lucky_first_look_counts_for_nothing() {
        let mut points = sweep(saturating(40.0), &DEPTHS, 4, 0.01, 6);
        change(&mut points, |x, round| if x == 256.0 && round == 0 { 1.5 } else { 1.0 });
        let found = find(&points).unwrap();
        assert!(
            (found.plateau_iops.mean / 1e5 - 1.0).abs() < 0.01 && matches!(found.answer(), Answer::At(_)),
            "{found:?}"
        );
    }

    #[test]
    fn a_slow_round_widens_the_plateau_and_keeps_the_line() {
        let mut points = sweep(saturating(40.0), &DEPTHS, 5, 0.01, 7);
        change(&mut points, |_, round| if round == 3 { 0.7 } else { 1.0 });
        let found = find(&points).unwrap();
        assert!(found.plateau_iops.low < 0.75e5 && found.plateau_iops.high > 1e5, "{found:?}");
        let Answer::At(line) = found.answer() else { panic!("{found:?}") };
        assert!((line.low..=line.high).contains(&24.0), "{line:?}");
    }

    #[test]
    fn scattered_visits_give_bounds_and_an_overload_that_is_sure() {
        let falling = |depth: f64| saturating(40.0)(depth) * 0.8f64.powf((depth / 100.0).log2().max(0.0));
        let mut points = sweep(falling, &DEPTHS, 5, 0.01, 8);
        change(&mut points, |x, round| if (x as u32 + round * 7) % 5 < 2 { 0.8 } else { 1.0 });
        let found = find(&points).unwrap();
        let Estimate { low, high, .. } = found.load_line.unwrap();
        assert!(low <= 24.0 && high >= 24.0 && low > 4.0, "{found:?}");
        let scatter = found.scatter.as_ref().unwrap();
        assert!(scatter.starts_with("visits to the same point differ by 1"), "{scatter}");
        let overload = found.overload.unwrap();
        assert!((overload.low..=overload.high).contains(&118.0) && !found.hides_overload(), "{overload:?}");
        let plateau = found.plateau().unwrap();
        assert!(plateau.low < 0.8e5 && plateau.high > 1e5, "{plateau:?}");
    }

    #[test]
    fn visits_that_do_not_agree_name_no_line_and_say_why() {
        let mut points = sweep(saturating(40.0), &DEPTHS, 5, 0.01, 8);
        change(&mut points, |x, round| if (x as u32 + round * 7) % 5 < 2 { 0.1 } else { 1.0 });
        let found = find(&points).unwrap();
        let Answer::Unnamed(reason) = found.answer() else { panic!("{found:?}") };
        assert!(reason.starts_with("the machine changed during the sweep: "), "{reason}");
        assert!(found.overload.is_none() && found.plateau().is_none() && found.hides_overload());
    }

    #[test]
    fn one_visit_names_no_line() {
        let found = find(&sweep(saturating(40.0), &DEPTHS, 0, 0.001, 9)).unwrap();
        assert_eq!(
            found.answer(),
            Answer::Unnamed("too few points were visited at several times: give the sweep more --time")
        );
    }

    #[test]
    fn a_wide_interval_is_given_without_a_depth() {
        let line = Estimate { mean: 128.0, low: 22.0, high: 226.0 };
        let found = LoadLine { load_line: Some(line), ..LoadLine::default() };
        assert_eq!(found.answer(), Answer::Between(22.0, 226.0));
        let curve =
            Curve { points: vec![Point { x: 128.0, ..Point::default() }], line: Some(found), ..Curve::default() };
        assert!(curve.at_load_line().is_none());
    }

    #[test]
    fn intervals_of_points_hold_the_difference_between_visits() {
        let mut points = sweep(saturating(40.0), &DEPTHS, 4, 0.002, 10);
        change(&mut points, |x, round| 1.0 + 0.01 * f64::from((x.log2() as u32 * round * 3 + round) % 5));
        for point in &mut points {
            point.iops = crate::stats::estimate(&point.samples);
        }
        let within = crate::stats::estimate(&points[5].samples[..8]);
        let mut curve = Curve { points, ..Curve::default() };
        curve.conclude(&Goal::load_line());
        let whole = curve.points[5].iops;
        assert!(whole.high - whole.low > 3.0 * (within.high - within.low), "{whole:?} {within:?}");
    }

    #[test]
    fn too_little_gives_no_line_and_nonsense_no_panic() {
        assert_eq!(find(&sweep(|_| 1e5, &[1.0, 2.0], 3, 0.01, 0)), None);
        assert_eq!(find(&sweep(|_| 0.0, &DEPTHS, 3, 0.01, 0)), None);
        let nonsense = |x: f64, samples: &[f64]| {
            let visits = (0..samples.len() as u32)
                .map(|round| Visit { at_ns: 0, round, samples: 1, ..Visit::default() })
                .collect();
            Point { x, samples: samples.to_vec(), visits, ..Point::default() }
        };
        let points = [
            nonsense(-1.0, &[5.0]),
            nonsense(f64::NAN, &[5.0]),
            nonsense(1.0, &[f64::NAN, 1e300]),
            nonsense(2.0, &[1e-300]),
            nonsense(2.0, &[4.0]),
            nonsense(3.0, &[7.0, 7.0]),
            nonsense(4.0, &[1e9, -1e9, 5.0]),
            nonsense(5.0, &[1e17]),
            nonsense(6.0, &[3.0, 3.0, 3.0]),
            nonsense(7.0, &[3.0, 3.0, 3.0]),
        ];
        let mut curve = Curve { points: points.into(), ..Curve::default() };
        curve.conclude(&Goal::load_line());
        assert!(curve.line.is_some());
    }
}

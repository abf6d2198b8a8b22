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

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::burst::{Bucket, Start, starts};
use crate::concave::concave;
use crate::figures::percent;
use crate::limit::{self, Condition};
use crate::refine::Goal;
use crate::schema::{Answer, Burst, Curve, Estimate, LoadLine, Point};
use crate::slices::doubts;
use crate::stats::{mean, sorted_quantile, t_quantile, variance};
use crate::unimodal::unimodal;
use crate::visits::{Effects, Look, looks};

/// The load line is the smallest depth with this part of the plateau.
pub const LOAD_LINE_FRACTION: f64 = 0.97;
/// Overload is where throughput has fallen to this part of the plateau.
pub const OVERLOAD_FRACTION: f64 = 0.95;
/// A curve that gains more than this part over the last doubling of depth is still rising: one more doubling could move
/// the plateau by more than the load line's own tolerance.
const RISING_A_DOUBLING: f64 = 0.03;
/// Curves drawn for the intervals: the 2.5 % quantile of a thousand rests on 25 of them.
const REPLICATES: usize = 1000;
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

fn line_of(seen: &Seen) -> LoadLine {
    let Some(effects) = Effects::of(&seen.looks) else { return seen.unconfirmed() };
    let levels = seen.levels(&effects);
    let measured = Shape::of(&seen.ln_x, &levels.ln_y, &levels.errors, &levels.confirmed);
    let mut random = Normal(Xoshiro256PlusPlus::seed_from_u64(0x9e37_79b9_7f4a_7c15));
    let drawn: Vec<(Shape, f64)> = (0..REPLICATES)
        .map(|_| {
            let drawn = levels.drawn(&effects, &mut random);
            let mut shape = Shape::of(&seen.ln_x, &drawn, &levels.errors, &levels.confirmed);
            // A drawn error of three deviations makes a peak of a depth on the plateau, which must not move the line.
            if shape.is_peak && !measured.is_peak && (measured.first..=measured.last).contains(&shape.first) {
                let (level, _) = pooled(&drawn, &levels.errors, measured.first, measured.last);
                let plateau = (level, measured.first, measured.last);
                let fit = unimodal(&drawn, &weights(&levels.errors));
                shape.load_line =
                    Shape::around(plateau, fit, &seen.ln_x, &drawn, &levels.errors, &levels.confirmed).load_line;
            }
            (shape, common_shift(&effects, &mut random))
        })
        .collect();

    let low = quantile(drawn.iter().map(|(shape, shift)| shape.pooled + shift), 0.025);
    let high = quantile(drawn.iter().map(|(shape, shift)| shape.top + shift), 0.975);
    let (slowest, fastest) = span(&effects);
    let scatter = scattered(&effects, effects.excess, seen.scattered);
    // Nothing tells which of the states that the visits saw is the storage: the interval holds a typical visit.
    let typical = if scatter.is_some() { TYPICAL * effects.error } else { 0.0 };
    let low = (low + slowest).min(measured.pooled - typical);
    let high = (high + fastest).max(measured.pooled + typical).min(seen.most(&levels, &effects).max(measured.pooled));
    // The sweep met a few accidents: another one meets none, or twice as many.
    let (low, high) = (low + 2.0 * effects.lost.min(0.0), high + 2.0 * effects.lost.max(0.0));
    let plateau_iops = Estimate { mean: (measured.pooled + effects.lost).exp(), low: low.exp(), high: high.exp() };

    let rise = quantile(drawn.iter().map(|(shape, _)| shape.last_doubling), 0.05);
    let still_rising = measured.last_doubling > RISING_A_DOUBLING && rise > 0.0;
    let line = (
        quantile(drawn.iter().map(|(shape, _)| shape.load_line.0), 0.025),
        quantile(drawn.iter().map(|(shape, _)| shape.load_line.1), 0.975),
    );
    let mut line = seen.without_any_round(line);
    if scatter.is_some() {
        let least = quantile(drawn.iter().map(|(shape, _)| shape.pooled), 0.025) + LOAD_LINE_FRACTION.ln();
        line.0 = seen.surely_below(&levels, least).map_or(seen.x[0], |below| line.0.min(below));
    }
    let pooled = quantile(drawn.iter().map(|(shape, _)| shape.pooled), 0.025);
    if let Some((collapsed, _)) = seen.collapsed(&levels, &effects, pooled + LOAD_LINE_FRACTION.ln()) {
        line.1 = line.1.min(seen.x[collapsed - 1]);
    }
    let load_line = seen.estimate(measured.load_line, line);
    let deepest = seen.x[seen.x.len() - 1];
    let any_depth = scatter.is_some() && load_line.low <= seen.x[0] && load_line.high >= deepest;
    let unnamed = reason_against(&effects)
        .or_else(|| scatter.as_ref().filter(|_| any_depth).map(|how| format!("{CHANGED}: {how}")));
    let falls = || drawn.iter().filter_map(|(shape, _)| shape.overload);
    let falling = falls().count() as f64 / REPLICATES as f64;
    let overload = measured.overload.and_then(|bounds| {
        // A fall that the noise alone produces now and then does not count as overload.
        let often = falling >= 0.975;
        let interval = (quantile(falls().map(|fall| fall.0), 0.025), quantile(falls().map(|fall| fall.1), 0.975));
        often.then(|| seen.estimate(bounds, interval))
    });
    // Scattered visits name the depth that surely collapsed, whatever the law of their errors.
    let fallen = seen.collapsed(&levels, &effects, pooled + OVERLOAD_FRACTION.ln());
    let is_scattered = scattered(&effects, effects.error, SCATTERED).is_some();
    let fallen = fallen.filter(|_| is_scattered).map(|(first, depth)| {
        let least = overload.map_or(seen.x[first - 1], |overload| overload.low.min(seen.x[first - 1]));
        let low = least.max(load_line.low) * JUST_BEYOND;
        seen.estimate((low, seen.x[depth]), (low, seen.x[depth]))
    });
    let overload = if is_scattered { fallen } else { overload };
    let may_fall = overload.is_none() && falling > 0.05;
    LoadLine {
        plateau_iops,
        load_line: Some(load_line).filter(|_| unnamed.is_none()),
        overload: overload.filter(|_| unnamed.is_none()),
        may_fall,
        still_rising,
        scatter: scatter.filter(|_| unnamed.is_none()),
        burst: None,
        unnamed,
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

    /// The doubt that keeps the sweep from saying that there is no overload; None without one.
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

/// A depth times this lies beyond it.
const JUST_BEYOND: f64 = 1.0 + 1e-6;

/// The measurements: depths, ascending, and the visits to them.
struct Seen {
    x: Vec<f64>,
    ln_x: Vec<f64>,
    looks: Vec<Look>,
    starts: Vec<Start>,
    /// The standard error of each depth for what slices may remember.
    doubts: Vec<f64>,
    /// The error of a visit beyond which visits are scattered.
    scattered: f64,
}

impl Seen {
    /// The points with a throughput; None if they are fewer than three.
    fn of(points: &[Point]) -> Option<Seen> {
        // Below this, or beyond 1e18, there is no storage, and squares would overflow.
        Seen::beyond(points, 1e-9)
    }

    /// The points with a throughput and a value of at least `least`; None if they are fewer than three.
    fn beyond(points: &[Point], least: f64) -> Option<Seen> {
        let usable = |point: &&Point| (least..1e18).contains(&point.x) && (1e-9..1e18).contains(&mean(&point.samples));
        // A depth that slices visited once, between two others, says less than those.
        let lone = |point: &Point| matches!(&point.visits[..], [visit] if visit.slices.is_some());
        let mut points: Vec<&Point> = points.iter().filter(|point| usable(point) && !lone(point)).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points.dedup_by(|a, b| a.x == b.x);
        let (looks, starts) = (looks(&points), starts(&points));
        let x: Vec<f64> = points.iter().map(|point| point.x).collect();
        let all_seen = (0..x.len()).all(|depth| looks.iter().any(|look| look.depth == depth));
        let doubts = doubts(&points);
        let in_slices = points.iter().any(|point| point.visits.iter().any(|visit| visit.slices.is_some()));
        let scattered = if in_slices { SCATTERED_SLICES } else { SCATTERED };
        (x.len() >= 3 && all_seen).then(|| Seen {
            ln_x: x.iter().map(|x| x.ln()).collect(),
            x,
            looks,
            starts,
            doubts,
            scattered,
        })
    }

    /// The bounds of the load line, widened by those that all rounds but one give, for each round in turn: no claim
    /// rests on one moment of the machine (a jackknife over blocks: Kuensch, 1989).
    fn without_any_round(&self, bounds: (f64, f64)) -> (f64, f64) {
        let last = self.looks.iter().map(|look| look.round).max().unwrap_or(0);
        (1..=last).fold(bounds, |bounds, round| {
            let looks: Vec<Look> = self.looks.iter().copied().filter(|look| look.round != round).collect();
            let Some(effects) = Effects::of(&looks) else { return bounds };
            let levels = self.levels(&effects);
            let (low, high) = Shape::of(&self.ln_x, &levels.ln_y, &levels.errors, &levels.confirmed).load_line;
            (bounds.0.min(low), bounds.1.max(high))
        })
    }

    /// The deepest depth that is surely below a level of throughput (a logarithm), as the bound of a crossing; None
    /// without such a depth.
    ///
    /// The luckiest of `k` visits lies below the storage's own level by more than the quantile `p` of the errors with
    /// probability p^k, whatever their distribution. The errors of all visits together give that quantile, those that
    /// were set aside too. So a depth with few visits is below the level only if the worst visit of the sweep could not
    /// have hidden it.
    fn surely_below(&self, levels: &Levels, level: f64) -> Option<f64> {
        let of = |depth: usize| self.looks.iter().filter(move |look| look.depth == depth);
        let visits: Vec<f64> = (0..self.x.len()).map(|depth| of(depth).count() as f64).collect();
        // Visits to a depth lie closer to their mean than to the truth.
        let spread = |look: &Look| (visits[look.depth] / (visits[look.depth] - 1.0)).sqrt();
        let several = self.looks.iter().filter(|look| visits[look.depth] >= 3.0);
        let mut errors: Vec<f64> = several.map(|look| (look.ln - levels.ln_y[look.depth]) * spread(look)).collect();
        errors.sort_by(f64::total_cmp);
        if errors.is_empty() {
            return None;
        }
        let top = (0..self.x.len()).max_by(|&a, &b| levels.ln_y[a].total_cmp(&levels.ln_y[b]))?;
        let is_below = |&depth: &usize| {
            let luckiest = of(depth).map(|look| look.ln).fold(f64::MIN, f64::max);
            luckiest - sorted_quantile(&errors, WRONGLY_BELOW.powf(1.0 / visits[depth])) < level
        };
        // The line lies beyond that depth, so the next whole depth is the first that may be it.
        (0..top).rev().find(is_below).map(|depth| self.x[depth] * JUST_BEYOND)
    }

    /// The highest level (a logarithm) that the visits support: the fastest of them, or that of a depth and its
    /// error. The top may lie between two depths, and above both by the tolerance of the load line.
    fn most(&self, levels: &Levels, effects: &Effects) -> f64 {
        let t = t_quantile(0.975, effects.freedom);
        let depths = levels.ln_y.iter().zip(&levels.errors);
        let sure = depths.zip(&levels.confirmed).filter(|(_, confirmed)| **confirmed);
        let of_depths = sure.map(|((level, error), _)| level + t * error);
        of_depths.chain(self.looks.iter().map(|look| look.ln)).fold(f64::MIN, f64::max) - LOAD_LINE_FRACTION.ln()
    }

    /// The first depth beyond the top from which on all surely lie below `level` (a
    /// logarithm), by their errors and by the fastest visit to each of them; and the first of those that were.
    fn collapsed(&self, levels: &Levels, effects: &Effects, level: f64) -> Option<(usize, usize)> {
        let t = t_quantile(1.0 - WRONGLY_BELOW, effects.freedom);
        let confirmed = |depth: &usize| levels.confirmed[*depth];
        let top = (0..self.x.len()).filter(confirmed).max_by(|&a, &b| levels.ln_y[a].total_cmp(&levels.ln_y[b]))?;
        let fastest = |depth: usize| {
            let of = self.looks.iter().filter(|look| look.depth == depth && look.round > 0);
            of.map(|look| look.ln).fold(f64::MIN, f64::max)
        };
        let is_below = |&depth: &usize| levels.ln_y[depth] + t * levels.errors[depth] < level && fastest(depth) < level;
        let surely = (top + 1..self.x.len()).rev().filter(confirmed).take_while(is_below).last()?;
        let seen_once = |depth: &usize| !levels.confirmed[*depth] && is_below(depth);
        let first = (top + 1..surely).rev().take_while(seen_once).last().unwrap_or(surely);
        Some((first, surely))
    }

    /// The mean of all visits to each depth.
    fn means(&self) -> Vec<f64> {
        let of = |depth| self.looks.iter().filter(move |look| look.depth == depth).map(|look| look.ln);
        (0..self.x.len()).map(|depth| of(depth).sum::<f64>() / of(depth).count() as f64).collect()
    }

    /// The statement without a depth that was visited at two times: no load line, and a plateau without a claim.
    fn unconfirmed(&self) -> LoadLine {
        let ln_y = self.means();
        let shape = Shape::of(&self.ln_x, &ln_y, &vec![LEAST_ERROR; ln_y.len()], &vec![false; ln_y.len()]);
        let top = shape.top.exp();
        LoadLine {
            plateau_iops: Estimate { mean: top, low: 0.0, high: top },
            still_rising: shape.last_doubling > RISING_A_DOUBLING,
            unnamed: Some(match self.looks.iter().map(|look| look.round).max() {
                Some(2..) => format!("{CHANGED}: visits to the same point do not agree"),
                _ => "too few points were visited at several times: give the sweep more --time".into(),
            }),
            ..LoadLine::default()
        }
    }

    /// Each depth with its error: from the rounds where it was confirmed, else from its first look.
    fn levels(&self, effects: &Effects) -> Levels {
        let mut ln_y = self.means();
        let mut errors = vec![effects.single_error().max(LEAST_ERROR); ln_y.len()];
        for ((&depth, &level), error) in effects.confirmed.iter().zip(&effects.depths).zip(effects.standard_errors()) {
            ln_y[depth] = level;
            errors[depth] = error.max(LEAST_ERROR).hypot(self.doubts[depth]);
        }
        let confirmed = (0..ln_y.len()).map(|depth| effects.visited.get(depth).is_some_and(|of| of.0 >= 2)).collect();
        Levels { ln_y, errors, confirmed, doubts: self.doubts.clone() }
    }

    /// The smallest measured depth within the bounds of a crossing, and the interval: whole depths where all are whole.
    fn estimate(&self, (_, latest): (f64, f64), (low, high): (f64, f64)) -> Estimate {
        // The least bit below a depth is that depth.
        let near = 1.0 + 1e-9;
        let deepest = self.x[self.x.len() - 1];
        let mean = self.x.iter().copied().find(|&x| x * near >= latest).unwrap_or(deepest);
        let whole = self.x.iter().all(|x| x.fract() == 0.0);
        let up = |x: f64| if whole { (x / near).ceil() } else { x };
        Estimate { mean, low: up(low).min(mean), high: up(high).max(mean) }
    }
}

/// The logarithm of each depth's throughput, and its standard error.
struct Levels {
    ln_y: Vec<f64>,
    errors: Vec<f64>,
    /// True if the depth was visited in several rounds: an overload rests on such depths alone.
    confirmed: Vec<bool>,
    /// The part of the standard error for what slices may remember.
    doubts: Vec<f64>,
}

impl Levels {
    /// Levels as another sweep of the same storage might have found them.
    fn drawn(&self, effects: &Effects, random: &mut Normal) -> Vec<f64> {
        // The error is itself an estimate.
        let error = effects.error.max(LEAST_ERROR) * (effects.freedom / random.chi_squared(effects.freedom)).sqrt();
        let mut out: Vec<f64> =
            self.ln_y.iter().zip(&self.errors).map(|(level, error)| level + error * random.next()).collect();
        let independent: Vec<f64> = effects.confirmed.iter().map(|_| random.next()).collect();
        for (row, &depth) in effects.factor.iter().zip(&effects.confirmed) {
            let off: f64 = row.iter().zip(&independent).map(|(a, b)| a * b).sum();
            let doubt = if self.doubts[depth] > 0.0 { self.doubts[depth] * random.next() } else { 0.0 };
            out[depth] = self.ln_y[depth] + error * off + doubt;
        }
        // The few visits to a depth may have met the other state of the machine.
        let any = &effects.set_aside;
        for (depth, level) in out.iter_mut().enumerate().filter(|_| !any.is_empty()) {
            if random.uniform() < effects.mistaken(depth) {
                let own: Vec<f64> = any.iter().filter(|(of, _)| *of == depth).map(|(_, away)| *away).collect();
                let other = any[((random.uniform() * any.len() as f64) as usize).min(any.len() - 1)].1;
                *level += if own.is_empty() { -other } else { mean(&own) };
            }
        }
        out
    }
}

/// Random numbers with the distributions that errors have.
struct Normal(Xoshiro256PlusPlus);

impl Normal {
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A standard normal deviate: Box and Muller (1958).
    fn next(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A chi-squared deviate, by the cube of a normal one: Wilson and Hilferty (1931).
    fn chi_squared(&mut self, freedom: f64) -> f64 {
        let part = 2.0 / (9.0 * freedom);
        freedom * (1.0 - part + self.next() * part.sqrt()).max(0.1).powi(3)
    }

    /// A deviate of Student's t.
    fn student(&mut self, freedom: f64) -> f64 {
        self.next() * (freedom / self.chi_squared(freedom)).sqrt()
    }
}

fn quantile(values: impl Iterator<Item = f64>, q: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    sorted_quantile(&values, q)
}

/// The curve that one set of levels gives; throughputs are logarithms.
struct Shape {
    /// The mean of the points at the top that differ by no more than their noise.
    pooled: f64,
    /// The first and the last of those points.
    first: usize,
    last: usize,
    /// True if one point lies above all others.
    is_peak: bool,
    /// The highest that a concave curve through the fit may reach, between its points too.
    top: f64,
    /// The earliest and the latest depth at which a concave curve through the fit crosses the load line's level.
    load_line: (f64, f64),
    overload: Option<(f64, f64)>,
    /// The gain of the last doubling of depth, as a fraction.
    last_doubling: f64,
}

impl Shape {
    fn of(ln_x: &[f64], ln_y: &[f64], errors: &[f64], confirmed: &[bool]) -> Shape {
        let fit = unimodal(ln_y, &weights(errors));
        let (level, first, last) = plateau(&fit, ln_y, errors);
        Shape::around((level, first, last), fit, ln_x, ln_y, errors, confirmed)
    }

    /// The shape where the points from one index to another lie on the plateau, with their mean.
    fn around(
        (level, first, last): (f64, usize, usize),
        mut fit: Vec<f64>,
        ln_x: &[f64],
        ln_y: &[f64],
        errors: &[f64],
        confirmed: &[bool],
    ) -> Shape {
        let is_peak = first == last;
        let mut around = (first, last);
        // A plateau of several points is flat; a single one may have the true top beside it.
        let mut top = fit.iter().copied().fold(f64::MIN, f64::max);
        if !is_peak {
            let weights = weights(errors);
            let bend = fit.iter().position(|y| *y >= level - BEND).unwrap_or(0);
            fit.splice(bend..=last, concave(&ln_x[bend..=last], &ln_y[bend..=last], &weights[bend..=last]));
            top = fit[bend..=last].iter().copied().fold(f64::MIN, f64::max);
            // Points below the level of the load line tell nothing of the height.
            let is_high = |index: &usize| fit[*index] >= top + LOAD_LINE_FRACTION.ln();
            let mut high = (first..=last).filter(is_high);
            around.0 = high.next().unwrap_or(first);
            around.1 = high.next_back().unwrap_or(around.0);
        }
        let (pooled, _) = pooled(ln_y, errors, around.0, around.1);
        let last = around.1;
        let pooled = pooled.min(top);
        let curve = Fitted { ln_x: ln_x.to_vec(), ln_y: fit };
        let top = if is_peak { curve.peak() } else { top };
        let line = LOAD_LINE_FRACTION.ln();
        let fall = curve.only(|depth| depth <= last || confirmed[depth]);
        let earlier = fall.falls_to(top + OVERLOAD_FRACTION.ln(), last);
        let later = fall.falls_to(pooled + OVERLOAD_FRACTION.ln(), last);
        Shape {
            pooled,
            first: around.0,
            last,
            is_peak,
            top,
            load_line: (curve.rises_to(pooled + line).0, curve.rises_to(top + line).1),
            overload: earlier.zip(later).map(|(earlier, later)| (earlier.0, later.1)),
            last_doubling: curve.last_doubling(),
        }
    }
}

/// The mean of the points around the top that differ by no more than noise, the first and the last of them. The point
/// that is surely the highest comes first: a depth that was seen once may lie above all others by chance.
pub(crate) fn plateau(fit: &[f64], levels: &[f64], errors: &[f64]) -> (f64, usize, usize) {
    // Neighbours that the fit has pooled have one level, and the error of all of them together.
    let error = |index: usize| {
        let alike = |other: &usize| fit[*other] == fit[index];
        (0..fit.len()).filter(alike).map(|other| errors[other].powi(-2)).sum::<f64>().powf(-0.5)
    };
    let surely = |index: &usize| fit[*index] - error(*index);
    let top = (0..fit.len()).max_by(|a, b| surely(a).total_cmp(&surely(b))).map_or(f64::MIN, |index| fit[index]);
    let mut first = fit.iter().position(|y| *y == top).unwrap_or(0);
    let mut last = fit.iter().rposition(|y| *y == top).unwrap_or(0);
    loop {
        let (mean, variance) = pooled(levels, errors, first, last);
        let joins = |index: usize| {
            let away = (fit[index] - mean).abs();
            let noise = (error(index).powi(2) + variance).sqrt();
            (away <= JOINS * noise && away <= 0.03 + noise).then_some(away)
        };
        let before = first.checked_sub(1).and_then(joins);
        let after = (last + 1 < levels.len()).then(|| joins(last + 1)).flatten();
        match (before, after) {
            (None, None) => return (mean, first, last),
            (Some(left), Some(right)) if left <= right => first -= 1,
            (Some(_), None) => first -= 1,
            _ => last += 1,
        }
    }
}

/// The weights of a least-squares fit: inverse variances.
pub(crate) fn weights(errors: &[f64]) -> Vec<f64> {
    errors.iter().map(|error| error.powi(-2)).collect()
}

/// The weighted mean of some neighbours, and its variance.
fn pooled(levels: &[f64], errors: &[f64], first: usize, last: usize) -> (f64, f64) {
    let weights = weights(&errors[first..=last]);
    let total: f64 = weights.iter().sum();
    let sum: f64 = weights.iter().zip(&levels[first..=last]).map(|(weight, level)| weight * level).sum();
    (sum / total, total.recip())
}

/// The part of the curve before the plateau that is concave, as a logarithm of throughput: from half of the plateau on.
const BEND: f64 = std::f64::consts::LN_2;
/// Standard errors of the difference within which a neighbour belongs to the plateau.
const JOINS: f64 = 3.0;

/// The fit on logarithmic scales.
struct Fitted {
    ln_x: Vec<f64>,
    ln_y: Vec<f64>,
}

impl Fitted {
    /// The fit at the points of some indices.
    fn only(&self, keep: impl Fn(usize) -> bool) -> Fitted {
        let of =
            |values: &[f64]| values.iter().enumerate().filter(|(index, _)| keep(*index)).map(|(_, y)| *y).collect();
        Fitted { ln_x: of(&self.ln_x), ln_y: of(&self.ln_y) }
    }

    /// The abscissa at which the line through points `a` and `b` has height `level`; None if the line is level.
    fn crossing(&self, a: usize, b: usize, level: f64) -> Option<f64> {
        let slope = (self.ln_y[b] - self.ln_y[a]) / (self.ln_x[b] - self.ln_x[a]);
        (slope != 0.0).then(|| self.ln_x[a] + (level - self.ln_y[a]) / slope)
    }

    /// The highest that a concave curve through all points may reach: at a point, or between two where the chords of
    /// their neighbours, prolonged, meet.
    fn peak(&self) -> f64 {
        let top = self.ln_y.iter().copied().fold(f64::MIN, f64::max);
        let slope = |a: usize| (self.ln_y[a + 1] - self.ln_y[a]) / (self.ln_x[a + 1] - self.ln_x[a]);
        let last = self.ln_x.len() - 1;
        let between = |left: usize| {
            // Beside an end of the curve the one chord there is bounds it at the far end.
            let width = self.ln_x[left + 1] - self.ln_x[left];
            let (rise, fall) = ((left > 0).then(|| slope(left - 1))?, (left + 2 <= last).then(|| slope(left + 1))?);
            let (rise, fall) = (rise.max(0.0), (-fall).max(0.0));
            // left + rise * d == right + fall * (width - d)
            let meet = (self.ln_y[left + 1] - self.ln_y[left] + fall * width) / (rise + fall);
            (rise + fall > 0.0).then(|| self.ln_y[left] + rise * meet.clamp(0.0, width))
        };
        let is_beside = |left: usize| self.ln_y[left] == top || self.ln_y[left + 1] == top;
        (0..last).filter(|&left| is_beside(left)).filter_map(between).fold(top, f64::max)
    }

    /// The earliest and latest depth at which the curve first reaches `level`.
    fn rises_to(&self, level: f64) -> (f64, f64) {
        let reached = self.ln_y.iter().position(|y| *y >= level).unwrap_or(self.ln_y.len() - 1);
        let Some(before) = reached.checked_sub(1) else { return (self.ln_x[0].exp(), self.ln_x[0].exp()) };
        let (from, to) = (self.ln_x[before], self.ln_x[reached]);
        let latest = self.crossing(before, reached, level).unwrap_or(to).clamp(from, to);
        // The prolonged chord before; ahead of the first point throughput is at most proportional to depth.
        let prolonged = match before.checked_sub(1) {
            Some(earlier) => self.crossing(earlier, before, level).filter(|_| self.ln_y[before] > self.ln_y[earlier]),
            None => Some(from + level - self.ln_y[before]),
        };
        let earliest = prolonged.unwrap_or(latest).clamp(from, latest);
        (earliest.exp(), latest.exp())
    }

    /// The earliest and latest depth beyond index `top` at which the curve first falls to `level`; None if it does not.
    fn falls_to(&self, level: f64, top: usize) -> Option<(f64, f64)> {
        let after = (top + 1..self.ln_y.len()).find(|&index| self.ln_y[index] <= level)?;
        let (from, to) = (self.ln_x[after - 1], self.ln_x[after]);
        let chord = self.crossing(after - 1, after, level).unwrap_or(to).clamp(from, to);
        // The fall may be a bend (chord before, prolonged), or a cliff that levels out (chord after, prolonged back).
        let bend = (after >= 2).then(|| self.crossing(after - 2, after - 1, level)).flatten().filter(|x| *x >= from);
        let levels_out = (after + 1 < self.ln_x.len()).then(|| self.crossing(after, after + 1, level)).flatten();
        let bounds = [Some(chord), bend, levels_out.filter(|x| *x <= to)];
        let earliest = bounds.iter().flatten().fold(chord, |a, &b| a.min(b)).max(from);
        let latest = bounds.iter().flatten().fold(chord, |a, &b| a.max(b)).min(to);
        Some((earliest.exp(), latest.exp()))
    }

    /// The gain of the last doubling of depth, as a fraction.
    fn last_doubling(&self) -> f64 {
        let last = self.ln_x.len() - 1;
        let half = self.ln_x[last] - std::f64::consts::LN_2;
        let after = self.ln_x.iter().position(|x| *x >= half).unwrap_or(last).max(1);
        let (a, b) = (after - 1, after);
        let part = ((half - self.ln_x[a]) / (self.ln_x[b] - self.ln_x[a])).clamp(0.0, 1.0);
        let at_half = self.ln_y[a] + part * (self.ln_y[b] - self.ln_y[a]);
        (self.ln_y[last] - at_half).exp_m1()
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

//! The measurements of a curve: the visits to each depth, and the levels that they give.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

use super::shape::Shape;
use super::{
    CHANGED, JUST_BEYOND, LEAST_ERROR, LOAD_LINE_FRACTION, RISING_A_DOUBLING, SCATTERED, SCATTERED_SLICES,
    WRONGLY_BELOW,
};
use crate::burst::{Start, starts};
use crate::schema::{Estimate, LoadLine, Point};
use crate::slices::doubts;
use crate::stats::{mean, sorted_quantile, t_quantile};
use crate::visits::{Effects, Look, looks};

/// The measurements: depths, ascending, and the visits to them.
pub(super) struct Seen {
    pub(super) x: Vec<f64>,
    pub(super) ln_x: Vec<f64>,
    pub(super) looks: Vec<Look>,
    pub(super) starts: Vec<Start>,
    /// The standard error of each depth for what slices may remember.
    pub(super) doubts: Vec<f64>,
    /// The error of a visit beyond which visits are scattered.
    pub(super) scattered: f64,
}

impl Seen {
    /// The points with a throughput; None if they are fewer than three.
    pub(super) fn of(points: &[Point]) -> Option<Seen> {
        // Every storage is faster than this and slower than 1e18, and squares of more would overflow.
        Seen::beyond(points, 1e-9)
    }

    /// The points with a throughput and a value of at least `least`; None if they are fewer than three.
    pub(super) fn beyond(points: &[Point], least: f64) -> Option<Seen> {
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
    pub(super) fn without_any_round(&self, bounds: (f64, f64)) -> (f64, f64) {
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
    pub(super) fn surely_below(&self, levels: &Levels, level: f64) -> Option<f64> {
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
    pub(super) fn most(&self, levels: &Levels, effects: &Effects) -> f64 {
        let t = t_quantile(0.975, effects.freedom);
        let depths = levels.ln_y.iter().zip(&levels.errors);
        let sure = depths.zip(&levels.confirmed).filter(|(_, confirmed)| **confirmed);
        let of_depths = sure.map(|((level, error), _)| level + t * error);
        of_depths.chain(self.looks.iter().map(|look| look.ln)).fold(f64::MIN, f64::max) - LOAD_LINE_FRACTION.ln()
    }

    /// The first depth beyond the top from which on all surely lie below `level` (a
    /// logarithm), by their errors and by the fastest visit to each of them; and the first of those that were.
    pub(super) fn collapsed(&self, levels: &Levels, effects: &Effects, level: f64) -> Option<(usize, usize)> {
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
    pub(super) fn means(&self) -> Vec<f64> {
        let of = |depth| self.looks.iter().filter(move |look| look.depth == depth).map(|look| look.ln);
        (0..self.x.len()).map(|depth| of(depth).sum::<f64>() / of(depth).count() as f64).collect()
    }

    /// The statement without a depth that was visited at two times: no load line, and a plateau without a claim.
    pub(super) fn unconfirmed(&self) -> LoadLine {
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
    pub(super) fn levels(&self, effects: &Effects) -> Levels {
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
    pub(super) fn estimate(&self, (_, latest): (f64, f64), (low, high): (f64, f64)) -> Estimate {
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
pub(super) struct Levels {
    pub(super) ln_y: Vec<f64>,
    pub(super) errors: Vec<f64>,
    /// True if the depth was visited in several rounds: an overload rests on such depths alone.
    pub(super) confirmed: Vec<bool>,
    /// The part of the standard error for what slices may remember.
    pub(super) doubts: Vec<f64>,
}

impl Levels {
    /// Levels as another sweep of the same storage might have found them.
    pub(super) fn drawn(&self, effects: &Effects, random: &mut Normal) -> Vec<f64> {
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
pub(super) struct Normal(pub(super) Xoshiro256PlusPlus);

impl Normal {
    pub(super) fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A standard normal deviate: Box and Muller (1958).
    pub(super) fn next(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A chi-squared deviate, by the cube of a normal one: Wilson and Hilferty (1931).
    pub(super) fn chi_squared(&mut self, freedom: f64) -> f64 {
        let part = 2.0 / (9.0 * freedom);
        freedom * (1.0 - part + self.next() * part.sqrt()).max(0.1).powi(3)
    }

    /// A deviate of Student's t.
    pub(super) fn student(&mut self, freedom: f64) -> f64 {
        self.next() * (freedom / self.chi_squared(freedom)).sqrt()
    }
}

//! The intervals of a line: the measured curve, and a thousand that its errors draw.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::seen::{Levels, Normal, Seen};
use super::shape::{Shape, pooled, weights};
use super::{
    CHANGED, JUST_BEYOND, LOAD_LINE_FRACTION, OVERLOAD_FRACTION, RISING_A_DOUBLING, SCATTERED, TYPICAL, common_shift,
    reason_against, scattered, span,
};
use crate::schema::{Estimate, LoadLine};
use crate::stats::sorted_quantile;
use crate::unimodal::unimodal;
use crate::visits::Effects;

/// Curves drawn for the intervals: the 2.5 % quantile of a thousand rests on 25 of them.
const REPLICATES: usize = 1000;

/// The line of the curve that was seen, with its intervals.
pub(super) fn line_of(seen: &Seen) -> LoadLine {
    let Some(effects) = Effects::of(&seen.looks) else { return seen.unconfirmed() };
    let drawn = Drawn::of(seen, &effects);
    let scatter = scattered(&effects, effects.excess, seen.scattered);
    let load_line = drawn.load_line(scatter.is_some());
    let deepest = seen.x[seen.x.len() - 1];
    let any_depth = scatter.is_some() && load_line.low <= seen.x[0] && load_line.high >= deepest;
    let unnamed = reason_against(&effects)
        .or_else(|| scatter.as_ref().filter(|_| any_depth).map(|how| format!("{CHANGED}: {how}")));
    let is_scattered = scattered(&effects, effects.error, SCATTERED).is_some();
    let overload = if is_scattered { drawn.fallen(load_line) } else { drawn.overload() };
    LoadLine {
        plateau_iops: drawn.plateau(scatter.is_some()),
        load_line: Some(load_line).filter(|_| unnamed.is_none()),
        overload: overload.filter(|_| unnamed.is_none()),
        may_fall: overload.is_none() && drawn.falling() > 0.05,
        still_rising: drawn.still_rises(),
        scatter: scatter.filter(|_| unnamed.is_none()),
        burst: None,
        unnamed,
    }
}

/// The measured curve and the drawn ones.
struct Drawn<'a> {
    seen: &'a Seen,
    effects: &'a Effects,
    levels: Levels,
    measured: Shape,
    /// The drawn shapes, each with the error that all depths share.
    shapes: Vec<(Shape, f64)>,
}

impl Drawn<'_> {
    fn of<'a>(seen: &'a Seen, effects: &'a Effects) -> Drawn<'a> {
        let levels = seen.levels(effects);
        let measured = Shape::of(&seen.ln_x, &levels.ln_y, &levels.errors, &levels.confirmed);
        let mut random = Normal(Xoshiro256PlusPlus::seed_from_u64(0x9e37_79b9_7f4a_7c15));
        let draw = |_| {
            let drawn = levels.drawn(effects, &mut random);
            let mut shape = Shape::of(&seen.ln_x, &drawn, &levels.errors, &levels.confirmed);
            // A drawn error of three deviations makes a peak of a depth on the plateau, which must not move the line.
            if shape.is_peak && !measured.is_peak && (measured.first..=measured.last).contains(&shape.first) {
                let (level, _) = pooled(&drawn, &levels.errors, measured.first, measured.last);
                let plateau = (level, measured.first, measured.last);
                let fit = unimodal(&drawn, &weights(&levels.errors));
                shape.load_line =
                    Shape::around(plateau, fit, &seen.ln_x, &drawn, &levels.errors, &levels.confirmed).load_line;
            }
            (shape, common_shift(effects, &mut random))
        };
        let shapes = (0..REPLICATES).map(draw).collect();
        Drawn { seen, effects, levels, measured, shapes }
    }

    /// The quantile of a figure of the drawn shapes.
    fn quantile(&self, of: impl Fn(&Shape) -> f64, q: f64) -> f64 {
        quantile(self.shapes.iter().map(|(shape, _)| of(shape)), q)
    }

    fn plateau(&self, is_scattered: bool) -> Estimate {
        let Drawn { seen, effects, levels, measured, shapes } = self;
        let low = quantile(shapes.iter().map(|(shape, shift)| shape.pooled + shift), 0.025);
        let high = quantile(shapes.iter().map(|(shape, shift)| shape.top + shift), 0.975);
        let (slowest, fastest) = span(effects);
        // Nothing tells which of the states that the visits saw is the storage: the interval holds a typical visit.
        let typical = if is_scattered { TYPICAL * effects.error } else { 0.0 };
        let low = (low + slowest).min(measured.pooled - typical);
        let most = seen.most(levels, effects).max(measured.pooled);
        let high = (high + fastest).max(measured.pooled + typical).min(most);
        // The sweep met a few accidents: another one meets none, or twice as many.
        let (low, high) = (low + 2.0 * effects.lost.min(0.0), high + 2.0 * effects.lost.max(0.0));
        Estimate { mean: (measured.pooled + effects.lost).exp(), low: low.exp(), high: high.exp() }
    }

    fn still_rises(&self) -> bool {
        let rise = self.quantile(|shape| shape.last_doubling, 0.05);
        self.measured.last_doubling > RISING_A_DOUBLING && rise > 0.0
    }

    /// The least level of the plateau, a logarithm.
    fn least_plateau(&self) -> f64 {
        self.quantile(|shape| shape.pooled, 0.025)
    }

    fn load_line(&self, is_scattered: bool) -> Estimate {
        let seen = self.seen;
        let bounds = (self.quantile(|shape| shape.load_line.0, 0.025), self.quantile(|shape| shape.load_line.1, 0.975));
        let mut line = seen.without_any_round(bounds);
        let least = self.least_plateau() + LOAD_LINE_FRACTION.ln();
        if is_scattered {
            line.0 = seen.surely_below(&self.levels, least).map_or(seen.x[0], |below| line.0.min(below));
        }
        if let Some((collapsed, _)) = seen.collapsed(&self.levels, self.effects, least) {
            line.1 = line.1.min(seen.x[collapsed - 1]);
        }
        seen.estimate(self.measured.load_line, line)
    }

    fn falls(&self) -> impl Iterator<Item = (f64, f64)> {
        self.shapes.iter().filter_map(|(shape, _)| shape.overload)
    }

    /// The part of the drawn curves that fall.
    fn falling(&self) -> f64 {
        self.falls().count() as f64 / REPLICATES as f64
    }

    /// Where the curve falls, if nearly all drawn curves do: a fall that the noise alone produces now and then does
    /// not count.
    fn overload(&self) -> Option<Estimate> {
        let bounds = self.measured.overload.filter(|_| self.falling() >= 0.975)?;
        let interval =
            (quantile(self.falls().map(|fall| fall.0), 0.025), quantile(self.falls().map(|fall| fall.1), 0.975));
        Some(self.seen.estimate(bounds, interval))
    }

    /// Of scattered visits: the depth that surely collapsed, whatever the law of their errors.
    fn fallen(&self, load_line: Estimate) -> Option<Estimate> {
        let seen = self.seen;
        let level = self.least_plateau() + OVERLOAD_FRACTION.ln();
        let (first, depth) = seen.collapsed(&self.levels, self.effects, level)?;
        let least = self.overload().map_or(seen.x[first - 1], |overload| overload.low.min(seen.x[first - 1]));
        let low = least.max(load_line.low) * JUST_BEYOND;
        Some(seen.estimate((low, seen.x[depth]), (low, seen.x[depth])))
    }
}

fn quantile(values: impl Iterator<Item = f64>, q: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    sorted_quantile(&values, q)
}

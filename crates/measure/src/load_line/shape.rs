//! The shape of a curve: its plateau, where it reaches the load line's level, and where it falls.

use super::{LOAD_LINE_FRACTION, OVERLOAD_FRACTION};
use crate::concave::concave;
use crate::unimodal::unimodal;

/// The curve that one set of levels gives; throughputs are logarithms.
pub(super) struct Shape {
    /// The mean of the points at the top that differ by no more than their noise.
    pub(super) pooled: f64,
    /// The first and the last of those points.
    pub(super) first: usize,
    pub(super) last: usize,
    /// True if one point lies above all others.
    pub(super) is_peak: bool,
    /// The highest that a concave curve through the fit may reach, between its points too.
    pub(super) top: f64,
    /// The earliest and the latest depth at which a concave curve through the fit crosses the load line's level.
    pub(super) load_line: (f64, f64),
    pub(super) overload: Option<(f64, f64)>,
    /// The gain of the last doubling of depth, as a fraction.
    pub(super) last_doubling: f64,
}

impl Shape {
    pub(super) fn of(ln_x: &[f64], ln_y: &[f64], errors: &[f64], confirmed: &[bool]) -> Shape {
        let fit = unimodal(ln_y, &weights(errors));
        let (level, first, last) = plateau(&fit, ln_y, errors);
        Shape::around((level, first, last), fit, ln_x, ln_y, errors, confirmed)
    }

    /// The shape where the points from one index to another lie on the plateau, with their mean.
    pub(super) fn around(
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
pub(super) fn pooled(levels: &[f64], errors: &[f64], first: usize, last: usize) -> (f64, f64) {
    let weights = weights(&errors[first..=last]);
    let total: f64 = weights.iter().sum();
    let sum: f64 = weights.iter().zip(&levels[first..=last]).map(|(weight, level)| weight * level).sum();
    (sum / total, total.recip())
}

/// The part of the curve before the plateau that is concave, as a logarithm of throughput: from half of the plateau on.
pub(super) const BEND: f64 = std::f64::consts::LN_2;
/// Standard errors of the difference within which a neighbour belongs to the plateau.
pub(super) const JOINS: f64 = 3.0;

/// The fit on logarithmic scales.
pub(super) struct Fitted {
    pub(super) ln_x: Vec<f64>,
    pub(super) ln_y: Vec<f64>,
}

impl Fitted {
    /// The fit at the points of some indices.
    pub(super) fn only(&self, keep: impl Fn(usize) -> bool) -> Fitted {
        let of =
            |values: &[f64]| values.iter().enumerate().filter(|(index, _)| keep(*index)).map(|(_, y)| *y).collect();
        Fitted { ln_x: of(&self.ln_x), ln_y: of(&self.ln_y) }
    }

    /// The abscissa at which the line through points `a` and `b` has height `level`; None if the line is level.
    pub(super) fn crossing(&self, a: usize, b: usize, level: f64) -> Option<f64> {
        let slope = (self.ln_y[b] - self.ln_y[a]) / (self.ln_x[b] - self.ln_x[a]);
        (slope != 0.0).then(|| self.ln_x[a] + (level - self.ln_y[a]) / slope)
    }

    /// The highest that a concave curve through all points may reach: at a point, or between two where the chords of
    /// their neighbours, prolonged, meet.
    pub(super) fn peak(&self) -> f64 {
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
    pub(super) fn rises_to(&self, level: f64) -> (f64, f64) {
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
    pub(super) fn falls_to(&self, level: f64, top: usize) -> Option<(f64, f64)> {
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
    pub(super) fn last_doubling(&self) -> f64 {
        let last = self.ln_x.len() - 1;
        let half = self.ln_x[last] - std::f64::consts::LN_2;
        let after = self.ln_x.iter().position(|x| *x >= half).unwrap_or(last).max(1);
        let (a, b) = (after - 1, after);
        let part = ((half - self.ln_x[a]) / (self.ln_x[b] - self.ln_x[a])).clamp(0.0, 1.0);
        let at_half = self.ln_y[a] + part * (self.ln_y[b] - self.ln_y[a]);
        (self.ln_y[last] - at_half).exp_m1()
    }
}

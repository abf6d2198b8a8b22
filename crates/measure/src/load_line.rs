//! The load line: the smallest depth that reaches 97 % of the plateau, and where overload begins.
//!
//! Throughput over depth rises to a plateau and may fall beyond it, so the measured means are fitted by the
//! closest curve that rises and then falls (weighted unimodal regression; Barlow et al., "Statistical Inference under
//! Order Restrictions", 1972). Noise can thus not fake a knee by going up and down.
//!
//! - The plateau is the mean over all points at the top that differ by no more than their noise: the maximum of noisy
//!   points would be biased upwards.
//! - Between measured depths the fit is a power law (a straight line in log depth and log throughput: exact while
//!   throughput is proportional to depth). A concave curve lies between that chord and the prolonged chord before it,
//!   which bounds where it crosses a level: the confidence interval holds that uncertainty as well as the noise.
//! - The noise is that of a bootstrap over each point's batches of samples (Efron and Tibshirani, "An Introduction to
//!   the Bootstrap", 1993), with a fixed seed: the same points give the same line.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::schema::{Answer, Curve, Estimate, LoadLine, Point};
use crate::stats::{Batches, mean, sorted_quantile, t_quantile};

/// The load line is the smallest depth with this part of the plateau.
pub const LOAD_LINE_FRACTION: f64 = 0.97;
/// Overload is where throughput has fallen to this part of the plateau.
pub const OVERLOAD_FRACTION: f64 = 0.95;
/// A curve that gains more than this part over the last doubling of depth is still rising: one more doubling could move
/// the plateau by more than the load line's own tolerance.
const RISING_A_DOUBLING: f64 = 0.03;
const REPLICATES: usize = 1000;

/// Plateau, load line and overload of a curve, each with its 95 % confidence interval; None when fewer than three
/// points have samples. Points may be in any order. Deterministic: the bootstrap's seed is fixed.
pub fn find(points: &[Point]) -> Option<LoadLine> {
    let mut levels: Vec<Level> = points.iter().filter_map(Level::of).collect();
    levels.sort_by(|a, b| a.x.total_cmp(&b.x));
    levels.dedup_by(|a, b| a.x == b.x);
    if levels.len() < 3 {
        return None;
    }
    let measured = Shape::of(&levels, levels.iter().map(|level| level.mean).collect());

    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x9e37_79b9_7f4a_7c15);
    let replicates: Vec<Shape> = (0..REPLICATES)
        .map(|_| Shape::of(&levels, levels.iter().map(|level| level.resampled(&mut random)).collect()))
        .collect();

    let interval = |low: &dyn Fn(&Shape) -> Option<f64>, high: &dyn Fn(&Shape) -> Option<f64>| {
        (quantile(&replicates, low, 0.025), quantile(&replicates, high, 0.975))
    };
    let (low, high) = interval(&|shape| Some(shape.plateau), &|shape| Some(shape.plateau));
    let plateau_iops =
        Estimate { mean: measured.plateau, low: low.min(measured.plateau), high: high.max(measured.plateau) };
    let (low, high) = interval(&|shape| Some(shape.load_line.0), &|shape| Some(shape.load_line.1));
    let load_line = around(measured.load_line, low, high);
    let overload = measured.overload.and_then(|bounds| {
        // A fall that the noise alone produces now and then is no overload.
        let seen = replicates.iter().filter(|shape| shape.overload.is_some()).count();
        let (low, high) = interval(&|shape| Some(shape.overload?.0), &|shape| Some(shape.overload?.1));
        (seen * 100 >= REPLICATES * 95).then(|| around(bounds, low, high))
    });
    let rise = quantile(&replicates, &|shape| Some(shape.last_doubling), 0.05);
    Some(LoadLine {
        plateau_iops,
        load_line: Some(on_measured(load_line, &levels)),
        overload: overload.map(|overload| on_measured(overload, &levels)),
        still_rising: measured.last_doubling > RISING_A_DOUBLING && rise > 0.0,
        unnamed: None,
    })
}

/// The estimate at the smallest measured depth that is not below it, its interval on whole depths if all depths are
/// whole.
fn on_measured(depth: Estimate, levels: &[Level]) -> Estimate {
    let whole = levels.iter().all(|level| level.x.fract() == 0.0);
    let deepest = levels[levels.len() - 1].x;
    let mean = levels.iter().map(|level| level.x).find(|&x| x >= depth.mean * 0.999).unwrap_or(deepest);
    let (low, high) = if whole { (depth.low.floor(), depth.high.ceil()) } else { (depth.low, depth.high) };
    Estimate { mean, low: low.min(mean), high: high.max(mean) }
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
    /// What the sweep says of the load line. Every table, sentence, tile and title shows this and nothing else.
    pub fn answer(&self) -> Answer<'_> {
        match (self.still_rising, self.load_line) {
            (true, _) => Answer::Beyond,
            (false, None) => Answer::Unnamed(self.unnamed.as_deref().unwrap_or("too little was measured")),
            (false, Some(line)) if line.high > line.low * WIDEST => Answer::Between(line.low, line.high),
            (false, Some(line)) => Answer::At(line),
        }
    }
}

/// Bounds of a depth as an estimate: their geometric mean, inside the interval.
fn around((earliest, latest): (f64, f64), low: f64, high: f64) -> Estimate {
    Estimate { mean: (earliest * latest).sqrt(), low: low.min(earliest), high: high.max(latest) }
}

fn quantile(shapes: &[Shape], of: &dyn Fn(&Shape) -> Option<f64>, q: f64) -> f64 {
    let mut values: Vec<f64> = shapes.iter().filter_map(of).collect();
    values.sort_by(f64::total_cmp);
    sorted_quantile(&values, q)
}

/// A point as the finder needs it.
struct Level {
    x: f64,
    mean: f64,
    batches: Vec<f64>,
    /// What a resampled deviation is multiplied by: few batches spread too little, dependent ones too.
    stretch: f64,
    standard_error: f64,
}

impl Level {
    fn of(point: &Point) -> Option<Level> {
        let samples: Vec<f64> = point.samples.iter().copied().filter(|sample| sample.is_finite()).collect();
        let mean = mean(&samples);
        // Beyond these no storage is, and squares would overflow.
        if !(1e-9..1e18).contains(&mean) || !(1e-9..1e18).contains(&point.x) {
            return None;
        }
        let batches = Batches::of(&samples);
        let n = batches.means.len() as f64;
        // The bootstrap's spread is that of dividing by n; Student's t is wider than the normal distribution.
        let stretch =
            if n < 2.0 { 1.0 } else { batches.inflation * (n / (n - 1.0)).sqrt() * t_quantile(0.975, n - 1.0) / 1.96 };
        Some(Level { x: point.x, mean, standard_error: batches.standard_error(), batches: batches.means, stretch })
    }

    fn resampled(&self, random: &mut Xoshiro256PlusPlus) -> f64 {
        let n = self.batches.len();
        let drawn: f64 =
            (0..n).map(|_| self.batches[((u128::from(random.next_u64()) * n as u128) >> 64) as usize]).sum::<f64>()
                / n as f64;
        // A throughput is never negative, however few samples stretch it.
        (self.mean + (drawn - mean(&self.batches)) * self.stretch).max(self.mean * 1e-3)
    }
}

/// What one set of means says.
struct Shape {
    plateau: f64,
    /// The earliest and the latest depth at which a concave curve through the fit crosses the load line's level.
    load_line: (f64, f64),
    overload: Option<(f64, f64)>,
    /// What the last doubling of depth gains, as a fraction.
    last_doubling: f64,
}

impl Shape {
    fn of(levels: &[Level], means: Vec<f64>) -> Shape {
        // No point is so certain that the others do not count: a floor of 0.2 % below every standard error.
        let errors: Vec<f64> = levels.iter().map(|level| level.standard_error.max(level.mean * 0.002)).collect();
        let weights: Vec<f64> = errors.iter().map(|error| error.powi(-2)).collect();
        let fit = unimodal(&means, &weights);
        let (plateau, last_of_plateau) = plateau(&fit, &means, levels);
        let curve = Fitted {
            ln_x: levels.iter().map(|level| level.x.ln()).collect(),
            ln_y: fit.iter().map(|y| y.ln()).collect(),
        };
        Shape {
            plateau,
            load_line: curve.rises_to((plateau * LOAD_LINE_FRACTION).ln()),
            overload: curve.falls_to((plateau * OVERLOAD_FRACTION).ln(), last_of_plateau),
            last_doubling: curve.last_doubling(),
        }
    }
}

/// The top of the fit, widened to its neighbours while they differ by no more than noise, and its last index.
fn plateau(fit: &[f64], means: &[f64], levels: &[Level]) -> (f64, usize) {
    let top = fit.iter().copied().fold(f64::MIN, f64::max);
    let mut first = fit.iter().position(|y| *y == top).expect("the maximum is one of them");
    let mut last = fit.iter().rposition(|y| *y == top).expect("the maximum is one of them");
    let error = |index: usize| levels[index].standard_error;
    let pooled = |first: usize, last: usize| {
        let weight = |index: usize| (error(index).powi(2) + (levels[index].mean * 0.002).powi(2)).recip();
        let total: f64 = (first..=last).map(weight).sum();
        let mean = (first..=last).map(|index| weight(index) * means[index]).sum::<f64>() / total;
        let variance =
            (first..=last).map(|index| (weight(index) * error(index)).powi(2)).sum::<f64>() / (total * total);
        (mean, variance)
    };
    loop {
        let (mean, variance) = pooled(first, last);
        let joins = |index: usize| {
            let away = (means[index] - mean).abs();
            let noise = (error(index).powi(2) + variance).sqrt();
            (away <= JOINS * noise && away <= 0.03 * mean + noise).then_some(away)
        };
        let before = first.checked_sub(1).and_then(joins);
        let after = (last + 1 < means.len()).then(|| joins(last + 1)).flatten();
        match (before, after) {
            (None, None) => return (mean, last),
            (Some(left), Some(right)) if left <= right => first -= 1,
            (Some(_), None) => first -= 1,
            _ => last += 1,
        }
    }
}

/// Standard errors of the difference within which a neighbour belongs to the plateau.
const JOINS: f64 = 2.5;

/// The closest sequence that does not fall up to some index and does not rise from there on, least squares.
fn unimodal(values: &[f64], weights: &[f64]) -> Vec<f64> {
    let n = values.len();
    let misfit = |fit: &[f64], from: usize| -> f64 {
        fit.iter().enumerate().map(|(i, y)| weights[from + i] * (y - values[from + i]).powi(2)).sum()
    };
    let mut best = (f64::INFINITY, Vec::new());
    for split in 1..=n {
        let mut fit = isotonic(&values[..split], &weights[..split]);
        let reversed = |part: &[f64]| part.iter().rev().copied().collect::<Vec<f64>>();
        let falling = reversed(&isotonic(&reversed(&values[split..]), &reversed(&weights[split..])));
        let total = misfit(&fit, 0) + misfit(&falling, split);
        if total < best.0 {
            fit.extend(falling);
            best = (total, fit);
        }
    }
    best.1
}

/// The closest sequence that does not fall: pool adjacent violators (Ayer et al., 1955).
fn isotonic(values: &[f64], weights: &[f64]) -> Vec<f64> {
    // (mean, weight, length) of each block.
    let mut blocks: Vec<(f64, f64, usize)> = Vec::with_capacity(values.len());
    for (&value, &weight) in values.iter().zip(weights) {
        let mut block = (value, weight, 1);
        while let Some(&before) = blocks.last()
            && before.0 >= block.0
        {
            let weight = before.1 + block.1;
            block = ((before.0 * before.1 + block.0 * block.1) / weight, weight, before.2 + block.2);
            blocks.pop();
        }
        blocks.push(block);
    }
    blocks.into_iter().flat_map(|(mean, _, length)| std::iter::repeat_n(mean, length)).collect()
}

/// The fit on logarithmic scales.
struct Fitted {
    ln_x: Vec<f64>,
    ln_y: Vec<f64>,
}

impl Fitted {
    /// Where the straight line through points `a` and `b` has height `level`; None if it is level.
    fn crossing(&self, a: usize, b: usize, level: f64) -> Option<f64> {
        let slope = (self.ln_y[b] - self.ln_y[a]) / (self.ln_x[b] - self.ln_x[a]);
        (slope != 0.0).then(|| self.ln_x[a] + (level - self.ln_y[a]) / slope)
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

    /// What the last doubling of depth gained, as a fraction.
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
    use crate::stats::test_noise::Noise;

    const DEPTHS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

    /// A sweep of `curve` with twenty samples a point, each off by `noise` (a fraction), neighbours dependent.
    fn sweep(curve: impl Fn(f64) -> f64, depths: &[f64], noise: f64, seed: u64) -> Vec<Point> {
        let mut random = Noise::new(seed);
        let point = |&x: &f64| {
            let samples = random.autoregressive(0.3, 20).iter().map(|e| curve(x) * (1.0 + noise * e)).collect();
            Point { x, samples, ..Point::default() }
        };
        depths.iter().map(point).collect()
    }

    /// Plateau, load line and overload of the curve itself, on a fine grid over the depths swept.
    fn truth(curve: impl Fn(f64) -> f64, depths: &[f64]) -> (f64, f64, Option<f64>) {
        let last = depths[depths.len() - 1];
        let steps = (last / depths[0]).ln() / 1e-4;
        let grid: Vec<f64> =
            (0..=steps.ceil() as u32).map(|i| (depths[0] * (f64::from(i) * 1e-4).exp()).min(last)).collect();
        let top = grid.iter().copied().max_by(|a, b| curve(*a).total_cmp(&curve(*b))).unwrap();
        let plateau = curve(top);
        let line = grid.iter().copied().find(|&x| curve(x) >= LOAD_LINE_FRACTION * plateau).unwrap();
        let over = grid.iter().copied().find(|&x| x > top && curve(x) <= OVERLOAD_FRACTION * plateau);
        (plateau, line, over)
    }

    /// A closed system by Little's law: proportional to depth until `cap`; `sharp` large makes a hard knee.
    fn saturating(cap: f64, per_op: f64, sharp: f64) -> impl Fn(f64) -> f64 {
        move |depth| cap * (1.0 + (cap * per_op / depth).powf(sharp)).powf(-1.0 / sharp)
    }

    /// As [`saturating`], and beyond `from` every doubling of depth loses `loss`.
    fn collapsing(from: f64, loss: f64) -> impl Fn(f64) -> f64 {
        let rise = saturating(1e5, 2.4e-4, 4.0);
        move |depth| rise(depth) * (1.0 - loss).powf((depth / from).log2().max(0.0))
    }

    struct Coverage {
        plateau: f64,
        load_line: f64,
        overload: f64,
        /// Mean of estimate over truth, minus 1, of the plateau: its bias.
        bias: f64,
        /// Median of high / low of the load line.
        width: f64,
        rising: f64,
        overload_seen: f64,
    }

    fn coverage(curve: impl Fn(f64) -> f64, depths: &[f64], noise: f64) -> Coverage {
        const TRIALS: u64 = 100;
        let (_, line, over) = truth(&curve, depths);
        // What lies between the measured depths cannot be known: the plateau is that of the depths measured.
        let plateau = depths.iter().map(|&x| curve(x)).fold(0.0, f64::max);
        let mut found = Coverage {
            plateau: 0.0,
            load_line: 0.0,
            overload: 0.0,
            bias: 0.0,
            width: 0.0,
            rising: 0.0,
            overload_seen: 0.0,
        };
        let mut widths = Vec::new();
        for seed in 0..TRIALS {
            let one = find(&sweep(&curve, depths, noise, seed)).unwrap();
            let holds =
                |estimate: &Estimate, truth: f64| f64::from(u8::from((estimate.low..=estimate.high).contains(&truth)));
            found.plateau += holds(&one.plateau_iops, plateau);
            // A grid of 1e-4 places the truth that precisely.
            let found_line = one.load_line.unwrap();
            found.load_line += holds(&Estimate { low: found_line.low * 0.999, ..found_line }, line);
            found.bias += one.plateau_iops.mean / plateau - 1.0;
            found.rising += f64::from(u8::from(one.still_rising));
            widths.push(found_line.high / found_line.low);
            if let (Some(one), Some(over)) = (&one.overload, over) {
                found.overload += holds(one, over);
            }
            found.overload_seen += f64::from(u8::from(one.overload.is_some()));
        }
        widths.sort_by(f64::total_cmp);
        found.bias /= TRIALS as f64;
        found.width = sorted_quantile(&widths, 0.5);
        found
    }

    #[test]
    fn intervals_hold_the_true_knee_whatever_the_shape() {
        for noise in [0.005, 0.02, 0.05] {
            for (name, found) in [
                ("soft knee", coverage(saturating(1e5, 2.4e-4, 1.0), &DEPTHS, noise)),
                ("medium knee", coverage(saturating(1e5, 2.4e-4, 3.0), &DEPTHS, noise)),
                ("hard knee", coverage(saturating(1e5, 2.4e-4, 40.0), &DEPTHS, noise)),
                ("flat", coverage(|_| 1e5, &DEPTHS, noise)),
                ("rising", coverage(|depth| 1e3 * depth.powf(0.8), &DEPTHS, noise)),
            ] {
                // Twenty dependent samples a point: the intervals of single points cover 89 percent themselves.
                let least = if noise > 0.02 { 85.0 } else { 90.0 };
                assert!(found.load_line >= least, "{name}, noise {noise}: load line covered {} %", found.load_line);
                assert!(found.plateau >= 78.0, "{name}, noise {noise}: plateau covered {} %", found.plateau);
                assert!(found.bias.abs() <= 0.012, "{name}, noise {noise}: plateau biased by {}", found.bias);
                assert!(
                    found.overload_seen <= 1.0,
                    "{name}, noise {noise}: overload seen in {} %",
                    found.overload_seen
                );
                if noise <= 0.005 {
                    // Doubling depths tell no more than a factor of two.
                    assert!(found.width <= 2.1, "{name}: the interval spans a factor of {}", found.width);
                }
                match name {
                    "rising" => assert_eq!(found.rising, 100.0),
                    "soft knee" => {}
                    _ => assert!(found.rising <= 2.0, "{name}, noise {noise}: rising in {} %", found.rising),
                }
            }
        }
    }

    #[test]
    fn overload_is_found_where_it_is() {
        for noise in [0.005, 0.02, 0.05] {
            for (name, curve) in [("collapse", collapsing(100.0, 0.2)), ("slow collapse", collapsing(64.0, 0.05))] {
                let found = coverage(curve, &DEPTHS, noise);
                assert!(found.overload_seen >= 95.0, "{name}, noise {noise}: seen in {} %", found.overload_seen);
                assert!(found.overload >= 93.0, "{name}, noise {noise}: covered {} %", found.overload);
            }
        }
    }

    #[test]
    fn finer_depths_narrow_the_interval() {
        let fine: Vec<f64> = DEPTHS.into_iter().chain([19.0, 22.0, 24.0, 27.0]).collect();
        let hard = || saturating(1e5, 2.4e-4, 40.0);
        let found = find(&sweep(hard(), &fine, 0.002, 1)).unwrap().load_line.unwrap();
        let truth = truth(hard(), &DEPTHS).1;
        assert!((found.low..=found.high).contains(&truth) && found.high / found.low < 1.1, "{found:?} {truth}");
    }

    #[test]
    fn exact_curves_give_exact_plateaus_and_the_same_points_the_same_line() {
        let points = sweep(saturating(1e5, 2.4e-4, 40.0), &DEPTHS, 0.0, 0);
        let found = find(&points).unwrap();
        assert!((found.plateau_iops.mean - 1e5).abs() < 1.0 && found.overload.is_none() && !found.still_rising);
        let mut reversed = points;
        reversed.reverse();
        assert_eq!(find(&reversed).unwrap(), found);
    }

    #[test]
    fn too_little_gives_no_line_and_nonsense_no_panic() {
        assert_eq!(find(&sweep(|_| 1e5, &[1.0, 2.0], 0.01, 0)), None);
        assert_eq!(find(&sweep(|_| 0.0, &DEPTHS, 0.01, 0)), None);
        let nonsense = |x: f64, samples: &[f64]| Point { x, samples: samples.to_vec(), ..Point::default() };
        let points = [
            nonsense(-1.0, &[5.0]),
            nonsense(f64::NAN, &[5.0]),
            nonsense(1.0, &[f64::NAN, 1e300]),
            nonsense(2.0, &[1e-300]),
            nonsense(2.0, &[4.0]),
            nonsense(3.0, &[7.0, 7.0]),
            nonsense(4.0, &[1e9, -1e9, 5.0]),
            nonsense(5.0, &[1e17]),
        ];
        find(&points).unwrap();
    }

    #[test]
    fn the_unimodal_fit_is_the_closest_of_all() {
        // Against every fit on a coarse grid.
        let values = [1.0, 3.0, 2.0, 4.0, 3.0, 3.5];
        let misfit = |fit: &[f64]| values.iter().zip(fit).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let ours = unimodal(&values, &[1.0; 6]);
        let mut best = f64::INFINITY;
        for code in 0..9u32.pow(6) {
            let fit: Vec<f64> = (0..6).map(|i| f64::from(code / 9u32.pow(i) % 9) * 0.5).collect();
            let top = (0..6).max_by(|&a, &b| fit[a].total_cmp(&fit[b])).unwrap();
            if fit[..=top].is_sorted() && fit[top..].is_sorted_by(|a, b| a >= b) {
                best = best.min(misfit(&fit));
            }
        }
        assert!(misfit(&ours) <= best + 1e-9, "{ours:?}: {} {best}", misfit(&ours));
        assert!((misfit(&ours) - 0.625).abs() < 1e-9, "1, 2.5, 2.5, 4, 3.25, 3.25");
    }
}

//! The throughput that a depth gives, from visits at several times: the effect of the depth apart from the effect of
//! the moment.
//!
//! A sweep explores (every depth once, round 0), then confirms: in each round it visits the depths that decide, one
//! after the other. Rounds are the blocks of a randomised block design (Fisher, "The Design of Experiments", 1935): the
//! logarithm of a visit's throughput is the effect of its depth, plus the effect of its round, plus an error,
//!
//! ```text
//! ln y = depth + round + error
//! ```
//!
//! fitted by least squares. A machine that is slower for a while slows a whole round, and does not change the
//! differences between depths, on which load line and overload rest. The error is that of whole visits, so it holds
//! the noise within a visit, its autocorrelation, and the difference between one visit and the next.
//!
//! The first look chose the depths, so it does not count for those that were confirmed: the luckiest of eleven single
//! looks is not the plateau (the winner's curse).

use crate::schema::{Point, Slices, Visit};
use crate::stats::{mean, sorted_quantile, variance};

/// One visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    /// The index of the depth.
    pub depth: usize,
    /// The round; 0 is the exploration.
    pub round: u32,
    /// The logarithm of the visit's mean throughput.
    pub ln: f64,
    /// The standard error of that logarithm if the samples of the visit are independent of one another.
    pub within: f64,
    /// The nanoseconds that the visit measured; 0 if unknown.
    pub ns: f64,
    /// The logarithm of the visit's whole throughput over that without accidents ([`Accident`]).
    pub lost: f64,
}

/// The visits to all points, in the order of the points. A point without recorded visits counts as visited once.
pub(crate) fn looks(points: &[&Point]) -> Vec<Look> {
    let accident = Accident::of(points);
    let mut out = Vec::new();
    for (depth, point) in points.iter().enumerate() {
        let mut enter = |visit: &Visit, samples: &[f64]| {
            let kept = match (&accident, &visit.slices) {
                (Some(accident), Some(slices)) => accident.without(depth, slices, samples),
                _ => samples.to_vec(),
            };
            let (level, whole) = (mean(&kept), mean(samples));
            if level.is_finite() && level > 0.0 {
                let count = kept.len() as f64;
                let within = if kept.len() > 1 { (variance(&kept) / count).sqrt() / level } else { 0.0 };
                let lost = if whole > 0.0 { (whole / level).ln() } else { 0.0 };
                let ns = visit.measured_ns as f64;
                out.push(Look { depth, round: visit.round, ln: level.ln(), within, ns, lost });
            }
        };
        point.by_visit().for_each(|(visit, samples)| enter(visit, samples));
        if point.visits.is_empty() {
            enter(&Visit::default(), &point.samples);
        }
    }
    out
}

/// The slices that met an accident: a stall of the storage or of the machine that hits whichever depth is on. One slice
/// in ten that gives nothing moves the mean of its visit more than the depths differ from one another.
struct Accident {
    /// The median throughput of the slices at each depth, a logarithm.
    medians: Vec<f64>,
    /// The distance of a slice from that median beyond which it met an accident: for a slice of one nanosecond, and the
    /// root of its length shrinks it.
    far: f64,
}

/// The part of all slices beyond which accidents are a state of the machine, and no slice is left out.
const OFTEN: f64 = 0.2;
/// A slice that lies no farther from the others (a logarithm) met no accident, however quiet the others are.
const NEAR: f64 = 0.1;
/// Slices below which nothing tells an accident from noise.
const FEWEST: usize = 12;

impl Accident {
    /// None where no slice met one, or too many did.
    fn of(points: &[&Point]) -> Option<Accident> {
        let mut medians = Vec::new();
        let mut away = Vec::new();
        for point in points {
            let mut levels: Vec<(f64, f64)> = Vec::new();
            for (visit, samples) in point.by_visit() {
                let Some(slices) = &visit.slices else { continue };
                let level = |part: &[f64]| (mean(part).max(f64::MIN_POSITIVE).ln(), slices.ns as f64);
                levels.extend(slices.parts(samples).into_iter().map(level));
            }
            let mut sorted: Vec<f64> = levels.iter().map(|(level, _)| *level).collect();
            sorted.sort_by(f64::total_cmp);
            let median = if sorted.is_empty() { 0.0 } else { sorted_quantile(&sorted, 0.5) };
            medians.push(median);
            away.extend(levels.iter().map(|(level, ns)| ((level - median).abs(), *ns)));
        }
        if away.len() < FEWEST {
            return None;
        }
        let mut scaled: Vec<f64> = away.iter().map(|(away, ns)| away * ns.sqrt()).collect();
        scaled.sort_by(f64::total_cmp);
        let far = ANOTHER_STATE * 1.4826 * sorted_quantile(&scaled, 0.5);
        let found = Accident { medians, far };
        let count = away.iter().filter(|(away, ns)| *away > found.limit(*ns)).count();
        (count > 0 && count as f64 <= OFTEN * away.len() as f64).then_some(found)
    }

    fn limit(&self, ns: f64) -> f64 {
        (self.far / ns.max(1.0).sqrt()).max(NEAR)
    }

    /// The samples of the slices of a visit that met no accident; all of them where each slice met one.
    fn without(&self, depth: usize, slices: &Slices, samples: &[f64]) -> Vec<f64> {
        let limit = self.limit(slices.ns as f64);
        let is_usual = |part: &&[f64]| (mean(part).max(f64::MIN_POSITIVE).ln() - self.medians[depth]).abs() <= limit;
        let kept: Vec<f64> = slices.parts(samples).into_iter().filter(is_usual).flatten().copied().collect();
        if kept.is_empty() { samples.to_vec() } else { kept }
    }
}

/// The effects of depths and of rounds, told apart, from the visits of round 1 and later.
#[derive(Clone, Debug)]
pub(crate) struct Effects {
    /// Indices of the depths that were confirmed, ascending.
    pub confirmed: Vec<usize>,
    /// The logarithm of the throughput of each confirmed depth, in the mean of all rounds.
    pub depths: Vec<f64>,
    /// The Cholesky factor of the covariance of `depths` for errors of unit variance, by rows.
    pub factor: Vec<Vec<f64>>,
    /// The effect of each round, the exploration first, and how many visits it rests on. Those of rounds 1 and later
    /// have mean 0.
    pub rounds: Vec<(f64, usize)>,
    /// The numbers of the rounds from 1 on, as in `rounds`.
    numbers: Vec<u32>,
    /// The standard deviation of the error of a visit of usual length.
    pub error: f64,
    /// The part of `error` that the samples within the visits do not explain: the difference between the moments at
    /// which they were made. The rest is an error of many independent parts, and so a normal one.
    pub excess: f64,
    /// The degrees of freedom of `error`, at least 1.
    pub freedom: f64,
    /// Visits that lie so far from the others that they belong to another state of the machine: the index of the depth,
    /// and how far the visit lies from it. They count for no effect.
    pub set_aside: Vec<(usize, f64)>,
    /// The number of visits to each depth in the rounds, by the depth's index: kept, and set aside.
    pub visited: Vec<(u32, u32)>,
    /// The logarithm of the throughput with accidents over that without: the mean of all visits, for accidents hit
    /// whichever depth is on.
    pub lost: f64,
}

impl Effects {
    /// The effects; None with fewer than two rounds, without a degree of freedom, or where visits that agree do not
    /// connect the depths.
    pub fn of(looks: &[Look]) -> Option<Effects> {
        let later: Vec<Look> = looks.iter().copied().filter(|look| look.round > 0).collect();
        let typical = Design::of(&later).typical()?;
        let (kept, odd): (Vec<(Look, bool)>, _) = later.into_iter().zip(typical).partition(|(_, typical)| *typical);
        let kept: Vec<Look> = kept.into_iter().map(|(look, _)| look).collect();
        let design = Design::of(&kept);
        let parameters = design.parameters();
        if design.rounds.len() < 2 || kept.len() <= parameters {
            return None;
        }
        let freedom = (kept.len() - parameters) as f64;
        let squares = |residuals: &[f64], weights: &[f64]| {
            residuals.iter().zip(weights).map(|(error, weight)| weight * error * error).sum::<f64>() / freedom
        };
        let alike = vec![1.0; kept.len()];
        let weights = weights(&kept, squares(&design.fit(&alike)?.residuals, &alike));
        let Fit { solution, residuals, inverse } = design.fit(&weights)?;
        let error = squares(&residuals, &weights).sqrt();
        let within = kept.iter().zip(&weights).map(|(look, weight)| weight * look.within.powi(2)).sum::<f64>();
        let within = within / kept.len() as f64;
        let Design { depths: confirmed, rounds: numbers, .. } = design;
        let (depths, free) = solution.split_at(confirmed.len());
        let away = |look: &Look| Some(look.ln - depths[confirmed.binary_search(&look.depth).ok()?]);
        let first: Vec<f64> = looks.iter().filter(|look| look.round == 0).filter_map(away).collect();
        let mut rounds = vec![(mean(&first), first.len())];
        let last = -free.iter().sum::<f64>();
        rounds.extend(
            free.iter()
                .chain([&last])
                .zip(&numbers)
                .map(|(&effect, number)| (effect, kept.iter().filter(|look| look.round == *number).count())),
        );
        let covariance: Vec<Vec<f64>> =
            inverse[..confirmed.len()].iter().map(|row| row[..confirmed.len()].to_vec()).collect();
        Some(Effects {
            factor: cholesky(&covariance)?,
            rounds,
            numbers,
            error,
            excess: (error.powi(2) - within).max(0.0).sqrt(),
            freedom,
            set_aside: odd.iter().filter_map(|(look, _)| Some((look.depth, away(look)?))).collect(),
            visited: visited(looks, &odd),
            lost: mean(&looks.iter().map(|look| look.lost).collect::<Vec<f64>>()),
            depths: depths.to_vec(),
            confirmed,
        })
    }

    /// The effect of a round; None if no visit of it was kept, or if it is the exploration.
    pub fn of_round(&self, round: u32) -> Option<f64> {
        let at = self.numbers.iter().position(|number| *number == round)?;
        self.rounds.get(at + 1).map(|(effect, _)| *effect)
    }

    /// The part of the visits that were set aside as accidents.
    pub fn odd_part(&self) -> f64 {
        let odd: u32 = self.visited.iter().map(|(_, odd)| odd).sum();
        let all: u32 = self.visited.iter().map(|(kept, odd)| kept + odd).sum();
        f64::from(odd) / f64::from(all.max(1))
    }

    /// The probability that the visits to a depth that were set aside saw the usual machine, and those that were kept
    /// the other one: by Bayes' rule, if each visit sees the other one with probability [`Effects::odd_part`]. A depth
    /// that was only explored had one visit.
    pub fn mistaken(&self, depth: usize) -> f64 {
        let odd_part = self.odd_part().min(0.5);
        let (kept, odd) = match self.visited.get(depth) {
            Some(&(kept, odd)) if kept + odd > 0 => (kept, odd),
            _ => (1, 0),
        };
        let odds = (odd_part / (1.0 - odd_part)).powi(kept as i32 - odd as i32);
        odds / (1.0 + odds)
    }

    /// The standard deviation of a single look at a depth that was not confirmed: the error of a visit and the spread
    /// of the rounds.
    pub fn single_error(&self) -> f64 {
        let rounds: Vec<f64> = self.rounds.iter().map(|(effect, _)| *effect).collect();
        (self.error.powi(2) + variance(&rounds)).sqrt()
    }

    /// The standard error of each confirmed depth.
    pub fn standard_errors(&self) -> Vec<f64> {
        self.factor.iter().map(|row| self.error * row.iter().map(|x| x * x).sum::<f64>().sqrt()).collect()
    }
}

/// Robust standard deviations beyond which a visit belongs to another state of the machine: of normal errors, one in
/// 150,000.
const ANOTHER_STATE: f64 = 4.5;
/// The number of reweightings of the fit of least absolute deviations, after which it moves by less than 0.1 %.
const REWEIGHTED: usize = 12;
/// A robust deviation below this (a logarithm) sets nothing aside: quiet machines have visits that differ by this much.
const LEAST_DEVIATION: f64 = 0.003;

/// The largest ratio of the weights of two visits: the parts of the error are themselves estimates.
const HEAVIEST: f64 = 8.0;

/// A variance below this is 0, rounded.
const LEAST_VARIANCE: f64 = 1e-18;

/// The weight of each visit, with mean 1: the inverse of its variance, where all visits have the variance `squared` in
/// the mean. The part of the samples within visits shrinks with the time that a visit measured; the rest is the
/// difference between moments (a random-effects model: DerSimonian and Laird, "Meta-analysis in clinical trials",
/// 1986).
fn weights(looks: &[Look], squared: f64) -> Vec<f64> {
    let count = looks.len() as f64;
    if looks.iter().any(|look| look.ns == 0.0) {
        return vec![1.0; looks.len()];
    }
    let of_a_ns = looks.iter().map(|look| look.within.powi(2) * look.ns).sum::<f64>() / count;
    let within = |look: &Look| of_a_ns / look.ns;
    let between = (squared - looks.iter().map(within).sum::<f64>() / count).max(0.0);
    let mut weights: Vec<f64> = looks.iter().map(|look| (between + within(look)).max(LEAST_VARIANCE).recip()).collect();
    let least = weights.iter().copied().fold(f64::MAX, f64::min);
    weights.iter_mut().for_each(|weight| *weight = weight.min(HEAVIEST * least));
    let mean = weights.iter().sum::<f64>() / count;
    weights.iter().map(|weight| weight / mean).collect()
}

/// The number of visits to each depth in the rounds: kept, and set aside.
fn visited(looks: &[Look], odd: &[(Look, bool)]) -> Vec<(u32, u32)> {
    let mut visited = vec![(0, 0); looks.iter().map(|look| look.depth + 1).max().unwrap_or(0)];
    looks.iter().filter(|look| look.round > 0).for_each(|look| visited[look.depth].0 += 1);
    for (look, _) in odd {
        visited[look.depth].0 -= 1;
        visited[look.depth].1 += 1;
    }
    visited
}

/// The linear model of some visits.
struct Design {
    /// Indices of the depths, ascending.
    depths: Vec<usize>,
    /// Numbers of the rounds, ascending.
    rounds: Vec<u32>,
    /// The coefficients of each visit for the depths and rounds: those that it belongs to count. The last round's
    /// effect is minus the sum of the others.
    rows: Vec<Vec<f64>>,
    levels: Vec<f64>,
}

/// A weighted least-squares fit.
struct Fit {
    solution: Vec<f64>,
    residuals: Vec<f64>,
    /// The inverse of the normal equations' matrix.
    inverse: Vec<Vec<f64>>,
}

impl Design {
    fn of(looks: &[Look]) -> Design {
        let mut depths: Vec<usize> = looks.iter().map(|look| look.depth).collect();
        depths.sort_unstable();
        depths.dedup();
        let mut rounds: Vec<u32> = looks.iter().map(|look| look.round).collect();
        rounds.sort_unstable();
        rounds.dedup();
        let row = |look: &Look| {
            let mut row: Vec<f64> = depths.iter().map(|depth| f64::from(u8::from(*depth == look.depth))).collect();
            let last = rounds.last() == Some(&look.round);
            let others = &rounds[..rounds.len() - 1];
            row.extend(others.iter().map(|round| if last { -1.0 } else { f64::from(u8::from(*round == look.round)) }));
            row
        };
        let rows = looks.iter().map(row).collect();
        Design { depths, rounds, rows, levels: looks.iter().map(|look| look.ln).collect() }
    }

    fn parameters(&self) -> usize {
        (self.depths.len() + self.rounds.len()).saturating_sub(1)
    }

    /// True for each visit that belongs to the usual state of the machine: those near the fit of least absolute
    /// deviations (by reweighting: Schlossmacher, 1973), in units of the median absolute deviation (Hampel, 1974). None
    /// where the visits do not determine a fit.
    fn typical(&self) -> Option<Vec<bool>> {
        let mut weights = vec![1.0; self.levels.len()];
        let mut residuals = Vec::new();
        for _ in 0..REWEIGHTED {
            residuals = self.fit(&weights)?.residuals;
            weights = residuals.iter().map(|error| error.abs().max(1e-4).recip()).collect();
        }
        // The fit goes through as many visits as it has parameters: these visits say nothing of the deviation.
        let mut away: Vec<f64> = residuals.iter().map(|error| error.abs()).collect();
        away.sort_by(f64::total_cmp);
        let rest = &away[self.parameters().min(away.len() - 1)..];
        let deviation = (1.4826 * rest[rest.len() / 2]).max(LEAST_DEVIATION);
        Some(residuals.iter().map(|error| error.abs() <= ANOTHER_STATE * deviation).collect())
    }

    /// The closest effects; None where the visits do not determine them.
    fn fit(&self, weights: &[f64]) -> Option<Fit> {
        let p = self.parameters();
        if p == 0 {
            return None;
        }
        let mut normal = vec![vec![0.0; p]; p];
        let mut right = vec![0.0; p];
        for ((row, level), weight) in self.rows.iter().zip(&self.levels).zip(weights) {
            for i in (0..p).filter(|&i| row[i] != 0.0) {
                right[i] += weight * row[i] * level;
                for j in 0..p {
                    normal[i][j] += weight * row[i] * row[j];
                }
            }
        }
        let inverse = inverse(&cholesky(&normal)?);
        let times = |row: &Vec<f64>, vector: &[f64]| row.iter().zip(vector).map(|(a, b)| a * b).sum::<f64>();
        let solution: Vec<f64> = inverse.iter().map(|row| times(row, &right)).collect();
        let residuals = self.rows.iter().zip(&self.levels).map(|(row, level)| level - times(row, &solution)).collect();
        Some(Fit { solution, residuals, inverse })
    }
}

/// The lower triangular factor of a symmetric positive definite matrix; None if it is not one.
fn cholesky(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let n = matrix.len();
    let mut factor = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
            let rest = matrix[i][j] - known;
            if i == j {
                // The bound is relative to the diagonal: rounding leaves this much of an exact zero.
                if rest <= matrix[i][i] * 1e-10 {
                    return None;
                }
                factor[i][i] = rest.sqrt();
            } else {
                factor[i][j] = rest / factor[j][j];
            }
        }
    }
    Some(factor)
}

/// The inverse of the matrix whose lower triangular factor is given.
fn inverse(factor: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = factor.len();
    let mut out = vec![vec![0.0; n]; n];
    for column in 0..n {
        let mut x = vec![0.0; n];
        for i in 0..n {
            let known: f64 = (0..i).map(|k| factor[i][k] * x[k]).sum();
            x[i] = (f64::from(u8::from(i == column)) - known) / factor[i][i];
        }
        for i in (0..n).rev() {
            let known: f64 = (i + 1..n).map(|k| factor[k][i] * x[k]).sum();
            x[i] = (x[i] - known) / factor[i][i];
        }
        for (row, value) in out.iter_mut().zip(x) {
            row[column] = value;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(depth: usize, round: u32, ln: f64) -> Look {
        Look { depth, round, ln, within: 0.0, ns: 0.0, lost: 0.0 }
    }

    #[test]
    fn a_slow_round_does_not_change_the_depths() {
        let mut looks = vec![look(0, 0, 9.0), look(1, 0, 9.0), look(7, 0, 1.0)];
        for (round, effect) in [(1, 0.0), (2, -0.3), (3, 0.3)] {
            looks.push(look(0, round, 1.0 + effect));
            looks.push(look(1, round, 2.0 + effect));
        }
        looks.push(look(4, 2, 2.7));
        let found = Effects::of(&looks).unwrap();
        assert_eq!(found.confirmed, [0, 1, 4]);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(found.depths[0], 1.0) && near(found.depths[1], 2.0) && near(found.depths[2], 3.0), "{found:?}");
        assert!(
            near(found.rounds[1].0, 0.0) && near(found.rounds[2].0, -0.3) && near(found.rounds[3].0, 0.3),
            "{found:?}"
        );
        assert!(found.error < 1e-9 && found.freedom == 2.0, "{found:?}");
        assert_eq!(found.rounds.iter().map(|round| round.1).collect::<Vec<_>>(), [2, 2, 3, 2]);
    }

    #[test]
    fn standard_errors_shrink_with_the_root_of_the_visits() {
        let noise = |i: u32| if i.is_multiple_of(2) { 0.01 } else { -0.01 };
        let of = |rounds: u32| {
            let looks: Vec<Look> = (1..=rounds)
                .flat_map(|round| {
                    (0..4).map(move |depth| look(depth as usize, round, noise(round * 7 + depth * 3 + round / 2)))
                })
                .collect();
            let found = Effects::of(&looks).unwrap();
            found.standard_errors()[0] / found.error
        };
        assert!((of(4) / of(16) - 2.0).abs() < 1e-6, "{} {}", of(4), of(16));
    }

    #[test]
    fn too_few_visits_have_no_effects() {
        assert!(Effects::of(&[]).is_none());
        assert!(Effects::of(&[look(0, 1, 1.0), look(1, 1, 1.0)]).is_none(), "one round");
        assert!(Effects::of(&[look(0, 1, 1.0), look(0, 2, 1.0)]).is_none(), "nothing left for the error");
    }
}

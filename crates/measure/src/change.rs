//! Change points: the places of a short history at which its level changed, beyond what noise explains.
//!
//! The statistic is Pettitt's ("A non-parametric approach to the change-point problem", Applied Statistics 28, 1979):
//! the rank sum before a place against the one behind it, here divided by its standard deviation at that place, so that
//! a recent change counts as much as one in the middle. Its significance comes from permutations of the history, and
//! several changes from the same test on the parts, as in E-divisive (Matteson and James, "A nonparametric approach for
//! multiple change point analysis of multivariate data", JASA 109, 2014). Under noise without order, the probability of
//! any change point is at most `alpha`; a caller with several histories divides `alpha` by their number (Bonferroni).
//! Ranks make single outliers harmless. Noise that has a memory (a slow drift) can count as a change.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::schema::Estimate;
use crate::stats::{mean, unpaired_change};

/// A part of a history between two changes has at least this many values.
pub const FEWEST: usize = 3;
/// Permutations behind a significance: the smallest is one of these many and one.
const PERMUTATIONS: usize = 4999;

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The index of the first value of the new level.
    pub at: usize,
    /// The probability that noise alone shows a change as clear as this one.
    pub p: f64,
    /// The mean of the values from the change before this one on.
    pub before: f64,
    /// The mean of the values up to the next change.
    pub after: f64,
    /// The relative change with its 95 % interval; None where a mean is not positive.
    pub change: Option<Estimate>,
}

/// The fewest values of a history of which any change can be significant at `alpha`: two of all ways to halve it are as
/// clear as a perfect change in the middle.
pub fn fewest(alpha: f64) -> usize {
    let halvings = |n: usize| (1..=n / 2).fold(1.0, |ways, k| ways * (n + 1 - k) as f64 / k as f64);
    (2 * FEWEST..1000).find(|&n| 2.0 / halvings(n) <= alpha).unwrap_or(1000)
}

/// The changes, as parts, that [`visible`] tries.
const CHANGES: [f64; 6] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
/// Histories that [`visible`] makes for each change, and how many of them must show it.
const TRIALS: usize = 50;
const SHOWN: usize = 40;

/// The smallest of some losses, as a part, that a history with this scatter and length shows in four of five cases if
/// it comes in the middle; None if it shows none of them. The scatter is that of the values themselves, drawn with
/// replacement. Deterministic: the seed is fixed.
pub fn visible(values: &[f64], alpha: f64) -> Option<f64> {
    if values.len() < fewest(alpha) {
        return None;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x6a09_e667_f3bc_c908);
    let mut shows = |change: f64| {
        let shown = (0..TRIALS).filter(|_| {
            let drawn = |index: usize| {
                let value = values[(random.next_u64() % values.len() as u64) as usize];
                if index < values.len() / 2 { value } else { value * (1.0 - change) }
            };
            let history: Vec<f64> = (0..values.len()).map(drawn).collect();
            clearest(&history, &mut random).is_some_and(|(_, p)| p <= alpha)
        });
        shown.count() >= SHOWN
    };
    CHANGES.into_iter().find(|&change| shows(change))
}

/// The change points of a history, in order. Deterministic: the seed of the permutations is fixed.
pub fn points(values: &[f64], alpha: f64) -> Vec<ChangePoint> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x9e37_79b9_7f4a_7c15);
    let mut found: Vec<(usize, f64)> = Vec::new();
    let mut parts = vec![(0, values.len())];
    while let Some((from, to)) = parts.pop() {
        if let Some((at, p)) = clearest(&values[from..to], &mut random).filter(|(_, p)| *p <= alpha) {
            found.push((from + at, p));
            parts.extend([(from, from + at), (from + at, to)]);
        }
    }
    found.sort_by_key(|(at, _)| *at);
    let place = |index: usize| match index.checked_sub(1) {
        None => 0,
        Some(index) => found.get(index).map_or(values.len(), |(at, _)| *at),
    };
    let one = |(index, &(at, p)): (usize, &(usize, f64))| {
        let (before, after) = (&values[place(index)..at], &values[at..place(index + 2)]);
        ChangePoint { at, p, before: mean(before), after: mean(after), change: unpaired_change(before, after) }
    };
    found.iter().enumerate().map(one).collect()
}

/// The place of the clearest change of a part, with its significance; None for a part that is too short, or constant.
fn clearest(values: &[f64], random: &mut Xoshiro256PlusPlus) -> Option<(usize, f64)> {
    if values.len() < 2 * FEWEST {
        return None;
    }
    let mut ranks = ranks(values);
    let (at, seen) = statistic(&ranks)?;
    let mut as_clear = 0;
    for _ in 0..PERMUTATIONS {
        // Fisher and Yates.
        for last in (1..ranks.len()).rev() {
            ranks.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
        }
        as_clear += usize::from(statistic(&ranks).is_some_and(|(_, value)| value >= seen - 1e-9));
    }
    Some((at, (as_clear + 1) as f64 / (PERMUTATIONS + 1) as f64))
}

/// Ranks about their mean; equal values share the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count() as f64;
        let equal = values.iter().filter(|other| *other == value).count() as f64;
        below + (equal - 1.0) / 2.0 - middle
    };
    values.iter().map(rank).collect()
}

/// The place at which the mean rank changes most, in standard deviations; None if all ranks are equal.
fn statistic(ranks: &[f64]) -> Option<(usize, f64)> {
    let n = ranks.len();
    let mut sum: f64 = ranks[..FEWEST - 1].iter().sum();
    let mut best = None;
    for at in FEWEST..=n - FEWEST {
        sum += ranks[at - 1];
        let value = sum.abs() / ((at * (n - at)) as f64).sqrt();
        if value > best.map_or(1e-9, |(_, value)| value) {
            best = Some((at, value));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::test_noise::Noise;

    /// `HISTORY_RUNS=10000` runs more histories.
    fn runs() -> u64 {
        std::env::var("HISTORY_RUNS").ok().map_or(200, |runs| runs.parse().expect("a whole number"))
    }

    #[test]
    fn noise_has_no_change_points() {
        let mut alarms = 0;
        for seed in 0..runs() {
            let mut noise = Noise::new(seed);
            let length = 6 + (seed % 35) as usize;
            // Every third history has the tails of a Student's t with two degrees of freedom, every third few values.
            let values: Vec<f64> = (0..length)
                .map(|_| match seed % 3 {
                    0 => 100.0 + noise.normal(),
                    1 => 100.0 + noise.normal() / (-noise.uniform().max(1e-9).ln()).sqrt(),
                    _ => (noise.uniform() * 4.0).floor(),
                })
                .collect();
            alarms += u64::from(!points(&values, 0.05).is_empty());
        }
        // Three standard deviations above the promise.
        let most = 0.05 * runs() as f64 + 3.0 * (0.05 * 0.95 * runs() as f64).sqrt();
        println!("{alarms} of {} histories of noise have a change point; 5 % may", runs());
        assert!(alarms as f64 <= most, "{alarms} of {}", runs());
    }

    #[test]
    fn a_change_is_found_where_it_is() {
        let (mut found, mut right) = (0, 0);
        for seed in 0..runs() {
            let mut noise = Noise::new(seed + 1_000_000);
            let (before, after) = (8 + (seed % 12) as usize, 5 + (seed % 7) as usize);
            let level = |index: usize| if index < before { 100.0 } else { 90.0 };
            let values: Vec<f64> = (0..before + after).map(|index| level(index) + 1.5 * noise.normal()).collect();
            let changes = points(&values, 0.05);
            found += u64::from(!changes.is_empty());
            right += u64::from(changes.iter().any(|change| {
                let holds = change.change.is_some_and(|change| change.low <= -0.1 && -0.1 <= change.high);
                change.at == before && holds
            }));
        }
        println!("{found} of {} changes by 10 % in noise of 1.5 % are found, {right} where they are", runs());
        assert!(found * 100 >= runs() * 97, "{found} of {} found", runs());
        assert!(right * 100 >= runs() * 80, "{right} of {} at the place, with the size", runs());
    }

    #[test]
    fn two_changes_are_two() {
        let values: Vec<f64> =
            (0..36).map(|i| [100.0, 80.0, 110.0][i / 12] + [0.3, -0.2, 0.1, -0.4, 0.2][i % 5]).collect();
        let changes = points(&values, 0.05);
        assert_eq!(changes.iter().map(|change| change.at).collect::<Vec<_>>(), [12, 24], "{changes:?}");
        assert!((changes[1].before - 80.0).abs() < 0.2 && (changes[1].after - 110.0).abs() < 0.2);
    }

    #[test]
    fn longer_and_quieter_histories_show_smaller_changes() {
        let history = |length: usize, scatter: f64| -> Vec<f64> {
            let mut noise = Noise::new(length as u64);
            (0..length).map(|_| 100.0 * (1.0 + scatter * noise.normal())).collect()
        };
        let see = |length: usize, scatter: f64| visible(&history(length, scatter), 0.025);
        assert_eq!(see(6, 0.02), None, "too few");
        assert_eq!(see(10, 0.3), Some(0.5), "10 results with 30 % of noise");
        let (few, many) = (see(10, 0.03).unwrap(), see(40, 0.03).unwrap());
        assert!((0.05..=0.2).contains(&few) && (0.02..=0.05).contains(&many) && many < few, "{few} {many}");
        // The promise itself: four of five such changes are found.
        let found = (0..50).filter(|&seed| {
            let mut noise = Noise::new(seed + 500);
            let level = |index: usize| if index < 20 { 100.0 } else { 100.0 * (1.0 - many) };
            let values: Vec<f64> = (0..40).map(|index| level(index) * (1.0 + 0.03 * noise.normal())).collect();
            !points(&values, 0.025).is_empty()
        });
        assert!(found.count() >= 35);
    }

    #[test]
    fn short_and_constant_histories_have_none() {
        assert!(points(&[], 0.05).is_empty() && points(&[1.0, 1.0, 1.0, 9.0, 9.0], 0.05).is_empty());
        assert!(points(&[7.0; 30], 0.05).is_empty());
    }

    #[test]
    fn one_outlier_is_no_change() {
        let mut values: Vec<f64> = (0..20).map(|i| 100.0 + f64::from((i * 7) % 5)).collect();
        values[11] = 5.0;
        assert!(points(&values, 0.05).is_empty());
    }
}

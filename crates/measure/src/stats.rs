//! Statistics of measured samples: intervals that respect autocorrelation, ratios, steadiness.
//!
//! Samples of a running system are not independent: a slow interval is followed by another. An interval computed as
//! if they were would be too narrow, so means come from batches that are long enough to be independent.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::schema::Estimate;

/// The arithmetic mean; 0 for no samples.
pub fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

/// The sample variance (n - 1 in the denominator); 0 for fewer than two samples.
pub fn variance(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let mean = mean(samples);
    samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (samples.len() - 1) as f64
}

/// The value that Student's t with `freedom` degrees stays below with probability `p`; infinite without freedom.
pub fn t_quantile(p: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(p))
}

/// The probability that Student's t with `freedom` degrees exceeds `t`; 1 without freedom.
pub(crate) fn t_exceeds(t: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |student| student.sf(t))
}

/// Half the width of a 95 % interval around a mean with that standard error.
fn half_width(standard_error: f64, freedom: f64) -> f64 {
    if standard_error == 0.0 { 0.0 } else { standard_error * t_quantile(0.975, freedom) }
}

/// The fraction by which the interval may miss the mean: half width / mean; infinite for a mean of 0 with a width.
pub fn relative_half_width(estimate: &Estimate) -> f64 {
    let half = estimate.high - estimate.mean;
    if half == 0.0 { 0.0 } else { half / estimate.mean.abs() }
}

/// The lag-1 autocorrelation, -1..=1; 0 for constant or too few samples.
pub fn autocorrelation(samples: &[f64]) -> f64 {
    let mean = mean(samples);
    let total: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    if samples.len() < 3 || total == 0.0 {
        return 0.0;
    }
    samples.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>() / total
}

/// Samples put together until neighbouring batches no longer depend on each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Batches {
    /// The mean of each batch.
    pub means: Vec<f64>,
    /// The factor on the standard error for the dependence that the batches still show; 1 if they show none.
    pub inflation: f64,
}

impl Batches {
    /// Fewer batches than this say too little about their own spread.
    const FEWEST: usize = 8;

    /// Batches of consecutive samples, as small as independence allows: sizes double until the lag-1 autocorrelation of
    /// the batch means is below its standard error, in the manner of Law and Carson, "A sequential procedure for
    /// determining the length of a steady-state simulation" (1979). Dependence that is left when eight batches remain
    /// widens the interval as that of a first-order autoregressive process would.
    pub fn of(samples: &[f64]) -> Batches {
        let mut means = samples.to_vec();
        loop {
            let correlation = autocorrelation(&means);
            // The estimate is biased downwards by about 1 / n.
            let corrected = correlation + 1.0 / means.len().max(1) as f64;
            let independent = corrected <= 1.0 / (means.len() as f64).sqrt();
            if independent || means.len() < 2 * Self::FEWEST {
                let left = if independent || means.len() < 4 { 0.0 } else { corrected.clamp(0.0, 0.9) };
                return Batches { means, inflation: ((1.0 + left) / (1.0 - left)).sqrt() };
            }
            // A sample that finds no partner joins the last batch.
            let odd = means.len() % 2;
            let mut halved: Vec<f64> = means.chunks_exact(2).map(mean).collect();
            if odd == 1
                && let Some(last) = halved.last_mut()
            {
                *last = (*last * 2.0 + means[means.len() - 1]) / 3.0;
            }
            means = halved;
        }
    }

    /// The standard error of the mean; 0 for fewer than two batches.
    pub fn standard_error(&self) -> f64 {
        (variance(&self.means) / self.means.len().max(1) as f64).sqrt() * self.inflation
    }

    /// Degrees of freedom: batches - 1.
    pub fn freedom(&self) -> f64 {
        (self.means.len() as f64 - 1.0).max(0.0)
    }
}

/// The mean of rates or times with its 95 % interval. The interval respects autocorrelation and, like rates and times,
/// ends at 0. The interval of a single sample is unknown, and written as the sample itself; see `too-few-samples` in
/// the verdicts.
pub fn estimate(samples: &[f64]) -> Estimate {
    let batches = Batches::of(samples);
    let half = if samples.len() < 2 { 0.0 } else { half_width(batches.standard_error(), batches.freedom()) };
    let mean = mean(samples);
    Estimate { mean, low: (mean - half).max(0.0), high: mean + half }
}

/// b / a - 1 from pairs measured side by side: Student's t interval of the mean log ratio, which misses the truth with
/// the probability `error`. Pairs with a value that is not positive are left out; None if fewer than two are left.
pub fn paired_change(pairs: &[(f64, f64)], error: f64) -> Option<Estimate> {
    let logs: Vec<f64> = pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| (b / a).ln()).collect();
    if logs.len() < 2 {
        return None;
    }
    let half = t_quantile(1.0 - error / 2.0, logs.len() as f64 - 1.0) * (variance(&logs) / logs.len() as f64).sqrt();
    Some(change_of_log(mean(&logs), half))
}

/// b / a - 1 of two means measured apart: Welch's interval on the logarithmic scale. None where either mean is not
/// positive or has fewer than two samples.
pub fn unpaired_change(a: &[f64], b: &[f64]) -> Option<Estimate> {
    let (mean_a, mean_b) = (mean(a), mean(b));
    if a.len() < 2 || b.len() < 2 || mean_a <= 0.0 || mean_b <= 0.0 {
        return None;
    }
    let (batches_a, batches_b) = (Batches::of(a), Batches::of(b));
    let variance_a = (batches_a.standard_error() / mean_a).powi(2);
    let variance_b = (batches_b.standard_error() / mean_b).powi(2);
    let freedom = welch_freedom((variance_a, batches_a.freedom()), (variance_b, batches_b.freedom()));
    Some(change_of_log((mean_b / mean_a).ln(), half_width((variance_a + variance_b).sqrt(), freedom)))
}

fn change_of_log(log: f64, half: f64) -> Estimate {
    Estimate { mean: log.exp_m1(), low: (log - half).exp_m1(), high: (log + half).exp_m1() }
}

/// The degrees of freedom of a difference of two means, each with (squared standard error, its degrees): Welch (1947)
/// and Satterthwaite (1946).
pub fn welch_freedom(a: (f64, f64), b: (f64, f64)) -> f64 {
    let total = a.0 + b.0;
    if total == 0.0 {
        return a.1 + b.1;
    }
    total * total / (a.0 * a.0 / a.1 + b.0 * b.0 / b.1)
}

/// The steadiness of a series of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steadiness {
    /// The rise of a straight line through the samples from the first to the last, as a fraction of their mean.
    pub drift: f64,
    /// True if that rise is more than chance explains, judged by batches.
    pub drift_is_significant: bool,
    /// The number of samples at the start that belong to a warm-up by MSER, at most half of all samples.
    pub warm_up: usize,
    /// The mean after the warm-up over the mean of all samples, minus 1.
    pub warm_up_effect: f64,
    /// True if the samples of the warm-up differ from the others by more than chance explains, judged by batches.
    pub warm_up_is_significant: bool,
    /// The number of samples after the warm-up that belong to stalls: runs of at least two with less than half of the
    /// median.
    pub stalled: usize,
    /// Standard deviation over mean of the samples after the warm-up.
    pub variation: f64,
}

/// Samples below which nothing can be said of steadiness: a warm-up is at most half of them, and a mean needs four.
pub const FEWEST_TO_JUDGE: usize = 8;

/// The steadiness of the samples. Fewer than [`FEWEST_TO_JUDGE`] samples give the default: nothing is known.
pub fn steadiness(samples: &[f64]) -> Steadiness {
    let all = mean(samples);
    if samples.len() < FEWEST_TO_JUDGE || all <= 0.0 {
        return Steadiness::default();
    }
    let warm_up = mser(samples);
    let (first, rest) = samples.split_at(warm_up);
    let stalled = stalls(rest);
    // Stalled samples say nothing of the drift of the others.
    let running: Vec<f64> = rest.iter().zip(&stalled).filter(|(_, stalled)| !**stalled).map(|(x, _)| *x).collect();
    let of_drift = if stalled.contains(&true) { &running[..] } else { samples };
    let (slope, significant) = trend(&Batches::of(&detrended(of_drift)), of_drift);
    let drift = slope * of_drift.len().saturating_sub(1) as f64 / mean(of_drift).max(f64::MIN_POSITIVE);
    Steadiness {
        drift,
        drift_is_significant: significant && of_drift.len() >= FEWEST_TO_JUDGE,
        warm_up,
        warm_up_effect: mean(rest) / all - 1.0,
        warm_up_is_significant: differs(first, rest),
        stalled: stalled.iter().filter(|stalled| **stalled).count(),
        variation: variance(rest).sqrt() / mean(rest).abs().max(f64::MIN_POSITIVE),
    }
}

/// Standard errors between a warm-up and the rest that chance does not explain: the rule that finds the warm-up looks
/// at half of all places to cut, and takes the one that shows most.
const SURE_WARM_UP: f64 = 5.0;

/// True if the samples of `first` differ from those of `rest` by more than chance explains.
fn differs(first: &[f64], rest: &[f64]) -> bool {
    if first.is_empty() || rest.len() < 2 {
        return false;
    }
    let batches = Batches::of(rest);
    // The deviation of one sample, dependence included.
    let deviation = batches.standard_error() * (rest.len() as f64).sqrt();
    let error = deviation * (1.0 / first.len() as f64 + 1.0 / rest.len() as f64).sqrt();
    (mean(first) - mean(rest)).abs() > SURE_WARM_UP * error
}

/// The part of the median that a stall stays below.
const STALLED: f64 = 0.5;
/// Samples that a stall has at least: one alone may be an accident of the clock.
const SHORTEST_STALL: usize = 2;

/// True for each sample that belongs to a stall.
fn stalls(samples: &[f64]) -> Vec<bool> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let below = STALLED * sorted_quantile(&sorted, 0.5);
    let mut out = vec![false; samples.len()];
    let mut from = 0;
    for run in samples.chunk_by(|a, b| (*a < below) == (*b < below)) {
        let to = from + run.len();
        out[from..to].fill(run[0] < below && run.len() >= SHORTEST_STALL);
        from = to;
    }
    out
}

/// Least-squares slope and intercept over the index.
fn line(samples: &[f64]) -> (f64, f64) {
    let middle = (samples.len() as f64 - 1.0) / 2.0;
    let mean = mean(samples);
    let (mut xy, mut xx) = (0.0, 0.0);
    for (index, sample) in samples.iter().enumerate() {
        let x = index as f64 - middle;
        xy += x * (sample - mean);
        xx += x * x;
    }
    let slope = if xx > 0.0 { xy / xx } else { 0.0 };
    (slope, mean - slope * middle)
}

fn detrended(samples: &[f64]) -> Vec<f64> {
    let (slope, start) = line(samples);
    samples.iter().enumerate().map(|(index, sample)| sample - start - slope * index as f64).collect()
}

/// The probability that a steady series seems to drift: each of the dozens of rows of a sweep is judged.
const WRONG_DRIFT: f64 = 0.0003;

/// The slope, and true if it is more than the residuals' batches explain.
fn trend(residuals: &Batches, samples: &[f64]) -> (f64, bool) {
    let (slope, _) = line(samples);
    let n = samples.len() as f64;
    // A mean's standard error times sqrt(n) is the deviation of one sample, dependence included; the slope's error is
    // that over the spread of the index.
    let deviation = residuals.standard_error() * n.sqrt();
    let error = deviation / (n * (n * n - 1.0) / 12.0).sqrt();
    let freedom = (residuals.freedom() - 1.0).max(1.0);
    (slope, slope.abs() > error * t_quantile(1.0 - WRONG_DRIFT / 2.0, freedom))
}

/// The number of samples to leave out at the start so that the standard error of the rest is smallest, at most half:
/// the marginal standard error rule of White, "An effective truncation heuristic for bias reduction" (1997).
pub fn mser(samples: &[f64]) -> usize {
    let n = samples.len();
    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, 0));
    // Relative to the first sample, against cancellation.
    let origin = samples.first().copied().unwrap_or(0.0);
    for start in (0..n).rev() {
        let value = samples[start] - origin;
        sum += value;
        squares += value * value;
        let left = (n - start) as f64;
        let error = (squares - sum * sum / left).max(0.0) / (left * left);
        if start <= n / 2 && n - start >= 4 && error <= best.0 {
            best = (error, start);
        }
    }
    best.1
}

/// The value below which the fraction `q` of sorted values lies, interpolated; 0 for none.
pub fn sorted_quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    // Equal neighbours may both be infinite.
    if below == above { below } else { below + (above - below) * at.fract() }
}

#[cfg(test)]
pub(crate) mod test_noise {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    /// Normal deviates for tests (Box and Muller, 1958).
    pub struct Noise(Xoshiro256PlusPlus);

    impl Noise {
        pub fn new(seed: u64) -> Noise {
            Noise(Xoshiro256PlusPlus::seed_from_u64(seed))
        }

        pub fn uniform(&mut self) -> f64 {
            (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
        }

        pub fn normal(&mut self) -> f64 {
            let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        }

        /// A first-order autoregressive series of unit variance.
        pub fn autoregressive(&mut self, correlation: f64, n: usize) -> Vec<f64> {
            let mut value = self.normal();
            (0..n)
                .map(|_| {
                    value = correlation * value + (1.0 - correlation * correlation).sqrt() * self.normal();
                    value
                })
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::test_noise::Noise;
    use super::*;

    /// The share of trials, in percent, whose interval holds the truth.
    fn coverage(trials: u64, mut one: impl FnMut(&mut Noise) -> (Estimate, f64)) -> f64 {
        let hits = (0..trials)
            .filter(|&seed| {
                let (estimate, truth) = one(&mut Noise::new(seed));
                (estimate.low..=estimate.high).contains(&truth)
            })
            .count();
        100.0 * hits as f64 / trials as f64
    }

    #[test]
    fn t_quantiles_are_those_of_the_tables() {
        for (freedom, quantile) in [(1.0, 12.706), (4.0, 2.776), (9.0, 2.262), (29.0, 2.045), (1e6, 1.960)] {
            assert!((t_quantile(0.975, freedom) - quantile).abs() < 6e-4, "{freedom}");
        }
        assert!(t_quantile(0.975, 0.0).is_infinite());
    }

    #[test]
    fn intervals_of_independent_samples_cover_95_percent_and_no_more_than_needed() {
        let covered = coverage(1000, |noise| {
            let samples: Vec<f64> = (0..30).map(|_| 100.0 + 5.0 * noise.normal()).collect();
            (estimate(&samples), 100.0)
        });
        assert!((92.0..=98.0).contains(&covered), "{covered}");
    }

    #[test]
    fn intervals_of_dependent_samples_cover_too() {
        for correlation in [0.5, 0.8] {
            let covered = coverage(1000, |noise| {
                let samples: Vec<f64> =
                    noise.autoregressive(correlation, 200).iter().map(|x| 100.0 + 5.0 * x).collect();
                (estimate(&samples), 100.0)
            });
            // Intervals that take the samples as independent would cover 74 and 51 percent.
            assert!((89.0..=99.0).contains(&covered), "{correlation}: {covered}");
        }
    }

    #[test]
    fn paired_changes_ignore_the_drift_that_pairs_share() {
        let covered = coverage(500, |noise| {
            let pairs: Vec<_> = (0..8)
                .map(|i| {
                    let drift = 1000.0 * (1.0 + 0.3 * f64::from(i));
                    (drift * (1.0 + 0.01 * noise.normal()), 1.05 * drift * (1.0 + 0.01 * noise.normal()))
                })
                .collect();
            let change = paired_change(&pairs, 0.05).unwrap();
            assert!(change.high - change.low < 0.08);
            (change, 0.05)
        });
        assert!((91.0..=98.5).contains(&covered), "{covered}");
        assert_eq!(paired_change(&[(1.0, 2.0)], 0.05), None);
        assert_eq!(paired_change(&[(0.0, 2.0), (1.0, 1.0)], 0.05), None);
    }

    #[test]
    fn unpaired_changes_cover_with_unequal_spread() {
        let covered = coverage(500, |noise| {
            let a: Vec<f64> = (0..20).map(|_| 100.0 + noise.normal()).collect();
            let b: Vec<f64> = (0..12).map(|_| 90.0 + 8.0 * noise.normal()).collect();
            (unpaired_change(&a, &b).unwrap(), -0.1)
        });
        assert!((91.0..=98.5).contains(&covered), "{covered}");
        assert_eq!(unpaired_change(&[1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn drift_is_told_from_noise() {
        let false_alarms = (0..500)
            .filter(|&seed| {
                let samples: Vec<f64> =
                    Noise::new(seed).autoregressive(0.5, 60).iter().map(|x| 100.0 + 3.0 * x).collect();
                steadiness(&samples).drift_is_significant
            })
            .count();
        assert!(false_alarms < 60, "{false_alarms} of 500");
        let mut noise = Noise::new(1);
        let falling: Vec<f64> = (0..60).map(|i| 100.0 - 0.5 * f64::from(i) + 3.0 * noise.normal()).collect();
        let found = steadiness(&falling);
        assert!(found.drift_is_significant && (-0.45..-0.25).contains(&found.drift), "{found:?}");
    }

    /// A steady storage whose noise has any deviation and dependence, measured for any time.
    #[test]
    fn a_steady_series_has_no_drift_no_warm_up_and_no_stall() {
        let (mut drifts, mut warm_ups, mut stalls) = (0, 0, 0);
        for seed in 0..4000 {
            let mut noise = Noise::new(seed);
            let (n, deviation) = (8 + (seed as usize * 7) % 113, [0.02, 0.05, 0.1, 0.15][seed as usize % 4]);
            let dependence = [0.0, 0.3, 0.6][seed as usize % 3];
            let samples: Vec<f64> =
                noise.autoregressive(dependence, n).iter().map(|x| 100.0 * (1.0 + deviation * x)).collect();
            let found = steadiness(&samples);
            drifts += u32::from(found.drift_is_significant && found.drift.abs() > 0.1);
            warm_ups += u32::from(found.warm_up_is_significant && found.warm_up_effect.abs() > 0.05);
            stalls += u32::from(found.stalled * 20 >= n);
        }
        assert!(drifts <= 20 && warm_ups <= 20 && stalls <= 4, "{drifts}, {warm_ups}, {stalls} of 4000");
    }

    #[test]
    fn stalls_are_found_wherever_they_lie() {
        let mut noise = Noise::new(3);
        let mut of = |stalled: fn(usize) -> bool, level: f64| {
            let samples: Vec<f64> =
                (0..120).map(|i| if stalled(i) { level } else { 100.0 } * (1.0 + 0.05 * noise.normal())).collect();
            steadiness(&samples)
        };
        let each_five_seconds = of(|i| i % 50 >= 40, 0.0);
        assert_eq!((each_five_seconds.stalled, each_five_seconds.warm_up), (20, 0), "{each_five_seconds:?}");
        let at_the_end = of(|i| i >= 110, 10.0);
        assert_eq!(at_the_end.stalled, 10, "{at_the_end:?}");
        assert!(!at_the_end.drift_is_significant || at_the_end.drift.abs() < 0.1, "{at_the_end:?}");
        assert_eq!(of(|i| i == 60, 0.0).stalled, 0, "an accident");
        assert_eq!(of(|_| false, 0.0).stalled, 0);
    }

    #[test]
    fn a_warm_up_is_found_and_a_steady_series_has_none_that_matters() {
        let mut noise = Noise::new(2);
        let warming: Vec<f64> = (0..60).map(|i| if i < 15 { 300.0 } else { 100.0 } + 2.0 * noise.normal()).collect();
        let found = steadiness(&warming);
        assert_eq!(found.warm_up, 15);
        assert!(found.warm_up_effect < -0.3, "{found:?}");
        let steady: Vec<f64> = (0..60).map(|_| 100.0 + 2.0 * noise.normal()).collect();
        assert!(steadiness(&steady).warm_up_effect.abs() < 0.01);
        assert_eq!(steadiness(&[1.0; 5]), Steadiness::default());
        assert_eq!(steadiness(&[0.0; 50]), Steadiness::default());
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(sorted_quantile(&[], 0.5), 0.0);
        assert_eq!(sorted_quantile(&[1.0, 2.0, 4.0], 0.75), 3.0);
        assert_eq!(sorted_quantile(&[1.0, f64::INFINITY, f64::INFINITY], 0.8), f64::INFINITY);
    }
}

//! The one histogram: log-linear, unclipped, mergeable, two nanoseconds per sample.
//!
//! Values below 128 have a bucket each; above, every power of two is cut into 128 buckets, so that a
//! quantile is off by less than 0.4 % of its value, up to the largest `u64` (fio clips at 17.2 s). The
//! bucketing is that of HdrHistogram (G. Tene) with fixed precision. Sums are exact, so the mean is exact.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// log2 of the buckets per power of two.
const PRECISION_BITS: u32 = 7;
const PER_OCTAVE: usize = 1 << PRECISION_BITS;
const BUCKETS: usize = (64 - PRECISION_BITS as usize + 1) * PER_OCTAVE;

/// A distribution of non-negative integers, usually latencies in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    /// The buckets. The list is empty until the first sample: an unused histogram costs nothing. The list of a
    /// histogram that was read ends with its last sample.
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    /// The sum of squares, for the standard deviation.
    sum_of_squares: f64,
    min: u64,
    max: u64,
}

impl PartialEq for Histogram {
    /// Compares the samples, as far as the buckets tell them apart.
    fn eq(&self, other: &Self) -> bool {
        (self.count, self.sum, self.min, self.max) == (other.count, other.sum, other.min, other.max)
            && self.buckets().eq(other.buckets())
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram. Its 58 KiB are allocated by the first sample and touched only where samples fall.
    pub fn new() -> Histogram {
        Histogram { counts: Box::default(), count: 0, sum: 0, sum_of_squares: 0.0, min: u64::MAX, max: 0 }
    }

    /// Counts one sample.
    #[inline]
    pub fn record(&mut self, value: u64) {
        // The bounds check that indexing needs anyway is also the check for the first sample.
        match self.counts.get_mut(bucket_of(value)) {
            Some(bucket) => *bucket += 1,
            None => self.first(value),
        }
        self.count += 1;
        self.sum += u128::from(value);
        self.sum_of_squares += value as f64 * value as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Counts `n` samples of the same value.
    pub fn record_many(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        self.allocate();
        self.counts[bucket_of(value)] += n;
        self.count += n;
        self.sum += u128::from(value) * u128::from(n);
        self.sum_of_squares += value as f64 * value as f64 * n as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Replaces the moments and the ends by those of the original, for a histogram rebuilt from coarser buckets or from
    /// percentiles. Nothing happens to an empty one.
    pub fn set_moments(&mut self, min: u64, max: u64, mean: f64, stddev: f64) {
        if self.count == 0 || !(mean.is_finite() && stddev.is_finite() && mean >= 0.0) {
            return;
        }
        let n = self.count as f64;
        (self.min, self.max) = (min.min(max), max.max(min));
        self.sum = (mean * n).round() as u128;
        self.sum_of_squares = stddev * stddev * (n - 1.0) + n * mean * mean;
    }

    /// True if the buckets tell more than the moments do: false for a histogram rebuilt from a summary without
    /// percentiles.
    pub fn has_shape(&self) -> bool {
        let (Some(first), Some(last)) = (self.buckets().next(), self.buckets().last()) else { return false };
        self.buckets().nth(2).is_some() || (first.0 <= self.min() && self.max <= last.1)
    }

    #[cold]
    fn first(&mut self, value: u64) {
        self.allocate();
        self.counts[bucket_of(value)] += 1;
    }

    fn allocate(&mut self) {
        self.grow(BUCKETS);
    }

    /// Makes room for at least `buckets` buckets.
    fn grow(&mut self, buckets: usize) {
        if self.counts.len() < buckets {
            let mut counts = std::mem::take(&mut self.counts).into_vec();
            counts.resize(buckets, 0);
            self.counts = counts.into_boxed_slice();
        }
    }

    /// Adds all samples of `other`. The result is that of recording both sample sets into one histogram.
    pub fn merge(&mut self, other: &Histogram) {
        let Histogram { counts, count, sum, sum_of_squares, min, max } = other;
        if *count == 0 {
            return;
        }
        self.grow(counts.len());
        for (mine, theirs) in self.counts.iter_mut().zip(counts) {
            *mine += theirs;
        }
        self.count += count;
        self.sum += sum;
        self.sum_of_squares += sum_of_squares;
        self.min = self.min.min(*min);
        self.max = self.max.max(*max);
    }

    /// Forgets all samples.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.sum_of_squares, self.min, self.max) = (0, 0, 0.0, u64::MAX, 0);
    }

    /// The number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// True if the histogram has no sample.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The smallest sample, exact; 0 when empty.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest sample, exact; 0 when empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The sum of all samples, exact.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The arithmetic mean, exact; 0 when empty.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The sample standard deviation; 0 for fewer than two samples.
    pub fn stddev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        ((self.sum_of_squares - n * self.mean() * self.mean()).max(0.0) / (n - 1.0)).sqrt()
    }

    /// The smallest recorded magnitude that at least the fraction `q` (0..=1) of the samples does not exceed:
    /// the middle of its bucket, never outside min..=max. 0 when empty.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (lower, upper, count) in self.buckets() {
            seen += count;
            if seen >= rank {
                return (lower + (upper - lower) / 2).clamp(self.min(), self.max);
            }
        }
        self.max
    }

    /// The buckets that hold samples, ascending: (lowest value, highest value, samples).
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.counts.iter().enumerate().filter(|&(_, &count)| count > 0).map(|(index, &count)| {
            let (lower, upper) = bounds_of(index);
            (lower, upper, count)
        })
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Histogram({} samples, {}..={}, mean {:.1})", self.count, self.min(), self.max, self.mean())
    }
}

#[inline(always)]
fn bucket_of(value: u64) -> usize {
    let octave = (63 - (value | (PER_OCTAVE as u64 - 1)).leading_zeros()) - (PRECISION_BITS - 1);
    // octave 0: exact; octave k: the PRECISION_BITS bits below the leading one.
    if octave == 0 {
        value as usize
    } else {
        (octave as usize) * PER_OCTAVE + ((value >> (octave - 1)) as usize & (PER_OCTAVE - 1))
    }
}

/// The lowest and the highest value of a bucket.
fn bounds_of(index: usize) -> (u64, u64) {
    let octave = index / PER_OCTAVE;
    if octave == 0 {
        return (index as u64, index as u64);
    }
    let lower = ((PER_OCTAVE + index % PER_OCTAVE) as u64) << (octave - 1);
    (lower, lower + ((1u64 << (octave - 1)) - 1))
}

/// The written form of a histogram: exact moments, and the non-empty buckets as [index, count] pairs.
#[derive(Serialize, Deserialize)]
struct Written {
    count: u64,
    min: u64,
    max: u64,
    /// The sum as a decimal string: JSON numbers lose digits beyond 2^53.
    sum: String,
    sum_of_squares: f64,
    buckets: Vec<(u32, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written {
            count: self.count,
            min: self.min(),
            max: self.max,
            sum: self.sum.to_string(),
            sum_of_squares: self.sum_of_squares,
            buckets: self.counts.iter().enumerate().filter(|&(_, &n)| n > 0).map(|(i, &n)| (i as u32, n)).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let mut histogram = Histogram::new();
        let mut count = 0u64;
        // The list has no more room than it needs: results of thousands of hosts are read at once.
        let last = written.buckets.iter().map(|&(index, _)| index as usize).max();
        histogram.grow(last.map_or(0, |last| (last + 1).min(BUCKETS)));
        for (index, n) in written.buckets {
            let bucket = histogram.counts.get_mut(index as usize).ok_or_else(|| D::Error::custom("no such bucket"))?;
            *bucket = n;
            // So few that a few thousand histograms can be merged without overflow.
            count = count
                .checked_add(n)
                .filter(|count| *count <= 1 << 52)
                .ok_or_else(|| D::Error::custom("too many samples"))?;
        }
        if count != written.count || (count > 0 && written.min > written.max) || !written.sum_of_squares.is_finite() {
            return Err(D::Error::custom("the buckets do not add up to the count, or the ends are swapped"));
        }
        histogram.count = count;
        histogram.sum = written.sum.parse().map_err(D::Error::custom)?;
        if histogram.sum > 1 << 120 {
            return Err(D::Error::custom("too large a sum"));
        }
        histogram.sum_of_squares = written.sum_of_squares;
        histogram.min = if count == 0 { u64::MAX } else { written.min };
        histogram.max = written.max;
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_tile_the_range() {
        let mut expected_lower = 0u64;
        for index in 0..BUCKETS {
            let (lower, upper) = bounds_of(index);
            assert_eq!(lower, expected_lower, "bucket {index}");
            assert_eq!((bucket_of(lower), bucket_of(upper)), (index, index));
            assert!(upper - lower <= lower / 128, "bucket {index} is too wide");
            expected_lower = upper.wrapping_add(1);
        }
        assert_eq!(expected_lower, 0, "the last bucket ends at u64::MAX");
    }

    #[test]
    fn quantiles_match_a_sorted_list() {
        let mut random = 88172645463325252u64;
        let mut values: Vec<u64> = (0..10_000)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random >> (random % 50)
            })
            .collect();
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        values.sort_unstable();
        for q in [0.0, 0.01, 0.5, 0.9, 0.99, 0.9999, 1.0] {
            let exact = values[((q * 10_000f64).ceil() as usize).max(1) - 1] as f64;
            let ours = histogram.quantile(q) as f64;
            assert!((ours - exact).abs() <= exact / 250.0 + 1.0, "q {q}: {ours} {exact}");
        }
        let mean = values.iter().map(|&value| value as f64).sum::<f64>() / 1e4;
        assert!((histogram.mean() - mean).abs() / mean < 1e-9);
    }

    #[test]
    fn merging_equals_recording_together_and_survives_json() {
        let (mut one, mut two, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
        for value in (0..5_000u64).map(|i| i * i * 97) {
            if value % 3 == 0 {
                one.record(value)
            } else {
                two.record(value)
            }
            both.record(value);
        }
        one.merge(&two);
        one.merge(&Histogram::new());
        assert_eq!((one.count(), one.sum(), one.min(), one.max()), (both.count(), both.sum(), both.min(), both.max()));
        assert!(one.buckets().eq(both.buckets()));
        let mut read: Histogram = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
        assert_eq!(read, one);
        // A histogram that was read has just the room that it needs, and gets more when more samples come.
        let mut twice = Histogram::new();
        twice.record(1);
        twice.merge(&read);
        read.record(u64::MAX);
        assert_eq!((twice.count(), read.count(), read.max()), (one.count() + 1, one.count() + 1, u64::MAX));
        assert!(
            serde_json::from_str::<Histogram>(
                r#"{"count":1,"min":0,"max":0,"sum":"0","sum_of_squares":0,"buckets":[]}"#
            )
            .is_err()
        );
    }

    #[test]
    fn many_at_once_equal_one_by_one_and_moments_can_be_restored() {
        let (mut one, mut many) = (Histogram::new(), Histogram::new());
        (0..1000).for_each(|_| one.record(777));
        many.record_many(777, 1000);
        many.record_many(5, 0);
        assert_eq!(one, many);
        many.set_moments(700, 800, 750.5, 12.25);
        assert_eq!((many.min(), many.max(), many.mean()), (700, 800, 750.5));
        assert!((many.stddev() - 12.25).abs() < 1e-6, "{}", many.stddev());
        assert!(one.has_shape() && !many.has_shape() && !Histogram::new().has_shape());
    }

    #[test]
    fn an_hour_is_not_clipped() {
        let mut histogram = Histogram::new();
        histogram.record(3_600_000_000_000);
        assert_eq!(histogram.quantile(0.99), 3_600_000_000_000);
        assert_eq!(Histogram::new().quantile(0.5), 0);
    }
}

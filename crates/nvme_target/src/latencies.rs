//! A histogram of latencies in the layout that SPDK's `bdev_get_histogram` has (include/spdk/histogram_data.h), so that
//! its scripts read it.

/// Each power of two has 2^7 buckets: SPDK's default granularity.
pub const GRANULARITY: u32 = 7;
const BUCKETS_PER_RANGE: usize = 1 << GRANULARITY;
const RANGES: usize = 64 - GRANULARITY as usize + 1;

/// Counts of ops by their latency in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    counts: Box<[u64]>,
    sum_ns: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: vec![0; RANGES * BUCKETS_PER_RANGE].into(), sum_ns: 0 }
    }
}

impl Latencies {
    /// Counts one op of that latency in nanoseconds.
    pub fn count(&mut self, ns: u64) {
        self.counts[index(ns)] += 1;
        self.sum_ns += ns;
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Latencies) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(to, from)| *to += from);
        self.sum_ns += other.sum_ns;
    }

    /// The sum of the latencies in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The number of ops.
    pub fn count_of_all(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The number of ops with a latency below 2^`bits` nanoseconds, for bits above [`GRANULARITY`].
    pub fn count_below(&self, bits: u32) -> u64 {
        self.counts[..(bits - GRANULARITY + 1) as usize * BUCKETS_PER_RANGE].iter().sum()
    }

    /// The counts as SPDK sends them: numbers of 64 bits, little-endian, bucket by bucket.
    pub fn bytes(&self) -> Vec<u8> {
        self.counts.iter().flat_map(|count| count.to_le_bytes()).collect()
    }
}

/// Counts of commands by the power of two of nanoseconds that their latency is below. They are small, because there are
/// as many of them as hosts that ever connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Octaves([u64; 32]);

impl Octaves {
    /// Latencies below 2^10 ns, 1,024 ns, share the first count.
    const FIRST: u32 = 10;

    /// Counts one command of that latency in nanoseconds.
    #[inline]
    pub fn count(&mut self, ns: u64) {
        let bits = (64 - ns.leading_zeros()).saturating_sub(Octaves::FIRST);
        self.0[(bits as usize).min(self.0.len() - 1)] += 1;
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Octaves) {
        self.0.iter_mut().zip(&other.0).for_each(|(to, from)| *to += from);
    }

    /// The number of commands.
    pub fn count_of_all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The number of commands with a latency below 2^`bits` nanoseconds, for 10 to 40 bits.
    pub fn count_below(&self, bits: u32) -> u64 {
        self.0[..=(bits - Octaves::FIRST) as usize].iter().sum()
    }
}

/// Below 2^7 a nanosecond has a bucket; above, the 7 bits after the highest one choose a bucket of its range.
fn index(ns: u64) -> usize {
    let bits = 64 - ns.leading_zeros();
    let range = bits.saturating_sub(GRANULARITY) as usize;
    let shift = range.saturating_sub(1);
    range * BUCKETS_PER_RANGE + ((ns >> shift) as usize & (BUCKETS_PER_RANGE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_the_order_of_latencies_and_none_is_beyond_the_table() {
        let mut last = 0;
        for ns in (0..1000).chain((10..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + (1 << (bit - 2))])) {
            assert!(index(ns) >= last && index(ns) < RANGES * BUCKETS_PER_RANGE, "{ns}");
            last = index(ns);
        }
        assert_eq!(index(u64::MAX), RANGES * BUCKETS_PER_RANGE - 1);
        // As spdk_histogram_get_bucket_range and _index count: 128 is the first of the second range.
        assert_eq!((index(127), index(128), index(255), index(256)), (127, 128, 255, 256));
        let mut both = Latencies::default();
        both.count(5);
        both.add(&both.clone());
        assert_eq!(both.bytes()[5 * 8..6 * 8], 2u64.to_le_bytes());
    }

    #[test]
    fn octaves_count_as_the_fine_histogram_does() {
        let (mut fine, mut octaves) = (Latencies::default(), Octaves::default());
        for ns in (0..60).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]) {
            fine.count(ns);
            octaves.count(ns);
        }
        octaves.add(&octaves.clone());
        assert_eq!(octaves.count_of_all(), 2 * fine.count_of_all());
        for bits in 10..=40 {
            assert_eq!(octaves.count_below(bits), 2 * fine.count_below(bits), "{bits}");
        }
    }

    #[test]
    fn powers_of_two_bound_what_is_below_them() {
        let mut latencies = Latencies::default();
        [0, 1023, 1024, 2047, 2048, 1 << 33].into_iter().for_each(|ns| latencies.count(ns));
        let below: Vec<u64> = [8, 10, 11, 12, 33, 34].map(|bits| latencies.count_below(bits)).into();
        assert_eq!(below, [1, 2, 4, 5, 5, 6]);
        assert_eq!((latencies.count_of_all(), latencies.sum_ns()), (6, 1023 + 1024 + 2047 + 2048 + (1 << 33)));
    }
}

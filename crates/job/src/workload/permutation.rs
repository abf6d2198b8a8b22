//! Every number below a bound exactly once, in random order, without remembering any.
//!
//! A counter runs through a power of two that is at least the bound; a keyed bijection of that many bits scatters
//! it; results beyond the bound are skipped (fewer than half). Multiplying by an odd number, adding, and xoring with
//! a right shift are each a bijection of k bits, so their composition is one. Constant memory and time, where a map
//! of what is done needs a bit a block and searches ever longer for the last free ones, which it then takes in runs.

use super::random::Random;

/// A random order of 0..count.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    add: [u64; 3],
    multiply: [u64; 3],
    /// The next input; beyond `mask` when all are used.
    counter: u64,
}

impl Permutation {
    /// An order of 0..`count` that `random` chooses.
    pub fn new(count: u64, random: &mut Random) -> Permutation {
        let bits = if count < 2 { 0 } else { 64 - (count - 1).leading_zeros() };
        let mask = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
        Permutation {
            count,
            mask,
            shift: bits.div_ceil(2).max(1),
            add: std::array::from_fn(|_| random.next()),
            multiply: std::array::from_fn(|_| random.next() | 1),
            counter: 0,
        }
    }

    /// The bijection of 0..=mask.
    #[inline(always)]
    fn scatter(&self, input: u64) -> u64 {
        let mut x = input;
        for round in 0..3 {
            x = x.wrapping_add(self.add[round]).wrapping_mul(self.multiply[round]) & self.mask;
            x ^= x >> self.shift;
        }
        x
    }

    /// The next number of the order; None when each has come once.
    #[inline(always)]
    #[allow(clippy::should_implement_trait, reason = "inlined into the op stream, used beside the others")]
    pub fn next(&mut self) -> Option<u64> {
        while self.counter <= self.mask {
            let number = self.scatter(self.counter);
            // At the very top the counter would wrap: a bound beyond 2^63 blocks does not exist.
            self.counter += 1;
            if number < self.count {
                return Some(number);
            }
        }
        None
    }

    /// The place of `index` (below the count): the same bijection as a table, whose cycle is followed back into range.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        let mut x = self.scatter(index);
        while x >= self.count {
            x = self.scatter(x);
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_once() {
        let mut random = Random::new(1);
        for count in (0..70).chain([127, 128, 129, 1000, 1023, 1024, 1025, 65_537, 100_000]) {
            let mut order = Permutation::new(count, &mut random);
            let mut seen = vec![false; count as usize];
            while let Some(number) = order.next() {
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} of {count} twice");
            }
            assert!(seen.iter().all(|&seen| seen), "of {count} some never came");
            let mut at: Vec<u64> = (0..count).map(|index| order.at(index)).collect();
            at.sort_unstable();
            assert!(at.into_iter().eq(0..count));
        }
    }

    /// Orders look random: first places uniform over keys, steps uniform within an order, halves of it unrelated to
    /// place. 99.9 % bounds of chi-square with fixed seeds.
    #[test]
    fn orders_are_unbiased() {
        let mut random = Random::new(2);
        let cells = 64usize;
        for count in [65u64, 100, 257, 1000, 4096, 65_536, 1_000_003, 268_435_456] {
            let (mut first, mut steps, mut early) = (vec![0u64; cells], vec![0u64; cells], vec![0u64; cells]);
            let orders = if count > 10_000 { 40 } else { 4000 };
            for _ in 0..orders {
                let mut order = Permutation::new(count, &mut random);
                let mut last = order.next().unwrap();
                first[(last * cells as u64 / count) as usize] += 1;
                for _ in 0..(count / 4).min(4000) {
                    let number = order.next().unwrap();
                    let step = (number + count - last - 1) % count;
                    steps[(step * cells as u64 / (count - 1)) as usize] += 1;
                    early[(number * cells as u64 / count) as usize] += 1;
                    last = number;
                }
            }
            for (name, counts, count) in [("first", first, count), ("step", steps, count - 1), ("early", early, count)]
            {
                let total: u64 = counts.iter().sum();
                let expected: Vec<f64> = (0..cells as u64)
                    .map(|cell| {
                        let numbers =
                            ((cell + 1) * count).div_ceil(cells as u64) - (cell * count).div_ceil(cells as u64);
                        total as f64 * numbers as f64 / count as f64
                    })
                    .collect();
                let chi: f64 = counts.iter().zip(&expected).map(|(&n, e)| (n as f64 - e).powi(2) / e).sum();
                // 63 degrees of freedom: 99.9 % lie below 103.4.
                assert!(chi < 103.4, "{name} of {count}: chi-square {chi:.1}");
            }
        }
    }
}

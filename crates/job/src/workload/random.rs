//! The generator behind everything random: xoshiro256++, seeded by SplitMix64.
//!
//! Written out here, and not a dependency, because recorded workloads must stay the same forever: a seed in a job
//! file is a promise, and the generator is 15 lines. Source: Blackman and Vigna, "Scrambled linear pseudorandom
//! number generators", ACM TOMS 47(4), 2021; reference code in the public domain.

/// A stream of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: [u64; 4],
}

/// One step of SplitMix64: a good 64-bit hash, and the way from one seed to many.
#[inline]
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The seed of the clone with this number in its plan (0..), from the job's `randseed`: the root of all its streams.
///
/// Clones and jobs of a plan get unrelated streams: two jobs on one file must not ask for the same blocks in the same
/// order. As with fio (which multiplies the seed by the number of the thread), the name of a job does not count: a run
/// reads back the blocks that another one wrote, whatever their jobs are called.
pub fn clone_seed(seed: u64, number: u32) -> u64 {
    mix(mix(seed) ^ u64::from(number))
}

impl Random {
    /// The stream of that seed. Any seed is a good one.
    pub fn new(seed: u64) -> Random {
        let mut seed = seed;
        let state = std::array::from_fn(|_| {
            let word = mix(seed);
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            word
        });
        Random { state }
    }

    /// 64 random bits.
    #[inline(always)]
    #[allow(clippy::should_implement_trait, reason = "an endless stream, not an iterator")]
    pub fn next(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0);
        let s2 = s2 ^ s0;
        let s3 = s3 ^ s1;
        self.state = [s0 ^ s3, s1 ^ s2, s2 ^ (s1 << 17), s3.rotate_left(45)];
        result
    }

    /// A number in 0..`bound`; 0 if the bound is 0.
    ///
    /// Lemire's multiplication without his rejection: the bias is below bound / 2^64, far less than any run can see.
    #[inline(always)]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in 0..1 with 53 bits.
    #[inline(always)]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_sequence() {
        // SplitMix64 of seed 1234567, from the reference code's documentation.
        let mut seed = 1234567u64;
        let words = [
            6457827717110365317u64,
            3203168211198807973,
            9817491932198370423,
            4593380528125082431,
            16408922859458223821,
        ];
        for word in words {
            assert_eq!(mix(seed), word);
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        // xoshiro256++ from state 1, 2, 3, 4: the known answers that the rand crates test with.
        let mut random = Random { state: [1, 2, 3, 4] };
        let words =
            [41943041u64, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205, 9973669472204895162];
        for word in words {
            assert_eq!(random.next(), word);
        }
    }

    #[test]
    fn clones_have_streams_of_their_own() {
        let mut seeds: Vec<u64> = (0..1000).flat_map(|clone| [clone_seed(1, clone), clone_seed(2, clone)]).collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 2000);
        assert_eq!(clone_seed(1, 7), clone_seed(1, 7));
    }
}

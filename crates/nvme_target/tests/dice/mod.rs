//! Random choices from a seed, for tests that send a target anything.
#![allow(dead_code)] // each test file uses its part

use std::ops::Range;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

pub struct Dice(pub Xoshiro256PlusPlus);

impl Dice {
    pub fn of(seed: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

/// The seeds of a run: `usual` of them, or as the environment asks (`PLIMSOLL_FUZZ_SEED`, `PLIMSOLL_FUZZ_SEEDS`).
pub fn seeds(usual: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    match (number("PLIMSOLL_FUZZ_SEED"), number("PLIMSOLL_FUZZ_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, many) => (0..many.unwrap_or(usual)).collect(),
    }
}

//! A map of the blocks of a file that have been used in this pass: a bit each, with summaries that find the next free
//! block.
//!
//! Level 0 has a bit a block; a bit of level n+1 says that a whole word of level n is full. Finding a free block
//! climbs until a word has room and descends into it: at most two words a level, whatever is used.

/// Blocks 0..count, each free or used.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// Bits beyond the end of a level are set: never free.
    levels: Vec<Vec<u64>>,
    count: u64,
}

impl Coverage {
    /// All of `count` blocks free; None if there is no memory for it (a bit a block, and a sixty-third more).
    pub fn new(count: u64) -> Option<Coverage> {
        let mut levels = Vec::new();
        let mut bits = count;
        loop {
            let words = usize::try_from(bits.div_ceil(64)).ok()?;
            let mut level: Vec<u64> = Vec::new();
            level.try_reserve_exact(words).ok()?;
            level.resize(words, 0);
            levels.push(level);
            if words <= 1 {
                break;
            }
            bits = words as u64;
        }
        let mut coverage = Coverage { levels, count };
        coverage.clear();
        Some(coverage)
    }

    /// Makes all blocks free again.
    pub fn clear(&mut self) {
        let mut bits = self.count;
        for level in &mut self.levels {
            level.fill(0);
            if let Some(last) = level.last_mut()
                && !bits.is_multiple_of(64)
            {
                *last = u64::MAX << (bits % 64);
            }
            bits = level.len() as u64;
        }
    }

    /// The first free block at `from` or after it, else the first free one of all; None when all are used.
    #[inline]
    pub fn free_from(&self, from: u64) -> Option<u64> {
        let word = *self.levels[0].get((from / 64) as usize)?;
        if word >> (from % 64) & 1 == 0 {
            return Some(from);
        }
        self.search(from).or_else(|| self.search(0))
    }

    fn search(&self, from: u64) -> Option<u64> {
        let mut at = from;
        for height in 0..self.levels.len() {
            let index = (at / 64) as usize;
            let word = *self.levels[height].get(index)?;
            let free = !word & (u64::MAX << (at % 64));
            if free != 0 {
                let mut found = index as u64 * 64 + u64::from(free.trailing_zeros());
                for below in (0..height).rev() {
                    let word = !self.levels[below][found as usize];
                    found = found * 64 + u64::from(word.trailing_zeros());
                }
                return Some(found);
            }
            at = index as u64 + 1;
        }
        None
    }

    /// Uses the free blocks from `block` on, at most `most`, and says how many there were before the next used one.
    #[inline]
    pub fn take(&mut self, block: u64, most: u64) -> u64 {
        let mut taken = 0;
        while taken < most {
            let at = block + taken;
            if at >= self.count {
                break;
            }
            let word = &mut self.levels[0][(at / 64) as usize];
            let shift = at % 64;
            let room = u64::from((*word >> shift).trailing_zeros()).min(64 - shift).min(most - taken);
            if room == 0 {
                break;
            }
            *word |= (u64::MAX >> (64 - room)) << shift;
            if *word == u64::MAX {
                self.summarise(at / 64);
            }
            taken += room;
        }
        taken
    }

    #[cold]
    fn summarise(&mut self, full: u64) {
        let mut index = full;
        for level in &mut self.levels[1..] {
            let word = &mut level[(index / 64) as usize];
            *word |= 1 << (index % 64);
            if *word != u64::MAX {
                break;
            }
            index /= 64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use crate::workload::random::Random;

    #[test]
    fn agrees_with_a_set() {
        let mut random = Random::new(3);
        for count in [1u64, 2, 63, 64, 65, 4095, 4096, 4097, 10_000, 300_000] {
            let mut coverage = Coverage::new(count).unwrap();
            for _pass in 0..2 {
                let mut free: BTreeSet<u64> = (0..count).collect();
                while !free.is_empty() {
                    let from = random.below(count);
                    let found = coverage.free_from(from).expect("a block is free");
                    let expected = free.range(from..).next().or_else(|| free.iter().next()).copied().unwrap();
                    assert_eq!(found, expected);
                    let most = 1 + random.below(200);
                    let run = (found..found + most).take_while(|block| free.contains(block)).count() as u64;
                    assert_eq!(coverage.take(found, most), run);
                    for block in found..found + run {
                        free.remove(&block);
                    }
                }
                assert_eq!(coverage.free_from(random.below(count)), None);
                coverage.clear();
            }
        }
    }
}

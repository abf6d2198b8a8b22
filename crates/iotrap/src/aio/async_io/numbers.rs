//! Numbers that threads take and give back: places in a table. The code is lock-free, and usable in signal handlers.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The numbers from 0 to `N` - 1, of which none is taken at first. All zeros is a valid value.
pub struct Numbers<const N: usize> {
    /// The number that was given back last, plus one, in the lower half; a count of all changes in the upper half, so
    /// that a thread notices when others have taken and given back the same number.
    head: AtomicU64,
    /// The number, plus one, that was given back before each number (0 if none): a linked list of free numbers.
    below: [AtomicU32; N],
    /// Numbers from here on have never been taken.
    fresh: AtomicU32,
}

impl<const N: usize> Numbers<N> {
    /// Takes a free number; None if all are taken. `limit` numbers are used at most.
    pub fn take(&self, limit: usize) -> Option<u32> {
        let mut head = self.head.load(Acquire);
        while head as u32 != 0 {
            let number = head as u32 - 1;
            let below = self.below.get(number as usize)?.load(Acquire);
            let next = (head >> 32).wrapping_add(1) << 32 | u64::from(below);
            match self.head.compare_exchange_weak(head, next, AcqRel, Acquire) {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
        let fits = |fresh: u32| ((fresh as usize) < N.min(limit)).then(|| fresh + 1);
        self.fresh.fetch_update(AcqRel, Acquire, fits).ok()
    }

    /// Makes a number free that was taken.
    pub fn give_back(&self, number: u32) {
        let Some(below) = self.below.get(number as usize) else { return };
        let mut head = self.head.load(Acquire);
        loop {
            below.store(head as u32, Relaxed);
            let next = (head >> 32).wrapping_add(1) << 32 | u64::from(number + 1);
            match self.head.compare_exchange_weak(head, next, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// The end of the used part: no number from here on was ever taken.
    pub fn used(&self) -> u32 {
        self.fresh.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn numbers() -> Numbers<64> {
        let below = [const { AtomicU32::new(0) }; 64];
        Numbers { head: AtomicU64::new(0), below, fresh: AtomicU32::new(0) }
    }

    #[test]
    fn every_number_is_taken_once_and_again_after_it_was_given_back() {
        let numbers = numbers();
        let all: HashSet<u32> = (0..64).map(|_| numbers.take(64).unwrap()).collect();
        assert_eq!(all.len(), 64);
        assert_eq!(numbers.take(64), None);
        numbers.give_back(7);
        numbers.give_back(9);
        assert_eq!(numbers.take(64), Some(9), "the one that was given back last");
        assert_eq!(numbers.take(64), Some(7));
        assert_eq!(numbers.take(64), None);
    }

    #[test]
    fn a_limit_is_kept() {
        let numbers = numbers();
        assert_eq!((0..10).filter_map(|_| numbers.take(3)).count(), 3);
    }

    #[test]
    fn no_two_threads_have_one_number() {
        let (numbers, held) = (numbers(), [const { AtomicU32::new(0) }; 64]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(number) = numbers.take(64) else { continue };
                        assert_eq!(held[number as usize].fetch_add(1, AcqRel), 0);
                        held[number as usize].fetch_sub(1, AcqRel);
                        numbers.give_back(number);
                    }
                });
            }
        });
        assert!(numbers.used() <= 4, "as many as were taken at a time");
    }
}

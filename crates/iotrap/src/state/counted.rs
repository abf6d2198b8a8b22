//! Reference counts of things that live in static tables, with generations: a holder of an old name notices that the
//! place has been given to another thing. The code is lock-free, and usable in signal handlers.
//!
//! ```text
//! free (0) ──claim──► 1 ──publish by whoever claimed──► n ──last release──► ENDING ──free──► free, next generation
//! ```

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};

/// The count of references while the last holder cleans up, or the first one fills the place in: nobody else gets a
/// reference.
const BUSY: u32 = u32::MAX;

/// A reference count with a generation: the generation in the upper half, the number of references in the lower.
pub struct Count(AtomicU64);

fn join(generation: u32, references: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(references)
}

fn split(state: u64) -> (u32, u32) {
    ((state >> 32) as u32, state as u32)
}

impl Count {
    /// The count of a place that nobody uses.
    pub const fn free() -> Count {
        Count(AtomicU64::new(0))
    }

    /// Takes a free place and returns its new generation. The place is the caller's alone until [`Count::publish`].
    pub fn claim(&self) -> Option<u32> {
        let state = self.0.load(Acquire);
        let (generation, references) = split(state);
        let next = generation.wrapping_add(1);
        (references == 0 && self.0.compare_exchange(state, join(next, BUSY), AcqRel, Acquire).is_ok()).then_some(next)
    }

    /// Lets others in: the caller holds the first reference. Of two threads that each publish a place and then look at
    /// the other's, at least one sees the other (SeqCst, as in [`Count::acquire_any`]). The same holds for a thread
    /// that publishes and then looks at a flag, and one that sets the flag and then looks at the places.
    pub fn publish(&self, generation: u32) {
        self.0.store(join(generation, 1), SeqCst);
    }

    /// True while the last holder cleans up, or the first one fills the place in.
    pub fn is_busy(&self) -> bool {
        split(self.0.load(SeqCst)).1 == BUSY
    }

    /// Takes one more reference, if the place is still of this generation; false if not.
    #[inline]
    pub fn acquire(&self, generation: u32) -> bool {
        let mut state = self.0.load(Acquire);
        loop {
            let (found, references) = split(state);
            if found != generation || references == 0 || references >= BUSY - 1 {
                return false;
            }
            match self.0.compare_exchange_weak(state, state + 1, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// Takes one more reference of any generation, and returns the generation. None while the place is free, filled in
    /// or cleaned up.
    pub fn acquire_any(&self) -> Option<u32> {
        let (generation, references) = split(self.0.load(SeqCst));
        (references != 0 && self.acquire(generation)).then_some(generation)
    }

    /// Gives a reference back. True if it was the last: the caller cleans up and then calls [`Count::reset`].
    #[inline]
    #[must_use]
    pub fn release(&self) -> bool {
        let mut state = self.0.load(Acquire);
        loop {
            let (generation, references) = split(state);
            let next = if references == 1 { join(generation, BUSY) } else { state - 1 };
            match self.0.compare_exchange_weak(state, next, AcqRel, Acquire) {
                Ok(_) => return references == 1,
                Err(now) => state = now,
            }
        }
    }

    /// Frees the place, after [`Count::release`] has returned true, or in a forked child, where no other thread is.
    pub fn reset(&self) {
        let (generation, _) = split(self.0.load(Acquire));
        self.0.store(join(generation, 0), Release);
    }

    /// True if others than the caller hold a reference.
    pub fn is_shared(&self) -> bool {
        split(self.0.load(Acquire)).1 > 1
    }

    /// True if anybody holds a reference, or fills the place in or cleans it up.
    pub fn in_use(&self) -> bool {
        split(self.0.load(Acquire)).1 != 0
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;

    #[test]
    fn a_place_given_to_somebody_else_is_noticed() {
        let count = Count::free();
        assert_eq!(count.acquire_any(), None, "free");
        let first = count.claim().unwrap();
        assert!(!count.acquire(first), "not before it is published");
        assert_eq!(count.claim(), None);
        count.publish(first);
        assert!(count.acquire(first));
        assert!(!count.release());
        assert!(count.release(), "the last one");
        assert!(!count.acquire(first), "being cleaned up");
        assert_eq!(count.claim(), None);
        count.reset();
        let second = count.claim().unwrap();
        count.publish(second);
        assert!(!count.acquire(first), "another generation");
        assert_eq!(count.acquire_any(), Some(second));
    }

    /// Two nodes of one file, made at the same moment, would each be spread by itself.
    #[test]
    fn of_two_that_publish_at_the_same_moment_one_sees_the_other() {
        let (counts, seen) = ([Count::free(), Count::free()], AtomicUsize::new(0));
        let (arrived, over, in_vain) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
        let meet = |meeting: usize| {
            arrived.fetch_add(1, SeqCst);
            (0..).take_while(|_| arrived.load(SeqCst) < 2 * meeting).for_each(|turn: u32| match turn % 256 {
                255 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            });
        };
        let publish_and_look = |own: usize| {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
            for round in 0.. {
                let generation = counts[own].claim().unwrap();
                meet(3 * round + 1);
                counts[own].publish(generation);
                if counts[1 - own].acquire_any().is_some() {
                    seen.fetch_add(1, SeqCst);
                    let _ = counts[1 - own].release();
                }
                meet(3 * round + 2);
                if own == 0 {
                    in_vain.fetch_add(usize::from(seen.swap(0, SeqCst) == 0), SeqCst);
                    over.store(std::time::Instant::now() > until, SeqCst);
                }
                counts[own].reset();
                meet(3 * round + 3);
                if over.load(SeqCst) {
                    break;
                }
            }
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| publish_and_look(1));
            publish_and_look(0);
            other.join().unwrap();
        });
        assert_eq!(in_vain.into_inner(), 0, "rounds in which both looked in vain");
    }

    #[test]
    fn only_one_releases_last() {
        let count = Count::free();
        for _ in 0..1000 {
            let generation = count.claim().unwrap();
            count.publish(generation);
            let lasts: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| scope.spawn(|| if count.acquire(generation) { usize::from(count.release()) } else { 0 }))
                    .collect();
                let own = usize::from(count.release());
                own + threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            });
            assert_eq!(lasts, 1);
            count.reset();
        }
    }
}

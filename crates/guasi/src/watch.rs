//! A thread that finds nothing to do looks again for as long as that costs less than a sleep.
//!
//! A worker that waits for a request and a fetcher that waits for a result answer each other: while both are awake, a
//! call costs less than a wake-up. One thread of a kind looks at a time; the others sleep at once. The thread that
//! drives the ring looks for what the kernel has finished in the same way.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, TryLockError};

use pace::{Lookout, Poll, Step};
use sys::clock::monotonic_ns;

/// The cost of a sleep and its end in nanoseconds, before the first wake-ups tell: programs that link the library would
/// not expect the threads and the milliseconds of a measurement.
const SLEEP_NS: u64 = 10_000;

/// The waits of one kind of threads. Threads share it.
pub(crate) struct Watch {
    lookout: Mutex<Lookout>,
    /// True from a look in vain to the next arrival.
    waits: AtomicBool,
    /// When a thread of this kind was woken that has not noted it yet; 0 if none was.
    woken_ns: AtomicU64,
}

impl Watch {
    pub fn new(poll: Poll) -> Watch {
        Watch {
            lookout: Mutex::new(Lookout::new(poll, SLEEP_NS)),
            waits: AtomicBool::new(false),
            woken_ns: AtomicU64::new(0),
        }
    }

    /// True if a thread that has found nothing looks, and does not sleep at once.
    pub fn looks(&self) -> bool {
        let Some(mut lookout) = self.begin() else { return false };
        let looks = lookout.found_nothing(monotonic_ns()) != Step::Sleep;
        self.waits.store(lookout.is_waiting(), Relaxed);
        looks
    }

    /// Looks until something `came`, or a sleep costs less.
    pub fn look(&self, mut came: impl FnMut() -> bool) {
        let Some(mut lookout) = self.begin() else { return };
        while !came() {
            match lookout.found_nothing(monotonic_ns()) {
                Step::Look => (0..4).for_each(|_| std::hint::spin_loop()),
                Step::Yield => {
                    std::thread::yield_now();
                    lookout.has_yielded(monotonic_ns());
                }
                Step::Sleep => break,
            }
        }
        self.waits.store(lookout.is_waiting(), Relaxed);
    }

    /// The lookout of a thread that has found nothing; None if another thread looks.
    fn begin(&self) -> Option<MutexGuard<'_, Lookout>> {
        let lookout = self.try_lock()?;
        if !lookout.is_waiting() {
            // A wake-up before this wait does not end it.
            self.woken_ns.store(0, Relaxed);
        }
        Some(lookout)
    }

    /// The lookout; None if another thread has it.
    fn try_lock(&self) -> Option<MutexGuard<'_, Lookout>> {
        match self.lookout.try_lock() {
            Ok(lookout) => Some(lookout),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A thread of this kind is about to be woken.
    pub fn wakes(&self) {
        self.woken_ns.store(monotonic_ns(), Relaxed);
    }

    /// Something has come that a thread may have waited for.
    pub fn saw(&self) {
        // Without a wait this costs one look at a flag that nobody changes.
        if self.waits.load(Relaxed)
            && let Some(mut lookout) = self.try_lock()
        {
            let now_ns = monotonic_ns();
            let woken_ns = self.woken_ns.swap(0, Relaxed);
            if woken_ns > 0 {
                lookout.has_woken(now_ns.saturating_sub(woken_ns));
            }
            lookout.found(now_ns);
            self.waits.store(false, Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A thread that has looked in vain does not look again before something has come.
    #[test]
    fn a_wait_is_one_time_of_looking() {
        let watch = Watch::new(Poll::Adaptive);
        assert!(watch.looks());
        let mut looks = 0;
        watch.look(|| {
            looks += 1;
            false
        });
        assert!(looks > 1);
        assert!(!watch.looks(), "still the same wait");
        watch.look(|| {
            looks = 0;
            false
        });
        assert_eq!(looks, 0, "at least one look");
        assert!(watch.lookout.lock().unwrap().is_waiting());
        watch.saw();
        assert!(!watch.lookout.lock().unwrap().is_waiting(), "the next wait is another one");
    }

    #[test]
    fn looking_ends_with_what_comes() {
        let watch = Watch::new(Poll::Adaptive);
        let mut looks = 0;
        watch.look(|| {
            looks += 1;
            true
        });
        assert_eq!(looks, 1);
        assert!(Watch::new(Poll::Adaptive).looks() && !Watch::new(Poll::Never).looks());
    }

    /// The one that comes second sleeps at once.
    #[test]
    fn one_thread_of_a_kind_looks_at_a_time() {
        let watch = Watch::new(Poll::Adaptive);
        let (looks, is_looking) = mpsc::channel();
        let (ends, may_end) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                watch.look(move || {
                    looks.send(()).unwrap();
                    may_end.recv().unwrap();
                    true
                });
            });
            is_looking.recv().unwrap();
            assert!(!watch.looks());
            watch.look(|| panic!("two look"));
            ends.send(()).unwrap();
        });
        assert!(watch.looks());
    }

    /// The price of a sleep follows the time from the wake-up to the arrival. An arrival without a wake-up, or without
    /// a wait, tells nothing.
    #[test]
    fn a_wake_up_tells_the_price_once() {
        let price = |watch: &Watch| {
            let lookout = format!("{:?}", watch.lookout.lock().unwrap());
            lookout.split_once("sleep_ns: ").unwrap().1.split_once(',').unwrap().0.to_owned()
        };
        let watch = Watch::new(Poll::Adaptive);
        let at_first = price(&watch);
        watch.wakes();
        watch.saw();
        watch.look(|| false);
        watch.saw();
        assert_eq!(price(&watch), at_first, "nobody waited when the wake-up came");
        watch.look(|| false);
        watch.wakes();
        watch.saw();
        let learned = price(&watch);
        assert_ne!(learned, at_first);
        watch.look(|| false);
        watch.saw();
        assert_eq!(price(&watch), learned, "no wake-up");
    }
}

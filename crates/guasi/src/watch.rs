//! A thread that finds nothing to do looks again for as long as that costs less than a sleep.
//!
//! A worker that waits for a request and a fetcher that waits for a result answer each other: while both are awake, a
//! call costs less than a wake-up. One thread of a kind looks at a time; the others sleep at once.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, TryLockError};

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
    pub fn new() -> Watch {
        Watch {
            lookout: Mutex::new(Lookout::new(Poll::Adaptive, SLEEP_NS)),
            waits: AtomicBool::new(false),
            woken_ns: AtomicU64::new(0),
        }
    }

    /// Looks until something `came`, or a sleep costs less.
    pub fn look(&self, came: impl Fn() -> bool) {
        let mut lookout = match self.lookout.try_lock() {
            Ok(lookout) => lookout,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
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

    /// A thread of this kind is about to be woken.
    pub fn wakes(&self) {
        self.woken_ns.store(monotonic_ns(), Relaxed);
    }

    /// Something has come that a thread may have waited for.
    pub fn saw(&self) {
        // Without a wait this costs one look at a flag that nobody changes.
        if self.waits.load(Relaxed)
            && let Ok(mut lookout) = self.lookout.try_lock()
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

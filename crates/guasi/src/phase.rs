//! The phase of a worker: a signal hits the call that it is meant for, and no later one.
//!
//! **A held worker**: while the word says SIGNALLING, one other thread looks at the worker's current request and may
//! signal the worker. The worker waits until that thread lets go. So the request stays valid, and the thread exists.
//! Every change of the word that another thread might make at the same time is an exchange: a thread that has looked at
//! the word and then stores into it would overwrite the change between the two.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, pause};

const BETWEEN: u32 = 0;
const IN_CALL: u32 = 1;
const SIGNALLING: u32 = 2;
const SIGNALLED: u32 = 3;

/// The phase of one worker, and its current call. `T` is the request.
pub(crate) struct Phase<T> {
    word: AtomicU32,
    current: AtomicPtr<T>,
}

impl<T> Phase<T> {
    /// The phase of a worker that is in no call.
    pub fn new() -> Phase<T> {
        Phase { word: AtomicU32::new(BETWEEN), current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Begins a call, which other threads may break off from now on. Only the worker calls this, between two calls.
    pub fn enter(&self, request: *mut T) {
        self.current.store(request, Relaxed);
        // Nobody else changes BETWEEN. Release: a thread that sees IN_CALL sees the request.
        self.word.store(IN_CALL, Release);
    }

    /// Ends the call: from here on no signal for it is sent. True if one was: the worker swallows it before it goes on.
    /// Only the worker calls this.
    pub fn leave(&self) -> bool {
        loop {
            let phase = self.word.load(SeqCst);
            if phase != SIGNALLING && self.word.compare_exchange(phase, BETWEEN, SeqCst, Relaxed).is_ok() {
                return phase == SIGNALLED;
            }
            pause();
        }
    }

    /// Signals the worker by `signal` if it is in a call that `wanted` wants to break off; true if it was. Both run
    /// while the worker is held. One thread calls this at a time.
    pub fn interrupt(&self, wanted: impl Fn(*mut T) -> bool, signal: impl FnOnce()) -> bool {
        let phase = loop {
            let phase = self.word.load(SeqCst);
            match phase {
                BETWEEN | SIGNALLING => return false,
                _ if self.word.compare_exchange(phase, SIGNALLING, SeqCst, Relaxed).is_ok() => break phase,
                // The worker has left that call. It may be in the next one, which may be wanted too.
                _ => pause(),
            }
        };
        let wanted = wanted(self.current.load(Acquire));
        if wanted {
            signal();
        }
        // The worker waits for this store and makes none itself; other threads do not touch a held worker.
        self.word.store(if wanted { SIGNALLED } else { phase }, SeqCst);
        wanted
    }
}

/// The wish to break calls off. It outlasts a signal that arrives just before its call blocks: such a signal is lost,
/// and the call needs another one.
#[derive(Default)]
pub(crate) struct Wish(AtomicBool);

impl Wish {
    /// Notes that a call is to be broken off. The caller has marked the request before.
    pub fn note(&self) {
        // An exchange, not a store: whoever takes the wish sees what every thread did before it noted one.
        self.0.swap(true, SeqCst);
    }

    /// True if there may be a call to break off.
    pub fn is_noted(&self) -> bool {
        self.0.load(SeqCst)
    }

    /// Lets `interrupt_all` signal the workers whose calls are to be broken off, if a wish was noted. Returns true, and
    /// keeps the wish, if `interrupt_all` found such a worker.
    pub fn pursue(&self, interrupt_all: impl FnOnce() -> bool) -> bool {
        // The flag is taken first: a wish that is noted after this stays.
        let found = self.0.swap(false, SeqCst) && interrupt_all();
        if found {
            self.note();
        }
        found
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_signal_goes_to_a_wanted_call_only() {
        let (phase, mut request) = (Phase::new(), 7);
        let signalled = |wanted: i32| {
            let mut sent = false;
            // SAFETY: the request lives as long as the test.
            let found = phase.interrupt(|request| unsafe { *request } == wanted, || sent = true);
            assert_eq!(found, sent);
            sent
        };
        assert!(!signalled(7), "between two calls");
        phase.enter(&raw mut request);
        assert!(!signalled(8), "another call is wanted");
        assert!(!phase.leave(), "nothing to swallow");
        phase.enter(&raw mut request);
        assert!(signalled(7) && signalled(7) && !signalled(8));
        assert!(phase.leave(), "a signal to swallow, though the last look sent none");
        assert!(!signalled(7), "the call has ended");
    }

    #[test]
    fn a_wish_lasts_until_nobody_is_found() {
        let wish = Wish::default();
        assert!(!wish.pursue(|| panic!("nothing was noted")));
        wish.note();
        assert!(wish.pursue(|| true) && wish.is_noted());
        assert!(!wish.pursue(|| false) && !wish.is_noted());
        wish.note();
        assert!(!wish.pursue(|| {
            wish.note();
            false
        }));
        assert!(wish.is_noted(), "noted while the workers were looked at");
    }
}

#[cfg(all(test, loom))]
mod models {
    //! Every interleaving of a worker that goes from call to call and of the threads that break calls off. A request is
    //! a cell that the worker writes between its calls: loom fails where another thread looks at it then.
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Mutex};
    use loom::thread;
    use std::cell::Cell;

    /// A request: true once it is to be broken off. The worker owns it between the calls.
    struct Call {
        wanted: AtomicBool,
        owned: UnsafeCell<bool>,
    }

    struct Everything {
        phase: Phase<Call>,
        wish: Wish,
        calls: [Call; 2],
        /// Signals that have reached the worker and that it has not taken, a count for each call.
        pending: [AtomicU32; 2],
        /// The lock of the roster: one thread interrupts at a time.
        roster: Mutex<()>,
    }

    fn everything(wanted: [bool; 2]) -> Arc<Everything> {
        let call = |wanted| Call { wanted: AtomicBool::new(wanted), owned: UnsafeCell::new(true) };
        Arc::new(Everything {
            phase: Phase::new(),
            wish: Wish(AtomicBool::new(wanted != [false; 2])),
            calls: wanted.map(call),
            pending: [0, 0].map(AtomicU32::new),
            roster: Mutex::new(()),
        })
    }

    impl Everything {
        fn enter(&self, number: usize) {
            self.calls[number].owned.with_mut(|owned| {
                // SAFETY: between two calls the request is the worker's alone: loom sees to that.
                unsafe { *owned = false }
            });
            self.phase.enter(ptr::from_ref(&self.calls[number]).cast_mut());
        }

        /// Leaves the call, takes the request back, and takes the signals as the kernel delivers them.
        fn leave(&self, number: usize) {
            if self.phase.leave() {
                self.pending[number].swap(0, SeqCst);
            }
            self.calls[number].owned.with_mut(|owned| {
                // SAFETY: between two calls the request is the worker's alone: loom sees to that.
                unsafe { *owned = true }
            });
            for pending in &self.pending {
                assert_eq!(pending.load(SeqCst), 0, "a signal that a later call would receive");
            }
        }

        fn interrupt_wanted(&self) -> bool {
            let _roster = self.roster.lock().unwrap();
            let hit = Cell::new(usize::MAX);
            let wanted = |request: *mut Call| {
                assert!(!request.is_null(), "a held worker without a call");
                // SAFETY: the worker is held, so its request is valid.
                let call = unsafe { &*request };
                call.owned.with(|owned| {
                    // SAFETY: the worker is held, so nobody writes the request.
                    assert!(!unsafe { *owned }, "the call has ended");
                });
                hit.set(usize::from(ptr::eq(call, &self.calls[1])));
                call.wanted.load(SeqCst)
            };
            self.phase.interrupt(wanted, || {
                self.pending[hit.get()].fetch_add(1, SeqCst);
            })
        }
    }

    fn model(f: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(5);
        builder.check(f);
    }

    /// Two looks at a worker that goes through two calls; the first call is to be broken off.
    #[test]
    fn a_worker_that_leaves_a_call_while_it_is_signalled_twice() {
        model(|| {
            let all = everything([true, false]);
            let theirs = all.clone();
            let worker = thread::spawn(move || {
                for number in [0, 1] {
                    theirs.enter(number);
                    theirs.leave(number);
                }
            });
            all.interrupt_wanted();
            all.interrupt_wanted();
            worker.join().unwrap();
            assert!(!all.interrupt_wanted(), "no call is left");
        });
    }

    /// A thread that cancels and the overseer both look at a worker that leaves its call.
    #[test]
    fn a_canceller_and_the_overseer_at_one_worker() {
        model(|| {
            let all = everything([true, true]);
            let (worker_side, overseer_side) = (all.clone(), all.clone());
            let worker = thread::spawn(move || {
                for number in [0, 1] {
                    worker_side.enter(number);
                    worker_side.leave(number);
                }
            });
            let overseer = thread::spawn(move || {
                overseer_side.wish.pursue(|| overseer_side.interrupt_wanted());
            });
            all.interrupt_wanted();
            overseer.join().unwrap();
            worker.join().unwrap();
        });
    }

    /// A signal that arrives before the call blocks is lost. So the wish stays as long as the worker is in the call.
    #[test]
    fn a_wish_stays_while_its_call_blocks() {
        model(|| {
            let all = everything([true, false]);
            let (worker_side, overseer_side) = (all.clone(), all.clone());
            let worker = thread::spawn(move || {
                worker_side.enter(0);
                worker_side.leave(0);
                worker_side.enter(1);
                // As Pool::cancel does it, once the call is active.
                worker_side.calls[1].wanted.store(true, SeqCst);
                worker_side.wish.note();
            });
            let overseer = thread::spawn(move || {
                overseer_side.wish.pursue(|| overseer_side.interrupt_wanted());
                overseer_side.wish.pursue(|| overseer_side.interrupt_wanted());
            });
            overseer.join().unwrap();
            worker.join().unwrap();
            let again = all.wish.pursue(|| all.interrupt_wanted());
            assert!(again, "the overseer would not signal the second call again");
        });
    }
}

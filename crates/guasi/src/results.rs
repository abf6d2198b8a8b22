//! Finished requests on their way to the program, and the threads that wait for them.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use pace::Poll;

use crate::list::Lists;
use crate::request::Request;
use crate::sync::{AtomicUsize, Condvar, Mutex, lock, wait};
use crate::watch::Watch;

/// The finished requests of a context, and the threads that wait for them.
pub(crate) struct Results {
    state: Mutex<State>,
    arrived: Condvar,
    /// The number of results, for a look without the lock.
    count: AtomicUsize,
    /// Decides how long a fetcher looks at the counter before it sleeps.
    lookout: Watch,
}

struct State {
    finished: Lists,
    /// The number of threads that wait for results.
    waiting: usize,
    /// The smallest number of results that one of the sleeping fetchers waits for.
    wanted: usize,
    /// The fetchers that sleep on a semaphore of their own.
    sleepers: Vec<Sleeper>,
}

/// A fetcher of the C ABI. It sleeps in sem_wait(3), which is a cancellation point, with no lock held.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "c-abi"), allow(dead_code, reason = "fetchers in C alone sleep so"))]
struct Sleeper {
    semaphore: *mut libc::sem_t,
    /// The number of results that the fetcher waits for; `usize::MAX` once it has been woken.
    wanted: usize,
}

// SAFETY: whoever enlists a semaphore promises that it outlives its place in the list ([`Results::take_or_enlist`]).
// Any thread may call sem_post(3).
unsafe impl Send for Sleeper {}

impl Results {
    pub fn new(priorities: usize, poll: Poll) -> Results {
        Results {
            state: Mutex::new(State {
                finished: Lists::new(priorities),
                waiting: 0,
                wanted: usize::MAX,
                sleepers: Vec::new(),
            }),
            arrived: Condvar::new(),
            count: AtomicUsize::new(0),
            lookout: Watch::new(poll),
        }
    }

    /// Results that can be taken at this moment.
    pub fn len(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// Adds finished requests and wakes fetchers that have enough now.
    ///
    /// # Safety
    /// Each request is valid, in no list, and finished or cancelled.
    pub unsafe fn add(&self, requests: impl Iterator<Item = *mut Request>) {
        let mut state = lock(&self.state);
        for request in requests {
            // SAFETY: by the contract of this function the request is valid and in no list.
            unsafe { state.finished.push(request) };
        }
        let count = state.finished.len();
        self.count.store(count, SeqCst);
        let wake = state.waiting > 0 && count >= state.wanted;
        if wake {
            self.lookout.wakes();
        }
        for sleeper in state.sleepers.iter_mut().filter(|sleeper| count >= sleeper.wanted) {
            self.lookout.wakes();
            sleeper.wanted = usize::MAX;
            // SAFETY: the semaphore is valid while it is in the list, which this thread has locked.
            unsafe { libc::sem_post(sleeper.semaphore) };
        }
        drop(state);
        if wake {
            self.arrived.notify_all();
        }
    }

    /// Passes up to `max` results to `take`, the most urgent first, and returns how many it passed.
    pub fn take(&self, max: usize, mut take: impl FnMut(*mut Request)) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let mut state = lock(&self.state);
        self.take_locked(&mut state, max, &mut take)
    }

    fn take_locked(&self, state: &mut State, max: usize, take: &mut impl FnMut(*mut Request)) -> usize {
        let mut taken = 0;
        while taken < max {
            let Some(request) = state.finished.pop() else { break };
            take(request);
            taken += 1;
        }
        self.count.store(state.finished.len(), SeqCst);
        if taken > 0 {
            self.lookout.saw();
        }
        taken
    }

    /// Passes up to `max` results to `take` if `min` are there, and returns how many it passed. Otherwise enlists the
    /// semaphore, which is posted as soon as `min` results are there, and returns None.
    ///
    /// # Safety
    /// The semaphore is valid until a later call with it returns Some, or [`Results::leave`] is called with it.
    #[cfg_attr(not(feature = "c-abi"), allow(dead_code, reason = "fetchers in C alone sleep so"))]
    pub unsafe fn take_or_enlist(
        &self,
        min: usize,
        max: usize,
        semaphore: *mut libc::sem_t,
        mut take: impl FnMut(*mut Request),
    ) -> Option<usize> {
        self.look_out(min, None);
        let mut state = lock(&self.state);
        let place = state.sleepers.iter().position(|sleeper| sleeper.semaphore == semaphore);
        if state.finished.len() >= min {
            if let Some(place) = place {
                state.sleepers.swap_remove(place);
            }
            return Some(self.take_locked(&mut state, max, &mut take));
        }
        let sleeper = Sleeper { semaphore, wanted: min };
        match place {
            Some(place) => state.sleepers[place] = sleeper,
            None => state.sleepers.push(sleeper),
        }
        None
    }

    /// Removes a semaphore from the list: nobody posts it any more.
    #[cfg_attr(not(feature = "c-abi"), allow(dead_code, reason = "fetchers in C alone sleep so"))]
    pub fn leave(&self, semaphore: *mut libc::sem_t) {
        lock(&self.state).sleepers.retain(|sleeper| sleeper.semaphore != semaphore);
    }

    /// Waits until `min` results are there, or the limit is over, and passes up to `max` of them to `take`. Returns how
    /// many it passed.
    pub fn wait_and_take(
        &self,
        min: usize,
        max: usize,
        limit: Option<Duration>,
        mut take: impl FnMut(*mut Request),
    ) -> usize {
        let deadline = limit.map(|limit| Instant::now() + limit);
        if !cfg!(loom) && limit != Some(Duration::ZERO) {
            self.look_out(min, deadline);
        }
        let mut state = lock(&self.state);
        while state.finished.len() < min {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            state.waiting += 1;
            state.wanted = state.wanted.min(min);
            state = wait(&self.arrived, state, left);
            state.waiting -= 1;
            // The fetchers that still sleep may want more than the one that just left: any number may be enough for
            // them.
            state.wanted = if state.waiting == 0 { usize::MAX } else { 1 };
        }
        self.take_locked(&mut state, max, &mut take)
    }

    /// A fetcher that sleeps elsewhere, in the ring, is about to be woken.
    pub fn wakes(&self) {
        self.lookout.wakes();
    }

    /// Looks for `min` results until the deadline, as long as that costs less than a sleep.
    pub fn look_out(&self, min: usize, deadline: Option<Instant>) {
        self.lookout.look(|| self.len() >= min || deadline.is_some_and(|deadline| Instant::now() >= deadline));
    }
}

//! Workers that carry out functions, and calls that the ring cannot carry out.
//!
//! Three parties add workers: a submit that finds no worker running; submits and workers that leave a backlog behind,
//! now and then; and the overseer. The overseer is a thread that exists only while there is a backlog or a call to
//! break off, for the case that every worker is blocked and nobody submits.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use pace::Poll;
use sys::clock::monotonic_ns;

use crate::core::Core;
use crate::phase::{Phase, Wish};
use crate::request::{Request, Status};
use crate::sizing::{FRESH_NS, Load, Sizing};
use crate::watch::Watch;
use crate::work::{Next, Sleeper, State, Work};
use crate::{handover, interrupt};

/// A worker that found nothing to do for this long ends, unless it is one of the minimum.
const IDLE: Duration = Duration::from_secs(1);
/// Submits and workers consider adding a worker no more often than this.
const CONSIDER_NS: u64 = 25_000;
/// Workers that come back for the next call within this time on average keep up.
const SHORT_CALL_NS: u64 = 1_000;
/// The overseer's pace while workers are being added, and the slowest while requests wait.
const TICK: Duration = Duration::from_micros(100);
const SLOW_TICK: Duration = Duration::from_millis(2);
/// The pace at which a call that should end is interrupted again: a signal that arrives just before the call blocks is
/// lost.
const INTERRUPT_TICK: Duration = Duration::from_millis(1);
/// The overseer ends when it has had nothing to oversee for this long.
const OVERSEER_IDLE: Duration = Duration::from_secs(1);

type Worker = Sleeper<Facts>;

/// The facts about a worker that others know.
pub(crate) struct Facts {
    /// When the current function began; 0 between functions.
    started_ns: AtomicU64,
    phase: Phase<Request>,
    thread: AtomicU64,
    handle: Mutex<Option<JoinHandle<()>>>,
}

/// The workers of a context, their queue, and the overseer.
pub(crate) struct Pool {
    work: Work<Facts>,
    /// Decides how long the one worker that looks for work does so before it sleeps.
    watch: Watch,
    roster: Mutex<Roster>,
    gone: Condvar,
    min: usize,
    stack_bytes: usize,
    limit: AtomicUsize,
    considered_ns: AtomicU64,
    /// Calls begun at the time `considered_ns`.
    considered_begun: AtomicU64,
    peak: AtomicUsize,
    /// The recent mean time of a call, in nanoseconds.
    usual_ns: AtomicU64,
    overseer: Mutex<Overseer>,
    overseer_called: Condvar,
    /// True while the overseer is absent, or will not look for a while.
    overseer_away: AtomicBool,
    interrupting: Wish,
}

struct Roster {
    workers: Vec<Arc<Worker>>,
    /// Workers that have ended, and have to be joined.
    ended: Vec<Arc<Worker>>,
    sizing: Sizing,
}

#[derive(Default)]
struct Overseer {
    handle: Option<JoinHandle<()>>,
    running: bool,
    called: bool,
}

/// Workers to wake and to make: decided under the lock, carried out outside of it.
#[derive(Default)]
struct Growth {
    wake: Vec<Arc<Worker>>,
    make: usize,
}

/// The threads and requests of the pool at this moment.
pub(crate) struct Census {
    pub threads: usize,
    pub idle: usize,
    pub peak: usize,
    pub queued: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Pool {
    /// A pool without threads yet; `max` 0 means no limit.
    pub fn new(priorities: usize, min: usize, max: usize, poll: Poll) -> Pool {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let sizing = Sizing::new(cpus, min, max);
        Pool {
            work: Work::new(priorities),
            watch: Watch::new(poll),
            limit: AtomicUsize::new(sizing.limit()),
            roster: Mutex::new(Roster { workers: Vec::new(), ended: Vec::new(), sizing }),
            gone: Condvar::new(),
            min,
            stack_bytes: default_stack_bytes(),
            considered_ns: AtomicU64::new(0),
            considered_begun: AtomicU64::new(0),
            peak: AtomicUsize::new(0),
            usual_ns: AtomicU64::new(0),
            overseer: Mutex::default(),
            overseer_called: Condvar::new(),
            overseer_away: AtomicBool::new(true),
            interrupting: Wish::default(),
        }
    }

    /// Hands a request to the workers.
    ///
    /// # Errors
    /// EAGAIN when the pool has no worker and cannot start one: the request stays the caller's.
    ///
    /// # Safety
    /// The request is valid, pending and in no list; `core` is the one that this pool is part of.
    pub unsafe fn submit(&self, core: &Arc<Core>, request: *mut Request) -> Result<(), i32> {
        let mut state = self.work.lock();
        // SAFETY: by the contract of this function the request is valid, pending and in no list.
        unsafe { self.work.push(&mut state, request) };
        let growth = self.consider(&mut state, 1, false);
        let alone = state.backlog() > 1 && growth.is_empty();
        drop(state);
        if alone {
            self.call_overseer(core);
        }
        match self.grow(core, growth) {
            Ok(()) => Ok(()),
            Err(_) => self.nobody_can_run(core, request),
        }
    }

    /// Deals with the queue after a worker could not be made: without any worker the queued requests would never run,
    /// so they end with EAGAIN. For the request `own`, which was not taken, the caller gets EAGAIN.
    fn nobody_can_run(&self, core: &Arc<Core>, own: *mut Request) -> Result<(), i32> {
        let mut state = self.work.lock();
        if state.running > 0 || state.idle() > 0 {
            return Ok(());
        }
        let stranded = self.work.drain(&mut state);
        drop(state);
        let mut answer = Ok(());
        for request in stranded {
            if request == own {
                answer = Err(libc::EAGAIN);
            } else {
                // SAFETY: the request was drained, so it is valid, and this function is its one owner.
                unsafe { (*request).set_status(Status::Active) };
                core.end(request, crate::request::Outcome::failed(libc::EAGAIN));
            }
        }
        answer
    }

    /// Decides which workers to add. Unless `thorough`, it does so no more often than every CONSIDER_NS, and not while
    /// a worker is looking for work.
    fn consider(&self, state: &mut State<Facts>, most: usize, thorough: bool) -> Growth {
        let mut growth = Growth::default();
        let backlog = state.backlog();
        if backlog == 0 || state.closing {
            return growth;
        }
        // Calls that block take no processor from each other: each gets a parked worker at once. So calls that wait for
        // the same commit of a file system begin together, and wait for one commit.
        let unseen = backlog > usize::from(state.spinning);
        if !thorough
            && unseen
            && self.usual_ns.load(Relaxed) > FRESH_NS
            && state.running < self.limit.load(Relaxed)
            && let Some(worker) = state.take_idle()
        {
            growth.wake.push(worker);
            return growth;
        }
        if state.spinning && !thorough {
            return growth;
        }
        let mut load = Load { now_ns: 0, backlog, running: state.running, fresh: 0, begun: state.begun };
        let mut roster;
        if state.running == 0 {
            roster = locked(&self.roster);
        } else {
            load.now_ns = monotonic_ns();
            if !thorough && load.now_ns.saturating_sub(self.considered_ns.load(Relaxed)) < CONSIDER_NS {
                return growth;
            }
            let since_ns = load.now_ns - self.considered_ns.swap(load.now_ns, Relaxed);
            let begun = load.begun - self.considered_begun.swap(load.begun, Relaxed);
            // Calls this short cost less than passing them to one worker more: the lock would be all that the new
            // worker works on.
            if begun * SHORT_CALL_NS > since_ns * load.running as u64 {
                load.fresh = usize::MAX;
            }
            roster = locked(&self.roster);
            let blocked = roster.workers.iter().filter(|worker| worker.about.is_blocked(load.now_ns)).count();
            load.fresh = load.fresh.max(load.running.saturating_sub(blocked));
        }
        if thorough {
            roster.sizing.adjust(load);
            self.limit.store(roster.sizing.limit(), Relaxed);
        }
        let more = roster.sizing.more(load).min(most);
        drop(roster);
        for _ in 0..more {
            match state.take_idle() {
                Some(worker) => growth.wake.push(worker),
                None => {
                    state.running += 1;
                    growth.make += 1;
                }
            }
        }
        growth
    }

    fn grow(&self, core: &Arc<Core>, growth: Growth) -> io::Result<()> {
        for worker in growth.wake {
            self.watch.wakes();
            worker.wake();
        }
        let mut answer = Ok(());
        for _ in 0..growth.make {
            if let Err(error) = self.make_worker(core) {
                self.work.lock().running -= 1;
                answer = Err(error);
            }
        }
        answer
    }

    fn make_worker(&self, core: &Arc<Core>) -> io::Result<()> {
        let worker = Sleeper::new(Facts::new());
        interrupt::signal(); // chosen before the mask of the first worker is set
        let mut roster = locked(&self.roster);
        roster.workers.push(Arc::clone(&worker));
        let ended = std::mem::take(&mut roster.ended);
        self.peak.fetch_max(roster.workers.len(), Relaxed);
        drop(roster);
        ended.iter().for_each(|worker| worker.about.join());

        let mut handle = locked(&worker.about.handle);
        let (their_core, their_worker) = (Arc::clone(core), Arc::clone(&worker));
        let builder = std::thread::Builder::new().name("guasi".into()).stack_size(self.stack_bytes);
        match builder.spawn(move || their_core.pool.work_as(&their_core, &their_worker)) {
            Ok(thread) => {
                *handle = Some(thread);
                Ok(())
            }
            Err(error) => {
                locked(&self.roster).workers.retain(|other| !Arc::ptr_eq(other, &worker));
                self.gone.notify_all();
                Err(error)
            }
        }
    }

    /// The life of a worker.
    fn work_as(&self, core: &Arc<Core>, me: &Arc<Worker>) {
        interrupt::shield(true);
        // SAFETY: pthread_self is always valid for the calling thread.
        me.about.thread.store(unsafe { libc::pthread_self() }, Release);
        let look = |came: &dyn Fn() -> bool| self.watch.look(came);
        let over_limit = |state: &State<Facts>| state.running > self.limit.load(Relaxed);
        let may_end = |state: &mut State<Facts>| state.running + state.idle() > self.min;
        let begin = |_: &mut State<Facts>, request: *mut Request| me.about.phase.enter(request);
        while let Next::Run(request) = self.work.next(me, Some(IDLE), look, over_limit, may_end, begin) {
            self.watch.saw();
            let now_ns = monotonic_ns();
            me.about.started_ns.store(now_ns, Relaxed);
            if self.work.backlog() > 0 {
                self.hand_on(core, now_ns);
            }
            handover::acquired(request.cast());
            // SAFETY: this worker is the one owner of the request until it ends the request.
            let it = unsafe { &*request };
            // SAFETY: this worker is the one owner of the request, and so of its call, until it ends the request.
            let call = unsafe { &mut *it.call.get() };
            let private = it.private;
            // SAFETY: by the submitter's promise the pointers of the call are valid.
            let outcome = unsafe { call.block(private) };
            me.about.leave_call();
            self.has_taken(monotonic_ns() - now_ns);
            // SAFETY: the submitter's promise holds, and the call has ended.
            unsafe { call.clean_up_on_worker(private) };
            core.end(request, outcome);
        }
        let mut roster = locked(&self.roster);
        roster.workers.retain(|other| !Arc::ptr_eq(other, me));
        roster.ended.push(Arc::clone(me));
        drop(roster);
        self.gone.notify_all();
    }

    /// Notes the time of a call. Times that tell nothing new are not written: workers share the place.
    fn has_taken(&self, took_ns: u64) {
        let usual_ns = self.usual_ns.load(Relaxed);
        if took_ns.max(usual_ns) >= SHORT_CALL_NS {
            self.usual_ns.store(usual_ns - usual_ns / 8 + took_ns / 8, Relaxed);
        }
    }

    /// Sees to it that another worker takes the requests that this worker leaves behind.
    fn hand_on(&self, core: &Arc<Core>, now_ns: u64) {
        if now_ns.saturating_sub(self.considered_ns.load(Relaxed)) >= CONSIDER_NS {
            let growth = self.consider(&mut self.work.lock(), 1, false);
            let _ = self.grow(core, growth); // this worker runs: the queue is not stranded
        }
        self.call_overseer(core);
    }

    /// Cancels a request; true if it had not begun. An active request is broken off, as soon and as often as needed.
    ///
    /// # Safety
    /// The request is valid and was submitted to this pool.
    pub unsafe fn cancel(&self, core: &Arc<Core>, request: *mut Request) -> bool {
        // SAFETY: by the contract of this function the request is valid and was submitted here.
        if unsafe { self.work.cancel(request) } {
            return true;
        }
        // SAFETY: by the contract of this function the request is valid.
        if unsafe { (*request).status() } == Status::Active {
            // SAFETY: by the contract of this function the request is valid.
            unsafe { (*request).cancel_wanted.store(true, SeqCst) };
            self.interrupting.note();
            self.interrupt_wanted();
            self.call_overseer(core);
        }
        false
    }

    /// Signals every worker whose call is to be broken off; true if there was one.
    fn interrupt_wanted(&self) -> bool {
        let roster = locked(&self.roster);
        let mut any = false;
        for worker in &roster.workers {
            any |= worker.about.interrupt_if(|request| {
                // SAFETY: the worker is held in its call ([`Phase`]), so its request is valid.
                unsafe { (*request).cancel_wanted.load(SeqCst) }
            });
        }
        any
    }

    /// Makes sure that the overseer looks soon.
    fn call_overseer(&self, core: &Arc<Core>) {
        if !self.overseer_away.load(SeqCst) {
            return;
        }
        let mut overseer = locked(&self.overseer);
        self.overseer_away.store(false, SeqCst);
        overseer.called = true;
        if overseer.running {
            drop(overseer);
            self.overseer_called.notify_one();
            return;
        }
        if let Some(ended) = overseer.handle.take() {
            let _ = ended.join();
        }
        let theirs = Arc::clone(core);
        let builder = std::thread::Builder::new().name("guasi-overseer".into()).stack_size(128 << 10);
        match builder.spawn(move || theirs.pool.oversee(&theirs)) {
            Ok(handle) => {
                overseer.handle = Some(handle);
                overseer.running = true;
            }
            // Without the overseer the pool still grows with every submit; the next call tries again.
            Err(_) => self.overseer_away.store(true, SeqCst),
        }
    }

    /// The life of the overseer.
    fn oversee(&self, core: &Arc<Core>) {
        interrupt::shield(false);
        sys::clock::precise_timers();
        let mut tick = TICK;
        let mut quiet = Duration::ZERO;
        loop {
            let mut state = self.work.lock();
            if state.closing {
                return;
            }
            let growth = self.consider(&mut state, usize::MAX, true);
            let backlog = state.backlog();
            drop(state);
            let grew = !growth.is_empty();
            let _ = self.grow(core, growth); // no thread to be had: the next tick tries again
            let interrupting = self.interrupting.pursue(|| self.interrupt_wanted());
            quiet = if backlog > 0 || interrupting { Duration::ZERO } else { quiet + tick };
            tick = match (grew, interrupting) {
                (true, _) => TICK,
                (false, true) => INTERRUPT_TICK,
                (false, false) if backlog > 0 => (tick * 2).min(SLOW_TICK),
                _ => (tick * 2).min(Duration::from_millis(50)),
            };
            let mut overseer = locked(&self.overseer);
            if tick > SLOW_TICK {
                self.overseer_away.store(true, SeqCst);
                // A thread that came before the flag was up has not called the overseer: it looks once more.
                if self.work.backlog() > 0 || self.interrupting.is_noted() {
                    self.overseer_away.store(false, SeqCst);
                    tick = TICK;
                    continue;
                }
                if quiet >= OVERSEER_IDLE {
                    overseer.running = false;
                    return;
                }
            }
            if !overseer.called {
                let waited = self.overseer_called.wait_timeout(overseer, tick);
                overseer = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            }
            if std::mem::take(&mut overseer.called) {
                tick = TICK;
            }
            self.overseer_away.store(false, SeqCst);
        }
    }

    /// Ends all threads: pending requests go to `pending`, active calls are broken off and waited for.
    pub fn close(&self, mut pending: impl FnMut(*mut Request)) {
        let mut state = self.work.lock();
        state.closing = true;
        let drained = self.work.drain(&mut state);
        let idle: Vec<_> = std::iter::from_fn(|| state.take_idle()).collect();
        drop(state);
        idle.iter().for_each(|worker| worker.wake());
        drained.into_iter().for_each(&mut pending);

        let mut pause = Duration::from_micros(100);
        let mut roster = locked(&self.roster);
        while !roster.workers.is_empty() {
            for worker in &roster.workers {
                worker.about.interrupt_if(|_| true);
            }
            let waited = self.gone.wait_timeout(roster, pause);
            roster = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        let ended = std::mem::take(&mut roster.ended);
        drop(roster);
        ended.iter().for_each(|worker| worker.about.join());

        let mut overseer = locked(&self.overseer);
        overseer.called = true;
        let handle = overseer.handle.take();
        drop(overseer);
        self.overseer_called.notify_one();
        if let Some(handle) = handle {
            let _ = handle.join();
        }
    }

    /// Counts the threads and the waiting requests.
    pub fn census(&self) -> Census {
        let state = self.work.lock();
        Census {
            threads: state.running + state.idle(),
            idle: state.idle(),
            peak: self.peak.load(Relaxed),
            queued: state.backlog(),
        }
    }
}

impl Growth {
    fn is_empty(&self) -> bool {
        self.wake.is_empty() && self.make == 0
    }
}

impl Facts {
    /// A worker that has not begun.
    fn new() -> Facts {
        Facts {
            started_ns: AtomicU64::new(0),
            phase: Phase::new(),
            thread: AtomicU64::new(0),
            handle: Mutex::new(None),
        }
    }

    fn is_blocked(&self, now_ns: u64) -> bool {
        let started_ns = self.started_ns.load(Relaxed);
        started_ns != 0 && now_ns.saturating_sub(started_ns) > FRESH_NS
    }

    /// Ends a call: from here on no signal for it arrives.
    fn leave_call(&self) {
        self.started_ns.store(0, Relaxed);
        if self.phase.leave() {
            // Any return from the kernel delivers a signal that is still on its way to this thread.
            std::thread::yield_now();
        }
    }

    /// Signals the worker if it is in a call that fits; true if it was.
    fn interrupt_if(&self, fits: impl Fn(*mut Request) -> bool) -> bool {
        self.phase.interrupt(fits, || {
            // SAFETY: the worker is held in its call ([`Phase`]), so its thread exists; it is joined much later.
            unsafe { interrupt::interrupt(self.thread.load(Acquire)) };
        })
    }

    fn join(&self) {
        if let Some(handle) = locked(&self.handle).take() {
            let _ = handle.join();
        }
    }
}

/// The stack that pthread_create(3) gives: `ulimit -s` sets it, as the manual page says.
fn default_stack_bytes() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit fills `limit`, which this function owns.
    let answer = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    let bytes = if answer == 0 { limit.rlim_cur } else { 0 };
    if bytes == 0 || bytes > 1 << 30 { 8 << 20 } else { (bytes as usize).max(128 << 10) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ptr;

    use super::*;
    use crate::call::Call;

    /// The pool of a test: one worker is at work, one is parked, and requests wait. The pool has considered its size a
    /// moment ago, so that it does so again for a reason only.
    struct Trial {
        pool: Pool,
        requests: Vec<*mut Request>,
    }

    impl Trial {
        fn new(usual_ns: u64, waiting: usize) -> Trial {
            let pool = Pool::new(1, 0, 0, Poll::Never);
            pool.usual_ns.store(usual_ns, Relaxed);
            pool.considered_ns.store(u64::MAX / 2, Relaxed);
            let request = |_| Box::into_raw(Box::new(Request::new(ptr::null(), 0, Call::Nothing)));
            let requests: Vec<_> = (0..waiting).map(request).collect();
            let mut state = pool.work.lock();
            state.running = 1;
            state.park(Sleeper::new(Facts::new()));
            for &request in &requests {
                // SAFETY: the request is fresh and in no list.
                unsafe { pool.work.push(&mut state, request) };
            }
            drop(state);
            Trial { pool, requests }
        }

        /// The number of parked workers that are woken, after `prepare` has changed the state.
        fn woken(&self, prepare: impl FnOnce(&mut State<Facts>)) -> usize {
            let mut state = self.pool.work.lock();
            prepare(&mut state);
            self.pool.consider(&mut state, 1, false).wake.len()
        }
    }

    impl Drop for Trial {
        fn drop(&mut self) {
            self.pool.work.drain(&mut self.pool.work.lock());
            for &request in &self.requests {
                // SAFETY: the request came from a box, and is in no list any more.
                drop(unsafe { Box::from_raw(request) });
            }
        }
    }

    /// Calls that wait for the same commit of a file system begin together.
    #[test]
    fn calls_that_block_get_a_parked_worker_at_once() {
        assert_eq!(Trial::new(FRESH_NS + 1, 1).woken(|_| ()), 1);
        assert_eq!(Trial::new(FRESH_NS, 1).woken(|_| ()), 0, "calls that compute share the processor");
        assert_eq!(Trial::new(FRESH_NS + 1, 0).woken(|_| ()), 0, "nothing waits");
        assert_eq!(Trial::new(FRESH_NS + 1, 1).woken(|state| state.closing = true), 0, "the pool ends");
    }

    #[test]
    fn a_worker_that_looks_for_work_takes_the_first_request() {
        assert_eq!(Trial::new(FRESH_NS + 1, 1).woken(|state| state.spinning = true), 0);
        assert_eq!(Trial::new(FRESH_NS + 1, 2).woken(|state| state.spinning = true), 1);
    }

    #[test]
    fn no_more_workers_run_than_the_limit_allows() {
        for (free, woken) in [(1, 1), (0, 0)] {
            let trial = Trial::new(FRESH_NS + 1, 5);
            let limit = trial.pool.limit.load(Relaxed);
            assert_eq!(trial.woken(|state| state.running = limit - free), woken);
        }
    }

    #[test]
    fn the_size_is_considered_once_in_a_while() {
        let trial = Trial::new(0, 5);
        trial.pool.work.lock().begun = 1;
        assert_eq!(trial.woken(|_| ()), 0, "a moment ago");
        trial.pool.considered_ns.store(monotonic_ns() - 1_000_000_000, Relaxed);
        assert_eq!(trial.woken(|state| state.spinning = true), 0, "a worker looks for work");
        trial.pool.work.lock().spinning = false;
        let more = usize::from(std::thread::available_parallelism().is_ok_and(|cpus| usize::from(cpus) > 1));
        assert_eq!(trial.woken(|_| ()), more, "a second ago, and a processor is free");
    }
}

//! The pool's queue, and how workers sleep when it is empty: everything is decided under one lock, so no wake-up is
//! lost.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::list::Lists;
use crate::request::{Request, Status};
use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, lock, wait};

/// A worker that takes requests and can sleep. `T` is the pool's knowledge of the worker.
pub(crate) struct Sleeper<T> {
    pub about: T,
    woken: Mutex<bool>,
    condvar: Condvar,
}

/// The queue of the pool, and the workers that sleep.
pub(crate) struct Work<T> {
    state: Mutex<State<T>>,
    /// The length of the queue, for a look without the lock.
    backlog: AtomicUsize,
}

/// The data that the lock guards.
pub(crate) struct State<T> {
    queue: Lists,
    /// Parked workers; the last one in is the warmest, and is woken first.
    idle: Vec<Arc<Sleeper<T>>>,
    /// The number of workers that are not parked.
    pub running: usize,
    pub spinning: bool,
    pub closing: bool,
    /// Calls that workers have begun since the pool was created.
    pub begun: u64,
}

/// The next thing for a worker to do.
pub(crate) enum Next {
    /// The worker carries this request out.
    Run(*mut Request),
    /// The worker ends: the pool is closed, or the worker was idle for the given time.
    End,
}

impl<T> Sleeper<T> {
    pub fn new(about: T) -> Arc<Sleeper<T>> {
        Arc::new(Sleeper { about, woken: Mutex::new(false), condvar: Condvar::new() })
    }

    /// Ends the sleep of a worker that was taken from the idle ones.
    pub fn wake(&self) {
        *lock(&self.woken) = true;
        self.condvar.notify_one();
    }

    /// Sleeps until woken (true) or the limit is over (false).
    fn sleep(&self, limit: Option<Duration>) -> bool {
        let mut woken = lock(&self.woken);
        let mut rounds = 0;
        while !*woken && (limit.is_none() || rounds == 0) {
            woken = wait(&self.condvar, woken, limit);
            rounds += 1;
        }
        std::mem::take(&mut *woken)
    }
}

impl<T> Work<T> {
    pub fn new(priorities: usize) -> Work<T> {
        let state = State {
            queue: Lists::new(priorities),
            idle: Vec::new(),
            running: 0,
            spinning: false,
            closing: false,
            begun: 0,
        };
        Work { state: Mutex::new(state), backlog: AtomicUsize::new(0) }
    }

    /// Locks the state of the pool, and returns it.
    pub fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }

    /// The number of requests that wait, as of a moment ago. A thread that says "I am away" before this look is seen by
    /// whoever pushes after it: the look is part of that order (SeqCst), and so is the store of the push.
    pub fn backlog(&self) -> usize {
        self.backlog.load(SeqCst)
    }

    /// Queues a request.
    ///
    /// # Safety
    /// The request is valid, pending, and in no list.
    pub unsafe fn push(&self, state: &mut State<T>, request: *mut Request) {
        // SAFETY: by the contract of this function the request is valid, pending and in no list.
        unsafe { state.queue.push(request) };
        self.backlog.store(state.queue.len(), SeqCst);
    }

    /// Takes a request that is still pending out of the queue, marks it cancelled and returns true. Returns false if
    /// the request has begun.
    ///
    /// # Safety
    /// The request is valid and was pushed here.
    pub unsafe fn cancel(&self, request: *mut Request) -> bool {
        let mut state = self.lock();
        // SAFETY: by the contract of this function the request is valid.
        if unsafe { (*request).status() } != Status::Pending {
            return false;
        }
        // SAFETY: pending, under the lock, means linked.
        unsafe { state.queue.remove(request) };
        // SAFETY: by the contract of this function the request is valid.
        unsafe { (*request).set_status(Status::Canceled) };
        self.backlog.store(state.queue.len(), SeqCst);
        true
    }

    /// Takes all pending requests out and marks them cancelled.
    pub fn drain(&self, state: &mut State<T>) -> Vec<*mut Request> {
        let mut all = Vec::new();
        while let Some(request) = state.queue.pop() {
            // SAFETY: it was linked, hence valid.
            unsafe { (*request).set_status(Status::Canceled) };
            all.push(request);
        }
        self.backlog.store(0, SeqCst);
        all
    }

    /// The next request for a worker that is running; the worker sleeps while there is none.
    ///
    /// `look` is called for a short time before sleeping, with a way to see if something came. `over_limit` says that
    /// more workers run than may. A worker that slept `idle_limit` ends if `may_end` allows it. `begin` is called under
    /// the lock with the request that is about to be carried out.
    pub fn next(
        &self,
        me: &Arc<Sleeper<T>>,
        idle_limit: Option<Duration>,
        look: impl Fn(&dyn Fn() -> bool),
        over_limit: impl Fn(&State<T>) -> bool,
        may_end: impl Fn(&mut State<T>) -> bool,
        begin: impl Fn(&mut State<T>, *mut Request),
    ) -> Next {
        let mut state = self.lock();
        let mut looked = false;
        loop {
            if state.closing {
                state.running -= 1;
                return Next::End;
            }
            if !over_limit(&state) {
                if let Some(request) = state.queue.pop() {
                    self.backlog.store(state.queue.len(), SeqCst);
                    // SAFETY: it was linked, hence valid.
                    unsafe { (*request).set_status(Status::Active) };
                    state.begun += 1;
                    begin(&mut state, request);
                    return Next::Run(request);
                }
                if !looked && !state.spinning {
                    looked = true;
                    state.spinning = true;
                    drop(state);
                    look(&|| self.backlog() > 0);
                    state = self.lock();
                    state.spinning = false;
                    continue;
                }
            }
            state.running -= 1;
            state.idle.push(Arc::clone(me));
            drop(state);
            while !me.sleep(idle_limit) {
                let mut locked = self.lock();
                let place = locked.idle.iter().position(|idle| Arc::ptr_eq(idle, me));
                match place {
                    // Somebody takes this worker at this moment: the wake-up is on its way.
                    None => drop(locked),
                    Some(place) => {
                        if may_end(&mut locked) {
                            locked.idle.remove(place);
                            return Next::End;
                        }
                    }
                }
            }
            // The thread that woke this worker has counted it as running.
            state = self.lock();
            looked = false;
        }
    }
}

impl<T> State<T> {
    /// The number of requests that wait.
    pub fn backlog(&self) -> usize {
        self.queue.len()
    }

    /// The number of parked workers.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Parks a worker that no thread is behind.
    #[cfg(all(test, not(loom)))]
    pub fn park(&mut self, worker: Arc<Sleeper<T>>) {
        self.idle.push(worker);
    }

    /// The warmest of the parked workers, counted as running from now on: the caller wakes it once the lock is
    /// released.
    pub fn take_idle(&mut self) -> Option<Arc<Sleeper<T>>> {
        let sleeper = self.idle.pop()?;
        self.running += 1;
        Some(sleeper)
    }
}

#[cfg(all(test, loom))]
mod tests {
    //! Every interleaving of submitters, workers and a canceller: `RUSTFLAGS="--cfg loom" cargo test -p guasi --release
    //! --lib`.
    use super::*;
    use crate::call::Call;
    use crate::request;
    use crate::results::Results;
    use loom::thread;
    use std::ptr;

    struct Everything {
        work: Work<()>,
        results: Results,
    }

    fn submit(all: &Everything) -> *mut Request {
        let request = Box::into_raw(Box::new(Request::new(ptr::null(), 0, Call::Nothing)));
        let mut state = all.work.lock();
        // SAFETY: the request is fresh.
        unsafe { all.work.push(&mut state, request) };
        let wake = if state.spinning { None } else { state.take_idle() };
        drop(state);
        if let Some(sleeper) = wake {
            sleeper.wake();
        }
        request
    }

    fn worker(all: &Everything) {
        let me = Sleeper::new(());
        all.work.lock().running += 1;
        while let Next::Run(request) = all.work.next(&me, None, |_| (), |_| false, |_| false, |_, _| ()) {
            // SAFETY: this worker is the one owner of the request until it is added to the results.
            unsafe { (*request).finish(request::Outcome { result: 7, error: 0 }) };
            // SAFETY: the request is finished and in no list.
            unsafe { all.results.add(std::iter::once(request)) };
        }
    }

    fn close(all: &Everything) {
        let mut state = all.work.lock();
        state.closing = true;
        let idle: Vec<_> = std::iter::from_fn(|| state.take_idle()).collect();
        drop(state);
        idle.iter().for_each(|sleeper| sleeper.wake());
    }

    fn fetch(all: &Everything, want: usize) -> usize {
        let mut got = 0;
        while got < want {
            got += all.results.wait_and_take(1, 8, None, |request| {
                // SAFETY: the fetch makes this function the one owner of the request.
                unsafe { request::free(request) }
            });
        }
        got
    }

    fn model(f: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(f);
    }

    #[test]
    fn two_calls_one_worker_none_lost() {
        model(|| {
            let all =
                loom::sync::Arc::new(Everything { work: Work::new(1), results: Results::new(1, pace::Poll::Adaptive) });
            let theirs = all.clone();
            let thread = thread::spawn(move || worker(&theirs));
            submit(&all);
            submit(&all);
            assert_eq!(fetch(&all, 2), 2);
            close(&all);
            thread.join().unwrap();
        });
    }

    #[test]
    fn two_submitters_one_worker() {
        model(|| {
            let all =
                loom::sync::Arc::new(Everything { work: Work::new(1), results: Results::new(1, pace::Poll::Adaptive) });
            let (worker_side, submitter_side) = (all.clone(), all.clone());
            let worker = thread::spawn(move || worker(&worker_side));
            let submitter = thread::spawn(move || {
                submit(&submitter_side);
            });
            submit(&all);
            assert_eq!(fetch(&all, 2), 2);
            submitter.join().unwrap();
            close(&all);
            worker.join().unwrap();
        });
    }

    #[test]
    fn a_cancel_and_a_worker_race_for_one_request_and_one_of_them_gets_it() {
        model(|| {
            let all =
                loom::sync::Arc::new(Everything { work: Work::new(1), results: Results::new(1, pace::Poll::Adaptive) });
            let theirs = all.clone();
            let thread = thread::spawn(move || worker(&theirs));
            let request = submit(&all);
            // SAFETY: the request is not fetched yet, hence valid.
            if unsafe { all.work.cancel(request) } {
                // SAFETY: the request is cancelled and in no list.
                unsafe { all.results.add(std::iter::once(request)) };
            }
            assert_eq!(fetch(&all, 1), 1);
            close(&all);
            thread.join().unwrap();
        });
    }
}

//! A context: it decides where a request goes, who is told when the request is done, and how everything ends.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicUsize, fence};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pace::Poll;

use crate::api::{Config, Drive};
use crate::driver::{Driver, RingQueue, eventfd};
use crate::pool::Pool;
use crate::request::{self, Outcome, Request, Status};
use crate::results::Results;
use crate::stats::{Backend, Counters, Stats};
use crate::{fork, handover, interrupt};

/// With [`Drive::Caller`]: requests that gather before they are given to the kernel unasked.
const GATHER: usize = 32;

/// A context. It joins the pool, the ring's queue and driver, and the results.
pub(crate) struct Core {
    pub pool: Pool,
    queue: RingQueue,
    results: Results,
    counters: Counters,
    config: Config,
    generation: u64,
    /// Ok if there is a ring, the errno if not; decided at the first request that could use a ring.
    ring: OnceLock<Result<(), i32>>,
    driver_thread: Mutex<Option<JoinHandle<()>>>,
    /// With Drive::Caller: the driver, which only the owner thread touches.
    local: UnsafeCell<Local>,
    /// With Drive::Caller: the thread that uses the context, 0 until it does.
    owner: AtomicUsize,
    /// Requests that are with the pool.
    in_pool: AtomicUsize,
    /// The eventfd that guasi_fd(3) gave out: it is readable when there may be results.
    event: OnceLock<File>,
}

#[derive(Default)]
struct Local {
    driver: Option<Driver>,
    gathered: usize,
    /// Requests that were submitted and not yet fetched.
    outstanding: usize,
}

// SAFETY: locks and atomics guard everything but `local`, which only the owner thread touches ([`Core::check`] sees to
// it).
unsafe impl Sync for Core {}
// SAFETY: nothing is tied to the thread that made the context; the thread that uses a driver makes it.
unsafe impl Send for Core {}

/// A number that no other living thread has.
fn thread_token() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

impl Core {
    /// A context without threads, ring and descriptors: they are made when they are needed.
    pub fn new(config: Config) -> Arc<Core> {
        let priorities = config.priorities.max(1);
        let poll = if config.looks { Poll::Adaptive } else { Poll::Never };
        Arc::new(Core {
            pool: Pool::new(priorities, config.min_threads, config.max_threads, poll),
            queue: RingQueue::new(priorities, poll),
            results: Results::new(priorities, poll),
            counters: Counters::default(),
            generation: fork::generation(),
            ring: OnceLock::new(),
            driver_thread: Mutex::new(None),
            local: UnsafeCell::default(),
            owner: AtomicUsize::new(0),
            in_pool: AtomicUsize::new(0),
            event: OnceLock::new(),
            config,
        })
    }

    #[cfg_attr(not(feature = "c-abi"), allow(dead_code, reason = "so far only C programs ask for all of it"))]
    pub fn priorities(&self) -> usize {
        self.config.priorities.max(1)
    }

    /// Checks that this process, and this thread, may use the context.
    ///
    /// # Errors
    /// ECHILD in a forked child; EPERM for a second thread with [`Drive::Caller`].
    pub fn check(&self) -> Result<(), i32> {
        if fork::generation() != self.generation {
            return Err(libc::ECHILD);
        }
        if self.config.drive == Drive::Caller {
            let me = thread_token();
            match self.owner.compare_exchange(0, me, SeqCst, SeqCst) {
                Ok(_) => {}
                Err(owner) if owner == me => {}
                Err(_) => return Err(libc::EPERM),
            }
        }
        Ok(())
    }

    /// # Safety
    /// [`Core::check`] has passed with Drive::Caller, and the reference does not outlive the calling function.
    #[allow(clippy::mut_from_ref, reason = "only the owner thread comes here, and it does not come twice at a time")]
    unsafe fn local(&self) -> &mut Local {
        // SAFETY: by the contract of this function only the owner thread is here, in one function at a time.
        unsafe { &mut *self.local.get() }
    }

    /// Takes a request.
    ///
    /// # Errors
    /// The errors of [`Core::check`]; EAGAIN when the request needs a thread and there is none to be had. The core does
    /// not take the request then.
    ///
    /// # Safety
    /// The request is valid, pending and in no list, its priority is below [`Core::priorities`], and its pointers stay
    /// valid until it is fetched.
    pub unsafe fn submit(self: &Arc<Core>, request: *mut Request) -> Result<(), i32> {
        self.check()?;
        // SAFETY: by the contract of this function the request is valid, pending and in no list, and its pointers stay
        // valid.
        let answer = unsafe { self.route(request) };
        if self.config.drive == Drive::Caller && answer.is_ok() {
            // SAFETY: [`Core::check`] has passed in this function.
            unsafe { self.local() }.outstanding += 1;
        }
        answer
    }

    /// Gives a request to the ring or to the pool.
    ///
    /// # Safety
    /// The contract of [`Core::submit`] holds.
    unsafe fn route(self: &Arc<Core>, request: *mut Request) -> Result<(), i32> {
        handover::released(request.cast());
        // SAFETY: by the contract of this function the request is valid, and the caller is its one owner until it is
        // queued.
        let it = unsafe { &*request };
        // SAFETY: the caller is the one owner of the request until it is queued, and so of its call.
        let call = unsafe { &*it.call.get() };
        // The ring may carry the call out unless that could raise SIGPIPE in a thread of the program.
        let ours = self.config.drive == Drive::Thread || !call.may_raise_sigpipe();
        if call.is_io() && ours && self.has_ring() && call.fits_ring() {
            it.in_ring.store(true, Relaxed);
            // SAFETY: by the contract of this function the request is valid, pending and in no list; its call fits the
            // ring.
            unsafe { self.queue.push(request) };
            Counters::add(&self.counters.ring_requests, 1);
            return match self.config.drive {
                Drive::Thread => {
                    self.queue.ring_bell();
                    Ok(())
                }
                Drive::Caller => self.gather(),
            };
        }
        self.in_pool.fetch_add(1, SeqCst);
        // SAFETY: by the contract of this function the request is valid, pending and in no list; this core has the
        // pool.
        let answer = unsafe { self.pool.submit(self, request) };
        match answer {
            Ok(()) => Counters::add(&self.counters.pool_requests, 1),
            Err(_) => {
                self.in_pool.fetch_sub(1, SeqCst);
            }
        }
        answer
    }

    fn gather(&self) -> Result<(), i32> {
        // SAFETY: [`Core::submit`], which leads here, has passed [`Core::check`].
        let local = unsafe { self.local() };
        local.gathered += 1;
        if local.gathered >= GATHER { self.flush() } else { Ok(()) }
    }

    /// With [`Drive::Caller`]: submits the gathered requests to the kernel.
    ///
    /// # Errors
    /// The errors of [`Core::check`]; otherwise the error that makes the ring useless.
    pub fn flush(&self) -> Result<(), i32> {
        self.check()?;
        if self.config.drive == Drive::Caller {
            // SAFETY: [`Core::check`] has passed in this function.
            let local = unsafe { self.local() };
            local.gathered = 0;
            if let Some(driver) = &mut local.driver {
                driver.fill(&self.queue);
                driver.submit().map_err(errno)?;
                Counters::add(&self.counters.ring_enters, driver.take_enters());
            }
        }
        Ok(())
    }

    /// True if requests can go through a ring; sets it up when first asked.
    fn has_ring(self: &Arc<Core>) -> bool {
        self.ring.get_or_init(|| self.set_up()).is_ok()
    }

    fn set_up(self: &Arc<Core>) -> Result<(), i32> {
        if !self.config.use_ring || under_valgrind() {
            return Err(libc::EOPNOTSUPP);
        }
        self.queue.make_bell().map_err(errno)?;
        match self.config.drive {
            Drive::Caller => {
                let driver = Driver::new(self.config.ring_entries)?;
                if let Some(event) = self.event.get() {
                    driver.signal(event.as_raw_fd()).map_err(errno)?;
                }
                // SAFETY: [`Core::submit`], which leads here, has passed [`Core::check`].
                unsafe { self.local() }.driver = Some(driver);
                Ok(())
            }
            Drive::Thread => {
                let (tell, told) = mpsc::sync_channel(1);
                let core = Arc::clone(self);
                let builder = std::thread::Builder::new().name("guasi-ring".into()).stack_size(256 << 10);
                let thread = builder
                    .spawn(move || {
                        interrupt::shield(false);
                        match Driver::new(core.config.ring_entries) {
                            Ok(driver) => {
                                let _ = tell.send(Ok(()));
                                core.drive(driver);
                            }
                            Err(errno) => {
                                let _ = tell.send(Err(errno));
                            }
                        }
                    })
                    .map_err(errno)?;
                let answer = told.recv().unwrap_or(Err(libc::EAGAIN));
                match answer {
                    Ok(()) => *locked(&self.driver_thread) = Some(thread),
                    Err(_) => drop(thread.join()),
                }
                answer
            }
        }
    }

    /// The life of the driver thread.
    fn drive(&self, mut driver: Driver) {
        loop {
            driver.fill(&self.queue);
            let looked = driver.look(&self.queue, || false);
            let sleeps = !matches!(looked, Ok(true)) && driver.announce_sleep(&self.queue);
            let closing = self.queue.is_closing();
            if closing && driver.is_idle() {
                break;
            }
            if closing {
                driver.cancel_all();
            }
            let went = looked.and_then(|_| match sleeps {
                true => driver.wait(1, closing.then_some(Duration::from_millis(10))).map(drop),
                false => driver.poll(),
            });
            self.queue.woke();
            if let Err(error) = went {
                // Requests in the kernel would be lost without a word. The ring works unless its descriptor no longer
                // exists.
                eprintln!("guasi: io_uring_enter: {error} (has the program closed descriptors that are not its own?)");
                std::process::abort();
            }
            self.reap(&mut driver);
        }
        driver.disarm(&self.queue);
    }

    /// Passes on the requests that the ring has completed.
    fn reap(&self, driver: &mut Driver) {
        driver.reap(&self.queue, |ended| {
            Counters::add(&self.counters.finished, ended.len());
            ended.iter().for_each(|&(request, _)| handover::released(request.cast()));
            // SAFETY: the driver has finished the requests, and they are in no list.
            unsafe { self.results.add(ended.iter().map(|&(request, _)| request)) };
            if self.config.drive == Drive::Thread {
                self.signal();
            }
        });
        Counters::add(&self.counters.ring_enters, driver.take_enters());
    }

    /// Records the outcome of a request that a worker has carried out, and passes the request on.
    pub fn end(&self, request: *mut Request, outcome: Outcome) {
        // SAFETY: the worker is the one owner of the request.
        unsafe { &*request }.finish(outcome);
        self.pass_on(request);
    }

    fn pass_on(&self, request: *mut Request) {
        handover::released(request.cast());
        // SAFETY: the request is valid, and not in the results yet.
        let from_pool = !unsafe { &*request }.in_ring.load(Relaxed);
        Counters::add(&self.counters.finished, 1);
        // SAFETY: the request is finished or cancelled, and in no list.
        unsafe { self.results.add(std::iter::once(request)) };
        if from_pool {
            self.in_pool.fetch_sub(1, SeqCst);
        }
        if self.config.drive == Drive::Caller {
            if self.queue.is_asleep() {
                self.results.wakes();
            }
            self.queue.ring_bell();
        }
        self.signal();
    }

    /// Makes the descriptor of guasi_fd(3) readable, if it was asked for.
    fn signal(&self) {
        // This fence pairs with the fence of `fd`: either this thread sees the descriptor, or `fd` sees the results.
        fence(SeqCst);
        if let Some(mut event) = self.event.get() {
            let _ = event.write(&1u64.to_ne_bytes());
        }
    }

    /// An eventfd that is readable when there may be results.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM; the errors of [`Core::check`].
    pub fn fd(&self) -> Result<RawFd, i32> {
        self.check()?;
        if let Some(event) = self.event.get() {
            return Ok(event.as_raw_fd());
        }
        let event = self.event.get_or_init({
            let made = eventfd(libc::EFD_NONBLOCK).map_err(errno)?;
            || made
        });
        if self.config.drive == Drive::Caller
            // SAFETY: [`Core::check`] has passed in this function.
            && let Some(driver) = &unsafe { self.local() }.driver
        {
            driver.signal(event.as_raw_fd()).map_err(errno)?;
        }
        fence(SeqCst);
        if self.results.len() > 0 {
            self.signal();
        }
        Ok(event.as_raw_fd())
    }

    /// Waits for `min` results, or until the limit is over, and passes up to `max` of them to `take`. Returns how many
    /// it passed.
    ///
    /// # Errors
    /// The errors of [`Core::check`]; with [`Drive::Caller`] the error that makes the ring useless.
    pub fn fetch(
        self: &Arc<Core>,
        min: usize,
        max: usize,
        limit: Option<Duration>,
        mut take: impl FnMut(*mut Request),
    ) -> Result<usize, i32> {
        self.check()?;
        if let Some(mut event) = self.event.get() {
            let _ = event.read(&mut [0; 8]);
        }
        let take = |request: *mut Request| {
            handover::acquired(request.cast());
            take(request);
        };
        let taken = match self.config.drive {
            Drive::Thread => self.results.wait_and_take(min, max, limit, take),
            Drive::Caller => {
                self.drive_until(min, limit)?;
                let taken = self.results.take(max, take);
                // SAFETY: [`Core::check`] has passed in this function.
                unsafe { self.local() }.outstanding -= taken;
                taken
            }
        };
        if self.event.get().is_some() && self.results.len() > 0 {
            self.signal();
        }
        Ok(taken)
    }

    /// As [`Core::fetch`], but where results are lacking it enlists a semaphore instead of waiting, and returns None.
    ///
    /// # Safety
    /// As [`Results::take_or_enlist`].
    #[cfg(feature = "c-abi")]
    pub unsafe fn fetch_or_enlist(
        &self,
        min: usize,
        max: usize,
        semaphore: *mut libc::sem_t,
        mut take: impl FnMut(*mut Request),
    ) -> Option<usize> {
        if let Some(mut event) = self.event.get() {
            let _ = event.read(&mut [0; 8]);
        }
        let take = |request: *mut Request| {
            handover::acquired(request.cast());
            take(request);
        };
        // SAFETY: the contract of this function is that of the called one.
        let taken = unsafe { self.results.take_or_enlist(min, max, semaphore, take) };
        if self.event.get().is_some() && self.results.len() > 0 {
            self.signal();
        }
        taken
    }

    /// Takes a semaphore out of the list of those that are posted when there are results.
    #[cfg(feature = "c-abi")]
    pub fn leave(&self, semaphore: *mut libc::sem_t) {
        self.results.leave(semaphore);
    }

    /// True if the thread that uses the context drives the ring inside its calls.
    #[cfg(feature = "c-abi")]
    pub fn is_driven_by_caller(&self) -> bool {
        self.config.drive == Drive::Caller
    }

    /// With [`Drive::Caller`]: drives the ring until there are `min` results, the limit is over, a signal comes, or
    /// nothing is left to wait for.
    fn drive_until(&self, min: usize, limit: Option<Duration>) -> Result<(), i32> {
        // SAFETY: [`Core::fetch`], which calls this function, has passed [`Core::check`].
        let local = unsafe { self.local() };
        local.gathered = 0;
        let (wanted, min) = (min, min.min(local.outstanding));
        let Some(driver) = &mut local.driver else {
            self.results.wait_and_take(min, 0, limit, |_| ());
            return Ok(());
        };
        self.reap(driver);
        let deadline = limit.map(|limit| Instant::now() + limit);
        let (mut polled, mut interrupted, mut looked) = (false, false, false);
        loop {
            driver.fill(&self.queue);
            // The order matters: the requests that the pool has passed on by now are among the results.
            let in_pool = self.in_pool.load(SeqCst);
            let have = self.results.len();
            if have >= min && (polled || wanted > 0) {
                return Ok(());
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if interrupted || polled && left == Some(Duration::ZERO) {
                return Ok(());
            }
            let looks = |driver: &mut Driver| {
                let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
                driver.look(&self.queue, || self.results.len() > have || is_over()).map_err(errno)
            };
            if !polled && (min == 0 || left == Some(Duration::ZERO)) {
                polled = true;
                driver.poll().map_err(errno)?;
            } else if driver.inflight() > 0 && (min - have == 1 || in_pool > 0) && looks(driver)? {
                driver.poll().map_err(errno)?;
            } else if in_pool == 0 {
                // One sleep for all of them.
                let want = (min - have).min(driver.inflight()).max(1);
                interrupted = driver.wait(want, left).map_err(errno)?;
            } else if driver.inflight() == 0 && !std::mem::replace(&mut looked, true) {
                // A worker that is awake has the result sooner than this thread could be woken.
                self.results.look_out(min, deadline);
            } else if driver.announce_sleep(&self.queue) {
                if self.results.len() == have {
                    interrupted = driver.wait(1, left).map_err(errno)?;
                }
                self.queue.woke();
            } else {
                driver.poll().map_err(errno)?;
            }
            self.reap(driver);
        }
    }

    /// Cancels a request and returns the state that it is in then.
    ///
    /// # Errors
    /// The errors of [`Core::check`].
    ///
    /// # Safety
    /// The request was submitted to this context and has not been freed.
    pub unsafe fn cancel(self: &Arc<Core>, request: *mut Request) -> Result<Status, i32> {
        self.check()?;
        // SAFETY: by the contract of this function the request is valid.
        let it = unsafe { &*request };
        let canceled = if it.in_ring.load(Relaxed) {
            // SAFETY: by the contract of this function the request was submitted here and is not freed.
            unsafe { self.queue.cancel(request) }
        } else {
            // SAFETY: by the contract of this function the request was submitted here and is not freed.
            unsafe { self.pool.cancel(self, request) }
        };
        if !canceled {
            if self.config.drive == Drive::Caller {
                self.flush()?;
            }
            return Ok(it.status());
        }
        Counters::add(&self.counters.canceled, 1);
        // SAFETY: the request is cancelled, and this function is its one owner until it passes the request on.
        let call = unsafe { &mut *it.call.get() };
        // SAFETY: the submitter's promise holds, and the call will never begin.
        unsafe { call.clean_up(it.private) };
        self.pass_on(request);
        Ok(Status::Canceled)
    }

    /// The counters of the context at this moment.
    pub fn stats(&self) -> Stats {
        let census = self.pool.census();
        let (ring_requests, pool_requests) =
            (self.counters.ring_requests.load(Relaxed), self.counters.pool_requests.load(Relaxed));
        Stats {
            backend: match self.ring.get() {
                None => Backend::Unused,
                Some(Ok(())) => Backend::Ring,
                Some(Err(_)) => Backend::Pool,
            },
            ring_error: self.ring.get().and_then(|ring| ring.err()).unwrap_or(0),
            signal: interrupt::installed().unwrap_or(0),
            threads: census.threads as u32,
            threads_idle: census.idle as u32,
            threads_peak: census.peak as u32,
            submitted: ring_requests + pool_requests,
            finished: self.counters.finished.load(Relaxed),
            canceled: self.counters.canceled.load(Relaxed),
            ring_requests,
            pool_requests,
            ring_enters: self.counters.ring_enters.load(Relaxed),
            queued: (census.queued + self.queue.backlog()) as u64,
        }
    }

    /// Ends everything. Pending requests are cleaned up, active ones are broken off and waited for; all are freed but
    /// those that have been fetched. In a forked child the function does nothing: the context is the parent's.
    ///
    /// # Safety
    /// Nobody else uses the context any more; requests that were not fetched are not used afterwards.
    pub unsafe fn close(&self) {
        if fork::generation() != self.generation {
            return;
        }
        let discard = |request: *mut Request| {
            // SAFETY: the request was drained, so this function is its one owner.
            let it = unsafe { &*request };
            // SAFETY: the request was drained, so this function is the one owner of it and of its call.
            let call = unsafe { &mut *it.call.get() };
            // SAFETY: the submitter's promise holds, and the call will never begin.
            unsafe { call.clean_up(it.private) };
            // SAFETY: the request is in no list, and by the contract of `close` nobody uses it afterwards.
            unsafe { request::free(request) };
        };
        self.queue.drain().into_iter().for_each(discard);
        match self.config.drive {
            Drive::Thread => {
                self.queue.close();
                let thread = locked(&self.driver_thread).take();
                if let Some(thread) = thread {
                    let _ = thread.join();
                }
            }
            Drive::Caller => self.close_local(),
        }
        self.pool.close(discard);
        // SAFETY: by the contract of this function nobody uses the results after this.
        self.results.take(usize::MAX, |request| unsafe { request::free(request) });
    }

    fn close_local(&self) {
        // SAFETY: by the contract of `close` nobody else uses the context.
        let Some(mut driver) = unsafe { self.local() }.driver.take() else { return };
        while !driver.is_idle() {
            driver.cancel_all();
            if driver.wait(1, Some(Duration::from_millis(10))).is_err() {
                // Another thread than the one that used the context closes it: the kernel may still write to the
                // buffers, so nothing that the kernel knows is freed.
                std::mem::forget(driver);
                return;
            }
            self.reap(&mut driver);
            if !self.queue.is_closing() {
                self.queue.close();
            }
            driver.fill(&self.queue);
        }
        driver.disarm(&self.queue);
    }
}

/// True if valgrind runs the program; the function says so once on standard error. Valgrind does not know what an
/// io_uring reads and writes, and would let the program wait forever.
fn under_valgrind() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // Valgrind preloads this library into every program.
        let found = std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("/vgpreload_core"));
        if found {
            eprintln!("guasi: valgrind runs this program and does not know io_uring: threads do without it");
        }
        found
    })
}

fn errno(error: std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

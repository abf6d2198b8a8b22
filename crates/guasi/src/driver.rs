//! The ring's side of a context: a queue that any thread may add to, and the driver that alone touches the ring.
//!
//! No more than [`WINDOW`] requests are in the kernel at a time; the rest wait in order of priority, where they cost
//! nothing and can still be cancelled. That is why 10,000 queued reads run as fast as 100.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use pace::Poll;
use sys::ring::{IoUring, Setup, opcode, squeue, types};

use crate::call::Step;
use crate::handover;
use crate::list::Lists;
use crate::request::{Outcome, Request, Status};
use crate::watch::Watch;

/// Requests in the kernel at most: the deepest queues of disks and network cards hold as many.
const WINDOW: usize = 256;

/// The user data of completions that do not belong to a request: the bell, and entries that need no answer (time
/// limits, cancellations).
const BELL: u64 = 0;
const IGNORED: u64 = 1;

/// The part of the ring's side that any thread may touch: the queue, the wishes to break off, and the bell.
pub(crate) struct RingQueue {
    pending: Mutex<Lists>,
    backlog: AtomicUsize,
    cancels: Mutex<Vec<*mut Request>>,
    has_cancels: AtomicBool,
    /// An eventfd: a write to it ends the driver's wait. The eventfd is made with the ring.
    bell: OnceLock<File>,
    /// True while the driver waits in the kernel, or is about to: a thread that has something to do for it rings the
    /// bell.
    asleep: AtomicBool,
    closing: AtomicBool,
    /// Decides how long the driver looks for something to do before it waits in the kernel.
    watch: Watch,
}

// SAFETY: the raw pointers point to requests, which may be handed to any thread.
unsafe impl Send for RingQueue {}
// SAFETY: threads touch the raw pointers only under the locks.
unsafe impl Sync for RingQueue {}

/// The owner of the ring: one thread makes, uses and drops it.
pub(crate) struct Driver {
    ring: IoUring,
    window: usize,
    inflight: usize,
    bell_armed: bool,
    bell_value: Box<u64>,
    /// Requests whose completion has been taken from the ring, to be passed on.
    ended: Vec<(*mut Request, Outcome)>,
    /// Requests that go into the ring once more.
    again: Vec<*mut Request>,
    enters: usize,
}

// SAFETY: a driver is moved only before its first use or with its whole context; the kernel refuses other threads.
unsafe impl Send for Driver {}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A new eventfd.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM.
pub(crate) fn eventfd(flags: i32) -> io::Result<File> {
    // SAFETY: eventfd takes no pointer.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: eventfd has just made `fd`, and nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

impl RingQueue {
    /// A queue without requests, for that number of priorities. The driver waits as `poll` says.
    pub fn new(priorities: usize, poll: Poll) -> RingQueue {
        RingQueue {
            pending: Mutex::new(Lists::new(priorities)),
            backlog: AtomicUsize::new(0),
            cancels: Mutex::new(Vec::new()),
            has_cancels: AtomicBool::new(false),
            bell: OnceLock::new(),
            asleep: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            watch: Watch::new(poll),
        }
    }

    /// Makes the bell, before the driver that is to hear it.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn make_bell(&self) -> io::Result<()> {
        let made = eventfd(0)?;
        self.bell.get_or_init(|| made);
        Ok(())
    }

    /// Requests that wait for a place in the ring.
    pub fn backlog(&self) -> usize {
        self.backlog.load(SeqCst)
    }

    /// Queues a request.
    ///
    /// # Safety
    /// The request is valid, pending and in no list, and its call fits the ring.
    pub unsafe fn push(&self, request: *mut Request) {
        let mut pending = locked(&self.pending);
        // SAFETY: by the contract of this function the request is valid and in no list.
        unsafe { pending.push(request) };
        self.backlog.store(pending.len(), SeqCst);
    }

    /// Wakes the driver if it sleeps.
    pub fn ring_bell(&self) {
        if self.asleep.swap(false, SeqCst)
            && let Some(mut bell) = self.bell.get()
        {
            self.watch.wakes();
            let _ = bell.write(&1u64.to_ne_bytes()); // fails only at 2^64 - 1 unheard rings
        }
    }

    /// Takes a request that is still pending out, marks it cancelled and returns true. Returns false if the request has
    /// begun; the driver is then asked to break it off.
    ///
    /// # Safety
    /// The request is valid and was pushed here.
    pub unsafe fn cancel(&self, request: *mut Request) -> bool {
        // SAFETY: by the contract of this function the request is valid.
        let it = unsafe { &*request };
        let mut pending = locked(&self.pending);
        if it.status() == Status::Pending {
            // SAFETY: a request that is pending under the lock is linked here.
            unsafe { pending.remove(request) };
            it.set_status(Status::Canceled);
            self.backlog.store(pending.len(), SeqCst);
            return true;
        }
        drop(pending);
        let mut cancels = locked(&self.cancels);
        // The order matters: either this thread sees Complete, or `forget` sees the wish and waits for the lock.
        let first = !it.cancel_wanted.swap(true, SeqCst);
        if first && it.status() == Status::Active {
            cancels.push(request);
            self.has_cancels.store(true, SeqCst);
            drop(cancels);
            self.ring_bell();
        }
        false
    }

    /// Removes a request that has completed from the wishes to break off: its memory may be reused.
    fn forget(&self, request: *mut Request) {
        locked(&self.cancels).retain(|&other| other != request);
    }

    /// Tells the driver to end once nothing is in flight.
    pub fn close(&self) {
        self.closing.store(true, SeqCst);
        self.ring_bell();
    }

    /// True if the driver waits in the kernel, or is about to.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(SeqCst)
    }

    /// Tells that the driver is awake: the bell need not be rung.
    pub fn woke(&self) {
        self.asleep.store(false, SeqCst);
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// Takes all pending requests out and marks them cancelled.
    pub fn drain(&self) -> Vec<*mut Request> {
        let mut pending = locked(&self.pending);
        let mut all = Vec::new();
        while let Some(request) = pending.pop() {
            // SAFETY: the request was linked, hence valid.
            unsafe { (*request).set_status(Status::Canceled) };
            all.push(request);
        }
        self.backlog.store(0, SeqCst);
        all
    }

    /// Appends the next requests that begin to `begun`, marked active.
    fn begin(&self, most: usize, begun: &mut Vec<*mut Request>) {
        let mut pending = locked(&self.pending);
        for _ in 0..most {
            let Some(request) = pending.pop() else { break };
            // SAFETY: the request was linked, hence valid.
            unsafe { (*request).set_status(Status::Active) };
            begun.push(request);
        }
        self.backlog.store(pending.len(), SeqCst);
    }
}

impl Driver {
    /// A ring for the calling thread. `entries` 0 gives the usual size; smaller sizes are for tests and tight memory
    /// limits.
    ///
    /// # Errors
    /// The errno of io_uring_setup(2), or EOPNOTSUPP on kernels that lack a feature that the driver needs (before
    /// 5.11).
    pub fn new(entries: u32) -> Result<Driver, i32> {
        let mut entries = if entries == 0 { WINDOW as u32 } else { entries.max(2) };
        let ring = loop {
            let setup = Setup { completion_entries: entries * 4, single_issuer: true, ..Setup::new(entries) };
            match setup.build() {
                Ok(ring) => break ring,
                // Locked memory is short: a smaller ring will do, too.
                Err(error) if error.source.raw_os_error() == Some(libc::ENOMEM) && entries > 8 => entries /= 4,
                Err(error) => return Err(error.source.raw_os_error().unwrap_or(libc::ENOSYS)),
            }
        };
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(libc::EOPNOTSUPP);
        }
        Ok(Driver {
            window: WINDOW.min(entries as usize),
            ring,
            inflight: 0,
            bell_armed: false,
            bell_value: Box::new(0),
            ended: Vec::with_capacity(WINDOW),
            again: Vec::new(),
            enters: 0,
        })
    }

    /// The number of requests in the kernel.
    pub fn inflight(&self) -> usize {
        self.inflight
    }

    /// The number of calls of io_uring_enter(2) since this was last asked.
    pub fn take_enters(&mut self) -> usize {
        std::mem::take(&mut self.enters)
    }

    /// Lets completions signal an eventfd.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn signal(&self, eventfd: RawFd) -> io::Result<()> {
        self.ring.submitter().register_eventfd(eventfd)
    }

    /// Moves requests from the queue into the ring, as far as the window allows, and asks for cancellations.
    pub fn fill(&mut self, queue: &RingQueue) {
        loop {
            let left = self.again.len();
            if left > 0 || queue.backlog() > 0 {
                self.fill_requests(queue);
            }
            // A call takes two entries, so the requests that go round again may not fit at once. None of them waits for
            // a completion of the others: that may never come. (The caller's submit tells an error.)
            let stuck = left > 0 && self.again.len() >= left;
            if self.again.is_empty() || stuck || self.submit().is_err() {
                break;
            }
        }
        // The cancellations follow the requests: a request that goes round again must be in the kernel to be found
        // there.
        if self.again.is_empty() && queue.has_cancels.load(SeqCst) {
            self.fill_cancels(queue);
        }
    }

    fn fill_requests(&mut self, queue: &RingQueue) {
        // A call with a time limit takes two entries, which must reach the kernel together.
        let room = {
            let submission = self.ring.submission();
            (submission.capacity() - submission.len()) / 2
        };
        let room = room.min(self.window.saturating_sub(self.inflight));
        let mut begun = std::mem::take(&mut self.again);
        let left = begun.split_off(begun.len().min(room));
        queue.begin(room - begun.len(), &mut begun);
        for &request in &begun {
            handover::acquired(request.cast());
            // SAFETY: the driver is the one owner of the request until it ends the request.
            let it = unsafe { &*request };
            // SAFETY: the driver is the one owner of the request, and so of its call, until it ends the request.
            let (entry, limit) = unsafe { &mut *it.call.get() }.entries();
            self.push(entry.user_data(request as u64));
            if let Some(limit) = limit {
                self.push(limit.user_data(IGNORED));
            }
        }
        self.inflight += begun.len();
        if !begun.is_empty() {
            queue.watch.saw();
        }
        begun.clear();
        begun.extend(left);
        self.again = begun;
    }

    fn fill_cancels(&mut self, queue: &RingQueue) {
        let mut cancels = locked(&queue.cancels);
        queue.has_cancels.store(false, SeqCst);
        while let Some(request) = cancels.pop() {
            if self.ring.submission().is_full() {
                cancels.push(request);
                queue.has_cancels.store(true, SeqCst);
                return;
            }
            self.push(opcode::AsyncCancel::new(request as u64).build().user_data(IGNORED));
        }
    }

    /// Asks the kernel to break off everything that is in flight.
    pub fn cancel_all(&mut self) {
        if !self.ring.submission().is_full() {
            let all = types::CancelBuilder::any().all();
            self.push(opcode::AsyncCancel2::new(all).build().user_data(IGNORED));
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the entry points to memory in the request (the submitter's promise) or in this driver, which stays
        // until the completion has been taken.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "room was checked");
    }

    /// Gives the submission queue to the kernel; does not wait.
    ///
    /// # Errors
    /// The error that makes the ring useless.
    pub fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.enters += 1;
        forgive(self.ring.submit().map(drop))
    }

    /// Lets the kernel finish the requests that are due, without waiting.
    ///
    /// # Errors
    /// The error that makes the ring useless.
    pub fn poll(&mut self) -> io::Result<()> {
        if self.inflight == 0 && self.ring.submission().is_empty() {
            return Ok(());
        }
        if !self.ring.completion().is_empty() || !self.ring.submission().taskrun() {
            return self.submit();
        }
        self.enters += 1;
        let queued = self.ring.submission().len() as u32;
        const GETEVENTS: u32 = 1;
        // SAFETY: the call passes no signal mask.
        let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, GETEVENTS, None) };
        forgive(entered.map(drop))
    }

    /// Looks for something to do, as long as that costs less than a sleep: completions, requests and wishes of other
    /// threads, and whatever the caller `also` waits for. Submits first. Returns true if there is something.
    ///
    /// # Errors
    /// The error that makes the ring useless.
    pub fn look(&mut self, queue: &RingQueue, mut also: impl FnMut() -> bool) -> io::Result<bool> {
        if !queue.watch.looks() {
            return Ok(false);
        }
        self.submit()?;
        let mut found = false;
        queue.watch.look(|| {
            found = self.has_news() || self.is_wanted(queue) || queue.is_closing() || also();
            found
        });
        Ok(found)
    }

    /// True if there are completions, or work of the kernel's that this thread has to finish.
    fn has_news(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().taskrun()
    }

    /// True if a request waits that has a place in the ring, or a wish to break one off.
    fn is_wanted(&self, queue: &RingQueue) -> bool {
        self.inflight < self.window && queue.backlog() > 0 || queue.has_cancels.load(SeqCst)
    }

    /// Submits and waits for `want` completions, or the bell, or the limit. Returns true if a signal ended the wait.
    ///
    /// The caller has announced its sleep ([`Driver::announce_sleep`]) if others may want to wake it.
    ///
    /// # Errors
    /// The error that makes the ring useless.
    pub fn wait(&mut self, want: usize, limit: Option<Duration>) -> io::Result<bool> {
        self.enters += 1;
        let waited = match limit {
            None => self.ring.submit_and_wait(want),
            Some(limit) => {
                let limit = types::Timespec::from(limit);
                self.ring.submitter().submit_with_args(want, &types::SubmitArgs::new().timespec(&limit))
            }
        };
        match waited {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(true),
            other => forgive(other.map(drop)).map(|()| false),
        }
    }

    /// Announces that the driver is about to wait: from here on the bell is rung. Returns false if the driver has
    /// something to do instead.
    pub fn announce_sleep(&mut self, queue: &RingQueue) -> bool {
        if !self.bell_armed {
            if self.ring.submission().is_full() {
                return false;
            }
            let Some(bell) = queue.bell.get() else { return false };
            let place: *mut u64 = &mut *self.bell_value;
            let read = opcode::Read::new(types::Fd(bell.as_raw_fd()), place.cast(), 8);
            self.push(read.build().user_data(BELL));
            self.bell_armed = true;
        }
        queue.asleep.store(true, SeqCst);
        if self.is_wanted(queue) {
            queue.asleep.store(false, SeqCst);
            return false;
        }
        true
    }

    /// Takes the completions that are there and passes the requests that ended to `pass_on`.
    pub fn reap(&mut self, queue: &RingQueue, mut pass_on: impl FnMut(&mut Vec<(*mut Request, Outcome)>)) {
        let (mut bell, mut ended, mut again) =
            (false, std::mem::take(&mut self.ended), std::mem::take(&mut self.again));
        let mut taken = 0;
        for completion in self.ring.completion() {
            let request = match completion.user_data() {
                BELL => {
                    bell = true;
                    continue;
                }
                IGNORED => continue,
                pointer => pointer as *mut Request,
            };
            taken += 1;
            // SAFETY: the driver is the one owner of the request until it ends the request.
            let it = unsafe { &*request };
            // SAFETY: the driver is the one owner of the request, and so of its call, until it ends the request.
            match unsafe { &mut *it.call.get() }.step(completion.result(), it.cancel_wanted.load(SeqCst)) {
                Step::Again if !it.cancel_wanted.load(SeqCst) => again.push(request),
                Step::Again => ended.push((request, Outcome::failed(libc::EINTR))),
                Step::Done(outcome) => ended.push((request, outcome)),
            }
        }
        self.inflight -= taken;
        if taken > 0 {
            queue.watch.saw();
        }
        if bell {
            self.bell_armed = false;
        }
        self.again = again;
        if !ended.is_empty() {
            for &(request, outcome) in &ended {
                // SAFETY: the driver is the one owner of the request until it passes the request on.
                let it = unsafe { &*request };
                it.finish(outcome);
                if it.cancel_wanted.load(SeqCst) {
                    queue.forget(request);
                }
            }
            pass_on(&mut ended);
            ended.clear();
        }
        self.ended = ended;
    }

    /// Takes the bell out of the ring, so that the kernel writes nothing any more once the ring is dropped.
    pub fn disarm(&mut self, queue: &RingQueue) {
        while self.bell_armed {
            queue.asleep.store(true, SeqCst);
            queue.ring_bell();
            if self.wait(1, None).is_err() {
                return;
            }
            self.reap(queue, |_| ());
        }
    }

    /// True if nothing is left to do: nothing in flight, nothing to be submitted again.
    pub fn is_idle(&self) -> bool {
        self.inflight == 0 && self.again.is_empty()
    }
}

/// Turns interruptions into success: a signal, the end of the time, or a kernel that is short of memory for the moment.
/// They are not errors, because the caller comes back.
fn forgive(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY)) => {
            Ok(())
        }
        other => other,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::ptr;

    use super::*;
    use crate::call::{Call, SocketCall, SocketKind};

    /// More requests go round again than fit into the ring at once. Those that did not fit would wait for a completion
    /// of the others, and a cancellation would not find them in the kernel.
    #[test]
    fn every_request_that_goes_round_again_is_in_the_ring_after_one_turn() {
        const REQUESTS: usize = 8;
        let queue = RingQueue::new(1, Poll::Never);
        let Ok(mut driver) = Driver::new(REQUESTS as u32) else {
            return println!("skipped: no io_uring here");
        };
        let sockets: Vec<_> = (0..REQUESTS).map(|_| UnixDatagram::pair().unwrap()).collect();
        let mut bytes = [0u8; REQUESTS];
        let receive = |socket: &UnixDatagram, byte: &mut u8| {
            let (from, from_len) = (ptr::null_mut(), ptr::null_mut());
            let kind = SocketKind::Receive { buffer: byte, len: 1, flags: libc::MSG_DONTWAIT, from, from_len };
            let call = Call::Socket(Box::new(SocketCall::new(socket.as_raw_fd(), kind, -1)));
            Box::into_raw(Box::new(Request::new(ptr::null(), 0, call)))
        };
        let requests: Vec<_> = sockets.iter().zip(&mut bytes).map(|((near, _), byte)| receive(near, byte)).collect();
        for &request in &requests {
            // SAFETY: the request is fresh and in no list.
            unsafe { queue.push(request) };
        }
        let mut ended = 0;
        let mut turn = |driver: &mut Driver| {
            driver.fill(&queue);
            driver.poll().unwrap();
            driver.reap(&queue, |done| ended += done.len());
        };
        let polls = |request: &*mut Request| {
            // SAFETY: this thread is the driver, the one owner of the request.
            let it = unsafe { &**request };
            // SAFETY: this thread is the driver, the one owner of the request, and so of its call.
            let call = unsafe { &*it.call.get() };
            matches!(call, Call::Socket(socket) if socket.waits_for_readiness())
        };
        while !(requests.iter().all(polls) && driver.again.is_empty()) {
            turn(&mut driver);
        }
        sockets.iter().for_each(|(_, far)| assert_eq!(far.send(b"x").unwrap(), 1));
        driver.wait(REQUESTS, Some(Duration::from_secs(10))).unwrap();
        driver.reap(&queue, |done| assert!(done.is_empty()));
        assert_eq!(driver.again.len(), REQUESTS);
        driver.fill(&queue);
        assert_eq!((driver.again.len(), driver.inflight()), (0, REQUESTS));
        while driver.inflight() > 0 {
            driver.wait(1, Some(Duration::from_secs(10))).unwrap();
            driver.reap(&queue, |done| ended += done.len());
        }
        assert_eq!((ended, bytes), (REQUESTS, [b'x'; REQUESTS]));
        for request in requests {
            // SAFETY: the driver has ended the request, and the box made it.
            drop(unsafe { Box::from_raw(request) });
        }
    }
}

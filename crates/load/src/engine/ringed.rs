//! The engines that drive a ring of io_uring(7): the ring, its counts, and everything that does not depend on the form
//! of the ops in it.
//!
//! One ring a clone, driven by the clone's thread alone. Reads of cached data complete within the submitting call,
//! and their completions are taken from shared memory: such a batch costs one system call.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use job::Job;
use pace::Poll;
use sys::clock::monotonic_ns;
use sys::ring::{self, ENTER_GETEVENTS, ENTER_SQ_WAKEUP, Ring, cqueue, squeue, types};

use super::looking::{Looked, Looking, poll_of};
use super::{Completion, Engine, Queued, Request, Setup, Slots};
use crate::Error;

/// Entries of the submission queue at most: a batch larger than this is submitted in parts.
const SUBMISSION_LIMIT: u32 = 4096;
/// The kernel registers no larger buffer (io_uring_register(2)).
const REGISTERED_BYTES: usize = 1 << 30;
/// Milliseconds until the kernel's polling thread sleeps; io_uring_setup(2) says 1000 where nothing is given.
const SQPOLL_IDLE_MS: u32 = 1000;

/// The form that an engine's ops have in the ring's entries.
pub(super) trait Form: Send {
    /// Entries of the submission queue.
    type Entry: squeue::EntryMarker;
    /// Entries of the completion queue.
    type Completed: cqueue::EntryMarker;

    /// Makes `fd` known as file `file`.
    ///
    /// # Errors
    /// The ops cannot be carried out on this file.
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()>;

    /// Forgets file `file`.
    fn close(&mut self, file: u32);

    /// Hands the entry of a request to `push`, and returns its answer: true if the queue had room. `None` for an op
    /// that [`Form::carry_out`] has to carry out. The lower half of the `user_data` is the slot's number. The memory
    /// that the entry points to stays where it is until the completion. `to_worker`: a worker of the kernel carries the
    /// op out (IOSQE_ASYNC).
    fn put(
        &mut self,
        request: &Request,
        slots: &Slots,
        to_worker: bool,
        push: impl FnOnce(&Self::Entry) -> bool,
    ) -> Option<bool>;

    /// Carries out an op without the ring, and returns its result.
    fn carry_out(&mut self, request: &Request) -> i64;

    /// The result of an op, from the `user_data` and the result of its completion.
    fn result(&mut self, data: u64, result: i32) -> i64;

    /// Keeps the memory that entries point to for ever: the kernel may still use it.
    fn leak(&mut self);
}

/// The slots, registered with the kernel as few large buffers.
#[derive(Clone, Copy)]
pub(super) struct Registered {
    slots_per_buffer: u32,
}

impl Registered {
    pub fn of(slots: &Slots) -> Registered {
        Registered { slots_per_buffer: (REGISTERED_BYTES / slots.stride()).max(1) as u32 }
    }

    /// The number of the buffer that a slot lies in.
    #[inline(always)]
    pub fn buffer(self, slot: u32) -> u16 {
        if slot < self.slots_per_buffer { 0 } else { (slot / self.slots_per_buffer) as u16 }
    }
}

/// The ring that a job asks for, with entries of the engine's size.
///
/// # Errors
/// There is no io_uring here, or not of this kind.
pub(super) fn open<F: Form>(setup: &Setup) -> Result<Ring<F::Entry, F::Completed>, Error> {
    let options = &setup.job.ring;
    let depth = setup.depth.max(1);
    let ring_setup = ring::Setup {
        entries: depth.min(SUBMISSION_LIMIT),
        completion_entries: depth.max(2),
        single_issuer: true,
        sqpoll_idle_ms: options.sq_poll.then_some(SQPOLL_IDLE_MS),
        sqpoll_cpu: options.sq_poll_cpu.filter(|_| options.sq_poll),
        iopoll: options.hipri,
    };
    ring_setup.open().map_err(|unavailable| {
        let hint = format!("{}: use ioengine=libaio or psync", unavailable.reason);
        Error::system("cannot start io_uring for job", &setup.job.name, unavailable.source).hint(hint)
    })
}

/// An engine on a ring.
pub(super) struct Ringed<F: Form> {
    ring: Ring<F::Entry, F::Completed>,
    /// Entries pushed and not yet taken by the kernel.
    queued: u32,
    /// Entries taken by the kernel and not yet reaped. With a polling thread: entries pushed and not yet reaped.
    in_flight: u32,
    depth: u32,
    register_files: bool,
    sqpoll: bool,
    iopoll: bool,
    /// `force_async`: every this many ops, one goes to a worker of the kernel; 0: none.
    force_async: u32,
    /// Ops since the last one that was forced to a worker.
    since_forced: u32,
    /// Decides whether a wait for one completion looks for it or sleeps.
    looking: Looking,
    slots: Arc<Slots>,
    form: F,
}

impl<F: Form> Ringed<F> {
    /// The engine on a ring of [`open`], with the buffers and the table of files registered that the job asks for.
    ///
    /// # Errors
    /// The kernel registers no more buffers or files.
    pub fn new(setup: &Setup, ring: Ring<F::Entry, F::Completed>, form: F) -> Result<Ringed<F>, Error> {
        let options = &setup.job.ring;
        let engine = Ringed {
            ring,
            queued: 0,
            in_flight: 0,
            depth: setup.depth.max(1),
            register_files: options.register_files,
            sqpoll: options.sq_poll,
            iopoll: options.hipri,
            force_async: options.force_async,
            since_forced: 0,
            looking: Looking::new(poll_of(setup.job, Poll::Never)),
            slots: Arc::clone(&setup.slots),
            form,
        };
        if options.fixed_buffers {
            engine.register_buffers(setup.job)?;
        }
        if options.register_files {
            engine.register_files(setup)?;
        }
        Ok(engine)
    }

    /// Registers all slots as few large buffers: one look-up and a few cache lines serve every op.
    fn register_buffers(&self, job: &Job) -> Result<(), Error> {
        let (count, step) = (self.slots.count(), Registered::of(&self.slots).slots_per_buffer);
        let buffers: Vec<libc::iovec> = (0..count)
            .step_by(step as usize)
            .map(|first| libc::iovec {
                iov_base: self.slots.pointer(first).cast(),
                iov_len: self.slots.stride() * step.min(count - first) as usize,
            })
            .collect();
        // SAFETY: the buffers are the slots' memory, which the engine's drop keeps alive until the ring is empty.
        let registered = unsafe { self.ring.submitter().register_buffers(&buffers) };
        registered.map_err(|error| {
            let hint = match error.raw_os_error() {
                Some(libc::ENOMEM) => {
                    "not enough locked memory: raise ulimit -l, lower iodepth or bs, or drop fixedbufs"
                }
                _ => "drop fixedbufs",
            };
            Error::system("cannot register buffers for job", &job.name, error).hint(hint)
        })
    }

    fn register_files(&self, setup: &Setup) -> Result<(), Error> {
        let submitter = self.ring.submitter();
        let registered = submitter
            .register_files_sparse(setup.files)
            .or_else(|_| submitter.register_files(&vec![-1; setup.files as usize])); // before 5.19
        registered.map_err(|error| {
            let hint = "raise ulimit -n, set openfiles=, or drop registerfiles";
            Error::system("cannot register files for job", &setup.job.name, error).hint(hint)
        })
    }

    /// Takes completions from shared memory, `max` at most, and returns how many.
    #[inline]
    fn take(&mut self, max: usize, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        let mut queue = self.ring.completion();
        while done.len() - before < max {
            let Some(entry) = queue.next() else { break };
            let entry: cqueue::Entry = entry.into();
            let (data, result) = (entry.user_data(), entry.result());
            let result = self.form.result(data, result);
            // The kernel has posted the one completion of this slot's request: nobody else has its token.
            done.push(Completion { slot: self.slots.reclaim(data as u32), result });
        }
        drop(queue);
        let taken = done.len() - before;
        self.in_flight -= taken as u32;
        taken
    }

    /// Submits `self.queued` entries and waits for `wait` completions. Returns how many entries the kernel took.
    fn enter(&mut self, wait: u32, timeout_ns: Option<u64>) -> io::Result<u32> {
        let mut flags = if wait > 0 || (self.iopoll && self.in_flight > 0) { ENTER_GETEVENTS } else { 0 };
        let submit = self.queued;
        if self.sqpoll {
            self.queued = 0;
            if self.ring.submission().need_wakeup() {
                flags |= ENTER_SQ_WAKEUP;
            }
            if flags != 0 {
                // The polling thread takes entries without being asked: the returned number means nothing.
                passing(self.ring.enter(submit, wait, flags, timeout_ns))?;
            }
            return Ok(submit);
        }
        let taken = passing(self.ring.enter(submit, wait, flags, timeout_ns))?.min(submit);
        self.queued -= taken;
        self.in_flight += taken;
        Ok(taken)
    }

    /// Looks for a completion as the job's `poll=` says. A ring that polls the device looks by itself.
    #[inline]
    fn look(&mut self, wanted: usize, deadline_ns: Option<u64>) -> io::Result<Looked> {
        if self.iopoll {
            return Ok(Looked::Sleep);
        }
        let ring = &mut self.ring;
        self.looking.look(wanted, deadline_ns, || {
            // The device has finished, and left the rest of the work to this thread.
            if ring.submission().taskrun() {
                passing(ring.enter(0, 0, ENTER_GETEVENTS, None))?;
            }
            Ok(!ring.completion().is_empty())
        })
    }

    fn reap_until(
        &mut self,
        min: usize,
        max: usize,
        deadline_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> io::Result<()> {
        let min = min.min(max).min(self.in_flight as usize);
        let mut taken = self.take(max, done);
        if taken > 0 {
            self.looking.found();
        }
        if taken >= min {
            // Polling: completions may wait for this thread to run them, or for the device to be asked.
            let idle = taken == 0 && self.in_flight > 0;
            if idle && (self.iopoll || self.ring.submission().taskrun()) {
                passing(self.ring.enter(0, 0, ENTER_GETEVENTS, None))?;
                self.take(max, done);
            }
            return Ok(());
        }
        loop {
            match self.look(min - taken, deadline_ns)? {
                Looked::Sleep => {}
                Looked::Found => {
                    taken += self.take(max - taken, done);
                    if taken >= min {
                        return Ok(());
                    }
                    continue;
                }
                Looked::Late => return Ok(()),
            }
            let remaining = deadline_ns.map(|deadline| deadline.saturating_sub(monotonic_ns()));
            let mut flags = ENTER_GETEVENTS;
            if self.sqpoll && self.ring.submission().need_wakeup() {
                flags |= ENTER_SQ_WAKEUP;
            }
            let waited = self.ring.enter(0, (min - taken) as u32, flags, remaining);
            let came = self.take(max - taken, done);
            if came > 0 {
                self.looking.found();
            }
            taken += came;
            match waited {
                _ if taken >= min || remaining == Some(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return passing(Err(error)).map(drop), // interrupted, or late: return what is there
            }
        }
    }
}

/// Turns the errors of io_uring_enter that only mean "not now" into 0: nothing was submitted.
#[inline]
fn passing(entered: io::Result<u32>) -> io::Result<u32> {
    match entered {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ETIME)) => {
            Ok(0)
        }
        other => other,
    }
}

impl<F: Form> Engine for Ringed<F> {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.form.open(file, fd)?;
        if self.register_files {
            self.ring.submitter().register_files_update(file, &[fd])?;
        }
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.form.close(file);
        if self.register_files {
            // Clearing an entry of the table cannot fail; if it did, the next open() would overwrite the entry.
            let _ = self.ring.submitter().register_files_update(file, &[-1]);
        }
    }

    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        let waiting = if self.sqpoll { 0 } else { self.queued };
        if waiting + self.in_flight >= self.depth {
            return Queued::Full(request);
        }
        let to_worker = self.force_async > 0 && self.since_forced + 1 >= self.force_async;
        let ring = &mut self.ring;
        let put = self.form.put(&request, &self.slots, to_worker, |entry| {
            // SAFETY: the entry points into the slot and into memory of the form, which stay where they are until the
            // completion: the engine holds both, and drop waits for the kernel.
            unsafe { ring.submission().push(entry) }.is_ok()
        });
        match put {
            Some(true) => {}
            Some(false) => return Queued::Full(request),
            None => {
                let result = self.form.carry_out(&request);
                return Queued::Done(Completion { slot: request.slot, result });
            }
        }
        if self.force_async > 0 {
            self.since_forced = if to_worker { 0 } else { self.since_forced + 1 };
        }
        self.queued += 1;
        if self.sqpoll {
            self.in_flight += 1; // the polling thread may have taken it already
        }
        Queued::Later
    }

    #[inline]
    fn submit(&mut self) -> io::Result<usize> {
        if self.queued == 0 {
            return Ok(0);
        }
        self.enter(0, None).map(|taken| taken as usize)
    }

    #[inline]
    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        self.reap_until(min, max, timeout_ns.map(|timeout| monotonic_ns().saturating_add(timeout)), done)
    }

    fn submit_and_reap(
        &mut self,
        min: usize,
        max: usize,
        timeout_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        let deadline = timeout_ns.map(|timeout| monotonic_ns().saturating_add(timeout));
        let all = if self.sqpoll { self.in_flight } else { self.queued + self.in_flight };
        let ready = self.ring.completion().len();
        let wait = min.min(max).min(all as usize).saturating_sub(ready);
        let submitted = if self.queued > 0 { self.enter(wait as u32, timeout_ns)? } else { 0 };
        self.reap_until(min, max, deadline, done)?;
        Ok(submitted as usize)
    }
}

impl<F: Form> Drop for Ringed<F> {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            return;
        }
        // Requests on pipes and the like may never complete: they are cancelled. Requests that the device has cannot be
        // cancelled, and end by themselves. The loop cancels again and again: a polling thread may not have seen an
        // entry yet at the first attempt.
        const PATIENCE_NS: u64 = 10_000_000;
        let patience = types::Timespec::new().nsec(PATIENCE_NS as u32);
        let mut done = Vec::new();
        while self.in_flight > 0 {
            let _ = self.ring.submitter().register_sync_cancel(Some(patience), types::CancelBuilder::any());
            let deadline = monotonic_ns() + PATIENCE_NS;
            let waited = self.reap_until(self.in_flight as usize, usize::MAX, Some(deadline), &mut done);
            done.clear();
            if waited.is_err() {
                // The kernel may still write into the slots: they must outlive this process's use of the ring.
                std::mem::forget(Arc::clone(&self.slots));
                self.form.leak();
                return;
            }
        }
    }
}

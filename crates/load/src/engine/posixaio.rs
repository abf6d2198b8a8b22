//! The engine `posixaio`: aio(7) of the C library, which glibc carries out by threads.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use job::workload::OpKind;
use measure::Direction;

use super::blocking::{self, Flags, last_errno};
use super::descriptors::Descriptors;
use super::{Completion, Engine, Queued, Request, Setup, Slot, Slots};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(PosixAio {
        slots: Arc::clone(&setup.slots),
        fds: Descriptors::new(setup.files),
        depth: setup.depth as usize,
        flights: Vec::with_capacity(setup.depth as usize),
        done: Vec::with_capacity(setup.depth as usize),
        queued: Vec::with_capacity(setup.depth as usize),
        flags: Flags::of(setup.job),
    }))
}

struct PosixAio {
    slots: Arc<Slots>,
    fds: Descriptors,
    depth: usize,
    /// Requests that the C library has.
    flights: Vec<Flight>,
    /// Requests that were carried out in the call: trims and sync_file_range, for which aio has no form.
    done: Vec<Completion>,
    /// Requests that wait for the next submission.
    queued: Vec<Request>,
    flags: Flags,
}

struct Flight {
    /// The library keeps a pointer to it until the request has ended: it must not move.
    control: Box<libc::aiocb>,
    slot: Slot,
}

// SAFETY: the pointers in a control block lead into the slot of the same flight, which travels with it.
unsafe impl Send for Flight {}

impl PosixAio {
    /// Hands a request to the library. Err: the errno of a refusal.
    fn begin(&mut self, request: Request) -> Result<(), (Slot, i32)> {
        // SAFETY: aiocb is a C structure for which zeros are valid: no notification, priority 0.
        let mut control: Box<libc::aiocb> = Box::new(unsafe { std::mem::zeroed() });
        let memory = self.slots.place(&request);
        control.aio_fildes = self.fds.of(request.file);
        control.aio_buf = memory.cast();
        control.aio_nbytes = request.len as usize;
        control.aio_offset = request.offset as i64;
        control.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        let block: *mut libc::aiocb = &raw mut *control;
        let started = match request.kind {
            // SAFETY: the block and the bytes at memory stay where they are until aio_return: the flight owns both.
            OpKind::Io(Direction::Read) => unsafe { libc::aio_read(block) },
            // SAFETY: as for aio_read.
            OpKind::Io(_) => unsafe { libc::aio_write(block) },
            // SAFETY: as for aio_read; a sync looks at no buffer.
            OpKind::DataSync => unsafe { libc::aio_fsync(libc::O_DSYNC, block) },
            // SAFETY: as for aio_read; a sync looks at no buffer.
            _ => unsafe { libc::aio_fsync(libc::O_SYNC, block) },
        };
        if started != 0 {
            return Err((request.slot, last_errno()));
        }
        self.flights.push(Flight { control, slot: request.slot });
        Ok(())
    }

    /// Moves requests that have ended to `done`, at most `max`.
    fn collect(&mut self, max: usize, done: &mut Vec<Completion>) {
        let ready = self.done.len().min(max);
        done.extend(self.done.drain(..ready));
        let (mut taken, mut index) = (ready, 0);
        while index < self.flights.len() && taken < max {
            let control: *mut libc::aiocb = &raw mut *self.flights[index].control;
            // SAFETY: the block was given to the library, and aio_return was not called for it.
            let error = unsafe { libc::aio_error(control) };
            if error == libc::EINPROGRESS {
                index += 1;
                continue;
            }
            // SAFETY: the request has ended: this is the one call that takes its result.
            let returned = unsafe { libc::aio_return(control) };
            let result = if error == 0 { returned as i64 } else { -i64::from(error) };
            done.push(Completion { slot: self.flights.swap_remove(index).slot, result });
            taken += 1;
        }
    }

    /// Waits until a request ends, or until the time is over.
    fn suspend(&self, limit: Option<Duration>) {
        let blocks: Vec<*const libc::aiocb> =
            self.flights.iter().map(|flight| (&raw const *flight.control).cast()).collect();
        let time = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos() as libc::c_long,
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: each block is one that the library has; blocks and time live until the call returns. An early return,
        // by a signal or at the limit, is as good: the caller looks at each request.
        unsafe { libc::aio_suspend(blocks.as_ptr(), blocks.len() as libc::c_int, time) };
    }
}

impl Engine for PosixAio {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.fds.open(file, fd);
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.fds.close(file);
    }

    fn queue(&mut self, request: Request) -> Queued {
        if self.queued.len() + self.flights.len() + self.done.len() >= self.depth {
            return Queued::Full(request);
        }
        self.queued.push(request);
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        let requests = std::mem::take(&mut self.queued);
        let taken = requests.len();
        for request in requests {
            match request.kind {
                OpKind::Io(Direction::Trim) | OpKind::SyncRange => {
                    let fd = self.fds.of(request.file);
                    let result = blocking::carry_out(fd, request.kind, request.offset, request.len, self.flags);
                    self.done.push(Completion { slot: request.slot, result });
                }
                _ => {
                    if let Err((slot, errno)) = self.begin(request) {
                        self.done.push(Completion { slot, result: -i64::from(errno) });
                    }
                }
            }
        }
        Ok(taken)
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let (before, min) = (done.len(), min.min(max));
        let until = timeout_ns.map(|ns| Instant::now() + Duration::from_nanos(ns));
        loop {
            let have = done.len() - before;
            self.collect(max - have.min(max), done);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if done.len() - before >= min || self.flights.is_empty() || left == Some(Duration::ZERO) {
                return Ok(());
            }
            self.suspend(left);
        }
    }
}

impl Drop for PosixAio {
    /// Waits for the requests in flight: the library writes into their buffers until they have ended.
    fn drop(&mut self) {
        for flight in &mut self.flights {
            // By its block: the number of the file may mean a file of another engine by now, with requests of its own.
            let (file, block) = (flight.control.aio_fildes, &raw mut *flight.control);
            // SAFETY: the library has the block. The loop waits for the requests that go on.
            unsafe { libc::aio_cancel(file, block) };
        }
        let mut ended = Vec::new();
        loop {
            self.collect(usize::MAX, &mut ended);
            if self.flights.is_empty() {
                return;
            }
            self.suspend(None);
        }
    }
}

//! The engines whose system call returns when the op is done: depth 1, whatever the job asks for.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use job::workload::OpKind;
use job::workload::random::{Random, mix};
use measure::Direction;
use sys::interrupted::repeated_c;

use super::blocking::{self, Flags, last_errno};
use super::descriptors::Descriptors;
use super::{Completion, Engine, Queued, Request, Setup, Slots};
use crate::Error;

/// Makes the engine that carries ops out by the system calls `C`.
pub(super) fn make<C: Call>(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Blocking::<C>::new(setup)))
}

/// The arguments of one read or write, as the system calls take them.
pub(super) struct Transfer {
    fd: RawFd,
    write: bool,
    memory: *mut u8,
    len: usize,
    offset: i64,
    rwf: i32,
}

impl Transfer {
    fn vector(&self) -> libc::iovec {
        libc::iovec { iov_base: self.memory.cast(), iov_len: self.len }
    }
}

/// The system call that makes a transfer.
///
/// The implementations share the buffer contract, which `Call::call` states under Safety.
pub(super) trait Call: Send + 'static {
    /// True if the system call starts at the descriptor's own file position.
    const SEEKS: bool = false;

    /// Makes the system call; returns bytes, or -1 with errno set.
    ///
    /// # Safety
    /// The buffer contract: `memory` is valid for `len` bytes, and nobody else touches them during the call.
    unsafe fn call(transfer: &Transfer) -> isize;
}

pub(super) struct Positioned;
impl Call for Positioned {
    #[inline]
    unsafe fn call(t: &Transfer) -> isize {
        if t.write {
            // SAFETY: `memory` is valid for `len` bytes: the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::pwrite64(t.fd, t.memory.cast(), t.len, t.offset) }
        } else {
            // SAFETY: `memory` is valid for `len` bytes: the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::pread64(t.fd, t.memory.cast(), t.len, t.offset) }
        }
    }
}

pub(super) struct Seeking;
impl Call for Seeking {
    const SEEKS: bool = true;
    unsafe fn call(t: &Transfer) -> isize {
        if t.write {
            // SAFETY: `memory` is valid for `len` bytes: the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::write(t.fd, t.memory.cast(), t.len) }
        } else {
            // SAFETY: `memory` is valid for `len` bytes: the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::read(t.fd, t.memory.cast(), t.len) }
        }
    }
}

pub(super) struct SeekingVectored;
impl Call for SeekingVectored {
    const SEEKS: bool = true;
    unsafe fn call(t: &Transfer) -> isize {
        let vector = t.vector();
        if t.write {
            // SAFETY: one vector, for the bytes of which the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::writev(t.fd, &vector, 1) }
        } else {
            // SAFETY: one vector, for the bytes of which the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::readv(t.fd, &vector, 1) }
        }
    }
}

pub(super) struct PositionedVectored;
impl Call for PositionedVectored {
    unsafe fn call(t: &Transfer) -> isize {
        let vector = t.vector();
        if t.write {
            // SAFETY: one vector, for the bytes of which the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::pwritev64(t.fd, &vector, 1, t.offset) }
        } else {
            // SAFETY: one vector, for the bytes of which the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::preadv64(t.fd, &vector, 1, t.offset) }
        }
    }
}

pub(super) struct Flagged;
impl Call for Flagged {
    unsafe fn call(t: &Transfer) -> isize {
        let vector = t.vector();
        if t.write {
            // SAFETY: one vector, for the bytes of which the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::pwritev2(t.fd, &vector, 1, t.offset, t.rwf) }
        } else {
            // SAFETY: one vector, for the bytes of which the caller upholds the buffer contract of `Call::call`.
            unsafe { libc::preadv2(t.fd, &vector, 1, t.offset, t.rwf) }
        }
    }
}

struct Blocking<C> {
    slots: Arc<Slots>,
    fds: Descriptors,
    /// The position of each file's descriptor; -1 when unknown. Only engines that seek use it.
    positions: Vec<i64>,
    flags: Flags,
    /// `hipri_percentage`: draws the ops that are polled for. None: all, if any.
    polled: Option<(Random, f64)>,
    call: std::marker::PhantomData<C>,
}

impl<C: Call> Blocking<C> {
    fn new(setup: &Setup) -> Blocking<C> {
        let files = setup.files as usize;
        Blocking {
            slots: Arc::clone(&setup.slots),
            fds: Descriptors::new(setup.files),
            positions: vec![-1; files],
            flags: Flags::of(setup.job),
            polled: setup.job.ring.hipri_percent.map(|percent| {
                let seed = setup.job.clone_seed(setup.clone);
                (Random::new(mix(seed ^ mix(11))), f64::from(percent) / 100.0)
            }),
            call: std::marker::PhantomData,
        }
    }

    #[inline]
    fn transfer(&mut self, request: &Request, direction: Direction) -> i64 {
        let file = request.file as usize;
        let memory = self.slots.place(request);
        let is_polled = self.polled.as_mut().is_none_or(|(random, share)| random.unit() < *share);
        let write = direction == Direction::Write;
        let flags = if is_polled { self.flags } else { self.flags.without_hipri() };
        let transfer = Transfer {
            fd: self.fds.of(request.file),
            write,
            memory,
            len: request.len as usize,
            offset: request.offset as i64,
            rwf: flags.of_transfer(write),
        };
        if C::SEEKS && self.positions[file] != transfer.offset {
            // SAFETY: lseek takes no memory.
            if unsafe { libc::lseek64(transfer.fd, transfer.offset, libc::SEEK_SET) } < 0 {
                return -i64::from(last_errno());
            }
        }
        let result = repeated_c(|| {
            // SAFETY: memory is valid for len bytes, by Slots::place, and the slot's token is in this call.
            (unsafe { C::call(&transfer) }) as i64
        });
        if C::SEEKS {
            self.positions[file] = if result >= 0 { transfer.offset + result } else { -1 };
        }
        result
    }
}

impl<C: Call> Engine for Blocking<C> {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.fds.open(file, fd);
        self.positions[file as usize] = -1;
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.fds.close(file);
    }

    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        let result = match request.kind {
            OpKind::Io(direction @ (Direction::Read | Direction::Write)) => self.transfer(&request, direction),
            kind => blocking::carry_out(self.fds.of(request.file), kind, request.offset, request.len, self.flags),
        };
        Queued::Done(Completion { slot: request.slot, result })
    }

    fn submit(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    fn reap(&mut self, _min: usize, _max: usize, _timeout: Option<u64>, _done: &mut Vec<Completion>) -> io::Result<()> {
        Ok(())
    }
}

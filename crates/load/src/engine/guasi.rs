//! guasi: the project's own asynchronous calls, through the same interface that programs use.
//!
//! io_uring with a bounded window where there is io_uring, a pool of threads where there is none; syncs of ranges and
//! trims are functions for the pool in either case. The context is driven by the clone's thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use guasi::{Config, Drive, Guasi, IoBuf};
use job::workload::OpKind;
use measure::Direction;
use pace::Poll;

use super::blocking::{self, Flags};
use super::looking::poll_of;
use super::{Completion, Engine, Queued, Request, Setup, Slot, Slots};
use crate::Error;

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    Ok(Box::new(Asynchronous::new(setup)?))
}

/// The part of a slot that a request transfers, together with the slot's token.
struct Lent {
    slot: Slot,
    start: *mut u8,
    len: usize,
    /// Keeps the memory of all slots.
    _slots: Arc<Slots>,
}

// SAFETY: the pointer is into the slot's memory, which any thread that holds the slot's token may use; `slot` is that
// token and moves with the pointer.
unsafe impl Send for Lent {}

// SAFETY: slots never move, `_slots` keeps their memory, and `slot` is the only token of this slot.
unsafe impl IoBuf for Lent {
    fn region(&mut self) -> (*mut u8, usize) {
        (self.start, self.len)
    }
}

/// A descriptor that the runner keeps open while requests on it are in flight ([`Engine::close`]).
#[derive(Clone, Copy)]
struct Open(RawFd);

impl AsFd for Open {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the runner keeps the descriptor open while requests on it are in flight, by the contract of
        // `Engine::close`. A closed file has the number `CLOSED`, on which every call returns EBADF.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// A number that no process has as a descriptor, and that BorrowedFd takes.
const CLOSED: RawFd = i32::MAX;

struct Asynchronous {
    guasi: Guasi<Lent, Open>,
    slots: Arc<Slots>,
    /// The descriptor of each file, by its number; `CLOSED` while the file is closed.
    files: Vec<Open>,
    flags: Flags,
    depth: usize,
    queued: Vec<Request>,
    in_flight: usize,
    /// Requests that ended at once, because the context did not take them.
    refused: Vec<Completion>,
    done: Vec<guasi::Completion<Lent>>,
}

impl Asynchronous {
    fn new(setup: &Setup) -> Result<Asynchronous, Error> {
        let looks = poll_of(setup.job, Poll::Adaptive) != Poll::Never;
        let config = Config { drive: Drive::Caller, looks, ..Config::default() };
        let guasi =
            Guasi::new(config).map_err(|error| Error::system("cannot make a context of", "ioengine=guasi", error))?;
        let depth = setup.depth as usize;
        Ok(Asynchronous {
            guasi,
            slots: Arc::clone(&setup.slots),
            files: vec![Open(CLOSED); setup.files as usize],
            flags: Flags::of(setup.job),
            depth,
            queued: Vec::with_capacity(depth),
            in_flight: 0,
            refused: Vec::new(),
            done: Vec::with_capacity(depth),
        })
    }

    /// Gives the queued requests to the context, which begins them in batches: the last batch with the next flush or
    /// fetch. Returns how many there were.
    fn hand_over(&mut self) -> usize {
        let mut queued = std::mem::take(&mut self.queued);
        let count = queued.len();
        for request in queued.drain(..) {
            self.begin(request);
        }
        self.queued = queued;
        self.in_flight += count;
        count
    }

    fn begin(&mut self, request: Request) {
        let Request { slot, kind, file, offset, len, skip, .. } = request;
        let transfers = matches!(kind, OpKind::Io(Direction::Read | Direction::Write));
        let reach = if transfers { skip as usize + len as usize } else { 0 };
        assert!(reach <= self.slots.slot_bytes(), "a request is larger than its buffer");
        let index = slot.index();
        let start = self.slots.pointer(index);
        // SAFETY: skip lies within the slot, by the check above.
        let start = if transfers { unsafe { start.add(skip as usize) } } else { start };
        let lent = Lent { slot, start, len: len as usize, _slots: Arc::clone(&self.slots) };
        let file = self.files[file as usize];
        let taken = match kind {
            OpKind::Io(Direction::Read) => self.guasi.read_at(0, file, lent, offset),
            OpKind::Io(Direction::Write) => self.guasi.write_at(0, file, lent, offset),
            OpKind::Sync => self.guasi.sync(0, file, false, Some(lent)),
            OpKind::DataSync => self.guasi.sync(0, file, true, Some(lent)),
            OpKind::SyncRange | OpKind::Io(Direction::Trim) => {
                let flags = self.flags;
                self.guasi.call(0, Some(lent), move || {
                    let result = blocking::carry_out(file.0, kind, offset, len, flags);
                    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result as i32))
                })
            }
        };
        if let Err(error) = taken {
            // The operation was dropped, and the slot's token with it.
            self.refused.push(Completion { slot: self.slots.reclaim(index), result: negative(&error) });
        }
    }
}

impl Engine for Asynchronous {
    fn open(&mut self, file: u32, fd: RawFd) -> io::Result<()> {
        self.files[file as usize] = Open(fd);
        Ok(())
    }

    fn close(&mut self, file: u32) {
        self.files[file as usize] = Open(CLOSED);
    }

    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        if self.queued.len() + self.in_flight >= self.depth {
            return Queued::Full(request);
        }
        self.queued.push(request);
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        let count = self.hand_over();
        self.guasi.flush()?;
        Ok(count)
    }

    fn reap(&mut self, min: usize, max: usize, timeout_ns: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let refused = self.refused.len().min(max);
        done.extend(self.refused.drain(..refused));
        let (min, max) = (min.saturating_sub(refused), max - refused);
        self.guasi.fetch(min, max, timeout_ns.map(Duration::from_nanos), &mut self.done)?;
        self.in_flight -= refused + self.done.len();
        done.extend(self.done.drain(..).filter_map(|finished| {
            let result = match finished.result {
                Ok(bytes) => bytes as i64,
                Err(error) => negative(&error),
            };
            finished.buffer.map(|lent| Completion { slot: lent.slot, result })
        }));
        Ok(())
    }

    fn submit_and_reap(
        &mut self,
        min: usize,
        max: usize,
        timeout_ns: Option<u64>,
        done: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        // A fetch begins the operations that were handed over, in the call that waits.
        let submitted = self.hand_over();
        self.reap(min, max, timeout_ns, done)?;
        Ok(submitted)
    }
}

fn negative(error: &io::Error) -> i64 {
    -i64::from(error.raw_os_error().unwrap_or(libc::EIO))
}

//! One ring per reactor for all its files: the only place of the target where memory is handed to the kernel.
#![allow(unsafe_code, reason = "gives memory to the kernel for the time of an op")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use slab::Slab;
use sys::buffer::{Buffer, Memory};
use sys::ring::{ENTER_GETEVENTS, Ring, Setup, opcode, squeue, types};

use super::{Done, Io, IoKind};

/// The list in which a channel finds the ends of its ops.
pub(super) type Ends = Rc<RefCell<Vec<Done>>>;

const ENTRIES: u32 = 1024;
/// A piece of zeros written where the file system cannot zero a range by itself.
const ZEROS_BYTES: usize = 256 << 10;

/// The way in which an op is carried out; a file that does not support one way is served in the next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Plain,
    ZeroRange,
    PunchHole,
    /// Zeros are written; this many bytes are done.
    Zeros(u64),
    /// Nothing is done.
    Nothing,
    /// Zeroed; now to stable storage, for Force Unit Access.
    Sync,
}

/// A file that the ops of one reactor keep open. Counting them writes to no memory that other reactors read.
pub(super) type Held = Rc<Arc<File>>;

struct Slot {
    io: Io,
    /// Keeps the descriptor open for as long as the kernel has the op.
    file: Held,
    /// True if the file gets no holes.
    keeps_allocated: bool,
    ends: Ends,
    way: Way,
}

/// The ring and the ops in it.
pub struct Uring {
    ring: Ring,
    /// Signalled when something has ended. The ring's own descriptor does not wake epoll while the completion waits as
    /// deferred work of the thread that sleeps there (Linux 6.1 to 6.18 at least).
    ended: OwnedFd,
    slots: Slab<Slot>,
    /// Ops that are not yet in the submission queue, which was full.
    waiting: VecDeque<usize>,
    /// Entries in the submission queue that the kernel has not taken yet.
    queued: u32,
    /// The number of entries that the kernel has taken, or that are queued.
    in_ring: usize,
    zeros: Option<Buffer>,
}

impl Uring {
    /// A ring for the calling thread.
    ///
    /// # Errors
    /// The error with which the system refuses the ring.
    pub fn new() -> io::Result<Uring> {
        let setup = Setup { completion_entries: 4 * ENTRIES, single_issuer: true, ..Setup::new(ENTRIES) };
        let ring = setup.open().map_err(io::Error::other)?;
        let ended = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        ring.submitter().register_eventfd(ended.as_raw_fd())?;
        Ok(Uring { ring, ended, slots: Slab::new(), waiting: VecDeque::new(), queued: 0, in_ring: 0, zeros: None })
    }

    /// Readable when something has ended, until [`Uring::woken`]: for epoll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Makes the ops that have ended visible to the next reaping.
    pub fn woken(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.ended, &mut count);
        let _ = self.ring.enter(0, 0, ENTER_GETEVENTS, None);
    }

    /// The number of ops inside the ring.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if no op is inside the ring.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Queues an op on a file. A file that `keeps_allocated` gets no holes.
    pub(super) fn queue(&mut self, file: &Held, keeps_allocated: bool, io: Io, ends: &Ends) {
        let way = match io.kind {
            IoKind::WriteZeroes => Way::ZeroRange,
            IoKind::Deallocate if keeps_allocated => Way::Nothing,
            IoKind::Deallocate => Way::PunchHole,
            IoKind::Read | IoKind::Write | IoKind::Flush => Way::Plain,
        };
        let index = self.slots.insert(Slot { io, file: Rc::clone(file), keeps_allocated, ends: Rc::clone(ends), way });
        self.waiting.push_back(index);
    }

    /// Hands everything queued to the kernel, in one call if it fits.
    pub fn submit(&mut self) {
        while let Some(index) = self.waiting.pop_front() {
            if self.queued == ENTRIES || self.in_ring >= 4 * ENTRIES as usize {
                self.waiting.push_front(index);
                break;
            }
            let entry = self.entry(index);
            // SAFETY: push requires that everything that the entry points to is valid until the op ends. The slot owns
            // the buffer and the file, and the ring owns the zeros. Both keep them, unmoved, until the completion with
            // this index is reaped; Drop waits for all completions.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_err() {
                self.waiting.push_front(index);
                break;
            }
            self.queued += 1;
            self.in_ring += 1;
        }
        if self.queued > 0 {
            // EAGAIN, EBUSY, libc::EINTR: what was not taken stays queued for the next call.
            self.queued -= self.ring.enter(self.queued, 0, ENTER_GETEVENTS, None).unwrap_or(0).min(self.queued);
        } else if self.in_ring > 0 && self.ring.submission().taskrun() {
            // Runs the kernel's deferred work for this thread, so that completions become visible.
            let _ = self.ring.enter(0, 0, ENTER_GETEVENTS, None);
        }
    }

    fn entry(&mut self, index: usize) -> squeue::Entry {
        let slot = &mut self.slots[index];
        let fd = types::Fd(slot.file.as_raw_fd());
        let (offset, len) = (slot.io.offset, slot.io.len);
        let skip = slot.io.skip as usize;
        let entry = match (slot.way, slot.io.kind) {
            (Way::Plain, IoKind::Read) => {
                let to = start(slot.io.buffer.as_mut(), skip, len);
                opcode::Read::new(fd, to.0, to.1).offset(offset).build()
            }
            (Way::Plain, IoKind::Write) => {
                let from = start(slot.io.buffer.as_mut(), skip, len);
                let flags = if slot.io.fua { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, from.0.cast_const(), from.1).offset(offset).rw_flags(flags as _).build()
            }
            (Way::Plain | Way::Sync, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            (Way::ZeroRange, _) => opcode::Fallocate::new(fd, len)
                .offset(offset)
                .mode(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            (Way::PunchHole, _) => opcode::Fallocate::new(fd, len)
                .offset(offset)
                .mode(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
                .build(),
            (Way::Nothing, _) => opcode::Nop::new().build(),
            (Way::Zeros(done), _) => {
                let from = start(self.zeros.as_mut(), 0, (len - done).min(ZEROS_BYTES as u64));
                opcode::Write::new(fd, from.0.cast_const(), from.1).offset(offset + done).build()
            }
        };
        entry.user_data(index as u64)
    }

    /// Takes every completion and puts the ends where their channels find them. Returns the number of ops that ended.
    pub fn reap(&mut self) -> usize {
        let mut ended = 0;
        loop {
            let Some(entry) = self.ring.completion().next() else { break };
            self.in_ring -= 1;
            ended += usize::from(self.completed(entry.user_data() as usize, entry.result()));
        }
        ended
    }

    /// Takes the result of an op's entry. Returns true if the op has ended; otherwise the op goes on another way.
    fn completed(&mut self, index: usize, result: i32) -> bool {
        let Some(slot) = self.slots.get_mut(index) else { return false };
        let next = match (slot.way, -result) {
            (_, libc::EINTR | libc::EAGAIN) => Some(slot.way),
            (Way::ZeroRange, libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV) if slot.keeps_allocated => {
                Some(Way::Zeros(0))
            }
            (Way::ZeroRange, libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV) => Some(Way::PunchHole),
            (Way::PunchHole, libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV) if slot.io.kind == IoKind::WriteZeroes => {
                Some(Way::Zeros(0))
            }
            (Way::Zeros(done), _) if result > 0 && done + (result as u64) < slot.io.len => {
                Some(Way::Zeros(done + result as u64))
            }
            // Force Unit Access of a range that is zeroed now.
            (Way::ZeroRange | Way::PunchHole | Way::Zeros(_), _) if slot.io.fua && result >= 0 => Some(Way::Sync),
            _ => None,
        };
        if let Some(way) = next {
            slot.way = way;
            let ready = !matches!(way, Way::Zeros(_)) || self.zeros.is_some() || {
                self.zeros = Buffer::zeroed(ZEROS_BYTES, &Memory::Anonymous).ok();
                self.zeros.is_some()
            };
            if ready {
                self.waiting.push_back(index);
                return false;
            }
        }
        let slot = self.slots.remove(index);
        let result = match (slot.io.kind, slot.way, result) {
            // A hint that the file system cannot take is not an error.
            (IoKind::Deallocate, _, result) if matches!(-result, libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV) => {
                Ok(slot.io.len)
            }
            (_, _, error @ ..0) => Err(-error),
            (IoKind::Read | IoKind::Write, _, moved) => Ok(moved as u64),
            // Without progress the op would go on forever.
            (_, Way::Zeros(_), 0) => Err(libc::EIO),
            _ => Ok(slot.io.len),
        };
        slot.ends.borrow_mut().push(Done { tag: slot.io.tag, result, buffer: slot.io.buffer });
        true
    }
}

/// The address at which a transfer begins, and its length: always within the buffer, whatever was asked.
fn start(buffer: Option<&mut Buffer>, skip: usize, len: u64) -> (*mut u8, u32) {
    let Some(buffer) = buffer else { return (std::ptr::null_mut(), 0) };
    let rest = buffer.as_mut_slice().get_mut(skip..).unwrap_or_default();
    (rest.as_mut_ptr(), len.min(rest.len() as u64) as u32)
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel writes into the slots' buffers until the last op has ended. Ops on files end by themselves.
        self.waiting.clear();
        while self.in_ring > 0 {
            let _ = self.ring.enter(self.queued, 1, ENTER_GETEVENTS, Some(100_000_000)).map(|n| self.queued -= n);
            while self.ring.completion().next().is_some() {
                self.in_ring -= 1;
            }
        }
    }
}

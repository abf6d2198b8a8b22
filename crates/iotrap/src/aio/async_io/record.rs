//! A record is a request from io_submit until the program has fetched its event.
//!
//! A record belongs to one party at a time: the thread that submits, then the engine's thread, then the kernel's queue,
//! then the thread that fetches the event. It is passed on by the engine's list, by io_submit and by io_getevents.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::abi::libaio::Iocb;
use crate::abi::raw;
use crate::abi::readable;

/// The number that stands for none: for a missing file, or for the end of a list.
pub const NONE: u32 = u32::MAX;
/// The lanes of a file that one sync may cover.
pub const LANES: usize = lanes::LANES_MAX;
/// Vectors that a record has room for; more of them get memory of their own.
const VECTORS: usize = 8;

/// The work that the engine does for a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Read or write the vectors.
    Transfer { write: bool },
    /// Sync the file, and its files on other lanes, after the writes that were submitted before.
    Sync { data_only: bool },
    /// Do nothing but tell the event: the result is there already.
    Tell,
}

/// The data of a request that the engine needs.
pub struct Task {
    /// The kind of request: read, write or sync.
    pub work: Work,
    /// aio_offset
    pub offset: u64,
    /// Places in the ring's table: the file, the eventfd or [`NONE`], and of a sync the file on other lanes.
    pub file: u32,
    pub event_file: u32,
    pub lanes: [u32; LANES],
    pub lane_count: usize,
    /// The vectors: their number, and those that fit.
    pub vector_count: u32,
    pub vectors: [libc::iovec; VECTORS],
    /// The address of the vectors if they do not fit: a separate mapping; 0 if they fit.
    pub mapping: usize,
    /// The operations in the ring that have not come back, and the results of those that have.
    pub parts: u32,
    pub outcome: Outcome,
}

/// The results of the operations of one request so far, in whatever order they come.
#[derive(Clone, Copy, Default)]
pub struct Outcome {
    opened: i64,
    /// The error of the first of the other lanes that has failed, and its place among them.
    of_lane: Option<(u32, i64)>,
}

impl Outcome {
    /// Notes the result of the opened lane: bytes or `-errno`.
    pub fn opened(&mut self, result: i64) {
        self.opened = result;
    }

    /// Notes the result of the other lane at this place of the request's list: bytes or `-errno`.
    pub fn lane(&mut self, place: u32, result: i64) {
        if result < 0 && self.of_lane.is_none_or(|(first, _)| place < first) {
            self.of_lane = Some((place, result));
        }
    }

    /// The result of the request. An error of the opened lane is the one that the program would have without the
    /// library, so it comes first; then the error of the first other lane that has failed.
    pub fn result(&self) -> i64 {
        match self.of_lane {
            Some((_, error)) if self.opened >= 0 => error,
            _ => self.opened,
        }
    }
}

impl Task {
    /// A task without vectors and without files.
    pub fn new(work: Work, offset: u64) -> Task {
        Task {
            work,
            offset,
            file: NONE,
            event_file: NONE,
            lanes: [NONE; LANES],
            lane_count: 0,
            vector_count: 0,
            vectors: [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; VECTORS],
            mapping: 0,
            parts: 0,
            outcome: Outcome::default(),
        }
    }

    /// Copies the `count` vectors of a request at `given`, which the program may reuse after io_submit. Returns
    /// false if they cannot be read, or if the kernel refuses the memory for the copy.
    pub fn copy_vectors(&mut self, given: *const libc::iovec, count: usize) -> bool {
        self.vector_count = count as u32;
        if count > VECTORS {
            let bytes = count * size_of::<libc::iovec>();
            let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
            let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
            // SAFETY: a new anonymous mapping, at no particular address.
            let mapped = unsafe { raw::call(libc::SYS_mmap, 0, bytes, protection, flags, raw::arg(-1), 0) };
            let Ok(mapping) = raw::check(mapped) else { return false };
            self.mapping = mapping;
        }
        let place = self.place_of_vectors().cast_mut();
        readable::for_each(given, count, |at, vector| {
            // SAFETY: there is room for `count` vectors: inline, or in the mapping that was just made.
            unsafe { place.wrapping_add(at).write(vector) };
        })
    }

    /// The address of the vectors.
    pub fn place_of_vectors(&self) -> *const libc::iovec {
        match self.mapping {
            0 => self.vectors.as_ptr(),
            mapping => core::ptr::with_exposed_provenance(mapping),
        }
    }

    /// Gives the memory of the vectors back.
    pub fn release(&mut self) {
        if self.mapping != 0 {
            let bytes = self.vector_count as usize * size_of::<libc::iovec>();
            // SAFETY: `copy_vectors` has mapped it, and the ring has no operation of this request any more.
            let _ = unsafe { raw::call(libc::SYS_munmap, self.mapping, bytes, 0, 0, 0, 0) };
            self.mapping = 0;
        }
    }
}

/// The record of one request (see the module). All zeros is a valid value.
#[repr(C, align(64))]
pub struct Record {
    /// The iocb that the kernel is given when the request has ended. It is the first field: an event's `obj` is the
    /// record's address.
    pub shadow: UnsafeCell<Iocb>,
    /// The task of the request; only the party that the record belongs to touches it.
    pub task: UnsafeCell<core::mem::MaybeUninit<Task>>,
    /// The next record of the list that this one is in.
    pub next: AtomicU32,
    /// The place and the id of the program's context.
    pub place: AtomicU32,
    pub context: AtomicU64,
    /// Address of the program's iocb, which the event names.
    pub obj: AtomicU64,
    /// Bytes or `-errno`.
    pub result: AtomicU64,
    /// A count that is odd while the request is in flight; the fields after it are valid then.
    life: AtomicU32,
    writes: AtomicU32,
    inode: AtomicU64,
    device: AtomicU64,
    order: AtomicU64,
}

/// The identity of a file, whatever its descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    pub device: u64,
    pub number: u64,
}

impl Inode {
    /// The identity in a file's status.
    pub fn of(stat: &libc::stat) -> Inode {
        Inode { device: stat.st_dev, number: stat.st_ino }
    }
}

impl Record {
    /// Notes that the request is in flight from here on, as the `order`th of the process.
    pub fn begins(&self, inode: Inode, writes: bool, order: u64) {
        // A thread that sees a field of this life sees that the one before has ended ([`Record::is_among`]).
        core::sync::atomic::fence(Release);
        self.inode.store(inode.number, Relaxed);
        self.device.store(inode.device, Relaxed);
        self.writes.store(u32::from(writes), Relaxed);
        self.order.store(order, Relaxed);
        self.life.fetch_add(1, AcqRel);
    }

    /// Notes that the request is in flight no longer. True if it was a write or a sync.
    pub fn ends(&self) -> bool {
        let writes = self.writes.load(Relaxed) != 0;
        self.life.fetch_add(1, AcqRel);
        writes
    }

    /// True if the request is in flight, of that file (or of any), among the first `order` requests, and a write or a
    /// sync if `only_writes`.
    pub fn is_among(&self, inode: Option<Inode>, order: u64, only_writes: bool) -> bool {
        let life = self.life.load(Acquire);
        if life.is_multiple_of(2) {
            return false;
        }
        let found = Inode { device: self.device.load(Relaxed), number: self.inode.load(Relaxed) };
        let matches = inode.is_none_or(|inode| inode == found)
            && self.order.load(Relaxed) < order
            && (!only_writes || self.writes.load(Relaxed) != 0);
        // Fields of a record that has ended meanwhile may be another request's.
        core::sync::atomic::fence(Acquire);
        matches && self.life.load(Relaxed) == life
    }

    /// The number of requests of the process before this one.
    pub fn order(&self) -> u64 {
        self.order.load(Relaxed)
    }

    /// The file of the request.
    pub fn inode(&self) -> Inode {
        Inode { device: self.device.load(Relaxed), number: self.inode.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

    /// The opened lane and two others end in every order, well or with errors of their own.
    #[test]
    fn the_outcome_does_not_depend_on_the_order_of_the_ends() {
        for failing in 0..8 {
            let results = [0, 1, 2].map(|part| if failing & 1 << part != 0 { -(10 + i64::from(part)) } else { 0 });
            let expected = results.into_iter().find(|&result| result < 0).unwrap_or(0);
            for order in ORDERS {
                let mut outcome = Outcome::default();
                for part in order {
                    match part {
                        0 => outcome.opened(results[part]),
                        lane => outcome.lane(lane as u32 - 1, results[part]),
                    }
                }
                assert_eq!(outcome.result(), expected, "{results:?} in the order {order:?}");
            }
        }
    }

    #[test]
    fn the_bytes_of_a_transfer_are_its_outcome() {
        let mut outcome = Outcome::default();
        outcome.opened(4096);
        assert_eq!(outcome.result(), 4096);
    }
}

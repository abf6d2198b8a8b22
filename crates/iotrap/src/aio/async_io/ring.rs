//! An io_uring of which one thread writes the submissions and reads the completions, by system calls alone
//! (io_uring_setup(2), io_uring_enter(2), io_uring_register(2)).
//!
//! The project's other rings are those of the io-uring crate, which calls libc. This ring belongs to a thread without
//! libc ([`crate::abi::raw_thread`]).

use core::ffi::{c_int, c_long};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::abi::liburing::Parameters;
use crate::abi::raw;

/// IORING_OP_*.
pub mod operation {
    #![allow(missing_docs, reason = "the kernel's names")]
    pub const READV: u8 = 1;
    pub const WRITEV: u8 = 2;
    pub const FSYNC: u8 = 3;
    pub const FILES_UPDATE: u8 = 20;
    pub const READ: u8 = 22;
    pub const WRITE: u8 = 23;
}

/// IOSQE_FIXED_FILE: `file` is a place in the ring's table of files.
pub const FIXED_FILE: u8 = 1;
/// IORING_FSYNC_DATASYNC
pub const DATA_ONLY: u32 = 1;

/// `struct io_uring_sqe`, as far as it is used here.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Submission {
    /// IORING_OP_*
    pub operation: u8,
    /// IOSQE_*
    pub flags: u8,
    /// ioprio
    pub priority: u16,
    /// fd, or the place of a file
    pub file: i32,
    /// off
    pub offset: u64,
    /// addr
    pub address: u64,
    /// len
    pub length: u32,
    /// rw_flags, fsync_flags
    pub how: u32,
    /// user_data
    pub data: u64,
    /// buf_index and what follows: zeros
    pub rest: [u64; 3],
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Completion {
    /// user_data of the submission
    pub data: u64,
    /// bytes or `-errno`
    pub result: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Submission>() == 64 && size_of::<Completion>() == 16, "as linux/io_uring.h has them");

/// IORING_FEAT_SINGLE_MMAP, IORING_FEAT_NODROP and IORING_FEAT_EXT_ARG (Linux 5.11).
const FEATURES: u32 = 1 | 1 << 1 | 1 << 8;
/// IORING_ENTER_GETEVENTS, IORING_ENTER_EXT_ARG, IORING_ENTER_REGISTERED_RING.
const GETEVENTS: usize = 1;
const EXT_ARG: usize = 1 << 3;
const REGISTERED: usize = 1 << 4;
/// IORING_SETUP_CQSIZE, IORING_SETUP_COOP_TASKRUN (Linux 5.19).
const CQSIZE: u32 = 1 << 3;
const COOPERATIVE: u32 = 1 << 8;
/// IORING_REGISTER_FILES, IORING_REGISTER_FILES_UPDATE, IORING_REGISTER_RING_FDS (Linux 5.18).
const FILES: usize = 2;
const FILES_UPDATE: usize = 6;
const RING_FDS: usize = 20;

/// An io_uring (see the module). The memory of a ring is never unmapped: its thread ends with the process.
pub struct Ring {
    /// The descriptor, or its registered number.
    number: usize,
    flags: usize,
    submission_head: &'static AtomicU32,
    submission_tail: &'static AtomicU32,
    submission_mask: u32,
    entries: *mut Submission,
    completion_head: &'static AtomicU32,
    completion_tail: &'static AtomicU32,
    completion_mask: u32,
    completions: *const Completion,
    /// The number of entries that the kernel has not been told of.
    written: u32,
}

// SAFETY: the pointers are into mappings that stay; a ring is moved to its thread once, before its first use.
unsafe impl Send for Ring {}

/// A call for the engine, whose thread may have events left to tell in a process that is sealed: no filter is its own.
fn call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> raw::Result<usize> {
    // SAFETY: the callers below pass what the kernel's structures are, and memory that lives for the call.
    raw::check(unsafe { raw::pass(number, a, b, c, d, e, f) })
}

fn map(fd: c_int, bytes: usize, at: usize) -> raw::Result<usize> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_SHARED | libc::MAP_POPULATE) as usize;
    let address = call(libc::SYS_mmap, 0, bytes, protection, flags, raw::arg(fd), at)?;
    // A forked child does not use the ring.
    let _ = call(libc::SYS_madvise, address, bytes, libc::MADV_DONTFORK as usize, 0, 0, 0);
    Ok(address)
}

/// Makes a ring with that many entries and four times as many completions. Returns its descriptor and the ring.
///
/// # Errors
/// The errno of io_uring_setup(2); EOPNOTSUPP before Linux 5.11.
pub fn make(entries: u32) -> raw::Result<(c_int, Ring)> {
    let wanted = |flags| Parameters { completions: entries * 4, flags: flags | CQSIZE, ..Parameters::default() };
    let set_up = |parameters: &mut Parameters| {
        call(libc::SYS_io_uring_setup, entries as usize, core::ptr::from_mut(parameters) as usize, 0, 0, 0, 0)
    };
    let mut parameters = wanted(COOPERATIVE);
    let fd = match set_up(&mut parameters) {
        Err(libc::EINVAL) => {
            parameters = wanted(0);
            set_up(&mut parameters)?
        }
        other => other?,
    } as c_int;
    let ring = of(fd, &parameters);
    if ring.is_err() {
        let _ = raw::close(fd);
    }
    ring.map(|ring| (fd, ring))
}

fn of(fd: c_int, parameters: &Parameters) -> raw::Result<Ring> {
    if parameters.features & FEATURES != FEATURES {
        return Err(libc::EOPNOTSUPP);
    }
    let (submission, completion) = (&parameters.submission, &parameters.completion);
    let queues = (submission.seventh as usize + parameters.submissions as usize * 4)
        .max(completion.sixth as usize + parameters.completions as usize * size_of::<Completion>());
    // IORING_OFF_SQ_RING, with which both queues are mapped, and IORING_OFF_SQES.
    let queues = map(fd, queues, 0)?;
    let entries = map(fd, parameters.submissions as usize * size_of::<Submission>(), 0x1000_0000)?;
    let word = |offset: u32| -> &'static AtomicU32 {
        let place: *const AtomicU32 = core::ptr::with_exposed_provenance(queues + offset as usize);
        // SAFETY: the kernel has put a word of 32 bits there, in a mapping that stays.
        unsafe { &*place }
    };
    // Entry n of the queue is always entry n of the array.
    for index in 0..parameters.submissions {
        word(submission.seventh + index * 4).store(index, Relaxed);
    }
    Ok(Ring {
        number: fd as usize,
        flags: 0,
        submission_head: word(submission.head),
        submission_tail: word(submission.tail),
        submission_mask: word(submission.mask).load(Relaxed),
        entries: core::ptr::with_exposed_provenance_mut(entries),
        completion_head: word(completion.head),
        completion_tail: word(completion.tail),
        completion_mask: word(completion.mask).load(Relaxed),
        completions: core::ptr::with_exposed_provenance(queues + completion.sixth as usize),
        written: 0,
    })
}

/// Gives a ring a table of files with `places` empty places.
///
/// # Errors
/// EMFILE: more files than RLIMIT_NOFILE permits; ENOMEM: there is not enough memory.
pub fn make_file_table(ring: c_int, places: &[c_int]) -> raw::Result<()> {
    let (ring, first) = (raw::arg(ring), places.as_ptr() as usize);
    call(libc::SYS_io_uring_register, ring, FILES, first, places.len(), 0, 0).map(drop)
}

/// Puts the file that descriptor `fd` of the calling thread means into a place of the ring's table; -1 empties the
/// place. Emptying releases the file without close(2): neither locks nor cached data of the file are touched.
///
/// # Errors
/// EBADF: no such descriptor; the errno of io_uring_register(2).
pub fn put_file(ring: c_int, place: u32, fd: c_int) -> raw::Result<()> {
    /// `struct io_uring_files_update`
    #[repr(C)]
    struct Update {
        offset: u32,
        reserved: u32,
        files: u64,
    }
    let update = Update { offset: place, reserved: 0, files: (&raw const fd) as u64 };
    let argument = &raw const update as usize;
    match call(libc::SYS_io_uring_register, raw::arg(ring), FILES_UPDATE, argument, 1, 0, 0)? {
        1 => Ok(()),
        _ => Err(libc::EIO),
    }
}

/// The operation that empties a place of the ring's table, as [`put_file`] does with -1, on the ring's own thread.
pub fn emptying(place: u32, data: u64) -> Submission {
    static NONE: c_int = -1;
    Submission {
        operation: operation::FILES_UPDATE,
        file: -1,
        offset: u64::from(place),
        address: (&raw const NONE) as u64,
        length: 1,
        data,
        ..Submission::default()
    }
}

impl Ring {
    /// Makes the calling thread the ring's own, which knows it as `descriptor`: its system calls are independent of
    /// that number from here on, where the kernel can do that (Linux 5.18).
    pub fn belongs_here(&mut self, descriptor: c_int) {
        self.number = descriptor as usize;
        /// `struct io_uring_rsrc_update`
        #[repr(C)]
        struct Update {
            offset: u32,
            reserved: u32,
            data: u64,
        }
        let mut update = Update { offset: u32::MAX, reserved: 0, data: self.number as u64 };
        let argument = &raw mut update as usize;
        if call(libc::SYS_io_uring_register, self.number, RING_FDS, argument, 1, 0, 0) == Ok(1) {
            (self.number, self.flags) = (update.offset as usize, REGISTERED);
        }
    }

    /// True if the ring's system calls still name its descriptor by number.
    pub fn is_by_descriptor(&self) -> bool {
        self.flags == 0
    }

    /// The number of entries that can be written before the next [`Ring::enter`].
    pub fn room(&self) -> u32 {
        let used = self.submission_tail.load(Relaxed).wrapping_sub(self.submission_head.load(Acquire));
        (self.submission_mask + 1).saturating_sub(used)
    }

    /// Writes an entry; the caller has made sure that there is room.
    pub fn push(&mut self, entry: Submission) {
        let tail = self.submission_tail.load(Relaxed);
        let place = self.entries.wrapping_add((tail & self.submission_mask) as usize);
        // SAFETY: an entry of the mapping, which the kernel does not read before the tail has passed it.
        unsafe { place.write(entry) };
        self.submission_tail.store(tail.wrapping_add(1), Release);
        self.written += 1;
    }

    /// Submits the written entries, and waits for one completion if `wait`, for `limit_ns` at most.
    ///
    /// # Errors
    /// The errno of io_uring_enter(2). ETIME, EINTR, EAGAIN and EBUSY are temporary: the caller repeats the call.
    pub fn enter(&mut self, wait: bool, limit_ns: u64) -> raw::Result<()> {
        let time = [(limit_ns / 1_000_000_000) as i64, (limit_ns % 1_000_000_000) as i64];
        // `struct io_uring_getevents_arg`: signal mask, its size, and the address of a timespec.
        let argument = [0u64, 0, time.as_ptr() as u64];
        let flags = self.flags | GETEVENTS | EXT_ARG;
        let (place, size) = (argument.as_ptr() as usize, size_of_val(&argument));
        let result =
            call(libc::SYS_io_uring_enter, self.number, self.written as usize, usize::from(wait), flags, place, size);
        if let Ok(taken) = result {
            self.written = self.written.saturating_sub(taken as u32);
        } else {
            // The kernel may have taken entries before it was interrupted.
            let tail = self.submission_tail.load(Relaxed);
            self.written = tail.wrapping_sub(self.submission_head.load(Acquire));
        }
        result.map(drop)
    }

    /// Takes the oldest completion out of the queue.
    pub fn completion(&mut self) -> Option<Completion> {
        let head = self.completion_head.load(Relaxed);
        if head == self.completion_tail.load(Acquire) {
            return None;
        }
        let place = self.completions.wrapping_add((head & self.completion_mask) as usize);
        // SAFETY: an entry of the mapping, which the kernel has written before it moved the tail.
        let completion = unsafe { place.read() };
        self.completion_head.store(head.wrapping_add(1), Release);
        Some(completion)
    }
}

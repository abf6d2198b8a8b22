//! liburing's entry points: reads and writes are spread before they are submitted, where that is safe.
//!
//! Inline code of the program writes the submission queue entries, and inline code reads the completions, too. So the
//! library can only change the descriptor of an entry between the two: in io_uring_submit(3) and its kin. It changes an
//! entry only if the lane's file is certain to be the one that is meant, now and when the kernel comes to it, and if
//! its completion can be told from all others of the ring: plain reads and writes with an offset, not linked, not
//! drained, without fixed files or provided buffers, with a `user_data` that no other request in flight has
//! ([`crate::aio::tagged`]). So the library counts every request of a ring, and sees every completion: the completion
//! queue keeps entries after the program has consumed them. A ring of which the library has missed something is not
//! spread any more.
//!
//! A read that fails because of its lane cannot be done again behind the program's back: its error is the program's.
//! Rings that are driven by system calls (fio's io_uring engine) go through as they are, and are counted.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::abi::errno;
use crate::abi::liburing::{
    ASYNC, Completion, FIXED_FILE, LIBURINGS, LINKS, MORE, OTHER_RINGS, OVERFLOW, Request, SILENT, Uring, opcode,
};
use crate::abi::raw;
use crate::aio::tagged::{Ended, Tagged};
use crate::open::others;
use crate::open::tracking;
use crate::policy::spread::{self, Choice, Chosen, Kind};
use crate::policy::trace;
use crate::state::group::GroupRef;
use crate::state::lane;
use crate::state::process;
use crate::state::proof::Proofs;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry, Name};

/// The most rings of a process whose requests are spread.
const RINGS: usize = 64;

/// A request that was recorded: the library has chosen its lane.
#[derive(Clone, Copy)]
struct Pending {
    group: Name,
    kind: Kind,
    choice: Choice,
    offset: i64,
    /// The request counts as in flight on its lane.
    counts: bool,
}

/// The requests of a ring, as far as the library knows them.
struct Known {
    requests: Tagged<Pending>,
    /// The end of the entries that the library has seen.
    seen: c_uint,
    /// True if requests or completions were missed: nothing more is spread.
    blind: bool,
}

struct Ring {
    /// The address of the program's `struct io_uring`.
    id: AtomicU64,
    /// True while one thread has taken the ring: it alone looks at the other fields.
    taken: AtomicBool,
    /// The entry up to which the library has looked at the ring's completions.
    seen: AtomicU32,
    /// The number of recorded requests that count as in flight.
    in_flight: AtomicU32,
    known: UnsafeCell<Known>,
}

// SAFETY: `known` is touched only by the thread that has set `taken`.
unsafe impl Sync for Ring {}

static ALL: [Ring; RINGS] = [const {
    Ring {
        id: AtomicU64::new(0),
        taken: AtomicBool::new(false),
        seen: AtomicU32::new(0),
        in_flight: AtomicU32::new(0),
        known: UnsafeCell::new(Known { requests: Tagged::new(), seen: 0, blind: false }),
    }
}; RINGS];

/// A ring that this thread has taken; dropping it lets others have it.
struct Held<'a> {
    ring: &'a Ring,
    /// The program's structure; null if the ring is free.
    uring: *const Uring,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.ring.taken.store(false, Release);
    }
}

impl Ring {
    fn hold(&'static self, wait: bool) -> Option<Held<'static>> {
        while self.taken.swap(true, AcqRel) {
            if !wait {
                return None;
            }
            raw::pause();
        }
        let uring = core::ptr::with_exposed_provenance(self.id.load(Acquire) as usize);
        Some(Held { ring: self, uring })
    }
}

fn known(uring: *const Uring) -> Option<&'static Ring> {
    let id = uring.expose_provenance() as u64;
    ALL.iter().find(|ring| id != 0 && ring.id.load(Acquire) == id)
}

/// The ring of the program's structure, entered if it is new. Waits for a thread that looks at it. None if there is no
/// room.
///
/// # Safety
/// A valid `struct io_uring`.
unsafe fn held(uring: *const Uring) -> Option<Held<'static>> {
    if let Some(held) = known(uring).and_then(|ring| ring.hold(true)).filter(|held| held.uring == uring) {
        return Some(held);
    }
    for ring in &ALL {
        if ring.id.load(Relaxed) != 0 {
            continue;
        }
        let Some(held) = ring.hold(false) else { continue };
        if ring.id.load(Acquire) == 0 {
            // SAFETY: the program's contract.
            let tail = unsafe { (*uring).completion.tail };
            // SAFETY: the program keeps the ring mapped until io_uring_queue_exit, which the hook sees first.
            let seen = unsafe { (*tail).load(Acquire) };
            ring.seen.store(seen, Relaxed);
            ring.in_flight.store(0, Relaxed);
            // SAFETY: the program's contract.
            let begun = unsafe { (*uring).submission.own_head };
            let known = held.known();
            known.requests.clear();
            known.seen = begun;
            known.blind = begun != 0 || seen != 0; // not a new ring: some of its requests may be in flight
            ring.id.store(uring.expose_provenance() as u64, Release);
            return Some(Held { ring: core::mem::ManuallyDrop::new(held).ring, uring });
        }
    }
    None
}

impl Held<'_> {
    #[allow(clippy::mut_from_ref, reason = "the thread that has taken the ring is alone with its requests")]
    fn known(&self) -> &mut Known {
        // SAFETY: this thread has taken the ring, so `known` is its alone; no two of these references are used at a
        // time.
        unsafe { &mut *self.ring.known.get() }
    }

    /// Retires the requests that have come back since the last time.
    fn catch_up(&self) {
        if self.uring.is_null() {
            return;
        }
        // SAFETY: entered with a valid structure, and taken out before it ends (io_uring_queue_exit).
        let queue = unsafe { &(*self.uring).completion };
        // SAFETY: an entered ring is mapped: the hook of io_uring_queue_exit removes it before it is unmapped.
        let tail = unsafe { (*queue.tail).load(Acquire) };
        // SAFETY: an entered ring is mapped: the hook of io_uring_queue_exit removes it before it is unmapped.
        let mask = unsafe { (*queue.mask).load(Relaxed) };
        // SAFETY: entered with a valid structure, and taken out before it ends (io_uring_queue_exit).
        let submission = unsafe { &(*self.uring).submission };
        // SAFETY: an entered ring is mapped: the hook of io_uring_queue_exit removes it before it is unmapped.
        let flags = unsafe { (*submission.flags).load(Acquire) };
        let mut at = self.ring.seen.load(Relaxed);
        let now_ns = raw::now_ns();
        if flags & OVERFLOW != 0 {
            // The queue is full, and the completions since then are not in it before the program has made room: any
            // request may have ended. The program has no right to rely on completions that it has not fetched.
            self.loses_sight(now_ns);
        }
        if tail.wrapping_sub(at) > mask.wrapping_add(1) {
            // More completions than the queue holds: the lost ones cannot be read.
            at = tail.wrapping_sub(mask.wrapping_add(1));
            self.loses_sight(now_ns);
        }
        while at != tail {
            let place = queue.completions.wrapping_add((at & mask) as usize);
            // SAFETY: within the mapped queue; the kernel has written it.
            let completion = unsafe { place.read_volatile() };
            if completion.flags & MORE == 0 {
                self.ended(&completion, now_ns);
            }
            at = at.wrapping_add(1);
        }
        self.ring.seen.store(at, Relaxed);
    }

    fn ended(&self, completion: &Completion, now_ns: u64) {
        match self.known().requests.ended(completion.user_data) {
            Ended::Certain(pending) => {
                self.ring.in_flight.fetch_sub(1, AcqRel);
                retire(&pending, i64::from(completion.result), now_ns);
            }
            Ended::Perhaps => {
                if let Some(pending) = self.known().requests.of(completion.user_data) {
                    self.release(pending, now_ns);
                }
            }
            Ended::Unknown(mut pending) => {
                self.release(&mut pending, now_ns);
                drop(GroupRef::again(pending.group));
            }
            Ended::Stranger => {}
        }
    }

    /// The recorded request counts as in flight no longer, though nobody knows if it has ended: the program does not
    /// know it either. If it writes, its lane has to be synced once more.
    fn release(&self, pending: &mut Pending, now_ns: u64) {
        // The record holds a reference to the group.
        let group = core::mem::ManuallyDrop::new(GroupRef::again(pending.group));
        if core::mem::take(&mut pending.counts) {
            self.ring.in_flight.fetch_sub(1, AcqRel);
            spread::cancel(&group, &pending.choice, now_ns);
        }
        if pending.kind == Kind::Write && pending.choice.file.is_some() {
            group.node().lane_write(pending.choice.ticket.lane);
        }
    }

    /// Requests or completions were missed: nothing of the ring is spread any more.
    fn loses_sight(&self, now_ns: u64) {
        let known = self.known();
        known.requests.recorded().for_each(|pending| self.release(pending, now_ns));
        known.requests.doubt_all();
        known.blind = true;
    }

    /// Chooses lanes for the requests that are about to be submitted. Writes stay where they are if there are `syncs`
    /// among the requests: a sync does not cover requests that are submitted beside it.
    ///
    /// # Safety
    /// The submission queue is the calling thread's, as liburing demands.
    unsafe fn spread(&self, syncs: bool) {
        // SAFETY: the program's contract.
        let queue = unsafe { &(*self.uring).submission };
        let now_ns = raw::now_ns();
        let mut chained = false;
        let mut proofs = Proofs::none();
        if core::mem::replace(&mut self.known().seen, queue.own_tail) != queue.own_head {
            self.loses_sight(now_ns); // somebody has submitted entries that the library did not see
        }
        for place in queue.written(0) {
            // SAFETY: an entry that the program has written and not submitted.
            let request = unsafe { place.read() };
            let follows = core::mem::replace(&mut chained, request.flags & LINKS != 0);
            if request.flags & SILENT != 0 {
                self.loses_sight(now_ns);
            }
            let writes = matches!(request.opcode, opcode::WRITE | opcode::WRITEV);
            let tracked = matches!(table::get(request.file), Entry::File(_)) && request.flags & FIXED_FILE == 0;
            let plain = !follows && request.flags & !ASYNC == 0 && is_plain(&request) && !(writes && syncs);
            let recorded = if tracked && plain { self.choose(&request, now_ns, &mut proofs) } else { None };
            let Some(choice) = recorded else {
                if tracked && !plain {
                    Reason::Uring.count();
                }
                self.known().requests.count(request.user_data);
                continue;
            };
            if let Some(file) = choice.file {
                // SAFETY: an entry that the program has written and not submitted; nobody else writes it before that.
                let field = unsafe { &raw mut (*place).file };
                // SAFETY: an entry that the program has written and not submitted.
                unsafe { field.write(file) };
            }
        }
    }

    /// The lane of a request, which is recorded; None if the request stays as it is and is not recorded.
    fn choose(&self, request: &Request, now_ns: u64, proofs: &mut Proofs) -> Option<Choice> {
        let fd = request.file;
        let group = GroupRef::of(fd)?;
        let kind = if matches!(request.opcode, opcode::READ | opcode::READV) { Kind::Read } else { Kind::Write };
        if kind == Kind::Read && group.node().is_fuse() {
            Reason::Uring.count(); // it may end at a size that the lane remembers, and nobody could mend it
            return None;
        }
        let unfit = if kind == Kind::Read { libc::O_WRONLY } else { libc::O_RDONLY };
        if group.flags() & libc::O_ACCMODE == unfit {
            return None;
        }
        let offset = i64::try_from(request.offset).ok()?;
        let bytes = bytes_of(request)?;
        trace::transfers(fd, &group, kind, offset, bytes);
        let known = self.known();
        if known.blind || request.user_data == LIBURINGS || !known.requests.can_record(request.user_data) {
            Reason::Uring.count();
            return None;
        }
        let choice = match spread::choose(&group, fd, kind, offset, bytes, now_ns, proofs) {
            Chosen::To(choice) => choice,
            Chosen::Full => spread::own(&group, group.pool()?, bytes, now_ns),
            Chosen::Stale => return None,
        };
        let pending = Pending { group: group.name(), kind, choice, offset, counts: true };
        self.known().requests.record(request.user_data, pending);
        self.ring.in_flight.fetch_add(1, AcqRel);
        core::mem::forget(group); // the record's
        Some(choice)
    }
}

/// Does the work that is due before a request that is not a transfer. True if the request is a sync.
///
/// # Safety
/// An entry that is the calling thread's and not submitted.
unsafe fn prepare(place: *mut Request, request: &Request) -> bool {
    if request.flags & FIXED_FILE != 0 {
        return false;
    }
    let fd = request.file;
    match request.opcode {
        opcode::FSYNC => {
            let Some(group) = GroupRef::proven(fd) else { return false };
            /// IORING_FSYNC_DATASYNC
            const DATA_ONLY: u32 = 1;
            trace::synced(fd, request.rw_flags & DATA_ONLY != 0);
            group.node().drain();
            if tracking::sync_lanes(&group, fd, request.rw_flags & DATA_ONLY != 0).is_err() {
                // The library must not call data durable that is not: the request fails (EBADF).
                // SAFETY: the program's contract.
                let field = unsafe { &raw mut (*place).file };
                // SAFETY: the program's contract.
                unsafe { field.write(-1) };
            }
            true
        }
        opcode::CLOSE if request.file_index == 0 => {
            if let Some(group) = GroupRef::proven(fd) {
                group.node().drain();
                group.node().revalidate(fd);
                // The entry is forgotten before the number is free for others.
                let _ = tracking::closed(table::take(fd));
            }
            false
        }
        opcode::OPENAT | opcode::OPENAT2 => {
            // The number comes with a completion that no hook sees.
            let path: *const libc::c_char = core::ptr::with_exposed_provenance(request.address as usize);
            // SAFETY: an entry of this kind has its path there, which the kernel reads when it is submitted.
            unsafe { others::is_opened_out_of_sight(fd, path) };
            false
        }
        opcode::FALLOCATE | opcode::FTRUNCATE => {
            leaves_the_lanes(fd);
            false
        }
        // The data of both files goes through the page cache of the opened lane, at a moment that no hook sees.
        opcode::SPLICE => {
            leaves_the_lanes(fd);
            leaves_the_lanes(request.file_index as c_int); // splice_fd_in
            false
        }
        opcode::FILES_UPDATE => {
            let files: *const c_int = core::ptr::with_exposed_provenance(request.address as usize);
            // SAFETY: an entry of this kind has an array of `count` descriptors there, which the kernel reads.
            unsafe { registers(files, request.count) };
            false
        }
        _ => false,
    }
}

/// Ends the spreading of a file that the ring changes, or reads, past the lanes.
fn leaves_the_lanes(fd: c_int) {
    if let Some(group) = GroupRef::proven(fd) {
        group.node().end(Reason::Uring);
        group.node().drain();
        group.node().revalidate(fd);
    }
}

/// True for a read or write at an offset, by the file descriptor it names, as plain as pread(2).
fn is_plain(request: &Request) -> bool {
    let transfer = matches!(request.opcode, opcode::READ | opcode::READV | opcode::WRITE | opcode::WRITEV);
    transfer
        && request.priority == 0
        && request.rw_flags == 0
        && request.personality == 0
        && request.buffer == 0
        && request.offset != u64::MAX
}

/// The bytes of a transfer; None if the kernel will refuse it.
fn bytes_of(request: &Request) -> Option<u64> {
    if matches!(request.opcode, opcode::READ | opcode::WRITE) {
        return Some(request.count.into());
    }
    // UIO_MAXIOV: more is EINVAL.
    if request.address == 0 || request.count > 1024 {
        return None;
    }
    let given: *const libc::iovec = core::ptr::with_exposed_provenance(request.address as usize);
    let lengths = (0..request.count as usize).map(|at| {
        // SAFETY: what the kernel would read: `count` vectors.
        let vector = unsafe { given.wrapping_add(at).read_unaligned() };
        vector.iov_len as u64
    });
    Some(lengths.fold(0, u64::saturating_add))
}

fn retire(pending: &Pending, result: i64, now_ns: u64) {
    let Pending { group, kind, choice, offset, .. } = pending;
    let group = GroupRef::again(*group);
    if result == -i64::from(libc::ECANCELED) {
        return spread::cancel(&group, choice, now_ns);
    }
    if choice.file.is_some() {
        group.node().lane_ends();
    }
    let fault = spread::is_lane_fault(&group, choice.ticket.lane, result);
    spread::finish(&group, choice, *kind, *offset, result, fault, now_ns);
}

/// Retires the requests that have come back on all rings: the thread that waits for lanes to be drained may be the one
/// that would submit next.
pub fn look_at_all() {
    for ring in ALL.iter().filter(|ring| ring.in_flight.load(Acquire) != 0) {
        if let Some(held) = ring.hold(false) {
            held.catch_up();
        }
    }
}

/// Forgets all rings in a forked child: the requests are the parent's.
pub fn forget_all() {
    for ring in ALL.iter().filter(|ring| ring.id.load(Relaxed) != 0) {
        ring.id.store(0, Relaxed);
        ring.in_flight.store(0, Relaxed);
        // SAFETY: a forked child has one thread.
        let known = unsafe { &mut *ring.known.get() };
        known.requests.clear();
        ring.taken.store(false, SeqCst);
    }
}

/// Notes that the program sets a ring up by the system call: the library sees nothing of that ring.
pub fn set_up_by_system_call() {
    if lane::active() {
        Reason::RawUring.count();
    }
}

/// Does the library's part before requests are submitted: syncs lanes, and spreads transfers.
///
/// # Safety
/// A valid `struct io_uring` whose submission queue is the calling thread's.
pub unsafe fn before(uring: *mut Uring) {
    if uring.is_null() || !lane::active() {
        return;
    }
    // SAFETY: the program's contract.
    let flags = unsafe { (*uring).flags };
    let _errno = errno::kept();
    process::notice_fork();
    // SAFETY: the program's contract.
    let queue = unsafe { &(*uring).submission };
    if queue.own_head == queue.own_tail {
        return;
    }
    // A sync has to reach the writes before it. (Waiting for them is done without holding the ring.)
    let mut syncs = false;
    for place in queue.written(flags) {
        // SAFETY: an entry that the program has written and not submitted.
        let request = unsafe { place.read() };
        // SAFETY: an entry that the program has written and not submitted.
        syncs |= unsafe { prepare(place, &request) };
    }
    if flags & OTHER_RINGS != 0 {
        return;
    }
    // SAFETY: the program's contract.
    if let Some(held) = unsafe { held(uring) } {
        held.catch_up();
        // SAFETY: the program's contract.
        unsafe { held.spread(syncs) };
    }
}

/// Notes files that a ring keeps: a request names a place in the ring's table, and the descriptor may be closed.
///
/// # Safety
/// `files` points to `count` descriptors.
pub unsafe fn registers(files: *const c_int, count: c_uint) {
    if files.is_null() || !lane::active() {
        return;
    }
    let _errno = errno::kept();
    for at in 0..count as usize {
        // SAFETY: what the kernel would read: `count` descriptors.
        others::goes_out_of_sight(unsafe { files.wrapping_add(at).read_unaligned() });
    }
}

/// Notes files that the program gives to a ring by io_uring_register(2).
///
/// # Safety
/// The arguments of that call.
pub unsafe fn registers_by_system_call(what: c_uint, argument: *const c_void, count: c_uint) {
    /// IORING_REGISTER_FILES: an array of descriptors.
    const FILES: c_uint = 2;
    /// IORING_REGISTER_FILES_UPDATE, _FILES2 and _FILES_UPDATE2: structures that hold the address of such an array, in
    /// their second word, and for the latter two its length (linux/io_uring.h: io_uring_files_update,
    /// io_uring_rsrc_register, io_uring_rsrc_update2).
    const UPDATE: c_uint = 6;
    const FILES2: c_uint = 13;
    const UPDATE2: c_uint = 14;
    if argument.is_null() {
        return;
    }
    let word = |at: usize| {
        // SAFETY: the structure of the call has at least this number of words.
        unsafe { argument.cast::<u64>().wrapping_add(at).read_unaligned() }
    };
    let array = |at: usize| core::ptr::with_exposed_provenance::<c_int>(word(at) as usize);
    let (files, count) = match what {
        FILES => (argument.cast(), count),
        UPDATE => (array(1), count),
        // nr; data
        FILES2 => (array(2), word(0) as c_uint),
        // data; nr
        UPDATE2 => (array(1), word(3) as c_uint),
        _ => return,
    };
    // SAFETY: the program passes this number of descriptors, which the kernel reads too.
    unsafe { registers(files, count) };
}

/// Ends the library's part of a ring, before the ring is unmapped. The requests in flight are cancelled, or go on
/// without the library: the function waits for those that count as in flight.
pub fn ends(uring: *const Uring) {
    let Some(held) = known(uring).and_then(|ring| ring.hold(true)) else { return };
    let _errno = errno::kept();
    held.catch_up();
    // The kernel may carry out requests after the ring has ended, so no lane is closed while they are in flight.
    while held.ring.in_flight.load(Acquire) != 0 {
        raw::sleep_us(50);
        held.catch_up();
    }
    for pending in held.known().requests.recorded() {
        drop(GroupRef::again(pending.group));
    }
    held.known().requests.clear();
    held.ring.id.store(0, Release);
}

//! The io_urings of the process, with their requests in flight.
//!
//! Inline code of the program writes the submission queue entries, and inline code reads the completions, too. So the
//! library can only change the descriptor of an entry between the two: in liburing's functions ([`crate::aio::uring`])
//! and in io_uring_enter(2) ([`crate::aio::raw_ring`]). It changes an entry only if the lane's file is certain to be
//! the one that is meant, now and when the kernel comes to it, and if its completion can be told from all others of the
//! ring: plain reads and writes with an offset, not linked, not drained, without provided buffers, with a `user_data`
//! that no other request in flight has ([`crate::aio::tagged`]). So the library counts every request of a ring, and
//! sees every completion: the completion queue keeps entries after the program has consumed them. A ring of which the
//! library has missed something is not spread any more.
//!
//! **No completion is overwritten unseen.** The kernel writes a completion over another one only after the program has
//! consumed that one, and a request has one last completion. So as long as the requests that the library has not seen
//! end are at most as many as the queue has places, each of their completions is still in its place.
//!
//! A read that fails because of its lane cannot be done again behind the program's back: its error is the program's.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::abi::dispatch;
use crate::abi::errno;
use crate::abi::liburing::{
    ASYNC, Completion, DRAIN, FIXED_FILE, LIBURINGS, LINKS, MORE, OVERFLOW, Request, SELECT, SILENT, opcode, setup,
};
use crate::abi::raw;
use crate::abi::readable;
use crate::aio::context;
use crate::aio::registered::Registered;
use crate::aio::tagged::{Ended, Tagged};
use crate::policy::spread::{self, Choice, Chosen, Kind};
use crate::policy::trace;
use crate::state::group::GroupRef;
use crate::state::proof::Proofs;
use crate::state::reason::Reason;
use crate::state::table::Name;

/// The most rings of a process whose requests are spread.
const RINGS: usize = 64;

/// The places of a ring's two queues, in memory that the ring's owner keeps mapped until the ring is taken out.
#[derive(Clone, Copy)]
pub struct Queues {
    /// The end of the entries that the kernel has taken.
    pub head: *const AtomicU32,
    /// IORING_SQ_*
    pub flags: *const AtomicU32,
    /// The end of the completions.
    pub completed: *const AtomicU32,
    /// The number of places for completions, minus one.
    pub completed_mask: u32,
    /// The places for completions.
    pub completions: *const Completion,
    /// The address and the bytes of a mapping that goes with the ring's place in the table.
    pub mapped: Option<(usize, usize)>,
}

impl Queues {
    /// The places of no ring.
    pub const NONE: Queues = Queues {
        head: core::ptr::null(),
        flags: core::ptr::null(),
        completed: core::ptr::null(),
        completed_mask: 0,
        completions: core::ptr::null(),
        mapped: None,
    };

    /// Undoes the mapping of queues that were not entered, or are entered no longer.
    pub fn unmap(self) {
        if let Some((address, bytes)) = self.mapped {
            unmap(address, bytes);
        }
    }
}

/// Maps a part of a ring for the library itself: its address.
pub fn map(fd: c_int, bytes: usize, at: usize) -> raw::Result<usize> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_SHARED | libc::MAP_POPULATE) as usize;
    // SAFETY: a new mapping, at no particular address.
    let address = raw::check(unsafe { raw::call(libc::SYS_mmap, 0, bytes, protection, flags, raw::arg(fd), at) })?;
    // A forked child does not follow its parent's rings.
    // SAFETY: the mapping that was just made.
    let _ = unsafe { raw::call(libc::SYS_madvise, address, bytes, libc::MADV_DONTFORK as usize, 0, 0, 0) };
    Ok(address)
}

/// Undoes [`map`].
pub fn unmap(address: usize, bytes: usize) {
    if address != 0 {
        // SAFETY: a mapping of the library that nobody uses any more.
        let _ = unsafe { raw::call(libc::SYS_munmap, address, bytes, 0, 0, 0, 0) };
    }
}

/// A request that was recorded: the library has chosen its lane.
#[derive(Clone, Copy)]
pub struct Pending {
    group: Name,
    kind: Kind,
    choice: Choice,
    offset: i64,
    /// The request counts as in flight on its lane.
    counts: bool,
}

/// The requests of a ring, as far as the library knows them.
pub struct Known {
    pub queues: Queues,
    requests: Tagged<Pending>,
    /// The end of the entries that the library has seen.
    pub seen: c_uint,
    /// The end of the completions that the library has seen.
    completed: c_uint,
    /// The requests that the library has not seen end.
    outstanding: u32,
    /// A [`Reason::mark`]: the reason why nothing more of the ring is spread (see [`Known::blind`]); 0 without one.
    blind: u8,
    /// The files that the program has registered.
    pub files: Registered,
    /// The descriptor of a ring whose completions come only when its own thread asks for them (DEFER_TASKRUN).
    pub deferred: Option<c_int>,
    /// The descriptor of a ring that liburing drives.
    pub ring_fd: Option<c_int>,
}

impl Known {
    /// The reason why nothing more of the ring is spread: requests or completions were missed, or the ring is of
    /// another kind.
    pub fn blind(&self) -> Option<Reason> {
        Reason::of_mark(self.blind)
    }
}

/// The requests of one ring, and the right to look at them.
pub struct Ring {
    /// The ring's owner knows the ring by this; 0 for a free place.
    id: AtomicU64,
    /// True while one thread has taken the ring: it alone looks at the other fields.
    taken: AtomicBool,
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
        in_flight: AtomicU32::new(0),
        known: UnsafeCell::new(Known {
            queues: Queues::NONE,
            requests: Tagged::new(),
            seen: 0,
            completed: 0,
            outstanding: 0,
            blind: 0,
            files: Registered::none(),
            deferred: None,
            ring_fd: None,
        }),
    }
}; RINGS];

/// The reason why nothing is spread of a ring that was set up with these flags; None if its requests may be.
pub fn why_not(flags: c_uint) -> Option<Reason> {
    match flags {
        _ if flags & setup::IOPOLL != 0 => Some(Reason::RingIopoll),
        _ if flags & !(setup::PLAIN | setup::DEFER_TASKRUN) != 0 => Some(Reason::RingKind),
        _ => None,
    }
}

/// A ring that this thread has taken; dropping it lets others have it.
pub struct Held {
    ring: &'static Ring,
    id: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ring.taken.store(false, Release);
    }
}

impl Ring {
    fn hold(&'static self, wait: bool) -> Option<Held> {
        while self.taken.swap(true, AcqRel) {
            if !wait {
                return None;
            }
            raw::pause();
        }
        Some(Held { ring: self, id: self.id.load(Acquire) })
    }
}

/// Takes the ring that its owner knows by this number, as soon as no other thread has it. None if the ring is not
/// known.
pub fn hold(id: u64) -> Option<Held> {
    let ring = ALL.iter().find(|ring| id != 0 && ring.id.load(Acquire) == id)?;
    ring.hold(true).filter(|held| held.id == id)
}

/// Takes the ring of liburing that has this descriptor, if it is known.
pub fn of_descriptor(fd: c_int) -> Option<Held> {
    let known = ALL.iter().filter(|ring| fd >= 0 && ring.id.load(Acquire) != 0);
    known.filter_map(|ring| ring.hold(true)).find(|held| held.id != 0 && held.known().ring_fd == Some(fd))
}

/// Enters a new ring; `seen` is the end of the entries that were submitted before. None if the table is full.
///
/// # Safety
/// The places of the queues stay valid until [`Held::ends`].
pub unsafe fn enter(id: u64, queues: Queues, seen: c_uint, kind: Option<Reason>) -> Option<Held> {
    for ring in ALL.iter().filter(|ring| ring.id.load(Relaxed) == 0) {
        let Some(mut held) = ring.hold(false).filter(|held| held.id == 0) else { continue };
        // SAFETY: the caller keeps the queues mapped until `ends`.
        let completed = unsafe { (*queues.completed).load(Acquire) };
        ring.in_flight.store(0, Relaxed);
        let known = held.known();
        known.queues = queues;
        known.requests.clear();
        known.files = Registered::none();
        known.seen = seen;
        known.completed = completed;
        known.outstanding = 0;
        known.deferred = None;
        known.ring_fd = None;
        // Not a new ring: some of its requests may be in flight.
        let begun = (seen != 0 || completed != 0).then_some(Reason::RingDrivers);
        known.blind = kind.or(begun).map_or(0, Reason::mark);
        ring.id.store(id, Release);
        held.id = id;
        return Some(held);
    }
    None
}

/// The knowledge of one call about the entries that it submits.
pub struct Batch {
    /// The time of the call.
    pub now_ns: u64,
    proofs: Proofs,
    chained: bool,
    syncs: bool,
    /// The program has one thread.
    alone: bool,
}

impl Batch {
    /// The knowledge about entries of which none was looked at. Writes stay where they are if there are `syncs` among
    /// the entries: a sync does not cover requests that are submitted beside it.
    pub fn new(syncs: bool) -> Batch {
        let alone = dispatch::is_alone() || context::is_single_threaded();
        Batch { now_ns: raw::now_ns(), proofs: Proofs::none(), chained: false, syncs, alone }
    }
}

impl Held {
    /// The knowledge about the ring.
    #[allow(clippy::mut_from_ref, reason = "the thread that has taken the ring is alone with its requests")]
    pub fn known(&self) -> &mut Known {
        // SAFETY: this thread has taken the ring, so `known` is its alone; no two of these references are used at a
        // time.
        unsafe { &mut *self.ring.known.get() }
    }

    /// Retires the requests that have come back since the last time.
    pub fn catch_up(&self) {
        let known = self.known();
        if self.id == 0 || (known.blind().is_some() && known.requests.is_empty()) {
            return; // nothing that could come back matters
        }
        let (queues, mut at, outstanding, seen) = (known.queues, known.completed, known.outstanding, known.seen);
        // SAFETY: the places of an entered ring are valid until its owner takes it out.
        let tail = unsafe { (*queues.completed).load(Acquire) };
        // SAFETY: the places of an entered ring are valid until its owner takes it out.
        let flags = unsafe { (*queues.flags).load(Acquire) };
        // After the completions: each of those belongs to an entry before this end.
        // SAFETY: the places of an entered ring are valid until its owner takes it out.
        let head = unsafe { (*queues.head).load(Acquire) };
        let now_ns = raw::now_ns();
        if head.wrapping_sub(seen).cast_signed() > 0 {
            self.loses_sight(Reason::RingDrivers, now_ns); // somebody has submitted entries past the library
        }
        let places = queues.completed_mask.wrapping_add(1);
        if flags & OVERFLOW != 0 {
            // The queue is full, and the completions since then are not in it before the program has made room: any
            // request may have ended. The program has no right to rely on completions that it has not fetched.
            self.loses_sight(Reason::RingOverflow, now_ns);
        }
        if tail.wrapping_sub(at) > places {
            // More completions than the queue holds: the lost ones cannot be read.
            at = tail.wrapping_sub(places);
            self.loses_sight(Reason::RingOverflow, now_ns);
        } else if outstanding > places {
            self.loses_sight(Reason::RingOverflow, now_ns);
        }
        while at != tail {
            let place = queues.completions.wrapping_add((at & queues.completed_mask) as usize);
            // SAFETY: within the mapped queue; the kernel has written it.
            let completion = unsafe { place.read_volatile() };
            if completion.flags & MORE == 0 {
                self.ended(&completion, now_ns);
            } else if self.known().outstanding >= places / 2 {
                // Completions beyond one for each request: the count of places may not be enough.
                self.loses_sight(Reason::RingOverflow, now_ns);
            }
            at = at.wrapping_add(1);
        }
        self.known().completed = at;
    }

    /// Retires the requests that have come back, also those whose completions the kernel holds back until the ring's
    /// thread asks for them: that is the program's only thread, which calls this.
    fn fetch(&self) {
        if let Some(fd) = self.known().deferred.filter(|_| self.ring.in_flight.load(Acquire) != 0) {
            const GETEVENTS: usize = 1;
            // SAFETY: integers only; nothing is submitted.
            let _ = unsafe { raw::call(libc::SYS_io_uring_enter, raw::arg(fd), 0, 0, GETEVENTS, 0, 0) };
        }
        self.catch_up();
    }

    fn ended(&self, completion: &Completion, now_ns: u64) {
        let known = self.known();
        known.outstanding = known.outstanding.saturating_sub(1);
        match known.requests.ended(completion.user_data) {
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
            pending.choice.recorded = false; // for other processes it stays in flight
            spread::cancel(&group, &pending.choice, now_ns);
        }
        if pending.kind == Kind::Write && pending.choice.file.is_some() {
            group.node().lane_write(pending.choice.ticket.lane);
        }
    }

    /// Requests or completions were missed: nothing of the ring is spread any more.
    pub fn loses_sight(&self, reason: Reason, now_ns: u64) {
        let known = self.known();
        if known.blind().is_none() {
            reason.count();
            known.blind = reason.mark();
        }
        known.requests.recorded().for_each(|pending| self.release(pending, now_ns));
        known.requests.doubt_all();
    }

    /// Chooses the lane of an entry that is about to be submitted, and counts the entry. None if the entry stays as it
    /// is, and is not recorded.
    pub fn place(&self, request: &Request, batch: &mut Batch) -> Option<Choice> {
        let follows = core::mem::replace(&mut batch.chained, request.flags & LINKS != 0);
        if request.flags & SILENT != 0 {
            self.loses_sight(Reason::RingSilent, batch.now_ns);
        }
        let recorded = self.choose(request, follows, batch);
        let known = self.known();
        known.outstanding = known.outstanding.saturating_add(1);
        if recorded.is_none() {
            known.requests.count(request.user_data);
        }
        recorded
    }

    /// Takes an entry back of which the kernel has not heard. Entries are taken back in the reverse order of
    /// [`Held::place`], and before the library has looked at completions.
    pub fn take_back(&self, request: &Request, recorded: bool, now_ns: u64) {
        let known = self.known();
        known.outstanding = known.outstanding.saturating_sub(1);
        if !recorded {
            known.requests.uncount(request.user_data);
        } else if let Some(mut pending) = known.requests.remove(request.user_data) {
            let group = GroupRef::again(pending.group);
            if core::mem::take(&mut pending.counts) {
                self.ring.in_flight.fetch_sub(1, AcqRel);
                spread::cancel(&group, &pending.choice, now_ns);
            }
        }
    }

    /// The open file that an entry names, and a descriptor of it for proofs.
    fn file_of(&self, request: &Request) -> Option<(GroupRef, c_int)> {
        if request.flags & FIXED_FILE == 0 {
            return GroupRef::of(request.file).map(|group| (group, request.file));
        }
        let group = self.known().files.group(request.file as u32)?;
        // The ring holds the open file itself. The witness is the same open file.
        let witness = group.witness()?;
        Some((group, witness))
    }

    /// The lane of an entry, which is recorded; None if the entry stays as it is and is not recorded.
    fn choose(&self, request: &Request, follows: bool, batch: &mut Batch) -> Option<Choice> {
        let kind = kind_of(request)?;
        let fixed = request.flags & FIXED_FILE != 0;
        if fixed && self.known().files.is_unknown(request.file as u32) {
            Reason::RingFixed.count();
            return None;
        }
        let (group, fd) = self.file_of(request)?;
        if !batch.alone && (fixed || self.known().deferred.is_some()) {
            // Another thread could wait for completions that only the ring's thread can ask for; or it could write an
            // entry while the library puts one back.
            let reason = if fixed { Reason::RingThreads } else { Reason::RingDeferred };
            reason.count();
            return None;
        }
        if let Some(reason) = why_not_plain(request, follows, batch.syncs && kind == Kind::Write) {
            reason.count();
            return None;
        }
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
        trace::transfers(if fixed { -1 } else { fd }, &group, kind, offset, bytes);
        let known = self.known();
        if let Some(reason) = known.blind() {
            reason.count();
            return None;
        }
        if request.user_data == LIBURINGS || !known.requests.can_record(request.user_data) {
            Reason::RingTwins.count();
            return None;
        }
        let choice = match spread::choose(&group, fd, kind, offset, bytes, batch.now_ns, &mut batch.proofs) {
            Chosen::To(choice) => choice,
            Chosen::Full => spread::own(&group, group.pool()?, kind, bytes, batch.now_ns),
            Chosen::Stale => return None,
        };
        if kind == Kind::Write {
            // The program may know of the write before the library does: old pages are gone before it begins, too.
            group.drop_replaced(choice.ticket.lane, offset, bytes);
        }
        let pending = Pending { group: group.name(), kind, choice, offset, counts: true };
        self.known().requests.record(request.user_data, pending);
        self.ring.in_flight.fetch_add(1, AcqRel);
        core::mem::forget(group); // the record's
        Some(choice)
    }

    /// Waits for the requests that count as in flight.
    fn wait(&self) {
        self.fetch();
        while self.ring.in_flight.load(Acquire) != 0 {
            raw::sleep_us(50);
            self.fetch();
        }
    }

    /// Ends the library's part of a ring. The requests in flight are cancelled by the kernel, or go on without the
    /// library: the function waits for those that count as in flight.
    pub fn ends(self) {
        // The kernel may carry out requests after the ring has ended, so no lane is closed while they are in flight.
        self.wait();
        for pending in self.known().requests.recorded() {
            drop(GroupRef::again(pending.group));
        }
        self.known().requests.clear();
        self.known().files.clear_all();
        self.ring.id.store(0, Release);
        core::mem::replace(&mut self.known().queues, Queues::NONE).unmap();
    }
}

/// Waits for the requests of rings whose completions only the calling thread can ask for: the program is about to have
/// another thread.
pub fn a_thread_is_made() {
    for ring in ALL.iter().filter(|ring| ring.in_flight.load(Acquire) != 0) {
        if let Some(held) = ring.hold(true).filter(|held| held.id != 0 && held.known().deferred.is_some()) {
            let _errno = errno::kept();
            held.wait();
        }
    }
}

/// Notes that a file or a completion may come to any ring from another one (IORING_OP_MSG_RING).
pub fn messages_are_sent() {
    for ring in ALL.iter().filter(|ring| ring.id.load(Acquire) != 0) {
        if let Some(held) = ring.hold(true).filter(|held| held.id != 0) {
            held.catch_up();
            held.loses_sight(Reason::RingSilent, raw::now_ns());
            held.known().files.forget_all_places();
        }
    }
}

/// Notes that the program has changed the registered files of a ring that nobody knows.
pub fn files_change_somewhere() {
    for ring in ALL.iter().filter(|ring| ring.id.load(Acquire) != 0) {
        if let Some(held) = ring.hold(true).filter(|held| held.id != 0) {
            held.known().files.forget_all_places();
        }
    }
}

/// The direction of a request that transfers at an offset; None for all other requests.
fn kind_of(request: &Request) -> Option<Kind> {
    match request.opcode {
        opcode::READ | opcode::READV | opcode::READ_FIXED | opcode::READV_FIXED => Some(Kind::Read),
        opcode::WRITE | opcode::WRITEV | opcode::WRITE_FIXED | opcode::WRITEV_FIXED => Some(Kind::Write),
        _ => None,
    }
}

/// True for an entry of a transfer, which may be spread.
pub fn is_transfer(request: &Request) -> bool {
    kind_of(request).is_some()
}

/// The reason why a transfer is not one as plain as pread(2).
fn why_not_plain(request: &Request, follows: bool, beside_syncs: bool) -> Option<Reason> {
    let registered_buffer =
        matches!(request.opcode, opcode::READ_FIXED | opcode::WRITE_FIXED | opcode::READV_FIXED | opcode::WRITEV_FIXED);
    if follows || request.flags & (LINKS | DRAIN) != 0 {
        return Some(Reason::RingLinked);
    }
    if request.flags & SELECT != 0 {
        return Some(Reason::RingBuffers);
    }
    let plain = request.flags & !(ASYNC | FIXED_FILE) == 0
        && request.priority == 0
        && request.rw_flags == 0
        && request.personality == 0
        && (request.buffer == 0 || registered_buffer)
        && request.offset != u64::MAX
        && request.rest[1] == 0; // attributes (Linux 6.13), such as integrity data
    if !plain {
        return Some(Reason::Uring);
    }
    beside_syncs.then_some(Reason::RingSyncs)
}

/// The bytes of a transfer; None if the kernel will refuse it.
fn bytes_of(request: &Request) -> Option<u64> {
    if matches!(request.opcode, opcode::READ | opcode::WRITE | opcode::READ_FIXED | opcode::WRITE_FIXED) {
        return Some(request.count.into());
    }
    // UIO_MAXIOV: more is EINVAL.
    if request.address == 0 || request.count > 1024 {
        return None;
    }
    let given: *const libc::iovec = core::ptr::with_exposed_provenance(request.address as usize);
    let mut bytes = 0u64;
    let read = readable::for_each(given, request.count as usize, |_, vector| {
        bytes = bytes.saturating_add(vector.iov_len as u64);
    });
    read.then_some(bytes)
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
    let fault = spread::is_lane_fault(result);
    spread::finish(&group, choice, *kind, *offset, result, fault, now_ns);
}

/// Retires the requests that have come back on all rings: the thread that waits for lanes to be drained may be the one
/// that would submit next.
pub fn look_at_all() {
    for ring in ALL.iter().filter(|ring| ring.in_flight.load(Acquire) != 0) {
        if let Some(held) = ring.hold(false) {
            held.fetch();
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
        known.files = Registered::none();
        ring.taken.store(false, SeqCst);
    }
}

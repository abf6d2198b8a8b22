//! io_urings that the program makes and drives by system calls: io_uring_setup(2), io_uring_enter(2),
//! io_uring_register(2).
//!
//! The library maps a ring once more for itself when the program makes it. So it finds the entries that a call submits
//! before the kernel does, and the completions after the kernel, for as long as it wants to look, wherever the program
//! has mapped the ring. An entry that goes to a lane names the lane's file while the kernel takes it, and is put back
//! before the call returns: a program may fill an entry once and submit it again and again.
//!
//! - The library holds the ring while the kernel takes the entries, and gives the waiting of the same call to a second
//!   call. So it knows how many entries the kernel has taken before it looks at a completion, and takes the others
//!   back.
//! - Another thread may write the next entry into a place as soon as the kernel has taken the one before. The entry is
//!   put back by one comparison: the lane's file, which the program does not know, is still in its place.
//! - An entry on a registered file loses a flag (IOSQE_FIXED_FILE) beside its number, and the comparison could take a
//!   half-written entry for its own. Such an entry is changed only in a program of one thread.
//! - A number that has come to mean another ring does no harm: the entries of the ring that it meant have not moved.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};

use crate::abi::errno;
use crate::abi::liburing::{FIXED_FILE, Parameters, Request, opcode, setup};
use crate::abi::own_stack;
use crate::abi::raw;
use crate::abi::readable::{self, is_readable};
use crate::abi::undisturbed::Undisturbed;
use crate::aio::prepare::{Prepared, prepare};
use crate::aio::registered;
use crate::aio::rings::{self, Batch, Held, Queues};
use crate::open::others;
use crate::state::group::GroupRef;
use crate::state::lane;
use crate::state::process;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

/// The most rings that a process makes by system calls and that are known at a time.
const RINGS: usize = 64;
/// The most entries of one call that are recorded; a call with more is not spread.
const MOST: usize = 1024;

/// A ring that the program has made by the system call, and the library's own mapping of it.
struct Mapped {
    /// The program's descriptor of the ring; -1 for a free place.
    fd: AtomicI32,
    /// The number by which [`rings`] knows the ring.
    id: AtomicU64,
    /// The address of the two queues and of the entries, and their sizes in bytes.
    queues: AtomicUsize,
    queues_bytes: AtomicUsize,
    entries: AtomicUsize,
    entries_bytes: AtomicUsize,
    /// Offsets into the queues.
    head: AtomicU32,
    tail: AtomicU32,
    /// The offset of the array of places; `u32::MAX` without one (NO_SQARRAY).
    array: AtomicU32,
    mask: AtomicU32,
    /// IORING_SETUP_*
    flags: AtomicU32,
    /// Threads that read the mapping at this moment.
    pins: AtomicU32,
    /// Calls whose entries the kernel may not have taken yet, and whose threads do not hold the ring.
    entering: AtomicU32,
}

static ALL: [Mapped; RINGS] = [const {
    Mapped {
        fd: AtomicI32::new(-1),
        id: AtomicU64::new(0),
        queues: AtomicUsize::new(0),
        queues_bytes: AtomicUsize::new(0),
        entries: AtomicUsize::new(0),
        entries_bytes: AtomicUsize::new(0),
        head: AtomicU32::new(0),
        tail: AtomicU32::new(0),
        array: AtomicU32::new(0),
        mask: AtomicU32::new(0),
        flags: AtomicU32::new(0),
        pins: AtomicU32::new(0),
        entering: AtomicU32::new(0),
    }
}; RINGS];

/// True once the program has made a ring by the system call.
static ANY: AtomicBool = AtomicBool::new(false);
/// Rings are numbered, so that a number never means two of them. The highest bit keeps them apart from addresses.
static NEXT: AtomicU64 = AtomicU64::new(1 << 63);

/// The end of io_uring_enter(2)'s arguments: all that concerns waiting.
pub struct Wait {
    pub least: usize,
    pub flags: usize,
    pub argument: usize,
    pub size: usize,
}

/// IORING_ENTER_GETEVENTS, IORING_ENTER_EXT_ARG, IORING_ENTER_REGISTERED_RING, IORING_ENTER_ABS_TIMER,
/// IORING_ENTER_EXT_ARG_REG.
const GETEVENTS: usize = 1;
const REGISTERED: usize = 1 << 4;
const OF_WAITING: usize = GETEVENTS | 1 << 3 | 1 << 5 | 1 << 6;

/// IORING_FEAT_SINGLE_MMAP, IORING_FEAT_NODROP, IORING_FEAT_SUBMIT_STABLE (Linux 5.5).
const FEATURES: u32 = 1 | 1 << 1 | 1 << 2;

/// io_uring_setup(2). Returns the ring's descriptor or `-errno`.
///
/// # Safety
/// As the system call.
pub unsafe fn set_up(entries: usize, parameters: *mut c_void) -> isize {
    let place = parameters as usize;
    // SAFETY: the program's arguments.
    let result = unsafe { raw::pass(libc::SYS_io_uring_setup, entries, place, 0, 0, 0, 0) };
    if result >= 0 && lane::active() && process::is_own() {
        let _undisturbed = Undisturbed::begin();
        let _errno = errno::kept();
        // SAFETY: the kernel has just filled the structure.
        let parameters = unsafe { parameters.cast::<Parameters>().read_unaligned() };
        if parameters.flags & setup::REGISTERED_FD_ONLY == 0 {
            is_made(result as c_int, &parameters);
        }
    }
    result
}

/// Enters a ring that the program has just made.
fn is_made(fd: c_int, made: &Parameters) {
    closes(fd); // the ring that the number meant before was closed where no hook saw it
    let sizes_known = made.flags & !(setup::PLAIN | setup::IOPOLL | setup::DEFER_TASKRUN | setup::SQE128) == 0;
    let why_not = match made.flags {
        flags if flags & setup::SQPOLL != 0 => Some(Reason::RingPolled),
        _ if made.features & FEATURES != FEATURES => Some(Reason::RingKind),
        flags => rings::why_not(flags),
    };
    let Some(place) = ALL.iter().find(|place| place.fd.compare_exchange(-1, -2, AcqRel, Relaxed).is_ok()) else {
        Reason::Tables.count();
        return;
    };
    if why_not == Some(Reason::RingPolled) {
        Reason::RingPolled.count(); // once: its requests are never seen
        for word in [&place.queues, &place.entries] {
            word.store(0, Relaxed);
        }
        place.id.store(0, Relaxed);
        ANY.store(true, Relaxed);
        place.fd.store(fd, core::sync::atomic::Ordering::Release);
        return;
    }
    let no_array = made.flags & setup::NO_SQARRAY != 0;
    let stride = if made.flags & setup::SQE128 != 0 { 2 } else { 1 };
    let after_array = if no_array { 0 } else { made.submission.seventh as usize + made.submissions as usize * 4 };
    let after_completions = made.completion.sixth as usize + made.completions as usize * 16;
    let (queues_bytes, entries_bytes) =
        (after_array.max(after_completions), made.submissions as usize * stride * size_of::<Request>());
    // IORING_OFF_SQ_RING, with which both queues are mapped, and IORING_OFF_SQES.
    let queues = if sizes_known { rings::map(fd, queues_bytes, 0) } else { Err(libc::ENOTSUP) };
    let entries = queues.and_then(|_| rings::map(fd, entries_bytes, 0x1000_0000));
    let (Ok(queues), Ok(entries)) = (queues, entries) else {
        rings::unmap(queues.unwrap_or(0), queues_bytes);
        place.fd.store(-1, Relaxed);
        Reason::RingKind.count();
        return;
    };
    let word = |offset: u32| core::ptr::with_exposed_provenance(queues + offset as usize);
    let places = Queues {
        head: word(made.submission.head),
        flags: word(made.submission.fifth),
        completed: word(made.completion.tail),
        completed_mask: made.completions.wrapping_sub(1),
        completions: core::ptr::with_exposed_provenance(queues + made.completion.sixth as usize),
        mapped: None,
    };
    let id = NEXT.fetch_add(1, Relaxed);
    // SAFETY: the library's own mapping, which stays until `closes` has taken the ring out.
    let held = unsafe { rings::enter(id, places, 0, why_not) };
    if let Some(held) = held {
        held.known().deferred = (made.flags & setup::DEFER_TASKRUN != 0).then_some(fd);
    } else {
        rings::unmap(queues, queues_bytes);
        rings::unmap(entries, entries_bytes);
        place.fd.store(-1, Relaxed);
        Reason::Tables.count();
        return;
    }
    place.id.store(id, Relaxed);
    place.queues.store(queues, Relaxed);
    place.queues_bytes.store(queues_bytes, Relaxed);
    place.entries.store(entries, Relaxed);
    place.entries_bytes.store(entries_bytes, Relaxed);
    place.head.store(made.submission.head, Relaxed);
    place.tail.store(made.submission.tail, Relaxed);
    place.array.store(if no_array { u32::MAX } else { made.submission.seventh }, Relaxed);
    place.mask.store(made.submissions.wrapping_sub(1), Relaxed);
    place.flags.store(made.flags, Relaxed);
    place.entering.store(0, Relaxed);
    ANY.store(true, Relaxed);
    place.fd.store(fd, core::sync::atomic::Ordering::Release);
}

fn find(fd: c_int) -> Option<&'static Mapped> {
    if fd < 0 || !ANY.load(Relaxed) {
        return None;
    }
    ALL.iter().find(|place| place.fd.load(Acquire) == fd)
}

/// Notes that a number is about to be closed: if it is a ring's, the library's part of the ring ends.
#[inline]
pub fn closes(fd: c_int) {
    if ANY.load(Relaxed) {
        end(fd);
    }
}

#[cold]
fn end(fd: c_int) {
    if !process::is_own() {
        return;
    }
    let Some(place) = find(fd) else { return };
    if place.fd.compare_exchange(fd, -2, SeqCst, Relaxed).is_err() {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    if let Some(held) = rings::hold(place.id.load(Relaxed)) {
        place.notes_unseen(&held);
        held.ends();
    }
    // A thread that submits entries reads the mapping until the kernel has taken them.
    while place.pins.load(SeqCst) != 0 {
        raw::sleep_us(50);
    }
    rings::unmap(place.queues.load(Relaxed), place.queues_bytes.load(Relaxed));
    rings::unmap(place.entries.load(Relaxed), place.entries_bytes.load(Relaxed));
    place.fd.store(-1, core::sync::atomic::Ordering::Release);
}

/// Notes that the numbers from `first` to `last` are about to be closed.
pub fn closes_all(first: c_int, last: c_int) {
    if !ANY.load(Relaxed) {
        return;
    }
    for place in &ALL {
        let fd = place.fd.load(Acquire);
        if fd >= 0 && (first..=last).contains(&fd) {
            end(fd);
        }
    }
}

/// Notes, at the end of the program, the rings that were entered where no hook sees it.
pub fn notes_unseen() {
    for place in ALL.iter().filter(|place| ANY.load(Relaxed) && place.fd.load(Acquire) >= 0) {
        if let Some(held) = rings::hold(place.id.load(Relaxed)) {
            place.notes_unseen(&held);
        }
    }
}

/// Forgets all rings in a forked child, which does not have the mappings.
pub fn forget_all() {
    ALL.iter().for_each(|place| place.fd.store(-1, Relaxed));
    ANY.store(false, Relaxed);
}

impl Mapped {
    fn word(&self, offset: u32) -> &AtomicU32 {
        let place: *const AtomicU32 = core::ptr::with_exposed_provenance(self.queues.load(Relaxed) + offset as usize);
        // SAFETY: a word within the library's own mapping, which stays while the caller has pinned it.
        unsafe { &*place }
    }

    /// Looks if the kernel has taken entries that the library has not seen.
    fn notes_unseen(&self, held: &Held) {
        if self.head() != held.known().seen && self.entering.load(Acquire) == 0 {
            held.known().seen = self.head();
            held.loses_sight(Reason::RingDrivers, raw::now_ns());
        }
    }

    fn head(&self) -> u32 {
        self.word(self.head.load(Relaxed)).load(Acquire)
    }

    fn tail(&self) -> u32 {
        self.word(self.tail.load(Relaxed)).load(Acquire)
    }

    /// The entry that stands at a position of the queue; None if the program has written a wrong number there.
    fn entry(&self, position: u32) -> Option<*mut Request> {
        let (mask, array) = (self.mask.load(Relaxed), self.array.load(Relaxed));
        let at = position & mask;
        let index = if array == u32::MAX { at } else { self.word(array + at * 4).load(Relaxed) };
        let stride = if self.flags.load(Relaxed) & setup::SQE128 != 0 { 2 } else { 1 };
        let first: *mut Request = core::ptr::with_exposed_provenance_mut(self.entries.load(Relaxed));
        (index <= mask).then(|| first.wrapping_add(index as usize * stride))
    }

    /// The contents of the entry at a position.
    fn request(&self, position: u32) -> Option<Request> {
        let entry = self.entry(position)?;
        // SAFETY: an entry within the mapping. The program does not write entries that it submits at this moment.
        Some(unsafe { entry.read_volatile() })
    }
}

/// A ring's mapping, which stays in place until this value is dropped.
struct Pinned(&'static Mapped);

impl Pinned {
    /// Keeps the mapping of a ring in place. None if the ring ends at this moment.
    fn of(place: &'static Mapped, fd: c_int) -> Option<Pinned> {
        // SeqCst, as in `end`: either this thread sees that the ring ends, or the ending one sees the pin.
        place.pins.fetch_add(1, SeqCst);
        let pinned = Pinned(place);
        (place.fd.load(SeqCst) == fd).then_some(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, AcqRel);
    }
}

/// A request that was recorded, or an entry that was changed.
#[derive(Clone, Copy)]
struct Change {
    position: u32,
    recorded: bool,
    /// The first word of the entry as the program has written it, and as the kernel is to see it.
    was: u64,
    is: u64,
}

/// The entries of one call that were recorded or changed.
struct Changes {
    room: [MaybeUninit<Change>; MOST],
    used: usize,
}

impl Changes {
    /// Notes an entry; false if the list is full.
    fn add(&mut self, change: Change) -> bool {
        let Some(place) = self.room.get_mut(self.used) else { return false };
        place.write(change);
        self.used += 1;
        true
    }

    fn all(&self) -> impl Iterator<Item = &Change> {
        // SAFETY: the first `used` places were written.
        self.room.iter().take(self.used).map(|place| unsafe { place.assume_init_ref() })
    }
}

/// The first word of an entry: operation, flags, priority and file.
fn first_word(entry: *mut Request) -> &'static AtomicU64 {
    // SAFETY: an entry is aligned to its 64 bytes, within a mapping that stays while the ring is held.
    unsafe { &*entry.cast::<AtomicU64>() }
}

/// The word with another file, and without the mark of a registered file.
fn with_file(word: u64, file: c_int) -> u64 {
    let flags = u64::from(FIXED_FILE) << 8;
    (word & !(flags | 0xffff_ffff_0000_0000)) | u64::from(file as u32) << 32
}

/// Puts an entry back, unless the program has already written another one over it.
fn put_back(entry: *mut Request, change: &Change) {
    let word = first_word(entry);
    if change.was as u32 == change.is as u32 {
        // Only the file differs: the half of the word that no program can have written.
        let file = entry.cast::<AtomicU32>().wrapping_add(1);
        // SAFETY: the second half of the entry's first word, within a mapping that stays while the ring is held.
        let file = unsafe { &*file };
        let _ = file.compare_exchange((change.is >> 32) as u32, (change.was >> 32) as u32, AcqRel, Relaxed);
    } else {
        let _ = word.compare_exchange(change.is, change.was, AcqRel, Relaxed);
    }
}

/// io_uring_enter(2). Returns its result or `-errno`.
///
/// # Safety
/// As the system call.
pub unsafe fn enter(fd: c_int, count: c_uint, wait: &Wait) -> isize {
    let kernel = |count: c_uint, wait: &Wait| {
        // SAFETY: the program's arguments, or a part of them.
        unsafe {
            raw::pass(
                libc::SYS_io_uring_enter,
                raw::arg(fd),
                count as usize,
                wait.least,
                wait.flags,
                wait.argument,
                wait.size,
            )
        }
    };
    if count == 0 || !lane::active() || !process::is_own() {
        return kernel(count, wait);
    }
    let known = if wait.flags & REGISTERED == 0 { find(fd) } else { None };
    let Some(pinned) = known.and_then(|place| Pinned::of(place, fd)) else {
        Reason::RingUnknown.count();
        return kernel(count, wait);
    };
    submit(pinned, count, wait, kernel)
}

/// The syncs of a call that must fail, because a lane could not be synced.
#[derive(Default)]
struct Failed {
    positions: [Option<u32>; 16],
    /// There are more of them: all syncs of the call fail.
    more: bool,
}

impl Failed {
    fn add(&mut self, position: u32) {
        match self.positions.iter_mut().find(|place| place.is_none()) {
            Some(free) => *free = Some(position),
            None => self.more = true,
        }
    }

    fn has(&self, position: u32, request: &Request) -> bool {
        self.positions.contains(&Some(position)) || (self.more && request.opcode == opcode::FSYNC)
    }
}

/// Does the work that is due before the entries of a call: syncs, closes and the like. Returns the syncs that must
/// fail, and true if there are syncs.
fn prepare_all(place: &Mapped, id: u64, from: u32, count: u32) -> (Failed, bool) {
    let (mut failed, mut syncs) = (Failed::default(), false);
    for position in (0..count).map(|at| from.wrapping_add(at)) {
        let Some(request) = place.request(position).filter(|request| !rings::is_transfer(request)) else { continue };
        if request.opcode == opcode::MSG_RING {
            rings::messages_are_sent();
        }
        let done = prepare(&request, file_of(id, &request));
        syncs |= done != Prepared::Other;
        if done == Prepared::NotDurable {
            failed.add(position);
        }
    }
    (failed, syncs)
}

/// The open file that an entry names, and a descriptor of it.
fn file_of(id: u64, request: &Request) -> Option<(GroupRef, c_int)> {
    if request.flags & FIXED_FILE == 0 {
        let fd = request.file;
        return if table::get(fd) == Entry::Nothing { None } else { GroupRef::proven(fd).map(|group| (group, fd)) };
    }
    let held = rings::hold(id)?;
    let group = held.known().files.group(request.file as u32)?;
    let witness = group.witness()?;
    Some((group, witness))
}

/// Notes what an entry that is not a transfer does to the registered files: it may put another file in a place.
fn note_files(held: &Held, request: &Request) {
    let files = &mut held.known().files;
    if request.opcode == opcode::FILES_UPDATE {
        let first = request.offset as usize;
        (0..request.count as usize).take(registered::PLACES).for_each(|at| files.clear(first.saturating_add(at)));
    } else if request.file_index != 0 {
        files.clear(request.file_index as usize - 1); // opens into a place, or closes one
    }
}

/// The part of a call that is left when the library has done its own, which a signal handler may leave.
enum Left {
    /// The call is the program's own.
    All,
    /// The call is the program's own: these entries of the ring were seen, and none was changed or recorded.
    Unchanged { id: u64, taken: u32 },
    /// The wait for completions; the entries were submitted with this result.
    Wait(isize),
    /// Nothing: the call has this result.
    Nothing(isize),
}

fn submit(pinned: Pinned, count: c_uint, wait: &Wait, kernel: impl Fn(c_uint, &Wait) -> isize) -> isize {
    let place = pinned.0;
    let left = {
        // A signal handler that waits for this ring's requests would wait for the thread that it has interrupted.
        let _undisturbed = Undisturbed::begin();
        let _errno = errno::kept();
        let left = own_stack::run(|| submit_spread(place, count, wait, &kernel));
        drop(pinned);
        left
    };
    match left {
        Left::All => kernel(count, wait),
        Left::Nothing(result) => result,
        Left::Wait(result) => {
            if result >= 0 && result as usize == count as usize {
                let _ = kernel(0, wait); // its errors are for calls that submit nothing
            }
            result
        }
        Left::Unchanged { id, taken } => {
            let result = kernel(count, wait);
            if place.id.load(Acquire) == id {
                let _ = place.entering.fetch_update(AcqRel, Relaxed, |calls| calls.checked_sub(1));
            }
            if taken != 0
                && !usize::try_from(result).is_ok_and(|done| done >= taken as usize)
                && let Some(held) = rings::hold(id)
                && held.known().blind().is_none()
            {
                held.loses_sight(Reason::RingDrivers, raw::now_ns());
            }
            result
        }
    }
}

/// Submits the entries, spread, as far as the kernel does not wait meanwhile.
fn submit_spread(place: &'static Mapped, count: c_uint, wait: &Wait, kernel: impl Fn(c_uint, &Wait) -> isize) -> Left {
    let id = place.id.load(Relaxed);
    let entries = place.mask.load(Relaxed).wrapping_add(1);
    let (held, from, taken, failed, syncs) = loop {
        let next = |held: Held| {
            place.notes_unseen(&held);
            held.known().seen
        };
        let Some(from) = rings::hold(id).map(next) else { return Left::All };
        let written = place.tail().wrapping_sub(from).min(entries).min(count);
        let (failed, syncs) = prepare_all(place, id, from, written);
        let Some(held) = rings::hold(id) else { return Left::All };
        held.catch_up();
        place.notes_unseen(&held);
        // Another thread may have submitted these entries meanwhile: then others are this call's, and were not
        // prepared.
        if held.known().seen == from {
            break (held, from, written, failed, syncs);
        }
    };
    let mut batch = Batch::new(syncs);
    let mut changes = Changes { room: [const { MaybeUninit::uninit() }; MOST], used: 0 };
    for position in (0..taken).map(|at| from.wrapping_add(at)) {
        let Some(entry) = place.entry(position) else {
            held.loses_sight(Reason::RingDrivers, batch.now_ns); // the kernel drops it
            continue;
        };
        if changes.used == MOST && held.known().blind().is_none() {
            held.loses_sight(Reason::Busy, batch.now_ns);
        }
        // SAFETY: an entry within the mapping, which the program has written and not submitted.
        let request = unsafe { entry.read_volatile() };
        if !rings::is_transfer(&request) {
            note_files(&held, &request);
        }
        let choice = held.place(&request, &mut batch);
        let not_durable = failed.has(position, &request);
        let file = if not_durable { Some(-1) } else { choice.and_then(|choice| choice.file) };
        let was = request.first_word();
        let is = file.map_or(was, |file| with_file(was, file));
        if choice.is_some() || is != was {
            let noted = changes.add(Change { position, recorded: choice.is_some(), was, is });
            if noted || not_durable {
                first_word(entry).store(is, Relaxed);
            }
        }
    }
    let end = from.wrapping_add(taken);
    held.known().seen = end;
    // The kernel waits only if it has taken as many entries as the program said. More may have been written meanwhile,
    // which the library has not seen: the kernel is not to take those.
    let waits = wait.flags & GETEVENTS != 0 && wait.least != 0 && taken == count;
    if taken == 0 || (changes.used == 0 && waits) {
        // Nothing was changed or recorded. If the kernel takes fewer entries, their count is wrong from then on.
        place.entering.fetch_add(1, AcqRel);
        return Left::Unchanged { id, taken };
    }
    let first = Wait { least: 0, flags: wait.flags & !OF_WAITING, argument: 0, size: 0 };
    let result = if waits || taken < count { kernel(taken, &first) } else { kernel(count, wait) };
    let head = place.head();
    for change in changes.all() {
        if change.is != change.was
            && let Some(entry) = place.entry(change.position)
        {
            put_back(entry, change);
        }
    }
    // The entries that the kernel has not taken, from the last one on.
    let left = end.wrapping_sub(head).min(taken);
    for position in (1..=left).map(|at| end.wrapping_sub(at)) {
        let Some(request) = place.request(position) else { continue };
        let recorded = changes.all().any(|change| change.position == position && change.recorded);
        held.take_back(&request, recorded, batch.now_ns);
    }
    held.known().seen = end.wrapping_sub(left);
    if waits { Left::Wait(result) } else { Left::Nothing(result) }
}

/// io_uring_register(2). Returns its result or `-errno`.
///
/// # Safety
/// As the system call.
pub unsafe fn register(fd: c_int, what: c_uint, argument: usize, count: c_uint) -> isize {
    let kernel = || {
        // SAFETY: the program's arguments.
        unsafe { raw::pass(libc::SYS_io_uring_register, raw::arg(fd), what as usize, argument, count as usize, 0, 0) }
    };
    if !lane::active() || !process::is_own() {
        return kernel();
    }
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    own_stack::run(|| {
        let files = Files::of(what, argument, count);
        register_files(fd, what, files, kernel)
    })
}

/// Carries out a call of io_uring_register(2) that may be about these files of the program.
fn register_files(fd: c_int, what: c_uint, files: Option<Files>, kernel: impl Fn() -> isize) -> isize {
    if let Some(files) = &files {
        others::go_out_of_sight(files.list, files.count);
    }
    /// IORING_UNREGISTER_FILES, IORING_REGISTER_RESTRICTIONS, IORING_REGISTER_RESIZE_RINGS.
    const UNREGISTER: c_uint = 3;
    const RESTRICTIONS: c_uint = 11;
    const RESIZE: c_uint = 33;
    if files.is_none() && !matches!(what, UNREGISTER | RESTRICTIONS | RESIZE) && what & BY_NUMBER == 0 {
        return kernel();
    }
    let Some(held) = find(fd).filter(|_| what & BY_NUMBER == 0).and_then(|place| rings::hold(place.id.load(Relaxed)))
    else {
        let result = kernel();
        rings::files_change_somewhere();
        return result;
    };
    let Some(files) = files else {
        let result = kernel();
        match what {
            UNREGISTER if result >= 0 => held.known().files.clear_all(),
            UNREGISTER => {}
            _ => held.loses_sight(Reason::RingKind, raw::now_ns()),
        }
        return result;
    };
    let candidates = registered::before(files.list, files.first, files.count as usize);
    let result = kernel();
    let done = match usize::try_from(result) {
        Ok(_) if files.all => files.count as usize,
        Ok(done) => done,
        Err(_) if files.all => return result, // the table is as it was
        Err(_) => 0,
    };
    held.known().files.put(&candidates, files.list, done);
    result
}

/// IORING_REGISTER_USE_REGISTERED_RING: the ring is named by a registered number.
const BY_NUMBER: c_uint = 1 << 31;

/// The descriptors of a call that registers files.
struct Files {
    list: *const c_int,
    first: usize,
    count: c_uint,
    /// The call makes the table, with all files or none. Others return the number of places that they have changed.
    all: bool,
}

impl Files {
    /// The files of a call with the arguments of io_uring_register(2).
    fn of(what: c_uint, argument: usize, count: c_uint) -> Option<Files> {
        /// IORING_REGISTER_FILES: an array of descriptors.
        const FILES: c_uint = 2;
        /// IORING_REGISTER_FILES_UPDATE, _FILES2 and _FILES_UPDATE2: structures that hold the address of such an array,
        /// in their second word or third, and for the latter two its length (linux/io_uring.h: io_uring_files_update,
        /// io_uring_rsrc_register, io_uring_rsrc_update2).
        const UPDATE: c_uint = 6;
        const FILES2: c_uint = 13;
        const UPDATE2: c_uint = 14;
        // The kernel answers EFAULT where nothing can be read.
        let list = |address: u64| core::ptr::with_exposed_provenance::<c_int>(address as usize);
        let words = core::ptr::with_exposed_provenance::<[u64; 4]>(argument);
        let files = match what & !BY_NUMBER {
            FILES => Files { list: words.cast(), first: 0, count, all: true },
            UPDATE => {
                let [first, at] = readable::read(words.cast())?;
                Files { list: list(at), first: first as u32 as usize, count, all: false }
            }
            FILES2 => {
                let [count_and_flags, _, at, _] = readable::read(words)?;
                Files { list: list(at), first: 0, count: count_and_flags as u32, all: true }
            }
            UPDATE2 => {
                let [first, at, _tags, count] = readable::read(words)?;
                Files { list: list(at), first: first as u32 as usize, count: count as u32, all: false }
            }
            _ => return None,
        };
        // A table without files (IORING_RSRC_REGISTER_SPARSE) has no list.
        let bytes = (files.count as usize).checked_mul(size_of::<c_int>())?;
        is_readable(files.list as usize, bytes).then_some(files)
    }
}

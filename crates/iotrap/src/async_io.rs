//! `IOTRAP_ASYNC=1`: libaio made asynchronous where it is not.
//!
//! Linux carries libaio requests for buffered files out inside io_submit, one after the other, and O_DIRECT writes that
//! allocate likewise. Here such requests go to the guasi crate instead, and come back through the kernel's own queue:
//!
//! ```text
//! io_submit ─► Record ─► guasi ─► reaper thread ─► io_submit of a write of nothing to /dev/null, with
//!                                                  the program's aio_data and eventfd, in a shadow of its iocb
//! io_getevents ◄─ kernel's queue: `min_nr`, timeouts, signals, eventfds, other requests: all as ever
//!     └─► the shadow's event gets the program's iocb and the true result
//! ```
//!
//! Reads of what is in the page cache are carried out on the spot (RWF_NOWAIT), and only their events take that way.
//!
//! The program's iocb is read at submission and never again, as by the kernel. What is in the kernel's queue is seen
//! by everybody who reads the ring from memory, so a context is left alone until the program has fetched events by
//! the function, and for good once the head of its ring has moved by itself ([`crate::context`]). Programs that look
//! for the ring's magic number before they read it (libaio, fio) do not find it and call.
//!
//! What the kernel does not promise is not promised here, but what it does in fact is kept as far as it may matter:
//! appends stay in order (they are not taken), an fsync request waits for the writes before it, closing, syncing or
//! truncating a file and ending the program wait for what is in flight.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long};
use core::mem::size_of;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use guasi::{Completion, Config, Guasi, IoBuf};

use crate::context::{self, CONTEXTS};
use crate::group::GroupRef;
use crate::hooks::libaio::{Event, Iocb, opcode};
use crate::process;
use crate::raw;
use crate::reason::Reason;
use crate::table::{self, Entry};
use crate::tracking;

/// Requests at a time, in all contexts; what is beyond is carried out by the kernel, as it does.
const RECORDS: usize = 1 << 16;
/// Files with higher numbers are left to the kernel.
const FILES: usize = 1 << 16;
/// Completions that are handed to the kernel at a time.
const BATCH: usize = 128;
/// IOCB_FLAG_RESFD of linux/aio_abi.h.
const RESFD: u32 = 1;

static WANTED: AtomicBool = AtomicBool::new(false);
static TELL: AtomicBool = AtomicBool::new(false);
/// Requests that guasi has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Reads that were in the page cache.
static CACHED: AtomicU64 = AtomicU64::new(0);
/// Of this process; a forked child has none until it needs one.
static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(core::ptr::null_mut());
static MAKING: AtomicBool = AtomicBool::new(false);
/// guasi is about to set its ring up.
static OWN_RING: AtomicBool = AtomicBool::new(false);

/// What a request needs until the program has its event.
#[repr(C, align(64))]
struct Record {
    /// What the kernel is given when the request has ended. First: an event's `obj` is the record's address.
    shadow: UnsafeCell<Iocb>,
    /// The program's iocb.
    obj: AtomicU64,
    /// Bytes or `-errno`.
    result: AtomicU64,
    /// The result is there already: it was in the page cache.
    ended: AtomicBool,
    /// The program's descriptor.
    file: AtomicU32,
    /// Its context: place and id.
    place: AtomicU32,
    context: AtomicU64,
    /// Odd while the request is a write that has not ended.
    writes: AtomicU32,
    /// Of a write: the file.
    inode: AtomicU64,
    device: AtomicU64,
}

/// The requests of one context.
#[derive(Default)]
struct Queue {
    /// With guasi, or on their way into the kernel's queue.
    pending: AtomicU32,
    /// Taken, and their events not fetched: what the kernel limits to what io_setup was asked for.
    unfetched: AtomicU32,
}

struct Engine {
    guasi: Guasi<Region, Descriptor>,
    /// /dev/null.
    null: c_int,
    records: *mut Record,
    free: Mutex<Vec<u32>>,
    /// Requests in flight of each descriptor.
    files: Box<[AtomicU32]>,
    /// By place.
    queues: Box<[Queue]>,
    /// Writes in flight.
    writing: AtomicU32,
}

// SAFETY: records are in memory that stays; who may touch one is said by the free list and by guasi.
unsafe impl Sync for Engine {}
// SAFETY: as above.
unsafe impl Send for Engine {}

/// The program's buffer: as libaio has it, nobody touches it until the event has been fetched.
struct Region {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: an address and a length; what is there is the program's promise to the kernel.
unsafe impl Send for Region {}
// SAFETY: io_submit(2): the buffer stays valid and untouched until the request has ended.
unsafe impl IoBuf for Region {
    fn region(&mut self) -> (*mut u8, usize) {
        (self.start, self.bytes)
    }
}

/// The program's descriptor, which closing keeps open until its requests have ended ([`settle`]).
struct Descriptor(c_int);

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: not negative; open while requests of it are counted.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Says that requests are to be made asynchronous in this process; with `tell`, how many were is told at its end.
pub fn prepare(tell: bool) {
    WANTED.store(true, Release);
    TELL.store(tell, Release);
}

/// Whom our own descriptors belong to, in the table: to no group.
const NOBODY: table::Name = table::Name { index: 0x3fff_ffff, generation: u32::MAX };

/// Enters a descriptor of our own: the program cannot close it.
pub fn own(fd: c_int) {
    let _ = table::put(fd, Entry::Lane(NOBODY)); // a number too high for the table is one that nobody closes
}

/// Whether a descriptor is one of those.
pub fn owns(fd: c_int) -> bool {
    table::get(fd) == Entry::Lane(NOBODY)
}

/// Whether a ring that is being set up is guasi's; told once.
pub fn sets_up_its_ring() -> bool {
    OWN_RING.load(Relaxed) && OWN_RING.swap(false, AcqRel)
}

/// Says how many requests were made asynchronous, if that was asked for.
pub fn tell() {
    let (taken, cached) = (TAKEN.load(Relaxed), CACHED.load(Relaxed));
    if TELL.load(Acquire) && taken + cached > 0 {
        let mut line = raw::Digits::<128>::empty();
        line.push(b"iotrap: ");
        line.number(taken);
        line.push(b" libaio requests were carried out asynchronously, ");
        line.number(cached);
        line.push(b" were in the page cache\n");
        crate::said::line(line.as_bytes());
    }
}

/// Whether they are.
#[inline]
pub fn active() -> bool {
    WANTED.load(Relaxed)
}

fn engine() -> Option<&'static Engine> {
    let pointer = ENGINE.load(Acquire);
    // SAFETY: null, or leaked.
    unsafe { pointer.as_ref() }
}

/// The engine, made if there is none yet; None if it cannot be.
fn engine_or_make() -> Option<&'static Engine> {
    if let Some(made) = engine() {
        return Some(made);
    }
    // One thread makes it; what others submit meanwhile is carried out by the kernel.
    if MAKING.swap(true, AcqRel) {
        return None;
    }
    let Some(made) = make() else {
        WANTED.store(false, Release);
        crate::said::line(b"iotrap: requests are not made asynchronous: no memory, threads or descriptors for it\n");
        return None;
    };
    let pointer = Box::into_raw(Box::new(made));
    // SAFETY: just leaked.
    let made = unsafe { &*pointer };
    let reaper = std::thread::Builder::new().name("iotrap-async".into()).stack_size(256 << 10);
    // The program's signals are none of our threads' business.
    let started = without_signals(|| reaper.spawn(move || made.reap()));
    if started.is_err() {
        WANTED.store(false, Release);
        return None;
    }
    ENGINE.store(pointer, Release);
    MAKING.store(false, Release);
    Some(made)
}

fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it is filled.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: one set is read, the other written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let result = work();
    // SAFETY: written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    result
}

fn make() -> Option<Engine> {
    // All of them at one address: an event's iocb is ours if it lies there. Pages come as they are used.
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new anonymous mapping, at no particular address.
    let room =
        unsafe { raw::call(libc::SYS_mmap, 0, RECORDS * size_of::<Record>(), protection, flags, raw::arg(-1), 0) };
    let records: *mut Record = core::ptr::with_exposed_provenance_mut(raw::check(room).ok()?);
    let null = raw::open(c"/dev/null", libc::O_WRONLY).ok()?;
    let high = process::HighNumbers::reserve().duplicate(null);
    let null = match high {
        Ok(number) => {
            let _ = raw::close(null);
            number
        }
        Err(_) => null,
    };
    let config = Config { priorities: 1, ..Config::default() };
    OWN_RING.store(true, Release);
    let guasi = Guasi::new(config).ok()?;
    own(guasi.bell());
    own(null);
    Some(Engine {
        guasi,
        null,
        records,
        free: Mutex::new((0..RECORDS as u32).rev().collect()),
        files: (0..FILES).map(|_| AtomicU32::new(0)).collect(),
        queues: (0..CONTEXTS).map(|_| Queue::default()).collect(),
        writing: AtomicU32::new(0),
    })
}

/// In a forked child: neither threads nor requests are there. What the parent's engine took is left where it is.
pub fn forget() {
    ENGINE.store(core::ptr::null_mut(), Release);
    MAKING.store(false, Release);
}

/// How many events each context was made for: by its place, kept beside the engine, which may come later.
static CAPACITIES: [AtomicU32; CONTEXTS] = [const { AtomicU32::new(0) }; CONTEXTS];

/// A context was made, for so many requests at a time.
pub fn context_made(place: usize, events: usize) {
    if let Some(queue) = engine().and_then(|engine| engine.queues.get(place)) {
        queue.unfetched.store(0, Relaxed);
    }
    if let Some(capacity) = CAPACITIES.get(place) {
        capacity.store(u32::try_from(events).unwrap_or(u32::MAX), Relaxed);
    }
    context::hide_magic(place);
}

/// A context is about to be destroyed: waits until its requests have ended, as the kernel does for its own.
pub fn context_ends(place: usize) {
    if let Some(queue) = engine().and_then(|engine| engine.queues.get(place)) {
        while queue.pending.load(Acquire) != 0 {
            raw::sleep_us(50);
        }
    }
}

/// Waits until the requests of a descriptor have ended: before it is closed, synced, cut.
#[inline]
pub fn settle(fd: c_int) {
    if !ENGINE.load(Relaxed).is_null() {
        process::notice_fork();
        if let Some(engine) = engine() {
            engine.settle(fd);
        }
    }
}

/// The same for all descriptors of a range.
pub fn settle_range(first: c_int, last: c_int) {
    if ENGINE.load(Relaxed).is_null() {
        return;
    }
    process::notice_fork();
    let Some(engine) = engine() else { return };
    for fd in first.max(0)..=last.min(FILES as c_int - 1) {
        engine.settle(fd);
    }
}

/// Waits for every write: before the program ends. (What nobody can see any more needs not be read.)
pub fn settle_writes() {
    if let Some(engine) = engine().filter(|_| process::is_own()) {
        while engine.writing.load(Acquire) != 0 {
            raw::sleep_us(50);
        }
    }
}

/// io_submit(2): requests that would block go to guasi, the others to `plain`, in their order.
///
/// # Safety
/// As io_submit(2).
pub unsafe fn submit(
    id: u64,
    count: c_long,
    iocbs: *mut *mut Iocb,
    plain: impl Fn(c_long, *mut *mut Iocb) -> isize,
) -> isize {
    let ready = context::find(id).filter(|(_, found)| found.is_fetched_by_function());
    let Some((place, _)) = ready.filter(|_| count > 0 && !iocbs.is_null()) else { return plain(count, iocbs) };
    let Some(engine) = engine_or_make() else { return plain(count, iocbs) };
    let mut done = 0;
    let mut cached = Cached { engine, indices: [0; BATCH], count: 0 };
    // Where the requests begin that are not submitted yet and go to the kernel.
    let mut from = 0;
    for at in 0..count {
        // SAFETY: the caller's: `count` pointers.
        let iocb = unsafe { *iocbs.wrapping_add(at as usize) };
        // SAFETY: the caller's: null, or an iocb.
        let Some(request) = (unsafe { iocb.as_ref() }) else { continue };
        // What is before it in the batch is submitted before it.
        let Some(taken) = engine.would_block(place, request) else { continue };
        if from < at {
            let some = plain(at - from, iocbs.wrapping_add(from as usize));
            match some {
                _ if some == (at - from) as isize => done += some,
                some if some < 0 && done == 0 => return some,
                some => return done + some.max(0),
            }
        }
        from = at;
        if engine.take(place, id, iocb, request, taken, &mut cached) {
            from = at + 1;
            done += 1;
        }
    }
    if from == count {
        return done;
    }
    match plain(count - from, iocbs.wrapping_add(from as usize)) {
        some if some < 0 && done > 0 => done,
        some => done + some,
    }
}

/// Reads of one io_submit that were in the page cache: their events are queued up together, at the latest at its end.
struct Cached {
    engine: &'static Engine,
    indices: [u32; BATCH],
    count: usize,
}

impl Cached {
    fn add(&mut self, index: u32) {
        if let Some(place) = self.indices.get_mut(self.count) {
            *place = index;
            self.count += 1;
        }
        if self.count == BATCH {
            self.queue_up();
        }
    }

    fn queue_up(&mut self) {
        let left = self.engine.queue_up(self.indices.get(..self.count).unwrap_or_default());
        self.count = 0;
        // The queue is full: the reaper tries again.
        for &index in left {
            while self.engine.guasi.call(u64::from(index), None, || Ok(0)).is_err() {
                raw::sleep_us(100);
            }
        }
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        if self.count > 0 {
            self.queue_up();
        }
    }
}

/// Puts the program's iocb and the true result into an event of ours. False if it is not one.
#[inline]
pub fn translate(event: &mut Event) -> bool {
    engine().is_some_and(|engine| engine.translate(event))
}

/// Reads what is in the page cache, all of it or nothing.
fn read_cached(request: &Iocb) -> Option<u64> {
    let vector = libc::iovec {
        iov_base: core::ptr::with_exposed_provenance_mut(request.buffer as usize),
        iov_len: request.count as usize,
    };
    // SAFETY: the buffer is the program's promise; the vector lives for the call.
    let result = unsafe {
        raw::transfer_vectors(libc::SYS_preadv2, request.file, &raw const vector, 1, request.offset, libc::RWF_NOWAIT)
    };
    u64::try_from(result).ok().filter(|&got| got == request.count && got > 0)
}

fn is_eventfd(fd: c_int) -> bool {
    raw::path_of(fd, &mut [0; 64]) == Some(b"anon_inode:[eventfd]".as_slice())
}

/// What is taken away from the kernel.
enum Taken {
    /// A read or write of one buffer.
    Transfer { write: bool, stat: (u64, u64) },
    /// The same of several.
    Vectors { write: bool, stat: (u64, u64) },
    /// A sync after writes that were taken, or of lanes.
    Sync { data_only: bool, after: Vec<(u32, u32)> },
}

impl Engine {
    fn record(&self, index: u32) -> &Record {
        let place = self.records.wrapping_add(index as usize % RECORDS);
        // SAFETY: within the mapping, which is zeroed and stays; everything that changes while it is shared is atomic.
        unsafe { &*place }
    }

    fn settle(&self, fd: c_int) {
        let Some(in_flight) = self.files.get(fd as u32 as usize) else { return };
        while in_flight.load(SeqCst) != 0 {
            raw::sleep_us(20);
        }
    }

    /// Whether the kernel would carry a request out inside io_submit, and we can do it instead. Whatever is wrong with
    /// a request is left to the kernel to say.
    fn would_block(&self, place: usize, request: &Iocb) -> Option<Taken> {
        let (write, vectored) = match request.opcode {
            opcode::PREAD => (false, false),
            opcode::PWRITE => (true, false),
            opcode::PREADV => (false, true),
            opcode::PWRITEV => (true, true),
            opcode::FSYNC | opcode::FDSYNC => {
                let after = if self.writing.load(Acquire) > 0 { self.writes_of(request.file) } else { Vec::new() };
                // Lanes are synced by us, inside io_submit if not here.
                let lanes = GroupRef::of(request.file).is_some_and(|group| group.node().has_dirty_lanes());
                let plain = request.options & !RESFD == 0 && request.flags == 0;
                let nothing = (request.buffer, request.count, request.offset) == (0, 0, 0);
                return ((lanes || !after.is_empty()) && plain && nothing)
                    .then_some(Taken::Sync { data_only: request.opcode == opcode::FDSYNC, after });
            }
            _ => return None,
        };
        let plain = request.flags == 0 && request.options & !RESFD == 0 && request.is_unreserved();
        let sane = request.offset >= 0 && i64::try_from(request.count).is_ok() && request.file >= 0;
        let full = self.queues.get(place)?.unfetched.load(Relaxed) >= CAPACITIES.get(place)?.load(Relaxed);
        if !plain || !sane || full || request.file as usize >= FILES {
            return None;
        }
        let flags = raw::fcntl(request.file, libc::F_GETFL, 0).ok()?;
        let direct = flags & libc::O_DIRECT != 0;
        let access = flags & libc::O_ACCMODE;
        let allowed = access == libc::O_RDWR || access == if write { libc::O_WRONLY } else { libc::O_RDONLY };
        // Appends are done in the order in which they are submitted.
        let appends = write && flags & libc::O_APPEND != 0;
        // Of a pool: what is O_DIRECT has a lane chosen, and writes have to be known to the file's other users.
        let of_a_pool = table::get(request.file) != Entry::Nothing && (direct || write);
        if !allowed || appends || of_a_pool || flags & libc::O_PATH != 0 || (direct && !write) {
            return None;
        }
        let stat = raw::fstat(request.file).ok()?;
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => {}
            libc::S_IFBLK if !direct => {}
            _ => return None,
        }
        if direct {
            let bytes = if vectored { u64::MAX } else { request.count };
            let extends = (request.offset as u64).saturating_add(bytes) > stat.st_size as u64;
            let has_holes = (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64;
            if !extends && !has_holes {
                return None;
            }
        }
        let stat = (stat.st_dev, stat.st_ino);
        match vectored {
            false => Some(Taken::Transfer { write, stat }),
            // UIO_MAXIOV: more is EINVAL.
            true => (request.buffer != 0 && request.count <= 1024).then_some(Taken::Vectors { write, stat }),
        }
    }

    /// The writes in flight of a file, by whatever descriptor.
    fn writes_of(&self, fd: c_int) -> Vec<(u32, u32)> {
        let Ok(stat) = raw::fstat(fd) else { return Vec::new() };
        let writes = |index: u32| {
            let record = self.record(index);
            let serial = record.writes.load(Acquire);
            let same = record.inode.load(Relaxed) == stat.st_ino && record.device.load(Relaxed) == stat.st_dev;
            (serial % 2 == 1 && same).then_some((index, serial))
        };
        // Records are used from the first on, so that few are ever looked at.
        (0..self.used()).filter_map(writes).collect()
    }

    /// One more than the highest record that was ever used.
    fn used(&self) -> u32 {
        USED.load(Relaxed)
    }

    /// Gives a request to guasi. False if it does not take it.
    fn take(
        &'static self,
        place: usize,
        id: u64,
        iocb: *mut Iocb,
        request: &Iocb,
        taken: Taken,
        cached: &mut Cached,
    ) -> bool {
        let Some(queue) = self.queues.get(place) else { return false };
        let Some(in_flight) = self.files.get(request.file as u32 as usize) else { return false };
        // The kernel holds the eventfd from here on; so do we.
        let event_file = match request.options & RESFD {
            0 => None,
            // The kernel says what is wrong with any other.
            _ if !is_eventfd(request.event_file) => return false,
            _ => match raw::fcntl(request.event_file, libc::F_DUPFD_CLOEXEC, 0) {
                Ok(own) => Some(own),
                Err(_) => return false,
            },
        };
        let Some(index) = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop() else {
            Reason::Busy.count();
            event_file.map(raw::close);
            return false;
        };
        USED.fetch_max(index + 1, Relaxed);
        let mut shadow = Iocb::write_of_nothing(self.null, request.data);
        if let Some(own) = event_file {
            (shadow.options, shadow.event_file) = (RESFD, own);
        }
        let record = self.record(index);
        // SAFETY: it was free: nobody else's.
        unsafe { record.shadow.get().write(shadow) };
        record.obj.store(iocb.expose_provenance() as u64, Relaxed);
        record.file.store(request.file as u32, Relaxed);
        record.place.store(place as u32, Relaxed);
        record.context.store(id, Relaxed);
        let writes = match &taken {
            Taken::Transfer { write: true, stat, .. } | Taken::Vectors { write: true, stat } => Some(*stat),
            _ => None,
        };
        if let Some((device, inode)) = writes {
            record.device.store(device, Relaxed);
            record.inode.store(inode, Relaxed);
            record.writes.fetch_add(1, AcqRel);
            self.writing.fetch_add(1, AcqRel);
        }
        queue.pending.fetch_add(1, AcqRel);
        queue.unfetched.fetch_add(1, AcqRel);
        record.ended.store(false, Relaxed);
        if let Taken::Transfer { write: false, .. } = taken
            && let Some(bytes) = read_cached(request)
        {
            record.result.store(bytes, Relaxed);
            record.ended.store(true, Relaxed);
            CACHED.fetch_add(1, Relaxed);
            cached.add(index);
            return true;
        }
        in_flight.fetch_add(1, SeqCst);
        if self.begin(u64::from(index), request, taken).is_ok() {
            TAKEN.fetch_add(1, Relaxed);
            return true;
        }
        queue.pending.fetch_sub(1, AcqRel);
        queue.unfetched.fetch_sub(1, AcqRel);
        self.ended(record);
        event_file.map(raw::close);
        self.give_back(index);
        false
    }

    fn begin(&'static self, key: u64, request: &Iocb, taken: Taken) -> std::io::Result<()> {
        let fd = request.file;
        let offset = request.offset;
        match taken {
            Taken::Transfer { write, .. } => {
                let start = core::ptr::with_exposed_provenance_mut(request.buffer as usize);
                let region = Region { start, bytes: request.count as usize };
                match write {
                    true => self.guasi.write_at(key, Descriptor(fd), region, offset as u64),
                    false => self.guasi.read_at(key, Descriptor(fd), region, offset as u64),
                }
            }
            Taken::Vectors { write, .. } => {
                // The vector may be reused when io_submit has returned.
                let given: *const libc::iovec = core::ptr::with_exposed_provenance(request.buffer as usize);
                let vectors: Vec<[usize; 2]> = (0..request.count as usize)
                    .map(|at| {
                        // SAFETY: what the kernel would read: `count` vectors.
                        let vector = unsafe { given.wrapping_add(at).read_unaligned() };
                        [vector.iov_base.expose_provenance(), vector.iov_len]
                    })
                    .collect();
                let number = if write { libc::SYS_pwritev2 } else { libc::SYS_preadv2 };
                self.guasi.call(key, None, move || {
                    let count = vectors.len() as c_int;
                    // SAFETY: pairs of address and length are what an iovec is; the buffers are the program's promise.
                    let result =
                        unsafe { raw::transfer_vectors(number, fd, vectors.as_ptr().cast(), count, offset, 0) };
                    raw::check(result).map_err(std::io::Error::from_raw_os_error)
                })
            }
            Taken::Sync { data_only, after } => self.guasi.call(key, None, move || {
                for (index, serial) in after {
                    while self.record(index).writes.load(Acquire) == serial {
                        raw::sleep_us(50);
                    }
                }
                let lanes = GroupRef::of(fd).map_or(Ok(()), |group| tracking::sync_lanes(&group, fd, data_only));
                let own = raw::sync(fd, data_only); // also after an error: what can be made durable is
                lanes.and(own).map(|()| 0).map_err(std::io::Error::from_raw_os_error)
            }),
        }
    }

    /// The request has been carried out: its file may be closed.
    fn ended(&self, record: &Record) {
        if record.writes.load(Acquire) % 2 == 1 {
            record.writes.fetch_add(1, AcqRel);
            self.writing.fetch_sub(1, AcqRel);
        }
        if let Some(in_flight) = self.files.get(record.file.load(Relaxed) as usize) {
            in_flight.fetch_sub(1, SeqCst);
        }
    }

    fn give_back(&self, index: u32) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(index);
    }

    /// The reaper's life: from guasi into the kernel's queue.
    fn reap(&self) {
        let mut done: Vec<Completion<Region>> = Vec::with_capacity(BATCH);
        let mut waiting: Vec<u32> = Vec::with_capacity(BATCH);
        loop {
            // A full queue has to be fetched from first.
            let limit = (!waiting.is_empty()).then_some(Duration::from_micros(200));
            let fetched = self.guasi.fetch(1, BATCH, limit, &mut done);
            if fetched.is_err() {
                raw::sleep_us(10_000);
            }
            for completion in done.drain(..) {
                let index = completion.key as u32;
                let record = self.record(index);
                if record.ended.load(Acquire) {
                    waiting.push(index);
                    continue;
                }
                let result = match completion.result {
                    Ok(bytes) => bytes as i64,
                    Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
                };
                record.result.store(result as u64, Release);
                self.ended(record);
                waiting.push(index);
            }
            // Contexts one after the other, each one's requests in the order in which they ended.
            waiting.sort_by_key(|&index| self.record(index).place.load(Relaxed));
            let mut left = Vec::new();
            for of_one in
                waiting.chunk_by(|a, b| self.record(*a).place.load(Relaxed) == self.record(*b).place.load(Relaxed))
            {
                left.extend_from_slice(self.queue_up(of_one));
            }
            waiting = left;
        }
    }

    /// Puts completions into the queue of their context; those that do not fit now.
    fn queue_up<'a>(&self, mut indices: &'a [u32]) -> &'a [u32] {
        while let Some(&first) = indices.first() {
            let (id, place) = (self.record(first).context.load(Relaxed), self.record(first).place.load(Relaxed));
            let mut shadows = [core::ptr::null_mut::<Iocb>(); BATCH];
            let mut event_files = [-1; BATCH];
            let count = indices.len().min(BATCH);
            for ((shadow, event_file), &index) in shadows.iter_mut().zip(&mut event_files).zip(indices) {
                *shadow = self.record(index).shadow.get();
                // SAFETY: ended, and not in the kernel's queue: ours.
                let iocb = unsafe { shadow.read() };
                *event_file = if iocb.options & RESFD == 0 { -1 } else { iocb.event_file };
            }
            // SAFETY: so many iocbs, which stay until their events are fetched.
            let result =
                unsafe { raw::call(libc::SYS_io_submit, id as usize, count, shadows.as_mut_ptr() as usize, 0, 0, 0) };
            // From here on whoever fetches the events owns the records.
            let gone = match result {
                1.. => result as usize,
                // EAGAIN: the queue is full.
                _ if result == -libc::EAGAIN as isize => return indices,
                // Not an eventfd: what the kernel would have refused. The event comes without.
                _ if event_files.first().is_some_and(|file| *file >= 0) => {
                    let shadow = self.record(first).shadow.get();
                    // SAFETY: not in the kernel's queue: ours.
                    let mut iocb = unsafe { shadow.read() };
                    let _ = raw::close(iocb.event_file);
                    iocb.options = 0;
                    // SAFETY: as above.
                    unsafe { shadow.write(iocb) };
                    continue;
                }
                // The context is gone.
                _ => {
                    self.give_back(first);
                    1
                }
            };
            for file in event_files.iter().take(gone).filter(|file| **file >= 0) {
                let _ = raw::close(*file);
            }
            if let Some(queue) = self.queues.get(place as usize) {
                queue.pending.fetch_sub(gone as u32, AcqRel);
            }
            indices = indices.get(gone..).unwrap_or_default();
        }
        indices
    }

    fn translate(&self, event: &mut Event) -> bool {
        let first = self.records.expose_provenance() as u64;
        let offset = event.obj.wrapping_sub(first);
        if offset >= (RECORDS * size_of::<Record>()) as u64 {
            return false;
        }
        let index = (offset / size_of::<Record>() as u64) as u32;
        let record = self.record(index);
        if let Some(queue) = self.queues.get(record.place.load(Relaxed) as usize) {
            queue.unfetched.fetch_sub(1, AcqRel);
        }
        event.obj = record.obj.load(Relaxed);
        event.res = record.result.load(Acquire) as i64;
        event.res2 = 0;
        self.give_back(index);
        true
    }
}

/// See [`Engine::used`].
static USED: AtomicU32 = AtomicU32::new(0);

const _: () = assert!(size_of::<Record>().is_multiple_of(64), "records are found by their addresses");

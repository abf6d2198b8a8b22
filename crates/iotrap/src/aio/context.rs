//! libaio contexts: the way in which the program fetches their completions, and the contents of their rings.
//!
//! While a batch is submitted, the iocbs of spread requests name other files ([`crate::aio::changed_iocbs`]). A thread
//! that fetches events with io_getevents puts them right first. A thread that reads the ring from memory by itself
//! (fio's `userspace_reap`, QEMU) cannot be stopped from seeing them. So a context is spread only if nobody can look at
//! the wrong moment: in a program of one thread, or once its events were seen to be fetched through the library, all of
//! them. The head of the ring tells: it moves by exactly the number of events that the library has returned.
//! (`IOTRAP_RING=same-thread` lets a program vouch for itself: the thread that reads the ring is the one that submits.)

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use crate::abi::libaio::Event;
use crate::abi::raw;
use crate::aio::inflight;
use crate::aio::libaio;

/// Contexts of a process that the library can know; others are neither spread nor made asynchronous.
pub const CONTEXTS: usize = 1024;
const PROBES: usize = 16;
/// Threads that fetch from one context at a time and are told apart.
const REAPERS: usize = 8;
const MAGIC: u32 = 0xa10a_10a1;

/// The header of the ring that the kernel maps at the address by which a context is known (`struct aio_ring`,
/// fs/aio.c).
#[repr(C)]
struct Ring {
    id: AtomicU32,
    count: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: AtomicU32,
    compatible: AtomicU32,
    incompatible: AtomicU32,
    header_bytes: AtomicU32,
}

/// A thread's place among those that fetch events; None if there was no room.
#[must_use]
pub struct Fetching {
    place: Option<usize>,
}

/// One libaio context of the program, with the events that the library adds to it.
pub struct Context {
    id: AtomicU64,
    /// The head when the context was first seen.
    base: AtomicU32,
    /// Events that were fetched through the library.
    fetched: AtomicU64,
    /// Threads that fetch at this moment: each by the address of its control block, as far as there is room. A thread
    /// that has left the call by a signal handler takes its place again with its next call.
    reapers: [AtomicUsize; REAPERS],
    /// The number of threads that found all these places taken.
    more_reapers: AtomicU32,
    /// A thread has fetched events through the library.
    by_function: AtomicBool,
    /// The program reads the ring from memory.
    direct: AtomicBool,
    /// Requests of the context that are recorded and not retired yet.
    in_flight: AtomicU32,
    /// The entry up to which the library has looked at a ring that the program reads from memory.
    seen: AtomicU32,
    looking: AtomicBool,
    /// Threads that read the ring at this moment: it must not be unmapped under them.
    pins: AtomicU32,
}

static ALL: [Context; CONTEXTS] = [const {
    Context {
        id: AtomicU64::new(0),
        base: AtomicU32::new(0),
        fetched: AtomicU64::new(0),
        reapers: [const { AtomicUsize::new(0) }; REAPERS],
        more_reapers: AtomicU32::new(0),
        by_function: AtomicBool::new(false),
        direct: AtomicBool::new(false),
        in_flight: AtomicU32::new(0),
        seen: AtomicU32::new(0),
        looking: AtomicBool::new(false),
        pins: AtomicU32::new(0),
    }
}; CONTEXTS];

static SINGLE_THREADED: AtomicPtr<AtomicBool> = AtomicPtr::new(core::ptr::null_mut());
static TRUSTED: AtomicBool = AtomicBool::new(false);

/// Finds out how to ask whether the program has one thread (glibc 2.32), and whether it vouches for its rings.
pub fn prepare(trusted: bool) {
    // SAFETY: a NUL-terminated name; libc is loaded.
    let flag = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(flag.cast(), Release);
    TRUSTED.store(trusted, Release);
}

/// True if the program has had one thread so far, by libc's word.
pub fn is_single_threaded() -> bool {
    let flag = SINGLE_THREADED.load(Acquire);
    // SAFETY: null, or a char of libc that always exists; it is written only as threads are created.
    unsafe { flag.as_ref() }.is_some_and(|flag| flag.load(Relaxed))
}

fn places(id: u64) -> impl Iterator<Item = usize> {
    let hash = (id >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..PROBES).map(move |probe| (hash as usize + probe) % CONTEXTS)
}

/// Enters a context that io_setup has returned.
pub fn add(id: u64) {
    let Some(ring) = ring_at(id) else { return };
    if ring.magic.load(Relaxed) != MAGIC || ring.incompatible.load(Relaxed) != 0 || ring.count.load(Relaxed) == 0 {
        return;
    }
    for place in places(id) {
        let Some(context) = ALL.get(place) else { continue };
        if context.id.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
            continue;
        }
        let head = ring.head.load(Acquire);
        context.base.store(head, Relaxed);
        context.seen.store(head, Relaxed);
        context.fetched.store(0, Relaxed);
        context.reapers.iter().for_each(|reaper| reaper.store(0, Relaxed));
        context.more_reapers.store(0, Relaxed);
        context.by_function.store(false, Relaxed);
        context.direct.store(false, Relaxed);
        context.in_flight.store(0, Relaxed);
        context.looking.store(false, Relaxed);
        context.id.store(id, Release);
        return;
    }
}

/// The context of that id and its place.
#[inline]
pub fn find(id: u64) -> Option<(usize, &'static Context)> {
    if id <= 1 {
        return None;
    }
    places(id)
        .find_map(|place| ALL.get(place).filter(|context| context.id.load(Acquire) == id).map(|found| (place, found)))
}

/// Takes the magic number out of a ring: programs that read rings from memory look for it first, and call
/// io_getevents where it is not. The kernel has written it and never reads it.
pub fn hide_magic(place: usize) {
    if let Some(context) = ALL.get(place) {
        context.with_ring(|ring| ring.magic.store(0, Release));
    }
}

/// Forgets a context that io_destroy is about to end, or has ended. Waits for threads that read its ring.
pub fn remove(place: usize) {
    if let Some(context) = ALL.get(place) {
        context.id.store(0, SeqCst);
        while context.pins.load(SeqCst) != 0 {
            raw::pause();
        }
    }
}

/// True if nothing is in the ring at this moment, as far as that can be seen in user space.
pub fn is_empty(id: u64) -> bool {
    find(id).is_some_and(|(_, context)| {
        context.with_ring(|ring| ring.head.load(Acquire) == ring.tail.load(Acquire)).unwrap_or(false)
    })
}

fn ring_at(id: u64) -> Option<&'static Ring> {
    let ring: *const Ring = core::ptr::with_exposed_provenance(id as usize);
    // SAFETY: the id of a live context is the address of its ring, which the kernel has mapped there (io_setup(2)).
    unsafe { ring.as_ref() }
}

impl Context {
    /// The result of `look` at the ring; None if the context no longer exists.
    fn with_ring<T>(&self, look: impl FnOnce(&'static Ring) -> T) -> Option<T> {
        self.pins.fetch_add(1, SeqCst);
        let id = self.id.load(SeqCst);
        let result = if id > 1 { ring_at(id).map(look) } else { None };
        self.pins.fetch_sub(1, SeqCst);
        result
    }

    /// True if requests of this context may name another file for a moment.
    pub fn may_be_spread(&self, place: usize) -> bool {
        let direct = self.is_read_directly();
        if direct && !self.catch_up(place) {
            return false;
        }
        is_single_threaded() || TRUSTED.load(Relaxed) || (!direct && self.by_function.load(Acquire))
    }

    /// True if the program takes its events from io_getevents, and from nowhere else as far as is known.
    pub fn is_fetched_by_function(&self) -> bool {
        self.by_function.load(Acquire) && !self.is_read_directly()
    }

    /// True if the program takes events from the ring by itself.
    fn is_read_directly(&self) -> bool {
        if self.direct.load(Acquire) {
            return true;
        }
        // The comparison holds only while no thread is between the kernel's move of the head and the library's count of
        // it.
        let before = self.fetched.load(SeqCst);
        if self.is_being_fetched() {
            return false;
        }
        let Some((head, count)) = self.with_ring(|ring| (ring.head.load(Acquire), ring.count.load(Relaxed).max(1)))
        else {
            return true;
        };
        if self.is_being_fetched() || self.fetched.load(SeqCst) != before {
            return false;
        }
        let expected = (u64::from(self.base.load(Relaxed)) + before) % u64::from(count);
        if u64::from(head % count) == expected {
            return false;
        }
        if !self.looking.swap(true, SeqCst) {
            // Unless another thread has found it, and has looked at events since.
            if !self.direct.load(Relaxed) {
                // Events up to here are accounted for; their iocbs may be in flight again.
                self.seen.store(expected as u32, Relaxed);
                self.direct.store(true, Release);
            }
            self.looking.store(false, SeqCst);
        }
        true
    }

    /// True if a thread is fetching events at this moment.
    fn is_being_fetched(&self) -> bool {
        self.more_reapers.load(SeqCst) != 0 || self.reapers.iter().any(|reaper| reaper.load(SeqCst) != 0)
    }

    /// Retires the requests whose events have come back since the last time, of a ring that the program reads by
    /// itself. The library does so before every batch, so that no more events can have come than the ring holds. False
    /// if another thread is at it.
    fn catch_up(&self, place: usize) -> bool {
        if self.looking.swap(true, SeqCst) {
            return false;
        }
        let _ = self.with_ring(|ring| {
            let count = ring.count.load(Relaxed).max(1);
            let (mut at, tail) = (self.seen.load(Relaxed), ring.tail.load(Acquire));
            while at % count != tail % count {
                if let Some(event) = event_at(ring, at % count) {
                    libaio::retire_unseen(place, self, &event);
                }
                at = (at + 1) % count;
            }
            self.seen.store(at, Relaxed);
        });
        self.looking.store(false, SeqCst);
        true
    }

    /// Notes that the calling thread begins to fetch events.
    #[inline]
    pub fn fetching(&self) -> Fetching {
        if !self.by_function.load(Relaxed) {
            self.by_function.store(true, Release);
        }
        // SAFETY: a function without arguments, which reads a register.
        let own = unsafe { libc::pthread_self() } as usize;
        let free = |reaper: &AtomicUsize| {
            let found = reaper.load(SeqCst);
            found == own || (found == 0 && reaper.compare_exchange(0, own, SeqCst, Relaxed).is_ok())
        };
        let known = self.reapers.iter().position(|reaper| reaper.load(SeqCst) == own);
        let place = known.or_else(|| self.reapers.iter().position(free));
        if place.is_none() {
            self.more_reapers.fetch_add(1, SeqCst);
        }
        Fetching { place }
    }

    /// Notes that the thread has fetched `count` events, and fetches no longer.
    #[inline]
    pub fn fetched(&self, fetching: Fetching, count: u64) {
        self.fetched.fetch_add(count, SeqCst);
        match fetching.place.and_then(|place| self.reapers.get(place)) {
            Some(reaper) => reaper.store(0, SeqCst),
            None => {
                self.more_reapers.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Counts requests that were recorded (`change` is positive) or retired (negative).
    #[inline]
    pub fn recorded(&self, change: i32) {
        self.in_flight.fetch_add(change as u32, AcqRel);
    }

    /// True if any request of the context is recorded.
    #[inline]
    pub fn has_records(&self) -> bool {
        self.in_flight.load(Acquire) != 0
    }

    /// Notes the completed requests in the ring, without taking their events: the thread that waits for lanes to be
    /// drained may be the one that would fetch them.
    fn look(&self, place: usize) {
        let _ = self.with_ring(|ring| Self::look_into(ring, place));
    }

    fn look_into(ring: &'static Ring, place: usize) {
        let count = ring.count.load(Relaxed).max(1);
        // The iocb of an event that nobody has fetched.
        let iocb_at = |at: u32| {
            let tail = ring.tail.load(Acquire);
            // Events behind the head may be overwritten while this thread reads them.
            event_at(ring, at).map(|event| event.obj).filter(|_| is_between(ring.head.load(Acquire), at, tail, count))
        };
        let (mut at, tail) = (ring.head.load(Acquire), ring.tail.load(Acquire));
        while at % count != tail % count {
            let found = iocb_at(at % count);
            if let Some(key) = found.and_then(|iocb| inflight::key(place, iocb)) {
                // Another thread may have fetched the event meanwhile, and have submitted the iocb again.
                libaio::completed(key, || iocb_at(at % count) == found);
            }
            at = (at + 1) % count;
        }
    }
}

fn is_between(head: u32, at: u32, tail: u32, count: u32) -> bool {
    let distance = |to: u32| (to + count - head % count) % count;
    distance(at % count) < distance(tail % count)
}

fn event_at(ring: &'static Ring, index: u32) -> Option<Event> {
    let events = core::ptr::from_ref(ring).cast::<u8>().wrapping_add(ring.header_bytes.load(Relaxed) as usize);
    let event = events.cast::<Event>().wrapping_add(index as usize);
    // SAFETY: the kernel has mapped `count` events behind the header; it may be writing this one, of which the caller
    // finds out: a volatile copy of plain integers.
    (!event.is_null()).then(|| unsafe { event.read_volatile() })
}

/// Notes the completed requests in all rings, those too whose events the program has taken where no hook saw it.
pub fn look_at_all_rings() {
    for (place, context) in ALL.iter().enumerate() {
        if context.id.load(Acquire) > 1 && context.has_records() {
            if context.is_read_directly() {
                context.catch_up(place);
            }
            context.look(place);
        }
    }
}

/// Forgets all contexts in a forked child, which has none.
pub fn forget_all() {
    ALL.iter().filter(|context| context.id.load(Relaxed) != 0).for_each(|context| context.id.store(0, Relaxed));
}

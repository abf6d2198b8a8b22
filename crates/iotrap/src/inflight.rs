//! libaio requests of spread files that the kernel has and the program has not seen back: which lane each is on, and
//! what is needed to carry a read out again on another lane when its own fails.
//!
//! Found by context and iocb address, which is what an event carries. A fixed table of open addressing: a request that
//! finds no room goes to the own lane, unrecorded.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::node::NodeRef;
use crate::spread::Choice;
use crate::table::Name;

const RECORDS: usize = 16384;
/// Places looked at for one request: one cache line. The table is far larger than what is in flight.
const PROBES: usize = 8;
/// Vectors of a readv that are kept: longer ones are not carried out again.
pub const VECTORS: usize = 4;

/// One request.
#[derive(Clone, Copy)]
pub struct Record {
    /// Its file; the record holds a reference.
    pub group: Name,
    /// Where it went.
    pub choice: Choice,
    /// Of the iocb.
    pub opcode: u16,
    /// Of the iocb.
    pub flags: c_int,
    /// Bytes in all.
    pub bytes: u64,
    /// Of the iocb.
    pub offset: i64,
    /// Where the bytes are.
    pub vectors: [libc::iovec; VECTORS],
    /// How many of them; 0 if there were more than fit.
    pub count: u8,
}

const FREE: u64 = 0;
/// Being filled or emptied.
const BUSY: u64 = 1;

struct Room(UnsafeCell<MaybeUninit<Record>>);

// SAFETY: a record is written and read only by the thread that has moved its key to BUSY.
unsafe impl Sync for Room {}

/// By cache lines.
#[repr(align(64))]
struct Keys([AtomicU64; RECORDS]);

static KEYS: Keys = Keys([const { AtomicU64::new(FREE) }; RECORDS]);
static ROOMS: [Room; RECORDS] = [const { Room(UnsafeCell::new(MaybeUninit::uninit())) }; RECORDS];
/// The serial number in [`COUNTED`].
const SERIAL: u64 = 0xffff_ffff_0000_0000;
/// The node in whose `in_flight` the request counts, plus one, or 0 if in none; above it a serial number of the place.
static COUNTED: [AtomicU64; RECORDS] = [const { AtomicU64::new(0) }; RECORDS];
/// A request with the same address went past the table: this one is not to be carried out again.
static DOUBTFUL: [AtomicU64; RECORDS / 64] = [const { AtomicU64::new(0) }; RECORDS / 64];

/// The key of an iocb in a context (by its place in the registry); None if there is no key for such an address.
pub fn key(context: usize, iocb: u64) -> Option<u64> {
    (iocb > BUSY && iocb < 1 << 48).then_some((context as u64 + 1) << 48 | iocb)
}

fn places(key: u64) -> impl Iterator<Item = usize> {
    let hash = (key >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    // From the beginning of a line, so that no more than one is looked at.
    let line = hash as usize % RECORDS / PROBES * PROBES;
    (0..PROBES).map(move |probe| line + probe)
}

/// Enters a request. False if there is no room, or one of that key already.
pub fn enter(key: u64, record: Record, counted_in: Option<NodeRef>) -> bool {
    if let Some(twin) = find(key) {
        if let Some(word) = DOUBTFUL.get(twin / 64) {
            word.fetch_or(1 << (twin % 64), Relaxed);
        }
        return false;
    }
    for place in places(key) {
        let (Some(found), Some(room)) = (KEYS.0.get(place), ROOMS.get(place)) else { continue };
        if found.load(Relaxed) != FREE || found.compare_exchange(FREE, BUSY, AcqRel, Relaxed).is_err() {
            continue;
        }
        let pointer = room.0.get();
        // SAFETY: BUSY: nobody else's.
        unsafe { (*pointer).write(record) };
        if let Some(word) = DOUBTFUL.get(place / 64)
            && word.load(Relaxed) & 1 << (place % 64) != 0
        {
            word.fetch_and(!(1 << (place % 64)), Relaxed);
        }
        if let (Some(counted), Some(node)) = (COUNTED.get(place), counted_in) {
            // Nobody else changes it before the key is there, which is stored behind it.
            let serial = (counted.load(Relaxed) >> 32).wrapping_add(1);
            counted.store(serial << 32 | (u64::from(node.number()) + 1), Release);
        }
        found.store(key, Release);
        return true;
    }
    false
}

fn find(key: u64) -> Option<usize> {
    places(key).find(|&place| KEYS.0.get(place).is_some_and(|found| found.load(Acquire) == key))
}

/// A request that was taken out.
pub struct Taken {
    /// It.
    pub record: Record,
    /// Whether its address is unambiguous.
    pub certain: bool,
    /// The node in which it still counts as in flight.
    pub counted_in: Option<NodeRef>,
}

/// Takes a request out.
pub fn take(key: u64) -> Option<Taken> {
    let place = find(key)?;
    let (found, room) = (KEYS.0.get(place)?, ROOMS.get(place)?);
    found.compare_exchange(key, BUSY, AcqRel, Acquire).ok()?;
    let pointer = room.0.get();
    // SAFETY: BUSY: nobody else's.
    let room = unsafe { &*pointer };
    // SAFETY: it had a key, so it was written.
    let record = unsafe { room.assume_init_read() };
    let certain = DOUBTFUL.get(place / 64).is_some_and(|word| word.load(Relaxed) & 1 << (place % 64) == 0);
    let counted_in = COUNTED.get(place).and_then(|counted| node_of(counted.fetch_and(SERIAL, SeqCst)));
    found.store(FREE, Release);
    Some(Taken { record, certain, counted_in })
}

/// The kernel has completed a request that nobody has fetched yet: it is in flight no longer.
pub fn completed(key: u64) {
    let Some(counted) = find(key).and_then(|place| COUNTED.get(place)) else { return };
    let word = counted.load(SeqCst);
    // The serial number tells this request from a later one in the same place.
    if find(key).is_some()
        && counted.compare_exchange(word, word & SERIAL, SeqCst, Acquire).is_ok()
        && let Some(node) = node_of(word)
    {
        node.get().lane_ends();
    }
}

fn node_of(word: u64) -> Option<NodeRef> {
    let number = word as u32;
    number.checked_sub(1).map(NodeRef::of_number)
}

/// Takes out every request of a context that is gone.
pub fn take_all_of(context: usize, mut each: impl FnMut(Taken)) {
    for found in &KEYS.0 {
        let key = found.load(Acquire);
        if key >> 48 == context as u64 + 1
            && let Some(taken) = take(key)
        {
            each(taken);
        }
    }
}

/// In a forked child: requests are the parent's.
pub fn forget_all() {
    for (key, counted) in KEYS.0.iter().zip(&COUNTED) {
        if key.load(Relaxed) != FREE {
            key.store(FREE, Relaxed);
            counted.store(0, Relaxed);
        }
    }
}

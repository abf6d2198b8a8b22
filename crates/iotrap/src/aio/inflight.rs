//! libaio requests of spread files that the kernel has and whose events the program has not fetched: the lane of each,
//! and the data that it takes to carry a read out again on another lane when its own lane fails.
//!
//! The table finds a request by its context and the address of its iocb, because an event carries these. The table is
//! fixed, of open addressing: a request that finds no room goes to the opened lane, unrecorded.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::abi::raw;
use crate::policy::spread::Choice;
use crate::state::node::NodeRef;
use crate::state::table::Name;

const RECORDS: usize = 16384;
/// Places that a search looks at for one request: one cache line. The table is far larger than the number of requests
/// in flight.
const PROBES: usize = 8;
/// Vectors of a readv that are kept: longer ones are not carried out again.
pub const VECTORS: usize = 4;

/// The record of one request.
#[derive(Clone, Copy)]
pub struct Record {
    /// The open file of the request; the record holds a reference.
    pub group: Name,
    /// The lane to which the request went.
    pub choice: Choice,
    /// The operation of the iocb (aio_lio_opcode).
    pub opcode: u16,
    /// The flags of the iocb (aio_rw_flags).
    pub flags: c_int,
    /// The bytes of the request in all.
    pub bytes: u64,
    /// The offset of the iocb (aio_offset).
    pub offset: i64,
    /// The places of the bytes in the program's memory.
    pub vectors: [libc::iovec; VECTORS],
    /// The number of vectors; 0 if there were more than fit.
    pub count: u8,
    /// The node in which the request counts as in flight on another lane than the opened one.
    pub counted_in: Option<NodeRef>,
}

const FREE: u64 = 0;
/// A place that a thread is filling or emptying.
const BUSY: u64 = 1;
/// The bit of a key whose record a thread is changing, for a moment: a thread that looks for the record waits.
const HELD: u64 = 1 << 63;

struct Room(UnsafeCell<MaybeUninit<Record>>);

// SAFETY: a record is written and read only by the thread that has moved its key to BUSY, or set HELD in it.
unsafe impl Sync for Room {}

/// The keys of all places, aligned to cache lines.
#[repr(align(64))]
struct Keys([AtomicU64; RECORDS]);

static KEYS: Keys = Keys([const { AtomicU64::new(FREE) }; RECORDS]);
static ROOMS: [Room; RECORDS] = [const { Room(UnsafeCell::new(MaybeUninit::uninit())) }; RECORDS];
/// Marks a place (a bit each) if another request with the same address went past the table: a read of such a place is
/// not carried out again.
static DOUBTFUL: [AtomicU64; RECORDS / 64] = [const { AtomicU64::new(0) }; RECORDS / 64];

/// The key of an iocb in a context (by its place in the registry); None if there is no key for such an address.
pub fn key(context: usize, iocb: u64) -> Option<u64> {
    (iocb > BUSY && iocb < 1 << 48).then_some((context as u64 + 1) << 48 | iocb)
}

fn places(key: u64) -> impl Iterator<Item = usize> {
    let hash = (key >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    // The places begin at the beginning of a cache line, so that a search looks at no more than one line.
    let line = hash as usize % RECORDS / PROBES * PROBES;
    (0..PROBES).map(move |probe| line + probe)
}

/// Enters a request. Returns false if the table is full, or already holds a request with this key.
pub fn enter(key: u64, record: Record) -> bool {
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
        // SAFETY: the key is BUSY, so this thread alone uses the place; see `Room`.
        unsafe { (*pointer).write(record) };
        if let Some(word) = DOUBTFUL.get(place / 64)
            && word.load(Relaxed) & 1 << (place % 64) != 0
        {
            word.fetch_and(!(1 << (place % 64)), Relaxed);
        }
        found.store(key, Release);
        return true;
    }
    false
}

fn find(key: u64) -> Option<usize> {
    places(key).find(|&place| KEYS.0.get(place).is_some_and(|found| found.load(Acquire) & !HELD == key))
}

/// Moves the key of a place from `key` to `to`, as soon as no other thread holds the record. False if the place has
/// another key.
fn move_key(place: usize, key: u64, to: u64) -> bool {
    let Some(found) = KEYS.0.get(place) else { return false };
    loop {
        match found.compare_exchange(key, to, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(held) if held == key | HELD => raw::pause(),
            Err(_) => return false,
        }
    }
}

/// A request that was taken out.
pub struct Taken {
    /// The record of the request, which belongs to the caller now.
    pub record: Record,
    /// True if no other request with the same address went past the table meanwhile.
    pub certain: bool,
}

/// Takes a request out of the table; None if it is not there.
pub fn take(key: u64) -> Option<Taken> {
    let place = find(key)?;
    let (found, room) = (KEYS.0.get(place)?, ROOMS.get(place)?);
    if !move_key(place, key, BUSY) {
        return None;
    }
    let pointer = room.0.get();
    // SAFETY: the key is BUSY, so this thread alone uses the place; see `Room`.
    let room = unsafe { &*pointer };
    // SAFETY: the place had a key, so `enter` has written the record.
    let record = unsafe { room.assume_init_read() };
    let certain = DOUBTFUL.get(place / 64).is_some_and(|word| word.load(Relaxed) & 1 << (place % 64) == 0);
    found.store(FREE, Release);
    Some(Taken { record, certain })
}

/// Changes the record of a request that stays in the table: the kernel has completed it, and nobody has fetched its
/// event. `change` makes no call that could come back here.
pub fn change(key: u64, change: impl FnOnce(&mut Record)) {
    let Some(place) = find(key) else { return };
    let (Some(found), Some(room)) = (KEYS.0.get(place), ROOMS.get(place)) else { return };
    if !move_key(place, key, key | HELD) {
        return;
    }
    let pointer = room.0.get();
    // SAFETY: this thread has set HELD, so it alone uses the place; see `Room`.
    let room = unsafe { &mut *pointer };
    // SAFETY: the place had a key, so `enter` has written the record.
    change(unsafe { room.assume_init_mut() });
    found.store(key, Release);
}

/// Takes out every request of a context that no longer exists.
pub fn take_all_of(context: usize, mut each: impl FnMut(Taken)) {
    for found in &KEYS.0 {
        let key = found.load(Acquire) & !HELD;
        if key >> 48 == context as u64 + 1
            && let Some(taken) = take(key)
        {
            each(taken);
        }
    }
}

/// Empties the table in a forked child: the requests are the parent's.
pub fn forget_all() {
    KEYS.0.iter().filter(|key| key.load(Relaxed) != FREE).for_each(|key| key.store(FREE, Relaxed));
}

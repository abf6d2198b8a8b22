//! Errands on a lane: opening a file there, or asking if the lane answers. Each errand has a thread that lives as long
//! as the errand, because a lane that does not answer holds the thread that asks it, in a call that nothing ends.
//!
//! The threads are those of [`crate::abi::raw_thread`], which libc does not know: setuid(3), which waits for every
//! thread that libc knows, is not held up by a server. They act with the rights of the thread that has sent them.
//!
//! While an open is held up, the kernel keeps the number that the file will have: dup2(2) onto just that number says
//! EBUSY, as its manual page has it for such races.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use lanes::Ticket;
use lanes::identity::Facts;

use crate::abi::raw;
use crate::abi::raw_thread::{self, Memory};
use crate::open::tracking;
use crate::state::table::Name;

/// The most errands that may be under way at a time.
const SLOTS: usize = 256;
/// The most errands on one lane at a time: those that hang must leave room for others.
const ON_ONE_LANE: usize = 8;

const FREE: u32 = 0;
/// A thread is making the slot ready.
const FILLING: u32 = 1;
/// A thread is out on the slot's errand, or was: `alive` tells which.
const OUT: u32 = 2;

/// The reason why no thread was sent. The errand comes back.
pub enum Refusal {
    /// Too many errands are under way, on that lane or on all lanes, so another errand has to wait.
    TooMany(Errand),
    /// The system gives no thread or no memory for it.
    NoThread(Errand),
}

/// One errand: the task, and the data that a thread needs for it.
pub struct Errand {
    /// The file of the program, if it still lives when the errand is done.
    pub group: Name,
    /// The number of the pool.
    pub pool: usize,
    /// The number of the lane to which the errand goes.
    pub at: usize,
    /// The lane that the program has opened the file through.
    pub own_lane: usize,
    /// The path below each lane.
    pub rest: Rest,
    /// Flags to open the file with; None if the errand only asks if the lane answers.
    pub flags: Option<c_int>,
    /// The identity of the program's file.
    pub own: Facts,
    /// The ticket by which the errand counts as outstanding on the lane.
    pub ticket: Ticket,
    /// True if the errand tries a lane that has failed.
    pub probe: bool,
    /// A call of the program fails without the file: the errand may take the last numbers.
    pub needed: bool,
}

/// A path below a lane that an errand carries along.
pub struct Rest {
    bytes: [u8; libc::PATH_MAX as usize],
    length: usize,
}

impl Rest {
    /// A copy; None if it is longer than a path.
    pub fn of(path: &[u8]) -> Option<Rest> {
        let mut rest = Rest { bytes: [0; libc::PATH_MAX as usize], length: path.len() };
        rest.bytes.get_mut(..path.len())?.copy_from_slice(path);
        Some(rest)
    }

    /// The bytes of the path, without a final zero.
    pub fn path(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

struct Slot {
    state: AtomicU32,
    /// 1 while the thread lives. The kernel clears it at the thread's end (CLONE_CHILD_CLEARTID), and wakes the threads
    /// that wait for it.
    alive: AtomicU32,
    /// The pool and the lane of the errand, as `lane_word` packs them.
    on: AtomicU32,
    /// The file of the errand: generation and index of its group.
    of: AtomicU64,
    /// The memory of the slot's threads, mapped when it is first needed and kept.
    room: AtomicUsize,
}

static ALL: [Slot; SLOTS] = [const {
    Slot {
        state: AtomicU32::new(FREE),
        alive: AtomicU32::new(0),
        on: AtomicU32::new(0),
        of: AtomicU64::new(0),
        room: AtomicUsize::new(0),
    }
}; SLOTS];

fn lane_word(pool: usize, at: usize) -> u32 {
    (pool as u32) << 8 | at as u32
}

fn file_word(name: Name) -> u64 {
    u64::from(name.generation) << 32 | u64::from(name.index)
}

impl Slot {
    /// True if the slot's thread is out. FILLING says nothing about it: a thread that claims the slot a moment too late
    /// finds the next errand there, and puts OUT back.
    fn is_under_way(&self) -> bool {
        self.state.load(Acquire) != FREE && self.alive.load(Acquire) != 0
    }

    /// The errand of that file on that lane, if it is under way.
    fn find(name: Name, pool: usize, at: usize) -> Option<&'static Slot> {
        let (on, of) = (lane_word(pool, at), file_word(name));
        let this = |slot: &&Slot| slot.on.load(Relaxed) == on && slot.of.load(Relaxed) == of;
        ALL.iter().filter(this).find(|slot| slot.is_under_way())
    }
}

/// True if an errand of that file to that lane is under way.
pub fn is_under_way(name: Name, pool: usize, at: usize) -> bool {
    Slot::find(name, pool, at).is_some()
}

/// Waits until the errand of that file to that lane is done, for about `limit_ns` at most.
pub fn wait(name: Name, pool: usize, at: usize, limit_ns: i64) {
    let Some(slot) = Slot::find(name, pool, at) else { return };
    let time = libc::timespec { tv_sec: 0, tv_nsec: limit_ns };
    let (word, timeout) = (slot.alive.as_ptr() as usize, &raw const time as usize);
    // SAFETY: a word in static memory, and one timespec of this function. (Not FUTEX_PRIVATE_FLAG: the kernel's wake-up
    // is not private.)
    let _ = unsafe { raw::call(libc::SYS_futex, word, libc::FUTEX_WAIT as usize, 1, timeout, 0, 0) };
}

/// Waits until no errand is under way, for `limit_us` microseconds at most.
pub fn wait_for_all(limit_us: u64) {
    const TURN_US: i64 = 100;
    let end_ns = raw::now_ns().saturating_add(limit_us.saturating_mul(1000));
    while ALL.iter().any(Slot::is_under_way) && raw::now_ns() < end_ns {
        raw::sleep_us(TURN_US);
    }
}

/// Forgets all errands in a forked child, where none is under way.
pub fn forget_all() {
    for slot in &ALL {
        slot.alive.store(0, Relaxed);
        slot.state.store(FREE, Relaxed);
    }
}

/// The memory of a thread, and its errand.
#[repr(C)]
struct Room {
    thread: Memory,
    errand: MaybeUninit<Errand>,
}

/// Sends a new thread on an errand.
///
/// # Errors
/// The reason why no thread was sent, with the errand ([`Refusal`]).
#[allow(clippy::result_large_err, reason = "the path goes back as it came, and nothing may be allocated")]
pub fn send(errand: Errand) -> Result<(), Refusal> {
    let on = lane_word(errand.pool, errand.at);
    if ALL.iter().filter(|slot| slot.on.load(Relaxed) == on && slot.is_under_way()).count() >= ON_ONE_LANE {
        return Err(Refusal::TooMany(errand));
    }
    let free = ALL.iter().find(|slot| {
        let state = slot.state.load(Acquire);
        state != FILLING
            && slot.alive.load(Acquire) == 0
            && slot.state.compare_exchange(state, FILLING, AcqRel, Acquire).is_ok()
            && {
                // Another thread may have had the slot in between, and have sent it out again.
                let ours = slot.alive.load(Acquire) == 0;
                if !ours {
                    slot.state.store(OUT, Release);
                }
                ours
            }
    });
    let Some(slot) = free else { return Err(Refusal::TooMany(errand)) };
    let room = match slot.room.load(Acquire) {
        0 => raw_thread::map(size_of::<Room>()),
        room => Some(room),
    };
    let Some(room) = room else {
        slot.state.store(FREE, Release);
        return Err(Refusal::NoThread(errand));
    };
    slot.room.store(room, Release);
    slot.on.store(on, Relaxed);
    slot.of.store(file_word(errand.group), Relaxed);
    slot.alive.store(1, Release);
    let place: *mut Room = core::ptr::with_exposed_provenance_mut(room);
    // SAFETY: the mapping of this slot, which no thread uses: the thread before has ended.
    let kept: *mut Errand = unsafe { &raw mut (*place).errand }.cast();
    // SAFETY: the mapping of this slot, which no thread uses.
    unsafe { kept.write(errand) };
    // SAFETY: the mapping of this slot, which no thread uses; `alive` is in static memory.
    let started = unsafe { raw_thread::start(place.cast(), c"iotrap-lane", live, room, slot.alive.as_ptr()) };
    if started.is_err() {
        // SAFETY: `kept` was written above, and the thread that would read it was not started.
        let errand = unsafe { kept.read() };
        slot.alive.store(0, Release);
        slot.state.store(FREE, Release);
        return Err(Refusal::NoThread(errand));
    }
    slot.state.store(OUT, Release);
    Ok(())
}

/// The life of a thread: it runs the errand of its room.
extern "C" fn live(room: usize) {
    let room: *mut Room = core::ptr::with_exposed_provenance_mut(room);
    // SAFETY: `send` has written the errand before it made this thread, and no other thread uses the room until this
    // thread ends.
    let errand: *const Errand = unsafe { &raw const (*room).errand }.cast();
    // SAFETY: `send` has written the errand before it made this thread, and no other thread uses the room until this
    // thread ends.
    tracking::run(unsafe { &*errand });
}

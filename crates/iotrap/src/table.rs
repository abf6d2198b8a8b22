//! What a file descriptor is to us: nothing, a file that the program opened on a lane, or a lane's file of our own.
//!
//! One atomic word per number, in zeroed static memory: valid before any constructor has run, after fork, and in
//! signal handlers. Numbers beyond [`LIMIT`] are never looked at, however high RLIMIT_NOFILE is.

use core::ffi::c_int;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

/// Files with higher numbers stay on the opened lane.
pub const LIMIT: usize = 1 << 20;

static TABLE: [AtomicU64; LIMIT] = [const { AtomicU64::new(0) }; LIMIT];
/// One more than the highest number that was ever entered: what a sweep has to look at.
static USED: AtomicUsize = AtomicUsize::new(0);

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A number that the library does not track.
    Nothing,
    /// A file that the program opened; it holds a reference to that group.
    File(Name),
    /// A file that the program opened and of which nothing will ever be spread: its reads go straight through.
    Quiet(Name),
    /// A descriptor that the library opened for that group, on another lane or as its witness; the program does not
    /// know it.
    Lane(Name),
}

/// Which group, and in which life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its place.
    pub index: u32,
    /// Its generation.
    pub generation: u32,
}

impl Entry {
    #[inline]
    fn word(self) -> u64 {
        let (name, tag) = match self {
            Entry::Nothing => return 0,
            Entry::File(name) => (name, 1),
            Entry::Lane(name) => (name, 2),
            Entry::Quiet(name) => (name, 3),
        };
        u64::from(name.generation) << 32 | u64::from(name.index) << 2 | tag
    }

    #[inline]
    fn of(word: u64) -> Entry {
        let name = Name { index: (word as u32) >> 2, generation: (word >> 32) as u32 };
        match word & 3 {
            1 => Entry::File(name),
            2 => Entry::Lane(name),
            3 => Entry::Quiet(name),
            _ => Entry::Nothing,
        }
    }
}

/// What `fd` is. A negative or very high number is nothing.
#[inline]
pub fn get(fd: c_int) -> Entry {
    // A negative number becomes a very high one.
    match TABLE.get(fd as u32 as usize) {
        Some(word) => Entry::of(word.load(Acquire)),
        None => Entry::Nothing,
    }
}

/// Enters `fd`; what it was before is returned: the caller drops its reference. `Err` if the number is too high.
pub fn put(fd: c_int, entry: Entry) -> Result<Entry, ()> {
    let word = TABLE.get(fd as u32 as usize).ok_or(())?;
    USED.fetch_max(fd as usize + 1, Relaxed);
    Ok(Entry::of(word.swap(entry.word(), SeqCst)))
}

/// Removes what `fd` is and returns it: the caller has its reference then.
#[inline]
pub fn take(fd: c_int) -> Entry {
    match TABLE.get(fd as u32 as usize) {
        Some(word) if word.load(Acquire) != 0 => Entry::of(word.swap(0, SeqCst)),
        _ => Entry::Nothing,
    }
}

/// Enters `fd` only where nothing is; false if something is.
pub fn put_back(fd: c_int, entry: Entry) -> bool {
    TABLE.get(fd as u32 as usize).is_some_and(|word| word.compare_exchange(0, entry.word(), AcqRel, Acquire).is_ok())
}

/// Removes `entry` from `fd` if that is what it still is.
pub fn remove(fd: c_int, entry: Entry) -> bool {
    TABLE.get(fd as u32 as usize).is_some_and(|word| word.compare_exchange(entry.word(), 0, SeqCst, Acquire).is_ok())
}

/// No number from here on was ever entered.
pub fn used() -> c_int {
    USED.load(Relaxed) as c_int
}

/// What is entered from `first` to `last`, in order.
pub fn entries(first: c_int, last: c_int) -> impl Iterator<Item = (c_int, Entry)> {
    let end = used().min(last.saturating_add(1));
    (first.max(0)..end).map(|fd| (fd, get(fd))).filter(|&(_, entry)| entry != Entry::Nothing)
}

//! The table of the process's file descriptors. It says of each number if it is unknown to the library, a file that the
//! program opened on a lane, or a private descriptor of the library.
//!
//! The table has one atomic word per number, in zeroed static memory: valid before any constructor has run, after fork,
//! and in signal handlers. The library never looks at numbers beyond [`LIMIT`], however high RLIMIT_NOFILE is.

use core::ffi::c_int;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

/// Files with higher numbers stay on the opened lane.
pub const LIMIT: usize = 1 << 20;

static TABLE: [AtomicU64; LIMIT] = [const { AtomicU64::new(0) }; LIMIT];
/// One more than the highest number that was ever entered: a sweep looks at the numbers below it.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The meaning of a descriptor number.
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

/// The name of a group: its place in the table of groups, and which life of that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The place of the group in the table of groups.
    pub index: u32,
    /// The generation of the group: how often the place was taken so far.
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

/// The entry of `fd`. A negative or very high number has the entry `Entry::Nothing`.
#[inline]
pub fn get(fd: c_int) -> Entry {
    // The cast makes a negative number a very high one.
    match TABLE.get(fd as u32 as usize) {
        Some(word) => Entry::of(word.load(Acquire)),
        None => Entry::Nothing,
    }
}

/// Enters `fd` and returns the entry of before, whose reference the caller drops. `Err` if the number is too high.
pub fn put(fd: c_int, entry: Entry) -> Result<Entry, ()> {
    let word = TABLE.get(fd as u32 as usize).ok_or(())?;
    USED.fetch_max(fd as usize + 1, Relaxed);
    Ok(Entry::of(word.swap(entry.word(), SeqCst)))
}

/// Removes the entry of `fd` and returns it: its reference is the caller's then.
#[inline]
pub fn take(fd: c_int) -> Entry {
    match TABLE.get(fd as u32 as usize) {
        Some(word) if word.load(Acquire) != 0 => Entry::of(word.swap(0, SeqCst)),
        _ => Entry::Nothing,
    }
}

/// Enters `fd` if the number has no entry; false if it has one.
pub fn put_back(fd: c_int, entry: Entry) -> bool {
    TABLE.get(fd as u32 as usize).is_some_and(|word| word.compare_exchange(0, entry.word(), AcqRel, Acquire).is_ok())
}

/// Removes `entry` from `fd`, if `fd` still has just this entry; false if not.
pub fn remove(fd: c_int, entry: Entry) -> bool {
    TABLE.get(fd as u32 as usize).is_some_and(|word| word.compare_exchange(entry.word(), 0, SeqCst, Acquire).is_ok())
}

/// The end of the used part: no number from here on was ever entered.
pub fn used() -> c_int {
    USED.load(Relaxed) as c_int
}

/// The entries of the numbers from `first` to `last`, in order.
pub fn entries(first: c_int, last: c_int) -> impl Iterator<Item = (c_int, Entry)> {
    let end = used().min(last.saturating_add(1));
    (first.max(0)..end).map(|fd| (fd, get(fd))).filter(|&(_, entry)| entry != Entry::Nothing)
}

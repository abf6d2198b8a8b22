//! The zones of one device or file, in memory that all clones share, be they threads or processes.
//!
//! A lock of one word guards the table; a clone holds it for the few loads and stores of one decision, and never during
//! a call of the system. An op in flight marks its zone instead: one writer (a write or a reset), and any number of
//! readers.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sys::shared::SharedWords;

/// The most zones that a table can have open, as in fio.
pub const MOST_OPEN: u32 = 4096;

const LOCK: usize = 0;
const OPEN: usize = 1;
const COUNTDOWN: usize = 2;
const FLYING: usize = 3;
const LIST: usize = 8;
const ZONES: usize = LIST + MOST_OPEN as usize;
const WORDS: usize = 8;

/// The storage below a table: it carries out resets.
pub trait Storage: Send + Sync {
    /// Forgets the data of the zone of `len` bytes at `start`.
    ///
    /// # Errors
    /// The error of the device.
    fn reset(&self, start: u64, len: u64) -> io::Result<()>;

    /// The write pointer of the zone at `start`, as the device sees it; None: the table alone knows it.
    fn write_pointer(&self, start: u64) -> Option<u64>;
}

/// A zone, as the table has it. All offsets are bytes from the start of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The place at which the next write begins.
    pub pointer: u64,
    /// The end of the data that can be read: the pointer, less the write in flight.
    pub written: u64,
    /// Bytes that the zone holds.
    pub capacity: u64,
    /// True if the zone is written at its pointer alone.
    pub sequential: bool,
    /// True if the zone takes no data.
    pub closed_to_writes: bool,
    /// True if the zone has no data that can be read.
    pub offline: bool,
    /// True if the zone is reset before its next write (`zone_reset_frequency`).
    pub is_due: bool,
    /// The seat, plus 1, of the clone that writes or resets the zone; 0: none.
    pub writer: u64,
    /// Reads in flight.
    pub readers: u64,
    /// The seat, plus 1, of the clone that opened the zone; 0: the zone is not open.
    pub opener: u64,
}

/// The zones of one device or file.
pub struct Table {
    words: SharedWords,
    /// Bytes from one zone to the next.
    pub zone_bytes: u64,
    /// Number of zones.
    pub count: u64,
    /// Zones that may be open at the same time; 0: no limit, and nothing is counted.
    pub max_open: u32,
    /// True if the device takes no writes through the page cache.
    pub needs_direct: bool,
    /// The zones that were open on the device when the table was made.
    pub were_open: BTreeSet<u64>,
    /// The storage that has the zones.
    pub storage: Box<dyn Storage>,
}

/// The table while this clone alone sees it.
pub struct Locked<'a> {
    table: &'a Table,
}

impl Table {
    /// A table of these zones, none of them open.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(zone_bytes: u64, zones: &[Zone], max_open: u32, storage: Box<dyn Storage>) -> io::Result<Table> {
        let words = SharedWords::new(ZONES + zones.len() * WORDS)?;
        let count = zones.len() as u64;
        let table =
            Table { words, zone_bytes, count, max_open, needs_direct: false, were_open: BTreeSet::new(), storage };
        let locked = table.lock();
        for (index, zone) in zones.iter().enumerate() {
            locked.set(index as u64, zone);
        }
        drop(locked);
        Ok(table)
    }

    /// The number of the zone at an offset; the number of zones, beyond the last.
    pub fn zone_at(&self, offset: u64) -> u64 {
        (offset / self.zone_bytes).min(self.count)
    }

    /// The offset of a zone.
    pub fn start(&self, zone: u64) -> u64 {
        zone * self.zone_bytes
    }

    /// Waits for the lock. It is held for some hundred nanoseconds.
    pub fn lock(&self) -> Locked<'_> {
        let mut tries = 0_u32;
        while self.words[LOCK].compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
            tries += 1;
            if tries.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Locked { table: self }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.table.words[LOCK].store(0, Release);
    }
}

impl Locked<'_> {
    fn word(&self, index: usize) -> u64 {
        self.table.words[index].load(Relaxed)
    }

    fn put(&self, index: usize, value: u64) {
        self.table.words[index].store(value, Relaxed);
    }

    /// A zone by its number.
    pub fn get(&self, zone: u64) -> Zone {
        let at = ZONES + zone as usize * WORDS;
        let flags = self.word(at + 3);
        Zone {
            pointer: self.word(at),
            written: self.word(at + 1),
            capacity: self.word(at + 2),
            sequential: flags & 1 != 0,
            closed_to_writes: flags & 2 != 0,
            offline: flags & 4 != 0,
            is_due: flags & 8 != 0,
            writer: self.word(at + 4),
            readers: self.word(at + 5),
            opener: self.word(at + 6),
        }
    }

    /// Stores a zone.
    pub fn set(&self, number: u64, zone: &Zone) {
        let at = ZONES + number as usize * WORDS;
        let flags = [zone.sequential, zone.closed_to_writes, zone.offline, zone.is_due];
        let flags = flags.iter().rev().fold(0, |sum, &flag| sum * 2 + u64::from(flag));
        let words = [zone.pointer, zone.written, zone.capacity, flags, zone.writer, zone.readers, zone.opener];
        for (place, value) in words.into_iter().enumerate() {
            self.put(at + place, value);
        }
    }

    /// The number of open zones.
    pub fn open_count(&self) -> u64 {
        self.word(OPEN)
    }

    /// The zone at a place among the open ones.
    pub fn open_at(&self, place: u64) -> u64 {
        self.word(LIST + place as usize)
    }

    /// Counts a zone among the open ones.
    pub fn open(&self, number: u64, seat: u64) {
        let count = self.open_count();
        self.put(LIST + count as usize, number);
        self.put(OPEN, count + 1);
        self.set(number, &Zone { opener: seat + 1, ..self.get(number) });
    }

    /// Counts a zone among the open ones no longer. The others keep their order.
    pub fn close(&self, number: u64) {
        let zone = self.get(number);
        let count = self.open_count();
        let Some(place) = (0..count).find(|&place| self.open_at(place) == number).filter(|_| zone.opener != 0) else {
            return;
        };
        for next in place + 1..count {
            self.put(LIST + next as usize - 1, self.open_at(next));
        }
        self.put(OPEN, count - 1);
        self.set(number, &Zone { opener: 0, ..zone });
    }

    /// Ops in flight on zones of this table, of all clones.
    pub fn flying(&self) -> u64 {
        self.word(FLYING)
    }

    /// Adds to the ops in flight.
    pub fn fly(&self, change: i64) {
        self.put(FLYING, self.flying().saturating_add_signed(change));
    }

    /// Writes left until the next early reset; 0: the count has not begun.
    pub fn countdown(&self) -> u64 {
        self.word(COUNTDOWN)
    }

    /// Sets the writes left until the next early reset.
    pub fn set_countdown(&self, writes: u64) {
        self.put(COUNTDOWN, writes);
    }
}

//! The seats: the few words that the runner and its clones, threads or processes, share while they run.
//!
//! Each word has one writer. Clones write their own counters with plain stores once a reaping call; the runner
//! reads them a few times a second. Nothing here is on the path of a single op.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use measure::{Direction, PerDirection};
use sys::shared::SharedWords;

use crate::run::Phase;

/// Words before the first seat.
const HEADER: usize = 16;
/// Words of a seat: two cache lines, so that clones do not share one.
const SEAT: usize = 16;

/// The words that a run and its clones share.
#[derive(Debug)]
pub struct Seats {
    words: SharedWords,
}

/// The words of one clone.
#[derive(Clone, Copy, Debug)]
pub struct Seat<'a> {
    words: &'a [AtomicU64],
}

/// The numbers that a clone has published.
#[derive(Clone, Copy, Debug, Default)]
pub struct Published {
    /// The phase that the clone is in.
    pub phase: Phase,
    /// Ops completed in the measured part.
    pub ops: PerDirection<u64>,
    /// Bytes of the ops in `ops`.
    pub bytes: PerDirection<u64>,
    /// Sum of the latencies of the ops in `ops`.
    pub lat_sum_ns: u64,
    /// Part of the clone's work that is done, in millionths; 0 if unknown.
    pub done_millionths: u64,
}

impl Seats {
    /// Seats for `clones` clones.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(clones: usize) -> io::Result<Seats> {
        Ok(Seats { words: SharedWords::new(HEADER + clones * SEAT)? })
    }

    /// The seat of clone number `clone` of the whole run.
    pub fn seat(&self, clone: usize) -> Seat<'_> {
        let start = HEADER + clone * SEAT;
        Seat { words: &self.words[start..start + SEAT] }
    }

    /// Nanoseconds between looks at a gate: the more clones wait, the more seldom, or their looking would keep the
    /// processors from those that still have to get ready.
    pub fn gate_poll_ns(&self) -> u64 {
        let clones = (self.words.len() - HEADER) / SEAT;
        100_000 + 50_000 * clones as u64
    }

    /// Tells every clone to end.
    pub fn stop_all(&self) {
        self.words[0].store(1, Relaxed);
    }

    /// The word that [`Seats::stop_all`] sets.
    pub fn stop_word(&self) -> &AtomicU64 {
        &self.words[0]
    }
}

const READY: usize = 0;
const GO_AT: usize = 1;
const STOP: usize = 2;
const PHASE: usize = 3;
const OPS: usize = 4;
const BYTES: usize = 7;
const LAT_SUM: usize = 10;
const DONE: usize = 11;
const STARTED: usize = 12;
const ISSUED: usize = 13;
const LEFT: usize = 14;

impl Seat<'_> {
    /// The clone's side of the gate: ready to start.
    pub fn report_ready(&self) {
        self.words[READY].store(1, Release);
    }

    /// True if the clone has reported.
    pub fn is_ready(&self) -> bool {
        self.words[READY].load(Acquire) != 0
    }

    /// The runner's side of the gate: start when `CLOCK_MONOTONIC` reads `at_ns`.
    pub fn open_gate(&self, at_ns: u64) {
        self.words[GO_AT].store(at_ns, Release);
    }

    /// When to start; None while the gate is closed.
    pub fn gate(&self) -> Option<u64> {
        Some(self.words[GO_AT].load(Acquire)).filter(|&at| at != 0)
    }

    /// Publishes when the clone began, on `CLOCK_MONOTONIC`.
    pub fn began(&self, at_ns: u64) {
        self.words[STARTED].store(at_ns, Relaxed);
    }

    /// When the clone began; None if it has not.
    pub fn began_at(&self) -> Option<u64> {
        Some(self.words[STARTED].load(Relaxed)).filter(|&at| at != 0)
    }

    /// The runner notes that the clone has ended, however it ended.
    pub fn leave(&self) {
        self.words[LEFT].store(1, Relaxed);
    }

    /// True if the clone has begun and not ended.
    pub fn is_at_work(&self) -> bool {
        self.began_at().is_some() && self.words[LEFT].load(Relaxed) == 0
    }

    /// Publishes the number of ops issued under `flow`.
    pub fn publish_issued(&self, ops: u64) {
        self.words[ISSUED].store(ops, Relaxed);
    }

    /// The ops issued under `flow`.
    pub fn issued(&self) -> u64 {
        self.words[ISSUED].load(Relaxed)
    }

    /// Tells this clone to end.
    pub fn stop(&self) {
        self.words[STOP].store(1, Relaxed);
    }

    /// True if this clone was told to end.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.words[STOP].load(Relaxed) != 0
    }

    /// Stores the phase of this clone where other processes read it.
    pub fn enter(&self, phase: Phase) {
        self.words[PHASE].store(phase as u64, Relaxed);
    }

    /// Publishes counters. One writer: plain stores suffice.
    pub fn publish(&self, ops: &PerDirection<u64>, bytes: &PerDirection<u64>, lat_sum_ns: u64, done_millionths: u64) {
        for (index, direction) in Direction::ALL.into_iter().enumerate() {
            self.words[OPS + index].store(ops[direction], Relaxed);
            self.words[BYTES + index].store(bytes[direction], Relaxed);
        }
        self.words[LAT_SUM].store(lat_sum_ns, Relaxed);
        self.words[DONE].store(done_millionths, Relaxed);
    }

    /// The numbers that the clone has published last.
    pub fn read(&self) -> Published {
        let word = |index: usize| self.words[index].load(Relaxed);
        let three = |at: usize| PerDirection { read: word(at), write: word(at + 1), trim: word(at + 2) };
        Published {
            phase: match word(PHASE) {
                0 => Phase::Layout,
                1 => Phase::Ramp,
                2 => Phase::Run,
                _ => Phase::Verify,
            },
            ops: three(OPS),
            bytes: three(BYTES),
            lat_sum_ns: word(LAT_SUM),
            done_millionths: word(DONE),
        }
    }
}

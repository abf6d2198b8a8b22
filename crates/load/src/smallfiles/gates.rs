//! The words that threads and processes of a run share: gates before phases, the stonewall, progress.
//!
//! Nothing here is on the path of a single call. After each file a thread reads two words and writes three. The written
//! words are in a cache line that belongs to the thread alone.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use measure::schema::Work;
use sys::shared::SharedWords;

use super::listing::Holdings;

/// Number of words of a phase: a cache line, so that no two phases share one.
const LINE: usize = 8;
/// Number of words of a seat: a line for the words that change with each file, two for those that change with each
/// phase.
const SEAT: usize = 3 * LINE;

/// The words that the workers of a run share.
pub(super) struct Gates {
    words: SharedWords,
    phases: usize,
    workers: usize,
}

/// In the first line: the reason why threads are to stop, a `Stop`.
const STOP: usize = 0;
/// In the first line: 1 once the figures are handed over, so that files may be removed.
const CLEAN_UP: usize = 1;
/// In a phase: the time at which it begins; 0 while its gate is closed.
const GO_AT: usize = 0;
/// In a phase: the time of the stonewall; 0 before.
const WALL_NS: usize = 1;
/// In a phase: the number of threads that have counted themselves as finished.
const THROUGH: usize = 2;
/// In a phase: the time at which the first thread began; 0 before.
const FIRST_NS: usize = 3;
/// In a phase: the time at which the last thread began; 0 before.
const LAST_NS: usize = 4;
/// In a phase that evens out: the number of threads that have said how far they came.
const TOLD: usize = 5;
/// In a phase that evens out: the most operations that a thread had tried when it said so.
const MOST: usize = 6;
/// In a seat: the gate that the worker has come to, or [`LEFT`].
const REACHED: usize = 0;
const FILES: usize = 1;
const RECORDS: usize = 2;
const BYTES: usize = 3;
/// In a seat: the two flags of `Holdings`.
const FLAGS: usize = LINE;
/// In a seat: the first of the words with the ranges of `Holdings`.
const RANGES: usize = LINE + 1;
/// In a seat: the first of the words with `ours_from` of `Holdings`.
const OURS: usize = RANGES + 8;

/// The reason why threads must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stop {
    /// Threads are not to stop.
    No = 0,
    /// Threads are to stop because the user wants to.
    Interrupted = 1,
    /// Threads are to stop because an operation failed.
    Failed = 2,
}

/// The gate of a worker that has left: past every gate.
pub(super) const LEFT: u64 = u64::MAX;

impl Gates {
    pub fn new(phases: usize, workers: usize) -> io::Result<Gates> {
        Ok(Gates { words: SharedWords::new(LINE * (1 + phases) + SEAT * workers)?, phases, workers })
    }

    fn phase(&self, phase: usize) -> &[AtomicU64] {
        &self.words[LINE * (1 + phase)..][..LINE]
    }

    fn seat(&self, worker: usize) -> &[AtomicU64] {
        &self.words[LINE * (1 + self.phases) + SEAT * worker..][..SEAT]
    }

    /// Tells everybody to stop; a failure outranks the user.
    pub fn stop(&self, why: Stop) {
        self.words[STOP].fetch_max(why as u64, AcqRel);
    }

    /// The reason why threads are to stop; `Stop::No` while they are not.
    #[inline]
    pub fn stopped(&self) -> Stop {
        match self.words[STOP].load(Relaxed) {
            0 => Stop::No,
            1 => Stop::Interrupted,
            _ => Stop::Failed,
        }
    }

    /// Notes that a worker has reached a gate, or has left ([`LEFT`]).
    pub fn reach(&self, worker: usize, gate: u64) {
        self.seat(worker)[REACHED].store(gate, Release);
    }

    /// True if every worker has reached that gate or left.
    pub fn have_reached(&self, gate: u64) -> bool {
        (0..self.workers).all(|worker| self.seat(worker)[REACHED].load(Acquire) >= gate)
    }

    /// Number of workers that have not reached that gate.
    pub fn behind(&self, gate: u64) -> usize {
        (0..self.workers).filter(|&worker| self.seat(worker)[REACHED].load(Acquire) < gate).count()
    }

    /// Opens a gate: the phase begins when `CLOCK_MONOTONIC` reads `at_ns`.
    pub fn open_gate(&self, phase: usize, at_ns: u64) {
        self.phase(phase)[GO_AT].store(at_ns, Release);
    }

    /// Notes that a thread has begun the phase.
    pub fn begin(&self, phase: usize, now_ns: u64) {
        let line = self.phase(phase);
        let _ = line[FIRST_NS].compare_exchange(0, now_ns, AcqRel, Acquire); // the first counts
        line[LAST_NS].fetch_max(now_ns, AcqRel);
    }

    /// The times at which the first and the last thread began the phase; None while no thread has begun.
    pub fn began(&self, phase: usize) -> Option<(u64, u64)> {
        let word = |index: usize| self.phase(phase)[index].load(Acquire);
        (word(FIRST_NS) != 0).then(|| (word(FIRST_NS), word(LAST_NS)))
    }

    /// The time at which the phase begins; None while its gate is closed.
    pub fn gate(&self, phase: usize) -> Option<u64> {
        Some(self.phase(phase)[GO_AT].load(Acquire)).filter(|&at| at != 0)
    }

    /// Lets the threads remove what the run has made: the figures are handed over.
    pub fn open_clean_up(&self) {
        self.words[CLEAN_UP].store(1, Release);
    }

    /// True if the threads may remove what the run has made.
    pub fn may_clean_up(&self) -> bool {
        self.words[CLEAN_UP].load(Acquire) != 0
    }

    /// Nanoseconds between looks at a gate: the more wait, the more seldom.
    pub fn poll_ns(&self) -> u64 {
        50_000 + 20_000 * self.workers as u64
    }

    /// Notes that a thread has nothing left to do in the phase. The first such thread sets the stonewall.
    pub fn finish(&self, phase: usize, now_ns: u64) {
        let _ = self.phase(phase)[WALL_NS].compare_exchange(0, now_ns, AcqRel, Acquire); // the first counts
    }

    /// Says how many operations a thread has tried when its time is over, or when it is through.
    pub fn tell(&self, phase: usize, tried: u64) {
        let line = self.phase(phase);
        line[MOST].fetch_max(tried, AcqRel);
        line[TOLD].fetch_add(1, AcqRel);
    }

    /// The most operations that a thread has told; None until all threads have told.
    pub fn most(&self, phase: usize) -> Option<u64> {
        let line = self.phase(phase);
        (line[TOLD].load(Acquire) >= self.workers as u64).then(|| line[MOST].load(Acquire))
    }

    /// Counts a thread that has finished the phase; true if it was the last one.
    pub fn is_last(&self, phase: usize) -> bool {
        self.phase(phase)[THROUGH].fetch_add(1, AcqRel) + 1 == self.workers as u64
    }

    /// The time at which the first thread had nothing left to do (the stonewall); 0 before.
    #[inline]
    pub fn wall_ns(&self, phase: usize) -> u64 {
        self.phase(phase)[WALL_NS].load(Relaxed)
    }

    /// Publishes the work that a worker has done in its phase.
    #[inline]
    pub fn publish(&self, worker: usize, work: &Work) {
        let seat = self.seat(worker);
        seat[FILES].store(work.files + work.failed, Relaxed);
        seat[RECORDS].store(work.records, Relaxed);
        seat[BYTES].store(work.bytes, Relaxed);
    }

    /// Publishes the objects that a worker holds so far, before it comes to the next gate.
    pub fn publish_holdings(&self, worker: usize, holdings: &Holdings) {
        let seat = self.seat(worker);
        seat[FLAGS].store(u64::from(holdings.renamed) | u64::from(holdings.certain) << 1, Relaxed);
        for (index, (first, end)) in holdings.ranges.iter().enumerate() {
            seat[RANGES + 2 * index].store(*first, Relaxed);
            seat[RANGES + 2 * index + 1].store(*end, Relaxed);
            seat[OURS + index].store(holdings.ours_from[index], Relaxed);
        }
    }

    /// The objects that a worker held when it came to the last gate.
    pub fn holdings(&self, worker: usize) -> Holdings {
        let word = |index: usize| self.seat(worker)[index].load(Relaxed);
        let ranges = std::array::from_fn(|index| (word(RANGES + 2 * index), word(RANGES + 2 * index + 1)));
        let ours_from = std::array::from_fn(|index| word(OURS + index));
        let (renamed, certain) = (word(FLAGS) & 1 != 0, word(FLAGS) & 2 != 0);
        Holdings { ranges, ours_from, renamed, away: None, certain }
    }

    /// The sum of the work that all workers have published.
    pub fn total(&self) -> Work {
        let mut total = Work::default();
        for worker in 0..self.workers {
            let word = |index: usize| self.seat(worker)[index].load(Relaxed);
            total.add(&Work { files: word(FILES), records: word(RECORDS), bytes: word(BYTES), ..Work::default() });
        }
        total
    }
}

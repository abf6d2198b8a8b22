//! The counters of a row, and their updates: every update is one or a few relaxed atomic operations.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::layout::{self, OP_WORDS, bucket_of, op, row};

/// The kinds of ops that a row tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Ops that read.
    Read = 0,
    /// Ops that write.
    Write = 1,
    /// All others: flush, fsync, trim, compare.
    Other = 2,
}

impl Op {
    /// All of them, in the order of a row.
    pub const ALL: [Op; 3] = [Op::Read, Op::Write, Op::Other];

    /// The name of the kind of op, one lower-case word.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Other => "other",
        }
    }
}

/// A value that goes up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// The [`State`] of the row, as a number.
    State = 0,
    /// Ops begun and not ended.
    OutstandingOps = 1,
    /// Bytes of the ops begun and not ended.
    OutstandingBytes = 2,
    /// Ops that wait for admission.
    HeldOps = 3,
    /// Bytes of the ops that wait for admission.
    HeldBytes = 4,
    /// Bytes that may be outstanding; 0 means without limit.
    WindowBytes = 5,
    /// Ops that may be outstanding; 0 means without limit.
    WindowOps = 6,
    /// The measured service rate in bytes per second.
    RateBytesPerSecond = 7,
    /// Times that a lane was taken out of service.
    Losses = 8,
    /// Nanoseconds that a reactor has spent working (its utilisation, from differences).
    BusyNs = 9,
    /// Connections, of a host or a reactor.
    Connections = 10,
    /// The depth that the user asked for, in the row of a load.
    AskedDepth = 11,
    /// The load line as far as a sweep knows it, in the row of a load.
    LoadLine = 12,
    /// When the row's counts were last brought up to date, in nanoseconds of `CLOCK_MONOTONIC`; 0 for rows whose counts
    /// are always up to date.
    AsOfNs = 13,
}

/// The state of a row. A row never takes a state that its kind does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The program has not given the row a state.
    #[default]
    Unknown = 0,
    /// The row is in service.
    Healthy = 1,
    /// The row has made no progress for too long: it gets no new I/O until an answer comes back.
    Suspect = 2,
    /// The row has failed: it gets no new I/O, and its outstanding ops are waited for.
    Draining = 3,
    /// The row has failed and has no outstanding ops.
    Failed = 4,
    /// The row has failed and is being tried again.
    Probing = 5,
    /// The row's configuration has taken it out of service, or it was never usable.
    Off = 6,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [State; 7] =
        [State::Unknown, State::Healthy, State::Suspect, State::Draining, State::Failed, State::Probing, State::Off];

    /// The name of the state, one lower-case word; a dash for the unknown.
    pub const fn name(self) -> &'static str {
        match self {
            State::Unknown => "-",
            State::Healthy => "ok",
            State::Suspect => "suspect",
            State::Draining => "draining",
            State::Failed => "failed",
            State::Probing => "probing",
            State::Off => "off",
        }
    }
}

/// The counts of one op, without its latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Ops that ended well.
    pub ops: u64,
    /// The bytes that these ops moved.
    pub bytes: u64,
    /// Ops that ended with an error.
    pub errors: u64,
    /// The sum of the latencies of `ops`, in nanoseconds.
    pub lat_sum_ns: u64,
}

/// The counters of one row. Any number of threads may use them at a time.
#[derive(Clone, Copy, Debug)]
pub struct Counters<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Counters<'a> {
    /// The counters in the words of a row.
    pub(crate) fn new(words: &'a [AtomicU64]) -> Counters<'a> {
        Counters { words }
    }

    /// Counts an op that begins: it is outstanding.
    #[inline]
    pub fn begin(self, bytes: u64) {
        self.add(Gauge::OutstandingOps, 1);
        self.add(Gauge::OutstandingBytes, bytes);
    }

    /// Counts an op that ends well: `bytes` as at its beginning, `moved` of them transferred.
    #[inline]
    pub fn end(self, op: Op, bytes: u64, moved: u64, latency_ns: u64) {
        self.subtract(Gauge::OutstandingOps, 1);
        self.subtract(Gauge::OutstandingBytes, bytes);
        self.count(op, moved, latency_ns);
    }

    /// Counts an op that was never counted as outstanding.
    #[inline]
    pub fn count(self, op: Op, bytes: u64, latency_ns: u64) {
        self.bump(op, op::BYTES, bytes);
        self.bump(op, op::LAT_SUM_NS, latency_ns);
        self.bump(op, op::HISTOGRAM + bucket_of(latency_ns), 1);
    }

    /// Counts ops whose latencies are known by their sum alone: all of them stand in the bucket of the mean. One thread
    /// writes the row.
    pub fn count_many(self, op: Op, ops: u64, bytes: u64, lat_sum_ns: u64) {
        let Some(mean_ns) = lat_sum_ns.checked_div(ops) else { return };
        self.bump_alone(op, op::BYTES, bytes);
        self.bump_alone(op, op::LAT_SUM_NS, lat_sum_ns);
        self.bump_alone(op, op::HISTOGRAM + bucket_of(mean_ns), ops);
    }

    /// Counts an error of an op, and no completion.
    #[inline]
    pub fn error(self, op: Op) {
        self.bump(op, op::ERRORS, 1);
    }

    /// Counts an op as [`Counters::count`] does, for a row that only one thread writes: without locked instructions.
    #[inline]
    pub fn count_alone(self, op: Op, bytes: u64, latency_ns: u64) {
        self.bump_alone(op, op::BYTES, bytes);
        self.bump_alone(op, op::LAT_SUM_NS, latency_ns);
        self.bump_alone(op, op::HISTOGRAM + bucket_of(latency_ns), 1);
    }

    /// The counts of an op now. The call allocates nothing.
    pub fn sums(self, op: Op) -> Sums {
        let word = |field: usize| self.op_word(op, field).map_or(0, |word| word.load(Relaxed));
        let ops = (0..crate::layout::BUCKETS).map(|bucket| word(op::HISTOGRAM + bucket)).sum();
        Sums { ops, bytes: word(op::BYTES), errors: word(op::ERRORS), lat_sum_ns: word(op::LAT_SUM_NS) }
    }

    /// Sets a gauge to a value.
    #[inline]
    pub fn set(self, gauge: Gauge, value: u64) {
        if let Some(word) = self.gauge(gauge) {
            word.store(value, Relaxed);
        }
    }

    /// The value of a gauge now.
    #[inline]
    pub fn get(self, gauge: Gauge) -> u64 {
        self.gauge(gauge).map_or(0, |word| word.load(Relaxed))
    }

    /// Adds to the value of a gauge.
    #[inline]
    pub fn add(self, gauge: Gauge, value: u64) {
        if let Some(word) = self.gauge(gauge) {
            word.fetch_add(value, Relaxed);
        }
    }

    /// Subtracts from the value of a gauge.
    #[inline]
    pub fn subtract(self, gauge: Gauge, value: u64) {
        if let Some(word) = self.gauge(gauge) {
            word.fetch_sub(value, Relaxed);
        }
    }

    /// Sets the state that the row shows.
    #[inline]
    pub fn set_state(self, state: State) {
        self.set(Gauge::State, state as u64);
    }

    fn gauge(self, gauge: Gauge) -> Option<&'a AtomicU64> {
        self.words.get(row::GAUGES + gauge as usize)
    }

    fn op_word(self, op: Op, field: usize) -> Option<&'a AtomicU64> {
        self.words.get(row::OPS + op as usize * OP_WORDS + field)
    }

    #[inline]
    fn bump(self, op: Op, field: usize, value: u64) {
        if let Some(word) = self.op_word(op, field) {
            word.fetch_add(value, Relaxed);
        }
    }

    #[inline]
    fn bump_alone(self, op: Op, field: usize, value: u64) {
        if let Some(word) = self.op_word(op, field) {
            word.store(word.load(Relaxed).wrapping_add(value), Relaxed);
        }
    }
}

const _: () = assert!((Gauge::Connections as usize) < row::GAUGE_WORDS, "the gauges have room");
const _: () = assert!(layout::ROW_WORDS.is_multiple_of(32), "rows share no cache line");

//! The layout of a board: an array of 64-bit words, all of them atomic, in the byte order of the machine.
//!
//! ```text
//! header (64 words) │ reasons (64 x 16 words) │ rows (capacity x 448 words)
//! ```
//!
//! A change to anything here is a new [`VERSION`]: readers show boards of their own version only.

/// "PLIMLIVE" in the machine's byte order.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"PLIMLIVE");
/// The version of this layout; readers refuse boards of another version.
pub const VERSION: u64 = 1;

/// Number of 64-bit words of a board's header.
pub const HEADER_WORDS: usize = 64;
/// The words in which the fields lie, from the first word of the header, reason, row or op.
pub mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    /// 1 when everything else of the board is there. The program stores it last, with release.
    pub const READY: usize = 2;
    pub const KIND: usize = 3;
    pub const PID: usize = 4;
    pub const START_TICKS: usize = 5;
    pub const PID_NAMESPACE: usize = 6;
    pub const EXE_DEVICE: usize = 7;
    pub const EXE_INODE: usize = 8;
    pub const CREATED_NS: usize = 9;
    pub const ROWS: usize = 10;
    pub const TITLE: usize = 16;
    pub const TITLE_WORDS: usize = 32;
}

/// Different reasons that a board can hold; all further ones are counted under the last.
pub const REASONS: usize = 64;
/// Words of a reason: its state, its count, its text.
pub const REASON_WORDS: usize = 16;
/// The words in which the fields lie, from the first word of the header, reason, row or op.
pub mod reason {
    /// 0: the reason is free; 1: it is being written; 2: it is there.
    pub const STATE: usize = 0;
    pub const COUNT: usize = 1;
    pub const TEXT: usize = 2;
}

/// Words of a row: a multiple of two cache lines, so that rows do not share one.
pub const ROW_WORDS: usize = 448;
/// The words in which the fields lie, from the first word of the header, reason, row or op.
pub mod row {
    /// Even: free or complete, odd: being written; 0 free and never used. Grows with every change of hands.
    pub const GENERATION: usize = 0;
    /// The kind of the row; 0 while the row is free.
    pub const KIND: usize = 1;
    pub const NAME: usize = 2;
    pub const NAME_WORDS: usize = 14;
    pub const GROUP: usize = NAME + NAME_WORDS;
    pub const GROUP_WORDS: usize = 8;
    pub const GAUGES: usize = 32;
    pub const GAUGE_WORDS: usize = 16;
    pub const OPS: usize = GAUGES + GAUGE_WORDS;
}

/// Words of the counts of one kind of op.
pub const OP_WORDS: usize = 3 + BUCKETS;
/// The words in which the fields lie, from the first word of the header, reason, row or op.
pub mod op {
    pub const BYTES: usize = 0;
    pub const LAT_SUM_NS: usize = 1;
    pub const ERRORS: usize = 2;
    pub const HISTOGRAM: usize = 3;
}

const _: () = assert!(row::OPS + 3 * OP_WORDS <= ROW_WORDS, "the ops of a row have room");
const _: () = assert!(header::TITLE + header::TITLE_WORDS <= HEADER_WORDS, "the title has room");

/// The first word of reason `index`.
pub const fn reason_at(index: usize) -> usize {
    HEADER_WORDS + index * REASON_WORDS
}

/// The first word of row `index`.
pub const fn row_at(index: usize) -> usize {
    reason_at(REASONS) + index * ROW_WORDS
}

/// Rows that a board can have at most; a reader does not believe a larger number.
pub const ROWS_MAX: usize = 8192;

/// Buckets of a latency histogram: four to an octave from 256 ns to 1.1 s x 1024, the last for all beyond.
pub const BUCKETS: usize = 128;
/// log2 of the first bucket's end, in nanoseconds.
const FIRST_BITS: u32 = 8;

/// The bucket of a latency. A quantile taken from these buckets is off by less than 13 %: they are for looking on.
#[inline]
pub const fn bucket_of(latency_ns: u64) -> usize {
    if latency_ns < 1 << FIRST_BITS {
        return 0;
    }
    let bits = 63 - latency_ns.leading_zeros();
    let quarter = (latency_ns >> (bits - 2)) as usize & 3;
    let bucket = 1 + (bits - FIRST_BITS) as usize * 4 + quarter;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// The latencies of a bucket, in nanoseconds: from, inclusive, and to, exclusive.
pub const fn bucket_bounds(bucket: usize) -> (u64, u64) {
    const fn from(bucket: usize) -> u64 {
        if bucket == 0 {
            return 0;
        }
        let (octave, quarter) = ((bucket - 1) / 4, (bucket - 1) % 4);
        (4 + quarter as u64) << (octave + FIRST_BITS as usize - 2)
    }
    let bucket = if bucket < BUCKETS { bucket } else { BUCKETS - 1 };
    (from(bucket), from(bucket + 1))
}

/// The kind of a program that keeps a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BoardKind {
    /// A program under the interposer: rows are lanes.
    Trap = 1,
    /// An NVMe/TCP target: rows are namespaces, hosts and reactors.
    Target = 2,
    /// A program that makes load (`run`, `sweep`): the one row is its load.
    Load = 3,
}

impl BoardKind {
    /// All kinds of boards, in the order of their numbers.
    pub const ALL: [BoardKind; 3] = [BoardKind::Trap, BoardKind::Target, BoardKind::Load];

    /// The name of the kind of program, one lower-case word.
    pub const fn name(self) -> &'static str {
        match self {
            BoardKind::Trap => "trap",
            BoardKind::Target => "target",
            BoardKind::Load => "load",
        }
    }
}

/// The kind of thing that a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RowKind {
    /// A lane; its group is the pool.
    Lane = 1,
    /// A namespace; its group is the subsystem.
    Namespace = 2,
    /// A host that is connected; its group is the subsystem.
    Host = 3,
    /// A reactor: one thread of the target and all that it carries.
    Reactor = 4,
    /// The load of a program that makes load. Its latencies are known by their sum only.
    Load = 5,
}

impl RowKind {
    /// All kinds of rows, in the order of their numbers.
    pub const ALL: [RowKind; 5] = [RowKind::Lane, RowKind::Namespace, RowKind::Host, RowKind::Reactor, RowKind::Load];

    /// The name of the kind of row, one lower-case word.
    pub const fn name(self) -> &'static str {
        match self {
            RowKind::Lane => "lane",
            RowKind::Namespace => "namespace",
            RowKind::Host => "host",
            RowKind::Reactor => "reactor",
            RowKind::Load => "load",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_in_its_bucket() {
        for shift in 0..64 {
            for latency in [1u64 << shift, (1u64 << shift) - 1, (1u64 << shift) + (1u64 << shift) / 3] {
                let bucket = bucket_of(latency);
                let (from, to) = bucket_bounds(bucket);
                assert!(from <= latency, "{latency} in {bucket} from {from}");
                assert!(latency < to || bucket == BUCKETS - 1, "{latency} in {bucket} to {to}");
            }
        }
    }

    #[test]
    fn buckets_follow_each_other() {
        for bucket in 1..BUCKETS {
            assert_eq!(bucket_bounds(bucket - 1).1, bucket_bounds(bucket).0);
        }
        assert!(bucket_bounds(BUCKETS - 1).0 > 300_000_000_000, "minutes can be told apart");
    }
}

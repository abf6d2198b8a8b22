//! The reading side: the values of a board at one moment, read without trust in any of them.

use std::fmt;

use measure::Histogram;

use crate::counters::{Gauge, Op, State};
use crate::layout::{
    self, BUCKETS, BoardKind, OP_WORDS, REASONS, ROW_WORDS, ROWS_MAX, RowKind, bucket_bounds, header, op, reason,
    reason_at, row, row_at,
};
use crate::owner::Owner;
use crate::words;

/// Reasons why a file is not a board that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The file is too short for a board, or begins with something else.
    NoBoard,
    /// The board is of another version of this program.
    OtherVersion,
    /// The program has not finished making the board.
    NotReady,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Invalid::NoBoard => "not a board",
            Invalid::OtherVersion => "a board of another version",
            Invalid::NotReady => "a board that is being made",
        })
    }
}

impl std::error::Error for Invalid {}

/// The values of a board at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The kind of the program.
    pub kind: BoardKind,
    /// The name of the program.
    pub title: String,
    /// The process id of the program, in the program's own PID namespace.
    pub pid: u64,
    /// When the board was made, in nanoseconds since 1970.
    pub created_ns: u64,
    /// The rows that are in use, in the order of the board.
    pub rows: Vec<RowCounts>,
    /// The reasons why something was not done, with their counts, in the order of their first occurrence.
    pub reasons: Vec<ReasonCount>,
    pub(crate) owner: Owner,
}

/// A reason and how often it applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonCount {
    /// The reason in words, as the program that owns the board stated it.
    pub text: String,
    /// The number of times that the reason applied.
    pub count: u64,
}

/// The values of a row at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RowCounts {
    /// The kind of thing that the row counts.
    pub kind: RowKind,
    /// The group that the row belongs to: a pool, a subsystem.
    pub group: String,
    /// The name of the row: a lane's path, a host.
    pub name: String,
    /// The row's place on the board, and how often that place has changed hands. Two snapshots with equal identities
    /// are of one row.
    pub identity: (usize, u64),
    gauges: [u64; row::GAUGE_WORDS],
    ops: [OpCounts; 3],
}

/// The counts of one kind of op in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct OpCounts {
    /// Ops that ended without an error.
    pub ops: u64,
    /// Bytes of the ops that ended well.
    pub bytes: u64,
    /// Sum of the latencies of the ops that ended well.
    pub lat_sum_ns: u64,
    /// Ops that ended with an error.
    pub errors: u64,
    buckets: Box<[u64]>,
}

impl OpCounts {
    /// The distribution of latencies, as precise as the buckets are.
    pub fn latencies(&self) -> Histogram {
        let mut histogram = Histogram::new();
        for (bucket, &count) in self.buckets.iter().enumerate() {
            let (from, to) = bucket_bounds(bucket);
            histogram.record_many(from.midpoint(to), count);
        }
        histogram
    }

    /// The growth of the counts since an earlier moment of the same row.
    pub fn since(&self, earlier: &OpCounts) -> OpCounts {
        let buckets: Box<[u64]> =
            self.buckets.iter().zip(&earlier.buckets).map(|(now, then)| now.saturating_sub(*then)).collect();
        OpCounts {
            ops: buckets.iter().fold(0, |sum, count| sum.saturating_add(*count)),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            lat_sum_ns: self.lat_sum_ns.saturating_sub(earlier.lat_sum_ns),
            errors: self.errors.saturating_sub(earlier.errors),
            buckets,
        }
    }
}

impl OpCounts {
    /// Adds the counts of another row.
    pub fn absorb(&mut self, other: &OpCounts) {
        let OpCounts { ops, bytes, lat_sum_ns, errors, buckets } = other;
        self.ops = self.ops.saturating_add(*ops);
        self.bytes = self.bytes.saturating_add(*bytes);
        self.lat_sum_ns = self.lat_sum_ns.saturating_add(*lat_sum_ns);
        self.errors = self.errors.saturating_add(*errors);
        for (mine, theirs) in self.buckets.iter_mut().zip(buckets) {
            *mine = mine.saturating_add(*theirs);
        }
    }
}

/// The counts of several programs together: rows of the same kind, group and name are one, and so are reasons. States
/// and other gauges are those of the last program. Ops and bytes that are outstanding or held, and losses, are summed.
pub fn together(snapshots: &[Snapshot]) -> (Vec<RowCounts>, Vec<ReasonCount>) {
    let (mut rows, mut reasons): (Vec<RowCounts>, Vec<ReasonCount>) = Default::default();
    for snapshot in snapshots {
        for row in &snapshot.rows {
            let same =
                |known: &&mut RowCounts| (known.kind, &known.group, &known.name) == (row.kind, &row.group, &row.name);
            match rows.iter_mut().find(same) {
                Some(known) => known.absorb(row),
                None => rows.push(row.clone()),
            }
        }
        for reason in &snapshot.reasons {
            match reasons.iter_mut().find(|known| known.text == reason.text) {
                Some(known) => known.count = known.count.saturating_add(reason.count),
                None => reasons.push(reason.clone()),
            }
        }
    }
    (rows, reasons)
}

impl RowCounts {
    fn absorb(&mut self, other: &RowCounts) {
        const SUMS: [Gauge; 5] =
            [Gauge::OutstandingOps, Gauge::OutstandingBytes, Gauge::HeldOps, Gauge::HeldBytes, Gauge::Losses];
        let RowCounts { kind: _, group: _, name: _, identity: _, gauges, ops } = other;
        let before = self.gauges;
        self.gauges = *gauges;
        for gauge in SUMS.map(|gauge| gauge as usize) {
            self.gauges[gauge] = before[gauge].wrapping_add(gauges[gauge]);
        }
        self.ops.iter_mut().zip(ops).for_each(|(mine, theirs)| mine.absorb(theirs));
    }

    /// The sum of several rows of one kind, under a name of its own: ops and every gauge that is an amount. The sum has
    /// no state.
    pub fn sum(rows: &[&RowCounts], name: &str) -> Option<RowCounts> {
        let (first, rest) = rows.split_first()?;
        let mut sum = RowCounts { name: name.to_string(), ..(*first).clone() };
        for row in rest {
            sum.gauges = std::array::from_fn(|gauge| sum.gauges[gauge].wrapping_add(row.gauges[gauge]));
            sum.ops.iter_mut().zip(&row.ops).for_each(|(mine, theirs)| mine.absorb(theirs));
        }
        sum.gauges[Gauge::State as usize] = State::Unknown as u64;
        Some(sum)
    }

    /// A value that goes up and down. Outstanding and held amounts that are below 0 for a moment, between two
    /// updates, are 0.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        let value = self.gauges[gauge as usize];
        if value > i64::MAX as u64 { 0 } else { value }
    }

    /// The state of the row.
    pub fn state(&self) -> State {
        State::ALL.into_iter().find(|state| *state as u64 == self.gauge(Gauge::State)).unwrap_or_default()
    }

    /// The counts of one kind of op.
    pub fn op(&self, op: Op) -> &OpCounts {
        &self.ops[op as usize]
    }
}

impl Snapshot {
    /// Reads a board from the bytes of a file.
    ///
    /// # Errors
    /// The bytes are not a board, or are a board that cannot be shown.
    pub fn parse(bytes: &[u8]) -> Result<Snapshot, Invalid> {
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        Snapshot::of_words(&words)
    }

    pub(crate) fn of_words(all: &[u64]) -> Result<Snapshot, Invalid> {
        let field = |at: usize| all.get(at).copied().ok_or(Invalid::NoBoard);
        if field(header::MAGIC)? != layout::MAGIC {
            // One that is being made is all zeros.
            return Err(if field(header::MAGIC)? == 0 { Invalid::NotReady } else { Invalid::NoBoard });
        }
        if field(header::VERSION)? != layout::VERSION {
            return Err(Invalid::OtherVersion);
        }
        if field(header::READY)? != 1 {
            return Err(Invalid::NotReady);
        }
        let kind = field(header::KIND)?;
        let kind = BoardKind::ALL.into_iter().find(|known| *known as u64 == kind).ok_or(Invalid::OtherVersion)?;
        let capacity = usize::try_from(field(header::ROWS)?).unwrap_or(usize::MAX).min(ROWS_MAX);
        let part = |start: usize, count: usize| all.get(start..start + count);
        let owner = Owner {
            pid: field(header::PID)?,
            start_ticks: field(header::START_TICKS)?,
            pid_namespace: field(header::PID_NAMESPACE)?,
            exe: (field(header::EXE_DEVICE)?, field(header::EXE_INODE)?),
        };
        Ok(Snapshot {
            kind,
            title: words::text(part(header::TITLE, header::TITLE_WORDS).unwrap_or_default()),
            pid: owner.pid,
            created_ns: field(header::CREATED_NS)?,
            rows: (0..capacity)
                .map_while(|index| Some((index, part(row_at(index), ROW_WORDS)?)))
                .filter_map(read_row)
                .collect(),
            reasons: read_reasons((0..REASONS).map_while(|index| part(reason_at(index), layout::REASON_WORDS))),
            owner,
        })
    }

    /// A board that could not be read back: its own program has been overwritten. Shown as empty.
    pub(crate) fn nothing(_: Invalid) -> Snapshot {
        let (title, owner) = (String::new(), Owner::default());
        Snapshot { kind: BoardKind::Trap, title, pid: 0, created_ns: 0, rows: Vec::new(), reasons: Vec::new(), owner }
    }
}

fn read_row((index, words): (usize, &[u64])) -> Option<RowCounts> {
    let kind = RowKind::ALL.into_iter().find(|known| *known as u64 == words[row::KIND])?;
    if !words[row::GENERATION].is_multiple_of(2) {
        return None; // it is changing hands
    }
    Some(RowCounts {
        kind,
        group: words::text(&words[row::GROUP..row::GROUP + row::GROUP_WORDS]),
        name: words::text(&words[row::NAME..row::NAME + row::NAME_WORDS]),
        identity: (index, words[row::GENERATION]),
        gauges: std::array::from_fn(|gauge| words[row::GAUGES + gauge]),
        ops: std::array::from_fn(|op| read_op(&words[row::OPS + op * OP_WORDS..][..OP_WORDS])),
    })
}

fn read_op(words: &[u64]) -> OpCounts {
    // A damaged board must not overflow a sum.
    let buckets: Box<[u64]> =
        words[op::HISTOGRAM..op::HISTOGRAM + BUCKETS].iter().map(|&n| n.min(u64::MAX >> 8)).collect();
    OpCounts {
        ops: buckets.iter().sum(),
        bytes: words[op::BYTES],
        lat_sum_ns: words[op::LAT_SUM_NS],
        errors: words[op::ERRORS],
        buckets,
    }
}

fn read_reasons<'a>(all: impl Iterator<Item = &'a [u64]>) -> Vec<ReasonCount> {
    let mut found: Vec<ReasonCount> = Vec::new();
    for words in all.filter(|words| words[reason::STATE] == 2 && words[reason::COUNT] > 0) {
        let (text, count) = (words::text(&words[reason::TEXT..]), words[reason::COUNT]);
        match found.iter_mut().find(|known| known.text == text) {
            Some(known) => known.count = known.count.saturating_add(count),
            None => found.push(ReasonCount { text, count }),
        }
    }
    found
}

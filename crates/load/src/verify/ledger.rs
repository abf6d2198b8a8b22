//! The ledger of a verifying clone: which block must hold the data of which write, and when to read it back.
//!
//! Every byte is in one of three states:
//!
//! - **acknowledged**: the last write that covers the byte has succeeded, and no write or trim that covers the byte was
//!   issued afterwards. The ledger has the byte's block. The same holds for a trim after which the byte must be zero.
//! - **in flight**: a write or trim that covers the byte was issued and has not ended.
//! - **unknown**: the byte was never written, or was trimmed and may be anything, or the last write that covers it
//!   failed, or it has been read back.
//!
//! ```text
//!              changing                 wrote, zeroed
//! acknowledged ────────► in flight ──────────────────► acknowledged
//!      │ next_read           │ the op fails, or is another trim
//!      ▼                     ▼
//!   unknown               unknown
//! ```
//!
//! The rules for ops follow:
//!
//! 1. A read-back is issued only for a block of the ledger. A write or trim supersedes the read-backs of the bytes that
//!    it covers when it is issued ([`Ledger::changing`]), not when it ends: a superseded read-back is never issued.
//! 2. A write or trim is not issued while a write, a trim or a read-back that overlaps it is in flight: nobody knows in
//!    which order the storage carries them out. [`Ledger::may_overlap`] says whether that can happen.
//! 3. A block that a later op covers in part loses that part. The rest stays only if it has separate headers.
//!
//! Where no block is written twice, a queue of 20 bytes a block is all it takes. Where blocks may overlap, an ordered
//! map takes about twice that.

use std::collections::{BTreeMap, VecDeque};

use job::Job;
use job::job::VerifyKind;

use super::trims::Trims;

/// The data that a block must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The data of a write, by the low 32 bits of the write's number.
    Write(u32),
    /// Zeroes, because the block was trimmed.
    Zeroes,
}

/// A block to read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBack {
    /// Index of the file among the files of the clone.
    pub file: u32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Length of the block in bytes.
    pub len: u32,
    /// The data that it must hold.
    pub data: Data,
}

/// The acknowledged blocks of one clone that have not been read back, and the decision whether to read back now.
///
/// ```text
/// loop {
///     if let Some(block) = ledger.next_read() { read and check it }
///     else if let Some(block) = ledger.next_trim() { ledger.changing(..); trim it; if it succeeds: ledger.zeroed(..) }
///     else if let Some(op) = workload.next() { ledger.changing(..); write it; if it succeeds: ledger.wrote(..) }
///     else { ledger.end_of_writes(); if ledger.is_empty() { break } }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Ledger {
    blocks: Blocks,
    sorted: bool,
    /// Writes before reading back, 0: never before the end; and how many are then read.
    backlog: u64,
    batch: u64,
    writes: u64,
    /// Reads that are due now.
    due: u64,
    /// Written blocks are read back; false: only those that are to be trimmed are kept.
    reads: bool,
    trims: Trims,
}

#[derive(Clone, Debug)]
enum Blocks {
    Queue(VecDeque<Entry>),
    /// No two overlap.
    Map {
        map: Map,
        interval: u64,
    },
}

/// (file, offset) to the length and the data of a block.
type Map = BTreeMap<(u32, u64), (u32, Data)>;

/// A [`ReadBack`] without the padding that an aligned offset would cost.
#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: [u32; 2],
    file: u32,
    len: u32,
    sequence: u32,
}

impl Ledger {
    /// An empty ledger for a job that verifies. `writes_once` promises that no write or trim of the workload overlaps
    /// a write that is not read back yet.
    pub fn new(job: &Job, writes_once: bool) -> Ledger {
        let verify = job.verify.as_ref();
        let reads = verify.is_none_or(|verify| verify.enabled);
        let backlog = verify.filter(|_| reads).map_or(0, |verify| verify.backlog);
        let trims = Trims::new(verify.map(|verify| verify.trims).unwrap_or_default(), job.pattern.seed);
        let blocks = if writes_once && !trims.any() {
            Blocks::Queue(VecDeque::new())
        } else {
            // A part of an overwritten block can be checked only if it has a separate header, and no pattern whose
            // phase depends on the rest.
            let apart = |kind| !matches!(kind, VerifyKind::PatternHeader | VerifyKind::PatternOnly);
            let interval = verify
                .filter(|verify| apart(verify.kind) && verify.pattern.bytes.is_empty())
                .map_or(0, |verify| super::interval(job, verify));
            Blocks::Map { map: BTreeMap::new(), interval }
        };
        Ledger {
            blocks,
            sorted: verify.is_some_and(|verify| verify.sorted),
            backlog,
            batch: verify.map_or(0, |verify| verify.backlog_batch),
            writes: 0,
            due: 0,
            reads,
            trims,
        }
    }

    /// True if written blocks are trimmed again.
    pub fn trims(&self) -> bool {
        self.trims.any()
    }

    /// A write or trim of these bytes is issued: read-backs of the bytes are superseded.
    #[inline]
    pub fn changing(&mut self, file: u32, offset: u64, len: u64) {
        if let Blocks::Map { map, interval } = &mut self.blocks {
            remove(map, *interval, file, offset, len);
        }
    }

    /// A write that [`Ledger::changing`] announced has succeeded.
    #[inline]
    pub fn wrote(&mut self, block: ReadBack) {
        let is_trimmed = self.trims.any() && self.trims.wrote(block);
        if self.reads || is_trimmed {
            self.keep(block);
        }
        self.writes += 1;
        if self.backlog != 0 && self.writes.is_multiple_of(self.backlog) {
            self.owe(if self.batch == 0 { self.backlog } else { self.batch });
        }
    }

    /// A trim that [`Ledger::changing`] announced has succeeded, and left zeroes.
    pub fn zeroed(&mut self, block: ReadBack) {
        if self.reads {
            self.keep(ReadBack { data: Data::Zeroes, ..block });
        }
    }

    fn keep(&mut self, block: ReadBack) {
        let ReadBack { file, offset, len, data } = block;
        match (&mut self.blocks, data) {
            (Blocks::Map { map, .. }, _) => {
                map.insert((file, offset), (len, data));
            }
            (Blocks::Queue(queue), Data::Write(sequence)) => {
                queue.push_back(Entry { offset: [offset as u32, (offset >> 32) as u32], file, len, sequence });
            }
            (Blocks::Queue(_), Data::Zeroes) => {} // without trims there are none
        }
    }

    /// The block to trim now; None: there is none. A block that was read back or written again since it was chosen is
    /// left out.
    #[inline]
    pub fn next_trim(&mut self) -> Option<ReadBack> {
        if !self.trims.any() {
            return None;
        }
        let Blocks::Map { map, .. } = &self.blocks else { return None };
        loop {
            let block = self.trims.next()?;
            if map.get(&(block.file, block.offset)) == Some(&(block.len, block.data)) {
                return Some(block);
            }
        }
    }

    /// The pass is written: all blocks that are to be trimmed are due. False if there are none.
    pub fn end_of_writes_before_trims(&mut self) -> bool {
        self.trims.end_of_writes()
    }

    /// True if ops may overlap those in flight, so that they have to wait for each other.
    pub fn may_overlap(&self) -> bool {
        matches!(self.blocks, Blocks::Map { .. })
    }

    /// The pass is written and trimmed: everything is to be read back.
    pub fn end_of_writes(&mut self) {
        self.owe(self.len() as u64);
    }

    /// The block to read back now; None: go on writing. The block leaves the ledger.
    #[inline]
    pub fn next_read(&mut self) -> Option<ReadBack> {
        if self.due == 0 {
            return None;
        }
        self.due -= 1;
        let block = match &mut self.blocks {
            Blocks::Queue(queue) => queue.pop_front().map(|entry| ReadBack {
                file: entry.file,
                offset: u64::from(entry.offset[0]) | u64::from(entry.offset[1]) << 32,
                len: entry.len,
                data: Data::Write(entry.sequence),
            }),
            Blocks::Map { map, .. } => {
                map.pop_first().map(|((file, offset), (len, data))| ReadBack { file, offset, len, data })
            }
        };
        if block.is_none() {
            self.due = 0; // the rest was superseded
        }
        block
    }

    /// True if nothing waits to be read back.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of blocks that wait to be read back.
    pub fn len(&self) -> usize {
        match &self.blocks {
            Blocks::Queue(queue) => queue.len(),
            Blocks::Map { map, .. } => map.len(),
        }
    }

    fn owe(&mut self, reads: u64) {
        self.due = (self.due + reads).min(self.len() as u64);
        if self.sorted
            && let Blocks::Queue(queue) = &mut self.blocks
        {
            let due = &mut queue.make_contiguous()[..self.due as usize];
            let place = |entry: &Entry| (entry.file, entry.offset[1], entry.offset[0]);
            if !due.is_sorted_by_key(place) {
                due.sort_unstable_by_key(place);
            }
        }
    }
}

/// Removes the bytes `from .. from + len` of a file. If the bytes cover only a part of a block, the parts of that block
/// with separate headers remain.
fn remove(map: &mut Map, interval: u64, file: u32, from: u64, len: u64) {
    let to = from.saturating_add(len);
    // The only block that begins before and may reach into this one is the last that does: none overlap.
    let before = map.range((file, 0)..(file, from)).next_back().map(|(key, value)| (*key, *value));
    let reaching = before.filter(|((_, start), (len, _))| start + u64::from(*len) > from);
    let inside = map.range((file, from)..(file, to)).map(|(key, value)| (*key, *value));
    let covered: Vec<_> = reaching.into_iter().chain(inside).collect();
    for ((_, start), (len, data)) in covered {
        map.remove(&(file, start));
        if interval == 0 {
            continue;
        }
        let end = start + u64::from(len);
        if start < from {
            let left = (from - start) / interval * interval;
            if left > 0 {
                map.insert((file, start), (left as u32, data));
            }
        }
        if end > to {
            let begin = start + (to - start).div_ceil(interval) * interval;
            if begin < end {
                map.insert((file, begin), ((end - begin) as u32, data));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::job::Verify;
    use job::workload::random::Random;

    fn ledger(writes_once: bool, edit: impl FnOnce(&mut Verify)) -> Ledger {
        let mut verify = super::super::tests::verify(VerifyKind::Crc32c);
        edit(&mut verify);
        Ledger::new(&Job { verify: Some(verify), ..Job::default() }, writes_once)
    }

    fn write(ledger: &mut Ledger, offset: u64, len: u32, sequence: u32) {
        ledger.changing(0, offset, u64::from(len));
        ledger.wrote(ReadBack { file: 0, offset, len, data: Data::Write(sequence) });
    }

    fn sequence_of(block: &ReadBack) -> u32 {
        match block.data {
            Data::Write(sequence) => sequence,
            Data::Zeroes => panic!("{block:?} was not trimmed"),
        }
    }

    #[test]
    fn everything_is_read_back_once_in_order() {
        for sorted in [false, true] {
            let mut ledger = ledger(true, |verify| verify.sorted = sorted);
            assert!(!ledger.may_overlap());
            let offsets = [3u64, 1, 1 << 40, 2, 0];
            for (sequence, offset) in offsets.into_iter().enumerate() {
                write(&mut ledger, offset * 4096, 4096, sequence as u32);
                assert_eq!(ledger.next_read(), None);
            }
            ledger.end_of_writes();
            let read: Vec<ReadBack> = std::iter::from_fn(|| ledger.next_read()).collect();
            let mut expected: Vec<(u64, u32)> =
                offsets.into_iter().zip(0..).map(|(offset, sequence)| (offset * 4096, sequence)).collect();
            if sorted {
                expected.sort_unstable();
            }
            assert_eq!(read.iter().map(|block| (block.offset, sequence_of(block))).collect::<Vec<_>>(), expected);
            assert!(ledger.is_empty());
        }
    }

    #[test]
    fn backlog_reads_between_writes() {
        let mut ledger = ledger(true, |verify| (verify.backlog, verify.backlog_batch, verify.sorted) = (4, 3, false));
        let mut log = String::new();
        for number in 0..9u32 {
            write(&mut ledger, u64::from(number) * 4096, 4096, number);
            log.push('w');
            while ledger.next_read().is_some() {
                log.push('r');
            }
        }
        ledger.end_of_writes();
        while ledger.next_read().is_some() {
            log.push('r');
        }
        assert_eq!(log, "wwwwrrrwwwwrrrwrrr");
    }

    /// Against a byte by byte oracle: every byte that is to be read back carries the number of its latest write.
    #[test]
    fn the_latest_write_wins() {
        let mut random = Random::new(4);
        for interval in [0u64, 8] {
            for _ in 0..200 {
                let mut map = BTreeMap::new();
                let mut oracle = [[None::<u32>; 256]; 2];
                for sequence in 0..40u32 {
                    let (file, offset) = (random.below(2) as u32, random.below(24) * 8);
                    let len = (1 + random.below(8)) * 8;
                    remove(&mut map, interval, file, offset, len);
                    map.insert((file, offset), (len as u32, Data::Write(sequence)));
                    oracle[file as usize][offset as usize..(offset + len) as usize].fill(Some(sequence));
                }
                let mut covered = 0;
                for (&(file, offset), &(len, data)) in &map {
                    for byte in offset..offset + u64::from(len) {
                        assert_eq!(oracle[file as usize][byte as usize].map(Data::Write), Some(data));
                        covered += 1;
                    }
                }
                if interval != 0 {
                    let all = oracle.iter().flatten().filter(|byte| byte.is_some()).count();
                    assert_eq!(covered, all, "with headers every 8 bytes, nothing that stands is left out");
                }
            }
        }
    }

    #[test]
    fn a_write_that_is_issued_supersedes_the_read_back_and_one_that_fails_leaves_nothing_known() {
        let mut ledger = ledger(false, |verify| verify.backlog = 2);
        write(&mut ledger, 0, 8192, 0);
        write(&mut ledger, 8192, 4096, 1);
        // Two read-backs are due. A write of the first block is issued before they are.
        ledger.changing(0, 0, 8192);
        let rest = ReadBack { file: 0, offset: 8192, len: 4096, data: Data::Write(1) };
        assert_eq!((ledger.next_read(), ledger.next_read()), (Some(rest), None));
        // It fails: nothing is expected of the block until another write succeeds.
        ledger.end_of_writes();
        assert_eq!(ledger.next_read(), None);
        assert!(ledger.is_empty());
        write(&mut ledger, 0, 8192, 3);
        ledger.end_of_writes();
        assert_eq!(ledger.next_read().map(|block| sequence_of(&block)), Some(3));
    }

    #[test]
    fn a_chosen_block_is_trimmed_unless_it_was_written_or_read_since() {
        let mut ledger = ledger(true, |verify| (verify.trims.percent, verify.backlog) = (100, 2));
        for number in 0..4 {
            write(&mut ledger, u64::from(number) * 4096, 4096, number);
        }
        // Of the four, block 0 is read back, block 1 is written again, and block 2 in part.
        assert_eq!(ledger.next_read().map(|block| block.offset), Some(0));
        write(&mut ledger, 4096, 4096, 4);
        write(&mut ledger, 10240, 512, 5);
        assert!(ledger.end_of_writes_before_trims());
        let mut trimmed = Vec::new();
        while let Some(block) = ledger.next_trim() {
            trimmed.push((block.offset, sequence_of(&block)));
            ledger.changing(block.file, block.offset, u64::from(block.len));
            ledger.zeroed(block);
        }
        assert_eq!(trimmed, [(12288, 3), (4096, 4), (10240, 5)]);
        ledger.end_of_writes();
        let rest: Vec<_> = std::iter::from_fn(|| ledger.next_read()).map(|block| (block.offset, block.data)).collect();
        assert_eq!(rest, [(4096, Data::Zeroes), (10240, Data::Zeroes), (12288, Data::Zeroes)]);
    }

    #[test]
    fn without_reads_only_the_blocks_to_trim_are_kept() {
        let mut ledger = ledger(true, |verify| (verify.trims.percent, verify.enabled) = (50, false));
        for number in 0..100 {
            write(&mut ledger, u64::from(number) * 4096, 4096, number);
        }
        assert_eq!(ledger.len(), 50);
        assert!(ledger.end_of_writes_before_trims());
        while let Some(block) = ledger.next_trim() {
            ledger.changing(block.file, block.offset, u64::from(block.len));
            ledger.zeroed(block);
        }
        assert!(ledger.is_empty());
    }

    #[test]
    fn a_block_takes_little_memory() {
        assert_eq!(size_of::<Entry>(), 20);
    }
}

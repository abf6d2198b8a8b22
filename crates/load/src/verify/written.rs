//! What has been written and not read back yet, and when to read it: after so many writes (`verify_backlog`), or when
//! all are done.
//!
//! Where no block is written twice, a queue of 20 bytes a block is all it takes. Where blocks may overlap, an ordered
//! map (about twice that) keeps only what the latest write left.

use std::collections::{BTreeMap, VecDeque};

use job::Job;
use job::job::{Distribution, VerifyKind};
use measure::Direction;

/// A block to read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBack {
    /// Index of the file.
    pub file: u32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// The low 32 bits of the number that it was written with.
    pub sequence: u32,
}

/// The log of writes of one clone, and the decision whether to read back now.
///
/// ```text
/// loop {
///     if let Some(block) = written.next_read() { read and check it }
///     else if let Some(op) = workload.next() { write it; on completion: written.wrote(..) }
///     else { written.end_of_writes(); if written.is_empty() { break } }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Written {
    blocks: Blocks,
    sorted: bool,
    /// Writes before reading back, 0: never before the end; and how many are then read.
    backlog: u64,
    batch: u64,
    writes: u64,
    /// Reads that are due now.
    due: u64,
}

#[derive(Clone, Debug)]
enum Blocks {
    Queue(VecDeque<Entry>),
    /// (file, offset) to (len, sequence). No two overlap.
    Map {
        map: BTreeMap<(u32, u64), (u32, u32)>,
        interval: u64,
    },
}

/// A [`ReadBack`] without the padding that an aligned offset would cost.
#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: [u32; 2],
    file: u32,
    len: u32,
    sequence: u32,
}

impl Written {
    /// An empty log for a job that verifies.
    pub fn new(job: &Job) -> Written {
        let verify = job.verify.as_ref();
        let backlog = verify.map_or(0, |verify| verify.backlog);
        let blocks = if may_overlap(job) {
            // A part of an overwritten block can be checked only if it has a header of its own, and no pattern whose
            // phase depends on the rest.
            let apart = |kind| !matches!(kind, VerifyKind::PatternHeader | VerifyKind::PatternOnly);
            let interval = verify
                .filter(|verify| apart(verify.kind) && verify.pattern.bytes.is_empty())
                .map_or(0, |verify| super::interval(job, verify));
            Blocks::Map { map: BTreeMap::new(), interval }
        } else {
            Blocks::Queue(VecDeque::new())
        };
        Written {
            blocks,
            sorted: verify.is_some_and(|verify| verify.sorted),
            backlog,
            batch: verify.map_or(0, |verify| verify.backlog_batch),
            writes: 0,
            due: 0,
        }
    }

    /// A write has completed. With overlapping writes in flight at once nobody knows which one stays: where
    /// [`may_overlap`](Written::may_overlap) says so, do not start a write, or a read back, that overlaps one in flight.
    #[inline]
    pub fn wrote(&mut self, file: u32, offset: u64, len: u32, sequence: u64) {
        let sequence = sequence as u32;
        match &mut self.blocks {
            Blocks::Queue(queue) => {
                queue.push_back(Entry { offset: [offset as u32, (offset >> 32) as u32], file, len, sequence });
            }
            Blocks::Map { map, interval } => insert(map, *interval, ReadBack { file, offset, len, sequence }),
        }
        self.writes += 1;
        if self.backlog != 0 && self.writes.is_multiple_of(self.backlog) {
            self.owe(if self.batch == 0 { self.backlog } else { self.batch });
        }
    }

    /// Whether the job's writes may overlap each other.
    pub fn may_overlap(&self) -> bool {
        matches!(self.blocks, Blocks::Map { .. })
    }

    /// The pass is written: everything is to be read back.
    pub fn end_of_writes(&mut self) {
        self.owe(self.len() as u64);
    }

    /// The block to read back now; None: go on writing.
    #[inline]
    pub fn next_read(&mut self) -> Option<ReadBack> {
        if self.due == 0 {
            return None;
        }
        self.due -= 1;
        match &mut self.blocks {
            Blocks::Queue(queue) => queue.pop_front().map(|entry| ReadBack {
                file: entry.file,
                offset: u64::from(entry.offset[0]) | u64::from(entry.offset[1]) << 32,
                len: entry.len,
                sequence: entry.sequence,
            }),
            Blocks::Map { map, .. } => {
                map.pop_first().map(|((file, offset), (len, sequence))| ReadBack { file, offset, len, sequence })
            }
        }
    }

    /// Whether nothing waits to be read back.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks that wait.
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

/// Whether a block may be written more than once before it is read back.
fn may_overlap(job: &Job) -> bool {
    let pattern = &job.pattern;
    let write = Direction::Write;
    let once = if job.rw.random {
        !pattern.no_random_map
            && pattern.distribution[write] == Distribution::Uniform
            && pattern.percent_random[write] >= 100
            && job.rw.ops_per_offset <= 1
            && job.blocks.align[write] >= job.blocks.range.write.0
            && !pattern.soft_random_map
    } else {
        job.rw.sequential_stride == 0
    };
    !once
        || job.extent.io_size.is_some()
        || job.extent.strided.is_some()
        || job.iolog.read.is_some()
        || job.time.time_based
}

/// Adds a block and removes what it overwrites. Of a block that is overwritten in part, the parts with headers of their
/// own remain.
fn insert(map: &mut BTreeMap<(u32, u64), (u32, u32)>, interval: u64, block: ReadBack) {
    let (file, from, to) = (block.file, block.offset, block.offset + u64::from(block.len));
    // The only block that begins before and may reach into this one is the last that does: none overlap.
    let before = map.range((file, 0)..(file, from)).next_back().map(|(key, value)| (*key, *value));
    let reaching = before.filter(|((_, start), (len, _))| start + u64::from(*len) > from);
    let inside = map.range((file, from)..(file, to)).map(|(key, value)| (*key, *value));
    let overwritten: Vec<_> = reaching.into_iter().chain(inside).collect();
    for ((_, start), (len, sequence)) in overwritten {
        map.remove(&(file, start));
        if interval == 0 {
            continue;
        }
        let end = start + u64::from(len);
        if start < from {
            let left = (from - start) / interval * interval;
            if left > 0 {
                map.insert((file, start), (left as u32, sequence));
            }
        }
        if end > to {
            let begin = start + (to - start).div_ceil(interval) * interval;
            if begin < end {
                map.insert((file, begin), ((end - begin) as u32, sequence));
            }
        }
    }
    map.insert((file, from), (block.len, block.sequence));
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::job::{Rw, Verify};
    use job::workload::random::Random;

    fn job(overlapping: bool) -> Job {
        let mut job = Job::default();
        job.rw = Rw { random: true, ..job.rw };
        job.pattern.no_random_map = overlapping;
        job.verify = Some(super::super::tests::verify(VerifyKind::Crc32c));
        job
    }

    fn edit(mut job: Job, edit: impl FnOnce(&mut Verify)) -> Job {
        edit(job.verify.as_mut().unwrap());
        job
    }

    #[test]
    fn everything_is_read_back_once_in_order() {
        for sorted in [false, true] {
            let mut written = Written::new(&edit(job(false), |verify| verify.sorted = sorted));
            assert!(!written.may_overlap());
            let offsets = [3u64, 1, 1 << 40, 2, 0];
            for (sequence, offset) in offsets.into_iter().enumerate() {
                written.wrote(0, offset * 4096, 4096, sequence as u64);
                assert_eq!(written.next_read(), None);
            }
            written.end_of_writes();
            let read: Vec<ReadBack> = std::iter::from_fn(|| written.next_read()).collect();
            let mut expected: Vec<(u64, u32)> =
                offsets.into_iter().zip(0..).map(|(offset, sequence)| (offset * 4096, sequence)).collect();
            if sorted {
                expected.sort_unstable();
            }
            assert_eq!(read.iter().map(|block| (block.offset, block.sequence)).collect::<Vec<_>>(), expected);
            assert!(written.is_empty());
        }
    }

    #[test]
    fn backlog_reads_between_writes() {
        let mut written = Written::new(&edit(job(false), |verify| {
            (verify.backlog, verify.backlog_batch, verify.sorted) = (4, 3, false)
        }));
        let mut log = String::new();
        for number in 0..9u64 {
            written.wrote(0, number * 4096, 4096, number);
            log.push('w');
            while written.next_read().is_some() {
                log.push('r');
            }
        }
        written.end_of_writes();
        while written.next_read().is_some() {
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
                    insert(&mut map, interval, ReadBack { file, offset, len: len as u32, sequence });
                    oracle[file as usize][offset as usize..(offset + len) as usize].fill(Some(sequence));
                }
                let mut covered = 0;
                for (&(file, offset), &(len, sequence)) in &map {
                    for byte in offset..offset + u64::from(len) {
                        assert_eq!(oracle[file as usize][byte as usize], Some(sequence));
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
    fn a_block_takes_little_memory() {
        assert_eq!(size_of::<Entry>(), 20);
    }
}

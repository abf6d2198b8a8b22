//! The content of write buffers: zeros, a pattern, or random bytes as compressible and as repetitive as the job asks.
//!
//! By default buffers are filled once and then only scrambled: a store every 512 bytes makes each sector unlike any
//! other, at a fraction of the cost of new content. Content that has to be exact (`refill_buffers`, compression,
//! repetition) is generated for every write.

use job::Job;
use job::job::{Buffers, WorkingSet};
use job::workload::random::{Random, mix};

/// Bytes of the unit that storage compares and compresses at the least.
const SECTOR: usize = 512;
/// The seed of the blocks that jobs with `dedupe_global` share.
const GLOBAL_SET: u64 = 0x7368_6172_6564_2121;
/// The part of a seed that keeps laid-out data apart from the data that the same clone writes.
const LAYOUT: u64 = 0x6c61_7965_646f_7574;

/// Fills the write buffers of one clone. The same seed gives the same bytes.
#[derive(Clone, Debug)]
pub struct Filler {
    kind: Kind,
    /// True if the content is made again for every write: the clone reads into the same buffers, and neither a pattern
    /// nor zeros survive a read. Bytes that were read may serve as random bytes.
    renews: bool,
    random: Random,
    /// Identifies scrambled sectors; never the same twice.
    serial: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Zero,
    /// One period, lengthened to at least a page so that copying is by long runs.
    Pattern(Vec<u8>),
    /// Content that is filled in once, and then scrambled or left alone.
    Once {
        scramble: bool,
    },
    /// Content that is new for every write.
    Fresh(Box<Fresh>),
}

/// Random content with given properties.
#[derive(Clone, Debug)]
struct Fresh {
    body: Body,
    /// Of 2^32 blocks, how many repeat an earlier one, and the size of a block.
    repeats_below: u64,
    block: usize,
    /// The blocks to repeat, with the seed of the first one; None: the last blocks.
    set: Option<(WorkingSet, u64)>,
    /// The number of blocks so far that repeat nothing. The first ones are those of the set, as in fio: blocks of the
    /// set beside them would be unlike all others when they come first, and fewer than asked would repeat.
    unique: u64,
    /// Seeds of the last blocks that were new: what repetitions repeat.
    recent: [u64; 16],
    known: usize,
}

/// Random bytes, compressible as `buffer_compress_percentage` asks.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// Bytes of each chunk that are random; the rest is filler. Equal to `chunk` if nothing is to be compressible.
    random_bytes: usize,
    chunk: usize,
    filler: Vec<u8>,
}

impl Filler {
    /// The filler of clone `clone` of `job`: as [`Filler::new`], with the smallest write as the unit of repetition.
    pub fn for_job(job: &Job, clone: u32) -> Filler {
        let smallest = job.blocks.range.write.0;
        let mut filler = Filler::new(&job.buffers, job.clone_seed(clone)).repeating(smallest as usize);
        if let Kind::Fresh(fresh) = &mut filler.kind
            && let Some((set, _)) = &mut fresh.set
            && set.global
        {
            set.first_writer += u64::from(clone);
        }
        let reads = job.rw.directions.read || job.verify.is_some();
        Filler { renews: reads && matches!(filler.kind, Kind::Zero | Kind::Pattern(_)), ..filler }
    }

    /// The filler of the files that a clone of `job` finds. The data have the properties of those that the clone
    /// writes, but differ: a device cannot take a write for one that changes nothing.
    pub fn for_layout(job: &Job, clone: u32) -> Filler {
        let mut filler = Filler::for_job(job, clone);
        filler.random = Random::new(mix(job.clone_seed(clone) ^ LAYOUT));
        if let Kind::Fresh(fresh) = &mut filler.kind
            && let Some((set, _)) = &fresh.set
        {
            // The job is to write the blocks of the set: the layout goes on behind them.
            fresh.unique = set.blocks;
        }
        filler
    }

    /// The filler that `buffers` asks for. `zero_buffers` goes before a pattern, a pattern before random bytes. With
    /// `buffer_compress_percentage`, the compressible part consists of the pattern, as in fio. Compression and
    /// repetition imply `refill_buffers`. A pattern is never scrambled: a scrambled pattern would not be the pattern
    /// any longer.
    pub fn new(buffers: &Buffers, seed: u64) -> Filler {
        let varied = buffers.compress_percent > 0 || buffers.dedupe_percent > 0;
        let kind = if buffers.zero {
            Kind::Zero
        } else if !buffers.pattern.is_empty() && !varied {
            Kind::Pattern(repeated(&buffers.pattern, 4096))
        } else if varied || buffers.refill {
            Kind::Fresh(Box::new(Fresh {
                body: Body::new(buffers),
                repeats_below: (u64::from(buffers.dedupe_percent.min(100)) << 32) / 100,
                block: 4096,
                // All jobs know the seed of the global set.
                set: buffers.working_set.map(|set| (set, if set.global { GLOBAL_SET } else { mix(seed ^ GLOBAL_SET) })),
                unique: 0,
                recent: [0; 16],
                known: 0,
            }))
        } else {
            Kind::Once { scramble: buffers.scramble }
        };
        let random = Random::new(mix(seed ^ 0x636f_6e74_656e_7421));
        Filler { kind, renews: false, random, serial: mix(seed) }
    }

    /// Sets the size of the blocks that `dedupe_percentage` counts; 4096 otherwise.
    pub fn repeating(mut self, block: usize) -> Filler {
        if let Kind::Fresh(fresh) = &mut self.kind {
            fresh.block = block.max(1);
        }
        self
    }

    /// Fills a buffer before its first write, or after a read has changed it.
    pub fn prepare(&mut self, buffer: &mut [u8]) {
        match &mut self.kind {
            Kind::Zero => buffer.fill(0),
            Kind::Pattern(pattern) => {
                for piece in buffer.chunks_mut(pattern.len()) {
                    piece.copy_from_slice(&pattern[..piece.len()]);
                }
            }
            Kind::Once { .. } => fill_random(&mut self.random, buffer),
            Kind::Fresh(_) => self.fill(buffer),
        }
    }

    /// Fills a piece of a file that is laid out, at `offset` in the file. Each block of `block` bytes of the file gets
    /// new content, or begins with the pattern, as if the job had written the block.
    pub fn lay_out(&mut self, piece: &mut [u8], offset: u64, block: u64) {
        let Kind::Pattern(pattern) = &self.kind else { return self.prepare(piece) };
        let block = block.max(1);
        let (mut at, mut rest) = (offset, piece);
        while !rest.is_empty() {
            let in_block = at % block;
            let from = (in_block % pattern.len() as u64) as usize;
            let len = (block - in_block).min((pattern.len() - from) as u64).min(rest.len() as u64) as usize;
            let (part, after) = rest.split_at_mut(len);
            part.copy_from_slice(&pattern[from..from + len]);
            (at, rest) = (at + len as u64, after);
        }
    }

    /// Makes a prepared buffer ready for its next write. Cheap unless the content has to be new.
    #[inline]
    pub fn fill(&mut self, buffer: &mut [u8]) {
        if self.renews {
            return self.prepare(buffer);
        }
        match &mut self.kind {
            Kind::Zero | Kind::Pattern(_) | Kind::Once { scramble: false } => {}
            Kind::Once { scramble: true } => self.scramble(buffer),
            Kind::Fresh(fresh) => fresh.fill(&mut self.random, buffer),
        }
    }

    /// Gives every sector a separate number, in a cache line that differs from write to write.
    #[inline]
    fn scramble(&mut self, buffer: &mut [u8]) {
        self.serial = self.serial.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let line = (self.serial >> 61) as usize * 64;
        let mut number = self.serial;
        for sector in buffer.as_chunks_mut::<SECTOR>().0 {
            sector[line..line + 8].copy_from_slice(&number.to_le_bytes());
            number = number.wrapping_add(0xd129_0b26_3a5f_c4d5);
        }
    }
}

impl Fresh {
    fn fill(&mut self, random: &mut Random, buffer: &mut [u8]) {
        if self.repeats_below == 0 {
            return self.body.fill(random, buffer);
        }
        for block in buffer.chunks_mut(self.block) {
            let can_repeat = self.known > 0 || self.set.is_some();
            let repeat = can_repeat && random.next() >> 32 < self.repeats_below;
            let seed = if let Some((set, first)) = self.set.filter(|_| repeat) {
                mix(first.wrapping_add(random.below(set.blocks)))
            } else if repeat {
                self.recent[random.below(self.known as u64) as usize]
            } else {
                let seed = self.next_unique(random);
                let at = if self.known < self.recent.len() {
                    self.known
                } else {
                    random.below(self.recent.len() as u64) as usize
                };
                self.recent[at] = seed;
                self.known = self.known.max(at + 1);
                seed
            };
            self.body.fill(&mut Random::new(seed), block);
        }
    }

    /// The seed of a block that repeats nothing.
    fn next_unique(&mut self, random: &mut Random) -> u64 {
        let number = self.unique;
        self.unique += 1;
        let of_set = self.set.and_then(|(set, first)| {
            let place = number.checked_mul(set.writers.max(1))?.checked_add(set.first_writer)?;
            (place < set.blocks).then(|| mix(first.wrapping_add(place)))
        });
        of_set.unwrap_or_else(|| random.next())
    }
}

impl Body {
    pub(crate) fn new(buffers: &Buffers) -> Body {
        let chunk = if buffers.compress_chunk == 0 { SECTOR } else { buffers.compress_chunk as usize };
        Body {
            random_bytes: (chunk as u64 * u64::from(100 - buffers.compress_percent.min(100)) / 100) as usize,
            chunk,
            filler: if buffers.pattern.is_empty() { Vec::new() } else { repeated(&buffers.pattern, chunk) },
        }
    }

    /// Fills `block` with bytes that depend on the state of `random` alone.
    pub(crate) fn fill(&self, random: &mut Random, block: &mut [u8]) {
        if self.random_bytes == self.chunk {
            return fill_random(random, block);
        }
        for chunk in block.chunks_mut(self.chunk) {
            let (noise, rest) = chunk.split_at_mut(self.random_bytes.min(chunk.len()));
            fill_random(random, noise);
            match self.filler.get(..rest.len()) {
                Some(filler) if !self.filler.is_empty() => rest.copy_from_slice(filler),
                _ => rest.fill(0),
            }
        }
    }
}

/// `pattern` repeated to whole periods of at least `bytes` bytes.
fn repeated(pattern: &[u8], bytes: usize) -> Vec<u8> {
    pattern.repeat(bytes.div_ceil(pattern.len()).max(1))
}

/// Random bytes, eight at a time.
fn fill_random(random: &mut Random, buffer: &mut [u8]) {
    let (words, rest) = buffer.as_chunks_mut::<8>();
    for word in words {
        *word = random.next().to_le_bytes();
    }
    if !rest.is_empty() {
        let last = random.next().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn buffers() -> Buffers {
        Job::default().buffers
    }

    /// `count` blocks of 4 KiB, one after the other.
    fn written(buffers: &Buffers, count: usize) -> Vec<u8> {
        let mut filler = Filler::new(buffers, 7);
        let mut block = vec![0xee; 4096];
        filler.prepare(&mut block);
        let mut all = Vec::new();
        for _ in 0..count {
            filler.fill(&mut block);
            all.extend_from_slice(&block);
        }
        all
    }

    fn packed(data: &[u8]) -> f64 {
        // Sectors are compressed apart, as storage does: nothing is gained from likeness between them.
        data.chunks(4096).map(|block| zstd::bulk::compress(block, 3).unwrap().len()).sum::<usize>() as f64
            / data.len() as f64
    }

    #[test]
    fn zeros_and_patterns_are_exact() {
        assert!(written(&Buffers { zero: true, ..buffers() }, 3).iter().all(|&byte| byte == 0));
        let data = written(&Buffers { pattern: b"abc".to_vec(), ..buffers() }, 3);
        for block in data.chunks(4096) {
            assert!(block.iter().zip(b"abc".iter().cycle()).all(|(a, b)| a == b));
        }
    }

    #[test]
    fn what_is_laid_out_is_as_written() {
        let laid_out = |buffers: &Buffers, pieces: &[usize], block| {
            let mut filler = Filler::new(buffers, 7);
            let mut all = Vec::new();
            for &bytes in pieces {
                let mut piece = vec![0; bytes];
                filler.lay_out(&mut piece, all.len() as u64, block);
                all.extend_from_slice(&piece);
            }
            all
        };
        // Blocks of 6000 bytes lie across the pieces: each begins with the pattern all the same.
        let data = laid_out(&Buffers { pattern: b"abcdefg".to_vec(), ..buffers() }, &[4096, 1, 20_000, 9903], 6000);
        for block in data.chunks(6000) {
            assert!(block.iter().zip(b"abcdefg".iter().cycle()).all(|(a, b)| a == b));
        }
        // Data to read must not be what a device could pack or share, unless the job asks for that.
        for buffers in [buffers(), Buffers { scramble: false, ..buffers() }, Buffers { refill: true, ..buffers() }] {
            let data = laid_out(&buffers, &[1 << 20; 3], 4096);
            assert_eq!(data.chunks(512).collect::<HashSet<_>>().len(), data.len() / 512);
            assert!(packed(&data) > 0.99, "{}", packed(&data));
        }
        let zero = laid_out(&Buffers { zero: true, ..buffers() }, &[5000, 5000], 4096);
        assert!(zero.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_job_writes_other_data_than_it_finds() {
        let job = Job { buffers: Buffers { refill: true, ..buffers() }, ..Job::default() };
        let (mut found, mut written) = (vec![0; 4096], vec![0; 4096]);
        Filler::for_layout(&job, 7).lay_out(&mut found, 0, 4096);
        Filler::for_job(&job, 7).fill(&mut written);
        assert_ne!(found, written);
    }

    #[test]
    fn a_read_into_the_buffer_does_not_change_the_next_write() {
        for buffers in [Buffers { zero: true, ..buffers() }, Buffers { pattern: b"abcd".to_vec(), ..buffers() }] {
            let wanted = written(&buffers, 1);
            let mut filler = Filler::for_job(&Job { buffers, ..Job::default() }, 7);
            let mut buffer = vec![0xee; 4096];
            filler.fill(&mut buffer);
            assert_eq!(buffer, wanted);
        }
    }

    #[test]
    fn seeds_decide() {
        for buffers in [buffers(), Buffers { refill: true, ..buffers() }, Buffers { dedupe_percent: 30, ..buffers() }] {
            assert_eq!(written(&buffers, 5), written(&buffers, 5));
        }
        let (mut a, mut b) = (vec![0; 64], vec![0; 64]);
        Filler::new(&buffers(), 1).prepare(&mut a);
        Filler::new(&buffers(), 2).prepare(&mut b);
        assert_ne!(a, b);
    }

    #[test]
    fn no_two_sectors_are_alike_and_nothing_compresses() {
        for buffers in [buffers(), Buffers { refill: true, ..buffers() }] {
            let data = written(&buffers, 2000);
            let sectors: HashSet<&[u8]> = data.chunks(512).collect();
            assert_eq!(sectors.len(), data.len() / 512);
            assert!(packed(&data) > 0.99, "{}", packed(&data));
        }
        let same = written(&Buffers { scramble: false, ..buffers() }, 10);
        assert_eq!(same.chunks(4096).collect::<HashSet<_>>().len(), 1, "nothing asked for a change");
    }

    #[test]
    fn compression_is_what_was_asked_for() {
        for percent in [10u8, 30, 50, 75, 90, 100] {
            for (chunk, pattern) in [(512, vec![]), (0, vec![]), (4096, b"deadbeef".to_vec())] {
                let data =
                    written(&Buffers { compress_percent: percent, compress_chunk: chunk, pattern, ..buffers() }, 200);
                let (got, asked) = (packed(&data), 1.0 - f64::from(percent) / 100.0);
                // A compressor needs a few bytes for each run that it leaves out.
                assert!((asked - 0.01..asked + 0.05).contains(&got), "{percent} % in chunks of {chunk}: {got:.3}");
            }
        }
    }

    #[test]
    fn repetition_is_what_was_asked_for() {
        for percent in [10u8, 50, 90] {
            for compress_percent in [0, 50] {
                let count = 10_000;
                let data = written(&Buffers { dedupe_percent: percent, compress_percent, ..buffers() }, count);
                let unlike = data.chunks(4096).collect::<HashSet<_>>().len() as f64;
                let asked = count as f64 * f64::from(100 - percent) / 100.0;
                // Four standard deviations of a binomial distribution.
                let bound = 4.0 * (asked * f64::from(percent) / 100.0).sqrt() + 1.0;
                assert!((unlike - asked).abs() < bound, "{percent} %: {unlike} of {count} unlike");
            }
        }
    }

    #[test]
    fn repetitions_from_a_working_set_are_of_that_set() {
        let set = |global| Buffers {
            dedupe_percent: 60,
            working_set: Some(WorkingSet { blocks: 50, global, writers: 1, first_writer: 0 }),
            ..buffers()
        };
        let count = 10_000;
        let seen = |buffers: &Buffers, seed: u64| {
            let mut filler = Filler::new(buffers, seed);
            let mut block = vec![0; 4096];
            let mut seen = std::collections::HashMap::new();
            for _ in 0..count {
                filler.fill(&mut block);
                *seen.entry(block.clone()).or_insert(0_u64) += 1;
            }
            seen
        };
        let often = |seen: &std::collections::HashMap<Vec<u8>, u64>| -> HashSet<Vec<u8>> {
            seen.iter().filter(|(_, n)| **n > 1).map(|(block, _)| block.clone()).collect()
        };
        let own = seen(&set(false), 1);
        assert_eq!(often(&own).len(), 50);
        let repeated: u64 = own.values().filter(|n| **n > 1).sum();
        assert!((5800..6200).contains(&repeated), "{repeated}");
        assert!(often(&own).is_disjoint(&often(&seen(&set(false), 2))), "each clone has its own set");
        assert_eq!(often(&seen(&set(true), 1)), often(&seen(&set(true), 2)), "jobs share the global set");
    }

    #[test]
    fn a_working_set_is_part_of_what_is_not_repeated() {
        // A set of a tenth of the blocks, and six of ten blocks that repeat: four of ten are unlike all others.
        let mut job = Job::default();
        job.buffers.dedupe_percent = 60;
        let unlike = |job: &Job, clones: u32| {
            let mut seen = HashSet::new();
            for clone in 0..clones {
                let mut filler = Filler::for_job(job, clone);
                let mut block = vec![0; 4096];
                for _ in 0..10_000 / clones {
                    filler.fill(&mut block);
                    seen.insert(block.clone());
                }
            }
            seen.len()
        };
        for (global, clones) in [(false, 1), (true, 1), (true, 4)] {
            job.buffers.working_set =
                Some(WorkingSet { blocks: 1000, global, writers: clones.into(), first_writer: 0 });
            let count = unlike(&job, clones);
            assert!((3800..4200).contains(&count), "{count} of 10000 with {clones} clones, global {global}");
        }
    }

    #[test]
    fn repetition_counts_the_smallest_write() {
        let mut job = Job::default();
        job.blocks.range.write = (4096, 65536);
        job.buffers.dedupe_percent = 50;
        let mut filler = Filler::for_job(&job, 1);
        let mut buffer = vec![0; 65536];
        let mut blocks = HashSet::new();
        for _ in 0..200 {
            filler.fill(&mut buffer);
            blocks.extend(buffer.chunks(4096).map(<[u8]>::to_vec));
        }
        assert!((1450..1750).contains(&blocks.len()), "{} of 3200", blocks.len());
    }
}

//! The choice of the next block of a file when offsets are random.

use super::coverage::Coverage;
use super::error::Error;
use super::permutation::Permutation;
use super::random::Random;
use super::regions::{self, Regions};
use super::shape::Shape;
use super::sizes::Sizes;
use crate::job::{Generator, Job, Precondition};
use measure::Direction;

/// The settings that decide the random offsets of one direction. Directions with equal rules share one [`Blocks`] a
/// file: a mix of reads and writes then covers each block once, by one or the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    sizes: Sizes,
    /// Distance between two possible offsets, in bytes.
    pub align: u64,
    distribution: crate::job::Distribution,
    /// Up to which share of 2^32 accesses, and which part of the file from where to where.
    zones: Vec<(u64, Span, Span)>,
    /// Blocks in turn; empty if none. True: the next turn counts from where this one ended.
    sequence: (Vec<u64>, bool),
    precondition: Option<Precondition>,
    repeat: bool,
    coarse: bool,
    soft: bool,
}

/// A position in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Span {
    Part(f64),
    Bytes(u64),
}

impl Rule {
    pub fn new(job: &Job, direction: Direction, sizes: &Sizes) -> Rule {
        let pattern = &job.pattern;
        let (relative, absolute) = (&pattern.zones[direction], &pattern.zones_absolute[direction]);
        let percents: f64 = relative.iter().map(|zone| zone.0).chain(absolute.iter().map(|zone| zone.0)).sum();
        let (mut share, mut part, mut bytes) = (0.0, 0.0, 0);
        let mut zones = Vec::with_capacity(relative.len() + absolute.len());
        for &(percent, size) in relative {
            share += percent / percents;
            zones.push(((share * 4_294_967_296.0).round() as u64, Span::Part(part), Span::Part(part + size / 100.0)));
            part += size / 100.0;
        }
        for &(percent, size) in absolute {
            share += percent / percents;
            zones.push(((share * 4_294_967_296.0).round() as u64, Span::Bytes(bytes), Span::Bytes(bytes + size)));
            bytes += size;
        }
        let align = match job.blocks.align[direction] {
            0 => sizes.smallest().max(1),
            align => align,
        };
        Rule {
            sizes: sizes.clone(),
            align,
            distribution: pattern.distribution[direction],
            zones,
            sequence: (pattern.sequence.clone(), pattern.sequence_stride),
            precondition: pattern.precondition,
            repeat: pattern.no_random_map && pattern.generator != Generator::Permutation,
            coarse: pattern.generator == Generator::Coarse,
            soft: pattern.soft_random_map,
        }
    }

    /// The sizes that go with it.
    pub fn smallest(&self) -> u64 {
        self.sizes.smallest()
    }

    /// Offsets that there are in `bytes` bytes: those with room for the smallest block.
    pub fn count(&self, bytes: u64) -> u64 {
        if bytes < self.smallest() { 0 } else { (bytes - self.smallest()) / self.align + 1 }
    }
}

/// The state of one rule on one file: the blocks that are left in this pass.
#[derive(Clone, Debug)]
pub(super) enum Blocks {
    /// Any block, as often as it comes; of 2^32 places at most if `coarse`.
    Any { count: u64, coarse: bool },
    /// Each block once: all blocks are of one size, so an order is all it takes.
    Ordered(Permutation),
    /// Each block once, and blocks of several sizes or places: a map, in units of the smallest block.
    Mapped { map: Coverage, count: u64, zones: Vec<Zone> },
    /// Blocks drawn by popularity.
    Shaped(Shape),
    /// Blocks drawn by zones of different popularity.
    Zoned(Vec<Zone>),
    /// Blocks in turn.
    Sequence(Sequence),
    /// Each block at least once, and some again, as a drive in its steady state has been written.
    Regions(Regions),
}

/// A turn of block numbers that repeats. Each turn counts from the start of the file; with a stride, each counts from
/// where the turn before it ended, as long as the file has room for a whole turn.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    numbers: Vec<u64>,
    strides: bool,
    /// Blocks of the file.
    count: u64,
    largest: u64,
    /// Position in the turn, and the block from which the turn counts.
    at: usize,
    from: u64,
}

impl Sequence {
    fn next(&mut self) -> u64 {
        let block = self.from + self.numbers[self.at];
        self.at += 1;
        if self.at == self.numbers.len() {
            self.at = 0;
            let turn = self.numbers.len() as u64;
            let fits = self.from + turn + self.largest < self.count;
            self.from = if self.strides && fits { self.from + turn } else { 0 };
        }
        block
    }
}

/// Accesses up to a share of 2^32 go to `count` blocks from `first` on.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    below: u64,
    first: u64,
    count: u64,
}

impl Zone {
    fn draw(zones: &[Zone], random: &mut Random) -> u64 {
        let share = random.next() >> 32;
        let zone = zones.iter().find(|zone| share < zone.below).unwrap_or(&zones[zones.len() - 1]);
        zone.first + random.below(zone.count)
    }
}

impl Blocks {
    /// All blocks of `bytes` bytes; `job` and `file` name the place of an error.
    pub fn new(rule: &Rule, bytes: u64, random: &mut Random, job: &str, file: usize) -> Result<Blocks, Error> {
        let count = rule.count(bytes);
        if let Some(&largest) = rule.sequence.0.iter().max() {
            if largest >= count {
                return Err(Error::BlockBeyondFile { job: job.to_owned(), file, block: largest, blocks: count });
            }
            let (numbers, strides) = rule.sequence.clone();
            return Ok(Blocks::Sequence(Sequence { numbers, strides, count, largest, at: 0, from: 0 }));
        }
        if let Some(drive) = &rule.precondition {
            let needed = drive.cache_bytes.div_ceil(rule.align).max(1);
            if regions::region_writes(drive, count) < needed {
                return Err(Error::RegionTooSmall {
                    job: job.to_owned(),
                    file,
                    regions: drive.regions,
                    blocks: regions::region_writes(drive, count),
                    needed,
                    most: regions::physical(drive, count) / needed,
                });
            }
            return Ok(Blocks::Regions(Regions::new(drive, count, random)));
        }
        if let Some(shape) = Shape::new(rule.distribution, count.max(1), random) {
            return Ok(Blocks::Shaped(shape));
        }
        let mut zones = Vec::with_capacity(rule.zones.len());
        for &(below, from, to) in &rule.zones {
            let place = |span| match span {
                Span::Part(part) => (part * count as f64).round() as u64,
                Span::Bytes(bytes) => bytes / rule.align,
            };
            if let Span::Bytes(zones) = to
                && zones > bytes
            {
                return Err(Error::ZonesBeyondFile { job: job.to_owned(), file, zones, size: bytes });
            }
            let (first, end) = (place(from), place(to).min(count));
            // A zone smaller than a block is one block: its accesses must go somewhere.
            let first = first.min(count.saturating_sub(1));
            zones.push(Zone { below, first, count: end.saturating_sub(first).max(1) });
        }
        let fixed = matches!(rule.sizes, Sizes::Fixed(_));
        // Offsets closer than a block overlap each other: covering each once means nothing.
        let overlapping = rule.align < rule.smallest();
        // Offsets further apart than the smallest block leave gaps that a block of varying size may or may not reach.
        let gaps = !fixed && rule.align != rule.smallest();
        if rule.repeat || overlapping || gaps {
            return Ok(if zones.is_empty() {
                Blocks::Any { count, coarse: rule.coarse }
            } else {
                Blocks::Zoned(zones)
            });
        }
        if fixed && zones.is_empty() {
            return Ok(Blocks::Ordered(Permutation::new(count, random)));
        }
        match Coverage::new(count) {
            Some(map) => Ok(Blocks::Mapped { map, count, zones }),
            None if rule.soft => {
                Ok(if zones.is_empty() { Blocks::Any { count, coarse: rule.coarse } } else { Blocks::Zoned(zones) })
            }
            None => Err(Error::NoMemory { job: job.to_owned(), blocks: count }),
        }
    }

    /// Makes all blocks available again, in a new order.
    pub fn rewind(&mut self, rule: &Rule, bytes: u64, random: &mut Random) {
        match self {
            Blocks::Mapped { map, .. } => map.clear(),
            Blocks::Ordered(order) => *order = Permutation::new(rule.count(bytes), random),
            Blocks::Sequence(sequence) => (sequence.at, sequence.from) = (0, 0),
            Blocks::Regions(regions) => regions.rewind(rule.count(bytes), random),
            // The popular blocks stay the popular ones.
            Blocks::Any { .. } | Blocks::Shaped(_) | Blocks::Zoned(_) => {}
        }
    }

    /// The next block; None when each has been had.
    #[inline(always)]
    pub fn next(&mut self, random: &mut Random) -> Option<u64> {
        match self {
            Blocks::Any { count, coarse: true } if *count > 1 << 32 => {
                Some(((u128::from(random.next() >> 32) * u128::from(*count)) >> 32) as u64)
            }
            Blocks::Any { count, .. } => (*count > 0).then(|| random.below(*count)),
            Blocks::Ordered(order) => order.next(),
            _ => self.next_uneven(random),
        }
    }

    fn next_uneven(&mut self, random: &mut Random) -> Option<u64> {
        match self {
            Blocks::Any { .. } | Blocks::Ordered(_) => None,
            Blocks::Mapped { map, count, zones } => {
                let from = if zones.is_empty() { random.below(*count) } else { Zone::draw(zones, random) };
                map.free_from(from)
            }
            Blocks::Shaped(shape) => Some(shape.draw(random)),
            Blocks::Zoned(zones) => Some(Zone::draw(zones, random)),
            Blocks::Sequence(sequence) => Some(sequence.next()),
            Blocks::Regions(regions) => regions.next(random),
        }
    }

    /// True if no block is given twice, and no two overlap, until [`Blocks::rewind`].
    pub fn covers_once(&self) -> bool {
        matches!(self, Blocks::Ordered(_) | Blocks::Mapped { .. })
    }

    /// Uses up `len` bytes from `block` on; fewer if a used block lies in the way.
    #[inline(always)]
    pub fn take(&mut self, block: u64, len: u64, unit: u64) -> u64 {
        match self {
            Blocks::Mapped { map, .. } => len.min(map.take(block, len.div_ceil(unit)) * unit),
            _ => len,
        }
    }
}

//! Blocks that prove themselves: stamped when written, checked when read back.
//!
//! ```text
//! write: Ledger::changing ─► stamp(block, offset, sequence) ─► engine ─► Ledger::wrote
//! read:  Ledger::next_read ─► engine ─► check(block, expected) ─► Ok, or a Mismatch that names the byte
//! ```
//!
//! Headers and checksums are laid out as fio 3.33 lays them out, so that each program can check blocks of the other.

mod digest;
mod header;
mod ledger;
pub mod state;
mod trims;

use std::fmt;
use std::ops::Range;

use job::Job;
use job::job::{Verify, VerifyKind, VerifyPattern};
use job::workload::random::{Random, mix};
use measure::Direction;

use crate::content::Body;
use crate::error::Error;
use digest::{digest, field_bytes};
use header::Header;
pub use ledger::{Data, Ledger, ReadBack};
pub use state::{State, StateFile};

/// Stamps and checks the blocks of one job. The verifier never changes: threads may share it.
#[derive(Clone, Debug)]
pub struct Verifier {
    kind: VerifyKind,
    pattern: VerifyPattern,
    /// Bytes after which the pattern begins anew; 0: the whole block.
    pattern_interval: usize,
    body: Body,
    /// Bytes that a header speaks for; 0: the whole block.
    interval: usize,
    header_offset: usize,
    /// Bytes of the header and its checksum.
    header_bytes: usize,
    check_sequence: bool,
    check_seed: bool,
    seed: u64,
}

/// The facts that a block is stamped with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Number of the write within the clone, from 0.
    pub sequence: u64,
    /// Time of the write, in nanoseconds of any clock.
    pub time_ns: u64,
    /// Number of the clone that writes the block.
    pub thread: u16,
}

/// The expected properties of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Index of the file, for the report.
    pub file: u32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The number of the write; None where that is not known (`verify_only`, reading another run's data).
    pub sequence: Option<u64>,
    /// The seed of the content, [`Verifier::seed_of`] of the number; None where another program may have written.
    pub seed: Option<u64>,
    /// The block was trimmed: it holds zeroes, and no header.
    pub zeroes: bool,
}

/// A block that differs from the block that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Index of the file among the files of the clone.
    pub file: u32,
    /// Bytes from the start of the file: the first byte that differs where that is known, else the start of the part of
    /// the block that the failed header speaks for.
    pub offset: u64,
    /// Start and length of that part.
    pub block: (u64, u32),
    /// The property that differs: `magic`, `crc32c`, `offset`, `byte`, ...
    pub what: &'static str,
    /// The value that the header should have, as text.
    pub expected: String,
    /// The value in the block.
    pub got: String,
}

impl fmt::Display for Mismatch {
    /// Without the file, whose name the caller knows: `crc32c of 4096 bytes at offset 8192: expected ..., got ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, len) = self.block;
        write!(f, "{} at offset {}", self.what, self.offset)?;
        if self.offset != start || len != 0 {
            write!(f, " (block of {len} bytes at {start})")?;
        }
        write!(f, ": expected {}, got {}", self.expected, self.got)
    }
}

impl std::error::Error for Mismatch {}

impl Verifier {
    /// The verifier of a job that asks for one; `seed` decides the content of blocks that have no pattern.
    ///
    /// `verify_interval` is adjusted as fio does: at most the smallest write, and a divisor of every size.
    ///
    /// # Errors
    /// A header does not fit into the bytes that it speaks for; a pattern is missing.
    pub fn new(job: &Job, seed: u64) -> Result<Option<Verifier>, Error> {
        let Some(verify) = &job.verify else { return Ok(None) };
        let needs_pattern = matches!(verify.kind, VerifyKind::PatternHeader | VerifyKind::PatternOnly);
        if needs_pattern && verify.pattern.bytes.is_empty() {
            return Err(Error::usage(
                "verify=pattern",
                format!("in job {}", job.name),
                "give verify_pattern=, for example 0xdeadbeef",
            ));
        }
        let has_header = !matches!(verify.kind, VerifyKind::PatternOnly | VerifyKind::Null);
        let header_bytes = if has_header { header::BYTES + field_bytes(verify.kind) } else { 0 };
        let interval = interval(job, verify);
        let smallest = if interval == 0 { sizes(job).min().unwrap_or(0) } else { interval };
        let (header_offset, place) = (verify.header_offset, format!("in job {}", job.name));
        if header_bytes as u64 >= smallest && has_header {
            let what = format!(
                "verify={} needs {header_bytes} bytes of each block for itself, and blocks of {smallest}",
                digest::name(verify.kind)
            );
            return Err(Error::usage(what, place, "use a larger bs or verify_interval"));
        }
        if header_offset != 0 && (header_offset < header_bytes as u64 || header_offset + header_bytes as u64 > smallest)
        {
            let what =
                format!("verify_offset={header_offset} with a header of {header_bytes} bytes in blocks of {smallest}");
            return Err(Error::usage(
                what,
                place,
                format!("use 0, or {header_bytes} up to {}", smallest - header_bytes as u64),
            ));
        }
        Ok(Some(Verifier {
            kind: verify.kind,
            pattern: verify.pattern.clone(),
            pattern_interval: usize::try_from(verify.pattern_interval).unwrap_or(usize::MAX),
            body: Body::new(&job.buffers),
            interval: interval as usize,
            header_offset: header_offset as usize,
            header_bytes,
            check_sequence: verify.write_sequence,
            check_seed: verify.write_sequence && verify.header_seed,
            seed: mix(seed),
        }))
    }

    /// The seed from which this verifier fills the block of write number `sequence`, of which 32 bits count.
    pub fn seed_of(&self, sequence: u64) -> u64 {
        mix(self.seed ^ mix(u64::from(sequence as u32)))
    }

    /// True if a block of `len` bytes has room for a header and data. Other blocks are written as they are and never
    /// checked.
    pub fn fits(&self, len: u64) -> bool {
        len > self.header_bytes as u64
    }

    /// Fills a whole block with what will be written: content, headers, checksums. `verify=null`, and a block too small
    /// for its header, leave it as it is.
    pub fn stamp(&self, block: &mut [u8], stamp: &Stamp) {
        if self.kind == VerifyKind::Null || !self.fits(block.len() as u64) {
            return;
        }
        let seed = self.seed_of(stamp.sequence);
        self.fill(block, stamp.offset, seed);
        if self.header_bytes == 0 {
            return;
        }
        let step = self.step(block.len());
        for (index, part) in block.chunks_mut(step).enumerate() {
            let header = Header {
                magic: header::MAGIC,
                kind: header::number(self.kind),
                len: part.len() as u32,
                seed,
                offset: stamp.offset + (index * step) as u64,
                seconds: (stamp.time_ns / 1_000_000_000) as u32,
                nanoseconds: (stamp.time_ns % 1_000_000_000) as u32,
                thread: stamp.thread,
                sequence: stamp.sequence as u16,
                crc: 0,
            };
            let sum = digest(self.kind, &part[self.header_bytes..]);
            part[..header::BYTES].copy_from_slice(&header.write());
            // SHA-2 leaves the rest of its field as fio leaves it: undefined, here zero.
            part[header::BYTES..self.header_bytes].fill(0);
            part[header::BYTES..header::BYTES + sum.bytes().len()].copy_from_slice(sum.bytes());
            self.swap(part);
        }
    }

    /// Checks that a block that was read back is as [`Verifier::stamp`] (or fio) made it. The check leaves the buffer
    /// unchanged.
    ///
    /// # Errors
    /// The first mismatch. Where the content can be generated again from the header's seed, it names the byte.
    pub fn check(&self, block: &mut [u8], expected: &Expected) -> Result<(), Mismatch> {
        if expected.zeroes {
            return check_zeroes(block, expected);
        }
        match self.kind {
            VerifyKind::Null => return Ok(()),
            VerifyKind::PatternOnly => return self.check_pattern(block, block.len(), 0, 0, expected),
            _ => {}
        }
        let step = self.step(block.len());
        for index in 0..block.len().div_ceil(step) {
            let at = index * step;
            let end = (at + step).min(block.len());
            self.swap(&mut block[at..end]);
            let result = self.check_part(block, at, end, expected);
            self.swap(&mut block[at..end]);
            result?;
        }
        Ok(())
    }

    /// The content that the block should hold, by the seed in its first header: for `verify_dump`. None if that cannot
    /// be told.
    pub fn regenerate(&self, block: &[u8], expected: &Expected) -> Option<Vec<u8>> {
        if expected.zeroes {
            return Some(vec![0; block.len()]);
        }
        let mut copy = block.to_vec();
        let first_end = self.step(block.len()).min(block.len());
        self.swap(&mut copy[..first_end]);
        let header = Header::read(copy.first_chunk()?);
        let stamp = Stamp {
            offset: expected.offset,
            sequence: expected.sequence.unwrap_or(u64::from(header.sequence)),
            time_ns: u64::from(header.seconds) * 1_000_000_000 + u64::from(header.nanoseconds),
            thread: header.thread,
        };
        if self.kind == VerifyKind::Null {
            return None;
        }
        self.stamp(&mut copy, &stamp);
        Some(copy)
    }

    /// Checks block[at..end], whose header stands at its start.
    fn check_part(&self, block: &[u8], at: usize, end: usize, expected: &Expected) -> Result<(), Mismatch> {
        let part = &block[at..end];
        let offset = expected.offset + at as u64;
        let mismatch = |what, expected_value: String, got: String| Mismatch {
            file: expected.file,
            offset,
            block: (offset, part.len() as u32),
            what,
            expected: expected_value,
            got,
        };
        let Some(bytes) = part.first_chunk::<{ header::BYTES }>().filter(|_| part.len() > self.header_bytes) else {
            return Err(mismatch(
                "length",
                format!("more than {} bytes", self.header_bytes),
                format!("{} bytes", part.len()),
            ));
        };
        let header = Header::read(bytes);
        if header.magic != header::MAGIC {
            return Err(mismatch(
                "magic number of the header",
                format!("{:#06x}", header::MAGIC),
                format!("{:#06x}", header.magic),
            ));
        }
        let crc = header::crc_of(bytes);
        if header.crc != crc {
            return Err(mismatch("crc of the header", format!("{crc:#010x}"), format!("{:#010x}", header.crc)));
        }
        if header.len as usize != part.len() {
            return Err(mismatch("length in the header", part.len().to_string(), header.len.to_string()));
        }
        if header.offset != offset {
            return Err(mismatch("offset in the header", offset.to_string(), header.offset.to_string()));
        }
        // fio's crc32c-intel is its crc32c, computed otherwise.
        let kind = if header.kind == 6 { 5 } else { header.kind };
        if kind != header::number(self.kind) {
            return Err(mismatch(
                "type of verification in the header",
                header::number(self.kind).to_string(),
                header.kind.to_string(),
            ));
        }
        if let Some(sequence) = expected.sequence
            && self.check_sequence
            && header.sequence != sequence as u16
        {
            return Err(mismatch(
                "number of the write in the header",
                (sequence as u16).to_string(),
                header.sequence.to_string(),
            ));
        }
        // The number has 16 bits in the header, the seed has 64: it tells a block that is 65536 writes old.
        if let Some(seed) = expected.seed.filter(|_| self.check_seed)
            && header.seed != seed
        {
            return Err(mismatch("seed in the header", format!("{seed:#018x}"), format!("{:#018x}", header.seed)));
        }
        let data = &part[self.header_bytes..];
        let sum = digest(self.kind, data);
        let (stored, slack) = part[header::BYTES..self.header_bytes].split_at(sum.bytes().len());
        if stored != sum.bytes() {
            return Err(self
                .differing_byte(block, at, end, &header, expected)
                .unwrap_or_else(|| mismatch(digest::name(self.kind), hex(stored), hex(sum.bytes()))));
        }
        // fio leaves this space undefined; in a block of Plimsoll's it is zero.
        if slack.iter().any(|&byte| byte != 0)
            && (expected.seed.is_some() || self.is_ours(block, at, end, &header, expected))
        {
            return Err(mismatch("space behind the checksum", "zeros".into(), hex(slack)));
        }
        let pattern =
            matches!(self.kind, VerifyKind::PatternHeader | VerifyKind::HeaderOnly) && !self.pattern.bytes.is_empty();
        if pattern {
            return self.check_pattern(block, end, at + self.header_bytes, at, expected);
        }
        Ok(())
    }

    /// Compares block[from..to] with the pattern, which runs through the whole block.
    fn check_pattern(
        &self,
        block: &[u8],
        to: usize,
        from: usize,
        part: usize,
        expected: &Expected,
    ) -> Result<(), Mismatch> {
        let mut differs = None;
        let mut start = from;
        while start < to && differs.is_none() {
            // A period of the pattern byte by byte, the rest by its likeness to what lies a period before.
            let end = self.pattern_run(start).end.min(to);
            let first_end = (start + self.pattern.bytes.len()).min(end);
            let is = |at: usize| self.pattern_byte(at, expected.offset);
            let first = (start..first_end).find(|&at| block[at] != is(at));
            let same = first.is_none() && block[first_end..end] == block[start..end - (first_end - start)];
            differs = if same { None } else { first.or_else(|| (first_end..end).find(|&at| block[at] != is(at))) };
            start = end;
        }
        let is = |at: usize| self.pattern_byte(at, expected.offset);
        match differs {
            None => Ok(()),
            Some(at) => Err(Mismatch {
                file: expected.file,
                offset: expected.offset + (part + self.place(at - part)) as u64,
                block: (expected.offset + part as u64, (to - part) as u32),
                what: "byte of the pattern",
                expected: format!("{:#04x}", is(at)),
                got: format!("{:#04x}", block[at]),
            }),
        }
    }

    /// True if block[at..end] has the content that this program makes from the header's seed.
    fn is_ours(&self, block: &[u8], at: usize, end: usize, header: &Header, expected: &Expected) -> bool {
        let mut content = vec![0; block.len()];
        self.fill(&mut content, expected.offset, header.seed);
        let from = at + self.header_bytes;
        block[from..end] == content[from..end]
    }

    /// The first byte of block[at..end] that differs from the content of the header's seed. None if no byte differs,
    /// and also if most bytes differ: Plimsoll cannot generate such content.
    fn differing_byte(
        &self,
        block: &[u8],
        at: usize,
        end: usize,
        header: &Header,
        expected: &Expected,
    ) -> Option<Mismatch> {
        let mut content = vec![0; block.len()];
        self.fill(&mut content, expected.offset, header.seed);
        let from = at + self.header_bytes;
        let mut differing = (from..end).filter(|&i| block[i] != content[i]);
        let first = differing.next()?;
        let count = 1 + differing.count();
        (count * 2 < end - from).then(|| Mismatch {
            file: expected.file,
            offset: expected.offset + (at + self.place(first - at)) as u64,
            block: (expected.offset + at as u64, (end - at) as u32),
            what: if count == 1 { "byte" } else { "first of several bytes" },
            expected: format!("{:#04x}", content[first]),
            got: format!("{:#04x}", block[first]),
        })
    }

    /// The place of a part's byte on storage: `verify_offset` moves the header and the bytes that it displaces.
    fn place(&self, within: usize) -> usize {
        let moved = self.header_offset..self.header_offset + self.header_bytes;
        if self.header_offset != 0 && moved.contains(&within) { within - self.header_offset } else { within }
    }

    /// Exchanges the header at the start of a part with the bytes at `verify_offset`; twice is nothing.
    fn swap(&self, part: &mut [u8]) {
        if self.header_offset != 0 && part.len() >= self.header_offset + self.header_bytes {
            let (head, tail) = part.split_at_mut(self.header_offset);
            head[..self.header_bytes].swap_with_slice(&mut tail[..self.header_bytes]);
        }
    }

    /// The content of a block before headers are put over it.
    fn fill(&self, block: &mut [u8], offset: u64, seed: u64) {
        if self.pattern.bytes.is_empty() {
            return self.body.fill(&mut Random::new(seed), block);
        }
        let period = self.pattern.bytes.len();
        let mut start = 0;
        while start < block.len() {
            let end = self.pattern_run(start).end.min(block.len());
            let run = &mut block[start..end];
            for (at, byte) in run.iter_mut().enumerate().take(period) {
                *byte = self.pattern_byte(start + at, offset);
            }
            // Doubling what is there keeps whole periods.
            let mut filled = period.min(run.len());
            while filled < run.len() {
                let more = filled.min(run.len() - filled);
                run.copy_within(..more, filled);
                filled += more;
            }
            start = end;
        }
    }

    /// The run of bytes around `at` in which the pattern repeats without a new beginning: places in the block.
    fn pattern_run(&self, at: usize) -> Range<usize> {
        match self.pattern_interval {
            0 => 0..usize::MAX,
            interval => at - at % interval..(at - at % interval).saturating_add(interval),
        }
    }

    /// The byte of the pattern that belongs at `at` in a block that lies at `offset`. The offset of the run stands
    /// where `%o` does.
    fn pattern_byte(&self, at: usize, offset: u64) -> u8 {
        let run = self.pattern_run(at).start;
        let within = (at - run) % self.pattern.bytes.len();
        let offset_byte = self.pattern.offset_at.iter().find(|&&start| (start..start + 8).contains(&within));
        let offset = offset + run as u64;
        offset_byte.map_or(self.pattern.bytes[within], |start| offset.to_le_bytes()[within - start])
    }

    fn step(&self, block: usize) -> usize {
        if self.interval == 0 || self.interval > block { block.max(1) } else { self.interval }
    }
}

/// Compares a block that was trimmed with zeroes.
fn check_zeroes(block: &[u8], expected: &Expected) -> Result<(), Mismatch> {
    let Some(at) = block.iter().position(|&byte| byte != 0) else { return Ok(()) };
    Err(Mismatch {
        file: expected.file,
        offset: expected.offset + at as u64,
        block: (expected.offset, block.len() as u32),
        what: "byte of a trimmed block",
        expected: "0x00".into(),
        got: format!("{:#04x}", block[at]),
    })
}

/// All sizes that a job writes: with trimwrite, blocks of the trims' sizes are written, too.
fn sizes(job: &Job) -> impl Iterator<Item = u64> {
    let of = |direction: Direction| {
        let (low, high) = job.blocks.range[direction];
        let split = job.blocks.split[direction].iter().map(|&(bytes, _)| bytes);
        split.chain(job.blocks.split[direction].is_empty().then_some([low, high]).into_iter().flatten())
    };
    of(Direction::Write).chain(job.rw.trim_then_write.then(|| of(Direction::Trim)).into_iter().flatten())
}

/// Bytes a header; 0 where blocks have any length.
fn interval(job: &Job, verify: &Verify) -> u64 {
    if job.blocks.unaligned {
        return 0;
    }
    let (mut smallest, mut largest, mut divisor) = (u64::MAX, 0, 0);
    for size in sizes(job) {
        (smallest, largest, divisor) = (smallest.min(size), largest.max(size), gcd(divisor, size));
    }
    let mut interval = match verify.interval {
        0 if smallest != largest => smallest,
        0 => return 0,
        interval => interval.min(smallest),
    };
    if sizes(job).any(|size| size % interval != 0) {
        interval = divisor;
    }
    interval
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const KINDS: [VerifyKind; 18] = [
        VerifyKind::Crc32c,
        VerifyKind::Crc64,
        VerifyKind::Crc32,
        VerifyKind::Crc16,
        VerifyKind::Crc7,
        VerifyKind::Xxhash,
        VerifyKind::Md5,
        VerifyKind::Sha1,
        VerifyKind::Sha256,
        VerifyKind::Sha512,
        VerifyKind::Sha3(224),
        VerifyKind::Sha3(256),
        VerifyKind::Sha3(384),
        VerifyKind::Sha3(512),
        VerifyKind::HeaderOnly,
        VerifyKind::PatternHeader,
        VerifyKind::PatternOnly,
        VerifyKind::Null,
    ];

    pub(super) fn verify(kind: VerifyKind) -> Verify {
        Verify { kind, ..Verify::default() }
    }

    fn pattern() -> VerifyPattern {
        VerifyPattern { bytes: b"\xab\xcdxxxxxxxx-".to_vec(), offset_at: vec![2] }
    }

    fn verifier(kind: VerifyKind, edit: impl FnOnce(&mut Verify)) -> Verifier {
        let mut verify = verify(kind);
        if matches!(kind, VerifyKind::PatternHeader | VerifyKind::PatternOnly) {
            verify.pattern = pattern();
        }
        edit(&mut verify);
        let job = Job { verify: Some(verify), ..Job::default() };
        Verifier::new(&job, 1).unwrap().unwrap()
    }

    const STAMP: Stamp = Stamp { offset: 40960, sequence: 70_000, time_ns: 5_000_000_123, thread: 3 };
    const EXPECTED: Expected = Expected { file: 2, offset: 40960, sequence: Some(70_000), seed: None, zeroes: false };

    #[test]
    fn what_is_stamped_passes_and_the_buffer_stays() {
        for kind in KINDS {
            for (interval, header_offset) in [(0, 0), (512, 0), (0, 1000), (1024, 300)] {
                let verifier =
                    verifier(kind, |verify| (verify.interval, verify.header_offset) = (interval, header_offset));
                let mut block = vec![0x5a; 4096];
                verifier.stamp(&mut block, &STAMP);
                let before = block.clone();
                verifier
                    .check(&mut block, &EXPECTED)
                    .unwrap_or_else(|mismatch| panic!("{kind:?} {interval} {header_offset}: {mismatch}"));
                assert_eq!(block, before);
                assert_eq!(verifier.regenerate(&block, &EXPECTED).is_none(), kind == VerifyKind::Null);
                if let Some(again) = verifier.regenerate(&block, &EXPECTED) {
                    assert_eq!(again, before);
                }
            }
        }
    }

    /// Every single flipped bit is found, and where the content has a seed or a pattern, named.
    #[test]
    fn a_flipped_byte_is_found_and_named() {
        for kind in KINDS.into_iter().filter(|kind| *kind != VerifyKind::Null) {
            for (interval, header_offset) in [(0, 0), (512, 0), (1024, 300)] {
                let verifier =
                    verifier(kind, |verify| (verify.interval, verify.header_offset) = (interval, header_offset));
                let mut block = vec![0; 2048];
                verifier.stamp(&mut block, &STAMP);
                let expected = Expected { seed: Some(verifier.seed_of(STAMP.sequence)), ..EXPECTED };
                for at in 0..block.len() {
                    let was = block[at];
                    block[at] ^= 1 << (at % 8);
                    let result = verifier.check(&mut block, &expected);
                    let now = std::mem::replace(&mut block[at], was);
                    let step = verifier.step(2048);
                    let within = at % step;
                    let in_header = verifier.header_bytes > 0
                        && (header_offset as usize..header_offset as usize + verifier.header_bytes).contains(&within);
                    // fio checks nothing but the header of these.
                    if kind == VerifyKind::HeaderOnly && !in_header {
                        continue;
                    }
                    let mismatch =
                        result.expect_err(&format!("{kind:?} {interval} {header_offset}: byte {at} flipped unseen"));
                    assert_eq!(mismatch.file, 2);
                    if in_header {
                        assert_eq!(mismatch.block.0, 40960 + (at - within) as u64);
                    } else {
                        assert_eq!(
                            mismatch.offset,
                            40960 + at as u64,
                            "{kind:?} {interval} {header_offset}: {mismatch}"
                        );
                        assert_eq!((mismatch.expected, mismatch.got), (format!("{was:#04x}"), format!("{now:#04x}")));
                    }
                }
            }
        }
    }

    #[test]
    fn a_block_in_the_wrong_place_or_of_another_write_is_found() {
        let verifier = verifier(VerifyKind::Crc32c, |_| {});
        let mut block = vec![0; 4096];
        verifier.stamp(&mut block, &STAMP);
        let moved = verifier.check(&mut block, &Expected { offset: 0, ..EXPECTED }).unwrap_err();
        assert_eq!((moved.what, moved.expected.as_str(), moved.got.as_str()), ("offset in the header", "0", "40960"));
        let stale = verifier.check(&mut block, &Expected { sequence: Some(70_001), ..EXPECTED }).unwrap_err();
        assert_eq!(stale.what, "number of the write in the header");
        // 65536 writes later the number in the header is the same again.
        let old = 70_000 + 65_536;
        let old = Expected { sequence: Some(old), seed: Some(verifier.seed_of(old)), ..EXPECTED };
        assert_eq!(verifier.check(&mut block, &old).unwrap_err().what, "seed in the header");
        verifier.check(&mut block, &Expected { sequence: None, ..EXPECTED }).unwrap();
        let zeros = verifier.check(&mut vec![0; 4096], &EXPECTED).unwrap_err();
        assert_eq!(
            zeros.to_string(),
            "magic number of the header at offset 40960 (block of 4096 bytes at 40960): expected 0xacca, got 0x0000"
        );
    }

    #[test]
    fn a_trimmed_block_holds_zeroes_whatever_the_kind() {
        for kind in KINDS {
            let verifier = verifier(kind, |_| {});
            let expected = Expected { file: 1, offset: 8192, zeroes: true, ..Expected::default() };
            let mut block = vec![0; 4096];
            verifier.check(&mut block, &expected).unwrap();
            assert_eq!(verifier.regenerate(&block, &expected), Some(block.clone()));
            block[4095] = 1;
            let mismatch = verifier.check(&mut block, &expected).unwrap_err();
            assert_eq!(
                (mismatch.to_string().as_str(), mismatch.file),
                ("byte of a trimmed block at offset 12287 (block of 4096 bytes at 8192): expected 0x00, got 0x01", 1)
            );
        }
    }

    #[test]
    fn content_compresses_as_asked() {
        let mut job = Job { verify: Some(verify(VerifyKind::Crc32c)), ..Job::default() };
        job.buffers.compress_percent = 80;
        let verifier = Verifier::new(&job, 1).unwrap().unwrap();
        let mut block = vec![0; 65536];
        verifier.stamp(&mut block, &STAMP);
        let packed = zstd::bulk::compress(&block, 3).unwrap().len() as f64 / 65536.0;
        assert!((0.18..0.25).contains(&packed), "{packed}");
    }

    #[test]
    fn intervals_are_adjusted_as_in_fio() {
        let of = |range, split: Vec<(u64, f64)>, asked| {
            let mut job = Job { verify: Some(verify(VerifyKind::Crc32c)), ..Job::default() };
            job.blocks.range.write = range;
            job.blocks.split.write = split;
            job.verify.as_mut().unwrap().interval = asked;
            interval(&job, job.verify.as_ref().unwrap())
        };
        assert_eq!(of((4096, 4096), vec![], 0), 0);
        assert_eq!(of((4096, 4096), vec![], 512), 512);
        assert_eq!(of((4096, 4096), vec![], 8192), 4096);
        assert_eq!(of((4096, 65536), vec![], 0), 4096);
        assert_eq!(of((4096, 10240), vec![], 0), 2048);
        assert_eq!(of((4096, 65536), vec![(4096, 50.0), (6144, 25.0), (65536, 25.0)], 0), 2048);
    }

    #[test]
    fn what_cannot_be_verified_is_refused() {
        let new = |kind, edit: fn(&mut Verify)| {
            let mut verify = verify(kind);
            edit(&mut verify);
            Verifier::new(&Job { name: "j".into(), verify: Some(verify), ..Job::default() }, 1)
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            new(VerifyKind::PatternOnly, |_| {}).unwrap_err(),
            "verify=pattern in job j (give verify_pattern=, for example 0xdeadbeef)"
        );
        assert!(new(VerifyKind::Sha512, |verify| verify.interval = 128).unwrap_err().contains("needs 168 bytes"));
        assert!(
            new(VerifyKind::Crc32c, |verify| verify.header_offset = 20)
                .unwrap_err()
                .contains("use 0, or 44 up to 4052")
        );
        assert!(new(VerifyKind::Crc32c, |verify| verify.header_offset = 4090).is_err());
    }
}

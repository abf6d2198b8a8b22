//! The seeded op stream of one clone: which bytes of which file, in which direction, next.
//!
//! Pure and reproducible: the same job, clone number and file sizes give the same stream, on any machine (but for
//! Zipf, Pareto and normal distributions, which use the platform's `exp` and `ln`).
//!
//! ```text
//! turns (which file) ─► direction ─► offset: sequential, or blocks (order, map, shape, zones) ─► sizes ─► Op
//! ```
//!
//! The deterministic parts (sequential offsets, strides over whole files, zones, the number of ops and syncs) are as in
//! fio, op by op.
//! The random parts follow the same rules with another generator.

pub mod arrivals;
mod blocks;
mod coverage;
mod error;
pub mod permutation;
pub mod random;
mod regions;
mod shape;
mod sizes;
mod turns;

use blocks::{Blocks, Rule};
pub use error::Error;
use measure::Direction;
use random::{Random, mix};
use sizes::Sizes;
use turns::Turns;

use crate::job::{Amount, Job};

/// The kind of an op: a transfer of data, or a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Transfers data.
    Io(Direction),
    /// fsync(2) of the file.
    Sync,
    /// fdatasync(2).
    DataSync,
    /// sync_file_range(2) over the bytes written since the last such call.
    SyncRange,
}

/// One request of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The kind of the op.
    pub kind: OpKind,
    /// Index of the file among the clone's files.
    pub file: u32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes; 0 for fsync and fdatasync.
    pub len: u64,
}

/// The part of a file that a clone uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset of the first byte that the job uses.
    pub offset: u64,
    /// Number of bytes that the job uses, from the offset on.
    pub size: u64,
}

const READ: usize = Direction::Read as usize;
const WRITE: usize = Direction::Write as usize;

/// The op stream of one clone.
///
/// ```text
/// new ─► next ... next ─► None ─► restart ─► next ... (loops, time_based)
/// ```
#[derive(Clone, Debug)]
pub struct Workload {
    rules: Rules,
    files: Vec<File>,
    /// Per file, one for each of [`Rules::random`].
    blocks: Vec<Blocks>,
    turns: Turns,
    streams: Streams,
    limits: Limits,
    syncs: Syncs,
    /// trimwrite: the write of the block that was trimmed last, of the trim's size (as fio's randtrimwrite).
    write_after_trim: Option<Op>,
    /// Ops until the next new random offset (`rw=randread:8`).
    until_new: u32,
    /// Bytes transferred in the present strided zone, of whatever file.
    zone_bytes: u64,
    /// No file has anything left: a rewind is due.
    exhausted: bool,
    /// The storage can take no more ops of this pass ([`Workload::end_file`]).
    over: bool,
    writes_once: bool,
}

/// The part of a workload that does not change while ops are drawn.
#[derive(Clone, Debug)]
struct Rules {
    root: u64,
    /// The only direction, unless reads and writes are mixed.
    only: Direction,
    /// Share of 2^32 that are reads, where they are mixed.
    reads_below: Option<u64>,
    trim_then_write: bool,
    is_random: bool,
    stride: i64,
    ops_per_offset: u32,
    identical: bool,
    sizes: [Sizes; 3],
    is_seq_rand: bool,
    /// Of 2^32 ops, how many are random.
    random_below: [u64; 3],
    random: Vec<Rule>,
    /// For each direction, the index in `random` of the rule that the direction follows.
    rule_of: [usize; 3],
    strided: Option<crate::job::Zones>,
    /// True if the storage decides the places of the ops (`zonemode=zbd`): the maps say only how many there are.
    zoned: bool,
    /// True if each pass over the files repeats the first.
    reseed: bool,
    /// True if each pass begins where the first began, however much of the files it used.
    passes_are_alike: bool,
}

/// One file. Positions are relative to the extent's begin.
#[derive(Clone, Debug)]
struct File {
    begin: u64,
    size: u64,
    /// The offset at which the present strided zone begins.
    zone: u64,
    /// The offset at which the last op of each direction ended: the next sequential op begins there.
    position: [u64; 3],
    /// Offset at which the last op of each direction began.
    last: [Option<u64>; 3],
    /// Range of bytes (from, to) written since the last sync_file_range.
    dirty: (u64, u64),
}

/// Independent streams: one decision more or less in one does not change the others.
#[derive(Clone, Debug)]
struct Streams {
    offset: Random,
    size: Random,
    direction: Random,
    file: Random,
    order: Random,
    sequential: Random,
}

/// The streams by name, in the order of their seeds.
const STREAMS: [&str; 6] = ["offset", "size", "direction", "file", "order", "sequential"];

/// The seeds of the random streams of one clone, each with the name of the decision that the stream makes.
pub fn stream_seeds(job: &Job, clone: u32) -> [(&'static str, u64); 6] {
    let seeds = seeds_of(job.clone_seed(clone));
    std::array::from_fn(|index| (STREAMS[index], seeds[index]))
}

fn seeds_of(root: u64) -> [u64; 6] {
    std::array::from_fn(|index| mix(root ^ mix(index as u64 + 1)))
}

impl Streams {
    fn new(root: u64) -> Streams {
        let [offset, size, direction, file, order, sequential] = seeds_of(root).map(Random::new);
        Streams { offset, size, direction, file, order, sequential }
    }
}

/// The amount of work, and the part of it that is done.
#[derive(Clone, Debug)]
struct Limits {
    /// Bytes and ops of this pass, and the limits that end the pass.
    bytes: u64,
    bytes_most: u64,
    bytes_expected: u64,
    ops: u64,
    ops_most: u64,
    /// Bytes since all files were begun, and when they are begun again.
    lap_bytes: u64,
    lap_most: u64,
    /// True if files that are used up are begun again until `bytes_most` is reached (`io_size`).
    goes_on: bool,
    /// True if this pass goes on where the last one stopped, so that it may use the files up in its midst.
    went_on: bool,
}

/// Syncs (fsync, fdatasync, sync_file_range) that follow a number of writes.
#[derive(Clone, Debug)]
struct Syncs {
    fsync: u64,
    fdatasync: u64,
    range: u64,
    any: bool,
    /// Writes since the start of the job.
    writes: u64,
    /// The file of the last write, if a sync is to be considered before the next op.
    after: Option<u32>,
}

impl Workload {
    /// The op stream of clone `clone` (0..numjobs) over its files.
    ///
    /// Its length is `io_size`, by default `size` or the sum of the extents if that is less, and at most `number_ios`
    /// ops; `trimwrite` doubles both, as each block is counted twice. `time_based` has no such limit. The seed is that
    /// of [`Job::clone_seed`]: where `randrepeat=0` asks for a new sequence each run, the job carries a fresh seed.
    ///
    /// # Errors
    /// No file has room for a block; zones beyond a file's end; no memory for the map of used blocks.
    pub fn new(job: &Job, clone: u32, files: &[FileExtent]) -> Result<Workload, Error> {
        let directions = job.rw.directions;
        let sizes = Direction::ALL.map(|d| Sizes::new(job.blocks.range[d], &job.blocks.split[d], job.blocks.unaligned));
        let used = Direction::ALL.into_iter().filter(|&d| directions[d]);
        // Only sizes that reach the files count: with bs_is_seq_rand, sizes are chosen by kind of access.
        let smallest = if job.blocks.is_seq_rand {
            sizes[READ].smallest().min(sizes[WRITE].smallest())
        } else {
            used.clone().map(|d| sizes[d as usize].smallest()).min().unwrap_or(0)
        };
        let largest = files.iter().map(|file| file.size).max().unwrap_or(0);
        if largest < smallest || smallest == 0 {
            return Err(Error::NoRoom { job: job.name.clone(), largest, block: smallest });
        }

        let root = job.clone_seed(clone);
        let mut streams = Streams::new(root);
        let (mut random, mut rule_of) = (Vec::new(), [0; 3]);
        if job.rw.random {
            for d in used {
                let sizes = if job.blocks.is_seq_rand { &sizes[WRITE] } else { &sizes[d as usize] };
                let rule = Rule::new(job, d, sizes);
                let found = random.iter().position(|known| *known == rule);
                rule_of[d as usize] = found.unwrap_or(random.len());
                if found.is_none() {
                    random.push(rule);
                }
            }
        }
        let rules = Rules {
            root,
            only: match directions {
                _ if job.rw.trim_then_write => Direction::Trim,
                d if d.read => Direction::Read,
                d if d.write => Direction::Write,
                _ => Direction::Trim,
            },
            reads_below: (directions.read && directions.write).then(|| (u64::from(job.pattern.mix_read) << 32) / 100),
            trim_then_write: job.rw.trim_then_write,
            is_random: job.rw.random,
            stride: job.rw.sequential_stride,
            ops_per_offset: job.rw.ops_per_offset.max(1),
            identical: job.pattern.identical,
            sizes,
            is_seq_rand: job.blocks.is_seq_rand,
            random_below: Direction::ALL.map(|d| (u64::from(job.pattern.percent_random[d]) << 32) / 100),
            random,
            rule_of,
            strided: job.extent.strided,
            zoned: job.extent.zoned.is_some(),
            reseed: job.pattern.repeatable && (!job.time.time_based || job.verify.is_some()),
            passes_are_alike: job.pattern.repeatable
                && job.verify.is_some()
                && job.rw.random
                && job.pattern.no_random_map
                && job.extent.zoned.is_none(),
        };

        let mut blocks = Vec::with_capacity(files.len() * rules.random.len());
        for (index, file) in files.iter().enumerate() {
            for rule in &rules.random {
                let span = rules.strided.map_or(file.size, |zones| zones.range.min(file.size));
                blocks.push(Blocks::new(rule, span, &mut streams.order, &job.name, index)?);
            }
        }
        let turns = Turns::new(&job.files, files.len() as u32, &mut streams.file);
        if turns.distributed()
            && let Some(file) = files.iter().position(|file| file.size < smallest)
        {
            return Err(Error::FileTooSmall { job: job.name.clone(), file, block: smallest });
        }

        let mut workload = Workload {
            files: files.iter().map(|file| File::new(*file)).collect(),
            blocks,
            turns,
            limits: Limits::new(job, files),
            syncs: Syncs::new(job),
            write_after_trim: None,
            until_new: 1,
            zone_bytes: 0,
            exhausted: false,
            over: false,
            writes_once: false,
            streams,
            rules,
        };
        if workload.has_no_laps(job) {
            workload.limits.lap_most = u64::MAX;
        }
        workload.writes_once = workload.finds_writes_once(job);
        if workload.rules.reseed {
            // The first pass begins as every later one does.
            workload.rewind();
        }
        Ok(workload)
    }

    /// The next op; None: this pass is done.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "restart makes it go on after None, which an iterator does not")]
    pub fn next(&mut self) -> Option<Op> {
        self.next_in(None)
    }

    /// The next op, of that direction if the job mixes reads and writes: for rates that decide the mix
    /// ([`Arrivals::first`](arrivals::Arrivals::first)). A sync that is due goes first anyway.
    #[inline]
    pub fn next_of(&mut self, direction: Direction) -> Option<Op> {
        self.next_in(Some(direction))
    }

    /// [`Workload::next`], or [`Workload::next_of`] the direction that is wanted.
    #[inline(always)]
    pub fn next_in(&mut self, wanted: Option<Direction>) -> Option<Op> {
        if self.limits.bytes >= self.limits.bytes_most || self.limits.ops >= self.limits.ops_most || self.over {
            return None;
        }
        if let Some(file) = self.syncs.after
            && let Some(op) = self.sync_due(file)
        {
            return Some(op);
        }
        let op = match self.write_after_trim.take() {
            Some(write) => write,
            None => self.transfer(wanted)?,
        };
        self.account(&op);
        Some(op)
    }

    /// True if no byte is written twice, and none is trimmed, between two calls of [`Workload::restart`], provided that
    /// the job calls it only between passes of `loops`. False where that is not certain.
    pub fn writes_once(&self) -> bool {
        self.writes_once
    }

    /// True if the files are not begun again after as many bytes as they have, but only, as in fio, where no block is
    /// left for the next op. Blocks that may repeat come without end, each time others; reads and writes in sequence
    /// each go through the whole file.
    fn has_no_laps(&self, job: &Job) -> bool {
        let rules = &self.rules;
        if rules.strided.is_some() {
            return false;
        }
        if rules.is_random {
            let used = || Direction::ALL.into_iter().filter(|&d| job.rw.directions[d]);
            return !self.blocks.iter().all(Blocks::covers_once)
                || used().any(|d| rules.random_below[d as usize] != 1 << 32);
        }
        rules.reads_below.is_some() && rules.stride == 0
    }

    fn finds_writes_once(&self, job: &Job) -> bool {
        let (rules, limits) = (&self.rules, &self.limits);
        // A pass that goes on where the last one stopped may begin the files again in its midst.
        let one_lap = limits.bytes_most >= limits.lap_most && limits.ops_most == u64::MAX;
        let each_offset_once = if rules.is_random {
            let rule = rules.rule_of[WRITE];
            let maps = self.blocks.iter().skip(rule).step_by(rules.random.len().max(1));
            rules.random_below[WRITE] == 1 << 32 && rules.ops_per_offset == 1 && { maps }.all(Blocks::covers_once)
        } else {
            rules.stride == 0
        };
        each_offset_once
            && !job.rw.directions.trim
            && !job.time.time_based
            && (one_lap || job.time.loops <= 1)
            && !limits.goes_on
            && rules.strided.is_none()
            && !rules.zoned
            && !self.turns.distributed()
    }

    /// Bytes of one pass, as far as it has a limit. For `sprandom` this is an estimate.
    pub fn pass_bytes(&self) -> u64 {
        self.limits.bytes_expected
    }

    /// Begins the next pass: of `loops`, or of a `time_based` run.
    ///
    /// As in fio, a pass of less than the whole files (`io_size`, `number_ios`) is followed by one that goes on where
    /// it stopped; only when the files are used up do positions and maps begin again. The offsets are then the same
    /// again, unless `randrepeat=0` or the run is time based and not verified: those go on with new ones. Without a map
    /// of blocks, files are never used up. Verified passes are then alike, so that a job that only reads finds its
    /// blocks, however many passes the job had that wrote them.
    pub fn restart(&mut self) {
        self.limits.bytes = 0;
        self.limits.ops = 0;
        self.over = false;
        if self.exhausted || self.rules.passes_are_alike {
            self.rewind();
        }
        self.limits.went_on = self.limits.lap_bytes > 0;
    }

    /// Takes note that the op drawn last was issued elsewhere, or with another length, as the zones of the storage
    /// demand. The next sequential op of its direction begins at `next`, bytes from the start of the file.
    pub fn moved(&mut self, drawn: &Op, issued: &Op, next: u64) {
        let (OpKind::Io(direction), file) = (issued.kind, &mut self.files[issued.file as usize]) else { return };
        file.position[direction as usize] = next.saturating_sub(file.begin);
        file.last[direction as usize] = Some(issued.offset - file.begin);
        if self.syncs.any && direction == Direction::Write {
            file.dirty = (file.dirty.0.min(issued.offset), file.dirty.1.max(issued.offset + issued.len));
        }
        for bytes in [&mut self.limits.bytes, &mut self.limits.lap_bytes] {
            *bytes = *bytes - drawn.len + issued.len;
        }
    }

    /// Takes the op drawn last back: it is not issued.
    pub fn withdraw(&mut self, drawn: &Op) {
        for bytes in [&mut self.limits.bytes, &mut self.limits.lap_bytes] {
            *bytes -= drawn.len;
        }
        self.limits.ops -= 1;
        self.write_after_trim = None;
        if self.syncs.after.take().is_some() {
            self.syncs.writes -= 1;
        }
    }

    /// Ends this pass over the file of the op drawn last; without another file, the pass is done.
    pub fn end_file(&mut self) {
        self.turns.finish();
        if self.turns.all_finished() {
            (self.over, self.exhausted) = (true, true);
        }
    }

    /// Everything from the start of the files again.
    #[cold]
    fn rewind(&mut self) {
        if self.rules.reseed {
            self.streams = Streams::new(self.rules.root);
        }
        for index in 0..self.files.len() {
            self.files[index].zone = 0;
            self.rewind_file(index);
        }
        self.turns.rewind();
        self.limits.lap_bytes = 0;
        self.zone_bytes = 0;
        self.until_new = 1;
        self.write_after_trim = None;
        self.exhausted = false;
    }

    /// Begins one file again, from the start of its zone.
    #[cold]
    fn rewind_file(&mut self, index: usize) {
        let file = &mut self.files[index];
        file.position = [file.zone; 3];
        file.last = [None; 3];
        let span = self.rules.strided.map_or(file.size, |zones| zones.range.min(file.size));
        let rules = &self.rules.random;
        for (blocks, rule) in self.blocks[index * rules.len()..].iter_mut().zip(rules) {
            blocks.rewind(rule, span, &mut self.streams.order);
        }
    }

    /// The next transfer, from whichever file has one.
    #[inline(always)]
    fn transfer(&mut self, wanted: Option<Direction>) -> Option<Op> {
        if self.limits.lap_bytes >= self.limits.lap_most {
            self.rewind();
        }
        loop {
            let Some(index) = self.turns.choose(&mut self.streams.file) else {
                if !self.begin_anew() {
                    return None;
                }
                continue;
            };
            let direction = match self.rules.reads_below {
                Some(_) if wanted.is_some() => wanted.unwrap_or(Direction::Read),
                Some(below) if self.streams.direction.next() >> 32 < below => Direction::Read,
                Some(_) => Direction::Write,
                None => self.rules.only,
            };
            if let Some(op) = self.place(index as usize, direction) {
                return Some(op);
            }
            if self.turns.distributed() {
                self.rewind_file(index as usize);
                if let Some(op) = self.place(index as usize, direction) {
                    return Some(op);
                }
            }
            self.turns.finish();
        }
    }

    /// Called when all files are used up. True if they may be begun again within this pass.
    #[cold]
    fn begin_anew(&mut self) -> bool {
        // A lap without a single op would not end.
        let by_map = self.rules.zoned && self.rules.is_random;
        let goes_on = (self.limits.goes_on || self.limits.went_on || by_map) && self.limits.lap_bytes > 0;
        self.exhausted = true;
        if goes_on {
            self.rewind();
            self.limits.went_on = false;
        }
        goes_on
    }

    /// The next op of that direction on that file, with offset and length; None if no op is left.
    #[inline(always)]
    fn place(&mut self, index: usize, direction: Direction) -> Option<Op> {
        let d = direction as usize;
        if self.rules.strided.is_some() {
            self.enter_zone(index, d);
        }
        let mut block = None;
        let offset = if self.rules.is_random {
            self.until_new -= 1;
            let next = if self.until_new == 0 {
                self.until_new = self.rules.ops_per_offset;
                let below = self.rules.random_below[d];
                let chosen = below == 1 << 32 || self.streams.sequential.next() >> 32 < below;
                if chosen { None } else { self.sequential(index, d) }
            } else if self.rules.identical {
                let last = self.files[index].last[d].unwrap_or(0);
                self.has_room(index, d, last).then_some(last)
            } else {
                self.sequential(index, d)
            };
            match next {
                Some(offset) => offset,
                // Where no next block fits into the file, a random one takes its place, as in fio.
                None => {
                    block = self.random_block(index, d);
                    self.offset_of(index, d, block?)
                }
            }
        } else {
            self.sequential(index, d)?
        };

        let room = self.files[index].size.checked_sub(offset)?;
        let sizes = match (self.rules.is_seq_rand, block) {
            (false, _) => &self.rules.sizes[d],
            (true, Some(_)) => &self.rules.sizes[WRITE],
            (true, None) => &self.rules.sizes[READ],
        };
        let mut len = sizes.draw(room, &mut self.streams.size)?;
        if let Some(block) = block {
            let rule = self.rules.rule_of[d];
            let unit = self.rules.random[rule].align;
            len = self.blocks[index * self.rules.random.len() + rule].take(block, len, unit);
        }

        let file = &mut self.files[index];
        file.position[d] = offset + len;
        file.last[d] = Some(offset);
        let op = Op { kind: OpKind::Io(direction), file: index as u32, offset: file.begin + offset, len };
        if self.rules.trim_then_write {
            self.write_after_trim = Some(Op { kind: OpKind::Io(Direction::Write), ..op });
        }
        Some(op)
    }

    #[inline(always)]
    fn random_block(&mut self, index: usize, d: usize) -> Option<u64> {
        let rule = self.rules.rule_of[d];
        self.blocks[index * self.rules.random.len() + rule].next(&mut self.streams.offset)
    }

    #[inline(always)]
    fn offset_of(&self, index: usize, d: usize, block: u64) -> u64 {
        self.files[index].zone + block * self.rules.random[self.rules.rule_of[d]].align
    }

    /// The offset that follows the last op of that direction; None at the end of the file.
    #[inline(always)]
    fn sequential(&self, index: usize, d: usize) -> Option<u64> {
        let file = &self.files[index];
        let position = file.position[d];
        if position >= file.size {
            return None;
        }
        if self.rules.is_random {
            return self.has_room(index, d, position).then_some(position);
        }
        if self.rules.stride == 0 || position == file.zone {
            return Some(position);
        }
        // With a stride, the end of the file is not the end of the work: it goes on at the other end.
        Some(match position.checked_add_signed(self.rules.stride) {
            Some(next) if next < file.size => next,
            _ if self.rules.stride > 0 => file.zone,
            _ => file.size.saturating_sub(self.rules.stride.unsigned_abs()),
        })
    }

    /// True if a block that is not random fits between that offset and the end of the file.
    #[inline(always)]
    fn has_room(&self, index: usize, d: usize, offset: u64) -> bool {
        let sizes = &self.rules.sizes[if self.rules.is_seq_rand { READ } else { d }];
        self.files[index].size.saturating_sub(offset) >= sizes.smallest()
    }

    /// Moves a file on to its next strided zone when the present one has had its bytes.
    fn enter_zone(&mut self, index: usize, d: usize) {
        let Some(zones) = self.rules.strided else { return };
        let file = &mut self.files[index];
        if self.zone_bytes >= zones.size {
            self.zone_bytes = 0;
            file.zone = file.zone.saturating_add(zones.range).saturating_add(zones.skip);
            if file.zone >= file.size {
                file.zone = 0;
            }
            file.position[d] = file.zone;
        }
        // A zone that is given more bytes than it spans is gone through again.
        if file.position[d] - file.zone.min(file.position[d]) >= zones.range {
            file.position[d] = file.zone;
        }
        if zones.range != 0 && self.zone_bytes.is_multiple_of(zones.range) {
            self.rewind_file(index);
        }
    }

    #[inline(always)]
    fn account(&mut self, op: &Op) {
        self.limits.bytes += op.len;
        self.limits.lap_bytes += op.len;
        self.limits.ops += 1;
        self.zone_bytes += op.len;
        if self.syncs.any && op.kind == OpKind::Io(Direction::Write) {
            self.syncs.writes += 1;
            self.syncs.after = Some(op.file);
            let dirty = &mut self.files[op.file as usize].dirty;
            *dirty = (dirty.0.min(op.offset), dirty.1.max(op.offset + op.len));
        }
    }

    /// The sync that is due after the last write, if one is. At most one: as in fio, fsync goes before fdatasync.
    fn sync_due(&mut self, file: u32) -> Option<Op> {
        self.syncs.after = None;
        let writes = self.syncs.writes;
        let due = |every: u64| every != 0 && writes.is_multiple_of(every);
        let op = Op { kind: OpKind::Sync, file, offset: 0, len: 0 };
        if due(self.syncs.fsync) {
            return Some(op);
        }
        if due(self.syncs.fdatasync) {
            return Some(Op { kind: OpKind::DataSync, ..op });
        }
        if due(self.syncs.range) {
            let (from, to) = std::mem::replace(&mut self.files[file as usize].dirty, File::CLEAN);
            return Some(Op { kind: OpKind::SyncRange, offset: from, len: to - from, ..op });
        }
        None
    }
}

impl File {
    const CLEAN: (u64, u64) = (u64::MAX, 0);

    fn new(extent: FileExtent) -> File {
        File { begin: extent.offset, size: extent.size, zone: 0, position: [0; 3], last: [None; 3], dirty: File::CLEAN }
    }
}

impl Limits {
    fn new(job: &Job, files: &[FileExtent]) -> Limits {
        let total = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
        let twice = if job.rw.trim_then_write { 2 } else { 1 };
        let lap = total.saturating_mul(twice);
        // size= is what is transferred even where filesize= makes the files larger.
        let strided = job.extent.strided.is_some();
        let whole = match job.extent.size {
            Some(Amount::Bytes(bytes)) if bytes > 0 && !job.extent.fill => bytes.saturating_mul(twice).min(lap),
            Some(Amount::Percent(percent)) if strided => {
                // The zones lead through the rest of each file; size= is a part of the file, as it is without zones.
                let part = |file: &FileExtent| {
                    ((file.offset.saturating_add(file.size) as f64 * percent / 100.0) as u64).min(file.size)
                };
                files.iter().map(part).fold(0, u64::saturating_add).saturating_mul(twice)
            }
            _ => lap,
        };
        let (asked, goes_on) = match job.extent.io_size {
            Some(Amount::Bytes(bytes)) => (bytes.saturating_mul(twice), true),
            // A part of the files, which size= limits as it limits the whole.
            Some(Amount::Percent(percent)) => {
                let basis = if strided { whole } else { lap };
                ((basis as f64 * percent / 100.0) as u64, false)
            }
            None => (whole, false),
        };
        // A time based run is ended by its time; only verification needs an end to read back from.
        let endless = job.time.time_based && job.verify.is_none();
        // The last block of the drive that is not written yet ends a pass of sprandom.
        let conditioned = job.pattern.precondition.map(|drive| (lap as f64 * (1.0 + drive.over_provisioning)) as u64);
        let goes_on = goes_on && conditioned.is_none();
        let bytes_most = match goes_on {
            _ if endless || conditioned.is_some() => u64::MAX,
            true => asked,
            false => asked.min(whole),
        };
        Limits {
            bytes: 0,
            bytes_most,
            bytes_expected: conditioned.filter(|_| !endless).unwrap_or(bytes_most),
            ops: 0,
            ops_most: job
                .extent
                .number_ios
                .filter(|_| !job.time.time_based)
                .map_or(u64::MAX, |ops| ops.saturating_mul(twice)),
            lap_bytes: 0,
            lap_most: if endless || conditioned.is_some() { u64::MAX } else { lap },
            goes_on: goes_on && !endless,
            went_on: false,
        }
    }
}

impl Syncs {
    fn new(job: &Job) -> Syncs {
        let every = &job.syncs;
        let range = every.range.map_or(0, |(_, every)| u64::from(every));
        Syncs {
            fsync: u64::from(every.fsync),
            fdatasync: u64::from(every.fdatasync),
            range,
            any: every.fsync != 0 || every.fdatasync != 0 || range != 0,
            writes: 0,
            after: None,
        }
    }
}

#[cfg(test)]
mod tests;

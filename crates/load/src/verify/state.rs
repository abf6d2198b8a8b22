//! The verify state: which writes of a clone have ended, in the file that fio keeps for that (`verify_state_save`).
//!
//! ```text
//! issued ─► ended (─► synced) ─► State ─► local-JOB-NUMBER-verify.state ─► State ─► was_written(number, file, offset)
//! ```
//!
//! The layout is that of fio 3.33, version 3: a header of three 64-bit words (version, bytes that follow, their
//! CRC-32C), then the state of one clone, little-endian. Every write before the last `window` ones has ended; of those
//! in the window, the listed ones have. fio keeps a state of its random generator behind the counts; Plimsoll keeps
//! there the seed and a fingerprint of the job, and knows its files by a mark in a word that fio leaves zero.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use job::Job;
use job::job::VerifyPolicy;
use job::workload::FileExtent;

use crate::Error;

const VERSION: u64 = 3;
const HEADER_BYTES: usize = 24;
/// Bytes of a clone's state before its list.
const FIXED_BYTES: usize = 152;
const NAME_BYTES: usize = 64;
const RANDOM_AT: usize = 32;
const MARK: u64 = u64::from_le_bytes(*b"Plimsoll");
/// No state of a real run is larger; the limit keeps a damaged file from asking for all memory.
const MOST_BYTES: u64 = 1 << 32;

/// The writes of a clone that have ended, from first to last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Number of writes that were issued.
    pub issued: u64,
    /// Number of the last writes of which some may not have ended.
    window: u32,
    /// (file, offset) of writes that have ended, the latest first; all of the window that have.
    ended: Vec<(u64, u64)>,
    /// None: fio wrote the state, or another program.
    pub own: Option<Own>,
    index: u64,
    name: Vec<u8>,
}

/// The part of a state that only Plimsoll knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// `randseed`, or the seed that stood for it.
    pub seed: u64,
    /// [`fingerprint`] of the job.
    pub fingerprint: u64,
    /// 1: reads, 2: writes, 4: trims.
    pub directions: u64,
    /// `verify_policy=fsynced`: only writes that were synced count as ended.
    pub synced_only: bool,
}

/// The file of the clone at this place in the plan, as fio names it.
pub fn path(directory: Option<&Path>, job: &str, index: u32) -> PathBuf {
    let name = format!("local-{}-{index}-verify.state", job.replace('/', "."));
    directory.unwrap_or(Path::new("")).join(name)
}

/// Bits of the directions of a job, as [`Own`] has them.
pub fn directions(job: &Job) -> u64 {
    let d = job.rw.directions;
    u64::from(d.read) | u64::from(d.write) << 1 | u64::from(d.trim) << 2
}

/// A number that differs between jobs whose writes differ in place, size or order: directions and seeds left out, and
/// where a single pass ends.
pub fn fingerprint(job: &Job, clone: u32, extents: &[FileExtent]) -> u64 {
    let rw = &job.rw;
    // The first words say which random orders these are: those of streams that the number of the clone seeds.
    let repeats = job.time.time_based || job.time.loops > 1;
    let (blocks, extent, pattern) = (&job.blocks, &job.extent, &job.pattern);
    let text = format!(
        "numbered clones {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        (blocks.range.write, &blocks.split.write, blocks.align.write, blocks.unaligned, blocks.is_seq_rand),
        (rw.random, rw.sequential_stride, rw.ops_per_offset, rw.trim_then_write),
        (&extent.size, repeats.then_some((&extent.io_size, extent.number_ios)), extent.strided),
        (pattern.distribution.write, &pattern.zones.write, &pattern.zones_absolute.write, &pattern.sequence),
        pattern.generator,
        (pattern.no_random_map, pattern.percent_random.write, pattern.identical, pattern.mix_read, pattern.repeatable),
        (job.time.loops, job.time.time_based),
        job.files.service,
        (job.files.count, job.files.open),
        clone,
        extents,
        job.syncs.fsync,
        rw.directions.trim,
    );
    // Rare options count only where they are set, so that the states of earlier versions stay good. A state counts no
    // trims of written blocks: the state of a job that has them fits no other job.
    let trims = job.verify.as_ref().map(|verify| verify.trims).filter(|trims| trims.percent > 0);
    let text = trims.map_or(text.clone(), |trims| format!("{text} {trims:?}"));
    let text = pattern.precondition.map_or(text.clone(), |drive| format!("{text} {drive:?}"));
    measure::fingerprint(text.bytes())
}

impl State {
    /// True if write number `number` had ended when the state was made. False where that is not certain: a block that
    /// the window may hold twice.
    pub fn was_written(&self, number: u64, file: u32, offset: u64, writes_of_block: u64) -> bool {
        if number + u64::from(self.window) < self.issued {
            return true;
        }
        let place = (u64::from(file), offset);
        let ended = self.ended.iter().filter(|&&ended| ended == place).count() as u64;
        number < self.issued && ended > 0 && ended >= writes_of_block
    }

    /// First number that the window holds.
    pub fn window_from(&self) -> u64 {
        self.issued.saturating_sub(u64::from(self.window))
    }

    /// Number of writes that are listed as ended.
    pub fn listed(&self) -> u64 {
        self.ended.len() as u64
    }

    /// True if as many writes are listed as the window holds: nothing was in flight.
    pub fn is_quiet(&self) -> bool {
        self.ended.len() as u64 >= self.issued - self.window_from()
    }

    fn write(&self, files: u32) -> Vec<u8> {
        // fio takes room for `window` entries a file.
        let files = files.max(1).max((self.ended.len() as u64).div_ceil(u64::from(self.window.max(1))) as u32);
        let room = self.window as usize * files as usize;
        let mut body = Vec::with_capacity(FIXED_BYTES + room * 16);
        body.extend((self.ended.len() as u64).to_le_bytes());
        body.extend(self.window.to_le_bytes());
        body.extend(files.to_le_bytes());
        body.extend(self.issued.to_le_bytes());
        body.extend(self.index.to_le_bytes());
        let own = self.own.unwrap_or(Own { seed: 0, fingerprint: 0, directions: 0, synced_only: false });
        let words = [1, own.seed, own.fingerprint, own.directions, u64::from(own.synced_only), 0, MARK];
        words.iter().for_each(|word| body.extend(word.to_le_bytes()));
        let name = &self.name[..self.name.len().min(NAME_BYTES - 1)];
        body.extend(name);
        body.resize(FIXED_BYTES, 0);
        for (file, offset) in &self.ended {
            body.extend(file.to_le_bytes());
            body.extend(offset.to_le_bytes());
        }
        body.resize(FIXED_BYTES + room * 16, 0);
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend(VERSION.to_le_bytes());
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(u64::from(!crc32c::crc32c(&body)).to_le_bytes());
        out.extend(body);
        out
    }

    /// Reads the bytes of a state file.
    ///
    /// # Errors
    /// The fault of the bytes, in a few words: too short, another version, a wrong size or checksum.
    pub fn read(bytes: &[u8]) -> Result<State, String> {
        let u64_at = |at: usize| bytes.get(at..at + 8).and_then(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|word| Some(u32::from_le_bytes(word.try_into().ok()?)));
        let header = (u64_at(0), u64_at(8), u64_at(16));
        let (Some(version), Some(size), Some(crc)) = header else {
            return Err("it is shorter than its header".into());
        };
        if version != VERSION {
            return Err(format!("its version is {version}, and only version {VERSION} is known"));
        }
        if size > MOST_BYTES || bytes.len() as u64 != size + HEADER_BYTES as u64 || size < FIXED_BYTES as u64 {
            return Err(format!("it has {} bytes, and its header says {size} more than the header", bytes.len()));
        }
        let body = &bytes[HEADER_BYTES..];
        if u64::from(!crc32c::crc32c(body)) != crc {
            return Err("its checksum is wrong: it is damaged".into());
        }
        let at = |place: usize| u64_at(HEADER_BYTES + place).unwrap_or(0);
        let (listed, issued, index) = (at(0), at(16), at(24));
        let window = u32_at(HEADER_BYTES + 8).unwrap_or(0);
        let room = (size as usize - FIXED_BYTES) / 16;
        if listed > room as u64 {
            return Err(format!("it lists {listed} writes, and has room for {room}"));
        }
        let entry = |number: usize| (at(FIXED_BYTES + number * 16), at(FIXED_BYTES + number * 16 + 8));
        let random: [u64; 7] = std::array::from_fn(|word| at(RANDOM_AT + word * 8));
        let own = (random[6] == MARK).then_some(Own {
            seed: random[1],
            fingerprint: random[2],
            directions: random[3],
            synced_only: random[4] != 0,
        });
        let name = &body[FIXED_BYTES - NAME_BYTES..FIXED_BYTES];
        let name = name.iter().copied().take_while(|&byte| byte != 0).collect();
        Ok(State { issued, window, ended: (0..listed as usize).map(entry).collect(), own, index, name })
    }

    /// Reads a state file.
    ///
    /// # Errors
    /// The file is missing, or not a state.
    pub fn load(path: &Path) -> Result<State, Error> {
        let bytes = std::fs::read(path).map_err(|error| {
            Error::system("cannot read the verify state", path.display().to_string(), error)
                .hint("a run with verify_state_save=1 writes it; --aux-path gives its directory")
        })?;
        State::read(&bytes).map_err(|wrong| {
            Error::usage(
                "cannot use the verify state",
                path.display().to_string(),
                format!("{wrong}; write the data again with verify_state_save=1"),
            )
        })
    }
}

/// The writes of a running clone, and which of them have ended.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// Of write number `first` and those after it.
    writes: VecDeque<Write>,
    first: u64,
    depth: usize,
    synced_only: bool,
    /// True if a write is synced when it ends (O_SYNC, O_DSYNC).
    ends_synced: bool,
    /// Counts the events: a sync covers the writes that ended before it was issued.
    clock: u64,
    /// The syncs in flight: when they were issued, by slot.
    syncs: BTreeMap<u32, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    file: u32,
    offset: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Issued,
    /// Ended at this time of the tracker's clock.
    Ended(u64),
    Synced,
}

impl Tracker {
    /// A tracker of a clone that has up to `depth` ops in flight.
    pub fn new(job: &Job, depth: u32) -> Tracker {
        let depth = depth.max(1) as usize;
        Tracker {
            writes: VecDeque::with_capacity(2 * depth + 1),
            first: 0,
            depth,
            synced_only: job.verify.as_ref().is_some_and(|verify| verify.policy == VerifyPolicy::Fsynced),
            ends_synced: job.files.sync != job::job::OpenSync::None,
            clock: 0,
            syncs: BTreeMap::new(),
        }
    }

    /// A write is issued: the next number is its.
    pub fn issued(&mut self, file: u32, offset: u64) {
        self.writes.push_back(Write { file, offset, stage: Stage::Issued });
        // The window of a quiet clone is as long as the queue is deep.
        while self.writes.len() > self.depth
            && self.writes.front().is_some_and(|write| is_done(write.stage, self.synced_only))
        {
            self.writes.pop_front();
            self.first += 1;
        }
    }

    /// Write number `number` has succeeded.
    pub fn ended(&mut self, number: u64) {
        self.clock += 1;
        let stage = if self.ends_synced { Stage::Synced } else { Stage::Ended(self.clock) };
        if let Some(write) = self.writes.get_mut((number - self.first) as usize) {
            write.stage = stage;
        }
    }

    /// A sync is issued.
    pub fn sync_issued(&mut self, slot: u32) {
        if self.synced_only {
            self.syncs.insert(slot, self.clock);
        }
    }

    /// The sync of a file has ended, and has succeeded or not.
    pub fn sync_ended(&mut self, slot: u32, file: u32, succeeded: bool) {
        let Some(since) = self.syncs.remove(&slot).filter(|_| succeeded) else { return };
        let covered = self.writes.iter_mut().filter(|write| write.file == file);
        covered.for_each(|write| write.stage = synced(write.stage, since));
    }

    /// Everything has been synced, with nothing in flight.
    pub fn all_synced(&mut self) {
        self.writes.iter_mut().for_each(|write| write.stage = synced(write.stage, u64::MAX));
    }

    /// Number of writes issued, length of the window, and the writes of the window that have ended, the latest first.
    fn summary(&self) -> (u64, u32, Vec<(u64, u64)>) {
        let listed = self.writes.iter().rev().filter(|write| is_done(write.stage, self.synced_only));
        (
            self.first + self.writes.len() as u64,
            u32::try_from(self.writes.len().max(self.depth)).unwrap_or(u32::MAX),
            listed.map(|write| (u64::from(write.file), write.offset)).collect(),
        )
    }
}

/// The state of a running clone, and the file that it goes into.
pub struct StateFile {
    /// The writes so far.
    pub writes: Tracker,
    path: PathBuf,
    own: Own,
    index: u32,
    name: String,
    files: u32,
}

impl StateFile {
    /// The state of the clone at place `seat` of the plan, which is clone `clone` of its job.
    pub fn new(job: &Job, clone: u32, seat: u32, extents: &[FileExtent]) -> StateFile {
        let tracker = Tracker::new(job, job.queue.depth);
        StateFile {
            path: path(job.verify.as_ref().and_then(|verify| verify.state_directory.as_deref()), &job.name, seat),
            own: Own {
                seed: job.pattern.seed,
                fingerprint: fingerprint(job, clone, extents),
                directions: directions(job),
                synced_only: tracker.synced_only,
            },
            writes: tracker,
            index: seat,
            name: job.name.clone(),
            files: extents.len() as u32,
        }
    }

    /// The state at this moment.
    pub fn state(&self) -> State {
        let (issued, window, ended) = self.writes.summary();
        let (index, name) = (u64::from(self.index), self.name.as_bytes().to_vec());
        State { issued, window, ended, own: Some(self.own), index, name }
    }

    /// Writes the state to its file.
    ///
    /// # Errors
    /// The error of creating or writing the file.
    pub fn save(&self) -> Result<(), Error> {
        let save = || {
            let mut file = std::fs::File::create(&self.path)?;
            std::io::Write::write_all(&mut file, &self.state().write(self.files))?;
            file.sync_all()
        };
        save().map_err(|error| {
            Error::system("cannot write the verify state", self.path.display().to_string(), error)
                .hint("--aux-path gives another directory, verify_state_save=0 writes none")
        })
    }
}

fn is_done(stage: Stage, synced_only: bool) -> bool {
    match stage {
        Stage::Issued => false,
        Stage::Ended(_) => !synced_only,
        Stage::Synced => true,
    }
}

fn synced(stage: Stage, since: u64) -> Stage {
    match stage {
        Stage::Ended(at) if at <= since => Stage::Synced,
        stage => stage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker(depth: u32, policy: VerifyPolicy) -> Tracker {
        let verify = job::job::Verify { policy, ..super::super::tests::verify(job::job::VerifyKind::Crc32c) };
        Tracker::new(&Job { verify: Some(verify), ..Job::default() }, depth)
    }

    fn state(tracker: &Tracker) -> State {
        let job = Job { name: "a/b".into(), ..Job::default() };
        StateFile { writes: tracker.clone(), ..StateFile::new(&job, 0, 3, &[]) }.state()
    }

    /// Against an oracle that remembers every write, whatever their order: a write counts if and only if it has ended.
    #[test]
    fn a_state_tells_exactly_which_writes_have_ended() {
        let mut random = job::workload::random::Random::new(7);
        for _ in 0..300 {
            let depth = 1 + random.below(8) as u32;
            let mut tracker = tracker(depth, VerifyPolicy::Completed);
            let (mut ended, mut flight) = (Vec::new(), Vec::new());
            for number in 0..random.below(60) {
                while flight.len() as u32 >= depth {
                    // One write may be slow for as long as the run.
                    let which = random.below(flight.len() as u64) as usize;
                    let done: u64 = flight.remove(which);
                    tracker.ended(done);
                    ended[done as usize] = true;
                }
                tracker.issued(0, number * 4096);
                ended.push(false);
                flight.push(number);
            }
            let state = State::read(&state(&tracker).write(1)).unwrap();
            assert_eq!(state.issued, ended.len() as u64);
            for (number, &ended) in ended.iter().enumerate() {
                assert_eq!(state.was_written(number as u64, 0, number as u64 * 4096, 1), ended, "{number}");
            }
        }
    }

    #[test]
    fn a_sync_covers_what_ended_before_it_was_issued_in_its_file() {
        let mut tracker = tracker(4, VerifyPolicy::Fsynced);
        (0..4).for_each(|number| tracker.issued(number / 3, u64::from(number)));
        (0..2).for_each(|number| tracker.ended(number));
        tracker.sync_issued(9);
        (2..4).for_each(|number| tracker.ended(number));
        tracker.sync_ended(9, 0, true);
        let ended = |tracker: &Tracker| state(tracker).ended.iter().map(|place| place.1).collect::<Vec<_>>();
        assert_eq!(ended(&tracker), [1, 0]);
        tracker.sync_issued(9);
        tracker.sync_ended(9, 0, false);
        assert_eq!(ended(&tracker), [1, 0]);
        tracker.all_synced();
        assert_eq!(ended(&tracker), [3, 2, 1, 0]);
    }

    #[test]
    fn a_block_that_the_window_holds_twice_counts_only_if_both_writes_ended() {
        let mut tracker = tracker(4, VerifyPolicy::Completed);
        tracker.issued(0, 0);
        tracker.ended(0);
        tracker.issued(0, 0);
        let state = state(&tracker);
        assert!(!state.was_written(1, 0, 0, 2));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let mut tracker = tracker(2, VerifyPolicy::Completed);
        (0..5).for_each(|number| {
            tracker.issued(0, number * 512);
            tracker.ended(number);
        });
        let (state, path) = (state(&tracker), path(Some(Path::new("d")), "a/b", 3));
        assert_eq!(path, Path::new("d/local-a.b-3-verify.state"));
        let bytes = state.write(2);
        assert_eq!(State::read(&bytes).unwrap(), state);
        assert_eq!(bytes.len(), HEADER_BYTES + FIXED_BYTES + 2 * 2 * 16, "as fio computes it from depth and files");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(State::read(&damaged).is_err(), "byte {at}");
            assert!(State::read(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}

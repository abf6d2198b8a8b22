//! Verification against a storage that knows the truth.
//!
//! A clone runs a random verifying job, through its real generator, on an engine that keeps for every byte what it was
//! asked to store. The engine carries ops out in any order, in parts, fails some of them, and, where the case asks for
//! it, corrupts what it stores or delivers. Held to that are:
//!
//! - **No false alarm**: a storage that keeps its word is never accused.
//! - **No miss**: of the blocks that are read back, exactly those that differ from the truth are reported.
//! - **Soundness**: no op is issued that overlaps one in flight in a way that leaves the outcome open, and nothing is
//!   read back whose content nobody knows.
//! - **Completeness**: at the end, everything that was stored has been read back since.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use job::Job;
use job::engines::EngineSpec;
use job::job::{
    Amount, Distribution, FileService, Generator, Rw, Verify, VerifyKind, VerifyPattern, VerifyTrims, Zones,
};
use job::workload::OpKind;
use job::workload::random::Random;
use measure::{Direction, PerDirection};
use sys::clock::{Clock, monotonic_ns};

use super::clone::{self, Orders, Report};
use super::seats::Seats;
use super::sources::largest_block;
use crate::engine::{Completion, Engine, Maker, Queued, Request, Slots};
use crate::files::{Backing, Context, Target};

/// Ways in which storage goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// One bit of a write is stored inverted.
    BitFlip,
    /// A write is acknowledged, and the earlier content stays.
    LostWrite,
    /// A write lands elsewhere in the file.
    Misdirected,
    /// A write lands where it belongs, and elsewhere too.
    Duplicated,
    /// A write lands 512 bytes further on.
    Shifted,
    /// Only the first bytes of a write are stored.
    Torn,
    /// A sector of a write is stored as zeros.
    ZeroedSector,
    /// Two blocks change places.
    Swapped,
    /// A read delivers one inverted bit.
    ReadBitFlip,
    /// A read delivers the bytes of another place.
    ReadElsewhere,
    /// A trim is acknowledged, and the content stays.
    LostTrim,
    /// A trim leaves a part of the content.
    TornTrim,
}

const FAULTS: [Fault; 12] = [
    Fault::BitFlip,
    Fault::LostWrite,
    Fault::Misdirected,
    Fault::Duplicated,
    Fault::Shifted,
    Fault::Torn,
    Fault::ZeroedSector,
    Fault::Swapped,
    Fault::ReadBitFlip,
    Fault::ReadElsewhere,
    Fault::LostTrim,
    Fault::TornTrim,
];

/// One file: the bytes that are stored, and the bytes that must be.
struct File {
    stored: Vec<u8>,
    truth: Vec<u8>,
    /// The last change of the byte was acknowledged, and is not being replaced.
    known: Vec<bool>,
    /// The byte was read since its last change.
    checked: Vec<bool>,
}

/// A storage with its truth, and the violations that a run on it met.
struct Storage {
    random: Random,
    files: Vec<File>,
    /// Every read is a read-back: the job itself reads nothing.
    reads_are_checked: bool,
    /// The bytes of a trim are zeroes, and not unknown.
    trims_are_zeroes: bool,
    /// Of 256 ops: how many transfer less than asked, and how many fail.
    short: u64,
    failing: u64,
    /// Writes until the storage is full.
    room: u64,
    fault: Option<Fault>,
    wrong_reads: u64,
    reads: u64,
    violations: Vec<String>,
}

thread_local! {
    /// The storage of the clone that runs on this thread.
    static STORAGE: RefCell<Option<Arc<Mutex<Storage>>>> = const { RefCell::new(None) };
}

static MODEL_SPEC: EngineSpec = EngineSpec::new("model", "").diskless();

const MODEL: Maker = Maker::unnamed(&MODEL_SPEC, |setup| {
    let storage = STORAGE.with(|storage| storage.borrow().clone()).expect("a case runs");
    let slots = Arc::clone(&setup.slots);
    Ok(Box::new(Model { slots, depth: setup.depth as usize, storage, queued: Vec::new(), running: Vec::new() }))
});

/// The engine: ops that wait for submission, and those that the storage has.
struct Model {
    slots: Arc<Slots>,
    depth: usize,
    storage: Arc<Mutex<Storage>>,
    queued: Vec<Running>,
    running: Vec<Running>,
}

struct Running {
    request: Request,
    /// The data that a write transfers.
    data: Vec<u8>,
    /// The result of an op that was carried out, but is not acknowledged yet. None: the op is not carried out yet.
    result: Option<i64>,
}

impl Storage {
    fn chance(&mut self, of_256: u64) -> bool {
        self.random.below(256) < of_256
    }

    /// Bytes transferred by a data op of `len` bytes, or a negative errno.
    fn outcome(&mut self, len: usize, is_write: bool) -> i64 {
        if is_write {
            if self.room == 0 {
                return -i64::from(libc::ENOSPC);
            }
            self.room -= 1;
        }
        let (short, failing) = (self.short, self.failing);
        if self.chance(failing) {
            -i64::from(libc::EIO)
        } else if len > 1 && self.chance(short) {
            1 + self.random.below(len as u64 - 1) as i64
        } else {
            len as i64
        }
    }

    fn elsewhere(&mut self, file: usize, len: usize) -> usize {
        let room = self.files[file].stored.len() - len;
        self.random.below(room as u64 / 512 + 1) as usize * 512
    }

    fn store(&mut self, file: usize, at: usize, data: &[u8]) {
        let stored = &mut self.files[file].stored;
        let len = data.len().min(stored.len() - at);
        stored[at..at + len].copy_from_slice(&data[..len]);
    }

    /// Stores a write, truthfully or not.
    fn write(&mut self, file: usize, at: usize, data: &[u8]) {
        let fault = self.fault.filter(|_| self.random.below(256) < 24);
        let len = data.len();
        match fault {
            Some(Fault::BitFlip) => {
                let mut data = data.to_vec();
                data[self.random.below(len as u64) as usize] ^= 1 << self.random.below(8);
                self.store(file, at, &data);
            }
            Some(Fault::LostWrite) => {}
            Some(Fault::Misdirected) => {
                let at = self.elsewhere(file, len);
                self.store(file, at, data);
            }
            Some(Fault::Duplicated) => {
                self.store(file, at, data);
                let at = self.elsewhere(file, len);
                self.store(file, at, data);
            }
            Some(Fault::Shifted) => {
                let at = (at + 512).min(self.files[file].stored.len() - 1);
                self.store(file, at, data);
            }
            Some(Fault::Torn) => {
                let part = self.random.below(len as u64) as usize;
                self.store(file, at, &data[..part]);
            }
            Some(Fault::ZeroedSector) => {
                let mut data = data.to_vec();
                let from = self.random.below(len.div_ceil(512) as u64) as usize * 512;
                data[from..(from + 512).min(len)].fill(0);
                self.store(file, at, &data);
            }
            Some(Fault::Swapped) => {
                self.store(file, at, data);
                let other = self.elsewhere(file, len);
                let there = self.files[file].stored[other..other + len].to_vec();
                self.store(file, other, data);
                self.store(file, at, &there);
            }
            None | Some(Fault::ReadBitFlip | Fault::ReadElsewhere | Fault::LostTrim | Fault::TornTrim) => {
                self.store(file, at, data);
            }
        }
    }

    /// Stores zeroes for a trim, or what a storage that lies leaves.
    fn trim(&mut self, file: usize, at: usize, len: usize) {
        let zeroed = match self.fault.filter(|_| self.random.below(256) < 24) {
            Some(Fault::LostTrim) => 0,
            Some(Fault::TornTrim) => self.random.below(len as u64) as usize,
            _ => len,
        };
        self.files[file].stored[at..at + zeroed].fill(0);
    }

    fn read(&mut self, file: usize, at: usize, into: &mut [u8]) {
        let fault = self.fault.filter(|_| self.random.below(256) < 24);
        let from = if fault == Some(Fault::ReadElsewhere) { self.elsewhere(file, into.len()) } else { at };
        into.copy_from_slice(&self.files[file].stored[from..from + into.len()]);
        if fault == Some(Fault::ReadBitFlip) {
            into[self.random.below(into.len() as u64) as usize] ^= 1 << self.random.below(8);
        }
    }
}

impl Model {
    fn truth(&self) -> MutexGuard<'_, Storage> {
        self.storage.lock().unwrap()
    }

    /// Notes a violation if the op must not be in flight together with those that are.
    fn watch(&self, request: &Request) {
        let mut storage = self.truth();
        let change = |kind| matches!(kind, OpKind::Io(Direction::Write | Direction::Trim));
        let transfer = |kind| matches!(kind, OpKind::Io(_));
        for other in self.queued.iter().chain(&self.running).map(|running| &running.request) {
            let overlap = transfer(request.kind)
                && transfer(other.kind)
                && request.file == other.file
                && request.offset < other.offset + u64::from(other.len)
                && other.offset < request.offset + u64::from(request.len);
            let one_changes = change(request.kind) || change(other.kind);
            let both_change = change(request.kind) && change(other.kind);
            if overlap && (both_change || (one_changes && storage.reads_are_checked)) {
                let what = format!("{request:?} overlaps {other:?} in flight");
                storage.violations.push(what);
            }
        }
    }

    /// Carries an op out: its effect and its result, not yet acknowledged.
    fn carry_out(&self, op: &mut Running) {
        let mut storage = self.truth();
        let Request { kind, file, offset, len, skip, .. } = op.request;
        let (file, at, len) = (file as usize, offset as usize, len as usize);
        op.result = Some(match kind {
            OpKind::Io(Direction::Write) => {
                let result = storage.outcome(len, true);
                // A write that fails may have stored any part of its data.
                let stored = if result < 0 { storage.random.below(len as u64 + 1) } else { result as u64 } as usize;
                if stored > 0 {
                    storage.write(file, at, &op.data[..stored]);
                }
                result
            }
            OpKind::Io(Direction::Read) => {
                let result = storage.outcome(len, false);
                if result > 0 {
                    let bytes = &mut self.slots.bytes_mut(&mut op.request.slot)[skip as usize..];
                    storage.read(file, at, &mut bytes[..result as usize]);
                }
                result
            }
            OpKind::Io(Direction::Trim) => {
                storage.trim(file, at, len);
                if storage.outcome(1, false) < 0 { -i64::from(libc::EIO) } else { len as i64 }
            }
            OpKind::Sync | OpKind::DataSync | OpKind::SyncRange => 0,
        });
    }

    /// Acknowledges an op: from now on, its effect is the truth.
    fn acknowledge(&self, op: Running) -> Completion {
        let mut storage = self.truth();
        let Running { request, data, result } = op;
        let result = result.expect("carried out");
        let (file, at, done) = (request.file as usize, request.offset as usize, result.max(0) as usize);
        let bytes = at..at + done;
        match request.kind {
            OpKind::Io(Direction::Write) => {
                let file = &mut storage.files[file];
                file.truth[bytes.clone()].copy_from_slice(&data[..done]);
                file.known[bytes.clone()].fill(true);
                file.checked[bytes].fill(false);
            }
            OpKind::Io(Direction::Read) if done > 0 => {
                let delivered = &self.slots.bytes(&request.slot)[request.skip as usize..][..done];
                let wrong = delivered != &storage.files[file].truth[bytes.clone()];
                if storage.reads_are_checked && storage.files[file].known[bytes.clone()].contains(&false) {
                    let what = format!("{request:?} reads back what nobody knows");
                    storage.violations.push(what);
                }
                storage.reads += 1;
                storage.wrong_reads += u64::from(wrong);
                storage.files[file].checked[bytes].fill(true);
            }
            OpKind::Io(Direction::Trim) if storage.trims_are_zeroes => {
                let file = &mut storage.files[file];
                file.truth[bytes.clone()].fill(0);
                file.known[bytes.clone()].fill(true);
                file.checked[bytes].fill(false);
            }
            _ => {}
        }
        Completion { slot: request.slot, result }
    }
}

impl Engine for Model {
    fn open(&mut self, _file: u32, _fd: RawFd) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self, _file: u32) {}

    fn queue(&mut self, request: Request) -> Queued {
        let busy = !self.running.is_empty();
        let is_full = self.queued.len() + self.running.len() == self.depth;
        if is_full || (busy && self.truth().chance(16)) {
            return Queued::Full(request);
        }
        self.watch(&request);
        let mut data = Vec::new();
        if matches!(request.kind, OpKind::Io(Direction::Write | Direction::Trim)) {
            let (at, len) = (request.offset as usize, request.len as usize);
            self.truth().files[request.file as usize].known[at..at + len].fill(false);
        }
        if request.kind == OpKind::Io(Direction::Write) {
            data = self.slots.bytes(&request.slot)[request.skip as usize..][..request.len as usize].to_vec();
        }
        let mut op = Running { request, data, result: None };
        if self.truth().chance(16) {
            self.carry_out(&mut op);
            return Queued::Done(self.acknowledge(op));
        }
        self.queued.push(op);
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        let least = usize::from(self.running.is_empty() && !self.queued.is_empty());
        let more = self.queued.len() - least;
        let taken = if self.truth().chance(64) { least } else { least + more };
        self.running.extend(self.queued.drain(..taken));
        Ok(taken)
    }

    fn reap(&mut self, min: usize, max: usize, _timeout: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let most = max.min(self.running.len());
        let extra = self.truth().random.below(1 + most.saturating_sub(min) as u64) as usize;
        let wanted = (min + extra).min(most);
        let mut reaped = 0;
        while reaped < wanted {
            let index = self.truth().random.below(self.running.len() as u64) as usize;
            if self.running[index].result.is_some() {
                let op = self.running.swap_remove(index);
                done.push(self.acknowledge(op));
                reaped += 1;
            } else {
                let mut op = self.running.swap_remove(index);
                self.carry_out(&mut op);
                self.running.push(op);
            }
        }
        Ok(())
    }
}

/// The behaviour of the storage of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    /// Everything succeeds.
    Good,
    /// Ops are short or fail.
    Failing,
    /// The storage is full after some writes.
    Full,
    /// The storage lies, with this kind of fault.
    Lying(Fault),
}

/// A random job that verifies.
fn random_job(random: &mut Random, mood: Mood) -> Job {
    let mut job = Job { name: "model".into(), engine: "null".into(), ..Job::default() };
    let lying = matches!(mood, Mood::Lying(_));
    let mut chance = |percent: u64| random.below(100) < percent;
    let mixed = !lying && chance(20);
    let trims = chance(15) && !mixed;
    job.rw = Rw {
        directions: PerDirection { read: mixed, write: true, trim: trims },
        random: chance(60),
        trim_then_write: trims,
        ..job.rw
    };
    job.pattern.no_random_map = chance(25);
    if chance(15) {
        job.pattern.generator = Generator::Permutation;
    }
    job.pattern.identical = chance(5);
    job.blocks.unaligned = chance(10);
    job.blocks.is_seq_rand = chance(5);
    job.files.count = if chance(30) { 3 } else { 1 };
    job.time.loops = if chance(25) { 2 } else { 1 };
    job.syncs.fsync = u32::from(chance(10)) * 3;
    job.syncs.range = chance(10).then_some((7, 2));
    job.errors.continue_verify = true;
    job.errors.continue_read = mood == Mood::Failing;
    job.errors.continue_write = mood == Mood::Failing;
    job.time.time_based = chance(6);
    let (stride, reuse, partly, half, twice, ios) =
        (chance(8), chance(8), chance(12), chance(8), chance(25), chance(10));
    let (split, shifted, zoned, strided, hurried) = (chance(10), chance(10), chance(8), chance(8), chance(15));
    let (service, shape) = (random.below(5), random.below(8));
    if job.time.time_based {
        job.time.runtime_ns = Some(2_000_000);
    }
    if stride {
        job.rw.sequential_stride = [4096, -4096, 8192][random.below(3) as usize];
    }
    if reuse {
        job.rw.ops_per_offset = 3;
    }
    if partly {
        job.pattern.percent_random.write = 60;
    }
    job.files.service = match service {
        0 => FileService::Random,
        1 => FileService::Sequential,
        2 => FileService::Distributed(Distribution::Zipf(1.2, None)),
        _ => FileService::RoundRobin,
    };
    let write = [(4096, 4096), (4096, 4096), (2048, 8192), (1024, 4096), (600, 5000)][random.below(5) as usize];
    let write = if write.0 == 600 && !job.blocks.unaligned { (512, 4608) } else { write };
    let trim = if trims { [write, (4096, 4096), (8192, 8192)][random.below(3) as usize] } else { write };
    job.blocks.range = PerDirection { read: (2048, 2048), write, trim };
    job.blocks.align = PerDirection { read: 2048, write: write.0, trim: trim.0 };
    if split {
        job.blocks.split.write = vec![(1024, 30.0), (4096, 50.0), (6144, 20.0)];
        job.blocks.range.write = (1024, 6144);
        job.blocks.align.write = 1024;
    }
    if shifted {
        job.blocks.align.write = [512, 8192][random.below(2) as usize];
    }
    if shape < 3 {
        let shape =
            [Distribution::Zipf(1.1, None), Distribution::Pareto(0.3, None), Distribution::Normal(20.0, Some(0.5))];
        job.pattern.distribution.write = shape[random.below(3) as usize];
    } else if zoned {
        job.pattern.zones.write = vec![(60.0, 10.0), (40.0, 90.0)];
    }
    let size = u64::from(job.files.count) * (8192 * (2 + random.below(5)));
    job.extent.size = Some(Amount::Bytes(size));
    if half || twice {
        job.extent.io_size = Some(Amount::Bytes(if half { size / 2 } else { size * 2 }));
    } else if ios {
        job.extent.number_ios = Some(1 + random.below(12));
    }
    if strided {
        job.extent.strided = Some(Zones { size: 8192, range: [8192, 16384][random.below(2) as usize], skip: 4096 });
    }
    job.queue.depth = [1, 2, 4, 8, 32][random.below(5) as usize];
    job.queue.batch = 1 + random.below(u64::from(job.queue.depth)) as u32;
    job.queue.batch_complete_min = random.below(u64::from(job.queue.depth) + 1) as u32;
    job.queue.low = 1 + random.below(u64::from(job.queue.depth)) as u32;
    job.pattern.seed = random.next();
    if hurried {
        job.rate.iops = PerDirection { read: Some(3_000_000), write: Some(3_000_000), trim: None };
    }
    let kinds = [
        VerifyKind::Crc32c,
        VerifyKind::Crc64,
        VerifyKind::Crc32,
        VerifyKind::Xxhash,
        VerifyKind::Md5,
        VerifyKind::Sha1,
        VerifyKind::Sha256,
        VerifyKind::Sha512,
        VerifyKind::Sha3(256),
        VerifyKind::PatternHeader,
        VerifyKind::PatternOnly,
        VerifyKind::HeaderOnly,
    ];
    // Of a lying storage, only kinds are asked that look at every byte.
    let kind = kinds[random.below(if lying { 11 } else { 12 }) as usize];
    let mut verify = Verify { kind, ..Verify::default() };
    if matches!(kind, VerifyKind::PatternHeader | VerifyKind::PatternOnly) {
        verify.pattern = VerifyPattern { bytes: b"\xabcd--------x".to_vec(), offset_at: vec![3] };
    }
    verify.backlog = [0, 1, 4, 16, 64][random.below(5) as usize];
    verify.backlog_batch = [0, 0, 1, 7, 40][random.below(5) as usize];
    verify.interval = [0, 512, 1024][random.below(3) as usize];
    verify.header_offset = [0, 0, 300][random.below(3) as usize];
    verify.sorted = random.below(2) == 0;
    let loses_trims = matches!(mood, Mood::Lying(Fault::LostTrim | Fault::TornTrim));
    if loses_trims || random.below(4) == 0 {
        verify.trims = VerifyTrims {
            percent: [3, 40, 50, 100][random.below(4) as usize],
            backlog: [0, 1, 3, 16][random.below(4) as usize],
            batch: [0, 0, 1, 40][random.below(4) as usize],
            must_be_zero: loses_trims || random.below(4) > 0,
        };
    }
    job.verify = Some(verify);
    job
}

/// True if everything that the job writes can be read back: no block is left with an overwritten part that had no
/// header of its own.
fn leaves_no_remains(job: &Job) -> bool {
    let Some(verify) = &job.verify else { return false };
    let (low, high) = job.blocks.range.write;
    let aligned = |to: u64| {
        job.blocks.align.write.is_multiple_of(to) && job.rw.sequential_stride.unsigned_abs().is_multiple_of(to)
    };
    let trims = job.rw.directions.trim;
    if job.blocks.unaligned || job.blocks.is_seq_rand || trims {
        return false;
    }
    if low == high && job.blocks.split.write.is_empty() {
        return aligned(low);
    }
    verify.pattern.bytes.is_empty() && [512, 1024, 2048].iter().all(|&to| low % to != 0 || aligned(to)) && aligned(low)
}

/// The outcome of a case.
struct Outcome {
    report: Report,
    storage: Storage,
    job: Job,
}

/// Runs one case; None if the job is refused.
fn run(seed: u64, mood_of: impl Fn(&mut Random) -> Mood) -> Option<(Outcome, Mood)> {
    let mut random = Random::new(seed);
    let mood = mood_of(&mut random);
    let mut job = random_job(&mut random, mood);
    let clone = random.below(3) as u32;
    let stop = AtomicBool::new(false);
    let mut context =
        Context { backing: Backing::Nowhere, names: None, stop: &stop, fill: &mut |_, _| {}, progress: &mut |_| {} };
    let target = Target::prepare(&job, clone, &mut context).ok()?;
    let files = target.extents().iter().map(|extent| {
        let bytes = (extent.offset + extent.size) as usize;
        File { stored: vec![0; bytes], truth: vec![0; bytes], known: vec![false; bytes], checked: vec![false; bytes] }
    });
    let storage = Storage {
        files: files.collect(),
        reads_are_checked: !job.rw.directions.read,
        // Of the trims of `rw=trimwrite` the clone believes nothing; they are zeroes here all the same.
        trims_are_zeroes: job
            .verify
            .as_ref()
            .is_some_and(|verify| verify.trims.percent > 0 && verify.trims.must_be_zero),
        short: if mood == Mood::Failing { 40 } else { 0 },
        failing: if mood == Mood::Failing { 20 } else { 0 },
        room: if mood == Mood::Full { random.below(60) } else { u64::MAX },
        fault: if let Mood::Lying(fault) = mood { Some(fault) } else { None },
        wrong_reads: 0,
        reads: 0,
        violations: Vec::new(),
        random,
    };
    job.extent.fill = mood == Mood::Full;
    let storage = Arc::new(Mutex::new(storage));
    STORAGE.with(|here| *here.borrow_mut() = Some(Arc::clone(&storage)));
    let seats = Seats::new(1).unwrap();
    seats.seat(0).open_gate(monotonic_ns());
    let report = clone::run(&Orders {
        tables: &crate::runner::zones::Tables::default(),
        job: &job,
        maker: MODEL,
        target: &Mutex::new(target),
        largest_block: largest_block(&job),
        clone,
        seat: 0,
        flow: &[],
        seats: &seats,
        clock: Clock::monotonic(),
        statement: None,
        interval_ns: None,
        interval_histograms: false,
    });
    STORAGE.with(|here| *here.borrow_mut() = None);
    let storage = Arc::into_inner(storage).expect("the engine is gone").into_inner().unwrap();
    // Refused before the first op: an interval that its header does not fit, zones beyond the file.
    report.result.verified?;
    Some((Outcome { report, storage, job }, mood))
}

/// Runs `cases` cases and holds each to what its mood promises; how many read-backs were wrong, by fault.
fn hold(cases: u64, mood_of: impl Fn(&mut Random) -> Mood) -> BTreeMap<Fault, u64> {
    let start = std::env::var("MODEL_SEED").map_or(1, |seed| seed.parse().expect("MODEL_SEED is a number"));
    let (mut ran, mut checked, mut wrong) = (0, 0, BTreeMap::new());
    for seed in start..start + cases {
        let Some((Outcome { report, storage, job }, mood)) = run(seed, &mood_of) else { continue };
        let say = |what: &str| {
            let error = report.result.error.as_ref().map_or("", |error| &error.message);
            format!("MODEL_SEED={seed} {mood:?}: {what} ({error})\n{job:#?}")
        };
        let verified = report.result.verified.expect("it verifies");
        ran += 1;
        checked += verified.blocks;
        assert!(storage.violations.is_empty(), "{}", say(&storage.violations[0]));
        match mood {
            Mood::Lying(fault) => {
                assert_eq!(verified.blocks, storage.reads, "{}", say("not all read-backs are checked"));
                assert_eq!(verified.mismatches, storage.wrong_reads, "{}", say("reported and real corruption differ"));
                *wrong.entry(fault).or_default() += storage.wrong_reads;
            }
            _ => assert_eq!(verified.mismatches, 0, "{}", say("false alarm")),
        }
        let complete = matches!(mood, Mood::Good | Mood::Full) && !job.time.time_based && leaves_no_remains(&job);
        if complete {
            assert!(report.result.error.is_none(), "{}", say("the job failed"));
            for file in &storage.files {
                let missed = (0..file.known.len()).find(|&at| file.known[at] && !file.checked[at]);
                assert!(missed.is_none(), "{}", say(&format!("byte {missed:?} is not read back")));
            }
        }
    }
    eprintln!("seeds {start} to {}: {ran} jobs, {checked} read-backs, wrong ones {wrong:?}", start + cases - 1);
    assert!(ran * 10 > cases * 8, "{ran} of {cases} jobs ran");
    assert!(checked > ran, "{checked} read-backs");
    wrong
}

#[test]
fn storage_that_keeps_its_word_is_never_accused() {
    hold(6000, |random| [Mood::Good, Mood::Good, Mood::Failing, Mood::Full][random.below(4) as usize]);
}

#[test]
fn storage_that_lies_is_always_found_out() {
    let wrong = hold(6000, |random| Mood::Lying(FAULTS[random.below(FAULTS.len() as u64) as usize]));
    for fault in FAULTS {
        assert!(wrong.get(&fault).is_some_and(|&count| count > 100), "{fault:?} was hardly tried: {wrong:?}");
    }
}

//! Requirements that hold for every engine, run against every engine. A new engine is one line in the table at the end.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use job::Job;
use job::workload::OpKind;
use load::engine::{Completion, Engine, Maker, Queued, Request, Setup, Slot, Slots};
use measure::Direction;
use sys::buffer::Memory;

#[path = "conformance/namespaces.rs"]
mod namespaces;
use namespaces::Service;

const READ: OpKind = OpKind::Io(Direction::Read);
const WRITE: OpKind = OpKind::Io(Direction::Write);
const TRIM: OpKind = OpKind::Io(Direction::Trim);
const SLOT_BYTES: usize = 16 << 10;

/// An engine with options, and the abilities that the tests may ask for.
struct Subject {
    engine: &'static str,
    options: fn(&mut Job),
    /// True if the engine takes descriptors that do not belong to files: pipes, /dev/full.
    any_descriptor: bool,
    /// Offsets, lengths and buffers must be multiples of this.
    align: u64,
    /// Flags of open(2) for the files.
    flags: i32,
    /// True if the engine can have several ops in flight.
    asynchronous: bool,
    /// True if the engine is handed descriptors. Other engines open their files themselves.
    descriptors: bool,
    /// For an engine whose files are namespaces: the target that serves them. Other engines that open their files
    /// themselves open files on a Gluster volume.
    namespaces: Option<Service>,
}

impl Subject {
    /// True if the files are on a Gluster volume.
    fn is_on_volume(&self) -> bool {
        !self.descriptors && self.namespaces.is_none()
    }
}

/// The volume of rigs/gluster-volume.sh, in which such engines are tested: a directory of the volume, as the program
/// on the client's host sees it.
fn volume() -> PathBuf {
    let mounts = std::env::var_os("GLUSTER_MOUNTS").expect("runs inside rigs/gluster-volume.sh");
    PathBuf::from(mounts).join("1")
}

const BLOCKING: Subject = Subject {
    engine: "psync",
    options: |_| {},
    any_descriptor: true,
    align: 1,
    flags: 0,
    asynchronous: false,
    descriptors: true,
    namespaces: None,
};

const ASYNCHRONOUS: Subject = Subject { engine: "io_uring", asynchronous: true, ..BLOCKING };

/// A directory for files, on the file system of the build directory or in a volume.
struct Place(PathBuf);

impl Place {
    fn new(subject: &Subject) -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = match subject.is_on_volume() {
            true => volume().join(name),
            false => std::env::current_exe().unwrap().with_file_name(name),
        };
        fs::create_dir(&path).unwrap();
        Place(path)
    }

    /// A new file of that content, and a path at which its content can be seen.
    fn file(&self, name: &str, content: &[u8], subject: &Subject) -> (File, PathBuf) {
        use std::os::unix::fs::OpenOptionsExt;
        let path = match subject.namespaces {
            Some(Service::Guest) => namespaces::disk_of_guest(content),
            _ => {
                let path = self.0.join(name);
                let _ = fs::remove_file(&path);
                fs::write(&path, content).unwrap();
                path
            }
        };
        let file = File::options().read(true).write(true).custom_flags(subject.flags).open(&path).unwrap();
        if !subject.is_on_volume() {
            return (file, path);
        }
        // Mounts cache: the brick itself has what the engine has written.
        let bricks = PathBuf::from(std::env::var_os("GLUSTER_BRICKS").unwrap());
        (file, bricks.join("1").join(path.strip_prefix(volume()).unwrap()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An engine at work, with its buffers.
struct Rig {
    engine: Box<dyn Engine>,
    slots: Arc<Slots>,
    free: Vec<Slot>,
    /// Alternates between the two ways of submitting and reaping.
    combined: bool,
    /// Directory of the files of an engine that opens them by itself: `0`, `1`, ..., made when they are opened.
    own: Option<Place>,
    /// The target that an engine connects to whose files are namespaces.
    target: Option<namespaces::Target>,
}

impl Rig {
    /// None, with the reason on standard error, where the engine does not exist.
    fn new(subject: &Subject, depth: u32, files: u32) -> Option<Rig> {
        let mut job = Job { engine: subject.engine.into(), name: "conformance".into(), ..Job::default() };
        job.syncs.range = Some((7, 1));
        (subject.options)(&mut job);
        let (slots, free) = Slots::new(depth + 2, SLOT_BYTES, 0, &Memory::Anonymous).unwrap();
        let maker = Maker::find(subject.engine).unwrap();
        assert_eq!(maker.spec.synchronous, !subject.asynchronous);
        let own = subject.is_on_volume().then(|| Place::new(subject));
        let mut names = Vec::new();
        let target = subject.namespaces.map(namespaces::Target::start);
        if let Some(target) = &target {
            names.extend((1..=files).map(|nsid| target.filename(nsid)));
        }
        if let Some(Place(directory)) = &own {
            let server = std::env::var("GLUSTER_SERVER").unwrap();
            let directory = directory.strip_prefix(volume()).unwrap().display();
            names.extend((0..files).map(|file| format!("gluster://{server}/gv0/{directory}/{file}")));
            job.rw.directions.write = true;
        }
        let setup = Setup { job: &job, slots: Arc::clone(&slots), depth, files, names: &names, clone: 0 };
        match maker.make(&setup) {
            Ok(engine) => Some(Rig { engine, slots, free, combined: false, own, target }),
            Err(error) => {
                eprintln!("skipped: {error}");
                None
            }
        }
    }

    /// Makes a file known to the engine.
    fn open(&mut self, file: u32, open: &impl AsRawFd) {
        let fd = open.as_raw_fd();
        if let Some(Place(directory)) = &self.own {
            // A name once opened stays with its file: clients of a volume remember for a second what a name means.
            let name = directory.join(file.to_string());
            if !name.exists() {
                fs::hard_link(fs::read_link(format!("/proc/self/fd/{fd}")).unwrap(), name).unwrap();
            }
        }
        if let Some(target) = &self.target {
            target.serve(file + 1, fs::read_link(format!("/proc/self/fd/{fd}")).unwrap());
        }
        self.engine.open(file, fd).unwrap();
    }

    fn request(&mut self, kind: OpKind, file: u32, offset: u64, len: usize) -> Request {
        Request { slot: self.free.pop().unwrap(), kind, file, offset, len: len as u32, skip: 0, priority: 0 }
    }

    /// Queues, submitting when the engine is full.
    fn start(&mut self, mut request: Request, done: &mut Vec<Completion>) {
        loop {
            match self.engine.queue(request) {
                Queued::Later => return,
                Queued::Done(completion) => return done.push(completion),
                Queued::Full(back) => {
                    request = back;
                    self.engine.submit().unwrap();
                    self.engine.reap(0, usize::MAX, None, done).unwrap();
                }
            }
        }
    }

    /// Submits everything and waits until `count` ops are in `done`.
    fn finish(&mut self, count: usize, done: &mut Vec<Completion>) {
        while done.len() < count {
            let missing = count - done.len();
            if self.combined {
                self.engine.submit_and_reap(missing, missing, None, done).unwrap();
            } else {
                self.engine.submit().unwrap();
                self.engine.reap(1, missing, None, done).unwrap();
            }
        }
        self.combined = !self.combined;
        assert_eq!(done.len(), count);
    }

    /// Carries out one request: its result and the bytes of its slot.
    fn carry_out(&mut self, request: Request) -> (i64, Vec<u8>) {
        let mut done = Vec::new();
        self.start(request, &mut done);
        self.finish(1, &mut done);
        let Completion { slot, result } = done.pop().unwrap();
        let bytes = self.slots.bytes(&slot).to_vec();
        self.free.push(slot);
        (result, bytes)
    }

    fn op(&mut self, kind: OpKind, file: u32, offset: u64, len: usize) -> i64 {
        let request = self.request(kind, file, offset, len);
        self.carry_out(request).0
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> i64 {
        let mut request = self.request(WRITE, file, offset, bytes.len());
        self.slots.bytes_mut(&mut request.slot)[..bytes.len()].copy_from_slice(bytes);
        self.carry_out(request).0
    }
}

/// Bytes that tell where they are.
fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

fn written_data_is_read_back_exactly_where_it_was_written(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 2) else { return };
    let place = Place::new(subject);
    let (first, path) = place.file("a", &[0xaa; 128 << 10], subject);
    let (second, other) = place.file("b", &[0xbb; 64 << 10], subject);
    rig.open(0, &first);
    rig.open(1, &second);
    let mut expected = vec![0xaa; 128 << 10];
    let odd = [(0, 1), (4095, 2), (5000, 777), (70_000, 16_384), (131_071, 1)];
    let even = [(0, 4096), (8192, 16_384), (4096, 4096), (122_880, 8192), (65_536, 512 * 8)];
    for (offset, len) in if subject.align == 1 { odd } else { even } {
        let bytes = pattern(offset, len);
        assert_eq!(rig.write(0, offset, &bytes), len as i64);
        expected[offset as usize..][..len].copy_from_slice(&bytes);
    }
    assert_eq!(rig.op(OpKind::Sync, 0, 0, 0), 0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    assert_eq!(fs::read(&other).unwrap(), [0xbb; 64 << 10], "the other file is as it was");

    // Back through the engine, and into the middle of the buffer: what lies around is not touched.
    let skip = subject.align.max(100) as usize;
    let (offset, len) = if subject.align == 1 { (4999, 999) } else { (4096, 8192) };
    let mut request = rig.request(READ, 0, offset, len);
    request.skip = skip as u32;
    rig.slots.bytes_mut(&mut request.slot).fill(0x55);
    let (result, bytes) = rig.carry_out(request);
    assert_eq!(result, len as i64);
    assert_eq!(bytes[skip..][..len], expected[offset as usize..][..len]);
    assert!(bytes[..skip].iter().chain(&bytes[skip + len..]).all(|&byte| byte == 0x55));
}

fn short_reads_at_the_end_are_results(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let place = Place::new(subject);
    // Namespaces end with a block.
    let size = if subject.namespaces.is_some() { 5120 } else { 5000 };
    let (file, _) = place.file("short", &vec![7; size], subject);
    rig.open(0, &file);
    assert_eq!(rig.op(READ, 0, 4096, 8192), size as i64 - 4096);
    assert_eq!(rig.op(READ, 0, 8192, 4096), 0);
    assert_eq!(rig.op(READ, 0, 0, 4096), 4096);
}

fn errors_are_results(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 4) else { return };
    let place = Place::new(subject);
    let (file, path) = place.file("errors", &[7; 8192], subject);
    rig.open(0, &file);
    if subject.descriptors {
        for kind in [READ, WRITE, OpKind::Sync, OpKind::DataSync, TRIM] {
            assert_eq!(rig.op(kind, 1, 0, 4096), -i64::from(libc::EBADF), "{kind:?} on a file that is not open");
        }
        let write_only = File::options().write(true).open(&path).unwrap();
        rig.open(2, &write_only);
        assert_eq!(rig.op(READ, 2, 0, 4096), -i64::from(libc::EBADF));
    }
    let mut beyond = rig.op(WRITE, 0, 1 << 61, 4096);
    if !subject.descriptors && beyond == 4096 {
        beyond = rig.op(OpKind::Sync, 0, 0, 0); // acknowledged by a cache, which has to tell later
    }
    assert!([libc::EFBIG, libc::EINVAL].contains(&(-beyond as i32)), "beyond any file: {beyond}");
    if subject.any_descriptor {
        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        rig.open(3, &full);
        assert_eq!(rig.op(WRITE, 3, 0, 4096), -i64::from(libc::ENOSPC));
        rig.engine.close(3);
        // Address 0 of this process is not mapped.
        let memory = File::open("/proc/self/mem").unwrap();
        rig.open(3, &memory);
        assert_eq!(rig.op(READ, 3, 0, 4096), -i64::from(libc::EIO));
    }
    assert_eq!(rig.op(READ, 0, 0, 4096), 4096, "the engine goes on");
}

/// The kernel refuses a priority of a class that it does not know: the priority of a request arrives there.
fn priorities_of_requests_reach_the_kernel(subject: &Subject) {
    let spec = job::engines::find(subject.engine).unwrap();
    if !spec.options.contains(&"cmdprio_percentage") {
        return;
    }
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let place = Place::new(subject);
    let (file, _) = place.file("priorities", &[7; 8192], subject);
    rig.open(0, &file);
    for (kind, class, expected) in
        [(READ, 2, 4096), (WRITE, 3, 4096), (READ, 7, -i64::from(libc::EINVAL)), (WRITE, 7, -i64::from(libc::EINVAL))]
    {
        let mut request = rig.request(kind, 0, 0, 4096);
        request.priority = class << 13;
        assert_eq!(rig.carry_out(request).0, expected, "{kind:?} of class {class}");
    }
}

fn syncs_succeed_and_trims_make_holes(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let place = Place::new(subject);
    let (file, path) = place.file("trim", &[7; 64 << 10], subject);
    rig.open(0, &file);
    for kind in [OpKind::Sync, OpKind::DataSync, OpKind::SyncRange] {
        assert_eq!(rig.op(kind, 0, 0, 0), 0, "{kind:?}");
    }
    assert_eq!(rig.op(TRIM, 0, 8192, 16_384), 16_384);
    let content = fs::read(&path).unwrap();
    assert_eq!(content.len(), 64 << 10, "the size stays");
    assert!(content[8192..24_576].iter().all(|&byte| byte == 0));
    assert!(content[..8192].iter().chain(&content[24_576..]).all(|&byte| byte == 7));
}

fn many_in_flight_complete_exactly_once(subject: &Subject) {
    const BLOCKS: u64 = 256;
    let Some(mut rig) = Rig::new(subject, 64, 1) else { return };
    let place = Place::new(subject);
    let (file, _) = place.file("many", &pattern(0, BLOCKS as usize * 4096), subject);
    rig.open(0, &file);
    let mut at = vec![None; rig.slots.count() as usize];
    let (mut issued, mut finished, mut seed) = (0_u64, 0, 1_u64);
    let mut done = Vec::new();
    while finished < 5000 {
        while issued < 5000
            && let Some(slot) = rig.free.pop()
        {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = seed >> 33 & (BLOCKS - 1);
            let index = slot.index() as usize;
            assert!(at[index].replace(block).is_none(), "a slot was given out twice");
            issued += 1;
            match rig.engine.queue(Request {
                slot,
                kind: READ,
                file: 0,
                offset: block * 4096,
                len: 4096,
                skip: 0,
                priority: 0,
            }) {
                Queued::Later => {}
                Queued::Done(completion) => done.push(completion),
                Queued::Full(request) => {
                    issued -= 1;
                    at[index] = None;
                    rig.free.push(request.slot);
                    break;
                }
            }
            if issued.is_multiple_of(7) {
                rig.engine.submit().unwrap();
            }
        }
        if subject.asynchronous {
            let (min, max) = (1 + (seed % 16) as usize, 1 + (seed % 37) as usize);
            let before = done.len();
            rig.engine.submit_and_reap(min, max, None, &mut done).unwrap();
            assert!(done.len() - before <= max, "more than was asked for");
        }
        for Completion { slot, result } in done.drain(..) {
            let block = at[slot.index() as usize].take().expect("completed twice, or never issued");
            assert_eq!(result, 4096);
            assert_eq!(rig.slots.bytes(&slot)[..4096], pattern(block * 4096, 4096));
            finished += 1;
            rig.free.push(slot);
        }
    }
    assert_eq!((issued, finished), (5000, 5000));
    let tokens: HashSet<u32> = rig.free.iter().map(Slot::index).collect();
    assert_eq!(tokens.len() + at.iter().flatten().count(), rig.slots.count() as usize);
}

fn a_full_engine_hands_the_request_back(subject: &Subject) {
    if !subject.asynchronous {
        return;
    }
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let place = Place::new(subject);
    let (file, _) = place.file("full", &[1; 64 << 10], subject);
    rig.open(0, &file);
    for index in 0..4 {
        let request = rig.request(READ, 0, index * 4096, 4096);
        assert!(matches!(rig.engine.queue(request), Queued::Later));
    }
    let request = rig.request(READ, 0, 4 * 4096, 512);
    let (slot, offset) = (request.slot.index(), request.offset);
    let Queued::Full(back) = rig.engine.queue(request) else { panic!("a fifth request at depth 4") };
    assert_eq!((back.slot.index(), back.offset, back.len), (slot, offset, 512));
    let mut done = Vec::new();
    rig.finish(4, &mut done);
    assert!(matches!(rig.engine.queue(back), Queued::Later), "there is room again");
    rig.finish(5, &mut done);
}

fn a_bad_request_in_a_batch_fails_alone(subject: &Subject) {
    if !subject.descriptors {
        return;
    }
    let Some(mut rig) = Rig::new(subject, 8, 2) else { return };
    let place = Place::new(subject);
    let (file, _) = place.file("batch", &[1; 64 << 10], subject);
    rig.open(0, &file);
    let bad = [0, 1, 1, 0, 0, 1, 0, 0];
    let mut done = Vec::new();
    let mut file_of = vec![None; rig.slots.count() as usize];
    for (index, file) in bad.into_iter().enumerate() {
        let request = rig.request(READ, file, index as u64 * 4096, 4096);
        file_of[request.slot.index() as usize] = Some(file);
        rig.start(request, &mut done);
    }
    rig.finish(bad.len(), &mut done);
    for Completion { slot, result } in done {
        let expected = if file_of[slot.index() as usize].take() == Some(0) { 4096 } else { -i64::from(libc::EBADF) };
        assert_eq!(result, expected);
    }
}

fn files_open_and_close_while_others_are_in_flight(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 16, 3) else { return };
    let place = Place::new(subject);
    let (steady, _) = place.file("steady", &[1; 64 << 10], subject);
    rig.open(0, &steady);
    for round in 0..20_u8 {
        let mut done = Vec::new();
        for index in 0..8 {
            let request = rig.request(READ, 0, index * 4096, 4096);
            rig.start(request, &mut done);
        }
        rig.engine.submit().unwrap();
        let content = if subject.descriptors { round } else { round % 2 };
        let (passing, _) = place.file("passing", &[content; 4096], subject);
        let file = 1 + u32::from(round % 2);
        rig.open(file, &passing);
        let request = rig.request(READ, file, 0, 4096);
        let mine = request.slot.index();
        rig.start(request, &mut done);
        rig.finish(9, &mut done);
        rig.engine.close(file);
        drop(passing);
        for Completion { slot, result } in done {
            let byte = if slot.index() == mine { content } else { 1 };
            assert_eq!(result, 4096);
            assert!(rig.slots.bytes(&slot)[..4096].iter().all(|&b| b == byte));
            rig.free.push(slot);
        }
        if subject.descriptors {
            assert_eq!(rig.op(READ, file, 0, 4096), -i64::from(libc::EBADF), "closed means closed");
        }
    }
}

fn polling_and_waiting_for_nothing_return_at_once(subject: &Subject) {
    let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
    let mut done = Vec::new();
    assert_eq!(rig.engine.submit().unwrap(), 0);
    rig.engine.reap(0, usize::MAX, None, &mut done).unwrap();
    rig.engine.reap(3, usize::MAX, None, &mut done).unwrap(); // nothing is in flight: nothing to wait for
    rig.engine.submit_and_reap(1, 1, Some(u64::MAX), &mut done).unwrap();
    assert!(done.is_empty());
}

fn dropping_an_engine_waits_for_what_is_in_flight(subject: &Subject) {
    let place = Place::new(subject);
    let (file, _) = place.file("drop", &pattern(0, 1 << 20), subject);
    for round in 0..20 {
        let Some(mut rig) = Rig::new(subject, 32, 1) else { return };
        rig.open(0, &file);
        let mut done = Vec::new();
        for index in 0..32 {
            let request = rig.request(READ, 0, (index * 7 % 64) * SLOT_BYTES as u64, SLOT_BYTES);
            rig.start(request, &mut done);
        }
        if round % 2 == 0 {
            rig.engine.submit().unwrap();
        }
        drop(rig); // the memory goes with it: a write by the kernel afterwards would be seen by the address sanitizer
    }
}

/// A pipe: (read end, write end).
fn pipe() -> (OwnedFd, File) {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors that the kernel writes.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: pipe2 succeeded, so `ends[0]` is a new descriptor, and nobody else owns it.
    let read = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: pipe2 succeeded, so `ends[1]` is a new descriptor, and nobody else owns it.
    let write = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    (read, File::from(write))
}

/// A rig with a read of an empty pipe in flight: it completes when something is written, not before.
fn waiting_rig(subject: &Subject) -> Option<(Rig, OwnedFd, File)> {
    if !subject.asynchronous || !subject.any_descriptor {
        return None;
    }
    let mut rig = Rig::new(subject, 4, 1)?;
    let (read, write) = pipe();
    rig.open(0, &read);
    let request = rig.request(READ, 0, 0, 4096);
    assert!(matches!(rig.engine.queue(request), Queued::Later));
    rig.engine.submit().unwrap();
    Some((rig, read, write))
}

fn a_wait_ends_with_its_timeout(subject: &Subject) {
    let Some((mut rig, _read, mut write)) = waiting_rig(subject) else { return };
    let mut done = Vec::new();
    let start = Instant::now();
    rig.engine.reap(1, 1, Some(3_000_000), &mut done).unwrap();
    assert!(done.is_empty() && start.elapsed() >= Duration::from_millis(3));
    rig.engine.submit_and_reap(1, 1, Some(1_000_000), &mut done).unwrap();
    assert!(done.is_empty());
    write.write_all(b"now").unwrap();
    rig.engine.reap(1, 1, Some(60_000_000_000), &mut done).unwrap();
    assert_eq!(done[0].result, 3);
    assert_eq!(&rig.slots.bytes(&done[0].slot)[..3], b"now");
}

fn an_interrupted_wait_returns_early(subject: &Subject) {
    extern "C" fn nothing(_: libc::c_int) {}
    let Some((mut rig, _read, mut write)) = waiting_rig(subject) else { return };
    // SAFETY: zero is a valid sigaction: no flags, so that waits are not restarted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler does nothing, which is safe at any moment.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
    // SAFETY: pthread_self takes no arguments and cannot fail.
    let waiter = unsafe { libc::pthread_self() };
    let returned = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Again and again: the first may come before the wait has begun.
            while !returned.load(Ordering::Relaxed) {
                // SAFETY: the waiter lives as long as this scope.
                unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
                std::thread::yield_now();
            }
        });
        let mut done = Vec::new();
        rig.engine.reap(1, 1, None, &mut done).unwrap();
        returned.store(true, Ordering::Relaxed);
        assert!(done.is_empty());
    });
    write.write_all(b"x").unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        rig.engine.reap(1, 1, None, &mut done).unwrap(); // late signals end waits early, too
    }
    assert_eq!(done[0].result, 1);
}

fn a_request_that_never_completes_is_called_back(subject: &Subject) {
    let Some((rig, read, mut write)) = waiting_rig(subject) else { return };
    let slots = Arc::clone(&rig.slots);
    drop(rig);
    assert_eq!(Arc::strong_count(&slots), 1, "nothing was left to the kernel");
    write.write_all(b"late").unwrap();
    let mut bytes = [0; 8];
    assert_eq!(std::io::Read::read(&mut File::from(read), &mut bytes).unwrap(), 4, "the read did not take the data");
}

/// On a device, trims are discards. Needs root and a free loop device.
fn trims_discard_on_devices(subject: &Subject) {
    if !subject.descriptors {
        return;
    }
    let place = Place::new(subject);
    let path = place.0.join("disk");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let Some((device, name)) = attach_loop(&path) else { return eprintln!("skipped: no loop device (needs root)") };
    {
        use std::os::unix::fs::OpenOptionsExt;
        let Some(mut rig) = Rig::new(subject, 4, 1) else { return };
        let file = File::options().read(true).write(true).custom_flags(subject.flags).open(&name).unwrap();
        rig.open(0, &file);
        assert_eq!(rig.op(TRIM, 0, 64 << 10, 4096), 4096);
        assert_eq!(rig.op(TRIM, 0, 128 << 10, 16_384), 16_384);
        let misaligned = rig.op(TRIM, 0, 100, 100);
        assert_eq!(misaligned, -i64::from(libc::EINVAL));
        assert_eq!(rig.op(READ, 0, 64 << 10, 4096), 4096);
        assert_eq!(rig.op(TRIM, 0, 1 << 30, 4096), -i64::from(libc::EINVAL), "beyond the end");
    }
    let mut bytes = vec![0; 1 << 20];
    device.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[64 << 10..68 << 10].iter().all(|&byte| byte == 0));
    assert!(bytes[128 << 10..144 << 10].iter().all(|&byte| byte == 0));
    assert!(bytes[..64 << 10].iter().all(|&byte| byte == 7));
    detach_loop(&device);
}

/// Attaches a file to a free loop device: the device and its path (loop(4)).
fn attach_loop(path: &std::path::Path) -> Option<(File, String)> {
    const LOOP_SET_FD: libc::Ioctl = 0x4C00;
    const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
    let backing = File::options().read(true).write(true).open(path).unwrap();
    let control = File::options().read(true).write(true).open("/dev/loop-control").ok()?;
    for _ in 0..100 {
        // SAFETY: the request LOOP_CTL_GET_FREE neither reads nor writes memory of this process.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
        let name = format!("/dev/loop{}", u32::try_from(number).ok()?);
        let device = File::options().read(true).write(true).open(&name).ok()?;
        // SAFETY: the request LOOP_SET_FD takes a descriptor and no memory. EBUSY: another test was faster.
        if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_FD, backing.as_raw_fd()) } == 0 {
            return Some((device, name));
        }
    }
    None
}

fn detach_loop(device: &File) {
    const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
    // SAFETY: the request LOOP_CLR_FD neither reads nor writes memory of this process.
    unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) };
}

macro_rules! suite {
    ($($(#[$attribute:meta])? $name:ident: $subject:expr;)*) => {
        /// The engines of the rows below.
        const ENGINES_OF_ROWS: &[&str] = &[$($subject.engine),*];

        $(suite!(@tests $name, $subject, [$(#[$attribute])?]
        written_data_is_read_back_exactly_where_it_was_written
        short_reads_at_the_end_are_results
        errors_are_results
        priorities_of_requests_reach_the_kernel
        syncs_succeed_and_trims_make_holes
        many_in_flight_complete_exactly_once
        a_full_engine_hands_the_request_back
        a_bad_request_in_a_batch_fails_alone
        files_open_and_close_while_others_are_in_flight
        polling_and_waiting_for_nothing_return_at_once
        dropping_an_engine_waits_for_what_is_in_flight
        a_wait_ends_with_its_timeout
        an_interrupted_wait_returns_early
        a_request_that_never_completes_is_called_back
        trims_discard_on_devices
        );)*
    };
    (@tests $name:ident, $subject:expr, $attribute:tt $($test:ident)*) => {
        mod $name {
            use super::*;
            const SUBJECT: Subject = $subject;
            $(suite!(@test $attribute $test);)*
        }
    };
    (@test [$(#[$attribute:meta])?] $test:ident) => {
        #[test] $(#[$attribute])? fn $test() { super::$test(&SUBJECT); }
    };
}

/// Engines without a row below, each with the reason.
const OUTSIDE: &[(&str, &str)] = &[
    ("net", "has a peer and no offsets: tests/net.rs is about it"),
    ("netsplice", "has a peer and no offsets: tests/net.rs is about it"),
    ("cpuio", "moves no bytes: tests/busy.rs is about it"),
    ("exec", "moves no bytes: tests/busy.rs is about it"),
    ("null", "moves no bytes: the last test of this file is about it"),
    ("falloc", "moves no bytes: tests/space_and_names.rs is about it"),
    ("ftruncate", "moves no bytes: tests/space_and_names.rs is about it"),
    ("sg", "needs a SCSI disk: tests/device_commands.rs is about it"),
    ("io_uring_cmd", "needs an NVMe drive: tests/device_commands.rs is about it"),
    ("filecreate", "calls on names: tests/space_and_names.rs is about it"),
    ("filestat", "calls on names: tests/space_and_names.rs is about it"),
    ("filedelete", "calls on names: tests/space_and_names.rs is about it"),
    ("dircreate", "calls on names: tests/space_and_names.rs is about it"),
    ("dirstat", "calls on names: tests/space_and_names.rs is about it"),
    ("dirdelete", "calls on names: tests/space_and_names.rs is about it"),
];

#[test]
fn every_engine_has_a_row_or_a_reason() {
    for engine in job::engines::ENGINES {
        let is_outside = OUTSIDE.iter().any(|(name, _)| *name == engine.name);
        assert!(ENGINES_OF_ROWS.contains(&engine.name) != is_outside, "{}: a row of suite! or of OUTSIDE", engine.name);
    }
}

/// libaio knows files and devices only, and is asynchronous with O_DIRECT.
const AIO: Subject = Subject { engine: "libaio", any_descriptor: false, ..ASYNCHRONOUS };
const DIRECT_AIO: Subject = Subject { align: 4096, flags: libc::O_DIRECT, ..AIO };
const DIRECT: Subject = Subject { align: 4096, flags: libc::O_DIRECT, ..ASYNCHRONOUS };

const NAMESPACES: Subject =
    Subject { descriptors: false, namespaces: Some(Service::Here), any_descriptor: false, align: 512, ..ASYNCHRONOUS };

/// The target of Linux, in a guest.
const NVMET: Subject = Subject { namespaces: Some(Service::Guest), ..NAMESPACES };

const RDMA: Subject = Subject { engine: "nvme_rdma", namespaces: Some(Service::Fabric), ..NAMESPACES };

/// The target of Linux over RDMA, on the machine of the engine, which is a guest.
const RDMA_LINUX: Subject = Subject { engine: "nvme_rdma", namespaces: Some(Service::Linux), ..NAMESPACES };

suite! {
    psync: BLOCKING;
    sync: Subject { engine: "sync", any_descriptor: false, ..BLOCKING };
    vsync: Subject { engine: "vsync", any_descriptor: false, ..BLOCKING };
    pvsync: Subject { engine: "pvsync", ..BLOCKING };
    pvsync2: Subject { engine: "pvsync2", ..BLOCKING };
    mmap: Subject { engine: "mmap", any_descriptor: false, ..BLOCKING };
    mmap_huge: Subject {
        engine: "mmap",
        any_descriptor: false,
        options: |job| job.ring.other.push(("thp".into(), "1".into())),
        ..BLOCKING
    };
    mmap_through: Subject { engine: "mmap", any_descriptor: false, options: |job| job.files.direct = true, ..BLOCKING };
    splice: Subject { engine: "splice", any_descriptor: false, ..BLOCKING };
    posixaio: Subject { engine: "posixaio", any_descriptor: false, ..ASYNCHRONOUS };
    posixaio_direct: Subject { engine: "posixaio", any_descriptor: false, ..DIRECT };
    libaio: AIO;
    libaio_direct: DIRECT_AIO;
    libaio_userspace_reap: Subject { options: |job| job.ring.userspace_reap = true, ..DIRECT_AIO };
    libaio_awake: Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..DIRECT_AIO };
    guasi: Subject { engine: "guasi", ..ASYNCHRONOUS };
    guasi_asleep: Subject { engine: "guasi", options: |job| job.ring.other.push(("poll".into(), "never".into())), ..ASYNCHRONOUS };
    guasi_direct: Subject { engine: "guasi", ..DIRECT };
    io_uring: ASYNCHRONOUS;
    io_uring_direct: DIRECT;
    io_uring_registered: Subject { options: |job| (job.ring.fixed_buffers, job.ring.register_files) = (true, true), ..ASYNCHRONOUS };
    io_uring_registered_direct: Subject { options: |job| (job.ring.fixed_buffers, job.ring.register_files) = (true, true), ..DIRECT };
    io_uring_awake: Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..ASYNCHRONOUS };
    io_uring_adaptive: Subject { options: |job| job.ring.other.push(("poll".into(), "adaptive".into())), ..DIRECT };
    io_uring_vectored: Subject { options: |job| job.ring.nonvectored = Some(false), ..ASYNCHRONOUS };
    io_uring_forced: Subject { options: |job| job.ring.force_async = 2, ..ASYNCHRONOUS };
    #[ignore = "run by gfapi_on_a_volume, which sets up a volume"]
    gfapi: Subject { engine: "gfapi", descriptors: false, any_descriptor: false, ..ASYNCHRONOUS };
    nvme_tcp: Subject { engine: "nvme_tcp", ..NAMESPACES };
    nvme_tcp_digests: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("digest_enable".into(), "BOTH".into())), ..NAMESPACES };
    nvme_tcp_queues: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("nr_io_queues".into(), "3".into())), ..NAMESPACES };
    nvme_tcp_awake: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("poll".into(), "always".into())), ..NAMESPACES };
    nvme_tcp_asleep: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("poll".into(), "never".into())), ..NAMESPACES };
    #[ignore = "run by nvme_tcp_on_the_target_of_linux, which boots one"]
    nvmet: Subject { engine: "nvme_tcp", ..NVMET };
    #[ignore = "run by nvme_tcp_on_the_target_of_linux, which boots one"]
    nvmet_header_digests: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("digest_enable".into(), "HEADER".into())), ..NVMET };
    #[ignore = "run by nvme_tcp_on_the_target_of_linux, which boots one"]
    nvmet_data_digests: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("digest_enable".into(), "DATA".into())), ..NVMET };
    #[ignore = "run by nvme_tcp_on_the_target_of_linux, which boots one"]
    nvmet_digests: Subject { engine: "nvme_tcp", options: |job| job.ring.other.push(("digest_enable".into(), "BOTH".into())), ..NVMET };
    nvme_rdma: RDMA;
    nvme_rdma_queues: Subject { options: |job| job.ring.other.push(("nr_io_queues".into(), "3".into())), ..RDMA };
    nvme_rdma_awake: Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..RDMA };
    nvme_rdma_asleep: Subject { options: |job| job.ring.other.push(("poll".into(), "never".into())), ..RDMA };
    #[ignore = "run by nvme_rdma_on_the_target_of_linux, which boots one"]
    rdma_linux: RDMA_LINUX;
    #[ignore = "run by nvme_rdma_on_the_target_of_linux, which boots one"]
    rdma_linux_queues: Subject { options: |job| job.ring.other.push(("nr_io_queues".into(), "3".into())), ..RDMA_LINUX };
    #[ignore = "run by nvme_rdma_on_the_target_of_linux, which boots one"]
    rdma_linux_asleep: Subject { options: |job| job.ring.other.push(("poll".into(), "never".into())), ..RDMA_LINUX };
    io_uring_sqpoll: Subject { options: |job| job.ring.sq_poll = true, ..ASYNCHRONOUS };
}

/// Needs root, and the GlusterFS that tests/needs installs.
#[test]
fn gfapi_on_a_volume() {
    let missing = ["/usr/sbin/glusterd", "/usr/sbin/glusterfs"].iter().find(|program| !PathBuf::from(program).exists());
    // SAFETY: geteuid takes no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if let Some(program) = missing {
        assert!(
            std::env::var("CI").as_deref() != Ok("true") || !is_root,
            "{program} is missing: under CI this is a failure"
        );
        return println!("skipped: gfapi_on_a_volume: {program} is not installed (tests/needs installs it)");
    }
    if !is_root {
        return println!("skipped: gfapi_on_a_volume: only root can make network namespaces");
    }
    let rig = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rigs/gluster-volume.sh");
    let mut suite = std::process::Command::new(rig);
    suite.env("OPTIONS", "network.ping-timeout=60"); // nobody falls silent here: who answers late is only busy
    suite.arg(std::env::current_exe().unwrap()).args(["gfapi::", "--ignored", "--test-threads=2"]);
    let output = suite.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let passed = said.lines().filter(|line| line.starts_with("test gfapi::") && line.ends_with("... ok")).count();
    assert!(passed > 10 && !said.contains("skipped: "), "{said}\n{errors}");
}

/// The initiator with the target of a kernel of Debian 13, emulated: minutes. `make test-guest` runs this.
#[test]
#[ignore = "minutes of emulation: make test-guest"]
fn nvme_tcp_on_the_target_of_linux() {
    if let Some(missing) = namespaces::missing() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing} is missing: under CI this is a failure");
        return println!(
            "skipped: nvme_tcp_on_the_target_of_linux: {missing} is not installed (tests/needs installs it)"
        );
    }
    let output = namespaces::run_on_guest(&["nvmet", "--ignored", "--test-threads=1"]);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let passed = said.lines().filter(|line| line.starts_with("test nvmet") && line.ends_with("... ok")).count();
    assert!(passed > 50 && !said.contains("skipped: "), "{said}\n{errors}");
}

/// The initiator over RDMA with the target of a kernel of Debian 13, both on Soft-RoCE in a guest.
#[test]
#[ignore = "minutes of emulation: make test-guest"]
fn nvme_rdma_on_the_target_of_linux() {
    let output = namespaces::run_in_guest(&["rdma_linux", "--ignored", "--test-threads=1"]);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    let passed = said.lines().filter(|line| line.starts_with("test rdma_linux") && line.ends_with("... ok")).count();
    assert!(passed > 40 && !said.contains("skipped: "), "{said}\n{errors}");
}

/// Engines refuse with one line that says why and what to do.
mod refusals {
    use super::*;

    #[test]
    fn more_buffers_than_may_be_locked_or_files_than_may_be_open() {
        let job = Job { engine: "io_uring".into(), name: "j".into(), ..Job::default() };
        let (slots, _) = Slots::new(2, 4096, 0, &Memory::Anonymous).unwrap();
        let mut job = job;
        job.ring.register_files = true;
        let setup = Setup { job: &job, slots, depth: 2, files: (1 << 20) + 1, names: &[], clone: 0 };
        let error = Maker::find("io_uring").unwrap().make(&setup).map(drop).unwrap_err().to_string();
        assert!(
            !error.contains('\n') && (error.contains("registerfiles") || error.contains("not available")),
            "{error}"
        );
    }

    /// Run by the test below in a separate process, in which the system call is forbidden.
    #[test]
    #[ignore = "needs the seccomp filter that forbidden_io_uring_is_said_to_be_forbidden sets up"]
    fn inside_the_filter() {
        let (slots, _) = Slots::new(2, 4096, 0, &Memory::Anonymous).unwrap();
        let job = Job { engine: "io_uring".into(), name: "j".into(), ..Job::default() };
        let setup = Setup { job: &job, slots, depth: 2, files: 1, names: &[], clone: 0 };
        let error = Maker::find("io_uring").unwrap().make(&setup).map(drop).unwrap_err();
        assert_eq!(error.errno(), libc::EPERM);
        println!("refused with: {error}");
    }

    #[test]
    fn forbidden_io_uring_is_said_to_be_forbidden() {
        use std::os::unix::process::CommandExt;
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "--nocapture", "refusals::inside_the_filter"]);
        // SAFETY: between fork and exec, forbid_io_uring makes only two system calls, with memory on its own stack.
        unsafe { child.pre_exec(forbid_io_uring) };
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        let line = text.lines().find(|line| line.contains("refused with")).expect("the test ran");
        assert!(line.contains("io_uring_disabled") && line.contains("libaio"), "{line}");
    }

    /// A seccomp filter under which io_uring_setup(2) fails with EPERM, as containers have it.
    fn forbid_io_uring() -> std::io::Result<()> {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
        let mut steps = [
            step(LOAD, 0, 0), // the number of the system call
            step(JUMP_IF_EQUAL, 1, libc::SYS_io_uring_setup as u32),
            step(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: this prctl takes numbers only, and no memory.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: program describes the steps above, which are valid during the call.
        if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Reads whose data are thrown away count every byte, leave the memory as it was, and do not disturb what lies between
/// them on the connection.
#[test]
fn discarded_reads_count_their_bytes_and_leave_the_memory_alone() {
    let subject = Subject {
        options: |job| job.ring.other.push(("discard_payload".into(), "1".into())),
        engine: "nvme_tcp",
        ..NAMESPACES
    };
    let mut rig = Rig::new(&subject, 8, 1).unwrap();
    let place = Place::new(&subject);
    let (file, path) = place.file("a", &[0xaa; 256 << 10], &subject);
    rig.open(0, &file);
    let mut done = Vec::new();
    for round in 0..50 {
        let sizes = [512, SLOT_BYTES, 4096, SLOT_BYTES / 2, 512, 16 << 10, SLOT_BYTES];
        for len in sizes {
            let mut request = rig.request(READ, 0, 0, len);
            rig.slots.bytes_mut(&mut request.slot).fill(0x55);
            rig.start(request, &mut done);
        }
        let mut request = rig.request(WRITE, 0, 128 << 10, 4096);
        rig.slots.bytes_mut(&mut request.slot).fill(round);
        rig.start(request, &mut done);
        rig.finish(8, &mut done);
        let bytes: i64 = done.iter().map(|completion| completion.result).sum();
        assert_eq!(bytes, sizes.iter().sum::<usize>() as i64 + 4096, "round {round}");
        for Completion { slot, .. } in done.drain(..) {
            let memory = rig.slots.bytes(&slot);
            assert!(memory.iter().all(|&byte| byte == 0x55) || memory.iter().all(|&byte| byte == round));
            rig.free.push(slot);
        }
    }
    assert_eq!(rig.op(READ, 0, (256 << 10) - 512, 4096), 512, "a read across the end is short");
    let mut expected = vec![0xaa; 256 << 10];
    expected[128 << 10..][..4096].fill(49);
    assert_eq!(fs::read(&path).unwrap(), expected);
}

/// The sleeps of the calling thread so far: voluntary context switches.
fn sleeps() -> i64 {
    // SAFETY: a rusage is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage to `usage`.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) }, 0);
    usage.ru_nvcsw
}

/// An engine waits for a read that does not come. With `poll=always` the thread does not sleep. With `adaptive` it
/// sleeps at last, and so it does without the option, as fio does.
#[test]
fn a_wait_for_the_ring_sleeps_as_poll_says() {
    let awake = Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..ASYNCHRONOUS };
    let adaptive = Subject { options: |job| job.ring.other.push(("poll".into(), "adaptive".into())), ..ASYNCHRONOUS };
    // SAFETY: gettid takes nothing and cannot fail.
    let call = format!("/proc/self/task/{}/syscall", unsafe { libc::gettid() });
    let sleeps_in_ring = || fs::read_to_string(&call).unwrap().starts_with(&format!("{} ", libc::SYS_io_uring_enter));
    let mut done = Vec::new();
    for subject in [adaptive, ASYNCHRONOUS] {
        let Some((mut rig, _read, mut write)) = waiting_rig(&subject) else { return };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !sleeps_in_ring() {
                    std::thread::yield_now();
                }
                write.write_all(b"at last").unwrap();
            });
            rig.engine.reap(1, 1, None, &mut done).unwrap();
        });
        assert_eq!(done.drain(..).map(|completion| completion.result).collect::<Vec<_>>(), [7]);
    }
    let Some((mut rig, _read, mut write)) = waiting_rig(&awake) else { return };
    let before = sleeps();
    rig.engine.reap(1, 1, Some(5_000_000), &mut done).unwrap();
    assert_eq!((sleeps(), done.len()), (before, 0));
    write.write_all(b"at last").unwrap();
    rig.finish(1, &mut done);
    assert_eq!((sleeps(), done[0].result), (before, 7));
}

/// libaio looks into the ring that the kernel shares, and asks the kernel only for what is there.
#[test]
fn a_wait_for_libaio_does_not_sleep_with_poll_always() {
    let subject = Subject { options: |job| job.ring.other.push(("poll".into(), "always".into())), ..DIRECT_AIO };
    let Some(mut rig) = Rig::new(&subject, 4, 1) else { return };
    let place = Place::new(&subject);
    let (file, _) = place.file("a", &[0xaa; 64 << 10], &subject);
    rig.open(0, &file);
    let mut done = Vec::new();
    for round in 0..50 {
        let request = rig.request(READ, 0, round % 16 * 4096, 4096);
        rig.start(request, &mut done);
        rig.engine.submit().unwrap();
        let before = sleeps();
        while done.is_empty() {
            rig.engine.reap(1, 1, None, &mut done).unwrap();
        }
        assert_eq!(sleeps(), before, "round {round}");
        assert_eq!(done[0].result, 4096);
        rig.free.extend(done.drain(..).map(|completion| completion.slot));
    }
}

/// The null engine transfers nothing, and keeps to the same rules.
#[test]
fn the_null_engine_completes_everything_once() {
    let subject = Subject { engine: "null", ..ASYNCHRONOUS };
    let mut rig = Rig::new(&subject, 8, 1).unwrap();
    let mut done = Vec::new();
    for round in 0..100 {
        for index in 0..8 {
            let request = rig.request(if index == 7 { OpKind::Sync } else { READ }, 0, 0, 4096);
            assert!(matches!(rig.engine.queue(request), Queued::Later));
        }
        let request = rig.request(READ, 0, 0, 4096);
        let Queued::Full(back) = rig.engine.queue(request) else { panic!("nine at depth 8") };
        rig.free.push(back.slot);
        rig.engine.reap(0, usize::MAX, None, &mut done).unwrap();
        assert!(done.is_empty(), "nothing is complete before it is submitted");
        assert_eq!(rig.engine.submit().unwrap(), 8);
        rig.engine.reap(1, 3, None, &mut done).unwrap();
        assert_eq!(done.len(), 3);
        rig.finish(8, &mut done);
        let results: i64 = done.iter().map(|completion| completion.result).sum();
        assert_eq!(results, 7 * 4096, "round {round}");
        rig.free.extend(done.drain(..).map(|completion| completion.slot));
        assert_eq!(rig.free.iter().map(Slot::index).collect::<HashSet<_>>().len(), 10);
    }
}

//! An engine under test, with its files and buffers.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use job::Job;
use job::workload::OpKind;
use load::engine::{Completion, Engine, Maker, Queued, Request, Setup, Slot, Slots};
use measure::Direction;
use sys::buffer::Memory;

use super::namespaces::{self, Service};

pub const READ: OpKind = OpKind::Io(Direction::Read);
pub const WRITE: OpKind = OpKind::Io(Direction::Write);
pub const TRIM: OpKind = OpKind::Io(Direction::Trim);
pub const SLOT_BYTES: usize = 16 << 10;

/// An engine with options, and the abilities that the tests may ask for.
pub struct Subject {
    pub engine: &'static str,
    pub options: fn(&mut Job),
    /// True if the engine takes descriptors that do not belong to files: pipes, /dev/full.
    pub any_descriptor: bool,
    /// Offsets, lengths and buffers must be multiples of this.
    pub align: u64,
    /// Flags of open(2) for the files.
    pub flags: i32,
    /// True if the engine can have several ops in flight.
    pub asynchronous: bool,
    /// True if the engine is handed descriptors. Other engines open their files themselves.
    pub descriptors: bool,
    /// For an engine whose files are namespaces: the target that serves them. Other engines that open their files
    /// themselves open files on a Gluster volume.
    pub namespaces: Option<Service>,
}

impl Subject {
    /// True if the files are on a Gluster volume.
    pub fn is_on_volume(&self) -> bool {
        !self.descriptors && self.namespaces.is_none()
    }
}

/// The volume of rigs/gluster-volume.sh, in which such engines are tested: a directory of the volume, as the program
/// on the client's host sees it.
pub fn volume() -> PathBuf {
    let mounts = std::env::var_os("GLUSTER_MOUNTS").expect("runs inside rigs/gluster-volume.sh");
    PathBuf::from(mounts).join("1")
}

pub const BLOCKING: Subject = Subject {
    engine: "psync",
    options: |_| {},
    any_descriptor: true,
    align: 1,
    flags: 0,
    asynchronous: false,
    descriptors: true,
    namespaces: None,
};

pub const ASYNCHRONOUS: Subject = Subject { engine: "io_uring", asynchronous: true, ..BLOCKING };

/// A directory for files, on the file system of the build directory or in a volume.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(subject: &Subject) -> Place {
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
    pub fn file(&self, name: &str, content: &[u8], subject: &Subject) -> (File, PathBuf) {
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
pub struct Rig {
    pub engine: Box<dyn Engine>,
    pub slots: Arc<Slots>,
    pub free: Vec<Slot>,
    /// Alternates between the two ways of submitting and reaping.
    pub combined: bool,
    /// Directory of the files of an engine that opens them by itself: `0`, `1`, ..., made when they are opened.
    pub own: Option<Place>,
    /// The target that an engine connects to whose files are namespaces.
    pub target: Option<namespaces::Target>,
}

impl Rig {
    /// None, with the reason on standard error, where the engine does not exist.
    pub fn new(subject: &Subject, depth: u32, files: u32) -> Option<Rig> {
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
    pub fn open(&mut self, file: u32, open: &impl AsRawFd) {
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

    pub fn request(&mut self, kind: OpKind, file: u32, offset: u64, len: usize) -> Request {
        Request { slot: self.free.pop().unwrap(), kind, file, offset, len: len as u32, skip: 0, priority: 0 }
    }

    /// Queues, submitting when the engine is full.
    pub fn start(&mut self, mut request: Request, done: &mut Vec<Completion>) {
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
    pub fn finish(&mut self, count: usize, done: &mut Vec<Completion>) {
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
    pub fn carry_out(&mut self, request: Request) -> (i64, Vec<u8>) {
        let mut done = Vec::new();
        self.start(request, &mut done);
        self.finish(1, &mut done);
        let Completion { slot, result } = done.pop().unwrap();
        let bytes = self.slots.bytes(&slot).to_vec();
        self.free.push(slot);
        (result, bytes)
    }

    pub fn op(&mut self, kind: OpKind, file: u32, offset: u64, len: usize) -> i64 {
        let request = self.request(kind, file, offset, len);
        self.carry_out(request).0
    }

    pub fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> i64 {
        let mut request = self.request(WRITE, file, offset, bytes.len());
        self.slots.bytes_mut(&mut request.slot)[..bytes.len()].copy_from_slice(bytes);
        self.carry_out(request).0
    }
}

/// Bytes that tell where they are.
pub fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// A pipe: (read end, write end).
pub fn pipe() -> (OwnedFd, File) {
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
pub fn waiting_rig(subject: &Subject) -> Option<(Rig, OwnedFd, File)> {
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

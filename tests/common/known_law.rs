//! Storage of known law: a FUSE file system with one file, whose reads a queue with servers answers, and a loop device
//! that the kernel holds to a number of reads a second. The law is data, so a test can compute the truth.
//!
//! The queue runs in virtual time: a server that becomes free takes the next request at that moment, however late the
//! thread that simulates it wakes. With services of milliseconds, a busy processor hardly shows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ffi::{OsStr, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::consts::{FOPEN_DIRECT_IO, FUSE_ASYNC_DIO};
use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, KernelConfig, MountOption, ReplyAttr, ReplyData, ReplyEntry,
    ReplyOpen, Request,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::loop_device::LoopDevice;
use super::{directory, is_root, skip};

const FILE: u64 = 2;
const NAME: &str = "device";
const BYTES: u64 = 64 << 20;
const ENOENT: c_int = 2;
const FOREVER: Duration = Duration::from_secs(1 << 20);

/// The time that a server needs for one request, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// Always the same.
    Constant(f64),
    /// Exponential, with this mean.
    Exponential(f64),
    /// Lognormal, with this mean and this standard deviation of the logarithm.
    Lognormal(f64, f64),
    /// The first time, or with the given probability the second one.
    Bimodal(f64, f64, f64),
}

impl Service {
    /// The mean in milliseconds.
    pub fn mean_ms(self) -> f64 {
        match self {
            Service::Constant(ms) | Service::Exponential(ms) | Service::Lognormal(ms, _) => ms,
            Service::Bimodal(usual, rare, part) => usual * (1.0 - part) + rare * part,
        }
    }

    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Service::Constant(ms) => ms,
            Service::Exponential(ms) => -ms * random.uniform().ln(),
            Service::Lognormal(ms, sigma) => ms * (sigma * random.normal() - sigma * sigma / 2.0).exp(),
            Service::Bimodal(usual, rare, part) => {
                if random.uniform() < part {
                    rare
                } else {
                    usual
                }
            }
        }
    }
}

/// The law of a server.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// Requests that are served at the same time.
    pub servers: usize,
    /// The time that one takes.
    pub service: Service,
    /// With more requests than this in the system, services take this many times as long.
    pub cliff: Option<(usize, f64)>,
    /// Relative standard deviation of the speed, which changes every 0.3 s.
    pub noise: f64,
    /// Nothing is served for the second time in seconds, once in the first.
    pub stalls: Option<(f64, f64)>,
}

impl Law {
    /// The law of `servers` servers with this service, without cliff, noise and stalls.
    pub fn new(servers: usize, service: Service) -> Law {
        Law { servers, service, cliff: None, noise: 0.0, stalls: None }
    }

    /// Requests per second with that many in flight all the time, where this has a closed form: services do not depend
    /// on each other, and each request in flight up to the servers has one for itself.
    pub fn iops(&self, depth: usize) -> f64 {
        let slower = self.cliff.filter(|(above, _)| depth > *above).map_or(1.0, |(_, times)| times);
        depth.min(self.servers) as f64 * 1000.0 / (self.service.mean_ms() * slower)
    }
}

/// One request as the server saw it, in nanoseconds of the clock since the server began.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub arrived_ns: u64,
    pub replied_ns: u64,
}

struct Random(Xoshiro256PlusPlus);

impl Random {
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

struct Waiting {
    arrived_ns: u64,
    bytes: u32,
    reply: ReplyData,
}

struct Queue {
    law: Law,
    began: Instant,
    random: Random,
    waiting: VecDeque<Waiting>,
    /// The ends of services, and the places of their requests in `served`.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    served: Vec<Option<Waiting>>,
    /// The present factor of the speed, and until when it holds.
    speed: (f64, u64),
    log: Vec<Seen>,
    is_over: bool,
}

impl Queue {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Begins services while servers are free, at the time `at`.
    fn serve(&mut self, at: u64) {
        while self.ends.len() < self.law.servers {
            let in_system = self.ends.len() + self.waiting.len();
            let Some(next) = self.waiting.pop_front() else { return };
            if at >= self.speed.1 {
                self.speed = ((self.law.noise * self.random.normal()).exp(), at + 300_000_000);
            }
            let slower = self.law.cliff.filter(|(above, _)| in_system > *above).map_or(1.0, |(_, times)| times);
            let ms = self.law.service.draw(&mut self.random) * slower * self.speed.0;
            let end = self.law.stalls.map_or(at, |stall| out_of_stall(at, stall)) + (ms * 1e6) as u64;
            let place = self.served.iter().position(Option::is_none).unwrap_or_else(|| {
                self.served.push(None);
                self.served.len() - 1
            });
            self.served[place] = Some(next);
            self.ends.push(Reverse((end, place)));
        }
    }
}

/// The time, or the end of the stall that it lies in: stalls are at the end of each period.
fn out_of_stall(at: u64, (every_s, length_s): (f64, f64)) -> u64 {
    let (every, length) = ((every_s * 1e9) as u64, (length_s * 1e9) as u64);
    if at % every >= every - length { at - at % every + every } else { at }
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("whole")
    }

    /// Answers requests whose services end, until the server is over.
    fn run(&self) {
        let mut queue = self.lock();
        while !queue.is_over {
            let now = queue.now_ns();
            let due = queue.ends.peek().map(|Reverse((end, _))| *end);
            match due {
                Some(end) if end <= now => {
                    let Some(Reverse((end, place))) = queue.ends.pop() else { continue };
                    let done = queue.served[place].take().expect("served");
                    queue.serve(end);
                    queue.log.push(Seen { arrived_ns: done.arrived_ns, replied_ns: now });
                    done.reply.data(&ZEROES[..done.bytes as usize]);
                }
                Some(end) => {
                    queue = self.changed.wait_timeout(queue, Duration::from_nanos(end - now)).expect("whole").0
                }
                None => queue = self.changed.wait(queue).expect("whole"),
            }
        }
    }
}

static ZEROES: [u8; 1 << 20] = [0; 1 << 20];

/// A server; unmounted when dropped.
pub struct Server {
    /// The file to read.
    pub path: PathBuf,
    shared: Arc<Shared>,
    _session: BackgroundSession,
}

impl Server {
    /// A server with this law, mounted in a new directory below `directory`. None, with the reason printed, where FUSE
    /// file systems cannot be mounted.
    pub fn below(directory: &Path, law: Law) -> Option<Server> {
        if !is_root("mount a FUSE file system") {
            return None;
        }
        let place = tempfile::tempdir_in(directory).expect("a new directory").keep();
        let queue = Queue {
            law,
            began: Instant::now(),
            random: Random(Xoshiro256PlusPlus::seed_from_u64(7)),
            waiting: VecDeque::new(),
            ends: BinaryHeap::new(),
            served: Vec::new(),
            speed: (1.0, 0),
            log: Vec::new(),
            is_over: false,
        };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        match fuser::spawn_mount2(Mounted(Arc::clone(&shared)), &place, &[MountOption::FSName("known-law".into())]) {
            Ok(session) => {
                let server = Arc::clone(&shared);
                std::thread::spawn(move || server.run());
                Some(Server { path: place.join(NAME), shared, _session: session })
            }
            Err(error) => {
                skip(&format!("no FUSE file system: {error}"), false);
                None
            }
        }
    }

    /// The requests that were answered so far, in order; the log is empty afterwards.
    pub fn take_log(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.lock().log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

struct Mounted(Arc<Shared>);

fn attributes(ino: u64) -> FileAttr {
    let (size, kind, perm) = match ino {
        FILE => (BYTES, FileType::RegularFile, 0o600),
        _ => (0, FileType::Directory, 0o700),
    };
    let (atime, mtime, ctime, crtime) = (UNIX_EPOCH, UNIX_EPOCH, UNIX_EPOCH, UNIX_EPOCH);
    let (nlink, uid, gid, rdev, flags) = (1, 0, 0, 0, 0);
    let (blocks, blksize) = (size / 512, 4096);
    FileAttr { ino, size, blocks, atime, mtime, ctime, crtime, kind, perm, nlink, uid, gid, rdev, blksize, flags }
}

impl Filesystem for Mounted {
    /// Direct reads are answered in any order, and as many at a time as a program asks.
    fn init(&mut self, _: &Request<'_>, config: &mut KernelConfig) -> Result<(), c_int> {
        let _ = config.add_capabilities(FUSE_ASYNC_DIO);
        let _ = config.set_max_background(u16::MAX);
        let _ = config.set_congestion_threshold(u16::MAX);
        Ok(())
    }

    fn lookup(&mut self, _: &Request<'_>, _: u64, name: &OsStr, reply: ReplyEntry) {
        if name == NAME { reply.entry(&FOREVER, &attributes(FILE), 0) } else { reply.error(ENOENT) }
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &attributes(ino));
    }

    fn open(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        reply.opened(0, FOPEN_DIRECT_IO);
    }

    fn read(&mut self, _: &Request<'_>, _: u64, _: u64, _: i64, size: u32, _: i32, _: Option<u64>, reply: ReplyData) {
        let mut queue = self.0.lock();
        let arrived_ns = queue.now_ns();
        queue.waiting.push_back(Waiting { arrived_ns, bytes: size, reply });
        queue.serve(arrived_ns);
        drop(queue);
        self.0.changed.notify_all();
    }
}

/// A loop device that the kernel holds to a number of reads a second, by the control group of whoever reads.
pub struct Throttled {
    /// The device.
    pub device: LoopDevice,
    group: PathBuf,
    _image: tempfile::TempDir,
}

impl Throttled {
    /// A device with that limit. None, with the reason printed, where the kernel has no such limit.
    pub fn reads_per_second(limit: u64) -> Option<Throttled> {
        let image = directory();
        let path = image.path().join("image");
        std::fs::write(&path, vec![1; 32 << 20]).expect("an image");
        let device = LoopDevice::over(&path)?;
        let name = device.path.trim_start_matches("/dev/");
        let number = std::fs::read_to_string(format!("/sys/block/{name}/dev")).expect("a block device");
        let number = number.trim();
        let id = std::process::id();
        let kinds = [
            ("/sys/fs/cgroup/blkio", "blkio.throttle.read_iops_device", format!("{number} {limit}")),
            ("/sys/fs/cgroup", "io.max", format!("{number} riops={limit}")),
        ];
        for (root, file, text) in kinds {
            let group = Path::new(root).join(format!("plimsoll-{id}-{name}"));
            if Path::new(root).is_dir() && std::fs::create_dir(&group).is_ok() {
                if std::fs::write(group.join(file), text).is_ok() {
                    return Some(Throttled { device, group, _image: image });
                }
                let _ = std::fs::remove_dir(&group);
            }
        }
        skip("no control group limits reads of a device", false);
        None
    }

    /// The built program, in the control group.
    pub fn plimsoll(&self, directory: &Path) -> Command {
        let mut command = Command::new("sh");
        let join = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", self.group.display());
        command.args(["-c", &join, "sh", env!("CARGO_BIN_EXE_plimsoll")]).current_dir(directory);
        command
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.group); // empty: its processes have ended
    }
}

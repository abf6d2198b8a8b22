//! The speed of lanes, each alone and all together: direct reads of one file, for a short while.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use sys::buffer::{Buffer, Memory};

/// Bytes of a read.
const BLOCK: u64 = 64 << 10;
/// Reads that each lane has outstanding.
const DEPTH: usize = 8;
/// The time that a read may take beyond the end of the measurement.
const GRACE: Duration = Duration::from_secs(5);

/// The measured rates, in bytes per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// The rate of each lane alone, or the reason why it could not be measured.
    pub alone: Vec<Result<f64, String>>,
    /// The rate of all lanes together that could be measured alone; None if there are fewer than two, or they failed.
    pub together: Option<f64>,
}

impl Rates {
    /// The rate of the fastest lane alone; None if no lane could be measured.
    pub fn best_alone(&self) -> Option<f64> {
        self.alone.iter().filter_map(|rate| rate.as_ref().ok()).copied().max_by(f64::total_cmp)
    }
}

/// Reads `file` below each lane for `time`, through one lane after the other and then through all at once.
pub fn measure(lanes: &[PathBuf], file: &Path, time: Duration) -> Rates {
    let alone: Vec<Result<f64, String>> =
        lanes.iter().map(|lane| Readers::start(&lane.join(file)).and_then(|readers| rate(&[readers], time))).collect();
    let good: Vec<&PathBuf> = lanes.iter().zip(&alone).filter(|(_, rate)| rate.is_ok()).map(|(lane, _)| lane).collect();
    let together = || {
        let readers: Result<Vec<Readers>, String> = good.iter().map(|lane| Readers::start(&lane.join(file))).collect();
        readers.and_then(|readers| rate(&readers, time)).ok()
    };
    Rates { together: if good.len() > 1 { together() } else { None }, alone }
}

/// Bytes per second over the time, without its first tenth: connections and windows open up.
fn rate(readers: &[Readers], time: Duration) -> Result<f64, String> {
    let bytes = || readers.iter().map(|readers| readers.shared.bytes.load(Relaxed)).sum::<u64>();
    std::thread::sleep(time / 10);
    let (from, before) = (Instant::now(), bytes());
    std::thread::sleep(time - time / 10);
    let (seconds, moved) = (from.elapsed().as_secs_f64(), bytes() - before);
    for readers in readers {
        readers.shared.stop.store(true, Relaxed);
    }
    for readers in readers {
        readers.end()?;
    }
    if moved == 0 { Err("no read came back in time".into()) } else { Ok(moved as f64 / seconds) }
}

/// Threads that read one file of one lane.
struct Readers {
    shared: Arc<Shared>,
}

struct Shared {
    file: File,
    blocks: u64,
    bytes: AtomicU64,
    next: AtomicU64,
    stop: AtomicBool,
    running: AtomicU64,
    error: AtomicU64,
}

impl Readers {
    fn start(path: &Path) -> Result<Readers, String> {
        let direct = OFlags::DIRECT.bits().cast_signed();
        let file = File::options().read(true).custom_flags(direct).open(path).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::INVAL) => "its file system has no O_DIRECT".to_owned(),
                _ => error.to_string(),
            }
        })?;
        let blocks = file.metadata().map_err(|error| error.to_string())?.len() / BLOCK;
        if blocks == 0 {
            return Err(format!("{} is shorter than {} KiB", path.display(), BLOCK >> 10));
        }
        let shared = Arc::new(Shared {
            file,
            blocks,
            bytes: AtomicU64::new(0),
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            running: AtomicU64::new(DEPTH as u64),
            error: AtomicU64::new(0),
        });
        for _ in 0..DEPTH {
            let shared = Arc::clone(&shared);
            let spawned = std::thread::Builder::new().name("reader".into()).spawn(move || shared.read());
            spawned.map_err(|error| error.to_string())?;
        }
        Ok(Readers { shared })
    }

    /// Waits until no read is under way; the threads of a lane that has stopped answering are left behind.
    fn end(&self) -> Result<(), String> {
        let end = Instant::now() + GRACE;
        while self.shared.running.load(Relaxed) > 0 {
            if Instant::now() > end {
                return Err("its reads do not come back".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        match self.shared.error.load(Relaxed) {
            0 => Ok(()),
            error => Err(std::io::Error::from_raw_os_error(error as i32).to_string()),
        }
    }
}

impl Shared {
    fn read(&self) {
        let buffer = Buffer::zeroed(BLOCK as usize, &Memory::Anonymous);
        let mut buffer = match buffer {
            Ok(buffer) => buffer,
            Err(error) => return self.ended(error.raw_os_error().unwrap_or(12)),
        };
        while !self.stop.load(Relaxed) {
            // The stride visits every block in an order that makes the server's read-ahead of little use.
            let number = self.next.fetch_add(1, Relaxed);
            let block = number.wrapping_mul(0x9e37_79b9_7f4a_7c15 | 1) % self.blocks;
            match rustix::io::pread(&self.file, buffer.as_mut_slice(), block * BLOCK) {
                Ok(read) => drop(self.bytes.fetch_add(read as u64, Relaxed)),
                Err(Errno::INTR) => {}
                Err(error) => return self.ended(error.raw_os_error()),
            }
        }
        self.ended(0);
    }

    fn ended(&self, error: i32) {
        if error != 0 {
            self.error.store(error.unsigned_abs().into(), Relaxed);
            self.stop.store(true, Relaxed);
        }
        self.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_measured_alone_and_together() {
        // The file is not in /tmp: that may be memory, which has no direct I/O.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::write(directory.path().join("file"), vec![1; 1 << 20]).unwrap();
        std::fs::write(directory.path().join("short"), "x").unwrap();
        let lanes = [directory.path().to_owned(), directory.path().join("."), directory.path().join("none")];
        // A disk that is busy with something else may need a while for a single read.
        let silent = |rates: &Rates| {
            let nothing = Err("no read came back in time".to_owned());
            rates.alone.contains(&nothing) || rates.together.is_none() && rates.alone[0].is_ok()
        };
        let mut times = [50, 500, 5_000, 60_000].into_iter().map(Duration::from_millis);
        let mut rates = measure(&lanes, Path::new("file"), times.next().unwrap());
        while let Some(time) = times.next().filter(|_| silent(&rates)) {
            rates = measure(&lanes, Path::new("file"), time);
        }
        assert!(rates.alone[2].as_ref().is_err_and(|error| error.contains("No such file")));
        if rates.alone[0] == Err("its file system has no O_DIRECT".into()) {
            return; // nothing else can be said there
        }
        assert!(rates.alone[0].as_ref().is_ok_and(|rate| *rate > 0.0), "{rates:?}");
        assert!(rates.together.is_some_and(|rate| rate > 0.0), "{rates:?}");
        let short = measure(&lanes[..1], Path::new("short"), Duration::from_millis(10));
        assert!(short.alone[0].as_ref().is_err_and(|error| error.contains("shorter than 64 KiB")), "{short:?}");
    }
}

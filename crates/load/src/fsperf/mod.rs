//! fsperf, SAP HANA's file system test, as its users type it: one file, written, overwritten and read with O_DIRECT
//! through libaio, deep (throughput) or one block at a time (latency).
//!
//! The program itself is not public. Only its command line and its output are known, as people have published them.
//! docs/fsperf.md lists the known and the unknown facts about fsperf.

pub mod output;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use measure::schema::{Ended, JobResult};
use measure::units::exact_bytes;
use measure::verdict::Severity;

use crate::{Control, Error};

/// Requests in flight in throughput mode unless told otherwise: the default of HANA's max_parallel_io_requests.
pub const DEPTH: u32 = 64;

/// A test: one way to write or read the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Writes a file that does not exist yet.
    InitialWrite,
    /// Writes an existing file again.
    Overwrite,
    /// Reads an existing file.
    Read,
}

impl Test {
    /// All tests, in the order in which they run.
    pub const ALL: [Test; 3] = [Test::InitialWrite, Test::Overwrite, Test::Read];

    /// The test's name as `-t` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Test::InitialWrite => "write",
            Test::Overwrite => "overwrite",
            Test::Read => "read",
        }
    }
}

/// The number of blocks in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// [`Experiment::depth`] blocks are in flight.
    Throughput,
    /// One block is in flight.
    Latency,
}

impl Mode {
    /// Both modes, in the order in which they run.
    pub const ALL: [Mode; 2] = [Mode::Throughput, Mode::Latency];

    /// The mode's name as `-m` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Throughput => "throughput",
            Mode::Latency => "latency",
        }
    }
}

/// The run that a command line asks for.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The directory of the file.
    pub directory: PathBuf,
    /// The tests to run, in this order.
    pub tests: Vec<Test>,
    /// The modes in which each test runs, in this order.
    pub modes: Vec<Mode>,
    /// Size of the file in bytes, a multiple of the block.
    pub file_bytes: u64,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests in flight in throughput mode.
    pub depth: u32,
    /// True if the run begins with a new file, and writes it first where a test needs an existing one; false
    /// (`--noinit`): the run uses an existing file as it is.
    pub init: bool,
    /// True if the run removes the file at its end; false: the file stays for the next run.
    pub clean: bool,
}

/// The figures of one test in one mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The test that gave these figures.
    pub test: Test,
    /// The mode in which the test ran.
    pub mode: Mode,
    /// Bytes transferred.
    pub bytes: u64,
    /// Blocks transferred.
    pub blocks: u64,
    /// Nanoseconds from the first submission to the last completion.
    pub io_ns: u64,
    /// The part of `io_ns` in which the program was handing requests to the kernel: [`Mode::Throughput`] only.
    pub trigger_ns: u64,
    /// Reasons why the figures may mislead.
    pub warnings: Vec<String>,
}

impl Experiment {
    /// The file that all tests work on.
    pub fn file(&self) -> PathBuf {
        self.directory.join("fsperf.dat")
    }

    /// Carries the tests out. Calls `say` with the figures of each test, and with a note on each thing that the run
    /// does to the file without being asked.
    ///
    /// # Errors
    /// A directory that is not there, sizes that do not fit, and failures during a test. With `clean`, the run removes
    /// the file after a failed test too.
    pub fn run(&self, stop: &Arc<AtomicBool>, say: &mut dyn FnMut(Said)) -> Result<Ended, Error> {
        self.check()?;
        let file = self.file();
        let outcome = self.run_tests(&file, stop, say);
        if self.clean && file.exists() {
            let removed = std::fs::remove_file(&file);
            removed.map_err(|error| Error::system("cannot remove", file.display().to_string(), error))?;
        }
        outcome
    }

    fn run_tests(&self, file: &Path, stop: &Arc<AtomicBool>, say: &mut dyn FnMut(Said)) -> Result<Ended, Error> {
        if self.init || self.tests.first() == Some(&Test::InitialWrite) {
            remove(file)?;
        } else if length(file) < self.file_bytes {
            let short = if file.exists() { "is too short" } else { "is not there" };
            say(Said::Note(format!("{} {short}: fsperf writes it first, in spite of --noinit", file.display())));
        }
        for &test in &self.tests {
            for &mode in &self.modes {
                if test == Test::InitialWrite {
                    remove(file)?;
                }
                match self.run_one(file, test, mode, stop)? {
                    Ok(figures) => say(Said::Figures(figures)),
                    Err(ended) => return Ok(ended),
                }
            }
        }
        Ok(Ended::Complete)
    }

    fn run_one(
        &self,
        file: &Path,
        test: Test,
        mode: Mode,
        stop: &Arc<AtomicBool>,
    ) -> Result<Result<Figures, Ended>, Error> {
        let plan = job::parse_command_line(&self.job(file, test, mode)).and_then(|job| job.plan());
        let plan = plan.map_err(|error| Error::usage(error.to_string(), String::new(), String::new()))?;
        let mut control = Control { stop: Arc::clone(stop), threads_only: true, ..Control::default() };
        let mut result = crate::run(&plan, &mut control)?;
        let Some(job) = result.jobs.pop() else { return Ok(Err(result.ended)) };
        match (job.error.as_ref(), result.ended) {
            (Some(error), _) => {
                let what = format!("{} test, {}: {}", test.name(), mode.name(), error.message);
                Err(Error::system(what, String::new(), std::io::Error::from_raw_os_error(error.errno)))
            }
            (None, Ended::Complete) => Ok(Ok(figures(test, mode, &job))),
            (None, ended) => Ok(Err(ended)),
        }
    }

    /// The test in fio's words.
    fn job(&self, file: &Path, test: Test, mode: Mode) -> Vec<OsString> {
        let depth = if mode == Mode::Latency { 1 } else { self.depth };
        let rw = if test == Test::Read { "read" } else { "write" };
        // Colons separate names of files.
        let name = file.display().to_string().replace('\\', "\\\\").replace(':', "\\:");
        let mut job = vec![
            "--name=fsperf".into(),
            format!("--filename={name}"),
            format!("--rw={rw}"),
            format!("--bs={}", self.block_bytes),
            format!("--size={}", self.file_bytes),
            format!("--iodepth={depth}"),
            "--ioengine=libaio".into(),
            "--direct=1".into(),
            "--fallocate=none".into(),
        ];
        match test {
            Test::InitialWrite => job.push("--end_fsync=1".into()),
            Test::Overwrite => job.extend(["--end_fsync=1".into(), "--overwrite=1".into()]),
            Test::Read => {}
        }
        job.into_iter().map(OsString::from).collect()
    }

    fn check(&self) -> Result<(), Error> {
        let (file, block) = (exact_bytes(self.file_bytes), exact_bytes(self.block_bytes));
        if self.block_bytes == 0 || !self.block_bytes.is_multiple_of(512) {
            return Err(Error::usage("-b", block, "O_DIRECT transfers multiples of 512 bytes"));
        }
        if self.file_bytes == 0 || !self.file_bytes.is_multiple_of(self.block_bytes) {
            return Err(Error::usage("-f", file, format!("not a multiple of the block size {block}")));
        }
        if !self.directory.is_dir() {
            let place = self.directory.display().to_string();
            return Err(Error::usage("not a directory:", place, "the last argument is the directory for the file"));
        }
        Ok(())
    }
}

/// A message of a run.
#[derive(Debug)]
pub enum Said {
    /// The figures of a test that has ended.
    Figures(Figures),
    /// A note on something that the run does without being asked.
    Note(String),
}

fn figures(test: Test, mode: Mode, job: &JobResult) -> Figures {
    let way = if test == Test::Read { &job.directions.read } else { &job.directions.write };
    let telling = job.verdicts.iter().filter(|verdict| verdict.severity != Severity::Note);
    Figures {
        test,
        mode,
        bytes: way.bytes,
        blocks: way.ops,
        io_ns: job.runtime_ns,
        trigger_ns: if mode == Mode::Throughput { u64::try_from(way.slat_ns.sum()).unwrap_or(u64::MAX) } else { 0 },
        warnings: telling.map(|verdict| format!("{}: {}", verdict.code, verdict.what)).collect(),
    }
}

fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |data| data.len())
}

fn remove(file: &Path) -> Result<(), Error> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::system("cannot remove", file.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

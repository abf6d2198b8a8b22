//! Files that are not of this host. An engine ([`job::engines::EngineSpec::opens_files`]) looks at them, lays them
//! out and removes them.
//!
//! The engine works in a separate process, for two reasons. Its connections do not survive a fork, and the clones are
//! forked later. And a connection that hangs ends with its process.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use job::Job;
use job::workload::OpKind;
use measure::Direction;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sys::block;
use sys::buffer::Memory;
use sys::child::{self, Outcome};
use sys::shared::SharedWords;

use super::layout::{CHUNK_BYTES, Layout, no_space, stopped};
use super::open::check_multiples;
use super::size::{self, Existing};
use super::{Context, names, safety};
use crate::engine::{Completion, Engine, Maker, Queued, Request, Setup, Slot, Slots, Storage};
use crate::{Error, ErrorKind};

/// Requests in flight while data are laid out.
const DEPTH: u32 = 8;
/// The time that a process has for cleaning up after it was told to stop.
const LAST_WAIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);

/// The files of a clone as they were found, before anything was laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Bytes of each file; 0 if the file did not exist.
    pub bytes: Vec<u64>,
    /// For each file, true if the preparation made it.
    pub made: Vec<bool>,
    /// True if the files can be made larger.
    pub growable: bool,
}

/// The shared word that tells the working process to stop: 1 if it shall.
const STOP: usize = 0;
/// The shared word in which the working process counts the bytes that it has laid out.
const LAID_OUT: usize = 1;

/// Looks at the files of a clone and makes them as large as the job needs them.
///
/// # Errors
/// The error of connecting, looking or writing; a layout that was stopped (EINTR). Files made so far are removed.
pub fn prepare(job: &Job, clone: u32, context: &mut Context) -> Result<Found, Error> {
    own_files_only(job)?;
    let paths = match &context.names {
        Some(paths) => paths.clone(),
        None => names(job, clone)?,
    };
    let (stop, fill, progress) = (context.stop, &mut *context.fill, &mut *context.progress);
    let mut reported = 0;
    in_process(
        || stop.load(Relaxed),
        |laid_out| {
            progress(laid_out - reported);
            reported = laid_out;
        },
        |words| Worker::new(job, &paths, words)?.prepare(clone, fill),
    )
}

/// Refuses options that are about files of this host.
pub fn own_files_only(job: &Job) -> Result<(), Error> {
    if job.files.opendir.is_none() && !job.extent.fill {
        return Ok(());
    }
    let option = if job.extent.fill { "fill_device" } else { "opendir" };
    let hint = format!("its files are not of this host: give filename= and size= (ioengine={})", job.engine);
    Err(Error::usage(format!("{option}= is not possible"), format!("in job {}", job.name), hint))
}

/// Removes files. A file that is already removed does not count as a failure.
///
/// # Errors
/// The error of connecting or removing; the other files are removed anyway.
pub fn remove(job: &Job, paths: &[String]) -> Result<(), Error> {
    in_process(|| false, |_| (), |words| Worker::new(job, paths, words)?.remove(0..paths.len() as u32))
}

/// A failure on its way between processes.
#[derive(Serialize, Deserialize)]
struct Failure {
    usage: bool,
    errno: Option<i32>,
    /// The text of an error that has no number.
    said: Option<String>,
    message: String,
    hint: String,
}

/// Does `work` in a child process. Meanwhile this process tells the child to stop if `stop` returns true, and calls
/// `progress` with the bytes that the child has laid out.
fn in_process<T: Serialize + DeserializeOwned>(
    stop: impl Fn() -> bool,
    mut progress: impl FnMut(u64),
    work: impl FnOnce(&SharedWords) -> Result<T, Error>,
) -> Result<T, Error> {
    let words = SharedWords::new(2).map_err(|error| Error::system("cannot share memory", "", error))?;
    let started = child::spawn(|| {
        let outcome = work(&words).map_err(|error| {
            let errno = error.source.as_ref().and_then(io::Error::raw_os_error);
            let said = error.source.as_ref().filter(|_| errno.is_none()).map(io::Error::to_string);
            let message = format!("{} {}", error.what, error.place).trim_end().to_owned();
            Failure { usage: error.kind != ErrorKind::System, errno, said, message, hint: error.hint }
        });
        serde_json::to_vec(&outcome).unwrap_or_default()
    });
    let mut child = started.map_err(|error| Error::system("cannot start a process", "to look at the files", error))?;
    let mut give_up = None;
    let outcome = loop {
        if let Some(outcome) = child.try_wait().map_err(|error| Error::system("cannot wait for", "a process", error))? {
            break outcome;
        }
        progress(words[LAID_OUT].load(Relaxed));
        if stop() {
            words[STOP].store(1, Relaxed);
            let until = *give_up.get_or_insert_with(|| Instant::now() + LAST_WAIT);
            if Instant::now() > until {
                return Err(stopped("the storage does not answer"));
            }
        }
        std::thread::sleep(POLL);
    };
    progress(words[LAID_OUT].load(Relaxed));
    let ended = |how: String| Error {
        kind: ErrorKind::Internal,
        what: format!("the process that looks at the files {how}"),
        place: String::new(),
        hint: String::new(),
        source: None,
    };
    let answer = match outcome {
        Outcome::Answer(bytes) => bytes,
        Outcome::Signal(signal) => return Err(ended(format!("was killed by signal {signal}"))),
        Outcome::Status(status) => return Err(ended(format!("ended with status {status}"))),
    };
    let answer: Result<T, Failure> = serde_json::from_slice(&answer)
        .map_err(|error| ended(format!("gave an answer that cannot be read: {error}")))?;
    answer.map_err(|failure| Error {
        kind: if failure.usage { ErrorKind::Usage } else { ErrorKind::System },
        what: failure.message,
        place: String::new(),
        hint: failure.hint,
        source: failure.errno.map(io::Error::from_raw_os_error).or(failure.said.map(io::Error::other)),
    })
}

/// The process that works: an engine, and buffers to write with.
struct Worker<'a> {
    job: &'a Job,
    paths: &'a [String],
    engine: Box<dyn Engine>,
    slots: std::sync::Arc<Slots>,
    free: Vec<Slot>,
    words: &'a SharedWords,
}

impl<'a> Worker<'a> {
    fn new(job: &'a Job, paths: &'a [String], words: &'a SharedWords) -> Result<Worker<'a>, Error> {
        let maker = Maker::find(&job.engine)?;
        // This job makes files and looks for signatures, so it writes and reads, even if the user's job does only one.
        let mut own = job.clone();
        (own.rw.directions.write, own.rw.directions.read) = (true, true);
        (own.files.direct, own.files.sync) = (false, job::job::OpenSync::None);
        let (slots, free) = Slots::new(DEPTH, CHUNK_BYTES as usize, 0, &Memory::Anonymous)
            .map_err(|error| Error::system("no memory for layout", "", error))?;
        let files = paths.len() as u32;
        let setup = Setup { job: &own, slots: slots.clone(), depth: DEPTH, files, names: paths, clone: 0 };
        let engine = maker.make(&setup)?;
        Ok(Worker { job, paths, engine, slots, free, words })
    }

    fn storage(&mut self) -> Result<&mut dyn Storage, Error> {
        self.engine.storage().ok_or_else(|| Error {
            kind: ErrorKind::Internal,
            what: "an engine that opens files has none".into(),
            place: self.job.engine.clone(),
            hint: String::new(),
            source: None,
        })
    }

    fn failed(&self, what: &str, file: u32, error: io::Error) -> Error {
        Error::system(what, &self.paths[file as usize], error)
    }

    fn prepare(mut self, clone: u32, fill: &mut dyn FnMut(&mut [u8], u64)) -> Result<Found, Error> {
        let files = self.paths.len() as u32;
        let mut found = Found::default();
        for file in 0..files {
            let bytes = self.storage()?.bytes(file).map_err(|error| self.failed("cannot look at", file, error))?;
            if bytes.is_none() && !self.job.files.allow_create {
                let hint = "it does not exist, and allow_file_create=0 forbids to create it";
                return Err(Error::usage("cannot use", &self.paths[file as usize], hint));
            }
            let unit = self.storage()?.block_bytes(file).map_err(|error| self.failed("cannot look at", file, error))?;
            check_multiples(unit, self.job, 0).map_err(|odd| {
                let hint = format!("its blocks are of {unit} bytes: {odd} is not a multiple");
                Error::usage("cannot use", &self.paths[file as usize], hint)
            })?;
            if !self.storage()?.can_grow() {
                self.check_content(file, bytes.unwrap_or(0), unit)?;
            }
            found.bytes.push(bytes.unwrap_or(0));
            found.made.push(bytes.is_none() && !self.job.files.create_on_open);
        }
        found.growable = self.storage()?.can_grow();
        let growable = found.growable;
        let existing: Vec<Existing> = found.bytes.iter().map(|&bytes| Existing { bytes, growable }).collect();
        let extents = size::extents(self.job, clone, self.paths, &existing, None)?;
        for file in 0..files {
            let (index, extent) = (file as usize, extents[file as usize]);
            let unit = self.storage()?.block_bytes(file).unwrap_or(1);
            if !extent.offset.is_multiple_of(unit) {
                let hint = format!("its blocks are of {unit} bytes: the offset {} is not a multiple", extent.offset);
                return Err(Error::usage("cannot use", &self.paths[index], hint));
            }
            let end = extent.offset + extent.size;
            if end <= found.bytes[index] && !found.made[index] || self.job.files.create_on_open {
                continue;
            }
            if let Err(error) = self.lay_out(file, found.bytes[index], end, fill) {
                let made = (0..=file).filter(|&file| found.made[file as usize]);
                // The user gets the first failure, not one of removing.
                let _ = self.remove(made);
                return Err(no_space(error, end));
            }
        }
        Ok(found)
    }

    /// Refuses a device of `bytes` bytes if the job would write over signatures on it and does not allow that.
    fn check_content(&mut self, file: u32, bytes: u64, unit: u64) -> Result<(), Error> {
        let (place, job) = (&self.paths[file as usize], self.job);
        safety::check_content(place, job, || {
            self.storage().map_err(io::Error::other)?.open(file)?;
            let found = block::signatures(bytes, |piece, offset| self.read_exact_at(file, unit, piece, offset));
            self.storage().map_err(io::Error::other)?.close(file)?;
            found
        })
    }

    /// Reads a piece of an open file, in whole blocks of `unit` bytes.
    fn read_exact_at(&mut self, file: u32, unit: u64, piece: &mut [u8], offset: u64) -> io::Result<()> {
        let begin = offset / unit * unit;
        let len = (offset + piece.len() as u64).next_multiple_of(unit) - begin;
        let slot = self.free.pop().ok_or(io::ErrorKind::ResourceBusy)?;
        let kind = OpKind::Io(Direction::Read);
        let request = Request { slot, kind, file, offset: begin, len: len as u32, skip: 0, priority: 0 };
        let Completion { slot, result } = self.carry_out(request)?;
        let skip = (offset - begin) as usize;
        piece.copy_from_slice(&self.slots.bytes(&slot)[skip..skip + piece.len()]);
        self.free.push(slot);
        match result {
            errno if errno < 0 => Err(io::Error::from_raw_os_error(-errno as i32)),
            short if (short as u64) < len => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Carries out one request, the only one. A wait may end early, and then goes on: only the parent's word ends it.
    fn carry_out(&mut self, request: Request) -> io::Result<Completion> {
        let mut done = Vec::new();
        match self.engine.queue(request) {
            Queued::Done(completion) => return Ok(completion),
            Queued::Full(_) => return Err(takes_nothing()),
            Queued::Later => {}
        }
        loop {
            self.engine.submit_and_reap(1, 1, None, &mut done)?;
            if let Some(completion) = done.pop() {
                return Ok(completion);
            }
            if self.words[STOP].load(Relaxed) != 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }

    fn lay_out(&mut self, file: u32, old: u64, end: u64, fill: &mut dyn FnMut(&mut [u8], u64)) -> Result<(), Error> {
        self.storage()?.open(file).map_err(|error| {
            let missing = error.kind() == io::ErrorKind::NotFound;
            let error = self.failed("cannot create", file, error);
            if missing { error.hint("its directory does not exist in the volume") } else { error }
        })?;
        let written = match Layout::of(self.job) {
            Layout::Data => self.write(file, old, end, fill),
            Layout::Space => Ok(()),
        };
        let synced = match written {
            Ok(()) if self.job.files.create_fsync => {
                self.storage()?.sync(file).map_err(|error| self.failed("cannot sync", file, error))
            }
            written => written,
        };
        let closed = self.storage()?.close(file).map_err(|error| self.failed("cannot write", file, error));
        synced.and(closed)
    }

    fn write(&mut self, file: u32, mut at: u64, end: u64, fill: &mut dyn FnMut(&mut [u8], u64)) -> Result<(), Error> {
        let mut wanted = [0; DEPTH as usize];
        let mut done: Vec<Completion> = Vec::new();
        let mut outcome = Ok(());
        loop {
            if outcome.is_ok() && self.words[STOP].load(Relaxed) != 0 {
                outcome = Err(stopped(&self.paths[file as usize]));
            }
            while at < end
                && outcome.is_ok()
                && let Some(mut slot) = self.free.pop()
            {
                // Chunks end on chunk boundaries of the file, so that the content of a block does not depend on `old`.
                let len = (CHUNK_BYTES - at % CHUNK_BYTES).min(end - at);
                fill(&mut self.slots.bytes_mut(&mut slot)[..len as usize], at);
                wanted[slot.index() as usize] = len;
                let kind = OpKind::Io(Direction::Write);
                match self.engine.queue(Request { slot, kind, file, offset: at, len: len as u32, skip: 0, priority: 0 })
                {
                    Queued::Later => {}
                    Queued::Done(completion) => done.push(completion),
                    Queued::Full(request) => {
                        self.free.push(request.slot);
                        break;
                    }
                }
                at += len;
            }
            let in_flight = DEPTH as usize - self.free.len() - done.len();
            if in_flight + done.len() == 0 {
                // An engine with nothing in flight that takes no request either.
                let all = at >= end || outcome.is_err();
                return if all { outcome } else { Err(self.failed("cannot write", file, takes_nothing())) };
            }
            let reaped = self.engine.submit_and_reap(in_flight.min(1), usize::MAX, None, &mut done);
            reaped.map_err(|error| self.failed("cannot write", file, error))?;
            for Completion { slot, result } in done.drain(..) {
                let len = wanted[slot.index() as usize];
                self.free.push(slot);
                self.words[LAID_OUT].fetch_add(len, Relaxed);
                if result != len as i64 && outcome.is_ok() {
                    // A short write would show its reason if it were repeated. Here it counts as ENOSPC.
                    let errno = if result < 0 { -result as i32 } else { libc::ENOSPC };
                    let error = io::Error::from_raw_os_error(errno);
                    outcome = Err(Error::system("cannot write", &self.paths[file as usize], error));
                }
            }
        }
    }

    fn remove(&mut self, files: impl Iterator<Item = u32>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for file in files {
            match self.storage()?.unlink(file) {
                // Another clone that shares the file was first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => outcome = outcome.and(Err(self.failed("cannot remove", file, error))),
                Ok(()) => {}
            }
        }
        outcome
    }
}

fn takes_nothing() -> io::Error {
    io::Error::other("the engine takes no request at all")
}

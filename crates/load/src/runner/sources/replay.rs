//! `read_iolog`: the ops of a recorded log, at their times.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use job::Job;
use job::iolog::{self, Step, Summary};
use job::workload::Op;
use measure::Direction;

use crate::content::Filler;
use crate::files;
use crate::runner::traffic::{Next, Traffic};
use crate::verify::Mismatch;
use crate::{Error, ErrorKind};

type Log = iolog::Replay<BufReader<File>>;

/// A log being replayed by one clone.
pub(in crate::runner) struct Replay {
    job: Job,
    log: Log,
    loops_left: u64,
    filler: Filler,
    failure: Option<Error>,
}

impl Replay {
    /// The replay of the log that `job` names.
    ///
    /// # Errors
    /// A log that cannot be opened or is none.
    pub fn new(job: &Job, clone: u32) -> Result<Replay, Error> {
        Ok(Replay {
            job: job.clone(),
            log: open(job)?,
            loops_left: job.time.loops.max(1) - 1,
            filler: Filler::for_job(job, clone),
            failure: None,
        })
    }
}

/// The summary of a log, its files checked: files of which the log reads nothing, or which it writes, are made if they
/// are missing. Files that an engine opens are checked by that engine.
///
/// # Errors
/// A log that cannot be read; a file that it reads and that does not have the bytes.
pub(in crate::runner) fn survey(job: &Job) -> Result<Summary, Error> {
    if let Some(replayed) = &job.iolog.threads {
        return Ok(replayed.recording.summary()); // the sweep has checked the files
    }
    let summary = open(job)?.summarise().map_err(unreadable)?;
    if job::engines::find(&job.engine).is_some_and(|engine| engine.opens_files || engine.diskless) {
        return Ok(summary); // they are not of this host, or not touched
    }
    let mut missing = Vec::new();
    for file in &summary.files {
        let there = std::fs::metadata(&file.name);
        let is_device = there.as_ref().is_ok_and(|metadata| !metadata.is_file());
        let bytes = there.as_ref().map_or(0, std::fs::Metadata::len);
        // A file that the log only opens or syncs is made, too, empty.
        if is_device || (bytes >= file.bytes && there.is_ok()) {
            continue;
        }
        if !file.changed && file.bytes > 0 {
            let what = format!("the log reads {} bytes of a file that has {bytes}:", file.bytes);
            return Err(Error::usage(what, &file.name, "make the file, or use replay_redirect="));
        }
        if there.is_err() {
            files::may_make(&file.name, job)?;
        }
        missing.push(file);
    }
    for file in missing {
        let made = File::options().create(true).truncate(false).write(true).open(Path::new(&file.name));
        made.and_then(|made| made.set_len(file.bytes))
            .map_err(|error| Error::system("cannot make the file that the log writes,", &file.name, error))?;
    }
    Ok(summary)
}

fn open(job: &Job) -> Result<Log, Error> {
    let name = job.iolog.read.as_deref().unwrap_or_default();
    let file = File::open(name).map_err(|error| Error::system("cannot open the log", name, error))?;
    iolog::Replay::new(BufReader::new(file), name, &job.iolog).map_err(unreadable)
}

fn unreadable(error: iolog::Error) -> Error {
    let kind = ErrorKind::Usage;
    Error { kind, what: error.to_string(), place: String::new(), hint: String::new(), source: None }
}

impl Traffic for Replay {
    fn next(&mut self, _wanted: Option<Direction>) -> Next {
        loop {
            match self.log.next_step() {
                Ok(Some(Step::Op { op, at_ns: 0, .. })) => return Next::Op(op),
                Ok(Some(Step::Op { op, at_ns, .. })) => return Next::At(at_ns, op),
                // Files are opened when they are first used and closed at the end.
                Ok(Some(Step::Open { .. } | Step::Close { .. })) => {}
                Ok(None) if self.loops_left > 0 => return Next::Pass,
                Ok(None) => return Next::End,
                Err(error) => {
                    self.failure = Some(unreadable(error));
                    return Next::End;
                }
            }
        }
    }

    fn begin_pass(&mut self) {
        self.loops_left -= 1;
        match open(&self.job) {
            Ok(log) => self.log = log,
            Err(error) => self.failure = Some(error),
        }
    }

    fn prepare(&mut self, bytes: &mut [u8]) {
        self.filler.prepare(bytes);
    }

    fn fill(&mut self, _op: &Op, _slot: u32, bytes: &mut [u8]) {
        self.filler.fill(bytes);
    }

    fn landed(&mut self, _op: &Op, _slot: u32, _bytes: &mut [u8]) -> Result<(), Mismatch> {
        Ok(())
    }

    fn finish(&mut self, _name_of: &dyn Fn(u32) -> String) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

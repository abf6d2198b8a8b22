//! `write_iolog`: the ops of a clone, written down as they are issued, for fio or Plimsoll to replay.

use std::fs::File;
use std::io::{self, BufWriter};

use job::Job;
use job::iolog::Writer;
use job::workload::Op;

use crate::Error;

/// The log of one clone.
#[derive(Debug)]
pub struct Recording {
    path: String,
    writer: Writer<BufWriter<File>>,
    files: u32,
    failure: Option<io::Error>,
}

impl Recording {
    /// The log that `job` asks for, over these files; None if it asks for none.
    ///
    /// # Errors
    /// The file cannot be made, or a name cannot stand in a log.
    pub fn open(job: &Job, clone: u32, names: &[String]) -> Result<Option<Recording>, Error> {
        let Some(path) = job.iolog.log_of(clone) else { return Ok(None) };
        let failed = |error| Error::system("cannot write the log", &path, error);
        let mut writer =
            File::create(&path).and_then(|file| Writer::new(BufWriter::new(file), names)).map_err(failed)?;
        for file in 0..names.len() as u32 {
            writer.opened(0, file, true).map_err(failed)?;
        }
        Ok(Some(Recording { path, writer, files: names.len() as u32, failure: None }))
    }

    /// Writes down an op that is being issued, `at_ns` after the start.
    pub fn op(&mut self, op: &Op, at_ns: u64) {
        if self.failure.is_none() {
            self.failure = self.writer.op(at_ns, op).err();
        }
    }

    /// Ends the log, `at_ns` after the start.
    ///
    /// # Errors
    /// The first write that failed, at any time.
    pub fn finish(mut self, at_ns: u64) -> Result<(), Error> {
        let closed = (0..self.files).try_for_each(|file| self.writer.opened(at_ns, file, false));
        let outcome = self.failure.map_or(Ok(()), Err).and(closed).and_then(|()| self.writer.finish().map(drop));
        outcome.map_err(|error| Error::system("cannot write the log", self.path, error))
    }
}

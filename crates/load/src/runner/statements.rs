//! Statements: the measurements of a clone so far. The runner asks for them while the clone, thread or process, runs
//! on.
//!
//! ```text
//! runner: ask ─► word ─► clone, at its next look around: write the statement, count it ─► runner: read
//! ```
//!
//! A clone's statement lies in a file in memory. It belongs to the clone from the question to the answer, and to the
//! runner from the answer to the next question, so neither sees a half.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use measure::schema::JobResult;
use sys::child::memory_file;
use sys::shared::SharedWords;

/// Words of a clone: questions asked, questions answered, bytes of the answer; alone on a cache line.
const SEAT: usize = 8;
const ASKED: usize = 0;
const ANSWERED: usize = 1;
const LENGTH: usize = 2;

/// The place where the clones of a run put their statements.
#[derive(Debug)]
pub struct Statements {
    words: SharedWords,
    files: Vec<File>,
}

/// The place in shared memory where one clone leaves its statement.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    words: &'a [AtomicU64],
    file: &'a File,
}

impl Statements {
    /// Places for `clones` clones.
    ///
    /// # Errors
    /// ENOMEM, and EMFILE: each clone takes a descriptor.
    pub fn new(clones: usize) -> io::Result<Statements> {
        let files = (0..clones).map(|_| memory_file()).collect::<io::Result<_>>()?;
        Ok(Statements { words: SharedWords::new(clones * SEAT)?, files })
    }

    /// The place of clone number `clone` of the run.
    pub fn of(&self, clone: usize) -> Statement<'_> {
        Statement { words: &self.words[clone * SEAT..(clone + 1) * SEAT], file: &self.files[clone] }
    }
}

impl Statement<'_> {
    /// Asks for a statement. The next call comes only after the answer.
    pub fn ask(&self) {
        self.words[ASKED].store(self.words[ANSWERED].load(Acquire) + 1, Release);
    }

    /// True if a statement was asked for and is not there yet.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.words[ASKED].load(Acquire) != self.words[ANSWERED].load(Acquire)
    }

    /// Writes the clone's answer. An answer that cannot be written is left empty: the run goes on.
    pub fn answer(&self, result: &JobResult) {
        let bytes = serde_json::to_vec(result).unwrap_or_default();
        let length = if self.file.write_all_at(&bytes, 0).is_ok() { bytes.len() } else { 0 };
        self.words[LENGTH].store(length as u64, Release);
        self.words[ANSWERED].store(self.words[ASKED].load(Acquire), Release);
    }

    /// The last answer; None if there is none.
    pub fn read(&self) -> Option<JobResult> {
        let mut bytes = vec![0; self.words[LENGTH].load(Acquire) as usize];
        self.file.read_exact_at(&mut bytes, 0).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_there_once_it_was_asked_for_and_given() {
        let statements = Statements::new(2).unwrap();
        let second = statements.of(1);
        assert!(!second.is_awaited() && second.read().is_none());
        second.ask();
        assert!(second.is_awaited() && !statements.of(0).is_awaited());
        let long = JobResult { name: "long".repeat(100), ..JobResult::default() };
        second.answer(&long);
        assert!(!second.is_awaited());
        assert_eq!(second.read().unwrap().name, long.name);
        second.ask();
        second.answer(&JobResult { name: "short".into(), ..JobResult::default() });
        assert_eq!(second.read().unwrap().name, "short");
    }
}

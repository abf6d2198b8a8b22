//! The error of a job, in one line: the place, the fault, and the way to mend it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The place at which something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a job file, counted from 1.
    File(Arc<PathBuf>, u32),
    /// A job file as a whole.
    WholeFile(Arc<PathBuf>),
    /// The setting stands on the command line.
    CommandLine,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path, line) => write!(f, "{}:{line}", path.display()),
            Place::WholeFile(path) => write!(f, "{}", path.display()),
            Place::CommandLine => f.write_str("command line"),
        }
    }
}

/// A job that cannot be run as written. Displayed as one line: `job.fio:3: bs=4q: ... (what to do)`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The place of the fault.
    pub place: Place,
    /// One sentence that says what is wrong and what to do.
    pub what: String,
    /// The likely cause or what to do; empty if `what` says it all.
    pub hint: String,
}

impl Error {
    /// An error without a hint.
    pub fn new(place: &Place, what: impl Into<String>) -> Error {
        Error { place: place.clone(), what: what.into(), hint: String::new() }
    }

    /// This error with a hint: the likely cause or what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message stays one line, whatever a file contains.
        let line = format!("{}: {}", self.place, self.what);
        let line = if self.hint.is_empty() { line } else { format!("{line} ({})", self.hint) };
        f.write_str(&line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>())
    }
}

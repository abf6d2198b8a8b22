//! The error of a run, or of its preparation, in one line that helps.

use std::fmt;

use nvme_initiator::Error as NvmeError;

/// A failure: the attempt, its object, the cause, and the remedy.
#[derive(Debug)]
pub struct Error {
    /// The class of the failure: it decides the exit status.
    pub kind: ErrorKind,
    /// The attempt that failed: `cannot open`.
    pub what: String,
    /// The object of the attempt: a path, a job, an option.
    pub place: String,
    /// The likely cause and what to do; empty if the source says it all.
    pub hint: String,
    /// The error that the system reported, if it reported one.
    pub source: Option<std::io::Error>,
}

/// The class of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The user asked for something that cannot be done: exit status 2.
    Usage,
    /// The program refused, to protect data: exit status 2.
    Refused,
    /// The system failed: no space, an I/O error: exit status 2 before the run, 1 within a job.
    System,
    /// Data that was read differ from the data that was written: exit status 1.
    Verify,
    /// A defect of this program: exit status 101.
    Internal,
}

impl Error {
    /// A failure of the system call `what` on `place`.
    pub fn system(what: impl Into<String>, place: impl Into<String>, source: std::io::Error) -> Error {
        Error {
            kind: ErrorKind::System,
            what: what.into(),
            place: place.into(),
            hint: String::new(),
            source: Some(source),
        }
    }

    /// A request that cannot be met.
    pub fn usage(what: impl Into<String>, place: impl Into<String>, hint: impl Into<String>) -> Error {
        Error { kind: ErrorKind::Usage, what: what.into(), place: place.into(), hint: hint.into(), source: None }
    }

    /// This error with a hint: the likely cause and what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }

    /// The error number: that of the system. Where there is none: EINVAL for a request that cannot be met, EILSEQ for
    /// verification, EIO otherwise.
    pub fn errno(&self) -> i32 {
        let fallback = match self.kind {
            ErrorKind::Verify => libc::EILSEQ,
            ErrorKind::Usage => libc::EINVAL,
            ErrorKind::Refused | ErrorKind::System | ErrorKind::Internal => libc::EIO,
        };
        let of_initiator = |error: &std::io::Error| Some(error.get_ref()?.downcast_ref::<NvmeError>()?.errno);
        let of = |error: &std::io::Error| error.raw_os_error().or_else(|| of_initiator(error));
        self.source.as_ref().and_then(of).unwrap_or(fallback)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        if !self.place.is_empty() {
            write!(f, " {}", self.place)?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

/// The text has its source already: a chain of causes would say it twice.
// No source(): the message holds it, and who prints a chain would print it twice.
impl std::error::Error for Error {}

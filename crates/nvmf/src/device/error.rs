//! Why a change to the target was refused.

/// What kind of refusal it is: decides the error code of a control protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A name, number or size that makes no sense (EINVAL).
    Invalid,
    /// Something of that name exists already (EEXIST).
    Exists,
    /// Nothing of that name exists (ENODEV).
    NotFound,
    /// It is in use by something else (EBUSY).
    Busy,
    /// A limit is reached (ENOSPC).
    Full,
    /// The operating system said no; the source says what.
    System,
}

/// A refused change, in one line: what, on what, why, what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind of refusal.
    pub kind: ErrorKind,
    /// The line.
    pub message: String,
    /// What the operating system said.
    #[source]
    pub source: Option<std::io::Error>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn system(what: impl std::fmt::Display, source: std::io::Error) -> Error {
        Error { kind: ErrorKind::System, message: format!("{what}: {source}"), source: Some(source) }
    }
}

//! Errors: the reason why a change to the target was refused.

/// The kinds of refusals: the kind decides the error code of a control protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A name, number or size that makes no sense (EINVAL).
    Invalid,
    /// Something of that name exists already (EEXIST).
    Exists,
    /// Nothing of that name exists (ENODEV).
    NotFound,
    /// Another user has the named thing (EBUSY).
    Busy,
    /// A limit is reached (ENOSPC).
    Full,
    /// The operating system refused; the error's source is its error.
    System,
}

/// A refused change, in one line: what, on what, why, what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The kind of the refusal.
    pub kind: ErrorKind,
    /// The message for the user, one line.
    pub message: String,
    /// The error of the operating system, for [`ErrorKind::System`].
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

//! Errors: the reason why a connection could not be made, or was lost.

use std::io;

use nvme::spec::Status;

use super::Broken;

/// A failure: the attempt, the peer, the result, and a remedy.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}{}", if .hint.is_empty() { String::new() } else { format!(" ({hint})") })]
pub struct Error {
    /// The attempt, and its object.
    pub what: String,
    /// The cause of the failure.
    pub why: String,
    /// The likely cause and what to do; may be empty.
    pub hint: String,
    /// The positive error number that stands for the failure in a program.
    pub errno: i32,
}

impl Error {
    /// The hint if the requested subsystem does not exist.
    pub(super) const NO_SUBSYSTEM: &str = "there is no such subsystem";

    pub(super) fn new(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>, errno: i32) -> Error {
        Error { what: what.into(), why: why.into(), hint: hint.into(), errno }
    }

    /// A connection that broke during `what`.
    pub(super) fn broken(what: impl Into<String>, broken: &Broken) -> Error {
        let hint = match broken {
            Broken::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                "nothing listens there: is the target running, and is this its port?"
            }
            Broken::Io(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                "no answer in time: is this the port of an NVMe target?"
            }
            Broken::Closed => "is this the port of an NVMe target, and are there connections left for this host?",
            _ => "",
        };
        let why = match broken {
            Broken::Io(error) if error.kind() == io::ErrorKind::WouldBlock => "timed out".to_string(),
            other => other.to_string(),
        };
        Error::new(what, why, hint, broken.errno())
    }

    /// True if the controller closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.errno == Broken::Closed.errno()
    }

    /// A command that failed.
    pub(super) fn status(what: impl Into<String>, status: Status) -> Error {
        let hint = match status.code() {
            code if code == Status::CONNECT_INVALID_HOST.code() => {
                "the subsystem lets in only hosts that are listed: add this one there, or give hostnqn="
            }
            code if code == Status::AUTHENTICATION_REQUIRED.code() => "the subsystem demands authentication",
            code if code == Status::CONNECT_CONTROLLER_BUSY.code() => "no controller, queue or connection is left",
            _ => "",
        };
        Error::new(what, status.to_string(), hint, status.errno())
    }
}

impl From<Error> for io::Error {
    /// An I/O error with the kind that the error's number stands for, and the error's whole message.
    fn from(error: Error) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(error.errno).kind(), error)
    }
}

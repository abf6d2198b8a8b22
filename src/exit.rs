//! Exit statuses, and the one place where an error becomes a line on standard error.

use std::io::Write;
use std::process::ExitCode;

/// The exit statuses of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The program did everything that was asked.
    Ok = 0,
    /// At least one job failed; the result says which and why.
    JobFailed = 1,
    /// The program cannot carry out the input; it leaves nothing behind.
    BadInput = 2,
    /// `compare --fail-if-slower`: side B is slower.
    Slower = 3,
    /// `compare`: nothing can be concluded, because a run is invalid or the figure says nothing.
    CannotTell = 4,
    /// A signal ended the program that was called as `fio`; its output is partial.
    InterruptedAsFio = 128,
    /// A signal ended the program; its output is partial.
    Interrupted = 130,
}

/// A defect of this program: a status that no result has.
const INTERNAL: u8 = 101;

impl From<measure::schema::Ended> for Exit {
    fn from(ended: measure::schema::Ended) -> Exit {
        match ended {
            measure::schema::Ended::Complete => Exit::Ok,
            measure::schema::Ended::Interrupted => Exit::Interrupted,
            measure::schema::Ended::Failed => Exit::JobFailed,
        }
    }
}

/// The status for the shell; an error is printed as one line on standard error.
pub fn code(outcome: anyhow::Result<Exit>) -> ExitCode {
    let error = match outcome {
        Ok(exit) => return ExitCode::from(exit as u8),
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        return ExitCode::from(Exit::Ok as u8); // `plimsoll report ... | head`: the reader has enough
    }
    // Standard error may be closed: the status tells the caller anyway.
    let _ = writeln!(std::io::stderr(), "plimsoll: {error:#}");
    ExitCode::from(if is_internal(&error) { INTERNAL } else { Exit::BadInput as u8 })
}

/// True if the error says that the reader of the output has gone, as after `| head`.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// True if the error is a defect of this program.
pub fn is_internal(error: &anyhow::Error) -> bool {
    error.downcast_ref::<load::Error>().is_some_and(|error| error.kind == load::ErrorKind::Internal)
}

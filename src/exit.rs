//! Exit statuses, and the one place where an error becomes a line on standard error.

use std::io::Write;
use std::process::ExitCode;

/// The statuses that the program ends with, apart from its own defects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All that was asked was done.
    Ok = 0,
    /// At least one job failed; the result says which and why.
    JobFailed = 1,
    /// The input cannot be carried out; nothing is left behind.
    BadInput = 2,
    /// `compare --fail-if-slower`: side B is slower.
    Slower = 3,
    /// `compare`: nothing can be concluded, because a run is invalid or the figure says nothing.
    CannotTell = 4,
    /// Ended by a signal; what was printed is partial.
    Interrupted = 130,
}

/// A defect of this program: never to be mistaken for a result.
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
    // A closed standard error is no reason to panic: the status still tells.
    let _ = writeln!(std::io::stderr(), "plimsoll: {error:#}");
    let internal = error.downcast_ref::<load::Error>().is_some_and(|error| error.kind == load::ErrorKind::Internal);
    ExitCode::from(if internal { INTERNAL } else { Exit::BadInput as u8 })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

//! The workers that run clones: a thread of this process, or a child process.

use std::thread::{Scope, ScopedJoinHandle};

use sys::child::{self, Child, Outcome};

use super::clone::{self, Orders, Report};
use crate::{Error, ErrorKind};

/// A clone at work.
pub(super) enum Worker<'scope> {
    /// The clone runs as a thread; None once joined.
    Thread(Option<ScopedJoinHandle<'scope, Report>>),
    /// The clone runs as a child process.
    Process(Child),
}

impl<'scope> Worker<'scope> {
    /// Starts a clone.
    ///
    /// # Errors
    /// No more threads or processes: EAGAIN, ENOMEM.
    pub fn start<'env>(
        orders: Orders<'scope>,
        as_thread: bool,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Result<Worker<'scope>, Error> {
        let hint = "the limit of processes is reached (ulimit -u), or memory is: use fewer numjobs";
        if as_thread {
            let thread = std::thread::Builder::new().name(format!("clone-{}", orders.seat));
            let handle = thread.spawn_scoped(scope, move || clone::run(&orders));
            let handle = handle
                .map_err(|error| Error::system("cannot start a thread", format!("for job {}", orders.job.name), error))
                .map_err(|error| error.hint(hint))?;
            return Ok(Worker::Thread(Some(handle)));
        }
        child::spawn(|| clone::run(&orders).to_bytes())
            .map(Worker::Process)
            .map_err(|error| Error::system("cannot start a process", format!("for job {}", orders.job.name), error))
            .map_err(|error| error.hint(hint))
    }

    /// The report if the clone has ended; None while it runs.
    pub fn try_finish(&mut self) -> Option<Result<Report, Error>> {
        match self {
            Worker::Thread(handle) => {
                if !handle.as_ref()?.is_finished() {
                    return None;
                }
                let report = handle.take()?.join();
                Some(report.map_err(|_| internal("a clone panicked: this is a defect of plimsoll, please report it")))
            }
            Worker::Process(child) => match child.try_wait() {
                Ok(None) => None,
                Ok(Some(Outcome::Answer(bytes))) => Some(
                    Report::from_bytes(&bytes)
                        .map_err(|error| internal(&format!("a clone's report cannot be read: {error}"))),
                ),
                Ok(Some(Outcome::Signal(signal))) => Some(Err(died(&format!("was killed by signal {signal}")))),
                Ok(Some(Outcome::Status(status))) => Some(Err(died(&format!("ended with status {status}")))),
                Err(error) => Some(Err(Error::system("cannot wait for", "a clone", error))),
            },
        }
    }
}

fn died(how: &str) -> Error {
    Error {
        kind: ErrorKind::System,
        what: format!("the process of a clone {how} before it could report"),
        place: String::new(),
        hint: "was it killed from outside, or by the kernel for lack of memory?".into(),
        source: None,
    }
}

fn internal(what: &str) -> Error {
    Error { kind: ErrorKind::Internal, what: what.into(), place: String::new(), hint: String::new(), source: None }
}

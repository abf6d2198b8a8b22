//! `exec`: the one op of a job is the run of a program, for load that this program cannot make itself. The op ends with
//! the program. A program that runs longer than the job gets SIGTERM, and SIGKILL after `grace_time`.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::process::{Child, Command, ExitStatus, Stdio};

use job::Job;
use sys::clock::{monotonic_ns, sleep_until_ns};

use super::{Completion, Engine, Queued, Request, Setup, Slot};
use crate::Error;

/// The time between two looks at a program.
const LOOK_NS: u64 = 2_000_000;
/// The longest wait before the runner looks at its clock again.
const SLICE_NS: u64 = 20_000_000;

struct Exec {
    /// Name of the job.
    job: String,
    words: Vec<String>,
    /// Files for standard output and standard error; None: the program has those of this process.
    output: Option<(File, File)>,
    grace_ns: u64,
    /// The program and the buffer of its op, while it runs.
    running: Option<(Child, Slot)>,
    /// The op that the runner has not collected yet.
    ended: Option<Completion>,
    failure: Option<io::Error>,
}

/// Makes the engine.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Engine>, Error> {
    let job = setup.job;
    let option = |name: &str| job.ring.option(name);
    let grace_ns = option("grace_time").and_then(|value| value.parse().ok()).unwrap_or(1_000_000_000);
    let output = if option("std_redirect") == Some("0") {
        None
    } else {
        Some((output_file(job, "stdout")?, output_file(job, "stderr")?))
    };
    let words = words(job, option("program").unwrap_or_default(), option("arguments").unwrap_or_default());
    Ok(Box::new(Exec { job: job.name.clone(), words, output, grace_ns, running: None, ended: None, failure: None }))
}

/// The file for one of the program's streams, emptied. Several clones append to it.
fn output_file(job: &Job, suffix: &str) -> Result<File, Error> {
    let name = format!("{}.{suffix}", job.name);
    let failed = |error| Error::system("cannot make the file for the output of program=,", &name, error);
    File::create(&name).map_err(failed)?;
    File::options().append(true).open(&name).map_err(failed)
}

/// The program and its arguments: words between spaces, as in fio. Words are not quoted.
fn words(job: &Job, program: &str, arguments: &str) -> Vec<String> {
    let seconds = job.time.runtime_ns.unwrap_or(0) / 1_000_000_000;
    let arguments = arguments.replace("%r", &seconds.to_string()).replace("%n", &job.name);
    format!("{program} {arguments}").split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

impl Exec {
    fn start(&self) -> io::Result<Child> {
        let (program, arguments) = self.words.split_first().ok_or_else(|| io::Error::other("program is empty"))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        sys::child::usual_signals(&mut command, true);
        if let Some((out, err)) = &self.output {
            command.stdout(out.try_clone()?).stderr(err.try_clone()?);
        }
        command.spawn().map_err(|error| io::Error::new(error.kind(), format!("cannot run {program}: {error}")))
    }

    /// Takes note of the program's end.
    fn end(&mut self, status: ExitStatus, slot: Slot) {
        if !status.success() {
            let seen = match self.output {
                Some(_) => format!("; its output is in {0}.stdout and {0}.stderr", self.job),
                None => String::new(),
            };
            let program = self.words.join(" ");
            self.failure = Some(io::Error::other(format!("the program {program} ended with {status}{seen}")));
        }
        self.ended = Some(Completion { slot, result: 0 });
    }

    /// Looks at the program; true if it has ended.
    fn look(&mut self) -> io::Result<bool> {
        let Some((mut child, slot)) = self.running.take() else { return Ok(true) };
        match child.try_wait()? {
            Some(status) => {
                self.end(status, slot);
                Ok(true)
            }
            None => {
                self.running = Some((child, slot));
                Ok(false)
            }
        }
    }

    /// Waits for the program's end, at most this long; true if it has ended.
    fn wait(&mut self, most_ns: u64) -> io::Result<bool> {
        let until = monotonic_ns().saturating_add(most_ns);
        loop {
            if self.look()? {
                return Ok(true);
            }
            let now = monotonic_ns();
            if now >= until {
                return Ok(false);
            }
            sleep_until_ns((now + LOOK_NS).min(until));
        }
    }
}

impl Engine for Exec {
    fn open(&mut self, _file: u32, _fd: RawFd) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self, _file: u32) {}

    fn queue(&mut self, request: Request) -> Queued {
        match self.start() {
            Ok(child) => self.running = Some((child, request.slot)),
            Err(error) => {
                self.failure = Some(error);
                self.ended = Some(Completion { slot: request.slot, result: Completion::ENDED });
            }
        }
        Queued::Later
    }

    fn submit(&mut self) -> io::Result<usize> {
        Ok(usize::from(self.running.is_some() || self.ended.is_some()))
    }

    fn reap(&mut self, min: usize, _max: usize, timeout: Option<u64>, done: &mut Vec<Completion>) -> io::Result<()> {
        let most_ns = if min == 0 { 0 } else { timeout.unwrap_or(SLICE_NS).min(SLICE_NS) };
        self.wait(most_ns)?;
        done.extend(self.ended.take());
        Ok(())
    }

    fn abandon(&mut self, _patience: std::time::Duration) {
        let Some((child, _)) = &self.running else { return };
        // The time is over: the way in which the program ends now is not its own.
        let id = child.id() as libc::pid_t;
        // SAFETY: kill takes no memory; the child has not been waited for, so that the number is still its own.
        unsafe { libc::kill(id, libc::SIGTERM) };
        if !matches!(self.wait(self.grace_ns), Ok(true))
            && let Some((mut child, slot)) = self.running.take()
        {
            let _ = child.kill();
            let _ = child.wait();
            self.ended = Some(Completion { slot, result: 0 });
        }
        self.failure = None;
    }

    fn failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        self.abandon(std::time::Duration::ZERO);
    }
}

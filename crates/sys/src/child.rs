//! A forked child that computes bytes for its parent.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::FromRawFd;

/// A running child process. Dropping it kills and reaps the child.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
    answer: File,
    reaped: bool,
}

/// The end of a child process: a status or a signal.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The child computed these bytes and ended with status 0.
    Answer(Vec<u8>),
    /// This signal ended the child.
    Signal(i32),
    /// The child gave up with this exit status, which is not 0.
    Status(i32),
}

/// Runs `work` in a child process and gives its handle to the parent.
///
/// The child has the parent's memory as it was, ignores SIGINT, SIGTERM and SIGHUP (they are sent to both: ending is
/// the parent's decision) and dies with its parent. Other threads of the parent do not exist in it: `work` must not
/// wait for anything that they hold.
///
/// # Errors
/// The errors of fork(2) and memfd_create(2): EAGAIN at the limit of processes, ENOMEM, EMFILE.
pub fn spawn(work: impl FnOnce() -> Vec<u8>) -> io::Result<Child> {
    let mut answer = memory_file()?;
    let parent = std::process::id();
    // SAFETY: no parameter; the child runs only `work`, under the contract above.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            die_with_parent(parent);
            // A terminal, timeout(1) and a closing session signal the whole group: how to end is the parent's decision.
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                // SAFETY: sets a disposition of this process; SIG_IGN is always valid.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            let status = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                Ok(bytes) => i32::from(answer.write_all(&bytes).is_err()),
                Err(_) => 101,
            };
            // SAFETY: ends this process at once, without the parent's exit handlers and buffers.
            unsafe { libc::_exit(status) }
        }
        pid => Ok(Child { pid, answer, reaped: false }),
    }
}

/// An empty file without a name, in memory: children that are forked later share it.
///
/// # Errors
/// The error of memfd_create(2): EMFILE, ENOMEM.
pub fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a NUL-terminated literal.
    let fd = unsafe { libc::memfd_create(c"answer".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd was just created and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Ends this new process when the process `parent` ends, or now if that has ended already: the kernel sends its signal
/// for what happens after the call only.
fn die_with_parent(parent: u32) {
    // SAFETY: changes only this process: the kernel sends it SIGKILL when its parent ends.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: getppid takes no arguments and cannot fail.
    if unsafe { libc::getppid() } as u32 != parent {
        // SAFETY: ends this process at once; nobody is left to read its status.
        unsafe { libc::_exit(1) };
    }
}

/// Gives the program of `command` the usual dispositions of signals, which a child of [`spawn`] ignores: a program
/// would inherit that, and SIGTERM would not end it. With `dies_with_parent` the program ends with the calling thread.
pub fn usual_signals(command: &mut std::process::Command, dies_with_parent: bool) {
    let parent = std::process::id();
    let prepare = move || {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            // SAFETY: sets a disposition of the new process; SIG_DFL is always valid.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        if dies_with_parent {
            die_with_parent(parent);
        }
        Ok(())
    };
    // SAFETY: between fork and exec, `prepare` makes a few system calls and touches no memory of the parent.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, prepare) };
}

impl Child {
    /// The process id of the child.
    pub fn id(&self) -> i32 {
        self.pid
    }

    /// The outcome if the child has ended; None while it runs.
    ///
    /// # Errors
    /// The errors of waitpid(2) and of reading the answer.
    pub fn try_wait(&mut self) -> io::Result<Option<Outcome>> {
        let mut status = 0;
        // SAFETY: status is a valid integer to fill; pid is a child of this process that nobody else reaps.
        match unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) } {
            0 => Ok(None),
            -1 => Err(io::Error::last_os_error()),
            _ => {
                self.reaped = true;
                self.outcome(status).map(Some)
            }
        }
    }

    fn outcome(&mut self, status: i32) -> io::Result<Outcome> {
        if libc::WIFSIGNALED(status) {
            return Ok(Outcome::Signal(libc::WTERMSIG(status)));
        }
        if libc::WEXITSTATUS(status) != 0 {
            return Ok(Outcome::Status(libc::WEXITSTATUS(status)));
        }
        let mut bytes = Vec::new();
        self.answer.rewind()?;
        self.answer.read_to_end(&mut bytes)?;
        Ok(Outcome::Answer(bytes))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: pid is a child of this process that has not been reaped, so the number still means that child.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            let mut status = 0;
            // SAFETY: status is a valid integer to fill; pid is a child of this process that nobody else reaps.
            unsafe { libc::waitpid(self.pid, &mut status, 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::SharedWords;
    use std::sync::atomic::Ordering::Relaxed;

    fn wait(child: &mut Child) -> Outcome {
        loop {
            if let Some(outcome) = child.try_wait().unwrap() {
                return outcome;
            }
            std::thread::yield_now();
        }
    }

    /// A parent that is killed before its child has asked for a signal leaves no child behind.
    #[test]
    fn a_child_whose_parent_has_gone_already_ends_at_once() {
        let mut orphan = spawn(|| {
            die_with_parent(std::process::id()); // the child is not its own parent
            vec![1]
        });
        assert_eq!(wait(orphan.as_mut().unwrap()), Outcome::Status(1));
        let mut child = spawn(|| {
            // SAFETY: getppid takes no arguments and cannot fail.
            die_with_parent(unsafe { libc::getppid() } as u32);
            vec![1]
        });
        assert_eq!(wait(child.as_mut().unwrap()), Outcome::Answer(vec![1]));
    }

    #[test]
    fn a_child_answers_and_shares_words() {
        let words = SharedWords::new(2).unwrap();
        let mut child = spawn(|| {
            words[1].store(7, Relaxed);
            vec![42; 100_000]
        })
        .unwrap();
        assert_eq!(wait(&mut child), Outcome::Answer(vec![42; 100_000]));
        assert_eq!(words[1].load(Relaxed), 7);
    }

    #[test]
    fn a_killed_child_says_so() {
        let mut child = spawn(|| {
            loop {
                std::thread::yield_now();
            }
        })
        .unwrap();
        // SAFETY: this test has started the child, which still runs.
        unsafe { libc::kill(child.id(), libc::SIGKILL) };
        assert_eq!(wait(&mut child), Outcome::Signal(libc::SIGKILL));
    }
}

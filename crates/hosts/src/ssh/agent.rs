//! The agent of a rank: the program that ssh starts on the rank's host. It starts the rank, and carries between ssh and
//! the rank.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::frame::Frame;
use super::{GREETING, LINK};

/// The time that the last words of a rank take through its pipes, and the time between SIGTERM and SIGKILL for a rank
/// whose ssh has gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// The status of a rank that a signal has ended, as shells tell it: this, and the signal's number.
const BY_SIGNAL: i32 = 128;

/// Starts this program with `words` as rank `rank` of `ranks`, and carries its messages and its output until it has
/// ended. `variables` go into its environment.
///
/// # Errors
/// The rank cannot be started; standard output is closed.
pub fn serve(rank: u32, ranks: u32, variables: &[(&str, &str)], words: &[OsString]) -> io::Result<()> {
    // Each write is one call, so that frames of several threads do not mix.
    io::stdout().write_all(GREETING)?;
    io::stdout().flush()?;
    let (link_in, to_rank) = pipe_with(PipeFlags::CLOEXEC)?;
    let (from_rank, link_out) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).envs(variables.iter().copied());
    command.env("PLIMSOLL_RANK", rank.to_string()).env("PLIMSOLL_RANKS", ranks.to_string());
    let mut child = start(command, link_in, link_out)?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let mut output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (messages_end, ends) = channel();
    let output_ends = messages_end.clone();
    std::thread::spawn(move || listen(&process, &mut File::from(to_rank)));
    std::thread::spawn(move || {
        let mut from = File::from(from_rank);
        while let Ok(Some(frame)) = Frame::read(&mut from) {
            if frame.write(&mut io::stdout()).is_err() {
                break;
            }
        }
        messages_end.send(())
    });
    std::thread::spawn(move || {
        let mut piece = vec![0; 1 << 16];
        while let Ok(length @ 1..) = output.read(&mut piece) {
            if Frame::Output(piece[..length].to_vec()).write(&mut io::stdout()).is_err() {
                break;
            }
        }
        output_ends.send(())
    });
    let status = child.wait()?;
    // A clone that outlives its rank would keep the pipes open.
    for _ in 0..2 {
        let _ = ends.recv_timeout(PATIENCE);
    }
    let by_signal = || std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| BY_SIGNAL + signal);
    Frame::Ended(status.code().or_else(by_signal).unwrap_or(BY_SIGNAL).unsigned_abs()).write(&mut io::stdout())
}

/// Starts the rank with its ends of the pipes, which it alone inherits.
fn start(mut command: Command, link_in: OwnedFd, link_out: OwnedFd) -> io::Result<Child> {
    for end in [&link_in, &link_out] {
        rustix::io::fcntl_setfd(end, FdFlags::empty())?;
    }
    command.env(LINK, format!("{},{}", link_in.as_raw_fd(), link_out.as_raw_fd())).spawn()
}

/// Takes frames from standard input until it ends: then nobody is interested in the rank any more. `rank` is a
/// descriptor of the process, because its number may pass to another process.
fn listen(rank: &OwnedFd, to_rank: &mut File) {
    let mut input = io::stdin().lock();
    while let Ok(Some(frame)) = Frame::read(&mut input) {
        let carried = match &frame {
            Frame::Message(..) => frame.write(to_rank).is_ok(),
            Frame::Signal(number) => {
                let signal = Signal::from_named_raw(*number as i32);
                signal.is_some_and(|signal| pidfd_send_signal(rank, signal).is_ok())
            }
            Frame::Output(_) | Frame::Ended(_) => true,
        };
        if !carried {
            break; // the rank has ended, and the agent says so
        }
    }
    let _ = pidfd_send_signal(rank, Signal::TERM); // it may have ended already
    std::thread::sleep(PATIENCE);
    let _ = pidfd_send_signal(rank, Signal::KILL);
}

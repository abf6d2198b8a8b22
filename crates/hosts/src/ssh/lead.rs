//! The program at which the user sits: it starts a rank on each host, and hands their messages on.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::frame::Frame;
use super::{AGENT, GREETING, ON_TERMINAL};

/// A run to start on many hosts.
#[derive(Clone, Debug)]
pub struct Order {
    /// The host of each rank.
    pub hosts: Vec<String>,
    /// The remote shell and its options, such as `ssh -o BatchMode=yes`: the host and a command line follow.
    pub shell: Vec<String>,
    /// The program on each host.
    pub program: PathBuf,
    /// The directory on each host in which the ranks run.
    pub directory: PathBuf,
    /// The arguments of each rank.
    pub words: Vec<OsString>,
    /// True if the first rank's progress goes to a terminal.
    pub on_terminal: bool,
}

/// The time between two looks for a signal.
const LOOK: Duration = Duration::from_millis(20);
/// SIGINT's number.
const INTERRUPT: u32 = 2;
/// The status of a run that lost a rank, and of one that could not begin.
const LOST: u32 = 1;
const REFUSED: u32 = 2;

/// The news of a rank.
enum News {
    /// The agent runs.
    Greeted,
    Frame(Frame),
    /// The remote shell has ended.
    Gone,
}

/// A rank, seen from here.
struct Rank {
    shell: Child,
    /// Takes the frames for the rank; a thread writes them, so that a rank that is stuck holds up nobody.
    frames: Sender<Frame>,
    greeted: bool,
    status: Option<u32>,
    gone: bool,
}

/// Carries out the order, and returns the exit status of the whole run. `is_signalled` tells whether the user wants the
/// run to end.
///
/// # Errors
/// The remote shell cannot be started, or no thread.
pub fn lead(order: &Order, is_signalled: impl Fn() -> bool) -> io::Result<u32> {
    let (tell, news) = channel();
    let mut ranks = Vec::new();
    for number in 0..order.hosts.len() as u32 {
        ranks.push(order.start(number, tell.clone())?);
    }
    drop(tell);
    let mut signalled = false;
    let mut out = io::stdout();
    loop {
        if !signalled && is_signalled() {
            signalled = true;
            signal_all(&ranks);
        }
        let (number, news) = match news.recv_timeout(LOOK) {
            Ok(news) => news,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let rank = &mut ranks[number as usize];
        match news {
            News::Greeted => rank.greeted = true,
            News::Frame(Frame::Message(to, bytes)) => {
                if let Some(rank) = ranks.get(to as usize) {
                    let _ = rank.frames.send(Frame::Message(number, bytes)); // a lost rank takes no more
                }
            }
            News::Frame(Frame::Output(bytes)) => {
                // A reader that has gone has enough; the status tells the rest.
                let _ = out.write_all(&bytes).and_then(|()| out.flush());
            }
            News::Frame(Frame::Ended(status)) => rank.status = Some(status),
            News::Frame(Frame::Signal(_)) => {}
            News::Gone => {
                rank.gone = true;
                let status = rank.shell.wait()?;
                let (host, greeted) = (&order.hosts[number as usize], rank.greeted);
                if !greeted && !signalled {
                    let shell = &order.shell[0];
                    let _ = writeln!(
                        io::stderr(),
                        "plimsoll: {host}: {shell} could not start {} there ({status}): `{shell} {host} true` must work \
                         without a password, and the same version must be installed",
                        order.program.display()
                    );
                    signalled = true;
                    signal_all(&ranks);
                }
            }
        }
    }
    let of = |rank: &Rank| rank.status.unwrap_or(if rank.greeted { LOST } else { REFUSED });
    // A run that could not begin says so, and a lost rank before what its loss did to the others.
    let refused = ranks.iter().any(|rank| !rank.greeted).then_some(REFUSED);
    Ok(refused.or_else(|| ranks.iter().map(of).find(|status| *status != 0)).unwrap_or(0))
}

fn signal_all(ranks: &[Rank]) {
    for rank in ranks.iter().filter(|rank| !rank.gone) {
        let _ = rank.frames.send(Frame::Signal(INTERRUPT)); // it may have ended meanwhile
    }
}

impl Order {
    fn start(&self, number: u32, tell: Sender<(u32, News)>) -> io::Result<Rank> {
        let host = &self.hosts[number as usize];
        let mut command = Command::new(&self.shell[0]);
        command.args(&self.shell[1..]).arg(host).arg(self.command_line(number));
        // A terminal sends Ctrl-C to a whole group. The shell must outlive it, or nothing would carry the last words.
        command.process_group(0);
        let mut shell = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {}: {error}", self.shell[0])))?;
        let (Some(input), Some(output)) = (shell.stdin.take(), shell.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (frames, leaving) = channel::<Frame>();
        let write = move || {
            let mut input: ChildStdin = input;
            leaving.iter().take_while(|frame| frame.write(&mut input).is_ok()).for_each(drop);
        };
        std::thread::Builder::new().name(format!("to-{host}")).spawn(write)?;
        std::thread::Builder::new().name(format!("from-{host}")).spawn(move || listen(number, output, &tell))?;
        Ok(Rank { shell, frames, greeted: false, status: None, gone: false })
    }

    /// The line for the shell of the rank's host.
    fn command_line(&self, number: u32) -> OsString {
        let mut line = OsString::from("cd ");
        line.push(quoted(self.directory.as_os_str()));
        line.push(" && exec ");
        line.push(quoted(self.program.as_os_str()));
        line.push(format!(" {AGENT} {number} {}", self.hosts.len()));
        if self.on_terminal && number == 0 {
            line.push(format!(" {ON_TERMINAL}=1"));
        }
        line.push(" --");
        for word in &self.words {
            line.push(" ");
            line.push(quoted(word));
        }
        line
    }
}

/// The word as a POSIX shell reads it back.
fn quoted(word: &OsStr) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

/// Tells what a rank sends, until its remote shell ends.
fn listen(number: u32, output: ChildStdout, tell: &Sender<(u32, News)>) {
    let mut output = BufReader::new(output);
    if skip_to_greeting(&mut output).is_ok_and(|found| found) && tell.send((number, News::Greeted)).is_ok() {
        while let Ok(Some(frame)) = Frame::read(&mut output) {
            if tell.send((number, News::Frame(frame))).is_err() {
                return;
            }
        }
    }
    let _ = tell.send((number, News::Gone)); // nobody listens once the run is over
}

/// Reads over what the start-up files of a shell may write; false if no agent greets.
fn skip_to_greeting(output: &mut impl BufRead) -> io::Result<bool> {
    let greeting = &GREETING[1..];
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::Read::take(&mut *output, 1 << 16).read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        if line == greeting {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_each_word() {
        let words = ["--name=it's", "a b", "$HOME `id` \"x\" \\", "", "-*?"].map(OsString::from);
        let order = Order {
            hosts: vec!["a".into(), "b".into()],
            shell: vec!["sh".into()],
            program: "printf".into(),
            directory: "/".into(),
            words: words.to_vec(),
            on_terminal: false,
        };
        let line = order.command_line(1).into_string().unwrap();
        let line = line.replace(&format!("{AGENT} 1 2 --"), "'%s\\n'");
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        let expected: String = words.iter().map(|word| format!("{}\n", word.to_str().unwrap())).collect();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }

    #[test]
    fn noise_before_the_greeting_is_skipped() {
        let with = [b"Welcome!\nno newline".as_slice(), GREETING, b"frames"].concat();
        let mut stream = &with[..];
        assert!(skip_to_greeting(&mut stream).unwrap());
        assert_eq!(stream, b"frames");
        assert!(!skip_to_greeting(&mut &b"command not found\n"[..]).unwrap());
    }
}

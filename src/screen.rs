//! The place of the table: a terminal that is drawn over, a dumb terminal, or a pipe.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::Context;
use report::text::Style;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::interrupt::Interrupt;
use crate::output;

/// The place; a drawn terminal is as it was before when this value is dropped.
pub struct Screen {
    /// Given back to the terminal; None where nothing is drawn.
    before: Option<Termios>,
    /// The signals that end the program; None if they end it as usual.
    interrupt: Option<Interrupt>,
    shown: RefCell<bool>,
}

/// The alternate screen, and the cursor out of the way (ECMA-48; xterm's private modes 1049 and 25).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Keys and signals are looked for this often.
const TICK: Duration = Duration::from_millis(100);

impl Screen {
    /// One text after another on standard output.
    pub fn plain() -> Screen {
        Screen { before: None, interrupt: None, shown: RefCell::new(false) }
    }

    /// The terminal, if standard input and output are one that can be drawn over; else [`Screen::plain`].
    ///
    /// # Errors
    /// The errors of setting up signals or the terminal.
    pub fn new() -> anyhow::Result<Screen> {
        let dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
        if dumb || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return Ok(Screen::plain());
        }
        let interrupt = Interrupt::listen()?;
        let before = tcgetattr(std::io::stdin()).context("cannot set up the terminal")?;
        let mut keys = before.clone();
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Now, &keys).context("cannot set up the terminal")?;
        let screen = Screen { before: Some(before), interrupt: Some(interrupt), shown: RefCell::new(false) };
        output::print(ENTER)?;
        Ok(screen)
    }

    /// True if each text replaces the one before it on the terminal.
    pub fn is_drawn(&self) -> bool {
        self.before.is_some()
    }

    /// Colours and width, as they are now.
    pub fn style(&self) -> Style {
        output::style()
    }

    /// Shows a text in place of the one before it, or after it where the output cannot be drawn over.
    ///
    /// # Errors
    /// The error of write(2).
    pub fn show(&self, text: &str) -> anyhow::Result<()> {
        if !self.is_drawn() {
            // An empty line between two looks.
            let first = !self.shown.replace(true);
            return output::print(&if first { text.to_owned() } else { format!("\n{text}") });
        }
        let (rows, columns) = console::Term::stdout()
            .size_checked()
            .map_or((24, 80), |(rows, columns)| (rows as usize, columns as usize));
        let mut frame = String::from("\x1b[H"); // home; each line is cleared behind its end, then all below
        for line in text.lines().take(rows.saturating_sub(1)) {
            frame += &format!("{}\x1b[K\r\n", console::truncate_str(line, columns, ""));
        }
        frame += "\x1b[J\x1b[2mq ends\x1b[0m";
        output::print(&frame)
    }

    /// Waits for the next look; true if there is to be none.
    pub fn wait(&self, interval: Duration) -> bool {
        let end = Instant::now() + interval;
        loop {
            if self.interrupt.as_ref().is_some_and(|interrupt| interrupt.stop.load(Relaxed)) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if !self.is_drawn() {
                std::thread::sleep(left);
            } else if key(left.min(TICK)).is_some_and(|key| b"qQ\x03\x04".contains(&key)) {
                return true;
            }
        }
    }
}

/// The key that is pressed within this time.
fn key(within: Duration) -> Option<u8> {
    let input = std::io::stdin();
    let timeout = Timespec { tv_sec: 0, tv_nsec: within.subsec_nanos().into() };
    let mut waits = [PollFd::new(&input, PollFlags::IN)];
    if !poll(&mut waits, Some(&timeout)).is_ok_and(|ready| ready > 0) {
        return None;
    }
    let mut key = [0];
    // A closed terminal ends the program.
    Some(rustix::io::read(&input, &mut key).ok().filter(|&read| read == 1).map_or(b'q', |_| key[0]))
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = write!(std::io::stdout(), "{LEAVE}").and_then(|()| std::io::stdout().flush());
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before); // the terminal may be gone
        }
    }
}

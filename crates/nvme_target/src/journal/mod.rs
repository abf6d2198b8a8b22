//! The log of a target: what hosts and administrators bring about, for the person who looks into it later.
//!
//! ```text
//!  reactors, control plane ─► Journal { level, Allowance } ─► a thread of the program ─► Entry::text | Entry::json
//! ```
//!
//! A line is made only if its level is printed and its network has lines left, and nothing here is on the way of a
//! command. No reactor writes: if nobody reads standard error, lines are lost and counted, and hosts notice nothing.

mod allowance;
mod entry;
mod level;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use allowance::Allowance;
pub use allowance::network_of;
pub use entry::{Entry, quoted};
pub use level::Level;

/// Lines that wait for whoever prints them, at most.
const WAITING: usize = 1024;
/// The time between two looks for lines that were left out.
const LOOK: Duration = Duration::from_secs(1);

/// The log. All threads of a target share it.
pub struct Journal {
    level: AtomicU8,
    state: Mutex<State>,
    changed: Condvar,
    started: Instant,
}

struct State {
    lines: VecDeque<Entry>,
    /// Lines that found no room.
    lost: u64,
    allowance: Allowance,
    is_closed: bool,
}

impl Default for Journal {
    /// An empty log of notices and everything graver.
    fn default() -> Journal {
        Journal {
            level: AtomicU8::new(Level::Notice as u8),
            state: Mutex::new(State {
                lines: VecDeque::new(),
                lost: 0,
                allowance: Allowance::default(),
                is_closed: false,
            }),
            changed: Condvar::new(),
            started: Instant::now(),
        }
    }
}

impl Journal {
    /// The least grave level that is printed.
    pub fn level(&self) -> Level {
        Level::ALL[usize::from(self.level.load(Ordering::Relaxed))]
    }

    /// Chooses the least grave level that is printed.
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// True if lines of that level are printed.
    #[inline]
    pub fn prints(&self, level: Level) -> bool {
        level as u8 <= self.level.load(Ordering::Relaxed)
    }

    /// Adds a line that the administrator, or the target itself, brings about.
    pub fn add(&self, level: Level, make: impl FnOnce() -> Entry) {
        if self.prints(level) {
            self.put(&mut self.state(), level, make());
        }
    }

    /// Adds a line that a peer in the network `source` brings about, unless that network, or all together, have had
    /// their lines.
    pub fn add_of(&self, level: Level, source: IpAddr, make: impl FnOnce() -> Entry) {
        if !self.prints(level) {
            return;
        }
        let mut state = self.state();
        self.tell_of_those_left_out(&mut state);
        if state.allowance.admits(source, self.level()) {
            self.put(&mut state, level, make());
        }
    }

    /// The oldest line; waits for one. `None` once the log is closed and has no line left.
    pub fn next(&self) -> Option<Entry> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                let left_out = state.allowance.end();
                self.tell(&mut state, left_out);
            }
            self.tell_of_those_left_out(&mut state);
            if let Some(entry) = state.lines.pop_front() {
                return Some(entry);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// All lines that wait.
    pub fn take(&self) -> Vec<Entry> {
        self.state().lines.drain(..).collect()
    }

    /// Ends the log: [`Journal::next`] returns `None` after the last line.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, state: &mut State, level: Level, entry: Entry) {
        if state.lines.len() + 1 < WAITING {
            if state.lost > 0 {
                let lost = std::mem::take(&mut state.lost);
                let message = format!("{lost} lines of the log were lost: nobody took them from standard error");
                state.lines.push_back(Entry { level: Level::Warning, ..Entry::new("left-out", message) });
            }
            state.lines.push_back(Entry { level, ..entry });
            self.changed.notify_one();
        } else {
            state.lost += 1;
        }
    }

    fn tell_of_those_left_out(&self, state: &mut State) {
        let left_out = state.allowance.turn(self.started.elapsed());
        self.tell(state, left_out);
    }

    fn tell(&self, state: &mut State, left_out: Vec<(Option<IpAddr>, u64)>) {
        for (source, lines) in left_out {
            let of = source.map_or("other addresses".into(), allowance::name);
            let message = format!("{lines} lines about hosts at {of} were left out: too many in a minute");
            let entry = Entry::new("left-out", message).with("lines", lines);
            let entry = match source {
                Some(source) => entry.with("network", allowance::name(source)),
                None => entry,
            };
            self.put(state, Level::Warning, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> Entry {
        Entry::new("test", message)
    }

    #[test]
    fn a_line_is_made_only_if_it_is_printed() {
        let journal = Journal::default();
        journal.add(Level::Info, || unreachable!("its level is not printed"));
        journal.add_of(Level::Debug, [10, 0, 0, 1].into(), || unreachable!("its level is not printed"));
        journal.set_level(Level::Debug);
        journal.add(Level::Debug, || line("now it is"));
        journal.set_level(Level::Error);
        journal.add(Level::Warning, || unreachable!("its level is not printed"));
        let lines = journal.take();
        assert_eq!((lines.len(), lines[0].level, lines[0].message.as_str()), (1, Level::Debug, "now it is"));
    }

    /// A hostile host brings about lines by the million: the log counts them without making them, and other hosts keep
    /// their lines.
    #[test]
    fn no_network_fills_the_log() {
        let journal = Journal::default();
        let (hostile, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut made = 0;
        for _ in 0..1_000_000 {
            journal.add_of(Level::Warning, hostile, || {
                made += 1;
                line("refused")
            });
        }
        assert_eq!(made, allowance::LINES_OF_ONE);
        journal.add_of(Level::Warning, other, || line("another"));
        journal.add(Level::Notice, || line("the administrator's"));
        journal.close();
        let rest: Vec<Entry> = std::iter::from_fn(|| journal.next()).skip(made as usize).collect();
        let messages: Vec<&str> = rest.iter().map(|entry| entry.message.as_str()).collect();
        let left_out = 1_000_000 - u64::from(made);
        let left_out = format!("{left_out} lines about hosts at 10.0.0.1 were left out: too many in a minute");
        assert_eq!(messages, ["another", "the administrator's", &left_out]);
    }

    #[test]
    fn a_reader_that_stops_loses_lines_and_no_memory() {
        let journal = Journal::default();
        (0..2 * WAITING).for_each(|_| journal.add(Level::Error, || line("x")));
        let taken = journal.take().len();
        assert!(taken <= WAITING, "{taken}");
        journal.add(Level::Error, || line("y"));
        let lines = journal.take();
        assert!(lines[0].message.starts_with(&format!("{} lines of the log were lost", 2 * WAITING - taken)));
        assert_eq!(lines[1].message, "y");
    }
}

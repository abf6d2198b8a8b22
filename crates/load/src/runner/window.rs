//! The measured part of a visit: a window in a longer run, within which the queue is as deep as the job asks.
//!
//! ```text
//! fill ─► queue full ─► a generation passes, and the ramp ─► window ─► drain
//! ```
//!
//! A run in slices has one window after the other. Between two of them the queue fills up, or drains, to the next
//! depth. A run in turns has one window after the other, too, with fixed times: the job rests between them.
//!
//! Ops that were in flight when the queue became full met a shorter one: the window begins when they have all
//! completed. It ends before the drain. A completion within it counts with its whole latency, wherever the op began,
//! and nothing else counts. Where both ends are fixed times, no latency chooses them: an op is as likely to count if it
//! is slow as if it is fast. A window that goes on, or that holds whole bursts, ends by the data; the bias of that is
//! not proven to be small.
//!
//! Storage that answers in bursts, such as a limit that refills ten times a second, needs more: a window that holds
//! three bursts and a half gives a rate that is a seventh too high or too low. There the window begins and ends at the
//! first completion of a burst, so that it holds whole ones.
//!
//! Time is passed in.

use std::cmp::Ordering;

use job::job::{Slice, Turn, Window as Rule};

/// The latencies of the ops that a window counts, as a part of the time that ops were in flight within it, are 1 in
/// the mean. A window goes on while they differ by more.
const BALANCED: f64 = 0.02;
/// Completions below which a window goes on.
const FEWEST: u64 = 50;
/// A window that goes on is at most this many times as long as it was to be.
const LONGEST: u64 = 4;
/// Part of the window from which on a silence between completions is the time between two bursts.
const SILENCE: u64 = 32;
/// A silence of this part of the longest one ends a burst, too.
const SAME_SILENCE: f64 = 0.5;
/// Longest silences that the window waits for its burst.
const PATIENCE: u64 = 4;

/// The state of a clone's window.
#[derive(Debug)]
pub struct Window {
    extends: bool,
    /// True if the window holds whole bursts, of storage that answers in bursts.
    holds_bursts: bool,
    runtime_ns: u64,
    ramp_ends: u64,
    patience_ns: u64,
    phase: Phase,
    last_completion: u64,
    longest_silence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The queue is not full yet.
    Filling,
    /// Ops of the first generation are in flight, at most until this time.
    Passing(u64),
    /// The generation has passed, at that time.
    Settled(u64),
    /// The window is open: its start, and the time at which it is to end.
    Open(u64, u64),
}

/// The step that a look at the window asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Nothing changes.
    Stay,
    /// The queue is full: the ops in flight are the first generation.
    Full,
    /// The window began at this time.
    Opens(u64),
    /// The window ended at this time.
    Closes(u64),
}

/// The numbers of a window so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoFar {
    /// Ops that completed in the window.
    pub ops: u64,
    /// The sum of their latencies, in nanoseconds.
    pub lat_sum_ns: u64,
    /// The requests in flight, integrated over the window.
    pub in_flight_ns: u128,
}

impl Window {
    /// The window of a run that starts at `start_ns`, with this ramp at least.
    pub fn new(rule: Rule, start_ns: u64, ramp_ns: u64, runtime_ns: u64) -> Window {
        Window {
            extends: rule.extends,
            holds_bursts: rule.extends,
            runtime_ns,
            ramp_ends: start_ns + ramp_ns,
            patience_ns: u64::MAX,
            phase: Phase::Filling,
            last_completion: start_ns,
            longest_silence: 0,
        }
    }

    /// The window of a slice that starts at `now`.
    pub fn of_slice(slice: &Slice, now: u64, settle_ns: u64) -> Window {
        let window = Window::new(Rule { extends: false }, now, settle_ns, slice.measured_ns);
        Window { holds_bursts: true, patience_ns: slice.patience_ns, ..window }
    }

    /// The window of a turn in a run that starts at `start_ns`. It has fixed ends, whatever the queue does.
    pub fn of_turn(turn: &Turn, start_ns: u64) -> Window {
        let opens = start_ns + turn.opens_ns;
        let window = Window::new(Rule { extends: false }, start_ns, turn.opens_ns, turn.closes_ns - turn.opens_ns);
        Window { phase: Phase::Settled(opens), ..window }
    }

    /// The time from which on the window has to be looked at, at each completion.
    pub fn look_at(&self) -> u64 {
        match self.phase {
            Phase::Open(_, due) => due,
            Phase::Settled(_) if !self.holds_bursts => self.ramp_ends,
            _ => 0,
        }
    }

    /// Takes note that the first generation has passed.
    pub fn settled(&mut self, now: u64) {
        if let Phase::Passing(_) = self.phase {
            self.phase = Phase::Settled(now);
        }
    }

    /// The step at `now`, before ops that completed then are counted. `queue` compares the ops in flight with the
    /// depth, `completed` tells whether ops have completed.
    pub fn step(&mut self, now: u64, queue: Ordering, completed: bool, so_far: impl FnOnce(u64) -> SoFar) -> Step {
        let silence = if completed { now - self.last_completion } else { 0 };
        if completed {
            self.last_completion = now;
        }
        match self.phase {
            // A queue that is still too deep is never taken for full.
            Phase::Filling if queue.is_eq() || (queue.is_lt() && now >= self.ramp_ends) => {
                self.phase = Phase::Passing(now.saturating_add(self.patience_ns));
                Step::Full
            }
            Phase::Filling => Step::Stay,
            Phase::Passing(until) => {
                self.longest_silence = self.longest_silence.max(silence);
                if now >= until {
                    self.phase = Phase::Settled(now);
                }
                Step::Stay
            }
            Phase::Settled(_) if now < self.ramp_ends => {
                self.longest_silence = self.longest_silence.max(silence);
                Step::Stay
            }
            Phase::Settled(at) => {
                let from = at.max(self.ramp_ends);
                self.longest_silence = self.longest_silence.max(silence);
                if !self.begins_or_ends(silence, now, from) {
                    return Step::Stay;
                }
                let start = if self.is_in_bursts() { now } else { from };
                self.phase = Phase::Open(start, start + self.runtime_ns);
                Step::Opens(start)
            }
            Phase::Open(_, due) if now < due => Step::Stay,
            Phase::Open(start, due) => {
                // A fixed time, or the first completion of a burst.
                let end = if self.is_in_bursts() { now } else { due };
                if !self.begins_or_ends(silence, now, due) || !self.is_enough(start, now, so_far(end)) {
                    if !self.is_in_bursts() {
                        self.phase = Phase::Open(start, now);
                    }
                    return Step::Stay;
                }
                Step::Closes(end)
            }
        }
    }

    fn is_in_bursts(&self) -> bool {
        self.holds_bursts && self.longest_silence >= self.runtime_ns / SILENCE
    }

    /// True if the window may begin or end at `now`, which it may from `due` on: with bursts, at the start of one.
    fn begins_or_ends(&self, silence: u64, now: u64, due: u64) -> bool {
        !self.is_in_bursts()
            || silence as f64 >= self.longest_silence as f64 * SAME_SILENCE
            || now >= due + PATIENCE * self.longest_silence
    }

    /// True if the window has ops enough, and they are typical, or if it has had its time.
    fn is_enough(&self, start: u64, now: u64, so_far: SoFar) -> bool {
        let balance = so_far.lat_sum_ns as f64 / so_far.in_flight_ns as f64 - 1.0;
        !self.extends || now >= start + LONGEST * self.runtime_ns || (so_far.ops >= FEWEST && balance.abs() <= BALANCED)
    }
}

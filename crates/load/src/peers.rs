//! Peers carry out the same plan elsewhere. To the runner, peers are gates that all come to, and a party that it tells
//! of starts and failures. The runner does not know who the peers are and how they are reached.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The stages at which a run waits for its peers. All peers come to the stages in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The peers of this turn and of those before have made their files: see [`Peers::turn`].
    Turn(u32),
    /// All files are laid out.
    LaidOut,
    /// The clones of this number (that of their first job, or of their phase) are ready to begin.
    Start(u32),
}

impl Stage {
    /// Number of the stage in the order of all stages.
    pub fn number(self) -> u32 {
        match self {
            Stage::Turn(turn) => turn.min(8),
            Stage::LaidOut => 9,
            Stage::Start(number) => 10 + number,
        }
    }
}

/// The state of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The gate is shut: some peers are still to come.
    Wait,
    /// The gate opens for all at one moment: the value of this host's `CLOCK_MONOTONIC` in nanoseconds.
    Open(u64),
    /// The gate will not open: the run is to stop.
    Closed,
}

/// The peers of a run.
pub trait Peers {
    /// In which turn files that may be the same for all are made: 0 for one of all peers, 1 for one on each other host,
    /// 2 for the rest.
    fn turn(&self) -> u32;
    /// Comes to a gate; to be asked again until it is open or closed.
    fn gate(&mut self, stage: Stage) -> Gate;
    /// A clone began at `actual_ns`, where `agreed_ns` was agreed on; both on `CLOCK_MONOTONIC`.
    fn started(&mut self, agreed_ns: u64, actual_ns: u64);
    /// Something failed here, in one line: the others are to stop.
    fn failed(&mut self, what: &str);
}

/// Waits at a gate. When it opens; None if it does not, or `stop` is set on the way.
pub(crate) fn wait(
    peers: &mut dyn Peers,
    stage: Stage,
    stop: &AtomicBool,
    meanwhile: &mut dyn FnMut(&mut dyn Peers),
) -> Option<u64> {
    loop {
        match peers.gate(stage) {
            Gate::Open(at_ns) => return Some(at_ns),
            Gate::Closed => return None,
            Gate::Wait if stop.load(Relaxed) => return None,
            Gate::Wait => meanwhile(peers),
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Waits until it is this peer's turn to make files that may be the same for all. False if there is none.
pub(crate) fn await_turn(peers: &mut dyn Peers, stop: &AtomicBool) -> bool {
    (0..peers.turn()).all(|turn| wait(peers, Stage::Turn(turn), stop, &mut |_| {}).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_numbered_in_their_order() {
        let order = [Stage::Turn(0), Stage::Turn(1), Stage::LaidOut, Stage::Start(0), Stage::Start(7)];
        assert!(order.is_sorted_by(|a, b| a < b && a.number() < b.number()));
    }
}

//! The messages between ranks.

use serde::{Deserialize, Serialize};

use crate::clock::Offset;

/// A point that all ranks reach in the same order: gates within an epoch, and the exchange that ends it.
pub type Round = u64;
/// The last exchange of a run, whatever went before.
pub const FINAL: Round = u64::MAX - 1;
/// The rank waits at no gate.
pub const NOWHERE: Round = u64::MAX;

/// The first byte of every message. It changes when their form does: ranks of different builds then notice instead of
/// misunderstanding each other.
const FORM: u8 = 2;

/// A message; some have bytes that follow it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Up the tree: all ranks below have come so far, and the first gate that one of them waits at.
    Reached { view: u32, reached: Round, waiting: Round },
    /// Up the tree: what all ranks below hand over, merged.
    Part { view: u32, round: Round },
    /// Down the tree: a gate opens when the root's clock says so.
    Open { round: Round, at_ns: u64 },
    /// Down the tree: the answer of an exchange.
    Answer { round: Round },
    /// To the parent: what does your clock say?
    Ping { sync: u32, number: u32, machine: u64 },
    /// The answer to `Ping`: the parent's clock, and how far the root's clock is ahead of it, once the parent knows.
    Pong { sync: u32, number: u32, machine: u64, clock_ns: u64, onward: Option<Offset> },
    /// Up the tree: what all ranks below have measured so far, merged; the least of their numbers of statements.
    Statement { number: u64 },
    /// Up the tree: a sign of life, and what all ranks below are doing.
    Beat(Moment),
    /// Down the tree: a sign of life.
    Pulse,
    /// Straight to another rank: are you there? It answers with a sign of life.
    Call,
    /// Straight to the root: something went wrong.
    Trouble(Trouble),
    /// Down the tree: everyone stops; who is lost no longer counts.
    Stop { view: u32, urgent: bool, troubles: Vec<Trouble>, lost: Vec<u32> },
    /// Straight to the root: this rank was told to end, at once.
    Urgent,
    /// Straight to the two lowest ranks when time is short: the part that one rank has measured.
    Partial,
}

/// An event on a rank that ends the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The rank that has the trouble.
    pub rank: u32,
    /// A description of the event, in one line.
    pub what: String,
    /// True if the rank is lost: it can say nothing any more.
    pub lost: bool,
}

impl Trouble {
    /// The trouble of a rank that is heard no more.
    pub fn lost(rank: u32) -> Trouble {
        Trouble { rank, what: "was lost: killed, or its host or the network to it is down".into(), lost: true }
    }
}

/// A moment of the load of one rank, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// The phase of the rank that is furthest behind.
    pub phase: u8,
    /// The number of clones at work, and of all clones.
    pub clones: (u32, u32),
    /// Nanoseconds since the run began.
    pub elapsed_ns: u64,
    /// Sum of the parts of their work that ranks have done; NaN when one does not know.
    pub done: f64,
    /// The number of ranks that are added up.
    pub ranks: u32,
    /// Ops so far: reads, writes, trims.
    pub ops: [u64; 3],
    /// Bytes so far: reads, writes, trims.
    pub bytes: [u64; 3],
    /// Sum of the latencies of those ops.
    pub lat_sum_ns: u64,
}

impl Moment {
    /// Adds the moment of other ranks.
    pub fn add(&mut self, other: &Moment) {
        let &Moment { phase, clones, elapsed_ns, done, ranks, ops, bytes, lat_sum_ns } = other;
        self.phase = if self.ranks == 0 { phase } else { self.phase.min(phase) };
        self.clones = (self.clones.0 + clones.0, self.clones.1 + clones.1);
        self.elapsed_ns = self.elapsed_ns.max(elapsed_ns);
        self.done += done;
        self.ranks += ranks;
        for direction in 0..3 {
            self.ops[direction] += ops[direction];
            self.bytes[direction] += bytes[direction];
        }
        self.lat_sum_ns += lat_sum_ns;
    }
}

/// A message as bytes, with what follows it.
pub fn written(message: &Message, bytes: &[u8]) -> Vec<u8> {
    let mut out = postcard::to_extend(message, vec![FORM]).unwrap_or_default();
    out.extend_from_slice(bytes);
    out
}

/// The message in `bytes` and what follows it; None if it is none of this build's.
pub fn read(bytes: &[u8]) -> Option<(Message, &[u8])> {
    let (&form, rest) = bytes.split_first()?;
    (form == FORM).then(|| postcard::take_from_bytes(rest).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way_and_those_of_other_builds_are_none() {
        let stop = Message::Stop {
            view: 3,
            urgent: true,
            troubles: vec![Trouble { rank: 7, what: "no space".into(), lost: false }],
            lost: vec![1, 2],
        };
        for message in [stop, Message::Pulse, Message::Part { view: 1, round: FINAL }] {
            let bytes = written(&message, b"part");
            assert_eq!(read(&bytes), Some((message, &b"part"[..])));
        }
        let mut foreign = written(&Message::Pulse, b"");
        foreign[0] = FORM + 1;
        assert_eq!((read(&foreign), read(b"")), (None, None));
    }

    #[test]
    fn moments_of_ranks_add_up() {
        let one = |phase, done| Moment { phase, done, ranks: 1, clones: (1, 2), ops: [5, 0, 0], ..Moment::default() };
        let mut all = Moment::default();
        all.add(&one(2, 0.5));
        all.add(&one(1, 1.0));
        assert_eq!((all.phase, all.ranks, all.clones, all.ops[0], all.done), (1, 2, (2, 4), 10, 1.5));
        all.add(&one(2, f64::NAN));
        assert!(all.done.is_nan());
    }
}

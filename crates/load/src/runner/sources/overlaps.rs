//! `serialize_overlap`: an op that overlaps one in flight of the same clone waits for it, unless both only read.

use job::workload::{Op, OpKind};
use measure::Direction;

/// The ops in flight of a clone, and the op that waits for one of them.
#[derive(Default)]
pub(in crate::runner) struct Overlaps {
    /// The op in flight of each slot.
    flights: Vec<Option<Op>>,
    held: Option<Op>,
}

impl Overlaps {
    /// The op that waits, to be offered again.
    pub fn take_held(&mut self) -> Option<Op> {
        self.held.take()
    }

    /// The op if it may be issued; None if it has to wait, and is now held.
    pub fn admit(&mut self, op: Op) -> Option<Op> {
        if self.flights.iter().flatten().any(|flight| races(flight, &op)) {
            self.held = Some(op);
            return None;
        }
        Some(op)
    }

    /// Takes note of an op that is issued.
    pub fn issued(&mut self, op: &Op, slot: u32) {
        let slot = slot as usize;
        if self.flights.len() <= slot {
            self.flights.resize(slot + 1, None);
        }
        self.flights[slot] = Some(*op);
    }

    /// Takes note of an op that has ended, well or not.
    pub fn ended(&mut self, slot: u32) {
        if let Some(flight) = self.flights.get_mut(slot as usize) {
            *flight = None;
        }
    }
}

/// True if the two ops share bytes, and at least one changes them.
fn races(a: &Op, b: &Op) -> bool {
    let reads = |op: &Op| op.kind == OpKind::Io(Direction::Read);
    let transfers = |op: &Op| matches!(op.kind, OpKind::Io(_));
    let together = a.file == b.file && a.offset < b.offset + b.len && b.offset < a.offset + a.len;
    together && transfers(a) && transfers(b) && !(reads(a) && reads(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ops_that_share_bytes_and_change_them_wait() {
        let op = |direction, file, offset| Op { kind: OpKind::Io(direction), file, offset, len: 4096 };
        let mut overlaps = Overlaps::default();
        overlaps.issued(&op(Direction::Write, 0, 8192), 3);
        overlaps.issued(&op(Direction::Read, 0, 65536), 0);
        for free in [
            op(Direction::Write, 0, 4096),
            op(Direction::Write, 0, 12288),
            op(Direction::Write, 1, 8192),
            op(Direction::Read, 0, 65536),
        ] {
            assert_eq!(overlaps.admit(free), Some(free));
        }
        for (waits, slot) in [(op(Direction::Read, 0, 12287), 3), (op(Direction::Trim, 0, 61441), 0)] {
            assert_eq!(overlaps.admit(waits), None);
            overlaps.ended(slot);
            let held = overlaps.take_held().unwrap();
            assert_eq!(overlaps.admit(held), Some(waits));
        }
    }
}

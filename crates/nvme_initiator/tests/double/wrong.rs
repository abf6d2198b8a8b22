//! Units that no controller may send: each kind of violation, in the place of the right answer to a command.

use nvme::pdu::{C2hData, R2t};
use nvme::spec::{Command, Status};

use super::{BLOCK, Double};

/// A violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Data of a read: the second block without the first.
    Gap,
    /// Data of a read: the first block again.
    Twice,
    /// Data of a read: a block more than was asked for.
    Over,
    /// Data of a read, from the end of its range on.
    Offset,
    /// Data for a command that is not outstanding.
    OtherCommand,
    /// A response whose header digest is wrong.
    HeaderDigest,
    /// A write is asked for a block more than it has.
    R2tOver,
    /// A write is asked for nothing.
    R2tEmpty,
    /// A write is asked for its second block first.
    R2tOffset,
    /// A read is asked for data.
    R2tForRead,
    /// The command has succeeded, before any of its data have moved.
    Early,
}

impl Double {
    /// Answers a command in this way.
    pub(super) fn violate(&mut self, wrong: Wrong, command: &Command) {
        let (cid, length) = (command.cid, command.sgl.length);
        match wrong {
            Wrong::Gap => self.block(cid, BLOCK, BLOCK),
            Wrong::Twice => (0..2).for_each(|_| self.block(cid, 0, BLOCK)),
            Wrong::Over => self.block(cid, 0, length + BLOCK),
            Wrong::Offset => self.block(cid, length, BLOCK),
            Wrong::OtherCommand => self.block(cid + 99, 0, BLOCK),
            Wrong::HeaderDigest => {
                self.answer(cid, Status::SUCCESS, 0);
                *self.output.last_mut().unwrap() ^= 1;
            }
            Wrong::R2tOver => self.ask_for(cid, 0, length + BLOCK),
            Wrong::R2tEmpty => self.ask_for(cid, 0, 0),
            Wrong::R2tOffset => self.ask_for(cid, BLOCK, BLOCK),
            Wrong::R2tForRead => self.ask_for(cid, 0, length),
            Wrong::Early => self.answer(cid, Status::SUCCESS, 0),
        }
    }

    fn block(&mut self, cid: u16, offset: u32, length: u32) {
        self.send_data(C2hData { cid, offset, length, last: false, success: false }, &vec![0; length as usize]);
    }

    fn ask_for(&mut self, cid: u16, offset: u32, length: u32) {
        self.unit(|agreement, out| R2t { cid, ttag: 9, offset, length }.write(agreement, out), false);
    }
}

//! The I/O commands that the target carries out: one table, which the execution of commands, Identify, the effects log
//! and statistics read.
//!
//! To add a command: a row here, and an arm in each `match` of `io.rs`, which the compiler asks for.

use nvme::spec::log::Effects;
use nvme::spec::{oncs, opcode};

use super::reservations::Need;
use crate::device::IoKind;

/// An I/O command (NVM Command Set specification 1.0, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IoCommand {
    Flush,
    Write,
    Read,
    Compare,
    WriteZeroes,
    DatasetManagement,
    Verify,
    Copy,
}

/// The way that the data of a command travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    NoData,
    FromHost,
    ToHost,
}

/// The counter of a device that a command adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Reads,
    Writes,
    Flushes,
    Deallocates,
}

/// A row of the table: the properties of one I/O command.
pub(super) struct IoCommandRow {
    pub command: IoCommand,
    pub opcode: u8,
    pub direction: Direction,
    /// True if the target refuses the command on a namespace that is write protected.
    pub changes_blocks: bool,
    /// The need by which a reservation admits the command.
    pub need: Need,
    /// True if the command takes the Force Unit Access bit.
    pub has_fua: bool,
    /// The command's bit of ONCS in Identify Controller; 0 for commands that are not optional.
    pub oncs: u16,
    /// The op that the target asks of the device.
    pub device_op: IoKind,
    pub counter: Counter,
    /// The kind of op that `plimsoll top` shows the command as.
    pub shown_as: live::Op,
}

/// The table of I/O commands, in the order of [`IoCommand`].
pub(super) static TABLE: [IoCommandRow; 8] = [
    IoCommandRow {
        command: IoCommand::Flush,
        opcode: opcode::io::FLUSH,
        direction: Direction::NoData,
        changes_blocks: false,
        need: Need::Write,
        has_fua: false,
        oncs: 0,
        device_op: IoKind::Flush,
        counter: Counter::Flushes,
        shown_as: live::Op::Other,
    },
    IoCommandRow {
        command: IoCommand::Write,
        opcode: opcode::io::WRITE,
        direction: Direction::FromHost,
        changes_blocks: true,
        need: Need::Write,
        has_fua: true,
        oncs: 0,
        device_op: IoKind::Write,
        counter: Counter::Writes,
        shown_as: live::Op::Write,
    },
    IoCommandRow {
        command: IoCommand::Read,
        opcode: opcode::io::READ,
        direction: Direction::ToHost,
        changes_blocks: false,
        need: Need::Read,
        has_fua: false,
        oncs: 0,
        device_op: IoKind::Read,
        counter: Counter::Reads,
        shown_as: live::Op::Read,
    },
    IoCommandRow {
        command: IoCommand::Compare,
        opcode: opcode::io::COMPARE,
        direction: Direction::FromHost,
        changes_blocks: false,
        need: Need::Read,
        has_fua: false,
        oncs: oncs::COMPARE,
        device_op: IoKind::Read,
        counter: Counter::Reads,
        shown_as: live::Op::Other,
    },
    IoCommandRow {
        command: IoCommand::WriteZeroes,
        opcode: opcode::io::WRITE_ZEROES,
        direction: Direction::NoData,
        changes_blocks: true,
        need: Need::Write,
        has_fua: true,
        oncs: oncs::WRITE_ZEROES,
        device_op: IoKind::WriteZeroes,
        counter: Counter::Writes,
        shown_as: live::Op::Other,
    },
    IoCommandRow {
        command: IoCommand::DatasetManagement,
        opcode: opcode::io::DATASET_MANAGEMENT,
        direction: Direction::FromHost,
        changes_blocks: true,
        need: Need::Write,
        has_fua: false,
        oncs: oncs::DATASET_MANAGEMENT,
        device_op: IoKind::Deallocate,
        counter: Counter::Deallocates,
        shown_as: live::Op::Other,
    },
    IoCommandRow {
        command: IoCommand::Verify,
        opcode: opcode::io::VERIFY,
        direction: Direction::NoData,
        changes_blocks: false,
        need: Need::Read,
        has_fua: false,
        oncs: oncs::VERIFY,
        device_op: IoKind::Read,
        counter: Counter::Reads,
        shown_as: live::Op::Other,
    },
    IoCommandRow {
        command: IoCommand::Copy,
        opcode: opcode::io::COPY,
        direction: Direction::FromHost,
        changes_blocks: true,
        need: Need::Write,
        has_fua: true,
        oncs: oncs::COPY,
        device_op: IoKind::Write,
        counter: Counter::Writes,
        shown_as: live::Op::Other,
    },
];

impl IoCommand {
    /// True if the command itself says which block it begins at.
    pub fn has_blocks(self) -> bool {
        !matches!(self, IoCommand::Flush | IoCommand::DatasetManagement)
    }

    /// The command with that opcode, if the target carries it out.
    #[inline]
    pub fn of(opcode: u8) -> Option<IoCommand> {
        TABLE.iter().find(|row| row.opcode == opcode).map(|row| row.command)
    }

    #[inline]
    pub fn row(self) -> &'static IoCommandRow {
        &TABLE[self as usize]
    }
}

impl IoCommandRow {
    /// The command's entry in the log of commands supported and their effects.
    pub fn effects(&self) -> u32 {
        Effects::SUPPORTED | if self.changes_blocks { Effects::CHANGES_BLOCKS } else { 0 }
    }
}

/// ONCS: the optional commands and features that the target has, without those that it hides.
pub(super) fn optional_commands(hidden: u16) -> u16 {
    TABLE.iter().fold(oncs::RESERVATIONS | oncs::TIMESTAMP, |oncs, row| oncs | row.oncs) & !hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_commands_and_every_opcode_leads_to_its_row() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!((row.command as usize, IoCommand::of(row.opcode)), (index, Some(row.command)));
            assert_eq!(row.command.row().opcode, row.opcode);
            // Bits 1:0 of an opcode tell the direction (Base specification 2.0, figure 88), data or not.
            let expected = [Direction::NoData, Direction::FromHost, Direction::ToHost][usize::from(row.opcode & 3)];
            assert!(row.direction == expected || row.direction == Direction::NoData, "{:?}", row.command);
            assert_eq!(row.changes_blocks, row.device_op.is_write() && row.command != IoCommand::Flush);
        }
        assert_eq!(IoCommand::of(0x7e), None);
    }
}

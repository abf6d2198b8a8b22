//! A command between its capsule and its response: the slots of a connection.

use nvme::spec::{Command, Status};
use pace::OpId;
use sys::buffer::Buffer;

use super::fused::Half;
use super::gate::{Hold, Span};
use super::io_command::IoCommand;

/// The stage of a command on its way through the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No command uses the slot.
    Free,
    /// The data in its capsule are still arriving.
    Capsule,
    /// The pacer has no slot to remember the command: the reactor does not read from the connection.
    Unadmitted,
    /// The limit of the device holds the command back (`limited.rs`), or a straggler of its host (`stragglers.rs`).
    Limited,
    /// The pacer holds the command.
    Held,
    /// The target has sent an R2T; it awaits the data, or they are arriving.
    Data,
    /// The command waits for the other half of its fused operation (`fused.rs`).
    Fused,
    /// Somebody holds the range that the command changes (`gate.rs`).
    Gated,
    /// The command is in the device.
    Device,
    /// The command's data and response are being sent.
    Sending,
}

/// A command of an I/O queue, or one of the admin queue that waits for its data.
pub(super) struct CommandSlot {
    pub stage: Stage,
    /// The kind of I/O command; it has no meaning for admin commands.
    pub command: IoCommand,
    pub fua: bool,
    pub cid: u16,
    pub nsid: u32,
    /// Index of the channel that the command goes through, and id of the drive: those of the namespace when the command
    /// came.
    pub channel: usize,
    pub drive: u32,
    /// The uid of the device, which tells if the channel is still the same device's.
    pub device_uid: u64,
    /// Offset of the first byte on the device.
    pub offset: u64,
    /// Bytes on the device (Write Zeroes may have many), and the number of them that the device has done: Copy reads as
    /// many, then writes as many.
    pub len: u64,
    pub moved: u64,
    /// Bytes of data from or to the host.
    pub data_len: u32,
    /// The first bytes of them that mean something: a host may send more.
    pub wanted: u32,
    /// Bytes of the command's data that have arrived.
    pub received: u32,
    /// Bytes that the pacer counts.
    pub charged: u32,
    /// True once the limit of the device has let the command go.
    pub has_paid: bool,
    /// True while the pacer counts the command as in flight.
    pub admitted: bool,
    /// True for reads of zeros, which have no buffer.
    pub zeros: bool,
    pub op: OpId,
    pub buffer: Option<Buffer>,
    /// The data that Compare compares with the device's data; the descriptors of Copy.
    pub expected: Option<Buffer>,
    /// An error that is known before the command ends: a data digest that does not match.
    pub status: Status,
    pub arrived_ns: u64,
    pub progress_ns: u64,
    /// Bytes counted against the reserve for data in capsules.
    pub reserved: u32,
    /// Bytes counted as being on the network; the flag is true if the pacer has set them aside.
    pub afloat: u32,
    pub is_aside: bool,
    /// An admin or Fabrics command that waits for its data.
    pub admin: Option<Box<Command>>,
    /// The command's part in a fused operation, and the range that the operation holds.
    pub fused: Option<Half>,
    pub hold: Option<Hold>,
}

impl CommandSlot {
    pub fn free() -> CommandSlot {
        CommandSlot {
            stage: Stage::Free,
            command: IoCommand::Flush,
            fua: false,
            cid: 0,
            nsid: 0,
            channel: 0,
            drive: 0,
            device_uid: 0,
            offset: 0,
            len: 0,
            moved: 0,
            data_len: 0,
            wanted: 0,
            received: 0,
            charged: 0,
            has_paid: false,
            admitted: false,
            zeros: false,
            op: OpId::UNTRACKED,
            buffer: None,
            expected: None,
            status: Status::SUCCESS,
            arrived_ns: 0,
            progress_ns: 0,
            reserved: 0,
            afloat: 0,
            is_aside: false,
            admin: None,
            fused: None,
            hold: None,
        }
    }

    /// True if the command, or the operation that it leads, changes blocks.
    #[inline]
    pub fn changes_blocks(&self) -> bool {
        self.command.row().changes_blocks || self.fused.is_some()
    }

    /// The range of the command on the device; Dataset Management has others.
    pub fn span(&self) -> Span {
        Span { offset: self.offset, len: self.len }
    }

    /// The status that tells the host of an error number. The medium's errors may be gone when the host tries again.
    pub fn status_of(&self, errno: i32) -> Status {
        match errno {
            libc::ECANCELED => Status::ABORTED_BY_REQUEST,
            libc::ENOSPC | libc::EDQUOT => Status::CAPACITY_EXCEEDED.do_not_retry(),
            libc::EROFS => Status::NAMESPACE_WRITE_PROTECTED.do_not_retry(),
            libc::EIO => match self.command {
                IoCommand::Read | IoCommand::Compare | IoCommand::Verify => Status::UNRECOVERED_READ_ERROR,
                IoCommand::Copy if self.moved < self.len => Status::UNRECOVERED_READ_ERROR,
                IoCommand::Write | IoCommand::WriteZeroes | IoCommand::Copy => Status::WRITE_FAULT,
                IoCommand::Flush | IoCommand::DatasetManagement => Status::INTERNAL_ERROR,
            },
            // Error numbers are open: any other one is the target's own failure.
            _ => Status::INTERNAL_ERROR,
        }
    }

    /// True if the data of the host and those of the device are the same, in a Compare whose data are complete.
    pub fn is_equal(&self) -> bool {
        let len = self.len as usize;
        let both = self.buffer.as_ref().zip(self.expected.as_ref());
        both.is_some_and(|(device, host)| device.as_slice()[..len] == host.as_slice()[..len])
    }
}

/// The commands of a connection. Slots are made as commands need them: an idle queue does not have any.
#[derive(Default)]
pub(super) struct CommandSlots {
    slots: Vec<CommandSlot>,
    free: Vec<u16>,
}

impl CommandSlots {
    /// The number of commands in progress.
    pub fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a slot, which is free until the caller sets its stage.
    #[inline]
    pub fn take(&mut self) -> u16 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(CommandSlot::free());
            (self.slots.len() - 1) as u16
        })
    }

    /// Gives a slot back; the caller has taken everything out that the slot owned.
    #[inline]
    pub fn give(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        debug_assert!(slot.stage != Stage::Free && slot.buffer.is_none() && slot.expected.is_none());
        debug_assert!(slot.fused.is_none() && slot.hold.is_none());
        slot.stage = Stage::Free;
        slot.admin = None;
        self.free.push(index);
    }

    /// Gives memory back that bursts have left, when no command is in progress.
    pub fn shrink(&mut self) {
        if self.used() == 0 {
            (self.slots, self.free) = Default::default();
        }
    }

    #[inline]
    pub fn get(&mut self, index: u16) -> Option<&mut CommandSlot> {
        self.slots.get_mut(usize::from(index)).filter(|slot| slot.stage != Stage::Free)
    }

    /// The stage of the command in that slot.
    #[inline]
    pub fn stage(&self, index: u16) -> Stage {
        self.slots.get(usize::from(index)).map_or(Stage::Free, |slot| slot.stage)
    }

    /// All slots in use, with their indices.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut CommandSlot)> {
        let used = self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.stage != Stage::Free);
        used.map(|(index, slot)| (index as u16, slot))
    }
}

impl std::ops::Index<u16> for CommandSlots {
    type Output = CommandSlot;
    #[inline]
    fn index(&self, index: u16) -> &CommandSlot {
        &self.slots[usize::from(index)]
    }
}

impl std::ops::IndexMut<u16> for CommandSlots {
    #[inline]
    fn index_mut(&mut self, index: u16) -> &mut CommandSlot {
        &mut self.slots[usize::from(index)]
    }
}

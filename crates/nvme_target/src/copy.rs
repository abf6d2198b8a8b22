//! Copy: the target reads the source ranges into one buffer, then writes it (NVM Command Set specification 1.0, section
//! 3.2.2). Everything has been read before the first block is written: ranges may overlap the destination.

use nvme::spec::{CopySource, Status};

use super::connection::Connection;
use super::core::Core;
use super::slot::CommandSlot;
use crate::device::IoKind;

/// Source ranges of a command, less one: MSRC. Their descriptors fit into a page.
pub(super) const SOURCES_LESS_ONE: u8 = 127;

/// The most blocks of a command, and of one source range of it: MCL and MSSRL. One buffer holds them all.
pub(super) fn limits(max_io_bytes: u32, block_shift: u32) -> (u32, u16) {
    let blocks = (max_io_bytes >> block_shift).max(1);
    (blocks, u16::try_from(blocks).unwrap_or(u16::MAX))
}

/// Checks the source ranges of a command, whose descriptors are here, and takes a buffer for their blocks.
///
/// # Errors
/// Command Size Limit Exceeded beyond MCL and MSSRL, LBA Out of Range; Internal Error without memory.
pub(super) fn prepare(conn: &mut Connection, core: &mut Core, index: u16) -> Result<(), Status> {
    let most_bytes = conn.max_io_bytes;
    let slot = &conn.slots[index];
    let namespace = conn.namespace(core, slot.nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
    let (shift, bytes) = (namespace.block_shift, namespace.device.bytes());
    let Some(descriptors) = &slot.buffer else { return Err(Status::INTERNAL_ERROR) };
    let (most, most_of_range) = limits(most_bytes, shift);
    let sources = || CopySource::all(&descriptors.as_slice()[..slot.wanted as usize]);
    if sources().any(|(_, blocks)| blocks > most_of_range.into()) {
        return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.do_not_retry());
    }
    let blocks: u64 = sources().map(|(_, blocks)| blocks).sum();
    if blocks > most.into() {
        return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.do_not_retry());
    }
    let fits = |slba: u64, blocks: u64| slba.checked_add(blocks).is_some_and(|end| end <= bytes >> shift);
    if !sources().all(|(slba, blocks)| fits(slba, blocks)) || !fits(slot.offset >> shift, blocks) {
        return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
    }
    let len = blocks << shift;
    let buffer = core.pool.take(len as usize).map_err(|_| Status::INTERNAL_ERROR)?;
    let slot = &mut conn.slots[index];
    slot.len = len;
    slot.expected = slot.buffer.replace(buffer);
    Ok(())
}

/// The next op of a command on its device: kind, offset and length there, and the place in the buffer.
pub(super) fn next(slot: &CommandSlot, block_shift: u32) -> (IoKind, u64, u64, u32) {
    if slot.moved >= slot.len {
        let written = slot.moved - slot.len;
        return (IoKind::Write, slot.offset + written, slot.len - written, written as u32);
    }
    let descriptors = slot.expected.as_ref().map_or(&[][..], |buffer| &buffer.as_slice()[..slot.wanted as usize]);
    let mut begin = 0;
    for (slba, blocks) in CopySource::all(descriptors) {
        let len = blocks << block_shift;
        if slot.moved < begin + len {
            let into = slot.moved - begin;
            return (IoKind::Read, (slba << block_shift) + into, len - into, slot.moved as u32);
        }
        begin += len;
    }
    // The ranges have `len` bytes together: one of them has the next byte.
    (IoKind::Read, slot.offset, 0, slot.moved as u32)
}

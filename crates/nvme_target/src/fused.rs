//! Fused operations: a Compare and a Write that the target carries out as one (Base specification 2.0, section 3.4.2;
//! NVM Command Set specification 1.0, section 2.1.4).
//!
//! ```text
//! first ─► waits for the second ─► admitted as one ─► data of both ─► gate ─► compare ─► write ─► both responses
//! ```
//!
//! The first half leads: the pacer and the limits of devices know it alone, with the bytes of both, so that no first
//! half keeps memory that its second half waits for. The halves end together.

use std::sync::Arc;

use nvme::spec::{Command, Status};

use super::connection::Connection;
use super::core::Core;
use super::gate::{Fence, Span};
use super::io_command::IoCommand;
use super::mailbox::Message;
use super::slot::{CommandSlot, Stage};
use super::transport::Transport;
use super::{afloat, io, limited, stragglers};
use crate::device::charged_bytes;

/// The blocks of the largest fused operation: ACWU. A host cannot see a part of one block.
pub(super) const BLOCKS: u32 = 1;

/// The fused operation that a queue's last command belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pending {
    #[default]
    Nothing,
    /// The first half is in that slot; its second half must be the next command.
    First(u16),
    /// The first half has failed, and so will the second.
    Failed,
}

/// The part that a command has in a fused operation: the slot of the other half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// `None` until the second half comes.
    First(Option<u16>),
    Second(u16),
}

/// Looks at a command that has just arrived, before anything else does: a first half whose second half does not follow
/// it ends.
#[inline]
pub(super) fn meets(conn: &mut Connection, core: &mut Core, command: &Command, is_plain_io: bool) {
    if conn.fused != Pending::Nothing && !(is_plain_io && command.fuse() == Command::FUSE_SECOND) {
        give_up(conn, core);
    }
}

/// Ends a first half that waits for its second half in vain. One whose capsule is still arriving stays.
#[cold]
pub(super) fn give_up(conn: &mut Connection, core: &mut Core) {
    if matches!(conn.fused, Pending::First(first) if conn.slots.stage(first) != Stage::Fused) {
        return;
    }
    if let Pending::First(first) = std::mem::take(&mut conn.fused) {
        fail(conn, core, first, Status::ABORTED_MISSING_FUSED);
    }
}

/// Checks the part of a command in a fused operation.
///
/// # Errors
/// Command Aborted due to Missing Fused Command for a second half without a first one; Command Aborted due to Failed
/// Fused Command where the first half has failed; Invalid Field for other commands than Compare and Write, in this
/// order, and where the target hides them.
#[inline]
pub(super) fn check(conn: &Connection, core: &Core, command: &Command, io: IoCommand) -> Result<(), Status> {
    if core.configuration.options.fused_operations() == 0 {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    match (command.fuse(), conn.fused, io) {
        (Command::FUSE_FIRST, _, IoCommand::Compare) => Ok(()),
        (Command::FUSE_SECOND, Pending::First(_), IoCommand::Write) => Ok(()),
        (Command::FUSE_SECOND, Pending::Nothing, _) => Err(Status::ABORTED_MISSING_FUSED),
        (Command::FUSE_SECOND, Pending::Failed, _) => Err(Status::ABORTED_FAILED_FUSED),
        _ => Err(Status::INVALID_FIELD.do_not_retry()),
    }
}

/// Checks the range of a half.
///
/// # Errors
/// Atomic Write Unit Exceeded beyond ACWU; Invalid Field, for both halves, if their ranges differ.
pub(super) fn check_range(
    conn: &mut Connection,
    core: &mut Core,
    command: &Command,
    span: Span,
    block_shift: u32,
) -> Result<(), Status> {
    if command.fuse() == Command::FUSE_SECOND
        && let Pending::First(first) = conn.fused
    {
        let slot = &conn.slots[first];
        if (slot.nsid, slot.span()) != (command.nsid, span) {
            let status = Status::INVALID_FIELD.do_not_retry();
            conn.fused = Pending::Nothing;
            fail(conn, core, first, status);
            return Err(status);
        }
    }
    if span.len > u64::from(BLOCKS) << block_shift {
        return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.do_not_retry());
    }
    Ok(())
}

/// Notes that a command has been refused: the other half fails with it.
#[cold]
pub(super) fn refused(conn: &mut Connection, core: &mut Core, command: &Command) {
    match (command.fuse(), std::mem::take(&mut conn.fused)) {
        (Command::FUSE_FIRST, _) => conn.fused = Pending::Failed,
        (_, Pending::First(first)) => fail(conn, core, first, Status::ABORTED_FAILED_FUSED),
        _ => {}
    }
}

/// Room for the data in the capsule of a second half, which its first half has reserved. Returns the bytes.
///
/// # Errors
/// Command Interrupted if the data are more than those of the first half, and there is no room: a first half must not
/// wait for memory that others of its kind keep.
pub(super) fn reserve_second(conn: &mut Connection, core: &mut Core, data_len: u32) -> Result<u32, Status> {
    let Pending::First(first) = conn.fused else { return Err(Status::INTERNAL_ERROR) };
    let bytes = charged_bytes(data_len);
    let slot = &mut conn.slots[first];
    if slot.reserved >= charged_bytes(slot.data_len) + bytes {
        slot.reserved -= bytes;
    } else if !core.reserve(conn.tenant, bytes) {
        return Err(Status::COMMAND_INTERRUPTED);
    }
    Ok(bytes)
}

/// Links a half that has its slot with what came before. Its capsule may still bring data.
pub(super) fn joins(conn: &mut Connection, index: u16, fuse: u8) {
    match (fuse, conn.fused) {
        (Command::FUSE_SECOND, Pending::First(first)) => {
            conn.slots[first].fused = Some(Half::First(Some(index)));
            conn.slots[index].fused = Some(Half::Second(first));
            conn.fused = Pending::Nothing;
        }
        _ => {
            conn.slots[index].fused = Some(Half::First(None));
            conn.fused = Pending::First(index);
        }
    }
}

/// Goes on with a half whose capsule is whole: the second one has both admitted.
pub(super) fn arrived(conn: &mut Connection, core: &mut Core, index: u16) {
    conn.slots[index].stage = Stage::Fused;
    let Some(Half::Second(first)) = conn.slots[index].fused else { return };
    if has_failed(conn, first, index) {
        return fail(conn, core, index, Status::ABORTED_FAILED_FUSED);
    }
    let more = std::mem::take(&mut conn.slots[index].charged);
    let slot = &mut conn.slots[first];
    // The smallest budget has room for two blocks, and an operation holds three: it is admitted alone then.
    slot.charged = (slot.charged + more).min(u32::try_from(core.share.window_bytes).unwrap_or(u32::MAX));
    slot.stage = Stage::Unadmitted;
    io::admit(conn, core, first);
}

fn has_failed(conn: &Connection, first: u16, second: u16) -> bool {
    !conn.slots[first].status.is_ok() || !conn.slots[second].status.is_ok()
}

/// Goes on with a pair that the pacer has admitted: asks for the data that are not here yet.
pub(super) fn granted(conn: &mut Connection, core: &mut Core, first: u16) {
    let Some(Half::First(Some(second))) = conn.slots[first].fused else { return };
    let mut asked = Vec::with_capacity(2);
    for half in [first, second] {
        let slot = &mut conn.slots[half];
        core.unreserve(conn.tenant, std::mem::take(&mut slot.reserved));
        slot.stage = Stage::Fused;
        if slot.buffer.is_none() {
            match core.pool.take(slot.data_len as usize) {
                Ok(buffer) => slot.buffer = Some(buffer),
                Err(_) => return fail(conn, core, first, Status::INTERNAL_ERROR),
            }
            asked.push(half);
        }
    }
    if asked.is_empty() {
        return enter(conn, core, first);
    }
    for half in asked {
        let slot = &mut conn.slots[half];
        (slot.stage, slot.progress_ns) = (Stage::Data, core.now_ns);
        conn.transport.ask_for_data(slot.cid, half, slot.data_len, &mut slot.buffer, true);
    }
    afloat::begin(conn, core, first);
    conn.mark_dirty(core);
}

/// Goes on with a half whose data are complete.
pub(super) fn data_complete(conn: &mut Connection, core: &mut Core, index: u16) {
    conn.slots[index].stage = Stage::Fused;
    let Some((first, Some(second))) = halves(conn, index) else { return };
    if [first, second].iter().any(|half| conn.slots[*half].stage == Stage::Data) {
        return;
    }
    afloat::end(conn, core, first);
    enter(conn, core, first);
}

/// Closes the gate for the range of a pair, and goes on when nothing else changes the range.
fn enter(conn: &mut Connection, core: &mut Core, first: u16) {
    let Some(Half::First(Some(second))) = conn.slots[first].fused else { return };
    if has_failed(conn, first, second) {
        return fail(conn, core, first, Status::ABORTED_FAILED_FUSED);
    }
    if let Err(status) = conn.reaches(core, first) {
        return fail(conn, core, first, status);
    }
    let slot = &mut conn.slots[first];
    slot.stage = Stage::Gated;
    let (span, device, channel) = (slot.span(), slot.device_uid, slot.channel);
    let Some(hold) = core.channels[channel].gate.close(span, core.reactor, &core.shared) else {
        return core.gated.push((conn.token, first));
    };
    let fence = Arc::new(Fence {
        device,
        span,
        queue: conn.token,
        slot: first,
        hold: hold.id,
        shared: Arc::clone(&core.shared),
    });
    slot.hold = Some(hold);
    // The last of them to drop the fence has the pair go on.
    for reactor in 0..core.configuration.options.reactors as u32 {
        if reactor != core.reactor {
            core.shared.send(reactor, Message::Fence(Arc::clone(&fence)));
        }
    }
    core.await_changes(fence);
}

/// Goes on with a pair whose range nobody else changes any more.
pub(super) fn fenced(conn: &mut Connection, core: &mut Core, first: u16, hold: u64) {
    let waits =
        |slot: &mut CommandSlot| slot.stage == Stage::Gated && slot.hold.as_ref().is_some_and(|it| it.id == hold);
    if !conn.slots.get(first).is_some_and(waits) {
        return; // it has been aborted meanwhile
    }
    let slot = &mut conn.slots[first];
    slot.expected = slot.buffer.take();
    match core.pool.take(slot.data_len as usize) {
        Ok(buffer) => slot.buffer = Some(buffer),
        Err(_) => return fail(conn, core, first, Status::INTERNAL_ERROR),
    }
    io::to_device(conn, core, first);
}

/// Goes on with a command that has waited at a gate which has opened.
pub(super) fn gate_opened(conn: &mut Connection, core: &mut Core, index: u16) {
    let waits = |slot: &mut CommandSlot| slot.stage == Stage::Gated && slot.hold.is_none();
    if !conn.slots.get(index).is_some_and(waits) {
        return;
    }
    match conn.slots[index].fused {
        Some(_) => enter(conn, core, index),
        None => io::to_device(conn, core, index),
    }
}

/// Goes on with a half that has ended in the device with success.
pub(super) fn device_done(conn: &mut Connection, core: &mut Core, index: u16) {
    let Some((first, Some(second))) = halves(conn, index) else { return };
    if index == second {
        io::finish(conn, core, first, Status::SUCCESS);
        return io::finish(conn, core, second, Status::SUCCESS);
    }
    if !conn.slots[first].is_equal() {
        return fail(conn, core, first, Status::COMPARE_FAILURE.do_not_retry());
    }
    conn.slots[first].stage = Stage::Fused;
    // The half in the device owns what the pacer counts: an op may outlive its connection.
    let lead = &mut conn.slots[first];
    let (op, charged, admitted) = (lead.op, std::mem::take(&mut lead.charged), std::mem::take(&mut lead.admitted));
    let slot = &mut conn.slots[second];
    (slot.op, slot.charged, slot.admitted) = (op, charged, admitted);
    io::to_device(conn, core, second);
}

/// The slots of both halves of the operation that the command in `index` belongs to.
fn halves(conn: &Connection, index: u16) -> Option<(u16, Option<u16>)> {
    match conn.slots[index].fused? {
        Half::First(second) => Some((index, second)),
        Half::Second(first) => Some((first, Some(index))),
    }
}

/// Ends the operation: the half in `index` with `status`, the other one as failed because of it, unless either knows
/// better why it ends. Neither half awaits data.
#[cold]
pub(super) fn fail(conn: &mut Connection, core: &mut Core, index: u16, status: Status) {
    let Some((first, second)) = halves(conn, index) else { return };
    if conn.fused == Pending::First(first) {
        conn.fused = Pending::Nothing;
    }
    let both = [Some(first), second].map(|half| {
        half.map(|half| match conn.slots[half].status {
            known if !known.is_ok() => (half, known),
            _ if half == index => (half, status),
            _ => (half, Status::ABORTED_FAILED_FUSED),
        })
    });
    match conn.slots.stage(first) {
        Stage::Held => io::leave_pacer(conn, core, first),
        Stage::Limited => {
            limited::forget(conn, core, first);
            stragglers::forget(conn.token, core, first);
        }
        _ => {}
    }
    for (half, status) in both.into_iter().flatten() {
        io::finish(conn, core, half, status);
    }
}

/// Takes the operation back that the command in `index` belongs to, if it can be: both halves end. Returns true if it
/// has been.
pub(super) fn abort(conn: &mut Connection, core: &mut Core, index: u16) -> bool {
    let Some((first, second)) = halves(conn, index) else { return false };
    let all = [Some(first), second];
    let at = |stage| all.into_iter().flatten().find(|half| conn.slots.stage(*half) == stage);
    if [Stage::Capsule, Stage::Unadmitted, Stage::Data].into_iter().any(|stage| at(stage).is_some()) {
        return false;
    }
    if let Some(half) = at(Stage::Device) {
        let aborted = core.cancel(conn.token, half);
        if aborted {
            all.into_iter().flatten().for_each(|half| conn.slots[half].status = Status::ABORTED_FAILED_FUSED);
            conn.slots[index].status = Status::ABORTED_BY_REQUEST;
        }
        return aborted;
    }
    let is_alone = second.is_none();
    fail(conn, core, index, Status::ABORTED_BY_REQUEST);
    if is_alone {
        conn.fused = Pending::Failed; // its second half comes later
    }
    true
}

/// Ends the operation of a host that has lost its registration on the namespace, at once or with the data that are on
/// their way.
pub(super) fn evict(conn: &mut Connection, core: &mut Core, index: u16) {
    let Some((first, second)) = halves(conn, index) else { return };
    let all = || [Some(first), second].into_iter().flatten();
    all().for_each(|half| conn.slots[half].status = Status::ABORTED_PREEMPT);
    if let Some(half) = all().find(|half| conn.slots.stage(*half) == Stage::Device) {
        core.cancel(conn.token, half);
        return;
    }
    let awaits_data = |half| matches!(conn.slots.stage(half), Stage::Capsule | Stage::Unadmitted | Stage::Data);
    if second.is_some() && !all().any(awaits_data) {
        fail(conn, core, first, Status::ABORTED_PREEMPT);
    }
}

//! I/O commands from capsule to response: checked, admitted, given to the device, answered.
//!
//! ```text
//! start ─► admit ─┬─► granted ─► (write: R2T, data) ─► to_device ─► device_done ─► finish ─► sent: release
//!                 └─► held ────► released by the pacer ─┘
//! ```
//!
//! A write is held before its R2T: the host keeps the data until there is room for them. Only data that come in a
//! capsule are taken unasked; a separate reserve holds them.

use nvme::spec::{Command, CopySource, Data, Range, Status};
use pace::{Admit, Op, Refusal};

use super::connection::{COMMAND_WORK, Connection};
use super::core::{Core, Flight};
use super::fused::Half;
use super::gate::Span;
use super::io_command::{Counter, Direction, IoCommand};
use super::pacing::OPS;
use super::slot::{CommandSlot, Stage};
use super::stats::HostStats;
use super::transport::{Sink, Transport};
use super::{afloat, copy, fused, limited, stragglers};
use crate::device::{Done, Io, IoKind, charged_bytes};

/// A request to a device: the range of the data on the device, and the bytes that travel from or to the host.
struct Request {
    offset: u64,
    len: u64,
    data_len: u32,
}

/// Takes an I/O command that has just arrived, with `capsule_bytes` of data in its capsule. Returns the place that
/// these data go to.
#[inline]
pub(super) fn start(conn: &mut Connection, core: &mut Core, command: &Command, capsule_bytes: u32) -> Sink {
    match check(conn, core, command, capsule_bytes) {
        Ok(sink) => sink,
        Err(status) => {
            conn.fails_on(command);
            conn.respond(core, command.cid, status, 0);
            if command.fuse() != 0 {
                fused::refused(conn, core, command);
            }
            let tenant = conn.tenant;
            core.host(tenant).errors += 1;
            Sink::Nothing
        }
    }
}

/// Checks an I/O command. Returns the place that the data in its capsule go to.
///
/// # Errors
/// The statuses of the Base specification 2.0 for the namespace (Invalid Namespace or Format), its ANA state (8.1),
/// write protection (8.12), and the SGL (4.1.2); those of [`request`], and of [`fused::check`].
#[inline]
fn check(conn: &mut Connection, core: &mut Core, command: &Command, capsule_bytes: u32) -> Result<Sink, Status> {
    if !conn.is_enabled() {
        return Err(Status::COMMAND_SEQUENCE_ERROR);
    }
    let Some(namespace) = conn.namespace(core, command.nsid) else {
        return Err(Status::INVALID_NAMESPACE.do_not_retry());
    };
    conn.admits(namespace)?;
    let opcode = command.opcode;
    // NVM Command Set specification 1.0, section 3: an opcode that is not in the table.
    let io = IoCommand::of(opcode).ok_or(Status::INVALID_OPCODE.do_not_retry())?;
    if io.row().oncs & core.configuration.options.hidden_commands != 0 {
        return Err(Status::INVALID_OPCODE.do_not_retry());
    }
    if command.fuse() != 0 {
        fused::check(conn, core, command, io)?;
    }
    let request = request(io, command, namespace.block_shift, namespace.device.bytes(), conn.max_io_bytes)?;
    if io == IoCommand::WriteZeroes && conn.command_limits().zeroed_bytes().is_some_and(|most| request.len > most) {
        // NVM Command Set specification 1.0: the command is beyond WZSL.
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    // Base specification 2.0, section 8.19: Reservations.
    if !conn.is_permitted(namespace, io.row().need) {
        return Err(Status::RESERVATION_CONFLICT.do_not_retry());
    }
    // Base specification 2.0, section 8.12: Namespace Write Protection.
    if namespace.read_only && io.row().changes_blocks {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.do_not_retry());
    }
    let (channel, device_uid) = (namespace.channel, namespace.device_uid);
    let (drive, zeros, shift) = (namespace.drive, namespace.reads_zeros, namespace.block_shift);
    if command.fuse() != 0 {
        fused::check_range(conn, core, command, Span { offset: request.offset, len: request.len }, shift)?;
    }
    let is_from_host = io.row().direction == Direction::FromHost;
    let mut host_len = request.data_len;
    let mut in_capsule = false;
    if request.data_len > 0 {
        match conn.transport.place_of_data(&command.sgl).map_err(Status::do_not_retry)? {
            Data::InCapsule { offset, length } => {
                if !is_from_host {
                    return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry());
                }
                if offset != 0 {
                    return Err(Status::SGL_OFFSET_INVALID.do_not_retry());
                }
                if length != capsule_bytes || length < request.data_len || length > conn.in_capsule_bytes {
                    return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
                }
                (host_len, in_capsule) = (length, true);
            }
            Data::Transport { length } => {
                if length < request.data_len || length > conn.max_io_bytes.max(4096) {
                    return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
                }
                if is_from_host {
                    host_len = length;
                }
            }
        }
    }
    if capsule_bytes > 0 && !in_capsule {
        return Err(Status::INVALID_FIELD.do_not_retry());
    }
    let reserved = match command.fuse() {
        Command::FUSE_SECOND if in_capsule => fused::reserve_second(conn, core, host_len)?,
        _ => 0,
    };
    let index = conn.slots.take();
    let charged = match io {
        IoCommand::Compare => charged_bytes(host_len) * 2,
        IoCommand::Verify => charged_bytes(request.len as u32),
        IoCommand::Copy => charged_bytes(host_len) + conn.max_io_bytes,
        _ => charged_bytes(host_len),
    };
    conn.slots[index] = CommandSlot {
        stage: if in_capsule { Stage::Capsule } else { Stage::Unadmitted },
        command: io,
        fua: command.cdw12 & Command::FUA != 0 && io.row().has_fua,
        cid: command.cid,
        nsid: command.nsid,
        channel,
        device_uid,
        drive,
        offset: request.offset,
        len: request.len,
        data_len: host_len,
        wanted: request.data_len,
        charged,
        reserved,
        zeros: zeros && io == IoCommand::Read,
        arrived_ns: core.now_ns,
        progress_ns: core.now_ns,
        ..CommandSlot::free()
    };
    core.pending_io += 1;
    if command.fuse() != 0 {
        fused::joins(conn, index, command.fuse());
    }
    if in_capsule {
        room_for_capsule(conn, core, index);
        return Ok(Sink::Command(index));
    }
    if command.fuse() != 0 {
        fused::arrived(conn, core, index);
        return Ok(Sink::Nothing);
    }
    admit(conn, core, index);
    Ok(Sink::Nothing)
}

/// The request that the command makes of the device.
///
/// # Errors
/// The statuses of the command's section in the NVM Command Set specification 1.0: Compare 3.2.1, Copy 3.2.2, Dataset
/// Management 3.2.3, Read 3.2.4, Verify 3.2.5, Write 3.2.6, Write Zeroes 3.2.8.
#[inline]
fn request(
    io: IoCommand,
    command: &Command,
    block_shift: u32,
    bytes: u64,
    max_io_bytes: u32,
) -> Result<Request, Status> {
    match io {
        IoCommand::Read | IoCommand::Write | IoCommand::Compare | IoCommand::WriteZeroes | IoCommand::Verify => {
            let len = u64::from(command.block_count()) << block_shift;
            let end = command.slba().checked_add(u64::from(command.block_count()));
            if end.is_none_or(|end| end > bytes >> block_shift) {
                // NVM Command Set specification 1.0: the range exceeds NSZE of the namespace.
                return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
            }
            let offset = command.slba() << block_shift;
            if io == IoCommand::WriteZeroes {
                return Ok(Request { offset, len, data_len: 0 });
            }
            if len > u64::from(max_io_bytes) {
                // MDTS in Identify Controller (Base specification 2.0, figure 275), and VSL.
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
            if io == IoCommand::Verify {
                return Ok(Request { offset, len, data_len: 0 });
            }
            Ok(Request { offset, len, data_len: len as u32 })
        }
        IoCommand::Copy => {
            let count = CopySource::count(command);
            if CopySource::format(command) != 0 {
                return Err(Status::INVALID_FIELD.do_not_retry());
            }
            if count > usize::from(copy::SOURCES_LESS_ONE) + 1 {
                return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.do_not_retry());
            }
            if command.slba() >= bytes >> block_shift {
                return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
            }
            // The descriptors tell how much it is.
            let data_len = (count * CopySource::BYTES) as u32;
            Ok(Request { offset: command.slba() << block_shift, len: 0, data_len })
        }
        IoCommand::Flush => Ok(Request { offset: 0, len: 0, data_len: 0 }),
        IoCommand::DatasetManagement => {
            // `len` counts ranges; without the attribute that asks for deallocation there is nothing to do.
            let count = Range::count(command);
            let len = if command.cdw11 & Range::DEALLOCATE == 0 { 0 } else { count as u64 };
            Ok(Request { offset: 0, len, data_len: (count * Range::BYTES) as u32 })
        }
    }
}

/// Finds a buffer for the data that follow in the capsule; without a buffer the connection waits.
pub(super) fn room_for_capsule(conn: &mut Connection, core: &mut Core, index: u16) -> bool {
    let slot = &mut conn.slots[index];
    // The first half of a fused operation reserves room for the second half, too, whose capsule must never wait.
    let halves = if matches!(slot.fused, Some(Half::First(_))) { 2 } else { 1 };
    let bytes = charged_bytes(slot.data_len) * halves;
    if slot.reserved > 0 || core.reserve(conn.tenant, bytes) {
        slot.reserved = slot.reserved.max(bytes);
        if let Ok(buffer) = core.pool.take(slot.data_len as usize) {
            slot.buffer = Some(buffer);
            return true;
        }
    }
    conn.stall(core, index);
    false
}

/// Goes on with a command: the data of its capsule are complete.
pub(super) fn capsule_arrived(conn: &mut Connection, core: &mut Core, index: u16) {
    if conn.slots[index].fused.is_some() {
        fused::arrived(conn, core, index);
    } else if conn.slots[index].status.is_ok() {
        conn.slots[index].stage = Stage::Unadmitted;
        admit(conn, core, index);
    } else {
        finish(conn, core, index, conn.slots[index].status);
    }
}

/// Asks the pacer; the command goes on at once, when it is released, or when the pacer can remember it.
#[inline]
pub(super) fn admit(conn: &mut Connection, core: &mut Core, index: u16) -> bool {
    if stragglers::hold_back(conn, core, index) || limited::holds_back(conn, core, index) {
        return true;
    }
    let slot = &mut conn.slots[index];
    let op = Op {
        drive: slot.drive,
        tenant: conn.tenant,
        queue: conn.token.index,
        bytes: slot.charged,
        write: slot.changes_blocks(),
        admin: false,
        cookie: u64::from(conn.token.index) << 16 | u64::from(index),
    };
    let host = core.host(conn.tenant);
    let beyond = conn
        .bytes_limit
        .is_some_and(|limit| host.in_flight_bytes > 0 && host.in_flight_bytes + u64::from(op.bytes) > limit);
    // A connection may have as many commands as the pacer has room for others: one that comes late finds room.
    let crowds = conn.slots.used() as u64 > u64::from(OPS).saturating_sub(core.pending_io);
    let lacks_memory = afloat::lacks_memory(conn, core, op.bytes) && !core.share.has_queues;
    if beyond || crowds || lacks_memory {
        conn.stall(core, index);
        return false;
    }
    // Without memory the queue is paused: the pacer holds the command.
    match core.pacer.admit(core.now_ns, op) {
        Admit::Go(id) => {
            core.host(conn.tenant).in_flight_bytes += u64::from(op.bytes);
            conn.slots[index].op = id;
            granted(conn, core, index);
        }
        Admit::Held(id) => {
            let host = core.host(conn.tenant);
            host.in_flight_bytes += u64::from(op.bytes);
            host.held_now += 1;
            let slot = &mut conn.slots[index];
            (slot.op, slot.stage) = (id, Stage::Held);
        }
        Admit::Refused(Refusal::Full) => {
            conn.stall(core, index);
            return false;
        }
        Admit::Refused(Refusal::TooLarge | Refusal::UnknownId) => {
            end(conn, core, index, Status::INVALID_FIELD.do_not_retry());
        }
    }
    true
}

/// Goes on with a held command that the pacer has let go.
pub(super) fn released(conn: &mut Connection, core: &mut Core, index: u16) {
    core.host(conn.tenant).held_now -= 1;
    granted(conn, core, index);
}

/// Goes on with a command that the pacer has admitted: asks for its data, or gives it to the device.
#[inline]
fn granted(conn: &mut Connection, core: &mut Core, index: u16) {
    let slot = &mut conn.slots[index];
    slot.admitted = true;
    if slot.fused.is_some() {
        return fused::granted(conn, core, index);
    }
    core.unreserve(conn.tenant, std::mem::take(&mut slot.reserved));
    let is_from_host = slot.command.row().direction == Direction::FromHost;
    if slot.data_len > 0 && !slot.zeros && slot.buffer.is_none() {
        match core.pool.take(slot.data_len as usize) {
            Ok(buffer) => slot.buffer = Some(buffer),
            Err(_) => return finish(conn, core, index, Status::INTERNAL_ERROR),
        }
        if is_from_host {
            slot.stage = Stage::Data;
            slot.progress_ns = core.now_ns;
            conn.transport.ask_for_data(slot.cid, index, slot.data_len, &mut slot.buffer, true);
            afloat::begin(conn, core, index);
            return conn.mark_dirty(core);
        }
    }
    data_complete(conn, core, index);
}

/// Goes on with a command: all the data that the host sends for it are here.
#[inline]
pub(super) fn data_complete(conn: &mut Connection, core: &mut Core, index: u16) {
    if conn.slots[index].fused.is_some() {
        return fused::data_complete(conn, core, index);
    }
    afloat::end(conn, core, index);
    let slot = &mut conn.slots[index];
    if !slot.status.is_ok() {
        let status = slot.status;
        return finish(conn, core, index, status);
    }
    if slot.command == IoCommand::Compare {
        slot.expected = slot.buffer.take();
        match core.pool.take(slot.data_len as usize) {
            Ok(buffer) => slot.buffer = Some(buffer),
            Err(_) => return finish(conn, core, index, Status::INTERNAL_ERROR),
        }
    }
    if slot.command == IoCommand::Verify {
        match core.pool.take(slot.len as usize) {
            Ok(buffer) => slot.buffer = Some(buffer),
            Err(_) => return finish(conn, core, index, Status::INTERNAL_ERROR),
        }
    }
    if slot.command == IoCommand::Copy
        && let Err(status) = copy::prepare(conn, core, index)
    {
        return finish(conn, core, index, status);
    }
    to_device(conn, core, index);
}

/// Gives the device the part of the command that is left to do.
pub(super) fn to_device(conn: &mut Connection, core: &mut Core, index: u16) {
    let token = conn.token;
    let bytes = match conn.reaches(core, index) {
        Ok(namespace) => namespace.device.bytes(),
        // The namespace, or the path to it, has gone while the command waited.
        Err(status) => return end(conn, core, index, status),
    };
    let slot = &mut conn.slots[index];
    let (mut offset, mut len) = (slot.offset + slot.moved, slot.len.saturating_sub(slot.moved));
    let (mut kind, mut skip) = (slot.command.row().device_op, slot.moved as u32);
    if slot.command == IoCommand::Copy {
        let nsid = slot.nsid;
        let shift = conn.namespace(core, nsid).map_or(0, |namespace| namespace.block_shift);
        (kind, offset, len, skip) = copy::next(&conn.slots[index], shift);
    }
    let slot = &conn.slots[index];
    if slot.command == IoCommand::DatasetManagement {
        match next_range(conn, core, index) {
            Ok(Some(range)) => (offset, len) = range,
            Ok(None) => return finish(conn, core, index, Status::SUCCESS),
            Err(status) => return finish(conn, core, index, status),
        }
    }
    if offset.saturating_add(len) > bytes {
        // The device was made smaller while the command waited. A write would make a file grow again.
        return end(conn, core, index, Status::LBA_OUT_OF_RANGE.do_not_retry());
    }
    let slot = &mut conn.slots[index];
    let span = Span { offset, len };
    // Only the second half of the operation that holds the range may change it.
    if kind.is_write() && slot.fused.is_none() && core.channels[slot.channel].gate.bars(span, core.reactor) {
        slot.stage = Stage::Gated;
        return core.gated.push((token, index));
    }
    slot.stage = Stage::Device;
    let carries_data = matches!(kind, IoKind::Read | IoKind::Write);
    let buffer = if carries_data { slot.buffer.take() } else { None };
    let skip = if carries_data { skip } else { 0 };
    let flight = Flight {
        span,
        connection: token,
        slot: index,
        op: slot.op,
        channel: slot.channel,
        since_ns: core.now_ns,
        is_write: kind.is_write(),
    };
    let fua = slot.fua;
    core.submit(flight, Io { tag: 0, kind, fua, offset, len, buffer, skip });
}

/// The next range of a Dataset Management command in bytes; `moved` counts ranges.
fn next_range(conn: &mut Connection, core: &Core, index: u16) -> Result<Option<(u64, u64)>, Status> {
    let slot = &conn.slots[index];
    if slot.len == 0 {
        return Ok(None); // no attribute that asks for anything
    }
    let Some(buffer) = &slot.buffer else { return Ok(None) };
    let (at, count) = (slot.moved as usize, slot.len as usize);
    let Some(namespace) = conn.namespace(core, slot.nsid) else {
        return Err(Status::INVALID_NAMESPACE.do_not_retry());
    };
    let (shift, bytes) = (namespace.block_shift, namespace.device.bytes());
    let ranges = || Range::all(buffer.as_slice()).take(count);
    // The target checks all ranges before it carries out the first.
    let fits = |range: &Range| range.slba.checked_add(u64::from(range.blocks)).is_some_and(|end| end <= bytes >> shift);
    if at == 0 && !ranges().all(|range| fits(&range)) {
        return Err(Status::LBA_OUT_OF_RANGE.do_not_retry());
    }
    let most = conn.command_limits().deallocated_blocks;
    if at == 0 && most > 0 && ranges().any(|range| range.blocks > most) {
        return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.do_not_retry());
    }
    let next = ranges().enumerate().skip(at).find(|(_, range)| range.blocks > 0);
    conn.slots[index].moved = next.as_ref().map_or(count as u64, |(at, _)| *at as u64);
    Ok(next.map(|(_, range)| (range.slba << shift, u64::from(range.blocks) << shift)))
}

/// Goes on with a command: the device has ended it, or a part of it.
pub(super) fn device_done(conn: &mut Connection, core: &mut Core, index: u16, done: Done) {
    let slot = &mut conn.slots[index];
    if done.buffer.is_some() {
        slot.buffer = done.buffer;
    }
    if !slot.status.is_ok() {
        // The command was aborted while the device worked for it: whatever is left to do must not be done.
        let status = slot.status;
        return end(conn, core, index, status);
    }
    let moved = match done.result {
        Ok(moved) => moved,
        Err(errno) => {
            let status = slot.status_of(errno);
            return end(conn, core, index, status);
        }
    };
    match slot.command {
        IoCommand::Read | IoCommand::Write | IoCommand::Compare | IoCommand::Verify | IoCommand::Copy => {
            let status = slot.status_of(libc::EIO);
            slot.moved += moved;
            let whole = if slot.command == IoCommand::Copy { 2 * slot.len } else { slot.len };
            if slot.moved < whole {
                if moved == 0 {
                    // The device moves nothing more: a file has become shorter than its namespace.
                    return end(conn, core, index, status);
                }
                return to_device(conn, core, index);
            }
        }
        IoCommand::DatasetManagement => {
            if let Some(open) = core.channels.get_mut(slot.channel).filter(|open| open.uid == slot.device_uid) {
                open.stats.deallocate_bytes += moved;
            }
            slot.moved += 1;
            if slot.moved < slot.len {
                return to_device(conn, core, index);
            }
        }
        IoCommand::Flush | IoCommand::WriteZeroes => {}
    }
    let slot = &conn.slots[index];
    if slot.fused.is_some() {
        return fused::device_done(conn, core, index);
    }
    let is_equal = slot.command != IoCommand::Compare || slot.is_equal();
    finish(conn, core, index, if is_equal { Status::SUCCESS } else { Status::COMPARE_FAILURE.do_not_retry() });
}

/// Ends the command with an error; the other half of a fused operation ends with it.
#[cold]
fn end(conn: &mut Connection, core: &mut Core, index: u16, status: Status) {
    match conn.slots[index].fused {
        Some(_) => fused::fail(conn, core, index, status),
        None => finish(conn, core, index, status),
    }
}

/// Ends the command: queues its data and response, or its error.
#[inline]
pub(super) fn finish(conn: &mut Connection, core: &mut Core, index: u16, status: Status) {
    count(conn, core, index, status);
    let slot = &mut conn.slots[index];
    let cid = slot.cid;
    if slot.command != IoCommand::Read || !status.is_ok() {
        if !status.is_ok() {
            conn.fails_about(conn.about(core, index));
        }
        release(conn, core, index);
        return conn.respond(core, cid, status, 0);
    }
    slot.stage = Stage::Sending;
    let (length, zeros) = (slot.data_len, slot.zeros);
    let buffer = slot.buffer.take();
    // No response follows where the host needs none to know how far its queue has been read.
    let ends = conn.transport.omits_response(conn.no_flow_control);
    match buffer {
        Some(buffer) if !zeros => conn.transport.send_data(cid, buffer, length, ends),
        unused => {
            core.free.extend(unused);
            conn.transport.send_zeros(cid, length, ends);
        }
    }
    if ends {
        conn.mark_dirty(core);
    } else {
        conn.complete(core, cid, status, 0);
    }
    conn.transport.end(index);
    afloat::begin(conn, core, index);
}

#[inline]
fn count(conn: &mut Connection, core: &mut Core, index: u16, status: Status) {
    let slot = &conn.slots[index];
    let (command, len, arrived_ns) = (slot.command, slot.len, slot.arrived_ns);
    let (channel, uid) = (slot.channel, slot.device_uid);
    let latency_ns = core.now_ns.saturating_sub(arrived_ns);
    core.completed_io += 1;
    conn.work += COMMAND_WORK + u64::from(conn.slots[index].data_len);
    let tenant = conn.tenant;
    let mine = core.channels.get(channel).filter(|open| open.uid == uid);
    let row = mine.and_then(|open| open.row);
    if let Some(board) = &core.shared.board {
        let op = command.row().shown_as;
        match status.is_ok() {
            true => core.rows.count(board, op, row, tenant, len, latency_ns),
            false => core.rows.error(board, op, row, tenant),
        }
    }
    if !status.is_ok() {
        core.host(tenant).errors += 1;
        return;
    }
    match command {
        IoCommand::Read | IoCommand::Write | IoCommand::Compare => core.bytes += len,
        IoCommand::Flush
        | IoCommand::WriteZeroes
        | IoCommand::DatasetManagement
        | IoCommand::Verify
        | IoCommand::Copy => {}
    }
    let counter = command.row().counter;
    let host: &mut HostStats = core.host(tenant);
    match counter {
        Counter::Reads => {
            host.reads += 1;
            host.read_bytes += len;
            host.latency_ns += latency_ns;
            host.latencies.count(latency_ns);
        }
        Counter::Writes => {
            host.writes += 1;
            host.write_bytes += len;
            host.latency_ns += latency_ns;
            host.latencies.count(latency_ns);
        }
        Counter::Flushes | Counter::Deallocates => {}
    }
    let Some(open) = core.channels.get_mut(channel).filter(|open| open.uid == uid) else { return };
    match counter {
        Counter::Reads => {
            open.stats.reads += 1;
            open.stats.read_bytes += len;
        }
        Counter::Writes => {
            open.stats.writes += 1;
            open.stats.write_bytes += len;
        }
        Counter::Flushes => open.stats.flushes += 1,
        Counter::Deallocates => open.stats.deallocates += 1,
    }
}

/// Ends a command: gives back all that the command held, its slot too.
#[inline]
pub(super) fn release(conn: &mut Connection, core: &mut Core, index: u16) {
    afloat::end(conn, core, index);
    let slot = &mut conn.slots[index];
    core.free.extend(slot.buffer.take());
    core.free.extend(slot.expected.take());
    core.give_free();
    core.unreserve(conn.tenant, std::mem::take(&mut slot.reserved));
    (slot.fused, slot.hold) = (None, None);
    let (admitted, held, op) = (slot.admitted, slot.stage == Stage::Held, slot.op);
    let charged = u64::from(slot.charged);
    conn.slots.give(index);
    core.pending_io -= 1;
    if admitted {
        core.complete(op);
    }
    if admitted || held {
        core.host(conn.tenant).in_flight_bytes -= charged;
    }
}

/// Takes a command back that the pacer still holds, or that its device can cancel. Returns true if one of the two is
/// so.
pub(super) fn abort(conn: &mut Connection, core: &mut Core, cid: u16) -> bool {
    let same = |(index, slot): (u16, &mut CommandSlot)| (slot.cid == cid).then_some((index, slot.stage));
    let Some((index, stage)) = conn.slots.iter_mut().find_map(same) else { return false };
    if conn.slots[index].fused.is_some() {
        return fused::abort(conn, core, index);
    }
    if stage == Stage::Device {
        return core.cancel(conn.token, index);
    }
    take_back(conn, core, index, Status::ABORTED_BY_REQUEST)
}

/// Aborts the commands of a queue on a namespace, because its host has lost its registration there: the device begins
/// none of them from now on.
pub(super) fn evict(conn: &mut Connection, core: &mut Core, nsid: u32) {
    let mine = |(index, slot): (u16, &mut CommandSlot)| {
        (slot.nsid == nsid && slot.admin.is_none()).then_some((index, slot.stage))
    };
    let mine: Vec<(u16, Stage)> = conn.slots.iter_mut().filter_map(mine).collect();
    for (index, stage) in mine {
        if conn.slots[index].fused.is_some() {
            fused::evict(conn, core, index);
            continue;
        }
        if conn.slots.stage(index) != stage {
            continue; // it has ended with the other half of its operation
        }
        match stage {
            Stage::Held | Stage::Limited | Stage::Gated => {
                take_back(conn, core, index, Status::ABORTED_PREEMPT);
            }
            Stage::Capsule | Stage::Unadmitted | Stage::Data => conn.slots[index].status = Status::ABORTED_PREEMPT,
            Stage::Device => {
                conn.slots[index].status = Status::ABORTED_PREEMPT;
                core.cancel(conn.token, index);
            }
            Stage::Free | Stage::Fused | Stage::Sending => {}
        }
    }
}

/// Gives commands that have been held for too long back to their host, which sends them again.
pub(super) fn give_back(conn: &mut Connection, core: &mut Core, longest_ns: u64) {
    let now_ns = core.now_ns;
    let late = |(index, slot): (u16, &mut CommandSlot)| {
        let waits = matches!(slot.stage, Stage::Held | Stage::Limited | Stage::Gated);
        let is_late = waits && now_ns.saturating_sub(slot.arrived_ns) > longest_ns;
        is_late.then_some(index)
    };
    let late: Vec<u16> = conn.slots.iter_mut().filter_map(late).collect();
    for index in late {
        if conn.slots[index].fused.is_some() {
            fused::fail(conn, core, index, Status::COMMAND_INTERRUPTED);
            continue;
        }
        take_back(conn, core, index, Status::COMMAND_INTERRUPTED);
    }
}

/// Fails held commands whose namespace, or the path to it, has changed or gone since they came: at once, not when their
/// turn comes.
pub(super) fn fail_orphans(conn: &mut Connection, core: &mut Core) {
    let waiting =
        |(index, slot): (u16, &mut CommandSlot)| matches!(slot.stage, Stage::Held | Stage::Limited).then_some(index);
    let waiting: Vec<u16> = conn.slots.iter_mut().filter_map(waiting).collect();
    for index in waiting {
        let Err(status) = conn.reaches(core, index) else { continue };
        if conn.slots[index].fused.is_some() {
            fused::fail(conn, core, index, status);
            continue;
        }
        take_back(conn, core, index, status);
    }
}

/// Ends a command that a limit or the pacer holds; false if it is at another stage.
fn take_back(conn: &mut Connection, core: &mut Core, index: u16, status: Status) -> bool {
    let (cid, about) = (conn.slots[index].cid, conn.about(core, index));
    let waited = forget_waiting(conn, core, index);
    if waited {
        conn.fails_about(about);
        conn.respond(core, cid, status, 0);
    }
    waited
}

/// Drops a command that a limit or the pacer holds; false if it is at another stage.
fn forget_waiting(conn: &mut Connection, core: &mut Core, index: u16) -> bool {
    match conn.slots.stage(index) {
        Stage::Held => forget_held(conn, core, index),
        Stage::Limited => {
            limited::forget(conn, core, index);
            stragglers::forget(conn.token, core, index);
            release(conn, core, index);
        }
        Stage::Gated => release(conn, core, index),
        Stage::Free
        | Stage::Capsule
        | Stage::Unadmitted
        | Stage::Data
        | Stage::Fused
        | Stage::Device
        | Stage::Sending => {
            return false;
        }
    }
    true
}

/// Drops a held command: neither the pacer nor the connection remembers it.
pub(super) fn forget_held(conn: &mut Connection, core: &mut Core, index: u16) {
    leave_pacer(conn, core, index);
    release(conn, core, index);
}

/// Takes a held command out of the pacer.
pub(super) fn leave_pacer(conn: &mut Connection, core: &mut Core, index: u16) {
    let op = conn.slots[index].op;
    core.pacer.abort(core.now_ns, op);
    core.host(conn.tenant).held_now -= 1;
}

/// Ends all commands of a connection that ends: held commands are forgotten, buffers given back. An op inside a device
/// stays there; its end finds no connection, and gives back the memory that the op held.
pub(super) fn drop_all(conn: &mut Connection, core: &mut Core, but_what_is_being_sent: bool) {
    if !but_what_is_being_sent {
        conn.transport.abandon(&mut core.free);
        core.give_free();
    }
    let all: Vec<(u16, Stage)> = conn.slots.iter_mut().map(|(index, slot)| (index, slot.stage)).collect();
    if all.iter().any(|(_, stage)| *stage == Stage::Limited) {
        limited::forget_all(conn.token, core);
        stragglers::forget_all(conn.token, core);
    }
    for (index, stage) in all {
        if conn.slots[index].admin.is_some() {
            conn.slots[index].buffer = None;
            conn.slots.give(index);
            continue;
        }
        match stage {
            Stage::Held => forget_held(conn, core, index),
            Stage::Sending if but_what_is_being_sent => {}
            Stage::Sending | Stage::Data
                if conn.slots[index].admitted && conn.transport.keeps(index, conn.slots[index].op) =>
            {
                // The transport owns the op now.
                conn.slots[index].admitted = false;
                let charged = u64::from(conn.slots[index].charged);
                core.host(conn.tenant).in_flight_bytes -= charged;
                release(conn, core, index);
            }
            Stage::Device => {
                // The flight owns the op now.
                conn.slots[index].admitted = false;
                let charged = u64::from(conn.slots[index].charged);
                core.host(conn.tenant).in_flight_bytes -= charged;
                release(conn, core, index);
            }
            _ => release(conn, core, index),
        }
    }
    afloat::forget(conn, core);
}

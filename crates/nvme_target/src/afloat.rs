//! Data afloat: what connections have on the network, reads being sent and writes being received.
//!
//! A host that takes its data slowly, or sends them slowly, keeps buffers as a slow drive does. The target does two
//! things, so that such a host does not keep the buffers that others need:
//!
//! A connection may have as much afloat as is left, of the window and of the memory: the dynamic threshold of switches
//! with shared memory (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998).
//! A connection alone gets half, n connections that want more than they get have 1/(n+1) each, and the last part is
//! there for the next one. Beyond that bound the pacer pauses the connection's queue, where its commands hold no
//! memory. The bytes that the connection has in the drives at that moment come on top.
//!
//! Where nothing has moved for a while the connection is stuck: its data afloat are not part of the load, and the pacer
//! sets them aside from the window, until they end.
//!
//! A connection waits before it gets a buffer if its next command does not fit into the rest of the memory. If
//! connections have been stuck for long meanwhile, the reactor closes the one that has been stuck longest: memory goes
//! to hosts that use it.

use super::connection::Connection;
use super::core::Core;

/// The time without movement after which a connection counts as stuck. Networks have round trips of less, or data under
/// way all the time.
const STUCK_NS: u64 = 10_000_000;
/// The time without movement after which a stuck connection loses its memory to connections that wait for memory.
const HANGS_NS: u64 = 1_000_000_000;
/// Commands of at most this number of bytes may use a quarter of the memory that larger commands may not.
const SMALL: u32 = 64 << 10;
/// The time between looks for connections that are stuck.
pub(super) const LOOK_NS: u64 = 5_000_000;

/// The account of a connection's data afloat.
#[derive(Default)]
pub(super) struct Afloat {
    bytes: u64,
    /// The time at which some of the bytes moved last.
    moved_ns: u64,
    /// Bytes of the largest command that has asked for memory since the queue was empty.
    largest: u32,
    /// True while there is not enough memory for a command of `largest` bytes.
    lacks_memory: bool,
    is_stuck: bool,
    is_paused: bool,
}

/// Counts the data of the command in slot `index` as on the network from now on.
#[inline]
pub(super) fn begin(conn: &mut Connection, core: &mut Core, index: u16) {
    let bytes = conn.slots[index].charged;
    conn.slots[index].afloat = bytes;
    if conn.afloat.bytes == 0 {
        conn.afloat.moved_ns = core.now_ns;
    }
    conn.afloat.bytes += u64::from(bytes);
    core.afloat_bytes += u64::from(bytes);
    if conn.afloat.is_stuck {
        set_aside(conn, core, index);
    }
    judge(conn, core);
}

/// Ends the count of a command's data: the data have arrived, or nobody waits for them any more.
#[inline]
pub(super) fn end(conn: &mut Connection, core: &mut Core, index: u16) {
    let slot = &mut conn.slots[index];
    let bytes = u64::from(std::mem::take(&mut slot.afloat));
    if bytes == 0 {
        return;
    }
    if std::mem::take(&mut slot.is_aside) {
        core.aside_bytes -= bytes;
    }
    conn.afloat.bytes -= bytes;
    core.afloat_bytes -= bytes;
    (conn.afloat.moved_ns, conn.afloat.is_stuck) = (core.now_ns, false);
    judge(conn, core);
}

/// Notes that some of the connection's data afloat have moved: the connection is not stuck.
#[inline]
pub(super) fn moved(conn: &mut Connection, core: &mut Core) {
    conn.afloat.moved_ns = core.now_ns;
    if std::mem::take(&mut conn.afloat.is_stuck) {
        judge(conn, core);
    }
}

/// True if `bytes` of data take more than half of the memory that is left: the command must wait. A smaller command of
/// another connection, which comes later, still finds room.
#[inline]
pub(super) fn lacks_memory(conn: &mut Connection, core: &mut Core, bytes: u32) -> bool {
    conn.afloat.largest = conn.afloat.largest.max(bytes);
    let lacks = !has_memory(core, conn.afloat.largest);
    if lacks != conn.afloat.lacks_memory {
        conn.afloat.lacks_memory = lacks;
        judge(conn, core);
    }
    lacks
}

#[inline]
fn has_memory(core: &Core, bytes: u32) -> bool {
    let most = core.share.afloat_bytes;
    core.afloat_bytes == 0
        || u64::from(bytes) <= memory_left(core) / 2
        || bytes <= SMALL && core.afloat_bytes <= most.saturating_add(most / 4)
}

#[inline]
fn memory_left(core: &Core) -> u64 {
    core.share.afloat_bytes.saturating_sub(core.afloat_bytes)
}

/// Ends the waiting of a connection that closes, and resumes its queue in the pacer: the pacer knows the queue by a
/// number that another connection will have next.
pub(super) fn forget(conn: &mut Connection, core: &mut Core) {
    (conn.afloat.largest, conn.afloat.lacks_memory) = (0, false);
    if std::mem::take(&mut conn.afloat.is_paused) {
        core.pacer.resume(conn.token.index);
    }
}

/// True while a command of the connection waits for memory.
pub(super) fn wants_memory(conn: &Connection) -> bool {
    conn.afloat.lacks_memory
}

/// The time since which nothing has moved on the connection, if that is long enough to give its memory to others.
pub(super) fn hangs_since(conn: &Connection, core: &Core) -> Option<u64> {
    let Afloat { bytes, moved_ns, is_stuck, .. } = conn.afloat;
    (is_stuck && bytes > 0 && core.now_ns.saturating_sub(moved_ns) > HANGS_NS).then_some(moved_ns)
}

/// Finds out whether the connection is stuck, and whether there is memory for what waits for it.
pub(super) fn check_if_stuck(conn: &mut Connection, core: &mut Core) {
    if conn.slots.used() == 0 {
        conn.afloat.largest = 0;
    }
    lacks_memory(conn, core, 0);
    let afloat = &mut conn.afloat;
    if afloat.bytes == 0 || afloat.is_stuck || core.now_ns.saturating_sub(afloat.moved_ns) < STUCK_NS {
        return;
    }
    afloat.is_stuck = true;
    let all: Vec<u16> = conn.slots.iter_mut().filter_map(|(index, slot)| (slot.afloat > 0).then_some(index)).collect();
    for index in all {
        set_aside(conn, core, index);
    }
    judge(conn, core);
}

fn set_aside(conn: &mut Connection, core: &mut Core, index: u16) {
    let slot = &mut conn.slots[index];
    if !std::mem::replace(&mut slot.is_aside, true) {
        core.aside_bytes += u64::from(slot.afloat);
        core.pacer.set_aside(core.now_ns, slot.op);
    }
}

#[inline]
fn judge(conn: &mut Connection, core: &mut Core) {
    let Afloat { bytes, is_stuck, is_paused, lacks_memory, .. } = conn.afloat;
    let of_window = core.window_bytes().saturating_sub(core.afloat_bytes - core.aside_bytes);
    let pauses = lacks_memory || bytes > 0 && (is_stuck || bytes > of_window.min(memory_left(core)));
    if pauses == is_paused {
        return;
    }
    conn.afloat.is_paused = pauses;
    let queue = conn.token.index;
    match pauses {
        true => core.pacer.pause(queue),
        false => core.pacer.resume(queue),
    }
}

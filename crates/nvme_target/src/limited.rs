//! Limits of devices (`bdev_set_qos_limit`): commands beyond the limit wait here, before the pacer sees them.
//!
//! All reactors draw from the same buckets, so that the limit holds for the device however its hosts are spread. A
//! device without a limit costs each command one atomic load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pace::{Rates, Throttle};

use super::connection::Connection;
use super::core::Core;
use super::io_command::IoCommand;
use super::mailbox::Token;
use super::slot::{CommandSlot, Stage};

/// The limit of one device, which all reactors share.
#[derive(Default)]
pub(super) struct Limit {
    is_set: AtomicBool,
    throttle: Mutex<Option<Throttle>>,
}

impl Limit {
    fn throttle(&self) -> MutexGuard<'_, Option<Throttle>> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts these rates in force; rates without a limit end the limit.
    pub fn set(&self, rates: Rates) {
        *self.throttle() = (!rates.is_unlimited()).then(|| Throttle::new(rates, 0));
        self.is_set.store(!rates.is_unlimited(), Ordering::Release);
    }

    /// The rates that hold now.
    pub fn rates(&self) -> Rates {
        self.throttle().as_ref().map(Throttle::rates).unwrap_or_default()
    }

    fn take(&self, now_ns: u64, command: &Limited) -> bool {
        self.throttle().as_mut().is_none_or(|throttle| throttle.take(now_ns, command.bytes, command.is_write))
    }

    /// Nanoseconds until the command may go.
    pub fn wait_ns(&self, now_ns: u64, command: &Limited) -> u64 {
        self.throttle().as_mut().map_or(0, |throttle| throttle.wait_ns(now_ns, command.is_write))
    }
}

/// A command that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limited {
    connection: Token,
    slot: u16,
    bytes: u64,
    is_write: bool,
}

/// True if the command must wait for the limit of its device: it is queued then, behind those that came before.
#[inline]
pub(super) fn holds_back(conn: &mut Connection, core: &mut Core, index: u16) -> bool {
    let Some(open) = core.channels.get_mut(conn.slots[index].channel) else { return false };
    if !open.limit.is_set.load(Ordering::Acquire) && open.limited.is_empty() {
        return false;
    }
    let slot = &mut conn.slots[index];
    let is_write = match slot.command {
        IoCommand::Compare => slot.fused.is_some(),
        IoCommand::Read => false,
        IoCommand::Write => true,
        // As in SPDK, commands without data of the host's are not limited.
        IoCommand::Flush
        | IoCommand::WriteZeroes
        | IoCommand::DatasetManagement
        | IoCommand::Verify
        | IoCommand::Copy => return false,
    };
    if slot.has_paid {
        return false;
    }
    let command = Limited { connection: conn.token, slot: index, bytes: slot.len, is_write };
    slot.has_paid = open.limited.is_empty() && open.limit.take(core.now_ns, &command);
    if !slot.has_paid {
        slot.stage = Stage::Limited;
        open.limited.push_back(command);
        core.busy.add(slot.channel);
    }
    !slot.has_paid
}

/// The first command of that channel, if its limit lets it go now: the connection and slot of the command.
pub(super) fn next(core: &mut Core, channel: usize, can_go: impl Fn(Token) -> bool) -> Option<(Token, u16)> {
    let now_ns = core.now_ns;
    let open = core.channels.get_mut(channel)?;
    let first = *open.limited.front()?;
    if !can_go(first.connection) || !open.limit.take(now_ns, &first) {
        return None;
    }
    open.limited.pop_front();
    Some((first.connection, first.slot))
}

/// Marks the command as one that its limit has let go. The pacer decides next.
pub(super) fn let_go(slot: &mut CommandSlot) {
    (slot.stage, slot.has_paid) = (Stage::Unadmitted, true);
}

/// Takes a command that ends out of the queue.
pub(super) fn forget(conn: &Connection, core: &mut Core, index: u16) {
    if let Some(open) = core.channels.get_mut(conn.slots[index].channel) {
        open.limited.retain(|waiting| (waiting.connection, waiting.slot) != (conn.token, index));
    }
}

/// Takes all commands of a connection that ends out of the queues.
pub(super) fn forget_all(connection: Token, core: &mut Core) {
    for (_, open) in &mut core.channels {
        open.limited.retain(|waiting| waiting.connection != connection);
    }
}

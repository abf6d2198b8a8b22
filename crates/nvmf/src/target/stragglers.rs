//! Stragglers: writes that are still inside devices when their queue has gone.
//!
//! A host that loses a connection sends its writes again over the next one, and then newer ones. A straggler that ended
//! after these would put old data back (the hazard that the Command Quiesce Time of Base specification 2.1, section
//! 9.6, is about). Therefore commands by which the same host changes the same device wait until its stragglers there
//! have ended, on whichever path and reactor they come. Commands of other hosts do not wait, and neither do reads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::command::{CommandSlot, Stage};
use super::connection::Connection;
use super::core::Core;
use super::mailbox::Token;
use crate::spec::reservation::HostId;

/// The time between looks at commands that wait: the stragglers may be in the devices of another reactor.
pub(super) const LOOK_NS: u64 = 1_000_000;

/// A host, and the uid of a device that it writes to.
type Place = (HostId, u64);

/// The stragglers of all reactors, counted.
#[derive(Default)]
pub(super) struct Stragglers {
    /// The number of places that have some. Without any, a command costs one look at this number.
    places: AtomicUsize,
    counts: Mutex<HashMap<Place, usize>>,
}

impl Stragglers {
    fn counts(&self) -> MutexGuard<'_, HashMap<Place, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a write that is inside a device, and whose queue goes now.
    pub fn begins(&self, host: HostId, device: u64) {
        let mut counts = self.counts();
        *counts.entry((host, device)).or_default() += 1;
        self.places.store(counts.len(), Ordering::Release);
    }

    /// Counts the end of such a write.
    pub fn ends(&self, host: HostId, device: u64) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(&(host, device)) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&(host, device));
            }
        }
        self.places.store(counts.len(), Ordering::Release);
    }

    fn has(&self, place: &Place) -> bool {
        self.places.load(Ordering::Acquire) > 0 && self.counts().contains_key(place)
    }
}

/// A command that waits for stragglers of its host.
pub(super) struct Waiting {
    connection: Token,
    slot: u16,
    place: Place,
}

/// True if the command must wait for stragglers of its host: it is queued then.
#[inline]
pub(super) fn hold_back(conn: &mut Connection, core: &mut Core, index: u16) -> bool {
    if core.shared.stragglers.places.load(Ordering::Acquire) == 0 {
        return false;
    }
    let Some(controller) = &conn.controller else { return false };
    let slot = &mut conn.slots[index];
    let place = (controller.host_id, slot.device_uid);
    if !slot.command.row().changes_blocks || !core.shared.stragglers.has(&place) {
        return false;
    }
    slot.stage = Stage::Limited;
    core.waiting.push(Waiting { connection: conn.token, slot: index, place });
    true
}

/// Takes a command out of the queue whose stragglers have ended: its connection and slot.
pub(super) fn next(core: &mut Core, can_go: impl Fn(Token) -> bool) -> Option<(Token, u16)> {
    if core.waiting.is_empty() {
        return None;
    }
    let stragglers = &core.shared.stragglers;
    let goes = |waiting: &Waiting| !stragglers.has(&waiting.place) && can_go(waiting.connection);
    let first = core.waiting.iter().position(goes)?;
    let Waiting { connection, slot, .. } = core.waiting.remove(first);
    Some((connection, slot))
}

/// Marks the command as one that stragglers no longer hold back.
pub(super) fn let_go(slot: &mut CommandSlot) {
    slot.stage = Stage::Unadmitted;
}

/// Takes a command that ends out of the queue.
pub(super) fn forget(connection: Token, core: &mut Core, index: u16) {
    core.waiting.retain(|waiting| (waiting.connection, waiting.slot) != (connection, index));
}

/// Takes all commands of a connection that ends out of the queue.
pub(super) fn forget_all(connection: Token, core: &mut Core) {
    core.waiting.retain(|waiting| waiting.connection != connection);
}

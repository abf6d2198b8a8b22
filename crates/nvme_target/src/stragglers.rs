//! Stragglers: writes that are still inside devices when their queue has gone.
//!
//! A host that loses a connection sends its writes again over the next one, and then newer ones. A straggler that ended
//! after these would put old data back (the hazard that the Command Quiesce Time of Base specification 2.1, section
//! 9.6, is about). Therefore commands by which the same host changes the same device wait until its stragglers there
//! have ended, on whichever path and reactor they come. Commands of other hosts do not wait, and neither do reads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvme::spec::reservation::HostId;

use super::connection::Connection;
use super::core::Core;
use super::mailbox::Token;
use super::slot::{CommandSlot, Stage};

/// The time between looks at commands that wait: the stragglers may be in the devices of another reactor. A look goes
/// through all of them, and a host may have thousands.
const LOOK_NS: u64 = 4_000_000;

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
struct Waiting {
    connection: Token,
    slot: u16,
    place: Place,
}

/// The commands of a reactor that wait.
#[derive(Default)]
pub(super) struct Queue {
    commands: Vec<Waiting>,
    next_look_ns: u64,
}

impl Queue {
    /// The time of the next look; `None` while nothing waits.
    pub fn wake_ns(&self) -> Option<u64> {
        (!self.commands.is_empty()).then_some(self.next_look_ns)
    }

    /// Takes the commands out whose stragglers have ended: their connections and slots.
    pub fn look(&mut self, now_ns: u64, stragglers: &Stragglers) -> Vec<(Token, u16)> {
        if self.commands.is_empty() || now_ns < self.next_look_ns {
            return Vec::new();
        }
        self.next_look_ns = now_ns + LOOK_NS;
        let counts = stragglers.counts();
        let goes = |it: &mut Waiting| !counts.contains_key(&it.place);
        self.commands.extract_if(.., goes).map(|it| (it.connection, it.slot)).collect()
    }
}

/// True if the command must wait for stragglers of its host: it is queued then.
#[inline]
pub(super) fn hold_back(conn: &mut Connection, core: &mut Core, index: u16) -> bool {
    if core.shared.stragglers.places.load(Ordering::Acquire) == 0 {
        return false;
    }
    let Some(place) = place_of(conn, index) else { return false };
    let waits = conn.slots[index].changes_blocks() && core.shared.stragglers.has(&place);
    if waits {
        wait(conn, core, index);
    }
    waits
}

fn place_of(conn: &Connection, index: u16) -> Option<Place> {
    Some((conn.controller.as_ref()?.host_id, conn.slots[index].device_uid))
}

/// Queues a command until the next look.
pub(super) fn wait(conn: &mut Connection, core: &mut Core, index: u16) {
    let Some(place) = place_of(conn, index) else { return };
    conn.slots[index].stage = Stage::Limited;
    core.waiting.commands.push(Waiting { connection: conn.token, slot: index, place });
}

/// Marks the command as one that stragglers no longer hold back.
pub(super) fn let_go(slot: &mut CommandSlot) {
    slot.stage = Stage::Unadmitted;
}

/// Takes a command that ends out of the queue.
pub(super) fn forget(connection: Token, core: &mut Core, index: u16) {
    core.waiting.commands.retain(|waiting| (waiting.connection, waiting.slot) != (connection, index));
}

/// Takes all commands of a connection that ends out of the queue.
pub(super) fn forget_all(connection: Token, core: &mut Core) {
    core.waiting.commands.retain(|waiting| waiting.connection != connection);
}

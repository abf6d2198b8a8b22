//! Reservations: hosts agree by them who may write to a namespace (Base specification 2.0, section 8.19).
//!
//! ```text
//!  queue ─► reservation command ─► registrar (one thread) ─► rules ─► store ─► in force ─► notices, aborts ─► response
//!  queue ─► I/O command ─► permits? (one atomic load while there is no reservation)
//! ```
//!
//! One thread carries out the commands of all hosts one after another, because a state that persists must be on the
//! disk before its command succeeds, and no reactor waits for a disk.

mod commands;
mod notices;
mod registrar;
mod rules;
mod store;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use nvme::spec::reservation::HostId;

use super::Error;

pub(super) use commands::{answered, carry_out, persistence, set_persistence};
pub(super) use notices::Notices;
pub(super) use registrar::{Answered, Eviction, Registrar};
pub(super) use rules::Need;
use rules::Rules;
use store::Store;

/// The reservations of a namespace that a command names, its number, and the uid of its device.
pub(super) struct Reserved {
    pub nsid: u32,
    pub device: u64,
    pub reservations: Arc<Reservations>,
}

/// The reservations of one namespace, which all reactors share.
#[derive(Default)]
pub(super) struct Reservations {
    /// True while there is a reservation.
    is_reserved: AtomicBool,
    /// The rules in force. Only the registrar changes them.
    rules: RwLock<Rules>,
    /// The place where they persist; `None` if they end with the target.
    store: Option<Store>,
}

impl Reservations {
    /// The reservations of a new namespace: those that its file holds, or none. With `outlives`, the file keeps those
    /// too that end with a loss of power: another process goes on with them.
    ///
    /// # Errors
    /// The file cannot be read or written, or it is not a file of this namespace's reservations.
    pub fn open(file: Option<&PathBuf>, namespace_uuid: [u8; 16], outlives: bool) -> Result<Reservations, Error> {
        let Some(file) = file else { return Ok(Reservations::default()) };
        let mut store = Store::new(file.clone(), namespace_uuid, outlives);
        let rules = store.load()?;
        Ok(Reservations {
            is_reserved: AtomicBool::new(rules.reservation.is_some()),
            rules: RwLock::new(rules),
            store: Some(store),
        })
    }

    /// True if a host may carry out a command with that need now.
    #[inline]
    pub fn permit(&self, host: &HostId, need: Need) -> bool {
        !self.is_reserved.load(Ordering::Acquire) || self.read().permit(host, need)
    }

    /// True if the reservations can persist through power loss.
    pub fn can_persist(&self) -> bool {
        self.store.is_some()
    }

    /// The rules in force at this moment.
    fn rules(&self) -> Rules {
        self.read().clone()
    }

    fn read(&self) -> RwLockReadGuard<'_, Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts rules in force, once they are stored.
    ///
    /// # Errors
    /// They cannot be stored: the rules from before stay in force.
    fn change(&self, new: Rules) -> Result<(), Error> {
        if let Some(store) = self.store.as_ref().filter(|store| store.keeps(&new) || store.keeps(&self.read())) {
            store.save(&new)?;
        }
        let is_reserved = new.reservation.is_some();
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = new;
        self.is_reserved.store(is_reserved, Ordering::Release);
        Ok(())
    }
}

//! The memory of ops, registered so that a controller moves their data without a copy.
//!
//! Each slot has a registration of its own, for as long as the association lasts: the card refuses every access of a
//! controller that leaves the slot of its command. docs/decisions/memory-of-rdma.md weighs this against one
//! registration for all slots, and against one for each command.
#![allow(unsafe_code, reason = "registers memory that a controller reads and writes")]

use std::io;
use std::sync::{Arc, Mutex};

use verbs::either::{Device, Domain, Region};
use verbs::work::{Access, Part};
use verbs::{Either, Verbs};

/// The memory of all ops, cut into slots.
///
/// From the first command that names a slot to the end of the association, the controller knows the key of the slot.
/// It can read the slot at any time, and write it if [`RdmaHost::writable`](super::RdmaHost::writable) says so, also
/// between two commands and during a command that moves data the other way.
///
/// # Safety
/// As long as the value lives, each slot is valid for reads and writes, and [`Arena::slot`] gives the same answer.
/// Slots do not overlap. While a command that moves data to or from a slot is outstanding, nobody holds a reference to
/// bytes of the slot.
pub unsafe trait Arena: Send + Sync {
    /// The number of slots.
    fn count(&self) -> u32;

    /// The bytes of a slot, below [`Arena::count`].
    fn slot(&self, index: u32) -> *mut [u8];
}

/// The slots of an arena as a card knows them.
#[derive(Clone, Copy)]
struct Place {
    address: u64,
    length: usize,
    key: u32,
}

/// An arena, registered in a protection domain of a device.
pub struct Registered {
    pub(super) device: Device,
    pub(super) domain: Domain,
    /// True if the controller may write into the slots.
    pub(super) writable: bool,
    places: Vec<Place>,
    /// Owned, and never looked at: they end before the memory does.
    _regions: Mutex<Vec<Region>>,
    _arena: Arc<dyn Arena>,
}

impl Registered {
    /// Registers the slots of an arena in a new domain. The controller may read them, and write them if they are
    /// `writable`.
    ///
    /// # Errors
    /// Those of [`Verbs::register`].
    pub(super) fn new(
        stack: &Either,
        device: &Device,
        arena: &Arc<dyn Arena>,
        writable: bool,
    ) -> io::Result<Registered> {
        let domain = stack.domain(device)?;
        let access = Access { local_write: true, remote_read: true, remote_write: writable };
        let (mut places, mut regions) = (Vec::new(), Vec::new());
        for index in 0..arena.count() {
            let slot = arena.slot(index);
            let (address, length) = (slot.cast::<u8>().expose_provenance() as u64, slot.len());
            let mut key = 0;
            // Nothing can be registered of a slot without bytes, and no command names one.
            if length > 0 {
                // SAFETY: the arena promises that the slot is valid while the arena lives, which outlives the region by
                // the order of the fields. Commands name the slot by its key, and by the arena's promise nobody holds a
                // reference to its bytes while one is outstanding. A controller that writes at another time breaks the
                // protocol: the decision that the head names says why its users trust it.
                let region = unsafe { stack.register(&domain, slot, access) }?;
                key = stack.key(&region);
                regions.push(region);
            }
            places.push(Place { address, length, key });
        }
        let device = device.clone();
        Ok(Registered { device, domain, writable, places, _regions: Mutex::new(regions), _arena: arena.clone() })
    }

    /// A part of a slot.
    ///
    /// # Panics
    /// If the range is not in the slot.
    #[inline]
    pub(super) fn part(&self, slot: u32, at: u32, length: u32) -> Part {
        let Place { address, length: room, key } = self.places[slot as usize];
        assert!(at as usize + length as usize <= room, "a command is larger than its slot");
        Part { address: address + u64::from(at), length, key }
    }
}

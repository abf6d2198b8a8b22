//! Data buffers that a device may read and write: each is registered when the device needs it first, and stays so until
//! the pool gives the buffer back to the system.
#![allow(unsafe_code, reason = "registers memory that a device reads and writes")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

use sys::buffer::Buffer;
use verbs::Verbs;
use verbs::either::{Domain, Either, Region};
use verbs::work::{Access, Part};

use crate::device::Watcher;

/// The registrations of one protection domain, by the addresses of the buffers.
pub(super) struct Registered {
    verbs: Either,
    domain: Domain,
    regions: RefCell<HashMap<usize, Region>>,
}

impl Registered {
    pub fn new(verbs: Either, domain: Domain) -> Registered {
        Registered { verbs, domain, regions: RefCell::default() }
    }

    /// The first `length` bytes of a buffer of the pool, for work.
    ///
    /// # Errors
    /// Those of [`Verbs::register`].
    pub fn part(&self, buffer: &Buffer, length: u32) -> io::Result<Part> {
        let address = buffer.as_mut_ptr().expose_provenance();
        let mut regions = self.regions.borrow_mut();
        let region = match regions.entry(address) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(self.register(buffer)?),
        };
        Ok(Part { address: address as u64, length, key: self.verbs.key(region) })
    }

    /// The first `length` bytes of a buffer that is not the pool's, for work. The registration ends with the region,
    /// which the caller drops before the buffer.
    ///
    /// # Errors
    /// Those of [`Verbs::register`].
    pub fn part_once(&self, buffer: &Buffer, length: u32) -> io::Result<(Part, Region)> {
        let region = self.register(buffer)?;
        let address = buffer.as_mut_ptr().expose_provenance() as u64;
        Ok((Part { address, length, key: self.verbs.key(&region) }, region))
    }

    fn register(&self, buffer: &Buffer) -> io::Result<Region> {
        let memory = std::ptr::slice_from_raw_parts_mut(buffer.as_mut_ptr(), buffer.len());
        let access = Access { local_write: true, ..Access::default() };
        // SAFETY: the pool keeps the buffer's memory until `leaves` has ended the registration; the caller of
        // `part_once` does. Peers have no right to the memory. Work that names it is posted by this transport alone,
        // which owns the buffer from then until the work has ended: nobody has a reference to its bytes meanwhile.
        unsafe { self.verbs.register(&self.domain, memory, access) }
    }
}

impl Watcher for Registered {
    fn leaves(&self, buffer: &Buffer) {
        self.regions.borrow_mut().remove(&buffer.as_mut_ptr().addr());
    }
}

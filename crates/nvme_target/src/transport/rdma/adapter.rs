//! An RDMA device as one reactor uses it: one protection domain, one completion queue, and one receive queue that all
//! connections share.
//!
//! Receives have room for the largest capsule. Each is posted again as soon as its capsule has been looked at, so that
//! no connection keeps receives that others need: a connection that cannot go on keeps copies.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use nvme::spec::Command;
use verbs::either::{Completions, Device, Domain, Either, Receives};
use verbs::stack::Limits;
use verbs::work::{Access, Completion, Part, Receive};
use verbs::{Memory, Verbs};

use super::registered::Registered;

/// Completions that a queue has room for, if the device can. Connections beyond get another adapter.
const COMPLETIONS: u32 = 1 << 15;
/// Parts of one piece of work, if the device can: data are one part, and zeros several of the same bytes.
const PARTS: u32 = 16;

/// The owner of a queue pair in the reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A connection, by its index.
    Connection(u32),
    /// A connection that has ended, whose work has not: its key.
    Retiring(u32),
}

/// The sizes that an adapter is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of data in a capsule.
    pub in_capsule: u32,
    /// Receives that the queue has.
    pub receives: u32,
    /// Bytes of the longest data to a host.
    pub largest: u32,
}

pub(crate) struct Adapter {
    pub verbs: Either,
    pub device: Device,
    pub sizes: Sizes,
    pub limits: Limits,
    pub domain: Domain,
    pub completions: Completions,
    pub receives: Receives,
    /// The receives, one after another.
    capsules: RefCell<Memory<Either>>,
    /// The registrations of the pool's buffers.
    pub(super) registered: Rc<Registered>,
    /// Zeros, which data that consist of them are sent from again and again.
    zeros: Memory<Either>,
    zero_bytes: u32,
    /// Completions that nobody has been promised yet.
    room: Cell<u32>,
    owners: RefCell<HashMap<u32, Owner>>,
    /// Work given to the card.
    pub posts: Cell<u64>,
}

impl Adapter {
    /// The device, made ready.
    ///
    /// # Errors
    /// The system's; ENOMEM where locked memory is limited; Unsupported for iWARP, and without shared receive queues.
    pub fn new(verbs: &Either, device: Device, sizes: Sizes) -> io::Result<Adapter> {
        let limits = verbs.limits(&device)?;
        if limits.is_iwarp {
            // The data of a write could only be fetched into memory that the host may write whenever it likes.
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "it is an iWARP device: give one of InfiniBand or RoCE",
            ));
        }
        if limits.shared_places == 0 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it has no shared receive queues"));
        }
        let domain = verbs.domain(&device)?;
        let count = sizes.receives.min(limits.shared_places);
        let all = COMPLETIONS.max(2 * count).min(limits.completions);
        let completions = verbs.completions(&device, all)?;
        let receives = verbs.receives(&domain, count, 1)?;
        let bytes = Command::BYTES + sizes.in_capsule as usize;
        let access = Access { local_write: true, ..Access::default() };
        let capsules = Memory::new(verbs, &domain, bytes * count as usize, access)?;
        // An answer has a part for the bytes that are not zeros.
        let parts = limits.parts.min(PARTS);
        let zero_bytes = sizes.largest.div_ceil(parts.saturating_sub(1).max(1)).next_multiple_of(4096);
        let zeros = Memory::new(verbs, &domain, zero_bytes as usize, Access::default())?;
        let adapter = Adapter {
            registered: Rc::new(Registered::new(verbs.clone(), domain.clone())),
            verbs: verbs.clone(),
            device,
            sizes,
            limits,
            domain,
            completions,
            receives,
            capsules: RefCell::new(capsules),
            zeros,
            zero_bytes,
            room: Cell::new(all.saturating_sub(count)),
            owners: RefCell::default(),
            posts: Cell::new(0),
        };
        for receive in 0..count {
            adapter.receive_again(receive.into())?;
        }
        Ok(adapter)
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.verbs.completions_descriptor(&self.completions)
    }

    /// Parts of one piece of work.
    pub fn parts(&self) -> u32 {
        self.limits.parts.min(PARTS)
    }

    /// Takes room for the completions of a pair with `sends` places. Returns false if too few are left.
    pub fn promise(&self, sends: u32) -> bool {
        let room = self.room.get().checked_sub(sends);
        room.inspect(|room| self.room.set(*room)).is_some()
    }

    /// True if there is room for the completions of a pair with `sends` places.
    pub fn has_room(&self, sends: u32) -> bool {
        self.room.get() >= sends
    }

    /// Gives the room of a pair back.
    pub fn redeem(&self, sends: u32) {
        self.room.set(self.room.get() + sends);
    }

    pub fn set_owner(&self, pair: u32, owner: Owner) {
        self.owners.borrow_mut().insert(pair, owner);
    }

    /// Forgets the owner of a pair, unless the number has another owner by now.
    pub fn forget_owner(&self, pair: u32, owner: Owner) {
        let mut owners = self.owners.borrow_mut();
        if owners.get(&pair) == Some(&owner) {
            owners.remove(&pair);
        }
    }

    /// The number of connections.
    pub fn connections(&self) -> u32 {
        self.owners.borrow().values().filter(|owner| matches!(owner, Owner::Connection(_))).count() as u32
    }

    pub fn owner(&self, pair: u32) -> Option<Owner> {
        self.owners.borrow().get(&pair).copied()
    }

    /// Takes completions, at most `most`.
    ///
    /// # Errors
    /// The device has gone, or completions are lost.
    #[inline]
    pub fn poll(&self, most: usize, into: &mut Vec<Completion>) -> io::Result<()> {
        self.verbs.poll(&self.completions, most, into)
    }

    fn capsule_bytes(&self) -> usize {
        Command::BYTES + self.sizes.in_capsule as usize
    }

    /// Copies bytes of the capsule that a receive has brought.
    #[inline]
    pub fn read_capsule(&self, receive: u64, offset: usize, into: &mut [u8]) {
        self.capsules.borrow().read(receive as usize * self.capsule_bytes() + offset, into);
    }

    /// Posts a receive, for the first time or again.
    ///
    /// # Errors
    /// The device has failed.
    #[inline]
    pub fn receive_again(&self, receive: u64) -> io::Result<()> {
        let start = receive as usize * self.capsule_bytes();
        let part = self.capsules.borrow().part(start..start + self.capsule_bytes());
        self.verbs.receive_shared(&self.receives, Receive { id: receive, parts: &[part] })
    }

    /// Appends parts with that many zeros.
    pub fn zeros(&self, mut bytes: u32, parts: &mut Vec<Part>) {
        while bytes > 0 {
            let now = bytes.min(self.zero_bytes);
            parts.push(self.zeros.part(0..now as usize));
            bytes -= now;
        }
    }
}

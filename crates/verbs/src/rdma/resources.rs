//! Device, protection domain, region, completion queue and shared receive queue of rdma-core. Each owns a share of the
//! things that it is made of, so that these end after it.

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use super::connection::Identifier;
use super::{check, check_number, check_pointer};
use crate::Library;
use crate::abi::{CompChannel, Context, Cq, DeviceAttr, Mr, Pd, Srq, SrqAttr, SrqInitAttr};
use crate::numbers::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_TRANSPORT_IWARP};
use crate::stack::{Limits, Reads};
use crate::work::Access;

/// An open device.
#[derive(Clone)]
pub struct Device {
    /// An identifier on the device: librdmacm keeps the device open as long as it has one.
    holder: Arc<Identifier>,
    context: *mut Context,
}

// SAFETY: libibverbs lets any thread use a context.
unsafe impl Send for Device {}
// SAFETY: as for Send.
unsafe impl Sync for Device {}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.context == other.context
    }
}

impl Device {
    /// The device of `holder`, which is bound to it.
    pub(super) fn new(holder: Identifier) -> io::Result<Device> {
        let context = holder.context();
        if context.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        Ok(Device { holder: Arc::new(holder), context })
    }

    fn library(&self) -> &'static Library {
        self.holder.library()
    }

    pub(super) fn limits(&self) -> io::Result<Limits> {
        // SAFETY: all bytes zero are a value of this structure of numbers.
        let mut limits: DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and `limits` has the layout of the header.
        check_number(unsafe { (self.library().query_device)(self.context, &raw mut limits) })?;
        // SAFETY: the context is open, and has the layout of the header.
        let device = unsafe { (*self.context).device };
        // SAFETY: an open context keeps its device, which has the layout of the header.
        let transport = unsafe { (*device).transport_type };
        let count = |number: c_int| u32::try_from(number).unwrap_or(0);
        let few = |number: c_int| u8::try_from(number.max(0)).unwrap_or(u8::MAX);
        Ok(Limits {
            completions: count(limits.max_cqe),
            queue_places: count(limits.max_qp_wr),
            shared_places: if limits.max_srq > 0 { count(limits.max_srq_wr) } else { 0 },
            parts: count(limits.max_sge.min(limits.max_sge_rd.max(1))),
            reads: Reads { serves: few(limits.max_qp_rd_atom), issues: few(limits.max_qp_init_rd_atom) },
            is_iwarp: u32::try_from(transport) == Ok(IBV_TRANSPORT_IWARP),
        })
    }
}

/// A protection domain.
#[derive(Clone)]
pub struct Domain(Arc<OwnedDomain>);

struct OwnedDomain {
    device: Device,
    pointer: *mut Pd,
}

// SAFETY: libibverbs lets any thread use a domain.
unsafe impl Send for OwnedDomain {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedDomain {}

impl Domain {
    pub(super) fn new(device: &Device) -> io::Result<Domain> {
        // SAFETY: the context is open.
        let pointer = check_pointer(unsafe { (device.library().alloc_pd)(device.context) })?;
        Ok(Domain(Arc::new(OwnedDomain { device: device.clone(), pointer })))
    }

    pub(super) fn pointer(&self) -> *mut Pd {
        self.0.pointer
    }

    fn library(&self) -> &'static Library {
        self.0.device.library()
    }
}

impl Drop for OwnedDomain {
    fn drop(&mut self) {
        // SAFETY: all regions, pairs and receive queues of the domain have had a share of it, and are gone.
        let _ = unsafe { (self.device.library().dealloc_pd)(self.pointer) };
    }
}

/// Registered memory.
pub struct Region {
    domain: Domain,
    pointer: *mut Mr,
    key: u32,
}

// SAFETY: libibverbs lets any thread end a registration.
unsafe impl Send for Region {}

impl Region {
    /// # Safety
    /// As for [`Verbs::register`](crate::Verbs::register).
    pub(super) unsafe fn new(domain: &Domain, memory: *mut [u8], access: Access) -> io::Result<Region> {
        let mut flags = 0;
        for (allowed, flag) in [
            (access.local_write, IBV_ACCESS_LOCAL_WRITE),
            (access.remote_read, IBV_ACCESS_REMOTE_READ),
            (access.remote_write, IBV_ACCESS_REMOTE_WRITE),
        ] {
            flags |= if allowed { flag as c_int } else { 0 };
        }
        // Work and peers name the memory by its address.
        let start = memory.cast::<u8>();
        start.expose_provenance();
        // SAFETY: the domain is live; the memory is the caller's promise.
        let pointer = unsafe { (domain.library().reg_mr)(domain.pointer(), start.cast(), memory.len(), flags) };
        let pointer = check_pointer(pointer)?;
        // SAFETY: the registration is live.
        let key = unsafe { (*pointer).lkey };
        // SAFETY: the registration is still live.
        let key_of_peers = unsafe { (*pointer).rkey };
        let region = Region { domain: domain.clone(), pointer, key };
        let is_for_peers = access.remote_read || access.remote_write;
        // Drivers give a region one key for both sides. Nothing promises it.
        if is_for_peers && key != key_of_peers {
            return Err(io::Error::other("the device has other keys for peers than for this side"));
        }
        Ok(region)
    }

    pub(super) fn key(&self) -> u32 {
        self.key
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the registration is live, and ends here only.
        let _ = unsafe { (self.domain.library().dereg_mr)(self.pointer) };
    }
}

/// A completion queue with a descriptor for its notices.
#[derive(Clone)]
pub struct Completions(pub(super) Arc<OwnedCompletions>);

pub(super) struct OwnedCompletions {
    device: Device,
    channel: *mut CompChannel,
    pub(super) pointer: *mut Cq,
}

// SAFETY: libibverbs lets any thread use a completion queue and its channel.
unsafe impl Send for OwnedCompletions {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedCompletions {}

impl Completions {
    pub(super) fn new(device: &Device, capacity: u32) -> io::Result<Completions> {
        let library = device.library();
        let capacity = c_int::try_from(capacity).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: the context is open.
        let channel = check_pointer(unsafe { (library.create_comp_channel)(device.context) })?;
        // SAFETY: the context is open, the channel is live, and vector 0 is there on every device.
        let created = unsafe { (library.create_cq)(device.context, capacity, ptr::null_mut(), channel, 0) };
        // The error, before another call changes errno.
        let created = check_pointer(created);
        let owned = OwnedCompletions {
            device: device.clone(),
            channel,
            pointer: created.as_ref().map_or(ptr::null_mut(), |it| *it),
        };
        created?;
        let queue = Completions(Arc::new(owned));
        super::connection::make_nonblocking(queue.descriptor())?;
        Ok(queue)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is live.
        let descriptor = unsafe { (*self.0.channel).fd };
        // SAFETY: the channel, which owns the descriptor, lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    pub(super) fn take_notices(&self) -> io::Result<()> {
        loop {
            let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel is live, and both places are valid.
            let got =
                unsafe { (self.0.device.library().get_cq_event)(self.0.channel, &raw mut queue, &raw mut context) };
            match check(got) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // SAFETY: the notice is of this queue, the only one of its channel.
            unsafe { (self.0.device.library().ack_cq_events)(queue, 1) };
        }
    }
}

impl Drop for OwnedCompletions {
    fn drop(&mut self) {
        if !self.pointer.is_null() {
            // SAFETY: all pairs of the queue have had a share of it, and are gone; no notice is unacknowledged.
            let _ = unsafe { (self.device.library().destroy_cq)(self.pointer) };
        }
        // SAFETY: its only queue is gone.
        let _ = unsafe { (self.device.library().destroy_comp_channel)(self.channel) };
    }
}

/// A receive queue that pairs share.
#[derive(Clone)]
pub struct Receives(pub(super) Arc<OwnedReceives>);

pub(super) struct OwnedReceives {
    domain: Domain,
    pub(super) pointer: *mut Srq,
    pub(super) parts: u32,
}

// SAFETY: libibverbs lets any thread use a receive queue.
unsafe impl Send for OwnedReceives {}
// SAFETY: as for Send.
unsafe impl Sync for OwnedReceives {}

impl Receives {
    pub(super) fn new(domain: &Domain, capacity: u32, parts: u32) -> io::Result<Receives> {
        let attr = SrqAttr { max_wr: capacity, max_sge: parts, srq_limit: 0 };
        let mut options = SrqInitAttr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is live, and the options are as the header lays them out.
        let pointer = check_pointer(unsafe { (domain.library().create_srq)(domain.pointer(), &raw mut options) })?;
        Ok(Receives(Arc::new(OwnedReceives { domain: domain.clone(), pointer, parts })))
    }
}

impl Drop for OwnedReceives {
    fn drop(&mut self) {
        // SAFETY: all pairs of the queue have had a share of it, and are gone.
        let _ = unsafe { (self.domain.library().destroy_srq)(self.pointer) };
    }
}

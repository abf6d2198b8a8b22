//! The stack of this machine: rdma-core, behind the interface [`Verbs`].
//!
//! ```text
//! connection ─► channels, events and identifiers of the connection manager
//! resources ─► device, domain, region, queues; pair ─► post, poll: the calls that the driver's table has
//! ```

mod address;
mod connection;
mod data;
mod resources;

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::stack::{Event, Greeting, Limits, Number, PairOptions, Verbs};
use crate::work::{Access, Completion, Receive, Work};
use crate::{Error, Library, library};
pub use connection::{Channel, Incoming, Listener, Outgoing, Pair};
pub use resources::{Completions, Device, Domain, Receives, Region};

/// rdma-core, opened.
#[derive(Clone, Copy)]
pub struct Rdma {
    library: &'static Library,
}

impl Rdma {
    /// Opens the libraries.
    ///
    /// # Errors
    /// The library that is missing or too old.
    pub fn open() -> Result<Rdma, Error> {
        Ok(Rdma { library: library()? })
    }
}

/// The result of a call that returns 0, or -1 with errno.
fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The result of a call that returns 0 or the number of the error. Some drivers give it below zero, and calls that are
/// not of a driver give -1 with errno.
fn check_number(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}

/// The result of a call that returns a pointer, or NULL with errno.
fn check_pointer<T>(result: *mut T) -> io::Result<*mut T> {
    if result.is_null() { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Verbs for Rdma {
    type Channel = Channel;
    type Listener = Listener;
    type Incoming = Incoming;
    type Outgoing = Outgoing;
    type Device = Device;
    type Domain = Domain;
    type Region = Region;
    type Completions = Completions;
    type Receives = Receives;
    type Pair = Pair;

    fn channel(&self) -> io::Result<Channel> {
        Channel::new(self.library)
    }

    fn channel_descriptor<'a>(&self, channel: &'a Channel) -> BorrowedFd<'a> {
        channel.descriptor()
    }

    fn next_event(&self, channel: &Channel) -> io::Result<Option<Event<Rdma>>> {
        channel.next_event()
    }

    fn listen(&self, channel: &Channel, address: SocketAddr, number: Number) -> io::Result<Listener> {
        channel.listen(address, number)
    }

    fn listens_at(&self, listener: &Listener) -> io::Result<SocketAddr> {
        listener.address()
    }

    fn dial(&self, channel: &Channel, to: SocketAddr, number: Number) -> io::Result<Outgoing> {
        channel.dial(to, number)
    }

    fn asked_device(&self, incoming: &Incoming) -> io::Result<Device> {
        incoming.device()
    }

    fn asked_at(&self, incoming: &Incoming) -> io::Result<SocketAddr> {
        incoming.address()
    }

    fn routed_device(&self, outgoing: &Outgoing) -> io::Result<Device> {
        outgoing.device()
    }

    fn adopt(&self, channel: &Channel, incoming: &mut Incoming) -> io::Result<()> {
        channel.adopt(incoming)
    }

    fn accept(
        &self,
        incoming: Incoming,
        number: Number,
        options: &PairOptions<'_, Rdma>,
        greeting: &Greeting<'_>,
    ) -> io::Result<Pair> {
        incoming.accept(number, options, greeting)
    }

    fn refuse(&self, incoming: Incoming, private_data: &[u8]) -> io::Result<()> {
        incoming.refuse(private_data)
    }

    fn connect(
        &self,
        outgoing: Outgoing,
        options: &PairOptions<'_, Rdma>,
        greeting: &Greeting<'_>,
    ) -> io::Result<Pair> {
        outgoing.connect(options, greeting)
    }

    fn disconnect(&self, pair: &Pair) -> io::Result<()> {
        pair.disconnect()
    }

    fn pair_number(&self, pair: &Pair) -> u32 {
        pair.number()
    }

    fn limits(&self, device: &Device) -> io::Result<Limits> {
        device.limits()
    }

    fn domain(&self, device: &Device) -> io::Result<Domain> {
        Domain::new(device)
    }

    unsafe fn register(&self, domain: &Domain, memory: *mut [u8], access: Access) -> io::Result<Region> {
        // SAFETY: the caller of `register` promises that the memory is valid until the region is dropped.
        unsafe { Region::new(domain, memory, access) }
    }

    fn key(&self, region: &Region) -> u32 {
        region.key()
    }

    fn while_still<R>(&self, act: impl FnOnce() -> R) -> R {
        act()
    }

    fn completions(&self, device: &Device, capacity: u32) -> io::Result<Completions> {
        Completions::new(device, capacity)
    }

    fn poll(&self, queue: &Completions, most: usize, into: &mut Vec<Completion>) -> io::Result<()> {
        queue.poll(most, into)
    }

    fn completions_descriptor<'a>(&self, queue: &'a Completions) -> BorrowedFd<'a> {
        queue.descriptor()
    }

    fn arm(&self, queue: &Completions) -> io::Result<()> {
        queue.arm()
    }

    fn take_notices(&self, queue: &Completions) -> io::Result<()> {
        queue.take_notices()
    }

    fn receives(&self, domain: &Domain, capacity: u32, parts: u32) -> io::Result<Receives> {
        Receives::new(domain, capacity, parts)
    }

    fn post(&self, pair: &Pair, work: Work<'_>) -> io::Result<()> {
        pair.post(work)
    }

    fn receive(&self, pair: &Pair, receive: Receive<'_>) -> io::Result<()> {
        pair.receive(receive)
    }

    fn receive_shared(&self, receives: &Receives, receive: Receive<'_>) -> io::Result<()> {
        receives.receive(receive)
    }
}

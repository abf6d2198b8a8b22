//! The interface of both stacks: rdma-core ([`Rdma`](crate::Rdma)) and the fabric in memory
//! ([`Fabric`](crate::double::Fabric)). Transports are generic code over it.
//!
//! ```text
//! accept side   channel ─► listen ─► Event::Asked ─► domain, completions ─► accept ─► Pair ─► Event::Established
//! connect side  channel ─► dial ─► Event::Routed ─► domain, completions ─► connect ─► Pair ─► Event::Established
//! data          post, receive ─► the card ─► completions ─► poll
//! ```
//!
//! Handles own what they are made of: a domain lives as long as the last region, receive queue or pair in it. Nothing
//! blocks: channels and completion queues have descriptors to wait on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::work::{Access, Completion, Receive, Work};

/// The number that a listener or connection has for its owner: events carry it.
pub type Number = u64;

/// The number that no listener and no connection may have.
pub const NO_NUMBER: Number = u64::MAX;

/// A stack of verbs and the connection manager beside it. A clone is the same stack.
pub trait Verbs: Clone + Send + Sync + 'static {
    /// A source of events of the connection manager.
    type Channel: Send;
    /// An address that peers can connect to. Dropping it ends the listening.
    type Listener: Send;
    /// A peer that waits for the answer to its connection request. Dropping it refuses the peer.
    type Incoming: Send;
    /// A connection of this side's own before it has a queue pair. Dropping it gives the attempt up.
    type Outgoing: Send;
    /// An RDMA device that is open.
    type Device: Clone + PartialEq + Send;
    /// A protection domain: keys count for the pairs of their domain only.
    type Domain: Clone + Send;
    /// Registered memory. Dropping it ends the registration.
    type Region: Send;
    /// A completion queue.
    type Completions: Clone + Send;
    /// A receive queue that several pairs share.
    type Receives: Clone + Send;
    /// A queue pair with its connection. Dropping it ends the connection. Completions of its work may still be in the
    /// completion queue then.
    type Pair: Send;

    /// A new channel without events.
    ///
    /// # Errors
    /// The system's, such as EMFILE or ENODEV: the kernel has no connection manager.
    fn channel(&self) -> io::Result<Self::Channel>;

    /// The descriptor that is readable while the channel has events.
    fn channel_descriptor<'a>(&self, channel: &'a Self::Channel) -> BorrowedFd<'a>;

    /// The oldest event, if there is one.
    ///
    /// # Errors
    /// The system's.
    fn next_event(&self, channel: &Self::Channel) -> io::Result<Option<Event<Self>>>;

    /// Listens: peers that ask come as [`Event::Asked`] with this number.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, or ENODEV: no RDMA device has the address.
    fn listen(&self, channel: &Self::Channel, address: SocketAddr, number: Number) -> io::Result<Self::Listener>;

    /// The address that the listener listens on: port 0 has become the port that was chosen.
    fn listens_at(&self, listener: &Self::Listener) -> io::Result<SocketAddr>;

    /// Begins a connection. [`Event::Routed`] or [`Event::Failed`] follows.
    ///
    /// # Errors
    /// ENODEV or ENETUNREACH: no RDMA device leads to the address.
    fn dial(&self, channel: &Self::Channel, to: SocketAddr, number: Number) -> io::Result<Self::Outgoing>;

    /// The device that the request came in on.
    ///
    /// # Errors
    /// ENODEV: the device has gone.
    fn asked_device(&self, incoming: &Self::Incoming) -> io::Result<Self::Device>;

    /// The device that leads to the peer, once [`Event::Routed`] has come.
    ///
    /// # Errors
    /// ENODEV: the way is not known yet, or the device has gone.
    fn routed_device(&self, outgoing: &Self::Outgoing) -> io::Result<Self::Device>;

    /// The address of this side that the peer has asked at: one of this machine's, also for a listener on all
    /// addresses.
    ///
    /// # Errors
    /// EINVAL if the address is of a family other than IPv4 and IPv6.
    fn asked_at(&self, incoming: &Self::Incoming) -> io::Result<SocketAddr>;

    /// Hands a request over to another channel, on which all events of the connection come from then on.
    ///
    /// # Errors
    /// The system's; the request is on its old channel then.
    fn adopt(&self, channel: &Self::Channel, incoming: &mut Self::Incoming) -> io::Result<()>;

    /// Makes the queue pair of a request and accepts it. The pair may receive at once, and may send once
    /// [`Event::Established`] has come.
    ///
    /// # Errors
    /// EINVAL for greetings or options that the device does not take, ENOMEM. The peer is refused.
    fn accept(
        &self,
        incoming: Self::Incoming,
        number: Number,
        options: &PairOptions<'_, Self>,
        greeting: &Greeting<'_>,
    ) -> io::Result<Self::Pair>;

    /// Refuses a request, with at most [`REFUSAL_BYTES`] of private data.
    ///
    /// # Errors
    /// EINVAL for too many private data; the system's. The peer is refused without private data.
    fn refuse(&self, incoming: Self::Incoming, private_data: &[u8]) -> io::Result<()>;

    /// Makes the queue pair and asks the peer. Receives may be posted at once. [`Event::Established`],
    /// [`Event::Refused`] or [`Event::Failed`] follows.
    ///
    /// # Errors
    /// EINVAL for greetings or options that the device does not take, ENOMEM.
    fn connect(
        &self,
        outgoing: Self::Outgoing,
        options: &PairOptions<'_, Self>,
        greeting: &Greeting<'_>,
    ) -> io::Result<Self::Pair>;

    /// Ends a connection: work of both sides is flushed, and both channels get [`Event::Disconnected`].
    ///
    /// # Errors
    /// EINVAL or ENOTCONN if the connection is not established.
    fn disconnect(&self, pair: &Self::Pair) -> io::Result<()>;

    /// The number that completions name the pair by.
    fn pair_number(&self, pair: &Self::Pair) -> u32;

    /// The limits of a device.
    ///
    /// # Errors
    /// The system's.
    fn limits(&self, device: &Self::Device) -> io::Result<Limits>;

    /// A new protection domain.
    ///
    /// # Errors
    /// The system's.
    fn domain(&self, device: &Self::Device) -> io::Result<Self::Domain>;

    /// Registers memory.
    ///
    /// # Errors
    /// ENOMEM: the device has no place, or the memory exceeds the limit of locked memory (`ulimit -l`). EINVAL: peers
    /// are to write what this side may not.
    ///
    /// # Safety
    /// The memory is valid for reads and writes until the region is dropped. Work that names it may read and write it
    /// at any time, and so may peers as far as `access` lets them: nobody holds a reference to it meanwhile that says
    /// otherwise.
    unsafe fn register(&self, domain: &Self::Domain, memory: *mut [u8], access: Access) -> io::Result<Self::Region>;

    /// The key of a region, for this side and for peers.
    fn key(&self, region: &Self::Region) -> u32;

    /// Runs `act` while the stack moves no data by means of this process. The card moves data at any time.
    fn while_still<R>(&self, act: impl FnOnce() -> R) -> R;

    /// A new completion queue with room for at least `capacity` completions.
    ///
    /// # Errors
    /// EINVAL beyond the device's limit; the system's.
    fn completions(&self, device: &Self::Device, capacity: u32) -> io::Result<Self::Completions>;

    /// Takes completions, oldest first, at most `most`, to the end of `into`.
    ///
    /// # Errors
    /// EIO: completions are lost because the queue was full, or the device has gone.
    fn poll(&self, queue: &Self::Completions, most: usize, into: &mut Vec<Completion>) -> io::Result<()>;

    /// The descriptor that becomes readable when a completion arrives after [`Verbs::arm`].
    fn completions_descriptor<'a>(&self, queue: &'a Self::Completions) -> BorrowedFd<'a>;

    /// Asks for one notice about the next completion. Completions that are there already give none: poll again after
    /// this call. A notice may come without a completion.
    ///
    /// # Errors
    /// The system's.
    fn arm(&self, queue: &Self::Completions) -> io::Result<()>;

    /// Takes the notices, so that the descriptor is not readable any more.
    ///
    /// # Errors
    /// The system's.
    fn take_notices(&self, queue: &Self::Completions) -> io::Result<()>;

    /// A new receive queue for several pairs, with `capacity` places of at most `parts` parts each.
    ///
    /// # Errors
    /// EINVAL beyond the device's limits; the system's.
    fn receives(&self, domain: &Self::Domain, capacity: u32, parts: u32) -> io::Result<Self::Receives>;

    /// Queues work.
    ///
    /// # Errors
    /// ENOMEM if the send queue has no place, EINVAL for more parts than the pair was made for or a pair that was never
    /// connected: then nothing is queued. EINVAL, too, for a READ of a pair whose greeting had [`Reads::issues`] 0:
    /// Soft-RoCE would keep it, and all later work, for ever. Work for a failed pair is flushed.
    fn post(&self, pair: &Self::Pair, work: Work<'_>) -> io::Result<()>;

    /// Queues a receive of one pair.
    ///
    /// # Errors
    /// As for [`Verbs::post`]; EINVAL if the pair shares its receive queue.
    fn receive(&self, pair: &Self::Pair, receive: Receive<'_>) -> io::Result<()>;

    /// Queues a receive for whichever pair needs it first.
    ///
    /// # Errors
    /// As for [`Verbs::post`].
    fn receive_shared(&self, receives: &Self::Receives, receive: Receive<'_>) -> io::Result<()>;
}

/// Private data that a connection request can carry, in bytes: what the connection manager of IP addresses leaves of
/// InfiniBand's 92.
pub const REQUEST_BYTES: usize = 56;
/// Private data that an acceptance can carry, in bytes.
pub const ACCEPTANCE_BYTES: usize = 196;
/// Private data that a refusal can carry, in bytes.
pub const REFUSAL_BYTES: usize = 148;

/// An event of the connection manager.
pub enum Event<V: Verbs> {
    /// A peer asks for a connection.
    Asked {
        /// The number of the listener.
        listener: Number,
        /// The request.
        incoming: V::Incoming,
        /// The peer's address, where it is known.
        peer: Option<SocketAddr>,
        /// The peer's private data. Fabrics may pad them with zeros.
        private_data: Vec<u8>,
        /// The most that this side may agree to.
        reads: Reads,
    },
    /// The way to the peer is known: the connection can get its queue pair.
    Routed {
        /// The number of the connection.
        number: Number,
    },
    /// Both sides are connected.
    Established {
        /// The number of the connection.
        number: Number,
        /// The private data of the acceptance, on the side that has asked; empty on the other side.
        private_data: Vec<u8>,
        /// The READs that the peer has agreed to, on the side that has asked; zeros on the other side.
        reads: Reads,
    },
    /// The peer has refused, or nobody listens there.
    Refused {
        /// The number of the connection.
        number: Number,
        /// The reason of the connection manager: [`NOBODY_LISTENS`], [`BY_THE_PEER`] or another of InfiniBand's.
        reason: i32,
        /// The private data of the refusal; empty, or zeros, if the peer has given none.
        private_data: Vec<u8>,
    },
    /// The connection has not come about.
    Failed {
        /// The number of the connection.
        number: Number,
        /// The step of the connection's beginning that failed.
        step: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// The connection has ended: all its work is flushed.
    Disconnected {
        /// The number of the connection.
        number: Number,
    },
    /// The device goes: its user drops the listener or connection and everything else on the device.
    Removed {
        /// The number of the listener or connection.
        number: Number,
    },
}

/// [`Event::Refused`]: no listener has the port (IB_CM_REJ_INVALID_SERVICE_ID).
pub const NOBODY_LISTENS: i32 = 8;
/// [`Event::Refused`]: the program at the peer has refused (IB_CM_REJ_CONSUMER_DEFINED).
pub const BY_THE_PEER: i32 = 28;

/// RDMA READs in flight on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// READs of the peer that this side serves at a time (responder resources).
    pub serves: u8,
    /// READs that this side has in flight at a time (initiator depth).
    pub issues: u8,
}

/// The words of one side when a connection begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greeting<'a> {
    /// Bytes for the peer.
    pub private_data: &'a [u8],
    /// The READs that this side wants, or agrees to.
    pub reads: Reads,
    /// Attempts of the peer, at most 6, to send again after this side had no receive; None for no bound. Each side
    /// learns its own bound from its peer, as rdma_connect(3) says.
    pub no_receive_tries: Option<u8>,
}

/// The properties of a new queue pair.
pub struct PairOptions<'a, V: Verbs> {
    /// The protection domain whose keys count for the pair.
    pub domain: &'a V::Domain,
    /// The queue for completions of both its queues.
    pub completions: &'a V::Completions,
    /// The receive queue that it shares; without one it has its own.
    pub shared: Option<&'a V::Receives>,
    /// Places in the send queue. A place is free again when the completion of its work, or of later work of the same
    /// queue, has been polled.
    pub sends: u32,
    /// Places in its own receive queue.
    pub receives: u32,
    /// The most parts of one work or receive.
    pub parts: u32,
}

/// The limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Completions of one queue.
    pub completions: u32,
    /// Places of one send or receive queue.
    pub queue_places: u32,
    /// Places of one shared receive queue; 0 if the device has none.
    pub shared_places: u32,
    /// Parts of one work.
    pub parts: u32,
    /// READs on one connection.
    pub reads: Reads,
    /// True for iWARP. There the peer must have the right to write the memory that a READ fetches into, because the
    /// response of a READ names its place as a WRITE does (RFC 5040); InfiniBand and RoCE do not ask for the right.
    pub is_iwarp: bool,
}

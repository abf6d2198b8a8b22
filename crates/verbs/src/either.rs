//! Either stack, chosen when the program starts: transports are code for [`Either`], so that they are compiled once and
//! tests run the code that ships. A call costs one branch, which always goes the same way.
//!
//! A handle of one stack is of no use to the other: a mixture is a fault of the caller, and panics.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::Rdma;
use crate::double::Fabric;
use crate::stack::{Event, Greeting, Limits, Number, PairOptions, Verbs};
use crate::work::{Access, Completion, Receive, Work};

/// One of the two stacks.
#[derive(Clone)]
pub enum Either {
    /// rdma-core.
    Rdma(Rdma),
    /// The fabric in memory.
    Fabric(Fabric),
}

/// Declares the handles: each is that of one of the two stacks.
macro_rules! handles {
    ($($(#[$attribute:meta])* $name:ident;)*) => {
        $(
            $(#[$attribute])*
            pub enum $name {
                /// The handle of rdma-core.
                Rdma(<Rdma as Verbs>::$name),
                /// The handle of the fabric in memory.
                Fabric(<Fabric as Verbs>::$name),
            }
        )*
    };
}

handles! {
    /// A source of events of the connection manager.
    Channel;
    /// An address that peers can connect to.
    Listener;
    /// A peer that waits for an answer.
    Incoming;
    /// A connection of this side's own before it has a queue pair.
    Outgoing;
    /// An RDMA device that is open.
    #[derive(Clone, PartialEq)]
    Device;
    /// A protection domain.
    #[derive(Clone)]
    Domain;
    /// Registered memory.
    Region;
    /// A completion queue.
    #[derive(Clone)]
    Completions;
    /// A receive queue that several pairs share.
    #[derive(Clone)]
    Receives;
    /// A queue pair with its connection.
    Pair;
}

/// Calls both stacks alike. The handles named after the stack are of that stack; `=> Name` makes the outcome, if there
/// is one, a handle that may be of either.
macro_rules! call {
    ($stack:expr, $($handle:ident: $kind:ident),*; $verbs:ident => $call:expr) => {
        match ($stack, $($handle),*) {
            (Either::Rdma($verbs), $($kind::Rdma($handle)),*) => $call,
            (Either::Fabric($verbs), $($kind::Fabric($handle)),*) => $call,
            #[allow(unreachable_patterns, reason = "calls without a handle mix nothing")]
            _ => panic!("a handle of the other stack"),
        }
    };
    ($stack:expr, $($handle:ident: $kind:ident),*; $verbs:ident => $call:expr => $made:ident) => {
        match ($stack, $($handle),*) {
            (Either::Rdma($verbs), $($kind::Rdma($handle)),*) => $call.map($made::Rdma),
            (Either::Fabric($verbs), $($kind::Fabric($handle)),*) => $call.map($made::Fabric),
            #[allow(unreachable_patterns, reason = "calls without a handle mix nothing")]
            _ => panic!("a handle of the other stack"),
        }
    };
}

/// The event of one stack as one of either.
fn event<V: Verbs>(event: Event<V>, incoming_of: impl FnOnce(V::Incoming) -> Incoming) -> Event<Either> {
    match event {
        Event::Asked { listener, incoming, peer, private_data, reads } => {
            Event::Asked { listener, incoming: incoming_of(incoming), peer, private_data, reads }
        }
        Event::Routed { number } => Event::Routed { number },
        Event::Established { number, private_data, reads } => Event::Established { number, private_data, reads },
        Event::Refused { number, reason, private_data } => Event::Refused { number, reason, private_data },
        Event::Failed { number, step, error } => Event::Failed { number, step, error },
        Event::Disconnected { number } => Event::Disconnected { number },
        Event::Removed { number } => Event::Removed { number },
    }
}

/// The options with the handles of one stack, for `$make`.
macro_rules! with_options {
    ($options:expr, $stack:ident, $make:expr) => {{
        let PairOptions { domain, completions, shared, sends, receives, parts } = $options;
        let (Domain::$stack(domain), Completions::$stack(completions)) = (domain, completions) else {
            panic!("a handle of the other stack")
        };
        let shared = shared.map(|shared| match shared {
            Receives::$stack(shared) => shared,
            _ => panic!("a handle of the other stack"),
        });
        let options = PairOptions { domain, completions, shared, sends: *sends, receives: *receives, parts: *parts };
        $make(&options).map(Pair::$stack)
    }};
}

impl Verbs for Either {
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
        call!(self,; verbs => verbs.channel() => Channel)
    }

    fn channel_descriptor<'a>(&self, channel: &'a Channel) -> BorrowedFd<'a> {
        call!(self, channel: Channel; verbs => verbs.channel_descriptor(channel))
    }

    fn next_event(&self, channel: &Channel) -> io::Result<Option<Event<Either>>> {
        match (self, channel) {
            (Either::Rdma(verbs), Channel::Rdma(channel)) => {
                Ok(verbs.next_event(channel)?.map(|it| event(it, Incoming::Rdma)))
            }
            (Either::Fabric(verbs), Channel::Fabric(channel)) => {
                Ok(verbs.next_event(channel)?.map(|it| event(it, Incoming::Fabric)))
            }
            _ => panic!("a handle of the other stack"),
        }
    }

    fn listen(&self, channel: &Channel, address: SocketAddr, number: Number) -> io::Result<Listener> {
        call!(self, channel: Channel; verbs => verbs.listen(channel, address, number) => Listener)
    }

    fn listens_at(&self, listener: &Listener) -> io::Result<SocketAddr> {
        call!(self, listener: Listener; verbs => verbs.listens_at(listener))
    }

    fn dial(&self, channel: &Channel, to: SocketAddr, number: Number) -> io::Result<Outgoing> {
        call!(self, channel: Channel; verbs => verbs.dial(channel, to, number) => Outgoing)
    }

    fn asked_device(&self, incoming: &Incoming) -> io::Result<Device> {
        call!(self, incoming: Incoming; verbs => verbs.asked_device(incoming) => Device)
    }

    fn asked_at(&self, incoming: &Incoming) -> io::Result<SocketAddr> {
        call!(self, incoming: Incoming; verbs => verbs.asked_at(incoming))
    }

    fn routed_device(&self, outgoing: &Outgoing) -> io::Result<Device> {
        call!(self, outgoing: Outgoing; verbs => verbs.routed_device(outgoing) => Device)
    }

    fn adopt(&self, channel: &Channel, incoming: &mut Incoming) -> io::Result<()> {
        call!(self, channel: Channel, incoming: Incoming; verbs => verbs.adopt(channel, incoming))
    }

    fn accept(
        &self,
        incoming: Incoming,
        number: Number,
        options: &PairOptions<'_, Either>,
        greeting: &Greeting<'_>,
    ) -> io::Result<Pair> {
        match (self, incoming) {
            (Either::Rdma(verbs), Incoming::Rdma(incoming)) => {
                with_options!(options, Rdma, |options: &_| verbs.accept(incoming, number, options, greeting))
            }
            (Either::Fabric(verbs), Incoming::Fabric(incoming)) => {
                with_options!(options, Fabric, |options: &_| verbs.accept(incoming, number, options, greeting))
            }
            _ => panic!("a handle of the other stack"),
        }
    }

    fn refuse(&self, incoming: Incoming, private_data: &[u8]) -> io::Result<()> {
        call!(self, incoming: Incoming; verbs => verbs.refuse(incoming, private_data))
    }

    fn connect(
        &self,
        outgoing: Outgoing,
        options: &PairOptions<'_, Either>,
        greeting: &Greeting<'_>,
    ) -> io::Result<Pair> {
        match (self, outgoing) {
            (Either::Rdma(verbs), Outgoing::Rdma(outgoing)) => {
                with_options!(options, Rdma, |options: &_| Verbs::connect(verbs, outgoing, options, greeting))
            }
            (Either::Fabric(verbs), Outgoing::Fabric(outgoing)) => {
                with_options!(options, Fabric, |options: &_| Verbs::connect(verbs, outgoing, options, greeting))
            }
            _ => panic!("a handle of the other stack"),
        }
    }

    fn disconnect(&self, pair: &Pair) -> io::Result<()> {
        call!(self, pair: Pair; verbs => verbs.disconnect(pair))
    }

    fn pair_number(&self, pair: &Pair) -> u32 {
        call!(self, pair: Pair; verbs => verbs.pair_number(pair))
    }

    fn limits(&self, device: &Device) -> io::Result<Limits> {
        call!(self, device: Device; verbs => verbs.limits(device))
    }

    fn domain(&self, device: &Device) -> io::Result<Domain> {
        call!(self, device: Device; verbs => Verbs::domain(verbs, device) => Domain)
    }

    unsafe fn register(&self, domain: &Domain, memory: *mut [u8], access: Access) -> io::Result<Region> {
        // SAFETY: the caller of `register` promises that the memory is valid until the region is dropped.
        call!(self, domain: Domain; verbs => unsafe { Verbs::register(verbs, domain, memory, access) } => Region)
    }

    fn key(&self, region: &Region) -> u32 {
        call!(self, region: Region; verbs => verbs.key(region))
    }

    fn while_still<R>(&self, act: impl FnOnce() -> R) -> R {
        match self {
            Either::Rdma(verbs) => verbs.while_still(act),
            Either::Fabric(verbs) => verbs.while_still(act),
        }
    }

    fn completions(&self, device: &Device, capacity: u32) -> io::Result<Completions> {
        call!(self, device: Device; verbs => verbs.completions(device, capacity) => Completions)
    }

    #[inline]
    fn poll(&self, queue: &Completions, most: usize, into: &mut Vec<Completion>) -> io::Result<()> {
        call!(self, queue: Completions; verbs => Verbs::poll(verbs, queue, most, into))
    }

    fn completions_descriptor<'a>(&self, queue: &'a Completions) -> BorrowedFd<'a> {
        call!(self, queue: Completions; verbs => verbs.completions_descriptor(queue))
    }

    fn arm(&self, queue: &Completions) -> io::Result<()> {
        call!(self, queue: Completions; verbs => verbs.arm(queue))
    }

    fn take_notices(&self, queue: &Completions) -> io::Result<()> {
        call!(self, queue: Completions; verbs => verbs.take_notices(queue))
    }

    fn receives(&self, domain: &Domain, capacity: u32, parts: u32) -> io::Result<Receives> {
        call!(self, domain: Domain; verbs => verbs.receives(domain, capacity, parts) => Receives)
    }

    #[inline]
    fn post(&self, pair: &Pair, work: Work<'_>) -> io::Result<()> {
        call!(self, pair: Pair; verbs => verbs.post(pair, work))
    }

    #[inline]
    fn receive(&self, pair: &Pair, receive: Receive<'_>) -> io::Result<()> {
        call!(self, pair: Pair; verbs => verbs.receive(pair, receive))
    }

    #[inline]
    fn receive_shared(&self, receives: &Receives, receive: Receive<'_>) -> io::Result<()> {
        call!(self, receives: Receives; verbs => verbs.receive_shared(receives, receive))
    }
}

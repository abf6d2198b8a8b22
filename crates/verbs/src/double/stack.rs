//! The fabric behind the interface of both stacks.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::counts::{Inside, polled};
use super::late::is_missed;
use super::manager::{End, Note, Notes, drain, raise, signal};
use super::{CompletionQueue, Domain, Fabric, Pair, Region, SharedReceives};
use crate::stack::{Event, Greeting, Limits, NO_NUMBER, Number, PairOptions, Reads, Verbs};
use crate::work::{Access, Completion, Part, Receive, Request, Work};

/// The limits of the adapter: modest ones, which a careless user meets.
const LIMITS: Limits = Limits {
    completions: 1 << 16,
    queue_places: 1 << 12,
    shared_places: 1 << 14,
    parts: 32,
    reads: Reads { serves: 16, issues: 16 },
    is_iwarp: false,
};

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// The one device of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapter(());

/// A channel of events.
pub struct Channel {
    index: usize,
    signal: Arc<File>,
}

/// An address that peers can connect to.
pub struct Listener {
    fabric: Fabric,
    address: SocketAddr,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.fabric.state().manager.listeners.remove(&self.address);
    }
}

/// A request of a peer.
pub struct Incoming {
    fabric: Fabric,
    request: u64,
    channel: usize,
    asked_at: SocketAddr,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Nothing happens to a request that has its answer.
        let mut state = self.fabric.state();
        let is_cut = state.is_cut;
        let _ = state.manager.refuse(self.request, &[], is_cut);
    }
}

/// A connection before it has a pair.
pub struct Outgoing {
    end: End,
    to: SocketAddr,
}

/// A completion queue with a descriptor for its notices.
#[derive(Clone)]
pub struct Completions {
    queue: CompletionQueue,
    signal: Arc<File>,
}

/// A queue pair with its connection.
pub struct Connection {
    fabric: Fabric,
    pair: Pair,
    parts: u32,
    may_read: bool,
}

impl Connection {
    /// The queue pair, for faults.
    pub fn pair(&self) -> Pair {
        self.pair
    }

    fn check(&self, parts: &[Part]) -> io::Result<()> {
        if parts.len() > self.parts as usize { Err(invalid()) } else { Ok(()) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.fabric.state().forget(self.pair);
    }
}

impl Fabric {
    fn new_pair(&self, options: &PairOptions<'_, Fabric>, greeting: &Greeting<'_>) -> io::Result<Connection> {
        let most = LIMITS.queue_places;
        if options.sends > most || options.receives > most || options.parts > LIMITS.parts {
            return Err(invalid());
        }
        if greeting.no_receive_tries.is_some_and(|tries| tries > 6) {
            return Err(invalid());
        }
        let pair = self.pair(super::PairOptions {
            domain: *options.domain,
            completions: options.completions.queue,
            shared: options.shared.copied(),
            sends: options.sends as usize,
            receives: options.receives as usize,
            no_receive_tries: None,
        });
        Ok(Connection { fabric: self.clone(), pair, parts: options.parts, may_read: greeting.reads.issues > 0 })
    }
}

impl Verbs for Fabric {
    type Channel = Channel;
    type Listener = Listener;
    type Incoming = Incoming;
    type Outgoing = Outgoing;
    type Device = Adapter;
    type Domain = Domain;
    type Region = Region;
    type Completions = Completions;
    type Receives = SharedReceives;
    type Pair = Connection;

    fn channel(&self) -> io::Result<Channel> {
        let signal = signal()?;
        let channels = &mut self.state().manager.channels;
        channels.push(Notes { waiting: Default::default(), signal: signal.clone() });
        Ok(Channel { index: channels.len() - 1, signal })
    }

    fn channel_descriptor<'a>(&self, channel: &'a Channel) -> BorrowedFd<'a> {
        channel.signal.as_fd()
    }

    fn next_event(&self, channel: &Channel) -> io::Result<Option<Event<Fabric>>> {
        let _inside = Inside::begin(|counts| counts.looks += 1);
        let mut state = self.state();
        let notes = &mut state.manager.channels[channel.index];
        let taken = notes.waiting.pop_front();
        drain(&notes.signal);
        if !notes.waiting.is_empty() {
            raise(&notes.signal);
        }
        Ok(taken.map(|(number, note)| match note {
            Note::Asked { request, peer, asked_at, private_data, reads } => {
                let incoming = Incoming { fabric: self.clone(), request, channel: channel.index, asked_at };
                Event::Asked { listener: number, incoming, peer: Some(peer), private_data, reads }
            }
            Note::Routed => Event::Routed { number },
            Note::Established { private_data, reads } => Event::Established { number, private_data, reads },
            Note::Refused { reason, private_data } => Event::Refused { number, reason, private_data },
            Note::Unreachable => {
                let error = io::Error::from_raw_os_error(libc::ETIMEDOUT);
                Event::Failed { number, step: "reaching the peer", error }
            }
            Note::Disconnected => Event::Disconnected { number },
            Note::Removed => Event::Removed { number },
        }))
    }

    fn listen(&self, channel: &Channel, address: SocketAddr, number: Number) -> io::Result<Listener> {
        debug_assert_ne!(number, NO_NUMBER);
        let end = End { channel: channel.index, number };
        let address = self.state().manager.listen(address, end)?;
        Ok(Listener { fabric: self.clone(), address })
    }

    fn listens_at(&self, listener: &Listener) -> io::Result<SocketAddr> {
        Ok(listener.address)
    }

    fn dial(&self, channel: &Channel, to: SocketAddr, number: Number) -> io::Result<Outgoing> {
        debug_assert_ne!(number, NO_NUMBER);
        let end = End { channel: channel.index, number };
        let mut state = self.state();
        // The address of a peer behind a cut cable is found out by nobody.
        let note = if state.is_cut { Note::Unreachable } else { Note::Routed };
        state.manager.tell(end, note);
        Ok(Outgoing { end, to })
    }

    fn asked_device(&self, _incoming: &Incoming) -> io::Result<Adapter> {
        Ok(Adapter(()))
    }

    fn asked_at(&self, incoming: &Incoming) -> io::Result<SocketAddr> {
        Ok(incoming.asked_at)
    }

    fn routed_device(&self, _outgoing: &Outgoing) -> io::Result<Adapter> {
        Ok(Adapter(()))
    }

    fn adopt(&self, channel: &Channel, incoming: &mut Incoming) -> io::Result<()> {
        incoming.channel = channel.index;
        Ok(())
    }

    fn accept(
        &self,
        incoming: Incoming,
        number: Number,
        options: &PairOptions<'_, Fabric>,
        greeting: &Greeting<'_>,
    ) -> io::Result<Connection> {
        debug_assert_ne!(number, NO_NUMBER);
        let connection = self.new_pair(options, greeting)?;
        let end = End { channel: incoming.channel, number };
        self.state().accept(incoming.request, connection.pair, end, greeting)?;
        Ok(connection)
    }

    fn refuse(&self, incoming: Incoming, private_data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let is_cut = state.is_cut;
        state.manager.refuse(incoming.request, private_data, is_cut)
    }

    fn connect(
        &self,
        outgoing: Outgoing,
        options: &PairOptions<'_, Fabric>,
        greeting: &Greeting<'_>,
    ) -> io::Result<Connection> {
        let connection = self.new_pair(options, greeting)?;
        let (pair, Outgoing { end, to }) = (connection.pair, outgoing);
        let mut state = self.state();
        let is_cut = state.is_cut;
        state.manager.ask(pair, end, to, greeting, is_cut)?;
        Ok(connection)
    }

    fn disconnect(&self, pair: &Connection) -> io::Result<()> {
        self.state().disconnect(pair.pair)
    }

    fn pair_number(&self, pair: &Connection) -> u32 {
        pair.pair.number()
    }

    fn limits(&self, _device: &Adapter) -> io::Result<Limits> {
        Ok(Limits { is_iwarp: self.state().is_iwarp, ..LIMITS })
    }

    fn domain(&self, _device: &Adapter) -> io::Result<Domain> {
        Ok(Fabric::domain(self))
    }

    unsafe fn register(&self, domain: &Domain, memory: *mut [u8], access: Access) -> io::Result<Region> {
        // SAFETY: the caller of `register` promises that the memory is valid until the region is dropped.
        unsafe { Fabric::register(self, *domain, memory, access) }
    }

    fn key(&self, region: &Region) -> u32 {
        region.key()
    }

    fn while_still<R>(&self, act: impl FnOnce() -> R) -> R {
        let _still = self.state();
        act()
    }

    fn completions(&self, _device: &Adapter, capacity: u32) -> io::Result<Completions> {
        if capacity == 0 || capacity > LIMITS.completions {
            return Err(invalid());
        }
        Ok(Completions { queue: self.completion_queue(capacity as usize), signal: signal()? })
    }

    fn poll(&self, queue: &Completions, most: usize, into: &mut Vec<Completion>) -> io::Result<()> {
        let _inside = Inside::begin(|counts| counts.polls += 1);
        if is_missed() {
            return Ok(());
        }
        let taken = Fabric::poll(self, queue.queue, most)?;
        polled(taken.len());
        into.extend(taken);
        Ok(())
    }

    fn completions_descriptor<'a>(&self, queue: &'a Completions) -> BorrowedFd<'a> {
        queue.signal.as_fd()
    }

    fn arm(&self, queue: &Completions) -> io::Result<()> {
        let _inside = Inside::begin(|counts| counts.arms += 1);
        self.state().queues[queue.queue.0].armed = Some(queue.signal.clone());
        Ok(())
    }

    fn take_notices(&self, queue: &Completions) -> io::Result<()> {
        let _inside = Inside::begin(|counts| counts.looks += 1);
        drain(&queue.signal);
        Ok(())
    }

    fn receives(&self, _domain: &Domain, capacity: u32, parts: u32) -> io::Result<SharedReceives> {
        if capacity > LIMITS.shared_places || parts > LIMITS.parts {
            return Err(invalid());
        }
        Ok(self.shared_receives(capacity as usize))
    }

    fn post(&self, pair: &Connection, work: Work<'_>) -> io::Result<()> {
        let signaled = u64::from(work.signaled);
        let _inside =
            Inside::begin(|counts| (counts.posts, counts.signaled) = (counts.posts + 1, counts.signaled + signaled));
        pair.check(work.parts)?;
        if matches!(work.request, Request::Read { .. }) && !pair.may_read {
            return Err(invalid());
        }
        self.post_send(pair.pair, work)
    }

    fn receive(&self, pair: &Connection, receive: Receive<'_>) -> io::Result<()> {
        let _inside = Inside::begin(|counts| counts.receives += 1);
        pair.check(receive.parts)?;
        self.post_receive(pair.pair, receive)
    }

    fn receive_shared(&self, receives: &SharedReceives, receive: Receive<'_>) -> io::Result<()> {
        let _inside = Inside::begin(|counts| counts.receives += 1);
        self.post_shared_receive(*receives, receive)
    }
}

//! A reactor: one thread, its connections, and the loop that drives them.
//!
//! Each turn: sleep until something happens, receive from every I/O queue that has something, then go round
//! devices, pacer and sockets until nothing moves. Responses that came up meanwhile leave together.
//!
//! New connections, guests and admin queues come to an epoll instance of their own, which the reactor serves in short
//! slices. While there is I/O it rests after each slice for many times its length: thousands of peers that ask for
//! anything but I/O take a small part of the processor, and no I/O waits for longer than a slice.

mod moving;
mod rdma;
mod settling;

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use pace::{Lookout, Step};
use rustix::event::{Timespec, epoll};
use slab::Slab;
use sys::clock::Clock;

use super::configuration::Configuration;
use super::connection::{Connection, Ended, Phase};
use super::controller::{Controller, IoQueue, Service};
use super::core::{Core, Origin};
use super::mailbox::{Message, Token};
use super::reservations::{self, Eviction};
use super::stats::{PacerDevice, PacerStats, ReactorReport, ReactorStats};
use super::transport::{Devices, Link, Tcp, Transport};
use super::{Error, Shared, admin, afloat, fabrics, fused, io, limited, queued, stragglers};
use crate::spec::Status;
use moving::Moves;
pub(super) use settling::Settling;

/// Bytes received in one call beyond those that go straight into a command's buffer.
const SCRATCH: usize = 64 << 10;
/// Rounds through devices, pacer and sockets before sockets are read again. More of them go on with what is held, for
/// milliseconds, while small commands wait unread in their sockets.
const ROUNDS: usize = 2;
/// The time between looks at time limits, and at memory that may be given back.
const TICK_NS: u64 = 500_000_000;

/// The time for which the reactor serves connections other than I/O queues at a stretch.
const SLICE_NS: u64 = 20_000;
/// While there is I/O, these connections rest for this multiple of the time that the reactor has served them.
const REST: u64 = 50;
/// The longest rest: a host that connects sends some thirty commands one after another.
const LONGEST_REST_NS: u64 = 4_000_000;

const WAKE: u64 = u64::MAX;
const RING: u64 = u64::MAX - 1;
/// The number of the epoll instance of all connections other than I/O queues, in the reactor's main epoll instance.
const OTHERS: u64 = u64::MAX - 2;
/// The number of everything of RDMA: the channel of the connection manager, and completion queues.
const RDMA: u64 = u64::MAX - 3;
/// The events of a connection that can go on: bytes have come, or the peer has ended the connection.
const WATCHED: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP);
/// Listeners have this bit and their number.
const LISTENER: u64 = 1 << 63;

struct Listener {
    address: SocketAddr,
    socket: TcpListener,
    /// True while descriptors are short: the reactor does not listen until the next tick.
    is_paused: bool,
}

pub(super) struct Reactor {
    core: Core,
    connections: Slab<Connection>,
    generation: u32,
    messages: mpsc::Receiver<Message>,
    wake: Arc<OwnedFd>,
    /// Watches I/O queues, and `others`.
    epoll: OwnedFd,
    /// Watches listeners and all connections other than I/O queues.
    others: OwnedFd,
    /// The time until which the connections in `others` rest; 0 while they do not.
    rest_ns: u64,
    /// The count of I/O commands completed when `others` were last served.
    completed_before: u64,
    listeners: HashMap<u64, Listener>,
    next_listener: u64,
    /// True if `epoll` watches the ring's descriptor already.
    watches_ring: bool,
    scratch: Vec<u8>,
    next_tick_ns: u64,
    next_look_ns: u64,
    last_completed: u64,
    drained: Option<mpsc::Sender<()>>,
    loops: u64,
    started_ns: u64,
    asleep_ns: u64,
    has_more: bool,
    /// Decides whether the reactor looks for the next command or sleeps.
    lookout: Lookout,
    stops: bool,
    /// The most guests that the reactor serves.
    most_guests: u32,
    /// True while a command waits for memory that data on the network hold.
    lacks_memory: bool,
    moves: Moves,
    /// RDMA; `None` until the target listens on it, or a host comes in on it.
    rdma: Option<Devices>,
}

impl Reactor {
    pub fn new(
        shared: Arc<Shared>,
        index: u32,
        configuration: Arc<Configuration>,
        messages: mpsc::Receiver<Message>,
        wake: Arc<OwnedFd>,
    ) -> Result<Reactor, Error> {
        let clock = Clock::calibrated();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| Error::system("epoll_create1", e.into()))?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)
            .map_err(|e| Error::system("epoll_ctl", e.into()))?;
        let others =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| Error::system("epoll_create1", e.into()))?;
        epoll::add(&epoll, &others, epoll::EventData::new_u64(OTHERS), epoll::EventFlags::IN)
            .map_err(|e| Error::system("epoll_ctl", e.into()))?;
        let lookout = Lookout::new(configuration.options.poll, sys::wake::cost_ns());
        let reactors = configuration.options.reactors as u32;
        // Where descriptors are scarce, guests leave half of them to hosts.
        let descriptors = u32::try_from(sys::file::raise_descriptor_limit(0) / 2).unwrap_or(u32::MAX);
        let most_guests = (configuration.options.limits.guests.min(descriptors) / reactors).max(1);
        let core = Core::new(shared, index, configuration, clock)?;
        Ok(Reactor {
            most_guests,
            lacks_memory: false,
            started_ns: core.now_ns,
            next_tick_ns: core.now_ns,
            next_look_ns: core.now_ns,
            core,
            connections: Slab::new(),
            generation: 0,
            messages,
            wake,
            epoll,
            others,
            rest_ns: 0,
            completed_before: 0,
            listeners: HashMap::new(),
            next_listener: 0,
            watches_ring: false,
            scratch: vec![0; SCRATCH],
            last_completed: 0,
            drained: None,
            loops: 0,
            asleep_ns: 0,
            has_more: false,
            lookout,
            stops: false,
            moves: Moves::default(),
            rdma: None,
        })
    }

    pub fn run(mut self) {
        let mut events = Vec::with_capacity(256);
        while !self.stops {
            self.wait(&mut events);
            self.loops += 1;
            for event in events.drain(..) {
                self.event(event);
            }
            self.serve_rdma();
            self.read_on();
            self.go_round();
            self.go_on_leaving();
            self.report_load();
            if self.core.now_ns >= self.next_look_ns {
                self.check_for_stuck();
            }
            if self.core.now_ns >= self.next_tick_ns {
                self.tick();
            }
        }
        for index in self.all() {
            self.close(index);
        }
        self.end_rdma();
    }

    fn all(&self) -> Vec<usize> {
        self.connections.iter().map(|(index, _)| index).collect()
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        let rest_ns = if self.rest_ns > 0 { self.rest_ns } else { u64::MAX };
        let look_ns = if self.lacks_memory { self.next_look_ns } else { u64::MAX };
        let stay_ns = self.moves.wake_ns().unwrap_or(u64::MAX);
        let of_devices_ns = self.core.wake_ns().unwrap_or(u64::MAX);
        let wake_ns = of_devices_ns.min(self.next_tick_ns).min(look_ns).min(rest_ns).min(stay_ns);
        let began_ns = self.core.now_ns;
        let mut has_more = self.has_more || !self.core.unread.is_empty() || self.poll_rdma();
        let step = if has_more {
            self.lookout.found(self.core.now_ns);
            Step::Look
        } else {
            self.lookout.found_nothing(self.core.now_ns)
        };
        if step == Step::Yield {
            std::thread::yield_now();
            self.core.tick();
            self.lookout.has_yielded(self.core.now_ns);
        }
        if step == Step::Sleep && self.arm_rdma() {
            has_more = true;
            self.lookout.found(self.core.now_ns);
        }
        let sleeps = step == Step::Sleep && !has_more;
        let timeout_ns = if sleeps { wake_ns.saturating_sub(self.core.now_ns) } else { 0 };
        let before_ns = self.core.now_ns;
        let timeout =
            Timespec { tv_sec: (timeout_ns / 1_000_000_000) as i64, tv_nsec: (timeout_ns % 1_000_000_000) as i64 };
        // EINTR: the loop comes back.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout));
        self.core.tick();
        if !events.is_empty() {
            self.lookout.found(self.core.now_ns);
        }
        if timeout_ns > 0 {
            self.asleep_ns += self.core.now_ns - before_ns;
        }
        if timeout_ns > 0 || events.is_empty() && !has_more {
            self.moves.idle_ns += self.core.now_ns - began_ns;
        }
        if self.rest_ns > 0 && self.core.now_ns >= self.rest_ns {
            self.rest_ns = 0;
            self.watch_others(epoll::EventFlags::IN);
        }
    }

    fn watch_others(&self, flags: epoll::EventFlags) {
        let _ = epoll::modify(&self.epoll, &self.others, epoll::EventData::new_u64(OTHERS), flags);
    }

    /// Serves listeners and connections other than I/O queues for a slice, in turn.
    fn serve_others(&mut self) {
        let (began_ns, mut event) = (self.core.now_ns, Vec::with_capacity(1));
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        while self.core.now_ns < began_ns + SLICE_NS {
            // One at a time: the kernel puts those that have more to the end of its list.
            let _ = epoll::wait(&self.others, rustix::buffer::spare_capacity(&mut event), Some(&now));
            let Some(event) = event.pop() else { break };
            match event.data.u64() {
                data if data & LISTENER != 0 => self.accept(data),
                data => self.serve(data as u32 as usize, (data >> 32) as u32, event.flags),
            }
            self.core.tick();
        }
        if self.core.completed_io != std::mem::replace(&mut self.completed_before, self.core.completed_io) {
            let rest_ns = (REST * (self.core.now_ns - began_ns)).min(LONGEST_REST_NS);
            self.rest_ns = self.core.now_ns + rest_ns;
            self.watch_others(epoll::EventFlags::empty());
        }
    }

    fn event(&mut self, event: epoll::Event) {
        match event.data.u64() {
            WAKE => {
                let mut count = [0; 8];
                let _ = rustix::io::read(&self.wake, &mut count);
                while let Ok(message) = self.messages.try_recv() {
                    self.message(message);
                }
            }
            // Every round reaps the ring.
            RING => {
                if let Some(ring) = &mut *self.core.local.uring.borrow_mut() {
                    ring.woken();
                }
            }
            OTHERS => self.serve_others(),
            RDMA => self.rdma_events(),
            data => self.serve(data as u32 as usize, (data >> 32) as u32, event.flags),
        }
    }

    fn serve(&mut self, index: usize, generation: u32, flags: epoll::EventFlags) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.token.generation != generation {
            return; // of a connection that an earlier event of this batch has closed
        }
        if flags.contains(epoll::EventFlags::OUT) {
            connection.mark_dirty(&mut self.core);
        }
        let over = epoll::EventFlags::HUP | epoll::EventFlags::ERR | epoll::EventFlags::RDHUP;
        if flags.intersects(over) && connection.is_stalled() {
            // The host has given up the commands that are still unread: it may have sent them again elsewhere, and then
            // newer ones, which these must not come after.
            return self.close(index);
        }
        if flags.intersects(over | epoll::EventFlags::IN) {
            let received = connection.receive(&mut self.core, &mut self.scratch);
            self.judge(index, received);
        }
    }

    /// Reads from connections whose bytes wait in the process.
    fn read_on(&mut self) {
        for index in std::mem::take(&mut self.core.unread) {
            if let Some(connection) = self.connections.get_mut(index as usize).filter(|it| it.has_unread()) {
                let received = connection.receive(&mut self.core, &mut self.scratch);
                self.judge(index as usize, received);
            }
        }
    }

    /// Ends the connection if `outcome` says so; otherwise watches its socket for the events that it needs next.
    fn judge(&mut self, index: usize, outcome: Result<(), Ended>) {
        self.count_guest(index);
        match outcome {
            Ok(()) => {
                if self.connections.get(index).is_some_and(Connection::is_closing) {
                    // The connection has hung up: its place in the controller is free for another connection, whatever
                    // its host still does.
                    self.leave_controller(index);
                }
                self.watch(index);
            }
            Err(Ended::Gone) => self.close(index),
            Err(Ended::Unsecured(why)) => {
                if let Some(connection) = self.connections.get(index) {
                    self.core.shared.warn_of_tls(connection.peer, connection.listener.address, &why);
                }
                self.close(index);
            }
            Err(Ended::Breach(breach)) => {
                self.core.protocol_errors += 1;
                if let Some(connection) = self.connections.get(index) {
                    let from = connection.peer.map(|peer| format!(" at {}", peer.ip())).unwrap_or_default();
                    self.core.shared.warn(format!("the queue of a host{from} ends: {breach}"));
                }
                self.close(index);
            }
            Err(Ended::Fault(fault)) => {
                self.core.protocol_errors += 1;

                let Some(connection) = self.connections.get_mut(index) else { return };
                if connection.is_closing() {
                    return self.close(index);
                }
                connection.terminate(&mut self.core, &fault);
                // The controller cannot go on without an admin queue, nor believe a queue that breaks the protocol.
                self.leave_controller(index);
            }
        }
    }

    /// Tells the kernel which events of a connection matter now.
    fn watch(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Link::Tcp(tcp) = &connection.transport else { return };
        let watched = (!connection.is_stalled(), tcp.wants_write, connection.is_io_queue());
        let before = std::mem::replace(&mut connection.watched, watched);
        if watched == before {
            return;
        }
        if watched.0 && !before.0 {
            connection.come_back(&mut self.core);
        }
        let mut flags = WATCHED;
        flags.set(epoll::EventFlags::IN, watched.0);
        flags.set(epoll::EventFlags::OUT, watched.1);
        let (data, stream) = (data_of(connection.token), connection.transport.tcp().descriptor());
        let place = |is_io_queue: bool| if is_io_queue { &self.epoll } else { &self.others };
        if watched.2 == before.2 {
            let _ = epoll::modify(place(watched.2), stream, data, flags);
            return;
        }
        let _ = epoll::delete(place(before.2), stream);
        // Without memory for the entry the kernel would never report the connection.
        if epoll::add(place(watched.2), stream, data, flags).is_err() {
            self.close(index);
        }
    }

    /// Looks for connections that are stuck. While the pacer holds anything, it has the reactor awake often enough.
    fn check_for_stuck(&mut self) {
        self.next_look_ns = self.core.now_ns + afloat::LOOK_NS;
        if self.core.afloat_bytes > 0 || self.lacks_memory {
            let mut lacks_memory = false;
            for (_, connection) in &mut self.connections {
                afloat::check_if_stuck(connection, &mut self.core);
                lacks_memory |= afloat::wants_memory(connection);
            }
            self.lacks_memory = lacks_memory;
            let hanging = |(index, connection)| Some((afloat::hangs_since(connection, &self.core)?, index));
            if lacks_memory && let Some((_, longest)) = self.connections.iter().filter_map(hanging).min() {
                self.close(longest);
            }
        }
    }

    /// Goes through devices, pacer and sockets, until nothing moves or the limit of rounds is reached.
    fn go_round(&mut self) {
        self.has_more = true;
        for _ in 0..ROUNDS {
            self.core.tick();
            self.core.poll_devices();
            let mut moved = self.land();
            moved |= self.let_waiting_go();
            moved |= self.let_limited_go();
            moved |= self.release();
            moved |= self.land();
            moved |= self.send();
            moved |= self.retry();
            if !moved {
                self.has_more = false;
                break;
            }
        }
        self.core.in_flight_peak = self.core.in_flight_peak.max(self.core.pacer.stats().total.in_flight_bytes);
        if !self.watches_ring
            && let Some(ring) = &*self.core.local.uring.borrow()
        {
            let data = epoll::EventData::new_u64(RING);
            self.watches_ring = epoll::add(&self.epoll, ring.fd(), data, epoll::EventFlags::IN).is_ok();
        }
        if let Some(ring) = &mut *self.core.local.uring.borrow_mut() {
            ring.submit();
        }
    }

    /// Hands the ops that have ended back to their commands. Returns true if it found some.
    fn land(&mut self) -> bool {
        let mut moved = false;
        while !self.core.done.is_empty() {
            moved = true;
            // The next step of a command may end at once: its end waits for the next round.
            let mut batch = std::mem::take(&mut self.core.done);
            for done in batch.drain(..) {
                let flight = self.core.landed(&done);
                let connection = self.connections.get_mut(flight.connection.index as usize);
                match connection
                    .filter(|connection| connection.token == flight.connection && connection.awaits(flight.slot))
                {
                    Some(connection) => io::device_done(connection, &mut self.core, flight.slot, done),
                    None => {
                        self.core.complete(flight.op);
                        if let Some(buffer) = done.buffer {
                            self.core.pool.give(buffer);
                        }
                    }
                }
            }
            if self.core.done.is_empty() {
                self.core.done = batch; // its memory
            }
        }
        moved
    }

    /// Goes on with commands that no straggler holds back any more. Returns true if it found some.
    fn let_waiting_go(&mut self) -> bool {
        let gone_on = self.core.waiting.look(self.core.now_ns, &self.core.shared.stragglers);
        let mut moved = false;
        for (token, slot) in gone_on {
            match self.connections.get_mut(token.index as usize).filter(|it| it.token == token) {
                // The connection waits for another command of its own, perhaps for one that has just gone on.
                Some(connection) if connection.is_stalled() => stragglers::wait(connection, &mut self.core, slot),
                Some(connection) => {
                    moved = true;
                    stragglers::let_go(&mut connection.slots[slot]);
                    io::admit(connection, &mut self.core, slot);
                }
                None => {}
            }
        }
        moved
    }

    /// Goes on with commands that the limits of their devices let go. Returns true if it found some.
    fn let_limited_go(&mut self) -> bool {
        let mut moved = false;
        for channel in 0..self.core.channels.capacity() {
            loop {
                // A connection that is stalled waits for another command of its own.
                let connections = &self.connections;
                let can_go = |token: Token| match connections.get(token.index as usize) {
                    Some(connection) if connection.token == token => !connection.is_stalled(),
                    _ => true,
                };
                let Some((token, slot)) = limited::next(&mut self.core, channel, can_go) else { break };
                moved = true;
                if let Some(connection) = self.connections.get_mut(token.index as usize).filter(|it| it.token == token)
                {
                    limited::let_go(&mut connection.slots[slot]);
                    io::admit(connection, &mut self.core, slot);
                }
            }
        }
        moved
    }

    /// Starts the held commands whose turn has come. Returns true if it found some.
    fn release(&mut self) -> bool {
        let mut moved = false;
        while let Some(released) = self.core.pacer.poll(self.core.now_ns) {
            moved = true;
            let (index, slot) = ((released.cookie >> 16) as usize, released.cookie as u16);
            match self.connections.get_mut(index) {
                Some(connection) => io::released(connection, &mut self.core, slot),
                None => self.core.complete(released.id),
            }
        }
        moved
    }

    fn send(&mut self) -> bool {
        let mut moved = false;
        let mut dirty = std::mem::take(&mut self.core.dirty);
        for index in dirty.drain(..) {
            let Some(connection) = self.connections.get_mut(index as usize) else { continue };
            if !connection.is_dirty {
                continue;
            }
            let before = connection.transport.unsent_bytes();
            let sent = connection.send(&mut self.core);
            moved |= connection.transport.unsent_bytes() < before;
            let sent = sent.and_then(|()| connection.resume(&mut self.core));
            queued::count(connection, &mut self.core);
            self.judge(index as usize, sent);
        }
        if self.core.dirty.is_empty() {
            self.core.dirty = dirty;
        }
        moved
    }

    fn retry(&mut self) -> bool {
        let mut moved = false;
        for index in std::mem::take(&mut self.core.stalled) {
            let Some(connection) = self.connections.get_mut(index as usize) else { continue };
            let gone_on = connection.retry(&mut self.core);
            moved |= !connection.is_stalled();
            self.judge(index as usize, gone_on);
        }
        moved
    }

    /// Accepts one connection; the listener is reported again while there are more.
    fn accept(&mut self, data: u64) {
        let Some(listener) = self.listeners.get_mut(&data) else { return };
        match listener.socket.accept() {
            Ok((stream, _)) => {
                let address = listener.address;
                let shared = Arc::clone(&self.core.shared);
                let place = shared.place_connection().or_else(|| {
                    self.evict_guests();
                    shared.place_connection()
                });
                match place {
                    None => drop(stream), // the limit: closed at once
                    Some(reactor) if reactor == self.core.reactor => self.take(stream, address),
                    Some(reactor) => shared.send(reactor, Message::Serve(stream, address)),
                }
            }
            // Another event took it, a signal came, or the peer was gone before.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) => {}
            // Descriptors have run out: closing a guest frees one.
            Err(_) if self.evict_guests() > 0 => {}
            Err(_) => {
                // The kernel would report the listener again and again: the reactor looks again at the next tick.
                if let Some(listener) = self.listeners.get_mut(&data) {
                    listener.is_paused = true;
                    let _ = epoll::delete(&self.others, &listener.socket);
                }
            }
        }
    }

    /// Counts the connection as a guest, or no longer as one.
    fn count_guest(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let is_guest = connection.is_guest();
        if std::mem::replace(&mut connection.counts_as_guest, is_guest) != is_guest {
            self.core.guests = if is_guest { self.core.guests + 1 } else { self.core.guests - 1 };
        }
    }

    /// Makes room for a guest: closes some of those that came first from the addresses that most guests come from. A
    /// host that opens connections by the thousand loses them to newcomers; no newcomer loses its only connection to
    /// such a host. Returns the number of connections closed.
    fn evict_guests(&mut self) -> usize {
        let guests = self.connections.iter().filter(|(_, connection)| connection.counts_as_guest);
        let guests: Vec<_> = guests.map(|(index, it)| (it.source(), it.opened_ns, index)).collect();
        let mut crowds: HashMap<IpAddr, usize> = HashMap::new();
        guests.iter().for_each(|(source, ..)| *crowds.entry(*source).or_default() += 1);
        let Some((&most, _)) = crowds.iter().max_by_key(|(_, count)| **count) else { return 0 };
        let mut crowd: Vec<_> = guests.into_iter().filter(|(source, ..)| *source == most).collect();
        crowd.sort_unstable_by_key(|(_, opened_ns, _)| *opened_ns);
        // Several at once: the search is not made for every newcomer of a flood.
        crowd.truncate((crowd.len() / 16).max(1));
        crowd.iter().for_each(|(.., index)| self.close(*index));
        crowd.len()
    }

    /// The name of the next connection.
    fn vacant_token(&mut self) -> Token {
        self.generation = self.generation.wrapping_add(1) & 0x7fff_ffff;
        Token { reactor: self.core.reactor, index: self.connections.vacant_key() as u32, generation: self.generation }
    }

    fn take(&mut self, stream: TcpStream, listener: SocketAddr) {
        let listener = listener.into();
        if self.core.guests >= self.most_guests {
            self.evict_guests();
        }
        let token = self.vacant_token();
        let connection = match self.core.draining {
            true => None,
            false => Tcp::accept(stream, listener, &self.core)
                .map(|(tcp, peer)| Connection::new(token, Link::Tcp(tcp), peer, listener, &self.core))
                .ok(),
        };
        let watched = connection.filter(|connection| {
            let stream = connection.transport.tcp().descriptor();
            epoll::add(&self.others, stream, data_of(token), WATCHED).is_ok()
        });
        match watched {
            Some(mut connection) => {
                connection.counts_as_guest = true;
                self.core.guests += 1;
                self.connections.insert(connection);
            }
            None => self.core.shared.connection_closed(self.core.reactor, false),
        }
    }

    /// Ends a connection at once.
    fn close(&mut self, index: usize) {
        self.close_on(index, true);
    }

    /// Ends a connection at once. `is_there` is false if its device has gone.
    fn close_on(&mut self, index: usize, is_there: bool) {
        if !self.connections.contains(index) {
            return;
        }
        self.leave_controller(index);
        let mut connection = self.connections.remove(index);
        connection.forget(&mut self.core);
        queued::forget(&mut connection, &mut self.core);
        self.core.guests -= u32::from(connection.counts_as_guest);
        self.core.shared.connection_closed(self.core.reactor, connection.counts_as_admin);
        if let (Link::Rdma(rdma), Some(devices)) = (connection.transport, &mut self.rdma) {
            devices.retire(&mut self.core, rdma, index as u32, !is_there);
        }
    }

    /// Takes the queue out of its controller. If the queue is the admin queue, the controller goes, and all its queues.
    fn leave_controller(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(controller) = connection.controller.take() else { return };
        let (token, queue_id) = (connection.token, connection.queue_id);
        let (tenant, is_listed, listener) = (connection.tenant, connection.is_listed, connection.listener);
        let shared = Arc::clone(&self.core.shared);
        let mut controllers = shared.controllers();
        if std::mem::take(&mut connection.counts_as_host) {
            controllers.host_disconnects(tenant, is_listed);
        }
        let mut state = controller.lock();
        if queue_id != 0 {
            if state.queues.get(&queue_id).is_some_and(|queue| queue.token == token) {
                state.queues.remove(&queue_id);
            }
            self.core.leave_flights(token, &Origin { controller: Arc::clone(&controller), listener });
            controller.ends();
            return;
        }
        controllers.remove(&controller);
        controller.enabled.store(false, std::sync::atomic::Ordering::Release);
        for IoQueue { token: queue, .. } in std::mem::take(&mut state.queues).into_values() {
            shared.send(queue.reactor, Message::Close(queue));
        }
    }

    fn by_token(&mut self, token: Token) -> Option<&mut Connection> {
        self.connections.get_mut(token.index as usize).filter(|connection| connection.token == token)
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Configure(configuration, done) => {
                let _ = done.send(self.configure(configuration));
            }
            Message::Listen(address, socket, done) => {
                let data = LISTENER | self.next_listener;
                self.next_listener += 1;
                let _ = epoll::add(&self.others, &socket, epoll::EventData::new_u64(data), epoll::EventFlags::IN);
                self.listeners.insert(data, Listener { address, socket, is_paused: false });
                let _ = done.send(());
            }
            Message::ListenRdma(address, done) => {
                let _ = done.send(self.listen_rdma(address));
            }
            Message::ServeRdma(asked) => self.take_asked(*asked),
            Message::Unlisten(portal, done) => {
                self.listeners.retain(|_, listener| portal != listener.address.into());
                if let Some(devices) = &mut self.rdma {
                    devices.unlisten(portal);
                }
                let _ = done.send(());
            }
            Message::Serve(stream, listener) => self.take(stream, listener),
            Message::Leave(token, to) => self.leave(token, to),
            Message::Arrive(moving) => self.arrive(*moving),
            Message::Close(token) => {
                if self.by_token(token).is_some() {
                    self.close(token.index as usize);
                }
            }
            Message::Disconnect(subsystem, host, done) => {
                let is_its = |controller: &Controller| {
                    controller.service == Service::Subsystem(subsystem) && controller.host_nqn.as_str() == &*host
                };
                for index in self.all() {
                    if self.connections[index].controller.as_deref().is_some_and(is_its) {
                        self.close(index);
                    }
                }
                let _ = done.send(());
            }
            Message::Settle(settling) => self.settle(&settling),
            Message::Settled { queue, cid, result } => self.settled(queue, cid, result),
            Message::Events(token) => {
                let index = token.index as usize;
                if let Some(connection) = self.connections.get_mut(index).filter(|it| it.token == token) {
                    admin::deliver_events(connection, &mut self.core);
                }
            }
            Message::Abort { queue, cid, asked_by, asked_cid } => {
                let index = queue.index as usize;
                let connection = self.connections.get_mut(index).filter(|connection| connection.token == queue);
                let aborted = connection.is_some_and(|connection| io::abort(connection, &mut self.core, cid));
                self.core.shared.send(asked_by.reactor, Message::Aborted { asked_by, asked_cid, aborted });
            }
            Message::Aborted { asked_by, asked_cid, aborted } => {
                let index = asked_by.index as usize;
                if let Some(connection) = self.connections.get_mut(index).filter(|it| it.token == asked_by) {
                    connection.aborts -= 1;
                    connection.respond(&mut self.core, asked_cid, Status::SUCCESS, u64::from(!aborted));
                }
            }
            Message::Examined(examination) => {
                let (index, queue) = (examination.queue.index as usize, examination.queue);
                if let Some(connection) = self.connections.get_mut(index).filter(|it| it.token == queue) {
                    fabrics::examined(connection, &mut self.core, examination);
                }
            }
            Message::Reserved(answer) => {
                let (index, queue) = (answer.queue.index as usize, answer.queue);
                if let Some(connection) = self.connections.get_mut(index).filter(|it| it.token == queue) {
                    reservations::answered(connection, &mut self.core, answer);
                }
            }
            Message::Evict(eviction) => self.evict(eviction),
            Message::Managed(answer) => {
                let (index, queue) = (answer.queue.index as usize, answer.queue);
                if let Some(connection) = self.connections.get_mut(index).filter(|it| it.token == queue) {
                    connection.respond(&mut self.core, answer.cid, answer.status, 0);
                }
            }
            Message::Depart(leaving, left) => {
                let connections = &self.connections;
                let of = |token: Token| connections.get(token.index as usize).filter(|it| it.token == token);
                let origin =
                    |it: &Connection| Some(Origin { controller: it.controller.clone()?, listener: it.listener });
                self.core.await_departure(&leaving, left, |token| of(token).and_then(origin));
            }
            Message::Fence(fence) => self.core.await_changes(fence),
            Message::Fenced { queue, slot, hold } => {
                let index = queue.index as usize;
                if let Some(connection) = self.connections.get_mut(index).filter(|it| it.token == queue) {
                    fused::fenced(connection, &mut self.core, slot, hold);
                }
            }
            Message::GateOpened => {
                for (token, slot) in std::mem::take(&mut self.core.gated) {
                    let index = token.index as usize;
                    if let Some(connection) = self.connections.get_mut(index).filter(|it| it.token == token) {
                        fused::gate_opened(connection, &mut self.core, slot);
                    }
                }
            }
            Message::ChangeStats(devices, change, done) => {
                for (_, open) in &mut self.core.channels {
                    if devices.contains(&open.uid) {
                        open.stats.change(change);
                    }
                }
                let _ = done.send(());
            }
            Message::Report(to) => {
                let _ = to.send(self.report());
            }
            Message::Drain(done) => {
                self.core.draining = true;
                self.listeners.clear();
                if let Some(devices) = &mut self.rdma {
                    devices.unlisten_all();
                }
                self.drained = Some(done);
                self.next_tick_ns = self.core.now_ns;
            }
            Message::Stop => self.stops = true,
        }
    }

    /// Aborts the commands that an eviction names.
    fn evict(&mut self, eviction: Arc<Eviction>) {
        let mut evicted = HashSet::new();
        for (_, connection) in &mut self.connections {
            if connection.controller.as_ref().is_some_and(|controller| eviction.names(controller)) {
                evicted.insert(connection.token);
                io::evict(connection, &mut self.core, eviction.nsid);
            }
        }
        self.core.await_evicted(eviction, &evicted);
    }

    fn configure(&mut self, configuration: Arc<Configuration>) -> Result<(), Error> {
        if !Arc::ptr_eq(&configuration.options, &self.core.configuration.options) {
            if !self.connections.is_empty() {
                let busy = "hosts are connected: the transport is set up before they connect";
                return Err(Error::new(super::ErrorKind::Busy, busy));
            }
            if let Some(devices) = &mut self.rdma {
                devices.end_retiring(&mut self.core);
            }
            self.core.set_options(&configuration.options)?;
        }
        let outcome = self.core.configure(configuration);
        for index in self.all() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            let listener = connection.listener;
            let Some(controller) = &connection.controller else {
                if !self.core.configuration.listens(listener) {
                    self.close(index);
                }
                continue;
            };
            connection.subsystem = self.core.subsystem(controller.service, &controller.host_nqn);
            connection.ana = self.core.ana(controller).cloned();
            if !self.core.configuration.reaches(controller.service, listener) {
                self.close(index); // the subsystem is gone, or its listener
            } else {
                io::fail_orphans(connection, &mut self.core);
            }
        }
        outcome
    }

    /// Looks at time limits, at memory that can be given back, and at the end of a drain.
    fn tick(&mut self) {
        let now = self.core.now_ns;
        self.next_tick_ns = now + if self.core.draining { TICK_NS / 100 } else { TICK_NS };
        let limits = self.core.configuration.options.limits;
        let (handshake, proof) = (limits.handshake.as_nanos() as u64, limits.proof.as_nanos() as u64);
        let busy_ns = now.saturating_sub(self.started_ns + self.asleep_ns);
        self.core.publish(busy_ns, self.connections.len());
        self.core.publish_work();
        let is_quiet = self.core.completed_io == self.last_completed;
        self.last_completed = self.core.completed_io;
        for index in self.all() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            let over = match connection.phase {
                Phase::Handshake | Phase::Connect => {
                    self.core.draining || now.saturating_sub(connection.opened_ns) > handshake
                }
                Phase::Closing { until_ns } => now > until_ns,
                Phase::Ready => {
                    let is_expired = connection.is_admin()
                        && connection.controller.as_ref().is_some_and(|controller| controller.is_expired(now));
                    let is_unproven = connection.exchange.is_some() && now.saturating_sub(connection.opened_ns) > proof;
                    is_expired
                        || is_unproven
                        || connection.is_too_slow(now, &limits)
                        || (self.core.draining && connection.is_idle())
                }
            };
            if self.core.draining {
                fused::give_up(connection, &mut self.core);
            }
            if !over {
                io::give_back(connection, &mut self.core, limits.hold.as_nanos() as u64);
            }
            if over {
                self.close(index);
            } else {
                connection.shrink();
                queued::count(connection, &mut self.core);
            }
        }
        if let Some(devices) = &mut self.rdma {
            devices.drop_unused(&mut self.core, &self.epoll);
        }
        if is_quiet {
            self.core.pool.trim();
        }
        for (data, listener) in &mut self.listeners {
            if std::mem::take(&mut listener.is_paused) {
                let data = epoll::EventData::new_u64(*data);
                let _ = epoll::add(&self.others, &listener.socket, data, epoll::EventFlags::IN);
            }
        }
        let is_over = self.connections.is_empty() && self.core.flights.is_empty() && self.has_retired();
        if self.core.draining && is_over && self.core.flushed() {
            self.drained.take().into_iter().for_each(|done| {
                let _ = done.send(());
            });
        }
    }

    fn report(&mut self) -> ReactorReport {
        let core = &self.core;
        let stats = core.pacer.stats();
        let total = &stats.total;
        let queues = |is_admin: bool| {
            let connected = self.connections.iter().filter(|(_, connection)| connection.controller.is_some());
            connected.filter(|(_, connection)| connection.is_admin() == is_admin).count() as u32
        };
        let pacer = PacerStats {
            window_bytes: core.window_bytes(),
            budget_bytes: core.share.pool_bytes.unwrap_or(u64::MAX),
            period_ns: core.pacer.period_ns(),
            admitted: total.admitted,
            held: total.held,
            held_now: total.held_now,
            held_bytes_now: total.held_bytes_now,
            in_flight: total.in_flight,
            in_flight_bytes: total.in_flight_bytes,
            in_flight_bytes_peak: core.in_flight_peak,
            hold_ns_mean: if total.hold_ns.is_empty() { 0.0 } else { total.hold_ns.mean() },
            hold_ns_p99: if total.hold_ns.is_empty() { 0 } else { total.hold_ns.quantile(0.99) },
            devices: Vec::new(),
        };
        let drives = stats.drives.iter().enumerate().filter(|(_, drive)| drive.admitted + drive.held > 0);
        let drives = drives.map(|(id, drive)| {
            let device = PacerDevice {
                name: String::new(),
                held_now: drive.held_now,
                held: drive.held,
                in_flight: drive.in_flight,
                in_flight_bytes: drive.in_flight_bytes,
            };
            (id as u32, device)
        });
        ReactorReport {
            reactor: ReactorStats {
                name: format!("nvmf_tgt_poll_group_{:03}", core.reactor),
                admin_qpairs: queues(true),
                io_qpairs: queues(false),
                unassociated_qpairs: self.connections.iter().filter(|(_, it)| it.controller.is_none()).count() as u32,
                total_admin_qpairs: core.queues_ever[0],
                total_io_qpairs: core.queues_ever[1],
                pending_io: core.pending_io,
                completed_io: core.completed_io,
                bytes: core.bytes,
                loops: self.loops,
                busy_ns: core.now_ns.saturating_sub(self.started_ns + self.asleep_ns),
                buffer_bytes: core.pool.held_bytes(),
                buffer_bytes_peak: core.pool.peak_bytes(),
                protocol_errors: core.protocol_errors,
                pacer,
                rdma: self.rdma.as_ref().map(Devices::stats).unwrap_or_default(),
            },
            devices: core
                .channels
                .iter()
                .map(|(_, open)| {
                    let mut stats = open.stats.clone();
                    stats.in_device = open.inside.into();
                    (open.uid, stats)
                })
                .collect(),
            hosts: core.hosts.clone(),
            drives: drives.collect(),
        }
    }
}

fn data_of(token: Token) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(token.generation) << 32 | u64::from(token.index))
}

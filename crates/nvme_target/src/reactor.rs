//! A reactor: one thread, its connections, and the loop that drives them.
//!
//! Each turn: sleep until something happens, receive from every I/O queue that has something, then go round
//! devices, pacer and sockets until nothing moves. Responses that came up meanwhile leave together.
//!
//! New connections, guests and admin queues come to an epoll instance of their own, which the reactor serves in short
//! slices. While there is I/O it rests after each slice for many times its length: thousands of peers that ask for
//! anything but I/O take a small part of the processor, and no I/O waits for longer than a slice.

mod arrivals;
mod messages;
mod moving;
mod rdma;
mod report;
mod rounds;
mod settling;
mod upkeep;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use pace::{Lookout, Step};
use rustix::event::{Timespec, epoll};
use slab::Slab;
use sys::clock::Clock;

use super::configuration::Configuration;
use super::connection::{Connection, Ended, Phase};
use super::controller::IoQueue;
use super::core::{Core, Origin};
use super::mailbox::{Message, Token};
use super::traces::{Cause, Refusal, Refused};
use super::transport::{Devices, Link};
use super::{Error, Shared, queued};
use moving::Moves;
pub(super) use settling::Settling;

/// Bytes received in one call beyond those that go straight into a command's buffer.
const SCRATCH: usize = 64 << 10;
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
    /// The count of I/O commands completed at the last tick.
    last_completed: u64,
    /// Told when the last connection of a drain has gone.
    drained: Option<mpsc::Sender<()>>,
    loops: u64,
    started_ns: u64,
    asleep_ns: u64,
    /// True if the rounds of the last turn ended before all work did.
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
            self.close(index, Cause::TargetEnds);
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
            return self.close(index, Cause::Closed);
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
                if let Some(connection) = self.connections.get(index).filter(|connection| connection.is_closing()) {
                    // The connection has hung up: its place in the controller is free for another connection, whatever
                    // its host still does.
                    let cause = connection.hangs_up_for.unwrap_or(Cause::Closed);
                    self.leave_controller(index, cause);
                }
                self.watch(index);
            }
            Err(Ended::Gone(cause)) => self.close(index, cause),
            Err(Ended::Unsecured(why)) => {
                if let Some(&Connection { peer, listener, .. }) = self.connections.get(index) {
                    let why = format!(
                        "{why} (it begins without TLS, or its key is not the one that this target has for its NQN and \
                         the subsystem)"
                    );
                    self.core.shared.refused(&Refusal { kind: Refused::Tls, peer, listener, names: None, why: &why });
                }
                self.close(index, Cause::NoProof);
            }
            Err(Ended::Breach(breach)) => {
                self.core.protocol_errors += 1;
                if let Some(connection) = self.connections.get(index) {
                    self.core.shared.violated(connection, &breach);
                }
                self.close(index, Cause::Violation);
            }
            Err(Ended::Fault(fault)) => {
                self.core.protocol_errors += 1;
                let Some(connection) = self.connections.get_mut(index) else { return };
                if connection.is_closing() {
                    return self.close(index, Cause::Violation);
                }
                self.core.shared.violated(connection, &fault);
                connection.terminate(&mut self.core, &fault);
                // The controller cannot go on without an admin queue, nor believe a queue that breaks the protocol.
                self.leave_controller(index, Cause::Violation);
            }
        }
    }

    /// Tells the kernel which events of a connection matter now.
    fn watch(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Link::Tcp(tcp) = &connection.transport else { return };
        let reads = !connection.is_stalled() && !tcp.reads_after_write();
        let watched = (reads, tcp.wants_write, connection.is_io_queue());
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
            self.close(index, Cause::NO_MEMORY);
        }
    }

    /// Ends a connection at once.
    fn close(&mut self, index: usize, cause: Cause) {
        self.close_on(index, true, cause);
    }

    /// Ends a connection at once. `is_there` is false if its device has gone.
    fn close_on(&mut self, index: usize, is_there: bool, cause: Cause) {
        if !self.connections.contains(index) {
            return;
        }
        self.leave_controller(index, cause);
        let mut connection = self.connections.remove(index);
        if matches!(connection.phase, Phase::Handshake | Phase::Connect) {
            self.core.shared.came_to_nothing(&connection, cause);
        }
        self.core
            .shared
            .tally
            .count(connection.listener, |stats| stats.connections = stats.connections.saturating_sub(1));
        connection.forget(&mut self.core);
        queued::forget(&mut connection, &mut self.core);
        self.core.guests -= u32::from(connection.counts_as_guest);
        self.core.shared.connection_closed(self.core.reactor, connection.counts_as_admin);
        if let (Link::Rdma(rdma), Some(devices)) = (connection.transport, &mut self.rdma) {
            devices.retire(&mut self.core, rdma, index as u32, !is_there);
        }
    }

    /// Takes the queue out of its controller. If the queue is the admin queue, the controller goes, and all its queues.
    fn leave_controller(&mut self, index: usize, cause: Cause) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Some(controller) = connection.controller.take() else { return };
        if connection.exchange.is_none() {
            self.core.shared.left(connection, &controller, cause);
        }
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
            shared.send(queue.reactor, Message::Close(queue, Cause::ControllerEnded));
        }
    }
}

fn data_of(token: Token) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(token.generation) << 32 | u64::from(token.index))
}

/// The connection of this name, unless another one has its place by now.
fn find(connections: &mut Slab<Connection>, token: Token) -> Option<&mut Connection> {
    connections.get_mut(token.index as usize).filter(|connection| connection.token == token)
}

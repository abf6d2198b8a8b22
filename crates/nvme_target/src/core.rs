//! The core of a reactor, which its connections share: the pacer, data buffers, channels to devices, and the ops inside
//! them.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use nvme::spec::{Nqn, Status};
use pace::{Admission, OpId};
use slab::Slab;
use sys::buffer::Buffer;
use sys::clock::Clock;

use super::ana::AnaStates;
use super::board::Rows;
use super::busy::Busy;
use super::configuration::{CommandLimits, Configuration, Detached, DeviceEntry, Leaving, Visibility};
use super::controller::{Controller, Service};
use super::gate::{Fence, Gate, Span};
use super::latencies::Latencies;
use super::limited::{Limit, Limited};
use super::mailbox::Token;
use super::pacing::Share;
use super::pages::Pages;
use super::portal::Portal;
use super::queued::Queued;
use super::reservations::{Eviction, Reservations};
use super::stats::{DeviceStats, HostStats};
use super::transport::{Adapter, EndedWork};
use super::work::Work;
use super::{Error, ErrorKind, Options, Shared, pacing, stragglers};
use crate::device::{BufferPool, Channel, Device, Done, Io, Local};

/// The time between looks at a command that the limit of its device holds back.
const LEAST_WAIT_NS: u64 = 20_000;

/// A channel to a device, counters of the ops that went through it, and the number of ops inside.
pub(super) struct OpenChannel {
    pub uid: u64,
    channel: Box<dyn Channel>,
    pub inside: u32,
    /// True when the channel's device is no longer configured: the reactor drops the channel when it is empty.
    retired: bool,
    /// The row of the namespace that `plimsoll top` shows, and the namespace's drive id in the pacer.
    pub row: Option<live::Row>,
    pub drive: u32,
    pub stats: DeviceStats,
    pub limit: Arc<Limit>,
    pub gate: Arc<Gate>,
    /// The commands that the limit holds back.
    pub limited: VecDeque<Limited>,
}

/// A namespace as this reactor reaches it.
#[derive(Clone)]
pub(super) struct LocalNamespace {
    pub device: Arc<dyn Device>,
    pub device_uid: u64,
    pub channel: usize,
    /// The namespace's drive id in the pacer.
    pub drive: u32,
    pub block_shift: u32,
    pub reads_zeros: bool,
    pub read_only: bool,
    pub ana_group: u32,
    pub reservations: Arc<Reservations>,
}

/// Something that the reactor keeps until ops have left their devices. Its end tells those who wait for that.
type Awaiting = Arc<dyn Any + Send + Sync>;

/// A subsystem's namespaces by number, as a host sees them; shared with connections.
#[derive(Default)]
pub(super) struct LocalSubsystem {
    pub namespaces: Vec<Option<LocalNamespace>>,
    pub limits: CommandLimits,
    /// True if some namespaces are not for every host.
    is_masked: bool,
}

impl LocalSubsystem {
    #[inline]
    pub fn namespace(&self, nsid: u32) -> Option<&LocalNamespace> {
        self.namespaces.get(nsid as usize)?.as_ref()
    }
}

/// An op inside a device. It outlives its connection, and its command if that was cut off.
pub(super) struct Flight {
    /// The range that it is for.
    pub span: Span,
    pub connection: Token,
    pub slot: u16,
    /// The pacer's id of the op, which the reactor gives back itself when the connection has gone and nobody else can.
    pub op: OpId,
    pub channel: usize,
    pub since_ns: u64,
    pub is_write: bool,
}

/// The origin of an op: its controller, and the listener of its queue, which need not be that of the admin queue.
#[derive(Clone)]
pub(super) struct Origin {
    pub controller: Arc<Controller>,
    pub listener: Portal,
}

pub(super) struct Core {
    pub shared: Arc<Shared>,
    pub reactor: u32,
    clock: Clock,
    /// The time that the reactor goes by: it reads the clock once per turn of the loop, and before anything that is
    /// measured.
    pub now_ns: u64,
    pub configuration: Arc<Configuration>,
    pub pacer: Box<dyn Admission>,
    pub share: Share,
    pub pool: BufferPool,
    /// Bytes of buffers with data that came in capsules of commands not yet admitted.
    pub reserve_used: u64,
    /// The part of each host in these bytes, by tenant id.
    reserve_of: Vec<u64>,
    /// Bytes of data on the network, of all connections; and the part of these bytes that is set aside.
    pub afloat_bytes: u64,
    pub aside_bytes: u64,
    /// The account of the memory that peers make the reactor hold besides data buffers.
    pub queued: Queued,
    /// Log pages that are being sent.
    pub pages: Pages,
    /// The number of connections whose peers have not shown yet that they may use a subsystem
    /// ([`super::connection::Connection::is_guest`]).
    pub guests: u32,
    pub channels: Slab<OpenChannel>,
    /// The channels with ops inside, or with commands that a limit holds back.
    pub busy: Busy,
    pub flights: Slab<Flight>,
    /// The ops inside devices whose queues have gone, and the origins of these ops.
    late: HashMap<usize, Origin>,
    /// The evictions, fences and senders that wait for ops inside devices, and these ops.
    awaiting: Vec<(Awaiting, Vec<usize>)>,
    /// The commands that wait at gates.
    pub gated: Vec<(Token, u16)>,
    /// The commands that wait for stragglers of their hosts.
    pub waiting: stragglers::Queue,
    pub done: Vec<Done>,
    pub local: Local,
    subsystems: HashMap<u64, Rc<LocalSubsystem>>,
    /// Connections with something to send.
    pub dirty: Vec<u32>,
    /// Connections that wait for a slot of the pacer, or for room for in-capsule data.
    pub stalled: Vec<u32>,
    /// Connections whose received bytes wait in the process, where the kernel does not report them.
    pub unread: Vec<u32>,
    /// Buffers that a connection has sent, on their way back to the pool.
    pub free: Vec<Buffer>,
    /// Slots of commands whose responses have gone out.
    pub ended: Vec<u16>,
    /// Devices of RDMA that have failed: their connections end.
    pub failed_adapters: Vec<Rc<Adapter>>,
    /// Work of RDMA that has ended: memory that is used again and again.
    pub ended_work: Vec<EndedWork>,
    pub hosts: Vec<HostStats>,
    pub rows: Rows,
    pub in_flight_peak: u64,
    pub completed_io: u64,
    pub bytes: u64,
    pub pending_io: u64,
    pub protocol_errors: u64,
    pub draining: bool,
    has_flushed: bool,
    /// Queues ever connected: admin, I/O.
    pub queues_ever: [u64; 2],
}

impl Core {
    pub fn new(
        shared: Arc<Shared>,
        reactor: u32,
        configuration: Arc<Configuration>,
        clock: Clock,
    ) -> Result<Core, Error> {
        let share = pacing::share(&configuration.options)?;
        let reactors = configuration.options.reactors;
        Ok(Core {
            pacer: share.pacer()?,
            pool: BufferPool::new(share.pool_bytes),
            share,
            reactor,
            clock,
            now_ns: clock.now_ns(),
            configuration,
            reserve_used: 0,
            reserve_of: Vec::new(),
            afloat_bytes: 0,
            aside_bytes: 0,
            queued: Queued::new(reactors),
            pages: Pages::default(),
            guests: 0,
            channels: Slab::new(),
            busy: Busy::default(),
            flights: Slab::new(),
            late: HashMap::new(),
            awaiting: Vec::new(),
            gated: Vec::new(),
            waiting: Default::default(),
            done: Vec::new(),
            local: Local::default(),
            subsystems: HashMap::new(),
            dirty: Vec::new(),
            stalled: Vec::new(),
            unread: Vec::new(),
            free: Vec::new(),
            ended: Vec::new(),
            ended_work: Vec::new(),
            failed_adapters: Vec::new(),
            hosts: Vec::new(),
            rows: Rows::new(shared.board.as_ref(), reactor, reactors),
            in_flight_peak: 0,
            completed_io: 0,
            bytes: 0,
            pending_io: 0,
            protocol_errors: 0,
            draining: false,
            has_flushed: false,
            queues_ever: [0; 2],
            shared,
        })
    }

    pub fn tick(&mut self) {
        self.now_ns = self.clock.now_ns();
    }

    /// Takes up other options: the pacer and the buffers begin anew.
    ///
    /// # Errors
    /// `Busy` while ops are inside devices: their buffers and their bytes belong to the old ones. The errors of
    /// [`pacing::share`].
    pub fn set_options(&mut self, options: &Options) -> Result<(), Error> {
        if !self.flights.is_empty() {
            let busy = "devices still work for hosts that were connected: try again when they have ended";
            return Err(Error::new(ErrorKind::Busy, busy));
        }
        let share = pacing::share(options)?;
        self.pacer = share.pacer()?;
        self.pool = self.pool.replaced(share.pool_bytes);
        self.share = share;
        Ok(())
    }

    /// Takes up a new configuration: opens channels to new devices, retires those of devices that no longer exist.
    ///
    /// # Errors
    /// A device cannot be reached from this reactor, for want of descriptors or locked memory; the other devices can be
    /// used.
    pub fn configure(&mut self, configuration: Arc<Configuration>) -> Result<(), Error> {
        let mut outcome = Ok(());
        let mut open: BTreeMap<u64, usize> = BTreeMap::new();
        for (index, channel) in &mut self.channels {
            channel.retired = true;
            open.insert(channel.uid, index);
        }
        self.subsystems.clear();
        for subsystem in &configuration.subsystems {
            let mut local = LocalSubsystem { limits: subsystem.spec.command_limits, ..LocalSubsystem::default() };
            for (nsid, namespace) in &subsystem.namespaces {
                let channel = match self.channel_to(&mut open, &namespace.entry) {
                    Ok(channel) => channel,
                    Err(error) => {
                        outcome = Err(error);
                        continue;
                    }
                };
                self.channels[channel].drive = namespace.drive;
                if self.channels[channel].row.is_none() {
                    let (board, name) = (self.shared.board.as_ref(), &namespace.spec.device);
                    self.channels[channel].row = self.rows.namespace(board, subsystem.nqn.as_str(), *nsid, name);
                }
                let device = Arc::clone(&namespace.entry.device);
                local.is_masked |=
                    namespace.spec.visibility != Visibility::All || namespace.spec.detached != Detached::default();
                local.namespaces.resize_with(local.namespaces.len().max(*nsid as usize + 1), || None);
                local.namespaces[*nsid as usize] = Some(LocalNamespace {
                    channel,
                    device_uid: namespace.entry.uid,
                    drive: namespace.drive,
                    block_shift: device.block_bytes().trailing_zeros(),
                    reads_zeros: device.reads_zeros(),
                    read_only: device.read_only(),
                    ana_group: namespace.spec.ana_group,
                    reservations: Arc::clone(&namespace.reservations),
                    device,
                });
            }
            self.subsystems.insert(subsystem.uid, Rc::new(local));
        }
        self.configuration = configuration;
        let board = self.shared.board.as_ref();
        self.channels.retain(|_, channel| {
            if channel.retired
                && let (Some(board), Some(row)) = (board, channel.row.take())
            {
                board.remove(row);
            }
            !channel.retired || channel.inside > 0
        });
        self.busy.visit(|channel| self.channels.contains(channel));
        outcome
    }

    fn channel_to(&mut self, open: &mut BTreeMap<u64, usize>, entry: &DeviceEntry) -> Result<usize, Error> {
        if let Some(&index) = open.get(&entry.uid) {
            self.channels[index].retired = false;
            return Ok(index);
        }
        let (name, reactor) = (&entry.spec.name, self.reactor);
        let channel = entry
            .device
            .open(&self.local)
            .map_err(|e| Error::system(format!("device {name} cannot be used by reactor {reactor}"), e))?;
        let index = self.channels.insert(OpenChannel {
            uid: entry.uid,
            channel,
            inside: 0,
            retired: false,
            row: None,
            drive: 0,
            stats: DeviceStats {
                latencies: entry.counts_latencies.load(Ordering::Relaxed).then(Latencies::default),
                ..DeviceStats::default()
            },
            limit: Arc::clone(&entry.limit),
            gate: Arc::clone(&entry.gate),
            limited: VecDeque::new(),
        });
        open.insert(entry.uid, index);
        Ok(index)
    }

    /// The subsystem as a host sees it: I/O needs no look at who sees a namespace.
    pub fn subsystem(&self, service: Service, host: &Nqn) -> Option<Rc<LocalSubsystem>> {
        let Service::Subsystem(uid) = service else { return None };
        let whole = self.subsystems.get(&uid)?;
        if !whole.is_masked {
            return Some(Rc::clone(whole));
        }
        let configured = self.configuration.subsystems.iter().find(|subsystem| subsystem.uid == uid)?;
        let mut own = LocalSubsystem { is_masked: true, limits: whole.limits, ..LocalSubsystem::default() };
        own.namespaces.resize_with(whole.namespaces.len(), || None);
        for (nsid, _) in configured.active_for(host.as_str()) {
            if let Some(place) = own.namespaces.get_mut(nsid as usize) {
                *place = whole.namespace(nsid).cloned();
            }
        }
        Some(Rc::new(own))
    }

    /// The ANA states of a controller's path; `None` if its subsystem does not report any.
    pub fn ana(&self, controller: &Controller) -> Option<&Arc<AnaStates>> {
        let mut subsystems = self.configuration.subsystems.iter();
        let subsystem = subsystems.find(|it| Service::Subsystem(it.uid) == controller.service)?;
        subsystem.ana.get(&controller.listener)
    }

    /// The status with which the controller's path refuses commands on that device now.
    fn refusal(&self, controller: &Controller, device_uid: u64) -> Option<Status> {
        let mut subsystems = self.configuration.subsystems.iter();
        let subsystem = subsystems.find(|it| Service::Subsystem(it.uid) == controller.service)?;
        let namespace = subsystem.namespaces.values().find(|it| it.entry.uid == device_uid)?;
        subsystem.ana.get(&controller.listener)?.state(namespace.spec.ana_group).refusal()
    }

    /// True if the channel still leads to the device with this uid, and the device is still configured.
    #[inline]
    pub fn reaches(&self, channel: usize, device_uid: u64) -> bool {
        self.channels.get(channel).is_some_and(|open| open.uid == device_uid && !open.retired)
    }

    /// Puts an op into a device. Its end comes back through `done`.
    #[inline]
    pub fn submit(&mut self, flight: Flight, mut io: Io) {
        let channel = flight.channel;
        io.tag = self.flights.insert(flight) as u64;
        let open = &mut self.channels[channel];
        open.inside += 1;
        self.busy.add(channel);
        open.channel.submit(self.now_ns, io, &mut self.done);
    }

    /// Counts the ops that the queue `connection` leaves inside devices as its controller's, until they end. Devices
    /// that can cancel them do.
    pub fn leave_flights(&mut self, connection: Token, origin: &Origin) {
        let Origin { controller, .. } = origin;
        for (tag, flight) in self.flights.iter().filter(|(_, flight)| flight.connection == connection) {
            if flight.is_write {
                self.shared.stragglers.begins(controller.host_id, self.channels[flight.channel].uid);
            }
            controller.begins();
            self.late.insert(tag, origin.clone());
            self.channels[flight.channel].channel.cancel(tag as u64, &mut self.done);
        }
    }

    /// Keeps an eviction until the ops of its hosts on its namespace have left their device.
    pub fn await_evicted(&mut self, eviction: Arc<Eviction>, connections: &HashSet<Token>) {
        let is_named = |tag: usize, flight: &Flight| {
            self.channels.get(flight.channel).is_some_and(|open| open.uid == eviction.device)
                && (connections.contains(&flight.connection)
                    || self.late.get(&tag).is_some_and(|late| eviction.names(&late.controller)))
        };
        let tags: Vec<usize> = self.flights.iter().filter(|(tag, it)| is_named(*tag, it)).map(|(tag, _)| tag).collect();
        if !tags.is_empty() {
            self.awaiting.push((eviction, tags));
        }
    }

    /// Keeps the sender until the ops that leave have left their devices.
    pub fn await_departure(
        &mut self,
        leaving: &Leaving,
        left: mpsc::Sender<()>,
        origin_of: impl Fn(Token) -> Option<Origin>,
    ) {
        let is_meant = |Origin { controller, listener }: &Origin, device_uid: u64| match leaving {
            Leaving::Paths(paths) => paths.include(controller) && self.refusal(controller, device_uid).is_some(),
            // The queues of the listener end, and all queues of its controllers.
            Leaving::Ended(paths) => paths.include(controller) || paths.bring(controller.service, *listener),
            Leaving::Hosts { subsystem, device, hosts } => {
                controller.service == Service::Subsystem(*subsystem)
                    && device.is_none_or(|device| device == device_uid)
                    && hosts.contains(controller.host_nqn.as_str())
            }
            Leaving::Device(device) => *device == device_uid,
        };
        let leaves = |tag: usize, flight: &Flight| {
            let origin = self.late.get(&tag).cloned().or_else(|| origin_of(flight.connection));
            let open = self.channels.get(flight.channel);
            origin.zip(open).is_some_and(|(origin, open)| is_meant(&origin, open.uid))
        };
        let tags: Vec<usize> = self.flights.iter().filter(|(tag, it)| leaves(*tag, it)).map(|(tag, _)| tag).collect();
        if !tags.is_empty() {
            self.awaiting.push((Arc::new(left), tags));
        }
    }

    /// Keeps a fence until the changes of its range have left the device.
    pub fn await_changes(&mut self, fence: Arc<Fence>) {
        let (device, span) = (fence.device, fence.span);
        let is_meant = |flight: &Flight| {
            flight.is_write
                && flight.span.overlaps(span)
                && self.channels.get(flight.channel).is_some_and(|open| open.uid == device)
        };
        let tags: Vec<usize> = self.flights.iter().filter(|(_, it)| is_meant(it)).map(|(tag, _)| tag).collect();
        if !tags.is_empty() {
            self.awaiting.push((fence, tags));
        }
    }

    /// Asks the device to end the op of a command now, as cancelled. Returns true if the device does.
    pub fn cancel(&mut self, connection: Token, slot: u16) -> bool {
        let mine = |flight: &Flight| flight.connection == connection && flight.slot == slot;
        let Some((tag, flight)) = self.flights.iter().find(|(_, flight)| mine(flight)) else { return false };
        self.channels[flight.channel].channel.cancel(tag as u64, &mut self.done)
    }

    /// Takes the op that has ended out of its device and counts it. The channel is dropped if the op was the last one
    /// of a device that no longer exists.
    #[inline]
    pub fn landed(&mut self, done: &Done) -> Flight {
        let flight = self.flights.remove(done.tag as usize);
        if !self.late.is_empty()
            && let Some(Origin { controller, .. }) = self.late.remove(&(done.tag as usize))
        {
            controller.ends();
            if flight.is_write {
                self.shared.stragglers.ends(controller.host_id, self.channels[flight.channel].uid);
            }
        }
        if !self.awaiting.is_empty() {
            self.awaiting.iter_mut().for_each(|(_, tags)| tags.retain(|tag| *tag != done.tag as usize));
            self.awaiting.retain(|(_, tags)| !tags.is_empty());
        }
        let open = &mut self.channels[flight.channel];
        open.inside -= 1;
        open.stats.errors += u64::from(done.result.is_err_and(|errno| errno != libc::ECANCELED));
        let ns = self.now_ns.saturating_sub(flight.since_ns);
        if let Some(latencies) = &mut open.stats.latencies {
            latencies.count(ns);
        }
        if flight.is_write {
            open.stats.write_ns += ns;
            open.stats.write_ns_max = open.stats.write_ns_max.max(ns);
        } else {
            open.stats.read_ns += ns;
            open.stats.read_ns_max = open.stats.read_ns_max.max(ns);
        }
        if open.retired && open.inside == 0 {
            self.channels.remove(flight.channel);
            self.busy.remove(flight.channel);
        }
        flight
    }

    /// Asks every device with ops inside for their ends.
    pub fn poll_devices(&mut self) {
        if let Some(ring) = &mut *self.local.uring.borrow_mut()
            && !ring.is_empty()
        {
            ring.submit();
            ring.reap();
        }
        let (channels, now_ns, done) = (&mut self.channels, self.now_ns, &mut self.done);
        self.busy.visit(|channel| {
            let Some(open) = channels.get_mut(channel) else { return false };
            if open.inside > 0 {
                open.channel.poll(now_ns, done);
            }
            open.inside > 0 || !open.limited.is_empty()
        });
    }

    /// The latest time at which a device, or the pacer, wants to be asked.
    pub fn wake_ns(&self) -> Option<u64> {
        let busy = || self.busy.iter().filter_map(|channel| self.channels.get(channel));
        let of_devices = busy().filter(|open| open.inside > 0).filter_map(|open| open.channel.wake_ns());
        let of_limits = busy().filter_map(|open| {
            let first = open.limited.front()?;
            // The command may wait for something else than its limit: the reactor looks again soon.
            Some(self.now_ns + open.limit.wait_ns(self.now_ns, first).max(LEAST_WAIT_NS))
        });
        of_devices.chain(of_limits).chain(self.waiting.wake_ns()).chain(self.pacer.wakeup_ns()).min()
    }

    /// Bytes that may be in flight at this moment.
    #[inline]
    pub fn window_bytes(&self) -> u64 {
        self.pacer.window_bytes().min(self.share.window_bytes)
    }

    /// Gives the bytes of an admitted op back to the pacer.
    #[inline]
    pub fn complete(&mut self, op: OpId) {
        self.pacer.complete(self.now_ns, op);
    }

    /// True once every device has been told to flush, after the last command: the first call tells them, and returns
    /// true if no flush is left to wait for.
    pub fn flushed(&mut self) -> bool {
        if std::mem::replace(&mut self.has_flushed, true) {
            return true;
        }
        let connection = Token { reactor: self.reactor, index: u32::MAX, generation: 0 };
        for channel in self.channels.iter().map(|(index, _)| index).collect::<Vec<_>>() {
            let (op, since_ns) = (OpId::UNTRACKED, self.now_ns);
            let span = Span::default();
            let flight = Flight { span, connection, slot: 0, op, channel, since_ns, is_write: true };
            let kind = crate::device::IoKind::Flush;
            self.submit(flight, Io { tag: 0, kind, fua: false, offset: 0, len: 0, buffer: None, skip: 0 });
        }
        self.flights.is_empty()
    }

    /// Counts a connection that has become a queue: of the host `tenant`, or of the discovery service.
    pub fn connected(&mut self, is_admin: bool, tenant: Option<u32>, host: &str) {
        self.queues_ever[usize::from(!is_admin)] += 1;
        if let Some(tenant) = tenant {
            self.rows.host(self.shared.board.as_ref(), tenant, host);
        }
    }

    /// Publishes the work of this reactor on each device.
    pub fn publish_work(&self) {
        let work = self.channels.iter().map(|(_, open)| (open.uid, Work::of(&open.stats)));
        self.shared.work.publish(self.reactor, work);
    }

    /// Writes the gauges of this reactor to the board that `plimsoll top` reads.
    pub fn publish(&self, busy_ns: u64, connections: usize) {
        let Some(board) = &self.shared.board else { return };
        let namespaces = self.channels.iter().filter_map(|(_, open)| open.row.map(|row| (row, open.drive)));
        self.rows.gauges(board, &*self.pacer, namespaces, busy_ns, connections);
    }

    /// Takes `bytes` of the reserve for a host. Returns false if the host has as much of it as is left: no host takes
    /// all of the reserve, whatever its commands wait for. The first capsule of each host always has room.
    #[inline]
    pub fn reserve(&mut self, tenant: u32, bytes: u32) -> bool {
        let index = tenant as usize;
        if index >= self.reserve_of.len() {
            self.reserve_of.resize(index + 1, 0);
        }
        let (own, bytes) = (&mut self.reserve_of[index], u64::from(bytes));
        let has_room = *own == 0 || *own + bytes <= self.share.reserve_bytes.saturating_sub(self.reserve_used);
        if has_room {
            *own += bytes;
            self.reserve_used += bytes;
        }
        has_room
    }

    /// Gives `bytes` of a host back to the reserve.
    #[inline]
    pub fn unreserve(&mut self, tenant: u32, bytes: u32) {
        if bytes > 0 {
            self.reserve_of[tenant as usize] -= u64::from(bytes);
            self.reserve_used -= u64::from(bytes);
        }
    }

    #[inline]
    pub fn host(&mut self, tenant: u32) -> &mut HostStats {
        let index = tenant as usize;
        if index >= self.hosts.len() {
            self.hosts.resize_with(index + 1, HostStats::default);
        }
        &mut self.hosts[index]
    }

    pub fn give_free(&mut self) {
        for buffer in self.free.drain(..) {
            self.pool.give(buffer);
        }
    }
}

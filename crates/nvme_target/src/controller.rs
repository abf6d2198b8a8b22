//! Controllers: a controller is a host's association with a subsystem, shared by the reactors that serve its queues.
//!
//! I/O queues look only at the atomics; the rest is behind a lock that only admin commands, connects and disconnects
//! take.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvme::auth::Means;
use nvme::spec::property::{Configuration, ControllerStatus};
use nvme::spec::reservation::Notice;
use nvme::spec::{AsyncEvent, Nqn, feature};

use super::errors::ErrorLog;
use super::mailbox::Token;
use super::portal::Portal;
use super::reservations::Notices;
use super::{ControllerInfo, Limits, QueueInfo};

/// Controller identifiers beyond this are reserved.
pub(super) const LAST_ID: u16 = 0xffef;

/// The silence in milliseconds that ends a host which has not enabled its controller: the proof of a large group of
/// DH-HMAC-CHAP takes seconds on a small machine.
const BEFORE_ENABLED_MS: u64 = 120_000;

/// The service that a controller belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Service {
    Discovery,
    /// A subsystem, by its uid.
    Subsystem(u64),
}

pub(super) struct Controller {
    pub id: u16,
    pub service: Service,
    pub subsystem_nqn: Nqn,
    pub host_nqn: Nqn,
    pub host_id: [u8; 16],
    pub peer: Option<SocketAddr>,
    /// The listener of the admin queue.
    pub listener: Portal,
    /// The I/O queues that the target grants at most: the limit at the time when the host connected, so that a later
    /// limit counts from its next reset on, and never between a grant and its queues.
    pub most_queues: u16,
    /// True while CC.EN is set and the controller is not shut down: the target takes I/O commands.
    pub enabled: AtomicBool,
    /// The keep-alive timeout in milliseconds; 0 for none.
    pub keep_alive_ms: AtomicU32,
    /// The I/O queues, and the ops of I/O queues that have gone whose devices have not ended them yet.
    busy: AtomicU32,
    /// The time at which anything of the host last arrived on any queue, in milliseconds of the monotonic clock.
    pub seen_ms: AtomicU64,
    /// True while the host has yet to prove itself on the admin queue.
    pub awaits_proof: AtomicBool,
    created_ns: u64,
    state: Mutex<State>,
}

/// An I/O queue of a controller: the connection that serves it, the address of its peer, and its listener.
#[derive(Clone, Copy)]
pub(super) struct IoQueue {
    pub token: Token,
    pub peer: Option<SocketAddr>,
    pub listener: Portal,
}

pub(super) struct State {
    pub configuration: Configuration,
    pub status: ControllerStatus,
    pub admin: Token,
    /// The connected I/O queues.
    pub queues: BTreeMap<u16, IoQueue>,
    /// The means by which the host has proven itself on a queue, the admin queue included.
    pub proofs: BTreeMap<u16, Means>,
    /// Values of Set Features by identifier.
    pub features: BTreeMap<u8, u32>,
    /// The temperature thresholds that the host has set in kelvins: above which, and below which a temperature is bad.
    pub thresholds: [Option<u16>; 2],
    pub host_behavior: Box<[u8; 512]>,
    /// The time that the host has set in milliseconds, and the time of the clock at which it did so; the time 0 at the
    /// last reset, if it has not.
    pub timestamp: (Option<u64>, u64),
    /// The commands that failed last.
    pub errors: ErrorLog,
    /// Namespaces that changed since the log page was last read.
    pub changed: BTreeSet<u32>,
    /// Notifications of reservations that the host has not read.
    pub notices: Notices,
    /// The changes of ANA states that the log page leaves out of its counts: those from before the last reset.
    pub ana_changes_before: u64,
    /// Events that have happened, and not yet been told.
    pending: Vec<AsyncEvent>,
    /// Events that the host has been told, and that are masked until their log page is read.
    masked: Vec<AsyncEvent>,
}

impl Controller {
    /// The controller as the control plane shows it.
    pub fn info(&self) -> ControllerInfo {
        let state = self.lock();
        let admin = IoQueue { token: state.admin, peer: self.peer, listener: self.listener };
        let queues = std::iter::once((0, admin)).chain(state.queues.iter().map(|(&id, queue)| (id, *queue)));
        let info = |(id, queue): (u16, IoQueue)| QueueInfo {
            id,
            reactor: queue.token.reactor,
            peer: queue.peer,
            listener: queue.listener,
            proof: state.proofs.get(&id).copied(),
        };
        ControllerInfo {
            id: self.id,
            host_nqn: self.host_nqn.to_string(),
            host_id: self.host_id,
            queues: queues.map(info).collect(),
            keep_alive_ms: self.keep_alive_ms.load(Ordering::Relaxed),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_discovery(&self) -> bool {
        self.service == Service::Discovery
    }

    /// Notes that something of the host has arrived: the host is alive. The queues of a host are on many reactors: the
    /// function writes once a millisecond and not for each arrival, so that they read the controller from their caches.
    pub fn seen(&self, now_ns: u64) {
        let now_ms = now_ns / 1_000_000;
        if self.seen_ms.load(Ordering::Relaxed) != now_ms {
            self.seen_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// True if the host has been silent for longer than the keep-alive timeout that it gave, plus one second of grace.
    /// Before the controller is enabled a host may compute a proof, so it has at least [`BEFORE_ENABLED_MS`].
    pub fn is_expired(&self, now_ns: u64) -> bool {
        let least = if self.enabled.load(Ordering::Acquire) { 0 } else { BEFORE_ENABLED_MS };
        let timeout = match u64::from(self.keep_alive_ms.load(Ordering::Relaxed)) {
            0 => 0,
            timeout => timeout.max(least),
        };
        let seen = self.seen_ms.load(Ordering::Relaxed);
        timeout > 0 && (now_ns / 1_000_000).saturating_sub(seen) > timeout + 1000
    }

    /// Counts an I/O queue, or an op of an I/O queue that goes.
    pub fn begins(&self) {
        self.busy.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts an I/O queue that has gone, or an op that has ended after its queue.
    pub fn ends(&self) {
        self.busy.fetch_sub(1, Ordering::AcqRel);
    }

    /// The status that the host reads. A reset or a shutdown is complete when no op of the host is in a device: a write
    /// that ended later would overwrite data that the host writes after the reset.
    pub fn status(&self) -> ControllerStatus {
        let state = self.lock();
        let mut status = state.status;
        if self.busy.load(Ordering::Acquire) > 0 {
            status.ready |= !state.configuration.is_enabled();
            status.shutdown = status.shutdown.min(1);
        }
        status
    }

    /// Notes an event. Returns true if the host is to be told.
    pub fn raise(&self, event: AsyncEvent, changed: impl IntoIterator<Item = u32>) -> bool {
        let mut state = self.lock();
        state.changed.extend(changed);
        let bit = match event {
            AsyncEvent::DISCOVERY_CHANGED => feature::EVENT_DISCOVERY,
            AsyncEvent::ANA_CHANGED => feature::EVENT_ANA,
            _ => feature::EVENT_NAMESPACE,
        };
        let wanted = state.features.get(&feature::ASYNC_EVENT_CONFIGURATION).is_some_and(|value| value & bit != 0);
        wanted && state.raise(event)
    }

    /// Notes that something happened to a reservation of the host. Returns true if the host is to be told.
    pub fn note(&self, nsid: u32, notice: Notice) -> bool {
        let mut state = self.lock();
        state.notices.add(nsid, notice) && state.raise(AsyncEvent::RESERVATION_NOTICE)
    }
}

impl State {
    /// Notes an event that the host wants to know of. Returns true if the host is to be told: it does not know of an
    /// equal one.
    pub fn raise(&mut self, event: AsyncEvent) -> bool {
        let is_new = !self.masked.contains(&event) && !self.pending.contains(&event);
        if is_new {
            self.pending.push(event);
        }
        is_new
    }

    /// The next event to tell, masked from now on.
    pub fn next_event(&mut self) -> Option<AsyncEvent> {
        let event = self.pending.pop()?;
        self.masked.push(event);
        Some(event)
    }

    /// Forgets what a controller reset ends: features, and events. ANA states have changed `ana_changes` times so far.
    pub fn reset(&mut self, now_ns: u64, ana_changes: u64) {
        self.ana_changes_before = ana_changes;
        self.timestamp = (None, now_ns);
        (self.status.ready, self.status.shutdown) = (false, 0);
        self.features.clear();
        self.thresholds = [None; 2];
        self.changed.clear();
        self.notices = Notices::default();
        self.pending.clear();
        self.masked.clear();
    }

    /// The log page of these events was read: they may be told again.
    pub fn unmask(&mut self, log_page: u8) {
        self.masked.retain(|event| event.log_page != log_page);
    }
}

/// All controllers, and the hosts that they belong to.
#[derive(Default)]
pub(super) struct Controllers {
    /// The controllers by service and identifier; an identifier is unique within its service.
    by_id: BTreeMap<(Service, u16), Arc<Controller>>,
    /// The identifier that each service gave to its newest controller.
    last_ids: BTreeMap<Service, u16>,
    /// Hosts by tenant id, as long as the target runs.
    hosts: Vec<Host>,
    /// Connections of hosts that are let in without being listed.
    unlisted: u32,
}

struct Host {
    nqn: Nqn,
    connections: u32,
}

/// The properties that a new controller is made from.
pub(super) struct NewController {
    pub service: Service,
    /// The identifiers to choose from; `None` for all, from a random one on.
    pub ids: Option<(u16, u16)>,
    pub subsystem_nqn: Nqn,
    pub host_nqn: Nqn,
    pub host_id: [u8; 16],
    pub peer: Option<SocketAddr>,
    pub listener: Portal,
    pub most_queues: u16,
    pub keep_alive_ms: u32,
    pub admin: Token,
    pub awaits_proof: bool,
    /// The changes of ANA states on the listener so far.
    pub ana_changes: u64,
    pub now_ns: u64,
}

impl Controllers {
    /// Counts one connection more of a host. Returns the host's tenant id; `None` if the host, or the unlisted hosts
    /// together, have as many connections as the limits allow. Hosts that are let in without being listed leave
    /// connections, and ids, to those that are.
    pub fn host_connects(&mut self, nqn: &Nqn, is_listed: bool, limits: &Limits) -> Option<u32> {
        if !is_listed && self.unlisted >= limits.connections - limits.connections / 4 {
            return None;
        }
        let index = self.hosts.iter().position(|host| host.nqn == *nqn).unwrap_or_else(|| {
            // When the ids for unlisted hosts are used up, further unlisted hosts share the last of them. In the same
            // way, further listed hosts share the last id of all.
            let most = super::pacing::MAX_TENANTS as usize;
            let most = if is_listed { most } else { most - most / 4 };
            if self.hosts.len() < most {
                self.hosts.push(Host { nqn: nqn.clone(), connections: 0 });
            }
            self.hosts.len().min(most) - 1
        });
        let host = &mut self.hosts[index];
        if host.connections >= limits.connections_per_host {
            return None;
        }
        host.connections += 1;
        self.unlisted += u32::from(!is_listed);
        Some(index as u32)
    }

    pub fn host_disconnects(&mut self, tenant: u32, is_listed: bool) {
        self.unlisted -= u32::from(!is_listed);
        if let Some(host) = self.hosts.get_mut(tenant as usize) {
            host.connections = host.connections.saturating_sub(1);
        }
    }

    /// Hosts in order of their tenant ids: name and connections.
    pub fn hosts(&self) -> impl Iterator<Item = (&Nqn, u32)> {
        self.hosts.iter().map(|host| (&host.nqn, host.connections))
    }

    /// Makes a new controller under an id that is long unused. When all ids are taken, it takes the place of the oldest
    /// controller whose host has yet to prove itself, which comes second; `None` if all hosts have.
    pub fn create(&mut self, new: NewController) -> Option<(Arc<Controller>, Option<Arc<Controller>>)> {
        let (first, last) = new.ids.unwrap_or((1, LAST_ID));
        let before = self.last_ids.get(&new.service).copied().unwrap_or_else(|| match new.ids {
            Some(_) => last, // the first one comes next
            None => random_id(),
        });
        let next = |id: u16| if id >= last { first } else { id + 1 };
        let candidates = std::iter::successors(Some(next(before)), |id| Some(next(*id)));
        let mut candidates = candidates.take(usize::from(last - first) + 1);
        let free = candidates.find(|id| !self.by_id.contains_key(&(new.service, *id)));
        let evicted = match free {
            Some(_) => None,
            None => Some(self.oldest_unproven(new.service)?),
        };
        let id = free.or(evicted.as_ref().map(|controller| controller.id))?;
        self.last_ids.insert(new.service, id);
        let state = State {
            configuration: Configuration(0),
            status: ControllerStatus::default(),
            admin: new.admin,
            queues: BTreeMap::new(),
            proofs: BTreeMap::new(),
            features: BTreeMap::new(),
            thresholds: [None; 2],
            host_behavior: Box::new([0; 512]),
            timestamp: (None, new.now_ns),
            errors: ErrorLog::default(),
            changed: BTreeSet::new(),
            notices: Notices::default(),
            ana_changes_before: new.ana_changes,
            pending: Vec::new(),
            masked: Vec::new(),
        };
        let controller = Arc::new(Controller {
            id,
            service: new.service,
            subsystem_nqn: new.subsystem_nqn,
            host_nqn: new.host_nqn,
            host_id: new.host_id,
            peer: new.peer,
            listener: new.listener,
            most_queues: new.most_queues,
            enabled: AtomicBool::new(false),
            keep_alive_ms: AtomicU32::new(new.keep_alive_ms),
            busy: AtomicU32::new(0),
            seen_ms: AtomicU64::new(new.now_ns / 1_000_000),
            awaits_proof: AtomicBool::new(new.awaits_proof),
            created_ns: new.now_ns,
            state: Mutex::new(state),
        });
        self.by_id.insert((controller.service, id), Arc::clone(&controller));
        Some((controller, evicted))
    }

    fn oldest_unproven(&self, service: Service) -> Option<Arc<Controller>> {
        let unproven = self.iter().filter(|it| it.service == service && it.awaits_proof.load(Ordering::Relaxed));
        unproven.min_by_key(|controller| controller.created_ns).cloned()
    }

    pub fn get(&self, service: Service, id: u16) -> Option<&Arc<Controller>> {
        self.by_id.get(&(service, id))
    }

    /// Forgets a controller, unless another one has its identifier by now.
    pub fn remove(&mut self, controller: &Arc<Controller>) {
        let key = (controller.service, controller.id);
        if self.by_id.get(&key).is_some_and(|present| Arc::ptr_eq(present, controller)) {
            self.by_id.remove(&key);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Controller>> {
        self.by_id.values()
    }
}

/// An identifier from all that there are: targets that start with different ones do not meet for a long time.
fn random_id() -> u16 {
    let random = crate::identity::random_uuid();
    u16::from_le_bytes([random[0], random[1]]) % LAST_ID + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(service: Service, ids: Option<(u16, u16)>) -> NewController {
        NewController {
            service,
            ids,
            subsystem_nqn: Nqn::of_host([2; 16]),
            host_nqn: Nqn::of_host([1; 16]),
            host_id: [1; 16],
            peer: None,
            listener: SocketAddr::from(([127, 0, 0, 1], 4420)).into(),
            most_queues: 64,
            keep_alive_ms: 0,
            admin: Token { reactor: 0, index: 0, generation: 0 },
            awaits_proof: false,
            ana_changes: 0,
            now_ns: 0,
        }
    }

    #[test]
    fn identifiers_go_around_and_are_one_among_those_of_a_subsystem() {
        let mut all = Controllers::default();
        let (one, other) = (Service::Subsystem(1), Service::Subsystem(2));
        let create = |all: &mut Controllers, service| all.create(new(service, Some((7, 9)))).map(|(it, _)| it.id);
        assert_eq!([(); 3].map(|()| create(&mut all, one)), [Some(7), Some(8), Some(9)]);
        assert_eq!(create(&mut all, one), None, "all are taken");
        assert_eq!(create(&mut all, other), Some(7));
        let eight = Arc::clone(all.get(one, 8).expect("it is there"));
        all.remove(&eight);
        assert_eq!(create(&mut all, one), Some(8));
    }

    #[test]
    fn the_oldest_host_without_a_proof_makes_way_and_no_other() {
        let mut all = Controllers::default();
        let service = Service::Subsystem(1);
        let mut create =
            |awaits_proof, now_ns| all.create(NewController { awaits_proof, now_ns, ..new(service, Some((1, 3))) });
        let proven = create(false, 0).expect("an identifier is free").0;
        let later = create(true, 20).expect("an identifier is free").0;
        let earlier = create(true, 10).expect("an identifier is free").0;
        let (next, evicted) = create(false, 30).expect("one makes way");
        assert!(evicted.is_some_and(|evicted| Arc::ptr_eq(&evicted, &earlier)) && next.id == earlier.id);
        later.awaits_proof.store(false, Ordering::Relaxed);
        assert!(create(false, 40).is_none(), "all have proven themselves");
        all.remove(&earlier);
        for controller in [&proven, &later, &next] {
            assert!(Arc::ptr_eq(all.get(service, controller.id).expect("it is there"), controller));
        }
    }

    #[test]
    fn a_silent_host_expires_once_its_controller_is_enabled() {
        let mut all = Controllers::default();
        let controller = all.create(NewController { keep_alive_ms: 5000, ..new(Service::Discovery, None) });
        let (controller, _) = controller.expect("an identifier is free");
        let seconds = |seconds: u64| seconds * 1_000_000_000;
        assert!(!controller.is_expired(seconds(60)), "the host computes its proof");
        assert!(controller.is_expired(seconds(200)), "the host has died before it enabled its controller");
        controller.enabled.store(true, Ordering::Release);
        controller.seen(seconds(60));
        assert!(!controller.is_expired(seconds(66)));
        assert!(controller.is_expired(seconds(67)));
    }

    #[test]
    fn targets_begin_at_identifiers_of_their_own_and_never_use_reserved_ones() {
        let service = Service::Subsystem(1);
        let mut firsts = BTreeSet::new();
        for _ in 0..20 {
            let mut controllers = Controllers::default();
            // As if the random one was the last: the next goes around to 1.
            firsts.insert(controllers.create(new(service, None)).expect("a controller").0.id);
            controllers.last_ids.insert(service, LAST_ID);
            assert_eq!(controllers.create(new(service, None)).map(|(it, _)| it.id), Some(1));
        }
        assert!(firsts.len() >= 18, "{firsts:?}");
        assert!(firsts.iter().all(|id| (1..=LAST_ID).contains(id)));
    }
}

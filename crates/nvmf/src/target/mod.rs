//! The target: subsystems of namespaces, served over NVMe/TCP by reactors, with pacing in front of the devices.
//!
//! ```text
//!  control thread ── Target ── Shared { configuration, controllers } ── mailboxes ─┐
//!                                                                                   ▼
//!  socket ─► transport ─► command ─► pacing (Admission) ─► device channel ─► response ─► socket
//!            └────────────────────────── one reactor thread ──────────────────────────┘
//! ```
//!
//! A [`Target`] is a handle: every method may be called from any thread while reactors run. A change is in force on all
//! reactors when the method returns.

mod admin;
mod afloat;
mod ana;
mod answer;
mod auth;
mod command;
mod configuration;
mod connection;
mod controller;
mod copy;
mod core;
mod errors;
mod fabrics;
mod fused;
mod gate;
mod identify;
mod io;
mod io_command;
mod latencies;
mod limited;
mod live;
mod logs;
mod mailbox;
mod management;
mod options;
mod pacing;
mod pages;
mod portal;
mod queued;
mod reactor;
mod reservations;
mod security;
mod stats;
mod stragglers;
mod transport;
mod turns;
mod vital;
mod work;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use crate::device::{Error, ErrorKind};
use auth::Examiner;
pub use auth::{Authenticator, Channel, Closed, Exchange, ExchangeState, Proof};
pub use configuration::{CommandLimits, Detached, NamespaceSpec, Referral, SecureChannel, SubsystemSpec, Visibility};
pub use latencies::{GRANULARITY, Latencies};
pub use management::{AttachmentRequest, NamespaceManager};
pub use options::{Limits, Options};
pub use portal::{Portal, TransportType};
pub use stats::{
    ControllerInfo, DeviceInfo, DeviceStats, HostStats, PacerDevice, PacerStats, QueueInfo, RdmaStats, ReactorStats,
    Stats, StatsChange, SubsystemInfo,
};

use crate::device::{Device, DeviceSpec, Fault, Latency};
use crate::spec::ana::AnaState;
use crate::spec::reservation::{HostId, Notice};
use crate::spec::{AsyncEvent, Nqn};
use configuration::{Audience, ChangedNamespace, ChangedPaths, Configuration, Leaving};
use controller::{Controllers, Service};
use mailbox::{Mailbox, Message};
use management::Management;
use reactor::Reactor;
use reservations::Registrar;
use security::Security;
use stragglers::Stragglers;
use verbs::Either;
use vital::Vital;
use work::Published;

/// The discovery service's NQN: every listener answers to it.
pub use crate::spec::DISCOVERY_NQN;

/// The least time between two lines about hosts that prove no key of TLS: any peer can bring one about.
const BETWEEN_TLS_LINES_NS: u64 = 10_000_000_000;
/// Connections that the kernel may hold for a listener before the target accepts them.
const BACKLOG: i32 = 4096;

/// The ops that devices still have of hosts, paths or namespaces to which a call has closed the way.
#[must_use = "without `wait`, an op may end after the call"]
#[derive(Debug, Default)]
pub struct Departure(Vec<mpsc::Receiver<()>>);

impl Departure {
    /// Waits until the last of the ops has left its device: nothing that anybody writes in another way from now on is
    /// overtaken by them. Waits for as long as a device takes.
    pub fn wait(self) {
        for departed in self.0 {
            // Each reactor drops its sender when it has none of the ops any more.
            let _ = departed.recv();
        }
    }

    /// The ops of both.
    pub fn and(mut self, mut other: Departure) -> Departure {
        self.0.append(&mut other.0);
        self
    }
}

/// A running target. Clones are handles to the same target, which runs until [`Target::shutdown`].
#[derive(Clone)]
pub struct Target {
    shared: Arc<Shared>,
}

/// The state that the control side and all reactors share.
struct Shared {
    /// TCP connections of all hosts together at most.
    most_connections: u32,
    /// The control side holds this lock while it makes a change and all reactors take the change up; reactors never
    /// take the lock.
    configuration: Mutex<Arc<Configuration>>,
    controllers: Mutex<Controllers>,
    authenticator: RwLock<Option<Arc<dyn Authenticator>>>,
    security: Security,
    /// The stack of RDMA: opened with the first listener on RDMA.
    verbs: OnceLock<Either>,
    examiner: Examiner,
    registrar: Registrar,
    management: Management,
    stragglers: Stragglers,
    work: Published,
    mailboxes: Vec<Mailbox>,
    /// The number of connections of each reactor.
    connections: Vec<AtomicU32>,
    /// The number of these that are I/O queues, or may become I/O queues.
    workers: Vec<AtomicU32>,
    /// The loads of the reactors; `None` if connections stay where they are.
    balance: Option<Mutex<pace::Balance>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    started: Instant,
    /// Lines for the user that [`Target::take_warnings`] has not taken yet.
    warnings: Mutex<Vec<String>>,
    /// True if a host has one controller at most on each listener of a subsystem.
    restricts_hosts: AtomicBool,
    /// True once the target has let in a host with an odd name and has told the user.
    warned_of_host_name: AtomicBool,
    /// The uptime before which the target tells of no host that proves no key of TLS.
    quiet_of_tls_until_ns: AtomicU64,
    /// The board that `plimsoll top` reads; `None` if the target does not publish one.
    board: Option<::live::Board>,
}

impl Shared {
    fn controllers(&self) -> MutexGuard<'_, Controllers> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn configuration(&self) -> MutexGuard<'_, Arc<Configuration>> {
        self.configuration.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stack of RDMA, which is opened if it is not yet.
    ///
    /// # Errors
    /// The library that is missing.
    fn verbs(&self) -> Result<Either, Error> {
        if let Some(verbs) = self.verbs.get() {
            return Ok(verbs.clone());
        }
        let rdma = verbs::Rdma::open()
            .map_err(|error| Error::invalid(format!("cannot serve over RDMA: {error}; TCP needs no such library")))?;
        Ok(self.verbs.get_or_init(|| Either::Rdma(rdma)).clone())
    }

    fn authenticator(&self) -> Option<Arc<dyn Authenticator>> {
        self.authenticator.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Warns the user, once, of a host without a name of the standard's form: limits and statistics take all hosts that
    /// give the same name for one, and access lists cannot name such hosts.
    fn warn_of_host_name(&self, name: &Nqn, peer: Option<SocketAddr>) {
        if self.warned_of_host_name.swap(true, Ordering::Relaxed) {
            return;
        }
        let from = peer.map(|peer| format!(" at {}", peer.ip())).unwrap_or_default();
        let what = match name.as_str() {
            "" => "gives no name (HOSTNQN is empty)".to_string(),
            name => format!("gives {name:?}, which is not an NVMe qualified name"),
        };
        self.warn(format!(
            "a host{from} {what}: let in as one of any hosts; --allow-host and keys need well-formed names; not told again"
        ));
    }

    /// Tells the user, now and then, of a host that has proven no key of TLS.
    fn warn_of_tls(&self, peer: Option<SocketAddr>, listener: SocketAddr, why: &str) {
        let now_ns = self.uptime_ns();
        let quiet = &self.quiet_of_tls_until_ns;
        let is_over = |until: u64| (now_ns >= until).then_some(now_ns + BETWEEN_TLS_LINES_NS);
        if quiet.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_over).is_err() {
            return;
        }
        let from = peer.map(|peer| format!(" at {}", peer.ip())).unwrap_or_default();
        self.warn(format!(
            "a host{from} was refused on {listener}: {why} (it begins without TLS, or its key is not the one that this \
             target has for its NQN and the subsystem); told at most every {} s",
            BETWEEN_TLS_LINES_NS / 1_000_000_000
        ));
    }

    /// Adds a line for the user. Beyond a hundred that nobody has taken, and beside an equal one, it is dropped: hosts
    /// bring about lines, too.
    fn warn(&self, line: String) {
        let mut warnings = self.warnings();
        if warnings.len() < 100 && !warnings.contains(&line) {
            warnings.push(line);
        }
    }

    fn warnings(&self) -> MutexGuard<'_, Vec<String>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, reactor: u32, message: Message) {
        if let Some(mailbox) = self.mailboxes.get(reactor as usize) {
            mailbox.send(message);
        }
    }

    /// Sends each reactor a message with a way to answer, and waits for the answers; the answers of reactors that have
    /// ended are missing.
    fn ask_all<T>(&self, message: impl Fn(mpsc::Sender<T>) -> Message) -> Vec<T> {
        let ask = |mailbox: &Mailbox| {
            let (sender, answer) = mpsc::channel();
            mailbox.send(message(sender));
            answer
        };
        let answers: Vec<_> = self.mailboxes.iter().map(ask).collect();
        answers.into_iter().filter_map(|answer| answer.recv().ok()).collect()
    }

    fn ask(&self, reactor: u32, message: impl Fn(mpsc::Sender<()>) -> Message) {
        let (sender, answer) = mpsc::channel();
        self.send(reactor, message(sender));
        let _ = answer.recv();
    }

    /// Chooses the reactor with the fewest I/O queues for a new connection, and among equals the one with the fewest
    /// connections; counts the connection there. Admin queues do not count: every second connection of a host with one
    /// I/O queue is an admin queue, and has hardly any work. Returns `None` at the limit of connections.
    fn place_connection(&self) -> Option<u32> {
        let count = |counts: &[AtomicU32], reactor: usize| counts[reactor].load(Ordering::Relaxed);
        let total: u64 = (0..self.connections.len()).map(|reactor| u64::from(count(&self.connections, reactor))).sum();
        if total >= self.most_connections.into() {
            return None;
        }
        let load = |reactor: &usize| (count(&self.workers, *reactor), count(&self.connections, *reactor));
        let least = (0..self.connections.len()).min_by_key(load)?;
        self.connections[least].fetch_add(1, Ordering::Relaxed);
        self.workers[least].fetch_add(1, Ordering::Relaxed);
        Some(least as u32)
    }

    /// Notes that a connection has become an admin queue.
    fn connection_is_admin(&self, reactor: u32) {
        self.workers[reactor as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that an I/O queue moves.
    fn connection_moves(&self, from: u32, to: u32) {
        for counts in [&self.connections, &self.workers] {
            counts[from as usize].fetch_sub(1, Ordering::Relaxed);
            counts[to as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn connection_closed(&self, reactor: u32, is_admin: bool) {
        self.connections[reactor as usize].fetch_sub(1, Ordering::Relaxed);
        if !is_admin {
            self.workers[reactor as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Tells the host of a controller that something happened.
    fn raise(&self, controller: &controller::Controller, event: AsyncEvent, namespaces: &[u32]) {
        if controller.raise(event, namespaces.iter().copied()) {
            let admin = controller.lock().admin;
            self.send(admin.reactor, Message::Events(admin));
        }
    }

    /// Notifies the controllers of a host of what happened to its reservation of a namespace.
    fn notify(&self, service: Service, host: &HostId, nsid: u32, notice: Notice) {
        let controllers = self.controllers();
        for controller in controllers.iter().filter(|it| it.service == service && it.host_id == *host) {
            if controller.note(nsid, notice) {
                let admin = controller.lock().admin;
                self.send(admin.reactor, Message::Events(admin));
            }
        }
    }

    fn uptime_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

fn check_queues(queues: u16) -> Result<(), Error> {
    match queues {
        1..=64 => Ok(()),
        _ => Err(Error::invalid(format!("{queues} I/O queues per controller: give 1 to 64"))),
    }
}

fn check(options: &mut Options) -> Result<(), Error> {
    let fail = |line: String| Err(Error::invalid(line));
    if !(1..=256).contains(&options.reactors) {
        return fail(format!("{} reactors: give 1 to 256", options.reactors));
    }
    if !options.cpus.is_empty() && options.cpus.len() != options.reactors {
        let (cpus, reactors) = (options.cpus.len(), options.reactors);
        return fail(format!("{cpus} processors for {reactors} reactors: give one for each, or none"));
    }
    if options.in_capsule_bytes > 64 << 10 || !options.in_capsule_bytes.is_multiple_of(16) {
        let bytes = options.in_capsule_bytes;
        return fail(format!("{bytes} bytes of in-capsule data: give a multiple of 16 up to 65536"));
    }
    if !(16..=65_536).contains(&options.receives) {
        return fail(format!("{} receives for RDMA: give 16 to 65536", options.receives));
    }
    let limits = &options.limits;
    check_queues(limits.queues)?;
    if !(2..=4096).contains(&limits.admin_queue_depth) {
        return fail(format!("{} entries per admin queue: give 2 to 4096", limits.admin_queue_depth));
    }
    if !(2..=4096).contains(&limits.queue_depth) {
        return fail(format!("{} entries per queue: give 2 to 4096", limits.queue_depth));
    }
    options.max_io_bytes = pacing::largest_io(options)?;
    Ok(())
}

/// A socket that listens, and its address.
fn bind(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpListener::bind(address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

impl Target {
    /// A target without devices, subsystems or listeners, its reactors running.
    ///
    /// # Errors
    /// Options that make no sense; threads, event descriptors or rings that the system refuses.
    pub fn start(mut options: Options) -> Result<Target, Error> {
        check(&mut options)?;
        // A descriptor for every connection, and some for files.
        sys::file::raise_descriptor_limit(u64::from(options.limits.connections) + 1024);
        let mut mailboxes = Vec::new();
        let mut ends = Vec::new();
        for _ in 0..options.reactors {
            let (mailbox, messages, wake) = Mailbox::new().map_err(|e| Error::system("eventfd", e))?;
            mailboxes.push(mailbox);
            ends.push((messages, wake));
        }
        let shared = Arc::new(Shared {
            most_connections: options.limits.connections,
            configuration: Mutex::default(),
            controllers: Mutex::default(),
            authenticator: RwLock::default(),
            security: Security::default(),
            verbs: OnceLock::new(),
            examiner: Examiner::default(),
            registrar: Registrar::default(),
            management: Management::default(),
            stragglers: Stragglers::default(),
            work: Published::new(options.reactors),
            mailboxes,
            connections: (0..options.reactors).map(|_| AtomicU32::new(0)).collect(),
            workers: (0..options.reactors).map(|_| AtomicU32::new(0)).collect(),
            balance: (options.balances && options.reactors > 1)
                .then(|| Mutex::new(pace::Balance::new(options.reactors))),
            threads: Mutex::default(),
            started: Instant::now(),
            warnings: Mutex::default(),
            restricts_hosts: AtomicBool::new(false),
            warned_of_host_name: AtomicBool::new(false),
            quiet_of_tls_until_ns: AtomicU64::new(0),
            board: live::board(options.publish),
        });
        let options = Arc::new(options);
        let configuration = Arc::new(Configuration::of(Arc::clone(&options)));
        *shared.configuration() = Arc::clone(&configuration);
        let target = Target { shared };
        for (index, (messages, wake)) in ends.into_iter().enumerate() {
            let (shared, configuration) = (Arc::clone(&target.shared), Arc::clone(&configuration));
            let cpu = options.cpus.get(index).copied();
            let (started, outcome) = mpsc::channel();
            // The reactor is made on the thread that will run it: rings and devices belong to a thread.
            let body = move || {
                let _vital = Vital(format!("reactor {index}"));
                let pinned = cpu.map_or(Ok(()), |cpu| sys::process::set_affinity(&[cpu]));
                let reactor = pinned
                    .map_err(|e| {
                        Error::system(format!("reactor {index} cannot run on processor {}", cpu.unwrap_or(0)), e)
                    })
                    .and_then(|()| Reactor::new(shared, index as u32, configuration, messages, wake));
                match reactor {
                    Ok(reactor) => {
                        let _ = started.send(Ok(()));
                        reactor.run();
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            };
            // SPDK's scripts look for the thread by the number of its processor.
            let name = format!("reactor_{}", target.processor(index));
            let thread = std::thread::Builder::new().name(name).spawn(body);
            let outcome = match thread {
                Ok(thread) => {
                    target.threads().push(thread);
                    outcome.recv().unwrap_or_else(|_| Err(Error::invalid("a reactor ended as it started")))
                }
                Err(error) => Err(Error::system("cannot start a thread", error)),
            };
            if let Err(error) = outcome {
                target.stop();
                return Err(error);
            }
        }
        Ok(target)
    }

    /// The processor of a reactor by number; the number itself for a reactor that may run on any.
    pub(crate) fn processor(&self, reactor: usize) -> u32 {
        self.options().cpus.get(reactor).map_or(reactor as u32, |cpu| *cpu)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Stop);
        }
        for thread in self.threads().drain(..) {
            let _ = thread.join();
        }
    }

    /// Changes a copy of the configuration and puts it in force everywhere, if `change` succeeds.
    fn change<T>(&self, change: impl FnOnce(&mut Configuration) -> Result<T, Error>) -> Result<T, Error> {
        let mut current = self.shared.configuration();
        let mut new = Configuration::clone(&current);
        let result = change(&mut new)?;
        new.settle();
        let discovery_changed = new.generation != current.generation;
        let new = Arc::new(new);
        let outcomes = self.shared.ask_all(|done| Message::Configure(Arc::clone(&new), done));
        if let Some(error) = outcomes.into_iter().find_map(Result::err) {
            // All reactors go back to the configuration from before: half a change must not stay in force.
            self.shared.ask_all(|done| Message::Configure(Arc::clone(&current), done));
            return Err(error);
        }
        *current = new;
        drop(current);
        if discovery_changed {
            self.raise(Service::Discovery, &Audience::default(), AsyncEvent::DISCOVERY_CHANGED, &[]);
        }
        Ok(result)
    }

    /// Tells those hosts of a service that something happened.
    fn raise(&self, service: Service, to: &Audience, event: AsyncEvent, namespaces: &[u32]) {
        let controllers = self.shared.controllers();
        let told = |controller: &&Arc<controller::Controller>| {
            controller.service == service && to.includes(controller.host_nqn.as_str())
        };
        for controller in controllers.iter().filter(told) {
            self.shared.raise(controller, event, namespaces);
        }
    }

    fn namespaces_changed(&self, namespaces: &[ChangedNamespace]) {
        for ChangedNamespace { subsystem, nsid, hosts } in namespaces {
            self.raise(Service::Subsystem(*subsystem), hosts, AsyncEvent::NAMESPACE_CHANGED, &[*nsid]);
        }
    }

    /// Tells the hosts of paths that these have changed. Returns the ops that devices have of those paths which refuse
    /// commands by now.
    fn paths_changed(&self, changed: ChangedPaths) -> Departure {
        let ChangedPaths { paths, audiences } = changed;
        let departure = self.departure(Leaving::Paths(paths));
        let controllers = self.shared.controllers();
        let is_told = |controller: &&Arc<controller::Controller>| {
            paths.include(controller)
                && audiences.iter().any(|audience| audience.includes(controller.host_nqn.as_str()))
        };
        for controller in controllers.iter().filter(is_told) {
            self.shared.raise(controller, AsyncEvent::ANA_CHANGED, &[]);
        }
        departure
    }

    /// The ops that devices have and that leave.
    fn departure(&self, leaving: Leaving) -> Departure {
        let (left, departure) = mpsc::channel();
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Depart(leaving.clone(), left.clone()));
        }
        Departure(vec![departure])
    }

    /// The options that the target runs with, `max_io_bytes` as reduced by the budget.
    pub fn options(&self) -> Arc<Options> {
        Arc::clone(&self.shared.configuration().options)
    }

    /// Exchanges the options that concern the transport: pacing, sizes, queues, optional commands and times. Reactors,
    /// their processors, the limits on connections and on guests, and `publish` stay as the target was started with.
    ///
    /// # Errors
    /// Options that make no sense; `Busy` if the target listens, or a host is connected.
    pub fn set_options(&self, mut options: Options) -> Result<(), Error> {
        let now = self.options();
        let limits = Limits { connections: now.limits.connections, guests: now.limits.guests, ..options.limits };
        options = Options { limits, publish: now.publish, cpus: now.cpus.clone(), ..options };
        (options.reactors, options.poll, options.balances) = (now.reactors, now.poll, now.balances);
        check(&mut options)?;
        self.change(|configuration| configuration.set_options(options))
    }

    /// The I/O queues that a controller gets now.
    pub fn queues(&self) -> u16 {
        self.shared.configuration().queues
    }

    /// Limits the I/O queues of controllers, 1 to 64, also while the target listens. A host that is connected keeps its
    /// queues, and gets the new number when it resets its controller or connects again.
    ///
    /// # Errors
    /// `Invalid` for another number.
    pub fn set_queues(&self, queues: u16) -> Result<(), Error> {
        check_queues(queues)?;
        self.change(|configuration| {
            configuration.set_queues(queues);
            Ok(())
        })
    }

    /// Creates a device.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (the base), `Busy` (the base belongs to a namespace or is claimed whole), `Invalid` sizes,
    /// `System`, `Full`: more memory than the machine has left, or too many devices.
    pub fn create_device(&self, spec: DeviceSpec) -> Result<DeviceInfo, Error> {
        self.change(|configuration| configuration.create_device(spec))
    }

    /// Creates all of the devices, or none of them.
    ///
    /// # Errors
    /// The error of the first device that cannot be created, as from [`Target::create_device`].
    pub fn create_devices(&self, specs: impl Iterator<Item = DeviceSpec>) -> Result<Vec<DeviceInfo>, Error> {
        self.change(|configuration| specs.map(|spec| configuration.create_device(spec)).collect())
    }

    /// Deletes a device. Namespaces on it are removed first, as by [`Target::remove_namespace`]. Returns the ops that
    /// the device still has; a faulty device ends those that would never end.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while another device is stacked on it.
    pub fn delete_device(&self, name: &str) -> Result<Departure, Error> {
        let entry = Arc::clone(self.shared.configuration().device(name)?);
        let (removed, leaving) = self.change(|configuration| configuration.delete_device(name))?;
        entry.device.set_faults(&[]);
        self.namespaces_changed(&removed);
        Ok(self.departure(leaving))
    }

    /// Changes the capacity; hosts are told that the namespace changed. For files `bytes` of `None` takes up the file's
    /// present size, and a number sets it.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for sizes that are not a whole number of blocks, and for slices; `System`.
    pub fn resize_device(&self, name: &str, bytes: Option<u64>) -> Result<DeviceInfo, Error> {
        let configuration = self.shared.configuration();
        let entry = configuration.device(name)?;
        if let Some(bytes) = bytes
            && (bytes == 0 || !bytes.is_multiple_of(u64::from(entry.device.block_bytes())) || bytes > 1 << 60)
        {
            let block = entry.device.block_bytes();
            return Err(Error::invalid(format!("device {name}: {bytes} bytes are not whole blocks of {block} bytes")));
        }
        if let Some(bytes) = bytes {
            configuration.check_growth(name, bytes)?;
        }
        entry.device.resize(bytes)?;
        let (info, changed) = (configuration.device_info(entry), configuration.namespaces_on(name));
        drop(configuration);
        self.namespaces_changed(&changed);
        Ok(info)
    }

    /// Changes the latencies of a delay device, for ops that arrive from now on.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the device is of another kind.
    pub fn set_latency(&self, name: &str, latency: Latency) -> Result<(), Error> {
        let configuration = self.shared.configuration();
        match configuration.device(name)?.device.set_latency(latency) {
            true => Ok(()),
            false => Err(Error::invalid(format!("device {name} is not a delay device"))),
        }
    }

    /// Replaces the faults of a faulty device; an empty list clears them, and ends the ops that never end.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if the device is of another kind.
    pub fn set_faults(&self, name: &str, faults: &[Fault]) -> Result<(), Error> {
        let configuration = self.shared.configuration();
        if !configuration.device(name)?.device.set_faults(faults) {
            return Err(Error::invalid(format!("device {name} injects no faults: stack a faulty device on it")));
        }
        // Reactors look at their devices when a message comes.
        self.shared.ask_all(|done| Message::Configure(Arc::clone(&configuration), done));
        Ok(())
    }

    /// Limits what hosts do with a device, on all reactors together; rates without a limit end the limit.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_rates(&self, name: &str, rates: pace::Rates) -> Result<(), Error> {
        let configuration = self.shared.configuration();
        configuration.device(name)?.limit.set(rates);
        // Reactors look at what they hold when a message comes.
        self.shared.ask_all(|done| Message::Configure(Arc::clone(&configuration), done));
        Ok(())
    }

    /// Changes the counters of a device, or of all devices.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn change_stats(&self, name: Option<&str>, change: StatsChange) -> Result<(), Error> {
        let configuration = self.shared.configuration();
        let devices: Arc<[u64]> = match name {
            Some(name) => [configuration.device(name)?.uid].into(),
            None => configuration.devices.iter().map(|entry| entry.uid).collect(),
        };
        if let StatsChange::CountLatencies(counts) = change {
            let changed = configuration.devices.iter().filter(|entry| devices.contains(&entry.uid));
            changed.for_each(|entry| entry.counts_latencies.store(counts, Ordering::Relaxed));
        }
        self.shared.ask_all(|done| Message::ChangeStats(Arc::clone(&devices), change, done));
        Ok(())
    }

    /// All devices in order of creation.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let configuration = self.shared.configuration();
        configuration.devices.iter().map(|entry| configuration.device_info(entry)).collect()
    }

    /// Creates a subsystem.
    ///
    /// # Errors
    /// `Exists`; `Invalid` for an NQN, serial or model that the standard does not allow.
    pub fn create_subsystem(&self, spec: SubsystemSpec) -> Result<(), Error> {
        self.change(|configuration| configuration.create_subsystem(spec))
    }

    /// Deletes a subsystem; its hosts are disconnected. Ports on which nothing else is reached are closed. Returns the
    /// ops that devices still have of its hosts.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn delete_subsystem(&self, nqn: &str) -> Result<Departure, Error> {
        let listeners = self.shared.configuration().subsystem(nqn)?.listeners.clone();
        for address in listeners {
            drop(self.remove_listener(nqn, address)?); // among those of the subsystem
        }
        let leaving = self.change(|configuration| configuration.delete_subsystem(nqn))?;
        Ok(self.departure(leaving))
    }

    /// All subsystems in order of creation, without the discovery service.
    pub fn subsystems(&self) -> Vec<SubsystemInfo> {
        let configuration = self.shared.configuration();
        let controllers = self.shared.controllers();
        let of = |uid: u64| {
            let mine = controllers.iter().filter(move |it| it.service == Service::Subsystem(uid));
            mine.map(|controller| controller.info())
        };
        let info = |subsystem: &configuration::Subsystem| SubsystemInfo {
            spec: subsystem.spec.clone(),
            namespaces: subsystem.namespaces.values().map(|namespace| namespace.spec.clone()).collect(),
            listeners: subsystem.listeners.clone(),
            ana_states: subsystem.ana.iter().map(|(address, states)| (*address, states.states().collect())).collect(),
            ana_wanted: subsystem.ana.iter().map(|(address, states)| (*address, states.wanted().collect())).collect(),
            secured: subsystem.listeners.iter().filter(|it| configuration.secured.contains_key(it)).copied().collect(),
            hosts: subsystem.hosts.iter().map(ToString::to_string).collect(),
            managers: subsystem.managers.iter().map(ToString::to_string).collect(),
            controllers: of(subsystem.uid).collect(),
        };
        configuration.subsystems.iter().map(info).collect()
    }

    /// Adds a namespace and tells the connected hosts that see it. Returns the number of the namespace.
    ///
    /// # Errors
    /// `NotFound` (subsystem or device), `Exists` (the number), `Busy` (the device is claimed), `Full`.
    pub fn add_namespace(&self, nqn: &str, namespace: NamespaceSpec) -> Result<u32, Error> {
        let added = self.change(|configuration| configuration.add_namespace(nqn, namespace))?;
        let nsid = added.nsid;
        self.namespaces_changed(&[added]);
        Ok(nsid)
    }

    /// Removes a namespace: commands that the pacer holds for it fail; connected hosts are told. Returns the ops that
    /// its device still has.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<Departure, Error> {
        let (removed, leaving) = self.change(|configuration| configuration.remove_namespace(nqn, nsid))?;
        self.namespaces_changed(&[removed]);
        Ok(self.departure(leaving))
    }

    /// Shows a namespace to a host, or hides it: the commands of the host that the pacer holds for it fail then. A host
    /// that is connected is told. Returns the ops that the device still has of a host from which it is hidden.
    ///
    /// # Errors
    /// `NotFound` (subsystem or namespace); `Invalid` if every host sees the namespace, and for an NQN against the
    /// standard.
    pub fn show_namespace(&self, nqn: &str, nsid: u32, host_nqn: &str, shows: bool) -> Result<Departure, Error> {
        let change = |new: &mut Configuration| new.show_namespace(nqn, nsid, host_nqn, shows);
        let (changed, leaving) = self.change(change)?;
        self.namespaces_changed(changed.as_slice());
        Ok(self.departure(leaving))
    }

    /// Attaches a namespace to hosts, or detaches it, for all of their controllers from now on, and tells the hosts
    /// that see the namespace. A namespace that is detached from a host is inactive for it: the host's commands that no
    /// device has by then fail.
    ///
    /// # Errors
    /// `NotFound` (subsystem or namespace); `Invalid` for an NQN against the standard; `Full` if the namespace is
    /// detached from too many hosts.
    pub fn attach_namespace(
        &self,
        nqn: &str,
        nsid: u32,
        host_nqns: &BTreeSet<String>,
        attaches: bool,
    ) -> Result<Departure, Error> {
        let change = |new: &mut Configuration| new.attach_namespace(nqn, nsid, host_nqns, attaches);
        let (changed, leaving) = self.change(change)?;
        self.namespaces_changed(&changed);
        Ok(self.departure(leaving))
    }

    /// Lets a host manage the namespaces of a subsystem (Base specification 2.0, section 8.12), or stops that. A host
    /// that is connected learns of it with its next controller. Returns true if that changes anything.
    ///
    /// # Errors
    /// `NotFound` (the subsystem); `Invalid` for an NQN against the standard.
    pub fn set_manager(&self, nqn: &str, host_nqn: &str, may_manage: bool) -> Result<bool, Error> {
        self.change(|configuration| configuration.set_manager(nqn, host_nqn, may_manage))
    }

    /// Sets the end of commands that manage namespaces; without it, they fail.
    pub fn set_namespace_manager(&self, manager: Arc<dyn NamespaceManager>) {
        self.shared.management.set(manager);
    }

    /// Sets the ANA state of a group of namespaces, or of all groups, on one listener, and tells the hosts that came in
    /// on it. A state that refuses commands is in force for every command that no device has by then.
    ///
    /// # Errors
    /// `NotFound` (subsystem or listener); `Invalid` if the subsystem does not report ANA states, or has no such group.
    pub fn set_ana_state(
        &self,
        nqn: &str,
        listener: impl Into<Portal>,
        group: Option<u32>,
        state: AnaState,
    ) -> Result<Departure, Error> {
        let changed = self.change(|configuration| configuration.set_ana_state(nqn, listener.into(), group, state))?;
        Ok(self.paths_changed(changed))
    }

    /// The devices that are shared with other processes, by uid.
    pub(crate) fn shared_devices(&self) -> Vec<(u64, Arc<dyn Device>)> {
        let configuration = self.shared.configuration();
        let shared = configuration.devices.iter().filter(|entry| entry.device.shared().is_some());
        shared.map(|entry| (entry.uid, Arc::clone(&entry.device))).collect()
    }

    /// True if hosts are to reach a shared device; `None` if the device is not there any more.
    pub(crate) fn wants_device(&self, uid: u64) -> Option<bool> {
        self.shared.configuration().is_wanted(uid)
    }

    /// Opens the paths to a shared device that this process has taken: with its present size and reservations.
    ///
    /// # Errors
    /// The size or the reservations cannot be read.
    pub(crate) fn device_taken(&self, uid: u64) -> Result<(), Error> {
        let entry = self.shared.configuration().devices.iter().find(|entry| entry.uid == uid).map(Arc::clone);
        let Some(entry) = entry else { return Ok(()) };
        entry.device.resize(None)?;
        let changed = self.change(|configuration| configuration.set_held(uid, true)).inspect_err(|_| {
            entry.held.store(false, Ordering::Relaxed);
        })?;
        let namespaces = self.shared.configuration().namespaces_on(&entry.spec.name);
        self.namespaces_changed(&namespaces);
        changed.into_iter().for_each(|paths| drop(self.paths_changed(paths)));
        Ok(())
    }

    /// Closes the paths to a shared device. Returns the ops that the device still has.
    pub(crate) fn device_left(&self, uid: u64) -> Departure {
        match self.change(|configuration| configuration.set_held(uid, false)) {
            Ok(changed) => changed.into_iter().for_each(|paths| drop(self.paths_changed(paths))),
            Err(error) => self.shared.warn(format!("a shared device: {error}")),
        }
        self.departure(Leaving::Device(uid))
    }

    /// Moves a namespace to another ANA group, and tells the hosts that see it.
    ///
    /// # Errors
    /// `NotFound` (subsystem or namespace); `Invalid` if the subsystem does not report ANA states, or has no such
    /// group.
    pub fn set_ana_group(&self, nqn: &str, nsid: u32, group: u32) -> Result<Departure, Error> {
        let changed = self.change(|configuration| configuration.set_ana_group(nqn, nsid, group))?;
        Ok(self.paths_changed(changed))
    }

    /// Succeeds if the target can serve over RDMA: the library is there. The listener tells if the device is.
    ///
    /// # Errors
    /// The library that is missing.
    pub fn check_rdma(&self) -> Result<(), Error> {
        self.shared.verbs().map(drop)
    }

    /// Has the target use a stack of RDMA other than this machine's, such as the one in memory for tests. It has no
    /// effect once the target listens on RDMA.
    pub fn use_verbs(&self, verbs: Either) {
        let _ = self.shared.verbs.set(verbs);
    }

    /// Makes the subsystem (and discovery) reachable on `address`. Returns the address, with a port that the system
    /// chose if the given one was 0.
    ///
    /// # Errors
    /// `NotFound`; `Exists` if the subsystem has the listener; `System` when the address cannot be bound.
    pub fn add_listener(&self, nqn: &str, address: SocketAddr) -> Result<SocketAddr, Error> {
        self.listen(nqn, address.into(), None, AnaState::Optimized)
    }

    /// As [`Target::add_listener`], over RDMA: the address is one of an RDMA device.
    ///
    /// # Errors
    /// Those of [`Target::add_listener`]; `Invalid` without rdma-core.
    pub fn add_rdma_listener(&self, nqn: &str, address: SocketAddr) -> Result<SocketAddr, Error> {
        self.listen(nqn, Portal::rdma(address), None, AnaState::Optimized)
    }

    /// As [`Target::add_listener`], for hosts that prove a key of [`Target::set_tls_keys`] and speak TLS 1.3. All
    /// subsystems on an address have the same demand.
    ///
    /// # Errors
    /// Those of [`Target::add_listener`]; `Invalid` if OpenSSL 3 is not there.
    pub fn add_secure_listener(
        &self,
        nqn: &str,
        address: SocketAddr,
        demand: SecureChannel,
    ) -> Result<SocketAddr, Error> {
        self.listen(nqn, address.into(), Some(demand), AnaState::Optimized)
    }

    /// As [`Target::add_listener`] without `secured`, and as [`Target::add_secure_listener`] with it. All ANA groups
    /// have that state on the listener, if the subsystem reports it.
    ///
    /// # Errors
    /// Those of [`Target::add_listener`] and of [`Target::add_secure_listener`].
    pub fn listen(
        &self,
        nqn: &str,
        portal: Portal,
        secured: Option<SecureChannel>,
        ana_state: AnaState,
    ) -> Result<SocketAddr, Error> {
        if secured.is_some() && portal.transport == TransportType::Rdma {
            return Err(Error::invalid("TLS is TCP's: over RDMA hosts prove themselves by DH-HMAC-CHAP (dhchap_key)"));
        }
        if secured.is_some() {
            self.shared.security.prepare()?;
        }
        let mut configuration = Configuration::clone(&self.shared.configuration());
        configuration.listeners_mut(nqn)?;
        let is_new = !configuration.listens(portal);
        if !is_new {
            self.change(|configuration| configuration.add_listener(nqn, portal, secured, ana_state))?;
            return Ok(portal.address);
        }
        match portal.transport {
            TransportType::Tcp => {
                let (socket, address) =
                    bind(portal.address).map_err(|e| Error::system(format!("cannot listen on {portal}"), e))?;
                let portal = Portal::from(address);
                self.change(|configuration| configuration.add_listener(nqn, portal, secured, ana_state))?;
                let socket = Mutex::new(Some(socket));
                self.shared.ask(0, |done| match socket.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    Some(socket) => Message::Listen(address, socket, done),
                    None => Message::Unlisten(portal, done),
                });
                Ok(address)
            }
            TransportType::Rdma => {
                self.shared.verbs()?;
                let (sender, answer) = mpsc::channel();
                self.shared.send(0, Message::ListenRdma(portal.address, sender));
                let bound = answer.recv().map_err(|_| Error::invalid("the target has ended"))?;
                let address = bound.map_err(|e| transport::cannot_listen(portal, e))?;
                let portal = Portal::rdma(address);
                let added = self.change(|configuration| configuration.add_listener(nqn, portal, secured, ana_state));
                if added.is_err() {
                    self.shared.ask(0, |done| Message::Unlisten(portal, done));
                }
                added.map(|()| address)
            }
        }
    }

    /// Makes the subsystem unreachable on `address`; connections that came in on it end. The port is closed with its
    /// last subsystem. Returns the ops that devices still have of these connections.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove_listener(&self, nqn: &str, address: impl Into<Portal>) -> Result<Departure, Error> {
        let portal = address.into();
        let (is_used, leaving) = self.change(|configuration| configuration.remove_listener(nqn, portal))?;
        if !is_used {
            self.shared.ask(0, |done| Message::Unlisten(portal, done));
        }
        Ok(leaving.map_or_else(Departure::default, |leaving| self.departure(leaving)))
    }

    /// The addresses on which the discovery service is reachable, in order: its own addresses, and the addresses of all
    /// subsystems.
    pub fn discovery_listeners(&self) -> Vec<Portal> {
        let mut listeners: Vec<Portal> = self.shared.configuration().all_listeners().collect();
        listeners.sort();
        listeners.dedup();
        listeners
    }

    /// Names another discovery service to hosts that ask this one; connected hosts are told.
    ///
    /// # Errors
    /// `Exists`.
    pub fn add_referral(&self, referral: Referral) -> Result<(), Error> {
        self.change(|configuration| configuration.add_referral(referral))
    }

    /// Stops naming another discovery service to hosts; connected hosts are told.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove_referral(&self, referral: &Referral) -> Result<(), Error> {
        self.change(|configuration| configuration.remove_referral(referral))
    }

    /// The discovery services that this one names, in order of addition.
    pub fn referrals(&self) -> Vec<Referral> {
        self.shared.configuration().referrals.clone()
    }

    /// Lets a host connect to a subsystem.
    ///
    /// # Errors
    /// `NotFound` (the subsystem), `Exists`, `Invalid` NQN.
    pub fn add_host(&self, nqn: &str, host_nqn: &str) -> Result<(), Error> {
        self.change(|configuration| configuration.add_host(nqn, host_nqn))
    }

    /// Stops letting a host connect to a subsystem, and closes its connections there unless the subsystem lets any host
    /// in. Returns the ops that devices still have of the host.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove_host(&self, nqn: &str, host_nqn: &str) -> Result<Departure, Error> {
        let subsystem = self.change(|configuration| configuration.remove_host(nqn, host_nqn))?;
        let stays = self.shared.configuration().subsystem(nqn).is_ok_and(|subsystem| subsystem.spec.allow_any_host);
        if stays {
            return Ok(Departure::default());
        }
        let host: Arc<str> = host_nqn.into();
        // After this, an I/O queue that is on its way to another reactor finds no controller there.
        self.shared.ask_all(|done| Message::Disconnect(subsystem, Arc::clone(&host), done));
        let hosts = Arc::new([host_nqn.to_string()].into());
        Ok(self.departure(Leaving::Hosts { subsystem, device: None, hosts }))
    }

    /// Lets every host in, or only those listed from now on; connections stay.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn allow_any_host(&self, nqn: &str, allow: bool) -> Result<(), Error> {
        self.change(|configuration| configuration.allow_any_host(nqn, allow))
    }

    /// Asks for the move of an I/O queue to another reactor. The queue moves when its commands have ended, and stays if
    /// that takes longer than 10 ms; [`QueueInfo::reactor`] tells. [`Options::balances`] does this by itself.
    ///
    /// # Errors
    /// `NotFound` (the subsystem, its controller, or the queue); `Invalid` reactor.
    pub fn move_queue(&self, nqn: &str, controller_id: u16, queue_id: u16, reactor: u32) -> Result<(), Error> {
        let reactors = self.shared.mailboxes.len();
        if reactor as usize >= reactors {
            return Err(Error::invalid(format!("reactor {reactor}: there are {reactors}, from 0 on")));
        }
        let uid = self.shared.configuration().subsystem(nqn)?.uid;
        let controllers = self.shared.controllers();
        let controller = controllers.get(Service::Subsystem(uid), controller_id);
        let queue = controller.and_then(|controller| controller.lock().queues.get(&queue_id).copied());
        let Some(queue) = queue else {
            let what = format!("there is no queue {queue_id} of controller {controller_id} of {nqn}");
            return Err(Error::new(ErrorKind::NotFound, what));
        };
        self.shared.send(queue.token.reactor, Message::Leave(queue.token, reactor));
        Ok(())
    }

    /// Lets a host have one controller at most on each listener of a subsystem, or any number; for controllers from now
    /// on.
    pub fn restrict_hosts(&self, restricts: bool) {
        self.shared.restricts_hosts.store(restricts, Ordering::Relaxed);
    }

    /// Sets the keys that hosts may prove on listeners that demand TLS, for connections from now on.
    pub fn set_tls_keys(&self, find: tls::Find) {
        self.shared.security.set_keys(find);
    }

    /// Sets the authenticator that says which hosts must authenticate, for connections from now on; `None` for nobody.
    pub fn set_authenticator(&self, authenticator: Option<Arc<dyn Authenticator>>) {
        *self.shared.authenticator.write().unwrap_or_else(PoisonError::into_inner) = authenticator;
    }

    /// The warnings for the user since the last call, one line each.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.warnings())
    }

    /// All counters at this moment. A call costs each reactor some microseconds.
    pub fn stats(&self) -> Stats {
        let reports = self.shared.ask_all(Message::Report);
        let configuration = Arc::clone(&self.shared.configuration());
        let mut devices: Vec<DeviceStats> = configuration
            .devices
            .iter()
            .map(|entry| DeviceStats { name: entry.spec.name.clone(), ..DeviceStats::default() })
            .collect();
        let mut hosts: Vec<HostStats> = self
            .shared
            .controllers()
            .hosts()
            .map(|(nqn, connections)| HostStats { nqn: nqn.to_string(), connections, ..HostStats::default() })
            .collect();
        let mut reactors = Vec::new();
        for mut report in reports {
            for (uid, stats) in &report.devices {
                let index = configuration.devices.iter().position(|entry| entry.uid == *uid);
                if let Some(index) = index {
                    devices[index].add(stats);
                }
            }
            for (host, stats) in hosts.iter_mut().zip(&report.hosts) {
                host.add(stats);
            }
            for (drive, mut device) in report.drives {
                let namespaces = configuration.subsystems.iter().flat_map(|subsystem| subsystem.namespaces.values());
                if let Some(namespace) = namespaces.into_iter().find(|namespace| namespace.drive == drive) {
                    device.name.clone_from(&namespace.spec.device);
                    report.reactor.pacer.devices.push(device);
                }
            }
            reactors.push(report.reactor);
        }
        Stats { at_ns: sys::clock::monotonic_ns(), uptime_ns: self.shared.uptime_ns(), reactors, devices, hosts }
    }

    /// Ends the target: it accepts nothing new, lets commands in progress finish (new ones are left to the host to
    /// repeat elsewhere), closes connections and flushes devices. The target cuts off everything that is not done after
    /// `patience`. Returns true if all ended in time.
    pub fn shutdown(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let (sender, drained) = mpsc::channel();
        for mailbox in &self.shared.mailboxes {
            mailbox.send(Message::Drain(sender.clone()));
        }
        drop(sender);
        let in_time = (0..self.shared.mailboxes.len())
            .all(|_| drained.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok());
        self.stop();
        in_time
    }
}

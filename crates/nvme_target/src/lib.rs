//! The controller's end of NVMe over TCP and RDMA: subsystems of namespaces, served by reactors, with pacing in front
//! of the devices.
//!
//! ```text
//!  control thread ── Target ── Shared { configuration, controllers } ── mailboxes ─┐
//!                                                                                   ▼
//!  socket ─► transport ─► command ─► pacing (Admission) ─► device channel ─► response ─► socket
//!            └────────────────────────── one reactor thread ──────────────────────────┘
//! ```
//!
//! A [`Target`] is a handle: every method may be called from any thread while reactors run. A change is in force on all
//! reactors when the method returns. [`device`] is the storage behind namespaces, [`journal`] the log.

#![deny(unsafe_code)]

mod admin;
mod afloat;
mod ana;
mod answer;
mod board;
mod busy;
mod calls;
mod configuration;
mod connection;
mod controller;
mod copy;
mod core;
mod departure;
pub mod device;
mod errors;
mod examiner;
mod fabrics;
mod fused;
mod gate;
mod identify;
pub mod identity;
mod io;
mod io_command;
pub mod journal;
mod latencies;
mod limited;
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
mod shared;
mod slot;
mod stats;
mod stragglers;
mod traces;
mod transport;
mod turns;
mod vital;
mod work;

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nvme::spec::AsyncEvent;

pub use crate::device::{Error, ErrorKind};
pub use configuration::{CommandLimits, Detached, NamespaceSpec, Referral, SecureChannel, SubsystemSpec, Visibility};
pub use departure::Departure;
use examiner::Examiner;
pub use latencies::{GRANULARITY, Latencies, Octaves};
pub use management::{AttachmentRequest, NamespaceManager};
pub use options::{Limits, Options};
pub use portal::{Portal, TransportType};
pub use stats::{
    ControllerInfo, DeviceInfo, DeviceStats, HostStats, ListenerStats, PacerDevice, PacerStats, QueueInfo, RdmaStats,
    ReactorStats, Stats, StatsChange, SubsystemInfo,
};

use crate::journal::Journal;
use configuration::{Audience, ChangedNamespace, ChangedPaths, Configuration, Leaving};
use controller::Service;
use mailbox::{Mailbox, Message};
use management::Management;
use reactor::Reactor;
use reservations::Registrar;
use security::Security;
use shared::Shared;
use stragglers::Stragglers;
pub use traces::Refused;
use vital::Vital;
use work::Published;

/// A running target. Clones are handles to the same target, which runs until [`Target::shutdown`].
#[derive(Clone)]
pub struct Target {
    shared: Arc<Shared>,
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
            journal: Arc::default(),
            tally: Default::default(),
            restricts_hosts: AtomicBool::new(false),
            warned_of_host_name: AtomicBool::new(false),
            board: board::board(options.publish),
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
    pub fn processor(&self, reactor: usize) -> u32 {
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

    /// The log: what hosts bring about at the target.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.shared.journal
    }

    /// Returns once every reactor has answered: none is stuck.
    pub fn wait_for_reactors(&self) {
        self.shared.ask_all(Message::Report);
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
        let subsystems = configuration.subsystems.iter();
        let listeners = subsystems.flat_map(|subsystem| subsystem.listeners.iter().copied());
        Stats {
            at_ns: sys::clock::monotonic_ns(),
            uptime_ns: self.shared.uptime_ns(),
            reactors,
            devices,
            hosts,
            listeners: self.shared.tally.all(listeners),
        }
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

//! The state that the control side and all reactors of a target share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use nvme::auth::Authenticator;
use nvme::spec::reservation::{HostId, Notice};
use nvme::spec::{AsyncEvent, Nqn};
use verbs::Either;

use super::Error;
use super::configuration::Configuration;
use super::controller::{Controller, Controllers, Service};
use super::examiner::Examiner;
use super::mailbox::{Mailbox, Message};
use super::management::Management;
use super::reservations::Registrar;
use super::security::Security;
use super::stragglers::Stragglers;
use super::traces::Tally;
use super::work::Published;
use crate::journal::{Entry, Journal, Level, network_of, quoted};

/// The state that the control side and all reactors share.
pub(super) struct Shared {
    /// TCP connections of all hosts together at most.
    pub(super) most_connections: u32,
    /// The control side holds this lock while it makes a change and all reactors take the change up; reactors never
    /// take the lock.
    pub(super) configuration: Mutex<Arc<Configuration>>,
    pub(super) controllers: Mutex<Controllers>,
    pub(super) authenticator: RwLock<Option<Arc<dyn Authenticator>>>,
    pub(super) security: Security,
    /// The stack of RDMA: opened with the first listener on RDMA.
    pub(super) verbs: OnceLock<Either>,
    pub(super) examiner: Examiner,
    pub(super) registrar: Registrar,
    pub(super) management: Management,
    pub(super) stragglers: Stragglers,
    pub(super) work: Published,
    pub(super) mailboxes: Vec<Mailbox>,
    /// The number of connections of each reactor.
    pub(super) connections: Vec<AtomicU32>,
    /// The number of these that are I/O queues, or may become I/O queues.
    pub(super) workers: Vec<AtomicU32>,
    /// The loads of the reactors; `None` if connections stay where they are.
    pub(super) balance: Option<Mutex<pace::Balance>>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) started: Instant,
    /// The log.
    pub(super) journal: Arc<Journal>,
    pub(super) tally: Tally,
    /// True if a host has one controller at most on each listener of a subsystem.
    pub(super) restricts_hosts: AtomicBool,
    /// True once the target has let in a host with an odd name and has told the user.
    pub(super) warned_of_host_name: AtomicBool,
    /// The board that `plimsoll top` reads; `None` if the target does not publish one.
    pub(super) board: Option<live::Board>,
}

impl Shared {
    pub(super) fn controllers(&self) -> MutexGuard<'_, Controllers> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn configuration(&self) -> MutexGuard<'_, Arc<Configuration>> {
        self.configuration.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stack of RDMA, which is opened if it is not yet.
    ///
    /// # Errors
    /// The library that is missing.
    pub(super) fn verbs(&self) -> Result<Either, Error> {
        if let Some(verbs) = self.verbs.get() {
            return Ok(verbs.clone());
        }
        let rdma = verbs::Rdma::open()
            .map_err(|error| Error::invalid(format!("cannot serve over RDMA: {error}; TCP needs no such library")))?;
        Ok(self.verbs.get_or_init(|| Either::Rdma(rdma)).clone())
    }

    pub(super) fn authenticator(&self) -> Option<Arc<dyn Authenticator>> {
        self.authenticator.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Warns the user, once, of a host without a name of the standard's form: limits and statistics take all hosts that
    /// give the same name for one, and access lists cannot name such hosts.
    pub(super) fn warn_of_host_name(&self, name: &Nqn, peer: Option<SocketAddr>) {
        if self.warned_of_host_name.swap(true, Ordering::Relaxed) {
            return;
        }
        self.journal.add_of(Level::Warning, network_of(peer), || {
            let from = peer.map(|peer| format!(" at {}", peer.ip())).unwrap_or_default();
            let what = match name.as_str() {
                "" => "gives no name (HOSTNQN is empty)".to_string(),
                name => format!("gives {}, which is not an NVMe qualified name", quoted(name)),
            };
            let message = format!(
                "a host{from} {what}: let in as one of any hosts; --allow-host and keys need well-formed names; not \
                 told again"
            );
            Entry::new("warning", message).with("host", name.as_str())
        });
    }

    /// Adds a warning to the log.
    pub(super) fn warn(&self, line: String) {
        self.journal.add(Level::Warning, || Entry::new("warning", line));
    }

    /// As [`Shared::warn`], of a line that a peer may bring about again and again.
    pub(super) fn warn_of(&self, peer: Option<SocketAddr>, line: String) {
        self.journal.add_of(Level::Warning, network_of(peer), || Entry::new("warning", line));
    }

    pub(super) fn send(&self, reactor: u32, message: Message) {
        if let Some(mailbox) = self.mailboxes.get(reactor as usize) {
            mailbox.send(message);
        }
    }

    /// Sends each reactor a message with a way to answer, and waits for the answers; the answers of reactors that have
    /// ended are missing.
    pub(super) fn ask_all<T>(&self, message: impl Fn(mpsc::Sender<T>) -> Message) -> Vec<T> {
        let ask = |mailbox: &Mailbox| {
            let (sender, answer) = mpsc::channel();
            mailbox.send(message(sender));
            answer
        };
        let answers: Vec<_> = self.mailboxes.iter().map(ask).collect();
        answers.into_iter().filter_map(|answer| answer.recv().ok()).collect()
    }

    pub(super) fn ask(&self, reactor: u32, message: impl Fn(mpsc::Sender<()>) -> Message) {
        let (sender, answer) = mpsc::channel();
        self.send(reactor, message(sender));
        let _ = answer.recv();
    }

    /// Chooses the reactor with the fewest I/O queues for a new connection, and among equals the one with the fewest
    /// connections; counts the connection there. Admin queues do not count: every second connection of a host with one
    /// I/O queue is an admin queue, and has hardly any work. Returns `None` at the limit of connections.
    pub(super) fn place_connection(&self) -> Option<u32> {
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
    pub(super) fn connection_is_admin(&self, reactor: u32) {
        self.workers[reactor as usize].fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that an I/O queue moves.
    pub(super) fn connection_moves(&self, from: u32, to: u32) {
        for counts in [&self.connections, &self.workers] {
            counts[from as usize].fetch_sub(1, Ordering::Relaxed);
            counts[to as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn connection_closed(&self, reactor: u32, is_admin: bool) {
        self.connections[reactor as usize].fetch_sub(1, Ordering::Relaxed);
        if !is_admin {
            self.workers[reactor as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Tells the host of a controller that something happened.
    pub(super) fn raise(&self, controller: &Controller, event: AsyncEvent, namespaces: &[u32]) {
        if controller.raise(event, namespaces.iter().copied()) {
            let admin = controller.lock().admin;
            self.send(admin.reactor, Message::Events(admin));
        }
    }

    /// Notifies the controllers of a host of what happened to its reservation of a namespace.
    pub(super) fn notify(&self, service: Service, host: &HostId, nsid: u32, notice: Notice) {
        let controllers = self.controllers();
        for controller in controllers.iter().filter(|it| it.service == service && it.host_id == *host) {
            if controller.note(nsid, notice) {
                let admin = controller.lock().admin;
                self.send(admin.reactor, Message::Events(admin));
            }
        }
    }

    pub(super) fn uptime_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

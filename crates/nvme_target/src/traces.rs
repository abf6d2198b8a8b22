//! The traces that hosts leave: lines of the log, and the counters of each listener.
//!
//! Everything here happens when a connection begins or ends, never on the way of a command.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use nvme::spec::Nqn;
use nvme::spec::fabrics::ConnectData;

use super::connection::Connection;
use super::controller::Controller;
use super::portal::Portal;
use super::shared::Shared;
use super::stats::ListenerStats;
use crate::journal::{Entry, Level, network_of, quoted};

/// The kind of a refusal, as the log and the metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// The target, or the listener, has no such subsystem.
    Subsystem,
    /// The host is not in the list of hosts.
    Host,
    /// The host has not proven its key of DH-HMAC-CHAP.
    Key,
    /// The host has not proven a key of TLS.
    Tls,
    /// There are too many connections or controllers.
    Limit,
    /// Connect asks for something that there is not.
    Connect,
}

impl Refused {
    /// All kinds, in the order of [`ListenerStats::refusals`].
    pub const ALL: [Refused; 6] =
        [Refused::Subsystem, Refused::Host, Refused::Key, Refused::Tls, Refused::Limit, Refused::Connect];

    /// The word for the kind.
    pub fn name(self) -> &'static str {
        match self {
            Refused::Subsystem => "unknown-subsystem",
            Refused::Host => "host-not-allowed",
            Refused::Key => "key",
            Refused::Tls => "tls",
            Refused::Limit => "limit",
            Refused::Connect => "invalid-connect",
        }
    }
}

/// The cause of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The host has closed the connection.
    Closed,
    /// The connection is broken.
    Broken(io::ErrorKind),
    /// The host has sent Disconnect.
    Disconnect,
    /// The host has reset its controller, or shut it down.
    Reset,
    /// The controller of an I/O queue has ended.
    ControllerEnded,
    /// The host has broken the protocol.
    Violation,
    /// The host says that this target has broken the protocol.
    Accused,
    /// The host was silent for longer than its keep-alive timeout.
    KeepAlive,
    /// The host sends or takes bytes too slowly.
    TooSlow,
    /// The host has not connected in time.
    NoConnect,
    /// The host has not proven its key, or not in time.
    NoProof,
    /// There are too many connections.
    Limit,
    /// The administrator has taken the host, the subsystem or the listener away.
    Administrator,
    /// The queue lacked the memory for its commands, while other queues needed what it held.
    Memory,
    /// The RDMA device has failed, or has gone.
    Device,
    /// The queue could not go on at another reactor.
    Move,
    /// The target ends.
    TargetEnds,
}

impl Cause {
    /// This machine has no memory for what the peer sends.
    pub const NO_MEMORY: Cause = Cause::Broken(io::ErrorKind::OutOfMemory);
    /// The transport reports an error of the connection, without a number of the system.
    pub const ABORTED: Cause = Cause::Broken(io::ErrorKind::ConnectionAborted);

    fn name(self) -> &'static str {
        match self {
            Cause::Closed => "closed",
            Cause::Broken(_) => "network",
            Cause::Disconnect => "disconnect",
            Cause::Reset => "reset",
            Cause::ControllerEnded => "controller-ended",
            Cause::Violation => "violation",
            Cause::Accused => "accused",
            Cause::KeepAlive => "keep-alive",
            Cause::TooSlow => "too-slow",
            Cause::NoConnect => "no-connect",
            Cause::NoProof => "key",
            Cause::Limit => "limit",
            Cause::Administrator => "administrator",
            Cause::Memory => "memory",
            Cause::Device => "device",
            Cause::Move => "move",
            Cause::TargetEnds => "target-ends",
        }
    }

    /// True if nobody has wanted the end.
    fn is_loss(self) -> bool {
        !matches!(
            self,
            Cause::Closed
                | Cause::Disconnect
                | Cause::Reset
                | Cause::ControllerEnded
                | Cause::Administrator
                | Cause::TargetEnds
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Closed => "it closed the connection",
            Cause::Broken(kind) => return write!(f, "its connection broke ({kind})"),
            Cause::Disconnect => "it sent Disconnect",
            Cause::Reset => "it reset its controller or shut it down",
            Cause::ControllerEnded => "its controller has ended",
            Cause::Violation => "it broke the protocol",
            Cause::Accused => "it reports an error of protocol by this target (H2CTermReq)",
            Cause::KeepAlive => "it was silent for longer than its keep-alive timeout",
            Cause::TooSlow => "it sent or took less than 1 KiB/s",
            Cause::NoConnect => "it did not connect in time",
            Cause::NoProof => "it did not prove its key",
            Cause::Limit => "there are too many connections",
            Cause::Administrator => "the configuration lets it in no longer",
            Cause::Memory => "its commands hung while other commands lacked memory",
            Cause::Device => "the RDMA device has failed or gone",
            Cause::Move => "its queue could not go on at another reactor",
            Cause::TargetEnds => "the target ends",
        })
    }
}

/// The refusal of a peer that has given its name, or has not come that far.
pub(super) struct Refusal<'a> {
    pub kind: Refused,
    pub peer: Option<SocketAddr>,
    pub listener: Portal,
    /// The names of host and subsystem in Connect.
    pub names: Option<(&'a Nqn, &'a str)>,
    /// The reason, and the remedy.
    pub why: &'a str,
}

/// The counters of the listeners that hosts have come in on.
#[derive(Default)]
pub(super) struct Tally(Mutex<BTreeMap<Portal, ListenerStats>>);

impl Tally {
    /// The counters of these listeners, and of those that hosts have come in on before.
    pub fn all(&self, now: impl Iterator<Item = Portal>) -> Vec<ListenerStats> {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for portal in now {
            listeners.entry(portal).or_default();
        }
        listeners.iter().map(|(portal, stats)| ListenerStats { listener: Some(*portal), ..stats.clone() }).collect()
    }

    pub fn count(&self, listener: Portal, change: impl FnOnce(&mut ListenerStats)) {
        change(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(listener).or_default());
    }
}

fn at(peer: Option<SocketAddr>) -> String {
    peer.map(|peer| format!(" at {}", peer.ip().to_canonical())).unwrap_or_default()
}

/// A line about a peer, with what is known of the connection.
fn entry(event: &'static str, message: String, peer: Option<SocketAddr>, listener: Portal) -> Entry {
    let entry = Entry::new(event, message).with("listener", listener.to_string());
    match peer {
        Some(peer) => entry.with("address", peer.to_string()),
        None => entry,
    }
}

impl Shared {
    /// Tells of a peer that is not let in, and counts it.
    pub(super) fn refused(&self, refusal: &Refusal<'_>) {
        let Refusal { kind, peer, listener, names, why } = *refusal;
        self.tally.count(listener, |stats| stats.refusals[kind as usize] += 1);
        self.journal.add_of(Level::Warning, network_of(peer), || {
            let (who, of) = match names {
                Some((host, subsystem)) => {
                    (format!("host {}", quoted(host.as_str())), format!(" for {}", quoted(subsystem)))
                }
                None => ("a host".into(), String::new()),
            };
            let message = format!("{who}{} is refused on {listener}{of}: {why}", at(peer));
            let entry = entry("refused", message, peer, listener).with("reason", kind.name());
            match names {
                Some((host, subsystem)) => entry.with("host", host.as_str()).with("subsystem", subsystem),
                None => entry,
            }
        });
    }

    /// Tells of a host whose connection breaks the protocol, and counts it.
    pub(super) fn violated(&self, connection: &Connection, how: &dyn fmt::Display) {
        let Connection { peer, listener, queue_id, .. } = *connection;
        self.tally.count(listener, |stats| stats.violations += 1);
        self.journal.add_of(Level::Warning, network_of(peer), || {
            let host = connection.controller.as_ref().map(|controller| controller.host_nqn.as_str());
            let who = host.map_or("a host".into(), |host| format!("queue {queue_id} of host {}", quoted(host)));
            let message = format!("{who}{} breaks the protocol on {listener}: {how}", at(peer));
            let entry = entry("violation", message, peer, listener);
            match host {
                Some(host) => entry.with("host", host).with("queue", queue_id),
                None => entry,
            }
        });
    }

    /// Tells of a queue that a host has now, and counts it.
    pub(super) fn joined(&self, connection: &Connection, controller: &Controller) {
        let is_host = connection.is_admin() && !controller.is_discovery();
        if is_host {
            self.tally.count(connection.listener, |stats| stats.hosts += 1);
        }
        let level = if is_host { Level::Notice } else { Level::Info };
        self.journal.add_of(level, network_of(connection.peer), || {
            self.of_queue("connect", connection, controller, |who, on| format!("{who} connects on {on}"))
        });
    }

    /// Tells of a queue that has ended.
    pub(super) fn left(&self, connection: &Connection, controller: &Controller, cause: Cause) {
        let is_host = connection.is_admin() && !controller.is_discovery();
        if is_host && cause.is_loss() {
            self.tally.count(connection.listener, |stats| stats.lost += 1);
        }
        let level = match is_host {
            true if cause.is_loss() => Level::Warning,
            true => Level::Notice,
            false => Level::Info,
        };
        let was_shut_down = connection.is_admin() && cause == Cause::Closed && controller.status().shutdown != 0;
        self.journal.add_of(level, network_of(connection.peer), || {
            let entry = self.of_queue("disconnect", connection, controller, |who, on| {
                let why = if was_shut_down { "it has shut its controller down".into() } else { cause.to_string() };
                format!("{who} leaves {on}: {why}")
            });
            entry.with("reason", if was_shut_down { "shutdown" } else { cause.name() })
        });
    }

    /// Tells of a connection that ends before it is a queue.
    pub(super) fn came_to_nothing(&self, connection: &Connection, cause: Cause) {
        let Connection { peer, listener, .. } = *connection;
        if cause == Cause::NoProof {
            return; // a line has told of it
        }
        self.journal.add_of(Level::Info, network_of(peer), || {
            let message = format!("a connection{} on {listener} ends before Connect: {cause}", at(peer));
            entry("disconnect", message, peer, listener).with("reason", cause.name())
        });
    }

    fn of_queue(
        &self,
        event: &'static str,
        connection: &Connection,
        controller: &Controller,
        message: impl FnOnce(&str, &str) -> String,
    ) -> Entry {
        let Connection { peer, listener, queue_id, .. } = *connection;
        let host = controller.host_nqn.as_str();
        let queue = if queue_id == 0 { String::new() } else { format!("I/O queue {queue_id} of ") };
        let who = format!("{queue}host {}{}", quoted(host), at(peer));
        let subsystem = controller.subsystem_nqn.as_str();
        let on = format!("{subsystem}, controller {}, on {listener}", controller.id);
        entry(event, message(&who, &on), peer, listener)
            .with("host", host)
            .with("subsystem", subsystem)
            .with("controller", controller.id)
            .with("queue", queue_id)
    }
}

/// The names in a Connect that is refused; the subsystem's as far as it is text.
pub(super) fn names(data: &ConnectData) -> (Nqn, String) {
    let subsystem = Nqn::of_peer(&data.subnqn).as_str().to_string();
    (data.host(), subsystem)
}

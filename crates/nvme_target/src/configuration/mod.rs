//! Subsystems, namespaces, listeners and hosts as they are configured: a value that is copied, changed and handed to
//! the reactors whole. Nothing in this module does I/O but opening the file of a device, or of
//! reservations.

mod changes;
mod devices;
mod listeners;
mod namespaces;
mod parts;
mod specs;
mod subsystems;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) use changes::{Audience, ChangedNamespace, ChangedPaths, Leaving};
pub(super) use namespaces::MAX_DRIVES;
pub(super) use parts::{DeviceEntry, Namespace, Subsystem};
pub use specs::{CommandLimits, Detached, NamespaceSpec, Referral, SecureChannel, SubsystemSpec, Visibility};

use super::portal::Portal;
use super::{Error, ErrorKind, Options};

/// Everything that is configured.
#[derive(Clone, Default)]
pub(super) struct Configuration {
    pub options: Arc<Options>,
    /// The I/O queues of controllers that begin from now on: `options.limits.queues`, or what was set later.
    pub queues: u16,
    pub devices: Vec<Arc<DeviceEntry>>,
    pub subsystems: Vec<Subsystem>,
    /// The addresses on which the discovery service is reachable beside the addresses of subsystems.
    pub discovery_listeners: Vec<Portal>,
    /// The addresses, of all listeners, that speak TLS.
    pub secured: BTreeMap<Portal, SecureChannel>,
    /// The number of each address on which the target has listened (PORTID): it keeps it for good.
    ports: BTreeMap<Portal, u16>,
    pub referrals: Vec<Referral>,
    /// The generation counter of the discovery log page: it counts the changes that the page shows.
    pub generation: u64,
    next_uid: u64,
}

fn missing(what: &str, name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("no {what} is called {name:?}"))
}

fn no_namespace(nqn: &str, nsid: u32) -> Error {
    Error::new(ErrorKind::NotFound, format!("subsystem {nqn} has no namespace {nsid}"))
}

fn not_listening(nqn: &str, address: Portal) -> Error {
    Error::new(ErrorKind::NotFound, format!("subsystem {nqn} does not listen on {address}"))
}

/// Reservations that persist would stay in force, and no host could release them.
fn hidden_reservations(namespace: &NamespaceSpec) -> Error {
    let device = &namespace.device;
    Error::invalid(format!(
        "the namespace on {device:?} keeps its reservations in a file (ptpl_file), and the transport hides reservations \
         (masked_oncs): give one of them"
    ))
}

fn printable(what: &str, text: &str, longest: usize) -> Result<(), Error> {
    if text.is_empty() || text.len() > longest || !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err(Error::invalid(format!("{what} {text:?}: give 1 to {longest} printable ASCII characters")));
    }
    Ok(())
}

impl Configuration {
    fn uid(&mut self) -> u64 {
        self.next_uid += 1;
        self.next_uid
    }

    /// The configuration of a target that has been started with these options and has nothing else.
    pub fn of(options: Arc<Options>) -> Configuration {
        Configuration { queues: options.limits.queues, options, ..Configuration::default() }
    }

    /// Exchanges the options of the target, before anybody can be connected: queues, their sizes and their commands are
    /// as they were when their hosts connected.
    ///
    /// # Errors
    /// `Busy` if the target listens; `Invalid` if they hide reservations that persist.
    pub fn set_options(&mut self, options: Options) -> Result<(), Error> {
        if let Some(address) = self.all_listeners().next() {
            let busy = format!("the target listens on {address}: its transport is set up before its first listener");
            return Err(Error::new(ErrorKind::Busy, busy));
        }
        if options.hides_reservations()
            && let Some(namespace) = self.namespaces().find(|namespace| namespace.spec.reservations.is_some())
        {
            return Err(hidden_reservations(&namespace.spec));
        }
        self.queues = options.limits.queues;
        self.options = Arc::new(options);
        Ok(())
    }

    /// Sets the I/O queues that controllers get which begin later.
    pub fn set_queues(&mut self, queues: u16) {
        self.queues = queues;
    }

    pub fn device(&self, name: &str) -> Result<&Arc<DeviceEntry>, Error> {
        self.devices.iter().find(|entry| entry.spec.name == name).ok_or_else(|| missing("device", name))
    }

    pub fn subsystem(&self, nqn: &str) -> Result<&Subsystem, Error> {
        self.subsystems.iter().find(|s| s.spec.nqn == nqn).ok_or_else(|| missing("subsystem", nqn))
    }

    fn subsystem_mut(&mut self, nqn: &str) -> Result<&mut Subsystem, Error> {
        self.subsystems.iter_mut().find(|s| s.spec.nqn == nqn).ok_or_else(|| missing("subsystem", nqn))
    }

    /// The namespaces of all subsystems.
    fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.subsystems.iter().flat_map(|subsystem| subsystem.namespaces.values())
    }

    /// Has the ANA states follow the devices that this process has: after each change.
    pub fn settle(&mut self) {
        for subsystem in &mut self.subsystems {
            let lacking = subsystem.namespaces.values().filter(|namespace| !namespace.entry.is_held());
            let barred: BTreeSet<u32> = lacking.map(|namespace| namespace.spec.ana_group).collect();
            for states in subsystem.ana.values_mut().filter(|states| !states.bars(&barred)) {
                Arc::make_mut(states).bar(&barred);
            }
        }
    }
}

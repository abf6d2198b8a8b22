//! Subsystems, namespaces, listeners and hosts as they are configured: a value that is copied, changed and handed to
//! the reactors whole. Nothing in this module does I/O but opening the file of a device, or of
//! reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ana::AnaStates;
use super::controller::{Controller, LAST_ID, Service};
use super::gate::Gate;
use super::limited::Limit;
use super::portal::Portal;
use super::reservations::Reservations;
use super::{DeviceInfo, Error, ErrorKind, Options};
use crate::device::{self, Device, DeviceSpec};
use crate::identity::{self, Machine};
use crate::spec::ana::AnaState;
use crate::spec::{DISCOVERY_NQN, NamespaceIds, Nqn};

/// A subsystem to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsystemSpec {
    /// `nqn.yyyy-mm.reverse.domain:name` or `nqn.2014-08.org.nvmexpress:uuid:...`, at most 223 bytes.
    pub nqn: String,
    /// The serial number: at most 20 printable ASCII characters.
    pub serial: String,
    /// The model number: at most 40 printable ASCII characters.
    pub model: String,
    /// True if hosts that are not listed may connect.
    pub allow_any_host: bool,
    /// The highest namespace number, 1 to 1024.
    pub max_namespaces: u32,
    /// Identifiers that controllers get, within 1 to 65519. `None` begins at a random one, so that two targets with the
    /// same NQN hardly ever give the same one to a host (Linux refuses a second controller with it).
    pub controller_ids: Option<(u16, u16)>,
    /// Limits on single commands, which hosts read in Identify Controller.
    pub command_limits: CommandLimits,
    /// True if hosts read the ANA state of each listener (Base specification 2.0, section 8.1).
    pub ana_reporting: bool,
}

/// Limits on single commands (NVM Command Set specification 1.0, section 4.1.5.2), 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLimits {
    /// DMRSL: the most logical blocks of one range of Dataset Management.
    pub deallocated_blocks: u32,
    /// WZSL: the largest Write Zeroes, as a power of two in units of 4 KiB.
    pub zeroed_pages_log2: u8,
}

impl CommandLimits {
    /// The most bytes of a Write Zeroes; `None` without a limit.
    pub fn zeroed_bytes(self) -> Option<u64> {
        let bytes = 4096_u128 << self.zeroed_pages_log2.min(64);
        if self.zeroed_pages_log2 == 0 { None } else { u64::try_from(bytes).ok() }
    }
}

impl SubsystemSpec {
    /// The subsystem of that NQN with a serial number that follows from this machine and the NQN, model `Plimsoll`,
    /// room for 32 namespaces, any controller identifiers, no host let in and no ANA reporting.
    pub fn new(nqn: impl Into<String>) -> SubsystemSpec {
        let nqn = nqn.into();
        SubsystemSpec {
            serial: Machine::this().serial(&nqn),
            nqn,
            model: "Plimsoll".to_string(),
            allow_any_host: false,
            max_namespaces: 32,
            controller_ids: None,
            command_limits: CommandLimits::default(),
            ana_reporting: false,
        }
    }
}

/// The hosts of a subsystem that see a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// Every host sees the namespace.
    #[default]
    All,
    /// The hosts with these NQNs see the namespace; for others its number is that of an inactive namespace.
    Only(BTreeSet<String>),
}

impl Visibility {
    /// True if the host with that NQN sees the namespace.
    pub fn includes(&self, host_nqn: &str) -> bool {
        match self {
            Visibility::All => true,
            Visibility::Only(hosts) => hosts.contains(host_nqn),
        }
    }
}

/// The hosts that have a namespace attached: those of its [`Visibility`] but for what Namespace Attachment has changed
/// (Base specification 2.0, section 5.20). A host is remembered by its NQN: its next controller has what its last had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detached(BTreeSet<String>);

impl Detached {
    /// True if the namespace is not attached to that host.
    pub fn includes(&self, host_nqn: &str) -> bool {
        self.0.contains(host_nqn)
    }

    /// A namespace is detached from the hosts with these NQNs.
    pub fn from(hosts: impl IntoIterator<Item = String>) -> Detached {
        Detached(hosts.into_iter().collect())
    }

    /// The NQNs of the hosts, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// The hosts that are told of a change: those that have the namespace active.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Audience {
    visibility: Visibility,
    detached: Detached,
}

impl Audience {
    /// One host alone.
    fn one(host: String) -> Audience {
        Audience { visibility: Visibility::Only([host].into()), detached: Detached::default() }
    }

    /// True if the host with that NQN is among them.
    pub fn includes(&self, host_nqn: &str) -> bool {
        self.visibility.includes(host_nqn) && !self.detached.includes(host_nqn)
    }
}

/// The most hosts that one namespace is detached from: hosts that make up names cannot fill the memory.
const MOST_DETACHED: usize = 1024;

/// A namespace: a device under a number.
#[derive(Clone, Debug, PartialEq)]
pub struct NamespaceSpec {
    /// The namespace's number; 0 takes the lowest that is free.
    pub nsid: u32,
    /// The device's name.
    pub device: String,
    /// The namespace's UUID; `None` takes the device's.
    pub uuid: Option<[u8; 16]>,
    /// The namespace's NGUID; `None` derives it from the UUID.
    pub nguid: Option<[u8; 16]>,
    /// The namespace's EUI-64; `None` derives it from the UUID.
    pub eui64: Option<[u8; 8]>,
    /// The ANA group of the namespace, up to `max_namespaces` of its subsystem; 0 takes the namespace's number.
    pub ana_group: u32,
    /// The hosts that see the namespace.
    pub visibility: Visibility,
    /// The hosts from which the namespace is detached.
    pub detached: Detached,
    /// The file that reservations persist in; `None` if they end with the target. A file that is there must hold the
    /// reservations of this namespace.
    pub reservations: Option<PathBuf>,
}

impl NamespaceSpec {
    /// A namespace on the device, under the lowest free number, with the device's identities, and for every host.
    pub fn new(device: impl Into<String>) -> NamespaceSpec {
        let (uuid, nguid, eui64) = (None, None, None);
        let (visibility, detached, reservations) = (Visibility::All, Detached::default(), None);
        let (nsid, device, ana_group) = (0, device.into(), 0);
        NamespaceSpec { nsid, device, uuid, nguid, eui64, ana_group, visibility, detached, reservations }
    }

    /// True if the namespace is active for the host with that NQN: the host sees the namespace and has it attached.
    pub fn is_active_for(&self, host_nqn: &str) -> bool {
        self.visibility.includes(host_nqn) && !self.detached.includes(host_nqn)
    }

    fn audience(&self) -> Audience {
        Audience { visibility: self.visibility.clone(), detached: self.detached.clone() }
    }

    /// All identities that hosts are given for the namespace, on a device with this UUID.
    pub fn identities(&self, device_uuid: [u8; 16]) -> NamespaceIds {
        let uuid = self.uuid.unwrap_or(device_uuid);
        let nguid = self.nguid.unwrap_or_else(|| identity::nguid(&uuid));
        let eui64 = self.eui64.unwrap_or_else(|| identity::eui64(&uuid));
        NamespaceIds { uuid: Some(uuid), nguid: Some(nguid), eui64: Some(eui64) }
    }
}

/// Namespaces of all subsystems together: ids of drives in the pacers.
pub(super) const MAX_DRIVES: u32 = 512;
const MAX_NAMESPACES: u32 = 1024;
/// The largest number of devices: for namespaces and for the devices below them.
const MAX_DEVICES: usize = 4096;

/// A device under its name.
pub(super) struct DeviceEntry {
    /// The device's identifier, which is never used again, unlike its name.
    pub uid: u64,
    pub spec: DeviceSpec,
    pub device: Arc<dyn Device>,
    pub uuid: [u8; 16],
    pub limit: Arc<Limit>,
    pub gate: Arc<Gate>,
    /// True if the latencies of its ops are counted.
    pub counts_latencies: AtomicBool,
    /// True while the device may be used: for one that is shared, while this process has it.
    pub held: AtomicBool,
}

impl DeviceEntry {
    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
pub(super) struct Namespace {
    /// The description of the namespace; `nsid` is the number that the namespace has.
    pub spec: NamespaceSpec,
    pub entry: Arc<DeviceEntry>,
    pub reservations: Arc<Reservations>,
    /// The namespace's drive id in the pacers.
    pub drive: u32,
}

impl Namespace {
    /// Takes up the reservations of the namespace; those of a device that another process has are in its hands.
    ///
    /// # Errors
    /// Those of [`Reservations::open`].
    fn open_reservations(&mut self) -> Result<(), Error> {
        let file = self.spec.reservations.as_ref().filter(|_| self.entry.is_held());
        let uuid = self.identities().uuid.unwrap_or(self.entry.uuid);
        let outlives = self.entry.device.shared().is_some();
        self.reservations = Arc::new(Reservations::open(file, uuid, outlives)?);
        Ok(())
    }

    pub fn identities(&self) -> NamespaceIds {
        self.spec.identities(self.entry.uuid)
    }
}

/// A namespace that has come, gone or changed, and the hosts that are told of it.
pub(super) struct ChangedNamespace {
    /// The uid of the namespace's subsystem.
    pub subsystem: u64,
    pub nsid: u32,
    pub hosts: Audience,
}

/// The ops to wait for until they have left their devices.
#[derive(Clone)]
pub(super) enum Leaving {
    /// The ops that came by paths which refuse commands by now.
    Paths(Paths),
    /// The ops that came by paths which have ended.
    Ended(Paths),
    /// The ops of some hosts of a subsystem, on one device or on all; subsystem and device are given by their uids.
    Hosts { subsystem: u64, device: Option<u64>, hosts: Arc<BTreeSet<String>> },
    /// The ops on a device, given by its uid.
    Device(u64),
}

/// The paths to a subsystem: those of the controllers that came in on one listener, or on any.
#[derive(Clone, Copy)]
pub(super) struct Paths {
    /// The uid of the subsystem.
    pub subsystem: u64,
    /// The listener; `None` for all.
    pub listener: Option<Portal>,
}

impl Paths {
    /// True if the path of that controller is among them.
    pub fn include(&self, controller: &Controller) -> bool {
        controller.service == Service::Subsystem(self.subsystem)
            && self.listener.is_none_or(|listener| controller.listener == listener)
    }

    /// True if a queue of that service came in by one of them.
    pub fn bring(&self, service: Service, listener: Portal) -> bool {
        service == Service::Subsystem(self.subsystem) && self.listener.is_none_or(|own| own == listener)
    }
}

/// Paths that have another ANA state, or other namespaces in a group, and the hosts that are told of it: those that see
/// one of the namespaces.
pub(super) struct ChangedPaths {
    pub paths: Paths,
    pub audiences: Vec<Audience>,
}

#[derive(Clone)]
pub(super) struct Subsystem {
    /// The subsystem's identifier, which is never used again.
    pub uid: u64,
    pub nqn: Nqn,
    pub spec: SubsystemSpec,
    pub namespaces: BTreeMap<u32, Namespace>,
    pub listeners: Vec<Portal>,
    /// The ANA states of each listener; empty without ANA reporting.
    pub ana: BTreeMap<Portal, Arc<AnaStates>>,
    pub hosts: Vec<Nqn>,
    /// The hosts that may manage namespaces.
    pub managers: Vec<Nqn>,
}

impl Subsystem {
    pub fn admits(&self, host: &Nqn) -> bool {
        self.spec.allow_any_host || self.hosts.contains(host)
    }

    /// True if that host may manage namespaces.
    pub fn is_managed_by(&self, host: &Nqn) -> bool {
        self.managers.contains(host)
    }

    /// The namespaces that are active for a host.
    pub fn active_for(&self, host_nqn: &str) -> impl Iterator<Item = (u32, &Namespace)> {
        self.seen_by(host_nqn).filter(move |(_, namespace)| !namespace.spec.detached.includes(host_nqn))
    }

    /// The namespaces that a host sees, attached or not: for the host, the allocated ones.
    pub fn seen_by(&self, host_nqn: &str) -> impl Iterator<Item = (u32, &Namespace)> {
        let all = self.namespaces.iter().map(|(nsid, namespace)| (*nsid, namespace));
        all.filter(move |(_, namespace)| namespace.spec.visibility.includes(host_nqn))
    }

    fn changed(&self, nsid: u32, namespace: &Namespace) -> ChangedNamespace {
        ChangedNamespace { subsystem: self.uid, nsid, hosts: namespace.spec.audience() }
    }

    /// Notes that the ANA group has other namespaces than before.
    fn regroup(&mut self, group: u32) {
        self.ana.values_mut().for_each(|states| Arc::make_mut(states).regroup(group));
    }

    /// Checks that the subsystem has ANA groups, and this one among them.
    ///
    /// # Errors
    /// `Invalid`.
    fn check_group(&self, group: Option<u32>) -> Result<(), Error> {
        let SubsystemSpec { nqn, max_namespaces, ana_reporting, .. } = &self.spec;
        if !ana_reporting {
            return Err(Error::invalid(format!("{nqn} has no ANA groups: create it with ana_reporting=true")));
        }
        match group {
            Some(group) if !(1..=*max_namespaces).contains(&group) => {
                Err(Error::invalid(format!("ANA group {group} of {nqn}: give 1 to {max_namespaces} (max_namespaces)")))
            }
            _ => Ok(()),
        }
    }
}

/// Another discovery service, or a subsystem of another target, which the discovery service names to hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// The address of the other target.
    pub address: Portal,
    /// The NQN of the subsystem there; that of discovery names the discovery service there.
    pub nqn: Nqn,
}

/// The demand of a listener that speaks TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecureChannel {
    /// Hosts prove a key that somebody has given to both ends.
    Required,
    /// Hosts prove such a key, or begin plainly, authenticate, and come back with the key that the authentication has
    /// made (secure channel concatenation).
    Concatenated,
}

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

    /// Names of the devices stacked on `name`.
    pub fn claims(&self, name: &str) -> Vec<String> {
        self.stacked_on(name).map(|entry| entry.spec.name.clone()).collect()
    }

    fn stacked_on(&self, name: &str) -> impl Iterator<Item = &Arc<DeviceEntry>> {
        self.devices.iter().filter(move |entry| entry.spec.kind.base() == Some(name))
    }

    fn is_namespace(&self, name: &str) -> bool {
        self.subsystems.iter().any(|s| s.namespaces.values().any(|ns| ns.spec.device == name))
    }

    pub fn create_device(&mut self, spec: DeviceSpec) -> Result<DeviceInfo, Error> {
        if spec.name.is_empty() || spec.name.contains(char::is_control) {
            return Err(Error::invalid(format!("{:?} cannot be the name of a device", spec.name)));
        }
        if self.device(&spec.name).is_ok() {
            return Err(Error::new(ErrorKind::Exists, format!("a device called {:?} exists already", spec.name)));
        }
        if self.devices.len() >= MAX_DEVICES {
            return Err(Error::new(
                ErrorKind::Full,
                format!("there are {MAX_DEVICES} devices already: the most there can be"),
            ));
        }
        if let device::DeviceKind::Memory { bytes } = spec.kind {
            self.check_memory(&spec.name, bytes)?;
        }
        let mut base = None;
        if let Some(name) = spec.kind.base() {
            let entry = self.device(name)?;
            // Slices share a device with each other, and with nothing else.
            let is_slice = slice_kind(&spec);
            let other = self.stacked_on(name).find(|entry| !is_slice || !slice_kind(&entry.spec));
            if self.is_namespace(name) || other.is_some() {
                let by = other.map_or("a namespace".to_string(), |entry| format!("device {:?}", entry.spec.name));
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!("device {name:?} belongs to {by}: two users would clash"),
                ));
            }
            if entry.device.shared().is_some() {
                let why = format!("device {name:?} is shared with another target: a namespace stands on it alone");
                return Err(Error::invalid(why));
            }
            // A limit holds where hosts come in: below another device it would hold nothing.
            if !entry.limit.rates().is_unlimited() {
                let busy =
                    format!("device {name:?} has a limit (bdev_set_qos_limit): end it, and limit the device on it");
                return Err(Error::new(ErrorKind::Busy, busy));
            }
            base = Some(entry);
        }
        let device = device::create(&spec, base.map(|entry| Arc::clone(&entry.device)))?;
        let uuid = self.uuid_of(&spec, &*device, base)?;
        let device_is_held = device.shared().is_none();
        let entry = Arc::new(DeviceEntry {
            uid: self.uid(),
            spec,
            device,
            uuid,
            limit: Arc::default(),
            gate: Arc::default(),
            counts_latencies: false.into(),
            held: device_is_held.into(),
        });
        self.devices.push(Arc::clone(&entry));
        Ok(self.device_info(&entry))
    }

    /// Refuses a memory device if the machine lacks memory for it and for the existing memory devices.
    pub fn check_memory(&self, name: &str, more_bytes: u64) -> Result<(), Error> {
        let Some(available) = sys::memory::available_bytes() else { return Ok(()) };
        let promised: u64 = self.devices.iter().map(|entry| entry.device.memory_bytes()).sum();
        let left = available.saturating_sub(promised);
        if more_bytes <= left {
            return Ok(());
        }
        let mib = |bytes: u64| bytes >> 20;
        Err(Error::new(
            ErrorKind::Full,
            format!(
                "device {name}: {} MiB of memory are not there: this machine has {} MiB available, of which other memory \
                 devices may still take {} MiB; make it smaller, or serve a file",
                mib(more_bytes),
                mib(available),
                mib(promised)
            ),
        ))
    }

    /// Refuses to grow a memory device, below whatever is stacked on it, beyond the machine's memory.
    pub fn check_growth(&self, name: &str, bytes: u64) -> Result<(), Error> {
        let mut entry = self.device(name)?;
        while let Some(base) = entry.spec.kind.base() {
            entry = self.device(base)?;
        }
        match entry.spec.kind {
            device::DeviceKind::Memory { .. } => self.check_memory(name, bytes.saturating_sub(entry.device.bytes())),
            device::DeviceKind::Null { .. }
            | device::DeviceKind::File { .. }
            | device::DeviceKind::Delay { .. }
            | device::DeviceKind::Slice { .. }
            | device::DeviceKind::Faulty { .. } => Ok(()),
        }
    }

    /// The UUID of a new device: the given one, or one that no other device has.
    fn uuid_of(
        &self,
        spec: &DeviceSpec,
        device: &dyn Device,
        base: Option<&Arc<DeviceEntry>>,
    ) -> Result<[u8; 16], Error> {
        let taken_by = |uuid: &[u8; 16]| self.devices.iter().find(|entry| entry.uuid == *uuid);
        if let Some(uuid) = spec.uuid {
            return match taken_by(&uuid) {
                Some(other) => Err(Error::new(
                    ErrorKind::Exists,
                    format!(
                        "device {:?} has the UUID of device {:?}: give another one, or none",
                        spec.name, other.spec.name
                    ),
                )),
                None => Ok(uuid),
            };
        }
        let uuid = match (base, device.identity()) {
            (Some(base), _) => identity::derived_uuid(&base.uuid, &spec.kind.layer()),
            (None, Some(content)) => Machine::this().uuid(&content),
            (None, None) => identity::random_uuid(),
        };
        // One file may be served read-only under several names: hosts that see both must not take them for two paths.
        Ok(if taken_by(&uuid).is_some() { identity::derived_uuid(&uuid, &spec.name) } else { uuid })
    }

    /// Deletes a device and its namespaces. Returns the namespaces, and the ops to wait for.
    pub fn delete_device(&mut self, name: &str) -> Result<(Vec<ChangedNamespace>, Leaving), Error> {
        let uid = self.device(name)?.uid;
        if let Some(above) = self.claims(name).first() {
            let busy = format!("device {name:?} is below device {above:?}: delete that first");
            return Err(Error::new(ErrorKind::Busy, busy));
        }
        let removed = self.namespaces_on(name);
        for subsystem in &mut self.subsystems {
            let on_it = |namespace: &Namespace| namespace.spec.device == name;
            let gone = subsystem.namespaces.values().filter(|namespace| on_it(namespace));
            let groups: Vec<u32> = gone.map(|namespace| namespace.spec.ana_group).collect();
            groups.into_iter().for_each(|group| subsystem.regroup(group));
            subsystem.namespaces.retain(|_, namespace| !on_it(namespace));
        }
        self.devices.retain(|entry| entry.spec.name != name);
        Ok((removed, Leaving::Device(uid)))
    }

    pub fn device_info(&self, entry: &DeviceEntry) -> DeviceInfo {
        let device = &entry.device;
        let mut spec = entry.spec.clone();
        if let (device::DeviceKind::Delay { latency, .. }, Some(now)) = (&mut spec.kind, device.latency()) {
            *latency = now;
        }
        DeviceInfo {
            spec,
            block_bytes: device.block_bytes(),
            blocks: device.bytes() / u64::from(device.block_bytes()),
            uuid: entry.uuid,
            read_only: device.read_only(),
            direct: device.direct(),
            rates: entry.limit.rates(),
            counts_latencies: entry.counts_latencies.load(Ordering::Relaxed),
            held: entry.is_held(),
            claimed_by: self.claims(&entry.spec.name),
        }
    }

    /// The namespaces whose size follows that of the device: those on the device itself, and those on devices stacked
    /// on it.
    pub fn namespaces_on(&self, name: &str) -> Vec<ChangedNamespace> {
        let mut names = vec![name.to_string()];
        let mut at = 0;
        while at < names.len() {
            names.extend(self.claims(&names[at]));
            at += 1;
        }
        let on = |s: &Subsystem| {
            let of = s.namespaces.iter().filter(|(_, ns)| names.contains(&ns.spec.device));
            of.map(|(nsid, namespace)| s.changed(*nsid, namespace)).collect::<Vec<_>>()
        };
        self.subsystems.iter().flat_map(on).collect()
    }

    pub fn create_subsystem(&mut self, spec: SubsystemSpec) -> Result<(), Error> {
        let nqn: Nqn = spec.nqn.parse().map_err(|e: crate::spec::NqnError| Error::invalid(e.to_string()))?;
        if nqn.is_discovery() {
            return Err(Error::invalid("the discovery service is there by itself, on every listener"));
        }
        if self.subsystem(&spec.nqn).is_ok() {
            return Err(Error::new(ErrorKind::Exists, format!("a subsystem called {nqn} exists already")));
        }
        printable("Invalid SN: serial number", &spec.serial, 20)?;
        printable("Invalid MN: model number", &spec.model, 40)?;
        if !(1..=MAX_NAMESPACES).contains(&spec.max_namespaces) {
            let given = spec.max_namespaces;
            return Err(Error::invalid(format!("{given} namespaces at most: give 1 to {MAX_NAMESPACES}")));
        }
        if let Some((first, last)) =
            spec.controller_ids.filter(|(first, last)| *first == 0 || first > last || *last > LAST_ID)
        {
            return Err(Error::invalid(format!(
                "controller identifiers {first} to {last}: give a range within 1 to {LAST_ID}"
            )));
        }
        let uid = self.uid();
        let (namespaces, listeners, ana, hosts, managers) = Default::default();
        self.subsystems.push(Subsystem { uid, nqn, spec, namespaces, listeners, ana, hosts, managers });
        self.generation += 1;
        Ok(())
    }

    /// Deletes a subsystem. Returns the ops to wait for.
    pub fn delete_subsystem(&mut self, nqn: &str) -> Result<Leaving, Error> {
        let uid = self.subsystem(nqn)?.uid;
        self.subsystems.retain(|subsystem| subsystem.uid != uid);
        self.generation += 1;
        Ok(Leaving::Ended(Paths { subsystem: uid, listener: None }))
    }

    /// The namespaces of all subsystems.
    fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.subsystems.iter().flat_map(|subsystem| subsystem.namespaces.values())
    }

    /// Adds a namespace. Returns the namespace with the number that it now has.
    pub fn add_namespace(&mut self, nqn: &str, mut spec: NamespaceSpec) -> Result<ChangedNamespace, Error> {
        let entry = Arc::clone(self.device(&spec.device)?);
        let busy = |by: &str| {
            Error::new(ErrorKind::Busy, format!("device {:?} belongs to {by}: two users would clash", spec.device))
        };
        if let Some(above) = self.claims(&spec.device).first() {
            return Err(busy(&format!("device {above:?}")));
        }
        if self.is_namespace(&spec.device) {
            return Err(busy("another namespace"));
        }
        let identities = spec.identities(entry.uuid);
        if let Some(other) = self.namespaces().find(|other| shares_identity(&identities, &other.identities())) {
            let (device, other) = (&spec.device, &other.spec.device);
            return Err(Error::new(
                ErrorKind::Exists,
                format!(
                    "the namespace on {device:?} would have the UUID, NGUID or EUI-64 of that on {other:?}: give others, or none"
                ),
            ));
        }
        if spec.reservations.is_some() && self.options.hides_reservations() {
            return Err(hidden_reservations(&spec));
        }
        if let Some(file) = &spec.reservations
            && let Some(other) = self.namespaces().find(|other| other.spec.reservations.as_ref() == Some(file))
        {
            let (file, other) = (file.display(), &other.spec.device);
            let why = format!("{file} holds the reservations of the namespace on {other:?}: give another file");
            return Err(Error::new(ErrorKind::Exists, why));
        }
        let used = |drive: u32| {
            self.subsystems.iter().any(|s| s.namespaces.values().any(|namespace| namespace.drive == drive))
        };
        let drive = (0..MAX_DRIVES).find(|&drive| !used(drive));
        let drive = drive.ok_or_else(|| {
            Error::new(ErrorKind::Full, format!("{MAX_DRIVES} namespaces are served already: the most there can be"))
        })?;
        let hides_reservations = self.options.hides_reservations();
        let subsystem = self.subsystem_mut(nqn)?;
        if entry.device.shared().is_some() {
            check_shared(subsystem, &spec, hides_reservations)?;
        }
        let most = subsystem.spec.max_namespaces;
        if spec.nsid == 0 {
            let free = (1..=most).find(|nsid| !subsystem.namespaces.contains_key(nsid));
            spec.nsid = free.ok_or_else(|| {
                Error::new(
                    ErrorKind::Full,
                    format!("subsystem {nqn} has all of its {most} namespaces (max_namespaces)"),
                )
            })?;
        }
        let nsid = spec.nsid;
        if nsid > most {
            return Err(Error::invalid(format!("namespace {nsid} is above {most}, the max_namespaces of {nqn}")));
        }
        if subsystem.namespaces.contains_key(&nsid) {
            return Err(Error::new(ErrorKind::Exists, format!("subsystem {nqn} has a namespace {nsid} already")));
        }
        if spec.ana_group == 0 {
            spec.ana_group = nsid;
        }
        if subsystem.spec.ana_reporting {
            subsystem.check_group(Some(spec.ana_group))?;
        }
        let mut namespace = Namespace { spec, entry, reservations: Arc::default(), drive };
        namespace.open_reservations()?;
        let added = subsystem.changed(nsid, &namespace);
        subsystem.regroup(namespace.spec.ana_group);
        subsystem.namespaces.insert(nsid, namespace);
        Ok(added)
    }

    /// Removes a namespace from a subsystem. Returns the namespace, and the ops to wait for.
    pub fn remove_namespace(&mut self, nqn: &str, nsid: u32) -> Result<(ChangedNamespace, Leaving), Error> {
        let subsystem = self.subsystem_mut(nqn)?;
        match subsystem.namespaces.remove(&nsid) {
            Some(namespace) => {
                subsystem.regroup(namespace.spec.ana_group);
                Ok((subsystem.changed(nsid, &namespace), Leaving::Device(namespace.entry.uid)))
            }
            None => Err(no_namespace(nqn, nsid)),
        }
    }

    /// Sets the ANA state of a group, or of all groups, on one listener. Returns the paths.
    pub fn set_ana_state(
        &mut self,
        nqn: &str,
        listener: Portal,
        group: Option<u32>,
        state: AnaState,
    ) -> Result<ChangedPaths, Error> {
        let subsystem = self.subsystem_mut(nqn)?;
        subsystem.check_group(group)?;
        let most = subsystem.spec.max_namespaces;
        let states = subsystem.ana.get_mut(&listener).ok_or_else(|| not_listening(nqn, listener))?;
        let groups = group.map_or(1..=most, |group| group..=group);
        let changed = Arc::make_mut(states).set(groups, state);
        let namespaces = subsystem.namespaces.values().filter(|it| changed.contains(&it.spec.ana_group));
        let audiences = namespaces.map(|namespace| namespace.spec.audience()).collect();
        Ok(ChangedPaths { paths: Paths { subsystem: subsystem.uid, listener: Some(listener) }, audiences })
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

    /// Notes that this process has a shared device, given by its uid, or has it no more. Returns the paths.
    ///
    /// # Errors
    /// The reservations cannot be read.
    pub fn set_held(&mut self, uid: u64, held: bool) -> Result<Vec<ChangedPaths>, Error> {
        if let Some(entry) = self.devices.iter().find(|entry| entry.uid == uid) {
            entry.held.store(held, Ordering::Relaxed);
        }
        let mut changed = Vec::new();
        for subsystem in &mut self.subsystems {
            let paths = Paths { subsystem: subsystem.uid, listener: None };
            let mut audiences = Vec::new();
            for namespace in subsystem.namespaces.values_mut().filter(|it| it.entry.uid == uid) {
                namespace.open_reservations()?;
                audiences.push(namespace.spec.audience());
            }
            changed.push(ChangedPaths { paths, audiences });
        }
        Ok(changed)
    }

    /// True if hosts are to reach a device, given by its uid: a path to it is not closed. `None` if there is no such
    /// device.
    pub fn is_wanted(&self, uid: u64) -> Option<bool> {
        self.devices.iter().find(|entry| entry.uid == uid)?;
        let is_open = |subsystem: &Subsystem, group: u32| {
            let at = group as usize - 1;
            subsystem.ana.values().any(|states| states.wanted().nth(at).is_some_and(|state| state.refusal().is_none()))
        };
        Some(self.subsystems.iter().any(|subsystem| {
            let namespaces = subsystem.namespaces.values().filter(|namespace| namespace.entry.uid == uid);
            namespaces.into_iter().any(|namespace| is_open(subsystem, namespace.spec.ana_group))
        }))
    }

    /// Moves a namespace to another ANA group. Returns the paths.
    pub fn set_ana_group(&mut self, nqn: &str, nsid: u32, group: u32) -> Result<ChangedPaths, Error> {
        let subsystem = self.subsystem_mut(nqn)?;
        subsystem.check_group(Some(group))?;
        let paths = Paths { subsystem: subsystem.uid, listener: None };
        let namespace = subsystem.namespaces.get_mut(&nsid).ok_or_else(|| no_namespace(nqn, nsid))?;
        let before = std::mem::replace(&mut namespace.spec.ana_group, group);
        if before == group {
            return Ok(ChangedPaths { paths, audiences: Vec::new() });
        }
        let audiences = vec![namespace.spec.audience()];
        subsystem.regroup(before);
        subsystem.regroup(group);
        Ok(ChangedPaths { paths, audiences })
    }

    /// Shows a namespace to a host, or hides it from the host. Returns the namespace with that host alone, `None` if
    /// nothing changes; and the ops to wait for.
    pub fn show_namespace(
        &mut self,
        nqn: &str,
        nsid: u32,
        host: &str,
        shows: bool,
    ) -> Result<(Option<ChangedNamespace>, Leaving), Error> {
        let host: Nqn = host.parse().map_err(|e: crate::spec::NqnError| Error::invalid(e.to_string()))?;
        let subsystem = self.subsystem_mut(nqn)?;
        let uid = subsystem.uid;
        let namespace = subsystem.namespaces.get_mut(&nsid).ok_or_else(|| no_namespace(nqn, nsid))?;
        let Visibility::Only(hosts) = &mut namespace.spec.visibility else {
            return Err(Error::invalid(format!(
                "every host sees namespace {nsid} of {nqn}: add it with no_auto_visible to choose its hosts"
            )));
        };
        let host = host.to_string();
        let changes = if shows { hosts.insert(host.clone()) } else { hosts.remove(&host) };
        // A host that has it detached has lost and gained nothing.
        let is_told = changes && !namespace.spec.detached.includes(&host);
        let (group, device) = (namespace.spec.ana_group, Some(namespace.entry.uid));
        if changes {
            subsystem.regroup(group);
        }
        let hosts = Arc::new(BTreeSet::from_iter((!shows).then(|| host.clone())));
        let changed = is_told.then_some(ChangedNamespace { subsystem: uid, nsid, hosts: Audience::one(host) });
        Ok((changed, Leaving::Hosts { subsystem: uid, device, hosts }))
    }

    /// Lets a host manage namespaces, or stops that. Returns true if that changes anything.
    pub fn set_manager(&mut self, nqn: &str, host: &str, may_manage: bool) -> Result<bool, Error> {
        let host: Nqn = host.parse().map_err(|e: crate::spec::NqnError| Error::invalid(e.to_string()))?;
        let managers = &mut self.subsystem_mut(nqn)?.managers;
        let changes = managers.contains(&host) != may_manage;
        match may_manage {
            true if changes => managers.push(host),
            true => {}
            false => managers.retain(|other| *other != host),
        }
        Ok(changes)
    }

    /// Attaches a namespace to hosts, or detaches it from them. Returns the namespace for each host whose active
    /// namespaces change by that, and the ops to wait for.
    pub fn attach_namespace(
        &mut self,
        nqn: &str,
        nsid: u32,
        hosts: &BTreeSet<String>,
        attaches: bool,
    ) -> Result<(Vec<ChangedNamespace>, Leaving), Error> {
        for host in hosts {
            host.parse::<Nqn>().map_err(|e: crate::spec::NqnError| Error::invalid(e.to_string()))?;
        }
        let subsystem = self.subsystem_mut(nqn)?;
        let uid = subsystem.uid;
        let namespace = subsystem.namespaces.get_mut(&nsid).ok_or_else(|| no_namespace(nqn, nsid))?;
        let device = Some(namespace.entry.uid);
        let spec = &mut namespace.spec;
        let is_new = |host: &&String| spec.detached.includes(host) == attaches;
        let changing: BTreeSet<String> = hosts.iter().filter(is_new).cloned().collect();
        if !attaches && spec.detached.0.len() + changing.len() > MOST_DETACHED {
            let full =
                format!("namespace {nsid} of {nqn} is detached from {MOST_DETACHED} hosts: the most there can be");
            return Err(Error::new(ErrorKind::Full, full));
        }
        for host in &changing {
            if attaches {
                spec.detached.0.remove(host)
            } else {
                spec.detached.0.insert(host.clone())
            };
        }
        let seen = changing.iter().filter(|host| spec.visibility.includes(host)).cloned();
        let changed: Vec<ChangedNamespace> =
            seen.map(|host| ChangedNamespace { subsystem: uid, nsid, hosts: Audience::one(host) }).collect();
        let group = spec.ana_group;
        if !changed.is_empty() {
            subsystem.regroup(group);
        }
        Ok((changed, Leaving::Hosts { subsystem: uid, device, hosts: Arc::new(changing) }))
    }

    /// The listeners of a subsystem, or of the discovery service.
    pub fn listeners_mut(&mut self, nqn: &str) -> Result<&mut Vec<Portal>, Error> {
        match nqn {
            DISCOVERY_NQN => Ok(&mut self.discovery_listeners),
            nqn => Ok(&mut self.subsystem_mut(nqn)?.listeners),
        }
    }

    pub fn add_listener(
        &mut self,
        nqn: &str,
        address: Portal,
        secured: Option<SecureChannel>,
        ana_state: AnaState,
    ) -> Result<(), Error> {
        let present = self.secured.get(&address).copied();
        if self.listens(address) && present != secured {
            let how = match present {
                None => "without TLS",
                Some(SecureChannel::Required) => "with TLS",
                Some(SecureChannel::Concatenated) => "with secure channel concatenation",
            };
            return Err(Error::invalid(format!(
                "the target listens on {address} {how}: give this listener a port of its own"
            )));
        }
        let listeners = self.listeners_mut(nqn)?;
        if listeners.contains(&address) {
            return Err(Error::new(ErrorKind::Exists, format!("subsystem {nqn} listens on {address} already")));
        }
        listeners.push(address);
        if let Ok(subsystem) = self.subsystem_mut(nqn)
            && subsystem.spec.ana_reporting
        {
            let states = AnaStates::new(subsystem.spec.max_namespaces, ana_state);
            subsystem.ana.insert(address, Arc::new(states));
        }
        if let Some(secured) = secured {
            self.secured.insert(address, secured);
        }
        self.generation += 1;
        Ok(())
    }

    /// Removes a listener. Returns true if any subsystem still listens on the address, and the ops to wait for.
    pub fn remove_listener(&mut self, nqn: &str, address: Portal) -> Result<(bool, Option<Leaving>), Error> {
        let listeners = self.listeners_mut(nqn)?;
        let before = listeners.len();
        listeners.retain(|other| *other != address);
        if listeners.len() == before {
            return Err(not_listening(nqn, address));
        }
        let leaving = self.subsystem_mut(nqn).ok().map(|subsystem| {
            subsystem.ana.remove(&address);
            Leaving::Ended(Paths { subsystem: subsystem.uid, listener: Some(address) })
        });
        self.generation += 1;
        let is_used = self.listens(address);
        if !is_used {
            self.secured.remove(&address);
        }
        Ok((is_used, leaving))
    }

    /// True if hosts reach the service on that listener.
    pub fn reaches(&self, service: Service, listener: Portal) -> bool {
        match service {
            Service::Discovery => self.listens(listener),
            Service::Subsystem(uid) => {
                self.subsystems.iter().any(|subsystem| subsystem.uid == uid && subsystem.listeners.contains(&listener))
            }
        }
    }

    pub fn listens(&self, address: Portal) -> bool {
        self.all_listeners().any(|listener| listener == address)
    }

    /// The addresses on which any subsystem, and with it the discovery service, is reachable; an address comes as often
    /// as it is used.
    pub fn all_listeners(&self) -> impl Iterator<Item = Portal> {
        let of_subsystems = self.subsystems.iter().flat_map(|subsystem| &subsystem.listeners);
        of_subsystems.chain(&self.discovery_listeners).copied()
    }

    pub fn add_referral(&mut self, referral: Referral) -> Result<(), Error> {
        if self.referrals.contains(&referral) {
            let Referral { address, nqn } = referral;
            return Err(Error::new(ErrorKind::Exists, format!("{nqn} on {address} is named to hosts already")));
        }
        self.referrals.push(referral);
        self.generation += 1;
        Ok(())
    }

    pub fn remove_referral(&mut self, referral: &Referral) -> Result<(), Error> {
        let before = self.referrals.len();
        self.referrals.retain(|other| other != referral);
        if self.referrals.len() == before {
            let Referral { address, nqn } = referral;
            return Err(Error::new(ErrorKind::NotFound, format!("{nqn} on {address} is not named to hosts")));
        }
        self.generation += 1;
        Ok(())
    }

    pub fn add_host(&mut self, nqn: &str, host: &str) -> Result<(), Error> {
        let host: Nqn = host.parse().map_err(|e: crate::spec::NqnError| Error::invalid(e.to_string()))?;
        let subsystem = self.subsystem_mut(nqn)?;
        if subsystem.hosts.contains(&host) {
            return Err(Error::new(ErrorKind::Exists, format!("subsystem {nqn} lets {host} in already")));
        }
        subsystem.hosts.push(host);
        self.generation += 1;
        Ok(())
    }

    /// Removes a host from the list of a subsystem. Returns the subsystem's uid.
    pub fn remove_host(&mut self, nqn: &str, host: &str) -> Result<u64, Error> {
        let subsystem = self.subsystem_mut(nqn)?;
        let before = subsystem.hosts.len();
        subsystem.hosts.retain(|other| other.as_str() != host);
        if subsystem.hosts.len() == before {
            return Err(Error::new(ErrorKind::NotFound, format!("subsystem {nqn} has no host {host} in its list")));
        }
        let uid = subsystem.uid;
        self.generation += 1;
        Ok(uid)
    }

    pub fn allow_any_host(&mut self, nqn: &str, allow: bool) -> Result<(), Error> {
        self.subsystem_mut(nqn)?.spec.allow_any_host = allow;
        self.generation += 1;
        Ok(())
    }
}

/// Checks that a namespace on a shared device can change hands.
///
/// # Errors
/// `Invalid` without ANA reporting, which tells hosts whose turn it is, and for reservations that another process would
/// not know.
fn check_shared(subsystem: &Subsystem, spec: &NamespaceSpec, hides_reservations: bool) -> Result<(), Error> {
    let (nqn, device) = (&subsystem.spec.nqn, &spec.device);
    if !subsystem.spec.ana_reporting {
        let why =
            format!("device {device:?} is shared, and {nqn} has no ANA states: create it with ana_reporting=true");
        return Err(Error::invalid(why));
    }
    if spec.reservations.is_none() && !hides_reservations {
        return Err(Error::invalid(format!(
            "device {device:?} is shared: give ptpl_file, the file in which all targets find the reservations, or hide \
             reservations (masked_oncs)"
        )));
    }
    Ok(())
}

/// True if hosts could take the two for one namespace.
fn shares_identity(one: &NamespaceIds, other: &NamespaceIds) -> bool {
    one.uuid == other.uuid || one.nguid == other.nguid || one.eui64 == other.eui64
}

fn slice_kind(spec: &DeviceSpec) -> bool {
    matches!(spec.kind, device::DeviceKind::Slice { .. })
}

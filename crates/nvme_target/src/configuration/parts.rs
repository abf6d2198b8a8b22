//! The parts of a configuration: devices, and subsystems of namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nvme::spec::{NamespaceIds, Nqn};

use super::changes::ChangedNamespace;
use super::specs::{NamespaceSpec, SubsystemSpec};
use crate::Error;
use crate::ana::AnaStates;
use crate::device::{Device, DeviceSpec};
use crate::gate::Gate;
use crate::limited::Limit;
use crate::portal::Portal;
use crate::reservations::Reservations;

/// A device under its name.
pub(crate) struct DeviceEntry {
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
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
pub(crate) struct Subsystem {
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

    pub(super) fn changed(&self, nsid: u32, namespace: &Namespace) -> ChangedNamespace {
        ChangedNamespace { subsystem: self.uid, nsid, hosts: namespace.spec.audience() }
    }

    /// Notes that the ANA group has other namespaces than before.
    pub(super) fn regroup(&mut self, group: u32) {
        self.ana.values_mut().for_each(|states| Arc::make_mut(states).regroup(group));
    }

    /// Checks that the subsystem has ANA groups, and this one among them.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn check_group(&self, group: Option<u32>) -> Result<(), Error> {
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

#[derive(Clone)]
pub(crate) struct Namespace {
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
    pub(super) fn open_reservations(&mut self) -> Result<(), Error> {
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

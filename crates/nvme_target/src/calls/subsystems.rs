//! Calls about subsystems: their namespaces, who sees and manages these, and the paths to them (ANA).

use std::collections::BTreeSet;
use std::sync::Arc;

use nvme::spec::ana::AnaState;

use crate::configuration::{Configuration, Subsystem};
use crate::controller::Service;
use crate::{Departure, Error, NamespaceManager, NamespaceSpec, Portal, SubsystemInfo, SubsystemSpec, Target};

impl Target {
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
        let info = |subsystem: &Subsystem| SubsystemInfo {
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

    /// Moves a namespace to another ANA group, and tells the hosts that see it.
    ///
    /// # Errors
    /// `NotFound` (subsystem or namespace); `Invalid` if the subsystem does not report ANA states, or has no such
    /// group.
    pub fn set_ana_group(&self, nqn: &str, nsid: u32, group: u32) -> Result<Departure, Error> {
        let changed = self.change(|configuration| configuration.set_ana_group(nqn, nsid, group))?;
        Ok(self.paths_changed(changed))
    }
}

//! Namespaces: who sees them, who has them attached, and their ANA groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use nvme::spec::ana::AnaState;
use nvme::spec::{NamespaceIds, Nqn};

use super::changes::{Audience, ChangedNamespace, ChangedPaths, Leaving, Paths};
use super::parts::{Namespace, Subsystem};
use super::specs::{NamespaceSpec, Visibility};
use super::{Configuration, hidden_reservations, no_namespace, not_listening};
use crate::portal::Portal;
use crate::{Error, ErrorKind};

/// The most hosts that one namespace is detached from: hosts that make up names cannot fill the memory.
const MOST_DETACHED: usize = 1024;
/// Namespaces of all subsystems together: ids of drives in the pacers.
pub(crate) const MAX_DRIVES: u32 = 512;
pub(super) const MAX_NAMESPACES: u32 = 65_535;
/// With ANA: the log page of that many groups fits into the smallest transfer, or hosts do without ANA.
pub(super) const MAX_NAMESPACES_WITH_ANA: u32 = 1024;

impl Configuration {
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

    /// Shows a namespace to a host, or hides it from the host. Returns the namespace with that host alone, `None` if
    /// nothing changes; and the ops to wait for.
    pub fn show_namespace(
        &mut self,
        nqn: &str,
        nsid: u32,
        host: &str,
        shows: bool,
    ) -> Result<(Option<ChangedNamespace>, Leaving), Error> {
        let host: Nqn = host.parse().map_err(|e: nvme::spec::NqnError| Error::invalid(e.to_string()))?;
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
            host.parse::<Nqn>().map_err(|e: nvme::spec::NqnError| Error::invalid(e.to_string()))?;
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

//! Subsystems, and the hosts that may connect to them or manage them.

use nvme::spec::Nqn;

use super::changes::{Leaving, Paths};
use super::parts::Subsystem;
use super::specs::SubsystemSpec;
use super::{Configuration, printable};
use crate::controller::LAST_ID;
use crate::{Error, ErrorKind};

impl Configuration {
    pub fn create_subsystem(&mut self, spec: SubsystemSpec) -> Result<(), Error> {
        let nqn: Nqn = spec.nqn.parse().map_err(|e: nvme::spec::NqnError| Error::invalid(e.to_string()))?;
        if nqn.is_discovery() {
            return Err(Error::invalid("the discovery service is there by itself, on every listener"));
        }
        if self.subsystem(&spec.nqn).is_ok() {
            return Err(Error::new(ErrorKind::Exists, format!("a subsystem called {nqn} exists already")));
        }
        printable("Invalid SN: serial number", &spec.serial, 20)?;
        printable("Invalid MN: model number", &spec.model, 40)?;
        let most = spec.most_namespaces();
        if !(1..=most).contains(&spec.max_namespaces) {
            return Err(Error::invalid(format!("{} namespaces at most: give 1 to {most}", spec.max_namespaces)));
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

    pub fn add_host(&mut self, nqn: &str, host: &str) -> Result<(), Error> {
        let host: Nqn = host.parse().map_err(|e: nvme::spec::NqnError| Error::invalid(e.to_string()))?;
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

    /// Lets a host manage namespaces, or stops that. Returns true if that changes anything.
    pub fn set_manager(&mut self, nqn: &str, host: &str, may_manage: bool) -> Result<bool, Error> {
        let host: Nqn = host.parse().map_err(|e: nvme::spec::NqnError| Error::invalid(e.to_string()))?;
        let managers = &mut self.subsystem_mut(nqn)?.managers;
        let changes = managers.contains(&host) != may_manage;
        match may_manage {
            true if changes => managers.push(host),
            true => {}
            false => managers.retain(|other| *other != host),
        }
        Ok(changes)
    }
}

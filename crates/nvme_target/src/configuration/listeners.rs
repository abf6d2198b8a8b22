//! Listeners and referrals.

use std::sync::Arc;

use nvme::spec::DISCOVERY_NQN;
use nvme::spec::ana::AnaState;

use super::changes::{Leaving, Paths};
use super::specs::{Referral, SecureChannel};
use super::{Configuration, not_listening};
use crate::ana::AnaStates;
use crate::controller::Service;
use crate::portal::Portal;
use crate::{Error, ErrorKind};

impl Configuration {
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
        let number = u16::try_from(self.ports.len() + 1).unwrap_or(u16::MAX);
        self.ports.entry(address).or_insert(number);
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

    /// PORTID of an address: different for each of the target's, and 0 for the addresses of others.
    pub fn port_id(&self, address: &Portal) -> u16 {
        self.ports.get(address).copied().unwrap_or(0)
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
}

//! The hosts that must authenticate, and their keys.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use tls::Psk;

use super::Entropy;
use super::controller::Controller;
use super::exchange::{Authenticator, Channel, Closed, Exchange};
use super::generated::GeneratedKeys;
use super::group::Group;
use super::hash::Hash;
use super::secret::Secret;
use super::tls_key::{Identity, Kind, TlsKey};
use crate::spec::DISCOVERY_NQN;

/// The keys of one host on one subsystem.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The secret that the host must prove to have.
    pub host: Secret,
    /// The secret with which the controller proves itself, to hosts that ask for it.
    pub controller: Option<Secret>,
}

/// The hashes and groups that may be used, the preferred first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The hash functions that an exchange may use.
    pub hashes: Vec<Hash>,
    /// The Diffie-Hellman groups that an exchange may use.
    pub groups: Vec<Group>,
}

impl Default for Policy {
    /// Everything that the standard has: SHA-512 before the shorter ones, ffdhe3072 (128 bits of strength) before those
    /// that cost more, then ffdhe2048, and no exchange at all only for hosts that offer nothing else.
    fn default() -> Self {
        let groups =
            [Group::Ffdhe3072, Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192, Group::Ffdhe2048, Group::Null];
        Policy { hashes: Hash::ALL.to_vec(), groups: groups.to_vec() }
    }
}

impl Policy {
    /// Leaves out what makes no key of TLS: SHA-512, which no cipher suite has, and the group without a secret.
    pub(super) fn keep_those_of_tls(&mut self) {
        self.hashes.retain(|hash| *hash != Hash::Sha512);
        self.groups.retain(|group| *group != Group::Null);
    }
}

/// The keys of all hosts, by subsystem and host NQN.
#[derive(Debug, Default)]
pub struct Keys {
    policy: RwLock<Policy>,
    keys: RwLock<BTreeMap<(String, String), Credentials>>,
    tls_keys: RwLock<BTreeMap<(String, String), TlsKey>>,
    generated: Arc<GeneratedKeys>,
}

impl Keys {
    /// No keys: nobody must authenticate.
    pub fn new(policy: Policy) -> Keys {
        Keys { policy: RwLock::new(policy), ..Keys::default() }
    }

    /// Sets the policy: from now on exchanges use only its hash functions and groups; exchanges that have begun go on
    /// as they were.
    pub fn set_policy(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// Sets the credentials with which the host must authenticate on the subsystem from now on; `None` lets the host in
    /// without authentication.
    pub fn set(&self, subsystem_nqn: &str, host_nqn: &str, credentials: Option<Credentials>) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let at = (subsystem_nqn.to_string(), host_nqn.to_string());
        if keys.get(&at).map(|kept| &kept.host) != credentials.as_ref().map(|new| &new.host) {
            self.generated.forget(subsystem_nqn, host_nqn);
        }
        match credentials {
            Some(credentials) => keys.insert(at, credentials),
            None => keys.remove(&at),
        };
    }

    /// Sets the key of TLS that the host may prove for the subsystem, for its connections from now on.
    pub fn set_tls(&self, subsystem_nqn: &str, host_nqn: &str, key: Option<TlsKey>) {
        let mut keys = self.tls_keys.write().unwrap_or_else(PoisonError::into_inner);
        let at = (subsystem_nqn.to_string(), host_nqn.to_string());
        match key {
            Some(key) => keys.insert(at, key),
            None => keys.remove(&at),
        };
    }

    /// The keys of TLS that an identity may stand for; none if the host has no key. The discovery service takes the
    /// keys that a host has for any subsystem.
    pub fn tls_keys(&self, identity: &str) -> Vec<Psk> {
        let Some(identity) = Identity::parse(identity) else { return Vec::new() };
        if identity.kind == Kind::Generated {
            return self.generated.find(&identity).into_iter().collect();
        }
        let keys = self.tls_keys.read().unwrap_or_else(PoisonError::into_inner);
        let is_its = |(subsystem, host): &(String, String)| {
            *host == identity.host_nqn
                && (*subsystem == identity.subsystem_nqn || identity.subsystem_nqn == DISCOVERY_NQN)
        };
        keys.iter().filter(|(at, _)| is_its(at)).flat_map(|(_, key)| key.keys_of(&identity)).collect()
    }
}

impl Authenticator for Keys {
    fn begin(&self, host_nqn: &str, subsystem_nqn: &str, channel: Channel) -> Option<Box<dyn Exchange>> {
        // The exchange that made the key has proven the host.
        if channel == Channel::OfGeneratedKey {
            return None;
        }
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let credentials = keys.get(&(subsystem_nqn.to_string(), host_nqn.to_string()))?.clone();
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner).clone();
        // Without randomness there is no safe exchange: nobody gets in.
        Some(match Entropy::from_system() {
            Ok(entropy) => {
                let place = (channel == Channel::Concatenating).then(|| Arc::clone(&self.generated));
                Box::new(Controller::new(host_nqn, subsystem_nqn, credentials, policy, entropy, place))
            }
            Err(_) => Box::new(Closed),
        })
    }
}

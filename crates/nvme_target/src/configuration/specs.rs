//! The descriptions by which subsystems, namespaces, listeners and referrals are made.

use std::collections::BTreeSet;
use std::path::PathBuf;

use nvme::spec::{NamespaceIds, Nqn};

use super::changes::Audience;
use super::namespaces::{MAX_NAMESPACES, MAX_NAMESPACES_WITH_ANA};
use crate::identity::{self, Machine};
use crate::portal::Portal;

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
    /// The highest namespace number: up to 65535, or to 1024 with `ana_reporting`.
    pub max_namespaces: u32,
    /// Identifiers that controllers get, within 1 to 65519. `None` begins at a random one, so that two targets with the
    /// same NQN hardly ever give the same one to a host (Linux refuses a second controller with it).
    pub controller_ids: Option<(u16, u16)>,
    /// Limits on single commands, which hosts read in Identify Controller.
    pub command_limits: CommandLimits,
    /// True if hosts read the ANA state of each listener (Base specification 2.0, section 8.1).
    pub ana_reporting: bool,
}

impl SubsystemSpec {
    /// The largest `max_namespaces`.
    pub fn most_namespaces(&self) -> u32 {
        if self.ana_reporting { MAX_NAMESPACES_WITH_ANA } else { MAX_NAMESPACES }
    }

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

    pub(super) fn audience(&self) -> Audience {
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
pub struct Detached(pub(super) BTreeSet<String>);

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

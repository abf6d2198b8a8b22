//! The effects of a change on others: the hosts that are told of it, and the ops that leave by it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::specs::{Detached, Visibility};
use crate::controller::{Controller, Service};
use crate::portal::Portal;

/// A namespace that has come, gone or changed, and the hosts that are told of it.
pub(crate) struct ChangedNamespace {
    /// The uid of the namespace's subsystem.
    pub subsystem: u64,
    pub nsid: u32,
    pub hosts: Audience,
}

/// Paths that have another ANA state, or other namespaces in a group, and the hosts that are told of it: those that see
/// one of the namespaces.
pub(crate) struct ChangedPaths {
    pub paths: Paths,
    pub audiences: Vec<Audience>,
}

/// The hosts that are told of a change: those that have the namespace active.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Audience {
    pub(super) visibility: Visibility,
    pub(super) detached: Detached,
}

impl Audience {
    /// One host alone.
    pub(super) fn one(host: String) -> Audience {
        Audience { visibility: Visibility::Only([host].into()), detached: Detached::default() }
    }

    /// True if the host with that NQN is among them.
    pub fn includes(&self, host_nqn: &str) -> bool {
        self.visibility.includes(host_nqn) && !self.detached.includes(host_nqn)
    }
}

/// The ops to wait for until they have left their devices.
#[derive(Clone)]
pub(crate) enum Leaving {
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
pub(crate) struct Paths {
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

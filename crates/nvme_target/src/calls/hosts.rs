//! Calls about hosts: who gets in, by which keys, and which reactor serves a queue.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use nvme::auth::Authenticator;

use crate::configuration::Leaving;
use crate::controller::Service;
use crate::mailbox::Message;
use crate::{Departure, Error, ErrorKind, Target};

impl Target {
    /// Lets a host connect to a subsystem.
    ///
    /// # Errors
    /// `NotFound` (the subsystem), `Exists`, `Invalid` NQN.
    pub fn add_host(&self, nqn: &str, host_nqn: &str) -> Result<(), Error> {
        self.change(|configuration| configuration.add_host(nqn, host_nqn))
    }

    /// Stops letting a host connect to a subsystem, and closes its connections there unless the subsystem lets any host
    /// in. Returns the ops that devices still have of the host.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove_host(&self, nqn: &str, host_nqn: &str) -> Result<Departure, Error> {
        let subsystem = self.change(|configuration| configuration.remove_host(nqn, host_nqn))?;
        let stays = self.shared.configuration().subsystem(nqn).is_ok_and(|subsystem| subsystem.spec.allow_any_host);
        if stays {
            return Ok(Departure::default());
        }
        let host: Arc<str> = host_nqn.into();
        // After this, an I/O queue that is on its way to another reactor finds no controller there.
        self.shared.ask_all(|done| Message::Disconnect(subsystem, Arc::clone(&host), done));
        let hosts = Arc::new([host_nqn.to_string()].into());
        Ok(self.departure(Leaving::Hosts { subsystem, device: None, hosts }))
    }

    /// Lets every host in, or only those listed from now on; connections stay.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn allow_any_host(&self, nqn: &str, allow: bool) -> Result<(), Error> {
        self.change(|configuration| configuration.allow_any_host(nqn, allow))
    }

    /// Lets a host have one controller at most on each listener of a subsystem, or any number; for controllers from now
    /// on.
    pub fn restrict_hosts(&self, restricts: bool) {
        self.shared.restricts_hosts.store(restricts, Ordering::Relaxed);
    }

    /// Sets the keys that hosts may prove on listeners that demand TLS, for connections from now on.
    pub fn set_tls_keys(&self, find: tls::Find) {
        self.shared.security.set_keys(find);
    }

    /// Sets the authenticator that says which hosts must authenticate, for connections from now on; `None` for nobody.
    pub fn set_authenticator(&self, authenticator: Option<Arc<dyn Authenticator>>) {
        *self.shared.authenticator.write().unwrap_or_else(PoisonError::into_inner) = authenticator;
    }

    /// Asks for the move of an I/O queue to another reactor. The queue moves when its commands have ended, and stays if
    /// that takes longer than 10 ms; [`QueueInfo::reactor`] tells. [`Options::balances`] does this by itself.
    ///
    /// [`QueueInfo::reactor`]: crate::QueueInfo::reactor
    /// [`Options::balances`]: crate::Options::balances
    ///
    /// # Errors
    /// `NotFound` (the subsystem, its controller, or the queue); `Invalid` reactor.
    pub fn move_queue(&self, nqn: &str, controller_id: u16, queue_id: u16, reactor: u32) -> Result<(), Error> {
        let reactors = self.shared.mailboxes.len();
        if reactor as usize >= reactors {
            return Err(Error::invalid(format!("reactor {reactor}: there are {reactors}, from 0 on")));
        }
        let uid = self.shared.configuration().subsystem(nqn)?.uid;
        let controllers = self.shared.controllers();
        let controller = controllers.get(Service::Subsystem(uid), controller_id);
        let queue = controller.and_then(|controller| controller.lock().queues.get(&queue_id).copied());
        let Some(queue) = queue else {
            let what = format!("there is no queue {queue_id} of controller {controller_id} of {nqn}");
            return Err(Error::new(ErrorKind::NotFound, what));
        };
        self.shared.send(queue.token.reactor, Message::Leave(queue.token, reactor));
        Ok(())
    }
}

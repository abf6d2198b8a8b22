//! The registrar: the thread that changes reservations, for all namespaces of a target.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::Reservations;
use super::rules::Consequences;
use crate::spec::Status;
use crate::spec::reservation::{HostId, ReservationCommand};
use crate::target::Shared;
use crate::target::controller::{Controller, Service};
use crate::target::mailbox::{Message, Token};

/// A command that changes reservations, on its way to the registrar.
pub(super) struct Request {
    pub queue: Token,
    pub cid: u16,
    pub service: Service,
    pub host: HostId,
    /// The namespaces that the command names.
    pub namespaces: Vec<(u32, Arc<Reservations>)>,
    pub change: Change,
}

/// The change that a command asks for.
pub(super) enum Change {
    /// A reservation command.
    Command(ReservationCommand),
    /// Set Features, Reservation Persistence.
    Persistence(bool),
}

/// The answer to a command: its queue, identifier and status.
#[derive(Clone, Copy, Debug)]
pub(in crate::target) struct Answered {
    pub queue: Token,
    pub cid: u16,
    pub status: Status,
}

/// Hosts whose commands on a namespace are aborted. Each reactor drops its handle when no device works for such a
/// command any more; with the last handle the Preempt and Abort is answered.
pub(in crate::target) struct Eviction {
    shared: Weak<Shared>,
    answer: Answered,
    pub service: Service,
    pub nsid: u32,
    hosts: Vec<HostId>,
}

impl Eviction {
    /// True if the host of that controller is evicted.
    pub fn names(&self, controller: &Controller) -> bool {
        controller.service == self.service && self.hosts.contains(&controller.host_id)
    }
}

impl Drop for Eviction {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.send(self.answer.queue.reactor, Message::Reserved(self.answer));
        }
    }
}

/// The queue of the registrar. Its thread starts with the first command.
#[derive(Default)]
pub(in crate::target) struct Registrar {
    queue: OnceLock<Sender<Request>>,
    /// Held while a request is carried out: if no thread can be started, reactors carry requests out themselves.
    turn: Mutex<()>,
}

impl Registrar {
    /// Has a request carried out; the reactor of its queue gets [`Message::Reserved`]. A queue has at most as many
    /// requests here as it has entries.
    pub(super) fn take(shared: &Arc<Shared>, request: Request) {
        let queue = shared.registrar.queue.get_or_init(|| {
            let (queue, taken) = mpsc::channel::<Request>();
            let shared = Arc::downgrade(shared);
            let work = move || taken.into_iter().for_each(|request| request.carry_out(&shared));
            // If the thread has not started, the queue has no other end: then this thread carries the request out.
            let _ = std::thread::Builder::new().name("nvmf-reservations".into()).spawn(work);
            queue
        });
        if let Err(mpsc::SendError(request)) = queue.send(request) {
            request.carry_out(&Arc::downgrade(shared));
        }
    }
}

impl Request {
    fn carry_out(self, shared: &Weak<Shared>) {
        let Some(target) = shared.upgrade() else { return };
        let _turn = target.registrar.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answer = Answered { queue: self.queue, cid: self.cid, status: Status::SUCCESS };
        for (nsid, reservations) in &self.namespaces {
            match self.change(&target, reservations) {
                Err(status) => answer.status = status,
                Ok(Consequences { notices, aborted }) => {
                    for (host, notice) in notices {
                        target.notify(self.service, &host, *nsid, notice);
                    }
                    if !aborted.is_empty() {
                        let (service, nsid, shared) = (self.service, *nsid, shared.clone());
                        let eviction = Arc::new(Eviction { shared, answer, service, nsid, hosts: aborted });
                        for mailbox in &target.mailboxes {
                            mailbox.send(Message::Evict(Arc::clone(&eviction)));
                        }
                        return; // the eviction answers
                    }
                }
            }
        }
        target.send(answer.queue.reactor, Message::Reserved(answer));
    }

    /// Changes the reservations of one namespace.
    fn change(&self, target: &Shared, reservations: &Reservations) -> Result<Consequences, Status> {
        let mut rules = reservations.rules();
        let consequences = match &self.change {
            Change::Command(command) => rules.carry_out(&self.host, command)?,
            Change::Persistence(persists) => {
                rules.persists = *persists;
                Consequences::default()
            }
        };
        reservations.change(rules).map_err(|error| {
            target.warnings().push(format!("a reservation was refused: {error}"));
            Status::INTERNAL_ERROR
        })?;
        Ok(consequences)
    }
}

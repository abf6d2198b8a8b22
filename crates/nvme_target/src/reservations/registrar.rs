//! The registrar: the thread that changes reservations, for all namespaces of a target.

use std::collections::HashMap;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use nvme::spec::Status;
use nvme::spec::reservation::{HostId, ReservationCommand};

use super::rules::Consequences;
use super::{Reservations, Reserved};
use crate::Shared;
use crate::controller::{Controller, Service};
use crate::mailbox::{Message, Token};

/// A command that changes reservations, on its way to the registrar.
pub(super) struct Request {
    pub queue: Token,
    pub cid: u16,
    pub service: Service,
    pub host: HostId,
    /// The namespaces that the command names.
    pub namespaces: Vec<Reserved>,
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
pub(crate) struct Answered {
    pub queue: Token,
    pub cid: u16,
    pub status: Status,
    /// The namespace that the status is about.
    pub nsid: u32,
}

/// Hosts whose commands on a namespace are aborted. Each reactor drops its handle when no device works for such a
/// command any more; with the last handle the Preempt and Abort is answered.
pub(crate) struct Eviction {
    shared: Weak<Shared>,
    answer: Answered,
    /// The host whose command evicts them.
    by: HostId,
    pub service: Service,
    pub nsid: u32,
    /// The uid of the device of the namespace: the namespace itself may go before its device has ended their ops.
    pub device: u64,
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
            shared.registrar.waiting().ends(self.by);
            shared.send(self.answer.queue.reactor, Message::Reserved(self.answer));
        }
    }
}

/// The most requests that are not answered yet. A queue that goes leaves its requests here: hosts that connect, send
/// and leave again are faster than a disk.
const MOST_WAITING: usize = 4096;
/// The most of these requests that one host has: those of other hosts come between them.
const MOST_OF_A_HOST: usize = 64;

/// The requests that are not answered yet, counted.
#[derive(Default)]
struct Waiting {
    all: usize,
    by_host: HashMap<HostId, usize>,
}

impl Waiting {
    /// Counts one request more of a host. Returns false if too many wait already.
    fn begins(&mut self, host: HostId) -> bool {
        if self.all >= MOST_WAITING || self.by_host.get(&host).is_some_and(|own| *own >= MOST_OF_A_HOST) {
            return false;
        }
        self.all += 1;
        *self.by_host.entry(host).or_default() += 1;
        true
    }

    fn ends(&mut self, host: HostId) {
        self.all -= 1;
        if let Some(own) = self.by_host.get_mut(&host) {
            *own -= 1;
            if *own == 0 {
                self.by_host.remove(&host);
            }
        }
    }
}

/// The queue of the registrar. Its thread starts with the first command.
#[derive(Default)]
pub(crate) struct Registrar {
    queue: OnceLock<Sender<Request>>,
    waiting: Mutex<Waiting>,
    /// Held while a request is carried out: if no thread can be started, reactors carry requests out themselves.
    turn: Mutex<()>,
}

impl Registrar {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a request carried out; the reactor of its queue gets [`Message::Reserved`].
    ///
    /// # Errors
    /// Command Interrupted if too many requests wait: the host sends the command again.
    pub(super) fn take(shared: &Arc<Shared>, request: Request) -> Result<(), Status> {
        if !shared.registrar.waiting().begins(request.host) {
            return Err(Status::COMMAND_INTERRUPTED);
        }
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
        Ok(())
    }
}

impl Request {
    fn carry_out(self, shared: &Weak<Shared>) {
        let Some(target) = shared.upgrade() else { return };
        let _turn = target.registrar.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answer = Answered { queue: self.queue, cid: self.cid, status: Status::SUCCESS, nsid: 0 };
        for Reserved { nsid, device, reservations } in &self.namespaces {
            match self.change(&target, reservations) {
                Err(status) => (answer.status, answer.nsid) = (status, *nsid),
                Ok(Consequences { notices, aborted }) => {
                    for (host, notice) in notices {
                        target.notify(self.service, &host, *nsid, notice);
                    }
                    if !aborted.is_empty() {
                        let (service, nsid, device) = (self.service, *nsid, *device);
                        let (by, shared, hosts) = (self.host, shared.clone(), aborted);
                        let eviction = Arc::new(Eviction { shared, answer, by, service, nsid, device, hosts });
                        for mailbox in &target.mailboxes {
                            mailbox.send(Message::Evict(Arc::clone(&eviction)));
                        }
                        return; // the eviction answers
                    }
                }
            }
        }
        target.registrar.waiting().ends(self.host);
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
            target.warn_of(None, format!("a reservation was refused: {error}")); // a host may try again and again
            Status::INTERNAL_ERROR
        })?;
        Ok(consequences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_for_each_host_and_for_all() {
        let mut waiting = Waiting::default();
        let host = |number: usize| (number as u128).to_le_bytes();
        assert_eq!((0..1000).filter(|_| waiting.begins(host(0))).count(), MOST_OF_A_HOST);
        assert!(waiting.begins(host(1)), "another host has its own share");
        waiting.ends(host(0));
        assert!(waiting.begins(host(0)) && !waiting.begins(host(0)));
        let more = (2..10_000).filter(|number| waiting.begins(host(*number))).count();
        assert_eq!(more, MOST_WAITING - MOST_OF_A_HOST - 1);
        (0..MOST_OF_A_HOST).for_each(|_| waiting.ends(host(0)));
        (1..2 + more).for_each(|number| waiting.ends(host(number)));
        assert!(waiting.all == 0 && waiting.by_host.is_empty(), "nothing is left of hosts that have gone");
    }
}

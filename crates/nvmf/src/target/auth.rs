//! The door for in-band authentication: the interface that says which hosts must prove themselves, and the exchange of
//! messages. The control plane does the authentication behind it (DH-HMAC-CHAP); the target only carries the messages
//! (NVMe Base 2.0, 8.13).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock, Weak};

use super::Shared;
use super::mailbox::{Message, Token};

/// Decides which hosts must authenticate. Called on a reactor: it must not block.
pub trait Authenticator: Send + Sync {
    /// The exchange that a queue must go through before any other command, or `None` if `host_nqn` need not on
    /// `subsystem_nqn`. `queue_id` 0 is the admin queue.
    fn begin(&self, host_nqn: &str, subsystem_nqn: &str, queue_id: u16) -> Option<Box<dyn Exchange>>;
}

/// One queue's exchange of messages.
pub trait Exchange: Send {
    /// Takes the data of an Authentication Send. The answer to a message that is not understood is the one that
    /// [`Exchange::send`] returns next (a Failure1 message); false ends the connection.
    ///
    /// The target calls this method on a separate thread: long computations (Diffie-Hellman with 8192 bits: 10 ms)
    /// belong here.
    fn receive(&mut self, message: &[u8]) -> bool;

    /// The message for an Authentication Receive of at most `capacity` bytes; longer ones are an error of protocol.
    /// Called on a reactor: it must not take long.
    fn send(&mut self, capacity: usize) -> Vec<u8>;

    /// The state of the exchange.
    fn state(&self) -> ExchangeState;

    /// The means by which the host has proven itself; `None` before it has.
    fn proof(&self) -> Option<Proof>;
}

/// The means by which a host has proven itself, by their names in SPDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The hash function.
    pub hash: &'static str,
    /// The Diffie-Hellman group; `null` for none.
    pub group: &'static str,
}

/// The state of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeState {
    /// The exchange goes on: messages are still to come.
    Pending,
    /// The host has proven itself: other commands are taken now.
    Done,
    /// The authentication has failed: the target closes the connection once the message from [`Exchange::send`] is out.
    Failed,
}

/// A message from a host on its way through its exchange, and its result.
pub(super) struct Examination {
    pub queue: Token,
    /// The identifier of the Authentication Send that brought the message.
    pub cid: u16,
    pub exchange: Box<dyn Exchange>,
    pub message: Vec<u8>,
    /// The answer of [`Exchange::receive`], once it has returned.
    pub accepted: bool,
}

/// A thread that computes for exchanges, so that no reactor does: a host that has yet to prove anything must not hold
/// up the I/O of others. The thread starts when a message first needs it.
#[derive(Default)]
pub(super) struct Examiner {
    queue: OnceLock<Sender<Examination>>,
    /// Messages that wait in the queue, and the one that is being examined.
    waiting: AtomicUsize,
}

/// Messages that wait to be examined at the most. Peers that connect, send a message and leave again are faster than
/// the thread, and their messages would fill the memory.
const WAITING: usize = 1024;

impl Examiner {
    /// Has a message examined; the reactor gets [`Message::Examined`]. Returns false if too many messages wait: the
    /// message is dropped.
    pub fn examine(shared: &Arc<Shared>, examination: Examination) -> bool {
        if shared.examiner.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            shared.examiner.waiting.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let queue = shared.examiner.queue.get_or_init(|| {
            let (queue, taken) = mpsc::channel::<Examination>();
            let shared = Arc::downgrade(shared);
            let work = move || taken.into_iter().for_each(|examination| examination.carry_out(&shared));
            // If the thread has ended, the queue has no other end: then this thread examines the message.
            let _ = std::thread::Builder::new().name("nvmf-auth".into()).spawn(work);
            queue
        });
        if let Err(mpsc::SendError(examination)) = queue.send(examination) {
            examination.carry_out(&Arc::downgrade(shared));
        }
        true
    }
}

impl Examination {
    fn carry_out(mut self, shared: &Weak<Shared>) {
        self.accepted = self.exchange.receive(&self.message);
        if let Some(shared) = shared.upgrade() {
            shared.examiner.waiting.fetch_sub(1, Ordering::Relaxed);
            shared.send(self.queue.reactor, Message::Examined(self));
        }
    }
}

/// An exchange that lets nobody in: it stands in for an exchange while that is being examined, and for an exchange that
/// cannot begin.
#[derive(Debug)]
pub struct Closed;

impl Exchange for Closed {
    fn receive(&mut self, _: &[u8]) -> bool {
        false
    }

    fn send(&mut self, _: usize) -> Vec<u8> {
        Vec::new()
    }

    fn state(&self) -> ExchangeState {
        ExchangeState::Failed
    }

    fn proof(&self) -> Option<Proof> {
        None
    }
}

//! The thread that examines what hosts send to prove themselves, so that no reactor computes (NVMe Base 2.0, 8.13).

use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use nvme::auth::Exchange;

use super::Shared;
use super::mailbox::{Message, Token};
use super::turns::Turns;

/// A message from a host on its way through its exchange, and its result.
pub(super) struct Examination {
    pub queue: Token,
    /// The identifier of the Authentication Send that brought the message.
    pub cid: u16,
    pub exchange: Box<dyn Exchange>,
    pub message: Vec<u8>,
    pub verdict: Verdict,
}

/// The result of an examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The message was not examined: others waited, and its network had sent the most of them.
    Displaced,
    /// [`Exchange::receive`] returned true.
    Accepted,
    /// [`Exchange::receive`] returned false: the connection ends.
    Refused,
}

/// A thread that computes for exchanges, so that no reactor does: a host that has yet to prove anything must not hold
/// up the I/O of others. The thread starts when a message first needs it.
#[derive(Default)]
pub(super) struct Examiner {
    line: Arc<Line>,
    /// True if there is a thread; false if the system had none.
    has_thread: OnceLock<bool>,
}

/// The messages that wait to be examined.
#[derive(Default)]
struct Line {
    state: Mutex<LineState>,
    changed: Condvar,
}

#[derive(Default)]
struct LineState {
    waiting: Turns<Examination>,
    is_closed: bool,
}

/// Messages that wait to be examined at the most. Peers that connect, send a message and leave again are faster than
/// the thread, and their messages would fill the memory. The networks that they come from take turns.
const WAITING: usize = 1024;

impl Line {
    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message; waits for one. `None` when the target has ended.
    fn next(&self) -> Option<Examination> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(examination) = state.waiting.pop() {
                return Some(examination);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Examiner {
    fn drop(&mut self) {
        self.line.state().is_closed = true;
        self.line.changed.notify_all();
    }
}

impl Examiner {
    /// Has a message of a peer in the network `source` examined; the reactor gets [`Message::Examined`]. Too many
    /// messages displace some of the network that has sent the most.
    pub fn examine(shared: &Arc<Shared>, source: IpAddr, examination: Examination) {
        let examiner = &shared.examiner;
        let has_thread = examiner.has_thread.get_or_init(|| {
            let (line, shared) = (Arc::clone(&examiner.line), Arc::downgrade(shared));
            let work = move || {
                while let Some(examination) = line.next() {
                    examination.carry_out(&shared);
                }
            };
            std::thread::Builder::new().name("nvmf-auth".into()).spawn(work).is_ok()
        });
        if !has_thread {
            return examination.carry_out(&Arc::downgrade(shared));
        }
        let displaced = examiner.line.state().waiting.push(source, examination, WAITING);
        examiner.line.changed.notify_one();
        if let Some(displaced) = displaced {
            shared.send(displaced.queue.reactor, Message::Examined(displaced));
        }
    }
}

impl Examination {
    /// A message that waits to be examined.
    pub fn new(queue: Token, cid: u16, exchange: Box<dyn Exchange>, message: Vec<u8>) -> Examination {
        Examination { queue, cid, exchange, message, verdict: Verdict::Displaced }
    }

    fn carry_out(mut self, shared: &Weak<Shared>) {
        self.verdict = if self.exchange.receive(&self.message) { Verdict::Accepted } else { Verdict::Refused };
        if let Some(shared) = shared.upgrade() {
            shared.send(self.queue.reactor, Message::Examined(self));
        }
    }
}

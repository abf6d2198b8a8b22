//! The end of connections whose host comes back.
//!
//! A host that loses a connection connects again, sends its writes again, and then newer ones. The end of the old
//! connection may lie unread in another reactor, behind commands that the host has given up: carried out now, these
//! would put old data over newer ones. So the answer to a Connect waits until every reactor has ended the connections
//! of that host that are over. Their writes that are inside devices are stragglers from then on (`stragglers.rs`).
//!
//! ```text
//! Connect ─► Settle to every reactor ─► each ends what is over, drops its reference ─► Settled ─► answer
//! ```
//!
//! The target cannot know of an end that has not reached this machine: hosts wait for it (Command Quiesce Time, Base
//! specification 2.1, section 9.6).

use std::sync::Arc;

use nvme::spec::Status;
use nvme::spec::reservation::HostId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Reactor, find};
use crate::Shared;
use crate::connection::Connection;
use crate::controller::Controller;
use crate::core::Core;
use crate::mailbox::{Message, Token};
use crate::traces::Cause;
use crate::transport::Link;

/// A question to all reactors, which ends when each of them has ended the connections of a host that are over: the
/// reactors drop their references then.
pub(crate) struct Settling {
    host: HostId,
    /// The Connect that waits, and its result.
    queue: Token,
    cid: u16,
    result: u64,
    shared: Arc<Shared>,
}

impl Drop for Settling {
    fn drop(&mut self) {
        let Settling { queue, cid, result, .. } = *self;
        self.shared.send(queue.reactor, Message::Settled { queue, cid, result });
    }
}

impl Connection {
    /// Answers a Connect that succeeds, once the connections of its host that are over have ended.
    pub(crate) fn accept(&mut self, core: &mut Core, cid: u16, result: u64) {
        let hosts_blocks = |controller: &&Arc<Controller>| !controller.is_discovery();
        let Some(controller) = self.controller.as_ref().filter(hosts_blocks) else {
            return self.respond(core, cid, Status::SUCCESS, result);
        };
        let (host, shared) = (controller.host_id, Arc::clone(&core.shared));
        self.is_settling = true;
        let settling = Arc::new(Settling { host, queue: self.token, cid, result, shared });
        // This reactor, too, does it between two connections.
        for reactor in 0..core.configuration.options.reactors as u32 {
            core.shared.send(reactor, Message::Settle(Arc::clone(&settling)));
        }
    }

    /// True if the peer has ended the connection, or the connection is broken, whatever is still to be read from it.
    pub(super) fn is_over(&self) -> bool {
        are_over(&[self])[0]
    }
}

impl Reactor {
    /// Ends the connections of a host that are over.
    pub(super) fn settle(&mut self, settling: &Settling) {
        self.rdma_events();
        let is_its = |it: &Connection| it.controller.as_ref().is_some_and(|it| it.host_id == settling.host);
        let (indexes, its): (Vec<usize>, Vec<&Connection>) =
            self.connections.iter().filter(|(_, connection)| is_its(connection)).unzip();
        let over = are_over(&its);
        for (index, _) in indexes.into_iter().zip(over).filter(|(_, is_over)| *is_over) {
            self.close(index, Cause::Closed);
        }
    }

    /// Answers a Connect that has waited, and goes on with what has come behind it.
    pub(super) fn settled(&mut self, queue: Token, cid: u16, result: u64) {
        let Some(connection) = find(&mut self.connections, queue) else { return };
        connection.is_settling = false;
        connection.respond(&mut self.core, cid, Status::SUCCESS, result);
        let outcome = connection.take_in_backlog(&mut self.core);
        self.judge(queue.index as usize, outcome);
    }
}

/// For each connection, true if it is over. The events of RDMA say this of its connections.
fn are_over(connections: &[&Connection]) -> Vec<bool> {
    let mut over = vec![false; connections.len()];
    let (places, mut sockets): (Vec<usize>, Vec<PollFd<'_>>) = connections
        .iter()
        .enumerate()
        .filter_map(|(place, connection)| match &connection.transport {
            Link::Tcp(tcp) => Some((place, PollFd::from_borrowed_fd(tcp.descriptor(), PollFlags::RDHUP))),
            Link::Rdma(_) => None,
        })
        .unzip();
    // EINTR: a signal that came meanwhile.
    while let Err(rustix::io::Errno::INTR) = poll(&mut sockets, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {}
    for (place, socket) in places.into_iter().zip(sockets) {
        over[place] = !socket.revents().is_empty();
    }
    over
}

//! Connections that move between reactors: the report of the reactor's load, and both ends of a move
//! (docs/decisions/moving-connections.md).

use std::sync::Arc;

use pace::{Move, PERIOD_NS, Worker};
use rustix::event::epoll;

use super::{Reactor, WATCHED, data_of, find};
use crate::connection::Connection;
use crate::mailbox::{Message, Token};
use crate::traces::Cause;
use crate::transport::Moving;
use crate::{afloat, queued};

/// The time that the commands of a connection have to end before the connection moves. New commands wait meanwhile.
const DRAIN_NS: u64 = 10_000_000;

/// The moves of a reactor's connections.
#[derive(Default)]
pub(super) struct Moves {
    reported_ns: u64,
    /// The time since the last report in which the reactor found nothing to do.
    pub idle_ns: u64,
    leaving: Option<Leaving>,
}

/// The connection that is about to move.
#[derive(Clone, Copy)]
struct Leaving {
    token: Token,
    to: u32,
    until_ns: u64,
}

impl Moves {
    /// The time at which the connection that is about to move stays.
    pub fn wake_ns(&self) -> Option<u64> {
        self.leaving.map(|leaving| leaving.until_ns)
    }
}

impl Reactor {
    /// Reports the load, from time to time, and starts the move that pays.
    pub(super) fn report_load(&mut self) {
        let now_ns = self.core.now_ns;
        let passed_ns = now_ns.saturating_sub(self.moves.reported_ns);
        if passed_ns < PERIOD_NS {
            return;
        }
        let Some(balance) = &self.core.shared.balance else { return };
        let idle_ns = std::mem::take(&mut self.moves.idle_ns);
        self.moves.reported_ns = now_ns;
        let busy = 1.0 - idle_ns as f64 / passed_ns as f64;
        let (mut tokens, mut workers) = (Vec::new(), Vec::new());
        let has_time = self.moves.leaving.is_none() && !self.core.draining;
        for (_, connection) in self.connections.iter_mut().filter(|(_, connection)| connection.is_io_queue()) {
            tokens.push(connection.token);
            workers.push(Worker {
                work: connection.work,
                can_move: has_time && connection.transport.can_move() && connection.rest.is_over(now_ns),
            });
            connection.work /= 2;
        }
        let reactor = self.core.reactor as usize;
        let found =
            balance.lock().unwrap_or_else(std::sync::PoisonError::into_inner).report(now_ns, reactor, busy, &workers);
        if let Some(Move { worker, to }) = found {
            self.leave(tokens[worker], to as u32);
        }
    }

    /// Prepares a connection to move to the reactor `to`; one at a time.
    pub(super) fn leave(&mut self, token: Token, to: u32) {
        let goes = to != self.core.reactor && self.core.shared.mailboxes.len() > to as usize;
        if goes && self.moves.leaving.is_none() && find(&mut self.connections, token).is_some_and(Connection::leave) {
            self.moves.leaving = Some(Leaving { token, to, until_ns: self.core.now_ns + DRAIN_NS });
        }
    }

    /// Sends the leaving connection off once its commands have ended; or lets it stay, if that takes too long.
    pub(super) fn go_on_leaving(&mut self) {
        let Some(leaving) = self.moves.leaving else { return };
        let index = leaving.token.index as usize;
        let mine = |connection: &&mut Connection| connection.token == leaving.token && connection.is_leaving();
        let Some(connection) = self.connections.get_mut(index).filter(mine) else {
            self.moves.leaving = None; // it has ended
            return;
        };
        let now_ns = self.core.now_ns;
        if connection.is_drained() {
            connection.rest.begin(now_ns);
            self.moves.leaving = None;
            self.depart(index, leaving.to);
        } else if now_ns >= leaving.until_ns {
            let outcome = match connection.stay(&mut self.core) {
                Ok(false) => return,
                Ok(true) => Ok(()),
                Err(ended) => Err(ended),
            };
            connection.rest.begin(now_ns);
            self.moves.leaving = None;
            self.judge(index, outcome);
            self.has_more = true;
        }
    }

    fn depart(&mut self, index: usize, to: u32) {
        let mut connection = self.connections.remove(index);
        let _ = epoll::delete(&self.epoll, connection.transport.tcp().descriptor());
        afloat::forget(&mut connection, &mut self.core);
        queued::forget(&mut connection, &mut self.core);
        let shared = &self.core.shared;
        if let Some(moving) = connection.depart() {
            shared.connection_moves(self.core.reactor, to);
            shared.send(to, Message::Arrive(Box::new(moving)));
        }
    }

    /// Takes a connection that another reactor has sent. Meanwhile its controller may have gone, its subsystem, or its
    /// listener: then the connection ends here.
    pub(super) fn arrive(&mut self, moving: Moving) {
        let (from, queue_id) = (moving.from, moving.queue_id);
        let controller = Arc::clone(&moving.controller);
        let token = self.vacant_token();
        let index = token.index as usize;
        let connection = Connection::arrive(token, moving, &self.core);
        // A reset takes the queue out of its controller, and closes it by a name that nobody has any more.
        let is_expected = match controller.lock().queues.get_mut(&queue_id) {
            Some(queue) if queue.token == from => {
                queue.token = token;
                true
            }
            _ => false,
        };
        let is_watched =
            epoll::add(&self.epoll, connection.transport.tcp().descriptor(), data_of(token), WATCHED).is_ok();
        let is_reached = self.core.configuration.reaches(controller.service, connection.listener);
        // Commands of a host that has given the connection up meanwhile are not carried out any more.
        let is_alive = !connection.is_over();
        let goes_on = is_expected && is_watched && is_reached && is_alive && !self.core.draining;
        self.core.rows.host(self.core.shared.board.as_ref(), connection.tenant, controller.host_nqn.as_str());
        connection.come_back(&mut self.core);
        self.connections.insert(connection);
        if !goes_on {
            return self.close(index, if is_alive { Cause::Move } else { Cause::Closed });
        }
        let outcome = self.connections[index].take_in_backlog(&mut self.core);
        self.judge(index, outcome);
    }
}

//! The rounds of a reactor through devices, pacer and sockets, until nothing moves.

use rustix::event::epoll;

use super::{RING, Reactor, find};
use crate::mailbox::Token;
use crate::transport::Transport;
use crate::{io, limited, queued, stragglers};

/// Rounds through devices, pacer and sockets before sockets are read again. More of them go on with what is held, for
/// milliseconds, while small commands wait unread in their sockets.
const ROUNDS: usize = 2;

impl Reactor {
    /// Goes through devices, pacer and sockets, until nothing moves or the limit of rounds is reached.
    pub(super) fn go_round(&mut self) {
        self.has_more = true;
        for _ in 0..ROUNDS {
            self.core.tick();
            self.core.poll_devices();
            let mut moved = self.land();
            moved |= self.let_waiting_go();
            moved |= self.let_limited_go();
            moved |= self.release();
            moved |= self.land();
            moved |= self.send();
            moved |= self.retry();
            if !moved {
                self.has_more = false;
                break;
            }
        }
        self.core.in_flight_peak = self.core.in_flight_peak.max(self.core.pacer.stats().total.in_flight_bytes);
        if !self.watches_ring
            && let Some(ring) = &*self.core.local.uring.borrow()
        {
            let data = epoll::EventData::new_u64(RING);
            self.watches_ring = epoll::add(&self.epoll, ring.fd(), data, epoll::EventFlags::IN).is_ok();
        }
        if let Some(ring) = &mut *self.core.local.uring.borrow_mut() {
            ring.submit();
        }
    }

    /// Hands the ops that have ended back to their commands. Returns true if it found some.
    fn land(&mut self) -> bool {
        let mut moved = false;
        while !self.core.done.is_empty() {
            moved = true;
            // The next step of a command may end at once: its end waits for the next round.
            let mut batch = std::mem::take(&mut self.core.done);
            for done in batch.drain(..) {
                let flight = self.core.landed(&done);
                let connection = find(&mut self.connections, flight.connection);
                match connection.filter(|connection| connection.awaits(flight.slot)) {
                    Some(connection) => io::device_done(connection, &mut self.core, flight.slot, done),
                    None => {
                        self.core.complete(flight.op);
                        if let Some(buffer) = done.buffer {
                            self.core.pool.give(buffer);
                        }
                    }
                }
            }
            if self.core.done.is_empty() {
                self.core.done = batch; // its memory
            }
        }
        moved
    }

    /// Goes on with commands that no straggler holds back any more. Returns true if it found some.
    fn let_waiting_go(&mut self) -> bool {
        let gone_on = self.core.waiting.look(self.core.now_ns, &self.core.shared.stragglers);
        let mut moved = false;
        for (token, slot) in gone_on {
            match find(&mut self.connections, token) {
                // The connection waits for another command of its own, perhaps for one that has just gone on.
                Some(connection) if connection.is_stalled() => stragglers::wait(connection, &mut self.core, slot),
                Some(connection) => {
                    moved = true;
                    stragglers::let_go(&mut connection.slots[slot]);
                    io::admit(connection, &mut self.core, slot);
                }
                None => {}
            }
        }
        moved
    }

    /// Goes on with commands that the limits of their devices let go. Returns true if it found some.
    fn let_limited_go(&mut self) -> bool {
        let (mut moved, mut place) = (false, 0);
        while let Some(channel) = self.core.busy.at(place) {
            place += 1;
            loop {
                // A connection that is stalled waits for another command of its own.
                let connections = &self.connections;
                let can_go = |token: Token| match connections.get(token.index as usize) {
                    Some(connection) if connection.token == token => !connection.is_stalled(),
                    _ => true,
                };
                let Some((token, slot)) = limited::next(&mut self.core, channel, can_go) else { break };
                moved = true;
                if let Some(connection) = find(&mut self.connections, token) {
                    limited::let_go(&mut connection.slots[slot]);
                    io::admit(connection, &mut self.core, slot);
                }
            }
        }
        moved
    }

    /// Starts the held commands whose turn has come. Returns true if it found some.
    fn release(&mut self) -> bool {
        let mut moved = false;
        while let Some(released) = self.core.pacer.poll(self.core.now_ns) {
            moved = true;
            let (index, slot) = ((released.cookie >> 16) as usize, released.cookie as u16);
            match self.connections.get_mut(index) {
                Some(connection) => io::released(connection, &mut self.core, slot),
                None => self.core.complete(released.id),
            }
        }
        moved
    }

    fn send(&mut self) -> bool {
        let mut moved = false;
        let mut dirty = std::mem::take(&mut self.core.dirty);
        for index in dirty.drain(..) {
            let Some(connection) = self.connections.get_mut(index as usize) else { continue };
            if !connection.is_dirty {
                continue;
            }
            let before = connection.transport.unsent_bytes();
            let sent = connection.send(&mut self.core);
            moved |= connection.transport.unsent_bytes() < before;
            let sent = sent.and_then(|()| connection.resume(&mut self.core));
            queued::count(connection, &mut self.core);
            self.judge(index as usize, sent);
        }
        if self.core.dirty.is_empty() {
            self.core.dirty = dirty;
        }
        moved
    }

    fn retry(&mut self) -> bool {
        let mut moved = false;
        for index in std::mem::take(&mut self.core.stalled) {
            let Some(connection) = self.connections.get_mut(index as usize) else { continue };
            let gone_on = connection.retry(&mut self.core);
            moved |= !connection.is_stalled();
            self.judge(index as usize, gone_on);
        }
        moved
    }
}

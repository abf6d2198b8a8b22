//! New connections: the reactor accepts them, gives them to the reactor with the fewest, and bounds the guests.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use rustix::event::epoll;

use super::{Reactor, WATCHED, data_of};
use crate::connection::Connection;
use crate::mailbox::{Message, Token};
use crate::portal::Portal;
use crate::stats::ListenerStats;
use crate::traces::{Cause, Refusal, Refused};
use crate::transport::{Link, Tcp};

impl Reactor {
    /// Accepts one connection; the listener is reported again while there are more.
    pub(super) fn accept(&mut self, data: u64) {
        let Some(listener) = self.listeners.get_mut(&data) else { return };
        match listener.socket.accept() {
            Ok((stream, peer)) => {
                let address = listener.address;
                let shared = Arc::clone(&self.core.shared);
                let place = shared.place_connection().or_else(|| {
                    self.evict_guests();
                    shared.place_connection()
                });
                match place {
                    None => {
                        drop(stream); // closed at once
                        self.refuse_one_more(Some(peer), address.into());
                    }
                    Some(reactor) if reactor == self.core.reactor => self.take(stream, address),
                    Some(reactor) => shared.send(reactor, Message::Serve(stream, address)),
                }
            }
            // Another event took it, a signal came, or the peer was gone before.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) => {}
            // Descriptors have run out: closing a guest frees one.
            Err(_) if self.evict_guests() > 0 => {}
            Err(_) => {
                // The kernel would report the listener again and again: the reactor looks again at the next tick.
                if let Some(listener) = self.listeners.get_mut(&data) {
                    listener.is_paused = true;
                    let _ = epoll::delete(&self.others, &listener.socket);
                }
            }
        }
    }

    pub(super) fn take(&mut self, stream: TcpStream, listener: SocketAddr) {
        let listener: Portal = listener.into();
        if self.core.guests >= self.most_guests {
            self.evict_guests();
        }
        let token = self.vacant_token();
        let connection = match self.core.draining {
            true => None,
            false => Tcp::accept(stream, listener, &self.core)
                .map(|(tcp, peer)| Connection::new(token, Link::Tcp(tcp), peer, listener, &self.core))
                .ok(),
        };
        let watched = connection.filter(|connection| {
            let stream = connection.transport.tcp().descriptor();
            epoll::add(&self.others, stream, data_of(token), WATCHED).is_ok()
        });
        match watched {
            Some(mut connection) => {
                connection.counts_as_guest = true;
                self.core.guests += 1;
                self.core.shared.tally.count(listener, ListenerStats::accept);
                self.connections.insert(connection);
            }
            None => self.core.shared.connection_closed(self.core.reactor, false),
        }
    }

    /// Tells of a peer that finds all connections taken.
    pub(super) fn refuse_one_more(&self, peer: Option<SocketAddr>, listener: Portal) {
        let why = "there are as many connections as the target takes (--connections)";
        self.core.shared.refused(&Refusal { kind: Refused::Limit, peer, listener, names: None, why });
    }

    /// The name of the next connection.
    pub(super) fn vacant_token(&mut self) -> Token {
        self.generation = self.generation.wrapping_add(1) & 0x7fff_ffff;
        Token { reactor: self.core.reactor, index: self.connections.vacant_key() as u32, generation: self.generation }
    }

    /// Counts the connection as a guest, or no longer as one.
    pub(super) fn count_guest(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let is_guest = connection.is_guest();
        if std::mem::replace(&mut connection.counts_as_guest, is_guest) != is_guest {
            self.core.guests = if is_guest { self.core.guests + 1 } else { self.core.guests - 1 };
        }
    }

    /// Makes room for a guest: closes some of those that came first from the addresses that most guests come from. A
    /// host that opens connections by the thousand loses them to newcomers; no newcomer loses its only connection to
    /// such a host. Returns the number of connections closed.
    pub(super) fn evict_guests(&mut self) -> usize {
        let guests = self.connections.iter().filter(|(_, connection)| connection.counts_as_guest);
        let guests: Vec<_> = guests.map(|(index, it)| (it.source(), it.opened_ns, index)).collect();
        let mut crowds: HashMap<IpAddr, usize> = HashMap::new();
        guests.iter().for_each(|(source, ..)| *crowds.entry(*source).or_default() += 1);
        let Some((&most, _)) = crowds.iter().max_by_key(|(_, count)| **count) else { return 0 };
        let mut crowd: Vec<_> = guests.into_iter().filter(|(source, ..)| *source == most).collect();
        crowd.sort_unstable_by_key(|(_, opened_ns, _)| *opened_ns);
        // Several at once: the search is not made for every newcomer of a flood.
        crowd.truncate((crowd.len() / 16).max(1));
        for (.., index) in &crowd {
            if let Some(&Connection { peer, listener, .. }) = self.connections.get(*index) {
                let why = "it makes room: too many peers have yet to show that they may use a subsystem";
                self.core.shared.refused(&Refusal { kind: Refused::Limit, peer, listener, names: None, why });
            }
            self.close(*index, Cause::Limit);
        }
        crowd.len()
    }
}

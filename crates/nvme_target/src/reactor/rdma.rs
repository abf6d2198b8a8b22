//! RDMA in the turns of a reactor: completion queues are polled in each turn, and armed before the reactor sleeps.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use nvme::spec::rdma::Reject;
use verbs::either::Either;
use verbs::stack::Event;

use super::{LISTENER, RDMA, Reactor, data_of};
use crate::connection::{Connection, Phase};
use crate::mailbox::Message;
use crate::stats::ListenerStats;
use crate::traces::Cause;
use crate::transport::{Adapter, Asked, Devices, Link, Owner};

impl Reactor {
    /// RDMA, which begins with the first listener or host.
    fn devices(&mut self) -> std::io::Result<&mut Devices> {
        if self.rdma.is_none() {
            let verbs = self.core.shared.verbs.get().cloned().ok_or(std::io::ErrorKind::Unsupported)?;
            self.rdma = Some(Devices::new(verbs, &self.epoll, RDMA)?);
        }
        self.rdma.as_mut().ok_or_else(|| std::io::ErrorKind::Unsupported.into())
    }

    pub(super) fn listen_rdma(&mut self, address: SocketAddr) -> std::io::Result<SocketAddr> {
        let number = LISTENER | self.next_listener;
        self.next_listener += 1;
        self.devices()?.listen(address, number)
    }

    /// Takes completions. Returns true if there is something to act on.
    #[inline]
    pub(super) fn poll_rdma(&mut self) -> bool {
        self.rdma.as_mut().is_some_and(|devices| devices.poll(&mut self.core))
    }

    /// Has completion queues wake the reactor. Returns true if there is something to act on already.
    #[inline]
    pub(super) fn arm_rdma(&mut self) -> bool {
        self.rdma.as_mut().is_some_and(|devices| devices.arm(&mut self.core))
    }

    /// Acts on the completions that have been taken, and on those that have come since.
    #[inline]
    pub(super) fn serve_rdma(&mut self) {
        if self.rdma.is_some() {
            self.poll_rdma();
            self.act_on_completions();
        }
    }

    fn act_on_completions(&mut self) {
        let Some(devices) = &mut self.rdma else { return };
        let mut polled = devices.take_polled();
        for (adapter, completion) in polled.drain(..) {
            match adapter.owner(completion.pair) {
                Some(Owner::Connection(index)) => {
                    let index = index as usize;
                    if let Some(connection) = self.connections.get_mut(index) {
                        let outcome = match completion.received {
                            true => connection.received(&mut self.core, &adapter, &completion),
                            false => connection.completed(&mut self.core, &completion),
                        };
                        self.judge(index, outcome);
                    }
                }
                Some(Owner::Retiring(key)) if !completion.received => {
                    if let Some(devices) = &mut self.rdma {
                        devices.completed(&mut self.core, key, &completion);
                    }
                }
                Some(Owner::Retiring(_)) | None => {}
            }
            if completion.received && adapter.receive_again(completion.id).is_err() {
                self.core.failed_adapters.push(adapter);
            }
        }
        for adapter in std::mem::take(&mut self.core.failed_adapters) {
            self.close_all_on(&adapter);
        }
        if let Some(devices) = &mut self.rdma {
            devices.give_polled(polled);
            devices.sweep(&mut self.core);
        }
    }

    /// Ends all connections of a device that has failed.
    fn close_all_on(&mut self, adapter: &Rc<Adapter>) {
        for index in self.all() {
            let is_its = |link: &Link| matches!(link, Link::Rdma(rdma) if Rc::ptr_eq(rdma.adapter(), adapter));
            if self.connections.get(index).is_some_and(|connection| is_its(&connection.transport)) {
                self.close_on(index, false, Cause::Device);
            }
        }
        if let Some(devices) = &mut self.rdma {
            devices.give_up(&mut self.core, adapter, &self.epoll);
        }
    }

    /// Acts on the events of the connection manager.
    pub(super) fn rdma_events(&mut self) {
        if let Some(devices) = &self.rdma {
            devices.take_notices();
        }
        while let Some(event) = self.rdma.as_ref().and_then(Devices::next_event) {
            self.rdma_event(event);
        }
    }

    fn rdma_event(&mut self, event: Event<Either>) {
        match event {
            Event::Asked { listener, incoming, peer, private_data, reads } => {
                let Some(devices) = &self.rdma else { return };
                let Some(listener) = devices.portal(listener) else { return }; // it listens no more
                let asked = Asked { incoming, peer, listener, private_data, reads };
                let shared = Arc::clone(&self.core.shared);
                let place = shared.place_connection().or_else(|| {
                    self.evict_guests();
                    shared.place_connection()
                });
                match (place, &self.rdma) {
                    (None, devices) => {
                        let (peer, listener) = (asked.peer, asked.listener);
                        if let Some(devices) = devices {
                            devices.refuse(asked.incoming, Reject::NO_RESOURCES);
                        }
                        self.refuse_one_more(peer, listener);
                    }
                    (Some(reactor), _) if reactor == self.core.reactor => self.take_asked(asked),
                    (Some(reactor), _) => shared.send(reactor, Message::ServeRdma(Box::new(asked))),
                }
            }
            Event::Established { number, .. } => {
                if let Some(index) = self.index_of(number)
                    && let Link::Rdma(rdma) = &mut self.connections[index].transport
                {
                    rdma.is_established();
                    self.connections[index].mark_dirty(&mut self.core);
                }
            }
            Event::Disconnected { number } | Event::Failed { number, .. } | Event::Refused { number, .. } => {
                let cause = if matches!(event, Event::Disconnected { .. }) { Cause::Closed } else { Cause::ABORTED };
                if let Some(index) = self.index_of(number) {
                    // Completions that came before the end count: a host may say goodbye with its last command.
                    self.poll_rdma();
                    self.act_on_completions();
                    if self.index_of(number) == Some(index) {
                        self.close(index, cause);
                    }
                }
            }
            Event::Removed { number } => match self.index_of(number) {
                Some(index) => self.close_on(index, false, Cause::Device),
                None => {
                    if let Some(devices) = &mut self.rdma
                        && let Some(portal) = devices.portal(number)
                    {
                        devices.unlisten(portal);
                        self.core.shared.warn(format!(
                            "the RDMA device of {portal} has gone: hosts do not reach the target there; when it is \
                             back, remove the listener and add it again"
                        ));
                    }
                }
            },
            Event::Routed { .. } => {} // of connections of this side's own
        }
    }

    /// The index of the connection with that number.
    fn index_of(&self, number: u64) -> Option<usize> {
        let (index, generation) = (number as u32 as usize, (number >> 32) as u32);
        self.connections.get(index).filter(|connection| connection.token.generation == generation).map(|_| index)
    }

    /// Makes a host's request a connection of this reactor.
    pub(super) fn take_asked(&mut self, asked: Asked) {
        if self.core.guests >= self.most_guests {
            self.evict_guests();
        }
        let token = self.vacant_token();
        let (peer, listener) = (asked.peer, asked.listener);
        let accepted = match self.devices().map(drop) {
            Ok(()) if self.core.draining => None,
            Ok(()) => self.rdma.as_mut().and_then(|devices| {
                devices.accept(&mut self.core, asked, token, data_of(token).u64(), (&self.epoll, RDMA))
            }),
            Err(error) => {
                self.core.shared.warn_of(peer, format!("a host that came in on {listener} is refused: {error}"));
                None
            }
        };
        let Some(rdma) = accepted else {
            return self.core.shared.connection_closed(self.core.reactor, false);
        };
        let mut connection = Connection::new(token, Link::Rdma(Box::new(rdma)), peer, listener, &self.core);
        connection.phase = Phase::Connect;
        connection.counts_as_guest = true;
        self.core.guests += 1;
        self.core.shared.tally.count(listener, ListenerStats::accept);
        self.connections.insert(connection);
    }

    /// True if no pair of a connection that has ended has work left.
    pub(super) fn has_retired(&self) -> bool {
        self.rdma.as_ref().is_none_or(Devices::has_retired)
    }

    /// Ends all of RDMA: the pairs, and then what they used.
    pub(super) fn end_rdma(&mut self) {
        if let Some(mut devices) = self.rdma.take() {
            devices.end_retiring(&mut self.core);
            devices.drop_unused(&mut self.core, &self.epoll);
        }
    }
}

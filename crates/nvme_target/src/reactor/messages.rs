//! The messages that a reactor carries out: from the control plane, and from other reactors.

use std::collections::HashSet;
use std::sync::Arc;

use nvme::spec::Status;
use rustix::event::epoll;

use super::{LISTENER, Listener, Reactor, find};
use crate::configuration::Configuration;
use crate::connection::Connection;
use crate::controller::{Controller, Service};
use crate::core::Origin;
use crate::mailbox::{Message, Token};
use crate::reservations::{self, Eviction};
use crate::traces::Cause;
use crate::{Error, ErrorKind, admin, fabrics, fused, io};

impl Reactor {
    pub(super) fn message(&mut self, message: Message) {
        match message {
            Message::Configure(configuration, done) => {
                let _ = done.send(self.configure(configuration));
            }
            Message::Listen(address, socket, done) => {
                let data = LISTENER | self.next_listener;
                self.next_listener += 1;
                let _ = epoll::add(&self.others, &socket, epoll::EventData::new_u64(data), epoll::EventFlags::IN);
                self.listeners.insert(data, Listener { address, socket, is_paused: false });
                let _ = done.send(());
            }
            Message::ListenRdma(address, done) => {
                let _ = done.send(self.listen_rdma(address));
            }
            Message::ServeRdma(asked) => self.take_asked(*asked),
            Message::Unlisten(portal, done) => {
                self.listeners.retain(|_, listener| portal != listener.address.into());
                if let Some(devices) = &mut self.rdma {
                    devices.unlisten(portal);
                }
                let _ = done.send(());
            }
            Message::Serve(stream, listener) => self.take(stream, listener),
            Message::Leave(token, to) => self.leave(token, to),
            Message::Arrive(moving) => self.arrive(*moving),
            Message::Close(token, cause) => {
                if find(&mut self.connections, token).is_some() {
                    self.close(token.index as usize, cause);
                }
            }
            Message::Disconnect(subsystem, host, done) => {
                let is_its = |controller: &Controller| {
                    controller.service == Service::Subsystem(subsystem) && controller.host_nqn.as_str() == &*host
                };
                for index in self.all() {
                    if self.connections[index].controller.as_deref().is_some_and(is_its) {
                        self.close(index, Cause::Administrator);
                    }
                }
                let _ = done.send(());
            }
            Message::Settle(settling) => self.settle(&settling),
            Message::Settled { queue, cid, result } => self.settled(queue, cid, result),
            Message::Events(token) => {
                if let Some(connection) = find(&mut self.connections, token) {
                    admin::deliver_events(connection, &mut self.core);
                }
            }
            Message::Abort { queue, cid, asked_by, asked_cid } => {
                let connection = find(&mut self.connections, queue);
                let aborted = connection.is_some_and(|connection| io::abort(connection, &mut self.core, cid));
                self.core.shared.send(asked_by.reactor, Message::Aborted { asked_by, asked_cid, aborted });
            }
            Message::Aborted { asked_by, asked_cid, aborted } => {
                if let Some(connection) = find(&mut self.connections, asked_by) {
                    connection.aborts -= 1;
                    connection.respond(&mut self.core, asked_cid, Status::SUCCESS, u64::from(!aborted));
                }
            }
            Message::Examined(examination) => {
                if let Some(connection) = find(&mut self.connections, examination.queue) {
                    fabrics::examined(connection, &mut self.core, examination);
                }
            }
            Message::Reserved(answer) => {
                if let Some(connection) = find(&mut self.connections, answer.queue) {
                    reservations::answered(connection, &mut self.core, answer);
                }
            }
            Message::Evict(eviction) => self.evict(eviction),
            Message::Managed(answer) => {
                if let Some(connection) = find(&mut self.connections, answer.queue) {
                    connection.respond(&mut self.core, answer.cid, answer.status, 0);
                }
            }
            Message::Depart(leaving, left) => {
                let connections = &self.connections;
                let of = |token: Token| connections.get(token.index as usize).filter(|it| it.token == token);
                let origin =
                    |it: &Connection| Some(Origin { controller: it.controller.clone()?, listener: it.listener });
                self.core.await_departure(&leaving, left, |token| of(token).and_then(origin));
            }
            Message::Fence(fence) => self.core.await_changes(fence),
            Message::Fenced { queue, slot, hold } => {
                if let Some(connection) = find(&mut self.connections, queue) {
                    fused::fenced(connection, &mut self.core, slot, hold);
                }
            }
            Message::GateOpened => {
                for (token, slot) in std::mem::take(&mut self.core.gated) {
                    if let Some(connection) = find(&mut self.connections, token) {
                        fused::gate_opened(connection, &mut self.core, slot);
                    }
                }
            }
            Message::ChangeStats(devices, change, done) => {
                for (_, open) in &mut self.core.channels {
                    if devices.contains(&open.uid) {
                        open.stats.change(change);
                    }
                }
                let _ = done.send(());
            }
            Message::Report(to) => {
                let _ = to.send(self.report());
            }
            Message::Drain(done) => {
                self.core.draining = true;
                self.listeners.clear();
                if let Some(devices) = &mut self.rdma {
                    devices.unlisten_all();
                }
                self.drained = Some(done);
                self.next_tick_ns = self.core.now_ns;
            }
            Message::Stop => self.stops = true,
        }
    }

    /// Aborts the commands that an eviction names.
    fn evict(&mut self, eviction: Arc<Eviction>) {
        let mut evicted = HashSet::new();
        for (_, connection) in &mut self.connections {
            if connection.controller.as_ref().is_some_and(|controller| eviction.names(controller)) {
                evicted.insert(connection.token);
                io::evict(connection, &mut self.core, eviction.nsid);
            }
        }
        self.core.await_evicted(eviction, &evicted);
    }

    fn configure(&mut self, configuration: Arc<Configuration>) -> Result<(), Error> {
        if !Arc::ptr_eq(&configuration.options, &self.core.configuration.options) {
            if !self.connections.is_empty() {
                let busy = "hosts are connected: the transport is set up before they connect";
                return Err(Error::new(ErrorKind::Busy, busy));
            }
            if let Some(devices) = &mut self.rdma {
                devices.end_retiring(&mut self.core);
            }
            self.core.set_options(&configuration.options)?;
        }
        let outcome = self.core.configure(configuration);
        for index in self.all() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            let listener = connection.listener;
            let Some(controller) = &connection.controller else {
                if !self.core.configuration.listens(listener) {
                    self.close(index, Cause::Administrator);
                }
                continue;
            };
            connection.subsystem = self.core.subsystem(controller.service, &controller.host_nqn);
            connection.ana = self.core.ana(controller).cloned();
            if !self.core.configuration.reaches(controller.service, listener) {
                self.close(index, Cause::Administrator); // the subsystem is gone, or its listener
            } else {
                io::fail_orphans(connection, &mut self.core);
            }
        }
        outcome
    }
}

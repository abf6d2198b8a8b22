//! A reactor's work by the clock: time limits, connections that are stuck, memory to give back, the end of a drain.

use rustix::event::epoll;

use super::Reactor;
use crate::connection::Phase;
use crate::traces::Cause;
use crate::{afloat, fabrics, fused, io, queued};

/// The time between looks at time limits, and at memory that may be given back.
const TICK_NS: u64 = 500_000_000;

impl Reactor {
    /// Looks for connections that are stuck. While the pacer holds anything, it has the reactor awake often enough.
    pub(super) fn check_for_stuck(&mut self) {
        self.next_look_ns = self.core.now_ns + afloat::LOOK_NS;
        if self.core.afloat_bytes > 0 || self.lacks_memory {
            let mut lacks_memory = false;
            for (_, connection) in &mut self.connections {
                afloat::check_if_stuck(connection, &mut self.core);
                lacks_memory |= afloat::wants_memory(connection);
            }
            self.lacks_memory = lacks_memory;
            let hanging = |(index, connection)| Some((afloat::hangs_since(connection, &self.core)?, index));
            if lacks_memory && let Some((_, longest)) = self.connections.iter().filter_map(hanging).min() {
                self.close(longest, Cause::Memory);
            }
        }
    }

    /// Looks at time limits, at memory that can be given back, and at the end of a drain.
    pub(super) fn tick(&mut self) {
        let now = self.core.now_ns;
        self.next_tick_ns = now + if self.core.draining { TICK_NS / 100 } else { TICK_NS };
        let limits = self.core.configuration.options.limits;
        let (handshake, proof) = (limits.handshake.as_nanos() as u64, limits.proof.as_nanos() as u64);
        let busy_ns = now.saturating_sub(self.started_ns + self.asleep_ns);
        self.core.publish(busy_ns, self.connections.len());
        self.core.publish_work();
        let is_quiet = self.core.completed_io == self.last_completed;
        self.last_completed = self.core.completed_io;
        for index in self.all() {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            let over = match connection.phase {
                Phase::Handshake | Phase::Connect => match self.core.draining {
                    true => Some(Cause::TargetEnds),
                    false => (now.saturating_sub(connection.opened_ns) > handshake).then_some(Cause::NoConnect),
                },
                Phase::Closing { until_ns } => (now > until_ns).then_some(Cause::Closed),
                Phase::Ready => {
                    let is_expired = connection.is_admin()
                        && connection.controller.as_ref().is_some_and(|controller| controller.is_expired(now));
                    let is_unproven = connection.exchange.is_some() && now.saturating_sub(connection.opened_ns) > proof;
                    if is_unproven {
                        fabrics::unproven(connection, &self.core, "it has not proven its key in time");
                    }
                    let causes = [
                        (is_expired, Cause::KeepAlive),
                        (is_unproven, Cause::NoProof),
                        (connection.is_too_slow(now, &limits), Cause::TooSlow),
                        (self.core.draining && connection.is_idle(), Cause::TargetEnds),
                    ];
                    causes.into_iter().find_map(|(holds, cause)| holds.then_some(cause))
                }
            };
            if self.core.draining {
                fused::give_up(connection, &mut self.core);
            }
            if over.is_none() {
                io::give_back(connection, &mut self.core, limits.hold.as_nanos() as u64);
            }
            if let Some(cause) = over {
                self.close(index, cause);
            } else {
                connection.shrink();
                queued::count(connection, &mut self.core);
            }
        }
        if let Some(devices) = &mut self.rdma {
            devices.drop_unused(&mut self.core, &self.epoll);
        }
        if is_quiet {
            self.core.pool.trim();
        }
        for (data, listener) in &mut self.listeners {
            if std::mem::take(&mut listener.is_paused) {
                let data = epoll::EventData::new_u64(*data);
                let _ = epoll::add(&self.others, &listener.socket, data, epoll::EventFlags::IN);
            }
        }
        let is_over = self.connections.is_empty() && self.core.flights.is_empty() && self.has_retired();
        if self.core.draining && is_over && self.core.flushed() {
            self.drained.take().into_iter().for_each(|done| {
                let _ = done.send(());
            });
        }
    }
}

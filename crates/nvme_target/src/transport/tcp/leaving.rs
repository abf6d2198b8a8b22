//! A connection that goes on at another reactor.
//!
//! A connection moves between two commands: when nothing of it is in a device, in the pacer, or on the network. A busy
//! host leaves no such moment. So a connection that is to leave goes on with the commands under way, the data that R2Ts
//! have asked for among them, and keeps new commands as the bytes that they came in. These bytes move with it.

use std::net::SocketAddr;
use std::sync::Arc;

use nvme::Wire;
use nvme::pdu::{Layout, PduType, Receiver};

use super::Tcp;
use crate::connection::{Connection, Ended, Phase};
use crate::controller::Controller;
use crate::core::Core;
use crate::mailbox::Token;
use crate::portal::Portal;
use crate::traces::Cause;
use crate::transport::Link;

/// Bytes of commands that a connection keeps before it stops reading.
const ASIDE_BYTES: usize = 64 << 10;

/// Commands that have come and wait, as bytes.
#[derive(Default)]
pub(super) struct Aside {
    bytes: Vec<u8>,
    /// Bytes of the last unit that are still to come.
    left: usize,
}

impl Aside {
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A connection between two reactors: all of it that does not belong to a reactor.
pub(crate) struct Moving {
    /// The name that the connection had at the reactor that it has left.
    pub from: Token,
    stream: Wire,
    peer: Option<SocketAddr>,
    listener: Portal,
    receiver: Receiver,
    /// Bytes received that nobody has acted on yet.
    unread: Vec<u8>,
    pub controller: Arc<Controller>,
    tenant: u32,
    is_listed: bool,
    pub queue_id: u16,
    queue_entries: u16,
    no_flow_control: bool,
    sq_head: u16,
    opened_ns: u64,
    rest: pace::Rest,
}

impl Connection {
    /// Makes ready to leave: commands that come from now on wait. Only an I/O queue whose host has proven itself moves.
    /// Returns true if the connection is one.
    pub fn leave(&mut self) -> bool {
        let can_leave =
            self.transport.can_move() && self.is_io_queue() && self.exchange.is_none() && self.controller.is_some();
        if can_leave {
            self.transport.tcp_mut().aside.get_or_insert_default();
        }
        can_leave
    }

    /// True if the connection has been told to leave.
    pub fn is_leaving(&self) -> bool {
        matches!(&self.transport, Link::Tcp(tcp) if tcp.aside.is_some())
    }

    /// True once no command is under way, and the connection can leave.
    pub fn is_drained(&self) -> bool {
        self.phase == Phase::Ready
            && self.slots.used() == 0
            && self.outstanding == 0
            && self.transport.tcp().out.is_empty()
            && self.transport.tcp().arriving.is_none()
            && !self.transport.tcp().is_choked
            && self.stalled.is_none()
    }

    /// Gives up leaving: goes on with the commands that have waited. Returns false while data are arriving: these bytes
    /// come first, so the caller asks again.
    ///
    /// # Errors
    /// A unit that arrived earlier breaks the protocol, and ends the connection.
    pub fn stay(&mut self, core: &mut Core) -> Result<bool, Ended> {
        if self.transport.tcp_mut().arriving.is_some() {
            return Ok(false);
        }
        self.transport.tcp_mut().backlog = self.take_unread();
        // A connection that is stalled goes on with its backlog when it has what it lacks.
        if !self.is_stalled() {
            self.take_in_backlog(core)?;
        }
        Ok(true)
    }

    /// All bytes received that nobody has acted on, in the order in which they came. Nothing waits any more.
    fn take_unread(&mut self) -> Vec<u8> {
        let mut unread = self.transport.tcp_mut().aside.take().unwrap_or_default().bytes;
        unread.append(&mut self.transport.tcp_mut().partial);
        unread.append(&mut self.transport.tcp_mut().backlog);
        unread
    }

    /// Takes what moves out of a connection that is drained. `None` if it has no controller any more.
    pub fn depart(mut self) -> Option<Moving> {
        let unread = self.take_unread();
        let Link::Tcp(Tcp { stream, receiver, .. }) = self.transport else { return None };
        Some(Moving {
            from: self.token,
            unread,
            controller: self.controller.take()?,
            stream,
            peer: self.peer,
            listener: self.listener,
            receiver,
            tenant: self.tenant,
            is_listed: self.is_listed,
            queue_id: self.queue_id,
            queue_entries: self.queue_entries,
            no_flow_control: self.no_flow_control,
            sq_head: self.sq_head,
            opened_ns: self.opened_ns,
            rest: self.rest,
        })
    }

    /// The connection at the reactor that it has come to. Its bytes that nobody has acted on are in its backlog.
    pub fn arrive(token: Token, moving: Moving, core: &Core) -> Connection {
        let Moving { stream, peer, listener, controller, receiver, unread, .. } = moving;
        let transport = Tcp { receiver, backlog: unread, ..Tcp::on(stream, core) };
        Connection {
            phase: Phase::Ready,
            subsystem: core.subsystem(controller.service, &controller.host_nqn),
            ana: core.ana(&controller).cloned(),
            controller: Some(controller),
            tenant: moving.tenant,
            counts_as_host: true,
            is_listed: moving.is_listed,
            queue_id: moving.queue_id,
            queue_entries: moving.queue_entries,
            no_flow_control: moving.no_flow_control,
            sq_head: moving.sq_head,
            opened_ns: moving.opened_ns,
            rest: moving.rest,
            watched: (true, false, true),
            ..Connection::new(token, Link::Tcp(transport), peer, listener, core)
        }
    }

    /// Sets the unit aside if it is a command and the connection is leaving: its header now, the rest as it comes.
    /// Returns true if it does.
    #[inline]
    pub(super) fn sets_aside(&mut self, layout: &Layout, header: &[u8]) -> Result<bool, Ended> {
        let Some(aside) = self.transport.tcp_mut().aside.as_mut().filter(|_| layout.kind == PduType::CapsuleCmd) else {
            return Ok(false);
        };
        aside.bytes.try_reserve(layout.total() as usize).map_err(|_| Ended::Gone(Cause::NO_MEMORY))?;
        aside.bytes.extend_from_slice(header);
        aside.left = layout.total() as usize - header.len();
        Ok(true)
    }

    /// Takes bytes of a unit that has been set aside. Returns the bytes that are left.
    #[inline]
    pub(super) fn more_aside<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(aside) = &mut self.transport.tcp_mut().aside else { return bytes };
        let (mine, rest) = bytes.split_at(bytes.len().min(aside.left));
        aside.bytes.extend_from_slice(mine);
        aside.left -= mine.len();
        rest
    }
}

impl Tcp {
    /// True if [`ASIDE_BYTES`] of commands wait: the connection reads no more. Data that are arriving end first: the
    /// commands that they belong to are under way.
    #[inline]
    pub(super) fn has_much_aside(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.bytes.len() >= ASIDE_BYTES) && self.arriving.is_none()
    }
}

//! The transport of a connection: one of those that there are. A connection has the same one all the time, so each
//! branch here always goes the same way.

use std::net::IpAddr;

use nvme::spec::{Completion, Data, Sgl, Status};
use pace::OpId;
use sys::buffer::Buffer;

use super::{Rdma, Tcp, Transport};
use crate::answer::Answer;
use crate::connection::{Connection, Ended};
use crate::core::Core;
use crate::io as io_command;
use crate::slot::Stage;

/// The transport of one connection. RDMA's part lies apart: TCP's connections, of which there may be thousands that
/// have nothing to do, are not larger for it.
#[allow(clippy::large_enum_variant, reason = "a box around TCP's part would cost each of its calls a step")]
pub(crate) enum Link {
    Tcp(Tcp),
    Rdma(Box<Rdma>),
}

/// Calls the transport, whichever it is.
macro_rules! either {
    ($link:expr, $transport:ident => $call:expr) => {
        match $link {
            Link::Tcp($transport) => $call,
            Link::Rdma($transport) => $call,
        }
    };
}

impl Link {
    /// The transport of a connection that is known to be TCP's.
    #[inline]
    pub fn tcp(&self) -> &Tcp {
        match self {
            Link::Tcp(tcp) => tcp,
            Link::Rdma(_) => unreachable!("only TCP's own code asks"),
        }
    }

    /// As [`Link::tcp`].
    #[inline]
    pub fn tcp_mut(&mut self) -> &mut Tcp {
        match self {
            Link::Tcp(tcp) => tcp,
            Link::Rdma(_) => unreachable!("only TCP's own code asks"),
        }
    }

    /// The transport of a connection that is known to be RDMA's.
    #[inline]
    pub fn rdma(&self) -> &Rdma {
        match self {
            Link::Rdma(rdma) => rdma,
            Link::Tcp(_) => unreachable!("only RDMA's own code asks"),
        }
    }

    /// As [`Link::rdma`].
    #[inline]
    pub fn rdma_mut(&mut self) -> &mut Rdma {
        match self {
            Link::Rdma(rdma) => rdma,
            Link::Tcp(_) => unreachable!("only RDMA's own code asks"),
        }
    }

    /// True if the transport can go on at another reactor.
    #[inline]
    pub fn can_move(&self) -> bool {
        matches!(self, Link::Tcp(_))
    }
}

impl Transport for Link {
    #[inline]
    fn respond(&mut self, completion: &Completion) {
        either!(self, it => it.respond(completion))
    }

    #[inline]
    fn end(&mut self, slot: u16) {
        either!(self, it => it.end(slot))
    }

    #[inline]
    fn omits_response(&self, no_flow_control: bool) -> bool {
        either!(self, it => it.omits_response(no_flow_control))
    }

    #[inline]
    fn ask_for_data(&mut self, cid: u16, slot: u16, length: u32, buffer: &mut Option<Buffer>, is_pooled: bool) {
        either!(self, it => it.ask_for_data(cid, slot, length, buffer, is_pooled))
    }

    fn asks_before_connect(&self) -> bool {
        either!(self, it => it.asks_before_connect())
    }

    #[inline]
    fn send_data(&mut self, cid: u16, buffer: Buffer, length: u32, ends: bool) {
        either!(self, it => it.send_data(cid, buffer, length, ends))
    }

    #[inline]
    fn send_zeros(&mut self, cid: u16, length: u32, ends: bool) {
        either!(self, it => it.send_zeros(cid, length, ends))
    }

    fn send_answer(&mut self, cid: u16, answer: &Answer, ends: bool) {
        either!(self, it => it.send_answer(cid, answer, ends))
    }

    #[inline]
    fn place_of_data(&self, sgl: &Sgl) -> Result<Data, Status> {
        either!(self, it => it.place_of_data(sgl))
    }

    fn sgl_support(&self) -> u32 {
        either!(self, it => it.sgl_support())
    }

    #[inline]
    fn is_empty(&self) -> bool {
        either!(self, it => it.is_empty())
    }

    #[inline]
    fn unsent_bytes(&self) -> u64 {
        either!(self, it => it.unsent_bytes())
    }

    #[inline]
    fn output_memory(&self) -> u64 {
        either!(self, it => it.output_memory())
    }

    #[inline]
    fn memory(&self) -> u64 {
        either!(self, it => it.memory())
    }

    fn abandon(&mut self, free: &mut Vec<Buffer>) {
        either!(self, it => it.abandon(free))
    }

    fn keeps(&mut self, slot: u16, op: OpId) -> bool {
        either!(self, it => it.keeps(slot, op))
    }

    fn forget_received(&mut self) {
        either!(self, it => it.forget_received())
    }

    fn shrink(&mut self) {
        either!(self, it => it.shrink())
    }

    fn local_ip(&self) -> Option<IpAddr> {
        either!(self, it => it.local_ip())
    }

    fn identity(&self) -> Option<&str> {
        either!(self, it => it.identity())
    }

    fn becomes_io_queue(&mut self, core: &Core) {
        either!(self, it => it.becomes_io_queue(core))
    }
}

/// The calls of the reactor, on each transport.
impl Connection {
    /// True while the connection cannot act on what it receives.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some() || self.is_settling || either!(&self.transport, it => it.is_held_up())
    }

    /// Stops acting on what comes until [`Connection::retry`] has found what `slot` lacks.
    pub fn stall(&mut self, core: &mut Core, slot: u16) {
        self.stalled = Some(slot);
        core.stalled.push(self.token.index);
    }

    /// Goes on after a stall, if it can now.
    ///
    /// # Errors
    /// Something that arrived earlier breaks the protocol, and ends the connection.
    pub fn retry(&mut self, core: &mut Core) -> Result<(), Ended> {
        let Some(index) = self.stalled.take() else { return Ok(()) };
        let goes_on = match self.slots.get(index).map(|slot| slot.stage) {
            Some(Stage::Capsule) => io_command::room_for_capsule(self, core, index),
            Some(Stage::Unadmitted) => io_command::admit(self, core, index),
            _ => true,
        };
        if !goes_on {
            return Ok(()); // stalled again
        }
        self.take_in_backlog(core)
    }

    /// Acts on what has waited.
    ///
    /// # Errors
    /// As for [`Connection::retry`].
    pub fn take_in_backlog(&mut self, core: &mut Core) -> Result<(), Ended> {
        match self.transport {
            Link::Tcp(_) => self.take_in_bytes(core),
            Link::Rdma(_) => self.take_in_capsules(core),
        }
    }

    /// Goes on when the peer has taken enough of the output.
    ///
    /// # Errors
    /// As for [`Connection::retry`].
    pub fn resume(&mut self, core: &mut Core) -> Result<(), Ended> {
        let is_choked = either!(&self.transport, it => it.is_choked);
        if !is_choked || super::super::queued::is_beyond(self, core) {
            return Ok(());
        }
        either!(&mut self.transport, it => it.is_choked = false);
        self.take_in_backlog(core)
    }

    /// Sends the output, as far as the transport takes it.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, core: &mut Core) -> Result<(), Ended> {
        self.is_dirty = false;
        match self.transport {
            Link::Tcp(_) => self.send_bytes(core),
            Link::Rdma(_) => self.post(core),
        }
    }

    /// True if the peer is slower than the limits allow: in sending what it has begun to send, or in taking the output.
    pub fn is_too_slow(&mut self, now_ns: u64, limits: &crate::Limits) -> bool {
        match self.transport {
            Link::Tcp(_) => self.is_slow_stream(now_ns, limits),
            Link::Rdma(_) => self.is_slow_pair(now_ns, limits),
        }
    }
}

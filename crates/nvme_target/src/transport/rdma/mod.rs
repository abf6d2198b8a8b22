//! NVMe over RDMA: capsules are messages, and the target moves the data itself, by RDMA READ and RDMA WRITE of the
//! memory that a command names (NVM Express RDMA Transport Specification 1.0).
//!
//! ```text
//! greeting ─► the terms of a connection: sizes, READs
//! adapter ──► a device for one reactor: completion queue, shared receives; registered: the pool's buffers
//! receives ─► capsules ─► Connection::capsule ─► commands; named: the host's memory that each command may use
//! commands ─► send_queue ─► the card ─► completions ─► retiring, when the connection has ended first
//! devices ──► all adapters of a reactor, and its end of the connection manager
//! ```

mod adapter;
mod capsules;
mod devices;
mod greeting;
mod named;
mod registered;
mod retiring;
mod send_queue;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use nvme::spec::rdma::{RdmaData, Reject};
use nvme::spec::{Completion, Data, Sgl, Status};
use pace::OpId;
use sys::buffer::Buffer;
use verbs::Verbs;
use verbs::either::{Incoming, Pair};
use verbs::stack::{Greeting, Number, PairOptions, Reads};
use verbs::work::Completion as Completed;

use super::Transport;
use super::progress::Progress;
use crate::afloat;
use crate::answer::Answer;
use crate::connection::{Connection, Ended};
use crate::core::Core;
use crate::io as io_command;
use crate::portal::Portal;
use crate::slot::Stage;
use crate::traces::Cause;
pub(crate) use adapter::{Adapter, Owner};
use capsules::Backlog;
pub(crate) use devices::{Devices, cannot_listen};
use greeting::{Bounds, Terms};
use named::Named;
pub(crate) use send_queue::Ended as EndedWork;
use send_queue::SendQueue;

/// A host that asks for a connection.
pub(crate) struct Asked {
    pub incoming: Incoming,
    pub peer: Option<SocketAddr>,
    pub listener: Portal,
    pub private_data: Vec<u8>,
    pub reads: Reads,
}

/// The part of a connection that is RDMA's.
pub(crate) struct Rdma {
    // The pair ends before the memory that its work may use.
    pair: Pair,
    queue: SendQueue,
    adapter: Rc<Adapter>,
    local: IpAddr,
    /// True once both sides are connected.
    may_send: bool,
    pub(super) is_choked: bool,
    named: Named,
    backlog: Backlog,
    /// The rates of the peer: how fast it gives the data that READs have asked for, and takes the output.
    transfer_progress: Progress,
    output_progress: Progress,
}

impl Rdma {
    /// Accepts a host's request as the connection with that name and number.
    ///
    /// # Errors
    /// The request with the reason of the refusal; without the request if the host has been refused already.
    fn accept(
        incoming: Incoming,
        adapter: &Rc<Adapter>,
        terms: &Terms,
        local: IpAddr,
        name: u32,
        number: Number,
    ) -> Result<Rdma, (Option<Incoming>, Reject)> {
        let full = |incoming| (incoming, Reject::NO_RESOURCES);
        let queue = match SendQueue::new(adapter, name, terms) {
            Ok(queue) => queue,
            Err(_) => return Err(full(Some(incoming))),
        };
        if !adapter.promise(terms.sends) {
            return Err(full(Some(incoming)));
        }
        let options = PairOptions {
            domain: &adapter.domain,
            completions: &adapter.completions,
            shared: Some(&adapter.receives),
            sends: terms.sends,
            receives: 0,
            parts: adapter.parts(),
        };
        let private_data = terms.acceptance();
        let greeting = Greeting { private_data: &private_data, reads: terms.reads, no_receive_tries: None };
        let pair = match adapter.verbs.accept(incoming, number, &options, &greeting) {
            Ok(pair) => pair,
            Err(_) => {
                adapter.redeem(terms.sends);
                return Err(full(None));
            }
        };
        Ok(Rdma {
            pair,
            queue,
            adapter: Rc::clone(adapter),
            local,
            may_send: false,
            is_choked: false,
            named: Named::default(),
            backlog: Backlog::default(),
            transfer_progress: Progress::default(),
            output_progress: Progress::default(),
        })
    }

    pub fn adapter(&self) -> &Rc<Adapter> {
        &self.adapter
    }

    /// The number that completions name the pair by.
    pub fn pair_number(&self) -> u32 {
        self.adapter.verbs.pair_number(&self.pair)
    }

    /// Both sides are connected: the target may send from now on.
    pub fn is_established(&mut self) {
        self.may_send = true;
    }

    /// True while the connection must not act on what comes.
    #[inline]
    pub fn is_held_up(&self) -> bool {
        self.is_choked
    }
}

impl Transport for Rdma {
    #[inline]
    fn respond(&mut self, completion: &Completion) {
        let invalidates = self.named.end(completion.cid);
        self.queue.respond(completion, invalidates);
    }

    #[inline]
    fn end(&mut self, slot: u16) {
        self.queue.end(slot);
    }

    #[inline]
    fn omits_response(&self, _no_flow_control: bool) -> bool {
        false // the host does not notice an RDMA WRITE
    }

    fn asks_before_connect(&self) -> bool {
        true
    }

    #[inline]
    fn ask_for_data(&mut self, cid: u16, slot: u16, length: u32, buffer: &mut Option<Buffer>, is_pooled: bool) {
        // `place_of_data` has found the range as long as the data.
        if let Some(from) = self.named.first(cid, length)
            && let Some(buffer) = buffer.take()
        {
            self.queue.want(slot, buffer, is_pooled, length, from);
        }
    }

    #[inline]
    fn send_data(&mut self, cid: u16, buffer: Buffer, length: u32, _ends: bool) {
        self.queue.data(buffer, length, self.named.first(cid, length));
    }

    #[inline]
    fn send_zeros(&mut self, cid: u16, length: u32, _ends: bool) {
        self.queue.zeros(length, self.named.first(cid, length));
    }

    fn send_answer(&mut self, cid: u16, answer: &Answer, _ends: bool) {
        self.queue.answer(&self.adapter, answer, self.named.first(cid, answer.len() as u32));
    }

    #[inline]
    fn place_of_data(&self, sgl: &Sgl) -> Result<Data, Status> {
        match RdmaData::of(sgl)? {
            RdmaData::InCapsule { offset, length } => Ok(Data::InCapsule { offset, length }),
            RdmaData::Remote(range) => Ok(Data::Transport { length: range.length }),
        }
    }

    fn sgl_support(&self) -> u32 {
        1 | 1 << 2 | 1 << 20 // Keyed SGL Data Blocks, and offsets in the capsule
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline]
    fn unsent_bytes(&self) -> u64 {
        self.queue.unsent()
    }

    #[inline]
    fn output_memory(&self) -> u64 {
        self.queue.memory()
    }

    fn memory(&self) -> u64 {
        self.queue.memory() + (self.backlog.memory() + self.named.memory()) as u64
    }

    fn abandon(&mut self, free: &mut Vec<Buffer>) {
        self.queue.forget_replies();
        self.queue.forget_wanted();
        self.queue.take_loose(free);
    }

    fn keeps(&mut self, slot: u16, op: OpId) -> bool {
        self.queue.keeps(slot, op)
    }

    fn forget_received(&mut self) {
        (self.backlog, self.is_choked) = (Backlog::default(), false);
        self.queue.forget_wanted();
    }

    fn shrink(&mut self) {
        self.queue.shrink();
        self.backlog.shrink();
    }

    fn local_ip(&self) -> Option<IpAddr> {
        Some(self.local)
    }

    fn identity(&self) -> Option<&str> {
        None
    }

    fn becomes_io_queue(&mut self, _core: &Core) {}
}

impl Connection {
    /// Posts what has a place in the send queue.
    ///
    /// # Errors
    /// The pair takes no more work.
    pub(super) fn post(&mut self, core: &mut Core) -> Result<(), Ended> {
        let rdma = self.transport.rdma_mut();
        rdma.queue.take_loose(&mut core.free);
        core.give_free();
        if !rdma.may_send {
            return Ok(());
        }
        let mut unfetched = Vec::new();
        let responses = rdma.queue.post(&rdma.adapter, &rdma.pair, &mut unfetched)?;
        self.outstanding = self.outstanding.saturating_sub(responses);
        for send_queue::Unfetched { slot, buffer } in unfetched {
            self.fetched(core, slot, buffer, Status::INTERNAL_ERROR);
        }
        let rdma = self.transport.rdma();
        if self.is_closing() && rdma.queue.is_empty() {
            // The goodbye has arrived. The host answers, or the time to read it ends.
            let _ = rdma.adapter.verbs.disconnect(&rdma.pair);
        }
        Ok(())
    }

    /// Acts on the end of work of the send queue.
    ///
    /// # Errors
    /// The work has failed: the pair, and with it the connection, is over.
    pub fn completed(&mut self, core: &mut Core, completion: &Completed) -> Result<(), Ended> {
        let is_success = completion.status == verbs::work::Status::Success;
        let mut ended = std::mem::take(&mut core.ended_work);
        let rdma = self.transport.rdma_mut();
        let before = (rdma.queue.unsent(), rdma.queue.asked());
        rdma.queue.completed(completion.id, is_success, &mut ended);
        rdma.queue.take_loose(&mut core.free);
        let ops = rdma.queue.take_ops();
        rdma.output_progress.moved(before.0 - rdma.queue.unsent());
        rdma.transfer_progress.moved(before.1 - rdma.queue.asked());
        for op in ops {
            core.complete(op);
        }
        core.give_free();
        afloat::moved(self, core);
        for one in ended.drain(..) {
            match one {
                send_queue::Ended::Responded { slot } => {
                    if self.slots.get(slot).is_some_and(|slot| slot.stage == Stage::Sending) {
                        io_command::release(self, core, slot);
                    }
                }
                send_queue::Ended::Fetched { slot, buffer, is_pooled } => {
                    match self.slots.get(slot).is_some_and(|slot| slot.stage == Stage::Data) {
                        true => self.fetched(core, slot, buffer, Status::SUCCESS),
                        false if is_pooled => core.free.push(buffer),
                        false => {}
                    }
                }
            }
        }
        core.ended_work = ended;
        if !is_success {
            return Err(Ended::Gone(Cause::ABORTED));
        }
        if self.transport.rdma().queue.has_waiting() || self.is_closing() {
            self.mark_dirty(core);
        }
        Ok(())
    }

    /// Goes on with the command of a slot, which has its buffer back: all its data are here, or none for want of
    /// memory.
    fn fetched(&mut self, core: &mut Core, slot: u16, buffer: Buffer, status: Status) {
        let Some(command) = self.slots.get(slot) else { return };
        (command.buffer, command.received) = (Some(buffer), command.data_len);
        if !status.is_ok() && command.status.is_ok() {
            command.status = status;
        }
        self.host_data_over(core, slot, true);
    }

    /// True if the peer is slower than the limits allow: in giving data that READs ask for, or in taking the output.
    pub(super) fn is_slow_pair(&mut self, now_ns: u64, limits: &crate::Limits) -> bool {
        let (stall, send_stall) = (limits.stall.as_nanos() as u64, limits.send_stall.as_nanos() as u64);
        let rdma = self.transport.rdma_mut();
        let (is_asked, is_sending) = (rdma.queue.asked() > 0, rdma.queue.unsent() > 0);
        let rate = limits.bytes_per_s;
        rdma.transfer_progress.is_too_slow(now_ns, is_asked, stall, rate)
            | rdma.output_progress.is_too_slow(now_ns, is_sending, send_stall, rate)
    }
}

/// The bounds of the target on new connections.
fn bounds(core: &Core) -> Bounds {
    let limits = core.configuration.options.limits;
    Bounds {
        queues: core.configuration.queues,
        queue_depth: limits.queue_depth,
        admin_queue_depth: limits.admin_queue_depth,
    }
}

/// A device that fails in a way that ends its connections.
fn failed(error: &io::Error) -> String {
    format!("an RDMA device has failed ({error}): its connections end, and hosts connect again")
}

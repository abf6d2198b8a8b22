//! A connection: its state, its answers, and its end. Everything that depends on the transport is in
//! [`transport`](super::transport); `commands` takes the commands that the transport has received.

mod dispatch;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nvme::auth::Exchange;
use nvme::pdu::Fault;
use nvme::spec::ana::AnaState;
use nvme::spec::{Command, Completion, Status};

use super::afloat::Afloat;
use super::ana::AnaStates;
use super::answer::Answer;
use super::configuration::CommandLimits;
use super::controller::Controller;
use super::core::{Core, LocalNamespace, LocalSubsystem};
use super::errors::{About, Failed};
use super::fused::Pending;
use super::io_command::IoCommand;
use super::mailbox::Token;
use super::portal::Portal;
use super::reservations::Need;
use super::slot::{CommandSlots, Stage};
use super::traces::Cause;
use super::transport::{Link, NO_SLOT, Transport};
use super::{io as io_command, queued};
use crate::journal::network_of;
pub(super) use dispatch::{Breach, COMMANDS_BEFORE_CONNECT};

/// Bytes of data that admin and Fabrics commands may bring in their capsules, on any queue.
pub(super) const ADMIN_CAPSULE_BYTES: u32 = 8192;
/// SQHD in all responses of a queue without SQ flow control, that to Connect among them: the controller has agreed to
/// do without (Base specification 2.0, section 6.3).
const NO_SQ_HEAD: u16 = 0xffff;
/// The work of a command besides that of its data, in bytes that take about as long to copy.
pub(super) const COMMAND_WORK: u64 = 8192;
/// After a fatal error: how long the peer may take to read why.
pub(super) const LINGER_NS: u64 = 2_000_000_000;

/// The phase of a connection: how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The connection awaits the ICReq of its host.
    Handshake,
    /// The connection awaits the Connect command of its host.
    Connect,
    /// The connection is an admin or I/O queue of a controller.
    Ready,
    /// The connection is over: until `until_ns` its peer may still read why.
    Closing { until_ns: u64 },
}

/// The reason why a connection ends.
#[derive(Debug)]
pub(super) enum Ended {
    /// The peer has gone, or the network, or this machine lacks memory for the connection.
    Gone(Cause),
    /// The ends do not agree on a key of TLS, for that reason.
    Unsecured(String),
    /// The peer has broken the protocol, and the transport says how.
    Fault(Fault),
    /// The peer has broken the protocol on a transport without words for it.
    Breach(Breach),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Ended {
        Ended::Fault(fault)
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<tls::Error>());
        of_tls.map_or(Ended::Gone(Cause::Broken(error.kind())), |why| Ended::Unsecured(why.to_string()))
    }
}

pub(super) struct Connection {
    pub token: Token,
    pub transport: Link,
    pub peer: Option<SocketAddr>,
    /// The listener that it came in on.
    pub listener: Portal,
    pub phase: Phase,
    /// The cause for which the target hangs up, once it does.
    pub hangs_up_for: Option<Cause>,
    /// The blocks that the next error is about.
    pub about: About,
    /// The command for which the connection cannot go on: the pacer has no slot for the command, or its data have no
    /// room.
    pub stalled: Option<u16>,
    /// True while the queue's Connect waits for the end of other connections of its host.
    pub is_settling: bool,
    /// The bytes that the connection has queued, as counted in [`Core::queued`].
    pub queued: queued::Account,
    /// Commands received whose responses have not been given to the kernel yet.
    pub outstanding: u32,
    /// The number of Abort commands whose target other queues are still looking for.
    pub aborts: u8,
    pub is_dirty: bool,
    /// The events that the kernel has been told to report: readable, writable; the third is true if the connection is
    /// watched among the I/O queues.
    pub watched: (bool, bool, bool),
    pub slots: CommandSlots,
    /// The fused operation that the queue's next command may end.
    pub fused: Pending,
    pub afloat: Afloat,
    pub controller: Option<Arc<Controller>>,
    pub subsystem: Option<Rc<LocalSubsystem>>,
    /// The ANA states of the controller's path; `None` if its subsystem does not report any.
    pub ana: Option<Arc<AnaStates>>,
    pub tenant: u32,
    pub queue_id: u16,
    pub queue_entries: u16,
    pub no_flow_control: bool,
    /// True if the host is in the subsystem's list, or the subsystem does not let any host in.
    pub is_listed: bool,
    /// True while the connection counts as one of its host: from when the host has shown that it may use the subsystem.
    pub counts_as_host: bool,
    /// True once the target counts the connection as an admin queue.
    pub counts_as_admin: bool,
    /// True while the reactor counts the connection as a guest.
    pub counts_as_guest: bool,
    pub sq_head: u16,
    pub max_io_bytes: u32,
    pub in_capsule_bytes: u32,
    pub bytes_limit: Option<u64>,
    /// Asynchronous Event Requests that wait for an event.
    pub event_requests: Vec<u16>,
    pub exchange: Option<Box<dyn Exchange>>,
    /// True while a message of the exchange is being examined.
    pub is_examined: bool,
    pub opened_ns: u64,
    /// The work of the connection in bytes ([`COMMAND_WORK`]): that of the time since the last report, and half as much
    /// for each report before.
    pub work: u64,
    /// The rest after the connection's last move.
    pub rest: pace::Rest,
}

impl Connection {
    /// A connection at its beginning, which came in on `listener`.
    pub fn new(token: Token, transport: Link, peer: Option<SocketAddr>, listener: Portal, core: &Core) -> Connection {
        let options = &core.configuration.options;
        Connection {
            token,
            transport,
            peer,
            listener,
            phase: Phase::Handshake,
            hangs_up_for: None,
            about: About::default(),
            stalled: None,
            is_settling: false,
            queued: Default::default(),
            outstanding: 0,
            aborts: 0,
            is_dirty: false,
            watched: (true, false, false),
            slots: CommandSlots::default(),
            fused: Pending::default(),
            afloat: Afloat::default(),
            controller: None,
            subsystem: None,
            ana: None,
            tenant: 0,
            queue_id: 0,
            queue_entries: 0,
            no_flow_control: false,
            is_listed: false,
            counts_as_host: false,
            counts_as_admin: false,
            counts_as_guest: false,
            sq_head: 0,
            max_io_bytes: options.max_io_bytes,
            in_capsule_bytes: options.in_capsule_bytes,
            bytes_limit: options.limits.bytes_per_host,
            event_requests: Vec::new(),
            exchange: None,
            is_examined: false,
            opened_ns: core.now_ns,
            work: 0,
            rest: pace::Rest::default(),
        }
    }

    #[inline]
    pub fn is_admin(&self) -> bool {
        self.queue_id == 0
    }

    #[inline]
    pub fn is_io_queue(&self) -> bool {
        self.phase == Phase::Ready && self.queue_id != 0
    }

    /// True while the peer has yet to show that it may use a subsystem: it is not connected, has not authenticated, or
    /// asks the discovery service, which any peer may.
    #[inline]
    pub fn is_guest(&self) -> bool {
        self.phase != Phase::Ready
            || self.exchange.is_some()
            || self.controller.as_ref().is_none_or(|controller| controller.is_discovery())
    }

    /// The network that the peer's address belongs to: an IPv4 address, or 64 bits of an IPv6 address.
    pub fn source(&self) -> IpAddr {
        network_of(self.peer)
    }

    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// True while the host has the controller enabled: the queue takes I/O commands.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.controller.as_ref().is_some_and(|controller| controller.enabled.load(Ordering::Acquire))
    }

    /// The subsystem's limits on single commands.
    #[inline]
    pub fn command_limits(&self) -> CommandLimits {
        self.subsystem.as_deref().map(|subsystem| subsystem.limits).unwrap_or_default()
    }

    #[inline]
    pub fn namespace(&self, _core: &Core, nsid: u32) -> Option<&LocalNamespace> {
        self.subsystem.as_deref()?.namespace(nsid)
    }

    /// True if the reservation of a namespace lets the host carry out a command with that need.
    #[inline]
    pub fn is_permitted(&self, namespace: &LocalNamespace, need: Need) -> bool {
        self.controller.as_ref().is_some_and(|controller| namespace.reservations.permit(&controller.host_id, need))
    }

    /// Judges the path to a namespace.
    ///
    /// # Errors
    /// The status of its ANA state (Base specification 2.0, section 8.1), if that refuses commands.
    #[inline]
    pub fn admits(&self, namespace: &LocalNamespace) -> Result<(), Status> {
        let state = self.ana.as_deref().map(|states| states.state(namespace.ana_group));
        state.and_then(AnaState::refusal).map_or(Ok(()), Err)
    }

    /// Judges if a command may still go into the device that it was checked for. Returns its namespace.
    ///
    /// # Errors
    /// Invalid Namespace or Format if the namespace is not there any more for the host; those of
    /// [`Connection::admits`].
    #[inline]
    pub fn reaches(&self, core: &Core, index: u16) -> Result<&LocalNamespace, Status> {
        let slot = &self.slots[index];
        let namespace = self.namespace(core, slot.nsid);
        let same = namespace.filter(|it| it.channel == slot.channel && it.device_uid == slot.device_uid);
        match same.filter(|_| core.reaches(slot.channel, slot.device_uid)) {
            Some(namespace) => self.admits(namespace).map(|()| namespace),
            None => Err(Status::INVALID_NAMESPACE.do_not_retry()),
        }
    }

    /// True if the command in that slot is in a device.
    #[inline]
    pub fn awaits(&self, slot: u16) -> bool {
        self.slots.stage(slot) == Stage::Device
    }

    /// True if nothing is in progress: the reactor can close the connection without anybody missing anything.
    pub fn is_idle(&self) -> bool {
        self.slots.used() == 0 && self.transport.is_empty()
    }

    /// Queues the connection for sending at the end of this turn.
    #[inline]
    pub fn mark_dirty(&mut self, core: &mut Core) {
        if !self.is_dirty {
            self.is_dirty = true;
            core.dirty.push(self.token.index);
        }
    }

    /// Queues a response to a command that has no slot, or has given it back.
    #[inline]
    pub fn respond(&mut self, core: &mut Core, cid: u16, status: Status, result: u64) {
        self.complete(core, cid, status, result);
        self.transport.end(NO_SLOT);
    }

    /// Queues a response, as a part of more that ends the command ([`Transport::end`]).
    #[inline]
    pub fn complete(&mut self, core: &mut Core, cid: u16, status: Status, result: u64) {
        let sqhd = if self.no_flow_control { NO_SQ_HEAD } else { self.sq_head };
        if !status.is_ok() {
            self.note_error(cid, status);
        }
        let completion = Completion { result, sqhd, sqid: 0, cid, status };
        self.transport.respond(&completion);
        self.mark_dirty(core);
    }

    /// Notes the command that fails with the response that follows, for the error log.
    #[cold]
    pub fn fails_on(&mut self, command: &Command) {
        let has_blocks = !self.is_admin() && IoCommand::of(command.opcode).is_some_and(IoCommand::has_blocks);
        self.fails_about(About { nsid: command.nsid, slba: if has_blocks { command.slba() } else { 0 } });
    }

    /// As [`Connection::fails_on`], for a command about these blocks.
    pub fn fails_about(&mut self, about: About) {
        self.about = about;
    }

    /// The blocks that the command in a slot is about.
    #[cold]
    pub fn about(&self, core: &Core, index: u16) -> About {
        let slot = &self.slots[index];
        let namespace = self.namespace(core, slot.nsid);
        let slba = namespace.filter(|_| slot.command.has_blocks()).map_or(0, |it| slot.offset >> it.block_shift);
        About { nsid: slot.nsid, slba }
    }

    /// Puts an error into the controller's log.
    #[cold]
    fn note_error(&mut self, cid: u16, status: Status) {
        let about = std::mem::take(&mut self.about);
        if let Some(controller) = &self.controller {
            let (queue_id, transport) = (self.queue_id, self.listener.transport);
            controller.lock().errors.note(Failed { queue_id, cid, status, about, transport });
        }
    }

    /// Queues the data of an answer and the successful response after them.
    pub fn respond_data(&mut self, core: &mut Core, cid: u16, data: &Answer) {
        if data.len() > 0 {
            let ends = self.transport.omits_response(self.no_flow_control);
            self.transport.send_answer(cid, data, ends);
            if ends {
                self.mark_dirty(core);
                return self.transport.end(NO_SLOT);
            }
        }
        self.respond(core, cid, Status::SUCCESS, 0);
    }

    /// Closes the connection once the queued output has been sent.
    pub fn hang_up(&mut self, core: &mut Core, cause: Cause) {
        self.hangs_up_for = Some(cause);
        self.give_up(core, true);
        self.phase = Phase::Closing { until_ns: core.now_ns + LINGER_NS };
        self.mark_dirty(core);
    }

    /// Gives up everything in progress; output that is queued is lost.
    pub fn forget(&mut self, core: &mut Core) {
        self.give_up(core, false);
    }

    pub fn give_up(&mut self, core: &mut Core, but_what_is_being_sent: bool) {
        io_command::drop_all(self, core, but_what_is_being_sent);
        self.stalled = None;
        self.fused = Pending::Nothing;
        self.transport.forget_received();
        self.event_requests.clear();
    }

    /// Gives back memory that bursts have left unused.
    pub fn shrink(&mut self) {
        self.transport.shrink();
        self.slots.shrink();
    }
}

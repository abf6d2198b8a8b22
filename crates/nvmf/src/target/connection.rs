//! A connection: its state, its answers, and its end.
//!
//! `receive` cuts the bytes that arrive into units and takes their data to their places; `units` acts on each unit;
//! `leaving` makes a connection ready to go on at another reactor.

mod leaving;
mod receive;
mod units;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::afloat::{self, Afloat};
use super::answer::Answer;
use super::auth::Exchange;
use super::command::{CommandSlots, Stage};
use super::configuration::CommandLimits;
use super::controller::Controller;
use super::core::{Core, LocalNamespace, LocalSubsystem};
use super::mailbox::Token;
use super::output::{NO_SLOT, Output};
use super::progress::Progress;
use super::reservations::Need;
use super::{io as io_command, queued};
use crate::Wire;
use crate::pdu::{self, End, Fault, Limits, MAX_HEADER_BYTES, Receiver, digest};
use crate::spec::{Command, Completion, Status};
use leaving::Aside;
pub(super) use leaving::Moving;
use receive::Arriving;
pub(super) use receive::Sink;

/// Bytes of data that admin and Fabrics commands may bring in their capsules, on any queue.
pub(super) const ADMIN_CAPSULE_BYTES: u32 = 8192;
/// SQHD in all responses of a queue without SQ flow control, that to Connect among them: the controller has agreed to
/// do without (Base specification 2.0, section 6.3).
const NO_SQ_HEAD: u16 = 0xffff;
/// Bytes of the kernel's send buffer of connections that carry no I/O.
const SMALL_SEND_BUFFER: u64 = 16 << 10;
/// The work of a command besides that of its data, in bytes that take about as long to copy.
pub(super) const COMMAND_WORK: u64 = 8192;
/// After a fatal error: how long the peer may take to read why.
const LINGER_NS: u64 = 2_000_000_000;

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
    /// The peer has gone, or the network.
    Gone,
    /// The peer has broken the protocol.
    Fault(Fault),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Ended {
        Ended::Fault(fault)
    }
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Ended {
        Ended::Gone
    }
}

pub(super) struct Connection {
    pub token: Token,
    pub stream: Wire,
    pub peer: Option<SocketAddr>,
    /// The listener that it came in on.
    pub listener: SocketAddr,
    pub phase: Phase,
    pub receiver: Receiver,
    /// The first bytes of a header whose rest has not arrived yet.
    partial: Vec<u8>,
    arriving: Option<Arriving>,
    /// Bytes received while the connection could not go on.
    backlog: Vec<u8>,
    /// The command for which the connection cannot go on: the pacer has no slot for the command, or its data have no
    /// room.
    stalled: Option<u16>,
    /// True while the connection cannot go on before the peer has taken some of the output queued for sending.
    is_choked: bool,
    /// The admin or Fabrics command whose data are arriving in its capsule.
    admin_command: Option<Box<Command>>,
    admin_data: Vec<u8>,
    /// The number of first bytes of `admin_data` that the command can use: the connection does not keep the others.
    admin_data_most: u32,
    /// The header of the last unit that broke the protocol, for the TermReq that reports the error.
    last_header: Vec<u8>,
    pub out: Output,
    /// The bytes that the connection has queued, as counted in [`Core::queued`].
    pub queued: queued::Account,
    /// Commands received whose responses have not been given to the kernel yet.
    pub outstanding: u32,
    /// The number of Abort commands whose target other queues are still looking for.
    pub aborts: u8,
    pub is_dirty: bool,
    /// True when the socket took no more output: the reactor waits until it does.
    pub wants_write: bool,
    /// The events that the kernel has been told to report: readable, writable; the third is true if the connection is
    /// watched among the I/O queues.
    pub watched: (bool, bool, bool),
    pub slots: CommandSlots,
    pub afloat: Afloat,
    pub controller: Option<Arc<Controller>>,
    pub subsystem: Option<Rc<LocalSubsystem>>,
    pub tenant: u32,
    pub queue_id: u16,
    pub queue_entries: u16,
    pub no_flow_control: bool,
    c2h_success: bool,
    /// True if the host is in the subsystem's list, or the subsystem does not let any host in.
    pub is_listed: bool,
    /// True while the connection counts as one of its host: from when the host has shown that it may use the subsystem.
    pub counts_as_host: bool,
    /// True once the target counts the connection as an admin queue.
    pub counts_as_admin: bool,
    /// True while the reactor counts the connection as a guest.
    pub counts_as_guest: bool,
    sq_head: u16,
    pub max_io_bytes: u32,
    pub in_capsule_bytes: u32,
    pub bytes_limit: Option<u64>,
    /// Asynchronous Event Requests that wait for an event.
    pub event_requests: Vec<u16>,
    pub exchange: Option<Box<dyn Exchange>>,
    /// True while a message of the exchange is being examined.
    pub is_examined: bool,
    pub opened_ns: u64,
    /// The rates of the peer: how fast it sends the unit that it has begun, how fast it sends the data that R2Ts have
    /// asked for, and how fast it takes the output.
    unit_progress: Progress,
    transfer_progress: Progress,
    output_progress: Progress,
    /// A number of zeros and the digest of that many zeros: reads of a null device mostly have one size.
    zeros_digest: (u32, u32),
    /// Commands that wait until the connection is at another reactor; `None` while it stays where it is.
    aside: Option<Aside>,
    /// The work of the connection in bytes ([`COMMAND_WORK`]): that of the time since the last report, and half as much
    /// for each report before.
    pub work: u64,
    /// The rest after the connection's last move.
    pub rest: pace::Rest,
}

impl Connection {
    pub fn new(token: Token, stream: TcpStream, listener: SocketAddr, core: &Core) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // The small buffer serves until the connection is an I/O queue: output that a peer does not read lies in the
        // kernel, too.
        if let Some(ms) = core.configuration.options.limits.ack_timeout_ms {
            rustix::net::sockopt::set_tcp_user_timeout(&stream, ms)?;
        }
        if let Some(bytes) = core.configuration.options.limits.send_buffer {
            rustix::net::sockopt::set_socket_send_buffer_size(&stream, bytes.min(SMALL_SEND_BUFFER) as usize)?;
        }
        // A peer whose machine has vanished is noticed even if it asked for no keep-alive.
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, std::time::Duration::from_secs(30))?;
        rustix::net::sockopt::set_tcp_keepintvl(&stream, std::time::Duration::from_secs(10))?;
        rustix::net::sockopt::set_tcp_keepcnt(&stream, 3)?;
        // The peer may be gone already.
        let peer = stream.peer_addr().ok();
        let stream = core.shared.security.wire(stream, listener, &core.configuration)?;
        Ok(Connection::on(token, stream, peer, listener, core))
    }

    /// A connection at its beginning, on a socket that has its options.
    fn on(token: Token, stream: Wire, peer: Option<SocketAddr>, listener: SocketAddr, core: &Core) -> Connection {
        let options = &core.configuration.options;
        let limits = Limits { capsule: options.in_capsule_bytes.max(ADMIN_CAPSULE_BYTES), data: options.max_io_bytes };
        Connection {
            token,
            peer,
            stream,
            listener,
            phase: Phase::Handshake,
            receiver: Receiver::new(End::Host, limits),
            partial: Vec::new(),
            arriving: None,
            backlog: Vec::new(),
            stalled: None,
            is_choked: false,
            admin_command: None,
            admin_data: Vec::new(),
            admin_data_most: 0,
            last_header: Vec::new(),
            out: Output::default(),
            queued: Default::default(),
            outstanding: 0,
            aborts: 0,
            is_dirty: false,
            wants_write: false,
            watched: (true, false, false),
            slots: CommandSlots::default(),
            afloat: Afloat::default(),
            controller: None,
            subsystem: None,
            tenant: 0,
            queue_id: 0,
            queue_entries: 0,
            no_flow_control: false,
            c2h_success: options.c2h_success,
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
            unit_progress: Progress::default(),
            transfer_progress: Progress::default(),
            output_progress: Progress::default(),
            zeros_digest: (0, 0),
            aside: None,
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
        match self.peer.map(|peer| peer.ip().to_canonical()) {
            Some(IpAddr::V6(ip)) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
            Some(ip) => ip,
            None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }

    /// Bytes of memory that the peer makes the connection hold, data buffers excepted.
    pub fn queued_bytes(&self) -> u64 {
        let received = self.backlog.capacity() + self.partial.capacity() + self.admin_data.capacity();
        let aside = self.aside.as_ref().map_or(0, Aside::memory);
        (self.out.memory() + received + aside) as u64
    }

    /// Gives the kernel room for the output of an I/O queue.
    pub fn widen_send_buffer(&self, core: &Core) {
        if let Some(bytes) = core.configuration.options.limits.send_buffer {
            // On failure the small buffer stays: it serves as well, if more slowly.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(self.stream.tcp(), bytes as usize);
        }
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

    /// True if the command's namespace is still there for the host, on the device that the command was checked for.
    #[inline]
    pub fn reaches(&self, core: &Core, index: u16) -> bool {
        let slot = &self.slots[index];
        let namespace = self.namespace(core, slot.nsid);
        namespace.is_some_and(|it| it.channel == slot.channel && it.device_uid == slot.device_uid)
            && core.reaches(slot.channel, slot.device_uid)
    }

    /// True if the command in that slot is in a device.
    #[inline]
    pub fn awaits(&self, slot: u16) -> bool {
        self.slots.stage(slot) == Stage::Device
    }

    /// True if the peer is slower than the limits allow: in sending a unit or a transfer that it has begun, or in
    /// taking the output.
    pub fn is_too_slow(&mut self, now_ns: u64, limits: &super::Limits) -> bool {
        let (stall, send_stall) = (limits.stall.as_nanos() as u64, limits.send_stall.as_nanos() as u64);
        let is_amid = (self.arriving.is_some() || !self.partial.is_empty()) && !self.is_stalled();
        let is_asked = self.slots.iter_mut().any(|(_, slot)| slot.stage == Stage::Data);
        let is_sending = !self.out.is_empty();
        let rate = limits.bytes_per_s;
        self.unit_progress.is_too_slow(now_ns, is_amid, stall, rate)
            | self.transfer_progress.is_too_slow(now_ns, is_asked, stall, rate)
            | self.output_progress.is_too_slow(now_ns, is_sending, send_stall, rate)
    }

    /// True if nothing is in progress: the reactor can close the connection without anybody missing anything.
    pub fn is_idle(&self) -> bool {
        self.slots.used() == 0 && self.out.is_empty()
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
        self.out.end(NO_SLOT);
    }

    /// Queues a response, as a part of more that ends the command ([`Output::end`]).
    #[inline]
    pub fn complete(&mut self, core: &mut Core, cid: u16, status: Status, result: u64) {
        let sqhd = if self.no_flow_control { NO_SQ_HEAD } else { self.sq_head };
        if !status.is_ok() {
            self.note_error(cid, status);
        }
        let completion = Completion { result, sqhd, sqid: 0, cid, status };
        let agreement = self.receiver.agreement;
        self.out.head(MAX_HEADER_BYTES, |out| pdu::response(&completion, &agreement, out));
        self.mark_dirty(core);
    }

    /// Puts an error into the controller's log.
    #[cold]
    fn note_error(&mut self, cid: u16, status: Status) {
        if let Some(controller) = &self.controller {
            controller.lock().errors.note(self.queue_id, cid, status);
        }
    }

    /// True if data that end a command well say so themselves, and no response follows the data. A host that has not
    /// disabled SQ flow control needs the response: it learns from it how far its queue has been read.
    #[inline]
    pub fn omits_response(&self) -> bool {
        self.no_flow_control && self.c2h_success
    }

    /// Queues the data of an answer and the successful response after them.
    pub fn respond_data(&mut self, core: &mut Core, cid: u16, data: &Answer) {
        let length = data.len();
        if length > 0 {
            let agreement = self.receiver.agreement;
            let success = self.omits_response();
            let header = pdu::C2hData { cid, offset: 0, length: length as u32, last: true, success };
            self.out.head(MAX_HEADER_BYTES, |out| header.write(&agreement, out));
            let running = if agreement.data_digest { data.digest() } else { 0 };
            data.queue(&mut self.out);
            if agreement.data_digest {
                self.out.bytes(&running.to_le_bytes());
            }
            if success {
                self.mark_dirty(core);
                return self.out.end(NO_SLOT);
            }
        }
        self.respond(core, cid, Status::SUCCESS, 0);
    }

    /// CRC-32C of `len` zeros.
    pub fn digest_of_zeros(&mut self, len: u32) -> u32 {
        if self.zeros_digest.0 != len {
            self.zeros_digest = (len, digest::extend_zeros(0, len as usize));
        }
        self.zeros_digest.1
    }

    /// Sends the queued bytes, as far as the socket takes them.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, core: &mut Core) -> Result<(), Ended> {
        self.is_dirty = false;
        let before = self.out.len();
        let (mut free, mut ended) = (std::mem::take(&mut core.free), std::mem::take(&mut core.ended));
        let sent = self.out.send(&mut self.stream, core.zeros.as_ref(), &mut free, &mut ended);
        core.free = free;
        self.outstanding = self.outstanding.saturating_sub(ended.len() as u32);
        for index in ended.drain(..) {
            if index != NO_SLOT && self.slots.get(index).is_some() {
                io_command::release(self, core, index);
            }
        }
        core.ended = ended;
        core.give_free();
        self.wants_write = !sent?;
        if self.out.len() < before {
            afloat::moved(self, core);
        }
        self.output_progress.moved(before - self.out.len());
        if self.is_closing() && self.out.is_empty() {
            // The target reads and drops the data that the host still sends: unread data would turn the goodbye into a
            // reset.
            self.stream.finish();
        }
        Ok(())
    }

    /// Tells the host its fault, after the output that is already queued; the target no longer listens to the host.
    pub fn terminate(&mut self, core: &mut Core, fault: &Fault) {
        self.give_up(core, true);
        self.phase = Phase::Closing { until_ns: core.now_ns + LINGER_NS };
        let (bytes, len) = fault.term_req(End::Controller, &self.last_header).pdu();
        self.out.bytes(&bytes[..len]);
        self.mark_dirty(core);
    }

    /// Closes the connection once the queued output has been sent.
    pub fn hang_up(&mut self, core: &mut Core) {
        self.give_up(core, true);
        self.phase = Phase::Closing { until_ns: core.now_ns + LINGER_NS };
        self.mark_dirty(core);
    }

    /// Gives up everything in progress; output that is queued is lost.
    pub fn forget(&mut self, core: &mut Core) {
        self.give_up(core, false);
    }

    fn give_up(&mut self, core: &mut Core, but_what_is_being_sent: bool) {
        io_command::drop_all(self, core, but_what_is_being_sent);
        (self.arriving, self.aside) = (None, None);
        (self.stalled, self.is_choked) = (None, false);
        self.partial = Vec::new();
        self.backlog = Vec::new();
        self.admin_data = Vec::new();
        self.event_requests.clear();
    }

    /// Gives back memory that bursts have left unused.
    pub fn shrink(&mut self) {
        self.out.shrink();
        self.slots.shrink();
        self.partial.shrink_to(0);
        self.admin_data.shrink_to(0);
        self.backlog.shrink_to(0);
    }
}

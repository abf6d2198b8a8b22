//! A connection: it cuts the bytes that arrive into units, acts on each unit, and queues the answers.
//!
//! Bytes come through the reactor's one receive buffer; a connection keeps only the beginning of a header that is cut
//! off. Data of writes go straight into their buffers, past the receive buffer, as far as they have not arrived
//! together with their header.

use std::io::{self, IoSliceMut, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::afloat::{self, Afloat};
use super::answer::Answer;
use super::auth::{Exchange, ExchangeState};
use super::command::{Slots, Stage};
use super::controller::Controller;
use super::core::{Core, LocalNamespace, LocalSubsystem};
use super::mailbox::Token;
use super::output::{NO_SLOT, Output};
use super::progress::Progress;
use super::{admin, fabrics, io as io_command, queued};
use crate::pdu::{
    self, End, Fault, H2cData, IcReq, Kind, Layout, Limits, MAX_HEADER_BYTES, Next, Pdu, Receiver, digest,
};
use crate::spec::{Command, Completion, Data, Status};

/// Bytes of data that admin and Fabrics commands may bring in their capsules, on any queue.
pub(super) const ADMIN_CAPSULE_BYTES: u32 = 8192;
/// Receive calls for one I/O queue before other connections have their turn; one call for any other connection.
const RECEIVES: usize = 8;
/// Commands outstanding on a connection that is not a queue yet. It needs one: Connect.
const COMMANDS_BEFORE_CONNECT: u32 = 8;
/// Admin and Fabrics commands of one connection whose data are asked for with R2T at the same time.
const ADMIN_TRANSFERS: usize = 4;
/// SQHD in all responses of a queue without SQ flow control, that to Connect among them: the controller has agreed to
/// do without (Base specification 2.0, section 6.3).
const NO_SQ_HEAD: u16 = 0xffff;
/// Bytes of the kernel's send buffer of connections that carry no I/O.
const SMALL_SEND_BUFFER: u64 = 16 << 10;
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

/// The place that arriving data go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    Nothing,
    /// The data go into the buffer of the command in this slot.
    Command(u16),
    /// The data belong to an admin or Fabrics command and came in the command's capsule.
    Admin,
}

/// The data of one unit while they arrive.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    sink: Sink,
    kind: Kind,
    /// Bytes of padding that are still to come before the data.
    pad: u32,
    /// The offset in the sink at which the next byte goes.
    at: u32,
    left: u32,
    running: u32,
    /// The digest that follows the data: the number of its bytes still to come, and the bytes that came.
    digest_left: u32,
    digest: [u8; 4],
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
    pub stream: TcpStream,
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
    pub slots: Slots,
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
}

impl Connection {
    pub fn new(token: Token, stream: TcpStream, listener: SocketAddr, core: &Core) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // The small buffer serves until the connection is an I/O queue: output that a peer does not read lies in the
        // kernel, too.
        if let Some(bytes) = core.shared.options.limits.send_buffer {
            rustix::net::sockopt::set_socket_send_buffer_size(&stream, bytes.min(SMALL_SEND_BUFFER) as usize)?;
        }
        // A peer whose machine has vanished is noticed even if it asked for no keep-alive.
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, std::time::Duration::from_secs(30))?;
        rustix::net::sockopt::set_tcp_keepintvl(&stream, std::time::Duration::from_secs(10))?;
        rustix::net::sockopt::set_tcp_keepcnt(&stream, 3)?;
        let options = &core.shared.options;
        let limits = Limits { capsule: options.in_capsule_bytes.max(ADMIN_CAPSULE_BYTES), data: options.max_io_bytes };
        Ok(Connection {
            token,
            // The peer may be gone already.
            peer: stream.peer_addr().ok(),
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
            slots: Slots::default(),
            afloat: Afloat::default(),
            controller: None,
            subsystem: None,
            tenant: 0,
            queue_id: 0,
            queue_entries: 0,
            no_flow_control: false,
            c2h_success: options.c2h_success,
            is_listed: false,
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
        })
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
        (self.out.memory() + received) as u64
    }

    /// Gives the kernel room for the output of an I/O queue.
    pub fn widen_send_buffer(&self, core: &Core) {
        if let Some(bytes) = core.shared.options.limits.send_buffer {
            // On failure the small buffer stays: it serves as well, if more slowly.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(&self.stream, bytes as usize);
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

    #[inline]
    pub fn namespace(&self, _core: &Core, nsid: u32) -> Option<&LocalNamespace> {
        self.subsystem.as_deref()?.namespace(nsid)
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

    /// Stops reading until [`Connection::retry`] has found what `slot` lacks.
    pub fn stall(&mut self, core: &mut Core, slot: u16) {
        self.stalled = Some(slot);
        core.stalled.push(self.token.index);
    }

    /// Goes on after a stall, if it can now.
    ///
    /// # Errors
    /// The units that had been received already end the connection.
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

    /// Goes on when the peer has taken enough of the queued bytes.
    ///
    /// # Errors
    /// The units that had been received already end the connection.
    pub fn resume(&mut self, core: &mut Core) -> Result<(), Ended> {
        if !self.is_choked || queued::is_beyond(self, core) {
            return Ok(());
        }
        self.is_choked = false;
        self.take_in_backlog(core)
    }

    fn take_in_backlog(&mut self, core: &mut Core) -> Result<(), Ended> {
        let backlog = std::mem::take(&mut self.backlog);
        let outcome = self.take_in(core, &backlog);
        queued::count(self, core);
        outcome
    }

    /// True while the reactor must not read from the connection.
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some() || self.is_choked
    }

    /// Keeps bytes in the backlog: the connection cannot act on them yet.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.backlog.try_reserve_exact(bytes.len()).map_err(|_| Ended::Gone)?;
        self.backlog.extend_from_slice(bytes);
        Ok(())
    }

    /// Reads the bytes that have arrived, and acts on them.
    ///
    /// # Errors
    /// The peer has gone, or has broken the protocol.
    pub fn receive(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), Ended> {
        let outcome = self.receive_some(core, scratch);
        queued::count(self, core);
        outcome
    }

    fn receive_some(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), Ended> {
        let (calls, bytes) = match self.is_io_queue() {
            true => (RECEIVES, core.queued.receive_bytes(true)),
            false => (1, core.queued.receive_bytes(false)),
        };
        let scratch = &mut scratch[..bytes];
        for _ in 0..calls {
            if self.is_stalled() {
                return Ok(());
            }
            let (received, direct, asked) = match self.read(scratch) {
                Ok((0, ..)) => return Err(Ended::Gone),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.unit_progress.moved(received as u64);
            if matches!(self.arriving, Some(Arriving { sink: Sink::Command(_), .. })) {
                afloat::moved(self, core);
            }
            if self.is_closing() {
                continue; // nobody listens any more
            }
            if let Some(controller) = &self.controller {
                controller.seen(core.now_ns);
            }
            if direct > 0 {
                self.data_in_place(core, direct as u32)?;
            }
            self.take_in(core, &scratch[..received - direct])?;
            if received < asked {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Bytes received, how many of them directly into a command's buffer, and how many there was room for.
    fn read(&mut self, scratch: &mut [u8]) -> io::Result<(usize, usize, usize)> {
        let mut stream = &self.stream;
        if let Some(arriving) = &self.arriving
            && let Sink::Command(index) = arriving.sink
            && arriving.pad == 0
            && arriving.left > 0
            && let Some(buffer) = self.slots.get(index).and_then(|slot| slot.buffer.as_mut())
        {
            let room = &mut buffer.as_mut_slice()[arriving.at as usize..][..arriving.left as usize];
            let direct = room.len();
            let asked = direct + scratch.len();
            let received = stream.read_vectored(&mut [IoSliceMut::new(room), IoSliceMut::new(scratch)])?;
            return Ok((received, received.min(direct), asked));
        }
        let received = stream.read(scratch)?;
        Ok((received, 0, scratch.len()))
    }

    /// Accounts for data that were received directly into their command's buffer.
    fn data_in_place(&mut self, core: &mut Core, bytes: u32) -> Result<(), Ended> {
        let Some(arriving) = &mut self.arriving else { return Ok(()) };
        if self.receiver.agreement.data_digest
            && let Sink::Command(index) = arriving.sink
            && let Some(buffer) = self.slots.get(index).and_then(|slot| slot.buffer.as_ref())
        {
            let data = &buffer.as_slice()[arriving.at as usize..][..bytes as usize];
            arriving.running = digest::extend(arriving.running, data);
        }
        arriving.at += bytes;
        arriving.left -= bytes;
        self.transfer_progress.moved(bytes.into());
        if arriving.left == 0 && arriving.digest_left == 0 {
            self.data_over(core)?;
        }
        Ok(())
    }

    /// Acts on bytes that have been received; keeps what cannot be acted on yet.
    fn take_in(&mut self, core: &mut Core, mut bytes: &[u8]) -> Result<(), Ended> {
        while !bytes.is_empty() {
            if self.is_closing() {
                return Ok(());
            }
            if self.is_stalled() {
                return self.keep(bytes);
            }
            if self.arriving.is_some() {
                bytes = self.more_data(core, bytes)?;
                continue;
            }
            if queued::is_beyond(self, core) {
                self.send(core)?; // the kernel may take it at once
                self.is_choked = queued::is_beyond(self, core);
                continue;
            }
            if self.partial.is_empty() {
                match self.receiver.next(bytes) {
                    Ok(Next::Unit(layout, pdu)) => {
                        let (header, rest) = bytes.split_at(layout.header_bytes as usize);
                        bytes = rest;
                        self.unit(core, &layout, pdu, header)?;
                    }
                    Ok(Next::Need(_)) => {
                        self.partial.extend_from_slice(bytes);
                        return Ok(());
                    }
                    Err(fault) => return Err(self.fault_at(fault, bytes)),
                }
                continue;
            }
            bytes = self.more_header(core, bytes)?;
        }
        Ok(())
    }

    /// Completes a header whose beginning came earlier, and acts on the unit once the header is whole. Returns the
    /// bytes that are left.
    fn more_header<'a>(&mut self, core: &mut Core, bytes: &'a [u8]) -> Result<&'a [u8], Ended> {
        let mut partial = std::mem::take(&mut self.partial);
        match self.receiver.next(&partial) {
            Ok(Next::Need(need)) => {
                let (more, rest) = bytes.split_at(bytes.len().min(need - partial.len()));
                partial.extend_from_slice(more);
                if partial.len() == need
                    && let Next::Unit(layout, pdu) =
                        self.receiver.next(&partial).map_err(|fault| self.fault_at(fault, &partial))?
                {
                    self.unit(core, &layout, pdu, &partial)?;
                    return Ok(rest);
                }
                self.partial = partial;
                Ok(rest)
            }
            // The receiver checks a header's digest when the header is whole.
            Ok(Next::Unit(layout, pdu)) => {
                self.unit(core, &layout, pdu, &partial)?;
                Ok(bytes)
            }
            Err(fault) => Err(self.fault_at(fault, &partial)),
        }
    }

    #[cold]
    fn fault_at(&mut self, fault: Fault, header: &[u8]) -> Ended {
        self.last_header = header[..header.len().min(128)].to_vec();
        Ended::Fault(fault)
    }

    #[inline]
    fn unit(&mut self, core: &mut Core, layout: &Layout, pdu: Pdu, header: &[u8]) -> Result<(), Ended> {
        let sink = match (pdu, self.phase) {
            (Pdu::CapsuleCmd(command), Phase::Ready | Phase::Connect) => self.command(core, &command, layout),
            (Pdu::H2cData(data), Phase::Ready | Phase::Connect) => self.host_data(core, &data),
            (Pdu::IcReq(request), Phase::Handshake) => self.handshake(core, &request),
            (Pdu::TermReq { .. }, _) => return Err(Ended::Gone),
            (Pdu::IcReq(_), _) => Err(Fault::sequence(layout.kind, "the handshake is over")),
            (_, Phase::Handshake) => Err(Fault::sequence(layout.kind, "a connection begins with ICReq")),
            _ => Err(Fault::sequence(layout.kind, "not now")),
        };
        let sink = sink.map_err(|fault| self.fault_at(fault, header))?;
        if layout.data_bytes == 0 {
            return Ok(());
        }
        let at = match pdu {
            Pdu::H2cData(data) => data.offset,
            _ => 0,
        };
        self.arriving = Some(Arriving {
            sink,
            kind: layout.kind,
            pad: layout.data_at - layout.header_bytes,
            at,
            left: layout.data_bytes,
            running: 0,
            digest_left: layout.data_digest_bytes,
            digest: [0; 4],
        });
        Ok(())
    }

    fn handshake(&mut self, core: &mut Core, request: &IcReq) -> Result<Sink, Fault> {
        let (response, agreement) = request.granted(self.max_io_bytes)?;
        self.out.bytes(&response.pdu());
        self.receiver.agreement = agreement;
        self.phase = Phase::Connect;
        self.opened_ns = core.now_ns;
        self.mark_dirty(core);
        Ok(Sink::Nothing)
    }

    #[inline]
    fn command(&mut self, core: &mut Core, command: &Command, layout: &Layout) -> Result<Sink, Fault> {
        if !self.no_flow_control && self.queue_entries > 0 {
            self.sq_head = if self.sq_head + 1 >= self.queue_entries { 0 } else { self.sq_head + 1 };
        }
        if core.draining {
            return Ok(Sink::Nothing); // no answer: the host sends it again, elsewhere or later
        }
        // A host knows of a free entry by a response alone: what lies in the queue of responses is not free yet.
        self.outstanding += 1;
        let most = if self.queue_entries > 0 { self.queue_entries.into() } else { COMMANDS_BEFORE_CONNECT };
        if self.outstanding > most {
            let (outstanding, why) = (self.outstanding.into(), "more than the queue has entries");
            return Err(Fault::limit(Kind::CapsuleCmd, "outstanding commands", outstanding, why));
        }
        // NVMe over Fabrics knows no PRPs (Base specification 2.0, section 4.3; TCP transport specification 1.0,
        // section 3.3.2.1).
        if command.psdt() != Command::PSDT_SGL >> 6 {
            self.respond(core, command.cid, Status::INVALID_FIELD.do_not_retry(), 0);
            return Ok(Sink::Nothing);
        }
        if self.is_admin() || command.is_fabrics() || self.phase == Phase::Connect || self.exchange.is_some() {
            return self.admin_command(core, command, layout);
        }
        Ok(io_command::start(self, core, command, layout))
    }

    /// Takes an admin or Fabrics command, and carries it out once its data are here.
    fn admin_command(&mut self, core: &mut Core, command: &Command, layout: &Layout) -> Result<Sink, Fault> {
        if layout.data_bytes > ADMIN_CAPSULE_BYTES {
            let bytes = layout.data_bytes.into();
            return Err(Fault::field(Kind::CapsuleCmd, "PLEN", 4, bytes, "admin commands have 8192 bytes at most"));
        }
        let usable = admin::data_from_host(self, command);
        if layout.data_bytes > 0 {
            self.admin_command = Some(Box::new(*command));
            self.admin_data_most = usable;
            return Ok(Sink::Admin);
        }
        match command.sgl.data() {
            Ok(Data::Transport { length: 1.. }) if usable > 0 && self.phase == Phase::Ready => {
                self.ask_for_admin_data(core, command);
            }
            _ => self.carry_out(core, command, &[]),
        }
        Ok(Sink::Nothing)
    }

    fn ask_for_admin_data(&mut self, core: &mut Core, command: &Command) {
        let bytes = command.sgl.length;
        if bytes > ADMIN_CAPSULE_BYTES {
            return self.respond(core, command.cid, Status::DATA_SGL_LENGTH_INVALID.do_not_retry(), 0);
        }
        if self.slots.iter_mut().filter(|(_, slot)| slot.admin.is_some()).count() >= ADMIN_TRANSFERS {
            return self.respond(core, command.cid, Status::COMMAND_INTERRUPTED, 0);
        }
        // The buffer does not come from the pool: admin commands go on when data buffers are short.
        let Ok(buffer) = sys::buffer::Buffer::zeroed(bytes as usize, &sys::buffer::Memory::Anonymous) else {
            return self.respond(core, command.cid, Status::INTERNAL_ERROR, 0);
        };
        let index = self.slots.take();
        let slot = &mut self.slots[index];
        *slot = super::command::Slot {
            stage: Stage::Data,
            cid: command.cid,
            data_len: bytes,
            buffer: Some(buffer),
            arrived_ns: core.now_ns,
            progress_ns: core.now_ns,
            admin: Some(Box::new(*command)),
            ..super::command::Slot::free()
        };
        let ready = pdu::R2t { cid: command.cid, ttag: index, offset: 0, length: bytes };
        let agreement = self.receiver.agreement;
        self.out.head(MAX_HEADER_BYTES, |out| ready.write(&agreement, out));
        self.mark_dirty(core);
    }

    fn carry_out(&mut self, core: &mut Core, command: &Command, data: &[u8]) {
        if self.phase == Phase::Connect {
            return fabrics::before_connect(self, core, command, data);
        }
        if let Some(exchange) = &self.exchange
            && exchange.state() != ExchangeState::Done
            && !fabrics::is_authentication(command)
        {
            return self.respond(core, command.cid, Status::AUTHENTICATION_REQUIRED.do_not_retry(), 0);
        }
        if command.is_fabrics() {
            fabrics::carry_out(self, core, command, data);
        } else if self.is_admin() {
            admin::carry_out(self, core, command, data);
        } else {
            // The exchange has just ended: I/O goes its own way from the next command on.
            self.respond(core, command.cid, Status::COMMAND_SEQUENCE_ERROR, 0);
        }
    }

    /// Takes data that answer an R2T: everything about the data must be as the R2T asked for.
    #[inline]
    fn host_data(&mut self, core: &mut Core, data: &H2cData) -> Result<Sink, Fault> {
        if self.phase != Phase::Ready {
            return Err(Fault::sequence(Kind::H2cData, "nothing was asked for: the queue is not connected"));
        }
        let Some(slot) = self.slots.get(data.ttag).filter(|slot| slot.stage == Stage::Data) else {
            let why = "no transfer of this tag is open";
            return Err(Fault::field(Kind::H2cData, "TTAG", 10, data.ttag.into(), why));
        };
        if slot.cid != data.cid {
            return Err(Fault::field(Kind::H2cData, "CCCID", 8, data.cid.into(), "not the command that the tag is of"));
        }
        if data.offset != slot.received {
            let why = "data must come in order, without gaps";
            return Err(Fault::field(Kind::H2cData, "DATAO", 12, data.offset.into(), why));
        }
        let end = u64::from(data.offset) + u64::from(data.length);
        if end > u64::from(slot.data_len) {
            return Err(Fault::out_of_range(Kind::H2cData, "DATAL", data.length.into(), "more than was asked for"));
        }
        if data.last != (end == u64::from(slot.data_len)) {
            let why = "set on the last unit of a transfer and on no other";
            return Err(Fault::field(Kind::H2cData, "LAST_PDU", 1, data.last.into(), why));
        }
        slot.received = end as u32;
        slot.progress_ns = core.now_ns;
        Ok(Sink::Command(data.ttag))
    }

    /// Takes data, and their digest, out of the receive buffer. Returns the bytes that are left in the buffer.
    fn more_data<'a>(&mut self, core: &mut Core, bytes: &'a [u8]) -> Result<&'a [u8], Ended> {
        let Some(arriving) = &mut self.arriving else { return Ok(bytes) };
        let (padding, bytes) = bytes.split_at(bytes.len().min(arriving.pad as usize));
        arriving.pad -= padding.len() as u32;
        let (data, bytes) = bytes.split_at(bytes.len().min(arriving.left as usize));
        match arriving.sink {
            Sink::Nothing => {}
            Sink::Admin => {
                let room = (self.admin_data_most as usize).saturating_sub(self.admin_data.len()).min(data.len());
                self.admin_data.try_reserve_exact(room).map_err(|_| Ended::Gone)?;
                self.admin_data.extend_from_slice(&data[..room]);
            }
            Sink::Command(index) => {
                if let Some(buffer) = self.slots.get(index).and_then(|slot| slot.buffer.as_mut()) {
                    buffer.as_mut_slice()[arriving.at as usize..][..data.len()].copy_from_slice(data);
                }
            }
        }
        if self.receiver.agreement.data_digest && arriving.kind != Kind::H2cTermReq {
            arriving.running = digest::extend(arriving.running, data);
        }
        arriving.at += data.len() as u32;
        arriving.left -= data.len() as u32;
        self.transfer_progress.moved(data.len() as u64);
        let (tail, bytes) = match arriving.left {
            0 => bytes.split_at(bytes.len().min(arriving.digest_left as usize)),
            _ => (&bytes[..0], bytes),
        };
        for &byte in tail {
            arriving.digest[4 - arriving.digest_left as usize] = byte;
            arriving.digest_left -= 1;
        }
        if arriving.pad == 0 && arriving.left == 0 && arriving.digest_left == 0 {
            self.data_over(core)?;
        }
        Ok(bytes)
    }

    /// Ends the arrival of a unit's data: the data and their digest are here.
    fn data_over(&mut self, core: &mut Core) -> Result<(), Ended> {
        let Some(arriving) = self.arriving.take() else { return Ok(()) };
        let is_intact = !self.receiver.agreement.data_digest || u32::from_le_bytes(arriving.digest) == arriving.running;
        match arriving.sink {
            Sink::Nothing => {}
            Sink::Admin => {
                let data = std::mem::take(&mut self.admin_data);
                if let Some(command) = self.admin_command.take() {
                    match is_intact {
                        true => self.carry_out(core, &command, &data),
                        false => self.respond(core, command.cid, Status::TRANSIENT_TRANSPORT_ERROR, 0),
                    }
                }
            }
            Sink::Command(index) => self.command_data_over(core, index, arriving.kind, is_intact),
        }
        Ok(())
    }

    fn command_data_over(&mut self, core: &mut Core, index: u16, kind: Kind, is_intact: bool) {
        let Some(slot) = self.slots.get(index) else { return };
        if !is_intact {
            // Not fatal: the rest of the transfer is awaited, then the command fails and the host may try again.
            slot.status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        if kind == Kind::CapsuleCmd {
            return io_command::capsule_arrived(self, core, index);
        }
        if slot.received < slot.data_len {
            return;
        }
        let Some(command) = slot.admin.take() else { return io_command::data_complete(self, core, index) };
        let (buffer, status) = (slot.buffer.take(), slot.status);
        let len = slot.data_len as usize;
        self.slots.give(index);
        match buffer {
            Some(buffer) if status.is_ok() => self.carry_out(core, &command, &buffer.as_slice()[..len]),
            _ => self.respond(core, command.cid, Status::TRANSIENT_TRANSPORT_ERROR, 0),
        }
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
        let sent = self.out.send(&self.stream, core.zeros.as_ref(), &mut free, &mut ended);
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
            let _ = self.stream.shutdown(Shutdown::Write);
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
        self.arriving = None;
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

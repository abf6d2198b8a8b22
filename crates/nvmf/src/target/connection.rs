//! A connection: what arrives is cut into units and acted on, what is answered is queued to be sent.
//!
//! Bytes come through the reactor's one receive buffer; a connection keeps only the beginning of a header that is cut off.
//! Data of writes go straight into their buffers, past the receive buffer, as far as they have not arrived together with their
//! header.

use std::io::{self, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::afloat::{self, Afloat};
use super::auth::{Exchange, ExchangeState};
use super::command::{Slots, Stage};
use super::controller::Controller;
use super::core::{Core, LocalNamespace, LocalSubsystem};
use super::mailbox::Token;
use super::output::Output;
use super::{admin, fabrics, io as io_command};
use crate::pdu::{
    self, End, Fault, H2cData, IcReq, Kind, Layout, Limits, MAX_HEADER_BYTES, Next, Pdu, Receiver, digest,
};
use crate::spec::{Command, Completion, Status};

/// Data that admin and Fabrics commands may bring in their capsules, on any queue.
pub(super) const ADMIN_CAPSULE_BYTES: u32 = 8192;
/// Receive calls for one connection before others have their turn.
const RECEIVES: usize = 8;
/// After a fatal error: how long the peer may take to read why.
const LINGER_NS: u64 = 2_000_000_000;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its ICReq is awaited.
    Handshake,
    /// Its Connect is awaited.
    Connect,
    /// It is a queue.
    Ready,
    /// Over; the peer is being told why, until then.
    Closing { until_ns: u64 },
}

/// Where data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    Nothing,
    /// A command's buffer.
    Command(u16),
    /// Those of an admin or Fabrics command, in its capsule.
    Admin,
}

/// Data that are arriving.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    sink: Sink,
    kind: Kind,
    /// Padding before them.
    pad: u32,
    /// Where in the sink the next byte goes.
    at: u32,
    left: u32,
    running: u32,
    /// The digest that follows: bytes still to come, and those that came.
    digest_left: u32,
    digest: [u8; 4],
}

/// Why a connection ends.
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
    /// The beginning of a header.
    partial: Vec<u8>,
    arriving: Option<Arriving>,
    /// Received while the connection could not go on.
    backlog: Vec<u8>,
    /// The command for which it cannot go on: no slot in the pacer, or no room for its data.
    stalled: Option<u16>,
    /// The admin or Fabrics command whose data are arriving in its capsule.
    admin_command: Option<Box<Command>>,
    admin_data: Vec<u8>,
    /// Header of the last unit, for a TermReq.
    last_header: Vec<u8>,
    pub out: Output,
    pub is_dirty: bool,
    /// The socket took no more: wait until it does.
    pub wants_write: bool,
    /// What the kernel has been told to report: readable, writable.
    pub watched: (bool, bool),
    pub slots: Slots,
    pub afloat: Afloat,
    pub controller: Option<Arc<Controller>>,
    pub subsystem: Option<Rc<LocalSubsystem>>,
    pub tenant: u32,
    pub queue_id: u16,
    pub queue_entries: u16,
    pub no_flow_control: bool,
    sq_head: u16,
    pub max_io_bytes: u32,
    pub in_capsule_bytes: u32,
    pub bytes_limit: Option<u64>,
    /// Asynchronous Event Requests that wait for an event.
    pub event_requests: Vec<u16>,
    pub exchange: Option<Box<dyn Exchange>>,
    pub opened_ns: u64,
    pub received_ns: u64,
    pub sent_ns: u64,
    /// Digest of that many zeros: reads of a null device mostly have one size.
    zeros_digest: (u32, u32),
}

impl Connection {
    pub fn new(token: Token, stream: TcpStream, listener: SocketAddr, core: &Core) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        if let Some(bytes) = core.shared.options.limits.send_buffer {
            rustix::net::sockopt::set_socket_send_buffer_size(&stream, bytes as usize)?;
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
            admin_command: None,
            admin_data: Vec::new(),
            last_header: Vec::new(),
            out: Output::default(),
            is_dirty: false,
            wants_write: false,
            watched: (true, false),
            slots: Slots::default(),
            afloat: Afloat::default(),
            controller: None,
            subsystem: None,
            tenant: 0,
            queue_id: 0,
            queue_entries: 0,
            no_flow_control: false,
            sq_head: 0,
            max_io_bytes: options.max_io_bytes,
            in_capsule_bytes: options.in_capsule_bytes,
            bytes_limit: options.limits.bytes_per_host,
            event_requests: Vec::new(),
            exchange: None,
            opened_ns: core.now_ns,
            received_ns: core.now_ns,
            sent_ns: core.now_ns,
            zeros_digest: (0, 0),
        })
    }

    #[inline]
    pub fn is_admin(&self) -> bool {
        self.queue_id == 0
    }

    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// Whether I/O commands are taken.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.controller.as_ref().is_some_and(|controller| controller.enabled.load(Ordering::Acquire))
    }

    #[inline]
    pub fn namespace(&self, _core: &Core, nsid: u32) -> Option<&LocalNamespace> {
        self.subsystem.as_deref()?.namespace(nsid)
    }

    /// Whether the command in that slot is in a device.
    #[inline]
    pub fn awaits(&self, slot: u16) -> bool {
        self.slots.stage(slot) == Stage::Device
    }

    /// Whether the host is awaited in the middle of something that it began, and since when.
    pub fn awaits_since(&mut self) -> Option<u64> {
        let is_amid = self.arriving.is_some() || !self.partial.is_empty();
        let in_unit = (is_amid && self.stalled.is_none()).then_some(self.received_ns);
        let data = self.slots.iter_mut().filter(|(_, slot)| slot.stage == Stage::Data);
        let in_transfer = data.map(|(_, slot)| slot.progress_ns).min();
        in_unit.into_iter().chain(in_transfer).min()
    }

    /// Nothing is in progress: it can be closed without anybody missing anything.
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

    /// Queues a response.
    #[inline]
    pub fn respond(&mut self, core: &mut Core, cid: u16, status: Status, result: u64) {
        let sqhd = if self.no_flow_control { 0 } else { self.sq_head };
        let completion = Completion { result, sqhd, sqid: 0, cid, status };
        let agreement = self.receiver.agreement;
        self.out.head(MAX_HEADER_BYTES, |out| pdu::response(&completion, &agreement, out));
        self.mark_dirty(core);
    }

    /// Queues data for the host and the successful response after them.
    pub fn respond_data(&mut self, core: &mut Core, cid: u16, data: &[u8]) {
        if !data.is_empty() {
            let agreement = self.receiver.agreement;
            let length = data.len() as u32;
            let header = pdu::C2hData { cid, offset: 0, length, last: true, success: false };
            self.out.head(MAX_HEADER_BYTES, |out| header.write(&agreement, out));
            self.out.bytes(data);
            if agreement.data_digest {
                self.out.bytes(&digest::of(data).to_le_bytes());
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
    /// What the units that had been received already lead to.
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
        let backlog = std::mem::take(&mut self.backlog);
        self.take_in(core, &backlog)
    }

    /// Whether it must not be read from now.
    pub fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Reads what has arrived and acts on it.
    ///
    /// # Errors
    /// The peer has gone, or has broken the protocol.
    pub fn receive(&mut self, core: &mut Core, scratch: &mut [u8]) -> Result<(), Ended> {
        for _ in 0..RECEIVES {
            if self.stalled.is_some() {
                return Ok(());
            }
            let (received, direct, asked) = match self.read(scratch) {
                Ok((0, ..)) => return Err(Ended::Gone),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.received_ns = core.now_ns;
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

    /// Data that were received into their command's buffer.
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
            if self.stalled.is_some() {
                self.backlog.extend_from_slice(bytes);
                return Ok(());
            }
            if self.arriving.is_some() {
                bytes = self.more_data(core, bytes)?;
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

    /// The rest of a header whose beginning came earlier.
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
            // Its digest had been looked at when it was whole.
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
        if self.is_admin() || command.is_fabrics() || self.phase == Phase::Connect || self.exchange.is_some() {
            return self.admin_command(core, command, layout);
        }
        io_command::start(self, core, command, layout)
    }

    /// An admin or Fabrics command: carried out once its data are here.
    fn admin_command(&mut self, core: &mut Core, command: &Command, layout: &Layout) -> Result<Sink, Fault> {
        if layout.data_bytes > ADMIN_CAPSULE_BYTES {
            let bytes = layout.data_bytes.into();
            return Err(Fault::field(Kind::CapsuleCmd, "PLEN", 4, bytes, "admin commands have 8192 bytes at most"));
        }
        if layout.data_bytes > 0 {
            self.admin_command = Some(Box::new(*command));
            self.admin_data.clear();
            return Ok(Sink::Admin);
        }
        let wanted = admin::data_from_host(command);
        if wanted > 0 && self.phase == Phase::Ready {
            return self.ask_for_admin_data(core, command, wanted);
        }
        self.carry_out(core, command, &[]);
        Ok(Sink::Nothing)
    }

    fn ask_for_admin_data(&mut self, core: &mut Core, command: &Command, bytes: u32) -> Result<Sink, Fault> {
        if bytes > ADMIN_CAPSULE_BYTES {
            self.respond(core, command.cid, Status::DATA_SGL_LENGTH_INVALID.do_not_retry(), 0);
            return Ok(Sink::Nothing);
        }
        if self.slots.used() >= usize::from(self.queue_entries) {
            let used = self.slots.used() as u64;
            return Err(Fault::limit(
                Kind::CapsuleCmd,
                "outstanding commands",
                used,
                "more than the queue has entries",
            ));
        }
        // Not of the pool: admin commands go on when data buffers are short.
        let Ok(buffer) = sys::buffer::Buffer::zeroed(bytes as usize, &sys::buffer::Memory::Anonymous) else {
            self.respond(core, command.cid, Status::INTERNAL_ERROR, 0);
            return Ok(Sink::Nothing);
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
        Ok(Sink::Nothing)
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

    /// Data that answer an R2T: everything about them must be as it was asked for.
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

    /// Data, and their digest, out of the receive buffer; what is left of it.
    fn more_data<'a>(&mut self, core: &mut Core, bytes: &'a [u8]) -> Result<&'a [u8], Ended> {
        let Some(arriving) = &mut self.arriving else { return Ok(bytes) };
        let (padding, bytes) = bytes.split_at(bytes.len().min(arriving.pad as usize));
        arriving.pad -= padding.len() as u32;
        let (data, bytes) = bytes.split_at(bytes.len().min(arriving.left as usize));
        match arriving.sink {
            Sink::Nothing => {}
            Sink::Admin => self.admin_data.extend_from_slice(data),
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

    /// The data of a unit, and their digest, are here.
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
            let block = [0; 4096];
            let mut left = len as usize;
            let mut running = 0;
            while left > 0 {
                let now = left.min(block.len());
                running = digest::extend(running, &block[..now]);
                left -= now;
            }
            self.zeros_digest = (len, running);
        }
        self.zeros_digest.1
    }

    /// Sends what is queued, as far as the socket takes it.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, core: &mut Core) -> Result<(), Ended> {
        self.is_dirty = false;
        let before = self.out.len();
        let (mut free, mut ended) = (std::mem::take(&mut core.free), std::mem::take(&mut core.ended));
        let sent = self.out.send(&self.stream, core.zeros.as_ref(), &mut free, &mut ended);
        core.free = free;
        for index in ended.drain(..) {
            if self.slots.get(index).is_some() {
                io_command::release(self, core, index);
            }
        }
        core.ended = ended;
        core.give_free();
        self.wants_write = !sent?;
        if self.out.len() < before {
            afloat::moved(self, core);
        }
        if self.out.len() < before || before == 0 {
            self.sent_ns = core.now_ns;
        }
        if self.is_closing() && self.out.is_empty() {
            // What the host still sends is read and dropped: unread data would turn the goodbye into a reset.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    /// Tells the host what it did, after what is being sent already; nothing of it is listened to any more.
    pub fn terminate(&mut self, core: &mut Core, fault: &Fault) {
        self.give_up(core, true);
        self.phase = Phase::Closing { until_ns: core.now_ns + LINGER_NS };
        let (bytes, len) = fault.term_req(End::Controller, &self.last_header).pdu();
        self.out.bytes(&bytes[..len]);
        self.mark_dirty(core);
    }

    /// Closes once what is queued has been sent.
    pub fn hang_up(&mut self, core: &mut Core) {
        self.give_up(core, true);
        self.phase = Phase::Closing { until_ns: core.now_ns + LINGER_NS };
        self.mark_dirty(core);
    }

    /// Gives up everything in progress; what is queued to be sent is lost.
    pub fn forget(&mut self, core: &mut Core) {
        self.give_up(core, false);
    }

    fn give_up(&mut self, core: &mut Core, but_what_is_being_sent: bool) {
        io_command::drop_all(self, core, but_what_is_being_sent);
        self.arriving = None;
        self.stalled = None;
        self.partial = Vec::new();
        self.backlog = Vec::new();
        self.admin_data = Vec::new();
        self.event_requests.clear();
    }

    /// Gives memory back that bursts have left.
    pub fn shrink(&mut self) {
        self.out.shrink();
        self.slots.shrink();
        self.partial.shrink_to(0);
        self.admin_data.shrink_to(0);
        if self.backlog.is_empty() {
            self.backlog = Vec::new();
        }
    }
}

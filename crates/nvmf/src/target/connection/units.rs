//! The units of a host: acts on each of them in the phase of its connection.

use super::receive::Sink;
use super::{ADMIN_CAPSULE_BYTES, Connection, Ended, Phase};
use crate::pdu::{self, Fault, H2cData, IcReq, Layout, MAX_HEADER_BYTES, Pdu, PduType};
use crate::spec::{Command, Data, Status, reservation};
use crate::target::auth::ExchangeState;
use crate::target::command::{CommandSlot, Stage};
use crate::target::core::Core;
use crate::target::{admin, fabrics, io as io_command, reservations};

/// Commands outstanding on a connection that is not a queue yet. It needs one: Connect.
const COMMANDS_BEFORE_CONNECT: u32 = 8;
/// Admin and Fabrics commands of one connection whose data are asked for with R2T at the same time.
const ADMIN_TRANSFERS: usize = 4;

impl Connection {
    /// Acts on the header of a unit. Returns the place that the unit's data go to.
    ///
    /// # Errors
    /// The peer has gone, or the unit breaks the protocol.
    #[inline]
    pub(super) fn act(&mut self, core: &mut Core, layout: &Layout, pdu: &Pdu, header: &[u8]) -> Result<Sink, Ended> {
        let sink = match (*pdu, self.phase) {
            (Pdu::CapsuleCmd(command), Phase::Ready | Phase::Connect) => self.command(core, &command, layout),
            (Pdu::H2cData(data), Phase::Ready | Phase::Connect) => self.host_data(core, &data),
            (Pdu::IcReq(request), Phase::Handshake) => self.handshake(core, &request),
            (Pdu::TermReq { .. }, _) => return Err(Ended::Gone),
            (Pdu::IcReq(_), _) => Err(Fault::sequence(layout.kind, "the handshake is over")),
            (_, Phase::Handshake) => Err(Fault::sequence(layout.kind, "a connection begins with ICReq")),
            _ => Err(Fault::sequence(layout.kind, "not now")),
        };
        sink.map_err(|fault| self.fault_at(fault, header))
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
            return Err(Fault::limit(PduType::CapsuleCmd, "outstanding commands", outstanding, why));
        }
        // NVMe over Fabrics knows no PRPs (Base specification 2.0, section 4.3; TCP transport specification 1.0,
        // section 3.3.2.1).
        if command.psdt() != Command::PSDT_SGL >> 6 {
            self.respond(core, command.cid, Status::INVALID_FIELD.do_not_retry(), 0);
            return Ok(Sink::Nothing);
        }
        let reserves =
            reservation::data_bytes(command.opcode).is_some() && !core.configuration.options.hides_reservations();
        let is_plain_io = !self.is_admin() && !command.is_fabrics() && !reserves;
        if !is_plain_io || self.phase == Phase::Connect || self.exchange.is_some() {
            return self.admin_command(core, command, layout);
        }
        Ok(io_command::start(self, core, command, layout))
    }

    /// Takes an admin or Fabrics command, and carries it out once its data are here.
    fn admin_command(&mut self, core: &mut Core, command: &Command, layout: &Layout) -> Result<Sink, Fault> {
        if layout.data_bytes > ADMIN_CAPSULE_BYTES {
            let bytes = layout.data_bytes.into();
            return Err(Fault::field(PduType::CapsuleCmd, "PLEN", 4, bytes, "admin commands have 8192 bytes at most"));
        }
        let usable = admin::data_from_host(self, command);
        if usable > 0 && self.exchange.is_some() && self.admin_transfers() > 0 {
            // A host that authenticates sends one message at a time: a guest holds memory for no more.
            self.respond(core, command.cid, Status::COMMAND_INTERRUPTED, 0);
            return Ok(Sink::Nothing);
        }
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

    /// The number of admin and Fabrics commands whose data have been asked for.
    fn admin_transfers(&mut self) -> usize {
        self.slots.iter_mut().filter(|(_, slot)| slot.admin.is_some()).count()
    }

    fn ask_for_admin_data(&mut self, core: &mut Core, command: &Command) {
        let bytes = command.sgl.length;
        if bytes > ADMIN_CAPSULE_BYTES {
            return self.respond(core, command.cid, Status::DATA_SGL_LENGTH_INVALID.do_not_retry(), 0);
        }
        if self.admin_transfers() >= ADMIN_TRANSFERS {
            return self.respond(core, command.cid, Status::COMMAND_INTERRUPTED, 0);
        }
        // The buffer does not come from the pool: admin commands go on when data buffers are short.
        let Ok(buffer) = sys::buffer::Buffer::zeroed(bytes as usize, &sys::buffer::Memory::Anonymous) else {
            return self.respond(core, command.cid, Status::INTERNAL_ERROR, 0);
        };
        let index = self.slots.take();
        let slot = &mut self.slots[index];
        *slot = CommandSlot {
            stage: Stage::Data,
            cid: command.cid,
            data_len: bytes,
            buffer: Some(buffer),
            arrived_ns: core.now_ns,
            progress_ns: core.now_ns,
            admin: Some(Box::new(*command)),
            ..CommandSlot::free()
        };
        let ready = pdu::R2t { cid: command.cid, ttag: index, offset: 0, length: bytes };
        let agreement = self.receiver.agreement;
        self.out.head(MAX_HEADER_BYTES, |out| ready.write(&agreement, out));
        self.mark_dirty(core);
    }

    /// Carries out an admin or Fabrics command, whose data are here.
    pub(super) fn carry_out(&mut self, core: &mut Core, command: &Command, data: &[u8]) {
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
        } else if reservation::data_bytes(command.opcode).is_some() {
            reservations::carry_out(self, core, command, data);
        } else {
            // The exchange has just ended: I/O goes its own way from the next command on.
            self.respond(core, command.cid, Status::COMMAND_SEQUENCE_ERROR, 0);
        }
    }

    /// Takes data that answer an R2T: everything about the data must be as the R2T asked for.
    #[inline]
    fn host_data(&mut self, core: &mut Core, data: &H2cData) -> Result<Sink, Fault> {
        if self.phase != Phase::Ready {
            return Err(Fault::sequence(PduType::H2cData, "nothing was asked for: the queue is not connected"));
        }
        let Some(slot) = self.slots.get(data.ttag).filter(|slot| slot.stage == Stage::Data) else {
            let why = "no transfer of this tag is open";
            return Err(Fault::field(PduType::H2cData, "TTAG", 10, data.ttag.into(), why));
        };
        if slot.cid != data.cid {
            return Err(Fault::field(
                PduType::H2cData,
                "CCCID",
                8,
                data.cid.into(),
                "not the command that the tag is of",
            ));
        }
        if data.offset != slot.received {
            let why = "data must come in order, without gaps";
            return Err(Fault::field(PduType::H2cData, "DATAO", 12, data.offset.into(), why));
        }
        let end = u64::from(data.offset) + u64::from(data.length);
        if end > u64::from(slot.data_len) {
            return Err(Fault::out_of_range(PduType::H2cData, "DATAL", data.length.into(), "more than was asked for"));
        }
        if data.last != (end == u64::from(slot.data_len)) {
            let why = "set on the last unit of a transfer and on no other";
            return Err(Fault::field(PduType::H2cData, "LAST_PDU", 1, data.last.into(), why));
        }
        slot.received = end as u32;
        slot.progress_ns = core.now_ns;
        Ok(Sink::Command(data.ttag))
    }

    /// Goes on with the command of a slot when data of one of its units are whole.
    #[inline]
    pub(super) fn command_data_over(&mut self, core: &mut Core, index: u16, kind: PduType, is_intact: bool) {
        let Some(slot) = self.slots.get(index) else { return };
        if !is_intact {
            // Not fatal: the rest of the transfer is awaited, then the command fails and the host may try again.
            slot.status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        if kind == PduType::CapsuleCmd {
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
}

//! The commands that a transport has received: I/O commands go to `io.rs`, the others to what carries them out.

use std::fmt;

use nvme::auth::ExchangeState;
use nvme::spec::{Command, Data, Status, reservation};

use super::{ADMIN_CAPSULE_BYTES, Connection, Phase};
use crate::core::Core;
use crate::fused::{self, Pending};
use crate::slot::{CommandSlot, Stage};
use crate::transport::{Sink, Transport};
use crate::{admin, fabrics, io as io_command, reservations};

/// Commands outstanding on a connection that is not a queue yet. It needs one: Connect.
pub(crate) const COMMANDS_BEFORE_CONNECT: u32 = 8;
/// Admin and Fabrics commands of one connection whose data are asked for at the same time.
const ADMIN_TRANSFERS: usize = 4;

/// A breach of the protocol that every transport knows: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// The host has more commands outstanding than its queue has entries.
    TooManyCommands { outstanding: u32 },
    /// The capsule of an admin or Fabrics command has more data than any may have.
    TooMuchData { bytes: u32 },
    /// A capsule has no whole command.
    CapsuleTooShort { bytes: u32 },
    /// A capsule is longer than the target takes.
    CapsuleTooLong,
    /// A command has the identifier of another one that is in progress, so that nobody can tell their data apart.
    IdentifierInUse { cid: u16 },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breach::TooManyCommands { outstanding } => {
                write!(f, "it has {outstanding} commands outstanding, more than the queue has entries")
            }
            Breach::TooMuchData { bytes } => {
                write!(f, "an admin command has {bytes} bytes in its capsule (8192 at most)")
            }
            Breach::CapsuleTooShort { bytes } => {
                write!(f, "a capsule of {bytes} bytes has no whole command (64 bytes)")
            }
            Breach::CapsuleTooLong => write!(f, "a capsule is longer than Identify Controller allows (IOCCSZ)"),
            Breach::IdentifierInUse { cid } => write!(f, "two commands in progress have the identifier {cid}"),
        }
    }
}

impl Connection {
    /// Takes a command whose capsule brings `data_bytes` of data. Returns the place that these data go to: the
    /// transport takes them there, and says so by [`Connection::capsule_data_over`] or [`Connection::carry_out`].
    ///
    /// # Errors
    /// The host does what no host may do: the connection ends.
    #[inline]
    pub fn capsule(&mut self, core: &mut Core, command: &Command, data_bytes: u32) -> Result<Sink, Breach> {
        if !self.no_flow_control && self.queue_entries > 0 {
            self.sq_head = if self.sq_head + 1 >= self.queue_entries { 0 } else { self.sq_head + 1 };
        }
        let is_awaited = self.fused != Pending::Nothing && command.fuse() == Command::FUSE_SECOND;
        if core.draining && !is_awaited {
            return Ok(Sink::Nothing); // no answer: the host sends it again, elsewhere or later
        }
        // A host knows of a free entry by a response alone: what lies in the queue of responses is not free yet.
        self.outstanding += 1;
        let most = if self.queue_entries > 0 { self.queue_entries.into() } else { COMMANDS_BEFORE_CONNECT };
        if self.outstanding > most {
            return Err(Breach::TooManyCommands { outstanding: self.outstanding });
        }
        let reserves =
            reservation::data_bytes(command.opcode).is_some() && !core.configuration.options.hides_reservations();
        let is_plain_io = !self.is_admin() && !command.is_fabrics() && !reserves;
        fused::meets(self, core, command, is_plain_io);
        // NVMe over Fabrics knows no PRPs (Base specification 2.0, section 4.3; TCP transport specification 1.0,
        // section 3.3.2.1).
        if command.psdt() != Command::PSDT_SGL >> 6 {
            self.respond(core, command.cid, Status::INVALID_FIELD.do_not_retry(), 0);
            fused::refused(self, core, command);
            return Ok(Sink::Nothing);
        }
        if !is_plain_io || self.phase == Phase::Connect || self.exchange.is_some() {
            return self.admin_command(core, command, data_bytes);
        }
        Ok(io_command::start(self, core, command, data_bytes))
    }

    /// Takes an admin or Fabrics command, and carries it out once its data are here.
    fn admin_command(&mut self, core: &mut Core, command: &Command, data_bytes: u32) -> Result<Sink, Breach> {
        if data_bytes > ADMIN_CAPSULE_BYTES {
            return Err(Breach::TooMuchData { bytes: data_bytes });
        }
        let usable = admin::data_from_host(self, core, command);
        if usable > 0 && self.exchange.is_some() && self.admin_transfers() > 0 {
            // A host that authenticates sends one message at a time: a guest holds memory for no more.
            self.respond(core, command.cid, Status::COMMAND_INTERRUPTED, 0);
            return Ok(Sink::Nothing);
        }
        if data_bytes > 0 {
            return Ok(Sink::Admin(usable));
        }
        match self.transport.place_of_data(&command.sgl) {
            Ok(Data::Transport { length: length @ 1.. })
                if usable > 0 && (self.phase == Phase::Ready || self.transport.asks_before_connect()) =>
            {
                self.ask_for_admin_data(core, command, length);
            }
            _ => self.carry_out(core, command, &[]),
        }
        Ok(Sink::Nothing)
    }

    /// The number of admin and Fabrics commands whose data have been asked for.
    fn admin_transfers(&mut self) -> usize {
        self.slots.iter_mut().filter(|(_, slot)| slot.admin.is_some()).count()
    }

    fn ask_for_admin_data(&mut self, core: &mut Core, command: &Command, bytes: u32) {
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
        self.transport.ask_for_data(command.cid, index, bytes, &mut slot.buffer, false);
        self.mark_dirty(core);
    }

    /// Carries out an admin or Fabrics command, whose data are here.
    pub fn carry_out(&mut self, core: &mut Core, command: &Command, data: &[u8]) {
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

    /// Goes on with the command of a slot: the data of its capsule are whole. `is_intact` is false if they are damaged.
    #[inline]
    pub fn capsule_data_over(&mut self, core: &mut Core, index: u16, is_intact: bool) {
        if self.notes_damage(index, is_intact) {
            io_command::capsule_arrived(self, core, index);
        }
    }

    /// Goes on with the command of a slot, if all the data are here that [`Transport::ask_for_data`] has asked for: a
    /// part of them is whole.
    ///
    /// [`Transport::ask_for_data`]: crate::transport::Transport::ask_for_data
    #[inline]
    pub fn host_data_over(&mut self, core: &mut Core, index: u16, is_intact: bool) {
        if !self.notes_damage(index, is_intact) {
            return;
        }
        let slot = &mut self.slots[index];
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
    /// Notes damaged data: the command fails when its other data are here, and the host may try again. Returns false if
    /// the slot has no command.
    #[inline]
    fn notes_damage(&mut self, index: u16, is_intact: bool) -> bool {
        let Some(slot) = self.slots.get(index) else { return false };
        if !is_intact {
            slot.status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        true
    }
}

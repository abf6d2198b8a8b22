//! Fabrics commands (Base specification 2.0, chapter 6): Connect, Property Get and Set, Disconnect, authentication.

use super::opcode::FABRICS;
use super::{Command, Nqn, NqnError, Sgl, Status};

/// Property Set.
pub const PROPERTY_SET: u8 = 0x00;
/// Connect.
pub const CONNECT: u8 = 0x01;
/// Property Get.
pub const PROPERTY_GET: u8 = 0x04;
/// Authentication Send.
pub const AUTHENTICATION_SEND: u8 = 0x05;
/// Authentication Receive.
pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
/// Disconnect.
pub const DISCONNECT: u8 = 0x08;

/// The name of a Fabrics command of that type.
pub fn name(fctype: u8) -> &'static str {
    match fctype {
        PROPERTY_SET => "Property Set",
        CONNECT => "Connect",
        PROPERTY_GET => "Property Get",
        AUTHENTICATION_SEND => "Authentication Send",
        AUTHENTICATION_RECEIVE => "Authentication Receive",
        DISCONNECT => "Disconnect",
        _ => "unknown Fabrics command",
    }
}

/// CNTLID in Connect of an admin queue: the controller is to be allocated.
pub const DYNAMIC_CONTROLLER: u16 = 0xffff;

/// A Fabrics command of that type, without data.
pub fn command(fctype: u8) -> Command {
    Command::new(FABRICS, u32::from(fctype))
}

/// The parameters of Connect in its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Record format: 0.
    pub recfmt: u16,
    /// The identifier of the queue: 0 for the admin queue.
    pub qid: u16,
    /// Entries of the queue minus one.
    pub sqsize: u16,
    /// Bit 2: SQ flow control is off.
    pub cattr: u8,
    /// Keep-alive timeout in milliseconds; 0 for none.
    pub kato_ms: u32,
}

impl Connect {
    /// Bit of `cattr`: the host disables SQ flow control.
    pub const NO_FLOW_CONTROL: u8 = 1 << 2;

    /// Reads the parameters of Connect from a command.
    pub fn of(command: &Command) -> Connect {
        Connect {
            recfmt: command.cdw10 as u16,
            qid: (command.cdw10 >> 16) as u16,
            sqsize: command.cdw11 as u16,
            cattr: (command.cdw11 >> 16) as u8,
            kato_ms: command.cdw12,
        }
    }

    /// The command, its data in the capsule.
    pub fn command(&self) -> Command {
        Command {
            sgl: Sgl::in_capsule(ConnectData::BYTES as u32),
            cdw10: u32::from(self.recfmt) | u32::from(self.qid) << 16,
            cdw11: u32::from(self.sqsize) | u32::from(self.cattr) << 16,
            cdw12: self.kato_ms,
            ..command(CONNECT)
        }
    }

    /// The result of a Connect that succeeded: the controller, and its demands. One that asks for secure channel
    /// concatenation (ASCR) asks for authentication (ATR) too.
    pub fn accepted(cntlid: u16, authentication: bool, concatenation: bool) -> u64 {
        u64::from(cntlid) | u64::from(authentication) << 17 | u64::from(concatenation) << 18
    }

    /// The controller, true if it demands authentication (ATR or ASCR), and true if it demands secure channel
    /// concatenation (ASCR), from the result of a Connect that succeeded.
    pub fn outcome(result: u64) -> (u16, bool, bool) {
        (result as u16, result & (0b11 << 17) != 0, result & (1 << 18) != 0)
    }

    /// The status and result of a Connect with an invalid parameter: its offset in the command, or in the data.
    pub fn invalid(in_data: bool, offset: u16) -> (Status, u64) {
        (Status::CONNECT_INVALID_PARAMETERS.do_not_retry(), u64::from(offset) | u64::from(in_data) << 16)
    }

    /// Reads the result that [`Connect::invalid`] gives: true if the parameter is in the data, and the parameter's
    /// offset.
    pub fn invalid_parameter(result: u64) -> (bool, u16) {
        (result >> 16 & 1 == 1, result as u16)
    }

    /// QID, in the command: like the constants after it, an offset of a parameter for [`Connect::invalid`].
    pub const AT_QID: u16 = 42;
    /// SQSIZE, in the command.
    pub const AT_SQSIZE: u16 = 44;
    /// CNTLID, in the data.
    pub const AT_CNTLID: u16 = 16;
    /// SUBNQN, in the data.
    pub const AT_SUBNQN: u16 = 256;
    /// HOSTNQN, in the data.
    pub const AT_HOSTNQN: u16 = 512;
}

layout! {
    /// The data of Connect.
    pub struct ConnectData: 1024 {
        /// Host identifier: a UUID.
        hostid: [u8; 16] = 0,
        /// Controller: [`DYNAMIC_CONTROLLER`] on an admin queue.
        cntlid: u16 = 16,
        /// NQN of the subsystem, as [`Nqn::field`] has it.
        subnqn: [u8; 256] = 256,
        /// NQN of the host.
        hostnqn: [u8; 256] = 512,
    }
}

impl ConnectData {
    /// The subsystem's name.
    ///
    /// # Errors
    /// The name in the field is empty, too long, not ended by a NUL, or not UTF-8.
    pub fn subsystem(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.subnqn)
    }

    /// The host's name as the host gives it: see [`Nqn::of_peer`].
    pub fn host(&self) -> Nqn {
        Nqn::of_peer(&self.hostnqn)
    }
}

/// The parameters of Property Get and Property Set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyAccess {
    /// Bytes: 4 or 8; 0 if the command has another size, which is invalid.
    pub bytes: u8,
    /// The property: a constant of [`property`](super::property).
    pub offset: u32,
    /// The value that Property Set sets.
    pub value: u64,
}

impl PropertyAccess {
    /// Reads the parameters of Property Get or Property Set from a command.
    pub fn of(command: &Command) -> PropertyAccess {
        let bytes = match command.cdw10 & 7 {
            0 => 4,
            1 => 8,
            _ => 0,
        };
        let value = u64::from(command.cdw12) | u64::from(command.cdw13) << 32;
        PropertyAccess { bytes, offset: command.cdw11, value }
    }

    /// The Property Get command.
    pub fn get(offset: u32, bytes: u8) -> Command {
        Command { cdw10: u32::from(bytes == 8), cdw11: offset, ..command(PROPERTY_GET) }
    }

    /// The Property Set command.
    pub fn set(offset: u32, bytes: u8, value: u64) -> Command {
        Command {
            cdw10: u32::from(bytes == 8),
            cdw11: offset,
            cdw12: value as u32,
            cdw13: (value >> 32) as u32,
            ..command(PROPERTY_SET)
        }
    }
}

/// The parameters of Authentication Send and Receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// Security protocol specific, byte 0: 01h.
    pub spsp0: u8,
    /// Security protocol specific, byte 1: 01h.
    pub spsp1: u8,
    /// Security protocol: E9h.
    pub secp: u8,
    /// Bytes of the message (TL), or room for it (AL).
    pub length: u32,
}

impl Authentication {
    /// SECP of NVMe in-band authentication.
    pub const NVME: u8 = 0xe9;

    /// Reads the parameters of Authentication Send or Receive from a command.
    pub fn of(command: &Command) -> Authentication {
        let [_, spsp0, spsp1, secp] = command.cdw10.to_le_bytes();
        Authentication { spsp0, spsp1, secp, length: command.cdw11 }
    }

    /// The command that sends a message of `length` bytes in its capsule.
    pub fn send(length: u32) -> Command {
        Command { sgl: Sgl::in_capsule(length), ..Authentication::command(AUTHENTICATION_SEND, length) }
    }

    /// The command that receives a message of at most `length` bytes.
    pub fn receive(length: u32) -> Command {
        Command { sgl: Sgl::transport(length), ..Authentication::command(AUTHENTICATION_RECEIVE, length) }
    }

    fn command(fctype: u8, length: u32) -> Command {
        let cdw10 = u32::from_le_bytes([0, 1, 1, Authentication::NVME]);
        Command { cdw10, cdw11: length, ..command(fctype) }
    }
}

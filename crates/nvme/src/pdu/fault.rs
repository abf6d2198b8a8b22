//! Faults: violations by a peer that end the connection, and the unit that tells the peer.

use std::fmt;

use super::{End, PduType};

/// FES: the kind of a fatal error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FatalStatus {
    /// A field of a header is wrong; FEI is its offset.
    InvalidHeaderField = 1,
    /// A unit came when it must not.
    SequenceError = 2,
    /// The header digest does not match; FEI is the digest that came.
    HeaderDigestError = 3,
    /// Data lie outside of their command or R2T.
    OutOfRange = 4,
    /// More data than may be sent, or more R2Ts than the host takes.
    LimitExceeded = 5,
    /// A parameter of the handshake is not supported; FEI is its offset.
    UnsupportedParameter = 6,
}

impl FatalStatus {
    /// The name of a fatal error status in the specification; "unknown error" for any other number.
    pub fn name(number: u16) -> &'static str {
        match number {
            1 => "Invalid PDU Header Field",
            2 => "PDU Sequence Error",
            3 => "Header Digest Error",
            4 => "Data Transfer Out of Range",
            5 => "Limit Exceeded",
            6 => "Unsupported Parameter",
            _ => "unknown error",
        }
    }
}

/// A violation of the protocol by the peer: fatal to the connection, and to nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// FES: the kind of the fatal error.
    pub status: FatalStatus,
    /// FEI: the position of the wrong field, or the digest received.
    pub info: u32,
    /// The name of the unit's kind.
    pub unit: &'static str,
    /// The field, or what of the unit is wrong.
    pub field: &'static str,
    /// The value of the field.
    pub value: u64,
    /// The reason: the right value of the field, or the fault of the unit.
    pub why: &'static str,
}

impl Fault {
    /// A field, at that offset of the header, is wrong.
    #[cold]
    pub fn field(kind: PduType, field: &'static str, offset: u32, value: u64, why: &'static str) -> Fault {
        Fault { status: FatalStatus::InvalidHeaderField, info: offset, unit: kind.name(), field, value, why }
    }

    /// A unit came when it must not.
    #[cold]
    pub fn sequence(kind: PduType, why: &'static str) -> Fault {
        let (status, value) = (FatalStatus::SequenceError, u64::from(kind as u8));
        Fault { status, info: 0, unit: kind.name(), field: "PDU-TYPE", value, why }
    }

    /// Data (their length given) that lie outside of what was asked for.
    #[cold]
    pub fn out_of_range(kind: PduType, field: &'static str, value: u64, why: &'static str) -> Fault {
        Fault { status: FatalStatus::OutOfRange, info: 0, unit: kind.name(), field, value, why }
    }

    /// More than the receiver had said that it takes.
    #[cold]
    pub fn limit(kind: PduType, field: &'static str, value: u64, why: &'static str) -> Fault {
        Fault { status: FatalStatus::LimitExceeded, info: 0, unit: kind.name(), field, value, why }
    }

    /// The unit that tells the peer so, sent by `sender`, with as much of the offending header as it may hold.
    pub fn term_req<'a>(&self, sender: End, header: &'a [u8]) -> TermReq<'a> {
        TermReq { sender, status: self.status as u16, info: self.info, header: &header[..header.len().min(128)] }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = FatalStatus::name(self.status as u16);
        write!(f, "{name}: {} of {} is {:#x}: {}", self.field, self.unit, self.value, self.why)
    }
}

impl std::error::Error for Fault {}

/// H2CTermReq and C2HTermReq: the peer is told why the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermReq<'a> {
    /// The end of the connection that sends the unit.
    pub sender: End,
    /// FES: a [`FatalStatus`], or any other number.
    pub status: u16,
    /// FEI: the position of the wrong field, or the digest received.
    pub info: u32,
    /// The header of the offending unit, at most 128 bytes.
    pub header: &'a [u8],
}

impl TermReq<'_> {
    /// Bytes of the unit at most.
    pub const MAX_BYTES: usize = 24 + 128;

    /// The unit, and how many of its bytes count.
    pub fn pdu(&self) -> ([u8; TermReq::MAX_BYTES], usize) {
        let mut bytes = [0; TermReq::MAX_BYTES];
        let kind = if self.sender == End::Host { PduType::H2cTermReq } else { PduType::C2hTermReq };
        let header = &self.header[..self.header.len().min(128)];
        let total = 24 + header.len();
        (bytes[0], bytes[2], bytes[4]) = (kind as u8, 24, total as u8);
        bytes[8..10].copy_from_slice(&self.status.to_le_bytes());
        bytes[10..14].copy_from_slice(&self.info.to_le_bytes());
        bytes[24..total].copy_from_slice(header);
        (bytes, total)
    }
}

impl fmt::Display for TermReq<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} (FES {:#x}, FEI {:#x})", FatalStatus::name(self.status), self.status, self.info)
    }
}

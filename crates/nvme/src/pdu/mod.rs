//! NVMe over TCP: protocol data units (NVM Express TCP Transport Specification 1.0c).
//!
//! ```text
//! header │ header digest │ padding │ data │ data digest
//! └ HLEN ┘               PDO ──────┘ PLEN ────────────┘
//! ```
//!
//! Receiving: [`Receiver::next`] says, from the bytes that are there, which unit begins and where its data lie; the
//! data stay where they are (or are still to come). Sending: each unit writes its header, with digest and padding, in
//! front of data that are sent from where they lie. Nothing allocates. A violation is a [`Fault`] that says which field
//! is wrong, to the peer in a [`TermReq`] and to the administrator in words.

mod capsule;
mod data;
pub mod digest;
mod fault;
mod handshake;
mod receive;

pub use capsule::{command, response};
pub use data::{C2hData, H2cData, R2t};
pub use fault::{FatalStatus, Fault, TermReq};
pub use handshake::{Agreement, IcReq, IcResp};
pub use receive::{Layout, Limits, Next, Pdu, Receiver};

/// Bytes of the common header that every unit begins with.
pub const COMMON_BYTES: usize = 8;
/// Bytes of the longest header with digest and padding: what room for a header must have. A capsule's 76 bytes that are
/// padded to a multiple of 72 are the longest.
pub const MAX_HEADER_BYTES: usize = 144;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The host: the initiator.
    Host,
    /// The controller: the target.
    Controller,
}

/// The kind of a unit: PDU-TYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PduType {
    /// Initialize Connection Request.
    IcReq = 0x00,
    /// Initialize Connection Response.
    IcResp = 0x01,
    /// Host to Controller Terminate Connection Request.
    H2cTermReq = 0x02,
    /// Controller to Host Terminate Connection Request.
    C2hTermReq = 0x03,
    /// Command Capsule.
    CapsuleCmd = 0x04,
    /// Response Capsule.
    CapsuleResp = 0x05,
    /// Host to Controller Data.
    H2cData = 0x06,
    /// Controller to Host Data.
    C2hData = 0x07,
    /// Ready to Transfer.
    R2t = 0x09,
}

impl PduType {
    /// The kind with that number.
    #[inline]
    pub fn of(number: u8) -> Option<PduType> {
        Some(match number {
            0x00 => PduType::IcReq,
            0x01 => PduType::IcResp,
            0x02 => PduType::H2cTermReq,
            0x03 => PduType::C2hTermReq,
            0x04 => PduType::CapsuleCmd,
            0x05 => PduType::CapsuleResp,
            0x06 => PduType::H2cData,
            0x07 => PduType::C2hData,
            0x09 => PduType::R2t,
            _ => return None,
        })
    }

    /// The unit's name in the specification.
    pub fn name(self) -> &'static str {
        match self {
            PduType::IcReq => "ICReq",
            PduType::IcResp => "ICResp",
            PduType::H2cTermReq => "H2CTermReq",
            PduType::C2hTermReq => "C2HTermReq",
            PduType::CapsuleCmd => "CapsuleCmd",
            PduType::CapsuleResp => "CapsuleResp",
            PduType::H2cData => "H2CData",
            PduType::C2hData => "C2HData",
            PduType::R2t => "R2T",
        }
    }

    /// The end of the connection that sends units of this kind.
    #[inline]
    pub fn sender(self) -> End {
        match self {
            PduType::IcReq | PduType::H2cTermReq | PduType::CapsuleCmd | PduType::H2cData => End::Host,
            PduType::IcResp | PduType::C2hTermReq | PduType::CapsuleResp | PduType::C2hData | PduType::R2t => {
                End::Controller
            }
        }
    }

    /// HLEN: bytes of its header without digest.
    #[inline]
    pub fn header_bytes(self) -> u8 {
        match self {
            PduType::IcReq | PduType::IcResp => 128,
            PduType::CapsuleCmd => 72,
            _ => 24,
        }
    }

    /// True if the unit can have digests: not before both ends agree on digests, and not when the connection ends.
    #[inline]
    fn has_digests(self) -> bool {
        !matches!(self, PduType::IcReq | PduType::IcResp | PduType::H2cTermReq | PduType::C2hTermReq)
    }

    /// True if data can follow the unit's header.
    #[inline]
    fn has_data(self) -> bool {
        matches!(
            self,
            PduType::CapsuleCmd | PduType::H2cData | PduType::C2hData | PduType::H2cTermReq | PduType::C2hTermReq
        )
    }
}

/// Bits of the FLAGS field.
pub(crate) mod flag {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU, of data: the transfer's last.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS, of C2HData: the command succeeded, no response follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Writes a whole header: the common part before `specific` (whose first 8 bytes are replaced), header digest and
/// padding; bytes written, which is PDO if data follow. Those and their digest are the caller's to send.
#[inline(always)]
fn write_header<const HLEN: usize>(
    kind: PduType,
    flags: u8,
    mut header: [u8; HLEN],
    data_bytes: u32,
    agreement: &Agreement,
    out: &mut [u8],
) -> usize {
    debug_assert_eq!(HLEN, usize::from(kind.header_bytes()));
    let mut end = HLEN + 4 * usize::from(agreement.header_digest);
    let mut total = end;
    let mut flags = flags | (flag::HEADER_DIGEST * u8::from(agreement.header_digest));
    if data_bytes > 0 {
        end = end.next_multiple_of(agreement.alignment_from(kind.sender()) as usize);
        flags |= flag::DATA_DIGEST * u8::from(agreement.data_digest);
        total = end + data_bytes as usize + 4 * usize::from(agreement.data_digest);
        header[3] = end as u8;
    }
    (header[0], header[1], header[2]) = (kind as u8, flags, HLEN as u8);
    header[4..8].copy_from_slice(&(total as u32).to_le_bytes());
    out[..HLEN].copy_from_slice(&header);
    if agreement.header_digest {
        out[HLEN..HLEN + 4].copy_from_slice(&digest::of(&header).to_le_bytes());
    }
    if data_bytes > 0 {
        out[HLEN + 4 * usize::from(agreement.header_digest)..end].fill(0);
    }
    end
}

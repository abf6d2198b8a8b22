//! Receiving: finds where a unit begins and ends, and reads its header.

use super::{Agreement, C2hData, COMMON_BYTES, End, FatalStatus, Fault, H2cData, IcReq, IcResp, PduType, R2t};
use super::{data, digest, flag};
use crate::spec::{Command, Completion};

/// The most data that one unit may bring; beyond that the connection ends, before anything is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a CapsuleCmd.
    pub capsule: u32,
    /// Bytes in an H2CData (MAXH2CDATA) or a C2HData.
    pub data: u32,
}

/// Reads the units that one peer sends.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    /// The end of the connection that sends the units.
    pub from: End,
    /// The agreement of the handshake; the default before the handshake.
    pub agreement: Agreement,
    /// The bounds on data that one unit may bring.
    pub limits: Limits,
}

/// A unit's measures, in bytes from its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The kind of the unit.
    pub kind: PduType,
    /// The FLAGS field of the header.
    flags: u8,
    /// Bytes of the unit's header with its digest: a receiver needs all of them to read the unit.
    pub header_bytes: u32,
    /// The offset at which the unit's data begin (PDO); equal to `header_bytes` if there are none.
    pub data_at: u32,
    /// Bytes of its data, without padding and digest.
    pub data_bytes: u32,
    /// Bytes of the digest that follows the data: 4 or 0.
    pub data_digest_bytes: u32,
}

impl Layout {
    /// PLEN: the bytes of the whole unit, after which the next unit begins.
    #[inline]
    pub fn total(&self) -> u32 {
        self.data_at + self.data_bytes + self.data_digest_bytes
    }
}

/// A unit, its data excepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pdu {
    /// The host asks for a connection.
    IcReq(IcReq),
    /// The controller's answer to ICReq.
    IcResp(IcResp),
    /// The peer ends the connection. The header that it complains about is the unit's data.
    TermReq {
        /// FES: the kind of the fatal error.
        status: u16,
        /// FEI: information about the error.
        info: u32,
    },
    /// A command. The data of the unit are its in-capsule data.
    CapsuleCmd(Command),
    /// A response capsule: the completion of a command.
    CapsuleResp(Completion),
    /// Data of a write, from host to controller.
    H2cData(H2cData),
    /// Data of a read, from controller to host.
    C2hData(C2hData),
    /// Ready to transfer: the controller asks for data of a write.
    R2t(R2t),
}

/// The outcome of a look at the start of the bytes received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The receiver can tell more when this number of bytes is there.
    Need(usize),
    /// A unit. Its data may be still to come.
    Unit(Layout, Pdu),
}

impl Receiver {
    /// A receiver before the handshake.
    pub fn new(from: End, limits: Limits) -> Receiver {
        Receiver { from, agreement: Agreement::default(), limits }
    }

    /// The unit that `bytes` begin with, as soon as its whole header is there.
    ///
    /// # Errors
    /// The unit's header is wrong. The receiver does not judge if the unit may come now, or if its data are in range.
    #[inline]
    pub fn next(&self, bytes: &[u8]) -> Result<Next, Fault> {
        let Some(common) = bytes.first_chunk::<COMMON_BYTES>() else { return Ok(Next::Need(COMMON_BYTES)) };
        let layout = self.layout(common)?;
        match bytes.get(..layout.header_bytes as usize) {
            Some(header) => Ok(Next::Unit(layout, self.parse(&layout, header)?)),
            None => Ok(Next::Need(layout.header_bytes as usize)),
        }
    }

    /// The measures of the unit that begins with this common header.
    ///
    /// # Errors
    /// A field that is wrong for any unit of its type.
    #[inline]
    pub fn layout(&self, common: &[u8; COMMON_BYTES]) -> Result<Layout, Fault> {
        let [number, flags, hlen, pdo, plen @ ..] = *common;
        let plen = u32::from_le_bytes(plen);
        let Some(kind) = PduType::of(number).filter(|kind| kind.sender() == self.from) else {
            return Err(not_from(number, self.from));
        };
        if hlen != kind.header_bytes() {
            return Err(Fault::field(kind, "HLEN", 2, hlen.into(), "not the length of this header"));
        }
        let mut header_bytes = u32::from(hlen);
        if kind.has_digests() {
            if (flags & flag::HEADER_DIGEST != 0) != self.agreement.header_digest {
                return Err(Fault::field(kind, "FLAGS", 1, flags.into(), "HDGSTF is not as agreed on"));
            }
            header_bytes += self.agreement.header_digest_bytes();
        }
        let layout = Layout { kind, flags, header_bytes, data_at: header_bytes, data_bytes: 0, data_digest_bytes: 0 };
        if plen == header_bytes {
            return Ok(layout);
        }
        if plen < header_bytes || !kind.has_data() {
            return Err(Fault::field(kind, "PLEN", 4, plen.into(), "not the length of this unit"));
        }
        self.with_data(layout, pdo, plen)
    }

    #[inline]
    fn with_data(&self, layout: Layout, pdo: u8, plen: u32) -> Result<Layout, Fault> {
        let Layout { kind, flags, header_bytes, .. } = layout;
        if !kind.has_digests() {
            // A TermReq: the header that it complains about follows at once.
            let data_bytes = plen - header_bytes;
            if data_bytes > 128 {
                return Err(Fault::field(kind, "PLEN", 4, plen.into(), "152 is the largest"));
            }
            return Ok(Layout { data_bytes, ..layout });
        }
        let data_at = u32::from(pdo);
        if data_at < header_bytes || !data_at.is_multiple_of(self.agreement.alignment_from(self.from)) {
            return Err(Fault::field(kind, "PDO", 3, pdo.into(), "data begin after the header, aligned as agreed on"));
        }
        if (flags & flag::DATA_DIGEST != 0) != self.agreement.data_digest {
            return Err(Fault::field(kind, "FLAGS", 1, flags.into(), "DDGSTF is not as agreed on"));
        }
        let data_digest_bytes = self.agreement.data_digest_bytes();
        let Some(data_bytes) = plen.checked_sub(data_at + data_digest_bytes).filter(|&bytes| bytes > 0) else {
            return Err(Fault::field(kind, "PLEN", 4, plen.into(), "it ends before its data"));
        };
        let (limit, why) = match kind {
            PduType::CapsuleCmd => (self.limits.capsule, "more data than a capsule takes"),
            _ => (self.limits.data, "more data than one unit takes"),
        };
        if data_bytes > limit {
            return Err(Fault::field(kind, "PLEN", 4, plen.into(), why));
        }
        Ok(Layout { data_at, data_bytes, data_digest_bytes, ..layout })
    }

    /// Reads the fields of the unit of this layout; `header` are its first [`Layout::header_bytes`].
    ///
    /// # Errors
    /// The unit's header digest does not match, or a field of its kind of unit is wrong.
    ///
    /// # Panics
    /// `header` is shorter.
    #[inline]
    pub fn parse(&self, layout: &Layout, header: &[u8]) -> Result<Pdu, Fault> {
        let kind = layout.kind;
        let own = usize::from(kind.header_bytes());
        if self.agreement.header_digest && kind.has_digests() {
            let came = u32::from_le_bytes(array(&header[own..]));
            let (value, why) = (u64::from(came), "not the CRC-32C of this header");
            if came != digest::of(&header[..own]) {
                let fault = Fault { info: came, ..Fault::field(kind, "HDGST", 0, value, why) };
                return Err(Fault { status: FatalStatus::HeaderDigestError, ..fault });
            }
        }
        Ok(match kind {
            PduType::IcReq => Pdu::IcReq(IcReq::read(&array(header))),
            PduType::IcResp => Pdu::IcResp(IcResp::read(&array(header))),
            PduType::H2cTermReq | PduType::C2hTermReq => Pdu::TermReq {
                status: u16::from_le_bytes(array(&header[8..])),
                info: u32::from_le_bytes(array(&header[10..])),
            },
            PduType::CapsuleCmd => Pdu::CapsuleCmd(Command::read(&array(&header[8..]))),
            PduType::CapsuleResp => Pdu::CapsuleResp(Completion::read(&array(&header[8..]))),
            PduType::H2cData => {
                let (cid, ttag, offset, length) = data::read(&array(header));
                length_agrees(layout, length)?;
                Pdu::H2cData(H2cData { cid, ttag, offset, length, last: layout.flags & flag::LAST != 0 })
            }
            PduType::C2hData => {
                let (cid, _, offset, length) = data::read(&array(header));
                length_agrees(layout, length)?;
                let (last, success) = (layout.flags & flag::LAST != 0, layout.flags & flag::SUCCESS != 0);
                if success && !last {
                    return Err(Fault::field(kind, "FLAGS", 1, layout.flags.into(), "SUCCESS without LAST_PDU"));
                }
                Pdu::C2hData(C2hData { cid, offset, length, last, success })
            }
            PduType::R2t => {
                let (cid, ttag, offset, length) = data::read(&array(header));
                if length == 0 {
                    return Err(Fault::field(kind, "R2TL", 16, 0, "it asks for nothing"));
                }
                Pdu::R2t(R2t { cid, ttag, offset, length })
            }
        })
    }
}

#[inline]
fn length_agrees(layout: &Layout, length: u32) -> Result<(), Fault> {
    if length == layout.data_bytes && length > 0 {
        return Ok(());
    }
    Err(Fault::field(layout.kind, "DATAL", 16, length.into(), "not the length of the data that PLEN leaves"))
}

#[inline(always)]
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

#[cold]
fn not_from(number: u8, from: End) -> Fault {
    let why = if from == End::Host { "hosts send no such unit" } else { "controllers send no such unit" };
    let (status, value) = (FatalStatus::InvalidHeaderField, u64::from(number));
    Fault { status, info: 0, unit: PduType::of(number).map_or("a unit", PduType::name), field: "PDU-TYPE", value, why }
}

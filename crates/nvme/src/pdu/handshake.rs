//! The handshake that opens a connection: ICReq and ICResp, and their agreement.

use super::{End, FatalStatus, Fault, PduType};

/// PFV of this protocol.
const FORMAT: u16 = 0;
/// HPDA and CPDA at most: data begin at multiples of 4 * (31 + 1) bytes.
const MAX_ALIGNMENT: u8 = 31;
/// Bits of DGST, which ask for digests.
const DGST_HEADER: u8 = 1;
const DGST_DATA: u8 = 2;

layout! {
    /// Initialize Connection Request.
    pub struct IcReq: 128 {
        /// PDU format version: 0.
        pfv: u16 = 8,
        /// Host PDU data alignment in dwords, minus one: what C2HData must keep.
        hpda: u8 = 10,
        /// Digests that the host wants: bit 0 header, bit 1 data.
        dgst: u8 = 11,
        /// R2Ts that may be outstanding for a command, minus one.
        maxr2t: u32 = 12,
    }
}

layout! {
    /// Initialize Connection Response.
    pub struct IcResp: 128 {
        /// PDU format version: 0.
        pfv: u16 = 8,
        /// Controller PDU data alignment in dwords, minus one: what capsules and H2CData must keep.
        cpda: u8 = 10,
        /// Digests that are used: bit 0 header, bit 1 data.
        dgst: u8 = 11,
        /// Data bytes of one H2CData at most: at least 4096, a multiple of 4.
        maxh2cdata: u32 = 12,
    }
}

/// The agreement that both ends of a connection keep to after the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Agreement {
    /// Every header has a digest.
    pub header_digest: bool,
    /// All data have a digest.
    pub data_digest: bool,
    /// HPDA: data to the host begin at multiples of `4 * (hpda + 1)` bytes.
    pub hpda: u8,
    /// CPDA: data to the controller begin at multiples of `4 * (cpda + 1)` bytes.
    pub cpda: u8,
}

impl Agreement {
    /// The alignment of data that `sender` sends: they begin at multiples of this many bytes from the start of their
    /// unit.
    #[inline]
    pub fn alignment_from(&self, sender: End) -> u32 {
        let dwords = if sender == End::Host { self.cpda } else { self.hpda };
        4 * (u32::from(dwords) + 1)
    }

    /// Bytes of a header digest, 0 or 4.
    #[inline]
    pub fn header_digest_bytes(&self) -> u32 {
        4 * u32::from(self.header_digest)
    }

    /// Bytes of a data digest, 0 or 4.
    #[inline]
    pub fn data_digest_bytes(&self) -> u32 {
        4 * u32::from(self.data_digest)
    }
}

impl IcReq {
    /// A request for those digests, without alignment, and for one R2T a command.
    pub fn asking(header_digest: bool, data_digest: bool) -> IcReq {
        IcReq { dgst: dgst(header_digest, data_digest), ..IcReq::default() }
    }

    /// The whole unit as bytes.
    pub fn pdu(&self) -> [u8; 128] {
        framed(PduType::IcReq, self.write())
    }

    /// The answer of a controller that grants what was asked for and takes `maxh2cdata` bytes in an H2CData, and the
    /// agreement.
    ///
    /// # Errors
    /// Another version of the format, or an alignment that does not exist.
    pub fn granted(&self, maxh2cdata: u32) -> Result<(IcResp, Agreement), Fault> {
        debug_assert!(maxh2cdata >= 4096 && maxh2cdata.is_multiple_of(4));
        version(PduType::IcReq, self.pfv)?;
        alignment(PduType::IcReq, "HPDA", self.hpda)?;
        let dgst = self.dgst & (DGST_HEADER | DGST_DATA);
        Ok((IcResp { dgst, maxh2cdata, ..IcResp::default() }, agreed(dgst, self.hpda, 0)))
    }
}

impl IcResp {
    /// The whole unit as bytes.
    pub fn pdu(&self) -> [u8; 128] {
        framed(PduType::IcResp, self.write())
    }

    /// The agreement that this answer to `asked` makes.
    ///
    /// # Errors
    /// Another version of the format, values that the specification forbids, or digests that were not asked for.
    pub fn agreement(&self, asked: &IcReq) -> Result<Agreement, Fault> {
        version(PduType::IcResp, self.pfv)?;
        alignment(PduType::IcResp, "CPDA", self.cpda)?;
        if self.dgst & !asked.dgst != 0 {
            return Err(Fault::field(PduType::IcResp, "DGST", 11, self.dgst.into(), "more than was asked for"));
        }
        if self.maxh2cdata < 4096 || !self.maxh2cdata.is_multiple_of(4) {
            let why = "it must be a multiple of 4, at least 4096";
            return Err(Fault::field(PduType::IcResp, "MAXH2CDATA", 12, self.maxh2cdata.into(), why));
        }
        Ok(agreed(self.dgst, asked.hpda, self.cpda))
    }
}

fn dgst(header: bool, data: bool) -> u8 {
    (DGST_HEADER * u8::from(header)) | (DGST_DATA * u8::from(data))
}

fn agreed(dgst: u8, hpda: u8, cpda: u8) -> Agreement {
    Agreement { header_digest: dgst & DGST_HEADER != 0, data_digest: dgst & DGST_DATA != 0, hpda, cpda }
}

fn framed(kind: PduType, mut bytes: [u8; 128]) -> [u8; 128] {
    (bytes[0], bytes[2], bytes[4]) = (kind as u8, kind.header_bytes(), 128);
    bytes
}

fn version(kind: PduType, pfv: u16) -> Result<(), Fault> {
    if pfv == FORMAT {
        return Ok(());
    }
    let fault = Fault::field(kind, "PFV", 8, pfv.into(), "only version 0 is known");
    Err(Fault { status: FatalStatus::UnsupportedParameter, ..fault })
}

fn alignment(kind: PduType, field: &'static str, value: u8) -> Result<(), Fault> {
    if value <= MAX_ALIGNMENT { Ok(()) } else { Err(Fault::field(kind, field, 10, value.into(), "31 is the largest")) }
}

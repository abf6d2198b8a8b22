//! Data on their way, and the controller's leave to send them.

use super::{Agreement, PduType, flag, write_header};

/// Host to Controller Data: what an R2T asked for, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H2cData {
    /// CCCID: the identifier of the command.
    pub cid: u16,
    /// TTAG: the transfer tag of the R2T that this unit answers.
    pub ttag: u16,
    /// DATAO: the offset in the command's data at which the data of this unit begin.
    pub offset: u32,
    /// DATAL: bytes of data in this unit.
    pub length: u32,
    /// True for the last unit that answers the R2T.
    pub last: bool,
}

/// Controller to Host Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct C2hData {
    /// CCCID: the identifier of the command.
    pub cid: u16,
    /// DATAO: the offset in the command's data at which the data of this unit begin.
    pub offset: u32,
    /// DATAL: bytes of data in this unit.
    pub length: u32,
    /// True for the last data of the command.
    pub last: bool,
    /// The command succeeded and no response follows. Only with `last`, and only if the host disabled SQ flow control.
    pub success: bool,
}

/// Ready to Transfer: the controller has room for data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// CCCID: the identifier of the command.
    pub cid: u16,
    /// The controller's name for this transfer, to be given back with its data.
    pub ttag: u16,
    /// R2TO: the offset in the command's data at which the data asked for begin.
    pub offset: u32,
    /// R2TL: the number of bytes that the controller asks for.
    pub length: u32,
}

/// Fields common to the three: (CCCID, TTAG, offset, length).
#[inline]
pub(super) fn read(header: &[u8; 24]) -> (u16, u16, u32, u32) {
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let long = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    (short(8), short(10), long(12), long(16))
}

#[inline]
fn write(cid: u16, ttag: u16, offset: u32, length: u32) -> [u8; 24] {
    let mut header = [0; 24];
    header[8..10].copy_from_slice(&cid.to_le_bytes());
    header[10..12].copy_from_slice(&ttag.to_le_bytes());
    header[12..16].copy_from_slice(&offset.to_le_bytes());
    header[16..20].copy_from_slice(&length.to_le_bytes());
    header
}

impl H2cData {
    /// Writes the header. Returns the bytes written. `length` bytes of data and, where agreed on, their digest follow.
    #[inline]
    pub fn write(&self, agreement: &Agreement, out: &mut [u8]) -> usize {
        let flags = flag::LAST * u8::from(self.last);
        let header = write(self.cid, self.ttag, self.offset, self.length);
        write_header(PduType::H2cData, flags, header, self.length, agreement, out)
    }
}

impl C2hData {
    /// Writes the header. Returns the bytes written. `length` bytes of data and, where agreed on, their digest follow.
    #[inline]
    pub fn write(&self, agreement: &Agreement, out: &mut [u8]) -> usize {
        debug_assert!(self.last || !self.success);
        let flags = (flag::LAST * u8::from(self.last)) | (flag::SUCCESS * u8::from(self.success));
        write_header(PduType::C2hData, flags, write(self.cid, 0, self.offset, self.length), self.length, agreement, out)
    }
}

impl R2t {
    /// Writes the unit. Returns the bytes written: 24, or 28 with a header digest.
    #[inline]
    pub fn write(&self, agreement: &Agreement, out: &mut [u8]) -> usize {
        let header = write(self.cid, self.ttag, self.offset, self.length);
        write_header(PduType::R2t, 0, header, 0, agreement, out)
    }
}

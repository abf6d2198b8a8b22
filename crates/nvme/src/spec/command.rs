//! The submission queue entry, and what its command dwords mean per command.

use super::Status;
use super::fabrics;
use super::opcode::{FABRICS, admin, io};
use crate::layout::Field;

layout! {
    /// A submission queue entry (Base specification 2.0, figure 87).
    pub struct Command: 64 {
        /// The operation: a constant of [`opcode`](super::opcode).
        opcode: u8 = 0,
        /// FUSE in bits 1:0, PSDT in bits 7:6. Over Fabrics PSDT is 01b.
        flags: u8 = 1,
        /// Command identifier, unique among those outstanding on the queue.
        cid: u16 = 2,
        /// Namespace; in Fabrics commands the first byte is the command type.
        nsid: u32 = 4,
        /// Command dword 2.
        cdw2: u32 = 8,
        /// Command dword 3.
        cdw3: u32 = 12,
        /// Metadata pointer: unused over TCP.
        mptr: u64 = 16,
        /// The descriptor of the data's place (SGL1).
        sgl: Sgl = 24,
        /// Command dword 10.
        cdw10: u32 = 40,
        /// Command dword 11.
        cdw11: u32 = 44,
        /// Command dword 12.
        cdw12: u32 = 48,
        /// Command dword 13.
        cdw13: u32 = 52,
        /// Command dword 14.
        cdw14: u32 = 56,
        /// Command dword 15.
        cdw15: u32 = 60,
    }
}

layout! {
    /// An SGL descriptor (Base specification 2.0, section 4.1.2).
    pub struct Sgl: 16 {
        /// Address, or offset in the capsule's data.
        address: u64 = 0,
        /// Length of the data in bytes. A descriptor with a key has its length in the lower 24 bits, and the lowest
        /// byte of the key in the upper 8 (see [`KeyedSgl`](super::rdma::KeyedSgl)).
        length: u32 = 8,
        /// The upper bytes of the key, in a descriptor with a key.
        key: [u8; 3] = 12,
        /// Type in bits 7:4, subtype in bits 3:0.
        id: u8 = 15,
    }
}

/// The way of a command's data over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// In the command's capsule: SGL type 01h (Data Block, Offset).
    InCapsule {
        /// Bytes from the start of the capsule's data; over TCP 0 in practice (ICDOFF is 0).
        offset: u64,
        /// Length of the data in bytes.
        length: u32,
    },
    /// In data PDUs: SGL type 5Ah (Transport Data Block).
    Transport {
        /// Bytes; 0 for commands without data.
        length: u32,
    },
}

impl Sgl {
    pub(super) const OFFSET: u8 = 0x01;
    const TRANSPORT: u8 = 0x5a;

    /// Data of `length` bytes in the capsule.
    #[inline]
    pub fn in_capsule(length: u32) -> Sgl {
        Sgl { length, id: Sgl::OFFSET, ..Sgl::default() }
    }

    /// Data of `length` bytes in data PDUs; 0 for none.
    #[inline]
    pub fn transport(length: u32) -> Sgl {
        Sgl { length, id: Sgl::TRANSPORT, ..Sgl::default() }
    }

    /// The place of the data that the descriptor gives.
    ///
    /// # Errors
    /// [`Status::SGL_DESCRIPTOR_TYPE_INVALID`] for descriptors that do not exist over TCP.
    #[inline]
    pub fn data(&self) -> Result<Data, Status> {
        match self.id {
            Sgl::TRANSPORT => Ok(Data::Transport { length: self.length }),
            Sgl::OFFSET => Ok(Data::InCapsule { offset: self.address, length: self.length }),
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        }
    }
}

impl Command {
    /// PSDT 01b: the data pointer is an SGL, as Fabrics demand.
    pub const PSDT_SGL: u8 = 0x40;
    /// FUSE of the first command of a fused operation.
    pub const FUSE_FIRST: u8 = 1;
    /// FUSE of the second command of a fused operation.
    pub const FUSE_SECOND: u8 = 2;
    /// Force Unit Access, in `cdw12` of reads and writes.
    pub const FUA: u32 = 1 << 30;

    /// A command without data.
    #[inline]
    pub fn new(opcode: u8, nsid: u32) -> Command {
        Command { opcode, flags: Command::PSDT_SGL, nsid, sgl: Sgl::transport(0), ..Command::default() }
    }

    /// A command on `blocks` (1 to 65536) blocks from `lba`: Read, Write, Compare, Write Zeroes. The command's `sgl`
    /// says "no data".
    #[inline]
    pub fn blocks(opcode: u8, nsid: u32, lba: u64, blocks: u32) -> Command {
        debug_assert!((1..=1 << 16).contains(&blocks));
        let (cdw10, cdw11) = (lba as u32, (lba >> 32) as u32);
        Command { cdw10, cdw11, cdw12: blocks.wrapping_sub(1) & 0xffff, ..Command::new(opcode, nsid) }
    }

    /// PSDT: the form of the data pointer, 0 for PRPs, 1 and 2 for SGLs.
    #[inline]
    pub fn psdt(&self) -> u8 {
        self.flags >> 6
    }

    /// FUSE: not 0 in parts of fused operations, [`Command::FUSE_FIRST`] or [`Command::FUSE_SECOND`].
    #[inline]
    pub fn fuse(&self) -> u8 {
        self.flags & 3
    }

    /// True for a Fabrics command.
    #[inline]
    pub fn is_fabrics(&self) -> bool {
        self.opcode == FABRICS
    }

    /// The type of a Fabrics command: a constant of [`fabrics`].
    #[inline]
    pub fn fctype(&self) -> u8 {
        self.nsid as u8
    }

    /// The first logical block of an I/O command (SLBA).
    #[inline]
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw10) | u64::from(self.cdw11) << 32
    }

    /// The number of logical blocks of an I/O command, 1 to 65536 (NLB + 1).
    #[inline]
    pub fn block_count(&self) -> u32 {
        (self.cdw12 & 0xffff) + 1
    }

    /// True if data travel from the host to the controller: by bits 1:0 of the opcode, or of a Fabrics command's type.
    #[inline]
    pub fn is_to_controller(&self) -> bool {
        let code = if self.is_fabrics() { self.fctype() } else { self.opcode };
        code & 3 == 1
    }

    /// The command's name as the specifications write it, apart from the commands of the other kind of queue, whose
    /// opcodes are the same.
    pub fn name(&self, is_admin_queue: bool) -> &'static str {
        match (self.opcode, is_admin_queue) {
            (FABRICS, _) => fabrics::name(self.fctype()),
            (admin::GET_LOG_PAGE, true) => "Get Log Page",
            (admin::IDENTIFY, true) => "Identify",
            (admin::ABORT, true) => "Abort",
            (admin::SET_FEATURES, true) => "Set Features",
            (admin::GET_FEATURES, true) => "Get Features",
            (admin::ASYNC_EVENT_REQUEST, true) => "Asynchronous Event Request",
            (admin::KEEP_ALIVE, true) => "Keep Alive",
            (io::FLUSH, false) => "Flush",
            (io::WRITE, false) => "Write",
            (io::READ, false) => "Read",
            (io::COMPARE, false) => "Compare",
            (io::WRITE_ZEROES, false) => "Write Zeroes",
            (io::DATASET_MANAGEMENT, false) => "Dataset Management",
            (io::VERIFY, false) => "Verify",
            (io::COPY, false) => "Copy",
            (io::RESERVATION_REGISTER, false) => "Reservation Register",
            (io::RESERVATION_REPORT, false) => "Reservation Report",
            (io::RESERVATION_ACQUIRE, false) => "Reservation Acquire",
            (io::RESERVATION_RELEASE, false) => "Reservation Release",
            _ => "unknown command",
        }
    }
}

/// The parameters of the command Identify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// CNS: the structure that is asked for, a constant of [`cns`](super::cns).
    pub cns: u8,
    /// Controller, where one is asked for.
    pub cntid: u16,
    /// Command set identifier.
    pub csi: u8,
}

impl Identify {
    /// Reads the parameters of Identify from a command.
    pub fn of(command: &Command) -> Identify {
        let (cns, cntid) = (command.cdw10 as u8, (command.cdw10 >> 16) as u16);
        Identify { cns, cntid, csi: (command.cdw11 >> 24) as u8 }
    }

    /// The command, for a buffer of 4096 bytes.
    pub fn command(&self, nsid: u32) -> Command {
        let cdw10 = u32::from(self.cns) | u32::from(self.cntid) << 16;
        let sgl = Sgl::transport(4096);
        Command { cdw10, cdw11: u32::from(self.csi) << 24, sgl, ..Command::new(admin::IDENTIFY, nsid) }
    }
}

/// The parameters of Get Log Page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// LID: the log that is asked for, a constant of [`log`](super::log).
    pub lid: u8,
    /// Log specific parameter, 7 bits.
    pub lsp: u8,
    /// Retain Asynchronous Event: the page is read without clearing its event.
    pub retain: bool,
    /// Bytes asked for: a multiple of 4, up to 16 GiB.
    pub length: u64,
    /// Bytes from the start of the page.
    pub offset: u64,
}

impl GetLogPage {
    /// Reads the parameters of Get Log Page from a command.
    pub fn of(command: &Command) -> GetLogPage {
        let dwords = u64::from(command.cdw10 >> 16) | u64::from(command.cdw11 & 0xffff) << 16;
        GetLogPage {
            lid: command.cdw10 as u8,
            lsp: (command.cdw10 >> 8) as u8 & 0x7f,
            retain: command.cdw10 & 1 << 15 != 0,
            length: (dwords + 1) * 4,
            offset: u64::from(command.cdw12) | u64::from(command.cdw13) << 32,
        }
    }

    /// The command, for a buffer of `length` bytes.
    pub fn command(&self, nsid: u32) -> Command {
        let dwords = (self.length / 4).saturating_sub(1) as u32;
        let cdw10 = u32::from(self.lid)
            | u32::from(self.lsp & 0x7f) << 8
            | u32::from(self.retain) << 15
            | (dwords & 0xffff) << 16;
        Command {
            cdw10,
            cdw11: dwords >> 16,
            cdw12: self.offset as u32,
            cdw13: (self.offset >> 32) as u32,
            sgl: Sgl::transport(self.length as u32),
            ..Command::new(admin::GET_LOG_PAGE, nsid)
        }
    }
}

layout! {
    /// A range of Dataset Management (NVM Command Set 1.0, figure 41).
    pub struct Range: 16 {
        /// Context attributes: hints.
        attributes: u32 = 0,
        /// Length in logical blocks.
        blocks: u32 = 4,
        /// First logical block.
        slba: u64 = 8,
    }
}

impl Range {
    /// Ranges that one command can have.
    pub const MAX: usize = 256;
    /// Attribute Deallocate, in `cdw11` of Dataset Management.
    pub const DEALLOCATE: u32 = 1 << 2;

    /// The Dataset Management command that deallocates `ranges` (1 to 256) ranges sent as its data.
    pub fn deallocate(nsid: u32, ranges: usize) -> Command {
        debug_assert!((1..=Range::MAX).contains(&ranges));
        let cdw10 = ranges.wrapping_sub(1) as u32 & 0xff;
        Command { cdw10, cdw11: Range::DEALLOCATE, ..Command::new(io::DATASET_MANAGEMENT, nsid) }
    }

    /// The number of ranges of a Dataset Management command, 1 to 256.
    pub fn count(command: &Command) -> usize {
        (command.cdw10 as usize & 0xff) + 1
    }

    /// The ranges in a command's data, as many as are whole.
    pub fn all(data: &[u8]) -> impl Iterator<Item = Range> + '_ {
        data.chunks_exact(Range::BYTES).map(<Range as Field>::get)
    }
}

layout! {
    /// A source range of Copy in format 0 (NVM Command Set 1.0, figure 34).
    pub struct CopySource: 32 {
        /// First logical block.
        slba: u64 = 8,
        /// The number of blocks, minus one.
        nlb: u16 = 16,
    }
}

impl CopySource {
    /// The Copy command to the blocks from `lba` of `sources` (1 to 256) ranges sent as its data.
    pub fn copy(nsid: u32, lba: u64, sources: usize) -> Command {
        debug_assert!((1..=256).contains(&sources));
        let (cdw10, cdw11) = (lba as u32, (lba >> 32) as u32);
        Command { cdw10, cdw11, cdw12: sources.wrapping_sub(1) as u32 & 0xff, ..Command::new(io::COPY, nsid) }
    }

    /// The number of ranges of a Copy command, 1 to 256.
    pub fn count(command: &Command) -> usize {
        (command.cdw12 as usize & 0xff) + 1
    }

    /// The format of the ranges that a Copy command names.
    pub fn format(command: &Command) -> u8 {
        (command.cdw12 >> 8) as u8 & 15
    }

    /// The ranges in a command's data, as many as are whole: first block, and number of blocks.
    pub fn all(data: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
        let sources = data.chunks_exact(CopySource::BYTES).map(<CopySource as Field>::get);
        sources.map(|source| (source.slba, u64::from(source.nlb) + 1))
    }
}

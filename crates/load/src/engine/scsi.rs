//! SCSI commands and the kernel's interface for them: the header of sg(4), SG_IO.
//!
//! Sources: SBC-4 and SPC-5 of T10 (the commands), linux/include/scsi/sg.h (the header, version 3).

use std::io;
use std::os::fd::RawFd;

use super::blocking::last_errno;

/// `SG_IO` of scsi/sg.h: carries out one command.
const SG_IO: libc::Ioctl = 0x2285;
/// The direction of a command's data (scsi/sg.h).
const NO_DATA: i32 = -1;
const TO_DEVICE: i32 = -2;
const FROM_DEVICE: i32 = -3;
/// `SG_INFO_CHECK`: the command did not end well.
const INFO_CHECK: u32 = 1;
/// Milliseconds that a command may take, as in fio.
const TIMEOUT_MS: u32 = 30_000;
/// Bytes of sense data that are kept: none of it is shown.
const SENSE_BYTES: usize = 32;

/// The bytes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    bytes: [u8; 16],
    len: u8,
}

/// The blocks that a command is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub first: u64,
    pub count: u32,
}

impl Command {
    /// A command on blocks, in its form of 10 bytes where that reaches them and in that of 16 bytes elsewhere. `flags`
    /// is the second byte.
    fn on(blocks: Blocks, short: u8, long: u8, flags: u8) -> Command {
        match (u32::try_from(blocks.first), u16::try_from(blocks.count)) {
            (Ok(first), Ok(count)) => {
                let mut bytes = [0; 16];
                (bytes[0], bytes[1]) = (short, flags);
                bytes[2..6].copy_from_slice(&first.to_be_bytes());
                bytes[7..9].copy_from_slice(&count.to_be_bytes());
                Command { bytes, len: 10 }
            }
            _ => Command::on_many(blocks, long, flags),
        }
    }

    /// The form of 16 bytes.
    fn on_many(blocks: Blocks, long: u8, flags: u8) -> Command {
        let mut bytes = [0; 16];
        (bytes[0], bytes[1]) = (long, flags);
        bytes[2..10].copy_from_slice(&blocks.first.to_be_bytes());
        bytes[10..14].copy_from_slice(&blocks.count.to_be_bytes());
        Command { bytes, len: 16 }
    }

    /// READ. `force` asks for the medium itself (FUA).
    pub fn read(blocks: Blocks, force: bool) -> Command {
        Command::on(blocks, 0x28, 0x88, if force { FORCE_UNIT_ACCESS } else { 0 })
    }

    /// SYNCHRONIZE CACHE of the whole device.
    pub fn synchronize() -> Command {
        Command::on(Blocks { first: 0, count: 0 }, 0x35, 0x91, 0)
    }

    /// UNMAP, whose data are [`unmap_list`].
    pub fn unmap() -> Command {
        let mut command = Command { bytes: [0; 16], len: 10 };
        command.bytes[0] = 0x42;
        command.bytes[8] = UNMAP_BYTES as u8;
        command
    }

    fn read_capacity_10() -> Command {
        Command::on(Blocks { first: 0, count: 0 }, 0x25, 0x25, 0)
    }

    fn read_capacity_16() -> Command {
        // SERVICE ACTION IN (16), READ CAPACITY (16); the allocation length is where counts of blocks are.
        Command::on_many(Blocks { first: 0, count: 32 }, 0x9e, 0x10)
    }
}

const FORCE_UNIT_ACCESS: u8 = 0x08;

/// The command that carries out a write: `sg_write_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// WRITE; `force` asks that the data are on the medium at its end (FUA).
    Plain { force: bool },
    /// WRITE AND VERIFY.
    AndVerify,
    /// WRITE SAME: the first block of the data goes into each block.
    Same,
    /// WRITE SAME (16) without data: zeros go into each block.
    SameWithoutData,
    /// VERIFY, which writes nothing: the device reads the blocks (`bytchk` 0), compares them with the data (1), or
    /// compares each with the first block of the data (3).
    Verify { bytchk: u8 },
}

impl Write {
    /// The command, and the bytes of data that go with it.
    pub fn command(self, blocks: Blocks, len: u32, block_bytes: u32) -> (Command, u32) {
        match self {
            Write::Plain { force } => (Command::on(blocks, 0x2a, 0x8a, if force { FORCE_UNIT_ACCESS } else { 0 }), len),
            Write::AndVerify => (Command::on(blocks, 0x2e, 0x8e, 0), len),
            Write::Same => (Command::on(blocks, 0x41, 0x93, 0), block_bytes),
            Write::SameWithoutData => (Command::on_many(blocks, 0x93, 1), 0),
            Write::Verify { bytchk } => {
                let data = match bytchk {
                    0 => 0,
                    1 => len,
                    _ => block_bytes,
                };
                (Command::on(blocks, 0x2f, 0x8f, bytchk << 1), data)
            }
        }
    }

    /// True if the blocks have the data of the op after it.
    pub fn stores_data(self) -> bool {
        matches!(self, Write::Plain { .. } | Write::AndVerify)
    }
}

/// Bytes of the data of an UNMAP with one range.
const UNMAP_BYTES: usize = 24;

/// The data of an UNMAP with one range.
pub(super) type UnmapList = [u8; UNMAP_BYTES];

/// The data of an UNMAP: one range.
pub(super) fn unmap_list(blocks: Blocks) -> UnmapList {
    let mut list = [0; UNMAP_BYTES];
    list[1] = UNMAP_BYTES as u8 - 2; // bytes that follow this number
    list[3] = 16; // bytes of the ranges
    list[8..16].copy_from_slice(&blocks.first.to_be_bytes());
    list[16..20].copy_from_slice(&blocks.count.to_be_bytes());
    list
}

/// A command on its way: `struct sg_io_hdr`, which the kernel fills in, and the memory that it points to.
#[repr(C)]
pub(super) struct Header {
    interface_id: i32,
    dxfer_direction: i32,
    cmd_len: u8,
    mx_sb_len: u8,
    iovec_count: u16,
    dxfer_len: u32,
    dxferp: *mut u8,
    cmdp: *const u8,
    sbp: *mut u8,
    timeout: u32,
    flags: u32,
    pack_id: i32,
    usr_ptr: *mut u8,
    status: u8,
    masked_status: u8,
    msg_status: u8,
    sb_len_wr: u8,
    host_status: u16,
    driver_status: u16,
    resid: i32,
    duration: u32,
    info: u32,
}

impl Header {
    /// A header without a command, for the kernel to fill in.
    pub fn empty() -> Header {
        // SAFETY: all fields are numbers or pointers, for which zero is a value.
        unsafe { std::mem::zeroed() }
    }

    /// The number that the command was given.
    pub fn number(&self) -> u32 {
        self.pack_id as u32
    }

    /// Bytes of data that were transferred, or a negative errno.
    pub fn outcome(&self) -> i64 {
        if self.info & INFO_CHECK != 0 {
            return -i64::from(libc::EIO);
        }
        i64::from(self.dxfer_len) - i64::from(self.resid)
    }
}

/// The data of a command: memory of the caller and its length, and whether the device fills it.
#[derive(Clone, Copy)]
pub(super) struct Data {
    pub memory: *mut u8,
    pub len: u32,
    pub from_device: bool,
}

/// A command with the memory that its header points to. It stays where it is until the command has ended.
pub(super) struct Carrier {
    command: Command,
    sense: [u8; SENSE_BYTES],
}

impl Carrier {
    pub fn new(command: Command) -> Carrier {
        Carrier { command, sense: [0; SENSE_BYTES] }
    }

    /// The header of the command, numbered.
    pub fn header(&mut self, number: u32, data: Data) -> Header {
        Header {
            interface_id: i32::from(b'S'),
            dxfer_direction: match data {
                Data { len: 0, .. } => NO_DATA,
                Data { from_device: true, .. } => FROM_DEVICE,
                _ => TO_DEVICE,
            },
            cmd_len: self.command.len,
            mx_sb_len: SENSE_BYTES as u8,
            dxfer_len: data.len,
            dxferp: data.memory,
            cmdp: self.command.bytes.as_ptr(),
            sbp: self.sense.as_mut_ptr(),
            timeout: TIMEOUT_MS,
            pack_id: number as i32,
            ..Header::empty()
        }
    }
}

/// Carries out one command on a device and returns when it is done: bytes of data, or a negative errno.
///
/// # Safety
/// The memory of `data` is valid for its length, and nobody else touches it during the call.
pub(super) unsafe fn carry_out(fd: RawFd, command: Command, data: Data) -> i64 {
    let mut carrier = Carrier::new(command);
    let mut header = carrier.header(0, data);
    // SAFETY: SG_IO reads and writes one header; the header points to the carrier, which lives until the end of this
    // function, and to the data, which the caller vouches for.
    match unsafe { libc::ioctl(fd, SG_IO, &mut header) } {
        0 => header.outcome(),
        _ => -i64::from(last_errno()),
    }
}

/// The number of blocks of a device, and the bytes of each (READ CAPACITY).
///
/// # Errors
/// The device takes no SCSI commands, or has no blocks.
pub(super) fn capacity(fd: RawFd) -> io::Result<(u64, u32)> {
    let mut answer = [0_u8; 32];
    let mut ask = |command, bytes: u32| {
        let data = Data { memory: answer.as_mut_ptr(), len: bytes, from_device: true };
        // SAFETY: the answer has room for its length, and this thread waits for the command.
        let result = unsafe { carry_out(fd, command, data) };
        if result < 0 { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(answer) }
    };
    let number = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let short = ask(Command::read_capacity_10(), 8)?;
    let (last, block_bytes) = match number(&short) {
        // The device is too large for the short command.
        u32::MAX => {
            let long = ask(Command::read_capacity_16(), 32)?;
            (u64::from(number(&long)) << 32 | u64::from(number(&long[4..])), number(&long[8..]))
        }
        last => (u64::from(last), number(&short[4..])),
    };
    if block_bytes == 0 {
        return Err(io::Error::from_raw_os_error(libc::ENOMEDIUM));
    }
    Ok((last + 1, block_bytes))
}

/// Brings the data that a device has taken onto its medium.
///
/// # Errors
/// The device refuses the command.
pub(super) fn synchronize(fd: RawFd) -> io::Result<()> {
    let none = Data { memory: std::ptr::null_mut(), len: 0, from_device: false };
    // SAFETY: the command has no data.
    match unsafe { carry_out(fd, Command::synchronize(), none) } {
        0.. => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno as i32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_specification() {
        let near = Blocks { first: 0x0102_0304, count: 8 };
        let far = Blocks { first: 0x1_0000_0000, count: 0x1_0000 };
        assert_eq!(Command::read(near, true).bytes, [0x28, 8, 1, 2, 3, 4, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Command::read(far, false).bytes, [0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!((Command::read(near, false).len, Command::read(far, false).len), (10, 16));
        let (same, data) = Write::SameWithoutData.command(near, 4096, 512);
        assert_eq!((same.bytes, data), ([0x93, 1, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 8, 0, 0], 0));
        let (verify, data) = Write::Verify { bytchk: 3 }.command(near, 4096, 512);
        assert_eq!((verify.bytes[..2].to_vec(), data), (vec![0x2f, 6], 512));
        assert_eq!(unmap_list(near)[..4], [0, 22, 0, 16]);
        assert_eq!(std::mem::size_of::<Header>(), 88, "struct sg_io_hdr of 64-bit Linux");
    }
}

//! NVMe commands and the kernel's interface for them on `/dev/ng0n1`: ioctl(2), and commands of io_uring.
//!
//! Sources: the NVM Express base and command set specifications, linux/nvme_ioctl.h.

use std::io;
use std::os::fd::RawFd;

use super::blocking::last_errno;

/// `NVME_IOCTL_ID`: the number of the namespace behind a descriptor.
const IOCTL_ID: libc::Ioctl = 0x4e40;
/// `NVME_IOCTL_ADMIN_CMD`.
const IOCTL_ADMIN: libc::Ioctl = 0xc048_4e41;
/// `NVME_IOCTL_IO_CMD`.
const IOCTL_IO: libc::Ioctl = 0xc048_4e43;
/// `NVME_URING_CMD_IO`: a command whose address is that of its data.
pub(super) const URING_IO: u32 = 0xc048_4e80;
/// `NVME_URING_CMD_IO_VEC`: a command whose address is that of iovecs, and whose length is their number.
pub(super) const URING_IO_VEC: u32 = 0xc048_4e81;

/// Opcode of the admin command Identify (base specification 5.17).
const IDENTIFY: u8 = 0x06;
/// Bytes of the data structures of Identify.
const IDENTIFY_BYTES: usize = 4096;

/// Opcodes of the NVM command set.
pub(super) mod opcode {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    pub const VERIFY: u8 = 0x0c;
}

/// Force Unit Access, in command dword 12 of reads and writes.
pub(super) const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Deallocate, in command dword 12 of Write Zeroes.
pub(super) const DEALLOCATE: u32 = 1 << 25;
/// Deallocate, in command dword 11 of Dataset Management.
pub(super) const DATASET_DEALLOCATE: u32 = 1 << 2;

/// `struct nvme_passthru_cmd`; `struct nvme_uring_cmd` is the same, with `result` reserved.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Command {
    pub opcode: u8,
    pub flags: u8,
    pub reserved: u16,
    pub nsid: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    pub metadata: u64,
    pub addr: u64,
    pub metadata_len: u32,
    pub data_len: u32,
    pub cdw10: u32,
    pub cdw11: u32,
    pub cdw12: u32,
    pub cdw13: u32,
    pub cdw14: u32,
    pub cdw15: u32,
    pub timeout_ms: u32,
    pub result: u32,
}

impl Command {
    /// The bytes of the command in an entry of a ring, which has room for 80.
    #[inline]
    pub fn bytes(&self) -> [u8; 80] {
        let mut bytes = [0; 80];
        // SAFETY: the command is 72 bytes of numbers without gaps; bytes has room for 80.
        unsafe {
            std::ptr::copy_nonoverlapping(std::ptr::from_ref(self).cast(), bytes.as_mut_ptr(), size_of::<Command>())
        };
        bytes
    }
}

/// A range of Dataset Management: context attributes, number of blocks, first block.
pub(super) fn range(first: u64, blocks: u32) -> [u8; 16] {
    let mut range = [0; 16];
    range[4..8].copy_from_slice(&blocks.to_le_bytes());
    range[8..].copy_from_slice(&first.to_le_bytes());
    range
}

/// A namespace as Identify describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    pub nsid: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Logarithm of a block's bytes of data.
    pub block_shift: u32,
    /// Bytes of metadata of each block.
    pub metadata_bytes: u16,
}

/// The namespace behind `/dev/ng0n1`.
///
/// # Errors
/// ENOTTY: the file is not a namespace. EIO: the controller refused to identify it.
pub(super) fn namespace(fd: RawFd) -> io::Result<Namespace> {
    let nsid = number(fd)?;
    let mut data = [0_u8; IDENTIFY_BYTES];
    let mut command = Command {
        opcode: IDENTIFY,
        nsid,
        addr: data.as_mut_ptr() as u64,
        data_len: IDENTIFY_BYTES as u32,
        ..Command::default()
    };
    // SAFETY: the data have room for their length, and this thread waits for the command.
    unsafe { carry_out(fd, IOCTL_ADMIN, &mut command) }?;
    Ok(described(nsid, &data))
}

/// Brings the data that a namespace has taken onto its medium.
///
/// # Errors
/// As [`namespace`].
pub(super) fn flush(fd: RawFd) -> io::Result<()> {
    let mut command = Command { opcode: opcode::FLUSH, nsid: number(fd)?, ..Command::default() };
    // SAFETY: the command has no data.
    unsafe { carry_out(fd, IOCTL_IO, &mut command) }
}

/// The number of the namespace behind a descriptor.
fn number(fd: RawFd) -> io::Result<u32> {
    // SAFETY: the request neither reads nor writes memory.
    match unsafe { libc::ioctl(fd, IOCTL_ID) } {
        nsid if nsid < 0 => Err(io::Error::from_raw_os_error(last_errno())),
        nsid => Ok(nsid as u32),
    }
}

/// Carries out one command, and returns when it is done.
///
/// # Safety
/// The data of the command are valid for their length, and nobody else touches them during the call.
unsafe fn carry_out(fd: RawFd, request: libc::Ioctl, command: &mut Command) -> io::Result<()> {
    // SAFETY: the request reads and writes one command; the caller vouches for its data.
    match unsafe { libc::ioctl(fd, request, std::ptr::from_mut(command)) } {
        0 => Ok(()),
        status if status > 0 => Err(io::Error::from_raw_os_error(libc::EIO)),
        _ => Err(io::Error::from_raw_os_error(last_errno())),
    }
}

/// The namespace that the data of Identify describe (NVM command set specification 4.1.5.1).
fn described(nsid: u32, data: &[u8; IDENTIFY_BYTES]) -> Namespace {
    let blocks = u64::from_le_bytes(data[..8].try_into().expect("8 bytes"));
    let (formats, current) = (data[25], data[26]);
    // The number of the format in use: bits 3:0, and 6:5 where there are more than 16 formats.
    let format = if formats < 16 { current & 0xf } else { current & 0xf | (current >> 5 & 3) << 4 };
    let format = &data[128 + 4 * usize::from(format)..][..4];
    Namespace {
        nsid,
        blocks,
        block_shift: u32::from(format[2]),
        metadata_bytes: u16::from_le_bytes([format[0], format[1]]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_those_of_the_specification() {
        assert_eq!(size_of::<Command>(), 72, "struct nvme_uring_cmd");
        let command = Command { opcode: opcode::READ, cdw10: 0x0102_0304, ..Command::default() };
        assert_eq!((command.bytes()[0], &command.bytes()[40..44]), (2, &[4, 3, 2, 1][..]));
        assert_eq!(range(0x0102, 3), [0, 0, 0, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        let mut data = [0; IDENTIFY_BYTES];
        data[0] = 200;
        data[25] = 20; // 21 formats
        data[26] = 0b010_0001; // format 17, by bits 6:5 and 3:0
        data[128 + 4 * 17..][..4].copy_from_slice(&[8, 0, 12, 0]);
        let described = described(3, &data);
        assert_eq!(described, Namespace { nsid: 3, blocks: 200, block_shift: 12, metadata_bytes: 8 });
    }
}

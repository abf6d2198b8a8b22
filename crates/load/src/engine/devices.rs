//! Devices that engines send commands to: their sizes, and the disks that they are.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::blocking::last_errno;
use super::{nvme, scsi};

/// The size of a device, by its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub bytes: u64,
    /// Bytes that every offset and length is a multiple of.
    pub block_bytes: u32,
}

/// The size of a device that the engine of that name sends commands to.
///
/// # Errors
/// The file is another kind of device, or does not answer; its blocks have metadata (EPROTO), which the engine does not
/// transfer.
pub(crate) fn geometry(engine: &str, device: &File) -> io::Result<Geometry> {
    if engine == "sg" {
        let (blocks, block_bytes) = scsi::capacity(device.as_raw_fd())?;
        return Ok(Geometry { bytes: blocks.saturating_mul(u64::from(block_bytes)), block_bytes });
    }
    let namespace = nvme::namespace(device.as_raw_fd())?;
    if namespace.metadata_bytes > 0 {
        return Err(io::Error::from_raw_os_error(libc::EPROTO));
    }
    let block_bytes = 1_u32.checked_shl(namespace.block_shift).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Geometry { bytes: namespace.blocks.saturating_mul(u64::from(block_bytes)), block_bytes })
}

/// Brings the data that a device has taken onto its medium.
///
/// # Errors
/// The device refuses the command.
pub(crate) fn flush(engine: &str, device: &File) -> io::Result<()> {
    if engine == "sg" { scsi::synchronize(device.as_raw_fd()) } else { nvme::flush(device.as_raw_fd()) }
}

/// The disk that a generic device is (`/dev/sda` of `/dev/sg0`, `/dev/nvme0n1` of `/dev/ng0n1`); None if the kernel has
/// no disk for it.
pub(crate) fn disk_of(generic: &Path) -> Option<PathBuf> {
    let number = fs::metadata(generic).ok()?.rdev();
    let place = fs::canonicalize(format!("/sys/dev/char/{}:{}", libc::major(number), libc::minor(number))).ok()?;
    let name = place.file_name()?.to_str()?;
    // A disk of SCSI is named below the device that both are of; a disk of NVMe has the numbers of its namespace.
    let disk = match name.strip_prefix("ng") {
        Some(numbers) => format!("nvme{numbers}"),
        None => fs::read_dir(place.join("device/block")).ok()?.flatten().next()?.file_name().into_string().ok()?,
    };
    Some(Path::new("/dev").join(disk)).filter(|path| path.exists())
}

/// True if a descriptor is that of a block device.
pub(super) fn is_block_device(fd: RawFd) -> bool {
    let mut stat = std::mem::MaybeUninit::<libc::stat64>::zeroed();
    // SAFETY: the kernel writes one stat64, which stat has room for; a bad descriptor is an error.
    let status = unsafe { libc::fstat64(fd, stat.as_mut_ptr()) };
    // SAFETY: zeroed memory is a valid stat64, whether or not the kernel filled it in.
    let stat = unsafe { stat.assume_init() };
    status == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFBLK
}

/// Has calls on a descriptor fail with EAGAIN where they would wait.
///
/// # Errors
/// As fcntl(2).
pub(super) fn never_wait(fd: RawFd) -> io::Result<()> {
    // SAFETY: the request takes no memory.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: the request takes a number.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::from_raw_os_error(last_errno()));
    }
    Ok(())
}

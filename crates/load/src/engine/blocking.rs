//! Ops carried out by a system call that returns when they are done. Every engine falls back on them where the
//! kernel has no asynchronous form.

use std::io;
use std::os::fd::RawFd;

use job::Job;
use job::workload::OpKind;
use measure::Direction;
use sys::interrupted::repeated_c;

/// `_IO(0x12, 119)` of linux/fs.h: discard {start, length} of a block device.
const BLKDISCARD: libc::Ioctl = libc::BLKSSZGET - 0x68 + 0x77;

/// The flags that a job's options give its syncs (`sync_file_range=`) and its transfers (`hipri`, `nowait`,
/// `uncached`, `atomic`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    /// The flags of sync_file_range(2).
    pub sync_range: u32,
    /// The flags RWF_* of preadv2(2).
    rwf: i32,
    /// The flags that writes have beyond those.
    of_writes: i32,
}

/// RWF_ATOMIC of pwritev2(2): the write is stored as a whole or not at all (Linux 6.11).
const ATOMIC: i32 = 0x40;

impl Flags {
    pub(super) fn of(job: &Job) -> Flags {
        let mut rwf = 0;
        if job.ring.hipri {
            rwf |= libc::RWF_HIPRI;
        }
        if job.ring.nowait {
            rwf |= libc::RWF_NOWAIT;
        }
        if option_is_set(job, "uncached") {
            rwf |= libc::RWF_DONTCACHE;
        }
        let of_writes = if option_is_set(job, "atomic") { ATOMIC } else { 0 };
        Flags { sync_range: job.syncs.range.map_or(0, |(flags, _)| flags), rwf, of_writes }
    }
}

impl Flags {
    /// The flags RWF_* of a read or a write.
    #[inline]
    pub(super) fn of_transfer(self, write: bool) -> i32 {
        if write { self.rwf | self.of_writes } else { self.rwf }
    }

    /// The flags without RWF_HIPRI: for engines that do not poll by request. A ring of io_uring polls as a whole.
    pub(super) fn without_hipri(mut self) -> Flags {
        self.rwf &= !libc::RWF_HIPRI;
        self
    }
}

/// True if the job gives an engine's own option `name` a value other than 0.
pub(super) fn option_is_set(job: &Job, name: &str) -> bool {
    job.ring.option(name).is_some_and(|value| value != "0")
}

/// The result of a sync or trim: 0 (bytes for trims) or a negative errno.
pub(super) fn carry_out(fd: RawFd, kind: OpKind, offset: u64, len: u32, flags: Flags) -> i64 {
    match kind {
        // SAFETY: fsync takes no memory; a bad descriptor is an error number.
        OpKind::Sync => result_of(|| unsafe { libc::fsync(fd) }, 0),
        // SAFETY: fdatasync takes no memory; a bad descriptor is an error number.
        OpKind::DataSync => result_of(|| unsafe { libc::fdatasync(fd) }, 0),
        OpKind::SyncRange => {
            // SAFETY: sync_file_range takes no memory; a bad descriptor is an error number.
            result_of(|| unsafe { libc::sync_file_range(fd, offset as i64, i64::from(len), flags.sync_range) }, 0)
        }
        OpKind::Io(Direction::Trim) => trim(fd, offset, len),
        OpKind::Io(_) => -i64::from(libc::EINVAL),
    }
}

/// Discards a range of a block device, or punches a hole into a file. Returns bytes or a negative errno.
fn trim(fd: RawFd, offset: u64, len: u32) -> i64 {
    let range = [offset, u64::from(len)];
    // SAFETY: BLKDISCARD reads two 64-bit numbers; range holds two, and lives until the call returns.
    let discarded = result_of(|| unsafe { libc::ioctl(fd, BLKDISCARD, range.as_ptr()) }, len);
    if discarded != -i64::from(libc::ENOTTY) {
        return discarded;
    }
    // SAFETY: fallocate takes no memory; a bad descriptor is an error number.
    result_of(|| unsafe { libc::fallocate64(fd, PUNCH, offset as i64, i64::from(len)) }, len)
}

/// The mode of a fallocate(2) that frees the blocks of a range and leaves the file's size.
pub(super) const PUNCH: libc::c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// `success` if the call returned 0, the negative errno otherwise.
fn result_of(call: impl FnMut() -> libc::c_int, success: u32) -> i64 {
    match repeated_c(call) {
        0 => i64::from(success),
        errno => errno,
    }
}

/// The errno of this thread's last system call; EIO if there is none.
pub(super) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

//! ioctl: requests that change a file's content without passing through the program: clones of other files, holes,
//! exchanges of two files' blocks. Every file system may have its own, so each request counts as a change, unless it is
//! known to leave the content alone.

use core::ffi::{c_int, c_ulong};

use super::{room, size};
use crate::abi::readable;
use crate::abi::real;
use crate::aio::async_io;

/// FICLONE of ioctl_ficlonerange(2): the argument is the source.
const FICLONE: c_ulong = 0x4004_9409;
/// FICLONERANGE of ioctl_ficlonerange(2): the argument leads to a `struct file_clone_range`, which begins with the
/// source.
const FICLONERANGE: c_ulong = 0x4020_940d;

/// ioctl(2).
///
/// # Safety
/// As ioctl(2). (The variadic argument is passed like any other on x86-64 and AArch64.)
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // The result may be a descriptor (ioctl_tty(2), ioctl_nsfs(2), ioctl_kvm).
    // SAFETY: the program's contract.
    let real = || room::needing_number(|| unsafe { real::ioctl(fd, request, argument) });
    // The kernel reads 32 bits of the request; libcs with a request of type int pass any upper ones.
    let request = request & 0xffff_ffff;
    if leaves_content(request) {
        return real();
    }
    // The argument may name other files, in a form that the library does not know.
    async_io::settle_writes();
    match source(request, argument) {
        Some(source) => size::between(source, fd, real),
        None => size::alone(fd, real),
    }
}

/// The descriptor from which a request takes the content.
fn source(request: c_ulong, argument: usize) -> Option<c_int> {
    match request {
        FICLONE => c_int::try_from(argument).ok(),
        FICLONERANGE => {
            let source = readable::read::<i64>(core::ptr::with_exposed_provenance(argument))?;
            c_int::try_from(source).ok()
        }
        _ => None,
    }
}

/// True for the requests of terminals and sockets, and for those of ioctl(2) by which programs ask about a file.
fn leaves_content(request: c_ulong) -> bool {
    const TERMINALS: c_ulong = 0x54; // asm-generic/ioctls.h: TCGETS, FIONREAD, FIONBIO, FIOCLEX and their kin
    const SOCKETS: c_ulong = 0x89; // linux/sockios.h
    const FIBMAP: c_ulong = 1; // linux/fs.h
    const FIGETBSZ: c_ulong = 2;
    const FS_IOC_GETFLAGS: c_ulong = 0x8008_6601;
    const FS_IOC_GETVERSION: c_ulong = 0x8008_7601;
    const BLKROGET: c_ulong = 0x125e;
    const BLKGETSIZE: c_ulong = 0x1260;
    const BLKSSZGET: c_ulong = 0x1268;
    const BLKPBSZGET: c_ulong = 0x127b;
    const BLKGETSIZE64: c_ulong = 0x8008_1272;
    matches!((request >> 8) & 0xff, TERMINALS | SOCKETS) && request >> 16 == 0
        || matches!(
            request,
            FIBMAP
                | FIGETBSZ
                | FS_IOC_GETFLAGS
                | FS_IOC_GETVERSION
                | BLKROGET
                | BLKGETSIZE
                | BLKSSZGET
                | BLKPBSZGET
                | BLKGETSIZE64
        )
}

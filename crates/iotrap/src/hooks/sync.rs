//! fsync and its kin: they sync every lane that was written, and the opened one. An error of the opened lane is the
//! program's, which it would have without the library; else the error of the first lane that has failed.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::errno;
use crate::abi::raw;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::tracking;
use crate::policy::trace;
use crate::state::group::GroupRef;
use crate::state::table::{self, Entry};

/// Syncs the lanes, then the opened one by the real function.
fn every_lane(fd: c_int, data_only: bool, real: impl FnOnce() -> c_int) -> c_int {
    crate::aio::async_io::settle(fd);
    if table::get(fd) == Entry::Nothing {
        return real();
    }
    real::cancellation_point();
    let _undisturbed = Undisturbed::begin();
    let Some(group) = GroupRef::proven(fd) else { return real() };
    trace::synced(fd, data_only);
    let lanes = {
        let _errno = errno::kept();
        tracking::sync_lanes(&group, fd, data_only)
    };
    let result = real(); // also after an error: it makes durable what it can
    {
        let _errno = errno::kept();
        group.node().revalidate(fd);
        // Buffered data of the opened lane have reached the server now.
        if group.writes() {
            group.drop_replaced(group.own(), 0, 0);
        }
    }
    worst(result, lanes)
}

/// The result of the opened lane if it has failed, else that of the other lanes.
fn worst(opened: c_int, lanes: raw::Result<()>) -> c_int {
    match lanes {
        Err(error) if opened == 0 => {
            errno::set(error);
            -1
        }
        _ => opened,
    }
}

/// fsync(2).
///
/// # Safety
/// As fsync(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fsync(fd: c_int) -> c_int {
    // SAFETY: the program's contract.
    every_lane(fd, false, || unsafe { real::fsync(fd) })
}

/// fdatasync(2).
///
/// # Safety
/// As fdatasync(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: the program's contract.
    every_lane(fd, true, || unsafe { real::fdatasync(fd) })
}

/// syncfs(2), as far as this file goes: the other lanes are other file systems to the kernel.
///
/// # Safety
/// As syncfs(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syncfs(fd: c_int) -> c_int {
    crate::aio::async_io::settle_writes();
    // SAFETY: the program's contract.
    every_lane(fd, false, || unsafe { real::syncfs(fd) })
}

/// msync(2): the memory may be mapped from any file, whose submitted writes count as data of the file.
///
/// # Safety
/// As msync(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn msync(address: *mut c_void, length: usize, flags: c_int) -> c_int {
    crate::aio::async_io::settle_writes();
    // SAFETY: the program's contract.
    unsafe { real::msync(address, length, flags) }
}

/// sync(2): the data of all files, also those that were submitted and are not in the page cache yet. (Lanes' files are
/// the kernel's to sync, as all others.)
///
/// # Safety
/// As sync(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sync() {
    crate::aio::async_io::settle_writes();
    // SAFETY: a function without arguments.
    unsafe { real::sync() };
}

/// sync_file_range(2). Lanes are written past their caches: there the same range is asked for.
///
/// # Safety
/// As sync_file_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sync_file_range(fd: c_int, offset: i64, count: i64, flags: c_uint) -> c_int {
    crate::aio::async_io::settle(fd);
    let _undisturbed = (table::get(fd) != Entry::Nothing).then(Undisturbed::begin);
    let Some(group) = GroupRef::proven(fd) else {
        // SAFETY: the program's contract.
        return unsafe { real::sync_file_range(fd, offset, count, flags) };
    };
    let mut lanes = Ok(());
    for (_, file) in group.proven_lanes() {
        // SAFETY: the system call takes integers only, so it accesses no memory of this process.
        let result = unsafe {
            let (offset, count) = (offset as usize, count as usize);
            raw::call(libc::SYS_sync_file_range, raw::arg(file), offset, count, flags as usize, 0, 0)
        };
        lanes = lanes.and(raw::check(result).map(drop));
    }
    // SAFETY: the program's contract.
    let result = unsafe { real::sync_file_range(fd, offset, count, flags) };
    worst(result, lanes)
}

//! Calls that change a file's size, or its contents without passing through the program. The opened lane carries them
//! out, with nothing in flight on the other lanes, which then look again.

use core::ffi::{c_char, c_int, c_uint};

use crate::abi::errno;
use crate::abi::raw;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::state::group::GroupRef;
use crate::state::lane;
use crate::state::node::{self, NodeRef};
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

/// Drains the lanes, makes the change on the opened lane by `change`, and makes all lanes look again.
pub fn alone<T>(fd: c_int, change: impl FnOnce() -> T) -> T {
    crate::aio::async_io::settle(fd);
    if table::get(fd) == Entry::Nothing {
        return change();
    }
    let _undisturbed = Undisturbed::begin();
    let Some(group) = GroupRef::proven(fd) else { return change() };
    let changing = {
        let _errno = errno::kept();
        let changing = group.node_ref().again().map(NodeRef::changes);
        group.node().revalidate(fd);
        changing
    };
    let result = change();
    let _errno = errno::kept();
    if !group.is_direct() && group.writes() {
        group.node().soil();
    }
    group.node().measure(fd);
    for (_, file) in group.proven_lanes() {
        raw::revalidate(file);
    }
    drop(changing);
    result
}

macro_rules! changes {
    ($($name:ident($fd:ident $(, $argument:ident: $type:ty)*);)*) => {
        $(
            /// The function of that name of ftruncate(2), fallocate(2) or posix_fallocate(3).
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($fd: c_int $(, $argument: $type)*) -> c_int {
                // SAFETY: the program's contract.
                alone($fd, || unsafe { real::$name($fd $(, $argument)*) })
            }
        )*
    };
}

changes! {
    ftruncate(fd, length: i64);
    ftruncate64(fd, length: i64);
    fallocate(fd, mode: c_int, offset: i64, length: i64);
    fallocate64(fd, mode: c_int, offset: i64, length: i64);
    posix_fallocate(fd, offset: i64, length: i64);
    posix_fallocate64(fd, offset: i64, length: i64);
}

macro_rules! truncates {
    ($($name:ident)*) => {
        $(
            /// truncate(2).
            ///
            /// # Safety
            /// As truncate(2).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(path: *const c_char, length: i64) -> c_int {
                // SAFETY: the program's contract.
                unsafe { by_path(path, || real::$name(path, length)) }
            }
        )*
    };
}

truncates! { truncate truncate64 }

/// # Safety
/// The path is the program's.
unsafe fn by_path(path: *const c_char, change: impl FnOnce() -> c_int) -> c_int {
    let _undisturbed = lane::active().then(Undisturbed::begin);
    // SAFETY: the program's contract.
    unsafe { crate::aio::async_io::settle_path(libc::AT_FDCWD, path) };
    // SAFETY: the program's contract.
    let stat = || unsafe { raw::stat_at(libc::AT_FDCWD, path) }.ok();
    let errno_before = errno::get();
    let known = if lane::active() { stat().and_then(|stat| node::find(stat.st_dev, stat.st_ino)) } else { None };
    errno::set(errno_before);
    let Some(known) = known else { return change() };
    let changing = known.changes();
    let result = change();
    let _errno = errno::kept();
    if let Some(stat) = stat() {
        changing.node().cut(stat.st_size as u64);
    }
    result
}

/// Carries out a transfer from one descriptor to another: it has to read the data that lanes have written, and lanes
/// have to see the data that it writes.
///
/// The other end may be a pipe or a socket, for which the transfer waits, and the program may leave it. For the time of
/// the transfer, the written file counts as one that the program writes through the page cache, whatever the flags of
/// the descriptor: if the program leaves the call, the file stays so.
pub fn between<T>(from: c_int, to: c_int, transfer: impl FnOnce() -> T) -> T {
    crate::aio::async_io::settle(from);
    crate::aio::async_io::settle(to);
    if table::get(from) == Entry::Nothing && table::get(to) == Entry::Nothing {
        return transfer();
    }
    Reason::Copied.count();
    let written = {
        let _undisturbed = Undisturbed::begin();
        let _errno = errno::kept();
        if let Some(group) = GroupRef::proven(from) {
            group.node().drain();
            group.node().revalidate(from);
        }
        GroupRef::proven(to).map(|group| {
            group.node().descriptor(false, true, 1);
            group.node().drain();
            group.node().revalidate(to);
            group.name()
        })
    };
    let result = transfer();
    if let Some(name) = written {
        let _undisturbed = Undisturbed::begin();
        let _errno = errno::kept();
        // If another thread has closed the file meanwhile, the file stays counted as one that is written.
        if let Some(group) = GroupRef::acquire(name) {
            group.node().measure(to);
            for (_, file) in group.proven_lanes() {
                raw::revalidate(file);
            }
            group.node().descriptor(false, true, -1);
        }
    }
    result
}

macro_rules! sendfiles {
    ($($name:ident)*) => {
        $(
            /// sendfile(2).
            ///
            /// # Safety
            /// As sendfile(2).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(to: c_int, from: c_int, offset: *mut i64, count: usize) -> isize {
                // SAFETY: the program's contract.
                between(from, to, || unsafe { real::$name(to, from, offset, count) })
            }
        )*
    };
}

sendfiles! { sendfile sendfile64 }

/// copy_file_range(2).
///
/// # Safety
/// As copy_file_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn copy_file_range(
    from: c_int,
    from_at: *mut i64,
    to: c_int,
    to_at: *mut i64,
    count: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: the program's contract.
    between(from, to, || unsafe { real::copy_file_range(from, from_at, to, to_at, count, flags) })
}

/// splice(2).
///
/// # Safety
/// As splice(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_at: *mut i64,
    to: c_int,
    to_at: *mut i64,
    count: usize,
    flags: c_uint,
) -> isize {
    // SAFETY: the program's contract.
    between(from, to, || unsafe { real::splice(from, from_at, to, to_at, count, flags) })
}

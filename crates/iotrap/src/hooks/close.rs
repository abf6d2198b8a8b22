//! All calls that close: the number is forgotten BEFORE it is free for others, and an error of a lane is an error of
//! the file.

use core::ffi::{c_int, c_uint};

use crate::abi::errno;
use crate::abi::raw;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::aio::{async_io, posix, raw_ring};
use crate::open::tracking;
use crate::policy::trace;
use crate::state::group::{self, GroupRef};
use crate::state::lane;
use crate::state::node;
use crate::state::process;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

/// close(2).
///
/// # Safety
/// As close(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    async_io::settle(fd);
    posix::settle(fd, fd);
    raw_ring::closes(fd);
    // SAFETY: the contract of close(2), which the program keeps.
    let real = || unsafe { real::close(fd) };
    match table::get(fd) {
        Entry::Nothing => real(),
        _ if !process::is_own() => real(),
        Entry::Lane(_) if group::private_entry_is_stale(fd) => real(),
        // The program was never given this number: it has found the number in /proc/self/fd, and wants it to be gone.
        // The library keeps it.
        Entry::Lane(_) => 0,
        Entry::File(_) | Entry::Quiet(_) => {
            real::cancellation_point();
            let _undisturbed = Undisturbed::begin();
            trace::closed(fd);
            let known = {
                let _errno = errno::kept();
                GroupRef::proven(fd)
            };
            let Some(group) = known else { return real() };
            // The opened lane has to show to others the data that the lanes have written.
            group.node().revalidate(fd);
            drop(group);
            let entry = table::take(fd);
            merge(real(), tracking::closed(entry))
        }
    }
}

/// The program's own error comes first, then that of a lane.
fn merge(result: c_int, lanes: raw::Result<()>) -> c_int {
    match lanes {
        Err(error) if result == 0 => {
            errno::set(error);
            -1
        }
        _ => result,
    }
}

/// A guard for the close of a stream of a file on a pool. Other streams may wait, for a pipe for example.
///
/// # Safety
/// The stream is the program's, or null.
pub unsafe fn undisturbed(file: *mut libc::FILE) -> Option<Undisturbed> {
    if file.is_null() || table::used() == 0 {
        return None;
    }
    let _errno = errno::kept();
    // SAFETY: the program's contract: an open stream.
    let fd = unsafe { libc::fileno(file) };
    (table::get(fd) != Entry::Nothing).then(Undisturbed::begin)
}

/// Prepares the close of a stream's descriptor: removes its entry, which the caller passes to `tracking::closed`.
///
/// # Safety
/// The stream is the program's, or null.
pub unsafe fn before_stream(file: *mut libc::FILE) -> Entry {
    if file.is_null() || !(lane::active() || async_io::active()) {
        return Entry::Nothing;
    }
    let _errno = errno::kept();
    // SAFETY: the program's contract: an open stream.
    let fd = unsafe { libc::fileno(file) };
    async_io::settle(fd);
    posix::settle(fd, fd);
    if table::get(fd) == Entry::Nothing || !process::is_own() {
        return Entry::Nothing;
    }
    drop(GroupRef::proven(fd)); // a number that means another file is forgotten
    match table::get(fd) {
        Entry::File(_) | Entry::Quiet(_) => table::take(fd),
        Entry::Lane(_) | Entry::Nothing => Entry::Nothing,
    }
}

/// fclose(3).
///
/// # Safety
/// As fclose(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(file: *mut libc::FILE) -> c_int {
    // SAFETY: the program's contract.
    let _undisturbed = unsafe { undisturbed(file) };
    // SAFETY: the program's contract.
    let entry = unsafe { before_stream(file) };
    // SAFETY: the program's contract.
    let result = unsafe { real::fclose(file) };
    merge(result, tracking::closed(entry))
}

/// close_range(2).
///
/// # Safety
/// As close_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let result = range(first, last, flags as c_uint);
    errno::libc_result(result) as c_int
}

/// Closes all lanes, because a thread is about to leave the process's table of descriptors: what it closes and opens
/// then says nothing about the others' numbers, and the other way round.
fn divides() {
    if !lane::active() || !process::is_own() {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    node::end_all(Reason::Divided);
    group::make_room(c_int::MAX);
}

/// unshare(2).
///
/// # Safety
/// As unshare(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_FILES != 0 {
        divides();
    }
    // SAFETY: the program's contract.
    unsafe { real::unshare(flags) }
}

/// closefrom(3).
///
/// # Safety
/// As closefrom(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let _ = range(first.max(0) as c_uint, c_uint::MAX, 0);
}

fn bare_range(first: c_uint, last: c_uint, flags: c_uint) -> isize {
    // SAFETY: integers only; what is closed is what the program asked for.
    unsafe { raw::pass(libc::SYS_close_range, first as usize, last as usize, flags as usize, 0, 0, 0) }
}

/// close_range(2) around the lanes' files, which the program does not know.
pub fn range(first: c_uint, last: c_uint, flags: c_uint) -> isize {
    /// CLOSE_RANGE_UNSHARE and CLOSE_RANGE_CLOEXEC (linux/close_range.h).
    const UNSHARE: c_uint = 1 << 1;
    const CLOEXEC: c_uint = 1 << 2;
    if flags & CLOEXEC == 0 {
        let number = |value: c_uint| c_int::try_from(value).unwrap_or(c_int::MAX);
        async_io::settle_range(number(first), number(last));
        posix::settle(number(first), number(last));
        raw_ring::closes_all(number(first), number(last));
    }
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 || table::used() == 0 || !process::is_own() {
        return bare_range(first, last, flags);
    }
    if flags & UNSHARE != 0 {
        divides();
        // The caller has a table of descriptors of its own from here on: closing in it closes for nobody else.
        // SAFETY: the system call takes integers only, so it accesses no memory of this process.
        let alone = unsafe { raw::call(libc::SYS_unshare, libc::CLONE_FILES as usize, 0, 0, 0, 0, 0) };
        return if alone < 0 { alone } else { range(first, last, flags & !UNSHARE) };
    }
    let _undisturbed = Undisturbed::begin();
    let limit = c_int::try_from(last).unwrap_or(c_int::MAX);
    let from = c_int::try_from(first).unwrap_or(c_int::MAX);
    let (mut from, mut result) = (from, 0);
    for (fd, entry) in table::entries(from, limit) {
        if let Entry::Lane(_) = entry
            && !group::private_entry_is_stale(fd)
        {
            if fd > from {
                result = first_error(result, bare_range(from as c_uint, fd as c_uint - 1, flags));
            }
            from = fd + 1;
        } else if flags & CLOEXEC == 0 {
            drop(GroupRef::proven(fd)); // a number that means another file is forgotten
            let entry = table::take(fd);
            // The descriptor is closed here and now, so that nobody gets the number while the entry is removed and the
            // lanes still open.
            let _ = raw::close(fd);
            let _ = tracking::closed(entry);
        }
    }
    if from as c_uint <= last {
        result = first_error(result, bare_range(from as c_uint, last, flags));
    }
    result
}

fn first_error(before: isize, now: isize) -> isize {
    if before < 0 { before } else { now }
}

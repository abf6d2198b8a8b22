//! dup, dup2, dup3, fcntl: descriptors of one open file share one group.

use core::ffi::{c_int, c_short};

use super::room;
use crate::abi::errno;
use crate::abi::raw;
use crate::abi::readable;
use crate::abi::real;
use crate::abi::sealed;
use crate::abi::undisturbed::Undisturbed;
use crate::open::tracking;
use crate::policy::trace;
use crate::state::group::{self, GroupRef};
use crate::state::lane;
use crate::state::node::Lock;
use crate::state::process;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

/// Enters `new` as one more descriptor of the open file of `old`.
fn share(old: c_int, new: c_int) -> c_int {
    if new < 0 || (table::get(old) == Entry::Nothing && table::get(new) == Entry::Nothing) {
        return new;
    }
    if process::is_own() {
        let _undisturbed = Undisturbed::begin();
        let _errno = errno::kept();
        drop(GroupRef::held_by(table::take(new)));
        if let Some(group) = GroupRef::proven(old) {
            tracking::enter(new, group);
            trace::duplicated(old, new);
        }
    }
    new
}

/// dup(2).
///
/// # Safety
/// As dup(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    if let Entry::Lane(_) = table::get(fd)
        && process::is_own()
        && !group::private_entry_is_stale(fd)
    {
        errno::set(libc::EBADF);
        return -1;
    }
    // SAFETY: the program's contract.
    share(fd, room::needing_number(|| unsafe { real::dup(fd) }))
}

/// dup2(2).
///
/// # Safety
/// As dup2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the program's contract.
    onto(from, to, || unsafe { real::dup2(from, to) })
}

/// dup3(2).
///
/// # Safety
/// As dup3(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's contract.
    onto(from, to, || unsafe { real::dup3(from, to, flags) })
}

/// Closes `to` and makes it a descriptor of the open file of `from`.
fn onto(from: c_int, to: c_int, real: impl Fn() -> c_int) -> c_int {
    if from != to {
        crate::aio::async_io::settle(to);
        crate::aio::posix::settle(to, to);
        crate::aio::raw_ring::closes(to);
    }
    let quiet = table::get(from) == Entry::Nothing && table::get(to) == Entry::Nothing;
    if quiet || from == to || !process::is_own() {
        return real();
    }
    let _undisturbed = Undisturbed::begin();
    if crate::aio::async_io::owns(to) {
        // The number belongs to the library's engine for libaio: a file there would not be the program's. (dup2(2)
        // knows EBUSY.)
        errno::set(libc::EBUSY);
        return -1;
    }
    if let Entry::Lane(name) = table::get(to)
        && !group::private_entry_is_stale(to)
    {
        // The program takes a number that it believes to be free. The lane is given up, once nobody uses it.
        if let Some(group) = GroupRef::acquire(name) {
            let _errno = errno::kept();
            group.node().end(Reason::Limit);
            group.node().drain();
            group.lose(to);
        }
    }
    let before = table::take(to);
    let result = real();
    if result < 0 {
        // Nothing was closed: the number still means the file that it meant.
        if before != Entry::Nothing && !table::put_back(to, before) {
            drop(GroupRef::held_by(before));
        }
        return result;
    }
    {
        let _errno = errno::kept();
        let _ = tracking::closed(before); // dup2(2): errors of closing are not told
    }
    share(from, result)
}

/// fcntl(2).
///
/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's contract.
    control(fd, command, argument, || unsafe { real::fcntl(fd, command, argument) })
}

/// fcntl(2) with 64-bit offsets.
///
/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's contract.
    control(fd, command, argument, || unsafe { real::fcntl64(fd, command, argument) })
}

fn control(fd: c_int, command: c_int, argument: usize, real: impl Fn() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => share(fd, room::needing_number(real)),
        libc::F_SETFL => set_flags(fd, argument as c_int, real),
        libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW
            if (lane::active() || crate::aio::async_io::active()) && !sealed::is_sealed() =>
        {
            // The type comes first in struct flock. Where it cannot be read, the kernel takes no lock.
            let kind = readable::read::<c_short>(core::ptr::with_exposed_provenance(argument)).map(c_int::from);
            match kind {
                Some(libc::F_UNLCK) => super::lock::before_unlock(fd),
                Some(_) if matches!(command, libc::F_OFD_SETLK | libc::F_OFD_SETLKW) => {
                    super::lock::before(fd, Lock::OfOpenFile);
                }
                Some(_) => super::lock::before(fd, Lock::OfProcess),
                None => {}
            }
            real()
        }
        // A lease is a promise about the other opens of the file, and the lanes' files are such opens.
        libc::F_SETLEASE => {
            super::lock::before(fd, Lock::OfOpenFile);
            real()
        }
        // A seal forbids writes; those that were submitted before are done.
        libc::F_ADD_SEALS => {
            crate::aio::async_io::settle(fd);
            real()
        }
        _ => real(),
    }
}

fn set_flags(fd: c_int, flags: c_int, real: impl Fn() -> c_int) -> c_int {
    // Requests in flight are carried out by the flags of that moment: an append would put a write elsewhere.
    crate::aio::async_io::settle(fd);
    if table::get(fd) == Entry::Nothing {
        return real();
    }
    let _undisturbed = Undisturbed::begin();
    let Some(group) = GroupRef::proven(fd) else { return real() };
    let settable = libc::O_APPEND | libc::O_ASYNC | libc::O_DIRECT | group::FOLLOWED;
    let errno_before = errno::get();
    let before = raw::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
    let changed = (before ^ flags) & settable;
    if changed & (libc::O_APPEND | libc::O_DIRECT | libc::O_ASYNC) != 0 {
        // The spreading ends before the flags change: no request that is decided by the old flags may come after the
        // change.
        group.node().end(Reason::Flags);
        group.node().drain();
        if changed & libc::O_DIRECT != 0 && group.writes() {
            group.node().soil();
        }
    }
    errno::set(errno_before);
    let result = real();
    if result >= 0 {
        group.follow(flags); // also the lanes that are opened later
    }
    if result >= 0 && group.ended().is_none() {
        for (_, file) in group.proven_lanes() {
            if raw::fcntl(file, libc::F_SETFL, (flags | tracking::LANES_FLAG) as usize).is_err() {
                group.end(Reason::Flags);
            }
        }
    }
    result
}

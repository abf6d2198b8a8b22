//! Filters of system calls (seccomp(2)) that the program installs: by prctl(2), by syscall(2), by libseccomp, which
//! calls one of these, and by inline calls under `--raw`.
//!
//! A filter may kill the process for a call that the program itself never makes. So before the kernel gets the filter,
//! the library gives everything up in this process, for good: it waits for the requests on other lanes, syncs these
//! lanes, closes them, ends its threads, and seals itself ([`crate::abi::sealed`]). Later it makes no call of its own.
//! Children have the seal with their parent's memory; a program that they execute looks for filters when it begins
//! ([`crate::config`]).

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::caught;
use crate::abi::errno;
use crate::abi::own_stack;
use crate::abi::raw;
use crate::abi::readable::is_readable;
use crate::abi::said;
use crate::abi::sealed;
use crate::abi::undisturbed::{self, Undisturbed};
use crate::aio::async_io;
use crate::open::{opener, tracking};
use crate::state::group::{self, GroupRef};
use crate::state::lane;
use crate::state::node;
use crate::state::process::{self, LimitHeld};
use crate::state::reason::Reason;
use crate::state::stats;
use crate::state::table::{self, Entry};

/// SECCOMP_SET_MODE_STRICT and SECCOMP_SET_MODE_FILTER (linux/seccomp.h).
const SET_STRICT: c_uint = 0;
const SET_FILTER: c_uint = 1;
/// `struct sock_fprog`: the number of instructions, and their address.
const PROGRAM_BYTES: usize = 16;

/// The longest wait for threads that are inside the library, or on an errand to a lane that does not answer.
const PATIENCE_US: u64 = 10_000_000;

/// Prepares a call of prctl(2) with PR_SET_SECCOMP.
pub fn before_prctl(mode: usize, program: usize) {
    match mode as c_uint {
        libc::SECCOMP_MODE_STRICT => gives_up(),
        libc::SECCOMP_MODE_FILTER if is_readable(program, PROGRAM_BYTES) => gives_up(),
        _ => {} // the kernel refuses it
    }
}

/// Prepares a call of seccomp(2). libseccomp asks with null pointers which flags the kernel knows: such calls install
/// nothing.
pub fn before_seccomp(operation: c_uint, flags: usize, argument: *const c_void) {
    let place = argument as usize;
    match operation {
        SET_STRICT if flags == 0 && place == 0 => gives_up(),
        SET_FILTER if is_readable(place, PROGRAM_BYTES) => gives_up(),
        _ => {}
    }
}

/// seccomp(2), which libc has no function for.
///
/// # Safety
/// As seccomp(2).
pub unsafe fn seccomp(operation: c_uint, flags: usize, argument: *const c_void) -> c_int {
    before_seccomp(operation, flags, argument);
    // SAFETY: the program's contract.
    let result = unsafe { raw::pass(libc::SYS_seccomp, operation as usize, flags, argument as usize, 0, 0, 0) };
    errno::libc_result(result) as c_int
}

/// The thread that gives everything up; 0 before there is one.
static BY: AtomicU32 = AtomicU32::new(0);

/// Gives up, before the kernel gets a filter. A child of vfork(2) has a process of its own and its parent's memory: its
/// filter is none of the parent's.
fn gives_up() {
    if sealed::is_sealed() || !process::is_own() {
        return;
    }
    let _errno = errno::kept();
    let own = raw::thread();
    match BY.compare_exchange(0, own, AcqRel, Acquire) {
        Ok(_) => {}
        Err(by) if by == own => return, // a handler has interrupted this thread
        Err(_) => {
            while !sealed::is_sealed() {
                raw::sleep_us(100);
            }
            return;
        }
    }
    {
        let _undisturbed = Undisturbed::begin();
        async_io::retires();
        if lane::active() {
            stats::begin();
            Reason::Filtered.count();
            own_stack::run(leave_lanes);
        }
    }
    // Calls that began before, and errands that they have sent. The calls that begin now are the program's alone.
    undisturbed::wait_for_all(PATIENCE_US);
    opener::wait_for_all(PATIENCE_US);
    {
        let _undisturbed = Undisturbed::begin();
        async_io::retired(PATIENCE_US);
        async_io::tell();
        own_stack::run(stats::end);
        caught::end();
    }
    // No other thread has raised the limit of descriptor numbers meanwhile.
    let held = LimitHeld::begin();
    sealed::seal();
    drop(held);
}

/// Waits for the requests on other lanes, syncs and closes these lanes, and forgets all files.
fn leave_lanes() {
    node::end_all(Reason::Filtered);
    sync_all();
    lane::leave();
    group::make_room(c_int::MAX);
    for (fd, entry) in table::entries(0, c_int::MAX) {
        if !matches!(entry, Entry::File(_) | Entry::Quiet(_)) {
            continue;
        }
        let Some(group) = GroupRef::held_by(table::take(fd)) else { continue };
        if group.node().is_locked() {
            core::mem::forget(group); // closing any descriptor of the file would drop the program's locks
        } else {
            let _ = group.release(); // the lanes were synced
        }
    }
}

/// Syncs the lanes of every open file, and has the opened lanes show the data that the others have written: later
/// nobody can.
fn sync_all() {
    for (fd, entry) in table::entries(0, c_int::MAX) {
        if !matches!(entry, Entry::File(_) | Entry::Quiet(_)) {
            continue;
        }
        let Some(group) = GroupRef::proven(fd) else { continue };
        if tracking::sync_lanes(&group, fd, false).is_err() {
            said::line(b"iotrap: a lane could not be synced before the program's filter of system calls: its last writes may be lost\n");
        }
        group.node().revalidate(fd);
        if group.writes() {
            group.drop_replaced(group.own(), 0, 0);
        }
    }
}

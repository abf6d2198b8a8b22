//! flock, lockf (and fcntl's locks): a locked file stays on the lane that holds the lock.

use core::ffi::c_int;

use crate::abi::errno;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::{others, tracking};
use crate::state::group::{self, GroupRef};
use crate::state::lane;
use crate::state::node::{Lock, NodeRef};
use crate::state::reason::Reason;

/// Waits for the requests that were submitted under a lock that the program is about to give back, or to weaken: the
/// next holder sees what they have written.
pub fn before_unlock(fd: c_int) {
    crate::aio::async_io::settle(fd);
}

/// Ends the spreading of a file that is about to be locked through `fd`, which may be any descriptor of the file.
///
/// Before the first lock, the files of lanes and the private duplicates are closed: the kernel refuses a lease if
/// others have the file open, and afterwards a close could drop the lock.
pub fn before(fd: c_int, lock: Lock) {
    // A lock may also replace a stronger one.
    before_unlock(fd);
    if !lane::active() {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    let end = |node: NodeRef| {
        node.get().end(Reason::Locked);
        // The requests on other lanes end before the lock, and the holder of the lock sees the data that they have
        // written.
        node.get().drain();
        node.get().revalidate(fd);
        group::end_twins(node, Reason::Locked);
        node.get().first_lock(lock, || group::close_lanes_of(node));
    };
    match GroupRef::proven(fd) {
        Some(group) => end(group.node_ref()),
        // The file was opened where no hook sees it: by stdio, or by another process. From now on it is known, for as
        // long as the program has the descriptor; a descriptor of the library that came and went would drop the lock.
        None => {
            if let Some(node) = tracking::node_of_pool_file(fd) {
                let tracked = others::tracks(fd, node);
                end(node);
                if tracked {
                    node.release();
                }
            }
        }
    }
}

/// flock(2).
///
/// # Safety
/// As flock(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn flock(fd: c_int, operation: c_int) -> c_int {
    match operation & libc::LOCK_UN {
        0 => before(fd, Lock::OfOpenFile),
        _ => before_unlock(fd),
    }
    // SAFETY: the program's contract.
    unsafe { real::flock(fd, operation) }
}

macro_rules! lockf {
    ($($name:ident)*) => {
        $(
            /// lockf(3).
            ///
            /// # Safety
            /// As lockf(3).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(fd: c_int, command: c_int, length: i64) -> c_int {
                match command {
                    libc::F_LOCK | libc::F_TLOCK => before(fd, Lock::OfProcess),
                    libc::F_ULOCK => before_unlock(fd),
                    _ => {}
                }
                // SAFETY: the program's contract.
                unsafe { real::$name(fd, command, length) }
            }
        )*
    };
}

lockf! { lockf lockf64 }

//! The work that is due before an io_uring request that is not a transfer: a sync reaches the lanes, and a request that
//! changes a file or a number past the lanes waits for what is in flight there.

use core::ffi::c_int;

use crate::abi::liburing::{FIXED_FILE, Request, opcode};
use crate::open::others;
use crate::open::tracking;
use crate::policy::trace;
use crate::state::group::GroupRef;
use crate::state::reason::Reason;
use crate::state::table;

/// The result of the work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// The request is not a sync.
    Other,
    /// The request syncs a file of a pool, whose lanes are synced.
    Synced,
    /// The request syncs a file of a pool, and a lane could not be synced: the request has to fail, because data is
    /// not durable.
    NotDurable,
}

/// Does the work that is due before a request. `file` is the open file that the request names, if it is one of a pool,
/// and a descriptor of it.
pub fn prepare(request: &Request, file: Option<(GroupRef, c_int)>) -> Prepared {
    let fixed = request.flags & FIXED_FILE != 0;
    match request.opcode {
        opcode::FSYNC => {
            let Some((group, fd)) = file else { return Prepared::Other };
            /// IORING_FSYNC_DATASYNC
            const DATA_ONLY: u32 = 1;
            let data_only = request.rw_flags & DATA_ONLY != 0;
            trace::synced(if fixed { -1 } else { fd }, data_only);
            group.node().drain();
            match tracking::sync_lanes(&group, fd, data_only) {
                Ok(()) => Prepared::Synced,
                Err(_) => Prepared::NotDurable,
            }
        }
        opcode::CLOSE if request.file_index == 0 => {
            if let Some((group, fd)) = file {
                group.node().drain();
                group.node().revalidate(fd);
                drop(group);
                // The entry is forgotten before the number is free for others.
                let _ = tracking::closed(table::take(fd));
            }
            Prepared::Other
        }
        opcode::OPENAT | opcode::OPENAT2 => {
            // The number comes with a completion that no hook sees.
            let path: *const libc::c_char = core::ptr::with_exposed_provenance(request.address as usize);
            // SAFETY: an entry of this kind has its path there, which the kernel reads when it is submitted.
            unsafe { others::is_opened_out_of_sight(request.file, path) };
            Prepared::Other
        }
        opcode::FALLOCATE | opcode::FTRUNCATE => {
            leaves_the_lanes(file);
            Prepared::Other
        }
        // The data of both files goes through the page cache of the opened lane, at a moment that no hook sees.
        opcode::SPLICE => {
            leaves_the_lanes(file);
            let from = request.file_index as c_int; // splice_fd_in
            leaves_the_lanes(GroupRef::proven(from).map(|group| (group, from)));
            Prepared::Other
        }
        opcode::FILES_UPDATE => {
            let files: *const c_int = core::ptr::with_exposed_provenance(request.address as usize);
            others::go_out_of_sight(files, request.count);
            Prepared::Other
        }
        _ => Prepared::Other,
    }
}

/// Ends the spreading of a file that the ring changes, or reads, past the lanes.
fn leaves_the_lanes(file: Option<(GroupRef, c_int)>) {
    if let Some((group, fd)) = file {
        group.node().end(Reason::Uring);
        group.node().drain();
        group.node().revalidate(fd);
    }
}

//! Writes that arrive late: a process was killed, and its writes are still in flight on lanes.
//!
//! Before this process uses the file, it waits on each of those lanes until they have arrived. The wait is a call that
//! the lane's client puts behind all direct I/O of the inode: a buffered read or write, even of nothing at all
//! (`nfs_start_io_read` and `nfs_start_io_write` in fs/nfs/io.c wait for `i_dio_count`, which `nfs_direct_complete`
//! gives back when the server has answered, whoever was killed meanwhile). On file systems without such a client the
//! kernel itself orders direct I/O, or does not end a process before its requests.
//!
//! One mount makes a program wait in the same way: its requests queue behind the old ones on the connection.

use core::ffi::c_int;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use lanes::{LANES_MAX, PathBuffer};

use crate::abi::raw::Identity;
use crate::abi::{errno, own_stack, raw, said};
use crate::open::tracking::LANES_FLAG;
use crate::state::closing::Closing;
use crate::state::group::GroupRef;
use crate::state::lane::Pool;
use crate::state::writes::{self, Record};
use crate::state::{lane, node};

/// Waits for the writes of processes that no longer run, after the program has opened the file.
pub fn opened(group: &GroupRef, fd: c_int, flags: c_int) {
    if group.node().is_remote() && look(group, fd, true) && flags & libc::O_TRUNC != 0 && group.writes() {
        let _ = raw::cut(fd, 0); // they may have arrived after the file was cut
    }
}

/// Waits for the writes of processes that no longer run, before this process writes a file that it has open. A process
/// that has the file to itself has nothing to ask.
#[inline]
pub fn before_write(group: &GroupRef, fd: c_int) {
    if group.node().shares_writes() {
        let _errno = errno::kept();
        let _ = own_stack::run(|| look(group, fd, false));
    }
}

/// Returns true if it has waited.
fn look(group: &GroupRef, fd: c_int, all: bool) -> bool {
    let node = group.node();
    let recorded = writes::recorded();
    let (device, inode) = node.identity();
    let (mut shared, mut arrived) = (false, false);
    for record in writes::of_file(device, inode, node.record()) {
        // A process that has nothing in flight may have it at the next look.
        let idle = !all && record.lanes_in_flight() == 0;
        let left = if idle { None } else { record.left_behind() };
        let Some(in_flight) = left else {
            shared = true;
            continue;
        };
        // Not all writes on the opened lane are counted: those of inline calls are not.
        let mut waited = record.own_device() != device || wait(group, fd, group.own(), device, inode);
        for lane in (0..LANES_MAX).filter(|lane| in_flight & 1 << lane != 0) {
            if let Some(pool) = group.pool() {
                pool.say(lane, "waits for writes of a process that was ended while they were in flight");
            }
            waited &= record.device(lane).is_some_and(|device| wait(group, fd, lane, device, inode));
        }
        if waited {
            record.settled();
            arrived = true;
        } else {
            tell_unreachable(&record);
        }
    }
    arrived |= wait_for_given_up(group, fd, inode);
    node.looked_at_writes(if shared { None } else { Some(recorded) });
    arrived
}

/// Waits on all lanes if records were given up that may be of this file. Returns true if it has waited.
fn wait_for_given_up(group: &GroupRef, fd: c_int, inode: u64) -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let given_up = writes::given_up(inode);
    if given_up == group.node().waited() {
        return false;
    }
    if !TOLD.swap(true, Relaxed) {
        said::line(
            b"iotrap: many processes were ended while they wrote: waits on all lanes for what they may have left\n",
        );
    }
    let lanes = group.pool().map_or(0, Pool::len);
    (0..lanes).for_each(|lane| {
        wait_on(group, fd, lane, |found| found.inode == inode);
    });
    group.node().has_waited(given_up);
    true
}

/// Waits on the lane of a device. The lane probably has the number `lane` in this process's pool, too. False if the
/// file cannot be found on any lane of the pool.
fn wait(group: &GroupRef, fd: c_int, lane: usize, device: u64, inode: u64) -> bool {
    let others = (0..group.pool().map_or(0, Pool::len)).filter(|&at| at != lane);
    let is_it = |found: Identity| (found.device, found.inode) == (device, inode);
    core::iter::once(lane).chain(others).any(|at| wait_on(group, fd, at, is_it))
}

/// Waits on a lane of the pool. False if the file there is another one, or cannot be opened.
fn wait_on(group: &GroupRef, fd: c_int, at: usize, is_it: impl Fn(Identity) -> bool) -> bool {
    let mut room = [0u8; 4096];
    let place = raw::path_of(fd, &mut room).and_then(lane::find).filter(|place| place.pool == group.pool_index());
    let Some(place) = place else { return false };
    let mut buffer = PathBuffer::default();
    let path = lane::path(place.pool, at, place.rest, &mut buffer);
    let mode = group.flags() & libc::O_ACCMODE;
    let flags = mode | libc::O_NOFOLLOW | libc::O_NOCTTY | LANES_FLAG;
    let Some(Ok(file)) = path.map(|path| raw::open(path, flags)) else { return false };
    let found = raw::identity(file).is_ok_and(is_it);
    let waited = found && raw::waits_for_direct(file, mode != libc::O_RDONLY).is_ok();
    let _ = node::close_unlocked(&Closing::begin(), file);
    waited
}

/// Says once that late writes cannot be waited for.
fn tell_unreachable(record: &Record) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if record.lanes_in_flight() != 0 && !TOLD.swap(true, Relaxed) {
        said::line(
            b"iotrap: a process was ended while its writes were in flight on a lane that cannot be asked here: \
they may arrive later, over newer data\n",
        );
    }
}

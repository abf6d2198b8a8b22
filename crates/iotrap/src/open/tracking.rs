//! The way from a file that the program has opened to a group of lanes. The file is found by the path that the kernel
//! tells, opened on the other lanes, and proven to be one file.

use core::ffi::c_int;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::BorrowedFd;

use lanes::identity::{Facts, compare_in_turns, compare_inodes};
use lanes::{Difference, LANES_MAX, PathBuffer, Place, Proof, State};

use crate::abi::own_stack;
use crate::abi::raw;
use crate::abi::undisturbed;
use crate::open::late;
use crate::open::opener::{self, Errand, Refusal, Rest};
use crate::open::others;
use crate::state::closing::Closing;
use crate::state::group::{self, GroupRef, Opened};
use crate::state::lane::{self, Pool};
use crate::state::node::{self, NodeRef};
use crate::state::process;
use crate::state::proof;
use crate::state::reason::Reason;
use crate::state::stats;
use crate::state::table::{self, Entry};

/// A flag (F_GETFL) by which a lane's file is recognised from the moment on that it is open. The flag means nothing to
/// a regular file, and nobody else opens a file with it.
pub const LANES_FLAG: c_int = libc::O_ASYNC;

/// The time at which a lane is tried again on which a file could not be opened, or which does not work.
pub fn again_at(pool: &Pool, now_ns: u64) -> u64 {
    now_ns.saturating_add(pool.config.patience.probe_after_ns)
}

/// Enters `fd`, which the program has just opened, if it is a regular file of a pool.
pub fn opened(fd: c_int, flags: c_int) {
    enter_opened(fd, flags, None);
}

/// Enters `fd` like `opened`, for a file that is used where no hook sees it: the open file is not spread.
pub fn opened_for_others(fd: c_int, flags: c_int, reason: Reason) {
    enter_opened(fd, flags, Some(reason));
}

fn enter_opened(fd: c_int, flags: c_int, stays: Option<Reason>) {
    // A vfork child's numbers are its own: the table is its parent's.
    if !lane::active() || !process::is_own() {
        return;
    }
    // The file that the number meant before was closed where no hook saw it.
    drop(GroupRef::held_by(take_of_program(fd)));
    if flags & libc::O_PATH == 0 {
        own_stack::run(|| enter_file(fd, flags, stays));
    }
}

fn enter_file(fd: c_int, flags: c_int, stays: Option<Reason>) {
    let Ok(stat) = raw::fstat(fd) else { return };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return;
    }
    let mut room = [0u8; 4096];
    let found = raw::path_of(fd, &mut room).and_then(|path| Some((path, lane::find(path)?)));
    let Some((_, place)) = found else {
        // A path off the lanes may lead to a file that is spread: a bind mount, a root directory of chroot(2).
        others::came_off_the_lanes(fd, flags);
        return;
    };
    let Some(pool) = lane::pool(place.pool) else { return };
    stats::begin();
    let Some(node) = node::find_or_make(&stat) else {
        Reason::Tables.count();
        return;
    };
    let opened = Opened { node, pool: place.pool, own: place.lane, flags };
    let group = match GroupRef::new(opened) {
        Ok(group) => group,
        Err(opened) => {
            // A descriptor that the library cannot watch may do anything to the file.
            opened.node.get().end(Reason::Tables);
            opened.node.release();
            return;
        }
    };
    let known = node.get();
    if flags & libc::O_TRUNC != 0 {
        known.measure(fd)
    } else {
        known.reaches(stat.st_size as u64)
    }
    if !group.is_direct() && known.lanes_have_written() {
        // The opened lane's page cache must not be filled with data that lanes are about to replace.
        known.drain();
        known.revalidate(fd);
    }
    let find_kind = || {
        if known.file_system().is_none()
            && let Ok(kind) = raw::file_system(fd)
        {
            known.set_file_system(kind);
        }
    };
    if known.is_remote() && group.writes() && group.is_direct() {
        find_kind();
    }
    late::opened(&group, fd, flags);
    if group.writes() && group.is_direct() && !known.record_writes(place.lane) {
        known.end(Reason::Unrecorded);
    }
    if group.writes() && known.is_fuse() && !pool.config.strict_o_direct {
        known.end(Reason::Held);
    }
    match (stays, why_not(&group, pool, flags)) {
        (Some(reason), _) => group.end(reason),
        (None, Some(reason)) => group.begins_ended(reason),
        (None, None) => {
            if group.is_direct() {
                known.soil(); // another program may have left dirty pages: written out before the first read
            }
            find_kind();
            known.ended().into_iter().for_each(|reason| group.end(reason));
        }
    }
    enter(fd, group);
}

/// Opens the lanes of a file whose first request may leave the opened lane. Until then the file has one descriptor, as
/// without the library.
///
/// # Errors
/// The number means another file than the program opened under it.
#[cold]
pub fn awaken(group: &GroupRef, fd: c_int) -> Result<(), ()> {
    let Some(pool) = group.pool().filter(|_| process::is_own()) else { return Ok(()) };
    if !group.wakes() {
        return Ok(());
    }
    let _errno = crate::abi::errno::kept();
    own_stack::run(|| open_for_first(group, pool, fd))
}

/// Opens the lanes for the first request, in the one thread that does so.
fn open_for_first(group: &GroupRef, pool: &Pool, fd: c_int) -> Result<(), ()> {
    // The number was not watched until now: it may mean another file.
    if !proof::is_inode(fd, group.node().identity()) {
        group.wake(true);
        return Err(());
    }
    if !proof::same_flags(group, fd) {
        group.node().end(Reason::Flags);
    }
    raw::fcntl(fd, libc::F_GETFL, 0).into_iter().for_each(|flags| group.follow(flags));
    group.node().measure(fd);
    let mut room = [0u8; 4096];
    let found = raw::path_of(fd, &mut room).and_then(|path| Some((path, lane::find(path)?)));
    if let Some((path, place)) = found {
        others::look_for(group, fd, path);
        undisturbed::look();
        if let Some(reason) = group.node().ended() {
            group.end(reason);
        } else if group.watch(fd).is_err() {
            group.end(Reason::Limit);
        } else {
            open_lanes(group, pool, fd, (u32::MAX, None), Some(place), Manner::Opening);
        }
    } else {
        group.end(Reason::NotOpened); // renamed out of the pool
    }
    WOKEN_AT.store(raw::now_ns(), Relaxed);
    group.wake(false);
    Ok(())
}

/// The time at which lanes were last opened for a first request.
static WOKEN_AT: AtomicU64 = AtomicU64::new(0);

/// The time at which a request begins whose caller has looked at the clock at `now_ns`: a request of a batch does not
/// begin while the lanes for it are being opened, which may take as long as a silent lane is trusted.
#[inline]
pub fn begins_at(now_ns: u64) -> u64 {
    now_ns.max(WOKEN_AT.load(Relaxed))
}

/// Removes the entry of a number that the program has been given for a new file.
pub fn take_of_program(fd: c_int) -> Entry {
    // No private descriptor has that number any more: otherwise the kernel would not have given the number.
    if let Entry::Lane(name) = table::get(fd)
        && let Some(group) = GroupRef::acquire(name)
    {
        group.lose(fd);
    }
    table::take(fd)
}

/// Pool and lane of an open file, by the path that it has now.
pub fn place_of(fd: c_int) -> Option<(usize, usize)> {
    let mut room = [0u8; 4096];
    let place = raw::path_of(fd, &mut room).and_then(lane::find)?;
    Some((place.pool, place.lane))
}

/// Enters a descriptor for a group.
pub fn enter(fd: c_int, group: GroupRef) {
    let entry = group.into_entry();
    match table::put(fd, entry) {
        Ok(before) => drop(GroupRef::held_by(before)),
        Err(()) => {
            Reason::Tables.count();
            if let Some(group) = GroupRef::held_by(entry) {
                group.node().end(Reason::Tables); // it cannot be watched
            }
        }
    }
}

fn why_not(group: &GroupRef, pool: &Pool, flags: c_int) -> Option<Reason> {
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return Some(Reason::Way);
    }
    if flags & libc::O_APPEND != 0 {
        return Some(Reason::Append);
    }
    if !group.is_direct() && !group.spreads_buffered() {
        return Some(Reason::Buffered);
    }
    if pool.len() < 2 && !lane::is_dry_run() {
        return Some(Reason::Alone);
    }
    group.node().ended()
}

/// The manner of an attempt to open a file on lanes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The program has just opened the file: it waits for lanes that answer, so that its first request finds them.
    Opening,
    /// A later request of the program has made the attempt: it does not wait for lanes.
    Later,
    /// The caller cannot go on without the file: it does the errand itself.
    Needed,
}

/// Opens the file on those lanes of `wanted` (a bit each) that are in service and on which it is not open, and replaces
/// those files that no longer work. A lane that cannot be had is missed, and tried again later. A lane that does not
/// answer holds up the thread that was sent there ([`opener`]), and the program for as long as the lane counts as
/// healthy. Returns the lanes that a thread was sent to, a bit each.
fn open_lanes(
    group: &GroupRef,
    pool: &Pool,
    fd: c_int,
    (wanted, probe): (u32, Option<usize>),
    place: Option<Place<'_>>,
    manner: Manner,
) -> u32 {
    let mut room = [0u8; 4096];
    let place = match place {
        Some(place) => Some(place),
        None => raw::path_of(fd, &mut room).and_then(lane::find),
    };
    let Some(place) = place.filter(|place| place.pool == group.pool_index() && place.lane == group.own()) else {
        group.end(Reason::NotOpened); // renamed out of the pool
        return 0;
    };
    // SAFETY: the program has just passed this descriptor to the library: it is open for the time of this call.
    let own = unsafe { BorrowedFd::borrow_raw(fd) };
    let facts = group.node().file_system().map_or_else(|| Facts::of(own), |kind| Facts::on(own, kind));
    let Ok(own) = facts else {
        group.end(Reason::NotSame);
        return 0;
    };
    let again_ns = again_at(pool, raw::now_ns());
    let all = (0..pool.len()).filter(|&at| wanted & 1 << at != 0 && (at != group.own() || probe == Some(at)));
    if own.is_fuse() {
        let node = group.node();
        node.set_file_system(own.file_system());
        if node.was_written() && !pool.config.strict_o_direct {
            node.end(Reason::Held);
            return 0;
        }
        if node.is_small() {
            // The library does not even look the file up, because a lookup makes the client cache the contents there.
            Reason::Small.count();
            all.for_each(|at| group.miss(at, again_ns));
            return 0;
        }
    }
    let flags = group.flags()
        & (libc::O_ACCMODE | libc::O_DIRECT | libc::O_SYNC | libc::O_DSYNC | libc::O_NOATIME | libc::O_NONBLOCK)
        | libc::O_NOFOLLOW
        | libc::O_NOCTTY
        | LANES_FLAG;
    let mut sent = 0u32;
    for at in all {
        let now_ns = raw::now_ns();
        let state = pool.state_of(at, now_ns);
        if opener::is_under_way(group.name(), group.pool_index(), at) && manner != Manner::Needed {
            continue;
        }
        let rest = Rest::of(place.rest).filter(|_| matches!(state, Some(State::Healthy | State::Probing)));
        let Some(rest) = rest else {
            Reason::Silent.count();
            group.miss(at, again_ns);
            continue;
        };
        let errand = Errand {
            group: group.name(),
            pool: group.pool_index(),
            at,
            own_lane: group.own(),
            rest,
            flags: (at != group.own()).then_some(flags),
            own,
            ticket: pool.begin(at, 0, now_ns),
            probe: probe == Some(at),
            needed: manner == Manner::Needed,
        };
        if manner == Manner::Needed {
            run(&errand);
            sent |= 1 << at;
        } else if send(pool, errand, manner) {
            sent |= 1 << at;
        } else {
            Reason::Busy.count();
            group.miss(at, again_ns);
        }
    }
    if manner == Manner::Opening {
        (0..pool.len()).filter(|&at| sent & 1 << at != 0).for_each(|at| wait(group, pool, at));
        pool.tell_news();
    }
    sent
}

/// Sends a thread on an errand. False if too many are out already.
fn send(pool: &Pool, mut errand: Errand, manner: Manner) -> bool {
    loop {
        match opener::send(errand) {
            Ok(()) => return true,
            Err(Refusal::NoThread(back)) => {
                run(&back);
                return true;
            }
            Err(Refusal::TooMany(back)) if manner == Manner::Opening && pool.is_healthy(back.at, raw::now_ns()) => {
                errand = back;
                raw::sleep_us(50);
            }
            Err(Refusal::TooMany(back)) => {
                pool.cancel(back.ticket, raw::now_ns());
                return false;
            }
        }
    }
}

/// Waits for the thread that was sent to a lane, as long as that lane counts as healthy.
fn wait(group: &GroupRef, pool: &Pool, at: usize) {
    const A_WHILE_NS: i64 = 2_000_000;
    while opener::is_under_way(group.name(), group.pool_index(), at) {
        if !pool.is_healthy(at, raw::now_ns()) {
            Reason::Silent.count();
            return;
        }
        opener::wait(group.name(), group.pool_index(), at, A_WHILE_NS);
    }
}

/// Does an errand, in any thread: with system calls and atomics only (see [`opener`]).
pub fn run(errand: &Errand) {
    let Some(pool) = lane::pool(errand.pool) else { return };
    let opened = match errand.flags {
        Some(flags) => open_one(pool, errand, flags).map(Some),
        None => own_again(errand).map(|_| None).map_err(|_| Reason::NotOpened),
    };
    let now_ns = raw::now_ns();
    pool.answered(errand.ticket, now_ns);
    let there = opened.is_ok();
    let again_ns = again_at(pool, now_ns);
    // The program may have closed the file meanwhile.
    let group = GroupRef::acquire(errand.group);
    match (opened, &group) {
        (Ok(Some(file)), Some(group)) => match join(group, errand.at, file) {
            Ok(()) => group.attempted(1 << errand.at, again_ns),
            Err(reason) => missed(group, errand.at, reason, again_ns),
        },
        (Ok(Some(file)), None) => {
            let _ = node::close_unlocked(&Closing::begin(), file); // nothing was done with it
        }
        (Ok(None), _) | (Err(_), None) => {}
        (Err(reason), Some(group)) => missed(group, errand.at, reason, again_ns),
    }
    if errand.probe {
        pool.traffic.probed(errand.at, there, now_ns);
    }
    pool.tell_news();
}

fn missed(group: &GroupRef, at: usize, reason: Reason, again_ns: u64) {
    reason.count();
    group.miss(at, again_ns);
}

fn limit(errno: c_int) -> Reason {
    if matches!(errno, libc::EMFILE | libc::ENFILE) { Reason::Limit } else { Reason::NotOpened }
}

/// Opens the file on a lane, proves it to be the program's, and gives it a high number. A file that the program has
/// locked meanwhile keeps its number, because no descriptor of the file may be closed.
fn open_one(pool: &Pool, errand: &Errand, flags: c_int) -> Result<c_int, Reason> {
    /// The most turns of comparison until a file that is being written holds still.
    const TURNS: u32 = 16;
    let mut buffer = PathBuffer::default();
    let path = lane::path(errand.pool, errand.at, errand.rest.path(), &mut buffer).ok_or(Reason::NotOpened)?;
    let opened = raw::open(path, flags);
    if matches!(opened, Err(libc::ENOENT | libc::ENOTDIR)) && !is_there(errand, &mut buffer) {
        pool.is_absent(errand.at);
    }
    let low = opened.map_err(limit)?;
    // SAFETY: this function has just opened the descriptor, and closes it only after this use.
    let file = unsafe { BorrowedFd::borrow_raw(low) };
    let mut known = Some(errand.own);
    let own = || known.take().map_or_else(|| own_again(errand), Ok);
    let same = compare_in_turns(own, || Facts::of(file), TURNS, pool.config.trust_inode);
    let closing = Closing::begin();
    if same.is_ok() && node::must_stay(&closing, low) {
        return Ok(low);
    }
    let high = match same {
        Ok(_) if errand.needed => process::HighNumbers::reserve().duplicate_even_the_last(low).map_err(limit),
        Ok(_) => process::HighNumbers::reserve().duplicate(low).map_err(limit),
        Err(_) => Err(Reason::NotSame),
    };
    let _ = node::close_unlocked(&closing, low);
    high
}

/// True if the lane of the errand is a directory, or if that cannot be told.
fn is_there(errand: &Errand, buffer: &mut PathBuffer) -> bool {
    let Some(lane) = lane::path(errand.pool, errand.at, b"", buffer) else { return true };
    match raw::open(lane, libc::O_PATH | libc::O_DIRECTORY) {
        Ok(directory) => raw::close(directory).is_ok(),
        Err(error) => !matches!(error, libc::ENOENT | libc::ENOTDIR),
    }
}

/// The identity of the program's file, asked again. The function asks through the path, because the program may close
/// its descriptor, and without opening the file, because closing it would drop the program's locks.
fn own_again(errand: &Errand) -> Result<Facts, Difference> {
    let unreadable = |_| Difference::Unreadable;
    let mut buffer = PathBuffer::default();
    let path = lane::path(errand.pool, errand.own_lane, errand.rest.path(), &mut buffer);
    let fd = raw::open(path.ok_or(Difference::Unreadable)?, libc::O_PATH | libc::O_NOFOLLOW).map_err(unreadable)?;
    let answers = raw::answers(fd);
    // SAFETY: this function has just opened the descriptor, and closes it only after this use.
    let facts = Facts::of(unsafe { BorrowedFd::borrow_raw(fd) });
    let _ = raw::close(fd);
    let facts = facts.and_then(|facts| if answers { Ok(facts) } else { Err(Difference::Unreadable) })?;
    match compare_inodes(&errand.own, &facts, false)? {
        Proof::SameInode => Ok(facts),
        _ => Err(Difference::OtherFileSystem), // something else is mounted there now
    }
}

/// Gives the file of a lane to a group.
fn join(group: &GroupRef, at: usize, file: c_int) -> Result<(), Reason> {
    if group.adopt(at, file) {
        return Ok(());
    }
    let closing = Closing::begin();
    if node::keeps(&closing, file) {
        return Err(Reason::Locked); // nothing may be closed, and nothing is spread
    }
    // The lane had a file already: the new file takes its number over, in one step, whoever may be using it.
    let before = group.proven_lanes().find(|&(lane, _)| lane == at);
    let result = match before {
        None if group.adopt(at, file) => return Ok(()), // the number of the one before has come to mean another file
        Some((_, before)) => {
            // SAFETY: integers only; the library has opened both descriptors.
            let replaced = unsafe {
                raw::call(libc::SYS_dup3, raw::arg(file), raw::arg(before), libc::O_CLOEXEC as usize, 0, 0, 0)
            };
            raw::check(replaced).map(drop).map_err(limit)
        }
        None => Err(Reason::Limit),
    };
    let _ = raw::close(file);
    result
}

/// Does the work that is due now and then: tries a lane that has failed, and opens a file that is missing on a lane.
#[inline]
pub fn maintain(group: &GroupRef, pool: &Pool, fd: c_int, now_ns: u64) {
    let due = group.attempt_due(now_ns);
    if due != 0 || pool.trouble_due(now_ns) {
        attempt(group, pool, fd, due, now_ns);
    }
}

#[cold]
fn attempt(group: &GroupRef, pool: &Pool, fd: c_int, due: u32, now_ns: u64) {
    let _errno = crate::abi::errno::kept();
    if due != 0 {
        group.attempted(0, again_at(pool, now_ns));
    }
    if group.node().ended().is_some() {
        return; // closing a lane's file could drop the program's locks
    }
    let probe = pool.traffic.probe_due(now_ns);
    // Opening a file and asking for its identity takes answers from the server.
    let wanted = (due | probe.map_or(0, |at| 1 << at), probe);
    let sent = own_stack::run(|| open_lanes(group, pool, fd, wanted, None, Manner::Later));
    if let Some(at) = probe.filter(|at| sent & 1 << at == 0) {
        pool.traffic.probed(at, false, raw::now_ns());
    }
}

/// Finds the node of an open file, if the file is known; the caller releases it.
pub fn node_of_file(fd: c_int) -> Option<NodeRef> {
    if !node::any() {
        return None;
    }
    let found = raw::identity(fd).ok()?;
    node::find(found.device, found.inode)
}

/// Finds the node of an open file, or makes it if the file belongs to a pool; the caller keeps the reference.
pub fn node_of_pool_file(fd: c_int) -> Option<NodeRef> {
    let found = raw::identity(fd).ok().filter(|found| found.mode & libc::S_IFMT == libc::S_IFREG)?;
    node::find(found.device, found.inode).or_else(|| {
        place_of(fd)?;
        node::find_or_make(&raw::fstat(fd).ok()?)
    })
}

/// Syncs every lane that was written since the last time. Returns the first error.
pub fn sync_lanes(group: &GroupRef, fd: c_int, data_only: bool) -> raw::Result<()> {
    if group.node().has_in_flight() {
        node::note_completed(); // a write whose end the program has seen in memory, and the library has not
    }
    // The caller syncs the opened lane, also if it was written as a lane of another descriptor.
    let due = group.node().lanes_to_sync(group.own());
    let mut result = group.tell_lost();
    for at in (0..LANES_MAX).filter(|&at| due & 1 << at != 0) {
        let Some(sync) = group.node_ref().begin_sync(at) else { continue };
        // The lane may have been written through another descriptor of the program.
        if group::on_lane(group.node_ref(), at).is_none()
            && let Some(pool) = group.pool()
        {
            own_stack::run(|| open_lanes(group, pool, fd, (1 << at, None), None, Manner::Needed));
        }
        // The sync is counted before the file is looked for, so that nobody closes the file meanwhile to make room.
        group.node().lane_begins();
        let found = group::on_lane(group.node_ref(), at);
        let synced = match &found {
            Some((_, file)) => {
                let synced = raw::sync(*file, data_only);
                sync.done(); // an error is told once, as the kernel does
                synced
            }
            None => Err(libc::EIO), // what cannot be synced is not durable
        };
        group.node().lane_ends();
        result = result.and(synced);
    }
    result
}

/// Gives back the reference of a table entry that was removed: for `close` and every other call that closes. Returns
/// the first error of closing the lanes.
pub fn closed(entry: Entry) -> raw::Result<()> {
    let Some(group) = GroupRef::held_by(entry) else { return Ok(()) };
    if !group.is_asleep() {
        // Requests that have ended, and of which nobody has fetched the result, keep the lanes open.
        node::note_completed();
    }
    group.release()
}

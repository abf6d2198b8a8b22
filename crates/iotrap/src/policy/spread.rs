//! The lane of a request: the rules for requests that are provably safe to spread, and the pool's choice among the
//! lanes.
//!
//! | request | spread |
//! | --- | --- |
//! | O_DIRECT read below the known size | yes, once what the opened lane's cache holds has been written out |
//! | O_DIRECT write below the known size | the same, unless the program has the file open without O_DIRECT too |
//! | O_DIRECT write that extends | no |
//! | buffered read of a file that the program does not write | if the pool says so |
//! | buffered write, append; anything of a locked or mapped file | no |
//!
//! That is true of NFS, whose client has no cache but the kernel's. Behind FUSE there is a program with caches of its
//! own, which O_DIRECT does not pass by. Gluster's write-behind acknowledges writes that the brick does not have
//! (unless told otherwise: `strict-o-direct`), so that the writes of two lanes may arrive in the wrong order. Gluster's
//! quick-read answers reads of small files from contents that are up to a minute old. So on FUSE a file that the
//! program writes stays on its lane, and so does a file that quick-read may have (at most 1 MiB, by the range of its
//! option).

use core::ffi::c_int;

use lanes::{Refusal, Ticket};
use live::Op;

use crate::abi::raw;
use crate::open::{late, tracking};
use crate::policy::trace;
use crate::state::group::GroupRef;
use crate::state::lane::{Pool, is_dry_run};
use crate::state::proof::{self, Proofs};
use crate::state::reason::Reason;

/// The lane that was chosen for a request. The caller gives it to [`finish`] or [`cancel`], once.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The ticket under which the pool counts the request on its lane.
    pub ticket: Ticket,
    /// The lane's file; None for the program's own descriptor.
    pub file: Option<c_int>,
    /// The program's descriptor was proven to mean the file, so that the result of the request tells how far the file
    /// reaches.
    pub proven: bool,
    /// The request is a write that counts as in flight for other processes ([`crate::state::writes`]).
    pub recorded: bool,
    /// The request was given back to the pool ([`given_back`]): the kernel has completed it, and the program has not
    /// fetched its result.
    pub given_back: bool,
}

/// The answer to the question where a request goes.
#[derive(Clone, Copy, Debug)]
pub enum Chosen {
    /// The request goes to this lane.
    To(Choice),
    /// Every lane's window is full. The caller decides to wait, or to tell the program.
    Full,
    /// The descriptor means another file than it did: the request is not the library's business.
    Stale,
}

/// The reason why a request stays on the opened lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// The request stays for this reason.
    For(Reason),
    /// The descriptor means another file than it did.
    Stale,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The program reads from the file.
    Read,
    /// The program writes to the file.
    Write,
}

impl Kind {
    /// The operation as which the board counts such a transfer.
    pub fn op(self) -> Op {
        match self {
            Kind::Read => Op::Read,
            Kind::Write => Op::Write,
        }
    }
}

/// `Ok` if a request of this kind may leave the opened lane, by the library's own knowledge: the function asks the
/// kernel nothing.
fn would_leave(group: &GroupRef, kind: Kind, offset: i64, bytes: u64) -> Result<(), Reason> {
    if let Some(reason) = group.ended() {
        return Err(reason);
    }
    let node = group.node();
    let within = u64::try_from(offset).is_ok_and(|offset| offset.saturating_add(bytes) <= node.size());
    if node.is_fuse() {
        if node.is_small() {
            return Err(Reason::Small);
        }
        if node.has_writers() {
            return Err(Reason::Writer);
        }
    }
    match kind {
        // EBADF, which the opened lane tells.
        _ if !group.permits(kind == Kind::Write) => Err(Reason::Forbidden),
        Kind::Read if !within => Err(Reason::BeyondSize),
        Kind::Read if !group.is_direct() && node.was_written() => Err(Reason::Written),
        Kind::Write if !group.is_direct() => Err(Reason::Buffered),
        Kind::Write if !within => Err(Reason::Extends),
        Kind::Write if node.is_soft() => Err(Reason::Soft),
        Kind::Write if node.is_cached() => Err(Reason::Cached),
        Kind::Read | Kind::Write if is_dry_run() => Err(Reason::WouldLeave),
        Kind::Read | Kind::Write => Ok(()),
    }
}

/// `Ok` if a request of this kind may leave the opened lane. Then the descriptor is proven to mean the file and to have
/// its flags, and the contents of the page cache are written out.
///
/// # Errors
/// The reason why the request stays.
pub fn may_leave(
    group: &GroupRef,
    fd: c_int,
    kind: Kind,
    offset: i64,
    bytes: u64,
    proofs: &mut Proofs,
) -> Result<(), Stays> {
    is_of_the_file(group, fd, kind, offset, bytes, proofs)?;
    goes(group, fd, proofs).map_err(Stays::For)
}

/// The part of [`may_leave`] that matters only to a request that goes to another lane: the kernel has the flags of the
/// opened lane's descriptor, and that lane's page cache.
fn goes(group: &GroupRef, fd: c_int, proofs: &mut Proofs) -> Result<(), Reason> {
    if !proofs.hold_flags(group, fd) {
        return Err(Reason::Flags);
    }
    // Dirty pages of the opened lane come before what other lanes are given: the server has to have them first.
    if group.is_direct() && group.write_out(fd).is_err() {
        return Err(Reason::Writer);
    }
    Ok(())
}

/// The part of [`may_leave`] that matters to every request: the descriptor means the file.
fn is_of_the_file(
    group: &GroupRef,
    fd: c_int,
    kind: Kind,
    offset: i64,
    bytes: u64,
    proofs: &mut Proofs,
) -> Result<(), Stays> {
    let mut would = would_leave(group, kind, offset, bytes);
    if would.is_ok() && group.is_asleep() {
        if tracking::awaken(group, fd).is_err() {
            proof::forget(group, fd);
            return Err(Stays::Stale);
        }
        would = would_leave(group, kind, offset, bytes);
    }
    // Such requests teach how far the file reaches, if the descriptor means the file.
    let learns = matches!(would, Err(Reason::BeyondSize | Reason::Extends));
    if (would.is_ok() || learns) && !proofs.hold(group, fd) {
        return Err(Stays::Stale);
    }
    // An append writes elsewhere than its offset says.
    if learns && !proofs.hold_flags(group, fd) {
        return Err(Stays::For(Reason::Flags));
    }
    would.map_err(Stays::For)
}

/// Chooses a lane for a request, and counts the request there.
pub fn choose(
    group: &GroupRef,
    fd: c_int,
    kind: Kind,
    offset: i64,
    bytes: u64,
    now_ns: u64,
    proofs: &mut Proofs,
) -> Chosen {
    if kind == Kind::Write {
        late::before_write(group, fd);
    }
    match choose_lane(group, fd, kind, offset, bytes, now_ns, proofs) {
        Chosen::To(choice) => {
            trace::chosen(fd, group, choice.ticket.lane);
            Chosen::To(recorded(group, kind, choice))
        }
        other => other,
    }
}

/// The choice, counted for other processes if it is a write.
fn recorded(group: &GroupRef, kind: Kind, choice: Choice) -> Choice {
    Choice { recorded: kind == Kind::Write && group.node().write_begins(choice.ticket.lane), ..choice }
}

fn choose_lane(
    group: &GroupRef,
    fd: c_int,
    kind: Kind,
    offset: i64,
    bytes: u64,
    now_ns: u64,
    proofs: &mut Proofs,
) -> Chosen {
    let Some(pool) = group.pool() else { return Chosen::Stale };
    let stays = |proven| Chosen::To(Choice { proven, ..opened(group, pool, bytes, now_ns) });
    match is_of_the_file(group, fd, kind, offset, bytes, proofs) {
        Ok(()) => {}
        Err(Stays::Stale) => return Chosen::Stale,
        Err(Stays::For(reason)) => {
            reason.count();
            return stays(matches!(reason, Reason::BeyondSize | Reason::Extends));
        }
    }
    let now_ns = tracking::begins_at(now_ns);
    tracking::maintain(group, pool, fd, now_ns);
    let usable = group.usable();
    if usable.count_ones() < 2 {
        Reason::Alone.count();
        return stays(true);
    }
    let ticket = match pool.admit(bytes, usable, now_ns) {
        Ok(ticket) => ticket,
        Err(Refusal::Full) => return Chosen::Full,
        Err(Refusal::NoneInService) => {
            Reason::Alone.count();
            return stays(true);
        }
    };
    let Some(file) = group.file(ticket.lane) else {
        return Chosen::To(Choice { ticket, file: None, proven: true, recorded: false, given_back: false });
    };
    if let Err(reason) = goes(group, fd, proofs) {
        reason.count();
        pool.cancel(ticket, now_ns);
        return stays(false);
    }
    if !proofs.hold_lane(group, ticket.lane, file) {
        Reason::Stale.count();
        group.miss(ticket.lane, tracking::again_at(pool, now_ns));
        pool.cancel(ticket, now_ns);
        return stays(true);
    }
    let node = group.node();
    node.lane_begins();
    // A thread that ends spreading says so first and then waits for the requests in flight; this thread counts its
    // request first and then looks if spreading has ended. So one of the two sees the other.
    // The same holds for a thread that cuts the file. Another process may have cut it, too: a write beyond the end that
    // the opened lane's client knows would extend the file behind its back.
    let writes = kind == Kind::Write;
    let end = u64::try_from(offset).unwrap_or(u64::MAX).saturating_add(bytes);
    let mut extends = || writes && node.is_apart() && !proofs.reaches(group, fd, end);
    if group.ended().is_some() || (writes && node.is_cached()) || node.is_changing() || extends() {
        node.lane_ends();
        pool.cancel(ticket, now_ns);
        return stays(true);
    }
    if kind == Kind::Write {
        node.lane_write(ticket.lane);
    }
    Chosen::To(Choice { ticket, file: Some(file), proven: true, recorded: false, given_back: false })
}

/// Chooses the opened lane, and counts the request there. Nothing is proven.
pub fn own(group: &GroupRef, pool: &Pool, kind: Kind, bytes: u64, now_ns: u64) -> Choice {
    recorded(group, kind, opened(group, pool, bytes, now_ns))
}

fn opened(group: &GroupRef, pool: &Pool, bytes: u64, now_ns: u64) -> Choice {
    let ticket = pool.begin(group.own(), bytes, tracking::begins_at(now_ns));
    Choice { ticket, file: None, proven: false, recorded: false, given_back: false }
}

/// Notes that the kernel has completed a write, or never gets it.
pub fn is_over(group: &GroupRef, choice: &Choice) {
    if choice.recorded {
        group.node().write_ends(choice.ticket.lane);
    }
}

/// Notes that the kernel has completed a request whose result the program has not fetched: its place on the lane is
/// free. The caller gives the choice to [`finish`] or [`cancel`] later, as every other.
pub fn given_back(choice: &mut Choice, pool: &Pool, now_ns: u64) {
    if !core::mem::replace(&mut choice.given_back, true) {
        pool.take_back(choice.ticket, now_ns);
    }
}

/// Undoes a choice of which nothing has reached the kernel.
pub fn cancel(group: &GroupRef, choice: &Choice, now_ns: u64) {
    is_over(group, choice);
    if choice.file.is_some() {
        group.node().lane_ends();
    }
    if let Some(pool) = group.pool().filter(|_| !choice.given_back) {
        pool.cancel(choice.ticket, now_ns);
    }
}

/// True if a result (bytes or `-errno`) is an error that the file or its permissions may have caused as well as the
/// lane. It counts as a fault of the lane only once another lane has carried the same request out. EBADF may be the
/// lane's only on another lane than the opened one.
pub fn may_be_lane_fault(group: &GroupRef, lane: usize, result: i64) -> bool {
    let of_either = match c_int::try_from(result.saturating_neg()) {
        Ok(libc::EBADF) => lane != group.own(),
        Ok(errno) => matches!(errno, libc::EIO | libc::ESTALE | libc::EACCES),
        Err(_) => false,
    };
    of_either || is_lane_fault(result)
}

/// True if a result (bytes or `-errno`) is an error that only a lane can cause: the connection, or the device, is gone.
pub fn is_lane_fault(result: i64) -> bool {
    let Ok(errno) = c_int::try_from(result.saturating_neg()) else { return false };
    matches!(
        errno,
        libc::ENOTCONN
            | libc::ECONNABORTED
            | libc::ECONNREFUSED
            | libc::ECONNRESET
            | libc::ENODEV
            | libc::ENXIO
            | libc::EREMOTEIO
            | libc::ESHUTDOWN
            | libc::ETIMEDOUT
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::ENETRESET
    )
}

/// Counts the end of a request: `result` is bytes or `-errno`.
pub fn finish(group: &GroupRef, choice: &Choice, kind: Kind, offset: i64, result: i64, fault: bool, now_ns: u64) {
    let ticket = choice.ticket;
    is_over(group, choice);
    let Some(pool) = group.pool() else { return };
    if choice.given_back {
        pool.tell_result(ticket, kind.op(), result, fault, now_ns);
    } else {
        pool.end(ticket, kind.op(), result, fault, now_ns);
    }
    if fault && ticket.lane != group.own() {
        group.miss(ticket.lane, tracking::again_at(pool, now_ns));
    }
    // Before the program knows of the write.
    if kind == Kind::Write {
        group.drop_replaced(ticket.lane, offset, ticket.bytes);
    }
    // A sync that began while the request was under way has not covered it, and has taken the note of its lane.
    if kind == Kind::Write && ticket.lane != group.own() && result > 0 {
        group.node().lane_write(ticket.lane);
    }
    // Only the opened lane knows where the file ends.
    if choice.proven
        && ticket.lane == group.own()
        && let (Ok(done @ 1..), Ok(offset)) = (u64::try_from(result), u64::try_from(offset))
    {
        group.node().reaches(offset.saturating_add(done));
    }
}

/// Carries a synchronous request out on the lane that is chosen for it: `carry` does it on a descriptor and returns
/// bytes or `-errno`. None if the window of every lane is full: the caller waits, and holds nothing meanwhile.
///
/// A read that fails because of its lane, or that comes back short, is done again elsewhere: the program does not see
/// it. A write is not done again: a failed write may still arrive. The one exception is a write whose lane has no file
/// any more (EBADF), because it was never sent.
pub fn synchronous(
    group: &GroupRef,
    fd: c_int,
    kind: Kind,
    offset: i64,
    bytes: u64,
    carry: impl Fn(c_int) -> isize,
) -> Option<isize> {
    let choice = match choose(group, fd, kind, offset, bytes, raw::now_ns(), &mut Proofs::none()) {
        Chosen::To(choice) => choice,
        Chosen::Stale => return Some(carry(fd)),
        Chosen::Full => return None,
    };
    let result = carry(choice.file.unwrap_or(fd));
    if choice.file.is_some() {
        group.node().lane_ends();
    }
    Some(settle(group, fd, kind, offset, bytes, &choice, result, carry))
}

/// Counts the end of a synchronous request, and before that does the request elsewhere where that is due. Returns the
/// result that the program gets.
#[allow(clippy::too_many_arguments, reason = "a request, where it went, and what came of it")]
pub fn settle(
    group: &GroupRef,
    fd: c_int,
    kind: Kind,
    offset: i64,
    bytes: u64,
    choice: &Choice,
    mut result: isize,
    carry: impl Fn(c_int) -> isize,
) -> isize {
    let Choice { ticket, file, .. } = *choice;
    let mut fault = is_lane_fault(result as i64);
    if kind == Kind::Read {
        if may_be_lane_fault(group, ticket.lane, result as i64) {
            let failed = result;
            let other = elsewhere(group, fd, ticket.lane, &carry);
            // An error that the other lanes give as well is the file's.
            fault = other.is_some_and(|other| other >= 0);
            result = other.filter(|&other| other >= 0).unwrap_or(failed);
            finish(group, choice, kind, offset, failed as i64, fault, raw::now_ns());
            return result;
        }
        if let (Some(file), Ok(got)) = (file, u64::try_from(result))
            && got < bytes
        {
            // The lane believes that the file is shorter than it is known to be. So the lane has to ask its server, and
            // the opened lane knows the right end.
            raw::revalidate(file);
            let own = carry(fd);
            result = if own >= 0 { own } else { result };
        }
    } else if result == -libc::EBADF as isize && file.is_some() {
        // The number of the lane's file means another file: nothing was sent.
        group.miss(ticket.lane, group.pool().map_or(0, |pool| tracking::again_at(pool, raw::now_ns())));
        result = carry(fd);
    }
    finish(group, choice, kind, offset, result as i64, fault, raw::now_ns());
    result
}

/// Does a failed read again on the other lanes, one after another, until one can do it. None if there is no other lane.
pub fn elsewhere(group: &GroupRef, fd: c_int, failed: usize, carry: impl Fn(c_int) -> isize) -> Option<isize> {
    let mut last = None;
    let pool = group.pool()?;
    let now_ns = raw::now_ns();
    let healthy = |lane: usize| pool.is_healthy(lane, now_ns);
    let node = group.node();
    node.lane_begins();
    let others = group.proven_lanes().filter(|&(lane, _)| lane != failed && healthy(lane)).map(|(_, file)| file);
    let own = (failed != group.own() && fd >= 0).then_some(fd);
    for file in others.chain(own) {
        let result = carry(file);
        last = Some(result);
        if result >= 0 {
            break;
        }
    }
    node.lane_ends();
    last
}

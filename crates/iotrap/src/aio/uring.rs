//! io_uring by liburing: reads and writes are spread before liburing submits them, where that is safe
//! ([`crate::aio::rings`]). With `--raw`, the library sees liburing's system calls, and [`crate::aio::raw_ring`] does
//! the work, except for rings with SQPOLL.

use crate::abi::dispatch;
use crate::abi::errno;
use crate::abi::liburing::{FIXED_FILE, Uring, setup};
use crate::abi::own_stack;
use crate::abi::undisturbed::Undisturbed;
use crate::aio::prepare::{Prepared, prepare};
use crate::aio::rings::{self, Batch, Held, Queues};
use crate::state::group::GroupRef;
use crate::state::lane;
use crate::state::process;
use crate::state::reason::Reason;

/// The number by which [`rings`] knows a ring of liburing: the address of the program's structure.
fn id_of(uring: *const Uring) -> u64 {
    uring.expose_provenance() as u64
}

/// The ring of the program's structure, entered if it is new. Waits for a thread that looks at it. None if there is no
/// room.
///
/// # Safety
/// A valid `struct io_uring`.
unsafe fn held(uring: *const Uring) -> Option<Held> {
    if let Some(held) = rings::hold(id_of(uring)) {
        return Some(held);
    }
    // SAFETY: the program's contract.
    let Uring { submission, completion, flags, ring_fd } = unsafe { &*uring };
    let queues = Queues {
        head: submission.head,
        flags: submission.flags,
        completed: completion.tail,
        // SAFETY: the program keeps the ring mapped until io_uring_queue_exit, which the hook sees first.
        completed_mask: unsafe { (*completion.mask).load(core::sync::atomic::Ordering::Relaxed) },
        completions: completion.completions,
    };
    // SAFETY: the program keeps the ring mapped until io_uring_queue_exit, which the hook sees first.
    let held = unsafe { rings::enter(id_of(uring), queues, submission.own_head, rings::why_not(*flags)) }?;
    if flags & setup::DEFER_TASKRUN != 0 {
        held.known().deferred = Some(*ring_fd);
    }
    Some(held)
}

/// Does the library's part before requests are submitted: syncs lanes, and spreads transfers.
///
/// # Safety
/// A valid `struct io_uring` whose submission queue is the calling thread's.
pub unsafe fn before(uring: *mut Uring) {
    if uring.is_null() || !lane::active() {
        return;
    }
    // SAFETY: the program's contract.
    let flags = unsafe { (*uring).flags };
    if dispatch::on() && flags & setup::SQPOLL == 0 {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    let _errno = errno::kept();
    process::notice_fork();
    // SAFETY: the program's contract.
    own_stack::run(|| unsafe { before_submission(uring, flags) });
}

/// The library's part of a ring with these flags.
///
/// # Safety
/// As [`before`].
unsafe fn before_submission(uring: *mut Uring, flags: u32) {
    // SAFETY: the program's contract.
    let queue = unsafe { &(*uring).submission };
    if queue.own_head == queue.own_tail {
        return;
    }
    // A sync has to reach the writes before it. (Waiting for them is done without holding the ring.)
    let mut syncs = false;
    for place in queue.written(flags) {
        // SAFETY: an entry that the program has written and not submitted.
        let request = unsafe { place.read() };
        if rings::is_transfer(&request) {
            continue;
        }
        let named = if request.flags & FIXED_FILE == 0 { GroupRef::proven(request.file) } else { None };
        let done = prepare(&request, named.map(|group| (group, request.file)));
        syncs |= done != Prepared::Other;
        if done == Prepared::NotDurable {
            // The request fails (EBADF).
            // SAFETY: an entry that the program has written and not submitted.
            let field = unsafe { &raw mut (*place).file };
            // SAFETY: an entry that the program has written and not submitted; nobody else writes it before that.
            unsafe { field.write(-1) };
        }
    }
    // SAFETY: the program's contract.
    let Some(held) = (unsafe { held(uring) }) else { return };
    held.catch_up();
    let mut batch = Batch::new(syncs);
    if core::mem::replace(&mut held.known().seen, queue.own_tail) != queue.own_head {
        // Somebody has submitted entries that the library did not see.
        held.loses_sight(Reason::RingDrivers, batch.now_ns);
    }
    for place in queue.written(flags) {
        // SAFETY: an entry that the program has written and not submitted.
        let request = unsafe { place.read() };
        if let Some(file) = held.place(&request, &mut batch).and_then(|choice| choice.file) {
            // SAFETY: an entry that the program has written and not submitted.
            let field = unsafe { &raw mut (*place).file };
            // SAFETY: an entry that the program has written and not submitted; nobody else writes it before that.
            unsafe { field.write(file) };
        }
    }
}

/// Ends the library's part of a ring, before the ring is unmapped.
pub fn ends(uring: *const Uring) {
    let _undisturbed = Undisturbed::begin();
    if let Some(held) = rings::hold(id_of(uring)) {
        let _errno = errno::kept();
        held.ends();
    }
}

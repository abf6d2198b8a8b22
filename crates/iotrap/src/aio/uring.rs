//! io_uring by liburing: reads and writes are spread before liburing submits them, where that is safe
//! ([`crate::aio::rings`]). With `--raw`, the library sees liburing's system calls, and [`crate::aio::raw_ring`] does
//! the work, except for rings with SQPOLL.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::abi::dispatch;
use crate::abi::errno;
use crate::abi::liburing::{Completion, FIXED_FILE, Uring, setup};
use crate::abi::own_stack;
use crate::abi::raw;
use crate::abi::undisturbed::Undisturbed;
use crate::aio::prepare::{Prepared, prepare};
use crate::aio::rings::{self, Batch, Held, Queues};
use crate::state::group::GroupRef;
use crate::state::lane;
use crate::state::process;
use crate::state::reason::Reason;

/// The number by which [`rings`] knows a ring of liburing: the address at which liburing has mapped the ring. A program
/// may copy its structure, and end the ring at another address.
///
/// # Safety
/// A valid `struct io_uring`.
unsafe fn id_of(uring: *const Uring) -> u64 {
    // SAFETY: the program's contract.
    unsafe { (*uring).submission.start.expose_provenance() as u64 }
}

/// The mapping of a ring that the library has made for itself: it stays when liburing unmaps its own, be it for larger
/// queues (io_uring_resize_rings(3)), in code that no hook sees.
fn own_queues(uring: &Uring) -> Option<Queues> {
    let Uring { submission, completion, ring_fd, .. } = uring;
    // One mapping for both queues, since Linux 5.4.
    let bytes = submission.bytes.max(completion.bytes);
    let mapped_at = submission.start.expose_provenance();
    if submission.start != completion.start || mapped_at == 0 {
        return None;
    }
    let own = rings::map(*ring_fd, bytes, 0).ok()?;
    let at = |place: usize, size: usize| {
        let offset = place.checked_sub(mapped_at).filter(|offset| offset.saturating_add(size) <= bytes)?;
        Some(own + offset)
    };
    let word = |place: *const AtomicU32| at(place.expose_provenance(), size_of::<AtomicU32>());
    let found = || {
        let mask: *const AtomicU32 = core::ptr::with_exposed_provenance(word(completion.mask)?);
        // SAFETY: a word within the library's own mapping.
        let mask = unsafe { (*mask).load(Relaxed) };
        let size = (mask as usize).checked_add(1)?.checked_mul(size_of::<Completion>())?;
        Some(Queues {
            head: core::ptr::with_exposed_provenance(word(submission.head)?),
            flags: core::ptr::with_exposed_provenance(word(submission.flags)?),
            completed: core::ptr::with_exposed_provenance(word(completion.tail)?),
            completed_mask: mask,
            completions: core::ptr::with_exposed_provenance(at(completion.completions.expose_provenance(), size)?),
            mapped: Some((own, bytes)),
        })
    };
    found().or_else(|| {
        rings::unmap(own, bytes);
        None
    })
}

/// The ring of the program's structure, entered if it is new. Waits for a thread that looks at it. None if there is no
/// room.
///
/// # Safety
/// A valid `struct io_uring`.
unsafe fn held(uring: *const Uring) -> Option<Held> {
    // SAFETY: the program's contract.
    let id = unsafe { id_of(uring) };
    // SAFETY: the program's contract.
    let program = unsafe { &*uring };
    let Uring { submission, completion, flags, ring_fd } = program;
    if let Some(held) = rings::hold(id) {
        let known = held.known();
        // SAFETY: liburing keeps its mapping while the program submits.
        let head = unsafe { &*submission.head };
        // SAFETY: the library keeps its own mapping while the ring is entered.
        let own = unsafe { &*known.queues.head };
        let [before, head, after] = [own.load(Acquire), head.load(Acquire), own.load(Acquire)];
        // The kernel may move it at this moment (SQPOLL).
        let same = head.wrapping_sub(before) <= after.wrapping_sub(before);
        // SAFETY: liburing keeps its mapping while the program submits.
        let mask = unsafe { (*completion.mask).load(Relaxed) };
        let bytes = submission.bytes.max(completion.bytes);
        if same
            && known.ring_fd == Some(*ring_fd)
            && mask == known.queues.completed_mask
            && known.queues.mapped.is_some_and(|(_, all)| all == bytes)
        {
            return Some(held);
        }
        is_gone(held);
    }
    if let Some(held) = rings::of_descriptor(*ring_fd) {
        is_gone(held);
    }
    let Some(queues) = own_queues(program) else {
        Reason::RingUnknown.count();
        return None;
    };
    // SAFETY: the library's own mapping, which stays until the ring has ended.
    let held = unsafe { rings::enter(id, queues, submission.own_head, rings::why_not(*flags)) };
    let Some(held) = held else {
        queues.unmap();
        return None;
    };
    held.known().ring_fd = Some(*ring_fd);
    if flags & setup::DEFER_TASKRUN != 0 {
        held.known().deferred = Some(*ring_fd);
    }
    Some(held)
}

/// Ends the library's part of queues that the program does not use any more: the ring has ended, or has got other
/// queues, where no hook saw it. Its requests in flight go on without the library.
fn is_gone(held: Held) {
    held.catch_up();
    held.loses_sight(Reason::RingDrivers, raw::now_ns());
    held.known().deferred = None; // the number may mean another ring
    held.ends();
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
///
/// # Safety
/// A valid `struct io_uring`.
pub unsafe fn ends(uring: *const Uring) {
    if uring.is_null() {
        return;
    }
    let _undisturbed = Undisturbed::begin();
    // SAFETY: the program's contract.
    if let Some(held) = rings::hold(unsafe { id_of(uring) }) {
        let _errno = errno::kept();
        held.ends();
    }
}

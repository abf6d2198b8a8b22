//! libaio's requests, over the bare system calls: submission, completion, the end of a context. The functions return
//! `-errno` and leave `errno` alone.
//!
//! A request of a spread file goes to the kernel in the program's own iocb, which for the duration of the call names a
//! lane's file ([`crate::aio::changed_iocbs`]). The library records the requests that the kernel has
//! ([`crate::aio::inflight`]). The event that comes back is the program's own in every byte, except that a read which
//! failed because of its lane has been done elsewhere.

use core::ffi::{c_int, c_long, c_void};

use crate::abi::libaio::{Event, Iocb, opcode};
use crate::abi::raw;
use crate::abi::readable;
use crate::abi::undisturbed::Undisturbed;
use crate::aio::async_io;
use crate::aio::changed_iocbs::{self, ChangedIocbs};
use crate::aio::context::{self, Context};
use crate::aio::inflight::{self, Record, Taken, VECTORS};
use crate::open::tracking;
use crate::policy::spread::{self, Choice, Chosen, Kind};
use crate::policy::trace;
use crate::state::group::GroupRef;
use crate::state::lane;
use crate::state::proof::Proofs;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

/// io_setup(2).
///
/// # Safety
/// As io_setup(2).
pub unsafe fn setup(events: usize, context: *mut u64) -> isize {
    // SAFETY: the program's contract.
    let result = unsafe { raw::pass(libc::SYS_io_setup, events, context as usize, 0, 0, 0, 0) };
    if result == 0 && (lane::active() || async_io::active()) {
        crate::state::process::notice_fork();
        // SAFETY: the kernel has just written it.
        let id = unsafe { context.read() };
        context::add(id);
        if let Some((place, _)) = context::find(id).filter(|_| async_io::active()) {
            async_io::context_made(place, events);
        }
    }
    result
}

/// io_destroy(2).
///
/// # Safety
/// As io_destroy(2).
pub unsafe fn destroy(context: u64) -> isize {
    let _undisturbed = lane::active().then(Undisturbed::begin);
    let found = context::find(context).map(|(place, _)| place);
    found.into_iter().for_each(async_io::context_ends);
    // Nobody may look into a ring that is about to be unmapped.
    if let Some(place) = found {
        context::remove(place);
    }
    // SAFETY: the program's contract. The call waits for everything that is in flight.
    let result = unsafe { raw::pass(libc::SYS_io_destroy, context as usize, 0, 0, 0, 0, 0) };
    if let Some(place) = found {
        inflight::take_all_of(place, forget);
    }
    result
}

unsafe fn submit_bare(context: u64, count: c_long, iocbs: *mut *mut Iocb) -> isize {
    // SAFETY: the program's contract.
    unsafe { raw::pass(libc::SYS_io_submit, context as usize, count as usize, iocbs as usize, 0, 0, 0) }
}

/// io_submit(2).
///
/// # Safety
/// As io_submit(2).
pub unsafe fn submit(context: u64, count: c_long, iocbs: *mut *mut Iocb) -> isize {
    if !lane::active() && !async_io::active() {
        // SAFETY: the program's contract.
        return unsafe { submit_bare(context, count, iocbs) };
    }
    let mut done: c_long = 0;
    loop {
        let (left, rest) = (count - done, iocbs.wrapping_add(done as usize));
        let mut copied = Copied::of(rest, left);
        let result = match copied.count {
            // The kernel takes the requests before the first one that it cannot read.
            0 if done > 0 => return done as isize,
            // SAFETY: the program's contract; or the kernel's error.
            0 => return unsafe { submit_bare(context, left, rest) },
            // SAFETY: the program's contract, a part of it.
            _ => unsafe { submit_copied(context, &mut copied) },
        };
        match c_long::try_from(result).unwrap_or(-1) {
            // A part of which nothing was taken ends the batch; its errno is told only if it is the first.
            ..0 if done == 0 => return result,
            ..0 => return done as isize,
            some => done += some,
        }
        if result < copied.count as isize || done == count {
            return done as isize;
        }
    }
}

/// The most requests that are copied at a time.
const COPIED: usize = readable::PAGES / 2;

/// The addresses of requests, as the program's memory held them at one moment: the program may change its list, and
/// what was checked is what is used.
struct Copied {
    iocbs: [usize; COPIED],
    count: usize,
}

impl Copied {
    /// The first requests of a list that the kernel will be able to read, and to write its key to.
    fn of(list: *mut *mut Iocb, count: c_long) -> Copied {
        /// The place of `aio_key` in an iocb: the kernel writes KIOCB_KEY, which is 0, there as it takes a request.
        const KEY: usize = 8;
        let wanted = usize::try_from(count).unwrap_or(0).min(COPIED);
        // A list that ends within is read one by one.
        let read = readable::read_some::<usize, COPIED>(list.cast_const().cast(), wanted);
        let iocbs = read.unwrap_or_else(|| {
            let mut iocbs = [0; COPIED];
            let one = |at: usize| readable::read(list.wrapping_add(at).cast_const().cast::<usize>());
            iocbs.iter_mut().zip((0..wanted).map_while(one)).for_each(|(place, iocb)| *place = iocb);
            iocbs // and address 0 cannot be read
        });
        let are_good = |iocbs: &[usize]| {
            readable::are_readable(iocbs, size_of::<Iocb>())
                && readable::are_written(iocbs.iter().map(|iocb| iocb.wrapping_add(KEY)), 0)
        };
        // Two questions are enough for a batch that is sound.
        let wanted = iocbs.get(..wanted).unwrap_or_default();
        let good =
            if are_good(wanted) { wanted.len() } else { wanted.chunks(1).take_while(|one| are_good(one)).count() };
        Copied { iocbs, count: good }
    }
}

/// io_submit(2) of requests whose addresses were copied.
///
/// # Safety
/// As io_submit(2).
unsafe fn submit_copied(context: u64, copied: &mut Copied) -> isize {
    let (count, iocbs) = (copied.count as c_long, copied.iocbs.as_mut_ptr().cast::<*mut Iocb>());
    // SAFETY: the program's contract, all of it or a part.
    let spread = |count: c_long, iocbs: *mut *mut Iocb| unsafe { submit_spread(context, count, iocbs) };
    if async_io::active() {
        let _undisturbed = Undisturbed::begin();
        crate::state::process::notice_fork();
        // SAFETY: the program's contract.
        return unsafe { async_io::submit(context, count, iocbs, spread) };
    }
    spread(count, iocbs)
}

/// io_submit(2) of requests of which those for files on pools are spread.
///
/// # Safety
/// As io_submit(2).
unsafe fn submit_spread(context: u64, count: c_long, iocbs: *mut *mut Iocb) -> isize {
    let may_be_ours = lane::active() && count > 0 && !iocbs.is_null();
    // SAFETY: the program's contract: `count` pointers to iocbs.
    if !may_be_ours || !unsafe { any_of_a_pool(iocbs, count) } {
        if may_be_ours {
            // SAFETY: the program's contract: `count` pointers to iocbs.
            unsafe { count_buffered(iocbs, count) };
        }
        // SAFETY: the program's contract.
        return unsafe { submit_bare(context, count, iocbs) };
    }
    let _undisturbed = Undisturbed::begin();
    let mut done: c_long = 0;
    while done < count {
        let part = (count - done).min(changed_iocbs::MOST as c_long);
        let from = iocbs.wrapping_add(done as usize);
        // SAFETY: the program's contract, a part of it.
        let result = unsafe { submit_part(context, part as usize, from) };
        match result {
            Part::Submitted(all) if all == part => done += all,
            Part::Submitted(some) => return (done + some) as isize,
            // A part of which nothing was taken ends the batch; its errno is told only if it is the first.
            Part::Failed(errno) if done == 0 => return errno,
            Part::Failed(_) => return done as isize,
        }
    }
    done as isize
}

/// True if any of these requests is for a file on a pool.
///
/// # Safety
/// `iocbs` points to `count` pointers to iocbs; null pointers among them are passed over.
unsafe fn any_of_a_pool(iocbs: *mut *mut Iocb, count: c_long) -> bool {
    (0..count as usize).any(|at| {
        // SAFETY: the program's contract.
        let iocb = unsafe { *iocbs.wrapping_add(at) };
        // SAFETY: the program's contract: null, or an iocb.
        let Some(request) = (unsafe { iocb.as_ref() }) else { return false };
        match table::get(request.file) {
            Entry::Nothing => false,
            // Reads of such a file stay on the opened lane.
            Entry::Quiet(_) => trace::on() || !matches!(request.opcode, opcode::PREAD | opcode::PREADV),
            Entry::File(_) | Entry::Lane(_) => true,
        }
    })
}

/// Counts the reads of buffered files among requests that go to the kernel as they are.
///
/// # Safety
/// As [`any_of_a_pool`].
unsafe fn count_buffered(iocbs: *mut *mut Iocb, count: c_long) {
    for at in 0..count as usize {
        // SAFETY: the program's contract.
        let iocb = unsafe { *iocbs.wrapping_add(at) };
        // SAFETY: the program's contract: null, or an iocb.
        if unsafe { iocb.as_ref() }.is_some_and(|request| matches!(table::get(request.file), Entry::Quiet(_))) {
            Reason::Buffered.count();
        }
    }
}

enum Part {
    Submitted(c_long),
    /// `-errno`
    Failed(isize),
}

/// The way in which a request was prepared, so that it can be undone if the kernel does not take it.
#[derive(Clone, Copy)]
enum Prepared {
    /// The library has not touched the request: it goes to the kernel as it is.
    Plain,
    /// The request is counted, and recorded under this key.
    Recorded(u64),
}

/// Submits at most [`changed_iocbs::MOST`] requests.
///
/// # Safety
/// As io_submit(2).
unsafe fn submit_part(context: u64, count: usize, iocbs: *mut *mut Iocb) -> Part {
    let registered = context::find(context);
    let spreads = registered.is_some_and(|(place, found)| found.may_be_spread(place));
    let mut changed = if spreads { ChangedIocbs::claim(context) } else { None };
    let mut prepared = [Prepared::Plain; changed_iocbs::MOST];
    let mut proofs = Proofs::none();
    let now_ns = raw::now_ns();
    let mut ready = 0;
    let mut stopped = None;
    for (at, slot) in prepared.iter_mut().enumerate().take(count) {
        // SAFETY: the program's contract: `count` pointers.
        let iocb = unsafe { *iocbs.wrapping_add(at) };
        if iocb.is_null() {
            ready += 1;
            continue; // the kernel's EFAULT
        }
        // SAFETY: the program's contract: an iocb.
        match unsafe { prepare(registered, changed.as_mut(), iocb, ready > 0, now_ns, &mut proofs) } {
            Ok(done) => *slot = done,
            Err(why) => {
                stopped = Some(why);
                break;
            }
        }
        ready += 1;
    }
    if let Some((_, found)) = registered {
        let recorded = prepared.iter().filter(|slot| matches!(slot, Prepared::Recorded(_))).count();
        found.recorded(recorded as i32);
    }
    let mut result = 0;
    if ready > 0 {
        if let Some(changed) = &changed {
            changed.open();
        }
        // SAFETY: the program's contract; iocbs that the library has changed name open files of lanes.
        result = unsafe { submit_bare(context, ready as c_long, iocbs) };
    }
    if let Some(changed) = changed {
        changed.close();
    }
    let taken = usize::try_from(result).unwrap_or(0);
    let refused = result == -libc::EBADF as isize;
    let mut of_refused = None;
    for (at, slot) in prepared.iter().enumerate().take(ready).skip(taken) {
        if let (Prepared::Recorded(key), Some((_, found))) = (slot, registered)
            && let Some(taken) = inflight::take(*key)
        {
            found.recorded(-1);
            if refused && at == 0 { of_refused = Some(taken) } else { undo(taken, false, now_ns) }
        }
    }
    if let Some(refused) = of_refused {
        // The kernel does not know the lane's file any more, or refuses the request on every lane: the batch is
        // submitted once more, to the opened lane.
        // SAFETY: the program's contract; every iocb has been put back.
        let result = unsafe { submit_bare(context, count as c_long, iocbs) };
        // An error that the opened lane gives as well is the request's.
        undo(refused, result != -libc::EBADF as isize, now_ns);
        return if result < 0 { Part::Failed(result) } else { Part::Submitted(result as c_long) };
    }
    match (result, stopped) {
        (errno, _) if errno < 0 => Part::Failed(errno),
        (0, Some(Stop::Failed(errno))) => Part::Failed(-errno as isize),
        // A request that could not be prepared yet (the same iocb twice) can be prepared now that the first part is in.
        (some, Some(Stop::Later)) if some as usize == ready && ready > 0 => {
            // SAFETY: the program's contract, the rest of it.
            match unsafe { submit_part(context, count - ready, iocbs.wrapping_add(ready)) } {
                Part::Submitted(more) => Part::Submitted(some as c_long + more),
                Part::Failed(_) => Part::Submitted(some as c_long),
            }
        }
        (some, _) => Part::Submitted(some as c_long),
    }
}

enum Stop {
    /// The request fails with this errno.
    Failed(c_int),
    /// The request has to wait until the requests before it have been submitted.
    Later,
}

/// Chooses a lane for one request, changes its iocb and records it. `begun` is true if the request is not the first of
/// its batch.
///
/// # Safety
/// The iocb is valid.
unsafe fn prepare(
    registered: Option<(usize, &'static Context)>,
    changed: Option<&mut ChangedIocbs>,
    iocb: *mut Iocb,
    begun: bool,
    now_ns: u64,
    proofs: &mut Proofs,
) -> Result<Prepared, Stop> {
    // SAFETY: the program's contract.
    let request = unsafe { iocb.read() };
    let fd = request.file;
    let Some(group) = GroupRef::of(fd) else {
        // The iocb is in this batch already, changed: the second request is submitted afterwards.
        let twice = matches!(table::get(fd), Entry::Lane(_)) && changed.is_some_and(|changed| changed.has(iocb));
        return if twice { Err(Stop::Later) } else { Ok(Prepared::Plain) };
    };
    let (kind, vectored) = match request.opcode {
        opcode::PREAD => (Kind::Read, false),
        opcode::PWRITE => (Kind::Write, false),
        opcode::PREADV => (Kind::Read, true),
        opcode::PWRITEV => (Kind::Write, true),
        opcode::FSYNC | opcode::FDSYNC if !proofs.hold(&group, fd) => return Ok(Prepared::Plain),
        opcode::FSYNC | opcode::FDSYNC => {
            // The kernel syncs the opened lane. Before that, the library syncs the writes that other lanes were given
            // and have acknowledged.
            let synced = tracking::sync_lanes(&group, fd, request.opcode == opcode::FDSYNC);
            return synced.map(|()| Prepared::Plain).map_err(Stop::Failed);
        }
        _ => {
            Reason::Opcode.count();
            return Ok(Prepared::Plain);
        }
    };
    if kind == Kind::Write && !group.is_direct() {
        group.node().soil();
    }
    let mut vectors = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; VECTORS];
    let Some((bytes, kept)) = extent(&request, vectored, &mut vectors) else {
        return Ok(Prepared::Plain); // the kernel's EFAULT or EINVAL
    };
    trace::submitted(fd, &group, kind, request.offset, bytes);
    if !group.is_direct() && !group.spreads_buffered() {
        Reason::Buffered.count();
        return Ok(Prepared::Plain);
    }
    let Some((place, found)) = registered else {
        Reason::Ring.count();
        return Ok(Prepared::Plain);
    };
    // Only the opened lane knows where the file ends, and how other flags act.
    let known_flags = libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_HIPRI | libc::RWF_NOWAIT;
    let plain_flags = request.flags & !known_flags == 0;
    let Some(pool) = group.pool() else { return Ok(Prepared::Plain) };
    // Clients of FUSE end reads at the size that they remember, so it must be possible to carry such a read out again.
    let mendable = kind == Kind::Write || !group.node().is_fuse() || (kept > 0 && found.is_fetched_by_function());
    let choice = if plain_flags
        && mendable
        && let Some(changed) = &changed
        && changed.has_room()
    {
        match spread::choose(&group, fd, kind, request.offset, bytes, now_ns, proofs) {
            Chosen::To(choice) => choice,
            Chosen::Stale => return Ok(Prepared::Plain),
            // The program has requests to wait for, and EAGAIN tells it so.
            Chosen::Full if begun || found.has_records() => {
                Reason::Window.count();
                return Err(Stop::Failed(libc::EAGAIN));
            }
            Chosen::Full => spread::own(&group, pool, kind, bytes, now_ns),
        }
    } else {
        if plain_flags { Reason::Ring } else { Reason::Flagged }.count();
        spread::own(&group, pool, kind, bytes, now_ns)
    };
    let record = Record {
        group: group.name(),
        choice,
        opcode: request.opcode,
        flags: request.flags,
        bytes,
        offset: request.offset,
        vectors,
        count: kept,
        counted_in: choice.file.map(|_| group.node_ref()),
    };
    let Some(key) = inflight::key(place, iocb.expose_provenance() as u64) else {
        spread::cancel(&group, &choice, now_ns);
        return Ok(Prepared::Plain);
    };
    if !inflight::enter(key, record) {
        Reason::Busy.count();
        spread::cancel(&group, &choice, now_ns);
        return Ok(Prepared::Plain);
    }
    core::mem::forget(group); // the record has the reference now
    if let (Some(file), Some(changed)) = (choice.file, changed) {
        // SAFETY: the program's contract; the iocb is submitted before `changed` is closed. There is room: `has_room`
        // said so above.
        let _ = unsafe { changed.change(iocb, fd, file) };
    }
    Ok(Prepared::Recorded(key))
}

/// The bytes of a request and their places: the first few vectors, and the number of vectors if all of them fit (0 if
/// not). None if the kernel will refuse the request.
fn extent(request: &Iocb, vectored: bool, vectors: &mut [libc::iovec; VECTORS]) -> Option<(u64, u8)> {
    if !vectored {
        let base: *mut c_void = core::ptr::with_exposed_provenance_mut(request.buffer as usize);
        *vectors.first_mut()? = libc::iovec { iov_base: base, iov_len: request.count as usize };
        return Some((request.count, 1));
    }
    // UIO_MAXIOV: more is EINVAL.
    if request.buffer == 0 || request.count > 1024 {
        return None;
    }
    let given: *const libc::iovec = core::ptr::with_exposed_provenance(request.buffer as usize);
    let mut bytes = 0u64;
    let read = readable::for_each(given, request.count as usize, |at, vector| {
        bytes = bytes.saturating_add(vector.iov_len as u64);
        if let Some(place) = vectors.get_mut(at) {
            *place = vector;
        }
    });
    read.then_some((bytes, if request.count as usize <= VECTORS { request.count as u8 } else { 0 }))
}

/// Undoes a request that the kernel has not taken; `refused` if its lane has no file any more.
fn undo(taken: Taken, refused: bool, now_ns: u64) {
    let group = GroupRef::again(taken.record.group);
    if let Some(node) = taken.record.counted_in {
        node.get().lane_ends();
    }
    let choice = taken.record.choice;
    let ticket = choice.ticket;
    if refused && ticket.lane != group.own() {
        let kind = kind_of(taken.record.opcode);
        spread::finish(&group, &choice, kind, taken.record.offset, -i64::from(libc::EBADF), true, now_ns);
    } else {
        let undone = Choice { file: None, ..choice };
        spread::cancel(&group, &undone, now_ns); // counted as ended above
    }
}

/// Notes that the kernel has completed a request whose event nobody has fetched yet: it is in flight no longer, and
/// its place on its lane is free. `is_so` is asked once nobody can retire the record, whichever request it is of.
pub fn completed(key: u64, is_so: impl FnOnce() -> bool) {
    inflight::change(key, |record| {
        if !is_so() {
            return;
        }
        // The record holds a reference to the group.
        let group = core::mem::ManuallyDrop::new(GroupRef::again(record.group));
        if let Some(node) = record.counted_in.take() {
            // The program may know of the write from memory: its next sync reaches the lane.
            if kind_of(record.opcode) == Kind::Write {
                node.get().lane_write(record.choice.ticket.lane);
            }
            node.get().lane_ends();
        }
        if let Some(pool) = group.pool() {
            spread::given_back(&mut record.choice, pool, raw::now_ns());
        }
    });
}

/// Undoes a request of a context that no longer exists.
fn forget(taken: Taken) {
    undo(taken, false, raw::now_ns());
}

/// `struct timespec` of io_getevents.
pub type Timeout = *mut libc::timespec;

/// io_getevents(2), or io_pgetevents(2) with the signal mask as that takes it.
///
/// # Safety
/// As io_getevents(2) or io_pgetevents(2).
pub unsafe fn get_events(
    context: u64,
    min_count: c_long,
    count: c_long,
    events: *mut Event,
    timeout: Timeout,
    mask: Option<*const c_void>,
) -> isize {
    let bare = |mask: Option<*const c_void>| {
        let number = if mask.is_some() { raw::SYS_IO_PGETEVENTS } else { libc::SYS_io_getevents };
        let mask = mask.map_or(0, |mask| mask as usize);
        let (min_count, count) = (min_count as usize, count as usize);
        // SAFETY: the program's contract.
        unsafe { raw::pass(number, context as usize, min_count, count, events as usize, timeout as usize, mask) }
    };
    let Some((place, found)) = context::find(context) else {
        return bare(mask);
    };
    // Handlers run while the kernel waits, and in no other moment: an event that the kernel has returned is retired.
    let undisturbed = Undisturbed::begin_to_wait();
    let waiting = [undisturbed.mask() as usize, size_of::<u64>()];
    let fetching = found.fetching();
    let result = bare(mask.or_else(|| (waiting[0] != 0).then(|| waiting.as_ptr().cast())));
    let got = usize::try_from(result).unwrap_or(0);
    if got > 0 {
        let now_ns = raw::now_ns();
        let mut retired = 0;
        for at in 0..got {
            let event = events.wrapping_add(at);
            // SAFETY: the kernel has just written it.
            let mut seen = unsafe { event.read() };
            if async_io::translate(&mut seen) {
                // SAFETY: the kernel has just written this event.
                unsafe { event.write(seen) };
                continue;
            }
            changed_iocbs::restore(context, core::ptr::with_exposed_provenance_mut(seen.obj as usize));
            if !found.has_records() {
                continue;
            }
            match retire(place, &mut seen, now_ns) {
                Retired::Unknown => continue,
                Retired::Changed => {
                    // SAFETY: the kernel has just written this event.
                    unsafe { event.write(seen) };
                }
                Retired::AsItCame => {}
            }
            retired += 1;
        }
        if retired > 0 {
            found.recorded(-retired);
        }
    }
    found.fetched(fetching, got as u64);
    result
}

/// The origin of an event that the kernel has returned.
enum Retired {
    /// The event belongs to a request that was not recorded.
    Unknown,
    /// The program gets the event as the kernel made it.
    AsItCame,
    /// The library has changed the event, because the read was done on another lane.
    Changed,
}

/// Takes out the record of a request that has come back. Mends the event of a read that failed because of its lane, or
/// that came back short.
fn retire(place: usize, event: &mut Event, now_ns: u64) -> Retired {
    let Some(taken) = inflight::key(place, event.obj).and_then(inflight::take) else { return Retired::Unknown };
    let Taken { record, certain } = taken;
    let group = GroupRef::again(record.group);
    let kind = kind_of(record.opcode);
    let lane = record.choice.ticket.lane;
    let mut fault = spread::is_lane_fault(event.res);
    let failed = spread::may_be_lane_fault(&group, lane, event.res);
    let short = event.res >= 0 && (event.res as u64) < record.bytes && lane != group.own();
    let counted = event.res;
    let mut done = Retired::AsItCame;
    if kind == Kind::Read && (failed || short) {
        let other = if certain && record.count > 0 { again(&group, &record, short) } else { None };
        if let Some(other) = other {
            // An error that the other lanes give as well is the file's.
            fault = failed && other >= 0;
            if other >= 0 {
                event.res = other as i64;
                event.res2 = 0;
                done = Retired::Changed;
            }
        }
    }
    // Until here nobody closes the descriptors that a read is done again on.
    if let Some(node) = record.counted_in {
        node.get().lane_ends();
    }
    spread::finish(&group, &record.choice, kind, record.offset, counted, fault, now_ns);
    done
}

fn kind_of(code: u16) -> Kind {
    if matches!(code, opcode::PREAD | opcode::PREADV) { Kind::Read } else { Kind::Write }
}

/// Carries a read out on another lane: on the opened one if it came back short, on any if it failed.
fn again(group: &GroupRef, record: &Record, short: bool) -> Option<isize> {
    let carry = |fd: c_int| {
        let count = c_int::from(record.count);
        // SAFETY: the buffers belong to the request until the program has its event, which this function has not
        // returned yet.
        unsafe {
            raw::transfer_vectors(libc::SYS_preadv2, fd, record.vectors.as_ptr(), count, record.offset, record.flags)
        }
    };
    // The program may close its descriptor while the request is in flight; the witness is the opened lane's file for
    // as long as the record has the group.
    let own = group.witness().filter(|_| record.choice.ticket.lane != group.own()).unwrap_or(-1);
    if short {
        if let Some(file) = group.file(record.choice.ticket.lane) {
            raw::revalidate(file);
        }
        (own >= 0).then(|| carry(own))
    } else {
        spread::elsewhere(group, own, record.choice.ticket.lane, carry)
    }
}

/// Retires the request of an event that the program takes from the ring by itself: the library cannot change such an
/// event.
pub fn retire_unseen(place: usize, found: &Context, event: &Event) {
    let Some(taken) = inflight::key(place, event.obj).and_then(inflight::take) else { return };
    found.recorded(-1);
    let group = GroupRef::again(taken.record.group);
    if let Some(node) = taken.record.counted_in {
        node.get().lane_ends();
    }
    let kind = kind_of(taken.record.opcode);
    let fault = spread::is_lane_fault(event.res);
    spread::finish(&group, &taken.record.choice, kind, taken.record.offset, event.res, fault, raw::now_ns());
}

//! POSIX aio: aio_read, aio_write, aio_fsync, lio_listio and what goes with them.
//!
//! glibc carries these out in separate threads, by calls that nobody can intercept, on the descriptor in the aiocb;
//! and it never changes the program's idea of an aiocb but through its own functions. So a request for a file on a pool
//! is given to glibc as a shadow of the program's aiocb with a lane's descriptor in it, and every function that takes
//! an aiocb is asked about the shadow instead. The program's aiocb is read at submission and not touched.
//!
//! (glibc queues the requests of one descriptor one after the other: over lanes they are carried out beside each
//! other.)

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64};

use libc::aiocb;

use crate::abi::errno;
use crate::abi::own_stack;
use crate::abi::raw;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::tracking;
use crate::policy::spread::{self, Choice, Chosen, Kind};
use crate::policy::trace;
use crate::state::closing;
use crate::state::group::GroupRef;
use crate::state::process;
use crate::state::proof::{self, Proofs};
use crate::state::reason::Reason;
use crate::state::table::{self, Entry, Name};

/// The most requests at a time that are spread; others go to glibc as they are.
const RECORDS: usize = 4096;
const PROBES: usize = 16;
/// The most entries of a list that are looked at without allocating; longer lists are not spread.
const LIST: usize = 256;

const FREE: u64 = 0;
/// A place that a thread is filling or emptying.
const BUSY: u64 = 1;

/// The request is with glibc.
const RUNNING: u8 = 0;
/// A thread is settling the end of the request.
const SETTLING: u8 = 1;
/// The request has ended, and its result is there.
const ENDED: u8 = 2;
/// The request is about to be given to glibc, which has not filled its part of the shadow.
const BEGINNING: u8 = 3;

struct Record {
    shadow: UnsafeCell<MaybeUninit<aiocb>>,
    request: UnsafeCell<MaybeUninit<Request>>,
    state: AtomicU8,
    /// True while the request counts as in flight on another lane than the opened one.
    counted: AtomicBool,
    /// True once the request was given back to its pool, before its result was settled.
    given_back: AtomicBool,
    /// Bytes or `-errno`, once the request has ended.
    result: AtomicI64,
}

// SAFETY: shadow and request are written by the thread that moved the key to BUSY, before it publishes the key, and not
// changed while it is there.
unsafe impl Sync for Record {}

#[derive(Clone, Copy)]
struct Request {
    /// The open file of the request; the record holds a reference until the request has ended.
    group: Name,
    fd: c_int,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Transfer {
        kind: Kind,
        choice: Choice,
    },
    /// A sync: `lanes` is the errno of syncing the lanes, before glibc was asked to sync the opened one; 0 if all went
    /// well.
    Sync {
        lanes: c_int,
    },
}

static KEYS: [AtomicU64; RECORDS] = [const { AtomicU64::new(FREE) }; RECORDS];
static ALL: [Record; RECORDS] = [const {
    Record {
        shadow: UnsafeCell::new(MaybeUninit::uninit()),
        request: UnsafeCell::new(MaybeUninit::uninit()),
        state: AtomicU8::new(RUNNING),
        counted: AtomicBool::new(false),
        given_back: AtomicBool::new(false),
        result: AtomicI64::new(0),
    }
}; RECORDS];

fn places(key: u64) -> impl Iterator<Item = usize> {
    let hash = (key >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..PROBES).map(move |probe| (hash as usize + probe) % RECORDS)
}

/// A record with its place.
#[derive(Clone, Copy)]
struct Found {
    place: usize,
    record: &'static Record,
}

fn find(of: *const aiocb) -> Option<Found> {
    let key = of.expose_provenance() as u64;
    if key <= BUSY || !crate::state::lane::has_pools() {
        return None;
    }
    let place = places(key).find(|&place| KEYS.get(place).is_some_and(|found| found.load(Acquire) == key))?;
    Some(Found { place, record: ALL.get(place)? })
}

/// Forgets all requests in a forked child, where glibc has neither threads nor requests.
pub fn forget_all() {
    KEYS.iter().filter(|key| key.load(Relaxed) != FREE).for_each(|key| key.store(FREE, Relaxed));
    RUNNING_NOW.store(0, Relaxed);
}

/// Settles the requests that have ended and that nobody has asked about yet: the thread that waits for lanes to be
/// drained may be the one that would ask. A program may also never ask; its file's lanes are closed all the same.
pub fn look_at_all() {
    if RUNNING_NOW.load(Acquire) == 0 {
        return;
    }
    for (place, record) in ALL.iter().enumerate() {
        let used = KEYS.get(place).is_some_and(|key| key.load(Acquire) > BUSY);
        if used && record.state.load(Acquire) == RUNNING {
            let _ = Found { place, record }.ended(Asked::No);
        }
    }
}

/// Waits for the requests on descriptors from `first` to `last`, which are about to be closed: close(2) of POSIX says
/// that requests complete as if the close had waited for them. (glibc would carry out those that have not begun on
/// another file, or on none.) Nothing is held meanwhile.
pub fn settle(first: c_int, last: c_int) {
    if RUNNING_NOW.load(Acquire) == 0 || first > last || !process::is_own() {
        return;
    }
    let _errno = errno::kept();
    let runs = || {
        let mut records = ALL.iter().enumerate().map(|(place, record)| Found { place, record });
        records.any(|found| found.is_with_glibc() && (first..=last).contains(&found.request().fd))
    };
    while runs() {
        raw::sleep_us(50);
        let _undisturbed = Undisturbed::begin();
        look_at_all();
    }
}

/// The requests whose end was not settled yet.
static RUNNING_NOW: AtomicU32 = AtomicU32::new(0);

/// True if the program has asked about a request, so that its buffer is the library's until the program has the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Yes,
    No,
}

impl Found {
    fn shadow(self) -> *mut aiocb {
        self.record.shadow.get().cast()
    }

    fn request(self) -> Request {
        // SAFETY: written before the key was published; see Record.
        let request = unsafe { &*self.record.request.get() };
        // SAFETY: written before the key was published; see Record.
        unsafe { request.assume_init_read() }
    }

    /// True if glibc has the request, and has not ended it as far as is known.
    fn is_with_glibc(self) -> bool {
        KEYS.get(self.place).is_some_and(|key| key.load(Acquire) > BUSY)
            && self.record.state.load(Acquire) != ENDED
            && !self.record.given_back.load(Acquire)
    }

    fn real_error(self) -> c_int {
        // SAFETY: the shadow was given to glibc.
        unsafe { real::aio_error(self.shadow()) }
    }

    /// Bytes or `-errno`; None while the request is in progress, or while nobody has asked and its read has to be done
    /// again: the program may have freed the buffer of a request that it does not ask about.
    fn ended(self, asked: Asked) -> Option<i64> {
        let state = &self.record.state;
        if asked == Asked::Yes {
            closing::wait_until(|| state.load(Acquire) != SETTLING); // another thread looks at it
        }
        // The record is this thread's before glibc is asked. A thread that asked first could find the next request in
        // the record, and take the answer for that one's.
        match state.compare_exchange(RUNNING, SETTLING, AcqRel, Acquire) {
            Ok(_) => {}
            Err(ENDED) => return Some(self.record.result.load(Acquire)),
            Err(_) => return None,
        }
        let error = self.real_error();
        if error == libc::EINPROGRESS {
            state.store(RUNNING, Release);
            return None;
        }
        // SAFETY: the request has ended, and only the thread that has set SETTLING asks for its result, once.
        let value = unsafe { real::aio_return(self.shadow()) };
        let result = if error == 0 { value as i64 } else { -i64::from(error) };
        // The record's reference, until the request is settled.
        let group = GroupRef::again(self.request().group);
        if self.record.counted.swap(false, SeqCst) {
            group.node().lane_ends();
        }
        if asked == Asked::No && self.is_read_again(result) {
            self.give_back(&group);
            core::mem::forget(group);
            state.store(RUNNING, Release);
            return None;
        }
        let result = self.settle(&group, result);
        self.record.result.store(result, Release);
        RUNNING_NOW.fetch_sub(1, AcqRel);
        state.store(ENDED, Release);
        Some(result)
    }

    /// True if the request is a read that has failed or came back short: perhaps its lane's fault.
    fn is_read_again(self, result: i64) -> bool {
        // SAFETY: `enter` has filled the shadow, and it stays as it is while the record is in use.
        let bytes = unsafe { (*self.shadow()).aio_nbytes } as i64;
        matches!(self.request().what, What::Transfer { kind: Kind::Read, .. }) && result < bytes
    }

    /// Gives the place of a request on its lane back.
    fn give_back(self, group: &GroupRef) {
        if let (What::Transfer { mut choice, .. }, Some(pool)) = (self.request().what, group.pool())
            && !self.record.given_back.swap(true, AcqRel)
        {
            spread::given_back(&mut choice, pool, raw::now_ns());
        }
    }

    /// The result that the program gets: a read that failed because of its lane is done again elsewhere.
    fn settle(self, group: &GroupRef, result: i64) -> i64 {
        let _errno = errno::kept();
        let Request { fd, what, .. } = self.request();
        let given_back = self.record.given_back.load(Acquire);
        match what {
            What::Sync { lanes } if lanes != 0 && result >= 0 => -i64::from(lanes),
            What::Sync { .. } => result,
            What::Transfer { choice, .. } if result == -i64::from(libc::ECANCELED) => {
                // The request has not reached the kernel. It counts as in flight no longer, so the cancelled choice
                // names no file.
                let choice = Choice { file: None, given_back, ..choice };
                spread::cancel(group, &choice, raw::now_ns());
                result
            }
            What::Transfer { kind, choice } => {
                let choice = Choice { given_back, ..choice };
                // SAFETY: `enter` has filled the shadow, and it stays as it is while the record is in use.
                let cb = unsafe { &*self.shadow() };
                let number = if kind == Kind::Read { libc::SYS_pread64 } else { libc::SYS_pwrite64 };
                let (buffer, count, offset) = (cb.aio_buf, cb.aio_nbytes, cb.aio_offset);
                // SAFETY: the buffer is the request's until the program has been told of its end.
                let carry = |file: c_int| unsafe { raw::transfer(number, file, buffer, count, offset) };
                // The program may have closed its descriptor; the number may be another file's by now.
                let own = if proof::means(group, fd) { fd } else { -1 };
                spread::settle(group, own, kind, offset, count as u64, &choice, result as isize, carry) as i64
            }
        }
    }

    /// Frees the record for others. It has given its reference back.
    fn free(self) {
        if let Some(key) = KEYS.get(self.place) {
            key.store(FREE, Release);
        }
    }
}

/// A record for a request that others do not find yet: the shadow is filled, and [`Begun::publish`] publishes `key`.
struct Begun {
    found: Found,
    key: u64,
}

impl Begun {
    fn publish(&self) {
        if let Some(key) = KEYS.get(self.found.place) {
            key.store(self.key, Release);
        }
    }

    /// Notes that glibc has the request.
    fn handed_over(&self) {
        self.found.record.state.store(RUNNING, Release);
    }

    /// Frees the record of a request that glibc has not taken.
    fn undo(self) {
        let Request { group, what, .. } = self.found.request();
        let group = GroupRef::again(group);
        self.found.record.counted.store(false, Relaxed);
        if let What::Transfer { choice, .. } = what {
            spread::cancel(&group, &choice, raw::now_ns());
        }
        RUNNING_NOW.fetch_sub(1, AcqRel);
        self.found.free();
    }
}

/// Chooses a lane for a request of a file on a pool. None if the request goes to glibc as it is.
///
/// # Safety
/// The aiocb is the program's, valid.
unsafe fn begin(of: *mut aiocb, kind: Kind) -> Option<Begun> {
    // SAFETY: the program's contract: null or valid.
    let cb = unsafe { of.as_ref() }?;
    let fd = cb.aio_fildes;
    let group = GroupRef::of(fd)?;
    process::notice_fork();
    // The file was not opened for that: the kernel answers EBADF, which is not a lane's fault.
    let unfit = if kind == Kind::Read { libc::O_WRONLY } else { libc::O_RDONLY };
    if group.flags() & libc::O_ACCMODE == unfit {
        return None;
    }
    let (bytes, offset) = (cb.aio_nbytes as u64, cb.aio_offset);
    trace::transfers(fd, &group, kind, offset, bytes);
    if kind == Kind::Write && !group.is_direct() {
        // The page cache is written at a moment that nobody sees.
        if group.node().ended().is_some() {
            Reason::Buffered.count();
        }
        group.node().end(Reason::Buffered);
        return None;
    }
    if matches!(table::get(fd), Entry::Quiet(_)) {
        Reason::Buffered.count();
        return None;
    }
    let now_ns = raw::now_ns();
    let choice = match spread::choose(&group, fd, kind, offset, bytes, now_ns, &mut Proofs::none()) {
        Chosen::To(choice) => choice,
        Chosen::Full => spread::own(&group, group.pool()?, kind, bytes, now_ns),
        Chosen::Stale => return None,
    };
    // SAFETY: the program's contract: a valid aiocb.
    let begun = unsafe { enter(of, &group, fd, choice.file.unwrap_or(fd), What::Transfer { kind, choice }) };
    if begun.is_none() {
        Reason::Busy.count();
        spread::cancel(&group, &choice, now_ns);
        return None;
    }
    core::mem::forget(group); // the record's
    begun
}

/// # Safety
/// The aiocb is valid.
unsafe fn enter(of: *mut aiocb, group: &GroupRef, fd: c_int, file: c_int, what: What) -> Option<Begun> {
    let key = of.expose_provenance() as u64;
    if let Some(before) = find(of) {
        // The aiocb is used again though nobody has asked about its last request: that one is over, or the program
        // breaks the rules.
        before.ended(Asked::Yes)?;
        before.free();
    }
    let place = places(key).find(|&place| {
        let found = KEYS.get(place);
        found.is_some_and(|found| found.compare_exchange(FREE, BUSY, AcqRel, Relaxed).is_ok())
    })?;
    let record = ALL.get(place)?;
    // SAFETY: the program's contract: a valid aiocb, of which the shadow is a copy.
    let mut shadow = unsafe { of.read() };
    shadow.aio_fildes = file;
    let room: *mut aiocb = record.shadow.get().cast();
    // SAFETY: the key is BUSY, so this thread alone uses the record; see `Record`.
    unsafe { room.write(shadow) };
    let room: *mut Request = record.request.get().cast();
    // SAFETY: the key is BUSY, so this thread alone uses the record; see `Record`.
    unsafe { room.write(Request { group: group.name(), fd, what }) };
    record.state.store(BEGINNING, Relaxed);
    record.counted.store(matches!(what, What::Transfer { choice, .. } if choice.file.is_some()), Relaxed);
    record.given_back.store(false, Relaxed);
    RUNNING_NOW.fetch_add(1, AcqRel);
    Some(Begun { found: Found { place, record }, key })
}

/// Gives a request to glibc, by a shadow or as it is.
///
/// # Safety
/// The aiocb is the program's.
pub unsafe fn submit(of: *mut aiocb, kind: Kind, real: impl Fn(*mut aiocb) -> c_int) -> c_int {
    // SAFETY: the program's contract: null or valid.
    if !unsafe { of.as_ref() }.is_some_and(|cb| table::get(cb.aio_fildes) != Entry::Nothing) {
        return real(of);
    }
    let _undisturbed = Undisturbed::begin();
    let errno_before = errno::get();
    // SAFETY: the program's contract.
    let Some(begun) = (unsafe { begin(of, kind) }) else {
        errno::set(errno_before);
        return real(of);
    };
    hand_over(begun, errno_before, real)
}

/// Gives the shadow of a request to glibc, by `real`, and takes the request back if glibc will not have it.
fn hand_over(begun: Begun, errno_before: c_int, real: impl Fn(*mut aiocb) -> c_int) -> c_int {
    begun.publish();
    let result = real(begun.found.shadow());
    if result != 0 {
        let _errno = errno::kept();
        begun.undo();
    } else {
        begun.handed_over();
        errno::set(errno_before);
    }
    result
}

/// aio_fsync(3): the function syncs the lanes that were written here; glibc syncs the opened lane.
///
/// # Safety
/// The contract of the function of that name in aio(7).
pub unsafe fn fsync(operation: c_int, of: *mut aiocb) -> c_int {
    // SAFETY: the program's contract.
    let sync = |of: *mut aiocb| unsafe { real::aio_fsync(operation, of) };
    // SAFETY: the program's contract: null or valid.
    let Some(fd) = (unsafe { of.as_ref() }).map(|cb| cb.aio_fildes) else { return sync(of) };
    let valid = operation == libc::O_SYNC || operation == libc::O_DSYNC;
    if !valid {
        return sync(of);
    }
    if table::get(fd) == Entry::Nothing {
        return sync(of);
    }
    let _undisturbed = Undisturbed::begin();
    let Some(group) = GroupRef::proven(fd) else { return sync(of) };
    let errno_before = errno::get();
    process::notice_fork();
    trace::synced(fd, operation == libc::O_DSYNC);
    group.node().drain();
    let lanes = tracking::sync_lanes(&group, fd, operation == libc::O_DSYNC).err().unwrap_or(0);
    if lanes == 0 {
        errno::set(errno_before);
        return sync(of);
    }
    // The error is told when the request is asked about, as any other.
    // SAFETY: the program's contract.
    let Some(begun) = (unsafe { enter(of, &group, fd, fd, What::Sync { lanes }) }) else {
        errno::set(lanes);
        return -1;
    };
    core::mem::forget(group);
    hand_over(begun, errno_before, sync)
}

/// aio_error(3).
///
/// # Safety
/// The contract of the function of that name in aio(7).
pub unsafe fn error(of: *const aiocb) -> c_int {
    // SAFETY: the program's contract.
    let Some(found) = find(of) else { return unsafe { real::aio_error(of) } };
    let _undisturbed = Undisturbed::begin();
    match found.ended(Asked::Yes) {
        None => libc::EINPROGRESS,
        Some(result) if result < 0 => -result as c_int,
        Some(_) => 0,
    }
}

/// aio_return(3).
///
/// # Safety
/// The contract of the function of that name in aio(7).
pub unsafe fn result(of: *mut aiocb) -> isize {
    // SAFETY: the program's contract.
    let Some(found) = find(of) else { return unsafe { real::aio_return(of) } };
    let _undisturbed = Undisturbed::begin();
    match found.ended(Asked::Yes) {
        None => {
            errno::set(libc::EINPROGRESS);
            -1
        }
        Some(result) => {
            found.free();
            errno::libc_result(result as isize)
        }
    }
}

/// aio_suspend(3).
///
/// # Safety
/// The contract of the function of that name in aio(7).
pub unsafe fn suspend(list: *const *const aiocb, count: c_int, timeout: *const libc::timespec) -> c_int {
    let mut shadows = [core::ptr::null::<aiocb>(); LIST];
    // SAFETY: the program's contract: `count` pointers, null ones among them.
    match unsafe { of_shadows(list, count, &mut shadows) } {
        // SAFETY: the program's contract; or shadows that `enter` has filled.
        true => unsafe { real::aio_suspend(shadows.as_ptr(), count, timeout) },
        // SAFETY: the program's contract.
        false => unsafe { real::aio_suspend(list, count, timeout) },
    }
}

/// Makes the list with a shadow instead of each aiocb that has one. False if none has, or the list is too long.
///
/// # Safety
/// `list` points to `count` pointers.
unsafe fn of_shadows(list: *const *const aiocb, count: c_int, shadows: &mut [*const aiocb; LIST]) -> bool {
    let Ok(count) = usize::try_from(count) else { return false };
    if list.is_null() || count > LIST || !crate::state::lane::has_pools() {
        return false;
    }
    let mut any = false;
    for (at, place) in shadows.iter_mut().enumerate().take(count) {
        // SAFETY: the program's contract.
        let of = unsafe { *list.wrapping_add(at) };
        *place = match find(of) {
            Some(found) => {
                any = true;
                found.shadow()
            }
            None => of,
        };
    }
    any
}

/// aio_cancel(3).
///
/// # Safety
/// The contract of the function of that name in aio(7).
pub unsafe fn cancel(fd: c_int, of: *mut aiocb) -> c_int {
    // SAFETY: the program's contract; or shadows that `enter` has filled.
    let real = |fd: c_int, of: *mut aiocb| unsafe { real::aio_cancel(fd, of) };
    // SAFETY: `enter` has filled the shadow before it published the key of the record.
    let file = |found: Found| unsafe { (*found.shadow()).aio_fildes };
    if !of.is_null() {
        return match find(of) {
            Some(found) if found.request().fd == fd => real(file(found), found.shadow()),
            _ => real(fd, of),
        };
    }
    let mut result = real(fd, of);
    if result < 0 {
        return result;
    }
    // Requests on other lanes are cancelled one by one. "Not cancelled" outranks "cancelled", which outranks "had
    // ended".
    for (place, record) in ALL.iter().enumerate() {
        let found = Found { place, record };
        let ours = KEYS.get(place).is_some_and(|key| key.load(Acquire) > BUSY);
        if !ours || found.request().fd != fd || file(found) == fd || record.state.load(Acquire) != RUNNING {
            continue;
        }
        result = match (result, real(file(found), found.shadow())) {
            (libc::AIO_NOTCANCELED, _) | (_, libc::AIO_NOTCANCELED) => libc::AIO_NOTCANCELED,
            (libc::AIO_CANCELED, _) | (_, libc::AIO_CANCELED) => libc::AIO_CANCELED,
            (before, _) => before,
        };
    }
    result
}

/// lio_listio(3).
///
/// # Safety
/// The contract of the function of that name in aio(7).
pub unsafe fn list(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut libc::sigevent) -> c_int {
    // SAFETY: the program's contract.
    let submitted = unsafe { submit_list(mode, list, count, event) };
    match submitted {
        Listed::Done(result) => result,
        // SAFETY: the program's contract.
        Listed::Waits => unsafe { wait_for(list, count) },
    }
}

/// The end of the submission of a list.
enum Listed {
    /// The function returns this.
    Done(c_int),
    /// The function waits for all requests of the list.
    Waits,
}

/// Waits for all requests of a list, as lio_listio(3) does with LIO_WAIT. A signal handler may leave the wait.
///
/// # Safety
/// As lio_listio(3).
unsafe fn wait_for(list: *const *mut aiocb, count: c_int) -> c_int {
    let mut failed = false;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the program's contract: `count` pointers.
        let of: *const aiocb = unsafe { *list.wrapping_add(at) };
        // SAFETY: the program's contract: null, or an aiocb.
        let Some(cb) = (unsafe { of.as_ref() }).filter(|cb| cb.aio_lio_opcode != libc::LIO_NOP) else { continue };
        loop {
            // SAFETY: the program's contract.
            match unsafe { error(cb) } {
                0 => break,
                libc::EINPROGRESS => {}
                _ => {
                    failed = true;
                    break;
                }
            }
            // SAFETY: a list of one aiocb, and no limit of time.
            if unsafe { suspend(&raw const of, 1, core::ptr::null()) } != 0 && errno::get() == libc::EINTR {
                return -1;
            }
        }
    }
    if failed {
        errno::set(libc::EIO);
        return -1;
    }
    0
}

/// # Safety
/// As lio_listio(3).
unsafe fn submit_list(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut libc::sigevent) -> Listed {
    // LIO_WAIT has no notification.
    let event = if mode == libc::LIO_WAIT { core::ptr::null_mut() } else { event };
    // SAFETY: the program's contract, or shadows.
    let real_of = |mode: c_int, list: *const *mut aiocb| unsafe { real::lio_listio(mode, list, count, event) };
    let real = |list: *const *mut aiocb| Listed::Done(real_of(mode, list));
    let wanted = usize::try_from(count).unwrap_or(0);
    if list.is_null() || wanted == 0 || wanted > LIST || !crate::state::lane::active() {
        return real(list);
    }
    let of_pools = (0..wanted).any(|at| {
        // SAFETY: the program's contract: `count` pointers.
        let of = unsafe { *list.wrapping_add(at) };
        // SAFETY: the program's contract: null or valid.
        unsafe { of.as_ref() }.is_some_and(|cb| table::get(cb.aio_fildes) != Entry::Nothing)
    });
    if !of_pools || !matches!(mode, libc::LIO_WAIT | libc::LIO_NOWAIT) {
        return real(list);
    }
    let _undisturbed = Undisturbed::begin();
    own_stack::run(|| {
        // SAFETY: the program's contract: `wanted` pointers.
        let result = unsafe { submit_shadows(list, wanted, |list| real_of(libc::LIO_NOWAIT, list)) };
        if mode == libc::LIO_WAIT && result == 0 { Listed::Waits } else { Listed::Done(result) }
    })
}

/// Gives a list to glibc, with a shadow in the place of each request that has one. Returns the result of `real`.
///
/// # Safety
/// `list` points to `wanted` pointers, each null or to an aiocb.
unsafe fn submit_shadows(
    list: *const *mut aiocb,
    wanted: usize,
    real: impl FnOnce(*const *mut aiocb) -> c_int,
) -> c_int {
    let errno_before = errno::get();
    let mut shadows = [core::ptr::null_mut::<aiocb>(); LIST];
    let mut begun = [const { None::<Begun> }; LIST];
    for (at, (shadow, slot)) in shadows.iter_mut().zip(&mut begun).enumerate().take(wanted) {
        // SAFETY: the program's contract: `count` pointers.
        let of = unsafe { *list.wrapping_add(at) };
        // SAFETY: the program's contract: null or valid.
        let kind = match unsafe { of.as_ref() }.map(|cb| cb.aio_lio_opcode) {
            Some(libc::LIO_READ) => Some(Kind::Read),
            Some(libc::LIO_WRITE) => Some(Kind::Write),
            _ => None,
        };
        // SAFETY: the program's contract.
        *slot = kind.and_then(|kind| unsafe { begin(of, kind) });
        *shadow = match slot {
            Some(begun) => {
                begun.publish();
                begun.found.shadow()
            }
            None => of,
        };
    }
    errno::set(errno_before);
    // glibc waits with its own lock held and the requests of the library under way: the library waits instead, where a
    // signal handler may leave.
    let result = real(shadows.as_ptr());
    if result != 0 && errno::get() == libc::EINVAL {
        // Nothing was begun.
        let _errno = errno::kept();
        begun.into_iter().flatten().for_each(Begun::undo);
    } else {
        begun.iter().flatten().for_each(Begun::handed_over);
    }
    result
}

// The layout that shadows rely on.
const _: () = assert!(size_of::<aiocb>() == 168 && size_of::<*mut c_void>() == 8, "aiocb and aiocb64 are the same");

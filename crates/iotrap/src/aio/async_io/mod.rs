//! `IOTRAP_ASYNC=1`: libaio made asynchronous where it is not.
//!
//! Linux carries libaio requests for buffered files out inside io_submit, one after the other, and O_DIRECT writes that
//! allocate likewise. Here such requests go to an io_uring instead, and come back through the kernel's own queue:
//!
//! ```text
//! io_submit ─► Record, its file held ─► list ─► engine's thread ─► io_uring
//!                                                    │
//!              io_submit of a write of nothing, with the program's aio_data, in a shadow of its iocb
//! io_getevents ◄─ kernel's queue: `min_nr`, timeouts, signals, eventfds, other requests: all as ever
//!     └─► the shadow's event gets the program's iocb and the true result
//! ```
//!
//! | part | file |
//! | --- | --- |
//! | the switch, and the calls that wait for requests | this one |
//! | the requests that are taken, of one io_submit | [`batch`] |
//! | records, places for files, the engine's descriptors | [`engine`] |
//! | the thread: list, ring, events | [`driver`] |
//! | io_uring by system calls | [`ring`] |
//! | a request; numbers that are taken and given back | [`record`], [`numbers`] |
//! | the rights and limits of the thread that submits | [`submitter`] |
//!
//! The library carries out reads of data in the page cache on the spot (RWF_NOWAIT); only their events take that way.
//!
//! The library reads the program's iocb at submission and never again, as the kernel does, and looks the file up at
//! submission and never again ([`engine`]). Everybody who reads the ring from memory sees the contents of the kernel's
//! queue. So the library leaves a context alone until the program has fetched events by the function, and for good once
//! the head of its ring has moved by itself ([`crate::aio::context`]). Programs that look for the ring's magic number
//! before they read it (libaio, fio) do not find it and call.
//!
//! The kernel does not promise everything that it does. The library keeps the part that may matter: appends stay in
//! order (they are not taken), an fsync request waits for the writes before it, closing, syncing or truncating a file
//! waits for the requests in flight of that file, and a program that ends or executes another one waits for its writes
//! ([`ending`]).

mod batch;
mod driver;
mod engine;
mod numbers;
mod record;
mod ring;
mod submitter;

use core::ffi::{c_char, c_int, c_long};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::abi::errno;
use crate::abi::libaio::{Event, Iocb};
use crate::abi::raw;
use crate::aio::context::{self, CONTEXTS};
use crate::state::process;
use crate::state::stats::{Line, Out};
use crate::state::table::{self, Entry};
use batch::Batch;
use engine::Engine;
use record::Inode;

static WANTED: AtomicBool = AtomicBool::new(false);
static TELL: AtomicBool = AtomicBool::new(false);
/// Requests that the engine has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Reads that were answered from the page cache.
static CACHED: AtomicU64 = AtomicU64::new(0);
/// Requests of threads that do not have the engine's descriptors, and writes of threads with other rights.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// Threads that end the program at this moment: the engine takes no writes meanwhile.
static ENDING: AtomicU32 = AtomicU32::new(0);

/// Turns asynchronous requests on in this process; with `tell`, their number is told at its end.
pub fn prepare(tell: bool) {
    WANTED.store(true, Release);
    TELL.store(tell, Release);
}

/// The group name under which the engine's descriptors are in the table; a group of that name does not exist.
const NOBODY: table::Name = table::Name { index: 0x3fff_ffff, generation: u32::MAX };

/// True if a descriptor is one of the engine's own, which the program cannot close.
pub fn owns(fd: c_int) -> bool {
    table::get(fd) == Entry::Lane(NOBODY)
}

/// Tells how many requests were made asynchronous, if that was asked for, where the summary goes.
pub fn tell() {
    let (taken, cached, left) = (TAKEN.load(Relaxed), CACHED.load(Relaxed), LEFT.load(Relaxed));
    if TELL.load(Acquire) && taken + cached + left > 0 {
        let out = Out::open();
        let mut line = Line::empty();
        line.push(b"iotrap: ");
        line.number(taken);
        line.push(b" libaio requests were carried out asynchronously, ");
        line.number(cached);
        line.push(b" were in the page cache\n");
        out.line(&line);
        if left > 0 {
            let mut line = Line::empty();
            line.push(b"iotrap: ");
            line.number(left);
            line.push(b" libaio requests were left to the kernel: the library's descriptors were closed, or not in the thread's table, or the thread has given rights up\n");
            out.line(&line);
        }
        out.close();
    }
}

/// True if requests are to be made asynchronous.
#[inline]
pub fn active() -> bool {
    WANTED.load(Relaxed)
}

/// The engine, made if there is none yet. None if there cannot be one, or if another thread makes it at this moment:
/// the kernel carries out the requests that other threads submit meanwhile.
fn engine_or_make() -> Option<&'static Engine> {
    let _errno = errno::kept();
    match engine::get_or_make() {
        Ok(engine) => engine,
        Err(error) => {
            WANTED.store(false, Release);
            let mut line = raw::Digits::<256>::empty();
            line.push(b"iotrap: requests are not made asynchronous: ");
            line.push(match error {
                libc::ENOSYS => b"this kernel has no io_uring (it takes Linux 5.12)" as &[u8],
                libc::EPERM | libc::EACCES => {
                    b"io_uring is forbidden here (sysctl kernel.io_uring_disabled, or a seccomp filter of the container)"
                }
                libc::EOPNOTSUPP => b"io_uring of this kernel is too old (it takes Linux 5.12)",
                libc::EMFILE | libc::ENFILE => b"no descriptors are left for it (raise ulimit -n)",
                _ => b"no memory or no thread is left for it",
            });
            line.push(b"\n");
            crate::abi::said::line(line.as_bytes());
            None
        }
    }
}

/// Forgets the engine in a forked child, which has neither its thread nor its requests. The requests that the parent's
/// engine took stay with the parent.
pub fn forget_all() {
    engine::forget();
    ENDING.store(0, Release);
}

/// The number of events that each context was made for, by its place. It is kept beside the engine, which may come
/// later.
static CAPACITIES: [AtomicU32; CONTEXTS] = [const { AtomicU32::new(0) }; CONTEXTS];

/// Notes that a context was made, for `events` requests at a time.
pub fn context_made(place: usize, events: usize) {
    if let Some(queue) = engine::get().and_then(|engine| engine.queues.get(place)) {
        queue.unfetched.store(0, Relaxed);
    }
    if let Some(capacity) = CAPACITIES.get(place) {
        capacity.store(u32::try_from(events).unwrap_or(u32::MAX), Relaxed);
    }
    context::hide_magic(place);
}

/// Waits until the requests of a context have ended, before the context is destroyed, as the kernel does for its own
/// requests.
pub fn context_ends(place: usize) {
    if let Some(queue) = engine::get().and_then(|engine| engine.queues.get(place)) {
        while queue.pending.load(Acquire) != 0 {
            raw::sleep_us(50);
        }
    }
}

/// Waits until the requests in flight of a descriptor's file have ended, by whatever descriptor they were submitted:
/// before the descriptor is closed, before the file is synced, cut, copied or unlocked, and before its flags change.
#[inline]
pub fn settle(fd: c_int) {
    if is_busy() {
        settle_file(fd);
    }
}

#[cold]
fn settle_file(fd: c_int) {
    process::notice_fork();
    let Some(engine) = engine::get() else { return };
    if let Ok(stat) = raw::fstat(fd) {
        engine.settle(Some(Inode::of(&stat)), false);
    }
}

/// Waits until the requests in flight of the file of a name have ended, before the file is cut by that name. `errno`
/// stays.
///
/// # Safety
/// As stat(2): the path is the program's.
#[inline]
pub unsafe fn settle_path(at: c_int, path: *const c_char) {
    if is_busy() {
        // SAFETY: the path is the program's, as this function demands.
        unsafe { settle_named(at, path) };
    }
}

#[cold]
unsafe fn settle_named(at: c_int, path: *const c_char) {
    let _errno = errno::kept();
    process::notice_fork();
    let Some(engine) = engine::get() else { return };
    // SAFETY: the path is the program's, as `settle_path` demands.
    if let Ok(stat) = unsafe { raw::stat_at(at, path) } {
        engine.settle(Some(Inode::of(&stat)), false);
    }
}

/// Waits until every write in flight has ended: before all files are synced, and before a call that may concern files
/// that the library can't tell from its arguments.
#[inline]
pub fn settle_writes() {
    if is_busy() {
        process::notice_fork();
        if let Some(engine) = engine::get() {
            engine.settle(None, true);
        }
    }
}

/// True if a request is in flight.
#[inline]
fn is_busy() -> bool {
    engine::get().is_some_and(|engine| engine.active.load(SeqCst) != 0)
}

/// Waits until all requests in flight have ended, if the range from `first` to `last` is not empty: before the
/// descriptors of the range are closed.
pub fn settle_range(first: c_int, last: c_int) {
    if first <= last && is_busy() {
        process::notice_fork();
        let Some(engine) = engine::get() else { return };
        engine.settle(None, false);
    }
}

/// A guard of a thread that ends the program, or executes another one: while it is held, the engine takes no writes
/// from the kernel.
pub struct Ending {
    /// The process that is counted in `ENDING`, or 0.
    process: u32,
}

impl Drop for Ending {
    /// The program has not ended: execve(2) has failed. (A child of daemon(3) has forgotten the counted requests.)
    fn drop(&mut self) {
        if self.process != 0 && self.process == raw::pid() {
            ENDING.fetch_sub(1, SeqCst);
        }
    }
}

/// Waits for every write that was submitted, before the program ends or executes another one. From here on the kernel
/// carries out the writes that another thread submits, inside io_submit. (Reads need no waiting: nobody can see them.)
///
/// A child of vfork(2) and a forked child do not have writes: they wait for nothing.
pub fn ending() -> Ending {
    if !active() || !process::is_own() {
        return Ending { process: 0 };
    }
    // SeqCst, as in `Engine::begins`: either this thread sees the write, or its submitter sees this.
    ENDING.fetch_add(1, SeqCst);
    if let Some(engine) = engine::get() {
        while engine.writing.load(SeqCst) != 0 {
            raw::sleep_us(50);
        }
    }
    Ending { process: raw::pid() }
}

/// Waits as `ending` does, for a program that certainly ends: its guard is never given back.
pub fn ends() {
    core::mem::forget(ending());
}

/// Makes no more requests asynchronous in this process, for good: it is about to get a filter of system calls.
pub fn retires() {
    WANTED.store(false, SeqCst);
}

/// Waits until every request has ended and its event is in its queue, and ends the engine's thread. Requests that take
/// longer than `limit_us` microseconds stay with the thread. No thread submits requests any more.
pub fn retired(limit_us: u64) {
    if let Some(engine) = engine::get() {
        engine.end(limit_us);
    }
}

/// io_submit(2): requests that would block go to the engine, the others to `plain`, in their order.
///
/// # Safety
/// The arguments are what io_submit(2) demands.
pub unsafe fn submit(
    id: u64,
    count: c_long,
    iocbs: *mut *mut Iocb,
    plain: impl Fn(c_long, *mut *mut Iocb) -> isize,
) -> isize {
    let ready = context::find(id).filter(|(_, found)| found.is_fetched_by_function());
    let Some((place, _)) = ready.filter(|_| count > 0 && !iocbs.is_null()) else { return plain(count, iocbs) };
    let Some(engine) = engine_or_make() else { return plain(count, iocbs) };
    let mut done = 0;
    let mut batch = Batch::new(engine, place, id);
    // The index of the first request that is not submitted yet and goes to the kernel.
    let mut from = 0;
    for at in 0..count {
        // SAFETY: io_submit(2): there are `count` pointers.
        let iocb = unsafe { *iocbs.wrapping_add(at as usize) };
        if iocb.is_null() {
            continue;
        }
        // The program may change the iocb: what is looked at is what is carried out.
        // SAFETY: io_submit(2): an iocb.
        let request = unsafe { iocb.read() };
        // The requests before this one in the batch are submitted before it.
        let Some(wanted) = batch.would_block(&request) else { continue };
        if from < at {
            batch.hurry();
            let some = plain(at - from, iocbs.wrapping_add(from as usize));
            match some {
                _ if some == (at - from) as isize => done += some,
                some if some < 0 && done == 0 => return some,
                some => return done + some.max(0),
            }
        }
        from = at;
        if batch.take(iocb, &request, &wanted) {
            from = at + 1;
            done += 1;
        }
    }
    if from == count {
        return done;
    }
    batch.hurry();
    match plain(count - from, iocbs.wrapping_add(from as usize)) {
        some if some < 0 && done > 0 => done,
        some => done + some,
    }
}

/// Puts the program's iocb and the true result into an event of the engine. False if the event is not one of the
/// engine's.
#[inline]
pub fn translate(event: &mut Event) -> bool {
    let Some(engine) = engine::get() else { return false };
    let Some(index) = engine.index_of(event.obj) else { return false };
    let record = engine.record(index);
    if let Some(queue) = engine.queues.get(record.place.load(Relaxed) as usize) {
        queue.unfetched.fetch_sub(1, AcqRel);
    }
    event.obj = record.obj.load(Relaxed);
    event.res = record.result.load(Acquire) as i64;
    event.res2 = 0;
    engine.free.give_back(index);
    true
}

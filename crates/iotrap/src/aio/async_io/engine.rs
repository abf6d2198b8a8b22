//! The engine's shared part: records, places for files, and the descriptors by which the program's threads reach the
//! engine's thread.
//!
//! A thread that submits puts the file of each request into the ring's table of files (io_uring_register(2)). That is
//! when the descriptor's number is looked up, in the table of descriptors of the submitting thread, as io_submit(2)
//! does it. From then on the request has its file, whatever becomes of the number, and whatever table the thread has.
//!
//! The engine has three descriptors, with high numbers that the program does not know: the ring, the bell and the place
//! of its shadows. A program can close them anyway. So each use of a number is preceded by a look at the file
//! that the number means ([`Own::is_there`]). A thread that does not find the ring and the bell leaves its requests to
//! the kernel.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

use crate::abi::raw;
use crate::abi::raw_thread::{self, Memory};
use crate::abi::sealed;
use crate::aio::async_io::driver;
use crate::aio::async_io::numbers::Numbers;
use crate::aio::async_io::record::{Inode, NONE, Record, Task};
use crate::aio::async_io::ring::{self, Ring};
use crate::aio::async_io::submitter;
use crate::aio::context::CONTEXTS;
use crate::state::process;
use crate::state::table::{self, Entry};

/// Requests at a time, in all contexts; those beyond are left to the kernel.
pub const RECORDS: usize = 1 << 16;
/// Files that the ring holds at a time: one for each batch of requests of one descriptor.
pub const FILES: usize = 1 << 14;
/// Entries of the ring: operations in the kernel at a time.
pub const WINDOW: u32 = 256;

/// One of the engine's descriptors, with the identity of the file that it has to mean.
pub struct Own {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Own {
    /// Gives `low` a high number, and enters that in the table as the engine's.
    fn adopt(&self, low: c_int) -> raw::Result<()> {
        let number = match process::HighNumbers::reserve().duplicate(low) {
            Ok(high) => {
                let _ = raw::close(low);
                high
            }
            Err(_) => low,
        };
        let stat = raw::fstat(number)?;
        self.device.store(stat.st_dev, Relaxed);
        self.inode.store(stat.st_ino, Relaxed);
        self.number.store(number, Release);
        // A number too high for the table is one that no loop over numbers closes.
        let _ = table::put(number, Entry::Lane(super::NOBODY));
        Ok(())
    }

    /// The number, if it still means the same file: every ring, pipe and memory file has a separate inode.
    pub fn is_there(&self) -> Option<c_int> {
        let number = self.number.load(Acquire);
        if sealed::is_sealed() {
            return Some(number).filter(|&number| number >= 0); // nobody can be asked
        }
        let stat = raw::fstat(number).ok()?;
        let meant = (self.device.load(Relaxed), self.inode.load(Relaxed));
        ((stat.st_dev, stat.st_ino) == meant).then_some(number)
    }

    fn close(&self) {
        let found = self.is_there();
        let number = self.number.swap(-1, AcqRel);
        let _ = table::remove(number, Entry::Lane(super::NOBODY));
        if let Some(number) = found {
            let _ = raw::close(number);
        }
    }
}

/// The requests of one context.
pub struct Queue {
    /// Requests that are with the engine, or on their way into the kernel's queue.
    pub pending: AtomicU32,
    /// Requests that were taken and whose events are not fetched yet: their number is limited, as by the kernel, to the
    /// number that io_setup was given.
    pub unfetched: AtomicU32,
}

/// The engine (see the module). It lies in memory of its own, zeroed: pages come as they are used.
pub struct Engine {
    pub free: Numbers<RECORDS>,
    pub places: Numbers<FILES>,
    /// The number of places that the ring has.
    place_limit: AtomicU32,
    /// The number of requests that use each place.
    uses: [AtomicU32; FILES],
    /// The queues, by the places of their contexts.
    pub queues: [Queue; CONTEXTS],
    /// The number of requests so far.
    order: AtomicU64,
    /// Requests in flight, and those of them that are writes.
    pub active: AtomicU32,
    pub writing: AtomicU32,
    /// The list of records that were submitted and that the engine's thread has not yet taken over: the number of the
    /// last one, plus one.
    queue: AtomicU32,
    /// The engine's thread sleeps, or is about to: it wants to hear the bell.
    asleep: AtomicBool,
    /// The engine's thread ends once it has nothing to do.
    ending: AtomicBool,
    ring: Own,
    /// The end of a pipe whose other end the engine's thread reads.
    bell: Own,
    /// The file that shadows write to: a memory file without contents.
    shadows: Own,
    alive: AtomicU32,
    /// The effective capabilities of the engine's thread, and whether they are known.
    rights: AtomicU64,
    rights_known: AtomicBool,
    /// The ring, until the engine's thread takes it over.
    handed: MaybeUninit<Ring>,
    records: [Record; RECORDS],
}

// SAFETY: all fields are atomic, but records, which belong to one party at a time (see `record`), and `handed`, which
// written before the engine's thread is made and read by that thread only.
unsafe impl Sync for Engine {}

/// The engine of this process; a forked child has none until it needs one.
static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(core::ptr::null_mut());
static MAKING: AtomicBool = AtomicBool::new(false);

/// The engine, if there is one.
#[inline]
pub fn get() -> Option<&'static Engine> {
    let pointer = ENGINE.load(Acquire);
    // SAFETY: the pointer is null or points to the engine's mapping, which nobody unmaps.
    unsafe { pointer.as_ref() }
}

/// The engine, made if there is none yet. None while another thread makes it.
///
/// # Errors
/// The errno that says why an engine cannot be made: io_uring, memory, threads or descriptors are missing.
pub fn get_or_make() -> Result<Option<&'static Engine>, c_int> {
    if let Some(made) = get() {
        return Ok(Some(made));
    }
    if MAKING.swap(true, AcqRel) {
        return Ok(None);
    }
    let made = make()?;
    ENGINE.store(core::ptr::from_ref(made).cast_mut(), Release);
    MAKING.store(false, Release);
    Ok(Some(made))
}

fn make() -> raw::Result<&'static Engine> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new anonymous mapping, at no particular address.
    let room = unsafe { raw::call(libc::SYS_mmap, 0, size_of::<Engine>(), protection, flags, raw::arg(-1), 0) };
    let place: *mut Engine = core::ptr::with_exposed_provenance_mut(raw::check(room)?);
    // SAFETY: page-aligned and zeroed, which is a valid engine; the mapping stays.
    let engine: &'static Engine = unsafe { &*place };
    let started = start(place, engine);
    if started.is_err() {
        [&engine.ring, &engine.bell, &engine.shadows].into_iter().for_each(Own::close);
    }
    started.map(|()| engine)
}

fn start(place: *mut Engine, engine: &'static Engine) -> raw::Result<()> {
    [&engine.ring, &engine.bell, &engine.shadows].into_iter().for_each(|own| own.number.store(-1, Relaxed));
    let (low, made) = ring::make(WINDOW)?;
    engine.ring.adopt(low)?;
    let ring = engine.ring.is_there().ok_or(libc::EBADF)?;
    tell_apart(ring)?;
    let limit = make_file_table(ring)?;
    engine.place_limit.store(limit, Relaxed);
    let mut pipe: [c_int; 2] = [-1; 2];
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
    // SAFETY: the kernel writes two descriptors.
    raw::check(unsafe { raw::call(libc::SYS_pipe2, pipe.as_mut_ptr() as usize, flags, 0, 0, 0, 0) })?;
    let [reads, writes] = pipe;
    // The engine's thread reads the bell by its place in the ring, so that there is one number less.
    let put = ring::put_file(ring, driver::BELL_PLACE, reads);
    let _ = raw::close(reads);
    engine.bell.adopt(writes)?;
    put?;
    // The first places are taken for good: the bell has one of them.
    while engine.places.take(FILES).is_some_and(|taken| taken != driver::BELL_PLACE) {}
    engine.renew_shadows()?;
    // SAFETY: a field of the engine's mapping, which no thread reads yet.
    let handed = unsafe { &raw mut (*place).handed };
    // SAFETY: a field of the engine's mapping, which no thread reads yet.
    unsafe { handed.write(MaybeUninit::new(made)) };
    let memory = raw_thread::map(size_of::<Memory>()).ok_or(libc::ENOMEM)?;
    let memory: *mut Memory = core::ptr::with_exposed_provenance_mut(memory);
    // The thread begins with the rights of this one, and never changes them.
    let rights = submitter::rights();
    engine.rights.store(rights.unwrap_or_default(), Relaxed);
    engine.rights_known.store(rights.is_some(), Relaxed);
    engine.alive.store(1, Release);
    let argument = place.expose_provenance();
    // SAFETY: memory that was just mapped; the engine's mapping stays.
    unsafe { raw_thread::start(memory, c"iotrap-async", live, argument, engine.alive.as_ptr()) }
}

const MEMORY_FILE: &core::ffi::CStr = c"iotrap-async";

/// The life of the engine's thread.
extern "C" fn live(engine: usize) {
    let place: *mut Engine = core::ptr::with_exposed_provenance_mut(engine);
    // SAFETY: nobody unmaps the engine's mapping.
    let engine: &'static Engine = unsafe { &*place };
    // SAFETY: `start` has written the ring before it made this thread, and no other thread reads it.
    let ring = unsafe { engine.handed.as_ptr().read() };
    driver::drive(engine, ring)
}

/// `Ok` if the kernel gives each ring a separate inode (Linux 5.12), so that [`Own::is_there`] is a proof.
fn tell_apart(ring: c_int) -> raw::Result<()> {
    // SAFETY: the system call takes integers only, so it accesses no memory of this process.
    let other = raw::check(unsafe { raw::call(libc::SYS_eventfd2, 0, libc::O_CLOEXEC as usize, 0, 0, 0, 0) })? as c_int;
    let (one, two) = (raw::fstat(ring), raw::fstat(other));
    let _ = raw::close(other);
    if Inode::of(&one?) == Inode::of(&two?) { Err(libc::EOPNOTSUPP) } else { Ok(()) }
}

/// Gives the ring as many places for files as RLIMIT_NOFILE lets it have (io_uring_register(2)), at most [`FILES`].
fn make_file_table(ring: c_int) -> raw::Result<u32> {
    static EMPTY: [c_int; FILES] = [-1; FILES];
    let _raised = process::HighNumbers::reserve();
    let mut wanted = FILES;
    loop {
        match ring::make_file_table(ring, EMPTY.get(..wanted).unwrap_or_default()) {
            Ok(()) => return Ok(wanted as u32),
            Err(libc::EMFILE | libc::ENOMEM) if wanted > 16 => wanted /= 2,
            Err(error) => return Err(error),
        }
    }
}

/// Forgets the engine in a forked child, which has neither its thread nor its requests, and closes the child's copies
/// of the descriptors. (A child that shares its parent's table has no copies.)
pub fn forget() {
    if let Some(engine) = get() {
        ENGINE.store(core::ptr::null_mut(), Release);
        if !process::shares_descriptors() {
            [&engine.ring, &engine.bell, &engine.shadows].into_iter().for_each(Own::close);
        }
    }
    MAKING.store(false, Release);
}

impl Engine {
    /// True if the engine's thread is to end once it has nothing to do.
    pub fn is_ending(&self) -> bool {
        self.ending.load(SeqCst)
    }

    /// Ends the engine's thread and closes the engine's descriptors, if all requests end within `limit_us`
    /// microseconds and their events find room. Records stay: the program may fetch events of them later.
    pub fn end(&self, limit_us: u64) {
        const TURN_US: i64 = 100;
        self.ending.store(true, SeqCst);
        let end_ns = raw::now_ns().saturating_add(limit_us.saturating_mul(1000));
        while self.alive.load(Acquire) != 0 {
            if raw::now_ns() > end_ns {
                return;
            }
            if let Some(bell) = self.bell.is_there() {
                self.ring_bell(bell);
            }
            raw::sleep_us(TURN_US);
        }
        [&self.ring, &self.bell, &self.shadows].into_iter().for_each(Own::close);
    }

    /// A record by its number.
    pub fn record(&self, index: u32) -> &Record {
        &self.records[index as usize % RECORDS]
    }

    /// The task of a record that belongs to the calling party.
    ///
    /// # Safety
    /// The record belongs to the calling party (see `record`), its task was written, and this is the only reference.
    #[allow(clippy::mut_from_ref, reason = "the party that a record belongs to is the only one to call this")]
    pub unsafe fn task(&self, index: u32) -> &mut Task {
        let place = self.record(index).task.get();
        // SAFETY: the caller upholds that the record belongs to its party, and that no other reference to the task
        // lives.
        let task = unsafe { &mut *place };
        // SAFETY: the caller upholds that the task was written since the record was taken.
        unsafe { task.assume_init_mut() }
    }

    /// The number of a record from its address, if it is one.
    pub fn index_of(&self, address: u64) -> Option<u32> {
        let first = self.records.as_ptr().expose_provenance() as u64;
        let offset = address.wrapping_sub(first);
        (offset < size_of_val(&self.records) as u64).then_some((offset / size_of::<Record>() as u64) as u32)
    }

    /// The descriptors of the ring and the bell, if the calling thread has them.
    pub fn reach(&self) -> Option<(c_int, c_int)> {
        Some((self.ring.is_there()?, self.bell.is_there()?))
    }

    /// The effective capabilities of the engine's thread; None if nobody may ask for them.
    pub fn rights(&self) -> Option<u64> {
        self.rights_known.load(Relaxed).then(|| self.rights.load(Relaxed))
    }

    /// The ring's descriptor, if it is there.
    pub fn ring(&self) -> Option<c_int> {
        self.ring.is_there()
    }

    /// The number of a file for shadows; made again if the program has taken the number.
    pub fn shadow_file(&self) -> raw::Result<c_int> {
        match self.shadows.is_there() {
            Some(number) => Ok(number),
            None => {
                let lost = self.shadows.number.swap(-1, AcqRel);
                let _ = table::remove(lost, Entry::Lane(super::NOBODY));
                self.renew_shadows()?;
                self.shadows.is_there().ok_or(libc::EBADF)
            }
        }
    }

    fn renew_shadows(&self) -> raw::Result<()> {
        let (name, flags) = (MEMORY_FILE.as_ptr() as usize, libc::MFD_CLOEXEC as usize);
        // SAFETY: a NUL-terminated name.
        let made = raw::check(unsafe { raw::call(libc::SYS_memfd_create, name, flags, 0, 0, 0, 0) })?;
        self.shadows.adopt(made as c_int)
    }

    /// Puts the file of a descriptor of the calling thread into a free place of the ring; None if there is none, or no
    /// such file. The place has one user.
    pub fn hold(&self, ring: c_int, fd: c_int) -> Option<u32> {
        let place = self.places.take(self.place_limit.load(Relaxed) as usize)?;
        if ring::put_file(ring, place, fd).is_err() {
            self.places.give_back(place);
            return None;
        }
        self.uses.get(place as usize)?.store(1, Release);
        Some(place)
    }

    /// Counts one more user of a place.
    pub fn hold_too(&self, place: u32) {
        if let Some(uses) = self.uses.get(place as usize) {
            uses.fetch_add(1, AcqRel);
        }
    }

    /// Counts one user less of a place. True if that was the last: the caller empties the place and gives it back.
    pub fn let_go(&self, place: u32) -> bool {
        self.uses.get(place as usize).is_some_and(|uses| uses.fetch_sub(1, AcqRel) == 1)
    }

    /// The order of a new request: the number of requests before it.
    pub fn next_order(&self) -> u64 {
        self.order.fetch_add(1, SeqCst)
    }

    /// Gives a record to the engine's thread. [`Engine::ring_bell`] is due afterwards.
    pub fn submit(&self, index: u32) {
        let record = self.record(index);
        let mut last = self.queue.load(Relaxed);
        loop {
            record.next.store(last.wrapping_sub(1), Relaxed);
            match self.queue.compare_exchange_weak(last, index + 1, SeqCst, Relaxed) {
                Ok(_) => return,
                Err(now) => last = now,
            }
        }
    }

    /// Wakes the engine's thread if it sleeps.
    pub fn ring_bell(&self, bell: c_int) {
        if self.asleep.swap(false, SeqCst) {
            raw::write(bell, &[0]);
        }
    }

    /// Takes the records that were submitted since the last time, the last one first, linked by `next`; [`NONE`] if
    /// there are none.
    pub fn take_submitted(&self) -> u32 {
        if self.queue.load(Acquire) == 0 { NONE } else { self.queue.swap(0, SeqCst).wrapping_sub(1) }
    }

    /// Notes that the engine's thread is about to sleep. False if something was submitted: the thread must not sleep.
    pub fn falls_asleep(&self) -> bool {
        self.asleep.store(true, SeqCst);
        let empty = self.queue.load(SeqCst) == 0;
        if !empty {
            self.asleep.store(false, SeqCst);
        }
        empty
    }

    /// Notes that the engine's thread is awake.
    pub fn is_awake(&self) {
        self.asleep.store(false, SeqCst);
    }

    /// Notes that a request has been carried out, and that its files have been let go.
    pub fn ended(&self, index: u32) {
        if self.record(index).ends() {
            self.writing.fetch_sub(1, SeqCst);
        }
        self.active.fetch_sub(1, SeqCst);
    }

    /// Waits until the requests in flight have ended: those of a file, or all; all of them, or only the writes.
    /// Requests that come later are not waited for.
    pub fn settle(&self, inode: Option<Inode>, only_writes: bool) {
        let order = self.order.load(SeqCst);
        for index in 0..self.free.used() {
            while self.record(index).is_among(inode, order, only_writes) {
                raw::sleep_us(20);
            }
        }
    }

    /// True if a write (or a sync) of a file is in flight that was submitted before `order`.
    pub fn has_write_before(&self, inode: Inode, order: u64) -> bool {
        self.writing.load(SeqCst) > 0
            && (0..self.free.used()).any(|index| self.record(index).is_among(Some(inode), order, true))
    }
}

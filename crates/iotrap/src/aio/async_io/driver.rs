//! The engine's thread: from the list of submitted records into the ring, and from there into the kernel's queue.
//!
//! The thread is one of [`crate::abi::raw_thread`]: system calls, atomics and copied memory only.

use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};

use crate::abi::libaio::Iocb;
use crate::abi::raw;
use crate::abi::said;
use crate::aio::async_io::engine::{Engine, WINDOW};
use crate::aio::async_io::record::{NONE, Outcome, Record, Work};
use crate::aio::async_io::ring::{self, Completion, Ring, Submission, operation};

/// The place of the bell in the ring's table of files.
pub const BELL_PLACE: u32 = 0;
/// Completions that are handed to the kernel at a time.
pub const BATCH: usize = 128;
/// The interval at which the thread looks around, though nobody has rung the bell.
const LOOK_NS: u64 = 1_000_000_000;
/// The time after which the thread tries again to put events into a queue that was full.
const RETRY_NS: u64 = 200_000;
/// MAX_RW_COUNT of Linux: longer transfers are cut, as read(2) does it.
pub const MAX_TRANSFER: u64 = 0x7fff_f000;

/// The kinds of completions: the upper half of a completion's data. In the lower half is the number of the record, or
/// the place. A lane's sync has its place in the request's list above the kind.
mod what {
    pub const REQUEST: u64 = 1;
    pub const LANE: u64 = 2;
    pub const BELL: u64 = 3;
    pub const EMPTIED: u64 = 4;
    pub const SIGNALLED: u64 = 5;
}

fn data(what: u64, number: u32) -> u64 {
    what << 32 | u64::from(number)
}

/// The data of a lane's part of a sync: the number of the record, and the lane's place in the request's list.
fn data_of_lane(number: u32, place: u32) -> u64 {
    data(what::LANE, number) | u64::from(place) << LANE_SHIFT
}

const LANE_SHIFT: u32 = 40;

/// Records in order, linked by `next`.
struct List {
    first: u32,
    last: u32,
}

impl List {
    const fn new() -> List {
        List { first: NONE, last: NONE }
    }

    fn is_empty(&self) -> bool {
        self.first == NONE
    }

    fn push(&mut self, engine: &Engine, index: u32) {
        engine.record(index).next.store(NONE, Relaxed);
        if self.first == NONE {
            self.first = index;
        } else {
            engine.record(self.last).next.store(index, Relaxed);
        }
        self.last = index;
    }

    fn pop(&mut self, engine: &Engine) -> Option<u32> {
        let index = self.first;
        if index == NONE {
            return None;
        }
        self.first = engine.record(index).next.load(Relaxed);
        Some(index)
    }
}

struct Driver {
    engine: &'static Engine,
    ring: Ring,
    /// The number of operations of requests in the kernel.
    in_flight: u32,
    bell_armed: bool,
    bell_heard: [u8; 64],
    /// Requests that wait for room in the ring.
    waiting: List,
    /// Syncs that wait for the writes before them.
    syncs: List,
    /// Requests that have been carried out, and whose files are not yet released.
    carried_out: List,
    /// Requests that have ended, and whose events are to be told.
    ended: List,
    /// A write, or a sync, has ended since syncs were last looked at.
    wrote: bool,
}

/// Drives the ring for as long as the process lives, or until the engine is to end.
pub fn drive(engine: &'static Engine, mut ring: Ring) {
    if let Some(descriptor) = engine.ring() {
        ring.belongs_here(descriptor);
    }
    let mut driver = Driver {
        engine,
        ring,
        in_flight: 0,
        bell_armed: false,
        bell_heard: [0; 64],
        waiting: List::new(),
        syncs: List::new(),
        carried_out: List::new(),
        ended: List::new(),
        wrote: false,
    };
    while !driver.is_done() {
        driver.turn();
    }
}

impl Driver {
    /// True if the engine is to end, and nothing of any request is left to do.
    fn is_done(&mut self) -> bool {
        let idle = self.engine.is_ending()
            && self.engine.active.load(SeqCst) == 0
            && self.in_flight == 0
            && [&self.waiting, &self.syncs, &self.carried_out, &self.ended].into_iter().all(List::is_empty);
        if idle {
            // Signals of events that were told, and files that are to be released.
            self.enter(false, 0);
            self.reap();
        }
        idle
    }

    fn turn(&mut self) {
        self.take_over();
        self.begin_waiting();
        self.arm_bell();
        let tells = !self.ended.is_empty();
        let sleeps = self.engine.falls_asleep();
        self.enter(sleeps, if tells { RETRY_NS } else { LOOK_NS });
        self.engine.is_awake();
        if self.reap() {
            // Files are released before anybody hears that the requests have ended.
            self.enter(false, 0);
        }
        while let Some(index) = self.carried_out.pop(self.engine) {
            self.engine.ended(index);
            self.ended.push(self.engine, index);
        }
        self.begin_syncs();
        self.tell();
    }

    fn enter(&mut self, sleeps: bool, limit_ns: u64) {
        if self.ring.is_by_descriptor() && self.engine.ring().is_none() && !self.engine.is_ending() {
            said::line(
                b"iotrap: the program has closed the ring of --async, with requests in flight: it cannot go on\n",
            );
            // SAFETY: integers only; a signal to this process.
            let _ = unsafe { raw::call(libc::SYS_kill, raw::pid() as usize, libc::SIGKILL as usize, 0, 0, 0, 0) };
        }
        let _ = self.ring.enter(sleeps, limit_ns); // out of time, interrupted, or the kernel is short of memory: again
    }

    fn push(&mut self, entry: Submission) {
        while self.ring.room() == 0 {
            self.enter(false, 0);
        }
        self.ring.push(entry);
    }

    fn arm_bell(&mut self) {
        if !self.bell_armed {
            self.bell_armed = true;
            let entry = Submission {
                operation: operation::READ,
                flags: ring::FIXED_FILE,
                file: BELL_PLACE as i32,
                offset: u64::MAX,
                address: self.bell_heard.as_mut_ptr() as u64,
                length: size_of_val(&self.bell_heard) as u32,
                data: data(what::BELL, 0),
                ..Submission::default()
            };
            self.push(entry);
        }
    }

    /// Takes over the submitted records, in their order.
    fn take_over(&mut self) {
        let mut last_first = self.engine.take_submitted();
        let mut in_order = NONE;
        while last_first != NONE {
            let record = self.engine.record(last_first);
            let next = record.next.swap(in_order, Relaxed);
            in_order = last_first;
            last_first = next;
        }
        while in_order != NONE {
            let next = self.engine.record(in_order).next.load(Relaxed);
            self.waiting.push(self.engine, in_order);
            in_order = next;
        }
    }

    fn begin_waiting(&mut self) {
        while self.in_flight < WINDOW
            && let Some(index) = self.waiting.pop(self.engine)
        {
            self.begin(index);
        }
    }

    fn begin(&mut self, index: u32) {
        // SAFETY: the record was submitted: it belongs to this thread, until its event is told.
        let task = unsafe { self.engine.task(index) };
        match task.work {
            Work::Tell => self.ended.push(self.engine, index),
            Work::Transfer { write } => {
                let one = task.vector_count == 1 && task.mapping == 0;
                let [first, ..] = &task.vectors;
                let (address, length) = match one {
                    true => (first.iov_base.expose_provenance() as u64, (first.iov_len as u64).min(MAX_TRANSFER)),
                    false => (task.place_of_vectors().expose_provenance() as u64, u64::from(task.vector_count)),
                };
                let operation = match (write, one) {
                    (false, true) => operation::READ,
                    (true, true) => operation::WRITE,
                    (false, false) => operation::READV,
                    (true, false) => operation::WRITEV,
                };
                task.parts = 1;
                let (file, offset) = (task.file as i32, task.offset);
                self.in_flight += 1;
                self.push(Submission {
                    operation,
                    flags: ring::FIXED_FILE,
                    file,
                    offset,
                    address,
                    length: length as u32,
                    data: data(what::REQUEST, index),
                    ..Submission::default()
                });
            }
            Work::Sync { .. } => {
                let record = self.engine.record(index);
                match self.engine.has_write_before(record.inode(), record.order()) {
                    true => self.syncs.push(self.engine, index),
                    false => self.sync(index),
                }
            }
        }
    }

    fn sync(&mut self, index: u32) {
        // SAFETY: the record was submitted: it belongs to this thread, until its event is told.
        let task = unsafe { self.engine.task(index) };
        let how = if task.work == (Work::Sync { data_only: true }) { ring::DATA_ONLY } else { 0 };
        let (lanes, count, own) = (task.lanes, task.lane_count, task.file);
        task.parts = count as u32 + 1;
        let lanes = lanes.into_iter().take(count).zip(0u32..).map(|(file, at)| (file, data_of_lane(index, at)));
        for (place, data) in lanes.chain([(own, data(what::REQUEST, index))]) {
            self.in_flight += 1;
            self.push(Submission {
                operation: operation::FSYNC,
                flags: ring::FIXED_FILE,
                file: place as i32,
                how,
                data,
                ..Submission::default()
            });
        }
    }

    fn begin_syncs(&mut self) {
        if !core::mem::take(&mut self.wrote) {
            return;
        }
        let mut held = core::mem::replace(&mut self.syncs, List::new());
        while let Some(index) = held.pop(self.engine) {
            self.begin(index);
        }
    }

    /// Takes completions from the ring. True if files are to be released.
    fn reap(&mut self) -> bool {
        let mut releases = false;
        while let Some(Completion { data, result, .. }) = self.ring.completion() {
            let number = data as u32;
            let ended = i64::from(result);
            match data >> 32 & 0xff {
                what::BELL => self.bell_armed = false,
                what::EMPTIED => self.engine.places.give_back(number),
                what::SIGNALLED => releases |= self.let_go(number),
                what::LANE => {
                    let lane = (data >> LANE_SHIFT) as u32;
                    releases |= self.part_ended(number, |outcome| outcome.lane(lane, ended));
                }
                what::REQUEST => releases |= self.part_ended(number, |outcome| outcome.opened(ended)),
                _ => said::line(b"iotrap: the ring of --async has told of a request that was not made\n"),
            }
        }
        releases
    }

    /// Notes that an operation of a request has ended, and `how`. True if files are to be released.
    fn part_ended(&mut self, index: u32, how: impl FnOnce(&mut Outcome)) -> bool {
        self.in_flight -= 1;
        // SAFETY: the record was submitted: it belongs to this thread, until its event is told.
        let task = unsafe { self.engine.task(index) };
        how(&mut task.outcome);
        task.parts -= 1;
        if task.parts > 0 {
            return false;
        }
        task.release();
        self.engine.record(index).result.store(task.outcome.result() as u64, Release);
        self.wrote |= task.work != (Work::Transfer { write: false });
        let (file, lanes, count) = (task.file, task.lanes, task.lane_count);
        let mut releases = self.let_go(file);
        for place in lanes.into_iter().take(count) {
            releases |= self.let_go(place);
        }
        self.carried_out.push(self.engine, index);
        releases
    }

    fn let_go(&mut self, place: u32) -> bool {
        let last = self.engine.let_go(place);
        if last {
            self.push(ring::emptying(place, data(what::EMPTIED, place)));
        }
        last
    }

    /// Puts events into the queues of their contexts, those of each context in the order in which they have ended.
    fn tell(&mut self) {
        let mut rest = core::mem::replace(&mut self.ended, List::new());
        // Contexts whose queues are full: the events for them wait.
        let mut full = [0u64; 16];
        let mut full_count = 0;
        while !rest.is_empty() {
            let mut batch = [NONE; BATCH];
            let mut count = 0;
            let mut context = 0;
            let mut others = List::new();
            while let Some(index) = rest.pop(self.engine) {
                let of = self.engine.record(index).context.load(Relaxed);
                let is_full = full_count == full.len() || full.iter().take(full_count).any(|&id| id == of);
                if is_full {
                    self.ended.push(self.engine, index);
                } else if count == BATCH || (count > 0 && of != context) {
                    others.push(self.engine, index);
                } else if let Some(place) = batch.get_mut(count) {
                    (*place, context) = (index, of);
                    count += 1;
                }
            }
            let told = self.tell_some(batch.get(..count).unwrap_or_default());
            if told < count
                && let Some(place) = full.get_mut(full_count)
            {
                *place = context;
                full_count += 1;
            }
            for &index in batch.get(told..count).unwrap_or_default() {
                self.ended.push(self.engine, index);
            }
            rest = others;
        }
    }

    /// Puts events into the queue of their one context. Returns the number of events that are dealt with.
    fn tell_some(&mut self, batch: &[u32]) -> usize {
        let Ok(file) = self.engine.shadow_file() else { return 0 };
        let mut event_files = [NONE; BATCH];
        for (&index, event_file) in batch.iter().zip(&mut event_files) {
            // SAFETY: the record has ended and its event is not told yet: it belongs to this thread.
            *event_file = unsafe { self.engine.task(index) }.event_file;
            let shadow = self.engine.record(index).shadow.get();
            // SAFETY: the record has ended and its event is not told yet: it belongs to this thread.
            unsafe { Iocb::set_file(shadow, file) };
        }
        let told = self.engine.queue_up(batch);
        for place in event_files.into_iter().take(told).filter(|&place| place != NONE) {
            // As the kernel does it: the event is there when the eventfd says so.
            static ONE: u64 = 1;
            self.push(Submission {
                operation: operation::WRITE,
                flags: ring::FIXED_FILE,
                file: place as i32,
                offset: u64::MAX,
                address: (&raw const ONE) as u64,
                length: size_of::<u64>() as u32,
                data: data(what::SIGNALLED, place),
                ..Submission::default()
            });
        }
        told
    }
}

impl Engine {
    /// Puts the events of records of one context into its queue, in their order. Returns how many are dealt with: told,
    /// or given back because the context no longer exists. The others have to wait: the queue is full, or the file of a
    /// shadow was closed.
    pub fn queue_up(&self, batch: &[u32]) -> usize {
        let mut shadows = [core::ptr::null_mut::<Iocb>(); BATCH];
        let mut done = 0;
        while let Some(&first) = batch.get(done) {
            let record: &Record = self.record(first);
            let (id, place) = (record.context.load(Relaxed), record.place.load(Relaxed));
            let mut count = 0;
            for (shadow, &index) in shadows.iter_mut().zip(batch.iter().skip(done)) {
                *shadow = self.record(index).shadow.get();
                count += 1;
            }
            let list = shadows.as_mut_ptr() as usize;
            // SAFETY: the list has this number of iocbs, which the program keeps until it fetches their events.
            let result = unsafe { raw::pass(libc::SYS_io_submit, id as usize, count, list, 0, 0, 0) };
            // From here on the thread that fetches an event owns its record.
            let told = match result {
                1.. => result as usize,
                // The queue is full, or the descriptor of the shadow is not there.
                _ if result == -libc::EAGAIN as isize || result == -libc::EBADF as isize => return done,
                // Another thread has put another file in the place of the eventfd: the event comes without a signal.
                _ if self.forget_eventfd(first) => continue,
                // The context no longer exists.
                _ => {
                    self.free.give_back(first);
                    1
                }
            };
            done += told;
            if let Some(queue) = self.queues.get(place as usize) {
                queue.pending.fetch_sub(told as u32, AcqRel);
            }
        }
        done
    }

    /// Takes the eventfd out of a shadow that was not queued up. True if the shadow had one.
    fn forget_eventfd(&self, index: u32) -> bool {
        let shadow = self.record(index).shadow.get();
        // SAFETY: the record was not queued up: it belongs to the calling thread.
        let mut iocb = unsafe { shadow.read() };
        if core::mem::take(&mut iocb.options) == 0 {
            return false;
        }
        // SAFETY: the record was not queued up: it belongs to the calling thread.
        unsafe { shadow.write(iocb) };
        true
    }
}

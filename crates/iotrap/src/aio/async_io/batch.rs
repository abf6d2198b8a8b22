//! The requests of one io_submit(2): which of them the kernel would carry out inside io_submit, and their way to the
//! engine.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use crate::abi::libaio::{Iocb, opcode};
use crate::abi::raw;
use crate::abi::readable;
use crate::aio::async_io::driver::{BATCH, MAX_TRANSFER};
use crate::aio::async_io::engine::{Engine, RECORDS};
use crate::aio::async_io::record::{Inode, LANES, NONE, Task, Work};
use crate::aio::async_io::submitter::Submitter;
use crate::aio::async_io::{CACHED, CAPACITIES, ENDING, LEFT, TAKEN, ring};
use crate::state::group::GroupRef;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry};

/// IOCB_FLAG_RESFD of linux/aio_abi.h.
const RESFD: u32 = 1;
/// UIO_MAXIOV: a request of more vectors is EINVAL.
const VECTORS: u64 = 1024;

/// Reads a request from the page cache, all of it or nothing; the number of bytes.
fn read_cached(request: &Iocb) -> Option<u64> {
    let vector = libc::iovec {
        iov_base: core::ptr::with_exposed_provenance_mut(request.buffer as usize),
        iov_len: request.count as usize,
    };
    // SAFETY: the program promises the buffer to io_submit(2); the vector lives for the call.
    let result = unsafe {
        raw::transfer_vectors(libc::SYS_preadv2, request.file, &raw const vector, 1, request.offset, libc::RWF_NOWAIT)
    };
    u64::try_from(result).ok().filter(|&got| got == request.count && got > 0)
}

/// The bytes of all vectors of a request; None if the kernel will refuse them.
fn total(request: &Iocb) -> Option<u64> {
    let count = usize::try_from(request.count).ok().filter(|_| request.count <= VECTORS)?;
    let mut lengths = 0u64;
    for at in 0..count {
        let place = (request.buffer as usize).wrapping_add(at * size_of::<libc::iovec>());
        let vector: libc::iovec = readable::read(core::ptr::with_exposed_provenance(place))?;
        lengths = lengths.checked_add(vector.iov_len as u64)?;
    }
    Some(lengths)
}

fn is_eventfd(fd: c_int) -> bool {
    raw::path_of(fd, &mut [0; 64]) == Some(b"anon_inode:[eventfd]".as_slice())
}

/// A request that is to be taken away from the kernel.
pub struct Wanted {
    work: Work,
    vectored: bool,
    inode: Inode,
}

/// The requests of one call of io_submit.
pub struct Batch {
    engine: &'static Engine,
    place: usize,
    id: u64,
    /// The ring and the bell, once they were looked for; the inner None says that this thread does not have them.
    reach: Option<Option<(c_int, c_int)>>,
    /// The rights and limits of this thread, once they were looked up.
    submitter: Option<Submitter>,
    /// The descriptor of the last request, and the place of its file, of which the batch is a user.
    held: Option<(c_int, u32)>,
    /// The engine's thread has something to take over.
    news: bool,
    /// Reads that were in the page cache: their events are queued up together.
    cached: [u32; BATCH],
    cached_count: usize,
}

impl Batch {
    pub fn new(engine: &'static Engine, place: usize, id: u64) -> Batch {
        Batch {
            engine,
            place,
            id,
            reach: None,
            submitter: None,
            held: None,
            news: false,
            cached: [NONE; BATCH],
            cached_count: 0,
        }
    }

    /// The ring and the bell, if this thread has them. The program may have closed them without the library's
    /// knowledge, or the thread may have left their table of descriptors before they were made (unshare(2)).
    fn reach(&mut self) -> Option<(c_int, c_int)> {
        *self.reach.get_or_insert_with(|| self.engine.reach())
    }

    /// Lets the engine's thread begin, before this one goes on to something that takes time.
    pub fn hurry(&mut self) {
        self.forget_held(); // what the number means may have changed when this thread comes back
        self.tell_cached();
        if core::mem::take(&mut self.news)
            && let Some((_, bell)) = self.reach()
        {
            self.engine.ring_bell(bell);
        }
    }

    /// The work for the engine in a request that the kernel would carry out inside io_submit. None if the request goes
    /// to the kernel: because it does not block there, because the engine cannot do it, or because something is wrong
    /// with it, which the kernel tells.
    pub fn would_block(&mut self, request: &Iocb) -> Option<Wanted> {
        let (write, vectored) = match request.opcode {
            opcode::PREAD => (false, false),
            opcode::PWRITE => (true, false),
            opcode::PREADV => (false, true),
            opcode::PWRITEV => (true, true),
            opcode::FSYNC | opcode::FDSYNC => return self.would_sync(request),
            _ => return None,
        };
        let plain = request.flags == 0 && request.options & !RESFD == 0 && request.is_unreserved();
        // The kernel refuses such requests inside io_submit: the bytes that it takes at a time have to lie below
        // the largest offset.
        let most = if vectored { MAX_TRANSFER } else { request.count.min(MAX_TRANSFER) };
        let in_range = |from: u64, bytes: u64| from.checked_add(bytes).is_some_and(|end| i64::try_from(end).is_ok());
        let sane = request.offset >= 0
            && request.file >= 0
            && i64::try_from(request.count).is_ok()
            && in_range(request.offset as u64, most)
            && (vectored || in_range(request.buffer, request.count));
        let full =
            self.engine.queues.get(self.place)?.unfetched.load(Relaxed) >= CAPACITIES.get(self.place)?.load(Relaxed);
        if !plain || !sane || full {
            return None;
        }
        let flags = raw::fcntl(request.file, libc::F_GETFL, 0).ok()?;
        let direct = flags & libc::O_DIRECT != 0;
        let access = flags & libc::O_ACCMODE;
        let allowed = access == libc::O_RDWR || access == if write { libc::O_WRONLY } else { libc::O_RDONLY };
        // Appends are done in the order in which they are submitted.
        let appends = write && flags & libc::O_APPEND != 0;
        // Files of a pool: O_DIRECT requests have a lane chosen, and writes have to be known to the file's other users.
        let of_a_pool = table::get(request.file) != Entry::Nothing && (direct || write);
        if !allowed || appends || of_a_pool || flags & libc::O_PATH != 0 || (direct && !write) {
            return None;
        }
        let stat = raw::fstat(request.file).ok()?;
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => {}
            libc::S_IFBLK if !direct => {}
            _ => return None,
        }
        let bytes = if vectored { total(request)? } else { request.count };
        let end = (request.offset as u64).saturating_add(bytes);
        // The program may look for the end of the file, or append there, as soon as io_submit has returned.
        let extends = write && stat.st_mode & libc::S_IFMT == libc::S_IFREG && end > stat.st_size as u64;
        let has_holes = (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64;
        if extends || (direct && !has_holes) {
            return None;
        }
        if write && !self.may_write_by_engine(end) {
            return None;
        }
        let possible = !vectored || (request.buffer != 0 && request.count <= VECTORS);
        let wanted = Wanted { work: Work::Transfer { write }, vectored, inode: Inode::of(&stat) };
        possible.then_some(wanted)
    }

    /// True if a write that ends there is the same when the engine's thread carries it out.
    fn may_write_by_engine(&mut self, end: u64) -> bool {
        let engine = self.engine;
        let submitter = *self.submitter.get_or_insert_with(|| Submitter::here(engine.rights()));
        if !submitter.has_same_rights() {
            LEFT.fetch_add(1, Relaxed);
        }
        submitter.has_same_rights() && submitter.may_reach(end)
    }

    /// The work of a sync. The engine takes a sync after writes that it has taken, and a sync of other lanes, which the
    /// library syncs in any case.
    fn would_sync(&self, request: &Iocb) -> Option<Wanted> {
        let nothing = (request.buffer, request.count, request.offset) == (0, 0, 0);
        if request.options & !RESFD != 0 || request.flags != 0 || !nothing {
            return None;
        }
        let lanes = GroupRef::of(request.file).is_some_and(|group| group.node().lanes_to_sync(group.own()) != 0);
        if !lanes && self.engine.writing.load(Acquire) == 0 {
            return None;
        }
        let inode = Inode::of(&raw::fstat(request.file).ok()?);
        let work = Work::Sync { data_only: request.opcode == opcode::FDSYNC };
        let due = lanes || self.engine.has_write_before(inode, u64::MAX);
        due.then_some(Wanted { work, vectored: false, inode })
    }

    /// Gives a request to the engine. False if that cannot be: the request is the kernel's.
    pub fn take(&mut self, iocb: *mut Iocb, request: &Iocb, wanted: &Wanted) -> bool {
        let engine = self.engine;
        let Some(queue) = engine.queues.get(self.place) else { return false };
        // With any other descriptor than an eventfd, the kernel tells what is wrong.
        if request.options & RESFD != 0 && !is_eventfd(request.event_file) {
            return false;
        }
        let Some((ring, _)) = self.reach() else {
            LEFT.fetch_add(1, Relaxed);
            return false;
        };
        let Some(index) = engine.free.take(RECORDS) else {
            Reason::Busy.count();
            return false;
        };
        // The lanes that a sync has to reach beside the opened one. The engine does not mark them as synced: the next
        // sync reaches them once more.
        let syncs = matches!(wanted.work, Work::Sync { .. });
        let group = if syncs { GroupRef::of(request.file) } else { None };
        let lanes = group.as_ref().map_or(0, |group| group.node().lanes_to_sync(group.own()));
        let record = engine.record(index);
        let mut task = Task::new(wanted.work, request.offset as u64);
        // SAFETY: the record was free: it belongs to this thread.
        unsafe { record.shadow.get().write(Iocb::write_of_nothing(-1, request.data)) };
        record.obj.store(iocb.expose_provenance() as u64, Relaxed);
        record.place.store(self.place as u32, Relaxed);
        record.context.store(self.id, Relaxed);
        queue.pending.fetch_add(1, AcqRel);
        queue.unfetched.fetch_add(1, AcqRel);
        if wanted.work == (Work::Transfer { write: false })
            && !wanted.vectored
            && let Some(bytes) = read_cached(request)
        {
            record.result.store(bytes, Relaxed);
            CACHED.fetch_add(1, Relaxed);
            self.add_cached(index, request);
            return true;
        }
        // SAFETY: io_submit(2): the request's vectors are there.
        let filled = unsafe { self.fill(&mut task, ring, request, wanted) };
        let held = group.as_ref().is_none_or(|group| self.hold_lanes(&mut task, ring, group, lanes));
        if filled && held && self.begins(index, wanted) {
            // SAFETY: the record belongs to this thread until it is submitted.
            unsafe { (*record.task.get()).write(task) };
            engine.submit(index);
            self.news = true;
            TAKEN.fetch_add(1, Relaxed);
            return true;
        }
        task.release();
        let places = task.lanes.into_iter().take(task.lane_count);
        places.chain([task.file, task.event_file]).for_each(|place| self.let_go(ring, place));
        queue.pending.fetch_sub(1, AcqRel);
        queue.unfetched.fetch_sub(1, AcqRel);
        engine.free.give_back(index);
        false
    }

    /// Holds the request's files and copies its vectors. False if that cannot be.
    ///
    /// # Safety
    /// The request is one that the kernel could be given.
    unsafe fn fill(&mut self, task: &mut Task, ring: c_int, request: &Iocb, wanted: &Wanted) -> bool {
        let engine = self.engine;
        let place = match self.held {
            Some((fd, place)) if fd == request.file => {
                engine.hold_too(place);
                Some(place)
            }
            _ => engine.hold(ring, request.file),
        };
        let Some(place) = place else { return false };
        task.file = place;
        if self.held != Some((request.file, place)) {
            self.forget_held();
            // The batch is a user, too: its requests may end before the next one comes.
            engine.hold_too(place);
            self.held = Some((request.file, place));
        }
        if request.options & RESFD != 0 {
            let Some(place) = engine.hold(ring, request.event_file) else { return false };
            task.event_file = place;
        }
        let start: *mut libc::iovec = core::ptr::with_exposed_provenance_mut(request.buffer as usize);
        match wanted.work {
            Work::Transfer { .. } if wanted.vectored => task.copy_vectors(start, request.count as usize),
            Work::Transfer { .. } => {
                let [first, ..] = &mut task.vectors;
                *first = libc::iovec { iov_base: start.cast(), iov_len: request.count as usize };
                task.vector_count = 1;
                true
            }
            Work::Sync { .. } | Work::Tell => true,
        }
    }

    /// Holds the files of lanes that a sync has to reach. False if that cannot be: a lane that was written through
    /// another descriptor of the program is opened first, inside io_submit (`tracking::sync_lanes`).
    fn hold_lanes(&self, task: &mut Task, ring: c_int, group: &GroupRef, lanes: u32) -> bool {
        for at in (0..LANES).filter(|&at| lanes & 1 << at != 0) {
            let file = group.proven_lanes().find(|&(lane, _)| lane == at).map(|(_, file)| file);
            let held = file.and_then(|file| self.engine.hold(ring, file));
            let (Some(held), Some(place)) = (held, task.lanes.get_mut(task.lane_count)) else { return false };
            *place = held;
            task.lane_count += 1;
        }
        true
    }

    /// Notes that the request is in flight from here on. False if the program is about to end: the engine takes no
    /// writes any more.
    fn begins(&self, index: u32, wanted: &Wanted) -> bool {
        let engine = self.engine;
        let writes = matches!(wanted.work, Work::Transfer { write: true } | Work::Sync { .. });
        engine.active.fetch_add(1, SeqCst);
        if writes {
            // SeqCst, as in `ending`: either this thread sees that the program ends, or the ending one sees the write.
            engine.writing.fetch_add(1, SeqCst);
            if ENDING.load(SeqCst) != 0 {
                engine.writing.fetch_sub(1, SeqCst);
                engine.active.fetch_sub(1, SeqCst);
                return false;
            }
        }
        engine.record(index).begins(wanted.inode, writes, engine.next_order());
        true
    }

    fn forget_held(&mut self) {
        if let Some((_, place)) = self.held.take()
            && let Some((ring, _)) = self.reach()
        {
            self.let_go(ring, place);
        }
    }

    /// Undoes one `hold`, on the thread that has made the `hold`.
    fn let_go(&self, ring: c_int, place: u32) {
        if place != NONE && self.engine.let_go(place) {
            let _ = ring::put_file(ring, place, -1);
            self.engine.places.give_back(place);
        }
    }

    /// Notes the event of a read that was answered from the page cache. Its shadow is a read of nothing from the same
    /// descriptor.
    fn add_cached(&mut self, index: u32, request: &Iocb) {
        let mut shadow = Iocb::write_of_nothing(request.file, request.data);
        shadow.opcode = opcode::PREAD;
        (shadow.options, shadow.event_file) = (request.options, request.event_file);
        // SAFETY: the record belongs to this thread.
        unsafe { self.engine.record(index).shadow.get().write(shadow) };
        if let Some(place) = self.cached.get_mut(self.cached_count) {
            *place = index;
            self.cached_count += 1;
        }
        if self.cached_count == BATCH {
            self.tell_cached();
        }
    }

    fn tell_cached(&mut self) {
        let (batch, count) = (self.cached, core::mem::take(&mut self.cached_count));
        let batch = batch.get(..count).unwrap_or_default();
        // The queue is full, or another thread has closed the descriptor: the engine's thread tells the others.
        for &index in batch.get(self.engine.queue_up(batch)..).unwrap_or_default() {
            let shadow = self.engine.record(index).shadow.get();
            // SAFETY: the record belongs to this thread: it was not queued up.
            let iocb = unsafe { shadow.read() };
            let mut task = Task::new(Work::Tell, 0);
            if iocb.options & RESFD != 0
                && let Some((ring, _)) = self.reach()
                && let Some(place) = self.engine.hold(ring, iocb.event_file)
            {
                task.event_file = place;
            }
            // SAFETY: the record belongs to this thread: it was not queued up.
            unsafe { shadow.write(Iocb::write_of_nothing(-1, iocb.data)) };
            // SAFETY: the record belongs to this thread: it was not queued up.
            unsafe { (*self.engine.record(index).task.get()).write(task) };
            self.engine.submit(index);
            self.news = true;
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.hurry();
    }
}

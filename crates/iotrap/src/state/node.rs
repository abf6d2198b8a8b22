//! A node is the knowledge of the process about one file (inode) on a pool, however often the program has the file
//! open.
//!
//! The program may read a file past the page cache through one descriptor, write it through the cache by another one,
//! lock it by a third one and map it by a fourth one. Each of these uses matters to all descriptors of the file.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use std::sync::OnceLock;

use lanes::LANES_MAX;

use crate::abi::raw;
use crate::state::closing::{self, Closing};
use crate::state::counted::Count;
use crate::state::reason::Reason;
use crate::state::writes;

const NODES: usize = 8192;
/// Places that a search looks at for one file: nobody has thousands of spread files open whose numbers collide.
const PROBES: usize = 64;

/// The node of one file.
pub struct Node {
    count: Count,
    device: AtomicU64,
    inode: AtomicU64,
    /// The size that the file has at least, in bytes: from operations on the opened lane and the kernel, never a guess.
    size: AtomicU64,
    /// Descriptors of the program without O_DIRECT.
    cached: AtomicI32,
    /// Descriptors that may write through the page cache.
    writers: AtomicI32,
    /// The program has, or had, a descriptor that may write.
    written: AtomicBool,
    /// The type of the file system that the file lies on (`f_type` of statfs(2)); 0 if it was not asked for.
    file_system: AtomicI64,
    /// Lanes of the file have page caches of their own: the file is another inode there.
    apart: AtomicBool,
    /// The file lies on a mount that gives requests up (option soft).
    soft: AtomicBool,
    /// The file may lie on a server: its client may carry writes of a killed process out later.
    remote: AtomicBool,
    /// The place of the file in [`writes`], plus one; 0 without one.
    record: AtomicU32,
    /// The number of records, plus one, when no other process had one of this file; 0 if that is not known.
    looked: AtomicU64,
    /// The number of given up records that this process has waited for ([`writes::given_up`]).
    waited: AtomicU64,
    /// The opened lane's page cache is to be written out: the file was written through it.
    dirty: Due,
    /// Each lane is to be synced: it was written.
    syncs: [Due; LANES_MAX],
    /// The opened lane is to be revalidated: other lanes were written.
    lanes_wrote: Due,
    /// Requests on other lanes than the opened one that the kernel has not completed.
    in_flight: AtomicU32,
    /// Threads that change the size of the file at this moment, or parts of the file inside the kernel.
    changing: AtomicU32,
    /// A [`Reason::mark`]: the reason why nothing of the file is spread any more; 0 if the file may be spread.
    ended: AtomicU8,
    /// The locks of the program: [`UNLOCKED`], [`LOCKING`] or [`LOCKED`].
    locks: AtomicU8,
    /// A lock of [`Lock::OfProcess`] is among them, or was.
    locked_by_process: AtomicBool,
}

/// The end of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The first descriptor of the file that the process closes ends it: POSIX locks of fcntl(2), and lockf(3).
    OfProcess,
    /// The last descriptor of the open file ends it: flock(2), open file description locks, leases.
    OfOpenFile,
}

/// Work that writes make due: to sync a lane, to write a page cache out, to revalidate.
///
/// It is due until it has *ended*, and longer if it was called for or begun once more meanwhile. So of two threads that
/// need it at a time each one does it: the second does not rely on the first, which has not ended it, and may fail.
struct Due(AtomicU32);

impl Due {
    /// The work is not due. All numbers above [`Due::CALLED`] are of work under way: of the one that began last.
    const DONE: u32 = 0;
    /// The work was called for since it last began.
    const CALLED: u32 = 1;

    const fn nothing() -> Due {
        Due(AtomicU32::new(Due::DONE))
    }

    fn forget(&self) {
        self.0.store(Due::DONE, Relaxed);
    }

    /// Calls for the work.
    #[inline]
    fn call(&self) {
        // Any other value may be overwritten: the work stays due.
        if self.0.load(SeqCst) != Due::CALLED {
            self.0.store(Due::CALLED, SeqCst);
        }
    }

    #[inline]
    fn is_due(&self) -> bool {
        self.0.load(SeqCst) != Due::DONE
    }

    /// Begins the work, and returns its number for [`Due::ended`]. None if the work is not due.
    #[inline]
    fn begin(&self) -> Option<u32> {
        /// The number of the next work. One work would have to outlast 2^32 others for a number to come twice.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !self.is_due() {
            return None;
        }
        let number = NEXT.fetch_add(1, Relaxed).wrapping_add(Due::CALLED + 1).max(Due::CALLED + 1);
        let due = |now| (now != Due::DONE).then_some(number);
        self.0.fetch_update(SeqCst, SeqCst, due).ok().map(|_| number)
    }

    /// Notes that the work of that number has ended well. Work that fails is never noted: it stays due.
    fn ended(&self, number: u32) {
        let _ = self.0.compare_exchange(number, Due::DONE, SeqCst, SeqCst); // unless more is due
    }
}

/// A sync of a lane that has begun. Dropped without [`LaneSync::done`], it has covered nothing: the lane is still to be
/// synced.
#[derive(Clone, Copy)]
pub struct LaneSync {
    node: NodeRef,
    lane: usize,
    number: u32,
}

impl LaneSync {
    /// Notes that the sync has ended, well or with an error that the program is told.
    pub fn done(self) {
        if let Some(sync) = self.node.get().syncs.get(self.lane) {
            sync.ended(self.number);
        }
    }
}

/// The program has not locked the file.
const UNLOCKED: u8 = 0;
/// A thread is about to lock the file for the first time, and gives up descriptors of the library before.
const LOCKING: u8 = 1;
/// The program locks the file, or has locked it before.
const LOCKED: u8 = 2;

/// True once the program has locked any file by process: before that, nobody looks whose files are locked.
static ANY_LOCKED: AtomicBool = AtomicBool::new(false);

static NODES_OF_PROCESS: [Node; NODES] = [const {
    Node {
        count: Count::free(),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
        size: AtomicU64::new(0),
        cached: AtomicI32::new(0),
        writers: AtomicI32::new(0),
        written: AtomicBool::new(false),
        file_system: AtomicI64::new(0),
        apart: AtomicBool::new(false),
        soft: AtomicBool::new(false),
        remote: AtomicBool::new(false),
        record: AtomicU32::new(0),
        looked: AtomicU64::new(0),
        waited: AtomicU64::new(0),
        dirty: Due::nothing(),
        syncs: [const { Due::nothing() }; LANES_MAX],
        lanes_wrote: Due::nothing(),
        in_flight: AtomicU32::new(0),
        changing: AtomicU32::new(0),
        ended: AtomicU8::new(0),
        locks: AtomicU8::new(UNLOCKED),
        locked_by_process: AtomicBool::new(false),
    }
}; NODES];

/// A reference to a node. It does not implement `Drop`, because it is kept in atomics: the holder releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRef(u32);

impl NodeRef {
    /// The reference as a number, for an atomic.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The reference that [`NodeRef::number`] has turned into this number.
    pub fn of_number(number: u32) -> NodeRef {
        NodeRef(number)
    }

    /// The node. It is valid as long as the reference is held.
    #[inline]
    pub fn get(self) -> &'static Node {
        // The number comes from a search of the table, so it is in range. The mask tells the compiler so.
        &NODES_OF_PROCESS[self.0 as usize % NODES]
    }

    /// Takes another reference; the caller must hold one already.
    pub fn again(self) -> Option<NodeRef> {
        self.get().count.acquire_any().map(|_| self)
    }

    /// True if others hold a reference, too.
    pub fn is_shared(self) -> bool {
        self.get().count.is_shared()
    }

    /// Begins a sync of a lane. None if a sync that has ended covers all of its writes.
    pub fn begin_sync(self, lane: usize) -> Option<LaneSync> {
        self.get().syncs.get(lane)?.begin().map(|number| LaneSync { node: self, lane, number })
    }

    /// Begins a change of the file that the kernel makes on the opened lane, and waits until nothing is in flight on
    /// other lanes. The reference is given back with the value.
    pub fn changes(self) -> Changing {
        self.get().changing.fetch_add(1, SeqCst);
        self.get().drain();
        Changing(self)
    }

    /// Gives this reference back; the last one frees the place of the node.
    pub fn release(self) {
        let node = self.get();
        if node.count.release() {
            closing::close_kept(self.0, keeps);
            if let Some(place) = node.record() {
                writes::leave(place);
            }
            node.count.reset();
            LIVE.fetch_sub(1, SeqCst);
        }
    }
}

/// A guard of a thread that has a file cut, extended or changed in the kernel. While it lives, no request leaves the
/// opened lane, where the kernel puts the requests and the change in an order. Elsewhere a write could extend a file
/// that was just cut, and the client of the opened lane would not hear of it.
pub struct Changing(NodeRef);

impl Changing {
    /// The node of the file.
    pub fn node(&self) -> &'static Node {
        self.0.get()
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.get().changing.fetch_sub(1, SeqCst);
        self.0.release();
    }
}

fn places(device: u64, inode: u64) -> impl Iterator<Item = usize> {
    // Fibonacci hashing: inode numbers count upwards.
    let hash = (inode ^ device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..PROBES).map(move |probe| (hash as usize + probe) % NODES)
}

/// The node of a file that is open already; the caller releases it.
pub fn find(device: u64, inode: u64) -> Option<NodeRef> {
    places(device, inode).find_map(|place| {
        let node = NODES_OF_PROCESS.get(place)?;
        node.count.acquire_any()?;
        // The node's key (device and inode) does not change while this function holds the node.
        if node.device.load(Acquire) == device && node.inode.load(Acquire) == inode {
            return Some(NodeRef(place as u32));
        }
        NodeRef(place as u32).release();
        None
    })
}

/// Keeps a descriptor of a file open ([`closing`]) if closing it would drop a lock of the program. False if it may be
/// closed: within the guard of the caller.
pub fn keeps(_: &Closing, fd: c_int) -> bool {
    is_locked_by_process(fd, |node| closing::keep(node.number(), fd))
}

/// True if closing a descriptor of that file would drop a lock of the program.
pub fn must_stay(_: &Closing, fd: c_int) -> bool {
    is_locked_by_process(fd, |_| {})
}

/// Closes a descriptor of a file of the program, or keeps it if that would drop a lock of the program.
///
/// # Errors
/// The error of close(2).
pub fn close_unlocked(closing: &Closing, fd: c_int) -> raw::Result<()> {
    if keeps(closing, fd) { Ok(()) } else { raw::close(fd) }
}

fn is_locked_by_process(fd: c_int, then: impl FnOnce(NodeRef)) -> bool {
    if !ANY_LOCKED.load(SeqCst) {
        return false;
    }
    let Ok(found) = raw::identity(fd) else { return false };
    find(found.device, found.inode).is_some_and(|node| {
        let locked = node.get().locked_by_process.load(SeqCst);
        if locked {
            then(node);
        }
        node.release();
        locked
    })
}

/// The node of a file that is being opened, found or new; the caller releases it. None if the table is full.
pub fn find_or_make(stat: &libc::stat) -> Option<NodeRef> {
    let (device, inode) = (stat.st_dev, stat.st_ino);
    if let Some(found) = find(device, inode) {
        return Some(found);
    }
    let (place, node, generation) = places(device, inode).find_map(|place| {
        let node = NODES_OF_PROCESS.get(place)?;
        Some((place, node, node.count.claim()?))
    })?;
    node.device.store(device, Relaxed);
    node.inode.store(inode, Relaxed);
    node.size.store(stat.st_size as u64, Relaxed);
    node.cached.store(0, Relaxed);
    node.writers.store(0, Relaxed);
    node.written.store(false, Relaxed);
    node.file_system.store(0, Relaxed);
    node.apart.store(false, Relaxed);
    node.soft.store(false, Relaxed);
    // File systems without a device of their own: those of servers, and some others (`Node::set_file_system`).
    node.remote.store(libc::major(device) == 0, Relaxed);
    node.record.store(0, Relaxed);
    node.looked.store(0, Relaxed);
    node.waited.store(0, Relaxed);
    node.syncs.iter().chain([&node.dirty, &node.lanes_wrote]).for_each(Due::forget);
    node.in_flight.store(0, Relaxed);
    node.changing.store(0, Relaxed);
    node.ended.store(0, Relaxed);
    node.locks.store(UNLOCKED, Relaxed);
    node.locked_by_process.store(false, Relaxed);
    LIVE.fetch_add(1, SeqCst);
    node.count.publish(generation);
    // `end_all` says so first and then looks at the nodes: one of the two sees the other.
    if let Some(reason) = Reason::of_mark(ALL_ENDED.load(SeqCst)) {
        node.end(reason);
    }
    // Another thread may have made a node of this file at the same moment. Both nodes are visible now, so at least one
    // of the two threads sees the other node. The thread that does ends both: one file must not have two nodes that
    // know different things and spread.
    for other in places(device, inode).filter(|&other| other != place) {
        let Some(twin) = NODES_OF_PROCESS.get(other) else { continue };
        if twin.count.acquire_any().is_none() {
            continue;
        }
        if twin.device.load(Acquire) == device && twin.inode.load(Acquire) == inode {
            twin.end(Reason::Tables);
            node.end(Reason::Tables);
        }
        NodeRef(other as u32).release();
    }
    Some(NodeRef(place as u32))
}

/// A [`Reason::mark`]: the reason why nothing of any file is spread any more; 0 without one.
static ALL_ENDED: AtomicU8 = AtomicU8::new(0);

/// Ends the spreading of all files, those that the program opens later too, and waits for what is in flight.
pub fn end_all(reason: Reason) {
    ALL_ENDED.store(reason.mark(), SeqCst);
    for (place, node) in NODES_OF_PROCESS.iter().enumerate() {
        if node.count.acquire_any().is_some() {
            node.end(reason);
            node.drain();
            NodeRef(place as u32).release();
        }
    }
}

/// In a forked child: nothing is known of any file.
pub fn forget_all() {
    ALL_ENDED.store(0, Relaxed); // the child has one thread
    for node in NODES_OF_PROCESS.iter().filter(|node| node.count.in_use()) {
        node.count.reset();
    }
    LIVE.store(0, SeqCst);
}

/// The function that notes the requests which the kernel has completed and whose completions nobody has fetched.
static NOTE_COMPLETED: OnceLock<fn()> = OnceLock::new();

/// Sets the function by which [`note_completed`] notes completed requests, before the first file is spread. The
/// function makes system calls and uses atomics only.
pub fn prepare(note_completed: fn()) {
    let _ = NOTE_COMPLETED.set(note_completed); // once a process
}

/// Notes the requests that the kernel has completed and whose completions nobody has fetched.
pub fn note_completed() {
    if let Some(note_completed) = NOTE_COMPLETED.get() {
        note_completed();
    }
}

/// The number of nodes in use.
static LIVE: AtomicU32 = AtomicU32::new(0);

/// True if any file is known. If not, no descriptor can be one of a known file.
#[inline]
pub fn any() -> bool {
    LIVE.load(SeqCst) != 0
}

impl Node {
    /// The reason why nothing of the file is spread any more; None if the file may be spread.
    #[inline]
    pub fn ended(&self) -> Option<Reason> {
        Reason::of_mark(self.ended.load(SeqCst))
    }

    /// Ends the spreading of the file until the program has closed the file altogether. The first reason stays.
    pub fn end(&self, reason: Reason) {
        if self.ended.compare_exchange(0, reason.mark(), SeqCst, SeqCst).is_ok() {
            reason.count();
        }
    }

    /// Notes that the program is about to lock the file. Before the first lock `gives_up` gives up descriptors of the
    /// library, while other threads that are about to lock the file wait here. Afterwards no thread of the library
    /// closes a descriptor of the file any more, if that would drop the lock ([`closing`]).
    pub fn first_lock(&self, lock: Lock, gives_up: impl FnOnce()) {
        if lock == Lock::OfProcess {
            ANY_LOCKED.store(true, SeqCst);
            self.locked_by_process.store(true, SeqCst);
        }
        if self.locks.compare_exchange(UNLOCKED, LOCKING, SeqCst, SeqCst).is_ok() {
            gives_up();
            self.locks.store(LOCKED, SeqCst);
        } else {
            closing::wait_until(|| self.is_locked());
        }
        closing::wait_for_all();
    }

    /// True if the program locks the file, or has locked it before.
    pub fn is_locked(&self) -> bool {
        self.locks.load(SeqCst) == LOCKED
    }

    /// True if a thread has the file cut, extended or changed at this moment ([`Changing`]).
    pub fn is_changing(&self) -> bool {
        self.changing.load(SeqCst) != 0
    }

    /// True if requests are under way on other lanes than the opened one.
    pub fn has_in_flight(&self) -> bool {
        self.in_flight.load(SeqCst) != 0
    }

    /// The size that the file has at least, in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Acquire)
    }

    /// Notes that the opened lane has read or written up to `end`: the file reaches that far.
    #[inline]
    pub fn reaches(&self, end: u64) {
        if end > self.size.load(Relaxed) {
            self.size.fetch_max(end, AcqRel);
        }
    }

    /// Sets the size to the one that the opened lane tells now: after a truncation and the like. A descriptor whose
    /// number has come to mean another file at this moment changes nothing.
    pub fn measure(&self, fd: c_int) {
        if let Ok((found, bytes)) = raw::measured(fd)
            && (found.device, found.inode) == self.identity()
        {
            self.size.store(bytes, SeqCst);
        }
    }

    /// The device and inode number of the file.
    #[inline]
    pub fn identity(&self) -> (u64, u64) {
        (self.device.load(Relaxed), self.inode.load(Relaxed))
    }

    /// Sets the size to `bytes`, also if that is less than before: the caller knows the new size.
    pub fn cut(&self, bytes: u64) {
        self.size.store(bytes, SeqCst);
    }

    /// Counts a descriptor of the program that comes (`change` is +1) or goes (-1).
    pub fn descriptor(&self, direct: bool, writes: bool, change: i32) {
        if writes && change > 0 {
            self.written.store(true, SeqCst);
        }
        if !direct {
            if writes {
                // Before the count falls: a thread that finds no writer finds the file dirty.
                self.soil();
                self.writers.fetch_add(change, SeqCst);
            }
            self.cached.fetch_add(change, SeqCst);
        }
    }

    /// True if the program has the file open without O_DIRECT.
    #[inline]
    pub fn is_cached(&self) -> bool {
        self.cached.load(SeqCst) > 0
    }

    /// True if the program has the file open for writing without O_DIRECT.
    #[inline]
    pub fn has_writers(&self) -> bool {
        self.writers.load(SeqCst) > 0
    }

    /// True if the program has, or had, the file open for writing in any way.
    #[inline]
    pub fn was_written(&self) -> bool {
        self.written.load(SeqCst)
    }

    /// Notes the type of the file system that the file lies on.
    pub fn set_file_system(&self, kind: i64) {
        /// linux/magic.h
        const RAMFS_MAGIC: i64 = 0x8584_58f6;
        self.file_system.store(kind, SeqCst);
        // These have no device of their own either. Their kernel ends a process only behind its writes.
        if matches!(kind, libc::TMPFS_MAGIC | RAMFS_MAGIC | libc::BTRFS_SUPER_MAGIC) {
            self.remote.store(false, Relaxed);
        }
    }

    /// The type of the file system that the file lies on, if it is known. It stays so: the program's descriptor keeps
    /// the file system mounted.
    pub fn file_system(&self) -> Option<i64> {
        Some(self.file_system.load(SeqCst)).filter(|&kind| kind != 0)
    }

    /// True if the file is known to lie on FUSE.
    #[inline]
    pub fn is_fuse(&self) -> bool {
        /// linux/magic.h
        const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
        self.file_system.load(SeqCst) == FUSE_SUPER_MAGIC
    }

    /// Notes that a lane has a page cache of its own for the file.
    pub fn set_apart(&self) {
        self.apart.store(true, Relaxed);
    }

    /// True if lanes have page caches of their own for the file, as clients of a server have.
    #[inline]
    pub fn is_apart(&self) -> bool {
        self.apart.load(Relaxed)
    }

    /// Notes that a mount of the file gives requests up after a time (option soft): a write that has failed there may
    /// still arrive.
    pub fn set_soft(&self) {
        self.soft.store(true, SeqCst);
    }

    /// True if a mount of the file gives requests up.
    #[inline]
    pub fn is_soft(&self) -> bool {
        self.soft.load(Acquire)
    }

    /// True if a client of FUSE may have cached the whole file: Gluster's quick-read keeps files of at most 1 MiB.
    #[inline]
    pub fn is_small(&self) -> bool {
        const QUICK_READ_BYTES: u64 = 1 << 20;
        self.size() <= QUICK_READ_BYTES
    }

    /// True if the file may lie on a server.
    pub fn is_remote(&self) -> bool {
        self.remote.load(Relaxed)
    }

    /// The place at which the process records its writes of the file for other processes.
    #[inline]
    pub fn record(&self) -> Option<u32> {
        self.record.load(Acquire).checked_sub(1)
    }

    /// Records from now on which writes are in flight ([`writes`]). `own` is the lane that the program has opened.
    /// False if the table of records is full.
    pub fn record_writes(&self, own: usize) -> bool {
        let (device, inode) = self.identity();
        if !self.is_remote() || self.record().is_some() {
            return true;
        }
        let Some(place) = writes::enter(device, inode) else { return false };
        writes::lane_is(place, own, device);
        if self.record.compare_exchange(0, place + 1, AcqRel, Acquire).is_err() {
            writes::leave(place); // another thread was faster
        }
        true
    }

    /// Notes the device of the file on a lane.
    pub fn lane_is(&self, lane: usize, device: u64) {
        if let Some(place) = self.record() {
            writes::lane_is(place, lane, device);
        }
    }

    /// Counts a write that is about to begin on any lane, for other processes. False if nobody records the file's
    /// writes.
    #[inline]
    pub fn write_begins(&self, lane: usize) -> bool {
        self.record().is_some_and(|place| {
            writes::begins(place, lane);
            true
        })
    }

    /// Counts a write as ended that [`Node::write_begins`] has counted.
    #[inline]
    pub fn write_ends(&self, lane: usize) {
        if let Some(place) = self.record() {
            writes::ends(place, lane);
        }
    }

    /// True if another process may have recorded writes of the file.
    #[inline]
    pub fn shares_writes(&self) -> bool {
        self.is_remote() && self.looked.load(SeqCst) != writes::recorded().wrapping_add(1)
    }

    /// Notes that no other process had a record of the file when there were `recorded` records; None if others have.
    pub fn looked_at_writes(&self, recorded: Option<u64>) {
        self.looked.store(recorded.map_or(0, |recorded| recorded.wrapping_add(1)), SeqCst);
    }

    /// The number of given up records whose writes have arrived before this process has used the file.
    pub fn waited(&self) -> u64 {
        self.waited.load(SeqCst)
    }

    /// Notes that the writes of this many given up records have arrived.
    pub fn has_waited(&self, given_up: u64) {
        self.waited.fetch_max(given_up, SeqCst);
    }

    /// Notes that the file is written through the page cache of the opened lane.
    #[inline]
    pub fn soil(&self) {
        self.dirty.call();
    }

    /// Writes out the page cache of the opened lane, so that other lanes see its contents. A file that is soiled again
    /// meanwhile stays dirty. While the program has the file open for buffered writing, only the kernel knows which
    /// pages are dirty, and every call writes out: io_uring and libc's own writes do not pass through `soil`. So does
    /// every call for a file on NFS, where lanes have page caches of their own: children and other programs may write
    /// through the cache of the opened lane, whose client would write it out before a direct request.
    pub fn write_out(&self, fd: c_int) -> raw::Result<()> {
        // A client of FUSE has a cache behind the kernel's, which only a sync empties: a question to a server, too dear
        // for every request.
        let write_out = || if self.is_fuse() { raw::sync(fd, true) } else { raw::write_out(fd) };
        if self.has_writers() || (self.is_apart() && !self.is_fuse()) {
            return write_out();
        }
        if let Some(number) = self.dirty.begin() {
            write_out()?;
            self.dirty.ended(number);
        }
        Ok(())
    }

    /// Notes that a lane other than the opened one is about to be written.
    #[inline]
    pub fn lane_write(&self, lane: usize) {
        self.syncs.get(lane).into_iter().chain([&self.lanes_wrote]).for_each(Due::call);
    }

    /// True if other lanes were given writes since the opened lane was last revalidated.
    pub fn lanes_have_written(&self) -> bool {
        self.lanes_wrote.is_due()
    }

    /// True if the attributes that the client of the opened lane has may be older than writes on other lanes.
    pub fn is_behind(&self) -> bool {
        if self.is_apart() && self.has_in_flight() {
            note_completed(); // a write whose end the program has seen in memory, and the library has not
        }
        self.is_apart() && self.lanes_have_written()
    }

    /// The lanes beside `own` that a sync has to reach, a bit each: those with writes that no sync has covered yet.
    pub fn lanes_to_sync(&self, own: usize) -> u32 {
        let due = |&(lane, sync): &(usize, &Due)| lane != own && sync.is_due();
        self.syncs.iter().enumerate().filter(due).fold(0, |lanes, (lane, _)| lanes | 1 << lane)
    }

    /// Counts a request that begins on another lane.
    #[inline]
    pub fn lane_begins(&self) {
        self.in_flight.fetch_add(1, SeqCst);
    }

    /// Counts a request on another lane as ended: the kernel has completed it.
    #[inline]
    pub fn lane_ends(&self) {
        self.in_flight.fetch_sub(1, SeqCst);
    }

    /// Waits until the kernel has completed everything that is in flight on other lanes.
    pub fn drain(&self) {
        let mut rounds = 0u32;
        while self.in_flight.load(SeqCst) != 0 {
            // Nobody may have fetched the completions yet, least of all the thread that waits here.
            note_completed();
            if self.in_flight.load(SeqCst) == 0 {
                break;
            }
            rounds += 1;
            if rounds < 10 { raw::pause() } else { raw::sleep_us(100) }
        }
    }

    /// Makes the opened lane show the writes of other lanes from now on: in attributes and in the page cache.
    pub fn revalidate(&self, fd: c_int) {
        if let Some(number) = self.lanes_wrote.begin() {
            raw::revalidate(fd);
            self.lanes_wrote.ended(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that no file has: the place is claimed by its numbers.
    fn node(inode: u64) -> NodeRef {
        // SAFETY: integers only: all zeros is a valid status.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        (stat.st_dev, stat.st_ino) = (u64::MAX, inode);
        find_or_make(&stat).unwrap()
    }

    /// A thread that comes while another one writes the page cache out, or revalidates, must not go on before that has
    /// ended.
    #[test]
    fn work_is_due_until_it_has_ended() {
        let due = Due::nothing();
        assert_eq!(due.begin(), None, "nobody has called for it");
        due.call();
        let first = due.begin().unwrap();
        let second = due.begin().expect("the first has not ended");
        due.ended(first);
        assert!(due.is_due(), "the second has not ended, and is the one that its thread waits for");
        due.ended(second);
        assert!(!due.is_due());
        due.call();
        let failed = due.begin();
        assert!(failed.is_some() && due.is_due(), "it has not ended well");
        let third = due.begin().unwrap();
        due.call();
        due.ended(third);
        assert!(due.is_due(), "called for once more meanwhile");
    }

    /// A lane counts as synced when a sync has ended well, and no write and no other sync has begun since it began.
    #[test]
    fn two_syncs_at_a_time_both_reach_the_lane() {
        let file = node(1);
        assert!(file.begin_sync(2).is_none(), "nothing was written");
        file.get().lane_write(2);
        let (first, second) = (file.begin_sync(2).unwrap(), file.begin_sync(2));
        assert!(second.is_some(), "the first sync has not ended, and may fail");
        first.done();
        assert_eq!(
            file.get().lanes_to_sync(0),
            1 << 2,
            "the second sync may cover a write that the first one does not"
        );
        second.unwrap().done();
        assert_eq!(file.get().lanes_to_sync(0), 0);
        file.release();
    }

    /// The last reference to a node goes while the program has opened the file anew and locked it there: closing the
    /// descriptors that were kept for the old node would drop the lock.
    #[test]
    fn what_is_kept_stays_while_a_later_node_of_the_file_is_locked() {
        use std::os::fd::{AsRawFd, IntoRawFd};
        use std::os::unix::fs::MetadataExt;
        let path = std::env::temp_dir().join(format!("iotrap-kept-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let found = file.metadata().unwrap();
        // SAFETY: integers only: all zeros is a valid status.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        (stat.st_dev, stat.st_ino) = (found.dev(), found.ino());
        let kept = file.try_clone().unwrap().into_raw_fd();
        let is_open = || raw::identity(kept).is_ok_and(|now| now.inode == found.ino());
        let before = find_or_make(&stat).unwrap();
        closing::keep(before.number(), kept);
        assert!(before.get().count.release(), "the last reference");
        let later = find_or_make(&stat).unwrap();
        assert_ne!(later, before);
        later.get().first_lock(Lock::OfProcess, || {});
        closing::close_kept(before.number(), keeps);
        before.get().count.reset();
        assert!(is_open(), "the lock of the later node lives as long");
        later.release();
        assert!(!is_open());
        assert!(raw::identity(file.as_raw_fd()).is_ok());
    }

    #[test]
    fn a_sync_covers_no_write_that_began_later_and_none_if_it_fails() {
        let file = node(2);
        file.get().lane_write(1);
        let sync = file.begin_sync(1).unwrap();
        file.get().lane_write(1);
        sync.done();
        assert_eq!(file.get().lanes_to_sync(0), 1 << 1, "a write came later");
        let _failed = file.begin_sync(1).unwrap();
        assert_eq!((file.get().lanes_to_sync(0), file.get().lanes_to_sync(1)), (1 << 1, 0), "it has not ended well");
        file.release();
    }
}

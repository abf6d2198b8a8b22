//! A group is a file as the program opened it once, with the same file on the other lanes: `dup`ed descriptors share
//! it.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use lanes::LANES_MAX;

use crate::abi::raw;
use crate::state::closing::{self, Closing};
use crate::state::counted::Count;
use crate::state::descriptor::Descriptor;
use crate::state::lane;
use crate::state::node::{self, Node, NodeRef};
use crate::state::process;
use crate::state::proof;
use crate::state::reason::Reason;
use crate::state::table::{self, Entry, Name};

const GROUPS: usize = 16384;

/// One open file of the program, and the lanes on which the library has it open too.
pub struct Group {
    count: Count,
    node: AtomicU32,
    pool: AtomicU8,
    own: AtomicU8,
    /// A [`Reason::mark`]: the reason why nothing of the open file is spread; 0 if it may be spread.
    ended: AtomicU8,
    flags: AtomicI32,
    /// The lanes are opened with the first request that may leave the opened lane: [`ASLEEP`], [`WAKING`] or
    /// [`AWAKE`].
    sleep: AtomicU8,
    /// Lanes that another attempt to open is due for, a bit each.
    missing: AtomicU32,
    /// The time of the next attempt to open the file on the missing lanes, in `CLOCK_MONOTONIC` nanoseconds.
    attempt_at: AtomicU64,
    /// The witness: a private duplicate of the program's open file description ([`crate::state::proof`]); -1 without
    /// one.
    witness: Descriptor,
    /// The error (errno) of writing out the page cache, which the kernel tells an open file once; 0 if the program
    /// knows of all such errors.
    lost: AtomicI32,
    /// The descriptor of the file on each lane; -1 where it is not open, which is always so for the opened lane.
    files: [Descriptor; LANES_MAX],
}

/// Flags that lanes can follow; a change of the others makes the file another one than was opened.
pub const FOLLOWED: c_int = libc::O_NONBLOCK | libc::O_NDELAY | libc::O_NOATIME;

/// Nothing of the open file was spread yet, and no lane is open.
const ASLEEP: u8 = 0;
/// A thread is opening the lanes.
const WAKING: u8 = 1;
/// The lanes were opened, or nothing of the open file will be spread.
const AWAKE: u8 = 2;

static GROUPS_OF_PROCESS: [Group; GROUPS] = [const {
    Group {
        count: Count::free(),
        node: AtomicU32::new(0),
        pool: AtomicU8::new(0),
        own: AtomicU8::new(0),
        ended: AtomicU8::new(0),
        flags: AtomicI32::new(0),
        sleep: AtomicU8::new(ASLEEP),
        missing: AtomicU32::new(0),
        attempt_at: AtomicU64::new(0),
        witness: Descriptor::none(),
        lost: AtomicI32::new(0),
        files: [const { Descriptor::none() }; LANES_MAX],
    }
}; GROUPS];

/// True if a file was opened on a lane that is another client: there the same file has another device.
static ANY_APART: AtomicBool = AtomicBool::new(false);

/// True if any file was opened on a lane that is another client.
#[inline]
pub fn any_apart() -> bool {
    ANY_APART.load(SeqCst)
}

/// The place at which the search for a free place begins: the lowest one that was given back, or the one after the
/// last that was taken.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The number of places that were ever taken: those beyond have no group, and nobody has to look at them.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The places that a search for groups looks at.
fn places() -> &'static [Group] {
    GROUPS_OF_PROCESS.get(..TAKEN.load(SeqCst)).unwrap_or(&GROUPS_OF_PROCESS)
}

/// A reference to a group; dropping it may close the lanes' files.
#[derive(Debug)]
pub struct GroupRef {
    name: Name,
}

impl core::ops::Deref for GroupRef {
    type Target = Group;

    #[inline]
    fn deref(&self) -> &Group {
        &GROUPS_OF_PROCESS[self.name.index as usize % GROUPS]
    }
}

impl Drop for GroupRef {
    fn drop(&mut self) {
        let _ = self.give_back(); // errors of closing belong to close(2), which releases by itself
    }
}

impl Clone for GroupRef {
    fn clone(&self) -> GroupRef {
        // This value holds a reference, so the generation cannot have changed; 2^32 references do not fit into a
        // process.
        let _ = self.count.acquire(self.name.generation);
        GroupRef { name: self.name }
    }
}

/// The data that a new group begins with.
pub struct Opened {
    /// The node of the file; the group takes the reference over.
    pub node: NodeRef,
    /// The number of the pool.
    pub pool: usize,
    /// The lane that the program has opened the file through.
    pub own: usize,
    /// The flags of open(2).
    pub flags: c_int,
}

impl GroupRef {
    /// Makes a new group, on the opened lane only.
    ///
    /// # Errors
    /// The table is full: the data comes back, with the reference to the node.
    pub fn new(opened: Opened) -> Result<GroupRef, Opened> {
        let start = NEXT.load(Relaxed);
        for place in 0..GROUPS {
            let index = start.wrapping_add(place) % GROUPS;
            let Some(group) = GROUPS_OF_PROCESS.get(index) else { continue };
            let Some(generation) = group.count.claim() else { continue };
            let _ = NEXT.compare_exchange(start, index + 1, Relaxed, Relaxed); // unless a lower one was given back
            TAKEN.fetch_max(index + 1, SeqCst);
            group.node.store(opened.node.number(), Relaxed);
            group.pool.store(opened.pool as u8, Relaxed);
            group.own.store(opened.own as u8, Relaxed);
            group.ended.store(0, Relaxed);
            group.flags.store(opened.flags, Relaxed);
            group.sleep.store(ASLEEP, Relaxed);
            group.missing.store(0, Relaxed);
            group.witness.store(-1, Relaxed);
            group.lost.store(0, Relaxed);
            group.files.iter().for_each(|file| file.store(-1, Relaxed));
            opened.node.get().descriptor(group.is_direct(), group.writes(), 1);
            group.count.publish(generation);
            return Ok(GroupRef { name: Name { index: index as u32, generation } });
        }
        Err(opened)
    }

    /// The group of that name, if it still lives.
    #[inline]
    pub fn acquire(name: Name) -> Option<GroupRef> {
        let group = GROUPS_OF_PROCESS.get(name.index as usize)?;
        // A value that is made is given back when it is dropped: none is made before the count has gone up.
        if !group.count.acquire(name.generation) {
            return None;
        }
        Some(GroupRef { name })
    }

    /// The group of a file descriptor that the program opened on a pool.
    #[inline]
    pub fn of(fd: c_int) -> Option<GroupRef> {
        if table::get(fd) == Entry::Nothing {
            return None;
        }
        process::notice_fork(); // it may have been the parent's
        match table::get(fd) {
            Entry::File(name) | Entry::Quiet(name) => GroupRef::acquire(name),
            _ => None,
        }
    }

    /// The group of a file descriptor, once the kernel has said that the number still means its file
    /// ([`crate::state::proof`]). A number that means another file is tracked no longer.
    pub fn proven(fd: c_int) -> Option<GroupRef> {
        let group = GroupRef::of(fd)?;
        if proof::means(&group, fd) {
            return Some(group);
        }
        proof::forget(&group, fd);
        None
    }

    /// The reference that a table entry held; the caller has removed the entry.
    pub fn held_by(entry: Entry) -> Option<GroupRef> {
        match entry {
            Entry::File(name) | Entry::Quiet(name) => Some(GroupRef { name }),
            _ => None,
        }
    }

    /// Turns the reference into an entry of a file descriptor, which holds the reference from now on.
    pub fn into_entry(self) -> Entry {
        let name = self.name;
        let quiet = !self.is_direct() && !self.spreads_buffered();
        core::mem::forget(self);
        if quiet { Entry::Quiet(name) } else { Entry::File(name) }
    }

    /// The group's name, without a reference.
    pub fn name(&self) -> Name {
        self.name
    }

    /// A reference that was taken apart by [`GroupRef::into_entry`] or kept as a name.
    pub fn again(name: Name) -> GroupRef {
        GroupRef { name }
    }

    /// Gives the reference back. Returns the first error of closing lanes, if it was the last reference.
    ///
    /// A thread of the library may hold the last reference. The program has closed the file then, and may have opened
    /// and locked it anew: nothing is closed that would drop the lock.
    pub fn release(self) -> raw::Result<()> {
        let result = self.give_back();
        core::mem::forget(self);
        result
    }

    fn give_back(&self) -> raw::Result<()> {
        let group: &Group = self;
        if !group.count.release() {
            return Ok(());
        }
        let witness = self.take_witness();
        let mut result = witness.map_or(Ok(()), |witness| node::close_unlocked(&Closing::begin(), witness));
        for (lane, file) in group.files.iter().enumerate() {
            // Another descriptor of the file may be synced later, when the file's name no longer exists and it cannot
            // be opened on the lane.
            if group.node_ref().is_shared()
                && let Some(fd) = group.file(lane)
                && proof::is_file_of_lane(self.name, lane, fd)
                && let Some(sync) = group.node_ref().begin_sync(lane)
            {
                result = result.and(raw::sync(fd, false).map(|()| sync.done()));
            }
            let closed = group.close_file(lane, file, self.name);
            result = result.and(closed);
        }
        let node = group.node_ref();
        node.get().descriptor(group.is_direct(), group.writes(), -1);
        node.release();
        group.count.reset();
        NEXT.fetch_min(self.name.index as usize, Relaxed);
        result
    }

    /// Enters the file of a lane, which the group closes from now on. False if the lane has a file already, or if the
    /// file cannot be marked or entered.
    pub fn adopt(&self, lane: usize, fd: c_int) -> bool {
        let Some(place) = self.files.get(lane) else { return false };
        if proof::mark(self.name, lane, fd).is_err() || !self.enter_private(fd) {
            return false;
        }
        if let Ok(found) = raw::identity(fd) {
            self.node().lane_is(lane, found.device);
        }
        if !proof::is_inode(fd, self.node().identity()) {
            // The client of a lane is another one: its mount may be soft though that of the opened lane is hard.
            let soft = |of| raw::identity(of).is_ok_and(|found| lanes::nfs::is_soft(found.device));
            if soft(fd) || self.witness().is_some_and(soft) {
                self.node().set_soft();
            }
            self.node().set_apart();
            ANY_APART.store(true, SeqCst);
        }
        place.compare_exchange(-1, fd, AcqRel, Acquire).is_ok() || {
            let _ = table::remove(fd, Entry::Lane(self.name));
            false
        }
    }
}

impl GroupRef {
    /// Keeps a private duplicate of the program's descriptor, by which [`crate::state::proof`] recognises its numbers.
    ///
    /// The duplicate shares the program's open file description. So the kernel's work at the last close (flock(2)
    /// locks, leases, the space of a removed file) happens when the program's close is seen, or, after a close that no
    /// hook sees, when the number is used again. A lock on the file gives the duplicate up first.
    ///
    /// # Errors
    /// EMFILE: the process has no number left, or the program locks the file.
    pub fn watch(&self, fd: c_int) -> raw::Result<()> {
        let _closing = Closing::begin(); // a duplicate that finds no room is closed
        if self.node().is_locked() {
            return Err(libc::EMFILE);
        }
        // Held until the duplicate is entered: see crate::open::others.
        let reserved = process::HighNumbers::reserve();
        let witness = reserved.duplicate(fd)?;
        if !self.enter_private(witness) {
            let _ = raw::close(witness);
            return Err(libc::EMFILE);
        }
        self.witness.store(witness, Release);
        Ok(())
    }

    /// Gives the private duplicate up, without which nothing of the open file is spread any more.
    ///
    /// # Errors
    /// The error of close(2) of the program's file.
    pub fn unwatch(&self) -> raw::Result<()> {
        self.take_witness().map_or(Ok(()), raw::close)
    }

    /// Takes the private duplicate away from the group. None if somebody has taken its number.
    fn take_witness(&self) -> Option<c_int> {
        let witness = self.witness.swap(-1, AcqRel);
        let taken = witness >= 0 && table::remove(witness, Entry::Lane(self.name));
        // The number may have become the program's, if the program has closed all its descriptors and opened other
        // files.
        (taken && proof::is_inode(witness, self.node().identity())).then_some(witness)
    }

    /// Enters a descriptor that the program does not know; false if its number is too high for the table.
    fn enter_private(&self, fd: c_int) -> bool {
        match table::put(fd, Entry::Lane(self.name)) {
            Ok(before) => {
                drop(GroupRef::held_by(before)); // closed where no hook saw it
                true
            }
            Err(()) => false,
        }
    }
}

impl Group {
    /// The private duplicate of the program's descriptor, if there is one.
    #[inline]
    pub fn witness(&self) -> Option<c_int> {
        Some(self.witness.load(Acquire)).filter(|&witness| witness >= 0)
    }

    /// The node of the file.
    #[inline]
    pub fn node(&self) -> &'static Node {
        self.node_ref().get()
    }

    /// The node of the file, as a reference that the group holds.
    pub fn node_ref(&self) -> NodeRef {
        NodeRef::of_number(self.node.load(Relaxed))
    }

    /// The number of the group's pool.
    #[inline]
    pub fn pool_index(&self) -> usize {
        usize::from(self.pool.load(Relaxed))
    }

    /// The pool whose lanes lead to the file; None if no pool has that number.
    #[inline]
    pub fn pool(&self) -> Option<&'static lane::Pool> {
        lane::pool(self.pool_index())
    }

    /// The lane that the program opened the file through.
    #[inline]
    pub fn own(&self) -> usize {
        usize::from(self.own.load(Relaxed))
    }

    /// The flags that the file was opened with.
    #[inline]
    pub fn flags(&self) -> c_int {
        self.flags.load(Relaxed)
    }

    /// Takes over those flags that lanes can follow, from the flags that the program's descriptor has now.
    pub fn follow(&self, flags: c_int) {
        let kept = self.flags() & !FOLLOWED;
        self.flags.store(kept | flags & FOLLOWED, Relaxed);
    }

    /// True if the file was opened with O_DIRECT.
    #[inline]
    pub fn is_direct(&self) -> bool {
        self.flags() & libc::O_DIRECT != 0
    }

    /// True if buffered reads of the file are spread, because the pool says so, and the program can do nothing but read
    /// here.
    pub fn spreads_buffered(&self) -> bool {
        !self.writes() && self.pool().is_some_and(|pool| pool.config.buffered_reads)
    }

    /// True if the file was opened in a way that permits writes, or reads if `write` is false. The fourth mode of
    /// open(2), 3, permits neither.
    #[inline]
    pub fn permits(&self, write: bool) -> bool {
        match self.flags() & libc::O_ACCMODE {
            libc::O_RDONLY => !write,
            libc::O_WRONLY => write,
            mode => mode == libc::O_RDWR,
        }
    }

    /// True if the file was opened for writing.
    #[inline]
    pub fn writes(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// The reason why nothing of the open file is spread: its own reason, or that of the file; None if it may be
    /// spread.
    #[inline]
    pub fn ended(&self) -> Option<Reason> {
        Reason::of_mark(self.ended.load(SeqCst)).or_else(|| self.node().ended())
    }

    /// True if the lanes of the open file were not opened yet.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.sleep.load(Acquire) != AWAKE
    }

    /// True if the calling thread is the one that opens the lanes: it calls [`Group::wake`] when that is done. Other
    /// threads wait for it here.
    pub fn wakes(&self) -> bool {
        loop {
            match self.sleep.compare_exchange(ASLEEP, WAKING, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(AWAKE) => return false,
                Err(_) => raw::sleep_us(50),
            }
        }
    }

    /// Notes that the lanes were opened, as far as they can be, or with `again` that the next request is to try it.
    pub fn wake(&self, again: bool) {
        self.sleep.store(if again { ASLEEP } else { AWAKE }, Release);
    }

    /// Ends the spreading of the open file from now on; the first reason stays. Lanes stay open until the program
    /// closes the file: closing them now would drop its POSIX locks where lanes share an inode (fcntl_locking(2)).
    pub fn end(&self, reason: Reason) {
        if self.ended.compare_exchange(0, reason.mark(), SeqCst, SeqCst).is_ok() {
            reason.count();
        }
    }

    /// Notes the reason why nothing of a file that was just opened is spread. Each of its requests counts the reason.
    pub fn begins_ended(&self, reason: Reason) {
        self.ended.store(reason.mark(), Release);
    }

    /// The descriptor of the file on a lane other than the opened one. (SeqCst: see [`GroupRef::close_lanes`].)
    #[inline]
    pub fn file(&self, lane: usize) -> Option<c_int> {
        self.files.get(lane).map(|file| file.load(SeqCst)).filter(|&fd| fd >= 0)
    }

    /// Writes out the page cache of the opened lane before a request goes to another one ([`Node::write_out`]). The
    /// kernel tells an error of that once for each open file, so the next sync of the program has to tell it.
    ///
    /// # Errors
    /// The error of a write, of now or of earlier.
    pub fn write_out(&self, fd: c_int) -> raw::Result<()> {
        self.node().write_out(fd).inspect_err(|&error| {
            if matches!(error, libc::EIO | libc::ENOSPC | libc::EDQUOT) {
                self.lost.store(error, Release);
            }
        })
    }

    /// The error of [`Group::write_out`] that the program does not know yet, if there is one.
    ///
    /// # Errors
    /// That error.
    pub fn tell_lost(&self) -> raw::Result<()> {
        if self.lost.load(Relaxed) == 0 {
            return Ok(());
        }
        match self.lost.swap(0, AcqRel) {
            0 => Ok(()),
            error => Err(error),
        }
    }

    /// Every lane that the file is open on beside the opened one, by the group's own record.
    fn open_lanes(&self) -> impl Iterator<Item = (usize, c_int)> {
        (0..LANES_MAX).filter_map(|lane| Some((lane, self.file(lane)?)))
    }

    /// Drops from the page caches of the lanes the part of the file that was written on `lane`, which has dropped it
    /// itself. Other programs read there. While a file is open for writing and somebody reads it through the page
    /// cache, the client of a lane takes the changes that its server tells for its own (`nfs_file_has_buffered_writers`
    /// in fs/nfs/inode.c), and would keep the old pages until this program closes the file.
    pub fn drop_replaced(&self, lane: usize, offset: i64, bytes: u64) {
        let Ok(offset) = u64::try_from(offset) else { return };
        if !self.node().is_apart() {
            return;
        }
        // The descriptors need no proof: no file loses more than pages that its client can read again.
        for (_, file) in self.open_lanes().filter(|&(at, _)| at != lane) {
            raw::drop_cached(file, offset, bytes);
        }
        if let Some(witness) = self.witness().filter(|_| lane != self.own()) {
            raw::drop_cached(witness, offset, bytes);
        }
    }

    /// The lanes that a request may go to, the opened one among them, a bit each.
    #[inline]
    pub fn usable(&self) -> u32 {
        let mut mask = 0u32;
        let lanes = self.pool().map_or(0, lane::Pool::len);
        for (lane, file) in self.files.get(..lanes).unwrap_or_default().iter().enumerate() {
            mask |= u32::from(file.load(Relaxed) >= 0) << lane;
        }
        mask & !self.missing.load(Relaxed) | 1 << (self.own() & 31)
    }

    /// The lanes on which the file should be open and is not, a bit each, if it is time for another attempt. The caller
    /// makes the attempt, and says with [`Group::attempted`] which lanes it has found.
    #[inline]
    pub fn attempt_due(&self, now_ns: u64) -> u32 {
        let missing = self.missing.load(Relaxed);
        if missing == 0 {
            return 0;
        }
        let at = self.attempt_at.load(Acquire);
        let mine = now_ns >= at && self.attempt_at.compare_exchange(at, u64::MAX, AcqRel, Acquire).is_ok();
        if mine { missing } else { 0 }
    }

    /// Notes that the lanes of `found` are there again, and when to try those that are still missing.
    pub fn attempted(&self, found: u32, again_ns: u64) {
        self.missing.fetch_and(!found, AcqRel);
        self.attempt_at.store(again_ns, Release);
    }

    /// Notes that the file of a lane does not work, or could not be opened: nothing goes there before another attempt.
    pub fn miss(&self, lane: usize, again_ns: u64) {
        if self.missing.fetch_or(1 << (lane as u32 & 31), AcqRel) == 0 {
            self.attempt_at.store(again_ns, Release);
        }
    }

    fn close_file(&self, lane: usize, file: &Descriptor, name: Name) -> raw::Result<()> {
        let fd = file.swap(-1, AcqRel);
        if fd < 0 {
            return Ok(());
        }
        // The number may mean another file now: the program has taken it by dup2, or closed it where no hook saw it.
        let ours = proof::is_file_of_lane(name, lane, fd);
        let taken = table::remove(fd, Entry::Lane(name)) && ours;
        if taken { node::close_unlocked(&Closing::begin(), fd) } else { Ok(()) }
    }

    /// True if `fd` is a private descriptor of the group, which the program does not know: the file of a lane, or the
    /// witness.
    fn has_private(&self, name: Name, fd: c_int) -> bool {
        match self.open_lanes().find(|&(_, file)| file == fd) {
            Some((lane, _)) => proof::is_file_of_lane(name, lane, fd),
            None => self.witness() == Some(fd) && proof::is_inode(fd, self.node().identity()),
        }
    }
}

impl GroupRef {
    /// True if a descriptor that was entered as private still is private. False if the program has put a file of its
    /// own in its place.
    pub fn owns(&self, fd: c_int) -> bool {
        self.has_private(self.name, fd)
    }

    /// The files on the other lanes, each with its lane and proven to be the lane's. A file that fails the proof is
    /// forgotten.
    pub fn proven_lanes(&self) -> impl Iterator<Item = (usize, c_int)> {
        self.open_lanes().filter(|&(lane, file)| {
            let holds = proof::is_file_of_lane(self.name, lane, file);
            if !holds {
                self.lose(file);
            }
            holds
        })
    }

    /// Closes the lanes' files and the witness, and returns how many. It closes none of a file that is locked, and none
    /// while requests are under way: a thread that begins a request counts it before it looks for a file, and this
    /// function takes the files away before it looks at the count.
    fn close_lanes(&self) -> usize {
        let node = self.node();
        if node.is_locked() {
            return 0;
        }
        self.end(Reason::Limit);
        if node.has_in_flight() {
            return 0;
        }
        let mut files = [-1; LANES_MAX];
        for (file, place) in files.iter_mut().zip(&self.files) {
            *file = place.swap(-1, SeqCst);
        }
        let taken = || files.iter().enumerate().filter(|&(_, &file)| file >= 0);
        let give_back = || {
            for (lane, &file) in taken() {
                let _ = self.files[lane].compare_exchange(-1, file, SeqCst, Acquire);
            }
            0
        };
        if node.has_in_flight() {
            return give_back();
        }
        for (lane, &file) in taken() {
            if proof::is_file_of_lane(self.name, lane, file)
                && let Some(sync) = self.node_ref().begin_sync(lane)
                && raw::sync(file, false).is_ok()
            {
                sync.done(); // otherwise the next sync tells the error
            }
        }
        let _closing = Closing::begin();
        if node.is_locked() {
            return give_back();
        }
        let mut closed = usize::from(self.witness().is_some());
        for (lane, &file) in taken() {
            let ours = proof::is_file_of_lane(self.name, lane, file);
            if table::remove(file, Entry::Lane(self.name)) && ours {
                let _ = raw::close(file);
                closed += 1;
            }
        }
        let _ = self.unwatch(); // the program's own close tells its errors
        closed
    }

    /// Forgets a private descriptor whose number means another file, or is about to.
    pub fn lose(&self, fd: c_int) {
        let _ = table::remove(fd, Entry::Lane(self.name));
        for file in self.files.iter().chain([&self.witness]) {
            let _ = file.compare_exchange(fd, -1, AcqRel, Acquire);
        }
    }
}

/// True if the table's entry of a private descriptor is out of date: the program has closed the descriptor where no
/// hook saw it, and opened another file under that number. Such an entry is removed.
pub fn private_entry_is_stale(fd: c_int) -> bool {
    let Entry::Lane(name) = table::get(fd) else { return false };
    let Some(group) = GroupRef::acquire(name) else { return false };
    if group.owns(fd) {
        return false;
    }
    group.lose(fd);
    true
}

/// Notes that a file is written through the page cache, by a descriptor without O_DIRECT. Nothing is held: should the
/// descriptor be closed at this moment, another file may count as written too, which costs it one write-out.
#[inline]
pub fn soil(fd: c_int) {
    if let Entry::File(name) | Entry::Quiet(name) = table::get(fd)
        && let Some(group) = GROUPS_OF_PROCESS.get(name.index as usize)
        && !group.is_direct()
    {
        group.node().soil();
    }
}

/// The reason why nothing of the open file with this name is spread. Nothing is held, as in [`soil`].
pub fn why_not(name: Name) -> Option<Reason> {
    GROUPS_OF_PROCESS.get(name.index as usize)?.ended()
}

/// True if a write by this descriptor concerns other processes: it is recorded for them, or they may have written the
/// file. Nothing is held, as in [`soil`].
#[inline]
pub fn shares(fd: c_int) -> bool {
    if let Entry::File(name) | Entry::Quiet(name) = table::get(fd)
        && let Some(group) = GROUPS_OF_PROCESS.get(name.index as usize)
    {
        let node = group.node();
        return (group.is_direct() && node.record().is_some()) || node.shares_writes();
    }
    false
}

/// Finds an open file of the node that is open on this lane, and its file there.
pub fn on_lane(node: NodeRef, at: usize) -> Option<(GroupRef, c_int)> {
    all_of(node).find_map(|group| {
        let found = group.proven_lanes().find(|&(lane, _)| lane == at);
        found.map(|(_, file)| (group, file))
    })
}

/// The pool and the lane of any open file of the node.
pub fn place_of(node: NodeRef) -> Option<(usize, usize)> {
    all_of(node).next().map(|group| (group.pool_index(), group.own()))
}

/// Every open file of a node.
fn all_of(node: NodeRef) -> impl Iterator<Item = GroupRef> {
    places().iter().enumerate().filter_map(move |(index, group)| {
        let generation = group.count.acquire_any()?;
        let group = GroupRef { name: Name { index: index as u32, generation } };
        (group.node_ref() == node).then_some(group)
    })
}

/// Every open file of a node, after those that are just being given up are gone.
fn settled_of(node: NodeRef) -> impl Iterator<Item = GroupRef> {
    let ending = |group: &Group| group.count.is_busy() && group.node.load(Relaxed) == node.number();
    for group in places() {
        closing::wait_until(|| !ending(group));
    }
    all_of(node)
}

/// Closes the private descriptors below `limit`, because the program has hardly any numbers left. Their files stay on
/// the opened lane from then on. Returns how many were closed, and if any are left: a file that is locked keeps its
/// descriptors (closing any descriptor drops POSIX locks), and so does one with requests under way.
pub fn make_room(limit: c_int) -> (usize, bool) {
    let (mut freed, mut left) = (0, false);
    for (index, group) in places().iter().enumerate() {
        let Some(generation) = group.count.acquire_any() else { continue };
        let group = GroupRef { name: Name { index: index as u32, generation } };
        let helps = group.open_lanes().map(|(_, file)| file).chain(group.witness()).any(|fd| fd < limit);
        if !helps {
            continue;
        }
        let closed = group.close_lanes();
        freed += closed;
        left |= closed == 0;
    }
    (freed, left)
}

/// Gives up the private duplicates of all open files of a node, before the program locks the file. A lock ends with the
/// last descriptor of its open file description, and closing any descriptor of a file drops a process's POSIX locks.
pub fn unwatch_all(node: NodeRef) {
    for group in settled_of(node) {
        let _ = group.unwatch(); // the program's own close tells its errors
    }
}

/// Closes the lanes' files and the private duplicates of all open files of a node of which nothing is spread any more.
pub fn close_lanes_of(node: NodeRef) {
    for group in settled_of(node) {
        let _ = group.close_lanes();
        let _ = group.unwatch(); // the program's own close tells its errors
    }
}

/// Ends the spreading of other files of the process that may be the file of this node on another lane, and closes their
/// lanes: the program is about to lock the file there, and closing a lane's file afterwards would drop the lock. (Every
/// proof that two files are one demands the same inode number.)
pub fn end_twins(node: NodeRef, reason: Reason) {
    if !any_apart() {
        return;
    }
    let (device, inode) = node.get().identity();
    for (index, group) in places().iter().enumerate() {
        let Some(generation) = group.count.acquire_any() else { continue };
        let group = GroupRef { name: Name { index: index as u32, generation } };
        let (other, number) = group.node().identity();
        if number == inode && other != device && !group.node().is_locked() {
            group.node().end(reason);
            group.node().drain();
            let _ = group.close_lanes();
        }
    }
}

/// Closes the lanes' files in a forked child, which are copies, and forgets all groups. If the child shares its table
/// of descriptors with its parent (clone(2) with CLONE_FILES), they are the parent's, and stay.
pub fn forget_all() {
    let shared = process::shares_descriptors();
    for (fd, entry) in table::entries(0, c_int::MAX) {
        // Closing the child's copy leaves the parent's descriptor alone.
        let private = match entry {
            Entry::Lane(name) => {
                GROUPS_OF_PROCESS.get(name.index as usize).is_none_or(|group| group.has_private(name, fd))
            }
            _ => false,
        };
        table::take(fd);
        if private && !shared {
            let _ = raw::close(fd);
        }
    }
    for group in places().iter().filter(|group| group.count.in_use()) {
        group.count.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::node::Lock;
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::fs::MetadataExt;

    fn of_no_file() -> GroupRef {
        // SAFETY: integers only: all zeros is a valid status.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        stat.st_dev = u64::MAX;
        let node = node::find_or_make(&stat).unwrap();
        GroupRef::new(Opened { node, pool: 0, own: 0, flags: libc::O_RDWR }).map_err(|_| "the table is full").unwrap()
    }

    /// A thread of the library comes back from a lane. The program has closed the file meanwhile, and opened another
    /// one at the same place of the table.
    #[test]
    fn an_old_name_takes_nothing_from_the_group_that_has_its_place() {
        let before = of_no_file();
        let name = before.name();
        before.release().unwrap();
        assert!(GroupRef::acquire(name).is_none());
        // Another test may have the place for a moment.
        let now = (0..10_000).map(|_| of_no_file()).find(|next| next.name().index == name.index);
        let now = now.expect("the place is free");
        (0..3).for_each(|_| assert!(GroupRef::acquire(name).is_none(), "another generation"));
        let again = GroupRef::acquire(now.name()).expect("it lives");
        assert!(now.count.is_shared());
        drop(again);
        assert!(!now.count.is_shared() && now.count.in_use());
        now.release().unwrap();
    }

    /// A thread of the library gives the last reference back, while the program has opened the file anew and locked it.
    #[test]
    fn nothing_is_closed_beside_a_lock_of_the_file_opened_anew() {
        let path = std::env::temp_dir().join(format!("iotrap-anew-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let found = file.metadata().unwrap();
        // SAFETY: integers only: all zeros is a valid status.
        let mut stat: libc::stat = unsafe { core::mem::zeroed() };
        (stat.st_dev, stat.st_ino) = (found.dev(), found.ino());
        let opened = || {
            let opened = Opened { node: node::find_or_make(&stat).unwrap(), pool: 0, own: 0, flags: libc::O_RDWR };
            GroupRef::new(opened).map_err(|_| "the table is full").unwrap()
        };
        let is_open = |fd| raw::identity(fd).is_ok_and(|now| now.inode == found.ino());
        let held_by_library = opened();
        let of_lane = file.try_clone().unwrap().into_raw_fd();
        assert!(held_by_library.adopt(1, of_lane));
        held_by_library.watch(file.as_raw_fd()).unwrap();
        let witness = held_by_library.witness().unwrap();

        let anew = opened();
        anew.node().first_lock(Lock::OfProcess, || {});
        held_by_library.release().unwrap();
        assert!(is_open(of_lane) && is_open(witness), "the lock lives as long");
        anew.release().unwrap();
        assert!(!is_open(of_lane) && !is_open(witness));
    }
}

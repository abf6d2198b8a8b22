//! A file as the program opened it once, with the same file on the other lanes: what `dup`ed descriptors share.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use lanes::LANES_MAX;

use crate::counted::Count;
use crate::lane;
use crate::node::{Node, NodeRef};
use crate::process;
use crate::raw;
use crate::reason::Reason;
use crate::table::{self, Entry, Name};

const GROUPS: usize = 16384;

/// One open file of the program.
pub struct Group {
    count: Count,
    node: AtomicU32,
    pool: AtomicU8,
    own: AtomicU8,
    /// A [`Reason::mark`]: why nothing of it is spread.
    ended: AtomicU8,
    flags: AtomicI32,
    /// Lanes that another attempt to open is due for, a bit each.
    missing: AtomicU32,
    /// When, in `CLOCK_MONOTONIC` nanoseconds.
    attempt_at: AtomicU64,
    /// The file on each lane; -1 where it is not open, which is always so for the own lane.
    files: [AtomicI32; LANES_MAX],
}

static GROUPS_OF_PROCESS: [Group; GROUPS] = [const {
    Group {
        count: Count::free(),
        node: AtomicU32::new(0),
        pool: AtomicU8::new(0),
        own: AtomicU8::new(0),
        ended: AtomicU8::new(0),
        flags: AtomicI32::new(0),
        missing: AtomicU32::new(0),
        attempt_at: AtomicU64::new(0),
        files: [const { AtomicI32::new(-1) }; LANES_MAX],
    }
}; GROUPS];

/// Where the search for a free place begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);

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
        // We hold a reference: the generation cannot have changed, and 2^32 references do not fit into a process.
        let _ = self.count.acquire(self.name.generation);
        GroupRef { name: self.name }
    }
}

/// What a new group begins with.
pub struct Opened {
    /// The file; the group takes the reference over.
    pub node: NodeRef,
    /// The pool.
    pub pool: usize,
    /// The lane that the program has opened it through.
    pub own: usize,
    /// The flags of open(2).
    pub flags: c_int,
}

impl GroupRef {
    /// A new group, on its own lane only.
    ///
    /// # Errors
    /// The table is full; what was opened is given back.
    pub fn new(opened: Opened) -> Result<GroupRef, Opened> {
        let start = NEXT.fetch_add(1, Relaxed);
        for place in 0..GROUPS {
            let index = start.wrapping_add(place) % GROUPS;
            let Some(group) = GROUPS_OF_PROCESS.get(index) else { continue };
            let Some(generation) = group.count.claim() else { continue };
            group.node.store(opened.node.number(), Relaxed);
            group.pool.store(opened.pool as u8, Relaxed);
            group.own.store(opened.own as u8, Relaxed);
            group.ended.store(0, Relaxed);
            group.flags.store(opened.flags, Relaxed);
            group.missing.store(0, Relaxed);
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
        group.count.acquire(name.generation).then_some(GroupRef { name })
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

    /// The reference that a table entry held, which is removed by the caller.
    pub fn held_by(entry: Entry) -> Option<GroupRef> {
        match entry {
            Entry::File(name) | Entry::Quiet(name) => Some(GroupRef { name }),
            _ => None,
        }
    }

    /// The entry of a file descriptor: it takes the reference with it.
    pub fn into_entry(self) -> Entry {
        let name = self.name;
        let quiet = !self.is_direct() && !self.spreads_buffered();
        core::mem::forget(self);
        if quiet { Entry::Quiet(name) } else { Entry::File(name) }
    }

    /// Its name, without a reference.
    pub fn name(&self) -> Name {
        self.name
    }

    /// A reference that was taken apart by [`GroupRef::into_entry`] or kept as a name.
    pub fn again(name: Name) -> GroupRef {
        GroupRef { name }
    }

    /// Gives the reference back; the first error of closing lanes, if it was the last one.
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
        let mut result = Ok(());
        for file in &group.files {
            let closed = group.close_file(file, self.name);
            result = result.and(closed);
        }
        let node = group.node_ref();
        node.get().descriptor(group.is_direct(), group.writes(), -1);
        node.release();
        group.count.reset();
        result
    }

    /// Enters the file of a lane, which the group closes from now on. False if there is one already.
    pub fn adopt(&self, lane: usize, fd: c_int) -> bool {
        let Some(place) = self.files.get(lane) else { return false };
        if table::put(fd, Entry::Lane(self.name)).is_err() {
            return false;
        }
        place.compare_exchange(-1, fd, AcqRel, Acquire).is_ok() || {
            let _ = table::remove(fd, Entry::Lane(self.name));
            false
        }
    }
}

impl Group {
    /// The file.
    #[inline]
    pub fn node(&self) -> &'static Node {
        self.node_ref().get()
    }

    /// The file, as a reference that the group holds.
    pub fn node_ref(&self) -> NodeRef {
        NodeRef::of_number(self.node.load(Relaxed))
    }

    /// The number of its pool.
    #[inline]
    pub fn pool_index(&self) -> usize {
        usize::from(self.pool.load(Relaxed))
    }

    /// Its pool.
    #[inline]
    pub fn pool(&self) -> Option<&'static lane::Pool> {
        lane::pool(self.pool_index())
    }

    /// The lane that the program opened it through.
    #[inline]
    pub fn own(&self) -> usize {
        usize::from(self.own.load(Relaxed))
    }

    /// The flags it was opened with.
    #[inline]
    pub fn flags(&self) -> c_int {
        self.flags.load(Relaxed)
    }

    /// Opened with O_DIRECT.
    #[inline]
    pub fn is_direct(&self) -> bool {
        self.flags() & libc::O_DIRECT != 0
    }

    /// Buffered reads are spread because the pool says so, and the program can do nothing but read here.
    pub fn spreads_buffered(&self) -> bool {
        !self.writes() && self.pool().is_some_and(|pool| pool.config.buffered_reads)
    }

    /// Opened for writing.
    #[inline]
    pub fn writes(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Why nothing of it is spread, if so: for itself, or for the file.
    #[inline]
    pub fn ended(&self) -> Option<Reason> {
        Reason::of_mark(self.ended.load(Acquire)).or_else(|| self.node().ended())
    }

    /// Nothing of it is spread from now on; the first reason stays. Lanes stay open until the program closes the
    /// file: closing them now would drop its POSIX locks where lanes share an inode (fcntl_locking(2)).
    pub fn end(&self, reason: Reason) {
        if self.ended.compare_exchange(0, reason.mark(), AcqRel, Acquire).is_ok() {
            reason.count();
        }
    }

    /// The file on a lane other than the own one.
    #[inline]
    pub fn file(&self, lane: usize) -> Option<c_int> {
        self.files.get(lane).map(|file| file.load(Acquire)).filter(|&fd| fd >= 0)
    }

    /// Every lane it is open on beside the own one.
    pub fn open_lanes(&self) -> impl Iterator<Item = (usize, c_int)> {
        (0..LANES_MAX).filter_map(|lane| Some((lane, self.file(lane)?)))
    }

    /// The lanes that a request may go to, the own one among them, a bit each.
    #[inline]
    pub fn usable(&self) -> u32 {
        let mut mask = 0u32;
        let lanes = self.pool().map_or(0, lane::Pool::len);
        for (lane, file) in self.files.iter().enumerate().take(lanes) {
            if file.load(Relaxed) >= 0 {
                mask |= 1 << lane;
            }
        }
        mask & !self.missing.load(Relaxed) | 1 << (self.own() & 31)
    }

    /// Lanes on which it should be open and is not, a bit each, if it is time for another attempt: the caller makes
    /// it, and says with [`Group::attempted`] what is still missing.
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

    /// These lanes are there again; when to try those that are still missing.
    pub fn attempted(&self, found: u32, again_ns: u64) {
        self.missing.fetch_and(!found, AcqRel);
        self.attempt_at.store(again_ns, Release);
    }

    /// The file of a lane does not work, or could not be opened: nothing goes there before another attempt.
    pub fn miss(&self, lane: usize, again_ns: u64) {
        if self.missing.fetch_or(1 << (lane as u32 & 31), AcqRel) == 0 {
            self.attempt_at.store(again_ns, Release);
        }
    }

    fn close_file(&self, file: &AtomicI32, name: Name) -> raw::Result<()> {
        let fd = file.swap(-1, AcqRel);
        // Whoever has taken the number from us (dup2 onto it) has removed the entry: it is not ours to close.
        if fd >= 0 && table::remove(fd, Entry::Lane(name)) { raw::close(fd) } else { Ok(()) }
    }

    /// Forgets the file of a lane whose number somebody else has taken.
    pub fn lose(&self, fd: c_int) {
        for file in &self.files {
            let _ = file.compare_exchange(fd, -1, AcqRel, Acquire);
        }
    }
}

/// In a forked child: closes the lanes' files, which are copies, and forgets everything.
pub fn forget_all() {
    for (fd, entry) in table::entries(0, c_int::MAX) {
        table::take(fd);
        if let Entry::Lane(_) = entry {
            let _ = raw::close(fd); // a copy: the parent's is not touched
        }
    }
    for group in GROUPS_OF_PROCESS.iter().filter(|group| group.count.in_use()) {
        group.count.reset();
    }
}

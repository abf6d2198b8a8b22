//! The process itself: the check that it is still the one whose tables these are, and the range of its high
//! descriptors.
//!
//! After fork(2) the child has copies of the tables and of the lanes' descriptors: it closes and forgets them, and its
//! inherited files are single-lane. A page that the kernel wipes on fork tells, however the child was made
//! (`_Fork`, clone). After vfork(2) the tables are the parent's, and the child must not change them: its process id
//! tells.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::OnceLock;

use crate::abi::raw;
use crate::abi::sealed;
use crate::state::lane;

/// A mark that is 1 in the process that made it, and 0 in a forked child.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static PID: AtomicU32 = AtomicU32::new(0);

/// The function that empties the tables in a forked child.
static FORGET_ALL: OnceLock<fn()> = OnceLock::new();

/// Watches for forks from now on. A forked child calls `forget_all`, which makes system calls and uses atomics only.
pub fn watch(forget_all: fn()) {
    let _ = FORGET_ALL.set(forget_all); // once a process
    PID.store(raw::pid(), Release);
    const PAGE: usize = 4096;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: a new anonymous mapping, at no particular address.
    let page = unsafe { raw::call(libc::SYS_mmap, 0, PAGE, protection, flags, raw::arg(-1), 0) };
    if let Ok(page) = raw::check(page) {
        // SAFETY: the page that was just mapped, which nobody else uses.
        let wiped = unsafe { raw::call(libc::SYS_madvise, page, PAGE, libc::MADV_WIPEONFORK as usize, 0, 0, 0) };
        if wiped == 0 {
            let mark: *mut AtomicU32 = core::ptr::with_exposed_provenance_mut(page);
            // SAFETY: the page was just mapped: it is aligned and zeroed, and nobody unmaps it.
            unsafe { &*mark }.store(1, Release);
            MARK.store(mark, Release);
        }
    }
    // SAFETY: the handlers make system calls and touch atomics only, which is allowed after fork.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_the_parent), Some(in_the_child)) };
}

/// The thread that forks: it holds the limit meanwhile, so that the child inherits the program's; 0 without one.
static FORKER: AtomicU32 = AtomicU32::new(0);
/// The signals that this thread has blocked.
static BLOCKED_BY_FORKER: AtomicU64 = AtomicU64::new(0);

extern "C" fn before_fork() {
    let held = LimitHeld::begin();
    if !held.nested {
        BLOCKED_BY_FORKER.store(held.blocked, Relaxed);
        FORKER.store(raw::thread(), Release);
    }
    core::mem::forget(held);
}

extern "C" fn in_the_parent() {
    FORKER.store(0, Release);
    drop(LimitHeld { blocked: BLOCKED_BY_FORKER.load(Relaxed), nested: false });
}

extern "C" fn in_the_child() {
    PID.store(0, Relaxed);
    notice();
    in_the_parent();
}

/// True if the calling process may change the tables: a vfork child may not, and neither may a process that is sealed.
/// A forked child starts with empty ones.
pub fn is_own() -> bool {
    if sealed::is_sealed() {
        return false;
    }
    notice_fork();
    PID.load(Relaxed) == raw::pid()
}

/// Forgets the parent's state in a forked child that was not noticed before.
#[inline]
pub fn notice_fork() {
    if sealed::is_sealed() {
        return; // nothing is known of any file, here and in every child
    }
    let mark = MARK.load(Acquire);
    // SAFETY: null, or the page that watch() made.
    if let Some(mark) = unsafe { mark.as_ref() }
        && mark.load(Relaxed) == 0
    {
        notice();
    }
}

#[cold]
fn notice() {
    if sealed::is_sealed() {
        return;
    }
    let pid = raw::pid();
    let parent = PID.swap(pid, Relaxed);
    if parent == pid {
        return;
    }
    SHARES_DESCRIPTORS.store(has_table_of(parent, pid), Relaxed);
    RESERVED.store(false, Relaxed); // by another thread of the parent, if it was
    if let Some(forget_all) = FORGET_ALL.get() {
        forget_all();
    }
    // SAFETY: null, or the page that watch() made.
    if let Some(mark) = unsafe { MARK.load(Acquire).as_ref() } {
        mark.store(1, Release);
    }
}

/// The process was made with the table of descriptors of its parent, and without its memory (clone(2)).
static SHARES_DESCRIPTORS: AtomicBool = AtomicBool::new(false);

/// True if the calling process, a forked child that empties its tables, has its parent's descriptors and not copies of
/// them: closing one would close it for the parent.
pub fn shares_descriptors() -> bool {
    SHARES_DESCRIPTORS.load(Relaxed)
}

/// True if two processes have one table of descriptors, by the kernel's word. `parent` is 0 after fork(2), which copies
/// the table.
fn has_table_of(parent: u32, child: u32) -> bool {
    /// linux/kcmp.h
    const KCMP_FILES: usize = 2;
    // SAFETY: the system call takes integers only, so it accesses no memory of this process.
    let same = || unsafe { raw::call(libc::SYS_kcmp, parent as usize, child as usize, KCMP_FILES, 0, 0, 0) };
    parent != 0 && same() == 0
}

/// The range for the lanes' descriptors: above the program's soft limit where the hard limit permits, so that they take
/// none of the program's numbers; high up below the soft limit otherwise.
///
/// The soft limit is raised for as long as this value lives.
pub struct HighNumbers {
    from: c_int,
    restore: Option<libc::rlimit>,
    _held: LimitHeld,
}

/// A guard: nobody else raises or changes the limit of descriptor numbers, or forks with it, while the value lives. A
/// thread that raises the limit puts back the one that it has found.
///
/// Signals are blocked meanwhile, so that no handler waits for the thread that it has interrupted.
pub struct LimitHeld {
    /// The signals that were blocked before.
    blocked: u64,
    /// The thread forks, and so holds the limit already: a handler of pthread_atfork(3) opens a file.
    nested: bool,
}

static RESERVED: AtomicBool = AtomicBool::new(false);

impl LimitHeld {
    /// Waits until no other thread holds the limit.
    pub fn begin() -> LimitHeld {
        if sealed::is_sealed() {
            return LimitHeld { blocked: 0, nested: true }; // nobody raises the limit any more
        }
        let blocked = raw::block_signals();
        let mut nested = false;
        while !nested && RESERVED.swap(true, Acquire) {
            nested = FORKER.load(Acquire) == raw::thread();
            raw::pause();
        }
        LimitHeld { blocked, nested }
    }
}

impl Drop for LimitHeld {
    fn drop(&mut self) {
        if !self.nested {
            RESERVED.store(false, Release);
        } else if sealed::is_sealed() {
            return;
        }
        raw::restore_mask(self.blocked);
    }
}

/// A guard like [`LimitHeld`], for a thread that executes a program or makes a child: what it makes inherits the
/// program's limit, and the signals that the program has blocked. A child of vfork(2) has a limit of its own and holds
/// nothing: its parent would wait for ever.
pub struct LimitForChild {
    holds: bool,
}

impl LimitForChild {
    /// Waits until no other thread holds the limit.
    pub fn begin() -> LimitForChild {
        if !lane::active() || !is_own() {
            return LimitForChild { holds: false };
        }
        let held = LimitHeld::begin();
        if held.nested {
            return LimitForChild { holds: false };
        }
        // A handler that runs from here on finds that its own thread holds the limit.
        FORKER.store(raw::thread(), Release);
        raw::restore_mask(held.blocked);
        core::mem::forget(held);
        LimitForChild { holds: true }
    }
}

impl Drop for LimitForChild {
    fn drop(&mut self) {
        if self.holds {
            FORKER.store(0, Release);
            RESERVED.store(false, Release);
        }
    }
}

/// The highest soft limit that was seen. The program may raise a limit again that it has lowered, and has the numbers
/// below it for itself then.
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// Numbers from here on are out of the way of most programs.
const HIGH: u64 = 8192;
/// Numbers above the soft limit that the lanes may use.
const ROOM: u64 = 16384;

fn limits(new: Option<&libc::rlimit>) -> Option<libc::rlimit> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    let resource = libc::RLIMIT_NOFILE as usize;
    // SAFETY: pid 0 is this process; both structures are valid or null.
    let result = unsafe { raw::call(libc::SYS_prlimit64, 0, resource, new as usize, &raw mut old as usize, 0, 0) };
    (result == 0).then_some(old)
}

/// Numbers that the program keeps for calls that no hook sees, where lanes share the program's numbers.
pub const SPARE: u64 = 32;
/// A number that the program gets from here on says that its numbers are nearly used up. The highest number where the
/// lanes lie above the program's limit.
static CROWDED_FROM: AtomicI32 = AtomicI32::new(c_int::MAX);

/// Lanes have to give numbers back that they could not give back at once.
static OWED: AtomicBool = AtomicBool::new(false);

/// True if the program has got a number that says that hardly any are left: the kernel gives the lowest free number.
#[inline]
pub fn is_crowded(fd: c_int) -> bool {
    fd >= CROWDED_FROM.load(Relaxed) || OWED.load(Relaxed)
}

/// Notes if lanes still have numbers that the program needs.
pub fn owe(numbers: bool) {
    OWED.store(numbers, Relaxed);
}

/// True if the lanes share the program's numbers.
pub fn shares_numbers() -> bool {
    CROWDED_FROM.load(Relaxed) != c_int::MAX
}

/// Makes the process's table of descriptors large enough for high numbers, before the program's `main`.
///
/// A table that grows in a process of several threads waits until each processor has passed through a quiescent state
/// of RCU (`expand_fdtable` in fs/file.c): many milliseconds, which the first request of a file would take longer.
pub fn make_table() {
    let Ok(any) = raw::open(c"/", libc::O_PATH) else { return };
    if let Ok(high) = HighNumbers::reserve().duplicate_even_the_last(any) {
        let _ = raw::close(high);
    }
    let _ = raw::close(any);
    CROWDED_FROM.store(c_int::MAX, Relaxed); // no lane has a number yet
}

impl HighNumbers {
    /// Raises the limit where that is needed, once no other thread has such a value.
    pub fn reserve() -> HighNumbers {
        let held = LimitHeld::begin();
        let Some(found) = limits(None) else { return HighNumbers { from: 0, restore: None, _held: held } };
        let soft = found.rlim_cur;
        let highest = HIGHEST.fetch_max(soft, Relaxed).min(HIGH).max(soft);
        if soft <= HIGH {
            // A privileged process may raise its hard limit, too (CAP_SYS_RESOURCE), and lower it again.
            let wanted = soft + ROOM;
            let within = libc::rlimit { rlim_cur: found.rlim_max.min(wanted), ..found };
            let beyond = libc::rlimit { rlim_cur: wanted, rlim_max: found.rlim_max.max(wanted) };
            let raised = if found.rlim_max > soft { within } else { beyond };
            if limits(Some(&raised)).is_some() {
                CROWDED_FROM.store(c_int::MAX, Relaxed);
                let from = if highest.saturating_add(SPARE) < raised.rlim_cur { highest } else { soft };
                return HighNumbers { from: from as c_int, restore: Some(found), _held: held };
            }
        }
        CROWDED_FROM.store(c_int::try_from(soft.saturating_sub(SPARE)).unwrap_or(c_int::MAX), Relaxed);
        HighNumbers { from: (soft - soft / 4).min(HIGH) as c_int, restore: None, _held: held }
    }

    /// Duplicates a descriptor to a high number, closed on exec, and leaves the last numbers to the program.
    ///
    /// # Errors
    /// EMFILE: the process uses all its descriptor numbers but the last ones.
    pub fn duplicate(&self, fd: c_int) -> raw::Result<c_int> {
        let high = self.duplicate_even_the_last(fd)?;
        if self.restore.is_none() && (is_crowded(high) || !self.last_are_free()) {
            let _ = raw::close(high); // the last numbers are the program's
            return Err(libc::EMFILE);
        }
        Ok(high)
    }

    /// True if nobody uses any of the last numbers. While lanes have numbers of the program, this has to be so: the
    /// program may make as many descriptors at least where no hook sees it.
    fn last_are_free(&self) -> bool {
        let from = CROWDED_FROM.load(Relaxed);
        (from..from.saturating_add(SPARE as c_int)).all(|fd| raw::fcntl(fd, libc::F_GETFD, 0).is_err())
    }

    /// Duplicates a descriptor to a high number, closed on exec: a file without which a call of the program fails.
    ///
    /// # Errors
    /// EMFILE: the process uses all its descriptor numbers.
    pub fn duplicate_even_the_last(&self, fd: c_int) -> raw::Result<c_int> {
        raw::fcntl(fd, libc::F_DUPFD_CLOEXEC, self.from.max(0) as usize)
    }
}

impl Drop for HighNumbers {
    fn drop(&mut self) {
        if let Some(found) = &self.restore {
            let _ = limits(Some(found));
        }
    }
}

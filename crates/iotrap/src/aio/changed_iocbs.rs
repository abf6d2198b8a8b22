//! The moment in which a program's iocb names a lane's file instead of the program's own.
//!
//! The kernel returns the iocb's address in `io_event.obj`, so it has to be given the program's own iocb, and reads the
//! descriptor from it: `aio_fildes` is changed before io_submit(2) and put back behind it. In between, a request may
//! complete and another thread may fetch it: that thread puts its iocb back before the program sees the event. The
//! thread that comes second does not touch the iocb any more, because the program may have reused or freed it.
//!
//! The iocbs of a batch are noted in one of a few static places. A reaper that looks into a place keeps the batch from
//! giving it back for as long as that takes.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

use crate::abi::libaio::Iocb;
use crate::abi::raw;

/// The most iocbs that go to the kernel in one call.
pub const MOST: usize = 64;
/// The most batches that are submitted at a time.
const BATCHES: usize = 64;

const IDLE: u32 = 0;
const CHANGED: u32 = 1;
const RESTORING: u32 = 2;
const RESTORED: u32 = 3;

struct Slot {
    iocb: AtomicPtr<Iocb>,
    own: AtomicI32,
    state: AtomicU32,
}

struct Shared {
    context: AtomicU64,
    readers: AtomicU32,
    slots: [Slot; MOST],
}

static ALL: [Shared; BATCHES] = [const {
    Shared {
        context: AtomicU64::new(0),
        readers: AtomicU32::new(0),
        slots: [const {
            Slot { iocb: AtomicPtr::new(core::ptr::null_mut()), own: AtomicI32::new(-1), state: AtomicU32::new(IDLE) }
        }; MOST],
    }
}; BATCHES];
/// Batches that have a place, a bit each.
static CLAIMED: AtomicU64 = AtomicU64::new(0);
/// Batches whose iocbs name lanes' files at this moment, a bit each.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// The iocbs of one batch that name lanes' files until [`ChangedIocbs::close`] puts them back.
pub struct ChangedIocbs {
    index: usize,
    shared: &'static Shared,
    used: usize,
}

impl ChangedIocbs {
    /// A place for a batch to this context; None if there are too many batches at a time.
    pub fn claim(context: u64) -> Option<ChangedIocbs> {
        let mut claimed = CLAIMED.load(Relaxed);
        loop {
            let index = (!claimed).trailing_zeros() as usize;
            let shared = ALL.get(index)?;
            match CLAIMED.compare_exchange_weak(claimed, claimed | 1 << index, AcqRel, Relaxed) {
                Ok(_) => {
                    shared.context.store(context, Relaxed);
                    return Some(ChangedIocbs { index, shared, used: 0 });
                }
                Err(now) => claimed = now,
            }
        }
    }

    /// Notes that `iocb` is to name the file of a lane instead of `own`, and changes it. False if the place is full.
    ///
    /// # Safety
    /// The iocb is the program's, to be submitted before [`ChangedIocbs::close`].
    pub unsafe fn change(&mut self, iocb: *mut Iocb, own: c_int, file: c_int) -> bool {
        let Some(slot) = self.shared.slots.get(self.used) else { return false };
        slot.iocb.store(iocb, Relaxed);
        slot.own.store(own, Relaxed);
        slot.state.store(CHANGED, Release);
        self.used += 1;
        // SAFETY: the program's iocb, valid, which nobody else uses before it is submitted: the caller promises that.
        unsafe { Iocb::set_file(iocb, file) };
        true
    }

    /// True if another iocb fits into the batch's place.
    pub fn has_room(&self) -> bool {
        self.used < MOST
    }

    /// True if this iocb is one of those that were changed.
    pub fn has(&self, iocb: *mut Iocb) -> bool {
        self.shared.slots.iter().take(self.used).any(|slot| slot.iocb.load(Relaxed) == iocb)
    }

    /// Lets reapers find the changed iocbs from here on.
    pub fn open(&self) {
        if self.used > 0 {
            OPEN.fetch_or(1 << self.index, SeqCst);
        }
    }

    /// Puts back the iocbs that no reaper has put back, and gives the place to other batches.
    pub fn close(self) {
        for slot in self.shared.slots.iter().take(self.used) {
            slot.restore();
        }
        if self.used > 0 {
            OPEN.fetch_and(!(1 << self.index), SeqCst);
            while self.shared.readers.load(SeqCst) != 0 {
                raw::pause();
            }
        }
        for slot in self.shared.slots.iter().take(self.used) {
            slot.state.store(IDLE, Relaxed);
        }
        CLAIMED.fetch_and(!(1 << self.index), Release);
    }
}

impl Slot {
    /// Puts the iocb back to the state in which the program made it, unless another thread has done so already.
    fn restore(&self) {
        match self.state.compare_exchange(CHANGED, RESTORING, AcqRel, Acquire) {
            Ok(_) => {
                // SAFETY: CHANGED: the event has not been given to the program, so the iocb is still there.
                unsafe { Iocb::set_file(self.iocb.load(Relaxed), self.own.load(Relaxed)) };
                self.state.store(RESTORED, Release);
            }
            Err(RESTORING) => {
                while self.state.load(Acquire) == RESTORING {
                    raw::pause(); // one store away, unless that thread is preempted
                }
            }
            Err(_) => {}
        }
    }
}

/// Puts back an iocb whose event is about to be given to the program.
#[inline]
pub fn restore(context: u64, iocb: *mut Iocb) {
    let mut open = OPEN.load(SeqCst);
    while open != 0 {
        let index = open.trailing_zeros();
        open &= open - 1;
        let Some(shared) = ALL.get(index as usize) else { continue };
        shared.readers.fetch_add(1, SeqCst);
        // If the batch was closed meanwhile, all its iocbs have been put back, and the slots may belong to another
        // batch.
        if OPEN.load(SeqCst) & 1 << index != 0 && shared.context.load(Relaxed) == context {
            for slot in &shared.slots {
                match slot.state.load(Acquire) {
                    IDLE => break,
                    _ if slot.iocb.load(Relaxed) == iocb => slot.restore(),
                    _ => {}
                }
            }
        }
        shared.readers.fetch_sub(1, SeqCst);
    }
}

/// Empties all places in a forked child, where nobody submits.
pub fn forget_all() {
    OPEN.store(0, Relaxed);
    for shared in &ALL {
        shared.readers.store(0, Relaxed);
        shared.slots.iter().for_each(|slot| slot.state.store(IDLE, Relaxed));
    }
    CLAIMED.store(0, Release);
}

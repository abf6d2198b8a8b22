//! Large synchronous transfers in parts, over several lanes at a time (`split` of a pool; opt-in).
//!
//! The parts are libaio requests in a context of the library's own, of which there are a few. No thread is needed,
//! because only O_DIRECT transfers are split. A thread that finds all contexts taken carries its transfer out whole.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::abi::libaio::{Event, Iocb, opcode};
use crate::abi::own_stack;
use crate::abi::raw;
use crate::abi::readable::is_readable;
use crate::policy::spread::{self, Choice, Chosen, Kind};
use crate::state::group::GroupRef;
use crate::state::proof::Proofs;
use crate::state::table::{self, Entry};

/// The most transfers that are split at a time.
const CONTEXTS: usize = 16;
/// The most parts of one transfer; a larger transfer has larger parts.
const PARTS: usize = 32;
/// The most bytes that the kernel transfers in one call (linux/fs.h).
const MAX_RW_COUNT: usize = i32::MAX as usize & !(ALIGNMENT - 1);
/// Parts begin at multiples of this number, which satisfies O_DIRECT on every file system.
const ALIGNMENT: usize = 4096;

static IDS: [AtomicU64; CONTEXTS] = [const { AtomicU64::new(0) }; CONTEXTS];
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A context that one transfer owns until it is dropped.
struct Context {
    index: usize,
    id: u64,
}

impl Context {
    fn take() -> Option<Context> {
        let mut taken = TAKEN.load(Relaxed);
        let index = loop {
            let index = (!taken).trailing_zeros() as usize;
            if index >= CONTEXTS {
                return None;
            }
            match TAKEN.compare_exchange_weak(taken, taken | 1 << index, AcqRel, Relaxed) {
                Ok(_) => break index,
                Err(now) => taken = now,
            }
        };
        let mut context = Context { index, id: IDS.get(index)?.load(Acquire) };
        if context.id == 0 {
            // SAFETY: room for one context; PARTS is what it has to hold.
            let made = unsafe { raw::call(libc::SYS_io_setup, PARTS, &raw mut context.id as usize, 0, 0, 0, 0) };
            if made != 0 {
                return None;
            }
            IDS.get(index)?.store(context.id, Release);
        }
        Some(context)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        TAKEN.fetch_and(!(1 << self.index), Release);
    }
}

/// Forgets the contexts in a forked child, where they no longer exist.
pub fn forget_all() {
    IDS.iter().for_each(|id| id.store(0, Relaxed));
    TAKEN.store(0, Relaxed);
}

/// Carries a transfer out in parts. Returns bytes or `-errno`; None if the transfer is not to be split.
///
/// The caller sees to it that no signal handler leaves the call: the parts are under way in the program's memory.
///
/// A transfer that fails in one part ends before it, like any short one; of a write, later parts may have been
/// carried out.
///
/// # Safety
/// As pread(2) or pwrite(2).
#[inline]
pub unsafe fn transfer(fd: c_int, kind: Kind, buffer: *mut c_void, count: usize, offset: i64) -> Option<isize> {
    let Entry::File(_) = table::get(fd) else { return None };
    let group = GroupRef::of(fd)?;
    let part = usize::try_from(group.pool()?.config.split_bytes?).ok()?;
    let mut proofs = Proofs::none();
    // A transfer that meets the limit of file sizes ends there. A part that begins behind the limit would raise
    // SIGXFSZ.
    let within = || kind == Kind::Read || (offset as u64).saturating_add(count as u64) <= raw::largest_file();
    // The kernel refuses such a request whole: unaligned, longer than it carries out at a time, or with memory that is
    // not there.
    let sound = || {
        (buffer as usize | count | offset as usize).is_multiple_of(ALIGNMENT)
            && count <= MAX_RW_COUNT
            && is_readable(buffer as usize, count)
    };
    let mut leaves = || spread::may_leave(&group, fd, kind, offset, count as u64, &mut proofs).is_ok();
    if count <= part || !group.is_direct() || !within() || !sound() || !leaves() {
        return None;
    }
    // SAFETY: the program's contract.
    own_stack::run(|| unsafe { in_parts(&group, fd, kind, buffer, count, offset, part, &mut proofs) })
}

#[derive(Clone, Copy)]
struct Part {
    choice: Choice,
    from: usize,
    count: usize,
    /// The result of the part: bytes or `-errno`.
    result: isize,
}

/// # Safety
/// As pread(2) or pwrite(2).
#[inline(never)]
#[allow(clippy::too_many_arguments, reason = "a transfer, how it is cut, and what is known of its descriptor")]
unsafe fn in_parts(
    group: &GroupRef,
    fd: c_int,
    kind: Kind,
    buffer: *mut c_void,
    count: usize,
    offset: i64,
    part: usize,
    proofs: &mut Proofs,
) -> Option<isize> {
    let context = Context::take()?;
    let size = part.max(count.div_ceil(PARTS)).next_multiple_of(ALIGNMENT);
    let now_ns = raw::now_ns();
    let pool = group.pool()?;
    let mut parts = [const { None::<Part> }; PARTS];
    let mut iocbs = [const { Iocb::empty() }; PARTS];
    let mut pointers = [core::ptr::null_mut::<Iocb>(); PARTS];
    let mut used = 0;
    for ((slot, iocb), pointer) in parts.iter_mut().zip(&mut iocbs).zip(&mut pointers) {
        let from = used * size;
        if from >= count {
            break;
        }
        let length = size.min(count - from);
        let at = offset.saturating_add(from as i64);
        let choice = match spread::choose(group, fd, kind, at, length as u64, now_ns, proofs) {
            Chosen::To(choice) => choice,
            Chosen::Full | Chosen::Stale => spread::own(group, pool, kind, length as u64, now_ns),
        };
        iocb.opcode = if kind == Kind::Read { opcode::PREAD } else { opcode::PWRITE };
        iocb.file = choice.file.unwrap_or(fd);
        iocb.buffer = buffer.wrapping_byte_add(from).expose_provenance() as u64;
        iocb.count = length as u64;
        iocb.offset = at;
        iocb.data = used as u64;
        *pointer = iocb;
        *slot = Some(Part { choice, from, count: length, result: -libc::EIO as isize });
        used += 1;
    }
    let mut submitted = 0;
    while submitted < used {
        let rest = pointers.as_mut_ptr().wrapping_add(submitted) as usize;
        // SAFETY: `used` pointers to iocbs that live until everything has come back, on buffers of the caller.
        let result = unsafe { raw::call(libc::SYS_io_submit, context.id as usize, used - submitted, rest, 0, 0, 0) };
        match usize::try_from(result) {
            Ok(some @ 1..) => submitted += some,
            _ => break, // what was not taken is carried out below, one after another
        }
    }
    let mut missing = submitted;
    let mut events = [const { Event { data: 0, obj: 0, res: 0, res2: 0 } }; PARTS];
    while missing > 0 {
        let (id, room) = (context.id as usize, events.as_mut_ptr() as usize);
        // SAFETY: room for PARTS events.
        let got = unsafe { raw::call(libc::SYS_io_getevents, id, missing, PARTS, room, 0, 0) };
        // A signal interrupts the wait; the requests go on, and their memory must stay.
        let got = usize::try_from(got).unwrap_or(0);
        for event in events.iter().take(got) {
            if let Some(Some(part)) = parts.get_mut(event.data as usize) {
                part.result = event.res as isize;
            }
        }
        missing = missing.saturating_sub(got);
    }
    drop(context);
    let mut done = 0isize;
    let mut complete = true;
    for (index, part) in parts.iter().flatten().enumerate() {
        // SAFETY: the program's contract, a part of it.
        let result = unsafe { settle(group, fd, kind, buffer, offset, part, index < submitted) };
        if !complete {
            continue;
        }
        complete = result == part.count as isize;
        match result {
            0.. => done += result,
            error if index == 0 => done = error,
            _ => {}
        }
    }
    Some(done)
}

/// Counts the end of one part, and does the part again elsewhere where [`spread::synchronous`] would do that.
///
/// # Safety
/// As pread(2) or pwrite(2).
unsafe fn settle(
    group: &GroupRef,
    fd: c_int,
    kind: Kind,
    buffer: *mut c_void,
    offset: i64,
    part: &Part,
    submitted: bool,
) -> isize {
    let number = if kind == Kind::Read { libc::SYS_pread64 } else { libc::SYS_pwrite64 };
    let (at, from) = (offset.saturating_add(part.from as i64), buffer.wrapping_byte_add(part.from));
    // SAFETY: the program's contract, a part of it.
    let carry = |file: c_int| unsafe { raw::transfer(number, file, from, part.count, at) };
    let file = part.choice.file;
    let result = if submitted { part.result } else { carry(file.unwrap_or(fd)) };
    if file.is_some() {
        group.node().lane_ends();
    }
    spread::settle(group, fd, kind, at, part.count as u64, &part.choice, result, carry)
}

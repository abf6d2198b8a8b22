//! A part of a call that the program cannot leave: by siglongjmp(3) or pthread_exit(3) out of a signal handler, by the
//! cancellation of the thread, or by a handler that never returns.
//!
//! A hook that counts a request, or holds a reference or a place in a table, would hold it for ever if the program left
//! it in the middle: the next close of the file would wait for a request that nobody ends. So such a hook blocks the
//! signals that the program handles, and cancellation, while it holds anything. The kernel does the same with handlers:
//! it runs none while it reads or writes a regular file. Signals that the program does not handle are not blocked: they
//! end a program that waits for a silent server, as without the library. Nor are those that the kernel raises for the
//! thread's own instructions.
//!
//! A hook holds nothing while it waits for other things than the file: for a lock, for the other end of a pipe, or for
//! completions (there the kernel unblocks the signals for the time of the wait: io_pgetevents(2)).

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::abi::raw;
use crate::abi::sealed;

/// The signals that the program handles, a bit each, as far as the library has seen them being set. The hooks of
/// sigaction(2) keep the set, and [`look`] finds handlers that were set by system calls of the program's own code.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// The bit of a signal in a set of the kernel's kind; 0 if the number is not that of a signal.
fn bit(signal: c_int) -> u64 {
    let at = u32::try_from(signal).ok().and_then(|signal| signal.checked_sub(1));
    at.and_then(|at| 1u64.checked_shl(at)).unwrap_or(0)
}

/// True if the kernel raises the signal for an instruction of the thread, which cannot go on without a handler.
fn is_of_an_instruction(signal: c_int) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS)
}

/// The kernel's `struct sigaction`, of which the first field matters here.
#[repr(C)]
struct Action {
    handler: usize,
    rest: [u64; 3],
}

/// Asks the kernel if the program handles a signal, and notes the answer.
pub fn look_at(signal: c_int) {
    if bit(signal) == 0 || is_of_an_instruction(signal) {
        return;
    }
    let mut action = Action { handler: 0, rest: [0; 3] };
    let to = &raw mut action as usize;
    // SAFETY: the kernel fills one structure of its own kind, which is not larger than this one.
    let asked = unsafe { raw::call(libc::SYS_rt_sigaction, raw::arg(signal), 0, to, size_of::<u64>(), 0, 0) };
    let handled = asked == 0 && action.handler != libc::SIG_DFL && action.handler != libc::SIG_IGN;
    if handled {
        HANDLED.fetch_or(bit(signal), SeqCst);
    } else {
        HANDLED.fetch_and(!bit(signal), SeqCst);
    }
}

/// Notes that the program is about to handle a signal.
pub fn will_handle(signal: c_int) {
    if !is_of_an_instruction(signal) {
        HANDLED.fetch_or(bit(signal), SeqCst);
    }
}

/// Asks the kernel for all signals: handlers may have been set where no hook sees it.
pub fn look() {
    /// The signals of glibc: a cancellation ([`Undisturbed`] forbids it by other means), and one whose handler returns.
    const OF_LIBC: [c_int; 2] = [32, 33];
    (1..=64).filter(|signal| !OF_LIBC.contains(signal)).for_each(look_at);
}

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

const CANCEL_DISABLE: c_int = 1;
const CANCEL_DEFERRED: c_int = 0;
const CANCEL_ASYNCHRONOUS: c_int = 1;

/// Threads that are in such a part of a call. A thread counts in the place that its stack says, so that threads do not
/// wait for each other's cache lines.
#[repr(align(64))]
struct Inside(AtomicU32);

static INSIDE: [Inside; PLACES] = [const { Inside(AtomicU32::new(0)) }; PLACES];
const PLACES: usize = 16;
/// Counts forks: a forked child does not count the parts that its parent's threads were in.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A count in [`INSIDE`].
#[derive(Clone, Copy)]
struct Counted {
    place: usize,
    generation: u32,
}

impl Counted {
    #[inline]
    fn begin() -> Option<Counted> {
        if sealed::is_sealed() {
            return None;
        }
        let here = 0u8;
        let place = (&raw const here as usize >> 16) % PLACES;
        let counted = Counted { place, generation: GENERATION.load(Acquire) };
        INSIDE.get(place)?.0.fetch_add(1, SeqCst);
        Some(counted)
    }

    #[inline]
    fn end(self) {
        if self.generation == GENERATION.load(Acquire)
            && let Some(inside) = INSIDE.get(self.place)
        {
            inside.0.fetch_sub(1, SeqCst);
        }
    }
}

/// Waits until no thread is in such a part of a call, but for `limit_us` microseconds at most. The calling thread is in
/// none. (A thread that waits for completions does not count.)
pub fn wait_for_all(limit_us: u64) {
    const TURN_US: i64 = 100;
    let end_ns = raw::now_ns().saturating_add(limit_us.saturating_mul(1000));
    while INSIDE.iter().any(|inside| inside.0.load(SeqCst) != 0) && raw::now_ns() < end_ns {
        raw::sleep_us(TURN_US);
    }
}

/// Forgets, in a forked child, the threads that it does not have.
pub fn forget_all() {
    GENERATION.fetch_add(1, SeqCst);
    INSIDE.iter().for_each(|inside| inside.0.store(0, SeqCst));
}

/// A guard: while it lives, no handler of the program runs in the calling thread, and the thread is not cancelled.
/// It is the first value that a function makes, so that it is the last one that is dropped.
#[must_use]
pub struct Undisturbed {
    /// The blocked signals of before; None if nothing had to be blocked.
    blocked: Option<u64>,
    cancel: c_int,
    counted: Option<Counted>,
}

impl Undisturbed {
    /// Blocks handlers and cancellation in the calling thread from here on.
    #[inline]
    pub fn begin() -> Undisturbed {
        Undisturbed::with(true)
    }

    /// Like `begin`, for a thread that waits for completions meanwhile: [`wait_for_all`] does not wait for it.
    #[inline]
    pub fn begin_to_wait() -> Undisturbed {
        Undisturbed::with(false)
    }

    #[inline]
    fn with(counts: bool) -> Undisturbed {
        let handled = if sealed::is_sealed() { 0 } else { HANDLED.load(Acquire) };
        let blocked = (handled != 0).then(|| raw::change_mask(libc::SIG_BLOCK, handled));
        let mut cancel = 0;
        // SAFETY: a valid state, and room for the one before.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut cancel) };
        // Handlers and cancellation leave no count behind from here on.
        let counted = if counts { Counted::begin() } else { None };
        Undisturbed { blocked, cancel, counted }
    }

    /// The set of signals that were blocked before, for a call of the kernel that unblocks the others while it waits;
    /// null if nothing had to be blocked.
    pub fn mask(&self) -> *const c_void {
        self.blocked.as_ref().map_or(core::ptr::null(), |before| core::ptr::from_ref(before).cast())
    }
}

impl Drop for Undisturbed {
    #[inline]
    fn drop(&mut self) {
        if let Some(counted) = self.counted {
            counted.end();
        }
        end(self.blocked, self.cancel);
    }
}

/// Puts both back. Handlers of signals that have come meanwhile run inside this function, and may leave it: the signals
/// come last. (It is not inlined: unwinding from inside it must not meet a frame with anything to drop.)
#[inline(never)]
fn end(blocked: Option<u64>, cancel: c_int) {
    // A thread that may be cancelled at any instruction ends in pthread_setcanceltype(3). In pthread_setcancelstate(3)
    // of glibc 2.34 to 2.37 it would end with the result NULL (not PTHREAD_CANCELED).
    let mut kind = CANCEL_DEFERRED;
    // SAFETY: a valid type, and room for the one before.
    unsafe { pthread_setcanceltype(CANCEL_DEFERRED, &raw mut kind) };
    // SAFETY: the state that this thread had.
    unsafe { pthread_setcancelstate(cancel, core::ptr::null_mut()) };
    if kind == CANCEL_ASYNCHRONOUS {
        // SAFETY: the type that this thread had.
        unsafe { pthread_setcanceltype(kind, core::ptr::null_mut()) };
    }
    if let Some(before) = blocked {
        raw::restore_mask(before);
    }
}

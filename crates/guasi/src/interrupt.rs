//! A signal with a handler that does nothing breaks off the system call that a worker is blocked in.
//!
//! The signal is a real-time signal that nobody uses, or else one that the kernel ignores by default. It is chosen when
//! the first worker starts, and its handler is
//! installed (without SA_RESTART) only when the first active call is to be broken off. SIGUSR1, which GUASI 0.25 took,
//! stays the program's.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, OnceLock};

static CHOICE: OnceLock<Option<i32>> = OnceLock::new();
static INSTALLED: Mutex<bool> = Mutex::new(false);

/// The signal that breaks calls off, its handler installed or not yet; None if the program has set an action
/// for each of them.
pub(crate) fn signal() -> Option<i32> {
    let all = || (libc::SIGRTMIN()..libc::SIGRTMAX()).rev().chain([libc::SIGURG, libc::SIGWINCH]);
    *CHOICE.get_or_init(|| all().find(|&signal| is_free(signal)))
}

/// The signal if its handler has been installed, else None.
pub(crate) fn installed() -> Option<i32> {
    let installed = *INSTALLED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if installed { signal() } else { None }
}

fn is_free(signal: i32) -> bool {
    let mut current = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: sigaction changes nothing without a new action, and fills `current`, which this function owns.
    let answer = unsafe { libc::sigaction(signal, ptr::null(), current.as_mut_ptr()) };
    // SAFETY: zeroed is a valid sigaction, and the kernel filled it in.
    let current = unsafe { current.assume_init() };
    answer == 0 && current.sa_sigaction == libc::SIG_DFL
}

extern "C" fn nothing(_signal: i32) {}

/// The signal with its handler installed; None if the program has taken the signal since it was chosen.
fn install() -> Option<i32> {
    let signal = signal()?;
    let mut installed = INSTALLED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !*installed {
        if !is_free(signal) {
            return None;
        }
        // SAFETY: all-zero is a valid sigaction: no flags (so calls are broken off, not restarted), empty mask.
        let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        action.sa_sigaction = nothing as *const () as usize;
        // SAFETY: the handler does nothing, hence is async-signal-safe, and lives as long as the library.
        if unsafe { libc::sigaction(signal, &action, ptr::null_mut()) } != 0 {
            return None;
        }
        *installed = true;
    }
    Some(signal)
}

/// Breaks off the system call that the thread is blocked in, if any.
///
/// # Safety
/// The thread exists and has not been joined.
pub(crate) unsafe fn interrupt(thread: libc::pthread_t) {
    if let Some(signal) = install() {
        // SAFETY: the thread exists by the contract; the handler is installed.
        unsafe { libc::pthread_kill(thread, signal) };
    }
}

/// Blocks every signal in this thread, so that the program's handlers run on the program's threads. Open stay the
/// signals that the thread raises itself by a fault, and, if it may be broken off, the signal that breaks calls off.
pub(crate) fn shield(interruptible: bool) {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills the set, which this function owns.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: sigfillset has filled the set.
    let mut set = unsafe { set.assume_init() };
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];
    for signal in faults.into_iter().chain(signal().filter(|_| interruptible)) {
        // SAFETY: the set is valid, and so is the signal number.
        unsafe { libc::sigdelset(&mut set, signal) };
    }
    // SAFETY: the call reads a valid set and changes only this thread's mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &set, ptr::null_mut()) };
}

/// The signals that a thread blocks, as the kernel has them: bit n for signal n + 1 (rt_sigprocmask(2)).
#[derive(Clone, Copy)]
pub(crate) struct Mask(u64);

impl Mask {
    /// The calling thread's mask, without the signal that breaks calls off: for a worker that carries out what this
    /// thread submits. A process that the program's function makes inherits it, and so does not ignore SIGTERM.
    #[cfg_attr(not(feature = "c-abi"), allow(dead_code, reason = "only C programs submit functions"))]
    pub fn of_caller() -> Mask {
        let mask = change(ptr::null());
        Mask(signal().map_or(mask.0, |signal| mask.0 & !(1 << (signal - 1))))
    }

    /// Makes this the calling thread's mask and returns the mask that the thread had.
    fn set(self) -> Mask {
        change(&self.0)
    }
}

/// Has a worker carry out what the program wants, with that signal mask, and returns its result. A SIGPIPE that the
/// program raised and blocks is taken back: a later function with another mask would receive it. Without a mask the
/// worker keeps its mask.
pub(crate) fn with<T>(mask: Option<Mask>, carry_out: impl FnOnce() -> T) -> T {
    let shield = mask.map(Mask::set);
    let result = carry_out();
    if let (Some(mask), Some(shield)) = (mask, shield) {
        shield.set();
        if mask.0 & (1 << (libc::SIGPIPE - 1)) != 0 {
            forget_sigpipe();
        }
    }
    result
}

/// Sets the calling thread's mask, or only asks for it if `new` is null; returns the mask that the thread had.
fn change(new: *const u64) -> Mask {
    let mut old = 0u64;
    // SAFETY: the kernel reads one set of 8 bytes, or none if `new` is null, and writes `old`.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, &raw mut old, size_of::<u64>()) };
    Mask(old)
}

/// Takes back the SIGPIPE that a write of this thread has raised, where the thread blocks SIGPIPE: the signal would end
/// the process when the program's mask comes back.
pub(crate) fn forget_sigpipe() {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset empties the set, which this function owns.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: sigemptyset has initialised the set.
    let mut set = unsafe { set.assume_init() };
    // SAFETY: the set is valid, and so is the signal number.
    unsafe { libc::sigaddset(&mut set, libc::SIGPIPE) };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call reads a valid set and a valid time; it writes nothing.
    unsafe { libc::sigtimedwait(&set, ptr::null_mut(), &now) };
}

//! The state in which this process was started: ignored and blocked signals, closed standard descriptors. Rust's
//! runtime ignores SIGPIPE and opens closed standard descriptors on /dev/null, and it gives the programs that it starts
//! an empty mask and SIGPIPE's default action.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The signals that were ignored, and those that were blocked, a bit each.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// The standard descriptors that were closed, a bit each.
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// The kernel's `struct sigaction`. libc's functions refuse the signals that libc itself uses.
type Action = [usize; 4];
const SIGNALS: std::ops::RangeInclusive<usize> = 1..=64;
const SET_BYTES: usize = size_of::<u64>();

/// Runs before Rust's runtime.
extern "C" fn look() {
    // A library that has this code linked in (the interposer) makes no calls: a filter may forbid them. The kernel maps
    // libraries far from the program.
    const FAR: usize = 1 << 30;
    // SAFETY: an integer goes in, an integer comes out.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    if (look as *const () as usize).abs_diff(entry) > FAR {
        return;
    }
    let mut ignored = 0;
    for signal in SIGNALS {
        let mut action: Action = [0; 4];
        let to = &raw mut action as usize;
        // SAFETY: the kernel fills one structure of its kind, which is not larger than this one.
        let asked = unsafe { crate::raw::call(libc::SYS_rt_sigaction, signal, 0, to, SET_BYTES, 0, 0) };
        if asked == 0 && action[0] == libc::SIG_IGN {
            ignored |= 1 << (signal - 1);
        }
    }
    IGNORED.store(ignored, Relaxed);
    let mut blocked = 0u64;
    let to = &raw mut blocked as usize;
    // SAFETY: the kernel fills one set of this size.
    unsafe { crate::raw::call(libc::SYS_rt_sigprocmask, 0, 0, to, SET_BYTES, 0, 0) };
    BLOCKED.store(blocked, Relaxed);
    // SAFETY: the call takes integers only.
    let is_closed = |fd: &i32| unsafe { libc::fcntl(*fd, libc::F_GETFD) } < 0;
    CLOSED.store((0..=2).filter(is_closed).fold(0, |closed, fd| closed | 1 << fd), Relaxed);
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Has the program of `command` begin with the signals and standard descriptors that this process was started with.
pub fn inherit(command: &mut Command) {
    let (ignored, blocked, closed) = (IGNORED.load(Relaxed), BLOCKED.load(Relaxed), CLOSED.load(Relaxed));
    let prepare = move || {
        for signal in SIGNALS.filter(|signal| ignored & 1 << (signal - 1) != 0) {
            let action: Action = [libc::SIG_IGN, 0, 0, 0];
            let from = &raw const action as usize;
            // SAFETY: sets a disposition of the new process; SIG_IGN is always valid.
            unsafe { crate::raw::call(libc::SYS_rt_sigaction, signal, from, 0, SET_BYTES, 0, 0) };
        }
        for fd in (0..=2).filter(|fd| closed & 1 << fd != 0) {
            // SAFETY: the descriptor on /dev/null that the runtime has opened; nobody in the new process uses it.
            unsafe { libc::close(fd) };
        }
        let from = &raw const blocked as usize;
        // SAFETY: the kernel reads one set of this size.
        unsafe { crate::raw::call(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK as usize, from, 0, SET_BYTES, 0, 0) };
        Ok(())
    };
    // SAFETY: between fork and exec, `prepare` makes a few system calls and touches no memory of the parent.
    unsafe { command.pre_exec(prepare) };
}

//! Masks of signals under `--raw`: a thread that blocks SIGSYS would be killed by its next inline system call, so
//! nothing of the program blocks that signal.
//!
//! Without `--raw` the hooks here pass everything on.

use core::ffi::{c_int, c_long, c_void};

use super::{caught, signal};
use crate::abi::dispatch::{self, SIGSYS_BIT};
use crate::abi::raw;
use crate::abi::real;

type Set = libc::sigset_t;

/// A set of signals without SIGSYS.
struct Without(Set);

impl Without {
    /// The program's set without SIGSYS, if `--raw` is in force.
    ///
    /// # Safety
    /// `given` is null or valid.
    unsafe fn sigsys(given: *const Set) -> Option<Without> {
        if given.is_null() || !dispatch::on() {
            return None;
        }
        // SAFETY: the caller passes a valid set.
        let mut set = Without(unsafe { given.read() });
        // SAFETY: a valid set; libc's function touches nothing else.
        let _ = unsafe { libc::sigdelset(&raw mut set.0, libc::SIGSYS) };
        Some(set)
    }
}

/// The address of a set: the changed one, or the program's.
fn place(changed: &Option<Without>, given: *const Set) -> *const Set {
    changed.as_ref().map_or(given, |set| &raw const set.0)
}

macro_rules! masks {
    ($($name:ident($($before:ident: $type:ty,)* @ $mask:ident $(, $after:ident: $after_type:ty)*);)*) => {
        $(
            /// The function of libc of that name.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($before: $type,)* $mask: *const Set $(, $after: $after_type)*) -> c_int {
                // SAFETY: the program's contract.
                let changed = unsafe { Without::sigsys($mask) };
                // SAFETY: the program's contract.
                unsafe { real::$name($($before,)* place(&changed, $mask) $(, $after)*) }
            }
        )*
    };
}

masks! {
    sigsuspend(@ mask);
    ppoll(list: *mut c_void, count: libc::nfds_t, timeout: *const libc::timespec, @ mask);
    pselect(count: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void, timeout: *const libc::timespec,
            @ mask);
    epoll_pwait(epoll: c_int, events: *mut c_void, count: c_int, timeout: c_int, @ mask);
    epoll_pwait2(epoll: c_int, events: *mut c_void, count: c_int, timeout: *const libc::timespec, @ mask);
}

macro_rules! blocks {
    ($($name:ident)*) => {
        $(
            /// The function of libc of that name.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(how: c_int, set: *const Set, before: *mut Set) -> c_int {
                // SAFETY: the program's contract.
                let changed = if how == libc::SIG_UNBLOCK { None } else { unsafe { Without::sigsys(set) } };
                // SAFETY: the program's contract.
                unsafe { real::$name(how, place(&changed, set), before) }
            }
        )*
    };
}

blocks! { sigprocmask pthread_sigmask }

/// prctl(2).
///
/// # Safety
/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if option == dispatch::PR_SET_SYSCALL_USER_DISPATCH {
        dispatches();
    }
    // SAFETY: the program's contract.
    unsafe { real::prctl(option, a, b, c, d) }
}

/// The program uses the dispatch itself.
fn dispatches() {
    caught::stop("the program uses Syscall User Dispatch itself");
}

/// Carries out a call by its number, as the hook of the function of that name does. None if the call sets neither a
/// mask nor a handler.
///
/// # Safety
/// The arguments of the call.
pub unsafe fn by_number(number: c_long, arguments: [usize; 6]) -> Option<isize> {
    if !dispatch::on() {
        return None;
    }
    let mut changed = arguments;
    // The place of a set among the arguments.
    let masked = match number {
        libc::SYS_rt_sigsuspend => 0,
        libc::SYS_ppoll => 3,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
        libc::SYS_prctl if arguments[0] as c_int == dispatch::PR_SET_SYSCALL_USER_DISPATCH => {
            dispatches();
            return None;
        }
        libc::SYS_rt_sigaction if arguments[1] != 0 => {
            let signal = arguments[0] as c_int;
            /// The words of the kernel's `struct sigaction`; the set is the last one.
            const WORDS: usize = 4;
            // SAFETY: the program's arguments.
            let mut action = unsafe { (arguments[1] as *const [u64; WORDS]).read_unaligned() };
            action[WORDS - 1] &= !SIGSYS_BIT;
            changed[1] = &raw const action as usize;
            // SAFETY: the program's arguments, with a copy of its action.
            return Some(signal::around(signal, Some(action[0] as usize), || unsafe { bare(number, changed) }));
        }
        libc::SYS_rt_sigprocmask => {
            // SAFETY: the program's arguments.
            let result = unsafe { bare(number, arguments) };
            dispatch::unblock();
            return Some(result);
        }
        _ => return None,
    };
    if arguments[masked] == 0 {
        return None;
    }
    // SAFETY: the program's arguments: a set of the kernel's size.
    let set = unsafe { (arguments[masked] as *const u64).read_unaligned() } & !SIGSYS_BIT;
    changed[masked] = &raw const set as usize;
    // SAFETY: the program's arguments, with a copy of its set.
    Some(unsafe { bare(number, changed) })
}

unsafe fn bare(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the caller gives arguments that are valid for this system call.
    unsafe { raw::call(number, a, b, c, d, e, f) }
}

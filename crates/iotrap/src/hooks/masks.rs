//! Masks of signals under `--raw`: a thread that blocks SIGSYS would be killed by its next inline system call, so
//! nothing of the program blocks that signal.
//!
//! Without `--raw` the hooks here pass everything on.

use core::ffi::{c_int, c_long, c_void};

use super::{caught, filter, signal};
use crate::abi::dispatch::{self, SIGSYS_BIT};
use crate::abi::raw;
use crate::abi::readable;
use crate::abi::real;

type Set = libc::sigset_t;

/// A set of signals without SIGSYS, of libc's size. The kernel reads its first word only.
struct Without([u64; WORDS]);

const WORDS: usize = size_of::<Set>() / size_of::<u64>();

impl Without {
    /// The program's set without SIGSYS, if `--raw` is in force. None too if the kernel would not read the set.
    fn sigsys(given: *const Set) -> Option<Without> {
        if !dispatch::on() {
            return None;
        }
        let mut set = Without([0; WORDS]);
        *set.0.first_mut()? = readable::read::<u64>(given.cast())? & !SIGSYS_BIT;
        Some(set)
    }
}

/// The address of a set: the changed one, or the program's.
fn place(changed: &Option<Without>, given: *const Set) -> *const Set {
    changed.as_ref().map_or(given, |set| set.0.as_ptr().cast())
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
                let changed = Without::sigsys($mask);
                // SAFETY: the program's contract.
                unsafe { real::$name($($before,)* place(&changed, $mask) $(, $after)*) }
            }
        )*
    };
}

masks! {
    sigsuspend(@ mask);
    __sigsuspend(@ mask);
    ppoll(list: *mut c_void, count: libc::nfds_t, timeout: *const libc::timespec, @ mask);
    __ppoll_chk(list: *mut c_void, count: libc::nfds_t, timeout: *const libc::timespec, @ mask, room: usize);
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
                let changed = if how == libc::SIG_UNBLOCK { None } else { Without::sigsys(set) };
                // SAFETY: the program's contract.
                unsafe { real::$name(how, place(&changed, set), before) }
            }
        )*
    };
}

blocks! { sigprocmask pthread_sigmask }

/// A mask of BSD's functions, a bit for each of the first signals, without SIGSYS if `--raw` is in force.
fn small(mask: c_int) -> c_int {
    if dispatch::on() { mask & !(SIGSYS_BIT as c_int) } else { mask }
}

macro_rules! small_masks {
    ($($name:ident($mask:ident $(, $after:ident)?);)*) => {
        $(
            /// The function of libc of that name, with a mask of BSD's kind.
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($mask: c_int $(, $after: c_int)?) -> c_int {
                // SAFETY: the program's contract.
                unsafe { real::$name(small($mask) $(, $after)?) }
            }
        )*
    };
}

small_masks! { sigblock(mask); sigsetmask(mask); sigpause(mask); }

/// sigpause(3) of BSD or of X/Open: the first argument is a mask, or a signal.
///
/// # Safety
/// As sigpause(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __sigpause(what: c_int, is_signal: c_int) -> c_int {
    let what = if is_signal == 0 { small(what) } else { what };
    // SAFETY: the program's contract.
    unsafe { real::__sigpause(what, is_signal) }
}

/// sighold(3).
///
/// # Safety
/// As sighold(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sighold(signal: c_int) -> c_int {
    if signal == libc::SIGSYS && dispatch::on() {
        return 0;
    }
    // SAFETY: the program's contract.
    unsafe { real::sighold(signal) }
}

/// True if a context that another one names as its successor has been filled by getcontext(3) or swapcontext(3), which
/// store the address of its own floating-point registers. The successor may not be filled yet (swapcontext(3) is about
/// to keep the caller there), or be gone, if the other one never returns.
#[cfg(target_arch = "x86_64")]
fn is_filled(context: *const libc::ucontext_t) -> bool {
    const REGISTERS: usize = core::mem::offset_of!(libc::ucontext_t, uc_mcontext.fpregs);
    let registers = readable::read::<usize>(context.wrapping_byte_add(REGISTERS).cast());
    // The room for the registers lies behind the set of signals.
    context.is_aligned() && registers == Some(set_of(context) as usize + size_of::<Set>())
}

#[cfg(not(target_arch = "x86_64"))]
fn is_filled(_: *const libc::ucontext_t) -> bool {
    false // nothing is dispatched there
}

/// The address of the set of a context.
fn set_of(context: *const libc::ucontext_t) -> *const u32 {
    context.wrapping_byte_add(core::mem::offset_of!(libc::ucontext_t, uc_sigmask)).cast()
}

/// Takes SIGSYS out of the set of a context, and of those that follow it, as far as they are filled.
pub fn open_context(context: *const libc::ucontext_t) {
    /// The most contexts that follow one another.
    const MOST: usize = 64;
    const LINK: usize = core::mem::offset_of!(libc::ucontext_t, uc_link);
    const BIT: u32 = SIGSYS_BIT as u32;
    let mut at = context;
    for _ in 0..MOST {
        if !dispatch::on() {
            return;
        }
        // SIGSYS is in the first half of the kernel's set, and that is the first word of libc's.
        let set = set_of(at);
        match readable::read(set) {
            Some(signals) if signals & BIT != 0 => {
                // It may lie in memory that cannot be written.
                let _ = readable::are_written([set as usize].into_iter(), signals & !BIT);
            }
            Some(_) => {}
            None => return,
        }
        match readable::read::<usize>(at.wrapping_byte_add(LINK).cast()) {
            Some(next) => at = core::ptr::with_exposed_provenance(next),
            None => return,
        }
        if !is_filled(at) {
            return;
        }
    }
}

/// setcontext(3).
///
/// # Safety
/// As setcontext(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setcontext(context: *const libc::ucontext_t) -> c_int {
    open_context(context);
    // SAFETY: the program's contract.
    unsafe { real::setcontext(context) }
}

/// swapcontext(3). The context that is kept goes on inside this function, which returns to the program then.
///
/// # Safety
/// As swapcontext(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn swapcontext(kept: *mut libc::ucontext_t, context: *const libc::ucontext_t) -> c_int {
    open_context(context);
    // SAFETY: the program's contract.
    unsafe { real::swapcontext(kept, context) }
}

/// A set of the kernel's size, with its size, as pselect6(2) and io_pgetevents(2) take it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sized {
    set: usize,
    bytes: usize,
}

/// A place for a set without SIGSYS, and the descriptions that lead to it.
pub struct Changed {
    set: u64,
    sized: Sized,
    /// `struct io_uring_getevents_arg`.
    waiting: [u64; 3],
}

impl Changed {
    /// An empty place.
    pub const fn none() -> Changed {
        Changed { set: 0, sized: Sized { set: 0, bytes: 0 }, waiting: [0; 3] }
    }

    /// The address of a set of the kernel's size without SIGSYS; the address that was given if `--raw` is off.
    pub fn set(&mut self, given: usize) -> usize {
        if !dispatch::on() {
            return given;
        }
        let Some(set) = readable::read::<u64>(core::ptr::with_exposed_provenance(given)) else { return given };
        self.set = set & !SIGSYS_BIT;
        &raw const self.set as usize
    }

    /// The address of a set with its size, of which SIGSYS is taken out; the address that was given if `--raw` is off.
    pub fn sized(&mut self, given: usize) -> usize {
        if !dispatch::on() {
            return given;
        }
        match readable::read::<Sized>(core::ptr::with_exposed_provenance(given)) {
            Some(Sized { set, bytes }) if bytes == size_of::<u64>() => {
                self.sized = Sized { set: self.set(set), bytes };
                &raw const self.sized as usize
            }
            _ => given, // EFAULT, or EINVAL
        }
    }

    /// The argument of io_uring_enter(2), of `size` bytes, with a set without SIGSYS; the address that was given if
    /// `--raw` is off.
    pub fn of_ring(&mut self, flags: usize, argument: usize, size: usize) -> usize {
        const EXT_ARG: usize = 1 << 3;
        const EXT_ARG_REG: usize = 1 << 6;
        if argument == 0 || !dispatch::on() || flags & EXT_ARG_REG != 0 {
            return argument;
        }
        if flags & EXT_ARG == 0 {
            return if size == size_of::<u64>() { self.set(argument) } else { argument };
        }
        let waiting = readable::read::<[u64; 3]>(core::ptr::with_exposed_provenance(argument));
        let Some(waiting) = waiting.filter(|_| size == size_of_val(&self.waiting)) else { return argument };
        self.waiting = waiting;
        if self.waiting[1] as u32 as usize == size_of::<u64>() {
            self.waiting[0] = self.set(self.waiting[0] as usize) as u64;
        }
        &raw const self.waiting as usize
    }
}

/// prctl(2).
///
/// # Safety
/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if option == dispatch::PR_SET_SYSCALL_USER_DISPATCH {
        dispatches();
    }
    if option == libc::PR_SET_SECCOMP {
        filter::before_prctl(a, b);
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
    /// The words of the kernel's `struct sigaction`; the set is the last one.
    const WORDS: usize = 4;
    let mut changed = arguments;
    let mut without = Changed::none();
    // The place of a set among the arguments.
    let masked = match number {
        libc::SYS_rt_sigsuspend => 0,
        libc::SYS_ppoll => 3,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
        libc::SYS_pselect6 => {
            changed[5] = without.sized(arguments[5]);
            // SAFETY: the program's arguments, with a copy of its set.
            return Some(unsafe { bare(number, changed) });
        }
        libc::SYS_prctl if arguments[0] as c_int == dispatch::PR_SET_SYSCALL_USER_DISPATCH => {
            dispatches();
            return None;
        }
        libc::SYS_rt_sigaction if arguments[1] == 0 && signal::is_default_of_sigsys(arguments[0] as c_int, None) => {
            changed[0] = signal::DEFAULT as usize;
            // SAFETY: the program's arguments, of another signal.
            return Some(unsafe { bare(number, changed) });
        }
        libc::SYS_rt_sigaction => {
            let signal = arguments[0] as c_int;
            let mut action = readable::read::<[u64; WORDS]>(core::ptr::with_exposed_provenance(arguments[1]))?;
            if signal::is_default_of_sigsys(signal, Some(action[0] as usize)) {
                (changed[0], changed[1]) = (signal::DEFAULT as usize, 0);
                // SAFETY: the program's arguments, of another signal.
                return Some(unsafe { bare(number, changed) });
            }
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
    changed[masked] = without.set(arguments[masked]);
    // SAFETY: the program's arguments, with a copy of its set.
    Some(unsafe { bare(number, changed) })
}

unsafe fn bare(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the caller gives arguments that are valid for this system call.
    unsafe { raw::pass(number, a, b, c, d, e, f) }
}

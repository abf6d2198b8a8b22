//! sigaction(2) and signal(3): the library learns which signals the program handles, and blocks those while a call must
//! not be left ([`crate::abi::undisturbed`]). A program that handles SIGSYS itself ends `--raw`.

use core::ffi::{c_int, c_void};

use super::caught;
use crate::abi::dispatch;
use crate::abi::errno;
use crate::abi::real;
use crate::abi::undisturbed;
use crate::state::process;

/// Carries out a change of a signal's handler. The signal counts as handled before the handler can run.
pub fn around<T>(signal: c_int, handler: Option<usize>, change: impl FnOnce() -> T) -> T {
    // A child of vfork(2) has handlers of its own, and its parent's memory.
    if !process::is_own() {
        return change();
    }
    if signal == libc::SIGSYS && handler.is_some() {
        caught::stop("the program handles SIGSYS itself");
    }
    if handler.is_some_and(|handler| handler != libc::SIG_DFL && handler != libc::SIG_IGN) {
        undisturbed::will_handle(signal);
    }
    let result = change();
    let _errno = errno::kept();
    undisturbed::look_at(signal);
    result
}

/// True if a program under `--raw` asks for its action of SIGSYS, or sets the default one: programs do so for all
/// signals in turn (git's children, Python). The action stays the library's, which does as the default action does for
/// SIGSYS from elsewhere, and the program is told of the default action.
pub fn is_default_of_sigsys(signal: c_int, handler: Option<usize>) -> bool {
    signal == libc::SIGSYS
        && handler.is_none_or(|handler| handler == libc::SIG_DFL)
        && dispatch::on()
        && process::is_own()
}

/// A signal whose action is the default one at all times.
pub const DEFAULT: c_int = libc::SIGKILL;

/// The program's action with a mask without SIGSYS, if `--raw` is in force.
///
/// # Safety
/// `action` is null or valid.
unsafe fn without_sigsys(action: *const libc::sigaction) -> Option<libc::sigaction> {
    if action.is_null() || !dispatch::on() {
        return None;
    }
    // SAFETY: the caller passes a valid action.
    let mut action = unsafe { action.read() };
    // SAFETY: a valid set.
    let _ = unsafe { libc::sigdelset(&raw mut action.sa_mask, libc::SIGSYS) };
    Some(action)
}

macro_rules! actions {
    ($($name:ident)*) => {
        $(
            /// sigaction(2).
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                signal: c_int,
                action: *const libc::sigaction,
                before: *mut libc::sigaction,
            ) -> c_int {
                // SAFETY: the program's contract: null, or a structure.
                let handler = unsafe { action.as_ref() }.map(|action| action.sa_sigaction);
                if is_default_of_sigsys(signal, handler) {
                    // SAFETY: the program's contract: null, or room for an action.
                    return unsafe { real::$name(DEFAULT, core::ptr::null(), before) };
                }
                // SAFETY: the program's contract.
                let changed = unsafe { without_sigsys(action) };
                let action = changed.as_ref().map_or(action, core::ptr::from_ref);
                // SAFETY: the program's contract.
                let real = || unsafe { real::$name(signal, action, before) };
                if handler.is_none() { real() } else { around(signal, handler, real) }
            }
        )*
    };
}

actions! { sigaction __sigaction }

macro_rules! handlers {
    ($($name:ident)*) => {
        $(
            /// The function of that name of signal(3).
            ///
            /// # Safety
            /// The program's contract ([`crate::hooks`]).
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(signal: c_int, handler: *mut c_void) -> *mut c_void {
                if is_default_of_sigsys(signal, Some(handler.expose_provenance())) {
                    return core::ptr::null_mut(); // SIG_DFL
                }
                // SAFETY: the program's contract.
                around(signal, Some(handler.expose_provenance()), || unsafe { real::$name(signal, handler) })
            }
        )*
    };
}

handlers! { signal bsd_signal ssignal sysv_signal __sysv_signal }

/// sigset(3).
///
/// # Safety
/// As sigset(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigset(signal: c_int, handler: *mut c_void) -> *mut c_void {
    /// SIG_HOLD: the signal is blocked, and its handler stays.
    const HOLD: usize = 2;
    // SAFETY: the program's contract.
    let real = || unsafe { real::sigset(signal, handler) };
    match handler.expose_provenance() {
        HOLD if signal == libc::SIGSYS && dispatch::on() => core::ptr::null_mut(), // SIG_DFL
        HOLD => real(),
        handler if is_default_of_sigsys(signal, Some(handler)) => core::ptr::null_mut(),
        handler => around(signal, Some(handler), real),
    }
}

/// sigignore(3).
///
/// # Safety
/// As sigignore(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigignore(signal: c_int) -> c_int {
    // SAFETY: the program's contract.
    around(signal, Some(libc::SIG_IGN), || unsafe { real::sigignore(signal) })
}

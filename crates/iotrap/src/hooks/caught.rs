//! `--raw`: system calls that do not pass through libc reach the hook of syscall(2) ([`super::syscall`]).
//!
//! The kernel turns such a call into SIGSYS ([`crate::abi::dispatch`]). The handler carries the call out and writes its
//! result where the call would have left it. A few calls act on the context that the handler interrupts, not on the
//! handler: the mask of signals, the alternative stack, the return of another handler, and a child on another stack.
//!
//! The handler runs on the interrupted stack, as a function that the program calls does. It blocks no signal: the
//! program's handlers interrupt the call as they interrupt any other.
#![cfg_attr(not(target_arch = "x86_64"), allow(unused_imports, reason = "the handler exists on x86-64 only"))]

use core::ffi::{c_int, c_long, c_uint, c_void};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Release};

use super::filter;
use crate::abi::dispatch::{self, Refusal};
use crate::abi::errno;
use crate::abi::raw;
use crate::abi::real;
use crate::abi::said;
use crate::state::process::{self, LimitHeld};
use crate::state::reason::Reason;

/// The address of the code in libc by which a handler returns (rt_sigreturn(2)).
static RETURN: AtomicUsize = AtomicUsize::new(0);

/// Begins to catch the calls, in the program's first thread. One line says why that is not possible.
pub fn prepare() {
    let why = match dispatch::begin(install) {
        Ok(()) => return,
        Err(Refusal::Kernel) => "the kernel cannot do that (Linux 5.11 or later, x86-64)",
        Err(Refusal::Libc) => "libc's text was not found",
        Err(Refusal::Handler) => "the program already handles SIGSYS itself",
        Err(Refusal::Valgrind) => "valgrind makes calls of its own",
        Err(Refusal::Sanitizer) => "ThreadSanitizer makes calls of its own while it blocks all signals",
        Err(Refusal::Go) => "Go code runs on stacks that have no room for the handler",
    };
    told(why);
}

/// Stops to catch calls: the program does something that goes only without.
pub fn stop(why: &str) {
    if dispatch::stop() {
        told(why);
    }
}

/// Stops to catch calls without a word, because the process gets a filter of system calls, and leaves SIGSYS to the
/// filter: its action is the default one again.
pub fn end() {
    if dispatch::stop() {
        // SAFETY: SIG_DFL needs no function.
        let _ = unsafe { real::signal(libc::SIGSYS, core::ptr::without_provenance_mut(libc::SIG_DFL)) };
    }
}

fn told(why: &str) {
    let mut line = raw::Digits::<256>::empty();
    line.push(b"iotrap: --raw is off in this program, and calls outside libc go unseen: ");
    line.push(why.as_bytes());
    line.push(b"\n");
    said::line(line.as_bytes());
}

/// `struct sigaction` of the kernel.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Makes the handler, if SIGSYS has none. False if there is one.
fn install() -> bool {
    // SAFETY: the all-zero action is a valid one.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: an action is written.
    let asked = unsafe { real::sigaction(libc::SIGSYS, core::ptr::null(), &raw mut action) };
    if asked != 0 || !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        return false;
    }
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = caught;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
    // SAFETY: the handler has the type that SA_SIGINFO asks for; its mask is empty.
    if unsafe { real::sigaction(libc::SIGSYS, &raw const action, core::ptr::null_mut()) } != 0 {
        return false;
    }
    let mut made = KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let (signal, place, size) = (libc::SIGSYS as usize, &raw mut made as usize, size_of::<u64>());
    // SAFETY: one action is written.
    let asked = unsafe { raw::call(libc::SYS_rt_sigaction, signal, 0, place, size, 0, 0) };
    RETURN.store(made.restorer, Release);
    asked == 0 && made.restorer != 0
}

#[cfg(not(target_arch = "x86_64"))]
extern "C" fn caught(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}

/// The handler of SIGSYS.
#[cfg(target_arch = "x86_64")]
extern "C" fn caught(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = errno::kept();
    // SAFETY: the kernel passes a valid description of the signal.
    if unsafe { (*info).si_code } != dispatch::SYS_USER_DISPATCH {
        return by_default(signal);
    }
    // SAFETY: the kernel passes the context that it has interrupted, which is this handler's alone.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let register = |which: c_int| context.uc_mcontext.gregs[which as usize] as usize;
    let number = register(libc::REG_RAX) as c_long;
    let arguments = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
    let arguments = arguments.map(register);
    Reason::Caught.count();
    if installs_filter(number, &arguments) && !dispatch::on() {
        // The filter may forbid the return from this handler: the interrupted code makes the call itself, which is not
        // caught any more.
        const SYSCALL_BYTES: i64 = 2;
        context.uc_mcontext.gregs[libc::REG_RIP as usize] -= SYSCALL_BYTES;
        return;
    }
    let result = match number {
        libc::SYS_rt_sigreturn => {
            // The context that the handler has been given, and may have changed, follows the address of its return.
            let returned: *const libc::ucontext_t = core::ptr::with_exposed_provenance(register(libc::REG_RSP));
            super::masks::open_context(returned);
            // libc's own return takes the frame that the stack pointer leads to.
            context.uc_mcontext.gregs[libc::REG_RIP as usize] = RETURN.load(Acquire) as i64;
            return;
        }
        libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => {
            clone::by_number(number, arguments, context)
        }
        _ => carried_out(number, arguments),
    };
    // The return from the handler sets both to what they were before it.
    if number == libc::SYS_rt_sigprocmask {
        dispatch::unblock();
        refresh_mask(context);
    }
    if number == libc::SYS_sigaltstack {
        let place = &raw mut context.uc_stack as usize;
        // SAFETY: one description of a stack is written.
        let _ = unsafe { raw::call(libc::SYS_sigaltstack, 0, place, 0, 0, 0, 0) };
    }
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = result as i64;
}

/// True if the call may install a filter of system calls, for which the library has given up.
#[cfg(target_arch = "x86_64")]
fn installs_filter(number: c_long, arguments: &[usize; 6]) -> bool {
    let [a, b, c, ..] = *arguments;
    match number {
        libc::SYS_seccomp => filter::before_seccomp(a as c_uint, b, c as *const c_void),
        libc::SYS_prctl if a as c_int == libc::PR_SET_SECCOMP => filter::before_prctl(b, c),
        _ => return false,
    }
    true
}

/// The call by its hook, or by the kernel: the result, or `-errno`.
#[cfg(target_arch = "x86_64")]
fn carried_out(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the program's own call.
    match unsafe { super::syscall::syscall(number, a, b, c, d, e, f) } {
        -1 => -(errno::get() as isize),
        result => result as isize,
    }
}

/// Has the interrupted code go on with the set of blocked signals of this moment.
#[cfg(target_arch = "x86_64")]
fn refresh_mask(context: &mut libc::ucontext_t) {
    let place = &raw mut context.uc_sigmask as usize; // the kernel's set is the first word of libc's
    // SAFETY: one set is written.
    let _ = unsafe { raw::call(libc::SYS_rt_sigprocmask, 0, 0, place, size_of::<u64>(), 0, 0) };
}

/// SIGSYS from elsewhere: a filter of system calls, or kill(2). It does what it does without the library.
#[cfg(target_arch = "x86_64")]
fn by_default(signal: c_int) {
    // SAFETY: SIG_DFL needs no function.
    let _ = unsafe { real::signal(signal, core::ptr::without_provenance_mut(libc::SIG_DFL)) };
    // SAFETY: integers only.
    let _ = unsafe {
        let (process, thread) = (raw::pid() as usize, raw::thread() as usize);
        raw::call(libc::SYS_tgkill, process, thread, signal as usize, 0, 0, 0)
    };
}

/// Children of inline calls.
#[cfg(target_arch = "x86_64")]
mod clone {
    use super::*;

    const VM: u64 = libc::CLONE_VM as u64;
    const VFORK: u64 = libc::CLONE_VFORK as u64;

    /// `struct clone_args` (linux/sched.h), of its first size.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Arguments {
        flags: u64,
        process: u64,
        child: u64,
        parent: u64,
        signal: u64,
        stack: u64,
        stack_bytes: u64,
        local: u64,
        more: [u64; 3],
    }

    /// Makes the child of fork(2), vfork(2), clone(2) or clone3(2).
    ///
    /// A child with its own copy of the memory goes on in this handler, as its parent does. A child of vfork becomes
    /// one of them: on its parent's stack it would write over the handler that the parent has not left. A child with a
    /// stack of its own begins behind the call, with all registers. Its calls are not caught: it may have no
    /// thread-local variables of libc.
    pub fn by_number(number: c_long, given: [usize; 6], context: &libc::ucontext_t) -> isize {
        let mut wanted = Arguments::default();
        let mut size = 0;
        match number {
            libc::SYS_fork => wanted.signal = libc::SIGCHLD as u64,
            libc::SYS_vfork => (wanted.flags, wanted.signal) = (VFORK | VM, libc::SIGCHLD as u64),
            libc::SYS_clone => {
                wanted.flags = given[0] as u64 & !0xff;
                wanted.signal = given[0] as u64 & 0xff;
                wanted.stack = given[1] as u64;
            }
            _ => {
                size = given[1];
                if size > size_of::<Arguments>() || size < 64 {
                    return -libc::E2BIG as isize;
                }
                // SAFETY: the program's arguments, of the size that it has given.
                unsafe {
                    core::ptr::copy_nonoverlapping(given[0] as *const u8, (&raw mut wanted).cast::<u8>(), size);
                }
            }
        }
        let top = wanted.stack + wanted.stack_bytes; // clone(2) gives the top
        if wanted.flags & VM != 0 {
            crate::aio::rings::a_thread_is_made();
            dispatch::a_thread_is_made();
        }
        if wanted.stack == 0 && wanted.flags & (VM | VFORK) == VM {
            return -libc::EINVAL as isize; // two threads on one stack
        }
        let mut frame = 0;
        if wanted.stack == 0 {
            wanted.flags &= !VM;
        } else {
            frame = child_frame(top as usize, context);
        }
        if frame != 0 {
            wanted.stack_bytes = (frame as u64).wrapping_sub(wanted.stack);
        }
        let (flags, rest) = ((wanted.flags | wanted.signal) as usize, given);
        let (number, arguments) = match number {
            libc::SYS_clone3 => (number, [&raw const wanted as usize, size, 0, 0, 0, 0]),
            libc::SYS_clone => (number, [flags, frame, rest[2], rest[3], rest[4], 0]),
            _ => (libc::SYS_clone, [flags, 0, 0, 0, 0, 0]),
        };
        let [a, b, c, d, e, f] = arguments;
        // A child with a memory of its own inherits the program's limits, and not those of a moment.
        let held = (wanted.flags & VM == 0).then(LimitHeld::begin);
        // SAFETY: the program's own call; a child with a stack of its own finds its frame there.
        let result = unsafe { raw::pass(number, a, b, c, d, e, f) };
        if result == 0 {
            process::notice_fork();
            dispatch::again();
        }
        drop(held);
        result
    }

    /// The registers that a child finds on its stack, in the order in which [`begin`] takes them.
    const ORDER: [c_int; 14] = [
        libc::REG_R15,
        libc::REG_R14,
        libc::REG_R13,
        libc::REG_R12,
        libc::REG_R11,
        libc::REG_R10,
        libc::REG_R9,
        libc::REG_R8,
        libc::REG_RBP,
        libc::REG_RBX,
        libc::REG_RDX,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_RIP,
    ];

    /// Writes to the child's stack all that it needs to go on behind the call. Returns the stack that the child begins
    /// with: the gate returns by its first word.
    fn child_frame(top: usize, context: &libc::ucontext_t) -> usize {
        let first = top - (ORDER.len() + 1) * size_of::<usize>();
        let place: *mut usize = core::ptr::with_exposed_provenance_mut(first);
        let begin: extern "C" fn() = begin;
        // SAFETY: the program has given the stack below `top` to the child, which does not run yet.
        unsafe { place.write_unaligned(begin as usize) };
        for (at, which) in ORDER.iter().enumerate() {
            let value = context.uc_mcontext.gregs[*which as usize] as usize;
            // SAFETY: the program has given the stack below `top` to the child, which does not run yet.
            unsafe { place.wrapping_add(at + 1).write_unaligned(value) };
        }
        first
    }

    /// The first code of a child on a stack of its own: it takes the registers of its parent from there.
    #[unsafe(naked)]
    extern "C" fn begin() {
        core::arch::naked_asm!(
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop r11",
            "pop r10",
            "pop r9",
            "pop r8",
            "pop rbp",
            "pop rbx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "mov rcx, [rsp]",
            "xor eax, eax",
            "ret",
        );
    }
}

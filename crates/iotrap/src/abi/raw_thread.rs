//! Threads that are made by clone(2) and not by libc: for the program and for libc they do not exist.
//!
//! A program of one thread stays one (`__libc_single_threaded`, on which [`crate::aio::context`] relies). Such a thread
//! does not keep a process alive whose last thread has ended by pthread_exit(3), because libc does not count it. The
//! thread blocks all signals, so that a signal to the process reaches the program's threads or nobody, and it ends with
//! the process.
//!
//! In return these threads may only make system calls, touch atomics, and copy and compare memory. Functions of libc
//! that have thread-local variables (malloc, errno, stdio, locks, clocks) do not work there: the variables are zeros.

use core::ffi::{CStr, c_int};

use crate::abi::raw;

/// The memory of a thread: a stack that grows down towards a page that nobody may touch, and zeros around the place
/// where libc's thread-local variables would be.
#[repr(C, align(4096))]
pub struct Memory {
    guard: [u8; GUARD],
    stack: [u8; STACK],
    before: [u8; LOCAL],
    here: [usize; 512],
    #[cfg(target_arch = "aarch64")]
    after: [u8; LOCAL],
}

/// A page of any size that Linux has.
const GUARD: usize = 64 << 10;
const STACK: usize = 128 << 10;
/// The room for thread-local variables: a program under a sanitizer has many.
const LOCAL: usize = 1 << 20;

/// Maps memory of which the first part is a [`Memory`]; None if there is none to be had. Pages come as they are used.
pub fn map(bytes: usize) -> Option<usize> {
    debug_assert!(bytes >= size_of::<Memory>());
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new anonymous mapping, at no particular address.
    let room = unsafe { raw::call(libc::SYS_mmap, 0, bytes, protection, flags, raw::arg(-1), 0) };
    let room = raw::check(room).ok()?;
    // SAFETY: the first pages of the mapping that was just made.
    let _ = unsafe { raw::call(libc::SYS_mprotect, room, GUARD, libc::PROT_NONE as usize, 0, 0, 0) };
    Some(room)
}

/// The task of a thread, which the thread finds at the top of its stack.
#[repr(C, align(16))]
struct Task {
    name: usize,
    work: extern "C" fn(usize),
    argument: usize,
}

/// Starts a thread, named `name`, that calls `work(argument)` and ends. `alive` is 1 while the thread lives: the kernel
/// clears it at the thread's end (CLONE_CHILD_CLEARTID) and wakes those who wait for it by futex(2).
///
/// # Errors
/// EAGAIN, ENOMEM: no thread is to be had. `alive` is unchanged.
///
/// # Safety
/// `memory` is from [`map`], and no thread uses it. `alive` stays valid for as long as the process lives.
pub unsafe fn start(
    memory: *mut Memory,
    name: &'static CStr,
    work: extern "C" fn(usize),
    argument: usize,
    alive: *mut u32,
) -> raw::Result<()> {
    // SAFETY: within the caller's mapping, which no thread uses.
    let here = unsafe { &raw mut (*memory).here };
    // libc expects in its thread's block the address of the block itself, at both places (x86-64).
    // SAFETY: within the caller's mapping, which no thread uses.
    unsafe { (*here)[0] = here.expose_provenance() };
    // SAFETY: within the caller's mapping, which no thread uses.
    unsafe { (*here)[2] = here.expose_provenance() };
    let top = memory.expose_provenance() + core::mem::offset_of!(Memory, before);
    let stack = top - size_of::<Task>();
    let task: *mut Task = core::ptr::with_exposed_provenance_mut(stack);
    // SAFETY: the top of the stack, aligned to 16, within the caller's mapping, which no thread uses.
    unsafe { task.write(Task { name: name.as_ptr() as usize, work, argument }) };
    // A thread inherits the set of blocked signals. Its calls are not dispatched: even SIGSYS is blocked.
    let blocked = raw::change_mask(libc::SIG_SETMASK, u64::MAX);
    // SAFETY: a stack and a block of thread-local variables of the thread's own; the caller keeps `alive` valid.
    let started = unsafe { clone_thread(stack, here.expose_provenance(), alive, stack) };
    raw::restore_mask(blocked);
    started.map(drop)
}

/// The life of a thread: `task` is the address of its [`Task`].
extern "C" fn live(task: usize) -> ! {
    let task: *const Task = core::ptr::with_exposed_provenance(task);
    // SAFETY: `start` has written the task to this thread's own stack.
    let task = unsafe { task.read() };
    // SAFETY: a NUL-terminated name in static memory.
    let _ = unsafe { raw::call(libc::SYS_prctl, libc::PR_SET_NAME as usize, task.name, 0, 0, 0, 0) };
    (task.work)(task.argument);
    loop {
        // SAFETY: ends this thread and no other.
        let _ = unsafe { raw::pass(libc::SYS_exit, 0, 0, 0, 0, 0, 0) };
    }
}

/// The flags of clone(2) by which threads are made.
pub const SHARED: c_int = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_CHILD_CLEARTID;

/// Begins a thread that calls [`live`](fn@live).
///
/// # Safety
/// The stack (its upper end, aligned to 16) and the block of thread-local variables are the thread's own; `alive` stays
/// valid.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_thread(stack: usize, local: usize, alive: *mut u32, task: usize) -> raw::Result<usize> {
    let entry: extern "C" fn(usize) -> ! = live;
    let result: isize;
    // With a gate (crate::abi::dispatch) the call returns by an address on the stack, in the child too. So the child's
    // stack begins with the place where the child begins.
    // SAFETY: the parent goes on behind the call as from any other; the child has its own stack and never returns.
    unsafe {
        core::arch::asm!(
            "test r14, r14",
            "jz 3f",
            "lea r15, [rip + 4f]",
            "sub rsi, 8",
            "mov [rsi], r15",
            "call r14",
            "jmp 2f",
            "3:",
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "4:",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            in("r14") crate::abi::dispatch::gate(), out("r15") _,
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") SHARED as usize, inlateout("rsi") stack => _, in("rdx") 0usize, in("r10") alive, in("r8") local,
            in("r12") entry, in("r13") task,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    raw::check(result)
}

/// Begins a thread that calls [`live`].
///
/// # Safety
/// The stack (its upper end, aligned to 16) and the block of thread-local variables are the thread's own; `alive` stays
/// valid.
#[cfg(target_arch = "aarch64")]
unsafe fn clone_thread(stack: usize, local: usize, alive: *mut u32, task: usize) -> raw::Result<usize> {
    let entry: extern "C" fn(usize) -> ! = live;
    let result: isize;
    // SAFETY: the parent goes on behind the call as from any other; the child has its own stack and never returns.
    unsafe {
        core::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x10",
            "blr x9",
            "brk 1",
            "2:",
            inlateout("x0") SHARED as usize as isize => result,
            in("x1") stack, in("x2") 0usize, in("x3") local, in("x4") alive, in("x8") libc::SYS_clone,
            in("x9") entry, in("x10") task,
        );
    }
    raw::check(result)
}

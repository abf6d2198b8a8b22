//! Stacks of the library's own, for the work that needs more room than a few calls of libc.
//!
//! A program may call libc on a small stack: in a signal handler on an alternative stack (8 KiB is usual), in a
//! coroutine, in a thread of the smallest size. Opening a file on all lanes takes tens of kilobytes, and would write
//! beyond such a stack.
//!
//! The caller sees to it that no signal handler runs meanwhile ([`crate::abi::undisturbed`]): a handler that finds the
//! thread on another stack would begin at the top of the alternative stack, over a handler that is there already.

use core::mem::MaybeUninit;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::abi::raw;

/// The room of a stack, in bytes. Pages come as they are used.
const STACK: usize = 256 << 10;
/// Memory below a stack that nobody may touch: a page of any size that Linux has.
const GUARD: usize = 64 << 10;

/// Stacks that are kept. More threads at a time map their stacks anew.
const KEPT: usize = 8;
/// Set in the address of a stack that is in use. A forked child never uses the stacks that were in use at the fork.
const IN_USE: usize = 1;

/// The addresses of the stacks; 0 for those that were not mapped yet.
static STACKS: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];

fn map() -> Option<usize> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new anonymous mapping, at no particular address.
    let room = unsafe { raw::call(libc::SYS_mmap, 0, GUARD + STACK, protection, flags, raw::arg(-1), 0) };
    let room = raw::check(room).ok()?;
    // SAFETY: the first pages of the mapping that was just made.
    let _ = unsafe { raw::call(libc::SYS_mprotect, room, GUARD, libc::PROT_NONE as usize, 0, 0, 0) };
    Some(room)
}

fn unmap(room: usize) {
    // SAFETY: a mapping of `map`, which nobody uses.
    let _ = unsafe { raw::call(libc::SYS_munmap, room, GUARD + STACK, 0, 0, 0, 0) };
}

/// A stack that the calling thread alone uses, until the value is dropped.
struct Stack {
    room: usize,
    /// The place of a stack that is kept.
    place: Option<&'static AtomicUsize>,
}

impl Stack {
    /// None if there is no memory.
    fn take() -> Option<Stack> {
        for place in &STACKS {
            let room = place.load(Relaxed);
            if room & IN_USE != 0 {
                continue;
            }
            let fresh = if room == 0 { map()? } else { room };
            if place.compare_exchange(room, fresh | IN_USE, AcqRel, Acquire).is_ok() {
                return Some(Stack { room: fresh, place: Some(place) });
            }
            if room == 0 {
                unmap(fresh);
            }
        }
        Some(Stack { room: map()?, place: None })
    }

    /// The upper end of the stack, where it begins.
    fn top(&self) -> usize {
        self.room + GUARD + STACK
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        match self.place {
            Some(place) => place.store(self.room, Release),
            None => unmap(self.room),
        }
    }
}

/// Runs `task` on a stack of the library's own; on the caller's if there is no memory. `task` does not unwind.
#[inline]
pub fn run<R>(task: impl FnOnce() -> R) -> R {
    match Stack::take() {
        Some(stack) => run_on(&stack, task),
        None => task(),
    }
}

fn run_on<R, F: FnOnce() -> R>(stack: &Stack, task: F) -> R {
    struct Call<R, F> {
        task: Option<F>,
        result: MaybeUninit<R>,
    }
    extern "C" fn carry<R, F: FnOnce() -> R>(call: usize) {
        let call: *mut Call<R, F> = core::ptr::with_exposed_provenance_mut(call);
        // SAFETY: the `call` of `run_on`, which waits for this function and does not touch it meanwhile.
        let call = unsafe { &mut *call };
        if let Some(task) = call.task.take() {
            call.result.write(task());
        }
    }
    let mut call = Call { task: Some(task), result: MaybeUninit::uninit() };
    let argument = (&raw mut call).expose_provenance();
    // SAFETY: the stack is the calling thread's alone; `carry` does not unwind.
    unsafe { switch(stack.top(), carry::<R, F>, argument) };
    // SAFETY: `carry` has written the result: the task was there.
    unsafe { call.result.assume_init() }
}

/// Calls `function(argument)` on another stack.
///
/// # Safety
/// `top` is the upper end of an unused stack, aligned to 16. The function does not unwind.
#[cfg(target_arch = "x86_64")]
unsafe fn switch(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: the function keeps r12 (it belongs to its caller), by which the stack pointer comes back.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {function}",
            "mov rsp, r12",
            top = in(reg) top, function = in(reg) function, in("rdi") argument,
            out("r12") _, clobber_abi("C"),
        );
    }
}

/// Calls `function(argument)` on another stack.
///
/// # Safety
/// `top` is the upper end of an unused stack, aligned to 16. The function does not unwind.
#[cfg(target_arch = "aarch64")]
unsafe fn switch(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: the function keeps x20 (it belongs to its caller), by which the stack pointer comes back.
    unsafe {
        core::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {function}",
            "mov sp, x20",
            top = in(reg) top, function = in(reg) function, in("x0") argument,
            out("x20") _, clobber_abi("C"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_elsewhere_one_in_the_other() {
        let here = &raw const STACKS as usize;
        let (mut outer, mut inner) = (0usize, 0usize);
        let result = run(|| {
            outer = core::hint::black_box(&raw const here as usize);
            let place = 0u8;
            let at = core::hint::black_box(&raw const place) as usize;
            run(|| {
                let place = 0u8;
                inner = core::hint::black_box(&raw const place) as usize;
            });
            at
        });
        let place = 0u8;
        let own = core::hint::black_box(&raw const place) as usize;
        assert!(result.abs_diff(own) > STACK && inner.abs_diff(own) > STACK && inner.abs_diff(result) > STACK / 2);
        assert_ne!(outer, 0, "variables of the caller are in reach");
        let free = STACKS.iter().filter(|place| place.load(Relaxed) & IN_USE != 0).count();
        assert!(free <= KEPT, "others may run beside this test");
    }

    #[test]
    fn more_threads_than_stacks() {
        std::thread::scope(|scope| {
            for number in 0..3 * KEPT {
                scope.spawn(move || {
                    for _ in 0..100 {
                        let sum = run(|| {
                            let room = core::hint::black_box([number; 4096]);
                            std::thread::yield_now();
                            room.iter().sum::<usize>()
                        });
                        assert_eq!(sum, number * 4096);
                    }
                });
            }
        });
    }
}

//! Syscall User Dispatch (Linux 5.11, Documentation/admin-guide/syscall-user-dispatch.rst): the kernel turns every
//! system call that does not come from libc's own code into SIGSYS. `--raw` is made of it: [`crate::hooks::caught`]
//! gives such calls to the hook of syscall(2).
//!
//! - libc's text is the one range whose calls go through. The library's own calls go through libc's text as well, by a
//!   **gate**, the instructions `syscall; ret` that libc contains anyway.
//! - The kernel does not pass the setting on to a new thread, to a forked child, or over execve(2). So each new thread
//!   asks for the dispatch again, before the program's code runs there.
//! - All threads share one selector: the library can stop the dispatch for all of them at once.

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};

use crate::abi::raw;

/// linux/prctl.h. The libc crate does not know it.
pub const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
/// The `si_code` of a dispatched call (SYS_USER_DISPATCH).
#[cfg(target_arch = "x86_64")]
pub const SYS_USER_DISPATCH: c_int = 2;
const DISPATCH_ON: usize = 1;
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// The selector of all threads, which the kernel reads at each call.
static SELECTOR: AtomicU8 = AtomicU8::new(ALLOW);
/// The dispatch is in force: the library sees all of the program's calls.
static ON: AtomicBool = AtomicBool::new(false);
/// libc's text.
static FROM: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// The address of the gate; 0 while the library makes its calls from its own text.
static GATE: AtomicUsize = AtomicUsize::new(0);
/// The program has made threads in this process, or had some before the dispatch began.
static THREADS: AtomicBool = AtomicBool::new(true);

/// The bit of SIGSYS in a set of signals of the kernel's size.
pub const SIGSYS_BIT: u64 = 1 << (libc::SIGSYS - 1);

/// True if the library sees all of the program's system calls.
#[inline]
pub fn on() -> bool {
    ON.load(Relaxed)
}

/// True if the process has had one thread of the program since the dispatch began.
pub fn is_alone() -> bool {
    on() && !THREADS.load(Acquire)
}

/// Notes that the program makes a thread.
pub fn a_thread_is_made() {
    THREADS.store(true, Release);
}

/// The address of the gate; 0 without one.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn gate() -> usize {
    GATE.load(Relaxed)
}

/// The system call through the gate, if there is one, and from the library's own text otherwise.
///
/// # Safety
/// The arguments are valid for the system call `number`.
#[inline]
pub unsafe fn call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    #[cfg(target_arch = "x86_64")]
    if gate() != 0 {
        let result: isize;
        // SAFETY: the gate is `syscall; ret`: the kernel's convention, with the return address on the stack. The caller
        // upholds what the call demands.
        unsafe {
            core::arch::asm!(
                "call {gate}",
                gate = in(reg) gate(),
                inlateout("rax") number as isize => result,
                in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
                lateout("rcx") _, lateout("r11") _,
            );
        }
        return result;
    }
    // SAFETY: the caller gives arguments that are valid for this system call.
    unsafe { sys::raw::call(number, a, b, c, d, e, f) }
}

/// The reason why calls cannot be dispatched here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel is older than 5.11, or made for a processor that has no such thing.
    Kernel,
    /// The library does not find libc's text, or a gate in it.
    Libc,
    /// The program handles SIGSYS itself.
    Handler,
    /// A module of the program is written in Go, whose code runs on stacks that have no room for a handler.
    Go,
    /// The program runs under valgrind, whose own calls come from outside libc.
    Valgrind,
    /// The program has ThreadSanitizer, whose calls come from outside libc, also while it blocks all signals.
    Sanitizer,
}

/// The part of the program that has libc's text, whether a module is written in Go, and whether one is valgrind's.
struct Search {
    inside: usize,
    from: usize,
    length: usize,
    go: bool,
    valgrind: bool,
}

/// True if one of the notes (`Elf64_Nhdr`: lengths of name and text, kind; name and text) is of Go's linker.
fn is_of_go(mut notes: &[u8]) -> bool {
    while let Some((head, rest)) = notes.split_first_chunk::<12>() {
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        if word(0) == 4 && rest.starts_with(b"Go\0\0") {
            return true;
        }
        let skipped = word(0).next_multiple_of(4).saturating_add(word(4).next_multiple_of(4));
        notes = rest.get(skipped..).unwrap_or_default();
    }
    false
}

extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr(3) passes the `Search` that `find` has given.
    let search = unsafe { &mut *data.cast::<Search>() };
    // SAFETY: dl_iterate_phdr(3) passes a valid description of a module.
    let info = unsafe { &*info };
    if !info.dlpi_name.is_null() {
        // SAFETY: the NUL-terminated path of the module.
        let path = unsafe { core::ffi::CStr::from_ptr(info.dlpi_name) }.to_bytes();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        search.valgrind |= name.starts_with(b"vgpreload_");
    }
    for at in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: within the module's table of headers.
        let header = unsafe { info.dlpi_phdr.wrapping_add(at).read() };
        let from = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        let length = header.p_memsz as usize;
        if header.p_type == libc::PT_LOAD
            && header.p_flags & libc::PF_X != 0
            && search.inside.wrapping_sub(from) < length
        {
            (search.from, search.length) = (from, length);
        }
        if header.p_type == libc::PT_NOTE {
            let notes: *const u8 = core::ptr::with_exposed_provenance(from);
            // SAFETY: a note segment of that length is mapped there.
            search.go |= is_of_go(unsafe { core::slice::from_raw_parts(notes, length) });
        }
    }
    0
}

/// Finds libc's text and the gate.
///
/// # Errors
/// The reason why calls cannot be dispatched.
fn find() -> Result<(), Refusal> {
    // SAFETY: a NUL-terminated name of a function that every glibc has.
    let inside = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr()) };
    let mut search = Search { inside: inside as usize, from: 0, length: 0, go: false, valgrind: false };
    // SAFETY: the function is called for each module, with the address of `search`.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    if search.go {
        return Err(Refusal::Go);
    }
    if search.valgrind {
        return Err(Refusal::Valgrind);
    }
    // SAFETY: a NUL-terminated name.
    if !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__tsan_init".as_ptr()) }.is_null() {
        return Err(Refusal::Sanitizer);
    }
    if inside.is_null() || search.length == 0 {
        return Err(Refusal::Libc);
    }
    let text: *const u8 = core::ptr::with_exposed_provenance(search.from);
    // SAFETY: a segment that is mapped, and readable as libc's text is.
    let text = unsafe { core::slice::from_raw_parts(text, search.length) };
    const SYSCALL_RET: [u8; 3] = [0x0f, 0x05, 0xc3];
    let gate = text.windows(3).position(|bytes| bytes == SYSCALL_RET).ok_or(Refusal::Libc)?;
    FROM.store(search.from, Relaxed);
    LENGTH.store(search.length, Relaxed);
    GATE.store(search.from + gate, Release);
    Ok(())
}

/// Asks the kernel to dispatch the calling thread's system calls.
fn ask() -> raw::Result<()> {
    let (from, length) = (FROM.load(Relaxed), LENGTH.load(Relaxed));
    let (option, selector) = (PR_SET_SYSCALL_USER_DISPATCH as usize, SELECTOR.as_ptr() as usize);
    // SAFETY: a range of addresses, and a byte that lives as long as the process.
    raw::check(unsafe { call(libc::SYS_prctl, option, DISPATCH_ON, from, length, selector, 0) }).map(drop)
}

/// Begins the dispatch in the calling thread, the only one of the program. `install` makes the handler of SIGSYS, which
/// runs with the mask of the interrupted code.
///
/// # Errors
/// The reason why calls cannot be dispatched here.
pub fn begin(install: impl FnOnce() -> bool) -> Result<(), Refusal> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(Refusal::Kernel);
    }
    find()?;
    let done = install() && ask().map_err(|_| Refusal::Kernel).map(|()| true)?;
    if !done {
        return Err(Refusal::Handler);
    }
    THREADS.store(has_threads(), Release);
    unblock();
    ON.store(true, Release);
    SELECTOR.store(BLOCK, Release);
    Ok(())
}

/// Begins the dispatch in a new thread, or in a forked child.
pub fn again() {
    if on() {
        let _ = ask();
        unblock();
    }
}

/// Notes that this process is a forked child: it has one thread.
pub fn forget_all() {
    THREADS.store(false, Release);
    again();
}

/// Ends the dispatch in all threads. False if it was not in force.
pub fn stop() -> bool {
    let was = ON.swap(false, Relaxed);
    SELECTOR.store(ALLOW, Release);
    was
}

/// Lets the calling thread take SIGSYS: a dispatched call kills a thread that blocks it.
pub fn unblock() {
    let (how, set) = (libc::SIG_UNBLOCK as usize, &raw const SIGSYS_BIT_PLACE as usize);
    // SAFETY: one set is read.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, how, set, 0, size_of::<u64>(), 0, 0) };
}

static SIGSYS_BIT_PLACE: u64 = SIGSYS_BIT;

/// True if the process has more threads than the calling one.
fn has_threads() -> bool {
    // SAFETY: a NUL-terminated path.
    let stat = unsafe { raw::stat_at(libc::AT_FDCWD, c"/proc/self/task".as_ptr()) };
    stat.map_or(true, |stat| stat.st_nlink != 3)
}

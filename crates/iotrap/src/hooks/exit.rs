//! _exit, _Exit and quick_exit: the end of a program without its destructors. The hooks wait for the program's writes
//! first, as the kernel would have done them inside io_submit, and tell the statistics.

use core::ffi::{c_int, c_void};

use crate::abi::raw;
use crate::abi::undisturbed::Undisturbed;
use crate::aio::{async_io, raw_ring};
use crate::state::{process, stats};

macro_rules! exits {
    ($($name:ident)*) => {
        $(
            /// _exit(2).
            ///
            /// # Safety
            /// No argument has to be valid for memory safety.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(status: c_int) -> ! {
                async_io::ends();
                async_io::tell();
                raw_ring::notes_unseen();
                tell_statistics();
                loop {
                    // SAFETY: an integer; it does not return.
                    unsafe { raw::pass(libc::SYS_exit_group, raw::arg(status), 0, 0, 0, 0, 0) };
                }
            }
        )*
    };
}

exits! { _exit _Exit }

unsafe extern "C" {
    /// The function behind at_quick_exit(3), which is not in the shared library.
    fn __cxa_at_quick_exit(function: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// Has quick_exit(3) wait for the submitted writes, after all functions that the program registers.
pub fn prepare() {
    // SAFETY: the function lives as long as the process: the library is never unloaded.
    let _ = unsafe { __cxa_at_quick_exit(at_quick_exit, core::ptr::null_mut()) };
}

extern "C" fn at_quick_exit(_: *mut c_void) {
    async_io::ends();
    async_io::tell();
    tell_statistics();
}

/// Tells the statistics of this process: not those of the parent of a vfork child.
fn tell_statistics() {
    if process::is_own() {
        let _undisturbed = Undisturbed::begin();
        stats::end();
    }
}

/// Waits for the submitted writes, and ends the process if the calling thread, which ends by the bare system call
/// (syscall(2)), is the program's last one: the library's own threads do not keep the process alive. The
/// function returns if other threads of the program still run.
pub fn of_thread(status: c_int) {
    // The end of the thread may be the end of the process, and then it is an end of the program.
    drop(async_io::ending());
    if is_last_of_program() {
        // SAFETY: the system call takes an integer only, so it accesses no memory of this process.
        unsafe { _exit(status) }
    }
}

/// True if every other thread of the process is the library's, or the kernel's for an io_uring, or has ended.
fn is_last_of_program() -> bool {
    let Ok(tasks) = raw::open(c"/proc/self/task", libc::O_RDONLY | libc::O_DIRECTORY) else { return false };
    // SAFETY: the system call takes no arguments, so it accesses no memory of this process.
    let own = unsafe { raw::call(libc::SYS_gettid, 0, 0, 0, 0, 0, 0) } as u64;
    let mut room = [0u64; 256];
    let mut alone = true;
    loop {
        let (place, size) = (room.as_mut_ptr() as usize, size_of_val(&room));
        // SAFETY: the kernel fills the room with entries.
        let filled = unsafe { raw::call(libc::SYS_getdents64, raw::arg(tasks), place, size, 0, 0, 0) };
        let Ok(filled @ 1..) = usize::try_from(filled) else { break };
        let bytes = room.as_ptr().cast::<u8>();
        // SAFETY: plain bytes, within the room.
        let mut rest = unsafe { core::slice::from_raw_parts(bytes, filled.min(size)) };
        // `struct linux_dirent64`: its length is the bytes 16 and 17, its name begins at byte 19.
        while let Some(&[low, high]) = rest.get(16..).and_then(<[u8]>::first_chunk) {
            let length = usize::from(u16::from_le_bytes([low, high]));
            let name = rest.get(19..length).unwrap_or_default().split(|&byte| byte == 0).next().unwrap_or_default();
            if let Some(thread) = core::str::from_utf8(name).ok().and_then(|name| name.parse::<u64>().ok()) {
                alone &= thread == own || is_no_thread_of_program(thread);
            }
            rest = rest.get(length.max(1)..).unwrap_or_default();
        }
    }
    let _ = raw::close(tasks);
    alone
}

/// True if the thread does not belong to the program, by its name and state: `TID (NAME) STATE ...` (proc(5)).
fn is_no_thread_of_program(thread: u64) -> bool {
    let mut path = raw::Digits::<64>::empty();
    path.push(b"/proc/self/task/");
    path.number(thread);
    path.push(b"/stat");
    let Some(file) = path.c_str().and_then(|path| raw::open(path, libc::O_RDONLY).ok()) else { return true };
    let mut room = [0u8; 64];
    // SAFETY: the kernel fills at most the room.
    let filled = unsafe { raw::call(libc::SYS_read, raw::arg(file), room.as_mut_ptr() as usize, room.len(), 0, 0, 0) };
    let _ = raw::close(file);
    let text = room.get(..usize::try_from(filled).unwrap_or(0)).unwrap_or_default();
    let after = |byte: u8, text: &[u8]| text.iter().rposition(|&found| found == byte).map_or(0, |at| at + 1);
    let name = text.get(text.iter().position(|&byte| byte == b'(').map_or(0, |at| at + 1)..).unwrap_or_default();
    let state = text.get(after(b')', text)..).unwrap_or_default().iter().find(|byte| **byte != b' ');
    name.starts_with(b"iotrap-") || name.starts_with(b"iou-") || matches!(state, Some(b'Z' | b'X'))
}

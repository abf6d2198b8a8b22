//! `syscall`: programs that call the kernel by number (libaio's users without libaio, databases) reach the same hooks.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use super::{
    attributes, close, dup, exec, exit, filter, ioctl, limit, lock, map, masks, open, receive, room, rw, size, sync,
    uring,
};
use crate::abi::errno;
use crate::abi::libaio::{Event, Iocb};
use crate::abi::raw;
use crate::aio::{libaio, raw_ring};

type Text = *const c_char;
type List = *const Text;

/// syscall(2). The hook passes six arguments on, whatever their number, as libc's function does.
///
/// # Safety
/// As the system call of that number.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let fd = a as c_int;
    /// The hook of that call. Those of libaio return `-errno`, the others have set errno.
    macro_rules! hook {
        ($hook:expr) => {{
            // SAFETY: the program's contract: the arguments are those of the call by that number.
            let result = unsafe { $hook };
            result as c_long
        }};
    }
    macro_rules! kernel {
        ($hook:expr) => {{
            // SAFETY: the program's contract: the arguments are those of the call by that number.
            let result = unsafe { $hook };
            errno::libc_result(result) as c_long
        }};
    }
    match number {
        libc::SYS_io_setup => kernel!(libaio::setup(a, b as *mut u64)),
        libc::SYS_io_destroy => kernel!(libaio::destroy(a as u64)),
        libc::SYS_io_submit => kernel!(libaio::submit(a as u64, b as c_long, c as *mut *mut Iocb)),
        libc::SYS_io_getevents => {
            let (events, timeout) = (d as *mut Event, e as *mut libc::timespec);
            kernel!(libaio::get_events(a as u64, b as c_long, c as c_long, events, timeout, None))
        }
        raw::SYS_IO_PGETEVENTS => {
            let mut without = masks::Changed::none();
            let mask = without.sized(f) as *const c_void;
            let (events, timeout) = (d as *mut Event, e as *mut libc::timespec);
            kernel!(libaio::get_events(a as u64, b as c_long, c as c_long, events, timeout, Some(mask)))
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => hook!(open::open(a as *const c_char, b as c_int, c as libc::mode_t)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => hook!(open::creat(a as *const c_char, b as libc::mode_t)),
        libc::SYS_openat => hook!(open::openat(fd, b as *const c_char, c as c_int, d as libc::mode_t)),
        libc::SYS_openat2 => hook!(open::by_openat2(fd, b as *const c_char, c as *const c_void, d)),
        libc::SYS_open_by_handle_at => hook!(open::open_by_handle_at(fd, b as *mut c_void, c as c_int)),
        libc::SYS_pidfd_getfd => hook!(receive::pidfd_getfd(fd, b as c_int, c as c_uint)),
        libc::SYS_accept => hook!(room::accept(fd, b as *mut c_void, c as *mut c_void)),
        libc::SYS_accept4 => hook!(room::accept4(fd, b as *mut c_void, c as *mut c_void, d as c_int)),
        libc::SYS_recvmsg => hook!(receive::recvmsg(fd, b as *mut libc::msghdr, c as c_int)),
        libc::SYS_recvmmsg => {
            let (messages, timeout) = (b as *mut libc::mmsghdr, e as *mut libc::timespec);
            hook!(receive::recvmmsg(fd, messages, c as c_uint, d as c_int, timeout))
        }
        libc::SYS_close => hook!(close::close(fd)),
        libc::SYS_unshare => hook!(close::unshare(fd)),
        libc::SYS_close_range => hook!(close::close_range(a as c_uint, b as c_uint, c as c_int)),
        libc::SYS_dup => hook!(dup::dup(fd)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => hook!(dup::dup2(fd, b as c_int)),
        libc::SYS_dup3 => hook!(dup::dup3(fd, b as c_int, c as c_int)),
        libc::SYS_fcntl => hook!(dup::fcntl(fd, b as c_int, c)),
        libc::SYS_getrlimit | libc::SYS_setrlimit => {
            limit::around(a as c_uint, || kernel!(raw::pass(number, a, b, 0, 0, 0, 0)))
        }
        libc::SYS_prlimit64 => limit::around(b as c_uint, || kernel!(raw::pass(number, a, b, c, d, 0, 0))),
        libc::SYS_flock => hook!(lock::flock(fd, b as c_int)),
        libc::SYS_pread64 => hook!(rw::pread64(fd, b as *mut c_void, c, d as i64)),
        libc::SYS_pwrite64 => hook!(rw::pwrite64(fd, b as *const c_void, c, d as i64)),
        libc::SYS_preadv => hook!(rw::preadv64(fd, b as *const libc::iovec, c as c_int, d as i64)),
        libc::SYS_pwritev => hook!(rw::pwritev64(fd, b as *const libc::iovec, c as c_int, d as i64)),
        libc::SYS_preadv2 => hook!(rw::preadv64v2(fd, b as *const libc::iovec, c as c_int, d as i64, f as c_int)),
        libc::SYS_pwritev2 => hook!(rw::pwritev64v2(fd, b as *const libc::iovec, c as c_int, d as i64, f as c_int)),
        libc::SYS_read | libc::SYS_readv => {
            rw::count_at_position(fd);
            kernel!(raw::pass(number, a, b, c, 0, 0, 0))
        }
        libc::SYS_write => hook!(rw::write(fd, b as *const c_void, c)),
        libc::SYS_writev => hook!(rw::writev(fd, b as *const libc::iovec, c as c_int)),
        libc::SYS_fsync => hook!(sync::fsync(fd)),
        libc::SYS_fdatasync => hook!(sync::fdatasync(fd)),
        libc::SYS_sync => {
            // SAFETY: a function without arguments.
            unsafe { sync::sync() };
            0
        }
        libc::SYS_ioctl => hook!(ioctl::ioctl(fd, b as c_ulong, c)),
        libc::SYS_msync => hook!(sync::msync(a as *mut c_void, b, c as c_int)),
        libc::SYS_madvise => hook!(map::madvise(a as *mut c_void, b, c as c_int)),
        libc::SYS_syncfs => hook!(sync::syncfs(fd)),
        libc::SYS_sync_file_range => hook!(sync::sync_file_range(fd, b as i64, c as i64, d as c_uint)),
        libc::SYS_fstat => hook!(attributes::fstat64(fd, b as *mut libc::stat)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat => hook!(attributes::stat64(a as Text, b as *mut libc::stat)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lstat => hook!(attributes::lstat64(a as Text, b as *mut libc::stat)),
        libc::SYS_newfstatat => hook!(attributes::fstatat64(fd, b as Text, c as *mut libc::stat, d as c_int)),
        libc::SYS_statx => hook!(attributes::statx(fd, b as Text, c as c_int, d as c_uint, e as *mut libc::statx)),
        libc::SYS_lseek => hook!(attributes::lseek64(fd, b as i64, c as c_int)),
        libc::SYS_inotify_add_watch => hook!(attributes::inotify_add_watch(fd, b as Text, c as u32)),
        libc::SYS_ftruncate => hook!(size::ftruncate64(fd, b as i64)),
        libc::SYS_truncate => hook!(size::truncate64(a as *const c_char, b as i64)),
        libc::SYS_fallocate => hook!(size::fallocate64(fd, b as c_int, c as i64, d as i64)),
        libc::SYS_sendfile => hook!(size::sendfile64(fd, b as c_int, c as *mut i64, d)),
        libc::SYS_copy_file_range => {
            hook!(size::copy_file_range(fd, b as *mut i64, c as c_int, d as *mut i64, e, f as c_uint))
        }
        libc::SYS_splice => hook!(size::splice(fd, b as *mut i64, c as c_int, d as *mut i64, e, f as c_uint)),
        libc::SYS_io_uring_setup => kernel!(uring::set_up(a, b as *mut c_void)),
        libc::SYS_io_uring_enter => kernel!(uring::enter(fd, b as c_uint, c, d, e, f)),
        libc::SYS_io_uring_register => kernel!(raw_ring::register(fd, b as c_uint, c, d as c_uint)),
        libc::SYS_execve => hook!(exec::execve(a as Text, b as List, c as List)),
        libc::SYS_execveat => hook!(exec::execveat(fd, b as Text, c as List, d as List, e as c_int)),
        // SAFETY: the system call takes an integer only, so it accesses no memory of this process.
        libc::SYS_exit_group => unsafe { exit::_exit(fd) },
        libc::SYS_exit => {
            exit::of_thread(fd);
            kernel!(raw::pass(number, a, 0, 0, 0, 0, 0))
        }
        libc::SYS_seccomp => hook!(filter::seccomp(a as c_uint, b, c as *const c_void)),
        libc::SYS_prctl if a as c_int == libc::PR_SET_SECCOMP => hook!(masks::prctl(a as c_int, b, c, d, e)),
        libc::SYS_mmap => {
            map::around(e as c_int, c as c_int, d as c_int, || kernel!(raw::pass(number, a, b, c, d, e, f)))
        }
        _ => {
            // SAFETY: the arguments are those of the call by that number.
            if let Some(result) = unsafe { masks::by_number(number, [a, b, c, d, e, f]) } {
                return errno::libc_result(result) as c_long;
            }
            // SAFETY: the arguments are those of the call by that number.
            let call = || unsafe { raw::pass(number, a, b, c, d, e, f) };
            let result = match call() {
                // The process is out of descriptors, whichever call it is.
                full if full == -libc::EMFILE as isize && room::is_full(libc::EMFILE) => call(),
                result => result,
            };
            errno::libc_result(result) as c_long
        }
    }
}

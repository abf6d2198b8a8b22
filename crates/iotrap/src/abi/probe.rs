//! A trial of all the system calls that the library makes, in a process that is there for nothing else: if filters of
//! system calls kill the process, `plimsoll trap` knows that they would kill the program too.

use core::ffi::c_long;

use crate::abi::dispatch::PR_SET_SYSCALL_USER_DISPATCH;
use crate::abi::raw;
use crate::abi::raw_thread;

/// The exit status of a process that has made all calls, whatever they returned.
pub const SURVIVED: usize = lanes::environment::SURVIVED as usize;

const BAD: usize = usize::MAX; // -1: a descriptor that is none, an address that leads nowhere
const HERE: usize = libc::AT_FDCWD as usize;

/// The calls, with arguments with which they change nothing. A filter may look at the number and at integers: commands
/// and flags are those that the library uses.
#[rustfmt::skip]
const CALLS: &[(c_long, [usize; 6])] = &[
    // Files: opening them on lanes, proofs, caches, syncs, transfers.
    (libc::SYS_openat, [HERE, BAD, libc::O_CLOEXEC as usize, 0, 0, 0]),
    (libc::SYS_close, [BAD, 0, 0, 0, 0, 0]),
    (libc::SYS_fcntl, [BAD, libc::F_GETFL as usize, 0, 0, 0, 0]),
    (libc::SYS_fcntl, [BAD, libc::F_SETFL as usize, 0, 0, 0, 0]),
    (libc::SYS_fcntl, [BAD, libc::F_GETFD as usize, 0, 0, 0, 0]),
    (libc::SYS_fcntl, [BAD, libc::F_DUPFD_CLOEXEC as usize, 0, 0, 0, 0]),
    (libc::SYS_fcntl, [BAD, 10, 1, 0, 0, 0]), // F_SETSIG
    (libc::SYS_fcntl, [BAD, 11, 0, 0, 0, 0]), // F_GETSIG
    (libc::SYS_fcntl, [BAD, 1027, 0, 0, 0, 0]), // F_DUPFD_QUERY
    (libc::SYS_dup3, [BAD, BAD, libc::O_CLOEXEC as usize, 0, 0, 0]),
    (libc::SYS_fstat, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_newfstatat, [BAD, BAD, BAD, 0, 0, 0]),
    (libc::SYS_statx, [BAD, BAD, libc::AT_EMPTY_PATH as usize, 0, BAD, 0]),
    (libc::SYS_fstatfs, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_readlinkat, [HERE, BAD, BAD, 0, 0, 0]),
    (libc::SYS_name_to_handle_at, [BAD, BAD, BAD, BAD, libc::AT_EMPTY_PATH as usize, 0]),
    (libc::SYS_fgetxattr, [BAD, BAD, BAD, 0, 0, 0]),
    (libc::SYS_fadvise64, [BAD, 0, 0, libc::POSIX_FADV_DONTNEED as usize, 0, 0]),
    (libc::SYS_sync_file_range, [BAD, 0, 0, 7, 0, 0]),
    (libc::SYS_fsync, [BAD, 0, 0, 0, 0, 0]),
    (libc::SYS_fdatasync, [BAD, 0, 0, 0, 0, 0]),
    (libc::SYS_read, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_write, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_pread64, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_pwrite64, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_preadv2, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_pwritev2, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_getdents64, [BAD, BAD, 0, 0, 0, 0]),
    // Asynchronous requests.
    (libc::SYS_io_setup, [0, BAD, 0, 0, 0, 0]),
    (libc::SYS_io_submit, [0, 0, BAD, 0, 0, 0]),
    (libc::SYS_io_getevents, [0, 0, 0, BAD, 0, 0]),
    (libc::SYS_io_uring_setup, [0, BAD, 0, 0, 0, 0]),
    (libc::SYS_io_uring_enter, [BAD, 0, 0, 1, 0, 0]),
    (libc::SYS_io_uring_register, [BAD, 2, BAD, 0, 0, 0]),
    (libc::SYS_eventfd2, [0, BAD, 0, 0, 0, 0]),
    (libc::SYS_pipe2, [BAD, libc::O_CLOEXEC as usize, 0, 0, 0, 0]),
    (libc::SYS_memfd_create, [BAD, libc::MFD_CLOEXEC as usize, 0, 0, 0, 0]),
    // Memory, threads, signals, the process.
    (libc::SYS_mmap, [0, 0, 3, 0x22, BAD, 0]),
    (libc::SYS_munmap, [0, 0, 0, 0, 0, 0]),
    (libc::SYS_mprotect, [0, 0, 0, 0, 0, 0]),
    (libc::SYS_madvise, [0, 0, libc::MADV_WIPEONFORK as usize, 0, 0, 0]),
    (libc::SYS_process_vm_readv, [0, BAD, 0, BAD, 0, 0]),
    (libc::SYS_process_vm_writev, [0, BAD, 0, BAD, 0, 0]),
    (libc::SYS_clone, [raw_thread::SHARED as usize & !(libc::CLONE_SIGHAND as usize), 0, 0, 0, 0, 0]),
    (libc::SYS_futex, [BAD, libc::FUTEX_WAIT as usize, 0, 0, 0, 0]),
    (libc::SYS_rt_sigaction, [0, 0, 0, 8, 0, 0]),
    (libc::SYS_rt_sigprocmask, [0, 0, 0, 8, 0, 0]),
    (libc::SYS_rt_sigpending, [BAD, 8, 0, 0, 0, 0]),
    (libc::SYS_rt_sigtimedwait, [BAD, 0, 0, 8, 0, 0]),
    (libc::SYS_sigaltstack, [0, 0, 0, 0, 0, 0]),
    (libc::SYS_kill, [i32::MAX as usize, 0, 0, 0, 0, 0]), // a process that does not exist
    (libc::SYS_tgkill, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_getpid, [0; 6]),
    (libc::SYS_gettid, [0; 6]),
    (libc::SYS_getuid, [0; 6]),
    (libc::SYS_kcmp, [0, 0, 0, BAD, BAD, 0]),
    (libc::SYS_kcmp, [0, 0, 2, 0, 0, 0]), // KCMP_FILES
    (libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, 0, 0, 0, 0]),
    (libc::SYS_prlimit64, [0, libc::RLIMIT_FSIZE as usize, 0, 0, 0, 0]),
    (libc::SYS_capget, [BAD, 0, 0, 0, 0, 0]),
    (libc::SYS_prctl, [libc::PR_SET_NAME as usize, BAD, 0, 0, 0, 0]),
    (libc::SYS_prctl, [PR_SET_SYSCALL_USER_DISPATCH as usize, 0, 0, 0, 0, 0]),
    (libc::SYS_get_robust_list, [i32::MAX as usize, BAD, BAD, 0, 0, 0]), // a process that does not exist
    (libc::SYS_unshare, [0; 6]),
    (libc::SYS_sched_yield, [0; 6]),
    (libc::SYS_nanosleep, [BAD, 0, 0, 0, 0, 0]),
    (libc::SYS_clock_gettime, [libc::CLOCK_MONOTONIC as usize, BAD, 0, 0, 0, 0]),
    // The board of the counts.
    (libc::SYS_ftruncate, [BAD, 0, 0, 0, 0, 0]),
    (libc::SYS_fchmod, [BAD, 0, 0, 0, 0, 0]),
    (libc::SYS_mkdirat, [BAD, BAD, 0, 0, 0, 0]),
    (libc::SYS_unlinkat, [BAD, BAD, 0, 0, 0, 0]),
];

/// Makes all calls, and ends the process with the status [`SURVIVED`].
pub fn run() -> ! {
    let (none, resource) = ([0u64; 2], libc::RLIMIT_CORE as usize);
    // SAFETY: one structure of two words is read: the process leaves no core file.
    let _ = unsafe { raw::call(libc::SYS_prlimit64, 0, resource, none.as_ptr() as usize, 0, 0, 0) };
    for &(number, [a, b, c, d, e, f]) in CALLS {
        // SAFETY: each call has arguments with which it changes nothing; bad addresses are EFAULT.
        let _ = unsafe { raw::call(number, a, b, c, d, e, f) };
    }
    loop {
        // SAFETY: ends the process.
        let _ = unsafe { raw::pass(libc::SYS_exit_group, SURVIVED, 0, 0, 0, 0, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_change_nothing() {
        let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
        for &(number, [a, b, c, d, e, f]) in CALLS {
            // SAFETY: each call has arguments with which it changes nothing; bad addresses are EFAULT.
            let result = unsafe { raw::call(number, a, b, c, d, e, f) };
            let harmless = [
                libc::SYS_getpid,
                libc::SYS_gettid,
                libc::SYS_getuid,
                libc::SYS_unshare,
                libc::SYS_sched_yield,
                libc::SYS_mprotect,
                libc::SYS_madvise,
                libc::SYS_sigaltstack,
                libc::SYS_rt_sigprocmask,
                libc::SYS_prlimit64,
                libc::SYS_prctl,
                libc::SYS_futex,
                libc::SYS_write,
                libc::SYS_process_vm_readv,
                libc::SYS_process_vm_writev,
                libc::SYS_kcmp,
            ];
            assert!(result < 0 || harmless.contains(&number), "call {number} has returned {result}");
        }
        // Other tests run beside this one, and come to an end.
        let is_as_before = |_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            std::fs::read_dir("/proc/self/fd").unwrap().count() <= before + 2
        };
        assert!((0..3000).any(is_as_before), "a call has left a descriptor open");
    }
}

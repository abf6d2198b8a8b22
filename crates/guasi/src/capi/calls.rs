//! guasi_syscalls.h: the calls of POSIX and Linux, made asynchronous.
//!
//! Reads, writes, syncs and socket calls are [`Call`]s of their own, which the ring can carry out. The others block in
//! the kernel in any case, and are functions for the pool.

use std::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_void};

use libc::{sockaddr, socklen_t};

use super::context::submit;
use crate::call::{Call, Function, MAX_PARAMS, SocketCall, SocketKind};
use crate::core::Core;
use crate::request::Request;

/// The parameters that every call begins with, and the function around them.
macro_rules! wrapper {
    ($name:ident($($param:ident: $type:ty),*) => $call:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            handle: *const Core,
            private: *mut c_void,
            asid: *mut c_void,
            priority: c_int,
            $($param: $type),*
        ) -> *mut Request {
            // SAFETY: guasi(3): the handle is valid, and so are the pointers until the request is fetched.
            unsafe { submit(handle, private, asid, priority, $call) }
        }
    };
}

fn transfer(write: bool, fd: c_int, buffer: *mut u8, len: usize, offset: i64) -> Call {
    Call::Transfer { write, fd, buffer, len, offset, seekable: false }
}

/// A call at an offset. Negative offsets are errors to the positional calls. -1 means the file's position in a
/// [`Call`], so it becomes another negative offset and stays an error.
fn positional(write: bool, fd: c_int, buffer: *mut u8, len: usize, offset: i64) -> Call {
    transfer(write, fd, buffer, len, if offset == -1 { i64::MIN } else { offset })
}

fn socket(fd: c_int, kind: SocketKind, timeout_ms: c_long) -> Call {
    Call::Socket(Box::new(SocketCall::new(fd, kind, timeout_ms)))
}

fn function<const N: usize>(function: Function, given: [isize; N]) -> Call {
    let mut params = [0; MAX_PARAMS];
    params[..N].copy_from_slice(&given);
    Call::Function { function, cleanup: None, params, mask: None }
}

/// A function for the pool that passes its parameters on to a call of the C library.
macro_rules! blocking {
    ($name:ident, |$params:ident| $call:expr) => {
        unsafe extern "C" fn $name(_private: *mut c_void, params: *const isize) -> isize {
            // SAFETY: the pool passes MAX_PARAMS parameters.
            let $params = unsafe { &*params.cast::<[isize; MAX_PARAMS]>() };
            // SAFETY: guasi(3): the pointers among them are valid until the request is fetched.
            (unsafe { $call }) as isize
        }
    };
}

wrapper!(guasi__read(fd: c_int, buffer: *mut u8, size: usize) => transfer(false, fd, buffer, size, -1));
wrapper!(guasi__write(fd: c_int, buffer: *mut u8, size: usize) => transfer(true, fd, buffer, size, -1));
wrapper!(guasi__pread(fd: c_int, buffer: *mut u8, size: usize, offset: c_longlong) =>
    positional(false, fd, buffer, size, offset));
wrapper!(guasi__pwrite(fd: c_int, buffer: *mut u8, size: usize, offset: c_longlong) =>
    positional(true, fd, buffer, size, offset));
wrapper!(guasi__preadv2(fd: c_int, iov: *const libc::iovec, count: c_int, offset: c_longlong, flags: c_int) =>
    Call::Vector { write: false, fd, iov, count, offset, flags });
wrapper!(guasi__pwritev2(fd: c_int, iov: *const libc::iovec, count: c_int, offset: c_longlong, flags: c_int) =>
    Call::Vector { write: true, fd, iov, count, offset, flags });
wrapper!(guasi__fsync(fd: c_int) => Call::Sync { fd, data_only: false });
wrapper!(guasi__fdatasync(fd: c_int) => Call::Sync { fd, data_only: true });
wrapper!(guasi__fallocate(fd: c_int, mode: c_int, offset: c_longlong, len: c_longlong) =>
    Call::Allocate { fd, mode, offset, len });

wrapper!(guasi__recv(fd: c_int, buffer: *mut u8, len: usize, flags: c_int, timeout_ms: c_long) => {
    let (from, from_len) = (std::ptr::null_mut(), std::ptr::null_mut());
    socket(fd, SocketKind::Receive { buffer, len, flags, from, from_len }, timeout_ms)
});
wrapper!(guasi__recvfrom(fd: c_int, buffer: *mut u8, len: usize, flags: c_int, from: *mut sockaddr,
    from_len: *mut socklen_t, timeout_ms: c_long) =>
    socket(fd, SocketKind::Receive { buffer, len, flags, from, from_len }, timeout_ms));
wrapper!(guasi__send(fd: c_int, buffer: *const u8, len: usize, flags: c_int, timeout_ms: c_long) =>
    socket(fd, SocketKind::Send { buffer, len, flags, to: std::ptr::null(), to_len: 0 }, timeout_ms));
wrapper!(guasi__sendto(fd: c_int, buffer: *const u8, len: usize, flags: c_int, to: *const sockaddr, to_len: socklen_t,
    timeout_ms: c_long) =>
    socket(fd, SocketKind::Send { buffer, len, flags, to, to_len }, timeout_ms));
wrapper!(guasi__accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, timeout_ms: c_long) =>
    socket(fd, SocketKind::Accept { address, len }, timeout_ms));
wrapper!(guasi__connect(fd: c_int, address: *const sockaddr, len: socklen_t, timeout_ms: c_long) =>
    socket(fd, SocketKind::Connect { address, len }, timeout_ms));

blocking!(sendfile, |p| libc::sendfile64(p[0] as c_int, p[1] as c_int, p[2] as *mut i64, p[3] as usize));
wrapper!(guasi__sendfile(to: c_int, from: c_int, offset: *mut c_longlong, count: usize) =>
    function(sendfile, [to as isize, from as isize, offset as isize, count as isize]));

blocking!(open, |p| libc::open(p[0] as *const c_char, p[1] as c_int, p[2] as c_uint));
wrapper!(guasi__open(name: *const c_char, flags: c_long, mode: c_long) =>
    function(open, [name as isize, flags as isize, mode as isize]));

blocking!(openat, |p| libc::openat(p[0] as c_int, p[1] as *const c_char, p[2] as c_int, p[3] as c_uint));
wrapper!(guasi__openat(dir: c_int, name: *const c_char, flags: c_long, mode: c_long) =>
    function(openat, [dir as isize, name as isize, flags as isize, mode as isize]));

blocking!(close, |p| libc::close(p[0] as c_int));
wrapper!(guasi__close(fd: c_int) => function(close, [fd as isize]));

blocking!(opendir, |p| libc::opendir(p[0] as *const c_char));
wrapper!(guasi__opendir(name: *const c_char) => function(opendir, [name as isize]));

blocking!(readdir, |p| libc::readdir(p[0] as *mut libc::DIR));
wrapper!(guasi__readdir(dir: *mut libc::DIR) => function(readdir, [dir as isize]));

blocking!(getdents, |p| libc::syscall(libc::SYS_getdents64, p[0] as c_int, p[1] as *mut c_void, p[2] as usize));
wrapper!(guasi__getdents(fd: c_int, buffer: *mut c_void, size: usize) =>
    function(getdents, [fd as isize, buffer as isize, size as isize]));

blocking!(stat, |p| libc::stat(p[0] as *const c_char, p[1] as *mut libc::stat));
wrapper!(guasi__stat(name: *const c_char, place: *mut libc::stat) => function(stat, [name as isize, place as isize]));

blocking!(fstat, |p| libc::fstat(p[0] as c_int, p[1] as *mut libc::stat));
wrapper!(guasi__fstat(fd: c_int, place: *mut libc::stat) => function(fstat, [fd as isize, place as isize]));

blocking!(statx, |p| libc::statx(
    p[0] as c_int,
    p[1] as *const c_char,
    p[2] as c_int,
    p[3] as c_uint,
    p[4] as *mut libc::statx
));
wrapper!(guasi__statx(dir: c_int, name: *const c_char, flags: c_int, mask: c_uint, place: *mut libc::statx) =>
    function(statx, [dir as isize, name as isize, flags as isize, mask as isize, place as isize]));

blocking!(unlinkat, |p| libc::unlinkat(p[0] as c_int, p[1] as *const c_char, p[2] as c_int));
wrapper!(guasi__unlinkat(dir: c_int, name: *const c_char, flags: c_int) =>
    function(unlinkat, [dir as isize, name as isize, flags as isize]));

blocking!(renameat2, |p| libc::syscall(
    libc::SYS_renameat2,
    p[0] as c_int,
    p[1] as *const c_char,
    p[2] as c_int,
    p[3] as *const c_char,
    p[4] as c_uint
));
wrapper!(guasi__renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_uint) =>
    function(renameat2, [from as isize, old as isize, to as isize, new as isize, flags as isize]));

blocking!(mkdirat, |p| libc::mkdirat(p[0] as c_int, p[1] as *const c_char, p[2] as libc::mode_t));
wrapper!(guasi__mkdirat(dir: c_int, name: *const c_char, mode: libc::mode_t) =>
    function(mkdirat, [dir as isize, name as isize, mode as isize]));

//! Descriptors of files that another process has opened: they come over sockets (SCM_RIGHTS of unix(7)), or by
//! pidfd_getfd(2).

use core::ffi::{c_int, c_uint};

use super::room;
use crate::abi::errno;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::others;
use crate::state::lane;

/// Passes every descriptor that came with a message to `others::came`.
///
/// # Safety
/// The kernel has filled the message.
unsafe fn look_into(message: *const libc::msghdr) {
    // SAFETY: a message that the kernel has filled.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null, or a header within the message's control data.
    while let Some(found) = unsafe { header.as_ref() } {
        if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let _undisturbed = Undisturbed::begin();
            // SAFETY: a header within the message's control data.
            let data: *const c_int = unsafe { libc::CMSG_DATA(header) }.cast();
            // SAFETY: an integer only.
            let before = unsafe { libc::CMSG_LEN(0) } as usize;
            for at in 0..found.cmsg_len.saturating_sub(before) / size_of::<c_int>() {
                // SAFETY: the header states the number of descriptors that follow it.
                let fd = unsafe { data.wrapping_add(at).read_unaligned() };
                others::came(fd);
                room::got(fd);
            }
        }
        // SAFETY: a header within the message's control data.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}

/// pidfd_getfd(2).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pidfd_getfd(pidfd: c_int, number: c_int, flags: c_uint) -> c_int {
    // SAFETY: the contract of pidfd_getfd(2), which the program keeps.
    let fd = room::needing_number(|| unsafe { real::pidfd_getfd(pidfd, number, flags) });
    if fd >= 0 {
        let _undisturbed = Undisturbed::begin();
        let _errno = errno::kept();
        others::came(fd);
    }
    fd
}

/// recvmsg(2).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the program's contract: null, or a message.
    if let Some(message) = unsafe { message.as_ref() } {
        room::for_a_message(message.msg_controllen);
    }
    // SAFETY: the contract of recvmsg(2), which the program keeps.
    let result = unsafe { real::recvmsg(socket, message, flags) };
    if result >= 0 && lane::active() {
        let _errno = errno::kept();
        // SAFETY: the kernel has filled the message.
        unsafe { look_into(message) };
    }
    result
}

/// recvmmsg(2).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    socket: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    for at in 0..if messages.is_null() { 0 } else { count as usize } {
        // SAFETY: the program's contract: this number of messages.
        room::for_a_message(unsafe { (*messages.wrapping_add(at)).msg_hdr.msg_controllen });
    }
    // SAFETY: the contract of recvmmsg(2), which the program keeps.
    let result = unsafe { real::recvmmsg(socket, messages, count, flags, timeout) };
    if lane::active() {
        let _errno = errno::kept();
        for at in 0..usize::try_from(result).unwrap_or(0) {
            let message = messages.wrapping_add(at);
            // SAFETY: the kernel has filled this number of messages.
            let message = unsafe { &raw const (*message).msg_hdr };
            // SAFETY: the kernel has filled this message.
            unsafe { look_into(message) };
        }
    }
    result
}

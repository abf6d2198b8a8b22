//! Descriptors of files that another process has opened: they come over sockets (SCM_RIGHTS of unix(7)), or by
//! pidfd_getfd(2).

use core::ffi::{c_int, c_uint};

use super::room;
use crate::abi::errno;
use crate::abi::readable;
use crate::abi::real;
use crate::abi::undisturbed::Undisturbed;
use crate::open::others;
use crate::state::lane;
use crate::state::process;

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

/// Makes room for the descriptors that a message may bring. False if no message needs that, or if the kernel will not
/// read this one.
fn make_room(message: *const libc::msghdr) -> bool {
    /// The bytes of a header.
    type Bytes = [u8; size_of::<libc::msghdr>()];
    if !process::shares_numbers() {
        return false;
    }
    let Some(bytes) = readable::read::<Bytes>(message.cast()) else { return false };
    // SAFETY: every bit pattern is a valid header: it has numbers and raw pointers only.
    let header = unsafe { bytes.as_ptr().cast::<libc::msghdr>().read_unaligned() };
    room::for_a_message(header.msg_controllen);
    true
}

/// recvmsg(2).
///
/// # Safety
/// The program's contract ([`crate::hooks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
    make_room(message);
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
    /// UIO_MAXIOV: the kernel takes no more messages at a time.
    const MOST: usize = 1024;
    for at in 0..(count as usize).min(MOST) {
        // The header is the first part of the structure.
        if !make_room(messages.wrapping_add(at).cast()) {
            break;
        }
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

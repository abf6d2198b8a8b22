//! System calls that no interposed function of libc gets to see.

use std::os::fd::{IntoRawFd, OwnedFd};

/// Closes a descriptor by the system call itself: dropping it would call `close` of whatever library comes first.
pub fn close(file: OwnedFd) {
    // SAFETY: the descriptor was owned, and is given up here.
    unsafe { rustix::io::close(file.into_raw_fd()) };
}

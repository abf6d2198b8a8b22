//! The library's messages: on the standard error that the program was started with, and on nothing else.
//!
//! A daemon closes descriptor 2, and the next file that it opens is descriptor 2: that may be its database. So the
//! library remembers which file descriptor 2 was at the start, and writes to it only while it still is that file.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::abi::raw;

static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Remembers the file (device and inode) that standard error is.
pub fn remember() {
    if let Ok(stat) = raw::fstat(2) {
        DEVICE.store(stat.st_dev, Relaxed);
        INODE.store(stat.st_ino, Release);
    }
}

/// Writes one line, or several, to standard error; the text ends with a newline.
pub fn line(text: &[u8]) {
    let known = (DEVICE.load(Relaxed), INODE.load(Relaxed));
    if raw::fstat(2).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == known) {
        raw::tell(2, text);
    }
}

/// Writes one line to standard error in a process that has begun with a filter of system calls, by calls only that the
/// dynamic loader has made before: the filter permits those. A pipe that nobody reads raises no SIGPIPE, because the
/// process itself is a reader meanwhile.
pub fn line_under_a_filter(text: &[u8]) {
    let reader = raw::open(c"/proc/self/fd/2", libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOCTTY);
    raw::write(2, text);
    if let Ok(reader) = reader {
        let _ = raw::close(reader);
    }
}

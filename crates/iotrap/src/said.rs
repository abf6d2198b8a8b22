//! What the library says: on the standard error that the program was started with, and on nothing else.
//!
//! A daemon closes descriptor 2, and the next file that it opens is descriptor 2: that may be its database. So what the
//! descriptor was at the start is remembered, and it is only written to while it still is that.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::raw;

static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Remembers what standard error is.
pub fn remember() {
    if let Ok(stat) = raw::fstat(2) {
        DEVICE.store(stat.st_dev, Relaxed);
        INODE.store(stat.st_ino, Release);
    }
}

/// Writes one line, or several, that end with a newline.
pub fn line(text: &[u8]) {
    let known = (DEVICE.load(Relaxed), INODE.load(Relaxed));
    if raw::fstat(2).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == known) {
        raw::write(2, text);
    }
}

//! The only unsafe code here: words in a mapping that lives as long as the board.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};

/// Atomic words in memory that is shared with whoever maps the same file, and with forked children.
#[derive(Debug)]
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomics in a mapping of the whole process, which any thread may use and unmap.
unsafe impl Send for Words {}
// SAFETY: shared references give access to the words by atomic operations only.
unsafe impl Sync for Words {}

impl Words {
    /// The first `count` words of a file, which has that many and is never cut by those who know it.
    pub fn of_file(file: &OwnedFd, count: usize) -> Result<Words> {
        let bytes = count.checked_mul(8).ok_or(Errno::NOMEM)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that this process uses.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
        }?;
        NonNull::new(start.cast()).map(|start| Words { start, count }).ok_or(Errno::NOMEM)
    }

    /// `count` words of memory that nobody else can find, all 0.
    pub fn private(count: usize) -> Result<Words> {
        let bytes = count.checked_mul(8).ok_or(Errno::NOMEM)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that this process uses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        NonNull::new(start.cast()).map(|start| Words { start, count }).ok_or(Errno::NOMEM)
    }

    /// The words, which stay mapped for the life of the process.
    pub fn keep(self) -> &'static [AtomicU64] {
        let kept = std::mem::ManuallyDrop::new(self);
        // SAFETY: as in `deref`, and nobody unmaps them: the value is never dropped.
        unsafe { std::slice::from_raw_parts(kept.start.as_ptr(), kept.count) }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has count words, is aligned to a page, lives until drop, and any bits are a valid
        // AtomicU64; other processes write it with atomics only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made, once; no reference outlives self.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.count * 8) }; // nothing could be done
    }
}

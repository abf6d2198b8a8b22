//! Words of memory that threads and forked children see alike.

use std::io;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use crate::buffer::{Buffer, Memory};

/// An array of atomic words in a shared mapping: written by children, read by their parent.
#[derive(Debug)]
pub struct SharedWords {
    memory: Buffer,
    count: usize,
}

impl SharedWords {
    /// `count` words, all 0.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(count: usize) -> io::Result<SharedWords> {
        Ok(SharedWords { memory: Buffer::zeroed(count * size_of::<AtomicU64>(), &Memory::Shared)?, count })
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        let words = self.memory.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: the region is page-aligned, count * 8 bytes long and zeroed, which is a valid AtomicU64; all
        // access to it, here and in other processes, is through atomics.
        unsafe { std::slice::from_raw_parts(words, self.count) }
    }
}

//! Aligned memory for I/O: one allocation, page-aligned, cut into equal slots.

use std::io;
use std::ptr::NonNull;

/// The source of a [`Buffer`]'s memory: fio's `mem=`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Memory {
    /// Anonymous private pages (`mem=malloc`, `mem=mmap`).
    #[default]
    Anonymous,
    /// Anonymous huge pages of the system's default size (`mem=mmaphuge`, `mem=shmhuge`).
    Huge,
    /// Anonymous pages shared with child processes (`mem=mmapshared`, `mem=shm`).
    Shared,
}

/// An owned, zeroed, page-aligned region. Freed on drop; never moves.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    mapped_bytes: usize,
    offset: usize,
    len: usize,
}

// SAFETY: the region is plain memory owned by this value alone; nothing about it is tied to a thread.
unsafe impl Send for Buffer {}
// SAFETY: a shared Buffer only gives shared slices and raw pointers; see as_mut_ptr for the rule on writes.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zeroed bytes that start on a page boundary (on a huge page for [`Memory::Huge`]).
    ///
    /// # Errors
    /// The error of mmap(2): ENOMEM when memory, or the pool of huge pages, does not suffice.
    pub fn zeroed(len: usize, memory: &Memory) -> io::Result<Buffer> {
        Self::with_offset(len, 0, memory)
    }

    /// As [`Buffer::zeroed`], but the first byte lies `offset` bytes past the page boundary (fio's `iomem_align`).
    pub fn with_offset(len: usize, offset: usize, memory: &Memory) -> io::Result<Buffer> {
        let flags = match memory {
            Memory::Anonymous => libc::MAP_PRIVATE,
            Memory::Huge => libc::MAP_PRIVATE | libc::MAP_HUGETLB,
            Memory::Shared => libc::MAP_SHARED,
        };
        let unit = if *memory == Memory::Huge { 2 << 20 } else { 4096 };
        let mapped_bytes = (len + offset).max(1).next_multiple_of(unit);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Buffer { start, mapped_bytes, offset, len })
    }

    /// The length of the buffer in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the buffer holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte. While the kernel owns part of the buffer (a request in flight) no reference
    /// may cover that part: engines hand out pointers, and slices only between completion and reuse.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        // SAFETY: offset lies within the mapping (with_offset mapped offset + len bytes).
        unsafe { self.start.as_ptr().add(self.offset) }
    }

    /// The bytes. Only while no request on this buffer is in flight.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the region is mapped, initialised (zeroed by the kernel) and len bytes long.
        unsafe { std::slice::from_raw_parts(self.as_mut_ptr(), self.len) }
    }

    /// The bytes, mutable. Only while no request on this buffer is in flight.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the region is mapped, initialised and len bytes long; &mut self makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: exactly the region that mmap returned, unmapped once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_zeroed_and_writable() {
        for memory in [Memory::Anonymous, Memory::Shared] {
            let mut buffer = Buffer::zeroed(10_000, &memory).unwrap();
            assert_eq!(buffer.as_mut_ptr() as usize % 4096, 0);
            assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
            buffer.as_mut_slice()[9_999] = 7;
            assert_eq!(buffer.as_slice()[9_999], 7);
        }
        let shifted = Buffer::with_offset(512, 512, &Memory::Anonymous).unwrap();
        assert_eq!(shifted.as_mut_ptr() as usize % 4096, 512);
    }

    #[test]
    fn impossible_sizes_are_an_error_not_an_abort() {
        assert!(Buffer::zeroed(1 << 60, &Memory::Anonymous).is_err());
    }
}

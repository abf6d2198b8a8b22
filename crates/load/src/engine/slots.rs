//! The buffers of a clone, cut into slots that are owned by exactly one party at a time.

use std::io;
use std::sync::Arc;

use sys::buffer::{Buffer, Memory};

use super::Request;

/// All buffers of one clone: `count` slots of equal size in one region.
#[derive(Debug)]
pub struct Slots {
    memory: Buffer,
    stride: usize,
    slot_bytes: usize,
    count: u32,
}

/// The right to use one buffer of a [`Slots`]. Not `Clone`: it moves with the request.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    index: u32,
}

impl Slot {
    /// The number of the buffer, 0..count: an index for whatever is kept per request.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Slots {
    /// `count` buffers of `slot_bytes` each, every one aligned to 4096 bytes plus `align_offset`, and the tokens
    /// to use them: the only ones that will ever be given out.
    ///
    /// # Errors
    /// ENOMEM: the memory for the buffers cannot be had.
    pub fn new(
        count: u32,
        slot_bytes: usize,
        align_offset: usize,
        memory: &Memory,
    ) -> io::Result<(Arc<Slots>, Vec<Slot>)> {
        let stride = slot_bytes.max(1).next_multiple_of(4096);
        let region = stride.checked_mul(count as usize).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let memory = Buffer::with_offset(region, align_offset, memory)?;
        let tokens = (0..count).rev().map(|index| Slot { index }).collect();
        Ok((Arc::new(Slots { memory, stride, slot_bytes, count }), tokens))
    }

    /// Length of each buffer in bytes.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Number of buffers, which is the depth.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes from one buffer to the next.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The bytes of a slot that is not in flight: the caller proves it by holding the token.
    #[inline]
    pub fn bytes<'a>(&'a self, slot: &'a Slot) -> &'a [u8] {
        // SAFETY: index < count, so the slot lies in the region; the token is unique and not in flight, so nobody
        // writes these bytes while the borrow of the token lasts.
        unsafe { std::slice::from_raw_parts(self.pointer(slot.index), self.slot_bytes) }
    }

    /// The bytes of a slot that is not in flight, mutable: the caller proves it by holding the token.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the exclusive borrow is that of the token, of which there is one a slot")]
    pub fn bytes_mut<'a>(&'a self, slot: &'a mut Slot) -> &'a mut [u8] {
        // SAFETY: index < count, so the slot lies in the region; the token is unique and not in flight, and its mutable
        // borrow excludes every other reference to these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(slot.index), self.slot_bytes) }
    }

    /// The place of a transfer's `len` bytes in its slot, for the kernel. Only engines use it.
    ///
    /// # Panics
    /// The request reaches beyond the end of its slot.
    #[inline]
    pub(super) fn place(&self, request: &Request) -> *mut u8 {
        let (skip, len) = (request.skip as usize, request.len as usize);
        assert!(skip + len <= self.slot_bytes, "a request is larger than its buffer");
        // SAFETY: skip lies within the slot, by the check above.
        unsafe { self.pointer(request.slot.index()).add(skip) }
    }

    /// A pointer to the first byte of a slot, for the kernel. Only engines use it.
    #[inline]
    pub(super) fn pointer(&self, index: u32) -> *mut u8 {
        debug_assert!(index < self.count);
        // SAFETY: index < count, so the offset lies within the region of count * stride bytes.
        unsafe { self.memory.as_mut_ptr().add(index as usize * self.stride) }
    }

    /// The token of a request that the kernel has finished. Engines only: call it once a completion.
    #[inline]
    pub(super) fn reclaim(&self, index: u32) -> Slot {
        debug_assert!(index < self.count);
        Slot { index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_disjoint_and_aligned() {
        let (slots, mut tokens) = Slots::new(3, 5000, 0, &Memory::Anonymous).unwrap();
        for (value, token) in tokens.iter_mut().enumerate() {
            slots.bytes_mut(token).fill(value as u8 + 1);
        }
        for (value, token) in tokens.iter().enumerate() {
            assert_eq!(slots.bytes(token).len(), 5000);
            assert_eq!(slots.bytes(token).as_ptr() as usize % 4096, 0);
            assert!(slots.bytes(token).iter().all(|&byte| byte == value as u8 + 1));
        }
        assert_eq!(tokens.last().unwrap().index(), 0, "low slots are taken first: they are the warm ones");
    }
}

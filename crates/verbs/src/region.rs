//! Memory that is registered for as long as it exists.

use std::alloc::Layout;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use crate::stack::Verbs;
use crate::work::{Access, Part};

/// Pages of the processor: memory begins at one, so that registering it pins no byte of other owners.
const PAGE: usize = 4096;

/// Memory with its registration. Devices and peers may change its bytes at any time, so nobody borrows them: `read` and
/// `write` copy.
pub struct Memory<V: Verbs> {
    verbs: V,
    /// Ends before the memory does: [`Drop`] sees to it.
    region: Option<V::Region>,
    bytes: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone, on whichever thread it is; the region is Send by its trait.
unsafe impl<V: Verbs> Send for Memory<V> {}

impl<V: Verbs> Memory<V> {
    /// Memory full of zeros.
    ///
    /// # Errors
    /// Those of [`Verbs::register`]; EINVAL for no bytes or more than the address space has.
    pub fn new(verbs: &V, domain: &V::Domain, length: usize, access: Access) -> io::Result<Memory<V>> {
        let layout = Layout::from_size_align(length, PAGE).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        if length == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the layout has bytes.
        let bytes = unsafe { std::alloc::alloc_zeroed(layout) };
        let bytes = NonNull::new(bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let mut memory = Memory { verbs: verbs.clone(), region: None, bytes, layout };
        let all = std::ptr::slice_from_raw_parts_mut(bytes.as_ptr(), length);
        // SAFETY: `drop` ends the registration before it frees the memory, and no reference to the bytes exists ever.
        memory.region = Some(unsafe { verbs.register(domain, all, access) }?);
        Ok(memory)
    }

    /// Virtual address of the first byte: peers name it.
    pub fn address(&self) -> u64 {
        self.bytes.as_ptr().expose_provenance() as u64
    }

    /// The key of the registration.
    pub fn key(&self) -> u32 {
        self.verbs.key(self.region.as_ref().expect("registered while the memory exists"))
    }

    /// A part for work.
    ///
    /// # Panics
    /// If the range is not in the memory, or is longer than a part can be.
    pub fn part(&self, range: Range<usize>) -> Part {
        self.check(&range);
        let length = u32::try_from(range.len()).expect("a part has less than 4 GiB");
        Part { address: self.address() + range.start as u64, length, key: self.key() }
    }

    /// Copies bytes out of the memory.
    ///
    /// # Panics
    /// If the range is not in the memory.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(&(offset..offset.saturating_add(into.len())));
        // SAFETY: the offset is in the memory.
        let from = unsafe { self.bytes.as_ptr().add(offset) };
        self.verbs.while_still(|| {
            // SAFETY: the range is in the memory, of which no reference exists; nothing in this process moves.
            unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
        });
    }

    /// Copies bytes into the memory.
    ///
    /// # Panics
    /// If the range is not in the memory.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.check(&(offset..offset.saturating_add(bytes.len())));
        // SAFETY: the offset is in the memory.
        let to = unsafe { self.bytes.as_ptr().add(offset) };
        self.verbs.while_still(|| {
            // SAFETY: the range is in the memory, of which no reference exists; nothing in this process moves.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
        });
    }

    fn check(&self, range: &Range<usize>) {
        let length = self.layout.size();
        assert!(range.start <= range.end && range.end <= length, "{range:?} is not in memory of {length} bytes");
    }
}

impl<V: Verbs> Drop for Memory<V> {
    fn drop(&mut self) {
        self.region = None;
        // SAFETY: `new` has allocated the memory with this layout; its registration has ended.
        unsafe { std::alloc::dealloc(self.bytes.as_ptr(), self.layout) };
    }
}

//! The memory of the fabric: which bytes a key opens, and the copies.

use super::{Domain, State};
use crate::work::{Access, Part};

/// Bytes that have been checked: an address and a length.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    address: u64,
    length: usize,
}

impl State {
    /// The bytes of a range, if the key is of the domain, the range lies in its region, and the region allows the use.
    pub(super) fn open(
        &self,
        domain: Domain,
        key: u32,
        address: u64,
        length: u64,
        allows: fn(&Access) -> bool,
    ) -> Option<Bytes> {
        let region = self.regions.get(&key)?;
        let offset = address.checked_sub(region.address)?;
        let fits = offset.checked_add(length)? <= region.length;
        (region.domain == domain && allows(&region.access) && fits)
            .then_some(Bytes { address, length: length as usize })
    }

    /// The bytes of the parts of this side's work.
    pub(super) fn open_parts(&self, domain: Domain, parts: &[Part], allows: fn(&Access) -> bool) -> Option<Vec<Bytes>> {
        let open = |part: &Part| self.open(domain, part.key, part.address, part.length.into(), allows);
        parts.iter().map(open).collect()
    }
}

/// Copies the bytes of ranges into other ranges that have room for them.
pub(super) fn copy(from: &[Bytes], to: &[Bytes]) {
    let mut content = Vec::new();
    for bytes in from {
        let source = std::ptr::with_exposed_provenance::<u8>(bytes.address as usize);
        let start = content.len();
        content.resize(start + bytes.length, 0);
        // SAFETY: `open` has found the range in a region, whose memory is valid until it is dropped; `content` has
        // room, and is other memory.
        unsafe { std::ptr::copy_nonoverlapping(source, content[start..].as_mut_ptr(), bytes.length) };
    }
    let mut rest = &content[..];
    for bytes in to {
        let (now, later) = rest.split_at(bytes.length.min(rest.len()));
        let destination = std::ptr::with_exposed_provenance_mut::<u8>(bytes.address as usize);
        // SAFETY: `open` has found the range in a region, whose memory is valid until it is dropped; `now` is not
        // longer than the range, and is other memory.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), destination, now.len()) };
        rest = later;
    }
    debug_assert!(rest.is_empty(), "the ranges have room");
}

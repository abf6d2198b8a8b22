//! Memory of ops for RDMA: slots side by side, each of a page's multiple.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::Arc;

use nvme_initiator::{Arena, Buffers};

pub const SLOT_BYTES: usize = 32 << 10;

pub struct Slots {
    start: *mut u8,
    layout: Layout,
    count: u32,
}

// SAFETY: the memory is this value's own, and its bytes are reached through `Ops` alone.
unsafe impl Send for Slots {}
// SAFETY: as for Send.
unsafe impl Sync for Slots {}

impl Slots {
    pub fn new(count: u32) -> Arc<Slots> {
        let layout = Layout::from_size_align(count as usize * SLOT_BYTES, 4096).unwrap();
        // SAFETY: the layout has bytes.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!start.is_null());
        Arc::new(Slots { start, layout, count })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: `new` has allocated it with this layout.
        unsafe { std::alloc::dealloc(self.start, self.layout) };
    }
}

// SAFETY: the memory lives as long as the value; slots are disjoint; `Ops` copies bytes of ops that are not
// outstanding.
unsafe impl Arena for Slots {
    fn count(&self) -> u32 {
        self.count
    }

    fn slot(&self, index: u32) -> *mut [u8] {
        assert!(index < self.count);
        let start = self.start.wrapping_add(index as usize * SLOT_BYTES);
        std::ptr::slice_from_raw_parts_mut(start, SLOT_BYTES)
    }
}

/// The ops of a test: the tag of an op is the number of its slot. An op with an entry in `others` has its data there.
pub struct Ops {
    slots: Arc<Slots>,
    pub others: HashMap<u32, Vec<u8>>,
}

impl Ops {
    pub fn new(slots: Arc<Slots>) -> Ops {
        Ops { slots, others: HashMap::new() }
    }

    /// Fills the slot of an op that is not outstanding.
    pub fn fill(&mut self, tag: u32, byte: u8) {
        let slot = self.slots.slot(tag);
        // SAFETY: the slot is valid, and no command moves its data.
        unsafe { std::ptr::write_bytes(slot.cast::<u8>(), byte, slot.len()) };
    }

    /// The bytes of the slot of an op that is not outstanding.
    pub fn content(&self, tag: u32) -> Vec<u8> {
        let slot = self.slots.slot(tag);
        // SAFETY: the slot is valid, and no command moves its data.
        unsafe { std::slice::from_raw_parts(slot.cast::<u8>(), slot.len()) }.to_vec()
    }
}

impl Buffers for Ops {
    fn bytes(&self, tag: u32) -> &[u8] {
        self.others.get(&tag).expect("nobody looks at a slot in flight")
    }

    fn bytes_mut(&mut self, tag: u32) -> &mut [u8] {
        self.others.get_mut(&tag).expect("nobody looks at a slot in flight")
    }

    fn slot(&self, tag: u32) -> Option<u32> {
        (!self.others.contains_key(&tag)).then_some(tag)
    }
}

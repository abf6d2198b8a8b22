use std::collections::HashMap;

use nvme_initiator::Buffers;

/// Memory of ops, by tag.
#[derive(Default)]
pub struct Memory(pub HashMap<u32, Vec<u8>>);

impl Buffers for Memory {
    fn bytes(&self, tag: u32) -> &[u8] {
        self.0.get(&tag).map_or(&[], |bytes| bytes)
    }
    fn bytes_mut(&mut self, tag: u32) -> &mut [u8] {
        self.0.get_mut(&tag).map_or(&mut [], |bytes| bytes)
    }
}

//! The null device: reads are zeros, writes are forgotten, both at once.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Channel, Device, Done, Error, Io, Local};

pub(super) struct Null {
    block_bytes: u32,
    bytes: AtomicU64,
}

impl Null {
    pub fn new(block_bytes: u32, bytes: u64) -> Null {
        Null { block_bytes, bytes: bytes.into() }
    }
}

impl Device for Null {
    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn open(&self, _local: &Local) -> std::io::Result<Box<dyn Channel>> {
        Ok(Box::new(Nothing))
    }

    fn resize(&self, bytes: Option<u64>) -> Result<(), Error> {
        let bytes = bytes.ok_or_else(|| Error::invalid("a null device needs a size: give one"))?;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn reads_zeros(&self) -> bool {
        true
    }
}

struct Nothing;

impl Channel for Nothing {
    #[inline]
    fn submit(&mut self, _now_ns: u64, io: Io, done: &mut Vec<Done>) {
        let mut buffer = io.buffer;
        if io.kind == super::IoKind::Read
            && let Some(buffer) = &mut buffer
        {
            // A read with a buffer, although none is needed, reads the content of the device: zeros.
            buffer.as_mut_slice()[io.skip as usize..][..io.len as usize].fill(0);
        }
        done.push(Done { tag: io.tag, result: Ok(io.len), buffer });
    }

    fn poll(&mut self, _now_ns: u64, _done: &mut Vec<Done>) {}
}

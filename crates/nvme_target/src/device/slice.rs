//! A part of another device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Channel, Device, Done, Error, Io, Local};

pub(super) struct Slice {
    base: Arc<dyn Device>,
    offset: u64,
    bytes: AtomicU64,
}

impl Slice {
    pub fn new(name: &str, base: Arc<dyn Device>, offset: u64, bytes: u64) -> Result<Slice, Error> {
        let block = u64::from(base.block_bytes());
        let end = offset.checked_add(bytes);
        if bytes == 0 || !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(Error::invalid(format!(
                "device {name}: offset {offset} and length {bytes} are not whole blocks of {block} bytes"
            )));
        }
        if end.is_none_or(|end| end > base.bytes()) {
            return Err(Error::invalid(format!(
                "device {name}: {bytes} bytes from {offset} do not fit into the {} bytes of the device below",
                base.bytes()
            )));
        }
        Ok(Slice { base, offset, bytes: bytes.into() })
    }
}

impl Device for Slice {
    fn block_bytes(&self) -> u32 {
        self.base.block_bytes()
    }

    /// The length of the slice, as far as the device below still has its range.
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).min(self.base.bytes().saturating_sub(self.offset))
    }

    fn open(&self, local: &Local) -> std::io::Result<Box<dyn Channel>> {
        Ok(Box::new(SliceChannel { base: self.base.open(local)?, offset: self.offset }))
    }

    fn resize(&self, _bytes: Option<u64>) -> Result<(), Error> {
        Err(Error::invalid("a part of a split has the size that it was made with: resize the device below"))
    }

    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.base)
    }
}

struct SliceChannel {
    base: Box<dyn Channel>,
    offset: u64,
}

impl Channel for SliceChannel {
    fn submit(&mut self, now_ns: u64, mut io: Io, done: &mut Vec<Done>) {
        io.offset += self.offset;
        self.base.submit(now_ns, io, done);
    }

    fn poll(&mut self, now_ns: u64, done: &mut Vec<Done>) {
        self.base.poll(now_ns, done);
    }

    fn cancel(&mut self, tag: u64, done: &mut Vec<Done>) -> bool {
        self.base.cancel(tag, done)
    }

    fn wake_ns(&self) -> Option<u64> {
        self.base.wake_ns()
    }
}

//! Memory as a device, taken chunk by chunk where it is written. Shared by all reactors: a lock per chunk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::{Channel, Device, Done, Error, Io, IoKind, Local};

/// What is locked, taken and given back as a whole.
const CHUNK: u64 = 256 << 10;

/// A chunk never written is `None`, and zeros.
type Chunk = RwLock<Option<Box<[u8]>>>;

pub(super) struct Memory {
    block_bytes: u32,
    store: Arc<Store>,
}

struct Store {
    bytes: AtomicU64,
    chunks: RwLock<Vec<Chunk>>,
}

impl Memory {
    pub fn new(block_bytes: u32, bytes: u64) -> Memory {
        let store = Store { bytes: bytes.into(), chunks: RwLock::default() };
        store.set_chunks(bytes);
        Memory { block_bytes, store: Arc::new(store) }
    }
}

impl Device for Memory {
    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn bytes(&self) -> u64 {
        self.store.bytes.load(Ordering::Relaxed)
    }

    fn open(&self, _local: &Local) -> std::io::Result<Box<dyn Channel>> {
        Ok(Box::new(MemoryChannel { store: Arc::clone(&self.store) }))
    }

    fn resize(&self, bytes: Option<u64>) -> Result<(), Error> {
        let bytes = bytes.ok_or_else(|| Error::invalid("a memory device has no size of its own: give one"))?;
        let before = self.store.bytes.swap(bytes, Ordering::Relaxed);
        if bytes < before {
            // What lies beyond the end is gone: grown again, it reads as zeros.
            self.store.zero(bytes, before - bytes);
        }
        self.store.set_chunks(bytes);
        Ok(())
    }
}

impl Store {
    fn set_chunks(&self, bytes: u64) {
        let count = bytes.div_ceil(CHUNK) as usize;
        self.chunks.write().unwrap_or_else(PoisonError::into_inner).resize_with(count, Chunk::default);
    }

    /// Calls `each` with the chunk, the range within it and the range of the op; how many bytes lay within the device.
    fn walk(&self, offset: u64, len: u64, mut each: impl FnMut(&Chunk, usize, usize, usize)) -> u64 {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let mut at = 0;
        while at < len {
            let Some(chunk) = chunks.get(((offset + at) / CHUNK) as usize) else { break };
            let within = (offset + at) % CHUNK;
            let part = (CHUNK - within).min(len - at);
            each(chunk, within as usize, part as usize, at as usize);
            at += part;
        }
        at
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> u64 {
        self.walk(offset, to.len() as u64, |chunk, within, part, at| {
            let to = &mut to[at..at + part];
            match &*chunk.read().unwrap_or_else(PoisonError::into_inner) {
                Some(bytes) => to.copy_from_slice(&bytes[within..within + part]),
                None => to.fill(0),
            }
        })
    }

    fn write(&self, offset: u64, from: &[u8]) -> u64 {
        self.walk(offset, from.len() as u64, |chunk, within, part, at| {
            let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
            let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK as usize].into());
            bytes[within..within + part].copy_from_slice(&from[at..at + part]);
        })
    }

    fn zero(&self, offset: u64, len: u64) -> u64 {
        self.walk(offset, len, |chunk, within, part, _| {
            let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
            if part as u64 == CHUNK {
                *chunk = None;
            } else if let Some(bytes) = &mut *chunk {
                bytes[within..within + part].fill(0);
            }
        })
    }
}

struct MemoryChannel {
    store: Arc<Store>,
}

impl Channel for MemoryChannel {
    fn submit(&mut self, _now_ns: u64, mut io: Io, done: &mut Vec<Done>) {
        let range = io.skip as usize..io.skip as usize + io.len as usize;
        let moved = match (io.kind, &mut io.buffer) {
            (IoKind::Read, Some(buffer)) => self.store.read(io.offset, &mut buffer.as_mut_slice()[range]),
            (IoKind::Write, Some(buffer)) => self.store.write(io.offset, &buffer.as_slice()[range]),
            (IoKind::WriteZeroes | IoKind::Deallocate, _) => self.store.zero(io.offset, io.len),
            (IoKind::Flush, _) => io.len,
            (IoKind::Read | IoKind::Write, None) => 0,
        };
        done.push(Done { tag: io.tag, result: Ok(moved), buffer: io.buffer });
    }

    fn poll(&mut self, _now_ns: u64, _done: &mut Vec<Done>) {}
}

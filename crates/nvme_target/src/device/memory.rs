//! Memory as a device, taken chunk by chunk where it is written. Shared by all reactors: a lock per chunk.
//!
//! The device allocates tables of chunks on demand too: it takes memory for the written data only, whatever its
//! capacity. Memory that the machine does not have is an error of the write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::{Channel, Device, Done, Error, Io, IoKind, Local};

/// Bytes of a chunk, which is locked, taken and given back as a whole.
const CHUNK: u64 = 256 << 10;
/// Chunks of one table: 1 GiB.
const TABLE_CHUNKS: u64 = 4096;
const TABLE: u64 = CHUNK * TABLE_CHUNKS;
/// After this number of new chunks (64 MiB) the device asks the machine for its free memory.
const CHUNKS_PER_LOOK: u64 = 256;
/// Memory that a device leaves to the machine.
const RESERVE: u64 = 128 << 20;

/// A chunk never written is `None`, and zeros.
type Chunk = RwLock<Option<Box<[u8]>>>;
/// A table is `None` where none of its chunks was ever written.
type Tables = Vec<Option<Box<[Chunk]>>>;

pub(super) struct Memory {
    block_bytes: u32,
    store: Arc<Store>,
}

struct Store {
    bytes: AtomicU64,
    tables: RwLock<Tables>,
    /// Chunks that have been taken.
    chunks: AtomicU64,
    /// Chunks that may be taken before the machine is asked again.
    allowed: AtomicU64,
}

impl Memory {
    pub fn new(block_bytes: u32, bytes: u64) -> Memory {
        let (tables, chunks, allowed) = Default::default();
        Memory { block_bytes, store: Arc::new(Store { bytes: bytes.into(), tables, chunks, allowed }) }
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
        let bytes = bytes.ok_or_else(|| Error::invalid("a memory device needs a size: give one"))?;
        let before = self.store.bytes.swap(bytes, Ordering::Relaxed);
        if bytes < before {
            // The device discards data beyond the new end: if the device grows again, that range reads as zeros.
            self.store.zero_within(before, bytes, before - bytes);
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.store.chunks.load(Ordering::Relaxed) * CHUNK)
    }
}

impl Store {
    fn tables(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of a range that lies within a device of `bytes`.
    fn within(bytes: u64, offset: u64, len: u64) -> u64 {
        len.min(bytes.saturating_sub(offset))
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> u64 {
        let len = Store::within(self.bytes.load(Ordering::Relaxed), offset, to.len() as u64);
        let tables = self.tables();
        for (chunk, within, at, part) in pieces(offset, len, CHUNK) {
            let to = &mut to[at as usize..][..part as usize];
            let chunk = find(&tables, chunk).map(|chunk| chunk.read().unwrap_or_else(PoisonError::into_inner));
            match chunk.as_ref().and_then(|chunk| chunk.as_ref()) {
                Some(bytes) => to.copy_from_slice(&bytes[within as usize..][..part as usize]),
                None => to.fill(0),
            }
        }
        len
    }

    /// Bytes written; fewer than asked where the device ends, or where there is no more memory.
    ///
    /// # Errors
    /// ENOSPC: no memory for the first of them.
    fn write(&self, offset: u64, from: &[u8]) -> Result<u64, i32> {
        let len = Store::within(self.bytes.load(Ordering::Relaxed), offset, from.len() as u64);
        for (chunk, within, at, part) in pieces(offset, len, CHUNK) {
            let from = &from[at as usize..][..part as usize];
            if self.write_chunk(chunk, within as usize, from).is_none() {
                return if at > 0 { Ok(at) } else { Err(libc::ENOSPC) };
            }
        }
        Ok(len)
    }

    /// `None` when there is no memory for the chunk.
    fn write_chunk(&self, index: u64, within: usize, from: &[u8]) -> Option<()> {
        let mut tables = self.tables();
        if find(&tables, index).is_none() {
            drop(tables);
            self.add_table(index / TABLE_CHUNKS)?;
            tables = self.tables();
        }
        let mut chunk = find(&tables, index)?.write().unwrap_or_else(PoisonError::into_inner);
        if chunk.is_none() {
            *chunk = Some(self.new_chunk()?);
        }
        chunk.as_mut()?[within..within + from.len()].copy_from_slice(from);
        Some(())
    }

    /// Makes the table if it is not there; `None` without memory.
    fn add_table(&self, index: u64) -> Option<()> {
        let index = usize::try_from(index).ok()?;
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        if index >= tables.len() {
            let more = index + 1 - tables.len();
            tables.try_reserve(more).ok()?;
            tables.resize_with(index + 1, || None);
        }
        if tables[index].is_none() {
            let mut table: Vec<Chunk> = Vec::new();
            table.try_reserve_exact(TABLE_CHUNKS as usize).ok()?;
            table.resize_with(TABLE_CHUNKS as usize, Chunk::default);
            tables[index] = Some(table.into_boxed_slice());
        }
        Some(())
    }

    fn new_chunk(&self) -> Option<Box<[u8]>> {
        let take = |allowed: u64| allowed.checked_sub(1);
        if self.allowed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            // The kernel would end a process instead of refusing memory: look before that.
            if sys::memory::available_bytes().is_some_and(|left| left < RESERVE + CHUNKS_PER_LOOK * CHUNK) {
                return None;
            }
            self.allowed.store(CHUNKS_PER_LOOK - 1, Ordering::Relaxed);
        }
        let chunk = sys::memory::try_zeroed(CHUNK as usize)?;
        self.chunks.fetch_add(1, Ordering::Relaxed);
        Some(chunk)
    }

    fn zero(&self, offset: u64, len: u64) -> u64 {
        self.zero_within(self.bytes.load(Ordering::Relaxed), offset, len)
    }

    fn zero_within(&self, bytes: u64, offset: u64, len: u64) -> u64 {
        let len = Store::within(bytes, offset, len);
        let tables = self.tables();
        // Whole tables that do not exist are passed over: a range may be terabytes.
        for (table, begin, at, part) in pieces(offset, len, TABLE) {
            if usize::try_from(table).ok().and_then(|table| tables.get(table)).is_none_or(Option::is_none) {
                continue;
            }
            debug_assert_eq!(table * TABLE + begin, offset + at);
            for (chunk, within, _, part) in pieces(offset + at, part, CHUNK) {
                let Some(chunk) = find(&tables, chunk) else { continue };
                let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
                if part == CHUNK {
                    self.chunks.fetch_sub(u64::from(chunk.take().is_some()), Ordering::Relaxed);
                } else if let Some(bytes) = &mut *chunk {
                    bytes[within as usize..][..part as usize].fill(0);
                }
            }
        }
        len
    }
}

/// The chunk of that number, if its table exists.
fn find(tables: &Tables, chunk: u64) -> Option<&Chunk> {
    let table = tables.get(usize::try_from(chunk / TABLE_CHUNKS).ok()?)?.as_ref()?;
    table.get((chunk % TABLE_CHUNKS) as usize)
}

/// A range cut at multiples of `unit`: the number of each unit, and the piece's place in the unit, its place in the
/// range and length.
fn pieces(offset: u64, len: u64, unit: u64) -> impl Iterator<Item = (u64, u64, u64, u64)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= len {
            return None;
        }
        let within = (offset + at) % unit;
        let part = (unit - within).min(len - at);
        let piece = ((offset + at) / unit, within, at, part);
        at += part;
        Some(piece)
    })
}

struct MemoryChannel {
    store: Arc<Store>,
}

impl Channel for MemoryChannel {
    fn submit(&mut self, _now_ns: u64, mut io: Io, done: &mut Vec<Done>) {
        let range = io.skip as usize..io.skip as usize + io.len as usize;
        let result = match (io.kind, &mut io.buffer) {
            (IoKind::Read, Some(buffer)) => Ok(self.store.read(io.offset, &mut buffer.as_mut_slice()[range])),
            (IoKind::Write, Some(buffer)) => self.store.write(io.offset, &buffer.as_slice()[range]),
            (IoKind::WriteZeroes | IoKind::Deallocate, _) => Ok(self.store.zero(io.offset, io.len)),
            (IoKind::Flush, _) => Ok(io.len),
            (IoKind::Read | IoKind::Write, None) => Ok(0),
        };
        done.push(Done { tag: io.tag, result, buffer: io.buffer });
    }

    fn poll(&mut self, _now_ns: u64, _done: &mut Vec<Done>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables for all of this capacity would alone take gigabytes.
    #[test]
    fn capacity_costs_nothing_before_it_is_written() {
        let memory = Memory::new(4096, 1 << 60);
        let end = memory.bytes();
        assert_eq!(memory.store.zero(0, end), end);
        assert!(memory.store.tables().is_empty());
        assert_eq!(memory.store.write(3 * TABLE - 4096, &[7; 8192]), Ok(8192));
        assert_eq!(memory.store.tables().iter().flatten().count(), 2);
        assert_eq!(memory.memory_bytes(), end - 2 * CHUNK);
        let mut read = [1; 16_384];
        assert_eq!(memory.store.read(3 * TABLE - 8192, &mut read), 16_384);
        assert!(read[..4096] == [0; 4096] && read[4096..12_288] == [7; 8192] && read[12_288..] == [0; 4096]);
        assert_eq!(memory.store.read(end - 4096, &mut read), 4096, "as far as the device goes");
        memory.resize(Some(2 * TABLE)).unwrap();
        assert_eq!(memory.memory_bytes(), 2 * TABLE, "what lay beyond the end is given back");
        memory.resize(Some(end)).unwrap();
        assert_eq!(memory.store.read(3 * TABLE - 8192, &mut read), 16_384);
        assert_eq!(read, [0; 16_384], "and reads as zeros");
    }
}

//! Data buffers of one reactor: page-aligned, in classes of powers of two, reused, and never more bytes than the
//! budget.

use std::io;
use std::rc::Rc;

use sys::buffer::{Buffer, Memory};

const SMALLEST: usize = 4096;
/// The number of classes of buffers: 4 KiB to 8 MiB.
const CLASSES: usize = 12;
/// Bytes of buffers kept for reuse where no budget bounds them.
const KEPT_UNBUDGETED: u64 = 16 << 20;
/// Bytes of buffers kept for reuse where no budget bounds them and a card has them registered: a new registration costs
/// as much as many reads.
const KEPT_REGISTERED: u64 = 256 << 20;
/// Buffers from this size on are huge pages where a card registers them, if the system has some free: a card's table of
/// pages is smaller then.
const HUGE: usize = 2 << 20;

fn class_of(len: usize) -> usize {
    len.next_power_of_two().max(SMALLEST).trailing_zeros() as usize - SMALLEST.trailing_zeros() as usize
}

/// The bytes that a buffer for `len` bytes really takes: the next power of two, at least 4 KiB. A pacer counts these
/// bytes, so that its bytes in flight are bytes of memory.
pub fn charged_bytes(len: u32) -> u32 {
    if len == 0 { 0 } else { len.next_power_of_two().max(SMALLEST as u32) }
}

/// Somebody who knows buffers of a pool by their memory, such as a card that has it registered.
pub trait Watcher {
    /// The memory of the buffer goes back to the system after this call.
    fn leaves(&self, buffer: &Buffer);
}

/// Buffers in use and kept. The pacer bounds those in use; the pool makes room by giving kept ones back to the system.
pub struct BufferPool {
    kept: [Vec<Buffer>; CLASSES],
    kept_bytes: u64,
    used_bytes: u64,
    peak_bytes: u64,
    budget_bytes: u64,
    watchers: Vec<Rc<dyn Watcher>>,
}

impl BufferPool {
    /// An empty pool; `budget_bytes` bounds used and kept buffers together.
    pub fn new(budget_bytes: Option<u64>) -> BufferPool {
        BufferPool {
            kept: Default::default(),
            kept_bytes: 0,
            used_bytes: 0,
            peak_bytes: 0,
            budget_bytes: budget_bytes.unwrap_or(u64::MAX),
            watchers: Vec::new(),
        }
    }

    /// An empty pool with another budget and the same watchers. Nothing of this pool may be in use.
    pub fn replaced(&mut self, budget_bytes: Option<u64>) -> BufferPool {
        self.trim_all();
        BufferPool { watchers: std::mem::take(&mut self.watchers), ..BufferPool::new(budget_bytes) }
    }

    /// Has the watcher hear of each buffer that goes back to the system.
    pub fn watch(&mut self, watcher: Rc<dyn Watcher>) {
        self.watchers.push(watcher);
    }

    /// Ends what [`BufferPool::watch`] has begun.
    pub fn unwatch(&mut self, watcher: &Rc<dyn Watcher>) {
        self.watchers.retain(|other| !Rc::ptr_eq(other, watcher));
    }

    /// A buffer of at least `len` bytes with anything in it.
    ///
    /// # Errors
    /// ENOMEM from the system, or when the budget is used up.
    pub fn take(&mut self, len: usize) -> io::Result<Buffer> {
        let class = class_of(len);
        let bytes = (SMALLEST << class) as u64;
        if class >= CLASSES {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let buffer = match self.kept[class].pop() {
            Some(buffer) => {
                self.kept_bytes -= bytes;
                buffer
            }
            None => {
                self.make_room(bytes)?;
                self.allocated(bytes as usize)?
            }
        };
        self.used_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes + self.kept_bytes);
        Ok(buffer)
    }

    /// Takes a buffer of this pool back.
    pub fn give(&mut self, buffer: Buffer) {
        let bytes = buffer.len() as u64;
        self.used_bytes -= bytes;
        // Used and kept were within the budget before: they still are.
        let most = if self.watchers.is_empty() { KEPT_UNBUDGETED } else { KEPT_REGISTERED };
        if self.budget_bytes != u64::MAX || self.kept_bytes + bytes <= most {
            self.kept_bytes += bytes;
            self.kept[class_of(buffer.len())].push(buffer);
        } else {
            self.release(buffer);
        }
    }

    /// Gives everything that is kept back to the system: after a while without I/O. Registered buffers stay.
    pub fn trim(&mut self) {
        if self.watchers.is_empty() {
            self.trim_all();
        }
    }

    fn trim_all(&mut self) {
        for class in 0..CLASSES {
            for buffer in std::mem::take(&mut self.kept[class]) {
                self.release(buffer);
            }
        }
        self.kept_bytes = 0;
    }

    fn allocated(&self, bytes: usize) -> io::Result<Buffer> {
        if bytes >= HUGE
            && !self.watchers.is_empty()
            && let Ok(buffer) = Buffer::zeroed(bytes, &Memory::Huge)
        {
            return Ok(buffer);
        }
        Buffer::zeroed(bytes, &Memory::Anonymous)
    }

    /// Gives a buffer back to the system.
    fn release(&self, buffer: Buffer) {
        self.watchers.iter().for_each(|watcher| watcher.leaves(&buffer));
    }

    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        for class in (0..CLASSES).rev() {
            while self.used_bytes + self.kept_bytes + bytes > self.budget_bytes {
                let Some(buffer) = self.kept[class].pop() else { break };
                self.release(buffer);
                self.kept_bytes -= (SMALLEST << class) as u64;
            }
        }
        if self.used_bytes.saturating_add(bytes) > self.budget_bytes {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        Ok(())
    }

    /// Bytes of buffers in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Bytes of buffers in use and kept.
    pub fn held_bytes(&self) -> u64 {
        self.used_bytes + self.kept_bytes
    }

    /// The most bytes of buffers that were ever in use and kept.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_whatever_the_sizes() {
        let mut pool = BufferPool::new(Some(1 << 20));
        let mut used = Vec::new();
        let mut refused = 0;
        let mut seed = 7u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if seed >> 63 == 0 || used.is_empty() {
                match pool.take(1 << (seed >> 40 & 15).clamp(3, 19)) {
                    Ok(buffer) => used.push(buffer),
                    Err(_) => refused += 1,
                }
            } else {
                let index = (seed >> 33) as usize % used.len();
                pool.give(used.swap_remove(index));
            }
            let in_use: usize = used.iter().map(Buffer::len).sum();
            assert_eq!(pool.used_bytes(), in_use as u64);
            assert!(pool.held_bytes() <= 1 << 20);
        }
        assert!(refused > 0 && pool.peak_bytes() <= 1 << 20);
        used.into_iter().for_each(|buffer| pool.give(buffer));
        pool.trim();
        assert_eq!(pool.held_bytes(), 0);
    }

    #[test]
    fn watchers_hear_of_each_buffer_that_goes() {
        #[derive(Default)]
        struct Known(std::cell::RefCell<std::collections::HashSet<usize>>);
        impl Watcher for Known {
            fn leaves(&self, buffer: &Buffer) {
                assert!(self.0.borrow_mut().remove(&buffer.as_mut_ptr().addr()), "a buffer goes once");
            }
        }
        let known = Rc::new(Known::default());
        let mut pool = BufferPool::new(Some(1 << 20));
        pool.watch(Rc::clone(&known) as Rc<dyn Watcher>);
        let take = |pool: &mut BufferPool, len| {
            let buffer = pool.take(len).unwrap();
            known.0.borrow_mut().insert(buffer.as_mut_ptr().addr());
            buffer
        };
        let small: Vec<_> = (0..64).map(|_| take(&mut pool, 4096)).collect();
        small.into_iter().for_each(|buffer| pool.give(buffer));
        pool.trim(); // they stay
        assert_eq!(known.0.borrow().len(), 64);
        let large = take(&mut pool, 1 << 20); // all of the others must make room
        assert_eq!(known.0.borrow().len(), 1);
        pool.give(large);
        let mut pool = pool.replaced(Some(1 << 20));
        assert!(known.0.borrow().is_empty());
        let watcher: Rc<dyn Watcher> = known.clone();
        pool.unwatch(&watcher);
        let buffer = pool.take(4096).unwrap();
        pool.give(buffer);
        pool.trim();
        assert_eq!(pool.held_bytes(), 0);
    }

    #[test]
    fn a_buffer_is_as_large_as_what_is_charged_for_it() {
        let mut pool = BufferPool::new(None);
        for len in [1, 512, 4096, 4097, 65_536, 131_072, 131_073, 1 << 20, 8 << 20] {
            assert_eq!(pool.take(len).unwrap().len(), charged_bytes(len as u32) as usize);
        }
        assert_eq!(charged_bytes(0), 0);
    }
}

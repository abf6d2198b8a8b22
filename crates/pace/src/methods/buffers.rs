//! A fixed number of buffers, as a shared pool with a cache per core (SPDK's `num_shared_buffers`, `buf_cache_size`).
//!
//! A core first takes from its cache, then from the pool; it gives back to its cache while that is not full, then
//! to the pool. An op that finds no buffer waits in its core's queue, and is looked at again only when that
//! core gives a buffer back: so a core that holds no buffer and finds the pool empty can starve
//! (with caches of 0 it can hang). That is the method's known weakness, kept here because it is what is compared with.

use super::Core;
use crate::slab::{List, State};
use crate::{Admission, Admit, Limits, Op, OpId, Purge, Released, Stats};

struct CoreQueue {
    cached: u32,
    /// Buffers that this core's ops hold. When 0, nothing of its own will wake it.
    held_buffers: u32,
    waiting: List,
    /// True after a completion on this core: only then does the core look at its queue.
    kicked: bool,
}

pub(crate) struct BufferPool {
    core: Core,
    unit_bytes: u32,
    pool: u32,
    cache_per_core: u32,
    cores: Box<[CoreQueue]>,
    next_core: usize,
}

impl BufferPool {
    pub fn new(limits: Limits, count: u32, unit_bytes: u32, cache_per_core: u32, cores: u32) -> BufferPool {
        // Caches are filled from the pool at start, each as far as its share allows.
        let cached = cache_per_core.min(count / cores);
        BufferPool {
            core: Core::new(limits, Some(u64::from(count) * u64::from(unit_bytes))),
            unit_bytes,
            pool: count - cached * cores,
            cache_per_core,
            cores: (0..cores)
                .map(|_| CoreQueue { cached, held_buffers: 0, waiting: List::EMPTY, kicked: false })
                .collect(),
            next_core: 0,
        }
    }

    fn core_of(&self, op: &Op) -> usize {
        op.queue as usize % self.cores.len()
    }

    fn buffers_for(&self, op: &Op) -> u32 {
        op.bytes.div_ceil(self.unit_bytes).max(1)
    }

    fn take(&mut self, core: usize, buffers: u32) -> bool {
        let queue = &mut self.cores[core];
        if queue.cached + self.pool < buffers {
            return false;
        }
        let from_cache = queue.cached.min(buffers);
        queue.cached -= from_cache;
        self.pool -= buffers - from_cache;
        queue.held_buffers += buffers;
        true
    }

    fn give(&mut self, core: usize, buffers: u32) {
        let queue = &mut self.cores[core];
        queue.held_buffers -= buffers;
        let to_cache = buffers.min(self.cache_per_core - queue.cached.min(self.cache_per_core));
        queue.cached += to_cache;
        self.pool += buffers - to_cache;
        queue.kicked = true;
    }
}

impl Admission for BufferPool {
    fn admit(&mut self, now_ns: u64, op: Op) -> Admit {
        if let Some(answer) = self.core.screen(&op) {
            return answer;
        }
        let (core, buffers) = (self.core_of(&op), self.buffers_for(&op));
        if self.cores[core].waiting.is_empty() && self.take(core, buffers) {
            let answer = self.core.go(now_ns, op);
            if !matches!(answer, Admit::Go(_)) {
                self.give(core, buffers);
            }
            return answer;
        }
        match self.core.hold(now_ns, op) {
            Ok(index) => {
                self.cores[core].waiting.push(&mut self.core.slab, index);
                Admit::Held(self.core.slab.id(index))
            }
            Err(refused) => refused,
        }
    }

    fn complete(&mut self, now_ns: u64, id: OpId) -> bool {
        let Some((op, _)) = self.core.finish(now_ns, id) else { return false };
        self.give(self.core_of(&op), self.buffers_for(&op));
        true
    }

    fn poll(&mut self, now_ns: u64) -> Option<Released> {
        for _ in 0..self.cores.len() {
            let core = self.next_core;
            // A core without a buffer gets no completion of its own; without this look it would wait forever.
            let starving = self.cores[core].held_buffers == 0;
            if !self.cores[core].waiting.is_empty() && (self.cores[core].kicked || starving) {
                let index = self.cores[core].waiting.head;
                let buffers = self.buffers_for(&self.core.slab[index].op);
                if self.take(core, buffers) {
                    self.cores[core].waiting.unlink(&mut self.core.slab, index);
                    return Some(self.core.release(now_ns, index));
                }
            }
            self.cores[core].kicked = false;
            self.next_core = (core + 1) % self.cores.len();
        }
        None
    }

    fn wakeup_ns(&self) -> Option<u64> {
        None
    }

    fn abort(&mut self, _now_ns: u64, id: OpId) -> Option<u64> {
        let index = self.core.slab.find(id, State::Held)?;
        let core = self.core_of(&self.core.slab[index].op);
        self.cores[core].waiting.unlink(&mut self.core.slab, index);
        self.cores[core].kicked = true;
        Some(self.core.forget(index))
    }

    fn purge(&mut self, now_ns: u64, which: Purge) -> Option<u64> {
        let index = self.core.slab.find_held(which)?;
        self.abort(now_ns, self.core.slab.id(index))
    }

    fn stats(&self) -> &Stats {
        &self.core.stats
    }

    fn window_bytes(&self) -> u64 {
        self.core.budget
    }
}

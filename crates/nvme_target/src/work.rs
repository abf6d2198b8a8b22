//! The work of all reactors on each device, for the SMART log page: a controller has its admin queue at one reactor,
//! and its I/O queues at all of them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::stats::DeviceStats;

/// Commands and bytes that a reactor has carried out on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub errors: u64,
}

impl Work {
    pub fn of(stats: &DeviceStats) -> Work {
        let DeviceStats { reads, writes, read_bytes, write_bytes, errors, .. } = *stats;
        Work { reads, writes, read_bytes, write_bytes, errors }
    }

    fn add(&mut self, other: Work) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.errors += other.errors;
    }
}

/// The work of each reactor by the uid of the device, as the reactor published it last.
pub(super) struct Published(Vec<Mutex<HashMap<u64, Work>>>);

impl Published {
    pub fn new(reactors: usize) -> Published {
        Published((0..reactors).map(|_| Mutex::default()).collect())
    }

    fn of(&self, reactor: usize) -> MutexGuard<'_, HashMap<u64, Work>> {
        self.0[reactor].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the work of a reactor.
    pub fn publish(&self, reactor: u32, work: impl Iterator<Item = (u64, Work)>) {
        let mut published = self.of(reactor as usize);
        published.clear();
        published.extend(work);
    }

    /// The work of all reactors on a device.
    pub fn on(&self, device: u64) -> Work {
        let mut sum = Work::default();
        (0..self.0.len()).filter_map(|reactor| self.of(reactor).get(&device).copied()).for_each(|work| sum.add(work));
        sum
    }
}

//! The counters of a context, and the backend that carries its reads and writes out.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The part of a context that carries its reads and writes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Backend {
    /// No request has been submitted, so the library has not chosen a backend.
    Unused = 0,
    /// The backend is io_uring.
    Ring = 1,
    /// The backend is threads, because io_uring is not available: [`Stats::ring_error`] says why.
    Pool = 2,
}

/// Counters of a context since it was made. The layout is that of `struct guasi_stats`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stats {
    /// The part that carries reads and writes out.
    pub backend: Backend,
    /// The errno of io_uring_setup(2) where threads are the backend for want of a ring, else 0.
    pub ring_error: i32,
    /// The signal that breaks calls off, once its handler is installed, else 0.
    pub signal: i32,
    /// Worker threads of the pool that are alive now.
    pub threads: u32,
    /// Worker threads that are alive and wait for work now.
    pub threads_idle: u32,
    /// The most workers alive at a time.
    pub threads_peak: u32,
    /// Requests submitted since the context was created.
    pub submitted: u64,
    /// Requests that ended, cancelled ones among them.
    pub finished: u64,
    /// Requests that were cancelled before they began.
    pub canceled: u64,
    /// Requests that were given to the ring.
    pub ring_requests: u64,
    /// Requests that were given to the pool.
    pub pool_requests: u64,
    /// Calls of io_uring_enter(2).
    pub ring_enters: u64,
    /// Requests that wait for a worker or for a place in the ring.
    pub queued: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub finished: AtomicU64,
    pub canceled: AtomicU64,
    pub ring_requests: AtomicU64,
    pub pool_requests: AtomicU64,
    pub ring_enters: AtomicU64,
}

impl Counters {
    pub fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Relaxed);
    }
}

//! The fourth floor: requests that are in flight after the call that has submitted them. libaio, POSIX aio and
//! io_uring, each with the requests that the library has changed or taken over.

pub mod async_io;
pub mod changed_iocbs;
pub mod context;
pub mod inflight;
pub mod libaio;
pub mod posix;
pub mod prepare;
pub mod raw_ring;
pub mod registered;
pub mod rings;
pub mod tagged;
pub mod uring;

/// Notes the requests that the kernel has completed and whose completions nobody has fetched. The thread that waits
/// for lanes to be drained may be the one that would fetch them.
pub fn note_completed() {
    context::look_at_all_rings();
    posix::look_at_all();
    rings::look_at_all();
}

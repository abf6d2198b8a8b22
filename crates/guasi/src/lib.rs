//! Asynchronous calls: io_uring carries out the calls that the kernel does asynchronously, a thread pool the others.
//!
//! ```text
//!                        ┌─► ring queue ─► driver (io_uring) ─┐
//! submit ─► Request ─────┤                                    ├─► results ─► fetch
//!                        └─► pool queue ─► workers ───────────┘
//! ```
//!
//! [`Guasi`] is the Rust face: an operation owns its buffer until it completes. The C face is the interface of
//! GUASI 0.25 (guasi(3)), behind the feature `c-abi`.
//!
//! Who drives the ring is the one choice that a user makes ([`Drive`]): a thread of the library, so that any
//! thread may submit and fetch, or the only thread that uses the context, which then pays for no hand-over.

mod api;
mod call;
#[cfg(feature = "c-abi")]
mod capi;
mod core;
mod driver;
mod fork;
mod handover;
mod interrupt;
mod list;
mod phase;
mod pool;
mod request;
mod results;
mod sizing;
mod stats;
mod sync;
mod watch;
mod work;

pub use api::{Completion, Config, Drive, Guasi, IoBuf};
pub use request::Status;
pub use stats::{Backend, Stats};

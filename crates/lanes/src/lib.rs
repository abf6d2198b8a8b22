//! Pools of lanes: paths to one volume, the proof that two paths are one file, choosing a lane, and its health.
//!
//! ```text
//! pool (configuration) ─► map (path ─► lane) ─► identity (one file?) ─► traffic (choose ─ health ─ window)
//! ```
//!
//! Strangers' programs run `map`, `identity` and `traffic` on the path of every op: these modules allocate nothing,
//! take no lock and do not panic. The caller passes the time in, in nanoseconds of any clock that only goes forward.
#![forbid(unsafe_code)]

pub mod advice;
pub mod doctor;
pub mod environment;
pub mod health;
pub mod identity;
pub mod map;
pub mod nfs;
pub mod pool;
pub mod traffic;

pub use health::{Health, Outcome, Patience};
pub use identity::{Difference, Proof, same_file};
pub use live::State;
pub use map::{Map, PathBuffer, Place};
pub use pool::{Error, LaneConfig, Policy, Pool, Pools};
pub use traffic::{Lanes, Load, Refusal, Ticket, Traffic};

/// The most lanes that a pool can have.
pub const LANES_MAX: usize = 32;

//! Runs on many hosts: each rank a worker, one aligned start, results merged by reduction.
//!
//! ```text
//! program ─► team (one handle a rank) ─► courier thread ─► member (pure: decides which message goes to whom, when) ─►
//! link: MPI
//! ```
//!
//! [`member`] decides, [`link`] carries, [`clock`] compares clocks, [`part`] is what ranks hand over and how it is
//! merged. None of them knows of MPI, and all are tested without it: [`memory`] is a network of threads that loses
//! ranks on command. The feature `mpi` adds the one link that is used for real.
#![deny(unsafe_code)]

pub mod clock;
pub mod launch;
pub mod link;
pub mod member;
pub mod memory;
mod message;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod part;
pub mod team;
pub mod tree;
pub mod wire;

pub use message::{Moment, Trouble};
pub use team::{Conclusion, Gate, Stopped, Team};

/// True if this build can run on many hosts.
pub const HAS_MPI: bool = cfg!(feature = "mpi");

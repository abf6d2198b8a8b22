//! Runs on many hosts: each rank a worker, one aligned start, results merged by reduction.
//!
//! ```text
//! program ─► team (one handle a rank) ─► courier thread ─► member (pure: decides which message goes to whom, when) ─►
//! link: MPI, or pipes to an agent behind ssh
//! ```
//!
//! The module `member` decides, `link` carries, `clock` compares clocks, `part` is what ranks hand over and how it is
//! merged. None of them knows of MPI or ssh. The tests of `member` run without both, on a simulated network that delays
//! messages and loses ranks on command. The feature `mpi` adds the link of mpirun and srun; `ssh` starts ranks itself.
//!
//! Only [`launch`] and [`ssh`] are public modules, because their functions need their names: `launch::grace`.
#![deny(unsafe_code)]

mod clock;
pub mod launch;
mod link;
mod member;
mod message;
#[cfg(feature = "mpi")]
mod mpi;
mod part;
pub mod ssh;
mod team;
mod tree;
mod wire;

pub use clock::Offset;
pub use link::Link;
pub use member::LAST_STATEMENT;
pub use message::{Moment, Trouble};
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use part::{Part, from_bytes, to_bytes};
pub use team::{Conclusion, Flags, Gate, Identity, Stopped, Team, machine_number};
pub use tree::Tree;
pub use wire::Wire;

/// True if this build can run on many hosts.
pub const HAS_MPI: bool = cfg!(feature = "mpi");

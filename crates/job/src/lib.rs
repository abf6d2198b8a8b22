//! fio job files and flags into a validated job, and the job's seeded stream of ops.
//!
//! ```text
//! job files, command line ─► file, args ─► options (one table) ─► Job ─► workload: the op stream
//! ```
#![forbid(unsafe_code)]

mod defaults;
pub mod iolog;
pub mod job;
pub mod workload;


pub use job::Job;

//! fio job files and flags into a validated job, and the job's seeded stream of ops.
//!
//! ```text
//! command line ─► args ─┐
//! job files ─► file ────┴► source: settings with places ─► options (one table) ─► build ─► Plan ─► workload: op stream
//!                                                                               lint ─► warnings
//! ```
//!
//! [`parse_command_line`] and then [`Invocation::plan`] is all a program needs.
#![forbid(unsafe_code)]

pub mod args;
pub mod blktrace;
pub mod build;
mod defaults;
pub mod engines;
pub mod error;
pub mod file;
pub mod iolog;
pub mod job;
mod lint;
pub mod options;
pub mod per_host;
pub mod rank;
pub mod source;
pub mod threads;
pub mod workload;

pub use args::{Invocation, parse_command_line, parse_command_line_as_fio};
pub use error::{Error, Place};
pub use job::{Job, Plan};
pub use rank::Rank;

//! Metadata-heavy work on many small files: `plimsoll files`.
//!
//! ```text
//! Plan ─► processes ─► threads ─► gate, phase, gate, phase ... ─► FilesResult
//!                        └─ Files: numbers ─► names, sizes, contents ─► FileSystem (posix, gfapi)
//! ```

mod board;
pub mod content;
mod files;
pub mod fs;
pub mod gluster;
pub mod gun;
mod listing;
pub mod operation;
pub mod perf_tool;
pub mod plan;
pub mod posix;
pub mod run;
pub mod sizes;
mod tally;
pub mod target;
mod times;
pub mod tree;
mod worker;

pub use operation::Operation;
pub use plan::{Phase, Plan};
pub use run::{Control, Moment, run};
pub use sizes::Sizes;
pub use target::{Target, Volume};

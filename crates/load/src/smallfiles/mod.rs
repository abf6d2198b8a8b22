//! Metadata-heavy work on many small files: `plimsoll files`.
//!
//! ```text
//! Plan ─► processes ─► threads ─► gate, phase, gate, phase ... ─► FilesResult
//!                        └─ Files: numbers ─► names, sizes, contents ─► FileSystem (posix, gfapi)
//! ```

mod content;
mod failure;
mod files;
mod fs;
mod gates;
pub(crate) mod gluster;
mod gun;
mod limit;
mod listing;
mod operation;
pub mod perf_tool;
mod plan;
mod posix;
mod run;
mod sizes;
mod tally;
mod target;
mod times;
mod tree;
mod worker;

pub use fs::{EntryKind, FileSystem, Handle, Space, Stat};
pub use operation::{OPERATIONS, Operation};
pub use plan::{Abroad, Among, Phase, Plan};
pub use posix::Posix;
pub use run::{Control, Moment, run};
pub use sizes::Sizes;
pub use target::{Target, Volume};
pub use tree::{Branches, Layout};

//! The reasons why a program's I/O is spread, or is not: the facts about the lanes of a pool and about the program.
//!
//! ```text
//! survey (asks the kernel, one thread a lane) ─► facts ─► findings (pure)      rate (reads, alone and together)
//! ```

pub mod connections;
pub mod filters;
pub mod findings;
pub mod mounts;
pub mod program;
pub mod rate;
pub mod survey;

pub use findings::{Finding, examine};
pub use survey::{LaneFacts, Survey, survey};

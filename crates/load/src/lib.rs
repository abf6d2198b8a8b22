//! Engines, and the loop that drives them.
//!
//! ```text
//! Plan ─► stages (stonewall) ─► clones: layout ─► gate ─► generator loop ─► JobResult
//! ```

pub mod content;
pub mod compare;
pub mod engine;
mod error;
pub mod files;
pub mod machine;
pub mod run;
mod runner;
pub mod smallfiles;
pub mod verify;
pub mod sweep;

pub use error::{Error, ErrorKind};
pub use run::{Control, Phase, Progress, run};

//! Engines, and the loop that drives them.
//!
//! ```text
//! Plan ─► stages (stonewall) ─► clones: layout ─► gate ─► generator loop ─► JobResult
//! ```

pub mod content;
pub mod engine;
pub mod files;
mod error;
pub mod run;

pub use error::{Error, ErrorKind};
pub use run::{Control, Phase, Progress, run};

//! Engines, and the loop that drives them.
//!
//! ```text
//! Plan ─► stages (stonewall) ─► clones: layout ─► gate ─► generator loop ─► JobResult
//! ```

pub mod compare;
pub mod content;
pub mod engine;
mod error;
pub mod files;
pub mod fsperf;
pub mod machine;
pub mod peers;
pub mod run;
mod runner;
pub mod smallfiles;
pub mod sweep;
pub mod verify;

pub use error::{Error, ErrorKind};
pub use run::{Control, Phase, Progress, run};
pub use runner::inflate_log;

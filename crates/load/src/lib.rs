//! Engines, and the loop that drives them.
//!
//! ```text
//! Plan ─► stages (stonewall) ─► clones: layout ─► gate ─► generator loop ─► JobResult
//! ```
//!
//! A public module is a namespace of one kind of work, with a `run` or a function named for it: `compare`, `fsperf`,
//! `smallfiles`, `sweep`. [`engine`] and [`verify`] are what tests and benchmarks drive without the loop. The names of
//! the loop itself stand here.

pub mod compare;
mod content;
pub mod engine;
mod error;
mod failures;
mod files;
pub mod fsperf;
mod machine;
mod peers;
mod run;
mod runner;
pub mod smallfiles;
mod storage;
pub mod sweep;
pub mod verify;

pub use content::Filler;
pub use error::{Error, ErrorKind};
pub use files::{doubts_of_space, paths_of};
pub use machine::{command, machine};
pub use peers::{Gate, Peers, Stage};
pub use run::{CloneState, Control, Phase, Progress, run};
pub use runner::{draw_seeds, inflate_log};

//! Units, histograms, statistics, the result schema, the load line and the verdicts.
//!
//! The leaf of the workspace: everything that is counted anywhere is counted with these types.
#![forbid(unsafe_code)]

pub mod direction;
pub mod effect;
pub mod figures;
pub mod files;
pub mod histogram;
pub mod hosts;
pub mod load_line;
pub mod merge;
pub mod over_time;
pub mod point;
pub mod refine;
pub mod schema;
pub mod stats;
mod unimodal;
pub mod units;
pub mod verdict;
mod visits;

pub use direction::{Direction, PerDirection};
pub use histogram::Histogram;

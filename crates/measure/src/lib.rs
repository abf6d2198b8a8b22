//! Units, histograms, statistics, the result schema, the load line and the verdicts.
//!
//! The leaf of the workspace: everything that is counted anywhere is counted with these types.
//!
//! A public module is a namespace, whose functions are called with its name: `units::parse_bytes`, `figures::bytes`,
//! `verdict::for_job`, `load_line::find`, `time::utc`. [`schema`] holds the types of a result document. All other names
//! stand here.
#![forbid(unsafe_code)]

pub mod axis;
mod burst;
pub mod change;
mod concave;
mod direction;
pub mod effect;
pub mod figures;
mod files;
mod fingerprint;
mod histogram;
mod hosts;
mod in_flight;
pub mod limit;
pub mod load_line;
mod merge;
mod objective;
mod over_time;
mod point;
mod rates;
pub mod refine;
mod relative;
pub mod schema;
pub mod slices;
pub mod stats;
pub mod steady_state;
mod storage;
pub mod time;
mod unimodal;
pub mod units;
pub mod verdict;
mod visits;

pub use direction::{Direction, PerDirection};
pub use fingerprint::fingerprint;
pub use histogram::Histogram;
pub use hosts::{cut_to_one_window, merge_jobs, merge_phases, window_of};
pub use objective::{LatencyFigure, Objective};
pub use over_time::OverTime;
pub use relative::Part;

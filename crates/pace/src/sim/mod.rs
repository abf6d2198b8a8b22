//! The simulator: initiators, links, caches and drives around the very pacer that ships.
//!
//! ```text
//! scenario (TOML) ─► jobs ─► core ─► PACER ─► drive: channel, bus ─► memory path ─► port, host link ─► job
//!                            └─ op cost        └─ delay device        └─ slower as the bytes in flight spill the cache
//! ```
//! Discrete events, one random generator, no threads: the same scenario and seed give the same result to the byte.

mod confidence;
mod discrepancy;
mod engine;
pub mod fit;
mod ids;
pub mod kinds;
pub mod learn;
mod load;
mod machine;
mod more;
mod outcome;
mod process;
pub mod published;
mod scenario;
mod sweep;
mod tables;

pub use confidence::Confidence;
pub use discrepancy::Measured;
pub use machine::{Cache, Drives, Machine, profile, profiles};
pub use outcome::{ClassOutcome, Outcome, Point, jain};
pub use scenario::{Delay, Event, Job, Order, Scenario, SizeShare};
pub use sweep::{Run, Sweep, expand, run_all};

use crate::config::Error;

/// Runs `scenario` for its warm-up and its seconds of simulated time, and returns the outcome. It tells `progress` the
/// fraction done, about a hundred times.
///
/// # Errors
/// A scenario that makes no sense: the field, why, what to do.
pub fn run(scenario: &Scenario, progress: &mut dyn FnMut(f64)) -> Result<Outcome, Error> {
    engine::Engine::new(scenario)?.run(progress)
}

/// Checks that `scenario` can be run, without running it.
///
/// # Errors
/// As [`run`].
pub fn check(scenario: &Scenario) -> Result<(), Error> {
    engine::Engine::new(scenario).map(drop)
}

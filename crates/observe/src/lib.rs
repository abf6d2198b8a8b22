//! Where the storage of a running host stands, without a load of our own.
//!
//! ```text
//! files of /proc and /sys ─► readers (text ─► counters) ─► look ─► growth (wraps, resets) ─► rates ─► views
//!                                                                                     └─► windows ─► passive
//! ```
//!
//! The readers and the estimator are pure: text and time come from the caller. [`Host`] alone opens files, and it only
//! reads them. [`trace::Tracer`] alone has a thread.
#![forbid(unsafe_code)]

mod counters;
mod host;
pub mod passive;
mod rates;
pub mod readers;
pub mod trace;
mod watcher;

pub use counters::{Counters, Flow, Growth};
pub use host::{Error, Host, Kind, Target, Wanted};
pub use rates::{FlowRates, Rates};
pub use watcher::{Observation, Watcher};

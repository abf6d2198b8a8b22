//! The control plane: SPDK's control language for this target.
//!
//! ```text
//!  Unix socket ─► stream (cut into values) ─► jsonrpc (requests, batches) ─┐
//!  configuration file ─► config (calls in order) ────────────────────────┴─► METHODS ─► State ─► Target
//! ```
//!
//! [`METHODS`] is the one table: dispatch, `rpc_get_methods`, the help of `plimsoll rpc` and docs/rpc.md are made from
//! it. [`State`] keeps the configuration as the calls that make it; save_config saves these calls, and
//! a [`StateDirectory`] has them on disk.

#![forbid(unsafe_code)]

mod audit;
pub mod client;
mod config;
mod difference;
pub mod http;
pub mod ini;
pub mod jsonrpc;
mod methods;
mod metrics;
mod pacer;
pub mod params;
mod reference;
mod reload;
mod saved;
mod server;
mod state;
pub mod stream;

pub use config::{Step, in_order as grouped_configuration, parse as parse_configuration};
pub use methods::{METHODS, Method, Run, find as find_method, unknown as unknown_method};
pub use metrics::{escape_label, text as metrics};
pub use reference::{help, markdown};
pub use saved::{StateDirectory, make_paths_absolute, parse as parse_state};
pub use server::{DEFAULT_PATH, Server};
pub use state::{Control, Ending, Settings, State};

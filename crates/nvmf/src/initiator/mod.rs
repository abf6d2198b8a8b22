//! The host's end: subsystems are found, connected to and used, at a depth that the user sets.
//!
//! ```text
//! Address ─► Controller::connect ─► admin thread: keep-alive, events, reconnecting
//!                                └► IoQueue (one a TCP connection): issue ─► send ─► receive ─► Done
//! ```
//!
//! The protocol is in [`Queue`], which knows no socket: it writes to any `Write`, reads from any `Read`, and moves data
//! between those and the memory that [`Buffers`] lends, without copying large data. The thread that drives I/O queues
//! never blocks; work that takes time (connecting, and connecting again) is done by the controller's own thread.

mod address;
mod connection;
mod controller;
mod discovery;
mod error;
mod options;
mod outgoing;
mod queue;

pub use address::{Address, AddressError};
pub use controller::{Controller, IoQueue, Namespace, Renewal};
pub use discovery::{Subsystem, discover};
pub use error::Error;
pub use options::{Options, this_host};
pub use queue::{Arrived, Broken, Buffers, Done, Queue, Transfer};

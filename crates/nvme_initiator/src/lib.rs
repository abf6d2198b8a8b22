//! The host's end: subsystems are found, connected to and used, at a depth that the user sets.
//!
//! ```text
//! Address ─► Controller::connect ─► admin thread: keep-alive, events, reconnecting
//!                                └► Link (one for each I/O queue): issue ─► send ─► receive ─► Done
//! dialer ─► link ─► tcp: a socket and its units
//!                └► rdma: a queue pair and registered memory
//! ```
//!
//! A [`Link`] is the interface of both transports: nothing above it knows which one it is. The thread that drives I/O
//! queues never blocks; work that takes time (connecting, and connecting again) is done by the controller's own thread.

#![deny(unsafe_code)]

mod address;
mod connection;
mod controller;
mod dialer;
mod discovery;
mod error;
mod link;
mod options;
mod rdma;
mod tcp;

pub use address::{Address, AddressError, Transport};
pub use controller::{Controller, Namespace, Renewal};
pub use discovery::{Subsystem, discover};
pub use error::Error;
pub use link::{Arrived, Broken, Buffers, Done, Issued, Link, Transfer};
pub use options::{Options, this_host};
pub use rdma::{Arena, RdmaHost, RdmaLink};
pub use tcp::{Queue, TcpLink};

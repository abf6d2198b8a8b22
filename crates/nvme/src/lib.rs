//! The NVMe protocol over TCP and RDMA, as both ends speak it.
//!
//! ```text
//! spec ── what NVMe and NVMe over Fabrics lay down: commands, completions, status, identify, logs, properties
//!  └─ pdu ── how they travel over TCP: handshake, capsules, data, digests
//! auth ── how hosts and controllers prove themselves, and the keys of TLS
//! wire ── the byte stream under each queue: a socket, plain or secured by TLS
//! ```
//!
//! The crate `nvme_initiator` is the host's end, `nvme_target` the controller's.

#![forbid(unsafe_code)]

#[macro_use]
mod layout;

pub mod auth;
pub mod pdu;
pub mod spec;
pub mod uuid;
mod wire;

pub use layout::Field;
pub use wire::Wire;

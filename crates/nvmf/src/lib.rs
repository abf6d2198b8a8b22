//! NVMe over TCP and RDMA: the codec of their units, a target with pacing, an initiator, and the control plane of the
//! target.
//!
//! ```text
//! spec ── what NVMe and NVMe over Fabrics lay down: commands, completions, status, identify, logs, properties
//!  └─ pdu ── how they travel over TCP: handshake, capsules, data, digests
//!      ├─ initiator ── the host's end
//!      └─ target ─ device ─ control ─ auth ── the controller's end
//! journal ── the log of the target: what hosts and administrators have brought about
//! wire ── the byte stream under each queue: a socket, plain or secured by TLS
//! ```

#![deny(unsafe_code)]

#[macro_use]
mod layout;

pub mod auth;
pub mod control;
pub mod device;
mod identity;
pub mod initiator;
pub mod journal;
pub mod pdu;
pub mod spec;
pub mod target;
mod wire;

pub use wire::Wire;

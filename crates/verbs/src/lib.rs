//! RDMA verbs and the connection manager of rdma-core, opened at run time: nothing of RDMA is needed to build, and
//! programs run without it. docs/decisions/verbs.md gives the reasons.
//!
//! ```text
//! stack                           the interface of both stacks; work, region: its vocabulary
//! rdma ─► library, abi, numbers   rdma-core: safe types over the C interface
//! double                          a fabric in memory, for tests without RDMA
//! either                          one of the two, chosen at run time
//! ```

#[allow(missing_docs, reason = "the headers document the fields, which have the same names here")]
pub mod abi;
pub mod double;
pub mod either;
mod error;
mod library;
pub mod numbers;
mod rdma;
mod region;
pub mod stack;
pub mod work;

pub use either::Either;
pub use error::Error;
pub use library::{Library, library};
pub use rdma::Rdma;
pub use region::Memory;
pub use stack::Verbs;

/// Succeeds if the libraries can be loaded and have all functions that this crate needs.
///
/// # Errors
/// The library that is missing or too old, with the message of the loader.
pub fn available() -> Result<(), Error> {
    library().map(|_| ())
}

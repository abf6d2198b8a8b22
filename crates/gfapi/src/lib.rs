//! GlusterFS volumes through libgfapi, which is opened at run time: nothing of Gluster is needed to build, and programs
//! run without it until they connect.
//!
//! ```text
//! Address ─► Volume::connect ─► path calls: stat, mkdir, ...
//!                  └─► open ─► File ─► read_at, write_at, sync, ...        (synchronous)
//!                                └─► Requests: read, write, sync, discard  (asynchronous, with depth)
//!                                            └─► fetch ─► Finished
//! ```
//!
//! A connection belongs to the process that made it: after fork(2) the library's threads are missing in the child.
//! Fork first, connect afterwards.

mod address;
mod connect;
mod error;
mod file;
mod library;
mod requests;
mod volume;

pub use address::{Address, Transport};
pub use error::Error;
pub use file::File;
pub use requests::{Buffer, Finished, Requests};
pub use volume::{Room, Volume};

/// Succeeds if libgfapi can be loaded and has all functions that this crate needs.
///
/// # Errors
/// [`Error::Library`] with the message of the loader.
pub fn available() -> Result<(), Error> {
    library::library().map(|_| ())
}

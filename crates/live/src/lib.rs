//! The counts of a running program, laid out in shared memory for `plimsoll top` to look at while it runs.
//!
//! ```text
//! program: Board::create ─► add rows ─► Counters (relaxed atomics)        a file per board
//! reader:  all() ─► Snapshot, of every program at once ─► differences     in directories::search()
//! ```
//!
//! The writing side is made for a library that is loaded into strangers' programs: after [`Board::create`] it
//! makes no system call, takes no lock, allocates nothing and cannot panic, so that it may be called from signal
//! handlers and between fork and exec. Creating a board makes raw system calls only, which no interposed `open`
//! or `syscall` gets to see, and allocates nothing either.
//!
//! The reading side trusts nothing: a board may be half written, of another version, or no board at all.

mod board;
mod counters;
pub mod directories;
mod find;
mod layout;
mod map;
mod owner;
mod shared;
mod snapshot;
mod words;

pub use board::{Board, Kept, Reason, Row};
pub use counters::{Counters, Gauge, Op, State};
pub use find::{all, in_directory, kept_in};
pub use layout::{BoardKind, RowKind, bucket_bounds, bucket_of};
pub use owner::Owner;
pub use shared::shared;
pub use snapshot::{Invalid, OpCounts, ReasonCount, RowCounts, Snapshot, together};

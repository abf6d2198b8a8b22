//! The functions that the program calls: the library's own, under the names of libc, libaio and liburing, one file per
//! subject.
//!
//! **The program's contract.** A hook has the name and the type of a function of libc, libaio or liburing, and the
//! program calls it as the manual page of that function says: the memory that a pointer leads to is valid for the use
//! that the page describes, and for as long. A hook passes the pointer on to the real function or to the kernel, on
//! another descriptor of the same file at most. Comments about safety name this contract.
//!
//! A hook calls the real function with the program's own arguments unless there is a reason not to, never panics,
//! allocates nothing, and leaves `errno` as the program expects it.
//!
//! A hook that counts a request, or holds a reference or a place in a table, cannot be left by a signal handler or by a
//! cancellation: it begins with [`crate::abi::undisturbed::Undisturbed::begin`], and holds nothing while it waits for
//! anything but the file.
//!
//! Libaio requests that the kernel would carry out synchronously go to [`crate::aio::async_io`] (`IOTRAP_ASYNC=1`).

pub mod attributes;
pub mod caught;
pub mod close;
pub mod dup;
pub mod exec;
pub mod executed;
pub mod exit;
pub mod filter;
pub mod ioctl;
pub mod libaio;
pub mod limit;
pub mod lock;
pub mod map;
pub mod masks;
pub mod open;
pub mod posix_aio;
pub mod receive;
pub mod room;
pub mod rw;
pub mod second_names;
pub mod signal;
pub mod size;
pub mod sync;
pub mod syscall;
pub mod thread;
pub mod uring;

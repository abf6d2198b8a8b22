//! The interposer, driven by C programs: a module for each subject. Each test starts processes of its own.

#[path = "../common/mod.rs"]
mod common;

mod async_io;
mod calls;
mod defects;
mod filter;
mod floors;
mod full;
mod holes;
mod hostile;
mod library;
mod model;
mod names;
mod numbers;
mod posix_aio;
mod preloads;
mod process;
mod raw;
mod raw_ring;
mod refused;
mod room;
mod rows;
mod sizes;
mod stress;
mod told;
mod unfetched;
mod uring;

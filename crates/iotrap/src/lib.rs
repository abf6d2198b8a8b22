//! The LD_PRELOAD library: an unmodified program's I/O over several lanes of one volume, never risking data.
//!
//! ```text
//! hooks/*  ─►  table (fd ─► group)  ─►  spread (may it leave its lane? which one?)  ─►  raw (the lane's file)
//!    │            tracking (open: path ─► lanes, one file? ─► group)                        │
//!    └────────►  real (the program's own call, on the opened lane)      changed_iocbs, inflight (libaio)
//! ```
//!
//! | what | where |
//! | --- | --- |
//! | the functions that programs call | [`hooks`] |
//! | a descriptor: nothing, a file of a pool, a lane's file | [`table`] |
//! | an open file with its lanes, shared by `dup`ed descriptors | [`group`] |
//! | a file (inode), shared by everything in the process that has it open | [`node`] |
//! | the proof that a descriptor number still means the file that it was tracked for | [`proof`] |
//! | opening on other lanes, the proof that they are one file, retries, syncing lanes | [`tracking`] |
//! | descriptors and mappings of a file that no hook saw come | [`others`] |
//! | the threads that open files on lanes which may not answer | [`opener`] |
//! | which request may be spread, and where it goes | [`spread`], [`lane`] |
//! | libaio: iocbs changed and put back, requests in flight, rings | [`changed_iocbs`], [`inflight`], [`context`] |
//! | libaio requests that would block, carried out by an io_uring | [`async_io`] |
//! | io_uring: requests in flight, told apart by their `user_data` | [`tagged`] |
//! | programs that are executed, and of which nothing can be seen | [`executed`] |
//! | fork, vfork, descriptor numbers | [`process`] |
//! | the time, and threads, without libc | [`clock`], [`raw_thread`] |
//! | the reasons for staying, the counts, the records and the messages | [`reason`], [`stats`], [`trace`], [`said`] |
//!
//! Everything is static and atomic: hooks run in signal handlers, between vfork and exec, before constructors, after
//! destructors, and in any number of threads. They take no lock, allocate nothing and cannot panic.

mod async_io;
mod changed_iocbs;
mod clock;
mod config;
mod context;
mod counted;
mod errno;
mod executed;
mod group;
mod hooks;
mod inflight;
mod lane;
mod node;
mod opener;
mod others;
mod process;
mod proof;
mod raw;
mod raw_thread;
mod real;
mod reason;
mod said;
mod split;
mod spread;
mod stats;
mod table;
mod tagged;
mod trace;
mod tracking;

/// Sets the library up when it has been loaded, before the program's `main`.
extern "C" fn begin() {
    real::find_all();
    clock::prepare();
    config::begin();
}

/// Runs at the end of the program, after its own atexit functions.
extern "C" fn end() {
    async_io::ends();
    async_io::tell();
    stats::end();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

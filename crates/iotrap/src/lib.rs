//! The LD_PRELOAD library: an unmodified program's I/O over several lanes of one volume, never risking data.
//!
//! The library is a house of six floors. A floor calls itself and the floors below it, and nothing above (the test
//! `floors` checks this):
//!
//! - [`hooks`]: the functions that programs call, under the names of libc, libaio and liburing; and programs that are
//!   executed.
//! - [`aio`]: requests in flight. libaio ([`aio::libaio`], [`aio::changed_iocbs`], [`aio::inflight`],
//!   [`aio::context`]), POSIX aio ([`aio::posix`]), io_uring ([`aio::rings`], by liburing [`aio::uring`] or by system
//!   calls [`aio::raw_ring`]), and requests that the library makes asynchronous ([`aio::async_io`]).
//! - [`policy`]: which request may be spread, and where it goes ([`policy::spread`]); large transfers that are cut
//!   ([`policy::split`]); the record of the requests ([`policy::trace`]).
//! - [`open`]: the way from a path to the same file on all lanes ([`open::tracking`]), by threads that a silent lane
//!   may hold up ([`open::opener`]); descriptors and mappings that no hook saw come ([`open::others`]).
//! - [`state`]: a descriptor ([`state::table`]), an open file with its lanes ([`state::group`]), a file
//!   ([`state::node`]), the pools ([`state::lane`]), the proof that a number still means its file ([`state::proof`]),
//!   fork and high numbers ([`state::process`]), reasons and counts ([`state::reason`], [`state::stats`]).
//! - [`abi`]: system calls, threads, the clock and errno without libc; the dispatch of calls outside libc
//!   ([`abi::dispatch`]); the seal of a process with a filter of system calls ([`abi::sealed`]); the real functions;
//!   the structures of libaio and liburing.
//!
//! Above the house, [`config`] sets everything up from the environment, and [`fork`] lists everything that a forked
//! child forgets. Two calls lead upwards, through functions that `config` hands down: a file that waits for its lanes
//! notes completed requests, and a forked child empties all tables.
//!
//! A request passes through the house like this:
//!
//! ```text
//! hooks/*  ─►  table (fd ─► group)  ─►  spread (may it leave its lane? which one?)  ─►  raw (the lane's file)
//!    │            tracking (open: path ─► lanes, one file? ─► group)                        │
//!    └────────►  real (the program's own call, on the opened lane)      changed_iocbs, inflight (libaio)
//! ```
//!
//! Everything is static and atomic: hooks run in signal handlers, between vfork and exec, before constructors, after
//! destructors, and in any number of threads. They take no lock, allocate nothing and cannot panic.

mod abi;
mod aio;
mod config;
mod fork;
mod hooks;
mod open;
mod policy;
mod state;

use abi::{clock, real, sealed};
use aio::{async_io, raw_ring};
use state::stats;

/// Sets the library up when it has been loaded, before the program's `main`.
extern "C" fn begin() {
    real::find_all();
    clock::prepare();
    config::begin();
}

/// Runs at the end of the program, after its own atexit functions.
extern "C" fn end() {
    if sealed::is_sealed() {
        return; // told before the seal
    }
    async_io::ends();
    async_io::tell();
    raw_ring::notes_unseen();
    stats::end();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

//! Requests whose results the program does not fetch (tests/c/unfetched.c): they have ended, so they fill no window,
//! make no lane look silent, and keep no lane open.

use crate::common;
use common::{Counted, Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("unfetched", "c", &["-luring"]))
}

/// Runs a program without the library and with it, on a pool with these settings. Every lane has its share.
fn holds(name: &str, pool: &str) -> Option<Counted> {
    if skipped() {
        return None;
    }
    succeed(&mut Volume::new().plain(program(), &[name]));
    let mut volume = Volume::new();
    volume.pool = format!("policy = \"round-robin\"\n{pool}");
    let output = succeed(&mut volume.trapped(program(), &[name]));
    assert_eq!(text(&output.stderr), "");
    let counted = volume.counted();
    assert!(counted.ops().iter().all(|&ops| ops > 0), "{:?}", counted.ops());
    Some(counted)
}

#[test]
fn a_call_finds_room_beside_requests_of_libaio() {
    holds("beside_libaio", "depth = 1");
}

#[test]
fn a_call_of_another_thread_finds_room() {
    holds("beside_another_thread", "depth = 1");
}

#[test]
fn a_call_finds_room_beside_requests_of_posix_aio() {
    holds("beside_posix_aio", "depth = 1");
}

#[test]
fn a_call_finds_room_beside_requests_of_a_ring() {
    holds("beside_a_ring", "depth = 1");
}

#[test]
fn requests_of_posix_aio_that_nobody_returns() {
    holds("never_returned", "");
}

#[test]
fn completions_that_are_taken_from_memory() {
    holds("ring_in_memory", "");
}

#[test]
fn events_that_are_fetched_unseen() {
    holds("fetched_unseen", "");
}

/// A lane that has answered is not silent because the program looks at the answer later.
#[test]
fn results_that_are_fetched_late() {
    let Some(counted) = holds("fetched_late", "suspect-after = \"1s\"") else { return };
    assert_eq!(counted.reason("has not answered"), 0);
    let ops = counted.ops();
    assert!(ops.iter().all(|&ops| ops > 20), "{ops:?}");
}

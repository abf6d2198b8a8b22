//! io_uring over lanes by liburing. (By system calls: raw_ring.rs.)

use crate::common;
use common::{Counted, Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("uring", "c", &["-luring"]))
}

/// Runs a program without the library and with it. Returns the counts of the run with it; None if nothing can be tested
/// here.
fn holds(name: &str) -> Option<Counted> {
    if skipped() {
        return None;
    }
    succeed(&mut Volume::new().plain(program(), &[name]));
    let run = |raw: &str| {
        let mut volume = Volume::new();
        volume.pool = "policy = \"round-robin\"".into(); // a lane that was held up once would get little for a while
        let output = succeed(volume.trapped(program(), &[name]).env("IOTRAP_RAW", raw));
        (volume.counted(), text(&output.stderr))
    };
    if cfg!(target_arch = "x86_64") {
        let (counted, said) = run("1");
        assert_eq!(said, "", "with --raw");
        assert!(counted.reason("which --raw has caught") > 0);
    }
    let (counted, said) = run("0");
    assert_eq!(said, "");
    Some(counted)
}

#[test]
fn reads_and_writes() {
    let Some(counted) = holds("reads_and_writes") else { return };
    let ops = counted.ops();
    assert!(ops.iter().all(|&ops| ops > 100), "{ops:?}");
}

#[test]
fn what_is_not_plain() {
    let Some(counted) = holds("what_is_not_plain") else { return };
    for words in ["linked to others", "registered file, without --raw", "user_data"] {
        assert!(counted.reason(words) > 0, "{words}");
    }
}

#[test]
fn syncs_and_ends() {
    holds("syncs_and_ends");
}

/// A completion says only `user_data` of its request, and a program may give it to several requests.
#[test]
fn completions_of_other_requests_are_not_taken_for_ours() {
    holds("twins_of_the_past");
    holds("twins_in_flight");
    holds("twins_that_stay");
}

/// The library does not read queues that the program has unmapped: a ring may be ended at another address than it was
/// used at, and get queues of another size.
#[test]
fn queues_of_the_past_are_not_read() {
    holds("copies_of_the_structure");
    holds("queues_of_another_size");
}

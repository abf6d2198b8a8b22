//! Programs that leave a call in the middle, by a signal handler or by the cancellation of a thread, at every system
//! call of it: nothing of the library stays behind, and nobody waits for the request that was left.

mod common;
use common::{Volume, compile, skipped, succeed};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("left", "c", &[]))
}

const WAYS: [&str; 3] = ["jump", "cancel", "leave"];

/// Leaves the calls in these ways: without the library, with it, and with asynchronous libaio.
fn left(calls: &[&str], ways: &[&str]) {
    if skipped() {
        return;
    }
    for call in calls {
        for way in ways {
            succeed(&mut Volume::new().plain(program(), &[call, way]));
            // Without libaio requests in flight, both are the same for these calls.
            let same = ["preadv", "pwrite", "large", "growing", "dup2", "flock"].contains(call);
            for asynchronous in if same { &["0"][..] } else { &["0", "1"] } {
                let mut volume = Volume::new();
                volume.pool = "policy = \"round-robin\"".into();
                if *call == "large" {
                    volume.pool += "\nsplit = \"8k\"";
                }
                succeed(volume.trapped(program(), &[call, way]).env("IOTRAP_ASYNC", asynchronous));
                let ops = volume.counted().ops();
                assert!(ops.iter().all(|&ops| ops > 0), "{call}: it is spread: {ops:?}");
            }
        }
    }
}

#[test]
fn transfers() {
    left(&["pread", "preadv", "pwrite", "large", "growing", "buffered"], &WAYS);
}

#[test]
fn sizes_and_syncs() {
    left(&["fsync", "ftruncate", "truncate", "sendfile"], &WAYS);
}

#[test]
fn descriptors() {
    left(&["open", "close", "dup2", "flock"], &WAYS);
}

#[test]
fn asynchronous_requests() {
    left(&["libaio", "waiting"], &WAYS);
    // A handler that leaves glibc's functions of POSIX aio leaves their lock locked, also without the library.
    left(&["posix_aio", "list"], &["cancel"]);
}

//! Programs that use their files where no hook sees it, on bind mounts of one directory: each program without the
//! library and with it, with and without asynchronous libaio, and where buffered reads are spread. (On real NFS, where
//! the lanes have separate page caches: tests/iotrap_holes.rs of the root package.)

use crate::common;
use common::{Counted, Volume, compile, skipped, succeed};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("holes", "c", &["-luring"]))
}

/// The counts of the lanes after a run of the program; None if nothing can be tested here.
fn counted(test: &str, pool: &str) -> Option<Counted> {
    if skipped() {
        return None;
    }
    let arguments: Vec<&str> = test.split(' ').collect();
    succeed(&mut Volume::new().plain(program(), &arguments));
    let mut volume = Volume::new();
    volume.pool = format!("policy = \"round-robin\"\n{pool}");
    succeed(volume.trapped(program(), &arguments).env("IOTRAP_ASYNC", "1"));
    let mut volume = Volume::new();
    volume.pool = format!("policy = \"round-robin\"\n{pool}");
    succeed(&mut volume.trapped(program(), &arguments));
    Some(volume.counted())
}

macro_rules! holes {
    ($($name:ident: $tests:expr, $pool:expr, $reason:expr;)*) => {
        $(#[test]
        fn $name() {
            for test in $tests {
                let Some(counted) = counted(test, $pool) else { return };
                assert!($reason.is_empty() || counted.reason($reason) > 0, "{test}: the reason is recorded");
            }
        })*
    };
}

const BUFFERED: &str = "buffered-reads = true";

holes! {
    numbers_that_mean_another_file: ["stale_transfers", "stale_in_a_batch", "stale_for_others"], "", "descriptor number";
    numbers_of_parts: ["stale_large"], "split = \"8k\"", "descriptor number";
    what_is_known_of_the_old_file: ["stale_bookkeeping"], "", "descriptor number";
    all_numbers_at_once: ["everything_closed_unseen"], "", "descriptor number";
    locks: ["locks_end_with_the_file"], "", "locked";
    flags: ["flags_changed_unseen"], "", "changed by fcntl";
    memory: [
        "mapping_outlives_its_descriptor", "mapping_that_nobody_saw", "mapping_that_moved", "mapping_of_a_child",
        "mapping_beside_a_spread_file"
    ], "", "mapped";
    descriptors_before: [
        "unknown_then_direct opened", "unknown_then_direct inherited", "unknown_then_direct executed",
        "unknown_then_direct sent", "unknown_then_direct ring", "unknown_then_direct stream",
        "unknown_then_direct stream_reads", "unknown_then_direct temporary", "unknown_then_direct bound",
        "unknown_then_direct rooted"
    ], "", "";
    descriptors_after: [
        "direct_then_unknown sent", "direct_then_unknown ring", "direct_then_unknown stream",
        "direct_then_unknown stream_reads", "direct_then_unknown bound", "direct_then_unknown rooted",
        "direct_then_unknown taken"
    ], "", "";
    paths_off_the_lanes: ["direct_then_unknown bound", "direct_then_unknown rooted"], "", "not seen to open";
    moved_by_rings: ["spliced_by_a_ring"], "", "io_uring";
    limits: ["all_numbers_are_the_programs"], "", "no file descriptors left";
    files_of_rings: ["registered_files", "registered_by_a_request", "registered_by_a_call"], "", "not seen to open";
    buffered_reads: [
        "buffered_reads_beside opened", "buffered_reads_beside sent", "buffered_reads_beside ring",
        "buffered_reads_beside stream", "buffered_reads_beside bound", "buffered_reads_beside rooted", "buffered_reads_beside taken", "buffered_reads_beside_memory", "buffered_reads_of_a_stale_number"
    ], BUFFERED, "";
}

/// A file that was mapped once is spread when it is opened again.
#[test]
fn memory_that_is_gone() {
    let Some(counted) = counted("mapping_that_ended", "") else { return };
    assert!(counted.ops().iter().all(|&ops| ops > 0), "{:?}", counted.ops());
}

/// The library works on older kernels, and where a container forbids to compare descriptors.
#[test]
fn other_proofs() {
    if skipped() {
        return;
    }
    for refused in ["query", "kcmp"] {
        for test in ["stale_transfers", "stale_in_a_batch", "stale_bookkeeping", "mapping_that_ended"] {
            let mut volume = Volume::new();
            volume.pool = "policy = \"round-robin\"".into();
            succeed(volume.trapped(program(), &[test]).env("REFUSE", refused));
            let ops = volume.counted().ops();
            assert!(ops.iter().all(|&ops| ops > 0), "{refused}, {test}: it is spread: {ops:?}");
        }
    }
}

//! Every row of the tables of docs/trap.md: the requests that are spread, those that are not and why, and that nobody
//! can tell.

use crate::common;
use common::{Counted, Volume, compile, skipped, succeed};
use std::path::Path;
use std::sync::OnceLock;

/// Blocks of the programs' file.
const BLOCKS: u64 = 256;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("rows", "c", &[]))
}

/// The counts of the lanes after a run of the program; None if nothing can be tested here.
fn counted(name: &str, pool: &str) -> Option<Counted> {
    if skipped() {
        return None;
    }
    let mut volume = Volume::new();
    volume.pool = format!("policy = \"round-robin\"\n{pool}");
    succeed(&mut volume.trapped(program(), &[name]));
    Some(volume.counted())
}

fn is_spread(name: &str, pool: &str, ops: u64) {
    let Some(counted) = counted(name, pool) else { return };
    assert_eq!(counted.ops(), [ops / 4; 4]);
}

fn stays(name: &str, pool: &str, reason: &str) {
    let Some(counted) = counted(name, pool) else { return };
    assert_eq!(counted.ops()[1..], [0; 3], "on its own lane only");
    assert!(counted.reason(reason) > 0, "the reason is recorded: {reason}");
}

/// Runs a program of which a part is spread; it matters that the program finds the data that it has to find.
fn works(name: &str, pool: &str) -> Option<Counted> {
    counted(name, pool)
}

#[test]
fn direct_reads() {
    is_spread("direct_reads", "", BLOCKS);
}

#[test]
fn direct_writes() {
    is_spread("direct_writes", "", BLOCKS);
}

#[test]
fn libaio_one_by_one() {
    is_spread("libaio_one_by_one", "", BLOCKS);
}

#[test]
fn every_kind_of_call() {
    let Some(counted) = works("every_kind_of_call", "") else { return };
    assert!(counted.ops().iter().all(|&ops| ops >= BLOCKS / 4), "{:?}", counted.ops());
    assert!(counted.reason("request flags") >= 2, "the append, and the descriptor's own position");
}

#[test]
fn extending_writes() {
    stays("extending_writes", "", "beyond the known size");
}

#[test]
fn buffered_writes() {
    stays("buffered_writes", "", "without O_DIRECT");
}

#[test]
fn buffered_reads_without_permission() {
    stays("buffered_reads", "", "without O_DIRECT");
}

#[test]
fn buffered_reads() {
    is_spread("buffered_reads", "buffered-reads = true", BLOCKS);
}

#[test]
fn buffered_reads_with_a_writer() {
    stays("buffered_reads_with_a_writer", "buffered-reads = true", "has opened for writing");
}

#[test]
fn locked_files() {
    stays("locked_files", "", "locked");
}

#[test]
fn flocked_files() {
    stays("flocked_files", "", "locked");
}

#[test]
fn lockfed_files() {
    stays("lockfed_files", "", "locked");
}

#[test]
fn locked_by_stdio() {
    stays("locked_by_stdio", "", "locked");
}

#[test]
fn mapped_files() {
    let Some(counted) = works("mapped_files", "") else { return };
    assert!(counted.ops()[1] == BLOCKS / 4, "spread until it was mapped, and not afterwards: {:?}", counted.ops());
    assert_eq!(counted.reason("mapped"), 1 + BLOCKS, "told once, and met by every read");
}

#[test]
fn flags_that_lanes_follow() {
    is_spread("flags_that_change", "", BLOCKS);
}

#[test]
fn append_by_flag() {
    stays("append_by_flag", "", "changed by fcntl");
}

#[test]
fn direct_by_flag() {
    stays("direct_by_flag", "", "changed by fcntl");
}

#[test]
fn sizes_that_change() {
    works("sizes_that_change", "");
}

#[test]
fn copies_in_the_kernel() {
    works("copies_in_the_kernel", "");
}

#[test]
fn forked_children() {
    works("forked_children", "");
}

#[test]
fn spawned_children() {
    works("spawned_children", "");
}

#[test]
fn descriptors_sent() {
    works("descriptors_sent", "");
}

#[test]
fn reads_on_a_failing_lane() {
    works("reads_on_a_failing_lane", "probe-after = \"10ms\"");
}

#[test]
fn lanes_that_come_back_for_others() {
    works("lanes_that_come_back_for_others", "probe-after = \"10ms\"");
}

#[test]
fn locked_before() {
    stays("locked_before", "", "handed to stdio");
}

#[test]
fn locked_and_closed() {
    works("locked_and_closed", "");
}

#[test]
fn limits_stay() {
    works("limits_stay", "");
}

#[test]
fn silent_lane() {
    let Some(counted) = works("silent_lane", "suspect-after = \"500ms\"") else { return };
    assert!(counted.ops().iter().all(|&ops| ops >= BLOCKS / 4), "{:?}", counted.ops());
    assert!(counted.reason("has not answered") > 0, "the reason is recorded");
}

#[test]
fn libaio_on_a_failing_lane() {
    works("libaio_on_a_failing_lane", "");
}

#[test]
fn short_reads_of_a_lane() {
    works("short_reads_of_a_lane", "");
}

#[test]
fn rings_read_by_the_program() {
    let Some(counted) = works("rings_read_by_the_program", "") else { return };
    let ops = counted.ops();
    assert!(ops.iter().all(|&ops| ops > 1000), "a program of one thread may read its ring: {ops:?}");
}

#[test]
fn large_transfers() {
    let Some(counted) = works("large_transfers", "split = \"64k\"") else { return };
    assert!(counted.ops().iter().all(|&ops| ops > 20), "{:?}", counted.ops());
}

#[test]
fn large_transfers_whole() {
    works("large_transfers", "");
}

#[test]
fn windows() {
    let Some(counted) = works("windows", "depth = 1") else { return };
    assert!(counted.reason("window was full") > 0);
}

#[test]
fn cancelled_threads() {
    works("cancelled_threads", "");
}

//! Calls of programs on their files that no hook sees, on real NFS, where each lane has a separate page cache: the
//! programs of crates/iotrap/tests/c/holes.c, raw_ring.c and readers.c without the interposer, with it, and with
//! asynchronous libaio. `make test-nfs-model` runs random programs there, beside a model of the contents of their files
//! (model.c).

mod common;
#[path = "common/nfs.rs"]
mod nfs;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use nfs::*;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use trapped::{PATIENT, Pool};

/// Name the programs to the tests inside the rig, where nothing can be built.
const PROGRAM: &str = "PLIMSOLL_TEST_HOLES";
const MODEL: &str = "PLIMSOLL_TEST_MODEL";
const RAW_RING: &str = "PLIMSOLL_TEST_RAW_RING";
const READERS: &str = "PLIMSOLL_TEST_READERS";
const SIZES: &str = "PLIMSOLL_TEST_SIZES";

fn program(name: &str) -> PathBuf {
    let binary = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("iotrap-{name}"));
    let source = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/iotrap/tests/c/{}.c"), name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-g", "-O1", &source, "-o"]).arg(&binary).args(["-luring", "-laio", "-lpthread"]);
    let output = compiler.output().expect("cc runs");
    assert!(output.status.success(), "{}", stderr(&output));
    binary
}

const DIRECT: &[&str] = &[
    "stale_transfers",
    "stale_in_a_batch",
    "stale_for_others",
    "stale_bookkeeping",
    "everything_closed_unseen",
    "flags_changed_unseen",
    "mapping_outlives_its_descriptor",
    "mapping_that_nobody_saw",
    "mapping_that_moved",
    "mapping_of_a_child",
    "mapping_beside_a_spread_file",
    "mapping_that_ended",
    "unknown_then_direct opened",
    "unknown_then_direct inherited",
    "unknown_then_direct executed",
    "unknown_then_direct sent",
    "unknown_then_direct ring",
    "unknown_then_direct stream",
    "unknown_then_direct stream_reads",
    "unknown_then_direct temporary",
    "direct_then_unknown sent",
    "direct_then_unknown ring",
    "direct_then_unknown stream",
    "direct_then_unknown stream_reads",
    "unknown_then_direct bound",
    "unknown_then_direct rooted",
    "direct_then_unknown bound",
    "direct_then_unknown rooted",
    "direct_then_unknown taken",
    "registered_by_a_request",
    "registered_by_a_call",
    "spliced_by_a_ring",
    "registered_files",
    "all_numbers_are_the_programs",
];
/// Programs that make io_urings by system calls. (The rig's kernel, user-mode Linux, has no Syscall User Dispatch:
/// `--raw` is tested on bind mounts.)
const RINGS: &[&str] = &[
    "reads_and_writes",
    "reads_and_writes inline",
    "registered_files",
    "registered_files_that_change",
    "entries_that_are_left",
    "what_is_not_plain",
    "two_drivers",
    "ends",
    "completions_that_are_held_back",
    "a_waiter_holds_up_nobody",
];
/// Ways to write beside other programs that read by each lane.
const WAYS: &[&str] = &["pread", "libaio", "aio", "liburing"];
/// Programs that ask for attributes after writes, that watch a file, that cut a file beside writes, and children that
/// write through the page cache of the opened lane.
const ENDS: &[&str] = &[
    "attributes fstat",
    "attributes stat",
    "attributes lstat",
    "attributes fstatat",
    "attributes statx",
    "attributes syscall",
    "watched before",
    "watched after",
    "beside_writes ftruncate",
    "beside_writes truncate",
    "beside_writes open",
    "by_a_child ftruncate",
    "by_a_child truncate",
    "by_a_child open",
    "beside_a_child opened",
    "beside_a_child inherited",
    "in_turns_with_a_child opened",
    "in_turns_with_a_child inherited",
];
/// Programs that run with files that are cut into parts.
const LARGE: &[&str] = &["stale_large"];
/// Programs that run with buffered reads that are spread.
const BUFFERED: &[&str] = &[
    "buffered_reads_beside opened",
    "buffered_reads_beside sent",
    "buffered_reads_beside ring",
    "buffered_reads_beside stream",
    "buffered_reads_beside bound",
    "buffered_reads_beside rooted",
    "buffered_reads_beside taken",
    "buffered_reads_beside_memory",
    "buffered_reads_of_a_stale_number",
];

/// Runs the tests with these lines of a pool file, each in all ways; what failed, in words.
fn failures(program: &str, tests: &[&str], more: &str) -> Vec<String> {
    let pool = Pool { more: format!("policy = \"round-robin\"\n{PATIENT}\n{more}"), ..pool() };
    let program = std::env::var(program).expect("runs inside the rig");
    let mut failed = Vec::new();
    for test in tests {
        for (way, trapped, asynchronous) in [("plain", false, ""), ("trapped", true, ""), ("asynchronous", true, "1")] {
            let script = format!("exec {program} {test}");
            let mut command = pool.command(&script, &pool.lanes[0], trapped);
            for (n, lane) in pool.lanes.iter().enumerate() {
                command.env(format!("LANE{n}"), lane);
            }
            let output = command.env("IOTRAP_ASYNC", asynchronous).output().unwrap();
            let well = output.status.success();
            println!("{} {test}, {way} {}", if well { "held" } else { "FAILED" }, stdout(&output).trim_end());
            if !well {
                failed.push(format!("{test}, {way}: {} {}{}", output.status, stdout(&output), stderr(&output)));
            }
        }
    }
    failed
}

fn all() {
    let mut failed = failures(PROGRAM, DIRECT, "");
    failed.extend(failures(RAW_RING, RINGS, ""));
    failed.extend(failures(READERS, WAYS, ""));
    failed.extend(failures(SIZES, ENDS, ""));
    failed.extend(failures(PROGRAM, LARGE, "split = \"8k\""));
    failed.extend(failures(PROGRAM, BUFFERED, "buffered-reads = true"));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Random programs, from a seed on: the seconds of each, and the number of programs at a time.
fn random() {
    let mut failed = failures(MODEL, &["1 20 8"], "");
    failed.extend(failures(MODEL, &["500001 10 8"], "buffered-reads = true"));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A lane is late for this time, again and again, where children of programs are killed.
const LATE: Duration = Duration::from_secs(3);
/// After this many milliseconds all that was late has arrived.
const ARRIVED_MS: &str = "4500";

/// Random programs that kill their children while writes are stuck on a lane: nothing arrives late over newer data.
/// Without the barrier of `open/late.rs` (its `look` returns at once) the test fails: three of the first 16 programs
/// did.
fn killed() {
    let pool = Pool { more: "policy = \"round-robin\"\nsuspect-after = \"100ms\"".into(), ..pool() };
    let script = format!("exec {} 1 60 8", std::env::var(MODEL).expect("runs inside the rig"));
    let mut command = pool.command(&script, &pool.lanes[0], true);
    for (n, lane) in pool.lanes.iter().enumerate() {
        command.env(format!("LANE{n}"), lane);
    }
    command.env("LATE_MS", ARRIVED_MS).stdout(Stdio::piped());
    let mut model = command.spawn().unwrap();
    while model.try_wait().unwrap().is_none() {
        rig(&format!("lane late 34 {}s", LATE.as_secs()));
        std::thread::sleep(LATE);
        rig("lane thaw 34");
        std::thread::sleep(Duration::from_secs(1));
    }
    let output = model.wait_with_output().unwrap();
    println!("killed: {}", stdout(&output));
    assert!(output.status.success(), "{}", stdout(&output));
}

fn on(test: &str, version: &str) {
    let names = [(PROGRAM, "holes"), (MODEL, "model"), (RAW_RING, "raw_ring"), (READERS, "readers"), (SIZES, "sizes")];
    let built = names.map(|(variable, name)| (variable, program(name)));
    let mut variables = vec![("VERS", version), ("RATE", "10gbit")];
    // Client and server of version 4.0 wait for each other over delegations: rigs/nfs-lanes.sh.
    if test.starts_with("random_on") || test.starts_with("killed_on") {
        variables.push(("DELEGATIONS", "no"));
    }
    if test.starts_with("random_on") {
        variables.push(("RIG_TIMEOUT", "480")); // the programs take two minutes
    }
    variables.extend(built.iter().map(|(variable, path)| (*variable, path.to_str().unwrap())));
    on_nfs(test, &variables);
}

#[test]
fn version_3() {
    on("version_3", "3");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_version_3() {
    all();
}

#[test]
fn version_4_0() {
    on("version_4_0", "4.0");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_version_4_0() {
    all();
}

/// The evidence of docs/decisions/locked-files-stay.md: without the interposer, and without its rule.
fn fence() {
    let pool = pool();
    let output =
        Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/fence.py")).args(&pool.lanes).output();
    let output = output.unwrap();
    let said = stdout(&output);
    println!("{said}{}", stderr(&output));
    assert!(said.contains("read 4096 written 4096") && said.contains("before the write had ended"), "{said}");
    assert!(said.contains("wrote N and finds X"), "a fence that holds would overturn the decision: {said}");
}

#[test]
#[ignore = "make test-nfs-model: the evidence of a decision"]
fn a_fence_on_version_3() {
    on("a_fence_on_version_3", "3");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_a_fence_on_version_3() {
    fence();
}

#[test]
#[ignore = "make test-nfs-model: the evidence of a decision"]
fn a_fence_on_version_4_0() {
    on("a_fence_on_version_4_0", "4.0");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_a_fence_on_version_4_0() {
    fence();
}

#[test]
#[ignore = "make test-nfs-model: takes minutes"]
fn random_on_version_3() {
    on("random_on_version_3", "3");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_random_on_version_3() {
    random();
}

#[test]
#[ignore = "make test-nfs-model: takes minutes"]
fn random_on_version_4_0() {
    on("random_on_version_4_0", "4.0");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_random_on_version_4_0() {
    random();
}

#[test]
#[ignore = "make test-nfs-model: takes minutes"]
fn killed_on_version_3() {
    on("killed_on_version_3", "3");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_killed_on_version_3() {
    killed();
}

#[test]
#[ignore = "make test-nfs-model: takes minutes"]
fn killed_on_version_4_0() {
    on("killed_on_version_4_0", "4.0");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_killed_on_version_4_0() {
    killed();
}

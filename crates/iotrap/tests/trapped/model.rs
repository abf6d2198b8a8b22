//! Random programs beside a model of the contents of their files (tests/c/model.c): without the library, with it, with
//! asynchronous libaio, with `--raw`, and where buffered reads are spread. Seeds count up from 1, for as long as each
//! way is given. A seed that fails is shrunk and shown step by step. (On real NFS: tests/iotrap_holes.rs of the root
//! package.)
//!
//! A sixth of the programs have one thread and use their files through the registered files of a ring. With `--raw`
//! they find each of three breaks of `aio/registered.rs` within ten seconds: an update that leaves a place which has a
//! file, an update that begins at place 0, and an emptied place that keeps its file.
//!
//! Each of these breaks of the library was found once, with `model FIRST 20 8` on a machine of two busy processors:
//!
//! | break | way | programs until it was found | a seed, shrunk to its steps |
//! | --- | --- | --- | --- |
//! | a number is believed without proof (`proof::means`) | trapped, from 1 | 499 | 182: 40 41 52 57 58 59 |
//! | the engine looks a request's file up when it begins it | asynchronous, from 1000001 | 14 | 1000004: 8 20 80 |
//! | the end of a program does not wait (`async_io::ending`) | asynchronous, from 1000001 | 10 | 1000008: 18 |
//!
//! Children that are killed in the middle of writes meet no late write on bind mounts: their kernel ends a process only
//! when its writes have ended. `killed_on_version_3` and `killed_on_version_4_0` of tests/iotrap_holes.rs run the same
//! programs on NFS beside a lane that is late by seconds (`make test-nfs-model`), and kill children whose writes are
//! stuck there. With the barrier of `open/late.rs` taken out (its `look` returns at once), three of the first
//! 16 programs read a block of a killed child where the parent had written a newer one.
//!
//! Mappings and descriptors that the library does not find matter only where lanes have page caches of their own. On
//! NFS 3, programs found the break that overlooks mappings (seed 25: 17 18 19 49 50 58). 450 programs did not find the
//! break that overlooks other descriptors: the programs of holes.rs test those.

use crate::common;
use common::{Volume, compile, skipped, succeed, text};
use std::process::Command;

/// Seconds that each way is given. `IOTRAP_MODEL_SECONDS` gives more.
const SECONDS: u32 = 20;
/// The number of programs at a time: most of the time of each goes by in the kernel, which ends its asynchronous
/// contexts.
const WORKERS: &str = "16";

fn run(name: &str, first: &str, share: u32, command: impl FnOnce(&Volume, &[&str]) -> Command) {
    if skipped() {
        return;
    }
    let mut volume = Volume::in_memory();
    volume.pool = "policy = \"round-robin\"".into();
    let given = std::env::var("IOTRAP_MODEL_SECONDS").ok().and_then(|given| given.parse().ok());
    let seconds = (given.unwrap_or(SECONDS) / share).to_string();
    let said = text(&succeed(&mut command(&volume, &[first, &seconds, WORKERS])).stdout);
    println!("{name}: {said}");
    assert!(said.contains(" 0 failed"), "{said}");
}

fn program() -> std::path::PathBuf {
    static BUILT: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();
    BUILT.get_or_init(|| compile("model", "c", &["-luring"])).clone()
}

/// The model is right: programs hold to it where nothing is spread.
#[test]
fn without_the_library() {
    run("plain", "1", 4, |volume, arguments| volume.plain(&program(), arguments));
}

#[test]
fn with_it() {
    run("trapped", "1", 1, |volume, arguments| volume.trapped(&program(), arguments));
}

#[test]
fn with_asynchronous_libaio() {
    run("asynchronous", "1000001", 2, |volume, arguments| {
        let mut command = volume.trapped(&program(), arguments);
        command.env("IOTRAP_ASYNC", "1");
        command
    });
}

#[test]
fn with_buffered_reads() {
    run("buffered reads", "2000001", 2, |volume, arguments| {
        let mut command = volume.trapped(&program(), arguments);
        let pools = volume.pools().replacen("policy =", "buffered-reads = true\npolicy =", 1);
        command.env("IOTRAP_POOLS", pools);
        command
    });
}

/// Every call of the programs is seen.
#[test]
#[cfg(target_arch = "x86_64")]
fn with_calls_outside_libc() {
    run("raw", "3000001", 2, |volume, arguments| {
        let mut command = volume.trapped(&program(), arguments);
        command.env("IOTRAP_RAW", "1");
        command
    });
}

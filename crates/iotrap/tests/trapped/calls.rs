//! Random system calls with random arguments, of which many are invalid (tests/c/calls.c): results, errno, bytes and
//! attributes are those of the same calls without the library.
//!
//! On a busy machine the kernel itself may answer differently from run to run: direct reads end early, and page cache
//! and direct I/O of one file meet in another order. So the program of a seed that differs runs again without the
//! library, until one of these runs says the same to the last line. The run with the library is not repeated: a
//! difference that is rare counts too.

use crate::common;
use common::{Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Programs of each way, and calls of each program. `IOTRAP_CALLS_SEEDS` gives more programs.
const SEEDS: u32 = 10;
const CALLS: u32 = 400;
/// Runs without the library of a program that differs.
const RUNS: u32 = 24;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("calls", "c", &["-luring"]))
}

/// The output of the programs of these seeds, with the library if `ways` names its variables.
fn said(volume: &Volume, ways: Option<&[&str]>, first: u32, seeds: u32) -> String {
    let arguments = [first, seeds, CALLS].map(|number| number.to_string());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command: Command = match ways {
        None => volume.plain(program(), &arguments),
        Some(_) => volume.trapped(program(), &arguments),
    };
    let output = succeed(command.envs(ways.unwrap_or_default().iter().map(|name| (name, "1"))));
    assert!(output.stderr.is_empty(), "{ways:?}, from seed {first}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The lines of one seed.
fn of_seed(said: &str, seed: u32) -> Vec<&str> {
    let is_its = |line: &&str| line.split(['.', ':']).next() == Some(seed.to_string().as_str());
    said.lines().filter(is_its).collect()
}

/// The first line that differs from the run without the library that is the same for longest.
fn difference(natives: &[String], trapped: &str) -> String {
    let alike =
        |native: &str| native.lines().zip(trapped.lines()).take_while(|(native, trapped)| native == trapped).count();
    let native = natives.iter().max_by_key(|native| alike(native)).unwrap();
    let line = |said: &str| said.lines().nth(alike(native)).unwrap_or("the end").to_string();
    format!("{:?} without the library, {:?} with it", line(native), line(trapped))
}

/// True if the program of a seed says the same without the library, if not at once, then in one of some runs.
fn is_native(volume: &Volume, seed: u32, plain: String, trapped: &str, failed: &mut Vec<String>) -> bool {
    let mut natives = vec![plain];
    while natives.last().is_some_and(|native| native != trapped) {
        if natives.len() as u32 > RUNS {
            failed.push(format!("seed {seed}, {RUNS} runs: {}", difference(&natives, trapped)));
            return false;
        }
        natives.push(said(volume, None, seed, 1).trim_end().into());
    }
    natives.len() > 1
}

fn are_the_same(make: impl Fn() -> Volume, ways: &[&str], first: u32) {
    if skipped() {
        return;
    }
    let mut volume = make();
    volume.pool = "policy = \"round-robin\"\nsplit = \"256k\"".into();
    let seeds = std::env::var("IOTRAP_CALLS_SEEDS").ok().and_then(|given| given.parse().ok()).unwrap_or(SEEDS);
    let end = first + seeds;
    let (mut failed, mut vary) = (Vec::new(), 0);
    for first in (first..end).step_by(SEEDS as usize) {
        let seeds = SEEDS.min(end - first);
        let (plain, trapped) = (said(&volume, None, first, seeds), said(&volume, Some(ways), first, seeds));
        for seed in first..first + seeds {
            let (plain, trapped) = (of_seed(&plain, seed).join("\n"), of_seed(&trapped, seed).join("\n"));
            assert!(!plain.is_empty() && !plain.contains("ended with status"), "seed {seed}: {plain}");
            vary += u32::from(is_native(&volume, seed, plain, &trapped, &mut failed));
        }
    }
    let (ops, calls) = (volume.counted().ops(), seeds * CALLS);
    println!("{ways:?}: {calls} calls, {} of {seeds} programs differ, {vary} vary without the library", failed.len());
    assert!(failed.is_empty(), "{ways:?}:\n{}", failed.join("\n"));
    assert!(ops.iter().all(|&ops| ops > 0), "{ways:?}: every lane carries requests: {ops:?}");
}

#[test]
fn plain() {
    are_the_same(Volume::in_memory, &[], 1);
    are_the_same(Volume::new, &[], 1001);
}

#[test]
fn asynchronous() {
    are_the_same(Volume::in_memory, &["IOTRAP_ASYNC"], 2001);
    are_the_same(Volume::new, &["IOTRAP_ASYNC"], 3001);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn raw() {
    are_the_same(Volume::in_memory, &["IOTRAP_RAW"], 4001);
    are_the_same(Volume::new, &["IOTRAP_RAW"], 5001);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn raw_and_asynchronous() {
    are_the_same(Volume::in_memory, &["IOTRAP_RAW", "IOTRAP_ASYNC"], 6001);
    are_the_same(Volume::new, &["IOTRAP_RAW", "IOTRAP_ASYNC"], 7001);
}

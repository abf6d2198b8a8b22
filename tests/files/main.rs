//! `plimsoll files`: what it makes is there, what it reports is true, what goes wrong is said.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod imitated;
mod operations;
mod phases;
mod rates;
mod refusals;
mod results;
mod verified;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::*;
use serde_json::Value;

/// A script of `compat/` with the built program, in `place`.
fn compat(place: &Path, script: &str, line: &str) -> std::process::Output {
    let mut command = std::process::Command::new(format!("{}/compat/{script}", env!("CARGO_MANIFEST_DIR")));
    command.current_dir(place).args(line.split_whitespace()).env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
    command.env("MDTEST_TASKS", "2").env("IOR_TASKS", "2").output().unwrap()
}

/// The children of a process.
fn children(of: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// All regular files below a directory.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() { found.extend(tree(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn files(directory: &Path, line: &str) -> Value {
    let arguments: Vec<&str> = ["files", "--json"].into_iter().chain(line.split_whitespace()).collect();
    json(&succeed(directory, &arguments))
}

fn count(phase: &Value, what: &str) -> u64 {
    phase["total"][what].as_u64().unwrap()
}

fn phase<'a>(result: &'a Value, name: &str) -> &'a Value {
    result["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == name).unwrap()
}

fn calls(phase: &Value, name: &str) -> u64 {
    let calls = phase["calls"].as_array().unwrap();
    calls.iter().find(|call| call["call"] == name).map_or(0, |call| call["lat_ns"]["count"].as_u64().unwrap())
}

/// Runs `files` while each call in `calls` fails as `injection` says; the phases, and the status.
fn with_faults(place: &Path, calls: &str, injection: &str, line: &str) -> (Value, i32) {
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
    strace.args(["-e", &format!("inject={calls}:{injection}"), env!("CARGO_BIN_EXE_plimsoll"), "files", "--json"]);
    let output = strace.current_dir(place).args(line.split_whitespace()).output().unwrap();
    (serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output))), {
        output.status.code().unwrap()
    })
}

/// The processes below one, with it.
fn family(of: u32) -> Vec<u32> {
    children(of).into_iter().flat_map(family).chain([of]).collect()
}

/// True if a process runs: a dead one that nobody has waited for does not.
fn runs(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

/// Every operation, and the operations that make the objects it works on.
const NEEDS: &[(&str, &str)] = &[
    ("append", "create"),
    ("overwrite", "create"),
    ("truncate-overwrite", "create"),
    ("read", "create"),
    ("stat", "create"),
    ("chmod", "create"),
    ("truncate", "create"),
    ("setxattr", "create"),
    ("getxattr", "create,setxattr"),
    ("swift-get", "swift-put"),
    ("rename", "create"),
    ("unlink", "create"),
    ("delete-renamed", "create,rename"),
    ("symlink", "create"),
    ("readlink", "create,symlink"),
    ("link", "create"),
    ("stat-dir", "mkdir"),
    ("rmdir", "mkdir"),
    ("readdir", "create"),
    ("ls-l", "create"),
    ("await-create", "create"),
    ("cleanup", "create"),
    ("create", ""),
    ("mkdir", ""),
    ("swift-put", ""),
];

/// The directories below a directory.
fn directories(place: &Path) -> usize {
    let below = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    below.filter(|path| path.symlink_metadata().unwrap().is_dir()).map(|path| 1 + directories(&path)).sum()
}

//! The end of a file that moves while lanes are written, by a thread or by a child, and children that write through the
//! page cache (tests/c/sizes.c). Bind mounts share one page cache: tests/iotrap_holes.rs runs the program on NFS.

use crate::common;
use common::{Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("sizes", "c", &[]))
}

fn holds(case: &str, ways: &[&str]) {
    if skipped() {
        return;
    }
    for how in ways {
        succeed(&mut Volume::new().plain(program(), &[case, how]));
        for asynchronous in ["0", "1"] {
            let mut volume = Volume::new();
            volume.pool = "policy = \"round-robin\"".into();
            let mut command = volume.trapped(program(), &[case, how]);
            let output = succeed(command.env("IOTRAP_ASYNC", asynchronous));
            assert_eq!(text(&output.stderr), "");
            let ops = volume.counted().ops();
            assert!(ops.iter().all(|&ops| ops > 8), "{case} {how} is spread: {ops:?}");
        }
    }
}

#[test]
fn cut_beside_writes() {
    holds("beside_writes", &["ftruncate", "truncate", "open"]);
}

#[test]
fn cut_by_a_child() {
    holds("by_a_child", &["ftruncate", "truncate", "open"]);
}

#[test]
fn attributes_after_writes() {
    holds("attributes", &["fstat", "stat", "lstat", "fstatat", "statx", "syscall"]);
}

#[test]
fn a_child_that_writes_through_the_cache() {
    holds("beside_a_child", &["opened", "inherited"]);
}

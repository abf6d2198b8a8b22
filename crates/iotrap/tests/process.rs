//! The library leaves the process to the program: its limits, its stacks, its tables of descriptors and its children
//! (tests/c/process.c and small_stack.c).

mod common;
use common::{Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("process", "c", &[]))
}

/// Runs a program under the interposer, and without it where the program does not look for lanes.
fn holds(name: &str, also_without: bool) {
    if skipped() {
        return;
    }
    if also_without {
        succeed(&mut Volume::new().plain(program(), &[name]));
    }
    let mut volume = Volume::new();
    volume.pool = "policy = \"round-robin\"".into();
    let output = succeed(&mut volume.trapped(program(), &[name]));
    assert_eq!(text(&output.stderr), "");
}

macro_rules! processes {
    ($($name:ident: $also_without:expr,)*) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name), $also_without);
        })*
    };
}

processes! {
    vfork_child_opens: false,
    limits_are_the_programs: true,
    limits_of_programs: true,
    second_names: false,
    tables_of_threads: false,
    locks_over_exec: true,
    locks_unseen: true,
    closed_before_its_requests_end: false,
    addresses_of_files: true,
    table_is_large_enough: false,
}

#[test]
fn small_stacks() {
    if skipped() {
        return;
    }
    let program = compile("small_stack", "c", &["-luring"]);
    succeed(&mut Volume::new().plain(&program, &[]));
    let mut volume = Volume::new();
    volume.pool = "policy = \"round-robin\"\nsplit = \"8k\"".into();
    succeed(&mut volume.trapped(&program, &[]));
    let ops = volume.counted().ops();
    assert!(ops.iter().all(|&ops| ops > 8), "it is spread: {ops:?}");
}

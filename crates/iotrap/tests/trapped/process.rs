//! The library leaves the process to the program: its limits, its stacks, its tables of descriptors and its children
//! (tests/c/process.c and small_stack.c).

use crate::common;
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
    locks_unseen_beside_lanes: true,
    locked_while_lanes_open: true,
    closed_before_its_requests_end: false,
    addresses_of_files: true,
    table_is_large_enough: false,
    leases: true,
    tables_of_children: false,
}

#[test]
fn parts_end_at_the_limit() {
    if skipped() {
        return;
    }
    succeed(&mut Volume::new().plain(program(), &["parts_end_at_the_limit"]));
    let mut volume = Volume::new();
    volume.pool = "policy = \"round-robin\"\nsplit = \"8k\"".into();
    succeed(&mut volume.trapped(program(), &["parts_end_at_the_limit"]));
    let ops = volume.counted().ops();
    assert!(ops.iter().all(|&ops| ops > 0), "it is spread: {ops:?}");
}

/// Two lanes that are two file systems with one content, as two clients of a server are.
#[test]
fn locks_on_another_lane() {
    if skipped() {
        return;
    }
    for case in [
        "locked_before_it_is_spread",
        "locked_after_it_was_spread",
        "locked_while_it_is_spread",
        "leased_while_it_is_spread",
    ] {
        for trapped in [false, true] {
            let mut volume = Volume::new();
            volume.pool = "policy = \"round-robin\"\ntrust-inode = true".into();
            std::fs::write(volume.path("volume/inner/file"), [b'f'; 16 * 4096]).unwrap();
            let script = "PATH=$PATH:/sbin:/usr/sbin
                truncate -s 16M \"$SCRATCH/one\"; mkfs.ext4 -q -F -d \"$LANE0/inner\" \"$SCRATCH/one\"
                cp \"$SCRATCH/one\" \"$SCRATCH/two\"
                mount -o loop \"$SCRATCH/one\" \"$LANE0\"; mount -o loop \"$SCRATCH/two\" \"$LANE1\"
                exec \"$@\"";
            let program = program().to_str().unwrap();
            let arguments = ["-euc", script, "sh", program, case];
            let sh = Path::new("/bin/sh");
            succeed(&mut if trapped { volume.trapped(sh, &arguments) } else { volume.plain(sh, &arguments) });
            let ops = volume.counted().ops();
            assert!(!trapped || ops[1] > 0, "{case} is spread: {ops:?}");
        }
    }
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

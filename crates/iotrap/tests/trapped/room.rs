//! Programs that meet the end of the room, their limits, and calls that move parts of a file (tests/c/room.c): what the
//! kernel tells them is the same without the library, with it, with `--async`, with `--raw`, and with `--async` off the
//! pool. The file system is a small one in memory.

use crate::common;
use common::{Volume, compile, library, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("room", "c", &["-luring"]))
}

/// The lines that a program prints in a volume of that size, run in one way.
fn lines(name: &str, room: &str, way: &[(&str, &str)], pool: bool) -> String {
    let mut volume = Volume::new();
    volume.pool = "policy = \"round-robin\"".into();
    let mut command = if pool { volume.trapped(program(), &[name]) } else { volume.plain(program(), &[name]) };
    if !pool && !way.is_empty() {
        command.env("TRAP", library());
    }
    let output = succeed(command.env("ROOM", room).envs(way.iter().copied()));
    // Without rights, the program cannot open the lanes.
    if pool && way.is_empty() && name != "rights_are_the_threads" {
        let ops = volume.counted().ops();
        assert!(ops.iter().skip(1).any(|&ops| ops > 0), "{name}: other lanes have a share: {ops:?}");
    }
    text(&output.stdout)
}

fn is_the_same(name: &str, room: &str) {
    if skipped() {
        return;
    }
    let plain = lines(name, room, &[], false);
    assert!(plain.lines().count() > 1, "{plain}");
    let asynchronous = ("IOTRAP_ASYNC", "1");
    let mut ways = vec![(vec![], true), (vec![asynchronous], true), (vec![asynchronous], false)];
    if cfg!(target_arch = "x86_64") {
        ways.push((vec![("IOTRAP_RAW", "1")], true));
    }
    for (way, pool) in ways {
        assert_eq!(lines(name, room, &way, pool), plain, "{name}, {way:?}, on a pool: {pool}");
    }
}

macro_rules! rooms {
    ($($name:ident: $room:expr;)*) => {
        $(#[test]
        fn $name() {
            is_the_same(stringify!($name), $room);
        })*
    };
}

rooms! {
    sizes_are_limited: "4m";
    rights_are_the_threads: "4m";
    the_room_ends: "4m";
    the_room_ends_in_a_batch: "4m";
    parts_are_moved: "4m";
    records_are_appended: "32m";
}

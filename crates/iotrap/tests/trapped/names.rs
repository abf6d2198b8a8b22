//! Files whose names, mounts and numbers change beside requests that are spread (tests/c/names.c): without the library,
//! with it, with `--async`, and with `--raw`.

use crate::common;
use common::{Volume, compile, skipped, succeed};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("names", "c", &[]))
}

fn holds(name: &str) {
    if skipped() {
        return;
    }
    succeed(&mut Volume::new().plain(program(), &[name]));
    let mut ways = vec![("IOTRAP_ASYNC", ""), ("IOTRAP_ASYNC", "1")];
    if cfg!(target_arch = "x86_64") {
        ways.push(("IOTRAP_RAW", "1"));
    }
    for (variable, value) in ways {
        let mut volume = Volume::new();
        volume.pool = "policy = \"round-robin\"".into();
        succeed(volume.trapped(program(), &[name]).env(variable, value));
        // A buffered descriptor keeps the file of `opened_by_handle` on its lane.
        let ops = volume.counted().ops();
        let spread = ops.iter().filter(|&&ops| ops > 0).count();
        let wanted = match name {
            "opened_by_handle" => 1,
            "a_lane_is_read_only" => 3,
            _ => 4,
        };
        assert!(spread >= wanted, "{name}, {variable}={value}: {ops:?}");
    }
}

macro_rules! names {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name));
        })*
    };
}

names! {
    names_are_exchanged
    a_link_takes_the_name
    opened_by_handle
    a_thread_divides
    a_child_shares_the_table
    a_lane_is_replaced
    a_lane_is_read_only
}

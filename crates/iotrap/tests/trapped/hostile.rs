//! Programs that are hard on an interposer (tests/c/hostile.c): what their calls return, and the contents of their
//! files, are the same without the library, with it, with `--raw`, with asynchronous libaio and with both.

use crate::common;
use common::{Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

const WAYS: &[&[&str]] = &[&[], &["IOTRAP_ASYNC"], &["IOTRAP_RAW"], &["IOTRAP_RAW", "IOTRAP_ASYNC"]];

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("hostile", "c", &["-luring"]))
}

fn said(command: &mut Command) -> String {
    let output = succeed(command);
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A library that spreads nothing would pass: each lane has to carry requests.
fn is_the_same(test: &str) {
    if skipped() {
        return;
    }
    let native = said(&mut Volume::new().plain(program(), &[test]));
    for ways in WAYS.iter().filter(|ways| cfg!(target_arch = "x86_64") || !ways.contains(&"IOTRAP_RAW")) {
        let mut volume = Volume::new();
        volume.pool = "policy = \"round-robin\"".into();
        let trapped = said(volume.trapped(program(), &[test]).envs(ways.iter().map(|name| (name, "1"))));
        assert_eq!(trapped, native, "{test} {ways:?}");
        let ops = volume.counted().ops();
        assert!(ops.iter().all(|&ops| ops > 0), "{test} {ways:?}: every lane carries requests: {ops:?}");
    }
}

macro_rules! hostile {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            is_the_same(stringify!($name));
        })*
    };
}

hostile! {
    exchanged_beside_reads shared_table one_thread_leaves ranges taken_by_pidfd sent_and_closed
    late_limits late_root
    appended_buffered appended_direct copied_behind_writes cut_beside_writes other_files flags_of_requests
    bad_memory
    ring_orders ring_files ring_memory_gone
    allocates_nothing
    cancelled ended_by_handlers interrupted_calls children locks watched mapped
}

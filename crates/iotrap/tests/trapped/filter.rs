//! Programs that install filters of system calls (tests/c/filter.c), without the library, with it, with asynchronous
//! libaio and with `--raw`: a filter kills the program for any call that the program does not make itself.

use crate::common;
use common::{Counted, Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("filter", "c", &["-luring"]))
}

const WAYS: [&[&str]; 4] = [&[], &["IOTRAP_ASYNC"], &["IOTRAP_RAW"], &["IOTRAP_RAW", "IOTRAP_ASYNC"]];
const RAW_WAYS: [&[&str]; 2] = [&["IOTRAP_RAW"], &["IOTRAP_RAW", "IOTRAP_ASYNC"]];

/// Runs a case under the interposer, one run for each of `ways`, and checks the contents of its file. Calls `each` with
/// the counts and the messages.
fn holds(case: &str, how: &str, ways: &[&[&str]], each: impl Fn(&Counted, &str)) {
    if skipped() {
        return;
    }
    succeed(&mut Volume::new().plain(program(), &[case, how]));
    for variables in ways {
        let mut volume = Volume::new();
        volume.pool = "policy = \"round-robin\"".into();
        let mut command = volume.trapped(program(), &[case, how]);
        let output = succeed(command.envs(variables.iter().map(|name| (name, "1"))));
        each(&volume.counted(), &text(&output.stderr));
        for (number, block) in std::fs::read(volume.path("volume/file")).unwrap().chunks(4096).enumerate() {
            let number = if case == "strict" && number == 1 { 0 } else { number as u64 };
            assert_eq!(block[..8], number.to_ne_bytes(), "{case} {how} {variables:?}");
            assert!(block[8..].iter().all(|&byte| byte == b'e'), "{case} {how} {variables:?}: block {number}");
        }
    }
}

fn spread_and_filtered(counted: &Counted, said: &str) {
    assert_eq!(said, "");
    assert!(counted.ops().iter().all(|&ops| ops > 4), "spread before the filter: {:?}", counted.ops());
    assert!(counted.reason("installs a filter of system calls") > 0);
}

#[test]
fn every_way_to_install() {
    for how in ["prctl", "number", "seccomp", "tsync"] {
        holds("files", how, &WAYS, spread_and_filtered);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn inline_calls_under_raw() {
    holds("files", "inline", &RAW_WAYS, spread_and_filtered);
    holds("strict", "inline", &RAW_WAYS, spread_and_filtered);
}

#[test]
fn rings_and_locks() {
    holds("ring", "seccomp", &WAYS, spread_and_filtered);
    holds("locked", "prctl", &WAYS, spread_and_filtered);
}

#[test]
fn strict_mode() {
    for how in ["prctl", "number"] {
        holds("strict", how, &WAYS, spread_and_filtered);
    }
}

#[test]
fn threads_at_work() {
    for how in ["seccomp", "tsync"] {
        holds("threads", how, &WAYS, spread_and_filtered);
    }
}

#[test]
fn children() {
    holds("children", "seccomp", &WAYS, spread_and_filtered);
    holds("only_a_child", "seccomp", &WAYS, |counted, said| {
        spread_and_filtered(counted, said);
        assert!(counted.ops().iter().all(|&ops| ops > 64), "the parent goes on: {:?}", counted.ops());
    });
}

#[test]
fn programs_that_are_executed() {
    holds("executes", "seccomp", &WAYS, |_, said| {
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("begun with a filter of system calls"), "{said}");
    });
}

#[test]
fn attempts_that_install_nothing() {
    holds("asks", "seccomp", &WAYS, |counted, said| {
        assert_eq!(said, "");
        assert!(counted.ops().iter().all(|&ops| ops > 32), "{:?}", counted.ops());
        assert_eq!(counted.reason("installs a filter of system calls"), 0);
    });
}

//! `--raw`: programs whose system calls do not pass through libc (tests/c/raw.c), without the library, with it, with
//! `--raw`, and with `--raw` and asynchronous libaio.
#![cfg(target_arch = "x86_64")]

use crate::common;
use common::{Counted, Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("raw", "c", &["-luring"]))
}

/// A run of the program with these variables set to 1: its counts, and what it wrote to standard error.
fn run(name: &str, variables: &[&str]) -> (Counted, String) {
    let mut volume = Volume::new();
    volume.pool = "policy = \"round-robin\"".into();
    let mut command = volume.trapped(program(), &[name]);
    let output = succeed(command.envs(variables.iter().map(|name| (name, "1"))));
    (volume.counted(), text(&output.stderr))
}

/// The counts with `--raw`; None if nothing can be tested here.
fn holds(name: &str) -> Option<Counted> {
    if skipped() {
        return None;
    }
    succeed(&mut Volume::new().plain(program(), &[name]));
    let mut last = None;
    for variables in [&[][..], &["IOTRAP_RAW", "IOTRAP_ASYNC"], &["IOTRAP_RAW"]] {
        let (counted, said) = run(name, variables);
        assert_eq!(said, "", "{name} {variables:?}");
        last = Some(counted);
    }
    last
}

fn all_lanes(counted: &Counted) {
    let ops = counted.ops();
    assert!(ops.iter().all(|&ops| ops > 20), "{ops:?}");
    assert!(counted.reason("which --raw has caught") > 0);
    assert_eq!(counted.reason("closed and opened again by calls that cannot be seen"), 0);
}

#[test]
fn files() {
    let Some(counted) = holds("files") else { return };
    all_lanes(&counted);
}

#[test]
fn threads() {
    let Some(counted) = holds("threads") else { return };
    all_lanes(&counted);
}

#[test]
fn children() {
    let Some(counted) = holds("children") else { return };
    all_lanes(&counted);
}

#[test]
fn inline_threads() {
    holds("inline_threads");
}

#[test]
fn handlers_of_signals() {
    let Some(counted) = holds("handlers") else { return };
    all_lanes(&counted);
}

/// Every way to block SIGSYS, or to wait with SIGSYS blocked: the program would be killed by its next inline call.
#[test]
fn masks_of_every_kind() {
    let Some(counted) = holds("masks") else { return };
    assert!(counted.reason("which --raw has caught") > 50);
}

/// The default action of SIGSYS does not end `--raw`, and is the one that the program sees.
#[test]
fn defaults_of_all_signals() {
    let Some(counted) = holds("defaults_of_all_signals") else { return };
    all_lanes(&counted);
    assert!(counted.reason("which --raw has caught") > 6 * 16);
}

/// Without `--raw`, asynchronous writes in flight are lost when the program ends by an inline call.
#[test]
fn an_inline_end_waits() {
    if skipped() {
        return;
    }
    for _ in 0..10 {
        let (_, said) = run("ends_inline", &["IOTRAP_RAW", "IOTRAP_ASYNC"]);
        assert_eq!(said, "");
    }
}

#[test]
fn a_program_that_handles_the_signal_itself() {
    if skipped() {
        return;
    }
    for name in ["handles_it_itself", "ignores"] {
        succeed(&mut Volume::new().plain(program(), &[name]));
        let (_, said) = run(name, &["IOTRAP_RAW"]);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("--raw is off") && said.contains("handles SIGSYS itself"), "{said}");
    }
}

#[test]
fn registers() {
    holds("registers");
}

/// Runs a script on a pool, with `--raw` and without: it prints `content`. Returns what the library says with `--raw`.
fn says_with_raw(script: &str) -> String {
    let run = |raw: &str| {
        let volume = Volume::new();
        let output = succeed(volume.trapped(Path::new("sh"), &["-c", script]).env("IOTRAP_RAW", raw));
        assert_eq!(text(&output.stdout), "content");
        text(&output.stderr)
    };
    assert_eq!(run("0"), "");
    run("1")
}

/// The kernel's vDSO is not where it says, and a static program loads the library into another one.
#[test]
fn valgrind_runs_programs() {
    if skipped() || !Path::new("/usr/bin/valgrind").exists() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let said = says_with_raw("printf content > \"$LANE0/file\" && exec valgrind --tool=none -q cat \"$LANE0/file\"");
    assert!(said.contains("--raw is off") && said.contains("valgrind") && said.lines().count() == 1, "{said}");
}

#[test]
fn thread_sanitizer_runs() {
    if skipped() {
        return;
    }
    let program = "#include <stdio.h>\nint main(void) { return printf(\"content\") < 0; }";
    let compile = format!("echo '{program}' | LD_PRELOAD= cc -fsanitize=thread -xc - -o \"$SCRATCH/checked\"");
    let said = says_with_raw(&format!("{compile} && exec \"$SCRATCH/checked\""));
    assert!(said.contains("--raw is off") && said.contains("ThreadSanitizer"), "{said}");
}

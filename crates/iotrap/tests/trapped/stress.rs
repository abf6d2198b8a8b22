//! Threads and children that do everything at the same time; and the same under ThreadSanitizer, which sees the
//! program's side: what it shares between its threads it gets back as if nobody had touched it.

use crate::common;
use common::{Volume, compile, skipped, succeed};
use std::process::Command;

/// The tenths of a second that each program runs for.
const TENTHS: &str = "15";

const NAMES: [&str; 5] = ["descriptors", "owners", "reapers", "forks", "changes"];

#[test]
fn everything_at_the_same_time() {
    if skipped() {
        return;
    }
    let program = compile("stress", "c", &[]);
    for name in NAMES {
        for policy in ["least-loaded", "round-robin"] {
            let mut volume = Volume::new();
            volume.pool = format!("policy = \"{policy}\"\nsplit = \"8k\"");
            let output = succeed(&mut volume.trapped(&program, &[name, TENTHS]));
            assert_eq!(common::text(&output.stderr), "", "{name}");
            let ops = volume.counted().ops();
            assert!(ops.iter().all(|&ops| ops > 0), "{name}: {ops:?}");
        }
    }
}

#[test]
fn under_the_thread_sanitizer() {
    if skipped() {
        return;
    }
    let program = compile("stress", "tsan", &["-fsanitize=thread"]);
    for name in ["owners", "reapers", "changes"] {
        let volume = Volume::new();
        let mut command = volume.trapped(&program, &[name, TENTHS]);
        // The sanitizer of older compilers does not start where addresses are randomised more than it knows, and its
        // library has to be loaded before everybody else's.
        let runtime = succeed(Command::new("cc").arg("-print-file-name=libtsan.so"));
        let runtime = std::fs::canonicalize(common::text(&runtime.stdout).trim()).unwrap();
        command.env("TRAP", format!("{}:{}", runtime.display(), common::library().display()));
        // The library is not instrumented: it would see memcpy there, and none of the atomics around it.
        let suppressions = volume.path("scratch/suppressions");
        std::fs::write(&suppressions, "called_from_lib:libiotrap.so\n").unwrap();
        let options = format!("halt_on_error=1 report_signal_unsafe=0 suppressions={}", suppressions.display());
        command.env("TSAN_OPTIONS", options);
        succeed(&mut command);
        assert!(volume.counted().ops().iter().all(|&ops| ops > 0), "{name} was spread");
    }
}

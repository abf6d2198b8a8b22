//! tests/run-all fails where a test program failed once, whatever its second run says. A double of cargo stands in for
//! the tests.
mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::{directory, stdout};

/// A cargo whose program of unit tests ends in that way, and whose second run of that program says what `again` says.
fn gate(end: &str, again: &str) -> (bool, String) {
    let place = directory();
    let double = format!(
        r#"#!/bin/sh
case "$*" in
  *--no-run* | *--doc*) ;;
  *--test-threads=1*) {again} ;;
  *--bins*)
    echo 'test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s'
    {end} ;;
  *) echo 'test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s' ;;
esac
"#
    );
    let cargo = place.path().join("cargo");
    std::fs::write(&cargo, double).unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run-all");
    let output = Command::new(script).env("PATH", path).env_remove("LINT_FAILED").output().unwrap();
    (output.status.success(), stdout(&output))
}

/// The lines with which cargo reports a program that ended in that way.
fn reports(how: &str) -> String {
    format!(
        r#"printf '%s\n' "  process didn't exit successfully: \`timeout program\` ({how})" 'error: 1 target failed:' '    `-p guasi --lib`'; exit 101"#
    )
}

#[test]
fn a_run_without_a_failure_passes() {
    let (passed, said) = gate("true", "exit 1");
    assert!(passed, "{said}");
    assert_eq!(said.lines().last(), Some("plimsoll: 10 passed, 0 failed, 0 skipped"));
}

#[test]
fn a_program_that_aborts_once_in_two_runs_fails_the_run() {
    let (passed, said) = gate(&reports("signal: 6, SIGABRT: process abort signal"), "true");
    assert!(!passed, "{said}");
    assert!(said.contains("a program ended early: signal: 6"), "{said}");
    assert!(said.contains("-p guasi --lib failed; alone it passes"), "{said}");
    assert_eq!(said.lines().last(), Some("plimsoll: 10 passed, 1 failed, 0 skipped"));
}

#[test]
fn the_second_run_tells_how_a_failure_behaves() {
    for (again, told) in [
        (reports("signal: 11, SIGSEGV: invalid memory reference"), "alone it died of signal 11"),
        (reports("exit status: 124"), "alone it hung"),
        (reports("exit status: 101"), "alone it fails"),
    ] {
        let (passed, said) = gate(&reports("exit status: 124"), &again);
        assert!(!passed && said.contains(told) && said.contains("a program ended early: hung"), "{said}");
    }
}

#[test]
fn a_failed_assertion_that_passes_alone_fails_the_run() {
    let end = format!(
        "echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s'; {}",
        reports("exit status: 101")
    );
    let (passed, said) = gate(&end, "true");
    assert!(!passed, "{said}");
    assert_eq!(said.lines().last(), Some("plimsoll: 11 passed, 1 failed, 0 skipped"));
}

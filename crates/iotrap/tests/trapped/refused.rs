//! Requests that the kernel refuses: the program sees the kernel's answer, whatever lane the request would go to, and
//! no lane counts as failed.

use crate::common;
use common::{Volume, compile, skipped, succeed, text};
use std::path::Path;
use std::sync::OnceLock;

fn program() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("refused", "c", &[]))
}

/// Runs the program without the library and in each way with it: it prints the same, and the library says nothing.
fn is_refused(name: &str) {
    if skipped() {
        return;
    }
    let plain = text(&succeed(&mut Volume::new().plain(program(), &[name])).stdout);
    let ways: &[&[&str]] = &[&[], &["IOTRAP_ASYNC"], &["IOTRAP_RAW"], &["IOTRAP_RAW", "IOTRAP_ASYNC"]];
    for variables in ways.iter().filter(|way| cfg!(target_arch = "x86_64") || !way.contains(&"IOTRAP_RAW")) {
        let mut volume = Volume::new();
        volume.pool = "policy = \"round-robin\"\nsplit = \"1m\"".into();
        let mut command = volume.trapped(program(), &[name]);
        let output = succeed(command.envs(variables.iter().map(|name| (name, "1"))));
        assert_eq!((text(&output.stdout), text(&output.stderr)), (plain.clone(), String::new()), "{variables:?}");
    }
}

/// A program whose standard error nobody reads does not get SIGPIPE for the lines of the library.
#[test]
fn a_line_that_nobody_reads() {
    if skipped() {
        return;
    }
    let volume = Volume::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = volume.trapped(program(), &["by_the_mode"]);
    succeed(command.env("IOTRAP_TRACE", "1").stderr(writer));
}

#[test]
fn by_the_mode() {
    is_refused("by_the_mode");
}

#[test]
fn by_the_arguments() {
    is_refused("by_the_arguments");
}

#[test]
fn by_the_set() {
    is_refused("by_the_set");
}

#[test]
fn as_a_whole() {
    is_refused("as_a_whole");
}

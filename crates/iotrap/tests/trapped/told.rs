//! The lines of the library: what they tell, and that a program comes to no harm where nobody reads them.

use crate::common;
use common::{Volume, compile, skipped, succeed, text};
use std::process::{Command, Stdio};

/// A program that spreads requests.
fn refused() -> std::path::PathBuf {
    static BUILT: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();
    BUILT.get_or_init(|| compile("refused", "c", &[])).clone()
}

/// A lane that does not exist is told once by the library alone; `plimsoll trap` looks at the lanes itself.
#[test]
fn a_lane_that_is_not_there() {
    if skipped() {
        return;
    }
    let line = "lane2x: is not a directory, its requests go to the other lanes\n";
    for (alone, lines) in [(true, 1), (false, 0)] {
        let volume = Volume::new();
        let mut command = volume.trapped(&refused(), &["by_the_mode"]);
        command.env("IOTRAP_POOLS", volume.pools().replacen("/lane2\"", "/lane2x\"", 1));
        if !alone {
            command.env("IOTRAP_SECCOMP_FILTERS", "0");
        }
        let said = text(&succeed(&mut command).stderr);
        assert_eq!((said.matches(line).count(), said.lines().count()), (lines, lines), "{said}");
    }
}

/// A named pipe for the summary that nobody reads holds no program up: the summary is on standard error.
#[test]
fn a_summary_for_a_pipe_that_nobody_reads() {
    if skipped() {
        return;
    }
    let volume = Volume::new();
    let pipe = volume.path("scratch/pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = volume.trapped(&refused(), &["by_the_mode"]);
    let said = text(&succeed(command.env("IOTRAP_STATS", &pipe)).stderr);
    assert!(said.contains("pool p, lane"), "{said}");
}

/// The line of a program that begins with a filter of system calls: neither SIGPIPE nor the filter ends the program,
/// and a socket with a reader gets the line.
#[test]
fn a_line_under_a_filter() {
    use std::io::Read;
    if skipped() {
        return;
    }
    let program = compile("filter", "c", &["-luring"]);
    let run = |to: Stdio| {
        let volume = Volume::new();
        succeed(volume.trapped(&program, &["executes", "seccomp"]).stderr(to));
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    run(writer.into());
    let (mut reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    run(std::os::fd::OwnedFd::from(writer).into());
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert!(said.contains("begun with a filter of system calls"), "{said}");
}

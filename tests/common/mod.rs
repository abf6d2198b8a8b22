//! The parts that the end-to-end tests share: the built program, a separate directory each, and reasons to skip.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod free_port;
pub mod guest;
pub mod hosts;
pub mod loop_device;
pub mod served;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A directory on the disk that the project is built on: the one for temporary files may be memory.
pub fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for the test")
}

/// The built program, to be run in `directory`.
pub fn plimsoll(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.current_dir(directory);
    command
}

/// The output of the program with these arguments.
pub fn run(directory: &Path, arguments: &[&str]) -> Output {
    plimsoll(directory).args(arguments).output().expect("the program starts")
}

/// The output of the program with these arguments; it has to end with status 0.
pub fn succeed(directory: &Path, arguments: &[&str]) -> Output {
    let output = run(directory, arguments);
    assert!(
        output.status.success(),
        "plimsoll {arguments:?}: {}\n{}\n{}",
        output.status,
        stdout(&output),
        stderr(&output)
    );
    output
}

/// The one line on standard error with which the program must refuse these arguments, with status 2.
pub fn refused(directory: &Path, arguments: &[&str]) -> String {
    let output = run(directory, arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "plimsoll {arguments:?}: {}\n{text}", stdout(&output));
    assert_eq!(stdout(&output), "", "nothing on standard output");
    assert_eq!(text.trim_end().lines().count(), 1, "one line, not:\n{text}");
    text
}

/// Standard output as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// All of standard output as JSON: a single value and nothing else.
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}:\n{}\n{}", stdout(output), stderr(output)))
}

/// A file as JSON.
pub fn json_file(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Writes a file into a directory; its path.
pub fn file(directory: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, content).expect("a file for the test");
    path
}

/// True if a program is there; if not, the test is skipped with a reason, which is a failure under CI.
pub fn has_program(name: &str) -> bool {
    let there = std::env::var("PATH").unwrap_or_default().split(':').any(|dir| Path::new(dir).join(name).exists());
    if !there {
        skip(&format!("{name} is not installed (tests/needs installs it)"), true);
    }
    there
}

/// True if the test runs as root; if not, it is skipped.
pub fn is_root(why: &str) -> bool {
    let root = effective_user() == 0;
    if !root {
        skip(&format!("only root can {why}"), false);
    }
    root
}

fn effective_user() -> u32 {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("/proc"))
}

/// Runs the calling thread before the other programs of the machine (sched(7), SCHED_FIFO), where this is permitted.
/// Threads and programs that the thread starts afterwards inherit the priority, so that other programs do not change
/// their figures. None of them may need a whole processor for long. The error is the reason why the priority stayed.
pub fn before_other_programs() -> Result<(), String> {
    let here = std::fs::read_link("/proc/thread-self").expect("/proc");
    let thread = here.file_name().expect("a number");
    let output = Command::new("chrt").args(["--fifo", "--pid", "10"]).arg(thread).output();
    let output = output.map_err(|error| format!("chrt: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(stderr(&output).trim().to_string()) }
}

/// Says that a test does nothing here and why; what the rigs could have installed must be there under CI.
pub fn skip(reason: &str, installable: bool) {
    assert!(!installable || std::env::var("CI").as_deref() != Ok("true"), "{reason}: under CI this is a failure");
    println!("skipped: {}: {reason}", std::thread::current().name().unwrap_or("test"));
}

/// Runs a program that must succeed; its standard output.
pub fn tool(program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{}", stdout(&output), stderr(&output));
    stdout(&output)
}

/// A mounted filesystem, unmounted when dropped.
pub struct Mount(pub TempDir);

impl Mount {
    /// A new filesystem of that type; None, with the reason printed, where mounting is not possible.
    pub fn new(kind: &str, options: &str) -> Option<Mount> {
        if !is_root("mount a filesystem") {
            return None;
        }
        let directory = directory();
        let mounted = Command::new("mount").args(["-t", kind, "-o", options, kind]).arg(directory.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Mount(directory)),
            Ok(output) => {
                skip(&format!("mounting {kind} is not possible: {}", stderr(&output).trim()), false);
                None
            }
            Err(error) => {
                skip(&format!("mount: {error}"), false);
                None
            }
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status(); // what remains is removed with the directory
    }
}

/// The result of a sweep of a target at a moment, with this plateau and load line, as far as other subcommands read it.
pub fn swept(target: &str, started_unix_ms: u64, plateau_iops: f64, load_line: f64) -> String {
    let estimate = |mean: f64| serde_json::json!({ "mean": mean, "low": mean * 0.99, "high": mean * 1.01 });
    serde_json::json!({
        "kind": "sweep", "provenance": { "schema": 1, "version": "0.1.0", "command": [],
            "started_unix_ms": started_unix_ms, "machine": { "hostname": "host1", "kernel": "", "cpu": "", "cpus": 1,
            "memory_bytes": 0, "clock": "" } },
        "target": target, "axis": "iodepth", "ceiling_iops": null, "advice": "", "ended": "complete", "verdicts": [],
        "curves": [{ "label": "io_uring", "points": [], "line": { "plateau_iops": estimate(plateau_iops),
            "load_line": estimate(load_line), "overload": null, "still_rising": false } }],
    })
    .to_string()
}

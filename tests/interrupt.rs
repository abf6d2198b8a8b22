//! Ctrl-C: partial results, nothing left behind, status 130; a second one ends the program at once.

mod common;
use common::*;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn start(directory: &Path, arguments: &[&str]) -> Child {
    plimsoll(directory).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until something is true of the running program; it must not end before.
fn wait_until(child: &mut Child, what: &str, mut is_true: impl FnMut() -> bool) {
    while !is_true() {
        assert!(child.try_wait().unwrap().is_none(), "the program ended before {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Half of what is free here, to be laid out: too much to be done before the signal comes.
fn endless_layout(directory: &Path) -> String {
    let free = sys::file::space(directory).unwrap().available;
    format!("--size={}", (free / 2).min(32 << 30) >> 12 << 12)
}

fn signal(child: &Child, name: &str) {
    tool("kill", &["-s", name, &child.id().to_string()], Path::new("/"));
}

/// Whether so much of a file has been written that so many bytes are taken on the disk.
fn has_written(path: &Path, bytes: u64) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|data| data.blocks() * 512 >= bytes)
}

/// Where a sweep keeps its scratch file.
fn scratch(directory: &Path, sweep: &Child) -> PathBuf {
    let host = stdout(&Command::new("uname").arg("-n").output().unwrap());
    directory.join(format!("plimsoll-scratch.{}.{}", host.trim(), sweep.id()))
}

const ENDLESS: [&str; 8] = [
    "run",
    "--name=endless",
    "--rw=randwrite",
    "--size=1m",
    "--time_based=1",
    "--runtime=1000",
    "--unlink=1",
    "--fallocate=none",
];

#[test]
fn a_run_that_is_interrupted_prints_what_it_has() {
    for how in ["--thread=1", "--thread=0"] {
        let directory = directory();
        let mut child = start(directory.path(), &[&ENDLESS[..], &[how, "--output-format=json"]].concat());
        let data = directory.path().join("endless.0.0");
        wait_until(&mut child, "it wrote everything once", || has_written(&data, 1 << 20));
        signal(&child, "INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{how}: {}", stderr(&output));
        let result = json(&output);
        assert!(result["jobs"][0]["write"]["total_ios"].as_u64().unwrap() >= 256, "{how}");
        assert!(names(directory.path()).is_empty(), "{how}: {:?}", names(directory.path()));
    }
}

#[test]
fn an_interrupted_sweep_removes_its_scratch_file() {
    let directory = directory();
    let mut child = start(directory.path(), &["sweep", "--time=1000s", "--point-time=1000s", "--size=8m", "--json"]);
    let scratch = scratch(directory.path(), &child);
    wait_until(&mut child, "the scratch file was laid out", || has_written(&scratch, 8 << 20));
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(json(&output)["ended"], "interrupted");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_second_signal_ends_it_at_once_and_still_removes_the_scratch_file() {
    let directory = directory();
    let mut child = start(directory.path(), &["sweep", "--time=1000s", "--size=64m"]);
    let scratch = scratch(directory.path(), &child);
    wait_until(&mut child, "there was a scratch file", || scratch.exists());
    signal(&child, "TERM");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(!scratch.exists());
}

#[test]
fn a_second_signal_ends_what_the_first_could_not() {
    let directory = directory();
    let mut child = start(directory.path(), &[&ENDLESS[..], &["--thread=0"]].concat());
    let data = directory.path().join("endless.0.0");
    wait_until(&mut child, "it wrote everything once", || has_written(&data, 1 << 20));
    // A clone that stands still does not end, and the run waits for it.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let clone = children.trim().to_owned();
    tool("kill", &["-s", "STOP", &clone], Path::new("/"));
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "the first signal waits for the clone");
    // Whichever comes after the echo of the first.
    let status = loop {
        signal(&child, "INT");
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert_eq!(status.code(), Some(130));
    let _ = Command::new("kill").args(["-s", "KILL", &clone]).stderr(Stdio::null()).status(); // may have gone with it
}

#[test]
fn a_run_that_is_interrupted_while_files_are_made_says_so_in_json() {
    let directory = directory();
    let size = endless_layout(directory.path());
    let job = ["run", "--name=big", "--rw=read", &size, "--unlink=1", "--output-format=json"];
    let mut child = start(directory.path(), &job);
    let data = directory.path().join("big.0.0");
    wait_until(&mut child, "it has laid out a part", || has_written(&data, 1 << 20));
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(json(&output)["jobs"][0]["read"]["total_ios"], 0);
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}

#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let directory = directory();
    let mut child = start(directory.path(), &[&ENDLESS[..], &["--thread=1", "--output-format=json"]].concat());
    let data = directory.path().join("endless.0.0");
    wait_until(&mut child, "it wrote everything once", || has_written(&data, 1 << 20));
    // Stopped meanwhile, it finds both when it goes on.
    let both = ["STOP", "INT", "TERM", "CONT"].map(|name| format!("kill -s {name} {}", child.id())).join("; ");
    tool("sh", &["-c", &both], Path::new("/"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(json(&output)["jobs"][0]["error"], 0);
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}

#[test]
fn a_signal_to_the_whole_group_ends_the_run_in_good_order() {
    use std::os::unix::process::CommandExt;
    let directory = directory();
    let mut command = plimsoll(directory.path());
    command.args([&ENDLESS[..], &["--numjobs=2", "--output-format=json"]].concat());
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let data = directory.path().join("endless.0.0");
    wait_until(&mut child, "it wrote everything once", || has_written(&data, 1 << 20));
    tool("sh", &["-c", &format!("kill -s TERM -- -{}", child.id())], Path::new("/"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    for job in json(&output)["jobs"].as_array().unwrap() {
        assert_eq!(job["error"], 0);
    }
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));
}

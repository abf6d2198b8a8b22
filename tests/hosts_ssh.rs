//! `plimsoll run --hosts a,b,c,d`: ranks that a remote shell starts, without MPI, on hosts of their own.

mod common;
use common::hosts::{json, on_hosts, rig_tool};
use common::*;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const JOB: [&str; 8] =
    ["run", "--name=j", "--ioengine=null", "--rw=randread", "--bs=4k", "--size=1g", "--rate_iops=500", "--time_based"];

fn rigged(test: &str) {
    if ["ip", "unshare"].into_iter().all(has_program) && is_root("make hosts") {
        on_hosts(Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rigs/hosts.sh")), test);
    }
}

/// The program on the hosts of the rig, whose remote shell enters their namespaces.
fn on(hosts: &str, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = plimsoll(directory);
    command.args(&JOB[..1]).args(["--hosts", hosts]).args(&JOB[1..]).args(arguments);
    command
}

/// Starts the program, whose reports go to the file "status".
fn started(command: &mut Command, directory: &Path) -> Child {
    let reports = std::fs::File::create(directory.join("status")).expect("a file");
    command.stdout(reports).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// The processes on a host that are ranks, not agents or clones.
fn ranks_on(host: &str) -> Vec<i32> {
    let pids = stdout(&rig_tool(&["pids", host]).output().expect("the rig's tool starts"));
    let is_rank = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let parent = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = parent.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or("0").trim().to_owned();
        let parent = std::fs::read(format!("/proc/{parent}/cmdline")).unwrap_or_default();
        let second = |words: &[u8]| words.split(|byte| *byte == 0).nth(1).unwrap_or_default().to_vec();
        second(&words) == b"run" && second(&parent) == b"hosts-agent"
    };
    pids.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is_rank).collect()
}

fn send(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).expect("it is there");
}

/// Waits until the rank of each host exists: its agent has started it.
fn wait_for_ranks(child: &mut Child, hosts: &[&str]) -> Vec<i32> {
    loop {
        let ranks: Vec<i32> = hosts.iter().flat_map(|host| ranks_on(host)).collect();
        if ranks.len() == hosts.len() {
            return ranks;
        }
        assert!(child.try_wait().expect("its status").is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until the first status report is there: all ranks are at work.
fn wait_for_load(child: &mut Child, directory: &Path) {
    let log = directory.join("status");
    while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"jobs\"")) {
        assert!(child.try_wait().expect("its status").is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn four_hosts_are_one_run() {
    rigged("four_hosts_are_one_run");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_four_hosts_are_one_run() {
    let place = directory();
    let options = ["--runtime=2", "--output-format=json", "--save=result.json", "--description=it's $host"];
    let output = on("a,b,c:2,d", place.path(), &options).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let result = json(&output);
    let clients = result["client_stats"].as_array().unwrap();
    let ops = |job: &serde_json::Value| job["read"]["total_ios"].as_u64().unwrap();
    let (all, each) = clients.split_last().unwrap();
    let mut hosts: Vec<&str> = each.iter().map(|job| job["hostname"].as_str().unwrap()).collect();
    hosts.dedup();
    assert_eq!(hosts, ["a", "b", "c", "d"]);
    assert_eq!(ops(all), each.iter().map(ops).sum::<u64>());
    // Five ranks of 500 a second, for 2 s; a busy machine catches up with what it missed, but not at the end.
    assert!((4000..=5100).contains(&ops(all)), "{}", ops(all));
    // Each word reaches the host as it was typed.
    assert_eq!(each[0]["desc"], "it's a");
    let saved = json_file(&place.path().join("result.json"));
    assert_eq!((&saved["ended"], saved["hosts"]["hosts"].as_array().unwrap().len()), (&"complete".into(), 4));
}

#[test]
fn what_cannot_begin_says_why_and_leaves_nothing() {
    rigged("what_cannot_begin_says_why_and_leaves_nothing");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_what_cannot_begin_says_why_and_leaves_nothing() {
    let place = directory();
    let said = |output: &Output| {
        assert_eq!(output.status.code(), Some(2), "{}{}", stdout(output), stderr(output));
        stderr(output)
    };
    let unknown = said(&on("a,nohost", place.path(), &["--runtime=60"]).output().unwrap());
    assert!(unknown.contains("plimsoll: nohost: ") && unknown.contains("could not start"), "{unknown}");
    let engine = said(&on("a,b", place.path(), &["--ioengine=nosuch"]).output().unwrap());
    assert!(engine.contains("unknown engine nosuch") && engine.lines().count() == 1, "{engine}");
    let list = said(&on("a,,b", place.path(), &[]).output().unwrap());
    assert!(list.contains("--hosts"), "{list}");
    let shell = said(&on("a,b", place.path(), &[]).env("PLIMSOLL_SSH", "/nonexistent/ssh").output().unwrap());
    assert!(shell.contains("cannot start /nonexistent/ssh"), "{shell}");
    for host in ["a", "b"] {
        while !ranks_on(host).is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert!(names(place.path()).is_empty(), "{:?}", names(place.path()));
}

#[test]
fn a_lost_rank_is_named_and_the_rest_is_reported() {
    rigged("a_lost_rank_is_named_and_the_rest_is_reported");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_a_lost_rank_is_named_and_the_rest_is_reported() {
    let place = directory();
    let status = ["--output-format=json", "--status-interval=1"];
    let mut run = on("a,b,c", place.path(), &[&status[..], &["--runtime=600", "--save=result.json"]].concat());
    let mut child = started(&mut run, place.path());
    let ranks = wait_for_ranks(&mut child, &["a", "b", "c"]);
    wait_for_load(&mut child, place.path());
    send(ranks[2], rustix::process::Signal::KILL);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let saved = json_file(&place.path().join("result.json"));
    assert_eq!(saved["ended"], "failed");
    let failures = saved["hosts"]["failures"].as_array().unwrap();
    let lost: Vec<&str> = failures.iter().map(|failure| failure["host"].as_str().unwrap()).collect();
    assert_eq!(lost, ["c"], "{failures:?}");
    assert!(saved["jobs"][0]["directions"]["read"]["ops"].as_u64() > Some(0));
}

#[test]
fn ranks_end_with_the_program_that_started_them() {
    rigged("ranks_end_with_the_program_that_started_them");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_ranks_end_with_the_program_that_started_them() {
    let place = directory();
    let status = ["--output-format=json", "--status-interval=1", "--runtime=600"];
    // Ctrl-C, which a terminal sends to the whole group: a partial result, of all ranks.
    let mut run = on("a,b", place.path(), &[&status[..], &["--save=result.json"]].concat());
    std::os::unix::process::CommandExt::process_group(&mut run, 0);
    let mut child = started(&mut run, place.path());
    wait_for_load(&mut child, place.path());
    let group = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).expect("it is there");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let saved = json_file(&place.path().join("result.json"));
    assert_eq!(
        (&saved["ended"], saved["hosts"]["failures"].as_array().map(Vec::len)),
        (&"interrupted".into(), Some(0))
    );
    // Killed: nothing stays behind.
    let mut child = started(&mut on("a,b", place.path(), &status), place.path());
    wait_for_ranks(&mut child, &["a", "b"]);
    child.kill().unwrap();
    child.wait().unwrap();
    for host in ["a", "b"] {
        while !ranks_on(host).is_empty() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

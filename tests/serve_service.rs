//! `plimsoll serve` as a service of systemd: the words of sd_notify(3), and the unit that packages bring.

mod common;
use common::served::Served;
use common::*;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd/plimsoll-serve.service")
}

/// Receives what the service says until it has said `awaited`; a service that ends or hangs fails the test.
fn hear(socket: &UnixDatagram, awaited: &str) {
    let mut buffer = [0; 256];
    loop {
        let bytes = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("no {awaited}: {error}"));
        if &buffer[..bytes] == awaited.as_bytes() {
            return;
        }
    }
}

#[test]
fn systemd_hears_when_the_target_is_ready_lives_and_ends() {
    let place = directory();
    let path = place.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    // Not a limit on the target's speed: a target that says nothing fails the test instead of hanging it.
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let mut service = plimsoll(place.path())
        .args(["serve", "--null", "1g", "--listen", "127.0.0.1:0", "--rpc-socket", "rpc.sock"])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "30000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    hear(&socket, "READY=1");
    (0..5).for_each(|_| hear(&socket, "WATCHDOG=1"));
    tool("kill", &["-TERM", &service.id().to_string()], place.path());
    hear(&socket, "STOPPING=1");
    assert_eq!(service.wait().expect("it ends").code(), Some(0));
}

/// An upgrade: the target ends in good order and another one takes its place, while a host writes and then verifies.
/// The host sees no error.
#[test]
fn a_restart_under_a_verifying_host_is_no_error() {
    let place = directory();
    let arguments = ["--state", "state", "--file", "disk.img", "--create", "64m"];
    let mut served = Served::one_to_restart(place.path(), &arguments);
    let reads = |served: &Served| served.rpc(&["bdev_get_iostat"])["bdevs"][0]["num_write_ops"].as_u64().unwrap_or(0);
    let mut load = plimsoll(place.path())
        .args(["run", "--name=v", "--ioengine=nvme_tcp", "--rw=randwrite", "--bs=4k", "--size=64m", "--iodepth=16"])
        .args(["--verify=crc32c", "--loops=3", "--rate_iops=8000", "--eta=never", "--output-format=json"])
        .arg(served.filename(1))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the load starts");
    for _ in 0..2 {
        while reads(&served) < 2000 {
            assert!(load.try_wait().expect("its status").is_none(), "it has ended");
        }
        served = served.upgrade();
    }
    let output = load.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stderr(&output));
    let job = &json(&output)["jobs"][0];
    assert_eq!(job["error"], 0);
    served.end();
}

/// The unit allows little more than the target needs: systemd rates what is left from 0 to 10.
#[test]
fn the_unit_is_hardened() {
    if !has_program("systemd-analyze") {
        return;
    }
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=30", "--no-pager"])
        .arg(unit())
        .output()
        .expect("systemd-analyze starts");
    assert!(output.status.success(), "beyond 3.0:\n{}{}", stdout(&output), stderr(&output));
}

/// Every system call of a target at work is one that the filter of the unit allows. The service manager cannot run
/// everywhere, so strace(1) stands in for it.
#[test]
fn the_filter_of_system_calls_allows_what_the_target_does() {
    if !has_program("systemd-analyze") || !has_program("strace") {
        return;
    }
    let text = std::fs::read_to_string(unit()).expect("the unit");
    assert!(text.contains("\nSystemCallFilter=@system-service\n"), "{text}");
    let allowed = calls_of("@system-service");
    assert!(allowed.iter().any(|call| call == "io_uring_enter") && allowed.len() > 200, "{allowed:?}");
    let place = directory();
    let trace = place.path().join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", trace.to_str().expect("text"), env!("CARGO_BIN_EXE_plimsoll"), "serve"]);
    command.args(["--state", "state", "--file", "disk.img", "--create", "16m", "--listen", "127.0.0.1:0"]);
    command.args([
        "--reactors",
        "2",
        "--metrics",
        &common::served::free_port().to_string(),
        "--rpc-socket",
        "rpc.sock",
    ]);
    let mut service =
        command.current_dir(place.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("strace");
    let mut said = std::io::BufReader::new(service.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("Metrics:") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).expect("text") > 0, "it has ended");
    }
    let rpc = |words: &[&str]| succeed(place.path(), &[&["rpc", "-s", "rpc.sock"], words].concat());
    let subsystems = json(&rpc(&["nvmf_get_subsystems"]));
    let port = subsystems[0]["listen_addresses"][0]["trsvcid"].as_str().expect("a port");
    let filename = format!(
        "--filename=trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid={port} subnqn={} ns=1",
        common::served::NQN
    );
    let load = [
        "run",
        "--name=a",
        "--ioengine=nvme_tcp",
        "--rw=randrw",
        "--bs=4k",
        "--number_ios=200",
        "--fsync=8",
        "--eta=never",
    ];
    succeed(place.path(), &[&load[..], &[&filename]].concat());
    rpc(&["spdk_kill_instance", "sig_name=SIGTERM"]);
    assert!(service.wait().expect("it ends").success());
    let trace = std::fs::read_to_string(&trace).expect("a trace");
    let mut made: Vec<&str> = trace
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1)?.split_once('('))
        .map(|(call, _)| call)
        .collect();
    made.sort_unstable();
    made.dedup();
    // The loader's call, which systemd adds to each filter.
    let refused: Vec<&&str> =
        made.iter().filter(|call| **call != "execve" && !allowed.iter().any(|it| it == **call)).collect();
    assert!(refused.is_empty() && made.contains(&"io_uring_enter"), "refused: {refused:?} of {made:?}");
}

/// The system calls of a set of systemd, with those of the sets in it.
fn calls_of(set: &str) -> Vec<String> {
    let text = tool("systemd-analyze", &["syscall-filter", "--no-pager", set], Path::new("/"));
    let members = text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    members
        .flat_map(|member| if member.starts_with('@') { calls_of(member) } else { vec![member.to_string()] })
        .collect()
}

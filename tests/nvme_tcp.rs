//! The messages that users of `ioengine=nvme_tcp` are told when a namespace cannot be reached, or would be destroyed.

mod common;
use common::served::{NQN, Served, closed_port};
use common::*;
use serde_json::Value;
use std::path::Path;

const HOST: &str = "nqn.2016-06.io.spdk:host1";

fn load<'a>(filename: &'a str, rw: &'a str) -> Vec<&'a str> {
    let host = "--hostnqn=nqn.2016-06.io.spdk:host1";
    vec!["run", "--name=a", "--ioengine=nvme_tcp", "--bs=4k", "--size=64k", "--eta=never", host, filename, rw]
}

#[test]
fn what_cannot_be_reached_is_one_line_that_says_what_there_is() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--mem", "8m", "--null", "1g", "--allow-host", HOST]);
    let port = served.port();
    let (closed, _taken) = closed_port();
    let at = |port: u16, rest: &str| format!("--filename=trtype=tcp traddr=127.0.0.1 trsvcid={port} {rest}");
    let other = "nqn.2016-06.io.spdk:other";
    for (filename, host, parts) in [
        (at(port, &format!("subnqn={NQN} ns=9")), HOST, &["no namespace 9", NQN, "has 1, 2 (give ns=)"][..]),
        (at(port, &format!("subnqn={NQN}")), HOST, &["no namespace is named", "has 1, 2 (give ns=)"]),
        (
            at(port, &format!("subnqn={other} ns=1")),
            HOST,
            &["no subsystem", other, &format!("there is {NQN}: give subnqn=")],
        ),
        (at(port, &format!("subnqn={NQN} ns=1")), other, &["Connect Invalid Host", other, "hosts that are listed"]),
        (at(port, "ns=1"), other, &["no subsystem is offered to this host"]),
        (at(closed, &format!("subnqn={NQN} ns=1")), HOST, &["Connection refused", "nothing listens there"]),
        (at(0, &format!("subnqn={NQN} ns=1")), HOST, &["trsvcid=0 is not a port"]),
    ] {
        let host = format!("--hostnqn={host}");
        let line = refused(place.path(), &[&load(&filename, "--rw=randread")[..], &[&host]].concat());
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
    }
    served.end();
}

/// An error number says less than the controller does: the message has the status.
#[test]
fn a_refusal_within_a_job_names_the_status_of_the_controller() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--mem", "8m", "--ana", "--allow-host", HOST]);
    let (nqn, port) = (format!("nqn={NQN}"), format!("listen_address.trsvcid={}", served.port()));
    let at = [nqn.as_str(), "listen_address.traddr=127.0.0.1", &port, "ana_state=inaccessible"];
    served.rpc(&[&["nvmf_subsystem_listener_set_ana_state"], &at[..]].concat());
    let output = run(place.path(), &load(&served.filename(1), "--rw=randread"));
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the controller answered Asymmetric Access Inaccessible (SCT 3h, SC 02h)"), "{said}");
    served.end();
}

/// The fill of a preconditioning reaches the namespace as the sweep does, and destroys nothing without leave.
#[test]
fn a_sweep_preconditions_a_namespace_as_the_host_that_it_sweeps_as() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--mem", "8m", "--allow-host", HOST]);
    let (filename, host) = (served.filename(1), format!("--hostnqn={HOST}"));
    let rounds = ["sweep", "--precondition", "--precondition-round=50ms", "--precondition-rounds=5", "--iodepth=1,2"];
    let sweep = ["--engine=nvme_tcp", &host, "--time=1s", "--size=4m", "--json", &filename];
    let line = refused(place.path(), &[&rounds[..], &sweep].concat());
    assert!(line.contains("--precondition would destroy what is there; --allow-writes insists"), "{line}");
    let result = json(&succeed(place.path(), &[&rounds[..], &sweep, &["--allow-writes"]].concat()));
    assert_eq!(result["preconditioning"]["fill_bytes"], 8 << 20, "{}", result["preconditioning"]);
    served.end();
}

/// As for block devices: what carries a file system is written over only if the user insists.
#[test]
fn a_namespace_with_a_file_system_is_not_written_over_unasked() {
    if !has_program("mkfs.ext4") {
        return;
    }
    let place = directory();
    tool("truncate", &["-s", "16m", "disk.img"], place.path());
    tool("mkfs.ext4", &["-q", "-F", "disk.img"], place.path());
    let before = std::fs::read(place.path().join("disk.img")).expect("an image");
    for block in ["512", "4096"] {
        let arguments = ["--file", "disk.img", "--block-size", block, "--mem", "8m", "--allow-host", HOST];
        let served = Served::one_line(place.path(), &arguments);
        let filename = served.filename(2); // memory comes first
        for rw in ["--rw=randwrite", "--rw=randtrim", "--rw=randrw"] {
            let line = refused(place.path(), &load(&filename, rw));
            assert!(line.contains("refusing to write to") && line.contains("carries ext2/ext3/ext4"), "{line}");
        }
        let sweep = ["sweep", "--ioengine=nvme_tcp", "--rw=randwrite", "--bs=4k", "--hostnqn", HOST, &filename];
        let line = refused(place.path(), &sweep);
        assert!(line.contains("carries ext2/ext3/ext4"), "{line}");
        succeed(place.path(), &load(&filename, "--rw=randread"));
        assert!(std::fs::read(place.path().join("disk.img")).expect("an image") == before, "nothing was written");
        succeed(place.path(), &load(&served.filename(1), "--rw=randwrite"));
        if block == "4096" {
            succeed(place.path(), &[&load(&filename, "--rw=write")[..], &["--allow-signature"]].concat());
        }
        served.end();
    }
    assert!(std::fs::read(place.path().join("disk.img")).expect("an image") != before, "then it is written");
}

/// A log is replayed on a namespace: nothing of that name is made here, and what carries something is kept.
#[test]
fn a_log_is_replayed_on_a_namespace() {
    let place = directory();
    file(
        place.path(),
        "trace.log",
        "fio version 2 iolog\nd add\nd open\nd write 4096 4096\nd read 4096 4096\nd close\n",
    );
    let served = Served::one_line(place.path(), &["--file", "disk.img", "--create", "8m"]);
    let onto = format!("--replay_redirect={}", served.namespace(1));
    let replay = ["run", "--name=a", "--ioengine=nvme_tcp", "--read_iolog=trace.log", "--eta=never", &onto];
    let output = succeed(place.path(), &[&replay[..], &["--output-format=json"]].concat());
    let job = &json(&output)["jobs"][0];
    assert_eq!((job["write"]["total_ios"].as_u64(), job["read"]["total_ios"].as_u64()), (Some(1), Some(1)));
    assert!(names(place.path()).iter().all(|name| !name.contains("trtype")), "{:?}", names(place.path()));

    let image = place.path().join("disk.img");
    let disk = std::fs::File::options().write(true).open(image).expect("an image");
    std::os::unix::fs::FileExt::write_all_at(&disk, b"XFSB", 0).expect("written");
    drop(disk);
    let line = refused(place.path(), &replay);
    assert!(line.contains("carries xfs"), "{line}");
    served.end();
}

#[path = "../crates/nvme_initiator/tests/double/mod.rs"]
mod double;
use double::{Mood, Style, Wrong};
use nvme::spec::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A fault of a target, and what a run makes of it.
struct Fault {
    name: &'static str,
    mood: Mood,
    rw: &'static str,
    more: &'static [&'static str],
    /// The count of the events; empty if a single fault ends the run.
    count: &'static str,
    /// The words of the error, where the fault stays.
    says: &'static str,
}

const READ: &str = "--rw=randread";
const WRITE: &str = "--rw=randwrite";

fn faults() -> Vec<Fault> {
    let (header, data) = (&["--digest_enable=HEADER"][..], &["--digest_enable=DATA"][..]);
    let fault = |name, mood, rw, count, says| Fault { name, mood, rw, more: &[], count, says };
    let breaks = |name, wrong, rw, says| fault(name, Mood::Wrong(wrong), rw, "connections_lost", says);
    let status = |name, status, count, says| fault(name, Mood::Fail(status), READ, count, says);
    vec![
        fault("close", Mood::Close, READ, "connections_lost", "closed the connection"),
        fault("silence", Mood::Ignore, READ, "timeouts", "no answer for 1 s"),
        breaks("data with a gap", Wrong::Gap, READ, "DATAO"),
        breaks("data twice", Wrong::Twice, READ, "DATAO"),
        breaks("more data than asked for", Wrong::Over, READ, "DATAL"),
        breaks("data at a wrong offset", Wrong::Offset, READ, "DATAO"),
        breaks("data for another command", Wrong::OtherCommand, READ, "CCCID"),
        Fault { more: header, ..breaks("a wrong header digest", Wrong::HeaderDigest, READ, "HDGST") },
        breaks("R2T for too much", Wrong::R2tOver, WRITE, "R2TL"),
        breaks("R2T for nothing", Wrong::R2tEmpty, WRITE, "R2TL"),
        breaks("R2T at a wrong offset", Wrong::R2tOffset, WRITE, "R2TO"),
        breaks("R2T for a read", Wrong::R2tForRead, READ, "CCCID"),
        fault(
            "an early response to a read",
            Mood::Wrong(Wrong::Early),
            READ,
            "requests_retried",
            "damaged, or missing",
        ),
        fault(
            "an early response to a write",
            Mood::Wrong(Wrong::Early),
            WRITE,
            "requests_retried",
            "damaged, or missing",
        ),
        fault("half of the data", Mood::Shorten, READ, "requests_retried", "damaged, or missing"),
        Fault {
            more: data,
            ..fault("a wrong data digest", Mood::Damage, READ, "requests_retried", "damaged, or missing")
        },
        status("not ready", Status::NAMESPACE_NOT_READY, "requests_retried", "Namespace Not Ready"),
        status("no path", Status::ANA_INACCESSIBLE, "path_waits", "Asymmetric Access Inaccessible"),
        status("aborted by the host", Status::ABORTED_BY_HOST, "path_waits", "Command Aborted By Host"),
        status("not ready for good", Status::NAMESPACE_NOT_READY.do_not_retry(), "", "Namespace Not Ready"),
        status("out of range", Status::LBA_OUT_OF_RANGE.do_not_retry(), "", "LBA Out of Range"),
    ]
}

/// A target with the fault in the reads, or in the writes, that `when` names by their number from 0. Writes move by
/// R2T.
fn faulty(mood: &Mood, rw: &str, when: impl Fn(u32) -> bool + Send + Sync + 'static) -> (double::Server, String) {
    let opcode = if rw == WRITE { nvme::spec::opcode::io::WRITE } else { nvme::spec::opcode::io::READ };
    let (count, mood) = (AtomicU32::new(0), mood.clone());
    let whim: double::Whim = Arc::new(move |command| {
        let is_hit = command.opcode == opcode && when(count.fetch_add(1, Ordering::Relaxed));
        if is_hit { mood.clone() } else { Mood::Serve }
    });
    let style = Style { capsule_bytes: 0, ..Style::default() };
    let subnqn = style.subnqn;
    let server = double::Server::start(style, 1 << 20, whim);
    let port = server.address.port();
    (server, format!("trtype=tcp traddr=127.0.0.1 trsvcid={port} subnqn={subnqn} ns=1"))
}

/// Limits that are short because the target is near.
const LIMITS: [&str; 5] =
    ["--number_ios=120", "--iodepth=4", "--reconnect_delay=0", "--io_timeout=1", "--ctrl_loss_tmo=2"];

/// Controllers of a run without a fault: one for the look at the namespace beforehand, and one for the requests. Each
/// has a connection of administration and one for requests.
const CONTROLLERS: u32 = 2;

/// Codes of all verdicts of a job.
fn verdicts(job: &Value) -> Vec<&str> {
    job["verdicts"].as_array().expect("verdicts").iter().filter_map(|verdict| verdict["code"].as_str()).collect()
}

/// A run against this target: its status, its report, and its job as saved.
fn run_against(place: &Path, filename: &str, fault: &Fault) -> (Option<i32>, String, Value) {
    let filename = format!("--filename={filename}");
    let arguments = [&load(&filename, fault.rw)[..], &LIMITS, fault.more, &["--save=saved.json"]].concat();
    let output = run(place, &arguments);
    let saved = json_file(&place.join("saved.json"));
    (output.status.code(), stdout(&output), saved["jobs"][0].clone())
}

/// A fault that passes costs the run nothing but time, which the result says in text, in both kinds of JSON and as a
/// verdict. Do Not Retry is the exception.
#[test]
fn each_fault_that_passes_is_survived_counted_and_warned_of() {
    let place = directory();
    for fault in faults() {
        let (server, filename) = faulty(&fault.mood, fault.rw, |number| number == 5);
        let (status, said, job) = run_against(place.path(), &filename, &fault);
        let name = fault.name;
        if fault.count.is_empty() {
            assert_eq!((status, said.contains(fault.says)), (Some(1), true), "{name}: {said}");
            continue;
        }
        assert_eq!((status, said.contains("\n  disturbed ")), (Some(0), true), "{name}: {said}");
        assert!(job["disturbances"][fault.count].as_u64() > Some(0), "{name}: {}", job["disturbances"]);
        assert!(verdicts(&job).contains(&"disturbed"), "{name}: {:?}", verdicts(&job));
        let repeated = job["disturbances"]["requests_repeated"].as_u64().unwrap();
        assert!(repeated <= 4, "{name}: the requests of one connection, once: {repeated}");
        let connections = server.connections.load(Ordering::Relaxed);
        assert!(connections <= 2 * CONTROLLERS + 2, "{name}: {connections} connections");
    }
    let (_server, filename) = faulty(&Mood::Close, READ, |number| number == 5);
    let filename = format!("--filename={filename}");
    let output = run(place.path(), &[&load(&filename, READ)[..], &LIMITS, &["--output-format=json"]].concat());
    assert!(json(&output)["jobs"][0]["disturbances"]["connections_lost"].as_u64() > Some(0), "{}", stdout(&output));
}

/// A fault that stays ends the run: the error names it, and the target is not flooded with connections.
#[test]
fn each_fault_that_stays_ends_the_run_with_its_name() {
    let place = directory();
    for fault in faults() {
        for from in [0, 5] {
            let (server, filename) = faulty(&fault.mood, fault.rw, move |number| number >= from);
            let (status, said, job) = run_against(place.path(), &filename, &fault);
            let name = fault.name;
            assert_eq!((status, said.contains(fault.says)), (Some(1), true), "{name}, from {from}: {said}");
            if !fault.count.is_empty() {
                assert!(job["disturbances"][fault.count].as_u64() > Some(0), "{name}: {}", job["disturbances"]);
                assert!(verdicts(&job).contains(&"disturbed"), "{name}: {:?}", verdicts(&job));
            }
            // Four requests in flight with six attempts each, together or one after the other.
            let connections = server.connections.load(Ordering::Relaxed);
            assert!(connections <= 2 * (CONTROLLERS + 4 * 6), "{name}, from {from}: {connections} connections");
        }
    }
}

/// Without answers to keep-alives the connection is given up and made again, as often as the run is long.
#[test]
fn a_target_without_keep_alives_is_left_and_found_again() {
    let place = directory();
    let style = Style { keep_alive: false, ..Style::default() };
    let server = double::Server::start(style, 1 << 20, Arc::new(|_| Mood::Serve));
    let (port, nqn) = (server.address.port(), Style::default().subnqn);
    let filename = format!("--filename=trtype=tcp traddr=127.0.0.1 trsvcid={port} subnqn={nqn} ns=1");
    let more = ["--keep_alive_tmo=1", "--reconnect_delay=0", "--time_based", "--runtime=3", "--save=saved.json"];
    let output = succeed(place.path(), &[&load(&filename, READ)[..], &more].concat());
    let job = &json_file(&place.path().join("saved.json"))["jobs"][0];
    assert!(job["disturbances"]["connections_lost"].as_u64() > Some(0), "{}", stdout(&output));
    assert!(verdicts(job).contains(&"disturbed"), "{}", stdout(&output));
}

/// A sweep and a comparison go on through faults that pass, and count them; one that stays ends them.
#[test]
fn a_sweep_and_a_comparison_count_the_faults_of_a_target() {
    let place = directory();
    let job = |filename: &str| {
        let lines = ["[j]", "ioengine=nvme_tcp", "rw=randread", "bs=4k", "size=1m", "number_ios=120", "io_timeout=1"];
        // A colon separates files, and `=` and spaces stand for themselves.
        format!("{}\nreconnect_delay=0\nctrl_loss_tmo=2\nfilename={filename}\n", lines.join("\n"))
    };
    for (mood, says) in [
        (Mood::Close, "closed the connection"),
        (Mood::Wrong(Wrong::Gap), "DATAO"),
        (Mood::Fail(Status::NAMESPACE_NOT_READY), "Namespace Not Ready"),
    ] {
        let (_server, filename) = faulty(&mood, READ, |number| number % 40 == 5);
        let sweep = ["sweep", "--engine=nvme_tcp", "--iodepth=1,4", "--time=1s", "--bs=4k", "--size=64k", "--json"];
        let limits = ["--reconnect_delay=0", "--io_timeout=1", "--ctrl_loss_tmo=2", &filename];
        let result = json(&succeed(place.path(), &[&sweep[..], &limits].concat()));
        let points = result["curves"][0]["points"].as_array().expect("points");
        for point in points {
            let (count, codes) = (&point["job"]["disturbances"], verdicts(&point["job"]));
            let events = count["connections_lost"].as_u64().max(count["requests_retried"].as_u64());
            assert!(events > Some(0) && codes.contains(&"disturbed"), "{mood:?}: {count} {codes:?}");
        }
        let (_quiet, other) = faulty(&Mood::Serve, READ, |_| false);
        file(place.path(), "a.fio", job(&filename));
        file(place.path(), "b.fio", job(&other));
        let compare = ["compare", "a.fio", "b.fio", "--pairs=2", "--json"];
        let result = json(&run(place.path(), &compare));
        let said: Vec<&str> = result["verdicts"]
            .as_array()
            .expect("verdicts")
            .iter()
            .filter(|one| one["code"] == "disturbed")
            .filter_map(|one| one["what"].as_str())
            .collect();
        assert!(matches!(said[..], [one] if one.starts_with("A: the run met ")), "{mood:?}: {said:?}");

        let (_server, filename) = faulty(&mood, READ, |number| number >= 5);
        let limits = ["--reconnect_delay=0", "--io_timeout=1", "--ctrl_loss_tmo=2", &filename];
        let line = refused(place.path(), &[&sweep[..], &limits].concat());
        assert!(line.contains(says), "{mood:?}: {line}");
    }
}

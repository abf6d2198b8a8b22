//! The messages that users of `ioengine=nvme_tcp` are told when a namespace cannot be reached, or would be destroyed.

mod common;
use common::served::{NQN, Served, closed_port};
use common::*;

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

#[path = "../crates/nvmf/tests/double/mod.rs"]
mod double;
use double::{Mood, Style, Whim};
use nvmf::pdu::{Agreement, C2hData, MAX_HEADER_BYTES, R2t};
use nvmf::spec::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A target whose I/O commands have this fate, by their number.
fn faulty(fate: impl Fn(u32, u16) -> Mood + Send + Sync + 'static) -> double::Server {
    let count = AtomicU32::new(0);
    let whim: Whim = Arc::new(move |command| fate(count.fetch_add(1, Ordering::Relaxed), command.cid));
    double::Server::start(Style::default(), 1 << 20, whim)
}

fn unit(write: impl FnOnce(&Agreement, &mut [u8]) -> usize, data: usize) -> Vec<u8> {
    let mut bytes = vec![0; MAX_HEADER_BYTES];
    let len = write(&Agreement::default(), &mut bytes);
    bytes.truncate(len);
    bytes.resize(len + data, 0);
    bytes
}

fn at(server: &double::Server) -> String {
    let nqn = Style::default().subnqn;
    format!("--filename=trtype=tcp traddr=127.0.0.1 trsvcid={} subnqn={nqn} ns=1", server.address.port())
}

/// Each connection lost, each retry and each repeat is in the text, in fio's JSON, and a warning.
#[test]
fn events_that_distort_a_run_are_counted_and_warned_of() {
    let place = directory();
    for (name, count, fate) in [
        (
            "close",
            "connections_lost",
            (|n, _| if n % 10 == 5 { Mood::Close } else { Mood::Serve }) as fn(u32, u16) -> Mood,
        ),
        ("not ready", "requests_retried", |n, _| {
            if n % 10 == 5 { Mood::Fail(Status::NAMESPACE_NOT_READY) } else { Mood::Serve }
        }),
        ("path", "path_waits", |n, _| if n == 5 { Mood::Fail(Status::ANA_INACCESSIBLE) } else { Mood::Serve }),
        ("by host", "path_waits", |n, _| if n == 5 { Mood::Fail(Status::ABORTED_BY_HOST) } else { Mood::Serve }),
        ("damage", "requests_retried", |n, _| if n == 5 { Mood::Shorten } else { Mood::Serve }),
        ("silent", "timeouts", |n, _| if n == 5 { Mood::Ignore } else { Mood::Serve }),
    ] {
        let server = faulty(fate);
        let filename = at(&server);
        let limits = ["--number_ios=120", "--reconnect_delay=0", "--io_timeout=1", "--iodepth=4"];
        let output = run(place.path(), &[&load(&filename, "--rw=randread")[..], &limits].concat());
        let said = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{name}: {said}");
        assert!(said.contains("disturbed"), "{name}: {said}");
        let json = [&limits[..], &["--output-format=json"]].concat();
        let server = faulty(fate);
        let filename = at(&server);
        let said = stdout(&run(place.path(), &[&load(&filename, "--rw=randread")[..], &json].concat()));
        let value: serde_json::Value = serde_json::from_str(&said).expect(&said);
        assert!(value["jobs"][0]["disturbances"][count].as_u64() > Some(0), "{name}: {said}");
    }
}

/// A fault that repeats do not mend ends the run in bounded time, and the error names the fault.
#[test]
fn a_target_that_never_serves_ends_the_run_with_its_fault() {
    let place = directory();
    let gap =
        |cid| unit(|a, out| C2hData { cid, offset: 512, length: 512, last: false, success: false }.write(a, out), 512);
    let r2t = |cid| unit(|a, out| R2t { cid, ttag: 9, offset: 0, length: 4096 }.write(a, out), 0);
    let unknown = |cid: u16| {
        unit(|a, out| C2hData { cid: cid + 99, offset: 0, length: 512, last: false, success: false }.write(a, out), 512)
    };
    type Fate = Box<dyn Fn(u32, u16) -> Mood + Send + Sync>;
    let faults: [(&str, Fate); 6] = [
        ("closed the connection", Box::new(|_, _| Mood::Close)),
        ("DATAO", Box::new(move |_, cid| Mood::Say(gap(cid)))),
        ("CCCID", Box::new(move |_, cid| Mood::Say(r2t(cid)))),
        ("CCCID", Box::new(move |_, cid| Mood::Say(unknown(cid)))),
        ("no answer for 1 s", Box::new(|_, _| Mood::Ignore)),
        ("LBA Out of Range", Box::new(|_, _| Mood::Fail(Status::LBA_OUT_OF_RANGE.do_not_retry()))),
    ];
    for (fault, fate) in faults {
        let server = faulty(fate);
        let filename = at(&server);
        let limits = ["--number_ios=120", "--reconnect_delay=0", "--io_timeout=1", "--iodepth=4"];
        let output = run(place.path(), &[&load(&filename, "--rw=randread")[..], &limits].concat());
        let said = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{fault}: {said}");
        assert!(said.contains(fault), "{fault}: {said}");
    }
}

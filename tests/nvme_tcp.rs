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

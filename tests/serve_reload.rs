//! A configuration that changes while a target serves: SIGHUP, `plimsoll rpc load_config`, and files of SPDK's old
//! form.

mod common;
use common::served::{NQN, Served, free_port};
use common::*;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

/// A configuration with these devices of the sizes in MiB, each a namespace of one subsystem, and what is added to it.
fn configuration(port: u16, disks: &[(&str, u64)], more: &[Value]) -> String {
    let call = |method: &str, params: Value| json!({ "method": method, "params": params });
    let bdev: Vec<Value> = disks
        .iter()
        .map(|(name, mib)| {
            call(
                "bdev_uring_create",
                json!({ "name": name, "filename": format!("{name}.img"), "create_size": mib << 20 }),
            )
        })
        .collect();
    let mut nvmf = vec![
        call("nvmf_create_transport", json!({ "trtype": "TCP" })),
        call("nvmf_create_subsystem", json!({ "nqn": NQN, "allow_any_host": true })),
    ];
    for (name, _) in disks {
        let nsid: u32 = name.trim_start_matches("disk").parse().expect("a number");
        nvmf.push(call(
            "nvmf_subsystem_add_ns",
            json!({ "nqn": NQN, "namespace": { "nsid": nsid, "bdev_name": name } }),
        ));
    }
    nvmf.extend(more.iter().cloned());
    let to = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": port.to_string() });
    nvmf.push(call("nvmf_subsystem_add_listener", json!({ "nqn": NQN, "listen_address": to })));
    json!({ "subsystems": [
        { "subsystem": "bdev", "config": bdev }, { "subsystem": "nvmf", "config": nvmf }
    ] })
    .to_string()
}

fn served(place: &Path, text: &str, more: &[&str]) -> (Served, PathBuf) {
    let path = file(place, "target.json", text);
    let served = Served::start(place, &[&["-c", "target.json"], more].concat());
    (served, path)
}

/// The next line of the log with this part.
fn wait_for(log: &mut impl Iterator<Item = String>, part: &str) -> String {
    let mut seen = Vec::new();
    for line in log {
        if line.contains(part) {
            return line;
        }
        seen.push(line);
    }
    panic!("no line has {part:?}: {seen:#?}")
}

fn names(served: &Served) -> Vec<String> {
    let devices = served.rpc(&["bdev_get_bdevs"]);
    devices.as_array().expect("devices").iter().map(|device| device["name"].as_str().expect("text").into()).collect()
}

/// A host writes and verifies while the configuration changes around it: its connections last.
#[test]
fn connections_of_what_does_not_change_last() {
    let place = directory();
    let port = free_port();
    let text = |disks: &[(&str, u64)], more: &[Value]| configuration(port, disks, more);
    let (mut served, path) = served(place.path(), &text(&[("disk1", 64), ("disk2", 8)], &[]), &[]);
    let mut log = served.log();
    let mut load = plimsoll(place.path())
        .args(["run", "--name=v", "--ioengine=nvme_tcp", "--rw=randwrite", "--bs=4k", "--size=16m", "--iodepth=16"])
        .args(["--verify=crc32c", "--loops=100000", "--rate_iops=8000", "--eta=never", "--output-format=json"])
        .arg(served.filename(1))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the load starts");
    let controllers = || served.rpc(&["nvmf_subsystem_get_controllers", &format!("nqn={NQN}")]);
    // The program looks at the namespace first, as a host of its own.
    let writes = || served.rpc(&["bdev_get_iostat"])["bdevs"][0]["num_write_ops"].as_u64().unwrap_or(0);
    while writes() < 1000 {
        assert!(load.try_wait().expect("its status").is_none(), "it has ended");
    }
    let before = controllers();
    let host =
        json!({ "method": "nvmf_subsystem_add_host", "params": { "nqn": NQN, "host": "nqn.2014-08.org.example:h" } });
    for (disks, more, said) in [
        (&[("disk1", 64), ("disk3", 8)][..], &[][..], "2 added, 0 changed, 0 made anew, 2 removed, 5 unchanged"),
        (&[("disk1", 64), ("disk3", 8)], &[host], "1 added, 0 changed, 0 made anew, 0 removed, 7 unchanged"),
        (&[("disk1", 64)], &[], "0 added, 0 changed, 0 made anew, 3 removed, 5 unchanged"),
        (&[("disk1", 64)], &[], "0 added, 0 changed, 0 made anew, 0 removed, 5 unchanged"),
    ] {
        std::fs::write(&path, text(disks, more)).expect("written");
        served.signal("HUP");
        let line = wait_for(&mut log, "target.json");
        assert!(line.starts_with("plimsoll: notice: the configuration of ") && line.ends_with(said), "{said}: {line}");
        assert_eq!(names(&served), disks.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }
    // A file that cannot be loaded changes nothing.
    std::fs::write(&path, text(&[("disk1", 64), ("disk4", 8)], &[]).replace("disk4.img", "nowhere/disk4.img"))
        .expect("written");
    served.signal("HUP");
    let line = wait_for(&mut log, "is not loaded");
    assert!(line.contains("device disk4") && line.ends_with("the configuration is as it was"), "{line}");
    std::fs::write(&path, "{").expect("written");
    served.signal("HUP");
    wait_for(&mut log, "not valid JSON");
    assert_eq!(names(&served), ["disk1"]);
    let same = |controllers: &Value| {
        controllers.as_array().map(|all| all.iter().map(|it| it["cntlid"].clone()).collect::<Vec<_>>())
    };
    assert_eq!(same(&controllers()), same(&before), "the host has kept its controller");
    tool("kill", &["-INT", &load.id().to_string()], place.path());
    let output = load.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let job = &json(&output)["jobs"][0];
    assert_eq!((&job["error"], &job["disturbances"]), (&json!(0), &Value::Null), "no connection was lost");
    assert_eq!(served.end(), "");
}

/// `--state` goes on with the file as it was read last, and so does the next start.
#[test]
fn a_reload_is_kept() {
    let place = directory();
    let port = free_port();
    let (served, path) = served(place.path(), &configuration(port, &[("disk1", 8)], &[]), &["--state", "state"]);
    std::fs::write(&path, configuration(port, &[("disk1", 8), ("disk2", 8)], &[])).expect("written");
    let done = served.rpc(&["framework_reload_config"]);
    assert_eq!(done["added"], json!(["device disk2", format!("namespace 2 of {NQN}")]), "{done}");
    let served = served.upgrade();
    assert_eq!(names(&served), ["disk1", "disk2"]);
    served.end();
}

#[test]
fn load_config_tells_what_it_does_and_leaves_the_rest_alone() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--null", "1g", "--mem", "8m"]);
    let saved = served.rpc_text(&["save_config"]);
    file(place.path(), "same.json", &saved);
    assert_eq!(served.rpc_text(&["load_config", "same.json"]), "7 unchanged\n");
    let more = json!({ "subsystems": [{ "subsystem": "bdev", "config": [
        { "method": "bdev_null_create", "params": { "name": "More", "num_blocks": 8, "block_size": 512 } }
    ] }] });
    file(place.path(), "more.json", more.to_string());
    let said = served.rpc_text(&["load_config", "more.json"]);
    assert_eq!(said, "added: device More\n0 unchanged\n7 more that more.json does not have (--replace removes them)\n");
    assert_eq!(served.rpc_text(&["load_config", "--replace", "same.json"]), "removed: device More\n7 unchanged\n");
    let error = served.refused(&["framework_reload_config"]);
    assert!(error.contains("the target was started without -c FILE: give subsystems"), "{error}");
    served.end();
}

#[test]
fn a_tree_of_the_target_and_the_name_that_was_meant() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--null", "1g"]);
    let tree = served.rpc_text(&["ls"]);
    let port = served.port();
    for part in [
        "o- / ....".to_string(),
        "  o- devices ....".into(),
        "  | o- Null0 ....".into(),
        format!("  | o- 127.0.0.1:{port} ...."),
        format!("  |   o- {NQN} ...."),
        format!("    o- {NQN} ...."),
        "      o- namespaces ....".into(),
        "        o- 1 .".into(),
    ] {
        assert!(tree.lines().any(|line| line.starts_with(&part)), "{part}:\n{tree}");
    }
    for (words, meant) in [
        (&["bdev_get_bdev"][..], "did you mean bdev_get_bdevs?"),
        (&["nvmf_get_subsystem", "--help"], "did you mean nvmf_get_subsystems?"),
        (&["bdev_get_bdevs", "nmae=x"], "did you mean name?"),
        (&["nvmf_subsystem_add_listener", "nqn=x", "listen_address.tradr=::1"], "did you mean listen_address.traddr?"),
    ] {
        let error = served.refused(words);
        assert!(error.contains(meant), "{words:?}: {error}");
    }
    let error = served.refused(&["xyz"]);
    assert!(!error.contains("did you mean"), "{error}");
    served.end();
}

const OLD: &str = "\
[Malloc]
  NumberOfLuns 1
  LunSizeInMB 8
[Null]
  Dev Null0 1024 4096
[Nvmf]
  AcceptorPollRate 10000
  ConnectionScheduler RoundRobin
[Transport]
  Type TCP
  NumSharedBuffers 96
[Subsystem1]
  NQN nqn.2016-06.io.spdk:cnode1
  Listen TCP 127.0.0.1:0
  AllowAnyHost Yes
  SN SPDK00000000000001
  Namespace Malloc0 1
  Namespace Null0 2
[Ioat]
  Enable No
";

/// `-c OLD.conf` names the way, and the way leads to a target that hosts use.
#[test]
fn a_file_of_the_old_form_is_converted() {
    let place = directory();
    file(place.path(), "old.conf", OLD);
    let output = run(place.path(), &["serve", "-c", "old.conf", "--rpc-socket", "none"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("`plimsoll serve --convert FILE > NEW.json` converts it"), "{}", stderr(&output));
    let output = succeed(place.path(), &["serve", "--convert", "old.conf"]);
    assert_eq!(
        stderr(&output),
        "plimsoll: warning: old.conf: line 19: [Ioat] has no counterpart here, and is left out\n"
    );
    file(place.path(), "new.json", stdout(&output));
    let served = Served::start(place.path(), &["-c", "new.json"]);
    let load = ["run", "--name=x", "--ioengine=nvme_tcp", "--rw=randrw", "--bs=4k", "--number_ios=50", "--eta=never"];
    for nsid in [1, 2] {
        succeed(place.path(), &[&load[..], &["--size=4m", &served.filename(nsid)]].concat());
    }
    assert_eq!(served.rpc(&["nvmf_get_transports"])[0]["pacing"]["count"], 96);
    assert_eq!(served.end(), "");
    file(place.path(), "bad.conf", "[Null]\n  Dev Null0 big\n");
    let output = run(place.path(), &["serve", "--convert", "bad.conf"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("bad.conf: line 2: Dev takes a number as a size in MiB"), "{}", stderr(&output));
}

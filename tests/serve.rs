//! `plimsoll serve`: given in one line, used, ended; what it refuses, and whom it lets in.

mod common;
use common::served::{NQN, Served};
use common::*;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A load on a namespace: what it read and wrote is right, or the test fails.
const VERIFY: [&str; 9] = [
    "run",
    "--name=verify",
    "--ioengine=nvme_tcp",
    "--rw=randwrite",
    "--bs=16k",
    "--size=8m",
    "--iodepth=16",
    "--verify=crc32c",
    "--eta=never",
];

#[test]
fn what_is_given_in_one_line_is_served_and_says_how_to_use_it() {
    let place = directory();
    let served =
        Served::one_line(place.path(), &["--null", "1g", "--mem", "64m", "--file", "disk.img", "--create", "32m"]);
    let said = served.said.join("\n");
    assert!(said.starts_with(&format!("plimsoll serve: ready, process {}\n", served.pid())), "{said}");
    let port = served.port();
    for part in [
        &format!("{NQN} on 127.0.0.1:{port}, for any host"),
        "Null0             1 GiB, blocks of 4096, null",
        "Malloc0          64 MiB, blocks of 4096, memory",
        "File0            32 MiB",
        &format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n {NQN}"),
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    works_as_it_stands(&served, place.path(), |line| line.into());
    for nsid in [2, 3] {
        succeed(place.path(), &[&VERIFY[..], &[&served.filename(nsid)]].concat());
    }
    assert_eq!(std::fs::metadata(place.path().join("disk.img")).expect("created").len(), 32 << 20);
    served.end();
}

/// The command that the target says to type here works, if not for ten seconds. `fill`: puts files in their place.
fn works_as_it_stands(served: &Served, place: &Path, fill: impl Fn(&str) -> String) {
    let line = served.said.iter().find_map(|line| line.strip_prefix("Here:")).expect("a line to type");
    let short = format!("{} --time_based=0 --number_ios=1000 --output-format=json", fill(line))
        .replace("plimsoll", env!("CARGO_BIN_EXE_plimsoll"));
    let output = Command::new("bash").args(["-c", &short]).current_dir(place).output().expect("bash");
    assert!(output.status.success(), "{short}: {}", stderr(&output));
    assert_eq!(json(&output)["jobs"][0]["read"]["total_ios"], 1000);
}

#[test]
fn a_file_keeps_what_was_written_when_the_target_ends() {
    let place = directory();
    let arguments = ["--file", "disk.img", "--create", "8m", "--block-size", "4096"];
    let served = Served::one_line(place.path(), &arguments);
    succeed(place.path(), &[&VERIFY[..], &["--fsync_on_close=1", &served.filename(1)]].concat());
    served.end();
    let served = Served::one_line(place.path(), &arguments);
    succeed(place.path(), &[&VERIFY[..], &["--verify_only=1", &served.filename(1)]].concat());
    served.end();
}

#[test]
fn an_end_under_load_waits_for_what_is_in_progress() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--null", "1g"]);
    let mut load = plimsoll(place.path())
        .args(["run", "--name=load", "--ioengine=nvme_tcp", "--rw=randread", "--bs=64k", "--iodepth=32", "--eta=never"])
        .args(["--time_based", "--runtime=600", &served.filename(1)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the load starts");
    while served.rpc(&["bdev_get_iostat"])["bdevs"][0]["num_read_ops"].as_u64() < Some(1000) {
        assert!(load.try_wait().expect("its status").is_none(), "it has ended");
    }
    let said = served.end();
    assert_eq!(said, "", "nothing was cut off");
    load.kill().expect("it is still there: it tries to reconnect");
    load.wait().expect("it ends");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--mem", "16m", "--drain", "10m"]);
    // An operation that never ends: the namespace is replaced by one on an error device.
    served.rpc(&["nvmf_subsystem_remove_ns", &format!("nqn={NQN}"), "nsid=1"]);
    served.rpc(&["bdev_error_create", "base_name=Malloc0"]);
    served.rpc(&["nvmf_subsystem_add_ns", &format!("nqn={NQN}"), "namespace.bdev_name=EE_Malloc0", "namespace.nsid=1"]);
    served.rpc(&["bdev_error_inject_error", "name=EE_Malloc0", "io_type=all", "error_type=pending", "num=0"]);
    let mut load = plimsoll(place.path())
        .args(["run", "--name=load", "--ioengine=nvme_tcp", "--rw=read", "--bs=4k", "--number_ios=1", "--eta=never"])
        .arg(served.filename(1))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the load starts");
    while served.rpc(&["nvmf_get_stats"])["poll_groups"][0]["pending_bdev_io"].as_u64() == Some(0) {
        assert!(load.try_wait().expect("its status").is_none(), "it has ended");
    }
    let port = served.port();
    served.signal("TERM");
    // A signal within a quarter of a second of its taking effect counts as the same signal.
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(400));
    served.signal("TERM");
    let (status, ..) = served.wait();
    assert_eq!(status.code(), Some(130));
    load.kill().expect("it waits");
    load.wait().expect("it ends");
}

#[test]
fn what_cannot_be_served_is_refused_in_one_line() {
    let place = directory();
    file(place.path(), "config.json", "{}");
    file(place.path(), "short", "x");
    for (arguments, part) in [
        (&["--rpc-socket", "none"][..], "nothing to serve: give --null SIZE"),
        (&["--null", "1q"], "there is no unit \"q\""),
        (&["--null", "0"], "give at least a block"),
        (&["--file", "nowhere.img"], "it does not exist; --create SIZE creates it"),
        (&["--file", "/dev/null", "--rpc-socket", "none"], "/dev/null"),
        (&["--null", "1g", "--pacing", "fast"], "\"fast\" is not a pacing method (expected one of auto"),
        (&["--null", "1g", "--memory", "1k"], "--memory: a memory budget below 4096 bytes"),
        (&["--null", "1g", "--cores", "0-"], "\"0-\" is not a processor or a range"),
        (&["--null", "1g", "--cores", "4000"], "may not run on processor 4000"),
        (&["--null", "1g", "--listen", "localhost"], "not an IP address (expected one as 127.0.0.1"),
        (&["--null", "1g", "--listen", "0.0.0.0:0"], "say who may connect: --allow-host NQN"),
        (&["--null", "1g", "--metrics", "here"], "give a port, or ADDRESS:PORT"),
        (&["--null", "1g", "--block-size", "1000"], "block_size 1000 is not a power of two"),
        (&["--null", "1g", "--nqn", "name"], "name"),
        (&["--null", "1g", "--cntlid-range", "9-1"], "--cntlid-range 9-1: give two numbers from 1 to 65519"),
        (&["--null", "1g", "--cntlid-range", "1-65520"], "from 1 to 65519"),
        (&["--null", "1g", "--cntlid-range", "0-9"], "from 1 to 65519"),
        (&["--listen", "127.0.0.1"], "--listen has no effect without --null, --mem or --file"),
        (&["--null", "1g", "-c", "config.json"], "cannot be used with"),
        (&["-c", "config.json"], "config.json: it has no \"subsystems\""),
        (&["-c", "nowhere.json"], "cannot read nowhere.json"),
    ] {
        let told = refused(place.path(), &[&["serve"], arguments].concat());
        assert!(told.contains(part), "{arguments:?}: {told}");
    }
    assert_eq!(names(place.path()), ["config.json", "short"], "nothing is left behind");
}

#[test]
fn controllers_get_identifiers_of_the_range() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--null", "1g", "--cntlid-range", "500-503"]);
    let load =
        ["run", "--name=a", "--ioengine=nvme_tcp", "--rw=randread", "--thinktime=1ms", "--thread", "--eta=never"];
    let timed = ["--time_based", "--runtime=60", &served.filename(1)];
    let mut hosts = [0, 1].map(|_| {
        let mut host = plimsoll(place.path());
        host.args(load).args(timed).stdout(Stdio::null()).spawn().unwrap()
    });
    let mut seen = BTreeSet::new();
    // A host may give its first controller up before the other one has come.
    while seen.len() < 2 {
        assert!(hosts.iter_mut().all(|host| host.try_wait().unwrap().is_none()), "a host ended");
        let controllers = served.rpc(&["nvmf_subsystem_get_controllers", &format!("nqn={NQN}")]);
        let controllers = controllers.as_array().unwrap().iter();
        seen.extend(controllers.map(|controller| controller["cntlid"].as_u64().unwrap()));
    }
    assert!(seen.iter().all(|identifier| (500..=503).contains(identifier)), "{seen:?}");
    for host in &mut hosts {
        host.kill().unwrap();
        host.wait().unwrap();
    }
}

#[test]
fn places_in_use_are_not_taken() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--file", "disk.img", "--create", "8m"]);
    let port = format!("127.0.0.1:{}", served.port());
    let told = refused(place.path(), &["serve", "--null", "1g", "--listen", &port, "--rpc-socket", "none"]);
    assert!(told.contains(&port) && told.contains("in use"), "{told}");
    let told =
        refused(place.path(), &["serve", "--null", "1g", "--listen", "127.0.0.1:0", "--rpc-socket", served.socket()]);
    assert!(told.contains("another target is listening there"), "{told}");
    // Two targets on one file would tear each other's data apart.
    let told =
        refused(place.path(), &["serve", "--file", "disk.img", "--listen", "127.0.0.1:0", "--rpc-socket", "none"]);
    assert!(told.contains("disk.img"), "{told}");
    served.end();
}

#[test]
fn what_the_system_uses_itself_is_not_served() {
    if !is_root("set up a loop device") || !has_program("losetup") {
        return;
    }
    let place = directory();
    let path = file(place.path(), "disk.img", vec![0; 8 << 20]);
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&path).output().expect("losetup runs");
    if !attached.status.success() {
        return skip(&format!("loop devices are not possible: {}", stderr(&attached).trim()), false);
    }
    let device = stdout(&attached).trim().to_string();
    let told = refused(place.path(), &["serve", "--file", "disk.img", "--rpc-socket", "none"]);
    let insists = Served::one_line(place.path(), &["--file", "disk.img", "--allow-mounted-write"]);
    insists.end();
    tool("losetup", &["--detach", &device], place.path());
    assert!(
        told.contains(&format!("it is the file behind {device}")) && told.contains("--allow-mounted-write"),
        "{told}"
    );
}

#[test]
fn only_hosts_that_are_named_get_in() {
    let place = directory();
    let (ours, theirs) = ("nqn.2016-06.io.spdk:ours", "nqn.2016-06.io.spdk:theirs");
    let served = Served::one_line(place.path(), &["--null", "1g", "--allow-host", ours]);
    assert!(served.said.iter().any(|line| line.ends_with(&format!("for {ours}"))), "{:?}", served.said);
    let namespace = served.filename(1);
    let load = |host: &str| {
        let hostnqn = format!("--hostnqn={host}");
        let arguments = ["--name=x", "--ioengine=nvme_tcp", "--rw=read", "--bs=4k", "--number_ios=8", "--eta=never"];
        run(place.path(), &[&["run"], &arguments[..], &[&hostnqn, &namespace]].concat())
    };
    works_as_it_stands(&served, place.path(), |line| line.into());
    assert!(served.said.iter().any(|line| line.ends_with(&format!("-n {NQN} -q {ours}"))), "{:?}", served.said);
    assert!(load(ours).status.success(), "{}", stderr(&load(ours)));
    let output = load(theirs);
    assert!(!output.status.success(), "{}", stdout(&output));
    assert!(stderr(&output).contains("let"), "it is told why: {}", stderr(&output));
    served.rpc(&["nvmf_subsystem_add_host", &format!("nqn={NQN}"), &format!("host={theirs}")]);
    assert!(load(theirs).status.success());
    served.rpc(&["nvmf_subsystem_remove_host", &format!("nqn={NQN}"), &format!("host={ours}")]);
    assert!(!load(ours).status.success());
    served.end();
}

#[test]
fn hosts_with_keys_prove_themselves_and_the_target_to_them() {
    let place = directory();
    let key = |name: &str, text: &str| {
        let path = file(place.path(), name, text);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
        path.display().to_string()
    };
    // Made by nvme gen-dhchap-key.
    let ours = key("ours", "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n");
    let back = key("back", "DHHC-1:01:Zd+BwWWhFj/AcgXNAiaAB31intBt8+VR1+lssk28fWX31QJy:\n");
    let host = "nqn.2016-06.io.spdk:ours";
    let arguments = ["--null", "1g", "--allow-host", host, "--dhchap-key", &ours, "--dhchap-ctrlr-key", &back];
    let served = Served::one_line(place.path(), &arguments);
    works_as_it_stands(&served, place.path(), |line| line.replace("=FILE", &format!("={ours}")));
    let secret = format!("-q {host} --dhchap-secret=KEY");
    assert!(served.said.iter().any(|line| line.ends_with(&secret)), "{:?}", served.said);
    let namespace = served.filename(1);
    let load = |keys: &[&str]| {
        let arguments = ["--name=x", "--ioengine=nvme_tcp", "--rw=read", "--bs=4k", "--number_ios=8", "--eta=never"];
        let hostnqn = format!("--hostnqn={host}");
        // Several queues: each of them has to.
        run(place.path(), &[&["run", "--nr_io_queues=3"], &arguments[..], &[&hostnqn, &namespace], keys].concat())
    };
    let (with_ours, with_back) = (format!("--dhchap_key={ours}"), format!("--dhchap_key={back}"));
    let (target_ours, target_back) = (format!("--dhchap_ctrlr_key={ours}"), format!("--dhchap_ctrlr_key={back}"));
    for keys in [&[&with_ours[..]][..], &[&with_ours, &target_back]] {
        let output = load(keys);
        assert!(output.status.success(), "{keys:?}: {}", stderr(&output));
    }
    for (keys, part) in [
        (&[][..], "it demands authentication (give dhchap_key=FILE"),
        (&[&with_back[..]], "authentication failed: the keys differ"),
        (&[&with_ours, &target_ours], "authentication failed: the keys differ"),
        (&["--dhchap_key=nowhere"], "dhchap_key=nowhere: No such file"),
        (&[&target_ours], "dhchap_ctrlr_key= needs dhchap_key="),
    ] {
        let output = load(keys);
        assert!(!output.status.success() && stderr(&output).contains(part), "{keys:?}: {}", stderr(&output));
    }
    let output = stdout(&load(&[&with_ours, "--output-format=json"]));
    assert!(!output.contains("AAECAwQ"), "results do not repeat keys");
    served.end();
}

#[test]
fn prometheus_reads_what_the_target_counts() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--null", "1g", "--metrics", "0"]);
    let load = ["--name=x", "--ioengine=nvme_tcp", "--rw=read", "--bs=4k", "--number_ios=100", "--eta=never"];
    succeed(place.path(), &[&["run"], &load[..], &[&served.filename(1)]].concat());
    let mut line = String::new();
    let mut served = served;
    served.read_line(&mut line);
    let address = line.trim().strip_prefix("Metrics: http://").and_then(|line| line.strip_suffix("/metrics"));
    let mut stream = TcpStream::connect(address.unwrap_or_else(|| panic!("{line}"))).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    assert!(page.contains("plimsoll_device_reads_total{device=\"Null0\"} 100\n"), "{page}");
    assert!(page.contains("plimsoll_device_read_bytes_total{device=\"Null0\"} 409600\n"), "{page}");
    assert!(page.contains("plimsoll_host_reads_total{host=\"nqn."), "{page}");
    served.end();
}

/// The commands that docs/serve.md prints about the control socket run one after another as they are printed, but for
/// the place of the socket.
#[test]
fn the_sequence_of_the_documentation_runs_as_it_is_printed() {
    let place = directory();
    let page = include_str!("../docs/serve.md").replace("\\\n", " ");
    let from = page.find("    plimsoll rpc bdev_null_create name=Null1").expect("the sequence");
    let commands: Vec<&str> = page[from..].lines().take_while(|line| line.starts_with("    plimsoll ")).collect();
    assert!(commands.len() >= 6, "{commands:?}");
    let mut served = Served::one_line(place.path(), &["--null", "8g", "--mem", "64m"]);
    for command in commands {
        if command.trim() == "plimsoll serve &" {
            served.wait();
            served = Served::start(place.path(), &[]);
            continue;
        }
        let program = env!("CARGO_BIN_EXE_plimsoll");
        let here = command.replacen("plimsoll rpc", &format!("{program} rpc -s {}", served.socket()), 1);
        let output = std::process::Command::new("sh").args(["-c", &here]).current_dir(place.path()).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{command}: {}{}", stdout(&output), stderr(&output));
    }
    let namespaces = served.rpc(&["nvmf_get_subsystems", &format!("nqn={NQN}")])[0]["namespaces"].clone();
    assert_eq!(namespaces[2]["bdev_name"], "Slow", "{namespaces}");
    served.end();
}

/// SPDK's interrupt.sh looks for the threads of reactors by the numbers of their processors, and whether they sleep.
#[test]
fn the_thread_of_a_reactor_is_named_for_its_processor() {
    let status = std::fs::read_to_string("/proc/self/status").expect("this process");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    let last = list.rsplit([',', '-']).next().expect("a processor");
    let place = directory();
    let served = Served::start(place.path(), &["--null", "1g", "--cores", last]);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", served.pid())).expect("its threads");
    let names: Vec<String> = tasks
        .map(|task| std::fs::read_to_string(task.expect("a thread").path().join("comm")).unwrap_or_default())
        .collect();
    assert!(names.contains(&format!("reactor_{last}\n")), "{names:?}");
    let reactors = served.rpc(&["framework_get_reactors"])["reactors"].clone();
    assert_eq!(reactors[0]["lcore"].to_string(), last);
    let mask = reactors[0]["lw_threads"][0]["cpumask"].as_str().expect("a mask").to_string();
    assert_eq!(u128::from_str_radix(&mask, 16), Ok(1 << last.parse::<u32>().expect("a number")));
    served.end();
}

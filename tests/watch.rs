//! `plimsoll watch` on real parts: a loop device under a load, a throttled control group, Prometheus' own checker.

mod common;
use common::loop_device::LoopDevice;
use common::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A loop device over a file of random bytes.
fn device(directory: &Path) -> Option<LoopDevice> {
    let image = file(directory, "disk.img", vec![7; 4 << 20]);
    LoopDevice::over(&image)
}

/// The only target of one look.
fn look(directory: &Path, target: &str) -> Value {
    let seen = json(&succeed(directory, &["watch", target, "--once", "--interval", "20ms", "--json"]));
    assert_eq!(seen["targets"].as_array().unwrap().len(), 1, "{seen:#}");
    seen["targets"][0].clone()
}

fn grown(before: &Value, after: &Value, figure: &str) -> u64 {
    after["read"][figure].as_u64().unwrap() - before["read"][figure].as_u64().unwrap()
}

#[test]
fn the_requests_of_a_load_are_counted_to_the_last_one() {
    let place = directory();
    let Some(disk) = device(place.path()) else { return };
    let before = look(place.path(), &disk.path);
    assert_eq!((&before["kind"], before["name"].as_str()), (&"disk".into(), disk.path.strip_prefix("/dev/")));
    let filename = format!("--filename={}", disk.path);
    let job = ["run", "--name=a", &filename, "--rw=randread", "--bs=4k", "--size=4m", "--direct=1", "--iodepth=8"];
    let result = json(&succeed(place.path(), &[&job[..], &["--ioengine=libaio", "--output-format=json"]].concat()));
    let after = look(place.path(), &disk.path);
    let ops = result["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
    let seen = grown(&before, &after, "ops");
    // Programs of the system may read the beginning of a new device.
    assert!((ops..ops + 200).contains(&seen), "{seen} of {ops}");
    assert!(grown(&before, &after, "bytes") >= ops * 4096);
    assert_eq!(after["in_flight"], 0);
}

#[test]
fn a_device_is_found_by_a_link() {
    let place = directory();
    let Some(disk) = device(place.path()) else { return };
    let link = place.path().join("by-name");
    std::os::unix::fs::symlink(&disk.path, &link).unwrap();
    assert_eq!(look(place.path(), link.to_str().unwrap())["name"].as_str(), disk.path.strip_prefix("/dev/"));
}

/// A group of version 1 with a known limit: 100 reads at 50 a second take a second at least.
#[test]
fn a_control_group_is_counted_and_its_limit_shows() {
    let place = directory();
    let Some(disk) = device(place.path()) else { return };
    let group = Path::new("/sys/fs/cgroup/blkio").join(format!("plimsoll-watch-{}", std::process::id()));
    if !group.parent().unwrap().join("blkio.throttle.read_iops_device").exists() {
        return skip("the kernel has no control groups of version 1 for block devices", false);
    }
    std::fs::create_dir(&group).unwrap();
    let number =
        std::fs::read_to_string(format!("/sys/block/{}/dev", disk.path.strip_prefix("/dev/").unwrap())).unwrap();
    std::fs::write(group.join("blkio.throttle.read_iops_device"), format!("{} 50", number.trim())).unwrap();
    let before = look(place.path(), group.to_str().unwrap());
    let line = format!(
        "echo $$ > {}/cgroup.procs; exec {} run --name=a --filename={} --rw=randread --bs=4k --size=4m --direct=1 \
         --number_ios=100 --ioengine=libaio --iodepth=8 --output-format=json",
        group.display(),
        env!("CARGO_BIN_EXE_plimsoll"),
        disk.path
    );
    let result: Value = serde_json::from_str(&tool("sh", &["-c", &line], place.path())).unwrap();
    let after = look(place.path(), group.to_str().unwrap());
    std::fs::remove_dir(&group).unwrap();
    let ops = result["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
    assert!(grown(&before, &after, "ops") >= ops && ops >= 100, "{ops}: {after:#}");
    assert!(result["jobs"][0]["read"]["runtime"].as_u64().unwrap() >= 1000, "{result:#}");
    assert_eq!((&after["kind"], &after["depth"]), (&"cgroup".into(), &Value::Null));
}

#[test]
fn a_process_is_counted() {
    let place = directory();
    let mut busy = Command::new("sleep").arg("60").spawn().unwrap();
    let seen = look(place.path(), &busy.id().to_string());
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert_eq!(seen["kind"], "process");
    assert!(seen["read"]["ops"].as_u64().unwrap() > 0, "the loader read libraries: {seen:#}");
}

/// A host of two disks in a directory.
fn tree(directory: &Path) -> std::path::PathBuf {
    let root = directory.join("host");
    std::fs::create_dir_all(root.join("proc")).unwrap();
    for disk in ["sda", "sdb"] {
        std::fs::create_dir_all(root.join("sys/block").join(disk)).unwrap();
    }
    let lines = "8 0 sda 100 0 800 250 10 0 160 70 3 90 320 0 0 0 0 0 0\n8 16 sdb 0 0 0 0 0 0 0 0 0 0 0\n";
    std::fs::write(root.join("proc/diskstats"), lines).unwrap();
    root
}

#[test]
fn prometheus_gets_counters_in_base_units() {
    let place = directory();
    let root = tree(place.path()).display().to_string();
    let page = stdout(&succeed(place.path(), &["watch", "--sysroot", &root, "--prometheus", "-"]));
    for line in [
        "# TYPE plimsoll_watch_ops_total counter",
        "plimsoll_watch_ops_total{kind=\"disk\",target=\"sda\",op=\"read\"} 100",
        "plimsoll_watch_bytes_total{kind=\"disk\",target=\"sda\",op=\"write\"} 81920",
        "plimsoll_watch_latency_seconds_total{kind=\"disk\",target=\"sda\",op=\"read\"} 0.25",
        "plimsoll_watch_busy_seconds_total{kind=\"disk\",target=\"sda\"} 0.09",
        "plimsoll_watch_in_flight{kind=\"disk\",target=\"sda\"} 3",
    ] {
        assert_eq!(page.lines().filter(|there| *there == line).count(), 1, "{line}\n{page}");
    }
    assert!(!page.contains("sdb"), "an idle disk is left out");
    if Path::new("/usr/bin/promtool").exists() {
        let mut checker = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn().unwrap();
        checker.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        assert!(checker.wait().unwrap().success(), "{page}");
    } else {
        skip("promtool (Debian package prometheus) is not installed: the page is not checked by it", false);
    }
}

#[test]
fn a_scraper_is_answered_on_loopback() {
    let place = directory();
    let root = tree(place.path()).display().to_string();
    let mut server = plimsoll(place.path())
        .args(["watch", "--sysroot", &root, "--prometheus", "0", "--interval", "50ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let address = first.trim().strip_prefix("Metrics: http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{first}"));
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let mut scraper = TcpStream::connect(address).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    scraper.read_to_string(&mut answer).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(answer.contains("200 OK") && answer.contains("target=\"sda\",op=\"read\"} 100"), "{answer}");
}

#[test]
fn the_table_fits_and_names_what_is_away() {
    let place = directory();
    let root = tree(place.path());
    let sysroot = root.display().to_string();
    let shown = |more: &[&str]| {
        let arguments = ["watch", "--sysroot", &sysroot, "--once", "--interval", "10ms"];
        stdout(&succeed(place.path(), &[&arguments[..], more].concat()))
    };
    let text = shown(&[]);
    assert!(text.starts_with("target ") && text.contains("\nsda ") && !text.contains("sdb"), "{text}");
    assert!(shown(&["--all"]).contains("\nsdb "), "{text}");
    assert!(shown(&["sdb"]).contains("\nsdb "), "a disk that was asked for is shown");
    let mut child = plimsoll(place.path())
        .args(["watch", "--sysroot", &sysroot, "sda", "--interval", "20ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("sda ")));
    std::fs::write(root.join("proc/diskstats"), "").unwrap();
    assert!(lines.any(|line| line == "disk sda: not there at this moment"));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Each line is an object: scripts read one after the other.
#[test]
fn json_is_a_line_for_each_interval() {
    let place = directory();
    let seen = stdout(&succeed(place.path(), &["watch", "/", "--json", "--interval", "20ms", "--for", "60ms"]));
    let at: Vec<u64> =
        seen.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["at_unix_ms"].as_u64().unwrap()).collect();
    assert!(at.len() == 3 && at.is_sorted(), "{seen}");
}

#[test]
fn wrong_arguments_are_refused_in_one_line() {
    let place = directory();
    let path = place.path();
    assert!(refused(path, &["watch", "/no/such"]).contains("/no/such: no such device"));
    assert!(refused(path, &["watch", "4194305"]).contains("no such process"));
    assert!(refused(path, &["watch", "--sysroot", "/no/such"]).contains("/no/such/proc/diskstats"));
    // Without sysfs no disk is known to be one: that does not mean that none did anything.
    std::fs::create_dir_all(path.join("bare/proc")).unwrap();
    file(path, "bare/proc/diskstats", "   8       0 sda 10 0 80 5 0 0 0 0 0 5 5\n");
    let said = refused(path, &["watch", "--sysroot", "bare", "--once", "--interval", "10ms"]);
    assert!(said.contains("bare/sys/block") && said.contains("sysfs"), "{said}");
    succeed(path, &["watch", "--sysroot", "bare", "--once", "--interval", "10ms", "sda"]);
    assert!(refused(path, &["watch", "--interval", "0"]).contains("--interval"));
    assert!(refused(path, &["watch", "--prometheus", "x"]).contains("--prometheus x: give a port"));
    file(path, "run.json", "{}");
    assert!(refused(path, &["watch", "--against", "run.json"]).contains("cannot take run.json as a result"));
    let sweep = file(path, "sweep.json", swept("/no/such", 0, 1000.0, 8.0));
    let text = refused(path, &["watch", "--against", sweep.to_str().unwrap()]);
    assert!(text.contains("it is of /no/such, which is not watched here"), "{text}");
}

#[test]
fn a_sweep_gives_the_line_to_compare_with() {
    let place = directory();
    let root = tree(place.path()).display().to_string();
    file(place.path(), "sweep.json", swept("/dev/sda", 0, 1000.0, 8.0));
    let arguments = ["watch", "--sysroot", &root, "--against", "sweep.json", "--once", "--interval", "10ms"];
    let text = stdout(&succeed(place.path(), &arguments));
    assert!(text.contains("has its line at 8 and its plateau at 1k IOPS"), "{text}");
    let seen = json(&succeed(place.path(), &[&arguments[..], &["--json"]].concat()));
    assert_eq!(seen["targets"][0]["against"]["load_line"], serde_json::json!({ "low": 8.0, "high": 8.0 }));
}

/// Where a sweep bounds the line, each output shows the bounds.
#[test]
fn a_sweep_gives_bounds_to_compare_with() {
    let place = directory();
    let root = tree(place.path()).display().to_string();
    let mut sweep: Value = serde_json::from_str(&swept("/dev/sda", 0, 1000.0, 8.0)).unwrap();
    sweep["curves"][0]["line"]["load_line"] = serde_json::json!({ "mean": 8.0, "low": 3.0, "high": 20.0 });
    file(place.path(), "sweep.json", sweep.to_string());
    let arguments = ["watch", "--sysroot", &root, "--against", "sweep.json", "--once", "--interval", "10ms"];
    let text = stdout(&succeed(place.path(), &arguments));
    assert!(text.contains("has its line between 3 and 20 and its plateau at 1k IOPS"), "{text}");
    let row = text.lines().find(|line| line.starts_with("sda ")).unwrap();
    assert!(row.trim_end().ends_with(" 3 to 20"), "{text}");
    let seen = json(&succeed(place.path(), &[&arguments[..], &["--json"]].concat()));
    assert_eq!(seen["targets"][0]["against"]["load_line"], serde_json::json!({ "low": 3.0, "high": 20.0 }));
}

#[test]
fn a_sweep_of_another_disk_here_is_refused_and_one_from_elsewhere_is_named() {
    let place = directory();
    let root = tree(place.path()).display().to_string();
    let arguments = ["watch", "--sysroot", &root, "--once", "--interval", "10ms", "--against", "sweep.json", "sdb"];
    file(place.path(), "sweep.json", swept("/dev/sda", 0, 1000.0, 8.0));
    let text = refused(place.path(), &arguments);
    assert!(text.contains("it is of /dev/sda, which is not watched here"), "{text}");
    // A target that is not on this host: the one device that the user names stands for it.
    file(place.path(), "sweep.json", swept("trtype=tcp traddr=127.0.0.1", 0, 1000.0, 8.0));
    let text = stdout(&succeed(place.path(), &arguments));
    assert!(text.contains("(io_uring  0 B on trtype=tcp traddr=127.0.0.1) has its line at 8"), "{text}");
}

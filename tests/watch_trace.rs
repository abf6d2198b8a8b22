//! `plimsoll watch --trace` on a real disk: the kernel's tracepoints beside the kernel's counters.

mod common;
use common::loop_device::LoopDevice;
use common::*;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A loop device on a kernel that can trace it.
fn traced_disk(directory: &Path) -> Option<LoopDevice> {
    let disk = LoopDevice::over(&file(directory, "disk.img", vec![7; 4 << 20]))?;
    let output = run(directory, &["watch", &disk.path, "--trace", "--once", "--interval", "10ms"]);
    if !output.status.success() {
        let said = stderr(&output);
        assert!(said.starts_with("plimsoll: --trace: cannot ") && said.lines().count() == 1, "{said}");
        skip(&format!("the kernel's tracepoints are out of reach: {}", said.trim()), false);
        return None;
    }
    Some(disk)
}

/// A `watch` that is killed at the end, whatever the test finds.
struct Watch(Child);

impl Watch {
    fn start(directory: &Path, disk: &LoopDevice, more: &[&str]) -> Watch {
        let mut watch = plimsoll(directory);
        watch.args(["watch", &disk.path, "--trace"]).args(more).stdout(Stdio::piped());
        Watch(watch.spawn().unwrap())
    }

    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// A load of this many direct reads and writes of 4 KiB, four of which are in flight.
fn load(directory: &Path, disk: &LoopDevice, requests: u64) {
    let (filename, number) = (format!("--filename={}", disk.path), format!("--number_ios={requests}"));
    let job = ["run", "--name=a", "--rw=randrw", "--bs=4k", "--size=4m", "--direct=1", "--ioengine=libaio"];
    succeed(directory, &[&job[..], &["--iodepth=4", "--norandommap", &filename, &number]].concat());
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn every_request_of_a_load_is_in_the_percentiles() {
    let place = directory();
    let Some(disk) = traced_disk(place.path()) else { return };
    let mut watch = Watch::start(place.path(), &disk, &["--json", "--interval", "50ms"]);
    let mut lines = watch.lines();
    let mut target = || serde_json::from_str::<Value>(&lines.next().unwrap()).unwrap()["targets"][0].clone();
    let first = target();
    load(place.path(), &disk, 1000);
    let (mut traced, mut slowest) = ([0, 0], 0);
    // Events are some time on their way: the sums have to meet in the end.
    loop {
        let now = target();
        for (sum, way) in traced.iter_mut().zip(["read", "write"]) {
            *sum += now["traced"][way]["requests"].as_u64().unwrap_or(0);
        }
        assert_eq!((&now["traced"]["is_part"], &now["traced"]["all"]["given_up"]), (&false.into(), &0.into()), "{now}");
        let all = &now["traced"]["all"];
        if number(&all["requests"]) > 0 {
            let figures: Vec<u64> =
                ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"].map(|key| number(&all[key])).into();
            assert!(figures.is_sorted() && figures[0] > 0, "{all}");
            slowest = slowest.max(figures[4]);
        }
        let counted = ["read", "write"].map(|way| number(&now[way]["ops"]) - number(&first[way]["ops"]));
        if traced == counted && counted.iter().sum::<u64>() >= 1000 {
            break;
        }
        assert!(
            traced.iter().zip(counted).all(|(traced, counted)| *traced <= counted),
            "{traced:?} {counted:?}: {now}"
        );
    }
    assert!(slowest > 0);
}

/// A request is at the driver for a part of the time that the job waits for it: no figure of the driver exceeds that of
/// the job.
#[test]
fn latencies_hold_against_the_histogram_of_the_job() {
    let place = directory();
    let Some(disk) = traced_disk(place.path()) else { return };
    let mut watch = Watch::start(place.path(), &disk, &["--json", "--interval", "50ms"]);
    let mut lines = watch.lines();
    let mut target = || serde_json::from_str::<Value>(&lines.next().unwrap()).unwrap()["targets"][0].clone();
    target();
    let filename = format!("--filename={}", disk.path);
    let job = ["run", "--name=a", "--rw=randrw", "--bs=4k", "--size=4m", "--direct=1", "--ioengine=libaio"];
    let more = ["--iodepth=16", "--rate_iops=4000", "--number_ios=16000", "--time_based", "--runtime=3"];
    let form = ["--output-format=json", "--lat_percentiles=1", &filename];
    let result = json(&succeed(place.path(), &[&job[..], &more, &form].concat()));
    let of_job = |way: &str, what: &str| result["jobs"][0][way]["clat_ns"][what].as_f64().unwrap();
    let (mut sum_ns, mut requests, mut idle) = (0.0, 0.0, 0);
    // The last events are on their way for less than these intervals.
    while idle < 6 {
        let all = target()["traced"]["all"].clone();
        assert_eq!(all["given_up"], 0, "{all}");
        let count = all["requests"].as_f64().unwrap();
        idle = if count > 0.0 || requests == 0.0 { 0 } else { idle + 1 };
        (sum_ns, requests) = (sum_ns + count * all["mean_ns"].as_f64().unwrap_or(0.0), requests + count);
    }
    let ops = ["read", "write"].map(|way| result["jobs"][0][way]["total_ios"].as_f64().unwrap());
    let job_ns = (of_job("read", "mean") * ops[0] + of_job("write", "mean") * ops[1]) / (ops[0] + ops[1]);
    let mean_ns = sum_ns / requests;
    assert!(requests > 0.5 * (ops[0] + ops[1]), "{requests} of {ops:?}: neighbours merge, and few of them");
    assert!(mean_ns > 0.0 && mean_ns <= 1.05 * job_ns, "traced {mean_ns}, the job waited {job_ns}");
}

#[test]
fn prometheus_gets_a_histogram() {
    let place = directory();
    let Some(disk) = traced_disk(place.path()) else { return };
    let mut watch = Watch::start(place.path(), &disk, &["--prometheus", "0", "--interval", "20ms"]);
    let first = watch.lines().next().unwrap();
    let address = first.strip_prefix("Metrics: http://").unwrap().strip_suffix("/metrics").unwrap().to_string();
    load(place.path(), &disk, 200);
    let name = disk.path.strip_prefix("/dev/").unwrap();
    let of = |page: &str, what: &str| -> u64 {
        let line = |op: &str| format!("plimsoll_watch_{what}{{kind=\"disk\",target=\"{name}\",op=\"{op}\"");
        let sum = |op: &str| {
            page.lines()
                .find(|text| text.starts_with(&line(op)))
                .map_or(0, |text| text.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        };
        sum("read") + sum("write")
    };
    let page = loop {
        let mut scraper = TcpStream::connect(&address).unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let answer = std::io::read_to_string(scraper).unwrap();
        if of(&answer, "device_latency_seconds_count") >= 200 {
            break answer;
        }
    };
    assert!(page.contains("# TYPE plimsoll_watch_device_latency_seconds histogram"), "{page}");
    let buckets: Vec<u64> = page
        .lines()
        .filter(|line| line.starts_with("plimsoll_watch_device_latency_seconds_bucket") && line.contains("op=\"read\""))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(buckets.len() == 20 && buckets.is_sorted(), "{buckets:?}");
    if Path::new("/usr/bin/promtool").exists() {
        let mut checker = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn().unwrap();
        let body = page.split("\r\n\r\n").nth(1).unwrap();
        checker.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        assert!(checker.wait().unwrap().success(), "{body}");
    } else {
        skip("promtool (Debian package prometheus) is not installed: the histogram is not checked by it", false);
    }
}

#[test]
fn nothing_of_the_tracing_is_left_behind_or_switched_on_for_others() {
    let place = directory();
    let Some(disk) = traced_disk(place.path()) else { return };
    let mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap().matches("tracefs").count();
    let before = mounts();
    let mut watch = Watch::start(place.path(), &disk, &["--interval", "20ms"]);
    let first = watch.lines().next().unwrap();
    assert!(first.contains("p50") && first.contains("p99"), "{first}");
    let during = mounts();
    // Killed: no code of its own cleans up.
    drop(watch);
    assert_eq!((during, mounts()), (before, before));
}

#[test]
fn targets_that_cannot_be_traced_are_refused_in_one_line() {
    let place = directory();
    let path = place.path();
    let process = std::process::id().to_string();
    assert!(refused(path, &["watch", &process, "--trace"]).contains("no target is one"));
    assert!(refused(path, &["watch", "--trace", "--prometheus", "-"]).contains("give a port"));
    std::fs::create_dir_all(path.join("host/proc")).unwrap();
    file(path, "host/proc/diskstats", "8 0 sda 100 0 800 250 10 0 160 70 3 90 320\n");
    assert!(refused(path, &["watch", "--trace", "--sysroot", "host"]).contains("leave --sysroot out"));
    if is_root("give up rights") && has_program("setpriv") {
        let program = env!("CARGO_BIN_EXE_plimsoll");
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", program];
        let output = Command::new("setpriv").args(user).args(["watch", "--trace"]).current_dir("/").output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--trace: cannot ") && said.trim().lines().count() == 1, "{said}");
    }
}

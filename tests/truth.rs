//! The truth of the figures: `run` and `sweep` through the whole program, on systems whose law is known.

mod common;
#[path = "common/known_law.rs"]
mod known_law;

use common::*;
use known_law::{Law, Server, Service, Throttled};
use serde_json::Value;

/// Plimsoll's result in JSON.
fn measured(mut command: std::process::Command, arguments: &[&str]) -> Value {
    let output = command.args(arguments).arg("--json").output().expect("the program starts");
    assert!(output.status.success(), "{arguments:?}: {}\n{}", stdout(&output), stderr(&output));
    json(&output)
}

/// A row of a sweep.
#[derive(Debug)]
struct Row {
    depth: f64,
    iops: f64,
    mean_s: f64,
}

/// A number; wide sums are text.
fn number(value: &Value) -> f64 {
    value.as_str().map_or(value.as_f64(), |text| text.parse().ok()).unwrap_or_else(|| panic!("{value}"))
}

fn rows(result: &Value) -> Vec<Row> {
    let row = |point: &Value| {
        let lat = &point["job"]["directions"]["read"]["lat_ns"];
        let mean_s = number(&lat["sum"]) / number(&lat["count"]) / 1e9;
        Row { depth: number(&point["x"]), iops: number(&point["iops"]["mean"]), mean_s }
    };
    result["curves"][0]["points"].as_array().unwrap().iter().map(row).collect()
}

/// Asserts that each row has this rate, and keeps Little's law, within these parts.
fn assert_rates(result: &Value, truth: impl Fn(f64) -> f64, rate_part: f64, little_part: f64) {
    for row in rows(result) {
        let (rate, little) = (row.iops / truth(row.depth), row.iops * row.mean_s / row.depth);
        assert!((rate - 1.0).abs() < rate_part, "{row:?}: {rate} of the truth");
        assert!((little - 1.0).abs() < little_part, "{row:?}: {little} of the depth");
    }
}

/// The kernel lets reads through in bursts, ten a second: at each depth, a window holds whole ones.
#[test]
#[ignore = "needs a quiet machine: make truth runs it"]
fn a_throttle_gives_its_limit_at_every_depth() {
    let Some(device) = Throttled::reads_per_second(1000) else { return };
    let directory = directory();
    let sweep = ["sweep", &device.device.path, "--iodepth=1,16,256,1024", "--time=8s", "--no-files"];
    assert_rates(&measured(device.plimsoll(directory.path()), &sweep), |_| 1000.0, 0.05, 0.03);
}

/// One server of 4 ms: at a depth of 256 a generation takes a second, two and a half times as long as a visit measures.
#[test]
#[ignore = "needs a quiet machine: make truth runs it"]
fn a_deep_queue_has_its_whole_latency() {
    let directory = directory();
    let law = Law::new(1, Service::Constant(4.0));
    let Some(server) = Server::below(directory.path(), law) else { return };
    let path = server.path.display().to_string();
    let sweep = ["sweep", &path, "--iodepth=1,16,256", "--time=6s", "--no-files"];
    // A window of a slow server holds a hundred completions, and a busy processor makes some of them late.
    assert_rates(&measured(plimsoll(directory.path()), &sweep), |depth| law.iops(depth as usize), 0.05, 0.03);
}

/// A window neither favours short requests nor counts a drain: the rates of 16 servers are right, however their
/// services are distributed. The parts allow for the chance of a second of such services.
#[test]
fn heavy_tails_have_their_rate() {
    before_other_programs();
    let directory = directory();
    for service in [Service::Exponential(10.0), Service::Lognormal(10.0, 1.0), Service::Bimodal(4.0, 200.0, 0.01)] {
        let law = Law::new(16, service);
        let Some(server) = Server::below(directory.path(), law) else { return };
        let path = server.path.display().to_string();
        let sweep = ["sweep", &path, "--iodepth=16,64", "--time=6s", "--no-files"];
        assert_rates(&measured(plimsoll(directory.path()), &sweep), |depth| law.iops(depth as usize), 0.15, 0.10);
    }
}

/// The depth changes while the load goes on: each row has the rate and the latency of its depth alone, and the line is
/// 97 % of the number of servers. No asked depth lies near the line: a turn of the queue through FUSE, which takes up
/// to a tenth of a service on a busy machine, moves no row across it.
#[test]
fn slices_have_the_rate_and_the_latency_of_their_depth() {
    before_other_programs();
    let directory = directory();
    let law = Law::new(24, Service::Constant(8.0));
    let Some(server) = Server::below(directory.path(), law) else { return };
    let path = server.path.display().to_string();
    let sweep = ["sweep", &path, "--iodepth=4,8,16,32,64,128", "--time=16s", "--no-files"];
    let result = measured(plimsoll(directory.path()), &sweep);
    let visits = result["curves"][0]["points"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|point| &**point["visits"].as_array().unwrap());
    let slices: f64 = visits.filter_map(|visit| visit["slices"]["count"].as_f64()).sum();
    assert!(slices >= 12.0, "{slices} slices; {}", result["curves"][0]["memory"]);
    assert_rates(&result, |depth| law.iops(depth as usize), 0.10, 0.05);
    let line = &result["curves"][0]["line"]["load_line"];
    assert!(number(&line["low"]) <= 24.0 && (23.0..=32.0).contains(&number(&line["high"])), "{line}");
}

/// The depth over time is that which the server saw, also where the job pauses and the mean at submissions is another.
#[test]
fn the_depth_is_the_mean_over_time() {
    before_other_programs();
    let directory = directory();
    let Some(server) = Server::below(directory.path(), Law::new(8, Service::Constant(5.0))) else { return };
    let path = format!("--filename={}", server.path.display());
    let job = ["run", "--name=j", &path, "--rw=randread", "--bs=4k", "--direct=1", "--iodepth=8", "--number_ios=200"];
    for more in ["--thinktime=50ms", "--iodepth_batch=8"] {
        succeed(directory.path(), &[&job[..], &[more, "--ioengine=io_uring", "--save=result.json"]].concat());
        let result = json_file(&directory.path().join("result.json"));
        let log = server.take_log();
        let job = &result["jobs"][0];
        let told = number(&job["depth"]["in_flight_ns"]) / number(&job["runtime_ns"]);
        let seen: f64 = log.iter().map(|seen| (seen.replied_ns - seen.arrived_ns) as f64).sum();
        let seen = seen / number(&job["runtime_ns"]);
        let latencies = number(&job["directions"]["read"]["lat_ns"]["sum"]) / number(&job["runtime_ns"]);
        // By Little's law both are one figure. A request is in flight for longer than the server has it.
        assert!((told / latencies - 1.0).abs() < 0.01, "{more}: {told} told, latencies give {latencies}");
        assert!(told >= seen, "{more}: {told} told, {seen} seen");
    }
}

/// An open loop on one server of 1 ms, and on a throttle of 1,000 reads a second: the highest rate that each keeps up
/// with lies within the bounds, and both ends are there.
#[test]
#[ignore = "takes a minute: make truth runs it"]
fn a_rate_has_its_limit() {
    let directory = directory();
    let check = |command: std::process::Command, path: &str| {
        let sweep = ["sweep", path, "--axis=rate_iops=125..4000", "--time=30s", "--no-files"];
        let limit = &measured(command, &sweep)["curves"][0]["saturation"];
        let (low, high) = (limit["low"].as_f64(), limit["high"].as_f64());
        assert!(low.is_some_and(|low| low <= 1010.0) && high.is_some_and(|high| high >= 990.0), "{limit}");
    };
    if let Some(server) = Server::below(directory.path(), Law::new(1, Service::Constant(1.0))) {
        check(plimsoll(directory.path()), &server.path.display().to_string());
    }
    if let Some(device) = Throttled::reads_per_second(1000) {
        check(device.plimsoll(directory.path()), &device.device.path);
    }
}

/// The drain of a deep queue is a fifth of a short job, and nothing of a long one.
#[test]
fn a_job_that_mostly_drains_is_out_of_balance() {
    let directory = directory();
    let Some(server) = Server::below(directory.path(), Law::new(1, Service::Constant(2.0))) else { return };
    let path = format!("--filename={}", server.path.display());
    let job = ["run", "--name=j", &path, "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring"];
    let is_out_of_balance = |more: [&str; 2]| {
        succeed(directory.path(), &[&job[..], &more, &["--save=result.json"]].concat());
        let result = json_file(&directory.path().join("result.json"));
        let verdicts = result["jobs"][0]["verdicts"].as_array().unwrap();
        verdicts.iter().any(|verdict| verdict["code"] == "queue-out-of-balance")
    };
    assert!(is_out_of_balance(["--iodepth=64", "--number_ios=256"]));
    assert!(!is_out_of_balance(["--iodepth=4", "--number_ios=400"]));
}

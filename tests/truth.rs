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
    let _ = before_other_programs(); // a quiet machine needs no priority
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
/// to a tenth of a service on a busy machine, moves no row across it. Depths so far apart leave bounds that `--until`
/// cannot bring together.
#[test]
fn slices_have_the_rate_and_the_latency_of_their_depth() {
    let _ = before_other_programs(); // a quiet machine needs no priority
    let directory = directory();
    let law = Law::new(24, Service::Constant(8.0));
    let Some(server) = Server::below(directory.path(), law) else { return };
    let path = server.path.display().to_string();
    let sweep = ["sweep", &path, "--iodepth=4,8,16,32,64,128", "--until=1.1", "--time=16s", "--no-files"];
    let result = measured(plimsoll(directory.path()), &sweep);
    let codes: Vec<&str> = result["verdicts"].as_array().unwrap().iter().filter_map(|of| of["code"].as_str()).collect();
    assert!(codes.contains(&"wider-than-asked"), "{codes:?}");
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

/// Both sides of a comparison take turns at the same servers: each has the rate that it has alone, and the requests of
/// both meet only where a turn ends.
#[test]
fn sides_in_turns_have_the_rates_of_their_own() {
    let _ = before_other_programs(); // a quiet machine needs no priority
    let directory = directory();
    let Some(server) = Server::below(directory.path(), Law::new(4, Service::Constant(2.0))) else { return };
    for (side, depth) in [("a.fio", 6), ("b.fio", 2)] {
        let job = "[j]\nioengine=io_uring\nrw=randread\nbs=4k\ndirect=1\ntime_based\nruntime=1";
        file(directory.path(), side, format!("{job}\nfilename={}\niodepth={depth}\n", server.path.display()));
    }
    let result = measured(plimsoll(directory.path()), &["compare", "--time=10s", "a.fio", "b.fio"]);
    let effect = |figure: &str| {
        let effects = result["effects"].as_array().unwrap().iter();
        let effect = effects.into_iter().find(|effect| effect["figure"] == figure).unwrap();
        assert_eq!(effect["cannot_tell"], Value::Null, "{effect}");
        ["a", "b"].map(|side| number(&effect[side]["mean"]))
    };
    let ([a, b], latencies) = (effect("iops"), effect("lat_mean"));
    assert!((1800.0..2050.0).contains(&a), "{a} of 2,000 a second");
    // A turn of the queue through FUSE, during which a server of two idles, takes a part of its time.
    assert!((700.0..1020.0).contains(&b), "{b} of 1,000 a second");
    // By Little's law, each side has as many requests in flight as its depth.
    for (iops, latency_ns, depth) in [(a, latencies[0], 6.0), (b, latencies[1], 2.0)] {
        assert!((iops * latency_ns / 1e9 / depth - 1.0).abs() < 0.05, "{iops}, {latency_ns} ns");
    }
    assert!(result["runs"].as_array().unwrap().len() >= 5, "{}", result["estimator"]);
    let log = server.take_log();
    let mut moments: Vec<(u64, i32)> =
        log.iter().flat_map(|seen| [(seen.arrived_ns, 1), (seen.replied_ns, -1)]).collect();
    moments.sort();
    let mut in_flight = 0;
    let most = moments.iter().map(|(_, change)| (in_flight += change, in_flight).1).max();
    assert!(most <= Some(8), "{most:?} in flight");
    let together: u64 = moments
        .windows(2)
        .fold((0, 0), |(together, in_flight), two| {
            let in_flight = in_flight + two[0].1;
            (together + if in_flight > 6 { two[1].0 - two[0].0 } else { 0 }, in_flight)
        })
        .0;
    let whole = moments.last().unwrap().0 - moments[0].0;
    assert!(together < whole / 20, "{together} of {whole} ns");
}

/// A throttle remembers the side before for a tenth of a second. Both sides have its limit: no difference is claimed.
#[test]
#[ignore = "takes a minute: make truth runs it"]
fn sides_on_a_throttle_do_not_differ() {
    let Some(device) = Throttled::reads_per_second(1000) else { return };
    let directory = directory();
    for (side, depth) in [("a.fio", 1), ("b.fio", 64)] {
        let job = "[j]\nioengine=io_uring\nrw=randread\nbs=4k\ndirect=1\n";
        file(directory.path(), side, format!("{job}filename={}\niodepth={depth}\n", device.device.path));
    }
    // The file behind the loop device lies in the page cache, which is invalid, and status 4.
    let compare = ["compare", "--time=1m", "--json", "a.fio", "b.fio"];
    let result = json(&device.plimsoll(directory.path()).args(compare).output().expect("the program starts"));
    println!("{}", result["sentence"]);
    let iops = &result["effects"][0];
    let (low, high) = (number(&iops["change"]["low"]), number(&iops["change"]["high"]));
    assert!(iops["cannot_tell"] == "remembers" || (low <= 0.02 && high >= -0.02), "{iops}");
}

/// The depth over time is that which the server saw, also where the job pauses and the mean at submissions is another.
#[test]
fn the_depth_is_the_mean_over_time() {
    let _ = before_other_programs(); // a quiet machine needs no priority
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

/// A storage of known law that is swept.
enum Storage {
    Server(Law),
    Limit(u64),
}

/// A kind of sweeps, and the answers that are true: any depth of `line` may be the load line, for a turn through FUSE
/// takes a part of a service.
struct Kind {
    name: &'static str,
    storage: Storage,
    has_neighbour: bool,
    line: (f64, f64),
    plateau: f64,
    overload: Option<f64>,
}

fn kinds() -> Vec<Kind> {
    let server = |name, law: Law| {
        let least = 0.97 * law.servers as f64;
        let overload = law.cliff.map(|(above, _)| above as f64 + 1.0);
        let line = (least, 1.1 * least + 1.0);
        let plateau = law.iops(law.servers);
        Kind { name, storage: Storage::Server(law), has_neighbour: false, line, plateau, overload }
    };
    let limit = |name, limit: u64, line, overload| {
        let plateau = limit as f64;
        Kind { name, storage: Storage::Limit(limit), has_neighbour: false, line, plateau, overload }
    };
    let exponential = Law::new(20, Service::Exponential(5.0));
    let beside = |name, law| Kind { has_neighbour: true, ..server(name, law) };
    vec![
        server("constant", Law::new(12, Service::Constant(4.0))),
        server("exponential", exponential),
        server("heavy tail", Law::new(20, Service::Lognormal(5.0, 1.0))),
        server("bimodal", Law::new(20, Service::Bimodal(3.0, 60.0, 0.02))),
        server("cliff", Law { cliff: Some((64, 2.0)), ..exponential }),
        server("noise of 2 %", Law { noise: 0.02, ..exponential }),
        server("noise of 10 %", Law { noise: 0.1, ..exponential }),
        server("stalls", Law { stalls: Some((3.0, 0.3)), ..exponential }),
        beside("constant beside a neighbour", Law::new(12, Service::Constant(4.0))),
        beside("exponential beside a neighbour", exponential),
        limit("limit of 100", 100, (1.0, 1.0), None),
        limit("limit of 1000", 1000, (1.0, 1.0), None),
        // A loop device has 128 tags: beyond them fio, too, loses a sixth of the rate.
        limit("limit of 20000", 20_000, (1.0, 16.0), Some(129.0)),
    ]
}

/// Takes one processor half of the time, until it is dropped.
struct Neighbour(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Neighbour {
    fn start() -> Neighbour {
        use std::sync::atomic::Ordering::Relaxed;
        let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = is_over.clone();
        std::thread::spawn(move || {
            let part = std::time::Duration::from_millis(50);
            while !seen.load(Relaxed) {
                let began = std::time::Instant::now();
                while began.elapsed() < part {
                    std::hint::spin_loop();
                }
                // The other half of the time; nothing waits for it.
                std::thread::sleep(part);
            }
        });
        Neighbour(is_over)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The faults of a sweep of that kind, and the factor between the bounds of its load line if it names one.
fn judge(kind: &Kind, curve: &Value) -> (Vec<String>, Option<f64>) {
    let line = &curve["line"];
    let bounds = |of: &Value| Some((of["low"].as_f64()?, of["high"].as_f64()?));
    let mut faults = Vec::new();
    let plateau = bounds(&line["plateau_iops"]);
    let load_line = bounds(&line["load_line"]);
    // A row may be off by 3 %.
    if load_line.is_some()
        && !plateau.is_some_and(|(low, high)| 0.97 * low <= kind.plateau && kind.plateau <= 1.03 * high)
    {
        faults.push(format!("plateau {}", line["plateau_iops"]));
    }
    if load_line.is_some_and(|(low, high)| low > kind.line.1 || high < kind.line.0.floor()) {
        faults.push(format!("load line {}", line["load_line"]));
    }
    match (bounds(&line["overload"]), kind.overload) {
        (Some(_), None) => faults.push(format!("overload {}", line["overload"])),
        (Some((low, high)), Some(at)) if at < low || at > high => faults.push(format!("overload {}", line["overload"])),
        _ => {}
    }
    if line["still_rising"] == true {
        faults.push("still rising".to_string());
    }
    if !line["burst"].is_null() && matches!(kind.storage, Storage::Server(_)) {
        faults.push(format!("burst {}", line["burst"]));
    }
    (faults, load_line.map(|(low, high)| high / low))
}

/// Whole sweeps of 40 s: each answer holds the truth, 95 of 100 times at least. `TRUTH_SWEEPS` sweeps of each kind (3),
/// of the kinds whose names contain `TRUTH_KIND`; `TRUTH_KEEP` names a directory for their curves.
#[test]
#[ignore = "takes half an hour: make truth runs it"]
fn sweeps_hold_the_truth() {
    let text = |name: &str, otherwise: &str| std::env::var(name).unwrap_or(otherwise.to_string());
    let count: usize = text("TRUTH_SWEEPS", "3").parse().expect("a number of sweeps");
    let wanted = text("TRUTH_KIND", "");
    let directory = directory();
    let (mut all, mut failed) = (0, 0);
    println!("{:<32} {:>6} {:>6} {:>7}  bounds of the load line, high / low", "storage", "right", "named", "median");
    for kind in kinds().into_iter().filter(|kind| kind.name.contains(&wanted)) {
        let mut widths = Vec::new();
        let mut faults = 0;
        let _neighbour = kind.has_neighbour.then(Neighbour::start);
        for round in 0..count {
            let sweep = |command, path: &str| measured(command, &["sweep", path, "--no-files"])["curves"][0].clone();
            let curve = match &kind.storage {
                Storage::Server(law) => match Server::below(directory.path(), *law) {
                    Some(server) => sweep(plimsoll(directory.path()), &server.path.display().to_string()),
                    None => return,
                },
                Storage::Limit(limit) => match Throttled::reads_per_second(*limit) {
                    Some(device) => sweep(device.plimsoll(directory.path()), &device.device.path),
                    None => return,
                },
            };
            let (wrong, width) = judge(&kind, &curve);
            if let Ok(keep) = std::env::var("TRUTH_KEEP") {
                let name = format!("{keep}/{}-{round}.json", kind.name.replace([' ', '%'], ""));
                std::fs::write(name, curve.to_string()).expect("a kept curve");
            }
            widths.extend(width);
            faults += usize::from(!wrong.is_empty());
            if !wrong.is_empty() || width.is_none() {
                println!("  {}: {}; {}; {}", kind.name, wrong.join(", "), curve["line"]["unnamed"], curve["memory"]);
            }
        }
        widths.sort_by(f64::total_cmp);
        let median = widths.get(widths.len() / 2).copied().unwrap_or(f64::NAN);
        println!("{:<32} {:>6} {:>6} {median:>7.2}  {widths:.2?}", kind.name, count - faults, widths.len());
        all += count;
        failed += faults;
    }
    assert!(failed * 20 <= all, "{failed} of {all} sweeps are wrong");
}

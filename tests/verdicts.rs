//! Every verdict fires from a real run: of the program, on real files, not from a result that was made up.

mod common;
use common::loop_device::LoopDevice;
use common::*;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use measure::verdict::CODES;
use serde_json::Value;

/// Verdicts that other tests of the program bring up, and where.
const ELSEWHERE: [(&str, &str); 3] = [
    ("different-blocks", include_str!("compare.rs")),
    ("host-slow", include_str!("hosts_run.rs")),
    ("process-lost", include_str!("files.rs")),
];

/// Verdicts that nothing brings up to order here, and why.
const NOT_TO_ORDER: [(&str, &str); 6] = [
    ("lone-peak", "needs a machine that is faster for one second; crates/measure/tests/coverage.rs simulates it"),
    ("generator-cpu-bound", "needs a CPU that nobody else uses while the job runs"),
    ("machine-cpu-bound", "needs all CPUs while the job runs"),
    ("threads-uneven", "needs threads that the scheduler treats unequally"),
    ("engine-replaced", "needs a kernel that refuses io_uring, for this process alone"),
    ("start-skew", "needs hosts whose clones start a millisecond apart"),
];

/// All codes in a result: of its jobs, its phases, its points, and its own.
fn codes(result: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    match result {
        Value::Object(fields) => {
            for verdict in fields.get("verdicts").and_then(Value::as_array).into_iter().flatten() {
                found.insert(verdict["code"].as_str().expect("a code").to_string());
            }
            fields.values().for_each(|value| found.append(&mut codes(value)));
        }
        Value::Array(values) => values.iter().for_each(|value| found.append(&mut codes(value))),
        _ => {}
    }
    found
}

/// The codes of one job with these options, however it ends.
fn of_run(directory: &Path, options: &[&str]) -> BTreeSet<String> {
    let arguments = [&["run", "--save=result.json", "--name=j"], options].concat();
    let output = run(directory, &arguments);
    let path = directory.join("result.json");
    assert!(path.exists(), "{options:?}: {}", stderr(&output));
    let found = codes(&json_file(&path));
    std::fs::remove_file(path).unwrap();
    found
}

/// The codes of a sweep with these arguments.
fn of_sweep(directory: &Path, arguments: &[&str]) -> BTreeSet<String> {
    codes(&json(&succeed(directory, &[&["sweep", "--json"], arguments].concat())))
}

fn fires(code: &str, found: &BTreeSet<String>, seen: &mut BTreeSet<String>) {
    assert!(CODES.contains(&code), "{code} is not in the list of codes");
    assert!(found.contains(code), "{code} does not fire: {found:?}");
    seen.insert(code.into());
}

#[test]
fn every_verdict_fires_from_a_real_run_or_says_why_it_cannot() {
    let directory = directory();
    let here = directory.path();
    let mut seen = BTreeSet::new();
    let mut fire = |code: &str, found: &BTreeSet<String>| fires(code, found, &mut seen);
    let written = ["--ioengine=psync", "--filename=data", "--size=1m", "--bs=64k"];
    let with = |more: &[&'static str]| [&written[..], more].concat();

    let found = of_run(here, &with(&["--rw=write"]));
    ["writes-not-synced", "interval-too-short", "too-few-samples", "steadiness-unknown", "allocating-writes"]
        .iter()
        .for_each(|code| fire(code, &found));
    fire("page-cache-read", &of_run(here, &with(&["--rw=read", "--invalidate=0"])));
    fire("clones-on-same-blocks", &of_run(here, &with(&["--rw=read", "--numjobs=2"])));
    fire("depth-not-achieved", &of_run(here, &with(&["--rw=read", "--iodepth=4"])));
    let hopeless = ["--rw=randread", "--time_based", "--runtime=300ms", "--rate_iops=50m", "--rate_process=poisson"];
    let found = of_run(here, &with(&hopeless));
    fire("rate-not-met", &found);
    fire("queued-before-issue", &found);
    let thinking = ["--time_based", "--runtime=5", "--thinktime=1s", "--thinktime_blocks=100", "--log_avg_msec=250"];
    fire("not-steady", &of_run(here, &[&["--ioengine=null", "--size=1g", "--rw=read"], &thinking[..]].concat()));

    std::fs::File::create(here.join("hole")).unwrap().set_len(1 << 20).unwrap();
    fire("unwritten-read", &of_run(here, &["--ioengine=psync", "--filename=hole", "--size=1m", "--rw=read"]));

    let verified = ["--ioengine=psync", "--filename=checked", "--size=64k", "--bs=4k", "--verify=crc32c"];
    of_run(here, &[&verified[..], &["--rw=write", "--do_verify=0"]].concat());
    let path = here.join("checked");
    let mut content = std::fs::read(&path).unwrap();
    content[10_000] ^= 1;
    std::fs::write(path, content).unwrap();
    let lenient = ["--rw=read", "--continue_on_error=verify"];
    let found = of_run(here, &[&verified[..], &lenient].concat());
    fire("verify-mismatch", &found);
    fire("errors-tolerated", &found);

    let shared = tempfile::tempdir_in("/dev/shm").unwrap();
    fire("memory-filesystem", &of_run(shared.path(), &with(&["--rw=write"])));

    // Sweeps. A thinking user makes throughput that of the depth, whatever the machine does beside.
    fire("too-few-points", &of_sweep(here, &["data", "--iodepth=1,2", "--time=2s"]));
    fire("no-load-line", &of_sweep(here, &["data", "--iodepth=1,2,4", "--time=2s"]));
    let rate = ["--engine=null", "--iodepth=1,2,4", "--time=5s", "--rate_iops=500"];
    let found = of_sweep(here, &rate);
    fire("rate-limited", &found);
    assert!(!found.contains("generator-ceiling"), "the rate is not the generator's limit: {found:?}");
    let found = of_sweep(here, &["data", "--engine=psync", "--iodepth=1,2,4", "--time=9s", "--thinktime=30ms"]);
    fire("still-rising", &found);
    fire("generator-ceiling", &found);
    fire("uncertain", &found);

    let limited = "ulimit -n 100; exec \"$0\" sweep --json data --engine=psync --iodepth=1,2,4,512 --time=4s";
    let output = Command::new("sh").args(["-c", limited, env!("CARGO_BIN_EXE_plimsoll")]).current_dir(here).output();
    fire("depth-not-possible", &codes(&json(&output.unwrap())));

    if let Some(ramfs) = Mount::new("ramfs", "size=64m") {
        std::fs::write(ramfs.path().join("data"), vec![1; 1 << 20]).unwrap();
        fire("no-direct-io", &of_sweep(ramfs.path(), &["data", "--iodepth=1,2", "--time=2s"]));
    } else {
        seen.insert("no-direct-io".into());
    }
    let mut fire = |code: &str, found: &BTreeSet<String>| fires(code, found, &mut seen);
    std::fs::write(here.join("disk"), vec![1; 4 << 20]).unwrap();
    match LoopDevice::over(&here.join("disk")) {
        Some(device) => {
            let name = format!("--filename={}", device.path);
            let direct = ["--ioengine=psync", "--direct=1", "--rw=read", "--size=4m", "--bs=64k", &name];
            fire("loop-page-cache", &of_run(here, &direct));
        }
        None => drop(seen.insert("loop-page-cache".into())),
    }
    for (code, text) in ELSEWHERE {
        assert!(text.contains(code), "{code} is not in the test that is to bring it up");
        seen.insert(code.into());
    }
    for (code, why) in NOT_TO_ORDER {
        assert!(!why.is_empty() && seen.insert(code.into()), "{code} fires, so it needs no exception");
    }
    let without: Vec<&&str> = CODES.iter().filter(|code| !seen.contains(**code)).collect();
    assert!(without.is_empty(), "no run brings up {without:?}");
}

//! Reports while a run goes on: `--status-interval`, `--bandwidth-log`, and more than one format.

mod common;
use common::*;
use serde_json::Value;
use std::io::BufReader;
use std::process::Stdio;

/// A job at a known rate, on no storage.
const STEADY: [&str; 4] = ["--name=a", "--ioengine=null", "--size=1g", "--rate_iops=2000"];

fn documents(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().expect("JSON after JSON")
}

/// Reads of each job.
fn reads(report: &Value) -> Vec<u64> {
    report["jobs"].as_array().unwrap().iter().map(|job| job["read"]["total_ios"].as_u64().unwrap()).collect()
}

#[test]
fn a_status_is_a_whole_report_of_what_was_measured_so_far() {
    for clones in ["--thread=0", "--thread=1"] {
        let directory = directory();
        // Ended when enough was seen; otherwise after this time.
        let endless = ["--numjobs=2", clones, "--time_based", "--runtime=600"];
        let mut command = plimsoll(directory.path());
        command.args(["run", "--output-format=json", "--status-interval=0.1"]).args(STEADY).args(endless);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>().map_while(Result::ok);
        let mut reports = Vec::new();
        let all_moved = |reports: &[Value]| {
            let (first, last) = (reads(&reports[0]), reads(reports.last().unwrap()));
            reports.len() >= 3 && first.iter().zip(&last).all(|(first, last)| first < last)
        };
        while reports.is_empty() || !all_moved(&reports) {
            reports.push(said.next().unwrap_or_else(|| panic!("{clones}: it ended after {} reports", reports.len())));
        }
        tool("kill", &["-s", "INT", &child.id().to_string()], directory.path());
        reports.extend(said);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{clones}");
        for pair in reports.windows(2) {
            let (earlier, later) = (reads(&pair[0]), reads(&pair[1]));
            assert_eq!((earlier.len(), later.len()), (2, 2), "{clones}: a report has every job");
            assert!(earlier.iter().zip(&later).all(|(earlier, later)| earlier <= later), "{clones}");
        }
        for report in &reports {
            let first = &report["jobs"][0]["read"];
            assert_eq!(first["clat_ns"]["N"], first["total_ios"], "{clones}: latencies are in it");
            assert_eq!(first["io_bytes"].as_u64().unwrap(), 4096 * reads(report)[0], "{clones}");
        }
    }
}

#[test]
fn a_status_goes_where_the_report_goes() {
    let directory = directory();
    let status = ["run", "--output=out", "--output-format=json", "--status-interval=100ms"];
    // The file is written at the end: long enough for a status, whatever holds the machine up.
    let options = [&status[..], &STEADY, &["--time_based", "--runtime=5"]].concat();
    assert_eq!(stdout(&succeed(directory.path(), &options)), "");
    let text = std::fs::read_to_string(directory.path().join("out")).unwrap();
    assert!(documents(&text).len() >= 2);
}

#[test]
fn the_bandwidth_log_is_of_all_jobs_together() {
    let directory = directory();
    // Ended by its work, not by time: 2 clones read 2000 blocks of 4 KiB each, in a second or later.
    let job = ["run", "--bandwidth-log", "--numjobs=2", "--number_ios=2000", "--save=result.json"];
    succeed(directory.path(), &[&job[..], &STEADY].concat());
    let names = names(directory.path());
    assert_eq!(names, ["agg-read_bw.log", "agg-trim_bw.log", "agg-write_bw.log", "result.json"]);
    let log = std::fs::read_to_string(directory.path().join("agg-read_bw.log")).unwrap();
    let rows: Vec<Vec<f64>> = log.lines().map(|line| line.split(", ").map(|v| v.parse().unwrap()).collect()).collect();
    // Bandwidth times time is what was read in the jobs' intervals. Only a last part of less than half an interval is
    // in none: with nothing in the way, they hold everything.
    let (_, kib) = rows.iter().fold((0.0, 0.0), |(at, sum), row| (row[0], sum + row[1] * (row[0] - at) / 1000.0));
    let result = json_file(&directory.path().join("result.json"));
    let jobs = result["jobs"].as_array().unwrap();
    let intervals = jobs.iter().flat_map(|job| job["intervals"].as_array().unwrap());
    let read_kib = intervals.map(|interval| interval["bytes"]["read"].as_f64().unwrap()).sum::<f64>() / 1024.0;
    assert!(read_kib > 0.0 && read_kib <= 16_000.0, "{read_kib}");
    assert!((kib / read_kib - 1.0).abs() < 0.05, "{kib} KiB of {read_kib}\n{log}");
    assert!(jobs.iter().all(|job| job["directions"]["read"]["ops"] == 2000));
}

#[test]
fn formats_follow_one_another() {
    let directory = directory();
    let text = stdout(&succeed(
        directory.path(),
        &["run", "--output-format=normal,terse,json", "--name=a", "--ioengine=null", "--size=1m"],
    ));
    let terse = text.lines().position(|line| line.starts_with("3;fio-")).expect("terse output");
    assert!(text.lines().take(terse).any(|line| line.contains("IOPS")), "normal comes first");
    let rest = text.lines().skip(terse + 1).collect::<Vec<_>>().join("\n");
    assert_eq!(documents(&rest).len(), 1);
}

#[test]
fn bits_and_thousands_where_the_job_wants_them() {
    let directory = directory();
    let job = ["--name=a", "--ioengine=null", "--rw=read", "--bs=1m", "--size=16m", "--kb_base=1000", "--unit_base=1"];
    let text = stdout(&succeed(directory.path(), &[&["run"], &job[..]].concat()));
    let line = text.lines().find(|line| line.contains("IOPS")).expect("a line of reads");
    let (first, second) = (line.find("bit/s ("), line.find("ibit/s)"));
    assert!(first < second && first.is_some(), "decimal bits first, binary ones behind: {line}");
    assert!(line.contains("16 MB in"), "{line}");
}

/// One value of `rate_min` stands for every direction; a job that only reads is not asked for writes.
#[test]
fn a_least_rate_is_asked_of_the_directions_that_the_job_has() {
    let directory = directory();
    let job = ["run", "--name=a", "--ioengine=null", "--rw=read", "--size=1g", "--time_based", "--runtime=4"];
    let minima = ["--rate_iops_min=100", "--ratecycle=500"];
    succeed(directory.path(), &[&job[..], &minima].concat());
}

/// SIGUSR1 asks for a status, and the run goes on; so does a file of fio's name.
#[test]
fn a_signal_asks_for_a_status_and_ends_nothing() {
    let directory = directory();
    let mut command = plimsoll(directory.path());
    command.args(["fio", "--output-format=json"]).args(STEADY).args(["--time_based", "--runtime=600"]);
    command.env("TMPDIR", directory.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut said = serde_json::Deserializer::from_reader(stdout).into_iter::<Value>().map_while(Result::ok);
    let id = child.id().to_string();
    // The program has taken the signal over once its handler stands.
    let handled = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the caught signals").trim();
        u64::from_str_radix(caught, 16).unwrap() & 1 << (10 - 1) != 0
    };
    while !handled() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    tool("kill", &["-s", "USR1", &id], directory.path());
    let first = said.next().expect("a status");
    std::fs::write(directory.path().join("fio-dump-status"), "").unwrap();
    let second = said.next().expect("another status");
    assert!(!directory.path().join("fio-dump-status").exists());
    assert!(reads(&first)[0] <= reads(&second)[0]);
    assert!(first["timestamp_ms"].as_u64() < second["timestamp_ms"].as_u64());
    tool("kill", &["-s", "INT", &id], directory.path());
    assert_eq!(said.count(), 1, "the last report");
    assert_eq!(child.wait().unwrap().code(), Some(128));
}

/// The moment of a document is the clock's, and `elapsed` counts from the start of the program, whatever the stage.
#[test]
fn a_report_of_stages_is_stamped_with_its_own_moment() {
    let directory = directory();
    let stage = ["--ioengine=null", "--size=1g", "--time_based", "--runtime=1", "--stonewall"];
    let jobs = [&["--name=a"], &stage[..], &["--name=b"], &stage[..]].concat();
    let output = succeed(directory.path(), &[&["run", "--output-format=json"], &jobs[..]].concat());
    let report = json(&output);
    let stamp = report["timestamp_ms"].as_u64().unwrap();
    let jobs = report["jobs"].as_array().unwrap();
    assert!(stamp >= jobs[1]["job_start"].as_u64().unwrap() + 1000, "{stamp}: {}", jobs[1]["job_start"]);
    assert!(jobs.iter().all(|job| job["elapsed"].as_u64().unwrap() >= 2), "since the start of the program");
}

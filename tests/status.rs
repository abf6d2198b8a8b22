//! Reports while a run goes on: `--status-interval`, `--bandwidth-log`, and more than one format.

mod common;
use common::*;
use serde_json::Value;

/// A job that goes on for a while at a known rate, on no storage.
const STEADY: [&str; 6] =
    ["--name=a", "--ioengine=null", "--size=1g", "--rate_iops=2000", "--runtime=1", "--time_based"];

fn documents(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().expect("JSON after JSON")
}

#[test]
fn a_status_is_a_whole_report_of_what_was_measured_so_far() {
    for clones in ["--thread=0", "--thread=1"] {
        let directory = directory();
        let options = [&["run", "--output-format=json", "--status-interval=0.1", "--numjobs=2", clones], &STEADY[..]];
        let reports = documents(&stdout(&succeed(directory.path(), &options.concat())));
        assert!(reports.len() >= 3, "{clones}: {} reports", reports.len());
        let ops = |report: &Value| -> Vec<u64> {
            let jobs = report["jobs"].as_array().unwrap();
            jobs.iter().map(|job| job["read"]["total_ios"].as_u64().unwrap()).collect()
        };
        for pair in reports.windows(2) {
            let (earlier, later) = (ops(&pair[0]), ops(&pair[1]));
            assert_eq!(earlier.len(), 2, "{clones}: a report has every job");
            assert!(earlier.iter().zip(&later).all(|(earlier, later)| earlier <= later), "{clones}");
        }
        let first = &reports[0]["jobs"][0];
        assert!(ops(&reports[0]) < ops(reports.last().unwrap()), "{clones}: the first is not the last");
        assert_eq!(first["read"]["clat_ns"]["N"], first["read"]["total_ios"], "{clones}: latencies are in it");
        assert_eq!(first["read"]["io_bytes"].as_u64().unwrap(), 4096 * ops(&reports[0])[0], "{clones}");
    }
}

#[test]
fn a_status_goes_where_the_report_goes() {
    let directory = directory();
    let options = [&["run", "--output=out", "--output-format=json", "--status-interval=300ms"], &STEADY[..]].concat();
    assert_eq!(stdout(&succeed(directory.path(), &options)), "");
    let text = std::fs::read_to_string(directory.path().join("out")).unwrap();
    assert!(documents(&text).len() >= 2);
}

#[test]
fn the_bandwidth_log_is_of_all_jobs_together() {
    let directory = directory();
    succeed(directory.path(), &[&["run", "--bandwidth-log", "--numjobs=2"], &STEADY[..]].concat());
    let names = names(directory.path());
    assert_eq!(names, ["agg-read_bw.log", "agg-trim_bw.log", "agg-write_bw.log"]);
    let log = std::fs::read_to_string(directory.path().join("agg-read_bw.log")).unwrap();
    let rows: Vec<Vec<f64>> = log.lines().map(|line| line.split(", ").map(|v| v.parse().unwrap()).collect()).collect();
    // Bandwidth times time is what was read: 2 clones, 2000 ops of 4 KiB each in the one second.
    let (_, kib) = rows.iter().fold((0.0, 0.0), |(at, sum), row| (row[0], sum + row[1] * (row[0] - at) / 1000.0));
    assert!((kib - 16_000.0).abs() < 160.0, "{kib} KiB\n{log}");
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

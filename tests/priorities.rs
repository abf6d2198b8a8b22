//! I/O priorities of single requests: `cmdprio_percentage`, `cmdprio_bssplit`, and their statistics.

mod common;
use common::*;
use serde_json::Value;

fn result(directory: &std::path::Path, words: &[&str]) -> Value {
    let job = ["run", "--output-format=json+", "--name=j", "--filename=f", "--size=8m", "--direct=1", "--rw=randrw"];
    json(&succeed(directory, &[&job[..], words].concat()))
}

/// Class, level and samples of each priority that a direction lists.
fn listed(section: &Value, latency: &str) -> Vec<(u64, u64, u64)> {
    let listed = section["prios"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |value: &Value| value.as_u64().unwrap();
    let mut all: Vec<_> = listed
        .iter()
        .map(|one| {
            assert!(one[latency]["percentile"].is_object() && one[latency]["bins"].is_object(), "{one}");
            (number(&one["prioclass"]), number(&one["prio"]), number(&one[latency]["N"]))
        })
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn a_share_of_the_requests_has_a_priority_and_statistics() {
    let directory = directory();
    for engine in ["--ioengine=io_uring", "--ioengine=libaio"] {
        let share = ["--cmdprio_percentage=0,40", "--cmdprio_class=2", "--cmdprio=3", "--iodepth=4", engine];
        let found = result(directory.path(), &share);
        let job = &found["jobs"][0];
        assert!(job["read"]["prios"].is_null(), "reads have one priority, which is not listed");
        let prios = listed(&job["write"], "clat_ns");
        let total = job["write"]["total_ios"].as_u64().unwrap();
        let [(0, 0, usual), (2, 3, high)] = prios[..] else { panic!("{prios:?}") };
        assert_eq!(usual + high, total);
        assert!((0.3..0.5).contains(&(high as f64 / total as f64)), "{high} of {total}");
    }
    let split = ["--bssplit=4k/50:8k/50", "--cmdprio_bssplit=4k/100/3/0:8k/50/2/7:8k/25/2/1", "--ioengine=io_uring"];
    let found = result(directory.path(), &[&split[..], &["--lat_percentiles=1", "--prioclass=2", "--prio=5"]].concat());
    for direction in ["read", "write"] {
        let section = &found["jobs"][0][direction];
        let prios = listed(section, "lat_ns");
        let kinds: Vec<_> = prios.iter().map(|&(class, level, _)| (class, level)).collect();
        assert_eq!(kinds, [(2, 1), (2, 5), (2, 7), (3, 0)], "{direction}");
        assert_eq!(prios.iter().map(|one| one.2).sum::<u64>(), section["total_ios"].as_u64().unwrap());
    }
    let words = ["run", "--name=j", "--filename=f", "--size=1m", "--ioengine=io_uring", "--cmdprio_percentage=50"];
    let text = stdout(&succeed(directory.path(), &[&words[..], &["--cmdprio_class=2"]].concat()));
    assert!(text.contains("prio 0/0") && text.contains("prio 2/0"), "{text}");
}

#[test]
fn logs_have_the_priority_of_each_request() {
    let directory = directory();
    let job =
        ["--ioengine=io_uring", "--cmdprio_percentage=50", "--cmdprio_class=2", "--cmdprio=3", "--write_lat_log=l"];
    let priorities = |more: &[&str]| -> std::collections::BTreeSet<String> {
        result(directory.path(), &[&job[..], more].concat());
        let log = std::fs::read_to_string(directory.path().join("l_clat.1.log")).unwrap();
        log.lines().map(|line| line.rsplit(", ").next().unwrap().to_string()).collect()
    };
    assert_eq!(priorities(&["--log_prio=1"]).into_iter().collect::<Vec<_>>(), ["0x0000", "0x4003"]);
    assert_eq!(priorities(&["--log_prio=1", "--log_avg_msec=1"]).into_iter().collect::<Vec<_>>(), ["0x0000"]);
    assert_eq!(priorities(&[]).into_iter().collect::<Vec<_>>(), ["0"], "the real-time class alone is 1");
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let directory = directory();
    let job = ["run", "--name=j", "--size=1m", "--ioengine=io_uring"];
    for (words, expected) in [
        (&["--cmdprio_percentage=5", "--cmdprio_bssplit=4k/50"][..], "exclude each other"),
        (&["--cmdprio_bssplit=4k/50/1"], "is not size/percent or size/percent/class/level"),
        (&["--cmdprio_bssplit=4k/60:4k/60"], "more than 100%"),
        (&["--cmdprio_bssplit=4k/60/9/0"], "9"),
        (&["--ioengine=psync", "--cmdprio_percentage=50"], "is not an option of the engine psync"),
    ] {
        let said = refused(directory.path(), &[&job[..], words].concat());
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

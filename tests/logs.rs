//! Logs over time have fio's files and columns.

mod common;
use common::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Of each log: how many columns its lines have, and what stands in those that do not depend on time.
fn columns(directory: &Path) -> BTreeMap<String, Vec<(usize, String)>> {
    let logs = names(directory).into_iter().filter(|name| name.ends_with(".log"));
    let shape = |name: String| {
        let text = std::fs::read_to_string(directory.join(&name)).unwrap();
        let first_is_direction = name.contains("hist");
        let line = |line: &str| {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let fixed = if first_is_direction { &fields[1..3] } else { &fields[2..] };
            (fields.len(), fixed.join(" "))
        };
        let mut lines: Vec<(usize, String)> = text.lines().map(line).collect();
        lines.sort();
        lines.dedup();
        (name, lines)
    };
    logs.map(shape).collect()
}

#[test]
fn files_and_columns_are_those_of_fio() {
    if !has_program("fio") {
        return;
    }
    let job = ["--name=a", "--filename=x", "--size=256k", "--bs=4k", "--write_bw_log=B"];
    let more = ["--write_iops_log=I", "--write_lat_log=L"];
    // An amount of work at a rate: seconds of windows, however long the machine takes and wherever it stands still.
    let windows = ["--rw=randrw", "--log_avg_msec=200", "--rate_iops=1000", "--io_size=32m"];
    let histogram = ["--write_hist_log=H", "--log_hist_msec=500"];
    let coarse = ["--log_hist_coarseness=3"];
    let cases: [&[&[&str]]; 5] = [
        &[&["--rw=randread"]],
        &[&["--rw=randwrite", "--log_offset=1", "--per_job_logs=0"]],
        &[&windows],
        &[&windows, &histogram],
        &[&windows, &histogram, &coarse],
    ];
    // Each takes its time, and no processor.
    let compare = |case: &[&[&str]]| {
        let options = [&job[..], &more[..], &case.concat()].concat();
        let (here, there) = (directory(), directory());
        succeed(here.path(), &[&["run"], &options[..]].concat());
        tool("fio", &options, there.path());
        let (ours, theirs) = (columns(here.path()), columns(there.path()));
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{options:?}");
        for (name, lines) in &theirs {
            assert_eq!(&ours[name], lines, "{name} of {options:?}");
        }
    };
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || compare(case));
        }
    });
}

#[test]
fn a_compressed_log_holds_the_lines_of_all_clones() {
    let directory = directory();
    let job = ["--name=a", "--ioengine=null", "--size=4m", "--bs=4k", "--rw=write", "--numjobs=2", "--log_offset=1"];
    let log = ["--write_bw_log=l", "--per_job_logs=0", "--log_store_compressed=1"];
    succeed(directory.path(), &[&["run"], &job[..], &log[..]].concat());
    assert_eq!(names(directory.path()), ["l_bw.log.fz"]);
    let text = stdout(&succeed(directory.path(), &["run", "--inflate-log=l_bw.log.fz"]));
    let mut offsets: Vec<u64> =
        text.lines().map(|line| line.split(", ").nth(4).expect("an offset").parse().expect("a number")).collect();
    offsets.sort_unstable();
    let expected: Vec<u64> = (0..1024).flat_map(|block| [block * 4096; 2]).collect();
    assert_eq!(offsets, expected);

    std::fs::write(directory.path().join("none.fz"), "1, 2, 3").unwrap();
    let refused = run(directory.path(), &["run", "--inflate-log=none.fz"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("none.fz") && stdout(&refused).is_empty(), "{}", stderr(&refused));
}

/// `log_window_value=both`: the mean, then the largest value; a rate is both.
#[test]
fn a_window_has_its_mean_and_its_largest_value() {
    let directory = directory();
    let job = ["run", "--name=a", "--ioengine=null", "--size=256k", "--write_lat_log=L", "--write_iops_log=I"];
    let both = ["--log_avg_msec=100", "--log_window_value=both", "--log_offset=1"];
    succeed(directory.path(), &[&job[..], &both].concat());
    for name in ["L_lat.1.log", "I_iops.1.log"] {
        let text = std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(!text.is_empty());
        for line in text.lines() {
            let fields: Vec<u64> = line.split(", ").map(|field| field.parse().unwrap()).collect();
            let [_, mean, largest, 0, 0, 0, 0] = fields[..] else { panic!("{line}") };
            assert!(if name.starts_with('I') { mean == largest } else { mean <= largest && largest > 0 }, "{line}");
        }
    }
}

/// `log_issue_time`: the last column of the logs of slat and clat is the time of issue; elsewhere it is 0, as in fio.
#[test]
fn logs_say_when_requests_were_issued() {
    let directory = directory();
    let job = ["run", "--name=a", "--ioengine=null", "--size=64k", "--write_lat_log=L", "--write_iops_log=I"];
    let last = |name: &str| -> Vec<u64> {
        let text = std::fs::read_to_string(directory.path().join(name)).unwrap();
        text.lines().map(|line| line.rsplit(", ").next().unwrap().parse().unwrap()).collect()
    };
    succeed(directory.path(), &[&job[..], &["--log_issue_time=1", "--log_offset=1"]].concat());
    let issued = last("L_clat.1.log");
    assert_eq!(issued.len(), 16);
    assert!(issued.is_sorted() && issued[15] > issued[0], "{issued:?}");
    for name in ["L_lat.1.log", "I_iops.1.log"] {
        assert_eq!(last(name), vec![0; 16], "{name}");
    }
    let columns = std::fs::read_to_string(directory.path().join("L_clat.1.log")).unwrap();
    assert!(columns.lines().all(|line| line.split(", ").count() == 7), "{columns}");
    succeed(directory.path(), &[&job[..], &["--log_issue_time=1", "--log_avg_msec=1000"]].concat());
    assert_eq!(last("L_clat.1.log"), [0]);
}

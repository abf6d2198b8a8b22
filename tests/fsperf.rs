//! fsperf as its users type it: the command line of the published experiment, the files it leaves, its output.

mod common;
use common::*;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

fn fsperf(place: &Path, arguments: &[&str]) -> Output {
    plimsoll(place).arg0("/usr/local/bin/fsperf").args(arguments).arg(place).output().unwrap()
}

/// The value of a line of the long form, as scripts take it.
fn value(text: &str, after: &str, line: &str, unit: &str) -> f64 {
    let part = &text[text.find(after).unwrap_or_else(|| panic!("no {after} in\n{text}"))..];
    let line = part.lines().find(|candidate| candidate.starts_with(line)).unwrap();
    let number = line.split("Throughput:").last().unwrap().trim_start_matches(|c: char| !c.is_ascii_digit());
    number.split(unit).next().unwrap().trim().parse().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn the_experiment_of_iotrap_runs_as_it_was_printed() {
    let place = directory();
    let printed = ["-t", "read", "-m", "throughput", "-f", "2m", "-b", "64k", "-o", "short", "--noinit"];
    let output = fsperf(place.path(), &printed);
    assert!(output.status.success(), "{}", stderr(&output));
    let file = place.path().join("fsperf.dat");
    let said = stderr(&output);
    assert!(said.contains("is not there: fsperf writes it first, in spite of --noinit"), "{said}");
    let line = stdout(&output);
    assert!(line.starts_with("read      throughput   64k ") && line.contains(" MB/s  trigger ratio "), "{line}");
    let ratio: f64 = line.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
    assert!((0.0..=1.0).contains(&ratio), "{line}");
    assert_eq!(line.lines().count(), 1);
    // The next run, with the interposer say, reads the same bytes.
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    let before = std::fs::read(&file).unwrap();
    let again = fsperf(place.path(), &printed);
    assert!(again.status.success() && !stderr(&again).contains("--noinit"), "{}", stderr(&again));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    // A file that is too short is completed.
    let longer = ["-t", "read", "-m", "latency", "-f", "3m", "-b", "1m", "-o", "short", "--noinit"];
    let output = fsperf(place.path(), &longer);
    assert!(stderr(&output).contains("is too short"), "{}", stderr(&output));
    let (line, words) = (stdout(&output), ["read", "latency", "1m"]);
    assert!(line.split_whitespace().zip(words).all(|(a, b)| a == b) && line.ends_with(" us\n"), "{line}");
    assert_eq!(file.metadata().unwrap().len(), 3 << 20);
}

#[test]
fn without_options_it_does_all_that_it_can_and_leaves_nothing() {
    let place = directory();
    let output = fsperf(place.path(), &["-f", "4m", "-b", "16k"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(names(place.path()), [""; 0], "the file is gone");
    let text = stdout(&output);
    assert!(text.starts_with("****"), "{text}");
    assert!(text.contains("\n* Output of Results for 16K blocksize "));
    for test in
        ["Results of Initial Write Test\n=====", "Results of Overwrite Test\n=====", "Results of Read Test\n====="]
    {
        let time = value(&text, test, "   I/O time", "MB/s");
        let submit = value(&text, test, "   Trigger time", "MB/s");
        assert!(time > 0.0 && submit >= time, "submitting is a part of the I/O: {submit} and {time} MB/s");
        let part = &text[text.find(test).unwrap()..];
        let latency = &part[part.find("Latency Test:").unwrap()..];
        let us = value(latency, "Latency Test", "   Latency:", "us");
        let rate = value(latency, "Latency Test", "   I/O time", "MB/s");
        assert!((us * rate / (16.0 / 1024.0 * 1e6) - 1.0).abs() < 0.001, "one block at a time: {us} us, {rate} MB/s");
    }
    let kept = fsperf(place.path(), &["-t", "write", "-m", "latency", "-f", "64k", "-b", "16k", "--noclean"]);
    assert!(kept.status.success() && names(place.path()) == ["fsperf.dat"]);
}

#[test]
fn requests_go_through_libaio_with_o_direct_and_the_depth_of_hana() {
    if !has_program("strace") {
        return;
    }
    let place = directory();
    let log = place.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-s", "0", "-e", "trace=io_setup,io_submit,openat", "-o"]).arg(&log);
    strace.arg(env!("CARGO_BIN_EXE_plimsoll")).arg("fsperf").args(["-t", "overwrite", "-m", "throughput"]);
    let output = strace.args(["-f", "16m", "-b", "64k", "-o", "short"]).arg(place.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let calls = std::fs::read_to_string(&log).unwrap();
    assert!(calls.lines().any(|call| call.contains("fsperf.dat") && call.contains("O_DIRECT")), "{calls}");
    assert!(calls.contains("io_setup(64, "), "{calls}");
    let submitted = calls.lines().filter(|call| call.contains("io_submit(")).count();
    assert!(submitted > 0, "{calls}");
}

#[test]
fn what_cannot_be_done_is_one_line() {
    let place = directory();
    let here = place.path().to_str().unwrap();
    let line = refused(place.path(), &["fsperf", "-f", "65k", "-b", "4k", here]);
    assert!(line.contains("not a multiple of the block size 4k"), "{line}");
    assert!(refused(place.path(), &["fsperf", "-b", "100", here]).contains("multiples of 512"));
    assert!(refused(place.path(), &["fsperf", "-t", "reread", here]).contains("overwrite"));
    assert!(refused(place.path(), &["fsperf", "nowhere"]).contains("not a directory: nowhere"));
    assert!(refused(place.path(), &["fsperf"]).contains("DIR"));
    assert_eq!(names(place.path()), [""; 0]);
}

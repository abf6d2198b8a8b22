//! gfapi_perf_tool as its users type it, on paths of this machine (GFAPI_FUSE=1).

mod common;
use common::*;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn tool_command(place: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = plimsoll(place);
    command.arg0("/usr/local/bin/gfapi_perf_tool");
    command.env("GFAPI_FUSE", "1").env("GFAPI_BASEDIR", place).envs(variables.iter().copied());
    command
}

fn gfapi(place: &Path, variables: &[(&str, &str)]) -> Output {
    tool_command(place, variables).output().unwrap()
}

/// As scripts do it: `awk '/KEY/ { print $N }'` after the line `aggregate:`.
fn awk(text: &str, key: &str) -> Option<f64> {
    let aggregate = &text[text.find("aggregate:")?..];
    let line = aggregate.lines().find(|line| line.contains(key))?;
    line.split('=').nth(1)?.split_whitespace().next()?.parse().ok()
}

#[test]
fn its_lines_are_those_that_scripts_read() {
    let place = directory();
    let output = gfapi(place.path(), &[("GFAPI_FILES", "30"), ("GFAPI_FSZ", "256k"), ("GFAPI_THREADS_PER_PROC", "2")]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    let base = place.path().display();
    let head = format!(
        "GLUSTER: \n  volume=\n  transport=tcp\n  host=\n  port=24007\n  fuse?Yes\n  trace level=0\n  start timeout=60\n\
         WORKLOAD:\n  type = seq-wr \n  threads/proc = 2\n  base directory = {base}\n  prefix=f\n  file size = 256 KB\n  \
         file count = 30\n  record size = 64 KB\n  files/dir=1000\n  fsync-at-close? No \n"
    );
    assert!(text.starts_with(&head), "{text}");
    let counts = "  files done = 30\n  I/O (record) transfers = 120\n  total bytes = 7864320\n  elapsed time    = ";
    assert!(text.contains(&format!("thread   0:   files written = 30\n{counts}")), "{text}");
    assert!(text.contains(&format!("thread   1:   files written = 30\n{counts}")), "{text}");
    assert!(text.contains("aggregate:   files written = 60\n  files done = 60\n"), "{text}");
    let figure = |key: &str| awk(&text, key).unwrap();
    let rate = figure("file rate");
    // Figures have two decimals: those of a slow run are coarse.
    let close = |a: f64, b: f64| (a - b).abs() < 0.01 * b + 0.05;
    assert!(close(figure("throughput") * 4.0, rate), "four files a MiB: {text}");
    assert!(close(figure("IOPS"), rate * 4.0), "four records a file: {text}");
    assert!(awk(&text, "elapsed time").is_some());
    assert!(text.contains("(sequential write)") && text.contains(" sec\n") && text.contains(" MB/sec\n"));
    let first = place.path().join("thrd001-d0000/f.0000029");
    assert_eq!(first.metadata().unwrap().len(), 256 << 10);
}

#[test]
fn every_load_does_its_work() {
    let place = directory();
    let all = [
        ("GFAPI_FILES", "12"),
        ("GFAPI_FSZ", "64"),
        ("GFAPI_RECSZ", "8"),
        ("GFAPI_FILES_PER_DIR", "5"),
        ("GFAPI_PREFIX", "x"),
    ];
    let load = |load: &str, more: &[(&str, &str)]| {
        let output = gfapi(place.path(), &[&all[..], &[("GFAPI_LOAD", load)], more].concat());
        assert!(output.status.success(), "{load}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    };
    let size = || place.path().join("thrd000-d0002/x.0000011").metadata().map(|data| data.len()).unwrap_or(0);
    load("seq-wr", &[("GFAPI_FSYNC_AT_CLOSE", "1"), ("GFAPI_USEC_DELAY_PER_FILE", "10")]);
    assert_eq!(size(), 64 << 10);
    assert!(load("seq-wr", &[("GFAPI_OVERWRITE", "1")]).contains("  overwriting existing files\n"));
    assert_eq!(size(), 64 << 10);
    assert!(load("seq-wr", &[("GFAPI_APPEND", "1")]).contains("  using O_APPEND flag"));
    assert_eq!(size(), 128 << 10);
    let text = load("seq-rd", &[]);
    assert!(text.contains("  files read = 12\n") && text.contains("I/O (record) transfers = 96\n"), "{text}");
    let text = load("rnd-rd", &[("GFAPI_IOREQ", "3")]);
    assert!(text.contains("  random read/write requests = 3\n") && text.contains("transfers = 36\n"), "{text}");
    assert!(text.contains("(random read)"));
    let text = load("rnd-wr", &[]);
    assert!(text.contains("transfers = 96\n") && text.contains("(random write)"), "{text}");
    assert_eq!(size(), 128 << 10, "random writes stay within the file");
    let text = load("seq-rdwrmix", &[("GFAPI_RDPCT", "100")]);
    assert!(text.contains("  fraction of reads = 100.00%\n") && !text.contains("files written"), "{text}");
    let text = load("seq-rdwrmix", &[("GFAPI_RDPCT", "0")]);
    assert!(text.contains("  files written = 12\n"), "{text}");
    assert_eq!(size(), 192 << 10, "a mix appends");
    let text = load("unlink", &[]);
    assert!(text.contains("  files deleted = 12\n") && awk(&text, "file rate").unwrap() > 0.0, "{text}");
    assert_eq!(size(), 0);
    let text = load("unlink", &[]);
    assert!(text.contains("  files done = 0\n") && text.contains("  files missing = 12\n"), "{text}");
    let text = load("seq-wr", &[("GFAPI_FSZ", "4")]);
    assert!(
        text.contains("truncating record size 8 KB to file size 4 KB") && text.contains("total bytes = 49152\n"),
        "{text}"
    );
}

#[test]
fn files_of_one_are_read_by_the_other() {
    let place = directory();
    let output = gfapi(place.path(), &[("GFAPI_FILES", "5"), ("GFAPI_FSZ", "128k")]);
    assert!(output.status.success());
    succeed(place.path(), &["files", "--op", "read,stat", "--files", "5", "--size", "128k", "--verify"]);
    succeed(place.path(), &["files", "--op", "cleanup", "--files", "5"]);
    succeed(place.path(), &["files", "--op", "create", "--files", "5", "--size", "128k"]);
    let output = gfapi(place.path(), &[("GFAPI_FILES", "5"), ("GFAPI_FSZ", "128k"), ("GFAPI_LOAD", "rnd-rd")]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn errors_end_with_a_status_and_a_line() {
    let place = directory();
    let output = gfapi(place.path(), &[("GFAPI_LOAD", "seq-rd"), ("GFAPI_FILES", "3")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("thrd000-d0000/f.0000000"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(!stdout(&output).contains("rate") && !stdout(&output).contains("aggregate"), "{}", stdout(&output));
    for (variables, part) in [
        (vec![("GFAPI_LOAD", "seq")], "GFAPI_LOAD is 'seq'"),
        (vec![("GFAPI_FUSE", "0")], "GFAPI_VOLNAME is not set"),
        (vec![("GFAPI_BASEDIR", "/no/such/place")], "/no/such/place"),
        (vec![("GFAPI_APPEND", "1"), ("GFAPI_OVERWRITE", "1")], "GFAPI_APPEND and GFAPI_OVERWRITE"),
    ] {
        let output = gfapi(place.path(), &variables);
        assert_eq!(output.status.code(), Some(2), "{variables:?}");
        assert!(stderr(&output).contains(part) && stderr(&output).lines().count() == 1, "{}", stderr(&output));
    }
    let output = tool_command(place.path(), &[]).arg("x").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = tool_command(place.path(), &[]).arg("-h").output().unwrap();
    assert!(output.status.success());
    for name in ["DEBUG (0)", "GFAPI_FSZ (1M)", "GFAPI_LOAD (seq-wr)", "GFAPI_RDPCT", "GFAPI_STARTING_GUN_TIMEOUT (60)"]
    {
        assert!(stdout(&output).contains(name), "{name}");
    }
    assert_eq!(
        stdout(&output),
        stdout(&succeed(place.path(), &["gfapi_perf_tool", "-h"])),
        "the subcommand is the same"
    );
}

#[test]
fn the_starting_gun_starts_all_processes() {
    let place = directory();
    std::fs::create_dir(place.path().join("sync")).unwrap();
    let gun = place.path().join("sync/gun");
    let start = |prefix: &str| {
        let variables = [
            ("GFAPI_FILES", "10"),
            ("GFAPI_FSZ", "4"),
            ("GFAPI_THREADS_PER_PROC", "2"),
            ("GFAPI_STARTING_GUN", gun.to_str().unwrap()),
            ("GFAPI_STARTING_GUN_TIMEOUT", "600"),
            ("GFAPI_PREFIX", prefix),
        ];
        tool_command(place.path(), &variables).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut children = [start("a"), start("b")];
    while names(&place.path().join("sync")).len() < 4 {
        for child in &mut children {
            assert!(child.try_wait().unwrap().is_none(), "a process ended before it was told to start");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let ready = names(&place.path().join("sync"));
    for child in &children {
        for thread in 0..2 {
            let end = format!(".{}.{thread}.ready", child.id());
            assert!(ready.iter().any(|name| name.ends_with(&end)), "{end} in {ready:?}");
        }
    }
    assert!(!place.path().join("thrd000-d0000").exists(), "nothing was begun");
    std::fs::write(&gun, "").unwrap();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        let awaits = text.lines().find(|line| line.contains(" : awaiting starting gun file ")).expect("it says so");
        // As ctime(3) has it: `Sun Nov 22 14:06:46 2026`.
        let stamp: Vec<&str> = awaits.split(" : ").next().unwrap().split_whitespace().collect();
        assert!(stamp.len() == 5 && stamp[3].len() == 8 && stamp[4].len() == 4, "{awaits}");
        assert!(stdout(&output).contains("aggregate:   files written = 20\n"));
    }
    let unheard = place.path().join("never");
    let output =
        gfapi(place.path(), &[("GFAPI_STARTING_GUN", unheard.to_str().unwrap()), ("GFAPI_STARTING_GUN_TIMEOUT", "0")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("timed out after 0 sec"), "{}", stderr(&output));
}

#[test]
fn a_run_that_fails_part_way_has_no_rates() {
    let place = directory();
    let all = [("GFAPI_FILES", "9"), ("GFAPI_FSZ", "4"), ("GFAPI_THREADS_PER_PROC", "2")];
    assert!(gfapi(place.path(), &all).status.success());
    std::fs::remove_file(place.path().join("thrd001-d0000/f.0000005")).unwrap();
    let output = gfapi(place.path(), &[&all[..], &[("GFAPI_LOAD", "seq-rd")]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("thrd001-d0000/f.0000005"), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("file count = 9") && text.trim_end().ends_with("to file size 4 KB"), "the head only: {text}");
}

#[test]
fn its_clock_is_that_of_the_time_zone() {
    let place = directory();
    let gun = place.path().join("gun");
    std::fs::write(&gun, "").unwrap();
    let hour = |zone: &str| {
        let variables = [("GFAPI_STARTING_GUN", gun.to_str().unwrap()), ("TZ", zone), ("GFAPI_FILES", "1")];
        let text = stdout(&gfapi(place.path(), &[&variables[..], &[("GFAPI_PREFIX", &zone[..1])]].concat()));
        let line = text.lines().find(|line| line.contains(" : signaling ready")).expect("it says so").to_string();
        let clock = line.split_whitespace().nth(3).unwrap();
        let part = |index: usize| clock.split(':').nth(index).unwrap().parse::<i64>().unwrap();
        part(0) * 60 + part(1)
    };
    // Six hours apart, but for the minutes between the two runs.
    let apart = (hour("EAST-6") - hour("UTC0")).rem_euclid(24 * 60);
    assert!((350..=360).contains(&apart), "{apart} minutes");
}

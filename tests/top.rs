//! `plimsoll top`: what other processes count is seen while they run, and gone when they are.

mod common;
use common::*;
use live::{Board, BoardKind, Gauge, Op, RowKind, State};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// This test binary as a program that keeps a board in `directory` until its standard input ends.
struct Busy(Child);

impl Busy {
    fn start(directory: &Path) -> Busy {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["inside_a_program_with_a_board", "--exact", "--ignored", "--nocapture"])
            .env("PLIMSOLL_RUNTIME_DIR", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("counting")), "the program starts to count");
        Busy(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
#[ignore = "a program for the tests in this file"]
fn inside_a_program_with_a_board() {
    let board = Board::create(BoardKind::Trap, "busy", 8).unwrap();
    let lane = board.add(RowKind::Lane, "e4a", "/mnt/v32").unwrap();
    let reactor = board.add(RowKind::Reactor, "", "0").unwrap();
    let quick = board.add(RowKind::Host, "", "quick").unwrap();
    board.counters(lane).set_state(State::Suspect);
    board.counters(lane).set(Gauge::OutstandingOps, 7);
    board.counters(lane).error(Op::Write);
    board.counters(reactor).set(Gauge::BusyNs, 1_000_000);
    board.count(board.reason("opened with O_APPEND"));
    let (mut ended, mut said) = (false, false);
    std::thread::scope(|scope| {
        let end = scope.spawn(|| std::io::stdin().read_line(&mut String::new()));
        while !ended {
            board.counters(lane).count(Op::Read, 65536, 200_000);
            board.counters(quick).count(Op::Read, 4096, 200_000_000);
            ended = end.is_finished();
            if !std::mem::replace(&mut said, true) {
                println!("\ncounting");
            }
            std::thread::sleep(std::time::Duration::from_millis(1)); // a rate, not a race
        }
    });
}

#[test]
#[ignore = "a program for the tests in this file"]
fn inside_a_program_that_becomes_another() {
    let board = Board::create(BoardKind::Trap, "before", 1).unwrap();
    let error = std::os::unix::process::CommandExt::exec(&mut Command::new("cat"));
    drop(board);
    panic!("{error}");
}

#[test]
fn a_program_that_has_become_another_counts_no_more() {
    let place = directory();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["inside_a_program_that_becomes_another", "--exact", "--ignored", "--nocapture"])
        .env("PLIMSOLL_RUNTIME_DIR", place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // cat answers: the other program has begun, with the same process id.
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"there\n").unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    // Behind the name of the test, where tests run one by one: on a machine of one processor.
    assert!(lines.any(|line| line.unwrap().ends_with("there")));
    assert_eq!(names(place.path()).len(), 1);
    let text = stdout(&top(place.path(), &["--once", "--interval", "10ms"]));
    assert!(text.contains("No program is running"), "{text}");
    assert!(names(place.path()).is_empty());
    drop(child.stdin.take());
    child.wait().unwrap();
}

fn top(directory: &Path, arguments: &[&str]) -> std::process::Output {
    let output =
        plimsoll(directory).env("PLIMSOLL_RUNTIME_DIR", directory).arg("top").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// The first answer of `top` that is the wanted one; `top` is asked again until then: a busy machine may give a program
/// no time to count anything in the interval of a look.
fn eventually<T>(what: &str, mut look: impl FnMut() -> T, good: impl Fn(&T) -> bool) -> T {
    let seen = (0..1000).map(|_| look()).find(|seen| good(seen));
    seen.unwrap_or_else(|| panic!("never seen: {what}"))
}

#[test]
fn several_programs_are_seen_and_gone_when_they_end() {
    let place = directory();
    let (one, two) = (Busy::start(place.path()), Busy::start(place.path()));
    let read = |program: &Value, what: &str| program["rows"][0]["read"][what].as_f64().unwrap();
    let seen = eventually(
        "two programs at work, whose rates are of the interval",
        || json(&top(place.path(), &["--once", "--json", "--interval", "300ms"])),
        |seen| {
            let programs = seen["programs"].as_array().unwrap();
            assert_eq!(programs.len(), 2, "{seen:#}");
            programs.iter().all(|program| read(program, "ops") > 100.0 && read(program, "iops") > 1.0)
        },
    );
    let programs = seen["programs"].as_array().unwrap();
    for program in programs {
        assert_eq!((&program["kind"], &program["program"]), (&"trap".into(), &"busy".into()));
        let lane = &program["rows"][0];
        assert_eq!((&lane["kind"], &lane["group"], &lane["name"]), (&"lane".into(), &"e4a".into(), &"/mnt/v32".into()));
        assert_eq!((&lane["state"], &lane["outstanding_ops"]), (&"suspect".into(), &7.into()));
        assert_eq!(lane["write"]["errors"], 1);
        // One op may be half counted at that moment.
        assert!((read(program, "bytes") / 65536.0 - read(program, "ops")).abs() <= 1.0, "{lane:#}");
        let mean = lane["read"]["lat_ns"]["mean"].as_f64().unwrap();
        assert!((mean / 200_000.0 - 1.0).abs() < 0.02, "{lane:#}");
        assert_eq!(program["reasons"][0]["reason"], "opened with O_APPEND");
    }
    one.end();
    let seen = json(&top(place.path(), &["--once", "--json", "--interval", "10ms"]));
    assert_eq!(seen["programs"].as_array().unwrap().len(), 1);
    two.end();
    assert!(names(place.path()).is_empty(), "nothing is left: {:?}", names(place.path()));
}

#[test]
fn a_killed_program_is_not_shown_and_what_it_left_is_removed() {
    let place = directory();
    let mut killed = Busy::start(place.path());
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    assert_eq!(names(place.path()).len(), 1, "it had no time to clean up");
    let text = stdout(&top(place.path(), &["--once", "--interval", "10ms"]));
    assert!(text.contains("No program is running"), "{text}");
    assert!(names(place.path()).is_empty());
}

#[test]
fn the_table_has_only_columns_that_say_something() {
    let place = directory();
    let busy = Busy::start(place.path());
    let rate = |text: &str| text.lines().any(|line| line.contains("e4a /mnt/v32") && line.contains("/s"));
    let look = || stdout(&top(place.path(), &["--once", "--interval", "200ms"]));
    let text = eventually("a rate of the lane", look, |text| rate(text));
    busy.end();
    let line = |start: &str| {
        text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"))
    };
    assert!(text.starts_with("busy (process "), "{text}");
    assert!(line("lane ").contains("state") && line("lane ").contains("errors") && !line("lane ").contains("held"));
    assert!(line("e4a /mnt/v32").contains("suspect"), "{text}");
    assert!(line("reactor").contains("busy"));
    assert!(line("1  opened with O_APPEND").ends_with("O_APPEND"));
    assert!(!text.contains('\x1b'), "no escapes in a pipe");
}

/// The row of the reactor in the program below has nothing outstanding whenever anybody looks.
#[test]
fn the_depth_is_that_of_the_interval_not_of_a_lucky_moment() {
    let place = directory();
    let busy = Busy::start(place.path());
    // One read of a nominal 0.2 s every millisecond: 200 in flight by Little's law, on a machine that keeps up.
    let depth = |text: &String| {
        let header = text.lines().find(|line| line.trim_start().starts_with("host"))?;
        let row = text.lines().find(|line| line.contains("quick"))?;
        let end = header.find("depth")? + "depth".len();
        row.get(..end)?.split_whitespace().last()?.parse::<f64>().ok()
    };
    let look = || stdout(&top(place.path(), &["--once", "--interval", "300ms"]));
    let text = eventually("a depth above 1", look, |text| depth(text).is_some_and(|depth| depth > 1.0));
    busy.end();
    assert!(depth(&text).is_some_and(|depth| depth <= 250.0), "{text}");
}

#[test]
fn in_a_pipe_one_table_follows_the_other_until_the_reader_has_enough() {
    let place = directory();
    std::fs::write(place.path().join("garbage.board"), "garbage").unwrap();
    let mut child = plimsoll(place.path())
        .env("PLIMSOLL_RUNTIME_DIR", place.path())
        .args(["top", "--interval", "10ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().take(5).map_while(Result::ok).collect();
    assert_eq!(lines.iter().filter(|line| line.contains("No program is running")).count(), 3, "{lines:?}");
    assert_eq!(child.wait().unwrap().code(), Some(0), "a closed pipe is the end");
}

/// A call of plimsoll at work in `directory`; killed when dropped.
struct AtWork(Child);

impl AtWork {
    fn start(directory: &Path, arguments: &[&str]) -> AtWork {
        let mut command = plimsoll(directory);
        command.env("PLIMSOLL_RUNTIME_DIR", directory.join("boards")).args(arguments);
        AtWork(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

#[test]
fn runs_and_sweeps_are_shown_with_their_rates_and_their_depth() {
    let place = directory();
    let boards = place.path().join("boards");
    std::fs::create_dir(&boards).unwrap();
    file(place.path(), "data", vec![1; 8 << 20]);
    let load = ["--rw=read", "--bs=1m", "--numjobs=2", "--time_based", "--runtime=60s", "--invalidate=0"];
    let run = ["run", "--name=reader", "--filename=data", "--size=8m", "--ioengine=psync", "--group_reporting"];
    let programs = [
        AtWork::start(place.path(), &[&run[..], &load].concat()),
        AtWork::start(
            place.path(),
            &["sweep", "data", "--engine=psync", "--iodepth=2", "--bs=1m", "--direct=0", "--no-files"],
        ),
    ];
    let row = |seen: &Value, title: &str| -> Option<Value> {
        let program = seen["programs"].as_array()?.iter().find(|program| program["program"] == title)?;
        program["rows"].as_array()?.first().cloned()
    };
    let iops = |row: &Value| row["read"]["iops"].as_f64().unwrap();
    let both = |seen: &Value| {
        [("plimsoll run", "reader"), ("plimsoll sweep", "data")].iter().all(|(title, name)| {
            row(seen, title).is_some_and(|row| {
                assert_eq!((&row["kind"], &row["name"]), (&"load".into(), &(*name).into()));
                // Rate times mean latency is the depth: both clones are in a read nearly all the time.
                let depth = iops(&row) * row["read"]["lat_ns"]["mean"].as_f64().unwrap() / 1e9;
                iops(&row) > 0.0 && row["asked_depth"] == 2 && depth > 0.5
            })
        })
    };
    let look = || json(&top(&boards, &["--once", "--json", "--interval", "1s"]));
    eventually("both programs at work", look, both);
    let text = stdout(&top(&boards, &["--once", "--interval", "1s"]));
    assert!(text.contains("plimsoll run (process ") && text.contains("asked"), "{text}");
    drop(programs);
    let text = stdout(&top(&boards, &["--once", "--interval", "10ms"]));
    assert!(text.contains("No program is running"), "{text}");
}

#[test]
fn a_bad_interval_is_refused() {
    let place = directory();
    assert!(refused(place.path(), &["top", "--interval", "0"]).contains("--interval"));
}

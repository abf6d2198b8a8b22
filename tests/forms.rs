//! The forms of output that every command shares: text that keeps to the terminal, ASCII on demand, CSV, and silence.

mod common;
use common::*;

use std::path::Path;
use std::process::{Command, Output};

const SWEEP: [&str; 6] = ["sweep", "data", "--engine=psync,null", "--iodepth=1,2,4", "--time=2s", "--no-files"];

/// A short call of every command that prints results.
fn calls() -> Vec<Vec<&'static str>> {
    let job = ["--name=j", "--ioengine=null", "--size=1m", "--rw=randrw"];
    vec![
        SWEEP.to_vec(),
        [&["run"][..], &job].concat(),
        [&["compare", "--engine=null,psync", "--pairs=2"][..], &["--name=j", "--size=1m", "--filename=data"]].concat(),
        vec!["files", "--op", "create,read,unlink", "--files", "20", "--dir", "."],
        vec!["sim", "depth.toml"],
        vec!["top", "--once", "--interval", "10ms"],
    ]
}

fn prepared() -> tempfile::TempDir {
    let directory = directory();
    file(directory.path(), "data", vec![7; 1 << 20]);
    let scenario = "name = \"t\"\nseconds = 0.02\nwarmup_seconds = 0.01\nmachine.profile = \"intel-16\"\n\
                    pacing.method = \"auto\"\n[[jobs]]\nhosts = \"0-1\"\ndepth = 32\nsizes = [{ bytes = \"128k\" }]\n";
    file(directory.path(), "depth.toml", scenario);
    std::fs::create_dir(directory.path().join("boards")).unwrap();
    directory
}

/// The output of a call under a locale. Status 4 of a comparison says that page-cache numbers are invalid.
fn under(directory: &Path, locale: &str, call: &[&str]) -> Output {
    let mut command = plimsoll(directory);
    command.env_remove("LC_CTYPE").env_remove("LANG").env("LC_ALL", locale).env("TERM", "xterm");
    command.env("PLIMSOLL_RUNTIME_DIR", directory.join("boards"));
    let output = command.args(call).output().unwrap();
    let allowed = if call[0] == "compare" { [0, 4] } else { [0, 0] };
    assert!(output.status.code().is_some_and(|code| allowed.contains(&code)), "{call:?}: {}", stderr(&output));
    output
}

#[test]
fn a_locale_that_is_not_in_utf8_gets_ascii_from_every_command() {
    let directory = prepared();
    for call in calls() {
        let output = under(directory.path(), "C", &call);
        assert!(!output.stdout.is_empty(), "{call:?}");
        assert!(output.stdout.is_ascii() && output.stderr.is_ascii(), "{call:?}: {}", stdout(&output));
    }
    assert!(
        !under(directory.path(), "C.UTF-8", &SWEEP).stdout.is_ascii(),
        "the chart has lines where they can be shown"
    );
    let dumb = plimsoll(directory.path()).env("LC_ALL", "C.UTF-8").env("TERM", "dumb").args(SWEEP).output().unwrap();
    assert!(dumb.stdout.is_ascii(), "{}", stdout(&dumb));
}

#[test]
fn every_command_prints_its_rows_as_csv() {
    let directory = prepared();
    for mut call in calls() {
        let rows = match call[0] {
            "sweep" => 6,
            "run" => 2,
            "files" => 3,
            "compare" => 3, // and more where the runs are long enough
            "sim" => 1,
            _ => 0,
        };
        call.push(if call[0] == "run" { "--output-format=csv" } else { "--csv" });
        let text = stdout(&under(directory.path(), "C", &call));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > rows && (call[0] == "compare" || lines.len() == rows + 1), "{call:?}:\n{text}");
        let cells = |line: &str| line.split(',').count();
        assert!(lines.iter().all(|line| cells(line) == cells(lines[0])), "{call:?}:\n{text}");
    }
}

#[test]
fn quiet_prints_nothing_and_writes_files_all_the_same() {
    let directory = prepared();
    for mut call in calls() {
        if call[0] == "top" {
            continue; // it has nothing else to do
        }
        call.push("--quiet");
        let kept = !["sim"].contains(&call[0]);
        if kept {
            call.push("--save=kept.json");
        }
        let output = under(directory.path(), "C", &call);
        assert_eq!(stdout(&output), "", "{call:?}");
        // A sweep chooses the name of its page itself.
        let page = |line: &str| call[0] == "sweep" && line.starts_with("Results: kept.json  Report: plimsoll-sweep-");
        assert!(stderr(&output).lines().all(page), "{call:?}: {}", stderr(&output));
        if kept {
            assert!(json_file(&directory.path().join("kept.json")).is_object());
            std::fs::remove_file(directory.path().join("kept.json")).unwrap();
        }
    }
}

/// The bytes that a command writes to a terminal of 80 columns and 24 rows.
fn on_a_terminal(directory: &Path, words: &str) -> String {
    let line = format!("stty cols 80 rows 24 && {} {words}", env!("CARGO_BIN_EXE_plimsoll"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(directory).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    command.env("PLIMSOLL_RUNTIME_DIR", directory.join("boards"));
    stdout(&command.stdin(std::process::Stdio::null()).output().unwrap())
}

/// The lines of a terminal of 80 columns, one after another as they were drawn, without escape sequences (ECMA-48,
/// 5.4).
fn lines_on(terminal: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in terminal.split(['\n', '\r']) {
        let mut text = String::new();
        let mut rest = line;
        while let Some(start) = rest.find("\x1b[") {
            text.push_str(&rest[..start]);
            let sequence = &rest[start + 2..];
            let end = sequence.find(|c: char| ('@'..='~').contains(&c)).map_or(sequence.len(), |at| at + 1);
            rest = &sequence[end..];
        }
        let line: Vec<char> = (text + rest).chars().collect();
        // A redraw fills lines to the edge instead of ending them.
        lines.extend(line.chunks(80).map(|line| line.iter().collect::<String>()));
    }
    lines
}

#[test]
fn no_command_writes_beyond_the_edge_of_a_terminal() {
    if !has_program("script") {
        return;
    }
    let directory = prepared();
    for call in calls() {
        // Redraws go to standard error.
        let terminal = on_a_terminal(directory.path(), &format!("{} 2>/dev/null", call.join(" ")));
        let plain: Vec<String> = terminal.lines().flat_map(|line| lines_on(line).into_iter().skip(1)).collect();
        assert!(plain.is_empty(), "{call:?}: beyond the edge: {plain:#?}");
        assert!(terminal.lines().count() > 0, "{call:?}");
    }
}

#[test]
fn a_terminal_shows_the_rows_of_a_sweep_while_it_runs_and_a_pipe_gets_each_once() {
    if !has_program("script") {
        return;
    }
    let directory = prepared();
    let words = ["sweep", "data", "--engine=psync", "--iodepth=1,2,4", "--time=2s", "--no-files"];
    let rows = |lines: &[String]| lines.iter().filter(|line| line.starts_with("  1 ")).count();
    let terminal = lines_on(&on_a_terminal(directory.path(), &words.join(" ")));
    assert!(rows(&terminal) > 1, "the row of depth 1 is drawn again and again: {terminal:#?}");
    let before = terminal.iter().position(|line| line.starts_with("  1 ")).unwrap();
    let after = terminal.iter().position(|line| line.starts_with("  4 ")).unwrap();
    assert!(before < after && terminal[before..after].iter().any(|line| line.contains("iodepth 2")), "{terminal:#?}");
    let pipe: Vec<String> = stdout(&succeed(directory.path(), &words)).lines().map(String::from).collect();
    assert_eq!(rows(&pipe), 1, "{pipe:#?}");
}

//! Job files and command lines in the shapes that public repositories use: Plimsoll, called as `fio`, accepts those
//! that fio accepts, and transfers as much.

mod common;
use common::*;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const CORPUS: &str = include_str!("fio_corpus.txt");

/// Entries that run at the same time.
const AT_ONCE: usize = 4;

/// The arguments of an entry, whose files are written to `place`.
fn arguments(entry: &str, place: &Path) -> Vec<String> {
    let mut files = entry.split("\n%FILE ");
    let entry = files.next().unwrap_or_default();
    for (name, text) in files.filter_map(|other| other.split_once('\n')) {
        file(place, name, text);
    }
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (line, text) = entry.split_once('\n').unwrap_or((entry, ""));
    let mut arguments = match line.split_once(' ') {
        Some(("fio", line)) => return words(line),
        Some(("ARGS", line)) => words(line),
        _ => Vec::new(),
    };
    file(place, "job.fio", if line.starts_with("ARGS") { text } else { entry });
    arguments.push("job.fio".into());
    arguments
}

/// Status of a run; name, requests and bytes of each job in its JSON.
fn run_as(fio: &Path, entry: &str) -> (Option<i32>, Vec<(String, u64, u64)>) {
    let place = directory();
    let (entry, counts_ops) = entry.strip_prefix("ONLY BYTES\n").map_or((entry, true), |entry| (entry, false));
    let mut arguments = arguments(entry, place.path());
    let reports = ["--output", "--minimal", "--append", "--terse", "--show", "--parse"];
    if !arguments.iter().any(|word| reports.iter().any(|report| word.starts_with(report))) {
        arguments.insert(0, "--output-format=json".into());
    }
    // A program that hangs does not hold up the test for ever.
    let mut run = Command::new("timeout");
    run.arg("300").arg(fio).args(&arguments).env("FIO_SIZE", "128k").current_dir(place.path());
    let output = run.output().expect("timeout starts");
    let text = stdout(&output);
    let start = text.find("{\n").unwrap_or(text.len());
    let result = serde_json::Deserializer::from_str(&text[start..]).into_iter::<serde_json::Value>().next();
    let result = result.and_then(Result::ok).unwrap_or_default();
    let jobs = result["jobs"].as_array().cloned().unwrap_or_default();
    let sum = |job: &serde_json::Value, figure: &str| -> u64 {
        ["read", "write", "trim", "mixed"].iter().filter_map(|way| job[way][figure].as_u64()).sum()
    };
    let figures = jobs.iter().map(|job| {
        let ops = if counts_ops { sum(job, "total_ios") } else { 0 };
        (job["jobname"].as_str().unwrap_or_default().to_owned(), ops, sum(job, "io_bytes"))
    });
    (output.status.code(), figures.collect())
}

#[test]
fn public_forms_are_accepted_as_fio_accepts_them() {
    if !has_program("fio") {
        return skip("fio is not installed", true);
    }
    let directory = directory();
    let ours = directory.path().join("fio");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plimsoll"), &ours).unwrap();
    let entries: Vec<&str> = CORPUS.trim_end().split("\n%%\n").skip(1).collect();
    assert!(entries.len() >= 600, "{} entries", entries.len());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(entry) = entries.get(next.fetch_add(1, Relaxed)) {
                    let (theirs, ours) = (run_as(Path::new("fio"), entry), run_as(&ours, entry));
                    // Figures of a job that both refuse tell nothing.
                    let is_alike = theirs.0 == ours.0 && (theirs.0 != Some(0) || theirs.1 == ours.1);
                    if !is_alike {
                        wrong.lock().unwrap().push(format!("{entry}\nfio:  {theirs:?}\nours: {ours:?}\n"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} differ:\n\n{}", wrong.len(), entries.len(), wrong.join("\n"));
}

//! Calls that fail, by injection: every operation is done, failed or left.

use super::*;

#[test]
fn an_interrupted_call_is_made_again_and_no_operation_is_dropped() {
    if !has_program("strace") {
        return;
    }
    for (calls, op, name) in [
        ("unlink,unlinkat", "create,unlink", "unlink"),
        ("mkdir,mkdirat", "mkdir", "mkdir"),
        ("rename,renameat,renameat2", "create,rename", "rename"),
        ("symlink,symlinkat", "create,symlink", "symlink"),
        ("link,linkat", "create,link", "link"),
    ] {
        for (injection, status, left_over) in [
            ("error=EINTR:when=3", 0, false),
            ("error=EINTR:when=2+1", 1, true),
            ("error=EIO:when=3", 1, true),
            ("error=EDQUOT:when=2", 1, true),
        ] {
            for goes_on in ["", " --continue-on-error"] {
                let place = directory();
                let line = format!("--op {op} --files 9{goes_on}");
                // Directories of the layout are made by mkdir too: its failure comes before any phase.
                let (result, got) = with_faults(place.path(), calls, injection, &line);
                let what = format!("{calls} {injection} {line}: {result:#}");
                assert_eq!(got, status, "{what}");
                let Some(phase) = result["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == name)
                else {
                    assert!(name == "mkdir" && left_over, "{what}");
                    continue;
                };
                let number = |field: &str| phase[field].as_u64().unwrap();
                assert_eq!(number("asked"), 9, "{what}");
                assert_eq!(count(phase, "files") + count(phase, "failed") + number("left"), 9, "{what}");
                assert_eq!(count(phase, "failed") > 0, left_over, "{what}");
                assert!(goes_on.is_empty() || number("left") == 0, "{what}");
            }
        }
    }
}

/// The errors of the fault matrix.
const FAULTS: [&str; 7] = ["EINTR", "EIO", "ENOSPC", "EDQUOT", "ESTALE", "EACCES", "ENOENT"];

/// The files of a run of the fault matrix; each lies in a directory of its own.
const FAULTY: u64 = 7;

/// The calls of the fault matrix: those on files.
const FAULTY_CALLS: &str = "open,openat,read,write,pread64,pwrite64,fsync,close,unlink,unlinkat,rename,renameat,\
    renameat2,link,linkat,symlink,symlinkat,readlink,readlinkat,stat,lstat,newfstatat,statx,fstat,chmod,fchmodat,\
    truncate,ftruncate,mkdir,mkdirat,rmdir,mknod,mknodat,getdents64,setxattr,lsetxattr,getxattr,lgetxattr";

/// The names of number `number` in a run of the fault matrix, and its directory where an operation lists directories.
fn faulty_paths(place: &Path, operation: &str, number: u64) -> Vec<PathBuf> {
    let directory = place.join(format!("thrd000-d{number:04}"));
    if ["readdir", "ls-l"].contains(&operation) {
        return vec![directory];
    }
    let names = ["f.#", "f.#.renamed", "f.#.tmp", "f-dir.#", "f-symlink.#", "f-link.#"];
    names.iter().map(|name| directory.join(name.replace('#', &format!("{number:07}")))).collect()
}

/// A run of an operation below strace, which looks at the calls on the names of number `number` only: the output, and
/// the lines of strace.
fn on_number(
    place: &Path,
    operation: &str,
    number: u64,
    strace: &[String],
    more: &str,
) -> (std::process::Output, String) {
    let log = place.with_extension("strace");
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "--seccomp-bpf", "-qq", "-o"]).arg(&log).args(strace);
    for path in faulty_paths(place, operation, number) {
        command.arg("-P").arg(path);
    }
    command
        .arg(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["files", "--json", "--fsync", "--op", operation, "--dir"])
        .arg(place);
    let output = command.args(faulty_options(more)).output().unwrap();
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let _ = std::fs::remove_file(log);
    (output, said)
}

fn faulty_options(more: &str) -> Vec<String> {
    let all = format!("--files {FAULTY} --files-per-dir 1 --size 100 --xattr-size 10 --xattr-count 1 {more}");
    all.split_whitespace().map(str::to_string).collect()
}

/// A directory with what an operation needs, and with files of somebody else.
fn faulty_place(needed: &str) -> (tempfile::TempDir, PathBuf) {
    let whole = directory();
    let place = whole.path().canonicalize().unwrap().join("place");
    std::fs::create_dir(&place).unwrap();
    if !needed.is_empty() {
        let mut command = plimsoll(&place);
        let output = command.args(["files", "--quiet", "--op", needed]).args(faulty_options("")).output().unwrap();
        assert!(output.status.success(), "{needed}: {}", stderr(&output));
    }
    for name in ["thrd000-d0000/stranger", "thrd000-d0003/f.0000009", "thrd001-d0000/f.0000000"] {
        std::fs::create_dir_all(place.join(name).parent().unwrap()).unwrap();
        std::fs::write(place.join(name), "mine").unwrap();
    }
    (whole, place)
}

/// One cell of the fault matrix: the call of an operation on one of its files fails.
fn one_fault(operation: &str, needed: &str, call: &str, number: u64, error: &str, goes_on: bool) {
    let (_whole, place) = faulty_place(needed);
    let strace = [format!("-etrace={call}"), format!("-einject={call}:error={error}:when=1")];
    let makes = needed.is_empty();
    let more =
        format!("{} {}", ["", "--continue-on-error"][usize::from(goes_on)], ["", "--cleanup"][usize::from(makes)]);
    let (output, said) = on_number(&place, operation, number, &strace, &more);
    let what = format!("{operation} {call} {number} {error} {more}: {said}{}", stderr(&output));
    assert!(said.contains("(INJECTED)"), "{what}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{what}"));
    let phase = &result["phases"][0];
    let number_of = |field: &str| phase[field].as_u64().unwrap();
    let (asked, left, failed) = (number_of("asked"), number_of("left"), count(phase, "failed"));
    let done = asked - left - failed;
    assert_eq!(asked, FAULTY, "{what}");
    let lists = ["readdir", "ls-l"].contains(&operation);
    match operation {
        "cleanup" => assert!(count(phase, "files") <= FAULTY, "{what}"),
        _ => assert_eq!(count(phase, if lists { "directories" } else { "files" }), done, "{what}"),
    }
    // An interrupted call is made again. That nothing is there may be an answer.
    match error {
        "EINTR" => assert_eq!(failed, 0, "{what}"),
        "ENOENT" => assert!(failed <= 1, "{what}"),
        _ => assert_eq!(failed, 1, "{what}"),
    }
    assert_eq!(output.status.code(), Some(i32::from(failed > 0)), "{what}");
    assert_eq!(left, if failed == 0 || goes_on { 0 } else { FAULTY - number - 1 }, "{what}");
    assert_eq!(result["ended"], if failed > 0 { "failed" } else { "complete" }, "{what}");
    let errors = phase["errors"].as_array().unwrap();
    assert_eq!(errors.iter().map(|error| error["count"].as_u64().unwrap()).sum::<u64>(), failed, "{what}");

    let found = tree(&place);
    for name in ["thrd000-d0000/stranger", "thrd000-d0003/f.0000009", "thrd001-d0000/f.0000000"] {
        assert_eq!(std::fs::read_to_string(place.join(name)).unwrap_or_default(), "mine", "{what}");
    }
    let there = |name: &str| {
        let path = |number| place.join(format!("thrd000-d{number:04}/{}", name.replace('#', &format!("{number:07}"))));
        (0..FAULTY).filter(|&number| path(number).symlink_metadata().is_ok()).count() as u64
    };
    if makes {
        assert_eq!(found.len(), 3, "{what}: the run has cleaned up: {found:?}");
        return;
    }
    match operation {
        "unlink" => assert_eq!(there("f.#"), asked - done, "{what}"),
        "delete-renamed" => assert_eq!(there("f.#.renamed"), asked - done, "{what}"),
        "rmdir" => assert_eq!(there("f-dir.#"), asked - done, "{what}"),
        "rename" => assert_eq!((there("f.#.renamed"), there("f.#")), (done, asked - done), "{what}"),
        "symlink" => assert_eq!(there("f-symlink.#"), done, "{what}"),
        "link" => assert_eq!(there("f-link.#"), done, "{what}"),
        "stat-dir" => assert_eq!(there("f-dir.#"), FAULTY, "{what}"),
        "cleanup" => assert_eq!(there("f.#"), asked - count(phase, "files"), "{what}"),
        _ => assert_eq!(there("f.#"), FAULTY, "{what}"),
    }
}

/// Each operation, with a fault in each of its calls on the first file, on the middle one and on the last; each
/// operation meets each error.
#[test]
fn a_fault_in_any_call_of_any_operation_is_counted_once_and_touches_nothing_else() {
    if !has_program("strace") {
        return;
    }
    let [next, broken] = [const { std::sync::atomic::AtomicUsize::new(0) }; 2];
    let all: Vec<(&str, &str)> = NEEDS.iter().copied().chain([("mknod", "")]).collect();
    let work = || {
        while let Some((operation, needed)) = all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            let (_whole, place) = faulty_place(needed);
            let (output, said) = on_number(&place, operation, 3, &[format!("-etrace={FAULTY_CALLS}")], "");
            assert!(output.status.success(), "{operation}: {}", stderr(&output));
            let mut calls: Vec<&str> = Vec::new();
            for call in said.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('(').next()) {
                if !calls.contains(&call) && FAULTY_CALLS.contains(call) {
                    calls.push(call);
                }
            }
            assert!(!calls.is_empty(), "{operation}: {said}");
            for cell in 0..FAULTS.len().max(3 * calls.len()) {
                let (call, place) = (calls[cell % calls.len()], cell / calls.len() % 3);
                let number = [0, FAULTY / 2, FAULTY - 1][place];
                let (error, goes_on) = (FAULTS[cell % FAULTS.len()], cell % 2 == 1);
                let held = std::panic::catch_unwind(|| one_fault(operation, needed, call, number, error, goes_on));
                broken.fetch_add(usize::from(held.is_err()), std::sync::atomic::Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let both = [scope.spawn(work), scope.spawn(work)];
        both.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(broken.into_inner(), 0, "cells of the matrix do not hold: see above");
}

/// A fault in a call on a directory of the tree is one failure, and the others are made or removed.
#[test]
fn a_fault_in_a_tree_is_counted_once() {
    if !has_program("strace") {
        return;
    }
    for (op, needed, call) in [("make-tree", "", "mkdir,mkdirat"), ("remove-tree", "make-tree", "rmdir,unlinkat")] {
        for (error, failed) in [("EINTR", 0), ("EIO", 1), ("ENOSPC", 1), ("EDQUOT", 1), ("ESTALE", 1), ("EACCES", 1)] {
            for goes_on in [false, true] {
                let place = directory();
                let shape = "--files 7 --files-per-dir 1";
                if !needed.is_empty() {
                    files(place.path(), &format!("--op {needed} {shape}"));
                }
                let line = format!("--op {op} {shape} {}", ["", "--continue-on-error"][usize::from(goes_on)]);
                let (result, status) = with_faults(place.path(), call, &format!("error={error}:when=3"), &line);
                let what = format!("{op} {error} {goes_on}: {result:#}");
                let of_phase = phase(&result, op);
                let left = if failed == 1 && !goes_on { 4 } else { 0 };
                let done = 7 - failed - left;
                assert_eq!((count(of_phase, "files"), count(of_phase, "failed")), (done, failed), "{what}");
                assert_eq!((of_phase["asked"].as_u64(), of_phase["left"].as_u64()), (Some(7), Some(left)), "{what}");
                assert_eq!(status, i32::from(failed > 0), "{what}");
                let there = directories(place.path()) as u64;
                assert_eq!(there, if op == "make-tree" { done } else { 7 - done }, "{what}");
            }
        }
    }
}

#[test]
fn a_clean_up_that_fails_is_said_also_after_another_failure() {
    if !has_program("strace") {
        return;
    }
    for processes in ["1", "2"] {
        for foreign in [false, true] {
            let place = directory();
            if foreign {
                std::fs::create_dir(place.path().join("thrd000-d0000")).unwrap();
                file(place.path(), "thrd000-d0000/f.0000003", "mine");
            }
            let mut strace = std::process::Command::new("strace");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=unlink,unlinkat"]);
            strace.args(["-e", "inject=unlink,unlinkat:error=EROFS", env!("CARGO_BIN_EXE_plimsoll"), "files"]);
            strace.args(["--json", "--op", "create", "--files", "5", "--cleanup", "--processes", processes]);
            let output = strace.current_dir(place.path()).output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            let result = json(&output);
            assert!(result["clean_up"]["message"].as_str().unwrap().starts_with("clean-up: cannot unlink "), "{said}");
            let lines = said.lines().filter(|line| line.contains("clean-up: cannot unlink")).count();
            assert_eq!((lines, said.lines().count()), (1, 1 + usize::from(foreign)), "{said}");
            assert!(said.contains("files of thread"), "{said}");
            assert_eq!(result["ended"], "failed");
        }
    }
}

#[test]
fn a_clean_up_of_earlier_runs_counts_what_it_removes() {
    let place = directory();
    let removed = |line: &str| {
        let result = files(place.path(), &format!("--op cleanup {line}"));
        let cleanup = &result["phases"][0];
        (count(cleanup, "files"), calls(cleanup, "unlink"))
    };
    let (nothing, looks) = removed("--files 5000");
    assert_eq!(nothing, 0);
    assert!(looks < 50, "a directory that is not there has no files: {looks} calls");
    files(place.path(), "--op create,mkdir,symlink --files 5");
    assert_eq!(removed("--files 5000").0, 15);
    assert!(names(place.path()).is_empty());
}

//! When a phase begins and ends, and what a stop leaves.

use super::*;

#[test]
fn a_phase_ends_when_its_time_is_over() {
    let place = directory();
    let result = files(place.path(), "--op create,stat --files 300000 --size 0 --runtime 3s --pause 10ms --cleanup");
    let create = phase(&result, "create");
    assert!((1..=300).contains(&count(create, "files")), "{}", count(create, "files"));
    assert!(create["runtime_ns"].as_u64().unwrap() >= 3_000_000_000);
    assert!(count(phase(&result, "stat"), "files") <= count(create, "files"));
}

#[test]
fn a_runtime_ends_every_operation() {
    let place = directory();
    for (operation, needed) in NEEDS {
        if !needed.is_empty() {
            succeed(place.path(), &["files", "--op", needed, "--files", "3"]);
        }
        // Without the end of the runtime the pause after the first file would hold the test for an hour. A thread that
        // is kept from a processor may have no file within the shorter runtimes.
        let ended = [50u64, 500, 5_000, 50_000].into_iter().find_map(|ms| {
            let runtime = format!("{ms}ms");
            let pause = ["--runtime", &runtime, "--pause", "3600s"];
            let job = [&["files", "--json", "--op", operation, "--files", "3"], &pause[..]].concat();
            let phase = json(&succeed(place.path(), &job))["phases"][0].clone();
            (count(&phase, "files") >= 1).then_some((ms, phase))
        });
        let (ms, phase) = ended.unwrap_or_else(|| panic!("{operation}: no file in any runtime"));
        assert!(phase["runtime_ns"].as_u64().unwrap() >= ms * 1_000_000, "{operation}: {phase}");
        succeed(place.path(), &["files", "--op", "cleanup", "--files", "3"]);
    }
}

#[test]
fn a_wait_for_files_that_never_come_ends_with_the_runtime_and_says_so() {
    let place = directory();
    let arguments = ["files", "--op", "await-create", "--files", "3", "--runtime", "50ms"];
    let output = run(place.path(), &arguments);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("f.0000000 did not appear within --runtime"), "{}", stderr(&output));
}

#[test]
fn a_phase_can_end_with_its_first_thread() {
    let place = directory();
    // A thread whose directory holds a file already fails at once; here one thread has but one file to make.
    let result = files(place.path(), "--op create,stat --files 2000 --threads 2 --finish first --size 0 --cleanup");
    let create = phase(&result, "create");
    let works: Vec<u64> =
        create["threads"].as_array().unwrap().iter().map(|one| one["work"]["files"].as_u64().unwrap()).collect();
    assert_eq!(works.iter().max(), Some(&2000), "the first is through");
    assert_eq!(count(create, "files"), works.iter().sum::<u64>());
    // The next phase goes over the files that there are: the slower thread has fewer.
    assert!(count(phase(&result, "stat"), "files") <= count(create, "files"));
    assert!(names(place.path()).is_empty());
}

#[test]
fn iterations_have_a_mean_and_a_deviation() {
    let place = directory();
    let result = files(place.path(), "--op create,stat,unlink --files 10 --iterations 3");
    let names: Vec<&str> =
        result["phases"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    let expected =
        ["create", "stat", "unlink", "create #2", "stat #2", "unlink #2", "create #3", "stat #3", "unlink #3"];
    assert_eq!(names, expected);
    let text = stdout(&succeed(place.path(), &["files", "--op", "create,stat,unlink", "--iterations", "3"]));
    let table = &text[text.find("over all iterations").expect("a table")..];
    let rows: Vec<&str> = table.lines().skip(1).take(3).collect();
    assert!(rows[0].starts_with("create, files/s") && rows.iter().all(|row| row.contains(" 3 ")), "{table}");
    let error = refused(place.path(), &["files", "--op", "create,stat", "--iterations", "0"]);
    assert!(error.contains("--iterations 0"), "{error}");
}

#[test]
fn iterations_that_would_find_their_own_files_are_refused() {
    let place = directory();
    for (operations, culprit) in [
        ("create", "create"),
        ("create,unlink,mkdir", "mkdir"),
        ("create,symlink,unlink", "symlink"),
        ("mknod", "mknod"),
    ] {
        let error = refused(place.path(), &["files", "--op", operations, "--iterations", "2"]);
        assert!(error.contains(&format!("what {culprit} makes is still there")), "{error}");
    }
    assert!(names(place.path()).is_empty());
    for operations in ["create,unlink", "cleanup,create", "create,cleanup", "mkdir,rmdir", "create,rename,unlink"] {
        files(place.path(), &format!("--op {operations} --files 3 --iterations 2"));
        files(place.path(), "--op cleanup --files 3");
    }
}

#[test]
fn pauses_follow_the_response_time() {
    let place = directory();
    let result = files(place.path(), "--op create --files 50 --auto-pause --threads 2 --fsync");
    assert_eq!(count(phase(&result, "create"), "files"), 100);
    let error = refused(place.path(), &["files", "--op", "stat", "--auto-pause", "--no-latency"]);
    assert!(error.contains("--no-latency"), "{error}");
}

/// Reads and writes of 64 KiB at 640 KiB/s begin 0.1 s after each other. Each thread has a limit of its own, and the
/// pause is in no latency.
#[test]
fn a_thread_reads_and_writes_no_faster_than_its_limit() {
    let place = directory();
    let line = "--files 3 --size 128k --record 64k --threads 2 --op create,read";
    for (limit, limited, free) in [("--limit-write 640k", "create", "read"), ("--limitread 640k", "read", "create")] {
        let result = files(place.path(), &format!("{line} {limit}"));
        let seconds = |name: &str| phase(&result, name)["runtime_ns"].as_u64().unwrap() as f64 / 1e9;
        // Six records: the sixth begins after five turns.
        assert!(seconds(limited) >= 0.5, "{limit}: {}", seconds(limited));
        assert!(seconds(limited) > seconds(free), "{limit}: {} {}", seconds(limited), seconds(free));
        assert_eq!(count(phase(&result, limited), "bytes"), 6 * 128 * 1024);
        let call = if limited == "read" { "read" } else { "write" };
        let all = phase(&result, limited)["calls"].as_array().unwrap();
        let latency = &all.iter().find(|found| found["call"] == call).unwrap()["lat_ns"];
        let mean_ns = latency["sum"].as_str().unwrap().parse::<f64>().unwrap() / latency["count"].as_f64().unwrap();
        assert!(mean_ns < 1e8, "{limit}: {mean_ns}");
        files(place.path(), "--files 3 --threads 2 --op cleanup");
    }
    // The end of the phase comes before the turn.
    let slow = run(
        place.path(),
        &["files", "--json", "--op=create", "--size=8k", "--record=4k", "--limit-write=1", "--runtime=200ms"],
    );
    assert!(slow.status.success(), "{}", stderr(&slow));
    let refused = run(place.path(), &["files", "--op=create", "--limit-write=0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--limit-write"), "{}", stderr(&refused));
}

/// The kernel gets the order before each phase. The order has no effect here: other programs need their caches.
#[test]
fn caches_are_dropped_before_each_phase_or_the_run_says_why_not() {
    if !has_program("strace") || !is_root("drop caches") {
        return;
    }
    let place = directory();
    let drops = |injection: &str, processes: &str| {
        let log = place.path().join("log");
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "--seccomp-bpf",
            "-qq",
            "-e",
            "trace=write,openat,syncfs",
            "-P",
            "/proc/sys/vm/drop_caches",
        ]);
        strace.args(["-e", injection, "-o"]).arg(&log).arg(env!("CARGO_BIN_EXE_plimsoll"));
        strace.args("files --json --files 3 --drop-caches --op create,read,unlink".split(' ')).arg(processes);
        let output = strace.current_dir(place.path()).output().unwrap();
        (output, std::fs::read_to_string(log).unwrap().matches("\"3\"").count())
    };
    for processes in ["--processes=1", "--processes=2"] {
        let (output, dropped) = drops("inject=write:retval=1", processes);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(dropped, 3, "once for each phase");
        let (output, dropped) = drops("inject=write:error=EIO:when=2", processes);
        assert_eq!((output.status.code(), dropped), (Some(1), 2), "{}", stderr(&output));
        assert!(stderr(&output).contains("/proc/sys/vm/drop_caches"), "{}", stderr(&output));
        assert_eq!(count(phase(&json(&output), "create"), "files"), if processes.ends_with('2') { 6 } else { 3 });
        let _ = files(place.path(), &format!("--files 3 --op cleanup {processes}"));
        let (output, dropped) = drops("inject=openat:error=EROFS", processes);
        assert_eq!((output.status.code(), dropped), (Some(2), 0), "{}", stderr(&output));
        assert!(stderr(&output).contains("--drop-caches needs root"), "{}", stderr(&output));
        assert!(tree(place.path()).iter().all(|path| path.ends_with("log")), "it has touched nothing");
    }
}

#[test]
fn a_process_that_is_killed_is_named_and_the_rest_is_partial() {
    let place = directory();
    let child = plimsoll(place.path())
        .args(["files", "--op", "create,stat", "--files", "300000", "--size", "1", "--pause", "100us"])
        .args(["--processes", "2", "--threads", "2", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !(0..4).all(|thread| place.path().join(format!("thrd00{thread}-d0000/f.0000020")).exists()) {
        std::thread::yield_now();
    }
    let workers = children(child.id());
    assert_eq!(workers.len(), 2, "{workers:?}");
    tool("kill", &["-s", "KILL", &workers[1].to_string()], Path::new("/"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result = json(&output);
    let message = result["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(&format!("process 1 (threads 2 to 3, id {}) was killed by signal 9", workers[1])),
        "{message}"
    );
    assert_eq!((&result["ended"], &result["facts"]["lost_processes"]), (&"failed".into(), &serde_json::json!([1])));
    assert!(result["verdicts"].to_string().contains("process-lost"), "{}", result["verdicts"]);
    let create = phase(&result, "create");
    assert_eq!(create["threads"].as_array().unwrap().len(), 2, "those of the other process");
    assert!(count(create, "files") >= 40);
    assert_eq!(result["phases"].as_array().unwrap().len(), 1, "what follows was not begun");
}

#[test]
fn an_interrupted_run_prints_what_it_has_and_removes_what_it_made() {
    for how in ["--threads", "--processes"] {
        let place = directory();
        let mut child = plimsoll(place.path())
            .args(["files", "--op", "create,stat", "--files", "300000", "--size", "1", "--pause", "100us"])
            .args([how, "2", "--json", "--cleanup"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let last = place.path().join("thrd001-d0000/f.0000020");
        while !last.exists() {
            assert!(child.try_wait().unwrap().is_none(), "it ended before there were files");
            std::thread::yield_now();
        }
        tool("kill", &["-s", "INT", &child.id().to_string()], Path::new("/"));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{how}: {}", stderr(&output));
        let result = json(&output);
        assert_eq!(result["ended"], "interrupted");
        assert!(count(phase(&result, "create"), "files") >= 20);
        assert!(names(place.path()).is_empty(), "{how}: {:?}", names(place.path()));
    }
}

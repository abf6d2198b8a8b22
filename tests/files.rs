//! `plimsoll files`: what it makes is there, what it reports is true, what goes wrong is said.

mod common;
use common::*;
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All regular files below a directory.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() { found.extend(tree(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn files(directory: &Path, line: &str) -> Value {
    let arguments: Vec<&str> = ["files", "--json"].into_iter().chain(line.split_whitespace()).collect();
    json(&succeed(directory, &arguments))
}

fn count(phase: &Value, what: &str) -> u64 {
    phase["total"][what].as_u64().unwrap()
}

fn phase<'a>(result: &'a Value, name: &str) -> &'a Value {
    result["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == name).unwrap()
}

fn calls(phase: &Value, name: &str) -> u64 {
    let calls = phase["calls"].as_array().unwrap();
    calls.iter().find(|call| call["call"] == name).map_or(0, |call| call["lat_ns"]["count"].as_u64().unwrap())
}

#[test]
fn creates_what_was_asked_for_where_gfapi_perf_tool_looks_for_it() {
    let place = directory();
    let result =
        files(place.path(), "--op create --files 25 --threads 2 --size 10k --record 4k --files-per-dir 10 --fsync");
    let found = tree(place.path());
    assert_eq!(found.len(), 50);
    assert!(found.iter().all(|path| path.metadata().unwrap().len() == 10240));
    assert!(place.path().join("thrd001-d0002/f.0000024").exists());
    assert_eq!(std::fs::read_dir(place.path().join("thrd000-d0001")).unwrap().count(), 10);
    let contents: HashSet<Vec<u8>> = found.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(contents.len(), 50, "no two files are alike");
    let create = phase(&result, "create");
    assert_eq!((count(create, "files"), count(create, "records"), count(create, "bytes")), (50, 150, 512_000));
    for (call, made) in [("create", 50), ("write", 150), ("fsync", 50), ("close", 50), ("open", 0)] {
        assert_eq!(calls(create, call), made, "{call}");
    }
    assert_eq!(create["operations"][0]["lat_ns"]["count"], 50);
    assert_eq!(create["threads"].as_array().unwrap().len(), 2);
    assert!(create["stonewall_ns"].as_u64().unwrap() <= create["runtime_ns"].as_u64().unwrap());
    assert!(create["at_stonewall"]["files"].as_u64().unwrap() >= 25, "the first thread was through by then");
    assert_eq!(result["ended"], "complete");
}

#[test]
fn every_operation_does_its_work_in_one_run_and_leaves_nothing() {
    let place = directory();
    let operations = "create,append,overwrite,read,stat,chmod,setxattr,getxattr,rename,read,symlink,readlink,link,mkdir,\
                      readdir,ls-l,rmdir,truncate,truncate-overwrite,swift-get,await-create,unlink,swift-put,swift-get,cleanup";
    for layout in ["", "--shared", "--shared --hash-into-dirs", "--dirs-per-dir 2", "--processes 2"] {
        let line = format!(
            "--op {operations} --files 30 --threads 2 --size exp:6k --record 5000 --files-per-dir 7 --verify {layout}"
        );
        let result = files(place.path(), &line);
        let processes = if layout.contains("processes") { 2 } else { 1 };
        let all = 60 * processes;
        for one in result["phases"].as_array().unwrap() {
            let name = one["name"].as_str().unwrap();
            let expected = match name {
                // Of each file: itself, a symbolic link, a second name, a directory.
                "readdir" | "ls-l" => 4 * all,
                // Files, symbolic links and second names.
                "cleanup" => 3 * all,
                _ => all,
            };
            assert_eq!(count(one, "files"), expected, "{name} {layout}");
            assert_eq!(count(one, "failed"), 0, "{name} {layout}");
            if let Some(verified) = one["verified"].as_object() {
                assert_eq!(verified["mismatches"], 0, "{name}");
            }
        }
        for name in ["readdir", "ls-l"] {
            let listed = phase(&result, name);
            assert_eq!(count(listed, "directories"), calls(listed, if name == "ls-l" { "readdir+stat" } else { name }));
            assert_eq!(count(listed, "records"), 0, "nothing was read or written");
        }
        let appended = count(phase(&result, "append"), "bytes");
        assert_eq!(count(phase(&result, "create"), "bytes"), appended);
        assert_eq!(count(phase(&result, "read"), "bytes"), 2 * appended);
        assert!(names(place.path()).is_empty(), "{layout}: {:?}", names(place.path()));
    }
}

#[test]
fn cleanup_removes_what_the_run_made_and_nothing_else() {
    let place = directory();
    let directory = place.path().join("thrd000-d0000");
    for (operations, foreign) in [("create", "f.0000002"), ("mknod", "f.0000002"), ("mkdir", "f-dir.0000002")] {
        for more in [&[][..], &["--continue-on-error"]] {
            std::fs::create_dir(&directory).unwrap();
            match operations {
                "mkdir" => std::fs::create_dir(directory.join(foreign)).unwrap(),
                _ => std::fs::write(directory.join(foreign), "of somebody else").unwrap(),
            }
            let arguments = ["files", "--op", operations, "--files", "6", "--size", "1", "--quiet", "--cleanup"];
            let output = run(place.path(), &[&arguments[..], more].concat());
            assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
            assert_eq!(names(&directory), [foreign], "{operations} {more:?}");
            if operations != "mkdir" {
                assert_eq!(std::fs::read(directory.join(foreign)).unwrap(), b"of somebody else");
            }
            std::fs::remove_dir_all(&directory).unwrap();
        }
    }
    // Files that an earlier phase made are the run's, also where a later one finds them, or makes others beside them.
    for (operations, status) in [("create,create", 1), ("mkdir,mkdir", 1), ("create,rename,create", 0)] {
        let arguments = ["files", "--op", operations, "--files", "4", "--size", "1", "--quiet", "--cleanup"];
        let output = run(place.path(), &arguments);
        assert_eq!(output.status.code(), Some(status), "{operations}: {}", stderr(&output));
        assert!(names(place.path()).is_empty(), "{operations}: {:?}", tree(place.path()));
    }
}

#[test]
fn sizes_are_distributed_as_asked_and_the_same_every_time() {
    let place = directory();
    let sizes = |seed: &str| {
        files(place.path(), &format!("--op create --files 300 --size 1k:50,3k:50 --seed {seed}"));
        let sizes: Vec<u64> = tree(place.path()).iter().map(|path| path.metadata().unwrap().len()).collect();
        files(place.path(), "--op cleanup --files 300");
        sizes
    };
    let first = sizes("7");
    let small = first.iter().filter(|&&size| size == 1024).count();
    assert!((100..200).contains(&small), "{small} of 300");
    assert!(first.iter().all(|&size| size == 1024 || size == 3072));
    assert_eq!(sizes("7"), first);
    assert_ne!(sizes("8"), first);
}

#[test]
fn a_later_run_verifies_an_earlier_one_and_finds_what_was_changed() {
    let place = directory();
    files(place.path(), "--op create --files 20 --size 20k");
    files(place.path(), "--op read,stat --files 20 --size 20k --verify --random --record 4k");
    let damaged = place.path().join("thrd000-d0000/f.0000013");
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[9999] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let arguments =
        ["files", "--op", "read", "--files", "20", "--size", "20k", "--verify", "--json", "--continue-on-error"];
    let output = run(place.path(), &arguments);
    assert_eq!(output.status.code(), Some(1));
    let result = json(&output);
    let read = phase(&result, "read");
    assert_eq!((count(read, "files"), count(read, "failed")), (19, 1));
    assert_eq!((read["errors"][0]["errno"].as_i64(), read["verified"]["mismatches"].as_u64()), (Some(84), Some(1)));
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("f.0000013") && message.contains("8192") || message.contains("9999"), "{message}");
    assert!(read["verdicts"].to_string().contains("verify-mismatch"));
    assert_eq!(result["ended"], "failed");
    // Without going on it ends there.
    let output = run(place.path(), &arguments[..9]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(count(phase(&json(&output), "read"), "files"), 13);
    // A file that is too short is as wrong.
    std::fs::write(&damaged, &bytes[..100]).unwrap();
    let output = run(place.path(), &["files", "--op", "read", "--files", "20", "--size", "20k"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("f.0000013 ends at byte 100 instead of 20480"), "{}", stdout(&output));
}

#[test]
fn mixes_follow_their_weights_and_know_what_is_there() {
    let place = directory();
    let result = files(
        place.path(),
        "--op create,read:60+stat:25+create:5+unlink:5+rename:5,read --files 2000 --size 100 --verify --cleanup",
    );
    let mix = &result["phases"][1];
    assert_eq!(count(mix, "files"), 2000);
    let operations = mix["operations"].as_array().unwrap();
    let done = |name: &str| {
        let found = operations.iter().find(|operation| operation["operation"] == name).unwrap();
        found["lat_ns"]["count"].as_u64().unwrap()
    };
    // Five standard deviations of a binomial distribution.
    assert!((1090..1310).contains(&done("read")), "{}", done("read"));
    assert!((403..597).contains(&done("stat")), "{}", done("stat"));
    assert_eq!(calls(mix, "rename"), done("rename"), "an operation is one call");
    let left = 2000 + done("create") - done("unlink");
    assert_eq!(count(&result["phases"][2], "files"), left, "the last phase reads what is left, whole");
    assert!(names(place.path()).is_empty(), "{:?}", names(place.path()));
}

#[test]
fn direct_io_goes_past_the_page_cache_or_is_refused_by_name() {
    let place = directory();
    let line = "--op create,read --direct --files 5 --size 16k --record 4k --verify --cleanup";
    let arguments: Vec<&str> = ["files", "--json"].into_iter().chain(line.split_whitespace()).collect();
    let output = run(place.path(), &arguments);
    let result = json(&output);
    if output.status.success() {
        assert_eq!(count(phase(&result, "read"), "bytes"), 5 * 16384);
    } else {
        assert!(result["error"]["message"].as_str().unwrap().contains("O_DIRECT"), "{}", result["error"]);
    }
    let error = refused(place.path(), &["files", "--op", "create", "--direct", "--size", "1000"]);
    assert!(error.contains("O_DIRECT"), "{error}");
}

#[test]
fn what_cannot_be_is_one_line() {
    let place = directory();
    file(place.path(), "plain", "");
    for (line, part) in [
        ("--op creat", "no operation is called 'creat'"),
        ("--op create --dir nowhere", "cannot use directory nowhere"),
        ("--op create --dir plain", "it is not a directory"),
        ("--op create,unlink,read", "read after unlink"),
        ("--op create --size 0x", "--size"),
        ("--op create --files 0", "--files"),
        ("--op create --size 1g --files 100000000", "only"),
        ("--op create --fs nfs://h/v", "posix or gluster"),
        ("--op create --bogus", "--bogus"),
        ("--files 10", "--op"),
    ] {
        let arguments: Vec<&str> = ["files"].into_iter().chain(line.split_whitespace()).collect();
        let error = refused(place.path(), &arguments);
        assert!(error.contains(part), "{line}: {error}");
    }
    assert_eq!(names(place.path()), ["plain"]);
}

#[test]
fn files_that_are_there_or_missing_are_named() {
    let place = directory();
    files(place.path(), "--op create --files 3");
    let output = run(place.path(), &["files", "--op", "create", "--files", "3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("f.0000000") && stdout(&output).contains("cleanup"), "{}", stdout(&output));
    let output = run(place.path(), &["files", "--op", "stat", "--files", "4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("f.0000003"), "{}", stdout(&output));
}

#[test]
fn a_full_file_system_is_an_error_with_what_was_done_until_then() {
    let Some(mount) = Mount::new("tmpfs", "size=1m") else { return };
    // One byte a file takes a page: more than what the sizes add up to.
    let output =
        run(mount.path(), &["files", "--op", "create,stat", "--files", "2000", "--size", "1", "--json", "--cleanup"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result = json(&output);
    let create = phase(&result, "create");
    assert!((200..=256).contains(&count(create, "files")), "{create}");
    assert_eq!(create["errors"][0]["errno"], 28);
    assert!(result["error"]["message"].as_str().unwrap().contains("full"));
    assert_eq!(result["phases"].as_array().unwrap().len(), 1, "what follows was not begun");
    assert!(names(mount.path()).is_empty(), "{:?}", names(mount.path()));
    // Files that certainly do not fit are refused before any is made.
    let error = refused(mount.path(), &["files", "--op", "create", "--files", "2000", "--size", "4k"]);
    assert!(error.contains("only 1 MiB"), "{error}");
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
fn results_are_saved_shown_and_set_side_by_side() {
    let place = directory();
    for name in ["a", "b"] {
        let arguments = ["files", "--op", "create,read,unlink", "--files", "50", "--threads", "2", "--save", name];
        let text = stdout(&succeed(place.path(), &arguments));
        for part in ["create", "files/s", "to the stonewall", "thread 1", "p99.9", "page-cache-read"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
    let text = stdout(&succeed(place.path(), &["report", "--format", "text", "a"]));
    assert!(text.contains("unlink"), "{text}");
    succeed(place.path(), &["report", "a", "b", "-o", "page.html"]);
    let page = std::fs::read_to_string(place.path().join("page.html")).unwrap();
    assert!(page.contains("Files side by side") && page.contains("create, whole"));
    assert!(refused(place.path(), &["report", "--format", "json", "a"]).contains("results of `run`"));
}

#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let place = directory();
    let peak = |files: &str| {
        let arguments = ["files", "--op", "symlink,readlink", "--files", files, "--size", "0", "--json", "--cleanup"];
        let mut child = plimsoll(place.path()).args(arguments).stdout(Stdio::null()).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut most = 0u64;
        while child.try_wait().unwrap().is_none() {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("VmHWM"));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0);
            most = most.max(kib);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        most
    };
    // The memory that is seen of a short run may be less than its peak, never more.
    let few = (0..5).map(|_| peak("2000")).max().unwrap();
    let many = peak("40000");
    assert!(many < few + 2048, "{few} KiB with 2,000 links, {many} KiB with 40,000");
}

#[test]
fn listings_are_held_against_what_there_should_be() {
    for layout in ["", "--shared", "--shared --hash-into-dirs", "--dirs-per-dir 3", "--shared --processes 2"] {
        let place = directory();
        let common = format!("--files 40 --threads 2 --size 100 --files-per-dir 9 --verify {layout}");
        let all = if layout.contains("processes") { 160 } else { 80 };
        let operations = "create,readdir,mkdir,symlink,link,readdir,ls-l,rename,readdir,ls-l,rmdir,readdir";
        let result = files(place.path(), &format!("--op {operations} {common}"));
        let entries: Vec<u64> = result["phases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|phase| phase["verified"]["entries"].as_u64().unwrap_or(0))
            .collect();
        let of = |times: u64| times * all;
        assert_eq!(entries, [0, of(1), 0, 0, 0, of(4), of(4), 0, of(4), of(4), 0, of(3)], "{layout}");
        // Renamed back, with a stranger among them: a later run takes it that all is there.
        files(place.path(), &format!("--op delete-renamed {common}"));
        files(place.path(), &format!("--op create {common} --continue-on-error"));
        let found = tree(place.path());
        let victim = found.iter().find(|path| path.to_str().unwrap().contains("/f.")).unwrap();
        std::fs::write(victim.with_file_name("stranger"), "").unwrap();
        let listed = files(place.path(), &format!("--op readdir {common}"));
        assert_eq!(phase(&listed, "readdir")["verified"]["entries"], all, "{layout}");
        std::fs::remove_file(victim).unwrap();
        let line = format!("files --json --op readdir {common}");
        let output = run(place.path(), &line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(1), "{layout}");
        let result = json(&output);
        let message = result["error"]["message"].as_str().unwrap();
        let name = victim.file_name().unwrap().to_str().unwrap();
        assert!(message.contains(&format!("{name} is not listed")), "{layout}: {message}");
        assert_eq!(phase(&result, "readdir")["verified"]["mismatches"], 1, "{layout}");
    }
}

#[test]
fn mixes_in_shared_directories_know_what_is_theirs() {
    for layout in ["", "--hash-into-dirs", "--dirs-per-dir 3", "--processes 2"] {
        let place = directory();
        let mix =
            "create:20+read:20+stat:10+append:10+overwrite:10+unlink:15+rename:10+readdir:5+ls-l:5+mkdir:3+symlink:2";
        let line = format!(
            "--op create,{mix},read,readdir,ls-l --files 600 --threads 3 --size exp:1k --files-per-dir 50 --shared --verify --cleanup {layout}"
        );
        let result = files(place.path(), &line);
        let (mix, processes) = (&result["phases"][1], if layout.contains("processes") { 2 } else { 1 });
        assert_eq!((count(mix, "files"), count(mix, "failed")), (1800 * processes, 0), "{layout}");
        assert!(
            mix["verified"]["entries"].as_u64().unwrap() > 0 && mix["verified"]["mismatches"] == 0,
            "{layout}: {mix}"
        );
        let done = |name: &str| {
            let operations = mix["operations"].as_array().unwrap();
            operations.iter().find(|operation| operation["operation"] == name).unwrap()["lat_ns"]["count"]
                .as_u64()
                .unwrap()
        };
        let left = 1800 * processes + done("create") - done("unlink");
        assert_eq!(count(phase(&result, "read"), "files"), left, "{layout}");
        // All threads' files together, whoever lists the directory.
        let links = done("mkdir") + done("symlink");
        for name in ["readdir", "ls-l"] {
            let listed = result["phases"].as_array().unwrap().iter().rfind(|phase| phase["name"] == name).unwrap();
            assert!(listed["verified"]["entries"].as_u64().unwrap() <= left + links, "{layout}");
            assert_eq!(listed["verified"]["mismatches"], 0, "{layout}");
        }
        assert!(names(place.path()).is_empty(), "{layout}: {:?}", names(place.path()));
    }
}

/// The children of a process.
fn children(of: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
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
fn two_results_are_compared_phase_by_phase() {
    let place = directory();
    // So far apart that no load on the machine, and no moment of standstill, changes which of them is slower.
    let save = |name: &str, pause: &str, files: &str| {
        let arguments =
            ["files", "--op", "create,stat", "--size", "1", "--pause", pause, "--files", files, "--save", name];
        succeed(place.path(), &[&arguments[..], &["--cleanup"]].concat());
    };
    save("fast.json", "1ms", "1500");
    save("slow.json", "50ms", "40");
    let text = stdout(&succeed(place.path(), &["compare", "fast.json", "slow.json"]));
    assert!(text.contains("create: files/s") && text.contains("stat: files/s") && text.contains("worse"), "{text}");
    let output = run(place.path(), &["compare", "fast.json", "slow.json", "--fail-if-slower=10%", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let effects = json(&output)["effects"].clone();
    let create = effects.as_array().unwrap().iter().find(|effect| effect["figure"] == "create:files_per_s").unwrap();
    assert!(
        create["change"]["mean"].as_f64().unwrap() < -0.3 && create["change"]["high"].as_f64().unwrap() < 0.0,
        "{create}"
    );
    succeed(place.path(), &["compare", "slow.json", "fast.json", "--fail-if-slower=10%"]);
    // A run that was over at once has ratios without intervals, and nothing is concluded from them.
    let too_short = (0..20).find_map(|_| {
        save("short.json", "0", "20"); // unless the disk takes its time
        let text = stdout(&succeed(place.path(), &["compare", "short.json", "short.json"]));
        text.contains("nothing tells that from noise").then_some(())
    });
    assert!(too_short.is_some(), "what is over in no time is said to be too short");
    let output = run(place.path(), &["compare", "short.json", "short.json", "--fail-if-slower=10%"]);
    assert_eq!(output.status.code(), Some(4), "a gate that cannot tell does not open");
    assert!(stderr(&output).contains("let it run for some seconds"), "{}", stderr(&output));
    succeed(place.path(), &["report", "fast.json", "slow.json", "-o", "page.html"]);
}

/// Every operation, and the operations that make the objects it works on.
const NEEDS: &[(&str, &str)] = &[
    ("append", "create"),
    ("overwrite", "create"),
    ("truncate-overwrite", "create"),
    ("read", "create"),
    ("stat", "create"),
    ("chmod", "create"),
    ("truncate", "create"),
    ("setxattr", "create"),
    ("getxattr", "create,setxattr"),
    ("swift-get", "swift-put"),
    ("rename", "create"),
    ("unlink", "create"),
    ("delete-renamed", "create,rename"),
    ("symlink", "create"),
    ("readlink", "create,symlink"),
    ("link", "create"),
    ("stat-dir", "mkdir"),
    ("rmdir", "mkdir"),
    ("readdir", "create"),
    ("ls-l", "create"),
    ("await-create", "create"),
    ("cleanup", "create"),
    ("create", ""),
    ("mkdir", ""),
    ("swift-put", ""),
];

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
fn every_operation_on_nothing_says_why_on_standard_error() {
    for (operation, needed) in NEEDS {
        let place = directory();
        // A symbolic link to nothing is one, too.
        if needed.is_empty() || ["await-create", "cleanup", "symlink"].contains(operation) {
            continue;
        }
        let output = run(place.path(), &["files", "--op", operation, "--files", "3", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{operation}");
        let said = stderr(&output);
        assert_eq!(said.lines().count(), 1, "{operation}: {said}");
        assert!(said.starts_with("plimsoll: cannot ") && said.contains("thrd000-d0000"), "{operation}: {said}");
        assert_eq!(count(&json(&output)["phases"][0], "files"), 0, "{operation}");
    }
}

#[test]
fn a_full_disk_is_named_by_every_operation_that_writes() {
    let Some(mount) = Mount::new("tmpfs", "size=256k,nr_inodes=64") else { return };
    let place = mount.path();
    succeed(place, &["files", "--op", "create", "--files", "20", "--size", "4k"]);
    for line in [
        "--op append --files 20 --size 64k",
        "--op create --files 20 --size 1m --prefix g --runtime 10s",
        "--op swift-put --files 20 --size 1m --prefix h --runtime 10s",
        "--op mkdir --files 100 --runtime 10s",
    ] {
        let arguments: Vec<&str> = ["files", "--cleanup"].into_iter().chain(line.split(' ')).collect();
        let output = run(place, &arguments);
        assert_eq!(output.status.code(), Some(1), "{line}: {}", stdout(&output));
        assert!(stderr(&output).contains("the file system is full"), "{line}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{line}");
    }
}

/// On a file system that can only be read each operation does its work, or fails with one line; nothing changes.
#[test]
fn every_operation_says_that_a_file_system_is_read_only() {
    let Some(mount) = Mount::new("tmpfs", "size=4m") else { return };
    let place = mount.path();
    let remount = |how: &str| {
        let mut command = Command::new("mount");
        let done = command.args(["-o", &format!("remount,{how}")]).arg(place).status().unwrap();
        assert!(done.success(), "remount,{how}");
    };
    let only_read =
        ["read", "stat", "getxattr", "swift-get", "readlink", "stat-dir", "readdir", "ls-l", "await-create"];
    let more = [("mknod", ""), ("make-tree", ""), ("remove-tree", "make-tree")];
    for (operation, needed) in NEEDS.iter().chain(&more) {
        if !needed.is_empty() {
            succeed(place, &["files", "--op", needed, "--files", "3"]);
        }
        let before = (tree(place), directories(place));
        remount("ro");
        let output = run(place, &["files", "--json", "--op", operation, "--files", "3"]);
        remount("rw");
        let said = stderr(&output);
        match only_read.contains(operation) {
            true => assert!(output.status.success(), "{operation}: {said}"),
            false => {
                assert_eq!(output.status.code(), Some(1), "{operation}: {said}");
                assert_eq!((said.lines().count(), said.matches("Read-only").count()), (1, 1), "{operation}: {said}");
                assert_eq!(json(&output)["ended"], "failed", "{operation}");
            }
        }
        assert_eq!((tree(place), directories(place)), before, "{operation}");
        succeed(place, &["files", "--op", "cleanup", "--files", "3"]);
    }
    if has_program("python3") {
        std::fs::create_dir(place.join("md")).unwrap();
        remount("ro");
        let output = compat(place, "mdtest", "-F -n 3 -d md");
        remount("rw");
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("Read-only") && !stdout(&output).contains("SUMMARY"), "{}", stderr(&output));
    }
}

#[test]
fn response_times_are_written_for_every_operation_and_shown_over_time() {
    let place = directory();
    let line = "--op create,stat --files 20 --threads 2 --response-times times";
    let result = files(place.path(), line);
    for thread in ["thrd000", "thrd001"] {
        let text = std::fs::read_to_string(place.path().join(format!("times/{thread}.csv"))).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("phase,operation,start_s,response_s"));
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), 40);
        assert!(rows[..20].iter().all(|row| row[..2] == ["create", "create"]));
        assert!(rows[20..].iter().all(|row| row[..2] == ["stat", "stat"]));
        let starts: Vec<f64> = rows[..20].iter().map(|row| row[2].parse().unwrap()).collect();
        assert!(starts.is_sorted(), "{starts:?}");
        assert!(rows.iter().all(|row| row[3].parse::<f64>().unwrap() > 0.0));
    }
    let slices = phase(&result, "create")["over_time"]["slices"].as_array().unwrap();
    assert_eq!(slices.iter().map(|slice| slice["count"].as_u64().unwrap()).sum::<u64>(), 40);
    let shown = stdout(&succeed(place.path(), &["files", "--op", "stat", "--files", "20", "--response-times", "more"]));
    assert!(shown.contains("response times from"), "{shown}");
}

#[test]
fn threads_take_several_directories_in_turns() {
    let place = directory();
    for name in ["a", "b", "c"] {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }
    let dirs = "--dir a --dir b --dir c --files 5 --threads 4 --verify";
    files(place.path(), &format!("--op create,read,readdir,rename,ls-l {dirs} --suffix .x"));
    for (thread, name) in ["a", "b", "c", "a"].into_iter().enumerate() {
        let own = place.path().join(format!("{name}/thrd{thread:03}-d0000"));
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 5, "{own:?}");
        assert!(own.join("f.0000004.renamed.x").exists());
    }
    files(place.path(), &format!("--op cleanup {dirs} --suffix .x"));
    assert!(tree(place.path()).is_empty());
    let error = refused(place.path(), &["files", "--op", "create", "--dir", "a", "--dir", "no"]);
    assert!(error.contains("no") && error.contains("must exist"), "{error}");
    let error = refused(place.path(), &["files", "--op", "create", "--dir", "a", "--dir", "b", "--shared"]);
    assert!(error.contains("give one --dir"), "{error}");
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
fn neighbours_files_are_found_verified_and_removed() {
    for layout in ["", "--shared", "--processes 2"] {
        let place = directory();
        let line = format!(
            "--op create,read,setxattr,getxattr,overwrite,read,rename,stat,symlink,readlink,unlink --files 12 --threads 3 \
             --size exp:5k --files-per-dir 5 --verify --neighbour 2 --cleanup {layout}"
        );
        let result = files(place.path(), &line);
        for one in result["phases"].as_array().unwrap() {
            let all = if layout.contains("processes") { 72 } else { 36 };
            assert_eq!((count(one, "files"), count(one, "failed")), (all, 0), "{layout}: {}", one["name"]);
        }
        assert!(names(place.path()).is_empty(), "{layout}: {:?}", names(place.path()));
    }
    // The neighbour's files are really others: with one of them gone, another thread fails.
    let place = directory();
    files(place.path(), "--op create --files 3 --threads 2");
    std::fs::remove_file(place.path().join("thrd001-d0000/f.0000000")).unwrap();
    let arguments = "files --op read --files 3 --threads 2 --neighbour 1 --json --continue-on-error";
    let result = json(&run(place.path(), &arguments.split(' ').collect::<Vec<_>>()));
    let threads = phase(&result, "read")["threads"].as_array().unwrap().clone();
    let failed: Vec<u64> = threads.iter().map(|one| one["work"]["failed"].as_u64().unwrap()).collect();
    assert_eq!(failed, [1, 0], "thread 0 reads the files of thread 1");
}

#[test]
fn trees_of_a_given_shape_hold_files_in_every_directory_or_in_the_leaves() {
    let place = directory();
    let shape = "--depth 2 --branching 3 --files-per-dir 4 --verify";
    let operations = "create,read,readdir,rename,ls-l,stat";
    let result = files(place.path(), &format!("--op {operations},cleanup {shape}"));
    assert_eq!(count(phase(&result, "create"), "files"), 52, "13 directories of 4");
    assert_eq!(count(phase(&result, "readdir"), "directories"), 13);
    assert_eq!(count(phase(&result, "readdir"), "files"), 52 + 12, "files and subdirectories");
    assert!(names(place.path()).is_empty(), "{:?}", names(place.path()));
    let result = files(place.path(), &format!("--op {operations} {shape} --leaves-only --threads 2"));
    assert_eq!(count(phase(&result, "create"), "files"), 72, "of each thread 9 leaves of 4");
    assert_eq!(std::fs::read_dir(place.path().join("thrd001/d2/d8")).unwrap().count(), 4);
    assert_eq!(std::fs::read_dir(place.path().join("thrd001/d2")).unwrap().count(), 3, "nothing but the leaves");
    files(place.path(), &format!("--op cleanup {shape} --leaves-only --threads 2"));
    assert!(names(place.path()).is_empty());
    let error = refused(place.path(), &["files", "--op", "create", "--depth", "40", "--branching", "9"]);
    assert!(error.contains("16777216"), "{error}");
}

#[test]
fn files_are_used_in_random_order_each_once() {
    let place = directory();
    let line = "--op create,stat,read --files 300 --random-order --verify --response-times times";
    let result = files(place.path(), line);
    assert_eq!(count(phase(&result, "stat"), "files"), 300);
    assert_eq!(phase(&result, "read")["verified"]["blocks"], 300);
    // Files of another length are found out of order: the first that fails is not the first by number.
    (0..300).filter(|number| number % 2 == 0).for_each(|number| {
        std::fs::write(place.path().join(format!("thrd000-d0000/f.{number:07}")), "").unwrap();
    });
    let output = run(place.path(), &["files", "--op", "read", "--files", "300", "--random-order", "--seed", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!stderr(&output).contains("f.0000000 "), "{}", stderr(&output));
}

#[test]
fn empty_files_are_made_without_an_open_and_can_be_filled() {
    let place = directory();
    let line = "--op mknod,read,stat,append,read,overwrite,read,unlink --files 9 --size 5k --verify";
    let result = files(place.path(), line);
    let bytes: Vec<u64> = result["phases"].as_array().unwrap().iter().map(|one| count(one, "bytes")).collect();
    let all = 9 * 5120;
    assert_eq!(bytes, [0, 0, 0, all, all, all, all, 0]);
    assert_eq!((calls(phase(&result, "mknod"), "mknod"), calls(phase(&result, "mknod"), "open")), (9, 0));
    assert!(tree(place.path()).is_empty());
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
fn records_can_be_a_part_of_each_file() {
    let place = directory();
    let result = files(place.path(), "--op create,read --files 10 --size 8k:1,40k:1 --record /4 --verify");
    assert_eq!((count(phase(&result, "create"), "records"), count(phase(&result, "read"), "records")), (40, 40));
}

#[test]
fn pauses_follow_the_response_time() {
    let place = directory();
    let result = files(place.path(), "--op create --files 50 --auto-pause --threads 2 --fsync");
    assert_eq!(count(phase(&result, "create"), "files"), 100);
    let error = refused(place.path(), &["files", "--op", "stat", "--auto-pause", "--no-latency"]);
    assert!(error.contains("--no-latency"), "{error}");
}

#[test]
fn an_input_file_has_smallfiles_parameters_and_the_command_line_the_last_word() {
    let place = directory();
    for name in ["a", "b"] {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }
    let yaml = "operation: create # and nothing else\ntop: a,b\nthreads: 2\nfiles: 7\nfile-size: 2\nprefix: 'p'\n\
                incompressible: Y\nfsync: Y\n";
    std::fs::write(place.path().join("in.yaml"), yaml).unwrap();
    let result = files(place.path(), "--input in.yaml");
    assert_eq!(tree(place.path()).len(), 15, "14 files and the input");
    assert_eq!(place.path().join("b/thrd001-d0000/p.0000006").metadata().unwrap().len(), 2048);
    assert_eq!(calls(phase(&result, "create"), "fsync"), 14);
    std::fs::write(
        place.path().join("in.json"),
        r#"{"operation": "read", "top": ["a", "b"], "threads": 2, "files": 9,
        "file-size": 2, "prefix": "p", "verify-read": true, "incompressible": true, "permute-host-dirs": true}"#,
    )
    .unwrap();
    let result = files(place.path(), "--input in.json --files 7");
    let read = phase(&result, "read");
    assert_eq!((count(read, "files"), read["verified"]["mismatches"].as_u64()), (14, Some(0)));
    // The result has smallfile's keys.
    std::fs::write(place.path().join("out.yaml"), "operation: stat\noutput-json: out.json\nfiles: 7\nprefix: p\n")
        .unwrap();
    files(place.path(), "--input out.yaml --dir a");
    let written = json_file(&place.path().join("out.json"));
    let all = &written["results"];
    assert_eq!((&all["files"], &all["total-threads"], &all["status"]), (&7.into(), &1.into(), &"Success".into()));
    assert_eq!((&written["params"]["operation"], &all["in-thread"]["00"]["files"]), (&"stat".into(), &7.into()));
    assert!(all["elapsed"].as_f64().unwrap() > 0.0 && all["files-per-sec"].as_f64().unwrap() > 0.0, "{all}");
    let error = refused(place.path(), &["files", "--op", "create,stat", "--smallfile-json", "x"]);
    assert!(error.contains("one operation"), "{error}");
    std::fs::write(place.path().join("bad.yaml"), "operation: create\nnonsense: 3\n").unwrap();
    let error = refused(place.path(), &["files", "--input", "bad.yaml"]);
    assert!(error.contains("bad.yaml") && error.contains("nonsense"), "{error}");
    std::fs::write(place.path().join("bad.yaml"), "operation: create\nfiles: many\n").unwrap();
    let error = refused(place.path(), &["files", "--input", "bad.yaml"]);
    assert!(error.contains("bad.yaml") && error.contains("many"), "{error}");
}

/// A script of `compat/` with the built program, in `place`.
fn compat(place: &Path, script: &str, line: &str) -> std::process::Output {
    let mut command = std::process::Command::new(format!("{}/compat/{script}", env!("CARGO_MANIFEST_DIR")));
    command.current_dir(place).args(line.split_whitespace()).env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
    command.env("MDTEST_TASKS", "2").env("IOR_TASKS", "2").output().unwrap()
}

/// The lines are read as `io500_fixed.sh` reads them: `grep '^ *File creation' | awk '{print $4}'`, and of IOR
/// `grep '^write' | awk '{print $2, $8}'`.
#[test]
fn mdtest_and_ior_as_they_are_typed_print_their_tables() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    let field = |output: &std::process::Output, start: &str, number: usize| {
        let text = stdout(output);
        assert!(output.status.success(), "{text}{}", stderr(output));
        let line =
            text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
        line.split_whitespace().nth(number - 1).unwrap().parse::<f64>().unwrap()
    };
    let easy = "-F -d md -n 60 -u -I 20 -z 1 -b 2 -L";
    for (letter, line) in
        [("-C", "File creation"), ("-T -R7", "File stat"), ("-E -N 1", "File read"), ("-r", "File removal")]
    {
        assert!(field(&compat(place.path(), "mdtest", &format!("{letter} {easy}")), line, 4) > 0.0);
    }
    let hard = "-t -F -w 3901 -e 3901 -d hard -n 50 -X";
    assert!(field(&compat(place.path(), "mdtest", &format!("-C {hard}")), "File creation", 4) > 0.0);
    assert_eq!(tree(&place.path().join("hard")).len(), 100);
    assert!(tree(&place.path().join("hard")).iter().all(|path| path.metadata().unwrap().len() == 3901));
    assert!(field(&compat(place.path(), "mdtest", &format!("-E -r {hard}")), "File removal", 4) > 0.0);
    let both = compat(place.path(), "mdtest", "-n 10 -u -d both -i 2");
    assert!(field(&both, "Directory creation", 4) > 0.0 && field(&both, "File removal", 6) > 0.0);
    // Files that stay after an iteration are in directories of that iteration.
    let counts: Vec<usize> = ["-C", "-T", "-r"]
        .map(|letter| {
            let output = compat(place.path(), "mdtest", &format!("{letter} -F -n 3 -u -d again -i 3"));
            assert!(output.status.success(), "{letter}: {}", stderr(&output));
            tree(&place.path().join("again")).len()
        })
        .into();
    assert_eq!(counts, [18, 18, 0]);
    let directories = "-D -d only -n 12 -u";
    assert!(field(&compat(place.path(), "mdtest", &format!("-C {directories}")), "Directory creation", 4) > 0.0);
    let looked = compat(place.path(), "mdtest", &format!("-T -X {directories}"));
    assert!(field(&looked, "Directory stat", 4) > 0.0);
    assert!(!stdout(&looked).contains("File") && !stdout(&looked).contains("creation"), "{}", stdout(&looked));
    assert!(field(&compat(place.path(), "mdtest", &format!("-r {directories}")), "Directory removal", 4) > 0.0);
    for (line, part) in [
        ("-D -E -n 9", "-E alone"),
        ("-F -Q 3", "-Q is not known"),
        ("-F -d x", "-n or -I is missing"),
        ("-F -n 9 -w 2 -e 1", "-e 1"),
    ] {
        let output = compat(place.path(), "mdtest", line);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(part), "{line}: {}", stderr(&output));
    }

    // Two tasks write three segments in turns: task, task, task, task, task, task.
    let shared = "-C -Q 1 -g -G 27 -k -e -t 47008 -b 47008 -s 3 -o ior";
    let written = compat(place.path(), "ior", &format!("-w {shared}"));
    assert!(field(&written, "write", 2) > 0.0 && field(&written, "write", 8) > 0.0);
    assert_eq!(place.path().join("ior").metadata().unwrap().len(), 6 * 47008);
    assert!(field(&compat(place.path(), "ior", &format!("-r {shared}")), "read", 2) > 0.0);
    let own = compat(place.path(), "ior", "-w -r -F -e -t 64k -b 256k -o own");
    assert!(field(&own, "write", 2) > 0.0 && field(&own, "read", 2) > 0.0);
    assert!(!place.path().join("own.00000001").exists(), "without -k files are removed");

    let scored = compat(place.path(), "io500", ". --easy-block 4m --easy-files 20 --hard-files 20 --hard-writes 4");
    let text = stdout(&scored);
    assert_eq!(text.lines().filter(|line| line.starts_with("[RESULT]")).count(), 12, "{text}{}", stderr(&scored));
    let last = text.lines().last().unwrap();
    let invalid: Vec<&str> = text.lines().filter(|line| line.ends_with("[INVALID]")).collect();
    assert!(invalid.len() == 4 && invalid.iter().all(|line| line.contains("-write ")), "{text}");
    assert!(last.contains("[UNOFFICIAL]") && last.contains("TOTAL"), "{last}");
    let figure =
        |name: &str| last.split(name).nth(1).unwrap().split_whitespace().next().unwrap().parse::<f64>().unwrap();
    let product = figure("Bandwidth ") * figure("IOPS ");
    assert!((figure("TOTAL ") / product.sqrt() - 1.0).abs() < 0.01, "{last}");
    assert!(!place.path().join("io500").exists());
}

/// The directories below a directory.
fn directories(place: &Path) -> usize {
    let below = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    below.filter(|path| path.symlink_metadata().unwrap().is_dir()).map(|path| 1 + directories(&path)).sum()
}

/// Calls of one phase each make, find and remove the same as one call of all; the tree has its rows.
#[test]
fn phases_of_mdtest_may_be_calls_of_their_own_and_leave_nothing() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    // The options, the entries that -C makes, and the directories of the tree of two tasks.
    for (options, made, directories_made) in [
        ("-n 6", 24, 1),
        ("-n 6 -F -u", 12, 2),
        ("-n 6 -D", 12, 1),
        ("-n 6 -D -u", 12, 2),
        ("-n 6 -I 3 -F", 12, 2),
        ("-n 6 -I 3 -u", 24, 4),
        ("-n 7 -z 1 -b 2 -F", 12, 3),
        ("-n 6 -z 2 -b 2 -L -F -u", 8, 14),
        ("-I 2 -z 1 -b 3 -F", 16, 4),
        ("-I 2 -z 1 -b 3 -L -F -u", 12, 8),
        ("-n 6 -F -Y", 12, 1),
        ("-n 3 -u -i 2", 24, 4),
    ] {
        let run = |steps: &str| {
            let output = compat(place.path(), "mdtest", &format!("-d md -w 10 {options} {steps}"));
            assert!(output.status.success(), "{options} {steps}: {}", stderr(&output));
            stdout(&output)
        };
        let md = place.path().join("md");
        let there = || (tree(&md).len() + directories(&md), directories(&md));
        let only_directories = options.contains("-D");
        run("-C");
        // The directories of iterations are none of a tree.
        let of_iterations = std::fs::read_dir(&md).unwrap().flatten();
        let of_iterations =
            of_iterations.filter(|entry| entry.file_name().to_string_lossy().starts_with("iteration")).count();
        assert_eq!(there().0, made + directories_made + of_iterations, "{options}");
        let text = run("-T");
        assert!(!text.contains("Tree"), "{text}");
        if !only_directories {
            run("-E");
        }
        assert_eq!(there().0, made + directories_made + of_iterations, "{options}");
        assert!(run("-r").contains("Tree removal"), "{options}");
        assert_eq!(there(), (0, 0), "{options}: {:?}", tree(&md));
        // The same in one call.
        let text = run("");
        for name in ["Tree creation", "Tree removal"] {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).expect(&text);
            assert!(line.split_whitespace().nth(3).unwrap().parse::<f64>().unwrap() > 0.0, "{text}");
        }
        assert_eq!(there(), (0, 0), "{options}");
    }
}

/// Two tasks share a tree of five directories, and each call takes 20 ms more.
#[test]
fn the_rows_of_the_tree_count_its_directories_over_their_time() {
    if !has_program("python3") || !has_program("strace") {
        return;
    }
    let place = directory();
    let mut strace = Command::new("strace");
    strace.args(
        "-f --seccomp-bpf -qq -o /dev/null -e trace=mkdir,mkdirat -e inject=mkdir,mkdirat:delay_exit=20000".split(' '),
    );
    strace.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/compat/mdtest"));
    strace.args("-F -n 5 -z 4 -b 1 -P -d md".split(' ')).current_dir(place.path());
    let output = strace.env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll")).env("MDTEST_TASKS", "2").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let rows: Vec<f64> = text
        .lines()
        .filter(|line| line.contains("Tree creation"))
        .map(|line| line.split_whitespace().nth(3).unwrap().parse().unwrap())
        .collect();
    let [rate, seconds] = rows[..] else { panic!("{text}") };
    assert!(seconds >= 0.1 && (rate * seconds - 5.0).abs() < 0.05, "{text}");
}

#[test]
fn a_tree_is_made_and_removed_as_phases_of_their_own() {
    let place = directory();
    for (layout, all) in [
        ("--files-per-dir 5", 12),
        ("--files-per-dir 5 --shared", 12),
        ("--files-per-dir 5 --processes 2", 24),
        ("--files-per-dir 5 --dirs-per-dir 2", 2 * (1 + 2 + 3 + 6)),
        ("--depth 2 --branching 3", 26),
        ("--depth 2 --branching 3 --leaves-only", 26),
        ("--depth 2 --branching 3 --shared", 13),
    ] {
        let line = format!("--files 30 --threads 2 {layout} --op");
        let one = files(place.path(), &format!("{line} make-tree,create,unlink,remove-tree"));
        for (name, call) in [("make-tree", "mkdir"), ("remove-tree", "rmdir")] {
            let phase = phase(&one, name);
            assert_eq!((count(phase, "files"), count(phase, "failed")), (all, 0), "{name} {layout}");
            assert_eq!(calls(phase, call), all, "{name} {layout}: each directory with one call");
        }
        assert_eq!(directories(place.path()), 0, "{layout}");
        // Calls of their own; directories that are there are none that were made.
        for (op, counted, there) in
            [("make-tree", all, all), ("make-tree", 0, all), ("remove-tree", all, 0), ("remove-tree", 0, 0)]
        {
            assert_eq!(count(phase(&files(place.path(), &format!("{line} {op}")), op), "files"), counted, "{layout}");
            assert_eq!(directories(place.path()) as u64, there, "{op} {layout}");
        }
    }
    // The files of others stay, with the directories they are in.
    files(place.path(), "--op make-tree --files 3 --files-per-dir 1");
    std::fs::write(place.path().join("thrd000-d0001/foreign"), "mine").unwrap();
    let left = files(place.path(), "--op remove-tree --files 3 --files-per-dir 1");
    assert_eq!((count(phase(&left, "remove-tree"), "files"), directories(place.path())), (2, 1));
    for (line, part) in [
        ("--op make-tree --iterations 2", "make-tree makes is still there"),
        ("--op make-tree+create", "phase of its own"),
    ] {
        let arguments: Vec<&str> = ["files"].into_iter().chain(line.split(' ')).collect();
        let refused = run(place.path(), &arguments);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains(part), "{}", stderr(&refused));
    }
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

/// Runs `files` while each call in `calls` fails as `injection` says; the phases, and the status.
fn with_faults(place: &Path, calls: &str, injection: &str, line: &str) -> (Value, i32) {
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
    strace.args(["-e", &format!("inject={calls}:{injection}"), env!("CARGO_BIN_EXE_plimsoll"), "files", "--json"]);
    let output = strace.current_dir(place).args(line.split_whitespace()).output().unwrap();
    (serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output))), {
        output.status.code().unwrap()
    })
}

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
fn attributes_that_do_not_fit_do_not_make_a_disk_full() {
    if !has_program("strace") {
        return;
    }
    let place = directory();
    for (error, part) in [("ENOSPC", "try a smaller --xattr-size"), ("E2BIG", "the value is too large")] {
        let (result, status) = with_faults(
            place.path(),
            "setxattr",
            &format!("error={error}"),
            "--op create,setxattr --files 2 --cleanup",
        );
        let message = result["error"]["message"].as_str().unwrap();
        assert!(status == 1 && message.contains(part), "{message}");
    }
}

#[test]
fn a_file_that_a_run_did_not_make_stays_as_it_is_under_every_name() {
    for (name, op) in [
        ("f.0000002", "create,overwrite,append,truncate,chmod,unlink"),
        ("f.0000002", "mknod,unlink"),
        ("f.0000002.renamed", "create,rename,overwrite,unlink"),
        ("f.0000002.renamed", "create,rename"),
        ("f.0000002.renamed", "create,unlink"),
        ("f.0000002", "swift-put,unlink"),
        ("f.0000002.tmp", "swift-put"),
        ("f.0000002.tmp", "create,unlink,create"),
    ] {
        for goes_on in ["", " --continue-on-error"] {
            let place = directory();
            let parent = place.path().join("thrd000-d0000");
            std::fs::create_dir(&parent).unwrap();
            std::fs::write(parent.join(name), "mine").unwrap();
            let line = format!("files --op {op} --files 4 --cleanup{goes_on}");
            run(place.path(), &line.split_whitespace().collect::<Vec<_>>());
            // A file whose removal failed may stay; the other one always does.
            assert!(tree(place.path()).contains(&parent.join(name)), "{name} {line}");
            assert_eq!(std::fs::read_to_string(parent.join(name)).unwrap(), "mine", "{name} {line}");
        }
    }
}

#[test]
fn reads_of_ior_never_write() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    std::fs::write(place.path().join("short"), vec![1; 300_000]).unwrap();
    for file in ["short", "missing"] {
        let output = compat(place.path(), "ior", &format!("-r -t 256k -b 1m -o {file}"));
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
    assert_eq!(place.path().join("short").metadata().unwrap().len(), 300_000);
    assert_eq!(tree(place.path()).len(), 1);
}

#[test]
fn each_option_of_ior_mdtest_and_io500_has_an_effect_or_is_refused_by_name() {
    if !has_program("python3") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/compat/test_table.py");
    let tried =
        std::process::Command::new(script).env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll")).output().expect("a script");
    assert!(tried.status.success(), "{}{}", stdout(&tried), stderr(&tried));
}

/// Each close and each open takes 100 ms: open, transfer and close of 3200 KiB take at least 0.2 s.
#[test]
fn the_time_of_ior_has_open_transfer_and_close_in_it() {
    if !has_program("python3") || !has_program("strace") {
        return;
    }
    let place = directory();
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=close,openat"]);
    let file = place.path().canonicalize().unwrap().join("s");
    strace.arg("-P").arg(format!("{}.00000000", file.display()));
    strace.args(["-e", "inject=close,openat:delay_exit=100000"]);
    strace.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/compat/ior"));
    strace.args("-w -F -k -t 64k -b 3200k -O summaryFormat=JSON -o".split(' ')).arg(file);
    strace.env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
    let output = strace.output().unwrap();
    let result = &json(&output)["tests"][0]["Results"][0];
    let seconds = |name: &str| result[name].as_f64().unwrap();
    assert!(seconds("openTime") >= 0.1 && seconds("closeTime") >= 0.1, "{result}");
    assert!(seconds("totalTime") >= seconds("openTime") + seconds("closeTime"), "{result}");
    assert!((seconds("bwMiB") * seconds("totalTime") - 3.125).abs() < 0.001, "{result}");
}

/// With -Y the sync after a phase lies in the time of the phase.
#[test]
fn a_sync_after_a_phase_of_mdtest_is_in_its_time() {
    if !has_program("python3") || !has_program("strace") {
        return;
    }
    let place = directory();
    let mut strace = Command::new("strace");
    strace.args("-f --seccomp-bpf -qq -o /dev/null -e trace=sync -e inject=sync:retval=0:delay_exit=300000".split(' '));
    strace.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/compat/mdtest"));
    strace.args("-F -C -T -n 5 -Y -Z -d md".split(' ')).current_dir(place.path());
    let output = strace.env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for row in ["File creation", "File stat"] {
        let line = text.lines().find(|line| line.contains(row)).expect(&text);
        let seconds: f64 = line.split_whitespace().nth(3).and_then(|figure| figure.parse().ok()).expect(line);
        assert!(seconds >= 0.3, "{line}");
    }
}

/// Later calls know the files that a stonewall has left: without a status file, and with one.
#[test]
fn a_stonewall_of_mdtest_leaves_as_many_files_to_each_task_and_later_calls_find_them() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    for line in ["-u -n 1000000", "-n 1000000", "-u -n 1000000 -x status"] {
        let run = |more: &str| {
            let output = compat(place.path(), "mdtest", &format!("-F -d md {line} {more}"));
            assert!(output.status.success(), "{line} {more}: {}", stderr(&output));
            output
        };
        run("-C -W 1");
        let made: Vec<PathBuf> = tree(&place.path().join("md"));
        let made: Vec<&PathBuf> = made.iter().filter(|path| !path.ends_with(".mdtest-stonewall")).collect();
        assert!(!made.is_empty() && made.len() < 2_000_000 && made.len().is_multiple_of(2), "{}", made.len());
        if line.contains("-x") {
            let status = std::fs::read_to_string(place.path().join("status")).unwrap();
            assert_eq!(status.trim().parse::<usize>().unwrap(), made.len() / 2);
        }
        let looked = stdout(&run("-T -P"));
        let row: Vec<f64> = looked
            .lines()
            .filter(|row| row.contains("File stat"))
            .map(|row| row.split_whitespace().nth(3).unwrap().parse().unwrap())
            .collect();
        assert_eq!(row.len(), 2, "{looked}");
        run("-r");
        assert_eq!(tree(&place.path().join("md")).len(), 0, "{line}");
    }
}

/// Tasks that a stonewall has ended move as much as the fastest, and a read takes that from the status file.
#[test]
fn a_stonewall_of_ior_wears_out_and_reads_follow_the_status_file() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    let options = "-k -D 1 -O stoneWallingWearOut=1,stoneWallingStatusFile=status -O summaryFormat=JSON";
    for (shape, parts) in [("-F -t 4k -b 64g -o own", true), ("-t 4096 -b 4096 -s 9000000 -o shared", false)] {
        let moved = |access: &str| {
            let output = compat(place.path(), "ior", &format!("{access} {shape} {options}"));
            assert!(output.status.success(), "{shape}: {}", stderr(&output));
            let result = json(&output)["tests"][0]["Results"][0].clone();
            (result["bwMiB"].as_f64().unwrap() * result["totalTime"].as_f64().unwrap() * 1_048_576.0).round() as u64
        };
        let written = moved("-w");
        let transfers: u64 = std::fs::read_to_string(place.path().join("status")).unwrap().trim().parse().unwrap();
        assert_eq!(written, transfers * 4096 * 2);
        let length = |name: &str| place.path().join(name).metadata().unwrap().len();
        match parts {
            true => assert_eq!((length("own.00000000"), length("own.00000001")), (written / 2, written / 2)),
            false => assert_eq!(length("shared"), written),
        }
        assert!(moved("-r") <= written);
    }
}

/// -W and -R read once more and compare: a byte that somebody changed is found.
#[test]
fn ior_finds_damaged_data_when_it_is_told_to_look() {
    if !has_program("python3") {
        return;
    }
    let place = directory();
    for shape in ["-F -t 47008 -b 94016 -o f", "-C -t 4k -b 12k -s 3 -o f"] {
        let ior = |line: &str| compat(place.path(), "ior", &format!("{line} {shape}"));
        for line in ["-w -W -k", "-r -R -k", "-w -r -W -R -k -i 2"] {
            let output = ior(line);
            assert!(output.status.success(), "{line} {shape}: {}", stderr(&output));
        }
        let victim = tree(place.path())[0].clone();
        let mut bytes = std::fs::read(&victim).unwrap();
        bytes[5000] ^= 1;
        std::fs::write(&victim, &bytes).unwrap();
        let output = ior("-r -k");
        assert!(output.status.success(), "without -R nobody looks: {}", stderr(&output));
        let output = ior("-r -R -k");
        assert!(
            !output.status.success() && stderr(&output).contains("verification failed"),
            "{shape}: {}",
            stderr(&output)
        );
        tree(place.path()).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
    let output = compat(place.path(), "ior", "-w -W -D 1 -o f");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn ior_replaces_the_file_unless_it_is_told_to_use_it() {
    if !has_program("python3") {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let place = directory();
    let old = place.path().join("old");
    std::fs::write(&old, vec![1; 3 << 20]).unwrap();
    let _held = std::fs::File::open(&old).unwrap(); // the number of the inode stays taken
    let before = old.metadata().unwrap();
    for (option, size, same) in [("-E", 3 << 20, true), ("", 1 << 20, false)] {
        let output = compat(place.path(), "ior", &format!("-w -k -t 64k -b 512k -o old {option}"));
        assert!(output.status.success(), "{}", stderr(&output));
        let now = old.metadata().unwrap();
        assert_eq!((now.len(), now.ino() == before.ino()), (size, same), "{option}");
    }
}

/// The processes below one, with it.
fn family(of: u32) -> Vec<u32> {
    children(of).into_iter().flat_map(family).chain([of]).collect()
}

/// True if a process runs: a dead one that nobody has waited for does not.
fn runs(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

/// A signal to a wrapper ends what the wrapper has started; so does its death.
#[test]
fn nothing_keeps_running_when_a_wrapper_gets_a_signal() {
    if !has_program("python3") {
        return;
    }
    let lines = [
        ("mdtest", "-F -C -u -n 1000000 -d md", "md/thrd000-d0000"),
        ("ior", "-w -F -k -t 4k -b 1g -i 100000 -o file", "file.00000000"),
        ("io500", ". --easy-block 4m --easy-files 1000000", "io500/mdt_easy/thrd000-d0000"),
    ];
    for (script, line, sign) in lines {
        for (signal, status) in [("TERM", Some(143)), ("HUP", Some(129)), ("INT", Some(130)), ("KILL", None)] {
            let place = directory();
            let mut command = std::process::Command::new(format!("{}/compat/{script}", env!("CARGO_MANIFEST_DIR")));
            command.current_dir(place.path()).args(line.split(' ')).env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
            command.env("MDTEST_TASKS", "2").env("IOR_TASKS", "2").stdout(Stdio::null()).stderr(Stdio::null());
            let mut wrapper = command.spawn().unwrap();
            while !place.path().join(sign).exists() {
                assert!(wrapper.try_wait().unwrap().is_none(), "{script} ended early");
                std::thread::yield_now();
            }
            let all = family(wrapper.id());
            assert!(all.len() >= 2, "{script}: {all:?}");
            tool("kill", &["-s", signal, &wrapper.id().to_string()], Path::new("/"));
            let ended = wrapper.wait().unwrap();
            assert_eq!(ended.code(), status, "{script} {signal}");
            // The kernel tells the child of a wrapper that was killed; the child then ends by itself.
            while all.iter().any(|&id| runs(id)) {
                assert!(signal == "KILL", "{script} {signal} leaves {all:?}");
                std::thread::yield_now();
            }
        }
    }
}

/// A limit on the size of files cuts each write: the rest is another call, which is counted and warned of.
#[test]
fn a_write_that_another_call_has_to_complete_is_counted() {
    let place = directory();
    // Limits of the shell have blocks of 512 or 1024 bytes: each is below the 20 KiB of a file.
    let script = "trap '' XFSZ; ulimit -f 9; exec \"$0\" files --op create --files 3 --size 20k --record 20k --json \
                  --continue-on-error";
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let output = Command::new("sh").arg("-c").arg(script).arg(program).current_dir(place.path()).output().unwrap();
    let result = json(&output);
    let create = phase(&result, "create");
    assert_eq!(create["disturbances"]["short_transfers"], 3, "{create}");
    let codes: Vec<&Value> = create["verdicts"].as_array().unwrap().iter().map(|verdict| &verdict["code"]).collect();
    assert!(codes.contains(&&"disturbed".into()), "{codes:?}");
}

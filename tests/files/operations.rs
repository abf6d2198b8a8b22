//! The objects that each operation leaves on the disk.

use super::*;

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
fn records_can_be_a_part_of_each_file() {
    let place = directory();
    let result = files(place.path(), "--op create,read --files 10 --size 8k:1,40k:1 --record /4 --verify");
    assert_eq!((count(phase(&result, "create"), "records"), count(phase(&result, "read"), "records")), (40, 40));
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

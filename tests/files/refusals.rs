//! The refusals: each says in one line what cannot be done.

use super::*;

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

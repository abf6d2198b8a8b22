//! Contents and listings held against what there should be; whose a file is.

use super::*;

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

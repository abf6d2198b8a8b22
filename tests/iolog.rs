//! Recorded ops are replayed: those of Plimsoll by fio, and those of fio by Plimsoll.

mod common;
use common::*;
use serde_json::Value;

fn counts(result: &Value) -> (u64, u64, u64) {
    let count = |direction: &str, what: &str| result["jobs"][0][direction][what].as_u64().unwrap();
    (count("read", "total_ios"), count("write", "total_ios"), count("read", "io_bytes") + count("write", "io_bytes"))
}

#[test]
fn recordings_go_both_ways() {
    if !has_program("fio") {
        return;
    }
    let record = [
        "--name=a",
        "--filename=data",
        "--rw=randrw",
        "--size=1m",
        "--bs=4k",
        "--output-format=json",
        "--write_iolog=log",
    ];
    let replay = ["--name=b", "--read_iolog=log", "--output-format=json", "--replay_no_stall=1"];
    let fio = |directory: &std::path::Path, options: &[&str]| -> Value {
        let text = tool("fio", options, directory);
        serde_json::from_str(&text[text.find('{').expect("JSON")..]).expect("fio's JSON")
    };
    let ours = |directory: &std::path::Path, options: &[&str]| json(&succeed(directory, &[&["run"], options].concat()));

    let place = directory();
    let recorded = counts(&ours(place.path(), &record));
    assert_eq!(recorded.2, 1 << 20);
    assert_eq!(counts(&fio(place.path(), &replay)), recorded, "fio replays ours");
    assert_eq!(counts(&ours(place.path(), &replay)), recorded, "and so do we");

    let place = directory();
    let recorded = counts(&fio(place.path(), &record));
    assert_eq!(counts(&ours(place.path(), &replay)), recorded, "we replay fio's");
}

/// A program opens files that it does not read, and syncs files that it has not written.
#[test]
fn a_log_may_have_files_without_transfers() {
    let replay = |requests: &str, options: &[&str]| {
        let place = directory();
        let head = "fio version 2 iolog\nf0 add\nf1 add\nf0 open\nf1 open\n";
        std::fs::write(place.path().join("log"), format!("{head}{requests}f0 close\nf1 close\n")).unwrap();
        let job = ["run", "--name=b", "--read_iolog=log", "--output-format=json"];
        let result = json(&succeed(place.path(), &[&job[..], options].concat()));
        (counts(&result), result["jobs"][0]["sync"]["total_ios"].as_u64())
    };
    for options in [&["--ioengine=psync"][..], &["--ioengine=io_uring"], &["--bs=64k"], &["--replay_redirect=g"]] {
        assert_eq!(replay("f1 write 0 4096\n", options), ((0, 1, 4096), Some(0)), "{options:?}");
        assert_eq!(replay("f0 write 0 4096\nf1 sync 0 0\n", options), ((0, 1, 4096), Some(1)), "{options:?}");
        assert_eq!(replay("f0 sync 0 0\n", options), ((0, 0, 0), Some(1)), "{options:?}");
    }
}

/// The log of another machine names devices that this one does not have: no file may take the place of one.
#[test]
fn a_replay_makes_no_file_in_place_of_a_device() {
    let place = directory();
    let device = "/dev/plimsoll-no-such-device";
    let log = |name: &str| {
        let text = format!("fio version 2 iolog\nf0 add\n{name} add\nf0 write 0 4096\n{name} write 0 4096\n");
        std::fs::write(place.path().join("log"), text).unwrap();
    };
    log(device);
    let said = refused(place.path(), &["run", "--name=b", "--read_iolog=log"]);
    assert!(said.contains("no such device"), "{said}");
    assert!(!std::path::Path::new(device).exists());
    log("f1");
    let said = refused(place.path(), &["run", "--name=b", "--read_iolog=log", "--allow_file_create=0"]);
    assert!(said.contains("allow_file_create=0"), "{said}");
    assert_eq!(names(place.path()), ["log"], "nothing is left behind");
}

/// Reads and writes of a replay share buffers: the bytes that came from the file must not go back into it.
#[test]
fn a_replay_writes_the_pattern_after_reads() {
    for (pattern, byte) in [("--buffer_pattern=0x5a", 0x5a), ("--zero_buffers=1", 0)] {
        for engine in ["psync", "libaio", "mmap"] {
            let place = directory();
            std::fs::write(place.path().join("f0"), vec![7; 16384]).unwrap();
            let log = "fio version 2 iolog\nf0 add\nf0 open\nf0 read 0 4096\nf0 write 4096 4096\nf0 read 8192 4096\n\
                f0 write 12288 4096\nf0 close\n";
            std::fs::write(place.path().join("log"), log).unwrap();
            let engine = format!("--ioengine={engine}");
            succeed(place.path(), &["run", "--name=b", "--read_iolog=log", pattern, &engine]);
            let bytes = std::fs::read(place.path().join("f0")).unwrap();
            for (block, wanted) in bytes.chunks(4096).zip([7, byte, 7, byte]) {
                assert!(block.iter().all(|&byte| byte == wanted), "{engine} {pattern}: {wanted}, not {}", block[0]);
            }
        }
    }
}

#[test]
fn a_replay_that_is_to_be_verified_is_refused() {
    let place = directory();
    succeed(place.path(), &["run", "--name=a", "--ioengine=null", "--rw=write", "--size=64k", "--write_iolog=log"]);
    let said = refused(place.path(), &["run", "--name=b", "--read_iolog=log", "--verify=crc32c"]);
    assert!(said.contains("verify does not check the data of a replay"), "{said}");
}

#[test]
fn randrepeat_0_draws_a_new_sequence_in_every_run() {
    let offsets = |options: &[&str]| {
        let directory = directory();
        let job = ["run", "--name=a", "--ioengine=null", "--rw=randread", "--size=1m", "--write_iolog=log"];
        succeed(directory.path(), &[&job[..], options].concat());
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        let reads = log.lines().filter(|line| line.contains(" read "));
        reads.map(|line| line.split_once(" read ").unwrap().1.to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(offsets(&[]).len(), 256);
    assert_eq!(offsets(&[]), offsets(&[]));
    assert_ne!(offsets(&["--randrepeat=0"]), offsets(&["--randrepeat=0"]));
    // A seed that is given is meant.
    assert_eq!(offsets(&["--randrepeat=0", "--randseed=7"]), offsets(&["--randrepeat=0", "--randseed=7"]));
}

#[test]
fn a_log_is_replayed_on_the_null_engine_without_its_files() {
    let directory = directory();
    let log = "fio version 2 iolog\nfar add\nfar open\nfar read 1048576 4096\nfar write 8192 4096\nfar close\n";
    std::fs::write(directory.path().join("log"), log).unwrap();
    let job = ["run", "--name=a", "--read_iolog=log", "--ioengine=null", "--output-format=json"];
    assert_eq!(counts(&json(&succeed(directory.path(), &job))), (1, 1, 8192));
    assert_eq!(names(directory.path()), ["log"]);
}

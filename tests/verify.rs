//! verify finds a flipped byte, says file, offset, expected and got, and never accuses a storage that did as it was
//! told.

mod common;
use common::*;

#[test]
fn what_was_written_verifies() {
    for kind in ["crc32c", "xxhash", "md5", "sha256"] {
        let directory = directory();
        let verify = format!("--verify={kind}");
        let arguments = ["run", "--name=a", "--rw=randwrite", "--size=1m", "--bs=4k", &verify, "--output-format=json"];
        let result = json(&succeed(directory.path(), &arguments));
        assert_eq!(result["jobs"][0]["write"]["total_ios"], 256, "{kind}");
        assert_eq!(result["jobs"][0]["read"]["total_ios"], 256, "{kind}: every block is read back");
    }
}

#[test]
fn a_flipped_byte_is_found_with_file_offset_expected_and_got() {
    for kind in ["crc32c", "xxhash"] {
        let directory = directory();
        let verify = format!("--verify={kind}");
        let job = ["--name=a", "--rw=write", "--size=1m", "--bs=4k", &verify, "--filename=data"];
        succeed(directory.path(), &[&["run"], &job[..]].concat());
        succeed(directory.path(), &[&["run"], &job[..], &["--verify_only"]].concat());

        let path = directory.path().join("data");
        let mut bytes = std::fs::read(&path).unwrap();
        let flipped = 40 * 4096 + 1234;
        bytes[flipped] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();

        let output = run(directory.path(), &[&["run"], &job[..], &["--verify_only"]].concat());
        assert_eq!(output.status.code(), Some(1), "{kind}");
        let said = stdout(&output) + &stderr(&output);
        for word in ["data", &(40 * 4096).to_string(), "expected", "got"] {
            assert!(said.contains(word), "{kind}: no {word:?} in:\n{said}");
        }
    }
}

#[test]
fn in_json_mode_standard_error_says_what_the_number_means() {
    let directory = directory();
    let job = ["--name=a", "--rw=write", "--size=64k", "--bs=4k", "--verify=crc32c", "--filename=data"];
    succeed(directory.path(), &[&["run"], &job[..]].concat());
    let path = directory.path().join("data");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5 * 4096 + 99] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let output = run(directory.path(), &[&["run", "--verify_only", "--output-format=json"], &job[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["jobs"][0]["error"], 84);
    let said = stderr(&output);
    assert!(said.contains("job a") && said.contains(&(5 * 4096).to_string()), "{said}");
}

/// Blocks that are rewritten while others are read back, on real files. The model of the load crate looks further; here
/// every engine shows what it makes of it.
#[test]
fn rewriting_at_depth_raises_no_false_alarm_with_any_engine() {
    let directory = directory();
    let workloads: [&[&str]; 4] = [
        &["--rw=randwrite", "--norandommap", "--iodepth=32", "--verify_backlog=8", "--io_size=1m"],
        &["--rw=randwrite", "--random_distribution=zipf:1.2", "--iodepth=16", "--verify_backlog=4", "--io_size=1m"],
        &["--rw=write", "--io_size=512k", "--iodepth=32", "--verify_backlog=16", "--verify_backlog_batch=8"],
        &["--rw=randtrimwrite", "--nrfiles=2", "--bsrange=1k-8k", "--iodepth=16", "--verify_backlog=4", "--loops=2"],
    ];
    let engines: [&[&str]; 6] = [
        &["--ioengine=psync"],
        &["--ioengine=libaio"],
        &["--ioengine=io_uring"],
        &["--ioengine=guasi"],
        &["--ioengine=psync", "--io_submit_mode=offload"],
        &["--ioengine=io_uring", "--pace=auto:64k"],
    ];
    let mut checked = 0;
    for seed in 1..=3 {
        for engine in engines {
            for workload in workloads {
                let seed = format!("--randseed={seed}");
                let fixed = ["run", "--name=a", "--thread", "--size=256k", "--verify=crc32c", &seed];
                let arguments = [&fixed[..], &["--output-format=json"], engine, workload].concat();
                let output = run(directory.path(), &arguments);
                assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
                checked += json(&output)["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
            }
        }
    }
    assert!(checked > 5000, "{checked} read-backs");
}

#[test]
fn clones_that_write_the_same_blocks_are_not_verified() {
    let directory = directory();
    let job =
        ["run", "--name=a", "--filename=shared", "--size=64k", "--rw=randwrite", "--verify=crc32c", "--numjobs=2"];
    let output = run(directory.path(), &job);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("offset_increment"), "{}", stderr(&output));
    succeed(directory.path(), &[&job[..], &["--offset_increment=64k"]].concat());
    succeed(directory.path(), &[&job[..], &["--do_verify=0"]].concat());
    succeed(directory.path(), &[&job[..], &["--verify=pattern", "--verify_pattern=0xdead"]].concat());
}

/// Each of the three percentages of fio's own test of `trim_percentage`, and what the trims leave in the file.
#[test]
fn written_blocks_are_trimmed_again_and_read_as_zeroes() {
    let common = ["run", "--name=a", "--filename=data", "--size=1m", "--verify=crc32c", "--output-format=json"];
    let total = |result: &serde_json::Value, direction: &str| result["jobs"][0][direction]["total_ios"].as_u64();
    for (engine, percent, backlog) in [("psync", 100, 1), ("libaio", 50, 16), ("io_uring", 25, 0)] {
        for rw in ["write", "randwrite"] {
            let directory = directory();
            let job = [format!("--ioengine={engine}"), format!("--rw={rw}"), format!("--trim_percentage={percent}")];
            let more = ["--iodepth=8".to_owned(), format!("--trim_backlog={backlog}")];
            let words: Vec<&str> = common.into_iter().chain(job.iter().chain(&more).map(String::as_str)).collect();
            let result = json(&succeed(directory.path(), &words));
            let trimmed = 256 * percent / 100;
            assert_eq!(total(&result, "write"), Some(256), "{words:?}");
            assert_eq!(total(&result, "trim"), Some(trimmed), "{words:?}");
            assert_eq!(total(&result, "read"), Some(256), "{words:?}: all is read back, zeroes too");
            let bytes = std::fs::read(directory.path().join("data")).unwrap();
            let zeroes = bytes.chunks(4096).filter(|block| block.iter().all(|&byte| byte == 0)).count();
            assert_eq!(zeroes as u64, trimmed, "{words:?}");

            let unread = json(&succeed(directory.path(), &[&words[..], &["--do_verify=0"]].concat()));
            assert_eq!((total(&unread, "trim"), total(&unread, "read")), (Some(trimmed), Some(0)), "{words:?}");
        }
    }
}

#[test]
fn trims_of_written_blocks_are_refused_where_they_cannot_be() {
    let directory = directory();
    let refused = |words: &[&str], why: &str| {
        let fixed = ["run", "--name=a", "--filename=data", "--size=64k", "--verify=crc32c", "--trim_percentage=10"];
        let output = run(directory.path(), &[&fixed[..], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr(&output).contains(why), "{words:?}: {}", stderr(&output));
        assert!(!directory.path().join("data").exists(), "{words:?}");
    };
    refused(&["--rw=read", "--trim_backlog=1", "--readonly"], "--readonly forbids");
    refused(&["--rw=write", "--verify_only"], "cannot tell which blocks an earlier run with trim_percentage trimmed");
}

/// The second run asks for the blocks of the first, whatever their jobs are called, also where both skip blocks.
#[test]
fn a_part_of_the_blocks_is_verified_under_another_name() {
    for part in [&["--number_ios=64"][..], &["--io_size=256k"], &["--norandommap", "--loops=2"]] {
        let directory = directory();
        let shared = ["--filename=data", "--size=1m", "--bs=4k", "--verify=crc32c"];
        let job = |words: &[&str]| succeed(directory.path(), &[&["run"], words, &shared, part].concat());
        job(&["--name=writes", "--rw=randwrite", "--do_verify=0"]);
        job(&["--name=reads", "--rw=randread"]);
        job(&["--name=looks", "--rw=randwrite", "--verify_only"]);
    }
}

/// As in fio: an engine that stores no data is not accused of wrong data.
#[test]
fn an_engine_without_content_is_read_back_and_not_compared() {
    let directory = directory();
    let job = ["run", "--name=a", "--size=64k", "--rw=randwrite", "--verify=crc32c", "--output-format=json"];
    for engine in ["null", "falloc", "ftruncate"] {
        for more in [&[][..], &["--verify_backlog=4"], &["--trim_percentage=50"], &["--verify_only"], &["--rw=read"]] {
            let engine = format!("--ioengine={engine}");
            if (engine.ends_with("ftruncate") || engine.ends_with("falloc")) && more.contains(&"--rw=read") {
                continue; // ftruncate has no reads; falloc reads only what is there
            }
            if engine.ends_with("ftruncate") && more.contains(&"--trim_percentage=50") {
                continue; // nor trims
            }
            let output = run(directory.path(), &[&job[..], &[&engine], more].concat());
            assert!(output.status.success(), "{engine} {more:?}: {}", stderr(&output));
            assert_eq!(json(&output)["jobs"][0]["read"]["total_ios"], 16, "{engine} {more:?}");
            assert!(stderr(&output).contains("verify compares nothing"), "{engine} {more:?}: {}", stderr(&output));
        }
    }
    for engine in ["--ioengine=filecreate", "--ioengine=filedelete"] {
        succeed(directory.path(), &[&job[..], &[engine]].concat());
    }
}

#[test]
fn verify_only_changes_nothing_and_reads_a_rewritten_block_once() {
    let directory = directory();
    let job = ["run", "--name=a", "--filename=data", "--size=64k", "--verify=crc32c", "--output-format=json"];
    let rewrite = [&job[..], &["--rw=randwrite", "--norandommap", "--io_size=256k", "--bsrange=1k-8k"]].concat();
    succeed(directory.path(), &rewrite);
    let before = std::fs::read(directory.path().join("data")).unwrap();
    let result = json(&succeed(directory.path(), &[&rewrite[..], &["--verify_only"]].concat()));
    assert!(result["jobs"][0]["read"]["io_bytes"].as_u64().unwrap() <= 64 << 10, "more than the file has");
    assert!(result["jobs"][0]["read"]["total_ios"].as_u64().unwrap() > 8);
    assert_eq!(result["jobs"][0]["write"]["total_ios"], 0);

    let trims = [&job[..], &["--rw=trimwrite", "--verify_only", "--do_verify=1"]].concat();
    let result = json(&run(directory.path(), &trims));
    assert_eq!(result["jobs"][0]["trim"]["total_ios"], 0);
    assert_eq!(std::fs::read(directory.path().join("data")).unwrap(), before, "verify_only trimmed the data");
}

/// `%o` in a pattern is the offset of the interval that it stands in, behind a header and without one.
#[test]
fn a_pattern_that_begins_anew_in_each_interval_is_checked_in_each() {
    for kind in ["pattern", "pattern_hdr"] {
        let directory = directory();
        let verify = format!("--verify={kind}");
        let job = ["--name=a", "--rw=randwrite", "--size=64k", "--bs=4k", "--filename=data", &verify];
        let pattern = ["--verify_pattern=%o", "--verify_pattern_interval=512"];
        let job = [&job[..], &pattern[..]].concat();
        succeed(directory.path(), &[&["run"], &job[..]].concat());
        let path = directory.path().join("data");
        let bytes = std::fs::read(&path).unwrap();
        let at = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
        assert_eq!((at(8192 + 1536), at(8192 + 1536 + 8)), (8192 + 1536, 8192 + 1536), "{kind}");
        for only in ["--verify_only", "--rw=randread"] {
            succeed(directory.path(), &[&["run"], &job[..], &[only]].concat());
        }
        // The block of another place: each of its intervals is wrong, and none differs from its neighbours.
        let mut wrong = bytes.clone();
        wrong.copy_within(0x800..0xa00, 0x3800);
        std::fs::write(&path, &wrong).unwrap();
        let output = run(directory.path(), &[&["run", "--verify_only"], &job[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{kind}: {}", stdout(&output));
        assert!(stdout(&output).contains(&0x3801.to_string()), "{kind}: {}", stdout(&output));
    }
}

/// SHA-2 leaves a part of its field unused: bytes that change there are found, even where the writer is not known.
#[test]
fn bytes_behind_a_short_checksum_are_checked() {
    let directory = directory();
    let job = ["--name=a", "--rw=write", "--size=64k", "--bs=4k", "--filename=data", "--verify=sha512"];
    succeed(directory.path(), &[&["run"], &job[..]].concat());
    let path = directory.path().join("data");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3 * 4096 + 40 + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let output = run(directory.path(), &[&["run", "--verify_only"], &job[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}

/// The blocks that a job has written when it ends early are known from its state file, and no others are checked.
#[test]
fn a_state_file_tells_which_blocks_an_interrupted_job_wrote() {
    let workloads: [&[&str]; 5] = [
        &["--rw=randwrite", "--iodepth=8", "--ioengine=io_uring"],
        &["--rw=randwrite", "--norandommap", "--bsrange=4k-16k", "--nrfiles=2"],
        &["--rw=randrw", "--rwmixread=30"],
        &["--rw=randtrimwrite", "--iodepth=4", "--ioengine=libaio"],
        &["--rw=write", "--randrepeat=0", "--loops=2"],
    ];
    for workload in workloads {
        let directory = directory();
        let job = ["run", "--name=a", "--size=1m", "--bs=4k", "--verify=crc32c", "--output-format=json", "--thread"];
        let job = [&job[..], workload].concat();
        let write = [&job[..], &["--number_ios=100", "--do_verify=0", "--verify_state_save=1"]].concat();
        let written = json(&succeed(directory.path(), &write))["jobs"][0]["write"]["total_ios"].as_u64().unwrap();
        let state = directory.path().join("local-a-0-verify.state");
        assert!(state.exists(), "{workload:?}");

        let load = [&job[..], &["--number_ios=100", "--verify_only", "--verify_state_load=1"]].concat();
        let result = json(&succeed(directory.path(), &load));
        let read = result["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
        assert_eq!(result["jobs"][0]["write"]["total_ios"], 0);
        assert!(read > written / 2 && read <= written, "{workload:?}: {read} of {written} checked");

        // Without the state the checks reach blocks that were never written; with it, every block that is wrong shows.
        for name in std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()) {
            if name != state {
                std::fs::write(&name, vec![0x77; 1 << 20]).unwrap();
            }
        }
        let all = [&load[..], &["--continue_on_error=verify"]].concat();
        let result = json(&run(directory.path(), &all));
        assert_eq!(result["jobs"][0]["total_err"], read, "{workload:?}");
    }
}

#[test]
fn a_run_that_a_trigger_ends_verifies_as_far_as_it_came() {
    for engine in ["io_uring", "psync"] {
        let directory = directory();
        let ioengine = format!("--ioengine={engine}");
        let job = ["run", "--name=a", "--size=8m", "--verify=md5", "--rw=randwrite", "--randrepeat=0", "--thread"];
        let job = [&job[..], &["--iodepth=16", "--rate_iops=500", "--fsync=8", &ioengine]].concat();
        let policy = "--verify_policy=fsynced";
        let trigger = ["--trigger-timeout=1", "--trigger=touch acted", "--do_verify=0", policy];
        succeed(directory.path(), &[&job[..], &trigger].concat());
        assert!(directory.path().join("acted").exists());
        for check in [&["--verify_only", policy][..], &["--verify_only"], &["--rw=randread", policy]] {
            let load = [&job[..], &["--verify_state_load=1", "--output-format=json", "--rate_iops=0"], check].concat();
            let result = json(&succeed(directory.path(), &load));
            let read = result["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
            let whole_syncs = engine != "psync" || read.is_multiple_of(8);
            assert!((8..2048).contains(&read) && whole_syncs, "{engine} {check:?}: {read} read");
        }
    }
}

/// Runtime, rate and `time_based` say when a run ends, and not which blocks it writes.
#[test]
fn a_state_of_a_run_that_ended_by_time_fits_a_job_without_that_time() {
    for (rw, timed, check) in [
        ("--rw=randwrite", &["--runtime=1", "--rate_iops=200", "--time_based"][..], &[][..]),
        ("--rw=write", &["--runtime=1", "--rate_iops=200", "--time_based"], &["--runtime=9"]),
        ("--rw=randwrite", &["--number_ios=100"], &["--runtime=9", "--time_based", "--rate_iops=100000"]),
    ] {
        let directory = directory();
        let job = ["run", "--name=a", "--size=4m", "--verify=crc32c", "--output-format=json", "--thread", rw];
        let save = [&job[..], timed, &["--do_verify=0", "--verify_state_save=1"]].concat();
        let written = json(&succeed(directory.path(), &save))["jobs"][0]["write"]["total_ios"].clone();
        let load = [&job[..], check, &["--verify_only", "--verify_state_load=1"]].concat();
        let result = json(&succeed(directory.path(), &load));
        assert_eq!(result["jobs"][0]["read"]["total_ios"], written, "{rw} {timed:?} {check:?}");
        assert!((1..1024).contains(&written.as_u64().unwrap()), "{written}");
        // Another order is another job still.
        let output = run(directory.path(), &[&load[..], &["--bs=8k"]].concat());
        assert!(!output.status.success(), "{rw}");
    }
}

#[test]
fn a_state_of_another_job_or_a_damaged_one_is_refused() {
    let directory = directory();
    let job = ["run", "--name=a", "--size=64k", "--verify=crc32c", "--aux-path=."];
    let load = ["--verify_only", "--verify_state_load=1"];
    let refused = |edit: &[&str], because: &str| {
        let output = run(directory.path(), &[&job[..], &load, edit].concat());
        let said = stdout(&output) + &stderr(&output);
        assert!(!output.status.success() && said.contains(because), "{edit:?}: {said}");
        output.status.code()
    };
    assert_eq!(refused(&["--rw=write"], "verify_state_save=1"), Some(2), "found before anything runs");
    assert!(!directory.path().join("a.0.0").exists());
    succeed(directory.path(), &[&job[..], &["--rw=write", "--verify_state_save=1"]].concat());
    succeed(directory.path(), &[&job[..], &load, &["--rw=write"]].concat());
    refused(&["--rw=randwrite"], "writes other blocks");
    refused(&["--rw=write", "--bs=8k"], "writes other blocks");
    refused(&["--rw=trimwrite"], "other directions");
    refused(&["--rw=write", "--verify_policy=fsynced"], "not synced");
    let path = directory.path().join("local-a-0-verify.state");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    refused(&["--rw=write"], "damaged");
}

/// Where the order of the writes is not random, fio and Plimsoll load the states of each other.
#[test]
fn states_are_exchanged_with_fio_where_the_order_is_certain() {
    if !has_program("fio") {
        return;
    }
    let directory = directory();
    let job = ["--name=a", "--size=256k", "--bs=4k", "--verify=crc32c", "--rw=write", "--thread"];
    let ours = |more: &[&str]| run(directory.path(), &[&["run"], &job[..], more].concat());
    let fios = |more: &[&str]| {
        std::process::Command::new("fio").args(job).args(more).current_dir(&directory).output().unwrap()
    };
    let (save, load) =
        (["--number_ios=20", "--do_verify=0", "--verify_state_save=1"], ["--verify_only", "--verify_state_load=1"]);
    assert!(fios(&save).status.success());
    let output = ours(&[&load[..], &["--output-format=json"]].concat());
    assert_eq!(json(&output)["jobs"][0]["read"]["total_ios"], 20, "{}", stderr(&output));
    std::fs::remove_file(directory.path().join("a.0.0")).unwrap();
    assert!(ours(&save).status.success());
    let output = fios(&load);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));

    let random = ["--rw=randwrite"];
    assert!(fios(&[&save[..], &random].concat()).status.success());
    let output = ours(&[&load[..], &random].concat());
    assert!(!output.status.success() && stdout(&output).contains("random order"), "{}", stdout(&output));
    assert!(fios(&["--rw=randwrite", "--do_verify=0"]).status.success());
    assert!(ours(&[&load[..], &random].concat()).status.success(), "all blocks are written, in whatever order");
    // As many writes as the pass has, and not all blocks.
    for part in [&["--norandommap"][..], &["--io_size=64k"]] {
        std::fs::remove_file(directory.path().join("a.0.0")).unwrap();
        assert!(fios(&[&["--rw=randwrite", "--do_verify=0"], part].concat()).status.success());
        let output = ours(&[&load[..], &random, part].concat());
        assert!(!output.status.success() && stdout(&output).contains("random order"), "{part:?}: {}", stdout(&output));
    }
}

/// A job that tolerates mismatches reads on and counts them; `verify_fatal` ends it at the first one.
#[test]
fn verify_fatal_ends_a_job_that_tolerates_mismatches() {
    let place = directory();
    let job = ["run", "--name=j", "--size=64k", "--filename=data", "--verify=crc32c", "--output-format=json"];
    succeed(place.path(), &[&job[..], &["--rw=write", "--do_verify=0"]].concat());
    let data = place.path().join("data");
    let mut bytes = std::fs::read(&data).unwrap();
    (bytes[5000], bytes[30_000]) = (!bytes[5000], !bytes[30_000]);
    std::fs::write(&data, bytes).unwrap();
    let ends = |fatal: &str| {
        let output = run(place.path(), &[&job[..], &["--rw=read", "--continue_on_error=verify", fatal]].concat());
        (output.status.code(), json(&output)["jobs"][0]["read"]["total_ios"].as_u64().unwrap())
    };
    assert_eq!(ends("--verify_fatal=0").1, 16);
    let (status, blocks) = ends("--verify_fatal=1");
    assert_eq!(status, Some(1));
    assert_eq!(blocks, 2, "the second block is the first wrong one");
}

/// Zones of a file (`zonemode=zbd`): every write is at the write pointer of its zone, a zone is written again only from
/// its start and only when it is full, and everything that was written verifies.
#[test]
fn writes_to_emulated_zones_are_at_their_write_pointers() {
    const ZONE: u64 = 256 << 10;
    let zones = ["--zonemode=zbd", "--zonesize=256k", "--filename=z", "--size=1m", "--output-format=json"];
    for (options, wanted, capacity) in [
        ("--rw=write --bs=16k --verify=crc32c", 4 * ZONE, ZONE),
        ("--rw=randwrite --bs=16k --verify=md5 --zonecapacity=192k --loops=2", 6 * ZONE, 3 * ZONE / 4),
        ("--rw=randwrite --bsrange=4k-64k --verify=crc32c --ioengine=libaio --iodepth=16", 4 * ZONE, ZONE),
        ("--rw=randwrite --bs=16k --verify=crc32c --max_open_zones=2 --ioengine=io_uring --iodepth=8", 4 * ZONE, ZONE),
        (
            "--rw=randwrite --bs=4k --zonecapacity=192k --io_size=3z --ioengine=libaio --iodepth=4",
            3 * ZONE,
            3 * ZONE / 4,
        ),
        ("--rw=randrw --bs=8k --verify=crc32c --verify_backlog=4 --rwmixread=30", 0, ZONE),
    ] {
        let directory = directory();
        let words: Vec<&str> = options.split(' ').collect();
        let arguments = [&["run", "--name=a", "--write_iolog=log"], &zones[..], &words].concat();
        let result = json(&succeed(directory.path(), &arguments));
        let written = result["jobs"][0]["write"]["io_bytes"].as_u64().unwrap();
        assert!(written == wanted || wanted == 0, "{options}: {written} bytes");
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        let mut pointers: Vec<u64> = (0..4).map(|zone| zone * ZONE).collect();
        let verifies = options.contains("verify");
        let writes = log.lines().filter_map(|line| line.split_once(" write ")).map(|(_, place)| place);
        for (offset, len) in writes.map(|place| place.split_once(' ').unwrap()) {
            let (offset, len): (u64, u64) = (offset.parse().unwrap(), len.parse().unwrap());
            let (zone, start) = ((offset / ZONE) as usize, offset / ZONE * ZONE);
            // Under verify=, each pass resets all zones at its begin.
            let may_reset = offset == start && (verifies || pointers[zone] == start + capacity);
            assert!(offset == pointers[zone] || may_reset, "{options}: {offset} at {}", pointers[zone]);
            assert!(offset + len <= start + capacity, "{options}: beyond the capacity");
            pointers[zone] = offset + len;
        }
    }
    let directory = directory();
    let refusal = refused(
        directory.path(),
        &[&["run", "--name=a", "--rw=write", "--bs=96k", "--verify=md5"], &zones[..]].concat(),
    );
    assert!(refusal.contains("block size 98304 is not a divisor of the zone size 262144"), "{refusal}");
}

/// fio writes until the time is over, and verifies nothing.
#[test]
fn each_whole_pass_of_a_time_based_job_is_verified() {
    let directory = directory();
    let job = ["run", "--name=a", "--rw=write", "--size=8k", "--bs=4k", "--verify=crc32c", "--output-format=json"];
    let output = succeed(directory.path(), &[&job[..], &["--time_based=1", "--runtime=1"]].concat());
    let result = json(&output);
    let ops = |direction: &str| result["jobs"][0][direction]["total_ios"].as_u64().unwrap();
    let (reads, writes) = (ops("read"), ops("write"));
    assert!(reads > 0 && reads <= writes && writes - reads <= 3, "{reads} reads, {writes} writes");
    assert!(stderr(&output).contains("verifies a pass over its files only if"), "{}", stderr(&output));
}

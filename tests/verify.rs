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

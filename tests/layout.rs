//! The files that a job makes, and the part of them that it uses: as fio does.

mod common;
use common::*;
use std::collections::BTreeMap;
use std::path::Path;

fn sizes(directory: &Path) -> BTreeMap<String, u64> {
    let size = |name: String| (name.clone(), std::fs::metadata(directory.join(name)).unwrap().len());
    names(directory).into_iter().map(size).collect()
}

#[test]
fn create_only_makes_the_files_and_moves_nothing() {
    let directory = directory();
    let job = ["run", "--name=a", "--rw=read", "--size=1m", "--nrfiles=2", "--create_only=1", "--output-format=json"];
    let result = json(&succeed(directory.path(), &job));
    assert_eq!(result["jobs"][0]["read"]["total_ios"], 0);
    let made = sizes(directory.path());
    assert_eq!(made, [("a.0.0".to_string(), 512 << 10), ("a.0.1".to_string(), 512 << 10)].into());
    // A file that is there is taken as it is: the content is not written again.
    let before = std::fs::read(directory.path().join("a.0.0")).unwrap();
    let without = [&job[..5], &["--output-format=json"]].concat();
    assert_eq!(json(&succeed(directory.path(), &without))["jobs"][0]["read"]["total_ios"], 256);
    assert_eq!(std::fs::read(directory.path().join("a.0.0")).unwrap(), before);
}

/// The files of a plan are made job by job: a job takes its size from the file of a job before it, as in fio.
#[test]
fn a_job_without_size_takes_the_file_of_the_job_before() {
    for (more, runs) in [("", true), ("overwrite=1", true), ("fallocate=truncate", true), ("fallocate=none", false)] {
        let directory = directory();
        let write = format!("[w]\nfilename=f\nrw=write\nsize=64k\n{more}\n");
        let read = "[r]\nfilename=f\nrw=read\n";
        file(directory.path(), "after.fio", format!("{write}{read}"));
        let run = |name: &str| plimsoll(directory.path()).args(["run", name, "--output-format=json"]).output().unwrap();
        let output = run("after.fio");
        assert_eq!(output.status.success(), runs, "{more}: {}", stderr(&output));
        if runs {
            assert_eq!(json(&output)["jobs"][1]["read"]["io_bytes"], 64 << 10, "{more}");
            std::fs::remove_file(directory.path().join("f")).unwrap();
        }
        // The job before it has nothing to take, and nothing is left of a run that is refused.
        file(directory.path(), "before.fio", format!("{read}{write}"));
        assert_eq!(run("before.fio").status.code(), Some(2), "{more}");
        assert_eq!(names(directory.path()), ["after.fio", "before.fio"]);
    }
}

#[test]
fn files_and_bytes_are_those_of_fio() {
    if !has_program("fio") {
        return;
    }
    let jobs: [&[&str]; 7] = [
        &["--rw=read", "--size=1m", "--filesize=4m"],
        &["--rw=randwrite", "--size=1m", "--filesize=4m", "--offset=1m"],
        &["--rw=read", "--size=2m", "--nrfiles=4", "--filesize=256k"],
        &["--rw=write", "--size=1m", "--nrfiles=4", "--file_service_type=sequential"],
        &["--rw=read", "--size=4m", "--offset=1m", "--io_size=6m"],
        &["--rw=write", "--size=1m", "--create_only=1", "--numjobs=2"],
        &["--rw=write", "--size=1m", "--io_size=512k", "--fallocate=none"],
    ];
    for options in jobs {
        let (here, there) = (directory(), directory());
        let arguments = [&["--output-format=json", "--name=a", "--bs=64k"], options].concat();
        let ours = json(&succeed(here.path(), &[&["run"], &arguments[..]].concat()));
        let theirs: serde_json::Value =
            serde_json::from_str(&tool("fio", &arguments, there.path())).expect("fio's JSON");
        assert_eq!(sizes(here.path()), sizes(there.path()), "{options:?}");
        for direction in ["read", "write"] {
            for figure in ["total_ios", "io_bytes"] {
                let figure = |result: &serde_json::Value| result["jobs"][0][direction][figure].clone();
                assert_eq!(figure(&ours), figure(&theirs), "{options:?}");
            }
        }
    }
}

/// Zeros would measure a drive or file system that stores none of them.
#[test]
fn a_file_to_read_holds_data_as_the_job_would_write_them() {
    let directory = directory();
    let job = ["run", "--rw=read", "--size=3m", "--bs=12k", "--create_only=1"];
    for (name, option) in
        [("default", "--thread=1"), ("alike", "--scramble_buffers=0"), ("fresh", "--refill_buffers=1")]
    {
        succeed(directory.path(), &[&job[..], &[&format!("--name={name}"), option]].concat());
        let bytes = std::fs::read(directory.path().join(format!("{name}.0.0"))).unwrap();
        // Of random bytes, one in 256 is zero.
        let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
        assert!(zeros < bytes.len() / 200, "{name}: {zeros} of {}", bytes.len());
        let sectors: std::collections::HashSet<&[u8]> = bytes.chunks(512).collect();
        assert_eq!(sectors.len(), bytes.len() / 512, "{name}");
    }
    if !has_program("fio") {
        return;
    }
    let there = common::directory();
    let names: [(&str, &[&str]); 4] = [
        ("zeros", &["--zero_buffers=1"]),
        ("pattern", &["--buffer_pattern=0xdeadbeef"]),
        ("odd", &["--buffer_pattern=\"abcdefg\""]),
        ("overwritten", &["--buffer_pattern=\"abcdefg\"", "--rw=write", "--overwrite=1", "--io_size=12k"]),
    ];
    for (name, options) in names {
        let flag = format!("--name={name}");
        let arguments = [&job[1..], &[&flag], options].concat();
        succeed(directory.path(), &[&["run"], &arguments[..]].concat());
        tool("fio", &arguments, there.path());
        let read = |place: &Path| std::fs::read(place.join(format!("{name}.0.0"))).unwrap();
        assert!(read(directory.path()) == read(there.path()), "{name}");
    }
}

/// fio's examples/surface-scan.fio on a file: the second job takes its size from what the first has written.
#[test]
fn a_job_may_take_its_size_from_what_an_earlier_job_will_write() {
    let directory = directory();
    let write = ["run", "--output-format=json", "--verify=crc32c", "--filename=data", "--fallocate=none", "--name=w"];
    let write = [&write[..], &["--rw=write", "--size=1m", "--do_verify=0"]].concat();
    let result = json(&succeed(directory.path(), &[&write[..], &["--name=r", "--stonewall", "--rw=read"]].concat()));
    assert_eq!(result["jobs"][1]["read"]["io_bytes"], 1 << 20);
    assert_eq!(names(directory.path()), ["data"]);

    // Without a stonewall both begin at once, and nobody knows what the second is to read.
    let directory = common::directory();
    let text = refused(directory.path(), &[&write[..], &["--name=r", "--rw=read"]].concat());
    assert!(text.contains("give size="), "{text}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn new_files_have_the_permissions_of_fios() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory();
    let mode = |option: &str| {
        let program = env!("CARGO_BIN_EXE_plimsoll");
        let line = format!("umask 0; exec {program} run --name=a --rw=write --size=64k --filename=new {option}");
        tool("sh", &["-c", &line], directory.path());
        let path = directory.path().join("new");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        std::fs::remove_file(path).unwrap();
        mode
    };
    assert_eq!(mode(""), 0o644);
    assert_eq!(mode("--create_on_open=1"), 0o600);
}

/// As with fio: what an asynchronous read at the end of a file brings is short, for a synchronous one it is a failure.
#[test]
fn the_end_of_a_file_makes_an_asynchronous_read_short() {
    let directory = directory();
    let job = ["run", "--name=a", "--rw=read", "--size=16k", "--filename=short", "--create_on_open=1"];
    let job = [&job[..], &["--output-format=json", "--iodepth=2"]].concat();
    std::fs::write(directory.path().join("short"), vec![1; 10_000]).unwrap();
    for engine in ["--ioengine=libaio", "--ioengine=io_uring", "--ioengine=guasi"] {
        let result = json(&succeed(directory.path(), &[&job[..], &[engine]].concat()));
        let read = &result["jobs"][0]["read"];
        assert_eq!((read["io_bytes"].as_u64(), read["total_ios"].as_u64()), (Some(10_000), Some(4)), "{engine}");
        assert_eq!(read["short_ios"], 2, "{engine}");
    }
    for wrong in [&["--ioengine=psync"][..], &["--ioengine=libaio", "--verify=crc32c"]] {
        assert_eq!(run(directory.path(), &[&job[..], wrong].concat()).status.code(), Some(1), "{wrong:?}");
    }
}

/// `fill_device` ends where the storage is full, whatever was free at the start, and `size=` still bounds the job.
#[test]
fn a_job_fills_the_file_system_until_it_is_full() {
    const MIB: u64 = 1 << 20;
    let Some(disk) = Mount::new("tmpfs", "size=8m") else { return };
    let place = disk.path();
    let bytes =
        |result: &serde_json::Value, direction: &str| result["jobs"][0][direction]["io_bytes"].as_u64().unwrap();
    let cases: [(&[&str], &str, u64); 8] = [
        (&["--rw=write"], "write", 8 * MIB),
        (&["--rw=write", "--nrfiles=3"], "write", 8 * MIB),
        (&["--rw=write", "--ioengine=io_uring", "--iodepth=8"], "write", 8 * MIB),
        (&["--rw=write", "--loops=2"], "write", 8 * MIB),
        (&["--rw=write", "--verify=crc32c"], "read", 8 * MIB),
        (&["--rw=read"], "read", 8 * MIB),
        (&["--rw=write", "--size=2m"], "write", 2 * MIB),
        (&["--rw=write", "--filesize=1m", "--nrfiles=2"], "write", 2 * MIB),
    ];
    for (options, direction, expected) in cases {
        let job = ["run", "--output-format=json", "--name=a", "--bs=64k", "--fill_device=1"];
        let result = json(&succeed(place, &[&job[..], options].concat()));
        assert_eq!(bytes(&result, direction), expected, "{options:?}");
        for name in names(place) {
            std::fs::remove_file(place.join(name)).unwrap();
        }
    }
    // The file that is there already takes no room again: the job writes over it, and on to the end.
    std::fs::write(place.join("data"), vec![1; 5 << 20]).unwrap();
    let job = ["--output-format=json", "--name=a", "--bs=64k", "--fill_device=1", "--rw=write", "--filename=data"];
    let ours = json(&succeed(place, &[&["run"], &job[..]].concat()));
    assert_eq!((bytes(&ours, "write"), std::fs::metadata(place.join("data")).unwrap().len()), (8 * MIB, 8 * MIB));
    // Random offsets: every block that there is room for.
    std::fs::remove_file(place.join("data")).unwrap();
    let random = ["run", "--output-format=json", "--name=a", "--bs=64k", "--fill_device=1", "--rw=randwrite"];
    assert_eq!(bytes(&json(&succeed(place, &random)), "write"), 8 * MIB);
}

/// Where an estimate says that the space will not do, the run says so once, and ENOSPC decides.
#[test]
fn files_that_are_larger_than_the_space_are_a_warning() {
    let Some(disk) = Mount::new("tmpfs", "size=4m") else { return };
    let job = ["run", "--name=a", "--rw=randwrite", "--fallocate=none", "--number_ios=8"];
    let said = |more: &[&str]| {
        let output = succeed(disk.path(), &[&job[..], more].concat());
        std::fs::remove_file(disk.path().join("a.0.0")).unwrap();
        stderr(&output)
    };
    let warning = "may take 1099511627776 bytes";
    assert_eq!(said(&["--size=1T", "--norandommap"]).matches(warning).count(), 1);
    assert_eq!(said(&["--size=1T", "--norandommap", "--io_size=1m"]), "");
    assert_eq!(said(&["--size=1T", "--norandommap", "--ignore_error=,ENOSPC"]), "");
    assert_eq!(said(&["--size=1m"]), "");
    // A job that reads a file as it is makes none: the space does not matter.
    let file = std::fs::File::create(disk.path().join("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let sparse = ["run", "--name=a", "--rw=randread", "--filename=sparse", "--number_ios=8", "--norandommap"];
    assert_eq!(stderr(&succeed(disk.path(), &sparse)), "");
    let open = ["run", "--name=b", "--rw=read", "--size=8m", "--create_on_open=1", "--filename=sparse"];
    assert_eq!(stderr(&succeed(disk.path(), &open)), "");
}

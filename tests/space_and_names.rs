//! The engines that move no data: `falloc` and `ftruncate` change the space of files, `filecreate` and its like call on
//! names.

mod common;
use common::*;
use std::os::unix::fs::MetadataExt;

/// Ops of the job that these words describe, and the number of its clat samples.
fn ops(directory: &std::path::Path, words: &[&str]) -> (u64, u64) {
    let result = json(&succeed(directory, &[&["run", "--output-format=json", "--name=j"], words].concat()));
    let read = &result["jobs"][0]["read"];
    (read["total_ios"].as_u64().unwrap(), read["clat_ns"]["N"].as_u64().unwrap())
}

#[test]
fn each_name_gets_one_call() {
    let directory = directory();
    let place = directory.path();
    for (create, look, remove) in [("filecreate", "filestat", "filedelete"), ("dircreate", "dirstat", "dirdelete")] {
        let files = ["--nrfiles=20", "--filesize=64k", "--bs=4k", "--filename_format=f.$filenum"];
        let with = |engine: &str, more: &[&str]| {
            let engine = format!("--ioengine={engine}");
            ops(place, &[&[engine.as_str()], &files[..], more].concat())
        };
        assert_eq!(with(create, &[]), (20, 20), "{create}");
        assert_eq!(names(place).len(), 20, "{create}");
        assert_eq!(place.join("f.7").is_dir(), create == "dircreate");
        for call in ["stat", "lstat", "statx"] {
            assert_eq!(with(look, &[&format!("--stat_type={call}"), "--loops=3"]), (60, 60), "{look}");
        }
        assert_eq!(with(remove, &[]), (20, 20), "{remove}");
        assert!(names(place).is_empty(), "{remove}");
        // The engine makes missing names before the clock starts, as fio lays files out.
        assert_eq!(with(look, &[]), (20, 20), "{look}");
        assert_eq!(with(remove, &[]), (20, 20), "{remove}");
        assert!(names(place).is_empty(), "{remove}");
    }
}

#[test]
fn a_name_of_another_kind_and_a_read_only_run_are_left_alone() {
    let directory = directory();
    let place = directory.path();
    std::fs::create_dir(place.join("d")).unwrap();
    std::fs::write(place.join("f"), "kept").unwrap();
    for (engine, name) in [("filedelete", "d"), ("filedelete", "/dev/null"), ("dirdelete", "f"), ("filestat", "d")] {
        let words = ["run", "--name=j", &format!("--ioengine={engine}"), &format!("--filename={name}")];
        let output = run(place, &words);
        let said = stdout(&output) + &stderr(&output);
        assert!(!output.status.success() && said.contains("this engine takes no other name"), "{said}");
    }
    let output = run(place, &["run", "--readonly", "--name=j", "--ioengine=filedelete", "--filename=f"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read(place.join("f")).unwrap(), b"kept");
}

#[test]
fn space_is_reserved_freed_and_cut() {
    let directory = directory();
    let place = directory.path();
    let file = place.join("f");
    let job = ["run", "--name=j", "--filename=f", "--bs=64k", "--size=1m", "--ioengine=falloc", "--fallocate=none"];
    std::fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    succeed(place, &[&job[..], &["--rw=write"]].concat());
    let allocated = || std::fs::metadata(&file).unwrap().blocks() * 512;
    assert!(allocated() >= 1 << 20, "{} bytes", allocated());
    succeed(place, &[&job[..], &["--rw=trim"]].concat());
    assert!(allocated() < 1 << 16, "{} bytes", allocated());
    succeed(place, &[&job[..], &["--rw=read"]].concat());
    assert!(allocated() >= 1 << 20, "a read reserves too: {} bytes", allocated());

    let job = ["run", "--name=j", "--filename=f", "--bs=64k", "--size=1m", "--ioengine=ftruncate"];
    succeed(place, &[&job[..], &["--rw=write"]].concat());
    assert_eq!(std::fs::metadata(&file).unwrap().len(), (1 << 20) - (64 << 10), "the offset of the last write");
    let output = run(place, &[&job[..], &["--rw=read"]].concat());
    assert!(
        !output.status.success() && stderr(&output).contains("only writes") || stdout(&output).contains("only writes")
    );
}

/// A mapping does not make its file longer, so the file has its length before the first write.
#[test]
fn mapped_files_are_written_whatever_reserves_their_space() {
    let directory = directory();
    for fallocate in ["none", "keep", "truncate", "native"] {
        let (name, option) = (format!("--name={fallocate}"), format!("--fallocate={fallocate}"));
        let job = ["run", &name, "--ioengine=mmap", "--rw=write", "--bs=4k", "--size=64k", "--verify=crc32c", &option];
        succeed(directory.path(), &job);
        assert_eq!(std::fs::metadata(directory.path().join(format!("{fallocate}.0.0"))).unwrap().len(), 64 << 10);
    }
}

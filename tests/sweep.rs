//! The README's command, on a small scale: a scratch file, a curve, a load line, files that are named, nothing left.

mod common;
use common::*;

const SMALL: [&str; 4] = ["sweep", "--iodepth=1,2,8", "--time=2s", "--size=16m"];

#[test]
fn the_sweep_prints_the_curve_and_leaves_results_a_report_and_nothing_else() {
    let directory = directory();
    let output = succeed(directory.path(), &SMALL);
    let text = stdout(&output).to_lowercase();
    for word in ["depth", "iops", "p99", "plateau", "load line"] {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
    assert_eq!(names(directory.path()), ["plimsoll-sweep-1.html", "plimsoll-sweep-1.json"], "the scratch file is gone");
    assert!(stderr(&output).contains("plimsoll-sweep-1.json") && stderr(&output).contains("plimsoll-sweep-1.html"));

    let result = json_file(&directory.path().join("plimsoll-sweep-1.json"));
    assert_eq!(result["kind"], "sweep");
    let points = result["curves"][0]["points"].as_array().unwrap();
    let depths: Vec<f64> = points.iter().map(|point| point["x"].as_f64().unwrap()).collect();
    assert_eq!(depths, [1.0, 2.0, 8.0]);
    for point in points {
        let estimate = |end: &str| point["iops"][end].as_f64().unwrap();
        assert!(
            estimate("low") >= 0.0
                && estimate("mean") > 0.0
                && estimate("low") <= estimate("mean")
                && estimate("mean") <= estimate("high"),
            "{}",
            point["iops"]
        );
        assert!(!point["samples"].as_array().unwrap().is_empty());
    }
    assert!(result["ceiling_iops"]["mean"].as_f64().unwrap() > 0.0);
    assert!(!result["advice"].as_str().unwrap().is_empty());
    assert_eq!(result["ended"], "complete");
    assert_eq!(result["provenance"]["command"][1], "sweep");

    succeed(directory.path(), &SMALL);
    assert_eq!(names(directory.path()).len(), 4, "earlier results are not overwritten");
}

#[test]
fn json_goes_to_standard_output_alone() {
    let directory = directory();
    let arguments = [&SMALL[..], &["--json"]].concat();
    let result = json(&succeed(directory.path(), &arguments));
    assert_eq!(result["kind"], "sweep");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn engines_stand_side_by_side() {
    let directory = directory();
    let result = json(&succeed(directory.path(), &[&SMALL[..], &["--engine=psync,null", "--json"]].concat()));
    let curves = result["curves"].as_array().unwrap();
    let labels: Vec<&str> = curves.iter().map(|curve| curve["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["psync", "null"]);
    // The depth of a synchronous engine is its threads.
    let deepest = &curves[0]["points"][2]["job"];
    assert_eq!((&deepest["facts"]["iodepth"], &deepest["clones"]), (&1.into(), &8.into()));
}

#[test]
fn a_file_is_read_and_not_changed() {
    let directory = directory();
    let content: Vec<u8> = (0..4 << 20).map(|at: u32| (at >> 12) as u8).collect();
    let path = file(directory.path(), "data", &content);
    let arguments = ["sweep", "data", "--iodepth=1,2,4", "--time=2s", "--bs", "8k", "--json"];
    let result = json(&succeed(directory.path(), &arguments));
    assert_eq!(result["target"], "data");
    let job = &result["curves"][0]["points"][0]["job"];
    let (bytes, ops) = (&job["directions"]["read"]["bytes"], &job["directions"]["read"]["ops"]);
    assert_eq!(bytes.as_u64().unwrap(), ops.as_u64().unwrap() * 8192);
    assert!(std::fs::read(path).unwrap() == content);
}

#[test]
fn a_file_that_is_shorter_than_the_size_is_not_extended() {
    let directory = directory();
    let path = file(directory.path(), "data", vec![7; 1 << 20]);
    for more in [&["--size=2m"][..], &["--offset=512k", "--size=1m"], &["--filesize=2m"]] {
        for target in ["data", "--filename=data"] {
            let always = ["sweep", target, "--iodepth=1", "--time=1s", "--no-files"];
            let said = refused(directory.path(), &[&always[..], more].concat());
            assert!(said.contains("beyond the end, 1048576 bytes, of data"), "{said}");
            assert!(said.contains("--allow-writes"), "{said}");
            assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20], "{more:?}");
        }
    }
    let part = ["sweep", "data", "--offset=512k", "--size=512k", "--iodepth=1", "--time=1s", "--no-files"];
    succeed(directory.path(), &part);
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
}

#[test]
fn writes_to_what_was_there_before_need_permission() {
    let directory = directory();
    let path = file(directory.path(), "data", vec![7; 1 << 20]);
    let line = refused(directory.path(), &["sweep", "data", "--rw=randwrite"]);
    assert!(line.contains("data") && line.contains("--allow-writes"), "{line}");
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 7));

    let arguments = ["sweep", "data", "--rw=randwrite", "--allow-writes", "--iodepth=1,2,4", "--time=2s", "--json"];
    let result = json(&succeed(directory.path(), &arguments));
    assert!(result["curves"][0]["points"][0]["job"]["directions"]["write"]["ops"].as_u64().unwrap() > 0);
    assert!(std::fs::read(&path).unwrap().iter().any(|&byte| byte != 7));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
}

/// fio's habit: the job file stands where the target would. The job's files are the targets, and all of them are read.
#[test]
fn a_job_file_gives_the_workload() {
    let directory = directory();
    for name in ["a", "b"] {
        file(directory.path(), name, vec![7; 4 << 20]);
    }
    let text = "[global]\nbs=8k\niodepth=32\nruntime=60\n[load]\nfilename=a:b\nrw=randread\nioengine=psync\n";
    file(directory.path(), "x.fio", text);
    let output = succeed(directory.path(), &["sweep", "x.fio", "--iodepth=1,2,4", "--time=2s", "--bs=16k", "--json"]);
    let said = stderr(&output);
    assert!(said.contains("iodepth=32, runtime=60"), "{said}");
    let result = json(&output);
    assert_eq!(result["target"], "a, b");
    let job = &result["curves"][0]["points"][0]["job"];
    let facts = &job["facts"];
    assert_eq!((&facts["engine"], &facts["target_bytes"]), (&"psync".into(), &(8 << 20).into()), "{facts}");
    let read = &job["directions"]["read"];
    assert_eq!(read["bytes"].as_u64().unwrap(), read["ops"].as_u64().unwrap() * 16384);

    file(directory.path(), "y.fio", "[load]\nfilename=a\nrw=randwrite\n");
    let line = refused(directory.path(), &["sweep", "y.fio"]);
    assert!(line.contains("refused to write to a "), "{line}");
}

#[test]
fn what_cannot_be_swept_is_one_line() {
    let directory = directory();
    file(directory.path(), "empty", "");
    file(directory.path(), "two.fio", "[a]\nrw=read\n[b]\nrw=read\n");
    for (arguments, words) in [
        (&["sweep", "missing"][..], &["missing", "No such file"][..]),
        (&["sweep", "empty"], &["empty"]),
        (&["sweep", "/dev/tty"], &["/dev/tty", "neither"]),
        (&["sweep", "--engine=warp"], &["warp", "io_uring"]),
        (&["sweep", "--bs=4q"], &["4q"]),
        (&["sweep", "--no-such-option=1"], &["no-such-option"]),
        (&["sweep", "--bond=1%"], &["--bond", "did you mean --bound?"]),
        (&["sweep", "empty", "--filename=other"], &["empty", "other"]),
        (&["sweep", "two.fio"], &["two.fio", "a, b"]),
    ] {
        let line = refused(directory.path(), arguments);
        assert!(words.iter().all(|word| line.contains(word)), "{arguments:?}: {line}");
        assert_eq!(names(directory.path()), ["empty", "two.fio"], "{arguments:?} left something behind");
    }
}

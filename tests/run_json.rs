//! `--output-format=json` is fio's: the same keys, the same types, the same counts; standard output has nothing else.

mod common;
use common::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Every path through a value, with the type found there; indices and percentiles count as one.
fn shape(value: &Value) -> BTreeMap<String, &'static str> {
    fn walk(value: &Value, path: String, shape: &mut BTreeMap<String, &'static str>) {
        let kind = match value {
            Value::Object(members) => {
                for (name, member) in members {
                    walk(member, format!("{path}/{name}"), shape);
                }
                "object"
            }
            Value::Array(elements) => {
                elements.iter().for_each(|element| walk(element, format!("{path}[]"), shape));
                "array"
            }
            Value::Number(number) if number.is_f64() => "float",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            _ => "other",
        };
        shape.insert(path, kind);
    }
    let mut shapes = BTreeMap::new();
    walk(value, String::new(), &mut shapes);
    // Which disks lie below the test's directory, and which latencies fall in which bin, is not the program's doing.
    shapes.retain(|path, _| !path.contains("/disk_util[]"));
    shapes
}

fn both(directory: &Path, options: &[&str]) -> (Value, Value) {
    let ours = json(&succeed(directory, &[&["run", "--output-format=json"], options].concat()));
    let theirs = tool("fio", &[&["--output-format=json"], options].concat(), directory);
    (ours, serde_json::from_str(&theirs).expect("fio's JSON"))
}

/// The keys that fio has since 3.35, and Debian's 3.33 does not know.
const NEWER: [&str; 1] = ["/jobs[]/job_start"];

#[test]
fn keys_types_and_counts_are_those_of_fio() {
    if !has_program("fio") {
        return;
    }
    let jobs: [&[&str]; 5] = [
        &["--name=a", "--rw=randread", "--size=1m", "--bs=4k"],
        &["--name=a", "--rw=write", "--size=1m", "--bs=64k", "--end_fsync=1"],
        &["--name=a", "--rw=randrw", "--size=2m", "--bs=8k", "--ioengine=libaio", "--iodepth=8", "--lat_percentiles=1"],
        &["--name=a", "--rw=read", "--size=1m", "--numjobs=3", "--group_reporting", "--thread"],
        &[
            "--bs=8k",
            "--name=one",
            "--rw=write",
            "--size=512k",
            "--fsync=8",
            "--name=two",
            "--rw=read",
            "--size=1m",
            "--stonewall",
        ],
    ];
    for options in jobs {
        let directory = directory();
        let (ours, theirs) = both(directory.path(), options);
        let (our_shape, their_shape) = (shape(&ours), shape(&theirs));
        for (path, kind) in &their_shape {
            assert_eq!(our_shape.get(path), Some(kind), "{options:?}: {path}");
        }
        for path in our_shape.keys().filter(|path| !NEWER.contains(&path.as_str())) {
            assert!(their_shape.contains_key(path), "{options:?}: {path} is not fio's");
        }
        assert_eq!(ours["global options"], theirs["global options"], "{options:?}");
        let (our_jobs, their_jobs) = (ours["jobs"].as_array().unwrap(), theirs["jobs"].as_array().unwrap());
        assert_eq!(our_jobs.len(), their_jobs.len());
        for (mine, theirs) in our_jobs.iter().zip(their_jobs) {
            for same in ["jobname", "groupid", "error", "job options", "latency_depth"] {
                assert_eq!(mine[same], theirs[same], "{options:?}: {same}");
            }
            // Which op of a mix is a read is drawn at random: there only the sum is the same.
            let mixed = options.contains(&"--rw=randrw");
            let count = |job: &Value, direction: &str, what: &str| job[direction][what].as_u64().unwrap();
            for what in ["io_bytes", "total_ios", "short_ios", "drop_ios"] {
                let counts = |job: &Value| ["read", "write", "trim"].map(|direction| count(job, direction, what));
                let (mine, theirs) = (counts(mine), counts(theirs));
                assert_eq!(mine.iter().sum::<u64>(), theirs.iter().sum::<u64>(), "{options:?}: {what}");
                assert!(mixed || mine == theirs, "{options:?}: {what}: {mine:?}, fio {theirs:?}");
            }
            for direction in ["read", "write", "trim"] {
                assert_eq!(mine[direction]["lat_ns"]["N"], mine[direction]["total_ios"], "{options:?}: {direction}");
            }
            assert_eq!(mine["sync"]["total_ios"], theirs["sync"]["total_ios"], "{options:?}: syncs");
        }
    }
}

#[test]
fn standard_output_is_json_alone_whatever_there_is_to_say() {
    let directory = directory();
    // Two warnings: depth without effect, clones on the same blocks.
    let arguments = ["--name=a", "--rw=read", "--size=256k", "--iodepth=16", "--numjobs=2", "--bs=4KiB"];
    let output = succeed(directory.path(), &[&["run", "--output-format=json"], &arguments[..]].concat());
    assert_eq!(json(&output)["jobs"].as_array().unwrap().len(), 2);
    assert!(stderr(&output).contains("4KiB"), "the trap of fio's units is named: {}", stderr(&output));
}

#[test]
fn our_own_result_is_whole_and_can_be_read_back() {
    let directory = directory();
    let arguments = ["run", "--name=a", "--rw=randread", "--size=1m", "--save=result.json", "--output-format=json"];
    let fio = json(&succeed(directory.path(), &arguments));
    let saved = json_file(&directory.path().join("result.json"));
    assert_eq!(saved["kind"], "run");
    assert_eq!(saved["jobs"][0]["directions"]["read"]["ops"], fio["jobs"][0]["read"]["total_ios"]);
    let again = json(&succeed(directory.path(), &["report", "result.json", "--format=json"]));
    assert_eq!(again, fio, "the saved result gives the same JSON");
}

/// fio's t/strided.py: a zone that spans less than is transferred in it is gone through again.
#[test]
fn a_zone_may_span_less_than_is_transferred_in_it() {
    let directory = directory();
    let job = ["run", "--name=a", "--ioengine=null", "--rw=read", "--bs=4k", "--size=64k", "--write_iolog=log"];
    let zones = ["--zonemode=strided", "--zonesize=8k", "--zonerange=4k", "--io_size=32k", "--threads=1"];
    succeed(directory.path(), &[&job[..], &zones].concat());
    let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
    let offsets: Vec<&str> = log.lines().filter_map(|line| line.split_once(" read ")).map(|line| line.1).collect();
    let of = |zone: u32| format!("{} 4096", zone * 4096);
    assert_eq!(offsets, [of(0), of(0), of(1), of(1), of(2), of(2), of(3), of(3)]);
    assert!(refused(directory.path(), &[&job[..], &zones, &["--zonerange=2k"]].concat()).contains("less than a block"));
}

#[test]
fn a_pattern_file_is_used_whole() {
    let directory = directory();
    let pattern: Vec<u8> = (0..5000u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(directory.path().join("pattern"), &pattern).unwrap();
    let job = ["run", "--name=a", "--rw=write", "--bs=8k", "--size=8k", "--filename=out", "--buffer_pattern='pattern'"];
    succeed(directory.path(), &job);
    let written = std::fs::read(directory.path().join("out")).unwrap();
    assert_eq!((&written[..5000], &written[5000..]), (&pattern[..], &pattern[..3192]));
}

#[test]
fn terse_lists_the_latencies_that_the_job_wants() {
    let directory = directory();
    let job = ["run", "--name=a", "--ioengine=null", "--rw=read", "--size=1m", "--iodepth=16", "--iodepth_batch=16"];
    let job = [&job[..], &["--lat_percentiles=1", "--percentile_list=100", "--output-format=json,terse"]].concat();
    let text = stdout(&succeed(directory.path(), &job));
    let (json, terse) = text.split_once("\n3;").expect("JSON, then terse");
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let slowest_us = json["jobs"][0]["read"]["lat_ns"]["percentile"]["100.000000"].as_u64().unwrap() / 1000;
    assert!(terse.contains(&format!(";100.000000%={slowest_us};")), "{slowest_us} us in {terse}");
}

/// As with fio, the sum stands in place of reads and writes, or after them, and moves the fields behind it.
#[test]
fn terse_reports_directions_together() {
    let directory = directory();
    let fields = |unified: &str, program: &dyn Fn(&[&str]) -> String| -> Vec<String> {
        let unified = format!("--unified_rw_reporting={unified}");
        let job = ["--name=a", "--ioengine=null", "--rw=randrw", "--size=1m", "--number_ios=200", "--minimal"];
        program(&[&job[..], &[&unified]].concat()).trim_end().split(';').map(str::to_owned).collect()
    };
    let ours = |arguments: &[&str]| stdout(&succeed(directory.path(), &[&["run"], arguments].concat()));
    for (unified, count, sum) in [("none", 121, None), ("mixed", 80, Some(5)), ("both", 162, Some(87))] {
        let line = fields(unified, &ours);
        assert_eq!(line.len(), count, "{unified}");
        assert_eq!(line[4], "0", "{unified}: the error");
        assert!(line[count - 25].ends_with('%'), "{unified}: the latencies end the line");
        if let Some(at) = sum {
            assert_eq!(line[at], "800", "{unified}: KiB of reads and writes");
        }
        if has_program("fio") {
            let fios = fields(unified, &|arguments| tool("fio", arguments, directory.path()));
            assert_eq!(fios.len(), count, "{unified}: fio");
            if let Some(at) = sum {
                assert_eq!(fios[at], "800", "{unified}: fio");
            }
        }
    }
}

/// A shell command before a job and one after it. Their output is kept as by fio; a command that fails before the job
/// fails the job.
#[test]
fn shell_commands_run_before_and_after_a_job() {
    let place = directory();
    let job = ["run", "--name=j", "--rw=write", "--size=64k", "--filename=data"];
    let before = "--exec_prerun=echo before; test ! -e after";
    let after = "--exec_postrun=echo late >&2; touch after; stat -c %s data";
    succeed(place.path(), &[&job[..], &[before, after]].concat());
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    assert_eq!((read("j.prerun.txt"), read("j.postrun.txt")), ("before\n".into(), "late\n65536\n".into()));
    assert!(place.path().join("after").exists());
    // The same command fails now.
    let output = run(place.path(), &[&job[..], &[before]].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output) + &stdout(&output);
    assert!(said.contains("exec_prerun failed in job j: exit status: 1 (its output is in j.prerun.txt)"), "{said}");
    // As in fio, a job has done its work when the command after it fails; the result says so.
    let said = stdout(&run(place.path(), &[&job[..], &["--exec_postrun=exit 3"]].concat()));
    assert!(said.contains("exec_postrun failed in job j: exit status: 3"), "{said}");
}

/// `uid` and `gid` are those of the clone alone: another job of the run stays who it was.
#[test]
fn a_job_runs_as_the_user_and_group_that_it_names() {
    if !is_root("only root may become somebody else") {
        return;
    }
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let directory = directory();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    for thread in ["0", "1"] {
        let thread = format!("--thread={thread}");
        let job = ["--rw=write", "--size=64k", "--create_on_open=1", &thread];
        let named = [&["run", "--name=named", "--uid=1234", "--gid=2345"], &job[..]].concat();
        let other = [&["--name=other"], &job[..]].concat();
        succeed(directory.path(), &[named, other].concat());
        for (name, owner) in [("named.0.0", (1234, 2345)), ("other.0.0", (0, 0))] {
            let path = directory.path().join(name);
            let file = std::fs::metadata(&path).unwrap();
            assert_eq!((file.uid(), file.gid()), owner, "{name}, {thread}");
            std::fs::remove_file(path).unwrap();
        }
    }
    // As in fio, the files are made before: a user who may not write them cannot run the job.
    let output = run(directory.path(), &["run", "--name=a", "--uid=1234", "--rw=write", "--size=64k"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stdout(&output) + &stderr(&output);
    assert!(said.contains("Permission denied"), "{said}");
}

#[test]
fn a_ramp_of_bytes_is_not_measured() {
    let directory = directory();
    let job = ["run", "--output-format=json", "--name=a", "--ioengine=null", "--bs=4k", "--size=400k"];
    let ops = |more: &[&str]| {
        let result = json(&succeed(directory.path(), &[&job[..], more].concat()));
        result["jobs"][0]["read"]["total_ios"].as_u64().unwrap()
    };
    assert_eq!(ops(&["--ramp_size=100k"]), 75);
    assert_eq!(ops(&["--ramp_size=99k"]), 75, "the block that ends the ramp belongs to it");
    assert_eq!(ops(&["--ramp_size=400k", "--loops=2"]), 100);
    let both = refused(directory.path(), &[&job[..], &["--ramp_size=4k", "--ramp_time=1"]].concat());
    assert!(both.contains("ramp_size") && both.contains("ramp_time"), "{both}");
}

#[test]
fn think_cycles_keep_the_processor_busy_after_each_request() {
    let directory = directory();
    let job = ["run", "--output-format=json", "--name=a", "--ioengine=null", "--bs=4k", "--size=40k"];
    let result = json(&succeed(directory.path(), &[&job[..], &["--thinkcycles=20000000"]].concat()));
    // No processor does more than 10 cycles in a nanosecond.
    let runtime = result["jobs"][0]["read"]["runtime"].as_u64().unwrap();
    assert!(runtime >= 20, "{runtime} ms");
}

/// fio has the time to the end in statements, and 0 in the report; options that a section does not have have no key.
#[test]
fn a_statement_says_how_long_the_run_still_takes() {
    let directory = directory();
    file(directory.path(), "a.fio", "[global]\nioengine=null\nsize=1g\nrate=1m\ntime_based\nruntime=3\n[a]\n");
    let arguments = ["run", "--output-format=json", "--status-interval=1", "--eta=never", "a.fio"];
    let printed = stdout(&succeed(directory.path(), &arguments));
    let reports: Vec<Value> = serde_json::Deserializer::from_str(&printed).into_iter().map(Result::unwrap).collect();
    let eta = |report: &Value| report["jobs"][0]["eta"].as_u64().unwrap();
    assert!(reports.len() > 1 && (1..=3).contains(&eta(&reports[0])), "{printed}");
    assert_eq!(eta(reports.last().unwrap()), 0);
    assert!(reports[0]["jobs"][0].get("job options").is_none());
}

/// As in fio, a group has the name of its first job, and the options of its last one.
#[test]
fn a_group_of_different_jobs_has_the_options_of_the_last() {
    let directory = directory();
    let group = ["--ioengine=null", "--size=64k", "--group_reporting", "--output-format=json"];
    let jobs = ["--name=a", "--rw=write", "--numjobs=2", "--name=b", "--rw=read", "--bs=8k"];
    let of = |report: &Value| {
        let job = &report["jobs"][0];
        assert_eq!(report["jobs"].as_array().unwrap().len(), 1);
        (job["jobname"].clone(), job["job options"].clone(), job["write"]["io_bytes"].clone())
    };
    let ours = of(&json(&succeed(directory.path(), &[&["run"], &group[..], &jobs[..]].concat())));
    assert_eq!(ours.1["rw"], "read");
    assert!(ours.1.get("numjobs").is_none(), "{}", ours.1);
    if has_program("fio") {
        let theirs = tool("fio", &[&group[..], &jobs[..]].concat(), directory.path());
        assert_eq!(ours, of(&serde_json::from_str(&theirs).expect("fio's JSON")));
    }
}

/// `size` is what a job transfers: zones that are skipped lead beyond it, to the end of the file.
#[test]
fn strided_zones_lead_through_the_whole_file() {
    let directory = directory();
    let blocks = |program: &dyn Fn(&[&str]), options: &[&str]| -> Vec<u64> {
        std::fs::write(directory.path().join("data"), vec![1; 256 << 10]).unwrap();
        let job = ["--name=a", "--filename=data", "--write_iolog=log", "--zonemode=strided", "--zonesize=16k"];
        program(&[&job[..], options].concat());
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        std::fs::remove_file(directory.path().join("log")).unwrap();
        let offset = |line: &str| line.split_whitespace().nth(3).and_then(|word| word.parse::<u64>().ok());
        log.lines().filter_map(offset).map(|offset| offset >> 12).collect()
    };
    let ours = |arguments: &[&str]| drop(succeed(directory.path(), &[&["run"], arguments].concat()));
    let far = [0, 1, 2, 3, 16, 17, 18, 19, 32, 33, 34, 35, 48, 49, 50, 51];
    for (options, wanted) in [
        (&["--rw=read", "--size=64k", "--zoneskip=48k"][..], &far[..]),
        (&["--rw=write", "--size=25%", "--zoneskip=48k"], &far),
        (&["--rw=read", "--size=64k", "--io_size=50%", "--zoneskip=48k"], &far[..8]),
        (
            &["--rw=read", "--size=128k", "--offset=192k", "--zoneskip=16k", "--number_ios=10"],
            &[48, 49, 50, 51, 56, 57, 58, 59, 64, 65],
        ),
    ] {
        assert_eq!(blocks(&ours, options), wanted, "{options:?}");
        if has_program("fio") {
            let fios = |arguments: &[&str]| drop(tool("fio", arguments, directory.path()));
            assert_eq!(blocks(&fios, options), wanted, "fio {options:?}");
        }
    }
}

/// A rate of writes holds back no reads: it takes the place of `rwmixread`.
#[test]
fn a_rate_of_one_direction_leaves_the_other_free() {
    let directory = directory();
    let job = ["run", "--name=a", "--ioengine=null", "--size=1t", "--rw=randrw", "--norandommap", "--rwmixread=50"];
    let more = ["--rate_iops=,10", "--number_ios=20000", "--runtime=60", "--output-format=json"];
    let report = json(&succeed(directory.path(), &[&job[..], &more].concat()));
    let ops = |direction: &str| report["jobs"][0][direction]["total_ios"].as_u64().unwrap();
    // However slow the machine, sixty seconds have room for 600 writes.
    assert!(ops("read") > 19_000 && ops("write") <= 601, "{} reads, {} writes", ops("read"), ops("write"));
}

//! Sweeps over other options than the depth: offered load, objectives, maps, and the input that makes no sense.

mod common;
use common::*;
use serde_json::Value;

fn sweep(arguments: &[&str]) -> Value {
    let directory = directory();
    let always = ["sweep", "--engine=null", "--size=1g", "--json"];
    let result = json(&succeed(directory.path(), &[&always[..], arguments].concat()));
    assert!(names(directory.path()).is_empty(), "an engine without storage leaves nothing behind");
    result
}

fn points(curve: &Value) -> &Vec<Value> {
    curve["points"].as_array().unwrap()
}

#[test]
fn a_rate_beyond_what_the_system_can_do_is_not_kept_up_with() {
    // A job that pauses for a millisecond at every op carries out 1000 ops a second at most, on any machine.
    let pause = ["--thinktime=1ms", "--thinktime_blocks_type=issue", "--time=6s"];
    let result = sweep(&[&pause[..], &["--axis=rate_iops=50,20000"]].concat());
    assert_eq!(result["axis"], "rate_iops");
    let curve = &result["curves"][0];
    let fast = points(curve).iter().find(|point| point["x"] == 20_000.0).unwrap();
    for visit in fast["visits"].as_array().unwrap() {
        let of = |name: &str| visit["backlog"][name].as_f64().unwrap();
        let growth = (of("end") - of("start")) / of("arrived");
        assert!((0.9..=1.0).contains(&growth), "{growth} of {}", visit["backlog"]);
    }
    assert_ne!(curve["saturation"]["low"], 20_000.0, "{}", curve["saturation"]);
    assert_eq!(curve["line"], Value::Null, "throughput over the rate has no load line");
}

#[test]
fn the_verdict_of_an_objective_follows_its_limit() {
    let kept = |objective: &str| {
        let result = sweep(&["--axis=iodepth=1,2,4", "--time=8s", "--objective", objective]);
        assert_eq!(result["objectives"][0], objective);
        (result["curves"][0]["kept"].clone(), result["verdicts"].to_string())
    };
    // A busy machine may leave too little time for four visits: then neither end is known.
    let (impossible, verdicts) = kept("p50<1ns");
    assert!(impossible["low"].is_null() && impossible["at"].is_null(), "{impossible}");
    assert!(impossible["unnamed"].is_string() && verdicts.contains("no-limit"), "{verdicts}");
    let (easy, _) = kept("p99<3600s");
    assert!(easy["high"].is_null() && easy["beyond"] != "p99<3600s, which breaks", "{easy}");
}

#[test]
fn a_map_has_a_curve_for_each_value_of_the_second_axis() {
    let directory = directory();
    let arguments = ["sweep", "--engine=null", "--size=1g", "--axis=iodepth=1,4", "--axis=bs=4k,16k", "--time=6s"];
    let files = ["--no-files", "--quiet", "--save=map.json", "--html=map.html"];
    succeed(directory.path(), &[&arguments[..], &files].concat());
    let result = json_file(&directory.path().join("map.json"));
    assert_eq!((&result["axis"], &result["across"]), (&"iodepth".into(), &"bs".into()));
    let curves = result["curves"].as_array().unwrap();
    let labels: Vec<&str> = curves.iter().map(|curve| curve["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["bs 4 KiB", "bs 16 KiB"]);
    for (curve, bytes) in curves.iter().zip([4096, 16_384]) {
        assert_eq!(curve["across"], f64::from(bytes));
        for point in points(curve) {
            let read = &point["job"]["directions"]["read"];
            assert_eq!(read["bytes"].as_u64().unwrap(), read["ops"].as_u64().unwrap() * u64::from(bytes as u32));
        }
    }
    let page = std::fs::read_to_string(directory.path().join("map.html")).unwrap();
    // Two maps of four cells, each for wide and for narrow screens.
    assert_eq!(page.matches("class=\"cell\"").count(), 16);
}

#[test]
fn an_option_without_a_load_line_has_points_and_no_complaint_about_it() {
    let result = sweep(&["--axis=rwmixread=0,100", "--rw=randrw", "--time=4s"]);
    let curve = &result["curves"][0];
    let ops = |point: usize, way: &str| points(curve)[point]["job"]["directions"][way]["ops"].as_u64().unwrap();
    assert!(ops(0, "read") == 0 && ops(0, "write") > 0 && ops(1, "read") > 0 && ops(1, "write") == 0);
    let verdicts = result["verdicts"].to_string();
    assert!(!verdicts.contains("load-line") && !verdicts.contains("too-few-points"), "{verdicts}");
}

#[test]
fn what_makes_no_sense_is_one_line() {
    let directory = directory();
    file(directory.path(), "data", vec![0; 1 << 20]);
    for (arguments, word) in [
        (&["--axis=warp"][..], "warp"),
        (&["--axis=iodept=1,2"], "did you mean iodepth"),
        (&["--axis=rw=read"], "not numeric"),
        (&["--axis=size"], "needs values"),
        (&["--axis=size=64k,2m"], "goes up to 2097152 bytes, but there are 1048576 of data"),
        (&["--axis=size=64k,1m", "--offset=4k"], "but there are 1044480 of"),
        (&["--axis=rate_iops", "--axis=rate=1m,2m"], "at most one of them a rate"),
        (&["--axis=rate_iops", "--axis=rate"], "at most one axis of rates"),
        (&["--axis=bs=8k", "--bs=4k"], "bs"),
        (&["--axis=rate_iops", "--engine=psync"], "psync"),
        (&["--axis=rate_iops", "--numjobs=2"], "numjobs"),
        (&["--axis=rate_iops", "--iodepth=1,2"], "one depth"),
        (&["--axis=iodepth", "--axis=rate_iops"], "needs values"),
        (&["--axis=bs", "--axis=iodepth", "--axis=numjobs"], "two axes"),
        (&["--axis=bs=4k,8k", "--axis=bs=4k,8k"], "bs"),
        (&["--axis=bs", "--objective=p99<1ms"], "rate_iops"),
        (&["--axis=engine"], "engine=io_uring"),
        (&["--objective=p99"], "p99<1ms"),
        (&["--objective=write:p99<1ms"], "no such requests: write:p99<1ms"),
        (&["--objective=p200<1ms"], "p200"),
        (&["--objective=max<1ms"], "max"),
        (&["--objective=p99<1"], "unit"),
    ] {
        let line = refused(directory.path(), &[&["sweep", "data"], arguments].concat());
        assert!(line.contains(word), "{arguments:?}: {line}");
        assert_eq!(names(directory.path()), ["data"], "{arguments:?} left something behind");
    }
}

#[test]
fn preconditioning_fills_the_target_twice_and_judges_five_rounds() {
    let place = directory();
    file(place.path(), "there", vec![1; 1 << 20]);
    let always = ["sweep", "--precondition", "--precondition-round=100ms", "--precondition-rounds=5", "--iodepth=1,2"];
    let output = run(place.path(), &[&always[..], &["there", "--no-files"]].concat());
    assert!(stderr(&output).contains("--allow-writes"), "{}", stderr(&output));
    let more = [".", "--engine=psync", "--size=4m", "--time=2s", "--quiet", "--save=s.json", "--html=s.html"];
    succeed(place.path(), &[&always[..], &more].concat());
    let found = &json_file(&place.path().join("s.json"))["preconditioning"];
    assert_eq!(found["fill_bytes"], 8 << 20);
    assert_eq!(found["rounds"].as_array().unwrap().len(), 5);
    assert!(found["rw"] == "randwrite" && found["window"]["first"] == 1, "{found}");
    assert!(found["not_purged"].as_str().unwrap().contains("only a block device"), "{found}");
    let page = std::fs::read_to_string(place.path().join("s.html")).unwrap();
    assert!(page.contains("Steady state convergence") && page.contains("8 MiB written in order"));
    assert_eq!(names(place.path()), ["s.html", "s.json", "there"]);

    // The part of the file that the sweep uses, and no other.
    let part = ["there", "--engine=psync", "--allow-writes", "--offset=256k", "--size=128k", "--time=2s", "--no-files"];
    let output = run(place.path(), &[&always[..], &part].concat());
    assert!(stdout(&output).contains("256 KiB written in order"), "{}", stdout(&output));
    let data = std::fs::read(place.path().join("there")).unwrap();
    let untouched = |range: std::ops::Range<usize>| data[range].iter().all(|byte| *byte == 1);
    assert!(untouched(0..256 << 10) && !untouched(256 << 10..384 << 10) && untouched(384 << 10..1 << 20));
    let nothing = refused(place.path(), &[&always[..], &["--engine=null", "--size=1m", "--no-files"]].concat());
    assert!(nothing.contains("nothing to fill"), "{nothing}");
}

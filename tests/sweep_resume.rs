//! `sweep --resume`: a map that was killed goes on, and a sweep of anything else is refused.

mod common;
use common::*;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const MAP: [&str; 7] =
    ["sweep", "data", "--engine=psync", "--axis=iodepth=1,2,4", "--size=1m", "--no-files", "--time=1h"];

/// The rounds of each visit: of a curve, of a point.
fn rounds(curves: &Value) -> Vec<(String, u64, Vec<u64>)> {
    let mut out = Vec::new();
    for curve in curves.as_array().unwrap() {
        for point in curve["points"].as_array().unwrap() {
            let visits = point["visits"].as_array().unwrap().iter();
            let rounds = visits.map(|visit| visit["round"].as_u64().unwrap()).collect();
            out.push((curve["label"].as_str().unwrap().to_owned(), point["x"].as_f64().unwrap() as u64, rounds));
        }
    }
    out
}

fn samples(curves: &Value, label: &str, x: u64) -> Vec<f64> {
    let curve = curves.as_array().unwrap().iter().find(|curve| curve["label"] == label).unwrap();
    let point = curve["points"].as_array().unwrap().iter().find(|point| point["x"].as_f64() == Some(x as f64)).unwrap();
    point["samples"].as_array().unwrap().iter().map(|sample| sample.as_f64().unwrap()).collect()
}

/// Kills a map of these block sizes when `enough` visits are saved: the result that it had saved by then.
fn killed(directory: &Path, sizes: &str, enough: usize) -> Value {
    let more = [sizes, "--point-time=1h", "--save-every=1ms", "--save=map.json", "--quiet"];
    let arguments = [&MAP[..], &more].concat();
    let mut child = plimsoll(directory).args(arguments).spawn().unwrap();
    let path = directory.join("map.json");
    let saved = loop {
        assert!(child.try_wait().unwrap().is_none(), "the sweep ended before it was killed");
        if path.exists() {
            let saved = json_file(&path);
            if rounds(&saved["curves"]).iter().map(|(_, _, rounds)| rounds.len()).sum::<usize>() >= enough {
                break saved;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    saved
}

#[test]
fn a_killed_map_goes_on_in_new_rounds_and_keeps_every_visit() {
    // The first one is killed within its first looks. The second one is in its rounds by then, and gets a new value.
    for (sizes, enough) in [("--axis=bs=4k,8k", 1), ("--axis=bs=4k", 5)] {
        let directory = directory();
        file(directory.path(), "data", vec![7; 1 << 20]);
        let seen = killed(directory.path(), sizes, enough);
        assert_eq!(seen["ended"], "interrupted");
        // Another visit may have been saved between the look and the kill.
        let before = json_file(&directory.path().join("map.json"));
        let more = ["--axis=bs=4k,8k", "--point-time=1200ms", "--resume=map.json", "--json"];
        let output = succeed(directory.path(), &[&MAP[..], &more].concat());
        let after = json(&output);
        assert_eq!(after["resumed"][0]["started_unix_ms"], before["provenance"]["started_unix_ms"]);
        assert_eq!((after["resumed"].as_array().unwrap().len(), &after["ended"]), (1, &"complete".into()));
        let (was, is) = (rounds(&before["curves"]), rounds(&after["curves"]));
        assert_eq!(is.len(), 6, "the map is whole: {is:?}");
        let count = |all: &[(String, u64, Vec<u64>)]| all.iter().map(|(_, _, rounds)| rounds.len()).sum::<usize>();
        assert!(count(&is) > count(&was), "{was:?} {is:?}");
        for (label, x, now) in &is {
            let of_curve = was.iter().filter(|(other, ..)| other == label);
            let last = of_curve.flat_map(|(_, _, rounds)| rounds).max().copied().unwrap_or(0);
            let Some((_, _, then)) = was.iter().find(|(other, place, _)| (other, place) == (label, x)) else {
                continue;
            };
            assert_eq!(now[..then.len()], then[..], "{label} {x}");
            assert!(now[then.len()..].iter().all(|round| *round > last), "{label} {x}: {now:?} after round {last}");
            let (old, new) = (samples(&before["curves"], label, *x), samples(&after["curves"], label, *x));
            assert_eq!(new[..old.len()], old[..], "{label} {x}");
        }
    }
}

#[test]
fn a_resumed_sweep_can_be_resumed_and_gives_a_page() {
    let directory = directory();
    let of = |more: &[&str]| {
        let one = ["sweep", ".", "--iodepth=1,2,4", "--size=4m", "--time=5s"];
        stdout(&succeed(directory.path(), &[&one[..], more].concat()))
    };
    assert!(!of(&[]).contains("parts"));
    of(&["--resume=plimsoll-sweep-1.json", "--quiet"]);
    let third = of(&["--resume=plimsoll-sweep-2.json"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(third.contains("measured in 3 parts, the first one on "), "{third}");
    let last = json_file(&directory.path().join("plimsoll-sweep-3.json"));
    assert_eq!(last["resumed"].as_array().unwrap().len(), 2);
    let page = std::fs::read_to_string(directory.path().join("plimsoll-sweep-3.html")).unwrap();
    assert!(page.contains("measured in 3 parts"));
}

#[test]
fn a_sweep_of_anything_else_is_not_resumed() {
    let directory = directory();
    file(directory.path(), "data", vec![7; 1 << 20]);
    file(directory.path(), "other", vec![7; 1 << 20]);
    file(directory.path(), "run.json", r#"{"kind":"run","provenance":{"schema":1}}"#);
    let first = ["sweep", "data", "--iodepth=1,2,4", "--time=2s", "--quiet", "--save=a.json", "--no-files"];
    succeed(directory.path(), &first);
    let of = |edit: fn(&mut Value), name: &str| {
        let mut document = json_file(&directory.path().join("a.json"));
        edit(&mut document);
        file(directory.path(), name, document.to_string());
    };
    of(|result| result["provenance"]["machine"]["hostname"] = "far".into(), "far.json");
    of(|result| result["curves"][0]["points"][0]["x"] = 0.into(), "zero.json");
    of(|result| result["ranks"] = vec!["a", "b"].into(), "ranks.json");
    let files = names(directory.path());
    let same = ["sweep", "data", "--iodepth=1,2,4", "--no-files", "--resume=a.json"];
    let with = |more: &[&'static str]| [&same[..], more].concat();
    for (arguments, words) in [
        (with(&["--bs=8k"]), &["job option bs", "4k there, 8k here"][..]),
        (with(&["--rwmixread=40"]), &["job option rwmixread", "not set there, 40 here"]),
        (with(&["--engine=libaio,psync"]), &["set of curves"]),
        (with(&["--filename=other"]), &["both TARGET"]),
        (
            ["sweep", "other", "--resume=a.json", "--no-files"].to_vec(),
            &["another target", "/data there", "/other here"],
        ),
        (["sweep", "data", "--axis=numjobs=1,2", "--resume=a.json", "--no-files"].to_vec(), &["another axis"]),
        (same[..4].iter().copied().chain(["--resume=far.json"]).collect(), &["machine", "host far"]),
        (same[..4].iter().copied().chain(["--resume=zero.json"]).collect(), &["zero.json", "iodepth 0", "edited"]),
        (same[..4].iter().copied().chain(["--resume=ranks.json"]).collect(), &["number of hosts"]),
        (same[..4].iter().copied().chain(["--resume=run.json"]).collect(), &["run.json"]),
        (same[..4].iter().copied().chain(["--resume=missing"]).collect(), &["missing"]),
    ] {
        let line = refused(directory.path(), &arguments);
        assert!(words.iter().all(|word| line.contains(word)), "{arguments:?}: {line}");
        assert_eq!(names(directory.path()), files, "{arguments:?} left something behind");
    }
    // A sweep that preconditions its target refuses before it writes to it.
    let writes = ["sweep", "data", "--iodepth=1,2", "--time=1s", "--no-files", "--quiet", "--allow-writes"];
    let rounds = ["--precondition", "--precondition-round=1ms", "--precondition-rounds=5"];
    let of = |more: &[&'static str]| [&writes[..], &rounds, more].concat();
    succeed(directory.path(), &of(&["--save=p.json"]));
    file(directory.path(), "data", vec![7; 1 << 20]);
    let line = refused(directory.path(), &of(&["--resume=p.json", "--bs=8k"]));
    assert!(line.contains("job option bs"), "{line}");
    assert!(std::fs::read(directory.path().join("data")).unwrap() == vec![7; 1 << 20], "the refused sweep wrote");
    // A target of another size is seen by the first visit.
    std::fs::File::options().write(true).open(directory.path().join("data")).unwrap().set_len(2 << 20).unwrap();
    let line = refused(directory.path(), &same);
    assert!(line.contains("another size of the target"), "{line}");
}

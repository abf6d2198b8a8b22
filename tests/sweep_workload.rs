//! Sweeps of a recorded application: what they replay, what they say of it, and the input that makes no sense.

mod common;
use common::*;
use std::path::Path;

/// Requests of a log.
const REQUESTS: u64 = 20;

/// A log of a thread that reads every 10 ms.
fn log(place: &Path, name: &str, action: &str) {
    let requests: String =
        (0..REQUESTS).map(|n| format!("{} data {action} {} 4096\n", n * 10_000, n * 4096 % 65536)).collect();
    file(place, name, format!("fio version 3 iolog\n0 data add\n0 data open\n{requests}"));
}

#[test]
fn every_visit_replays_whole_passes_no_faster_than_the_pauses_allow() {
    let place = directory();
    file(place.path(), "data", vec![1; 65536]);
    log(place.path(), "a.iolog", "read");
    log(place.path(), "b.iolog", "read");
    let arguments = ["sweep", "--engine=null", "--workload=a.iolog,b.iolog", "--json", "--time=6s"];
    let result = json(&succeed(place.path(), &[&arguments[..], &["--axis=replay_time_scale=100,400"]].concat()));
    assert_eq!(result["axis"], "replay_time_scale");
    assert!(result["target"].as_str().unwrap().starts_with("a.iolog,b.iolog on data"), "{}", result["target"]);
    let points = result["curves"][0]["points"].as_array().unwrap();
    assert_eq!(points.iter().map(|point| point["x"].as_f64().unwrap()).collect::<Vec<_>>(), [100.0, 400.0]);
    for point in points {
        let ops = point["job"]["directions"]["read"]["ops"].as_u64().unwrap();
        assert_eq!(ops % (2 * REQUESTS), 0, "half a pass is other work than a whole one: {ops}");
        for visit in point["visits"].as_array().unwrap() {
            let (ops, ns) = (visit["ramp"]["ops"].as_u64().unwrap(), visit["ramp"]["ns"].as_u64().unwrap());
            assert!(ops > 0 && ops % (2 * REQUESTS) == 0, "the ramp is whole passes: {visit}");
            assert!(ns >= 200_000_000, "{visit}");
        }
        // Nineteen pauses of 10 ms in a pass of each thread, divided by the speed.
        let speed = point["x"].as_f64().unwrap() / 100.0;
        let most = (2 * REQUESTS) as f64 / (0.01 * (REQUESTS - 1) as f64) * speed;
        let iops = point["iops"]["mean"].as_f64().unwrap();
        assert!(iops > 0.0 && iops <= most * 1.001, "{iops} of {most} at {speed}");
    }
    let replayed = result["verdicts"].as_array().unwrap().iter().find(|verdict| verdict["code"] == "replayed").unwrap();
    let what = replayed["what"].as_str().unwrap();
    assert!(what.contains("all 40 requests") && what.contains("2 threads, 2 in flight"), "{what}");
}

/// SQLite reads the 100 bytes of its header first, and other programs write lines.
#[test]
fn requests_that_do_not_fit_direct_io_go_through_the_page_cache() {
    let place = directory();
    for name in ["data", "opened"] {
        file(place.path(), name, vec![1; 65536]);
    }
    let log = "fio version 3 iolog\n0 data add\n0 data open\n0 opened add\n0 opened open\n0 data read 0 100\n\
               9 data read 4096 4096\n9 opened close\n9 data close\n";
    file(place.path(), "log", log);
    let arguments = ["sweep", "--workload=log", "--axis=replay_time_scale=100", "--time=1s", "--json"];
    let result = json(&succeed(place.path(), &arguments));
    let point = &result["curves"][0]["points"][0]["job"];
    assert!(point["directions"]["read"]["ops"].as_u64().unwrap() > 0, "{point}");
    assert_eq!(point["facts"]["direct"], false, "{point}");
    let said = |code: &str| {
        let found = result["verdicts"].as_array().unwrap().iter().find(|verdict| verdict["code"] == code);
        found.map(|verdict| verdict["what"].as_str().unwrap().to_owned()).unwrap_or_default()
    };
    assert!(said("no-direct-io").contains("100 bytes at 0 of data"), "{}", said("no-direct-io"));
    assert!(said("replayed").contains("; of opened the log has neither reads nor writes"), "{}", said("replayed"));
    let refusal = refused(place.path(), &["sweep", "--workload=log", "--direct=1", "--time=1s", "--no-files"]);
    assert!(refusal.contains("100 bytes"), "{refusal}");

    file(place.path(), "opens", "fio version 3 iolog\n0 data add\n0 data open\n9 data close\n");
    let refusal = refused(place.path(), &["sweep", "--workload=opens", "--no-files"]);
    assert!(refusal.contains("no request to replay") && refusal.contains("not read(2)"), "{refusal}");
    std::fs::remove_file(place.path().join("data")).unwrap();
    let refusal = refused(place.path(), &["sweep", "--workload=log", "--no-files"]);
    assert!(refusal.contains("8192 bytes of a file that is not there: data"), "{refusal}");
}

#[test]
fn recordings_that_cannot_be_replayed_are_refused_in_one_line() {
    let place = directory();
    file(place.path(), "data", vec![1; 65536]);
    file(place.path(), "small", vec![1; 512]);
    log(place.path(), "reads", "read");
    log(place.path(), "writes", "write");
    file(place.path(), "trace", [&0x6561_7407u32.to_le_bytes()[..], &[0; 44]].concat());
    for (arguments, word) in [
        (&["--workload=reads", "--rw=read"][..], "rw"),
        (&["--workload=reads", "--axis=bs=4k,8k"], "bs"),
        (&["--workload=reads", "--engine=psync"], "asynchronous"),
        (&["--workload=reads", "small"], "has 512"),
        (&["--workload=reads", "gone"], "gone"),
        (&["--workload=writes"], "--allow-writes"),
        (&["--workload=trace"], "TARGET"),
        (&["--workload=trace", "data"], "no request"),
        (&["--workload=data"], "data:1"),
        (&["--workload=gone"], "gone"),
        (&["--axis=replay_time_scale"], "--workload"),
    ] {
        let names_engine = arguments.iter().any(|argument| argument.starts_with("--engine"));
        let engine = if names_engine { &[][..] } else { &["--engine=null"] };
        let output = run(place.path(), &[&["sweep", "--no-files"][..], engine, arguments].concat());
        let said = stderr(&output);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert!(said.contains(word) && said.trim_end().lines().count() == 1, "{arguments:?}: {said}");
    }
}

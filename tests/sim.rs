//! `plimsoll sim`: shipped scenarios run, results are whole and reproducible, bad scenarios are one clear line.

#[path = "../crates/report/tests/browser/mod.rs"]
mod browser;
mod common;
use common::*;
use measure::schema::{Curve, Document, Estimate, LoadLine, Point, SweepResult};
use serde_json::Value;

const SCENARIO: &str = "name = \"t\"\nseconds = 0.02\nwarmup_seconds = 0.01\nmachine.profile = \"intel-16\"\n\
                        pacing.method = \"auto\"\n[[jobs]]\nhosts = \"0-1\"\ndepth = 32\nsizes = [{ bytes = \"128k\" }]\n";

#[test]
fn every_shipped_scenario_runs() {
    let directory = directory();
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/sim");
    let mut count = 0;
    for entry in std::fs::read_dir(&shipped).expect("scenarios are shipped") {
        let path = entry.expect("readable").path();
        let path = path.to_str().expect("UTF-8");
        let short = ["sim", path, "--set", "seconds=0.002", "--set", "warmup_seconds=0.002", "--set", "sample_ms=1"];
        let out = succeed(directory.path(), &short);
        assert!(stdout(&out).lines().count() >= 2, "{path}: {}", stdout(&out));
        count += 1;
    }
    // The prototype's tests 2 to 5, 10 to 12, 14 to 18, and Plimsoll's.
    assert!(count >= 20, "{count} scenarios");
}

#[test]
fn the_same_seed_gives_the_same_result_and_another_does_not() {
    let directory = directory();
    file(directory.path(), "t.toml", SCENARIO);
    let json = |seed: &str| -> Value {
        let out = succeed(directory.path(), &["sim", "t.toml", "--seed", seed, "--json", "-", "--threads", "2"]);
        serde_json::from_str(&stdout(&out)).expect("JSON")
    };
    assert_eq!(json("7"), json("7"));
    assert_ne!(json("7")["runs"][0]["outcome"], json("8")["runs"][0]["outcome"]);
}

#[test]
fn sweeps_methods_and_pages() {
    let directory = directory();
    file(directory.path(), "t.toml", SCENARIO);
    let out = succeed(
        directory.path(),
        &[
            "sim",
            "t.toml",
            "--set",
            "jobs.*.depth=16,64",
            "--pacing",
            "none",
            "--pacing",
            "buffers:16",
            "--html",
            "o.html",
            "--json",
            "o.json",
        ],
    );
    // A header, four runs, the sources of two intervals, and the first method against the other at either depth.
    let rows = stdout(&out).lines().take_while(|line| !line.starts_with("interval: ")).count();
    let text = stdout(&out).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(rows, 5, "{}", stdout(&out));
    assert_eq!(text.matches("lie in it, by the errors on").count(), 2, "{}", stdout(&out));
    assert_eq!(text.matches("differ by more than the model's error").count(), 2, "{}", stdout(&out));
    let page = std::fs::read_to_string(directory.path().join("o.html")).expect("a page");
    assert!(page.matches("<svg").count() >= 9 && page.ends_with("</html>\n"));
    for part in [
        "<th scope=\"col\">p99 us</th>",
        "Mean latency</title>",
        "<details class=\"part\"><summary>",
        "pacing=buffers:16",
    ] {
        assert!(page.contains(part), "{part}");
    }
    browser::look_at(&[("simulation", page)]);
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(directory.path().join("o.json")).expect("a result"))
            .expect("JSON");
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 4);
    let interval = &runs[0]["outcome"]["confidence"]["interval"];
    assert!(interval["low_gbps"].as_f64() < interval["high_gbps"].as_f64() && interval["rows"].as_u64() > Some(5));
    let rate = |n: usize| runs[n]["outcome"]["gbps"].as_f64().expect("a rate");
    // 16 buffers of 128 KiB cannot reach what 128 ops in flight do.
    assert!(rate(1) < 0.9 * rate(2), "{} {}", rate(1), rate(2));
}

#[test]
fn a_bad_scenario_is_one_clear_line() {
    let directory = directory();
    for (what, with, words) in [
        ("depth = 32", "depth = 0", "depth must be"),
        ("depth = 32", "detph = 32", "detph"),
        ("intel-16", "intle-16", "one of intel-16"),
        ("\"auto\"", "\"fast\"", "fast"),
        ("128k", "128q", "128q"),
        ("method = ", "mthd = ", "[pacing] has `mthd`"),
        ("hosts = \"0-1\"", "hosts = \"1-0\"", "backwards"),
        ("seconds = 0.02", "seconds = -1.0", "seconds must be"),
        ("name = \"t\"", "name = ", "line 1"),
        ("hosts = \"0-1\"", "namespaces = \"0-16\"", "out of range"),
    ] {
        file(directory.path(), "t.toml", SCENARIO.replacen(what, with, 1));
        let line = refused(directory.path(), &["sim", "t.toml"]);
        assert!(line.contains(words) && line.contains("t.toml"), "{with}: {line}");
    }
    file(directory.path(), "t.toml", SCENARIO);
    for (arguments, words) in [
        (&["sim"][..], "needs a scenario"),
        (&["sim", "gone.toml"], "gone.toml"),
        (&["sim", "t.toml", "--set", "jobs.9.depth=1"], "jobs.9.depth"),
        (&["sim", "t.toml", "--set", "jobs.0.depth=many"], "jobs.0.depth"),
        (&["sim", "t.toml", "--pacing", "warp"], "not a pacing method"),
        (&["sim", "t.toml", "--pacing", "buffers:0"], "count"),
    ] {
        let line = refused(directory.path(), arguments);
        assert!(line.contains(words), "{arguments:?}: {line}");
    }
}

#[test]
fn only_curves_over_depth_are_fitted() {
    let directory = directory();
    let result = swept("/dev/x", 0, 1e5, 32.0);
    file(directory.path(), "empty.json", &result);
    file(directory.path(), "sizes.json", result.replace("\"iodepth\"", "\"bs\""));
    for (fit, why) in [
        ("empty.json", "curve io_uring: it has no points"),
        ("sizes.json", "a sweep over bs; the fit needs sweeps over iodepth"),
        ("empty.json,drives=0", "drives=0 is not a number from 1 to 4096"),
        ("none.json", "cannot read none.json"),
    ] {
        let said = refused(directory.path(), &["sim", "--fit", fit]);
        assert!(said.contains(why), "{fit}: {said}");
    }
    file(directory.path(), "t.toml", SCENARIO.replace("intel-16", "none.toml"));
    let said = refused(directory.path(), &["sim", "t.toml"]);
    assert!(said.contains("cannot read the profile none.toml"), "{said}");
    assert_eq!(names(directory.path()), ["empty.json", "sizes.json", "t.toml"], "nothing is left behind");
}

/// The result of a sweep of a device that takes 5 ms for an op and 4,000 ops a second.
fn swept_by_law() -> String {
    let exactly = |mean: f64| Estimate { mean, low: mean * 0.99, high: mean * 1.01 };
    let point = |depth: u32| {
        let mut point = Point { x: f64::from(depth), ..Point::default() };
        point.iops = exactly((f64::from(depth) / 5e-3).min(4000.0));
        point.job.facts.block_bytes.read = (4096, 4096);
        point.job.directions.read.ops = 1000;
        point
    };
    let line = LoadLine { plateau_iops: exactly(4000.0), load_line: Some(exactly(24.0)), ..LoadLine::default() };
    let curve = Curve {
        label: "io_uring".into(),
        points: [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64].map(point).to_vec(),
        line: Some(line),
        ..Curve::default()
    };
    let sweep = SweepResult { axis: "iodepth".into(), curves: vec![curve], ..SweepResult::default() };
    serde_json::to_string(&Document::Sweep(sweep)).expect("JSON")
}

#[test]
fn a_learnt_machine_is_a_profile_whose_figures_have_intervals() {
    let directory = directory();
    file(directory.path(), "r.json", swept_by_law());
    let out = succeed(directory.path(), &["sim", "--fit", "r.json", "--html", "o.html", "--json", "o.json"]);
    assert!(stdout(&out).contains("pacing: will not raise the throughput"), "{}", stdout(&out));
    assert!(stdout(&out).contains("not determined: writes: add a sweep of rw=randwrite"), "{}", stdout(&out));
    let fit = json_file(&directory.path().join("o.json"))["fit"].clone();
    let ratios = fit["machine"]["learned"]["ratios"].as_array().expect("ratios");
    let near = ratios.iter().filter(|ratio| (0.92..=1.08).contains(&ratio.as_f64().unwrap())).count();
    assert!(ratios.len() == 9 && near >= 8, "{ratios:?}");
    let page = std::fs::read_to_string(directory.path().join("o.html")).expect("the page");
    assert!(page.contains("measured") && page.contains("simulated"));
    let scenario = "name = 'learnt'\nseconds = 0.5\nmachine.profile = 'plimsoll-machine-1.toml'\npacing.method = 'none'\n\
                    [[jobs]]\ndepth = 8\nsizes = [{ bytes = '4k' }]\n";
    file(directory.path(), "t.toml", scenario);
    let outcome = |arguments: &[&str]| {
        let run = json(&succeed(directory.path(), &[&["sim", "t.toml", "--json", "-"], arguments].concat()));
        run["runs"][0]["outcome"].clone()
    };
    let known = outcome(&[]);
    let iops = known["iops"].as_f64().unwrap();
    assert!((1500.0..=1700.0).contains(&iops), "8 in flight for 5 ms are 1600 a second, not {iops}");
    assert_eq!(known["confidence"]["interval"]["kind"], "points of the fitted results");
    let changed = outcome(&["--set", "machine.cores=2"]);
    assert_eq!(changed["confidence"]["outside"], "machine.cores is not that of the fitted profile");
}

//! compare: an effect with its interval, a sentence, and a status for scripts.

mod common;
use common::*;
use serde_json::Value;

/// A job that can't be faster than a hundred ops a second, and one that nothing holds back: hundreds of times as fast on
/// a machine however slow, even when either stands still for seconds. Both end with their work.
const SLOW: &str = "[a]\nioengine=null\nsize=1g\nbs=4k\nrw=randread\nrate_iops=100\nnumber_ios=20\nthread=1\n";
const FAST: &str = "[a]\nioengine=null\nsize=4g\nbs=4k\nrw=randread\nthread=1\n";

/// The change in iops as the comparison has it: (low, mean, high).
fn iops_change(result: &Value) -> (f64, f64, f64) {
    let effects = result["effects"].as_array().unwrap();
    let change = &effects.iter().find(|effect| effect["figure"] == "iops").unwrap()["change"];
    let end = |end: &str| change[end].as_f64().unwrap();
    (end("low"), end("mean"), end("high"))
}

/// Reads per second of a run's only job.
fn iops(run: &Value) -> f64 {
    let job = &run["jobs"][0];
    job["directions"]["read"]["ops"].as_f64().unwrap() * 1e9 / job["runtime_ns"].as_f64().unwrap()
}

#[test]
fn a_slower_side_is_slower_and_the_status_says_so() {
    let place = directory();
    file(place.path(), "fast.fio", FAST);
    file(place.path(), "slow.fio", SLOW);
    let compare = ["compare", "fast.fio", "slow.fio", "--pairs=3", "--json", "--save=comparison.json"];
    let output = run(place.path(), &[&compare[..], &["--fail-if-slower=3%"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}{}", stdout(&output), stderr(&output));
    let result = json(&output);
    let runs = result["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    // The mean is that of the ratios of the runs, as the runs say them.
    let ratios = runs.iter().map(|pair| (iops(&pair[1]) / iops(&pair[0])).ln());
    let expected = (ratios.sum::<f64>() / 3.0).exp() - 1.0;
    let (low, mean, high) = iops_change(&result);
    assert!((mean - expected).abs() < 1e-6 && low <= mean && mean <= high && high < 0.0, "{}", result["effects"]);
    assert!(result["sentence"].as_str().unwrap().contains("slow.fio"), "{}", result["sentence"]);
    assert_eq!(json_file(&place.path().join("comparison.json")), result);

    // The other way round it is faster; and without a limit slower is no failure.
    succeed(place.path(), &["compare", "slow.fio", "fast.fio", "--pairs=2", "--fail-if-slower=3%"]);
    succeed(place.path(), &["compare", "fast.fio", "slow.fio", "--pairs=2"]);
}

#[test]
fn two_results_are_compared_without_running_anything() {
    let place = directory();
    for (name, job) in [("fast", FAST), ("slow", SLOW)] {
        // Samples enough on a machine ten times as fast.
        file(place.path(), "job.fio", job.replace("[a]", "[a]\nbwavgtime=5"));
        succeed(place.path(), &["run", "job.fio", &format!("--save={name}.json"), "--output-format=json"]);
    }
    let output = run(place.path(), &["compare", "fast.json", "slow.json", "--fail-if-slower=3%", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}{}", stdout(&output), stderr(&output));
    let (low, mean, high) = iops_change(&json(&output));
    assert!(-1.0 <= low && low <= mean && mean <= high && high < 0.0 && mean < -0.5, "{low} {mean} {high}");
}

#[test]
fn two_engines_run_the_same_job() {
    let place = directory();
    file(place.path(), "job.fio", "[a]\nfilename=data\nsize=1m\nrw=randread\nthread=1\n");
    let output = succeed(place.path(), &["compare", "--engine=psync,null", "job.fio", "--pairs=2", "--json"]);
    let result = json(&output);
    assert_eq!(result["sides"], serde_json::json!(["psync", "null"]));
    assert_eq!(result["runs"][0][1]["jobs"][0]["facts"]["engine"], "null");
}

#[test]
fn text_has_the_sentence() {
    let place = directory();
    file(place.path(), "a.fio", FAST);
    file(place.path(), "b.fio", SLOW);
    let output = succeed(place.path(), &["compare", "a.fio", "b.fio", "--pairs=2"]);
    let text = stdout(&output);
    assert!(text.contains("IOPS") && text.contains("b.fio") && text.contains('%'), "{text}");
}

//! compare: an effect with its interval, a sentence, and a status for scripts.

mod common;
use common::*;
use serde_json::Value;

/// A job that is held to a rate by its arrivals: what is compared does not depend on the machine.
fn job_of(rate: u32) -> String {
    format!(
        "[a]\nioengine=null\nsize=1g\nbs=4k\nrw=randread\nrate_iops={rate}\ntime_based=1\nruntime=300ms\nthread=1\n"
    )
}

fn iops_change(result: &Value) -> f64 {
    let effects = result["effects"].as_array().unwrap();
    effects.iter().find(|effect| effect["figure"] == "iops").unwrap()["change"]["mean"].as_f64().unwrap()
}

#[test]
fn half_the_rate_is_slower_and_the_status_says_so() {
    let place = directory();
    file(place.path(), "fast.fio", job_of(2000));
    file(place.path(), "slow.fio", job_of(1000));
    let compare = ["compare", "fast.fio", "slow.fio", "--pairs=3", "--json", "--save=comparison.json"];
    let output = run(place.path(), &[&compare[..], &["--fail-if-slower=3%"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let result = json(&output);
    assert!((iops_change(&result) + 0.5).abs() < 0.1, "{}", result["effects"]);
    assert!(result["sentence"].as_str().unwrap().contains("slow.fio"), "{}", result["sentence"]);
    assert_eq!(result["runs"].as_array().unwrap().len(), 3);
    assert_eq!(json_file(&place.path().join("comparison.json")), result);

    // The other way round it is faster; and without a limit slower is no failure.
    succeed(place.path(), &["compare", "slow.fio", "fast.fio", "--pairs=2", "--fail-if-slower=3%"]);
    succeed(place.path(), &["compare", "fast.fio", "slow.fio", "--pairs=2"]);
}

#[test]
fn two_results_are_compared_without_running_anything() {
    let place = directory();
    for (name, rate) in [("fast", 2000), ("slow", 1000)] {
        file(place.path(), "job.fio", job_of(rate).replace("300ms", "1s").replace("[a]", "[a]\nbwavgtime=50"));
        succeed(place.path(), &["run", "job.fio", &format!("--save={name}.json"), "--output-format=json"]);
    }
    let output = run(place.path(), &["compare", "fast.json", "slow.json", "--fail-if-slower=3%", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!((iops_change(&json(&output)) + 0.5).abs() < 0.1);
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
    file(place.path(), "a.fio", job_of(1000));
    file(place.path(), "b.fio", job_of(500));
    let output = succeed(place.path(), &["compare", "a.fio", "b.fio", "--pairs=2"]);
    let text = stdout(&output);
    assert!(text.contains("IOPS") && text.contains("b.fio") && text.contains('%'), "{text}");
}

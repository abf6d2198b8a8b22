//! compare: an effect with its interval, a sentence, and a status for scripts.

mod common;
use common::*;
use serde_json::Value;

/// A job that can't be faster than a hundred ops a second, and one that nothing holds back: hundreds of times as fast
/// on a machine however slow, even when either stands still for seconds. Both end with their work.
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

    // The other way round it is faster; and without a limit a slower result does not fail.
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

/// Reads of a file that was just written, through the page cache: invalid as a statement on storage.
const CACHED: &str = "[a]\nfilename=data\nioengine=psync\nsize=1m\nrw=read\ninvalidate=0\nthread=1\n";

#[test]
fn an_invalid_run_is_told_in_text_in_json_and_by_the_status() {
    let place = directory();
    file(place.path(), "data", vec![1; 1 << 20]);
    file(place.path(), "a.fio", CACHED);
    file(place.path(), "b.fio", CACHED.replace("rw=read", "rw=randread"));
    for more in [&[][..], &["--fail-if-slower=3%"]] {
        let output =
            run(place.path(), &[&["compare", "a.fio", "b.fio", "--pairs=2", "--save=both.json"], more].concat());
        assert_eq!(output.status.code(), Some(4), "{}{}", stdout(&output), stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("invalid page-cache-read: A: ") && text.contains("Invalid (page-cache-read)"), "{text}");
    }
    let saved = json_file(&place.path().join("both.json"));
    let told = |side: &str| {
        let is_it = |verdict: &&Value| {
            verdict["code"] == "page-cache-read" && verdict["what"].as_str().unwrap().starts_with(side)
        };
        saved["verdicts"].as_array().unwrap().iter().any(|verdict| is_it(&verdict))
    };
    assert!(told("A: ") && told("B: "), "{}", saved["verdicts"]);
    // Two results that were measured apart carry their verdicts, too.
    for name in ["a", "b"] {
        let job = format!("{name}.fio");
        succeed(place.path(), &["run", &job, "--bwavgtime=1", &format!("--save={name}.json"), "--output-format=json"]);
    }
    assert_eq!(run(place.path(), &["compare", "a.json", "b.json"]).status.code(), Some(4));
}

#[test]
fn a_figure_is_checked_before_anything_runs() {
    let place = directory();
    let writes = "[a]\nfilename=data\nsize=64k\nrw=write\nthread=1\n";
    file(place.path(), "a.fio", writes);
    file(place.path(), "b.fio", writes);
    let error = refused(place.path(), &["compare", "a.fio", "b.fio", "--figure=speed", "--fail-if-slower=3%"]);
    assert!(error.contains("speed") && error.contains("lat_p99"), "{error}");
    let error = refused(place.path(), &["compare", "a.fio", "b.fio", "--save=nowhere/result.json"]);
    assert!(error.contains("nowhere/result.json"), "{error}");
    assert_eq!(names(place.path()), ["a.fio", "b.fio"], "nothing was run");
}

#[test]
fn the_sentence_and_the_status_follow_the_figure() {
    let place = directory();
    file(place.path(), "fast.fio", FAST);
    file(place.path(), "slow.fio", SLOW);
    let compare = ["compare", "slow.fio", "fast.fio", "--pairs=2", "--figure=bw", "--fail-if-slower=3%", "--json"];
    let result = json(&succeed(place.path(), &compare));
    assert_eq!(result["figure"], "bw");
    assert!(result["sentence"].as_str().unwrap().contains("bandwidth"), "{}", result["sentence"]);
    // Twenty ops a run have no 99th percentile.
    let compare = ["compare", "slow.fio", "fast.fio", "--pairs=2", "--figure=lat_p99", "--fail-if-slower=3%"];
    let output = run(place.path(), &compare);
    assert_eq!(output.status.code(), Some(4), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("IOPS"), "the rest is shown all the same");
}

#[test]
fn options_that_differ_are_listed_and_different_blocks_are_warned_of() {
    let place = directory();
    file(place.path(), "a.fio", FAST);
    file(place.path(), "b.fio", FAST.replace("bs=4k", "bs=64k\niodepth=4"));
    let text = stdout(&succeed(place.path(), &["compare", "a.fio", "b.fio", "--pairs=2"]));
    for part in ["bs: A 4k, B 64k", "iodepth: A not given, B 4", "warning different-blocks: A moves blocks of 4 KiB"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(!text.contains("rw: A"), "{text}");
}

#[test]
fn results_of_fio_have_an_answer() {
    if !has_program("fio") {
        return;
    }
    let place = directory();
    for (name, size) in [("a", "1m"), ("b", "2m")] {
        let output = format!("--output={name}.json");
        let job = ["--name=x", "--ioengine=null", "--rw=randread", "--size", size, "--output-format=json", &output];
        tool("fio", &job, place.path());
    }
    let text = stdout(&succeed(place.path(), &["compare", "a.json", "b.json"]));
    for part in ["IOPS", "cannot tell", "no course over time", "size: A 1m, B 2m"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let output = run(place.path(), &["compare", "a.json", "b.json", "--fail-if-slower=3%"]);
    assert_eq!(output.status.code(), Some(4), "a gate that cannot tell does not open: {}", stderr(&output));
}

#[test]
fn two_engines_run_the_same_job() {
    let place = directory();
    file(place.path(), "job.fio", "[a]\nfilename=data\nsize=1m\nrw=randread\nthread=1\n");
    let output = succeed(place.path(), &["compare", "--engine=psync,null", "job.fio", "--pairs=2", "--json"]);
    let result = json(&output);
    let differ = serde_json::json!([{"job": "a", "option": "ioengine", "a": "psync", "b": "null"}]);
    assert_eq!(result["differences"], differ);
    assert_eq!(result["sides"], serde_json::json!(["psync", "null"]));
    assert_eq!(result["runs"][0][1]["jobs"][0]["facts"]["engine"], "null");
}

/// The job is judged by the engine that runs it, not by the one that it would have without `--engine`.
#[test]
fn two_engines_each_judge_the_job() {
    let place = directory();
    file(place.path(), "job.fio", "[a]\nfilename=data\nsize=1m\nrw=randread\niodepth=8\nfixedbufs=1\n");
    let output = succeed(place.path(), &["compare", "--engine=io_uring,null", "job.fio", "--pairs=2", "--json"]);
    let said = stderr(&output);
    assert!(!said.contains("psync") && !said.contains("iodepth=8 has"), "{said}");
    assert!(said.contains("fixedbufs=1 has no effect on job a: it belongs to io_uring"), "{said}");
    let output = succeed(place.path(), &["compare", "--engine=psync,null", "job.fio", "--pairs=2", "--json"]);
    let said = stderr(&output);
    assert!(said.contains("iodepth=8 has no effect: the engine psync has one request in flight"), "{said}");
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

/// Arrivals of a rate come later by the turns of the other side: nothing is caught up with.
#[test]
fn a_side_rests_with_its_rate() {
    let _ = before_other_programs(); // a quiet machine needs no priority
    let place = directory();
    let job = |name: &str, rate: u32| {
        let text = format!("[j]\nioengine=null\nsize=1g\nrw=randread\nbs=4k\niodepth=4\nrate_iops={rate}\n");
        file(place.path(), name, &text);
    };
    job("a.fio", 4000);
    job("b.fio", 2000);
    let result = json(&succeed(place.path(), &["compare", "--time=8s", "--json", "a.fio", "b.fio"]));
    let of = |side: &str| result["effects"][0][side]["mean"].as_f64().unwrap();
    // Turns that caught up with their rests would show twice these rates.
    assert!((3000.0..4100.0).contains(&of("a")) && (1500.0..2050.0).contains(&of("b")), "{}", result["effects"][0]);
    let runs = result["runs"].as_array().unwrap();
    assert!(runs.len() >= 5 && runs.iter().all(|pair| pair.as_array().unwrap().len() == 2), "{}", runs.len());
}

#[test]
fn sides_that_cannot_take_turns_are_refused() {
    let place = directory();
    file(place.path(), "a.fio", "[j]\nioengine=null\nsize=1g\nrw=randread\nbs=4k\n");
    file(place.path(), "late.fio", "[j]\nioengine=null\nsize=1g\nrw=randread\nbs=4k\nstartdelay=1\n");
    let said = refused(place.path(), &["compare", "--time=8s", "a.fio", "late.fio"]);
    assert!(said.contains("startdelay="), "{said}");
    let said = refused(place.path(), &["compare", "--time=1s", "a.fio", "a.fio"]);
    assert!(said.contains("give --time 8s"), "{said}");
    let said = refused(place.path(), &["compare", "--hosts=a,b", "a.fio", "a.fio"]);
    assert!(said.contains("this command runs on one host"), "{said}");
    succeed(place.path(), &["run", "a.fio", "--number_ios=1", "--save=a.json"]);
    let said = refused(place.path(), &["compare", "--time=8s", "a.json", "a.json"]);
    assert!(said.contains("already measured"), "{said}");
}

//! fio's schemas, held to what Debian's fio 3.33 wrote for tests/fio-3.33/job.fio.
//!
//! fio's file is read and written again: what comes out has the same keys in the same order with the same types, and
//! the same values as far as a summary carries them.

use measure::schema::{Document, RunResult};
use serde_json::Value;

const JSON: &str = include_str!("fio-3.33/json.json");
const PLUS: &str = include_str!("fio-3.33/json-plus.json");
const TERSE: [(u8, &str); 4] = [
    (2, include_str!("fio-3.33/terse-2.txt")),
    (3, include_str!("fio-3.33/terse.txt")),
    (4, include_str!("fio-3.33/terse-4.txt")),
    (5, include_str!("fio-3.33/terse-5.txt")),
];

fn read(text: &str) -> RunResult {
    match report::read_document(text.as_bytes()).unwrap() {
        Document::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

/// Every leaf with its path; the path of a member of an array has its index.
fn leaves(value: &Value, path: String, out: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(entries) => entries.iter().for_each(|(key, value)| leaves(value, format!("{path}/{key}"), out)),
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(index, value)| leaves(value, format!("{path}[{index}]"), out))
        }
        leaf => out.push((path, leaf.clone())),
    }
}

fn flat(text: &str) -> Vec<(String, Value)> {
    let mut out = Vec::new();
    leaves(&serde_json::from_str(text).unwrap(), String::new(), &mut out);
    // fio writes it since 3.35.
    out.retain(|(path, _)| !path.ends_with("/job_start"));
    out
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "integer",
        Value::String(_) => "text",
        _ => "other",
    }
}

#[test]
fn keys_order_and_types_are_fios() {
    for (theirs, plus) in [(JSON, false), (PLUS, true)] {
        let ours = report::fio_json::render(&read(theirs), plus);
        let shape = |text: &str| {
            flat(text).into_iter().map(|(path, value)| format!("{path}: {}", kind(&value))).collect::<Vec<_>>()
        };
        let (ours, theirs) = (shape(&ours), shape(theirs));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours.len(), theirs.len());
        assert!(theirs.len() > 500);
    }
}

#[test]
fn values_survive_being_read_and_written() {
    let ours = flat(&report::fio_json::render(&read(PLUS), true));
    let theirs = flat(PLUS);
    // Not in a summary: samples over time, sizes of calls, the moment of writing, fio's own accounting.
    let lost = [
        "/bw_",
        "/iops_",
        "/iodepth_submit",
        "/iodepth_complete",
        "/fio version",
        "/time",
        "/eta",
        "/job_runtime",
        "/runtime",
    ];
    let mut compared = 0;
    for ((path, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        if lost.iter().any(|part| path.contains(part)) && !path.ends_with("bw_bytes") {
            continue;
        }
        compared += 1;
        // (relative, absolute)
        let (relative, absolute) = match path {
            // fio rounds the run time to milliseconds before it divides; CPU time comes back from percentages.
            path if path.ends_with("bw_bytes") || path.ends_with("/bw") || path.ends_with("_cpu") => (0.01, 0.02),
            // Percentages of ranges whose ends fall within one of fio's bins.
            path if path.contains("/latency_") => (0.0, 5.0),
            _ => (1e-6, 2e-6),
        };
        match (ours.as_f64(), theirs.as_f64()) {
            (Some(ours), Some(theirs)) => {
                assert!(
                    (ours - theirs).abs() <= relative * theirs.abs() + absolute,
                    "{path}: {ours}, fio has {theirs}"
                );
            }
            _ => assert_eq!(ours, theirs, "{path}"),
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn floats_have_six_decimals_and_the_layout_is_fios() {
    let ours = report::fio_json::render(&read(JSON), false);
    // Line by line, numbers aside, the text is the same.
    let skeleton = |text: &str| {
        let without_numbers = |line: &str| line.split_once(" : ").map_or(line, |(key, _)| key).to_string();
        text.lines().filter(|line| !line.contains("job_start")).map(without_numbers).collect::<Vec<_>>()
    };
    assert_eq!(skeleton(&ours), skeleton(JSON));
    assert!(ours.contains("\"latency_percentile\" : 100.000000,\n"));
}

#[test]
fn terse_has_fios_fields() {
    // A field's kind: percentages, percentile pairs, floats, integers, text.
    let kinds = |line: &str| -> Vec<&'static str> {
        let kind = |field: &str| match field {
            field if field.contains("%=") => "pair",
            field if field.ends_with('%') => "percent",
            field if field.parse::<u64>().is_ok() => "integer",
            field if field.parse::<f64>().is_ok() => "float",
            _ => "text",
        };
        line.split(';').map(kind).collect()
    };
    let run = read(PLUS);
    for (version, theirs) in TERSE {
        let ours = report::terse::render(&run, version);
        assert_eq!(ours.lines().count(), theirs.lines().count(), "version {version}");
        // fio's unified job is the last: its program wrote other sections than fio's file of JSON has.
        let but_last = theirs.lines().count() - 1;
        for (mine, fio) in ours.lines().zip(theirs.lines()).take(but_last) {
            assert_eq!(kinds(mine), kinds(fio), "version {version}:\n{mine}\n{fio}");
        }
        // The bytes of the group's reads, which do not depend on chance.
        let group = |text: &str| text.lines().rev().nth(1).map(str::to_string).unwrap();
        let amount = |text: &str| group(text).split(';').nth(if version == 2 { 4 } else { 5 }).unwrap().to_string();
        assert_eq!((amount(&ours), amount(theirs)), ("2048".into(), "2048".into()), "version {version}");
    }
}

#[test]
fn the_html_page_of_fios_file_has_its_figures() {
    let run = read(PLUS);
    let page =
        report::html::render(&[report::html::NamedDocument { name: "fio.json".into(), document: Document::Run(run) }]);
    assert!(page.contains("reads and writes with syncs") && page.contains("fio&#39;s JSON") && page.contains("libaio"));
}

#[test]
fn percentiles_that_fio_does_not_give_are_not_made_up() {
    let run = read(JSON);
    let job = &run.jobs[0];
    let read = &job.directions.read;
    // The summary has percentiles of clat alone; those of slat are unknown, those of lat follow clat's.
    assert!(read.clat_ns.has_shape() && read.lat_ns.has_shape());
    let (clat, lat) = (read.clat_ns.quantile(0.9) as f64, read.lat_ns.quantile(0.9) as f64);
    assert!((lat / clat - 1.0).abs() < 0.1, "{clat} {lat}");
    let text = report::text::run(&run, report::text::Style::default());
    let slat = text.lines().find(|line| line.trim_start().starts_with("slat")).expect("libaio has slat");
    assert!(slat.contains(" - "), "{slat}");
}

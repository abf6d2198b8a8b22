//! Reading results back: what was written comes back, anything else is refused in one line, nothing panics.

mod sample;

use measure::schema::{Document, SCHEMA_VERSION};
use proptest::prelude::*;
use report::html::{NamedDocument, render};
use report::read_document;

fn documents() -> Vec<Document> {
    let mut sweep = sample::sweep();
    sweep.curves.truncate(1);
    sweep.curves[0].points.truncate(4);
    vec![
        Document::Run(sample::run()),
        Document::Sweep(sweep),
        Document::Comparison(sample::comparison()),
        Document::Files(sample::files()),
    ]
}

#[test]
fn our_documents_come_back_as_they_were() {
    for written in documents() {
        let text = serde_json::to_string(&written).unwrap();
        let read = read_document(text.as_bytes()).unwrap();
        assert!(serde_json::to_string(&read).unwrap() == text, "not what was written");
    }
}

#[test]
fn refusals_say_what_the_file_is() {
    let newer = serde_json::to_string(&documents()[0])
        .unwrap()
        .replace(&format!("\"schema\":{SCHEMA_VERSION}"), "\"schema\":99");
    let cut = &serde_json::to_string(&documents()[0]).unwrap()[..500];
    for (bytes, expected) in [
        (&b""[..], "it is empty"),
        (b"\xff\xfe\x00", "it is not text"),
        (b"[1, 2]", "not an object"),
        (b"{\"a\": 1, \"b\": 2}", "keys a, b"),
        (b"hello", "it is not JSON"),
        (b"3;fio-3.33;a;0;0;4096", "terse"),
        (b"a: (groupid=0, jobs=1): err= 0: pid=1\n  read: IOPS=1k", "human output"),
        (b"{\"fio version\": \"fio-3.33\"}", "without jobs"),
        (b"{\"kind\": \"run\"}", "does not fit its schema"),
        (newer.as_bytes(), "newer plimsoll wrote it (schema 99"),
        (cut.as_bytes(), "cut off"),
    ] {
        let error = read_document(bytes).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn impossible_counts_are_refused() {
    let text = serde_json::to_string(&documents()[0]).unwrap();
    let edited = text.replacen("\"short_ops\":0", "\"short_ops\":18446744073709551615", 1);
    assert_ne!(edited, text);
    assert!(read_document(edited.as_bytes()).unwrap_err().to_string().contains("impossible"));
}

#[test]
fn warnings_before_and_after_fios_json_are_skipped() {
    let fio = include_str!("fio-3.33/json.json");
    let text = format!("fio: terse and JSON: a warning {{sic}}\n{fio}\nfio: another\n");
    let Document::Run(run) = read_document(text.as_bytes()).unwrap() else { panic!() };
    assert_eq!(run.jobs.len(), 3);
    assert_eq!(run.jobs[0].directions.read.ops + run.jobs[0].directions.write.ops, 256);
}

#[test]
fn fio_2_in_microseconds_is_read_in_nanoseconds() {
    let text =
        br#"{"fio version": "fio-2.16", "jobs": [{"jobname": "a", "read": {"io_bytes": 1024, "bw": 2048, "iops": 512.5,
        "runtime": 500, "total_ios": 256, "lat": {"min": 10, "max": 90, "mean": 40.5, "stddev": 3.0}}}]}"#;
    let Document::Run(run) = read_document(text).unwrap() else { panic!() };
    let lat = &run.jobs[0].directions.read.lat_ns;
    assert_eq!((lat.min(), lat.max(), lat.mean().round()), (10_000, 90_000, 40_500.0));
}

#[test]
fn the_errors_that_fio_tolerated_are_not_forgotten() {
    let text = br#"{"fio version": "fio-3.33", "jobs": [{"jobname": "a", "total_err": 7, "first_error": 5,
        "read": {"io_bytes": 0, "total_ios": 0}, "write": {"io_bytes": 1024, "iops": 512.5, "total_ios": 256}}]}"#;
    let Document::Run(run) = read_document(text).unwrap() else { panic!() };
    assert_eq!(run.jobs[0].directions.write.failed_ops, 7);
    assert!(run.jobs[0].verdicts.iter().any(|verdict| verdict.code == "errors-tolerated"), "{:?}", run.jobs[0].checks);
}

/// Every use of a document that was accepted.
fn use_all(document: Document) {
    let style = report::text::Style::default();
    match &document {
        Document::Run(run) => {
            report::text::run(run, style);
            let json = report::fio_json::render(run, true);
            serde_json::from_str::<serde_json::Value>(&json).expect("fio's JSON is JSON");
            (2..=5).for_each(|version| drop(report::terse::render(run, version)));
            report::ndjson::render(run);
            measure::effect::unpaired(run, run);
            run.jobs.iter().for_each(|job| drop(measure::verdict::for_job(job)));
        }
        Document::Sweep(sweep) => {
            report::text::sweep(sweep, style);
            sweep.curves.iter().for_each(|curve| {
                measure::load_line::find(&curve.points);
            });
        }
        Document::Comparison(comparison) => drop(report::text::comparison(comparison, style)),
        Document::Files(files) => drop(report::text::files(files, style)),
    }
    render(&[NamedDocument { name: "a".into(), document }]);
}

fn corpus() -> Vec<String> {
    let mut all: Vec<String> = documents().iter().map(|document| serde_json::to_string(document).unwrap()).collect();
    all.push(include_str!("fio-3.33/json.json").into());
    all.push(include_str!("fio-3.33/json-plus.json").into());
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_document(&bytes);
    }

    /// Numbers of a real document replaced by hostile ones: refused, or good for every report.
    #[test]
    fn hostile_numbers_do_no_harm(
        which in 0usize..5,
        places in proptest::collection::vec((any::<u32>(), 0usize..11), 1..6),
    ) {
        const HOSTILE: [&str; 11] = ["0", "1", "-1", "18446744073709551615", "9223372036854775807", "1e308", "-1e308", "0.5", "null", "\"x\"", "72057594037927936"];
        let mut text = corpus().swap_remove(which);
        for (place, hostile) in places {
            let starts: Vec<usize> = text
                .as_bytes()
                .windows(2)
                .enumerate()
                .filter(|(_, pair)| matches!(pair[0], b':' | b'[' | b',' | b' ') && pair[1].is_ascii_digit())
                .map(|(index, _)| index + 1)
                .collect();
            if starts.is_empty() {
                break;
            }
            let start = starts[place as usize % starts.len()];
            let end = start + text[start..].find(|c: char| !matches!(c, '0'..='9' | '.' | 'e' | '+' | '-')).unwrap_or(0);
            text.replace_range(start..end, HOSTILE[hostile]);
        }
        if let Ok(document) = read_document(text.as_bytes()) {
            use_all(document);
        }
    }
}

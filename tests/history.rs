//! `plimsoll history`: results by time, changes that are there, no changes that are not, and a status for scripts.

mod common;
use common::*;
use std::path::Path;

const DAY_MS: u64 = 86_400_000;

/// Sweeps of one target, a day apart, in files whose names do not follow the time.
fn results(directory: &Path, plateaus: &[f64]) {
    for (day, plateau) in plateaus.iter().enumerate() {
        let name = format!("{}.json", (day * 7) % 31);
        file(directory, &name, swept("/dev/sda", (20_000 + day as u64) * DAY_MS, *plateau, 16.0));
    }
}

/// A level with a scatter that has no order.
fn level(iops: f64, count: usize) -> Vec<f64> {
    (0..count).map(|index| iops * (1.0 + 0.002 * f64::from((index as u32 * 5) % 7))).collect()
}

fn history(directory: &Path, more: &[&str]) -> std::process::Output {
    run(directory, &[&["history", "."], more].concat())
}

#[test]
fn a_change_is_named_with_its_day_and_its_size() {
    let place = directory();
    results(place.path(), &[level(100_000.0, 9), level(80_000.0, 7)].concat());
    let text = stdout(&succeed(place.path(), &["history", "."]));
    assert!(text.starts_with("host1 /dev/sda io_uring\n"), "{text}");
    let days: Vec<&str> =
        text.lines().filter_map(|line| line.split_once(".json").map(|(_, rest)| rest.trim())).collect();
    assert!(days.len() == 16 && days.is_sorted(), "by time: {text}");
    let change = text.lines().find(|line| line.contains("plateau changed at 2024-10-13")).expect("a change");
    assert!(change.contains("-20") && change.contains("95 % interval") && change.ends_with(", p = 0.001"), "{change}");
    assert_eq!(text.matches("changed at").count(), 1, "the load line did not change: {text}");

    let seen = json(&succeed(place.path(), &["history", ".", "--json"]));
    let changes = &seen[0]["changes"];
    assert_eq!(
        (&changes["plateau_iops"][0]["index"], changes["load_line"].as_array().map(Vec::len)),
        (&9.into(), Some(0))
    );
    assert!(changes["plateau_iops"][0]["p"].as_f64().unwrap() <= 0.025);

    assert_eq!(history(place.path(), &["--fail-if-slower", "5%"]).status.code(), Some(3));
    assert_eq!(history(place.path(), &["--fail-if-slower", "30%"]).status.code(), Some(0));
    let page = stdout(&succeed(place.path(), &["history", ".", "--html", "h.html"]));
    assert_eq!(page, text);
    let page = std::fs::read_to_string(place.path().join("h.html")).unwrap();
    assert!(page.contains("The results changed") && page.contains("<svg") && !page.contains("<script"), "a page");
}

/// A sweep whose connections broke is named with its counts in the text, in JSON and on the page.
#[test]
fn a_disturbed_sweep_is_named() {
    let place = directory();
    results(place.path(), &level(100_000.0, 2));
    let text = stdout(&succeed(place.path(), &["history", "."]));
    assert!(!text.contains("disturbed"), "{text}");
    let mut sweep = json_file(&place.path().join("7.json"));
    let point = |lost: u32| {
        let mut point = measure::schema::Point { x: lost.into(), ..Default::default() };
        point.job.disturbances.connections_lost = lost.into();
        serde_json::to_value(point).unwrap()
    };
    sweep["curves"][0]["points"] = vec![point(2), point(3)].into();
    file(place.path(), "7.json", sweep.to_string());
    let text = stdout(&succeed(place.path(), &["history", "."]));
    let said = "7.json was disturbed: 5 connections lost";
    assert!(text.contains(said) && page_of(place.path()).contains(said), "{text}");
    let seen = json(&succeed(place.path(), &["history", ".", "--json"]));
    let mut counts = seen[0]["results"].as_array().unwrap().iter().map(|one| &one["disturbances"]["connections_lost"]);
    assert!(counts.clone().count() == 2 && counts.any(|count| count == 5), "{seen}");
}

#[test]
fn a_gain_is_a_change_and_no_failure() {
    let place = directory();
    results(place.path(), &[level(80_000.0, 10), level(100_000.0, 10)].concat());
    let text = stdout(&succeed(place.path(), &["history", "."]));
    let change = text.lines().find(|line| line.contains("changed at")).expect("a change");
    assert!(change.ends_with(", p < 0.001"), "never certain: {change}");
    assert_eq!(history(place.path(), &["--fail-if-slower", "5%"]).status.code(), Some(0));
}

#[test]
fn steady_results_have_no_change_and_few_results_say_nothing() {
    let place = directory();
    results(place.path(), &level(100_000.0, 14));
    let text = stdout(&succeed(place.path(), &["history", "."]));
    assert!(text.contains("no significant change over 14 results"), "{text}");
    assert_eq!(history(place.path(), &["--fail-if-slower", "1%"]).status.code(), Some(0));

    let place = directory();
    results(place.path(), &[100_000.0, 50_000.0, 40_000.0]);
    assert!(stdout(&succeed(place.path(), &["history", "."])).contains("a change can be told from 9 on"));
    let page = page_of(place.path());
    assert!(page.contains("Too few results to tell a change") && page.contains("<svg"), "nothing is said to be steady");
    let output = history(place.path(), &["--fail-if-slower", "1%"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

/// The page of a directory, which is written elsewhere.
fn page_of(results: &Path) -> String {
    let place = directory();
    let path = place.path().join("h.html");
    succeed(results, &["history", ".", "--html", path.to_str().unwrap()]);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn results_without_a_plateau_get_their_reason_and_no_empty_chart() {
    let place = directory();
    for day in 0..10 {
        let result = swept("/dev/sda", (20_000 + day) * DAY_MS, 100_000.0, 16.0);
        let mut result: serde_json::Value = serde_json::from_str(&result).unwrap();
        let line = &mut result["curves"][0]["line"];
        (line["load_line"], line["unnamed"]) = (serde_json::Value::Null, "the machine changed".into());
        file(place.path(), &format!("{day}.json"), result.to_string());
    }
    let page = page_of(place.path());
    assert!(page.contains("Too few results to tell a change") && page.contains("3.json names no plateau: the machine"));
    assert!(!page.contains("by time"), "an empty chart");
}

#[test]
fn other_files_of_a_directory_are_skipped_and_other_arguments_refused() {
    let place = directory();
    results(place.path(), &[100_000.0]);
    file(place.path(), "other.json", "{}");
    file(place.path(), "notes.txt", "hello");
    let output = succeed(place.path(), &["history", "."]);
    assert!(stderr(&output).contains("1 JSON files are not results of sweeps"), "{}", stderr(&output));
    assert!(stdout(&output).contains("0.json"));
    assert!(
        refused(place.path(), &["history", "notes.txt"]).contains("cannot take notes.txt as a result: it is not JSON")
    );
    assert!(refused(place.path(), &["history", "missing"]).contains("missing"));
    std::fs::create_dir(place.path().join("empty")).unwrap();
    assert!(refused(place.path(), &["history", "empty"]).contains("no result of a sweep over iodepth"));
    assert!(refused(place.path(), &["history", "0.json", "--html", "no/such/h.html"]).contains("no/such"));
}

/// Results lie by their date, and a kernel, a firmware or a version that was replaced is marked and told.
#[test]
fn parts_of_the_system_that_changed_are_named() {
    let place = directory();
    results(place.path(), &level(100_000.0, 12));
    let mut names: Vec<_> = (0..12).map(|day| format!("{}.json", (day * 7) % 31)).collect();
    for (index, name) in names.drain(..).enumerate() {
        let path = place.path().join(&name);
        let mut sweep = json_file(&path);
        sweep["provenance"]["machine"]["kernel"] = if index < 5 { "Linux 6.1.0" } else { "Linux 6.12.48" }.into();
        sweep["provenance"]["version"] = if index < 9 { "0.1.0" } else { "0.2.0" }.into();
        file(place.path(), &name, sweep.to_string());
    }
    let text = stdout(&succeed(place.path(), &["history", "."]));
    assert!(text.contains("kernel changed at 2024-10-09 00:00:00 UTC: Linux 6.1.0 -> Linux 6.12.48"), "{text}");
    assert!(text.contains("version of Plimsoll changed at 2024-10-13 00:00:00 UTC: 0.1.0 -> 0.2.0"), "{text}");
    let seen = json(&succeed(place.path(), &["history", ".", "--json"]));
    assert_eq!(seen[0]["results"][5]["kernel"], "Linux 6.12.48", "{seen}");
    let page = page_of(place.path());
    for part in [">kernel</text>", ">version of Plimsoll</text>", ">2024-10-08</text>", "date (UTC)"] {
        assert!(page.contains(part), "{part}");
    }
}

/// A pipe has room for whole names; other files of `*.json` are left out.
#[test]
fn names_are_whole_in_a_pipe() {
    let place = directory();
    let name = format!("plimsoll-sweep-of-a-volume-with-{}.json", "a-very-long-name-".repeat(8));
    file(place.path(), &name, swept("/dev/sda", DAY_MS, 100_000.0, 16.0));
    file(place.path(), "other.json", "{}");
    let output = succeed(place.path(), &["history", &name, "other.json"]);
    assert!(stdout(&output).contains(&name), "{}", stdout(&output));
    assert!(stderr(&output).contains("other.json is left out"), "{}", stderr(&output));
}

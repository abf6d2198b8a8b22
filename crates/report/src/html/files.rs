//! A run on files on the page: rates of the phases, latencies of operations and calls.

use std::fmt::Write;

use measure::Histogram;
use measure::OverTime;
use measure::figures::{bytes_per_second, count, nanoseconds, percent};
use measure::schema::{Document, FilesResult, OperationResult, PhaseResult, Work};

use super::frame::wide_and_narrow;
use super::{NamedDocument, Table, cards, distribution_chart, disturbed, drawn, folded, grid, percentile_chart};
use crate::svg::rows::{Mark, Row, Rows};
use crate::svg::{Picture, escape};
use crate::text::{OVER_ITERATIONS, described_files, grouped, over_iterations};

/// The rate of each phase, in one sentence.
pub(super) fn headline(result: &FilesResult) -> String {
    let rate = |phase: &PhaseResult| {
        let rate = count(phase.total.files_per_second(phase.runtime_ns));
        format!("{} {rate} {}/s", phase.name, counted(phase))
    };
    result.phases.iter().map(rate).collect::<Vec<_>>().join(", ")
}

/// The section of a page on one run on files.
pub(super) fn section(result: &FilesResult) -> String {
    let mut out = format!("<h2>All phases<small>{}</small></h2>", escape(&described_files(result)));
    if let Some(error) = &result.error {
        let _ = write!(out, "<p class=\"sentence\">error {}: {}</p>", error.errno, escape(&error.message));
    }
    let rates = rates(&result.phases);
    out.push_str(&grid(
        [
            wide_and_narrow(|width| rates.svg(width)),
            percentile_chart("Latency percentiles of whole operations", whole_operations(&result.phases))
                .map_or_else(String::new, drawn),
        ]
        .into_iter()
        .filter(|drawing| !drawing.is_empty()),
    ));
    out.push_str(&overview(&result.phases));
    out.push_str(&iterations(&result.phases));
    if let Some(hosts) = &result.hosts {
        out.push_str(&super::hosts::section(hosts, &[], &result.phases));
    }
    for (index, phase) in result.phases.iter().enumerate() {
        out.push_str(&folded(&format!("Phase {}: {}", index + 1, phase.name), index == 0, &one_phase(phase)));
    }
    out
}

/// The charts of a run on files that stand alone.
pub(super) fn pictures(result: &FilesResult) -> Vec<Picture> {
    let latencies = percentile_chart("Latency percentiles of whole operations", whole_operations(&result.phases));
    std::iter::once(Picture::from(&rates(&result.phases))).chain(latencies.iter().map(Picture::from)).collect()
}

/// The things that a phase counts: files, or entries if it lists directories and does nothing else.
fn counted(phase: &PhaseResult) -> &'static str {
    if phase.only_lists() { "entries" } else { "files" }
}

/// Files or entries a second of each phase, over its whole time.
fn rates(phases: &[PhaseResult]) -> Rows {
    let rate = |phase: &PhaseResult| phase.total.files_per_second(phase.runtime_ns);
    let row = |phase: &PhaseResult| Row {
        name: phase.name.clone(),
        mark: Mark::Bar(rate(phase)),
        said: format!("{} {}", count(rate(phase)), counted(phase)),
        colour: "s0",
    };
    let rows: Vec<Row> = phases.iter().map(row).collect();
    let in_words = rows.iter().map(|row| format!("{} {}", row.name, row.said)).collect::<Vec<_>>().join(", ");
    Rows {
        title: "Work a second in each phase".into(),
        description: format!("Files, or entries of directories, a second: {in_words}."),
        rows,
        range: (0.0, phases.iter().map(rate).fold(f64::MIN_POSITIVE, f64::max)),
        ends_low: false,
        whole: false,
        write: count,
        axis: String::new(),
    }
}

/// The latencies of whole operations of each phase; phases that mix operations have one of each.
fn whole_operations(phases: &[PhaseResult]) -> Vec<(String, Histogram)> {
    let named = |phase: &PhaseResult, operation: &OperationResult| match phase.name == operation.operation {
        true => phase.name.clone(),
        false => format!("{}: {}", phase.name, operation.operation),
    };
    let of = |phase: &PhaseResult| {
        phase.operations.iter().map(|one| (named(phase, one), one.lat_ns.clone())).collect::<Vec<_>>()
    };
    phases.iter().flat_map(of).collect()
}

/// True if the phase moves data; operations on names and attributes have no bandwidth.
fn moves_data(phase: &PhaseResult) -> bool {
    phase.total.bytes > 0
}

/// A cell with the text, or a dash where there is nothing to tell.
fn if_any(any: bool, text: String) -> (&'static str, String) {
    ("", if any { text } else { "-".to_string() })
}

/// A table of all phases. Columns that would hold zeros alone are left out, and operations on names and attributes have
/// no IOPS and no bandwidth.
fn overview(phases: &[PhaseResult]) -> String {
    let with_records = phases.iter().any(|phase| phase.total.records > 0);
    let with_data = phases.iter().any(moves_data);
    let with_failed = phases.iter().any(|phase| phase.total.failed > 0);
    // A listing counts the entries of its directories.
    let lists = phases.iter().any(|phase| phase.total.directories > 0);
    let (counted, rate) = if lists { ("files, entries", "of them a second") } else { ("files", "files/s") };
    let to_the_wall = format!("{rate} to the stonewall");
    let mut header = vec!["phase", counted, "time", rate, to_the_wall.as_str()];
    header.extend(with_records.then_some("IOPS"));
    header.extend(with_data.then_some("bandwidth"));
    header.extend(with_failed.then_some("failed"));
    header.extend(lists.then_some("directories"));
    let mut table = Table::new("All phases", &header);
    for phase in phases {
        let (total, ns) = (&phase.total, phase.runtime_ns);
        let mut cells = vec![
            ("", phase.name.clone()),
            ("", grouped(total.files)),
            ("", nanoseconds(ns as f64)),
            ("", count(total.files_per_second(ns))),
            ("", count(phase.at_stonewall.files_per_second(phase.stonewall_ns))),
        ];
        cells.extend(with_records.then(|| if_any(total.records > 0, count(total.iops(ns)))));
        cells.extend(with_data.then(|| if_any(moves_data(phase), bytes_per_second(total.bytes_per_second(ns)))));
        cells.extend(with_failed.then(|| ("", grouped(total.failed))));
        cells.extend(lists.then(|| if_any(total.directories > 0, grouped(total.directories))));
        table.row("", &cells);
    }
    let about = "The stonewall is the moment at which the first thread is through: until then all threads are at work.";
    format!("{}<p class=\"about\">{about}</p>", table.end())
}

/// A table of the phases that were done several times; empty for a run without iterations.
fn iterations(phases: &[PhaseResult]) -> String {
    let rows = over_iterations(phases);
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new("Over all iterations", &OVER_ITERATIONS);
    rows.into_iter().for_each(|row| table.row("", &row.map(|cell| ("", cell))));
    format!("<h3>Over all iterations</h3>{}", table.end())
}

fn one_phase(phase: &PhaseResult) -> String {
    let mut out = String::new();
    let operations: Vec<(String, Histogram)> =
        phase.operations.iter().map(|one| (format!("{}, whole", one.operation), one.lat_ns.clone())).collect();
    let calls: Vec<(String, Histogram)> =
        phase.calls.iter().map(|one| (one.call.clone(), one.lat_ns.clone())).collect();
    // An operation of one call is that call.
    let same = operations.len() == 1 && calls.len() == 1 && operations[0].1.sum() == calls[0].1.sum();
    let all = if same { calls.clone() } else { [operations, calls.clone()].concat() };
    let mut charts = Vec::new();
    charts.extend(distribution_chart("Latency distribution of calls", &calls));
    charts.extend(percentile_chart("Latency percentiles", all.clone()));
    out.push_str(&cards(charts));
    let mut table = Table::new(
        &format!("Latencies of {}", phase.name),
        &["latency", "calls", "mean", "p50", "p90", "p99", "p99.9", "max", "share of time"],
    );
    let all_ns: u128 = phase.calls.iter().map(|call| call.lat_ns.sum()).sum();
    for (name, lat_ns) in all.iter().filter(|(_, lat_ns)| !lat_ns.is_empty()) {
        let at = |q: f64| nanoseconds(lat_ns.quantile(q) as f64);
        table.row(
            "",
            &[
                ("", name.clone()),
                ("", grouped(lat_ns.count())),
                ("", nanoseconds(lat_ns.mean())),
                ("", at(0.5)),
                ("", at(0.9)),
                ("", at(0.99)),
                ("", at(0.999)),
                ("", nanoseconds(lat_ns.max() as f64)),
                ("", percent((lat_ns.sum() as f64 / (all_ns as f64).max(1.0)).min(1.0))),
            ],
        );
    }
    out.push_str(&table.end());
    out.push_str(&threads(phase));
    if let Some(course) = &phase.over_time {
        out.push_str(&over_time(course));
    }
    out.push_str(&disturbed(&phase.disturbances));
    for errors in &phase.errors {
        let text = format!("{} x {}: {}", grouped(errors.count), errors.call, errors.first);
        let _ = write!(out, "<p class=\"about\">failed: {}</p>", escape(&text));
    }
    out
}

/// The work of each process and thread of a phase; nothing for one thread alone.
fn threads(phase: &PhaseResult) -> String {
    if phase.threads.len() < 2 {
        return String::new();
    }
    let (with_records, with_data) = (phase.total.records > 0, moves_data(phase));
    let mut header = match counted(phase) {
        "entries" => vec!["thread", "entries", "time", "entries/s"],
        _ => vec!["thread", "files", "time", "files/s"],
    };
    header.extend(with_records.then_some("IOPS"));
    header.extend(with_data.then_some("bandwidth"));
    let mut table = Table::new(&format!("Threads of {}", phase.name), &header);
    let mut row = |class: &str, name: String, work: &Work, ns: u64| {
        let mut cells = vec![
            ("", name),
            ("", grouped(work.files)),
            ("", nanoseconds(ns as f64)),
            ("", count(work.files_per_second(ns))),
        ];
        cells.extend(with_records.then(|| ("", count(work.iops(ns)))));
        cells.extend(with_data.then(|| ("", bytes_per_second(work.bytes_per_second(ns)))));
        table.row(class, &cells);
    };
    phase.threads.iter().for_each(|one| row("", format!("thread {}", one.thread), &one.work, one.runtime_ns));
    let processes = phase.processes();
    if processes.len() > 1 {
        processes.iter().for_each(|(process, ns, work)| row("sum", format!("process {process}"), work, *ns));
    }
    row("sum", "all threads to the stonewall".into(), &phase.at_stonewall, phase.stonewall_ns);
    row("sum", "all threads, whole time".into(), &phase.total, phase.runtime_ns);
    table.end()
}

/// The response times of operations by the time at which they began.
fn over_time(course: &OverTime) -> String {
    let header = ["response times from", "operations", "mean", "p50", "p99", "max"];
    let mut table = Table::new("Response times over time", &header);
    for (index, lat_ns) in course.slices.iter().enumerate() {
        let shown = |ns: f64| if lat_ns.is_empty() { "-".into() } else { nanoseconds(ns) };
        table.row(
            "",
            &[
                ("", nanoseconds((index as u64 * course.every_ns) as f64)),
                ("", grouped(lat_ns.count())),
                ("", shown(lat_ns.mean())),
                ("", shown(lat_ns.quantile(0.5) as f64)),
                ("", shown(lat_ns.quantile(0.99) as f64)),
                ("", shown(lat_ns.max() as f64)),
            ],
        );
    }
    table.end()
}

/// A rate as a multiple of the first run's; a dash where that one did nothing.
fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("x {}", count(ratio)) } else { "-".into() }
}

/// The phases of several runs next to each other: FUSE against gfapi against the brick's own file system.
pub(super) fn side_by_side(documents: &[NamedDocument]) -> String {
    let runs: Vec<(&str, &FilesResult)> = documents
        .iter()
        .filter_map(|named| match &named.document {
            Document::Files(files) => Some((named.name.as_str(), files)),
            _ => None,
        })
        .collect();
    let [(_, first), others @ ..] = &runs[..] else { return String::new() };
    if others.is_empty() {
        return String::new();
    }
    let mut table = Table::new(
        "Files side by side",
        &["phase", "result", "files/s", "of the first", "IOPS", "bandwidth", "p50", "p99", "p99.9"],
    );
    for phase in &first.phases {
        let rate = |phase: &PhaseResult| phase.total.files_per_second(phase.runtime_ns);
        for (name, run) in &runs {
            let Some(other) = run.phases.iter().find(|other| other.name == phase.name) else { continue };
            let mut lat_ns = Histogram::new();
            other.operations.iter().for_each(|one| lat_ns.merge(&one.lat_ns));
            let at = |q: f64| if lat_ns.is_empty() { "-".into() } else { nanoseconds(lat_ns.quantile(q) as f64) };
            table.row(
                "",
                &[
                    ("", phase.name.clone()),
                    ("", format!("{name} ({})", run.facts.access)),
                    ("", count(rate(other))),
                    ("", times(rate(other) / rate(phase))),
                    if_any(other.total.records > 0, count(other.total.iops(other.runtime_ns))),
                    if_any(moves_data(other), bytes_per_second(other.total.bytes_per_second(other.runtime_ns))),
                    ("", at(0.5)),
                    ("", at(0.99)),
                    ("", at(0.999)),
                ],
            );
        }
    }
    format!("<h2>Files side by side</h2>{}", table.end())
}

//! A run on files on the page: rates of the phases, latencies of operations and calls.

use std::fmt::Write;

use measure::Histogram;
use measure::figures::{bytes_per_second, count, nanoseconds, percent};
use measure::schema::{Document, FilesResult, PhaseResult, Work};

use super::{NamedDocument, Table, cards, distribution_chart, percentile_chart};
use crate::svg::escape;
use crate::text::{described_files, grouped};

/// The rate of each phase, in one sentence.
pub(super) fn headline(result: &FilesResult) -> String {
    let rate = |phase: &PhaseResult| {
        let counted = if phase.only_lists() { "entries" } else { "files" };
        format!("{} {} {counted}/s", phase.name, count(phase.total.files_per_second(phase.runtime_ns)))
    };
    result.phases.iter().map(rate).collect::<Vec<_>>().join(", ")
}

/// The section of a page on one run on files.
pub(super) fn section(result: &FilesResult) -> String {
    let mut out = format!("<p class=\"about\">{}</p>", escape(&described_files(result)));
    if let Some(error) = &result.error {
        let _ = write!(out, "<p class=\"sentence\">error {}: {}</p>", error.errno, escape(&error.message));
    }
    // A listing counts the entries of its directories.
    let lists = result.phases.iter().any(|phase| phase.total.directories > 0);
    let counted = if lists { ["files, entries", "of them a second"] } else { ["files", "files/s"] };
    let to_the_wall = format!("{} to the stonewall", counted[1]);
    let mut heads = vec!["phase", counted[0], "time", counted[1], "IOPS", "bandwidth", &to_the_wall, "failed"];
    if lists {
        heads.push("directories");
    }
    let mut table = Table::new(&heads);
    for phase in &result.phases {
        let mut cells = vec![
            ("", phase.name.clone()),
            ("", grouped(phase.total.files)),
            ("", nanoseconds(phase.runtime_ns as f64)),
            ("", count(phase.total.files_per_second(phase.runtime_ns))),
            ("", count(phase.total.iops(phase.runtime_ns))),
            ("", bytes_per_second(phase.total.bytes_per_second(phase.runtime_ns))),
            ("", count(phase.at_stonewall.files_per_second(phase.stonewall_ns))),
            ("", grouped(phase.total.failed)),
        ];
        if lists {
            cells.push(("", grouped(phase.total.directories)));
        }
        table.row("", &cells);
    }
    out.push_str(&table.end());
    if let Some(hosts) = &result.hosts {
        out.push_str(&super::hosts::section(hosts, (&[], &result.phases)));
    }
    result.phases.iter().for_each(|phase| out.push_str(&one_phase(phase)));
    out
}

fn one_phase(phase: &PhaseResult) -> String {
    let mut out = format!("<h2>{}</h2>", escape(&phase.name));
    let operations: Vec<_> = phase.operations.iter().map(|one| (one.operation.clone(), one.lat_ns.clone())).collect();
    let calls: Vec<_> = phase.calls.iter().map(|one| (one.call.clone(), one.lat_ns.clone())).collect();
    let mut charts = Vec::new();
    charts.extend(distribution_chart("Latency of calls", &calls));
    charts.extend(percentile_chart("Latency percentiles", [operations.clone(), calls.clone()].concat()));
    if !charts.is_empty() {
        out.push_str(&cards(charts));
    }
    let mut table = Table::new(&["latency", "calls", "mean", "p50", "p90", "p99", "p99.9", "max", "share of time"]);
    let all_ns: u128 = phase.calls.iter().map(|call| call.lat_ns.sum()).sum();
    let named = operations
        .iter()
        .map(|(name, lat)| (format!("{name}, whole"), lat))
        .chain(calls.iter().map(|(name, lat)| (name.clone(), lat)));
    for (name, lat_ns) in named.filter(|(_, lat_ns)| !lat_ns.is_empty()) {
        let at = |q: f64| nanoseconds(lat_ns.quantile(q) as f64);
        table.row(
            "",
            &[
                ("", name),
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
    if phase.threads.len() > 1 {
        let counted = if phase.only_lists() { ["entries", "entries/s"] } else { ["files", "files/s"] };
        let mut table = Table::new(&["", counted[0], "time", counted[1], "IOPS", "bandwidth"]);
        let mut row = |name: String, work: &Work, ns: u64| {
            table.row(
                "",
                &[
                    ("", name),
                    ("", grouped(work.files)),
                    ("", nanoseconds(ns as f64)),
                    ("", count(work.files_per_second(ns))),
                    ("", count(work.iops(ns))),
                    ("", bytes_per_second(work.bytes_per_second(ns))),
                ],
            );
        };
        row("together".into(), &phase.total, phase.runtime_ns);
        row("to the stonewall".into(), &phase.at_stonewall, phase.stonewall_ns);
        let processes = phase.processes();
        if processes.len() > 1 {
            processes.iter().for_each(|(process, ns, work)| row(format!("process {process}"), work, *ns));
        }
        phase.threads.iter().for_each(|one| row(format!("thread {}", one.thread), &one.work, one.runtime_ns));
        out.push_str(&table.end());
    }
    for errors in &phase.errors {
        let text = format!("{} x {}: {}", grouped(errors.count), errors.call, errors.first);
        let _ = write!(out, "<p class=\"about\">failed: {}</p>", escape(&text));
    }
    out
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
    let mut table =
        Table::new(&["phase", "result", "files/s", "of the first", "IOPS", "bandwidth", "p50", "p99", "p99.9"]);
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
                    ("", percent(rate(other) / rate(phase).max(1e-9))),
                    ("", count(other.total.iops(other.runtime_ns))),
                    ("", bytes_per_second(other.total.bytes_per_second(other.runtime_ns))),
                    ("", at(0.5)),
                    ("", at(0.99)),
                    ("", at(0.999)),
                ],
            );
        }
    }
    format!("<h2>Files side by side</h2>{}", table.end())
}

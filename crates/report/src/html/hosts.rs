//! The hosts of a run, side by side.

use std::collections::BTreeMap;

use measure::Histogram;
use measure::figures::{bytes, nanoseconds, percent};
use measure::schema::{HostResult, HostsResult, JobResult, PhaseResult};

use super::frame::wide_and_narrow;
use super::{Table, distribution_chart, percentile_chart};
use crate::svg::rows::{Mark, Row, Rows};
use crate::svg::{Axis, Chart, Format, Series, escape};
use crate::text::{HostSheet, host_sheets, host_skew};

/// Curves that can be told apart.
const CURVES: usize = 8;

/// Hosts in the chart of starts.
const STARTS: usize = 24;

/// All hosts in one table, or in one for each phase; their courses and latencies in one chart each.
pub(super) fn section(hosts: &HostsResult, jobs: &[JobResult], phases: &[PhaseResult]) -> String {
    let mut out = String::from("<h2>Hosts</h2>");
    let sheets = host_sheets(hosts, jobs, phases);
    sheets.iter().for_each(|sheet| out.push_str(&table(hosts, sheet)));
    for failure in &hosts.failures {
        out.push_str(&format!(
            "<div class=\"verdict invalid whole\"><b>{}</b></div>",
            escape(&format!("rank {} on {}: {}", failure.rank, failure.host, failure.what))
        ));
    }
    out.push_str(&starts(hosts));
    let shown = slowest_and_fastest(hosts, &sheets[0]);
    let charts = courses(&shown).into_iter().chain(latencies(&shown, phases));
    out.push_str(&super::cards(charts));
    out
}

/// The hosts in one table; the last sheet has their machines, too.
fn table(hosts: &HostsResult, sheet: &HostSheet) -> String {
    let mut out = String::new();
    let machines = sheet.title.is_empty();
    let mut columns: Vec<&str> = sheet.columns.iter().map(String::as_str).collect();
    if machines {
        columns.extend(["CPUs", "memory", "kernel"]);
    } else {
        out.push_str(&format!("<h3>{}</h3>", escape(&sheet.title)));
    }
    let name = if machines { "Hosts".to_owned() } else { format!("Hosts in {}", sheet.title) };
    let mut table = Table::new(&name, &columns);
    for (host, row) in hosts.hosts.iter().zip(&sheet.rows) {
        let mut cells: Vec<(&str, String)> = row.cells.iter().map(|cell| ("", cell.clone())).collect();
        if machines {
            let machine = &host.machine;
            cells.push(("", machine.cpus.to_string()));
            cells.push(("", bytes(machine.memory_bytes as f64)));
            cells.push(("", machine.kernel.clone()));
        }
        table.row("", &cells);
    }
    let mut cells: Vec<(&str, String)> = sheet.all.iter().map(|cell| ("", cell.clone())).collect();
    cells.resize(columns.len(), ("", String::new()));
    table.row("sum", &cells);
    out.push_str(&table.end());
    out.push_str(&format!("<p class=\"about\">{}.</p>", escape(&sheet.about)));
    out
}

/// All hosts, or the slowest and the fastest of many: they say most.
fn slowest_and_fastest<'a>(hosts: &'a HostsResult, sheet: &HostSheet) -> Vec<&'a HostResult> {
    let rates = sheet.rows.iter().map(|row| row.rate);
    let mut shown: Vec<(&HostResult, f64)> = hosts.hosts.iter().zip(rates).collect();
    if shown.len() > CURVES {
        shown.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let fastest = shown.split_off(shown.len() - CURVES / 2);
        shown.truncate(CURVES / 2);
        shown.extend(fastest);
    }
    shown.into_iter().map(|(host, _)| host).collect()
}

/// The rates of the hosts over time; None if no host has two intervals.
fn courses(hosts: &[&HostResult]) -> Option<Chart> {
    let mut chart = Chart::new("Throughput of each host")
        .x(Axis::linear("time").format(Format::Seconds))
        .y(Axis::linear("IOPS").format(Format::Count));
    let mut any = false;
    for host in hosts {
        let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
        for job in &host.jobs {
            for interval in job.intervals.iter().filter(|interval| interval.length_ns * 2 >= job.interval_ns) {
                let ops: u64 = interval.ops.iter().map(|(_, &ops)| ops).sum();
                let place = interval.end_ns.div_ceil(job.interval_ns.max(1)) * job.interval_ns;
                *sums.entry(place).or_default() += ops as f64 * 1e9 / interval.length_ns.max(1) as f64;
            }
        }
        any |= sums.len() > 1;
        let points = sums.into_iter().map(|(end_ns, rate)| (end_ns as f64 / 1e9, rate)).collect();
        chart = chart.series(Series::line(&host.host, points));
    }
    any.then_some(chart)
}

/// The latencies of the hosts: of their jobs, or of each operation of each phase.
fn latencies(hosts: &[&HostResult], phases: &[PhaseResult]) -> Vec<Chart> {
    let latencies_of = |of: &dyn Fn(&HostResult) -> Histogram| -> Vec<(String, Histogram)> {
        hosts.iter().map(|host| (host.host.clone(), of(host))).collect()
    };
    let mut charts = Vec::new();
    if phases.is_empty() {
        let latencies = latencies_of(&HostResult::lat_ns);
        charts.push(percentile_chart("Latency percentiles of each host", latencies.clone()));
        charts.push(distribution_chart("Latency distribution of each host", &latencies));
    }
    for (index, phase) in phases.iter().enumerate() {
        for (nth, operation) in phase.operations.iter().enumerate() {
            let of_host = |host: &HostResult| {
                let found = host.phases.get(index).and_then(|phase| phase.operations.get(nth));
                found.map_or_else(Histogram::new, |found| found.lat_ns.clone())
            };
            let of = if phase.operations.len() > 1 { format!("{} in ", operation.operation) } else { String::new() };
            let title = format!("{of}{}: latency percentiles of each host", phase.name);
            charts.push(percentile_chart(&title, latencies_of(&of_host)));
        }
    }
    charts.into_iter().flatten().collect()
}

/// When each host began, in words and as a chart; nothing if no host says when.
fn starts(hosts: &HostsResult) -> String {
    let mut rows: Vec<(i64, Row)> = hosts.hosts.iter().filter_map(start).collect();
    if rows.is_empty() {
        return String::new();
    }
    // The earliest and the latest say most.
    rows.sort_by_key(|(furthest, _)| *furthest);
    let omitted = rows.len().saturating_sub(STARTS);
    if omitted > 0 {
        rows.drain(STARTS / 2..rows.len() - STARTS / 2);
    }
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let ends = rows.iter().flat_map(|row| match row.mark {
        Mark::Span(low, _, high) => [low, high],
        Mark::Bar(to) => [0.0, to],
        Mark::Nothing => [0.0, 0.0],
    });
    let (low, high) = ends.fold((0.0f64, 1000.0f64), |(low, high), end| (low.min(end), high.max(end)));
    let room = (high - low) * 0.05;
    let in_words = rows.iter().map(|row| format!("{} {}", row.name, row.said)).collect::<Vec<_>>().join(", ");
    let chart = Rows {
        title: "Start of each host after the agreed moment".into(),
        description: format!("The start of each host, with the uncertainty of its clock: {in_words}."),
        rows,
        range: (if low < 0.0 { low - room } else { 0.0 }, high + room),
        ends_low: false,
        whole: false,
        write: nanoseconds,
        axis: "time after the agreed moment, on the clock of the first rank".into(),
    };
    let longest = hosts.hosts.iter().flat_map(|host| &host.jobs).map(|job| job.runtime_ns).max();
    let longest = longest.filter(|runtime_ns| *runtime_ns > 0);
    let part =
        longest.map(|runtime_ns| format!(", {} of the run", percent(hosts.start_skew_ns as f64 / runtime_ns as f64)));
    let mut words = format!(
        "All ranks agree on one moment at which they begin. The start skew is how far from it a host really began. \
         All began within {}{}. ",
        nanoseconds(hosts.start_skew_ns as f64),
        part.unwrap_or_default()
    );
    words.push_str(
        "A point is the start that was furthest from the agreed moment; its line goes from the first clone of the host \
         to the last, and holds the uncertainty of the host's clock. Rates do not depend on the skew: they are those of \
         the time in which all ranks were at work.",
    );
    if omitted > 0 {
        words.push_str(&format!(" The chart shows the earliest and the latest hosts; {omitted} lie between them."));
    }
    let chart = super::grid([wide_and_narrow(|width| chart.svg(width))]);
    format!("<h3>Start skew</h3><p class=\"words\">{}</p>{chart}", escape(&words))
}

/// The row of a host's start, and the nanoseconds by which it missed the agreed moment.
fn start(host: &HostResult) -> Option<(i64, Row)> {
    let (first, last) = host.started_ns?;
    let furthest = if first.unsigned_abs() > last.unsigned_abs() { first } else { last };
    let bound = host.clock.bound_ns as f64;
    let mark = Mark::Span(first as f64 - bound, furthest as f64, last as f64 + bound);
    Some((furthest, Row { name: host.host.clone(), mark, said: host_skew(host), colour: "s0" }))
}

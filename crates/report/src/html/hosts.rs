//! The hosts of a run, side by side.

use measure::figures::{bytes, nanoseconds, percent};
use measure::schema::{HostResult, HostsResult, JobResult, PhaseResult};

use super::frame::wide_and_narrow;
use super::{Table, distribution_chart, percentile_chart};
use crate::svg::rows::{Mark, Row, Rows};
use crate::svg::{Axis, Chart, Format, Series, escape};
use crate::text::{HOST_COLUMNS, host_figures, host_skew, host_work, hosts_together};

/// Curves that can be told apart.
const CURVES: usize = 8;

/// Hosts in the chart of starts.
const STARTS: usize = 24;

/// All hosts in one table, their courses and latencies in one chart each.
pub(super) fn section(hosts: &HostsResult, all: (&[JobResult], &[PhaseResult])) -> String {
    let mut out = String::from("<h2>Hosts</h2>");
    let files = !all.1.is_empty();
    let columns: Vec<&str> =
        HOST_COLUMNS.iter().map(|&name| if files && name == "kIOPS" { "kfiles/s" } else { name }).collect();
    let mut table = Table::new("Hosts", &[&columns[..], &["CPUs", "memory", "kernel"]].concat());
    for host in &hosts.hosts {
        let (window, lat_ns) = host_work(&host.jobs, &host.phases);
        let mut cells = vec![("", host.host.clone()), ("", host.ranks.to_string())];
        cells.extend(host_figures(&window, &lat_ns, &[host.wire]).map(|figure| ("", figure)));
        cells.push(("", host_skew(host)));
        let machine = &host.machine;
        cells.push(("", machine.cpus.to_string()));
        cells.push(("", bytes(machine.memory_bytes as f64)));
        cells.push(("", machine.kernel.clone()));
        table.row("", &cells);
    }
    let (window, lat_ns) = host_work(all.0, all.1);
    let wires: Vec<_> = hosts.hosts.iter().map(|host| host.wire).collect();
    let mut cells = vec![("", "All".to_owned())];
    cells.push(("", hosts.hosts.iter().map(|host| host.ranks).sum::<u32>().to_string()));
    cells.extend(host_figures(&window, &lat_ns, &wires).map(|figure| ("", figure)));
    cells.push(("", nanoseconds(hosts.start_skew_ns as f64)));
    cells.extend([("", String::new()), ("", String::new()), ("", String::new())]);
    table.row("sum", &cells);
    out.push_str(&table.end());
    out.push_str(&format!("<p class=\"about\">{}.</p>", escape(&hosts_together(hosts, &window))));
    for failure in &hosts.failures {
        out.push_str(&format!(
            "<div class=\"verdict invalid whole\"><b>{}</b></div>",
            escape(&format!("rank {} on {}: {}", failure.rank, failure.host, failure.what))
        ));
    }

    out.push_str(&starts(hosts));

    // The slowest and the fastest say most.
    let mut shown: Vec<_> = hosts.hosts.iter().map(|host| (host, host_work(&host.jobs, &host.phases))).collect();
    if shown.len() > CURVES {
        shown.sort_by(|(_, (a, _)), (_, (b, _))| a.iops().total_cmp(&b.iops()));
        let fastest = shown.split_off(shown.len() - CURVES / 2);
        shown.truncate(CURVES / 2);
        shown.extend(fastest);
    }
    let mut course = Chart::new("Throughput of each host")
        .x(Axis::linear("time").format(Format::Seconds))
        .y(Axis::linear("IOPS").format(Format::Count));
    let mut any = false;
    for (host, _) in &shown {
        let mut sums: std::collections::BTreeMap<u64, f64> = Default::default();
        for job in &host.jobs {
            for interval in job.intervals.iter().filter(|interval| interval.length_ns * 2 >= job.interval_ns) {
                let ops: u64 = interval.ops.iter().map(|(_, &ops)| ops).sum();
                let place = interval.end_ns.div_ceil(job.interval_ns.max(1)) * job.interval_ns;
                *sums.entry(place).or_default() += ops as f64 * 1e9 / interval.length_ns.max(1) as f64;
            }
        }
        any |= sums.len() > 1;
        let points = sums.into_iter().map(|(end_ns, rate)| (end_ns as f64 / 1e9, rate)).collect();
        course = course.series(Series::line(&host.host, points));
    }
    let latencies: Vec<_> = shown.into_iter().map(|(host, (_, lat_ns))| (host.host.clone(), lat_ns)).collect();
    let charts = [
        any.then_some(course),
        percentile_chart("Latency percentiles of each host", latencies.clone()),
        distribution_chart("Latency distribution of each host", &latencies),
    ];
    out.push_str(&super::cards(charts.into_iter().flatten()));
    out
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

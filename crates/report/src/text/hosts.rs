//! The hosts of a run, side by side.

use std::fmt::Write;

use measure::Histogram;
use measure::figures::{nanoseconds, plain};
use measure::schema::{ClockComparison, HostResult, HostsResult, JobResult, PhaseResult, Window, WireUse};
use measure::window_of;

use super::Table;
use super::run::grouped;
use super::{Style, Tone};

/// Hosts are listed one by one up to this many; beyond, the slowest say what there is to see.
const LISTED: usize = 64;

/// The columns, as users of benchmark tables know them.
pub(crate) const COLUMNS: [&str; 8] =
    ["Host", "ranks", "kIOPS", "BW,Gb/s", "AVG_LAT,us", "p99,us", "Wire BW,Gb/s", "start skew"];

/// One line of figures: of a host or of all.
pub(crate) fn figures(window: &Window, lat_ns: &Histogram, wire: &[WireUse]) -> [String; 5] {
    let wire_bits: f64 = wire.iter().filter(|wire| wire.length_ns > 0).map(gigabits).sum();
    let us = |ns: f64| if lat_ns.is_empty() { "-".into() } else { plain(ns / 1e3) };
    [
        plain(window.iops() / 1e3),
        plain(window.bytes_per_second() * 8.0 / 1e9),
        us(lat_ns.mean()),
        us(lat_ns.quantile(0.99) as f64),
        plain(wire_bits),
    ]
}

/// The sum of both directions.
fn gigabits(wire: &WireUse) -> f64 {
    (wire.received + wire.sent) as f64 * 8.0 / wire.length_ns as f64
}

/// The start that was furthest from the agreed moment, and how well the clock is known.
pub(crate) fn skew(host: &HostResult) -> String {
    let Some((first, last)) = host.started_ns else { return "-".into() };
    let furthest = if first.unsigned_abs() > last.unsigned_abs() { first } else { last };
    let ClockComparison { bound_ns, .. } = host.clock;
    let sign = if furthest < 0 { "-" } else { "+" };
    let text = format!("{sign}{}", nanoseconds(furthest.unsigned_abs() as f64));
    if bound_ns == 0 { text } else { format!("{text} +- {}", nanoseconds(bound_ns as f64)) }
}

/// Window and latencies of a host's work, whichever kind it is.
pub(crate) fn work(jobs: &[JobResult], phases: &[PhaseResult]) -> (Window, Histogram) {
    let mut lat_ns = Histogram::new();
    jobs.iter().for_each(|job| lat_ns.merge(&job.lat_ns()));
    if phases.is_empty() {
        return (window_of(jobs), lat_ns);
    }
    let mut window = Window::default();
    for phase in phases {
        window.length_ns += phase.runtime_ns;
        window.ops.read += phase.total.files;
        window.bytes.read += phase.total.bytes;
        phase.operations.iter().for_each(|operation| lat_ns.merge(&operation.lat_ns));
    }
    (window, lat_ns)
}

/// The table of hosts, how well they ran together, and what went wrong where. `all` is the work of all of them.
pub(super) fn hosts(hosts: &HostsResult, all: (&[JobResult], &[PhaseResult]), style: Style) -> String {
    let mut rows: Vec<(&HostResult, Window, Histogram)> = Vec::new();
    for host in &hosts.hosts {
        let (window, lat_ns) = work(&host.jobs, &host.phases);
        rows.push((host, window, lat_ns));
    }
    let mut out = String::new();
    let omitted = rows.len().saturating_sub(LISTED);
    if omitted > 0 {
        rows.sort_by(|a, b| a.1.iops().total_cmp(&b.1.iops()));
        rows.truncate(LISTED);
    }
    // Operations on files are not I/O operations.
    let mut columns = COLUMNS;
    if !all.1.is_empty() {
        columns[2] = "kfiles/s";
    }
    let mut table = Table::new(columns);
    let mut row = |name: &str, ranks: u32, figures: [String; 5], skew: String| {
        let mut cells = vec![name.to_owned(), ranks.to_string()];
        cells.extend(figures);
        cells.push(skew);
        table.row(cells);
    };
    for (host, window, lat_ns) in &rows {
        row(&host.host, host.ranks, figures(window, lat_ns, &[host.wire]), skew(host));
    }
    let (window, lat_ns) = work(all.0, all.1);
    let wires: Vec<WireUse> = hosts.hosts.iter().map(|host| host.wire).collect();
    let ranks = hosts.hosts.iter().map(|host| host.ranks).sum();
    row("All", ranks, figures(&window, &lat_ns, &wires), nanoseconds(hosts.start_skew_ns as f64));
    out.push_str(&table.render(style, 0));
    if omitted > 0 {
        let _ = writeln!(out, "the {LISTED} slowest; {} others are in the saved result", grouped(omitted as u64));
    }
    let _ = writeln!(out, "{}", style.paint(Tone::Soft, &together(hosts, &window)));
    for failure in &hosts.failures {
        let lost = if failure.lost { "; nothing of it is in these figures" } else { "" };
        let text = format!("rank {} on {}: {}{lost}", failure.rank, failure.host, failure.what);
        let _ = writeln!(out, "{}", style.paint(Tone::Bad, &text));
    }
    if !hosts.failures.is_empty() {
        let _ = writeln!(out, "{}", style.paint(Tone::Bad, "Partial: these are the figures of what ran until then."));
    }
    out.push('\n');
    out
}

/// The time during which all hosts ran, in one line.
pub(crate) fn together(hosts: &HostsResult, window: &Window) -> String {
    let bound = hosts.hosts.iter().map(|host| host.clock.bound_ns).max().unwrap_or(0);
    let drift = hosts.hosts.iter().filter_map(|host| host.clock.drift_ns).map(i64::unsigned_abs).max();
    let mut text = format!(
        "rates are those of the {} in which all ranks were at work; all began within {}",
        nanoseconds(window.length_ns as f64),
        nanoseconds(hosts.start_skew_ns as f64),
    );
    if bound > 0 {
        let _ = write!(text, ", clocks are known to {}", nanoseconds(bound as f64));
    }
    if let Some(drift) = drift.filter(|drift| *drift > 0) {
        let _ = write!(text, " and moved by {} at the most", nanoseconds(drift as f64));
    }
    text
}

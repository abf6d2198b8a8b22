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

/// A table of hosts: that of a run on devices, or that of one phase of a run on files.
pub(crate) struct Sheet {
    /// The phase; empty for the one table of a run, and for the facts about the hosts of a run on files.
    pub title: String,
    /// The titles of the columns, as users of benchmark tables know them.
    pub columns: Vec<String>,
    /// One row for each host, in the order of the result.
    pub rows: Vec<Row>,
    /// The row of all hosts together.
    pub all: Vec<String>,
    /// The time that the rates cover, or how well the hosts ran together, in one line.
    pub about: String,
}

/// A row of a [`Sheet`].
pub(crate) struct Row {
    /// The rate of the host, by which the slowest are found.
    pub rate: f64,
    /// The cells of the row.
    pub cells: Vec<String>,
}

/// The tables of hosts: one of a run, one for each phase of a run on files. Different operations share no figure.
pub(crate) fn sheets(hosts: &HostsResult, jobs: &[JobResult], phases: &[PhaseResult]) -> Vec<Sheet> {
    if phases.is_empty() {
        return vec![of_run(hosts, jobs)];
    }
    let mut all: Vec<Sheet> = phases.iter().enumerate().map(|(index, phase)| of_phase(hosts, index, phase)).collect();
    all.push(sheet(hosts, "", &[], |_| (0.0, Vec::new()), Vec::new(), together(hosts)));
    all
}

/// A table whose rows begin with a host and its ranks. The tables without a title end with what is of the host, not of
/// its work: its network and its start.
fn sheet(
    hosts: &HostsResult,
    title: &str,
    columns: &[String],
    cells: impl Fn(&HostResult) -> (f64, Vec<String>),
    all: Vec<String>,
    about: String,
) -> Sheet {
    let named = |name: &str, ranks: u32, cells: Vec<String>, wire: &[WireUse], skew: String| {
        let mut whole = vec![name.to_owned(), ranks.to_string()];
        whole.extend(cells);
        if title.is_empty() {
            whole.extend([wire_use(wire), skew]);
        }
        whole
    };
    let row = |host: &HostResult| {
        let (rate, cells) = cells(host);
        Row { rate, cells: named(&host.host, host.ranks, cells, &[host.wire], skew(host)) }
    };
    let wires: Vec<WireUse> = hosts.hosts.iter().map(|host| host.wire).collect();
    let ranks = hosts.hosts.iter().map(|host| host.ranks).sum();
    let ends: &[&str] = if title.is_empty() { &["Wire BW,Gb/s", "start skew"] } else { &[] };
    Sheet {
        title: title.to_owned(),
        columns: named_columns(&["Host", "ranks"]).chain(columns.to_vec()).chain(named_columns(ends)).collect(),
        rows: hosts.hosts.iter().map(row).collect(),
        all: named("All", ranks, all, &wires, nanoseconds(hosts.start_skew_ns as f64)),
        about,
    }
}

fn named_columns(names: &[&str]) -> impl Iterator<Item = String> {
    names.iter().map(|name| name.to_string()).collect::<Vec<_>>().into_iter()
}

fn of_run(hosts: &HostsResult, jobs: &[JobResult]) -> Sheet {
    let cells = |jobs: &[JobResult]| {
        let (window, mut lat_ns) = (window_of(jobs), Histogram::new());
        jobs.iter().for_each(|job| lat_ns.merge(&job.lat_ns()));
        let rates = vec![plain(window.iops() / 1e3), plain(window.bytes_per_second() * 8.0 / 1e9)];
        (window, [rates, latencies(&lat_ns)].concat())
    };
    let columns: Vec<String> = named_columns(&["kIOPS", "BW,Gb/s", "AVG_LAT,us", "p99,us"]).collect();
    let of_host = |host: &HostResult| {
        let (window, cells) = cells(&host.jobs);
        (window.iops(), cells)
    };
    let (window, all) = cells(jobs);
    let Window { length_ns, .. } = window;
    let about = format!(
        "rates are those of the {} in which all ranks were at work; {}",
        nanoseconds(length_ns as f64),
        together(hosts)
    );
    sheet(hosts, "", &columns, of_host, all, about)
}

/// The table of phase `index`: rates until the first thread of all ranks was through, latencies of each operation.
fn of_phase(hosts: &HostsResult, index: usize, phase: &PhaseResult) -> Sheet {
    let cells = |of: &PhaseResult| {
        let work = of.at_stonewall;
        let rate = work.files_per_second(of.stonewall_ns);
        let mut cells = vec![plain(rate / 1e3), plain(work.bytes_per_second(of.stonewall_ns) * 8.0 / 1e9)];
        for known in &phase.operations {
            let operation = of.operations.iter().find(|operation| operation.operation == known.operation);
            cells.extend(latencies(operation.map_or(&Histogram::new(), |operation| &operation.lat_ns)));
        }
        (rate, cells)
    };
    let mixed = phase.operations.len() > 1;
    let of_operation = |name: &str| {
        let name = if mixed { format!("{name} ") } else { String::new() };
        [format!("{name}AVG_LAT,us"), format!("{name}p99,us")]
    };
    let rate = if phase.only_lists() { "kentries/s" } else { "kfiles/s" };
    let columns: Vec<String> = named_columns(&[rate, "BW,Gb/s"])
        .chain(phase.operations.iter().flat_map(|operation| of_operation(&operation.operation)))
        .collect();
    let of_host = |host: &HostResult| host.phases.get(index).map_or_else(|| cells(&PhaseResult::default()), &cells);
    let about = format!(
        "rates are those of the {} until the first thread of all ranks was through: all were at work",
        nanoseconds(phase.stonewall_ns as f64)
    );
    sheet(hosts, &phase.name, &columns, of_host, cells(phase).1, about)
}

/// Mean and 99th percentile in microseconds.
fn latencies(lat_ns: &Histogram) -> Vec<String> {
    let us = |ns: f64| if lat_ns.is_empty() { "-".into() } else { plain(ns / 1e3) };
    vec![us(lat_ns.mean()), us(lat_ns.quantile(0.99) as f64)]
}

/// The use of networks in Gb/s, as the sum of both directions.
fn wire_use(wire: &[WireUse]) -> String {
    let gigabits = |wire: &WireUse| (wire.received + wire.sent) as f64 * 8.0 / wire.length_ns as f64;
    plain(wire.iter().filter(|wire| wire.length_ns > 0).map(gigabits).sum())
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

/// The tables of hosts, the skew of their starts, and their failures. `jobs` and `phases` are the work of all
/// of them.
pub(super) fn hosts(hosts: &HostsResult, jobs: &[JobResult], phases: &[PhaseResult], style: Style) -> String {
    let mut out = String::new();
    for mut sheet in sheets(hosts, jobs, phases) {
        if !sheet.title.is_empty() {
            let _ = writeln!(out, "{}", style.paint(Tone::Bold, &format!("{} by host", sheet.title)));
        }
        let omitted = sheet.rows.len().saturating_sub(LISTED);
        if omitted > 0 {
            sheet.rows.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            sheet.rows.truncate(LISTED);
        }
        let columns: Vec<&str> = sheet.columns.iter().map(String::as_str).collect();
        let mut table = Table::of(&columns);
        sheet.rows.into_iter().for_each(|row| table.row(row.cells));
        table.row(sheet.all);
        out.push_str(&table.render(style, 0));
        if omitted > 0 {
            let _ = writeln!(out, "the {LISTED} slowest; {} others are in the saved result", grouped(omitted as u64));
        }
        let _ = writeln!(out, "{}", style.paint(Tone::Soft, &sheet.about));
        if !sheet.title.is_empty() {
            out.push('\n');
        }
    }
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

/// The skew of the starts and of the clocks, in one line.
fn together(hosts: &HostsResult) -> String {
    let bound = hosts.hosts.iter().map(|host| host.clock.bound_ns).max().unwrap_or(0);
    let drift = hosts.hosts.iter().filter_map(|host| host.clock.drift_ns).map(i64::unsigned_abs).max();
    let mut text = format!("all began within {}", nanoseconds(hosts.start_skew_ns as f64));
    if bound > 0 {
        let _ = write!(text, ", clocks are known to {}", nanoseconds(bound as f64));
    }
    if let Some(drift) = drift.filter(|drift| *drift > 0) {
        let _ = write!(text, " and moved by {} at the most", nanoseconds(drift as f64));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::schema::{OperationResult, Work};

    /// Rates and latencies of a phase are of that phase alone, and those of a mix of each operation alone.
    #[test]
    fn each_phase_has_a_table_of_its_own() {
        let operation = |name: &str, lat_ns: u64| {
            let mut histogram = Histogram::new();
            histogram.record_many(lat_ns, 10);
            OperationResult { operation: name.into(), lat_ns: histogram }
        };
        let phase = |name: &str, files, operations: Vec<OperationResult>| PhaseResult {
            name: name.into(),
            stonewall_ns: 2_000_000_000,
            runtime_ns: 90_000_000_000,
            at_stonewall: Work { files, ..Work::default() },
            total: Work { files: 77 * files, ..Work::default() },
            operations,
            ..PhaseResult::default()
        };
        let phases = |files| {
            vec![
                phase("create", files, vec![operation("create", 1_000_000)]),
                phase("read:1+stat:1", 10 * files, vec![operation("read", 30_000), operation("stat", 2_000)]),
            ]
        };
        let host = |name: &str, files| HostResult {
            host: name.into(),
            ranks: 1,
            phases: phases(files),
            ..HostResult::default()
        };
        let result = HostsResult { hosts: vec![host("a", 4000), host("b", 2000)], ..HostsResult::default() };
        let text = hosts(&result, &[], &phases(6000), Style::default());
        let rows: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "create by host",
            "Host ranks kfiles/s BW,Gb/s AVG_LAT,us p99,us",
            "a 1 2 0 1000 1000",
            "b 1 1 0 1000 1000",
            "All 2 3 0 1000 1000",
        ];
        assert_eq!(rows[..5], expected, "{text}");
        let mix = "Host ranks kfiles/s BW,Gb/s read AVG_LAT,us read p99,us stat AVG_LAT,us stat p99,us";
        assert!(rows.contains(&mix.to_owned()) && rows.contains(&"a 1 20 0 30 30 2 2".to_owned()), "{text}");
        assert!(rows.contains(&"Host ranks Wire BW,Gb/s start skew".to_owned()), "{text}");
        assert!(!text.contains("90 s"), "{text}");
    }
}

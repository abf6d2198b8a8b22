//! The table for people: a line for each target, then what is known of load lines.

use measure::figures::{self, bytes, bytes_per_second, count, nanoseconds, percent, plain};
use observe::{FlowRates, Kind, Observation, Rates};
use report::text::{Style, Table};

use super::traced::Figures;
use super::{Now, Row, span};

/// A column: its title, the cell of a target at work, and whether a target has something to say in it.
struct Column {
    title: &'static str,
    cell: fn(&Rates, &Row) -> String,
    wanted: fn(&Row, &Rates) -> bool,
}

const COLUMNS: &[Column] = &[
    Column { title: "read", cell: |rates, _| moved(&rates.read), wanted: |_, _| true },
    Column { title: "iops", cell: |rates, _| ops(&rates.read), wanted: |_, _| true },
    Column { title: "written", cell: |rates, _| moved(&rates.write), wanted: |_, _| true },
    Column { title: "iops", cell: |rates, _| ops(&rates.write), wanted: |_, _| true },
    Column { title: "other", cell: |rates, _| ops(&rates.other), wanted: |_, rates| rates.other.iops > 0.0 },
    Column {
        title: "lat",
        cell: |rates, _| match (rates.latency_ns(), rates.latency_below_ns()) {
            (Some(known), _) => nanoseconds(known),
            (None, Some(bound)) => format!("< {}", nanoseconds(bound)),
            (None, None) => "-".into(),
        },
        wanted: |_, rates| rates.depth.is_some(),
    },
    Column { title: "p50", cell: |_, row| percentile(row, |all| all.p50), wanted: |row, _| row.traced.is_some() },
    Column { title: "p99", cell: |_, row| percentile(row, |all| all.p99), wanted: |row, _| row.traced.is_some() },
    Column { title: "p99.9", cell: |_, row| percentile(row, |all| all.p999), wanted: |row, _| row.traced.is_some() },
    Column {
        title: "queue",
        cell: |rates, _| rates.queue_ns.map_or("-".into(), nanoseconds),
        wanted: |row, _| row.seen.target.kind == Kind::Nfs,
    },
    Column {
        title: "rtt",
        cell: |rates, _| rates.round_trip_ns.map_or("-".into(), nanoseconds),
        wanted: |row, _| row.seen.target.kind == Kind::Nfs,
    },
    Column {
        title: "depth",
        cell: |rates, _| rates.depth.map_or("-".into(), |depth| plain((depth * 10.0).round() / 10.0)),
        wanted: |_, rates| rates.depth.is_some(),
    },
    Column {
        title: "now",
        cell: |rates, _| rates.in_flight.map_or("-".into(), |now| now.to_string()),
        wanted: |_, rates| rates.in_flight.is_some(),
    },
    Column {
        title: "busy",
        cell: |rates, _| rates.busy.map_or("-".into(), percent),
        wanted: |_, rates| rates.busy.is_some(),
    },
    Column { title: "resent", cell: |rates, _| rates.sent_again.to_string(), wanted: |_, rates| rates.sent_again > 0 },
];

/// The columns that the table leaves out, in this order, while it is wider than the terminal.
const LEAST: [&str; 6] = ["other", "p99.9", "now", "queue", "busy", "p50"];

fn percentile(row: &Row, of: fn(&Figures) -> Option<u64>) -> String {
    row.traced.as_ref().and_then(|traced| of(&traced.all)).map_or("-".into(), |ns| nanoseconds(ns as f64))
}

fn moved(flow: &FlowRates) -> String {
    if flow.bytes_per_second == 0.0 { "-".into() } else { bytes_per_second(flow.bytes_per_second) }
}

fn ops(flow: &FlowRates) -> String {
    if flow.iops == 0.0 { "-".into() } else { count(flow.iops) }
}

/// The whole text of a look.
pub fn draw(now: &Now, style: Style) -> String {
    let mut out = String::new();
    if now.rows.is_empty() && now.missing.is_empty() {
        out.push_str("No disk of this host did anything so far, and no NFS is mounted (--all shows idle disks).\n");
    }
    let at_work: Vec<(&Row, Rates)> = now.rows.iter().filter_map(|row| Some((row, row.seen.rates?))).collect();
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|column| at_work.iter().any(|(row, rates)| (column.wanted)(row, rates))).collect();
    let header: Vec<&str> =
        ["target"].into_iter().chain(columns.iter().map(|column| column.title)).chain(["load line"]).collect();
    let mut table = Table::of(&header);
    for row in &now.rows {
        let cells =
            columns.iter().map(|column| row.seen.rates.as_ref().map_or("-".into(), |rates| (column.cell)(rates, row)));
        let name = name_of(&row.seen);
        table.row([name].into_iter().chain(cells).chain([line_of(now, row)]).collect());
    }
    if !now.rows.is_empty() {
        out += &table.without(&LEAST, style.width).cut(style, 0).render(style, 0);
    }
    for missing in &now.missing {
        out += &format!("{missing}: not there at this moment\n");
    }
    let sentences: Vec<String> = now.rows.iter().flat_map(|row| sentences(now, row)).collect();
    if !sentences.is_empty() {
        out += &format!("\n{}\n", sentences.join("\n"));
    }
    out
}

fn name_of(seen: &Observation) -> String {
    match seen.target.kind {
        Kind::Process => format!("process {}", seen.target.name),
        _ => seen.target.name.clone(),
    }
}

/// The bounds of the load line: a sweep's, else the passive ones.
fn bounds_of(now: &Now, row: &Row) -> Option<(f64, f64)> {
    if let Some(against) = now.against.filter(|against| against.is_of(&row.seen.target)) {
        return Some((against.low, against.line));
    }
    let bounds = row.seen.judgement.as_ref().and_then(|judgement| judgement.line.as_ref().ok())?;
    Some((bounds.low, bounds.high))
}

/// The load line in a cell.
fn line_of(now: &Now, row: &Row) -> String {
    bounds_of(now, row).map_or("-".into(), |bounds| match (plain(bounds.0), plain(bounds.1)) {
        (low, high) if low == high => low,
        (_, high) if bounds.0 <= 1.0 => format!("<= {high}"),
        (low, high) => format!("{low} to {high}"),
    })
}

fn sentences(now: &Now, row: &Row) -> Vec<String> {
    let mut out = Vec::new();
    let name = name_of(&row.seen);
    if let Some((found, since_ms)) = row.overload {
        // The depth is held against the upper bound.
        let at = if bounds_of(now, row).is_some_and(|(low, high)| low < high) { "at least" } else { "at" };
        out.push(format!(
            "{name}: overloaded since {}, {at} {} times its line",
            report::utc(since_ms / 1000),
            figures::digits(found.times)
        ));
    }
    if let Some(against) = now.against.filter(|against| against.is_of(&row.seen.target)) {
        let share = row.seen.rates.map(|rates| rates.iops() / against.plateau_iops.mean);
        let share = share.map_or(String::new(), |share| format!("; now {} of its plateau", percent(share)));
        let line = match (plain(against.low), plain(against.line)) {
            (low, high) if low == high => format!("at {high}"),
            (low, high) => format!("between {low} and {high}"),
        };
        out.push(format!(
            "{name}: the sweep ({}) has its line {line} and its plateau at {} IOPS{share}",
            against.workload,
            count(against.plateau_iops.mean)
        ));
    }
    if let Some(traced) = row.traced.as_ref().filter(|traced| traced.is_part) {
        let requests = count(traced.all.requests as f64);
        out.push(format!(
            "{name}: the percentiles are of {requests} requests, a part of all, to bound the cost of tracing"
        ));
    }
    let Some(judgement) = &row.seen.judgement else { return out };
    let mix =
        format!("{}, {} reads", bytes(judgement.bytes_per_op), percent((judgement.read_share * 100.0).round() / 100.0));
    match &judgement.line {
        Ok(bounds) => out.push(format!(
            "{name}: the load line is {}; the plateau is at least {} IOPS ({mix}, {} intervals)",
            bounds.phrase(),
            count(bounds.plateau_at_least_iops),
            judgement.windows
        )),
        Err(reason) => {
            out.push(format!(
                "{name}: this traffic cannot tell the load line: {}",
                reason.sentence(&span(row.seen.record_ns))
            ));
        }
    }
    out
}

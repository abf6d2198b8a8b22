//! The counters in Prometheus' text format (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! An exporter gives the counters themselves, not rates: Prometheus computes rates over the times that it scrapes at,
//! and notices resets by itself.

use std::fmt::Write;

use observe::Flow;

use super::{Now, Row};

/// One metric: its name without the common beginning, its type, its explanation, and its values: for each the labels
/// besides kind and target, and the value.
type Metric = (&'static str, &'static str, &'static str, fn(&Row) -> Vec<(&'static str, f64)>);

const METRICS: &[Metric] = &[
    ("ops_total", "counter", "Completed requests; the calls of a process.", |row| {
        flows(row, |flow| Some(flow.ops as f64))
    }),
    ("bytes_total", "counter", "Bytes of completed requests.", |row| flows(row, |flow| Some(flow.bytes as f64))),
    ("latency_seconds_total", "counter", "Sum of the latencies of completed requests: its rate is the depth.", |row| {
        if row.seen.total.has_times { flows(row, |flow| Some(flow.time_ns as f64 / 1e9)) } else { Vec::new() }
    }),
    ("busy_seconds_total", "counter", "Time with a request in flight.", |row| seconds(row.seen.total.busy_ns)),
    ("in_flight", "gauge", "Requests in flight at this moment.", |row| {
        one(row.seen.total.in_flight.map(|ops| ops as f64))
    }),
    ("queue_seconds_total", "counter", "Time of NFS requests before they were sent.", |row| {
        seconds(row.seen.total.queue_ns)
    }),
    ("round_trip_seconds_total", "counter", "Time of NFS requests from sending to answer.", |row| {
        seconds(row.seen.total.round_trip_ns)
    }),
    ("resent_total", "counter", "NFS requests that were sent once more.", |row| {
        one(row.seen.total.queue_ns.map(|_| row.seen.total.sent_again as f64))
    }),
    ("load_line_low", "gauge", "The load line is at least this depth, by the traffic.", |row| {
        one(bounds(row).map(|bounds| bounds.low))
    }),
    ("load_line_high", "gauge", "The load line is at most this depth, by the traffic.", |row| {
        one(bounds(row).map(|bounds| bounds.high))
    }),
    ("plateau_at_least_iops", "gauge", "The plateau is at least this throughput, by the traffic.", |row| {
        one(bounds(row).map(|bounds| bounds.plateau_at_least_iops))
    }),
    ("overload_ratio", "gauge", "Depth over load line while the target is overloaded, else 0.", |row| {
        one(row.line.map(|_| row.overload.map_or(0.0, |(found, _)| found.times)))
    }),
];

fn flows(row: &Row, value: fn(&Flow) -> Option<f64>) -> Vec<(&'static str, f64)> {
    let total = &row.seen.total;
    let all = [("read", &total.read), ("write", &total.write), ("other", &total.other)];
    all.into_iter().filter_map(|(name, flow)| Some((name, value(flow)?))).collect()
}

fn one(value: Option<f64>) -> Vec<(&'static str, f64)> {
    value.map(|value| ("", value)).into_iter().collect()
}

fn seconds(ns: Option<u64>) -> Vec<(&'static str, f64)> {
    one(ns.map(|ns| ns as f64 / 1e9))
}

fn bounds(row: &Row) -> Option<&observe::passive::Bounds> {
    row.seen.judgement.as_ref()?.line.as_ref().ok()
}

/// All counters as one page; names begin with `plimsoll_watch_`, units are seconds and bytes.
pub fn text(now: &Now) -> String {
    let mut page = String::new();
    for (name, kind, help, values) in METRICS {
        let mut head = false;
        for row in &now.rows {
            for (op, value) in values(row) {
                if !head {
                    let _ = writeln!(page, "# HELP plimsoll_watch_{name} {help}\n# TYPE plimsoll_watch_{name} {kind}");
                    head = true;
                }
                let op = if op.is_empty() { String::new() } else { format!(",op=\"{op}\"") };
                let (of, target) = (row.seen.target.kind.name(), nvme_rpc::escape_label(&row.seen.target.name));
                let _ = writeln!(page, "plimsoll_watch_{name}{{kind=\"{of}\",target=\"{target}\"{op}}} {value}");
            }
        }
    }
    page
}

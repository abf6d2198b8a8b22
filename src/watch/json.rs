//! One interval as one JSON object on one line. Names end in their unit.
//!
//! The objects are written straight from borrowed figures: a host with 1,000 devices must not spend its time on maps.

use measure::schema::Estimate;
use observe::{Flow, FlowRates, Rates};
use serde::Serialize;

use super::traced::Latest;
use super::{Now, Row, span};

/// One interval.
#[derive(Serialize)]
struct Line<'a> {
    at_unix_ms: u64,
    targets: Vec<Target<'a>>,
    missing: &'a [String],
}

#[derive(Serialize)]
struct Target<'a> {
    kind: &'a str,
    name: &'a str,
    seconds: Option<f64>,
    read: Way,
    write: Way,
    other: Way,
    lat_ns: Option<f64>,
    depth: Option<f64>,
    in_flight: Option<u64>,
    busy: Option<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traced: Option<&'a Latest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passive: Option<Passive>,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<Against<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overload: Option<Overload>,
}

/// Figures that network mounts alone have.
#[derive(Serialize)]
struct Network {
    queue_ns: Option<f64>,
    round_trip_ns: Option<f64>,
    sent_again: u64,
}

#[derive(Serialize)]
struct Way {
    ops: u64,
    bytes: u64,
    iops: Option<f64>,
    bytes_per_s: Option<f64>,
    lat_ns: Option<f64>,
}

#[derive(Serialize)]
struct Bounds {
    low: f64,
    high: f64,
}

#[derive(Serialize)]
struct Passive {
    load_line: Option<Bounds>,
    plateau_at_least_iops: Option<f64>,
    cannot_tell: Option<String>,
    windows: usize,
    bytes_per_op: f64,
    read_share: f64,
    deepest: f64,
    record_s: f64,
}

#[derive(Serialize)]
struct Against<'a> {
    load_line: Bounds,
    plateau_iops: Estimate,
    workload: &'a str,
}

#[derive(Serialize)]
struct Overload {
    since_unix_ms: u64,
    times: f64,
    load_line: Option<f64>,
}

/// The object of one interval, without a newline.
pub fn line(now: &Now) -> String {
    let targets = now.rows.iter().map(|row| target(now, row)).collect();
    let line = Line { at_unix_ms: now.unix_ms, targets, missing: &now.missing };
    serde_json::to_string(&line).expect("numbers and text are always JSON")
}

fn target<'a>(now: &'a Now, row: &'a Row) -> Target<'a> {
    let rates = row.seen.rates;
    let total = &row.seen.total;
    let against = now.against.filter(|against| against.is_of(&row.seen.target));
    Target {
        kind: row.seen.target.kind.name(),
        name: &row.seen.target.name,
        seconds: rates.map(|rates| rates.seconds),
        read: way(&total.read, rates.map(|rates| rates.read)),
        write: way(&total.write, rates.map(|rates| rates.write)),
        other: way(&total.other, rates.map(|rates| rates.other)),
        lat_ns: rates.as_ref().and_then(Rates::latency_ns),
        depth: rates.and_then(|rates| rates.depth),
        in_flight: total.in_flight,
        busy: rates.and_then(|rates| rates.busy),
        network: total.queue_ns.is_some().then(|| Network {
            queue_ns: rates.and_then(|rates| rates.queue_ns),
            round_trip_ns: rates.and_then(|rates| rates.round_trip_ns),
            sent_again: total.sent_again,
        }),
        traced: row.traced.as_ref(),
        passive: row.seen.judgement.as_ref().map(|judgement| {
            let bounds = judgement.line.as_ref().ok();
            Passive {
                load_line: bounds.map(|bounds| Bounds { low: bounds.low, high: bounds.high }),
                plateau_at_least_iops: bounds.map(|bounds| bounds.plateau_at_least_iops),
                cannot_tell: judgement.line.as_ref().err().map(|reason| reason.sentence(&span(row.seen.record_ns))),
                windows: judgement.windows,
                bytes_per_op: judgement.bytes_per_op,
                read_share: judgement.read_share,
                deepest: judgement.deepest,
                record_s: row.seen.record_ns as f64 / 1e9,
            }
        }),
        against: against.map(|against| Against {
            load_line: Bounds { low: against.low, high: against.line },
            plateau_iops: against.plateau_iops,
            workload: &against.workload,
        }),
        overload: row.overload.as_ref().map(|(found, since_ms)| Overload {
            since_unix_ms: *since_ms,
            times: found.times,
            load_line: row.line,
        }),
    }
}

fn way(total: &Flow, rates: Option<FlowRates>) -> Way {
    Way {
        ops: total.ops,
        bytes: total.bytes,
        iops: rates.map(|rates| rates.iops),
        bytes_per_s: rates.map(|rates| rates.bytes_per_second),
        lat_ns: rates.and_then(|rates| rates.latency_ns),
    }
}

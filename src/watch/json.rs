//! One interval as one JSON object on one line. Names end in their unit.

use observe::{Flow, FlowRates, Rates};
use serde_json::{Map, Value, json};

use super::{Now, Row, span};

/// The object of one interval, without a newline.
pub fn line(now: &Now) -> Value {
    let targets: Vec<Value> = now.rows.iter().map(|row| target(now, row)).collect();
    json!({ "at_unix_ms": now.unix_ms, "targets": targets, "missing": now.missing })
}

fn target(now: &Now, row: &Row) -> Value {
    let mut object = Map::new();
    let mut insert = |name: &str, value: Value| object.insert(name.into(), value);
    let rates = row.seen.rates;
    let total = &row.seen.total;
    insert("kind", row.seen.target.kind.name().into());
    insert("name", row.seen.target.name.as_str().into());
    insert("seconds", json!(rates.map(|rates| rates.seconds)));
    insert("read", flow(&total.read, rates.map(|rates| rates.read)));
    insert("write", flow(&total.write, rates.map(|rates| rates.write)));
    insert("other", flow(&total.other, rates.map(|rates| rates.other)));
    insert("lat_ns", json!(rates.as_ref().and_then(Rates::latency_ns)));
    insert("depth", json!(rates.and_then(|rates| rates.depth)));
    insert("in_flight", json!(total.in_flight));
    insert("busy", json!(rates.and_then(|rates| rates.busy)));
    if total.queue_ns.is_some() {
        insert("queue_ns", json!(rates.and_then(|rates| rates.queue_ns)));
        insert("round_trip_ns", json!(rates.and_then(|rates| rates.round_trip_ns)));
        insert("sent_again", json!(total.sent_again));
    }
    if let Some(judgement) = &row.seen.judgement {
        let bounds = judgement.line.as_ref().ok();
        let reason = judgement.line.as_ref().err().map(|reason| reason.sentence(&span(row.seen.record_ns)));
        insert(
            "passive",
            json!({
                "load_line": bounds.map(|bounds| json!({ "low": bounds.low, "high": bounds.high })),
                "plateau_at_least_iops": bounds.map(|bounds| bounds.plateau_at_least_iops),
                "cannot_tell": reason, "windows": judgement.windows, "bytes_per_op": judgement.bytes_per_op,
                "read_share": judgement.read_share, "deepest": judgement.deepest,
                "record_s": row.seen.record_ns as f64 / 1e9,
            }),
        );
    }
    if let Some(against) = now.against.filter(|against| against.is_of(&row.seen.target)) {
        insert(
            "against",
            json!({ "load_line": against.line, "plateau_iops": against.plateau_iops, "workload": against.workload }),
        );
    }
    if let Some((found, since_ms)) = row.overload {
        insert("overload", json!({ "since_unix_ms": since_ms, "times": found.times, "load_line": row.line }));
    }
    Value::Object(object)
}

fn flow(total: &Flow, rates: Option<FlowRates>) -> Value {
    json!({
        "ops": total.ops, "bytes": total.bytes, "iops": rates.map(|rates| rates.iops),
        "bytes_per_s": rates.map(|rates| rates.bytes_per_second), "lat_ns": rates.and_then(|rates| rates.latency_ns),
    })
}

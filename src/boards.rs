//! The values of boards, as JSON and as the summary that `trap --stats` prints.

use lanes::{advice, environment};
use live::{Gauge, Op, OpCounts, ReasonCount, RowCounts, RowKind, Snapshot};
use measure::figures;
use report::text::{Style, Table};
use serde_json::{Map, Value, json};

/// A row as JSON. If `seconds` is given, `row` holds the growth over that time, and the row has rates.
pub fn row_json(row: &RowCounts, rates: Option<(&[OpCounts; 3], f64)>) -> Value {
    let mut object = Map::new();
    object.insert("kind".into(), row.kind.name().into());
    object.insert("group".into(), row.group.as_str().into());
    object.insert("name".into(), row.name.as_str().into());
    object.insert("state".into(), row.state().name().into());
    for (name, gauge) in GAUGES {
        object.insert((*name).into(), row.gauge(*gauge).into());
    }
    for op in Op::ALL {
        // Rates and latencies are of one time: the interval, where there is one.
        let mut counts = op_json(row.op(op), rates.map_or(row.op(op), |(since, _)| &since[op as usize]), row.kind);
        if let (Some((since, seconds)), Some(counts)) = (rates, counts.as_object_mut()) {
            let since = &since[op as usize];
            counts.insert("iops".into(), json!(since.ops as f64 / seconds));
            counts.insert("bytes_per_s".into(), json!(since.bytes as f64 / seconds));
        }
        object.insert(op.name().into(), counts);
    }
    Value::Object(object)
}

/// Names of the gauges in JSON: the unit last.
const GAUGES: &[(&str, Gauge)] = &[
    ("outstanding_ops", Gauge::OutstandingOps),
    ("outstanding_bytes", Gauge::OutstandingBytes),
    ("held_ops", Gauge::HeldOps),
    ("held_bytes", Gauge::HeldBytes),
    ("window_ops", Gauge::WindowOps),
    ("window_bytes", Gauge::WindowBytes),
    ("rate_bytes_per_s", Gauge::RateBytesPerSecond),
    ("losses", Gauge::Losses),
    ("busy_ns", Gauge::BusyNs),
    ("connections", Gauge::Connections),
    ("asked_depth", Gauge::AskedDepth),
    ("load_line", Gauge::LoadLine),
];

/// The counts since the start, and the latencies of `timed`; those that nobody measured are absent. Of a load only the
/// sum of the latencies is known.
fn op_json(counts: &OpCounts, timed: &OpCounts, kind: RowKind) -> Value {
    let mut lat_ns = Map::new();
    if timed.ops > 0 {
        lat_ns.insert("mean".into(), json!(timed.lat_sum_ns as f64 / timed.ops as f64));
    }
    let latencies = timed.latencies();
    if kind != RowKind::Load && !latencies.is_empty() {
        for (name, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
            lat_ns.insert(name.into(), latencies.quantile(q).into());
        }
    }
    json!({ "ops": counts.ops, "bytes": counts.bytes, "errors": counts.errors, "lat_ns": lat_ns })
}

/// The reasons with their counts, as a JSON object.
pub fn reasons_json(reasons: &[ReasonCount]) -> Value {
    reasons.iter().map(|reason| json!({ "reason": reason.text, "count": reason.count })).collect()
}

/// The counts of each program, as JSON.
pub fn json(snapshots: &[Snapshot]) -> Value {
    let program = |snapshot: &Snapshot| {
        json!({
            "kind": snapshot.kind.name(), "program": snapshot.title, "pid": snapshot.pid,
            "rows": snapshot.rows.iter().map(|row| row_json(row, None)).collect::<Value>(),
            "reasons": reasons_json(&snapshot.reasons),
        })
    };
    json!({ "programs": snapshots.iter().map(program).collect::<Value>() })
}

/// The counts of all programs together, as a table, and the reasons why requests were not spread.
pub fn summary(snapshots: &[Snapshot], dry_run: bool) -> String {
    let (rows, reasons) = live::together(snapshots);
    if snapshots.is_empty() {
        return "iotrap: no file of a pool was opened\n".into();
    }
    let names: Vec<&str> = {
        let mut names: Vec<&str> = snapshots.iter().map(|snapshot| snapshot.title.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let processes = match snapshots.len() {
        1 => String::new(),
        count => format!(", {count} processes"),
    };
    let mut out = format!("iotrap: {}{processes}\n", names.join(", "));
    let all = |row: &RowCounts| Op::ALL.map(|op| row.op(op).bytes).iter().sum::<u64>();
    let total: u64 = rows.iter().map(all).sum();
    let mut table = Table::new(["lane", "share", "read", "written", "ops", "lat", "p99", "errors", "lost"]);
    for row in rows.iter().filter(|row| row.kind == RowKind::Lane) {
        let ops: u64 = Op::ALL.map(|op| row.op(op).ops).iter().sum();
        let errors: u64 = Op::ALL.map(|op| row.op(op).errors).iter().sum();
        let lat_sum: u64 = Op::ALL.map(|op| row.op(op).lat_sum_ns).iter().sum();
        let mut latencies = row.op(Op::Read).latencies();
        latencies.merge(&row.op(Op::Write).latencies());
        latencies.merge(&row.op(Op::Other).latencies());
        let amount = |op: Op| figures::bytes(row.op(op).bytes as f64);
        let time = |ns: f64| if ops == 0 { "-".into() } else { figures::nanoseconds(ns) };
        table.row(vec![
            format!("{} {}", row.group, row.name),
            if total == 0 { "-".into() } else { figures::percent(all(row) as f64 / total as f64) },
            amount(Op::Read),
            amount(Op::Write),
            ops.to_string(),
            time(lat_sum as f64 / ops.max(1) as f64),
            time(latencies.quantile(0.99) as f64),
            errors.to_string(),
            row.gauge(Gauge::Losses).to_string(),
        ]);
    }
    out += &table.render(Style::default(), 2);
    out + &not_spread(&reasons, dry_run)
}

/// The requests that stayed on the lane that the program opened, with the reasons and the change that would spread most
/// of them; in a dry run also the share that would be spread.
fn not_spread(counts: &[ReasonCount], dry_run: bool) -> String {
    let counted = |name: &str| counts.iter().filter(|count| count.text == name).map(|count| count.count).sum::<u64>();
    let mut out = String::new();
    if let caught @ 1.. = counted(environment::CAUGHT) {
        out += &format!("  {caught} system calls outside libc, seen by --raw\n");
    }
    let reasons: Vec<&ReasonCount> = (counts.iter())
        .filter(|count| ![environment::CAUGHT, environment::WOULD_LEAVE].contains(&count.text.as_str()))
        .collect();
    if !reasons.is_empty() {
        out += "  stayed on the lane that the program opened:\n";
        let width = reasons.iter().map(|reason| reason.count.to_string().len()).max().unwrap_or(0);
        for ReasonCount { text, count } in &reasons {
            out += &format!("  {count:>width$}  {text}\n");
        }
    }
    let stayed: Vec<_> = reasons.into_iter().filter(|reason| environment::is_reason(&reason.text)).collect();
    if dry_run {
        let leave = counted(environment::WOULD_LEAVE);
        let all = leave + stayed.iter().map(|reason| reason.count).sum::<u64>();
        let share = if all == 0 { "-".into() } else { figures::percent(leave as f64 / all as f64) };
        out += &format!("  dry run: {leave} of {all} requests ({share}) would go over all lanes\n");
    }
    if let Some(most) = stayed.iter().max_by_key(|reason| reason.count)
        && let Some(change) = advice::on(&most.text)
    {
        out += &format!("  most stayed because of: {}\n  they would spread with: {change}\n", most.text);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_tells_the_share_and_what_would_change_it() {
        let counts =
            [(advice::BUFFERED, 5), (advice::LOCKED, 1), (environment::WOULD_LEAVE, 2), (environment::WINDOW, 9)];
        let counts = counts.map(|(text, count)| ReasonCount { text: text.into(), count });
        let told = not_spread(&counts, true);
        assert!(told.contains("dry run: 2 of 8 requests (25 %) would"), "{told}");
        assert!(told.ends_with("fio --direct=1), or buffered-reads = true for files that nobody writes\n"), "{told}");
        assert!(!not_spread(&counts, false).contains("dry run"));
        assert_eq!(not_spread(&[], true), "  dry run: 0 of 0 requests (-) would go over all lanes\n");
    }
}

//! The table of `top`: a part for each program, a line for each row, and only the columns that have something in them.

use live::{Gauge, Op, RowCounts, RowKind, State};
use report::figures;
use report::text::Style;
use report::text::table::Table;

use super::{Program, Since};

/// A column of the table: its title, and the cell of a row.
struct Column {
    title: &'static str,
    cell: fn(&RowCounts, &Since, f64) -> String,
    /// True if a row has anything to say in the column; the column is left out if no row has.
    wanted: fn(&RowCounts, &Since) -> bool,
}

const COLUMNS: &[Column] = &[
    Column {
        title: "state",
        cell: |row, _, _| row.state().name().into(),
        wanted: |row, _| row.state() != State::Unknown,
    },
    Column { title: "read", cell: |_, since, seconds| bytes(since, Op::Read, seconds), wanted: always },
    Column { title: "iops", cell: |_, since, seconds| ops(since, Op::Read, seconds), wanted: always },
    Column { title: "written", cell: |_, since, seconds| bytes(since, Op::Write, seconds), wanted: always },
    Column { title: "iops", cell: |_, since, seconds| ops(since, Op::Write, seconds), wanted: always },
    Column {
        title: "other",
        cell: |_, since, seconds| ops(since, Op::Other, seconds),
        wanted: |row, _| row.op(Op::Other).ops > 0,
    },
    Column { title: "lat", cell: |_, since, _| mean_latency(since), wanted: always },
    Column { title: "p99", cell: |_, since, _| p99(since), wanted: always },
    Column { title: "depth", cell: depth, wanted: always },
    Column {
        title: "in flight",
        cell: |row, _, _| amount(row.gauge(Gauge::OutstandingBytes)),
        wanted: |row, _| row.gauge(Gauge::OutstandingBytes) > 0,
    },
    Column {
        title: "window",
        cell: |row, _, _| amount(row.gauge(Gauge::WindowBytes)),
        wanted: |row, _| row.gauge(Gauge::WindowBytes) > 0,
    },
    Column {
        title: "held",
        cell: |row, _, _| row.gauge(Gauge::HeldOps).to_string(),
        wanted: |row, _| row.gauge(Gauge::HeldOps) > 0,
    },
    Column {
        title: "busy",
        cell: |_, since, seconds| match since.busy_ns {
            0 => "-".into(),
            busy => figures::percent(busy as f64 / 1e9 / seconds),
        },
        wanted: |row, _| row.gauge(Gauge::BusyNs) > 0,
    },
    Column {
        title: "connections",
        cell: |row, _, _| row.gauge(Gauge::Connections).to_string(),
        wanted: |row, _| row.gauge(Gauge::Connections) > 0,
    },
    Column { title: "errors", cell: |row, _, _| errors(row).to_string(), wanted: |row, _| errors(row) > 0 },
    Column {
        title: "lost",
        cell: |row, _, _| row.gauge(Gauge::Losses).to_string(),
        wanted: |row, _| row.gauge(Gauge::Losses) > 0,
    },
];

fn always(_: &RowCounts, _: &Since) -> bool {
    true
}

fn bytes(since: &Since, op: Op, seconds: f64) -> String {
    match since.ops[op as usize].bytes {
        0 => "-".into(),
        bytes => figures::bytes_per_second(bytes as f64 / seconds),
    }
}

fn ops(since: &Since, op: Op, seconds: f64) -> String {
    match since.ops[op as usize].ops {
        0 => "-".into(),
        ops => figures::count(ops as f64 / seconds),
    }
}

fn mean_latency(since: &Since) -> String {
    let ops: u64 = since.ops.iter().map(|counts| counts.ops).sum();
    let sum: u64 = since.ops.iter().map(|counts| counts.lat_sum_ns).fold(0, u64::saturating_add);
    if ops == 0 { "-".into() } else { figures::nanoseconds(sum as f64 / ops as f64) }
}

fn p99(since: &Since) -> String {
    let mut all = since.ops[0].latencies();
    since.ops[1..].iter().for_each(|counts| all.merge(&counts.latencies()));
    if all.is_empty() { "-".into() } else { figures::nanoseconds(all.quantile(0.99) as f64) }
}

/// Requests in flight: the mean over the interval by Little's law (rate times mean latency). A single look often falls
/// between two requests that take microseconds. Requests that do not end are in the momentary count alone.
fn depth(row: &RowCounts, since: &Since, seconds: f64) -> String {
    let busy_ns: u64 = since.ops.iter().map(|counts| counts.lat_sum_ns).fold(0, u64::saturating_add);
    let mean = busy_ns as f64 / 1e9 / seconds;
    let now = row.gauge(Gauge::OutstandingOps) as f64;
    figures::plain(if mean >= now { (mean * 10.0).round() / 10.0 } else { now })
}

fn amount(bytes: u64) -> String {
    if bytes == 0 { "-".into() } else { figures::bytes(bytes as f64) }
}

fn errors(row: &RowCounts) -> u64 {
    Op::ALL.map(|op| row.op(op).errors).iter().fold(0, |sum, errors| sum.saturating_add(*errors))
}

/// The whole text of a look.
pub fn draw(programs: &[Program], style: Style) -> String {
    if programs.is_empty() {
        return "No program is running that top can watch (plimsoll trap, libiotrap.so, plimsoll serve).\n".into();
    }
    programs.iter().map(|program| draw_program(program, style)).collect::<Vec<_>>().join("\n")
}

fn draw_program(program: &Program, style: Style) -> String {
    let board = &program.board;
    let mut out = format!("{} (process {}, {})\n", board.title, board.pid, board.kind.name());
    for kind in RowKind::ALL {
        let rows: Vec<(&RowCounts, &Since)> =
            board.rows.iter().zip(&program.since).filter(|(row, _)| row.kind == kind).collect();
        if rows.is_empty() {
            continue;
        }
        let columns: Vec<&Column> =
            COLUMNS.iter().filter(|column| rows.iter().any(|(row, since)| (column.wanted)(row, since))).collect();
        let header: Vec<&str> = [kind.name()].into_iter().chain(columns.iter().map(|column| column.title)).collect();
        let mut table = Table::of(&header);
        for (row, since) in rows {
            let name = match row.group.as_str() {
                "" => row.name.clone(),
                group => format!("{group} {}", row.name),
            };
            let cells = columns.iter().map(|column| (column.cell)(row, since, program.seconds));
            table.row([name].into_iter().chain(cells).collect());
        }
        out += &table.render(style, 2);
    }
    if !board.reasons.is_empty() {
        let width = board.reasons.iter().map(|reason| reason.count.to_string().len()).max().unwrap_or(0);
        for reason in &board.reasons {
            out += &format!("  {:>width$}  {}\n", reason.count, reason.text);
        }
    }
    out
}

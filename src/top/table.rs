//! The table of `top`: a part for each program, a line for each row, and only the columns that have something in them.

use live::{Gauge, Op, RowCounts, RowKind, State};
use measure::figures;
use report::text::{Style, Table};

use super::{Program, Since};

/// A column of the table: its title, and the cell of a row.
struct Column {
    title: &'static str,
    cell: fn(&RowCounts, &Since) -> String,
    /// True if a row has anything to say in the column; the column is left out if no row has.
    wanted: fn(&RowCounts, &Since) -> bool,
}

const COLUMNS: &[Column] = &[
    Column { title: "state", cell: |row, _| row.state().name().into(), wanted: |row, _| row.state() != State::Unknown },
    Column { title: "read", cell: |_, since| bytes(since, Op::Read), wanted: always },
    Column { title: "iops", cell: |_, since| ops(since, Op::Read), wanted: always },
    Column { title: "written", cell: |_, since| bytes(since, Op::Write), wanted: always },
    Column { title: "iops", cell: |_, since| ops(since, Op::Write), wanted: always },
    Column { title: "other", cell: |_, since| ops(since, Op::Other), wanted: |row, _| row.op(Op::Other).ops > 0 },
    Column { title: "lat", cell: |_, since| mean_latency(since), wanted: always },
    // Of a load only the sum of the latencies is known.
    Column { title: "p99", cell: |_, since| p99(since), wanted: |row, _| row.kind != RowKind::Load },
    Column { title: "depth", cell: depth, wanted: always },
    Column {
        title: "asked",
        cell: |row, _| row.gauge(Gauge::AskedDepth).to_string(),
        wanted: |row, _| row.gauge(Gauge::AskedDepth) > 0,
    },
    Column {
        title: "load line",
        cell: |row, _| row.gauge(Gauge::LoadLine).to_string(),
        wanted: |row, _| row.gauge(Gauge::LoadLine) > 0,
    },
    Column {
        title: "in flight",
        cell: |row, _| amount(row.gauge(Gauge::OutstandingBytes)),
        wanted: |row, _| row.gauge(Gauge::OutstandingBytes) > 0,
    },
    Column {
        title: "window",
        cell: |row, _| amount(row.gauge(Gauge::WindowBytes)),
        wanted: |row, _| row.gauge(Gauge::WindowBytes) > 0,
    },
    Column {
        title: "held",
        cell: |row, _| row.gauge(Gauge::HeldOps).to_string(),
        wanted: |row, _| row.gauge(Gauge::HeldOps) > 0,
    },
    Column {
        title: "busy",
        cell: |_, since| match since.busy_ns {
            0 => "-".into(),
            busy => figures::percent(busy as f64 / 1e9 / since.seconds),
        },
        wanted: |row, _| row.gauge(Gauge::BusyNs) > 0,
    },
    Column {
        title: "connections",
        cell: |row, _| row.gauge(Gauge::Connections).to_string(),
        wanted: |row, _| row.gauge(Gauge::Connections) > 0,
    },
    Column { title: "errors", cell: |row, _| errors(row).to_string(), wanted: |row, _| errors(row) > 0 },
    Column {
        title: "lost",
        cell: |row, _| row.gauge(Gauge::Losses).to_string(),
        wanted: |row, _| row.gauge(Gauge::Losses) > 0,
    },
];

fn always(_: &RowCounts, _: &Since) -> bool {
    true
}

fn bytes(since: &Since, op: Op) -> String {
    match since.ops[op as usize].bytes {
        0 => "-".into(),
        bytes => figures::bytes_per_second(bytes as f64 / since.seconds),
    }
}

fn ops(since: &Since, op: Op) -> String {
    match since.ops[op as usize].ops {
        0 => "-".into(),
        ops => figures::count(ops as f64 / since.seconds),
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
fn depth(row: &RowCounts, since: &Since) -> String {
    let busy_ns: u64 = since.ops.iter().map(|counts| counts.lat_sum_ns).fold(0, u64::saturating_add);
    let mean = busy_ns as f64 / 1e9 / since.seconds;
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
        return "No program is running that top can watch (run, sweep, serve, trap, libiotrap).\n".into();
    }
    programs.iter().map(|program| draw_program(program, style)).collect::<Vec<_>>().join("\n")
}

/// A line for each row of each program: its names, then rates, latencies, depth and every gauge.
pub fn csv(programs: &[Program], header: bool) -> String {
    const HEADER: [&str; 15] = [
        "program",
        "pid",
        "kind",
        "group",
        "name",
        "state",
        "read_iops",
        "read_bytes_per_s",
        "write_iops",
        "write_bytes_per_s",
        "other_iops",
        "lat_ns_mean",
        "depth",
        "load_line",
        "errors",
    ];
    let lines = programs
        .iter()
        .flat_map(|program| program.board.rows.iter().zip(&program.since).map(move |row| (program, row)));
    let lines = lines.map(|(Program { board, .. }, (row, since))| {
        let rate = |amount: u64| (amount as f64 / since.seconds).to_string();
        let [read, write, other] = &since.ops;
        let ops = read.ops + write.ops + other.ops;
        let lat_sum_ns = since.ops.iter().map(|counts| counts.lat_sum_ns).fold(0, u64::saturating_add);
        let mut cells = vec![board.title.clone(), board.pid.to_string(), row.kind.name().into(), row.group.clone()];
        cells.extend([row.name.clone(), row.state().name().replace('-', "")]);
        cells.extend([read.ops, read.bytes, write.ops, write.bytes, other.ops].map(rate));
        cells.push(lat_sum_ns.checked_div(ops).map_or(String::new(), |mean| mean.to_string()));
        cells.push(depth(row, since));
        cells.push(
            Some(row.gauge(Gauge::LoadLine)).filter(|&line| line > 0).map_or(String::new(), |line| line.to_string()),
        );
        cells.push(errors(row).to_string());
        cells
    });
    let text = report::csv::table(&HEADER, lines);
    if header { text } else { text.split_once('\n').map_or(String::new(), |(_, rows)| rows.to_string()) }
}

/// The columns that a table leaves out, in this order, while it is wider than the terminal.
const LEAST: [&str; 6] = ["other", "connections", "in flight", "p99", "window", "held"];

fn draw_program(program: &Program, style: Style) -> String {
    let board = &program.board;
    let mut out = format!("{} (process {}, {})\n", board.title, board.pid, board.kind.name());
    for kind in RowKind::ALL {
        let rows: Vec<(&RowCounts, &Since)> =
            board.rows.iter().zip(&program.since).filter(|(row, _)| row.kind == kind).collect();
        if rows.is_empty() {
            continue;
        }
        let rows = with_sums(&rows);
        let mut columns: Vec<&Column> =
            COLUMNS.iter().filter(|column| rows.iter().any(|(row, since)| (column.wanted)(row, since))).collect();
        let mut table = table_of(kind, &columns, &rows);
        for least in LEAST {
            if table.width() + 2 > style.width {
                columns.retain(|column| column.title != least);
                table = table_of(kind, &columns, &rows);
            }
        }
        out += &table.cut(style, 2).render(style, 2);
    }
    if !board.reasons.is_empty() {
        let width = board.reasons.iter().map(|reason| reason.count.to_string().len()).max().unwrap_or(0);
        for reason in &board.reasons {
            out += &format!("  {:>width$}  {}\n", reason.count, reason.text);
        }
    }
    out
}

/// The rows, group by group, and below each group of several rows their sum: the pool's, the subsystem's, the target's.
fn with_sums(rows: &[(&RowCounts, &Since)]) -> Vec<(RowCounts, Since)> {
    let mut groups: Vec<&str> = Vec::new();
    for (row, _) in rows {
        if !groups.contains(&row.group.as_str()) {
            groups.push(&row.group);
        }
    }
    let mut out = Vec::new();
    for group in groups {
        let of_group: Vec<&(&RowCounts, &Since)> = rows.iter().filter(|(row, _)| row.group == group).collect();
        out.extend(of_group.iter().map(|(row, since)| ((*row).clone(), (*since).clone())));
        let counts: Vec<&RowCounts> = of_group.iter().map(|(row, _)| *row).collect();
        if let Some(sum) = RowCounts::sum(&counts, "all").filter(|_| counts.len() > 1) {
            out.push((sum, Since::sum(of_group.iter().map(|(_, since)| *since))));
        }
    }
    out
}

fn table_of(kind: RowKind, columns: &[&Column], rows: &[(RowCounts, Since)]) -> Table {
    let header: Vec<&str> = [kind.name()].into_iter().chain(columns.iter().map(|column| column.title)).collect();
    let mut table = Table::of(&header);
    for (row, since) in rows {
        let name = match row.group.as_str() {
            "" => row.name.clone(),
            group => format!("{group} {}", row.name),
        };
        let cells = columns.iter().map(|column| (column.cell)(row, since));
        table.row([name].into_iter().chain(cells).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use live::{Board, BoardKind};

    /// A target with a long name and something in every column.
    fn program() -> Program {
        let board = Board::private(BoardKind::Target, "plimsoll serve", 4).unwrap();
        for name in ["1 a-device-with-a-very-long-name-of-its-own", "2 b"] {
            let row = board.add(RowKind::Namespace, "nqn.2016-06.io.spdk:cnode1", name).unwrap();
            let counters = board.counters(row);
            (0..50).for_each(|_| counters.count(Op::Read, 1 << 20, 123_456_789));
            (0..50).for_each(|_| counters.count(Op::Write, 1 << 20, 1_234_567));
            counters.count(Op::Other, 0, 1000);
            counters.error(Op::Read);
            for gauge in [Gauge::OutstandingOps, Gauge::OutstandingBytes, Gauge::WindowBytes, Gauge::HeldOps] {
                counters.set(gauge, 12_345_678);
            }
            counters.set(Gauge::Connections, 3);
        }
        let board = board.snapshot();
        let since =
            board.rows.iter().map(|row| Since { ops: Op::ALL.map(|op| row.op(op).clone()), busy_ns: 0, seconds: 1.0 });
        Program { since: since.collect(), board: board.clone(), seconds: 1.0 }
    }

    #[test]
    fn names_are_cut_and_columns_give_way_so_that_lines_fit() {
        let text = draw(&[program()], Style { width: 80, cuts_names: true, ..Style::default() });
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("errors") && text.contains("depth"), "{text}");
        let wide = draw(&[program()], Style { width: 300, ..Style::default() });
        assert!(wide.contains("a-device-with-a-very-long-name-of-its-own") && wide.contains("connections"), "{wide}");
    }

    #[test]
    fn the_rows_of_a_target_have_a_sum() {
        let text = draw(&[program()], Style { width: 300, ..Style::default() });
        let row = |name: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            line[line.find(name).unwrap() + name.len()..].split_whitespace().map(String::from).collect()
        };
        let (one, all) = (row(" 2 b"), row(" all"));
        assert_eq!((one[0].as_str(), all[0].as_str()), ("50", "100"), "MiB/s: {text}");
        assert_eq!((one.last().unwrap().as_str(), all.last().unwrap().as_str()), ("1", "2"), "errors: {text}");
    }
}

//! `plimsoll top`: the work of every running program of Plimsoll at this moment.

mod table;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use live::{BoardKind, Op, OpCounts, RowCounts, Snapshot};
use serde_json::{Value, json};

use crate::boards;
use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::output;
use crate::screen;
use crate::values;

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("top")
        .about("Watch running programs: loads, lanes, namespaces, hosts, reactors")
        .long_about(
            "Shows every second the work of each `plimsoll run` and `plimsoll sweep`, of each program under \
             `plimsoll trap` (or libiotrap.so) and of each `plimsoll serve` on this machine. On a terminal the key q \
             ends top. Elsewhere top prints one table after another.",
        )
        .arg(flag("once", "Print one table, and end"))
        .arg(flag("json", "Print JSON, one object for each interval"))
        .arg(flag("csv", "Print comma-separated values, a line a row").conflicts_with("json"))
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("TIME")
                .default_value("1s")
                .value_parser(values::duration)
                .help("Length of the interval over which top counts rates"),
        )
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let interval = *matches.get_one::<Duration>("interval").expect("it has a default");
    let [once, as_json, as_csv] = ["once", "json", "csv"].map(|name| matches.get_flag(name));
    let mut header = true;
    let mut before = Look::now();
    let screen = if once || as_json || as_csv { screen::Screen::plain() } else { screen::Screen::new()? };
    if screen.is_drawn() {
        screen.show(&table::draw(&[], screen.style()))?;
    }
    loop {
        if screen.wait(interval) {
            return Ok(Exit::Ok);
        }
        let now = Look::now();
        let programs = now.since(&before);
        if as_json {
            output::print(&format!("{}\n", as_value(&programs)))?;
        } else if as_csv {
            output::print(&table::csv(&programs, std::mem::take(&mut header)))?;
        } else {
            screen.show(&table::draw(&programs, screen.style()))?;
        }
        if once {
            return Ok(Exit::Ok);
        }
        before = now;
    }
}

/// All boards at one moment.
struct Look {
    at: Instant,
    boards: Vec<Snapshot>,
}

/// The work of a program between two looks.
struct Program {
    board: Snapshot,
    /// The growth of the counts of each row of the board.
    since: Vec<Since>,
    seconds: f64,
}

/// The growth of a row's counts between two looks.
#[derive(Clone)]
struct Since {
    ops: [OpCounts; 3],
    busy_ns: u64,
    /// The time in which the counts grew.
    seconds: f64,
}

impl Since {
    /// The growth of several rows together, over the time of the first of them.
    fn sum<'a>(all: impl IntoIterator<Item = &'a Since>) -> Since {
        let mut all = all.into_iter();
        let mut sum = all.next().expect("a group has rows").clone();
        for one in all {
            sum.ops.iter_mut().zip(&one.ops).for_each(|(mine, theirs)| mine.absorb(theirs));
            sum.busy_ns += one.busy_ns;
        }
        sum
    }
}

impl Look {
    fn now() -> Look {
        Look { at: Instant::now(), boards: live::all() }
    }

    /// The work of each program since an earlier look. A row that was not there at that look began at zero.
    fn since(&self, before: &Look) -> Vec<Program> {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-9);
        let mut rows: BTreeMap<_, &RowCounts> = BTreeMap::new();
        for board in &before.boards {
            rows.extend(board.rows.iter().map(|row| (row_of(board, row), row)));
        }
        let busy = |row: &RowCounts| row.gauge(live::Gauge::BusyNs);
        let program = |board: &Snapshot| {
            let since = |row: &RowCounts| {
                let then = rows.get(&row_of(board, row));
                // Counts that are brought up to date now and then grew from one such moment to another.
                let as_of = |row: &RowCounts| Some(row.gauge(live::Gauge::AsOfNs)).filter(|&ns| ns > 0);
                let grew = then.and_then(|then| as_of(row)?.checked_sub(as_of(then)?)).filter(|&ns| ns > 0);
                Since {
                    seconds: grew.map_or(seconds, |ns| ns as f64 / 1e9),
                    ops: Op::ALL
                        .map(|op| then.map_or_else(|| row.op(op).clone(), |then| row.op(op).since(then.op(op)))),
                    busy_ns: busy(row).saturating_sub(then.map_or(0, |then| busy(then))),
                }
            };
            Program { since: board.rows.iter().map(since).collect(), board: board.clone(), seconds }
        };
        self.boards.iter().map(program).collect()
    }
}

/// The key by which a row of one look is found again in another.
fn row_of(board: &Snapshot, row: &RowCounts) -> (BoardKind, u64, u64, (usize, u64)) {
    (board.kind, board.pid, board.created_ns, row.identity)
}

fn as_value(programs: &[Program]) -> Value {
    let program = |program: &Program| {
        let rows = program.board.rows.iter().zip(&program.since);
        json!({
            "kind": program.board.kind.name(), "program": program.board.title, "pid": program.board.pid,
            "rows": rows.map(|(row, since)| boards::row_json(row, Some((&since.ops, since.seconds)))).collect::<Value>(),
            "reasons": boards::reasons_json(&program.board.reasons),
        })
    };
    let seconds = programs.first().map_or(0.0, |program| program.seconds);
    json!({ "seconds": seconds, "programs": programs.iter().map(program).collect::<Value>() })
}

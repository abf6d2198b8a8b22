//! The `plimsoll` program: one small file per subcommand, no logic.
//!
//! ```text
//! arguments ─► command line (SUBCOMMANDS, one table) ─► a crate does it ─► report ─► exit status
//! ```
#![forbid(unsafe_code)]

mod command_line;
mod compare;
mod completions;
mod exit;
mod files;
mod gfapi_perf_tool;
mod interrupt;
mod man;
mod output;
mod progress;
mod report;
mod run;
mod sim;
mod sweep;
mod values;

use std::process::ExitCode;

use command_line::Subcommand;

/// Every subcommand, in the order of the help: help, man pages and completions are made from this table.
static SUBCOMMANDS: &[Subcommand] = &[
    run::SUBCOMMAND,
    sweep::SUBCOMMAND,
    compare::SUBCOMMAND,
    files::SUBCOMMAND,
    gfapi_perf_tool::SUBCOMMAND,
    report::SUBCOMMAND,
    sim::SUBCOMMAND,
    man::SUBCOMMAND,
    completions::SUBCOMMAND,
];

fn main() -> ExitCode {
    exit::code(command_line::dispatch(SUBCOMMANDS, gfapi_perf_tool::renamed(std::env::args_os().collect())))
}

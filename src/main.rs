//! The `plimsoll` program: one small file per subcommand, no logic.
//!
//! ```text
//! arguments ─► command line (SUBCOMMANDS, one table) ─► a crate does it ─► report ─► exit status
//! ```
#![forbid(unsafe_code)]

mod command_line;
mod completions;
mod exit;
mod man;

use std::process::ExitCode;

use command_line::Subcommand;

/// Every subcommand, in the order of the help: help, man pages and completions are made from this table.
static SUBCOMMANDS: &[Subcommand] = &[man::SUBCOMMAND, completions::SUBCOMMAND];

fn main() -> ExitCode {
    exit::code(command_line::dispatch(SUBCOMMANDS, std::env::args_os().collect()))
}

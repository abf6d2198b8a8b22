//! The `plimsoll` program: one file for each subcommand, and beside them the parts that several subcommands share, such
//! as the progress line (`progress.rs`), or a run together with other hosts (`crew.rs`).
//!
//! ```text
//! arguments ─► command line (SUBCOMMANDS, one table) ─► a crate does it ─► report ─► exit status
//! ```
#![forbid(unsafe_code)]

mod boards;
mod command_line;
mod compare;
mod completions;
mod crew;
mod documented;
mod exit;
mod files;
mod files_input;
mod fio;
mod fsperf;
mod gfapi_perf_tool;
mod history;
mod interrupt;
mod lanes;
mod live_load;
mod man;
mod output;
mod over_ssh;
mod picture;
mod progress;
mod report;
mod rpc;
mod run;
mod screen;
mod serve;
mod service;
mod sim;
mod sweep;
mod top;
mod trap;
mod trigger;
mod values;
mod version;
mod watch;

use std::process::ExitCode;

use command_line::Subcommand;

/// Every subcommand, in the order of the help: help, man pages and completions are made from this table.
static SUBCOMMANDS: &[Subcommand] = &[
    run::SUBCOMMAND,
    fio::SUBCOMMAND,
    sweep::SUBCOMMAND,
    compare::SUBCOMMAND,
    files::SUBCOMMAND,
    gfapi_perf_tool::SUBCOMMAND,
    fsperf::SUBCOMMAND,
    report::SUBCOMMAND,
    history::SUBCOMMAND,
    serve::SUBCOMMAND,
    rpc::SUBCOMMAND,
    trap::SUBCOMMAND,
    lanes::SUBCOMMAND,
    top::SUBCOMMAND,
    watch::SUBCOMMAND,
    sim::SUBCOMMAND,
    man::SUBCOMMAND,
    completions::SUBCOMMAND,
];

fn main() -> ExitCode {
    let names = [gfapi_perf_tool::NAME, fsperf::NAME];
    let arguments = command_line::called_as(&names, std::env::args_os().collect());
    if let Some(outcome) = over_ssh::agent(&arguments) {
        return exit::code(outcome);
    }
    let outcome = interrupt::survive_file_size_limit().and_then(|()| command_line::dispatch(SUBCOMMANDS, arguments));
    exit::code(outcome)
}

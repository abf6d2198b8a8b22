//! `fio`, under that name or as a subcommand: `run` with fio's habits, for scripts and programs that call fio.

use std::ffi::OsString;
use std::io::Write;

use clap::{ArgMatches, Command};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::{self, Exit};
use crate::run::{self, Manner};

/// The name that the program may be called by.
pub const NAME: &str = "fio";

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Job, run };

fn command() -> Command {
    Command::new(NAME)
        .about("Run fio job files with fio's defaults and exit statuses, for scripts that call fio")
        .long_about(
            "Does what `plimsoll run` does, and keeps fio's habits where scripts rely on them: the version begins with \
             fio-3., notes stand in the report and not on standard error, several reports come in fio's order, the \
             status of wrong arguments is 1 and that of an interrupted run 128. A link of that name to this program \
             does the same.",
        )
        .override_usage("fio [FLAG]... [JOBFILE]... [--name=JOB] [--JOB-OPTION=VALUE]...")
}

fn run(_matches: &ArgMatches, words: Vec<OsString>) -> anyhow::Result<Exit> {
    match run::run_as(Manner::Fio, words) {
        Ok(Exit::BadInput) => Ok(Exit::JobFailed),
        Ok(Exit::Interrupted) => Ok(Exit::InterruptedAsFio),
        Err(error) if !exit::is_internal(&error) && !exit::is_broken_pipe(&error) => {
            // A closed standard error does not make the program panic: the status still tells.
            let _ = writeln!(std::io::stderr(), "fio: {error:#}");
            Ok(Exit::JobFailed)
        }
        outcome => outcome,
    }
}

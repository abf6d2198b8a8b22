//! `plimsoll completions SHELL`: the completion script of a shell.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::man::documented;

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    Command::new("completions")
        .about("Print the completion script of a shell")
        .long_about(
            "Prints the completion script of a shell: `plimsoll completions bash > /etc/bash_completion.d/plimsoll`.",
        )
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell)).help("The shell"))
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let shell: Shell = *matches.get_one("shell").expect("required");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut documented(), "plimsoll", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(Exit::Ok)
}

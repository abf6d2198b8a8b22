//! `plimsoll man`: the manual pages, made from the tables of arguments and of job options.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};

use crate::command_line::{self, Subcommand};
use crate::exit::Exit;

/// The row of the table.
pub const SUBCOMMAND: Subcommand = Subcommand { command, takes_job_options: false, run };

fn command() -> Command {
    Command::new("man")
        .about("Print or write the manual pages")
        .arg(Arg::new("page").value_name("SUBCOMMAND").help("The page of this subcommand; that of the program without"))
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIRECTORY")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("page")
                .help("Write all pages into this directory, as plimsoll.1, plimsoll-run.1, ..."),
        )
}

fn run(matches: &ArgMatches, _job: Vec<String>) -> anyhow::Result<Exit> {
    let mut program = documented();
    program.build();
    if let Some(directory) = matches.get_one::<PathBuf>("dir") {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        clap_mangen::generate_to(program, directory)
            .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
        return Ok(Exit::Ok);
    }
    let page = match matches.get_one::<String>("page") {
        None => program,
        Some(name) => program
            .find_subcommand(name)
            .with_context(|| format!("there is no page for {name}: it is not a subcommand"))?
            .clone()
            .display_name(format!("plimsoll-{name}")),
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    std::io::stdout().write_all(&text)?;
    Ok(Exit::Ok)
}

/// The whole command line with everything that manual pages and completions are to name.
pub fn documented() -> Command {
    command_line::program(crate::SUBCOMMANDS)
}

//! `plimsoll man`: the manual pages, made from the tables of arguments and of job options.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};

use crate::command_line::{self, Arguments, Subcommand};
use crate::exit::Exit;
use crate::run;

/// The row of the table.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run: print };

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
        .arg(
            Arg::new("options")
                .long("options")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["page", "dir"])
                .help("Print the job options as Markdown instead"),
        )
}

fn print(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    if matches.get_flag("options") {
        std::io::stdout().write_all(job::options::markdown().as_bytes())?;
        return Ok(Exit::Ok);
    }
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

/// The whole command line with everything that manual pages and completions are to name: job options too.
pub fn documented() -> Command {
    let options = || {
        job::options::all().map(|option| {
            let argument =
                Arg::new(option.name).long(option.name).help(option.help).help_heading("Job options (as fio's)");
            let argument = argument.visible_aliases(option.aliases.iter().copied());
            match option.kind.words() {
                _ if option.value_is_optional() => argument.num_args(0..=1).require_equals(true),
                [] => argument.num_args(1).value_name("VALUE"),
                words => argument.num_args(1).value_parser(words.iter().map(|(word, _)| *word).collect::<Vec<_>>()),
            }
        })
    };
    let files = Arg::new("file").value_name("JOBFILE").num_args(0..).value_hint(ValueHint::FilePath).help("Job files");
    let target = Arg::new("target")
        .value_name("TARGET")
        .value_hint(ValueHint::AnyPath)
        .help("A file, a directory, a block device [default: .]");
    let sides = Arg::new("side")
        .value_name("FILE")
        .num_args(0..=2)
        .value_hint(ValueHint::FilePath)
        .help("Job files or results");
    let with_options = |command: Command| {
        let own: Vec<String> =
            command.get_arguments().filter_map(|argument| argument.get_long()).map(String::from).collect();
        command.args(options().filter(|argument| !own.iter().any(|own| argument.get_long() == Some(own))))
    };
    command_line::program(crate::SUBCOMMANDS)
        .mut_subcommand("run", |run| with_options(run.args(run::flags()).arg(files)))
        .mut_subcommand("sweep", |sweep| with_options(sweep.arg(target)))
        .mut_subcommand("compare", |compare| with_options(compare.arg(sides)))
}

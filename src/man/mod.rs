//! `plimsoll man`: the manual pages, made from the tables of arguments, of job options and of [`sections`].

mod page;
mod roff;
mod screen;
mod sections;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::command_line::{Arguments, Subcommand};
use crate::documented::documented;
use crate::exit::Exit;
use crate::{fsperf, gfapi_perf_tool, output};

pub use sections::{examples, names};

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run: print };

fn command() -> Command {
    Command::new("man")
        .about("Print or write the manual pages")
        .long_about(
            "Shows one manual page on a terminal, as man(1) does; into a pipe or a file it prints the page as roff. Or \
             writes all pages into a directory.",
        )
        .arg(
            Arg::new("page")
                .value_name("PAGE")
                .help("Page of a subcommand, or libiotrap [default: the page of the program]"),
        )
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIRECTORY")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("page")
                .help("Write all pages into this directory: plimsoll.1, plimsoll-run.1, ..., libiotrap.7"),
        )
        .arg(
            Arg::new("options")
                .long("options")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["page", "dir"])
                .help("Print the job options as Markdown"),
        )
}

fn print(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    if matches.get_flag("options") {
        output::print(&job::options::markdown())?;
        return Ok(Exit::Ok);
    }
    if let Some(directory) = matches.get_one::<PathBuf>("dir") {
        write_all(directory).with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
        return Ok(Exit::Ok);
    }
    let text = match matches.get_one::<String>("page").map(String::as_str) {
        None | Some("plimsoll") => page::of(&documented(), "plimsoll"),
        Some("libiotrap") => sections::libiotrap(),
        Some(name) => {
            let program = documented();
            let known = program.find_subcommand(name);
            let known = known.with_context(|| {
                format!("{name} is not a page: give a subcommand (`plimsoll help` lists them), or libiotrap")
            })?;
            page::of(known, &format!("plimsoll-{name}"))
        }
    };
    match console::Term::stdout().is_term() {
        true => screen::show(&text)?,
        false => output::print(&text)?,
    }
    Ok(Exit::Ok)
}

/// Writes every page: the program's, one for each subcommand, two under the names of the older tools, libiotrap's.
fn write_all(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let write = |name: &str, text: String| std::fs::write(directory.join(name), text);
    let program = documented();
    write("plimsoll.1", page::of(&program, "plimsoll"))?;
    for subcommand in program.get_subcommands() {
        let title = format!("plimsoll-{}", subcommand.get_name());
        write(&format!("{title}.1"), page::of(subcommand, &title))?;
        if [gfapi_perf_tool::NAME, fsperf::NAME].contains(&subcommand.get_name()) {
            write(&format!("{}.1", subcommand.get_name()), page::of(subcommand, subcommand.get_name()))?;
        }
    }
    write("libiotrap.7", sections::libiotrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_its_sections() {
        let program = documented();
        for subcommand in std::iter::once(&program).chain(program.get_subcommands()) {
            let name = subcommand.get_name();
            let text = page::of(subcommand, name);
            for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "FILES", "ENVIRONMENT"] {
                assert!(text.contains(&format!("\n.SH {heading}\n")), "{name} lacks {heading}");
            }
            assert!(text.contains("\n.SH SEE ALSO\n"), "{name}");
        }
    }
}

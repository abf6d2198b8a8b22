//! `plimsoll man`: the manual pages, made from the tables of arguments, of job options and of [`sections`].

mod sections;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};

use crate::command_line::{self, Arguments, Subcommand};
use crate::exit::Exit;
use crate::{fsperf, gfapi_perf_tool, output, run};

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run: print };

fn command() -> Command {
    Command::new("man")
        .about("Print or write the manual pages")
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
        None | Some("plimsoll") => page(&documented(), "plimsoll")?,
        Some("libiotrap") => sections::libiotrap(),
        Some(name) => {
            let program = documented();
            let known = program.find_subcommand(name);
            let known = known.with_context(|| format!("there is no page for {name}: it is not a subcommand"))?;
            page(known, &format!("plimsoll-{name}"))?
        }
    };
    output::print(&text)?;
    Ok(Exit::Ok)
}

/// Writes every page: the program's, one for each subcommand, two under the names of the older tools, libiotrap's.
fn write_all(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let write = |name: &str, text: String| std::fs::write(directory.join(name), text);
    let program = documented();
    write("plimsoll.1", page(&program, "plimsoll")?)?;
    for subcommand in program.get_subcommands() {
        let title = format!("plimsoll-{}", subcommand.get_name());
        write(&format!("{title}.1"), page(subcommand, &title)?)?;
        if [gfapi_perf_tool::NAME, fsperf::NAME].contains(&subcommand.get_name()) {
            write(&format!("{}.1", subcommand.get_name()), page(subcommand, subcommand.get_name())?)?;
        }
    }
    write("libiotrap.7", sections::libiotrap())
}

/// One page as roff: the sections that clap knows, then the program's own.
fn page(command: &Command, title: &str) -> io::Result<String> {
    let page = clap_mangen::Man::new(command.clone().bin_name(title.replacen('-', " ", 1)).display_name(title))
        .source(concat!("Plimsoll ", env!("CARGO_PKG_VERSION")))
        .manual("Plimsoll");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if command.get_after_help().is_some() || command.get_after_long_help().is_some() {
        let mut notes = Vec::new();
        page.render_extra_section(&mut notes)?;
        text.write_all(String::from_utf8_lossy(&notes).replacen(".SH EXTRA", ".SH NOTES", 1).as_bytes())?;
    }
    let name = command.get_name();
    Ok(String::from_utf8_lossy(&text).into_owned() + &sections::of(name))
}

/// The arguments whose values have names, for completions: subcommand, argument, values.
fn named_values() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let engines = || job::engines::ENGINES.iter().map(|engine| engine.name).collect();
    let operations = load::smallfiles::OPERATIONS.iter().map(|row| row.name).collect();
    let methods = nvmf::control::METHODS.iter().flat_map(|subject| subject.iter());
    vec![
        ("sweep", "engines", engines()),
        ("compare", "engines", engines()),
        ("files", "op", operations),
        ("trap", "policy", lanes::Policy::ALL.map(|policy| policy.name()).to_vec()),
        ("serve", "pacing", PACING.to_vec()),
        ("sim", "pacing", PACING.to_vec()),
        ("run", "pace", PACING.to_vec()),
        ("rpc", "method", methods.map(|method| method.name).collect()),
        ("man", "page", sections::names().chain(["libiotrap"]).collect()),
    ]
}

/// The methods of pacing; those that end in a colon take a number.
const PACING: [&str; 7] = ["none", "auto", "auto:", "buffers:", "rate:", "iops:", "bw:"];

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
    let program = command_line::program(crate::SUBCOMMANDS)
        .mut_subcommand("run", |run| with_options(run.args(run::flags()).arg(files)))
        .mut_subcommand("sweep", |sweep| with_options(sweep.arg(target)))
        .mut_subcommand("compare", |compare| with_options(compare.arg(sides)));
    named_values().into_iter().fold(program, |program, (subcommand, argument, values)| {
        program.mut_subcommand(subcommand, |command| {
            debug_assert!(command.get_arguments().any(|known| known.get_id() == argument), "{subcommand} {argument}");
            command.mut_args(|known| {
                // The methods of rpc are too many for a page: docs/rpc.md lists them.
                match known.get_id() == argument {
                    true => known
                        .value_parser(PossibleValuesParser::new(values.clone()))
                        .hide_possible_values(subcommand == "rpc"),
                    false => known,
                }
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_pacing_is_one_that_the_program_takes() {
        for method in PACING {
            let whole = if method.ends_with(':') { format!("{method}4096") } else { method.to_owned() };
            assert!(pace::Config::parse(&whole, 1024).is_ok(), "{whole}");
        }
    }

    #[test]
    fn every_argument_with_named_values_is_there() {
        documented().debug_assert();
    }

    #[test]
    fn every_subcommand_has_its_sections() {
        for subcommand in crate::SUBCOMMANDS {
            let name = (subcommand.command)().get_name().to_owned();
            let text = sections::of(&name);
            for heading in ["EXAMPLES", "EXIT STATUS", "FILES", "ENVIRONMENT", "SEE ALSO"] {
                assert!(text.contains(&format!(".SH {heading}\n")), "{name} lacks {heading}");
            }
        }
    }
}

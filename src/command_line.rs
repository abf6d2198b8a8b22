//! The command line: the subcommand's own arguments, told apart from the job options that go with them.
//!
//! A job option is whatever fio would take (`--rw=randread`, `--bs 4k`); the `job` crate knows them. The own
//! arguments are a clap table, from which help, man pages and completions are made too.

use std::ffi::OsString;

use anyhow::{anyhow, bail};
use clap::{Arg, ArgMatches, Command};

use crate::exit::Exit;

/// One row of the table of subcommands.
pub struct Subcommand {
    /// Its name and its own arguments.
    pub command: fn() -> Command,
    /// Whether arguments that are not its own are job files and job options: handed on in their order.
    pub takes_job_options: bool,
    /// Does it: own arguments, then the job arguments.
    pub run: fn(&ArgMatches, Vec<String>) -> anyhow::Result<Exit>,
}

/// The program's whole command line, without job options.
pub fn program(subcommands: &[Subcommand]) -> Command {
    Command::new("plimsoll")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Find, create, spread and hold concurrency in storage I/O")
        .long_about(
            "Finds the load line of storage: the depth at which it is loaded, and past which it only gets slower. \
             Runs fio's job files, compares results, and says when a number cannot be believed.",
        )
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(subcommands.iter().map(|subcommand| (subcommand.command)()))
}

/// Carries out a command line, the program's name first.
pub fn dispatch(subcommands: &[Subcommand], arguments: Vec<OsString>) -> anyhow::Result<Exit> {
    let name = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    let found = subcommands.iter().find(|subcommand| (subcommand.command)().get_name() == name);
    let (own, job) = match found {
        Some(subcommand) if subcommand.takes_job_options => {
            let arguments = arguments.into_iter().map(utf8).collect::<anyhow::Result<Vec<_>>>()?;
            let (own, job) = split(&(subcommand.command)(), &arguments[2..]);
            (arguments.into_iter().take(2).chain(own).map(OsString::from).collect(), job)
        }
        _ => (arguments, Vec::new()),
    };
    let matches = match program(subcommands).try_get_matches_from(own) {
        Ok(matches) => matches,
        Err(error) => {
            error.print()?;
            return Ok(if error.use_stderr() { Exit::BadInput } else { Exit::Ok });
        }
    };
    match (found, matches.subcommand()) {
        (Some(subcommand), Some((_, matches))) => (subcommand.run)(matches, job),
        _ => bail!("no subcommand"),
    }
}

fn utf8(argument: OsString) -> anyhow::Result<String> {
    argument.into_string().map_err(|argument| anyhow!("argument {argument:?} is not valid UTF-8"))
}

/// The arguments that `command` knows, and all others in their order.
fn split(command: &Command, arguments: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut own, mut job) = (Vec::new(), Vec::new());
    let mut arguments = arguments.iter().cloned();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            job.extend(arguments.by_ref());
        } else if let Some(known) = own_argument(command, &argument) {
            let value_follows = known.is_some_and(wants_value) && !argument.contains('=');
            own.push(with_two_dashes(argument));
            own.extend(if value_follows { arguments.next() } else { None });
        } else {
            job.push(argument);
        }
    }
    (own, job)
}

/// The argument's row in the table; Some(None) for the help that clap adds by itself.
fn own_argument<'a>(command: &'a Command, argument: &str) -> Option<Option<&'a Arg>> {
    let name = argument.split('=').next().unwrap_or_default();
    if ["-h", "--help"].contains(&name) {
        return Some(None);
    }
    // fio takes long names after one dash too.
    let long = name.strip_prefix("--").or_else(|| name.strip_prefix('-')).filter(|long| long.len() > 1);
    let short = name.strip_prefix('-').filter(|short| short.len() == 1 && short != &"-").and_then(|short| short.chars().next());
    let is_it = |known: &&Arg| {
        long.is_some_and(|long| known.get_long() == Some(long) || known.get_all_aliases().is_some_and(|all| all.contains(&long)))
            || short.is_some_and(|short| known.get_short() == Some(short))
    };
    command.get_arguments().find(is_it).map(Some)
}

/// `-output=x` as `--output=x`.
fn with_two_dashes(argument: String) -> String {
    let one = argument.starts_with('-') && !argument.starts_with("--") && argument.len() > 2;
    if one { format!("-{argument}") } else { argument }
}

/// Whether the argument must be given a value, possibly as the next word.
fn wants_value(argument: &Arg) -> bool {
    argument.get_action().takes_values() && argument.get_num_args().is_none_or(|range| range.min_values() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command::new("run")
            .arg(Arg::new("output").long("output").short('o'))
            .arg(Arg::new("check").long("check").action(clap::ArgAction::SetTrue))
            .arg(Arg::new("eta").long("eta").num_args(0..=1).require_equals(true))
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn own_arguments_are_found_among_job_options() {
        let line = "a.fio --name=x --output file --rw=read --check --eta --bs 4k -o f --output=g --help b.fio";
        let (own, job) = split(&command(), &words(line));
        assert_eq!(own, words("--output file --check --eta -o f --output=g --help"));
        assert_eq!(job, words("a.fio --name=x --rw=read --bs 4k b.fio"));
    }

    #[test]
    fn one_dash_does_for_long_names() {
        let (own, job) = split(&command(), &words("-output=file -rw=read -check -o f"));
        assert_eq!((own, job), (words("--output=file --check -o f"), words("-rw=read")));
    }

    #[test]
    fn after_two_dashes_nothing_is_our_own() {
        let (own, job) = split(&command(), &words("--check -- --check x"));
        assert_eq!((own, job), (words("--check"), words("--check x")));
    }
}

//! The command line: separates the arguments of a subcommand from the job options beside them.
//!
//! A job option is any option of fio's (`--rw=randread`, `--bs 4k`); the `job` crate knows them. Each subcommand has a
//! clap table of its arguments. Help, manual pages and completions come from that table.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::bail;
use clap::{Arg, ArgMatches, Command};
use job::Invocation;
use job::args::{Action, FLAGS, RunOptions};
use job::options;

use crate::exit::Exit;
use crate::{output, version};

/// One row of the table of subcommands in `main.rs`.
pub struct Subcommand {
    /// The subcommand's name and the clap table of its arguments.
    pub command: fn() -> Command,
    /// The reader of the subcommand's arguments.
    pub arguments: Arguments,
    /// Carries out the subcommand: takes the arguments of the clap table, then the words for the job crate.
    pub run: fn(&ArgMatches, Vec<OsString>) -> anyhow::Result<Exit>,
}

/// The reader of a subcommand's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// The clap table reads all arguments.
    Own,
    /// The clap table reads the arguments that it knows; the job crate reads all others, in their order.
    Both,
    /// The job crate reads all arguments: they are fio's.
    Job,
}

/// The command line of the program as clap knows it, without job options.
pub fn program(subcommands: &[Subcommand]) -> Command {
    Command::new("plimsoll")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Find, create, spread and hold concurrency in storage I/O")
        .long_about(
            "Finds the load line of storage: the smallest depth that reaches 97 % of the best throughput. \
             Runs fio's job files, compares results, and says which numbers are not reliable.",
        )
        .after_help(
            "plimsoll help SUBCOMMAND explains a subcommand; plimsoll man SUBCOMMAND prints its manual page.\n\
             plimsoll version names the commit, the features and the optional libraries of this build.",
        )
        .subcommand_required(true)
        .subcommand_value_name("SUBCOMMAND")
        .disable_help_subcommand(true)
        .subcommands(subcommands.iter().map(|subcommand| (subcommand.command)()))
}

/// Carries out a command line; its first word is the program's name.
///
/// # Errors
/// Arguments that the subcommand does not take, and every error of the subcommand.
pub fn dispatch(subcommands: &[Subcommand], arguments: Vec<OsString>) -> anyhow::Result<Exit> {
    let arguments = with_words_for_flags(arguments);
    if arguments.len() == 2 && ["version", "--version", "-V"].map(OsString::from).contains(&arguments[1]) {
        output::print(&version::text())?;
        return Ok(Exit::Ok);
    }
    let name = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    let found = subcommands.iter().find(|subcommand| (subcommand.command)().get_name() == name);
    let (own, job) = match found {
        Some(Subcommand { arguments: Arguments::Both, command, .. }) => {
            let command = command();
            let (own, job) = split(&command, &arguments[2..]);
            refuse_mistyped(&command, &job)?;
            ([&arguments[..2], &with_negative_values(&command, &own)].concat(), job)
        }
        Some(Subcommand { arguments: Arguments::Own, command, .. }) => {
            ([&arguments[..2], &with_negative_values(&command(), &arguments[2..])].concat(), Vec::new())
        }
        Some(Subcommand { arguments: Arguments::Job, .. }) => (arguments[..2].to_vec(), arguments[2..].to_vec()),
        _ => (arguments, Vec::new()),
    };
    let matches = match program(subcommands).try_get_matches_from(own) {
        Ok(matches) => matches,
        Err(error) => return refuse(&error),
    };
    match (found, matches.subcommand()) {
        (Some(subcommand), Some((_, matches))) => (subcommand.run)(matches, job),
        _ => bail!("no subcommand"),
    }
}

/// `plimsoll` and `plimsoll help [SUBCOMMAND]` as the flag that clap knows: `plimsoll [SUBCOMMAND] --help`.
fn with_words_for_flags(mut arguments: Vec<OsString>) -> Vec<OsString> {
    match arguments.get(1) {
        None => arguments.push("--help".into()),
        Some(word) if word == "help" => {
            arguments.remove(1);
            arguments.push("--help".into());
        }
        Some(_) => {}
    }
    arguments
}

/// Prints help to standard output; turns any other message of clap into an error of one line.
fn refuse(error: &clap::Error) -> anyhow::Result<Exit> {
    if !error.use_stderr() {
        error.print()?;
        return Ok(Exit::Ok);
    }
    let text = error.to_string();
    let said: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(str::trim)
        // The advice to escape the word does not help a user who mistyped an option.
        .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass"))
        .collect();
    bail!("{} (--help explains)", said.join(" ").trim_start_matches("error: ").replace(" tip: ", "; "))
}

/// Job options and files from the words that the clap table did not take. Flags that only `run` has are refused.
///
/// # Errors
/// An unknown option; a flag that would have no effect.
pub fn job_options(words: &[OsString]) -> anyhow::Result<Invocation> {
    let invocation = job::parse_command_line(words)?;
    let run = RunOptions { allow: invocation.run.allow, ..RunOptions::default() };
    if invocation.action != Action::Run || invocation.run != run {
        bail!("a flag of `plimsoll run` has no effect here (--help lists the arguments)");
    }
    Ok(invocation)
}

/// Inserts a subcommand's name into the arguments if a link of that name started the program.
///
/// A link named `fio` starts `fio`: `run` with the habits of fio, for scripts that call fio. `names` are the
/// subcommands with links of their own names, with any prefix: a script may call `/opt/bin/my-gfapi_perf_tool`.
pub fn called_as(names: &[&str], mut arguments: Vec<OsString>) -> Vec<OsString> {
    let program = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let program = program.to_string_lossy().into_owned();
    if program == crate::fio::NAME {
        arguments.insert(1, program.into());
    } else if let Some(name) = names.iter().find(|name| program.ends_with(**name)) {
        arguments.insert(1, name.into());
    }
    arguments
}

/// Splits the arguments: those that `command` knows, and all others in their order.
fn split(command: &Command, arguments: &[OsString]) -> (Vec<OsString>, Vec<OsString>) {
    let (mut own, mut job) = (Vec::new(), Vec::new());
    let mut arguments = arguments.iter().cloned();
    while let Some(argument) = arguments.next() {
        // The name alone decides; a value may have bytes that are not UTF-8.
        let text = argument.to_string_lossy();
        if text == "--" {
            job.push(argument);
            job.extend(arguments.by_ref());
        } else if let Some(known) = own_argument(command, &text) {
            let value_follows = known.is_some_and(wants_value) && !text.contains('=');
            own.push(with_two_dashes(&argument));
            own.extend(if value_follows { arguments.next() } else { None });
        } else {
            job.push(argument);
        }
    }
    (own, job)
}

/// Joins each long argument with a negative number behind it, as `--time=-1`: clap takes `-1` alone for an argument and
/// blames it, where the parser of the value says what to give. The words of another program stay as they are.
fn with_negative_values(command: &Command, arguments: &[OsString]) -> Vec<OsString> {
    let takes_a_program = command.get_arguments().any(Arg::is_trailing_var_arg_set);
    let is_negative = |word: &OsString| {
        let (first, second) = (word.as_encoded_bytes().first(), word.as_encoded_bytes().get(1));
        first == Some(&b'-') && second.is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.')
    };
    let mut joined = Vec::new();
    let mut rest = arguments.iter().cloned().peekable();
    while let Some(mut word) = rest.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" || (takes_a_program && !text.starts_with('-')) {
            joined.push(word);
            break;
        }
        let is_long = text.starts_with("--");
        let wants = own_argument(command, text).flatten().is_some_and(wants_value) && !text.contains('=');
        if let Some(value) = rest.next_if(|next| wants && is_long && is_negative(next)) {
            word.push("=");
            word.push(value);
            joined.push(word);
        } else {
            joined.push(word);
            joined.extend(rest.next_if(|next| wants && !is_negative(next)));
        }
    }
    joined.extend(rest);
    joined
}

/// Refuses the words for the job crate that are unknown there and nearest to an argument of the clap table.
fn refuse_mistyped(command: &Command, job: &[OsString]) -> anyhow::Result<()> {
    let own: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    let of_jobs: Vec<&str> =
        FLAGS.iter().map(|flag| flag.name).chain(options::all().flat_map(|option| option.names())).collect();
    for word in job.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str()?.strip_prefix("--")) {
        let name = word.split('=').next().unwrap_or_default();
        if !of_jobs.iter().any(|known| known.starts_with(name))
            && let Some(meant) = options::did_you_mean(name, own.iter().chain(&of_jobs).copied())
            && own.contains(&meant)
        {
            bail!("unknown option --{name} (did you mean --{meant}?)");
        }
    }
    Ok(())
}

/// The row of the argument in the clap table; Some(None) for the help flag, which clap adds by itself.
fn own_argument<'a>(command: &'a Command, argument: &str) -> Option<Option<&'a Arg>> {
    let name = argument.split('=').next().unwrap_or_default();
    if ["-h", "--help"].contains(&name) {
        return Some(None);
    }
    // fio takes long names after one dash too.
    let long = name.strip_prefix("--").or_else(|| name.strip_prefix('-')).filter(|long| long.len() > 1);
    let short =
        name.strip_prefix('-').filter(|short| short.len() == 1 && short != &"-").and_then(|short| short.chars().next());
    let is_it = |known: &&Arg| {
        long.is_some_and(|long| {
            known.get_long() == Some(long) || known.get_all_aliases().is_some_and(|all| all.contains(&long))
        }) || short.is_some_and(|short| known.get_short() == Some(short))
    };
    command.get_arguments().find(is_it).map(Some)
}

/// `-output=x` as `--output=x`.
fn with_two_dashes(argument: &OsStr) -> OsString {
    let bytes = argument.as_encoded_bytes();
    let mut dashed = OsString::new();
    if bytes.starts_with(b"-") && !bytes.starts_with(b"--") && bytes.len() > 2 {
        dashed.push("-");
    }
    dashed.push(argument);
    dashed
}

/// True if the argument takes a value, possibly as the next word.
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

    #[test]
    fn a_bare_call_and_the_word_help_ask_for_help() {
        for (typed, understood) in
            [("p", "p --help"), ("p help", "p --help"), ("p help run", "p run --help"), ("p run help", "p run help")]
        {
            assert_eq!(with_words_for_flags(words(typed)), words(understood));
        }
    }

    #[test]
    fn links_start_subcommands() {
        let called = |line: &str| called_as(&["fsperf"], words(line));
        assert_eq!(called("/usr/bin/fio a.fio"), words("/usr/bin/fio fio a.fio"));
        assert_eq!(called("my-fsperf d"), words("my-fsperf fsperf d"));
        assert_eq!(called("my-fio a.fio"), words("my-fio a.fio"));
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
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
    fn a_negative_number_is_the_value_of_the_argument_before_it() {
        let joined = |line: &str| with_negative_values(&command(), &words(line));
        assert_eq!(joined("--output -1s --check -.5"), words("--output=-1s --check -.5"));
        assert_eq!(joined("--output=x -1 -o -1 --output --check"), words("--output=x -1 -o -1 --output --check"));
        assert_eq!(joined("--eta -1 -- --output -1"), words("--eta -1 -- --output -1"));
        let of_a_program = command().arg(Arg::new("program").num_args(1..).trailing_var_arg(true));
        let joined = |line: &str| with_negative_values(&of_a_program, &words(line));
        assert_eq!(joined("--output -1 nice --output -1"), words("--output=-1 nice --output -1"));
        assert_eq!(joined("--output x nice --output -1"), words("--output x nice --output -1"));
    }

    #[test]
    fn a_value_may_have_bytes_that_are_not_utf_8() {
        use std::os::unix::ffi::OsStringExt;
        let word = |text: &[u8]| OsString::from_vec(text.to_vec());
        let (own, job) = split(&command(), &[word(b"-output=\xff"), word(b"--rw=\xff"), word(b"\xff")]);
        assert_eq!((own, job), (vec![word(b"--output=\xff")], vec![word(b"--rw=\xff"), word(b"\xff")]));
    }

    #[test]
    fn after_two_dashes_nothing_is_our_own() {
        let (own, job) = split(&command(), &words("--check -- --check x"));
        assert_eq!((own, job), (words("--check"), words("-- --check x")));
    }
}

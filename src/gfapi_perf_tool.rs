//! `gfapi_perf_tool`, under that name or as a subcommand: environment variables in, its lines out.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};

use anyhow::bail;
use clap::{ArgMatches, Command};
use load::smallfiles::perf_tool::{self, Variables, output as lines};
use measure::schema::Ended;

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output;

/// The name that the program may be called by.
pub const NAME: &str = "gfapi_perf_tool";

/// The row of this subcommand in the table of `main.rs`. Its arguments are left to itself: `-h` prints the variables.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Job, run };

fn command() -> Command {
    Command::new(NAME)
        .about("Run small files as gfapi_perf_tool does: GFAPI_... variables, the same output")
        .long_about(
            "Does what gfapi_perf_tool does, from the same environment variables, on the same files, with the same \
             output. A link of that name to this program does the same. Everything it can do, and more, `plimsoll files` \
             does too.",
        )
        .override_usage("GFAPI_FUSE=1 GFAPI_BASEDIR=/mnt/v GFAPI_LOAD=seq-wr ... gfapi_perf_tool")
        .after_help(lines::usage())
}

fn run(_matches: &ArgMatches, words: Vec<OsString>) -> anyhow::Result<Exit> {
    match words.first().map(OsString::as_os_str) {
        None => {}
        Some(word) if [OsStr::new("-h"), OsStr::new("--help")].contains(&word) => {
            output::print(&lines::usage())?;
            return Ok(Exit::Ok);
        }
        Some(word) => bail!("{NAME} takes no argument {word:?}: everything is set by variables (-h lists them)"),
    }
    let variables = Variables::read(|name| std::env::var(name).ok())?;
    let interrupt = Interrupt::listen()?;
    output::print(&lines::head(&variables))?;
    let mut say = |line: &str| {
        let now = sys::clock::local_seconds(sys::clock::realtime_ns() / 1_000_000_000);
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{} : {line}", report::ctime(now)); // a closed pipe shows at the results
        let _ = out.flush();
    };
    let result = match perf_tool::run(&variables, interrupt.stop, &mut say) {
        // The variables are right, but nobody fired the gun: the run failed.
        Err(error) if error.source.as_ref().is_some_and(|source| source.kind() == ErrorKind::TimedOut) => {
            let _ = writeln!(std::io::stderr(), "plimsoll: {error}");
            return Ok(Exit::JobFailed);
        }
        outcome => outcome?,
    };
    // Scripts add up the rates of many processes: a run that did not do all of its work has no rate.
    match (&result.error, result.ended) {
        (Some(error), _) => {
            let _ = writeln!(std::io::stderr(), "plimsoll: {}", error.message);
        }
        (None, Ended::Complete) => output::print(&lines::results(&variables, &result))?,
        (None, _) => {
            let _ = writeln!(std::io::stderr(), "plimsoll: the run was interrupted: it has no rates");
        }
    }
    if variables.debug {
        let _ = write!(std::io::stderr(), "{}", report::text::files(&result, output::style()));
    }
    Ok(result.ended.into())
}

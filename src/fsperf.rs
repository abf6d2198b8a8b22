//! `fsperf`, under that name or as a subcommand: SAP HANA's file system test as its users type it.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use load::fsperf::{DEPTH, Experiment, Mode, Said, Test, output as form};
use measure::units;

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output;

/// The name that the program may be called by.
pub const NAME: &str = "fsperf";

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    let choice = |short: char, long: &'static str, values: &'static [&'static str], help: &'static str| {
        Arg::new(long).short(short).long(long).value_parser(PossibleValuesParser::new(values)).help(help)
    };
    let size = |short: char, long: &'static str, default: &'static str, help: &'static str| {
        Arg::new(long).short(short).long(long).value_name("SIZE").value_parser(bytes).default_value(default).help(help)
    };
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new(NAME)
        .about("Measure one file as SAP HANA's fsperf does: O_DIRECT, libaio, the same output")
        .long_about(
            "Measures as fsperf of SAP HANA's hardware check does: writes, overwrites and reads one file with \
             O_DIRECT through libaio, with many blocks in flight (throughput) or one (latency). Prints what fsperf \
             prints. The program does the same when its name is fsperf.",
        )
        .arg(choice('t', "test", &["write", "overwrite", "read"], "Test to run on the file [default: all three]"))
        .arg(choice(
            'm',
            "mode",
            &["throughput", "latency"],
            "Many blocks in flight (throughput) or one (latency) [default: both]",
        ))
        .arg(size('f', "filesize", "5g", "Size of the file"))
        .arg(size('b', "blocksize", "64k", "Bytes of each request"))
        .arg(
            choice('o', "output", &["short", "long"], "A line for each test, or the long form of fsperf")
                .default_value("long"),
        )
        .arg(flag("noinit", "Use the existing file without writing it first, and keep it"))
        .arg(flag("noclean", "Keep the file at the end"))
        .arg(
            Arg::new("depth")
                .long("depth")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=65536))
                .help(format!("Requests in flight in the mode throughput [default: {DEPTH}]")),
        )
        .arg(Arg::new("DIR").required(true).value_parser(value_parser!(PathBuf)).help("Directory for the file"))
}

fn bytes(text: &str) -> Result<u64, String> {
    units::parse_bytes(text, 1024).map_err(|error| error.to_string())
}

fn run(matches: &ArgMatches, _words: Vec<OsString>) -> anyhow::Result<Exit> {
    let chosen = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let size = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or_default();
    let noinit = matches.get_flag("noinit");
    let experiment = Experiment {
        directory: matches.get_one::<PathBuf>("DIR").cloned().unwrap_or_default(),
        tests: Test::ALL.into_iter().filter(|test| chosen("test").is_none_or(|name| name == test.name())).collect(),
        modes: Mode::ALL.into_iter().filter(|mode| chosen("mode").is_none_or(|name| name == mode.name())).collect(),
        file_bytes: size("filesize"),
        block_bytes: size("blocksize"),
        depth: matches.get_one("depth").copied().unwrap_or(DEPTH),
        init: !noinit,
        clean: !noinit && !matches.get_flag("noclean"),
    };
    let interrupt = Interrupt::listen()?;
    let long = chosen("output") == Some("long");
    let (mut said_head, mut last, mut printed) = (!long, None, Ok(()));
    let mut say = |said: Said| {
        let figures = match said {
            Said::Note(note) => return complain(&note),
            Said::Figures(figures) => figures,
        };
        figures.warnings.iter().for_each(|warning| complain(warning));
        let head = if said_head { String::new() } else { form::head(&experiment) };
        let text =
            if long { form::long(&figures, last != Some(figures.test)) } else { form::short(&experiment, &figures) };
        (said_head, last) = (true, Some(figures.test));
        if printed.is_ok() {
            printed = output::print(&(head + &text)); // a closed pipe does not leave the file behind
        }
    };
    let ended = experiment.run(&interrupt.stop, &mut say)?;
    printed?;
    Ok(ended.into())
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{NAME}: {text}"); // a closed standard error does not stop the tests
}

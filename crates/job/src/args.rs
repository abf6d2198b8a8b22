//! fio's command line: flags for the run, options of jobs, and job files, in any order.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use measure::units::{self, TimeUnit};

use crate::build::{self, Imposed};
use crate::error::{Error, Place};
use crate::file::{self, Surroundings};
use crate::job::{Allow, Plan};
use crate::options::{self, Reader, values};
use crate::source::{Section, Setting, Source};

/// The request that a command line makes: an action, job files, jobs and options of the run.
#[derive(Clone, Default)]
pub struct Invocation {
    /// The action that the command line asks for.
    pub action: Action,
    /// Job files in order; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// The jobs and global options that are written on the command line itself.
    pub command_line: Source,
    /// Options of the run as a whole.
    pub run: RunOptions,
    /// Flags that were accepted and do nothing, each a sentence: [`Invocation::plan`] has them among its warnings.
    pub notes: Vec<String>,
}

/// The actions that a command line can ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Run the jobs and report.
    #[default]
    Run,
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// `--cmdhelp[=NAME]`: [`Invocation::help_text`] has the text.
    OptionHelp(Option<String>),
    /// `--enghelp[=NAME]`: [`Invocation::help_text`] has the text.
    EngineHelp(Option<String>),
    /// `--showcmd`: [`Invocation::show_command`] has the text.
    ShowCommand,
    /// `--parse-only`: build the plan, say nothing if it is sound.
    ParseOnly,
    /// `--check`: print the plan's warnings.
    Check,
    /// `--inflate-log=FILE`: print the lines of a log that `log_store_compressed` wrote.
    InflateLog(PathBuf),
}

/// A format of the report (`--output-format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `normal`: the report as text for people.
    Normal,
    /// `json`: the report in fio's JSON.
    Json,
    /// fio's JSON with all bins of the latencies.
    JsonPlus,
    /// The intervals of each job, a line of JSON each.
    Ndjson,
    /// fio's terse lines, version 3.
    Terse,
    /// The rows of the report as comma-separated values.
    Csv,
}

/// `--eta=`: the cases in which progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eta {
    /// Progress is shown on a terminal only.
    #[default]
    Auto,
    /// Progress is always shown.
    Always,
    /// Progress is never shown.
    Never,
}

/// The place of the warnings about the jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Warnings {
    /// Warnings go to standard error.
    #[default]
    Aside,
    /// Warnings go into the report for people, where fio has its notes; reports for programs stay as they are.
    InReport,
    /// Warnings are not printed: `--no-warnings`.
    Nowhere,
}

/// Flags that are about the run as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunOptions {
    /// `--output`: the file for the report; None: standard output.
    pub output: Option<PathBuf>,
    /// `--output-format`: forms of the report; empty: the report for people.
    pub formats: Vec<Format>,
    /// `--terse-version`: 2 to 5; None: 3.
    pub terse_version: Option<u8>,
    /// `--quiet`: no report on standard output, and no progress.
    pub quiet: bool,
    /// `--eta`: the cases in which progress is shown.
    pub eta: Eta,
    /// `--eta-interval`: time between two updates of the progress.
    pub eta_interval_ns: Option<u64>,
    /// `--eta-newline`: time after which progress begins a new line.
    pub eta_newline_ns: Option<u64>,
    /// `--status-interval`: time between two whole reports.
    pub status_interval_ns: Option<u64>,
    /// `--bandwidth-log`: `agg-read_bw.log` and its like.
    pub bandwidth_log: bool,
    /// `--readonly`: refuse jobs that write.
    pub read_only: bool,
    /// `--warnings-fatal`: warnings are errors.
    pub warnings_fatal: bool,
    /// `--no-warnings`: the place of the warnings about the jobs.
    pub warnings: Warnings,
    /// `--section`: the sections to run; all if empty.
    pub sections: Vec<String>,
    /// The number of the command line's own sections before the first `--section`, called as fio that of all its
    /// sections: the jobs to run are chosen among the others.
    pub before_sections: usize,
    /// `--save`: the file that keeps the result as Plimsoll's own JSON.
    pub save: Option<PathBuf>,
    /// `--html`: the file for a report in HTML.
    pub html: Option<PathBuf>,
    /// `--total-iodepth`: the depth of each job, all ranks and clones together.
    pub total_iodepth: Option<u32>,
    /// `--total-rate`: bytes per second each way, all ranks and clones together.
    pub total_rate: Option<u64>,
    /// `--total-rate-iops`: ops per second each way, all ranks and clones together.
    pub total_rate_iops: Option<u64>,
    /// `--allow-mounted-write`, `--allow-signature`: refusals that the user overrides.
    pub allow: Allow,
    /// The engine of all jobs, whatever they say (`compare --engine`).
    pub engine: Option<String>,
    /// True if jobs that verify and write save their state (`verify_state_save`) unless they say otherwise.
    pub saves_state: bool,
    /// True if the text after a number is ignored where fio ignores it, and `--parse-only` needs no job.
    pub reads_as_fio: bool,
    /// True if reports count the writes that `verify_only` goes through on paper, as fio does.
    pub counts_rehearsed: bool,
    /// `--debug=random`: print the seeds before the report.
    pub print_seeds: bool,
    /// `--debug=io`: print each op.
    pub print_ops: bool,
    /// `--debug=parse`: print the settings before anything else.
    pub print_settings: bool,
    /// `--aux-path`: directory of the files with verify states.
    pub aux_path: Option<PathBuf>,
    /// `--trigger`: the command that ends the run.
    pub trigger: Option<String>,
    /// `--trigger-timeout`: time after which the trigger acts.
    pub trigger_timeout_ns: Option<u64>,
    /// `--trigger-file`: the file whose appearance makes the trigger act.
    pub trigger_file: Option<PathBuf>,
}

/// Says if a flag has a value, and how the value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// The flag has no value.
    Nothing,
    /// The flag has a value, after `=` or as the next argument.
    Value,
    /// The flag may have a value, after `=`.
    Maybe,
}

/// A flag of the run.
pub struct Flag {
    /// Name of the flag, without dashes.
    pub name: &'static str,
    /// Says if the flag has a value.
    pub takes: Takes,
    /// Name of the flag's value in the help.
    pub value: &'static str,
    /// One line of help, without a full stop.
    pub help: &'static str,
    set: fn(&mut Invocation, &str) -> Result<(), String>,
}

const fn flag(
    name: &'static str,
    takes: Takes,
    value: &'static str,
    help: &'static str,
    set: fn(&mut Invocation, &str) -> Result<(), String>,
) -> Flag {
    Flag { name, takes, value, help, set }
}

const fn refused(
    name: &'static str,
    takes: Takes,
    help: &'static str,
    set: fn(&mut Invocation, &str) -> Result<(), String>,
) -> Flag {
    Flag { name, takes, value: "", help, set }
}

/// The time of a flag in nanoseconds, called as fio the one that fio reads.
fn seconds(invocation: &mut Invocation, flag: &str, value: &str) -> Result<u64, String> {
    if !invocation.run.reads_as_fio {
        return units::parse_time_ns(value, TimeUnit::Seconds).map_err(|error| error.to_string());
    }
    let mut reader = Reader { lenient: true, ..Reader::new(1024) };
    let ns = reader.time(value, TimeUnit::Seconds)?;
    invocation.notes.extend(reader.differences.iter().map(|difference| format!("--{flag}: {difference}")));
    Ok(ns)
}

/// The shortest `--eta-interval` of fio.
const FIO_ETA_NS: u64 = 250_000_000;

/// Reads the number of a flag whose number has no effect: called as fio, any text, as in fio.
fn unused_number(invocation: &Invocation, value: &str) -> Result<(), String> {
    match value.parse::<u64>() {
        Err(_) if !invocation.run.reads_as_fio => Err(format!("\"{value}\" is not a number")),
        _ => Ok(()),
    }
}

const USE_MPI: &str =
    "Plimsoll has no server: run on many machines with mpirun -np N --hostfile FILE plimsoll run job.fio";
const NO_TRIGGER: &str =
    "a trigger acts on the host that runs the jobs: use --trigger with --trigger-file or --trigger-timeout";

/// Every flag: those of fio, and those that only Plimsoll has.
pub static FLAGS: &[Flag] = &[
    flag("help", Takes::Nothing, "", "Print the help", |i, _| act(i, Action::Help)),
    flag("version", Takes::Nothing, "", "Print the version", |i, _| act(i, Action::Version)),
    flag("cmdhelp", Takes::Maybe, "OPTION", "Describe an option of jobs, or list all options", |i, v| {
        act(i, Action::OptionHelp(named(v)))
    }),
    flag("enghelp", Takes::Maybe, "ENGINE", "Describe an engine, or list all engines", |i, v| {
        act(i, Action::EngineHelp(named(v)))
    }),
    flag("showcmd", Takes::Nothing, "", "Print the job files as a command line", |i, _| act(i, Action::ShowCommand)),
    flag("parse-only", Takes::Nothing, "", "Read the jobs, but do not run them", |i, _| act(i, Action::ParseOnly)),
    flag("check", Takes::Nothing, "", "Print doubts about the jobs, but do not run them", |i, _| act(i, Action::Check)),
    flag("inflate-log", Takes::Value, "FILE", "Print a log that log_store_compressed wrote", |i, v| {
        act(i, Action::InflateLog(v.into()))
    }),
    flag("output", Takes::Value, "FILE", "Write the report to FILE", |i, v| {
        i.run.output = Some(v.into());
        Ok(())
    }),
    flag("output-format", Takes::Value, "normal|json|json+|ndjson|terse|csv[,...]", "Format of the report", |i, v| {
        i.run.formats = v
            .split(',')
            .map(|word| match word.trim() {
                "normal" => Ok(Format::Normal),
                "json" => Ok(Format::Json),
                "json+" => Ok(Format::JsonPlus),
                "ndjson" => Ok(Format::Ndjson),
                "terse" => Ok(Format::Terse),
                "csv" | "minimal" if i.run.reads_as_fio => Ok(Format::Terse),
                "csv" => Ok(Format::Csv),
                word => Err(format!("\"{word}\" is not one of normal, json, json+, ndjson, terse, csv")),
            })
            .collect::<Result<_, _>>()?;
        Ok(())
    }),
    flag("quiet", Takes::Nothing, "", "Print no report and no progress; files are written as ever", |i, _| {
        (i.run.quiet, i.run.eta) = (true, Eta::Never);
        Ok(())
    }),
    flag("eta", Takes::Value, "auto|always|never", "When to show progress", |i, v| {
        i.run.eta = match v {
            "auto" => Eta::Auto,
            "always" => Eta::Always,
            "never" => Eta::Never,
            // fio overlooks every other word.
            _ if i.run.reads_as_fio => i.run.eta,
            _ => return Err(format!("\"{v}\" is not one of auto, always, never")),
        };
        Ok(())
    }),
    flag("eta-interval", Takes::Value, "TIME", "Time between two updates of progress", |i, v| {
        let ns = seconds(i, "eta-interval", v)?;
        if i.run.reads_as_fio && ns < FIO_ETA_NS {
            return Err("it is at least 250 milliseconds".into());
        }
        i.run.eta_interval_ns = Some(ns);
        Ok(())
    }),
    flag("eta-newline", Takes::Value, "TIME", "Time after which progress begins a new line", |i, v| {
        let ns = seconds(i, "eta-newline", v)?;
        if i.run.reads_as_fio && ns < 1_000_000 {
            return Err("it is at least a millisecond".into());
        }
        i.run.eta_newline_ns = Some(ns);
        Ok(())
    }),
    flag("status-interval", Takes::Value, "TIME", "Time between two reports while the jobs run", |i, v| {
        let ns = seconds(i, "status-interval", v)?;
        if ns < 1_000_000 {
            return Err("it is at least a millisecond".into());
        }
        i.run.status_interval_ns = Some(ns);
        Ok(())
    }),
    flag("bandwidth-log", Takes::Nothing, "", "Log the bandwidth of all jobs together", |i, _| {
        i.run.bandwidth_log = true;
        Ok(())
    }),
    flag("readonly", Takes::Nothing, "", "Refuse jobs that write", |i, _| {
        i.run.read_only = true;
        Ok(())
    }),
    flag("section", Takes::Value, "NAME", "Run this section only; may be repeated", |i, v| {
        if v == "global" {
            return Err("global is not a job: give the name of a job section".into());
        }
        if i.run.sections.is_empty() && !i.run.reads_as_fio {
            i.run.before_sections = i.command_line.sections.len();
        }
        i.run.sections.push(v.into());
        Ok(())
    }),
    flag("warnings-fatal", Takes::Nothing, "", "Treat warnings as errors", |i, _| {
        i.run.warnings_fatal = true;
        Ok(())
    }),
    flag("no-warnings", Takes::Nothing, "", "Do not print the warnings about the jobs", |i, _| {
        i.run.warnings = Warnings::Nowhere;
        Ok(())
    }),
    flag("save", Takes::Value, "FILE", "Write the whole result to FILE, for report and compare", |i, v| {
        i.run.save = Some(v.into());
        Ok(())
    }),
    flag("html", Takes::Value, "FILE", "Write the report to FILE as one HTML page", |i, v| {
        i.run.html = Some(v.into());
        Ok(())
    }),
    // Commands that run on many hosts take the option out of the words before the job crate reads them.
    flag(
        "hosts",
        Takes::Value,
        "HOST,...",
        "Run on these hosts, which ssh reaches, a rank on each (docs/hosts.md)",
        |_, _| Err("run, sweep and files take it; this command runs on one host".into()),
    ),
    flag("total-iodepth", Takes::Value, "N", "Divide this depth over all ranks and clones of each job", |i, v| {
        i.run.total_iodepth = Some(v.parse().ok().filter(|depth| *depth > 0).ok_or("give a number from 1")?);
        Ok(())
    }),
    flag(
        "total-rate",
        Takes::Value,
        "BYTES",
        "Divide this rate each way over all ranks and clones of each job",
        |i, v| {
            let bytes = units::parse_bytes(v, 1024).map_err(|error| error.to_string())?;
            i.run.total_rate = Some(Some(bytes).filter(|bytes| *bytes > 0).ok_or("give at least one byte per second")?);
            Ok(())
        },
    ),
    flag(
        "total-rate-iops",
        Takes::Value,
        "N",
        "Divide this rate in requests per second over all ranks and clones of each job",
        |i, v| {
            i.run.total_rate_iops = Some(v.parse().ok().filter(|rate| *rate > 0).ok_or("give a number from 1")?);
            Ok(())
        },
    ),
    flag("allow-mounted-write", Takes::Nothing, "", "Write to devices that are mounted", |i, _| {
        i.run.allow.mounted_write = true;
        Ok(())
    }),
    flag("allow-signature", Takes::Nothing, "", "Write to devices that carry a file system", |i, _| {
        i.run.allow.signature_write = true;
        Ok(())
    }),
    flag("max-jobs", Takes::Value, "N", "Accepted without effect: the number of jobs has no limit", |i, v| {
        unused_number(i, v)
    }),
    flag("alloc-size", Takes::Value, "KB", "Accepted without effect: memory grows as needed", |i, v| {
        unused_number(i, v)
    }),
    flag(
        "aux-path",
        Takes::Value,
        "DIR",
        "Directory of the files of verify_state_save and verify_state_load",
        |i, v| {
            i.run.aux_path = Some(v.into());
            Ok(())
        },
    ),
    flag("trigger", Takes::Value, "COMMAND", "End the run when the trigger acts, then run this command", |i, v| {
        i.run.trigger = Some(v.into());
        Ok(())
    }),
    flag(
        "trigger-file",
        Takes::Value,
        "FILE",
        "Let the trigger act when this file exists, and remove the file",
        |i, v| {
            i.run.trigger_file = Some(v.into());
            Ok(())
        },
    ),
    flag("trigger-timeout", Takes::Value, "TIME", "Let the trigger act after this time", |i, v| {
        i.run.trigger_timeout_ns = Some(seconds(i, "trigger-timeout", v)?);
        Ok(())
    }),
    flag(
        "debug",
        Takes::Value,
        "TYPE[,...]",
        "With random, print the seeds of all random decisions; with parse, the settings; with io, each request",
        |i, v| {
            let asks = |wanted: &str| v.split(',').any(|kind| kind == wanted || kind == "all");
            i.run.print_seeds |= asks("random");
            i.run.print_settings |= asks("parse");
            i.run.print_ops |= v.split(',').any(|kind| kind == "io");
            if v.split(',').any(|kind| !["random", "parse", "io"].contains(&kind)) {
                i.notes.push(
                    "--debug has an effect with random, parse and io only: --check prints doubts about the jobs".into(),
                );
            }
            Ok(())
        },
    ),
    flag("minimal", Takes::Nothing, "", "Print terse output only, as --output-format=terse", |i, _| {
        i.run.formats = vec![Format::Terse];
        Ok(())
    }),
    flag("append-terse", Takes::Maybe, "1", "Add terse output to the report", |i, _| {
        if i.run.formats.is_empty() {
            i.run.formats.push(Format::Normal);
        }
        i.run.formats.push(Format::Terse);
        Ok(())
    }),
    flag("terse-version", Takes::Value, "2|3|4|5", "Version of terse output; 3 by default", |i, v| {
        let version = v.parse().ok().filter(|version| (2..=5).contains(version));
        i.run.terse_version = Some(version.ok_or_else(|| format!("\"{v}\" is not one of 2, 3, 4, 5"))?);
        Ok(())
    }),
    refused("server", Takes::Maybe, "fio's server", |_, _| Err(USE_MPI.into())),
    refused("client", Takes::Value, "fio's client", |_, _| Err(USE_MPI.into())),
    refused("remote-config", Takes::Value, "Job file of fio's server", |_, _| Err(USE_MPI.into())),
    refused("daemonize", Takes::Value, "Run fio's server in the background", |_, _| Err(USE_MPI.into())),
    refused("latency-log", Takes::Value, "Latency log", |_, _| {
        Err("fio has removed it: use the option write_lat_log of a job".into())
    }),
    refused("profile", Takes::Value, "Profile that fio has built in", |_, _| {
        Err("profiles are not supported: describe the load in a job file".into())
    }),
    refused("idle-prof", Takes::Value, "Idle time of processors", |_, _| {
        Err("idle profiling is not supported: the report has the processor time of each job".into())
    }),
    refused("merge-blktrace-only", Takes::Nothing, "Refused: Plimsoll reads no block traces", |_, _| {
        Err("Plimsoll does not read block traces".into())
    }),
    refused("cpuclock-test", Takes::Nothing, "Refused: every run tests the processor's clock", |_, _| {
        Err("every run checks the clock, and a verdict names a clock that is not reliable".into())
    }),
    refused("crctest", Takes::Maybe, "Speed of checksums", |_, _| {
        Err("Plimsoll does not have this test of fio: run verify= with the null engine".into())
    }),
    refused(
        "memcpytest",
        Takes::Maybe,
        "Speed of memcpy",
        |_, _| Err("Plimsoll does not have this test of fio".into()),
    ),
    refused("trigger-remote", Takes::Value, "Trigger", |_, _| Err(NO_TRIGGER.into())),
];

fn act(invocation: &mut Invocation, action: Action) -> Result<(), String> {
    invocation.action = action;
    Ok(())
}

fn named(value: &str) -> Option<String> {
    Some(value).filter(|value| !value.is_empty() && *value != "all").map(String::from)
}

/// The flag or job option that an argument beginning with a dash names.
enum Named {
    Flag(&'static Flag),
    Option(&'static options::OptionSpec),
}

/// Reads a command line, the program's name and its subcommand left out.
///
/// As with fio: options before the first `--name` are for all jobs, those after it for that job; a value stands
/// after `=` or as the next argument; one dash is as good as two; names may be shortened as long as they are
/// unambiguous; job files stand anywhere.
///
/// # Errors
/// The first argument that is wrong.
pub fn parse_command_line(arguments: &[OsString]) -> Result<Invocation, Error> {
    parse_into(Invocation::default(), arguments)
}

/// Reads a command line of a program that was called as `fio`: what fio takes and overlooks, this function does too.
///
/// # Errors
/// See [`parse_command_line`].
pub fn parse_command_line_as_fio(arguments: &[OsString]) -> Result<Invocation, Error> {
    let run = RunOptions { reads_as_fio: true, ..RunOptions::default() };
    parse_into(Invocation { run, ..Invocation::default() }, arguments)
}

fn parse_into(mut invocation: Invocation, arguments: &[OsString]) -> Result<Invocation, Error> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let Some(text) = argument.to_str() else {
            if argument.as_encoded_bytes().starts_with(b"-") {
                return Err(not_utf8(argument));
            }
            invocation.files.push(argument.into());
            continue;
        };
        if text == "--" {
            invocation.files.extend(rest.by_ref().map(PathBuf::from));
            break;
        }
        // fio's short forms; every other name after one dash is that of an option.
        if let Some(action) = [("-h", Action::Help), ("-v", Action::Version)].into_iter().find(|form| form.0 == text) {
            invocation.action = action.1;
            continue;
        }
        let Some(body) = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).filter(|body| !body.is_empty())
        else {
            invocation.files.push(argument.into());
            continue;
        };
        let (name, given) = body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value.to_string())));
        let named = lookup(name)?;
        let takes = match &named {
            Named::Flag(flag) => flag.takes,
            Named::Option(option) if option.value_is_optional() => Takes::Maybe,
            Named::Option(_) => Takes::Value,
        };
        let value = match (takes, given) {
            (Takes::Nothing, Some(_)) => return Err(wrong(format!("--{name} takes no value"))),
            (Takes::Value, None) => Some(next_value(name, rest.next())?),
            // fio takes the next argument for the prefix of a log.
            (Takes::Maybe, None) if is_prefix(&named) && invocation.run.reads_as_fio => {
                let prefix =
                    rest.as_slice().first().and_then(|next| next.to_str()).filter(|next| !next.starts_with('-'));
                prefix.map(|prefix| {
                    rest.next();
                    prefix.into()
                })
            }
            (_, given) => given,
        };
        match named {
            Named::Flag(flag) => {
                (flag.set)(&mut invocation, value.as_deref().unwrap_or_default())
                    .map_err(|message| wrong(format!("--{}: {message}", flag.name)))?;
            }
            Named::Option(option) => take_option(&mut invocation, option, value),
        }
    }
    Ok(invocation)
}

/// True if the value is the prefix of a log, which may be left out.
fn is_prefix(named: &Named) -> bool {
    matches!(named, Named::Option(option) if matches!(option.kind, options::ValueKind::OptionalText(_)))
}

fn wrong(what: String) -> Error {
    Error::new(&Place::CommandLine, what)
}

/// The error of an option with bytes that are not UTF-8: in its value, or in its name.
fn not_utf8(argument: &OsStr) -> Error {
    let text = argument.to_string_lossy();
    match text.split_once('=') {
        Some((name, value)) => wrong(format!("{name}: the value {value} is not UTF-8")),
        None => wrong(format!("unknown option {text}")).hint("its name is not UTF-8"),
    }
}

fn next_value(name: &str, next: Option<&OsString>) -> Result<String, Error> {
    let next = next.ok_or_else(|| wrong(format!("--{name} needs a value")).hint(format!("write --{name}=VALUE")))?;
    next.to_str().map(String::from).ok_or_else(|| wrong(format!("--{name}: the value {} is not UTF-8", next.display())))
}

fn lookup(name: &str) -> Result<Named, Error> {
    if let Some(flag) = FLAGS.iter().find(|flag| flag.name == name) {
        return Ok(Named::Flag(flag));
    }
    if let Some(option) = options::find(name) {
        return Ok(Named::Option(option));
    }
    let known = || FLAGS.iter().map(|flag| flag.name).chain(options::all().flat_map(|option| option.names()));
    let longer: Vec<&str> = known().filter(|known| known.starts_with(name)).collect();
    match longer.as_slice() {
        [only] => lookup(only),
        [] => Err(match options::did_you_mean(name, known()) {
            Some(meant) => wrong(format!("unknown option --{name}")).hint(format!("did you mean --{meant}?")),
            None => {
                wrong(format!("unknown option --{name}")).hint("--help lists the flags, --cmdhelp the options of jobs")
            }
        }),
        several => Err(wrong(format!("--{name} is ambiguous"))
            .hint(format!("it may be --{}", several.iter().take(6).copied().collect::<Vec<_>>().join(", --")))),
    }
}

/// A job option: of the job that the last `--name` began, or of all jobs. In fio, options behind the name of a job that
/// `--section` has left out are for all later jobs.
fn take_option(invocation: &mut Invocation, option: &'static options::OptionSpec, value: Option<String>) {
    let (sections, run) = (&mut invocation.command_line.sections, &mut invocation.run);
    // fio has its keywords in job files only.
    let value = value.map(|value| if run.reads_as_fio { value } else { file::keywords(&value) });
    let name = value.as_deref().filter(|_| option.name == "name");
    let is_left_out = run.reads_as_fio
        && !run.sections.is_empty()
        && name.is_some_and(|name| !name.starts_with("global") && run.sections.iter().all(|wanted| wanted != name));
    let begun = match name {
        Some(name) if !is_left_out => Some(name),
        None if !sections.is_empty() => None,
        _ => Some("global"),
    };
    if let Some(name) = begun {
        sections.push(Section { name: name.into(), place: Place::CommandLine, settings: Vec::new() });
    }
    if run.reads_as_fio {
        // A section of the command line that is here already runs.
        run.before_sections = sections.len();
    }
    if is_left_out {
        return;
    }
    if let Some(section) = sections.last_mut() {
        section.settings.push(Setting { option, value, place: Place::CommandLine });
    }
}

impl Invocation {
    /// True if the plan may be empty: called as fio, `--parse-only` reads options alone.
    pub fn may_lack_jobs(&self) -> bool {
        self.run.reads_as_fio && self.action == Action::ParseOnly
    }

    /// The jobs, validated, from the job files and the command line.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn plan(&self) -> Result<Plan, Error> {
        self.plan_in(&Surroundings::SYSTEM)
    }

    /// The plan of this command line, as `plan` makes it, with other surroundings.
    ///
    /// # Errors
    /// See [`Invocation::plan`].
    pub fn plan_in(&self, surroundings: &Surroundings) -> Result<Plan, Error> {
        let files = self.files.iter().map(|path| file::parse(path, surroundings)).collect::<Result<Vec<_>, _>>()?;
        let imposed = Imposed {
            read_only: self.run.read_only,
            warnings_fatal: self.run.warnings_fatal,
            sections: self.run.sections.clone(),
            before_sections: self.run.before_sections,
            allow: self.run.allow,
            engine: self.run.engine.clone(),
            saves_state: self.run.saves_state
                || self.run.trigger_file.is_some()
                || self.run.trigger_timeout_ns.is_some(),
            state_directory: self.run.aux_path.clone(),
            lenient: self.run.reads_as_fio,
            may_lack_jobs: self.may_lack_jobs(),
        };
        let mut plan = build::plan(&self.command_line, &files, &imposed)?;
        plan.warnings.splice(0..0, self.notes.iter().cloned());
        Ok(plan)
    }

    /// The settings of the command line and of the job files, one a line, with their places: `--debug=parse`.
    ///
    /// A threshold of `steadystate` is a line of its own, in the words of fio's debug output, on which scripts rely.
    ///
    /// # Errors
    /// A job file that cannot be read.
    pub fn settings(&self, surroundings: &Surroundings) -> Result<String, Error> {
        let files = self.files.iter().map(|path| file::parse(path, surroundings)).collect::<Result<Vec<_>, _>>()?;
        let mut text = String::new();
        for section in std::iter::once(&self.command_line).chain(&files).flat_map(|source| &source.sections) {
            for setting in &section.settings {
                text.push_str(&format!("parse: {}: [{}] {}\n", setting.place, section.name, setting.written()));
                let threshold = setting.value.as_deref().filter(|_| setting.option.name == "steadystate");
                if let Some(steady) =
                    threshold.and_then(|value| values::steady_state(&mut Reader::new(1024), value).ok())
                {
                    text.push_str(&format!("parse: set steady state {}\n", steady.threshold()));
                }
            }
        }
        Ok(text)
    }

    /// The job files as command lines, one a line: `--showcmd`.
    ///
    /// # Errors
    /// A job file that cannot be read.
    pub fn show_command(&self, surroundings: &Surroundings) -> Result<String, Error> {
        let mut text = String::new();
        for path in &self.files {
            let source = file::parse(path, surroundings)?;
            text.push_str(if self.run.reads_as_fio { "fio" } else { "plimsoll run" });
            let wanted = |section: &&Section| {
                section.is_global() || self.run.sections.is_empty() || self.run.sections.contains(&section.name)
            };
            let mut first = true;
            for section in source.sections.iter().filter(wanted) {
                // Global sections after a job need a name to be told from the job's own options.
                if !section.is_global() || !first {
                    text.push_str(&format!(" {}", quoted(&format!("--name={}", section.name))));
                }
                first = false;
                for setting in &section.settings {
                    text.push_str(&format!(" {}", quoted(&format!("--{}", setting.written()))));
                }
            }
            text.push('\n');
        }
        Ok(text)
    }

    /// The text of `--help`, `--cmdhelp` and `--enghelp`; None for other actions.
    ///
    /// # Errors
    /// An option or engine that is not known.
    pub fn help_text(&self) -> Result<Option<String>, Error> {
        Ok(Some(match &self.action {
            Action::Help => help(),
            Action::OptionHelp(None) => options::overview(),
            Action::OptionHelp(Some(name)) => {
                options::describe(options::find(name).ok_or_else(|| file::unknown(name, &Place::CommandLine))?)
            }
            Action::EngineHelp(None) => crate::engines::overview(),
            Action::EngineHelp(Some(name)) => {
                // fio: --enghelp=ENGINE,OPTION
                let (engine, option) =
                    name.split_once(',').map_or((name.as_str(), None), |(engine, option)| (engine, Some(option)));
                let text = crate::engines::describe(engine).ok_or_else(|| {
                    wrong(format!("unknown engine {engine}")).hint(format!("engines: {}", crate::engines::names()))
                })?;
                match option {
                    Some(option) => options::describe(
                        options::find(option).ok_or_else(|| file::unknown(option, &Place::CommandLine))?,
                    ),
                    None => text,
                }
            }
            _ => return Ok(None),
        }))
    }
}

fn help() -> String {
    let mut text = String::from("plimsoll run [FLAG | --OPTION=VALUE | JOBFILE]...\n\nFlags:\n");
    for flag in FLAGS.iter().filter(|flag| flag.takes == Takes::Nothing || !flag.value.is_empty()) {
        let value = match flag.takes {
            Takes::Nothing => String::new(),
            Takes::Value => format!("={}", flag.value),
            Takes::Maybe => format!("[={}]", flag.value),
        };
        text.push_str(&format!("  --{:<40} {}\n", format!("{}{value}", flag.name), flag.help));
    }
    text + "\nJobs take fio's options, in job files and as --OPTION=VALUE: --cmdhelp lists the options.\n"
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:%+@^".contains(c);
    if argument.chars().all(plain) { argument.into() } else { format!("'{}'", argument.replace('\'', "'\\''")) }
}

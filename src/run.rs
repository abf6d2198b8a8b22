//! `plimsoll run`: job files and job options, as fio takes them.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Command};
use job::Invocation;
use job::args::{Action, Eta, FLAGS, Format, RunOptions, Takes};
use job::job::Plan;
use load::Control;
use load::engine::Kind;
use measure::schema::{Document, RunResult};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::{Bar, Show, phase_name};

/// The row of the table.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Job, run };

/// The flags are the job crate's: this is for help, man pages and completions, and takes part in no parsing.
fn command() -> Command {
    Command::new("run")
        .about("Run fio job files, or a job given as options")
        .long_about(
            "Runs fio job files, or a job given as options (--name=test --rw=randread --bs=4k ...), and prints what \
             the storage did and whether the numbers can be believed.",
        )
        .override_usage("plimsoll run [FLAG]... [JOBFILE]... [--name=JOB] [--JOB-OPTION=VALUE]...")
        .after_help("Job options are fio's: `plimsoll run --cmdhelp` lists them, `--cmdhelp=OPTION` explains one.")
}

/// The flags of `run` as clap knows arguments.
pub fn flags() -> impl Iterator<Item = Arg> {
    let shown =
        FLAGS.iter().filter(|flag| flag.name != "help" && (flag.takes == Takes::Nothing || !flag.value.is_empty()));
    shown.map(|flag| {
        let argument = Arg::new(flag.name).long(flag.name).help(flag.help);
        match flag.takes {
            Takes::Nothing => argument.num_args(0),
            Takes::Value => argument.value_name(flag.value).num_args(1),
            Takes::Maybe => argument.value_name(flag.value).num_args(0..=1).require_equals(true),
        }
    })
}

fn run(_matches: &ArgMatches, words: Vec<OsString>) -> anyhow::Result<Exit> {
    let help = words.iter().any(|word| word == "-h"); // fio's short form; all others are names of options
    let invocation = if help {
        Invocation { action: Action::Help, ..Invocation::default() }
    } else {
        job::parse_command_line(&words)?
    };
    if let Some(text) = invocation.help_text()? {
        output::print(&text)?;
        return Ok(Exit::Ok);
    }
    match invocation.action {
        Action::Version => output::print(concat!("plimsoll ", env!("CARGO_PKG_VERSION"), "\n"))?,
        Action::ShowCommand => output::print(&invocation.show_command()?)?,
        Action::Check => return check(&planned(&invocation)?, true),
        Action::ParseOnly => return check(&planned(&invocation)?, false),
        _ => return measure(&invocation, &planned(&invocation)?),
    }
    Ok(Exit::Ok)
}

fn planned(invocation: &Invocation) -> anyhow::Result<Plan> {
    if invocation.files.is_empty() && invocation.command_line.sections.is_empty() {
        bail!("nothing to run: give a job file, or a job as --name=NAME --rw=... (`plimsoll run --help`)");
    }
    Ok(invocation.plan()?)
}

fn measure(invocation: &Invocation, plan: &Plan) -> anyhow::Result<Exit> {
    output::warn(&plan.warnings);
    let interrupt = Interrupt::listen()?;
    let mut bar = Bar::new(match invocation.run.eta {
        Eta::Auto => Show::Auto,
        Eta::Always => Show::Always,
        Eta::Never => Show::Never,
    });
    bar.every(invocation.run.eta_interval_ns);
    bar.newline_every(invocation.run.eta_newline_ns);
    let mut tick = |now: &load::Progress| {
        bar.show(&format!("{} {}/{}", phase_name(now.phase), now.running.0, now.running.1), now.done, now);
    };
    let mut out = Reports::new(&invocation.run);
    let mut status = |result: RunResult| out.add(&result);
    let status = invocation.run.status_interval_ns.map(|interval_ns| (interval_ns, &mut status as _));
    let mut control = Control { stop: interrupt.stop, progress: Some(&mut tick), status, ..Control::default() };
    let result = load::run(plan, &mut control)?;
    drop(bar);

    out.add(&result);
    out.finish()?;
    if invocation.run.bandwidth_log {
        for (direction, log) in report::bandwidth_log::render(&result).iter() {
            output::write(Path::new(&format!("agg-{}_bw.log", direction.name())), log)?;
        }
    }
    let ended = result.ended;
    if !invocation.run.formats.is_empty() && !invocation.run.formats.contains(&Format::Normal) {
        output::complain(&result); // fio's schema has room for a number only
    }
    let (save, html) = (invocation.run.save.as_deref(), invocation.run.html.as_deref());
    output::save(save, html, Document::Run(result))?;
    Ok(ended.into())
}

/// Reports one after another: on standard output at once, in a file when all are there.
struct Reports<'a> {
    run: &'a RunOptions,
    text: String,
    outcome: anyhow::Result<()>,
}

impl<'a> Reports<'a> {
    fn new(run: &'a RunOptions) -> Reports<'a> {
        Reports { run, text: String::new(), outcome: Ok(()) }
    }

    fn add(&mut self, result: &RunResult) {
        let text = render(&self.run.formats, result);
        if self.run.output.is_some() {
            self.text += &text;
        } else if self.outcome.is_ok() {
            // A closed standard output does not end the load: its files are still to be cleaned up.
            self.outcome = output::print(&text);
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        if let Some(path) = &self.run.output {
            output::write(path, &self.text)?;
        }
        self.outcome
    }
}

fn render(formats: &[Format], result: &RunResult) -> String {
    let one = |format: &Format| match format {
        Format::Normal => report::text::run(result, output::style()),
        Format::Json => report::fio_json::render(result, false),
        Format::JsonPlus => report::fio_json::render(result, true),
        Format::Ndjson => report::ndjson::render(result),
        Format::Terse => report::terse::render(result),
    };
    if formats.is_empty() { one(&Format::Normal) } else { formats.iter().map(one).collect() }
}

/// What `--check` says of jobs that can be run; nothing is touched.
fn check(plan: &Plan, aloud: bool) -> anyhow::Result<Exit> {
    for job in &plan.jobs {
        let unknown =
            || format!("job {}: unknown engine {} (`plimsoll run --enghelp` lists them)", job.name, job.engine);
        Kind::find(&job.engine).with_context(unknown)?;
    }
    if !aloud {
        output::warn(&plan.warnings);
        return Ok(Exit::Ok);
    }
    let mut out = std::io::stdout().lock();
    for warning in &plan.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    let names: Vec<&str> = plan.jobs.iter().map(|job| job.name.as_str()).collect();
    let plural = |count: usize, what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    writeln!(out, "{} ({}), {}", plural(names.len(), "job"), names.join(", "), plural(plan.warnings.len(), "warning"))?;
    Ok(Exit::Ok)
}

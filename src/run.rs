//! `plimsoll run`: job files and job options, as fio takes them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::bail;
use clap::{Arg, ArgMatches, Command};
use hosts::Part;
use job::Invocation;
use job::Rank;
use job::args::{Action, Eta, FLAGS, Format, RunOptions, Takes, Warnings};
use job::job::Plan;
use job::workload::stream_seeds;
use load::Control;
use measure::schema::{Document, Ended, RunResult};

use crate::command_line::{Arguments, Subcommand};
use crate::crew::{self, Crew, Joined};
use crate::exit::Exit;
use crate::fio::status_line::StatusLine;
use crate::interrupt::Interrupt;
use crate::live_load::LiveLoad;
use crate::progress::{Bar, Show, phase_name};
use crate::trigger::Trigger;
use crate::{output, version};

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Job, run };

/// The flags are the job crate's: this is for help, man pages and completions, and takes part in no parsing.
fn command() -> Command {
    Command::new("run")
        .about("Run fio job files, or a job given as options")
        .long_about(
            "Runs fio job files, or a job given as options (--name=test --rw=randread --bs=4k ...), and prints the \
             results, and which numbers are not reliable.",
        )
        .override_usage("plimsoll run [FLAG]... [JOBFILE]... [--name=JOB] [--JOB-OPTION=VALUE]...")
        .after_help(
            "`run` takes fio's job options: `plimsoll run --cmdhelp` lists them, `--cmdhelp=OPTION` explains one.",
        )
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

/// The name by which the program was called, and so the habits that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As `plimsoll run` does it.
    Own,
    /// As `fio` does it: with fio's version, order of reports and place for notes.
    Fio,
}

fn run(_matches: &ArgMatches, words: Vec<OsString>) -> anyhow::Result<Exit> {
    run_as(Manner::Own, words)
}

/// Carries out the arguments of `run`.
///
/// # Errors
/// The error in the arguments, before anything ran.
pub fn run_as(manner: Manner, words: Vec<OsString>) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let crew = match crew::join(&interrupt)? {
        Joined::Alone => return alone(manner, words, interrupt),
        Joined::Among(crew) => crew,
        Joined::Mute(status) => return Ok(status),
    };
    let asked = Asked::read(manner, words, &crew.rank)
        .and_then(|asked| if crew.is_leader() { asked.try_outputs().map(|()| asked) } else { Ok(asked) });
    let status = match crew.agree(asked) {
        Ok(Asked::Load(invocation, plan)) => together(&crew, &invocation, &plan, interrupt),
        Ok(asked) if crew.is_leader() => asked.print(),
        Ok(_) => Ok(Exit::Ok),
        Err(status) => Ok(status),
    };
    Ok(crew.leave(crew::said(status)))
}

fn alone(manner: Manner, words: Vec<OsString>, interrupt: Interrupt) -> anyhow::Result<Exit> {
    let asked = Asked::read(manner, words, &crew::alone())?;
    asked.try_outputs()?;
    match asked {
        Asked::Load(invocation, mut plan) => {
            if invocation.run.print_seeds {
                load::draw_seeds(&mut plan);
            }
            plan.jobs.iter_mut().for_each(|job| job.reporting.tells_ops = invocation.run.print_ops);
            plan.warnings.extend(load::doubts_of_space(&plan));
            measure(&invocation, &plan, interrupt)
        }
        asked => asked.print(),
    }
}

/// The request of the command line.
enum Asked {
    /// A text: of help, of the version.
    Text(String),
    /// An opinion of jobs: aloud, or only the warnings.
    Opinion { invocation: Box<Invocation>, plan: Plan, aloud: bool },
    /// Load: the jobs are run.
    Load(Box<Invocation>, Box<Plan>),
}

impl Asked {
    fn read(manner: Manner, words: Vec<OsString>, rank: &Rank) -> anyhow::Result<Asked> {
        let words = rank.fill_in_words(words);
        let invocation = match manner {
            Manner::Fio => {
                let mut invocation = job::parse_command_line_as_fio(&words)?;
                fios_habits(&mut invocation.run);
                invocation
            }
            Manner::Own => job::parse_command_line(&words)?,
        };
        if let Some(text) = invocation.help_text()? {
            return Ok(Asked::Text(text));
        }
        if invocation.run.print_settings && rank.rank == 0 {
            output::print(&rank.in_surroundings(|surroundings| invocation.settings(surroundings))?)?;
        }
        Ok(match invocation.action {
            Action::Version if manner == Manner::Fio => {
                Asked::Text(report::fio_json::version_of(env!("CARGO_PKG_VERSION")) + "\n")
            }
            Action::Version => Asked::Text(version::LINE.into()),
            Action::InflateLog(path) => Asked::Text(load::inflate_log(&path)?),
            Action::ShowCommand => {
                Asked::Text(rank.in_surroundings(|surroundings| invocation.show_command(surroundings))?)
            }
            Action::Check | Action::ParseOnly => {
                let (plan, aloud) = (planned(&invocation, rank)?, invocation.action == Action::Check);
                Asked::Opinion { invocation: Box::new(invocation), plan, aloud }
            }
            _ => {
                let plan = planned(&invocation, rank)?;
                Asked::Load(Box::new(invocation), Box::new(plan))
            }
        })
    }

    /// Tries every place that results are to be written to, before anything runs.
    fn try_outputs(&self) -> anyhow::Result<()> {
        let Asked::Load(invocation, plan) = self else { return Ok(()) };
        let run = &invocation.run;
        let logs = run.bandwidth_log.then(|| PathBuf::from("agg-read_bw.log"));
        let paths = [&run.output, &run.save, &run.html, &logs];
        let paths: Vec<&Path> = paths.into_iter().flatten().map(PathBuf::as_path).collect();
        output::try_apart(&paths, invocation.files.iter().cloned().chain(load::paths_of(plan)))?;
        let logs = plan.jobs.iter().flat_map(|job| {
            let logs = &job.reporting.logs;
            let prefixes = [&logs.bw, &logs.iops, &logs.lat, &logs.histogram].into_iter().flatten();
            // The folders in a job's name are made; those of another prefix are too where fio would go on without the
            // log.
            prefixes.map(move |prefix| (Path::new(prefix), run.reads_as_fio || *prefix == job.name))
        });
        logs.collect::<BTreeSet<_>>().into_iter().try_for_each(|(prefix, makes_folders)| {
            let mut place = PathBuf::from(format!("{}.log", prefix.display()));
            while makes_folders && place.parent().is_some_and(|parent| parent != Path::new("") && !parent.exists()) {
                place.pop();
            }
            output::try_to_write(&place)
        })
    }

    /// Prints help, versions and the like, for a command line that runs no load.
    fn print(self) -> anyhow::Result<Exit> {
        match self {
            Asked::Text(text) => output::print(&text)?,
            Asked::Opinion { invocation, plan, aloud } => return check(&invocation.run, &plan, aloud),
            Asked::Load(..) => {}
        }
        Ok(Exit::Ok)
    }
}

/// fio prints its reports in this order, whatever the order of `--output-format`, and its notes among them.
fn fios_habits(run: &mut RunOptions) {
    let place = |format: &Format| match format {
        Format::Terse => 0,
        Format::Json | Format::JsonPlus => 1,
        Format::Normal => 2,
        Format::Ndjson => 3,
        Format::Csv => 4,
    };
    run.formats.sort_by_key(place);
    run.formats.dedup();
    run.saves_state = true;
    run.counts_rehearsed = true;
    if run.warnings == Warnings::Aside {
        run.warnings = Warnings::InReport;
    }
}

/// Prints the warnings where they are wanted beside the report.
fn warn(run: &RunOptions, plan: &Plan) {
    if run.warnings == Warnings::Aside {
        output::warn(&plan.warnings);
    }
}

/// The plan of this rank.
fn planned(invocation: &Invocation, rank: &Rank) -> anyhow::Result<Plan> {
    if invocation.files.is_empty() && invocation.command_line.sections.is_empty() && !invocation.may_lack_jobs() {
        bail!("nothing to run: give a job file, or a job as --name=NAME --rw=... (`plimsoll run --help`)");
    }
    let mut plan = rank.in_surroundings(|surroundings| invocation.plan_in(surroundings))?;
    rank.take_share(&mut plan, &invocation.run)?;
    Ok(plan)
}

/// The progress of a run, as the flags want it shown.
fn bar(run: &RunOptions) -> Bar {
    let mut bar = Bar::new(match run.eta {
        // fio's line is another one.
        _ if run.quiet || run.reads_as_fio => Show::Never,
        Eta::Auto => Show::Auto,
        Eta::Always => Show::Always,
        Eta::Never => Show::Never,
    });
    bar.every(run.eta_interval_ns);
    bar.newline_every(run.eta_newline_ns);
    bar
}

/// The load of a plan, for `plimsoll top`; and the depth that all its clones together ask for.
fn live_load(plan: &Plan) -> (LiveLoad, u64) {
    let names: Vec<&str> = plan.jobs.iter().map(|job| job.name.as_str()).collect();
    let depth = plan.jobs.iter().map(|job| u64::from(job.queue.depth) * u64::from(job.process.clones)).sum();
    (LiveLoad::new("run", &names.join(", ")), depth)
}

fn show(bar: &mut Bar, now: &load::Progress) {
    bar.show(&format!("{} {}/{}", phase_name(now.phase), now.running.0, now.running.1), now.done, now);
}

fn measure(invocation: &Invocation, plan: &Plan, interrupt: Interrupt) -> anyhow::Result<Exit> {
    warn(&invocation.run, plan);
    let mut trigger = Trigger::new(&invocation.run, &interrupt.stop)?;
    let mut bar = bar(&invocation.run);
    let (mut live, depth) = live_load(plan);
    // fio's other way to ask for a status: a file of this name, which it removes.
    let dump = invocation.run.reads_as_fio.then(|| std::env::temp_dir().join("fio-dump-status"));
    let wanted = Arc::clone(&interrupt.status_wanted);
    let mut status_line = if invocation.run.reads_as_fio { StatusLine::new(&invocation.run, plan) } else { None };
    let states = RefCell::new(Vec::new());
    let mut clones = |now: &[(usize, load::CloneState)]| states.replace(now.to_vec()).clear();
    let mut tick = |now: &load::Progress| {
        if let Some(line) = &mut status_line {
            line.show(now, &states.borrow());
        }
        trigger.look(now.elapsed_ns);
        if dump.as_ref().is_some_and(|file| std::fs::remove_file(file).is_ok()) {
            wanted.store(true, Relaxed);
        }
        show(&mut bar, now);
        live.add(now, depth);
    };
    let mut out = Reports::new(&invocation.run, plan);
    out.begin();
    let mut status = |result: RunResult| out.add(&result);
    let status = Some((invocation.run.status_interval_ns.unwrap_or(u64::MAX), &mut status as _));
    let Interrupt { stop, signalled, status_wanted, .. } = interrupt;
    let mut control = Control {
        stop,
        progress: Some(&mut tick),
        clones: Some(&mut clones),
        status,
        status_wanted,
        clones_fail_alone: invocation.run.reads_as_fio,
        ..Control::default()
    };
    let result = load::run(plan, &mut control)?;
    drop(bar);

    out.add(&result);
    let ended = result.ended;
    let left = output::all([out.finish(), leave_behind(&invocation.run, result)]);
    let triggered = trigger.conclude()? && !signalled.load(Relaxed);
    left?;
    Ok(if triggered && ended == Ended::Interrupted { Exit::Ok } else { ended.into() })
}

/// This rank's share of a run on many hosts; at the leader, its result.
fn together(crew: &Crew, invocation: &Invocation, plan: &Plan, interrupt: Interrupt) -> anyhow::Result<Exit> {
    let run = &invocation.run;
    if run.trigger.is_some() || run.trigger_file.is_some() || run.trigger_timeout_ns.is_some() {
        bail!("--trigger and its companions are for runs on one host: end this one with a signal");
    }
    let leads = crew.is_leader();
    if leads {
        warn(&invocation.run, plan);
    }
    let eta = match (crew.show(), invocation.run.eta) {
        (Show::Never, _) => Eta::Never,
        (Show::Always, Eta::Auto) => Eta::Always,
        (_, asked) => asked,
    };
    let mut bar = bar(&RunOptions { eta, ..invocation.run.clone() });
    let mut out = Reports::new(&invocation.run, plan);
    let (mut live, depth) = live_load(plan);
    let mut tick = |now: &load::Progress| {
        live.add(now, depth);
        show(&mut bar, &crew.share(now));
        crew.take_statement().iter().for_each(|result| out.add(result));
    };
    let mut state = |result: RunResult| crew.state(result);
    let status = invocation.run.status_interval_ns.map(|interval_ns| (interval_ns, &mut state as _));
    let (mut peers, stop) = (crew, interrupt.stop);
    let mut control =
        Control { stop, progress: Some(&mut tick), status, peers: Some(&mut peers), ..Control::default() };
    let outcome = load::run(plan, &mut control);
    drop(bar);
    let part = match outcome {
        Ok(result) => Part::of_run(crew.rank.rank, result, crew.describe()),
        Err(error) => crew.failed(&error.to_string()),
    };
    if invocation.run.status_interval_ns.is_some() {
        crew.state_last(&part);
    }
    let Some((whole, failures)) = crew.conclude(&part) else { return Ok(Exit::Ok) };
    let mut result = whole.into_run(crew.rank.ranks);
    crew.enter(failures, &mut result.hosts, &mut result.ended);
    let status = crew::status(result.ended, result.hosts.as_deref(), crew::measured(&result.jobs));
    let said = if status == Exit::BadInput {
        crew::complain(result.hosts.iter().flat_map(|hosts| &hosts.failures));
        Ok(())
    } else {
        output::save_at_once(invocation.run.save.as_deref(), &Document::Run(result.clone()));
        out.add(&result);
        output::all([out.finish(), leave_behind(&invocation.run, result)])
    };
    crew.farewell(status);
    said.map(|()| status)
}

/// Writes the files that a run leaves behind beside its report.
fn leave_behind(run: &RunOptions, result: RunResult) -> anyhow::Result<()> {
    let mut written = Vec::new();
    if run.bandwidth_log {
        for (direction, log) in report::bandwidth_log::render(&result).iter() {
            written.push(output::write_result(Path::new(&format!("agg-{}_bw.log", direction.name())), log));
        }
    }
    let text_is_shown = run.formats.is_empty() || run.formats.contains(&Format::Normal);
    // fio's schema has room for a number only, and a text in a file is not read at once. fio always says it here.
    if !text_is_shown || run.output.is_some() || run.quiet || run.reads_as_fio {
        output::complain(&result);
        crew::complain(result.hosts.iter().flat_map(|hosts| &hosts.failures));
    }
    written.push(output::save(run.save.as_deref(), run.html.as_deref(), Document::Run(result), run.quiet));
    output::all(written)
}

/// The result as fio counts it: the writes that `verify_only` goes through on paper are among the writes.
fn with_rehearsed_writes(result: &RunResult) -> RunResult {
    let mut result = result.clone();
    for job in &mut result.jobs {
        let (ops, bytes) = job.verified.map_or((0, 0), |verified| verified.rehearsed);
        job.directions.write.ops += ops;
        job.directions.write.bytes += bytes;
        // One after the other, with nothing else in flight.
        match job.depth.in_flight.first_mut() {
            Some(alone) => *alone += ops,
            None => job.depth.in_flight.push(ops),
        }
    }
    result
}

/// The seeds of all random decisions, in the lines of fio's `--debug=random`.
fn seeds(plan: &Plan) -> String {
    let mut text = String::new();
    for job in &plan.jobs {
        for clone in 0..job.process.clones.max(1) {
            let seeds = stream_seeds(job, clone);
            text += &format!("random   {} {clone}: FIO_RAND_NR_OFFS={}\n", job.name, seeds.len());
            for (number, (name, seed)) in seeds.into_iter().enumerate() {
                text += &format!("random   {} {clone}: {name}: rand_seeds[{number}]={seed}\n", job.name);
            }
        }
    }
    text
}

/// Reports one after another: on standard output at once, in a file when all are there.
struct Reports<'a> {
    run: &'a RunOptions,
    /// Notes that stand before the first report.
    notes: String,
    text: String,
    outcome: anyhow::Result<()>,
}

impl<'a> Reports<'a> {
    fn new(run: &'a RunOptions, plan: &Plan) -> Reports<'a> {
        let for_people = run.formats.is_empty() || run.formats == [Format::Normal];
        let noted = plan.warnings.iter().filter(|_| for_people && run.warnings == Warnings::InReport);
        let mut notes: String = noted.map(|warning| format!("note: {warning}\n")).collect();
        if run.print_seeds {
            notes += &seeds(plan);
        }
        if for_people && run.reads_as_fio {
            notes += &crate::fio::opening(plan);
        }
        Reports { run, notes, text: String::new(), outcome: Ok(()) }
    }

    /// Prints what fio prints before the load runs, so that its lines of status stand below.
    fn begin(&mut self) {
        if self.run.reads_as_fio && self.run.output.is_none() && !self.run.quiet {
            self.outcome = output::print(&std::mem::take(&mut self.notes));
        }
    }

    fn add(&mut self, result: &RunResult) {
        let counted;
        let result = if self.run.counts_rehearsed {
            counted = with_rehearsed_writes(result);
            &counted
        } else {
            result
        };
        let text = std::mem::take(&mut self.notes) + &render(self.run, result);
        if self.run.output.is_some() {
            self.text += &text;
        } else if self.outcome.is_ok() && !self.run.quiet {
            // A closed standard output does not end the load: its files are still to be cleaned up.
            self.outcome = output::print(&text);
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        match &self.run.output {
            Some(path) if self.run.reads_as_fio => {
                output::or_rescue(output::write_in_place(path, &self.text), path, &self.text)
            }
            Some(path) => output::write_result(path, &self.text),
            None => self.outcome,
        }
    }
}

fn render(run: &RunOptions, result: &RunResult) -> String {
    let formats = &run.formats;
    let one = |format: &Format| match format {
        Format::Normal if run.reads_as_fio => report::fio_text::render(result, std::process::id()),
        Format::Normal => report::text::run(result, output::style()),
        Format::Json => report::fio_json::render(result, false),
        Format::JsonPlus => report::fio_json::render(result, true),
        Format::Ndjson => report::ndjson::render(result),
        Format::Terse => report::terse::render(result, run.terse_version.unwrap_or(report::terse::VERSION)),
        Format::Csv => report::csv::render(&Document::Run(result.clone())),
    };
    if formats.is_empty() { one(&Format::Normal) } else { formats.iter().map(one).collect() }
}

/// Prints the opinion of `--check` on jobs that can be run; the function touches nothing.
fn check(run: &RunOptions, plan: &Plan, aloud: bool) -> anyhow::Result<Exit> {
    if !aloud {
        warn(run, plan);
        return Ok(Exit::Ok);
    }
    plan.jobs.iter().try_for_each(load::engine::check)?;
    let mut out = std::io::stdout().lock();
    for warning in &plan.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    let names: Vec<&str> = plan.jobs.iter().map(|job| job.name.as_str()).collect();
    let plural = |count: usize, what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    writeln!(out, "{} ({}), {}", plural(names.len(), "job"), names.join(", "), plural(plan.warnings.len(), "warning"))?;
    Ok(Exit::Ok)
}

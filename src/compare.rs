//! `plimsoll compare`: is B slower than A, by how much, and how sure is that?

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use job::Invocation;
use load::compare::{self, KEPT_IOPS, Repeats, Side};
use load::engine::Maker;
use measure::Objective;
use measure::effect;
use measure::schema::{CannotTell, ComparisonResult, Document, Ended};
use measure::verdict::Severity;

use crate::command_line::{self, Arguments, Subcommand};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{self, Form};
use crate::progress::{Bar, Show};
use crate::values;

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Both, run };

fn command() -> Command {
    let defaults = Repeats::default();
    Command::new("compare")
        .about("Compare two job files, two engines or two results")
        .long_about(
            "Runs two job files, or one job with two engines, in turns A B A B; or reads two results of run, sweep or \
             files. Prints the difference of B from A with its 95 % confidence interval. Exit status 3: B is slower \
             than --fail-if-slower allows. Exit status 4: a run is invalid, also without --fail-if-slower; or \
             --fail-if-slower has no answer, because its figure says `cannot tell`. A difference that may be noise \
             (`undecided`) gives status 0.",
        )
        .override_usage(
            "plimsoll compare [ARGUMENTS] A.fio B.fio [--JOB-OPTION=VALUE]...\n       \
             plimsoll compare --engine A,B [JOBFILE] [--JOB-OPTION=VALUE]...\n       \
             plimsoll compare A.json B.json",
        )
        .arg(
            Arg::new("engines")
                .long("engine")
                .value_name("A,B")
                .value_delimiter(',')
                .help("Run the same jobs with each of these two engines"),
        )
        .arg(
            Arg::new("fail-if-slower")
                .long("fail-if-slower")
                .value_name("PERCENT")
                .value_parser(values::percent)
                .help("End with status 3 if B is worse by more than this, and the interval excludes zero change"),
        )
        .arg(Arg::new("figure").long("figure").value_name("NAME").default_value("iops").help(
            "The figure that decides: iops, bw, lat_mean, lat_p99, cpu_per_op; for sweeps plateau_iops, \
                 load_line, kept_iops; for files PHASE:files_per_s, PHASE:lat_p99. For sweeps iops means the plateau, for files \
                 the rate of every phase",
        ))
        .arg(
            Arg::new("objectives")
                .long("objective")
                .value_name("[DIRECTION:]FIGURE<TIME")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .value_parser(|text: &str| text.parse::<Objective>())
                .conflicts_with_all(["figure", "engines", "pairs"])
                .help(
                    "Compare two results of sweep by the highest throughput that keeps this latency, such as \
                     p99<1ms; several must all hold. The figure kept_iops decides",
                ),
        )
        .arg(Arg::new("pairs").long("pairs").value_name("N").value_parser(value_parser!(u32).range(2..=1000)).help(
            format!("Number of pairs to run [default: {} to {}, until --bound is met]", defaults.fewest, defaults.most),
        ))
        .arg(
            Arg::new("time")
                .long("time")
                .value_name("TIME")
                .value_parser(values::duration)
                .conflicts_with_all(["pairs", "objectives"])
                .help("Let both sides take short turns within one run, for this time in all, instead of whole runs"),
        )
        .arg(
            Arg::new("bound")
                .long("bound")
                .value_name("PERCENT")
                .value_parser(values::percent)
                .default_value("2%")
                .help("Run pairs until half the 95 % interval of the change is below this percentage"),
        )
        .args(output::forms())
        .args(output::arguments("", ""))
}

fn run(matches: &ArgMatches, words: Vec<OsString>) -> anyhow::Result<Exit> {
    let invocation = command_line::job_options(&words)?;
    let engines: Vec<String> = matches.get_many("engines").into_iter().flatten().cloned().collect();
    let objectives: Vec<Objective> = matches.get_many("objectives").into_iter().flatten().copied().collect();
    let mut figure = matches.get_one::<String>("figure").expect("has a default").as_str();
    if !objectives.is_empty() {
        figure = KEPT_IOPS;
    }
    ensure!(
        figure != "load_line" || !matches.contains_id("fail-if-slower"),
        "--fail-if-slower cannot judge by load_line: a deeper load line is neither faster nor slower (give --figure \
         plateau_iops)"
    );
    output::try_asked(matches, invocation.files.iter().cloned())?;
    ensure!(
        objectives.is_empty() || invocation.files.len() == 2 && invocation.files.iter().all(|path| is_result(path)),
        "--objective compares two results of sweep: run `plimsoll sweep --save` on both systems first"
    );
    let mut result = match (&engines[..], &invocation.files[..]) {
        ([a, b], _) => interleaved(matches, figure, with_engine(&invocation, a)?, with_engine(&invocation, b)?)?,
        ([], [a, b]) if is_result(a) && is_result(b) => {
            ensure!(!matches.contains_id("time"), "results take no --time: they are already measured");
            ensure!(
                invocation.command_line.sections.is_empty(),
                "results take no job options: they are already measured"
            );
            let names = [a, b].map(|path| path.display().to_string());
            let names = names.each_ref().map(String::as_str);
            compare::of_documents(names, [&output::read(a)?, &output::read(b)?], figure, &objectives)?
        }
        ([], [a, b]) => interleaved(matches, figure, with_file(&invocation, a)?, with_file(&invocation, b)?)?,
        ([], _) => bail!("give two job files, two results, or --engine A,B with a job"),
        _ => bail!("--engine takes two engines as A,B: {} given", engines.len()),
    };
    result.provenance.command = load::command();
    let exit = exit(matches.get_one("fail-if-slower").copied(), &result);
    output::deliver(matches, None, Document::Comparison(result), |document, style| match document {
        Document::Comparison(result) => report::text::comparison(result, style),
        _ => String::new(),
    })?;
    exit
}

fn interleaved(matches: &ArgMatches, figure: &str, a: Side, b: Side) -> anyhow::Result<ComparisonResult> {
    output::try_asked(matches, load::paths_of(&a.plan).into_iter().chain(load::paths_of(&b.plan)))?;
    let pairs = matches.get_one::<u32>("pairs").copied();
    let defaults = Repeats::default();
    let repeats = Repeats {
        fewest: pairs.unwrap_or(defaults.fewest),
        most: pairs.unwrap_or(defaults.most),
        bound: *matches.get_one("bound").expect("has a default"),
    };
    for warning in
        a.plan.warnings.iter().chain(b.plan.warnings.iter().filter(|warning| !a.plan.warnings.contains(warning)))
    {
        output::warn(std::slice::from_ref(warning));
    }
    let interrupt = Interrupt::listen()?;
    let mut bar = Bar::new(if Form::of(matches) == Form::Nothing { Show::Never } else { Show::Auto });
    let sides = [&a, &b];
    if let Some(time) = matches.get_one::<Duration>("time") {
        let mut watch =
            |run: u32, _: usize, now: &load::Progress| bar.show(&format!("run {}, in turns", run + 1), now.done, now);
        let time_ns = time.as_nanos().try_into().unwrap_or(u64::MAX);
        return Ok(compare::in_turns(sides, figure, time_ns, &interrupt.stop, &mut watch)?);
    }
    let mut watch = |pair: u32, side: usize, now: &load::Progress| {
        bar.show(&format!("pair {} of {} at most, {}", pair + 1, repeats.most, sides[side].name), now.done, now);
    };
    Ok(compare::interleaved(sides, figure, repeats, &interrupt.stop, &mut watch)?)
}

fn with_file(invocation: &Invocation, file: &Path) -> anyhow::Result<Side> {
    let plan = Invocation { files: vec![file.into()], ..invocation.clone() }.plan()?;
    Ok(Side { name: file.display().to_string(), plan })
}

fn with_engine(invocation: &Invocation, engine: &str) -> anyhow::Result<Side> {
    let engine = Maker::find(engine)?.spec;
    let mut with = invocation.clone();
    with.run.engine = Some(engine.name.into());
    Ok(Side { name: engine.name.into(), plan: with.plan()? })
}

/// Results are JSON; job files never start with a brace.
fn is_result(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{'))
}

/// The status that the comparison ends with; an error where the figure that `tolerance` is for says nothing.
fn exit(tolerance: Option<f64>, result: &ComparisonResult) -> anyhow::Result<Exit> {
    if result.ended != Ended::Complete {
        return Ok(result.ended.into());
    }
    if result.verdicts.iter().any(|verdict| verdict.severity == Severity::Invalid) {
        return Ok(Exit::CannotTell);
    }
    let Some(tolerance) = tolerance else { return Ok(Exit::Ok) };
    let asked = effect::of_figure(&result.effects, &result.figure);
    if asked.iter().any(|effect| compare::is_slower(effect, tolerance)) {
        return Ok(Exit::Slower);
    }
    let why = |cannot_tell: CannotTell| match cannot_tell {
        CannotTell::NoInterval => "nothing tells a difference from noise: let it run for some seconds",
        CannotTell::Unnamed => "a sweep cannot name a load line: quiet the machine and sweep again",
        CannotTell::LowerBound => "a curve still rose at its deepest point: sweep deeper",
        CannotTell::NotKept => "a sweep cannot tell what keeps the objectives: sweep again with more --time",
        CannotTell::NotBroken => "nothing that a side measured breaks the objectives: sweep further",
        CannotTell::Remembers => "the storage remembers the side before: give more --time, or leave it out",
        CannotTell::BeyondSense => "the values scatter too much: run more --pairs, for longer",
    };
    match asked.iter().find_map(|effect| Some((effect, effect.cannot_tell?))) {
        Some((effect, cannot_tell)) => {
            output::complain_of(&anyhow!("--fail-if-slower: {}: {}", effect.figure, why(cannot_tell)));
            Ok(Exit::CannotTell)
        }
        None if asked.is_empty() => {
            output::complain_of(&anyhow!(
                "--fail-if-slower: no pair of runs has a value of {}: let the jobs run longer",
                result.figure
            ));
            Ok(Exit::CannotTell)
        }
        None => Ok(Exit::Ok),
    }
}

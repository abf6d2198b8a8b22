//! `plimsoll compare`: is B slower than A, by how much, and how sure is that?

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use job::Invocation;
use load::compare::{self, Repeats, Side};
use measure::effect;
use measure::schema::{ComparisonResult, Document, Effect};

use crate::command_line::{self, Arguments, Subcommand};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::{Bar, Show};
use crate::values;

/// The row of the table.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Both, run };

fn command() -> Command {
    let defaults = Repeats::default();
    Command::new("compare")
        .about("Compare two job files, two engines or two results")
        .long_about(
            "Runs two job files, or one job with two engines, in turns A B A B, or takes two results (of run, sweep or files); says how much B \
             differs from A with a 95 % confidence interval, and ends with status 3 if it is slower than allowed.",
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
                .help("End with status 3 if B is worse by more than this, and its interval excludes no change"),
        )
        .arg(
            Arg::new("figure").long("figure").value_name("NAME").default_value("iops").help(
                "What --fail-if-slower looks at: iops, bw, lat_mean, lat_p99, cpu_per_op; of sweeps plateau_iops; of files PHASE:files_per_s [default: every phase], PHASE:lat_p99",
            ),
        )
        .arg(Arg::new("pairs").long("pairs").value_name("N").value_parser(value_parser!(u32).range(2..=1000)).help(
            format!("Run so many pairs [default: {} to {}, until --bound is met]", defaults.fewest, defaults.most),
        ))
        .arg(
            Arg::new("bound")
                .long("bound")
                .value_name("PERCENT")
                .value_parser(values::percent)
                .default_value("2%")
                .help("Go on with pairs until the interval of the change in iops is within this, up and down"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the result as JSON"))
        .args(output::arguments("", ""))
}

fn run(matches: &ArgMatches, words: Vec<OsString>) -> anyhow::Result<Exit> {
    let invocation = command_line::job_options(&words)?;
    let engines: Vec<String> = matches.get_many("engines").into_iter().flatten().cloned().collect();
    let mut result = match (&engines[..], &invocation.files[..]) {
        ([a, b], _) => interleaved(matches, with_engine(&invocation, a)?, with_engine(&invocation, b)?)?,
        ([], [a, b]) if is_result(a) && is_result(b) => {
            ensure!(
                invocation.command_line.sections.is_empty(),
                "results take no job options: they are already measured"
            );
            let names = [a, b].map(|path| path.display().to_string());
            compare::of_documents(names.each_ref().map(String::as_str), [&output::read(a)?, &output::read(b)?])?
        }
        ([], [a, b]) => interleaved(matches, with_file(&invocation, a)?, with_file(&invocation, b)?)?,
        ([], _) => bail!("give two job files, two results, or --engine A,B with a job"),
        _ => bail!("--engine takes two engines as A,B: {} given", engines.len()),
    };
    result.sentence = effect::sentence((&result.sides.0, &result.sides.1), &result.effects);
    result.provenance.command = std::env::args().collect();
    let exit = exit(matches, &result)?;
    let json = matches.get_flag("json");
    if !json {
        output::print(&report::text::comparison(&result, output::style()))?;
    }
    let document = Document::Comparison(result);
    if json {
        output::print(&output::json(&document)?)?;
    }
    output::save_as_asked(matches, None, document)?;
    Ok(exit)
}

fn interleaved(matches: &ArgMatches, a: Side, b: Side) -> anyhow::Result<ComparisonResult> {
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
    let mut bar = Bar::new(Show::Auto);
    let sides = [&a, &b];
    let mut watch = |pair: u32, side: usize, now: &load::Progress| {
        bar.show(&format!("pair {} of {} at most, {}", pair + 1, repeats.most, sides[side].name), now.done, now);
    };
    Ok(compare::interleaved(sides, repeats, &interrupt.stop, &mut watch)?)
}

fn with_file(invocation: &Invocation, file: &Path) -> anyhow::Result<Side> {
    let plan = Invocation { files: vec![file.into()], ..invocation.clone() }.plan()?;
    Ok(Side { name: file.display().to_string(), plan })
}

fn with_engine(invocation: &Invocation, engine: &str) -> anyhow::Result<Side> {
    let kind = load::engine::Kind::find(engine).with_context(|| format!("there is no engine {engine}"))?;
    let mut plan = invocation.plan()?;
    for job in &mut plan.jobs {
        job.engine = kind.name.into();
    }
    Ok(Side { name: kind.name.into(), plan })
}

/// Results are JSON; job files never start with a brace.
fn is_result(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{'))
}

fn exit(matches: &ArgMatches, result: &ComparisonResult) -> anyhow::Result<Exit> {
    let exit = Exit::from(result.ended);
    let Some(&tolerance) = matches.get_one::<f64>("fail-if-slower") else { return Ok(exit) };
    let figure = matches.get_one::<String>("figure").expect("has a default");
    // What iops is of runs is the plateau of sweeps, and the rate of each phase on files.
    let stands_for_iops = |name: &str| name == "iops" || name == "plateau_iops" || name.ends_with(":files_per_s");
    let asked = |effect: &&Effect| match figure.as_str() {
        "iops" => stands_for_iops(&effect.figure),
        figure => effect.figure == figure,
    };
    let effects: Vec<&Effect> = result.effects.iter().filter(asked).collect();
    if exit != Exit::Ok {
        return Ok(exit);
    }
    if effects.is_empty() {
        let known: Vec<&str> = result.effects.iter().map(|effect| effect.figure.as_str()).collect();
        bail!("--figure={figure}: these results have no such figure, only {}", known.join(", "))
    }
    if effects.iter().all(|effect| effect.no_interval) {
        bail!(
            "--fail-if-slower: {} took too short to tell a difference from noise: let it run for a second or more",
            effects[0].figure
        )
    }
    Ok(if effects.iter().any(|effect| compare::is_slower(effect, tolerance)) { Exit::Slower } else { exit })
}

//! `plimsoll sim`: pacing methods on simulated machines, at any scale, from a scenario file.

mod learn;
mod page;
mod table;
mod trust;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use pace::sim::{self, Outcome, Run, Scenario, Sweep};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::output;

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    let path = |arg: Arg| arg.value_parser(value_parser!(PathBuf));
    Command::new("sim")
        .about("Simulate initiators, links, caches and drives around the real pacer")
        .long_about(
            "Runs scenarios of TOML files in simulated time, with the pacer code of the target and the load \
             generator. configs/sim/ has examples. The same scenario and seed give the same result, byte for byte. \
             An interval beside a throughput comes from the errors of measurements of the same kind; where nobody has \
             measured anything like a scenario, a line below the table says so. docs/sim.md explains the scenario \
             file, the model and the intervals.",
        )
        .arg(path(Arg::new("scenario").value_name("SCENARIO.toml").num_args(0..).help("Scenario files")))
        .arg(Arg::new("pacing").long("pacing").value_name("METHOD").action(ArgAction::Append).help(format!(
            "Method of pacing that replaces the scenario's, one of {}; repeat the option to compare methods",
            pace::SYNTAX
        )))
        .arg(
            Arg::new("set")
                .long("set")
                .value_name("PARAM=VALUE[,VALUE...]")
                .action(ArgAction::Append)
                .help("Set a parameter of the scenario; several values make a sweep: jobs.*.depth=32,256, seconds=10"),
        )
        .arg(Arg::new("seed").long("seed").value_name("N").value_parser(value_parser!(u64)).help("The first seed"))
        .arg(
            Arg::new("seeds")
                .long("seeds")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=10_000))
                .help("Run each combination with this many seeds"),
        )
        .arg(
            Arg::new("threads")
                .long("threads")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=4096))
                .help("Simulations at the same time [default: one for each core]"),
        )
        .arg(path(
            Arg::new("json").long("json").value_name("FILE").help("Write the results as JSON; - for standard output"),
        ))
        .arg(path(
            Arg::new("html").long("html").value_name("FILE").help("Write the results as one HTML page with curves"),
        ))
        .arg(Arg::new("csv").long("csv").action(ArgAction::SetTrue).help("Print the table as comma-separated values"))
        .arg(
            Arg::new("quiet")
                .long("quiet")
                .action(ArgAction::SetTrue)
                .conflicts_with("csv")
                .help("Print no table and no progress; write the files all the same"),
        )
        .arg(
            Arg::new("published")
                .long("published")
                .action(ArgAction::SetTrue)
                .conflicts_with("scenario")
                .help("Compare the model with all published measurements, as Markdown"),
        )
        .arg(
            Arg::new("fit")
                .long("fit")
                .value_name("RESULT.json[,drives=N][,cores=N]")
                .num_args(1..)
                .action(ArgAction::Append)
                .conflicts_with_all(["scenario", "published", "pacing", "set", "seed", "seeds", "csv"])
                .help(
                    "Learn a machine from results of sweeps over iodepth, and say what pacing, more drives, fewer \
                     cores and more hosts would give",
                ),
        )
        .arg(path(
            Arg::new("profile")
                .long("profile")
                .value_name("FILE.toml")
                .requires("fit")
                .help("Write the learnt machine to this file [default: plimsoll-machine-N.toml]"),
        ))
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let threads = match matches.get_one::<u64>("threads") {
        Some(&threads) => threads as usize,
        None => std::thread::available_parallelism().map_or(1, |n| n.get()),
    };
    if matches.get_flag("published") {
        let bar = progress_bar();
        let compared = sim::fit::compare_shipped(&sim::fit::all_rows(), threads, &|done| show(&bar, done))?;
        bar.finish_and_clear();
        output::print(&sim::fit::markdown(&compared)?)?;
        return Ok(Exit::Ok);
    }
    if matches.contains_id("fit") {
        return learn::run(matches, threads);
    }
    let files: Vec<&PathBuf> = matches.get_many("scenario").into_iter().flatten().collect();
    if files.is_empty() {
        bail!("sim needs a scenario file, such as configs/sim/depth.toml (see plimsoll sim --help)");
    }
    let places = ["json", "html"].iter().filter_map(|name| matches.get_one::<PathBuf>(name));
    let places: Vec<&Path> = places.map(PathBuf::as_path).filter(|path| *path != Path::new("-")).collect();
    output::try_apart(&places, files.iter().copied().cloned())?;
    let mut runs = Vec::new();
    for file in files {
        runs.extend(runs_of(file, matches).with_context(|| file.display().to_string())?);
    }
    let bar = if matches.get_flag("quiet") { ProgressBar::hidden() } else { progress_bar() };
    let outcomes = sim::run_all(&runs, threads, &|done| show(&bar, done));
    bar.finish_and_clear();
    let results: Vec<(Run, Outcome)> = runs.into_iter().zip(outcomes?).collect();
    let json_on_stdout = matches.get_one::<PathBuf>("json").is_some_and(|path| path == Path::new("-"));
    let mut delivered = Vec::new();
    if let Some(path) = matches.get_one::<PathBuf>("json") {
        let text = serde_json::to_string_pretty(&document(&results))?;
        delivered.push(match json_on_stdout {
            true => output::print(&format!("{text}\n")),
            false => output::write_result(path, &text),
        });
    }
    if let Some(path) = matches.get_one::<PathBuf>("html") {
        delivered.push(output::write_result(path, &page::page(&results)));
    }
    match (matches.get_flag("csv"), json_on_stdout || matches.get_flag("quiet")) {
        (_, true) => {}
        (true, false) => delivered.push(output::print(&table::csv(&results))),
        (false, false) => delivered.push(output::print(&table::text(&results, output::style()))),
    }
    output::all(delivered)?;
    Ok(Exit::Ok)
}

/// All runs of a file: its own sweeps, then those of the command line, the methods and the seeds.
fn runs_of(file: &Path, matches: &ArgMatches) -> anyhow::Result<Vec<Run>> {
    let text = std::fs::read_to_string(file).context("cannot read the scenario")?;
    let mut scenario = Scenario::parse(&text)?;
    if let Some(&seed) = matches.get_one("seed") {
        scenario.seed = seed;
    }
    for set in matches.get_many::<String>("set").into_iter().flatten() {
        let (param, values) = set.split_once('=').with_context(|| format!("--set {set}: give PARAM=VALUE"))?;
        let values = values.split(',').map(value).collect();
        // The command line wins over a sweep of the file.
        scenario.sweep.retain(|sweep| sweep.param != param);
        scenario.sweep.push(Sweep { param: param.into(), values });
    }
    let methods: Vec<&String> = matches.get_many("pacing").into_iter().flatten().collect();
    if !methods.is_empty() {
        scenario.sweep.retain(|sweep| !sweep.param.starts_with("pacing"));
        let values = methods
            .into_iter()
            .map(|method| Ok(toml::Value::try_from(pace::Config::parse(method, 1024)?)?))
            .collect::<anyhow::Result<_>>()?;
        scenario.sweep.push(Sweep { param: "pacing".into(), values });
    }
    if let Some(&seeds) = matches.get_one::<u64>("seeds") {
        let values = (0..seeds).map(|n| toml::Value::Integer((scenario.seed + n) as i64)).collect();
        scenario.sweep.push(Sweep { param: "seed".into(), values });
    }
    let mut runs = sim::expand(&scenario)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    runs.iter_mut().try_for_each(|run| learn::insert_profile(&mut run.scenario, folder))?;
    runs.iter().try_for_each(|run| sim::check(&run.scenario))?;
    Ok(runs)
}

/// A TOML value as it would be written in the file; a bare word is a string.
fn value(text: &str) -> toml::Value {
    let document = format!("v = {text}");
    document
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| toml::Value::String(text.into()))
}

fn document(results: &[(Run, Outcome)]) -> serde_json::Value {
    let runs: Vec<_> = results
        .iter()
        .map(|(run, outcome)| {
            let set: serde_json::Map<_, _> = run.set.iter().map(|(k, v)| (k.clone(), serde_json::json!(v))).collect();
            serde_json::json!({ "set": set, "scenario": run.scenario, "outcome": outcome })
        })
        .collect();
    serde_json::json!({ "plimsoll sim": env!("CARGO_PKG_VERSION"), "runs": runs })
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(1000);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent} % {elapsed}, {eta} left") {
        bar.set_style(style.progress_chars("=> ")); // in ASCII, for every locale
    }
    bar
}

fn show(bar: &ProgressBar, done: f64) {
    bar.set_position((done * 1000.0) as u64);
}

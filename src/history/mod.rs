//! `plimsoll history`: the results of sweeps over time, and the places at which they changed.

mod page;
mod series;
mod table;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use measure::schema::Document;

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::output;
use crate::values;
use series::{Figure, Series};

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    Command::new("history")
        .about("Show results of sweeps over time, and where they changed")
        .long_about(
            "Puts the results of sweeps in order of time, for each target, engine and workload: plateau and load line \
             with their intervals. Names a change where one is significant over the whole history. Exit status 3: the \
             last change made a plateau lower than --fail-if-slower allows. Exit status 4: too few results to tell.",
        )
        .arg(
            Arg::new("results")
                .value_name("DIRECTORY|RESULT")
                .num_args(1..)
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Results of `sweep`, or directories of them; history skips other files of a directory"),
        )
        .arg(
            Arg::new("fail-if-slower")
                .long("fail-if-slower")
                .value_name("PERCENT")
                .value_parser(values::percent)
                .help("End with status 3 if the last change made a plateau lower by more than this"),
        )
        .arg(
            Arg::new("html")
                .long("html")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Write the history to FILE as one HTML page"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the history as JSON"))
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let paths: Vec<&PathBuf> = matches.get_many("results").expect("required").collect();
    if let Some(path) = matches.get_one::<PathBuf>("html") {
        let inputs = paths.iter().flat_map(|path| match path.is_dir() {
            true => files_of(path).unwrap_or_default(),
            false => vec![path.to_path_buf()],
        });
        output::try_apart(&[path], inputs)?;
    }
    let mut sweeps = Vec::new();
    let mut skipped = 0;
    for &path in &paths {
        if path.is_dir() {
            for file in files_of(path)? {
                match output::read(&file) {
                    Ok(Document::Sweep(sweep)) => sweeps.push((file, sweep)),
                    Ok(_) | Err(_) => skipped += 1,
                }
            }
            continue;
        }
        match output::read_among(path, paths.len())? {
            Some(Document::Sweep(sweep)) => sweeps.push((path.clone(), sweep)),
            Some(_) if paths.len() == 1 => return Err(anyhow!("{} is not the result of a sweep", path.display())),
            Some(_) => skipped += 1,
            None => {}
        }
    }
    if skipped > 0 {
        output::warn(&[format!("{skipped} JSON files are not results of sweeps")]);
    }
    let history = series::of(&sweeps);
    ensure!(!history.is_empty(), "no result of a sweep over iodepth: give files of `sweep`, or their directory");
    let printed = match matches.get_flag("json") {
        true => output::print(&format!("{}\n", table::json(&history))),
        false => output::print(&table::text(&history, output::style())),
    };
    let written = matches.get_one::<PathBuf>("html").map_or(Ok(()), |path| output::write(path, &page::page(&history)));
    output::all([printed, written])?;
    Ok(matches.get_one::<f64>("fail-if-slower").map_or(Exit::Ok, |tolerance| exit(&history, *tolerance)))
}

/// The JSON files of a directory, by name.
fn files_of(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect();
    files.sort();
    Ok(files)
}

/// The status: a last change of a plateau that is a loss of more than `tolerance`; no series that is long enough.
fn exit(history: &[Series], tolerance: f64) -> Exit {
    let last = |series: &Series| series.changes(Figure::Plateau).last().and_then(|change| change.change);
    let is_slower = |change: measure::schema::Estimate| change.mean < -tolerance && change.high < 0.0;
    if history.iter().filter_map(last).any(is_slower) {
        return Exit::Slower;
    }
    if history.iter().all(|series| series.figure(Figure::Plateau).len() < series.fewest) {
        output::complain_of(&anyhow!(
            "--fail-if-slower: no target has {} results with a plateau: fewer cannot tell a change from noise",
            history.first().map_or(0, |series| series.fewest)
        ));
        return Exit::CannotTell;
    }
    Exit::Ok
}

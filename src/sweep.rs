//! `plimsoll sweep`: throughput over depth, and the load line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use load::sweep::{Depths, Doing, Effort, Moment, Request, Watch};
use measure::refine::Why;
use measure::schema::Document;

use crate::command_line::{self, Arguments, Subcommand};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::{Bar, Show};
use crate::values;

/// The row of the table.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Both, run };

fn command() -> Command {
    Command::new("sweep")
        .about("Sweep the depth and find the load line")
        .long_about(
            "Sweeps the depth over a file, a block device or, in a directory, a scratch file that is removed again. \
             Prints throughput and latency at each depth, the plateau, the load line (the smallest depth that reaches \
             97 % of the plateau) and where overload begins, with 95 % confidence intervals.",
        )
        .override_usage("plimsoll sweep [ARGUMENTS] [TARGET] [--JOB-OPTION=VALUE]...")
        .after_help("Job options are fio's, as for `plimsoll run`: --rw=randread --bs=4k are the defaults.")
        .arg(
            Arg::new("depths")
                .long("iodepth")
                .value_name("FIRST..LAST|LIST")
                .value_parser(|text: &str| text.parse::<Depths>())
                .default_value("1..1024")
                .help("Depths: a range, searched for its knee, or a list as 1,8,32"),
        )
        .arg(
            Arg::new("engines")
                .long("engine")
                .value_name("ENGINE[,ENGINE]")
                .value_delimiter(',')
                .help("Engines, a curve each, in turns [default: the best that works here]"),
        )
        .arg(
            Arg::new("bound")
                .long("bound")
                .value_name("PERCENT")
                .value_parser(values::percent)
                .default_value("2%")
                .help("Measure a point until its 95 % interval is within this part of its mean, up and down"),
        )
        .arg(
            Arg::new("point-time")
                .long("point-time")
                .value_name("TIME")
                .value_parser(values::duration)
                .default_value("4s")
                .help("The longest a point is measured, all visits together"),
        )
        .arg(
            Arg::new("time")
                .long("time")
                .value_name("TIME")
                .value_parser(values::duration)
                .default_value("40s")
                .help("Time for everything; every depth is visited once even so"),
        )
        .arg(
            Arg::new("allow-writes")
                .long("allow-writes")
                .action(ArgAction::SetTrue)
                .help("Let a workload that writes destroy what is in TARGET (never needed for a directory)"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the result as JSON, and write no files"),
        )
        .args(output::arguments("plimsoll-sweep-N.json", "plimsoll-sweep-N.html"))
        .arg(
            Arg::new("no-files")
                .long("no-files")
                .action(ArgAction::SetTrue)
                .help("Write neither results nor report unless --save or --html names one"),
        )
}

fn run(matches: &ArgMatches, words: Vec<OsString>) -> anyhow::Result<Exit> {
    let request = Request {
        job: command_line::job_options(&words)?,
        engines: matches.get_many("engines").into_iter().flatten().cloned().collect(),
        allow_writes: matches.get_flag("allow-writes"),
    };
    let duration = |name| *matches.get_one::<Duration>(name).expect("has a default");
    let effort = Effort {
        depths: matches.get_one::<Depths>("depths").expect("has a default").clone(),
        bound: *matches.get_one("bound").expect("has a default"),
        point_cap: duration("point-time"),
        total: duration("time"),
        ..Effort::default()
    };
    let interrupt = Interrupt::listen()?;
    let mut bar = Bar::new(Show::Auto);
    let mut progress = |now: &Moment| bar.show(&doing(&now.doing), Some(now.done), now.run);
    let mut watch = Watch { stop: interrupt.stop, doomed: interrupt.doomed, progress: &mut progress };
    let mut result = load::sweep::sweep(&request, &effort, &mut watch)?;
    drop(bar);
    result.advice = report::advice::advice(&result.axis, &result.curves, result.ceiling_iops);

    let ended = result.ended;
    let json = matches.get_flag("json");
    if !json {
        output::print(&report::text::sweep(&result, output::style()))?;
    }
    let document = Document::Sweep(result);
    if json {
        output::print(&output::json(&document)?)?;
    }
    let default = (!json && !matches.get_flag("no-files")).then(|| output::free_name("sweep"));
    output::save_as_asked(matches, default.as_deref(), document)?;
    Ok(ended.into())
}

fn doing(doing: &Doing) -> String {
    match doing {
        Doing::Layout => "laying out a scratch file".into(),
        Doing::Ceiling(engine, depth) => format!("null engine at the load line of {engine}, {depth}"),
        Doing::Point(engine, depth, why) => {
            let why = match why {
                Why::Asked => "",
                Why::LoadLine => ", closer to the load line",
                Why::Overload => ", closer to the overload point",
                Why::Uncertain => ", once more to be sure",
            };
            format!("{engine}, iodepth {depth}{why}")
        }
    }
}

//! `plimsoll sweep`: throughput over depth, and the load line.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::builder::ArgPredicate;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hosts::Part;
use job::Rank;
use load::sweep::{Axis, Doing, Effort, Moment, Request, Resume, Role, Rounds, Stage, Values, Watch};
use measure::Objective;
use measure::refine::Why;
use measure::schema::{Answer, Curve, Document, Ended, SweepResult};

use crate::command_line::{self, Arguments, Subcommand};
use crate::crew::{self, Crew, Joined, Sweepers};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::live_load::LiveLoad;
use crate::output::{self, DefaultName, Form};
use crate::over_ssh;
use crate::progress::{Bar, Show};
use crate::values;

/// The longest time of a depth where nobody gives one, at least.
const LEAST_POINT_TIME: Duration = Duration::from_secs(4);

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Both, run };

fn command() -> Command {
    Command::new("sweep")
        .about("Sweep the depth, or another option, and find the load line")
        .long_about(
            "Measures a file or a block device at many depths. In a directory, sweep makes a scratch file, and \
             removes it at the end. A job file in place of TARGET gives the workload. Sweep prints \
             throughput and latency at each depth, the plateau, the load line (the smallest depth that reaches 97 % of \
             the plateau) and the depth at which overload begins, with 95 % confidence intervals. With --axis it varies \
             another job option: --axis rate_iops offers an open loop and finds the rate beyond which the queue grows \
             without bound. With --objective it finds the highest throughput that keeps latencies within limits.",
        )
        .override_usage("plimsoll sweep [ARGUMENTS] [TARGET|JOBFILE] [--JOB-OPTION=VALUE]...")
        .after_help("Sweep takes the job options of `plimsoll run`. Defaults: --rw=randread --bs=4k.")
        .arg(Arg::new("depths").long("iodepth").value_name("FIRST..LAST|LIST").value_parser(Values::of_depths).help(
            "Depths to measure: a range, in which sweep searches the knee, or a list such as 1,8,32 [default: \
                     1..1024]. With another --axis, the one depth of all points",
        ))
        .arg(
            Arg::new("total-depths")
                .long("total-iodepth")
                .value_name("FIRST..LAST|LIST")
                .value_parser(Values::of_depths)
                .conflicts_with_all(["depths", "axes"])
                .help("Depths of all ranks together, in a sweep from many hosts"),
        )
        .arg(over_ssh::argument())
        .arg(Arg::new("axes").long("axis").value_name("OPTION[=FIRST..LAST|LIST]").action(ArgAction::Append).help(
            "Numeric job option to vary in place of the depth: rate_iops, rate, numjobs, bs, rwmixread, size, \
                     ...; a second --axis (also engine=LIST) gives a curve for each of its values, a map",
        ))
        .arg(
            Arg::new("objectives")
                .long("objective")
                .value_name("[DIRECTION:]FIGURE<TIME")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .value_parser(|text: &str| text.parse::<Objective>())
                .help(
                    "Find the highest depth or rate that keeps this latency, such as p99<1ms, mean<300us, \
                     write:p99.9<5ms; several must all hold",
                ),
        )
        .arg(
            Arg::new("precondition")
                .long("precondition")
                .action(ArgAction::SetTrue)
                .conflicts_with("workload")
                .help(
                    "First discard and fill TARGET twice, and write to it in rounds until it is steady, as SNIA's \
                     performance test specification has it; takes time beside --time",
                ),
        )
        .arg(
            Arg::new("precondition-round")
                .long("precondition-round")
                .value_name("TIME")
                .value_parser(values::duration)
                .default_value("1m")
                .help("Duration of a round of --precondition"),
        )
        .arg(
            Arg::new("precondition-rounds")
                .long("precondition-rounds")
                .value_name("N")
                .value_parser(value_parser!(u32).range(5..=1000))
                .default_value("25")
                .help("Rounds of --precondition at most"),
        )
        .arg(
            Arg::new("workload")
                .long("workload")
                .value_name("LOG[,LOG]")
                .value_delimiter(',')
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("total-depths")
                .help(
                    "Replay a recorded application (a log of trap --trace, of write_iolog, or of blktrace) ever faster, \
                     and find its load line; several logs are threads, or the CPUs of blktrace",
                ),
        )
        .arg(
            Arg::new("engines")
                .long("engine")
                .value_name("ENGINE[,ENGINE]")
                .value_delimiter(',')
                .help("Engines to measure in turns, a curve for each [default: the best that works here]"),
        )
        .arg(
            Arg::new("bound")
                .long("bound")
                .value_name("PERCENT")
                .value_parser(values::percent)
                .default_value("0.5%")
                .help("End early when half the 95 % interval of every deciding depth is below this percentage"),
        )
        .arg(
            Arg::new("until")
                .long("until")
                .value_name("FACTOR")
                .value_parser(values::factor)
                .conflicts_with_all(["bound", "objectives"])
                .help(
                    "Go on until the bounds of the load line are this factor apart, such as 1.2, or --time is over, \
                     which is 10m then",
                ),
        )
        .arg(
            Arg::new("point-time")
                .long("point-time")
                .value_name("TIME")
                .value_parser(values::duration)
                .help("Longest time that sweep spends on one depth [default: a tenth of --time, at least 4s]"),
        )
        .arg(
            Arg::new("time")
                .long("time")
                .value_name("TIME")
                .value_parser(values::duration)
                .default_value_if("until", ArgPredicate::IsPresent, "10m")
                .default_value("40s")
                .help("Time for the whole sweep; sweep visits every depth once in any case"),
        )
        .arg(
            Arg::new("resume")
                .long("resume")
                .value_name("RESULT")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("total-depths")
                .help(
                    "Go on with an earlier sweep of the same arguments, of which RESULT is the JSON: its points are \
                     taken over, and --time is the time of this part",
                ),
        )
        .arg(
            Arg::new("save-every")
                .long("save-every")
                .value_name("TIME")
                .value_parser(values::duration)
                .default_value("1m")
                .help("Save the sweep so far this often, so that --resume can go on with it after a crash"),
        )
        .arg(
            Arg::new("allow-writes")
                .long("allow-writes")
                .action(ArgAction::SetTrue)
                .help("Let a workload that writes destroy the content of TARGET (not needed for a directory)"),
        )
        .args(output::forms())
        .args(output::arguments("plimsoll-sweep-N.json", "plimsoll-sweep-N.html"))
        .arg(
            Arg::new("no-files")
                .long("no-files")
                .action(ArgAction::SetTrue)
                .help("Write no files, except those that --save and --html name"),
        )
}

fn run(matches: &ArgMatches, words: Vec<OsString>) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let crew = match crew::join(&interrupt)? {
        Joined::Alone => {
            let (request, effort) = asked(matches, words.clone(), &crew::alone())?;
            try_outputs(matches, &words, &request)?;
            let name = default_name(matches);
            let result = sweep(matches, name.as_ref(), &request, &effort, interrupt, None)?;
            let ended = result.ended;
            report(matches, name.as_ref(), result)?;
            return Ok(ended.into());
        }
        Joined::Among(crew) => crew,
        Joined::Mute(status) => return Ok(status),
    };
    let asked = asked(matches, words.clone(), &crew.rank).and_then(|asked| {
        if crew.is_leader() {
            try_outputs(matches, &words, &asked.0)?;
        }
        Ok(asked)
    });
    let status = match crew.agree(asked) {
        Ok((request, effort)) => together(matches, &crew, &request, &effort, interrupt),
        Err(status) => Ok(status),
    };
    Ok(crew.leave(crew::said(status)))
}

/// The request that the arguments make to this rank.
fn asked(matches: &ArgMatches, words: Vec<OsString>, rank: &Rank) -> anyhow::Result<(Request, Effort)> {
    let named = |name| matches.get_many::<String>(name).into_iter().flatten().cloned();
    let mut engines: Vec<String> = named("engines").collect();
    let mut axes = Vec::new();
    for text in named("axes") {
        match text.split_once('=') {
            Some(("engine" | "ioengine", list)) if engines.is_empty() => {
                engines.extend(list.split(',').map(|engine| engine.trim().to_owned()));
            }
            Some(("engine" | "ioengine", _)) => bail!("--axis {text}: --engine names the engines already"),
            None if ["engine", "ioengine"].contains(&text.as_str()) => {
                bail!("--axis engine needs engines: --axis engine=io_uring,libaio")
            }
            _ => axes.push(text.parse::<Axis>().map_err(|error| anyhow!("--axis {text}: {error}"))?),
        }
    }
    ensure!(axes.len() <= 2, "a sweep has two axes at most: {} given", axes.len());
    if matches.contains_id("workload") && !axes.iter().any(Axis::is_speed) {
        axes.push(Axis::speeds());
    }
    let (axis, across, depth) = placed(matches, axes)?;
    let mut job = command_line::job_options(&rank.fill_in_words(words))?;
    let left_out = load::sweep::take_in(&mut job)?;
    let request = Request {
        job,
        left_out,
        engines,
        allow_writes: matches.get_flag("allow-writes"),
        recorded: matches.get_many("workload").into_iter().flatten().cloned().collect(),
        resume: matches.get_one::<PathBuf>("resume").map(|path| resumed(path)).transpose()?,
    };
    let speed = axis.is_speed() || across.as_ref().is_some_and(Axis::is_speed);
    ensure!(
        !speed || !request.recorded.is_empty(),
        "--axis replay_time_scale is the speed of a recorded application: give its log, --workload LOG"
    );
    let given = |name| matches.get_one::<Duration>(name).copied();
    let duration = |name| given(name).expect("has a default");
    let until = matches.get_one::<f64>("until").copied();
    ensure!(until.is_none() || axis.has_load_line(), "--until needs a load line: leave --axis {} out", axis.name());
    let effort = Effort {
        axis,
        across,
        depth,
        objectives: matches.get_many("objectives").into_iter().flatten().copied().collect(),
        precondition: matches.get_flag("precondition").then(|| Rounds {
            round: duration("precondition-round"),
            most: *matches.get_one("precondition-rounds").expect("has a default"),
        }),
        bound: *matches.get_one("bound").expect("has a default"),
        until,
        point_cap: given("point-time").unwrap_or_else(|| match until {
            Some(_) => Duration::MAX,
            None => LEAST_POINT_TIME.max(duration("time") / 10),
        }),
        total: duration("time"),
        save_every: duration("save-every"),
        ..Effort::default()
    };
    ensure!(
        effort.objectives.is_empty() || effort.axis.has_load_line() || effort.axis.is_rate(),
        "--objective needs an axis along which latency grows: iodepth, numjobs, rate_iops or rate, not {}",
        effort.axis.name()
    );
    Ok((request, effort))
}

/// The sweep to resume, from the file of its result.
fn resumed(path: &Path) -> anyhow::Result<Resume> {
    match output::read(path)? {
        Document::Sweep(result) => Ok(Resume { path: path.into(), result }),
        _ => bail!("cannot resume {}: it is the result of another subcommand than sweep", path.display()),
    }
}

/// The axis of the points, the axis of the curves, and the depth where neither of them is the depth.
fn placed(matches: &ArgMatches, mut axes: Vec<Axis>) -> anyhow::Result<(Axis, Option<Axis>, Option<u32>)> {
    let depths = matches.get_one::<Values>("total-depths").or_else(|| matches.get_one("depths")).cloned();
    if axes.is_empty() {
        let all = Values::Range(1, 1024);
        return Ok((Axis::depths(depths.unwrap_or(all)), None, None));
    }
    // Points lie along the axis that has a load line or a limit; the other axis tells the curves apart.
    let along = axes.iter().position(|axis| axis.has_load_line() || axis.is_rate()).unwrap_or(0);
    let axis = axes.remove(along);
    let across = axes.pop();
    let is_depth = |axis: &Axis| axis.role() == Role::Depth;
    let depth = match depths {
        None => None,
        Some(_) if is_depth(&axis) || across.as_ref().is_some_and(is_depth) => {
            bail!("--iodepth and --axis iodepth: give the depths with one of them")
        }
        Some(depths) => match depths.single() {
            Some(depth) => Some(u32::try_from(depth)?),
            None if axis.is_speed() => bail!("--iodepth takes one depth with --workload: that of each thread"),
            None => bail!("--iodepth takes one depth with --axis {}: add --axis iodepth for a map", axis.name()),
        },
    };
    if let Some(across) = across.as_ref().filter(|across| across.values().is_none()) {
        ensure!(
            !axis.is_rate(),
            "--axis {} and --axis {}: a map has at most one axis of rates",
            axis.name(),
            across.name()
        );
        bail!("--axis {} needs values, because it is the second axis", across.name());
    }
    Ok((axis, across, depth))
}

fn sweep(
    matches: &ArgMatches,
    name: Option<&DefaultName>,
    request: &Request,
    effort: &Effort,
    interrupt: Interrupt,
    mut sweepers: Option<&mut Sweepers>,
) -> Result<SweepResult, load::Error> {
    let crew = sweepers.as_ref().map(|sweepers| sweepers.crew);
    let leads = crew.is_none_or(Crew::is_leader);
    if leads && !request.left_out.is_empty() {
        let what = request.left_out.join(", ");
        output::warn(&[format!("the sweep decides these options of the job file itself: {what}")]);
    }
    let form = Form::of(matches);
    let bar = RefCell::new(Bar::new(match crew {
        _ if form == Form::Nothing => Show::Never,
        None => Show::Auto,
        Some(crew) => crew.show(),
    }));
    let target = request.job.files.first().map_or_else(|| ".".into(), |path| path.display().to_string());
    let live = RefCell::new(LiveLoad::new("sweep", &target));
    let mut progress = |now: &Moment| {
        if let Doing::Point(_, _, depth, _) = now.doing {
            live.borrow_mut().add(now.run, depth.into());
        }
        let all = crew.map(|crew| crew.share(now.run));
        bar.borrow_mut().show(&doing(&now.doing), Some(now.done), all.as_ref().unwrap_or(now.run));
    };
    // The rows so far stand on the terminal, and every row may change until the last visit. Then all are printed once.
    let terminal = output::style_of(&console::Term::stderr());
    let mut measured = |curves: &[Curve]| {
        if let [only] = curves
            && effort.axis.role() == Role::Depth
            && let Some(line) = measure::load_line::find(&only.points)
            && let Answer::At(line) = line.answer()
        {
            live.borrow().set_load_line(line.mean as u64);
        }
        if bar.borrow().is_drawn() {
            let axis = effort.axis.name().into();
            let so_far =
                SweepResult { target: target.clone(), axis, curves: curves.to_vec(), ..SweepResult::default() };
            bar.borrow().above(&report::text::sweep_rows(&so_far, terminal));
        }
    };
    let mut save = |so_far: SweepResult| {
        if let Err(error) = output::save_so_far(matches, name, &Document::Sweep(so_far)) {
            bar.borrow().aside(|| output::complain_of(&error));
        }
    };
    let mut printed = Ok(());
    let mut concluded = |rows: &SweepResult| {
        if form == Form::Text {
            bar.borrow().above("");
            bar.borrow().aside(|| printed = output::print(&report::text::sweep_rows(rows, output::style())));
        }
    };
    let mut removed = |path: &Path, bytes: u64| {
        let bytes = measure::figures::bytes(bytes as f64);
        output::warn(&[format!("removed {} ({bytes}), the scratch file of a sweep that was killed", path.display())]);
    };
    let mut watch = Watch {
        stop: interrupt.stop,
        doomed: interrupt.doomed,
        progress: &mut progress,
        measured: &mut measured,
        save: &mut save,
        concluded: &mut concluded,
        removed: &mut removed,
        crew: sweepers.as_mut().map(|sweepers| &mut **sweepers as _),
    };
    if !leads {
        return load::sweep::follow(request, effort, &mut watch).map(|()| SweepResult::default());
    }
    let mut result = load::sweep::sweep(request, effort, &mut watch)?;
    result.advice = report::advice(&result);
    // A reader that has gone does not cost the saved result.
    drop(printed);
    Ok(result)
}

/// This rank's share of a sweep on many hosts; at the leader, its result.
fn together(
    matches: &ArgMatches,
    crew: &Crew,
    request: &Request,
    effort: &Effort,
    interrupt: Interrupt,
) -> anyhow::Result<Exit> {
    let mut sweepers = Sweepers::new(crew, matches.contains_id("total-depths"));
    let name = default_name(matches);
    let outcome = sweep(matches, name.as_ref(), request, effort, interrupt, Some(&mut sweepers));
    let (result, part) = match outcome {
        Ok(result) => (Some(result), Part { first_rank: crew.rank.rank, ranks: 1, ..Part::default() }),
        Err(error) => (None, crew.failed(&error.to_string())),
    };
    let Some((_, failures)) = crew.conclude(&part) else { return Ok(Exit::Ok) };
    crew::complain(&failures);
    let mut status = if failures.is_empty() { Exit::Ok } else { Exit::BadInput };
    let mut said = Ok(());
    if let Some(mut result) = result.filter(|result| !result.curves.is_empty()) {
        if !failures.is_empty() {
            result.ended = Ended::Failed;
        }
        status = result.ended.into();
        said = report(matches, name.as_ref(), result);
    }
    crew.farewell(status);
    said.map(|()| status)
}

/// Prints the findings below the rows, which are printed already, and writes the result to the files of the options.
fn report(matches: &ArgMatches, name: Option<&DefaultName>, result: SweepResult) -> anyhow::Result<()> {
    output::deliver(matches, name, Document::Sweep(result), |document, style| match document {
        Document::Sweep(result) => report::text::sweep_findings(result, style),
        _ => String::new(),
    })
}

/// The name of the files that are left behind where the arguments name none.
fn default_name(matches: &ArgMatches) -> Option<DefaultName> {
    let named = matches.contains_id("save") && matches.contains_id("html");
    let none = named || matches.get_flag("json") || matches.get_flag("no-files");
    (!none).then(|| DefaultName::of("sweep"))
}

/// Tries every place that the result is to be written to. A result may take the place of the one that is resumed, which
/// it contains.
fn try_outputs(matches: &ArgMatches, words: &[OsString], request: &Request) -> anyhow::Result<()> {
    // Words without a dash are the target or the job file.
    let words = words.iter().filter(|word| !word.as_encoded_bytes().starts_with(b"-")).map(PathBuf::from);
    output::try_asked(matches, words.chain(load::sweep::files_of(request)))?;
    default_name(matches).map_or(Ok(()), |name| name.try_to_write())
}

fn doing(doing: &Doing) -> String {
    match doing {
        Doing::Layout => "laying out a scratch file".into(),
        Doing::Precondition(Stage::Purge) => "preconditioning: discarding the blocks".into(),
        Doing::Precondition(Stage::Fill) => "preconditioning: writing all blocks twice".into(),
        Doing::Precondition(Stage::Round(number)) => format!("preconditioning: round {number}"),
        Doing::Ceiling(engine, depth) => format!("null engine at the load line of {engine}, {depth}"),
        Doing::Look(curve) => format!("{curve}, a first look"),
        Doing::Point(curve, place, _, why) => {
            let why = match why {
                Why::Asked => "",
                Why::LoadLine => ", closer to the load line",
                Why::Overload => ", closer to the overload point",
                Why::Plateau => ", closer to the top",
                Why::Limit => ", closer to the limit",
                Why::Again => ", again at another time",
            };
            format!("{curve}, {place}{why}")
        }
    }
}

//! `plimsoll lanes`: the doctor. Are the lanes of a pool worth spreading over, and can a program be spread at all?

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use lanes::doctor::filters;
use lanes::doctor::findings::{Severity, examine_rates};
use lanes::doctor::program::{self, Interception};
use lanes::doctor::rate::{self, Rates};
use lanes::doctor::survey::{Options, Trouble};
use lanes::doctor::{Finding, LaneFacts, Survey, examine, survey};
use lanes::{Pool, Pools};
use measure::figures;
use report::text::Table;
use serde_json::{Value, json};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::{output, trap, values};

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

/// The time in which a lane must answer.
const PATIENCE: Duration = Duration::from_secs(5);

fn command() -> Command {
    let path = |arg: Arg| arg.value_parser(value_parser!(PathBuf));
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let [pool, pool_file] = trap::pool_arguments();
    Command::new("lanes")
        .about("Test the lanes of a pool: one volume, separate connections, speed, use by a program")
        .long_about(
            "Tests every lane of a pool: is the lane mounted, is it the same volume as the others, does it have a \
             separate superblock and connection, does it have the same mount options, how fast is it alone and \
             together with the others? Only --write-probe writes. Exit status 0: no fault. 1: a fault. 2: bad input.",
        )
        .arg(
            Arg::new("name")
                .value_name("POOL")
                .num_args(0..)
                .help("Names of pools in the file or the environment [default: all]"),
        )
        .arg(pool)
        .arg(pool_file)
        .arg(
            Arg::new("program")
                .long("program")
                .value_name("PROGRAM")
                .value_parser(value_parser!(PathBuf))
                .help("Test also whether libiotrap.so can intercept this program"),
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("TIME")
                .default_value("2s")
                .value_parser(values::duration)
                .help("Time of the read test for each lane, and for all lanes together"),
        )
        .arg(flag("no-rate", "Skip the read test"))
        .arg(path(
            Arg::new("file")
                .long("file")
                .value_name("FILE")
                .help("File to compare and read, relative to the lanes [default: the largest file there]"),
        ))
        .arg(flag("write-probe", "Write a small file through the first lane, look for it on the others, and remove it"))
        .arg(flag("json", "Print JSON instead of text"))
        .arg(flag("csv", "Print comma-separated values, a line a lane, without the findings").conflicts_with("json"))
        .arg(flag("quiet", "Print nothing: the exit status tells").conflicts_with_all(["json", "csv"]))
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let program = matches.get_one::<PathBuf>("program");
    let pools = chosen(matches)?;
    if pools.is_empty() && program.is_none() {
        bail!(
            "no pool: give the lanes of a volume as --pool NAME=/mnt/a,/mnt/b, a --pool-file, or a --program to look at"
        );
    }
    let file = matches.get_one::<PathBuf>("file").cloned();
    if let Some(file) = file.as_ref().filter(|file| file.is_absolute()) {
        bail!("--file {}: give it as seen from the lanes' directory, not from the root", file.display());
    }
    let program = program.map(|name| examined(name)).transpose()?;
    let options = Options { file, write_probe: matches.get_flag("write-probe"), patience: PATIENCE };
    let time = *matches.get_one::<Duration>("seconds").expect("it has a default");
    let looks = pools.iter().map(|pool| Look::at(pool, &options, Some(time).filter(|_| !matches.get_flag("no-rate"))));
    let looks: Vec<Look> = looks.collect();
    let filtered = trap::library(None).ok().and_then(|library| filters::of_this_process(&library).why_not());
    output::warn(&filtered.map(|why| format!("nothing is spread here: {why}")).into_iter().collect::<Vec<_>>());
    let well = filtered.is_none()
        && looks.iter().all(Look::is_well)
        && program.as_ref().is_none_or(|(_, found)| found.works());
    if matches.get_flag("json") {
        output::print(&format!("{:#}\n", as_value(&looks, program.as_ref())))?;
    } else if matches.get_flag("csv") {
        output::print(&as_csv(&looks))?;
    } else if !matches.get_flag("quiet") {
        output::print(&as_text(&looks, program.as_ref()))?;
    }
    Ok(if well { Exit::Ok } else { Exit::JobFailed })
}

/// The requested pools.
fn chosen(matches: &ArgMatches) -> anyhow::Result<Vec<Pool>> {
    let mut pools = trap::pools(matches)?.map(Pools::into_vec).unwrap_or_default();
    let names: Vec<&String> = matches.get_many::<String>("name").into_iter().flatten().collect();
    for name in &names {
        if !pools.iter().any(|pool| pool.name == **name) {
            let known: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
            match known.is_empty() {
                true => bail!("no pool {name}: there are none; give --pool, --pool-file or IOTRAP_MOUNT_POOLS"),
                false => bail!("no pool {name}: there is {}", known.join(", ")),
            }
        }
    }
    if !names.is_empty() {
        pools.retain(|pool| names.iter().any(|name| **name == pool.name));
    }
    Ok(pools)
}

fn examined(name: &Path) -> anyhow::Result<(PathBuf, Interception)> {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = program::find(name, &path).with_context(|| format!("there is no program {}", name.display()))?;
    let examined = program::examine(&found);
    Ok((found, examined))
}

/// The findings on one pool.
struct Look<'a> {
    pool: &'a Pool,
    survey: Survey,
    rates: Option<Rates>,
    findings: Vec<Finding>,
}

impl Look<'_> {
    fn at<'a>(pool: &'a Pool, options: &Options, time: Option<Duration>) -> Look<'a> {
        let survey = survey(pool, options);
        let mut findings = examine(pool, &survey);
        let readable = survey.lanes.iter().filter(|lane| lane.trouble.is_none() && matches!(lane.file, Some(Ok(_))));
        let readable: Vec<usize> =
            readable.filter_map(|lane| pool.lanes.iter().position(|known| known.path == lane.path)).collect();
        let mut rates = None;
        if let (Some(time), Some(file), false) = (time, &survey.file, readable.is_empty()) {
            let paths: Vec<PathBuf> = readable.iter().map(|&lane| pool.lanes[lane].path.clone()).collect();
            let measured = rate::measure(&paths, file, time);
            let of_rates = examine_rates(&only(&survey, &readable), &measured, &findings);
            findings.extend(of_rates);
            findings.sort_by_key(|finding| finding.severity);
            // The results are again in the order of the pool's lanes.
            let mut alone = vec![Err("not readable".to_owned()); pool.lanes.len()];
            readable.iter().zip(measured.alone).for_each(|(&lane, rate)| alone[lane] = rate);
            rates = Some(Rates { alone, together: measured.together });
        }
        Look { pool, survey, rates, findings }
    }

    fn is_well(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Note)
    }
}

fn only(survey: &Survey, lanes: &[usize]) -> Survey {
    Survey { lanes: lanes.iter().map(|&lane| survey.lanes[lane].clone()).collect(), ..survey.clone() }
}

fn as_text(looks: &[Look], program: Option<&(PathBuf, Interception)>) -> String {
    let mut parts: Vec<String> = looks.iter().map(text_of).collect();
    if let Some((path, found)) = program {
        parts.push(format!("{} {found}\n", path.display()));
    }
    parts.join("\n")
}

fn text_of(look: &Look) -> String {
    let mut out = format!("pool {}\n", look.pool.name);
    let mut table = Table::new(["lane", "mounted", "NFS", "superblock", "connection", "alone"]).left(1).left(3).left(4);
    for (index, lane) in look.survey.lanes.iter().enumerate() {
        let mount = lane.mount.as_ref();
        let rate = look.rates.as_ref().and_then(|rates| rates.alone.get(index));
        table.row(vec![
            lane.path.display().to_string(),
            mount.map_or("-".into(), |mount| format!("{} {}", mount.kind, mount.source)),
            mount.and_then(|mount| mount.nfs_version()).unwrap_or("-").into(),
            lane.directory.as_ref().map_or_else(|| trouble(lane), |facts| device(facts.device())),
            connections(lane),
            match rate {
                Some(Ok(rate)) => figures::bytes_per_second(*rate),
                _ => "-".into(),
            },
        ]);
    }
    out += &table.render(output::style(), 2);
    if let Some(together) = look.rates.as_ref().and_then(|rates| rates.together) {
        let best = look.rates.as_ref().and_then(Rates::best_alone).unwrap_or(together).max(1.0);
        let times = figures::digits(together / best);
        out += &format!("  together {}, {times} times the best lane alone\n", figures::bytes_per_second(together));
    }
    for finding in &look.findings {
        out += &format!("  {}: {}\n", finding.severity.name(), finding.text);
    }
    if look.findings.is_empty() {
        out += "  no fault: the lanes are one volume, and independent\n";
    }
    out
}

/// The lanes as comma-separated values; a value that a lane does not have is empty.
fn as_csv(looks: &[Look]) -> String {
    let header = ["pool", "lane", "usable", "type", "source", "nfs_version", "superblock", "connection", "bytes_per_s"];
    let row = |look: &Look, index: usize, lane: &LaneFacts| {
        let mount = lane.mount.as_ref();
        let rate = look.rates.as_ref().and_then(|rates| rates.alone.get(index)?.as_ref().ok());
        vec![
            look.pool.name.clone(),
            lane.path.display().to_string(),
            lane.trouble.is_none().to_string(),
            mount.map(|mount| mount.kind.clone()).unwrap_or_default(),
            mount.map(|mount| mount.source.clone()).unwrap_or_default(),
            mount.and_then(|mount| mount.nfs_version()).unwrap_or_default().to_string(),
            lane.directory.as_ref().map(|facts| device(facts.device())).unwrap_or_default(),
            if lane.connections.is_empty() { String::new() } else { connections(lane) },
            rate.map(|rate| format!("{rate:.0}")).unwrap_or_default(),
        ]
    };
    let rows = looks
        .iter()
        .flat_map(|look| look.survey.lanes.iter().enumerate().map(move |(index, lane)| row(look, index, lane)));
    report::csv::table(&header, rows)
}

fn trouble(lane: &LaneFacts) -> String {
    match lane.trouble {
        Some(Trouble::Silent) => "no answer".into(),
        Some(Trouble::Failed(_)) => "unusable".into(),
        None => "-".into(),
    }
}

fn device((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

fn connections(lane: &LaneFacts) -> String {
    let one = |connection: &lanes::doctor::connections::Connection| match connection.port {
        0 => connection.kind.clone(),
        port => format!("{} {port}", connection.kind),
    };
    match &lane.connections[..] {
        [] => "-".into(),
        [first] => one(first),
        [first, others @ ..] => format!("{} and {} more", one(first), others.len()),
    }
}

fn as_value(looks: &[Look], program: Option<&(PathBuf, Interception)>) -> Value {
    let lane = |look: &Look, index: usize, lane: &LaneFacts| {
        let mount = lane.mount.as_ref();
        let rate = look.rates.as_ref().and_then(|rates| rates.alone.get(index)?.as_ref().ok().copied());
        json!({
            "path": lane.path.display().to_string(),
            "usable": lane.trouble.is_none(),
            "mount_point": mount.map(|mount| mount.point.display().to_string()),
            "source": mount.map(|mount| mount.source.as_str()),
            "type": mount.map(|mount| mount.kind.as_str()),
            "nfs_version": mount.and_then(|mount| mount.nfs_version()),
            "device": lane.directory.as_ref().map(|facts| device(facts.device())),
            "connections": lane.connections.iter().map(|connection| json!({
                "type": connection.kind,
                "port": Some(connection.port).filter(|&port| port != 0),
                "server": mount.and_then(|mount| mount.option("addr")),
            })).collect::<Value>(),
            "alone_bytes_per_s": rate,
        })
    };
    let pool = |look: &Look| {
        json!({
            "name": look.pool.name,
            "lanes": look.survey.lanes.iter().enumerate().map(|(index, facts)| lane(look, index, facts)).collect::<Value>(),
            "file": look.survey.file.as_ref().map(|file| file.display().to_string()),
            "together_bytes_per_s": look.rates.as_ref().and_then(|rates| rates.together),
            "findings": look.findings.iter().map(|finding| {
                json!({ "severity": finding.severity.name(), "kind": finding.kind, "text": finding.text })
            }).collect::<Value>(),
        })
    };
    let program = program.map(|(path, found)| {
        json!({ "path": path.display().to_string(), "interceptable": found.works(), "text": found.to_string() })
    });
    json!({ "pools": looks.iter().map(pool).collect::<Value>(), "program": program })
}

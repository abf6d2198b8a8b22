//! `plimsoll files`: metadata-heavy work on many small files.

use std::cell::RefCell;
use std::ffi::{CString, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use hosts::Part;
use job::Rank;
use load::smallfiles::{
    self, Abroad, Among, Branches, Control, Layout, Moment, OPERATIONS, Phase, Plan, Sizes, Target,
};
use measure::figures;
use measure::schema::{Document, FilesResult, Work};
use measure::units::{self, TimeUnit};

use crate::command_line::{Arguments, Subcommand};
use crate::crew::{self, Crew, Joined};
use crate::exit::Exit;
use crate::files_input;
use crate::interrupt::Interrupt;
use crate::output::{self, Form};
use crate::over_ssh;
use crate::progress::{Bar, Show};
use crate::values;

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let count =
        |name, what, default: &'static str, help| value(name, what, help).value_parser(number).default_value(default);
    Command::new("files")
        .about("Measure operations on many small files: create, read, stat, rename, unlink, ...")
        .long_about(
            "Carries out operations on many small files from many threads, one phase after the other. The files are \
             on a mounted file system, or on a Gluster volume that libgfapi reaches. Prints files/s, IOPS and MB/s in \
             total, by process and by thread, over the whole time and up to the stonewall (the moment at which the \
             first thread ends). Prints also the latency of every operation and of its system calls.",
        )
        .after_help("The sign + joins operations to a mix, with weights: --op create,read:70+stat:20+append:10,unlink")
        .after_long_help(operations_help())
        .arg(
            value("op", "OPERATION[,...]", "Phases in their order; + joins operations to a mix (see below)")
                .required_unless_present("input"),
        )
        .arg(
            value("input", "FILE", "Read options from this file: smallfile's parameters, or these, as YAML or JSON")
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(
            value("dir", "DIRECTORY", "Existing directory for the files. Several: threads take them in turns")
                .action(ArgAction::Append)
                .default_value("."),
        )
        .arg(
            value("fs", "posix|gluster://HOST[:PORT]/VOLUME[/PATH]", "Way to the files: system calls, or libgfapi")
                .value_parser(|text: &str| text.parse::<Target>())
                .default_value("posix"),
        )
        .arg(count("files", "N", "1000", "Files of each thread"))
        .arg(
            value(
                "size",
                "SIZES",
                "Sizes of files: 4k; exp:64k (exponential with mean 64k); 4k:70,64k:30 (a list with weights)",
            )
            .value_parser(|text: &str| text.parse::<Sizes>())
            .default_value("4k"),
        )
        .arg(
            value(
                "record",
                "BYTES|/N",
                "Bytes of each read and write, or /N for the Nth part of each file [default: its size, at most 1m]",
            )
            .value_parser(record),
        )
        .arg(count("threads", "N", "1", "Threads of each process"))
        .arg(count("processes", "N", "1", "Number of processes"))
        .arg(count("files-per-dir", "N", "1000", "Files in each directory"))
        .arg(
            value(
                "dirs-per-dir",
                "N",
                "Make a tree with this many subdirectories in each directory [default: no tree]",
            )
            .value_parser(number),
        )
        .arg(
            value("depth", "N", "Make a tree of N levels below its root, --files-per-dir files in each directory")
                .value_parser(number),
        )
        .arg(
            value("branching", "N", "Subdirectories of each directory of the tree [default: 1]")
                .value_parser(number)
                .requires("depth"),
        )
        .arg(flag("leaves-only", "Of the tree, only the last level has files").requires("depth"))
        .arg(
            value("shared", "threads|ranks", "Let all threads of a rank, or of all ranks, use the same directories")
                .value_parser(["threads", "ranks"])
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("threads"),
        )
        .arg(over_ssh::argument())
        .arg(flag("hash-into-dirs", "Choose each file's directory at random [default: fill one after the other]"))
        .arg(value("prefix", "TEXT", "Beginning of the names of files").default_value("f"))
        .arg(value("suffix", "TEXT", "End of the names of files").default_value(""))
        .arg(
            value(
                "neighbour",
                "N",
                "read, stat, unlink, ... work on the files of the Nth thread on; on many hosts, of the Nth rank on",
            )
            .value_parser(number),
        )
        .arg(flag("random-order", "Use files (read, stat, ...) in random order"))
        .arg(flag("incompressible", "Contents in which no two blocks have bytes in common"))
        .arg(flag("random", "Read and overwrite the records of a file in random order"))
        .arg(value("records", "N", "Read and overwrite only this number of records of each file").value_parser(number))
        .arg(flag("direct", "Open files with O_DIRECT"))
        .arg(flag("fsync", "Call fsync(2) before closing a file that was written"))
        .arg(flag("verify", "Compare contents, sizes and attributes with the values written"))
        .arg(value("xattr-size", "BYTES", "Bytes of an extended attribute").value_parser(bytes).default_value("256"))
        .arg(count("xattr-count", "N", "1", "Extended attributes of each file"))
        .arg(
            value("limit-read", "BYTES", "Bytes that each thread reads in a second at most")
                .value_parser(bytes)
                .alias("limitread"),
        )
        .arg(
            value("limit-write", "BYTES", "Bytes that each thread writes in a second at most")
                .value_parser(bytes)
                .alias("limitwrite"),
        )
        .arg(
            flag("drop-caches", "Write out, and drop the kernel's caches before each phase; needs root")
                .alias("dropcache"),
        )
        .arg(value("pause", "TIME", "Pause after each file (us unless a unit is given)").value_parser(pause))
        .arg(
            flag("auto-pause", "Pause after each file for a tenth of the mean response time, for each thread")
                .conflicts_with("pause"),
        )
        .arg(
            value("finish", "all|first|even", "End a phase when all threads are through, or as soon as the first one is; even: after --runtime, when all have done as many operations as the fastest")
                .value_parser(["all", "first", "even"])
                .default_value("all"),
        )
        .arg(
            value("iterations", "N", "Do all phases N times; the report has mean and deviation")
                .value_parser(number)
                .default_value("1"),
        )
        .arg(
            value(
                "response-times",
                "DIRECTORY",
                "Write the response time of every operation there, as CSV, a file for each thread",
            )
            .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(
            value("runtime", "TIME", "End each phase after this time, even if work is left")
                .value_parser(values::duration),
        )
        .arg(flag("continue-on-error", "Count failed operations and go on; the exit status is still 1"))
        .arg(
            value("start-when", "FILE", "Begin when this file appears, so that several runs start together")
                .value_parser(clap::value_parser!(PathBuf)),
        )
        .arg(flag("cleanup", "Remove the files of this run at the end, also after a failure or a signal"))
        .arg(value("seed", "N", "Seed of random sizes, contents and choices").value_parser(number).default_value("1"))
        .arg(flag("no-latency", "Record no latencies"))
        .args(output::forms())
        .args(output::arguments("", ""))
        .arg(
            value("smallfile-json", "FILE", "Write the result of one operation with the keys of smallfile's output-json")
                .value_parser(clap::value_parser!(PathBuf)),
        )
}

fn operations_help() -> String {
    let mut text = String::from("Operations:\n");
    for row in OPERATIONS {
        let names = [&[row.name], row.aliases].concat().join(", ");
        text += &format!("  {names:<22} {}\n", row.help);
    }
    text + "\nThe sign + joins operations to a mix, with weights: --op create,read:70+stat:20+append:10,unlink. A mix \
            does as many operations as --files says; it renames files there and back. Later phases know the files \
            that earlier phases left: their names, sizes and contents."
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number: give a whole number, as 1000"))
}

fn bytes(text: &str) -> Result<u64, String> {
    units::parse_bytes(text, 1024).map_err(|error| error.to_string())
}

/// The size of a read or write: bytes, or a part of the file.
#[derive(Clone, Copy, Debug)]
enum Record {
    Bytes(u64),
    Part(u64),
}

fn record(text: &str) -> Result<Record, String> {
    match text.strip_prefix('/') {
        Some(parts) => number(parts).map(Record::Part),
        None => bytes(text).map(Record::Bytes),
    }
}

/// The shape of the tree of directories, if the user gave one.
fn branches(matches: &ArgMatches) -> Option<Branches> {
    let depth = *matches.get_one::<u64>("depth")?;
    Some(Branches {
        depth: u32::try_from(depth).unwrap_or(u32::MAX),
        branching: matches.get_one("branching").copied().unwrap_or(1),
        leaves_only: matches.get_flag("leaves-only"),
    })
}

/// Files of each thread, and files a directory. A tree has a given number of directories: one of the two follows from
/// the other.
fn counts(matches: &ArgMatches, branches: Option<Branches>, threads: u64) -> anyhow::Result<(u64, u64)> {
    let number = |name: &str| *matches.get_one::<u64>(name).expect("has a default");
    let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let (files, per_dir) = (number("files"), number("files-per-dir"));
    // A tree that is too large is refused by the plan.
    let Some(directories) = branches.and_then(Branches::directories).filter(|directories| *directories > 0) else {
        return Ok((files, per_dir));
    };
    let sharers = if matches.contains_id("shared") { threads.max(1) } else { 1 };
    match (given("files"), given("files-per-dir")) {
        (true, true) => bail!("--files and --files-per-dir with --depth: one follows from the other: give one of them"),
        (false, true) => Ok((directories.saturating_mul(per_dir).div_ceil(sharers), per_dir)),
        _ => Ok((files, files.saturating_mul(sharers).div_ceil(directories).max(1))),
    }
}

fn pause(text: &str) -> Result<Duration, String> {
    units::parse_time_ns(text, TimeUnit::Microseconds).map(Duration::from_nanos).map_err(|error| error.to_string())
}

/// True if the threads of all ranks use the same directories.
fn ranks_share(matches: &ArgMatches) -> bool {
    matches.get_one::<String>("shared").is_some_and(|by| by == "ranks")
}

/// The plan of one of `ranks` ranks, before the rank takes its share.
fn plan(matches: &ArgMatches, ranks: u32) -> anyhow::Result<Plan> {
    let number = |name: &str| *matches.get_one::<u64>(name).expect("has a default");
    let threads = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX).min(100_000);
    let text = |name: &str| matches.get_one::<String>(name).expect("has a default or is required").as_str();
    let flag = |name: &str| matches.get_flag(name);
    let duration_ns = |name: &str| matches.get_one::<Duration>(name).map(|time| time.as_nanos() as u64);
    let target = matches.get_one::<Target>("fs").expect("has a default").clone();
    let sizes = matches.get_one::<Sizes>("size").expect("has a default").clone();
    let record = matches.get_one::<Record>("record").copied();
    let branches = branches(matches);
    let workers = u64::from(threads("threads")) * u64::from(threads("processes"));
    let phases = iterated(Phase::parse_all(text("op"))?, number("iterations"))?;
    if matches.contains_id("smallfile-json") && phases.len() > 1 {
        bail!("--smallfile-json has a place for one operation: give one with --op, or use --save");
    }
    let sharers = if ranks_share(matches) { workers * u64::from(ranks) } else { workers };
    let (files, files_per_dir) = counts(matches, branches, sharers)?;
    let mut bases = matches.get_many::<String>("dir").into_iter().flatten().map(|dir| target.directory(dir));
    let base = bases.next().expect("has a default")?;
    let others = bases.collect::<Result<Vec<_>, _>>()?;
    let (record_bytes, record_parts) = match record {
        Some(Record::Bytes(bytes)) => (bytes, None),
        Some(Record::Part(parts)) => (sizes.largest().div_ceil(parts.max(1)).max(1), Some(parts)),
        None => (sizes.largest().clamp(1, 1 << 20), None),
    };
    let options = matches.ids().filter(|id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine));
    let written = |id: &clap::Id| {
        let raw = matches.try_get_raw(id.as_str()).ok().flatten();
        let values: Vec<String> = raw.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect();
        (id.to_string(), values.join(","))
    };
    Ok(Plan {
        layout: Layout {
            base,
            others,
            prefix: text("prefix").to_string(),
            suffix: text("suffix").to_string(),
            files_per_dir,
            branches,
            dirs_per_dir: matches.get_one("dirs-per-dir").copied(),
            shared: matches.contains_id("shared"),
            hashed: flag("hash-into-dirs"),
        },
        target,
        phases,
        files,
        record_bytes,
        sizes,
        records: matches.get_one("records").copied(),
        random: flag("random"),
        threads: threads("threads"),
        processes: threads("processes"),
        direct: flag("direct"),
        fsync: flag("fsync"),
        verify: flag("verify"),
        checkable: true,
        continue_on_error: flag("continue-on-error"),
        missing_is_removed: false,
        make_dirs_on_demand: false,
        cleanup: flag("cleanup"),
        latency: !flag("no-latency"),
        pause_ns: duration_ns("pause").unwrap_or(0),
        runtime_ns: duration_ns("runtime"),
        xattr_bytes: usize::try_from(number("xattr-size")).unwrap_or(usize::MAX),
        xattr_count: u32::try_from(number("xattr-count")).unwrap_or(u32::MAX),
        seed: number("seed"),
        options: options.map(written).collect(),
        makes_base: false,
        finish_first: text("finish") == "first",
        finish_even: text("finish") == "even",
        neighbour: matches.get_one::<u64>("neighbour").map_or(0, |places| (places % workers.max(1)) as u32),
        abroad: None,
        among: None,
        random_order: flag("random-order"),
        incompressible: flag("incompressible"),
        auto_pause: flag("auto-pause"),
        record_parts,
        response_times: matches.get_one("response-times").cloned(),
        limit_read: matches.get_one("limit-read").copied(),
        limit_write: matches.get_one("limit-write").copied(),
        drop_caches: flag("drop-caches"),
    })
}

/// All phases, `times` times. From the second time on the names of the phases have a number: `create #2`.
fn iterated(phases: Vec<Phase>, times: u64) -> anyhow::Result<Vec<Phase>> {
    if !(1..=1000).contains(&times) {
        bail!("--iterations {times}: give 1 to 1000");
    }
    if let Some(operation) = Phase::unrepeatable(&phases).filter(|_| times > 1) {
        bail!(
            "--iterations {times}: what {operation} makes is still there when it is to be made again: remove it within \
             --op (as in create,stat,unlink), or give each call another --dir"
        );
    }
    let named = |time: u64| {
        let name = move |name: &str| if time == 1 { name.to_string() } else { format!("{name} #{time}") };
        phases.iter().map(move |phase| Phase { name: name(&phase.name), ..phase.clone() })
    };
    Ok((1..=times).flat_map(named).collect())
}

fn run(matches: &ArgMatches, _words: Vec<OsString>) -> anyhow::Result<Exit> {
    match matches.get_one::<PathBuf>("input") {
        None => carry_out(matches),
        Some(path) => {
            let matches = with_input(path, matches)?;
            output::try_asked(&matches, [path.clone()])?;
            carry_out(&matches)
        }
    }
}

/// The options of the command line as words again.
fn words_of(command: &Command, matches: &ArgMatches) -> Vec<OsString> {
    let given = |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let word = |arg: &Arg, value: &std::ffi::OsStr| {
        let mut word = OsString::from(format!("--{}=", arg.get_id()));
        word.push(value);
        word
    };
    let words = |arg: &Arg| match matches.get_raw(arg.get_id().as_str()) {
        Some(values) if arg.get_action().takes_values() => values.map(|value| word(arg, value)).collect(),
        _ => vec![OsString::from(format!("--{}", arg.get_id()))],
    };
    command.get_arguments().filter(given).flat_map(words).collect()
}

/// The arguments of an input file and of the command line, which has the last word.
fn with_input(path: &Path, typed: &ArgMatches) -> anyhow::Result<ArgMatches> {
    let mut command = command().args_override_self(true);
    command.build();
    let words = words_of(&command, typed);
    let options: Vec<String> = command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_string).collect();
    let knows = |name: &str| options.iter().any(|option| option == name);
    let given = files_input::words(path, knows)?.into_iter().map(OsString::from);
    // Directories add up: those of the command line replace those of the file.
    let replaced = words.iter().any(|word| word.to_string_lossy().starts_with("--dir="));
    let given = given.filter(|word| !replaced || !word.to_string_lossy().starts_with("--dir="));
    let all = std::iter::once(OsString::from("files")).chain(given).chain(words);
    let matches = command.try_get_matches_from(all).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string();
        anyhow::anyhow!("--input {}: {line}", path.display())
    })?;
    if matches.get_one::<String>("op").is_none() {
        bail!("--input {}: it has no operation: give one there, or --op", path.display());
    }
    Ok(matches)
}

fn carry_out(matches: &ArgMatches) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let crew = match crew::join(&interrupt)? {
        Joined::Alone => {
            let plan = plan(matches, 1)?;
            output::try_asked(matches, [])?;
            if let Some(gun) = matches.get_one::<PathBuf>("start-when") {
                while !gun.exists() && !interrupt.stop.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let mut bar = Bar::new(if Form::of(matches) == Form::Nothing { Show::Never } else { Show::Auto });
            let mut progress = |now: &Moment| bar.show(&doing(now), Some(now.done), &load::Progress::default());
            let mut control = Control { stop: interrupt.stop, progress: Some(&mut progress), ..Control::default() };
            let result = smallfiles::run(&plan, &mut control)?;
            drop(bar);
            let ended = result.ended;
            report(matches, result)?;
            return Ok(ended.into());
        }
        Joined::Among(mut crew) => {
            crew.awaits = matches.get_one("start-when").cloned();
            crew
        }
        Joined::Mute(status) => return Ok(status),
    };
    let plan = plan(matches, crew.rank.ranks).and_then(|plan| {
        if crew.is_leader() {
            output::try_asked(matches, [])?;
        }
        let neighbour = matches.get_one::<u64>("neighbour").copied().unwrap_or(0);
        match ranks_share(matches) {
            true => sharing(plan, &crew.rank, neighbour),
            false => of_rank(plan, &crew.rank, neighbour),
        }
    });
    let status = match crew.agree(plan) {
        Ok(plan) => together(matches, &crew, &plan, interrupt),
        Err(status) => Ok(status),
    };
    Ok(crew.leave(crew::said(status)))
}

/// The plan of one of many ranks, with separate files in a separate directory: one that `--dir` names with `$rank` or
/// `$host`, or one below it.
fn of_rank(mut plan: Plan, rank: &Rank, neighbour: u64) -> anyhow::Result<Plan> {
    let seed_of = |rank: u32| plan.seed.wrapping_add(u64::from(rank) << 32);
    let base_of = |base: &CString, rank: &Rank| {
        let base = base.to_str().context("--dir is not UTF-8")?;
        let own = rank.fill_in(base);
        let own = if own == base { format!("{}/rank{}", base.trim_end_matches('/'), rank.rank) } else { own };
        anyhow::Ok(CString::new(own)?)
    };
    plan.neighbour = 0;
    let places = (neighbour % u64::from(rank.ranks)) as u32;
    if places > 0 {
        if plan.layout.bases().any(|base| base.to_bytes().windows(5).any(|part| part == b"$host")) {
            bail!("--neighbour with $host in --dir: a rank does not know the hosts of others: use $rank");
        }
        let other = Rank { rank: (rank.rank + places) % rank.ranks, ..rank.clone() };
        let bases = plan.layout.bases().map(|base| base_of(base, &other)).collect::<Result<_, _>>()?;
        plan.abroad = Some(Abroad { bases, seed: seed_of(other.rank), threads_on: 0 });
    }
    plan.seed = seed_of(rank.rank);
    plan.layout.base = base_of(&plan.layout.base, rank)?;
    for base in &mut plan.layout.others {
        *base = base_of(base, rank)?;
    }
    plan.response_times = plan.response_times.map(|directory| directory.join(format!("rank{}", rank.rank)));
    plan.makes_base = true;
    Ok(plan)
}

/// The plan of one of many ranks that share the directories of `--dir`: the threads of all ranks are numbered through.
fn sharing(mut plan: Plan, rank: &Rank, neighbour: u64) -> anyhow::Result<Plan> {
    let base = plan.layout.base.to_str().context("--dir is not UTF-8")?;
    if rank.fill_in(base) != base {
        bail!("--shared=ranks with $rank or $host in --dir: ranks share one directory: give its path");
    }
    let workers = plan.workers();
    let all = u64::from(workers) * u64::from(rank.ranks);
    let threads =
        u32::try_from(all).with_context(|| format!("{all} threads of all ranks: at most 65536 are possible"))?;
    plan.among = Some(Among { first: rank.rank * workers, threads });
    plan.neighbour = 0;
    let places = (neighbour % u64::from(rank.ranks)) as u32;
    plan.abroad = (places > 0).then(|| Abroad {
        bases: plan.layout.bases().cloned().collect(),
        seed: plan.seed,
        threads_on: places * workers,
    });
    plan.response_times = plan.response_times.map(|directory| directory.join(format!("rank{}", rank.rank)));
    Ok(plan)
}

/// This rank's share of a run on many hosts; at the leader, its result.
fn together(matches: &ArgMatches, crew: &Crew, plan: &Plan, interrupt: Interrupt) -> anyhow::Result<Exit> {
    let bar = RefCell::new(Some(Bar::new(crew.show())));
    let mut progress = |now: &Moment| {
        let running = (now.busy as u32, plan.workers());
        let mut mine = load::Progress { phase: load::Phase::Run, running, done: Some(now.done), ..Default::default() };
        (mine.ops.read, mine.bytes.read, mine.elapsed_ns) = (now.work.files, now.work.bytes, now.elapsed_ns);
        let all = crew.share(&mine);
        let work = Work { files: all.ops.read, bytes: all.bytes.read, ..now.work };
        let now = Moment { work, busy: all.running.0 as usize, elapsed_ns: all.elapsed_ns, ..*now };
        if let Some(bar) = &mut *bar.borrow_mut() {
            bar.show(&doing(&now), all.done, &load::Progress::default());
        }
    };
    let mut said = None;
    let mut hand_over = |result: &FilesResult| {
        drop(bar.take());
        let mut result = result.clone();
        for thread in result.phases.iter_mut().flat_map(|phase| &mut phase.threads) {
            thread.thread += crew.rank.rank * plan.workers();
            thread.process += crew.rank.rank * plan.processes;
        }
        if let Some(error) = &result.error {
            crew.report(&error.message);
        }
        let part = Part::of_files(crew.rank.rank, &result, crew.describe());
        said = Some(speak(matches, crew, result, &part));
    };
    let mut peers = crew;
    let mut control = Control {
        stop: interrupt.stop,
        progress: Some(&mut progress),
        peers: Some(&mut peers),
        hand_over: Some(&mut hand_over),
        ..Control::default()
    };
    let left = match smallfiles::run(plan, &mut control) {
        Ok(result) => result.clean_up.map(|failure| failure.message),
        Err(error) => Some(error.to_string()),
    };
    drop(bar.take());
    match (said, left) {
        (Some(status), None) => status,
        // The figures are with the others already: this is about the files that stay.
        (Some(status), Some(what)) => {
            crew.complain_alone(&what);
            status.map(|status| if status == Exit::Ok { Exit::JobFailed } else { status })
        }
        (None, what) => speak(matches, crew, FilesResult::default(), &crew.failed(&what.unwrap_or_default())),
    }
}

/// Hands over what this rank has measured. At the leader: reports what all ranks have measured.
fn speak(matches: &ArgMatches, crew: &Crew, mut described: FilesResult, part: &Part) -> anyhow::Result<Exit> {
    let Some((whole, failures)) = crew.conclude(part) else { return Ok(Exit::Ok) };
    described.facts.processes *= crew.rank.ranks;
    described.facts.directory = described.facts.directory.replace(&format!("/rank{}", crew.rank.rank), "");
    let measured = whole.phases.iter().any(|phase| phase.total.files > 0);
    let mut result = whole.into_files(crew.rank.ranks, described);
    crew.enter(failures, &mut result.hosts, &mut result.ended);
    let status = crew::status(result.ended, result.hosts.as_deref(), measured);
    let said = if status == Exit::BadInput {
        crew::complain(result.hosts.iter().flat_map(|hosts| &hosts.failures));
        Ok(())
    } else {
        output::save_at_once(matches.get_one("save").map(PathBuf::as_path), &Document::Files(result.clone()));
        report(matches, result)
    };
    crew.farewell(status);
    said.map(|()| status)
}

/// Prints the result, and writes it to the files of the options.
fn report(matches: &ArgMatches, result: FilesResult) -> anyhow::Result<()> {
    let clean_up = result.clean_up.as_ref().filter(|failure| Some(*failure) != result.error.as_ref());
    for error in result.error.iter().chain(clean_up) {
        let _ = writeln!(std::io::stderr(), "plimsoll: {}", error.message); // the status tells it too
    }
    let for_smallfile =
        matches.get_one::<PathBuf>("smallfile-json").map(|path| match report::smallfile::render(&result) {
            Some(text) => output::write_result(path, &text),
            None => bail!("--smallfile-json: the run measured nothing, so it writes no {}", path.display()),
        });
    let delivered = output::deliver(matches, None, Document::Files(result), |document, style| match document {
        Document::Files(result) => report::text::files(result, style),
        _ => String::new(),
    });
    output::all([delivered, for_smallfile.unwrap_or(Ok(()))])
}

fn doing(now: &Moment) -> String {
    if now.phase.is_empty() {
        return "making directories".into();
    }
    let (over, all) = now.phases;
    format!(
        "{} ({}/{all}), {} threads  {} files/s {}",
        now.phase,
        over + 1,
        now.busy,
        figures::count(now.work.files_per_second(now.elapsed_ns)),
        figures::bytes_per_second(now.work.bytes_per_second(now.elapsed_ns)),
    )
}

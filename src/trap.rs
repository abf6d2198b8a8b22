//! `plimsoll trap`: starts a program under the interposer.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use lanes::doctor::filters::{self, Filters};
use lanes::doctor::program::{self, Interception};
use lanes::{Policy, Pools, environment, pool};
use rustix::process::{Pid, Signal, WaitIdOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::boards;
use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::output;

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

/// Exit statuses of programs that start others (env(1), timeout(1)).
const CANNOT_BE_STARTED: i32 = 126;
const NOT_FOUND: i32 = 127;

fn command() -> Command {
    let path = |arg: Arg| arg.value_parser(value_parser!(PathBuf));
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let [pool, pool_file] = pool_arguments();
    Command::new("trap")
        .about("Run a program and spread its I/O over the lanes of a pool")
        .long_about(
            "Runs an unmodified program with libiotrap.so. When the program reads or writes files below one lane of a \
             pool, the library spreads the requests over all lanes, where that is provably safe. docs/trap.md lists \
             the requests that it spreads. `plimsoll lanes` tests the lanes, and `plimsoll top` shows them while the \
             program runs. The exit status is that of the program.",
        )
        .override_usage("plimsoll trap --pool NAME=PATH,PATH... [OPTION]... [--] PROGRAM [ARGUMENT]...")
        .arg(pool)
        .arg(pool_file)
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("POLICY")
                .value_parser(|text: &str| text.parse::<Policy>())
                .help("Rule that chooses the lane: least-loaded (by measured service rate) or round-robin [default: from the pool]"),
        )
        .arg(flag("async", "Let io_submit return at once where requests would block"))
        .arg(flag("raw", "See system calls that do not pass through libc, too (Linux 5.11 or later, x86-64)"))
        .arg(flag("dry-run", "Spread nothing, and print the share of the requests that would be spread; one lane is enough"))
        .arg(flag("stats", "When the program has ended, print the traffic of each lane on standard error"))
        .arg(path(Arg::new("stats-json").long("stats-json").value_name("FILE").help("Write the traffic of each lane as JSON")))
        .arg(path(
            Arg::new("trace")
                .long("trace")
                .value_name("FILE")
                .help("Write the program's I/O as a fio iolog, which `plimsoll run --read_iolog` and fio replay"),
        ))
        .arg(flag("verbose", "Print each call that the library takes over on standard error (IOTRAP_TRACE=1)"))
        .arg(path(
            Arg::new("library").long("library").value_name("FILE").help("Path of libiotrap.so [default: beside plimsoll]"),
        ))
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .required(true)
                .num_args(1..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .value_parser(value_parser!(OsString))
                .help("Program to run, with its arguments"),
        )
}

/// `--pool` and `--pool-file`, as `trap` and `lanes` take them.
pub fn pool_arguments() -> [Arg; 2] {
    [
        Arg::new("pool")
            .long("pool")
            .value_name("NAME=PATH,PATH")
            .action(ArgAction::Append)
            .help("Lanes of a volume; repeat the option for more volumes"),
        Arg::new("pool-file")
            .long("pool-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .conflicts_with("pool")
            .help("Pools from a TOML file: weights, policy, windows (docs/trap.md)"),
    ]
}

/// The pools of these arguments, or else those of the environment; None if there are none.
///
/// # Errors
/// The error in the arguments.
pub fn pools(matches: &ArgMatches) -> anyhow::Result<Option<Pools>> {
    if let Some(given) = matches.get_many::<String>("pool") {
        let pools = given.map(|text| Pools::one(text)).collect::<Result<_, _>>().context("--pool")?;
        return Ok(Some(Pools::new(pools).context("--pool")?));
    }
    let read = |path: &Path| std::fs::read_to_string(path);
    if let Some(file) = matches.get_one::<PathBuf>("pool-file") {
        let text = read(file).with_context(|| format!("cannot read the pool file {}", file.display()))?;
        return Ok(Some(Pools::from_toml(&text).with_context(|| file.display().to_string())?));
    }
    Ok(Pools::from_environment(|name| std::env::var(name).ok().filter(|value| !value.is_empty()), read)?)
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let mut pools = pools(matches)?.map(Pools::into_vec).unwrap_or_default();
    // `--async` works on files anywhere, and needs no pool.
    if pools.is_empty() && !matches.get_flag("async") {
        bail!("no pool: give the lanes of a volume as --pool NAME=/mnt/a,/mnt/b, or a --pool-file");
    }
    if matches.get_flag("raw") && !sys::process::calls_can_be_dispatched() {
        bail!("--raw: this kernel has no Syscall User Dispatch (Linux 5.11 or later, x86-64); run trap without --raw");
    }
    if let Some(&policy) = matches.get_one::<Policy>("policy") {
        pools.iter_mut().for_each(|pool| pool.policy = policy);
    }
    let pools = if pools.is_empty() { None } else { Some(Pools::new(pools)?) };
    let library = library(matches.get_one::<PathBuf>("library").map(PathBuf::as_path))?;
    let mut words = matches.get_many::<OsString>("program").into_iter().flatten();
    let name = words.next().context("no program")?;
    let filters = filters::of_this_process(&library);
    warn_of_what_will_not_work(name, pools.as_ref(), filters, matches.get_flag("dry-run"));

    let mut child = std::process::Command::new(name);
    child.args(words);
    sys::start::inherit(&mut child);
    child.env("LD_PRELOAD", preload(&library, std::env::var_os("LD_PRELOAD").as_deref()));
    if let Some(pools) = &pools {
        child.env(pool::TEXT_VARIABLE, pools.to_toml());
    }
    child.env(environment::FILTERS_VARIABLE, filters.harmless().to_string());
    let flags = [
        ("async", environment::ASYNC_VARIABLE),
        ("raw", environment::RAW_VARIABLE),
        ("verbose", environment::TRACE_VARIABLE),
        ("dry-run", environment::DRY_RUN_VARIABLE),
    ];
    for (flag, variable) in flags {
        if matches.get_flag(flag) {
            child.env(variable, "1");
        }
    }
    if let Some(file) = matches.get_one::<PathBuf>("trace") {
        child.env(environment::IOLOG_VARIABLE, trace_file(file)?);
    }
    let json = matches.get_one::<PathBuf>("stats-json");
    json.filter(|path| *path != Path::new("-")).map_or(Ok(()), |path| output::try_to_write(path))?;
    let summarised = matches.get_flag("stats") || matches.get_flag("dry-run");
    if !summarised && json.is_none() {
        not_started(name, &child.exec());
    }
    let keep =
        live::directories::Keep::new().context("no directory to keep counters in (PLIMSOLL_RUNTIME_DIR sets one)")?;
    child.env(live::directories::KEEP_VARIABLE, keep.path());
    // From before there is a program: a signal that comes while it starts is the program's, too.
    let signals =
        Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2]).context("cannot handle signals")?;
    let program = child.spawn().unwrap_or_else(|error| {
        drop(std::fs::remove_dir_all(keep.path()));
        not_started(name, &error)
    });
    let status = wait_for(program, signals)?;
    let snapshots = live::kept_in(keep.path());
    drop(keep);
    if summarised {
        let _ = write!(std::io::stderr(), "{}", boards::summary(&snapshots, matches.get_flag("dry-run")));
    }
    if let Some(path) = json {
        let text = format!("{:#}\n", boards::json(&snapshots));
        if path == Path::new("-") { output::print(&text)? } else { output::write_result(path, &text)? }
    }
    end_as(status)
}

/// One line for each thing that keeps I/O from being spread; the program runs anyway.
fn warn_of_what_will_not_work(name: &OsStr, pools: Option<&Pools>, filters: Filters, dry_run: bool) {
    let mut warnings = Vec::new();
    warnings.extend(filters.why_not().map(|why| format!("trap spreads nothing: {why}")));
    let path = std::env::var("PATH").unwrap_or_default();
    if let Some(found) = program::find(Path::new(name), &path) {
        let examined = program::examine(&found);
        if !examined.works() && examined != Interception::Unreadable {
            warnings.push(format!("trap spreads nothing: {} {examined}", found.display()));
        }
    }
    for pool in pools.into_iter().flat_map(Pools::all) {
        for (lane, there) in pool.lanes.iter().zip(are_directories(pool)) {
            let what = match there {
                Some(true) => continue,
                Some(false) => "is not a directory: trap leaves it out",
                None => "does not answer: trap leaves it out until it does",
            };
            warnings.push(format!("pool {}: {} {what}", pool.name, lane.path.display()));
        }
        if pool.lanes.len() < 2 && !dry_run {
            warnings.push(format!("pool {} has one lane: trap counts the requests, and spreads none", pool.name));
        }
    }
    output::warn(&warnings);
}

/// For each lane, true if it is a directory; None for a lane that gives no answer within `suspect-after`. Threads ask
/// the lanes; those without an answer are left behind.
fn are_directories(pool: &lanes::Pool) -> Vec<Option<bool>> {
    let asked: Vec<mpsc::Receiver<bool>> = (pool.lanes.iter())
        .map(|lane| {
            let (answer, asked) = mpsc::channel();
            let path = lane.path.clone();
            std::thread::spawn(move || answer.send(path.is_dir()));
            asked
        })
        .collect();
    let until = Instant::now() + Duration::from_nanos(pool.patience.suspect_after_ns);
    let left = || until.saturating_duration_since(Instant::now());
    asked.iter().map(|answer| answer.recv_timeout(left()).ok()).collect()
}

/// The interposer: the one given, or what lies where building or installing puts it.
pub fn library(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    const NAME: &str = "libiotrap.so";
    let absolute = |path: &Path| std::fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()));
    if let Some(path) = given {
        return absolute(path);
    }
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let program = std::fs::canonicalize(&program).unwrap_or(program);
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = ["", "deps", "../lib/plimsoll", "../lib"].map(|place| beside.join(place).join(NAME));
    match places.iter().find(|place| place.is_file()) {
        Some(found) => absolute(found),
        None => bail!(
            "cannot find {NAME} beside {} or in ../lib: build it with `cargo build -p iotrap`, or name it with --library",
            program.display()
        ),
    }
}

/// The value of LD_PRELOAD: the library first, then the earlier entries, each once.
fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    let before = before.and_then(OsStr::to_str).unwrap_or_default();
    for other in before.split([':', ' ']).filter(|other| !other.is_empty() && Path::new(other) != library) {
        list.push(":");
        list.push(other);
    }
    list
}

/// The absolute path of the trace file, so that the program finds it from any directory. The file is made empty, so
/// that it holds this run only.
fn trace_file(file: &Path) -> anyhow::Result<PathBuf> {
    std::fs::write(file, "").with_context(|| format!("cannot write the trace {}", file.display()))?;
    std::fs::canonicalize(file).with_context(|| format!("cannot find the trace {}", file.display()))
}

/// Ends as a program does that cannot start another one.
fn not_started(name: &OsStr, error: &std::io::Error) -> ! {
    let _ = writeln!(std::io::stderr(), "plimsoll: cannot start {}: {error}", name.display());
    std::process::exit(if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_BE_STARTED })
}

/// Waits for the program; signals that are sent to this process are passed on to the program.
fn wait_for(mut child: Child, mut signals: Signals) -> anyhow::Result<ExitStatus> {
    let pid = Pid::from_raw(child.id().cast_signed()).context("a child without an id")?;
    // True while the id means the child: until the child has been reaped.
    let there = Arc::new(Mutex::new(true));
    let still = Arc::clone(&there);
    let pass_on = move || {
        for signal in signals.forever() {
            // The terminal itself sends the program the signals of its keys.
            let typed = [SIGINT, SIGQUIT].contains(&signal) && is_in_the_foreground();
            let there = still.lock().unwrap_or_else(PoisonError::into_inner);
            if let (true, false, Some(signal)) = (*there, typed, Signal::from_named_raw(signal)) {
                let _ = rustix::process::kill_process(pid, signal); // it may have ended
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(pass_on).context("cannot start a thread for signals")?;
    let ended =
        || rustix::process::waitid(rustix::process::WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    while matches!(ended(), Err(rustix::io::Errno::INTR)) {}
    *there.lock().unwrap_or_else(PoisonError::into_inner) = false;
    child.wait().context("cannot wait for the program")
}

fn is_in_the_foreground() -> bool {
    std::fs::File::open("/dev/tty").is_ok_and(|terminal| {
        rustix::termios::tcgetpgrp(&terminal).is_ok_and(|group| group == rustix::process::getpgrp())
    })
}

/// Ends as the program has ended: with its status, or by its signal.
fn end_as(status: ExitStatus) -> anyhow::Result<Exit> {
    if let Some(signal) = status.signal() {
        // The program has left a core file if there is to be one.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        signal_hook::low_level::emulate_default_handler(signal).context("cannot end by the program's signal")?;
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(CANNOT_BE_STARTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_to_be_loaded_still_is_and_nothing_twice() {
        let library = Path::new("/lib/libiotrap.so");
        let list = |before: Option<&str>| preload(library, before.map(OsStr::new)).into_string().unwrap();
        assert_eq!(list(None), "/lib/libiotrap.so");
        assert_eq!(list(Some("")), "/lib/libiotrap.so");
        assert_eq!(list(Some("/a.so /b.so:/c.so")), "/lib/libiotrap.so:/a.so:/b.so:/c.so");
        assert_eq!(list(Some("/lib/libiotrap.so:/a.so")), "/lib/libiotrap.so:/a.so");
    }
}

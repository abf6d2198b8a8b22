//! `plimsoll watch`: where the storage of this host stands, with no load of our own.

mod against;
mod json;
mod prometheus;
mod table;
mod traced;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use nvme_rpc::http::Http;
use observe::passive::Overload;
use observe::{Host, Observation, Wanted, Watcher};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::output;
use crate::screen::Screen;
use crate::values;
use against::Against;
use traced::{Latest, TracedDisks};

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("watch")
        .about("Watch the storage of this host at work, with no load of our own")
        .long_about(
            "Shows every second what the kernel counts of disks, NFS mounts, control groups and processes: requests in \
             flight, IOPS, bytes, latencies. From the traffic that is there anyway watch estimates bounds of the load \
             line of each disk and mount, or says why the traffic cannot tell. It only reads. docs/watch.md explains \
             the figures.",
        )
        .arg(Arg::new("targets").value_name("DEVICE|MOUNT|CGROUP|PID").num_args(0..).help(
            "Targets: /dev/sda, a directory of a mount, a directory with io.stat, the number of a process \
             [default: all disks that ever did anything, and all NFS mounts]",
        ))
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("TIME")
                .default_value("1s")
                .value_parser(values::duration)
                .help("Length of the interval over which watch counts rates"),
        )
        .arg(flag("once", "Watch one interval, print it, and end"))
        .arg(
            Arg::new("for")
                .long("for")
                .value_name("TIME")
                .value_parser(values::duration)
                .conflicts_with("once")
                .help("End after this time"),
        )
        .arg(flag("all", "Include disks that never did anything"))
        .arg(flag("json", "Print JSON, one object for each interval"))
        .arg(Arg::new("prometheus").long("prometheus").value_name("[ADDRESS:]PORT").conflicts_with("json").help(
            "Serve the counters for Prometheus at http://ADDRESS:PORT/metrics [default ADDRESS: 127.0.0.1], and print \
             no table; - prints them once on standard output",
        ))
        .arg(
            Arg::new("against")
                .long("against")
                .value_name("SWEEP.json")
                .value_parser(value_parser!(PathBuf))
                .help("Compare with the load line of a sweep's result on the same device"),
        )
        .arg(flag(
            "trace",
            "Show percentiles of disks' latencies too, from the kernel's tracepoints (root); up to 20,000 requests a \
             second are traced",
        ))
        .arg(
            Arg::new("sysroot")
                .long("sysroot")
                .value_name("DIRECTORY")
                .default_value("/")
                .value_parser(value_parser!(PathBuf))
                .help("Read proc/ and sys/ below this directory: the files of a container's host, or a recorded tree"),
        )
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    let root: &PathBuf = matches.get_one("sysroot").expect("has a default");
    let prometheus = matches.get_one::<String>("prometheus").map(String::as_str);
    let traces = matches.get_flag("trace");
    ensure!(
        !traces || root == Path::new("/"),
        "--trace: the tracepoints are those of this kernel: leave --sysroot out"
    );
    ensure!(!traces || prometheus != Some("-"), "--trace: a single look at counters has no time to trace: give a port");
    let diskstats = root.join("proc/diskstats");
    let disks = std::fs::read_to_string(&diskstats)
        .with_context(|| format!("cannot read {} (is proc mounted there?)", diskstats.display()))?;
    let host = Host::at(root);
    let names: Vec<&String> = matches.get_many("targets").into_iter().flatten().collect();
    let block = root.join("sys/block");
    ensure!(
        !names.is_empty() || disks.trim().is_empty() || block.is_dir(),
        "cannot read {}, which tells disks from partitions (is sysfs mounted there?): mount it, or name the targets",
        block.display()
    );
    let wanted = match names.is_empty() {
        true => Wanted::All,
        false => Wanted::These(names.iter().map(|name| host.resolve(name)).collect::<Result<_, _>>()?),
    };
    let against = matches.get_one::<PathBuf>("against").map(|path| Against::read(path, &host, &wanted)).transpose()?;
    let interval = *matches.get_one::<Duration>("interval").expect("has a default");
    let traced = if traces { Some(TracedDisks::start(&host, &wanted)?) } else { None };
    let view = View {
        traced,
        state: Mutex::new(Watcher::new(host, wanted)),
        clock: Clock::new(),
        against,
        idle: matches.get_flag("all"),
    };
    let end = match (matches.get_flag("once"), matches.get_one::<Duration>("for")) {
        (true, _) => Some(interval),
        (false, end) => end.copied(),
    };
    match prometheus {
        Some("-") => {
            view.look();
            output::print(&prometheus::text(&view.now()))?;
            Ok(Exit::Ok)
        }
        Some(address) => serve(Arc::new(view), address, interval, end),
        None if matches.get_flag("json") => {
            show(&view, interval, end, &Screen::plain(), |now| output::print(&format!("{}\n", json::line(now))))
        }
        None => {
            let screen = if matches.get_flag("once") { Screen::plain() } else { Screen::new()? };
            show(&view, interval, end, &screen, |now| screen.show(&table::draw(now, screen.style())))
        }
    }
}

/// Tells of each interval until the end, or until the user ends it on the screen.
fn show(
    view: &View,
    interval: Duration,
    end: Option<Duration>,
    screen: &Screen,
    tell: impl Fn(&Now) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    view.look();
    let mut looks = 0;
    loop {
        // Looks do not drift: each is due a whole number of intervals after the first.
        looks += 1;
        let due = interval.saturating_mul(looks);
        if screen.wait(due.saturating_sub(begin.elapsed())) {
            return Ok(Exit::Ok);
        }
        view.look();
        tell(&view.now())?;
        if end.is_some_and(|end| due >= end) {
            return Ok(Exit::Ok);
        }
    }
}

/// Looks every interval, so that the record grows, and answers scrapes with the counters of that moment.
fn serve(view: Arc<View>, address: &str, interval: Duration, end: Option<Duration>) -> anyhow::Result<Exit> {
    let address = values::metrics_address("--prometheus", address)?;
    ensure!(!interval.is_zero(), "--interval is too short");
    view.look();
    let page = {
        let view = Arc::clone(&view);
        move || prometheus::text(&view.now()) + &view.traced.as_ref().map_or(String::new(), TracedDisks::prometheus)
    };
    let http = Http::start(address, Box::new(page)).with_context(|| format!("--prometheus {address}"))?;
    output::print(&format!("Metrics: http://{}/metrics\n", http.address()))?;
    let screen = Screen::plain();
    show(&view, interval, end, &screen, |_| Ok(()))
}

/// Monotonic nanoseconds since the start, and the wall clock beside them.
struct Clock {
    start: Instant,
    unix_start: Duration,
}

impl Clock {
    fn new() -> Clock {
        Clock { start: Instant::now(), unix_start: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since the Unix epoch at a moment of [`Clock::now_ns`].
    fn unix_ms(&self, at_ns: u64) -> u64 {
        u64::try_from(self.unix_start.as_millis()).unwrap_or(0) + at_ns / 1_000_000
    }
}

/// The watcher with all that the views need.
struct View {
    state: Mutex<Watcher>,
    traced: Option<TracedDisks>,
    clock: Clock,
    against: Option<Against>,
    idle: bool,
}

/// A target as the views show it.
struct Row {
    seen: Observation,
    /// Latencies of single requests; None where they are not traced.
    traced: Option<Latest>,
    /// The load line that overload is told by, and its origin; None if none is known.
    line: Option<f64>,
    /// With the beginning on the wall clock, in milliseconds since the Unix epoch.
    overload: Option<(Overload, u64)>,
}

/// All targets at a moment.
struct Now<'a> {
    unix_ms: u64,
    rows: Vec<Row>,
    missing: Vec<String>,
    against: Option<&'a Against>,
}

impl View {
    fn watcher(&self) -> MutexGuard<'_, Watcher> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        self.watcher().look(self.clock.now_ns());
        if let Some(traced) = &self.traced {
            traced.look();
        }
    }

    fn now(&self) -> Now<'_> {
        let watcher = self.watcher();
        let now_ns = self.clock.now_ns();
        let row = |seen: Observation| {
            let swept = self.against.as_ref().filter(|against| against.is_of(&seen.target)).map(|against| against.line);
            let bounds = seen.judgement.as_ref().and_then(|judgement| judgement.line.as_ref().ok());
            let line = swept.or(bounds.map(|bounds| bounds.high));
            let overload = line.and_then(|line| watcher.overload(&seen.target, line, now_ns));
            let traced = self.traced.as_ref().and_then(|traced| traced.latest(&seen.target));
            Row { traced, line, overload: overload.map(|found| (found, self.clock.unix_ms(found.since_ns))), seen }
        };
        Now {
            unix_ms: self.clock.unix_ms(now_ns),
            rows: watcher.observations(self.idle).into_iter().map(row).collect(),
            missing: watcher.missing().iter().map(|target| format!("{} {}", target.kind.name(), target.name)).collect(),
            against: self.against.as_ref(),
        }
    }
}

/// A span of a record in words, for the end of a sentence: `in 40 s`, `in 12 minutes`, `in this hour`.
fn span(record_ns: u64) -> String {
    match record_ns / 1_000_000_000 {
        seconds @ 0..120 => format!("in {seconds} s"),
        seconds @ 120..3500 => format!("in {} minutes", seconds / 60),
        3500..3700 => "in this hour".into(),
        seconds => format!("in {:.1} hours", seconds as f64 / 3600.0),
    }
}

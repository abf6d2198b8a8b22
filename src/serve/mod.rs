//! `plimsoll serve`: an NVMe target over TCP and RDMA with pacing, controlled as SPDK's.

mod log;
mod one_line;
mod pacing;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use measure::figures;
use measure::units;
use nvme_rpc::http::Http;
use nvme_rpc::{Control, DEFAULT_PATH, Ending, Server, Settings, StateDirectory};
use nvme_target::journal::{Entry, Level};
use nvme_target::{Limits, Options, Portal, SubsystemInfo, TransportType};
use serde_json::{Value, json};

use crate::command_line::{Arguments, Subcommand};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::{output, service, values};
use log::{Format, Log};

/// The row of this subcommand in the table of `main.rs`.
pub const SUBCOMMAND: Subcommand = Subcommand { command, arguments: Arguments::Own, run };

/// The port of NVMe over Fabrics, over TCP and over RDMA.
const PORT: u16 = 4420;
/// The subsystem of a target given in one line: the one of SPDK's examples, so that their scripts find it.
const NQN: &str = "nqn.2016-06.io.spdk:cnode1";
/// Block size of null and memory devices given in one line.
const BLOCK_BYTES: u64 = 4096;
/// The time between two looks for signals and warnings.
const TICK: Duration = Duration::from_millis(100);
/// Exit status after `spdk_kill_instance SIGKILL`: that of a program which the signal has ended.
const KILLED: i32 = 128 + 9;

fn command() -> Command {
    let sizes = "8g, 512m, ...";
    let many = |name: &'static str, value: &'static str, help: String| {
        Arg::new(name).long(name).value_name(value).action(ArgAction::Append).conflicts_with("config").help(help)
    };
    let one = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("serve")
        .about("Serve devices over NVMe/TCP and NVMe/RDMA, with pacing")
        .long_about(
            "Runs an NVMe target in user space for any initiator of NVMe over TCP or RDMA (Linux, SPDK, `plimsoll run \
             --ioengine=nvme_tcp`). Options, a configuration file of SPDK, or calls to the control socket (`plimsoll \
             rpc`, SPDK's scripts) configure the target. docs/serve.md is the manual.",
        )
        .after_help(crate::man::examples("serve"))
        .arg(
            Arg::new("config")
                .short('c')
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Configuration file in SPDK's JSON; SIGHUP has the target read it again and change what differs"),
        )
        .arg(
            one("convert", "OLD.conf").value_parser(value_parser!(PathBuf)).exclusive(true).help(
                "Print the configuration of a file in SPDK's old form ([Nvmf], [Subsystem1], ...) in JSON, and serve nothing",
            ),
        )
        .arg(
            one("state", "DIR").value_parser(value_parser!(PathBuf)).conflicts_with("wait-for-rpc").help(
                "Keep the configuration and reservations in this directory, and begin with what it has",
            ),
        )
        .arg(many(
            "null",
            "SIZE",
            format!("Serve a namespace of this size that reads as zeros and forgets writes: {sizes}"),
        ))
        .arg(many("mem", "SIZE", format!("Serve a namespace of this size in memory: {sizes}")))
        .arg(many("file", "PATH", "Serve a regular file or a block device as a namespace".into()))
        .arg(one("create", "SIZE").requires("file").help("Create files that do not exist with this size"))
        .arg(
            one("block-size", "BYTES")
                .conflicts_with("config")
                .help("Bytes of a block [default: 4096 for --null and --mem; for --file 512, or as many as the device or direct I/O needs]"),
        )
        .arg(many(
            "listen",
            "ADDRESS[:PORT]",
            format!("Address to listen on over TCP; repeat the option for more [default: 127.0.0.1:{PORT}, without --rdma]"),
        ))
        .arg(many(
            "rdma",
            "ADDRESS[:PORT]",
            format!("Address of an RDMA device to listen on over RDMA, port {PORT} unless given; with --listen, over both"),
        ))
        .arg(one("nqn", "NQN").conflicts_with("config").help(format!("Name of the subsystem [default: {NQN}]")))
        .arg(one("cntlid-range", "FIRST-LAST").conflicts_with("config").help(
            "Identifiers of controllers to give: hosts that use one NQN of several targets need different ones of each \
             [default: all, beginning at a random one]",
        ))
        .arg(
            flag("ana", "Report the ANA states of listeners to hosts; nvmf_subsystem_listener_set_ana_state sets them")
                .conflicts_with("config"),
        )
        .arg(
            flag("shared", "Serve files in turn with other targets: paths to a file are open in the one with its lock")
                .requires("ana")
                .requires("file"),
        )
        .arg(many("allow-host", "NQN", "Let this host connect; hosts that no --allow-host names are refused".into()))
        .arg(many("ns-manager", "NQN", "Let this host attach namespaces to hosts and detach them".into()))
        .arg(
            one("dhchap-key", "FILE")
                .requires("allow-host")
                .help("Key that the hosts of --allow-host must prove to know (nvme gen-dhchap-key makes one)"),
        )
        .arg(
            one("dhchap-ctrlr-key", "FILE")
                .requires("dhchap-key")
                .help("Key that this target proves to know when a host asks for a proof"),
        )
        .arg(
            one("tls-key", "FILE")
                .requires("allow-host")
                .help("Demand TLS 1.3: key that the hosts of --allow-host prove (nvme gen-tls-key makes one)"),
        )
        .arg(
            flag("allow-any-host", "Let every host connect [default if only this machine can reach the target]")
                .conflicts_with_all(["config", "allow-host"]),
        )
        .arg(
            one("reactors", "N")
                .value_parser(value_parser!(u16).range(1..=256))
                .conflicts_with("cores")
                .help("Number of serving threads, each with a pacer [default: 1]"),
        )
        .arg(one("cores", "LIST").help("Run one reactor on each of these processors: 0-3,8"))
        .arg(one("pacing", "METHOD").help(format!("Method of pacing, one of {} [default: auto]", pace::SYNTAX)))
        .arg(one("memory", "SIZE").help("Most bytes of data in flight [default: pacing decides]"))
        .arg(one("poll", "WHEN").value_parser(["always", "adaptive", "never"]).help(
            "When reactors look for commands again and again instead of sleeping: always (a whole processor \
                     each), while it costs less than a sleep, or never [default: adaptive]",
        ))
        .arg(
            one("balance", "on|off")
                .value_parser(["on", "off"])
                .help("Connections move from a busy reactor to one that has time (on), or stay where they are (off) [default: on]"),
        )
        .arg(
            one("rpc-socket", "PATH")
                .help(format!("Path of the control socket; none: no socket [default: {DEFAULT_PATH}, as SPDK]")),
        )
        .arg(
            one("metrics", "[ADDRESS:]PORT")
                .help("Serve metrics for Prometheus at http://ADDRESS:PORT/metrics [default ADDRESS: 127.0.0.1]"),
        )
        .arg(
            one("log-level", "LEVEL").value_parser(Level::NAMES.map(clap::builder::PossibleValue::new)).ignore_case(true).help(
                "Least grave level of the log on standard error; log_set_level changes it [default: NOTICE]",
            ),
        )
        .arg(
            one("log-format", "text|json")
                .value_parser(["text", "json"])
                .help("Lines of the log for people, or JSON objects, one a line [default: text]"),
        )
        .arg(flag("wait-for-rpc", "Wait for the call framework_start_init before configuring").conflicts_with("config"))
        .arg(flag("allow-mounted-write", "Serve devices and files even if this system uses them"))
        .arg(
            one("connections", "N")
                .value_parser(value_parser!(u32).range(1..))
                .help("Most TCP connections [default: 16384]"),
        )
        .arg(
            one("connections-per-host", "N")
                .value_parser(value_parser!(u32).range(1..))
                .help("Most TCP connections of one host [default: 16384]"),
        )
        .arg(
            one("queues", "N")
                .value_parser(value_parser!(u16).range(1..=64))
                .help("Most I/O queues of a controller [default: 64]"),
        )
        .arg(
            one("memory-per-host", "SIZE")
                .help("Most bytes of data in flight of one host on each reactor [default: pacing decides]"),
        )
        .arg(
            one("send-buffer", "SIZE|system").help(
                "Size of the kernel's send buffer of each connection; system: the kernel decides [default: 256k]",
            ),
        )
        .arg(
            one("drain", "TIME")
                .value_parser(values::duration)
                .help("Time that I/O in progress has when the target ends [default: 10s]"),
        )
}

/// Prints a configuration in the old form in the new one, and on standard error what it leaves out.
fn convert(path: &Path) -> anyhow::Result<Exit> {
    let converted = nvme_rpc::ini::convert(&read(path)?).map_err(anyhow::Error::msg);
    let converted = converted.with_context(|| path.display().to_string())?;
    let remarks: Vec<String> = converted.remarks.iter().map(|remark| format!("{}: {remark}", path.display())).collect();
    output::warn(&remarks);
    output::print(&format!("{:#}\n", converted.configuration))?;
    Ok(Exit::Ok)
}

fn run(matches: &ArgMatches, _job: Vec<OsString>) -> anyhow::Result<Exit> {
    if let Some(old) = matches.get_one::<PathBuf>("convert") {
        return convert(old);
    }
    let settings = settings(matches)?;
    let calls = one_line::calls(matches)?;
    let configuration = matches.get_one::<PathBuf>("config").map(|path| read(path)).transpose()?;
    let socket = matches.get_one::<String>("rpc-socket").map_or(DEFAULT_PATH, String::as_str);
    let directory = state_directory(matches, &calls, configuration.as_deref())?;
    let has_saved = directory.as_ref().is_some_and(|directory| directory.steps().is_some());
    if calls.is_empty() && configuration.is_none() && socket == "none" && !has_saved {
        bail!("nothing to serve: give --null SIZE, --mem SIZE, --file PATH or -c FILE (plimsoll serve --help)");
    }
    let metrics =
        matches.get_one::<String>("metrics").map(|text| values::metrics_address("--metrics", text)).transpose()?;
    let path = matches.get_one::<PathBuf>("config");
    let interrupt = if path.is_some() { Interrupt::listen_with_reload() } else { Interrupt::listen() }?;
    let on_end = {
        let interrupt = interrupt.clone();
        move |ending| match ending {
            Ending::Drain => interrupt.stop.store(true, Ordering::Relaxed),
            Ending::Now => {
                for path in interrupt.doomed.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    let _ = std::fs::remove_file(path); // it may be gone already
                }
                std::process::exit(KILLED)
            }
        }
    };
    let control = Control::start(settings, Box::new(on_end))?;
    let log = start_log(matches, &control)?;
    let configure = || configure(&control, &calls, configuration.as_deref(), path);
    let configured = match directory {
        None => configure(),
        Some(directory) => {
            control.keep(directory, || configure().map_err(|error| format!("{error:#}"))).map_err(anyhow::Error::msg)
        }
    };
    if let Some(path) = path {
        control.set_configuration_file(std::path::absolute(path).context("cannot tell this directory")?);
    }
    control.tell();
    if let Err(error) = configured {
        control.target().shutdown(Duration::from_secs(1));
        return Err(error);
    }
    let server = control_socket(&control, socket, matches.contains_id("rpc-socket"))?;
    if let Some(server) = &server {
        interrupt.doomed.lock().unwrap_or_else(PoisonError::into_inner).push(server.path().to_path_buf());
    }
    let http = metrics.map(|address| serve_metrics(&control, address)).transpose()?;
    output::print(&ready(&control, server.as_ref(), http.as_ref()))?;
    let version = env!("CARGO_PKG_VERSION");
    log.say(Level::Notice, "start", format!("plimsoll {version} serves, process {}", std::process::id()));

    let target = control.target();
    service::watch(move || target.wait_for_reactors()).context("cannot start a thread for the watchdog")?;
    service::notify("READY=1");
    while !interrupt.stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
        if interrupt.reload_wanted.swap(false, Ordering::Relaxed) {
            reload(&control, &log);
        }
        control.tell();
    }
    service::notify("STOPPING=1");
    let by = if interrupt.signalled.load(Ordering::Relaxed) { "a signal" } else { "spdk_kill_instance" };
    log.say(Level::Notice, "stop", format!("the target ends: {by} asks for it"));
    let pacing = pacing::sentences(&control.target().stats().reactors);
    let patience = matches.get_one::<Duration>("drain").copied().unwrap_or(Duration::from_secs(10));
    if !control.target().shutdown(patience) {
        let after = figures::nanoseconds(patience.as_nanos() as f64);
        let line = format!("I/O in progress did not end within {after} and was cut off (--drain)");
        log.say(Level::Warning, "warning", line);
    }
    control.tell();
    for sentence in pacing {
        log.say(Level::Notice, "pacing", sentence);
    }
    log.say(Level::Notice, "stop", "the target has ended");
    drop((server, http));
    Ok(Exit::Ok)
}

/// Has a thread read the configuration file again: it waits for devices, and signals are heard meanwhile.
fn reload(control: &Control, log: &Log) {
    let for_thread = control.clone();
    let reload = move || {
        // The call leaves a line in the log, also when it fails.
        let _ = for_thread.call_of_client("framework_reload_config", None);
    };
    if let Err(error) = std::thread::Builder::new().name("reload".into()).spawn(reload) {
        log.say(Level::Error, "reload", format!("cannot start a thread to read the configuration again: {error}"));
    }
}

fn start_log(matches: &ArgMatches, control: &Control) -> anyhow::Result<Log> {
    let target = control.target();
    if let Some(level) = matches.get_one::<String>("log-level").and_then(|name| Level::named(&name.to_uppercase())) {
        target.journal().set_level(level);
    }
    let is_json = matches.get_one::<String>("log-format").is_some_and(|format| format == "json");
    let format = if is_json { Format::Json } else { Format::Text };
    Log::start(target.journal(), format).context("cannot start a thread for the log")
}

/// The directory of `--state`. It keeps the calls of the first command line: other calls are an error, because the
/// target would not carry them out.
fn state_directory(
    matches: &ArgMatches,
    calls: &[(&str, Value)],
    configuration: Option<&str>,
) -> anyhow::Result<Option<StateDirectory>> {
    let Some(path) = matches.get_one::<PathBuf>("state") else { return Ok(None) };
    // From another directory, the same relative path is another disk.
    let mut calls = calls.to_vec();
    calls.iter_mut().for_each(|(_, params)| nvme_rpc::make_paths_absolute(params));
    let given = match (calls.as_slice(), configuration) {
        ([], None) => Value::Null,
        (calls, configuration) => json!({ "calls": calls, "configuration": configuration }),
    };
    StateDirectory::open(path, given).map(Some).map_err(anyhow::Error::msg)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn size(matches: &ArgMatches, name: &str) -> anyhow::Result<Option<u64>> {
    let text = matches.get_one::<String>(name);
    text.map(|text| bytes(name, text)).transpose()
}

fn bytes(name: &str, text: &str) -> anyhow::Result<u64> {
    match units::parse_bytes(text, 1024) {
        Ok(0) => bail!("--{name} {text}: give at least a block"),
        Ok(bytes) => Ok(bytes),
        Err(error) => bail!("--{name} {text}: {error} (expected 64m, 10g, ...)"),
    }
}

fn settings(matches: &ArgMatches) -> anyhow::Result<Settings> {
    let cpus = matches.get_one::<String>("cores").map(|list| cores(list)).transpose()?.unwrap_or_default();
    let reactors = match matches.get_one::<u16>("reactors") {
        Some(&reactors) => reactors.into(),
        None => cpus.len().max(1),
    };
    let asked = matches.get_one::<String>("pacing").map(|text| pace::Config::parse(text, 1024));
    let asked = asked.transpose()?;
    let mut pacing = asked.clone().unwrap_or_else(|| pace::Config::auto(None));
    if let Some(budget) = size(matches, "memory")? {
        pacing.budget_bytes = Some(budget);
        pacing.build(pace::Limits::default()).map_err(|error| anyhow::anyhow!("--memory: {error}"))?;
    }
    let default = Limits::default();
    let limits = Limits {
        connections: matches.get_one("connections").copied().unwrap_or(default.connections),
        connections_per_host: matches.get_one("connections-per-host").copied().unwrap_or(default.connections_per_host),
        queues: matches.get_one("queues").copied().unwrap_or(default.queues),
        bytes_per_host: size(matches, "memory-per-host")?,
        send_buffer: match matches.get_one::<String>("send-buffer").map(String::as_str) {
            None => default.send_buffer,
            Some("system") => None,
            Some(text) => Some(bytes("send-buffer", text)?),
        },
        ..default
    };
    let poll = matches.get_one::<String>("poll").map_or(Ok(pace::Poll::default()), |text| text.parse());
    let poll = poll.expect("clap has held the word against the list");
    let balances = matches.get_one::<String>("balance").is_none_or(|word| word == "on");
    let counts_latencies = matches.contains_id("metrics");
    let options = Options { reactors, cpus, poll, balances, pacing, limits, counts_latencies, ..Options::default() };
    Ok(Settings {
        options,
        pacing_is_fixed: asked.is_some(),
        allow_in_use: matches.get_flag("allow-mounted-write"),
        wait_for_init: matches.get_flag("wait-for-rpc"),
    })
}

/// `FIRST-LAST` as identifiers of controllers. NVM Express Base Specification 2.0 reserves those from FFF0h on; SPDK
/// begins at 1.
fn cntlids(range: &str) -> anyhow::Result<(u16, u16)> {
    let ends = range.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match ends {
        Some((first, last)) if (1..=last).contains(&first) && last <= 65_519 => Ok((first, last)),
        _ => bail!("--cntlid-range {range}: give two numbers from 1 to 65519, the lower one first: 1-999"),
    }
}

/// `0-3,8` as processors.
fn cores(list: &str) -> anyhow::Result<Vec<u32>> {
    let there = sys::process::affinity().context("cannot read the list of processors")?;
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|cpu| *cpu < 4096);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
            _ => bail!("--cores {list}: {part:?} is not a processor or a range (expected numbers as 0-3,8)"),
        }
    }
    match cpus.iter().find(|cpu| !there.contains(cpu)) {
        Some(missing) => bail!("--cores {list}: this program may not run on processor {missing}; it may on {there:?}"),
        None => Ok(cpus),
    }
}

fn configure(
    control: &Control,
    calls: &[(&str, Value)],
    configuration: Option<&str>,
    path: Option<&PathBuf>,
) -> anyhow::Result<()> {
    for (method, params) in calls {
        control.call(method, Some(params))?;
    }
    if let (Some(text), Some(path)) = (configuration, path) {
        control.load(text).map_err(anyhow::Error::msg).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The control socket; none if the default one is taken, with a warning: what was asked for in one line is served.
fn control_socket(control: &Control, path: &str, explicit: bool) -> anyhow::Result<Option<Server>> {
    if path == "none" {
        return Ok(None);
    }
    let call = {
        let control = control.clone();
        Box::new(move |method: &str, params: Option<&Value>| control.call_of_client(method, params))
    };
    match Server::start(Path::new(path), call) {
        Ok(server) => Ok(Some(server)),
        Err(error) if explicit => Err(error).with_context(|| format!("--rpc-socket {path}")),
        Err(error) => {
            let line = format!("no control socket at {path}: {error}; --rpc-socket PATH takes another place");
            control.target().journal().add(Level::Warning, || Entry::new("warning", line));
            Ok(None)
        }
    }
}

fn serve_metrics(control: &Control, address: SocketAddr) -> anyhow::Result<Http> {
    let control = control.clone();
    let page = move || {
        let target = control.target();
        nvme_rpc::metrics(&target.stats(), &target.subsystems())
    };
    Http::start(address, Box::new(page)).with_context(|| format!("--metrics {address}"))
}

/// The target as it is now, and the commands to use it.
fn ready(control: &Control, server: Option<&Server>, http: Option<&Http>) -> String {
    let target = control.target();
    let devices = target.devices();
    let described = control.call("nvmf_get_subsystems", None).unwrap_or_default();
    let mut lines = vec![format!("plimsoll serve: ready, process {}", std::process::id())];
    for subsystem in target.subsystems() {
        let on: Vec<String> = subsystem.listeners.iter().map(Portal::to_string).collect();
        let on = if on.is_empty() { "no address yet".to_string() } else { on.join(", ") };
        lines.push(format!("{} on {on}, for {}", subsystem.spec.nqn, who(&subsystem)));
        for namespace in &subsystem.namespaces {
            if let Some(device) = devices.iter().find(|device| device.spec.name == namespace.device) {
                let size = figures::bytes(device.blocks as f64 * f64::from(device.block_bytes));
                let (nsid, name, kind) = (namespace.nsid, &namespace.device, device.spec.kind.name());
                lines.push(format!("  {nsid:>3}  {name:<12} {size:>10}, blocks of {}, {kind}", device.block_bytes));
            }
        }
        let proof = Proof::of(&subsystem, &described);
        for transport in [TransportType::Tcp, TransportType::Rdma] {
            if let Some(listener) = subsystem.listeners.iter().find(|portal| portal.transport == transport) {
                lines.extend(how_to_connect(&subsystem, &proof, *listener));
            }
        }
    }
    if let Some(server) = server {
        let path = server.path().display().to_string();
        let place = if path == DEFAULT_PATH { String::new() } else { format!(" --socket {path}") };
        lines.push(format!("Control: plimsoll rpc{place} nvmf_get_stats"));
    }
    if let Some(http) = http {
        lines.push(format!("Metrics: http://{}/metrics", http.address()));
    }
    lines.join("\n") + "\n"
}

fn who(subsystem: &SubsystemInfo) -> String {
    match (subsystem.spec.allow_any_host, subsystem.hosts.as_slice()) {
        (true, _) => "any host".into(),
        (false, []) => "no host yet".into(),
        (false, hosts) => hosts.join(", "),
    }
}

/// The options by which a host says who it is, and proves it: those of `nvme connect`, and those of the engine.
#[derive(Default)]
struct Proof {
    linux: String,
    here: String,
}

impl Proof {
    /// The proof of the first host that the subsystem lists. `described`: the result of `nvmf_get_subsystems`.
    fn of(subsystem: &SubsystemInfo, described: &Value) -> Proof {
        if subsystem.spec.allow_any_host {
            return Proof::default();
        }
        let host = subsystem.hosts.first().map_or("NQN", String::as_str);
        let named = |list: &Value, nqn: &str| list.as_array()?.iter().find(|one| one["nqn"] == nqn).cloned();
        let listed = named(described, &subsystem.spec.nqn).and_then(|subsystem| named(&subsystem["hosts"], host));
        let has = |key: &str| listed.as_ref().is_some_and(|host| host[key].is_string());
        let mut proof = Proof { linux: format!(" -q {host}"), here: format!(" --hostnqn={host}") };
        if has("dhchap_key") {
            proof.linux += " --dhchap-secret=KEY";
            proof.here += " --dhchap_key=FILE";
        }
        proof
    }
}

fn how_to_connect(subsystem: &SubsystemInfo, proof: &Proof, listener: Portal) -> Vec<String> {
    let Portal { transport, address } = listener;
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip.to_string(),
        _ => "ADDRESS".into(), // all of them: which one the host sees is not known here
    };
    let (port, nqn) = (address.port(), &subsystem.spec.nqn);
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let nsid = subsystem.namespaces.first().map_or(1, |namespace| namespace.nsid);
    let tls = if subsystem.secured.contains(&listener) { [" --tls", " --tls_key=FILE"] } else { ["", ""] };
    let Proof { linux, here } = proof;
    if transport == TransportType::Rdma {
        return vec![format!("Linux:   nvme connect -t rdma -a {ip} -s {port} -n {nqn}{linux}")];
    }
    vec![
        format!("Linux:   nvme connect -t tcp -a {ip} -s {port} -n {nqn}{linux}{}", tls[0]),
        format!(
            "Here:    plimsoll run --name=try --ioengine=nvme_tcp --rw=randread --bs=4k --iodepth=32 --time_based \
             --runtime=10 --filename='trtype=tcp adrfam={family} traddr={ip} trsvcid={port} subnqn={nqn} ns={nsid}'{here}{}",
            tls[1]
        ),
    ]
}

//! Pacing in practice: a fast namespace beside one whose drive takes 10 ms, over the memory that the target may use.
//!
//! `bench/fast_and_slow` builds and runs this example. It starts `plimsoll serve` for each setting, loads both
//! namespaces at depth 128 with `plimsoll run`, prints a table and writes docs/fast_and_slow.svg.
//! docs/pacing-in-practice.md explains the table and the picture.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use report::svg::{Axis, Chart, STYLE, Series};
use serde_json::{Value, json};

const NQN: &str = "nqn.2016-06.io.spdk:cnode1";
const MIB: f64 = 1_048_576.0;
/// Memory budgets in MiB: 24 to 384 buffers of 128 KiB.
const BUDGETS: [u32; 5] = [3, 6, 12, 24, 48];

/// The figures of one load.
struct Figures {
    fast_mib_per_s: f64,
    slow_mib_per_s: f64,
    fast_p99_ms: f64,
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let program = PathBuf::from(arguments.next().context("usage: fast_and_slow PLIMSOLL CHART.svg [SECONDS]")?);
    let chart = PathBuf::from(arguments.next().context("usage: fast_and_slow PLIMSOLL CHART.svg [SECONDS]")?);
    let seconds: u32 = arguments.next().map_or(Ok(4), |text| text.parse()).context("SECONDS is a whole number")?;
    let measure = |pacing: Value, jobs: &[u32]| measure(&program, &pacing, jobs, seconds);

    println!("| pacing | memory | fast, MiB/s | slow, MiB/s | both, of the fast one alone | p99 of the fast one, ms |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let alone = measure(json!({ "pacing": "none" }), &[1])?;
    let row = |name: &str, memory: &str, figures: &Figures| {
        let both = figures.fast_mib_per_s + figures.slow_mib_per_s;
        let part = 100.0 * both / alone.fast_mib_per_s;
        println!(
            "| {name} | {memory} | {:.0} | {:.0} | {part:.0} % | {:.1} |",
            figures.fast_mib_per_s, figures.slow_mib_per_s, figures.fast_p99_ms
        );
        part
    };
    row("none, fast one alone", "unlimited", &alone);
    let unlimited = row("none", "unlimited", &measure(json!({ "pacing": "none" }), &[1, 2])?);
    let (mut buffers, mut auto) = (Vec::new(), Vec::new());
    for mib in BUDGETS {
        let shared = measure(json!({ "num_shared_buffers": mib * 8, "io_unit_size": 131_072 }), &[1, 2])?;
        buffers.push((f64::from(mib), row(&format!("{} shared buffers", mib * 8), &format!("{mib} MiB"), &shared)));
        let budget = json!({ "pacing": "auto", "memory_budget": u64::from(mib) << 20 });
        auto.push((f64::from(mib), row("auto", &format!("{mib} MiB"), &measure(budget, &[1, 2])?)));
    }
    let drawn = Chart::new("A fast and a slow namespace, depth 128 each: throughput over memory")
        .x(Axis::log2("memory of the target, MiB"))
        .y(Axis::linear("both, % of the fast one alone"))
        .series(Series::line("auto", auto))
        .series(Series::line("shared buffers", buffers))
        .series(Series::line("unlimited memory", BUDGETS.map(|mib| (f64::from(mib), unlimited)).to_vec()).dashed())
        .svg();
    // A separate file needs the style sheet that a page has once.
    let start = drawn.find('>').context("a chart")? + 1;
    let (head, rest) = drawn.split_at(start);
    let head = if head.contains("xmlns") {
        head.to_string()
    } else {
        head.replacen("<svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"", 1)
    };
    let text = format!("{head}<style>{STYLE}</style>{rest}\n");
    std::fs::write(&chart, text).with_context(|| chart.display().to_string())?;
    Ok(())
}

/// A target with a fast namespace 1 and a slow namespace 2, loaded on these namespaces.
fn measure(program: &Path, pacing: &Value, namespaces: &[u32], seconds: u32) -> anyhow::Result<Figures> {
    let place = tempfile::tempdir()?;
    let mut transport = json!({ "trtype": "TCP", "max_io_size": 131_072 });
    pacing.as_object().into_iter().flatten().for_each(|(name, value)| transport[name] = value.clone());
    let null_device = |name| json!({ "method": "bdev_null_create", "params": { "name": name, "num_blocks": 2_097_152, "block_size": 4096 } });
    let configuration = json!({ "subsystems": [
        { "subsystem": "bdev", "config": [
            (null_device("Fast")),
            (null_device("Below")),
            { "method": "bdev_delay_create", "params": {
                "name": "Slow", "base_bdev_name": "Below", "avg_read_latency": 10_000, "p99_read_latency": 10_000,
                "avg_write_latency": 10_000, "p99_write_latency": 10_000
            } }
        ] },
        { "subsystem": "nvmf", "config": [
            { "method": "nvmf_create_transport", "params": transport },
            { "method": "nvmf_create_subsystem", "params": { "nqn": NQN, "allow_any_host": true } },
            { "method": "nvmf_subsystem_add_ns", "params": { "nqn": NQN, "namespace": { "bdev_name": "Fast" } } },
            { "method": "nvmf_subsystem_add_ns", "params": { "nqn": NQN, "namespace": { "bdev_name": "Slow" } } },
            { "method": "nvmf_subsystem_add_listener", "params": {
                "nqn": NQN, "listen_address": { "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0" }
            } }
        ] }
    ] });
    let path = place.path().join("target.json");
    std::fs::write(&path, configuration.to_string())?;
    let target = Target::start(program, &path)?;
    let mut load = Command::new(program);
    load.args(["run", "--eta=never", "--output-format=json", "--ioengine=nvme_tcp", "--thread=1", "--rw=randread"]);
    load.args(["--bs=128k", "--iodepth=128", "--norandommap=1", "--time_based=1", "--ramp_time=1"]);
    load.arg(format!("--runtime={seconds}"));
    for nsid in namespaces {
        let at = format!("trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid={} subnqn={NQN} ns={nsid}", target.port);
        load.arg(format!("--name=ns{nsid}")).arg(format!("--filename={at}"));
    }
    let output = load.output()?;
    if !output.status.success() {
        bail!("the load failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let rate = |job: usize| result["jobs"][job]["read"]["bw_bytes"].as_f64().unwrap_or(0.0) / MIB;
    let p99 = result["jobs"][0]["read"]["clat_ns"]["percentile"]["99.000000"].as_f64().unwrap_or(f64::NAN);
    Ok(Figures { fast_mib_per_s: rate(0), slow_mib_per_s: rate(1), fast_p99_ms: p99 / 1e6 })
}

/// A running `plimsoll serve`, ended when dropped.
struct Target {
    child: Child,
    port: u16,
}

impl Target {
    fn start(program: &Path, configuration: &Path) -> anyhow::Result<Target> {
        let mut serve = Command::new(program);
        serve.args(["serve", "--rpc-socket", "none", "-c"]).arg(configuration).stdout(Stdio::piped());
        let mut child = serve.spawn().with_context(|| program.display().to_string())?;
        let mut lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        let mut target = Target { child, port: 0 };
        while target.port == 0 {
            let line = lines.next().context("the target did not start")??;
            let port = line.split(" on 127.0.0.1:").nth(1).and_then(|rest| rest.split(',').next());
            target.port = port.and_then(|port| port.parse().ok()).unwrap_or(0);
        }
        Ok(target)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

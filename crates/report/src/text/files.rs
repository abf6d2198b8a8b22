//! The summary of a run on files: each phase with its rates, its threads, its latencies.

use std::fmt::Write;

use measure::Histogram;
use measure::OverTime;
use measure::figures::{bytes, bytes_per_second, count, nanoseconds, percent, plain};
use measure::schema::{Ended, FilesResult, PhaseResult, Work};

use super::Table;
use super::run::grouped;
use super::{Style, Tone, machine, measured_on, verdicts, wrap};

/// Threads are listed one by one up to this many; beyond, the slowest and the fastest say enough.
const LISTED: usize = 16;

/// The work of the run, in one line: `8 threads x 10,000 files of 4 KiB on ext4`.
pub(crate) fn described(result: &FilesResult) -> String {
    let facts = &result.facts;
    let mut parts = Vec::new();
    let threads = facts.threads * facts.processes;
    let plural =
        |count: u64, what: &str| if count == 1 { format!("1 {what}") } else { format!("{} {what}s", grouped(count)) };
    let mut who = plural(threads.into(), "thread");
    if facts.processes > 1 {
        who = format!("{} in {} processes", who, facts.processes);
    }
    // One size is written in its unit, a distribution in the words that asked for it.
    let size = if facts.sizes.contains(':') { facts.sizes.clone() } else { bytes(facts.mean_bytes) };
    parts.push(format!("{who} x {} of {size}", plural(facts.files, "file")));
    parts.push(format!("records of {}", bytes(facts.record_bytes as f64)));
    let odd = [(facts.direct, "direct"), (facts.fsync, "fsync"), (facts.shared, "shared directories")];
    parts.extend(odd.iter().filter(|(is, _)| *is).map(|(_, what)| what.to_string()));
    if facts.pause_ns > 0 {
        parts.push(format!("{} pause a file", nanoseconds(facts.pause_ns as f64)));
    }
    let on = if facts.file_system.is_empty() { facts.access.clone() } else { facts.file_system.clone() };
    format!("{}; {} on {on}", parts.join(", "), facts.directory)
}

/// A run on files: each phase with its rates, its threads, its latencies and verdicts.
pub fn files(result: &FilesResult, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", described(result));
    for phase in &result.phases {
        out.push_str(&one_phase(phase, style));
        out.push('\n');
    }
    let iterations = over_iterations(&result.phases);
    if !iterations.is_empty() {
        let mut table = Table::new(OVER_ITERATIONS);
        iterations.into_iter().for_each(|row| table.row(row.to_vec()));
        out.push_str(&(table.render(style, 0) + "\n"));
    }
    if let Some(error) = &result.error {
        let text = format!("error {}: {}", error.errno, error.message);
        let _ = writeln!(out, "{}", style.paint(Tone::Bad, &text));
    }
    if let Some(hosts) = &result.hosts {
        out.push_str(&super::hosts::hosts(hosts, &[], &result.phases, style));
    }
    out.push_str(&verdicts(&result.verdicts, style, 0));
    match result.ended {
        Ended::Complete => {}
        Ended::Interrupted => {
            out.push_str(&style.paint(Tone::Warning, "Interrupted: the figures are of the part that ran.\n"));
        }
        Ended::Failed if !result.facts.lost_processes.is_empty() => {
            out.push_str(&style.paint(Tone::Bad, "Failed: the figures are of the processes that could report.\n"));
        }
        Ended::Failed => out.push_str(&style.paint(Tone::Bad, "Failed: at least one operation ended with an error.\n")),
    }
    let on = machine(&result.provenance.machine);
    out + &measured_on(&on, &result.storage, style)
}

/// The most rows of the table of response times over time.
const ROWS: usize = 16;

fn over_time(course: &OverTime, style: Style) -> String {
    let mut table = Table::new(["response times from", "operations", "mean", "p50", "p99", "max"]);
    let together = course.slices.len().div_ceil(ROWS).max(1);
    for (row, slices) in course.slices.chunks(together).enumerate() {
        let mut lat_ns = Histogram::new();
        slices.iter().for_each(|slice| lat_ns.merge(slice));
        let from_ns = (row * together) as u64 * course.every_ns;
        let shown = |ns: f64| if lat_ns.is_empty() { "-".into() } else { nanoseconds(ns) };
        table.row(vec![
            nanoseconds(from_ns as f64),
            grouped(lat_ns.count()),
            shown(lat_ns.mean()),
            shown(lat_ns.quantile(0.5) as f64),
            shown(lat_ns.quantile(0.99) as f64),
            shown(lat_ns.max() as f64),
        ]);
    }
    table.render(style, 2)
}

/// The titles of the columns of [`over_iterations`].
pub(crate) const OVER_ITERATIONS: [&str; 6] = ["over all iterations", "times", "mean", "deviation", "min", "max"];

/// The rates of phases that were done several times (`create`, `create #2`, ...), a row for each. Empty for a run
/// without iterations.
pub(crate) fn over_iterations(phases: &[PhaseResult]) -> Vec<[String; 6]> {
    let first = |phase: &PhaseResult| phase.name.split(" #").next().unwrap_or_default().to_string();
    if phases.iter().all(|phase| !phase.name.contains(" #")) {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for (index, phase) in phases.iter().enumerate().filter(|(_, phase)| !phase.name.contains(" #")) {
        // A phase may be in one iteration twice: its place in the iteration tells the two apart.
        let before = phases[..index].iter().filter(|other| other.name == phase.name).count();
        let all: Vec<&PhaseResult> = phases.iter().filter(|other| first(other) == phase.name).collect();
        let each = all.iter().filter(|other| other.name == phase.name).count();
        let rates: Vec<f64> = all
            .chunks(each)
            .filter_map(|iteration| iteration.get(before))
            .map(|one| one.total.files_per_second(one.runtime_ns))
            .collect();
        let times = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / times;
        let spread = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
        let deviation = if rates.len() > 1 { count((spread / (times - 1.0)).sqrt()) } else { "-".into() };
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        let what = if phase.only_lists() { "entries/s" } else { "files/s" };
        rows.push([
            format!("{}, {what}", phase.name),
            grouped(rates.len() as u64),
            count(mean),
            deviation,
            count(least),
            count(most),
        ]);
    }
    rows
}

fn rates(work: &Work, ns: u64, lists: bool) -> Vec<String> {
    if lists {
        return vec![
            grouped(work.files),
            grouped(work.directories),
            nanoseconds(ns as f64),
            count(work.files_per_second(ns)),
            count(work.directories_per_second(ns)),
        ];
    }
    vec![
        grouped(work.files),
        nanoseconds(ns as f64),
        count(work.files_per_second(ns)),
        count(work.iops(ns)),
        bytes_per_second(work.bytes_per_second(ns)),
        plain(work.bytes_per_second(ns) / 1e6),
    ]
}

fn one_phase(phase: &PhaseResult, style: Style) -> String {
    let mut out = headline(phase, style);
    out.push_str(&work_table(phase, style));
    if !phase.calls.is_empty() {
        out.push_str(&latencies(phase, style));
    }
    if let Some(course) = &phase.over_time {
        out.push_str(&over_time(course, style));
    }
    let _ = writeln!(out, "  cpu    {}", wrap(&processor(phase), style.width, 9));
    if let Some(verified) = phase.verified {
        let entries = match verified.entries {
            0 => String::new(),
            entries => format!(", {} directory entries", grouped(entries)),
        };
        let (blocks, differ) = (grouped(verified.blocks), grouped(verified.mismatches));
        let _ = writeln!(out, "  verify {blocks} blocks{entries}, {differ} differ");
    }
    let disturbed = phase.disturbances.listed();
    if !disturbed.is_empty() {
        let _ = writeln!(out, "  disturbed {disturbed}");
    }
    for errors in &phase.errors {
        let text = format!("  failed {} x {}: {}", grouped(errors.count), errors.call, errors.first);
        let _ = writeln!(out, "{}", style.paint(Tone::Bad, &text));
    }
    out.push_str(&verdicts(&phase.verdicts, style, 2));
    out
}

/// The phase's name and its rates.
fn headline(phase: &PhaseResult, style: Style) -> String {
    let total = &phase.total;
    let name = style.paint(Tone::Bold, &phase.name);
    let rate = style.paint(Tone::Bold, &count(total.files_per_second(phase.runtime_ns)));
    if phase.only_lists() {
        let directories = count(total.directories_per_second(phase.runtime_ns));
        return format!("{name}  {rate} entries/s  {directories} directories/s\n");
    }
    format!(
        "{name}  {rate} files/s  {} IOPS  {} ({} MB/s)\n",
        count(total.iops(phase.runtime_ns)),
        style.paint(Tone::Bold, &bytes_per_second(total.bytes_per_second(phase.runtime_ns))),
        plain(total.bytes_per_second(phase.runtime_ns) / 1e6),
    )
}

/// The work of all, up to the stonewall, and of each process and thread, or of the fastest and the slowest of many.
fn work_table(phase: &PhaseResult, style: Style) -> String {
    let lists = phase.only_lists();
    let mut table = match lists {
        true => Table::new(["", "entries", "directories", "time", "entries/s", "directories/s"]),
        false => Table::new(["", "files", "time", "files/s", "IOPS", "bw", "MB/s"]),
    };
    let mut row = |name: String, work: &Work, ns: u64| {
        let mut cells = vec![name];
        cells.extend(rates(work, ns, lists));
        table.row(cells);
    };
    row("all".into(), &phase.total, phase.runtime_ns);
    if phase.threads.len() > 1 {
        row("to the stonewall".into(), &phase.at_stonewall, phase.stonewall_ns);
    }
    let processes = phase.processes();
    if processes.len() > 1 && processes.len() <= LISTED {
        processes.iter().for_each(|(process, ns, work)| row(format!("process {process}"), work, *ns));
    }
    if phase.threads.len() > 1 && phase.threads.len() <= LISTED {
        phase.threads.iter().for_each(|one| row(format!("thread {}", one.thread), &one.work, one.runtime_ns));
    } else if phase.threads.len() > LISTED {
        let slowest = phase.threads.iter().max_by_key(|one| one.runtime_ns);
        let fastest = phase.threads.iter().min_by_key(|one| one.runtime_ns);
        for (name, one) in [("fastest thread", fastest), ("slowest thread", slowest)] {
            one.into_iter().for_each(|one| row(format!("{name}, {}", one.thread), &one.work, one.runtime_ns));
        }
    }
    table.without(&["MB/s"], style.width.saturating_sub(2)).render(style, 2)
}

/// The latencies of each operation and of its calls; a single call is its operation.
fn latencies(phase: &PhaseResult, style: Style) -> String {
    let mut table = Table::new(["latency", "calls", "mean", "p50", "p90", "p99", "p99.9", "max", "time"]);
    let all_ns: u128 = phase.calls.iter().map(|call| call.lat_ns.sum()).sum();
    let mut row = |name: String, lat_ns: &Histogram| {
        let at = |q: f64| nanoseconds(lat_ns.quantile(q) as f64);
        table.row(vec![
            name,
            grouped(lat_ns.count()),
            nanoseconds(lat_ns.mean()),
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            nanoseconds(lat_ns.max() as f64),
            percent((lat_ns.sum() as f64 / (all_ns as f64).max(1.0)).min(1.0)),
        ]);
    };
    let alone =
        phase.operations.len() == 1 && phase.calls.len() == 1 && phase.operations[0].lat_ns == phase.calls[0].lat_ns;
    for operation in phase.operations.iter().filter(|operation| !operation.lat_ns.is_empty() && !alone) {
        row(format!("{}, whole", operation.operation), &operation.lat_ns);
    }
    phase.calls.iter().for_each(|call| row(format!("  {}", call.call), &call.lat_ns));
    table.without(&["p99.9", "p90", "p50"], style.width.saturating_sub(2)).render(style, 2)
}

/// The time of the processors.
fn processor(phase: &PhaseResult) -> String {
    let runtime = (phase.runtime_ns as f64).max(1.0);
    let used = phase.cpu.user_ns + phase.cpu.system_ns;
    format!(
        "user {}, system {} of one CPU; {} {}; {} context switches",
        percent(phase.cpu.user_ns as f64 / runtime),
        percent(phase.cpu.system_ns as f64 / runtime),
        nanoseconds(used as f64 / phase.total.files.max(1) as f64),
        if phase.only_lists() { "an entry" } else { "a file" },
        grouped(phase.cpu.context_switches),
    )
}

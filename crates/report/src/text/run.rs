//! The summary of a run: fio's figures, said once each.

use std::fmt::Write;

use measure::figures::{count, nanoseconds, percent, plain};
use measure::schema::{DirectionResult, Ended, JobResult, RunResult, Unified};
use measure::{Direction, Histogram};

use super::Table;
use super::{Style, Tone, machine, measured_on, verdicts, wrap};
use crate::believed::Checked;
use crate::fio_json;

/// A run's summary: each job with its throughput, latencies, CPU, depth and verdicts; then groups and disks.
pub fn run(run: &RunResult, style: Style) -> String {
    let mut out = String::new();
    for (name, job) in names(&run.jobs).iter().zip(&run.jobs) {
        out.push_str(&one_job(name, job, style));
        out.push('\n');
    }
    out.push_str(&groups(run, style));
    if !run.disks.is_empty() {
        let mut table = Table::new(["disk", "util", "reads", "writes", "merged", "time in requests", "in queue"]);
        for disk in &run.disks {
            table.row(vec![
                disk.name.clone(),
                percent(disk.util_percent / 100.0),
                grouped(disk.ios.0),
                grouped(disk.ios.1),
                grouped(disk.merges.0 + disk.merges.1),
                nanoseconds((disk.ticks_ms.0 + disk.ticks_ms.1) as f64 * 1e6),
                nanoseconds(disk.in_queue_ms as f64 * 1e6),
            ]);
        }
        out.push_str(&table.render(style, 0));
        out.push('\n');
    }
    if let Some(hosts) = &run.hosts {
        out.push_str(&super::hosts::hosts(hosts, &run.jobs, &[], style));
    }
    out.push_str(&verdicts(&run.verdicts, style, 0));
    match run.ended {
        Ended::Complete => {}
        Ended::Interrupted => {
            out.push_str(&style.paint(Tone::Warning, "Interrupted: the figures are of the part that ran.\n"));
        }
        Ended::Failed => out.push_str(&style.paint(Tone::Bad, "Failed: at least one job ended with an error.\n")),
    }
    let on = if run.hosts.is_some() { String::new() } else { machine(&run.provenance.machine) };
    out + &measured_on(&on, &run.storage, style)
}

/// The names of the jobs of a run; those that share one are told apart by their number.
pub(crate) fn names(jobs: &[JobResult]) -> Vec<String> {
    let shared = |name: &str| jobs.iter().filter(|job| job.name == name).count() > 1;
    let mut seen = std::collections::HashMap::<&str, u32>::new();
    let mut names = Vec::new();
    for job in jobs {
        let number = seen.entry(job.name.as_str()).or_default();
        *number += 1;
        names.push(if shared(&job.name) { format!("{} #{number}", job.name) } else { job.name.clone() });
    }
    names
}

/// Requests in flight on average, those of all clones of a job together, and how many were asked for.
pub(crate) fn in_flight(job: &JobResult) -> (f64, u64) {
    let clones = job.clones.max(1);
    (job.in_flight(), u64::from(job.facts.iodepth) * u64::from(clones))
}

/// The work of the job, in one line: `randread 4 KiB, io_uring, iodepth 32, 2 clones, direct`.
pub(crate) fn described(job: &JobResult) -> String {
    let facts = &job.facts;
    let size = |bytes: u64| job.reporting.bytes.amount(bytes as f64);
    let mut parts = vec![facts.rw.clone()];
    let active = facts.block_bytes.iter().filter(|(direction, _)| job.directions[*direction].ops > 0);
    let mut sizes: Vec<String> = active
        .map(|(_, &(low, high))| if low == high { size(low) } else { format!("{} to {}", size(low), size(high)) })
        .collect();
    sizes.dedup();
    if !sizes.is_empty() && facts.block_bytes.iter().any(|(_, range)| range.1 > 0) {
        parts[0] = format!("{} {}", parts[0], sizes.join(" / ")).trim().to_string();
    }
    parts.push(facts.engine.clone());
    if facts.iodepth > 0 {
        parts.push(format!("iodepth {}", facts.iodepth));
    }
    if job.clones > 1 {
        parts.push(format!("{} clones", job.clones));
    }
    parts.push(facts.caching().to_string());
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

fn one_job(called: &str, job: &JobResult, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}  {}", style.paint(Tone::Bold, called), described(job));
    if let Some(description) = &job.description {
        let _ = writeln!(out, "  {}", style.paint(Tone::Soft, description));
    }
    if let Some(error) = &job.error {
        let text = format!("error {}: {}", error.errno, error.message);
        let _ = writeln!(out, "  {}", style.paint(Tone::Bad, &text));
    }
    out.push_str(&directions(job, style));
    if !job.sync.lat_ns.is_empty() {
        let mut table = latency_table();
        table.row(latency_row("sync", &job.sync.lat_ns));
        let _ = writeln!(out, "  sync   {} calls", grouped(job.sync.lat_ns.count()));
        out.push_str(&fitted(table, style));
    }
    if job.total_ops() > 0 {
        out.push_str(&cpu_and_depth(job, style));
    }
    out.push_str(&findings(job));
    out.push_str(&verdicts(&job.verdicts, style, 2));
    let unchecked = Checked::of_job(job).not_checkable;
    if job.total_ops() > 0 && !unchecked.is_empty() {
        let told: Vec<String> = unchecked.into_iter().map(|(code, reason)| format!("{code} ({reason})")).collect();
        let told = wrap(&format!("not checked: {}", told.join("; ")), style.width, 4);
        let _ = writeln!(out, "  {}", style.paint(Tone::Soft, &told));
    }
    out
}

/// Rates and latencies of each direction with requests, and of all together where the job reports them so.
fn directions(job: &JobResult, style: Style) -> String {
    let mut out = String::new();
    let mixed = (job.reporting.unified != Unified::None).then(|| {
        let mut all = DirectionResult::default();
        job.directions.iter().for_each(|(_, result)| all.merge(result));
        all
    });
    let apart = job.directions.iter().map(|(direction, result)| (direction.name(), result));
    let apart = apart.filter(|_| job.reporting.unified != Unified::Mixed);
    for (name, result) in apart.chain(mixed.as_ref().map(|all| ("mixed", all))) {
        if result.ops > 0 || result.failed_ops > 0 {
            out.push_str(&rates(name, result, job, style));
            out.push_str(&latencies(job, result, style));
        }
    }
    out
}

fn rates(name: &str, result: &DirectionResult, job: &JobResult, style: Style) -> String {
    let units = job.reporting.bytes;
    let seconds = (result.runtime_ns as f64 / 1e9).max(1e-9);
    let (bw, other_bw) = units.rates(result.bytes as f64 / seconds);
    let mut out = format!(
        "  {name:<6} {} IOPS  {} ({other_bw})   {} ops, {} in {}\n",
        style.paint(Tone::Bold, &count(result.ops as f64 / seconds)),
        style.paint(Tone::Bold, &bw),
        grouped(result.ops),
        units.amount(result.bytes as f64),
        nanoseconds(result.runtime_ns as f64),
    );
    let odd = [("short", result.short_ops), ("dropped", result.dropped_ops), ("failed", result.failed_ops)];
    let odd: Vec<String> =
        odd.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{} {what}", grouped(*n))).collect();
    if !odd.is_empty() {
        let _ = writeln!(out, "         {}", odd.join(", "));
    }
    out
}

/// The lines on what the job was asked to find out, and on what disturbed it.
fn findings(job: &JobResult) -> String {
    let mut out = String::new();
    let disturbed = job.disturbances.listed();
    if !disturbed.is_empty() {
        let _ = writeln!(out, "  disturbed {disturbed}");
    }
    if let Some(verified) = job.verified {
        let _ = writeln!(out, "  verify {} blocks, {} differ", grouped(verified.blocks), grouped(verified.mismatches));
    }
    if let Some(steady) = &job.steady_state {
        let sign = if steady.percent { " %" } else { "" };
        let attained = if steady.attained { "attained" } else { "not attained" };
        let (value, limit) = (plain(steady.value), plain(steady.limit));
        let _ = writeln!(out, "  steady {attained}: {} {value}{sign}, limit {limit}{sign}", steady.criterion);
    }
    if let Some(target) = job.latency_target {
        let (time, percentile) = (nanoseconds(target.target_ns as f64), plain(target.percentile));
        let found = if target.depth > 0 { format!("depth {}", target.depth) } else { "met at no depth".into() };
        let _ = writeln!(out, "  target {time} at the {percentile}th percentile: {found}");
    }
    for note in &job.facts.notes {
        let _ = writeln!(out, "  note   {note}");
    }
    out
}

fn latency_table() -> Table {
    Table::new(["latency", "min", "mean", "stdev", "p50", "p90", "p99", "p99.9", "p99.99", "max"])
}

/// The table, without the columns that say least where the terminal is narrow.
fn fitted(table: Table, style: Style) -> String {
    table.without(&["stdev", "p99.99", "p90", "min"], style.width.saturating_sub(4)).render(style, 4)
}

fn latency_row(name: &str, histogram: &Histogram) -> Vec<String> {
    let known = histogram.has_shape();
    let quantile = |q: f64| if known { nanoseconds(histogram.quantile(q) as f64) } else { "-".into() };
    vec![
        name.to_string(),
        nanoseconds(histogram.min() as f64),
        nanoseconds(histogram.mean()),
        nanoseconds(histogram.stddev()),
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(0.999),
        quantile(0.9999),
        nanoseconds(histogram.max() as f64),
    ]
}

fn latencies(job: &JobResult, result: &measure::schema::DirectionResult, style: Style) -> String {
    let named = [
        ("slat", Some(&result.slat_ns)),
        ("clat", Some(&result.clat_ns)),
        ("lat", Some(&result.lat_ns)),
        ("intended", result.lat_intended_ns.as_ref()),
    ];
    let mut table = latency_table();
    let filled = || named.iter().filter_map(|(name, histogram)| Some((*name, histogram.filter(|h| !h.is_empty())?)));
    if filled().next().is_none() {
        return String::new();
    }
    filled().for_each(|(name, histogram)| table.row(latency_row(name, histogram)));
    let seen = || result.priorities.iter().filter(|one| !one.clat_ns.is_empty());
    if seen().count() >= 2 {
        seen().for_each(|one| {
            table.row(latency_row(&format!("prio {}/{}", one.class(), one.level()), &one.clat_ns));
        });
    }
    let mut out = fitted(table, style);
    // A list of one's own is given in full.
    if job.reporting.percentiles != measure::schema::Reporting::default().percentiles {
        let wanted = [
            (job.reporting.slat_percentiles, "slat", &result.slat_ns),
            (job.reporting.clat_percentiles, "clat", &result.clat_ns),
            (job.reporting.lat_percentiles, "lat", &result.lat_ns),
        ];
        for (_, name, histogram) in wanted.iter().filter(|(wanted, _, histogram)| *wanted && !histogram.is_empty()) {
            let listed = job.reporting.percentiles.iter();
            let listed: Vec<String> = listed
                .map(|&p| format!("p{} {}", plain_percentile(p), nanoseconds(histogram.quantile(p / 100.0) as f64)))
                .collect();
            let _ = writeln!(out, "    {name} percentiles: {}", listed.join(", "));
        }
    }
    out
}

/// 99.99 keeps its digits.
fn plain_percentile(p: f64) -> String {
    format!("{p:.6}").trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Part of the time from which on the report tells that the job waited for a CPU.
const WAITED_MATTERS: f64 = 0.02;

fn cpu_and_depth(job: &JobResult, style: Style) -> String {
    let mut out = String::new();
    let runtime = (job.runtime_ns as f64).max(1.0);
    let used = job.cpu.user_ns + job.cpu.system_ns;
    let looked = match job.cpu.looked_ns {
        0 => String::new(),
        looked_ns => format!(" ({} looking for completions, poll=)", percent(looked_ns as f64 / runtime)),
    };
    let waited = match job.cpu.waited_ns as f64 / (runtime * f64::from(job.clones.max(1))) {
        part if part < WAITED_MATTERS => String::new(),
        part => format!(", waiting for a CPU {} of the time", percent(part)),
    };
    let told = format!(
        "user {}, system {} of one CPU{looked}{waited}; {} an op; {} context switches, {} + {} page faults (major + minor)",
        percent(job.cpu.user_ns as f64 / runtime),
        percent(job.cpu.system_ns as f64 / runtime),
        nanoseconds(used as f64 / job.total_ops().max(1) as f64),
        grouped(job.cpu.context_switches),
        grouped(job.cpu.major_faults),
        grouped(job.cpu.minor_faults),
    );
    let mut line = |name: &str, told: &str| {
        let _ = writeln!(out, "  {name:<6} {}", wrap(told, style.width, 9));
    };
    line("cpu", &told);
    let shares = |shares: Vec<(&str, f64)>| {
        let seen = shares.into_iter().filter(|(_, share)| *share > 0.0);
        seen.map(|(name, share)| format!("{name}={} %", plain(share))).collect::<Vec<_>>().join(", ")
    };
    if !job.depth.in_flight.is_empty() {
        let together = if job.clones > 1 { ", all clones together; of each" } else { "" };
        let (reached, asked) = in_flight(job);
        let levels = shares(fio_json::depth_levels(job));
        line("depth", &format!("{} on average of {asked} asked{together}: {levels}", plain(reached)));
        let submitted = shares(fio_json::call_sizes(&job.depth.submitted));
        let completed = shares(fio_json::call_sizes(&job.depth.completed));
        line("", &format!("ops a submission: {submitted}; a completion: {completed}"));
    }
    out
}

/// Sums of each group, where there is more than one job.
fn groups(run: &RunResult, style: Style) -> String {
    if run.jobs.len() < 2 {
        return String::new();
    }
    let mut numbers: Vec<u32> = run.jobs.iter().map(|job| job.group).collect();
    numbers.dedup();
    let mut table = Table::new(["group", "", "IOPS", "bw", "", "io", "ops", "time"]).left(1);
    for number in numbers {
        // As the first of the group wants it: a sum has one unit.
        let first = run.jobs.iter().find(|job| job.group == number);
        let units = first.map(|job| job.reporting.bytes).unwrap_or_default();
        for direction in Direction::ALL {
            let parts = run.jobs.iter().filter(|job| job.group == number).map(|job| &job.directions[direction]);
            let parts: Vec<_> = parts.filter(|part| part.ops > 0).collect();
            let Some(longest) = parts.iter().map(|part| part.runtime_ns).max() else { continue };
            let (ops, total) = parts.iter().fold((0, 0), |sum, part| (sum.0 + part.ops, sum.1 + part.bytes));
            let seconds = (longest as f64 / 1e9).max(1e-9);
            let (bw, other_bw) = units.rates(total as f64 / seconds);
            table.row(vec![
                number.to_string(),
                direction.name().to_string(),
                count(ops as f64 / seconds),
                bw,
                format!("({other_bw})"),
                units.amount(total as f64),
                grouped(ops),
                nanoseconds(longest as f64),
            ]);
        }
    }
    table.render(style, 0) + "\n"
}

/// Digits in threes: 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

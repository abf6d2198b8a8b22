//! fio's text report (`--output-format=normal`), line for line as fio 3.33 writes it: scripts look for its words.
//!
//! The figures are those of [`fio_json`](mod@crate::fio_json). Numbers are rounded; fio's own carry too little where
//! the decimals round up to one (`19.97` becomes `19.0` there).

use std::fmt::Write;

use measure::figures::ByteUnits;
use measure::schema::{DirectionResult, DiskUtil, JobResult, RunResult, SteadyState, Unified};
use measure::{Direction, Histogram};

use crate::fio_figures::{self as figures, Figures, Samples};
use crate::fio_json;

/// Digits that a number has at most.
const DIGITS: usize = 4;
/// Digits that the extremes of a latency have at most.
const DIGITS_OF_LATENCY: usize = 6;
/// The width that a line of percentiles fills, and the part of a percentile that does not depend on its value.
const PERCENTILE_ROOM: usize = 73;
const PERCENTILE_WIDTH: usize = 12;

/// The run in fio's text; `pid` stands for the process of each job.
pub fn render(run: &RunResult, pid: u32) -> String {
    let moment = crate::time::ctime(figures::taken_unix_ms(run) / 1000);
    let mut out = String::from("\n");
    // As in fio, a job that did nothing is not there.
    for job in run.jobs.iter().filter(|job| job.total_ops() > 0 || figures::error_number(job) != 0) {
        out.push_str(&one_job(job, run, pid, &moment));
    }
    let mut groups: Vec<u32> = run.jobs.iter().map(|job| job.group).collect();
    groups.dedup();
    for group in groups {
        let _ = writeln!(out, "\nRun status group {group} (all jobs):");
        let jobs: Vec<&JobResult> = run.jobs.iter().filter(|job| job.group == group).collect();
        out.push_str(&group_lines(&jobs));
    }
    if !run.disks.is_empty() {
        out.push_str("\nDisk stats (read/write):\n");
        run.disks.iter().for_each(|entry| out.push_str(&disk(entry)));
    }
    out
}

/// The size of a block as fio writes it before a run: `64.0KiB`.
pub fn block_size(bytes: u64, units: ByteUnits) -> String {
    amount(bytes as f64, units)
}

fn one_job(job: &JobResult, run: &RunResult, pid: u32, moment: &str) -> String {
    let errno = figures::error_number(job);
    let clones = job.clones.max(1);
    let mut out = format!("{}: (groupid={}, jobs={clones}): err={errno:2}", job.name, job.group);
    if errno != 0 {
        let _ = write!(out, " (file:job, func=io_u error, error={})", error_text(errno));
    }
    let _ = writeln!(out, ": pid={pid}: {moment}");
    if let Some(description) = job.description.as_ref().filter(|text| !text.is_empty()) {
        let _ = writeln!(out, "  Description  : [{description}]");
    }
    let unified = job.reporting.unified;
    if unified != Unified::Mixed {
        for (direction, result) in job.directions.iter() {
            out.push_str(&directed(direction.name(), job, result, &[direction], run));
        }
    }
    if unified != Unified::None {
        out.push_str(&directed("mixed", job, &figures::mixed(job), &Direction::ALL, run));
    }
    out.push_str(&latency_ranges(job));
    if !job.sync.lat_ns.is_empty() {
        out.push_str("  fsync/fdatasync/sync_file_range:\n");
        out.push_str(&moments("sync", &job.sync.lat_ns));
        out.push_str(&percentiles("sync", &job.sync.lat_ns, &job.reporting.percentiles));
    }
    out + &use_of_machine(job)
}

/// Processor, depths, counts and targets of a job.
fn use_of_machine(job: &JobResult) -> String {
    let (user, system) = figures::cpu_percent(job);
    let cpu = &job.cpu;
    let mut out = format!(
        "  cpu          : usr={user:3.2}%, sys={system:3.2}%, ctx={}, majf={}, minf={}\n",
        cpu.context_switches, cpu.major_faults, cpu.minor_faults
    );
    for (name, shares) in [
        ("  IO depths    ", fio_json::depth_levels(job)),
        ("     submit    ", fio_json::call_sizes(&job.depth.submitted)),
        ("     complete  ", fio_json::call_sizes(&job.depth.completed)),
    ] {
        let shares: Vec<String> =
            shares.into_iter().map(|(level, percent)| format!("{level}={percent:3.1}%")).collect();
        let _ = writeln!(out, "{name}: {}", shares.join(", "));
    }
    let counts = |of: fn(&DirectionResult) -> u64, syncs: u64| {
        let directions = Direction::ALL.map(|direction| of(&job.directions[direction]).to_string());
        format!("{},{syncs}", directions.join(","))
    };
    let _ = writeln!(
        out,
        "     issued rwts: total={} short={} dropped={}",
        counts(|result| result.ops + result.failed_ops, job.sync.lat_ns.count()),
        counts(|result| result.short_ops, 0),
        counts(|result| result.dropped_ops, 0)
    );
    if job.continue_on_error {
        let failed: u64 = job.directions.iter().map(|(_, result)| result.failed_ops).sum();
        let first = job.first_error.map_or(0, i32::unsigned_abs);
        let _ = writeln!(out, "     errors    : total={failed}, first_error={first}/<{}>", error_text(first));
    }
    let target = figures::latency_target(job);
    if target.depth > 0 {
        let _ = writeln!(
            out,
            "     latency   : target={}, window={}, percentile={:.2}%, depth={}",
            target.target_ns,
            target.window_ns / 1000,
            target.percentile,
            target.depth
        );
    }
    if let Some(steady) = &job.steady_state {
        out.push_str(&steady_state(steady, job.reporting.bytes));
    }
    out
}

/// The system's text for an error number, without the number.
fn error_text(errno: u32) -> String {
    if errno == 0 {
        return "Success".into();
    }
    let text = std::io::Error::from_raw_os_error(errno.cast_signed()).to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

/// The lines of one direction, or of all as one.
fn directed(
    name: &str,
    job: &JobResult,
    result: &DirectionResult,
    directions: &[Direction],
    run: &RunResult,
) -> String {
    if result.bytes == 0 || result.runtime_ns == 0 {
        return String::new();
    }
    let reporting = &job.reporting;
    let units = reporting.bytes;
    let of = Figures::of(job, result, directions, run);
    let (bw, other_bw) = rates(of.bytes_per_second, units);
    let iops = number(of.iops.floor(), DIGITS, 1000.0, "");
    let size = amount(result.bytes as f64, units);
    let zones = if name == "write" { format!("; {} zone resets", job.zone_resets) } else { String::new() };
    let mut out = format!("  {name}: IOPS={iops}, BW={bw} ({other_bw})({size}/{}msec){zones}\n", of.runtime_ms);
    for (name, histogram) in [("slat", &result.slat_ns), ("clat", &result.clat_ns), (" lat", &result.lat_ns)] {
        out.push_str(&moments(name, histogram));
    }
    let priorities = figures::priorities(result);
    let kind = if reporting.lat_percentiles { "lat" } else { "clat" };
    let of_priority = |one: &measure::schema::PriorityLatency| {
        let histogram = if reporting.lat_percentiles { &one.lat_ns } else { &one.clat_ns };
        (format!("{kind} prio {}/{}", one.class(), one.level()), histogram.clone())
    };
    let priorities: Vec<(String, Histogram)> = priorities.into_iter().map(of_priority).collect();
    priorities.iter().for_each(|(name, histogram)| out.push_str(&moments(name, histogram)));
    for (wanted, name, histogram) in [
        (reporting.slat_percentiles, "slat", &result.slat_ns),
        (reporting.clat_percentiles, "clat", &result.clat_ns),
        (reporting.lat_percentiles, "lat", &result.lat_ns),
    ] {
        if wanted {
            out.push_str(&percentiles(name, histogram, &reporting.percentiles));
        }
    }
    if reporting.clat_percentiles || reporting.lat_percentiles {
        let all = if reporting.lat_percentiles { &result.lat_ns } else { &result.clat_ns }.count();
        for (name, histogram) in &priorities {
            let part = 100.0 * histogram.count() as f64 / all as f64;
            let name = format!("{name} ({part:.2}% of IOs)");
            out.push_str(&percentiles(&name, histogram, &reporting.percentiles));
        }
    }
    out + &over_time(&of, units)
}

/// The lines of samples over time; none without a sample.
fn over_time(of: &Figures, units: ByteUnits) -> String {
    if of.bw.count == 0 {
        return String::new();
    }
    let base = f64::from(units.kb_base);
    let mut scale = if units.unit_base == 1 { 8.0 } else { 1.0 } * 1024.0 / base;
    let binary = if units.kb_base == 1024 { "i" } else { "" };
    let mut prefix = if units.kb_base == 1024 { "K" } else { "k" };
    if of.bw.mean * scale > base * base {
        scale /= base;
        prefix = "M";
    }
    let unit = format!("{prefix}{binary}{}", unit_of(units));
    let line = |samples: &Samples, scale: f64, share: &str| {
        format!(
            "min={:5}, max={:5}, {share}avg={:5.2}, stdev={:5.2}, samples={}\n",
            (samples.least * scale) as u64,
            (samples.most * scale) as u64,
            samples.mean * scale,
            samples.deviation * scale,
            samples.count
        )
    };
    let share = format!("per={:3.2}%, ", of.share_percent);
    format!("   bw ({unit:>5}/s): {}", line(&of.bw, scale, &share))
        + &format!("   iops        : {}", line(&of.iops_sampled, 1.0, ""))
}

/// Divisor and name of the unit in which fio shows values from `least` to `most` nanoseconds.
fn unit_of_time(least: u64, most: u64, is_spread: impl Fn(f64) -> bool) -> (f64, &'static str) {
    if least > 2_000_000 && most > 99_999_999 && is_spread(1e6) {
        (1e6, "msec")
    } else if least > 2000 && most > 99_999 && is_spread(1e3) {
        (1e3, "usec")
    } else {
        (1.0, "nsec")
    }
}

/// Extremes, mean and deviation of a latency.
fn moments(name: &str, histogram: &Histogram) -> String {
    if histogram.is_empty() {
        return String::new();
    }
    let (least, most, deviation) = (histogram.min(), histogram.max(), histogram.stddev());
    let (divisor, unit) = unit_of_time(least, most, |unit| deviation > unit);
    let extreme = |ns: u64| number((ns as f64 / divisor).floor(), DIGITS_OF_LATENCY, 1000.0, "");
    format!(
        "    {name} ({unit}): min={}, max={}, avg={:5.2}, stdev={:5.2}\n",
        extreme(least),
        extreme(most),
        histogram.mean() / divisor,
        deviation / divisor
    )
}

/// A table of percentiles; values are rounded up to whole units.
fn percentiles(name: &str, histogram: &Histogram, wanted: &[f64]) -> String {
    if histogram.is_empty() || wanted.is_empty() {
        return String::new();
    }
    let bins = fio_json::bins(histogram);
    let value = |&p: &f64| fio_json::percentile(&bins, histogram.count(), p);
    let values: Vec<u64> = wanted.iter().map(value).collect();
    let most = values.iter().copied().max().unwrap_or(0);
    let (divisor, unit) = unit_of_time(values.iter().copied().min().unwrap_or(0), most, |_| true);
    let width = 5.max(((most as f64 / divisor) as u64).to_string().len());
    let per_line = (PERCENTILE_ROOM / (PERCENTILE_WIDTH + width)).max(1);
    let cell = |(p, ns): (&f64, &u64)| format!(" {p:5.2}th=[{:width$}]", (*ns as f64 / divisor).ceil() as u64);
    let cells: Vec<String> = wanted.iter().zip(&values).map(cell).collect();
    let lines: Vec<String> = cells.chunks(per_line).map(|line| format!("     |{}", line.join(","))).collect();
    format!("    {name} percentiles ({unit}):\n{}\n", lines.join(",\n"))
}

/// The ranges of latency that occurred, five a line.
fn latency_ranges(job: &JobResult) -> String {
    let mut out = String::new();
    for ((_, shares), unit) in fio_json::latency_shares(job).into_iter().zip(["nsec", "usec", "msec"]) {
        let occurred = shares.into_iter().filter(|(_, percent)| *percent > 0.0);
        let shares: Vec<String> = occurred.map(|(end, percent)| format!("{end}={percent:3.2}%")).collect();
        for line in shares.chunks(5) {
            let _ = writeln!(out, "  lat ({unit})   : {}", line.join(", "));
        }
    }
    out
}

fn steady_state(steady: &SteadyState, units: ByteUnits) -> String {
    let mean = |values: &[u64]| values.iter().sum::<u64>() as f64 / values.len().max(1) as f64;
    let (bw, other_bw) = rates(mean(&steady.bytes_per_second), units);
    let iops = number(mean(&steady.iops).floor(), DIGITS, 1000.0, "");
    let (attained, sign) = (if steady.attained { "yes" } else { "no" }, if steady.percent { "%" } else { "" });
    let criterion = match steady.criterion.strip_suffix("_slope") {
        Some(figure) => format!("{figure} slope"),
        None => format!("{} mean dev", steady.criterion),
    };
    let value = steady.value;
    format!("  steadystate  : attained={attained}, bw={bw} ({other_bw}), iops={iops}, {criterion}={value:.3}{sign}\n")
}

/// Each direction of a group: the sum, and the extremes among its jobs.
fn group_lines(jobs: &[&JobResult]) -> String {
    let Some(reporting) = jobs.first().map(|job| &job.reporting) else { return String::new() };
    let mut out = String::new();
    if reporting.unified != Unified::Mixed {
        for (direction, name) in [(Direction::Read, "READ"), (Direction::Write, "WRITE"), (Direction::Trim, "TRIM")] {
            let results: Vec<DirectionResult> = jobs.iter().map(|job| job.directions[direction].clone()).collect();
            out.push_str(&group_line(name, &results, reporting.bytes));
        }
    }
    if reporting.unified != Unified::None {
        let results: Vec<DirectionResult> = jobs.iter().map(|job| figures::mixed(job)).collect();
        out.push_str(&group_line("MIXED", &results, reporting.bytes));
    }
    out
}

fn group_line(name: &str, results: &[DirectionResult], units: ByteUnits) -> String {
    let results: Vec<&DirectionResult> = results.iter().filter(|result| result.runtime_ns > 0).collect();
    let runtimes = || results.iter().map(|result| result.runtime_ns);
    let (Some(shortest), Some(longest)) = (runtimes().min(), runtimes().max()) else { return String::new() };
    let bytes: u64 = results.iter().map(|result| result.bytes).sum();
    let bw = |bytes: u64, ns: u64| bytes as f64 * 1e9 / ns as f64;
    let each = || results.iter().map(|result| bw(result.bytes, result.runtime_ns));
    let (all, other_all) = rates(bw(bytes, longest), units);
    let (least, other_least) = rates(each().fold(f64::INFINITY, f64::min), units);
    let (most, other_most) = rates(each().fold(0.0, f64::max), units);
    let (size, other_size) = (amount(bytes as f64, units), amount(bytes as f64, other(units)));
    let (shortest, longest) = (figures::milliseconds(shortest), figures::milliseconds(longest));
    format!(
        "{name:>7}: bw={all} ({other_all}), {least}-{most} ({other_least}-{other_most}), io={size} ({other_size}), \
         run={shortest}-{longest}msec\n"
    )
}

fn disk(disk: &DiskUtil) -> String {
    format!(
        "  {}: ios={}/{}, merge={}/{}, ticks={}/{}, in_queue={}, util={:3.2}%\n",
        disk.name,
        disk.ios.0,
        disk.ios.1,
        disk.merges.0,
        disk.merges.1,
        disk.ticks_ms.0,
        disk.ticks_ms.1,
        disk.in_queue_ms,
        disk.util_percent
    )
}

/// The units with the other base of a kilobyte.
fn other(units: ByteUnits) -> ByteUnits {
    ByteUnits { kb_base: if units.kb_base == 1000 { 1024 } else { 1000 }, ..units }
}

fn unit_of(units: ByteUnits) -> &'static str {
    if units.unit_base == 1 { "bit" } else { "B" }
}

/// A rate in the job's base, and in the other.
fn rates(bytes_per_second: f64, units: ByteUnits) -> (String, String) {
    let value = bytes_per_second.floor() * if units.unit_base == 1 { 8.0 } else { 1.0 };
    let unit = format!("{}/s", unit_of(units));
    let rate = |units: ByteUnits| number(value, DIGITS, f64::from(units.kb_base), &unit);
    (rate(units), rate(other(units)))
}

/// A rate of bytes in the job's base: `1024KiB/s`.
pub fn rate(bytes_per_second: u64, units: ByteUnits) -> String {
    rates(bytes_per_second as f64, units).0
}

/// A rate that is known in KiB, as fio's line of status has it: never in less than `KiB`.
pub fn rate_of_kib(kib_per_second: u64, units: ByteUnits) -> String {
    let bytes = kib_per_second * 1024;
    if units.unit_base != 1 && units.kb_base == 1024 && kib_per_second < 1024 {
        return format!("{kib_per_second}KiB/s");
    }
    rate(bytes, units)
}

/// A count in at most four digits: `12.3k`.
pub fn count(value: u64) -> String {
    number(value as f64, DIGITS, 1000.0, "")
}

fn amount(bytes: f64, units: ByteUnits) -> String {
    number(bytes, DIGITS, f64::from(units.kb_base), "B")
}

/// A value in at most `digits` digits: the least prefix for which the part before the point
/// fits, and the decimals that there is room for; none without a prefix.
fn number(value: f64, digits: usize, base: f64, unit: &str) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    const BINARY: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let prefixes = if base == 1024.0 { BINARY } else { PREFIXES };
    let length = |value: f64| (value as u64).to_string().len();
    let (mut scaled, mut index) = (value, 0);
    while length(scaled) > digits && index + 1 < prefixes.len() {
        scaled /= base;
        index += 1;
    }
    let decimals = if index == 0 { 0 } else { digits.saturating_sub(length(scaled) + 1) };
    format!("{scaled:.decimals$}{}{unit}", prefixes[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shortened_as_fio_shortens_them() {
        let units = ByteUnits::default();
        for (bytes, binary, decimal) in [
            (4096.0, "4096B", "4096B"),
            (65536.0, "64.0KiB", "65.5kB"),
            (4_194_304.0, "4096KiB", "4194kB"),
            (16_777_216.0, "16.0MiB", "16.8MB"),
            (1_073_741_824.0, "1024MiB", "1074MB"),
        ] {
            assert_eq!((amount(bytes, units), amount(bytes, other(units))), (binary.into(), decimal.into()));
        }
        assert_eq!(number(17_066.0, DIGITS, 1000.0, ""), "17.1k");
        assert_eq!(number(6_642_600.0, DIGITS_OF_LATENCY, 1000.0, ""), "6642.6k");
        assert_eq!(number(50_524_123.0, DIGITS_OF_LATENCY, 1000.0, ""), "50524k");
        let bits = ByteUnits { kb_base: 1000, unit_base: 1 };
        assert_eq!(rates(15_340_000_000.0, bits), ("123Gbit/s".into(), "114Gibit/s".into()));
    }
}

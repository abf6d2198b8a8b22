//! fio's `--output-format=terse` (fio's HOWTO, "Terse output"): one line a job, fields between semicolons.
//!
//! Version 3 has no trims. Versions 2, 4 and 5 have a third section for them; 2 names neither the program nor disks,
//! and 5 has the number of bandwidth samples and figures of iops behind each section.

use std::fmt::Write;

use measure::schema::{DirectionResult, Interval, JobResult, RunResult, Unified};
use measure::{Direction, Histogram, PerDirection, stats};

use crate::{fio_figures, fio_json};

/// The number of percentiles in fio's terse format; fio fills those that it lacks with `0%=0`.
const PERCENTILES: usize = 20;

/// The version that fio writes by default.
pub const VERSION: u8 = 3;

/// The results in that version (2 to 5) of fio's terse format, one line for each job.
pub fn render(run: &RunResult, version: u8) -> String {
    run.jobs.iter().map(|job| line(run, job, version) + "\n").collect()
}

fn line(run: &RunResult, job: &JobResult, version: u8) -> String {
    let error = fio_figures::error_number(job);
    // A semicolon in a name would shift every field after it.
    let name = job.name.replace([';', '\n'], "_");
    let program = if version == 2 { String::new() } else { fio_json::version_of(&run.provenance.version) + ";" };
    let mut out = format!("{version};{program}{name};{};{error}", job.group);
    let unified = job.reporting.unified;
    if unified != Unified::Mixed {
        let trims = (version != 3).then_some(Direction::Trim);
        for direction in [Direction::Read, Direction::Write].into_iter().chain(trims) {
            out.push_str(&directed(job, &job.directions[direction], &[direction], version));
        }
    }
    // As in fio, the fields of all directions together stand in place of the fields of reads and writes, or after them.
    if unified != Unified::None {
        out.push_str(&directed(job, &fio_figures::mixed(job), &Direction::ALL, version));
    }
    let available = (job.runtime_ns as f64 * f64::from(job.clones.max(1))).max(1.0);
    let cpu = |ns: u64| 100.0 * ns as f64 / available;
    let _ = write!(
        out,
        ";{:.6}%;{:.6}%;{};{};{}",
        cpu(job.cpu.user_ns),
        cpu(job.cpu.system_ns),
        job.cpu.context_switches,
        job.cpu.major_faults,
        job.cpu.minor_faults
    );
    for (_, share) in fio_json::depth_levels(job) {
        let _ = write!(out, ";{share:.1}%");
    }
    // Version 3 knows no nanoseconds: they are counted as below two microseconds.
    let shares = fio_json::latency_shares(job);
    let nanoseconds: f64 = shares[0].1.iter().map(|(_, share)| share).sum();
    for (index, (_, share)) in shares[1].1.iter().enumerate() {
        let _ = write!(out, ";{:.2}%", if index == 0 { share + nanoseconds } else { *share });
    }
    for (_, share) in &shares[2].1 {
        let _ = write!(out, ";{share:.2}%");
    }
    for disk in run.disks.iter().filter(|_| version >= 3) {
        let _ = write!(
            out,
            ";{};{};{};{};{};{};{};{};{:.2}%",
            disk.name,
            disk.ios.0,
            disk.ios.1,
            disk.merges.0,
            disk.merges.1,
            disk.ticks_ms.0,
            disk.ticks_ms.1,
            disk.in_queue_ms,
            disk.util_percent
        );
    }
    if job.continue_on_error {
        let failed: u64 = job.directions.iter().map(|(_, result)| result.failed_ops).sum();
        let _ = write!(out, ";{failed};{}", job.first_error.unwrap_or(0));
    }
    if let Some(description) = job.description.as_ref().filter(|text| !text.is_empty()) {
        // Version 2 has the description on a line of its own, as in fio.
        let end = if version == 2 { "\n" } else { "" };
        let _ = write!(out, "{end};{}", description.replace([';', '\n'], "_"));
    }
    out
}

fn directed(job: &JobResult, result: &DirectionResult, directions: &[Direction], version: u8) -> String {
    let seconds = result.runtime_ns as f64 / 1e9;
    let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
    let milliseconds = if result.runtime_ns == 0 { 0 } else { ((result.runtime_ns + 500_000) / 1_000_000).max(1) };
    let mut out = format!(
        ";{};{};{};{milliseconds}",
        result.bytes >> 10,
        (per_second(result.bytes) / 1024.0) as u64,
        per_second(result.ops) as u64
    );
    out.push_str(&moments(&result.slat_ns));
    out.push_str(&moments(&result.clat_ns));
    // As in fio, lat_percentiles goes before clat_percentiles.
    let listed_latency = if job.reporting.lat_percentiles { &result.lat_ns } else { &result.clat_ns };
    let bins = fio_json::bins(listed_latency);
    let wanted = job.reporting.lat_percentiles || job.reporting.clat_percentiles;
    let listed = job.reporting.percentiles.iter().take(PERCENTILES).filter(|_| wanted);
    let mut written = 0;
    for &percentile in listed {
        let value = fio_json::percentile(&bins, listed_latency.count(), percentile);
        let _ = write!(out, ";{percentile:.6}%={}", value / 1000);
        written += 1;
    }
    (written..PERCENTILES).for_each(|_| out.push_str(";0%=0"));
    out.push_str(&moments(&result.lat_ns));
    let samples = || fio_figures::samples(job, result.ops > 0);
    let rate = |interval: &Interval, of: &PerDirection<u64>| {
        directions.iter().map(|&direction| of[direction]).sum::<u64>() as f64 * 1e9 / interval.length_ns as f64
    };
    let bw: Vec<f64> = samples().map(|interval| rate(interval, &interval.bytes) / 1024.0).collect();
    let total = per_second(result.bytes) / 1024.0;
    let share = if total > 0.0 { (100.0 * stats::mean(&bw) / total).min(100.0) } else { 0.0 };
    let (least, most, mean, deviation) = figures(&bw);
    let _ = write!(out, ";{least};{most};{share:.6}%;{mean:.6};{deviation:.6}");
    if version == 5 {
        let iops: Vec<f64> = samples().map(|interval| rate(interval, &interval.ops)).collect();
        let (least, most, mean, deviation) = figures(&iops);
        let _ = write!(out, ";{};{least};{most};{mean:.6};{deviation:.6};{}", bw.len(), iops.len());
    }
    out
}

/// The least, the largest, mean and deviation of samples; whole numbers for the first two.
fn figures(samples: &[f64]) -> (u64, u64, f64, f64) {
    (
        samples.iter().copied().reduce(f64::min).unwrap_or(0.0) as u64,
        samples.iter().copied().fold(0.0, f64::max) as u64,
        stats::mean(samples),
        stats::variance(samples).sqrt(),
    )
}

/// Minimum, maximum, mean and deviation in microseconds.
fn moments(histogram: &Histogram) -> String {
    format!(
        ";{};{};{:.6};{:.6}",
        histogram.min() / 1000,
        histogram.max() / 1000,
        histogram.mean() / 1e3,
        histogram.stddev() / 1e3
    )
}

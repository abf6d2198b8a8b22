//! fio's `--output-format=json` and `json+`, key for key.
//!
//! Keys, their order and types are those of fio's stat.c (`show_json_status`) in fio 3.33, and `job_start`, which fio
//! writes since 3.35. Numbers that fio writes with `%f` have six decimals. Percentiles and bins are in fio's buckets
//! (stat.h: 64 per power of two), so that they agree with each other and scripts find the bins they know; unlike fio's
//! they are not clipped at 17.2 s. Throughput comes from nanoseconds, where fio rounds to milliseconds first.

use std::collections::BTreeMap;
use std::fmt::Write;

use measure::schema::{
    DirectionResult, DiskUtil, Disturbances, HostsResult, JobResult, PriorityLatency, RunResult, SteadyState, Unified,
};
use measure::{Direction, Histogram};

use crate::fio_figures::{self as figures, Figures, error_number, mixed};

/// The version whose schema this is: readers tell by it that latencies are in nanoseconds. The program's own version
/// follows, as a distribution's would.
const SCHEMA_OF: &str = "fio-3.35";

/// A JSON value as fio writes it.
enum Json {
    Integer(u64),
    /// A number that is written with six decimals.
    Float(f64),
    Text(String),
    Object(Vec<(String, Json)>),
    Array(Vec<Json>),
}

use Json::{Array, Float, Integer, Object, Text};

fn object<const N: usize>(entries: [(&str, Json); N]) -> Vec<(String, Json)> {
    entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// The text in the place of fio's version: `fio-3.35-plimsoll-0.1.0` for version 0.1.0 of this program.
pub fn version_of(version: &str) -> String {
    format!("{SCHEMA_OF}-plimsoll-{version}")
}

/// The run in fio's JSON schema, newline-terminated; with `plus`, the bins of `json+`.
pub fn render(run: &RunResult, plus: bool) -> String {
    let version = &run.provenance.version;
    let now_ms = figures::taken_unix_ms(run);
    let mut top = object([
        ("fio version", Text(version_of(version))),
        ("timestamp", Integer(now_ms / 1000)),
        ("timestamp_ms", Integer(now_ms)),
        ("time", Text(crate::time::ctime(now_ms / 1000))),
    ]);
    if !run.global_options.is_empty() {
        top.push(("global options".into(), Object(options(&run.global_options))));
    }
    top.push(("jobs".into(), Array(run.jobs.iter().map(|entry| Object(job(entry, run, plus))).collect())));
    if let Some(hosts) = &run.hosts {
        top.push(("client_stats".into(), Array(client_stats(hosts, run, plus))));
    }
    if !run.disks.is_empty() {
        top.push(("disk_util".into(), Array(run.disks.iter().map(|entry| Object(disk(entry))).collect())));
    }
    let mut out = String::new();
    write_value(&mut out, &Object(top), 0);
    out.push('\n');
    out
}

/// The jobs of each host with its name, and the sum over all as the last: what fio's client writes of its servers.
fn client_stats(hosts: &HostsResult, run: &RunResult, plus: bool) -> Vec<Json> {
    let mut all = Vec::new();
    for host in &hosts.hosts {
        // Shares of a group are those of the host's own jobs.
        let mut of_host = RunResult { jobs: host.jobs.clone(), ..RunResult::default() };
        of_host.provenance.clone_from(&run.provenance);
        for entry in &host.jobs {
            let mut entry = job(entry, &of_host, plus);
            entry.push(("hostname".into(), Text(host.host.clone())));
            all.push(Object(entry));
        }
    }
    let mut jobs = run.jobs.iter();
    if let Some(first) = jobs.next() {
        let mut sum = first.clone();
        jobs.for_each(|job| sum.merge(job));
        sum.name = "All clients".into();
        (sum.group, sum.options, sum.description) = (0, Vec::new(), None);
        let of_all = RunResult { jobs: vec![sum], ..RunResult::default() };
        all.push(Object(job(&of_all.jobs[0], &of_all, plus)));
    }
    all
}

fn options(options: &[(String, String)]) -> Vec<(String, Json)> {
    // fio leaves out options that stand without a value, as `stonewall` does.
    let valued = options.iter().filter(|(_, value)| !value.is_empty());
    valued.map(|(name, value)| (name.clone(), Text(value.clone()))).collect()
}

fn job(job: &JobResult, run: &RunResult, plus: bool) -> Vec<(String, Json)> {
    let mut out = object([
        ("jobname", Text(job.name.clone())),
        ("groupid", Integer(job.group.into())),
        ("job_start", Integer(job.start_unix_ms)),
        ("error", Integer(error_number(job).into())),
        ("eta", Integer(run.remaining_ns.unwrap_or(0).div_ceil(1_000_000_000))),
        ("elapsed", Integer(elapsed_s(job, run))),
    ]);
    let options = options(&job.options);
    if !options.is_empty() {
        out.push(("job options".into(), Object(options)));
    }
    let unified = job.reporting.unified;
    if unified != Unified::Mixed {
        for (direction, result) in job.directions.iter() {
            let section = directed(job, result, &[direction], run, plus);
            out.push((direction.name().into(), Object(section)));
        }
        let sync = latency(&job.sync.lat_ns, Some(&job.reporting.percentiles), plus);
        out.push((
            "sync".into(),
            Object(object([("total_ios", Integer(job.sync.lat_ns.count())), ("lat_ns", Object(sync))])),
        ));
    }
    if unified != Unified::None {
        out.push(("mixed".into(), Object(directed(job, &mixed(job), &Direction::ALL, run, plus))));
    }

    let clones = u64::from(job.clones.max(1));
    let (user, system) = figures::cpu_percent(job);
    out.extend(object([
        ("job_runtime", Integer(job.runtime_ns / 1_000_000 * clones)),
        ("usr_cpu", Float(user)),
        ("sys_cpu", Float(system)),
        ("ctx", Integer(job.cpu.context_switches)),
        ("majf", Integer(job.cpu.major_faults)),
        ("minf", Integer(job.cpu.minor_faults)),
        ("iodepth_level", levels(job)),
        ("iodepth_submit", calls(&job.depth.submitted)),
        ("iodepth_complete", calls(&job.depth.completed)),
    ]));
    out.extend(latency_ranges(job));
    if job.continue_on_error {
        let failed = job.directions.iter().map(|(_, result)| result.failed_ops).sum();
        let first = job.first_error.map_or(0, i32::unsigned_abs).into();
        out.extend(object([("total_err", Integer(failed)), ("first_error", Integer(first))]));
    }
    // Beyond fio: events that distort the figures, if there were any.
    if job.disturbances != Disturbances::default() {
        let counts = job.disturbances.counts();
        let counts = counts.into_iter().map(|(name, _, count)| (name.into(), Integer(count))).collect();
        out.push(("disturbances".into(), Object(counts)));
    }
    let target = figures::latency_target(job);
    out.extend(object([
        ("latency_depth", Integer(target.depth.into())),
        ("latency_target", Integer(target.target_ns)), // fio has nanoseconds here, and microseconds in the window
        ("latency_percentile", Float(target.percentile)),
        ("latency_window", Integer(target.window_ns / 1000)),
    ]));
    if let Some(description) = job.description.as_ref().filter(|text| !text.is_empty()) {
        out.push(("desc".into(), Text(description.clone())));
    }
    if let Some(steady) = &job.steady_state {
        out.push(("steadystate".into(), Object(steady_state(steady))));
    }
    out
}

/// Seconds from the start of the program to the document, as fio counts them, and not those of the job alone.
fn elapsed_s(job: &JobResult, run: &RunResult) -> u64 {
    match run.taken_unix_ms {
        Some(taken_ms) => taken_ms.saturating_sub(run.provenance.started_unix_ms).div_ceil(1000),
        None => job.elapsed_ns.div_ceil(1_000_000_000),
    }
}

/// `read`, `write`, `trim` or `mixed`.
fn directed(
    job: &JobResult,
    result: &DirectionResult,
    directions: &[Direction],
    run: &RunResult,
    plus: bool,
) -> Vec<(String, Json)> {
    let figures = Figures::of(job, result, directions, run);
    let reporting = &job.reporting;
    let listed = |wanted: bool| wanted.then_some(reporting.percentiles.as_slice());
    let mut out = object([
        ("io_bytes", Integer(result.bytes)),
        ("io_kbytes", Integer(result.bytes >> 10)),
        ("bw_bytes", Integer(figures.bytes_per_second as u64)),
        ("bw", Integer((figures.bytes_per_second / 1024.0) as u64)),
        ("iops", Float(figures.iops)),
        ("runtime", Integer(figures.runtime_ms)),
        ("total_ios", Integer(result.ops)),
        ("short_ios", Integer(result.short_ops)),
        ("drop_ios", Integer(result.dropped_ops)),
        ("slat_ns", Object(latency(&result.slat_ns, listed(reporting.slat_percentiles), plus))),
        ("clat_ns", Object(latency(&result.clat_ns, listed(reporting.clat_percentiles), plus))),
        ("lat_ns", Object(latency(&result.lat_ns, listed(reporting.lat_percentiles), plus))),
    ]);
    let seen = figures::priorities(result);
    if !seen.is_empty() {
        let wanted = listed(reporting.lat_percentiles || reporting.clat_percentiles);
        let one = |one: &PriorityLatency| {
            let (name, histogram) =
                if reporting.lat_percentiles { ("lat_ns", &one.lat_ns) } else { ("clat_ns", &one.clat_ns) };
            Object(object([
                ("prioclass", Integer(one.class().into())),
                ("prio", Integer(one.level().into())),
                (name, Object(latency(histogram, wanted, plus))),
            ]))
        };
        out.push(("prios".into(), Array(seen.into_iter().map(one).collect())));
    }
    let (bw, iops) = (figures.bw, figures.iops_sampled);
    out.extend(object([
        ("bw_min", Integer(bw.least as u64)),
        ("bw_max", Integer(bw.most as u64)),
        ("bw_agg", Float(figures.share_percent)),
        ("bw_mean", Float(bw.mean)),
        ("bw_dev", Float(bw.deviation)),
        ("bw_samples", Integer(bw.count)),
        ("iops_min", Integer(iops.least as u64)),
        ("iops_max", Integer(iops.most as u64)),
        ("iops_mean", Float(iops.mean)),
        ("iops_stddev", Float(iops.deviation)),
        ("iops_samples", Integer(iops.count)),
    ]));
    out
}

fn latency(histogram: &Histogram, percentiles: Option<&[f64]>, plus: bool) -> Vec<(String, Json)> {
    let mut out = object([
        ("min", Integer(histogram.min())),
        ("max", Integer(histogram.max())),
        ("mean", Float(histogram.mean())),
        ("stddev", Float(histogram.stddev())),
        ("N", Integer(histogram.count())),
    ]);
    if let Some(percentiles) = percentiles.filter(|_| !histogram.is_empty()) {
        let bins = bins(histogram);
        let listed = percentiles.iter().map(|&p| (format!("{p:.6}"), Integer(percentile(&bins, histogram.count(), p))));
        out.push(("percentile".into(), Object(listed.collect())));
        if plus {
            let bins = bins.iter().map(|(value, n)| (value.to_string(), Integer(*n)));
            out.push(("bins".into(), Object(bins.collect())));
        }
    }
    out
}

/// Samples by the value of fio's bucket, ascending. Each of our buckets lies within one of fio's.
pub(crate) fn bins(histogram: &Histogram) -> BTreeMap<u64, u64> {
    let mut bins = BTreeMap::new();
    for (lower, _, n) in histogram.buckets() {
        *bins.entry(fio_bucket(lower)).or_insert(0) += n;
    }
    bins
}

/// The middle of the bucket that fio counts `value` in (stat.c: plat_val_to_idx, plat_idx_to_val).
fn fio_bucket(value: u64) -> u64 {
    const BITS: u32 = 6;
    let highest = 63 - (value | 1).leading_zeros();
    if highest <= BITS {
        return value;
    }
    let error_bits = highest - BITS;
    (value >> error_bits << error_bits) + (1 << (error_bits - 1))
}

/// The value of the first bin up to which at least `p` percent of the samples lie.
pub(crate) fn percentile(bins: &BTreeMap<u64, u64>, count: u64, p: f64) -> u64 {
    let mut seen = 0;
    for (&value, n) in bins {
        seen += n;
        if seen as f64 >= p / 100.0 * count as f64 {
            return value;
        }
    }
    bins.keys().next_back().copied().unwrap_or(0)
}

/// The share of `n` in `total` in percent; what occurred at all is not written as less than `least`.
fn share(n: u64, total: u64, least: f64) -> f64 {
    if n == 0 || total == 0 { 0.0 } else { (100.0 * n as f64 / total as f64).max(least) }
}

/// Depths at submission: 1, 2-3, 4-7, ..., 64 and more, in percent of all ops.
pub(crate) fn depth_levels(job: &JobResult) -> Vec<(&'static str, f64)> {
    let names = ["1", "2", "4", "8", "16", "32", ">=64"];
    let total = job.total_ops();
    let counts = &job.depth.in_flight;
    let at = |index: usize| counts.get(index).copied().unwrap_or(0);
    let count = |index: usize| if index == 6 { counts.iter().skip(6).sum() } else { at(index) };
    (0..7).map(|index| (names[index], share(count(index), total, 0.1))).collect()
}

fn levels(job: &JobResult) -> Json {
    Object(depth_levels(job).into_iter().map(|(name, percent)| (name.to_string(), Float(percent))).collect())
}

/// Ops a call, from powers of two to fio's 0, 1-4, 5-8, ..., more than 64.
pub(crate) fn call_sizes(counts: &[u64]) -> Vec<(&'static str, f64)> {
    let at = |index: usize| counts.get(index).copied().unwrap_or(0);
    let total: u64 = counts.iter().sum();
    let of_name = [
        ("0", at(0)),
        ("4", at(1) + at(2)),
        ("8", at(3)),
        ("16", at(4)),
        ("32", at(5)),
        ("64", at(6)),
        (">=64", counts.iter().skip(7).sum()),
    ];
    of_name.into_iter().map(|(name, n)| (name, share(n, total, 0.1))).collect()
}

fn calls(counts: &[u64]) -> Json {
    Object(call_sizes(counts).into_iter().map(|(name, percent)| (name.to_string(), Float(percent))).collect())
}

/// fio's latency ranges: (unit, upper ends in that unit, the unit's nanoseconds).
const RANGES: [(&str, &[u64], u64); 3] = [
    ("latency_ns", &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000], 1),
    ("latency_us", &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000], 1_000),
    ("latency_ms", &[2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000, u64::MAX], 1_000_000),
];

/// Each unit's ranges of completion latency with their percentage of all ops.
pub(crate) fn latency_shares(job: &JobResult) -> Vec<(&'static str, Vec<(String, f64)>)> {
    let mut clat = Histogram::new();
    job.directions.iter().for_each(|(_, result)| clat.merge(&result.clat_ns));
    let total = job.total_ops();
    let mut buckets = clat.buckets().map(|(lower, upper, n)| (lower + (upper - lower) / 2, n)).peekable();
    let mut section = |ends: &[u64], unit: u64| {
        let mut one = |&end: &u64| {
            let mut n = 0;
            while let Some((_, in_bucket)) = buckets.next_if(|&(middle, _)| middle < end.saturating_mul(unit)) {
                n += in_bucket;
            }
            let name = if end == u64::MAX { ">=2000".to_string() } else { end.to_string() };
            (name, share(n, total, 0.01))
        };
        ends.iter().map(&mut one).collect::<Vec<_>>()
    };
    RANGES.iter().map(|(name, ends, unit)| (*name, section(ends, *unit))).collect()
}

fn latency_ranges(job: &JobResult) -> Vec<(String, Json)> {
    let of = |shares: Vec<(String, f64)>| Object(shares.into_iter().map(|(name, part)| (name, Float(part))).collect());
    latency_shares(job).into_iter().map(|(name, shares)| (name.to_string(), of(shares))).collect()
}

fn steady_state(steady: &SteadyState) -> Vec<(String, Json)> {
    let sign = if steady.percent { "%" } else { "" };
    let numbers = |values: &[u64]| Array(values.iter().map(|&value| Integer(value)).collect());
    let mean = |values: &[u64]| Integer(values.iter().sum::<u64>() / values.len().max(1) as u64);
    let data = object([
        ("bw_mean", mean(&steady.bytes_per_second)),
        ("iops_mean", mean(&steady.iops)),
        ("iops", numbers(&steady.iops)),
        ("bw", numbers(&steady.bytes_per_second)),
    ]);
    object([
        ("ss", Text(format!("{}:{:.6}{sign}", steady.criterion, steady.limit))),
        ("duration", Integer(steady.duration_ns / 1_000_000_000)),
        ("attained", Integer(steady.attained.into())),
        ("criterion", Text(format!("{:.6}{sign}", steady.value))),
        ("max_deviation", Float(steady.max_deviation)),
        ("slope", Float(steady.slope)),
        ("data", Object(data)),
    ])
}

fn disk(disk: &DiskUtil) -> Vec<(String, Json)> {
    object([
        ("name", Text(disk.name.clone())),
        ("read_ios", Integer(disk.ios.0)),
        ("write_ios", Integer(disk.ios.1)),
        ("read_merges", Integer(disk.merges.0)),
        ("write_merges", Integer(disk.merges.1)),
        ("read_ticks", Integer(disk.ticks_ms.0)),
        ("write_ticks", Integer(disk.ticks_ms.1)),
        ("in_queue", Integer(disk.in_queue_ms)),
        ("util", Float(disk.util_percent)),
    ])
}

/// Writes a value in fio's layout: two spaces a level, ` : ` between key and value, arrays of numbers as those of
/// objects.
fn write_value(out: &mut String, value: &Json, level: usize) {
    let indent = |out: &mut String, level: usize| out.extend(std::iter::repeat_n("  ", level));
    match value {
        Integer(number) => {
            let _ = write!(out, "{number}");
        }
        Float(number) => {
            // JSON has no NaN and no infinity.
            let _ = write!(out, "{:.6}", if number.is_finite() { *number } else { 0.0 });
        }
        Text(text) => out.push_str(&serde_json::to_string(text).expect("strings are valid JSON")),
        Object(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "\n" } else { ",\n" });
                indent(out, level + 1);
                let _ = write!(out, "{} : ", serde_json::to_string(key).expect("strings are valid JSON"));
                write_value(out, value, level + 1);
            }
            out.push('\n');
            indent(out, level);
            out.push('}');
        }
        Array(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                out.push_str(if index == 0 { "\n" } else { ",\n" });
                indent(out, level + 1);
                write_value(out, value, level + 1);
            }
            out.push('\n');
            indent(out, level);
            out.push(']');
        }
    }
}

//! The figures that fio reports, as its JSON and its text have them: both are written from here and cannot differ.

use measure::schema::{DirectionResult, Interval, JobResult, LatencyTarget, PriorityLatency, RunResult};
use measure::{Direction, stats};

/// Throughput of one direction of a job, or of all as one.
pub(crate) struct Figures {
    pub bytes_per_second: f64,
    pub iops: f64,
    pub runtime_ms: u64,
    /// KiB a second, over the job's intervals.
    pub bw: Samples,
    pub iops_sampled: Samples,
    /// The mean of the samples in percent of the whole group's bandwidth.
    pub share_percent: f64,
}

/// Extremes and moments of figures over time.
pub(crate) struct Samples {
    pub least: f64,
    pub most: f64,
    pub mean: f64,
    pub deviation: f64,
    pub count: u64,
}

impl Samples {
    fn of(values: &[f64]) -> Samples {
        Samples {
            least: values.iter().copied().reduce(f64::min).unwrap_or(0.0),
            most: values.iter().copied().fold(0.0, f64::max),
            mean: stats::mean(values),
            deviation: stats::variance(values).sqrt(),
            count: values.len() as u64,
        }
    }
}

impl Figures {
    /// `result` is that of `directions` together.
    pub(crate) fn of(job: &JobResult, result: &DirectionResult, directions: &[Direction], run: &RunResult) -> Figures {
        let seconds = result.runtime_ns as f64 / 1e9;
        let per_second = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let sum = |interval: &Interval, of: fn(&Interval, Direction) -> u64| -> f64 {
            directions.iter().map(|&direction| of(interval, direction)).sum::<u64>() as f64 * 1e9
                / interval.length_ns as f64
        };
        let active = result.ops > 0;
        let bw: Vec<f64> = samples(job, active).map(|interval| sum(interval, |i, d| i.bytes[d]) / 1024.0).collect();
        let iops: Vec<f64> = samples(job, active).map(|interval| sum(interval, |i, d| i.ops[d])).collect();
        let bw = Samples::of(&bw);
        let group: f64 = run
            .jobs
            .iter()
            .filter(|other| other.group == job.group)
            .flat_map(|other| directions.iter().map(move |&direction| &other.directions[direction]))
            .filter(|other| other.runtime_ns > 0)
            .map(|other| other.bytes as f64 * 1e9 / other.runtime_ns as f64 / 1024.0)
            .sum();
        Figures {
            bytes_per_second: per_second(result.bytes),
            iops: per_second(result.ops),
            runtime_ms: milliseconds(result.runtime_ns),
            share_percent: if group > 0.0 { (100.0 * bw.mean / group).min(100.0) } else { 0.0 },
            bw,
            iops_sampled: Samples::of(&iops),
        }
    }
}

/// The intervals whose figures count, if the direction was active: those that are at least half as long as asked.
pub(crate) fn samples(job: &JobResult, active: bool) -> impl Iterator<Item = &Interval> {
    let whole = |interval: &&Interval| interval.length_ns > 0 && interval.length_ns * 2 >= job.interval_ns;
    job.intervals.iter().filter(whole).filter(move |_| active)
}

/// Rounded, but what ran at all ran for a millisecond.
pub(crate) fn milliseconds(ns: u64) -> u64 {
    if ns == 0 { 0 } else { ((ns + 500_000) / 1_000_000).max(1) }
}

/// The moment of the report: the end of the run, or of a status within it.
pub(crate) fn taken_unix_ms(run: &RunResult) -> u64 {
    let longest_ms = run.jobs.iter().map(|job| job.elapsed_ns / 1_000_000).max().unwrap_or(0);
    run.taken_unix_ms.unwrap_or(run.provenance.started_unix_ms + longest_ms)
}

/// Processor time in user mode and in the kernel, in percent of the time of the job's clones.
pub(crate) fn cpu_percent(job: &JobResult) -> (f64, f64) {
    let available = job.runtime_ns as f64 * f64::from(job.clones.max(1));
    let percent = |used_ns: u64| if available > 0.0 { 100.0 * used_ns as f64 / available } else { 0.0 };
    (percent(job.cpu.user_ns), percent(job.cpu.system_ns))
}

/// `latency_target` and its depth, which is 1 if none met the target; without one, the depth that the job asked for.
pub(crate) fn latency_target(job: &JobResult) -> LatencyTarget {
    let none = LatencyTarget { depth: job.facts.iodepth, target_ns: 0, window_ns: 0, percentile: 100.0 };
    job.latency_target.map_or(none, |target| LatencyTarget { depth: target.depth.max(1), ..target })
}

/// The I/O priorities that ops had; none if all ops had the same.
pub(crate) fn priorities(result: &DirectionResult) -> Vec<&PriorityLatency> {
    let seen = result.priorities.iter().filter(|one| !one.clat_ns.is_empty() || !one.lat_ns.is_empty());
    let seen: Vec<_> = seen.collect();
    if seen.len() >= 2 { seen } else { Vec::new() }
}

/// All directions of a job as one.
pub(crate) fn mixed(job: &JobResult) -> DirectionResult {
    let mut mixed = DirectionResult::default();
    job.directions.iter().for_each(|(_, result)| mixed.merge(result));
    mixed
}

/// The error of the job; without one, as in fio, that of the first failed op that the job tolerated.
pub(crate) fn error_number(job: &JobResult) -> u32 {
    job.error.as_ref().map(|error| error.errno).or(job.first_error).map_or(0, i32::unsigned_abs)
}

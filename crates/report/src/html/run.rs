//! A run on the page: each job's figures, latencies and course.

use std::fmt::Write;

use measure::figures::{bytes, bytes_per_second, count, nanoseconds, percent, plain};
use measure::schema::{Document, Interval, JobResult, RunResult};
use measure::{Direction, Histogram};

use super::{NamedDocument, Table, cards, distribution_chart, percentile_chart, tile};
use crate::svg::{Axis, Chart, Format, Series, escape};
use crate::text::{described, grouped, in_flight, names};

/// The section of a page on one run.
pub(super) fn section(run: &RunResult) -> String {
    let mut out = String::new();
    if run.jobs.len() > 1 {
        out.push_str("<h2>All jobs</h2>");
        let groups = groups(run);
        let named = names(&run.jobs).into_iter().zip(&run.jobs);
        let jobs = named.map(|(name, job)| (name, job, in_flight(job).0));
        let groups = groups.iter().map(|(name, job, in_flight)| (name.clone(), job, *in_flight));
        out.push_str(&overview(jobs.chain(groups)));
    }
    if let Some(hosts) = &run.hosts {
        out.push_str(&super::hosts::section(hosts, (&run.jobs, &[])));
    }
    for (name, job) in names(&run.jobs).iter().zip(&run.jobs) {
        out.push_str(&one(name, job));
    }
    if !run.disks.is_empty() {
        out.push_str("<h3>Disks</h3>");
        let mut table = Table::new(&[
            "disk",
            "util",
            "reads",
            "writes",
            "merged reads",
            "merged writes",
            "time in requests",
            "in queue",
        ]);
        for disk in &run.disks {
            table.row(
                "",
                &[
                    ("", disk.name.clone()),
                    ("", percent(disk.util_percent / 100.0)),
                    ("", grouped(disk.ios.0)),
                    ("", grouped(disk.ios.1)),
                    ("", grouped(disk.merges.0)),
                    ("", grouped(disk.merges.1)),
                    ("", nanoseconds((disk.ticks_ms.0 + disk.ticks_ms.1) as f64 * 1e6)),
                    ("", nanoseconds(disk.in_queue_ms as f64 * 1e6)),
                ],
            );
        }
        out.push_str(&table.end());
    }
    out
}

/// The results of the run, in one sentence: the throughput of each direction, all jobs together, and the latencies.
pub(super) fn headline(run: &RunResult) -> String {
    let mut parts = Vec::new();
    for direction in Direction::ALL {
        let rate = |job: &JobResult| {
            let result = &job.directions[direction];
            let seconds = (result.runtime_ns as f64 / 1e9).max(1e-9);
            (result.ops > 0).then_some((result.ops as f64 / seconds, result.bytes as f64 / seconds))
        };
        let rates: Vec<(f64, f64)> = run.jobs.iter().filter_map(rate).collect();
        if rates.is_empty() {
            continue;
        }
        let (iops, bytes) = rates.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut lat_ns = Histogram::new();
        run.jobs.iter().for_each(|job| lat_ns.merge(&job.directions[direction].lat_ns));
        let latency = match lat_ns.is_empty() {
            true => String::new(),
            false => format!(" at {}", nanoseconds(lat_ns.mean())),
        };
        parts.push(format!("{} {} IOPS, {}{latency}", direction.name(), count(iops), bytes_per_second(bytes)));
    }
    parts.join("; ")
}

/// The sum of each group of several jobs as a job, and the requests in flight of all of them.
fn groups(run: &RunResult) -> Vec<(String, JobResult, f64)> {
    let mut numbers: Vec<u32> = run.jobs.iter().map(|job| job.group).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let sum = |number: u32| {
        let mut jobs = run.jobs.iter().filter(|job| job.group == number);
        let mut all = jobs.next()?.clone();
        let rest: Vec<&JobResult> = jobs.collect();
        if rest.is_empty() {
            return None;
        }
        let depth = in_flight(&all).0 + rest.iter().map(|job| in_flight(job).0).sum::<f64>();
        rest.into_iter().for_each(|job| all.merge(job));
        (all.facts.rw, all.facts.engine, all.facts.iodepth) = Default::default();
        Some((format!("group {number}, together"), all, depth))
    };
    numbers.into_iter().filter_map(sum).collect()
}

fn rates(job: &JobResult) -> (f64, f64) {
    let seconds = (job.runtime_ns as f64 / 1e9).max(1e-9);
    (job.total_ops() as f64 / seconds, job.total_bytes() as f64 / seconds)
}

fn overview<'a>(jobs: impl Iterator<Item = (String, &'a JobResult, f64)>) -> String {
    let mut table = Table::new(&[
        "job",
        "what",
        "IOPS",
        "bandwidth",
        "lat mean",
        "p50",
        "p99",
        "p99.9",
        "max",
        "CPU",
        "in flight",
        "time",
    ]);
    for (name, job, in_flight) in jobs {
        let (iops, bw) = rates(job);
        let lat = job.lat_ns();
        let available = (job.runtime_ns as f64 * f64::from(job.clones.max(1))).max(1.0);
        table.row(
            "",
            &[
                ("", name),
                ("left", described(job)),
                ("", count(iops)),
                ("", bytes_per_second(bw)),
                ("", nanoseconds(lat.mean())),
                ("", nanoseconds(lat.quantile(0.5) as f64)),
                ("", nanoseconds(lat.quantile(0.99) as f64)),
                ("", nanoseconds(lat.quantile(0.999) as f64)),
                ("", nanoseconds(lat.max() as f64)),
                ("", percent((job.cpu.user_ns + job.cpu.system_ns) as f64 / available)),
                ("", plain(in_flight)),
                ("", nanoseconds(job.runtime_ns as f64)),
            ],
        );
    }
    table.end()
}

fn one(name: &str, job: &JobResult) -> String {
    let mut out = String::new();
    let _ = write!(out, "<h2>{}<small>{}</small></h2>", escape(name), escape(&described(job)));
    if let Some(description) = &job.description {
        let _ = write!(out, "<p class=\"about\">{}</p>", escape(description));
    }
    if let Some(error) = &job.error {
        let _ = write!(
            out,
            "<div class=\"verdict invalid\"><span class=\"severity\">error {}</span><span class=\"what\"><b>{}</b></span></div>",
            error.errno,
            escape(&error.message)
        );
    }
    out.push_str("<div class=\"tiles\">");
    for (direction, result) in job.directions.iter().filter(|(_, result)| result.ops > 0) {
        let seconds = (result.runtime_ns as f64 / 1e9).max(1e-9);
        let more = format!("{} ops in {}", grouped(result.ops), nanoseconds(result.runtime_ns as f64));
        let name = direction.name();
        out.push_str(&tile(&format!("{name} IOPS"), &count(result.ops as f64 / seconds), &more, true));
        let more = format!("{} in total", bytes(result.bytes as f64));
        out.push_str(&tile(
            &format!("{name} bandwidth"),
            &bytes_per_second(result.bytes as f64 / seconds),
            &more,
            false,
        ));
        let lat = if result.lat_ns.is_empty() { &result.clat_ns } else { &result.lat_ns };
        if !lat.is_empty() {
            let more = format!(
                "p50 {}, p99 {}",
                nanoseconds(lat.quantile(0.5) as f64),
                nanoseconds(lat.quantile(0.99) as f64)
            );
            out.push_str(&tile(&format!("{name} latency, mean"), &nanoseconds(lat.mean()), &more, false));
        }
    }
    if job.total_ops() > 0 {
        let available = (job.runtime_ns as f64 * f64::from(job.clones.max(1))).max(1.0);
        let (user, system) = (job.cpu.user_ns as f64 / available, job.cpu.system_ns as f64 / available);
        let an_op = (job.cpu.user_ns + job.cpu.system_ns) as f64 / job.total_ops() as f64;
        let more = format!("user {}, system {}; {} an op", percent(user), percent(system), nanoseconds(an_op));
        out.push_str(&tile("CPU", &percent(user + system), &more, false));
        let (depth, asked) = in_flight(job);
        let more = format!("in flight on average, of {asked} asked");
        out.push_str(&tile("Depth", &plain(depth), &more, false));
    }
    out.push_str("</div>");

    let mut charts = Vec::new();
    charts.extend(percentile_chart("Latency percentiles", latencies(job)));
    // Between the percentiles of fio's summary no density is known.
    let totals = job.directions.iter().filter(|(_, result)| !result.lat_ns.is_empty() && !result.from_percentiles);
    let totals: Vec<_> =
        totals.map(|(direction, result)| (direction.name().to_string(), result.lat_ns.clone())).collect();
    charts.extend(distribution_chart("Latency distribution (lat)", &totals));
    charts.extend(course(&[(String::new(), job)]));
    out.push_str(&cards(charts));
    out.push_str(&latency_table(job));
    if !job.options.is_empty() {
        let options: Vec<String> = job.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = write!(
            out,
            "<details><summary>Options</summary><p><code>{}</code></p></details>",
            escape(&options.join(" "))
        );
    }
    for note in &job.facts.notes {
        let _ = write!(out, "<p class=\"about\">{}</p>", escape(note));
    }
    out
}

/// Each direction's slat, clat, lat, and from the intended start, as far as there are any.
fn latencies(job: &JobResult) -> Vec<(String, Histogram)> {
    let mut out = Vec::new();
    let active = job.directions.iter().filter(|(_, result)| result.ops > 0).count();
    for (direction, result) in job.directions.iter() {
        let prefix = if active > 1 { format!("{} ", direction.name()) } else { String::new() };
        let named = [
            ("submission (slat)", Some(&result.slat_ns)),
            ("completion (clat)", Some(&result.clat_ns)),
            ("total (lat)", Some(&result.lat_ns)),
            ("from intended start", result.lat_intended_ns.as_ref()),
        ];
        for (name, histogram) in named {
            if let Some(histogram) = histogram.filter(|histogram| !histogram.is_empty()) {
                out.push((format!("{prefix}{name}"), histogram.clone()));
            }
        }
    }
    if !job.sync.lat_ns.is_empty() {
        out.push(("sync".into(), job.sync.lat_ns.clone()));
    }
    out
}

fn latency_table(job: &JobResult) -> String {
    let rows = latencies(job);
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        "latency", "samples", "min", "mean", "stdev", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max",
    ]);
    for (name, histogram) in rows {
        let known = histogram.has_shape();
        let quantile = |q: f64| ("", if known { nanoseconds(histogram.quantile(q) as f64) } else { "-".into() });
        table.row(
            "",
            &[
                ("", name),
                ("", grouped(histogram.count())),
                ("", nanoseconds(histogram.min() as f64)),
                ("", nanoseconds(histogram.mean())),
                ("", nanoseconds(histogram.stddev())),
                quantile(0.5),
                quantile(0.9),
                quantile(0.95),
                quantile(0.99),
                quantile(0.999),
                quantile(0.9999),
                ("", nanoseconds(histogram.max() as f64)),
            ],
        );
    }
    table.end()
}

fn whole(job: &JobResult) -> impl Iterator<Item = &Interval> {
    job.intervals.iter().filter(|interval| interval.length_ns > 0 && interval.length_ns * 2 >= job.interval_ns)
}

/// (seconds, IOPS) of all directions together.
pub(super) fn iops_over_time(job: &JobResult) -> Vec<(f64, f64)> {
    let rate = |interval: &Interval| {
        Direction::ALL.iter().map(|&d| interval.ops[d]).sum::<u64>() as f64 * 1e9 / interval.length_ns as f64
    };
    whole(job).map(|interval| (interval.end_ns as f64 / 1e9, rate(interval))).collect()
}

/// IOPS and mean latency over time, for any number of jobs; a direction has a line of its own where there are several.
fn course(jobs: &[(String, &JobResult)]) -> Vec<Chart> {
    let time = || Axis::linear("time").format(Format::Seconds);
    let mut iops = Chart::new("IOPS over time").x(time()).y(Axis::linear("IOPS").format(Format::Count));
    let mut latency =
        Chart::new("Mean latency over time").x(time()).y(Axis::linear("latency").format(Format::Nanoseconds));
    let (mut any_iops, mut any_latency) = (false, false);
    for (name, job) in jobs {
        for direction in Direction::ALL.into_iter().filter(|&direction| job.directions[direction].ops > 0) {
            let called = format!("{name} {}", direction.name()).trim().to_string();
            let at = |interval: &Interval| interval.end_ns as f64 / 1e9;
            let rate: Vec<_> =
                whole(job).map(|i| (at(i), i.ops[direction] as f64 * 1e9 / i.length_ns as f64)).collect();
            any_iops |= rate.len() > 1;
            iops = iops.series(Series::line(&called, rate));
            let with_ops = whole(job).filter(|interval| interval.ops[direction] > 0);
            let means: Vec<_> =
                with_ops.map(|i| (at(i), i.lat_sum_ns[direction] as f64 / i.ops[direction] as f64)).collect();
            any_latency |= means.len() > 1 && means.iter().any(|(_, mean)| *mean > 0.0);
            latency = latency.series(Series::line(&called, means));
        }
    }
    [(any_iops, iops), (any_latency, latency)].into_iter().filter_map(|(any, chart)| any.then_some(chart)).collect()
}

/// The jobs of all runs in one table and the same charts.
pub(super) fn side_by_side(documents: &[NamedDocument]) -> String {
    let jobs: Vec<(String, &JobResult)> = documents
        .iter()
        .filter_map(|named| match &named.document {
            Document::Run(run) => Some((named, run)),
            _ => None,
        })
        .flat_map(|(named, run)| run.jobs.iter().map(move |job| (format!("{} {}", named.name, job.name), job)))
        .collect();
    if jobs.len() < 2 || documents.iter().filter(|named| matches!(named.document, Document::Run(_))).count() < 2 {
        return String::new();
    }
    let mut out = String::from("<h2>Runs side by side</h2>");
    out.push_str(&overview(jobs.iter().map(|(name, job)| (name.clone(), *job, in_flight(job).0))));
    let mut charts = Vec::new();
    charts.extend(percentile_chart(
        "Latency percentiles",
        jobs.iter().map(|(name, job)| (name.clone(), job.lat_ns())).collect(),
    ));
    charts.extend(course(&jobs));
    out + &cards(charts)
}

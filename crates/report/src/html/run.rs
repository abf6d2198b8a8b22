//! A run on the page: each job's figures, latencies and course.

use std::fmt::Write;

use measure::figures::{bytes, bytes_per_second, count, nanoseconds, percent, plain};
use measure::schema::{DirectionResult, Document, Interval, JobResult, RunResult};
use measure::{Direction, Histogram};

use super::{NamedDocument, Table, cards, distribution_chart, disturbed, folded, percentile_chart, tile};
use crate::svg::{Axis, Chart, Format, Picture, Series, escape};
use crate::text::{described, grouped, in_flight, names};

/// Jobs up to which all stand open on the page, and up to which their courses share a chart.
const OPEN: usize = 2;
const TOGETHER: usize = 8;

/// The section of a page on one run.
pub(super) fn section(run: &RunResult) -> String {
    let mut out = String::new();
    let names = names(&run.jobs);
    if run.jobs.len() > 1 {
        out.push_str("<h2>All jobs</h2>");
        let jobs = names.iter().zip(&run.jobs).map(|(name, job)| Line::of(name, job));
        let lines: Vec<Line> = jobs.chain(totals(run)).collect();
        out.push_str(&overview("All jobs", &lines));
        if run.jobs.len() <= TOGETHER {
            let named: Vec<(String, &JobResult)> = names.iter().cloned().zip(&run.jobs).collect();
            out.push_str(&cards(course(&named)));
        }
    }
    if let Some(hosts) = &run.hosts {
        out.push_str(&super::hosts::section(hosts, &run.jobs, &[]));
    }
    for (index, (name, job)) in names.iter().zip(&run.jobs).enumerate() {
        let (what, contents) = (described(job), one(name, job));
        match run.jobs.len() > OPEN {
            true => out.push_str(&folded(&format!("{name}: {what}"), index == 0, &contents)),
            false => {
                let _ = write!(out, "<h2>{}<small>{}</small></h2>{contents}", escape(name), escape(&what));
            }
        }
    }
    out.push_str(&disks(run));
    out
}

fn disks(run: &RunResult) -> String {
    let mut out = String::new();
    if !run.disks.is_empty() {
        out.push_str("<h3>Disks</h3>");
        let header =
            ["disk", "util", "reads", "writes", "merged reads", "merged writes", "time in requests", "in queue"];
        let mut table = Table::new("Disks", &header);
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

/// Groups of jobs up to which the headline names them all.
const HEADLINES: usize = 3;

/// The results of the run, in one sentence: the throughput and the latency of each direction. Groups may run one after
/// the other, so that their rates are not added.
pub(super) fn headline(run: &RunResult) -> String {
    let groups = groups(run);
    let mut parts = Vec::new();
    for jobs in groups.iter().take(HEADLINES) {
        let said = of_group(jobs);
        if said.is_empty() {
            continue;
        }
        let name = match jobs[..] {
            [one] => one.name.clone(),
            [first, ..] => format!("group {}", first.group),
            [] => continue,
        };
        parts.push(if groups.len() > 1 { format!("{name}: {said}") } else { said });
    }
    let more = groups.len().saturating_sub(HEADLINES);
    let more = if more > 0 { format!("; and {more} more groups of jobs") } else { String::new() };
    parts.join("; ") + &more
}

/// The throughput and mean latency of each direction of jobs that run at the same time.
fn of_group(jobs: &[&JobResult]) -> String {
    let mut parts = Vec::new();
    for direction in Direction::ALL {
        let rate = |job: &&JobResult| {
            let result = &job.directions[direction];
            let seconds = (result.runtime_ns as f64 / 1e9).max(1e-9);
            (result.ops > 0).then_some((result.ops as f64 / seconds, result.bytes as f64 / seconds))
        };
        let rates: Vec<(f64, f64)> = jobs.iter().filter_map(rate).collect();
        if rates.is_empty() {
            continue;
        }
        let (iops, bytes) = rates.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let mut lat_ns = Histogram::new();
        jobs.iter().for_each(|job| lat_ns.merge(latency(&job.directions[direction])));
        let latency = match lat_ns.is_empty() {
            true => String::new(),
            false => format!(", mean latency {}", nanoseconds(lat_ns.mean())),
        };
        parts.push(format!("{} {} IOPS, {}{latency}", direction.name(), count(iops), bytes_per_second(bytes)));
    }
    parts.join(", ")
}

/// The latency of whole requests, or that of completion where a result has no other.
fn latency(result: &DirectionResult) -> &Histogram {
    if result.lat_ns.is_empty() { &result.clat_ns } else { &result.lat_ns }
}

/// The jobs of each group, by the group's number.
fn groups(run: &RunResult) -> Vec<Vec<&JobResult>> {
    let mut groups = std::collections::BTreeMap::<u32, Vec<&JobResult>>::new();
    run.jobs.iter().for_each(|job| groups.entry(job.group).or_default().push(job));
    groups.into_values().collect()
}

/// A line of the table of jobs: a job or the total of a group.
struct Line {
    name: String,
    what: String,
    job: JobResult,
    in_flight: f64,
    total: bool,
}

impl Line {
    fn of(name: &str, job: &JobResult) -> Line {
        Line { name: name.into(), what: described(job), in_flight: in_flight(job).0, job: job.clone(), total: false }
    }
}

/// The total of each group of several jobs.
fn totals(run: &RunResult) -> impl Iterator<Item = Line> {
    let total = |jobs: Vec<&JobResult>| {
        let (first, rest) = jobs.split_first().filter(|(_, rest)| !rest.is_empty())?;
        let mut job = (*first).clone();
        rest.iter().for_each(|other| job.merge(other));
        let name = format!("group {}, together", first.group);
        let in_flight = jobs.iter().map(|job| in_flight(job).0).sum();
        Some(Line { name, what: format!("{} jobs", jobs.len()), job, in_flight, total: true })
    };
    groups(run).into_iter().filter_map(total)
}

/// A table of jobs, with a row for each direction that a job moves data in.
fn overview(name: &str, lines: &[Line]) -> String {
    let header = [
        "job",
        "what",
        "direction",
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
    ];
    let mut table = Table::new(name, &header);
    for Line { name, what, job, in_flight, total } in lines {
        let class = if *total { "sum" } else { "" };
        let runtime = (job.runtime_ns as f64).max(1.0);
        let active = job.directions.iter().filter(|(_, result)| result.ops > 0);
        for (index, (direction, result)) in active.enumerate() {
            let seconds = (result.runtime_ns as f64 / 1e9).max(1e-9);
            let lat = latency(result);
            let at = |q: f64| if lat.has_shape() { nanoseconds(lat.quantile(q) as f64) } else { "-".into() };
            // The figures of the whole job stand in its first row.
            let whole = |text: String| ("", if index == 0 { text } else { String::new() });
            table.row(
                class,
                &[
                    ("", name.clone()),
                    ("left wide", whole(what.clone()).1),
                    ("left", direction.name().to_string()),
                    ("", count(result.ops as f64 / seconds)),
                    ("", bytes_per_second(result.bytes as f64 / seconds)),
                    ("", if lat.is_empty() { "-".into() } else { nanoseconds(lat.mean()) }),
                    ("", at(0.5)),
                    ("", at(0.99)),
                    ("", at(0.999)),
                    ("", if lat.is_empty() { "-".into() } else { nanoseconds(lat.max() as f64) }),
                    whole(percent((job.cpu.user_ns + job.cpu.system_ns) as f64 / runtime)),
                    whole(plain(*in_flight)),
                    whole(nanoseconds(job.runtime_ns as f64)),
                ],
            );
        }
    }
    table.end()
}

fn one(name: &str, job: &JobResult) -> String {
    let mut out = String::new();
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
        let way = direction.name();
        out.push_str(&tile(&format!("{way} IOPS"), &count(result.ops as f64 / seconds), &more, true));
        let more = format!("{} in total", bytes(result.bytes as f64));
        out.push_str(&tile(
            &format!("{way} bandwidth"),
            &bytes_per_second(result.bytes as f64 / seconds),
            &more,
            false,
        ));
        let lat = latency(result);
        if !lat.is_empty() {
            let more = format!(
                "p50 {}, p99 {}",
                nanoseconds(lat.quantile(0.5) as f64),
                nanoseconds(lat.quantile(0.99) as f64)
            );
            out.push_str(&tile(&format!("{way} latency, mean"), &nanoseconds(lat.mean()), &more, false));
        }
    }
    if job.total_ops() > 0 {
        let runtime = (job.runtime_ns as f64).max(1.0);
        let (user, system) = (job.cpu.user_ns as f64 / runtime, job.cpu.system_ns as f64 / runtime);
        let an_op = (job.cpu.user_ns + job.cpu.system_ns) as f64 / job.total_ops() as f64;
        let more = format!("user {}, system {}; {} an op", percent(user), percent(system), nanoseconds(an_op));
        out.push_str(&tile("CPU", &percent(user + system), &more, false));
        let (depth, asked) = in_flight(job);
        let more = format!("in flight on average, of {asked} asked");
        out.push_str(&tile("Depth", &plain(depth), &more, false));
    }
    out.push_str("</div>");

    out.push_str(&cards(charts(job)));
    out.push_str(&latency_table(&format!("Latencies of {name}"), job));
    if !job.options.is_empty() {
        let options: Vec<String> = job.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = write!(
            out,
            "<details><summary>Options</summary><p><code>{}</code></p></details>",
            escape(&options.join(" "))
        );
    }
    out.push_str(&disturbed(&job.disturbances));
    for note in &job.facts.notes {
        let _ = write!(out, "<p class=\"about\">{}</p>", escape(note));
    }
    out
}

/// The charts of one job.
fn charts(job: &JobResult) -> Vec<Chart> {
    let mut charts = Vec::new();
    charts.extend(percentile_chart("Latency percentiles", latencies(job)));
    // Between the percentiles of fio's summary no density is known.
    let totals = job.directions.iter().filter(|(_, result)| !result.lat_ns.is_empty() && !result.from_percentiles);
    let totals: Vec<_> =
        totals.map(|(direction, result)| (direction.name().to_string(), result.lat_ns.clone())).collect();
    charts.extend(distribution_chart("Latency distribution (lat)", &totals));
    charts.extend(course(&[(String::new(), job)]));
    charts
}

/// The charts of a run that stand alone: those of its job, or those of all jobs together.
pub(super) fn pictures(run: &RunResult) -> Vec<Picture> {
    match &run.jobs[..] {
        [job] => charts(job).iter().map(Picture::from).collect(),
        jobs => {
            let named: Vec<(String, &JobResult)> = names(jobs).into_iter().zip(jobs).collect();
            charts_of(&named).iter().map(Picture::from).collect()
        }
    }
}

/// The latencies and the course of several jobs in the same charts.
fn charts_of(jobs: &[(String, &JobResult)]) -> Vec<Chart> {
    let latencies = jobs.iter().map(|(name, job)| (name.clone(), job.lat_ns())).collect();
    percentile_chart("Latency percentiles", latencies).into_iter().chain(course(jobs)).collect()
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

fn latency_table(title: &str, job: &JobResult) -> String {
    let rows = latencies(job);
    if rows.is_empty() {
        return String::new();
    }
    let header = ["latency", "samples", "min", "mean", "stdev", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"];
    let mut table = Table::new(title, &header);
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

/// IOPS and mean latency over time, for any number of jobs; a direction has a separate line where there are several.
fn course(jobs: &[(String, &JobResult)]) -> Vec<Chart> {
    let time = || Axis::linear("time since the job began").format(Format::Seconds);
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

/// The jobs of all runs, by file and job; empty for fewer than two runs.
fn together(documents: &[NamedDocument]) -> Vec<(String, &JobResult)> {
    let runs: Vec<(&NamedDocument, &RunResult)> = documents
        .iter()
        .filter_map(|named| match &named.document {
            Document::Run(run) => Some((named, run)),
            _ => None,
        })
        .collect();
    if runs.len() < 2 {
        return Vec::new();
    }
    let of_run = |(named, run): &(&NamedDocument, &'_ RunResult)| {
        names(&run.jobs).into_iter().map(|name| format!("{} {name}", named.name)).collect::<Vec<_>>()
    };
    let called = runs.iter().flat_map(of_run);
    called.zip(runs.iter().flat_map(|(_, run)| &run.jobs)).collect()
}

/// The charts of all runs together.
pub(super) fn charts_together(documents: &[NamedDocument]) -> Vec<Chart> {
    charts_of(&together(documents))
}

/// The jobs of all runs in one table and the same charts.
pub(super) fn side_by_side(documents: &[NamedDocument]) -> String {
    let jobs = together(documents);
    if jobs.is_empty() {
        return String::new();
    }
    let heading = "Runs side by side";
    let lines: Vec<Line> = jobs.iter().map(|(name, job)| Line::of(name, job)).collect();
    format!("<h2>{heading}</h2>{}{}", overview(heading, &lines), cards(charts_of(&jobs)))
}

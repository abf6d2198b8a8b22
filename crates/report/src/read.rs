//! Reading results back: our own documents, and fio's JSON.

use std::collections::BTreeMap;

use measure::schema::{
    Curve, DepthDistribution, DirectionResult, DiskUtil, Document, Ended, Facts, Interval, JobError, JobResult,
    LatencyTarget, PhaseResult, Point, PriorityLatency, Reporting, RunResult, SCHEMA_VERSION, Unified, Visit, Work,
};
use measure::{Direction, Histogram};
use serde_json::{Map, Value};

/// The reason why a file is not a result: one line, without the file's name.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(String);

/// No count in a result is larger: sums of a few of them cannot overflow.
const LARGEST: u64 = 1 << 56;

/// The results in a file: our own document, or fio's `json` or `json+` output as a [`Document::Run`]. Lines of text
/// before fio's JSON (its warnings) are skipped.
///
/// # Errors
/// Any other input, with its probable kind and a remedy.
pub fn read_document(bytes: &[u8]) -> Result<Document, ReadError> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| ReadError("it is not text; expected JSON of plimsoll or fio".into()))?;
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return Err(ReadError("it is empty; did the run that should have written it fail?".into()));
    }
    let value = match serde_json::from_str::<Value>(text) {
        Ok(value) => value,
        Err(error) => from_first_brace(text).ok_or_else(|| not_json(text, &error))?,
    };
    let Value::Object(top) = value else {
        return Err(ReadError(
            "it is JSON, but not an object; expected a file of --save, or fio's --output-format=json".into(),
        ));
    };
    match (top.get("kind"), top.get("fio version")) {
        (Some(Value::String(kind)), _) if ["run", "sweep", "comparison", "files"].contains(&kind.as_str()) => ours(top),
        (_, Some(Value::String(version))) => {
            let version = version.clone();
            fio(&top, &version).map(Document::Run)
        }
        _ => {
            let mut keys: Vec<&str> = top.keys().map(String::as_str).take(4).collect();
            keys.sort_unstable();
            Err(ReadError(format!(
                "it is a JSON object with {}, but neither a plimsoll result (\"kind\") nor fio's (\"fio version\")",
                if keys.is_empty() { "nothing in it".to_string() } else { format!("keys {}", keys.join(", ")) }
            )))
        }
    }
}

/// fio writes warnings to standard output before its JSON.
fn from_first_brace(text: &str) -> Option<Value> {
    let start = if text.starts_with('{') { 0 } else { text.find("\n{")? + 1 };
    // Text after the object (a second report, a shell's message) is not part of the report.
    serde_json::Deserializer::from_str(&text[start..]).into_iter().next()?.ok().filter(|_| start > 0)
}

fn not_json(text: &str, error: &serde_json::Error) -> ReadError {
    let start = text.trim_start();
    let hint = if start.starts_with("3;") || start.starts_with("4;") || start.starts_with("5;") {
        "it looks like fio's terse output; use --output-format=json".to_string()
    } else if start.starts_with('{') && error.is_eof() {
        format!("the JSON ends early, at line {}: was it cut off?", error.line())
    } else if start.starts_with('{') {
        format!("broken JSON: {error}")
    } else if text.contains(": (groupid=") || text.contains("IOPS=") {
        "it looks like fio's human output; use --output-format=json".to_string()
    } else {
        "it is not JSON; expected a file of --save, or fio's --output-format=json".to_string()
    };
    ReadError(hint)
}

fn ours(top: Map<String, Value>) -> Result<Document, ReadError> {
    let schema =
        top.get("provenance").and_then(|provenance| provenance.get("schema")).and_then(Value::as_u64).unwrap_or(0);
    if schema > u64::from(SCHEMA_VERSION) {
        return Err(ReadError(format!(
            "a newer plimsoll wrote it (schema {schema}; this one reads up to {SCHEMA_VERSION}): update plimsoll"
        )));
    }
    let document: Document = serde_json::from_value(Value::Object(top))
        .map_err(|error| ReadError(format!("it is a plimsoll result that does not fit its schema: {error}")))?;
    if plausible(&document) {
        Ok(document)
    } else {
        Err(ReadError("it is a plimsoll result with impossible counts: was it edited?".into()))
    }
}

/// True if all counts are so small that their sums cannot overflow, and points are in their order.
fn plausible(document: &Document) -> bool {
    let small = |counts: &[u64]| counts.iter().all(|count| *count <= LARGEST);
    let interval = |interval: &Interval| {
        let Interval { end_ns, length_ns, bytes, ops, lat_sum_ns, .. } = interval;
        small(&[*end_ns, *length_ns])
            && [bytes, ops, lat_sum_ns].iter().all(|each| small(&[each.read, each.write, each.trim]))
    };
    let direction = |result: &DirectionResult| {
        small(&[result.bytes, result.ops, result.short_ops, result.dropped_ops, result.failed_ops, result.runtime_ns])
    };
    let depth =
        |depth: &DepthDistribution| small(&depth.in_flight) && small(&depth.submitted) && small(&depth.completed);
    let job = |job: &JobResult| {
        small(&[job.start_unix_ms, job.runtime_ns, job.elapsed_ns, job.interval_ns])
            && small(&[job.cpu.user_ns, job.cpu.system_ns, job.cpu.looked_ns, job.cpu.waited_ns])
            && job.directions.iter().all(|(_, result)| direction(result))
            && job.intervals.iter().all(interval)
            && depth(&job.depth)
            && job.intervals.len() < 1 << 24
    };
    let run = |run: &RunResult| {
        small(&[run.provenance.started_unix_ms])
            && run.jobs.iter().all(job)
            && run.disks.iter().all(|disk| small(&[disk.ticks_ms.0, disk.ticks_ms.1, disk.merges.0, disk.merges.1]))
    };
    match document {
        Document::Run(one) => run(one),
        Document::Sweep(sweep) => {
            let visit = |visit: &Visit| small(&[visit.at_ns]) && visit.round < 1 << 24;
            let point = |point: &Point| job(&point.job) && point.visits.iter().all(visit);
            let curve =
                |curve: &Curve| curve.points.is_sorted_by(|one, next| one.x < next.x) && curve.points.iter().all(point);
            small(&[sweep.provenance.started_unix_ms]) && sweep.curves.iter().all(curve)
        }
        Document::Comparison(comparison) => {
            small(&[comparison.provenance.started_unix_ms]) && comparison.runs.iter().all(|(a, b)| run(a) && run(b))
        }
        Document::Files(files) => {
            let work = |work: &Work| small(&[work.files, work.records, work.bytes, work.failed]);
            let phase = |phase: &PhaseResult| {
                small(&[
                    phase.start_unix_ms,
                    phase.runtime_ns,
                    phase.stonewall_ns,
                    phase.cpu.user_ns,
                    phase.cpu.system_ns,
                ]) && work(&phase.total)
                    && work(&phase.at_stonewall)
                    && phase.threads.iter().all(|one| small(&[one.runtime_ns]) && work(&one.work))
                    && phase.threads.len() < 1 << 24
            };
            small(&[files.provenance.started_unix_ms]) && files.phases.iter().all(phase)
        }
    }
}

/// A number of fio's, whichever way it was written; 0 if missing.
fn float(object: &Value, key: &str) -> f64 {
    let value = object.get(key);
    let number = value.and_then(Value::as_f64).or_else(|| value?.as_str()?.parse().ok()).unwrap_or(0.0);
    if number.is_finite() { number.max(0.0) } else { 0.0 }
}

fn integer(object: &Value, key: &str) -> u64 {
    let exact = object.get(key).and_then(Value::as_u64);
    exact.unwrap_or_else(|| float(object, key) as u64).min(LARGEST)
}

fn text(object: &Value, key: &str) -> String {
    object.get(key).and_then(Value::as_str).unwrap_or_default().to_string()
}

fn pairs(value: Option<&Value>) -> Vec<(String, String)> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries
        .map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_string)))
        .collect()
}

fn fio(top: &Map<String, Value>, version: &str) -> Result<RunResult, ReadError> {
    let top = Value::Object(top.clone());
    // Client and server reports keep their jobs elsewhere.
    let jobs = top.get("jobs").or_else(|| top.get("client_stats")).and_then(Value::as_array);
    let Some(jobs) = jobs else {
        return Err(ReadError(format!("it is a report of {version} without jobs: did fio fail before it ran any?")));
    };
    let global_options = pairs(top.get("global options"));
    let mut run = RunResult { ended: Ended::Complete, ..RunResult::default() };
    run.provenance.version = version.to_string();
    run.provenance.started_unix_ms = match integer(&top, "timestamp_ms") {
        0 => integer(&top, "timestamp").saturating_mul(1000).min(LARGEST),
        ms => ms,
    };
    run.jobs = jobs.iter().filter(|job| job.is_object()).map(|job| fio_job(job, &global_options)).collect();
    if run.jobs.iter().any(|job| job.error.is_some()) {
        run.ended = Ended::Failed;
    }
    run.disks = top.get("disk_util").and_then(Value::as_array).into_iter().flatten().map(fio_disk).collect();
    run.global_options = global_options;
    for job in &mut run.jobs {
        job.judge();
    }
    Ok(run)
}

fn fio_job(value: &Value, global_options: &[(String, String)]) -> JobResult {
    let options = pairs(value.get("job options"));
    let given = FioOptions { own: &options, global: global_options };
    let numjobs = given.number("numjobs", 1);
    let mut job = JobResult {
        name: text(value, "jobname"),
        description: value.get("desc").and_then(Value::as_str).map(str::to_string),
        group: integer(value, "groupid").min(u64::from(u32::MAX)) as u32,
        clones: if given.value(&["group_reporting"]).is_some() { numjobs } else { 1 },
        start_unix_ms: integer(value, "job_start"),
        elapsed_ns: integer(value, "elapsed").saturating_mul(1_000_000_000).min(LARGEST),
        continue_on_error: value.get("total_err").is_some(),
        facts: given.facts(),
        ..JobResult::default()
    };
    fio_directions(value, &mut job);
    job.runtime_ns = job.directions.iter().map(|(_, result)| result.runtime_ns).max().unwrap_or(0);
    if let Some(sync) = value.get("sync").and_then(|sync| sync.get("lat_ns")) {
        job.sync.lat_ns = fio_latency(sync, 1.0);
    }
    let cpu_ns =
        |key: &str| (float(value, key).min(1e4) / 100.0 * job.runtime_ns as f64 * f64::from(job.clones)) as u64;
    (job.cpu.user_ns, job.cpu.system_ns) = (cpu_ns("usr_cpu").min(LARGEST), cpu_ns("sys_cpu").min(LARGEST));
    job.cpu.context_switches = integer(value, "ctx");
    (job.cpu.major_faults, job.cpu.minor_faults) = (integer(value, "majf"), integer(value, "minf"));
    job.depth = fio_depth(value, job.total_ops());
    let errno =
        |key: &str| Some(integer(value, key)).filter(|error| (1..4096).contains(error)).map(|error| error as i32);
    job.error = errno("error").map(|errno| {
        let message = format!("fio reported error {errno} ({})", std::io::Error::from_raw_os_error(errno));
        JobError { errno, message }
    });
    job.first_error = errno("first_error");
    job.latency_target = fio_latency_target(value);
    job.options = options;
    job
}

/// The options of a job of fio: its own go before the global ones, the last before the first.
struct FioOptions<'a> {
    own: &'a [(String, String)],
    global: &'a [(String, String)],
}

impl<'a> FioOptions<'a> {
    /// The value of an option under any of its names.
    fn value(&self, names: &[&str]) -> Option<&'a str> {
        let named = |(name, _): &&(String, String)| names.contains(&name.as_str());
        let found = self.own.iter().rev().find(named).or_else(|| self.global.iter().rev().find(named));
        found.map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str, default: u64) -> u32 {
        let given = self.value(&[name]).and_then(|text| measure::units::parse_bytes(text, 1024).ok());
        given.unwrap_or(default).clamp(1, 1 << 20) as u32
    }

    fn facts(&self) -> Facts {
        let engine = self.value(&["ioengine"]).unwrap_or("psync").to_string();
        let mut facts = Facts {
            synchronous: ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"].contains(&engine.as_str()),
            engine,
            iodepth: self.number("iodepth", 1),
            numjobs: self.number("numjobs", 1),
            direct: self.value(&["direct"]).is_some_and(|text| text != "0") || self.value(&["buffered"]) == Some("0"),
            rw: self.value(&["rw", "readwrite"]).unwrap_or("read").to_string(),
            notes: vec![
                "Read from fio's JSON, which does not tell what was cached, unwritten or steady. Where it lists no \
                 percentiles of lat, they are those of clat plus the mean difference."
                    .into(),
            ],
            ..Facts::default()
        };
        let sizes = self.value(&["bs", "blocksize"]).unwrap_or("4k");
        let mut sizes = sizes.split(',').map(|size| measure::units::parse_bytes(size, 1024).unwrap_or(0));
        let read = sizes.next().unwrap_or(0);
        let write = sizes.next().unwrap_or(read);
        let trim = sizes.next().unwrap_or(write);
        facts.block_bytes.read = (read, read);
        facts.block_bytes.write = (write, write);
        facts.block_bytes.trim = (trim, trim);
        facts
    }
}

fn fio_directions(value: &Value, job: &mut JobResult) {
    for direction in Direction::ALL {
        if let Some(section) = value.get(direction.name()) {
            job.directions[direction] = fio_direction(section);
        }
    }
    // fio counts the errors of all directions together: they go to the direction that did most.
    if let Some(most) = Direction::ALL.into_iter().max_by_key(|&direction| job.directions[direction].ops) {
        job.directions[most].failed_ops = integer(value, "total_err");
    }
    let mut unified = job.reporting.unified;
    // unified_rw_reporting: the sum of all may be all there is.
    if let Some(section) = value.get("mixed") {
        unified = Unified::Both;
        if value.get("read").is_none() {
            job.directions.read = fio_direction(section);
            unified = Unified::Mixed;
        }
    }
    job.reporting = Reporting { unified, ..fio_reporting(value) };
}

fn fio_latency_target(value: &Value) -> Option<LatencyTarget> {
    (integer(value, "latency_target") > 0).then(|| LatencyTarget {
        depth: integer(value, "latency_depth").min(u64::from(u32::MAX)) as u32,
        target_ns: integer(value, "latency_target").min(LARGEST),
        window_ns: integer(value, "latency_window").saturating_mul(1000).min(LARGEST),
        percentile: float(value, "latency_percentile"),
    })
}

/// The latencies that have percentiles, and these percentiles.
fn fio_reporting(job: &Value) -> Reporting {
    let listed = |latency: &str| {
        let sections = ["read", "write", "trim", "mixed"].iter().filter_map(|name| job.get(name));
        sections.filter_map(|section| section.get(latency)?.get("percentile")?.as_object()).next()
    };
    let (slat, clat, lat) = (listed("slat_ns"), listed("clat_ns"), listed("lat_ns"));
    let percentiles = slat.or(clat).or(lat).map(|list| {
        list.keys().filter_map(|key| key.parse().ok()).filter(|p| (0.0..=100.0).contains(p)).collect::<Vec<f64>>()
    });
    Reporting {
        slat_percentiles: slat.is_some(),
        // Without any, the defaults stand.
        clat_percentiles: clat.is_some() || (slat.is_none() && lat.is_none()),
        lat_percentiles: lat.is_some(),
        percentiles: percentiles.unwrap_or_else(|| Reporting::default().percentiles),
        unified: Unified::None,
        bytes: measure::figures::ByteUnits::default(),
    }
}

fn fio_direction(section: &Value) -> DirectionResult {
    let ops = integer(section, "total_ios");
    let bytes = match integer(section, "io_bytes") {
        0 => integer(section, "io_kbytes").saturating_mul(1024).min(LARGEST),
        bytes => bytes,
    };
    // Milliseconds are coarse for short runs; the rate is not.
    let iops = float(section, "iops");
    let runtime_ns = if ops > 0 && iops > 0.0 {
        (ops as f64 / iops * 1e9).min(LARGEST as f64) as u64
    } else {
        integer(section, "runtime").saturating_mul(1_000_000).min(LARGEST)
    };
    // fio 2 wrote microseconds, under names without the unit.
    let latency = |name: &str| match section.get(format!("{name}_ns")) {
        Some(nanoseconds) => fio_latency(nanoseconds, 1.0),
        None => section.get(name).map(|microseconds| fio_latency(microseconds, 1000.0)).unwrap_or_default(),
    };
    let (slat_ns, clat_ns, mut lat_ns) = (latency("slat"), latency("clat"), latency("lat"));
    // fio lists percentiles of clat alone by default. The part before it, slat, varies little.
    if !lat_ns.has_shape() && clat_ns.has_shape() && !lat_ns.is_empty() {
        let (min, max, mean, stddev) = (lat_ns.min(), lat_ns.max(), lat_ns.mean(), lat_ns.stddev());
        let before = (mean - clat_ns.mean()).max(0.0) as u64;
        lat_ns.clear();
        for (lower, upper, n) in clat_ns.buckets() {
            lat_ns.record_many((lower + (upper - lower) / 2 + before).min(LARGEST), n);
        }
        lat_ns.set_moments(min, max, mean, stddev);
    }
    // json+ has the bins of all latencies, or of none.
    let has_bins = ["slat_ns", "clat_ns", "lat_ns"].iter().any(|name| {
        let bins = section.get(name).and_then(|latency| latency.get("bins")).and_then(Value::as_object);
        bins.is_some_and(|bins| !bins.is_empty())
    });
    DirectionResult {
        bytes,
        ops,
        short_ops: integer(section, "short_ios"),
        dropped_ops: integer(section, "drop_ios"),
        failed_ops: 0,
        runtime_ns,
        slat_ns,
        clat_ns,
        lat_ns,
        lat_intended_ns: None,
        from_percentiles: !has_bins,
        priorities: priorities(section),
    }
}

/// The latencies by I/O priority that fio wrote; fio lists one of the two kinds.
fn priorities(section: &Value) -> Vec<PriorityLatency> {
    let listed = section.get("prios").and_then(Value::as_array).into_iter().flatten();
    let one = |found: &Value| {
        let latency = |key: &str| found.get(key).map(|latency| fio_latency(latency, 1.0)).unwrap_or_default();
        let priority = (integer(found, "prioclass").min(7) << 13 | integer(found, "prio").min(7)) as u16;
        PriorityLatency { priority, clat_ns: latency("clat_ns"), lat_ns: latency("lat_ns") }
    };
    listed.map(one).collect()
}

/// A distribution rebuilt from the bins of `json+`, else from the percentiles (each value stands for the samples since
/// the percentile before), else from the mean alone. The moments are those that fio wrote.
fn fio_latency(section: &Value, unit_ns: f64) -> Histogram {
    let scaled = |value: f64| (value * unit_ns).min(LARGEST as f64).max(0.0) as u64;
    let (min, max, mean) =
        (scaled(float(section, "min")), scaled(float(section, "max")), float(section, "mean") * unit_ns);
    let mut histogram = Histogram::new();
    let bins = section.get("bins").and_then(Value::as_object).into_iter().flatten();
    let bins: Vec<(u64, u64)> = bins
        .filter_map(|(value, n)| Some((scaled(value.parse().ok()?), n.as_u64()?)))
        .filter(|(_, n)| *n <= LARGEST)
        .collect();
    if !bins.is_empty() {
        for (value, n) in bins {
            if histogram.count().saturating_add(n) <= LARGEST {
                histogram.record_many(value, n);
            }
        }
    } else {
        let mut percentiles: BTreeMap<u64, u64> = BTreeMap::new();
        for (percentile, value) in section.get("percentile").and_then(Value::as_object).into_iter().flatten() {
            // In millionths of a percent, to sort them.
            if let (Ok(percentile), Some(value)) = (percentile.parse::<f64>(), value.as_f64()) {
                percentiles.insert((percentile.clamp(0.0, 100.0) * 1e6) as u64, scaled(value));
            }
        }
        // Old versions wrote no N; then the shape is all there is.
        let n = match integer(section, "N") {
            0 if section.get("N").is_none() && mean > 0.0 => 10_000,
            n => n,
        };
        let mut placed = 0u64;
        for (percentile, value) in percentiles {
            let upto = (percentile as f64 / 1e8 * n as f64).round() as u64;
            histogram.record_many(value, upto.saturating_sub(placed));
            placed = placed.max(upto);
        }
        let rest = n.saturating_sub(placed);
        histogram.record_many(if placed == 0 { mean.min(LARGEST as f64) as u64 } else { max }, rest);
    }
    if mean <= LARGEST as f64 {
        histogram.set_moments(min, max, mean, (float(section, "stddev") * unit_ns).min(LARGEST as f64));
    }
    histogram
}

/// Percentages of ops by depth; the mean is that of each range's lower end.
fn fio_depth(value: &Value, ops: u64) -> DepthDistribution {
    let Some(levels) = value.get("iodepth_level") else { return DepthDistribution::default() };
    let mut depth = DepthDistribution::default();
    for (index, name) in ["1", "2", "4", "8", "16", "32", ">=64"].iter().enumerate() {
        let n = (float(levels, name).min(1000.0) / 100.0 * ops as f64) as u64;
        depth.in_flight.push(n);
        depth.in_flight_sum += u128::from(n) << index;
    }
    depth
}

fn fio_disk(value: &Value) -> DiskUtil {
    DiskUtil {
        name: text(value, "name"),
        ios: (integer(value, "read_ios"), integer(value, "write_ios")),
        merges: (integer(value, "read_merges"), integer(value, "write_merges")),
        ticks_ms: (integer(value, "read_ticks"), integer(value, "write_ticks")),
        in_queue_ms: integer(value, "in_queue"),
        util_percent: float(value, "util"),
    }
}

//! Intervals as lines of JSON: one object a line, for pipes and for merging over hosts.
//!
//! ```json
//! {"job":"a","end_ns":1000000000,"length_ns":500000000,"read":{"ops":61234,"bytes":250814464,"iops":122468.0,"bw_bytes":501628928.0,"lat_mean_ns":261302.5}}
//! ```
//! A direction appears when the interval has ops in it. With histograms, `lat_ns` is the distribution in the form of
//! the result schema: sums over intervals, jobs and hosts are exact.

use measure::schema::{Interval, RunResult};
use serde_json::{Map, Value, json};

/// One line for one interval of the named job; no newline at the end.
pub fn line(job: &str, interval: &Interval) -> String {
    let mut out = Map::new();
    out.insert("job".into(), job.into());
    out.insert("end_ns".into(), interval.end_ns.into());
    out.insert("length_ns".into(), interval.length_ns.into());
    let seconds = (interval.length_ns as f64 / 1e9).max(1e-9);
    for (direction, &ops) in interval.ops.iter().filter(|(_, ops)| **ops > 0) {
        let bytes = interval.bytes[direction];
        let figures = json!({
            "ops": ops,
            "bytes": bytes,
            "iops": ops as f64 / seconds,
            "bw_bytes": bytes as f64 / seconds,
            "lat_mean_ns": interval.lat_sum_ns[direction] as f64 / ops as f64,
        });
        out.insert(direction.name().into(), figures);
    }
    if let Some(histogram) = &interval.lat_ns {
        let quantiles = [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p99.9_ns", 0.999), ("max_ns", 1.0)];
        quantiles.iter().for_each(|(name, q)| {
            out.insert((*name).into(), histogram.quantile(*q).into());
        });
        out.insert("lat_ns".into(), serde_json::to_value(histogram).expect("a histogram is plain data"));
    }
    Value::Object(out).to_string()
}

/// All intervals of all jobs, a line each, newline-terminated, in order of time.
pub fn render(run: &RunResult) -> String {
    let start = run.jobs.iter().map(|job| job.start_unix_ms).min().unwrap_or(0);
    let at = |job: &measure::schema::JobResult, interval: &Interval| {
        interval.end_ns.saturating_add((job.start_unix_ms - start).saturating_mul(1_000_000))
    };
    let mut all: Vec<_> = run
        .jobs
        .iter()
        .flat_map(|job| job.intervals.iter().map(move |interval| (at(job, interval), job, interval)))
        .collect();
    all.sort_by_key(|(at, ..)| *at);
    all.into_iter().map(|(_, job, interval)| line(&job.name, interval) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::Histogram;
    use measure::schema::JobResult;

    #[test]
    fn lines_are_objects_in_order_of_time_and_histograms_merge() {
        let interval = |end_ns, ops, latency| {
            let mut interval = Interval { end_ns, length_ns: 500_000_000, ..Interval::default() };
            (interval.ops.write, interval.bytes.write, interval.lat_sum_ns.write) = (ops, ops * 512, ops * latency);
            let mut histogram = Histogram::new();
            histogram.record_many(latency, ops);
            interval.lat_ns = Some(histogram);
            interval
        };
        let job = |name: &str, start_unix_ms, intervals| JobResult {
            name: name.into(),
            start_unix_ms,
            intervals,
            ..JobResult::default()
        };
        let run = RunResult {
            jobs: vec![
                job("late", 2_000, vec![interval(500_000_000, 10, 7)]),
                job("early \"x\"", 1_000, vec![interval(500_000_000, 20, 9), interval(1_600_000_000, 30, 8)]),
            ],
            ..RunResult::default()
        };
        let text = render(&run);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let names: Vec<&str> = lines.iter().map(|line| line["job"].as_str().unwrap()).collect();
        assert_eq!(names, ["early \"x\"", "late", "early \"x\""]);
        assert_eq!(lines[0]["write"]["iops"], 40.0);
        assert_eq!(lines[0]["write"]["bw_bytes"], 40.0 * 512.0);
        assert_eq!(lines[0]["write"]["lat_mean_ns"], 9.0);
        assert!(lines[0].get("read").is_none());
        let mut all = Histogram::new();
        lines.iter().for_each(|line| all.merge(&serde_json::from_value(line["lat_ns"].clone()).unwrap()));
        assert_eq!((all.count(), all.sum()), (60, 70 + 180 + 240));
    }
}

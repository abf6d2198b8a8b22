//! fio's `--bandwidth-log`: what all jobs moved together, over time.

use std::fmt::Write;

use measure::schema::RunResult;
use measure::{Direction, PerDirection};

/// The time that a line is about: that between two of fio's.
const LINE_NS: u64 = 500_000_000;

/// The text of `agg-read_bw.log`, `agg-write_bw.log` and `agg-trim_bw.log`.
///
/// Lines are those of a job's own bandwidth log: milliseconds since the run began, KiB/s, direction, 0, 0. Each job's
/// intervals are laid over the same lines, in parts where they do not fit.
pub fn render(run: &RunResult) -> PerDirection<String> {
    let mut lines: PerDirection<Vec<f64>> = PerDirection::default();
    let mut end_ns = 0;
    for job in &run.jobs {
        let began_ns = job.start_unix_ms.saturating_sub(run.provenance.started_unix_ms) * 1_000_000;
        for interval in job.intervals.iter().filter(|interval| interval.length_ns > 0) {
            let to_ns = began_ns + interval.end_ns;
            end_ns = end_ns.max(to_ns);
            for (direction, lines) in lines.iter_mut() {
                lay(lines, to_ns - interval.length_ns, to_ns, interval.bytes[direction] as f64);
            }
        }
    }
    PerDirection::from_fn(|direction| text(direction, &lines[direction], end_ns))
}

/// Adds `bytes`, moved evenly between two times, to the lines.
fn lay(lines: &mut Vec<f64>, from_ns: u64, to_ns: u64, bytes: f64) {
    let last = (to_ns - 1) / LINE_NS;
    lines.resize(lines.len().max(last as usize + 1), 0.0);
    for line in from_ns / LINE_NS..=last {
        let covered_ns = to_ns.min((line + 1) * LINE_NS) - from_ns.max(line * LINE_NS);
        lines[line as usize] += bytes * covered_ns as f64 / (to_ns - from_ns) as f64;
    }
}

fn text(direction: Direction, lines: &[f64], end_ns: u64) -> String {
    let mut out = String::new();
    for (line, bytes) in lines.iter().enumerate() {
        let from_ns = line as u64 * LINE_NS;
        let to_ns = end_ns.min(from_ns + LINE_NS);
        let kib_per_second = bytes / 1024.0 * 1e9 / (to_ns - from_ns).max(1) as f64;
        let _ = writeln!(out, "{}, {kib_per_second:.0}, {}, 0, 0", to_ns / 1_000_000, direction as u8);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::schema::{Interval, JobResult};

    fn job(start_unix_ms: u64, intervals: &[(u64, u64, u64)]) -> JobResult {
        let interval = |&(end_ms, length_ms, kib): &(u64, u64, u64)| Interval {
            end_ns: end_ms * 1_000_000,
            length_ns: length_ms * 1_000_000,
            bytes: PerDirection { read: kib << 10, ..PerDirection::default() },
            ..Interval::default()
        };
        JobResult { start_unix_ms, intervals: intervals.iter().map(interval).collect(), ..JobResult::default() }
    }

    #[test]
    fn jobs_are_added_up_over_the_same_time() {
        let mut run = RunResult::default();
        run.provenance.started_unix_ms = 1_000_000;
        // The second starts a quarter of a second later: half of each of its intervals falls in the next line.
        run.jobs.push(job(1_000_000, &[(500, 500, 100), (1000, 500, 200)]));
        run.jobs.push(job(1_000_250, &[(500, 500, 40), (850, 350, 70)]));
        let logs = render(&run);
        assert_eq!(logs.read, "500, 240, 0, 0, 0\n1000, 540, 0, 0, 0\n1100, 200, 0, 0, 0\n");
        assert_eq!(logs.write, "500, 0, 1, 0, 0\n1000, 0, 1, 0, 0\n1100, 0, 1, 0, 0\n");
    }
}

//! One point of a curve: made from a run, extended by further runs at the same depth.

use crate::schema::{DirectionResult, Interval, JobResult, Point, Visit};
use crate::stats;
use crate::{Histogram, PerDirection};

impl Point {
    /// The point that a merged job makes at depth (or rate) `x`: one sample a step of the length of an interval, means
    /// with 95 % intervals. Less than half a step at the end of a run does not count as a sample. Without intervals the
    /// whole run is the one sample.
    pub fn of(x: f64, mut job: JobResult) -> Point {
        let samples = job.iops_samples();
        let lat_ns = PerDirection::from_fn(|direction| job.directions[direction].waited_ns().clone());
        // The ramp belongs to this visit; those of several visits have no sum.
        let (backlog, ramp, measured_ns) = (job.backlog, job.ramp.take(), job.runtime_ns);
        let visits =
            vec![Visit { samples: samples.len() as u32, lat_ns, backlog, ramp, measured_ns, ..Visit::default() }];
        Point { x, samples, visits, job, ..Point::default() }.estimated()
    }

    /// The point with the means and intervals that its samples and its job give.
    #[must_use]
    pub fn estimated(self) -> Point {
        let seconds = self.job.runtime_ns as f64 / 1e9;
        let whole = self.job.total_bytes() as f64 / if seconds > 0.0 { seconds } else { f64::INFINITY };
        let bytes = several_or(self.bytes_samples(), whole);
        Point { iops: stats::estimate(&self.samples), bytes_per_second: stats::estimate(&bytes), ..self }
    }

    /// The intervals of visits that replayed whole passes of a recording, one each, however long it took; None of other
    /// visits.
    pub(crate) fn passes(&self) -> Option<&[Interval]> {
        let (visits, intervals) = (&self.visits, &self.job.intervals);
        let one_each = visits.len() == intervals.len() && visits.iter().all(|visit| visit.samples == 1);
        one_each.then_some(intervals)
    }

    /// Bytes per second of each sample.
    fn bytes_samples(&self) -> Vec<f64> {
        let Some(passes) = self.passes() else { return self.job.bytes_over_time() };
        let bytes = |interval: &Interval| interval.bytes.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let timed = passes.iter().filter(|interval| interval.length_ns > 0);
        timed.map(|interval| bytes(interval) as f64 * 1e9 / interval.length_ns as f64).collect()
    }

    /// The mean of each visit in ops per second, in order of time; of all samples together where no visits are
    /// recorded.
    pub fn visit_means(&self) -> Vec<f64> {
        match self.visits.is_empty() {
            true => vec![stats::mean(&self.samples)],
            false => self.by_visit().map(|(_, samples)| stats::mean(samples)).collect(),
        }
    }

    /// The recorded visits, each with its samples, in order of time.
    pub(crate) fn by_visit(&self) -> impl Iterator<Item = (&Visit, &[f64])> {
        self.visits.iter().zip(parts(&self.samples, self.visits.iter().map(|visit| visit.samples)))
    }

    /// The latencies that users of the storage saw: from the intended start under an open-loop rate.
    pub fn lat_ns(&self) -> Histogram {
        let mut all = Histogram::new();
        self.job.directions.iter().for_each(|(_, result)| all.merge(result.waited_ns()));
        all
    }

    /// Adds a later run at the same `x`: samples, times and counts add up, intervals follow one another.
    pub fn extend(&mut self, later: Point) {
        let mut whole = std::mem::take(self);
        whole.samples.extend(later.samples);
        whole.visits.extend(later.visits);
        whole.job.append(later.job);
        *self = whole.estimated();
    }
}

/// The parts of some samples, of these numbers; those at the end are shorter where the samples do not suffice.
pub(crate) fn parts(samples: &[f64], counts: impl Iterator<Item = u32>) -> impl Iterator<Item = &[f64]> {
    let mut rest = samples;
    counts.map(move |count| {
        let (part, others) = rest.split_at((count as usize).min(rest.len()));
        rest = others;
        part
    })
}

fn several_or(samples: Vec<f64>, whole: f64) -> Vec<f64> {
    if samples.len() < 2 { vec![whole] } else { samples }
}

impl DirectionResult {
    /// The latencies that users of the storage saw, in nanoseconds: from the intended start under an open-loop rate,
    /// else from the creation of the op.
    pub fn waited_ns(&self) -> &Histogram {
        self.lat_intended_ns.as_ref().unwrap_or(&self.lat_ns)
    }
}

impl JobResult {
    /// The throughput over time, in ops per second. Where intervals give fewer than two samples, the whole run is the
    /// one sample.
    pub(crate) fn iops_samples(&self) -> Vec<f64> {
        let seconds = self.runtime_ns as f64 / 1e9;
        let whole = self.total_ops() as f64 / if seconds > 0.0 { seconds } else { f64::INFINITY };
        several_or(self.iops_over_time(), whole)
    }

    /// Adds a later run of the same job: unlike [`JobResult::merge`], which is for clones that ran together, times add
    /// up and intervals follow one another.
    pub fn append(&mut self, later: JobResult) {
        let (runtime_ns, elapsed_ns, clones) = (self.runtime_ns, self.elapsed_ns, self.clones);
        let (open_ns, closed_ns) = (self.open_ns, self.closed_ns);
        let issuing_ns = self.depth.issuing_ns;
        let mut intervals = std::mem::take(&mut self.intervals);
        let runtimes = self.directions.iter().map(|(direction, mine)| (direction, mine.runtime_ns)).collect::<Vec<_>>();
        let mut later = later;
        let shift = runtime_ns;
        intervals.extend(std::mem::take(&mut later.intervals).into_iter().map(|mut interval| {
            interval.end_ns += shift;
            interval
        }));
        self.merge(&later);
        self.intervals = intervals;
        self.clones = clones;
        self.depth.issuing_ns = issuing_ns + later.depth.issuing_ns;
        self.runtime_ns = runtime_ns + later.runtime_ns;
        self.elapsed_ns = elapsed_ns + later.elapsed_ns;
        self.open_ns = open_ns + later.open_ns;
        self.closed_ns = closed_ns + later.closed_ns;
        for (direction, mine) in runtimes {
            self.directions[direction].runtime_ns = mine + later.directions[direction].runtime_ns;
        }
        // The verdicts are on the state before; the caller judges again.
        self.verdicts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Ramp;

    fn job(ops: &[u64], last_length_ns: u64) -> JobResult {
        let mut job = JobResult { interval_ns: 100, clones: 2, ..JobResult::default() };
        for (index, &n) in ops.iter().enumerate() {
            let length_ns = if index + 1 == ops.len() { last_length_ns } else { 100 };
            job.runtime_ns += length_ns;
            let mut interval = Interval { end_ns: job.runtime_ns, length_ns, ..Interval::default() };
            interval.ops.write = n;
            interval.bytes.write = n * 512;
            job.intervals.push(interval);
            job.directions.write.ops += n;
            job.directions.write.bytes += n * 512;
        }
        job.directions.write.runtime_ns = job.runtime_ns;
        job
    }

    #[test]
    fn one_sample_an_interval_and_stubs_do_not_count() {
        let point = Point::of(4.0, job(&[10, 20, 1], 10));
        assert_eq!(point.samples, [1e8, 2e8]);
        assert_eq!(point.iops.mean, 1.5e8);
        assert_eq!(point.bytes_per_second.mean, 1.5e8 * 512.0);
        assert!(point.iops.low < 1e8 && point.iops.high > 2e8, "two samples say little: {:?}", point.iops);
        assert_eq!(Point::of(4.0, job(&[10], 100)).samples, [1e8]);
        assert_eq!(Point::of(4.0, JobResult::default()).samples, [0.0]);
    }

    #[test]
    fn the_ramp_is_that_of_the_visit() {
        let ramp = |ops| Some(Ramp { ops, ns: 400 });
        let of = |ops| Point::of(4.0, JobResult { ramp: ramp(ops), ..job(&[10, 20], 100) });
        let mut point = of(7);
        point.extend(of(9));
        assert_eq!(point.visits.iter().map(|visit| visit.ramp).collect::<Vec<_>>(), [ramp(7), ramp(9)]);
        assert_eq!((point.job.ramp, point.job.total_ops()), (None, 60));
    }

    /// Three passes of a recording: each is a sample of its own length. Versions before 0.3 gave their intervals a
    /// length of 1 ns, and a point that goes on keeps that.
    #[test]
    fn passes_of_any_length_are_samples_of_ops_and_of_bytes() {
        for nominal in [1, 300_000_000] {
            let pass = |length_ns: u64| {
                let mut pass = JobResult { interval_ns: nominal, runtime_ns: length_ns, ..JobResult::default() };
                let mut whole = Interval { end_ns: length_ns, length_ns, ..Interval::default() };
                (whole.ops.read, whole.bytes.read) = (600, 600 * 512);
                (pass.directions.read.ops, pass.directions.read.bytes) = (600, 600 * 512);
                pass.intervals.push(whole);
                pass
            };
            let mut point = Point::of(100.0, pass(300_000_000));
            for length_ns in [200_000_000, 100_000_000] {
                point.extend(Point::of(100.0, pass(length_ns)));
            }
            assert_eq!(point.samples, [2000.0, 3000.0, 6000.0]);
            assert!(
                (point.bytes_per_second.mean / (point.iops.mean * 512.0) - 1.0).abs() < 1e-9,
                "{nominal}: {point:?}"
            );
            let steps = point.job.iops_over_time();
            assert!((1..=6).contains(&steps.len()), "{nominal}: {} steps", steps.len());
        }
    }

    #[test]
    fn later_runs_follow_in_time() {
        let mut point = Point::of(4.0, job(&[10, 20], 100));
        point.extend(Point::of(4.0, job(&[30, 40], 100)));
        assert_eq!(point.samples, [1e8, 2e8, 3e8, 4e8]);
        assert_eq!((point.job.runtime_ns, point.job.clones, point.job.total_ops()), (400, 2, 100));
        assert_eq!(point.job.directions.write.runtime_ns, 400);
        assert_eq!(
            point.job.intervals.iter().map(|interval| interval.end_ns).collect::<Vec<_>>(),
            [100, 200, 300, 400]
        );
    }
}

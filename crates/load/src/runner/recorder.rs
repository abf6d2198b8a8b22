//! Measurements of a clone: counts, latencies, depth, intervals. No lock, no system call, no allocation per op.

use job::Job;
use measure::schema::{
    Backlog, DepthDistribution, DirectionResult, Disturbances, Interval, PriorityLatency, Ramp, SyncResult,
};

use measure::{Direction, Histogram, PerDirection};

use super::priorities;
use super::window::SoFar;

/// Times of one op, all on the run's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Time at which the op should have started under an open-loop rate; the creation time otherwise.
    pub intended: u64,
    /// Time at which the op was created.
    pub created: u64,
    /// Time at which the engine had taken the op.
    pub submitted: u64,
    /// Time at which the op was seen to be finished.
    pub completed: u64,
}

/// The distributions that are kept, fixed for a job.
#[derive(Clone, Copy, Debug)]
struct Kept {
    slat: bool,
    clat: bool,
    lat: bool,
    intended: bool,
}

/// The measurements of one clone, from [`Recorder::start`] on.
#[derive(Clone, Debug)]
pub struct Recorder {
    kept: Kept,
    /// True if the workload itself reads.
    reads: bool,
    /// True if single ops have priorities of their own.
    by_priority: bool,
    /// The priority of the other ops.
    usual_priority: u16,
    directions: PerDirection<DirectionResult>,
    first_error: Option<i32>,
    sync: SyncResult,
    depth: Depth,
    start_ns: u64,
    intervals: Vec<Interval>,
    interval_ns: u64,
    interval_end_ns: u64,
    current: Interval,
    with_histograms: bool,
    lat_sum_ns: u64,
    verify: VerifyTime,
    backlog: Backlog,
    ramp: Option<Ramp>,
    /// Transfers that were continued.
    continued: u64,
    /// Events of the engine, those before the measured part excepted.
    disturbances: Disturbances,
    disturbed_before: Disturbances,
}

/// The time for which data were read back, which is not time of the workload.
#[derive(Clone, Debug, Default)]
struct VerifyTime {
    active: bool,
    since_ns: u64,
    total_ns: u64,
}

/// [`DepthDistribution`] while it grows: fixed arrays.
#[derive(Clone, Debug, Default)]
struct Depth {
    in_flight: [u64; 32],
    in_flight_sum: u64,
    submitted: [u64; 32],
    completed: [u64; 32],
    submit_calls: u64,
    complete_calls: u64,
    in_flight_ns: u128,
    /// The time until which `in_flight_ns` is known.
    known_until: u64,
    /// `in_flight_ns` when the last op was issued, and the time from the start until then.
    issuing: Option<(u128, u64)>,
}

impl Recorder {
    /// A recorder for `job` that measures from `start_ns` of the run's clock.
    pub fn new(job: &Job, synchronous: bool, interval_ns: Option<u64>, with_histograms: bool) -> Recorder {
        let reporting = &job.reporting;
        let open_loop = Direction::ALL.iter().any(|&d| job.rate.bytes[d].is_some() || job.rate.iops[d].is_some());
        let interval_ns = interval_ns.unwrap_or(reporting.bw_interval_ns).max(1_000_000);
        Recorder {
            kept: Kept {
                // A synchronous engine submits and completes in one call: there is no submission latency.
                slat: !reporting.disable_slat && !synchronous,
                clat: !reporting.disable_clat,
                lat: !reporting.disable_lat,
                intended: open_loop,
            },
            reads: job.rw.directions.read,
            by_priority: job.process.request_priorities.iter().any(|(_, shares)| !shares.is_empty()),
            usual_priority: priorities::usual(job),
            directions: PerDirection::default(),
            first_error: None,
            sync: SyncResult::default(),
            depth: Depth::default(),
            start_ns: 0,
            intervals: Vec::with_capacity(256),
            interval_ns,
            interval_end_ns: u64::MAX,
            current: Interval::default(),
            with_histograms,
            lat_sum_ns: 0,
            verify: VerifyTime::default(),
            backlog: Backlog::default(),
            ramp: None,
            continued: 0,
            disturbances: Disturbances::default(),
            disturbed_before: Disturbances::default(),
        }
    }

    /// Forgets everything so far but the ops of the ramp, which ends at `end_ns`, and measures from then on.
    pub fn end_ramp(&mut self, end_ns: u64) {
        let (ops, _, _) = self.counters();
        let ramp = Ramp { ops: ops.iter().map(|(_, ops)| ops).sum(), ns: end_ns.saturating_sub(self.start_ns) };
        self.start(end_ns);
        self.ramp = Some(ramp);
    }

    /// Forgets everything so far and measures from `start_ns` on.
    pub fn start(&mut self, start_ns: u64) {
        self.directions = PerDirection::default();
        if self.kept.intended {
            for (_, result) in self.directions.iter_mut() {
                result.lat_intended_ns = Some(Histogram::new());
            }
        }
        self.continued = 0;
        self.disturbed_before = self.disturbances;
        self.sync = SyncResult::default();
        self.depth = Depth { known_until: start_ns, ..Depth::default() };
        self.intervals.clear();
        self.start_ns = start_ns;
        self.interval_end_ns = start_ns + self.interval_ns;
        self.current = self.new_interval();
        self.lat_sum_ns = 0;
        self.ramp = None;
    }

    /// Takes note of the ops that wait as the measured part begins.
    pub fn began(&mut self, waiting: f64) {
        self.backlog.start = waiting;
    }

    /// Takes note of the ops that wait as the job issues no more; those in flight finish later and are counted then.
    pub fn ended(&mut self, waiting: f64, now_ns: u64) {
        self.depth.issuing = Some((self.depth.in_flight_ns, now_ns.saturating_sub(self.start_ns)));
        let (ops, _, _) = self.counters();
        let finished: u64 = ops.iter().map(|(_, ops)| ops).sum();
        self.backlog.end = waiting;
        self.backlog.arrived = finished as f64 + waiting - self.backlog.start;
    }

    /// True while data are being read back.
    #[inline]
    pub fn is_verifying(&self) -> bool {
        self.verify.active
    }

    /// Goes from the workload to reading back, or the other way.
    pub fn switch(&mut self, now_ns: u64) {
        let verify = &mut self.verify;
        if verify.active {
            verify.total_ns += now_ns.saturating_sub(verify.since_ns);
        }
        (verify.active, verify.since_ns) = (!verify.active, now_ns);
    }

    fn new_interval(&self) -> Interval {
        Interval { lat_ns: self.with_histograms.then(Histogram::new), ..Interval::default() }
    }

    /// Counts the time until `now_ns`, in which `in_flight` ops were in flight. The caller calls it at each change.
    #[inline]
    pub fn passed(&mut self, now_ns: u64, in_flight: usize) {
        let ns = now_ns.saturating_sub(self.depth.known_until);
        self.depth.in_flight_ns += u128::from(ns) * in_flight as u128;
        self.depth.known_until = now_ns;
    }

    /// The numbers until `end_ns`, which lies between the last two changes of the ops in flight.
    pub fn so_far(&self, end_ns: u64, in_flight: usize) -> SoFar {
        let (ops, _, lat_sum_ns) = self.counters();
        let later_ns = u128::from(self.depth.known_until.saturating_sub(end_ns)) * in_flight as u128;
        let in_flight_ns = self.depth.in_flight_ns.saturating_sub(later_ns);
        SoFar { ops: ops.iter().map(|(_, ops)| ops).sum(), lat_sum_ns, in_flight_ns }
    }

    /// Counts the depth at which an op is issued, itself included.
    #[inline]
    pub fn issued(&mut self, depth: usize) {
        self.depth.in_flight[depth.max(1).ilog2() as usize & 31] += 1;
        self.depth.in_flight_sum += depth as u64;
    }

    /// Takes back the count of an op that found the work at its end.
    #[cold]
    pub fn withdrawn(&mut self, depth: usize) {
        let class = &mut self.depth.in_flight[depth.max(1).ilog2() as usize & 31];
        *class = class.saturating_sub(1);
        self.depth.in_flight_sum = self.depth.in_flight_sum.saturating_sub(depth as u64);
    }

    /// Counts a submission call of `ops` ops.
    #[inline]
    pub fn submitted(&mut self, ops: usize) {
        self.depth.submitted[power_class(ops)] += ops as u64;
        self.depth.submit_calls += 1;
    }

    /// Counts a reaping call of `ops` ops.
    #[inline]
    pub fn reaped(&mut self, ops: usize) {
        self.depth.completed[power_class(ops)] += ops as u64;
        self.depth.complete_calls += 1;
    }

    /// Counts a successful transfer of `bytes`.
    #[inline]
    pub fn transferred(&mut self, direction: Direction, bytes: u64, times: &Times, priority: u16) {
        let lat = times.completed.saturating_sub(times.created);
        let result = &mut self.directions[direction];
        result.ops += 1;
        result.bytes += bytes;
        if self.kept.slat {
            result.slat_ns.record(times.submitted.saturating_sub(times.created));
        }
        if self.kept.clat {
            result.clat_ns.record(times.completed.saturating_sub(times.submitted));
        }
        if self.kept.lat {
            result.lat_ns.record(lat);
        }
        if let Some(histogram) = &mut result.lat_intended_ns {
            histogram.record(times.completed.saturating_sub(times.intended));
        }
        if self.by_priority {
            self.record_priority(direction, times, priority);
        }
        self.lat_sum_ns += lat;
        self.current.ops[direction] += 1;
        self.current.bytes[direction] += bytes;
        self.current.lat_sum_ns[direction] += lat;
        if let Some(histogram) = &mut self.current.lat_ns {
            histogram.record(lat);
        }
    }

    fn record_priority(&mut self, direction: Direction, times: &Times, priority: u16) {
        let priority = if priority == 0 { self.usual_priority } else { priority };
        let all = &mut self.directions[direction].priorities;
        let index = all.iter().position(|one| one.priority == priority).unwrap_or_else(|| {
            all.push(PriorityLatency { priority, ..PriorityLatency::default() });
            all.len() - 1
        });
        if self.kept.clat {
            all[index].clat_ns.record(times.completed.saturating_sub(times.submitted));
        }
        if self.kept.lat {
            all[index].lat_ns.record(times.completed.saturating_sub(times.created));
        }
    }

    /// Counts a sync and its latency.
    pub fn synced(&mut self, times: &Times) {
        self.sync.lat_ns.record(times.completed.saturating_sub(times.created));
    }

    /// Counts a transfer that came up short.
    pub fn short(&mut self, direction: Direction) {
        self.directions[direction].short_ops += 1;
    }

    /// Counts a transfer that came up short and is being continued.
    pub fn continued(&mut self, direction: Direction) {
        self.short(direction);
        self.continued += 1;
    }

    /// Takes note of the engine's events so far.
    pub fn disturbed(&mut self, events: Disturbances) {
        self.disturbances = events;
    }

    /// Counts messages that never came.
    pub fn lost(&mut self, messages: u64) {
        self.directions.read.dropped_ops += messages;
    }

    /// Takes back bytes that were counted as read, and are not data.
    pub fn take_back(&mut self, bytes: u64) {
        for counted in [&mut self.directions.read.bytes, &mut self.current.bytes.read] {
            *counted = counted.saturating_sub(bytes);
        }
    }

    /// Counts a failure that the job tolerates.
    pub fn failed(&mut self, direction: Direction, errno: i32) {
        self.directions[direction].failed_ops += 1;
        self.first_error.get_or_insert(errno);
    }

    /// Closes the interval if it has ended.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) {
        if now_ns >= self.interval_end_ns {
            self.close_interval(now_ns);
        }
    }

    #[cold]
    fn close_interval(&mut self, now_ns: u64) {
        let nominal_end = self.interval_end_ns;
        let from = self.intervals.last().map_or(0, |last: &Interval| last.end_ns);
        let fresh = self.new_interval();
        let mut closed = std::mem::replace(&mut self.current, fresh);
        // A clone that was blocked past the nominal end closes one longer interval, with its true length.
        closed.end_ns = now_ns.max(nominal_end) - self.start_ns;
        closed.length_ns = closed.end_ns - from;
        self.intervals.push(closed);
        let behind = (now_ns - nominal_end) / self.interval_ns;
        self.interval_end_ns = nominal_end + (behind + 1) * self.interval_ns;
    }

    /// Ops, bytes and the latency sum so far, for the seats.
    pub fn counters(&self) -> (PerDirection<u64>, PerDirection<u64>, u64) {
        let of = |field: fn(&DirectionResult) -> u64| PerDirection::from_fn(|d| field(&self.directions[d]));
        (of(|r| r.ops), of(|r| r.bytes), self.lat_sum_ns)
    }

    /// The length of an interval.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Everything measured in a window that ends at `end_ns`, with that many ops in flight.
    pub fn finish_window(mut self, end_ns: u64, in_flight: usize) -> Recorded {
        self.depth.in_flight_ns = self.so_far(end_ns, in_flight).in_flight_ns;
        self.close_last(end_ns.saturating_sub(self.start_ns));
        Recorded { is_window: true, ..self.finish(end_ns) }
    }

    /// Closes an interval at the end of a run of `elapsed` nanoseconds.
    fn close_last(&mut self, elapsed: u64) {
        let since = self.intervals.last().map_or(0, |last| last.end_ns);
        if elapsed > since || self.intervals.is_empty() {
            let mut last = std::mem::take(&mut self.current);
            (last.end_ns, last.length_ns) = (elapsed, elapsed.saturating_sub(since));
            self.intervals.push(last);
        }
    }

    /// Everything measured until `end_ns`.
    pub fn finish(mut self, end_ns: u64) -> Recorded {
        // A last part shorter than half an interval would be mostly edge: its ops are in the totals.
        let since = self.intervals.last().map_or(0, |last| last.end_ns);
        let elapsed = end_ns.saturating_sub(self.start_ns);
        if elapsed.saturating_sub(since) * 2 >= self.interval_ns || self.intervals.is_empty() {
            self.close_last(elapsed);
        }
        self.depth.issuing.get_or_insert((self.depth.in_flight_ns, elapsed));
        if self.verify.active {
            self.switch(end_ns);
        }
        let verifying_ns = self.verify.total_ns;
        for (direction, result) in self.directions.iter_mut() {
            result.runtime_ns = match direction {
                _ if result.ops == 0 => 0,
                // Reads that only read back took place only then.
                Direction::Read if verifying_ns > 0 && !self.reads => verifying_ns,
                _ => elapsed.saturating_sub(verifying_ns),
            };
        }
        let mut disturbances = self.disturbances.since(&self.disturbed_before);
        disturbances.short_transfers += self.continued;
        Recorded {
            disturbances,
            directions: self.directions,
            first_error: self.first_error,
            sync: self.sync,
            depth: self.depth.into(),
            intervals: self.intervals,
            runtime_ns: elapsed,
            backlog: self.kept.intended.then_some(self.backlog),
            ramp: self.ramp,
            is_window: false,
        }
    }
}

/// The numbers that a recorder leaves.
#[derive(Debug)]
pub struct Recorded {
    pub disturbances: Disturbances,
    /// Counts and latencies of each direction.
    pub directions: PerDirection<DirectionResult>,
    /// Error number of the first failure that the job tolerated.
    pub first_error: Option<i32>,
    /// Counts and latencies of syncs.
    pub sync: SyncResult,
    /// The distribution of the depth.
    pub depth: DepthDistribution,
    /// The intervals, which show the results over time.
    pub intervals: Vec<Interval>,
    /// Length of the measured part, in nanoseconds.
    pub runtime_ns: u64,
    /// Of an open loop: the ops that waited at its start and at its end.
    pub backlog: Option<Backlog>,
    /// The ramp, where there was one.
    pub ramp: Option<Ramp>,
    /// True if the measured part is a window of a longer run.
    pub is_window: bool,
}

impl From<Depth> for DepthDistribution {
    fn from(depth: Depth) -> Self {
        let (issuing_in_flight_ns, issuing_ns) = depth.issuing.unwrap_or_default();
        DepthDistribution {
            in_flight_ns: depth.in_flight_ns,
            issuing_in_flight_ns,
            issuing_ns,
            in_flight: depth.in_flight.to_vec(),
            in_flight_sum: depth.in_flight_sum.into(),
            submitted: depth.submitted.to_vec(),
            completed: depth.completed.to_vec(),
            submit_calls: depth.submit_calls,
            complete_calls: depth.complete_calls,
        }
    }
}

/// 0 for none, k for up to 2^k.
#[inline]
fn power_class(ops: usize) -> usize {
    if ops == 0 { 0 } else { (ops.next_power_of_two().ilog2() as usize).max(1) & 31 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_is_counted_apart() {
        let mut recorder = Recorder::new(&Job::default(), false, None, false);
        let op = |recorder: &mut Recorder| recorder.transferred(Direction::Read, 512, &Times::default(), 0);
        recorder.start(1_000);
        (0..7).for_each(|_| op(&mut recorder));
        recorder.end_ramp(201_000);
        (0..3).for_each(|_| op(&mut recorder));
        let recorded = recorder.clone().finish(401_000);
        assert_eq!(recorded.ramp, Some(Ramp { ops: 7, ns: 200_000 }));
        assert_eq!((recorded.directions.read.ops, recorded.runtime_ns), (3, 200_000));
        recorder.start(500_000);
        assert_eq!(recorder.finish(600_000).ramp, None);
    }
}

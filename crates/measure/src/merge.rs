//! Merging the results of clones, of processes and of hosts: exact for counts and distributions.

use crate::schema::{CpuUsage, DepthDistribution, DirectionResult, Interval, JobResult};
use crate::{Direction, Histogram};

impl JobResult {
    /// Adds a clone that ran beside this one: counts and distributions add up, times are the longest of both, intervals
    /// add up where they end together, the first error stays. Name, options and facts stay those of `self`.
    pub fn merge(&mut self, other: &JobResult) {
        // Every field is named, so that a new one cannot be forgotten. Fields that keep the value of `self` are not
        // bound.
        let JobResult {
            name: _,
            description: _,
            group: _,
            clones,
            options: _,
            facts,
            error,
            start_unix_ms,
            runtime_ns,
            elapsed_ns,
            open_ns,
            closed_ns,
            directions,
            sync,
            cpu,
            depth,
            latency_target,
            intervals,
            interval_ns: _,
            verified,
            zone_resets,
            disturbances,
            reporting: _,
            continue_on_error,
            first_error,
            steady_state: _,
            backlog,
            ramp,
            is_window,
            common_ns,
            slices,
            verdicts: _,
            checks: _,
        } = other;
        self.clones += clones;
        self.zone_resets += zone_resets;
        self.disturbances.add(disturbances);
        self.start_unix_ms = self.start_unix_ms.min(*start_unix_ms);
        self.runtime_ns = self.runtime_ns.max(*runtime_ns);
        self.elapsed_ns = self.elapsed_ns.max(*elapsed_ns);
        self.open_ns = self.open_ns.max(*open_ns);
        self.closed_ns = self.closed_ns.max(*closed_ns);
        if self.error.is_none() {
            self.error.clone_from(error);
        }
        self.continue_on_error |= continue_on_error;
        self.first_error = self.first_error.or(*first_error);
        for direction in Direction::ALL {
            self.directions[direction].merge(&directions[direction]);
        }
        self.sync.lat_ns.merge(&sync.lat_ns);
        self.cpu.merge(cpu);
        self.depth.merge(depth);
        self.latency_target = self.latency_target.or(*latency_target);
        merge_intervals(&mut self.intervals, intervals, self.interval_ns);
        if let Some(theirs) = verified {
            self.verified.get_or_insert_default().add(theirs);
        }
        if let Some(theirs) = backlog {
            self.backlog.get_or_insert_default().add(theirs);
        }
        if let Some(theirs) = ramp {
            self.ramp.get_or_insert_default().add(*theirs);
        }
        self.is_window |= is_window;
        self.common_ns = match (self.common_ns, *common_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, None) | (None, one) => one,
        };
        // Clones take their turns together. A clone that had done its work before has fewer.
        self.slices.truncate(slices.len());
        for (ours, theirs) in self.slices.iter_mut().zip(slices) {
            ours.merge(theirs);
        }
        for note in &facts.notes {
            if !self.facts.notes.contains(note) {
                self.facts.notes.push(note.clone());
            }
        }
    }

    /// Ops of all directions.
    pub fn total_ops(&self) -> u64 {
        self.directions.iter().map(|(_, result)| result.ops).sum()
    }

    /// Bytes of all directions.
    pub fn total_bytes(&self) -> u64 {
        self.directions.iter().map(|(_, result)| result.bytes).sum()
    }

    /// The total latencies of all directions in one distribution, in nanoseconds.
    pub fn lat_ns(&self) -> Histogram {
        let mut all = Histogram::new();
        for (_, result) in self.directions.iter() {
            all.merge(&result.lat_ns);
        }
        all
    }
}

impl DirectionResult {
    /// Adds the transfers of another clone.
    pub fn merge(&mut self, other: &DirectionResult) {
        let DirectionResult {
            bytes,
            ops,
            short_ops,
            dropped_ops,
            failed_ops,
            runtime_ns,
            slat_ns,
            clat_ns,
            lat_ns,
            lat_intended_ns,
            from_percentiles,
            priorities,
        } = other;
        self.bytes += bytes;
        self.ops += ops;
        self.short_ops += short_ops;
        self.dropped_ops += dropped_ops;
        self.failed_ops += failed_ops;
        self.runtime_ns = self.runtime_ns.max(*runtime_ns);
        self.slat_ns.merge(slat_ns);
        self.clat_ns.merge(clat_ns);
        self.lat_ns.merge(lat_ns);
        if let Some(theirs) = lat_intended_ns {
            self.lat_intended_ns.get_or_insert_default().merge(theirs);
        }
        self.from_percentiles |= from_percentiles;
        for theirs in priorities {
            match self.priorities.iter_mut().find(|ours| ours.priority == theirs.priority) {
                Some(ours) => {
                    ours.clat_ns.merge(&theirs.clat_ns);
                    ours.lat_ns.merge(&theirs.lat_ns);
                }
                None => self.priorities.push(theirs.clone()),
            }
        }
    }
}

impl CpuUsage {
    /// Adds the use of another clone.
    pub fn merge(&mut self, other: &CpuUsage) {
        let CpuUsage { user_ns, system_ns, context_switches, major_faults, minor_faults, looked_ns, waited_ns } = other;
        self.user_ns += user_ns;
        self.system_ns += system_ns;
        self.context_switches += context_switches;
        self.major_faults += major_faults;
        self.minor_faults += minor_faults;
        self.looked_ns += looked_ns;
        self.waited_ns += waited_ns;
    }

    /// The processor use since `earlier`.
    pub fn since(&self, earlier: &CpuUsage) -> CpuUsage {
        CpuUsage {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            context_switches: self.context_switches.saturating_sub(earlier.context_switches),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            looked_ns: self.looked_ns.saturating_sub(earlier.looked_ns),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

impl DepthDistribution {
    /// Adds the counts of another clone.
    pub fn merge(&mut self, other: &DepthDistribution) {
        let DepthDistribution {
            in_flight,
            in_flight_sum,
            submitted,
            completed,
            submit_calls,
            complete_calls,
            in_flight_ns,
            issuing_in_flight_ns,
            issuing_ns,
        } = other;
        add_each(&mut self.in_flight, in_flight);
        add_each(&mut self.submitted, submitted);
        add_each(&mut self.completed, completed);
        self.in_flight_sum += in_flight_sum;
        self.submit_calls += submit_calls;
        self.complete_calls += complete_calls;
        self.in_flight_ns += in_flight_ns;
        self.issuing_in_flight_ns += issuing_in_flight_ns;
        self.issuing_ns = self.issuing_ns.max(*issuing_ns);
    }

    /// The mean depth at submission of an op, that op included; 0 without ops. It is not the mean over time: an op that
    /// finds the queue empty counts as much as one that finds it full for a long time.
    pub fn mean_at_submission(&self) -> f64 {
        let ops: u64 = self.in_flight.iter().sum();
        if ops == 0 { 0.0 } else { self.in_flight_sum as f64 / ops as f64 }
    }
}

fn add_each(mine: &mut Vec<u64>, theirs: &[u64]) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), 0);
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

/// Intervals of clones belong together when they end in the same nominal interval, counted from the common start.
fn merge_intervals(mine: &mut Vec<Interval>, theirs: &[Interval], interval_ns: u64) {
    let place = |interval: &Interval| interval.end_ns.saturating_sub(1) / interval_ns.max(1);
    for other in theirs {
        match mine.binary_search_by_key(&place(other), place) {
            Ok(at) => mine[at].merge(other),
            Err(at) => mine.insert(at, other.clone()),
        }
    }
}

impl Interval {
    /// Adds the interval that follows this one.
    pub(crate) fn extend(&mut self, next: &Interval) {
        let length_ns = self.length_ns + next.length_ns;
        self.merge(next);
        self.length_ns = length_ns;
    }

    fn merge(&mut self, other: &Interval) {
        let Interval { end_ns, length_ns, bytes, ops, lat_sum_ns, lat_ns } = other;
        self.end_ns = self.end_ns.max(*end_ns);
        self.length_ns = self.length_ns.max(*length_ns);
        for direction in Direction::ALL {
            self.bytes[direction] += bytes[direction];
            self.ops[direction] += ops[direction];
            self.lat_sum_ns[direction] += lat_sum_ns[direction];
        }
        if let Some(theirs) = lat_ns {
            self.lat_ns.get_or_insert_default().merge(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clone_with(latencies: &[u64], ends_ns: &[u64]) -> JobResult {
        let mut job = JobResult { clones: 1, interval_ns: 100, ..JobResult::default() };
        for &latency in latencies {
            job.directions.read.lat_ns.record(latency);
            job.directions.read.ops += 1;
        }
        for &end_ns in ends_ns {
            let mut interval = Interval { end_ns, length_ns: 100, ..Interval::default() };
            interval.ops.read = 1;
            job.intervals.push(interval);
        }
        job
    }

    #[test]
    fn merged_clones_equal_one_clone_with_all_samples() {
        let mut merged = clone_with(&[1, 2, 3], &[100, 200]);
        merged.merge(&clone_with(&[1000, 2000], &[101, 199, 300]));
        assert_eq!(merged.directions.read.lat_ns, clone_with(&[1, 2, 3, 1000, 2000], &[]).directions.read.lat_ns);
        assert_eq!((merged.clones, merged.total_ops()), (2, 5));
        let ops: Vec<u64> = merged.intervals.iter().map(|interval| interval.ops.read).collect();
        assert_eq!(ops, [1, 3, 1], "101, 199 and 200 end in the second hundred");
    }
}

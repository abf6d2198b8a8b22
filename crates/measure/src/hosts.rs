//! The part of the result schema that runs on several hosts leave behind: each host's share, and how well they ran
//! together.
//!
//! A **rank** is one process of the run; a host has one or more of them.

use serde::{Deserialize, Serialize};

use crate::schema::{DiskUtil, Ended, JobResult, Machine, PhaseResult, Work};
use crate::{Direction, Histogram, PerDirection};

/// A run on several hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostsResult {
    /// The number of all ranks.
    pub ranks: u32,
    /// The hosts, by their lowest rank.
    pub hosts: Vec<HostResult>,
    /// Nanoseconds between the first start of a clone and the last, over all ranks, on one clock.
    pub start_skew_ns: u64,
    /// The failures, with the ranks that had them.
    pub failures: Vec<RankFailure>,
}

/// The result of one host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostResult {
    /// The name of the host, as uname(2) says it.
    pub host: String,
    /// The lowest rank of the host.
    pub first_rank: u32,
    /// The number of ranks on the host.
    pub ranks: u32,
    /// The host's machine.
    pub machine: Machine,
    /// The host's jobs, with its ranks merged.
    pub jobs: Vec<JobResult>,
    /// Of a run on files: the host's phases, with its ranks merged.
    #[serde(default)]
    pub phases: Vec<PhaseResult>,
    /// The disks below the files of the host's jobs.
    pub disks: Vec<DiskUtil>,
    /// The bytes that went over the host's network interfaces, for all programs together.
    pub wire: WireUse,
    /// Nanoseconds after the agreed moment at which the host's first and last clone began, on the first rank's clock.
    /// None if no clone began.
    pub started_ns: Option<(i64, i64)>,
    /// The host's clock against that of the first rank.
    pub clock: ClockComparison,
    /// The end of the run on this host: complete, interrupted or failed.
    pub ended: Ended,
}

/// Bytes over the network interfaces of a host, loopback and stacked interfaces left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireUse {
    /// Bytes that the host's network interfaces received.
    pub received: u64,
    /// Bytes that the host's network interfaces sent.
    pub sent: u64,
    /// The nanoseconds in which these bytes went over the interfaces.
    pub length_ns: u64,
}

/// A clock against the first rank's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockComparison {
    /// Nanoseconds that the first rank's clock is ahead, just before the start.
    pub ahead_ns: i64,
    /// The largest error of `ahead_ns` in nanoseconds.
    pub bound_ns: u64,
    /// Nanoseconds by which `ahead_ns` had changed after the run; None if there was no second comparison.
    pub drift_ns: Option<i64>,
}

/// The failure of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankFailure {
    /// The rank that failed.
    pub rank: u32,
    /// The host of the rank.
    pub host: String,
    /// The failure, in one line.
    pub what: String,
    /// True if the result has nothing of the rank's measurements.
    pub lost: bool,
}

/// The work that was done while all ranks were at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The length of the window in nanoseconds.
    pub length_ns: u64,
    /// Ops of the window, each way.
    pub ops: PerDirection<u64>,
    /// Bytes of the window, each way.
    pub bytes: PerDirection<u64>,
}

impl Window {
    /// Ops per second of all directions over the window.
    pub fn iops(&self) -> f64 {
        per_second(self.ops.iter().map(|(_, &ops)| ops).sum(), self.length_ns)
    }

    /// Bytes per second of all directions over the window.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes.iter().map(|(_, &bytes)| bytes).sum(), self.length_ns)
    }
}

fn per_second(count: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count as f64 * 1e9 / ns as f64 }
}

/// The number, from 0, of the interval that ended at `end_ns`. An interval ends at the first look at the clock after
/// its time, so a bit later.
fn nth(end_ns: u64, interval_ns: u64) -> u64 {
    ((end_ns + interval_ns / 2) / interval_ns).max(1) - 1
}

impl JobResult {
    /// The work that was done while all ranks were at work: the whole intervals of that time. The window is the whole
    /// run where there is no such interval, and for one rank alone.
    pub fn window(&self) -> Window {
        let interval_ns = self.interval_ns.max(1);
        // A run may be a little shorter than the sum of its intervals.
        let whole = (self.common_ns.unwrap_or(0) + interval_ns / 50) / interval_ns;
        let within = |end_ns: u64| nth(end_ns, interval_ns) < whole;
        let mut window = Window::default();
        if whole == 0 || !self.intervals.iter().any(|interval| within(interval.end_ns)) {
            window.length_ns = self.runtime_ns;
            for (direction, result) in self.directions.iter() {
                (window.ops[direction], window.bytes[direction]) = (result.ops, result.bytes);
            }
            return window;
        }
        window.length_ns = whole * self.interval_ns;
        for interval in self.intervals.iter().filter(|interval| within(interval.end_ns)) {
            for direction in Direction::ALL {
                window.ops[direction] += interval.ops[direction];
                window.bytes[direction] += interval.bytes[direction];
            }
        }
        window
    }

    /// Joins neighbouring intervals until no more than `most` are left: the sums stay exact.
    pub fn coarsen(&mut self, most: usize) {
        let most = most.max(1) as u64;
        let last = self.intervals.last().map_or(0, |last| last.end_ns).div_ceil(self.interval_ns.max(1));
        let factor = last.div_ceil(most);
        if factor <= 1 {
            return;
        }
        let finer_ns = self.interval_ns.max(1);
        let place = |end_ns: u64| nth(end_ns, finer_ns) / factor;
        self.interval_ns = finer_ns * factor;
        let mut joined: Vec<crate::schema::Interval> = Vec::new();
        for interval in std::mem::take(&mut self.intervals) {
            match joined.last_mut().filter(|last| place(last.end_ns) == place(interval.end_ns)) {
                Some(last) => last.extend(&interval),
                None => joined.push(interval),
            }
        }
        self.intervals = joined;
    }
}

impl HostResult {
    /// Adds another rank of the same host. The disks and the network, which the host has once, are not added up.
    pub fn merge(&mut self, other: &HostResult) {
        let HostResult {
            host: _,
            first_rank,
            ranks,
            machine: _,
            jobs,
            phases,
            disks,
            wire,
            started_ns,
            clock: _,
            ended,
        } = other;
        self.first_rank = self.first_rank.min(*first_rank);
        self.ranks += ranks;
        merge_jobs(&mut self.jobs, jobs);
        merge_phases(&mut self.phases, phases);
        for disk in disks {
            if !self.disks.iter().any(|known| known.name == disk.name) {
                self.disks.push(disk.clone());
            }
        }
        if wire.length_ns > self.wire.length_ns {
            self.wire = *wire;
        }
        self.started_ns = match (self.started_ns, *started_ns) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (one, None) | (None, one) => one,
        };
        self.ended = self.ended.worse(*ended);
    }

    /// The windows of the host's jobs: jobs that ran side by side (in one group) add up, groups follow one after the
    /// other.
    pub fn window(&self) -> Window {
        window_of(&self.jobs)
    }

    /// The total latencies of all jobs of the host.
    pub fn lat_ns(&self) -> Histogram {
        let mut all = Histogram::new();
        self.jobs.iter().for_each(|job| all.merge(&job.lat_ns()));
        all
    }
}

/// The windows of jobs: jobs that ran side by side (in one group) add up, groups follow one after the other.
pub fn window_of(jobs: &[JobResult]) -> Window {
    let mut groups: Vec<(u32, Window)> = Vec::new();
    for job in jobs {
        let window = job.window();
        let at = groups.iter().position(|(group, _)| *group == job.group).unwrap_or_else(|| {
            groups.push((job.group, Window::default()));
            groups.len() - 1
        });
        let sum = &mut groups[at].1;
        sum.length_ns = sum.length_ns.max(window.length_ns);
        for direction in Direction::ALL {
            sum.ops[direction] += window.ops[direction];
            sum.bytes[direction] += window.bytes[direction];
        }
    }
    let mut all = Window::default();
    for (_, window) in groups {
        all.length_ns += window.length_ns;
        for direction in Direction::ALL {
            all.ops[direction] += window.ops[direction];
            all.bytes[direction] += window.bytes[direction];
        }
    }
    all
}

/// Adds the jobs of other ranks to those of the same name, group and place among these.
pub fn merge_jobs(mine: &mut Vec<JobResult>, theirs: &[JobResult]) {
    let mut seen: Vec<(&str, u32, usize)> = Vec::new();
    for job in theirs {
        // Jobs may share a name: the second such job of another rank belongs to the second such job in `mine`.
        let nth = seen.iter().filter(|(name, group, _)| (*name, *group) == (&job.name, job.group)).count();
        seen.push((&job.name, job.group, nth));
        let same = |known: &&mut JobResult| (&known.name, known.group) == (&job.name, job.group);
        match mine.iter_mut().filter(same).nth(nth) {
            Some(known) => known.merge(job),
            None => mine.push(job.clone()),
        }
    }
}

/// Adds the phases of other ranks, in their order.
///
/// Each rank knows the work that it had done when its own first thread was through. The work that it had done when the
/// first thread of all ranks was through is less: this function takes the part that falls to that time at an even pace.
pub fn merge_phases(mine: &mut Vec<PhaseResult>, theirs: &[PhaseResult]) {
    for (index, phase) in theirs.iter().enumerate() {
        let Some(known) = mine.get_mut(index) else {
            mine.push(phase.clone());
            continue;
        };
        let mut phase = phase.clone();
        let wall_ns = known.stonewall_ns.min(phase.stonewall_ns);
        known.cut_to(wall_ns);
        phase.cut_to(wall_ns);
        known.merge(&phase);
    }
}

/// Brings the phases of all hosts to the stonewall of all ranks, `all`, which then has the sum of their work: hosts are
/// compared over one window.
pub fn cut_to_one_window(hosts: &mut [HostResult], all: &mut [PhaseResult]) {
    for (index, total) in all.iter_mut().enumerate() {
        let mut sum = Work::default();
        for phase in hosts.iter_mut().filter_map(|host| host.phases.get_mut(index)) {
            phase.cut_to(total.stonewall_ns);
            sum.add(&phase.at_stonewall);
        }
        if sum != Work::default() {
            total.at_stonewall = sum;
        }
    }
}

impl PhaseResult {
    /// Brings the stonewall to an earlier moment, and takes the part of the work that falls to it at an even pace.
    fn cut_to(&mut self, wall_ns: u64) {
        if self.stonewall_ns <= wall_ns {
            return;
        }
        let part = |count: u64| (u128::from(count) * u128::from(wall_ns) / u128::from(self.stonewall_ns)) as u64;
        let Work { files, records, bytes, failed, directories } = self.at_stonewall;
        self.at_stonewall = Work {
            files: part(files),
            records: part(records),
            bytes: part(bytes),
            failed: part(failed),
            directories: part(directories),
        };
        self.stonewall_ns = wall_ns;
    }
}

impl Ended {
    /// The worse of two ends: failed, then interrupted, then complete.
    pub fn worse(self, other: Ended) -> Ended {
        match (self, other) {
            (Ended::Failed, _) | (_, Ended::Failed) => Ended::Failed,
            (Ended::Interrupted, _) | (_, Ended::Interrupted) => Ended::Interrupted,
            _ => Ended::Complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Interval;

    fn job(name: &str, ops: &[u64], common_ns: u64) -> JobResult {
        let mut job =
            JobResult { name: name.into(), interval_ns: 100, common_ns: Some(common_ns), ..JobResult::default() };
        for (index, &ops) in ops.iter().enumerate() {
            let mut interval = Interval { end_ns: 100 * (index as u64 + 1), length_ns: 100, ..Interval::default() };
            interval.ops.read = ops;
            job.intervals.push(interval);
            job.directions.read.ops += ops;
            job.directions.read.lat_ns.record_many(50, ops);
        }
        job.runtime_ns = 100 * ops.len() as u64;
        job
    }

    #[test]
    fn the_window_ends_with_the_first_rank_that_ends() {
        let mut all = job("a", &[10, 10, 10, 10], 400);
        all.merge(&job("a", &[1, 1], 250));
        let window = all.window();
        assert_eq!((window.length_ns, window.ops.read), (200, 22));
        let mut late = all.clone();
        late.intervals.iter_mut().for_each(|interval| interval.end_ns += 3);
        assert_eq!(late.window(), window, "intervals end when somebody looks");
        assert_eq!(all.total_ops(), 42, "the totals keep everything");
        assert_eq!(job("a", &[7, 7], 50).window().ops.read, 14, "shorter than an interval: the whole run");
        let alone = JobResult { common_ns: None, ..job("a", &[7, 7], 0) };
        assert_eq!(alone.window().ops.read, 14);
    }

    #[test]
    fn jobs_meet_those_of_their_name_and_place() {
        let mut mine = vec![job("a", &[1], 100), job("a", &[2], 100), job("b", &[3], 100)];
        merge_jobs(&mut mine, &[job("a", &[10], 100), job("a", &[20], 100), job("c", &[30], 100)]);
        let ops: Vec<u64> = mine.iter().map(JobResult::total_ops).collect();
        assert_eq!(ops, [11, 22, 3, 30]);
    }

    #[test]
    fn coarser_intervals_have_the_same_sums() {
        let mut coarse = job("a", &[1, 2, 3, 4, 5], 500);
        coarse.coarsen(2);
        let ops: Vec<u64> = coarse.intervals.iter().map(|interval| interval.ops.read).collect();
        assert_eq!((ops, coarse.interval_ns), (vec![6, 9], 300));
        let mut same = job("a", &[1, 2], 200);
        same.coarsen(2);
        assert_eq!(same.intervals.len(), 2);
    }

    #[test]
    fn the_stonewall_of_all_ranks_is_the_first() {
        let phase = |files, stonewall_ns| PhaseResult {
            stonewall_ns,
            at_stonewall: Work { files, ..Work::default() },
            total: Work { files: 1000, ..Work::default() },
            ..PhaseResult::default()
        };
        let mut all = vec![phase(900, 300)];
        merge_phases(&mut all, &[phase(800, 100), phase(5, 1)]);
        merge_phases(&mut all, &[phase(400, 200)]);
        assert_eq!((all[0].stonewall_ns, all[0].at_stonewall.files), (100, 300 + 800 + 200));
        assert_eq!((all[0].total.files, all.len()), (3000, 2));
    }

    #[test]
    fn hosts_are_compared_over_the_stonewall_of_all() {
        let host = |files, stonewall_ns| HostResult {
            phases: vec![PhaseResult {
                stonewall_ns,
                at_stonewall: Work { files, ..Work::default() },
                ..PhaseResult::default()
            }],
            ..HostResult::default()
        };
        let mut hosts = [host(900, 300), host(10, 100), HostResult::default()];
        let mut all = vec![PhaseResult { stonewall_ns: 100, ..PhaseResult::default() }];
        cut_to_one_window(&mut hosts, &mut all);
        let files: Vec<u64> = hosts[..2].iter().map(|host| host.phases[0].at_stonewall.files).collect();
        assert_eq!((files, all[0].at_stonewall.files), (vec![300, 10], 310));
        assert!(hosts[..2].iter().all(|host| host.phases[0].stonewall_ns == 100));
    }

    #[test]
    fn a_group_is_side_by_side_and_groups_follow_each_other() {
        let second = JobResult { group: 1, ..job("c", &[5, 5, 5], 300) };
        let window = window_of(&[job("a", &[1, 1], 200), job("b", &[2, 2], 200), second]);
        assert_eq!((window.length_ns, window.ops.read), (500, 21));
    }
}

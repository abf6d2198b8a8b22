//! The parts that ranks hand over at the end. They are merged exactly, in any order, along the tree.

use measure::schema::{
    Ended, FilesResult, HostResult, HostsResult, JobResult, PhaseResult, Provenance, RankFailure, RunResult, Storage,
};
use measure::verdict::{self, Judgement};
use measure::{cut_to_one_window, merge_jobs, merge_phases};
use serde::{Deserialize, Serialize};

/// Intervals of each host in the result: enough for a curve. The sum over all hosts has every interval.
const INTERVALS_A_HOST: usize = 240;

/// The measurements of one rank or of many.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// The provenance of the lowest rank: its machine, program and command line.
    pub provenance: Provenance,
    /// The options of the global sections of `run`.
    pub global_options: Vec<(String, String)>,
    /// The rank that `provenance` and `global_options` come from.
    pub first_rank: u32,
    /// The number of ranks in this part.
    pub ranks: u32,
    /// The jobs of all ranks.
    pub jobs: Vec<JobResult>,
    /// The phases of all ranks.
    pub phases: Vec<PhaseResult>,
    /// The hosts in this part.
    pub hosts: Vec<HostResult>,
    /// The ranks that failed, each with its reason.
    pub failures: Vec<RankFailure>,
    /// The worst way in which a rank of this part has ended.
    pub ended: Ended,
}

impl Part {
    /// The part of one rank, from its own result; `host` says all but the jobs.
    pub fn of_run(rank: u32, result: RunResult, host: HostResult) -> Part {
        let mut jobs = result.jobs;
        for job in &mut jobs {
            job.common_ns = Some(job.runtime_ns);
        }
        let mut host = HostResult { first_rank: rank, ranks: 1, jobs: jobs.clone(), disks: result.disks, ..host };
        host.ended = result.ended;
        host.jobs.iter_mut().for_each(|job| job.coarsen(INTERVALS_A_HOST));
        Part {
            provenance: result.provenance,
            global_options: result.global_options,
            first_rank: rank,
            ranks: 1,
            jobs,
            hosts: vec![host],
            ended: result.ended,
            ..Part::default()
        }
    }

    /// The part of one rank of a run on files. Threads are numbered through all ranks: each rank has done so
    /// for its own threads already.
    pub fn of_files(rank: u32, result: &FilesResult, host: HostResult) -> Part {
        let host = HostResult {
            first_rank: rank,
            ranks: 1,
            phases: result.phases.clone(),
            disks: result.disks.clone(),
            ended: result.ended,
            ..host
        };
        Part {
            provenance: result.provenance.clone(),
            first_rank: rank,
            ranks: 1,
            phases: result.phases.clone(),
            hosts: vec![host],
            ended: result.ended,
            ..Part::default()
        }
    }

    /// The part of a rank that has measured nothing, and why.
    pub fn failed(failure: RankFailure, host: HostResult) -> Part {
        let first_rank = failure.rank;
        let host = HostResult { first_rank, ranks: 1, ended: Ended::Failed, ..host };
        Part {
            first_rank,
            ranks: 1,
            hosts: vec![host],
            failures: vec![failure],
            ended: Ended::Failed,
            ..Part::default()
        }
    }

    /// Adds the measurements of other ranks.
    pub fn merge(&mut self, other: Part) {
        let Part { provenance, global_options, first_rank, ranks, jobs, phases, hosts, failures, ended } = other;
        let other_first = first_rank < self.first_rank;
        self.ranks += ranks;
        merge_jobs(&mut self.jobs, &jobs);
        // The wall clocks of hosts differ: a phase starts when the lowest rank says so.
        let first = if other_first { &phases } else { &self.phases };
        let starts: Vec<u64> = first.iter().map(|phase| phase.start_unix_ms).collect();
        merge_phases(&mut self.phases, &phases);
        self.phases.iter_mut().zip(starts).for_each(|(phase, start)| phase.start_unix_ms = start);
        for host in hosts {
            match self.hosts.iter_mut().find(|known| known.host == host.host) {
                Some(known) => known.merge(&host),
                None => self.hosts.push(host),
            }
        }
        self.failures.extend(failures);
        self.ended = self.ended.worse(ended);
        // A rank that failed at once knows less of the run than the next one.
        let knows = |schema: u32| schema != 0;
        let (known, other_known) = (knows(self.provenance.schema), knows(provenance.schema));
        if (other_known && !known) || (known == other_known && first_rank < self.first_rank) {
            (self.provenance, self.global_options, self.first_rank) = (provenance, global_options, first_rank);
        }
    }

    /// The part as bytes of a message.
    pub fn written(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Parts as they have come, merged; those that cannot be read are left out, and so are missed.
    pub fn merge_written(parts: Vec<Vec<u8>>) -> Vec<u8> {
        Part::read_all(parts).map(|part| part.written()).unwrap_or_default()
    }

    /// The parts as they have come, merged into one; None if none of them can be read.
    pub fn read_all(parts: Vec<Vec<u8>>) -> Option<Part> {
        // The largest first: the smaller parts are then moved into it, and the largest is not copied.
        let mut parts: Vec<Part> = parts.iter().filter_map(|bytes| postcard::from_bytes(bytes).ok()).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.ranks));
        let mut parts = parts.into_iter();
        let mut all = parts.next()?;
        parts.for_each(|part| all.merge(part));
        Some(all)
    }

    /// The run of all ranks; `size` is how many there were.
    pub fn into_run(mut self, size: u32) -> RunResult {
        let hosts = self.take_hosts(size);
        for job in &mut self.jobs {
            job.judge();
        }
        let mut result = RunResult {
            provenance: self.provenance,
            global_options: self.global_options,
            jobs: self.jobs,
            disks: Vec::new(),
            storage: Storage::default(),
            verdicts: Vec::new(),
            checks: Vec::new(),
            ended: self.ended,
            remaining_ns: None,
            taken_unix_ms: None,
            hosts: Some(Box::new(hosts)),
        };
        let mut judged = Judgement::default();
        // Processors are each host's own: together they say nothing.
        for host in result.hosts.iter().flat_map(|hosts| &hosts.hosts) {
            let provenance = Provenance { machine: host.machine.clone(), ..Provenance::default() };
            let alone = RunResult { provenance, jobs: host.jobs.clone(), ..RunResult::default() };
            let Judgement { verdicts, checks } = verdict::for_run(&alone);
            judged.add(Judgement { verdicts: Vec::new(), checks });
            for mut verdict in verdicts {
                match judged.verdicts.iter_mut().find(|known| known.code == verdict.code) {
                    Some(known) if known.what.len() < 200 => {
                        known.what = format!("{}; {}: {}", known.what, host.host, verdict.what)
                    }
                    Some(_) => {}
                    None => {
                        verdict.what = format!("{}: {}", host.host, verdict.what);
                        judged.verdicts.push(verdict);
                    }
                }
            }
        }
        result.hosts.iter().for_each(|hosts| judged.add(verdict::for_hosts(hosts)));
        (result.verdicts, result.checks) = (judged.verdicts, judged.checks);
        result
    }

    /// The result of `files` on all ranks, described as the first rank described it.
    pub fn into_files(mut self, size: u32, described: FilesResult) -> FilesResult {
        let mut hosts = self.take_hosts(size);
        cut_to_one_window(&mut hosts.hosts, &mut self.phases);
        for phase in &mut self.phases {
            phase.threads.sort_unstable_by_key(|thread| thread.thread);
            phase.calls.sort_by_key(|call| std::cmp::Reverse(call.lat_ns.sum()));
            phase.judge(&described.facts);
        }
        let error = described.error.or_else(|| {
            let failure = hosts.failures.first()?;
            let message = format!("rank {} on {}: {}", failure.rank, failure.host, failure.what);
            Some(measure::schema::JobError { errno: EIO, message })
        });
        let mut result = FilesResult {
            provenance: self.provenance,
            phases: self.phases,
            error,
            ended: self.ended,
            verdicts: Vec::new(),
            checks: Vec::new(),
            hosts: Some(Box::new(hosts)),
            ..described
        };
        let mut judged = verdict::for_files(&result);
        result.hosts.iter().for_each(|hosts| judged.add(verdict::for_hosts(hosts)));
        (result.verdicts, result.checks) = (judged.verdicts, judged.checks);
        result
    }

    fn take_hosts(&mut self, size: u32) -> HostsResult {
        let mut hosts = std::mem::take(&mut self.hosts);
        hosts.sort_by_key(|host| host.first_rank);
        for host in &mut hosts {
            for job in &mut host.jobs {
                // All hosts are seen in the same window: that in which every rank was at work.
                let same = |total: &&JobResult| (&total.name, total.group) == (&job.name, job.group);
                job.common_ns = self.jobs.iter().find(same).and_then(|total| total.common_ns);
            }
        }
        let starts = || hosts.iter().filter_map(|host| host.started_ns);
        let first = starts().map(|(first, _)| first).min().unwrap_or(0);
        let last = starts().map(|(_, last)| last).max().unwrap_or(0);
        let mut failures = std::mem::take(&mut self.failures);
        failures.sort_by_key(|failure| failure.rank);
        HostsResult { ranks: size, start_skew_ns: last.abs_diff(first), failures, hosts }
    }
}

/// The error number of failures that have none: see [`measure::schema::JobError`].
const EIO: i32 = 5;

/// A value as bytes of a message.
pub fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_default()
}

/// A value from the bytes of a message; None if the bytes hold no such value.
pub fn from_bytes<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::Histogram;
    use proptest::prelude::*;

    fn rank(rank: u32, host: &str, samples: &[u64]) -> (Part, Histogram) {
        let mut job =
            JobResult { name: "j".into(), clones: 1, runtime_ns: 1000, interval_ns: 100, ..JobResult::default() };
        let mut all = Histogram::new();
        for &sample in samples {
            job.directions.read.lat_ns.record(sample);
            job.directions.read.ops += 1;
            all.record(sample);
        }
        let result = RunResult { jobs: vec![job], ..RunResult::default() };
        (Part::of_run(rank, result, HostResult { host: host.into(), ..HostResult::default() }), all)
    }

    proptest! {
        #[test]
        fn merged_in_any_order_the_histogram_is_that_of_all_samples(
            samples in proptest::collection::vec(proptest::collection::vec(0u64..10_000_000_000, 0..40), 1..12),
            order in any::<u64>(),
        ) {
            let mut all = Histogram::new();
            let mut parts = Vec::new();
            for (number, samples) in samples.iter().enumerate() {
                let (part, histogram) = rank(number as u32, &format!("h{}", number % 3), samples);
                all.merge(&histogram);
                parts.push(part.written());
            }
            // A tree of random shape.
            let mut random = order;
            while parts.len() > 1 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let one = parts.remove((random >> 33) as usize % parts.len());
                let other = parts.remove((random >> 13) as usize % parts.len());
                parts.push(Part::merge_written(vec![one, other]));
            }
            let size = samples.len() as u32;
            let whole = Part::read_all(parts).unwrap();
            prop_assert_eq!(whole.ranks, size);
            let run = whole.into_run(size);
            prop_assert_eq!(&run.jobs[0].directions.read.lat_ns, &all);
            let hosts = run.hosts.unwrap();
            prop_assert_eq!(hosts.hosts.iter().map(|host| host.ranks).sum::<u32>(), size);
            let mut of_hosts = Histogram::new();
            hosts.hosts.iter().for_each(|host| of_hosts.merge(&host.lat_ns()));
            prop_assert_eq!(of_hosts, all);
        }
    }

    /// The way knows no names of fields: one that is left out where it is zero would shift all that follow.
    #[test]
    fn every_field_survives_the_way() {
        use measure::schema::{Facts, JobError, Verified};
        use measure::verdict::{Check, Outcome};
        let missing = Outcome::NotCheckable { reason: "no facts".into() };
        let checks: Vec<Check> = [Outcome::Passed, missing, Outcome::Failed]
            .map(|outcome| Check { code: "not-steady".into(), outcome })
            .to_vec();
        let phase =
            PhaseResult { name: "create".into(), verified: Some(Verified::default()), ..PhaseResult::default() };
        let job = JobResult {
            name: "j".into(),
            error: Some(JobError { errno: 5, message: "what".into() }),
            verified: Some(Verified { blocks: 7, ..Verified::default() }),
            facts: Facts { cached_fraction: Some(0.5), ..Facts::default() },
            steady_state: Some(Default::default()),
            checks: checks.clone(),
            ..JobResult::default()
        };
        let result = RunResult { jobs: vec![job], checks, ..RunResult::default() };
        let mut part = Part::of_run(3, result, HostResult::default());
        part.phases.push(phase);
        let read = Part::read_all(vec![part.written()]).expect("it can be read");
        assert_eq!(format!("{read:?}"), format!("{part:?}"));
    }

    #[test]
    fn the_skew_is_between_the_first_start_and_the_last() {
        let at = |number, host: &str, started| {
            let (mut part, _) = rank(number, host, &[1]);
            part.hosts[0].started_ns = Some(started);
            part
        };
        let mut all = at(0, "a", (-10, 200));
        all.merge(at(1, "b", (50, 900)));
        all.merge(at(2, "b", (40, 60)));
        let hosts = all.into_run(3).hosts.unwrap();
        assert_eq!((hosts.start_skew_ns, hosts.hosts[1].started_ns), (910, Some((40, 900))));
    }

    #[test]
    fn a_phase_starts_when_the_lowest_rank_says_so() {
        let of = |rank, start_unix_ms| {
            let phase = PhaseResult { start_unix_ms, ..PhaseResult::default() };
            let result = FilesResult { phases: vec![phase], ..FilesResult::default() };
            Part::of_files(rank, &result, HostResult { host: format!("h{rank}"), ..HostResult::default() })
        };
        let merged = |order: [u32; 3]| {
            let mut parts = order.map(|rank| of(rank, 1000 - 300 * u64::from(rank))).into_iter();
            let mut all = parts.next().unwrap();
            parts.for_each(|part| all.merge(part));
            all.phases[0].start_unix_ms
        };
        assert_eq!([merged([0, 1, 2]), merged([2, 1, 0]), merged([1, 2, 0]), merged([2, 0, 1])], [1000; 4]);
    }

    #[test]
    fn a_rank_that_failed_is_named_and_what_the_others_have_stays() {
        let (mut all, _) = rank(0, "a", &[1, 2]);
        let failure = RankFailure { rank: 1, host: "b".into(), what: "no space".into(), lost: false };
        all.merge(Part::failed(failure.clone(), HostResult { host: "b".into(), ..HostResult::default() }));
        let run = all.into_run(2);
        assert_eq!((run.ended, run.jobs[0].total_ops()), (Ended::Failed, 2));
        assert_eq!(run.hosts.unwrap().failures, [failure]);
    }
}

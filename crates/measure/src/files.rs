//! The part of the result schema that `plimsoll files` leaves behind: phases of operations on many files.
//!
//! An **operation** is the work on one file (create: open, write, close); a **call** is one call of the file system.
//! Operations are counted; operations and calls have distributions of latency.

use serde::{Deserialize, Serialize};

use crate::Histogram;
use crate::hosts::HostsResult;
use crate::over_time::OverTime;
use crate::schema::{CpuUsage, DiskUtil, Disturbances, Ended, JobError, Provenance, Storage, Verified};
use crate::verdict::{Check, Verdict};

/// The result of `plimsoll files`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FilesResult {
    /// The program that measured, the machine and the time.
    pub provenance: Provenance,
    /// The options of the command line as written: names without dashes and their values.
    pub options: Vec<(String, String)>,
    /// Facts about the run that the verdicts need.
    pub facts: FilesFacts,
    /// The phases that ran, in order; a barrier stood before each.
    pub phases: Vec<PhaseResult>,
    /// The disks below the directory, members of stacked devices included.
    pub disks: Vec<DiskUtil>,
    /// The storage below the files; empty in results of versions that did not record it.
    #[serde(default)]
    pub storage: Storage,
    /// The first failure, if any.
    pub error: Option<JobError>,
    /// The first failure of `--cleanup`, whatever failed before: files of the run may be left. It is the failure of the
    /// run where nothing else failed.
    #[serde(default)]
    pub clean_up: Option<JobError>,
    /// Statements about the run as a whole; those on one phase are with the phase.
    pub verdicts: Vec<Verdict>,
    /// The statements that were tried, and how each of them came out.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// Complete, interrupted or failed.
    pub ended: Ended,
    /// Of a run on several hosts: the result of each host. `phases` has the sum.
    #[serde(default)]
    pub hosts: Option<Box<HostsResult>>,
}

/// Facts about a run on files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FilesFacts {
    /// The way of access: `posix`, `gfapi`.
    pub access: String,
    /// `posix`, or the volume as `gluster://HOST/VOLUME`.
    pub target: String,
    /// The directory that the run works in.
    pub directory: String,
    /// The file system's name where it is known: `ext4`, `fuse`.
    pub file_system: String,
    /// Threads of each process.
    pub threads: u32,
    /// The number of processes.
    pub processes: u32,
    /// Files of each thread.
    pub files: u64,
    /// The sizes of the files, as written: `4k`, `exp:64k`.
    pub sizes: String,
    /// The mean size of a file in bytes.
    pub mean_bytes: f64,
    /// Bytes of the largest read or write.
    pub record_bytes: u64,
    /// True if files are opened with O_DIRECT.
    pub direct: bool,
    /// True if each written file gets an fsync before its close.
    pub fsync: bool,
    /// True if the threads share their directories.
    pub shared: bool,
    /// Nanoseconds of pause after each file.
    pub pause_ns: u64,
    /// True if failed operations are counted instead of ending the run.
    pub continue_on_error: bool,
    /// Processes that ended before they could report: the work of their threads is in no figure.
    #[serde(default)]
    pub lost_processes: Vec<u32>,
}

/// One phase: one operation, or a mix of them, on the files of all threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PhaseResult {
    /// The phase as written: `create`, `read:70+stat:30`.
    pub name: String,
    /// Milliseconds since the Unix epoch at the start of the phase.
    pub start_unix_ms: u64,
    /// Nanoseconds from the start to the end of the last thread.
    pub runtime_ns: u64,
    /// All work of the phase.
    pub total: Work,
    /// Operations that were asked for: those that were done, failed, or were left. Files that were not there to be
    /// removed count as done.
    #[serde(default)]
    pub asked: u64,
    /// Operations that a stop left: the end of the time, a signal, or a failure.
    #[serde(default)]
    pub left: u64,
    /// Nanoseconds from the start until the first thread had nothing left to do.
    pub stonewall_ns: u64,
    /// The work that all threads had done at the stonewall: while all of them were at work.
    pub at_stonewall: Work,
    /// One entry a thread.
    pub threads: Vec<ThreadResult>,
    /// One entry for each operation of the phase.
    pub operations: Vec<OperationResult>,
    /// One entry for each kind of call that was made.
    pub calls: Vec<CallResult>,
    /// Processor time and context switches of the threads.
    pub cpu: CpuUsage,
    /// The failures: one entry for each call and error number.
    pub errors: Vec<CallErrors>,
    /// The course of the phase: the work that all threads together had done at the end of each interval. The list is
    /// empty for a phase that was over within the first interval.
    #[serde(default)]
    pub intervals: Vec<PhaseInterval>,
    /// Of `--response-times`: the response times of operations over time.
    #[serde(default)]
    pub over_time: Option<OverTime>,
    /// Of `--verify`: blocks that were compared.
    pub verified: Option<Verified>,
    /// Events that distort the figures.
    #[serde(default)]
    pub disturbances: Disturbances,
    /// True if the phase read files that this very run had written: they may come from memory.
    pub reads_own_writes: bool,
    /// Statements about this phase's numbers.
    pub verdicts: Vec<Verdict>,
    /// The statements that were tried, and how each of them came out.
    #[serde(default)]
    pub checks: Vec<Check>,
}

/// The end of an interval of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseInterval {
    /// Nanoseconds since the phase began.
    pub end_ns: u64,
    /// Operations done by the end of the interval, failed ones among them.
    pub files: u64,
    /// Bytes read and written by the end of the interval.
    pub bytes: u64,
}

/// Counts of the work of a thread, a phase or an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Operations done: files, directories, links. A phase that only lists directories counts the entries that it
    /// lists. Failed operations are not among them.
    pub files: u64,
    /// The number of reads and writes.
    pub records: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Directories that were listed (`readdir`, `ls-l`).
    #[serde(default)]
    pub directories: u64,
}

/// The work of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadResult {
    /// The number of the thread's process, from 0.
    pub process: u32,
    /// The number of the thread among all threads of the run, from 0.
    pub thread: u32,
    /// Nanoseconds from the phase's start to the thread's end.
    pub runtime_ns: u64,
    /// The work that the thread did.
    pub work: Work,
    /// The number of each of the phase's operations that the thread did, in the order of the phase.
    pub operations: Vec<u64>,
}

/// The result of one operation of a phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OperationResult {
    /// The name of the operation: `create`.
    pub operation: String,
    /// Nanoseconds in the calls of one file, all of them together. Pauses and the making of contents are not in it.
    pub lat_ns: Histogram,
}

/// Count and latencies of one kind of system call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CallResult {
    /// The name of the call: `open`, `write`, `fsync`.
    pub call: String,
    /// Nanoseconds of the calls, one sample a call, failed ones among them.
    pub lat_ns: Histogram,
}

/// Calls that failed in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallErrors {
    /// The name of the call.
    pub call: String,
    /// The error number; 84 (EILSEQ) for contents that differ, 61 (ENODATA) for files that end early.
    pub errno: i32,
    /// The number of these failures.
    pub count: u64,
    /// The first of these failures in full.
    pub first: String,
}

impl Work {
    /// Adds the counts of other work to these.
    pub fn add(&mut self, other: &Work) {
        let Work { files, records, bytes, failed, directories } = other;
        self.files += files;
        self.records += records;
        self.bytes += bytes;
        self.failed += failed;
        self.directories += directories;
    }

    /// Files per second over `ns` nanoseconds; 0 if `ns` is 0.
    pub fn files_per_second(&self, ns: u64) -> f64 {
        per_second(self.files, ns)
    }

    /// Directories listed per second over `ns` nanoseconds; 0 if `ns` is 0.
    pub fn directories_per_second(&self, ns: u64) -> f64 {
        per_second(self.directories, ns)
    }

    /// Reads and writes per second over `ns` nanoseconds; 0 if `ns` is 0.
    pub fn iops(&self, ns: u64) -> f64 {
        per_second(self.records, ns)
    }

    /// Bytes per second over `ns` nanoseconds; 0 if `ns` is 0.
    pub fn bytes_per_second(&self, ns: u64) -> f64 {
        per_second(self.bytes, ns)
    }
}

fn per_second(count: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count as f64 * 1e9 / ns as f64 }
}

impl PhaseResult {
    /// Adds what other threads did in the same phase: counts and distributions add up, times are the longest of both,
    /// that of the stonewall the shortest. Exact also over processes and hosts, but for the course between two beats.
    pub fn merge(&mut self, other: &PhaseResult) {
        let PhaseResult {
            name: _,
            start_unix_ms,
            runtime_ns,
            total,
            asked,
            left,
            stonewall_ns,
            at_stonewall,
            threads,
            operations,
            calls,
            cpu,
            errors,
            intervals: _, // with the course of `self`, below
            over_time,
            verified,
            disturbances,
            reads_own_writes,
            verdicts: _,
            checks: _,
        } = other;
        self.intervals = self.course_with(other);
        self.start_unix_ms = self.start_unix_ms.min(*start_unix_ms);
        self.runtime_ns = self.runtime_ns.max(*runtime_ns);
        self.stonewall_ns = self.stonewall_ns.min(*stonewall_ns);
        self.total.add(total);
        self.asked += asked;
        self.left += left;
        self.at_stonewall.add(at_stonewall);
        self.threads.extend(threads.iter().cloned());
        self.cpu.merge(cpu);
        self.disturbances.add(disturbances);
        self.reads_own_writes |= reads_own_writes;
        for theirs in operations {
            match self.operations.iter_mut().find(|mine| mine.operation == theirs.operation) {
                Some(mine) => mine.lat_ns.merge(&theirs.lat_ns),
                None => self.operations.push(theirs.clone()),
            }
        }
        for theirs in calls {
            match self.calls.iter_mut().find(|mine| mine.call == theirs.call) {
                Some(mine) => mine.lat_ns.merge(&theirs.lat_ns),
                None => self.calls.push(theirs.clone()),
            }
        }
        for theirs in errors {
            match self.errors.iter_mut().find(|mine| (&mine.call, mine.errno) == (&theirs.call, theirs.errno)) {
                Some(mine) => mine.count += theirs.count,
                None => self.errors.push(theirs.clone()),
            }
        }
        if let Some(theirs) = over_time {
            self.over_time.get_or_insert_default().merge(theirs);
        }
        if let Some(theirs) = verified {
            self.verified.get_or_insert_default().add(theirs);
        }
    }

    /// The course of both phases together, at the moments of the course that lasts longer.
    fn course_with(&self, other: &PhaseResult) -> Vec<PhaseInterval> {
        let last_ns = |phase: &PhaseResult| phase.intervals.last().map_or(0, |beat| beat.end_ns);
        let longer = if last_ns(other) > last_ns(self) { other } else { self };
        let at = |end_ns: u64| {
            let (mine, theirs) = (self.done_by(end_ns), other.done_by(end_ns));
            PhaseInterval { end_ns, files: mine.files + theirs.files, bytes: mine.bytes + theirs.bytes }
        };
        longer.intervals.iter().map(|beat| at(beat.end_ns)).collect()
    }

    /// The work done by a moment of the phase. Work between two beats counts as done at an even pace.
    fn done_by(&self, at_ns: u64) -> PhaseInterval {
        let end = PhaseInterval { end_ns: self.runtime_ns, files: self.total.files, bytes: self.total.bytes };
        let mut before = PhaseInterval::default();
        for beat in self.intervals.iter().chain([&end]) {
            if beat.end_ns >= at_ns {
                let (part_ns, whole_ns) = (at_ns - before.end_ns, (beat.end_ns - before.end_ns).max(1));
                let share = |from: u64, to: u64| {
                    let grown = u128::from(to.saturating_sub(from)) * u128::from(part_ns) / u128::from(whole_ns);
                    from + grown as u64
                };
                return PhaseInterval {
                    end_ns: at_ns,
                    files: share(before.files, beat.files),
                    bytes: share(before.bytes, beat.bytes),
                };
            }
            before = *beat;
        }
        end
    }

    /// True if the phase does nothing but list directories: `Work::files` then counts entries.
    pub fn only_lists(&self) -> bool {
        matches!(&self.operations[..], [one] if ["readdir", "ls-l"].contains(&one.operation.as_str()))
    }

    /// The number of operations that were done. A listing of a directory is one.
    pub fn operations_done(&self) -> u64 {
        if self.only_lists() { self.total.directories } else { self.total.files }
    }

    /// The work of each process: (process, longest runtime of its threads in nanoseconds, work), ascending.
    pub fn processes(&self) -> Vec<(u32, u64, Work)> {
        let mut found: Vec<(u32, u64, Work)> = Vec::new();
        for thread in &self.threads {
            match found.iter_mut().find(|(process, ..)| *process == thread.process) {
                Some((_, runtime_ns, work)) => {
                    *runtime_ns = (*runtime_ns).max(thread.runtime_ns);
                    work.add(&thread.work);
                }
                None => found.push((thread.process, thread.runtime_ns, thread.work)),
            }
        }
        found.sort_unstable_by_key(|(process, ..)| *process);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(process: u32, thread: u32, files: u64, runtime_ns: u64) -> PhaseResult {
        let work = Work { files, records: 2 * files, bytes: 10 * files, ..Work::default() };
        let mut lat_ns = Histogram::new();
        lat_ns.record_many(100, files);
        PhaseResult {
            runtime_ns,
            stonewall_ns: runtime_ns,
            total: work,
            threads: vec![ThreadResult { process, thread, runtime_ns, work, operations: vec![files] }],
            calls: vec![CallResult { call: if thread == 2 { "stat" } else { "open" }.into(), lat_ns }],
            errors: vec![CallErrors { call: "open".into(), errno: 2, count: 1, first: String::new() }],
            ..PhaseResult::default()
        }
    }

    #[test]
    fn merged_threads_add_up_and_the_stonewall_is_the_first_end() {
        let mut all = one(0, 0, 10, 1000);
        all.merge(&one(0, 1, 20, 3000));
        all.merge(&one(1, 2, 30, 2000));
        assert_eq!((all.total.files, all.total.records, all.total.bytes), (60, 120, 600));
        assert_eq!((all.runtime_ns, all.stonewall_ns), (3000, 1000));
        let counts: Vec<_> = all.calls.iter().map(|call| (call.call.as_str(), call.lat_ns.count())).collect();
        assert_eq!(counts, [("open", 30), ("stat", 30)]);
        assert_eq!(all.errors[0].count, 3);
        let processes = all.processes();
        assert_eq!(processes.len(), 2);
        assert_eq!((processes[0].1, processes[0].2.files), (3000, 30));
        assert_eq!(processes[1].2.files_per_second(processes[1].1), 15_000_000.0);
    }

    #[test]
    fn merged_courses_are_the_sum_of_both_at_every_beat() {
        let beat = |end_ns, files| PhaseInterval { end_ns, files, bytes: files * 10 };
        let long = PhaseResult { intervals: vec![beat(100, 10), beat(200, 30), beat(300, 60)], ..one(0, 0, 70, 350) };
        let short = PhaseResult { intervals: vec![beat(50, 5), beat(150, 7)], ..one(1, 1, 8, 160) };
        let at_once = one(2, 2, 4, 10); // over before the first beat
        for order in [[&long, &short, &at_once], [&at_once, &short, &long], [&short, &long, &at_once]] {
            let mut all = PhaseResult::default();
            order.into_iter().for_each(|phase| all.merge(phase));
            assert_eq!(all.intervals, [beat(100, 10 + 6 + 4), beat(200, 30 + 8 + 4), beat(300, 60 + 8 + 4)]);
        }
    }
}

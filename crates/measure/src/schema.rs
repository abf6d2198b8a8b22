//! The result schema: the documents that a run, a sweep, a run on files and a comparison leave behind.
//!
//! The program writes the documents as JSON (`--save`); `report` and `compare` read them back. fio's own schema is a
//! rendering of [`RunResult`] (crate `report`), not another store.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::figures::ByteUnits;
pub use crate::files::{
    CallErrors, CallResult, FilesFacts, FilesResult, OperationResult, PhaseInterval, PhaseResult, ThreadResult, Work,
};
pub use crate::hosts::{ClockComparison, HostResult, HostsResult, RankFailure, Window, WireUse};
use crate::point::parts;
pub use crate::storage::{Disk, FileSystem, Storage};
use crate::verdict::{Check, Verdict};
use crate::{Histogram, PerDirection};

/// The version of this schema; a reader refuses a document with a newer version.
pub const SCHEMA_VERSION: u32 = 1;

/// One document of results, as `--save` writes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Document {
    /// Of `plimsoll run`.
    Run(RunResult),
    /// Of `plimsoll sweep`.
    Sweep(SweepResult),
    /// Of `plimsoll compare`.
    Comparison(ComparisonResult),
    /// Of `plimsoll files`.
    Files(FilesResult),
}

/// The head of every document: the program that measured, the machine and the time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema: u32,
    /// The version of the program that measured.
    pub version: String,
    /// The command line, the program's name first.
    pub command: Vec<String>,
    /// Milliseconds since the Unix epoch at the start.
    pub started_unix_ms: u64,
    /// The machine on which the program ran.
    pub machine: Machine,
}

/// The machine that a result was measured on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The name of the host (`uname -n`).
    pub hostname: String,
    /// Name and release of the kernel (`uname -sr`).
    pub kernel: String,
    /// The processor's name in /proc/cpuinfo.
    pub cpu: String,
    /// Number of processors online.
    pub cpus: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The clock that was read per op: `tsc` or `clock_gettime`.
    pub clock: String,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// All jobs succeeded.
    #[default]
    Complete,
    /// A signal ended the run early: its figures are valid but partial.
    Interrupted,
    /// At least one job failed; its `error` says how.
    Failed,
}

/// The result of `plimsoll run`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunResult {
    /// The program that measured, the machine and the time.
    pub provenance: Provenance,
    /// Options of the global sections, as written.
    pub global_options: Vec<(String, String)>,
    /// One entry a job, or one a group with `group_reporting`, in order.
    pub jobs: Vec<JobResult>,
    /// The disks below the jobs' files, members of stacked devices included.
    pub disks: Vec<DiskUtil>,
    /// The storage below the files; empty in results of versions that did not record it.
    #[serde(default)]
    pub storage: Storage,
    /// Statements about the run as a whole; those on one job are with the job.
    pub verdicts: Vec<Verdict>,
    /// The statements that were tried on the run as a whole, each with its outcome.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// Complete, interrupted or failed.
    pub ended: Ended,
    /// Of a statement while the jobs run: the time that they still need, as far as it can be told. Documents have none.
    #[serde(skip)]
    pub remaining_ns: Option<u64>,
    /// Moment at which the result was taken, in milliseconds since 1970; None in results of several hosts, and of
    /// versions that did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_unix_ms: Option<u64>,
    /// Of a run on several hosts: the result of each host. `jobs` has the sum.
    #[serde(default)]
    pub hosts: Option<Box<HostsResult>>,
}

/// The result of one job, or of one group of clones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobResult {
    /// The name of the job's section.
    pub name: String,
    /// `description=`.
    pub description: Option<String>,
    /// The number of the reporting group, as fio counts groups.
    pub group: u32,
    /// The number of clones that are merged in this entry; 1 without `group_reporting`.
    pub clones: u32,
    /// The job's own options as written, in fio's spelling.
    pub options: Vec<(String, String)>,
    /// Facts about the job that the verdicts need.
    pub facts: Facts,
    /// The first failure, if any.
    pub error: Option<JobError>,
    /// Milliseconds since the Unix epoch at which the job started.
    pub start_unix_ms: u64,
    /// Wall-clock nanoseconds of the measured part, the longest of the merged clones.
    pub runtime_ns: u64,
    /// Wall-clock nanoseconds from creation to end, layout and ramp included.
    pub elapsed_ns: u64,
    /// Wall-clock nanoseconds that opening the files took, before the common start. 0 in results of other versions.
    #[serde(default)]
    pub open_ns: u64,
    /// Wall-clock nanoseconds from the common start until the last file was closed. 0 in results of other versions.
    #[serde(default)]
    pub closed_ns: u64,
    /// The transfers of each direction.
    pub directions: PerDirection<DirectionResult>,
    /// fsync, fdatasync and sync_file_range calls that the job asked for.
    pub sync: SyncResult,
    /// Processor time and context switches of the measured part.
    pub cpu: CpuUsage,
    /// The queue depths that the job really reached.
    pub depth: DepthDistribution,
    /// Of `latency_target`: the depth that it found.
    pub latency_target: Option<LatencyTarget>,
    /// Counts over time, in intervals of `interval_ns` nanoseconds.
    pub intervals: Vec<Interval>,
    /// The nominal length of an interval in nanoseconds.
    pub interval_ns: u64,
    /// Of `verify=`: the blocks that were checked.
    pub verified: Option<Verified>,
    /// Of `zonemode=zbd`: zones that were reset.
    #[serde(default)]
    pub zone_resets: u64,
    /// Events that distort the figures.
    #[serde(default)]
    pub disturbances: Disturbances,
    /// The figures that the job wants reported, and how.
    #[serde(default)]
    pub reporting: Reporting,
    /// `continue_on_error`: failed ops are counted instead of ending the job.
    #[serde(default)]
    pub continue_on_error: bool,
    /// Error number of the first failed op that the job tolerated.
    #[serde(default)]
    pub first_error: Option<i32>,
    /// Of `steadystate`: its outcome.
    #[serde(default)]
    pub steady_state: Option<SteadyState>,
    /// Under an open-loop rate: the ops that were waiting when the measured part began and when it ended.
    #[serde(default)]
    pub backlog: Option<Backlog>,
    /// The part before the measured one (`ramp_time`); None without.
    #[serde(default)]
    pub ramp: Option<Ramp>,
    /// True if the measured part is a window of a longer run: it begins after a full generation of the queue and ends
    /// before the queue drains.
    #[serde(default)]
    pub is_window: bool,
    /// Over several ranks: nanoseconds from the start during which all of them were at work; None for one rank alone.
    #[serde(default)]
    pub common_ns: Option<u64>,
    /// Of a run in slices or in turns: the measurements of each, in order. Documents have none.
    #[serde(skip)]
    pub slices: Vec<JobResult>,
    /// Statements about this job's numbers.
    pub verdicts: Vec<Verdict>,
    /// The statements that were tried on this job's numbers, each with its outcome.
    #[serde(default)]
    pub checks: Vec<Check>,
}

/// Events that distort a measurement: the op succeeded, but its latency is that of the recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disturbances {
    /// Connections that broke and were made again.
    pub connections_lost: u64,
    /// Requests that were issued again because their connection broke.
    pub requests_repeated: u64,
    /// Requests that were issued again because the storage failed them and allowed another attempt.
    pub requests_retried: u64,
    /// Attempts that failed with the path to the storage, and waited for it.
    pub path_waits: u64,
    /// Requests without an answer in time, which were aborted.
    pub timeouts: u64,
    /// Transfers that moved fewer bytes than they had to, and were continued by another request.
    pub short_transfers: u64,
}

impl Disturbances {
    /// Each count with its name in fio's JSON, and as people read it.
    pub fn counts(&self) -> [(&'static str, &'static str, u64); 6] {
        [
            ("connections_lost", "connections lost", self.connections_lost),
            ("requests_repeated", "requests repeated", self.requests_repeated),
            ("requests_retried", "requests retried", self.requests_retried),
            ("path_waits", "waits for a path", self.path_waits),
            ("timeouts", "timeouts", self.timeouts),
            ("short_transfers", "short transfers continued", self.short_transfers),
        ]
    }

    /// The counts that are not 0, as a list; empty if nothing happened.
    pub fn listed(&self) -> String {
        let happened = self.counts().into_iter().filter(|(_, _, count)| *count > 0);
        happened.map(|(_, name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }

    /// Adds the events of another clone or point.
    pub fn add(&mut self, other: &Disturbances) {
        self.combine(other, u64::saturating_add);
    }

    /// The events that came after `earlier`.
    #[must_use]
    pub fn since(mut self, earlier: &Disturbances) -> Disturbances {
        self.combine(earlier, u64::saturating_sub);
        self
    }

    fn combine(&mut self, other: &Disturbances, with: fn(u64, u64) -> u64) {
        let Disturbances {
            connections_lost,
            requests_repeated,
            requests_retried,
            path_waits,
            timeouts,
            short_transfers,
        } = other;
        for (mine, theirs) in [
            (&mut self.connections_lost, connections_lost),
            (&mut self.requests_repeated, requests_repeated),
            (&mut self.requests_retried, requests_retried),
            (&mut self.path_waits, path_waits),
            (&mut self.timeouts, timeouts),
            (&mut self.short_transfers, short_transfers),
        ] {
            *mine = with(*mine, *theirs);
        }
    }
}

/// The ramp of a run, which no other figure counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ramp {
    /// Ops that finished in the ramp, of all directions and all clones.
    pub ops: u64,
    /// Nanoseconds from the start of the ramp to its end, the longest of the merged clones.
    pub ns: u64,
}

impl Ramp {
    /// Adds the ramp of another clone.
    pub(crate) fn add(&mut self, other: Ramp) {
        self.ops += other.ops;
        self.ns = self.ns.max(other.ns);
    }
}

/// The ops that had arrived under an open-loop rate and were not finished: in flight, or due and not issued yet.
/// Summed over clones and visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backlog {
    /// Ops that arrived in the measured part.
    pub arrived: f64,
    /// Ops that waited when the measured part began.
    pub start: f64,
    /// Ops that waited when the measured part ended.
    pub end: f64,
}

impl Backlog {
    /// Adds the backlog of another clone or visit.
    pub fn add(&mut self, other: &Backlog) {
        self.arrived += other.arrived;
        self.start += other.start;
        self.end += other.end;
    }

    /// The part of the arrivals by which the queue grew; negative where it shrank. 0 without arrivals.
    pub fn growth(&self) -> f64 {
        if self.arrived > 0.0 { (self.end - self.start) / self.arrived } else { 0.0 }
    }
}

/// Facts about a job that were known or found out at run time, and that decide whether its numbers mean what
/// they seem to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The name of the engine.
    pub engine: String,
    /// True if the engine can have only one op in flight a clone.
    pub synchronous: bool,
    /// The depth that the job asked for, for each clone.
    pub iodepth: u32,
    /// The number of clones that ran together.
    pub numjobs: u32,
    /// True if O_DIRECT was in effect.
    pub direct: bool,
    /// True if the engine opens its files itself, elsewhere: this host's page cache has no part in them.
    #[serde(default)]
    pub elsewhere: bool,
    /// fio's name of the pattern: `randread`, `write`, ...
    pub rw: String,
    /// Smallest and largest block in bytes each way.
    pub block_bytes: PerDirection<(u64, u64)>,
    /// The rate that the job asked for each way, for each clone, in ops per second.
    pub rate_iops: PerDirection<Option<f64>>,
    /// The rate that the job asked for each way, for each clone, in bytes per second.
    pub rate_bytes: PerDirection<Option<f64>>,
    /// Fraction 0..=1 of the files' pages in the page cache when the measured part began; None if unknown.
    pub cached_fraction: Option<f64>,
    /// Fraction 0..=1 of the files' bytes that are holes or unwritten extents at the start; None if unknown.
    pub unwritten_fraction: Option<f64>,
    /// Bytes of the files' regions that the job works on; None if unknown.
    #[serde(default)]
    pub target_bytes: Option<u64>,
    /// True if writes were made durable within the measured part: O_SYNC, O_DSYNC, fsync, fdatasync, end_fsync,
    /// fsync_on_close. None if unknown or without writes.
    #[serde(default)]
    pub writes_synced: Option<bool>,
    /// True if the job replays a recording at its times, which then decide how many requests are in flight.
    #[serde(default)]
    pub is_replay: bool,
    /// True if the clones go through the same blocks of the same files in the same order.
    pub clones_on_same_blocks: bool,
    /// True if the run looked at its files and their storage: the facts below are then known. False for results from
    /// fio's JSON.
    #[serde(default)]
    pub examined: bool,
    /// The memory that the files are kept in, as a person would name it: "tmpfs"; None if they are on storage.
    #[serde(default)]
    pub memory: Option<String>,
    /// The loop device below the files, if it goes through the page cache of the file behind it.
    #[serde(default)]
    pub loop_device: Option<LoopDevice>,
    /// Sentences on the job: where imported figures come from, and the failure of `exec_postrun`.
    pub notes: Vec<String>,
}

/// A loop device that does not use direct I/O on the file behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopDevice {
    /// The kernel's name of the device: `loop0`.
    pub name: String,
    /// Fraction 0..=1 of the file behind it in the page cache when the measured part began; None if unknown.
    pub cached_fraction: Option<f64>,
}

impl Facts {
    /// `direct` or `buffered`; empty for buffered files that the engine opens elsewhere.
    pub fn caching(&self) -> &'static str {
        match (self.direct, self.elsewhere) {
            (true, _) => "direct",
            (false, false) => "buffered",
            (false, true) => "",
        }
    }
}

/// The transfers of one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DirectionResult {
    /// Bytes transferred.
    pub bytes: u64,
    /// Ops completed, failed ones excluded.
    pub ops: u64,
    /// Ops that transferred fewer bytes than asked, and were continued.
    pub short_ops: u64,
    /// Ops dropped because the rate could not be met (`rate_ignore...`) or a read ended at end of file.
    pub dropped_ops: u64,
    /// Ops that failed and were tolerated (`continue_on_error`).
    pub failed_ops: u64,
    /// Nanoseconds between the start and the last completion in this direction.
    pub runtime_ns: u64,
    /// Nanoseconds from the creation of an op to its submission; empty with `disable_slat`.
    pub slat_ns: Histogram,
    /// Nanoseconds from the submission of an op to its completion.
    pub clat_ns: Histogram,
    /// Nanoseconds from the creation of an op to its completion.
    pub lat_ns: Histogram,
    /// Nanoseconds from the intended start of an op to its completion, under an open-loop rate.
    pub lat_intended_ns: Option<Histogram>,
    /// True if the distributions were rebuilt from a few percentiles of fio's summary: between these percentiles the
    /// shape of the distributions is not known.
    #[serde(default)]
    pub from_percentiles: bool,
    /// The latencies of the ops of each I/O priority, if single ops have priorities of their own (`cmdprio`); empty
    /// otherwise.
    #[serde(default)]
    pub priorities: Vec<PriorityLatency>,
}

/// The latencies of the ops with one I/O priority.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PriorityLatency {
    /// The priority as ioprio_set(2) takes it: the class times 2^13, plus the level.
    pub priority: u16,
    /// As [`DirectionResult::clat_ns`].
    pub clat_ns: Histogram,
    /// As [`DirectionResult::lat_ns`].
    pub lat_ns: Histogram,
}

impl PriorityLatency {
    /// The class of ioprio_set(2): 1 real time, 2 best effort, 3 idle, 0 none.
    pub fn class(&self) -> u16 {
        self.priority >> 13
    }

    /// The level within the class: 0 is the highest.
    pub fn level(&self) -> u16 {
        self.priority & 7
    }
}

/// Sync calls and how long they took.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SyncResult {
    /// Nanoseconds of the calls, one sample a call.
    pub lat_ns: Histogram,
}

/// Processor use, from getrusage(2) and /proc/thread-self/schedstat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUsage {
    /// Nanoseconds in user mode.
    pub user_ns: u64,
    /// Nanoseconds in the kernel.
    pub system_ns: u64,
    /// Voluntary and involuntary context switches.
    pub context_switches: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Nanoseconds of the time above in which the engine looked for completions in vain (`poll=`), where it could have
    /// slept.
    #[serde(default)]
    pub looked_ns: u64,
    /// Nanoseconds for which the clones' threads were ready to run and waited for a processor; 0 where the kernel does
    /// not count them.
    #[serde(default)]
    pub waited_ns: u64,
}

/// Distributions of the requests in flight, submitted together and reaped together, in powers of two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepthDistribution {
    /// At each submission of an op, the depth including it: 1, 2, 4, ..., 2^31 (index = floor(log2)).
    pub in_flight: Vec<u64>,
    /// Sum of the depths seen, to give their mean exactly.
    #[serde(with = "as_u64")]
    pub in_flight_sum: u128,
    /// Ops submitted, by the number of ops in their submission call: index 0 for none, k for up to 2^k (1..2, 3..4,
    /// 5..8, ...).
    pub submitted: Vec<u64>,
    /// Ops reaped, by the number of ops in their reaping call, in the classes of `submitted`.
    pub completed: Vec<u64>,
    /// Submission calls that carried at least one op.
    pub submit_calls: u64,
    /// Reaping calls that returned at least one op.
    pub complete_calls: u64,
    /// The requests in flight, integrated over the measured part: nanoseconds that all requests together spent in
    /// flight. 0 where it is not known.
    #[serde(default, with = "as_u64")]
    pub in_flight_ns: u128,
    /// The part of `in_flight_ns` until the job issued its last op.
    #[serde(default, with = "as_u64")]
    pub issuing_in_flight_ns: u128,
    /// Nanoseconds of the measured part until the job issued its last op, the longest of the merged clones.
    #[serde(default)]
    pub issuing_ns: u64,
}

/// Wide sums are written as plain numbers: readers of JSON, serde's tagged enums among them, do not know 128 bits.
mod as_u64 {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(sum: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(*sum).unwrap_or(u64::MAX))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        u64::deserialize(deserializer).map(u128::from)
    }
}

/// The outcome of `latency_target`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyTarget {
    /// The largest depth that met the target; 0 if none did.
    pub depth: u32,
    /// The target in nanoseconds.
    pub target_ns: u64,
    /// The window in nanoseconds.
    pub window_ns: u64,
    /// The percentile that must meet the target.
    pub percentile: f64,
}

/// Counts of one interval of the course over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Nanoseconds from the start of the measured part to the end of this interval.
    pub end_ns: u64,
    /// The true length of this interval in nanoseconds.
    pub length_ns: u64,
    /// Bytes of the interval, each way.
    pub bytes: PerDirection<u64>,
    /// Ops of the interval, each way.
    pub ops: PerDirection<u64>,
    /// Sum of the total latencies of the interval's ops.
    pub lat_sum_ns: PerDirection<u64>,
    /// The distribution of those latencies; None where intervals do not carry it.
    pub lat_ns: Option<Histogram>,
}

/// The figures that a job wants reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reporting {
    /// `percentile_list`, 0..=100 each, ascending.
    pub percentiles: Vec<f64>,
    /// `slat_percentiles`.
    pub slat_percentiles: bool,
    /// `clat_percentiles`.
    pub clat_percentiles: bool,
    /// `lat_percentiles`.
    pub lat_percentiles: bool,
    /// `unified_rw_reporting`.
    pub unified: Unified,
    /// `kb_base` and `unit_base`.
    #[serde(default)]
    pub bytes: ByteUnits,
}

impl Default for Reporting {
    /// fio's defaults: percentiles of clat, at the percentiles of fio's own list.
    fn default() -> Reporting {
        Reporting {
            percentiles: [
                1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99,
            ]
            .to_vec(),
            slat_percentiles: false,
            clat_percentiles: true,
            lat_percentiles: false,
            unified: Unified::None,
            bytes: ByteUnits::default(),
        }
    }
}

/// `unified_rw_reporting`: the directions are reported apart, together or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unified {
    /// `none`: a result for each direction.
    #[default]
    None,
    /// All directions as one, called `mixed`.
    Mixed,
    /// Each direction apart, and all directions as one.
    Both,
}

/// The outcome of `steadystate`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// The criterion as fio names it: `iops`, `iops_slope`, `bw` or `bw_slope`.
    pub criterion: String,
    /// The limit; a percentage if `percent`.
    pub limit: f64,
    /// True if the limit and the criterion's value are percentages of the mean.
    pub percent: bool,
    /// Length of the window in nanoseconds.
    pub duration_ns: u64,
    /// True if the run attained the steady state.
    pub attained: bool,
    /// The criterion's value at the end.
    pub value: f64,
    /// The largest deviation from the mean in the window.
    pub max_deviation: f64,
    /// The slope in the window, per second.
    pub slope: f64,
    /// Ops per second, one entry a second of the window.
    pub iops: Vec<u64>,
    /// Bytes per second, one entry a second of the window.
    pub bytes_per_second: Vec<u64>,
}

/// The blocks and entries that `verify=` checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Blocks compared.
    pub blocks: u64,
    /// Directory entries that were made and found, of runs on files.
    #[serde(default)]
    pub entries: u64,
    /// Blocks that differed.
    pub mismatches: u64,
    /// Writes that `verify_only` went through on paper, and their bytes: fio counts them among the writes.
    #[serde(default)]
    pub rehearsed: (u64, u64),
}

impl Verified {
    /// Adds the checks of others.
    pub fn add(&mut self, other: &Verified) {
        let Verified { blocks, entries, mismatches, rehearsed } = other;
        self.blocks += blocks;
        self.rehearsed = (self.rehearsed.0 + rehearsed.0, self.rehearsed.1 + rehearsed.1);
        self.entries += entries;
        self.mismatches += mismatches;
    }
}

/// The error that ended a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// The system's error number; 5 (EIO) stands for errors without one, 84 (EILSEQ) for verification.
    pub errno: i32,
    /// One line: the failure, its object, its cause and the remedy.
    pub message: String,
}

/// Utilisation of one block device over the run, from /proc/diskstats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUtil {
    /// The kernel's name of the device, as `sda` or `nvme0n1`.
    pub name: String,
    /// Reads and writes completed by the device.
    pub ios: (u64, u64),
    /// Reads and writes merged before they reached the device.
    pub merges: (u64, u64),
    /// Milliseconds spent reading and writing, summed over requests.
    pub ticks_ms: (u64, u64),
    /// Milliseconds of requests in the queue.
    pub in_queue_ms: u64,
    /// Percent of the time with at least one request in flight, 0..=100.
    pub util_percent: f64,
}

/// A measured mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The estimated mean of the population.
    pub mean: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// The result of `plimsoll sweep`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SweepResult {
    /// The program that measured, the machine and the time.
    pub provenance: Provenance,
    /// The provenance of the sweeps that this one resumed, oldest first: their points are among the points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Provenance>,
    /// The path of the swept target, as a person would name it.
    pub target: String,
    /// Absolute paths of the target's files and devices, or of the directory of a scratch file. Empty without storage,
    /// and in results of versions before 0.4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathBuf>,
    /// The storage below the files; empty in results of versions that did not record it.
    #[serde(default)]
    pub storage: Storage,
    /// The job option that the points of a curve differ in: `iodepth`, `rate_iops`, `bs`.
    pub axis: String,
    /// Of a map: the job option that the curves differ in, and each curve's [`Curve::across`] is its value. Empty where
    /// the curves are those of engines.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub across: String,
    /// The latencies to keep, as `--objective` takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<String>,
    /// One curve an engine (or another varied option).
    pub curves: Vec<Curve>,
    /// The generator alone: ops per second of the null engine with the same job.
    pub ceiling_iops: Option<Estimate>,
    /// The preconditioning of the target, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preconditioning: Option<Preconditioning>,
    /// One sentence of advice: the engine, the depth, and the throughput that they give.
    pub advice: String,
    /// Over several hosts: their names, one a rank.
    #[serde(default)]
    pub ranks: Vec<String>,
    /// Complete, interrupted or failed.
    pub ended: Ended,
    /// Statements about the sweep as a whole.
    pub verdicts: Vec<Verdict>,
    /// The statements that were tried on the sweep as a whole, each with its outcome.
    #[serde(default)]
    pub checks: Vec<Check>,
}

/// The preconditioning of a target before a sweep, after SNIA's performance test specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Preconditioning {
    /// The reason why the blocks of the target were not discarded first; None if they were.
    pub not_purged: Option<String>,
    /// Bytes that were discarded; None in results of versions that did not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purged_bytes: Option<u64>,
    /// Bytes that the fill wrote: twice the target.
    pub fill_bytes: u64,
    /// Duration of the fill in nanoseconds.
    pub fill_ns: u64,
    /// fio's name of the pattern of the rounds.
    pub rw: String,
    /// Duration of a round in nanoseconds.
    pub round_ns: u64,
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// The last five rounds; None if there were fewer.
    pub window: Option<SteadyWindow>,
}

impl Preconditioning {
    /// True if the last five rounds are steady.
    pub fn is_steady(&self) -> bool {
        self.window.as_ref().is_some_and(SteadyWindow::is_steady)
    }
}

/// A round of the preconditioning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Ops per second.
    pub iops: f64,
    /// Mean latency in nanoseconds.
    pub lat_mean_ns: f64,
}

/// The window of rounds on which steadiness is judged: see [`crate::steady_state`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SteadyWindow {
    /// The number of its first round, from 1.
    pub first: u32,
    /// The mean of its rounds, in ops per second.
    pub average: f64,
    /// The largest round less the smallest, as a part of the average.
    pub excursion: f64,
    /// The change of the fitted line from the first round to the last, as a part of the average.
    pub slope: f64,
}

/// Throughput over depth of one engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Curve {
    /// The name of the engine (or the value of the varied option) that distinguishes this curve: `io_uring`.
    pub label: String,
    /// The points, by ascending x.
    pub points: Vec<Point>,
    /// Of a map: the value of the option that the curves differ in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub across: Option<f64>,
    /// Plateau, load line and overload; None when there are too few points, or where throughput over this axis has no
    /// load line.
    pub line: Option<LoadLine>,
    /// Under an open-loop rate: the highest rate that the system keeps up with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Limit>,
    /// With objectives: the highest depth or rate that keeps all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Limit>,
    /// The sign of memory for which the storage was measured in visits and not in slices: "at iodepth 4 short slices
    /// give -21 % against long ones".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

impl Curve {
    /// The events that distort the figures of all points.
    pub fn disturbances(&self) -> Disturbances {
        let mut all = Disturbances::default();
        self.points.iter().for_each(|point| all.add(&point.job.disturbances));
        all
    }
}

/// One measured point of a curve: a depth or rate, with its results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// The depth (or rate) that was asked for.
    pub x: f64,
    /// Ops per second, with their interval.
    pub iops: Estimate,
    /// Bytes per second, with their interval.
    pub bytes_per_second: Estimate,
    /// The samples that the estimate rests on, ops per second each, in order of time.
    pub samples: Vec<f64>,
    /// The visits to this depth, in order of time; empty in results of versions before 0.2, which kept no times.
    #[serde(default)]
    pub visits: Vec<Visit>,
    /// The merged job of this point.
    pub job: JobResult,
}

/// One measurement of a depth. A sweep returns to the depths that decide at other times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Visit {
    /// Nanoseconds from the start of the curve to the start of this visit.
    pub at_ns: u64,
    /// 0 for the first look at a depth; 1, 2, ... for the round of the confirmation that this visit belongs to.
    pub round: u32,
    /// The number of the point's samples that this visit took.
    pub samples: u32,
    /// Nanoseconds of the ops of this visit, from the intended start under an open-loop rate, else from the creation.
    /// Results of versions before 0.3 have none.
    #[serde(default)]
    pub lat_ns: PerDirection<Histogram>,
    /// Under an open-loop rate: the ops that waited at the start and at the end of this visit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<Backlog>,
    /// The ramp before this visit's samples: it shows what the storage gives at first, and not for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Ramp>,
    /// Nanoseconds of the measured part of this visit; 0 in results that do not record it.
    #[serde(default)]
    pub measured_ns: u64,
    /// Of a visit in slices of a run that goes on: their number and course. None: the visit is a run of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Slices>,
}

/// The slices that make up a visit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slices {
    /// The number of slices.
    pub count: u32,
    /// Nominal nanoseconds of the measured part of one slice.
    pub ns: u64,
    /// Of each slice: the logarithm of the throughput of its last half over that of its first.
    pub trends: Vec<f64>,
    /// Of each slice: how many of the visit's samples it gave.
    #[serde(default)]
    pub samples: Vec<u32>,
}

impl Slices {
    /// The samples of each slice, from those of the visit; none in results that do not tell them apart.
    pub(crate) fn parts<'a>(&self, samples: &'a [f64]) -> Vec<&'a [f64]> {
        parts(samples, self.samples.iter().copied()).filter(|part| !part.is_empty()).collect()
    }
}

/// The highest depth or rate at which conditions hold: see "Objectives" in docs/objectives.md.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The conditions: `keeps up`, `p99<1ms`.
    pub conditions: Vec<String>,
    /// The depth or rate to use: the highest measured one at which all conditions surely hold, or less where a smaller
    /// depth gives the same throughput. None if the limit cannot be named.
    pub at: Option<f64>,
    /// The highest measured depth or rate at which all conditions surely hold (each with 99.5 %).
    pub low: Option<f64>,
    /// The smallest measured depth or rate beyond `low` at which a condition surely does not hold; None if there is
    /// none.
    pub high: Option<f64>,
    /// Ops per second at `at`.
    pub iops: Option<Estimate>,
    /// Bytes per second at `at`.
    pub bytes_per_second: Option<Estimate>,
    /// The cause that ends throughput, as the end of a sentence: "p99<1ms breaks", "the plateau".
    pub beyond: Option<String>,
    /// The ops that a visit gets at its start beyond what the storage sustains, where visits that gave more lived on
    /// them: conditions hold there for a while, so these visits count for neither side. None without such visits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<f64>,
    /// The reason for a missing limit, as the end of a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unnamed: Option<String>,
}

/// The load line of a curve: see the vocabulary in docs/sweep.md.
///
/// Tables, sentences, tiles and titles show [`LoadLine::answer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadLine {
    /// The highest throughput, ops per second: see [`LoadLine::plateau`].
    pub plateau_iops: Estimate,
    /// The smallest measured depth that reaches 97 % of the plateau, and the 95 % interval of the smallest depth that
    /// does; whole numbers where the depths are. None if no load line can be named: `unnamed` says why.
    pub load_line: Option<Estimate>,
    /// The smallest measured depth beyond the plateau at which throughput has fallen 5 % below the plateau, and the 95
    /// % interval of that depth, whole numbers where the depths are. None if throughput never falls so far or no
    /// overload can be named.
    pub overload: Option<Estimate>,
    /// True if no overload is named and yet throughput may have fallen so far: more than 5 % of the curves that agree
    /// with the visits fall.
    #[serde(default)]
    pub may_fall: bool,
    /// True if the curve was still rising at the deepest point: then the load line is a lower bound.
    pub still_rising: bool,
    /// The difference between visits to the same depths, as the end of a sentence, where it is too large for one depth:
    /// "visits to the same point differ by 9.2 %". The load line's interval then holds each state of the machine that
    /// the visits may have met, and an overload rests on
    /// every visit to its depth.
    #[serde(default)]
    pub scatter: Option<String>,
    /// The ops that a visit gets at its start beyond the throughput that the storage sustains; None without a burst.
    /// The intervals of plateau and load line then hold both: what visits gave, and what remains without the burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// The reason for a missing load line, as the end of a sentence: "the machine changed during the sweep: ...".
    #[serde(default)]
    pub unnamed: Option<String>,
}

/// The burst of a limit: see [`LoadLine::burst`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Ops that a visit got at once, beyond what the storage sustains.
    pub ops: f64,
    /// True if the burst may be all there is to a fall of throughput over depth: no overload can be told then.
    pub hides_overload: bool,
}

/// The answer of a sweep about the load line: one of four.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer<'a> {
    /// The load line is at this measured depth, with its interval.
    At(Estimate),
    /// The load line lies between these depths; the sweep cannot say more.
    Between(f64, f64),
    /// The load line lies beyond the deepest measured depth: throughput still rises there.
    Beyond,
    /// The load line cannot be named, for this reason.
    Unnamed(&'a str),
}

/// The result of `plimsoll compare`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ComparisonResult {
    /// The program that measured, the machine and the time.
    pub provenance: Provenance,
    /// The names of the two sides.
    pub sides: (String, String),
    /// The change of each compared figure.
    pub effects: Vec<Effect>,
    /// The one sentence that sums the comparison up.
    pub sentence: String,
    /// The figure that the sentence and the exit status rest on: `iops`, or what `--figure` names.
    #[serde(default)]
    pub figure: String,
    /// One sentence on the average over the values of a side.
    #[serde(default)]
    pub estimator: String,
    /// Job options in which the two sides differ.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// Runs of each side, interleaved; empty when two result files were compared.
    pub runs: Vec<(RunResult, RunResult)>,
    /// Complete, interrupted or failed.
    pub ended: Ended,
    /// Statements about the comparison, and statements about the runs of a side: these begin with `A: ` or `B: `.
    pub verdicts: Vec<Verdict>,
}

impl ComparisonResult {
    /// The events that distort the runs of each side.
    pub fn disturbances(&self) -> (Disturbances, Disturbances) {
        let mut sides = (Disturbances::default(), Disturbances::default());
        for (a, b) in &self.runs {
            a.jobs.iter().for_each(|job| sides.0.add(&job.disturbances));
            b.jobs.iter().for_each(|job| sides.1.add(&job.disturbances));
        }
        sides
    }
}

/// A job option that the two sides of a comparison give different values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The job's name on the first side that has it.
    pub job: String,
    /// The option, in fio's spelling.
    pub option: String,
    /// The value on side A; None where side A does not give the option.
    pub a: Option<String>,
    /// The value on side B; None where side B does not give the option.
    pub b: Option<String>,
}

/// The reason why the two values of an [`Effect`] do not say which side is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CannotTell {
    /// Each side has one value, and nothing tells a difference from noise. The ends of the intervals are the values.
    NoInterval,
    /// The sweep of a side cannot name a load line, so its plateau means nothing.
    Unnamed,
    /// The value of a side is a lower bound: the curve of that side still rose at its deepest point.
    LowerBound,
    /// The sweep of a side cannot tell which depth or rate keeps the objectives.
    NotKept,
    /// The value of a side is a lower bound: nothing that the sweep of that side measured breaks the objectives.
    NotBroken,
    /// The ratio of the sides, or the ratio of the ends of its interval, is beyond what two measurements can mean.
    BeyondSense,
    /// The storage remembers the side before for longer than the turns of the sides lasted.
    Remembers,
}

/// The difference of the second side from the first in one figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// `iops`, `bw`, `lat_mean`, `lat_p99`, `cpu_per_op`; of runs on files `PHASE:files_per_s`, `PHASE:lat_p99`.
    pub figure: String,
    /// True if a larger value is better, false if a smaller one is; None where neither is: a load line is a depth, and
    /// only throughput and latency say if a deeper one pays.
    #[serde(default)]
    pub larger_is_better: Option<bool>,
    /// The first side's value and interval.
    pub a: Estimate,
    /// The second side's value and interval.
    pub b: Estimate,
    /// b / a - 1 with its interval: 0.1 is ten percent more.
    pub change: Estimate,
    /// The reason why the change does not say which side is better; None if the interval decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_tell: Option<CannotTell>,
}

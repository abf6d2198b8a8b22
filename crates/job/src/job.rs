//! A validated job: every option in its final unit, defaults filled in, impossible combinations refused.
//!
//! Field docs name the fio option where the names differ. All sizes are bytes, all times nanoseconds.

use std::sync::Arc;

use measure::{Direction, PerDirection};

use crate::threads::Recording;
use crate::workload::random::clone_seed;

mod files;
mod verify;

pub use files::{Fadvise, Fallocate, FileLock, FileService, Files, OpenSync};
pub use verify::{Verify, VerifyKind, VerifyPattern, VerifyPolicy, VerifyTrims};

/// The jobs that a job file and a command line ask for, ready to run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Options of the global sections as written, for the result.
    pub global_options: Vec<(String, String)>,
    /// The jobs in order, clones not expanded.
    pub jobs: Vec<Job>,
    /// Points that are likely to mislead the user; each a full sentence with file and line.
    pub warnings: Vec<String>,
}

impl Plan {
    /// The number of each job's reporting group, as fio counts groups.
    pub fn groups(&self) -> Vec<u32> {
        let mut group = 0;
        let mut number = |(index, job): (usize, &Job)| {
            group += u32::from(index > 0 && (job.time.stonewall || job.time.new_group));
            group
        };
        self.jobs.iter().enumerate().map(&mut number).collect()
    }
}

/// One job section, with all its options.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of the section.
    pub name: String,
    /// `description`: text that goes with the result.
    pub description: Option<String>,
    /// The section's own options as written, fio's canonical names, in order; an option that stands without a
    /// value has an empty one here (fio's JSON leaves those out).
    pub options: Vec<(String, String)>,
    /// `ioengine`, canonical name of the engine table; existence is checked by the load crate.
    pub engine: String,
    /// `rw`: directions of the ops, and the order of their offsets.
    pub rw: Rw,
    /// `bs`, `bsrange`, `bssplit`, `blockalign`: sizes of the blocks, and the alignment of their offsets.
    pub blocks: Blocks,
    /// `size`, `io_size`, `offset`, ...: which bytes of the target are used.
    pub extent: Extent,
    /// The files of the job, and the way they are made and opened.
    pub files: Files,
    /// `iodepth` and batching: the number of ops in flight, submitted and reaped together.
    pub queue: Queue,
    /// Options about random numbers, zones and mixes.
    pub pattern: Pattern,
    /// Rates, think time, latency targets.
    pub rate: Rate,
    /// Conditions for the job's start and end.
    pub time: Time,
    /// Clones and how they run.
    pub process: Process,
    /// Content of the buffers, and the memory that they live in.
    pub buffers: Buffers,
    /// `sync`, `fsync`, `fdatasync`, ...: the calls that force data out.
    pub syncs: Syncs,
    /// `verify` and friends; None when nothing is verified.
    pub verify: Option<Verify>,
    /// `read_iolog`, `write_iolog`: replay and recording of ops.
    pub iolog: Iolog,
    /// `continue_on_error`, `ignore_error`, `max_latency`: the effects of failed and slow ops.
    pub errors: Errors,
    /// Options about reports and logs.
    pub reporting: Reporting,
    /// Options of the io_uring and libaio engines.
    pub ring: Ring,
    /// The refusals that the user insists on overriding.
    pub allow: Allow,
}

/// `rw=`: directions of the ops, and the order of their offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rw {
    /// For each of reads, writes and trims: true if the job issues them.
    pub directions: PerDirection<bool>,
    /// True if the offsets are random; false if they are sequential.
    pub random: bool,
    /// `trimwrite`: each block is trimmed, then written.
    pub trim_then_write: bool,
    /// `rw=read:8k`, sequential: bytes added to the offset after each op (negative goes backwards); 0 if none.
    pub sequential_stride: i64,
    /// `rw=randread:8`, random: number of ops after which a new random offset is drawn; 1 by default.
    pub ops_per_offset: u32,
}

impl Rw {
    /// fio's name of the pattern.
    pub fn name(&self) -> String {
        let has = |direction: Direction| self.directions[direction];
        let base = match (has(Direction::Read), has(Direction::Write), has(Direction::Trim)) {
            (true, true, _) => "rw",
            (true, false, _) => "read",
            (false, true, true) => "trimwrite",
            (false, true, false) => "write",
            (false, false, _) => "trim",
        };
        if self.random && base != "trimwrite" { format!("rand{base}") } else { base.to_owned() }
    }
}

/// Sizes of the blocks, and the alignment of their offsets.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks {
    /// Smallest and largest block each way; equal for a fixed size.
    pub range: PerDirection<(u64, u64)>,
    /// `bssplit`: (bytes, percent) each way, percents summing to 100; empty if none.
    pub split: PerDirection<Vec<(u64, f64)>>,
    /// `blockalign` of random offsets each way; the smallest block by default.
    pub align: PerDirection<u64>,
    /// `bs_unaligned`: sizes of a range need not be multiples of its smallest.
    pub unaligned: bool,
    /// `bs_is_seq_rand`: the read size is for sequential, the write size for random ops.
    pub is_seq_rand: bool,
}

impl Blocks {
    /// The largest block of a direction, in bytes.
    pub fn largest(&self, direction: Direction) -> u64 {
        let split = self.split[direction].iter().map(|&(bytes, _)| bytes).max().unwrap_or(0);
        self.range[direction].1.max(split)
    }
}

/// An amount of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// The amount is stated in bytes.
    Bytes(u64),
    /// 0..=100 percent of the file or device.
    Percent(f64),
}

/// The bytes of the target that the job uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Extent {
    /// `size`: per clone, over all its files; None: the whole of existing files.
    pub size: Option<Amount>,
    /// `io_size`: amount to transfer; None: as `size`.
    pub io_size: Option<Amount>,
    /// `filesize`: smallest and largest size of each file.
    pub file_size: Option<(u64, u64)>,
    /// `fill_device`: write until no space is left.
    pub fill: bool,
    /// `offset`: place in the file at which the job starts.
    pub offset: Amount,
    /// `offset_align`: alignment in bytes of an offset that is given in percent; 0 if none.
    pub offset_align: u64,
    /// `offset_increment` times the clone's number is added to the offset.
    pub offset_increment: Amount,
    /// `number_ios`: number of ops after which the job ends.
    pub number_ios: Option<u64>,
    /// `zonemode=strided`: (zonesize, zonerange, zoneskip) in bytes.
    pub strided: Option<Zones>,
    /// `zonemode=zbd`: the job keeps to the rules of zoned block devices.
    pub zoned: Option<Zoned>,
}

/// `zonemode=zbd`: writes begin at the write pointer of a zone, and zones are reset before they are written again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Zoned {
    /// `zonesize`: bytes of a zone; 0: the device says.
    pub size: u64,
    /// `zonecapacity`: bytes of a zone that hold data, where the file or device has no zones itself; 0: the whole zone.
    pub capacity: u64,
    /// `zoneskip`: bytes between two zones of a sequential job.
    pub skip: u64,
    /// `read_beyond_wp`: reads may go beyond the write pointer.
    pub read_beyond_wp: bool,
    /// `max_open_zones`: zones of the device that are open at the same time; 0: as many as the device allows.
    pub max_open: u32,
    /// `job_max_open_zones`: zones that one clone has open at the same time; 0: no limit.
    pub job_max_open: u32,
    /// `ignore_zone_limits`: the limit of the device on open zones does not count.
    pub ignore_limits: bool,
    /// `zone_reset_threshold`: the share of the job's bytes that must hold data before zones are reset early.
    pub reset_threshold: f64,
    /// `zone_reset_frequency`: the share of the writes beyond the threshold that reset a zone; 0: none.
    pub reset_frequency: f64,
}

/// `zonemode=strided`: the job stays in a zone, then skips to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Bytes transferred in a zone before moving on.
    pub size: u64,
    /// Bytes that a zone spans.
    pub range: u64,
    /// Bytes skipped between zones.
    pub skip: u64,
}

/// `iodepth` and batching, in ops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// `iodepth`: ops in flight, each clone.
    pub depth: u32,
    /// `iodepth_batch`(`_submit`): ops submitted together; 1 by default.
    pub batch: u32,
    /// `iodepth_batch_complete_min`: ops to wait for; 0 polls.
    pub batch_complete_min: u32,
    /// `iodepth_batch_complete_max`: ops to take at once; without it, as many as there are (fio: as the minimum, which
    /// costs a call an op).
    pub batch_complete_max: u32,
    /// `iodepth_low`: once full, let the queue drain to this before filling it.
    pub low: u32,
    /// `io_submit_mode=offload`: a separate thread submits the ops.
    pub offload: bool,
    /// `serialize_overlap`: an op that overlaps one in flight waits for it, unless both are reads.
    pub serialize_overlap: bool,
}

/// The distribution of random offsets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Every place has the same chance.
    Uniform,
    /// Zipf with this theta (and the fraction 0..=1 at which its hot spot lies, None: scattered by hash).
    Zipf(f64, Option<f64>),
    /// Pareto with this h (and the place of the hot spot, as in `Zipf`).
    Pareto(f64, Option<f64>),
    /// Normal with this deviation in percent (and the place of the hot spot, as in `Zipf`).
    Normal(f64, Option<f64>),
}

/// Randomness of the ops, and the mix of reads and writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// Percent of reads in a mix (`rwmixread`), 0..=100.
    pub mix_read: u8,
    /// `rw_sequencer=identical`: offsets of the last op are used again for each direction.
    pub identical: bool,
    /// `randseed`: the seed of everything random in this job; clones derive their own seeds from it.
    pub seed: u64,
    /// `randrepeat`, or a `randseed` was given: the same sequence every run. If false, `seed` means nothing.
    pub repeatable: bool,
    /// True if `seed` was drawn for this run: it is not drawn again.
    pub seed_drawn: bool,
    /// `norandommap`: blocks may repeat and be missed.
    pub no_random_map: bool,
    /// `softrandommap`: go without the map where memory does not suffice.
    pub soft_random_map: bool,
    /// `random_generator`: the method that makes random offsets.
    pub generator: Generator,
    /// `random_distribution`: the distribution of random offsets each way.
    pub distribution: PerDirection<Distribution>,
    /// `random_distribution=zoned`: (percent of accesses, percent of the file) each way; empty if none.
    pub zones: PerDirection<Vec<(f64, f64)>>,
    /// `random_distribution=zoned_abs`: (percent of accesses, bytes of the file) each way; empty if none.
    pub zones_absolute: PerDirection<Vec<(f64, u64)>>,
    /// `random_distribution=sequence`: numbers of the blocks, in turn; empty if none.
    pub sequence: Vec<u64>,
    /// `random_sequence_stride`: after each turn, the numbers count from as many blocks further on as the turn has.
    pub sequence_stride: bool,
    /// `percentage_random`: percent of a random job's ops that are random, each way.
    pub percent_random: PerDirection<u8>,
    /// `sprandom`: the drive that one pass of writes brings into its steady state.
    pub precondition: Option<Precondition>,
}

/// `sprandom`: a drive as random writes leave it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precondition {
    /// `spr_op`: blocks that the drive has beyond those that hold data, per block that holds data; more than 0.
    pub over_provisioning: f64,
    /// `spr_num_regions`: parts of the pass, each with a validity of its own.
    pub regions: u32,
    /// `spr_cs`: bytes of the drive's cache; 0: none.
    pub cache_bytes: u64,
}

/// `random_generator=`. All generators of Plimsoll have 64 bits; fio's names are accepted for their coverage behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Generator {
    /// `tausworthe64`, and the default: random with a coverage map.
    #[default]
    Mapped,
    /// `tausworthe`: random with a coverage map; without a map, of 2^32 places at most, as fio's has 32 bits.
    Coarse,
    /// `lfsr`: a permutation: full coverage without a map.
    Permutation,
}

/// Rates, think time, latency targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// `rate`: bytes per second each way.
    pub bytes: PerDirection<Option<u64>>,
    /// `rate_iops`: ops per second each way.
    pub iops: PerDirection<Option<u64>>,
    /// `rate_min`: the job fails below this many bytes per second each way.
    pub min_bytes: PerDirection<Option<u64>>,
    /// `rate_iops_min`: the job fails below this many ops per second each way.
    pub min_iops: PerDirection<Option<u64>>,
    /// `rate_process=poisson`: exponential gaps; constant gaps otherwise.
    pub poisson: bool,
    /// `rate_cycle`: nanoseconds over which the minima are averaged.
    pub cycle_ns: u64,
    /// `cpuload`: after each op the clone pauses, so that ops take this percentage of its time; None: no such pause.
    pub busy_percent: Option<u32>,
    /// `rate_ignore_thinktime`: a rate does not make up for think time.
    pub ignore_think_time: bool,
    /// `thinktime`: nanoseconds to pause after `think_blocks` ops.
    pub think_ns: u64,
    /// `thinktime_spin`: nanoseconds of the pause that the clone spends spinning.
    pub think_spin_ns: u64,
    /// `thinktime_blocks`: ops between two pauses.
    pub think_blocks: u32,
    /// `thinktime_blocks_type=issue`: count issued ops; completed ones otherwise.
    pub think_on_issue: bool,
    /// `thinkcycles`: processor cycles that the clone spends after each op; 0: none.
    pub think_cycles: u64,
    /// `thinktime_iotime`: also pause after this many nanoseconds of I/O; 0 if unset.
    pub think_io_time_ns: u64,
    /// `pace`, an option that fio does not have: the pacing method in front of the engine, as the pace crate names it.
    /// None: no pacing.
    pub pace: Option<String>,
    /// `latency_target`, with its window, percentile and `latency_run`.
    pub latency_target: Option<LatencyGoal>,
    /// `flow`, with its group and pause; None: no other job bounds the job's share.
    pub flow: Option<Flow>,
}

/// `flow` and its companions: the job's share of the ops of all jobs with the same `flow_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// `flow_id`: the group of jobs that share.
    pub id: u32,
    /// `flow`: the weight of each clone of the job.
    pub weight: u32,
    /// `flow_sleep`: pause of a clone that is ahead of its share, in nanoseconds; 0: it looks again at once.
    pub sleep_ns: u64,
}

/// `latency_target` and its companions: the search for the depth that keeps a latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyGoal {
    /// `latency_target`: the latency to keep, in nanoseconds.
    pub target_ns: u64,
    /// `latency_window`: time over which the latency must be kept, in nanoseconds.
    pub window_ns: u64,
    /// `latency_percentile`: percent of ops that must keep the latency, 0..=100.
    pub percentile: f64,
    /// `latency_run`: go on at the depth found until the runtime ends.
    pub run: bool,
}

/// Conditions for a job's start and end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Time {
    /// `runtime`: time after which the job ends; None: it ends when the work is done.
    pub runtime_ns: Option<u64>,
    /// `time_based`: repeat the workload until the runtime ends.
    pub time_based: bool,
    /// `ramp_time`: time before anything is measured.
    pub ramp_ns: u64,
    /// `ramp_size`: bytes that each clone transfers before anything is measured; 0: none.
    pub ramp_bytes: u64,
    /// The rule that cuts the measured part out of the run; None: fio's, from the end of the ramp to the last
    /// completion.
    pub window: Option<Window>,
    /// Stretches of the run, each at a depth of its own and with a window of its own, in this order; empty: one stretch
    /// at `iodepth`.
    pub slices: Vec<Slice>,
    /// Stretches outside of which the job rests, each with a window of its own, in this order; empty: it never rests.
    /// A job has slices or turns, or neither.
    pub turns: Vec<Turn>,
    /// `startdelay`: smallest and largest time before the job starts.
    pub start_delay_ns: (u64, u64),
    /// `loops`: number of passes over the workload.
    pub loops: u64,
    /// `stonewall`: start when all earlier jobs have ended.
    pub stonewall: bool,
    /// `wait_for`: start when the named job has ended.
    pub wait_for: Option<String>,
    /// `new_group`: the job begins a new reporting group.
    pub new_group: bool,
    /// `exitall`: when this job ends, other jobs end too.
    pub exit_all: bool,
    /// `exit_what`: the jobs that `exit_all` ends.
    pub exit_what: ExitWhat,
    /// `exitall_on_error`: when this job fails, all jobs end.
    pub exit_all_on_error: bool,
    /// `exit_on_io_done`: the job ends when all jobs that move data have ended.
    pub ends_with_io: bool,
    /// `steadystate`: end when the figure is steady.
    pub steady_state: Option<SteadyState>,
}

/// A measured part that begins after a full generation of the queue, ends before the queue drains, and lasts for
/// `runtime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// True if the part may be longer than `runtime` where latencies vary much: for a clone that runs alone, because
    /// clones that run together end together.
    pub extends: bool,
}

/// A stretch of a run at one depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Requests in flight, at most `iodepth`.
    pub depth: u32,
    /// Nanoseconds of the measured part.
    pub measured_ns: u64,
    /// Nanoseconds that the measured part waits for the requests that were in flight when the queue reached the depth.
    pub patience_ns: u64,
}

/// A stretch of a run in which a job issues ops. Its times count from the start of the run, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The first op may be issued.
    pub from_ns: u64,
    /// The measured part begins.
    pub opens_ns: u64,
    /// The measured part ends.
    pub closes_ns: u64,
    /// The turn ends: ops in flight end within the rest. The last turn of a job ends with its measured part.
    pub until_ns: u64,
}

impl Job {
    /// The seed of one clone (0..numjobs): the root of all its random streams.
    pub fn clone_seed(&self, clone: u32) -> u64 {
        clone_seed(self.pattern.seed, self.process.first.wrapping_add(clone))
    }

    /// True if the job writes or trims; a job with `verify_only` only goes through its writes on paper.
    pub fn changes_data(&self) -> bool {
        let changes = self.rw.directions.write || self.rw.directions.trim;
        changes && !self.verify.as_ref().is_some_and(|verify| verify.only)
    }

    /// True if the job runs for a while before it measures.
    pub fn has_ramp(&self) -> bool {
        self.time.ramp_ns > 0 || self.time.ramp_bytes > 0 || self.iolog.threads.is_some()
    }
}

/// `exit_what=`: the jobs that end when a job with `exitall` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ExitWhat {
    /// The jobs of the same reporting group.
    #[default]
    Group,
    /// Every job that runs now; those behind the next stonewall still start.
    Stonewall,
    /// All jobs of the run, also those that have not started.
    All,
}

/// `steadystate=`: end when the deviation or slope of a figure stays within a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteadyState {
    /// True if the figure is bandwidth; false if it is iops.
    pub bandwidth: bool,
    /// True if the criterion is the slope of the regression line; false if it is the largest deviation from the mean.
    pub slope: bool,
    /// The limit in millionths; of the mean if `percent`, in iops or bytes/s otherwise.
    pub limit_millionths: u64,
    /// True if the limit is relative to the mean.
    pub percent: bool,
    /// `steadystate_duration`: length of the sliding window.
    pub window_ns: u64,
    /// `steadystate_ramp_time`: time before the figure is looked at.
    pub ramp_ns: u64,
    /// `steadystate_check_interval`: time between two looks at the figure.
    pub interval_ns: u64,
}

impl SteadyState {
    /// The limit, in the words of fio's `--debug=parse`.
    pub fn threshold(&self) -> String {
        let limit = self.limit_millionths as f64 / 1e6;
        match (self.percent, self.bandwidth) {
            (true, _) => format!("threshold to {:.6}%", limit * 100.0),
            (false, true) => format!("BW threshold to {limit:.0}"),
            (false, false) => format!("IOPS threshold to {limit:.6}"),
        }
    }
}

/// An I/O priority as ioprio_set(2) takes it: the class times 2^13, plus the hint times 2^3, plus the level.
pub fn io_priority_value(class: u8, level: u8, hint: u16) -> u16 {
    u16::from(class) << 13 | hint << 3 | u16::from(level)
}

/// A share of the requests of one direction that has an I/O priority of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityShare {
    /// The size of the requests; None: all sizes.
    pub block: Option<u64>,
    /// Percent of these requests, 1..=100.
    pub percent: u8,
    /// The priority as [`io_priority_value`] makes it.
    pub priority: u16,
}

/// Clones of a job, and the way they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// `numjobs`: number of clones of the job.
    pub clones: u32,
    /// The number of the job's first clone among all clones of the plan (0..).
    pub first: u32,
    /// `thread`: clones are threads; child processes otherwise.
    pub thread: bool,
    /// `group_reporting`: one result for the whole group.
    pub group_reporting: bool,
    /// `cpus_allowed`: processors that the clones may use; empty: any.
    pub cpus: Vec<u32>,
    /// `cpus_allowed_policy=split`: one processor a clone.
    pub cpus_split: bool,
    /// `numa_cpu_nodes`: nodes whose processors the clones may use; empty: any.
    pub numa_cpu_nodes: Vec<u32>,
    /// `numa_mem_policy`: nodes whose memory the clones take.
    pub memory_policy: MemoryPolicy,
    /// `comm`: name of the clones' threads; None: they keep the program's.
    pub comm: Option<String>,
    /// `nice`: nice value of the clones.
    pub nice: i32,
    /// `prio` and `prioclass` of ioprio_set(2): (class, level).
    pub io_priority: Option<(u8, u8)>,
    /// `priohint`: the hint that goes with `io_priority`; 0: none.
    pub io_priority_hint: u16,
    /// `cmdprio_percentage`, `cmdprio_bssplit`: shares of the requests with a priority of their own; empty: none.
    pub request_priorities: PerDirection<Vec<PriorityShare>>,
    /// `uid`: the user as whom each clone opens its files and runs; None: the user who started the program.
    pub user: Option<u32>,
    /// `gid`: the group as whom each clone opens its files and runs; None: the group that started the program.
    pub group: Option<u32>,
    /// `exec_prerun`: shell command before the job.
    pub before: Option<String>,
    /// `exec_postrun`: shell command after the job.
    pub after: Option<String>,
}

/// Content of the buffers, and the memory that they live in.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffers {
    /// `mem`: the kind of memory.
    pub memory: MemoryKind,
    /// `iomem_align`: alignment in bytes, 0 for that of a page.
    pub align: u64,
    /// `zero_buffers`: buffers hold zeros.
    pub zero: bool,
    /// `refill_buffers`: new random content for every write.
    pub refill: bool,
    /// `scramble_buffers`: a cheap change for every write.
    pub scramble: bool,
    /// `buffer_pattern`: bytes that fill the buffers again and again; empty: random bytes.
    pub pattern: Vec<u8>,
    /// `buffer_compress_percentage`: percent by which buffers can be compressed, 0..=100.
    pub compress_percent: u8,
    /// `buffer_compress_chunk` bytes, 0: default 512.
    pub compress_chunk: u64,
    /// `dedupe_percentage`: percent of buffers that repeat an earlier one, 0..=100.
    pub dedupe_percent: u8,
    /// `dedupe_mode=working_set`: repetitions are of this set; None: of the last buffers.
    pub working_set: Option<WorkingSet>,
}

/// `dedupe_mode=working_set`: the blocks that repetitions repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkingSet {
    /// Number of different blocks, at least 1.
    pub blocks: u64,
    /// `dedupe_global`: the blocks are those of all jobs with this option; otherwise each clone has its own.
    pub global: bool,
    /// The number of clones that write the blocks of the set, each its share; more than 1 if `global`.
    pub writers: u64,
    /// The number of the job's first clone among them.
    pub first_writer: u64,
}

/// `mem=`: the kind of memory that buffers live in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MemoryKind {
    /// Anonymous memory: `malloc`, `mmap`.
    #[default]
    Anonymous,
    /// Memory of huge pages: `mmaphuge`, `shmhuge`.
    Huge,
    /// Shared memory: `mmapshared`, `shm`.
    Shared,
}

/// The moments at which data are forced out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syncs {
    /// `fsync`: number of writes after which fsync(2) follows; 0: never.
    pub fsync: u32,
    /// `fdatasync`: number of writes after which fdatasync(2) follows; 0: never.
    pub fdatasync: u32,
    /// `sync_file_range`: flags of sync_file_range(2), and the number of writes after which it follows.
    pub range: Option<(u32, u32)>,
    /// `end_fsync`: fsync(2) when the job ends.
    pub end_fsync: bool,
    /// `end_syncfs`: syncfs(2) when the job ends.
    pub end_syncfs: bool,
    /// `fsync_on_close`: fsync(2) whenever a file is closed.
    pub fsync_on_close: bool,
}

impl Syncs {
    /// True if the data are forced out when the job ends.
    pub fn at_end(&self) -> bool {
        self.end_fsync || self.end_syncfs
    }
}

/// `numa_mem_policy`: the NUMA nodes that give a clone its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// The policy that the program was started with.
    #[default]
    Default,
    /// The node that the clone runs on.
    Local,
    /// This node, and others where it has no memory left.
    Prefer(u32),
    /// These nodes and no others.
    Bind(Vec<u32>),
    /// These nodes, page by page.
    Interleave(Vec<u32>),
}

/// Recording of ops into a log, and replay of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Iolog {
    /// `read_iolog`: the log to replay.
    pub read: Option<String>,
    /// `write_iolog`: the log to record.
    pub write: Option<String>,
    /// `replay_no_stall`: ignore the recorded times.
    pub no_stall: bool,
    /// `replay_time_scale`: percent of the recorded speed.
    pub time_scale_percent: u32,
    /// `replay_redirect`: all ops go to this file.
    pub redirect: Option<String>,
    /// `replay_align`: alignment of replayed offsets in bytes.
    pub align: u64,
    /// `replay_scale`: offsets are divided by this.
    pub scale: u64,
    /// `replay_skip`: the ops of a log that are not replayed.
    pub skip: ReplaySkip,
    /// The recording to replay in place of a log, thread by thread. No job option sets it: a sweep does.
    pub threads: Option<Replayed>,
}

impl Iolog {
    /// True if the job replays a log or a recording, which names files and requests.
    pub fn is_replay(&self) -> bool {
        self.read.is_some() || self.threads.is_some()
    }

    /// The log that a clone records. Every clone but the first has its number behind the name: in one file the ops of
    /// several clones would mix.
    pub fn log_of(&self, clone: u32) -> Option<String> {
        let name = self.write.as_ref()?;
        Some(if clone == 0 { name.clone() } else { format!("{name}.{clone}") })
    }
}

/// A recording that a job replays.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The requests of each thread.
    pub recording: Arc<Recording>,
    /// The first passes are the ramp, until this many nanoseconds since the start have passed.
    pub ramp_ns: u64,
    /// No pass begins after this time in nanoseconds since the end of the ramp. A pass that has begun is finished, and
    /// there is one at least.
    pub least_ns: u64,
}

/// `replay_skip=`: the ops of a log that are not replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaySkip {
    /// Directions whose transfers are left out.
    pub ops: PerDirection<bool>,
    /// True if syncs (fsync, fdatasync and sync_file_range) are left out.
    pub syncs: bool,
}

/// The effects of a failed op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// `continue_on_error`: go on after failed reads.
    pub continue_read: bool,
    /// `continue_on_error`: go on after failed writes and trims.
    pub continue_write: bool,
    /// `continue_on_error`: go on after failed verifications.
    pub continue_verify: bool,
    /// `ignore_error`: error numbers that do not count as errors, for reads, writes and verification.
    pub ignore: [Vec<i32>; 3],
    /// True if `continue_on_error` goes on after the errors that fio goes on after, and no others: EIO and EILSEQ, or
    /// those that `ignore` lists instead.
    pub as_fio: bool,
    /// `error_dump`: print each error.
    pub dump: bool,
    /// `max_latency` in nanoseconds: an op that takes longer ends the job.
    pub max_latency_ns: PerDirection<Option<u64>>,
}

impl Errors {
    /// Error numbers of Linux.
    const EIO: i32 = 5;
    const EILSEQ: i32 = 84;

    /// True if a job goes on after a transfer of that direction failed with `errno`.
    pub fn tolerates(&self, direction: Direction, errno: i32) -> bool {
        let (goes_on, ignored) = match direction {
            Direction::Read => (self.continue_read, &self.ignore[0]),
            Direction::Write | Direction::Trim => (self.continue_write, &self.ignore[1]),
        };
        let usual = !self.as_fio || ignored.is_empty() && [Errors::EIO, Errors::EILSEQ].contains(&errno);
        ignored.contains(&errno) || goes_on && usual
    }

    /// True if the job counts failed ops instead of ending at the first, after some errors at least.
    pub fn tolerates_some(&self) -> bool {
        self.continue_read
            || self.continue_write
            || self.continue_verify
            || self.ignore.iter().any(|ignored| !ignored.is_empty())
    }
}

/// Contents of the report, and logs over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Reporting {
    /// `--debug=io`: a line for each op on standard output.
    pub tells_ops: bool,
    /// `slat_percentiles`: report percentiles of submission latency.
    pub slat_percentiles: bool,
    /// `clat_percentiles`: report percentiles of completion latency.
    pub clat_percentiles: bool,
    /// `lat_percentiles`: report percentiles of total latency.
    pub lat_percentiles: bool,
    /// `percentile_list`: the percentiles to report, 0..=100 each.
    pub percentiles: Vec<f64>,
    /// `disable_lat`: do not measure total latency.
    pub disable_lat: bool,
    /// `disable_clat`: do not measure completion latency.
    pub disable_clat: bool,
    /// `disable_slat`: do not measure submission latency.
    pub disable_slat: bool,
    /// `gtod_reduce`.
    pub gtod_reduce: bool,
    /// `clocksource`: the clock that measures times.
    pub clock: ClockSource,
    /// `unified_rw_reporting`: results of the directions apart, together, or both.
    pub unified: Unified,
    /// `bwavgtime`: length of an interval.
    pub bw_interval_ns: u64,
    /// `write_bw_log`, `write_iops_log`, `write_lat_log`, `write_hist_log`: prefixes of files.
    pub logs: Logs,
    /// `kb_base`: the number that `k` stands for, 1024 or 1000.
    pub kb_base: u32,
    /// `unit_base`: the unit of bandwidths: 0 automatic, 1 bits, 8 bytes.
    pub unit_base: u32,
    /// `stats=0`: leave the job out of the results.
    pub stats: bool,
    /// `disk_util`: report how busy the disks below were.
    pub disk_util: bool,
}

/// `clocksource=`: the clock that measures times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClockSource {
    /// The best clock that the machine has.
    #[default]
    Auto,
    /// `cpu`: the time-stamp counter.
    Cpu,
    /// `clock_gettime` (and `gettimeofday`).
    ClockGettime,
}

/// `unified_rw_reporting=`: results of the directions apart, together, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unified {
    /// `none`: one result for each direction.
    #[default]
    None,
    /// One result for all directions together, called `mixed`.
    Mixed,
    /// One result for each direction, and one for all together.
    Both,
}

/// Logs of figures over time; each name is a prefix of file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// `write_bw_log`: log of bandwidth.
    pub bw: Option<String>,
    /// `write_iops_log`: log of iops.
    pub iops: Option<String>,
    /// `write_lat_log`: logs of latency (lat, clat and slat).
    pub lat: Option<String>,
    /// `write_hist_log`: log of histograms of latency.
    pub histogram: Option<String>,
    /// `log_avg_msec`: time that one line of a log covers, in nanoseconds; 0: every op has a line.
    pub average_ns: u64,
    /// `log_hist_msec`: time that one histogram covers, in nanoseconds.
    pub histogram_ns: u64,
    /// `log_hist_coarseness`: 2 to this power bins of fio's make one, 0..=6.
    pub histogram_coarseness: u32,
    /// `log_store_compressed`: the files are zlib streams with the suffix `.fz`.
    pub compressed: bool,
    /// `log_max_value`: log the largest value instead of the mean.
    pub max_value: bool,
    /// `log_window_value=both`: log the mean and the largest value, in two columns.
    pub both_values: bool,
    /// `log_offset`: log the offsets, too.
    pub offset: bool,
    /// `log_issue_time`: log the time at which each request was issued, too.
    pub issue_time: bool,
    /// `log_prio`: log the priority of each request as a number; otherwise 1 for the real-time class, 0 for others.
    pub priority: bool,
    /// `log_unix_epoch`, `log_alternate_epoch`: times in logs are since 1970.
    pub unix_epoch: bool,
    /// `per_job_logs`: put the clone's number into the names of logs.
    pub per_job: bool,
}

/// Options of the engines that have rings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// `fixedbufs`: register the buffers with the kernel.
    pub fixed_buffers: bool,
    /// `registerfiles`: register the files with the kernel.
    pub register_files: bool,
    /// `sqthread_poll`: a kernel thread takes submissions.
    pub sq_poll: bool,
    /// `sqthread_poll_cpu`: the processor of the kernel thread that takes submissions.
    pub sq_poll_cpu: Option<u32>,
    /// `hipri`: poll the device for completions.
    pub hipri: bool,
    /// `hipri_percentage`: percent of the ops whose completion is polled, 0..=100; None: all of them.
    pub hipri_percent: Option<u8>,
    /// `nonvectored`: read and write without vectors; None: the engine's default.
    pub nonvectored: Option<bool>,
    /// `force_async`: every this many ops, one goes to a kernel worker; 0: none.
    pub force_async: u32,
    /// `userspace_reap` of libaio: reap completions from the ring in memory.
    pub userspace_reap: bool,
    /// `cpuchunks` of cpuio: length of one op in nanoseconds.
    pub chunk_ns: u64,
    /// `nowait`: fail instead of blocking (RWF_NOWAIT).
    pub nowait: bool,
    /// Anything else an engine takes (`subnqn`, `volume`, ...): name and value.
    pub other: Vec<(String, String)>,
}

impl Ring {
    /// The value of an engine's own option among [`Ring::other`].
    pub fn option(&self, name: &str) -> Option<&str> {
        self.other.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Refusals that the user insists on overriding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// `allow_mounted_write`: write to a device that is mounted.
    pub mounted_write: bool,
    /// `--allow-signature`: write to a device that carries a file system.
    pub signature_write: bool,
}

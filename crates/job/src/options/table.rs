//! All options of a job: those of fio 3.33, and those that only Plimsoll has.

use measure::PerDirection;
use measure::units::TimeUnit::{Microseconds, Milliseconds, Seconds};

use super::Kind::*;
use super::values;
use super::{Each, Group, Kind, OptionSpec};
use crate::engines;
use crate::job::{ClockSource, ExitWhat, Fadvise, Fallocate, FileLock, Generator, MemoryKind, OpenSync, Unified};

const U32: u64 = u32::MAX as u64;

/// More requests or clones than any machine takes: the limit keeps a typing error from asking for all of its memory.
const MANY: u64 = 1 << 20;

const fn option(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec::new(name, kind, default, help)
}

const fn refused(name: &'static str, default: &'static str, help: &'static str, reason: &'static str) -> OptionSpec {
    OptionSpec::unsupported(name, default, help, reason)
}

fn narrow<T: Copy, U>(each: Each<T>, convert: impl Fn(T) -> U) -> Each<U> {
    PerDirection { read: each.read.map(&convert), write: each.write.map(&convert), trim: each.trim.map(&convert) }
}

/// All options, in the order of the manual.
pub static TABLE: &[Group] = &[
    Group { title: "Core", options: CORE },
    Group { title: "Files", options: FILES },
    Group { title: "Pattern", options: PATTERN },
    Group { title: "Queue and rate", options: QUEUE },
    Group { title: "Processor, memory and buffers", options: PROCESS },
    Group { title: "Verify and replay", options: VERIFY },
    Group { title: "Reporting", options: REPORTING },
    Group { title: "Engines", options: ENGINES },
    Group { title: "Zoned devices and other things of fio's", options: OTHER },
];

pub(super) const RW_WORDS: &[(&str, &str)] = &[
    ("read", "sequential reads"),
    ("write", "sequential writes"),
    ("trim", "sequential trims"),
    ("randread", "random reads"),
    ("randwrite", "random writes"),
    ("randtrim", "random trims"),
    ("rw", "sequential reads and writes"),
    ("readwrite", "the same"),
    ("randrw", "random reads and writes"),
    ("trimwrite", "each block trimmed, then written, in sequence"),
    ("randtrimwrite", "the same at random"),
];

static CORE: &[OptionSpec] = &[
    option("name", Text(|d, v| d.job.name = v.into()), "", "Name of the job"),
    option("description", Text(|d, v| d.job.description = Some(v.into())), "", "Text that goes with the result"),
    // The engine is looked up once the whole section is read: a job may replace the global one.
    option("ioengine", Custom("word", &engines::WORDS, |d, _, v| { d.job.engine = v.into(); Ok(()) }), "psync", "How requests are carried out"),
    option("rw", Custom("word[:N]; N is a stride in bytes, or for random the ops at one offset", RW_WORDS, |d, r, v| values::rw(r, v).map(|rw| d.job.rw = rw)), "read", "Which way and in which order").aliases(&["readwrite"]),
    option("bs", EachBytes(1, |d, v| values::update(&mut d.block, narrow(v, Some))), "4k", "Block size").aliases(&["blocksize"]),
    option("bsrange", EachRange(|d, v| { values::update(&mut d.block_range, narrow(v, Some)); d.job.blocks.split = PerDirection::default(); }), "", "Range of block sizes").aliases(&["blocksize_range"]),
    option(
        "bssplit",
        Custom("size/percent:size/percent...[,...[,...]]: reads, writes, trims", &[], |d, r, v| values::bssplit(r, v).map(|split| d.job.blocks.split = split)),
        "",
        "Mix of block sizes",
    ),
    option("bs_unaligned", Flag(|d, v| d.job.blocks.unaligned = v), "0", "Sizes of a range need not be multiples of its smallest").aliases(&["blocksize_unaligned"]),
    option("bs_is_seq_rand", Bool(|d, v| d.job.blocks.is_seq_rand = v), "0", "bs=A,B is A for sequential and B for random requests"),
    option("ba", EachBytes(1, |d, v| values::update(&mut d.align, narrow(v, Some))), "the smallest block", "Alignment of random offsets").aliases(&["blockalign"]),
    option("size", Amount(|d, v| d.job.extent.size = d.nonzero(v)), "the files' sizes", "Bytes each clone uses, over all its files"),
    option("io_size", Amount(|d, v| d.job.extent.io_size = d.nonzero(v)), "as size", "Bytes each clone transfers").aliases(&["io_limit"]),
    option("filesize", BytesRange(|d, v| d.job.extent.file_size = Some(v)), "size over nrfiles", "Size of each file, or between two sizes"),
    option("fill_device", Bool(|d, v| d.job.extent.fill = v), "0", "Write until there is no space").aliases(&["fill_fs"]),
    option("offset", Amount(|d, v| d.job.extent.offset = v), "0", "Where in the file to start").aliases(&["fileoffset"]),
    option("offset_align", Bytes(0, |d, v| d.job.extent.offset_align = v), "0", "Alignment of an offset given in percent"),
    option("offset_increment", Amount(|d, v| d.job.extent.offset_increment = v), "0", "Added to offset once for each earlier clone"),
    option("number_ios", Count(0, u64::MAX, |d, v| d.job.extent.number_ios = Some(v).filter(|n| *n > 0)), "0", "End after so many requests"),
    option("iodepth", Count(1, MANY, |d, v| d.job.queue.depth = v as u32), "1", "Requests in flight, each clone"),
    option("numjobs", Count(1, MANY, |d, v| d.job.process.clones = v as u32), "1", "Clones of the job"),
    option("direct", Bool(|d, v| d.job.files.direct = v), "0", "Bypass the page cache (O_DIRECT)"),
    option("buffered", Bool(|d, v| d.job.files.direct = !v), "1", "The opposite of direct"),
    option("thread", Flag(|d, v| d.job.process.thread = v), "0", "Clones are threads instead of processes").aliases(&["threads"]),
    option("runtime", Time(Seconds, |d, v| d.job.time.runtime_ns = Some(v).filter(|ns| *ns > 0)), "0", "End after this time").aliases(&["timeout"]),
    option("time_based", Flag(|d, v| d.job.time.time_based = v), "0", "Start over until runtime is up"),
    option("ramp_time", Time(Seconds, |d, v| d.job.time.ramp_ns = v), "0", "Time before anything is measured"),
    option("startdelay", TimeRange(Seconds, |d, v| d.job.time.start_delay_ns = v), "0", "Time before the job starts, or between two times"),
    option("loops", Count(0, u64::MAX, |d, v| d.job.time.loops = v.max(1)), "1", "Do it so many times"),
    option("stonewall", Flag(|d, v| d.job.time.stonewall = v), "0", "Start when all jobs above have ended").aliases(&["wait_for_previous"]),
    option("wait_for", Text(|d, v| d.job.time.wait_for = Some(v.into())), "", "Start when the job of this name has ended"),
    option("new_group", Flag(|d, v| d.job.time.new_group = v), "0", "Begin a new reporting group"),
    option("group_reporting", Flag(|d, v| d.job.process.group_reporting = v), "0", "One result for the whole group"),
    option("exitall", Flag(|d, v| d.job.time.exit_all = v), "0", "When this job ends, others end too"),
    option(
        "exit_what",
        Word(&[("group", "the jobs of its group"), ("stonewall", "those that run now"), ("all", "everything")], |d, v| {
            d.job.time.exit_what = match v {
                "stonewall" => ExitWhat::Stonewall,
                "all" => ExitWhat::All,
                _ => ExitWhat::Group,
            }
        }),
        "group",
        "What exitall ends",
    ),
    option("exitall_on_error", Flag(|d, v| d.job.time.exit_all_on_error = v), "0", "When a job fails, all end"),
];

pub(super) const FILE_SERVICE_WORDS: &[(&str, &str)] = &[
    ("random", "at random"),
    ("roundrobin", "in turn"),
    ("sequential", "when the one before is finished"),
    ("zipf", "zipf distributed"),
    ("pareto", "pareto distributed"),
    ("normal", "normally distributed"),
    ("gauss", "the same"),
];

static FILES: &[OptionSpec] = &[
    option("filename", Text(|d, v| d.job.files.names = values::split_names(v)), "made by filename_format", "Files or devices, separated by colons (\\: is a colon)"),
    option("directory", Text(|d, v| d.job.files.directories = values::split_names(v)), "", "Directories for the files, separated by colons, taken in turn by clones"),
    option("filename_format", Text(|d, v| d.job.files.format = v.into()), "$jobname.$jobnum.$filenum", "How names of files are made"),
    option("unique_filename", Bool(|d, v| d.job.files.unique = v), "1", "Put the rank before names that filename_format makes, in runs of many ranks"),
    option("opendir", Text(|d, v| d.job.files.opendir = Some(v.into())), "", "Use all files below this directory"),
    option("nrfiles", Count(1, 1 << 28, |d, v| d.job.files.count = v as u32), "1", "Files of each clone").aliases(&["nr_files"]),
    option("openfiles", Count(0, U32, |d, v| d.job.files.open = Some(v as u32).filter(|n| *n > 0)), "all", "Files open at the same time"),
    option(
        "file_service_type",
        Custom("word[:ops on a file before the next]; zipf, pareto, normal[:parameter[:centre]]", FILE_SERVICE_WORDS, |d, r, v| {
            values::file_service(r, v).map(|(service, ops)| (d.job.files.service, d.job.files.service_ops) = (service, ops))
        }),
        "roundrobin",
        "Which file is next",
    ),
    option(
        "fallocate",
        Word(
            &[
                ("none", "reserve nothing"),
                ("native", "fallocate(2) where there is one"),
                ("posix", "posix_fallocate(3)"),
                ("keep", "fallocate(2) with FALLOC_FL_KEEP_SIZE"),
                ("truncate", "ftruncate(2)"),
                ("0", "none"),
                ("1", "posix"),
            ],
            |d, v| {
                d.job.files.fallocate = match v {
                    "posix" | "1" => Fallocate::Posix,
                    "keep" => Fallocate::Keep,
                    "truncate" => Fallocate::Truncate,
                    "native" => Fallocate::Native,
                    _ => Fallocate::None,
                }
            },
        ),
        "native",
        "How space is reserved when files are made",
    ),
    option(
        "fadvise_hint",
        Word(&[("0", "no advice"), ("1", "as rw is"), ("random", "POSIX_FADV_RANDOM"), ("sequential", "POSIX_FADV_SEQUENTIAL")], |d, v| {
            d.job.files.fadvise = match v {
                "0" => Fadvise::None,
                "random" => Fadvise::Random,
                "sequential" => Fadvise::Sequential,
                _ => Fadvise::Workload,
            }
        }),
        "1",
        "What posix_fadvise(2) tells the kernel",
    ),
    option("create_on_open", Bool(|d, v| d.job.files.create_on_open = v), "0", "Make files when they are opened, not before the run"),
    option("create_serialize", Opaque, "1", "Make the files of one job at a time").no_effect("files are always made one job at a time"),
    option("create_only", Bool(|d, v| d.job.files.create_only = v), "0", "Make the files, then end"),
    option("create_fsync", Bool(|d, v| d.job.files.create_fsync = v), "1", "fsync files after they are made"),
    option("allow_file_create", Bool(|d, v| d.job.files.allow_create = v), "1", "Make files that do not exist"),
    option("allow_mounted_write", Bool(|d, v| d.job.allow.mounted_write = v), "0", "Write to a device that is mounted"),
    option("unlink", Bool(|d, v| d.job.files.unlink = v), "0", "Remove the files when the job is done"),
    option("unlink_each_loop", Bool(|d, v| d.job.files.unlink_each_loop = v), "0", "Remove them after each loop"),
    option("file_append", Bool(|d, v| d.job.files.append = v), "0", "Start at the end of the file"),
    option("overwrite", Bool(|d, v| d.job.files.overwrite = v), "0", "Fill files before writing to them"),
    option("invalidate", Bool(|d, v| d.job.files.invalidate = v), "1", "Drop the files from the page cache before the run"),
    option("pre_read", Bool(|d, v| d.job.files.pre_read = v), "0", "Read the files into the page cache before the run"),
    option(
        "sync",
        Word(&[("none", ""), ("0", "none"), ("sync", "O_SYNC"), ("1", "sync"), ("dsync", "O_DSYNC")], |d, v| {
            d.job.files.sync = match v {
                "sync" | "1" => OpenSync::Sync,
                "dsync" => OpenSync::Dsync,
                _ => OpenSync::None,
            }
        }),
        "none",
        "Open files for synchronous writes",
    ),
    option("fsync", Count(0, U32, |d, v| d.job.syncs.fsync = v as u32), "0", "fsync after every so many writes"),
    option("fdatasync", Count(0, U32, |d, v| d.job.syncs.fdatasync = v as u32), "0", "fdatasync after every so many writes"),
    option(
        "sync_file_range",
        Custom("flag[,flag...][:writes]", &[("wait_before", ""), ("write", ""), ("wait_after", "")], |d, r, v| values::sync_file_range(r, v).map(|range| d.job.syncs.range = Some(range))),
        "",
        "sync_file_range after every so many writes",
    ),
    option("end_fsync", Bool(|d, v| d.job.syncs.end_fsync = v), "0", "fsync when the job ends"),
    option("fsync_on_close", Bool(|d, v| d.job.syncs.fsync_on_close = v), "0", "fsync whenever a file is closed"),
    option(
        "lockfile",
        Word(&[("none", ""), ("exclusive", "one clone at a time"), ("readwrite", "many readers or one writer")], |d, v| {
            d.job.files.lock = match v {
                "exclusive" => FileLock::Exclusive,
                "readwrite" => FileLock::ReadWrite,
                _ => FileLock::None,
            }
        }),
        "none",
        "Lock files during requests",
    ),
    refused("atomic", "0", "Atomic direct writes", "O_ATOMIC never entered the kernel, and RWF_ATOMIC is not supported here yet"),
    refused("write_barrier", "0", "Make every Nth write a barrier", "Linux has no barrier writes since 2.6.37; use fdatasync=N"),
    refused("write_hint", "none", "Expected life time of written data", "data placement hints are not supported"),
];

pub(super) const DISTRIBUTION_WORDS: &[(&str, &str)] = &[
    ("random", "everywhere alike"),
    ("zipf", ":theta[:centre]"),
    ("pareto", ":power[:centre]"),
    ("normal", ":deviation in percent[:centre]"),
    ("zoned", ":accesses%/file%:...[,writes[,trims]]"),
    ("zoned_abs", ":accesses%/size:...[,writes[,trims]]"),
];

static PATTERN: &[OptionSpec] = &[
    option("rwmixread", Count(0, 100, |d, v| d.job.pattern.mix_read = v as u8), "50", "Percent of reads in a mix"),
    option("rwmixwrite", Count(0, 100, |d, v| d.job.pattern.mix_read = 100 - v as u8), "50", "Percent of writes in a mix"),
    option("rw_sequencer", Word(&[("sequential", "each request has an offset of its own"), ("identical", "reads and writes share offsets")], |d, v| d.job.pattern.identical = v == "identical"), "sequential", "How rw=...:N makes offsets"),
    option("randrepeat", Bool(|d, v| d.job.pattern.repeatable = v), "1", "The same random sequence in every run"),
    option("allrandrepeat", Opaque, "0", "The same for everything random").no_effect("everything random comes from randseed here"),
    option("randseed", Count(0, u64::MAX, |d, v| { d.job.pattern.seed = v; d.seed_given = true; }), "0x89", "Seed of the random sequences"),
    option("norandommap", Flag(|d, v| d.job.pattern.no_random_map = v), "0", "Random blocks may repeat and be missed"),
    option("softrandommap", Bool(|d, v| d.job.pattern.soft_random_map = v), "0", "Do without the map if there is no memory for it"),
    option(
        "random_generator",
        Word(&[("tausworthe", "random with a map"), ("tausworthe64", "the same"), ("lfsr", "a permutation, needs no map")], |d, v| {
            d.job.pattern.generator = if v == "lfsr" { Generator::Permutation } else { Generator::Mapped }
        }),
        "tausworthe",
        "How random offsets are made (ours have 64 bits always)",
    ),
    option(
        "random_distribution",
        Custom("word[:parameters]", DISTRIBUTION_WORDS, |d, r, v| {
            let distribution = values::random_distribution(r, v)?;
            let pattern = &mut d.job.pattern;
            (pattern.zones, pattern.zones_absolute) = Default::default();
            pattern.distribution = PerDirection::from_fn(|_| crate::job::Distribution::Uniform);
            match distribution {
                values::RandomDistribution::Plain(distribution) => pattern.distribution = PerDirection::from_fn(|_| distribution),
                values::RandomDistribution::Zoned(zones) => pattern.zones = zones,
                values::RandomDistribution::ZonedAbsolute(zones) => pattern.zones_absolute = zones,
            }
            Ok(())
        }),
        "random",
        "Where random requests go",
    ),
    option("percentage_random", EachCount(0, 100, |d, v| values::update(&mut d.job.pattern.percent_random, narrow(v, |n| n as u8))), "100", "Percent of a random job that is random"),
    option("zonemode", Word(&[("none", ""), ("strided", "stay in a zone, then skip"), ("zbd", "zoned block device (not supported)")], |d, v| d.zone_mode = Some(v.to_string())), "none", "What zonesize, zonerange and zoneskip do"),
    option("zonesize", Bytes(0, |d, v| d.zones.size = v), "0", "Bytes transferred in a zone before the next"),
    option("zonerange", Bytes(0, |d, v| d.zones.range = v), "0", "Bytes a zone spans; 0 is zonesize"),
    option("zoneskip", Bytes(0, |d, v| d.zones.skip = v), "0", "Bytes between zones"),
];

static QUEUE: &[OptionSpec] = &[
    option("iodepth_batch", Count(0, U32, |d, v| d.job.queue.batch = v as u32), "1", "Requests submitted together; 0 is iodepth").aliases(&["iodepth_batch_submit"]),
    option("iodepth_batch_complete_min", Count(0, U32, |d, v| d.job.queue.batch_complete_min = v as u32), "1", "Completions to wait for; 0 polls").aliases(&["iodepth_batch_complete"]),
    option("iodepth_batch_complete_max", Count(0, U32, |d, v| d.job.queue.batch_complete_max = v as u32), "all there are", "Completions to take at once (fio: iodepth_batch_complete_min)"),
    option("iodepth_low", Count(0, U32, |d, v| d.low = Some(v as u32)), "iodepth", "Let a full queue drain to this before filling it"),
    option("io_submit_mode", Word(&[("inline", "the clone submits"), ("offload", "a thread of its own does")], |d, v| d.job.queue.offload = v == "offload"), "inline", "Who submits"),
    refused("serialize_overlap", "0", "Requests that overlap one in flight wait for it", "requests that overlap are not held back: use the random map (no norandommap), or iodepth=1"),
    option("rate", EachBytes(0, |d, v| values::update_nonzero(&mut d.job.rate.bytes, v)), "", "Bytes per second, each clone"),
    option("rate_min", EachBytes(0, |d, v| values::update_nonzero(&mut d.job.rate.min_bytes, v)), "", "Fail below so many bytes per second").aliases(&["ratemin"]),
    option("rate_iops", EachCount(0, U32, |d, v| values::update_nonzero(&mut d.job.rate.iops, v)), "", "Requests per second, each clone"),
    option("rate_iops_min", EachCount(0, U32, |d, v| values::update_nonzero(&mut d.job.rate.min_iops, v)), "", "Fail below so many requests per second"),
    option("rate_process", Word(&[("linear", "equal gaps"), ("poisson", "random arrivals")], |d, v| d.job.rate.poisson = v == "poisson"), "linear", "How requests under a rate arrive"),
    option("rate_cycle", Time(Milliseconds, |d, v| d.job.rate.cycle_ns = v), "1000", "Time over which the least rates are averaged").aliases(&["ratecycle"]),
    option("rate_ignore_thinktime", Bool(|d, v| d.job.rate.ignore_think_time = v), "0", "A rate does not make up for think time"),
    option("thinktime", Time(Microseconds, |d, v| d.job.rate.think_ns = v), "0", "Pause after thinktime_blocks requests"),
    option("thinktime_spin", Time(Microseconds, |d, v| d.job.rate.think_spin_ns = v), "0", "How much of the pause is spent spinning"),
    option("thinktime_blocks", Count(1, U32, |d, v| d.job.rate.think_blocks = v as u32), "1", "Requests between pauses"),
    option("thinktime_blocks_type", Word(&[("complete", "count completed requests"), ("issue", "count issued requests")], |d, v| d.job.rate.think_on_issue = v == "issue"), "complete", "What thinktime_blocks counts"),
    option("thinktime_iotime", Time(Seconds, |d, v| d.job.rate.think_io_time_ns = v), "0", "Also pause after this much time of I/O"),
    option("pace", Text(|d, v| d.job.rate.pace = Some(v.into())), "", "Pacing in front of the engine (not fio's), one of auto, auto:MEMORY, none, buffers:COUNT, rate:MICROSECONDS, iops:COUNT, bw:BYTES"),
    option("latency_target", Time(Microseconds, |d, v| d.latency.target_ns = v), "", "Find the depth that keeps this latency"),
    option("latency_window", Time(Microseconds, |d, v| d.latency.window_ns = v), "", "Time over which it must be kept"),
    option("latency_percentile", Numbers(0.0, 100.0, |d, v| d.latency.percentile = v[0]), "100", "Percent of requests that must keep it"),
    option("latency_run", Bool(|d, v| d.latency.run = v), "0", "Go on at the depth that was found"),
    option(
        "max_latency",
        EachTime(Microseconds, |d, v| values::update_nonzero(&mut d.job.errors.max_latency_ns, v)),
        "",
        "Fail when a request takes longer",
    ),
];

static PROCESS: &[OptionSpec] = &[
    option("cpus_allowed", Custom("processors, as 0-3,7", &[], |d, _, v| values::numbers(v).map(|cpus| d.job.process.cpus = cpus)), "", "Processors the clones may use"),
    option(
        "cpumask",
        Count(1, U32, |d, v| d.job.process.cpus = (0..32).filter(|bit| v & (1 << bit) != 0).collect()),
        "",
        "The same as a bit mask",
    ),
    option("cpus_allowed_policy", Word(&[("shared", "all clones share them"), ("split", "one processor a clone")], |d, v| d.job.process.cpus_split = v == "split"), "shared", "How clones share the processors"),
    option(
        "numa_cpu_nodes",
        Custom("nodes, as 0,2-3, or all", &[("all", "")], |d, _, v| {
            d.job.process.numa_cpu_nodes = if v.trim() == "all" { Vec::new() } else { values::numbers(v)? };
            Ok(())
        }),
        "",
        "NUMA nodes whose processors the clones may use",
    ),
    refused("numa_mem_policy", "default", "NUMA policy of the buffers", "run under numactl --membind or --interleave instead"),
    option("nice", Integer(-20, 19, |d, v| d.job.process.nice = v as i32), "0", "Nice value"),
    option("prio", Count(0, 7, |d, v| d.priority.1 = Some(v as u8)), "", "I/O priority, 0 is highest"),
    option("prioclass", Count(0, 3, |d, v| d.priority.0 = Some(v as u8)), "", "I/O priority class: 1 real time, 2 best effort, 3 idle"),
    option("exec_prerun", Text(|d, v| d.job.process.before = Some(v.into())), "", "Shell command before the job"),
    option("exec_postrun", Text(|d, v| d.job.process.after = Some(v.into())), "", "Shell command after the job"),
    option(
        "mem",
        Word(
            &[
                ("malloc", "memory of the process"),
                ("mmap", "the same"),
                ("shm", "shared memory"),
                ("mmapshared", "the same"),
                ("shmhuge", "huge pages"),
                ("mmaphuge", "the same"),
            ],
            |d, v| {
                d.job.buffers.memory = match v {
                    "shmhuge" | "mmaphuge" => MemoryKind::Huge,
                    "shm" | "mmapshared" => MemoryKind::Shared,
                    _ => MemoryKind::Anonymous,
                }
            },
        ),
        "malloc",
        "Where buffers live",
    )
    .aliases(&["iomem"]),
    option("iomem_align", Bytes(0, |d, v| d.job.buffers.align = v), "0", "Alignment of buffers; 0 is a page").aliases(&["mem_align"]),
    refused("hugepage-size", "2m", "Size of huge pages", "the system's default size is used"),
    refused("lockmem", "0", "Lock memory so that less is left for the page cache", "limit memory with a control group instead: systemd-run -p MemoryMax="),
    option("zero_buffers", Flag(|d, v| d.job.buffers.zero = v), "0", "Buffers hold zeroes"),
    option("refill_buffers", Flag(|d, v| { d.job.buffers.refill = v; d.refill_given = true; }), "0", "New random content for every write"),
    option("scramble_buffers", Bool(|d, v| d.job.buffers.scramble = v), "1", "A slight change for every write"),
    option(
        "buffer_pattern",
        Custom("0xHEX, \"text\", number or 'file', one after the other", &[], |d, _, v| values::pattern(v, false).map(|pattern| d.job.buffers.pattern = pattern.bytes)),
        "",
        "What buffers hold",
    ),
    option("buffer_compress_percentage", Count(0, 100, |d, v| d.job.buffers.compress_percent = v as u8), "0", "How much buffers can be compressed"),
    option("buffer_compress_chunk", Bytes(0, |d, v| d.job.buffers.compress_chunk = v), "512", "Size of what can be compressed"),
    option("dedupe_percentage", Count(0, 100, |d, v| d.job.buffers.dedupe_percent = v as u8), "0", "Percent of buffers that repeat an earlier one"),
    refused("dedupe_mode", "repeat", "Which buffer is repeated", "only the mode repeat is supported"),
    refused("dedupe_working_set_percentage", "5", "Size of the set for dedupe_mode=working_set", "that mode is not supported"),
    refused("dedupe_global", "0", "Share repeated buffers between jobs", "dedupe_mode=working_set is not supported"),
    refused("gpu_dev_id", "0", "GPU whose memory is used", "there is no GPU memory here"),
];

pub(super) const VERIFY_WORDS: &[(&str, &str)] = &[
    ("0", "no verification"),
    ("crc32c", "header and CRC-32C"),
    ("crc32c-intel", "the same"),
    ("xxhash", "header and xxHash"),
    ("crc64", "header and CRC-64"),
    ("crc32", "header and CRC-32"),
    ("crc16", "header and CRC-16"),
    ("crc7", "header and CRC-7"),
    ("md5", "header and MD5"),
    ("sha1", "header and SHA-1"),
    ("sha256", "header and SHA-256"),
    ("sha512", "header and SHA-512"),
    ("sha3-224", "header and SHA-3"),
    ("sha3-256", "header and SHA-3"),
    ("sha3-384", "header and SHA-3"),
    ("sha3-512", "header and SHA-3"),
    ("meta", "the header alone"),
    ("pattern", "verify_pattern without a header"),
    ("null", "nothing is checked"),
];

static VERIFY: &[OptionSpec] = &[
    option("verify", Custom("word", VERIFY_WORDS, |d, _, v| { d.verify_kind = values::verify(v)?; d.verify_given = true; Ok(()) }), "0", "How a block proves that it is what was written"),
    option("do_verify", Bool(|d, v| d.verify.enabled = v), "1", "Read back after writing"),
    option("verify_only", Flag(|d, v| d.verify.only = v), "0", "Write nothing, check what an earlier run wrote"),
    option("verify_fatal", Bool(|d, v| d.verify.fatal = v), "0", "Stop at the first mismatch"),
    option("verify_dump", Bool(|d, v| d.verify.dump = v), "0", "Write what was expected and what was read to files"),
    option("verify_pattern", Custom("0xHEX, \"text\", number, 'file' or %o for the offset, one after the other", &[], |d, _, v| values::pattern(v, true).map(|pattern| d.verify.pattern = pattern)), "", "What blocks hold"),
    option("verify_interval", Bytes(80, |d, v| d.verify.interval = v), "the block", "Bytes under one header"),
    option("verify_offset", Bytes(40, |d, v| d.verify.header_offset = v), "0", "Where in the interval the header lies"),
    option("verify_backlog", Count(0, u64::MAX, |d, v| d.verify.backlog = v), "0", "Verify after every so many writes"),
    option("verify_backlog_batch", Count(0, u64::MAX, |d, v| d.verify.backlog_batch = v), "verify_backlog", "How many blocks to verify then"),
    option("verify_async", Count(0, U32, |d, v| d.verify.threads = v as u32), "0", "Threads that verify"),
    refused("verify_async_cpus", "", "Processors for these threads", "use cpus_allowed for the whole job"),
    option("verifysort", Bool(|d, v| d.verify.sorted = v), "1", "Read back in the order of offsets"),
    option("verifysort_nr", Opaque, "1024", "Blocks to sort").no_effect("fio has ignored it since 2.1"),
    option("verify_write_sequence", Bool(|d, v| d.verify.write_sequence = v), "1", "Check the number of the write in the header"),
    option("experimental_verify", Bool(|d, v| d.verify.regenerate = v), "0", "Make the sequence again instead of remembering it"),
    refused("verify_state_load", "0", "Go on from a state file", "no state files are read; verify_only checks a whole earlier run"),
    option("verify_state_save", Opaque, "1", "Write a state file when the run is stopped").no_effect("no state file is written"),
    refused("trim_percentage", "0", "Percent of verified blocks to trim", "use rw=trimwrite or a job with rw=trim"),
    refused("trim_verify_zero", "1", "Check that trimmed blocks read as zeroes", "trim_percentage is not supported"),
    refused("trim_backlog", "0", "Trim after so many writes", "trim_percentage is not supported"),
    refused("trim_backlog_batch", "0", "How many blocks to trim then", "trim_percentage is not supported"),
    option("read_iolog", Text(|d, v| d.job.iolog.read = Some(v.into())), "", "Replay what this file recorded"),
    option("read_iolog_chunked", Opaque, "0", "Read the log piece by piece").no_effect("the log is read as a whole"),
    option("write_iolog", Text(|d, v| d.job.iolog.write = Some(v.into())), "", "Record the requests in this file"),
    option("replay_no_stall", Bool(|d, v| d.job.iolog.no_stall = v), "0", "Replay as fast as possible"),
    option("replay_time_scale", Count(1, U32, |d, v| d.job.iolog.time_scale_percent = v as u32), "100", "Percent of the recorded speed"),
    option("replay_redirect", Text(|d, v| d.job.iolog.redirect = Some(v.into())), "", "Replay on this file instead"),
    option("replay_align", Bytes(0, |d, v| d.job.iolog.align = v), "0", "Alignment of replayed offsets, a power of two"),
    option("replay_scale", Count(1, u64::MAX, |d, v| d.job.iolog.scale = v), "1", "Replayed offsets are divided by this"),
    option("replay_skip", Custom("word[,word...]", &[("read", ""), ("write", ""), ("trim", ""), ("sync", "all kinds of syncs")], |d, _, v| values::replay_skip(v).map(|skip| d.job.iolog.skip = skip)), "", "What is not replayed"),
    refused("merge_blktrace_file", "", "Merge block traces into this file", "block traces are not read; convert them with blkparse"),
    refused("merge_blktrace_scalars", "", "Time scales of merged traces", "block traces are not read"),
    refused("merge_blktrace_iters", "", "Repeats of merged traces", "block traces are not read"),
    option(
        "continue_on_error",
        Word(
            &[
                ("none", "stop at the first"),
                ("read", "go on after failed reads"),
                ("write", "go on after failed writes"),
                ("io", "go on after both"),
                ("verify", "go on after mismatches"),
                ("all", "go on after everything"),
                ("0", "none"),
                ("1", "all"),
            ],
            |d, v| {
                let errors = &mut d.job.errors;
                errors.continue_read = matches!(v, "read" | "io" | "all" | "1");
                errors.continue_write = matches!(v, "write" | "io" | "all" | "1");
                errors.continue_verify = matches!(v, "verify" | "all" | "1");
            },
        ),
        "none",
        "What happens when a request fails",
    ),
    option("ignore_error", Custom("error[:error...][,...[,...]]: reads, writes, verification", &[], |d, _, v| values::ignore_error(v).map(|ignore| d.job.errors.ignore = ignore)), "", "Errors that are none"),
    option("error_dump", Bool(|d, v| d.job.errors.dump = v), "0", "Print each error"),
];

pub(super) const STEADY_STATE_WORDS: &[(&str, &str)] = &[
    ("iops", ":limit[%]: largest deviation from the mean"),
    ("iops_slope", ":limit[%]: slope of the regression line"),
    ("bw", ":limit[%]: the same for bandwidth"),
    ("bw_slope", ":limit[%]: the same for bandwidth"),
];

static REPORTING: &[OptionSpec] = &[
    option("write_bw_log", OptionalText(|d, v| d.job.reporting.logs.bw = Some(v.into())), "", "Log bandwidth over time; the value is a prefix of file names, by default the job's name"),
    option("write_lat_log", OptionalText(|d, v| d.job.reporting.logs.lat = Some(v.into())), "", "Log latencies over time"),
    option("write_iops_log", OptionalText(|d, v| d.job.reporting.logs.iops = Some(v.into())), "", "Log iops over time"),
    option("write_hist_log", OptionalText(|d, v| d.job.reporting.logs.histogram = Some(v.into())), "", "Log histograms of latency over time"),
    option("log_avg_msec", Time(Milliseconds, |d, v| d.job.reporting.logs.average_ns = v), "0", "Time that one line of a log covers; 0 is one request"),
    option("log_hist_msec", Time(Milliseconds, |d, v| d.job.reporting.logs.histogram_ns = v), "0", "Time that one histogram covers"),
    option("log_max_value", Bool(|d, v| d.job.reporting.logs.max_value = v), "0", "Log the largest value instead of the mean"),
    option("log_offset", Bool(|d, v| d.job.reporting.logs.offset = v), "0", "Log offsets too"),
    option("log_unix_epoch", Bool(|d, v| d.job.reporting.logs.unix_epoch = v), "0", "Times in logs are since 1970"),
    option("log_alternate_epoch", Bool(|d, v| d.job.reporting.logs.unix_epoch = v), "0", "The same"),
    refused("log_alternate_epoch_clock_id", "0", "Clock of log_alternate_epoch", "only the real-time clock is supported"),
    option("log_entries", Opaque, "1024", "Entries of a log to begin with").no_effect("logs grow as they need to"),
    option("log_hist_coarseness", Count(0, 6, |d, v| d.job.reporting.logs.histogram_coarseness = v as u32), "0", "Halve the number of bins in histogram logs so many times"),
    refused("log_prio", "0", "Log the priority too", "requests have no priorities of their own here"),
    option("log_compression", Opaque, "0", "Compress logs in memory").no_effect("logs are written as they come"),
    option("log_compression_cpus", Opaque, "", "Processors for that").no_effect("logs are not compressed"),
    refused("log_store_compressed", "0", "Write compressed logs", "compress them afterwards"),
    option("per_job_logs", Bool(|d, v| d.job.reporting.logs.per_job = v), "1", "Put the clone's number into names of logs"),
    option("bwavgtime", Time(Milliseconds, |d, v| d.job.reporting.bw_interval_ns = v), "500", "Length of an interval of bandwidth"),
    option("iopsavgtime", Opaque, "500", "Length of an interval of iops").no_effect("intervals of iops are those of bwavgtime"),
    option("clat_percentiles", Bool(|d, v| d.job.reporting.clat_percentiles = v), "1", "Report percentiles of completion latency"),
    option("lat_percentiles", Bool(|d, v| d.job.reporting.lat_percentiles = v), "0", "Report percentiles of total latency"),
    option("slat_percentiles", Bool(|d, v| d.job.reporting.slat_percentiles = v), "0", "Report percentiles of submission latency"),
    option("percentile_list", Numbers(0.0, 100.0, |d, v| d.job.reporting.percentiles = v), "1:5:10:20:30:40:50:60:70:80:90:95:99:99.5:99.9:99.95:99.99", "Which percentiles"),
    option("significant_figures", Opaque, "4", "Digits in the human summary").no_effect("the summary has three digits; JSON has all of them"),
    option("disable_lat", Bool(|d, v| d.job.reporting.disable_lat = v), "0", "Do not measure total latency"),
    option("disable_clat", Bool(|d, v| d.job.reporting.disable_clat = v), "0", "Do not measure completion latency"),
    option("disable_slat", Bool(|d, v| d.job.reporting.disable_slat = v), "0", "Do not measure submission latency"),
    option("disable_bw_measurement", Opaque, "0", "Do not measure bandwidth over time").aliases(&["disable_bw"]).no_effect("counting bandwidth costs no call here"),
    option(
        "gtod_reduce",
        Bool(|d, v| {
            let reporting = &mut d.job.reporting;
            reporting.gtod_reduce = v;
            if v {
                (reporting.disable_lat, reporting.disable_clat, reporting.disable_slat) = (true, true, true);
                (reporting.clat_percentiles, reporting.lat_percentiles, reporting.slat_percentiles) = (false, false, false);
            }
        }),
        "0",
        "Read the clock as rarely as possible: no latencies",
    ),
    option("gtod_cpu", Opaque, "", "Read the clock on this processor").no_effect("reading the clock costs no system call here"),
    option(
        "clocksource",
        Word(&[("gettimeofday", "as clock_gettime"), ("clock_gettime", "clock_gettime(2) in the vDSO"), ("cpu", "the time-stamp counter")], |d, v| {
            d.job.reporting.clock = if v == "cpu" { ClockSource::Cpu } else { ClockSource::ClockGettime }
        }),
        "the best there is",
        "Which clock is read",
    ),
    option(
        "unified_rw_reporting",
        Word(&[("none", "directions apart"), ("mixed", "all in one"), ("both", "both"), ("0", "none"), ("1", "mixed"), ("2", "both")], |d, v| {
            d.job.reporting.unified = match v {
                "mixed" | "1" => Unified::Mixed,
                "both" | "2" => Unified::Both,
                _ => Unified::None,
            }
        }),
        "none",
        "Report directions apart or together",
    ),
    option("stats", Bool(|d, v| d.job.reporting.stats = v), "1", "Whether the job is in the results"),
    option("disk_util", Bool(|d, v| d.job.reporting.disk_util = v), "1", "Report how busy the disks were"),
    option("kb_base", Word(&[("1024", "k is 1024"), ("1000", "k is 1000, KiB is 1024")], |d, v| d.job.reporting.kb_base = if v == "1000" { 1000 } else { 1024 }), "1024", "What k is, in what is read and shown"),
    option("unit_base", Word(&[("0", "automatic"), ("8", "bytes"), ("1", "bits")], |d, v| d.job.reporting.unit_base = v.parse().unwrap_or(0)), "0", "Show bandwidth in bytes or bits"),
    option(
        "steadystate",
        Custom("word:limit[%]", STEADY_STATE_WORDS, |d, r, v| values::steady_state(r, v).map(|steady| d.steady = Some(steady))),
        "",
        "End when a figure is steady",
    )
    .aliases(&["ss"]),
    option("steadystate_duration", Time(Seconds, |d, v| d.steady_window_ns = v), "0", "Time over which it must be; 0 switches steadystate off").aliases(&["ss_dur"]),
    option("steadystate_ramp_time", Time(Seconds, |d, v| d.steady_ramp_ns = v), "0", "Time before that is looked at").aliases(&["ss_ramp"]),
    refused("block_error_percentiles", "0", "Histogram of trim errors by block", "errors of trims are counted, not placed"),
];

static ENGINES: &[OptionSpec] = &[
    option("hipri", Flag(|d, v| d.job.ring.hipri = v), "0", "Poll the device for completions"),
    option("fixedbufs", Flag(|d, v| d.job.ring.fixed_buffers = v), "0", "Register the buffers with the kernel"),
    option("registerfiles", Flag(|d, v| d.job.ring.register_files = v), "0", "Register the files with the kernel"),
    option("sqthread_poll", Flag(|d, v| d.job.ring.sq_poll = v), "0", "A kernel thread takes submissions"),
    option("sqthread_poll_cpu", Count(0, 8191, |d, v| d.job.ring.sq_poll_cpu = Some(v as u32)), "", "Processor of that thread"),
    option("nonvectored", Bool(|d, v| d.job.ring.nonvectored = Some(v)), "the kernel's best", "Read and write without vectors"),
    option("force_async", Count(0, U32, |d, v| d.job.ring.force_async = v as u32), "0", "Every so many requests go to a kernel worker"),
    option("nowait", Bool(|d, v| d.job.ring.nowait = v), "0", "Fail instead of blocking (RWF_NOWAIT)"),
    option("userspace_reap", Flag(|d, v| d.job.ring.userspace_reap = v), "0", "Reap completions from the ring in memory"),
    option("uncached", Bool(|d, v| d.other("uncached", if v { "1" } else { "0" })), "0", "Drop pages from the cache behind requests (RWF_DONTCACHE)"),
    refused("hipri_percentage", "100", "Percent of requests that are polled", "hipri is for all or none"),
    refused("cmdprio_percentage", "0", "Percent of requests of high priority", "requests have no priorities of their own; use prio and prioclass"),
    refused("cmdprio_class", "", "Their class", "use prioclass"),
    refused("cmdprio", "", "Their priority", "use prio"),
    refused("cmdprio_bssplit", "", "Priorities by block size", "use jobs of their own, with prio"),
    option("volume", Text(|d, v| d.other("volume", v)), "", "Gluster volume (instead of filename=gluster://HOST/VOLUME/PATH)"),
    option("brick", Text(|d, v| d.other("brick", v)), "", "Gluster server: HOST[:PORT]"),
    option("single-instance", Bool(|d, v| d.other("single-instance", if v { "1" } else { "0" })), "0", "Share one connection to the volume"),
    option("subnqn", Text(|d, v| d.other("subnqn", v)), "", "Name of the NVMe subsystem"),
    option("hostnqn", Text(|d, v| d.other("hostnqn", v)), "", "Name of this host to the subsystem"),
    option("hostid", Text(|d, v| d.other("hostid", v)), "", "UUID of this host to the subsystem"),
    option("dhchap_key", Text(|d, v| d.other("dhchap_key", v)), "", "File with the key that proves this host to the subsystem (DH-HMAC-CHAP)"),
    option("dhchap_ctrlr_key", Text(|d, v| d.other("dhchap_ctrlr_key", v)), "", "File with the key that the subsystem must prove to have"),
    option("digest_enable", Text(|d, v| d.other("digest_enable", v)), "NONE", "Digests: NONE, HEADER, DATA, BOTH"),
    option("nr_io_queues", Count(1, 1024, |d, v| d.other("nr_io_queues", &v.to_string())), "one for each 128 of iodepth", "I/O queues, each a TCP connection"),
    option("keep_alive_tmo", Count(0, 3600, |d, v| d.other("keep_alive_tmo", &v.to_string())), "15", "Seconds of silence after which the target may drop the host; 0: never"),
    option("ctrl_loss_tmo", Count(0, U32, |d, v| d.other("ctrl_loss_tmo", &v.to_string())), "30", "Seconds for which a lost target is looked for before requests fail"),
    option("hostname", Text(|d, v| d.other("hostname", v)), "", "Address of the target"),
    option("port", Count(1, 65535, |d, v| d.other("port", &v.to_string())), "", "Port of the target"),
];

const NO_ZONES: &str = "zoned block devices are not supported";
const NO_FLOW: &str = "use rate or rwmixread to balance jobs";
const NO_CGROUP: &str = "start the run in a control group: systemd-run --scope -p IOWeight=";

static OTHER: &[OptionSpec] = &[
    refused("cmd_type", "", "Kind of io_uring command", "io_uring_cmd is not supported"),
    refused("zonecapacity", "0", "Capacity of a zone", NO_ZONES),
    refused("read_beyond_wp", "0", "Read beyond the write pointer", NO_ZONES),
    refused("max_open_zones", "0", "Zones open at once", NO_ZONES),
    refused("job_max_open_zones", "0", "Zones open at once, each clone", NO_ZONES),
    refused("ignore_zone_limits", "0", "Do as if the device had no limit of zones", NO_ZONES),
    refused("zone_reset_threshold", "", "When to reset zones", NO_ZONES),
    refused("zone_reset_frequency", "", "How often to reset zones", NO_ZONES),
    refused("ioscheduler", "", "Scheduler of the device", "write its name to /sys/block/DEVICE/queue/scheduler before the run"),
    refused("profile", "", "Built-in profile of fio's", "describe the load in a job file"),
    refused("cgroup", "", "Control group of the job", NO_CGROUP),
    refused("cgroup_nodelete", "0", "Keep the control group", NO_CGROUP),
    refused("cgroup_weight", "", "Weight of the control group", NO_CGROUP),
    refused("uid", "", "User to run as", "start the run as that user"),
    refused("gid", "", "Group to run as", "start the run as that group"),
    refused("flow_id", "0", "Group of the flow", NO_FLOW),
    refused("flow", "0", "Weight in the flow", NO_FLOW),
    refused("flow_watermark", "1024", "Limit of the flow", NO_FLOW),
    refused("flow_sleep", "0", "Pause of the flow", NO_FLOW),
    refused("rwmixcycle", "", "Requests before the direction may change", "fio has removed it"),
    refused("percentage_sequential", "", "The opposite of percentage_random", "fio has removed it; use percentage_random"),
    // Options of engines that are not here: a job that uses them names such an engine, which is the error it gets
    // first; without one, this is better than "unknown option".
    refused("cpuload", "", "Load of the processor in percent", NO_ENGINE),
    refused("cpumode", "", "Kind of that load", NO_ENGINE),
    refused("cpuchunks", "", "Cycles of that load", NO_ENGINE),
    refused("exit_on_io_done", "0", "End with the other jobs", NO_ENGINE),
    refused("donorname", "", "File to exchange blocks with", NO_ENGINE),
    refused("inplace", "", "How blocks are exchanged", NO_ENGINE),
    refused("program", "", "Program to run", NO_ENGINE),
    refused("arguments", "", "Its arguments", NO_ENGINE),
    refused("grace_time", "1", "Time it has to end", NO_ENGINE),
    refused("std_redirect", "1", "Where its output goes", NO_ENGINE),
    refused("stat_type", "stat", "Which call of stat(2)", NO_ENGINE),
    refused("thp", "0", "Transparent huge pages", NO_ENGINE),
    refused("skip_bad", "0", "Skip bad blocks", NO_ENGINE),
    refused("uri", "", "Address of the export", NO_ENGINE),
    refused("protocol", "tcp", "Network protocol", NO_ENGINE),
    refused("nodelay", "0", "TCP_NODELAY", NO_ENGINE),
    refused("listen", "0", "Wait for connections", NO_ENGINE),
    refused("pingpong", "0", "Answer every message", NO_ENGINE),
    refused("interface", "", "Network interface", NO_ENGINE),
    refused("ttl", "1", "Time to live", NO_ENGINE),
    refused("window_size", "", "Socket buffer", NO_ENGINE),
    refused("mss", "", "Segment size", NO_ENGINE),
    refused("clustername", "", "Ceph cluster", NO_ENGINE),
    refused("rbdname", "", "Image", NO_ENGINE),
    refused("pool", "", "Pool", NO_ENGINE),
    refused("clientname", "", "Ceph user", NO_ENGINE),
    refused("conf", "", "Ceph configuration", NO_ENGINE),
    refused("busy_poll", "0", "Spin for completions", NO_ENGINE),
    refused("touch_objects", "1", "Make objects before", NO_ENGINE),
    refused("bindname", "", "Address to bind", NO_ENGINE),
    refused("verb", "", "RDMA operation", NO_ENGINE),
    refused("readfua", "0", "Force unit access for reads", NO_ENGINE),
    refused("writefua", "0", "Force unit access for writes", NO_ENGINE),
    refused("sg_write_mode", "write", "SCSI command for writes", NO_ENGINE),
    refused("stream_id", "", "SCSI stream", NO_ENGINE),
    refused("https", "off", "Use TLS", NO_ENGINE),
    refused("http_host", "", "Server", NO_ENGINE),
    refused("http_user", "", "User", NO_ENGINE),
    refused("http_pass", "", "Password", NO_ENGINE),
    refused("http_s3_key", "", "S3 key", NO_ENGINE),
    refused("http_s3_keyid", "", "S3 key id", NO_ENGINE),
    refused("http_s3_region", "", "S3 region", NO_ENGINE),
    refused("http_s3_sse_customer_key", "", "S3 encryption key", NO_ENGINE),
    refused("http_s3_sse_customer_algorithm", "", "S3 encryption algorithm", NO_ENGINE),
    refused("http_s3_storage_class", "", "S3 storage class", NO_ENGINE),
    refused("http_swift_auth_token", "", "Swift token", NO_ENGINE),
    refused("http_mode", "webdav", "Kind of server", NO_ENGINE),
    refused("http_verbose", "0", "Debug output", NO_ENGINE),
    refused("nfs_url", "", "Address of the export", NO_ENGINE),
    refused("namenode", "", "HDFS name node", NO_ENGINE),
    refused("hdfsdirectory", "", "HDFS directory", NO_ENGINE),
    refused("hdfs_use_direct", "0", "HDFS short circuit reads", NO_ENGINE),
    refused("single_instance", "1", "One connection for all", NO_ENGINE),
    refused("chunk_size", "", "Size of a chunk", NO_ENGINE),
    refused("cont", "", "DAOS container", NO_ENGINE),
    refused("object_class", "", "DAOS object class", NO_ENGINE),
    refused("svcl", "", "DAOS service ranks", NO_ENGINE),
    refused("initiator", "", "iSCSI initiator", NO_ENGINE),
    refused("serverip", "", "Address of the server", NO_ENGINE),
    refused("direct_write_to_pmem", "0", "Write to persistent memory", NO_ENGINE),
    refused("busy_wait_polling", "0", "Spin for completions", NO_ENGINE),
    refused("gpu_dev_ids", "", "GPUs", NO_ENGINE),
    refused("cuda_io", "", "How GPU memory is used", NO_ENGINE),
    refused("xnvme_be", "", "Backend", NO_ENGINE),
    refused("xnvme_async", "", "Asynchronous backend", NO_ENGINE),
    refused("xnvme_sync", "", "Synchronous backend", NO_ENGINE),
    refused("xnvme_admin", "", "Admin backend", NO_ENGINE),
    refused("xnvme_dev_nsid", "", "Namespace", NO_ENGINE),
    refused("xnvme_iovec", "", "Use vectors", NO_ENGINE),
    refused("no_completion_thread", "0", "Reap in the same thread", NO_ENGINE),
];

const NO_ENGINE: &str = "the engine it belongs to is not here";

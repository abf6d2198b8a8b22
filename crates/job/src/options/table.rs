//! All options of a job: those of fio 3.33, and those that only Plimsoll has.

use measure::PerDirection;
use measure::units::TimeUnit::{Microseconds, Milliseconds, Seconds};

use super::ValueKind::*;
use super::values;
use super::{Each, Group, ValueKind, OptionSpec};
use crate::engines;
use crate::job::{ClockSource, ExitWhat, Fadvise, Fallocate, FileLock, Generator, MemoryKind, OpenSync, Unified, VerifyPolicy};

const U32: u64 = u32::MAX as u64;

/// More requests or clones than any machine takes: the limit keeps a typing error from asking for all of its memory.
const MANY: u64 = 1 << 20;

const fn option(name: &'static str, kind: ValueKind, default: &'static str, help: &'static str) -> OptionSpec {
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
    Group { title: "Zoned devices and other options of fio", options: OTHER },
];

pub(super) const RW_WORDS: &[(&str, &str)] = &[
    ("read", "sequential reads"),
    ("write", "sequential writes"),
    ("trim", "sequential trims"),
    ("randread", "random reads"),
    ("randwrite", "random writes"),
    ("randtrim", "random trims"),
    ("rw", "sequential reads and writes"),
    ("readwrite", "another name of rw"),
    ("randrw", "random reads and writes"),
    ("trimwrite", "each block trimmed, then written, in sequence"),
    ("randtrimwrite", "each block trimmed, then written, at random"),
];

static CORE: &[OptionSpec] = &[
    option("name", Text(|d, v| d.job.name = v.into()), "", "Name of the job"),
    option("description", Text(|d, v| d.job.description = Some(v.into())), "", "Text that the result carries"),
    // The engine is looked up once the whole section is read: a job may replace the global one.
    option("ioengine", Custom("word", &engines::WORDS, |d, _, v| { d.job.engine = engines::meant_by(v).into(); Ok(()) }), "psync", "Engine that carries out the requests"),
    option("rw", Custom("word[:N]; N is the gap between requests in bytes, or, for random words, the number of requests before a new random offset", RW_WORDS, |d, r, v| values::rw(r, v).map(|rw| d.job.rw = rw)), "read", "Direction of the requests, and their order").aliases(&["readwrite"]),
    option("bs", EachBytes(1, |d, v| values::update(&mut d.block, narrow(v, Some))), "4k", "Size of each request").aliases(&["blocksize"]),
    option("bsrange", EachRange(|d, v| { values::update(&mut d.block_range, narrow(v, Some)); d.job.blocks.split = PerDirection::default(); }), "", "Draw the size of each request from this range").aliases(&["blocksize_range"]),
    option(
        "bssplit",
        Custom("size/percent:size/percent...[,...[,...]]: reads, writes, trims", &[], |d, r, v| values::bssplit(r, v).map(|split| d.job.blocks.split = split)),
        "",
        "Draw the size of each request from these sizes, each with its share in percent",
    ),
    option("bs_unaligned", Flag(|d, v| d.job.blocks.unaligned = v), "0", "With bsrange, allow sizes that are not multiples of the smallest size").aliases(&["blocksize_unaligned"]),
    option("bs_is_seq_rand", Bool(|d, v| d.job.blocks.is_seq_rand = v), "0", "Read bs=A,B as A for sequential and B for random requests"),
    option("ba", EachBytes(1, |d, v| values::update(&mut d.align, narrow(v, Some))), "the smallest block", "Alignment of random offsets").aliases(&["blockalign"]),
    option("size", Amount(|d, v| d.job.extent.size = d.nonzero(v)), "the files' sizes", "Bytes that each clone uses, over all its files"),
    option("io_size", Amount(|d, v| d.job.extent.io_size = d.nonzero(v)), "as size", "Bytes that each clone transfers").aliases(&["io_limit"]),
    option("filesize", BytesRange(|d, v| d.job.extent.file_size = Some(v)), "size over nrfiles", "Size of each file; with a range, a random size from it"),
    option("fill_device", Bool(|d, v| d.job.extent.fill = v), "0", "Write until the device or file system is full").aliases(&["fill_fs"]),
    option("offset", Amount(|d, v| d.job.extent.offset = v), "0", "Offset in the file at which the job starts").aliases(&["fileoffset"]),
    option("offset_align", Bytes(0, |d, v| d.job.extent.offset_align = v), "0", "Alignment of an offset that is given in percent"),
    option("offset_increment", Amount(|d, v| d.job.extent.offset_increment = v), "0", "Bytes that each clone adds to offset, times its number (0, 1, ...)"),
    option("number_ios", Count(0, u64::MAX, |d, v| d.job.extent.number_ios = Some(v).filter(|n| *n > 0)), "0", "End after this number of requests"),
    option("iodepth", Count(1, MANY, |d, v| d.job.queue.depth = v as u32), "1", "Requests in flight in each clone"),
    option("numjobs", Count(1, MANY, |d, v| d.job.process.clones = v as u32), "1", "Number of clones of the job"),
    option("direct", Bool(|d, v| d.job.files.direct = v), "0", "Bypass the page cache (O_DIRECT)"),
    option("buffered", Bool(|d, v| d.job.files.direct = !v), "1", "Use the page cache: the opposite of direct"),
    option("thread", Flag(|d, v| d.job.process.thread = v), "0", "Run clones as threads, not as processes").aliases(&["threads"]),
    option("runtime", Time(Seconds, |d, v| d.job.time.runtime_ns = Some(v).filter(|ns| *ns > 0)), "0", "End after this time").aliases(&["timeout"]),
    option("time_based", Flag(|d, v| d.job.time.time_based = v), "0", "Repeat the work until runtime is over"),
    option("ramp_time", Time(Seconds, |d, v| d.job.time.ramp_ns = v), "0", "Time that the job runs before it measures"),
    option("ramp_size", Bytes(0, |d, v| d.job.time.ramp_bytes = v), "0", "Bytes that each clone transfers before it measures"),
    option("startdelay", TimeRange(Seconds, |d, v| d.job.time.start_delay_ns = v), "0", "Time that the job waits before it starts; with a range, a random time from it"),
    option("loops", Count(0, u64::MAX, |d, v| d.job.time.loops = v.max(1)), "1", "Number of times that the job repeats its work"),
    option("stonewall", Flag(|d, v| d.job.time.stonewall = v), "0", "Start when all earlier jobs of the file have ended").aliases(&["wait_for_previous"]),
    option("wait_for", Text(|d, v| d.job.time.wait_for = Some(v.into())), "", "Start when the job of this name has ended"),
    option("new_group", Flag(|d, v| d.job.time.new_group = v), "0", "Begin a new reporting group with this job"),
    option("group_reporting", Flag(|d, v| d.job.process.group_reporting = v), "0", "Report one result for the whole group"),
    option("exitall", Flag(|d, v| d.job.time.exit_all = v), "0", "When this job ends, end the jobs that exit_what names"),
    option(
        "exit_what",
        Word(&[("group", "the jobs of its group"), ("stonewall", "the jobs that run now"), ("all", "all jobs, those that wait too")], |d, v| {
            d.job.time.exit_what = match v {
                "stonewall" => ExitWhat::Stonewall,
                "all" => ExitWhat::All,
                _ => ExitWhat::Group,
            }
        }),
        "group",
        "Jobs that exitall ends",
    ),
    option("exitall_on_error", Flag(|d, v| d.job.time.exit_all_on_error = v), "0", "When a job fails, end all jobs"),
];

pub(super) const FILE_SERVICE_WORDS: &[(&str, &str)] = &[
    ("random", "any file, at random"),
    ("roundrobin", "the files in turn"),
    ("sequential", "a file to its end, then the next"),
    ("zipf", "a file at random, by a Zipf distribution"),
    ("pareto", "a file at random, by a Pareto distribution"),
    ("normal", "a file at random, by a normal distribution"),
    ("gauss", "another name of normal"),
];

static FILES: &[OptionSpec] = &[
    option("filename", Text(|d, v| d.name_files(values::split_names(v))), "made by filename_format", "Files or devices, separated by colons (\\: is a colon)"),
    option("directory", Text(|d, v| d.job.files.directories = values::split_names(v)), "", "Directories for the files, separated by colons, taken in turn by clones"),
    option("filename_format", Text(|d, v| d.job.files.format = v.into()), "$jobname.$jobnum.$filenum", "Form of the names of files that Plimsoll makes"),
    option("unique_filename", Bool(|d, v| d.job.files.unique = v), "1", "In runs of many ranks, put the rank before names that filename_format makes"),
    option("opendir", Text(|d, v| d.job.files.opendir = Some(v.into())), "", "Use all files below this directory"),
    option("nrfiles", Count(1, 1 << 28, |d, v| d.job.files.count = v as u32), "1", "Number of files of each clone").aliases(&["nr_files"]),
    option("openfiles", Count(0, U32, |d, v| d.job.files.open = Some(v as u32).filter(|n| *n > 0)), "all", "Number of files that are open at the same time"),
    option(
        "file_service_type",
        Custom("word[:requests before the next file]; zipf, pareto, normal[:parameter[:centre]]", FILE_SERVICE_WORDS, |d, r, v| {
            values::file_service(r, v).map(|(service, ops)| (d.job.files.service, d.job.files.service_ops) = (service, ops))
        }),
        "roundrobin",
        "Rule that chooses the file of the next request",
    ),
    option(
        "fallocate",
        Word(
            &[
                ("none", "reserve nothing"),
                ("native", "fallocate(2) where the file system has it"),
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
        "Call that reserves space when Plimsoll makes files",
    ),
    option(
        "fadvise_hint",
        Word(&[("0", "no advice"), ("1", "the advice that fits rw"), ("random", "POSIX_FADV_RANDOM"), ("sequential", "POSIX_FADV_SEQUENTIAL")], |d, v| {
            d.job.files.fadvise = match v {
                "0" => Fadvise::None,
                "random" => Fadvise::Random,
                "sequential" => Fadvise::Sequential,
                _ => Fadvise::Workload,
            }
        }),
        "1",
        "Advice to the kernel about the files, by posix_fadvise(2)",
    ),
    option("filetype", Opaque, "none", "Type of the files: file, block or char").no_effect("the type of each file is the one that it has"),
    option("create_on_open", Bool(|d, v| d.job.files.create_on_open = v), "0", "Make files when the job opens them, not before the run"),
    option("create_serialize", Bool(|_, _| {}), "1", "Make the files of one job at a time").no_effect("Plimsoll always makes the files of one job at a time"),
    option("create_only", Bool(|d, v| d.job.files.create_only = v), "0", "Make the files, then end"),
    option("create_fsync", Bool(|d, v| d.job.files.create_fsync = v), "1", "Call fsync(2) on files after making them"),
    option("allow_file_create", Bool(|d, v| d.job.files.allow_create = v), "1", "Make files that do not exist"),
    option("allow_mounted_write", Bool(|d, v| d.job.allow.mounted_write = v), "0", "Write to a device that is mounted"),
    option("unlink", Bool(|d, v| d.job.files.unlink = v), "0", "Remove the files when the job is done"),
    option("unlink_each_loop", Bool(|d, v| d.job.files.unlink_each_loop = v), "0", "Remove the files after each loop"),
    option("file_append", Bool(|d, v| d.job.files.append = v), "0", "Start at the end of the file"),
    option("overwrite", Bool(|d, v| d.job.files.overwrite = v), "0", "Fill the files before the job writes to them"),
    option("invalidate", Bool(|d, v| d.job.files.invalidate = v), "1", "Drop the files from the page cache before the run"),
    option("pre_read", Bool(|d, v| d.job.files.pre_read = v), "0", "Read the files into the page cache before the run"),
    option(
        "sync",
        Word(&[("none", "no flag"), ("0", "none"), ("sync", "O_SYNC"), ("1", "sync"), ("dsync", "O_DSYNC")], |d, v| {
            d.job.files.sync = match v {
                "sync" | "1" => OpenSync::Sync,
                "dsync" => OpenSync::Dsync,
                _ => OpenSync::None,
            }
        }),
        "none",
        "Open files for synchronous writes",
    ),
    option("fsync", Count(0, U32, |d, v| d.job.syncs.fsync = v as u32), "0", "Call fsync(2) after each N writes"),
    option("fdatasync", Count(0, U32, |d, v| d.job.syncs.fdatasync = v as u32), "0", "Call fdatasync(2) after each N writes"),
    option(
        "sync_file_range",
        Custom("flag[,flag...][:writes]", &[("wait_before", "SYNC_FILE_RANGE_WAIT_BEFORE"), ("write", "SYNC_FILE_RANGE_WRITE"), ("wait_after", "SYNC_FILE_RANGE_WAIT_AFTER")], |d, r, v| values::sync_file_range(r, v).map(|range| d.job.syncs.range = range)),
        "",
        "Call sync_file_range(2) after each N writes",
    ),
    option("end_fsync", Bool(|d, v| d.job.syncs.end_fsync = v), "0", "Call fsync(2) when the job ends"),
    option("end_syncfs", Bool(|d, v| d.job.syncs.end_syncfs = v), "0", "Call syncfs(2) on the file systems of the files when the job ends"),
    option("fsync_on_close", Bool(|d, v| d.job.syncs.fsync_on_close = v), "0", "Call fsync(2) before the job closes a file"),
    option(
        "lockfile",
        Word(&[("none", "no lock"), ("exclusive", "one clone at a time"), ("readwrite", "many readers or one writer")], |d, v| {
            d.job.files.lock = match v {
                "exclusive" => FileLock::Exclusive,
                "readwrite" => FileLock::ReadWrite,
                _ => FileLock::None,
            }
        }),
        "none",
        "Lock the file during each request",
    ),
    option("write_barrier", Count(0, U32, |_, _| {}), "0", "Make every Nth write a barrier").no_effect("Linux has no barrier writes since 2.6.37, and fio's engines make none; use fdatasync=N"),
    refused("write_hint", "none", "Expected life time of written data", "Plimsoll does not support data placement hints"),
];

const MEMORY_POLICY_WORDS: &[(&str, &str)] = &[
    ("default", "the policy that the program was started with"),
    ("local", "the node that the clone runs on"),
    ("prefer", ":node, and others where it has no memory left"),
    ("bind", ":nodes, and no others"),
    ("interleave", ":nodes, page by page"),
];

pub(super) const DISTRIBUTION_WORDS: &[(&str, &str)] = &[
    ("random", "every block equally often"),
    ("zipf", ":theta[:centre]"),
    ("pareto", ":power[:centre]"),
    ("normal", ":deviation in percent[:centre]"),
    ("zoned", ":accesses%/file%:...[,writes[,trims]]"),
    ("zoned_abs", ":accesses%/size:...[,writes[,trims]]"),
    ("sequence", ":block,block,..., numbers of blocks, in turn"),
];

static PATTERN: &[OptionSpec] = &[
    option("rwmixread", Count(0, 100, |d, v| d.job.pattern.mix_read = v as u8), "50", "Percent of reads in a mix"),
    option("rwmixwrite", Count(0, 100, |d, v| d.job.pattern.mix_read = 100 - v as u8), "50", "Percent of writes in a mix"),
    option("rw_sequencer", Word(&[("sequential", "each request has another offset"), ("identical", "the N requests have the same offset")], |d, v| d.job.pattern.identical = v == "identical"), "sequential", "Offsets of the N requests of rw=...:N"),
    option("randrepeat", Bool(|d, v| d.job.pattern.repeatable = v), "1", "Use the same random sequence in every run"),
    option("allrandrepeat", Bool(|d, v| d.job.pattern.repeatable = v), "1", "The same as randrepeat"),
    option("randseed", Count(0, u64::MAX, |d, v| { d.job.pattern.seed = v; d.seed_given = true; }), "0x89", "Seed of the random sequences"),
    option("norandommap", Flag(|d, v| d.job.pattern.no_random_map = v), "0", "Do not track the random blocks: some repeat and some are missed"),
    option("softrandommap", Bool(|d, v| d.job.pattern.soft_random_map = v), "0", "Run without the map of random blocks if memory for it is missing"),
    option(
        "random_generator",
        Word(&[("tausworthe", "random offsets, and a map of the blocks that are done"), ("tausworthe64", "the same; tausworthe alone finds 2^32 places at most without a map, as in fio"), ("lfsr", "a permutation of the blocks, without a map")], |d, v| {
            d.job.pattern.generator = match v {
                "lfsr" => Generator::Permutation,
                "tausworthe" => Generator::Coarse,
                _ => Generator::Mapped,
            }
        }),
        "tausworthe64",
        "Generator of random offsets",
    ),
    option(
        "random_distribution",
        Custom("word[:parameters]", DISTRIBUTION_WORDS, |d, r, v| {
            let distribution = values::random_distribution(r, v)?;
            let pattern = &mut d.job.pattern;
            (pattern.zones, pattern.zones_absolute, pattern.sequence) = Default::default();
            pattern.distribution = PerDirection::from_fn(|_| crate::job::Distribution::Uniform);
            match distribution {
                values::RandomDistribution::Plain(distribution) => pattern.distribution = PerDirection::from_fn(|_| distribution),
                values::RandomDistribution::Zoned(zones) => pattern.zones = zones,
                values::RandomDistribution::ZonedAbsolute(zones) => pattern.zones_absolute = zones,
                values::RandomDistribution::Sequence(numbers) => pattern.sequence = numbers,
            }
            Ok(())
        }),
        "random",
        "Distribution of random requests over the file",
    ),
    option("random_sequence_stride", Bool(|d, v| d.job.pattern.sequence_stride = v), "0", "After each turn of random_distribution=sequence, count from as many blocks further on as the turn has"),
    option("sprandom", Bool(|d, v| d.precondition_wanted = v), "0", "Write the file once, and some blocks twice, so that a drive is as after a long random load"),
    option("spr_num_regions", Count(1, 1_000_000, |d, v| d.precondition.regions = v as u32), "100", "Parts of a pass of sprandom, each with a share of blocks that are written again"),
    option("spr_op", Numbers(0.000_001, 1.0, |d, v| d.precondition.over_provisioning = v[0]), "0.15", "Blocks that the drive has beyond those of the file, as a part of the file, for sprandom"),
    option("spr_cs", Bytes(0, |d, v| d.precondition.cache_bytes = v), "0", "Bytes of the drive's cache, for sprandom: blocks are written again a region later"),
    option("percentage_random", EachCount(0, 100, |d, v| values::update(&mut d.job.pattern.percent_random, narrow(v, |n| n as u8))), "100", "Percent of the requests that are random, in a random job"),
    option("zonemode", Word(&[("none", "they have no effect"), ("strided", "stay in a zone, then skip to the next one"), ("zbd", "write at the write pointers of a zoned block device")], |d, v| d.zone_mode = Some(v.to_string())), "none", "Meaning of zonesize, zonerange and zoneskip"),
    option("zonesize", Bytes(0, |d, v| d.zones.size = v), "0", "Bytes that the job transfers in a zone before it moves to the next zone"),
    option("zonerange", Bytes(0, |d, v| d.zones.range = v), "0", "Bytes that a zone spans; 0 takes zonesize"),
    option("zoneskip", Custom("size, or a number of zones such as 4z", &[], |d, r, v| values::zone_skip(r, v).map(|skip| d.zone_skip = skip)), "0", "Bytes between two zones"),
    option("zonecapacity", Bytes(0, |d, v| d.zoned.capacity = v), "0", "Bytes of a zone that hold data, where zonemode=zbd emulates zones; 0 takes zonesize"),
    option("read_beyond_wp", Bool(|d, v| d.zoned.read_beyond_wp = v), "0", "Let reads go beyond the write pointer of a zone"),
    option("max_open_zones", Count(0, 4096, |d, v| d.zoned.max_open = v as u32), "0", "Zones of the device that all jobs together have open; 0 takes the limit of the device"),
    option("job_max_open_zones", Count(0, 4096, |d, v| d.zoned.job_max_open = v as u32), "0", "Zones that each clone has open; 0 sets no limit"),
    option("ignore_zone_limits", Bool(|d, v| d.zoned.ignore_limits = v), "0", "Do not ask the device how many zones it can have open"),
    option("zone_reset_threshold", Custom("number from 0 to 1", &[], |d, _, text| values::share(text).map(|share| d.zoned.reset_threshold = share)), "0", "Share of the job's bytes that hold data before the job resets zones that are not full"),
    option("zone_reset_frequency", Custom("number from 0 to 1", &[], |d, _, text| values::share(text).map(|share| d.zoned.reset_frequency = share)), "0", "Share of the writes beyond zone_reset_threshold that reset a zone"),
    refused("write_zone_remainder", "0", "Fill the rest of a zone that is smaller than a block by a write", "the job leaves the rest of each zone: use a block size that divides the zone's capacity"),
    option("recover_zbd_write_error", Bool(|_, _| {}), "0", "After a failed write, ask the device for the write pointer; Plimsoll always does"),
];

static QUEUE: &[OptionSpec] = &[
    option("iodepth_batch", Count(0, U32, |d, v| d.job.queue.batch = v as u32), "1", "Number of requests that the engine submits together; 0 takes iodepth").aliases(&["iodepth_batch_submit"]),
    option("iodepth_batch_complete_min", Count(0, U32, |d, v| d.job.queue.batch_complete_min = v as u32), "1", "Number of completions that the engine waits for; with 0 it polls").aliases(&["iodepth_batch_complete"]),
    option("iodepth_batch_complete_max", Count(0, U32, |d, v| d.job.queue.batch_complete_max = v as u32), "all there are", "Number of completions that the engine takes at once (fio's default: iodepth_batch_complete_min)"),
    option("iodepth_low", Count(0, U32, |d, v| d.low = Some(v as u32)), "iodepth", "When the queue is full, let it drain to this depth before filling it again"),
    option("io_submit_mode", Word(&[("inline", "the thread that prepares them"), ("offload", "a separate thread")], |d, v| d.job.queue.offload = v == "offload"), "inline", "Thread that submits the requests"),
    option("serialize_overlap", Bool(|d, v| d.job.queue.serialize_overlap = v), "0", "Hold a request back while the same clone has one in flight that overlaps it, unless both read"),
    option("rate", EachBytes(0, |d, v| values::update_nonzero(&mut d.job.rate.bytes, v)), "", "Limit of each clone in bytes per second"),
    option("rate_min", EachBytes(0, |d, v| values::update_nonzero(&mut d.job.rate.min_bytes, v)), "", "Fail below this number of bytes per second").aliases(&["ratemin"]),
    option("rate_iops", EachCount(0, U32, |d, v| values::update_nonzero(&mut d.job.rate.iops, v)), "", "Limit of each clone in requests per second"),
    option("rate_iops_min", EachCount(0, U32, |d, v| values::update_nonzero(&mut d.job.rate.min_iops, v)), "", "Fail below this number of requests per second"),
    option("rate_process", Word(&[("linear", "equal gaps"), ("poisson", "random arrivals")], |d, v| d.job.rate.poisson = v == "poisson"), "linear", "Arrival of the requests under a rate"),
    option("rate_cycle", Time(Milliseconds, |d, v| d.job.rate.cycle_ns = v), "1000", "Time over which rate_min and rate_iops_min take the mean").aliases(&["ratecycle"]),
    option("rate_ignore_thinktime", Bool(|d, v| d.job.rate.ignore_think_time = v), "0", "Do not make up for think time under a rate"),
    option("thinktime", Time(Microseconds, |d, v| d.job.rate.think_ns = v), "0", "Pause after each thinktime_blocks requests"),
    option("thinktime_spin", Time(Microseconds, |d, v| d.job.rate.think_spin_ns = v), "0", "Part of the pause that the clone spends spinning"),
    option("thinktime_blocks", Count(1, U32, |d, v| d.job.rate.think_blocks = v as u32), "1", "Number of requests between two pauses"),
    option("thinktime_blocks_type", Word(&[("complete", "count completed requests"), ("issue", "count issued requests")], |d, v| d.job.rate.think_on_issue = v == "issue"), "complete", "Requests that thinktime_blocks counts"),
    option("thinkcycles", Count(0, u64::MAX, |d, v| d.job.rate.think_cycles = v), "0", "Processor cycles that the clone spends after each request"),
    option("thinktime_iotime", Time(Seconds, |d, v| d.job.rate.think_io_time_ns = v), "0", "Pause also after this time of I/O"),
    option("pace", Text(|d, v| d.job.rate.pace = Some(v.into())), "", "Pacing in front of the engine (fio has no such option), one of auto, auto:MEMORY, none, buffers:COUNT, rate:MICROSECONDS, iops:COUNT, bw:BYTES"),
    option("latency_target", Time(Microseconds, |d, v| d.latency.target_ns = v), "", "Find the largest depth that keeps this latency"),
    option("latency_window", Time(Microseconds, |d, v| d.latency.window_ns = v), "", "Time over which the job compares latencies with latency_target"),
    option("latency_percentile", Numbers(0.0, 100.0, |d, v| d.latency.percentile = v[0]), "100", "Percent of the requests that must keep latency_target"),
    option("latency_run", Bool(|d, v| d.latency.run = v), "0", "Run on at the depth that latency_target found"),
    option(
        "max_latency",
        EachTime(Microseconds, |d, v| values::update_nonzero(&mut d.job.errors.max_latency_ns, v)),
        "",
        "Fail when a request takes longer than this",
    ),
];

static PROCESS: &[OptionSpec] = &[
    option("cpus_allowed", Custom("processors, as 0-3,7", &[], |d, _, v| values::numbers(v).map(|cpus| d.job.process.cpus = cpus)), "", "Processors that the clones may use"),
    option(
        "cpumask",
        Count(1, U32, |d, v| d.job.process.cpus = (0..32).filter(|bit| v & (1 << bit) != 0).collect()),
        "",
        "Processors that the clones may use, as a bit mask",
    ),
    option("cpus_allowed_policy", Word(&[("shared", "every clone may use all of them"), ("split", "each clone has one processor")], |d, v| d.job.process.cpus_split = v == "split"), "shared", "Division of the processors among the clones"),
    option(
        "numa_cpu_nodes",
        Custom("nodes, as 0,2-3, or all", &[("all", "all nodes")], |d, _, v| {
            d.job.process.numa_cpu_nodes = if v.trim() == "all" { Vec::new() } else { values::numbers(v)? };
            Ok(())
        }),
        "",
        "NUMA nodes whose processors the clones may use",
    ),
    option("numa_mem_policy", Custom("default, local, prefer:node, bind:nodes or interleave:nodes", MEMORY_POLICY_WORDS, |d, _, v| values::memory_policy(v).map(|policy| d.job.process.memory_policy = policy)), "default", "NUMA nodes whose memory the buffers take"),
    option("comm", Text(|d, v| d.job.process.comm = Some(v.into())), "", "Name of the clones' threads, as ps(1) shows it: at most 15 bytes"),
    option("nice", Integer(-20, 19, |d, v| d.job.process.nice = v as i32), "0", "Nice value"),
    option("prio", Count(0, 7, |d, v| d.priority.1 = Some(v as u8)), "", "I/O priority; 0 is the highest"),
    option("prioclass", Count(0, 3, |d, v| d.priority.0 = Some(v as u8)), "", "I/O priority class: 1 real time, 2 best effort, 3 idle"),
    option("priohint", Count(0, 1023, |d, v| d.priority_hint = Some(v as u16)), "", "Hint in the I/O priority (Linux 6.5): 1 to 7 are the limits of duration of the drive"),
    option("uid", Custom("number", &[], |d, r, v| values::identity(r, v).map(|id| d.job.process.user = id)), "", "Number of the user as whom each clone runs and opens its files; the files are made before"),
    option("gid", Custom("number", &[], |d, r, v| values::identity(r, v).map(|id| d.job.process.group = id)), "", "Number of the group as whom each clone runs and opens its files; the files are made before"),
    option("exec_prerun", Text(|d, v| d.job.process.before = Some(v.into())), "", "Shell command that each clone runs before its work; the output goes to JOB.prerun.txt"),
    option("exec_postrun", Text(|d, v| d.job.process.after = Some(v.into())), "", "Shell command that each clone runs after its work; the output goes to JOB.postrun.txt"),
    option(
        "mem",
        Word(
            &[
                ("malloc", "memory of the process"),
                ("mmap", "memory of the process"),
                ("shm", "shared memory"),
                ("mmapshared", "shared memory"),
                ("shmhuge", "huge pages"),
                ("mmaphuge", "huge pages"),
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
        "Kind of memory for the buffers",
    )
    .aliases(&["iomem"]),
    option("iomem_align", Bytes(0, |d, v| d.job.buffers.align = v), "0", "Alignment of the buffers; 0 takes a page").aliases(&["mem_align"]),
    refused("hugepage-size", "2m", "Size of huge pages", "Plimsoll uses the system's default size"),
    refused("lockmem", "0", "Lock memory, so that the page cache has less", "limit memory with a control group instead: systemd-run -p MemoryMax="),
    option("zero_buffers", Flag(|d, v| d.job.buffers.zero = v), "0", "Fill the buffers with zeroes"),
    option("refill_buffers", Flag(|d, v| { d.job.buffers.refill = v; d.refill_given = true; }), "0", "Fill the buffer with new random data for every write"),
    option("scramble_buffers", Bool(|d, v| d.job.buffers.scramble = v), "1", "Change a few bytes of the buffer for every write"),
    option(
        "buffer_pattern",
        Custom("0xHEX, \"text\", number or 'file', one after the other", &[], |d, _, v| values::pattern(v, false).map(|pattern| d.job.buffers.pattern = pattern.bytes)),
        "",
        "Pattern that fills the buffers",
    ),
    option("buffer_compress_percentage", Count(0, 100, |d, v| d.job.buffers.compress_percent = v as u8), "0", "Percent of each buffer that compresses well"),
    option("buffer_compress_chunk", Bytes(0, |d, v| d.job.buffers.compress_chunk = v), "512", "Size of the pieces with compressible data"),
    option("dedupe_percentage", Count(0, 100, |d, v| d.job.buffers.dedupe_percent = v as u8), "0", "Percent of buffers that repeat an earlier buffer"),
    option("dedupe_mode", Word(&[("repeat", "one of the last buffers"), ("working_set", "one of a set of buffers, which stays the same")], |d, v| d.dedupe.from_set = v == "working_set"), "repeat", "Rule that chooses the buffer to repeat"),
    option("dedupe_working_set_percentage", Count(0, 100, |d, v| d.dedupe.percent = v), "5", "Size of the set of dedupe_mode=working_set in percent of size"),
    option("dedupe_global", Bool(|d, v| d.dedupe.global = v), "0", "Take the set of dedupe_mode=working_set from the buffers that all jobs with this option share"),
    refused("gpu_dev_id", "0", "GPU whose memory holds the buffers", "Plimsoll does not support GPU memory"),
];

pub(super) const VERIFY_WORDS: &[(&str, &str)] = &[
    ("0", "no verification"),
    ("crc32c", "header and CRC-32C"),
    ("crc32c-intel", "another name of crc32c"),
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
    ("pattern_hdr", "verify_pattern behind a header"),
    ("null", "no check; measures the cost of verification"),
];

static VERIFY: &[OptionSpec] = &[
    option("verify", Custom("word", VERIFY_WORDS, |d, _, v| { d.verify_kind = values::verify(v)?; d.verify_given = true; Ok(()) }), "0", "Write a check into each block, and compare it after reading"),
    option("do_verify", Bool(|d, v| d.verify.enabled = v), "1", "Read the blocks back after writing them"),
    option("verify_only", Flag(|d, v| d.verify.only = v), "0", "Do not write; check the blocks that an earlier run wrote"),
    option("verify_fatal", Bool(|d, v| d.verify.fatal = v), "0", "Stop at the first mismatch"),
    option("verify_dump", Bool(|d, v| d.verify.dump = v), "0", "After a mismatch, write the expected block and the block that was read to files"),
    option("verify_pattern", Custom("0xHEX, \"text\", number, 'file' or %o for the offset, one after the other", &[], |d, _, v| values::pattern(v, true).map(|pattern| d.verify.pattern = pattern)), "", "Pattern that fills the blocks"),
    option("verify_pattern_interval", Bytes(0, |d, v| d.verify.pattern_interval = v), "0", "Bytes after which the pattern begins again, where %o is the offset of that place; 0 takes the block size"),
    option("verify_interval", Bytes(80, |d, v| d.verify.interval = v), "the block", "Bytes that one header covers"),
    option("verify_offset", Bytes(40, |d, v| d.verify.header_offset = v), "0", "Offset of the header in its interval"),
    option("verify_backlog", Count(0, u64::MAX, |d, v| d.verify.backlog = v), "0", "Verify after each N writes"),
    option("verify_backlog_batch", Count(0, u64::MAX, |d, v| d.verify.backlog_batch = v), "verify_backlog", "Number of blocks to verify each time"),
    option("verify_async", Count(0, U32, |_, _| {}), "0", "Number of threads that verify").no_effect("the clone itself checks the blocks that it reads back"),
    option("verify_async_cpus", Opaque, "", "Processors for the threads of verify_async").no_effect("the clone itself checks the blocks that it reads back"),
    option("verifysort", Bool(|d, v| d.verify.sorted = v), "1", "Read back in the order of offsets"),
    option("verifysort_nr", Opaque, "1024", "Number of blocks to sort").no_effect("fio ignores it since 2.1"),
    option("verify_write_sequence", Bool(|d, v| d.verify.write_sequence = v), "1", "Check the sequence number in the header of each block"),
    option("verify_header_seed", Bool(|d, v| d.verify.header_seed = v), "1", "Check the seed in the header of each block, where it is known"),
    option("experimental_verify", Bool(|d, v| d.verify.regenerate = v), "0", "Compute the sequence of offsets again for verification, without storing it"),
    option("verify_state_load", Bool(|d, v| d.verify.loads_state = v), "0", "Check only the writes that had ended when the state file of the job was written"),
    option("verify_state_save", Bool(|d, v| d.saves_state = Some(v)), "0", "Write a file that says which writes have ended, at the end of a job that verifies and writes; called as fio, or with a trigger, the default is 1"),
    option(
        "verify_policy",
        Word(&[("all", "writes that have succeeded, as completed"), ("completed", "writes that have succeeded"), ("fsynced", "writes that have succeeded and were synced afterwards")], |d, v| {
            d.verify.policy = if v == "fsynced" { VerifyPolicy::Fsynced } else { VerifyPolicy::Completed }
        }),
        "completed",
        "Writes that the state file counts",
    ),
    option("trim_percentage", Count(0, 100, |d, v| d.verify.trims.percent = v as u32), "0", "Percent of the written blocks to trim again, in a job that verifies"),
    option("trim_verify_zero", Bool(|d, v| d.verify.trims.must_be_zero = v), "1", "Read the trimmed blocks back, and check that they hold zeroes"),
    option("trim_backlog", Count(0, u64::MAX, |d, v| d.verify.trims.backlog = v), "0", "Trim after each N writes; 0 trims after all writes"),
    option("trim_backlog_batch", Count(0, u64::MAX, |d, v| d.verify.trims.batch = v), "trim_backlog", "Most blocks to trim each time"),
    option("read_iolog", Text(|d, v| d.job.iolog.read = Some(v.into())), "", "Replay the requests that this file records"),
    option("read_iolog_chunked", Bool(|_, _| {}), "0", "Read the log piece by piece").no_effect("Plimsoll reads the log as a whole"),
    option("write_iolog", Text(|d, v| d.job.iolog.write = Some(v.into())), "", "Record the requests in this file"),
    option("replay_no_stall", Bool(|d, v| d.job.iolog.no_stall = v), "0", "Replay as fast as possible"),
    option("replay_time_scale", Count(1, U32, |d, v| d.job.iolog.time_scale_percent = v as u32), "100", "Replay at this percentage of the recorded speed"),
    option("replay_redirect", Text(|d, v| d.job.iolog.redirect = Some(v.into())), "", "Replay all requests on this file"),
    option("replay_align", Custom("size", &[], |d, r, v| values::power_of_two(r, v).map(|bytes| d.job.iolog.align = bytes)), "0", "Alignment of replayed offsets, a power of two"),
    option("replay_scale", Count(1, u64::MAX, |d, v| d.job.iolog.scale = v), "1", "Divide replayed offsets by this number"),
    option("replay_skip", Custom("word[,word...]", &[("read", "reads"), ("write", "writes"), ("trim", "trims"), ("sync", "all kinds of syncs")], |d, _, v| values::replay_skip(v).map(|skip| d.job.iolog.skip = skip)), "", "Kinds of requests that the replay leaves out"),
    refused("merge_blktrace_file", "", "Merge block traces into this file", "Plimsoll does not read block traces; convert them with blkparse"),
    refused("merge_blktrace_scalars", "", "Time scales of merged traces", "Plimsoll does not read block traces"),
    refused("merge_blktrace_iters", "", "Repeats of merged traces", "Plimsoll does not read block traces"),
    option(
        "continue_on_error",
        Word(
            &[
                ("none", "stop after the first"),
                ("read", "go on after failed reads"),
                ("write", "go on after failed writes"),
                ("io", "go on after failed reads and writes"),
                ("verify", "go on after blocks that differ"),
                ("all", "go on after all of them"),
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
        "Kinds of failed requests after which the job continues",
    ),
    option("ignore_error", Custom("error[:error...][,...[,...]]: reads, writes, verification", &[], |d, _, v| values::ignore_error(v).map(|ignore| d.job.errors.ignore = ignore)), "", "Error numbers that the job ignores"),
    option("error_dump", Bool(|d, v| d.job.errors.dump = v), "0", "Print each error"),
];

pub(super) const STEADY_STATE_WORDS: &[(&str, &str)] = &[
    ("iops", ":limit[%]: largest deviation of IOPS from the mean"),
    ("iops_slope", ":limit[%]: slope of the regression line of IOPS"),
    ("bw", ":limit[%]: largest deviation of bandwidth from the mean"),
    ("bw_slope", ":limit[%]: slope of the regression line of bandwidth"),
];

static REPORTING: &[OptionSpec] = &[
    option("write_bw_log", OptionalText(|d, v| d.job.reporting.logs.bw = Some(v.into())), "", "Log bandwidth over time; the value is a prefix of file names, by default the job's name"),
    option("write_lat_log", OptionalText(|d, v| d.job.reporting.logs.lat = Some(v.into())), "", "Log latencies over time"),
    option("write_iops_log", OptionalText(|d, v| d.job.reporting.logs.iops = Some(v.into())), "", "Log iops over time"),
    option("write_hist_log", OptionalText(|d, v| d.job.reporting.logs.histogram = Some(v.into())), "", "Log histograms of latency over time"),
    option("log_avg_msec", Time(Milliseconds, |d, v| d.job.reporting.logs.average_ns = v), "0", "Time that one line of a log covers; with 0 each request has a line"),
    option("log_hist_msec", Time(Milliseconds, |d, v| d.job.reporting.logs.histogram_ns = v), "0", "Time that one histogram of a log covers"),
    option("log_max_value", Bool(|d, v| d.job.reporting.logs.max_value = v), "0", "Log the largest value, not the mean"),
    option(
        "log_window_value",
        Word(&[("avg", "the mean"), ("average", "the mean"), ("max", "the largest value"), ("maximum", "the largest value"), ("both", "the mean, then the largest value in a column of its own")], |d, v| {
            d.job.reporting.logs.max_value = v.starts_with("max");
            d.job.reporting.logs.both_values = v == "both";
        }),
        "avg",
        "Value that a log has of each log_avg_msec",
    ),
    option("log_issue_time", Bool(|d, v| d.job.reporting.logs.issue_time = v), "0", "Log in a last column the time at which each request was issued, in nanoseconds; logs other than those of slat and clat have 0 there, as have means"),
    option("log_offset", Bool(|d, v| d.job.reporting.logs.offset = v), "0", "Log the offsets too"),
    option("log_unix_epoch", Bool(|d, v| d.job.reporting.logs.unix_epoch = v), "0", "Log times since 1970, not since the start"),
    option("log_alternate_epoch", Bool(|d, v| d.job.reporting.logs.unix_epoch = v), "0", "Log times since 1970, not since the start"),
    refused("job_start_clock_id", "0", "Clock of job_start in JSON", "Plimsoll supports the real-time clock only"),
    refused("log_alternate_epoch_clock_id", "0", "Clock of log_alternate_epoch", "Plimsoll supports the real-time clock only"),
    option("log_entries", Count(1024, 1 << 20, |_, _| {}), "1024", "Initial number of entries in a log").no_effect("logs grow as needed"),
    option("log_hist_coarseness", Count(0, 6, |d, v| d.job.reporting.logs.histogram_coarseness = v as u32), "0", "Number of times to halve the number of bins in histogram logs"),
    option("log_prio", Bool(|d, v| d.job.reporting.logs.priority = v), "0", "Log the priority of each request as a number, not 1 for the real-time class and 0 for others"),
    option("log_compression", Count(1024, 512 << 20, |_, _| {}), "", "Compress logs in memory").no_effect("Plimsoll writes each line of a log at once"),
    option("log_compression_cpus", Opaque, "", "Processors that compress logs").no_effect("Plimsoll does not compress logs"),
    option("log_store_compressed", Bool(|d, v| d.job.reporting.logs.compressed = v), "0", "Write logs as zlib streams with the suffix .fz, which --inflate-log prints"),
    option("per_job_logs", Bool(|d, v| d.job.reporting.logs.per_job = v), "1", "Put the number of the clone into names of logs"),
    option("bwavgtime", Time(Milliseconds, |d, v| d.job.reporting.bw_interval_ns = v), "500", "Length of the intervals for which bandwidth is reported"),
    option("iopsavgtime", Count(0, U32, |_, _| {}), "500", "Length of the intervals for which IOPS are reported").no_effect("bwavgtime sets the length for IOPS too"),
    option("clat_percentiles", Bool(|d, v| d.job.reporting.clat_percentiles = v), "1", "Report percentiles of completion latency"),
    option("lat_percentiles", Bool(|d, v| d.job.reporting.lat_percentiles = v), "0", "Report percentiles of total latency"),
    option("slat_percentiles", Bool(|d, v| d.job.reporting.slat_percentiles = v), "0", "Report percentiles of submission latency"),
    option("percentile_list", Numbers(0.0, 100.0, |d, v| d.job.reporting.percentiles = v), "1:5:10:20:30:40:50:60:70:80:90:95:99:99.5:99.9:99.95:99.99", "Percentiles to report"),
    option("significant_figures", Count(1, 10, |_, _| {}), "4", "Digits in the summary for people").no_effect("the summary has three digits; JSON has all of them"),
    option("disable_lat", Bool(|d, v| d.job.reporting.disable_lat = v), "0", "Do not measure total latency"),
    option("disable_clat", Bool(|d, v| d.job.reporting.disable_clat = v), "0", "Do not measure completion latency"),
    option("disable_slat", Bool(|d, v| d.job.reporting.disable_slat = v), "0", "Do not measure submission latency"),
    option("disable_bw_measurement", Bool(|_, _| {}), "0", "Do not measure bandwidth over time").aliases(&["disable_bw"]).no_effect("Plimsoll counts bandwidth without a system call"),
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
        "Read the clock as rarely as possible, and report no latencies",
    ),
    option("gtod_cpu", Count(0, U32, |_, _| {}), "", "Read the clock on this processor").no_effect("Plimsoll reads the clock without a system call"),
    option(
        "clocksource",
        Word(&[("gettimeofday", "clock_gettime(2), as clock_gettime"), ("clock_gettime", "clock_gettime(2) in the vDSO"), ("cpu", "the time-stamp counter")], |d, v| {
            d.job.reporting.clock = if v == "cpu" { ClockSource::Cpu } else { ClockSource::ClockGettime }
        }),
        "the cheapest reliable clock",
        "Clock that times the requests",
    ),
    option(
        "unified_rw_reporting",
        Word(&[("none", "one result for each direction"), ("mixed", "one result for all directions"), ("both", "both of these"), ("0", "none"), ("1", "mixed"), ("2", "both")], |d, v| {
            d.job.reporting.unified = match v {
                "mixed" | "1" => Unified::Mixed,
                "both" | "2" => Unified::Both,
                _ => Unified::None,
            }
        }),
        "none",
        "Report reads, writes and trims together, not each alone",
    ),
    option("stats", Bool(|d, v| d.job.reporting.stats = v), "1", "Include the job in the results"),
    option("disk_util", Bool(|d, v| d.job.reporting.disk_util = v), "1", "Report the utilisation of the disks"),
    option("kb_base", Word(&[("1024", "k is 1024"), ("1000", "k is 1000, KiB is 1024")], |d, v| d.job.reporting.kb_base = if v == "1000" { 1000 } else { 1024 }), "1024", "Number of bytes in a kilobyte (k), in options and in reports"),
    option("unit_base", Word(&[("0", "automatic"), ("8", "bytes"), ("1", "bits")], |d, v| d.job.reporting.unit_base = v.parse().unwrap_or(0)), "0", "Unit of bandwidth in reports"),
    option(
        "steadystate",
        Custom("word:limit[%]", STEADY_STATE_WORDS, |d, r, v| values::steady_state(r, v).map(|steady| d.steady = Some(steady))),
        "iops_slope:0.01%",
        "End when this figure is steady",
    )
    .aliases(&["ss"]),
    option("steadystate_duration", Time(Seconds, |d, v| d.steady_window_ns = v), "0", "Time over which the figure of steadystate must be steady; 0 switches steadystate off").aliases(&["ss_dur"]),
    option("steadystate_ramp_time", Time(Seconds, |d, v| d.steady_ramp_ns = v), "0", "Time before steadystate looks at the figure").aliases(&["ss_ramp"]),
    option("steadystate_check_interval", Time(Seconds, |d, v| d.steady_interval_ns = v), "1s", "Time between two looks of steadystate").aliases(&["ss_interval"]),
    refused("block_error_percentiles", "0", "Histogram of trim errors by block", "Plimsoll counts errors of trims, but not by block"),
];

const PROTOCOL_WORDS: &[(&str, &str)] = &[
    ("tcp", "TCP over IPv4"),
    ("tcpv6", "TCP over IPv6"),
    ("udp", "UDP over IPv4"),
    ("udpv6", "UDP over IPv6"),
    ("unix", "a stream between processes; hostname is a path"),
    ("vsock", "a stream between virtual machines; hostname is a number (CID)"),
];

static ENGINES: &[OptionSpec] = &[
    option("hipri", Flag(|d, v| d.job.ring.hipri = v), "0", "Poll the device for completions"),
    option("fixedbufs", Flag(|d, v| d.job.ring.fixed_buffers = v), "0", "Register the buffers with the kernel"),
    option("registerfiles", Flag(|d, v| d.job.ring.register_files = v), "0", "Register the files with the kernel"),
    option("sqthread_poll", Flag(|d, v| d.job.ring.sq_poll = v), "0", "Let a kernel thread take the submissions"),
    option("sqthread_poll_cpu", Count(0, 8191, |d, v| d.job.ring.sq_poll_cpu = Some(v as u32)), "", "Processor of the kernel thread of sqthread_poll"),
    option("nonvectored", Bool(|d, v| d.job.ring.nonvectored = Some(v)), "the kernel's best", "Read and write without vectors"),
    option("force_async", Count(0, U32, |d, v| d.job.ring.force_async = v as u32), "0", "Give one in N requests to a kernel worker"),
    option("nowait", Bool(|d, v| d.job.ring.nowait = v), "0", "Let requests fail where they would block (RWF_NOWAIT)"),
    option("userspace_reap", Flag(|d, v| d.job.ring.userspace_reap = v), "0", "Take completions from the ring in memory, without a system call"),
    option("atomic", Bool(|d, v| d.other("atomic", if v { "1" } else { "0" })), "0", "With direct=1, write each block as a whole or not at all (RWF_ATOMIC, Linux 6.11)"),
    option("uncached", Bool(|d, v| d.other("uncached", if v { "1" } else { "0" })), "0", "Drop the pages of each request from the page cache after it (RWF_DONTCACHE)"),
    option("thp", Bool(|d, v| d.other("thp", if v { "1" } else { "0" })), "0", "Ask for huge pages in the mapping of the file (MADV_HUGEPAGE)"),
    option("hipri_percentage", Count(0, 100, |d, v| d.job.ring.hipri_percent = Some(v as u8).filter(|percent| *percent < 100)), "100", "Percent of the requests that hipri applies to"),
    option("cmdprio_percentage", EachCount(0, 100, |d, v| values::update(&mut d.command_priority.percent, narrow(v, |n| n as u8))), "0", "Percent of the requests that have a priority of their own"),
    option("cmdprio_class", EachCount(1, 3, |d, v| values::update(&mut d.command_priority.class, narrow(v, |n| n as u8))), "1", "I/O priority class of these requests: 1 real time, 2 best effort, 3 idle"),
    option("cmdprio", EachCount(0, 7, |d, v| values::update(&mut d.command_priority.level, narrow(v, |n| n as u8))), "0", "I/O priority of these requests; 0 is the highest"),
    option("cmdprio_hint", EachCount(0, 1023, |d, v| values::update(&mut d.command_priority.hint, narrow(v, |n| n as u16))), "0", "Hint in the I/O priority of these requests (Linux 6.5)"),
    option("cmdprio_bssplit", Custom("size/percent[/class/level[/hint]]:...[,...]: reads, writes", &[], |d, r, v| values::priority_split(r, v).map(|split| d.command_priority.split = Some(split))), "", "Percent of the requests of a size that have a priority of their own, with that priority"),
    option("stat_type", Word(&[("stat", "stat(2)"), ("lstat", "lstat(2)"), ("statx", "statx(2)")], |d, v| d.other("stat_type", v)), "stat", "System call that looks at a name"),
    option("volume", Text(|d, v| d.other("volume", v)), "", "Gluster volume (instead of filename=gluster://HOST/VOLUME/PATH)"),
    option("brick", Text(|d, v| d.other("brick", v)), "", "Gluster server: HOST[:PORT]"),
    option("single-instance", Bool(|d, v| d.other("single-instance", if v { "1" } else { "0" })), "0", "Share one connection to the volume"),
    option("subnqn", Text(|d, v| d.other("subnqn", v)), "", "NQN of the NVMe subsystem"),
    option("hostnqn", Text(|d, v| d.other("hostnqn", v)), "", "NQN of this host, which the target sees"),
    option("hostid", Text(|d, v| d.other("hostid", v)), "", "UUID of this host, which the target sees"),
    option("dhchap_key", Text(|d, v| d.other("dhchap_key", v)), "", "File with the key that proves this host to the subsystem (DH-HMAC-CHAP)"),
    option("dhchap_ctrlr_key", Text(|d, v| d.other("dhchap_ctrlr_key", v)), "", "File with the key that the subsystem must prove to know"),
    option("tls_key", Text(|d, v| d.other("tls_key", v)), "", "File with the key that secures the connections by TLS 1.3 (NVMeTLSkey-1:...)"),
    option("concat", Bool(|d, v| d.other("concat", if v { "1" } else { "0" })), "0", "Secure the connections by TLS 1.3 with a key that the authentication with dhchap_key makes"),
    option("digest_enable", Text(|d, v| d.other("digest_enable", v)), "NONE", "Digests in the connection: NONE, HEADER, DATA or BOTH"),
    option("nr_io_queues", Count(1, 1024, |d, v| d.other("nr_io_queues", &v.to_string())), "one for each 128 of iodepth", "Number of I/O queues; each is a connection"),
    option("poll", Word(&[("always", "always: the engine takes a whole processor"), ("adaptive", "while that costs less than a sleep"), ("never", "never")], |d, v| d.other("poll", v)), "never; nvme_tcp, nvme_rdma, guasi: adaptive", "Look for completions again and again instead of sleeping"),
    option("discard_payload", Bool(|d, v| d.other("discard_payload", if v { "1" } else { "0" })), "0", "Throw the data of reads away in the kernel, without copying them: for measuring a target"),
    option("keep_alive_tmo", Count(0, 3600, |d, v| d.other("keep_alive_tmo", &v.to_string())), "15", "Seconds of silence after which the target may drop the host; 0 means never"),
    option("ctrl_loss_tmo", Count(0, U32, |d, v| d.other("ctrl_loss_tmo", &v.to_string())), "30", "Seconds that the host tries to reach a lost target before requests fail"),
    option("reconnect_delay", Count(0, 3600, |d, v| d.other("reconnect_delay", &v.to_string())), "1", "Seconds from one attempt to reach a lost target to the next"),
    option("io_timeout", Count(0, 86400, |d, v| d.other("io_timeout", &v.to_string())), "30", "Seconds after which a command without an answer is aborted, and then its connections are; 0 means never"),
    option("hostname", Text(|d, v| d.other("hostname", v)), "", "Address of the target, or of the side that listens"),
    option("port", Count(1, 65535, |d, v| d.other("port", &v.to_string())), "", "Port of the target, or of the side that listens; each clone adds its number"),
    option("protocol", Word(PROTOCOL_WORDS, |d, v| d.other("protocol", v)), "tcp", "Protocol of the socket").aliases(&["proto"]),
    option("listen", Flag(|d, v| d.other("listen", if v { "1" } else { "0" })), "0", "Wait for the connection of the other side (tcp, tcpv6, vsock); datagrams and unix sockets: the side that reads listens"),
    option("nodelay", Bool(|d, v| d.other("nodelay", if v { "1" } else { "0" })), "0", "Send small segments at once (TCP_NODELAY)"),
    option("pingpong", Flag(|d, v| d.other("pingpong", if v { "1" } else { "0" })), "0", "Send every block back: a request ends when the answer is there"),
    option("window_size", Bytes(0, |d, v| d.other("window_size", &v.to_string())), "0", "Size of the socket's buffer; 0 leaves the kernel's"),
    option("mss", Bytes(0, |d, v| d.other("mss", &v.to_string())), "0", "Largest TCP segment; 0 leaves the kernel's"),
    option("interface", Text(|d, v| d.other("interface", v)), "", "Address of the network interface for multicast"),
    option("ttl", Count(0, 255, |d, v| d.other("ttl", &v.to_string())), "1", "Number of routers that a multicast datagram may pass"),
    option("cpuload", Count(0, 100_000, |d, v| d.cpu.load_percent = Some(v.min(100) as u32)), "", "Percent of the time that the clone burns a processor"),
    option("cpumode", Word(&[("noop", "an empty loop"), ("qsort", "sorting of an array, which takes as long as it takes")], |d, v| d.other("cpumode", v)), "noop", "Kind of the load on the processor"),
    option("cpuchunks", Time(Microseconds, |d, v| d.cpu.chunk_ns = v), "50000", "Length of one piece of load"),
    option("exit_on_io_done", Bool(|d, v| d.job.time.ends_with_io = v), "0", "End when the jobs that transfer data have ended"),
    option("program", Text(|d, v| d.other("program", v)), "", "Program to run"),
    option("arguments", Text(|d, v| d.other("arguments", v)), "", "Arguments of the program, separated by spaces; %r stands for the runtime in seconds, %n for the job's name"),
    option("grace_time", Time(Seconds, |d, v| d.other("grace_time", &v.to_string())), "1", "Time between SIGTERM and SIGKILL for a program that runs longer than the job"),
    option("std_redirect", Bool(|d, v| d.other("std_redirect", if v { "1" } else { "0" })), "1", "Write the program's output to JOB.stdout and JOB.stderr"),
    option("cmd_type", Word(&[("nvme", "NVMe commands")], |d, v| d.other("cmd_type", v)), "nvme", "Kind of the commands"),
    option("readfua", Bool(|d, v| d.other("readfua", if v { "1" } else { "0" })), "0", "Force unit access for reads: the data come from the medium"),
    option("writefua", Bool(|d, v| d.other("writefua", if v { "1" } else { "0" })), "0", "Force unit access for writes: the data are on the medium when a write ends"),
    option("sg_write_mode", Word(SCSI_WRITES, |d, v| d.other("sg_write_mode", v)), "write", "SCSI command that carries out writes"),
    option("write_mode", Word(NVME_WRITES, |d, v| d.other("write_mode", v)), "write", "NVMe command that carries out writes"),
    option("deac", Bool(|d, v| d.other("deac", if v { "1" } else { "0" })), "0", "Let Write Zeroes deallocate the blocks"),
];

static SCSI_WRITES: &[(&str, &str)] = &[
    ("write", "WRITE"),
    ("write_and_verify", "WRITE AND VERIFY"),
    ("verify", "the old name of write_and_verify"),
    ("write_same", "WRITE SAME: the first block of the data goes into each block"),
    ("same", "the old name of write_same"),
    ("write_same_ndob", "WRITE SAME (16) without data: zeros go into each block"),
    ("verify_bytchk_00", "VERIFY: the device reads the blocks"),
    ("verify_bytchk_01", "VERIFY: the device compares the blocks with the data"),
    ("verify_bytchk_11", "VERIFY: the device compares each block with the first block of the data"),
];

static NVME_WRITES: &[(&str, &str)] = &[
    ("write", "Write"),
    ("uncor", "Write Uncorrectable: reads of the blocks fail from then on"),
    ("zeroes", "Write Zeroes"),
    ("verify", "Verify: the drive reads the blocks, and nothing is written"),
];

const NO_METADATA: &str = "Plimsoll transfers no metadata and makes no protection information: format the namespace without them";
const NO_PLACEMENT: &str = "Plimsoll gives the drive no hints about the placement of data: leave it out";
const NO_CGROUP: &str = "start the run in a control group: systemd-run --scope -p IOWeight=";

static OTHER: &[OptionSpec] = &[
    refused("num_range", "1", "Ranges of one trim", "the engines that are here take one range a trim, as in fio: use more trims"),
    refused("fdp", "0", "Use flexible data placement", NO_PLACEMENT),
    refused("fdp_pli", "", "Placement identifiers of flexible data placement", NO_PLACEMENT),
    refused("fdp_pli_select", "", "Choice of the placement identifier", NO_PLACEMENT),
    refused("dataplacement", "none", "Kind of data placement", NO_PLACEMENT),
    refused("plids", "", "Placement identifiers", NO_PLACEMENT),
    refused("plid_select", "", "Choice of the placement identifier", NO_PLACEMENT),
    refused("dp_scheme", "", "File with the placement identifiers", NO_PLACEMENT),
    refused("verify_mode", "read", "NVMe command that verification uses", "Plimsoll reads the blocks and compares them itself"),
    refused("md_per_io_size", "0", "Bytes of metadata of each request", NO_METADATA),
    refused("pi_act", "1", "Let the drive make the protection information", NO_METADATA),
    refused("pi_chk", "", "Checks of the protection information", NO_METADATA),
    refused("apptag", "0x1234", "Application tag of the protection information", NO_METADATA),
    refused("apptag_mask", "0xffff", "Mask of the application tag", NO_METADATA),
    refused("ioscheduler", "", "I/O scheduler of the device", "write its name to /sys/block/DEVICE/queue/scheduler before the run"),
    refused("profile", "", "Profile that fio has built in", "describe the load in a job file"),
    refused("cgroup", "", "Control group of the job", NO_CGROUP),
    refused("cgroup_nodelete", "0", "Keep the control group after the run", NO_CGROUP),
    refused("cgroup_weight", "", "Weight of the control group", NO_CGROUP),
    option("flow_id", Count(0, U32, |d, v| d.flow.id = v as u32), "0", "Flow to which the job belongs"),
    option("flow", Count(0, 1000, |d, v| d.flow.weight = v as u32), "0", "Weight of each clone of the job in its flow; with 0 the job belongs to no flow"),
    option("flow_watermark", Opaque, "1024", "Largest difference between jobs of a flow").no_effect("fio has removed it"),
    option("flow_sleep", Time(Microseconds, |d, v| d.flow.sleep_ns = v), "0", "Pause of a clone that is ahead of its share"),
    refused("rwmixcycle", "", "Number of requests before the direction may change", "fio has removed it"),
    refused("percentage_sequential", "", "Percent of the requests that are sequential, in a random job", "fio has removed it; use percentage_random"),
    // Options of engines that are not here: a job that uses them names such an engine, which is the error it gets
    // first; without one, this is better than "unknown option".
    refused("donorname", "", "File to exchange blocks with", NO_ENGINE),
    refused("inplace", "", "Way to allocate the donor file", NO_ENGINE),
    refused("skip_bad", "0", "Skip bad blocks", NO_ENGINE),
    refused("uri", "", "Address of the export", NO_ENGINE),
    refused("clustername", "", "Ceph cluster", NO_ENGINE),
    refused("rbdname", "", "Name of the RBD image", NO_ENGINE),
    refused("pool", "", "Name of the storage pool", NO_ENGINE),
    refused("clientname", "", "Ceph user", NO_ENGINE),
    refused("conf", "", "Ceph configuration", NO_ENGINE),
    refused("busy_poll", "0", "Poll for completions without sleeping", NO_ENGINE),
    refused("touch_objects", "1", "Create the objects before the run", NO_ENGINE),
    refused("bindname", "", "Local address", NO_ENGINE),
    refused("verb", "", "RDMA operation", NO_ENGINE),
    refused("stream_id", "", "SCSI stream of the writes", "Plimsoll does not have the command WRITE STREAM"),
    refused("https", "off", "Use TLS", NO_ENGINE),
    refused("http_host", "", "Name of the server", NO_ENGINE),
    refused("http_user", "", "Name of the user", NO_ENGINE),
    refused("http_pass", "", "Password of the user", NO_ENGINE),
    refused("http_s3_key", "", "S3 key", NO_ENGINE),
    refused("http_s3_keyid", "", "Name of the S3 key", NO_ENGINE),
    refused("http_s3_region", "", "S3 region", NO_ENGINE),
    refused("http_s3_sse_customer_key", "", "S3 encryption key", NO_ENGINE),
    refused("http_s3_sse_customer_algorithm", "", "S3 encryption algorithm", NO_ENGINE),
    refused("http_s3_storage_class", "", "S3 storage class", NO_ENGINE),
    refused("http_swift_auth_token", "", "Swift token", NO_ENGINE),
    refused("http_mode", "webdav", "Protocol of the server", NO_ENGINE),
    refused("http_verbose", "0", "Amount of debug output", NO_ENGINE),
    refused("nfs_url", "", "Address of the export", NO_ENGINE),
    refused("namenode", "", "HDFS name node", NO_ENGINE),
    refused("hdfsdirectory", "", "HDFS directory", NO_ENGINE),
    refused("hdfs_use_direct", "0", "HDFS short circuit reads", NO_ENGINE),
    refused("single_instance", "1", "Use one connection for all clones", NO_ENGINE),
    refused("chunk_size", "", "Size of a chunk", NO_ENGINE),
    refused("cont", "", "DAOS container", NO_ENGINE),
    refused("object_class", "", "DAOS object class", NO_ENGINE),
    refused("svcl", "", "DAOS service ranks", NO_ENGINE),
    refused("initiator", "", "iSCSI initiator", NO_ENGINE),
    refused("serverip", "", "Address of the server", NO_ENGINE),
    refused("direct_write_to_pmem", "0", "Write to persistent memory", NO_ENGINE),
    refused("busy_wait_polling", "0", "Poll for completions without sleeping", NO_ENGINE),
    refused("gpu_dev_ids", "", "GPUs of the clones", NO_ENGINE),
    refused("cuda_io", "", "Way to move data to GPU memory", NO_ENGINE),
    refused("xnvme_be", "", "xNVMe backend", NO_ENGINE),
    refused("xnvme_async", "", "Asynchronous interface of xNVMe", NO_ENGINE),
    refused("xnvme_sync", "", "Synchronous interface of xNVMe", NO_ENGINE),
    refused("xnvme_admin", "", "Admin interface of xNVMe", NO_ENGINE),
    refused("xnvme_dev_nsid", "", "NVMe namespace identifier", NO_ENGINE),
    refused("xnvme_iovec", "", "Use vectored requests", NO_ENGINE),
    refused("no_completion_thread", "0", "Take completions in the thread that submits", NO_ENGINE),
];

const NO_ENGINE: &str = "Plimsoll does not have the engine of this option";

//! fio's defaults: the job that an empty section describes.

use measure::{Direction, PerDirection};

use crate::job::*;

/// fio's `percentile_list`.
pub const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// fio's `randseed`.
pub const SEED: u64 = 0x89;

fn each<T: Clone>(value: T) -> PerDirection<T> {
    PerDirection::from_fn(|_| value.clone())
}

impl Default for Job {
    /// A job without any options, as in fio: sequential 4 KiB buffered reads through psync at depth 1.
    fn default() -> Job {
        Job {
            name: String::new(),
            description: None,
            options: Vec::new(),
            engine: "psync".into(),
            rw: Rw {
                directions: PerDirection::from_fn(|direction| direction == Direction::Read),
                random: false,
                trim_then_write: false,
                sequential_stride: 0,
                ops_per_offset: 1,
            },
            blocks: Blocks {
                range: each((4096, 4096)),
                split: each(Vec::new()),
                align: each(4096),
                unaligned: false,
                is_seq_rand: false,
            },
            extent: Extent {
                size: None,
                io_size: None,
                file_size: None,
                fill: false,
                offset: Amount::Bytes(0),
                offset_align: 0,
                offset_increment: Amount::Bytes(0),
                number_ios: None,
                strided: None,
            },
            files: Files {
                names: Vec::new(),
                directories: Vec::new(),
                format: "$jobname.$jobnum.$filenum".into(),
                unique: true,
                opendir: None,
                count: 1,
                open: None,
                service: FileService::RoundRobin,
                service_ops: 1,
                fallocate: Fallocate::Native,
                fadvise: Fadvise::Workload,
                create_on_open: false,
                create_only: false,
                create_fsync: true,
                allow_create: true,
                unlink: false,
                unlink_each_loop: false,
                append: false,
                overwrite: false,
                invalidate: true,
                pre_read: false,
                direct: false,
                sync: OpenSync::None,
                lock: FileLock::None,
            },
            queue: Queue {
                depth: 1,
                batch: 1,
                batch_complete_min: 1,
                batch_complete_max: u32::MAX,
                low: 1,
                offload: false,
                serialize_overlap: false,
            },
            pattern: Pattern {
                mix_read: 50,
                identical: false,
                seed: SEED,
                repeatable: true,
                seed_drawn: false,
                no_random_map: false,
                soft_random_map: false,
                generator: Generator::Mapped,
                distribution: each(Distribution::Uniform),
                zones: each(Vec::new()),
                zones_absolute: each(Vec::new()),
                sequence: Vec::new(),
                sequence_stride: false,
                precondition: None,
                percent_random: each(100),
            },
            rate: Rate {
                bytes: each(None),
                iops: each(None),
                min_bytes: each(None),
                min_iops: each(None),
                poisson: false,
                cycle_ns: 1_000_000_000,
                busy_percent: None,
                ignore_think_time: false,
                think_ns: 0,
                think_spin_ns: 0,
                think_blocks: 1,
                think_on_issue: false,
                think_io_time_ns: 0,
                pace: None,
                latency_target: None,
                flow: None,
            },
            time: Time {
                runtime_ns: None,
                time_based: false,
                ramp_ns: 0,
                start_delay_ns: (0, 0),
                loops: 1,
                stonewall: false,
                wait_for: None,
                new_group: false,
                exit_all: false,
                exit_what: ExitWhat::Group,
                exit_all_on_error: false,
                ends_with_io: false,
                steady_state: None,
            },
            process: Process {
                clones: 1,
                thread: false,
                group_reporting: false,
                cpus: Vec::new(),
                cpus_split: false,
                numa_cpu_nodes: Vec::new(),
                memory_policy: MemoryPolicy::Default,
                nice: 0,
                io_priority: None,
                request_priorities: each(Vec::new()),
                before: None,
                after: None,
            },
            buffers: Buffers {
                memory: MemoryKind::Anonymous,
                align: 0,
                zero: false,
                refill: false,
                scramble: true,
                pattern: Vec::new(),
                compress_percent: 0,
                compress_chunk: 512,
                dedupe_percent: 0,
                working_set: None,
            },
            syncs: Syncs::default(),
            verify: None,
            iolog: Iolog { time_scale_percent: 100, scale: 1, ..Iolog::default() },
            errors: Errors::default(),
            reporting: Reporting {
                slat_percentiles: false,
                clat_percentiles: true,
                lat_percentiles: false,
                percentiles: PERCENTILES.to_vec(),
                disable_lat: false,
                disable_clat: false,
                disable_slat: false,
                gtod_reduce: false,
                clock: ClockSource::Auto,
                unified: Unified::None,
                bw_interval_ns: 500_000_000,
                logs: Logs { per_job: true, ..Logs::default() },
                kb_base: 1024,
                unit_base: 0,
                stats: true,
                disk_util: true,
            },
            ring: Ring::default(),
            allow: Allow::default(),
        }
    }
}

impl Default for Verify {
    /// The state right after `verify=` is given, before its companions: nothing is checked yet ([`VerifyKind::Null`]).
    fn default() -> Verify {
        Verify {
            kind: VerifyKind::Null,
            enabled: true,
            fatal: false,
            dump: false,
            pattern: VerifyPattern::default(),
            backlog: 0,
            backlog_batch: 0,
            interval: 0,
            pattern_interval: 0,
            header_offset: 0,
            only: false,
            sorted: true,
            write_sequence: true,
            compares: true,
            trims: VerifyTrims { must_be_zero: true, ..VerifyTrims::default() },
            header_seed: true,
            regenerate: false,
            saves_state: false,
            loads_state: false,
            policy: VerifyPolicy::Completed,
            state_directory: None,
        }
    }
}

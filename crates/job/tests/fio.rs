//! The op stream and the I/O logs against the real fio, through its null engine: no I/O is done.
//!
//! Where fio's sequence is deterministic, Plimsoll's is the same, op by op. Needs `fio` (Debian: `apt-get install
//! fio`).

use std::fs;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use job::Job;
use job::iolog::{Replay, Step, Writer};
use job::job::{Amount, FileService, Rw, Zones};
use job::workload::{FileExtent, Op, OpKind, Workload};
use measure::{Direction, PerDirection};

mod common;

const READ: PerDirection<bool> = PerDirection { read: true, write: false, trim: false };
const WRITE: PerDirection<bool> = PerDirection { read: false, write: true, trim: false };
const TRIM_WRITE: PerDirection<bool> = PerDirection { read: false, write: true, trim: true };

/// A directory of the test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("job-fio-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fio(directory: &Path, arguments: &[&str]) {
    let output = Command::new("fio")
        .current_dir(directory)
        .args(["--output=fio.out", "--ioengine=null", "--name=j"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "fio {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stderr),
        fs::read_to_string(directory.join("fio.out")).unwrap_or_default()
    );
}

/// The ops of a log. Of syncs only file and kind: fio logs where the last transfer was.
fn ops_of(log: &Path) -> Vec<Op> {
    let text = BufReader::new(fs::File::open(log).unwrap());
    let mut replay = Replay::new(text, log.display().to_string(), &Job::default().iolog).unwrap();
    let mut ops = Vec::new();
    while let Some(step) = replay.next_step().unwrap() {
        if let Step::Op { op, .. } = step {
            ops.push(if matches!(op.kind, OpKind::Io(_)) { op } else { Op { offset: 0, len: 0, ..op } });
        }
    }
    ops
}

fn fio_ops(name: &str, arguments: &str) -> Vec<Op> {
    let scratch = Scratch::new(name);
    let mut all: Vec<&str> = vec!["--write_iolog=log", "--bs=4k"];
    all.extend(arguments.split_whitespace());
    fio(&scratch.0, &all);
    ops_of(&scratch.0.join("log"))
}

fn our_ops(job: &Job, files: &[FileExtent]) -> Vec<Op> {
    let mut workload = Workload::new(job, 0, files).unwrap();
    let mut ops = Vec::new();
    for pass in 0..job.time.loops {
        if pass > 0 {
            workload.restart();
        }
        ops.extend(std::iter::from_fn(|| workload.next()));
    }
    ops
}

/// One case: the arguments of fio, the options of Plimsoll's job, and the files in KiB: (offset, size).
struct Case {
    fio: &'static str,
    job: fn(&mut Job),
    files: &'static [(u64, u64)],
}

fn job(case: &Case) -> (Job, Vec<FileExtent>) {
    let mut job = Job { name: "j".into(), ..Job::default() };
    (case.job)(&mut job);
    (job, case.files.iter().map(|&(offset, size)| FileExtent { offset: offset << 10, size: size << 10 }).collect())
}

fn sequential(job: &mut Job, directions: PerDirection<bool>) {
    job.rw = Rw { directions, ..job.rw };
}

fn random(job: &mut Job, directions: PerDirection<bool>) {
    job.rw = Rw { directions, random: true, ..job.rw };
}

const DETERMINISTIC: &[Case] = &[
    Case { fio: "--rw=read --size=16k", job: |_| {}, files: &[(0, 16)] },
    Case { fio: "--rw=read --size=16k --offset=8k", job: |_| {}, files: &[(8, 16)] },
    Case { fio: "--rw=read --size=10k", job: |_| {}, files: &[(0, 10)] },
    Case { fio: "--rw=read --size=16k --loops=3", job: |job| job.time.loops = 3, files: &[(0, 16)] },
    Case {
        fio: "--rw=write --bs=4k,8k --size=48k",
        job: |job| {
            sequential(job, WRITE);
            job.blocks.range.write = (8192, 8192)
        },
        files: &[(0, 48)],
    },
    // Holes and going backwards.
    Case { fio: "--rw=read:8k --size=64k", job: |job| job.rw.sequential_stride = 8192, files: &[(0, 64)] },
    Case { fio: "--rw=read:4k --size=60k", job: |job| job.rw.sequential_stride = 4096, files: &[(0, 60)] },
    Case { fio: "--rw=read:12k --size=44k", job: |job| job.rw.sequential_stride = 12288, files: &[(0, 44)] },
    Case { fio: "--rw=read:-8k --size=32k", job: |job| job.rw.sequential_stride = -8192, files: &[(0, 32)] },
    Case { fio: "--rw=read:-16k --size=64k", job: |job| job.rw.sequential_stride = -16384, files: &[(0, 64)] },
    // More and less than the file.
    Case {
        fio: "--rw=read --size=16k --io_size=40k",
        job: |job| job.extent.io_size = Some(Amount::Bytes(40 << 10)),
        files: &[(0, 16)],
    },
    Case {
        fio: "--rw=read --size=16k --io_size=8k --loops=2",
        job: |job| {
            job.extent.io_size = Some(Amount::Bytes(8 << 10));
            job.time.loops = 2
        },
        files: &[(0, 16)],
    },
    Case {
        fio: "--rw=read --size=16k --number_ios=2 --loops=2",
        job: |job| {
            job.extent.number_ios = Some(2);
            job.time.loops = 2
        },
        files: &[(0, 16)],
    },
    Case { fio: "--rw=read --size=16k --number_ios=3", job: |job| job.extent.number_ios = Some(3), files: &[(0, 16)] },
    // Zones.
    Case {
        fio: "--rw=read --size=64k --zonemode=strided --zonesize=8k --zonerange=16k --zoneskip=4k",
        job: |job| job.extent.strided = Some(Zones { size: 8 << 10, range: 16 << 10, skip: 4 << 10 }),
        files: &[(0, 64)],
    },
    Case {
        fio: "--rw=read --size=64k --zonemode=strided --zonesize=16k --zonerange=8k",
        job: |job| job.extent.strided = Some(Zones { size: 16 << 10, range: 8 << 10, skip: 0 }),
        files: &[(0, 64)],
    },
    Case {
        fio: "--rw=write --size=64k --zonemode=strided --zonesize=16k --zonerange=16k --zoneskip=16k",
        job: |job| {
            sequential(job, WRITE);
            job.extent.strided = Some(Zones { size: 16 << 10, range: 16 << 10, skip: 16 << 10 })
        },
        files: &[(0, 64)],
    },
    // Trims.
    Case {
        fio: "--rw=trim --size=16k",
        job: |job| sequential(job, PerDirection { read: false, write: false, trim: true }),
        files: &[(0, 16)],
    },
    Case {
        fio: "--rw=trimwrite --size=16k",
        job: |job| {
            sequential(job, TRIM_WRITE);
            job.rw.trim_then_write = true
        },
        files: &[(0, 16)],
    },
    // Syncs.
    Case {
        fio: "--rw=write --size=16k --fsync=1",
        job: |job| {
            sequential(job, WRITE);
            job.syncs.fsync = 1
        },
        files: &[(0, 16)],
    },
    Case {
        fio: "--rw=write --size=40k --fsync=3",
        job: |job| {
            sequential(job, WRITE);
            job.syncs.fsync = 3
        },
        files: &[(0, 40)],
    },
    Case {
        fio: "--rw=write --size=40k --fdatasync=2",
        job: |job| {
            sequential(job, WRITE);
            job.syncs.fdatasync = 2
        },
        files: &[(0, 40)],
    },
    Case {
        fio: "--rw=write --size=48k --fsync=2 --fdatasync=3",
        job: |job| {
            sequential(job, WRITE);
            job.syncs.fsync = 2;
            job.syncs.fdatasync = 3
        },
        files: &[(0, 48)],
    },
    // (With loops, fio syncs once more between two passes, though nothing was written since: not copied.)
    // Several files.
    Case { fio: "--rw=read --size=48k --nrfiles=3", job: |_| {}, files: &[(0, 16), (0, 16), (0, 16)] },
    Case {
        fio: "--rw=read --size=60k --nrfiles=3 --file_service_type=roundrobin:2",
        job: |job| job.files.service_ops = 2,
        files: &[(0, 20), (0, 20), (0, 20)],
    },
    Case {
        fio: "--rw=read --size=48k --nrfiles=3 --file_service_type=sequential",
        job: |job| job.files.service = FileService::Sequential,
        files: &[(0, 16), (0, 16), (0, 16)],
    },
    Case {
        fio: "--rw=read --size=32k --nrfiles=2 --loops=2",
        job: |job| job.time.loops = 2,
        files: &[(0, 16), (0, 16)],
    },
    Case {
        fio: "--rw=read --size=64k --nrfiles=4 --openfiles=2 --file_service_type=sequential",
        job: |job| {
            job.files.open = Some(2);
            job.files.service = FileService::Sequential
        },
        files: &[(0, 16), (0, 16), (0, 16), (0, 16)],
    },
];

#[test]
fn deterministic_streams_are_those_of_fio() {
    if common::fio().is_none() {
        return;
    }
    for case in DETERMINISTIC {
        let (job, files) = job(case);
        assert_eq!(our_ops(&job, &files), fio_ops("same", case.fio), "fio {}", case.fio);
    }
}

/// Random streams: the same ops in another order. Both cover every block once a pass.
#[test]
fn random_streams_do_the_same_ops_as_fio() {
    if common::fio().is_none() {
        return;
    }
    let cases = [
        Case { fio: "--rw=randread --size=1m", job: |job| random(job, READ), files: &[(0, 1024)] },
        Case {
            fio: "--rw=randread --size=1m --offset=2m --loops=2",
            job: |job| {
                random(job, READ);
                job.time.loops = 2
            },
            files: &[(2048, 1024)],
        },
        Case { fio: "--rw=randwrite --size=1026k", job: |job| random(job, WRITE), files: &[(0, 1026)] },
        Case {
            fio: "--rw=randread --size=1m --random_generator=lfsr",
            job: |job| {
                random(job, READ);
                job.pattern.generator = job::job::Generator::Permutation
            },
            files: &[(0, 1024)],
        },
        Case {
            fio: "--rw=randwrite --size=256k --nrfiles=2 --file_service_type=random",
            job: |job| {
                random(job, WRITE);
                job.files.service = FileService::Random
            },
            files: &[(0, 128), (0, 128)],
        },
        Case {
            fio: "--rw=randread --size=64k --io_size=192k",
            job: |job| {
                random(job, READ);
                job.extent.io_size = Some(Amount::Bytes(192 << 10))
            },
            files: &[(0, 64)],
        },
    ];
    for case in &cases {
        let (job, files) = job(case);
        let (mut ours, mut theirs) = (our_ops(&job, &files), fio_ops("random", case.fio));
        assert_ne!(
            ours,
            {
                let mut sorted = ours.clone();
                sorted.sort_by_key(|op| (op.file, op.offset));
                sorted
            },
            "in order: fio {}",
            case.fio
        );
        for ops in [&mut ours, &mut theirs] {
            ops.sort_by_key(|op| (op.file, op.offset));
        }
        assert_eq!(ours, theirs, "fio {}", case.fio);
    }
}

/// The counts add up although the lengths are random: as many ops without a map as with one, every trim followed by its
/// write.
#[test]
fn counts_are_those_of_fio() {
    if common::fio().is_none() {
        return;
    }
    let case = Case {
        fio: "--rw=randread --size=1m --norandommap",
        job: |job| {
            random(job, READ);
            job.pattern.no_random_map = true
        },
        files: &[(0, 1024)],
    };
    let (job_, files) = job(&case);
    assert_eq!(our_ops(&job_, &files).len(), fio_ops("count", case.fio).len());

    let case = Case {
        fio: "--rw=randtrimwrite --size=256k",
        job: |job| {
            random(job, TRIM_WRITE);
            job.rw.trim_then_write = true
        },
        files: &[(0, 256)],
    };
    let (job_, files) = job(&case);
    for ops in [our_ops(&job_, &files), fio_ops("count", case.fio)] {
        assert_eq!(ops.len(), 128);
        for pair in ops.chunks(2) {
            assert_eq!([pair[0].kind, pair[1].kind], [OpKind::Io(Direction::Trim), OpKind::Io(Direction::Write)]);
            assert_eq!((pair[0].offset, pair[0].len), (pair[1].offset, pair[1].len));
        }
    }
}

/// fio replays Plimsoll's log, and queues the same ops. (fio writes trims into logs but does not read them from logs.)
#[test]
fn fio_replays_our_log() {
    if common::fio().is_none() {
        return;
    }
    let scratch = Scratch::new("replay");
    let names = ["first", "second"].map(|name| scratch.0.join(name).display().to_string());
    for name in &names {
        fs::File::create(name).unwrap().set_len(1 << 20).unwrap();
    }
    let io = |direction, file, offset, len| Op { kind: OpKind::Io(direction), file, offset, len };
    let ops = [
        io(Direction::Write, 0, 0, 4096),
        io(Direction::Read, 1, 65536, 8192),
        Op { kind: OpKind::Sync, file: 0, offset: 0, len: 0 },
        io(Direction::Write, 0, 4096, 512),
        Op { kind: OpKind::DataSync, file: 0, offset: 0, len: 0 },
        io(Direction::Read, 0, 1_000_000, 1000),
    ];
    let mut writer = Writer::new(Vec::new(), &names).unwrap();
    for file in 0..2 {
        writer.opened(1000, file, true).unwrap();
    }
    for (index, op) in ops.iter().enumerate() {
        writer.op(10_000 * (index as u64 + 1), op).unwrap();
    }
    for file in 0..2 {
        writer.opened(100_000, file, false).unwrap();
    }
    fs::File::create(scratch.0.join("ours")).unwrap().write_all(&writer.finish().unwrap()).unwrap();
    let output = Command::new("fio")
        .current_dir(&scratch.0)
        .args(["--name=j", "--ioengine=null", "--read_iolog=ours", "--debug=io"])
        .output()
        .unwrap();
    assert!(output.status.success());
    // ... queue: io_u 0x55ac7fc7100: off=0x1000,len=0x1000,ddir=1,file=/tmp/first
    let number = |line: &str, key: &str| {
        let value = line.split_once(key).unwrap().1;
        u64::from_str_radix(value.split(',').next().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    let queued: Vec<Op> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.contains(" queue: "))
        .map(|line| Op {
            kind: [
                OpKind::Io(Direction::Read),
                OpKind::Io(Direction::Write),
                OpKind::Io(Direction::Trim),
                OpKind::Sync,
                OpKind::DataSync,
            ][number(line, "ddir=") as usize],
            file: u32::from(line.ends_with("/second")),
            offset: number(line, "off="),
            len: number(line, "len="),
        })
        .collect();
    assert_eq!(queued, ops);
}

//! The whole stream: coverage against a set, mixes against their distributions, and sequences that must never change.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::job::{Amount, Distribution, FileService, Generator, Precondition, Rw, Verify, Zones};
use measure::PerDirection;

const KIB: u64 = 1024;

fn job(edit: impl FnOnce(&mut Job)) -> Job {
    let mut job = Job { name: "test".into(), ..Job::default() };
    job.rw = Rw { random: true, ..job.rw };
    edit(&mut job);
    job
}

fn mixed(edit: impl FnOnce(&mut Job)) -> Job {
    job(|job| {
        job.rw.directions = PerDirection { read: true, write: true, trim: false };
        edit(job);
    })
}

fn extents(sizes: &[u64]) -> Vec<FileExtent> {
    sizes.iter().map(|&size| FileExtent { offset: 4096, size }).collect()
}

fn pass(workload: &mut Workload) -> Vec<Op> {
    std::iter::from_fn(|| workload.next()).collect()
}

fn ops(job: &Job, sizes: &[u64]) -> Vec<Op> {
    pass(&mut Workload::new(job, 0, &extents(sizes)).unwrap())
}

/// True if `count` of `draws` is within four standard deviations of a binomial distribution.
fn close(count: usize, share: f64, draws: usize) -> bool {
    let (count, draws) = (count as f64, draws as f64);
    (count - share * draws).abs() <= 4.0 * (draws * share * (1.0 - share)).sqrt() + 1.0
}

/// Each byte once: ops sorted by place touch each other, and nothing is left out but tails shorter than a block.
fn assert_covers(ops: &[Op], sizes: &[u64], smallest: u64) {
    for (file, &size) in sizes.iter().enumerate() {
        let mut places: Vec<(u64, u64)> =
            ops.iter().filter(|op| op.file == file as u32).map(|op| (op.offset - 4096, op.len)).collect();
        places.sort_unstable();
        let mut end = 0;
        for (offset, len) in places {
            assert_eq!(offset, end, "file {file}: a gap or an overlap");
            end += len;
        }
        assert!(end <= size && size - end < smallest, "file {file}: {end} of {size}");
    }
}

/// The promise of users' scripts: the same seed gives the same ops in every version to come. A change here breaks it.
/// (Zipf, Pareto and normal distributions are left out: they use the platform's exp and ln, to the last bit.)
#[test]
fn golden_sequences() {
    let digest = |job: &Job, clone: u32| {
        let mut workload = Workload::new(job, clone, &extents(&[1024 * KIB, 512 * KIB])).unwrap();
        let mut hash = 0;
        let mut count = 0;
        while let Some(op) = workload.next() {
            let kind = match op.kind {
                OpKind::Io(direction) => direction as u64,
                OpKind::Sync => 3,
                OpKind::DataSync => 4,
                OpKind::SyncRange => 5,
            };
            for word in [kind, u64::from(op.file), op.offset, op.len] {
                hash = mix(hash ^ word);
            }
            count += 1;
        }
        (count, hash)
    };
    let first: Vec<u64> = ops(&job(|_| {}), &[64 * KIB]).iter().map(|op| op.offset / 4096 - 1).collect();
    let golden = [
        ("first offsets", (first.len(), first.iter().fold(0, |hash, offset| mix(hash ^ offset)))),
        ("random", digest(&job(|_| {}), 0)),
        ("clone 1", digest(&job(|_| {}), 1)),
        ("seed", digest(&job(|job| job.pattern.seed = 1), 0)),
        ("mixed", digest(&mixed(|_| {}), 0)),
        (
            "range",
            digest(
                &mixed(|job| {
                    job.blocks.range = PerDirection { read: (4096, 16384), write: (4096, 16384), trim: (4096, 4096) }
                }),
                0,
            ),
        ),
        ("files", digest(&job(|job| job.files.service = FileService::Random), 0)),
        ("syncs", digest(&mixed(|job| job.syncs.fsync = 5), 0)),
    ];
    let recorded = [
        ("first offsets", (16, 0x267e7020747d09e3)),
        ("random", (384, 0xe9ad5b69205adefe)),
        ("clone 1", (384, 0xc0eec742539ae70f)),
        ("seed", (384, 0x31bcfb5e32e36abf)),
        ("mixed", (384, 0x4faffd336f893402)),
        ("range", (179, 0xd07acab9c4c97959)),
        ("files", (384, 0x763f3ba3404a0731)),
        ("syncs", (421, 0x4b01bf9405921952)),
    ];
    assert_eq!(golden[..], recorded[..]);
}

#[test]
fn every_block_once_whatever_its_size() {
    let sizes = [1024 * KIB, 100 * KIB + 1000, 4096];
    let cases = [
        ("fixed", job(|_| {})),
        ("lfsr", job(|job| job.pattern.generator = Generator::Permutation)),
        (
            "lfsr is a map even without one",
            job(|job| (job.pattern.generator, job.pattern.no_random_map) = (Generator::Permutation, true)),
        ),
        ("mixed", mixed(|_| {})),
        ("range", job(|job| job.blocks.range.read = (4096, 32768))),
        (
            "split",
            job(|job| {
                (job.blocks.range.read, job.blocks.split.read) =
                    ((4096, 65536), vec![(4096, 20.0), (8192, 30.0), (65536, 50.0)])
            }),
        ),
        (
            "mixed range",
            mixed(|job| {
                job.blocks.range = PerDirection { read: (4096, 32768), write: (4096, 32768), trim: (4096, 4096) }
            }),
        ),
        ("zoned", job(|job| job.pattern.zones.read = vec![(90.0, 10.0), (10.0, 90.0)])),
        ("random files", job(|job| job.files.service = FileService::Random)),
        ("few open", job(|job| (job.files.open, job.files.service) = (Some(1), FileService::Random))),
        ("in turn", job(|job| job.files.service_ops = 7)),
    ];
    for (name, job) in cases {
        let mut workload = Workload::new(&job, 3, &extents(&sizes)).unwrap();
        let first = pass(&mut workload);
        println!("{name}: {} ops", first.len());
        assert_covers(&first, &sizes, 4096);
        assert_eq!(workload.next(), None, "a finished pass stays finished");
        workload.restart();
        assert_eq!(pass(&mut workload), first, "{name}: randrepeat is the default");
    }
}

#[test]
fn passes_differ_where_asked() {
    for edit in [(|job: &mut Job| job.pattern.repeatable = false) as fn(&mut Job), |job| job.time.time_based = true] {
        for range in [(4096, 4096), (4096, 16384)] {
            let job = job(|job| {
                edit(job);
                job.blocks.range.read = range;
            });
            let mut workload = Workload::new(&job, 0, &extents(&[256 * KIB])).unwrap();
            let first = pass(&mut workload);
            workload.restart();
            let second = pass(&mut workload);
            assert_ne!(first, second);
            assert_covers(&first, &[256 * KIB], 4096);
            assert_covers(&second, &[256 * KIB], 4096);
        }
    }
}

#[test]
fn clones_and_seeds_differ_and_repeat() {
    let stream = |clone, seed, first| {
        let job = job(|job| (job.pattern.seed, job.process.first) = (seed, first));
        pass(&mut Workload::new(&job, clone, &extents(&[256 * KIB])).unwrap())
    };
    let streams = [stream(0, 1, 0), stream(1, 1, 0), stream(0, 2, 0), stream(0, 1, 2)];
    for (i, a) in streams.iter().enumerate() {
        assert!(streams[..i].iter().all(|b| a != b));
    }
    assert_eq!(stream(1, 1, 0), streams[1]);
    assert_eq!(stream(0, 1, 1), streams[1], "the number in the plan counts, whatever the job");
}

#[test]
fn without_a_map_blocks_repeat() {
    let ops = ops(&job(|job| job.pattern.no_random_map = true), &[4096 * 4096]);
    assert_eq!(ops.len(), 4096);
    let unlike = ops.iter().map(|op| op.offset).collect::<BTreeSet<_>>().len();
    // Of n blocks drawn n times, 1 - 1/e are drawn at all.
    assert!(close(unlike, 1.0 - (-1.0f64).exp(), 4096), "{unlike}");
}

/// fio's t/t64-switch.sh counts the blocks that the generator of 32 bits draws twice, and the one of 64 bits does not.
#[test]
fn the_generator_of_32_bits_repeats_blocks_of_a_large_file() {
    let repeated = |generator| {
        let job = job(|job| {
            (job.pattern.no_random_map, job.pattern.generator, job.extent.number_ios) =
                (true, generator, Some(300_000));
            job.blocks.range.read = (512, 512);
            job.blocks.align.read = 512;
        });
        let ops = ops(&job, &[1 << 49]);
        ops.len() - ops.iter().map(|op| op.offset).collect::<BTreeSet<_>>().len()
    };
    // n draws of m places repeat about n * n / 2m times: 10.5 of 2^32, and 0.04 of 2^40.
    assert!((1..=40).contains(&repeated(Generator::Coarse)));
    assert!(repeated(Generator::Mapped) <= 2);
}

/// Blocks that repeat leave others out: passes of their own would each write, and read back, other blocks.
#[test]
fn verified_passes_without_a_map_are_alike() {
    let passes = |directions: PerDirection<bool>, verified: bool| {
        let job = job(|job| {
            (job.pattern.no_random_map, job.time.time_based, job.rw.directions) = (true, true, directions);
            job.verify = verified.then(Verify::default);
        });
        let mut workload = Workload::new(&job, 0, &extents(&[256 * KIB])).unwrap();
        // Without verification, the pass has no end.
        let ops = |workload: &mut Workload| std::iter::from_fn(|| workload.next()).take(64).collect::<Vec<Op>>();
        let offsets = |workload: &mut Workload| ops(workload).iter().map(|op| op.offset).collect::<Vec<_>>();
        let first = offsets(&mut workload);
        workload.restart();
        (first, offsets(&mut workload))
    };
    let reads = PerDirection { read: true, ..PerDirection::default() };
    let writes = PerDirection { write: true, ..PerDirection::default() };
    let (first, second) = passes(writes, true);
    assert_eq!(first, second);
    assert_eq!(passes(reads, true), (first, second), "a job that reads asks for the blocks of the one that wrote");
    let (first, second) = passes(reads, false);
    assert_ne!(first, second);
}

#[test]
fn directions_that_differ_cover_apart() {
    // bs=8k,4k: no read is shorter than 8 KiB, and neither direction repeats a block of its own.
    let ops = ops(&mixed(|job| (job.blocks.range.read, job.blocks.align.read) = ((8192, 8192), 8192)), &[1024 * KIB]);
    for (direction, len) in [(Direction::Read, 8192), (Direction::Write, 4096)] {
        let mine: Vec<&Op> = ops.iter().filter(|op| op.kind == OpKind::Io(direction)).collect();
        assert!(mine.iter().all(|op| op.len == len && (op.offset - 4096).is_multiple_of(len)));
        assert_eq!(mine.iter().map(|op| op.offset).collect::<BTreeSet<_>>().len(), mine.len());
    }
    assert!(ops.iter().map(|op| op.len).sum::<u64>().abs_diff(1024 * KIB) <= 4096);
}

#[test]
fn offsets_keep_to_their_alignment() {
    let far = ops(&job(|job| job.blocks.align.read = 16384), &[256 * KIB]);
    assert_eq!(far.iter().map(|op| op.offset).collect::<BTreeSet<_>>(), (0..16).map(|i| 4096 + i * 16384).collect());
    assert_eq!(far.len(), 16, "each place once");
    let near = ops(&job(|job| job.blocks.align.read = 512), &[256 * KIB]);
    assert_eq!(near.len(), 64);
    assert!(
        near.iter().all(|op| op.offset.is_multiple_of(512) && op.len == 4096 && op.offset + op.len <= 4096 + 256 * KIB)
    );
    assert!(near.iter().any(|op| !op.offset.is_multiple_of(4096)));
}

#[test]
fn reads_and_writes_mix_as_asked() {
    for percent in [0u8, 1, 30, 50, 70, 99, 100] {
        let ops = ops(&mixed(|job| job.pattern.mix_read = percent), &[64 * 1024 * KIB]);
        let reads = ops.iter().filter(|op| op.kind == OpKind::Io(Direction::Read)).count();
        assert!(close(reads, f64::from(percent) / 100.0, ops.len()), "{percent} %: {reads} of {}", ops.len());
    }
}

#[test]
fn sequential_directions_go_on_apart() {
    let ops = ops(&mixed(|job| job.rw.random = false), &[1024 * KIB]);
    for direction in [Direction::Read, Direction::Write] {
        let mine = ops.iter().filter(|op| op.kind == OpKind::Io(direction));
        assert!(mine.enumerate().all(|(index, op)| op.offset == 4096 + index as u64 * 4096));
    }
    assert_eq!(ops.len(), 256);
}

#[test]
fn a_wanted_direction_is_given() {
    let mut workload = Workload::new(&mixed(|_| {}), 0, &extents(&[1024 * KIB])).unwrap();
    for direction in [Direction::Write, Direction::Write, Direction::Read, Direction::Write, Direction::Read] {
        assert_eq!(workload.next_of(direction).unwrap().kind, OpKind::Io(direction));
    }
    let mut only = Workload::new(&job(|_| {}), 0, &extents(&[1024 * KIB])).unwrap();
    assert_eq!(only.next_of(Direction::Write).unwrap().kind, OpKind::Io(Direction::Read));
}

#[test]
fn part_of_the_ops_is_random() {
    let job = job(|job| (job.pattern.percent_random.read, job.pattern.no_random_map) = (30, true));
    let ops = ops(&job, &[256 * 1024 * KIB]);
    let sequential = ops.windows(2).filter(|pair| pair[1].offset == pair[0].offset + pair[0].len).count();
    assert!(close(sequential, 0.7, ops.len() - 1), "{sequential} of {}", ops.len());
}

#[test]
fn a_new_offset_every_so_many_ops() {
    let each = |identical: bool| {
        let job =
            job(|job| (job.rw.ops_per_offset, job.pattern.identical, job.pattern.no_random_map) = (8, identical, true));
        ops(&job, &[64 * 1024 * KIB])
    };
    for run in each(false).chunks(8) {
        // At the end of the file there is no next block: fio then takes a random block, and so does Plimsoll.
        let end = run.iter().position(|op| op.offset + op.len == 4096 + 64 * 1024 * KIB).unwrap_or(run.len());
        assert!(run[..end].windows(2).all(|pair| pair[1].offset == pair[0].offset + 4096), "{run:?}");
    }
    let identical = each(true);
    assert!(identical.chunks(8).all(|run| run.iter().all(|op| op.offset == run[0].offset)));
    assert!(identical.chunks(8).map(|run| run[0].offset).collect::<BTreeSet<_>>().len() > 1000);
}

/// The tail of a file, in which no block fits, ends neither the file nor the pass.
#[test]
fn a_run_of_blocks_goes_on_elsewhere_at_the_end_of_a_file() {
    let size = 1024 * KIB;
    let runs = |identical, percent, seq_rand| {
        let job = job(move |job| {
            job.rw.ops_per_offset = if percent == 100 { 8 } else { 1 };
            job.pattern.identical = identical;
            job.pattern.percent_random.read = percent;
            job.blocks.is_seq_rand = seq_rand;
            let random = if seq_rand { 4096 } else { 12 * KIB };
            job.blocks.range = PerDirection { read: (12 * KIB, 12 * KIB), write: (random, random), trim: (4096, 4096) };
        });
        for clone in 0..50 {
            let mut workload = Workload::new(&job, clone, &extents(&[size])).unwrap();
            let mut bytes = 0;
            while let Some(op) = workload.next() {
                assert!(op.offset >= 4096 && op.offset + op.len <= 4096 + size, "{op:?}");
                bytes += op.len;
            }
            assert!(bytes >= size, "clone {clone}, {identical} {percent} {seq_rand}: {bytes} of {size}");
        }
    };
    for (identical, percent) in [(false, 100), (true, 100), (false, 50)] {
        for seq_rand in [false, true] {
            runs(identical, percent, seq_rand);
        }
    }
}

#[test]
fn sizes_by_kind_of_access() {
    let job = job(|job| {
        job.blocks.is_seq_rand = true;
        job.blocks.range = PerDirection { read: (65536, 65536), write: (4096, 4096), trim: (4096, 4096) };
        job.pattern.percent_random.read = 50;
        job.pattern.no_random_map = true;
    });
    let ops = ops(&job, &[256 * 1024 * KIB]);
    let small = ops.iter().filter(|op| op.len == 4096).count();
    assert!(ops.iter().all(|op| op.len == 4096 || op.len == 65536));
    assert!(close(small, 0.5, ops.len()), "{small} of {}", ops.len());
    assert!(
        ops.windows(2).all(|pair| pair[1].len == 4096 || pair[1].offset == pair[0].offset + pair[0].len),
        "what is large is sequential"
    );
}

#[test]
fn zones_have_their_shares() {
    let check = |job: &Job, shares: &[(f64, f64)]| {
        let size = 64 * 1024 * KIB;
        let ops = ops(job, &[size]);
        let mut begin = 0.0;
        for &(share, part) in shares {
            let (from, to) = (4096.0 + begin * size as f64, 4096.0 + (begin + part) * size as f64);
            let inside = ops.iter().filter(|op| (from..to).contains(&(op.offset as f64))).count();
            assert!(close(inside, share, ops.len()), "{share}/{part}: {inside} of {}", ops.len());
            begin += part;
        }
    };
    let free = |edit: fn(&mut Job)| {
        job(|job| {
            job.pattern.no_random_map = true;
            edit(job);
        })
    };
    check(
        &free(|job| job.pattern.zones.read = vec![(60.0, 10.0), (30.0, 20.0), (8.0, 30.0), (2.0, 40.0)]),
        &[(0.6, 0.1), (0.3, 0.2), (0.08, 0.3), (0.02, 0.4)],
    );
    check(
        &free(|job| job.pattern.zones_absolute.read = vec![(60.0, 16 * 1024 * KIB), (40.0, 48 * 1024 * KIB)]),
        &[(0.6, 0.25), (0.4, 0.75)],
    );
    let beyond =
        Workload::new(&job(|job| job.pattern.zones_absolute.read = vec![(100.0, 1 << 30)]), 0, &extents(&[4096]))
            .unwrap_err();
    assert_eq!(
        beyond.to_string(),
        "job test: random_distribution=zoned_abs names 1073741824 bytes, but file 0 has only 4096"
    );
}

#[test]
fn popular_blocks_are_popular() {
    let ops = ops(&job(|job| job.pattern.distribution.read = Distribution::Zipf(1.2, None)), &[64 * 1024 * KIB]);
    let mut counts = BTreeMap::new();
    for op in &ops {
        *counts.entry(op.offset).or_insert(0usize) += 1;
    }
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let sum: f64 = (1..=16384).map(|k| f64::from(k).powf(-1.2)).sum();
    for (rank, &count) in counts.iter().enumerate().take(5) {
        let share = ((rank + 1) as f64).powf(-1.2) / sum;
        assert!(close(count, share, ops.len()), "rank {rank}: {count} of {}", ops.len());
    }
}

#[test]
fn files_are_served_by_their_rule() {
    let sizes = [1024 * KIB; 4];
    let files = |service, service_ops| -> Vec<u32> {
        let job = job(|job| (job.files.service, job.files.service_ops) = (service, service_ops));
        ops(&job, &sizes).iter().map(|op| op.file).collect()
    };
    assert_eq!(files(FileService::RoundRobin, 1)[..6], [0, 1, 2, 3, 0, 1]);
    assert_eq!(files(FileService::RoundRobin, 3)[..7], [0, 0, 0, 1, 1, 1, 2]);
    assert!(files(FileService::Sequential, 1).is_sorted());
    let random = files(FileService::Random, 1);
    assert!((0..4).all(|file| close(random[..500].iter().filter(|&&f| f == file).count(), 0.25, 500)));
    assert!(files(FileService::Random, 5)[..500].chunks(5).all(|run| run.iter().all(|&file| file == run[0])));
    let zipf = files(FileService::Distributed(Distribution::Zipf(1.0, None)), 1);
    let sum: f64 = (1..=4).map(|k| 1.0 / f64::from(k)).sum();
    for file in 0..4 {
        let count = zipf.iter().filter(|&&f| f == file).count();
        assert!(close(count, 1.0 / f64::from(file + 1) / sum, zipf.len()), "file {file}: {count} of {}", zipf.len());
    }
    // A file of another size than the rest, and no more than two at a time.
    let job = job(|job| job.files.open = Some(2));
    let ops = ops(&job, &[8 * KIB, 64 * KIB, 16 * KIB, 8 * KIB]);
    assert_covers(&ops, &[8 * KIB, 64 * KIB, 16 * KIB, 8 * KIB], 4096);
    for (index, op) in ops.iter().enumerate() {
        let unfinished = (0..4)
            .filter(|&file| {
                ops[..=index].iter().any(|op| op.file == file) && ops[index..].iter().any(|op| op.file == file)
            })
            .count();
        assert!(unfinished <= 2, "{op:?} with {unfinished} files at work");
    }
}

#[test]
fn random_zones_stay_inside() {
    let job = job(|job| job.extent.strided = Some(Zones { size: 32 * KIB, range: 64 * KIB, skip: 64 * KIB }));
    let ops = ops(&job, &[1024 * KIB]);
    for (index, zone) in ops.chunks(8).enumerate() {
        let begin = 4096 + (index as u64 % 8) * 128 * KIB;
        assert!(zone.iter().all(|op| (begin..begin + 64 * KIB).contains(&op.offset)), "{index}: {zone:?}");
        assert_eq!(zone.iter().map(|op| op.offset).collect::<BTreeSet<_>>().len(), zone.len());
    }
    assert_eq!(ops.len(), 256);
}

#[test]
fn ranges_of_file_are_synced() {
    let job = job(|job| {
        job.rw = Rw { directions: PerDirection { read: false, write: true, trim: false }, random: false, ..job.rw };
        job.syncs.range = Some((2, 3));
    });
    let ops = ops(&job, &[32 * KIB]);
    let syncs: Vec<(usize, &Op)> = ops.iter().enumerate().filter(|(_, op)| op.kind == OpKind::SyncRange).collect();
    assert_eq!(
        syncs.iter().map(|(at, op)| (*at, op.offset, op.len)).collect::<Vec<_>>(),
        [(3, 4096, 12288), (7, 4096 + 12288, 12288)]
    );
}

#[test]
fn a_time_based_stream_does_not_end_by_itself() {
    let job =
        job(|job| (job.time.time_based, job.pattern.no_random_map, job.extent.number_ios) = (true, true, Some(3)));
    let mut workload = Workload::new(&job, 0, &extents(&[64 * KIB])).unwrap();
    assert!((0..10_000).all(|_| workload.next().is_some()));
}

#[test]
fn what_has_no_room_is_refused() {
    let refused = |job: &Job, sizes: &[u64]| Workload::new(job, 0, &extents(sizes)).unwrap_err().to_string();
    assert_eq!(
        refused(&job(|_| {}), &[4095]),
        "job test: no file has room for one block (the largest has 4095 bytes, the smallest block 4096); give a larger size or a smaller bs"
    );
    assert!(refused(&job(|_| {}), &[]).contains("no file has room"));
    let zipf = job(|job| job.files.service = FileService::Distributed(Distribution::Zipf(1.0, None)));
    assert!(refused(&zipf, &[8192, 100]).contains("file 1 has no room"));
    // One small file among others is left out; io_size does not make it loop forever.
    let ops = ops(&job(|job| job.extent.io_size = Some(Amount::Bytes(64 * KIB))), &[8192, 100]);
    assert_eq!(ops.len(), 16);
    assert!(ops.iter().all(|op| op.file == 0));
}

#[test]
fn size_is_what_is_transferred_of_larger_files() {
    let sized = |rw: fn(&mut Job)| {
        job(|job| {
            rw(job);
            job.extent.size = Some(Amount::Bytes(64 * KIB));
            job.extent.file_size = Some((256 * KIB, 256 * KIB));
        })
    };
    for job in [sized(|_| {}), sized(|job| job.rw.random = true)] {
        let ops = ops(&job, &[256 * KIB]);
        assert_eq!(ops.iter().map(|op| op.len).sum::<u64>(), 64 * KIB);
    }
}

/// The figures are those of fio 3.33: io_size in percent is a part of the files, and size= limits that part.
#[test]
fn a_part_of_the_files_is_limited_by_size() {
    for (size, part, bytes) in [(64, 75.0, 64), (64, 10.0, 28), (512, 75.0, 192), (512, 100.0, 256)] {
        let job = job(|job| {
            job.extent.size = Some(Amount::Bytes(size * KIB));
            job.extent.file_size = Some((256 * KIB, 256 * KIB));
            job.extent.io_size = Some(Amount::Percent(part));
        });
        let sum = ops(&job, &[256 * KIB]).iter().map(|op| op.len).sum::<u64>();
        assert_eq!(sum, bytes * KIB, "{size}k, {part} %");
    }
}

/// Billions of blocks need no memory and no time to set up: an order replaces the map.
#[test]
fn a_petabyte_is_no_burden() {
    let mut workload = Workload::new(&mixed(|_| {}), 0, &[FileExtent { offset: 0, size: 1 << 50 }]).unwrap();
    let offsets: BTreeSet<u64> = (0..10_000).map(|_| workload.next().unwrap().offset).collect();
    assert_eq!(offsets.len(), 10_000);
}

/// Verification reads blocks back from a queue where this holds, without asking whether they were overwritten.
#[test]
fn what_writes_once_never_overlaps_within_a_pass() {
    let (mut once, mut not) = (0, 0);
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let mut chance = |percent: u64| random.below(100) < percent;
        let job = job(|job| {
            job.rw.random = chance(60);
            job.rw.directions = PerDirection { read: chance(25), write: true, trim: false };
            if chance(10) {
                (job.rw.trim_then_write, job.rw.directions) =
                    (true, PerDirection { read: false, write: true, trim: true });
            }
            job.rw.sequential_stride = if chance(10) { -4096 } else { 0 };
            job.rw.ops_per_offset = if chance(10) { 3 } else { 1 };
            job.pattern.no_random_map = chance(20);
            job.pattern.identical = chance(10);
            job.pattern.seed = seed;
            job.blocks.unaligned = chance(10);
            job.blocks.is_seq_rand = chance(10);
            if chance(15) {
                job.pattern.generator = Generator::Permutation;
            }
            if chance(30) {
                job.blocks.range.write = if chance(50) { (2048, 8192) } else { (8192, 8192) };
            }
            if chance(15) {
                job.blocks.split.write = vec![(1024, 30.0), (6144, 70.0)];
            }
            job.blocks.align.write = if chance(50) { 0 } else { 2048 << u64::from(chance(50)) };
            if chance(10) {
                job.pattern.distribution.write = Distribution::Zipf(1.2, None);
            }
            if chance(10) {
                job.pattern.zones.write = vec![(70.0, 30.0), (30.0, 70.0)];
            }
            job.pattern.percent_random.write = if chance(10) { 50 } else { 100 };
            if chance(20) {
                job.files.service = FileService::Distributed(Distribution::Zipf(1.2, None));
            }
            if chance(20) {
                job.extent.io_size = Some(Amount::Bytes(if chance(50) { 30 * KIB } else { 300 * KIB }));
            }
            job.extent.number_ios = chance(20).then_some(13);
            job.extent.size = chance(10).then_some(Amount::Bytes(40 * KIB));
            if chance(10) {
                job.extent.strided = Some(Zones { size: 16384, range: 8192, skip: 4096 });
            }
            job.time.loops = if chance(40) { 4 } else { 1 };
        });
        let Ok(mut workload) = Workload::new(&job, 0, &extents(&[96 * KIB, 33 * KIB])) else { continue };
        if !workload.writes_once() {
            not += 1;
            continue;
        }
        once += 1;
        for _pass in 0..job.time.loops {
            let changes = pass(&mut workload).into_iter().filter(|op| op.kind == OpKind::Io(Direction::Write));
            let mut places: Vec<(u32, u64, u64)> = changes.map(|op| (op.file, op.offset, op.offset + op.len)).collect();
            places.sort_unstable();
            for pair in places.windows(2) {
                assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "seed {seed}: {pair:?} of {job:?}");
            }
            workload.restart();
        }
    }
    assert!(once > 300 && not > 300, "{once} jobs write once, {not} do not");
}

#[test]
fn what_was_trimmed_is_written_in_one_piece_as_in_fio() {
    let job = job(|job| {
        job.rw = Rw { random: false, trim_then_write: true, ..job.rw };
        job.rw.directions = PerDirection { read: false, write: true, trim: true };
        job.blocks.range = PerDirection { read: (4096, 4096), write: (4096, 4096), trim: (10240, 10240) };
    });
    let done: Vec<(OpKind, u64, u64)> =
        ops(&job, &[20 * KIB]).into_iter().map(|op| (op.kind, op.offset - 4096, op.len)).collect();
    let (trim, write) = (OpKind::Io(Direction::Trim), OpKind::Io(Direction::Write));
    let block = |at| [(trim, at, 10240), (write, at, 10240)];
    assert_eq!(done, [block(0), block(10240)].concat());
}

/// As in fio: what is drawn with repetition goes on with new blocks, however often the size of the file is transferred.
#[test]
fn blocks_that_may_repeat_are_others_in_each_lap() {
    let kinds: [fn(&mut Job); 4] = [
        |job| job.pattern.no_random_map = true,
        |job| job.pattern.distribution = PerDirection::from_fn(|_| Distribution::Zipf(1.1, None)),
        |job| job.pattern.zones = PerDirection::from_fn(|_| vec![(60.0, 10.0), (40.0, 90.0)]),
        |job| job.pattern.percent_random = PerDirection::from_fn(|_| 50),
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        for by_loops in [false, true] {
            let job = job(|job| {
                kind(job);
                job.pattern.no_random_map = number != 3; // as the plan has it
                if by_loops { job.time.loops = 4 } else { job.extent.io_size = Some(Amount::Bytes(4 * 64 * 4096)) }
            });
            let mut workload = Workload::new(&job, 0, &extents(&[64 * 4096])).unwrap();
            let mut offsets = Vec::new();
            for _ in 0..if by_loops { 4 } else { 1 } {
                offsets.extend(pass(&mut workload).iter().map(|op| op.offset));
                workload.restart();
            }
            assert_eq!(offsets.len(), 256, "kind {number}");
            let laps: BTreeSet<&[u64]> = offsets.chunks(64).collect();
            assert_eq!(laps.len(), 4, "kind {number}, by loops {by_loops}: a lap repeats another");
        }
    }
}

/// As in fio: a sequential mix begins the file again where reads or writes have come to its end, and not earlier.
#[test]
fn reads_and_writes_in_sequence_each_go_through_the_whole_file() {
    let mixed = |edit: fn(&mut Job)| {
        mixed(|job| {
            job.rw.random = false;
            edit(job);
        })
    };
    let check = |ops: &[Op], what: &str| {
        let (mut next, mut begun_again) = ([0u64; 2], 0);
        for op in ops {
            let direction = usize::from(op.kind == OpKind::Io(Direction::Write));
            let block = (op.offset - 4096) / 4096;
            if block != next[direction] {
                assert!(next.contains(&10), "{what}: begun again at {next:?}");
                (next, begun_again) = ([0; 2], begun_again + 1);
            }
            assert_eq!(block, next[direction], "{what}");
            next[direction] += 1;
        }
        begun_again
    };
    let twice = ops(&mixed(|job| job.extent.io_size = Some(Amount::Bytes(8 * 10 * 4096))), &[10 * 4096]);
    assert_eq!(twice.len(), 80);
    assert!((4..8).contains(&check(&twice, "io_size")));
    for (ops_of_pass, edit) in [
        (10, (|job| job.time.loops = 8) as fn(&mut Job)),
        (5, |job| (job.time.loops, job.extent.number_ios) = (8, Some(5))),
    ] {
        let mut workload = Workload::new(&mixed(edit), 0, &extents(&[10 * 4096])).unwrap();
        let mut all = Vec::new();
        for _ in 0..8 {
            let pass = pass(&mut workload);
            assert_eq!(pass.len(), ops_of_pass);
            all.extend(pass);
            workload.restart();
        }
        assert!(check(&all, "loops") >= ops_of_pass / 5);
    }
}

#[test]
fn a_pass_of_sprandom_ends_with_the_last_new_block() {
    let conditioned = |regions, cache_bytes| {
        job(|job| {
            job.rw.directions = PerDirection { read: false, write: true, trim: false };
            job.pattern.generator = Generator::Permutation;
            job.pattern.no_random_map = true;
            job.pattern.precondition = Some(Precondition { over_provisioning: 0.25, regions, cache_bytes });
        })
    };
    let mut workload = Workload::new(&conditioned(10, 0), 0, &extents(&[4096 * 1000, 4096 * 500])).unwrap();
    assert!(!workload.writes_once());
    assert_eq!(workload.pass_bytes(), 4096 * 1875);
    for _loop in 0..2 {
        let ops = pass(&mut workload);
        let blocks: BTreeSet<_> = ops.iter().map(|op| (op.file, op.offset)).collect();
        assert_eq!(blocks.len(), 1500, "every block is written");
        assert!((1800..1950).contains(&ops.len()), "{} writes", ops.len());
        workload.restart();
    }
    let refused =
        |regions, cache| Workload::new(&conditioned(regions, cache), 0, &extents(&[4096 * 1000])).unwrap_err();
    assert_eq!(
        refused(2000, 0).to_string(),
        "job test: 2000 regions of sprandom on file 0 have 0 blocks each, and need 1; use spr_num_regions=1250 or less"
    );
    assert_eq!(
        refused(50, 1 << 20).to_string(),
        "job test: 50 regions of sprandom on file 0 have 25 blocks each, and need 256; use spr_num_regions=4 or less"
    );
}

#[test]
fn a_sequence_of_blocks_comes_in_turn() {
    let drawn = |strides: bool| {
        let job = job(|job| {
            job.pattern.no_random_map = true;
            (job.pattern.sequence, job.pattern.sequence_stride) = (vec![2, 0, 1], strides);
        });
        ops(&job, &[8 * 4096]).iter().map(|op| (op.offset - 4096) / 4096).collect::<Vec<_>>()
    };
    assert_eq!(drawn(false), [2, 0, 1, 2, 0, 1, 2, 0]);
    // A third turn would reach beyond the 8 blocks: the turns begin at the start again.
    assert_eq!(drawn(true), [2, 0, 1, 5, 3, 4, 2, 0]);
    let beyond = Workload::new(&job(|job| job.pattern.sequence = vec![0, 8]), 0, &extents(&[8 * 4096])).unwrap_err();
    assert_eq!(
        beyond.to_string(),
        "job test: random_distribution=sequence names block 8, but file 0 has only 8 blocks"
    );
}

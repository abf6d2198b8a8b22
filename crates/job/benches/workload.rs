//! The cost of generating an op: nanoseconds each, by kind of workload. `cargo bench -p job`.
//!
//! The generator loop has some 100 ns an op to be three times as fast as fio's null engine. The workload has a quarter
//! of that time.

use std::hint::black_box;
use std::time::Instant;

use job::Job;
use job::job::{Distribution, FileService};
use job::workload::arrivals::Arrivals;
use job::workload::{FileExtent, Workload};
use measure::{Direction, PerDirection};

const OPS: u32 = 4_000_000;

fn report(name: &str, mut step: impl FnMut()) {
    // The best of five is the cost of the code when nothing disturbs it.
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..OPS).for_each(|_| step());
        start.elapsed()
    });
    println!("{name:40} {:6.1} ns", best.min().unwrap_or_default().as_secs_f64() * 1e9 / f64::from(OPS));
}

fn stream(name: &str, files: usize, bytes: u64, edit: impl FnOnce(&mut Job)) {
    let mut job = Job { name: "bench".into(), ..Job::default() };
    edit(&mut job);
    let extents = vec![FileExtent { offset: 0, size: bytes }; files];
    let mut workload = Workload::new(&job, 0, &extents).expect("a workload");
    report(name, || {
        let op = loop {
            match workload.next() {
                Some(op) => break op,
                None => workload.restart(),
            }
        };
        black_box(op);
    });
}

fn main() {
    const SIZE: u64 = 16 << 30;
    let mixed = PerDirection { read: true, write: true, trim: false };
    stream("sequential", 1, SIZE, |_| {});
    stream("random, each block once", 1, SIZE, |job| job.rw.random = true);
    stream("random, no map", 1, SIZE, |job| (job.rw.random, job.pattern.no_random_map) = (true, true));
    stream("random mix, each block once", 1, SIZE, |job| (job.rw.random, job.rw.directions) = (true, mixed));
    stream("random, 4k-64k, map", 1, SIZE, |job| (job.rw.random, job.blocks.range.read) = (true, (4096, 65536)));
    stream("random, 4k-64k, map, to the last block", 1, 256 << 20, |job| {
        (job.rw.random, job.blocks.range.read) = (true, (4096, 65536))
    });
    stream("zipf:1.2", 1, SIZE, |job| {
        (job.rw.random, job.pattern.distribution.read) = (true, Distribution::Zipf(1.2, None))
    });
    stream("pareto:0.2", 1, SIZE, |job| {
        (job.rw.random, job.pattern.distribution.read) = (true, Distribution::Pareto(0.2, None))
    });
    stream("normal:10", 1, SIZE, |job| {
        (job.rw.random, job.pattern.distribution.read) = (true, Distribution::Normal(10.0, None))
    });
    stream("random over 64 files in turn", 64, SIZE >> 6, |job| job.rw.random = true);
    stream("random over 64 files at random", 64, SIZE >> 6, |job| {
        (job.rw.random, job.files.service) = (true, FileService::Random)
    });

    let mut job = Job::default();
    job.rate.iops.read = Some(1_000_000);
    let mut constant = Arrivals::new(&job, 0).expect("a rate");
    report("arrivals, constant", || {
        black_box(constant.next(Direction::Read, 4096));
    });
    job.rate.poisson = true;
    let mut poisson = Arrivals::new(&job, 0).expect("a rate");
    report("arrivals, poisson", || {
        black_box(poisson.next(Direction::Read, 4096));
    });
}

//! Ops per second of each engine alone, without the generator: 4 KiB random reads of a file in the page cache at
//! depth 32, submitted and reaped 16 at a time. The null engine's figure is the cost of this loop.
//!
//!     cargo bench -p load --bench engines [-- NAME...]
//!
//! Absolute figures belong to a machine; the interleaved rounds make the ratios comparable.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use job::Job;
use job::workload::OpKind;
use load::engine::{Completion, Maker, Queued, Request, Setup, Slots};
use measure::Direction;
use sys::buffer::Memory;

const DEPTH: u32 = 32;
const BATCH: usize = 16;
const BLOCK: u32 = 4096;
const BLOCKS: u64 = 64 << 10;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(300);

/// A name, the engine, and its options.
type Row = (&'static str, &'static str, fn(&mut Job));

const ROWS: &[Row] = &[
    ("null", "null", |_| {}),
    ("io_uring", "io_uring", |_| {}),
    ("io_uring-fixed", "io_uring", |job| (job.ring.fixed_buffers, job.ring.register_files) = (true, true)),
    ("io_uring-vectored", "io_uring", |job| job.ring.nonvectored = Some(false)),
    ("libaio", "libaio", |_| {}),
    ("libaio-userspace_reap", "libaio", |job| job.ring.userspace_reap = true),
    ("psync", "psync", |_| {}),
    ("pvsync2", "pvsync2", |_| {}),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let rows: Vec<&Row> =
        ROWS.iter().filter(|row| wanted.is_empty() || wanted.iter().any(|name| name == row.0)).collect();
    let path = std::env::temp_dir().join(format!("engines-bench-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a scratch file");
    std::fs::remove_file(&path).expect("a scratch file of our own");
    for block in 0..BLOCKS / 256 {
        file.write_all_at(&vec![7; 1 << 20], block << 20).expect("256 MiB of space");
    }
    let mut rates = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (row, rates) in rows.iter().zip(&mut rates) {
            rates.push(rate(row, &file));
        }
    }
    println!("{:24} {:>12} {:>10}", "engine", "median IOPS", "ns per op");
    for (row, rates) in rows.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        let median = rates[ROUNDS / 2];
        println!("{:24} {:>12.0} {:>10.1}", row.0, median, 1e9 / median);
    }
}

/// Ops per second over one round; NaN where the engine is not available.
fn rate(row: &Row, file: &File) -> f64 {
    let &(_, engine, options) = row;
    let mut job = Job { engine: engine.into(), ..Job::default() };
    options(&mut job);
    let (slots, mut free) = Slots::new(DEPTH, BLOCK as usize, 0, &Memory::Anonymous).expect("128 KiB of memory");
    let setup = Setup { job: &job, slots: Arc::clone(&slots), depth: DEPTH, files: 1, names: &[], clone: 0 };
    let mut engine = match Maker::find(engine).expect("a row of the engine table").make(&setup) {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("{error}");
            return f64::NAN;
        }
    };
    engine.open(0, file.as_raw_fd()).expect("an open descriptor");
    let mut done: Vec<Completion> = Vec::with_capacity(DEPTH as usize);
    let (mut seed, mut ops, mut in_flight) = (1_u64, 0_u64, 0);
    let start = Instant::now();
    while start.elapsed() < ROUND {
        for _ in 0..64 {
            let mut queued = 0;
            while queued < BATCH
                && let Some(slot) = free.pop()
            {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let offset = (seed >> 40) % BLOCKS * u64::from(BLOCK);
                let kind = OpKind::Io(Direction::Read);
                match engine.queue(Request { slot, kind, file: 0, offset, len: BLOCK, skip: 0, priority: 0 }) {
                    Queued::Later => in_flight += 1,
                    Queued::Done(completion) => done.push(completion),
                    Queued::Full(request) => {
                        free.push(request.slot);
                        break;
                    }
                }
                queued += 1;
            }
            if in_flight > 0 {
                let before = done.len();
                engine.submit().expect("a healthy engine");
                engine.reap(BATCH.min(in_flight), BATCH, None, &mut done).expect("a healthy engine");
                in_flight -= done.len() - before;
            }
            for Completion { slot, result } in done.drain(..) {
                assert_eq!(result, i64::from(BLOCK));
                free.push(slot);
                ops += 1;
            }
        }
    }
    ops as f64 / start.elapsed().as_secs_f64()
}

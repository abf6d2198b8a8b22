//! Measures the cost of filling, stamping and checking a 4 KiB block. `cargo bench -p load --bench content`.
//!
//! A copy of the block stands beside them: it is the least cost of touching every byte.

use std::hint::black_box;
use std::time::Instant;

use job::Job;
use job::job::{Buffers, Verify, VerifyKind, VerifyPattern};
use load::Filler;
use load::verify::{Expected, Stamp, Verifier};

const BLOCK: usize = 4096;

fn report(name: &str, rounds: u32, mut step: impl FnMut()) {
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..rounds).for_each(|_| step());
        start.elapsed()
    });
    println!("{name:32} {:8.1} ns", best.min().unwrap_or_default().as_secs_f64() * 1e9 / f64::from(rounds));
}

fn main() {
    let mut block = vec![0u8; BLOCK];
    let other = vec![1u8; BLOCK];
    report("copy", 1_000_000, || black_box(&mut block).copy_from_slice(black_box(&other)));

    let buffers = Job::default().buffers;
    let kinds = [
        ("scramble", buffers.clone()),
        ("refill", Buffers { refill: true, ..buffers.clone() }),
        ("compress 50 %", Buffers { compress_percent: 50, ..buffers.clone() }),
        ("dedupe 50 %", Buffers { dedupe_percent: 50, ..buffers }),
    ];
    for (name, buffers) in kinds {
        let mut filler = Filler::new(&buffers, 1);
        filler.prepare(&mut block);
        report(name, 300_000, || filler.fill(black_box(&mut block)));
    }

    for (name, kind) in [
        ("crc32c", VerifyKind::Crc32c),
        ("xxhash", VerifyKind::Xxhash),
        ("crc64", VerifyKind::Crc64),
        ("md5", VerifyKind::Md5),
        ("sha256", VerifyKind::Sha256),
        ("pattern", VerifyKind::PatternOnly),
    ] {
        let verify = Verify {
            kind,
            enabled: true,
            fatal: false,
            dump: false,
            pattern: VerifyPattern {
                bytes: if name == "pattern" { vec![0xde, 0xad] } else { vec![] },
                offset_at: vec![],
            },
            backlog: 0,
            backlog_batch: 0,
            interval: 0,
            header_offset: 0,
            only: false,
            pattern_interval: 0,
            sorted: true,
            write_sequence: true,
            regenerate: false,
            ..Verify::default()
        };
        let verifier =
            Verifier::new(&Job { verify: Some(verify), ..Job::default() }, 1).expect("fits").expect("asked for");
        report(&format!("stamp {name}"), 50_000, || verifier.stamp(black_box(&mut block), &Stamp::default()));
        let expected = Expected { sequence: Some(0), ..Expected::default() };
        report(&format!("check {name}"), 50_000, || {
            verifier.check(black_box(&mut block), &expected).expect("untouched")
        });
    }
}

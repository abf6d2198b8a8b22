//! The cost of admission: admit + complete in nanoseconds, every method, side by side in one run. `cargo bench -p
//! pace`.
//!
//! The bar is 60 ns for the default pacer when nothing is held. The ratio to no pacing at all is what to compare across
//! machines.

use std::hint::black_box;
use std::time::Instant;

use pace::{Admit, Config, Limits, Op};

const OPS: u64 = 2_000_000;

/// Nanoseconds per admit + complete (+ hold and release when `depth` is beyond the window), the best of five runs.
fn cost(config: &Config, bytes: u32, depth: usize, drives: u32) -> f64 {
    (0..5)
        .map(|_| {
            let mut pacer = config.build(Limits { ops: 8192, drives, tenants: 16 }).expect("a valid configuration");
            let mut ring = std::collections::VecDeque::with_capacity(depth + 1);
            let mut now = 1_000u64;
            let mut next = 0u64;
            let op = |n: u64| Op {
                drive: (n % u64::from(drives)) as u32,
                tenant: (n % 16) as u32,
                queue: (n % 4) as u32,
                bytes,
                write: false,
                admin: false,
                cookie: n,
            };
            for _ in 0..depth {
                if let Admit::Go(id) = pacer.admit(now, op(next)) {
                    ring.push_back(id);
                }
                next += 1;
            }
            let started = Instant::now();
            for _ in 0..OPS {
                now += 500;
                if let Some(id) = ring.pop_front() {
                    black_box(pacer.complete(now, id));
                }
                while let Some(released) = pacer.poll(now) {
                    ring.push_back(released.id);
                }
                if let Admit::Go(id) = pacer.admit(now, op(next)) {
                    ring.push_back(id);
                }
                next += 1;
            }
            started.elapsed().as_nanos() as f64 / OPS as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    let none = cost(&Config::none(), 4096, 32, 16);
    println!("{:<44} {:>8} {:>8}", "admit + poll + complete", "ns", "ratio");
    for (name, config, bytes, depth, drives) in [
        ("none", Config::none(), 4096, 32, 16),
        ("auto, nothing held, 16 drives", Config::auto(None), 4096, 32, 16),
        ("auto, nothing held, 1000 drives", Config::auto(None), 4096, 1000, 1000),
        ("auto, every op held, 16 drives", Config::auto(Some(4 << 20)), 131_072, 1024, 16),
        ("auto, every op held, 1 drive", Config::auto(Some(4 << 20)), 131_072, 1024, 1),
        ("auto, every op held, 1000 drives", Config::auto(Some(4 << 20)), 131_072, 4096, 1000),
        ("buffers:96, nothing held", Config::parse("buffers:96", 1024).expect("valid"), 4096, 32, 16),
    ] {
        let ns = cost(&config, bytes, depth, drives);
        println!("{name:<44} {ns:>8.1} {:>8.2}", ns / none);
    }
}

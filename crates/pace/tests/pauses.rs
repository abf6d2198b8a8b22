//! A load that pauses teaches the self-tuning pacer nothing about its window.

use std::collections::VecDeque;

use pace::{Admission, Admit, AutoPacer, Limits, Op, OpId, Tuning};

const BYTES: u32 = 128 << 10;
/// A device that carries out one op after the other, 5 GB/s, whatever the window.
const OP_NS: u64 = BYTES as u64 * 1_000_000_000 / 5_000_000_000;
const OUTSTANDING: u32 = 512;

/// Offers ops until `until_ns` and carries out all of them; returns when the last one ends.
fn burst(pacer: &mut AutoPacer, mut now_ns: u64, until_ns: u64) -> u64 {
    let op = Op { drive: 0, tenant: 0, queue: 0, bytes: BYTES, write: false, admin: false, cookie: 0 };
    let mut in_flight: VecDeque<OpId> = VecDeque::new();
    let mut outstanding = 0;
    loop {
        while now_ns < until_ns && outstanding < OUTSTANDING {
            match pacer.admit(now_ns, op) {
                Admit::Go(id) => in_flight.push_back(id),
                Admit::Held(_) => {}
                refused => panic!("{refused:?}"),
            }
            outstanding += 1;
        }
        let Some(id) = in_flight.pop_front() else { break };
        now_ns += OP_NS;
        assert!(pacer.complete(now_ns, id));
        outstanding -= 1;
        while let Some(released) = pacer.poll(now_ns) {
            in_flight.push_back(released.id);
        }
    }
    assert_eq!(outstanding, 0, "an op waits for ever");
    now_ns
}

#[test]
fn pauses_do_not_widen_the_window() {
    for pause_ns in [0, 3_000_000, 50_000_000, 2_000_000_000] {
        let mut pacer = AutoPacer::new(Limits { ops: 1024, drives: 1, tenants: 1 }, Tuning::default(), None);
        let mut now_ns = 1_000_000_000;
        let mut widest = 0;
        for _ in 0..100 {
            now_ns = burst(&mut pacer, now_ns, now_ns + 200_000_000) + pause_ns;
            widest = widest.max(pacer.window_bytes());
        }
        // A trial of a larger window is 1.25 times the first one.
        assert!(widest <= 10 << 20, "pauses of {pause_ns} ns: {widest} bytes");
        assert!(pacer.window_bytes() <= 1 << 20, "pauses of {pause_ns} ns: {} bytes", pacer.window_bytes());
    }
}

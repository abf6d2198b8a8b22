//! Random hosts over RDMA, from seeds: descriptors, keys and capsules of any kind. The target touches no memory but the
//! range of a command, the disk has what was written to it, and nothing is left of a host that no longer exists.
//! `PLIMSOLL_FUZZ_SEEDS=N` runs more seeds, `PLIMSOLL_FUZZ_SEED=N` that one.

mod dice;
mod rdma;

use dice::{Dice, seeds};
use nvme::spec::opcode::io;
use nvme::spec::rdma::KeyedSgl;
use nvme::spec::{Command, Sgl};
use nvme_target::Options;
use nvme_target::device::DeviceKind;
use rand_xoshiro::rand_core::Rng as _;
use rdma::{Host, Served, until};

const BLOCKS: u64 = 2048;
const BLOCK: usize = 512;
/// The part of a host's memory that a test looks at.
const WINDOW: usize = 64 << 10;

fn served() -> Served {
    let mut options = Options { receives: 16, ..Options::default() };
    options.pacing.budget_bytes = Some(4 << 20);
    Served::with(options, &[("mem", DeviceKind::Memory { bytes: BLOCKS * BLOCK as u64 })])
}

/// The descriptor of a command, its data in the capsule, and whether the card may refuse the range.
fn descriptor(dice: &mut Dice, host: &Host, at: usize, bytes: usize) -> (Sgl, Vec<u8>, bool) {
    let range = host.range(at, bytes);
    let inside = |dice: &mut Dice, bytes: usize| (Sgl::in_capsule(bytes as u32), dice.bytes(bytes.min(4096)), false);
    match dice.below(20) {
        0 => (KeyedSgl { length: dice.below((WINDOW - at) as u64) as u32, ..range }.descriptor(), vec![], false),
        1 => (Sgl { id: dice.below(256) as u8, ..range.descriptor() }, vec![], true),
        2 => (KeyedSgl { key: dice.0.next_u32(), ..range }.descriptor(), vec![], true),
        3 => (KeyedSgl { address: dice.0.next_u64(), ..range }.descriptor(), vec![], true),
        4 => (KeyedSgl { invalidate: true, ..range }.descriptor(), vec![], true),
        5 | 6 => inside(dice, bytes),
        7 => {
            let (length, given) = (dice.below(8192) as u32, dice.below(4097) as usize);
            (Sgl { address: dice.pick(&[0, 0, 1, u64::MAX]), ..Sgl::in_capsule(length) }, dice.bytes(given), false)
        }
        _ => (range.descriptor(), vec![], false),
    }
}

/// One command at a time, against a model of the disk and of the host's memory.
#[test]
fn commands_of_any_kind_touch_nothing_but_their_range() {
    for seed in seeds(12) {
        let mut dice = Dice::of(seed);
        let served = served();
        let admin = Host::admin(&served);
        let mut queue = admin.queue(&served, 1);
        let mut disk = vec![0; BLOCKS as usize * BLOCK];
        let mut outcomes = [0; 3];
        for step in 0..150 {
            let count = dice.pick(&[1, 2, 8, 64]) as usize;
            let lba = if dice.one_in(12) { dice.0.next_u64() } else { dice.below(BLOCKS - 32) };
            let nsid = if dice.one_in(12) { dice.0.next_u32() } else { 1 };
            let opcode = dice.pick(&[io::READ, io::READ, io::WRITE, io::WRITE, io::COMPARE, io::FLUSH, 0x7e, 0xc1]);
            let (bytes, at) = (count * BLOCK, dice.below(16 << 10) as usize);
            let (sgl, data, may_be_refused) = descriptor(&mut dice, &queue, at, bytes);
            let before = dice.bytes(WINDOW);
            queue.memory.write(0, &before);
            let cid = queue.send_command(Command { sgl, ..Command::blocks(opcode, nsid, lba, count as u32) }, &data);
            let what = format!("seed {seed}, step {step}: {opcode:#x} {nsid} {lba} {count} {sgl:?} {}", data.len());
            let status = loop {
                queue.poll();
                match queue.came.pop() {
                    Some((done, _)) => {
                        assert_eq!(done.cid, cid, "{what}");
                        break Some(done.status);
                    }
                    None if queue.is_over => break None,
                    None => std::thread::yield_now(),
                }
            };
            let mut after = vec![0; WINDOW];
            queue.memory.read(0, &mut after);
            let mut expected = before.clone();
            let is_good = status.is_some_and(|status| status.is_ok());
            let place = (lba as usize).saturating_mul(BLOCK);
            match opcode {
                io::READ if is_good => expected[at..at + bytes].copy_from_slice(&disk[place..place + bytes]),
                io::WRITE if is_good && data.is_empty() => {
                    disk[place..place + bytes].copy_from_slice(&before[at..at + bytes]);
                }
                io::WRITE if is_good => disk[place..place + bytes].copy_from_slice(&data),
                _ => {}
            }
            assert!(after == expected, "{what}: {status:?}: memory of the host differs");
            outcomes[if is_good { 0 } else { 1 + usize::from(status.is_none()) }] += 1;
            if status.is_none() {
                assert!(may_be_refused, "{what}: the connection has ended: {:?}", queue.failures);
            }
            // A key that the response has invalidated is of no more use.
            let has_no_key = sgl.id == (KeyedSgl { invalidate: true, ..queue.range(0, 0) }).descriptor().id;
            if queue.is_over || has_no_key {
                drop(queue);
                until(|| served.connections() == 1);
                queue = admin.queue(&served, 1);
            }
        }
        assert!(outcomes[0] > 30 && outcomes[1] > 5, "seed {seed}: {outcomes:?}");
        let read = queue.read(1, 0, BLOCKS as u32).unwrap();
        assert!(read == disk, "seed {seed}: the disk differs");
    }
}

/// Bursts of capsules, many of them of random bytes, more than the target has receives; and hosts that end amid them,
/// each in a way of its own.
#[test]
fn nothing_is_left_of_hosts_that_send_anything_and_go() {
    let served = served();
    let (_admin, mut other) = Host::pair(&served);
    for seed in seeds(40) {
        let mut dice = Dice::of(seed);
        let mut admin = Host::admin(&served);
        let mut queue = admin.queue(&served, 1);
        for host in [&mut queue, &mut admin] {
            for _ in 0..dice.below(80) {
                let mut capsule = if dice.one_in(4) {
                    dice.bytes(64)
                } else {
                    let (lba, bytes) = (dice.below(BLOCKS - 128), dice.pick(&[512, 4096, 64 << 10]));
                    let sgl = host.sgl(dice.below(1 << 20) as usize, bytes);
                    let opcode = dice.pick(&[io::READ, io::WRITE]);
                    let command = Command::blocks(opcode, 1, lba, (bytes / BLOCK) as u32);
                    let cid = dice.below(256) as u16;
                    Command { sgl, cid, flags: Command::PSDT_SGL, ..command }.write().to_vec()
                };
                if dice.one_in(8) {
                    let more = dice.below(4096) as usize;
                    capsule.extend(dice.bytes(more));
                }
                host.send(&capsule);
                if dice.one_in(10) {
                    host.poll();
                }
            }
        }
        if dice.one_in(3) {
            queue.fail();
        }
        if dice.one_in(4) {
            served.fabric().fail_registrations(2);
        }
        match dice.below(3) {
            0 => drop((admin, queue)),
            1 => drop((queue, admin)),
            _ => {
                queue.poll();
                admin.poll();
                drop((admin, queue));
            }
        }
        served.fabric().fail_registrations(0);
        until(|| served.connections() == 2);
        until(|| {
            let reactor = &served.target.stats().reactors[0];
            (reactor.pacer.in_flight, reactor.pending_io, reactor.unassociated_qpairs) == (0, 0, 0)
        });
        assert!(other.write(1, 0, &[seed as u8; 4096]).is_ok(), "seed {seed}");
        assert!(other.read(1, 0, 8).unwrap() == [seed as u8; 4096], "seed {seed}");
    }
}

//! Queues that move from reactor to reactor: commands, data and counts are right wherever the queue is at that moment,
//! and whatever ends meanwhile. tests/model.rs moves queues under random verified load.

use crate::raw;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nvme::pdu::{H2cData, Pdu};
use nvme::spec::fabrics::{Connect, ConnectData, PropertyAccess};
use nvme::spec::property::{self, Configuration};
use nvme::spec::{Command, Sgl, Status};
use nvme_target::Options;
use nvme_target::device::{DeviceKind, Effect, Fault, FaultOn};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};
use raw::{HOST, Host, NQN, Served};

/// Memory as namespace 1, memory behind faults as namespace 2, on this number of reactors. Nothing moves by itself.
fn served(reactors: usize) -> Served {
    let bytes = 64 << 20;
    Served::with(
        Options { reactors, balances: false, ..Options::default() },
        &[
            ("mem", DeviceKind::Memory { bytes }),
            ("base", DeviceKind::Memory { bytes }),
            ("faulty", DeviceKind::Faulty { base: "base".into(), seed: 1 }),
        ],
    )
}

/// Moves all queues from reactor to reactor until the work has been done.
fn while_all_move<T>(served: &Served, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reactors = served.target.options().reactors as u32;
            while !done.load(Ordering::Relaxed) {
                for controller in served.target.subsystems().into_iter().flat_map(|subsystem| subsystem.controllers) {
                    for queue in controller.queues.iter().filter(|queue| queue.id > 0) {
                        // It may have gone.
                        let _ = served.target.move_queue(NQN, controller.id, queue.id, (queue.reactor + 1) % reactors);
                    }
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let _ends = Ends(&done); // a failed check ends the moves too
        work()
    })
}

/// Nothing is left of connections that have gone, on no reactor.
fn assert_clean(served: &Served) {
    raw::until(|| {
        let stats = served.target.stats();
        let is_clean = |reactor: &nvme_target::ReactorStats| {
            reactor.pending_io == 0
                && (reactor.pacer.in_flight, reactor.pacer.held_now) == (0, 0)
                && reactor.admin_qpairs + reactor.io_qpairs == 0
        };
        stats.reactors.iter().all(is_clean)
            && stats.hosts.iter().all(|host| (host.connections, host.in_flight_bytes, host.held_now) == (0, 0, 0))
    });
    // New connections still go to the reactor with the fewest: the counts per reactor have moved along.
    let pairs: Vec<_> = (0..2 * served.target.options().reactors).map(|_| Host::pair(served.address)).collect();
    let queues: Vec<u32> = served.target.stats().reactors.iter().map(|reactor| reactor.io_qpairs).collect();
    assert!(queues.iter().all(|&queues| queues == 2), "{queues:?}");
    drop(pairs);
}

/// A write whose data come in its capsule.
fn write_in_capsule(lba: u64, data: &[u8]) -> Command {
    Command { sgl: Sgl::in_capsule(data.len() as u32), ..Host::write_command(1, lba, data.len()) }
}

#[test]
fn an_idle_queue_moves_with_the_beginning_of_a_command() {
    let served = served(3);
    for digests in [false, true] {
        let (admin, mut queue) = Host::pair_with(served.address, digests);
        let data = vec![0x5a; 4096];
        assert_eq!(queue.write(1, 0, &data), Status::SUCCESS);
        for (cut, reactor) in [(1, 1), (7, 2), (8, 0), (40, 1), (71, 2)] {
            let mut command = Host::read_command(1, 0, 8);
            command.cid = queue.cid();
            let bytes = queue.capsule(&command, &[]);
            queue.send(&bytes[..cut]);
            served.move_to(admin.cntlid, reactor);
            queue.send(&bytes[cut..]);
            let mut came = Vec::new();
            while came.len() < data.len() {
                came.extend_from_slice(&queue.unit().expect("data").data);
            }
            assert_eq!(came, data);
            assert!(queue.response().status.is_ok());
        }
        let stats = served.target.stats();
        let queues: Vec<u32> = stats.reactors.iter().map(|reactor| reactor.io_qpairs).collect();
        assert_eq!(queues, [0, 0, 1]);
        let ever: u64 = stats.reactors.iter().map(|reactor| reactor.total_io_qpairs).sum();
        assert_eq!(ever, 1 + u64::from(digests), "a move is no new queue");
        drop((admin, queue));
        raw::until(|| served.connections() == 0);
    }
    assert_clean(&served);
}

/// A command that its device does not end keeps its queue where it is; other commands of the queue wait for a moment.
#[test]
fn a_queue_with_a_command_in_a_slow_device_stays() {
    let served = served(2);
    let (admin, mut queue) = Host::pair(served.address);
    served.move_to(admin.cntlid, 0);
    let never = Fault { on: FaultOn::Reads, effect: Effect::Never, one_in: 1, count: None };
    served.target.set_faults("faulty", &[never]).unwrap();
    let stuck = queue.send_command(Host::read_command(2, 0, 8), &[]);
    // A queue whose command is still on its way may move.
    raw::until(|| served.target.stats().reactors.iter().any(|reactor| reactor.pending_io == 1));
    for turn in 0..5 {
        served.target.move_queue(NQN, admin.cntlid, 1, 1).unwrap();
        let data = vec![turn; 4096];
        assert_eq!(queue.command(write_in_capsule(8, &data), &data).status, Status::SUCCESS);
        assert_eq!(queue.read(1, 8, 8).unwrap(), data);
        assert_eq!(served.reactor_of(admin.cntlid), Some(0));
    }
    served.target.set_faults("faulty", &[]).unwrap();
    assert_eq!(queue.response().cid, stuck);
    served.move_to(admin.cntlid, 1);
    assert_eq!(queue.read(1, 8, 8).unwrap(), vec![4; 4096]);
    assert!(served.target.move_queue(NQN, admin.cntlid, 2, 1).is_err(), "no such queue");
    assert!(served.target.move_queue(NQN, admin.cntlid, 1, 2).is_err(), "no such reactor");
    drop((admin, queue));
    assert_clean(&served);
}

/// Commands of all kinds in pieces of a few bytes, on queues that move all the time: each write is read back.
#[test]
fn streams_that_are_cut_anywhere_arrive_whole() {
    let served = served(2);
    while_all_move(&served, || {
        for seed in 0..24 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut below = |end: u64| random.next_u64() % end;
            let (admin, mut queue) = Host::pair_with(served.address, seed % 2 == 1);
            let (mut stream, mut expected, mut open) = (Vec::new(), Vec::new(), Vec::new());
            for number in 0..40u64 {
                let blocks = 1 + below(8);
                let data = vec![(seed * 40 + number) as u8 | 1; 512 * blocks as usize];
                let lba = number * 8;
                if below(3) == 0 {
                    // Its data follow an R2T, between the pieces of commands that came later.
                    let mut command = Host::write_command(1, lba, data.len());
                    command.cid = queue.cid();
                    stream.extend_from_slice(&queue.capsule(&command, &[]));
                    open.push((command.cid, data.clone()));
                } else {
                    let mut command = write_in_capsule(lba, &data);
                    command.cid = queue.cid();
                    stream.extend_from_slice(&queue.capsule(&command, &data));
                }
                expected.push((lba, data));
            }
            // The host reads nothing before all commands are on their way: data follow commands that came later.
            while !stream.is_empty() {
                let piece = (1 + below(600) as usize).min(stream.len());
                queue.send(&stream[..piece]);
                stream.drain(..piece);
                if below(8) == 0 {
                    std::thread::sleep(Duration::from_micros(below(400)));
                }
            }
            let mut answered = 0;
            while answered < expected.len() {
                match queue.unit().expect("a response or an R2T").pdu {
                    Pdu::CapsuleResp(done) => {
                        assert!(done.status.is_ok(), "seed {seed}: {}", done.status);
                        answered += 1;
                    }
                    Pdu::R2t(ready) => {
                        let at = open.iter().position(|(cid, _)| *cid == ready.cid).expect("an R2T of an open write");
                        let (cid, data) = open.swap_remove(at);
                        let length = data.len() as u32;
                        let bytes = queue.h2c(&H2cData { cid, ttag: ready.ttag, offset: 0, length, last: true }, &data);
                        for piece in bytes.chunks(700) {
                            queue.send(piece);
                            std::thread::yield_now();
                        }
                    }
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            for (lba, data) in &expected {
                assert_eq!(&queue.read(1, *lba, data.len() as u32 / 512).unwrap(), data, "seed {seed}, block {lba}");
            }
            drop((admin, queue));
        }
    });
    assert_clean(&served);
}

/// Resets, disconnects and deletions that meet a queue on its way: the queue ends, and nothing of it is left.
#[test]
fn a_queue_that_ends_on_its_way_leaves_nothing() {
    let served = served(3);
    while_all_move(&served, || {
        for turn in 0..60 {
            let (mut admin, mut queue) = Host::pair(served.address);
            assert_eq!(queue.write(1, 0, &[turn; 4096]), Status::SUCCESS);
            let cid = queue.cid();
            let bytes = queue.capsule(&Command { cid, ..Host::read_command(1, 0, 8) }, &[]);
            queue.send(&bytes);
            match turn % 5 {
                0 => drop(admin), // the controller ends with its admin queue
                1 => {
                    let disabled = PropertyAccess::set(property::CC, 4, Configuration(0).0.into());
                    assert!(admin.command(disabled, &[]).status.is_ok());
                }
                2 => queue.send(&bytes[..30]), // then nothing more
                3 => {
                    // A unit that nobody understands.
                    queue.send(&[0xff; 64]);
                }
                _ => drop(queue.stream.shutdown(std::net::Shutdown::Write)),
            }
            if turn % 5 != 2 {
                assert!(queue.is_closed());
            }
        }
    });
    assert_clean(&served);
    // A host that may no longer connect, and a subsystem that goes.
    let pairs: Vec<_> = (0..12).map(|_| Host::pair(served.address)).collect();
    while_all_move(&served, || {
        served.target.delete_subsystem(NQN).unwrap().wait();
        for (mut admin, mut queue) in pairs {
            assert!(admin.is_closed() && queue.is_closed());
        }
    });
    raw::until(|| served.connections() == 0);
}

/// A target that ends in good order while queues move answers the commands under way and closes all connections.
#[test]
fn a_target_ends_while_queues_move() {
    for _ in 0..10 {
        let served = served(3);
        let mut pairs: Vec<_> = (0..6).map(|_| Host::pair(served.address)).collect();
        while_all_move(&served, || {
            for (_, queue) in &mut pairs {
                assert_eq!(queue.write(1, 0, &[1; 4096]), Status::SUCCESS);
            }
            assert!(served.target.shutdown(Duration::from_secs(300)));
        });
        for (mut admin, mut queue) in pairs {
            assert!(admin.is_closed() && queue.is_closed());
        }
    }
}

/// A host that is heard of on a queue that moves is alive, and a silent one is not, however often its queue moves.
#[test]
fn the_keep_alive_timer_goes_on_over_moves() {
    let served = served(2);
    let mut admin = Host::open(served.address, false, false);
    let connect = Connect { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 1500 };
    let data: ConnectData = Host::connect_data(raw::dynamic(), NQN, HOST);
    let done = admin.command(connect.command(), &data.write());
    assert!(done.status.is_ok());
    admin.cntlid = done.result as u16;
    admin.enable();
    let mut queue = admin.queue(served.address, 1, false);
    while_all_move(&served, || {
        let end = Instant::now() + Duration::from_millis(3000);
        while Instant::now() < end {
            assert!(queue.read(1, 0, 8).is_ok());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(queue.is_closed() && admin.is_closed(), "silence ends both");
    });
    assert_clean(&served);
}

/// Hosts that ask for more than one reactor can do, on one of two: one of them is moved away. They are many, so that
/// the reactor has work while some of them wait for a processor, and a host asks for no more than the buffers of its
/// connection take: its commands end soon, whether it reads or not.
#[test]
fn a_connection_moves_off_a_busy_reactor_by_itself() {
    let served =
        Served::with(Options { reactors: 2, ..Options::default() }, &[("mem", DeviceKind::Memory { bytes: 64 << 20 })]);
    const READS: u16 = 4;
    let pairs: Vec<_> = (0..8).map(|_| Host::pair_with(served.address, true)).collect();
    let controllers: Vec<u16> = pairs.iter().map(|(admin, _)| admin.cntlid).collect();
    for &controller in &controllers {
        served.move_to(controller, 0);
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (_, queue) in &pairs {
            let read = |cid| queue.capsule(&Command { cid, ..Host::read_command(1, 0, 256) }, &[]);
            let capsules: Vec<u8> = (0..READS).flat_map(read).collect();
            let (stream, ends) = (&queue.stream, &ends);
            scope.spawn(move || {
                // The host counts bytes: what it asks for takes the target longer than the host.
                let mut scratch = vec![0; 256 << 10];
                let of_all = usize::from(READS) * ((256 << 9) + 24 + 4 + 4 + 24 + 4);
                let mut stream = stream;
                while !ends.load(Ordering::Relaxed) {
                    stream.write_all(&capsules).unwrap();
                    let mut came = 0;
                    while came < of_all {
                        came += stream.read(&mut scratch).unwrap();
                    }
                    assert_eq!(came, of_all);
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            raw::until(|| controllers.iter().any(|&controller| served.reactor_of(controller) == Some(1)));
        }));
        ends.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
}

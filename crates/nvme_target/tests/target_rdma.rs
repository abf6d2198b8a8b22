//! A target over RDMA, on the fabric in memory and on Soft-RoCE: commands and their data, credits, discovery, and hosts
//! side by side.

mod rdma;

use std::sync::atomic::{AtomicBool, Ordering};

use nvme::spec::fabrics::DYNAMIC_CONTROLLER;
use nvme::spec::log::{self, DiscoveryEntry, DiscoveryHeader};
use nvme::spec::opcode::{admin, io};
use nvme::spec::rdma::{KeyedSgl, RdmaAddress};
use nvme::spec::{Command, DISCOVERY_NQN, Sgl, Status, cns};
use nvme_target::device::{DeviceKind, Effect, Fault, FaultOn, Latency};
use nvme_target::{Departure, Options, Portal};
use rdma::{Dialing, HOST, Host, NQN, READS, Served, on_soft_roce, until};

#[test]
#[ignore = "boots a guest: make test-guest"]
fn hosts_on_soft_roce() {
    // Without `responses_invalidate_keys`: Soft-RoCE invalidates only keys that a kernel has registered.
    on_soft_roce(&[
        "a_host_connects_writes_and_reads",
        "identify_says_what_the_transport_has",
        "commands_wait_for_credit",
        "many_hosts_and_reactors_keep_their_data_apart",
        "discovery_names_both_transports",
        "a_removed_listener_takes_its_connections_along",
        "a_host_that_takes_no_responses_hurts_nobody_else",
        "a_host_that_goes_amid_io_leaves_nothing_behind",
        "departures_wait_for_ops_of_pairs_that_have_ended",
        "a_removed_host_loses_its_queues",
        "a_shutdown_lets_commands_end",
        "a_command_costs_what_the_manual_says",
    ]);
}

fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    (0..bytes as u32).map(|i| (i.wrapping_mul(seed) >> 3) as u8).collect()
}

#[test]
fn a_host_connects_writes_and_reads() {
    let served = Served::plain();
    let (admin, mut queue) = Host::pair(&served);
    assert_eq!((admin.accepted.crqsize, queue.accepted.crqsize), (32, 64));
    for (blocks, seed) in [(1, 3), (8, 5), (128, 7), (2048, 11)] {
        let data = pattern(blocks as usize * 512, seed);
        assert_eq!(queue.write(1, 64, &data), Status::SUCCESS);
        assert_eq!(queue.read(1, 64, blocks).unwrap(), data, "{blocks}");
    }
    for bytes in [512, 4096] {
        let data = pattern(bytes, 13);
        assert_eq!(queue.write_in_capsule(1, 8, &data), Status::SUCCESS);
        assert_eq!(queue.read(1, 8, bytes as u32 / 512).unwrap(), data);
    }
    // Zeros have no buffer.
    assert_eq!(queue.read(2, 0, 2048).unwrap(), vec![0; 1 << 20]);
    assert_eq!(queue.read(2, 5, 1).unwrap(), vec![0; 512]);
}

#[test]
fn identify_says_what_the_transport_has() {
    let served = Served::with(
        Options { in_capsule_bytes: 8192, ..Options::default() },
        &[("null", DeviceKind::Null { bytes: 1 << 30 })],
    );
    let mut admin = Host::admin(&served);
    let identify = Command { opcode: admin::IDENTIFY, cdw10: u32::from(cns::CONTROLLER), ..Command::default() };
    let page = admin.fetch(identify, 4096).unwrap();
    let dword = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    // SGLS: keyed descriptors and offsets in the capsule; IOCCSZ, IORCSZ; ICDOFF, FCATT and MSDBD.
    assert_eq!(dword(536), 1 | 1 << 2 | 1 << 20);
    assert_eq!((dword(1792), dword(1796)), ((64 + 8192) / 16, 1));
    assert_eq!((page[1800], page[1801], page[1802], page[1803]), (0, 0, 0, 1));
    let mut queue = admin.queue(&served, 1);
    assert_eq!(queue.write_in_capsule(1, 0, &[1; 8192]), Status::SUCCESS);
}

/// The response invalidates the key of a command that asks for it, whatever the command's outcome; and no other key.
#[test]
fn responses_invalidate_keys() {
    let served = Served::plain();
    let (admin, queue) = Host::pair(&served);
    drop(queue);
    for (qid, opcode, nsid, status) in [
        (2, io::READ, 1, Status::SUCCESS),
        (3, io::WRITE, 1, Status::SUCCESS),
        (4, io::READ, 77, Status::INVALID_NAMESPACE.do_not_retry()),
    ] {
        let mut queue = admin.queue(&served, qid);
        let plain = queue.send_command(queue.read_command(1, 0, 8), &[]);
        let (done, invalidated) = queue.response();
        assert_eq!((done.cid, invalidated), (plain, None));
        let range = KeyedSgl { invalidate: true, ..queue.range(0, 4096) };
        let command = Command { sgl: range.descriptor(), ..Command::blocks(opcode, nsid, 0, 8) };
        queue.send_command(command, &[]);
        let (done, invalidated) = queue.response();
        assert_eq!((done.status, invalidated), (status, Some(range.key)), "{opcode:#x}");
    }
}

/// A queue with more commands than the send queue of the target has places, and than both sides agreed to have READs:
/// commands wait for their turn, and each has its own data.
#[test]
fn commands_wait_for_credit() {
    let served = Served::plain();
    let (admin, _queue) = Host::pair(&served);
    let mut queue = admin.queue_of(&served, 2, 1000, 1000);
    assert_eq!(queue.reads.serves, READS.serves);
    let data = pattern(512 * 1000, 17);
    queue.memory.write(0, &data);
    let mut expected = Vec::new();
    for block in 0..999_u64 {
        let sgl = queue.sgl(block as usize * 512, 512);
        expected.push(queue.send_command(Command { sgl, ..Command::blocks(io::WRITE, 1, block, 1) }, &[]));
    }
    let mut done: Vec<u16> = (0..999)
        .map(|_| queue.response().0)
        .map(|it| {
            assert!(it.status.is_ok(), "{}", it.status);
            it.cid
        })
        .collect();
    done.sort_unstable();
    assert_eq!(done, expected);
    queue.memory.write(0, &vec![0; data.len()]);
    for block in 0..999_u64 {
        let sgl = queue.sgl(block as usize * 512, 512);
        queue.send_command(Command { sgl, ..Command::blocks(io::READ, 1, block, 1) }, &[]);
    }
    (0..999).for_each(|_| assert!(queue.response().0.status.is_ok()));
    let mut read = vec![0; 999 * 512];
    queue.memory.read(0, &mut read);
    assert!(read == data[..read.len()], "each block has come to its place");
}

#[test]
fn many_hosts_and_reactors_keep_their_data_apart() {
    let served =
        Served::with(Options { reactors: 3, ..Options::default() }, &[("mem", DeviceKind::Memory { bytes: 64 << 20 })]);
    let hosts: Vec<_> = (0..4)
        .map(|number: u64| {
            let served = (served.verbs.clone(), served.address);
            std::thread::spawn(move || {
                let admin = Host::admin_of(&served.0, served.1);
                let mut queues: Vec<Host> =
                    (1..=3).map(|qid| admin.queue_at(&served.0, served.1, qid, 64, 64)).collect();
                for round in 0..20_u64 {
                    for (index, queue) in queues.iter_mut().enumerate() {
                        let lba = (number * 3 + index as u64) * 2048;
                        let data = pattern(64 << 10, (round * 100 + lba) as u32 | 1);
                        assert_eq!(queue.write(1, lba, &data), Status::SUCCESS);
                        assert!(queue.read(1, lba, 128).unwrap() == data);
                    }
                }
            })
        })
        .collect();
    hosts.into_iter().for_each(|host| host.join().unwrap());
    until(|| served.connections() == 0);
    let stats = served.target.stats();
    assert_eq!(stats.reactors.iter().map(|it| it.pacer.in_flight + it.pending_io).sum::<u64>(), 0);
    assert!(stats.reactors.iter().all(|it| it.total_io_qpairs > 0), "connections are spread");
}

/// Discovery over RDMA names the listeners of both transports, each with what is special to its transport.
#[test]
fn discovery_names_both_transports() {
    let served = Served::plain();
    let tcp = served.target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    let mut host = Host::open(&served, Host::request(0, 32, 0));
    assert!(host.connect(0, 32, DYNAMIC_CONTROLLER, DISCOVERY_NQN).status.is_ok());
    host.enable();
    let bytes = 4 * 1024;
    let get = Command {
        opcode: admin::GET_LOG_PAGE,
        cdw10: (bytes as u32 / 4 - 1) << 16 | u32::from(log::DISCOVERY),
        ..Command::default()
    };
    let page = host.fetch(get, bytes).unwrap();
    let header = DiscoveryHeader::read(page[..1024].first_chunk().unwrap());
    assert_eq!(header.numrec, 3);
    let entry = |index: usize| DiscoveryEntry::read(page[1024 * index..].first_chunk().unwrap());
    let rdma = RdmaAddress {
        qptype: RdmaAddress::RELIABLE_CONNECTED,
        prtype: RdmaAddress::UNSPECIFIED,
        cms: RdmaAddress::RDMA_CM,
        pkey: 0,
    };
    for (index, subtype) in [(1, DiscoveryEntry::CURRENT_DISCOVERY), (2, DiscoveryEntry::NVM)] {
        let entry = entry(index);
        assert_eq!((entry.trtype, entry.subtype), (DiscoveryEntry::RDMA, subtype));
        assert_eq!(RdmaAddress::read(&entry.tsas), rdma);
        assert_eq!(entry.trsvcid.as_str(), Some(&*served.address.port().to_string()));
    }
    let of_tcp = entry(3);
    assert_eq!((of_tcp.trtype, of_tcp.tsas), (DiscoveryEntry::TCP, [0; 256]));
    assert_eq!(of_tcp.trsvcid.as_str(), Some(&*tcp.port().to_string()));
}

/// Both transports may have the same port, and are removed one by one.
#[test]
fn transports_have_ports_of_their_own() {
    let served = Served::plain();
    // The port is one that is free for TCP: on the fabric all are at that address.
    let address = served.target.add_listener(NQN, "127.0.0.2:0".parse().unwrap()).unwrap();
    let (tcp, rdma) = (Portal::from(address), Portal::rdma(address));
    assert_eq!(served.target.add_rdma_listener(NQN, address).unwrap(), address);
    let first = Portal::rdma(served.address);
    assert_eq!(served.target.subsystems()[0].listeners, [first, tcp, rdma]);
    drop(Host::admin_of(&served.verbs, address));
    served.target.remove_listener(NQN, rdma).unwrap().wait();
    assert_eq!(served.target.subsystems()[0].listeners, [first, tcp]);
    let dialing = Dialing::to(&served.verbs, address, 4);
    let refused = dialing.connect(&Host::request(0, 32, 0).write(), READS).err().unwrap();
    assert_eq!(refused.0, None, "nobody listens there");
    served.target.add_rdma_listener(NQN, address).unwrap();
    served.target.remove_listener(NQN, tcp).unwrap().wait();
    drop(Host::admin_of(&served.verbs, address));
    served.assert_alive();
}

/// The removal of a listener ends the connections that came in on it.
#[test]
fn a_removed_listener_takes_its_connections_along() {
    let served = Served::plain();
    let (mut admin, mut queue) = Host::pair(&served);
    served.target.remove_listener(NQN, Portal::rdma(served.address)).unwrap().wait();
    assert!(admin.is_ended() && queue.is_ended());
    until(|| served.connections() == 0);
}

/// A host that has no receive for responses keeps its own data afloat, and nothing else. Its data count as in flight
/// until they have left the target's memory.
#[test]
fn a_host_that_takes_no_responses_hurts_nobody_else() {
    let mut options = Options::default();
    options.pacing.budget_bytes = Some(4 << 20);
    let served = Served::with(options, &[("mem", DeviceKind::Memory { bytes: 64 << 20 })]);
    let (admin, mut other) = Host::pair(&served);
    let mut slow = admin.queue_of(&served, 2, 32, 2);
    for block in 0..24 {
        let sgl = slow.sgl(block as usize * (64 << 10), 64 << 10);
        slow.send_command(Command { sgl, ..Command::blocks(io::READ, 1, block * 128, 128) }, &[]);
    }
    // Two responses are there. Nobody takes them, and the others are on their way.
    let in_flight = || served.target.stats().reactors[0].pacer.in_flight_bytes;
    until(|| in_flight() >= 64 << 10);
    for round in 0..50 {
        let data = pattern(128 << 10, round * 2 + 1);
        assert_eq!(other.write(1, 8192, &data), Status::SUCCESS);
        assert!(other.read(1, 8192, 256).unwrap() == data);
    }
    let held = in_flight();
    assert!((64 << 10..=4 << 20).contains(&held), "{held} bytes are afloat");
    assert!(served.target.stats().reactors[0].buffer_bytes <= 4 << 20);
    let done: Vec<_> = (0..24).map(|_| slow.response().0.status).collect();
    assert!(done.iter().all(|status| status.is_ok()), "{done:?}");
    until(|| in_flight() == 0);
}

/// A device that is slow has commands inside when their host goes: nothing stays behind.
#[test]
fn a_host_that_goes_amid_io_leaves_nothing_behind() {
    let slow = Latency { avg_read_us: 50_000, avg_write_us: 50_000, ..Latency::default() };
    let served = Served::with(
        Options::default(),
        &[
            ("mem", DeviceKind::Memory { bytes: 64 << 20 }),
            ("slow", DeviceKind::Delay { base: "mem".into(), latency: slow }),
        ],
    );
    let (admin, mut queue) = Host::pair(&served);
    for block in 0..32_u64 {
        let opcode = if block % 2 == 0 { io::READ } else { io::WRITE };
        let sgl = queue.sgl(block as usize * (64 << 10), 64 << 10);
        queue.send_command(Command { sgl, ..Command::blocks(opcode, 1, block * 128, 128) }, &[]);
    }
    queue.poll();
    drop(queue);
    drop(admin);
    until(|| served.connections() == 0);
    let is_empty = || {
        let reactor = &served.target.stats().reactors[0];
        (reactor.pacer.in_flight, reactor.pending_io, reactor.unassociated_qpairs) == (0, 0, 0)
    };
    until(is_empty);
    served.assert_alive();
}

/// Calls that take something from hosts tell when the last op of these hosts has left its device: also an op whose pair
/// has ended.
#[test]
fn departures_wait_for_ops_of_pairs_that_have_ended() {
    type Call = fn(&Served) -> Departure;
    let calls: [Call; 4] = [
        |served| served.target.remove_listener(NQN, Portal::rdma(served.address)).unwrap(),
        |served| served.target.remove_host(NQN, HOST).unwrap(),
        |served| served.target.remove_namespace(NQN, 1).unwrap(),
        |served| served.target.delete_subsystem(NQN).unwrap(),
    ];
    for call in calls {
        let served = Served::with(
            Options { reactors: 2, ..Options::default() },
            &[
                ("mem", DeviceKind::Memory { bytes: 1 << 20 }),
                ("stuck", DeviceKind::Faulty { base: "mem".into(), seed: 1 }),
            ],
        );
        served.target.add_host(NQN, HOST).unwrap();
        served.target.allow_any_host(NQN, false).unwrap();
        let stuck = Fault { on: FaultOn::Writes, effect: Effect::Stuck, one_in: 1, count: Some(1) };
        served.target.set_faults("stuck", &[stuck]).unwrap();
        let inside = || served.target.stats().devices.iter().map(|device| device.in_device).sum::<u64>();
        let (_admin, mut queue) = Host::pair(&served);
        queue.send_command(queue.write_command(1, 0, 4096), &[]);
        until(|| {
            queue.poll();
            inside() == 1
        });
        let departure = call(&served);
        let is_free = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(inside(), 1);
                is_free.store(true, Ordering::SeqCst);
                served.target.set_faults("stuck", &[]).unwrap();
            });
            departure.wait();
            assert!(is_free.load(Ordering::SeqCst), "the device has the write");
        });
        assert_eq!(inside(), 0);
    }
}

/// A host that is removed is disconnected, with all its queues.
#[test]
fn a_removed_host_loses_its_queues() {
    let served =
        Served::with(Options { reactors: 3, ..Options::default() }, &[("null", DeviceKind::Null { bytes: 1 << 30 })]);
    served.target.add_host(NQN, HOST).unwrap();
    served.target.allow_any_host(NQN, false).unwrap();
    let mut admin = Host::admin(&served);
    let mut queues: Vec<Host> = (1..=3).map(|qid| admin.queue(&served, qid)).collect();
    served.target.remove_host(NQN, HOST).unwrap().wait();
    assert!(served.target.subsystems()[0].controllers.is_empty());
    assert!(admin.is_ended() && queues.iter_mut().all(Host::is_ended));
    until(|| served.connections() == 0);
}

#[test]
fn a_shutdown_lets_commands_end() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(&served);
    assert_eq!(queue.write(1, 0, &[7; 4096]), Status::SUCCESS);
    assert!(served.target.shutdown(std::time::Duration::from_secs(60)));
    assert!(queue.is_ended());
}

/// The work and the completions of each kind of command are those of docs/nvme-rdma.md.
#[test]
fn a_command_costs_what_the_manual_says() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(&served);
    let counts = || {
        let rdma = served.target.stats().reactors[0].rdma;
        (rdma.posts, rdma.completions)
    };
    // Two Connects, whose data are fetched, and two commands about properties.
    until(|| counts() == (2 * 2 + 2, 2 * 3 + 2 * 2));
    let range = queue.range(0, 4096);
    let blocks = |opcode| Command { sgl: range.descriptor(), ..Command::blocks(opcode, 1, 0, 8) };
    let in_capsule = Command { sgl: Sgl::in_capsule(4096), ..blocks(io::WRITE) };
    for (command, in_capsule, posts, completions) in
        [(blocks(io::READ), 0, 2, 2), (blocks(io::WRITE), 0, 2, 3), (in_capsule, 4096, 1, 2)]
    {
        let before = counts();
        for _ in 0..100 {
            assert!(queue.command_with(command, &vec![1; in_capsule]).status.is_ok());
        }
        // The last response completes at the target after it has come to the host.
        until(|| counts().1 >= before.1 + 100 * completions);
        assert_eq!(counts(), (before.0 + 100 * posts, before.1 + 100 * completions), "{:#x}", command.opcode);
    }
}

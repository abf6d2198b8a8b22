//! Hosts over RDMA that break the rules: a connection ends or a command fails, and nothing else notices.

mod rdma;

use nvme::spec::fabrics::DYNAMIC_CONTROLLER;
use nvme::spec::opcode::io;
use nvme::spec::rdma::{ConnectRequest, KeyedSgl, Reject};
use nvme::spec::{Command, Sgl, Status};
use nvme_target::device::{DeviceKind, Effect, Fault, FaultOn};
use nvme_target::{Limits, Options};
use rdma::{Dialing, Host, NQN, READS, Served, on_soft_roce, until, wait_for};
use verbs::Verbs;
use verbs::stack::Reads;
use verbs::work::{self, Request, Work};

#[test]
#[ignore = "boots a guest: make test-guest"]
fn hostile_hosts_on_soft_roce() {
    // Without `breaches_end_the_connection`: Soft-RoCE reports a message that is too long as a fault of the receiver.
    on_soft_roce(&[
        "each_wrong_request_has_its_reason",
        "a_target_that_is_full_refuses",
        "wrong_descriptors_are_errors",
        "a_wrong_key_ends_its_connection_and_no_other",
        "more_commands_than_the_queue_has_entries_are_a_breach",
        "a_queue_begins_with_connect",
        "a_pair_in_error_ends_its_association_alone",
        "responses_wait_for_the_receives_of_the_host",
    ]);
}

fn refusal(served: &Served, request: ConnectRequest) -> Option<Reject> {
    refusal_of(served, &request.write(), READS)
}

fn refusal_of(served: &Served, private_data: &[u8], reads: Reads) -> Option<Reject> {
    Host::asking(&served.verbs, served.address, private_data, reads).err().expect("refused").0
}

#[test]
fn each_wrong_request_has_its_reason() {
    let served = Served::plain();
    let (admin, _queue) = Host::pair(&served);
    let good = Host::request(2, 64, admin.cntlid);
    for (request, reason) in [
        (ConnectRequest { recfmt: 7, ..good }, Reject::RECFMT),
        (ConnectRequest { qid: 65, ..good }, Reject::QID),
        (ConnectRequest { qid: u16::MAX, ..good }, Reject::QID),
        (ConnectRequest { hsqsize: 0, ..good }, Reject::HSQSIZE),
        (ConnectRequest { hsqsize: 1024, ..good }, Reject::HSQSIZE),
        (ConnectRequest { hsqsize: u16::MAX, ..good }, Reject::HSQSIZE),
        (ConnectRequest { hrqsize: 0, ..good }, Reject::HRQSIZE),
        (ConnectRequest { cntlid: admin.cntlid ^ 1, ..good }, Reject::CNTLID),
    ] {
        assert_eq!(refusal(&served, request), Some(reason), "{request:?}");
    }
    assert_eq!(refusal_of(&served, &good.write(), Reads { serves: 0, issues: 4 }), Some(Reject::IRD));
    // Private data are padded with zeros: none at all ask for an admin queue of one entry.
    assert_eq!(refusal_of(&served, &[], READS), Some(Reject::HSQSIZE));
    assert_eq!(refusal_of(&served, &[0xff; 56], READS), Some(Reject::RECFMT));
    served.assert_alive();
}

#[test]
fn a_target_that_is_full_refuses() {
    let limits = Limits { connections: 2, guests: 2, ..Limits::default() };
    let served =
        Served::with(Options { limits, ..Options::default() }, &[("null", DeviceKind::Null { bytes: 1 << 30 })]);
    let pair = Host::pair(&served);
    assert_eq!(refusal(&served, Host::request(0, 32, 0)), Some(Reject::NO_RESOURCES));
    drop(pair);
    until(|| served.connections() == 0);
    let _pair = Host::pair(&served);
}

#[test]
fn a_device_without_room_for_registrations_refuses() {
    let served = Served::plain();
    // The first connection needs memory for receives, zeros and responses.
    for fails in 1..=3 {
        let dialing = Dialing::to(&served.verbs, served.address, 4);
        served.fabric().fail_registrations(fails);
        let refused = dialing.connect(&Host::request(0, 32, 0).write(), READS).err().unwrap();
        assert_eq!(refused.0, Some(Reject::NO_RESOURCES), "{fails}");
        served.fabric().fail_registrations(0);
    }
    assert!(rdma::serving::warnings(&served.target).iter().any(|line| line.contains("ulimit -l")));
    served.assert_alive();
}

/// A command whose buffer cannot be registered fails, and the next one may succeed.
#[test]
fn commands_fail_without_registration() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(&served);
    for bytes in [4096, 64 << 10] {
        served.fabric().fail_registrations(1);
        assert_eq!(queue.write(1, 0, &vec![1; bytes]), Status::INTERNAL_ERROR);
        assert_eq!(queue.write(1, 0, &vec![1; bytes]), Status::SUCCESS);
    }
    // Buffers of another size are not registered yet.
    served.fabric().fail_registrations(1);
    assert_eq!(queue.read(1, 0, 512), Err(Status::INTERNAL_ERROR));
    assert_eq!(queue.read(1, 0, 8).unwrap(), [1; 4096]);
    until(|| served.target.stats().reactors[0].pacer.in_flight == 0);
}

/// Descriptors that do not fit their command: an error each, and nothing is read or written.
#[test]
fn wrong_descriptors_are_errors() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(&served);
    assert_eq!(queue.write(1, 0, &[0x11; 8192]), Status::SUCCESS);
    let before = vec![0x22; 16 << 10];
    let range = queue.range(0, 4096);
    let length = Status::DATA_SGL_LENGTH_INVALID.do_not_retry();
    let kind = Status::SGL_DESCRIPTOR_TYPE_INVALID.do_not_retry();
    let offset = Status::SGL_OFFSET_INVALID.do_not_retry();
    for (opcode, sgl, data, status) in [
        (io::READ, KeyedSgl { length: 4095, ..range }.descriptor(), 0, length),
        (io::WRITE, KeyedSgl { length: 512, ..range }.descriptor(), 0, length),
        (io::READ, KeyedSgl { length: 0, ..range }.descriptor(), 0, length),
        (io::WRITE, KeyedSgl { length: KeyedSgl::MAX_BYTES, ..range }.descriptor(), 0, length),
        (io::READ, KeyedSgl { address: u64::MAX - 100, ..range }.descriptor(), 0, length),
        (io::READ, Sgl::transport(4096), 0, kind),
        (io::WRITE, Sgl { id: 0x00, ..Sgl::transport(4096) }, 0, kind),
        (io::READ, Sgl::in_capsule(4096), 0, kind),
        (io::WRITE, Sgl::in_capsule(4096), 0, length),
        (io::WRITE, Sgl::in_capsule(4096), 4095, length),
        (io::WRITE, Sgl::in_capsule(4095), 4096, length),
        (io::WRITE, Sgl::in_capsule(2048), 2048, length),
        (io::WRITE, Sgl { address: 1, ..Sgl::in_capsule(4096) }, 4096, offset),
        (io::WRITE, Sgl { address: u64::MAX, ..Sgl::in_capsule(4096) }, 4096, offset),
        (io::WRITE, range.descriptor(), 512, Status::INVALID_FIELD.do_not_retry()),
    ] {
        queue.memory.write(0, &before);
        let command = Command { sgl, ..Command::blocks(opcode, 1, 0, 8) };
        assert_eq!(queue.command_with(command, &vec![0x33; data]).status, status, "{opcode:#x} {sgl:?} {data}");
        let mut after = vec![0; before.len()];
        queue.memory.read(0, &mut after);
        assert!(after == before, "{sgl:?}: memory of the host has changed");
    }
    // A longer range than the command needs is fine: the rest stays as it is.
    queue.memory.write(0, &before);
    let command = Command { sgl: queue.sgl(0, 16 << 10), ..Command::blocks(io::READ, 1, 0, 8) };
    assert!(queue.command(command).status.is_ok());
    let mut after = vec![0; before.len()];
    queue.memory.read(0, &mut after);
    assert!(after[..4096] == [0x11; 4096] && after[4096..] == before[4096..]);
    assert_eq!(queue.read(1, 0, 16).unwrap(), [0x11; 8192], "no write has come through");
}

/// A key that the host has not given, or of another connection's domain: the card refuses it, and the connection ends.
#[test]
fn a_wrong_key_ends_its_connection_and_no_other() {
    let served = Served::plain();
    let (admin, mut other) = Host::pair(&served);
    assert_eq!(other.write(1, 0, &[0x44; 4096]), Status::SUCCESS);
    let foreign = other.range(0, 4096);
    other.memory.write(0, &[0x55; 4096]);
    for (qid, opcode) in [(2, io::READ), (3, io::WRITE)] {
        for key in [foreign.key, 0, u32::MAX, 0xdead_beef] {
            let mut bad = admin.queue(&served, qid);
            let range = KeyedSgl { key, ..foreign };
            bad.send_command(Command { sgl: range.descriptor(), ..Command::blocks(opcode, 1, 0, 8) }, &[]);
            assert!(bad.is_ended());
            drop(bad);
            until(|| served.connections() == 2);
        }
        // Beyond the end of its memory.
        let mut bad = admin.queue(&served, qid);
        let range = KeyedSgl { address: bad.memory.address() + (64 << 20), ..bad.range(0, 4096) };
        bad.send_command(Command { sgl: range.descriptor(), ..Command::blocks(opcode, 1, 0, 8) }, &[]);
        assert!(bad.is_ended());
        drop(bad);
        until(|| served.connections() == 2);
    }
    let mut memory = [0; 4096];
    other.memory.read(0, &mut memory);
    assert_eq!(memory, [0x55; 4096], "nobody else's memory has changed");
    assert_eq!(other.read(1, 0, 8).unwrap(), [0x44; 4096]);
    until(|| served.target.stats().reactors[0].pacer.in_flight == 0);
}

/// Messages that are too short or too long for capsules, and identifiers of commands in progress.
#[test]
fn breaches_end_the_connection() {
    let served = Served::plain();
    let (admin, mut other) = Host::pair(&served);
    let errors = || served.target.stats().reactors[0].protocol_errors;
    for (index, bytes) in [0, 1, 63, 64 + 4096 + 1, 100 << 10].into_iter().enumerate() {
        let mut bad = admin.queue(&served, 2);
        bad.send(&vec![0; bytes]);
        assert!(bad.is_ended(), "{bytes}");
        drop(bad);
        until(|| served.connections() == 2 && errors() == index as u64 + 1);
    }
    // The identifier of a command in progress. The device has it for as long as the test likes.
    let before = errors();
    let mut bad = admin.queue(&served, 2);
    let read = bad.read_command(1, 0, 8);
    let both: Vec<_> = (0..200).map(|_| Command { cid: 5, flags: Command::PSDT_SGL, ..read }).collect();
    for command in both {
        bad.send(&command.write());
    }
    // More than the queue has entries, or one identifier twice: whichever the target sees first.
    assert!(bad.is_ended());
    drop(bad);
    until(|| errors() == before + 1);
    assert_eq!(other.write(1, 0, &[1; 4096]), Status::SUCCESS);
}

/// A queue of 8 entries with 64 commands under way: beyond what the host has told. The commands of others go on.
#[test]
fn more_commands_than_the_queue_has_entries_are_a_breach() {
    let served = Served::with(
        Options::default(),
        &[
            ("mem", DeviceKind::Memory { bytes: 64 << 20 }),
            ("stuck", DeviceKind::Faulty { base: "mem".into(), seed: 1 }),
        ],
    );
    let (admin, mut other) = Host::pair(&served);
    let never = Fault { on: FaultOn::All, effect: Effect::Never, one_in: 1, count: None };
    served.target.set_faults("stuck", &[never]).unwrap();
    let mut bad = admin.queue_of(&served, 2, 8, 64);
    for _ in 0..9 {
        let sgl = bad.sgl(0, 4096);
        bad.send_command(Command { sgl, ..Command::blocks(io::READ, 1, 0, 8) }, &[]);
    }
    assert!(bad.is_ended());
    until(|| served.target.stats().reactors[0].protocol_errors == 1);
    assert!(rdma::serving::warnings(&served.target).iter().any(|line| line.contains("9 commands outstanding")));
    served.target.set_faults("stuck", &[]).unwrap();
    assert_eq!(other.write(1, 0, &[1; 4096]), Status::SUCCESS);
    until(|| served.target.stats().reactors[0].pacer.in_flight == 0);
}

/// Before Connect a queue takes a few commands, and answers only Connect.
#[test]
fn a_queue_begins_with_connect() {
    let served = Served::plain();
    let mut host = Host::open(&served, Host::request(0, 32, 0));
    let read = host.read_command(1, 0, 8);
    assert_eq!(host.command(read).status, Status::COMMAND_SEQUENCE_ERROR.do_not_retry());
    let mut data = [0; 4096];
    host.memory.read(0, &mut data);
    assert_eq!(data, [0; 4096]);
    // Data of Connect that are too short, too long, or not there.
    for bytes in [0, 1023, 1025, 64 << 10] {
        let connect = nvme::spec::fabrics::Connect { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 0 };
        let sgl = host.sgl(0, bytes);
        let status = host.command(Command { sgl, ..connect.command() }).status;
        assert_eq!(status, Status::DATA_SGL_LENGTH_INVALID.do_not_retry(), "{bytes}");
    }
    assert!(host.connect(0, 32, DYNAMIC_CONTROLLER, NQN).status.is_ok());
}

/// A pair that fails amid I/O takes its own connection along.
#[test]
fn a_pair_in_error_ends_its_association_alone() {
    let served = Served::plain();
    let (_admin, mut other) = Host::pair(&served);
    for round in 0..8 {
        let (admin, mut queue) = Host::pair(&served);
        for block in 0..32_u64 {
            let opcode = if block % 2 == 0 { io::READ } else { io::WRITE };
            let sgl = queue.sgl(block as usize * 4096, 4096);
            queue.send_command(Command { sgl, ..Command::blocks(opcode, 1, block * 8, 8) }, &[]);
        }
        if round % 2 == 1 {
            queue.poll();
        }
        queue.fail();
        assert_eq!(other.write(1, 4096, &[round; 4096]), Status::SUCCESS);
        drop((admin, queue));
        until(|| served.connections() == 2);
    }
    assert_eq!(other.read(1, 4096, 8).unwrap(), [7; 4096]);
    until(|| served.target.stats().reactors[0].pacer.in_flight == 0);
}

/// The device goes amid I/O: connections and listeners end, and the target goes on over TCP.
#[test]
fn a_device_that_goes_takes_its_connections_along() {
    let served = Served::plain();
    let tcp = served.target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (mut admin, mut queue) = Host::pair(&served);
    for block in 0..32_u64 {
        let sgl = queue.sgl(block as usize * 4096, 4096);
        queue.send_command(Command { sgl, ..Command::blocks(io::READ, 1, block * 8, 8) }, &[]);
    }
    served.fabric().unplug();
    assert!(admin.is_ended() && queue.is_ended());
    until(|| served.connections() == 0);
    let line = wait_for(|| rdma::serving::warnings(&served.target).into_iter().find(|line| line.contains("has gone")));
    assert!(line.contains(&format!("rdma://{}", served.address)), "{line}");
    let reactor = &served.target.stats().reactors[0];
    assert_eq!((reactor.pacer.in_flight, reactor.pending_io), (0, 0));
    drop(std::net::TcpStream::connect(tcp).unwrap());
}

/// A peer that knows each key in use writes memory itself: none of the target's memory is open to peers, and that of
/// other hosts belongs to other domains. READs of peers are not served at all.
#[test]
fn the_target_gives_no_rights_to_its_memory() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(&served);
    assert_eq!(queue.write(1, 0, &[9; 4096]), Status::SUCCESS);
    let registered = served.fabric().registered();
    // Of each host the memory and the receives; of the target receives, zeros, two queues' responses, and a buffer.
    assert_eq!(registered.len(), 2 * 2 + 5);
    for (address, key) in registered {
        let mut bad = Host::open(&served, Host::request(0, 32, 0));
        let parts = [bad.memory.part(0..64)];
        let work = |request| Work { id: 1, request, parts: &parts, signaled: true };
        bad.verbs.post(&bad.pair, work(Request::Read { address, key })).expect_err("no READ");
        bad.verbs.post(&bad.pair, work(Request::Write { address, key })).unwrap();
        until(|| {
            bad.poll();
            !bad.failures.is_empty()
        });
        assert_eq!(bad.failures[0], work::Status::RemoteAccess, "{key:#x}");
    }
    assert_eq!(queue.read(1, 0, 8).unwrap(), [9; 4096]);
}

/// On iWARP a READ would have to open the target's memory to the host.
#[test]
fn an_iwarp_device_is_refused() {
    let served = Served::plain();
    served.fabric().be_iwarp();
    assert_eq!(refusal(&served, Host::request(0, 32, 0)), Some(Reject::NO_RESOURCES));
    let line = wait_for(|| rdma::serving::warnings(&served.target).pop());
    assert!(line.contains("it is an iWARP device: give one of InfiniBand or RoCE"), "{line}");
}

/// A host with 24 commands tells of two receives, and gives neither back: no more responses than two are under way.
#[test]
fn responses_wait_for_the_receives_of_the_host() {
    let served = Served::plain();
    let (admin, mut other) = Host::pair(&served);
    let mut slow = admin.queue_of(&served, 2, 32, 2);
    let posts = || served.target.stats().reactors[0].rdma.posts;
    let before = posts();
    for _ in 0..24 {
        let sgl = slow.sgl(0, 512);
        slow.send_command(Command { sgl, ..Command::blocks(io::READ, 2, 0, 1) }, &[]);
    }
    // Two have come, and two are under way: a WRITE and a SEND each.
    until(|| posts() >= before + 8);
    for _ in 0..50 {
        assert_eq!(other.read(2, 0, 1).unwrap(), [0; 512]);
    }
    assert_eq!(posts(), before + 8 + 50 * 2);
    let done: Vec<_> = (0..24).map(|_| slow.response().0.status).collect();
    assert!(done.iter().all(|status| status.is_ok()), "{done:?}");
}

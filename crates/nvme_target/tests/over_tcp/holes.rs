//! Hosts that break the protocol, go away or stand still: it costs them their connection, and nobody else anything.
//! Among them the known holes of other targets.

use crate::raw;

use std::io::Write;
use std::time::Duration;

use nvme::pdu::{FatalStatus, H2cData, IcReq, PduType, R2t};
use nvme::spec::fabrics::Connect;
use nvme::spec::opcode::admin;
use nvme::spec::{Command, Sgl, Status};
use nvme_target::device::{DeviceKind, Effect, Fault, FaultOn, Latency};
use nvme_target::{Limits, Options};
use raw::{HOST, Host, NQN, Served};

const FIELD: u16 = FatalStatus::InvalidHeaderField as u16;
const SEQUENCE: u16 = FatalStatus::SequenceError as u16;
const RANGE: u16 = FatalStatus::OutOfRange as u16;
const LIMIT: u16 = FatalStatus::LimitExceeded as u16;

/// Memory behind a delay of reads: commands can be caught in the device.
fn slow(options: Options, ms: u64) -> Served {
    let latency = Latency { avg_read_us: ms * 1000, p99_read_us: ms * 1000, avg_write_us: 0, p99_write_us: 0 };
    Served::with(
        options,
        &[("mem", DeviceKind::Memory { bytes: 64 << 20 }), ("slow", DeviceKind::Delay { base: "mem".into(), latency })],
    )
}

/// Nothing is left of connections that have gone: no command, no buffer, no byte that the pacer counts.
fn assert_clean(served: &Served) {
    raw::until(|| {
        let stats = served.target.stats();
        let reactor = &stats.reactors[0];
        stats.hosts.iter().all(|host| host.connections == 0 && host.in_flight_bytes == 0 && host.held_now == 0)
            && reactor.pending_io == 0
            && reactor.pacer.in_flight == 0
            && reactor.pacer.held_now == 0
            && reactor.admin_qpairs + reactor.io_qpairs == 0
            && stats.devices.iter().all(|device| device.in_device == 0)
    });
}

fn part(ready: &R2t, offset: u32, length: u32, last: bool) -> H2cData {
    H2cData { cid: ready.cid, ttag: ready.ttag, offset, length, last }
}

#[test]
fn host_data_that_nothing_asked_for() {
    let served = slow(Options::default(), 300);
    let data = vec![1; 4096];
    let stray = H2cData { cid: 0, ttag: 0, offset: 0, length: 4096, last: true };
    // Before Connect.
    let mut host = Host::open(served.address, false, false);
    host.send(&host.h2c(&stray, &data));
    assert_eq!(host.terminated(), (SEQUENCE, 0));
    // For a slot that is free, and one that never was.
    for ttag in [0, 1, 500, 0xffff] {
        let (_admin, mut queue) = Host::pair(served.address);
        assert_eq!(queue.write(1, 0, &data), Status::SUCCESS);
        queue.send(&queue.h2c(&H2cData { ttag, ..stray }, &data));
        assert_eq!(queue.terminated(), (FIELD, 10));
    }
    // For a Read, which is in the device: by its slot and its command.
    let (_admin, mut queue) = Host::pair(served.address);
    let cid = queue.send_command(Host::read_command(1, 0, 8), &[]);
    queue.send(&queue.h2c(&H2cData { cid, ..stray }, &data));
    assert_eq!(queue.terminated(), (FIELD, 10));
    // On an admin queue.
    let mut admin = Host::admin(served.address);
    admin.send(&admin.h2c(&stray, &data));
    assert_eq!(admin.terminated(), (FIELD, 10));
    served.assert_alive();
    drop(_admin);
    assert_clean(&served);
}

#[test]
fn host_data_that_differ_from_what_was_asked_for() {
    let served = Served::plain();
    let data = vec![1; 8192];
    type Change = fn(&mut H2cData);
    let cases: [(Change, (u16, u32)); 6] = [
        (|data| data.cid ^= 1, (FIELD, 8)),
        (|data| data.offset = 4096, (FIELD, 12)),
        (|data| data.offset = u32::MAX, (FIELD, 12)),
        (|data| data.length = 8192 + 512, (RANGE, 0)),
        (|data| data.last = false, (FIELD, 1)),
        (|data| data.length = 4096, (FIELD, 1)), // LAST before the end
    ];
    for (change, expected) in cases {
        let (_admin, mut queue) = Host::pair(served.address);
        let ready = queue.ready(1, 0, 8192);
        let mut header = part(&ready, 0, 8192, true);
        change(&mut header);
        let bytes = queue.h2c(&header, &vec![1; header.length as usize]);
        queue.send(&bytes);
        assert_eq!(queue.terminated(), expected);
    }
    // A second time, after it was complete.
    let (_admin, mut queue) = Host::pair(served.address);
    let ready = queue.ready(1, 0, 8192);
    let bytes = queue.h2c(&part(&ready, 0, 8192, true), &data);
    queue.send(&bytes);
    assert!(queue.response().status.is_ok());
    queue.send(&bytes);
    assert_eq!(queue.terminated(), (FIELD, 10));
    served.assert_alive();
    drop(_admin);
    assert_clean(&served);
}

#[test]
fn a_wrong_data_digest_fails_the_command_and_not_the_connection() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair_with(served.address, true);
    let old = vec![7; 8192];
    assert_eq!(queue.write(1, 0, &old), Status::SUCCESS);
    let wrong = |mut bytes: Vec<u8>| {
        *bytes.last_mut().unwrap() ^= 0x10;
        bytes
    };
    for wrong_part in [0, 1] {
        let ready = queue.ready(1, 0, 8192);
        for index in 0..2 {
            let header = part(&ready, index * 4096, 4096, index == 1);
            let bytes = queue.h2c(&header, &[9; 4096]);
            queue.send(&if index == wrong_part { wrong(bytes) } else { bytes });
        }
        assert!(queue.response().status.is(Status::TRANSIENT_TRANSPORT_ERROR));
    }
    let in_capsule = Command { sgl: Sgl::in_capsule(4096), cid: 99, ..Host::write_command(1, 0, 4096) };
    let bytes = wrong(queue.capsule(&in_capsule, &[9; 4096]));
    queue.send(&bytes);
    let done = queue.response();
    assert!(done.cid == 99 && done.status.is(Status::TRANSIENT_TRANSPORT_ERROR));
    assert_eq!(queue.read(1, 0, 16).unwrap(), old, "nothing of it was written");
    // The hole: a mismatch on a part that is not the last, then the connection goes.
    for _ in 0..20 {
        let (admin, mut queue) = Host::pair_with(served.address, true);
        let ready = queue.ready(1, 0, 8192);
        let bytes = wrong(queue.h2c(&part(&ready, 0, 4096, false), &[9; 4096]));
        queue.send(&bytes);
        drop((admin, queue));
    }
    // An admin command's data.
    let mut admin = Host::admin_of(served.address, NQN, HOST, true);
    let set = Command { cdw10: 0x16, sgl: Sgl::in_capsule(512), cid: 4, ..Command::new(admin::SET_FEATURES, 0) };
    let bytes = wrong(admin.capsule(&set, &[1; 512]));
    admin.send(&bytes);
    assert!(admin.response().status.is(Status::TRANSIENT_TRANSPORT_ERROR));
    served.assert_alive();
    drop((_admin, queue, admin));
    assert_clean(&served);
}

#[test]
fn a_wrong_header_digest_is_fatal() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair_with(served.address, true);
    let mut bytes = queue.capsule(&Host::read_command(1, 0, 8), &[]);
    bytes[72] ^= 1;
    let came = u32::from_le_bytes(bytes[72..76].try_into().unwrap());
    queue.send(&bytes);
    assert_eq!(queue.terminated(), (FatalStatus::HeaderDigestError as u16, came));
    // Digests that were not agreed on.
    let mut plain = Host::open(served.address, false, false);
    plain.send(&bytes);
    assert_eq!(plain.terminated(), (FIELD, 1));
    served.assert_alive();
}

#[test]
fn errors_in_the_handshake() {
    let served = Served::plain();
    let good = IcReq::asking(false, false).pdu();
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        bytes.to_vec()
    };
    let cases: [(Vec<u8>, (u16, u32)); 9] = [
        (with(8, 1), (FatalStatus::UnsupportedParameter as u16, 8)), // PFV
        (with(10, 32), (FIELD, 10)),                                 // HPDA
        (with(2, 24), (FIELD, 2)),                                   // HLEN
        (with(2, 0), (FIELD, 2)),
        (with(4, 127), (FIELD, 4)), // PLEN
        (with(5, 1), (FIELD, 4)),
        (with(0, 0x08), (FIELD, 0)), // no such unit
        (with(0, 0x01), (FIELD, 0)), // the controller's
        ({ with(0, 0x04)[..2].iter().copied().chain([72, 0, 72, 0, 0, 0]).chain([0; 64]).collect() }, (SEQUENCE, 0)),
    ];
    for (bytes, expected) in cases {
        let mut host = Host::tcp(served.address);
        host.send(&bytes);
        assert_eq!(host.terminated(), expected, "{:?}", &bytes[..16]);
    }
    // Twice.
    let mut host = Host::open(served.address, false, false);
    host.send(&good);
    assert_eq!(host.terminated(), (SEQUENCE, 0));
    // Garbage; and a host that ends it by itself.
    let mut host = Host::tcp(served.address);
    host.send(&[0xff; 4096]);
    assert!(host.is_closed());
    let mut host = Host::tcp(served.address);
    let mut goodbye = [0; 24];
    (goodbye[0], goodbye[2], goodbye[4]) = (PduType::H2cTermReq as u8, 24, 24);
    host.send(&goodbye);
    assert!(host.is_closed());
    served.assert_alive();
    assert_clean(&served);
}

#[test]
fn peers_that_are_gone_before_they_are_accepted_and_after_a_failed_start() {
    let served = Served::plain();
    for round in 0..200 {
        let stream = std::net::TcpStream::connect(served.address).unwrap();
        // A reset instead of an orderly end.
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        if round % 2 == 1 {
            let _ = (&stream).write_all(&[0; 7]);
        }
    }
    for _ in 0..50 {
        let mut host = Host::open(served.address, false, false);
        let done = host.connect(0, 32, 0xffff, "nqn.2016-06.io.spdk:none", HOST);
        assert!(!done.status.is_ok());
        // After a failure it may try again, and then really.
        assert!(host.connect(0, 32, 0xffff, NQN, HOST).status.is_ok());
    }
    served.assert_alive();
    assert_clean(&served);
}

#[test]
fn units_larger_than_agreed_on() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(served.address);
    let ready = queue.ready(1, 0, 1 << 20);
    assert_eq!(ready.length, 1 << 20);
    let mut header = queue.h2c(&part(&ready, 0, 4096, false), &[]);
    header.truncate(24);
    for plen in [u32::MAX, (2 << 20) + 24] {
        let (_admin, mut host) = Host::pair(served.address);
        host.ready(1, 0, 4096);
        let mut unit = header.clone();
        unit[4..8].copy_from_slice(&plen.to_le_bytes());
        host.send(&unit);
        assert_eq!(host.terminated(), (FIELD, 4));
    }
    // A capsule beyond IOCCSZ but within what admin commands may have: refused, not fatal.
    let (_admin, mut queue) = Host::pair(served.address);
    let command = Command { sgl: Sgl::in_capsule(8192), ..Host::write_command(1, 0, 8192) };
    assert!(queue.command(command, &[1; 8192]).status.is(Status::DATA_SGL_LENGTH_INVALID));
    let command = Command { sgl: Sgl::in_capsule(16_384), ..Host::write_command(1, 0, 16_384) };
    let bytes = queue.capsule(&command, &[1; 16_384]);
    let _ = queue.stream.write_all(&bytes);
    assert!(queue.is_closed());
    served.assert_alive();
}

#[test]
fn more_commands_than_the_queue_has_entries() {
    let served = Served::with(
        Options::default(),
        &[("mem", DeviceKind::Memory { bytes: 1 << 20 }), ("bad", DeviceKind::Faulty { base: "mem".into(), seed: 1 })],
    );
    let never = Fault { on: FaultOn::All, effect: Effect::Never, one_in: 1, count: None };
    served.target.set_faults("bad", &[never]).unwrap();
    let (_admin, mut queue) = Host::pair(served.address);
    let mut bytes = Vec::new();
    for cid in 0..129 {
        bytes.extend_from_slice(&queue.capsule(&Command { cid, ..Host::read_command(1, 0, 8) }, &[]));
    }
    queue.send(&bytes);
    assert_eq!(queue.terminated(), (LIMIT, 0));
    served.target.set_faults("bad", &[]).unwrap();
    served.assert_alive();
    drop((_admin, queue));
    assert_clean(&served);
}

/// The bytes that a host sends from ICReq to a write, as one stream; the host does not wait for the answers.
fn stream_of(host: &Host) -> Vec<u8> {
    let mut bytes = IcReq::asking(false, false).pdu().to_vec();
    let data = Host::connect_data(0xffff, NQN, HOST).write();
    bytes.extend_from_slice(&host.capsule(&Host::connect_command(0, 32), &data));
    let enable = nvme::spec::fabrics::PropertyAccess::set(0x14, 4, 0x0046_0001);
    bytes.extend_from_slice(&host.capsule(&enable, &[]));
    let identify = nvme::spec::Identify { cns: 1, cntid: 0, csi: 0 }.command(0);
    bytes.extend_from_slice(&host.capsule(&identify, &[]));
    bytes
}

#[test]
fn cut_off_after_every_byte() {
    let served = Served::plain();
    let bytes = stream_of(&Host::tcp(served.address));
    for end in 0..bytes.len() {
        let mut host = Host::tcp(served.address);
        host.send(&bytes[..end]);
    }
    // An I/O queue, in the middle of a capsule with data and of a transfer.
    let (_admin, queue) = Host::pair(served.address);
    let capsule = queue.capsule(&Command { sgl: Sgl::in_capsule(512), ..Host::write_command(1, 0, 512) }, &[3; 512]);
    drop((_admin, queue));
    let (admin, _) = Host::pair(served.address);
    for (index, end) in (0..capsule.len()).step_by(7).enumerate() {
        let mut queue = Host::open(served.address, false, false);
        let done = queue.connect(2 + index as u16 % 60, 32, admin.cntlid, NQN, HOST);
        if done.status.is_ok() {
            queue.send(&capsule[..end]);
        }
    }
    for end in [0, 1, 23, 24, 25, 4119] {
        let (_admin, mut queue) = Host::pair(served.address);
        let ready = queue.ready(1, 0, 4096);
        let bytes = queue.h2c(&part(&ready, 0, 4096, true), &[3; 4096]);
        queue.send(&bytes[..end]);
    }
    served.assert_alive();
    drop(admin);
    assert_clean(&served);
}

#[test]
fn one_byte_at_a_time_is_slow_and_right() {
    let served = Served::plain();
    let mut host = Host::tcp(served.address);
    let bytes = stream_of(&host);
    for byte in bytes {
        host.send(&[byte]);
    }
    assert!(matches!(host.unit().unwrap().pdu, nvme::pdu::Pdu::IcResp(_)));
    let connected = host.response();
    assert!(connected.status.is_ok());
    assert!(host.response().status.is_ok());
    assert_eq!(host.unit().unwrap().data.len(), 4096);
    assert!(host.response().status.is_ok());
    host.cntlid = connected.result as u16;
    let mut queue = Host::open(served.address, true, true);
    assert!(queue.connect(1, 128, host.cntlid, NQN, HOST).status.is_ok());
    let ready = queue.ready(1, 0, 1024);
    for byte in queue.h2c(&part(&ready, 0, 1024, true), &[3; 1024]) {
        queue.send(&[byte]);
    }
    assert!(queue.response().status.is_ok());
    assert_eq!(queue.read(1, 0, 2).unwrap(), [3; 1024]);
}

#[test]
fn a_flipped_bit_in_every_byte() {
    let served = Served::plain();
    let bytes = stream_of(&Host::tcp(served.address));
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        let mut host = Host::tcp(served.address);
        let _ = host.stream.write_all(&flipped);
        let _ = host.stream.shutdown(std::net::Shutdown::Write);
        host.is_closed();
    }
    let (_admin, queue) = Host::pair(served.address);
    let capsule = queue.capsule(&Command { cid: 1, ..Host::read_command(2, 0, 8) }, &[]);
    for at in 0..capsule.len() {
        let (_admin, mut queue) = Host::pair(served.address);
        let mut flipped = capsule.clone();
        flipped[at] ^= 1 << (at % 8);
        queue.send(&flipped);
        let _ = queue.stream.shutdown(std::net::Shutdown::Write);
        queue.is_closed();
    }
    served.assert_alive();
    drop((_admin, queue));
    assert_clean(&served);
}

/// The time for which hosts may stand still here. Those that get on take less, even while they are kept from a
/// processor.
const SOON: Duration = Duration::from_secs(5);

fn hasty(change: impl FnOnce(&mut Limits)) -> Served {
    let mut options = Options::default();
    change(&mut options.limits);
    slow(options, 100)
}

/// Slow-loris: nothing, or not enough, within the time for a handshake.
#[test]
fn hosts_that_do_not_get_on_with_the_handshake_are_cut_off() {
    let served = hasty(|limits| limits.handshake = SOON);
    let mut silent = Host::tcp(served.address);
    let mut hesitant = Host::tcp(served.address);
    hesitant.send(&[0, 0, 128]);
    let mut unconnected = Host::open(served.address, false, false);
    assert!(silent.is_closed() && unconnected.is_closed());
    let closed = hesitant.unit().is_none();
    assert!(closed);
    served.assert_alive();
    assert_clean(&served);
}

/// In the middle of a header, of data in a capsule, of a transfer.
#[test]
fn hosts_that_stop_in_the_middle_are_cut_off() {
    let served = hasty(|limits| limits.stall = SOON);
    let (_admin, mut queue) = Host::pair(served.address);
    let capsule = queue.capsule(&Command { sgl: Sgl::in_capsule(512), ..Host::write_command(1, 0, 512) }, &[3; 512]);
    let stopped = [5, 72, 100].map(|end| {
        let (admin, mut queue) = Host::pair(served.address);
        queue.send(&capsule[..end]);
        (admin, queue)
    });
    let _ready = queue.ready(1, 0, 4096);
    for (mut admin, mut queue) in stopped {
        assert!(queue.is_closed());
        assert!(admin.command(Command::new(admin::KEEP_ALIVE, 0), &[]).status.is_ok(), "only that queue");
    }
    assert!(queue.is_closed(), "an R2T that is never answered");
    served.assert_alive();
    drop((_admin, queue));
    assert_clean(&served);
}

#[test]
fn a_host_that_asks_and_never_reads_is_cut_off() {
    let served = hasty(|limits| limits.send_stall = SOON);
    let (admin, mut queue) = Host::pair(served.address);
    for cid in 0..100 {
        let command = Host::read_command(1, 0, 2048);
        let bytes = queue.capsule(&Command { cid, ..command }, &[]);
        queue.send(&bytes);
    }
    raw::until(|| served.target.stats().reactors[0].io_qpairs == 0);
    served.assert_alive();
    drop((admin, queue));
    assert_clean(&served);
}

#[test]
fn a_host_that_falls_silent_loses_its_controller() {
    let served = Served::plain();
    let mut admin = Host::open(served.address, false, false);
    let data = Host::connect_data(0xffff, NQN, HOST).write();
    let connect = Connect { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 4000 };
    let done = admin.command(connect.command(), &data);
    admin.cntlid = done.result as u16;
    admin.enable();
    let mut queue = admin.queue(served.address, 1, false);
    assert!(admin.is_closed() && queue.is_closed());
    assert_clean(&served);
}

#[test]
fn limits_on_connections() {
    let mut options = Options::default();
    options.limits.connections_per_host = 2;
    options.limits.connections = 5;
    let served = Served::with(options, &[("null", DeviceKind::Null { bytes: 1 << 30 })]);
    let (admin, queue) = Host::pair(served.address);
    let mut third = Host::open(served.address, false, false);
    let done = third.connect(2, 32, admin.cntlid, NQN, HOST);
    assert!(done.status.is(Status::CONNECT_CONTROLLER_BUSY));
    let other = "nqn.2016-06.io.spdk:other";
    assert!(third.connect(0, 32, 0xffff, NQN, other).status.is_ok(), "another host is another matter");
    let mut fourth = Host::open(served.address, false, false);
    let fifth = Host::open(served.address, false, false);
    let _sixth = Host::open(served.address, false, false);
    assert!(fourth.is_closed(), "the oldest that is not connected makes room for one more than all may have");
    drop(fifth);
    drop(queue);
    raw::until(|| served.connections() == 2);
    let _queue = admin.queue(served.address, 1, false);
}

#[test]
fn where_all_connections_are_used_one_more_is_closed_at_once() {
    let mut options = Options::default();
    options.limits.connections = 4;
    let served = Served::with(options, &[("null", DeviceKind::Null { bytes: 1 << 30 })]);
    served.target.add_host(NQN, HOST).unwrap();
    let admin = Host::admin(served.address);
    let _queues: Vec<Host> = (1..4).map(|qid| admin.queue(served.address, qid, false)).collect();
    assert!(Host::tcp(served.address).is_closed());
}

/// Hosts that are let in without being listed leave connections to hosts that are listed.
#[test]
fn hosts_that_are_not_listed_do_not_lock_out_those_that_are() {
    let mut options = Options::default();
    options.limits.connections = 8;
    let served = Served::with(options, &[("null", DeviceKind::Null { bytes: 1 << 30 })]);
    let stranger = |number: usize| {
        let mut host = Host::open(served.address, false, false);
        let done = host.connect(0, 32, 0xffff, NQN, &format!("nqn.2016-06.io.spdk:stranger{number}"));
        (host, done.status)
    };
    let strangers: Vec<_> = (0..8).map(stranger).collect();
    let refused = strangers.iter().filter(|(_, status)| status.is(Status::CONNECT_CONTROLLER_BUSY)).count();
    assert_eq!(refused, 2);
    served.target.add_host(NQN, HOST).unwrap();
    let admin = Host::admin(served.address);
    let _queue = admin.queue(served.address, 1, false);
}

/// A flood of connections from one address makes room for others, and for its own newcomers.
#[test]
fn connections_that_say_nothing_give_way_to_newcomers() {
    let mut options = Options::default();
    options.limits.guests = 16;
    let served = Served::with(options, &[("mem", DeviceKind::Memory { bytes: 1 << 20 })]);
    let mut silent: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(served.address).unwrap()).collect();
    served.assert_alive();
    let closed = |stream: &mut std::net::TcpStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(std::io::Read::read(stream, &mut [0]), Ok(0))
    };
    raw::until(|| silent.iter_mut().map(closed).filter(|closed| *closed).count() >= 200 - 16);
}

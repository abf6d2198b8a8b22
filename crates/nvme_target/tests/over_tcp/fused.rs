//! Compare and Write as one operation: what hosts are told, what ends it, and that nothing comes between its halves,
//! whatever several hosts do at the same time over two reactors.

use crate::raw;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use nvme::pdu::{H2cData, Pdu};
use nvme::spec::opcode::{admin, io};
use nvme::spec::{Command, Identify, IdentifyController, Sgl, Status, cns, oncs, reservation};
use nvme_target::device::{DeviceKind, DeviceSpec, Effect, Fault, FaultOn, Latency};
use nvme_target::{NamespaceSpec, Options, SubsystemSpec, Target};
use raw::{Host, NQN, Served};

const BLOCK: usize = 512;

fn half(opcode: u8, fuse: u8, lba: u64, blocks: u32, in_capsule: bool) -> Command {
    let command = Command::blocks(opcode, 1, lba, blocks);
    let bytes = blocks * BLOCK as u32;
    let sgl = if in_capsule { Sgl::in_capsule(bytes) } else { Sgl::transport(bytes) };
    Command { flags: command.flags | fuse, sgl, ..command }
}

fn first(lba: u64) -> Command {
    half(io::COMPARE, Command::FUSE_FIRST, lba, 1, true)
}

fn second(lba: u64) -> Command {
    half(io::WRITE, Command::FUSE_SECOND, lba, 1, true)
}

fn block(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(BLOCK / 8)
}

fn value(bytes: &[u8]) -> u64 {
    let value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, block(value), "a torn block");
    value
}

/// A command and its data.
type Sent = (Command, Vec<u8>);

/// Sends the commands, then the data that the target asks for. Returns the statuses in the order of the commands.
fn all(queue: &mut Host, commands: &[Sent]) -> Vec<Status> {
    let mut cids = Vec::new();
    for (command, data) in commands {
        let is_in_capsule = command.sgl.id == Sgl::in_capsule(0).id;
        cids.push(queue.send_command(*command, if is_in_capsule { data } else { &[] }));
    }
    let mut statuses: HashMap<u16, Status> = HashMap::new();
    while statuses.len() < commands.len() {
        match queue.unit().expect("an R2T or a response").pdu {
            Pdu::R2t(ready) => {
                let at = cids.iter().position(|cid| *cid == ready.cid).expect("a command of ours");
                let (cid, ttag, length) = (ready.cid, ready.ttag, ready.length);
                let bytes = queue.h2c(&H2cData { cid, ttag, offset: 0, length, last: true }, &commands[at].1);
                queue.send(&bytes);
            }
            Pdu::CapsuleResp(done) => assert!(statuses.insert(done.cid, done.status).is_none(), "two responses"),
            other => panic!("{other:?}"),
        }
    }
    cids.iter().map(|cid| statuses[cid]).collect()
}

fn swap(queue: &mut Host, lba: u64, old: u64, new: u64, in_capsule: [bool; 2]) -> [Status; 2] {
    let compare = half(io::COMPARE, Command::FUSE_FIRST, lba, 1, in_capsule[0]);
    let write = half(io::WRITE, Command::FUSE_SECOND, lba, 1, in_capsule[1]);
    all(queue, &[(compare, block(old)), (write, block(new))]).try_into().unwrap()
}

fn read(queue: &mut Host, lba: u64) -> u64 {
    value(&queue.read(1, lba, 1).unwrap())
}

/// A budget of two blocks has no room for the three buffers of an operation: it goes alone, and is not refused.
#[test]
fn an_operation_on_the_largest_block_goes_through_the_smallest_budget() {
    const BYTES: u32 = 64 << 10;
    let pacing = pace::Config::parse("auto:192k", 1024).unwrap();
    let target = Target::start(Options { pacing, max_io_bytes: BYTES, publish: false, ..Options::default() }).unwrap();
    target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(NQN) }).unwrap();
    let kind = DeviceKind::Memory { bytes: 1 << 20 };
    target.create_device(DeviceSpec { name: "mem".into(), block_bytes: Some(BYTES), uuid: None, kind }).unwrap();
    target.add_namespace(NQN, NamespaceSpec::new("mem")).unwrap();
    let address = target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    let served = Served { target, address };
    let (_admin, mut queue) = Host::pair(served.address);
    let half = |opcode, fuse, byte: u8| {
        let command = Command::blocks(opcode, 1, 0, 1);
        let sgl = Sgl::transport(BYTES);
        (Command { flags: command.flags | fuse, sgl, ..command }, vec![byte; BYTES as usize])
    };
    for round in 0..3 {
        let compare = half(io::COMPARE, Command::FUSE_FIRST, round);
        let write = half(io::WRITE, Command::FUSE_SECOND, round + 1);
        assert_eq!(all(&mut queue, &[compare, write]), [Status::SUCCESS; 2], "round {round}");
    }
}

const FAILED: Status = Status::ABORTED_FAILED_FUSED;
const MISSING: Status = Status::ABORTED_MISSING_FUSED;

#[test]
fn a_block_is_compared_and_written_as_one() {
    let served = Served::plain();
    let (mut admin, mut queue) = Host::pair_with(served.address, true);
    let page = admin.fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
    let page = IdentifyController::read(page.first_chunk().unwrap());
    assert_eq!((page.fuses, page.acwu), (1, 0));
    let mut old = 0;
    for in_capsule in [[true, true], [true, false], [false, true], [false, false]] {
        assert_eq!(swap(&mut queue, 7, old, old + 1, in_capsule), [Status::SUCCESS; 2]);
        old += 1;
        assert_eq!(swap(&mut queue, 7, old + 5, 99, in_capsule), [Status::COMPARE_FAILURE.do_not_retry(), FAILED]);
        assert_eq!(read(&mut queue, 7), old);
    }
    // Damaged data of either half end both.
    for damaged in [0usize, 1] {
        let mut bytes: [Vec<u8>; 2] = [(first(7), old), (second(7), 98)].map(|(mut command, data)| {
            command.cid = queue.cid();
            queue.capsule(&command, &block(data))
        });
        *bytes[damaged].last_mut().unwrap() ^= 1;
        queue.send(&bytes.concat());
        let statuses = [queue.response().status, queue.response().status];
        assert!(statuses[damaged].is(Status::TRANSIENT_TRANSPORT_ERROR) && statuses[1 - damaged].is(FAILED));
        assert_eq!(read(&mut queue, 7), old);
    }
    // Zeros of a device that keeps nothing are equal to zeros.
    let on_null = |command: Command| Command { nsid: 2, ..command };
    let statuses = all(&mut queue, &[(on_null(first(0)), block(0)), (on_null(second(0)), block(3))]);
    assert_eq!(statuses, [Status::SUCCESS; 2]);
    assert_eq!(served.target.stats().reactors[0].pending_io, 0);
}

#[test]
fn halves_that_do_not_belong_together_end_and_change_nothing() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(served.address);
    let invalid = Status::INVALID_FIELD.do_not_retry();
    let exceeded = Status::ATOMIC_WRITE_UNIT_EXCEEDED.do_not_retry();
    let range = Status::LBA_OUT_OF_RANGE.do_not_retry();
    let plain_read = Command { sgl: Sgl::transport(0), ..Command::blocks(io::WRITE_ZEROES, 1, 100, 1) };
    let is_read_ok = Status::SUCCESS;
    let data = || block(0);
    let two = || vec![0; 2 * BLOCK];
    let last = (64 << 20) / BLOCK as u64;
    let cases: Vec<(Vec<Sent>, Vec<Status>)> = vec![
        // A half alone.
        (vec![(second(1), data())], vec![MISSING]),
        (vec![(first(1), data()), (plain_read, vec![])], vec![MISSING, is_read_ok]),
        (vec![(first(1), data()), (plain_read, vec![]), (second(1), data())], vec![MISSING, is_read_ok, MISSING]),
        (vec![(first(1), data()), (first(2), data()), (second(2), data())], vec![MISSING, is_read_ok, is_read_ok]),
        // Other ranges, namespaces and commands.
        (vec![(first(1), data()), (second(2), data())], vec![invalid, invalid]),
        (vec![(first(1), data()), (Command { nsid: 2, ..second(1) }, data())], vec![invalid, invalid]),
        (vec![(first(1), data()), (half(io::WRITE, 2, 1, 2, true), two())], vec![invalid, invalid]),
        (
            vec![(half(io::COMPARE, 1, 1, 2, true), two()), (half(io::WRITE, 2, 1, 2, true), two())],
            vec![exceeded, FAILED],
        ),
        (
            vec![(half(io::WRITE, 1, 1, 1, true), data()), (half(io::COMPARE, 2, 1, 1, true), data())],
            vec![invalid, FAILED],
        ),
        (vec![(first(1), data()), (half(io::COMPARE, 2, 1, 1, true), data())], vec![FAILED, invalid]),
        (vec![(half(io::WRITE, 3, 1, 1, true), data())], vec![invalid]),
        // A half that fails by itself.
        (vec![(first(last), data()), (second(last), data())], vec![range, FAILED]),
        (vec![(first(last), data()), (plain_read, vec![]), (second(1), data())], vec![range, is_read_ok, MISSING]),
        (vec![(first(1), data()), (second(last), data())], vec![FAILED, range]),
        (
            vec![(Command { nsid: 9, ..first(1) }, data()), (second(1), data())],
            vec![Status::INVALID_NAMESPACE.do_not_retry(), FAILED],
        ),
        (
            vec![(first(1), data()), (Command { nsid: 9, ..second(1) }, data())],
            vec![FAILED, Status::INVALID_NAMESPACE.do_not_retry()],
        ),
        (vec![(first(1), data()), (Command { flags: 2, ..second(1) }, data())], vec![FAILED, invalid]),
    ];
    for (index, (commands, expected)) in cases.iter().enumerate() {
        assert_eq!(&all(&mut queue, commands), expected, "case {index}");
        assert_eq!(swap(&mut queue, 50, index as u64, index as u64 + 1, [true, true]), [Status::SUCCESS; 2]);
        assert_eq!(read(&mut queue, 1), 0);
    }
    // Another kind of command on the queue between the halves.
    let cid = queue.send_command(first(1), &data());
    let report = Command { cdw10: 15, cdw11: 1, sgl: Sgl::transport(64), ..Command::new(io::RESERVATION_REPORT, 1) };
    let fused_report = Command { flags: report.flags | Command::FUSE_SECOND, ..report };
    assert!(reservation::data_bytes(io::RESERVATION_REPORT).is_some());
    queue.send_command(fused_report, &[]);
    let ended = queue.response();
    assert_eq!((ended.cid, ended.status), (cid, MISSING));
    while !matches!(queue.unit().expect("a report").pdu, Pdu::C2hData(_)) {}
    let Pdu::CapsuleResp(_) = queue.unit().expect("its response").pdu else { panic!("no response") };
    assert_eq!(served.target.stats().reactors[0].pending_io, 0);
    served.assert_alive();
}

#[test]
fn an_abort_of_one_half_ends_both() {
    let never = Fault { on: FaultOn::Reads, effect: Effect::Never, one_in: 1, count: Some(1) };
    let served = Served::with(
        Options::default(),
        &[
            ("mem", DeviceKind::Memory { bytes: 1 << 20 }),
            ("faulty", DeviceKind::Faulty { base: "mem".into(), seed: 1 }),
        ],
    );
    let (mut control, mut queue) = Host::pair(served.address);
    let abort = |cid: u16| Command { cdw10: 1 | u32::from(cid) << 16, ..Command::new(admin::ABORT, 0) };
    // A first half that still waits, and its second half after it.
    let waiting = queue.send_command(first(3), &block(0));
    raw::until(|| served.target.stats().reactors[0].pending_io == 1);
    assert_eq!(control.command(abort(waiting), &[]).result, 0);
    assert!(queue.response().status.is(Status::ABORTED_BY_REQUEST));
    assert!(queue.command(second(3), &block(1)).status.is(FAILED));
    // In the device, each half.
    for aborted in [0usize, 1] {
        served.target.set_faults("faulty", &[never]).unwrap();
        let cids = [queue.send_command(first(3), &block(0)), queue.send_command(second(3), &block(1))];
        raw::until(|| served.target.stats().reactors[0].pacer.in_flight == 1);
        // Others are let in when the operation has ended, and not before.
        let (_others, mut other) = Host::pair(served.address);
        let late = other.send_command(half(io::WRITE, 0, 3, 1, true), &block(8));
        raw::until(|| served.target.stats().reactors[0].pending_io == 3);
        raw::until(|| control.command(abort(cids[aborted]), &[]).result == 0);
        let done = [queue.response(), queue.response()];
        for (index, done) in done.iter().enumerate() {
            let expected = if index == aborted { Status::ABORTED_BY_REQUEST } else { FAILED };
            assert_eq!((done.cid, done.status), (cids[index], expected));
        }
        assert_eq!(other.response().cid, late);
        assert_eq!(read(&mut queue, 3), 8);
        assert_eq!(other.command(half(io::WRITE, 0, 3, 1, true), &block(0)).status, Status::SUCCESS);
    }
    // A connection that goes in the middle gives the range free.
    served.target.set_faults("faulty", &[never]).unwrap();
    let (_gone_admin, mut gone) = Host::pair(served.address);
    gone.send_command(first(3), &block(0));
    gone.send_command(second(3), &block(1));
    raw::until(|| served.target.stats().reactors[0].pacer.in_flight == 1);
    let late = queue.send_command(half(io::WRITE, 0, 3, 1, true), &block(9));
    drop(gone);
    assert_eq!(queue.response().cid, late);
    assert_eq!(read(&mut queue, 3), 9);
    raw::until(|| served.target.stats().reactors[0].pending_io == 0);
}

#[test]
fn a_target_that_hides_the_operation_refuses_it() {
    for hides_fused in [true, false] {
        let hidden_commands = if hides_fused { 0 } else { oncs::COMPARE };
        let options = Options { hides_fused, hidden_commands, ..Options::default() };
        let served = Served::with(options, &[("mem", DeviceKind::Memory { bytes: 1 << 20 })]);
        let (mut admin, mut queue) = Host::pair(served.address);
        let page = admin.fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
        assert_eq!(IdentifyController::read(page.first_chunk().unwrap()).fuses, 0);
        let statuses = swap(&mut queue, 3, 0, 1, [true, true]);
        let invalid = Status::INVALID_FIELD.do_not_retry();
        let of_first = if hides_fused { invalid } else { Status::INVALID_OPCODE.do_not_retry() };
        assert_eq!(statuses, [of_first, invalid]);
        assert_eq!(read(&mut queue, 3), 0);
        assert_eq!(queue.command(half(io::WRITE, 0, 3, 1, true), &block(5)).status, Status::SUCCESS);
    }
}

/// The work of one host on a block: it swaps its own values in, each made of its number and a count.
fn swapper(address: SocketAddr, number: u64, lba: u64, times: usize) -> Vec<(u64, u64)> {
    let (_admin, mut queue) = Host::pair(address);
    let mut seen = read(&mut queue, lba);
    let mut done = Vec::new();
    for count in 0..times as u64 {
        let new = number << 32 | (count + 1);
        let ways = [[true, true], [true, false], [false, true], [false, false]];
        match swap(&mut queue, lba, seen, new, ways[count as usize % 4]) {
            [Status::SUCCESS, Status::SUCCESS] => {
                done.push((seen, new));
                seen = new;
            }
            [compared, FAILED] if compared.is(Status::COMPARE_FAILURE) => seen = read(&mut queue, lba),
            other => panic!("{other:?}"),
        }
    }
    done
}

/// Hosts swap values into one block while another host writes to it. Every value is there once: a swap that succeeds
/// replaces the value that it has compared and no other. Two swaps of one value, or a value written that its writer
/// does not find again under the swaps that came after it, show that something came between compare and write.
#[test]
fn nothing_comes_between_compare_and_write() {
    let latency = Latency { avg_read_us: 60, p99_read_us: 300, avg_write_us: 60, p99_write_us: 400 };
    let options = Options { reactors: 2, balances: false, ..Options::default() };
    let served = Served::with(
        options,
        &[("mem", DeviceKind::Memory { bytes: 1 << 20 }), ("delay", DeviceKind::Delay { base: "mem".into(), latency })],
    );
    let address = served.address;
    const LBA: u64 = 5;
    let swappers: Vec<_> = (1..=4).map(|number| thread::spawn(move || swapper(address, number, LBA, 400))).collect();
    // The writer's values: the value that it reads after each of its writes tells who has come since.
    let (_admin, mut queue) = Host::pair(address);
    let mut found = Vec::new();
    for count in 1..=400u64 {
        let written = 9 << 32 | count;
        // Two blocks more: the ranges overlap without being equal.
        let data = [block(0), block(written), block(0)].concat();
        assert_eq!(queue.write(1, LBA - 1, &data), Status::SUCCESS);
        found.push((written, read(&mut queue, LBA)));
    }
    let mut replaced: HashMap<u64, u64> = HashMap::new();
    let mut swaps = 0;
    for (old, new) in swappers.into_iter().flat_map(|it| it.join().unwrap()) {
        assert!(replaced.insert(new, old).is_none());
        swaps += 1;
    }
    let mut olds: Vec<u64> = replaced.values().copied().collect();
    olds.sort_unstable();
    assert!(olds.windows(2).all(|two| two[0] != two[1]), "two swaps of one value");
    for (written, mut value) in found {
        while value != written {
            value = *replaced.get(&value).unwrap_or_else(|| panic!("{value:x} is there, and {written:x} is lost"));
        }
    }
    assert!(swaps > 50, "only {swaps} swaps succeeded: the test tells nothing");
    assert_eq!(served.target.stats().reactors.iter().map(|it| it.pending_io).sum::<u64>(), 0);
}

/// A write that the device has not ended is one that may still come: the operation waits for it, on whichever reactor
/// it is.
#[test]
fn an_operation_waits_for_writes_that_are_in_the_device() {
    for reactors in [1, 2] {
        let options = Options { reactors, balances: false, ..Options::default() };
        let devices = [
            ("mem", DeviceKind::Memory { bytes: 1 << 20 }),
            ("faulty", DeviceKind::Faulty { base: "mem".into(), seed: 1 }),
        ];
        let served = Served::with(options, &devices);
        let ((mut control, mut queue), (_other, mut other)) = (Host::pair(served.address), Host::pair(served.address));
        let never = Fault { on: FaultOn::Writes, effect: Effect::Never, one_in: 1, count: Some(1) };
        served.target.set_faults("faulty", &[never]).unwrap();
        let pending = || served.target.stats().reactors.iter().map(|it| it.pending_io).sum::<u64>();
        let cid = queue.send_command(half(io::WRITE, 0, 2, 2, true), &[7; 2 * BLOCK]);
        raw::until(|| pending() == 1);
        let halves = [other.send_command(first(3), &block(0)), other.send_command(second(3), &block(1))];
        // An operation on other blocks, and a read, do not wait.
        assert_eq!(swap(&mut other, 4, 0, 1, [true, true]), [Status::SUCCESS; 2]);
        assert_eq!(read(&mut other, 3), 0);
        let abort = Command { cdw10: 1 | u32::from(cid) << 16, ..Command::new(admin::ABORT, 0) };
        assert_eq!(control.command(abort, &[]).result, 0);
        assert!(queue.response().status.is(Status::ABORTED_BY_REQUEST));
        for half in halves {
            let done = other.response();
            assert_eq!((done.cid, done.status), (half, Status::SUCCESS));
        }
        assert_eq!(read(&mut other, 3), 1);
    }
}

/// A device that answers an operation never, or late, keeps nobody waiting for longer than the limit.
#[test]
fn commands_that_wait_for_a_range_are_given_back() {
    let mut options = Options::default();
    options.limits.hold = Duration::from_millis(50);
    let devices = [
        ("mem", DeviceKind::Memory { bytes: 1 << 20 }),
        ("faulty", DeviceKind::Faulty { base: "mem".into(), seed: 1 }),
    ];
    let served = Served::with(options, &devices);
    let ((mut control, mut queue), (_other, mut other)) = (Host::pair(served.address), Host::pair(served.address));
    let never = |on| [Fault { on, effect: Effect::Never, one_in: 1, count: Some(1) }];
    let interrupted = Status::COMMAND_INTERRUPTED;
    served.target.set_faults("faulty", &never(FaultOn::Reads)).unwrap();
    let cids = [queue.send_command(first(3), &block(0)), queue.send_command(second(3), &block(1))];
    raw::until(|| served.target.stats().reactors[0].pacer.in_flight == 1);
    assert_eq!(other.command(half(io::WRITE, 0, 3, 1, true), &block(2)).status, interrupted);
    assert_eq!(swap(&mut other, 3, 0, 1, [true, true]), [interrupted, FAILED]);
    let abort = |cid: u16| Command { cdw10: 1 | u32::from(cid) << 16, ..Command::new(admin::ABORT, 0) };
    assert_eq!(control.command(abort(cids[0]), &[]).result, 0);
    assert!(queue.response().status.is(Status::ABORTED_BY_REQUEST) && queue.response().status.is(FAILED));
    // A write that stays in the device keeps the operation waiting, too.
    served.target.set_faults("faulty", &never(FaultOn::Writes)).unwrap();
    let cid = queue.send_command(half(io::WRITE, 0, 3, 1, true), &block(4));
    raw::until(|| served.target.stats().reactors[0].pacer.in_flight == 1);
    assert_eq!(swap(&mut other, 3, 0, 1, [true, true]), [interrupted, FAILED]);
    assert_eq!(control.command(abort(cid), &[]).result, 0);
    assert!(queue.response().status.is(Status::ABORTED_BY_REQUEST));
    assert_eq!(swap(&mut other, 3, 0, 1, [true, true]), [Status::SUCCESS; 2]);
    assert_eq!(served.target.stats().reactors[0].pending_io, 0);
}

/// A target that ends does not wait for a second half that never comes.
#[test]
fn a_half_alone_does_not_hold_up_the_end() {
    let served = Served::plain();
    let (_admin, mut queue) = Host::pair(served.address);
    queue.send_command(first(3), &block(0));
    // And half a capsule of another one.
    let (_second_admin, mut torn) = Host::pair(served.address);
    let bytes = torn.capsule(&Command { cid: 7, ..first(4) }, &block(0));
    torn.send(&bytes[..bytes.len() - 100]);
    raw::until(|| served.target.stats().reactors[0].pending_io == 2);
    drop(torn);
    let begun = Instant::now();
    served.target.shutdown(Duration::from_secs(100));
    assert!(begun.elapsed() < Duration::from_secs(60), "the end waited for the second half");
}

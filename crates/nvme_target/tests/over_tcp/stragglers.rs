//! Writes that a device still has when the connection of their host has gone: what the host writes next comes after
//! them, on whichever connection and reactor it comes.

use crate::raw;

use nvme::pdu::Pdu;
use nvme::spec::opcode::{admin, io};
use nvme::spec::{Command, Range, Sgl, Status};
use nvme_target::device::{DeviceKind, Effect, Fault, FaultOn};
use nvme_target::{Limits, Options};
use raw::{Host, NQN, Served};

const BYTES: u64 = 1 << 20;
const ONE: [u8; 16] = [1; 16];
const TWO: [u8; 16] = [2; 16];

/// Memory behind faults as namespace 1, memory as namespace 2, on two reactors. One write to namespace 1 is stuck.
fn served() -> Served {
    served_within(Limits::default())
}

fn served_within(limits: Limits) -> Served {
    let memory = DeviceKind::Memory { bytes: BYTES };
    let served = Served::with(
        Options { reactors: 2, balances: false, limits, ..Options::default() },
        &[("base", memory.clone()), ("faulty", DeviceKind::Faulty { base: "base".into(), seed: 1 }), ("plain", memory)],
    );
    let never = Fault { on: FaultOn::Writes, effect: Effect::Stuck, one_in: 1, count: Some(1) };
    served.target.set_faults("faulty", &[never]).unwrap();
    served
}

/// Leaves a write of the host inside the device, and its connection.
fn leave_a_straggler(served: &Served, host: [u8; 16]) {
    let (admin, mut queue) = Host::pair_of(served.address, host);
    queue.send_data_only(Host::write_command(1, 0, 512), &[9; 512]);
    raw::until(|| in_devices(served) == 1);
    drop((admin, queue));
    raw::until(|| served.connections() == 0);
}

fn in_devices(served: &Served) -> u64 {
    served.target.stats().devices.iter().map(|device| device.in_device).sum()
}

fn end_the_straggler(served: &Served) {
    served.target.set_faults("faulty", &[]).unwrap();
    raw::until(|| in_devices(served) == 0);
}

/// True if the queue does something else before that command: commands that nothing holds back end in order here.
fn waits(queue: &mut Host, cid: u16) -> bool {
    let read = queue.send_command(Host::read_command(2, 0, 1), &[]);
    loop {
        match queue.unit().expect("an answer").pdu {
            Pdu::C2hData(data) if data.cid == read && data.success => return true,
            Pdu::C2hData(_) => {}
            Pdu::CapsuleResp(done) if done.cid == read => return true,
            Pdu::CapsuleResp(done) if done.cid == cid => return false,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_a_host_changes_next_comes_after_its_write_that_is_still_in_the_device() {
    let served = served();
    leave_a_straggler(&served, ONE);
    // Four connections: both reactors have some.
    let mut of_one: Vec<_> = (0..4).map(|_| Host::pair_of(served.address, ONE)).collect();
    let ranges = Range { attributes: 0, blocks: 1, slba: 0 }.write();
    let in_capsule = |command: Command, bytes: u32| Command { sgl: Sgl::in_capsule(bytes), ..command };
    let mut held = Vec::new();
    for (_, queue) in &mut of_one {
        let commands = [
            (in_capsule(Command::blocks(io::WRITE, 1, 0, 1), 512), &[7; 512][..]),
            (Command::blocks(io::WRITE_ZEROES, 1, 8, 1), &[][..]),
            (in_capsule(Range::deallocate(1, 1), 16), &ranges[..]),
        ];
        let cids: Vec<u16> = commands.iter().map(|(command, data)| queue.send_command(*command, data)).collect();
        for cid in &cids {
            assert!(waits(queue, *cid));
        }
        // Reads go on, and so do writes to another device.
        assert_eq!(queue.read(1, 0, 1), Ok(vec![0; 512]));
        assert!(queue.write(2, 0, &[3; 512]).is_ok());
        held.push(cids);
    }
    let (_admin, mut other) = Host::pair_of(served.address, TWO);
    assert!(other.write(1, 16, &[4; 512]).is_ok(), "another host does not wait");
    end_the_straggler(&served);
    for ((_, queue), cids) in of_one.iter_mut().zip(held) {
        let mut ended: Vec<u16> = (0..cids.len()).map(|_| queue.response()).map(|done| done.cid).collect();
        ended.sort_unstable();
        assert_eq!(ended, cids);
        assert!(queue.write(1, 0, &[5; 512]).is_ok(), "nothing waits any more");
    }
    assert_eq!(other.read(1, 0, 1), Ok(vec![5; 512]));
}

#[test]
fn commands_that_wait_for_a_straggler_end_with_what_they_wait_for() {
    let served = served();
    leave_a_straggler(&served, ONE);
    let (mut admin, mut queue) = Host::pair_of(served.address, ONE);
    let zeroes = |nsid| Command::blocks(io::WRITE_ZEROES, nsid, 8, 1);
    // An abort.
    let cid = queue.send_command(zeroes(1), &[]);
    assert!(waits(&mut queue, cid));
    let abort = Command { cdw10: u32::from(cid) << 16 | 1, ..Command::new(admin::ABORT, 0) };
    assert_eq!(admin.command(abort, &[]).result & 1, 0, "aborted");
    let done = queue.response();
    assert_eq!((done.cid, done.status), (cid, Status::ABORTED_BY_REQUEST));
    // The connection.
    let (gone_admin, mut gone) = Host::pair_of(served.address, ONE);
    let cid = gone.send_command(zeroes(1), &[]);
    assert!(waits(&mut gone, cid));
    drop((gone, gone_admin));
    raw::until(|| served.connections() == 2);
    // The namespace.
    let cid = queue.send_command(zeroes(1), &[]);
    assert!(waits(&mut queue, cid));
    let departure = served.target.remove_namespace(NQN, 1).unwrap();
    let done = queue.response();
    assert_eq!((done.cid, done.status), (cid, Status::INVALID_NAMESPACE.do_not_retry()));
    // Back again, the straggler is still there, until it ends.
    served
        .target
        .add_namespace(NQN, nvme_target::NamespaceSpec { nsid: 1, ..nvme_target::NamespaceSpec::new("faulty") })
        .unwrap();
    let cid = queue.send_command(zeroes(1), &[]);
    assert!(waits(&mut queue, cid));
    end_the_straggler(&served);
    let done = queue.response();
    assert_eq!((done.cid, done.status), (cid, Status::SUCCESS));
    departure.wait();
}

/// A host of which one queue, on reactor 0, has a write stuck in the device, and behind it one that the connection
/// cannot act on: the host has too many bytes in flight there.
fn stalled(served: &Served) -> (Host, Host) {
    let (admin, mut queue) = Host::pair_of(served.address, ONE);
    served.move_to(admin.cntlid, 0);
    queue.send_data_only(Host::write_command(1, 8, 512), &[9; 512]);
    raw::until(|| in_devices(served) == 1);
    send_write(&mut queue, &[6; 512]);
    (admin, queue)
}

/// Sends a write of block 0, with its data in the capsule.
fn send_write(queue: &mut Host, data: &[u8; 512]) -> u16 {
    queue.send_command(Command { sgl: Sgl::in_capsule(512), ..Command::blocks(io::WRITE, 1, 0, 1) }, data)
}

/// The host writes newer data on another reactor: they come after the write that is stuck, and stay.
fn write_newer(served: &Served, queue: &mut Host) {
    let cid = send_write(queue, &[7; 512]);
    assert!(waits(queue, cid));
    end_the_straggler(served);
    let done = queue.response();
    assert_eq!((done.cid, done.status), (cid, Status::SUCCESS));
    raw::until(|| served.connections() == 3);
    assert_eq!(queue.read(1, 0, 1), Ok(vec![7; 512]), "the older data have come after the newer ones");
}

/// The end of a queue lies behind a command that the target cannot act on yet. Its host has other connections.
#[test]
fn the_end_of_a_queue_that_is_stalled_is_noticed() {
    let served = served_within(Limits { bytes_per_host: Some(512), ..Limits::default() });
    let (other_admin, mut other) = Host::pair_of(served.address, ONE);
    served.move_to(other_admin.cntlid, 1);
    let (_admin, queue) = stalled(&served);
    assert_eq!(served.connections(), 4);
    drop(queue);
    raw::until(|| served.connections() == 3);
    write_newer(&served, &mut other);
}

/// A host comes back at once: its Connect waits for the end of its old queue.
#[test]
fn a_host_that_comes_back_finds_its_old_queue_ended() {
    for _ in 0..20 {
        let served = served_within(Limits { bytes_per_host: Some(512), ..Limits::default() });
        let (_admin, queue) = stalled(&served);
        drop(queue);
        let (admin, mut again) = Host::pair_of(served.address, ONE);
        assert_eq!(served.connections(), 3);
        served.move_to(admin.cntlid, 1);
        write_newer(&served, &mut again);
    }
}

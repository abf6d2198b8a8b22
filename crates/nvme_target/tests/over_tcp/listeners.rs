//! Listeners that go while hosts are connected through them.

use crate::raw;

use std::net::SocketAddr;

use nvme::spec::{DISCOVERY_NQN, Status};
use nvme_target::device::{DeviceKind, DeviceSpec};
use nvme_target::{NamespaceSpec, Options, SubsystemSpec};
use raw::{HOST, Host, NQN, Served};

const OTHER: &str = "nqn.2016-06.io.spdk:cnode2";

/// Two reactors, and memory as namespace 1 of two subsystems.
fn served() -> Served {
    let memory = DeviceKind::Memory { bytes: 1 << 20 };
    let options = Options { reactors: 2, balances: false, ..Options::default() };
    let served = Served::with(options, &[("mem", memory.clone())]);
    let target = &served.target;
    target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(OTHER) }).unwrap();
    target.create_device(DeviceSpec { name: "two".into(), block_bytes: None, uuid: None, kind: memory }).unwrap();
    target.add_namespace(OTHER, NamespaceSpec::new("two")).unwrap();
    target.add_listener(OTHER, served.address).unwrap();
    served
}

/// An admin queue and an I/O queue.
fn pair(address: SocketAddr, nqn: &str) -> (Host, Host) {
    let admin = Host::admin_of(address, nqn, HOST, false);
    let mut queue = Host::open(address, false, false);
    assert!(queue.connect(1, 32, admin.cntlid, nqn, HOST).status.is_ok());
    (admin, queue)
}

/// As SPDK's target does, and as its scripts for failover wait for.
#[test]
fn a_listener_that_goes_takes_its_hosts_of_that_subsystem_with_it() {
    let served = served();
    let target = &served.target;
    let second = target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (mut gone, mut gone_queue) = pair(served.address, NQN);
    let (mut gone_moved, mut gone_moved_queue) = pair(served.address, NQN);
    for reactor in [0, 1, 0, 1] {
        target.move_queue(NQN, gone_moved.cntlid, 1, reactor).unwrap();
    }
    let (_stays, mut stays) = pair(second, NQN);
    let (_other, mut other) = pair(served.address, OTHER);
    let mut discovery = Host::admin_of(served.address, DISCOVERY_NQN, HOST, false);
    target.remove_listener(NQN, served.address).unwrap().wait();
    for host in [&mut gone, &mut gone_queue, &mut gone_moved, &mut gone_moved_queue] {
        assert!(host.is_closed());
    }
    assert!(stays.write(1, 0, &[1; 512]).is_ok() && other.write(1, 0, &[2; 512]).is_ok());
    assert_eq!((stays.read(1, 0, 1), other.read(1, 0, 1)), (Ok(vec![1; 512]), Ok(vec![2; 512])));
    let identify = nvme::spec::Identify { cns: nvme::spec::cns::CONTROLLER, cntid: 0, csi: 0 };
    assert!(discovery.fetch(identify.command(0)).is_ok(), "the other subsystem still listens");
    let refused = Host::open(served.address, false, false).connect(0, 32, raw::dynamic(), NQN, HOST).status;
    assert!(refused.is(Status::CONNECT_INVALID_PARAMETERS), "{refused}");
    // Nothing listens there any more: discovery ends, and so do connections that are not connected yet.
    let mut early = Host::open(served.address, false, false);
    raw::until(|| target.stats().reactors.iter().map(|reactor| reactor.unassociated_qpairs).sum::<u32>() == 1);
    target.remove_listener(OTHER, served.address).unwrap().wait();
    assert!(other.is_closed() && discovery.is_closed() && early.is_closed());
    assert!(std::net::TcpStream::connect(served.address).is_err());
    assert_eq!(target.stats().reactors.iter().map(|reactor| reactor.unassociated_qpairs).sum::<u32>(), 0);
    // Back again, it serves again.
    target.add_listener(NQN, served.address).unwrap();
    let (_admin, mut queue) = pair(served.address, NQN);
    assert_eq!(queue.read(1, 0, 1), Ok(vec![1; 512]));
}

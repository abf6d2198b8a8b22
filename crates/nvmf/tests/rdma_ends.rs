//! The initiator with the target, both over RDMA on one fabric in memory.

mod arena;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arena::{Ops, Slots};
use nvmf::auth::{Credentials, Keys, Secret};
use nvmf::device::{DeviceKind, DeviceSpec};
use nvmf::initiator::{Address, Controller, Options, RdmaHost, Transfer, Transport, discover};
use nvmf::spec::opcode::io;
use nvmf::spec::{Command, Status};
use nvmf::target::{self, NamespaceSpec, SubsystemSpec, Target};
use verbs::Either;
use verbs::double::Fabric;

const NQN: &str = "nqn.2016-06.io.spdk:cnode1";
const HOST: &str = "nqn.2016-06.io.spdk:host1";
const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const OTHER_SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
/// A bound that only an end that hangs meets.
const PATIENCE: Duration = Duration::from_secs(60);

fn secret(text: &str) -> Option<Secret> {
    Some(Secret::parse(text).unwrap())
}

/// Every queue proves both ends, by messages that are longer than the other data that are copied. Discovery proves
/// nothing, and finds the subsystem at its address on RDMA.
#[test]
fn each_queue_authenticates() {
    let fabric = Either::Fabric(Fabric::default());
    let target = Target::start(target::Options::default()).unwrap();
    target.use_verbs(fabric.clone());
    let keys = Keys::default();
    keys.set(NQN, HOST, Some(Credentials { host: secret(SECRET).unwrap(), controller: secret(OTHER_SECRET) }));
    target.set_authenticator(Some(Arc::new(keys)));
    target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(NQN) }).unwrap();
    let kind = DeviceKind::Memory { bytes: 1 << 20 };
    target.create_device(DeviceSpec { name: "memory".into(), block_bytes: None, uuid: None, kind }).unwrap();
    target.add_namespace(NQN, NamespaceSpec::new("memory")).unwrap();
    let at = target.add_rdma_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();

    let slots = Slots::new(4);
    let rdma = RdmaHost { stack: Some(fabric), arena: Some(slots.clone()), writable: true };
    let mut options = Options { timeout: PATIENCE, queues: 2, depth: 4, rdma, ..Options::default() };
    options.set_host(HOST.parse().unwrap());
    let address = Address { transport: Transport::Rdma, ..at.into() };
    let found = discover(&address, &options).unwrap();
    assert_eq!(found.iter().map(|found| found.nqn.as_str()).collect::<Vec<_>>(), [NQN]);
    assert_eq!((found[0].address.port, found[0].address.transport), (at.port(), Transport::Rdma));

    let address = Address { subnqn: Some(NQN.parse().unwrap()), ..address };
    (options.secret, options.controller_secret) = (secret(SECRET), secret(OTHER_SECRET));
    let (controller, mut queues) = Controller::connect(&address, &options).unwrap();
    assert_eq!(queues.len(), 2);
    let mut ops = Ops::new(slots);
    let (mut done, until) = (Vec::new(), Instant::now() + PATIENCE);
    for (tag, queue) in (0..).zip(&mut queues) {
        ops.fill(tag, tag as u8 + 1);
        let command = Command::blocks(io::WRITE, 1, u64::from(tag) * 8, 8);
        assert!(queue.issue(tag, command, Transfer::Out { at: 0, len: 4096 }, &ops));
        queue.send(&ops).unwrap();
        while done.len() <= tag as usize {
            assert!(Instant::now() < until, "a write does not end");
            queue.receive(&mut ops, &mut done).unwrap();
        }
    }
    assert!(done.iter().all(|done| done.status == Status::SUCCESS));
    drop((queues, controller));

    for (host, controller) in [(OTHER_SECRET, None), (SECRET, Some(SECRET))] {
        options.secret = secret(host);
        options.controller_secret = controller.and_then(secret);
        let error = Controller::connect(&address, &options).err().expect("another key").to_string();
        assert!(error.contains("the keys differ"), "{error}");
    }
    assert!(target.shutdown(PATIENCE));
}

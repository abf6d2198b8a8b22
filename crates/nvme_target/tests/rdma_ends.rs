//! The initiator with the target, both over RDMA on one fabric in memory: authentication, and cables that are cut.

#[path = "../../nvme_initiator/tests/arena/mod.rs"]
mod arena;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arena::{Ops, Slots};
use nvme::auth::{Credentials, Keys, Secret};
use nvme::spec::opcode::io;
use nvme::spec::{Command, Status};
use nvme_initiator::{
    Address, Broken, Controller, Done, Link, Options, RdmaHost, Renewal, Transfer, Transport, discover,
};
use nvme_target::device::{DeviceKind, DeviceSpec};
use nvme_target::{NamespaceSpec, SubsystemSpec, Target};
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

/// A target of 1 MiB of memory, and its address.
fn start(fabric: &Fabric, options: nvme_target::Options) -> (Target, SocketAddr) {
    let target = Target::start(options).unwrap();
    target.use_verbs(Either::Fabric(fabric.clone()));
    target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(NQN) }).unwrap();
    let kind = DeviceKind::Memory { bytes: 1 << 20 };
    target.create_device(DeviceSpec { name: "memory".into(), block_bytes: None, uuid: None, kind }).unwrap();
    target.add_namespace(NQN, NamespaceSpec::new("memory")).unwrap();
    let at = target.add_rdma_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    (target, at)
}

fn options(fabric: &Fabric, slots: &Arc<Slots>) -> Options {
    let rdma = RdmaHost { stack: Some(Either::Fabric(fabric.clone())), arena: Some(slots.clone()), writable: true };
    let mut options = Options { timeout: PATIENCE, controller_loss: PATIENCE, rdma, ..Options::default() };
    options.set_host(HOST.parse().unwrap());
    options
}

/// Every queue proves both ends, by messages that are longer than the other data that are copied. Discovery proves
/// nothing, and finds the subsystem at its address on RDMA.
#[test]
fn each_queue_authenticates() {
    let fabric = Fabric::default();
    let (target, at) = start(&fabric, nvme_target::Options::default());
    let keys = Keys::default();
    keys.set(NQN, HOST, Some(Credentials { host: secret(SECRET).unwrap(), controller: secret(OTHER_SECRET) }));
    target.set_authenticator(Some(Arc::new(keys)));

    let slots = Slots::new(4);
    let mut options = Options { queues: 2, depth: 4, ..options(&fabric, &slots) };
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

/// A host whose queues have one op for each slot, which moves the blocks of its slot.
struct Host {
    controller: Controller,
    queues: Vec<Link>,
    ops: Ops,
    generation: u64,
}

const SLOTS: u32 = 6;
/// Blocks of each slot: even ones fit into a capsule, odd ones are fetched by the target.
fn blocks(tag: u32) -> u32 {
    if tag.is_multiple_of(2) { 8 } else { 32 }
}

impl Host {
    fn connect(fabric: &Fabric, at: SocketAddr, keep_alive: Duration) -> Host {
        let slots = Slots::new(SLOTS);
        let options = Options { queues: 2, depth: SLOTS + 2, keep_alive, ..options(fabric, &slots) };
        let address = Address { transport: Transport::Rdma, subnqn: Some(NQN.parse().unwrap()), ..at.into() };
        let (controller, queues) = Controller::connect(&address, &options).unwrap();
        assert_eq!(queues.len(), 2);
        Host { controller, queues, ops: Ops::new(slots), generation: 1 }
    }

    fn issue(&mut self, tag: u32, opcode: u8) {
        let command = Command::blocks(opcode, 1, u64::from(tag) * 64, blocks(tag));
        let (at, len) = (0, blocks(tag) * 512);
        let transfer = if opcode == io::WRITE { Transfer::Out { at, len } } else { Transfer::In { at, len } };
        assert!(self.queues[tag as usize % 2].issue(tag, command, transfer, &self.ops));
    }

    /// Drives the queues until this number of ops has ended.
    fn drive(&mut self, count: usize) -> Result<(), Broken> {
        let (mut done, until) = (Vec::<Done>::new(), Instant::now() + PATIENCE);
        while done.len() < count {
            assert!(Instant::now() < until, "{} ops of {count} end", done.len());
            for queue in &mut self.queues {
                queue.send(&self.ops)?;
                queue.receive(&mut self.ops, &mut done)?;
            }
        }
        assert!(done.iter().all(|done| done.status == Status::SUCCESS), "{done:?}");
        Ok(())
    }

    fn write(&mut self, byte: u8) {
        for tag in 0..SLOTS {
            self.ops.fill(tag, byte + tag as u8);
            self.issue(tag, io::WRITE);
        }
    }

    /// Reads what `write` has written.
    fn check(&mut self, byte: u8) {
        for tag in 0..SLOTS {
            self.ops.fill(tag, 0);
            self.issue(tag, io::READ);
        }
        self.drive(SLOTS as usize).unwrap();
        for tag in 0..SLOTS {
            let content = self.ops.content(tag);
            let written = blocks(tag) as usize * 512;
            assert!(content[..written].iter().all(|it| *it == byte + tag as u8), "op {tag}: {:?}", &content[..8]);
        }
    }

    /// Loses the association while the cable is cut, and gets a new one when it is mended. The ops in flight go on.
    fn come_back(&mut self, fabric: &Fabric) {
        let flight: Vec<_> = self.queues.iter().flat_map(Link::outstanding_commands).collect();
        self.queues.clear();
        self.controller.lost(self.generation);
        let early = self.controller.renewed(Duration::from_millis(150));
        assert!(early.is_none(), "{early:?} over a cut cable");
        fabric.mend();
        match self.controller.renewed(PATIENCE) {
            Some(Renewal::Queues(generation, queues)) => (self.generation, self.queues) = (generation, queues),
            other => panic!("{other:?}"),
        }
        for &(tag, command, transfer) in &flight {
            assert!(self.queues[tag as usize % 2].issue(tag, command, transfer, &self.ops));
        }
        self.drive(flight.len()).unwrap();
    }
}

fn connections(target: &Target) -> u32 {
    target.stats().hosts.iter().map(|host| host.connections).sum()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A cut that the cards bridge costs time, and no connection.
#[test]
fn a_short_cut_is_not_noticed() {
    let fabric = Fabric::default();
    let (target, at) = start(&fabric, nvme_target::Options { reactors: 2, ..Default::default() });
    let mut host = Host::connect(&fabric, at, Duration::ZERO);
    fabric.cut();
    host.write(1);
    let (mut none, mut ended) = (Vec::new(), false);
    for _ in 0..1000 {
        for queue in &mut host.queues {
            queue.send(&host.ops).unwrap();
            queue.receive(&mut host.ops, &mut none).unwrap();
            ended |= !none.is_empty();
        }
    }
    assert!(!ended, "an answer over a cut cable");
    fabric.mend();
    host.drive(SLOTS as usize).unwrap();
    host.check(1);
    assert_eq!((host.controller.generation(), connections(&target)), (1, 3));
    drop(host);
    assert!(target.shutdown(PATIENCE));
}

/// The cards give up while the cable is cut, at some moment amid writes. The target cannot know that the old
/// association is over. The new one does not wait for it, and no write of the old one comes after a newer one.
#[test]
fn a_new_association_does_not_wait_for_one_behind_a_cut_cable() {
    const ROUNDS: u8 = 12;
    let fabric = Fabric::default();
    let (target, at) = start(&fabric, nvme_target::Options { reactors: 2, ..Default::default() });
    // Without a keep-alive timeout nothing ends a connection whose pair has no work.
    let mut host = Host::connect(&fabric, at, Duration::ZERO);
    for round in 0..ROUNDS {
        host.write(round * 16 + 1);
        for queue in &mut host.queues {
            queue.send(&host.ops).unwrap();
        }
        std::thread::sleep(Duration::from_micros(u64::from(round) * 20));
        fabric.cut();
        // A command that waits in the cable, on each queue.
        for tag in 0..2 {
            let flush = Command::new(io::FLUSH, 1);
            assert!(host.queues[tag as usize].issue(SLOTS + tag, flush, Transfer::None, &host.ops));
            host.queues[tag as usize].send(&host.ops).unwrap();
        }
        fabric.give_up();
        let broken = host.drive(usize::MAX).unwrap_err().to_string();
        assert!(broken.contains("the controller does not answer"), "{broken}");
        host.come_back(&fabric);
        host.check(round * 16 + 1);
    }
    let there = connections(&target);
    assert!(there > 3, "the admin queues of the old associations stay: {there}");
    drop((host, target));
}

/// The target ends an association behind a cut cable when it has given no sign of life for the keep-alive timeout.
#[test]
fn an_association_behind_a_cut_cable_ends_with_its_keep_alive() {
    let fabric = Fabric::default();
    let (target, at) = start(&fabric, nvme_target::Options { reactors: 2, ..Default::default() });
    let mut host = Host::connect(&fabric, at, Duration::from_secs(4));
    host.write(1);
    host.drive(SLOTS as usize).unwrap();
    fabric.cut();
    host.come_back(&fabric);
    host.check(1);
    until("the old association ends", || connections(&target) == 3);
    drop(host);
    assert!(target.shutdown(PATIENCE));
}

//! Random hosts against a live target, from seeds: legal and illegal units in any order, while devices fail and
//! namespaces come and go. The target speaks the protocol to such a host in any case, serves the next host, and has
//! nothing left of a host that no longer exists. `PLIMSOLL_FUZZ_SEEDS=N` runs more seeds, `PLIMSOLL_FUZZ_SEED=N` that
//! one.

use crate::dice;
use crate::raw;

use std::io::{Read, Write};
use std::sync::Arc;

use dice::{Dice, seeds};
use nvme::pdu::{H2cData, IcReq, Next, Pdu, R2t};
use nvme::spec::ana::AnaState;
use nvme::spec::opcode::io;
use nvme::spec::{Command, DISCOVERY_NQN, Sgl, Status};
use nvme_target::device::{DeviceKind, DeviceSpec, Effect, Fault, FaultOn, Latency};
use nvme_target::{AttachmentRequest, NamespaceManager, NamespaceSpec, Options, SubsystemSpec, Target};
use rand_xoshiro::rand_core::Rng as _;
use raw::{HOST, Host, NQN, Served};

fn served(reactors: usize) -> Served {
    let mut pacing = pace::Config::auto(Some(4 << 20));
    pacing.budget_bytes = Some(2 * reactors as u64 * (1 << 20));
    let served = Served::with(
        Options { reactors, pacing, max_io_bytes: 128 << 10, ..Options::default() },
        &[
            ("mem", DeviceKind::Memory { bytes: 4 << 20 }),
            ("bad", DeviceKind::Faulty { base: "mem".into(), seed: 3 }),
            ("null", DeviceKind::Null { bytes: 1 << 30 }),
            ("below", DeviceKind::Null { bytes: 1 << 30 }),
            ("slow", slow()),
        ],
    );
    served.target.set_namespace_manager(Arc::new(Manager(served.target.clone())));
    served.target.set_manager(NQN, HOST, true).unwrap();
    // The port stays open whatever becomes of the subsystem.
    served.target.add_listener(DISCOVERY_NQN, served.address).unwrap();
    served
}

/// Carries out what hosts ask of namespaces, without a control plane; waits for no device, because some never end.
struct Manager(Target);

impl NamespaceManager for Manager {
    fn attach(&self, request: &AttachmentRequest) -> Status {
        let subsystems = self.0.subsystems();
        let Some(subsystem) = subsystems.iter().find(|it| it.spec.nqn == request.subsystem_nqn) else {
            return Status::INTERNAL_ERROR;
        };
        let hosts = match request.hosts(subsystem) {
            Ok(hosts) => hosts,
            Err(status) => return status,
        };
        let done = self.0.attach_namespace(NQN, request.nsid, &hosts, request.attaches);
        done.map_or(Status::INTERNAL_ERROR, |_departure| Status::SUCCESS)
    }
}

/// A connection and what the host may still answer on it.
struct Wild {
    host: Host,
    received: Vec<u8>,
    ready: Vec<R2t>,
    is_over: bool,
}

impl Wild {
    fn new(host: Host) -> Wild {
        host.stream.set_nonblocking(true).unwrap();
        Wild { host, received: Vec::new(), ready: Vec::new(), is_over: false }
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_over {
            match self.host.stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.listen();
                    std::thread::yield_now();
                }
                Err(_) => self.is_over = true,
            }
        }
    }

    /// Everything that the target says must be a legal unit.
    fn listen(&mut self) {
        let mut chunk = [0; 65_536];
        loop {
            match self.host.stream.read(&mut chunk) {
                Ok(0) => self.is_over = true,
                Ok(read) => {
                    self.received.extend_from_slice(&chunk[..read]);
                    self.units();
                    continue;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => self.is_over = true,
            }
            return;
        }
    }

    fn units(&mut self) {
        while let Next::Unit(layout, pdu) = self.host.receiver.next(&self.received).expect("a legal unit") {
            if self.received.len() < layout.total() as usize {
                return;
            }
            self.received.drain(..layout.total() as usize);
            match pdu {
                Pdu::R2t(ready) => self.ready.push(ready),
                Pdu::IcResp(response) => {
                    self.host.receiver.agreement = response.agreement(&IcReq::asking(true, true)).unwrap();
                }
                Pdu::TermReq { .. } => self.is_over = true,
                _ => {}
            }
        }
    }
}

fn some_command(dice: &mut Dice) -> (Command, usize) {
    let nsid = dice.pick(&[1, 1, 1, 2, 2, 3, 3, 0, 4, u32::MAX]);
    let blocks = dice.pick(&[1u32, 1, 8, 8, 16, 64, 256, 257, 65_536]);
    let lba = match dice.below(8) {
        0 => dice.0.next_u64(),
        1 => 8191,
        _ => dice.below(8000),
    };
    let opcode = dice.pick(&[
        io::READ,
        io::READ,
        io::READ,
        io::WRITE,
        io::WRITE,
        io::WRITE,
        io::COMPARE,
        io::WRITE_ZEROES,
        io::FLUSH,
        io::DATASET_MANAGEMENT,
        io::VERIFY,
        io::COPY,
        0x0d,
        0x55,
    ]);
    let command = Command::blocks(opcode, nsid, lba, blocks);
    let bytes = match opcode {
        io::DATASET_MANAGEMENT | io::COPY => 4096,
        _ => blocks.saturating_mul(512),
    };
    let cdw12 = command.cdw12 | if dice.one_in(6) { Command::FUA } else { 0 };
    let mut command = Command { sgl: Sgl::transport(bytes), cid: dice.below(40) as u16, cdw12, ..command };
    let mut in_capsule = 0;
    match dice.below(10) {
        0 => command.sgl.length = dice.below(1 << 18) as u32,
        1 => command.sgl.id = dice.below(256) as u8,
        2..=5 if bytes <= 8192 && opcode & 3 == 1 => {
            command.sgl = Sgl::in_capsule(bytes);
            in_capsule = bytes as usize;
        }
        6 => in_capsule = dice.below(5000) as usize,
        _ => {}
    }
    if opcode == io::COPY {
        // Descriptors of zeros, or of the seed's bytes: ranges from the first block, or out of range.
        let limit = if dice.one_in(4) { 0x1000 } else { 8 };
        command.cdw12 = dice.below(limit) as u32;
    }
    if opcode == io::DATASET_MANAGEMENT {
        command.cdw10 = dice.below(256) as u32;
        command.cdw11 = dice.below(8) as u32;
    }
    (command, in_capsule)
}

/// A fused operation on one of few blocks, most of the time with both halves and as it should be.
fn some_pair(dice: &mut Dice) -> Vec<(Command, usize)> {
    let (nsid, lba) = (dice.pick(&[1, 1, 2, 3]), dice.below(4));
    let half = |dice: &mut Dice, opcode, fuse| {
        let command =
            Command::blocks(opcode, nsid, if dice.one_in(20) { 9 } else { lba }, dice.pick(&[1, 1, 1, 1, 1, 2]));
        let bytes = (command.cdw12 + 1) * 512;
        let data = if dice.one_in(2) { bytes } else { 0 };
        let sgl = if data > 0 { Sgl::in_capsule(bytes) } else { Sgl::transport(bytes) };
        let fuse = if dice.one_in(20) { dice.below(4) as u8 } else { fuse };
        (Command { flags: command.flags | fuse, sgl, cid: dice.below(40) as u16, ..command }, data as usize)
    };
    let mut halves = vec![half(dice, io::COMPARE, Command::FUSE_FIRST), half(dice, io::WRITE, Command::FUSE_SECOND)];
    if dice.one_in(10) {
        halves.remove(dice.below(2) as usize);
    }
    halves
}

fn some_admin(dice: &mut Dice) -> (Command, usize) {
    let opcode =
        dice.pick(&[0x02u8, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x15, 0x15, 0x18, 0x7f, 0x7f, 0x7f, 0x00, 0x90]);
    let mut command = Command::new(opcode, dice.pick(&[0, 1, 2, 4, 5, 6, 8, u32::MAX]));
    command.cid = dice.below(40) as u16;
    command.cdw10 =
        dice.pick(&[0, 1, 2, 3, 4, 6, 7, 0x0b, 0x0f, 0x10, 0x12, 0x16, 0x70, 0x81, 0x00ff_0001, 0x03ff_0002]);
    command.cdw11 = dice.pick(&[0, 1, 0x14, 0x1c, 8, 0x0007_0007, u32::MAX]);
    command.cdw12 = dice.pick(&[0, 0x0046_0001, 0x0046_4001, 4, 1000, u32::MAX]);
    if opcode == 0x7f && command.cdw11 == 0x14 && dice.one_in(2) {
        // Controllers are not always reset the moment that they are enabled.
        command.cdw12 = 0x0046_0001;
    }
    command.sgl = Sgl::transport(dice.pick(&[0, 16, 512, 1024, 4096, 1 << 20, u32::MAX]));
    let in_capsule = if dice.one_in(3) { dice.pick(&[16, 512, 1024, 4096]) } else { 0 };
    if in_capsule > 0 && dice.one_in(2) {
        command.sgl = Sgl::in_capsule(in_capsule);
    }
    (command, in_capsule as usize)
}

fn answer_r2t(wild: &mut Wild, dice: &mut Dice) {
    if wild.ready.is_empty() {
        return;
    }
    let index = dice.below(wild.ready.len() as u64) as usize;
    let ready = wild.ready.swap_remove(index);
    let mut offset = 0;
    while offset < ready.length && !wild.is_over {
        let length = (ready.length - offset).min(dice.within(1..40_000) as u32);
        let last = offset + length == ready.length;
        let header = H2cData { cid: ready.cid, ttag: ready.ttag, offset, length, last };
        let mut bytes = wild.host.h2c(&header, &vec![dice.below(256) as u8; length as usize]);
        if dice.one_in(300) {
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << dice.below(8);
        }
        wild.send(&bytes);
        if dice.one_in(100) {
            return; // half a transfer
        }
        offset += length;
    }
}

fn some_connection(address: std::net::SocketAddr, dice: &mut Dice, of: Option<u16>) -> Wild {
    if dice.one_in(20) {
        return Wild::new(Host::tcp(address));
    }
    let digests = dice.one_in(3);
    let mut host = Host::open(address, digests, digests);
    if dice.one_in(20) {
        return Wild::new(host);
    }
    match of.filter(|_| !dice.one_in(4)) {
        Some(cntlid) => {
            let qid = dice.within(1..20) as u16;
            let data = Host::connect_data(cntlid, NQN, HOST).write();
            host.send_command(Host::connect_command(qid, 1000), &data);
            host.unit(); // `None` if the controller has gone meanwhile
        }
        None => {
            let done = host.connect(0, 1000, 0xffff, NQN, HOST);
            host.cntlid = done.result as u16;
            if done.status.is_ok() && !dice.one_in(6) {
                host.enable();
            }
        }
    }
    Wild::new(host)
}

/// The device that is slow: its latency, and the device below.
fn slow() -> DeviceKind {
    let latency = Latency { avg_read_us: 300, p99_read_us: 3_000, avg_write_us: 100, p99_write_us: 2_000 };
    DeviceKind::Delay { base: "below".into(), latency }
}

/// Changes the configuration while hosts use it. Calls fail where another change came first.
fn disturb(served: &Served, dice: &mut Dice) {
    let target = &served.target;
    match dice.below(17) {
        15 => drop(target.attach_namespace(NQN, dice.within(1..4) as u32, &[HOST.into()].into(), !dice.one_in(3))),
        16 => drop(target.set_manager(NQN, HOST, !dice.one_in(4))),
        6 => drop(target.delete_subsystem(NQN)),
        7 | 8 => {
            let ana_reporting = !dice.one_in(4);
            let spec = SubsystemSpec { allow_any_host: true, ana_reporting, ..SubsystemSpec::new(NQN) };
            let _ = target.create_subsystem(spec);
            let _ = target.add_listener(NQN, served.address);
        }
        13 => {
            let group = Some(dice.within(1..4) as u32).filter(|_| dice.one_in(2));
            let state = dice.pick(&[AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible]);
            let _ = target.set_ana_state(NQN, served.address, group, state);
        }
        14 => drop(target.set_ana_group(NQN, dice.within(1..4) as u32, dice.within(0..5) as u32)),
        9 => drop(target.remove_listener(NQN, served.address)),
        10 => drop(target.allow_any_host(NQN, dice.one_in(2))),
        11 => {
            let rates = pace::Rates { ops_per_s: dice.pick(&[0, 50, 1000]), ..pace::Rates::default() };
            let _ = target.set_rates(dice.pick(&["bad", "null", "slow"]), rates);
        }
        12 => {
            let _ = target.delete_device("slow");
            let _ =
                target.create_device(DeviceSpec { name: "slow".into(), block_bytes: None, uuid: None, kind: slow() });
        }
        0 => {
            let bytes = dice.within(1..9) << 19;
            served.target.resize_device("mem", Some(bytes)).unwrap();
        }
        1 => {
            let _ = served.target.remove_namespace(NQN, dice.within(1..4) as u32);
        }
        2 => {
            let device = dice.pick(&["bad", "null", "slow"]);
            let _ = served.target.add_namespace(NQN, NamespaceSpec::new(device));
        }
        _ => {
            let effect = dice.pick(&[Effect::Fail, Effect::Short, Effect::Slow { us: 500 }, Effect::Never]);
            let on = dice.pick(&[FaultOn::All, FaultOn::Reads, FaultOn::Writes, FaultOn::Deallocates]);
            let one_in = dice.within(1..6) as u32;
            let faults = [Fault { on, effect, one_in, count: Some(dice.within(1..20)) }];
            served.target.set_faults("bad", &faults[..dice.below(2) as usize]).unwrap();
        }
    }
}

fn run(served: &Served, seed: u64) {
    let mut dice = Dice::of(seed);
    let mut hosts: Vec<Wild> = Vec::new();
    for _ in 0..600 {
        hosts.retain(|wild| !wild.is_over);
        if hosts.len() < 4 || (hosts.len() < 12 && dice.one_in(10)) {
            let controller = hosts.iter().map(|wild| wild.host.cntlid).find(|id| *id != 0);
            hosts.push(some_connection(served.address, &mut dice, controller));
        }
        let index = dice.below(hosts.len() as u64) as usize;
        let wild = &mut hosts[index];
        wild.listen();
        // Breaking the protocol ends a connection: most of the time they keep to it.
        let action = if dice.one_in(20) { dice.within(19..24) } else { dice.below(19) };
        match action {
            0..=8 => {
                for _ in 0..dice.within(1..12) {
                    if dice.one_in(5) {
                        for (half, data) in some_pair(&mut dice) {
                            let bytes = wild.host.capsule(&half, &vec![0; data]);
                            wild.send(&bytes);
                        }
                    }
                    let (command, data) = some_command(&mut dice);
                    let bytes = wild.host.capsule(&command, &vec![seed as u8; data]);
                    wild.send(&bytes);
                }
            }
            9..=12 => {
                let (command, data) = some_admin(&mut dice);
                let bytes = wild.host.capsule(&command, &vec![seed as u8; data]);
                wild.send(&bytes);
            }
            13..=18 => (0..dice.within(1..20)).for_each(|_| answer_r2t(wild, &mut dice)),
            19 => {
                let (command, data) = some_command(&mut dice);
                let mut bytes = wild.host.capsule(&command, &vec![1; data]);
                let at = dice.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << dice.below(8);
                bytes.truncate(dice.within(1..bytes.len() as u64 + 1) as usize);
                wild.send(&bytes);
            }
            20 => {
                let length = dice.within(1..9000) as u32;
                let offset = dice.pick(&[0, 0, 512, 4096, u32::MAX]);
                let (cid, ttag) = (dice.below(40) as u16, dice.below(8) as u16);
                let header = H2cData { cid, ttag, offset, length, last: dice.one_in(2) };
                let bytes = wild.host.h2c(&header, &vec![1; length as usize]);
                wild.send(&bytes);
            }
            21 => {
                let mut bytes = vec![0; dice.within(1..300) as usize];
                bytes.iter_mut().for_each(|byte| *byte = dice.below(256) as u8);
                wild.send(&bytes);
            }
            22 => wild.is_over = dice.one_in(2),
            _ => disturb(served, &mut dice),
        }
    }
}

#[test]
fn random_hosts_leave_nothing_behind() {
    for reactors in [1, 2] {
        let served = served(reactors);
        for seed in seeds(20) {
            eprintln!("seed {seed}, {reactors} reactors");
            run(&served, seed);
            served.target.set_faults("bad", &[]).unwrap();
            served.target.resize_device("mem", Some(4 << 20)).unwrap();
            let _ = served.target.delete_subsystem(NQN);
            let all = SubsystemSpec { allow_any_host: true, ana_reporting: true, ..SubsystemSpec::new(NQN) };
            served.target.create_subsystem(all).unwrap();
            served.target.add_listener(NQN, served.address).unwrap();
            for device in ["bad", "null", "slow"] {
                served.target.set_rates(device, pace::Rates::default()).unwrap();
                served.target.add_namespace(NQN, NamespaceSpec::new(device)).unwrap();
            }
            raw::until(|| served.connections() == 0);
            served.assert_alive();
            raw::until(|| {
                let stats = served.target.stats();
                let hosts =
                    stats.hosts.iter().all(|it| it.connections == 0 && it.in_flight_bytes == 0 && it.held_now == 0);
                let devices = stats.devices.iter().all(|device| device.in_device == 0);
                let idle = |it: &nvme_target::ReactorStats| {
                    it.pending_io == 0 && it.pacer.in_flight == 0 && it.pacer.held_now == 0
                };
                hosts && devices && stats.reactors.iter().all(idle)
            });
        }
        let stats = served.target.stats();
        // The hosts really did both: errors of protocol, and commands.
        let errors: u64 = stats.reactors.iter().map(|reactor| reactor.protocol_errors).sum();
        let commands: u64 = stats.reactors.iter().map(|reactor| reactor.completed_io).sum();
        assert!(errors > 100 && commands > 500, "{errors} errors, {commands} commands");
        for reactor in &stats.reactors {
            assert!(reactor.buffer_bytes_peak <= 2 << 20, "{reactor:?}");
        }
    }
}

/// Random commands, one after another, against a plain array: what the device holds is what it should.
#[test]
fn a_namespace_is_an_array_of_blocks() {
    const BLOCKS: u64 = 1024;
    let place = tempfile::tempdir().unwrap();
    for seed in seeds(6) {
        let bytes = BLOCKS * 512;
        let path = place.path().join(format!("{seed}.img"));
        let kind = match seed % 3 {
            0 => DeviceKind::Memory { bytes },
            // Through the page cache: direct I/O may want larger blocks.
            _ => DeviceKind::File {
                path,
                create_bytes: Some(bytes),
                direct: false,
                read_only: false,
                keeps_allocated: false,
                shared: false,
            },
        };
        let served = Served::with(
            Options::default(),
            &[("below", kind), ("bad", DeviceKind::Faulty { base: "below".into(), seed })],
        );
        let short = Fault { on: FaultOn::All, effect: Effect::Short, one_in: 3, count: None };
        let slow = Fault { on: FaultOn::All, effect: Effect::Slow { us: 50 }, one_in: 5, count: None };
        served.target.set_faults("bad", &[short, slow]).unwrap();
        let (_admin, mut queue) = Host::pair_with(served.address, seed % 2 == 1);
        let mut model = vec![0; BLOCKS as usize * 512];
        let mut dice = Dice::of(seed);
        for step in 0..400 {
            let lba = dice.below(BLOCKS);
            let blocks = dice.within(1..200).min(BLOCKS - lba) as u32;
            let range = lba as usize * 512..(lba as usize + blocks as usize) * 512;
            let data: Vec<u8> = (0..range.len()).map(|i| (i as u64 * 31 + seed + step) as u8).collect();
            match dice.below(8) {
                0..=2 => {
                    assert_eq!(queue.read(1, lba, blocks).unwrap(), model[range], "seed {seed}, step {step}");
                }
                3 | 4 => {
                    let piece = dice.within(512..70_000) as usize;
                    let status = queue.send_data(Host::write_command(1, lba, data.len()), &data, piece);
                    assert_eq!(status, Status::SUCCESS);
                    model[range].copy_from_slice(&data);
                }
                5 => {
                    let data = &data[..data.len().min(4096)];
                    let command = Host::write_command(1, lba, data.len());
                    let in_capsule = Command { sgl: Sgl::in_capsule(data.len() as u32), ..command };
                    assert_eq!(queue.command(in_capsule, data).status, Status::SUCCESS);
                    model[range.start..range.start + data.len()].copy_from_slice(data);
                }
                6 => {
                    let mut zeroes = Command::blocks(io::WRITE_ZEROES, 1, lba, blocks);
                    zeroes.cdw12 |= if dice.one_in(2) { Command::FUA } else { 0 };
                    assert_eq!(queue.command(zeroes, &[]).status, Status::SUCCESS);
                    assert_eq!(queue.command(Command::new(io::FLUSH, 1), &[]).status, Status::SUCCESS);
                    model[range].fill(0);
                }
                _ => {
                    let mut expected = model[range].to_vec();
                    let differs = dice.one_in(2);
                    if differs {
                        let at = dice.below(expected.len() as u64) as usize;
                        expected[at] ^= 0x40;
                    }
                    let length = expected.len() as u32;
                    let compare =
                        Command { sgl: Sgl::transport(length), ..Command::blocks(io::COMPARE, 1, lba, blocks) };
                    let status = queue.send_data(compare, &expected, 8192);
                    let wanted = if differs { Status::COMPARE_FAILURE } else { Status::SUCCESS };
                    assert!(status.is(wanted), "seed {seed}, step {step}: {status}");
                }
            }
        }
        assert_eq!(queue.read(1, 0, BLOCKS as u32).unwrap(), model);
    }
}

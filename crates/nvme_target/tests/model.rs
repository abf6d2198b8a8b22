//! Random commands through the initiator, the target and its devices, against a model: every block read is one that the
//! model allows. With digests and without, several queues, which move from reactor to reactor, devices that fail, fall
//! short, are slow or never end, and connections that break: an op whose end nobody heard of may have been carried out
//! or not, and is issued again.

#[path = "../../nvme_initiator/tests/memory/mod.rs"]
mod memory;

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memory::Memory;
use nvme::auth::{Credentials, Group, Hash, Keys, Policy, Secret, TlsKey};
use nvme::spec::opcode::io;
use nvme::spec::{Command, Range, Status};
use nvme_initiator::{Address, Controller, Done, Link, Options, Renewal, Transfer};
use nvme_target::device::{DeviceKind, DeviceSpec, Effect, Fault, FaultOn, Latency};
use nvme_target::{NamespaceSpec, SubsystemSpec, Target};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

const SUBSYSTEM: &str = "nqn.2016-06.io.spdk:model";
/// Keys of TLS for the two suites.
const SHORT_KEY: &str = "NVMeTLSkey-1:01:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmZwJEiQ:";
const LONG_KEY: &str = "NVMeTLSkey-1:02:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmYwMDExMjIzMzQ0NTU2Njc3wWXNJw==:";
const BYTES: u64 = 1 << 20;
const OPS: usize = 600;

/// The trouble that befalls a run, beside its commands.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    None,
    Fails,
    Short,
    Slow,
    Never,
    Breaks,
}

struct Random(Xoshiro256PlusPlus);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Fills blocks with the content that a stamp stands for: 0 for zeros, otherwise the number of the write that wrote
/// them.
fn fill(bytes: &mut [u8], stamp: u32, first_block: u64, block_bytes: usize) {
    for (index, block) in bytes.chunks_mut(block_bytes).enumerate() {
        let seed = (first_block + index as u64) as u32;
        for (word, place) in block.chunks_exact_mut(4).enumerate() {
            let value = stamp.wrapping_mul(0x9e37_79b1).wrapping_add(seed << 12).wrapping_add(word as u32);
            place.copy_from_slice(&if stamp == 0 { 0 } else { value | 1 }.to_le_bytes());
        }
    }
}

/// The stamps that each block may have: more than one after a write of which nobody knows.
struct Model {
    blocks: Vec<Vec<u32>>,
    block_bytes: usize,
}

impl Model {
    /// A write has succeeded, or may have been carried out wholly, partly, or not at all.
    fn wrote(&mut self, at: u64, count: u64, stamp: u32, certain: bool) {
        for block in &mut self.blocks[at as usize..(at + count) as usize] {
            if certain {
                block.clear();
            }
            if !block.contains(&stamp) {
                block.push(stamp);
            }
        }
    }

    /// Checks that the content read is allowed; from now on the model allows only this content.
    fn read(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let mut expected = vec![0; self.block_bytes];
        for (index, block) in bytes.chunks(self.block_bytes).enumerate() {
            let number = at + index as u64;
            let allowed = &mut self.blocks[number as usize];
            let found = allowed.iter().copied().find(|&stamp| {
                fill(&mut expected, stamp, number, self.block_bytes);
                expected == block
            });
            match found {
                Some(stamp) => *allowed = vec![stamp],
                None => return Err(format!("block {number} has {:02x?}..., allowed: {allowed:?}", &block[..16])),
            }
        }
        Ok(())
    }

    /// The stamps of blocks of which it is certain.
    fn known(&self, at: u64, count: u64) -> Option<Vec<u32>> {
        let blocks = &self.blocks[at as usize..(at + count) as usize];
        blocks.iter().map(|block| if let [only] = block[..] { Some(only) } else { None }).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Read,
    Write,
    Zero,
    Deallocate,
    /// True if the data compared are the content of the blocks.
    Compare(bool),
    Flush,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    op: Op,
    at: u64,
    count: u64,
    stamp: u32,
}

struct Run {
    random: Random,
    target: Target,
    trouble: Trouble,
    controller: Controller,
    queues: Vec<Link>,
    generation: u64,
    model: Model,
    memory: Memory,
    flights: HashMap<u32, Flight>,
    stamp: u32,
    /// Ended badly, broken connections: what the trouble has come to.
    failed: u32,
    broken: u32,
    /// The reactor of each queue, by controller and queue; and the number of moves seen.
    places: HashMap<(u16, u16), u32>,
    moved: u32,
}

fn run(seed: u64, trouble: Trouble) -> Run {
    run_on(seed, trouble, None)
}

/// A run whose connections TLS secures if there is a key.
fn run_on(seed: u64, trouble: Trouble, tls_key: Option<TlsKey>) -> Run {
    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(seed));
    let block_bytes = if random.one_in(2) { 512 } else { 4096 };
    let options = nvme_target::Options {
        reactors: 1 + random.below(3) as usize,
        in_capsule_bytes: [0, 4096, 8192][random.below(3) as usize],
        ..nvme_target::Options::default()
    };
    let target = Target::start(options).unwrap();
    let device = |name: &str, kind| DeviceSpec { name: name.into(), block_bytes: None, uuid: None, kind };
    let memory =
        DeviceSpec { block_bytes: Some(block_bytes as u32), ..device("memory", DeviceKind::Memory { bytes: BYTES }) };
    target.create_device(memory).unwrap();
    target.create_device(device("faulty", DeviceKind::Faulty { base: "memory".into(), seed })).unwrap();
    let latency = Latency { avg_read_us: 50, p99_read_us: 3000, avg_write_us: 100, p99_write_us: 2000 };
    target.create_device(device("delay", DeviceKind::Delay { base: "faulty".into(), latency })).unwrap();
    target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(SUBSYSTEM) }).unwrap();
    target.add_namespace(SUBSYSTEM, NamespaceSpec::new("delay")).unwrap();
    let any_port = "127.0.0.1:0".parse().unwrap();
    let listens = match &tls_key {
        None => target.add_listener(SUBSYSTEM, any_port),
        Some(key) => {
            let keys = Keys::default();
            keys.set_tls(SUBSYSTEM, Options::default().hostnqn.as_str(), Some(key.clone()));
            target.set_tls_keys(Arc::new(move |identity| keys.tls_keys(identity)));
            target.add_secure_listener(SUBSYSTEM, any_port, nvme_target::SecureChannel::Required)
        }
    }
    .unwrap();

    let asked = Options {
        tls_key,
        header_digest: random.one_in(2),
        data_digest: random.one_in(2),
        queues: 1 + random.below(3) as u16,
        depth: 1 + random.below(32) as u32,
        timeout: Duration::from_secs(60),
        controller_loss: Duration::from_secs(60),
        ..Options::default()
    };
    let address = Address { subnqn: Some(SUBSYSTEM.parse().unwrap()), ..listens.into() };
    let (controller, queues) = Controller::connect(&address, &asked).unwrap();
    assert_eq!(queues.len(), usize::from(asked.queues));
    assert_eq!(controller.namespace(1).unwrap().blocks, BYTES / block_bytes as u64);
    let model = Model { blocks: vec![vec![0]; BYTES as usize / block_bytes], block_bytes };
    let generation = controller.generation();
    let mut run = Run {
        random,
        target,
        trouble,
        controller,
        queues,
        generation,
        model,
        memory: Memory::default(),
        flights: HashMap::new(),
        stamp: 0,
        failed: 0,
        broken: 0,
        places: HashMap::new(),
        moved: 0,
    };
    run.go();
    run
}

impl Run {
    fn go(&mut self) {
        let effect = match self.trouble {
            Trouble::None | Trouble::Breaks => None,
            Trouble::Fails => Some(Effect::Fail),
            Trouble::Short => Some(Effect::Short),
            Trouble::Slow => Some(Effect::Slow { us: 5000 }),
            Trouble::Never => Some(Effect::Never),
        };
        let faults: Vec<Fault> =
            effect.map(|effect| Fault { on: FaultOn::All, effect, one_in: 7, count: None }).into_iter().collect();
        self.target.set_faults("faulty", &faults).unwrap();
        let (mut issued, mut waits, mut ended) = (0, 0, Instant::now());
        let mut next_break = self.random.below(100) as usize;
        while issued < OPS || !self.flights.is_empty() {
            if issued < OPS && self.random.below(3) > 0 {
                issued += usize::from(self.begin(issued as u32));
            }
            if self.trouble == Trouble::Breaks && issued >= next_break {
                next_break += 10 + self.random.below(100) as usize;
                let queue = self.random.below(self.queues.len() as u64) as usize;
                // The connection may be broken already.
                let Link::Tcp(link) = &self.queues[queue] else { panic!("over TCP") };
                let _ = link.stream.tcp().shutdown(Shutdown::Both);
            }
            if self.random.one_in(20) {
                self.move_a_queue();
            }
            let before = self.flights.len();
            self.exchange();
            if before == self.flights.len() && !self.flights.is_empty() {
                waits += 1;
                assert!(ended.elapsed() < Duration::from_secs(300), "commands are lost: {:?}", self.flights);
            } else {
                (waits, ended) = (0, Instant::now());
            }
            if self.trouble == Trouble::Never && waits > 3000 {
                // Everything that is in flight stands still: the fault is over, and these ops have failed.
                self.target.set_faults("faulty", &[]).unwrap();
                self.target.set_faults("faulty", &faults).unwrap();
                waits = 0;
            }
        }
        self.target.set_faults("faulty", &[]).unwrap();
        self.check_all();
        let stats = self.target.stats();
        let queues: u32 = stats.reactors.iter().map(|reactor| reactor.io_qpairs).sum();
        assert_eq!(queues as usize, self.queues.len(), "a queue is counted once, wherever it is");
        assert_eq!(stats.hosts[0].connections, 1 + queues);
        assert_eq!((stats.hosts[0].in_flight_bytes, stats.hosts[0].held_now), (0, 0));
        assert!(stats.reactors.iter().all(|reactor| reactor.pending_io == 0 && reactor.pacer.in_flight == 0));
        assert!(self.target.shutdown(Duration::from_secs(60)));
    }

    /// Sends a queue to another reactor, whatever it is doing; counts the moves that have come about.
    fn move_a_queue(&mut self) {
        let reactors = self.target.options().reactors as u64;
        for controller in self.target.subsystems().iter().flat_map(|subsystem| &subsystem.controllers) {
            for queue in controller.queues.iter().filter(|queue| queue.id > 0) {
                let before = self.places.insert((controller.id, queue.id), queue.reactor);
                self.moved += u32::from(before.is_some_and(|before| before != queue.reactor));
                let to = self.random.below(reactors) as u32;
                // A connection that breaks takes its queue along.
                let _ = self.target.move_queue(SUBSYSTEM, controller.id, queue.id, to);
            }
        }
    }

    /// Begins a random op if there is room for it and nothing in flight touches its blocks.
    fn begin(&mut self, tag: u32) -> bool {
        let blocks = self.model.blocks.len() as u64;
        let at = self.random.below(blocks);
        let most = (128 << 10) / self.model.block_bytes as u64;
        let count = 1 + self.random.below(most.min(blocks - at));
        let known = self.model.known(at, count);
        let op = match self.random.below(20) {
            0..7 => Op::Read,
            7..14 => Op::Write,
            14..16 => Op::Zero,
            16 => Op::Deallocate,
            17 | 18 if known.is_some() => Op::Compare(self.random.one_in(2)),
            _ => Op::Flush,
        };
        let touches =
            |flight: &Flight| flight.op != Op::Flush && at < flight.at + flight.count && flight.at < at + count;
        if op != Op::Flush && self.flights.values().any(touches) {
            return false;
        }
        let block_bytes = self.model.block_bytes;
        let len = (count as usize * block_bytes) as u32;
        let mut bytes = vec![0xa5; len as usize];
        let blocks = |opcode| Command::blocks(opcode, 1, at, count as u32);
        self.stamp += 1;
        let mut flight = Flight { op, at, count, stamp: 0 };
        let (command, transfer) = match op {
            Op::Read => (blocks(io::READ), Transfer::In { at: 0, len }),
            Op::Write => {
                flight.stamp = self.stamp;
                fill(&mut bytes, self.stamp, at, block_bytes);
                (blocks(io::WRITE), Transfer::Out { at: 0, len })
            }
            Op::Zero => (blocks(io::WRITE_ZEROES), Transfer::None),
            Op::Deallocate => {
                bytes = Range { attributes: 0, blocks: count as u32, slba: at }.write().to_vec();
                (Range::deallocate(1, 1), Transfer::Out { at: 0, len: 16 })
            }
            Op::Compare(equal) => {
                let stamps = known.expect("chosen for that");
                for (index, (block, stamp)) in bytes.chunks_mut(block_bytes).zip(stamps).enumerate() {
                    fill(block, stamp, at + index as u64, block_bytes);
                }
                if !equal {
                    let wrong = self.random.below(len.into()) as usize;
                    bytes[wrong] ^= 0x10;
                }
                (blocks(io::COMPARE), Transfer::Out { at: 0, len })
            }
            Op::Flush => (Command::new(io::FLUSH, 1), Transfer::None),
        };
        self.memory.0.insert(tag, bytes);
        let queue = self.random.below(self.queues.len() as u64) as usize;
        if !self.queues[queue].issue(tag, command, transfer, &self.memory) {
            self.memory.0.remove(&tag);
            return false;
        }
        if matches!(op, Op::Write | Op::Zero | Op::Deallocate) {
            // Until its end is heard of.
            self.model.wrote(at, count, flight.stamp, false);
        }
        self.flights.insert(tag, flight);
        true
    }

    fn exchange(&mut self) {
        let (mut done, mut broken) = (Vec::new(), self.controller.generation() != self.generation);
        for link in &mut self.queues {
            broken |= link.send(&self.memory).is_err();
            broken |= link.receive(&mut self.memory, &mut done).is_err();
        }
        for done in done {
            self.end(done);
        }
        if broken {
            self.reconnect();
        }
        std::thread::yield_now();
    }

    fn end(&mut self, Done { tag, status, .. }: Done) {
        let flight = self.flights.remove(&tag).expect("it ends once");
        let bytes = self.memory.0.remove(&tag).expect("it has memory");
        let Flight { op, at, count, stamp } = flight;
        if !status.is_ok() && status != Status::COMPARE_FAILURE.do_not_retry() && status != Status::COMPARE_FAILURE {
            let expected = matches!(self.trouble, Trouble::Fails | Trouble::Never);
            assert!(expected, "{flight:?}: {status}");
            self.failed += 1;
            return;
        }
        match op {
            Op::Read => self.model.read(at, &bytes).unwrap_or_else(|wrong| panic!("{flight:?}: {wrong}")),
            Op::Write | Op::Zero | Op::Deallocate => self.model.wrote(at, count, stamp, true),
            Op::Compare(equal) => assert_eq!(status.is_ok(), equal, "{flight:?}"),
            Op::Flush => {}
        }
        assert!(matches!(op, Op::Compare(_)) || status.is_ok(), "{flight:?}: {status}");
    }

    fn reconnect(&mut self) {
        self.broken += 1;
        let parts: Vec<_> = self.queues.drain(..).flat_map(|queue| queue.outstanding_commands()).collect();
        self.controller.lost(self.generation);
        match self.controller.renewed(Duration::from_secs(120)) {
            Some(Renewal::Queues(generation, queues)) => (self.generation, self.queues) = (generation, queues),
            other => panic!("{other:?}"),
        }
        let mut next = 0;
        for (tag, command, transfer) in parts {
            while !self.queues[next].issue(tag, command, transfer, &self.memory) {
                next += 1;
            }
        }
    }

    /// Reads everything once more: by now nothing is in flight.
    fn check_all(&mut self) {
        let step = (128 << 10) / self.model.block_bytes;
        for (index, at) in (0..self.model.blocks.len()).step_by(step).enumerate() {
            let (tag, len) = ((OPS + index) as u32, (step * self.model.block_bytes) as u32);
            self.memory.0.insert(tag, vec![0xa5; len as usize]);
            self.flights.insert(tag, Flight { op: Op::Read, at: at as u64, count: step as u64, stamp: 0 });
            let command = Command::blocks(io::READ, 1, at as u64, step as u32);
            assert!(self.queues[0].issue(tag, command, Transfer::In { at: 0, len }, &self.memory));
            while !self.flights.is_empty() {
                self.exchange();
            }
        }
    }
}

#[test]
fn what_is_read_is_what_was_written() {
    let mut moved = 0;
    for seed in 0..6 {
        let run = run(seed, Trouble::None);
        assert_eq!((run.failed, run.broken), (0, 0));
        moved += run.moved;
    }
    assert!(moved > 10, "{moved} moves");
}

#[test]
fn secured_connections_carry_the_same_bytes() {
    let mut moved = 0;
    for seed in 50..56 {
        let key = TlsKey::parse(if seed % 2 == 0 { SHORT_KEY } else { LONG_KEY }).unwrap();
        let trouble = [Trouble::None, Trouble::Fails, Trouble::Breaks][seed as usize % 3];
        let run = run_on(seed, trouble, Some(key));
        assert_eq!((run.failed > 0, run.broken > 0), (trouble == Trouble::Fails, trouble == Trouble::Breaks));
        moved += run.moved;
    }
    assert!(moved > 2, "{moved} moves");
}

#[test]
fn ops_that_fail_in_the_device_fail_for_the_host_and_others_do_not() {
    for seed in 10..14 {
        assert!(run(seed, Trouble::Fails).failed > 0);
    }
}

/// The target asks the device for the rest.
#[test]
fn ops_that_fall_short_in_the_device_are_whole_for_the_host() {
    for seed in 15..19 {
        assert_eq!(run(seed, Trouble::Short).failed, 0);
    }
}

#[test]
fn slow_ops_only_take_longer() {
    for seed in 20..22 {
        assert_eq!(run(seed, Trouble::Slow).failed, 0);
    }
}

#[test]
fn ops_that_never_end_hold_up_nothing_else() {
    for seed in 30..32 {
        assert!(run(seed, Trouble::Never).failed > 0);
    }
}

#[test]
fn connections_that_break_lose_and_corrupt_nothing() {
    for seed in 40..43 {
        let run = run(seed, Trouble::Breaks);
        assert!(run.broken > 0);
        assert_eq!(run.failed, 0);
    }
}

/// Hosts prove themselves on every queue; those that cannot are told so.
#[test]
fn a_host_with_its_key_is_let_in_and_no_other() {
    const HOST: &str = "nqn.2016-06.io.spdk:host1";
    let [host, other, controller] = [
        "DHHC-1:01:YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmLUSf1H:",
        "DHHC-1:02:Y2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj4kEcRw==:",
        "DHHC-1:03:ZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZOlMhdU=:",
    ]
    .map(|key| Secret::parse(key).unwrap());
    let target = Target::start(nvme_target::Options::default()).unwrap();
    target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(SUBSYSTEM) }).unwrap();
    let listens = target.add_listener(SUBSYSTEM, "127.0.0.1:0".parse().unwrap()).unwrap();
    let keys = Arc::new(Keys::new(Policy::default()));
    keys.set(SUBSYSTEM, HOST, Some(Credentials { host: host.clone(), controller: Some(controller.clone()) }));
    target.set_authenticator(Some(keys.clone()));
    let address = Address { subnqn: Some(SUBSYSTEM.parse().unwrap()), ..listens.into() };
    let connect = |keys: Option<(&Secret, Option<&Secret>)>| {
        let (secret, controller_secret) = (keys.map(|keys| keys.0.clone()), keys.and_then(|keys| keys.1.cloned()));
        let mut asked =
            Options { secret, controller_secret, queues: 2, timeout: Duration::from_secs(60), ..Options::default() };
        asked.set_host(HOST.parse().unwrap());
        Controller::connect(&address, &asked).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(connect(Some((&host, None))), Ok(()));
    assert_eq!(connect(Some((&host, Some(&controller)))), Ok(()));
    for (keys, why) in [
        (None, "dhchap_key="),
        (Some((&other, None)), "the keys differ"),
        (Some((&host, Some(&other))), "the keys differ"),
    ] {
        let error = connect(keys).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    // With every hash function and group.
    for (hash, group) in Hash::ALL.into_iter().flat_map(|hash| Group::ALL.map(|group| (hash, group))) {
        keys.set_policy(Policy { hashes: vec![hash], groups: vec![group] });
        assert_eq!(connect(Some((&host, Some(&controller)))), Ok(()), "{hash:?} {group:?}");
    }
    target.set_authenticator(None);
    assert_eq!(connect(Some((&host, None))), Ok(()), "a key that nobody asks for");
    let error = connect(Some((&host, Some(&controller)))).unwrap_err();
    assert!(error.contains("does not offer to"), "{error}");
    assert!(target.shutdown(Duration::from_secs(60)));
}

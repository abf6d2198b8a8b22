//! A host over RDMA in the test's process, on the fabric in memory, or on rdma-core in the guest of [`on_soft_roce`]:
//! every message, key and address is the test's choice.
#![allow(dead_code)] // each test file uses its part

#[path = "../serving/mod.rs"]
pub mod serving;

use std::net::SocketAddr;
use std::process::{self, Stdio};
use std::time::{Duration, Instant};

use nvme::spec::fabrics::{Connect, ConnectData, DYNAMIC_CONTROLLER, PropertyAccess};
use nvme::spec::opcode::io;
use nvme::spec::rdma::{ConnectAccept, ConnectReject, ConnectRequest, KeyedSgl, Reject};
use nvme::spec::{Command, Completion, Nqn, Sgl, Status, property};
use nvme_target::device::DeviceKind;
use nvme_target::{Options, Target};
pub use serving::NQN;
use verbs::double::Fabric;
use verbs::either::{Channel, Completions, Domain, Either, Pair};
use verbs::stack::{Event, Greeting, PairOptions, Reads};
use verbs::work::{self, Access, Receive, Request, Work};
use verbs::{Memory, Rdma, Verbs};

pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f";
/// Bytes of the memory of a host that commands may name.
pub const ROOM: usize = 8 << 20;
/// The bytes behind [`ROOM`] for the messages that a host sends, one after another, and from the start again.
const MESSAGES: usize = 1 << 20;
/// The receives of a host.
const RECEIVES: u32 = 64;
/// The READs that hosts serve.
pub const READS: Reads = Reads { serves: 4, issues: 0 };

/// The address of the guest's RDMA device, in the guest of [`on_soft_roce`].
const GUEST: &str = "TEST_RDMA_ADDRESS";

/// Runs these tests of this program in a guest with an RDMA device: there, the stack is rdma-core on Soft-RoCE.
pub fn on_soft_roce(tests: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let script = directory.path().join("script.sh");
    let words = format!("--exact --test-threads 1 {}", tests.join(" "));
    std::fs::write(&script, format!("export {GUEST}=10.0.2.15\n{} {words}\n", program.display())).unwrap();
    let mut rig = process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../rigs/nvme-kernel-client.sh"));
    rig.arg(script).arg(program).env("RIG_DEBIAN", "13").env("RIG_RDMA", "1").env("TMPDIR", directory.path());
    let output = rig.stdin(Stdio::null()).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    let passed = format!("test result: ok. {} passed; 0 failed; 0 ignored", tests.len());
    assert!(said.contains(&passed), "not all of the tests have run:\n{said}");
}

/// A target that listens over RDMA, its devices as namespaces 1, 2, ...; ended when dropped.
pub struct Served {
    pub verbs: Either,
    pub target: Target,
    pub address: SocketAddr,
}

impl Served {
    pub fn with(options: Options, devices: &[(&str, DeviceKind)]) -> Served {
        let guest = std::env::var(GUEST).ok();
        let verbs = match guest {
            Some(_) => Either::Rdma(Rdma::open().unwrap()),
            None => Either::Fabric(Fabric::default()),
        };
        let target = serving::target(options, devices);
        target.use_verbs(verbs.clone());
        let address = guest.as_deref().unwrap_or("127.0.0.1").parse().unwrap();
        let address = target.add_rdma_listener(NQN, SocketAddr::new(address, 0)).unwrap();
        Served { verbs, target, address }
    }

    /// The fabric, for its faults.
    pub fn fabric(&self) -> &Fabric {
        let Either::Fabric(fabric) = &self.verbs else { panic!("the test is not for the guest") };
        fabric
    }

    /// 64 MiB of memory as namespace 1, a null device as namespace 2, one reactor.
    pub fn plain() -> Served {
        Served::with(
            Options::default(),
            &[("mem", DeviceKind::Memory { bytes: 64 << 20 }), ("null", DeviceKind::Null { bytes: 1 << 40 })],
        )
    }

    pub fn connections(&self) -> u32 {
        self.target.stats().hosts.iter().map(|host| host.connections).sum()
    }

    /// The server still serves: a new host connects, writes and reads.
    pub fn assert_alive(&self) {
        let (_admin, mut queue) = Host::pair(self);
        let data = vec![0x5a; 4096];
        assert_eq!(queue.write(1, 0, &data), Status::SUCCESS);
        assert_eq!(queue.read(1, 0, 8).unwrap(), data);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.target.shutdown(Duration::ZERO);
    }
}

/// One connection.
pub struct Host {
    pub verbs: Either,
    channel: Channel,
    pub pair: Pair,
    completions: Completions,
    pub domain: Domain,
    /// Memory that the target may read and write: the data of commands; then capsules.
    pub memory: Memory<Either>,
    responses: Memory<Either>,
    pub accepted: ConnectAccept,
    /// READs that the target has agreed to.
    pub reads: Reads,
    pub next_cid: u16,
    next_message: usize,
    pub cntlid: u16,
    /// Responses that have come and nobody has taken: with the key that each has invalidated.
    pub came: Vec<(Completion, Option<u32>)>,
    /// The outcomes of work that failed.
    pub failures: Vec<work::Status>,
    pub is_over: bool,
}

/// The reason why no connection came about.
#[derive(Debug, PartialEq)]
pub struct Refused(pub Option<Reject>);

/// A host that has its memory, and no connection yet.
pub struct Dialing {
    verbs: Either,
    channel: Channel,
    outgoing: verbs::either::Outgoing,
    domain: Domain,
    completions: Completions,
    memory: Memory<Either>,
    responses: Memory<Either>,
    receives: u32,
}

impl Dialing {
    pub fn to(verbs: &Either, address: SocketAddr, receives: u32) -> Dialing {
        let verbs = verbs.clone();
        let channel = verbs.channel().unwrap();
        let outgoing = verbs.dial(&channel, address, 1).unwrap();
        let event = wait_for(|| verbs.next_event(&channel).unwrap());
        assert!(matches!(event, Event::Routed { number: 1 }));
        let device = verbs.routed_device(&outgoing).unwrap();
        let domain = verbs.domain(&device).unwrap();
        let completions = verbs.completions(&device, 8192).unwrap();
        let access = Access { local_write: true, remote_read: true, remote_write: true };
        let memory = Memory::new(&verbs, &domain, ROOM + MESSAGES, access).unwrap();
        let local = Access { local_write: true, ..Access::default() };
        let responses = Memory::new(&verbs, &domain, receives as usize * Completion::BYTES, local).unwrap();
        Dialing { verbs, channel, outgoing, domain, completions, memory, responses, receives }
    }

    pub fn connect(self, private_data: &[u8], reads: Reads) -> Result<Host, Refused> {
        let Dialing { verbs, channel, outgoing, domain, completions, memory, responses, receives } = self;
        let options =
            PairOptions { domain: &domain, completions: &completions, shared: None, sends: 2048, receives, parts: 4 };
        let greeting = Greeting { private_data, reads, no_receive_tries: None };
        let pair = verbs.connect(outgoing, &options, &greeting).unwrap();
        for receive in 0..receives as usize {
            let part = responses.part(receive * Completion::BYTES..(receive + 1) * Completion::BYTES);
            verbs.receive(&pair, Receive { id: receive as u64, parts: &[part] }).unwrap();
        }
        match wait_for(|| verbs.next_event(&channel).unwrap()) {
            Event::Established { private_data, reads, .. } => {
                let accepted = ConnectAccept::of(&private_data).expect("an acceptance");
                Ok(Host {
                    verbs,
                    channel,
                    pair,
                    completions,
                    domain,
                    memory,
                    responses,
                    accepted,
                    reads,
                    next_cid: 0,
                    next_message: 0,
                    cntlid: 0,
                    came: Vec::new(),
                    failures: Vec::new(),
                    is_over: false,
                })
            }
            Event::Refused { private_data, .. } => Err(Refused(ConnectReject::of(&private_data))),
            _ => panic!("neither accepted nor refused"),
        }
    }
}

impl Host {
    pub fn request(qid: u16, entries: u16, cntlid: u16) -> ConnectRequest {
        ConnectRequest { recfmt: 0, qid, hrqsize: entries, hsqsize: entries - 1, cntlid }
    }

    /// A connection before Connect.
    pub fn open(served: &Served, request: ConnectRequest) -> Host {
        Host::asking(&served.verbs, served.address, &request.write(), READS).expect("accepted")
    }

    /// Asks for a connection with any private data.
    pub fn asking(verbs: &Either, address: SocketAddr, private_data: &[u8], reads: Reads) -> Result<Host, Refused> {
        Dialing::to(verbs, address, RECEIVES).connect(private_data, reads)
    }

    /// An enabled controller's admin queue.
    pub fn admin(served: &Served) -> Host {
        Host::admin_of(&served.verbs, served.address)
    }

    pub fn admin_of(verbs: &Either, address: SocketAddr) -> Host {
        let request = Host::request(0, 32, 0);
        let mut host = Host::asking(verbs, address, &request.write(), READS).expect("accepted");
        let done = host.connect(0, 32, DYNAMIC_CONTROLLER, NQN);
        assert!(done.status.is_ok(), "{}", done.status);
        host.cntlid = done.result as u16;
        host.enable();
        host
    }

    /// An I/O queue of 64 entries of this controller.
    pub fn queue(&self, served: &Served, qid: u16) -> Host {
        self.queue_of(served, qid, 64, RECEIVES)
    }

    /// An I/O queue of this controller with that many entries, and receives for responses.
    pub fn queue_of(&self, served: &Served, qid: u16, entries: u16, receives: u32) -> Host {
        self.queue_at(&served.verbs, served.address, qid, entries, receives)
    }

    pub fn queue_at(&self, verbs: &Either, address: SocketAddr, qid: u16, entries: u16, receives: u32) -> Host {
        let request = ConnectRequest { hrqsize: receives as u16, ..Host::request(qid, entries, self.cntlid) };
        let dialing = Dialing::to(verbs, address, receives);
        let mut queue = dialing.connect(&request.write(), READS).expect("accepted");
        let done = queue.connect(qid, entries, self.cntlid, NQN);
        assert!(done.status.is_ok(), "{}", done.status);
        queue
    }

    pub fn pair(served: &Served) -> (Host, Host) {
        let admin = Host::admin(served);
        let queue = admin.queue(served, 1);
        (admin, queue)
    }

    /// Connects the queue. Its data are fetched from memory, as Linux has it on admin queues.
    pub fn connect(&mut self, qid: u16, entries: u16, cntlid: u16, nqn: &str) -> Completion {
        let command = Connect { recfmt: 0, qid, sqsize: entries - 1, cattr: 0, kato_ms: 0 }.command();
        let data = connect_data(cntlid, nqn).write();
        self.memory.write(0, &data);
        let sgl = self.sgl(0, data.len());
        self.command(Command { sgl, ..command })
    }

    pub fn enable(&mut self) {
        let set = PropertyAccess::set(property::CC, 4, property::Configuration::ENABLED.0.into());
        assert!(self.command(Command { sgl: self.sgl(0, 0), ..set }).status.is_ok());
        let get = PropertyAccess::get(property::CSTS, 4);
        let got = self.command(Command { sgl: self.sgl(0, 0), ..get }).result;
        assert!(property::ControllerStatus::of(got as u32).ready);
    }

    /// Names a range of the memory.
    pub fn sgl(&self, at: usize, bytes: usize) -> Sgl {
        self.range(at, bytes).descriptor()
    }

    pub fn range(&self, at: usize, bytes: usize) -> KeyedSgl {
        let (address, key) = (self.memory.address() + at as u64, self.memory.key());
        KeyedSgl { address, length: bytes as u32, key, invalidate: false }
    }

    /// Sends a message of any bytes.
    pub fn send(&mut self, message: &[u8]) {
        if self.next_message + message.len() > MESSAGES {
            self.next_message = 0;
        }
        let at = ROOM + self.next_message;
        self.next_message += message.len();
        self.memory.write(at, message);
        let part = self.memory.part(at..at + message.len());
        let work = Work { id: 1, request: Request::Send { invalidate: None }, parts: &[part], signaled: true };
        self.verbs.post(&self.pair, work).unwrap();
    }

    /// Sends a command with data in its capsule. Returns its identifier.
    pub fn send_command(&mut self, command: Command, data: &[u8]) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        let command = Command { cid: self.next_cid, flags: Command::PSDT_SGL | command.flags, ..command };
        let mut message = command.write().to_vec();
        message.extend_from_slice(data);
        self.send(&message);
        self.next_cid
    }

    /// Looks what has come.
    pub fn poll(&mut self) {
        let mut completions = Vec::new();
        self.verbs.poll(&self.completions, 256, &mut completions).unwrap();
        for completion in completions {
            match (completion.status, completion.received) {
                (work::Status::Success, true) => {
                    assert_eq!(completion.length as usize, Completion::BYTES);
                    let (mut bytes, at) = ([0; Completion::BYTES], completion.id as usize * Completion::BYTES);
                    self.responses.read(at, &mut bytes);
                    self.came.push((Completion::read(&bytes), completion.invalidated));
                    let part = self.responses.part(at..at + Completion::BYTES);
                    let _ = self.verbs.receive(&self.pair, Receive { id: completion.id, parts: &[part] });
                }
                (work::Status::Success, false) => {}
                (status, _) => self.failures.push(status),
            }
        }
        while let Some(event) = self.verbs.next_event(&self.channel).unwrap() {
            if matches!(event, Event::Disconnected { .. } | Event::Removed { .. }) {
                self.is_over = true;
            }
        }
    }

    /// The next response.
    pub fn response(&mut self) -> (Completion, Option<u32>) {
        let limit = patience();
        loop {
            if !self.came.is_empty() {
                return self.came.remove(0);
            }
            assert!(!self.is_over, "the connection has ended: {:?}", self.failures);
            assert!(Instant::now() < limit, "no response");
            self.poll();
            std::thread::yield_now();
        }
    }

    pub fn command(&mut self, command: Command) -> Completion {
        self.command_with(command, &[])
    }

    /// Carries out a command with data in its capsule.
    pub fn command_with(&mut self, command: Command, data: &[u8]) -> Completion {
        let cid = self.send_command(command, data);
        let (done, _) = self.response();
        assert_eq!(done.cid, cid);
        done
    }

    /// Makes the pair fail. In the guest both pairs of the connection fail: this side writes to memory of the target
    /// without a key for it.
    pub fn fail(&self) {
        if let (Either::Fabric(fabric), Pair::Fabric(pair)) = (&self.verbs, &self.pair) {
            return fabric.fail(pair.pair());
        }
        let parts = [self.memory.part(0..64)];
        let request = Request::Write { address: 4096, key: 0xdead_beef };
        self.verbs.post(&self.pair, Work { id: 1, request, parts: &parts, signaled: true }).unwrap();
    }

    /// Waits until the target has ended the connection.
    pub fn is_ended(&mut self) -> bool {
        let limit = patience();
        while !self.is_over {
            assert!(Instant::now() < limit, "the target keeps the connection");
            self.poll();
            std::thread::yield_now();
        }
        true
    }

    pub fn read_command(&self, nsid: u32, lba: u64, blocks: u32) -> Command {
        let command = Command::blocks(io::READ, nsid, lba, blocks);
        Command { sgl: self.sgl(0, blocks as usize * 512), ..command }
    }

    pub fn write_command(&self, nsid: u32, lba: u64, bytes: usize) -> Command {
        let command = Command::blocks(io::WRITE, nsid, lba, (bytes / 512) as u32);
        Command { sgl: self.sgl(0, bytes), ..command }
    }

    /// Reads: the target writes into the memory.
    pub fn read(&mut self, nsid: u32, lba: u64, blocks: u32) -> Result<Vec<u8>, Status> {
        let mut data = vec![0xee; blocks as usize * 512];
        self.memory.write(0, &data);
        let done = self.command(self.read_command(nsid, lba, blocks));
        self.memory.read(0, &mut data);
        if done.status.is_ok() { Ok(data) } else { Err(done.status) }
    }

    /// Writes: the target fetches the data.
    pub fn write(&mut self, nsid: u32, lba: u64, data: &[u8]) -> Status {
        self.memory.write(0, data);
        self.command(self.write_command(nsid, lba, data.len())).status
    }

    /// Writes data that come in the capsule.
    pub fn write_in_capsule(&mut self, nsid: u32, lba: u64, data: &[u8]) -> Status {
        let command = self.write_command(nsid, lba, data.len());
        self.command_with(Command { sgl: Sgl::in_capsule(data.len() as u32), ..command }, data).status
    }

    /// The data of an admin command that reads `bytes` bytes.
    pub fn fetch(&mut self, command: Command, bytes: usize) -> Result<Vec<u8>, Status> {
        let mut data = vec![0xee; bytes];
        self.memory.write(0, &data);
        let done = self.command(Command { sgl: self.sgl(0, bytes), ..command });
        self.memory.read(0, &mut data);
        if done.status.is_ok() { Ok(data) } else { Err(done.status) }
    }
}

pub fn connect_data(cntlid: u16, nqn: &str) -> ConnectData {
    ConnectData {
        hostid: std::array::from_fn(|i| i as u8),
        cntlid,
        subnqn: nqn.parse::<Nqn>().unwrap().field(),
        hostnqn: HOST.parse::<Nqn>().unwrap().field(),
    }
}

fn patience() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

/// Waits for something that another thread brings about. Panics if it does not, in five minutes.
pub fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let limit = patience();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < limit, "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until something holds.
pub fn until(mut holds: impl FnMut() -> bool) {
    wait_for(|| holds().then_some(()));
}

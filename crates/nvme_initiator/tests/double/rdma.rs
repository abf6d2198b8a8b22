//! The controller over RDMA, on a fabric in memory: correct, but whimsical. One thread is the whole target.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nvme::spec::log::DiscoveryEntry;
use nvme::spec::opcode::{FABRICS, io};
use nvme::spec::rdma::{ConnectAccept, ConnectRequest, KeyedSgl, RdmaData, Reject};
use nvme::spec::{Command, Completion, Range, Status};
use nvme_initiator::{Address, Transport};
use verbs::double::Fabric;
use verbs::either::{Channel, Completions, Incoming, Pair, Receives};
use verbs::stack::{Event, Greeting, PairOptions, Reads};
use verbs::work::{Access, Completion as Finished, Receive, Request, Status as Outcome, Work};
use verbs::{Either, Memory, Verbs};

use super::{BLOCK, Mind, PATIENCE, Style};

/// Receives of one connection: CRQSIZE.
pub const RECEIVES: u32 = 24;
/// Bytes of one command's data, and of the room behind them that faults use.
const STAGE_BYTES: usize = 256 << 10;

/// The fate of an I/O command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mood {
    Serve,
    Fail(Status),
    /// No answer, ever.
    Ignore,
    /// The connection ends instead.
    Close,
    /// Served, and answered again.
    Twice,
    /// Served, and the connection ends.
    Last,
    /// The answer is for the command with this CID.
    Other(u16),
    /// The answer has this number of bytes.
    Bytes(usize),
    /// Data go this number of bytes beyond the slot of the command.
    Beyond(u32),
    /// Data come from beyond the slot.
    Before,
    /// Data go to the command's place under another key.
    OtherKey,
    /// The answer invalidates the key, which the host has not asked for.
    Invalidate,
}

pub type Whim = Arc<dyn Fn(&Command) -> Mood + Send + Sync>;
/// The answer to a connection request.
pub type Door = Arc<dyn Fn(&ConnectRequest) -> Answer + Send + Sync>;

/// The fate of a connection request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Accept,
    Refuse(Reject),
    /// Refused without private data.
    Dismiss,
    /// Accepted by something else than an NVMe controller.
    Greet,
    /// No answer, ever.
    Ignore,
}

/// The facts that tests look at.
#[derive(Default)]
pub struct Seen {
    pub requests: Mutex<Vec<ConnectRequest>>,
    /// Data of I/O commands that came in their capsules, and those that were fetched.
    pub in_capsules: AtomicU32,
    pub fetched: AtomicU32,
    /// RDMA that the fabric has refused.
    pub refused: AtomicU32,
    /// Ends of the RDMA of [`Mood::Beyond`].
    pub beyond: AtomicU32,
    /// Connections that the controller has ended.
    pub ended: AtomicU32,
    /// Commands that get no answer ([`Mood::Ignore`]).
    pub ignored: AtomicU32,
    /// Turns of the controller without a connection, because it is down.
    pub downs: AtomicU32,
    pub alive: Arc<AtomicU32>,
}

struct Connection {
    pair: Pair,
    completions: Completions,
    /// Of this connection alone, and filled before the host can send.
    receives: Receives,
    memory: Memory<Either>,
    capsule: usize,
    stage: usize,
    response: usize,
    mind: Mind,
    waiting: VecDeque<Finished>,
    is_over: bool,
}

pub struct Server {
    pub stack: Either,
    pub fabric: Fabric,
    pub address: Address,
    pub memory: Arc<Mutex<Vec<u8>>>,
    pub seen: Arc<Seen>,
    /// While set, requests are dismissed, and connections that are there end.
    pub down: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok(), "the controller found a fault of the host");
    }
}

impl Server {
    pub fn start(style: Style, bytes: usize, whim: Whim, door: Door) -> Server {
        let fabric = Fabric::default();
        let stack = Either::Fabric(fabric.clone());
        let channel = stack.channel().unwrap();
        let listener = stack.listen(&channel, "127.0.0.1:0".parse().unwrap(), u64::from(u32::MAX)).unwrap();
        let at = stack.listens_at(&listener).unwrap();
        let memory = Arc::new(Mutex::new(vec![0; bytes]));
        let (seen, down, stop) = (Arc::<Seen>::default(), Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let mut target = Target {
            stack: stack.clone(),
            channel,
            style,
            memory: memory.clone(),
            whim,
            door,
            seen: seen.clone(),
            at,
            connections: HashMap::new(),
            ignored: Vec::new(),
            next: 0,
        };
        let (downs, stops) = (down.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let _listener = listener;
            while !stops.load(Ordering::Relaxed) {
                target.turn(downs.load(Ordering::Relaxed));
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let address = Address { transport: Transport::Rdma, ..at.into() };
        Server { stack, fabric, address, memory, seen, down, stop, thread: Some(thread) }
    }
}

struct Target {
    stack: Either,
    channel: Channel,
    style: Style,
    memory: Arc<Mutex<Vec<u8>>>,
    whim: Whim,
    door: Door,
    seen: Arc<Seen>,
    at: SocketAddr,
    connections: HashMap<u64, Connection>,
    /// Requests without an answer.
    ignored: Vec<Incoming>,
    next: u64,
}

impl Target {
    fn turn(&mut self, down: bool) {
        while let Some(event) = self.stack.next_event(&self.channel).unwrap() {
            match event {
                Event::Asked { incoming, private_data, .. } => self.ask(incoming, &private_data, down),
                Event::Disconnected { number } => drop(self.connections.remove(&number)),
                _ => {}
            }
        }
        if down {
            self.connections.clear();
            self.seen.downs.fetch_add(1, Ordering::Release);
        }
        for connection in self.connections.values_mut() {
            let mut finished = Vec::new();
            self.stack.poll(&connection.completions, 64, &mut finished).unwrap();
            connection.waiting.extend(finished);
            while let Some(next) = connection.waiting.pop_front() {
                if next.received && next.status == Outcome::Success && !connection.is_over {
                    let mut work = Working {
                        stack: &self.stack,
                        style: &self.style,
                        memory: &self.memory,
                        seen: &self.seen,
                        connection,
                    };
                    work.command(next.id as usize, next.length as usize, &self.whim);
                }
            }
        }
        let over = |connection: &Connection| connection.is_over;
        for connection in self.connections.values().filter(|it| over(it)) {
            let _ = self.stack.disconnect(&connection.pair);
            self.seen.ended.fetch_add(1, Ordering::Release);
        }
        self.connections.retain(|_, connection| !over(connection));
    }

    fn ask(&mut self, incoming: Incoming, private_data: &[u8], down: bool) {
        let stack = &self.stack;
        let request = ConnectRequest::of(private_data).expect("a request as it must be");
        self.seen.requests.lock().unwrap().push(request);
        let answer = if down { Answer::Dismiss } else { (self.door)(&request) };
        let words = match answer {
            Answer::Accept => ConnectAccept { recfmt: 0, crqsize: RECEIVES as u16 }.write(),
            Answer::Greet => ConnectAccept { recfmt: 0x4854, crqsize: 0x5054 }.write(),
            Answer::Refuse(reject) => return stack.refuse(incoming, &reject.private_data()).unwrap(),
            Answer::Dismiss => return stack.refuse(incoming, &[]).unwrap(),
            Answer::Ignore => return self.ignored.push(incoming),
        };
        let device = stack.asked_device(&incoming).unwrap();
        let domain = stack.domain(&device).unwrap();
        let completions = stack.completions(&device, 256).unwrap();
        let capsule = 64 + self.style.capsule_bytes as usize;
        let stage = RECEIVES as usize * capsule;
        let response = stage + STAGE_BYTES;
        let access = Access { local_write: true, ..Access::default() };
        let memory = Memory::new(stack, &domain, response + 64, access).unwrap();
        let receives = stack.receives(&domain, RECEIVES, 1).unwrap();
        for index in 0..RECEIVES as usize {
            post_receive(stack, &receives, &memory, capsule, index);
        }
        let shared = Some(&receives);
        let options =
            PairOptions { domain: &domain, completions: &completions, shared, sends: 64, receives: 0, parts: 1 };
        // A host that sends more commands than there are receives loses the connection at once.
        let reads = Reads { serves: 0, issues: 4 };
        let greeting = Greeting { private_data: &words, reads, no_receive_tries: Some(0) };
        self.next += 1;
        let pair = stack.accept(incoming, self.next, &options, &greeting).unwrap();
        let mut mind = Mind::new(self.style.clone(), self.memory.clone(), DiscoveryEntry::RDMA);
        (mind.seen, mind.address) = (self.seen.alive.clone(), Some(self.at));
        let (waiting, is_over) = (VecDeque::new(), false);
        let connection =
            Connection { pair, completions, receives, memory, capsule, stage, response, mind, waiting, is_over };
        self.connections.insert(self.next, connection);
    }
}

fn post_receive(stack: &Either, receives: &Receives, memory: &Memory<Either>, capsule: usize, index: usize) {
    let parts = [memory.part(index * capsule..(index + 1) * capsule)];
    stack.receive_shared(receives, Receive { id: index as u64, parts: &parts }).unwrap();
}

/// One connection at work.
struct Working<'a> {
    stack: &'a Either,
    style: &'a Style,
    memory: &'a Mutex<Vec<u8>>,
    seen: &'a Seen,
    connection: &'a mut Connection,
}

impl Working<'_> {
    fn command(&mut self, index: usize, length: usize, whim: &Whim) {
        let mut capsule = vec![0; length];
        self.connection.memory.read(index * self.connection.capsule, &mut capsule);
        let Connection { receives, memory, capsule: bytes, .. } = &*self.connection;
        post_receive(self.stack, receives, memory, *bytes, index);
        let command = Command::read(capsule[..64].try_into().unwrap());
        assert_eq!(command.psdt(), 1, "an SGL");
        let place = RdmaData::of(&command.sgl).expect("a descriptor that exists over RDMA");
        let is_admin = self.connection.mind.is_admin;
        let is_io = !is_admin && command.opcode != FABRICS;
        if is_admin {
            assert_eq!(length, 64, "the admin queue has no data in capsules");
        }
        let mood = if is_io { whim(&command) } else { Mood::Serve };
        match mood {
            Mood::Ignore => {
                self.seen.ignored.fetch_add(1, Ordering::Release);
                return;
            }
            Mood::Close => return self.connection.is_over = true,
            Mood::Fail(status) => return self.answer(command.cid, status, 0),
            Mood::Other(cid) => return self.answer(cid, Status::SUCCESS, 0),
            Mood::Beyond(beyond) => {
                let RdmaData::Remote(KeyedSgl { address, length, key, .. }) = place else { panic!("in the capsule") };
                self.write(address, key, &vec![0xbb; (length + beyond) as usize]);
                self.seen.beyond.fetch_add(1, Ordering::Release);
                return;
            }
            Mood::Before => {
                let RdmaData::Remote(KeyedSgl { address, key, .. }) = place else { panic!("in the capsule") };
                return drop(self.fetch(address - 512, key, 1024));
            }
            Mood::OtherKey => {
                let RdmaData::Remote(KeyedSgl { address, length, key, .. }) = place else { panic!("in the capsule") };
                return self.write(address, key ^ 0x100, &vec![0xbb; length as usize]);
            }
            _ => {}
        }
        let data = match place {
            _ if !takes_data(&command) => Vec::new(),
            RdmaData::InCapsule { offset, length } => {
                assert_eq!((offset, capsule.len()), (0, 64 + length as usize));
                self.seen.in_capsules.fetch_add(u32::from(is_io), Ordering::Relaxed);
                capsule[64..].to_vec()
            }
            RdmaData::Remote(KeyedSgl { length: 0, .. }) => Vec::new(),
            RdmaData::Remote(KeyedSgl { address, length, key, invalidate }) => {
                assert!(!invalidate, "keys serve the next op, too");
                self.seen.fetched.fetch_add(u32::from(is_io), Ordering::Relaxed);
                match self.fetch(address, key, length) {
                    Some(data) => data,
                    None => return,
                }
            }
        };
        let (status, result, given) = if command.opcode == FABRICS {
            let (status, result) = self.connection.mind.fabrics(&command, &data);
            (status, result, Vec::new())
        } else if is_admin {
            let Some((page, status, result)) = self.connection.mind.admin(&command) else { return };
            (status, result, page)
        } else {
            let (status, given) = self.io(&command, &data);
            (status, 0, given)
        };
        if !given.is_empty() {
            let RdmaData::Remote(KeyedSgl { address, length, key, .. }) = place else { panic!("data for a capsule") };
            assert!(given.len() <= length as usize);
            self.write(address, key, &given);
        }
        match (mood, place) {
            (Mood::Bytes(bytes), _) => self.say(&vec![0; bytes], None),
            (Mood::Invalidate, RdmaData::Remote(KeyedSgl { key, .. })) => {
                let completion = Completion { cid: command.cid, ..Completion::default() };
                self.say(&completion.write(), Some(key));
            }
            _ => self.answer(command.cid, status, result),
        }
        match mood {
            Mood::Twice => self.answer(command.cid, status, result),
            Mood::Last => self.connection.is_over = true,
            _ => {}
        }
    }

    /// Status, and data for the host.
    fn io(&mut self, command: &Command, data: &[u8]) -> (Status, Vec<u8>) {
        let mut memory = self.memory.lock().unwrap();
        let (at, len) = (command.slba() as usize * BLOCK as usize, (command.block_count() * BLOCK) as usize);
        match command.opcode {
            io::FLUSH => {}
            io::DATASET_MANAGEMENT => {
                for range in Range::all(data) {
                    memory[range.slba as usize * BLOCK as usize..][..(range.blocks * BLOCK) as usize].fill(0);
                }
            }
            _ if at + len > memory.len() => return (Status::LBA_OUT_OF_RANGE, Vec::new()),
            io::READ => return (Status::SUCCESS, memory[at..at + len].to_vec()),
            io::WRITE => {
                assert_eq!(data.len(), len);
                assert!(data.len() <= self.style.capsule_bytes as usize || command.sgl.id != 1);
                memory[at..at + len].copy_from_slice(data);
            }
            other => panic!("opcode {other:#x}"),
        }
        (Status::SUCCESS, Vec::new())
    }

    fn answer(&mut self, cid: u16, status: Status, result: u64) {
        let completion = Completion { cid, status, result, ..Completion::default() };
        self.say(&completion.write(), None);
    }

    fn say(&mut self, bytes: &[u8], invalidate: Option<u32>) {
        let at = self.connection.response;
        self.connection.memory.write(at, bytes);
        self.carry_out(Request::Send { invalidate }, at, bytes.len());
    }

    fn write(&mut self, address: u64, key: u32, bytes: &[u8]) {
        let at = self.connection.stage;
        self.connection.memory.write(at, bytes);
        self.carry_out(Request::Write { address, key }, at, bytes.len());
    }

    fn fetch(&mut self, address: u64, key: u32, length: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        let at = self.connection.stage;
        let fetched = self.carry_out(Request::Read { address, key }, at, bytes.len());
        self.connection.memory.read(at, &mut bytes);
        fetched.then_some(bytes)
    }

    /// Posts work and waits for its end. False if it failed: the connection is over.
    fn carry_out(&mut self, request: Request, at: usize, length: usize) -> bool {
        let until = Instant::now() + PATIENCE;
        const ID: u64 = 1 << 40;
        let parts = [self.connection.memory.part(at..at + length)];
        let work = Work { id: ID, request, parts: &parts, signaled: true };
        self.stack.post(&self.connection.pair, work).unwrap();
        loop {
            let mut finished = Vec::new();
            self.stack.poll(&self.connection.completions, 64, &mut finished).unwrap();
            let mine = finished.iter().position(|end| !end.received && end.id == ID);
            let status = mine.map(|mine| finished.remove(mine).status);
            self.connection.waiting.extend(finished);
            if let Some(status) = status {
                let refused = matches!(status, Outcome::RemoteAccess | Outcome::RemoteInvalidRequest);
                self.seen.refused.fetch_add(refused.into(), Ordering::Relaxed);
                self.connection.is_over |= status != Outcome::Success;
                return status == Outcome::Success;
            }
            assert!(Instant::now() < until, "posted work has no end");
        }
    }
}

/// True for commands whose data go to the controller: bits 1:0 of the opcode, or of FCTYPE, say 01b.
fn takes_data(command: &Command) -> bool {
    let code = if command.opcode == FABRICS { command.fctype() } else { command.opcode };
    code & 3 == 1
}

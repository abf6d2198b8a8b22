//! A controller for tests of the initiator: bytes in, bytes out, one namespace in memory. The controller is correct,
//! but whimsical: it cuts data as it is told to, answers in any order, and does what no real target does when a test
//! asks for it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nvme::pdu::{self, Agreement, C2hData, End, IcResp, Limits, Next, Pdu, R2t, Receiver, digest};
use nvme::spec::log::DiscoveryEntry;
use nvme::spec::opcode::io;
use nvme::spec::{Command, Completion, Data, Range, Status};

mod mind;
pub mod rdma;
mod wrong;
pub use mind::Mind;
pub use wrong::Wrong;

pub const BLOCK: u32 = 512;
/// A bound that only an end that hangs meets.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The style of the controller: the choices that the protocol leaves to it.
#[derive(Clone, Debug)]
pub struct Style {
    /// Data of one C2HData and of one R2T.
    pub piece: u32,
    pub maxh2cdata: u32,
    pub cpda: u8,
    /// Reads end with the SUCCESS flag instead of a response.
    pub success: bool,
    /// Answers wait until [`Double::release`], which shuffles them.
    pub shuffle: bool,
    pub capsule_bytes: u32,
    pub mdts: u8,
    /// Keep-alives have answers.
    pub keep_alive: bool,
    pub subnqn: &'static str,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            piece: 1 << 20,
            maxh2cdata: 1 << 17,
            cpda: 0,
            success: true,
            shuffle: false,
            capsule_bytes: 4096,
            mdts: 5,
            keep_alive: true,
            subnqn: "nqn.2016-06.io.spdk:double",
        }
    }
}

/// The test's choice of the fate of each command.
pub type Whim = Arc<dyn Fn(&Command) -> Mood + Send + Sync>;

/// The fate of an I/O command.
#[derive(Clone, Debug, PartialEq)]
pub enum Mood {
    Serve,
    Fail(Status),
    /// No answer, ever.
    Ignore,
    /// The connection is closed instead.
    Close,
    /// These bytes are sent instead.
    Say(Vec<u8>),
    /// Served, but a data digest, or the length of the data, is wrong.
    Damage,
    Shorten,
    /// A violation instead.
    Wrong(Wrong),
}

/// The controller's end of one connection.
pub struct Double {
    pub style: Style,
    pub memory: Arc<Mutex<Vec<u8>>>,
    whim: Whim,
    receiver: Receiver,
    agreement: Agreement,
    input: Vec<u8>,
    pub output: Vec<u8>,
    held: Vec<Vec<u8>>,
    transfers: HashMap<u16, (Command, u32, Vec<u8>)>,
    next_ttag: u16,
    greeted: bool,
    mind: Mind,
    seed: u64,
    pub closed: bool,
}

impl Double {
    pub fn new(style: Style, memory: Arc<Mutex<Vec<u8>>>, whim: Whim) -> Double {
        let limits = Limits { capsule: 8192.max(style.capsule_bytes), data: style.maxh2cdata };
        let mind = Mind::new(style.clone(), memory.clone(), DiscoveryEntry::TCP);
        Double {
            style,
            memory,
            whim,
            receiver: Receiver::new(End::Host, limits),
            agreement: Agreement::default(),
            input: Vec::new(),
            output: Vec::new(),
            held: Vec::new(),
            transfers: HashMap::new(),
            next_ttag: 0x100,
            greeted: false,
            mind,
            seed: 1,
            closed: false,
        }
    }

    /// Takes bytes of the host. Panics on a violation: the initiator makes none.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let Next::Unit(layout, unit) = self.receiver.next(&self.input).expect("a unit as it must be") else {
                return;
            };
            if layout.total() as usize > self.input.len() {
                return;
            }
            let rest = self.input.split_off(layout.total() as usize);
            let whole = std::mem::replace(&mut self.input, rest);
            let data = whole[layout.data_at as usize..][..layout.data_bytes as usize].to_vec();
            if layout.data_digest_bytes > 0 {
                assert_eq!(whole[whole.len() - 4..], digest::of(&data).to_le_bytes(), "data digest");
            }
            match unit {
                Pdu::IcReq(asked) => {
                    assert!(!std::mem::replace(&mut self.greeted, true));
                    let (answer, agreement) = asked.granted(self.style.maxh2cdata).unwrap();
                    let answer = IcResp { cpda: self.style.cpda, ..answer };
                    self.output.extend(answer.pdu());
                    self.agreement = Agreement { cpda: self.style.cpda, ..agreement };
                    self.receiver.agreement = self.agreement;
                }
                Pdu::CapsuleCmd(command) => self.command(command, &data),
                Pdu::H2cData(part) => {
                    let (command, from, mut got) = self.transfers.remove(&part.ttag).expect("a TTAG given");
                    assert_eq!((part.cid, part.offset), (command.cid, from + got.len() as u32));
                    got.extend(data);
                    let until = (from + self.style.piece).min(command.sgl.length);
                    assert_eq!(part.last, from + got.len() as u32 == until, "LAST_PDU");
                    if !part.last {
                        self.transfers.insert(part.ttag, (command, from, got));
                    } else {
                        self.store(&command, from, &got);
                        if until < command.sgl.length {
                            self.ask(command, until)
                        } else {
                            self.answer(command.cid, Status::SUCCESS, 0)
                        }
                    }
                }
                Pdu::TermReq { .. } => self.closed = true,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets answers go that were held, in another order.
    pub fn release(&mut self) {
        while !self.held.is_empty() {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let answer = self.held.swap_remove((self.seed >> 33) as usize % self.held.len());
            self.output.extend(answer);
        }
    }

    fn command(&mut self, command: Command, data: &[u8]) {
        if command.opcode == nvme::spec::opcode::FABRICS {
            return self.fabrics(command, data);
        }
        if self.mind.is_admin {
            return self.admin(command);
        }
        match (self.whim)(&command) {
            Mood::Serve => self.io(command, data, false, false),
            Mood::Damage => self.io(command, data, true, false),
            Mood::Shorten => self.io(command, data, false, true),
            Mood::Fail(status) => self.answer(command.cid, status, 0),
            Mood::Ignore => {}
            Mood::Close => self.closed = true,
            Mood::Say(bytes) => self.output.extend(bytes),
            Mood::Wrong(wrong) => self.violate(wrong, &command),
        }
    }

    fn fabrics(&mut self, command: Command, data: &[u8]) {
        let (status, result) = self.mind.fabrics(&command, data);
        self.answer(command.cid, status, result);
    }

    fn admin(&mut self, command: Command) {
        if let Some((page, status, result)) = self.mind.admin(&command) {
            self.data(&command, 0, &page, false);
            self.answer(command.cid, status, result);
        }
        self.release();
    }

    fn io(&mut self, command: Command, data: &[u8], damage: bool, shorten: bool) {
        let (at, len) = (command.slba() * u64::from(BLOCK), command.block_count() * BLOCK);
        let size = self.memory.lock().unwrap().len() as u64;
        match command.opcode {
            io::FLUSH => self.answer(command.cid, Status::SUCCESS, 0),
            io::DATASET_MANAGEMENT => {
                for range in Range::all(data) {
                    let at = range.slba as usize * BLOCK as usize;
                    self.memory.lock().unwrap()[at..][..(range.blocks * BLOCK) as usize].fill(0);
                }
                self.answer(command.cid, Status::SUCCESS, 0);
            }
            _ if at + u64::from(len) > size => self.answer(command.cid, Status::LBA_OUT_OF_RANGE, 0),
            io::READ => {
                assert_eq!(command.sgl.data(), Ok(Data::Transport { length: len }));
                let mut bytes = self.memory.lock().unwrap()[at as usize..][..len as usize].to_vec();
                if shorten {
                    bytes.truncate(len as usize / 2);
                }
                let success = self.style.success && !shorten && !self.style.shuffle;
                self.data(&command, 0, &bytes, success);
                if damage {
                    *self.output.last_mut().unwrap() ^= 1;
                }
                if !success {
                    self.answer(command.cid, Status::SUCCESS, 0);
                }
            }
            io::WRITE => match command.sgl.data().unwrap() {
                Data::InCapsule { offset, length } => {
                    assert_eq!((offset, length, data.len()), (0, len, len as usize));
                    self.store(&command, 0, data);
                    self.answer(command.cid, Status::SUCCESS, 0);
                }
                Data::Transport { length } => {
                    assert!(length == len && length > self.style.capsule_bytes);
                    self.ask(command, 0);
                }
            },
            other => panic!("opcode {other:#x}"),
        }
    }

    fn ask(&mut self, command: Command, offset: u32) {
        let (ttag, length) = (self.next_ttag, (command.sgl.length - offset).min(self.style.piece));
        self.next_ttag = self.next_ttag.wrapping_add(1);
        self.transfers.insert(ttag, (command, offset, Vec::new()));
        self.unit(|agreement, out| R2t { cid: command.cid, ttag, offset, length }.write(agreement, out), false);
    }

    fn store(&mut self, command: &Command, offset: u32, data: &[u8]) {
        let at = command.slba() as usize * BLOCK as usize + offset as usize;
        self.memory.lock().unwrap()[at..][..data.len()].copy_from_slice(data);
    }

    fn data(&mut self, command: &Command, mut offset: u32, data: &[u8], success: bool) {
        let end = offset + data.len() as u32;
        for piece in data.chunks(self.style.piece as usize) {
            let (cid, length) = (command.cid, piece.len() as u32);
            let last = offset + length == end;
            self.send_data(C2hData { cid, offset, length, last, success: success && last }, piece);
            offset += length;
        }
    }

    fn send_data(&mut self, header: C2hData, data: &[u8]) {
        self.unit(|agreement, out| header.write(agreement, out), false);
        self.output.extend(data);
        if self.agreement.data_digest {
            self.output.extend(digest::of(data).to_le_bytes());
        }
    }

    fn answer(&mut self, cid: u16, status: Status, result: u64) {
        let completion = Completion { cid, status, result, ..Completion::default() };
        let hold = self.style.shuffle && !self.mind.is_admin;
        self.unit(|agreement, out| pdu::response(&completion, agreement, out), hold);
    }

    fn unit(&mut self, write: impl FnOnce(&Agreement, &mut [u8]) -> usize, hold: bool) {
        let mut bytes = [0; pdu::MAX_HEADER_BYTES];
        let len = write(&self.agreement, &mut bytes);
        if hold { self.held.push(bytes[..len].to_vec()) } else { self.output.extend(&bytes[..len]) }
    }
}

/// Doubles behind a listening socket, a thread each.
pub struct Server {
    pub address: SocketAddr,
    pub memory: Arc<Mutex<Vec<u8>>>,
    pub connections: Arc<AtomicU32>,
    pub seen: Arc<AtomicU32>,
    /// While set, connections are closed as they come, and those that are there.
    pub down: Arc<AtomicBool>,
}

impl Server {
    pub fn start(style: Style, bytes: usize, whim: Whim) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            memory: Arc::new(Mutex::new(vec![0; bytes])),
            connections: Arc::default(),
            seen: Arc::default(),
            down: Arc::default(),
        };
        let (memory, connections, seen) = (server.memory.clone(), server.connections.clone(), server.seen.clone());
        let (address, down) = (server.address, server.down.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if down.load(Ordering::Relaxed) {
                    continue;
                }
                connections.fetch_add(1, Ordering::Relaxed);
                let mut double = Double::new(style.clone(), memory.clone(), whim.clone());
                (double.mind.seen, double.mind.address) = (seen.clone(), Some(address));
                let down = down.clone();
                std::thread::spawn(move || attend(double, stream, &down));
            }
        });
        server
    }
}

fn attend(mut double: Double, mut stream: TcpStream, down: &AtomicBool) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
    let mut bytes = vec![0; 1 << 18];
    while !double.closed && !down.load(Ordering::Relaxed) {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(read) => double.feed(&bytes[..read]),
            // Interrupted: a process that was stopped and goes on, signal(7).
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
        double.release();
        if stream.write_all(&std::mem::take(&mut double.output)).is_err() {
            return;
        }
    }
}

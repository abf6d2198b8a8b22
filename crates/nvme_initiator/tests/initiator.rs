//! The initiator against a controller of the test's own: what no real target does is answered as it must be.

mod double;
mod memory;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use double::{BLOCK, Double, Mood, Server, Style, Whim};
use memory::Memory;
use nvme::pdu::{self, Agreement, C2hData, Fault, IcReq, R2t};
use nvme::spec::{Command, Completion, Range, Status, opcode::io as op};
use nvme_initiator::{Address, Broken, Controller, Done, Link, Options, Queue, Renewal, Transfer, discover};
use proptest::prelude::*;

const BYTES: usize = 256 << 10;

fn serve() -> Whim {
    Arc::new(|_| Mood::Serve)
}

/// A connection without a network: bytes come and go in pieces of any size.
struct Wire {
    double: Double,
    at: usize,
    seed: u64,
}

impl Wire {
    fn piece(&mut self, most: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match self.seed >> 33 & 3 {
            0 => 0,
            1 => most.min(1 + (self.seed >> 40 & 7) as usize),
            2 => most.min(1 + (self.seed >> 40 & 0xfff) as usize),
            _ => most,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let there = self.double.output.len() - self.at;
        let len = self.piece(there.min(buffer.len()));
        if len == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        buffer[..len].copy_from_slice(&self.double.output[self.at..][..len]);
        self.at += len;
        Ok(len)
    }

    fn read_vectored(&mut self, buffers: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        let mut total = 0;
        for buffer in buffers {
            match self.read(buffer) {
                Ok(read) if read == buffer.len() => total += read,
                Ok(read) => return Ok(total + read),
                Err(_) if total > 0 => return Ok(total),
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.piece(bytes.len());
        if len == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.double.feed(&bytes[..len]);
        Ok(len)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        self.write(&bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A queue after the handshake, and its wire.
fn connected(style: Style, asked: IcReq, whim: Whim, depth: u32, seed: u64) -> (Queue, Wire) {
    let mut double = Double::new(style.clone(), Arc::new(Mutex::new(vec![0; BYTES])), whim);
    double.feed(&asked.pdu());
    double.output.clear();
    let digests = (asked.dgst & 1 != 0, asked.dgst & 2 != 0);
    let agreement = Agreement { header_digest: digests.0, data_digest: digests.1, hpda: asked.hpda, cpda: style.cpda };
    let queue = Queue::new(depth, agreement, style.maxh2cdata, style.capsule_bytes);
    (queue, Wire { double, at: 0, seed })
}

#[derive(Clone, Debug)]
enum Op {
    Read(u32, u32),
    Write(u32, u32, u8),
    Trim(u32, u32),
    Flush,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let blocks = BYTES as u32 / BLOCK;
    let place = (0..blocks).prop_flat_map(move |at| (Just(at), 1..=(blocks - at).min(200)));
    let op = prop_oneof![
        4 => place.clone().prop_map(|(at, len)| Op::Read(at, len)),
        4 => (place.clone(), any::<u8>()).prop_map(|((at, len), byte)| Op::Write(at, len, byte)),
        1 => place.prop_map(|(at, len)| Op::Trim(at, len)),
        1 => Just(Op::Flush),
    ];
    proptest::collection::vec(op, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Ops that do not overlap are in flight together; those that do wait for each other. A read gives the content of
    /// the reference, however bytes are cut on the way.
    #[test]
    fn what_is_read_is_what_was_written(
        ops in ops(),
        (header, data, hpda, cpda) in (any::<bool>(), any::<bool>(), 0..32u8, 0..32u8),
        (piece, maxh2cdata, success, shuffle) in
            (prop_oneof![Just(512), Just(4096), Just(1 << 20)], prop_oneof![Just(4096), Just(1 << 17)], any::<bool>(), any::<bool>()),
        (capsule_bytes, depth, seed) in (prop_oneof![Just(0), Just(4096), Just(8192)], 1..20u32, any::<u64>()),
    ) {
        let style = Style { piece, maxh2cdata, cpda, success, shuffle, capsule_bytes, ..Style::default() };
        let asked = IcReq { hpda, ..IcReq::asking(header, data) };
        let (mut queue, mut wire) = connected(style, asked, serve(), depth, seed);
        let (mut memory, mut reference) = (Memory::default(), vec![0; BYTES]);
        let mut busy: HashMap<u32, (usize, usize, Op)> = HashMap::new();
        let (mut waiting, mut done) = (ops.iter().cloned().enumerate().peekable(), Vec::new());
        let mut idle = 0;
        while waiting.peek().is_some() || !busy.is_empty() {
            if let Some((tag, next)) = waiting.peek().cloned() {
                let (from, to) = match next {
                    Op::Read(at, len) | Op::Write(at, len, _) | Op::Trim(at, len) => ((at * BLOCK) as usize, ((at + len) * BLOCK) as usize),
                    Op::Flush => (0, 0),
                };
                let tag = tag as u32;
                let free = busy.values().all(|&(start, end, _)| to <= start || end <= from);
                let len = (to - from) as u32;
                let (command, bytes, transfer) = match next {
                    Op::Read(at, len) => {
                        let bytes = len * BLOCK;
                        (Command::blocks(op::READ, 1, at.into(), len), vec![0xee; bytes as usize + 8], Transfer::In { at: 8, len: bytes })
                    }
                    Op::Write(at, len, byte) => {
                        let bytes: Vec<u8> = (0..len * BLOCK).map(|index| byte.wrapping_add((index / 7) as u8)).collect();
                        let bytes = [&[0xdd; 3][..], &bytes].concat();
                        (Command::blocks(op::WRITE, 1, at.into(), len), bytes, Transfer::Out { at: 3, len: len * BLOCK })
                    }
                    Op::Trim(at, len) => {
                        let range = Range { attributes: 0, blocks: len, slba: at.into() };
                        (Range::deallocate(1, 1), range.write().to_vec(), Transfer::Out { at: 0, len: 16 })
                    }
                    Op::Flush => (Command::new(op::FLUSH, 1), Vec::new(), Transfer::None),
                };
                // Ranges are in the capsule or asked for like any data: this double takes them in the capsule only.
                let served = !matches!(next, Op::Trim(..)) || capsule_bytes > 0;
                if !served {
                    waiting.next();
                } else if free {
                    memory.0.insert(tag, bytes);
                    if queue.issue(tag, command, transfer, &memory) {
                        busy.insert(tag, (from, from + len as usize, next));
                        waiting.next();
                    } else {
                        prop_assert_eq!(queue.outstanding(), queue.depth());
                    }
                }
            }
            queue.send(&mut wire, &memory).unwrap();
            if wire.piece(3) > 1 {
                wire.double.release();
            }
            queue.receive(&mut wire, &mut memory, &mut done).unwrap();
            idle = if done.is_empty() { idle + 1 } else { 0 };
            prop_assert!(idle < 100_000, "nothing moves");
            for Done { tag, status, .. } in done.drain(..) {
                prop_assert!(status.is_ok(), "{}", status);
                let (from, to, op) = busy.remove(&tag).expect("ended once");
                let bytes = memory.0.remove(&tag).unwrap();
                match op {
                    Op::Read(..) => {
                        prop_assert!(bytes[8..] == reference[from..to]);
                        prop_assert!(bytes[..8] == [0xee; 8]);
                    }
                    Op::Write(..) => reference[from..to].copy_from_slice(&bytes[3..]),
                    Op::Trim(..) => reference[from..to].fill(0),
                    Op::Flush => {}
                }
            }
        }
        prop_assert_eq!(queue.outstanding(), 0);
        prop_assert!(*wire.double.memory.lock().unwrap() == reference);
    }

    /// The initiator survives any bytes of a controller: it neither panics nor writes outside of the range that an op
    /// asked for.
    #[test]
    fn any_bytes_of_a_controller_are_survived(
        prefix in proptest::collection::vec((0..10u8, 0..16u8, 0..3u16, 0..9000u32, 0..9000u32), 0..6),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let (mut queue, _) = connected(Style::default(), IcReq::default(), serve(), 4, 1);
        let mut memory = Memory::default();
        for tag in 0..3 {
            memory.0.insert(tag, vec![0x11; 4096 + 16]);
            let (opcode, transfer) = match tag {
                0 | 1 => (op::READ, Transfer::In { at: 8, len: 4096 }),
                _ => (op::WRITE, Transfer::Out { at: 8, len: 4096 }),
            };
            queue.issue(tag, Command::blocks(opcode, 1, 0, 8), transfer, &memory);
        }
        queue.set_capsule_bytes(0);
        let mut stream = Vec::new();
        for (kind, flags, cid, offset, length) in prefix {
            let mut header = [0; 24];
            let with_data = kind == 7;
            (header[0], header[1], header[2]) = (kind, flags & 0xc, 24);
            header[3] = 24 * u8::from(with_data);
            let total = 24 + if with_data { length } else { 0 };
            header[4..8].copy_from_slice(&total.to_le_bytes());
            header[8..10].copy_from_slice(&cid.to_le_bytes());
            header[12..16].copy_from_slice(&offset.to_le_bytes());
            header[16..20].copy_from_slice(&length.to_le_bytes());
            if kind == 5 {
                header[20..22].copy_from_slice(&cid.to_le_bytes());
            }
            stream.extend(header);
            stream.resize(stream.len() + if with_data { length as usize } else { 0 }, 0x99);
        }
        stream.extend(bytes);
        let (mut source, mut done) = (&stream[..], Vec::new());
        while queue.receive(&mut source, &mut memory, &mut done).is_ok() {}
        let mut sink = Vec::new();
        queue.send(&mut sink, &memory).unwrap();
        prop_assert!(done.len() <= 3);
        for bytes in memory.0.values() {
            prop_assert!(bytes[..8].iter().chain(&bytes[8 + 4096..]).all(|&byte| byte == 0x11));
        }
    }
}

/// Gives these bytes to a queue with a read (CID 0, 4096 bytes) and a write (CID 1, 8192 bytes) outstanding. Returns
/// the ops that end, or the error.
fn told(bytes: &[u8]) -> Result<Vec<Done>, Broken> {
    let (mut queue, _) = connected(Style::default(), IcReq::default(), serve(), 4, 1);
    let mut memory = Memory([(0, vec![0; 4096]), (1, vec![0; 8192])].into());
    assert!(queue.issue(0, Command::blocks(op::READ, 1, 0, 8), Transfer::In { at: 0, len: 4096 }, &memory));
    assert!(queue.issue(1, Command::blocks(op::WRITE, 1, 0, 16), Transfer::Out { at: 0, len: 8192 }, &memory));
    let (mut source, mut done) = (bytes, Vec::new());
    match queue.receive(&mut source, &mut memory, &mut done) {
        Ok(_) => Ok(done),
        Err(broken) => {
            let mut told = Vec::new();
            if let Broken::Fault(fault) = &broken {
                queue.terminate(fault, &mut told);
                assert_eq!((told[0], told.len() >= 24), (2, true), "H2CTermReq");
            }
            Err(broken)
        }
    }
}

fn unit(write: impl FnOnce(&mut [u8]) -> usize, data: usize) -> Vec<u8> {
    let mut bytes = vec![0; pdu::MAX_HEADER_BYTES];
    let len = write(&mut bytes);
    bytes.truncate(len);
    bytes.resize(len + data, 0x42);
    bytes
}

fn c2h(cid: u16, offset: u32, length: u32, last: bool, success: bool) -> Vec<u8> {
    let data = C2hData { cid, offset, length, last, success };
    unit(|out| data.write(&Agreement::default(), out), length as usize)
}

fn r2t(cid: u16, offset: u32, length: u32) -> Vec<u8> {
    unit(|out| R2t { cid, ttag: 9, offset, length }.write(&Agreement::default(), out), 0)
}

fn response(cid: u16, status: Status) -> Vec<u8> {
    let completion = Completion { cid, status, ..Completion::default() };
    unit(|out| pdu::response(&completion, &Agreement::default(), out), 0)
}

#[test]
fn what_a_controller_may_not_say_ends_the_connection_and_is_named() {
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        ("data for no command", c2h(3, 0, 512, false, false), "CCCID"),
        ("data for a CID beyond the queue", c2h(4000, 0, 512, false, false), "CCCID"),
        ("data for a write", c2h(1, 0, 512, false, false), "CCCID"),
        ("data with a gap", c2h(0, 512, 512, false, false), "DATAO"),
        ("data twice", [c2h(0, 0, 512, false, false), c2h(0, 0, 512, false, false)].concat(), "DATAO"),
        ("more data than asked for", c2h(0, 0, 4608, true, true), "DATAL"),
        ("R2T for no command", r2t(2, 0, 512), "CCCID"),
        ("R2T for a read", r2t(0, 0, 512), "CCCID"),
        ("R2T with a gap", r2t(1, 4096, 4096), "R2TO"),
        ("R2T for more than there is", r2t(1, 0, 8193), "R2TL"),
        ("R2T again", [r2t(1, 0, 8192), r2t(1, 0, 8192)].concat(), "R2TO"),
        ("a response to nothing", response(2, Status::SUCCESS), "CID"),
        ("a response twice", [response(1, Status::SUCCESS), response(1, Status::SUCCESS)].concat(), "CID"),
        (
            "the handshake again",
            nvme::pdu::IcResp { maxh2cdata: 4096, ..Default::default() }.pdu().to_vec(),
            "PDU-TYPE",
        ),
        ("a unit of hosts", IcReq::default().pdu().to_vec(), "PDU-TYPE"),
    ];
    for (what, bytes, field) in table {
        match told(&bytes) {
            Err(Broken::Fault(Fault { field: wrong, .. })) => assert_eq!(wrong, field, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    assert!(matches!(told(&[]), Err(Broken::Closed)));
    let (bytes, len) = pdu::TermReq { sender: pdu::End::Controller, status: 3, info: 7, header: &[] }.pdu();
    let terminated = told(&bytes[..len]).unwrap_err();
    assert!(terminated.to_string().contains("Header Digest Error"), "{terminated}");
}

#[test]
fn a_command_that_ends_early_or_short_has_the_status_that_it_must_have() {
    let failed = told(&response(1, Status::WRITE_FAULT)).unwrap();
    assert_eq!((failed[0].tag, failed[0].status), (1, Status::WRITE_FAULT));
    let no_data = told(&response(0, Status::SUCCESS)).unwrap();
    assert_eq!(no_data[0].status, Status::TRANSIENT_TRANSPORT_ERROR, "a read without its data has not succeeded");
    let half = told(&[c2h(0, 0, 2048, true, false), response(0, Status::SUCCESS)].concat()).unwrap();
    assert_eq!(half[0].status, Status::TRANSIENT_TRANSPORT_ERROR);
    let success_half = told(&c2h(0, 0, 2048, true, true)).unwrap();
    assert_eq!(success_half[0].status, Status::TRANSIENT_TRANSPORT_ERROR);
    let unasked = told(&response(1, Status::SUCCESS)).unwrap();
    assert_eq!(unasked[0].status, Status::TRANSIENT_TRANSPORT_ERROR, "nobody has asked for the data of the write");
    let unsent = told(&[r2t(1, 0, 8192), response(1, Status::SUCCESS)].concat()).unwrap();
    assert_eq!(unsent[0].status, Status::TRANSIENT_TRANSPORT_ERROR, "its data have not left yet");
    // A response in the middle of data that are being sent: they are sent as they were.
    let early = told(&[r2t(1, 0, 8192), response(1, Status::WRITE_FAULT)].concat()).unwrap();
    assert_eq!(early[0].status, Status::WRITE_FAULT);
}

#[test]
fn a_data_digest_that_does_not_match_fails_its_command_alone() {
    let whim: Whim = Arc::new(|command| if command.slba() == 8 { Mood::Damage } else { Mood::Serve });
    let (mut queue, mut wire) = connected(Style::default(), IcReq::asking(true, true), whim, 4, 3);
    let mut memory = Memory((0..3).map(|tag| (tag, vec![0xee; 4096])).collect());
    for tag in 0..3 {
        let command = Command::blocks(op::READ, 1, u64::from(tag) * 8, 8);
        assert!(queue.issue(tag, command, Transfer::In { at: 0, len: 4096 }, &memory));
    }
    let mut done = Vec::new();
    while done.len() < 3 {
        queue.send(&mut wire, &memory).unwrap();
        queue.receive(&mut wire, &mut memory, &mut done).unwrap();
    }
    for Done { tag, status, .. } in done {
        assert_eq!(status, if tag == 1 { Status::TRANSIENT_TRANSPORT_ERROR } else { Status::SUCCESS });
    }
}

fn options() -> Options {
    let mut options = Options { timeout: Duration::from_secs(60), ..Options::default() };
    options.set_host("nqn.2016-06.io.spdk:host1".parse().unwrap());
    options
}

fn address(server: &Server) -> Address {
    Address { subnqn: Some(Style::default().subnqn.parse().unwrap()), ..server.address.into() }
}

/// Drives queues until this number of commands has ended.
fn drive(queues: &mut [Link], memory: &mut Memory, count: usize) -> Result<Vec<Done>, Broken> {
    let mut done = Vec::new();
    while done.len() < count {
        for link in queues.iter_mut() {
            link.send(memory)?;
            link.receive(memory, &mut done)?;
        }
        std::thread::yield_now();
    }
    Ok(done)
}

#[test]
fn a_controller_is_found_connected_and_used() {
    let server = Server::start(Style::default(), BYTES, serve());
    let found = discover(&server.address.into(), &options()).unwrap();
    assert_eq!(found.iter().map(|found| found.is_referral).collect::<Vec<_>>(), [false, true], "not that over RDMA");
    assert_eq!(found[0].address.port, server.address.port());

    let asked = Options { queues: 9, depth: 1000, header_digest: true, data_digest: true, ..options() };
    // Without a name: the only subsystem.
    let (controller, mut queues) = Controller::connect(&server.address.into(), &asked).unwrap();
    assert_eq!(controller.subsystem().as_str(), Style::default().subnqn);
    assert_eq!((queues.len(), queues[0].depth()), (4, 128), "what the controller grants");
    let Link::Tcp(link) = &queues[0] else { panic!("the default transport") };
    assert!(link.queue.agreement().header_digest && link.queue.agreement().data_digest);
    assert_eq!(controller.namespaces().unwrap(), [1]);
    let namespace = controller.namespace(1).unwrap();
    assert_eq!((namespace.block_bytes, namespace.blocks), (512, BYTES as u64 / 512));
    let error = controller.namespace(2).unwrap_err().to_string();
    assert!(error.contains("io.spdk:double has 1 (give ns=)"), "{error}");
    assert_eq!(controller.max_transfer_bytes(), 128 << 10);

    let mut memory = Memory((0..4).map(|tag| (tag, vec![tag as u8 + 1; 16384])).collect());
    for (tag, queue) in queues.iter_mut().enumerate() {
        let command = Command::blocks(op::WRITE, 1, tag as u64 * 32, 32);
        assert!(queue.issue(tag as u32, command, Transfer::Out { at: 0, len: 16384 }, &memory));
    }
    assert!(drive(&mut queues, &mut memory, 4).unwrap().iter().all(|done| done.status.is_ok()));
    assert_eq!(server.memory.lock().unwrap()[3 * 16384 - 1..][..2], [3, 4]);
}

#[test]
fn it_is_said_why_there_is_no_connection() {
    // A port that is taken, by the near end of a connection, and not listened at: nobody else can come to listen there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let nobody = taken.local_addr().unwrap();
    let error = Controller::connect(&nobody.into(), &options()).err().unwrap();
    assert!(error.to_string().contains("is the target running") && error.errno == 111, "{error}");

    let server = Server::start(Style::default(), BYTES, serve());
    let other = Address { subnqn: Some("nqn.2016-06.io.spdk:other".parse().unwrap()), ..server.address.into() };
    let error = Controller::connect(&other, &options()).err().unwrap().to_string();
    assert!(
        error.contains("there is no subsystem nqn.2016-06.io.spdk:other")
            && error.contains("is nqn.2016-06.io.spdk:double"),
        "{error}"
    );

    // A server that is not an NVMe/TCP target.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let web = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 128]);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = Controller::connect(&web.into(), &options()).err().unwrap().to_string();
    assert!(error.contains("violates the protocol") && !error.contains('\n'), "{error}");
}

#[test]
fn signs_of_life_are_given() {
    let server = Server::start(Style::default(), BYTES, serve());
    // A sign that is not answered within this time costs the connection: the double may be slow to get a processor.
    let asked = Options { keep_alive: Duration::from_secs(4), ..options() };
    let (controller, _queues) = Controller::connect(&address(&server), &asked).unwrap();
    while server.seen.load(Ordering::Relaxed) < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(controller.generation(), 1);
}

#[test]
fn a_lost_controller_is_found_again_and_what_was_outstanding_is_known() {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let whim: Whim = Arc::new(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Mood::Ignore,
        1 => Mood::Close,
        _ => Mood::Serve,
    });
    let server = Server::start(Style::default(), BYTES, whim);
    let (controller, mut queues) = Controller::connect(&address(&server), &options()).unwrap();
    let mut memory = Memory((0..2).map(|tag| (tag, vec![7; 4096])).collect());
    let command = |tag: u32| Command::blocks(op::WRITE, 1, u64::from(tag) * 8, 8);
    for tag in 0..2 {
        assert!(queues[0].issue(tag, command(tag), Transfer::Out { at: 0, len: 4096 }, &memory));
    }
    assert!(drive(&mut queues, &mut memory, 1).is_err(), "the connection breaks");
    let mut outstanding: Vec<_> = queues[0].outstanding_commands();
    outstanding.sort_by_key(|&(tag, ..)| tag);
    assert_eq!(outstanding.len(), 2);
    controller.lost(1);
    drop(queues);
    let Some(Renewal::Queues(generation, mut queues)) = controller.renewed(Duration::from_secs(60)) else {
        panic!("a new association")
    };
    assert_eq!((generation, controller.generation()), (2, 2));
    for (tag, command, transfer) in outstanding {
        assert!(queues[0].issue(tag, command, transfer, &memory));
    }
    assert!(drive(&mut queues, &mut memory, 2).unwrap().iter().all(|done| done.status.is_ok()));
    assert_eq!(server.memory.lock().unwrap()[..8192], [7; 8192]);
}

#[test]
fn a_controller_that_stays_lost_is_given_up() {
    let server = Server::start(Style::default(), BYTES, serve());
    let asked = Options { controller_loss: Duration::from_millis(250), ..options() };
    let (controller, _queues) = Controller::connect(&address(&server), &asked).unwrap();
    server.down.store(true, Ordering::Relaxed);
    let Some(Renewal::Lost(error)) = controller.renewed(Duration::from_secs(60)) else { panic!("lost") };
    assert!(error.errno != 0 && error.to_string().contains("127.0.0.1"), "{error}");
    assert!(controller.namespaces().is_err());
}

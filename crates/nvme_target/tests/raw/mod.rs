//! A host made of one socket: every byte that it sends is the test's choice.
#![allow(dead_code)] // each test file uses its part

#[path = "../serving/mod.rs"]
pub mod serving;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nvme::pdu::{self, Agreement, End, H2cData, IcReq, IcResp, Limits, MAX_HEADER_BYTES, Next, Pdu, Receiver, digest};
use nvme::spec::fabrics::{self, Connect, ConnectData, DYNAMIC_CONTROLLER, PropertyAccess};
use nvme::spec::reservation::{RegisteredController, ReservationCommand, ReservationStatus, report};
use nvme::spec::{Command, Completion, Nqn, Sgl, Status, property};
use nvme_target::device::DeviceKind;
use nvme_target::{Options, Target};
pub use serving::NQN;

pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f";

/// A target with a subsystem that lets everybody in, its devices as namespaces 1, 2, ...; ended when dropped.
pub struct Served {
    pub target: Target,
    pub address: SocketAddr,
}

impl Served {
    pub fn with(options: Options, devices: &[(&str, DeviceKind)]) -> Served {
        let target = serving::target(options, devices);
        let address = target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
        Served { target, address }
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

    /// The reactor of a controller's only I/O queue; `None` without one.
    pub fn reactor_of(&self, controller: u16) -> Option<u32> {
        let subsystem = self.target.subsystems().remove(0);
        let controller = subsystem.controllers.into_iter().find(|it| it.id == controller)?;
        controller.queues.iter().find(|queue| queue.id == 1).map(|queue| queue.reactor)
    }

    /// Asks for the move of that queue until it is there.
    pub fn move_to(&self, controller: u16, reactor: u32) {
        until(|| {
            self.target.move_queue(NQN, controller, 1, reactor).unwrap();
            self.reactor_of(controller) == Some(reactor)
        });
    }

    /// The server still serves: a new host connects, writes and reads.
    pub fn assert_alive(&self) {
        let (_admin, mut queue) = Host::pair(self.address);
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
    pub stream: TcpStream,
    pub receiver: Receiver,
    pub next_cid: u16,
    pub cntlid: u16,
    received: Vec<u8>,
}

/// A unit and its data.
#[derive(Debug)]
pub struct Unit {
    pub pdu: Pdu,
    pub data: Vec<u8>,
}

impl Host {
    pub fn tcp(address: SocketAddr) -> Host {
        Host::on(TcpStream::connect(address).unwrap())
    }

    /// A host that comes from another address of this machine, 127.0.0.2.
    pub fn from_elsewhere(address: SocketAddr) -> Host {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
        connect(&socket, &address).unwrap();
        Host::on(socket.into())
    }

    fn on(stream: TcpStream) -> Host {
        stream.set_nodelay(true).unwrap();
        // Not a limit on the target's speed: a target that never answers fails the test instead of hanging it.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let limits = Limits { capsule: 0, data: 16 << 20 };
        Host { stream, receiver: Receiver::new(End::Controller, limits), next_cid: 1, cntlid: 0, received: Vec::new() }
    }

    /// After the handshake.
    pub fn open(address: SocketAddr, header_digest: bool, data_digest: bool) -> Host {
        Host::tcp(address).greeted(header_digest, data_digest)
    }

    /// The host after the handshake.
    pub fn greeted(self, header_digest: bool, data_digest: bool) -> Host {
        let mut host = self;
        let asked = IcReq::asking(header_digest, data_digest);
        host.send(&asked.pdu());
        let Pdu::IcResp(response) = host.unit().unwrap().pdu else { panic!("no ICResp") };
        let IcResp { maxh2cdata, .. } = response;
        assert!(maxh2cdata >= 4096 && maxh2cdata % 4 == 0);
        host.receiver.agreement = response.agreement(&asked).unwrap();
        assert_eq!(host.receiver.agreement.header_digest, header_digest);
        assert_eq!(host.receiver.agreement.data_digest, data_digest);
        host
    }

    /// An enabled controller's admin queue.
    pub fn admin(address: SocketAddr) -> Host {
        Host::admin_of(address, NQN, HOST, false)
    }

    pub fn admin_of(address: SocketAddr, nqn: &str, hostnqn: &str, digests: bool) -> Host {
        let mut host = Host::open(address, digests, digests);
        let done = host.connect(0, 32, 0xffff, nqn, hostnqn);
        assert!(done.status.is_ok(), "{}", done.status);
        host.cntlid = done.result as u16;
        host.enable();
        host
    }

    /// An admin queue and an I/O queue of 128 entries.
    pub fn pair(address: SocketAddr) -> (Host, Host) {
        Host::pair_with(address, false)
    }

    pub fn pair_with(address: SocketAddr, digests: bool) -> (Host, Host) {
        let admin = Host::admin_of(address, NQN, HOST, digests);
        let queue = admin.queue(address, 1, digests);
        (admin, queue)
    }

    /// An I/O queue of this controller.
    pub fn queue(&self, address: SocketAddr, qid: u16, digests: bool) -> Host {
        let mut queue = Host::open(address, digests, digests);
        let done = queue.connect(qid, 128, self.cntlid, NQN, HOST);
        assert!(done.status.is_ok(), "{}", done.status);
        queue
    }

    pub fn agreement(&self) -> Agreement {
        self.receiver.agreement
    }

    pub fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The bytes of a capsule, digests included.
    pub fn capsule(&self, command: &Command, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; MAX_HEADER_BYTES];
        let len = pdu::command(command, data.len() as u32, &self.agreement(), &mut bytes);
        self.with_data(bytes, len, data)
    }

    /// The bytes of an H2CData, digests included.
    pub fn h2c(&self, header: &H2cData, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; MAX_HEADER_BYTES];
        let len = header.write(&self.agreement(), &mut bytes);
        self.with_data(bytes, len, data)
    }

    fn with_data(&self, mut bytes: Vec<u8>, len: usize, data: &[u8]) -> Vec<u8> {
        bytes.truncate(len);
        bytes.extend_from_slice(data);
        if self.agreement().data_digest && !data.is_empty() {
            bytes.extend_from_slice(&digest::of(data).to_le_bytes());
        }
        bytes
    }

    pub fn send_command(&mut self, mut command: Command, data: &[u8]) -> u16 {
        command.cid = self.cid();
        let bytes = self.capsule(&command, data);
        self.send(&bytes);
        command.cid
    }

    /// The next unit; `None` when the target has closed the connection.
    pub fn unit(&mut self) -> Option<Unit> {
        let mut chunk = [0; 65_536];
        loop {
            if let Next::Unit(layout, pdu) = self.receiver.next(&self.received).expect("the target sends legal units")
                && self.received.len() >= layout.total() as usize
            {
                let unit: Vec<u8> = self.received.drain(..layout.total() as usize).collect();
                let data = unit[layout.data_at as usize..][..layout.data_bytes as usize].to_vec();
                if layout.data_digest_bytes > 0 {
                    let came = &unit[unit.len() - 4..];
                    assert_eq!(came, digest::of(&data).to_le_bytes(), "data digest");
                }
                return Some(Unit { pdu, data });
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    assert!(self.received.is_empty(), "the connection ends within a unit");
                    return None;
                }
                Ok(read) => self.received.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // A process that was stopped and goes on: signal(7), on sockets with a timeout.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next response.
    pub fn response(&mut self) -> Completion {
        match self.unit().expect("a response").pdu {
            Pdu::CapsuleResp(completion) => completion,
            other => panic!("{other:?} instead of a response"),
        }
    }

    /// Waits for the TermReq with which the target ends the connection. Returns its FES and FEI. Panics if the
    /// connection ends without a TermReq.
    pub fn terminated(&mut self) -> (u16, u32) {
        loop {
            match self.unit() {
                Some(Unit { pdu: Pdu::TermReq { status, info }, .. }) => {
                    assert!(self.unit().is_none(), "closed after a TermReq");
                    return (status, info);
                }
                Some(_) => {}
                None => panic!("closed without a TermReq"),
            }
        }
    }

    /// True once the target has closed the connection, with or without a TermReq.
    pub fn is_closed(&mut self) -> bool {
        while let Some(unit) = self.unit() {
            if !matches!(unit.pdu, Pdu::TermReq { .. }) {
                continue;
            }
        }
        true
    }

    pub fn command(&mut self, command: Command, data: &[u8]) -> Completion {
        let cid = self.send_command(command, data);
        let done = self.response();
        assert_eq!(done.cid, cid);
        done
    }

    /// The data and completion of a command that reads.
    pub fn fetch(&mut self, command: Command) -> Result<Vec<u8>, Status> {
        let cid = self.send_command(command, &[]);
        let mut data = Vec::new();
        loop {
            let unit = self.unit().expect("data or a response");
            match unit.pdu {
                Pdu::C2hData(header) => {
                    assert_eq!((header.cid, header.offset as usize), (cid, data.len()));
                    data.extend_from_slice(&unit.data);
                    if header.success {
                        return Ok(data);
                    }
                }
                Pdu::CapsuleResp(done) => {
                    assert_eq!(done.cid, cid);
                    return if done.status.is_ok() { Ok(data) } else { Err(done.status) };
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// A reservation command to namespace 1.
    pub fn reserve(&mut self, command: ReservationCommand) -> Status {
        let (command, data) = command.command(1);
        self.command(Command { sgl: Sgl::in_capsule(data.len() as u32), ..command }, &data).status
    }

    /// The reservation of namespace 1, and its registrants.
    pub fn reservation(&mut self) -> (ReservationStatus, Vec<RegisteredController>) {
        let page = self.fetch(report(1, 4096)).unwrap();
        let header = ReservationStatus::read(page.first_chunk().unwrap());
        let rest = page[64..].chunks_exact(64).take(header.registered.into());
        (header, rest.map(|entry| RegisteredController::read(entry.first_chunk().unwrap())).collect())
    }

    pub fn connect_command(qid: u16, entries: u16) -> Command {
        Connect { recfmt: 0, qid, sqsize: entries - 1, cattr: 0, kato_ms: 0 }.command()
    }

    pub fn connect_data(cntlid: u16, nqn: &str, hostnqn: &str) -> ConnectData {
        ConnectData {
            hostid: std::array::from_fn(|i| i as u8),
            cntlid,
            subnqn: nqn.parse::<Nqn>().unwrap().field(),
            hostnqn: hostnqn.parse::<Nqn>().unwrap().field(),
        }
    }

    pub fn connect(&mut self, qid: u16, entries: u16, cntlid: u16, nqn: &str, hostnqn: &str) -> Completion {
        let data = Host::connect_data(cntlid, nqn, hostnqn);
        self.command(Host::connect_command(qid, entries), &data.write())
    }

    /// The admin queue and the I/O queue of a host with that identifier.
    pub fn pair_of(address: SocketAddr, hostid: [u8; 16]) -> (Host, Host) {
        let name = Nqn::of_host(hostid);
        let connect = |qid: u16, cntlid: u16| {
            let mut host = Host::open(address, false, false);
            let data = ConnectData { hostid, ..Host::connect_data(cntlid, NQN, name.as_str()) };
            let done = host.command(Host::connect_command(qid, 128), &data.write());
            assert!(done.status.is_ok(), "{}", done.status);
            host.cntlid = done.result as u16;
            host
        };
        let mut admin = connect(0, DYNAMIC_CONTROLLER);
        admin.enable();
        let queue = connect(1, admin.cntlid);
        (admin, queue)
    }

    pub fn enable(&mut self) {
        let set = PropertyAccess::set(property::CC, 4, property::Configuration::ENABLED.0.into());
        assert!(self.command(set, &[]).status.is_ok());
        let got = self.command(PropertyAccess::get(property::CSTS, 4), &[]).result;
        assert!(property::ControllerStatus::of(got as u32).ready);
    }

    pub fn read_command(nsid: u32, lba: u64, blocks: u32) -> Command {
        let command = Command::blocks(nvme::spec::opcode::io::READ, nsid, lba, blocks);
        Command { sgl: Sgl::transport(blocks * 512), ..command }
    }

    pub fn write_command(nsid: u32, lba: u64, bytes: usize) -> Command {
        let command = Command::blocks(nvme::spec::opcode::io::WRITE, nsid, lba, (bytes / 512) as u32);
        Command { sgl: Sgl::transport(bytes as u32), ..command }
    }

    pub fn read(&mut self, nsid: u32, lba: u64, blocks: u32) -> Result<Vec<u8>, Status> {
        self.fetch(Host::read_command(nsid, lba, blocks))
    }

    /// Writes by way of R2T.
    pub fn write(&mut self, nsid: u32, lba: u64, data: &[u8]) -> Status {
        self.send_data(Host::write_command(nsid, lba, data.len()), data, 65_536)
    }

    /// A command whose data are asked for, sent in pieces of `piece` bytes.
    pub fn send_data(&mut self, command: Command, data: &[u8], piece: usize) -> Status {
        let cid = self.send_command(command, &[]);
        loop {
            match self.unit().expect("an R2T or a response").pdu {
                Pdu::R2t(ready) => {
                    assert_eq!((ready.cid, ready.offset, ready.length as usize), (cid, 0, data.len()));
                    for (index, part) in data.chunks(piece).enumerate() {
                        let offset = (index * piece) as u32;
                        let last = offset as usize + part.len() == data.len();
                        let length = part.len() as u32;
                        let header = H2cData { cid, ttag: ready.ttag, offset, length, last };
                        let bytes = self.h2c(&header, part);
                        self.send(&bytes);
                    }
                }
                Pdu::CapsuleResp(done) => {
                    assert_eq!(done.cid, cid);
                    return done.status;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a command and the data that an R2T asks for, and waits for nothing else.
    pub fn send_data_only(&mut self, command: Command, data: &[u8]) {
        let cid = self.send_command(command, &[]);
        let Pdu::R2t(ready) = self.unit().expect("an R2T").pdu else { panic!("no R2T") };
        let header = H2cData { cid, ttag: ready.ttag, offset: 0, length: data.len() as u32, last: true };
        let bytes = self.h2c(&header, data);
        self.send(&bytes);
    }

    /// The R2T of a write of that many bytes, nothing sent yet.
    pub fn ready(&mut self, nsid: u32, lba: u64, bytes: usize) -> pdu::R2t {
        self.send_command(Host::write_command(nsid, lba, bytes), &[]);
        match self.unit().expect("an R2T").pdu {
            Pdu::R2t(ready) => ready,
            other => panic!("{other:?}"),
        }
    }
}

pub fn dynamic() -> u16 {
    DYNAMIC_CONTROLLER
}

pub fn fabrics_command(fctype: u8) -> Command {
    fabrics::command(fctype)
}

/// Waits for something that another thread brings about. Panics if it does not, in five minutes.
pub fn until(mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < limit, "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

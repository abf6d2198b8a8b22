//! Hostile peers, such as any network has: they may neither end the target, nor fill its memory, nor keep other hosts
//! from it.
//!
//! A thousand of them at once, without a key and without being listed, while another host reads. The memory is that of
//! this process, which the peers themselves hardly use. Tests that use much of it have other programs.

#[path = "raw/mod.rs"]
mod raw;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvme::pdu::{H2cData, IcReq};
use nvme::spec::fabrics::{Authentication, Connect, PropertyAccess};
use nvme::spec::opcode::admin;
use nvme::spec::{Command, DISCOVERY_NQN, GetLogPage, Identify, Sgl, Status, cns, log, property};
use nvme_target::device::DeviceKind;
use nvme_target::{Limits, Options, SubsystemSpec};
use raw::{Host, NQN, Served};

/// Peers of all kinds together.
const PEERS: usize = 1000;
/// Bytes of memory that all these peers together may cost.
const MEMORY: u64 = 64 << 20;
/// Kinds of peers, as [`plan`] numbers them.
const KINDS: usize = 25;
/// Bytes that a peer tries to send, if it is let.
const FLOOD: usize = 64 << 10;
/// The number of times that a peer which is cut off comes back.
const RETURNS: usize = 1;

/// The memory of a process is measured: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes that the process has in memory, pages of files excepted: a backtrace of a test that fails maps the
/// program.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    anonymous.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The commands that a peer repeats, after those that its connection begins with.
struct Plan {
    first: Vec<u8>,
    repeated: Vec<u8>,
}

fn hello() -> Vec<u8> {
    IcReq::asking(false, false).pdu().to_vec()
}

fn capsule(command: &Command, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; nvme::pdu::MAX_HEADER_BYTES];
    let len = nvme::pdu::command(command, data.len() as u32, &nvme::pdu::Agreement::default(), &mut bytes);
    bytes.truncate(len);
    bytes.extend_from_slice(data);
    bytes
}

fn connect(nqn: &str, entries: u16, number: usize) -> Vec<u8> {
    let host = format!("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-{number:012}");
    let command = Connect { recfmt: 0, qid: 0, sqsize: entries - 1, cattr: 0, kato_ms: 0 }.command();
    capsule(&command, &Host::connect_data(0xffff, nqn, &host).write())
}

fn enable() -> Vec<u8> {
    capsule(&PropertyAccess::set(property::CC, 4, property::Configuration::ENABLED.0.into()), &[])
}

fn log_page(lid: u8) -> Vec<u8> {
    let length = 1 << 20;
    capsule(&GetLogPage { lid, lsp: 0, retain: true, length, offset: 0 }.command(u32::MAX), &[])
}

/// A Get Log Page of 16 GiB at an offset near the end of what 64 bits can say.
fn far_log_page(lid: u8) -> Vec<u8> {
    let ask = GetLogPage { lid, lsp: 0, retain: true, length: 1 << 20, offset: !0xfff }.command(u32::MAX);
    let (cdw10, cdw11) = (ask.cdw10 | 0xffff << 16, ask.cdw11 | 0xffff);
    capsule(&Command { cdw10, cdw11, sgl: Sgl::transport(u32::MAX), ..ask }, &[])
}

fn keep_alive_timer(ms: u32) -> Vec<u8> {
    capsule(&Command { cdw10: 0x0f, cdw11: ms, ..Command::new(admin::SET_FEATURES, 0) }, &[])
}

/// The Fabrics command Disconnect.
fn disconnect() -> Command {
    raw::fabrics_command(0x08)
}

/// The plan of the peer of that number, of one of the [`KINDS`].
fn plan(kind: usize, number: usize) -> Plan {
    let begin = |nqn: &str, entries| [hello(), connect(nqn, entries, number), enable()].concat();
    let set_feature = Command { cdw10: 0x16, sgl: Sgl::transport(8192), ..Command::new(admin::SET_FEATURES, 0) };
    let event = Command::new(admin::ASYNC_EVENT_REQUEST, 0);
    let abort = Command { cdw10: 1, ..Command::new(admin::ABORT, 0) };
    let property = PropertyAccess::get(property::CAP, 8);
    let sent = Authentication::send(8192);
    let read_only = Command { sgl: Sgl::in_capsule(8192), ..Command::new(0x7d, 0) };
    let identify = Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0);
    let unasked = H2cData { cid: 1, ttag: 0, offset: 0, length: 0, last: true };
    let mut unasked_data = vec![0; nvme::pdu::MAX_HEADER_BYTES];
    let len = unasked.write(&nvme::pdu::Agreement::default(), &mut unasked_data);
    unasked_data.truncate(len);
    let (first, repeated) = match kind {
        // Half-open: it has said hello and no more.
        0 => (hello(), Vec::new()),
        1 => (Vec::new(), vec![0x04]),
        2 => (hello(), capsule(&Host::read_command(1, 0, 8), &[])),
        3 => (hello(), capsule(&read_only, &[0; 8192])),
        4 => (begin(NQN, 4096), capsule(&identify, &[])),
        5 => (begin(NQN, 4096), log_page(log::SMART)),
        6 => (begin(NQN, 4096), log_page(log::EFFECTS)),
        7 => (begin(DISCOVERY_NQN, 4096), log_page(log::DISCOVERY)),
        8 => (begin(DISCOVERY_NQN, 4096), capsule(&identify, &[])),
        9 => (begin(NQN, 4096), capsule(&set_feature, &[])),
        10 => (begin(NQN, 4096), [capsule(&event, &[]), capsule(&abort, &[])].concat()),
        11 => (begin(NQN, 4096), capsule(&property, &[])),
        12 => (begin(NQN, 4096), capsule(&sent, &[0; 8192])),
        // It greets again and again.
        13 => (hello(), hello()),
        14 => (hello(), unasked_data),
        15 => (begin(NQN, 4096), unasked_data),
        // Units of a kind that does not exist.
        16 => (hello(), vec![0x7f, 0, 24, 0, 24, 0, 0, 0]),
        // As many requests for events as may wait, on a controller without a keep-alive timer.
        17 => (begin(NQN, 4096), capsule(&event, &[])),
        // A greeting that lacks its last byte.
        18 => (hello()[..127].to_vec(), Vec::new()),
        19 => (begin(NQN, 4096), capsule(&Command::new(admin::KEEP_ALIVE, 0), &[])),
        // All in the name of one host, each gone and back at once.
        20 => ([hello(), connect(NQN, 32, 7), enable()].concat(), capsule(&disconnect(), &[])),
        // As much of a log page as a command can name, from places far beyond its end.
        21 => (begin(NQN, 4096), far_log_page(log::SMART)),
        22 => (begin(DISCOVERY_NQN, 4096), far_log_page(log::DISCOVERY)),
        // A keep-alive timeout that changes all the time, to the least and the greatest.
        23 => (begin(NQN, 4096), [keep_alive_timer(1), keep_alive_timer(u32::MAX)].concat()),
        // The beginning of proofs that nobody asked for, from all as one host.
        24 => ([hello(), connect(NQN, 4096, 7)].concat(), capsule(&sent, &[0xff; 8192])),
        _ => unreachable!("there are {KINDS} kinds"),
    };
    // Several at once: a peer that sends is not to be held up by its system calls.
    let repeated = repeated.repeat(4096usize.div_ceil(repeated.len().max(1)));
    Plan { first, repeated }
}

/// A peer that sends whenever it can and never reads.
struct Peer {
    stream: TcpStream,
    plan: Plan,
    sent: usize,
    returns: usize,
    address: std::net::SocketAddr,
}

impl Peer {
    fn new(served: &Served, plan: Plan) -> Peer {
        let stream = Peer::connect(served.address).unwrap();
        Peer { stream, plan, sent: 0, returns: RETURNS, address: served.address }
    }

    fn connect(address: std::net::SocketAddr) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(address)?;
        // As little as possible of what it is sent is to lie in its kernel.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096);
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Sends more of the plan. Returns true if the socket took some bytes.
    fn press(&mut self) -> bool {
        if self.sent >= FLOOD {
            return false;
        }
        let (first, repeated) = (&self.plan.first, &self.plan.repeated);
        let rest = match self.sent.checked_sub(first.len()) {
            None => &first[self.sent..],
            Some(_) if repeated.is_empty() => return false,
            Some(beyond) => &repeated[beyond % repeated.len()..],
        };
        match self.stream.write(rest) {
            Ok(sent) => self.sent += sent,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false, // no more room
            // Cut off, which is the target's right: it comes back.
            Err(_) if self.returns > 0 => {
                (self.returns, self.sent) = (self.returns - 1, 0);
                let Ok(stream) = Peer::connect(self.address) else { return false };
                self.stream = stream;
            }
            Err(_) => return false,
        }
        true
    }
}

/// Reads from the memory device as long as `goes_on`; `count` counts the reads.
fn honest(served: &Served, goes_on: &AtomicBool, count: &AtomicU64) {
    let (_admin, mut queue) = Host::pair(served.address);
    let data: Vec<u8> = (0..4096u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(queue.write(1, 4096, &data), Status::SUCCESS);
    while goes_on.load(Ordering::Relaxed) {
        assert!(queue.read(1, 4096, 8).unwrap() == data, "not what was written");
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `attack` while a host that came before is served, and after it one that comes now.
fn under_attack(served: &Served, attack: impl FnOnce(&dyn Fn() -> u64)) {
    let (goes_on, count) = (AtomicBool::new(true), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let host = scope.spawn(|| honest(served, &goes_on, &count));
        raw::until(|| count.load(Ordering::Relaxed) > 10 || host.is_finished());
        let end = EndWhenDropped(&goes_on);
        attack(&|| count.load(Ordering::Relaxed));
        drop(end);
    });
    served.assert_alive();
}

struct EndWhenDropped<'a>(&'a AtomicBool);

impl Drop for EndWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Lets all peers send until none of them can send more. The target's memory stays within bounds meanwhile.
fn press_all(peers: &mut [Peer], idle: u64) {
    // Not one `any`: every peer presses in every round.
    while peers.iter_mut().map(Peer::press).filter(|pressed| *pressed).count() > 0 {
        assert_within(idle);
    }
    assert_within(idle);
}

fn assert_within(idle: u64) {
    let more = resident().saturating_sub(idle);
    assert!(more < MEMORY, "{} MiB more than idle", more >> 20);
}

#[test]
fn a_thousand_peers_of_every_kind_cost_little_memory_and_stop_nobody() {
    let _alone = alone();
    let served = Served::plain();
    served.assert_alive();
    let idle = resident();
    under_attack(&served, |reads| {
        let mut peers: Vec<Peer> = (0..PEERS).map(|number| Peer::new(&served, plan(number % KINDS, number))).collect();
        let before = reads();
        press_all(&mut peers, idle);
        // A host that comes now gets in, and the one that was there is served.
        served.assert_alive();
        raw::until(|| reads() > before + 100);
        assert_within(idle);
    });
}

/// A thousand peers of one kind after another press one target. No host reads meanwhile: the target has all its time
/// for these peers, and takes from them as much as they can send.
#[test]
fn a_thousand_peers_of_any_one_kind_cost_little_memory() {
    let _alone = alone();
    let served = Served::plain();
    served.assert_alive();
    let idle = resident();
    for kind in 0..KINDS {
        let mut peers: Vec<Peer> = (0..PEERS).map(|number| Peer::new(&served, plan(kind, number))).collect();
        press_all(&mut peers, idle);
        served.assert_alive();
        println!("kind {kind}: {} KiB over idle", resident().saturating_sub(idle) >> 10);
        assert_within(idle);
    }
}

/// I/O queues of hosts that are let in: the same commands again and again, and nothing that they are answered is read.
fn io_queues_that_never_read(commands: &[Command], queues: usize) {
    let _alone = alone();
    let served = Served::plain();
    served.assert_alive();
    let idle = resident();
    under_attack(&served, |reads| {
        let mut hosts = Vec::new();
        let mut peers = Vec::new();
        for number in 0..queues {
            let name = format!("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-{:012}", number / 50);
            if number % 50 == 0 {
                hosts.push(Host::admin_of(served.address, NQN, &name, false));
            }
            let cntlid = hosts.last().unwrap().cntlid;
            let command = Connect { recfmt: 0, qid: 1 + (number % 50) as u16, sqsize: 1023, cattr: 0, kato_ms: 0 };
            let connect = capsule(&command.command(), &Host::connect_data(cntlid, NQN, &name).write());
            let repeated = commands[number % commands.len()];
            let plan = Plan { first: [hello(), connect].concat(), repeated: capsule(&repeated, &[]) };
            peers.push(Peer::new(&served, plan));
        }
        let before = reads();
        press_all(&mut peers, idle);
        // While they are not read, until the first of them are cut off.
        raw::until(|| {
            assert_within(idle);
            reads() > before + 1000
        });
        served.assert_alive();
    });
}

#[test]
fn io_queues_that_repeat_invalid_commands_and_never_read() {
    let invalid = Command::new(0x7e, 1);
    let out_of_range = Host::read_command(1, u64::MAX - 8, 8);
    io_queues_that_never_read(&[invalid, out_of_range, Command::new(0x00, 9)], 1000);
}

#[test]
fn io_queues_that_ask_for_data_and_never_read() {
    let long = Host::read_command(1, 0, 2048);
    io_queues_that_never_read(&[long, Host::read_command(1, 8, 8), Host::read_command(2, 0, 256)], 300);
}

#[test]
fn io_queues_that_announce_data_and_never_send_them() {
    io_queues_that_never_read(&[Host::write_command(1, 8192, 1 << 20), Host::write_command(2, 0, 1 << 20)], 300);
}

/// Registrations and reports of reservations, by many queues of many hosts.
#[test]
fn io_queues_that_flood_with_reservations_and_never_read() {
    let report = Command { cdw10: 1023, cdw11: 1, sgl: Sgl::transport(4096), ..Command::new(0x0e, 1) };
    let register = Command { sgl: Sgl::transport(16), ..Command::new(0x0d, 1) };
    let release = Command { sgl: Sgl::transport(8), ..Command::new(0x15, 1) };
    io_queues_that_never_read(&[register, report, release], 300);
}

/// Hosts that abort each command that they have sent, whatever becomes of it, and write with wrong digests all the
/// time, keep nobody else from the target; nothing is left of them.
#[test]
fn commands_that_are_aborted_and_data_that_are_wrong_in_loops() {
    let _alone = alone();
    let served = Served::plain();
    served.assert_alive();
    let idle = resident();
    under_attack(&served, |reads| {
        let before = reads();
        for number in 0..20u16 {
            let (mut admin, mut queue) = Host::pair_with(served.address, true);
            for cid in 0..200u16 {
                let command = Command { cid, ..Host::read_command(1, 0, 256) };
                let read = queue.capsule(&command, &[]);
                queue.send(&read);
                let abort = Command { cdw10: 1 | u32::from(cid) << 16, ..Command::new(admin::ABORT, 0) };
                assert!(admin.command(abort, &[]).status.is_ok());
                while !matches!(queue.unit().expect("an end").pdu, nvme::pdu::Pdu::CapsuleResp(_)) {}
                let write = Command { sgl: Sgl::in_capsule(512), cid, ..Host::write_command(1, 64, 512) };
                let mut bytes = queue.capsule(&write, &[7; 512]);
                *bytes.last_mut().unwrap() ^= 0x80;
                queue.send(&bytes);
                assert_eq!(queue.response().status, Status::TRANSIENT_TRANSPORT_ERROR);
            }
            assert_eq!(queue.read(1, 64, 1).unwrap(), [0; 512], "host {number}: no wrong byte was written");
            assert_within(idle);
        }
        raw::until(|| reads() > before + 100);
    });
    raw::until(|| served.target.stats().reactors.iter().all(|reactor| reactor.pending_io == 0));
}

/// Subsystems come and go, so that discovery changes, while a hundred hosts wait for the news and read nothing.
#[test]
fn discovery_that_changes_and_hosts_that_never_look() {
    let _alone = alone();
    let served = Served::plain();
    served.assert_alive();
    let idle = resident();
    let config = Command { cdw10: 0x0b, cdw11: 1 << 31, ..Command::new(admin::SET_FEATURES, 0) };
    let event = Command::new(admin::ASYNC_EVENT_REQUEST, 0);
    let first = |number| [hello(), connect(DISCOVERY_NQN, 4096, number), enable(), capsule(&config, &[])].concat();
    let plan =
        |number| Plan { first: first(number), repeated: [capsule(&event, &[]), log_page(log::DISCOVERY)].concat() };
    under_attack(&served, |reads| {
        let before = reads();
        let mut peers: Vec<Peer> = (0..100).map(|number| Peer::new(&served, plan(number))).collect();
        for number in 0..200 {
            let nqn = format!("nqn.2016-06.io.spdk:more{number}");
            let spec = SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(&nqn) };
            served.target.create_subsystem(spec).unwrap();
            served.target.add_listener(&nqn, served.address).unwrap();
            for peer in &mut peers {
                peer.press();
            }
            if number % 2 == 1 {
                served.target.delete_subsystem(&nqn).unwrap().wait();
            }
            assert_within(idle);
        }
        press_all(&mut peers, idle);
        raw::until(|| reads() > before + 100);
    });
}

fn hasty() -> Served {
    let soon = Duration::from_secs(5);
    let limits = Limits { stall: soon, send_stall: soon, ..Limits::default() };
    Served::with(Options { limits, ..Options::default() }, &[("mem", DeviceKind::Memory { bytes: 64 << 20 })])
}

/// Sends the bytes one at a time until the target closes the connection; false if it takes all of them.
fn is_cut_off_while_sending(host: &mut Host, bytes: &[u8]) -> bool {
    host.stream.set_nonblocking(true).unwrap();
    bytes.iter().any(|byte| {
        std::thread::sleep(Duration::from_millis(20));
        let is_sent = matches!(host.stream.write(&[*byte]), Ok(1));
        !is_sent || matches!(host.stream.peek(&mut [0]), Ok(0))
    })
}

#[test]
fn hosts_that_let_a_capsule_drip_are_cut_off() {
    let served = hasty();
    let (_admin, mut queue) = Host::pair(served.address);
    let write = Command { sgl: Sgl::in_capsule(4096), ..Host::write_command(1, 0, 4096) };
    let bytes = queue.capsule(&write, &[1; 4096]);
    assert!(is_cut_off_while_sending(&mut queue, &bytes));
    served.assert_alive();
}

/// Each unit is complete soon: it is the transfer that does not get on.
#[test]
fn hosts_that_let_a_transfer_drip_in_small_units_are_cut_off() {
    let served = hasty();
    let (_admin, mut queue) = Host::pair(served.address);
    let ready = queue.ready(1, 0, 65_536);
    queue.stream.set_nonblocking(true).unwrap();
    let is_cut_off = (0..8192).any(|offset| {
        std::thread::sleep(Duration::from_millis(5));
        let header = H2cData { cid: ready.cid, ttag: ready.ttag, offset, length: 1, last: false };
        let bytes = queue.h2c(&header, &[7]);
        queue.stream.write(&bytes).ok() != Some(bytes.len()) || matches!(queue.stream.peek(&mut [0]), Ok(0))
    });
    assert!(is_cut_off);
    served.assert_alive();
}

/// The host takes some bytes again and again, so that there is always some room for more.
#[test]
fn hosts_that_let_responses_drip_are_cut_off() {
    let served = hasty();
    let (_admin, mut queue) = Host::pair(served.address);
    rustix::net::sockopt::set_socket_recv_buffer_size(&queue.stream, 4096).unwrap();
    for _ in 0..16 {
        queue.send_command(Host::read_command(1, 0, 2048), &[]);
    }
    let mut some = [0; 8];
    // It has megabytes to read: at this rate that takes a day.
    raw::until(|| {
        std::thread::sleep(Duration::from_millis(20));
        let taken = queue.stream.read(&mut some);
        taken.is_err() || served.target.stats().reactors[0].io_qpairs == 0
    });
    served.assert_alive();
}

/// A slow host that gets on is not cut off, in either direction.
#[test]
fn hosts_that_are_slow_and_honest_are_served() {
    let served = hasty();
    let (_admin, mut queue) = Host::pair(served.address);
    let ready = queue.ready(1, 0, 65_536);
    let header = H2cData { cid: ready.cid, ttag: ready.ttag, offset: 0, length: 65_536, last: true };
    let bytes = queue.h2c(&header, &[7; 65_536]);
    // 4 KiB/s at the fastest, for three of the periods in which it must get on.
    for part in bytes.chunks(2048).take(30) {
        std::thread::sleep(Duration::from_millis(500));
        queue.send(part);
    }
    queue.send(&bytes[30 * 2048..]);
    assert!(queue.response().status.is_ok());
    served.assert_alive();
}

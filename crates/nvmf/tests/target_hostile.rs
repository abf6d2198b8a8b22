//! Peers that any network has: they may neither end the target, nor fill its memory, nor keep others from it.
//!
//! A thousand of them at once, without a key and without being listed, while another host reads. The memory is that of this
//! process, which the peers themselves hardly use.

mod raw;

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvmf::pdu::IcReq;
use nvmf::spec::fabrics::{Authentication, Connect, PropertyAccess};
use nvmf::spec::opcode::admin;
use nvmf::spec::{Command, DISCOVERY_NQN, GetLogPage, Identify, Sgl, Status, cns, log, property};
use raw::{Host, NQN, Served};

/// Peers of all kinds together.
const PEERS: usize = 1000;
/// What they may cost.
const MEMORY: u64 = 64 << 20;
/// Bytes that a peer tries to send, if it is let.
const FLOOD: usize = 256 << 10;

/// The memory of a process is measured: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
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
    let mut bytes = vec![0; nvmf::pdu::MAX_HEADER_BYTES];
    let len = nvmf::pdu::command(command, data.len() as u32, &nvmf::pdu::Agreement::default(), &mut bytes);
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

/// What a peer of that number does, of each kind in turn.
fn plan(number: usize) -> Plan {
    let begin = |nqn: &str, entries| [hello(), connect(nqn, entries, number), enable()].concat();
    let set_feature = Command { cdw10: 0x16, sgl: Sgl::transport(8192), ..Command::new(admin::SET_FEATURES, 0) };
    let event = Command::new(admin::ASYNC_EVENT_REQUEST, 0);
    let abort = Command { cdw10: 1, ..Command::new(admin::ABORT, 0) };
    let property = PropertyAccess::get(property::CAP, 8);
    let sent = Authentication::send(8192);
    let read_only = Command { sgl: Sgl::in_capsule(8192), ..Command::new(0x7d, 0) };
    let identify = Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0);
    let (first, repeated) = match number % 13 {
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
        _ => (begin(NQN, 4096), capsule(&sent, &[0; 8192])),
    };
    Plan { first, repeated }
}

/// A peer that sends whenever it can and never reads.
struct Peer {
    stream: TcpStream,
    plan: Plan,
    sent: usize,
}

impl Peer {
    fn new(served: &Served, plan: Plan) -> Peer {
        let stream = TcpStream::connect(served.address).unwrap();
        // As little as possible of what it is sent is to lie in its kernel.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096);
        stream.set_nonblocking(true).unwrap();
        Peer { stream, plan, sent: 0 }
    }

    /// Whether it has sent more.
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
            Err(_) => return false, // no more room, or closed: both are the target's right
        }
        true
    }
}

/// Reads from the memory device as long as `goes_on`; how often it did.
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

#[test]
fn a_thousand_peers_of_every_kind_cost_little_memory_and_stop_nobody() {
    let _alone = alone();
    let served = Served::plain();
    served.assert_alive();
    let idle = resident();
    under_attack(&served, |reads| {
        let mut peers: Vec<Peer> = (0..PEERS).map(|number| Peer::new(&served, plan(number))).collect();
        let before = reads();
        loop {
            // Not one `any`: every peer presses in every round.
            let pressing = peers.iter_mut().map(Peer::press).filter(|pressed| *pressed).count();
            let more = resident().saturating_sub(idle);
            assert!(more < MEMORY, "{} MiB more than idle", more >> 20);
            if pressing == 0 {
                break;
            }
        }
        // A host that comes now gets in, and the one that was there is served.
        served.assert_alive();
        raw::until(|| reads() > before + 100);
        let more = resident().saturating_sub(idle);
        assert!(more < MEMORY, "{} MiB more than idle", more >> 20);
    });
}

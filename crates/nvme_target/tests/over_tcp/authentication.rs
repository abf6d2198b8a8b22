//! Hosts that have yet to prove themselves hold up nobody: what an exchange computes is computed beside the reactors.

use crate::raw;

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nvme::auth::{Authenticator, Channel, Exchange, ExchangeState, Means};
use nvme::pdu::{H2cData, Pdu};
use nvme::spec::fabrics::Authentication;
use nvme::spec::{Command, Identify, Sgl, Status, cns};
use nvme_target::device::DeviceKind;
use nvme_target::{Limits, Options, SubsystemSpec};
use raw::{Host, NQN, Served};

const SLOW_HOST: &str = "nqn.2016-06.io.spdk:slow";

/// Makes one host authenticate, and takes as long over each message as the test wants.
struct Gate {
    begun: Sender<()>,
    open: Arc<Mutex<Receiver<()>>>,
}

struct Thinking {
    begun: Sender<()>,
    open: Arc<Mutex<Receiver<()>>>,
}

impl Authenticator for Gate {
    fn begin(&self, host_nqn: &str, _: &str, _: Channel) -> Option<Box<dyn Exchange>> {
        let thinking = Thinking { begun: self.begun.clone(), open: Arc::clone(&self.open) };
        (host_nqn == SLOW_HOST).then(|| Box::new(thinking) as Box<dyn Exchange>)
    }
}

impl Exchange for Thinking {
    fn receive(&mut self, _: &[u8]) -> bool {
        // The test may have ended: nobody waits for this exchange then.
        self.begun.send(()).is_ok() && self.open.lock().unwrap().recv().is_ok()
    }

    fn send(&mut self, capacity: usize) -> Vec<u8> {
        vec![7; capacity.min(16)]
    }

    fn state(&self) -> ExchangeState {
        ExchangeState::Pending
    }

    fn proof(&self) -> Option<Means> {
        None
    }
}

/// A connected admin queue of the host that must authenticate.
fn unproven(served: &Served) -> Host {
    unproven_on(Host::tcp(served.address))
}

fn unproven_on(host: Host) -> Host {
    let mut host = host.greeted(false, false);
    let connected = host.connect(0, 32, raw::dynamic(), NQN, SLOW_HOST);
    assert!(connected.status.is_ok(), "{}", connected.status);
    host
}

#[test]
fn an_exchange_that_takes_long_holds_up_nobody() {
    let served = Served::plain();
    let (begun, has_begun) = mpsc::channel();
    let (open, gate) = mpsc::channel();
    served.target.set_authenticator(Some(Arc::new(Gate { begun, open: Arc::new(Mutex::new(gate)) })));
    let message = [1; 64];
    let send = || Authentication::send(message.len() as u32);

    let mut host = unproven(&served);
    let cid = host.send_command(send(), &message);
    has_begun.recv().unwrap();
    // The one reactor serves others meanwhile, and refuses this one's commands.
    let (_admin, mut queue) = Host::pair(served.address);
    assert_eq!(queue.write(1, 0, &[3; 4096]), Status::SUCCESS);
    let identify = Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 };
    assert_eq!(host.fetch(identify.command(0)).unwrap_err(), Status::AUTHENTICATION_REQUIRED.do_not_retry());
    open.send(()).unwrap();
    let answer = host.response();
    assert_eq!((answer.cid, answer.status), (cid, Status::SUCCESS));
    assert_eq!(host.fetch(Authentication::receive(32)).unwrap()[..17], [[7; 16].as_slice(), &[0]].concat());

    // A second message before the first is answered ends the connection.
    host.send_command(send(), &message);
    has_begun.recv().unwrap();
    assert_eq!(host.command(send(), &message).status, Status::COMMAND_SEQUENCE_ERROR.do_not_retry());
    assert!(host.is_closed());
    open.send(()).unwrap();

    // One that goes away meanwhile leaves nothing, and its answer reaches nobody else.
    let mut gone = unproven(&served);
    gone.send_command(send(), &message);
    has_begun.recv().unwrap();
    drop(gone);
    raw::until(|| served.connections() == 2);
    let mut next = unproven(&served);
    open.send(()).unwrap();
    assert_eq!(next.fetch(identify.command(0)).unwrap_err(), Status::AUTHENTICATION_REQUIRED.do_not_retry());
    assert_eq!(queue.read(1, 0, 1).unwrap()[0], 3);
    served.assert_alive();
}

/// A peer that authenticates has one message under way: it holds the memory of one.
#[test]
fn a_guest_is_asked_for_one_message_at_a_time() {
    let served = Served::plain();
    let (begun, has_begun) = mpsc::channel();
    let (open, gate) = mpsc::channel();
    served.target.set_authenticator(Some(Arc::new(Gate { begun, open: Arc::new(Mutex::new(gate)) })));
    let mut host = unproven(&served);
    let asked = Command { sgl: Sgl::transport(64), ..Authentication::send(64) };
    let first = host.send_command(asked, &[]);
    let Pdu::R2t(ready) = host.unit().unwrap().pdu else { panic!("no R2T") };
    assert_eq!(ready.cid, first);
    assert!(host.command(asked, &[]).status.is(Status::COMMAND_INTERRUPTED));
    assert!(host.command(Authentication::send(64), &[1; 64]).status.is(Status::COMMAND_INTERRUPTED));
    let data = host.h2c(&H2cData { cid: ready.cid, ttag: ready.ttag, offset: 0, length: 64, last: true }, &[1; 64]);
    host.send(&data);
    has_begun.recv().unwrap();
    open.send(()).unwrap();
    let answer = host.response();
    assert_eq!((answer.cid, answer.status), (first, Status::SUCCESS));
}

/// Peers that send a message and leave are faster than the computation: the messages that wait are bounded, and a host
/// beyond the bound is told to come again.
#[test]
fn messages_that_wait_to_be_examined_are_bounded() {
    const SENT: usize = 1024;
    let served = Served::plain();
    let (begun, has_begun) = mpsc::channel();
    let (open, gate) = mpsc::channel();
    served.target.set_authenticator(Some(Arc::new(Gate { begun, open: Arc::new(Mutex::new(gate)) })));
    let message = [1; 4096];
    let send = || Authentication::send(message.len() as u32);
    for _ in 0..SENT {
        unproven(&served).send_command(send(), &message);
    }
    has_begun.recv().unwrap();
    // Some of them may be on their way still: one that comes later is refused.
    raw::until(|| {
        let mut late = unproven(&served);
        late.send_command(send(), &message);
        late.stream.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        let mut header = [0; 24];
        let answered = std::io::Read::read_exact(&mut late.stream, &mut header).is_ok();
        // The status field is the last of the completion, above the phase bit.
        answered && u16::from_le_bytes([header[22], header[23]]) >> 1 == Status::COMMAND_INTERRUPTED.bits()
    });
    for _ in 0..2 * SENT {
        let _ = open.send(());
    }
    served.assert_alive();
}

/// A network whose peers fill the queue delays itself: a host from elsewhere has the next turn.
#[test]
fn networks_take_turns_at_being_examined() {
    let served = Served::plain();
    let (begun, has_begun) = mpsc::channel();
    let (open, gate) = mpsc::channel();
    served.target.set_authenticator(Some(Arc::new(Gate { begun, open: Arc::new(Mutex::new(gate)) })));
    let message = [1; 64];
    let send = || Authentication::send(message.len() as u32);
    let mut crowd: Vec<Host> = (0..40).map(|_| unproven(&served)).collect();
    for host in &mut crowd {
        host.send_command(send(), &message);
    }
    has_begun.recv().unwrap();
    // A command after the message is refused by the reactor, which has then handed the message on.
    let identify = Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 };
    for host in &mut crowd {
        assert!(host.command(identify.command(0), &[]).status.is(Status::AUTHENTICATION_REQUIRED));
    }
    let mut other = unproven_on(Host::from_elsewhere(served.address));
    let cid = other.send_command(send(), &message);
    assert!(other.command(identify.command(0), &[]).status.is(Status::AUTHENTICATION_REQUIRED));
    // The message that is being examined, one more of the crowd, and that of the host.
    for _ in 0..3 {
        open.send(()).unwrap();
    }
    let answer = other.response();
    assert_eq!((answer.cid, answer.status), (cid, Status::SUCCESS));
    for _ in 0..crowd.len() {
        let _ = open.send(());
    }
}

/// Lets in who says the word.
struct Word;

struct Listening(ExchangeState);

impl Authenticator for Word {
    fn begin(&self, _: &str, _: &str, _: Channel) -> Option<Box<dyn Exchange>> {
        Some(Box::new(Listening(ExchangeState::Pending)))
    }
}

impl Exchange for Listening {
    fn receive(&mut self, message: &[u8]) -> bool {
        let is_right = message == b"word";
        self.0 = if is_right { ExchangeState::Done } else { ExchangeState::Failed };
        is_right
    }

    fn send(&mut self, _: usize) -> Vec<u8> {
        Vec::new()
    }

    fn state(&self) -> ExchangeState {
        self.0
    }

    fn proof(&self) -> Option<Means> {
        None
    }
}

/// A target where everybody must say the word, with three controllers at most and these limits.
fn with_a_word(limits: Limits) -> Served {
    let memory = DeviceKind::Memory { bytes: 1 << 20 };
    let served = Served::with(Options { limits, reactors: 2, ..Options::default() }, &[("mem", memory)]);
    let target = &served.target;
    target.delete_subsystem(NQN).unwrap().wait();
    let spec = SubsystemSpec { controller_ids: Some((1, 3)), ..SubsystemSpec::new(NQN) };
    target.create_subsystem(spec).unwrap();
    target.add_host(NQN, SLOW_HOST).unwrap();
    target.add_namespace(NQN, nvme_target::NamespaceSpec::new("mem")).unwrap();
    target.add_listener(NQN, served.address).unwrap();
    target.set_authenticator(Some(Arc::new(Word)));
    served
}

fn says_the_word(host: &mut Host) -> Status {
    host.command(Authentication::send(4), b"word").status
}

/// Peers that give the name of a listed host take neither its connections nor the identifiers of controllers.
#[test]
fn who_has_proven_nothing_locks_nobody_out() {
    let served = with_a_word(Limits { connections_per_host: 2, ..Limits::default() });
    let mut strangers: Vec<Host> = (0..9).map(|_| unproven(&served)).collect();
    assert_eq!(served.connections(), 0);
    let mut host = unproven(&served);
    assert_eq!(says_the_word(&mut host), Status::SUCCESS);
    assert_eq!(served.connections(), 1);
    // The oldest strangers have made way, and the host does not.
    assert!(strangers[..7].iter_mut().all(Host::is_closed));
    strangers.extend((0..9).map(|_| unproven(&served)));
    host.enable();
    let identify = Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 };
    assert!(host.fetch(identify.command(0)).is_ok());
    // The limit holds for connections that have proven themselves.
    let mut second = unproven(&served);
    assert_eq!(says_the_word(&mut second), Status::SUCCESS);
    let mut third = unproven(&served);
    assert_eq!(says_the_word(&mut third), Status::SUCCESS);
    assert!(third.is_closed());
    assert_eq!(served.connections(), 2);
    drop((host, second, strangers));
    raw::until(|| served.connections() == 0);
}

#[test]
fn who_does_not_prove_anything_in_time_is_cut_off() {
    let served = with_a_word(Limits { proof: Duration::from_millis(100), ..Limits::default() });
    let mut host = unproven(&served);
    assert_eq!(says_the_word(&mut host), Status::SUCCESS);
    let mut stranger = unproven(&served);
    assert!(stranger.is_closed());
    host.enable(); // no limit on time for a host that has proven itself
}

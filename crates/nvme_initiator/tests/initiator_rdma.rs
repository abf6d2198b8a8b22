//! The initiator over RDMA against a controller of the test's own, on a fabric in memory that checks every access.

mod arena;
mod double;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arena::{Ops, SLOT_BYTES, Slots};
use double::rdma::{Answer, Door, Mood, RECEIVES, Server, Whim};
use double::{BLOCK, PATIENCE, Style};
use nvme::spec::rdma::Reject;
use nvme::spec::{Command, Range, Status, opcode::io as op};
use nvme_initiator::{
    Address, Broken, Controller, Done, Link, Options, RdmaHost, Renewal, Transfer, Transport, discover,
};
use rustix::event::Timespec;
use verbs::double::{counts, miss};

const BYTES: usize = 256 << 10;
const SLOTS: u32 = 8;

fn serve() -> Whim {
    Arc::new(|_| Mood::Serve)
}

fn open() -> Door {
    Arc::new(|_| Answer::Accept)
}

fn options(server: &Server, slots: &Arc<Slots>) -> Options {
    let rdma = RdmaHost { stack: Some(server.stack.clone()), arena: Some(slots.clone()), writable: true };
    let mut options = Options { timeout: PATIENCE, rdma, ..Options::default() };
    options.set_host("nqn.2016-06.io.spdk:host1".parse().unwrap());
    options
}

fn address(server: &Server) -> Address {
    Address { subnqn: Some(Style::default().subnqn.parse().unwrap()), ..server.address.clone() }
}

/// Drives queues until this number of commands is in `done`; sleeps as an engine does.
fn drive(queues: &mut [Link], ops: &mut Ops, count: usize, done: &mut Vec<Done>) -> Result<(), Broken> {
    loop {
        for link in queues.iter_mut() {
            link.send(ops)?;
            link.receive(ops, done)?;
        }
        if done.len() >= count {
            return Ok(());
        }
        let mut may_sleep = true;
        for link in queues.iter_mut() {
            may_sleep &= link.may_sleep()?;
        }
        if may_sleep {
            let mut descriptors = Vec::new();
            queues.iter().for_each(|link| link.watch(&mut descriptors));
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            assert!(rustix::event::poll(&mut descriptors, Some(&patience)).unwrap() > 0, "nothing comes");
        }
    }
}

/// Waits for a condition of the controller's thread.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "never true: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A controller with its queues, and the ops' memory.
struct Host {
    queues: Vec<Link>,
    controller: Controller,
    ops: Ops,
}

fn connect(server: &Server, change: impl FnOnce(&mut Options)) -> Host {
    let slots = Slots::new(SLOTS);
    let mut asked = options(server, &slots);
    change(&mut asked);
    let (controller, queues) = Controller::connect(&address(server), &asked).unwrap();
    Host { queues, controller, ops: Ops::new(slots) }
}

fn read(tag: u32, len: u32) -> (u32, Command, Transfer) {
    (tag, Command::blocks(op::READ, 1, u64::from(tag) * 64, len / BLOCK), Transfer::In { at: 0, len })
}

fn write(tag: u32, len: u32) -> (u32, Command, Transfer) {
    (tag, Command::blocks(op::WRITE, 1, u64::from(tag) * 64, len / BLOCK), Transfer::Out { at: 0, len })
}

impl Host {
    fn issue(&mut self, (tag, command, transfer): (u32, Command, Transfer)) {
        assert!(self.queues[0].issue(tag, command, transfer, &self.ops));
    }

    fn finish(&mut self, count: usize) -> Result<Vec<Done>, Broken> {
        let mut done = Vec::new();
        drive(&mut self.queues, &mut self.ops, count, &mut done).map(|()| done)
    }
}

#[test]
fn a_controller_is_found_connected_and_used() {
    let server = Server::start(Style::default(), BYTES, serve(), open());
    let slots = Slots::new(SLOTS);
    let asked = Options { queues: 9, depth: 1000, ..options(&server, &slots) };
    let found = discover(&server.address, &asked).unwrap();
    assert_eq!(found.iter().map(|found| found.is_referral).collect::<Vec<_>>(), [false, true], "not that over TCP");
    assert_eq!((found[0].address.port, found[0].address.transport), (server.address.port, Transport::Rdma));

    server.seen.requests.lock().unwrap().clear();
    // Without a name: the only subsystem.
    let (controller, queues) = Controller::connect(&server.address, &asked).unwrap();
    assert_eq!(controller.subsystem().as_str(), Style::default().subnqn);
    assert_eq!((queues.len(), queues[0].depth()), (4, RECEIVES as usize), "what the controller grants");
    let requests: Vec<_> = server.seen.requests.lock().unwrap().clone();
    let told: Vec<_> = requests.iter().map(|it| (it.qid, it.hrqsize, it.hsqsize, it.cntlid)).collect();
    let queue = |qid| (qid, 128, 127, 7);
    assert_eq!(told, [(0, 32, 31, 0), (0, 32, 31, 0), queue(1), queue(2), queue(3), queue(4)]);
    assert_eq!(controller.namespace(1).unwrap().blocks, BYTES as u64 / u64::from(BLOCK));
    assert_eq!(controller.max_transfer_bytes(), 128 << 10);

    let mut host = Host { queues, controller, ops: Ops::new(slots) };
    for tag in 0..4 {
        // Two of them fit into a capsule.
        host.ops.fill(tag, tag as u8 + 1);
        let (tag, command, transfer) = write(tag, if tag < 2 { 4096 } else { 8192 });
        assert!(host.queues[tag as usize].issue(tag, command, transfer, &host.ops));
    }
    assert!(host.finish(4).unwrap().iter().all(|done| done.status.is_ok()));
    let counted = |count: &AtomicU32| count.load(Ordering::Relaxed);
    assert_eq!((counted(&server.seen.in_capsules), counted(&server.seen.fetched)), (2, 2));
    for tag in 0..4 {
        host.ops.fill(tag, 0xee);
        let (tag, command, transfer) = read(tag, 8192);
        assert!(host.queues[tag as usize].issue(tag, command, transfer, &host.ops));
    }
    assert!(host.finish(4).unwrap().iter().all(|done| done.status.is_ok()));
    for tag in 0..4_u32 {
        let written = if tag < 2 { 4096 } else { 8192 };
        let bytes = host.ops.content(tag);
        assert!(
            bytes[..written].iter().all(|&byte| byte == tag as u8 + 1)
                && bytes[written..8192].iter().all(|&it| it == 0)
        );
        assert!(bytes[8192..].iter().all(|&byte| byte == 0xee), "memory beyond the read");
    }
}

/// Random ops at every depth, over one queue: a read gives what was written last, and nothing else of the memory
/// changes. Trims have their range elsewhere than in a slot.
#[test]
fn what_is_read_is_what_was_written() {
    for (capsule_bytes, depth) in [(0, 1), (0, 7), (4096, 1), (4096, 3), (8192, 8), (4096, 100)] {
        let style = Style { capsule_bytes, ..Style::default() };
        let server = Server::start(style, BYTES, serve(), open());
        let mut host = connect(&server, |options| options.depth = depth);
        let mut reference = vec![0; BYTES];
        let mut seed = u64::from(capsule_bytes + depth);
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        // Each slot has its own blocks of the namespace, so that ops in flight do not overlap.
        let (mut busy, mut begun) = (vec![None; SLOTS as usize], 0);
        while begun < 400 || busy.iter().any(Option::is_some) {
            let tag = below(u64::from(SLOTS)) as u32;
            if begun < 400 && busy[tag as usize].is_none() && host.queues[0].outstanding() < host.queues[0].depth() {
                begun += 1;
                let (first, blocks) = (u64::from(tag) * 64 + below(16), 1 + below(32) as u32);
                let (kind, at, len) = (below(4), below(100) as u32, blocks * BLOCK);
                let command = |opcode| Command::blocks(opcode, 1, first, blocks);
                let (command, transfer) = match kind {
                    0 | 1 => (command(op::READ), Transfer::In { at, len }),
                    2 => (command(op::WRITE), Transfer::Out { at, len }),
                    _ => {
                        let range = Range { attributes: 0, blocks, slba: first }.write().to_vec();
                        host.ops.others.insert(tag, range);
                        (Range::deallocate(1, 1), Transfer::Out { at: 0, len: Range::BYTES as u32 })
                    }
                };
                host.ops.fill(tag, begun as u8);
                assert!(host.queues[0].issue(tag, command, transfer, &host.ops));
                busy[tag as usize] = Some((kind, at as usize, first as usize * 512, len as usize, begun as u8));
                continue;
            }
            for done in host.finish(1).unwrap() {
                assert_eq!(done.status, Status::SUCCESS);
                let (kind, at, first, len, byte) = busy[done.tag as usize].take().unwrap();
                let content = host.ops.content(done.tag);
                let mut expected = vec![byte; SLOT_BYTES];
                match kind {
                    0 | 1 => expected[at..at + len].copy_from_slice(&reference[first..first + len]),
                    2 => reference[first..first + len].fill(byte),
                    _ => reference[first..first + len].fill(0),
                }
                assert!(content == expected, "op {} of kind {kind}", done.tag);
                host.ops.others.remove(&done.tag);
            }
        }
        assert!(*server.memory.lock().unwrap() == reference);
        let in_capsules = server.seen.in_capsules.load(Ordering::Relaxed);
        assert_eq!(in_capsules > 0, capsule_bytes > 0);
    }
}

/// A controller that does something that it may not: the link says so, and no byte of another slot changes.
#[test]
fn what_a_controller_may_not_do_ends_the_connection_and_is_named() {
    let table = [
        (Mood::Other(1000), "which is not outstanding"),
        (Mood::Twice, "which is not outstanding"),
        (Mood::Bytes(8), "a response of 8 bytes"),
        (Mood::Bytes(0), "a response of 0 bytes"),
        (Mood::Bytes(32), "longer than a response"),
        (Mood::Beyond(512), "closed the connection"),
        (Mood::Before, "closed the connection"),
        (Mood::OtherKey, "closed the connection"),
        (Mood::Invalidate, "invalidates key"),
        (Mood::Close, "closed the connection"),
    ];
    for (mood, words) in table {
        let whim: Whim = Arc::new(move |command| if command.slba() == 64 { mood } else { Mood::Ignore });
        let server = Server::start(Style::default(), BYTES, whim, open());
        let mut host = connect(&server, |_| {});
        (0..SLOTS).for_each(|tag| host.ops.fill(tag, tag as u8));
        // Slot 1 is whole: whatever goes beyond it meets a neighbour.
        host.issue(read(0, 4096));
        host.issue(read(1, SLOT_BYTES as u32));
        host.issue(read(2, 4096));
        let mut done = Vec::new();
        let broken = drive(&mut host.queues, &mut host.ops, usize::MAX, &mut done).unwrap_err();
        assert!(broken.to_string().contains(words), "{mood:?}: {broken}");
        assert!(done.iter().all(|done| done.tag == 1), "{mood:?}: {done:?}");
        let left: Vec<_> = host.queues[0].outstanding_commands().iter().map(|(tag, ..)| *tag).collect();
        assert!(left.contains(&0) && left.contains(&2) && left.len() + done.len() == 3, "{mood:?}: {left:?}");
        host.queues.clear();
        for tag in [0, 2, 3] {
            assert!(host.ops.content(tag).iter().all(|&byte| byte == tag as u8), "{mood:?}: slot {tag}");
        }
        let refused = || server.seen.refused.load(Ordering::Relaxed);
        let is_refused = matches!(mood, Mood::Beyond(_) | Mood::Before | Mood::OtherKey | Mood::Bytes(32));
        if is_refused {
            // The host may know that the connection has ended before the controller does.
            wait_until("the controller is told", || refused() > 0);
        }
        assert_eq!(refused(), u32::from(is_refused), "{mood:?}");
    }
}

/// A controller that guesses: the command of its answer has been issued, and has not been sent.
#[test]
fn an_answer_before_its_command_has_left_ends_the_connection() {
    for guessed in [1, 2] {
        let server = Server::start(Style::default(), BYTES, Arc::new(move |_| Mood::Other(guessed)), open());
        let mut host = connect(&server, |_| {});
        (0..SLOTS).for_each(|tag| host.ops.fill(tag, tag as u8));
        // CIDs are given in order: the first command has 0.
        host.issue(read(0, 4096));
        host.queues[0].send(&host.ops).unwrap();
        host.issue(read(1, 4096));
        host.issue(write(2, 4096)); // its data are in the capsule
        let (mut done, until) = (Vec::new(), Instant::now() + PATIENCE);
        let broken = loop {
            assert!(Instant::now() < until, "nothing comes");
            match host.queues[0].receive(&mut host.ops, &mut done) {
                Ok(_) => {}
                Err(broken) => break broken,
            }
        };
        assert!(broken.to_string().contains(&format!("command {guessed}, which is not outstanding")), "{broken}");
        assert!(done.is_empty() && host.queues[0].outstanding() == 3, "{done:?}");
    }
}

/// The host hears of the end of the connection between two polls. It takes in the completions that came before the end:
/// an answer, and a failure that says more than the event.
#[test]
fn completions_before_the_end_of_a_connection_count() {
    for (mood, words, ended) in [(Mood::Last, "closed the connection", 1), (Mood::Bytes(32), "longer than", 0)] {
        let server = Server::start(Style::default(), BYTES, Arc::new(move |_| mood), open());
        let mut host = connect(&server, |_| {});
        assert!(host.queues[0].may_sleep().unwrap(), "the next poll that finds nothing looks for events");
        host.issue(read(0, 4096));
        host.queues[0].send(&host.ops).unwrap();
        wait_until("the controller has ended the connection", || server.seen.ended.load(Ordering::Acquire) == 1);
        miss(1);
        let mut done = Vec::new();
        let broken = host.queues[0].receive(&mut host.ops, &mut done).unwrap_err();
        assert!(broken.to_string().contains(words), "{mood:?}: {broken}");
        assert_eq!((done.len(), host.queues[0].outstanding()), (ended, 1 - ended), "{mood:?}");
    }
}

/// A host that only writes: the card refuses a controller that writes into a slot whose data it should fetch.
#[test]
fn a_controller_writes_only_where_the_host_reads() {
    for writable in [true, false] {
        let server = Server::start(Style::default(), BYTES, Arc::new(|_| Mood::Beyond(0)), open());
        let mut host = connect(&server, |options| options.rdma.writable = writable);
        host.ops.fill(0, 7);
        host.issue(write(0, 8192));
        host.queues[0].send(&host.ops).unwrap();
        wait_until("the controller has written", || server.seen.beyond.load(Ordering::Acquire) > 0);
        assert_eq!(server.seen.refused.load(Ordering::Relaxed), u32::from(!writable));
        host.queues.clear();
        assert_eq!(host.ops.content(0)[..8192].iter().all(|&byte| byte == 7), !writable);
    }
}

/// A command that fails ends with its status, and its neighbours go on.
#[test]
fn a_command_that_fails_fails_alone() {
    let whim: Whim =
        Arc::new(|command| if command.slba() == 64 { Mood::Fail(Status::WRITE_FAULT) } else { Mood::Serve });
    let server = Server::start(Style::default(), BYTES, whim, open());
    let mut host = connect(&server, |_| {});
    (0..3).for_each(|tag| host.issue(write(tag, 4096)));
    for done in host.finish(3).unwrap() {
        assert_eq!(done.status, if done.tag == 1 { Status::WRITE_FAULT } else { Status::SUCCESS });
    }
}

#[test]
fn it_is_said_why_there_is_no_connection() {
    let reject = |sts: u16| Answer::Refuse(Reject(sts));
    let mut table: Vec<(Answer, String)> =
        (1..=9).map(|sts| (reject(sts), format!("{} (STS {sts})", Reject(sts).name()))).collect();
    table.push((reject(77), "unknown reason (STS 77)".into()));
    table.push((Answer::Dismiss, "refuses for reason 28".into()));
    table.push((Answer::Greet, "not as an NVMe controller does".into()));
    table.push((Answer::Ignore, "timed out".into()));
    for (answer, words) in table {
        // The admin queue, and the second I/O queue: a controller without one of its queues is not used.
        for qid in [0, 2] {
            let door: Door = Arc::new(move |request| if request.qid == qid { answer } else { Answer::Accept });
            let server = Server::start(Style::default(), BYTES, serve(), door);
            let slots = Slots::new(SLOTS);
            let mut asked = Options { queues: 2, ..options(&server, &slots) };
            if answer == Answer::Ignore {
                asked.timeout = Duration::from_millis(300);
            }
            let error = Controller::connect(&address(&server), &asked).err().expect("no controller");
            let said = error.to_string();
            assert!(said.contains(&words) && said.contains("127.0.0.1") && !said.contains('\n'), "{answer:?}: {said}");
            assert!(error.errno > 0);
        }
    }
    let server = Server::start(Style::default(), BYTES, serve(), open());
    let slots = Slots::new(SLOTS);
    let nobody = Address { port: 1, ..address(&server) };
    let error = Controller::connect(&nobody, &options(&server, &slots)).err().expect("nobody listens");
    assert!(error.to_string().contains("is the target running") && error.errno == 111, "{error}");
    server.fabric.fail_registrations(1);
    let error = Controller::connect(&address(&server), &options(&server, &slots)).err().expect("no memory");
    assert!(error.to_string().contains("ulimit -l"), "{error}");
}

#[test]
fn signs_of_life_are_given() {
    let server = Server::start(Style::default(), BYTES, serve(), open());
    let host = connect(&server, |options| options.keep_alive = Duration::from_secs(4));
    wait_until("the host gives signs of life", || server.seen.alive.load(Ordering::Relaxed) >= 2);
    assert_eq!(host.controller.generation(), 1);
}

/// The controller hangs up, or the device goes, amid reads and writes: the commands without an answer are known, go out
/// on a new connection, and every byte is right.
#[test]
fn a_lost_controller_is_found_again_and_what_was_outstanding_is_known() {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let whim: Whim = Arc::new(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Mood::Ignore,
        1 => Mood::Close,
        _ => Mood::Serve,
    });
    let server = Server::start(Style::default(), BYTES, whim, open());
    let mut host = connect(&server, |_| {});
    host.ops.fill(0, 7);
    host.ops.fill(1, 8);
    host.issue(write(0, 4096));
    host.issue(write(1, 16384));
    assert!(host.finish(1).is_err(), "the connection breaks");
    let mut outstanding = host.queues[0].outstanding_commands();
    outstanding.sort_by_key(|&(tag, ..)| tag);
    assert_eq!(outstanding.len(), 2);
    host.queues.clear();
    host.controller.lost(1);
    let Some(Renewal::Queues(generation, queues)) = host.controller.renewed(PATIENCE) else {
        panic!("a new association")
    };
    assert_eq!((generation, host.controller.generation()), (2, 2));
    host.queues = queues;
    outstanding.into_iter().for_each(|issued| host.issue(issued));
    assert!(host.finish(2).unwrap().iter().all(|done| done.status.is_ok()));
    let memory = server.memory.lock().unwrap();
    assert!(memory[..4096].iter().all(|&byte| byte == 7) && memory[32768..][..16384].iter().all(|&byte| byte == 8));
}

/// The controller ends its connections while the cable is cut, so that it cannot say so. The host's commands have
/// arrived: a host that waits for responses, and sends nothing, finds the end out by itself. It goes on waiting for a
/// controller that takes its time.
#[test]
fn an_end_that_nobody_hears_of_is_found_out() {
    for has_gone in [true, false] {
        let server = Server::start(Style::default(), BYTES, Arc::new(|_| Mood::Ignore), open());
        let mut host = connect(&server, |options| options.keep_alive = Duration::ZERO);
        host.issue(read(0, 4096));
        host.issue(write(1, 4096));
        host.queues[0].send(&host.ops).unwrap();
        wait_until("the commands have arrived", || server.seen.ignored.load(Ordering::Acquire) == 2);
        server.fabric.cut();
        if has_gone {
            server.down.store(true, Ordering::Release);
            wait_until("the connections have ended", || server.seen.downs.load(Ordering::Acquire) > 0);
        }
        server.fabric.mend();
        let (mut done, begin, before) = (Vec::new(), Instant::now(), counts().posts);
        let outcome = loop {
            assert!(host.queues[0].may_sleep().is_ok());
            match host.queues[0].receive(&mut host.ops, &mut done) {
                Ok(_) if counts().posts >= before + 2 => break Ok(()), // two probes have got through
                Ok(_) => assert!(begin.elapsed() < PATIENCE, "nothing is found out"),
                Err(broken) => break Err(broken.to_string()),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(outcome.is_err(), has_gone, "{outcome:?}");
        assert!(outcome.err().is_none_or(|words| words.contains("does not answer")));
        assert!(done.is_empty() && host.queues[0].outstanding() == 2, "{done:?}");
    }
}

#[test]
fn a_device_that_goes_breaks_its_connections() {
    let server = Server::start(Style::default(), BYTES, Arc::new(|_| Mood::Ignore), open());
    let mut host = connect(&server, |options| options.controller_loss = Duration::ZERO);
    host.issue(read(0, 4096));
    host.queues[0].send(&host.ops).unwrap();
    server.fabric.unplug();
    let Err(broken) = host.finish(1) else { panic!("an answer from nowhere") };
    assert!(broken.errno() == 19, "{broken}");
    assert_eq!(host.queues[0].outstanding(), 1);
    assert!(matches!(host.controller.renewed(PATIENCE), Some(Renewal::Lost(_))));
}

#[test]
fn a_controller_that_stays_lost_is_given_up() {
    let server = Server::start(Style::default(), BYTES, serve(), open());
    let host = connect(&server, |options| options.controller_loss = Duration::from_millis(250));
    server.down.store(true, Ordering::Relaxed);
    let Some(Renewal::Lost(error)) = host.controller.renewed(PATIENCE) else { panic!("lost") };
    assert!(error.errno != 0 && error.to_string().contains("127.0.0.1"), "{error}");
    assert!(host.controller.namespaces().is_err());
}

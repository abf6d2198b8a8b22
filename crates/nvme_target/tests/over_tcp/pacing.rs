//! Pacing in front of the devices: what is bounded, what is never held, what becomes of held commands.

use crate::raw;

use nvme::pdu::Pdu;
use nvme::spec::fabrics::PropertyAccess;
use nvme::spec::opcode::admin;
use nvme::spec::property::{self, Configuration, ControllerStatus};
use nvme::spec::{Command, Sgl, Status};
use nvme_target::device::{DeviceKind, Effect, Fault, FaultOn, Latency};
use nvme_target::{Limits, Options};
use raw::{Host, Served};

fn delayed(pacing: &str, budget: Option<u64>, read_us: u64, write_us: u64) -> Served {
    let mut config: pace::Config = pace::Config::parse(pacing, 1024).unwrap();
    config.budget_bytes = config.budget_bytes.or(budget);
    let latency =
        Latency { avg_read_us: read_us, p99_read_us: read_us, avg_write_us: write_us, p99_write_us: write_us };
    Served::with(
        Options { pacing: config, max_io_bytes: 128 << 10, ..Options::default() },
        &[("mem", DeviceKind::Memory { bytes: 64 << 20 }), ("slow", DeviceKind::Delay { base: "mem".into(), latency })],
    )
}

/// Memory whose reads end when the test lets them, and then fail.
fn stuck(pacing: &str) -> Served {
    let options =
        Options { pacing: pace::Config::parse(pacing, 1024).unwrap(), max_io_bytes: 128 << 10, ..Options::default() };
    let served = Served::with(
        options,
        &[
            ("mem", DeviceKind::Memory { bytes: 64 << 20 }),
            ("stuck", DeviceKind::Faulty { base: "mem".into(), seed: 1 }),
        ],
    );
    let never = Fault { on: FaultOn::Reads, effect: Effect::Never, one_in: 1, count: None };
    served.target.set_faults("stuck", &[never]).unwrap();
    served
}

fn let_go(served: &Served) {
    served.target.set_faults("stuck", &[]).unwrap();
}

fn held(served: &Served) -> u64 {
    served.target.stats().reactors[0].pacer.held_now
}

/// Checks that this number of commands ends without an error.
fn succeed(host: &mut Host, mut commands: u32) {
    while commands > 0 {
        if let Pdu::CapsuleResp(completion) = host.unit().unwrap().pdu {
            assert!(completion.status.is_ok(), "{}", completion.status);
            commands -= 1;
        }
    }
}

#[test]
fn an_abort_finds_a_held_command_and_admin_commands_are_never_held() {
    let served = stuck("buffers:2");
    let (mut admin, mut queue) = Host::pair(served.address);
    let cids: Vec<u16> = (0..4).map(|_| queue.send_command(Host::read_command(1, 0, 256), &[])).collect();
    raw::until(|| held(&served) == 2);
    assert!(admin.command(Command::new(admin::KEEP_ALIVE, 0), &[]).status.is_ok(), "while all buffers are taken");
    let abort = |cid: u16| Command { cdw10: u32::from(cid) << 16 | 1, ..Command::new(admin::ABORT, 0) };
    assert_eq!(admin.command(abort(cids[3]), &[]).result, 0, "aborted");
    let done = queue.response();
    assert!(done.cid == cids[3] && done.status.is(Status::ABORTED_BY_REQUEST));
    assert_eq!(admin.command(abort(cids[0]), &[]).result, 0, "in a device that can cancel it");
    let done = queue.response();
    assert!(done.cid == cids[0] && done.status.is(Status::ABORTED_BY_REQUEST));
    assert_eq!(admin.command(abort(cids[3]), &[]).result, 1, "gone");
    let other_queue = Command { cdw10: u32::from(cids[2]) << 16 | 7, ..Command::new(admin::ABORT, 0) };
    assert_eq!(admin.command(other_queue, &[]).result, 1, "no such queue");
    let_go(&served);
    let mut done = Vec::new();
    while done.len() < 2 {
        if let Pdu::CapsuleResp(completion) = queue.unit().unwrap().pdu {
            done.push((completion.cid, completion.status.code()));
        }
    }
    let failed = Status::UNRECOVERED_READ_ERROR.code();
    assert_eq!(done, [(cids[1], failed), (cids[2], failed)], "of the two in the device, one had been held");
}

#[test]
fn a_write_is_held_before_its_r2t_and_never_reaches_the_device_once_its_host_is_gone() {
    let served = stuck("buffers:1");
    let (_admin, mut queue) = Host::pair(served.address);
    assert_eq!(queue.write(1, 0, &[1; 4096]), Status::SUCCESS);
    {
        let (_admin, mut queue) = Host::pair(served.address);
        queue.send_command(Host::read_command(1, 0, 8), &[]);
        queue.send_command(Host::write_command(1, 0, 4096), &[]);
        let in_capsule = Command { sgl: Sgl::in_capsule(4096), ..Host::write_command(1, 0, 4096) };
        queue.send_command(in_capsule, &[2; 4096]);
        raw::until(|| held(&served) == 2);
        queue.stream.set_nonblocking(true).unwrap();
        let peeked = queue.stream.peek(&mut [0; 24]);
        assert_eq!(peeked.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "no R2T while it is held");
    }
    raw::until(|| held(&served) == 0);
    let_go(&served);
    raw::until(|| served.target.stats().reactors[0].pacer.in_flight == 0);
    assert_eq!(queue.read(1, 0, 8).unwrap(), vec![1; 4096]);
    assert_eq!(served.target.stats().devices[1].writes, 1);
}

#[test]
fn bytes_in_flight_and_buffers_stay_within_the_budget() {
    const BUDGET: u64 = 1 << 20;
    for (pacing, budget) in [("auto", Some(BUDGET)), ("none", Some(BUDGET)), ("buffers:7", None)] {
        // Slow enough that commands of one queue meet each other, however slowly they come.
        let served = delayed(pacing, budget, 20_000, 20_000);
        let (admin, queue) = Host::pair(served.address);
        let mut queues: Vec<Host> = vec![queue];
        queues.extend((2..5).map(|qid| admin.queue(served.address, qid, false)));
        for (index, queue) in queues.iter_mut().enumerate() {
            let mut bytes = Vec::new();
            for cid in 0..100u16 {
                let command = match (cid as usize + index) % 4 {
                    0 => Host::read_command(1, 512, 8),
                    1 => Host::read_command(1, 0, 256),
                    2 => Host::read_command(1, 0, 40),
                    _ => Command { sgl: Sgl::in_capsule(4096), ..Host::write_command(1, 8 * u64::from(cid), 4096) },
                };
                let data = vec![cid as u8; if command.opcode == 1 { 4096 } else { 0 }];
                bytes.extend_from_slice(&queue.capsule(&Command { cid, ..command }, &data));
            }
            // The target may stop reading: send from a separate thread.
            let mut stream = queue.stream.try_clone().unwrap();
            std::thread::spawn(move || std::io::Write::write_all(&mut stream, &bytes));
        }
        // All are read at the same time: in so little memory one that is not would hold what the others need.
        std::thread::scope(|scope| {
            for queue in &mut queues {
                scope.spawn(|| succeed(queue, 100));
            }
        });
        let reactor = || served.target.stats().reactors.remove(0);
        raw::until(|| reactor().pending_io == 0);
        let reactor = reactor();
        assert!(reactor.pacer.in_flight_bytes_peak <= BUDGET, "{pacing}: {reactor:?}");
        assert!(reactor.buffer_bytes_peak <= BUDGET + (4 << 20) * u64::from(budget.is_none()), "{pacing}: {reactor:?}");
        assert!(reactor.pacer.held > 0, "{pacing}: nothing was ever held");
        assert_eq!((reactor.pacer.in_flight, reactor.pacer.held_now, reactor.pending_io), (0, 0, 0));
    }
}

#[test]
fn hosts_that_take_or_send_their_data_slowly_do_not_hold_the_others_up() {
    const BYTES: usize = 128 << 10;
    for budget in [None, Some(64 << 20)] {
        let limits = Limits { send_buffer: Some(64 << 10), ..Limits::default() };
        let options = Options { pacing: pace::Config::auto(budget), limits, ..Options::default() };
        let served = Served::with(options, &[("mem", DeviceKind::Memory { bytes: 8 << 20 })]);
        let (_admins, mut slow): (Vec<Host>, Vec<Host>) = (0..8).map(|_| Host::pair(served.address)).unzip();
        for (index, host) in slow.iter_mut().enumerate() {
            for _ in 0..120 {
                match index {
                    0 => host.send_command(Host::write_command(1, 0, BYTES), &[]),
                    _ => host.send_command(Host::read_command(1, 0, (BYTES / 512) as u32), &[]),
                };
            }
        }
        // The hosts ask for more than they get.
        raw::until(|| held(&served) > 100);
        let (_admin, mut host) = Host::pair(served.address);
        for turn in 0..50 {
            assert_eq!(host.write(1, 4096, &vec![turn; BYTES]), Status::SUCCESS, "{budget:?}");
            assert_eq!(host.read(1, 4096, (BYTES / 512) as u32).unwrap(), vec![turn; BYTES], "{budget:?}");
        }
        assert!(held(&served) > 100, "those that are slow still wait");
        // A host that goes on gets all its data.
        for host in &mut slow[1..] {
            succeed(host, 120);
        }
        drop(slow);
        raw::until(|| served.target.stats().reactors[0].pacer.in_flight == 0);
        assert_eq!(host.write(1, 0, &vec![1; BYTES]), Status::SUCCESS);
    }
}

#[test]
fn a_namespace_that_goes_takes_its_held_commands_with_it() {
    // The first read is still in the device when the device goes: time enough for a test that is kept from a processor.
    let served = delayed("buffers:1", None, 4_000_000, 0);
    let (_admin, mut queue) = Host::pair(served.address);
    let cids = [(); 3].map(|()| queue.cid());
    let reads = cids.map(|cid| queue.capsule(&Command { cid, ..Host::read_command(1, 0, 8) }, &[]));
    queue.send(&reads.concat());
    raw::until(|| held(&served) == 2);
    served.target.delete_device("slow").unwrap().wait();
    let mut outcomes = Vec::new();
    while outcomes.len() < 3 {
        if let Pdu::CapsuleResp(done) = queue.unit().unwrap().pdu {
            outcomes.push((done.cid, done.status.code()));
        }
    }
    outcomes.sort_unstable();
    let gone = Status::INVALID_NAMESPACE.code();
    assert_eq!(outcomes, [(cids[0], 0), (cids[1], gone), (cids[2], gone)]);
    served.target.delete_device("mem").unwrap().wait();
}

#[test]
fn faults_of_devices_become_statuses_and_short_transfers_are_continued() {
    let served = Served::with(
        Options::default(),
        &[("mem", DeviceKind::Memory { bytes: 8 << 20 }), ("bad", DeviceKind::Faulty { base: "mem".into(), seed: 1 })],
    );
    let (admin, mut queue) = Host::pair(served.address);
    let fault = |on, effect| Fault { on, effect, one_in: 1, count: None };
    let data: Vec<u8> = (0..131_072u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let set = |faults: &[Fault]| served.target.set_faults("bad", faults).unwrap();

    set(&[fault(FaultOn::All, Effect::Short)]);
    assert_eq!(queue.write(1, 0, &data), Status::SUCCESS);
    assert_eq!(queue.read(1, 0, 256).unwrap(), data);
    set(&[fault(FaultOn::Reads, Effect::Fail)]);
    assert!(queue.read(1, 0, 8).unwrap_err().is(Status::UNRECOVERED_READ_ERROR));
    assert_eq!(queue.write(1, 0, &data), Status::SUCCESS);
    set(&[fault(FaultOn::Writes, Effect::Fail)]);
    assert!(queue.write(1, 0, &data).is(Status::WRITE_FAULT));
    set(&[Fault { count: Some(1), ..fault(FaultOn::Flushes, Effect::Fail) }]);
    let flush = Command::new(nvme::spec::opcode::io::FLUSH, 1);
    assert!(queue.command(flush, &[]).status.is(Status::INTERNAL_ERROR));
    assert!(queue.command(flush, &[]).status.is_ok());
    set(&[fault(FaultOn::All, Effect::Slow { us: 3_000 })]);
    assert_eq!(queue.read(1, 0, 256).unwrap(), data);

    // Stuck: the connection goes, the op stays; cleared, nothing is left of it.
    set(&[fault(FaultOn::All, Effect::Stuck)]);
    queue.send_command(Host::read_command(1, 0, 256), &[]);
    raw::until(|| served.target.stats().devices[1].in_device == 1);
    drop((admin, queue));
    raw::until(|| served.connections() == 0);
    assert_eq!(served.target.stats().reactors[0].pacer.in_flight, 1);
    set(&[]);
    raw::until(|| served.target.stats().reactors[0].pacer.in_flight == 0);
    served.assert_alive();
}

#[test]
fn a_command_that_is_held_for_too_long_goes_back_to_its_host() {
    let mut options = Options {
        pacing: pace::Config::parse("buffers:2", 1024).unwrap(),
        max_io_bytes: 128 << 10,
        ..Options::default()
    };
    options.limits.hold = std::time::Duration::from_millis(200);
    let served = Served::with(
        options,
        &[("mem", DeviceKind::Memory { bytes: 1 << 20 }), ("bad", DeviceKind::Faulty { base: "mem".into(), seed: 1 })],
    );
    let never = Fault { on: FaultOn::All, effect: Effect::Never, one_in: 1, count: None };
    served.target.set_faults("bad", &[never]).unwrap();
    let (_admin, mut queue) = Host::pair(served.address);
    let cids: Vec<u16> = (0..3).map(|_| queue.send_command(Host::read_command(1, 0, 256), &[])).collect();
    let done = queue.response();
    assert!(done.cid == cids[2] && done.status.is(Status::COMMAND_INTERRUPTED) && !done.status.is_do_not_retry());
    served.target.set_faults("bad", &[]).unwrap();
    for _ in 0..2 {
        assert!(queue.response().status.is(Status::UNRECOVERED_READ_ERROR));
    }
    assert_eq!(queue.read(1, 0, 256).unwrap().len(), 131_072);
}

/// A reset is complete when no write of the host is in a device any more: a write that ends later would overwrite what
/// the host writes after the reset.
#[test]
fn a_reset_or_a_shutdown_waits_for_what_is_in_devices() {
    for asks_shutdown in [false, true] {
        let served = stuck("none");
        let stays = Fault { on: FaultOn::Writes, effect: Effect::Stuck, one_in: 1, count: None };
        served.target.set_faults("stuck", &[stays]).unwrap();
        let (mut admin, mut queue) = Host::pair(served.address);
        let write = Command { sgl: Sgl::in_capsule(4096), ..Host::write_command(1, 0, 4096) };
        queue.send_command(write, &[7; 4096]);
        raw::until(|| served.target.stats().devices.iter().any(|device| device.in_device == 1));
        let status = |host: &mut Host| {
            let csts = host.command(PropertyAccess::get(property::CSTS, 4), &[]).result as u32;
            ControllerStatus::of(csts)
        };
        let enabled = Configuration::ENABLED;
        let value = if asks_shutdown { enabled.with_shutdown().0 } else { 0 };
        assert!(admin.command(PropertyAccess::set(property::CC, 4, value.into()), &[]).status.is_ok());
        assert!(queue.is_closed());
        let before = status(&mut admin);
        assert_eq!((before.ready, before.shutdown), (true, u8::from(asks_shutdown)), "the write is in its device");
        let_go(&served);
        let done = |status: ControllerStatus| if asks_shutdown { status.shutdown == 2 } else { !status.ready };
        raw::until(|| done(status(&mut admin)));
    }
}

/// A controller reset ends requests for events: afterwards the host may make four of them again.
#[test]
fn requests_for_events_do_not_outlive_a_reset() {
    let served = Served::plain();
    let mut admin = Host::admin(served.address);
    let request = Command::new(admin::ASYNC_EVENT_REQUEST, 0);
    for _ in 0..3 {
        for _ in 0..4 {
            admin.send_command(request, &[]);
        }
        assert!(admin.command(request, &[]).status.is(Status::ASYNC_EVENT_LIMIT_EXCEEDED));
        assert!(admin.command(PropertyAccess::set(property::CC, 4, 0), &[]).status.is_ok());
        admin.enable();
    }
    // Of 32 entries none is lost.
    for _ in 0..40 {
        assert!(admin.command(Command::new(admin::KEEP_ALIVE, 0), &[]).status.is_ok());
    }
}

/// One host's writes wait for the limit of a device, with their data: another host's data still find room.
#[test]
fn data_that_wait_for_a_limit_leave_room_to_other_hosts() {
    const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:0f0e0d0c-0b0a-0908-0706-050403020100";
    let limits = Limits { hold: std::time::Duration::from_secs(3600), ..Limits::default() };
    let served = Served::with(
        Options { in_capsule_bytes: 64 << 10, limits, ..Options::default() },
        &[("slow", DeviceKind::Memory { bytes: 1 << 20 }), ("fast", DeviceKind::Memory { bytes: 1 << 20 })],
    );
    served.target.set_rates("slow", pace::Rates { ops_per_s: 1, ..pace::Rates::default() }).unwrap();
    let (_admin, queue) = Host::pair(served.address);
    let mut sender = queue.stream.try_clone().unwrap();
    let capsule = {
        let command = Command { sgl: Sgl::in_capsule(64 << 10), ..Host::write_command(1, 0, 64 << 10) };
        queue.capsule(&command, &[7; 64 << 10])
    };
    // More than the reserve; the target stops reading from the host before the end.
    let flood = std::thread::spawn(move || (0..100).try_for_each(|_| std::io::Write::write_all(&mut sender, &capsule)));
    raw::until(|| served.target.stats().reactors[0].pending_io >= 24);

    let admin = Host::admin_of(served.address, raw::NQN, OTHER, false);
    let mut other = Host::open(served.address, false, false);
    assert!(other.connect(1, 128, admin.cntlid, raw::NQN, OTHER).status.is_ok());
    for lba in (0..16).cycle().take(500) {
        let write = Command { sgl: Sgl::in_capsule(64 << 10), ..Host::write_command(2, lba, 64 << 10) };
        assert_eq!(other.command(write, &[5; 64 << 10]).status, Status::SUCCESS);
    }
    queue.stream.shutdown(std::net::Shutdown::Both).unwrap();
    let _ = flood.join();
}

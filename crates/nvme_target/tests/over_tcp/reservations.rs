//! Reservations: who may read and write, what each command changes, who is told, and what a crash leaves.

use crate::raw;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;

use nvme::spec::ana::AnaState;
use nvme::spec::opcode::{admin, io};
use nvme::spec::reservation::{
    AcquireAction, Notice, RegisterAction, RegisteredController, ReleaseAction, ReservationCommand,
    ReservationNotification, ReservationStatus, ReservationType, report,
};
use nvme::spec::{AsyncEvent, Command, CopySource, GetLogPage, Nqn, Range, Sgl, Status, feature, log};
use nvme_rpc::{Control, Settings, StateDirectory};
use nvme_target::device::{DeviceKind, DeviceSpec, Effect, Fault, FaultOn};
use nvme_target::{NamespaceSpec, Options, SubsystemSpec, Target};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};
use raw::{Host, NQN, Served};
use serde_json::{Value, json};

const UUID: [u8; 16] = [0x77; 16];

/// One host: its queues and its identifier.
struct Member {
    admin: Host,
    queue: Host,
    id: [u8; 16],
}

impl Member {
    fn new(served: &Served, number: u8) -> Member {
        let id = [number; 16];
        let (admin, queue) = Host::pair_of(served.address, id);
        Member { admin, queue, id }
    }

    fn reserve(&mut self, command: ReservationCommand) -> Status {
        self.queue.reserve(command)
    }

    fn register(&mut self, new: u64) -> Status {
        let (action, ignores_key, persists, current) = (RegisterAction::Register, false, None, 0);
        self.reserve(ReservationCommand::Register { action, ignores_key, persists, current, new })
    }

    fn acquire(&mut self, action: AcquireAction, kind: ReservationType, current: u64, preempted: u64) -> Status {
        self.reserve(ReservationCommand::Acquire { action, kind, current, preempted })
    }

    fn status(&mut self) -> (ReservationStatus, Vec<RegisteredController>) {
        self.queue.reservation()
    }

    fn reads(&mut self) -> Status {
        self.queue.read(1, 0, 8).err().unwrap_or(Status::SUCCESS)
    }

    fn writes(&mut self) -> Status {
        self.queue.write(1, 0, &[self.id[0]; 4096])
    }

    /// Carries out every I/O command; returns the commands that succeeded. All others conflict.
    fn may(&mut self) -> (bool, bool) {
        let compare = Command { opcode: io::COMPARE, ..Host::write_command(1, 0, 512) };
        let zeroes = Command::blocks(io::WRITE_ZEROES, 1, 64, 8);
        let range = Range { attributes: 0, blocks: 8, slba: 128 };
        let deallocate = Command { sgl: Sgl::in_capsule(16), ..Range::deallocate(1, 1) };
        let written = [
            self.writes(),
            self.queue.command(Command::new(io::FLUSH, 1), &[]).status,
            self.queue.command(zeroes, &[]).status,
            self.queue.command(deallocate, &range.write()).status,
        ];
        let compared = self.queue.send_data(compare, &[0xee; 512], 512);
        let compared = if compared.is(Status::COMPARE_FAILURE) { Status::SUCCESS } else { compared };
        let read = [self.reads(), compared];
        let all = |statuses: &[Status]| {
            assert!(statuses.iter().all(|it| it.is_ok()) || statuses.iter().all(|it| conflicts(*it)), "{statuses:?}");
            statuses[0].is_ok()
        };
        (all(&read), all(&written))
    }

    /// The notifications that wait, oldest first: kind and namespace.
    fn notices(&mut self) -> Vec<(u8, u32)> {
        let length = ReservationNotification::BYTES as u64;
        let page = GetLogPage { lid: log::RESERVATION_NOTIFICATION, lsp: 0, retain: false, length, offset: 0 };
        let mut all = Vec::new();
        loop {
            let page = self.admin.fetch(page.command(0)).unwrap();
            let notice = ReservationNotification::read(page.first_chunk().unwrap());
            if notice.kind == 0 {
                assert_eq!(notice, ReservationNotification::default());
                return all;
            }
            all.push((notice.kind, notice.nsid));
        }
    }
}

fn conflicts(status: Status) -> bool {
    status.is(Status::RESERVATION_CONFLICT) && status.is_do_not_retry()
}

fn memory() -> Served {
    Served::with(Options { reactors: 2, ..Options::default() }, &[("mem", DeviceKind::Memory { bytes: 1 << 20 })])
}

/// Section 8.19, the figure of commands in the presence of a reservation: what the holder, another registrant and any
/// other host may do.
#[test]
fn each_type_admits_the_hosts_of_its_row() {
    let served = memory();
    let [mut holder, mut registrant, mut other] = [1, 2, 3].map(|number| Member::new(&served, number));
    assert!(holder.register(1).is_ok() && registrant.register(2).is_ok());
    for (kind, of_registrants, of_others) in [
        (ReservationType::WriteExclusive, (true, false), (true, false)),
        (ReservationType::ExclusiveAccess, (false, false), (false, false)),
        (ReservationType::WriteExclusiveRegistrantsOnly, (true, true), (true, false)),
        (ReservationType::ExclusiveAccessRegistrantsOnly, (true, true), (false, false)),
        (ReservationType::WriteExclusiveAllRegistrants, (true, true), (true, false)),
        (ReservationType::ExclusiveAccessAllRegistrants, (true, true), (false, false)),
    ] {
        assert_eq!(other.may(), (true, true), "no reservation yet");
        assert!(holder.acquire(AcquireAction::Acquire, kind, 1, 0).is_ok());
        let holds: Vec<u8> = holder.status().1.iter().map(|it| it.is_holder).collect();
        assert_eq!(holds, [1, kind.is_held_by_all().into()], "{kind:?}");
        assert_eq!(holder.may(), (true, true), "{kind:?}");
        assert_eq!(registrant.may(), of_registrants, "{kind:?}");
        assert_eq!(other.may(), of_others, "{kind:?}");
        let release = ReservationCommand::Release { action: ReleaseAction::Release, kind: kind as u8, current: 1 };
        assert!(holder.reserve(release).is_ok());
    }
}

#[test]
fn a_report_names_every_controller_of_a_registrant() {
    let served = memory();
    let (mut one, mut again) = (Member::new(&served, 1), Member::new(&served, 1));
    assert!(one.register(0x1122_3344_5566_7788).is_ok());
    let (header, mut entries) = again.status();
    assert_eq!((header.generation, header.kind, header.registered, header.persists), (1, 0, 2, 0));
    entries.sort_by_key(|entry| entry.cntlid);
    let mut ids = [one.admin.cntlid, again.admin.cntlid];
    ids.sort_unstable();
    assert_eq!(entries.iter().map(|entry| entry.cntlid).collect::<Vec<_>>(), ids);
    assert!(entries.iter().all(|it| (it.key, it.host, it.is_holder) == (0x1122_3344_5566_7788, [1; 16], 0)));
    // A registrant stays one when it leaves; a host with its identifier comes back with its rights.
    drop((one, again));
    let mut other = Member::new(&served, 2);
    raw::until(|| other.status().1[0].cntlid == 0xffff);
    let short = other.queue.fetch(report(1, 8)).unwrap();
    assert_eq!((short.len(), short[0]), (8, 1), "cut off where the host has no room");
    let without_eds = Command { cdw11: 0, ..report(1, 4096) };
    assert!(other.queue.fetch(without_eds).unwrap_err().is(Status::HOST_ID_INCONSISTENT));
    assert!(other.queue.fetch(report(9, 4096)).unwrap_err().is(Status::INVALID_NAMESPACE));
    let beyond = Command { sgl: Sgl::transport(64), ..report(1, 4096) };
    assert!(other.queue.fetch(beyond).unwrap_err().is(Status::DATA_SGL_LENGTH_INVALID));
}

#[test]
fn commands_that_make_no_sense_change_nothing() {
    let served = memory();
    let mut host = Member::new(&served, 1);
    let (command, data) = ReservationCommand::Register {
        action: RegisterAction::Register,
        ignores_key: false,
        persists: None,
        current: 0,
        new: 1,
    }
    .command(1);
    for (bad, sent) in [
        (Command { cdw10: 3, ..command }, &data[..]),
        (Command { cdw10: 1 << 30, ..command }, &data[..]),
        (Command { cdw10: 3 << 30, ..command }, &data[..]), // persistence that is not there
        (command, &data[..12]),
        (command, &[0; 16][..]),
        (Command { opcode: io::RESERVATION_ACQUIRE, ..command }, &data[..]),
    ] {
        let sgl = Sgl::in_capsule(sent.len() as u32);
        let done = host.queue.command(Command { sgl, ..bad }, sent);
        assert!(done.status.is(Status::INVALID_FIELD) && done.status.is_do_not_retry(), "{bad:?}: {}", done.status);
    }
    let elsewhere = Command { nsid: 2, sgl: Sgl::in_capsule(16), ..command };
    assert!(host.queue.command(elsewhere, &data).status.is(Status::INVALID_NAMESPACE));
    assert!(host.queue.command(command, &[]).status.is(Status::INVALID_FIELD), "without data");
    assert!(
        host.admin.command(Command { sgl: Sgl::in_capsule(16), ..command }, &data).status.is(Status::INVALID_OPCODE)
    );
    assert_eq!(host.status().0.generation, 0);
    // Data that are asked for, and hosts without an identifier.
    assert!(host.queue.send_data(Command { sgl: Sgl::transport(16), ..command }, &data, 16).is_ok());
    assert_eq!(host.status().0.generation, 1);
    let mut nobody = Member::new(&served, 0);
    assert!(nobody.register(5).is(Status::HOST_ID_INCONSISTENT));
}

#[test]
fn a_namespace_has_a_bound_of_registrants() {
    let served = memory();
    for number in 1..=u8::MAX {
        assert!(Member::new(&served, number).register(1).is_ok());
    }
    let host = |id: [u8; 16]| {
        let (admin, queue) = Host::pair_of(served.address, id);
        Member { admin, queue, id }
    };
    assert!(host([1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]).register(1).is_ok());
    assert!(host([2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1]).register(1).is(Status::INTERNAL_ERROR));
    let clear = ReservationCommand::Release { action: ReleaseAction::Clear, kind: 0, current: 1 };
    assert!(host([1; 16]).reserve(clear).is_ok());
}

#[test]
fn hosts_are_told_of_what_others_did_to_them() {
    let served = memory();
    let [mut one, mut two, mut three] = [1, 2, 3].map(|number| Member::new(&served, number));
    for (member, key) in [(&mut one, 1), (&mut two, 2), (&mut three, 3)] {
        assert!(member.register(key).is_ok());
    }
    let event = two.admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
    let kind = ReservationType::WriteExclusiveRegistrantsOnly;
    assert!(one.acquire(AcquireAction::Acquire, kind, 1, 0).is_ok());
    let release = ReservationCommand::Release { action: ReleaseAction::Release, kind: kind as u8, current: 1 };
    assert!(one.reserve(release).is_ok());
    let told = two.admin.response();
    assert_eq!((told.cid, AsyncEvent::of(told.result)), (event, AsyncEvent::RESERVATION_NOTICE));
    let mask = |member: &mut Member, bits: u32| {
        let set = Command {
            cdw10: feature::RESERVATION_MASK.into(),
            cdw11: bits,
            ..Command::new(admin::SET_FEATURES, u32::MAX)
        };
        assert!(member.admin.command(set, &[]).status.is_ok());
        let get = Command { cdw10: feature::RESERVATION_MASK.into(), ..Command::new(admin::GET_FEATURES, 1) };
        assert_eq!(member.admin.command(get, &[]).result, u64::from(bits));
    };
    mask(&mut three, 1 << Notice::RegistrationPreempted as u8);
    let preempt = AcquireAction::Preempt;
    assert!(one.acquire(preempt, kind, 1, 2).is_ok());
    assert!(one.acquire(preempt, kind, 1, 3).is_ok());
    assert_eq!(one.notices(), []);
    // A second request is answered when the first page is read, because a second page waits.
    let event = two.admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
    let length = ReservationNotification::BYTES as u64;
    let page = GetLogPage { lid: log::RESERVATION_NOTIFICATION, lsp: 0, retain: false, length, offset: 0 };
    let first = two.admin.fetch(page.command(0)).unwrap();
    let first = ReservationNotification::read(first.first_chunk().unwrap());
    assert_eq!((first.count, first.kind, first.available), (1, Notice::ReservationReleased as u8, 1));
    let told = two.admin.response();
    assert_eq!((told.cid, AsyncEvent::of(told.result)), (event, AsyncEvent::RESERVATION_NOTICE));
    assert_eq!(two.notices(), [(Notice::RegistrationPreempted as u8, 1)]);
    assert_eq!(three.notices(), [(Notice::ReservationReleased as u8, 1)], "the other one is masked");
    assert!(two.register(2).is_ok());
    let clear = ReservationCommand::Release { action: ReleaseAction::Clear, kind: 0, current: 1 };
    assert!(one.reserve(clear).is_ok());
    assert_eq!(two.notices(), [(Notice::ReservationPreempted as u8, 1)]);
    assert_eq!((one.notices(), three.notices()), (vec![], vec![]));
}

/// Commands of a host that is preempted: one in the device, and writes that wait for their data.
#[test]
fn preempt_and_abort_leaves_nothing_of_the_host_under_way() {
    let served = Served::with(
        Options { reactors: 2, ..Options::default() },
        &[("mem", DeviceKind::Memory { bytes: 1 << 20 }), ("bad", DeviceKind::Faulty { base: "mem".into(), seed: 1 })],
    );
    let [mut winner, mut loser] = [1, 2].map(|number| Member::new(&served, number));
    assert!(winner.register(1).is_ok() && loser.register(2).is_ok());
    let never = Fault { on: FaultOn::Reads, effect: Effect::Never, one_in: 1, count: None };
    served.target.set_faults("bad", &[never]).unwrap();
    let waiting = loser.queue.ready(1, 0, 4096);
    let stuck = loser.queue.send_command(Host::read_command(1, 0, 8), &[]);
    raw::until(|| served.target.stats().devices.iter().any(|device| device.name == "bad" && device.in_device == 1));
    let kind = ReservationType::WriteExclusiveRegistrantsOnly;
    assert!(winner.acquire(AcquireAction::Acquire, kind, 1, 0).is_ok());
    assert!(winner.acquire(AcquireAction::PreemptAndAbort, kind, 1, 2).is_ok());
    let done = loser.queue.response();
    assert_eq!(done.cid, stuck);
    assert!(done.status.is(Status::ABORTED_PREEMPT), "{}", done.status);
    let header = nvme::pdu::H2cData { cid: waiting.cid, ttag: waiting.ttag, offset: 0, length: 4096, last: true };
    let data = loser.queue.h2c(&header, &[9; 4096]);
    loser.queue.send(&data);
    assert!(loser.queue.response().status.is(Status::ABORTED_PREEMPT));
    served.target.set_faults("bad", &[]).unwrap();
    assert_eq!(winner.queue.read(1, 0, 8).unwrap(), [0; 4096], "the data came too late");
    assert!(loser.writes().is(Status::RESERVATION_CONFLICT) && winner.writes().is_ok());
}

/// The namespace goes while the registrar still works for its hosts: a write of the host that is preempted stays in
/// the device.
#[test]
fn preempt_and_abort_on_a_namespace_that_goes_waits_for_its_device() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ns1.json");
    let device = ("bad", DeviceKind::Faulty { base: "mem".into(), seed: 1 });
    let served = persistent_on(&file, &device).unwrap();
    let [mut winner, mut loser] = [1, 2].map(|number| Member::new(&served, number));
    assert!(register_persistent(&mut winner, 1, true).is_ok() && loser.register(2).is_ok());
    let stuck = Fault { on: FaultOn::Writes, effect: Effect::Stuck, one_in: 1, count: None };
    served.target.set_faults("bad", &[stuck]).unwrap();
    loser.queue.send_data_only(Host::write_command(1, 0, 512), &[9; 512]);
    let in_device = || served.target.stats().devices.iter().map(|device| device.in_device).sum::<u64>();
    raw::until(|| in_device() == 1);
    // The registrar writes a file for each of these commands, so that the namespace goes before the last one's turn.
    let again = ReservationCommand::Register {
        action: RegisterAction::Replace,
        ignores_key: true,
        persists: None,
        current: 0,
        new: 1,
    };
    let kind = ReservationType::ExclusiveAccess;
    let preempt =
        ReservationCommand::Acquire { action: AcquireAction::PreemptAndAbort, kind, current: 1, preempted: 2 };
    let mut send = |command: ReservationCommand| {
        let (command, data) = command.command(1);
        winner.queue.send_command(Command { sgl: Sgl::in_capsule(data.len() as u32), ..command }, &data)
    };
    let earlier: Vec<u16> = (0..60).map(|_| send(again)).collect();
    let preempts = send(preempt);
    // The target has taken them all when it answers a command after them.
    let last = winner.queue.send_command(Command::new(io::FLUSH, 9), &[]);
    let mut responses = Vec::new();
    while responses.last() != Some(&last) {
        responses.push(winner.queue.response().cid);
    }
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| served.target.remove_namespace(NQN, 1).map(|departure| departure.wait()));
        raw::until(|| served.target.subsystems()[0].namespaces.is_empty());
        while !earlier.iter().all(|cid| responses.contains(cid)) {
            responses.push(winner.queue.response().cid);
        }
        // An early answer comes between these, at the latest.
        for _ in 0..20 {
            let cid = winner.queue.send_command(Command::new(io::FLUSH, 9), &[]);
            while responses.last() != Some(&cid) {
                responses.push(winner.queue.response().cid);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        served.target.set_faults("bad", &[]).unwrap();
        assert!(!responses.contains(&preempts), "it is answered while the device has a write of the host");
        let done = winner.queue.response();
        assert!(done.cid == preempts && done.status.is_ok(), "{}", done.status);
        assert!(in_device() == 0 && removed.join().unwrap().is_ok());
    });
}

fn persistent(file: &Path) -> Result<Served, nvme_target::device::Error> {
    persistent_on(file, &("mem", DeviceKind::Memory { bytes: 1 << 20 }))
}

/// A target with a namespace on that device, which may be above the memory device `mem`.
fn persistent_on(file: &Path, (name, kind): &(&str, DeviceKind)) -> Result<Served, nvme_target::device::Error> {
    let target = Target::start(Options { reactors: 2, ..Options::default() })?;
    target.create_subsystem(SubsystemSpec { allow_any_host: true, ..SubsystemSpec::new(NQN) })?;
    let device = |name: &str, kind| DeviceSpec { name: name.into(), block_bytes: None, uuid: Some(UUID), kind };
    if *name != "mem" {
        target.create_device(DeviceSpec { uuid: None, ..device("mem", DeviceKind::Memory { bytes: 1 << 20 }) })?;
    }
    target.create_device(device(name, kind.clone()))?;
    let spec = NamespaceSpec { reservations: Some(file.into()), ..NamespaceSpec::new(*name) };
    let added = target.add_namespace(NQN, spec);
    if added.is_err() {
        target.shutdown(Duration::ZERO);
    }
    added?;
    let address = target.add_listener(NQN, "127.0.0.1:0".parse().unwrap())?;
    Ok(Served { target, address })
}

fn register_persistent(member: &mut Member, new: u64, persists: bool) -> Status {
    let (action, ignores_key, current) = (RegisterAction::Replace, true, 0);
    member.reserve(ReservationCommand::Register { action, ignores_key, persists: Some(persists), current, new })
}

#[test]
fn reservations_outlive_the_target_if_hosts_want_them_to() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ns1.json");
    let kind = ReservationType::ExclusiveAccess;
    {
        let served = persistent(&file).unwrap();
        let mut one = Member::new(&served, 1);
        assert!(register_persistent(&mut one, 11, true).is_ok());
        assert!(one.acquire(AcquireAction::Acquire, kind, 11, 0).is_ok());
    }
    {
        let served = persistent(&file).unwrap();
        let [mut one, mut two] = [1, 2].map(|number| Member::new(&served, number));
        let (header, entries) = two.status();
        assert_eq!((header.kind, header.persists, entries.len()), (kind as u8, 1, 1));
        assert_eq!((entries[0].key, entries[0].host, entries[0].is_holder), (11, [1; 16], 1));
        assert!(conflicts(two.writes()) && conflicts(two.reads()) && one.writes().is_ok());
        // A file that cannot be written: nothing changes, and the target says why.
        std::fs::rename(dir.path(), dir.path().with_extension("away")).unwrap();
        let refused = two.register(22);
        std::fs::rename(dir.path().with_extension("away"), dir.path()).unwrap();
        assert!(refused.is(Status::INTERNAL_ERROR), "{refused}");
        assert_eq!(two.status().1.len(), 1);
        assert!(raw::serving::warnings(&served.target).iter().any(|line| line.contains("ns1.json")));
        // Reservation Persistence is a feature, too.
        let get = Command { cdw10: feature::RESERVATION_PERSISTENCE.into(), ..Command::new(admin::GET_FEATURES, 1) };
        assert_eq!(one.admin.command(get, &[]).result, 1);
        let set = Command {
            cdw10: feature::RESERVATION_PERSISTENCE.into(),
            cdw11: 0,
            ..Command::new(admin::SET_FEATURES, u32::MAX)
        };
        assert!(one.admin.command(set, &[]).status.is_ok());
        assert_eq!(one.status().0.persists, 0);
        assert!(conflicts(two.reads()), "the reservation stays while the target runs");
    }
    let served = persistent(&file).unwrap();
    let mut two = Member::new(&served, 2);
    assert_eq!((two.status().1.len(), two.writes()), (0, Status::SUCCESS));
    drop(served);
    for text in ["", "{", r#"{"ptpl":true,"bdev_uuid":"00000000-0000-0000-0000-000000000000"}"#] {
        std::fs::write(&file, text).unwrap();
        let error = persistent(&file).err().expect("the file is not this namespace's").to_string();
        assert!(error.contains("ns1.json does not hold the reservations of this namespace"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "it stays as it is");
    }
}

/// A target that keeps its state in that directory, as `plimsoll serve --state` does.
fn kept(directory: &Path) -> (Control, Served) {
    let settings =
        Settings { options: Options::default(), pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    let control = Control::start(settings, Box::new(|_| ())).unwrap();
    let call = |method: &str, params: Value| control.call(method, Some(&params)).map(drop).map_err(|e| e.to_string());
    let configure = || {
        call("nvmf_create_transport", json!({ "trtype": "TCP" }))?;
        call("bdev_malloc_create", json!({ "name": "mem", "num_blocks": 256, "block_size": 4096 }))?;
        call("nvmf_create_subsystem", json!({ "nqn": NQN, "allow_any_host": true }))?;
        call("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "mem" } }))
    };
    control.keep(StateDirectory::open(directory, Value::Null).unwrap(), configure).unwrap();
    let target = control.target();
    let address = target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    (control, Served { target, address })
}

#[test]
fn a_state_directory_keeps_the_reservations_of_namespaces_without_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let kind = ReservationType::WriteExclusive;
    {
        let (_control, served) = kept(dir.path());
        let mut one = Member::new(&served, 1);
        assert!(register_persistent(&mut one, 11, true).is_ok());
        assert!(one.acquire(AcquireAction::Acquire, kind, 11, 0).is_ok());
    }
    let (control, served) = kept(dir.path());
    let mut two = Member::new(&served, 2);
    let (header, entries) = two.status();
    assert_eq!((header.kind, entries.len(), entries[0].key), (kind as u8, 1, 11));
    assert!(conflicts(two.writes()));
    // A namespace that is added again finds them, too.
    let change = |method: &str, params: Value| control.call(method, Some(&params)).map(drop).unwrap();
    change("nvmf_subsystem_remove_ns", json!({ "nqn": NQN, "nsid": 1 }));
    change("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "mem" } }));
    assert!(conflicts(Member::new(&served, 3).writes()));
}

/// The standard's rules in other words than the target's: the holders as a set.
#[derive(Default)]
struct Reference {
    keys: BTreeMap<u8, u64>,
    kind: u8,
    holder: u8,
    generation: u32,
    notices: BTreeMap<u8, VecDeque<(u8, u32)>>,
}

impl Reference {
    fn holders(&self) -> Vec<u8> {
        match self.kind {
            0 => vec![],
            1..=4 => vec![self.holder],
            _ => self.keys.keys().copied().collect(),
        }
    }

    fn may_write(&self, host: u8) -> bool {
        self.kind == 0 || self.holders().contains(&host) || self.kind >= 3 && self.keys.contains_key(&host)
    }

    fn may_read(&self, host: u8) -> bool {
        self.kind % 2 == 1 || self.may_write(host)
    }

    fn tell(&mut self, hosts: &[u8], notice: Notice) {
        for host in hosts {
            self.notices.entry(*host).or_default().push_back((notice as u8, 1));
        }
    }

    fn others(&self, than: u8) -> Vec<u8> {
        self.keys.keys().copied().filter(|host| *host != than).collect()
    }

    /// A registrant goes; the reservation follows if it has no holder any more.
    fn unregister(&mut self, host: u8) {
        let was_held = self.holders().contains(&host);
        self.keys.remove(&host);
        if was_held && (self.kind < 5 || self.keys.is_empty()) {
            if self.kind >= 3 {
                self.tell(&self.others(host), Notice::ReservationReleased);
            }
            self.kind = 0;
        }
    }

    fn apply(&mut self, host: u8, command: &ReservationCommand) -> Result<(), Status> {
        let own = self.keys.get(&host).copied();
        let (conflict, invalid) = (Err(Status::RESERVATION_CONFLICT), Err(Status::INVALID_FIELD));
        match *command {
            ReservationCommand::Register { action: RegisterAction::Unregister, ignores_key, current, .. } => {
                match own {
                    Some(key) if ignores_key || key == current => self.unregister(host),
                    _ => return conflict,
                }
            }
            ReservationCommand::Register { new: 0, .. } => return invalid,
            ReservationCommand::Register { action: RegisterAction::Register, new, .. } => {
                if own.is_some_and(|key| key != new) {
                    return conflict;
                }
                self.keys.insert(host, new);
            }
            ReservationCommand::Register { ignores_key, current, new, .. } => {
                if !ignores_key && own != Some(current) {
                    return conflict;
                }
                self.keys.insert(host, new);
            }
            ReservationCommand::Acquire { current, .. } | ReservationCommand::Release { current, .. }
                if own != Some(current) =>
            {
                return conflict;
            }
            ReservationCommand::Acquire { action: AcquireAction::Acquire, kind, .. } => {
                if self.kind == 0 {
                    (self.kind, self.holder) = (kind as u8, host);
                } else if self.kind != kind as u8 || !self.holders().contains(&host) {
                    return conflict;
                }
                return Ok(()); // not a change of registrations
            }
            ReservationCommand::Acquire { kind, preempted, .. } => return self.preempt(host, kind as u8, preempted),
            ReservationCommand::Release { action: ReleaseAction::Release, kind, .. } => {
                if self.holders().contains(&host) {
                    if kind != self.kind {
                        return invalid;
                    }
                    if self.kind >= 3 {
                        self.tell(&self.others(host), Notice::ReservationReleased);
                    }
                    self.kind = 0;
                }
                return Ok(());
            }
            ReservationCommand::Release { action: ReleaseAction::Clear, .. } => {
                self.tell(&self.others(host), Notice::ReservationPreempted);
                self.keys.clear();
                self.kind = 0;
            }
        }
        self.generation += 1;
        Ok(())
    }

    fn preempt(&mut self, host: u8, kind: u8, preempted: u64) -> Result<(), Status> {
        let with_key: Vec<u8> = self.keys.iter().filter(|(_, key)| **key == preempted).map(|(host, _)| *host).collect();
        let all_hold = self.kind >= 5;
        if preempted == 0 && !all_hold {
            return Err(Status::INVALID_FIELD);
        }
        if preempted != 0 && with_key.is_empty() {
            return Err(Status::RESERVATION_CONFLICT);
        }
        if all_hold && preempted == 0 {
            let others = self.others(host);
            self.keys.retain(|other, _| *other == host);
            self.tell(&others, Notice::RegistrationPreempted);
            (self.kind, self.holder) = (kind, host);
        } else if !all_hold && self.kind > 0 && with_key.contains(&self.holder) {
            let gone: Vec<u8> = with_key.into_iter().filter(|other| *other != host).collect();
            self.keys.retain(|other, _| !gone.contains(other));
            if self.kind != kind {
                self.tell(&self.others(host), Notice::ReservationReleased);
            }
            self.tell(&gone, Notice::RegistrationPreempted);
            (self.kind, self.holder) = (kind, host);
        } else {
            for other in with_key {
                self.unregister(other);
                if other != host {
                    self.tell(&[other], Notice::RegistrationPreempted);
                }
            }
        }
        self.generation += 1;
        Ok(())
    }
}

fn random_command(random: &mut impl FnMut(u64) -> u64) -> ReservationCommand {
    let (current, key) = (random(4), random(4));
    let kind = ReservationType::ALL[random(6) as usize];
    match random(8) {
        0..3 => ReservationCommand::Register {
            action: [RegisterAction::Register, RegisterAction::Unregister, RegisterAction::Replace][random(3) as usize],
            ignores_key: random(3) == 0,
            persists: None,
            current,
            new: key,
        },
        3..6 => ReservationCommand::Acquire {
            action: [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort]
                [random(3) as usize],
            kind,
            current,
            preempted: key,
        },
        6 => ReservationCommand::Release { action: ReleaseAction::Release, kind: kind as u8, current },
        _ => ReservationCommand::Release {
            action: if random(4) == 0 { ReleaseAction::Clear } else { ReleaseAction::Release },
            kind: random(8) as u8,
            current,
        },
    }
}

/// Random commands of four hosts against [`Reference`]: answers, reports, rights and notifications are the same.
#[test]
fn random_commands_of_several_hosts_follow_the_standard() {
    let seeds = std::env::var("RESERVATION_SEEDS").map_or(20, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        let mut source = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut random = |below: u64| source.next_u64() % below;
        let served = memory();
        let mut members: Vec<Member> = (1..=4).map(|number| Member::new(&served, number)).collect();
        let mut reference = Reference::default();
        for step in 0..150 {
            let host = random(4) as u8 + 1;
            let mut command = random_command(&mut random);
            // Three of four commands know the host's key.
            if let Some(own) = reference.keys.get(&host).filter(|_| random(4) > 0) {
                match &mut command {
                    ReservationCommand::Register { current, .. }
                    | ReservationCommand::Acquire { current, .. }
                    | ReservationCommand::Release { current, .. } => *current = *own,
                }
            }
            let status = members[usize::from(host) - 1].reserve(command);
            let expected = reference.apply(host, &command).err().unwrap_or(Status::SUCCESS);
            assert!(
                status.is(expected),
                "seed {seed}, step {step}, host {host}: {command:?}: {status}, not {expected}"
            );
            let at = format!("seed {seed}, step {step}, after {command:?} of host {host}");
            let (header, entries) = members[random(4) as usize].status();
            assert_eq!((header.generation, header.kind), (reference.generation, reference.kind), "{at}");
            let holders = reference.holders();
            let seen: BTreeMap<u8, (u64, bool)> =
                entries.iter().map(|it| (it.host[0], (it.key, it.is_holder == 1))).collect();
            let keys = reference.keys.iter().map(|(host, key)| (*host, (*key, holders.contains(host))));
            assert_eq!(seen, keys.collect(), "{at}");
            let who = random(4) as u8 + 1;
            let member = &mut members[usize::from(who) - 1];
            assert_eq!(
                (member.reads().is_ok(), member.writes().is_ok()),
                (reference.may_read(who), reference.may_write(who)),
                "{at}: {who}"
            );
            if random(10) == 0 {
                let told: Vec<(u8, u32)> = reference.notices.remove(&who).unwrap_or_default().into();
                assert_eq!(member.notices(), told, "{at}: {who}");
            }
        }
    }
}

/// The blocks of the namespace, and who reaches them by which path.
struct World {
    reference: Reference,
    blocks: Vec<u8>,
    /// The identifiers of hosts from which the namespace is detached.
    detached: BTreeSet<u8>,
    /// The listeners whose paths are inaccessible.
    closed: [bool; 2],
}

/// A controller: the first byte of its host's identifier, its listener, and its queue.
struct Seat {
    id: u8,
    listener: usize,
    _admin: Host,
    queue: Host,
}

impl World {
    /// The status with which commands of a controller end that address the namespace at all.
    fn reach(&self, seat: &Seat) -> Result<(), Status> {
        match () {
            () if self.detached.contains(&seat.id) => Err(Status::INVALID_NAMESPACE),
            () if self.closed[seat.listener] => Err(Status::ANA_INACCESSIBLE),
            () => Ok(()),
        }
    }

    /// As [`World::reach`], for a command that reads or writes a range of blocks.
    fn judge(&self, seat: &Seat, writes: bool, lba: u64, count: u64) -> Result<(), Status> {
        self.reach(seat)?;
        match () {
            () if lba + count > self.blocks.len() as u64 => Err(Status::LBA_OUT_OF_RANGE),
            () => self.permit(seat, writes),
        }
    }

    fn permit(&self, seat: &Seat, writes: bool) -> Result<(), Status> {
        let has_right = if writes { self.reference.may_write(seat.id) } else { self.reference.may_read(seat.id) };
        if has_right { Ok(()) } else { Err(Status::RESERVATION_CONFLICT) }
    }

    fn range(&mut self, lba: u64, count: u64) -> &mut [u8] {
        &mut self.blocks[lba as usize..][..count as usize]
    }
}

/// Commands of all kinds, of four controllers on two paths: two of one host, one of another, and one of a host without
/// an identifier. Between them the namespace grows, shrinks, is detached and attached, queues move to other reactors,
/// and paths close and open. Each answer, and each block that is read, is the one that the rules together give.
#[test]
fn random_commands_of_all_kinds_meet_the_rules_of_all() {
    let seeds = std::env::var("TRUST_SEEDS").map_or(10, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        let mut source = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut random = |below: u64| source.next_u64() % below;
        let target = Target::start(Options { reactors: 2, ..Options::default() }).unwrap();
        let spec = SubsystemSpec { allow_any_host: true, ana_reporting: true, ..SubsystemSpec::new(NQN) };
        target.create_subsystem(spec).unwrap();
        let kind = DeviceKind::Memory { bytes: 64 * 512 };
        target.create_device(DeviceSpec { name: "mem".into(), block_bytes: None, uuid: None, kind }).unwrap();
        target.add_namespace(NQN, NamespaceSpec::new("mem")).unwrap();
        let listeners = [0, 1].map(|_| target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap());
        let served = Served { target, address: listeners[0] };
        let mut seats: Vec<Seat> = [(1, 0), (1, 1), (2, 1), (0, 0)]
            .into_iter()
            .map(|(id, listener)| {
                let (admin, queue) = Host::pair_of(listeners[listener], [id; 16]);
                Seat { id, listener, _admin: admin, queue }
            })
            .collect();
        let mut world = World {
            reference: Reference::default(),
            blocks: vec![0; 64],
            detached: BTreeSet::new(),
            closed: [false; 2],
        };
        for step in 0..400 {
            let seat = &mut seats[random(4) as usize];
            let (lba, count) = (random(world.blocks.len() as u64 + 1), random(4) + 1);
            let bytes = count as usize * 512;
            let byte = random(3) as u8;
            let kind = random(16);
            let at = format!(
                "seed {seed}, step {step}, kind {kind}: {} at {}, blocks {lba} and {count}",
                seat.id, seat.listener
            );
            let is = |status: Status, expected: Result<(), Status>| {
                let expected = expected.err().unwrap_or(Status::SUCCESS);
                assert!(status.is(expected), "{at}: {status}, not {expected}");
                expected.is_ok()
            };
            match kind {
                0 | 1 => {
                    let expected = world.judge(seat, true, lba, count);
                    let command = Command { sgl: Sgl::in_capsule(bytes as u32), ..Host::write_command(1, lba, bytes) };
                    if is(seat.queue.command(command, &vec![byte; bytes]).status, expected) {
                        world.range(lba, count).fill(byte);
                    }
                }
                2 | 3 => {
                    let expected = world.judge(seat, false, lba, count);
                    let read = seat.queue.read(1, lba, count as u32);
                    if is(read.as_ref().err().copied().unwrap_or(Status::SUCCESS), expected) {
                        let blocks = read.unwrap();
                        let wanted: Vec<u8> = world.range(lba, count).iter().flat_map(|byte| [*byte; 512]).collect();
                        assert!(blocks == wanted, "{at}");
                    }
                }
                4 => {
                    let mut expected = world.judge(seat, false, lba, count);
                    if expected.is_ok() && world.range(lba, count).iter().any(|block| *block != byte) {
                        expected = Err(Status::COMPARE_FAILURE);
                    }
                    let command = Command { opcode: io::COMPARE, ..Host::write_command(1, lba, bytes) };
                    is(seat.queue.send_data(command, &vec![byte; bytes], 512), expected);
                }
                5 => {
                    let expected = world.judge(seat, true, lba, count);
                    let zeroes = Command::blocks(io::WRITE_ZEROES, 1, lba, count as u32);
                    if is(seat.queue.command(zeroes, &[]).status, expected) {
                        world.range(lba, count).fill(0);
                    }
                }
                6 => {
                    let in_range = lba + count <= world.blocks.len() as u64;
                    let mut expected = world.reach(seat).and_then(|()| world.permit(seat, true));
                    if expected.is_ok() && !in_range {
                        expected = Err(Status::LBA_OUT_OF_RANGE); // the ranges are among the data
                    }
                    let range = Range { attributes: 0, blocks: count as u32, slba: lba };
                    let deallocate = Command { sgl: Sgl::in_capsule(16), ..Range::deallocate(1, 1) };
                    if is(seat.queue.command(deallocate, &range.write()).status, expected) {
                        world.range(lba, count).fill(0);
                    }
                }
                7 => {
                    let to = random(world.blocks.len() as u64);
                    let mut expected = world.reach(seat).and_then(|()| world.permit(seat, true));
                    let most = lba.max(to) + count;
                    if expected.is_ok() && most > world.blocks.len() as u64 {
                        expected = Err(Status::LBA_OUT_OF_RANGE);
                    }
                    let copy = Command { sgl: Sgl::in_capsule(32), ..CopySource::copy(1, to, 1) };
                    let data = CopySource { slba: lba, nlb: (count - 1) as u16 }.write();
                    if is(seat.queue.command(copy, &data).status, expected) {
                        let moved = world.range(lba, count).to_vec();
                        world.range(to, count).copy_from_slice(&moved);
                    }
                }
                8 => {
                    let expected = world.judge(seat, false, lba, count);
                    is(seat.queue.command(Command::blocks(io::VERIFY, 1, lba, count as u32), &[]).status, expected);
                }
                9 | 10 => {
                    let half = |opcode: u8, fuse: u8| {
                        let command = Command::blocks(opcode, 1, lba, 1);
                        Command { flags: command.flags | fuse, sgl: Sgl::in_capsule(512), ..command }
                    };
                    // The first half reads alone, and is refused by its own right.
                    let first = world.judge(seat, false, lba, 1);
                    let second = world.judge(seat, true, lba, 1);
                    let expected = match (first, second) {
                        (Err(first), _) => [first, world.reach(seat).err().unwrap_or(Status::ABORTED_FAILED_FUSED)],
                        (Ok(()), Err(second)) => [Status::ABORTED_FAILED_FUSED, second],
                        (Ok(()), Ok(())) if world.range(lba, 1)[0] != byte => {
                            [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED]
                        }
                        (Ok(()), Ok(())) => [Status::SUCCESS; 2],
                    };
                    let new = byte + 1;
                    let sent = [
                        seat.queue.send_command(half(io::COMPARE, Command::FUSE_FIRST), &[byte; 512]),
                        seat.queue.send_command(half(io::WRITE, Command::FUSE_SECOND), &[new; 512]),
                    ];
                    let mut done = [seat.queue.response(), seat.queue.response()];
                    done.sort_by_key(|it| it.cid != sent[0]);
                    for (done, expected) in done.iter().zip(expected) {
                        assert!(done.status.is(expected), "{at}: {} and {}, not {expected}", done.status, done.cid);
                    }
                    if expected[0].is_ok() {
                        world.range(lba, 1).fill(new);
                    }
                }
                11 | 12 => {
                    let mut command = random_command(&mut random);
                    if let Some(own) = world.reference.keys.get(&seat.id).filter(|_| random(4) > 0) {
                        match &mut command {
                            ReservationCommand::Register { current, .. }
                            | ReservationCommand::Acquire { current, .. }
                            | ReservationCommand::Release { current, .. } => *current = *own,
                        }
                    }
                    let mut expected = world.reach(seat);
                    if expected.is_ok() && seat.id == 0 {
                        expected = Err(Status::HOST_ID_INCONSISTENT);
                    }
                    if expected.is_ok() {
                        expected = world.reference.apply(seat.id, &command);
                    }
                    is(seat.queue.reserve(command), expected);
                }
                13 => {
                    let (host, attaches) = (random(3) as u8, random(2) == 0);
                    let name = Nqn::of_host([host; 16]).to_string();
                    if attaches != world.detached.contains(&host) {
                        continue; // it is as the call would have it
                    }
                    served.target.attach_namespace(NQN, 1, &[name].into(), attaches).unwrap().wait();
                    if attaches {
                        world.detached.remove(&host)
                    } else {
                        world.detached.insert(host)
                    };
                }
                14 => {
                    let (listener, state) = (random(2) as usize, random(3));
                    let state = [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible][state as usize];
                    served.target.set_ana_state(NQN, listeners[listener], None, state).unwrap().wait();
                    world.closed[listener] = state == AnaState::Inaccessible;
                }
                _ if random(2) == 0 => {
                    let blocks = random(64) + 1;
                    served.target.resize_device("mem", Some(blocks * 512)).unwrap();
                    world.blocks.resize(blocks as usize, 0);
                }
                _ => {
                    let id = seat.queue.cntlid;
                    served.target.move_queue(NQN, id, 1, random(2) as u32).unwrap();
                }
            }
            let seat = &mut seats[random(4) as usize];
            if world.reach(seat).is_ok() {
                let (header, entries) = seat.queue.reservation();
                let registered: BTreeMap<u8, u64> = entries.iter().map(|it| (it.host[0], it.key)).collect();
                let expected = (world.reference.generation, world.reference.kind, &world.reference.keys);
                assert_eq!((header.generation, header.kind, &registered), expected, "{at}");
            }
        }
    }
}

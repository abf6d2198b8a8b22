//! Asymmetric Namespace Access (Base specification 2.0, section 8.1): a listener is a path, and hosts of each path see
//! its states and are refused by them.

use crate::raw;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use nvme::pdu::H2cData;
use nvme::spec::ana::{AnaDescriptor, AnaHeader, AnaState, GROUPS_ONLY};
use nvme::spec::opcode::{admin, io};
use nvme::spec::reservation::{RegisterAction, ReservationCommand, report};
use nvme::spec::{
    AsyncEvent, Command, CopySource, GetLogPage, Identify, IdentifyController, IdentifyNamespace, Range, Sgl, Status,
    cns, feature, log,
};
use nvme_rpc::{Control, Settings};
use nvme_target::device::{DeviceKind, DeviceSpec, Effect, Fault, FaultOn};
use nvme_target::{Departure, ErrorKind, NamespaceSpec, Options, SubsystemSpec, Target, Visibility};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};
use raw::{HOST, Host, NQN, Served};
use serde_json::{Value, json};

use AnaState::{Inaccessible, NonOptimized, Optimized};

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:0f0e0d0c-0b0a-0908-0706-050403020100";
const GROUPS: u32 = 8;
const BYTES: u64 = 1 << 20;

/// A subsystem with ANA reporting, `GROUPS` groups and two listeners: the paths `served.address` and `other`.
struct TwoPaths {
    served: Served,
    other: SocketAddr,
}

impl TwoPaths {
    /// Memory as namespaces 1, 2, ..., each in the ANA group that is given.
    fn new(reactors: usize, groups: &[u32]) -> TwoPaths {
        let target = Target::start(Options { reactors, ..Options::default() }).unwrap();
        let spec = SubsystemSpec { ana_reporting: true, max_namespaces: GROUPS, ..SubsystemSpec::new(NQN) };
        target.create_subsystem(SubsystemSpec { allow_any_host: true, ..spec }).unwrap();
        for (index, group) in groups.iter().enumerate() {
            let name = format!("mem{index}");
            create(&target, &name, DeviceKind::Memory { bytes: BYTES });
            target.add_namespace(NQN, NamespaceSpec { ana_group: *group, ..NamespaceSpec::new(name) }).unwrap();
        }
        let listen = || target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, other) = (listen(), listen());
        TwoPaths { served: Served { target, address }, other }
    }

    fn target(&self) -> &Target {
        &self.served.target
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [self.served.address, self.other]
    }

    fn try_set(&self, path: usize, group: Option<u32>, state: AnaState) -> Departure {
        self.target().set_ana_state(NQN, self.addresses()[path], group, state).unwrap()
    }

    fn set(&self, path: usize, group: Option<u32>, state: AnaState) {
        self.try_set(path, group, state).wait();
    }
}

fn create(target: &Target, name: &str, kind: DeviceKind) {
    target.create_device(DeviceSpec { name: name.into(), block_bytes: Some(512), uuid: None, kind }).unwrap();
}

/// A host that came in by one path, with a request for events that is outstanding.
struct Member {
    admin: Host,
    queue: Host,
    event: u16,
}

impl Member {
    fn new(address: SocketAddr, name: &str) -> Member {
        let mut admin = Host::admin_of(address, NQN, name, false);
        let mut queue = Host::open(address, false, false);
        assert!(queue.connect(1, 128, admin.cntlid, NQN, name).status.is_ok());
        want_events(&mut admin, feature::EVENT_ANA);
        let event = admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
        Member { admin, queue, event }
    }

    /// Waits for the event of a change, and asks for the next one.
    fn is_told(&mut self) {
        let done = self.admin.response();
        assert_eq!((done.cid, AsyncEvent::of(done.result)), (self.event, AsyncEvent::ANA_CHANGED));
        self.event = self.admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
    }

    /// The log page; an event before the page fails.
    fn page(&mut self) -> (AnaHeader, Vec<(AnaDescriptor, Vec<u32>)>) {
        parse(&self.admin.fetch(page(0, false).command(u32::MAX)).unwrap())
    }

    /// The states in the log page, by group.
    fn states(&mut self) -> Vec<(u32, u8)> {
        self.page().1.iter().map(|(descriptor, _)| (descriptor.group, descriptor.state)).collect()
    }

    fn reads(&mut self, nsid: u32) -> Status {
        self.queue.read(nsid, 0, 8).err().unwrap_or(Status::SUCCESS)
    }
}

fn want_events(admin: &mut Host, events: u32) {
    let wanted = Command {
        cdw10: feature::ASYNC_EVENT_CONFIGURATION.into(),
        cdw11: events,
        ..Command::new(admin::SET_FEATURES, 0)
    };
    assert!(admin.command(wanted, &[]).status.is_ok());
}

fn page(lsp: u8, retain: bool) -> GetLogPage {
    GetLogPage { lid: log::ANA, lsp, retain, length: 1024, offset: 0 }
}

fn parse(page: &[u8]) -> (AnaHeader, Vec<(AnaDescriptor, Vec<u32>)>) {
    let header = AnaHeader::read(page.first_chunk().unwrap());
    let mut at = AnaHeader::BYTES;
    let descriptors = (0..header.groups).map(|_| {
        let descriptor = AnaDescriptor::read(page[at..].first_chunk().unwrap());
        at += AnaDescriptor::BYTES;
        let numbers = page[at..].chunks_exact(4).take(descriptor.namespaces as usize);
        at += 4 * descriptor.namespaces as usize;
        (descriptor, numbers.map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect())
    });
    (header, descriptors.collect())
}

fn refuses(status: Status) -> bool {
    assert!(!status.is_do_not_retry(), "{status:?}: the host must try another path");
    status.is(Status::ANA_INACCESSIBLE)
}

#[test]
fn identify_names_the_groups_where_they_are_reported_and_nothing_elsewhere() {
    let paths = TwoPaths::new(1, &[3, 0]);
    let mut host = Host::admin(paths.served.address);
    let identify = |host: &mut Host, cns: u8, nsid: u32| {
        host.fetch(Identify { cns, cntid: 0, csi: 0 }.command(nsid)).unwrap().first_chunk::<4096>().copied().unwrap()
    };
    let own = IdentifyController::read(&identify(&mut host, cns::CONTROLLER, 0));
    assert_eq!((own.cmic, own.oaes & feature::EVENT_ANA), (0b1011, feature::EVENT_ANA));
    assert_eq!((own.anacap, own.anagrpmax, own.nanagrpid), (0b111, GROUPS, GROUPS));
    assert!(own.anatt > 0);
    for (nsid, group) in [(1, 3), (2, 2)] {
        let namespace = IdentifyNamespace::read(&identify(&mut host, cns::NAMESPACE, nsid));
        assert_eq!((namespace.anagrpid, namespace.nmic & 1, namespace.nuse), (group, 1, BYTES / 512));
        let page = identify(&mut host, cns::NAMESPACE_INDEPENDENT, nsid);
        assert_eq!(page[4..8], group.to_le_bytes());
    }
    paths.set(0, Some(3), Inaccessible);
    let namespace = IdentifyNamespace::read(&identify(&mut host, cns::NAMESPACE, 1));
    assert_eq!((namespace.nsze, namespace.ncap, namespace.nuse), (BYTES / 512, BYTES / 512, 0));

    let served = Served::plain();
    let mut host = Host::admin(served.address);
    let own = IdentifyController::read(&identify(&mut host, cns::CONTROLLER, 0));
    assert_eq!((own.cmic, own.oaes & feature::EVENT_ANA, own.anatt, own.anacap), (0b11, 0, 0, 0));
    assert_eq!((own.anagrpmax, own.nanagrpid), (0, 0));
    assert_eq!(IdentifyNamespace::read(&identify(&mut host, cns::NAMESPACE, 1)).anagrpid, 0);
    assert!(host.fetch(page(0, false).command(u32::MAX)).unwrap_err().is(Status::INVALID_LOG_PAGE));
}

#[test]
fn hosts_of_a_path_are_told_of_its_states_and_others_are_not() {
    let paths = TwoPaths::new(1, &[1, 2, 1]);
    let mut hosts = paths.addresses().map(|address| Member::new(address, HOST));
    let all = |state: AnaState| vec![(1, state.code()), (2, state.code())];
    for host in &mut hosts {
        let (header, groups) = host.page();
        assert_eq!(header, AnaHeader { change_count: 0, groups: 2 });
        let numbers: Vec<&[u32]> = groups.iter().map(|(_, numbers)| numbers.as_slice()).collect();
        assert_eq!(numbers, [&[1, 3][..], &[2]]);
    }
    let [one, two] = &mut hosts;
    paths.set(0, Some(2), NonOptimized);
    one.is_told();
    // No second event before the page is read without Retain Asynchronous Event.
    paths.set(0, Some(1), Inaccessible);
    let retained = one.admin.fetch(page(0, true).command(0)).unwrap();
    assert_eq!(parse(&retained).0.change_count, 2);
    paths.set(0, Some(1), Optimized);
    let (header, groups) = one.page();
    assert_eq!(header.change_count, 3);
    let seen: Vec<_> = groups.iter().map(|(it, _)| (it.group, it.state, it.change_count)).collect();
    assert_eq!(seen, [(1, Optimized.code(), 3), (2, NonOptimized.code(), 1)]);
    assert_eq!((two.states(), two.page().0.change_count), (all(Optimized), 0), "the other path has not changed");
    paths.set(0, None, Inaccessible);
    one.is_told();
    assert_eq!((one.states(), two.states()), (all(Inaccessible), all(Optimized)));
    // A state that is set again is not a change, nor is one of a group without namespaces.
    paths.set(0, None, Inaccessible);
    paths.set(0, Some(GROUPS), NonOptimized);
    assert_eq!(one.states(), all(Inaccessible));

    // The counts begin anew with a reset, for the host that resets alone.
    paths.set(1, Some(1), NonOptimized);
    two.is_told();
    assert!(one.page().0.change_count > 3);
    let disable = nvme::spec::fabrics::PropertyAccess::set(nvme::spec::property::CC, 4, 0);
    assert!(one.admin.command(disable, &[]).status.is_ok());
    one.admin.enable();
    let (header, groups) = one.page();
    assert_eq!((header.change_count, groups[0].0.change_count, groups[0].0.state), (0, 0, Inaccessible.code()));
    assert_eq!(two.page().0.change_count, 1);
    // Without its bit in the configuration of events, the host is not told.
    want_events(&mut two.admin, feature::EVENT_NAMESPACE);
    paths.set(1, None, Optimized);
    assert_eq!(two.states(), all(Optimized));
}

#[test]
fn parts_of_the_page_are_read_as_those_of_other_pages() {
    let paths = TwoPaths::new(1, &[1, 1, 2]);
    let mut host = Host::admin(paths.served.address);
    let whole = host.fetch(page(0, false).command(0)).unwrap();
    let bytes = 16 + 32 + 8 + 32 + 4;
    let mut parts = Vec::new();
    for offset in (0..bytes).step_by(12) {
        let part = GetLogPage { length: 12.min(bytes - offset), offset, ..page(0, false) };
        parts.extend(host.fetch(part.command(0)).unwrap());
    }
    assert_eq!((&parts[..], &whole[bytes as usize..]), (&whole[..bytes as usize], &[0; 1024][bytes as usize..]));
    for offset in [bytes + 4, 2] {
        let beyond = GetLogPage { length: 4, offset, ..page(0, false) };
        assert!(host.fetch(beyond.command(0)).unwrap_err().is(Status::INVALID_FIELD), "{offset}");
    }
    let (header, groups) = parse(&host.fetch(page(GROUPS_ONLY, false).command(0)).unwrap());
    assert_eq!(header.groups, 2);
    assert!(groups.iter().all(|(descriptor, numbers)| descriptor.namespaces == 0 && numbers.is_empty()));
    // The discovery service has no such page.
    let mut discovery = Host::admin_of(paths.served.address, nvme::spec::DISCOVERY_NQN, HOST, false);
    assert!(discovery.fetch(page(0, false).command(0)).unwrap_err().is(Status::INVALID_LOG_PAGE));
}

/// One command of each kind that addresses a namespace, on namespace 1, with the data of its capsule.
fn commands() -> Vec<(Command, Vec<u8>)> {
    let range = Range { attributes: 0, blocks: 1, slba: 0 }.write().to_vec();
    let source = CopySource { slba: 8, nlb: 0 }.write().to_vec();
    let sized = |command: Command, bytes: u32| Command { sgl: Sgl::in_capsule(bytes), ..command };
    let (action, ignores_key, persists) = (RegisterAction::Register, true, None);
    let (register, key) = ReservationCommand::Register { action, ignores_key, persists, current: 0, new: 1 }.command(1);
    vec![
        (Host::read_command(1, 0, 1), vec![]),
        (sized(Command::blocks(io::WRITE, 1, 0, 1), 512), vec![7; 512]),
        (sized(Command::blocks(io::COMPARE, 1, 0, 1), 512), vec![0; 512]),
        (Command::new(io::FLUSH, 1), vec![]),
        (Command::blocks(io::WRITE_ZEROES, 1, 0, 1), vec![]),
        (Command::blocks(io::VERIFY, 1, 0, 1), vec![]),
        (sized(Range::deallocate(1, 1), 16), range),
        (sized(CopySource::copy(1, 0, 1), CopySource::BYTES as u32), source),
        (sized(register, key.len() as u32), key),
        (report(1, 4096), vec![]),
    ]
}

#[test]
fn a_path_that_is_inaccessible_refuses_what_addresses_a_namespace_and_nothing_else() {
    let paths = TwoPaths::new(2, &[1, 2]);
    let [mut one, mut two] = paths.addresses().map(|address| Member::new(address, HOST));
    paths.set(0, Some(1), Inaccessible);
    one.is_told();
    let persistence = |opcode: u8, id: u8, nsid: u32| Command { cdw10: id.into(), ..Command::new(opcode, nsid) };
    for (command, data) in commands() {
        let done = one.queue.command(command, &data);
        assert!(refuses(done.status), "{:#x}: {:?}", command.opcode, done.status);
    }
    for id in [feature::RESERVATION_MASK, feature::RESERVATION_PERSISTENCE] {
        for (opcode, nsid) in [(admin::GET_FEATURES, 1), (admin::SET_FEATURES, 1), (admin::SET_FEATURES, u32::MAX)] {
            let done = one.admin.command(persistence(opcode, id, nsid), &[]);
            assert!(refuses(done.status), "{opcode:#x} {id:#x} {nsid:#x}: {:?}", done.status);
        }
    }
    // Features that are of a namespace, where they name one; not those of the other group, and not those of all.
    for id in [feature::ERROR_RECOVERY, feature::WRITE_ATOMICITY] {
        assert!(refuses(one.admin.command(persistence(admin::GET_FEATURES, id, 1), &[]).status), "{id:#x}");
        assert!(refuses(one.admin.command(persistence(admin::SET_FEATURES, id, 1), &[]).status), "{id:#x}");
        for nsid in [0, 2] {
            assert!(one.admin.command(persistence(admin::GET_FEATURES, id, nsid), &[]).status.is_ok(), "{id:#x}");
        }
    }
    // A number without a namespace is invalid on every path.
    assert!(one.reads(5).is(Status::INVALID_NAMESPACE));
    // The controller and the group that is accessible work on, and so does the other path.
    for (opcode, id) in [(admin::KEEP_ALIVE, 0), (admin::GET_FEATURES, feature::NUMBER_OF_QUEUES)] {
        assert!(one.admin.command(persistence(opcode, id, 0), &[]).status.is_ok());
    }
    let smart = GetLogPage { lid: log::SMART, lsp: 0, retain: false, length: 512, offset: 0 };
    one.admin.fetch(smart.command(u32::MAX)).unwrap();
    one.admin.fetch(Identify { cns: cns::NAMESPACE_IDS, cntid: 0, csi: 0 }.command(1)).unwrap();
    assert!(one.reads(2).is_ok() && two.reads(1).is_ok());
    // A queue of the controller is of its path, by whichever listener the queue comes.
    let mut crossed = Host::open(paths.other, false, false);
    assert!(crossed.connect(2, 16, one.admin.cntlid, NQN, HOST).status.is_ok());
    assert!(refuses(crossed.read(1, 0, 1).unwrap_err()));
    // Hosts that come later find the state.
    let mut later = Member::new(paths.served.address, HOST);
    assert!(refuses(later.reads(1)));
    for state in [NonOptimized, Optimized] {
        paths.set(0, None, state);
        assert!(one.reads(1).is_ok() && later.reads(1).is_ok() && crossed.read(1, 0, 1).is_ok());
    }
    for (command, data) in commands() {
        // (What a read gives comes as data, without a response.)
        let outcome = match command.opcode {
            io::READ | io::RESERVATION_REPORT => two.queue.fetch(command).err().unwrap_or(Status::SUCCESS),
            _ => two.queue.command(command, &data).status,
        };
        assert!(outcome.is_ok() || outcome.is(Status::COMPARE_FAILURE), "{:#x}: {outcome:?}", command.opcode);
    }
}

/// Commands that wait in the target when their path closes: for their data, and for a limit of the device.
#[test]
fn what_waits_when_its_path_closes_never_reaches_the_device() {
    let paths = TwoPaths::new(2, &[1, 2]);
    let [mut one, mut two] = paths.addresses().map(|address| Member::new(address, HOST));
    let ready = one.queue.ready(1, 0, 4096);
    let never = pace::Rates { write_bytes_per_s: 1, ..pace::Rates::default() };
    paths.target().set_rates("mem1", never).unwrap();
    let limited = |member: &mut Member| {
        let write = Command { sgl: Sgl::in_capsule(512), ..Command::blocks(io::WRITE, 2, 0, 1) };
        member.queue.send_command(write, &[9; 512])
    };
    // The limit lets the first writes go: the last one waits.
    let cids: Vec<u16> = (0..64).map(|_| limited(&mut one)).collect();
    paths.set(0, None, Inaccessible);
    let mut refused = Vec::new();
    for _ in &cids {
        let done = one.queue.response();
        if !done.status.is_ok() {
            assert!(refuses(done.status), "{:?}", done.status);
            refused.push(done.cid);
        }
    }
    assert!(refused.contains(cids.last().unwrap()), "{refused:?}");
    let header = H2cData { cid: ready.cid, ttag: ready.ttag, offset: 0, length: 4096, last: true };
    let data = one.queue.h2c(&header, &[7; 4096]);
    one.queue.send(&data);
    assert!(refuses(one.queue.response().status));
    assert_eq!(two.queue.read(1, 0, 8).unwrap(), [0; 4096], "the data came too late");
}

/// A write that the device still has when its path closes: the call that closes it waits, and others go on.
#[test]
fn a_path_is_closed_when_its_last_op_has_left_the_device() {
    let paths = TwoPaths::new(2, &[2]);
    create(paths.target(), "base", DeviceKind::Memory { bytes: BYTES });
    create(paths.target(), "faulty", DeviceKind::Faulty { base: "base".into(), seed: 1 });
    paths.target().add_namespace(NQN, NamespaceSpec::new("faulty")).unwrap();
    let [mut one, mut two] = paths.addresses().map(|address| Member::new(address, HOST));
    let never = Fault { on: FaultOn::Writes, effect: Effect::Stuck, one_in: 1, count: Some(1) };
    paths.target().set_faults("faulty", &[never]).unwrap();
    let has = |inside: u64| {
        raw::until(|| paths.target().stats().devices.iter().map(|it| it.in_device).sum::<u64>() == inside);
    };
    one.queue.send_data_only(Host::write_command(2, 0, 512), &[9; 512]);
    has(1);
    let waiting = |departure: Departure| {
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || {
            departure.wait();
            sender.send(()).unwrap();
        });
        ended
    };
    // The op has come by the first path, and is of group 2.
    paths.set(1, None, Inaccessible);
    paths.set(1, None, Optimized);
    paths.set(0, Some(3), Inaccessible);
    let ended = waiting(paths.try_set(0, Some(2), Inaccessible));
    let again = waiting(paths.try_set(0, Some(2), Inaccessible));
    // A queue that goes leaves its op in the device: a third call waits for the same op.
    one.is_told();
    assert!(two.reads(2).is_ok() && refuses(one.reads(2)));
    drop(one);
    raw::until(|| paths.served.connections() == 2);
    let third = waiting(paths.try_set(0, Some(2), Inaccessible));
    assert!(two.reads(2).is_ok(), "another path is not held up");
    for ended in [&ended, &again, &third] {
        assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
    }
    paths.target().set_faults("faulty", &[]).unwrap();
    for ended in [ended, again, third] {
        ended.recv_timeout(Duration::from_secs(300)).unwrap();
    }
    has(0);
    // A namespace that moves to a group whose path is closed closes it, too.
    paths.target().set_faults("faulty", &[never]).unwrap();
    two.queue.send_data_only(Host::write_command(2, 0, 512), &[9; 512]);
    has(1);
    paths.set(1, Some(6), Inaccessible);
    let ended = waiting(paths.target().set_ana_group(NQN, 2, 6).unwrap());
    two.is_told();
    assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
    paths.target().set_faults("faulty", &[]).unwrap();
    ended.recv_timeout(Duration::from_secs(300)).unwrap();
}

/// The call that closes a path waits for a device that does not answer, and the call that frees the device goes on.
#[test]
fn a_call_that_waits_for_a_device_holds_up_no_other_call() {
    let options = Options { publish: false, ..Options::default() };
    let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    let control = Control::start(settings, Box::new(|_| {})).unwrap();
    let listen = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0" });
    for (method, params) in [
        ("nvmf_create_transport", json!({ "trtype": "TCP" })),
        ("bdev_malloc_create", json!({ "name": "M", "num_blocks": 2048, "block_size": 512 })),
        ("bdev_error_create", json!({ "base_name": "M" })),
        ("nvmf_create_subsystem", json!({ "nqn": NQN, "allow_any_host": true, "ana_reporting": true })),
        ("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "EE_M" } })),
        ("nvmf_subsystem_add_listener", json!({ "nqn": NQN, "listen_address": listen })),
        ("bdev_error_inject_error", json!({ "name": "EE_M", "io_type": "all", "error_type": "pending", "num": 1 })),
    ] {
        control.call(method, Some(&params)).unwrap();
    }
    let target = control.target();
    let address = target.subsystems()[0].listeners[0].address;
    let (_admin, mut queue) = Host::pair(address);
    queue.send_data_only(Host::write_command(1, 0, 512), &[9; 512]);
    raw::until(|| target.stats().devices.iter().any(|it| it.in_device > 0));
    let (sender, answers) = mpsc::channel();
    let call = |name: &'static str, params: Value| {
        let (control, sender) = (control.clone(), sender.clone());
        std::thread::spawn(move || sender.send((name, control.call(name, Some(&params)).unwrap())));
    };
    let at = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": address.port().to_string() });
    const SET: &str = "nvmf_subsystem_listener_set_ana_state";
    call(SET, json!({ "nqn": NQN, "listen_address": at, "ana_state": "inaccessible" }));
    raw::until(|| target.subsystems()[0].ana_states[&address.into()][0] == Inaccessible);
    const CLEAR: &str = "bdev_error_inject_error";
    call(CLEAR, json!({ "name": "EE_M", "io_type": "clear", "error_type": "failure" }));
    let next = || answers.recv_timeout(Duration::from_secs(300)).unwrap().0;
    let mut both = [next(), next()];
    both.sort_unstable();
    assert_eq!(both, [CLEAR, SET]);
    target.shutdown(Duration::ZERO);
}

#[test]
fn a_namespace_moves_between_groups_and_its_hosts_alone_are_told() {
    let paths = TwoPaths::new(1, &[1]);
    create(paths.target(), "hidden", DeviceKind::Memory { bytes: BYTES });
    let hidden = NamespaceSpec { visibility: Visibility::Only([HOST.into()].into()), ..NamespaceSpec::new("hidden") };
    paths.target().add_namespace(NQN, hidden).unwrap();
    let mut mine = Member::new(paths.served.address, HOST);
    let mut other = Member::new(paths.served.address, OTHER);
    let numbers =
        |member: &mut Member| member.page().1.into_iter().map(|(it, numbers)| (it.group, numbers)).collect::<Vec<_>>();
    assert_eq!((numbers(&mut mine), numbers(&mut other)), (vec![(1, vec![1]), (2, vec![2])], vec![(1, vec![1])]));
    paths.set(0, Some(2), NonOptimized);
    mine.is_told();
    assert_eq!(mine.states(), [(1, Optimized.code()), (2, NonOptimized.code())]);
    assert_eq!(other.states(), [(1, Optimized.code())], "a group that the host does not see");
    let before = mine.page().0.change_count;
    paths.target().set_ana_group(NQN, 2, 1).unwrap().wait();
    mine.is_told();
    assert_eq!((numbers(&mut mine), numbers(&mut other)), (vec![(1, vec![1, 2])], vec![(1, vec![1])]));
    assert!(mine.page().0.change_count > before);
    paths.target().set_ana_group(NQN, 2, 1).unwrap().wait();
    assert_eq!(numbers(&mut mine), [(1, vec![1, 2])], "no event for what is so already");
    // Namespaces that come and go change the page, and the event of namespaces tells it.
    let before = mine.page().0.change_count;
    paths.target().remove_namespace(NQN, 2).unwrap().wait();
    assert!(mine.page().0.change_count > before);
    assert_eq!(numbers(&mut mine), [(1, vec![1])]);
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let paths = TwoPaths::new(1, &[1]);
    let target = paths.target();
    let at = paths.served.address;
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let plain = Served::plain();
    let set = |target: &Target, nqn, address, group| target.set_ana_state(nqn, address, group, Inaccessible).err();
    for (error, kind, part) in [
        (set(target, "nqn.2016-06.io.spdk:none", at, None), ErrorKind::NotFound, "no subsystem is called"),
        (set(target, NQN, nowhere, None), ErrorKind::NotFound, "does not listen on 127.0.0.1:1"),
        (set(target, NQN, at, Some(0)), ErrorKind::Invalid, "ANA group 0 of"),
        (set(target, NQN, at, Some(GROUPS + 1)), ErrorKind::Invalid, "give 1 to 8 (max_namespaces)"),
        (set(&plain.target, NQN, plain.address, None), ErrorKind::Invalid, "create it with ana_reporting=true"),
        (target.set_ana_group(NQN, 7, 1).err(), ErrorKind::NotFound, "has no namespace 7"),
        (target.set_ana_group(NQN, 1, 9).err(), ErrorKind::Invalid, "ANA group 9 of"),
        (plain.target.set_ana_group(NQN, 1, 1).err(), ErrorKind::Invalid, "create it with ana_reporting=true"),
    ] {
        let error = error.expect(part);
        assert!(error.kind == kind && error.message.contains(part), "{}", error.message);
        assert_eq!(error.message.lines().count(), 1);
    }
    create(target, "more", DeviceKind::Null { bytes: BYTES });
    let beyond = NamespaceSpec { ana_group: 9, ..NamespaceSpec::new("more") };
    assert_eq!(target.add_namespace(NQN, beyond).unwrap_err().kind, ErrorKind::Invalid);
    // A listener that goes and comes back begins anew, in the state that it is given.
    paths.set(0, None, Inaccessible);
    target.remove_listener(NQN, at).unwrap().wait();
    let states = || target.subsystems()[0].ana_states.clone();
    assert!(!states().contains_key(&at.into()));
    target.listen(NQN, at.into(), None, NonOptimized).unwrap();
    assert_eq!(states()[&at.into()], [NonOptimized; GROUPS as usize]);
}

/// States change at random while hosts of both paths read and write: each command ends as the state of its path and
/// group says, and the log pages tell the same.
#[test]
fn random_states_are_those_of_a_model() {
    for seed in 0..4 {
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut below = |most: u64| (dice.next_u64() % most) as usize;
        let groups = [1, 2, 2, 4];
        let paths = TwoPaths::new(2, &groups);
        let mut members: Vec<(usize, Member)> =
            (0..6).map(|index| (index % 2, Member::new(paths.addresses()[index % 2], HOST))).collect();
        let mut model = [[Optimized; 1 + GROUPS as usize]; 2];
        let mut group_of = groups;
        for step in 0..200 {
            let path = below(2);
            match below(8) {
                0 => {
                    let (nsid, group) = (below(4), 1 + below(GROUPS.into()) as u32);
                    group_of[nsid] = group;
                    paths.target().set_ana_group(NQN, nsid as u32 + 1, group).unwrap().wait();
                }
                1 => {
                    let state = [Optimized, NonOptimized, Inaccessible][below(3)];
                    model[path] = [state; 1 + GROUPS as usize];
                    paths.set(path, None, state);
                }
                _ => {
                    let (group, state) = (1 + below(GROUPS.into()), [Optimized, NonOptimized, Inaccessible][below(3)]);
                    model[path][group] = state;
                    paths.set(path, Some(group as u32), state);
                }
            }
            let index = below(6);
            let (path, member) = &mut members[index];
            let nsid = below(4);
            let state = model[*path][group_of[nsid] as usize];
            let status = match below(2) {
                0 => member.reads(nsid as u32 + 1),
                _ => member.queue.write(nsid as u32 + 1, 0, &[7; 512]),
            };
            let expected = state.refusal().unwrap_or(Status::SUCCESS);
            assert_eq!(status, expected, "seed {seed}, step {step}: {state:?}");
            // (Events come in between: a queue of its own reads the pages.)
            if step % 10 == 0 {
                let mut watcher = Host::admin(paths.addresses()[*path]);
                let (_, told) = parse(&watcher.fetch(page(0, false).command(0)).unwrap());
                for (descriptor, numbers) in told {
                    assert_eq!(descriptor.state, model[*path][descriptor.group as usize].code());
                    for nsid in numbers {
                        assert_eq!(group_of[nsid as usize - 1], descriptor.group);
                    }
                }
            }
        }
    }
}

/// A host writes over one path as fast as it can; the path closes, and the block is written over the other one: the
/// last word stays, whatever the first path had under way.
#[test]
fn no_write_of_a_closed_path_overtakes_one_of_the_other() {
    let paths = TwoPaths::new(2, &[2]);
    create(paths.target(), "base", DeviceKind::Memory { bytes: BYTES });
    create(paths.target(), "late", DeviceKind::Faulty { base: "base".into(), seed: 1 });
    paths.target().add_namespace(NQN, NamespaceSpec { nsid: 2, ..NamespaceSpec::new("late") }).unwrap();
    let slow = Fault { on: FaultOn::Writes, effect: Effect::Slow { us: 2000 }, one_in: 3, count: None };
    paths.target().set_faults("late", &[slow]).unwrap();
    let mut members = paths.addresses().map(|address| Member::new(address, HOST));
    let write = |byte: u8| {
        let command = Command { sgl: Sgl::in_capsule(512), ..Command::blocks(io::WRITE, 2, 0, 1) };
        (command, [byte; 512])
    };
    paths.set(1, None, Inaccessible);
    for round in 0..40 {
        let (busy, idle) = (round % 2, 1 - round % 2);
        let sent: Vec<u16> = (0..32)
            .map(|_| {
                let (command, data) = write(1);
                members[busy].queue.send_command(command, &data)
            })
            .collect();
        paths.set(busy, None, Inaccessible);
        paths.set(idle, None, Optimized);
        let (command, data) = write(2);
        assert!(members[idle].queue.command(command, &data).status.is_ok());
        for _ in sent {
            let status = members[busy].queue.response().status;
            assert!(status.is_ok() || refuses(status), "{status:?}");
        }
        assert_eq!(members[idle].queue.read(2, 0, 1).unwrap(), [2; 512], "round {round}");
    }
}

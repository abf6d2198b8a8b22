//! Namespace Attachment and Namespace Management (Base specification 2.0, sections 5.20, 5.21 and 8.12): hosts that may
//! manage namespaces attach and detach them, for all controllers of a host.

use crate::raw;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc;

use nvme::pdu::H2cData;
use nvme::spec::ana::{AnaDescriptor, AnaHeader};
use nvme::spec::log::{self, Effects};
use nvme::spec::opcode::admin;
use nvme::spec::reservation::{RegisterAction, ReservationCommand};
use nvme::spec::{
    AsyncEvent, Command, GetLogPage, Identify, IdentifyController, IdentifyNamespace, Sgl, Status, cns,
    controller_list, feature, oacs,
};
use nvme_rpc::{Control, Settings};
use nvme_target::Options;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};
use raw::{HOST, Host, NQN, until};
use serde_json::{Value, json};

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:0f0e0d0c-0b0a-0908-0706-050403020100";
const THIRD: &str = "nqn.2014-08.org.nvmexpress:uuid:33333333-0b0a-0908-0706-050403020100";
const ATTACH: u32 = 0;
const DETACH: u32 = 1;
/// The namespaces of a target: the last one is hidden from hosts that are not named.
const NAMESPACES: u32 = 3;
const MASKED: u32 = 3;

/// A target with namespaces 1 to 3 on memory, the third with `no_auto_visible`, and `HOST` as the manager.
struct Served {
    control: Control,
    address: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.control.target().shutdown(std::time::Duration::ZERO);
    }
}

impl Served {
    fn new(reactors: usize) -> Served {
        let options = Options { reactors, publish: false, ..Options::default() };
        let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
        let control = Control::start(settings, Box::new(|_| {})).unwrap();
        let call = |method: &str, params: Value| drop(control.call(method, Some(&params)).unwrap());
        call("nvmf_create_transport", json!({ "trtype": "TCP" }));
        let subsystem =
            json!({ "nqn": NQN, "allow_any_host": true, "ana_reporting": true, "max_namespaces": NAMESPACES + 1 });
        call("nvmf_create_subsystem", subsystem);
        for nsid in 1..=NAMESPACES {
            let name = format!("M{nsid}");
            call("bdev_malloc_create", json!({ "name": name, "num_blocks": 2048, "block_size": 512 }));
            call("bdev_error_create", json!({ "base_name": name }));
            let namespace = json!({ "bdev_name": format!("EE_{name}"), "no_auto_visible": nsid == MASKED });
            call("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": namespace }));
        }
        call("nvmf_subsystem_add_ns_manager", json!({ "nqn": NQN, "host": HOST }));
        let listen = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0" });
        call("nvmf_subsystem_add_listener", json!({ "nqn": NQN, "listen_address": listen }));
        let address = control.target().subsystems()[0].listeners[0].address;
        Served { control, address }
    }

    fn call(&self, method: &str, mut params: Value) {
        params["nqn"] = json!(NQN);
        self.control.call(method, Some(&params)).unwrap();
    }

    fn host(&self, name: &str) -> Member {
        let mut admin = Host::admin_of(self.address, NQN, name, false);
        let mut queue = Host::open(self.address, false, false);
        assert!(queue.connect(1, 128, admin.cntlid, NQN, name).status.is_ok());
        let wanted = Command {
            cdw10: feature::ASYNC_EVENT_CONFIGURATION.into(),
            cdw11: feature::EVENT_NAMESPACE,
            ..Command::new(admin::SET_FEATURES, 0)
        };
        assert!(admin.command(wanted, &[]).status.is_ok());
        Member { admin, queue }
    }

    fn controllers(&self) -> Vec<u16> {
        self.control.target().subsystems()[0].controllers.iter().map(|it| it.id).collect()
    }
}

/// A host with its admin queue and an I/O queue.
struct Member {
    admin: Host,
    queue: Host,
}

fn attachment(select: u32, nsid: u32) -> Command {
    let sgl = Sgl::in_capsule(4096);
    Command { cdw10: select, sgl, ..Command::new(admin::NAMESPACE_ATTACHMENT, nsid) }
}

fn numbers(page: &[u8]) -> Vec<u32> {
    let all = page.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
    all.take_while(|nsid| *nsid != 0).collect()
}

fn identifiers(page: &[u8]) -> Vec<u16> {
    let mut all = page.chunks_exact(2).map(|bytes| u16::from_le_bytes(bytes.try_into().unwrap()));
    let count = all.next().unwrap();
    all.take(count.into()).collect()
}

impl Member {
    fn id(&self) -> u16 {
        self.admin.cntlid
    }

    fn attachment(&mut self, select: u32, nsid: u32, controllers: &[u16]) -> Status {
        let list = controller_list(controllers.iter().copied(), 0);
        self.admin.command(attachment(select, nsid), &list).status
    }

    fn identify_from(&mut self, cns: u8, nsid: u32, cntid: u16) -> Result<Vec<u8>, Status> {
        self.admin.fetch(Identify { cns, cntid, csi: 0 }.command(nsid))
    }

    fn identify(&mut self, cns: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        self.identify_from(cns, nsid, 0)
    }

    fn active(&mut self) -> Vec<u32> {
        numbers(&self.identify(cns::ACTIVE_NAMESPACES, 0).unwrap())
    }

    fn attached(&mut self, nsid: u32) -> Vec<u16> {
        identifiers(&self.identify(cns::ATTACHED_CONTROLLERS, nsid).unwrap())
    }

    /// The log of changed namespaces.
    fn changed(&mut self) -> Vec<u32> {
        let page = GetLogPage { lid: log::CHANGED_NAMESPACES, lsp: 0, retain: false, length: 4096, offset: 0 };
        numbers(&self.admin.fetch(page.command(0)).unwrap())
    }

    /// The groups of the ANA log page: each with its state and namespaces.
    fn groups(&mut self) -> BTreeMap<u32, (u8, Vec<u32>)> {
        let page = GetLogPage { lid: log::ANA, lsp: 0, retain: false, length: 4096, offset: 0 };
        let page = self.admin.fetch(page.command(0)).unwrap();
        let mut rest = &page[AnaHeader::BYTES..];
        let one = |_| {
            let descriptor = AnaDescriptor::read(rest.first_chunk().unwrap());
            let (members, after) = rest[AnaDescriptor::BYTES..].split_at(4 * descriptor.namespaces as usize);
            rest = after;
            (descriptor.group, (descriptor.state, numbers(members)))
        };
        (0..AnaHeader::read(page.first_chunk().unwrap()).groups).map(one).collect()
    }

    fn reads(&mut self, nsid: u32) -> Status {
        self.queue.read(nsid, 0, 8).err().unwrap_or(Status::SUCCESS)
    }

    fn manage(&mut self, select: u32, nsid: u32, csi: u32, new: IdentifyNamespace) -> Status {
        let command = Command {
            cdw10: select,
            cdw11: csi << 24,
            sgl: Sgl::in_capsule(4096),
            ..Command::new(admin::NAMESPACE_MANAGEMENT, nsid)
        };
        self.admin.command(command, &new.write()).status
    }
}

#[test]
fn a_namespace_is_detached_and_attached_and_its_hosts_are_told() {
    let served = Served::new(2);
    let (mut mine, mut other, mut second) = (served.host(HOST), served.host(OTHER), served.host(OTHER));
    let event = other.admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);
    let data = vec![7; 4096];
    assert!(other.queue.write(1, 0, &data).is_ok());
    assert_eq!(mine.attachment(DETACH, 1, &[other.id()]), Status::SUCCESS);
    let done = other.admin.response();
    assert_eq!((done.cid, AsyncEvent::of(done.result)), (event, AsyncEvent::NAMESPACE_CHANGED));
    assert_eq!((other.changed(), second.changed(), mine.changed()), (vec![1], vec![1], vec![]));
    // Both controllers of the host have lost it, and a third one begins without it.
    let mut third = served.host(OTHER);
    for host in [&mut other, &mut second, &mut third] {
        assert_eq!(host.active(), [2]);
        assert!(host.reads(1).is(Status::INVALID_NAMESPACE) && host.reads(2).is_ok());
        assert_eq!(host.identify(cns::NAMESPACE, 1).unwrap(), [0; 4096], "an inactive namespace");
        assert!(host.identify(cns::NAMESPACE_IDS, 1).unwrap_err().is(Status::INVALID_NAMESPACE));
    }
    assert!(mine.reads(1).is_ok() && mine.active() == [1, 2]);
    assert_eq!(mine.attached(1), [mine.id()]);
    assert_eq!(mine.attachment(ATTACH, 1, &[other.id(), third.id()]), Status::SUCCESS);
    assert_eq!(third.changed(), [1]);
    assert_eq!(other.queue.read(1, 0, 8).unwrap(), data, "nothing was lost");
    let mut all = vec![mine.id(), other.id(), second.id(), third.id()];
    all.sort();
    assert_eq!(mine.attached(1), all);
    assert_eq!(mine.attached(2), all);

    // A host may detach its own namespaces, and the calls do what the command does.
    let own = mine.id();
    assert_eq!(mine.attachment(DETACH, 2, &[own]), Status::SUCCESS);
    assert_eq!((mine.active(), mine.changed()), (vec![1], vec![2]));
    served.call("nvmf_ns_attach_host", json!({ "nsid": 2, "host": HOST }));
    assert_eq!((mine.active(), mine.changed()), (vec![1, 2], vec![2]));
    served.call("nvmf_ns_detach_host", json!({ "nsid": 2, "host": HOST }));
    assert_eq!(mine.active(), [1]);
    let shown = served.control.call("nvmf_get_subsystems", Some(&json!({ "nqn": NQN }))).unwrap();
    assert_eq!(shown[0]["ns_managers"], json!([{ "nqn": HOST }]));
    assert_eq!(shown[0]["namespaces"][1]["detached_hosts"], json!([{ "nqn": HOST }]));
    assert_eq!(shown[0]["namespaces"][0]["detached_hosts"], Value::Null);
    // The log page of ANA groups leaves a detached namespace out.
    let page = GetLogPage { lid: log::ANA, lsp: 0, retain: false, length: 1024, offset: 0 };
    let page = mine.admin.fetch(page.command(u32::MAX)).unwrap();
    assert_eq!(AnaHeader::read(page.first_chunk().unwrap()).groups, 1);
}

#[test]
fn each_refusal_has_its_status_and_changes_nothing() {
    let served = Served::new(1);
    let (mut mine, mut other) = (served.host(HOST), served.host(OTHER));
    let (own, others) = (mine.id(), other.id());
    let absent = (1..=u16::MAX).find(|id| *id != own && *id != others).unwrap();
    assert_eq!(mine.attachment(DETACH, 1, &[others]), Status::SUCCESS);
    let list = |controllers: &[u16]| controller_list(controllers.iter().copied(), 0);
    let mut too_many = list(&[own]);
    too_many[..2].copy_from_slice(&2048u16.to_le_bytes());
    for (what, select, nsid, data, status) in [
        ("attached already", ATTACH, 2, list(&[others]), Status::NAMESPACE_ALREADY_ATTACHED),
        ("one of two attached already", ATTACH, 1, list(&[others, own]), Status::NAMESPACE_ALREADY_ATTACHED),
        ("not attached", DETACH, 1, list(&[others]), Status::NAMESPACE_NOT_ATTACHED),
        ("one of two not attached", DETACH, 1, list(&[own, others]), Status::NAMESPACE_NOT_ATTACHED),
        ("no controller", ATTACH, 1, list(&[]), Status::CONTROLLER_LIST_INVALID),
        ("too many controllers", ATTACH, 1, too_many, Status::CONTROLLER_LIST_INVALID),
        ("a controller that is not there", DETACH, 2, list(&[others, absent]), Status::CONTROLLER_LIST_INVALID),
        ("a reserved selection", 2, 1, list(&[others]), Status::INVALID_FIELD),
        ("a number without a namespace", ATTACH, 4, list(&[others]), Status::INVALID_FIELD),
        ("a namespace that is hidden", DETACH, MASKED, list(&[own]), Status::INVALID_FIELD),
        ("number 0", ATTACH, 0, list(&[others]), Status::INVALID_NAMESPACE),
        ("a number beyond the last", ATTACH, 5, list(&[others]), Status::INVALID_NAMESPACE),
        ("all namespaces", DETACH, u32::MAX, list(&[others]), Status::INVALID_NAMESPACE),
    ] {
        let refused = mine.admin.command(attachment(select, nsid), &data).status;
        assert!(refused.is(status) && refused.is_do_not_retry(), "{what}: {refused}");
        assert_eq!((mine.active(), other.active()), (vec![1, 2], vec![2]), "{what}");
    }
    let short = Command { sgl: Sgl::in_capsule(512), ..attachment(ATTACH, 1) };
    assert!(mine.admin.command(short, &[1; 512]).status.is(Status::DATA_SGL_LENGTH_INVALID));
    let none = Command { sgl: Sgl::default(), ..attachment(ATTACH, 1) };
    assert!(mine.admin.command(none, &[]).status.is(Status::DATA_SGL_LENGTH_INVALID));
    // The host sees the masked namespace by now, the other one does not: its controller cannot have it.
    served.call("nvmf_ns_add_host", json!({ "nsid": MASKED, "host": HOST }));
    assert!(mine.attachment(DETACH, MASKED, &[own, others]).is(Status::CONTROLLER_LIST_INVALID));
    assert_eq!(mine.attached(MASKED), [own]);
    assert_eq!(mine.attachment(DETACH, MASKED, &[own]), Status::SUCCESS);
    // It stays detached while it is hidden and shown.
    served.call("nvmf_ns_remove_host", json!({ "nsid": MASKED, "host": HOST }));
    served.call("nvmf_ns_add_host", json!({ "nsid": MASKED, "host": HOST }));
    assert_eq!(mine.active(), [1, 2]);
    // The list comes by R2T as well.
    let command = Command { sgl: Sgl::transport(4096), ..attachment(ATTACH, MASKED) };
    assert_eq!(mine.admin.send_data(command, &list(&[own]), 1000), Status::SUCCESS);
    assert_eq!(mine.active(), [1, 2, 3]);
}

#[test]
fn hosts_without_the_right_neither_see_nor_have_the_commands() {
    let served = Served::new(1);
    let (mut mine, mut other) = (served.host(HOST), served.host(OTHER));
    let capability = |host: &mut Member| {
        let page = host.identify(cns::CONTROLLER, 0).unwrap();
        let effects = GetLogPage { lid: log::EFFECTS, lsp: 0, retain: false, length: 4096, offset: 0 };
        let effects = host.admin.fetch(effects.command(0)).unwrap();
        let effects = Effects::read(effects.first_chunk().unwrap());
        let controller = IdentifyController::read(page.first_chunk().unwrap());
        assert_eq!(controller.unvmcap, 0);
        let opcodes = [admin::NAMESPACE_MANAGEMENT, admin::NAMESPACE_ATTACHMENT];
        (controller.oacs, opcodes.map(|opcode| effects.admin[usize::from(opcode)]))
    };
    let effect = Effects::SUPPORTED | Effects::CHANGES_INVENTORY;
    let lists = [
        cns::ALLOCATED_NAMESPACES,
        cns::ALLOCATED_NAMESPACE,
        cns::ATTACHED_CONTROLLERS,
        cns::CONTROLLERS,
        cns::ALLOCATED_NAMESPACES_CSI,
    ];
    let refuses = |host: &mut Member| {
        assert_eq!(capability(host), (0, [0, 0]));
        let id = host.id();
        assert!(host.attachment(DETACH, 1, &[id]).is(Status::INVALID_OPCODE));
        assert!(host.manage(0, 0, 0, IdentifyNamespace::default()).is(Status::INVALID_OPCODE));
        for list in lists {
            assert!(host.identify(list, 1).unwrap_err().is(Status::INVALID_FIELD), "{list:x}");
        }
        assert!(host.identify(cns::NAMESPACE, u32::MAX).unwrap_err().is(Status::INVALID_NAMESPACE));
        assert_eq!(host.active(), [1, 2]);
    };
    assert_eq!(capability(&mut mine), (oacs::NAMESPACE_MANAGEMENT, [effect; 2]));
    refuses(&mut other);
    served.call("nvmf_subsystem_add_ns_manager", json!({ "host": OTHER }));
    assert_eq!(capability(&mut other), (oacs::NAMESPACE_MANAGEMENT, [effect; 2]));
    let refusal = |method: &str| {
        let outcome = served.control.call(method, Some(&json!({ "nqn": NQN, "host": OTHER })));
        outcome.unwrap_err().code
    };
    assert_eq!(refusal("nvmf_subsystem_add_ns_manager"), -17);
    served.call("nvmf_subsystem_remove_ns_manager", json!({ "host": OTHER }));
    assert_eq!(refusal("nvmf_subsystem_remove_ns_manager"), -19);
    refuses(&mut other);
    // A command that came to an I/O queue is another one.
    let command = Command { sgl: Sgl::default(), ..attachment(ATTACH, 1) };
    assert!(!mine.queue.command(command, &[]).status.is_ok());
}

#[test]
fn the_lists_name_what_is_allocated_and_attached() {
    let served = Served::new(1);
    let (mut mine, other) = (served.host(HOST), served.host(OTHER));
    let mut ids = vec![mine.id(), other.id()];
    ids.sort();
    assert_eq!(mine.attachment(DETACH, 1, &ids), Status::SUCCESS);
    let allocated = |host: &mut Member, cns: u8, from: u32| numbers(&host.identify(cns, from).unwrap());
    for list in [cns::ALLOCATED_NAMESPACES, cns::ALLOCATED_NAMESPACES_CSI] {
        assert_eq!(allocated(&mut mine, list, 0), [1, 2], "the masked one is hidden");
        assert_eq!(allocated(&mut mine, list, 1), [2]);
        assert!(mine.identify(list, u32::MAX).unwrap_err().is(Status::INVALID_NAMESPACE));
    }
    let of_another_set = Identify { cns: cns::ALLOCATED_NAMESPACES_CSI, cntid: 0, csi: 1 };
    assert!(mine.admin.fetch(of_another_set.command(0)).unwrap_err().is(Status::INVALID_FIELD));
    assert_eq!(mine.active(), [2]);
    let page = mine.identify(cns::ALLOCATED_NAMESPACE, 1).unwrap();
    assert_eq!(IdentifyNamespace::read(page.first_chunk().unwrap()).nsze, 2048, "it is inactive, and there");
    for nsid in [MASKED, 4] {
        assert_eq!(mine.identify(cns::ALLOCATED_NAMESPACE, nsid).unwrap(), [0; 4096]);
        assert!(mine.identify(cns::ATTACHED_CONTROLLERS, nsid).unwrap_err().is(Status::INVALID_FIELD));
    }
    for nsid in [0, 5, u32::MAX] {
        assert!(mine.identify(cns::ALLOCATED_NAMESPACE, nsid).unwrap_err().is(Status::INVALID_NAMESPACE));
        assert!(mine.identify(cns::ATTACHED_CONTROLLERS, nsid).unwrap_err().is(Status::INVALID_NAMESPACE));
    }
    assert_eq!(mine.attached(1), [0; 0]);
    for (cns, nsid) in [(cns::CONTROLLERS, 0), (cns::ATTACHED_CONTROLLERS, 2)] {
        assert_eq!(identifiers(&mine.identify_from(cns, nsid, 0).unwrap()), ids);
        assert_eq!(identifiers(&mine.identify_from(cns, nsid, ids[1]).unwrap()), ids[1..]);
        assert_eq!(identifiers(&mine.identify_from(cns, nsid, u16::MAX).unwrap()), [0; 0]);
    }
    let common = mine.identify(cns::NAMESPACE, u32::MAX).unwrap();
    let common = IdentifyNamespace::read(common.first_chunk().unwrap());
    assert_eq!((common.nsze, common.nlbaf, common.lbaf[0].lbads), (0, 0, 12));
}

/// All capacity is the administrator's: a host creates nothing and deletes nothing, and learns why.
#[test]
fn namespace_management_says_why_it_creates_and_deletes_nothing() {
    let served = Served::new(1);
    let mut mine = served.host(HOST);
    let new = IdentifyNamespace { nsze: 1024, ncap: 1024, nmic: 1, ..IdentifyNamespace::default() };
    for (what, select, nsid, csi, new, status) in [
        ("no capacity", 0, 0, 0, new, Status::INSUFFICIENT_CAPACITY),
        ("another command set", 0, 0, 2, new, Status::COMMAND_SET_NOT_SUPPORTED),
        ("no size", 0, 0, 0, IdentifyNamespace { nsze: 0, ncap: 0, ..new }, Status::INVALID_FIELD),
        ("more than its size", 0, 0, 0, IdentifyNamespace { ncap: 2000, ..new }, Status::INVALID_FIELD),
        ("thin", 0, 0, 0, IdentifyNamespace { ncap: 8, ..new }, Status::THIN_PROVISIONING_NOT_SUPPORTED),
        ("another format", 0, 0, 0, IdentifyNamespace { flbas: 1, ..new }, Status::INVALID_FORMAT),
        ("a format of high bits", 0, 0, 0, IdentifyNamespace { flbas: 0x20, ..new }, Status::INVALID_FORMAT),
        ("protection", 0, 0, 0, IdentifyNamespace { dps: 1, ..new }, Status::INVALID_FORMAT),
        ("an NVM set", 0, 0, 0, IdentifyNamespace { nvmsetid: 1, ..new }, Status::INVALID_FIELD),
        ("an endurance group", 0, 0, 0, IdentifyNamespace { endgid: 1, ..new }, Status::INVALID_FIELD),
        ("deletion of the administrator's", 1, 1, 0, new, Status::OPERATION_DENIED),
        ("deletion of a number without a namespace", 1, 4, 0, new, Status::INVALID_FIELD),
        ("deletion of a hidden namespace", 1, MASKED, 0, new, Status::INVALID_FIELD),
        ("deletion of all", 1, u32::MAX, 0, new, Status::INVALID_NAMESPACE),
        ("deletion of number 0", 1, 0, 0, new, Status::INVALID_NAMESPACE),
        ("a reserved selection", 2, 1, 0, new, Status::INVALID_FIELD),
    ] {
        let refused = mine.manage(select, nsid, csi, new);
        assert!(refused.is(status) && refused.is_do_not_retry(), "{what}: {refused}");
    }
    let short = Command { sgl: Sgl::default(), ..Command::new(admin::NAMESPACE_MANAGEMENT, 0) };
    assert!(mine.admin.command(short, &[]).status.is(Status::DATA_SGL_LENGTH_INVALID));
    assert_eq!(mine.active(), [1, 2]);
}

/// The command answers when the device has ended the op of a host that has lost the namespace; others are not held up.
#[test]
fn a_detachment_answers_when_the_last_op_has_left_the_device() {
    let served = Served::new(2);
    let (mut mine, mut other, mut third) = (served.host(HOST), served.host(OTHER), served.host(THIRD));
    let ids = [mine.id(), other.id(), third.id()];
    let fault = |kind: &str, num: u32| json!({ "name": "EE_M1", "io_type": kind, "error_type": if num > 0 { "pending" } else { "failure" }, "num": num });
    let inject = |params: Value| drop(served.control.call("bdev_error_inject_error", Some(&params)).unwrap());
    inject(fault("write", 1));
    other.queue.send_data_only(Host::write_command(1, 0, 512), &[9; 512]);
    let target = served.control.target();
    until(|| target.stats().devices.iter().any(|it| it.in_device > 0));
    // Another host's detachment waits for nothing.
    assert_eq!(mine.attachment(DETACH, 1, &ids[2..]), Status::SUCCESS);
    let list = controller_list([ids[1]], 0);
    let cid = mine.admin.send_command(attachment(DETACH, 1), &list);
    until(|| target.subsystems()[0].namespaces[0].detached.includes(OTHER));
    assert!(other.reads(1).is(Status::INVALID_NAMESPACE) && mine.reads(1).is_ok());
    let (sender, answered) = mpsc::channel();
    let waits = std::thread::spawn(move || {
        sender.send(mine.admin.response()).unwrap();
        mine
    });
    // Another command of the same kind, from a call, goes on meanwhile.
    served.call("nvmf_ns_attach_host", json!({ "nsid": 1, "host": THIRD }));
    assert!(third.reads(1).is_ok());
    assert_eq!(answered.try_recv(), Err(mpsc::TryRecvError::Empty), "the device has the write");
    inject(json!({ "name": "EE_M1", "io_type": "clear", "error_type": "failure" }));
    let done = answered.recv().unwrap();
    assert_eq!((done.cid, done.status), (cid, Status::SUCCESS));
    drop(waits.join().unwrap());
}

/// A write waits for its data when its namespace is detached: the data must not reach the device.
#[test]
fn a_write_under_way_does_not_reach_a_namespace_that_has_been_detached() {
    let served = Served::new(1);
    let (mut mine, mut other) = (served.host(HOST), served.host(OTHER));
    let ready = other.queue.ready(1, 0, 8192);
    assert_eq!(mine.attachment(DETACH, 1, &[other.id()]), Status::SUCCESS);
    let header = H2cData { cid: ready.cid, ttag: ready.ttag, offset: 0, length: 8192, last: true };
    let data = other.queue.h2c(&header, &[7; 8192]);
    other.queue.send(&data);
    assert!(other.queue.response().status.is(Status::INVALID_NAMESPACE));
    assert_eq!(mine.queue.read(1, 0, 16).unwrap(), [0; 8192]);
}

#[test]
fn reservations_stay_with_a_host_that_is_detached() {
    let served = Served::new(1);
    let (mut mine, mut other) = (served.host(HOST), served.host(OTHER));
    let action = RegisterAction::Register;
    let register = || ReservationCommand::Register { action, ignores_key: false, persists: None, current: 0, new: 5 };
    assert!(other.queue.reserve(register()).is_ok());
    assert_eq!(mine.attachment(DETACH, 1, &[other.id()]), Status::SUCCESS);
    assert!(other.queue.reserve(register()).is(Status::INVALID_NAMESPACE));
    let (header, registered) = mine.queue.reservation();
    assert_eq!((header.registered, registered[0].key), (registered.len() as u16, 5));
}

/// The calls that make the present configuration.
fn saved_by(control: &Control) -> String {
    let of = |name: &str| {
        let config = control.call("framework_get_config", Some(&json!({ "name": name }))).unwrap();
        json!({ "subsystem": name, "config": config })
    };
    json!({ "subsystems": [of("bdev"), of("nvmf")] }).to_string()
}

/// The configuration that is saved brings back who has what.
#[test]
fn a_saved_configuration_has_rights_and_attachments() {
    let served = Served::new(1);
    let (mut mine, other) = (served.host(HOST), served.host(OTHER));
    assert_eq!(mine.attachment(DETACH, 1, &[other.id()]), Status::SUCCESS);
    assert_eq!(mine.attachment(DETACH, 2, &[other.id()]), Status::SUCCESS);
    assert_eq!(mine.attachment(ATTACH, 2, &[other.id()]), Status::SUCCESS);
    let saved = saved_by(&served.control);
    drop((mine, other, served));
    let settings = Settings {
        options: Options { publish: false, ..Options::default() },
        pacing_is_fixed: false,
        allow_in_use: false,
        wait_for_init: false,
    };
    let control = Control::start(settings, Box::new(|_| {})).unwrap();
    control.load(&saved).unwrap();
    let address = control.target().subsystems()[0].listeners[0].address;
    let again = Served { control, address };
    let (mut mine, mut other) = (again.host(HOST), again.host(OTHER));
    assert_eq!((mine.active(), other.active()), (vec![1, 2], vec![2]));
    assert_eq!(mine.attachment(ATTACH, 1, &[other.id()]), Status::SUCCESS);
    assert_eq!(other.active(), [1, 2]);
    assert!(!saved_by(&again.control).contains("detached_hosts"));
    for (method, params) in [
        ("nvmf_ns_detach_host", json!({ "nqn": NQN, "nsid": 9, "host": HOST })),
        ("nvmf_ns_detach_host", json!({ "nqn": NQN, "nsid": 1, "host": "host" })),
        ("nvmf_subsystem_add_ns_manager", json!({ "nqn": NQN, "host": "host" })),
        ("nvmf_subsystem_add_ns_manager", json!({ "nqn": "nqn.2016-06.io.spdk:none", "host": HOST })),
        (
            "nvmf_subsystem_add_ns",
            json!({ "nqn": NQN, "namespace": { "bdev_name": "M1", "detached_hosts": ["host"] } }),
        ),
    ] {
        again.control.call(method, Some(&params)).unwrap_err();
    }
}

/// The states of a path, under the names of calls, and their codes (Base specification 2.0, figure 218).
const STATES: [(&str, u8); 3] = [("optimized", 1), ("non_optimized", 2), ("inaccessible", 3)];

/// The rules in other words: who sees, who has lost, who may manage; the namespaces that are there, with the places of
/// their groups' states in [`STATES`].
struct Model {
    /// The group and the blocks of each namespace.
    namespaces: BTreeMap<u32, (u32, u64)>,
    states: BTreeMap<u32, usize>,
    /// The hosts by name, with their controllers in this test's order.
    controllers: BTreeMap<u16, &'static str>,
    lost: BTreeSet<(&'static str, u32)>,
    shown: BTreeSet<&'static str>,
    managers: BTreeSet<&'static str>,
}

impl Model {
    fn new(controllers: BTreeMap<u16, &'static str>) -> Model {
        let namespaces = (1..=NAMESPACES).map(|nsid| (nsid, (nsid, 2048))).collect();
        let states = (1..=NAMESPACES + 1).map(|group| (group, 0)).collect();
        let (lost, shown, managers) = (BTreeSet::new(), BTreeSet::new(), [HOST].into());
        Model { namespaces, states, controllers, lost, shown, managers }
    }

    fn sees(&self, host: &str, nsid: u32) -> bool {
        self.namespaces.contains_key(&nsid) && (nsid < MASKED || self.shown.contains(host))
    }

    /// The code of the state of a namespace's path.
    fn state(&self, nsid: u32) -> u8 {
        STATES[self.states[&self.namespaces[&nsid].0]].1
    }

    /// The status of a read of a namespace.
    fn reads(&self, host: &'static str, nsid: u32) -> Status {
        match self.has(host, nsid) {
            false => Status::INVALID_NAMESPACE.do_not_retry(),
            true if self.state(nsid) == 3 => Status::ANA_INACCESSIBLE,
            true => Status::SUCCESS,
        }
    }

    /// The groups of the ANA log page: each with its state and namespaces.
    fn groups(&self, host: &'static str) -> BTreeMap<u32, (u8, Vec<u32>)> {
        let mut groups = BTreeMap::new();
        for (nsid, (group, _)) in self.namespaces.iter().filter(|(nsid, _)| self.has(host, **nsid)) {
            groups.entry(*group).or_insert((self.state(*nsid), Vec::new())).1.push(*nsid);
        }
        groups
    }

    fn has(&self, host: &'static str, nsid: u32) -> bool {
        self.sees(host, nsid) && !self.lost.contains(&(host, nsid))
    }

    fn attachment(&mut self, by: &'static str, select: u32, nsid: u32, ids: &[u16]) -> Status {
        if !self.managers.contains(by) {
            return Status::INVALID_OPCODE;
        }
        if select > 1 {
            return Status::INVALID_FIELD;
        }
        if ids.is_empty() {
            return Status::CONTROLLER_LIST_INVALID;
        }
        if nsid == 0 || nsid > NAMESPACES + 1 {
            return Status::INVALID_NAMESPACE;
        }
        if !self.sees(by, nsid) {
            return Status::INVALID_FIELD;
        }
        let mut hosts = BTreeSet::new();
        for id in ids {
            match self.controllers.get(id) {
                Some(host) if self.sees(host, nsid) => drop(hosts.insert(*host)),
                _ => return Status::CONTROLLER_LIST_INVALID,
            }
        }
        for host in &hosts {
            match (select, self.lost.contains(&(*host, nsid))) {
                (ATTACH, false) => return Status::NAMESPACE_ALREADY_ATTACHED,
                (DETACH, true) => return Status::NAMESPACE_NOT_ATTACHED,
                _ => {}
            }
        }
        for host in hosts {
            if select == ATTACH {
                self.lost.remove(&(host, nsid))
            } else {
                self.lost.insert((host, nsid))
            };
        }
        Status::SUCCESS
    }
}

fn random_hosts(seed: u64, steps: u32) {
    let mut dice = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = move |limit: usize| (dice.next_u64() % limit as u64) as usize;
    let names = [HOST, OTHER, THIRD, HOST, OTHER];
    let served = Served::new(1 + seed as usize % 3);
    let mut hosts: Vec<Member> = names.iter().map(|name| served.host(name)).collect();
    let mut model = Model::new(hosts.iter().zip(names).map(|(host, name)| (host.id(), name)).collect());
    let listener = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": served.address.port().to_string() });
    for step in 0..steps {
        let at = || format!("seed {seed}, step {step}");
        let (who, nsid) = (below(names.len()), below(6) as u32);
        let name = names[who];
        match below(20) {
            0..=4 => {
                let select = [ATTACH, DETACH, DETACH, ATTACH, ATTACH, DETACH, ATTACH, 5][below(8)];
                let ids: Vec<u16> = (0..below(4))
                    .map(|_| if below(30) == 0 { below(60_000) as u16 } else { hosts[below(names.len())].id() })
                    .collect();
                let said = hosts[who].attachment(select, nsid, &ids);
                let expected = model.attachment(name, select, nsid, &ids);
                assert!(said.is(expected), "{}: {said} instead of {expected}", at());
            }
            5..=7 => {
                assert_eq!(hosts[who].reads(nsid), model.reads(name, nsid), "{}: {name} reads {nsid}", at());
            }
            8 => {
                let active: Vec<u32> = (1..=NAMESPACES).filter(|nsid| model.has(name, *nsid)).collect();
                assert_eq!(hosts[who].active(), active, "{}", at());
            }
            9 if model.managers.contains(name) && model.sees(name, nsid) && nsid > 0 => {
                let controllers = model.controllers.iter().filter(|(_, host)| model.has(host, nsid));
                let expected: Vec<u16> = controllers.map(|(id, _)| *id).collect();
                assert_eq!(hosts[who].attached(nsid), expected, "{}", at());
            }
            10 => {
                let gone = hosts[who].id();
                model.controllers.remove(&gone);
                hosts[who] = served.host(name);
                until(|| !served.controllers().contains(&gone));
                model.controllers.insert(hosts[who].id(), name);
            }
            11 if model.namespaces.contains_key(&MASKED) => {
                let shows = model.shown.insert(name) || !model.shown.remove(name);
                let method = if shows { "nvmf_ns_add_host" } else { "nvmf_ns_remove_host" };
                served.call(method, json!({ "nsid": MASKED, "host": name }));
            }
            12 => {
                let may_manage = model.managers.insert(name) || !model.managers.remove(name);
                let word = if may_manage { "add" } else { "remove" };
                served.call(&format!("nvmf_subsystem_{word}_ns_manager"), json!({ "host": name }));
            }
            13 => {
                let (group, state) = (1 + below(NAMESPACES as usize + 1) as u32, below(STATES.len()));
                model.states.insert(group, state);
                let params = json!({ "listen_address": listener, "ana_state": STATES[state].0, "anagrpid": group });
                served.call("nvmf_subsystem_listener_set_ana_state", params);
            }
            14 if model.namespaces.contains_key(&nsid) => {
                let group = 1 + below(NAMESPACES as usize + 1) as u32;
                model.namespaces.entry(nsid).and_modify(|it| it.0 = group);
                served.call("nvmf_subsystem_set_ns_ana_group", json!({ "nsid": nsid, "anagrpid": group }));
            }
            15 if model.namespaces.contains_key(&nsid) => {
                let blocks = 16 + below(4096) as u64;
                model.namespaces.entry(nsid).and_modify(|it| it.1 = blocks);
                let target = served.control.target();
                target.resize_device(&format!("EE_M{nsid}"), Some(blocks * 512)).unwrap();
            }
            16 => {
                // A namespace that is added again is a new one: nobody has lost it, and it is in its first group.
                let nsid = 1 + below(NAMESPACES as usize) as u32;
                if model.namespaces.remove(&nsid).is_some() {
                    served.call("nvmf_subsystem_remove_ns", json!({ "nsid": nsid }));
                    model.lost.retain(|(_, lost)| *lost != nsid);
                    if nsid == MASKED {
                        model.shown.clear();
                    }
                } else {
                    let device = format!("EE_M{nsid}");
                    let info = served.control.target().devices().into_iter().find(|it| it.spec.name == device);
                    model.namespaces.insert(nsid, (nsid, info.unwrap().blocks));
                    let namespace = json!({ "bdev_name": device, "nsid": nsid, "no_auto_visible": nsid == MASKED });
                    served.call("nvmf_subsystem_add_ns", json!({ "namespace": namespace }));
                }
            }
            17 if model.has(name, nsid) => {
                let page = hosts[who].identify(cns::NAMESPACE, nsid).unwrap();
                let page = IdentifyNamespace::read(page.first_chunk().unwrap());
                let (group, blocks) = model.namespaces[&nsid];
                let used = if model.state(nsid) == 3 { 0 } else { blocks };
                assert_eq!((page.anagrpid, page.nsze, page.nuse), (group, blocks, used), "{}: {nsid}", at());
            }
            18 => assert_eq!(hosts[who].groups(), model.groups(name), "{}", at()),
            _ if nsid == 0 || !model.namespaces.contains_key(&nsid) => {}
            _ => {
                let attaches = model.lost.remove(&(name, nsid)) || !model.lost.insert((name, nsid));
                let method = if attaches { "nvmf_ns_attach_host" } else { "nvmf_ns_detach_host" };
                served.call(method, json!({ "nsid": nsid, "host": name }));
            }
        }
    }
}

#[test]
fn random_hosts_get_what_the_rules_say() {
    let number = std::env::var("PLIMSOLL_FUZZ_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = number.map_or(0..8, |seed: u64| seed..seed + 1);
    for seed in seeds {
        println!("seed {seed}");
        random_hosts(seed, 600);
    }
}

//! Two targets that serve one file in turn: the paths of the one that has the lock are open, those of the other are
//! inaccessible, and everything that a host relies on goes along.

use crate::raw;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use nvme::spec::ana::AnaState::{self, Inaccessible, Optimized};
use nvme::spec::opcode::admin;
use nvme::spec::reservation::{AcquireAction, RegisterAction, ReservationCommand, ReservationType};
use nvme::spec::{AsyncEvent, Command, Identify, IdentifyNamespace, Status, cns, feature};
use nvme_rpc::{Control, Settings};
use nvme_target::Options;
use raw::{Host, NQN, until};
use serde_json::{Value, json};

const BYTES: u64 = 1 << 20;

/// One of the targets.
struct Served {
    control: Control,
    address: SocketAddr,
}

impl Served {
    fn warnings(&self) -> Vec<String> {
        self.control.tell();
        raw::serving::warnings(&self.control.target())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.control.target().shutdown(Duration::ZERO);
    }
}

fn control() -> Control {
    let options = Options { publish: false, ..Options::default() };
    let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    Control::start(settings, Box::new(|_| {})).unwrap()
}

impl Served {
    /// A target on the file `disk` in a directory, with its reservations beside it.
    fn new(place: &Path) -> Served {
        let (control, path) = (control(), |name: &str| place.join(name).to_str().unwrap().to_string());
        let listen = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0" });
        let namespace = json!({ "bdev_name": "Disk", "ptpl_file": path("reservations") });
        for (method, params) in [
            ("nvmf_create_transport", json!({ "trtype": "TCP" })),
            (
                "bdev_aio_create",
                json!({ "name": "Disk", "filename": path("disk"), "block_size": 512, "create_size": BYTES, "shared": true }),
            ),
            ("nvmf_create_subsystem", json!({ "nqn": NQN, "allow_any_host": true, "ana_reporting": true })),
            ("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": namespace })),
            ("nvmf_subsystem_add_listener", json!({ "nqn": NQN, "listen_address": listen })),
        ] {
            control.call(method, Some(&params)).unwrap();
        }
        let address = control.target().subsystems()[0].listeners[0].address;
        Served { control, address }
    }

    /// The state of the path, and the state that was set.
    fn states(&self) -> (AnaState, AnaState) {
        let subsystem = self.control.target().subsystems().remove(0);
        (subsystem.ana_states[&self.address.into()][0], subsystem.ana_wanted[&self.address.into()][0])
    }

    fn opens(&self) {
        until(|| self.states().0 == Optimized);
    }

    fn has_the_file(&self) -> bool {
        self.control.target().devices()[0].held
    }

    fn set(&self, state: &str) {
        let at = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": self.address.port().to_string() });
        let params = json!({ "nqn": NQN, "listen_address": at, "ana_state": state, "anagrpid": 1 });
        self.control.call("nvmf_subsystem_listener_set_ana_state", Some(&params)).unwrap();
    }
}

fn namespace(admin: &mut Host) -> IdentifyNamespace {
    let page = admin.fetch(Identify { cns: cns::NAMESPACE, cntid: 0, csi: 0 }.command(1)).unwrap();
    IdentifyNamespace::read(page.first_chunk().unwrap())
}

#[test]
fn paths_are_open_in_the_target_that_has_the_lock() {
    let place = tempfile::tempdir().unwrap();
    let one = Served::new(place.path());
    one.opens();
    let two = Served::new(place.path());
    // The second target waits for the lock, and says for whom.
    let mut said = Vec::new();
    until(|| {
        said.append(&mut two.warnings());
        said.iter().any(|line| line.contains(&format!("process {} serves", std::process::id())))
    });
    assert_eq!(two.states(), (Inaccessible, Optimized));
    let [(_one_admin, mut of_one), (mut two_admin, mut of_two)] = [&one, &two].map(|target| Host::pair(target.address));
    assert_eq!(of_one.write(1, 0, &[1; 512]), Status::SUCCESS);
    assert_eq!(of_two.read(1, 0, 1).unwrap_err(), Status::ANA_INACCESSIBLE);
    assert_eq!((namespace(&mut two_admin).nuse, namespace(&mut two_admin).nsze), (0, BYTES / 512));
    let wanted = Command {
        cdw10: feature::ASYNC_EVENT_CONFIGURATION.into(),
        cdw11: feature::EVENT_ANA,
        ..Command::new(admin::SET_FEATURES, 0)
    };
    assert!(two_admin.command(wanted, &[]).status.is_ok());
    two_admin.send_command(Command::new(admin::ASYNC_EVENT_REQUEST, 0), &[]);

    // The first closes its path: the second has the file then, and its hosts are told.
    one.set("inaccessible");
    two.opens();
    assert_eq!(two_admin.response().result, AsyncEvent::ANA_CHANGED.result());
    assert_eq!(of_two.read(1, 0, 1).unwrap(), [1; 512]);
    assert_eq!(of_two.write(1, 0, &[2; 512]), Status::SUCCESS);
    assert_eq!(of_one.read(1, 0, 1).unwrap_err(), Status::ANA_INACCESSIBLE);
    // A path that is to be open stays closed while the other target has the file.
    one.set("optimized");
    until(|| one.warnings().iter().any(|line| line.contains("serves")));
    assert_eq!((one.states(), one.has_the_file()), ((Inaccessible, Optimized), false));
    assert_eq!(of_one.read(1, 0, 1).unwrap_err(), Status::ANA_INACCESSIBLE);
    drop(two);
    one.opens();
    assert_eq!(of_one.read(1, 0, 1).unwrap(), [2; 512]);
}

/// Reservations go along, also those that a loss of power would end; and the size that the file has by then.
#[test]
fn reservations_and_the_size_go_along() {
    let place = tempfile::tempdir().unwrap();
    let one = Served::new(place.path());
    one.opens();
    let two = Served::new(place.path());
    let (_admin, mut owner) = Host::pair_of(one.address, [1; 16]);
    let action = RegisterAction::Register;
    let register = ReservationCommand::Register { action, ignores_key: false, persists: None, current: 0, new: 5 };
    assert!(owner.reserve(register).is_ok());
    let kind = ReservationType::WriteExclusive;
    let acquire = ReservationCommand::Acquire { action: AcquireAction::Acquire, kind, current: 5, preempted: 0 };
    assert!(owner.reserve(acquire).is_ok());
    std::fs::File::options().write(true).open(place.path().join("disk")).unwrap().set_len(2 * BYTES).unwrap();
    let (mut admin, mut other) = Host::pair_of(two.address, [2; 16]);
    one.set("inaccessible");
    two.opens();
    let (header, registered) = other.reservation();
    assert_eq!((header.kind, registered[0].key, registered[0].host), (kind as u8, 5, [1; 16]));
    assert_eq!(other.write(1, 0, &[2; 512]), Status::RESERVATION_CONFLICT.do_not_retry());
    assert_eq!(namespace(&mut admin).nsze, 2 * BYTES / 512);
    let (_admin, mut owner) = Host::pair_of(two.address, [1; 16]);
    assert_eq!(owner.write(1, 2 * BYTES / 512 - 1, &[3; 512]), Status::SUCCESS);
}

/// Calls that come in any order never open the file in both targets, and it opens where it alone is to be open.
#[test]
fn two_targets_never_have_the_file_at_once() {
    let place = tempfile::tempdir().unwrap();
    let targets = [Served::new(place.path()), Served::new(place.path())];
    let mut dice = 7_u64;
    for _ in 0..60 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (target, opens) = (&targets[(dice >> 40) as usize % 2], dice >> 50 & 1 == 0);
        target.set(if opens { "optimized" } else { "inaccessible" });
        let has = targets.each_ref().map(Served::has_the_file);
        assert!(!(has[0] && has[1]));
    }
    for (open, closed) in [(0, 1), (1, 0), (0, 1)] {
        targets[open].set("optimized");
        targets[closed].set("inaccessible");
        targets[open].opens();
        let (_admin, mut queue) = Host::pair(targets[open].address);
        assert_eq!(queue.write(1, 0, &[open as u8 + 1; 512]), Status::SUCCESS);
        assert_eq!(targets[closed].states().0, Inaccessible);
    }
}

#[test]
fn the_states_that_are_saved_are_those_that_were_set() {
    let place = tempfile::tempdir().unwrap();
    let one = Served::new(place.path());
    one.opens();
    let two = Served::new(place.path());
    two.set("non_optimized");
    assert_eq!(two.states(), (Inaccessible, AnaState::NonOptimized));
    let saved = two.control.call("framework_get_config", Some(&json!({ "name": "nvmf" }))).unwrap();
    let calls = saved.as_array().unwrap();
    let of = |method: &str| calls.iter().filter(|call| call["method"] == method).collect::<Vec<_>>();
    assert_eq!(of("nvmf_subsystem_add_listener")[0]["params"]["ana_state"], "optimized");
    let set = of("nvmf_subsystem_listener_set_ana_state");
    assert_eq!((set.len(), &set[0]["params"]["ana_state"]), (1, &json!("non_optimized")));
}

#[test]
fn what_cannot_be_shared_is_refused_in_one_line() {
    let place = tempfile::tempdir().unwrap();
    let (control, path) = (control(), place.path().join("disk"));
    let call = |method: &str, params: Value| control.call(method, Some(&params));
    let file = |more: Value| {
        let mut params =
            json!({ "name": "Disk", "filename": path, "block_size": 512, "create_size": BYTES, "shared": true });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let refused = |method: &str, params: Value| call(method, params).unwrap_err().to_string();
    call("bdev_aio_create", file(json!({}))).unwrap();
    let error = refused("bdev_aio_create", file(json!({ "name": "Other", "readonly": true })));
    assert!(error.contains("readers share a file without taking turns"), "{error}");
    let error = refused("bdev_error_create", json!({ "base_name": "Disk" }));
    assert!(error.contains("a namespace stands on it alone"), "{error}");
    call("nvmf_create_subsystem", json!({ "nqn": NQN })).unwrap();
    let namespace = json!({ "bdev_name": "Disk", "ptpl_file": place.path().join("reservations") });
    let error = refused("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": namespace }));
    assert!(error.contains("create it with ana_reporting=true"), "{error}");
    call("nvmf_create_subsystem", json!({ "nqn": "nqn.2016-06.io.spdk:two", "ana_reporting": true })).unwrap();
    let error = refused(
        "nvmf_subsystem_add_ns",
        json!({ "nqn": "nqn.2016-06.io.spdk:two", "namespace": { "bdev_name": "Disk" } }),
    );
    assert!(error.contains("give ptpl_file"), "{error}");
    // A target that keeps the file for good does not get it while another one has its turn.
    control.target().shutdown(Duration::ZERO);
}

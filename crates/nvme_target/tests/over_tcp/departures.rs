//! Calls that take a namespace, a path or a subsystem from hosts answer when the last op of these hosts has left its
//! device: whoever gets the blocks next has them alone.

use crate::raw;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nvme::spec::opcode::admin::IDENTIFY;
use nvme::spec::{Command, Sgl};
use nvme_rpc::{Control, Settings};
use nvme_target::device::{Effect, Fault, FaultOn};
use nvme_target::{Options, SubsystemInfo, Target};
use raw::{HOST, Host, NQN, until};
use serde_json::{Value, json};

/// The name of the device, which holds ops back when it is told to.
const DEVICE: &str = "EE_M";

/// A target on two reactors with one namespace, which one listed host sees.
struct Served {
    control: Control,
    target: Target,
    address: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.target.shutdown(Duration::ZERO);
    }
}

impl Served {
    fn new() -> Served {
        let options = Options { reactors: 2, publish: false, ..Options::default() };
        let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
        let control = Control::start(settings, Box::new(|_| {})).unwrap();
        let target = control.target();
        let listen = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": "0" });
        for (method, params) in [
            ("nvmf_create_transport", json!({ "trtype": "TCP" })),
            ("bdev_malloc_create", json!({ "name": "M", "num_blocks": 2048, "block_size": 512 })),
            ("bdev_error_create", json!({ "base_name": "M" })),
            ("nvmf_create_subsystem", json!({ "nqn": NQN })),
            (
                "nvmf_subsystem_add_ns",
                json!({ "nqn": NQN, "namespace": { "bdev_name": DEVICE, "no_auto_visible": true } }),
            ),
            ("nvmf_ns_add_host", json!({ "nqn": NQN, "nsid": 1, "host": HOST })),
            ("nvmf_subsystem_add_host", json!({ "nqn": NQN, "host": HOST })),
            ("nvmf_subsystem_add_listener", json!({ "nqn": NQN, "listen_address": listen })),
        ] {
            control.call(method, Some(&params)).unwrap();
        }
        let address = target.subsystems()[0].listeners[0].address;
        Served { control, target, address }
    }

    fn has(&self, inside: u64) -> bool {
        self.target.stats().devices.iter().map(|device| device.in_device).sum::<u64>() == inside
    }

    /// A host with a write that the device does not end.
    fn host_with_a_write(&self) -> (Host, Host) {
        let stuck = Fault { on: FaultOn::Writes, effect: Effect::Stuck, one_in: 1, count: Some(1) };
        self.target.set_faults(DEVICE, &[stuck]).unwrap();
        let (admin, mut queue) = Host::pair(self.address);
        queue.send_data_only(Host::write_command(1, 0, 512), &[9; 512]);
        until(|| self.has(1));
        (admin, queue)
    }
}

/// A call, its parameters, and its effect on the only subsystem, or on its absence.
type Case = (&'static str, Value, fn(Option<&SubsystemInfo>) -> bool);

#[test]
fn a_call_that_takes_something_answers_when_the_last_op_has_left_the_device() {
    let at =
        |address: SocketAddr| json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": address.port().to_string() });
    let cases = |address: SocketAddr| -> [Case; 5] {
        [
            ("nvmf_subsystem_remove_ns", json!({ "nqn": NQN, "nsid": 1 }), |it| it.unwrap().namespaces.is_empty()),
            ("nvmf_ns_remove_host", json!({ "nqn": NQN, "nsid": 1, "host": HOST }), |it| {
                !it.unwrap().namespaces[0].visibility.includes(HOST)
            }),
            ("nvmf_subsystem_remove_host", json!({ "nqn": NQN, "host": HOST }), |it| it.unwrap().hosts.is_empty()),
            ("nvmf_subsystem_remove_listener", json!({ "nqn": NQN, "listen_address": at(address) }), |it| {
                it.unwrap().listeners.is_empty()
            }),
            ("nvmf_delete_subsystem", json!({ "nqn": NQN }), |it| it.is_none()),
        ]
    };
    for index in 0..cases(SocketAddr::from(([127, 0, 0, 1], 1))).len() {
        let served = Served::new();
        let (method, params, has_effect) = cases(served.address)[index].clone();
        let _host = served.host_with_a_write();
        let is_free = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until(|| has_effect(served.target.subsystems().first()));
                // Another call goes on meanwhile.
                served.control.call("nvmf_get_stats", None).unwrap();
                is_free.store(true, Ordering::SeqCst);
                served.target.set_faults(DEVICE, &[]).unwrap();
            });
            served.control.call(method, Some(&params)).unwrap();
            assert!(is_free.load(Ordering::SeqCst), "{method} answers while the device has the write");
        });
        assert!(served.has(0), "{method}");
    }
}

/// A queue may come by another listener than its controller's admin queue. The call that removes that listener ends the
/// queue, and waits for its ops.
#[test]
fn a_listener_that_is_removed_waits_for_queues_whose_controllers_came_by_another_one() {
    let served = Served::new();
    let other = served.target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
    let stuck = Fault { on: FaultOn::Writes, effect: Effect::Stuck, one_in: 1, count: Some(1) };
    served.target.set_faults(DEVICE, &[stuck]).unwrap();
    let mut admin = Host::admin(served.address);
    let mut queue = admin.queue(other, 1, false);
    queue.send_data_only(Host::write_command(1, 0, 512), &[9; 512]);
    until(|| served.has(1));
    let is_free = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until(|| served.target.subsystems()[0].listeners.len() == 1);
            assert!(queue.is_closed());
            // An early answer comes by now.
            std::thread::sleep(Duration::from_millis(300));
            is_free.store(true, Ordering::SeqCst);
            served.target.set_faults(DEVICE, &[]).unwrap();
        });
        served.target.remove_listener(NQN, other).unwrap().wait();
        assert!(is_free.load(Ordering::SeqCst), "the call answers while the device has the write");
    });
    assert!(served.has(0));
    assert!(admin.fetch(Command { cdw10: 1, sgl: Sgl::transport(4096), ..Command::new(IDENTIFY, 0) }).is_ok());
}

/// A host that is removed from the list has nothing left of its connections when the call answers, and does not come
/// back; ops of other hosts are not waited for.
#[test]
fn a_host_that_is_removed_is_gone_when_the_call_answers() {
    const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:0f0e0d0c-0b0a-0908-0706-050403020100";
    let served = Served::new();
    for (method, params) in [
        ("nvmf_subsystem_add_host", json!({ "nqn": NQN, "host": OTHER })),
        ("nvmf_ns_add_host", json!({ "nqn": NQN, "nsid": 1, "host": OTHER })),
    ] {
        served.control.call(method, Some(&params)).unwrap();
    }
    let _other_has_a_write = served.host_with_a_write();
    let mut admin = Host::admin_of(served.address, NQN, OTHER, false);
    served.control.call("nvmf_subsystem_remove_host", Some(&json!({ "nqn": NQN, "host": OTHER }))).unwrap();
    let left = served.target.subsystems()[0].controllers.clone();
    assert!(left.iter().all(|controller| controller.host_nqn == HOST) && left.len() == 1, "{left:?}");
    assert!(admin.is_closed());
    assert!(!Host::open(served.address, false, false).connect(0, 32, 0xffff, NQN, OTHER).status.is_ok());
    assert!(served.has(1), "the write of the other host stays");
}

/// A device that holds ops back for ever lets them go when it is deleted: the call that deletes it answers.
#[test]
fn a_faulty_device_that_is_deleted_ends_its_ops() {
    let served = Served::new();
    let _host = served.host_with_a_write();
    served.control.call("bdev_error_delete", Some(&json!({ "name": DEVICE }))).unwrap();
    assert!(served.has(0));
}

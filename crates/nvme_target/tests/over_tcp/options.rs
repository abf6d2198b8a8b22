//! Options that are exchanged while the target runs: before anybody is connected, and then in force everywhere.

use crate::raw;

use nvme::spec::opcode::admin;
use nvme::spec::{Command, Identify, IdentifyController, cns, feature};
use nvme_rpc::{Control, Settings};
use nvme_target::device::DeviceKind;
use nvme_target::{ErrorKind, Limits, Options};
use raw::{Host, NQN, Served};
use serde_json::{Value, json};

fn controller(admin: &mut Host) -> IdentifyController {
    let page = admin.fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
    IdentifyController::read(page.first_chunk().unwrap())
}

#[test]
fn options_change_when_nobody_listens_and_nobody_is_connected() {
    for reactors in [1, 3] {
        let options = Options { reactors, publish: false, ..Options::default() };
        let served = Served::with(options.clone(), &[("mem", DeviceKind::Memory { bytes: 1 << 20 })]);
        let target = &served.target;
        let limits = Limits { queue_depth: 64, queues: 2, ..Limits::default() };
        let pacing = pace::Config::parse("auto:8m", 1024).unwrap();
        let new = Options { limits, pacing, max_io_bytes: 64 << 10, in_capsule_bytes: 8192, ..options.clone() };
        let refused = |new: &Options| target.set_options(new.clone()).expect_err("refused");
        assert_eq!(refused(&new).kind, ErrorKind::Busy, "it listens");
        let (mut admin, mut queue) = Host::pair(served.address);
        assert_eq!(target.options().limits, Limits::default(), "a refusal changes nothing");
        target.remove_listener(NQN, served.address).unwrap().wait();
        assert!(admin.is_closed() && queue.is_closed(), "hosts that are connected are disconnected");
        target.set_options(new.clone()).unwrap();
        let nonsense = Options { in_capsule_bytes: 3, ..new.clone() };
        assert_eq!(refused(&nonsense).kind, ErrorKind::Invalid);
        let address = target.add_listener(NQN, "127.0.0.1:0".parse().unwrap()).unwrap();
        let mut hosts: Vec<_> = (0..2 * reactors).map(|_| Host::admin(address)).collect();
        for admin in &mut hosts {
            let now = controller(admin);
            assert_eq!((now.maxcmd, now.ioccsz, now.mdts), (64, (64 + 8192) / 16, 4), "{reactors} reactors");
            let mut queue = Host::open(address, false, false);
            assert!(queue.connect(1, 65, admin.cntlid, NQN, raw::HOST).status != nvme::spec::Status::SUCCESS);
            let mut queue = Host::open(address, false, false);
            assert!(queue.connect(1, 64, admin.cntlid, NQN, raw::HOST).status.is_ok());
            assert!(queue.write(1, 0, &[7; 64 << 10]).is_ok());
            assert_eq!(queue.read(1, 0, 128).unwrap(), vec![7; 64 << 10]);
        }
        let budgets: u64 = target.stats().reactors.iter().map(|reactor| reactor.pacer.budget_bytes).sum();
        assert!((8 << 20) - budgets < reactors as u64, "{budgets} bytes in all");
    }
}

/// As blktests' nvme/048: a host that is connected keeps the number of queues that it was granted, and a host that
/// comes later, or again, gets the new number.
#[test]
fn the_number_of_queues_changes_for_hosts_that_come_later() {
    let options = Options { publish: false, ..Options::default() };
    let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    let control = Control::start(settings, Box::new(|_| {})).expect("a target");
    let call = |method: &str, params: Value| control.call(method, Some(&params));
    let set = |queues: u64| call("nvmf_set_max_io_qpairs", json!({ "max_io_qpairs_per_ctrlr": queues }));
    assert_eq!(set(2).expect_err("no transport").code, -19);
    call("nvmf_create_transport", json!({ "trtype": "TCP", "max_qpairs_per_ctrlr": 5 })).expect("a transport");
    call("nvmf_create_subsystem", json!({ "nqn": NQN, "allow_any_host": true })).expect("a subsystem");
    let listen = json!({ "nqn": NQN, "listen_address": { "traddr": "127.0.0.1", "trsvcid": "0" } });
    call("nvmf_subsystem_add_listener", listen).expect("a listener");
    let address = control.target().subsystems()[0].listeners[0].address;
    let granted = |admin: &mut Host| {
        let ask = Command {
            cdw10: feature::NUMBER_OF_QUEUES.into(),
            cdw11: 0x003f_003f,
            ..Command::new(admin::SET_FEATURES, 0)
        };
        let done = admin.command(ask, &[]);
        assert!(done.status.is_ok(), "{}", done.status);
        let current = Command { cdw10: feature::NUMBER_OF_QUEUES.into(), ..Command::new(admin::GET_FEATURES, 0) };
        assert_eq!(admin.command(current, &[]).result, done.result);
        feature::queues(done.result as u32)
    };
    let opens = |admin: &Host, qid: u16| {
        let mut queue = Host::open(address, false, false);
        queue.connect(qid, 16, admin.cntlid, NQN, raw::HOST).status.is_ok().then_some(queue)
    };
    let mut early = Host::admin(address);
    assert_eq!(granted(&mut early), 4);
    assert_eq!(set(1).expect("set"), true);
    assert!(opens(&early, 4).is_some() && opens(&early, 5).is_none(), "what was granted stays");
    let mut later = Host::admin(address);
    assert_eq!(granted(&mut later), 1);
    assert!(opens(&later, 1).is_some() && opens(&later, 2).is_none());
    set(2).expect("set");
    let mut again = Host::admin(address);
    assert_eq!(granted(&mut again), 2);
    assert!(opens(&again, 2).is_some() && opens(&again, 3).is_none());
    for wrong in [0, 65] {
        assert!(set(wrong).expect_err("refused").message.contains("give 1 to 64"));
    }
    let transports = call("nvmf_get_transports", json!({})).expect("transports");
    assert_eq!(transports[0]["max_io_qpairs_per_ctrlr"], 2);
    let saved = call("framework_get_config", json!({ "name": "nvmf" })).expect("calls");
    let made = saved.as_array().unwrap().iter().find(|step| step["method"] == "nvmf_create_transport").unwrap();
    assert_eq!(made["params"], json!({ "trtype": "TCP", "max_io_qpairs_per_ctrlr": 2 }));
    control.target().shutdown(std::time::Duration::ZERO);
}

/// Everything that stands before the transport stands after it, on the same target.
#[test]
fn a_transport_comes_to_the_target_that_runs() {
    let options = Options { publish: false, reactors: 2, ..Options::default() };
    let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    let control = Control::start(settings, Box::new(|_| {})).expect("a target");
    let call = |method: &str, params: Value| {
        control.call(method, Some(&params)).unwrap_or_else(|error| panic!("{method} {params}: {error}"))
    };
    let target = control.target();
    let since_ns = target.stats().uptime_ns;
    call("bdev_malloc_create", json!({ "name": "Malloc0", "num_blocks": 64, "block_size": 512 }));
    call("bdev_error_create", json!({ "base_name": "Malloc0" }));
    let fault = json!({ "name": "EE_Malloc0", "io_type": "write", "error_type": "failure", "num": 1 });
    call("bdev_error_inject_error", fault);
    call("bdev_set_qos_limit", json!({ "name": "EE_Malloc0", "rw_ios_per_sec": 1_000_000 }));
    call("bdev_enable_histogram", json!({ "name": "EE_Malloc0", "enable": true }));
    call("nvmf_create_subsystem", json!({ "nqn": NQN, "allow_any_host": true }));
    call("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "EE_Malloc0" } }));
    let seen = || [call("bdev_get_bdevs", json!({})), call("nvmf_get_subsystems", json!({}))];
    let before = seen();
    call("nvmf_create_transport", json!({ "trtype": "TCP", "max_queue_depth": 32, "pacing": "none" }));
    assert_eq!(seen(), before);
    assert!(target.stats().uptime_ns > since_ns && target.options().limits.queue_depth == 32);
    let address = json!({ "traddr": "127.0.0.1", "trsvcid": "0" });
    call("nvmf_subsystem_add_listener", json!({ "nqn": NQN, "listen_address": address }));
    let address = target.subsystems()[0].listeners[0].address;
    let admin = Host::admin(address);
    let mut queue = Host::open(address, false, false);
    assert!(queue.connect(1, 32, admin.cntlid, NQN, raw::HOST).status.is_ok());
    assert!(!queue.write(1, 0, &[1; 512]).is_ok(), "the fault is in force");
    assert!(queue.write(1, 0, &[1; 512]).is_ok(), "once");
    call("bdev_get_histogram", json!({ "name": "EE_Malloc0" }));
    let again = control.call("nvmf_create_transport", Some(&json!({ "trtype": "TCP" })));
    assert_eq!(again.expect_err("once").message, "Transport type 'TCP' already exists");
    target.shutdown(std::time::Duration::ZERO);
}

//! Limits of devices (`bdev_set_qos_limit`), what is counted of them, and limits on commands and hosts, through the
//! calls and a host.

#[path = "../../nvme_target/tests/raw/mod.rs"]
mod raw;

use std::time::Instant;

use nvme::pdu::Pdu;
use nvme::spec::opcode::{admin, io};
use nvme::spec::{
    Command, Completion, CopySource, GetLogPage, Identify, IdentifyController, Range, Sgl, Status, cns, feature, log,
    oncs,
};
use nvme_rpc::{Control, Settings};
use nvme_target::Options;
use raw::{Host, NQN};
use serde_json::{Value, json};

/// A target of two reactors with memory devices as namespaces 1 and 2, and its address.
fn served() -> (Control, std::net::SocketAddr) {
    served_with(json!({}), json!({}))
}

/// As [`served`], with these parameters of the transport and of the subsystem.
fn served_with(transport: Value, subsystem: Value) -> (Control, std::net::SocketAddr) {
    let with = |mut all: Value, more: &Value| {
        all.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        all
    };
    let options = Options { reactors: 2, ..Options::default() };
    let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    let control = Control::start(settings, Box::new(|_| {})).expect("a target");
    call(&control, "nvmf_create_transport", with(json!({ "trtype": "TCP" }), &transport));
    let params = with(json!({ "nqn": NQN, "allow_any_host": true }), &subsystem);
    call(&control, "nvmf_create_subsystem", params);
    for (name, nsid) in [("Malloc0", 1), ("Malloc1", 2)] {
        call(&control, "bdev_malloc_create", json!({ "name": name, "num_blocks": 65_536, "block_size": 512 }));
        let namespace = json!({ "bdev_name": name, "nsid": nsid });
        call(&control, "nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": namespace }));
    }
    let address = json!({ "traddr": "127.0.0.1", "trsvcid": "0" });
    call(&control, "nvmf_subsystem_add_listener", json!({ "nqn": NQN, "listen_address": address }));
    let address = control.target().subsystems()[0].listeners[0].address;
    (control, address)
}

fn call(control: &Control, method: &str, params: Value) -> Value {
    control.call(method, Some(&params)).unwrap_or_else(|error| panic!("{method} {params}: {error}"))
}

fn limit(control: &Control, name: &str, limits: Value) {
    let mut params = limits;
    params["name"] = json!(name);
    call(control, "bdev_set_qos_limit", params);
}

/// The end of the next command, whose data are passed over.
fn ended(queue: &mut Host) -> Completion {
    loop {
        match queue.unit().expect("a unit").pdu {
            Pdu::CapsuleResp(completion) => return completion,
            Pdu::C2hData(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Seconds that `reads` reads take when each queue sends them at once.
fn reads_take(queues: &mut [Host], reads: usize, nsid: u32, blocks: u32) -> f64 {
    let began = Instant::now();
    for queue in queues.iter_mut() {
        for _ in 0..reads {
            queue.send_command(Host::read_command(nsid, 0, blocks), &[]);
        }
    }
    for queue in queues {
        (0..reads).for_each(|_| assert!(ended(queue).status.is_ok()));
    }
    began.elapsed().as_secs_f64()
}

#[test]
fn limits_hold_over_all_reactors_and_for_one_device_alone() {
    let (control, address) = served();
    let admin = Host::admin(address);
    let mut queues: Vec<Host> = (1..=4).map(|qid| admin.queue(address, qid, false)).collect();
    assert_eq!(queues[0].write(1, 0, &[9; 65_536]), Status::SUCCESS);
    limit(&control, "Malloc0", json!({ "rw_ios_per_sec": 200 }));
    // A hundred, of which a hundredth of a second's worth go at once.
    let seconds = reads_take(&mut queues, 25, 1, 1);
    assert!(seconds > 0.45, "100 reads at 200 a second take {seconds} s");
    // A command of the other namespace passes those that wait.
    let waiting: Vec<u16> = (0..20).map(|_| queues[0].send_command(Host::read_command(1, 0, 1), &[])).collect();
    let other = queues[0].send_command(Host::read_command(2, 0, 1), &[]);
    let order: Vec<u16> = (0..21).map(|_| ended(&mut queues[0]).cid).collect();
    assert!(order.iter().position(|cid| *cid == other) < order.iter().position(|cid| *cid == waiting[19]));
    assert_eq!(order.iter().filter(|cid| **cid != other).copied().collect::<Vec<_>>(), waiting, "in their order");

    limit(&control, "Malloc0", json!({ "rw_ios_per_sec": 0, "r_mbytes_per_sec": 2 }));
    let seconds = reads_take(&mut queues, 4, 1, 128);
    assert!(seconds > 0.40, "1 MiB at 2 MiB/s takes {seconds} s");
    let saved = control.call("framework_get_config", Some(&json!({ "name": "bdev" }))).expect("calls").to_string();
    assert!(saved.contains("bdev_set_qos_limit") && saved.contains("\"r_mbytes_per_sec\":2"), "{saved}");
    assert_eq!(queues[0].read(1, 0, 128).expect("data"), [9; 65_536]);
    let shown = call(&control, "bdev_get_bdevs", json!({ "name": "Malloc0" }));
    assert_eq!(shown[0]["assigned_rate_limits"]["r_mbytes_per_sec"], 2);
}

#[test]
fn commands_that_wait_for_a_limit_can_be_aborted_and_end_with_what_they_wait_for() {
    let (control, address) = served();
    let (mut host, mut queue) = Host::pair(address);
    let mut gone = host.queue(address, 2, false);
    limit(&control, "Malloc0", json!({ "rw_ios_per_sec": 1 }));
    assert_eq!(queue.read(1, 0, 1).expect("data"), [0; 512], "a full bucket lets one go");
    let waiting: Vec<u16> = (0..3).map(|_| queue.send_command(Host::read_command(1, 0, 1), &[])).collect();
    gone.send_command(Host::read_command(1, 0, 1), &[]);
    let in_progress = || control.target().stats().reactors.iter().map(|reactor| reactor.pending_io).sum::<u64>();
    raw::until(|| in_progress() >= 3);
    // The newest: the first may go any moment.
    let abort = Command { cdw10: 1 | u32::from(waiting[2]) << 16, ..Command::new(admin::ABORT, 0) };
    assert_eq!(host.command(abort, &[]).result, 0, "it is aborted");
    let (mut last, mut turns) = (ended(&mut queue), 0);
    while last.cid != waiting[2] {
        assert!(last.status.is_ok(), "it was its turn");
        (last, turns) = (ended(&mut queue), turns + 1);
    }
    assert_eq!(last.status, Status::ABORTED_BY_REQUEST);
    // A connection that goes takes what waits with it.
    drop(gone);
    // A limit that ends lets everything go.
    limit(&control, "Malloc0", json!({ "rw_ios_per_sec": 0 }));
    (turns..2).for_each(|_| assert!(ended(&mut queue).status.is_ok()));
    raw::until(|| in_progress() == 0);
}

#[test]
fn a_namespace_that_goes_ends_the_commands_that_wait_for_its_limit() {
    let (control, address) = served();
    let (_host, mut queue) = Host::pair(address);
    limit(&control, "Malloc0", json!({ "rw_ios_per_sec": 1 }));
    assert_eq!(queue.read(1, 0, 1).expect("data"), [0; 512]);
    let waiting: Vec<u16> = (0..8).map(|_| queue.send_command(Host::read_command(1, 0, 1), &[])).collect();
    let in_progress = || control.target().stats().reactors.iter().map(|reactor| reactor.pending_io).sum::<u64>();
    raw::until(|| in_progress() >= 4);
    call(&control, "nvmf_subsystem_remove_ns", json!({ "nqn": NQN, "nsid": 1 }));
    let ends: Vec<Status> = waiting.iter().map(|_| ended(&mut queue).status).collect();
    assert!(ends.contains(&Status::INVALID_NAMESPACE.do_not_retry()), "{ends:?}");
    let busy = control.call(
        "bdev_delay_create",
        Some(&json!({ "name": "D", "base_bdev_name": "Malloc0",
        "avg_read_latency": 0, "p99_read_latency": 0, "avg_write_latency": 0, "p99_write_latency": 0 })),
    );
    assert!(busy.expect_err("it is refused").message.contains("has a limit"));
    call(&control, "bdev_malloc_delete", json!({ "name": "Malloc0" }));
    let saved = control.call("framework_get_config", Some(&json!({ "name": "bdev" }))).expect("calls").to_string();
    assert!(!saved.contains("bdev_set_qos_limit"), "{saved}");
}

/// The counts of a histogram by bucket.
fn histogram(control: &Control) -> Vec<u64> {
    use base64::Engine;
    let answer = call(control, "bdev_get_histogram", json!({ "name": "Malloc0" }));
    assert_eq!((&answer["bucket_shift"], &answer["tsc_rate"]), (&json!(7), &json!(1_000_000_000)));
    let text = answer["histogram"].as_str().expect("text");
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("Base64");
    bytes.chunks_exact(8).map(|count| u64::from_le_bytes(count.try_into().unwrap())).collect()
}

#[test]
fn latencies_are_counted_when_asked_for_and_counters_begin_anew() {
    let (control, address) = served();
    let (_host, mut queue) = Host::pair(address);
    let refused = control.call("bdev_get_histogram", Some(&json!({ "name": "Malloc0" })));
    assert!(refused.expect_err("it is refused").message.contains("bdev_enable_histogram"));
    call(&control, "bdev_enable_histogram", json!({ "name": "Malloc0", "enable": true }));
    for _ in 0..5 {
        queue.read(1, 0, 1).expect("data");
        queue.read(2, 0, 1).expect("data");
    }
    let counts = histogram(&control);
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (58 * 128, 5));
    let reads =
        |name: &str| call(&control, "bdev_get_iostat", json!({ "name": name }))["bdevs"][0]["num_read_ops"].clone();
    assert_eq!((reads("Malloc0"), reads("Malloc1")), (json!(5), json!(5)));
    let both = call(&control, "bdev_get_iostat", json!({ "name": "Malloc0", "reset_mode": "all" }));
    assert_eq!(both["bdevs"][0]["num_read_ops"], 5, "those before the reset");
    assert_eq!((reads("Malloc0"), reads("Malloc1")), (json!(0), json!(5)));
    call(&control, "bdev_reset_iostat", json!({}));
    assert_eq!(reads("Malloc1"), 0);
    assert_eq!(histogram(&control).iter().sum::<u64>(), 5, "a histogram of its own");
    call(&control, "bdev_enable_histogram", json!({ "name": "Malloc0", "enable": true }));
    assert_eq!(histogram(&control).iter().sum::<u64>(), 0, "enabled anew");
}

/// Hosts read the limits of a subsystem in Identify, and a command beyond one of them changes nothing.
#[test]
fn limits_on_commands_are_told_and_kept() {
    let (control, address) = served_with(json!({}), json!({ "dmrsl": 8, "wzsl": 1 }));
    let (mut admin, mut queue) = Host::pair(address);
    let asked = Identify { cns: cns::CONTROLLER_CSI, cntid: 0, csi: 0 };
    let page = admin.fetch(asked.command(0)).unwrap();
    assert_eq!((page[1], &page[4..8]), (1, &[8, 0, 0, 0][..]));
    let data = vec![7; 16 * 1024];
    assert_eq!(queue.write(1, 0, &data), Status::SUCCESS);
    let zeroes = |blocks| Command::blocks(io::WRITE_ZEROES, 1, 0, blocks);
    assert_eq!(queue.command(zeroes(17), &[]).status, Status::INVALID_FIELD.do_not_retry());
    let ranges = |longest: u32| {
        let range = |slba, blocks| Range { attributes: 0, blocks, slba }.write();
        [range(0, 8), range(16, longest)].concat()
    };
    let deallocate = |queue: &mut Host, longest| {
        let command = Command { sgl: Sgl::transport(32), ..Range::deallocate(1, 2) };
        queue.send_data(command, &ranges(longest), 32)
    };
    assert_eq!(deallocate(&mut queue, 9), Status::COMMAND_SIZE_LIMIT_EXCEEDED.do_not_retry());
    assert_eq!(queue.read(1, 0, 32).unwrap(), data);
    assert_eq!(deallocate(&mut queue, 8), Status::SUCCESS);
    assert_eq!(queue.command(zeroes(16), &[]).status, Status::SUCCESS);
    let left = queue.read(1, 0, 32).unwrap();
    assert!(left[..24 * 512].iter().all(|&byte| byte == 0) && left[24 * 512..].iter().all(|&byte| byte == 7));
    let listed = call(&control, "nvmf_get_subsystems", json!({ "nqn": NQN }));
    assert_eq!((&listed[0]["dmrsl"], &listed[0]["wzsl"]), (&json!(8), &json!(1)));
}

#[test]
fn a_command_that_is_hidden_is_not_there() {
    let (_control, address) = served_with(json!({ "masked_oncs": ["nvmwzsv", "nvmcmps", "nvmcpys"] }), json!({}));
    let (mut admin, mut queue) = Host::pair(address);
    let asked = Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 };
    let page = admin.fetch(asked.command(0)).unwrap();
    let of_all = oncs::COMPARE | oncs::DATASET_MANAGEMENT | oncs::WRITE_ZEROES | oncs::COPY;
    assert_eq!(IdentifyController::read(page.first_chunk().unwrap()).oncs & of_all, oncs::DATASET_MANAGEMENT);
    let effects = GetLogPage { lid: log::EFFECTS, lsp: 0, retain: false, length: 4096, offset: 0 };
    let effects = admin.fetch(effects.command(0)).unwrap();
    let of = |opcode: u8| effects[1024 + 4 * usize::from(opcode)];
    assert_eq!((of(io::WRITE_ZEROES), of(io::COMPARE), of(io::COPY)), (0, 0, 0));
    assert!(of(io::DATASET_MANAGEMENT) != 0 && of(io::WRITE) != 0);
    let refused = Status::INVALID_OPCODE.do_not_retry();
    assert_eq!(queue.command(Command::blocks(io::WRITE_ZEROES, 1, 0, 1), &[]).status, refused);
    assert_eq!(queue.command(Command::blocks(io::COMPARE, 1, 0, 1), &[]).status, refused);
    assert_eq!(queue.command(CopySource::copy(1, 0, 1), &[]).status, refused);
    assert_eq!(queue.write(1, 0, &[1; 512]), Status::SUCCESS);
}

#[test]
fn a_fused_operation_that_is_hidden_is_not_there() {
    for (masked, fuses) in [(json!({}), 1), (json!({ "masked_fuses": ["fcws"] }), 0)] {
        let (_control, address) = served_with(masked, json!({}));
        let page = Host::admin(address).fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
        assert_eq!(IdentifyController::read(page.first_chunk().unwrap()).fuses, fuses);
    }
}

/// ONCS, the effects log, RESCAP, the commands, the features and the log page are of one mind.
#[test]
fn reservations_that_are_hidden_are_not_there() {
    let (control, address) = served_with(json!({ "masked_oncs": ["reservs"] }), json!({}));
    let (mut admin, mut queue) = Host::pair(address);
    let identify = |admin: &mut Host, cns, nsid| admin.fetch(Identify { cns, cntid: 0, csi: 0 }.command(nsid)).unwrap();
    let page = identify(&mut admin, cns::CONTROLLER, 0);
    let present = IdentifyController::read(page.first_chunk().unwrap()).oncs;
    assert_eq!(present & (oncs::RESERVATIONS | oncs::COMPARE), oncs::COMPARE);
    assert_eq!(identify(&mut admin, cns::NAMESPACE, 1)[31], 0, "RESCAP");
    assert_eq!(identify(&mut admin, cns::NAMESPACE_INDEPENDENT, 1)[2], 0, "RESCAP");
    let log_page = |lid| GetLogPage { lid, lsp: 0, retain: false, length: 64, offset: 0 };
    let effects = admin.fetch(GetLogPage { length: 4096, ..log_page(log::EFFECTS) }.command(0)).unwrap();
    let refused = Status::INVALID_OPCODE.do_not_retry();
    for opcode in [io::RESERVATION_REGISTER, io::RESERVATION_REPORT, io::RESERVATION_ACQUIRE, io::RESERVATION_RELEASE] {
        assert_eq!(effects[1024 + 4 * usize::from(opcode)], 0, "{opcode:#x}");
        let command = Command { sgl: Sgl::transport(4096), ..Command::new(opcode, 1) };
        assert_eq!(queue.fetch(command), Err(refused), "{opcode:#x}");
    }
    assert_eq!(
        admin.fetch(log_page(log::RESERVATION_NOTIFICATION).command(0)),
        Err(Status::INVALID_LOG_PAGE.do_not_retry())
    );
    for feature in [feature::RESERVATION_MASK, feature::RESERVATION_PERSISTENCE] {
        for opcode in [admin::GET_FEATURES, admin::SET_FEATURES] {
            let command = Command { cdw10: feature.into(), ..Command::new(opcode, 1) };
            assert_eq!(admin.command(command, &[]).status, Status::INVALID_FIELD.do_not_retry(), "{feature:#x}");
        }
    }
    // Reservations that persist could never be released.
    call(&control, "bdev_null_create", json!({ "name": "Null0", "num_blocks": 8, "block_size": 512 }));
    let namespace = json!({ "bdev_name": "Null0", "ptpl_file": "/nonexistent/file" });
    let refusal = control.call("nvmf_subsystem_add_ns", Some(&json!({ "nqn": NQN, "namespace": namespace })));
    assert!(refusal.expect_err("refused").message.contains("masked_oncs"));
}

/// As SPDK's own test of the policy asks: a second controller of a host is refused on the same listener, and allowed on
/// another one.
#[test]
fn a_host_that_is_restricted_connects_once_to_each_listener() {
    let (control, address) = served();
    let other = json!({ "traddr": "127.0.0.1", "trsvcid": "0" });
    call(&control, "nvmf_subsystem_add_listener", json!({ "nqn": NQN, "listen_address": other }));
    let listeners = control.target().subsystems()[0].listeners.clone();
    let other = listeners.iter().map(|portal| portal.address).find(|other| *other != address).expect("two");
    let first = Host::admin(address);
    let second = Host::admin(address);
    drop((first, second));
    raw::until(|| control.target().subsystems()[0].controllers.is_empty());
    call(&control, "nvmf_set_config", json!({ "dup_host_policy": "restrict_per_listener" }));
    let again = || Host::open(address, false, false).connect(0, 32, raw::dynamic(), NQN, raw::HOST).status;
    for _ in 0..3 {
        let (first, queue) = Host::pair(address);
        let elsewhere = Host::admin(other);
        assert_eq!(again(), Status::CONNECT_INVALID_HOST, "the host may try again: its old connection may be lost");
        let another_host = Host::admin_of(address, NQN, "nqn.2016-06.io.spdk:another", false);
        drop((first, queue, elsewhere, another_host));
        raw::until(|| control.target().stats().hosts.iter().all(|host| host.connections == 0));
    }
    call(&control, "nvmf_set_config", json!({}));
    let _first = Host::admin(address);
    assert!(again().is_ok());
}

/// SPDK takes any number: a larger one than the target has stands for the largest, so that its configurations start.
#[test]
fn numbers_of_namespaces_beyond_the_largest_stand_for_it() {
    let (control, _) = served();
    for (most, ana, kept) in [(2048, false, 2048), (u32::MAX, false, 65_535), (2048, true, 1024), (0, false, 32)] {
        let nqn = format!("nqn.2016-06.io.spdk:{most}{ana}");
        call(
            &control,
            "nvmf_create_subsystem",
            json!({ "nqn": nqn, "max_namespaces": most, "ana_reporting": ana, "allow_any_host": true }),
        );
        let told = call(&control, "nvmf_get_subsystems", json!({ "nqn": nqn }));
        assert_eq!(told[0]["max_namespaces"], kept, "{most}, ANA {ana}");
        let spdk = call(&control, "bdev_null_create", json!({ "name": nqn, "num_blocks": 64, "block_size": 512 }));
        let namespace = json!({ "bdev_name": spdk, "nsid": kept });
        call(&control, "nvmf_subsystem_add_ns", json!({ "nqn": nqn, "namespace": namespace }));
    }
}

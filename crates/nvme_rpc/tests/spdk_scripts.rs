//! The calls of SPDK's own test scripts (test/nvmf/target and test/nvmf/host), with the parameters that its client
//! sends, and what the scripts expect of the answers. The hosts of the scripts are played by sockets of the tests.

#[path = "../../../tests/common/free_port.rs"]
mod free_port;
#[path = "../../nvme_target/tests/raw/mod.rs"]
mod raw;

use std::net::SocketAddr;

use free_port::free_port;
use nvme::spec::opcode::{admin as admin_opcode, io};
use nvme::spec::{Command, DISCOVERY_NQN, Identify, IdentifyNamespace, Range, Sgl, Status, cns};
use nvme_rpc::{Control, Settings, jsonrpc};
use nvme_target::Options;
use raw::{HOST, Host};
use serde_json::{Value, json};

const NQN: &str = "nqn.2016-06.io.spdk:cnode1";
const SERIAL: &str = "SPDK00000000000001";

/// A target as `nvmf_tgt -m 0xF` starts it, and the ports of the script.
struct Script {
    control: Control,
    ports: [u16; 2],
}

impl Script {
    fn new(wait_for_init: bool) -> Script {
        Script::on(4, wait_for_init)
    }

    fn on(reactors: usize, wait_for_init: bool) -> Script {
        let options = Options { reactors, publish: false, ..Options::default() };
        let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init };
        let control = Control::start(settings, Box::new(|_| {})).expect("a target");
        Script { control, ports: [free_port(), free_port()] }
    }

    /// After `nvmf_create_transport $NVMF_TRANSPORT_OPTS -u 8192`.
    fn with_transport() -> Script {
        let script = Script::new(false);
        script.rpc("nvmf_create_transport", json!({ "trtype": "tcp", "io_unit_size": 8192, "c2h_success": true }));
        script
    }

    fn answer(&self, method: &str, params: Value) -> Result<Value, String> {
        let request = json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": 1 });
        let call = &mut |method: &str, params: Option<&Value>| self.control.call(method, params);
        let mut answer = jsonrpc::answer(request.to_string().as_bytes(), call).expect("an answer");
        match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(answer["error"]["message"].as_str().expect("a message").to_string()),
        }
    }

    fn rpc(&self, method: &str, params: Value) -> Value {
        self.answer(method, params.clone()).unwrap_or_else(|error| panic!("{method} {params}: {error}"))
    }

    /// The script's `NOT`, or its `&& false` and what the message must have.
    fn refused(&self, method: &str, params: Value, because: &str) {
        let error = self.answer(method, params.clone()).expect_err(method);
        assert!(error.contains(because), "{method} {params}: {error}");
    }

    fn malloc(&self, name: &str) {
        let params = json!({ "name": name, "num_blocks": 64 << 11, "block_size": 512 });
        assert_eq!(self.rpc("bdev_malloc_create", params), name);
    }

    fn subsystem(&self, nqn: &str) {
        self.rpc("nvmf_create_subsystem", json!({ "nqn": nqn, "serial_number": SERIAL, "allow_any_host": true }));
    }

    fn add_ns(&self, nqn: &str, device: &str) {
        self.rpc("nvmf_subsystem_add_ns", json!({ "nqn": nqn, "namespace": { "bdev_name": device } }));
    }

    fn listen_address(&self, port: usize) -> Value {
        json!({ "trtype": "tcp", "adrfam": "ipv4", "traddr": "127.0.0.1", "trsvcid": self.ports[port].to_string() })
    }

    fn listener(&self, verb: &str, nqn: &str, port: usize) -> SocketAddr {
        let params = json!({ "nqn": nqn, "listen_address": self.listen_address(port) });
        self.rpc(&format!("nvmf_subsystem_{verb}_listener"), params);
        SocketAddr::from(([127, 0, 0, 1], self.ports[port]))
    }

    fn count(&self, what: &str) -> u64 {
        let stats = self.rpc("nvmf_get_stats", json!({}));
        stats["poll_groups"].as_array().expect("groups").iter().map(|group| group[what].as_u64().expect(what)).sum()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.control.target().shutdown(std::time::Duration::ZERO);
    }
}

fn io_queue(admin: &Host, address: SocketAddr, hostnqn: &str) -> Host {
    let mut queue = Host::open(address, false, false);
    assert!(queue.connect(1, 32, admin.cntlid, NQN, hostnqn).status.is_ok());
    queue
}

fn active(admin: &mut Host) -> Vec<u32> {
    let list = admin.fetch(Identify { cns: cns::ACTIVE_NAMESPACES, cntid: 0, csi: 0 }.command(0)).unwrap();
    let ids = list.chunks(4).map(|id| u32::from_le_bytes(id.try_into().unwrap()));
    ids.take_while(|id| *id != 0).collect()
}

#[test]
fn rpc_sh_and_host_management_sh() {
    let script = Script::new(false);
    let groups = || script.rpc("nvmf_get_stats", json!({}))["poll_groups"].as_array().expect("groups").clone();
    assert!(groups().len() == 4 && groups()[0]["transports"][0].is_null());
    script.rpc("nvmf_create_transport", json!({ "trtype": "tcp", "io_unit_size": 8192 }));
    assert_eq!(groups()[0]["transports"][0]["trtype"], "TCP");
    assert_eq!((script.count("admin_qpairs"), script.count("io_qpairs")), (0, 0));
    script.malloc("Malloc1");
    script.subsystem(NQN);
    script.add_ns(NQN, "Malloc1");
    script.rpc("nvmf_subsystem_allow_any_host", json!({ "nqn": NQN, "allow_any_host": false }));
    let address = script.listener("add", NQN, 0);
    let connect = || Host::open(address, false, false).connect(0, 32, raw::dynamic(), NQN, HOST).status;
    assert!(connect().is(Status::CONNECT_INVALID_HOST));
    script.rpc("nvmf_subsystem_add_host", json!({ "nqn": NQN, "host": HOST }));
    let mut admin = Host::admin(address);
    let _queue = io_queue(&admin, address, HOST);
    assert!(script.count("admin_qpairs") > 0 && script.count("io_qpairs") > 0);
    // Its connections end with its permission.
    script.rpc("nvmf_subsystem_remove_host", json!({ "nqn": NQN, "host": HOST }));
    assert!(admin.is_closed() && connect().is(Status::CONNECT_INVALID_HOST));
    script.rpc("nvmf_subsystem_allow_any_host", json!({ "nqn": NQN, "allow_any_host": true }));
    assert!(connect().is_ok());
    script.rpc("nvmf_delete_subsystem", json!({ "nqn": NQN }));
    for nsid in [5, 1, 5] {
        script.rpc("nvmf_create_subsystem", json!({ "nqn": NQN, "serial_number": SERIAL }));
        script.listener("add", NQN, 0);
        let namespace = json!({ "bdev_name": "Malloc1", "nsid": nsid });
        assert_eq!(script.rpc("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": namespace })), nsid);
        script.rpc("nvmf_subsystem_allow_any_host", json!({ "nqn": NQN, "allow_any_host": true }));
        assert_eq!(active(&mut Host::admin(address)), [nsid]);
        script.rpc("nvmf_subsystem_remove_ns", json!({ "nqn": NQN, "nsid": nsid }));
        script.rpc("nvmf_delete_subsystem", json!({ "nqn": NQN }));
    }
}

#[test]
fn invalid_sh_and_multitarget_sh() {
    let script = Script::new(false);
    let create = |more: Value| {
        let mut params = json!({ "nqn": NQN });
        params.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        params
    };
    script.refused("nvmf_create_subsystem", create(json!({ "tgt_name": "foobar" })), "Unable to find target");
    for serial in ["SPDKISFASTANDAWESOME\u{1f}", "\u{1f}", &"s".repeat(21)] {
        script.refused("nvmf_create_subsystem", create(json!({ "serial_number": serial })), "Invalid SN");
    }
    for model in ["SPDK_Controller\u{1f}", &"m".repeat(41)] {
        script.refused("nvmf_create_subsystem", create(json!({ "model_number": model })), "Invalid MN");
    }
    let because = "The specified target doesn't exist, cannot delete it.";
    script.refused("nvmf_delete_target", json!({ "name": "foobar" }), because);
    assert_eq!(script.rpc("nvmf_get_targets", json!({})).as_array().map(Vec::len), Some(1));
    script.refused("nvmf_create_target", json!({ "name": "nvmf_tgt_1", "max_subsystems": 32 }), "there is one target");
}

#[test]
fn ns_masking_sh() {
    let script = Script::with_transport();
    script.malloc("Malloc1");
    script.malloc("Malloc2");
    script.subsystem(NQN);
    script.rpc("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "Malloc1", "nsid": 1 } }));
    let address = script.listener("add", NQN, 0);
    let host = |verb: &str, nsid: u32| {
        script.answer(&format!("nvmf_ns_{verb}_host"), json!({ "nqn": NQN, "nsid": nsid, "host": HOST }))
    };
    let mut admin = Host::admin(address);
    assert_eq!(active(&mut admin), [1]);
    script.rpc("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "Malloc2", "nsid": 2 } }));
    assert_eq!(active(&mut admin), [1, 2]);
    script.rpc("nvmf_subsystem_remove_ns", json!({ "nqn": NQN, "nsid": 1 }));
    let masked = json!({ "bdev_name": "Malloc1", "nsid": 1, "no_auto_visible": true });
    script.rpc("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": masked }));
    for (verb, seen) in [("remove", &[2][..]), ("add", &[1, 2]), ("remove", &[2])] {
        host(verb, 1).expect("done");
        assert_eq!(active(&mut admin), seen);
        assert_eq!(active(&mut Host::admin(address)), seen);
    }
    assert!(host("remove", 2).is_err(), "every host sees it");
}

#[test]
fn referrals_sh_and_connect_cleanup_sh() {
    let script = Script::with_transport();
    let address = script.listener("add", "discovery", 0);
    let referral = |verb: &str, last: u8, subnqn: Option<&str>| {
        let to = json!({ "trtype": "tcp", "adrfam": "ipv4", "traddr": format!("127.0.0.{last}"), "trsvcid": "4430" });
        let mut params = json!({ "address": to });
        subnqn.into_iter().for_each(|nqn| params["subnqn"] = json!(nqn));
        script.rpc(&format!("nvmf_discovery_{verb}_referral"), params);
    };
    let listed = || script.rpc("nvmf_discovery_get_referrals", json!({})).as_array().expect("a list").clone();
    (2..5).for_each(|last| referral("add", last, None));
    let addresses: Vec<Value> = listed().iter().map(|it| it["address"]["traddr"].clone()).collect();
    assert_eq!(addresses, ["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    (2..5).for_each(|last| referral("remove", last, None));
    assert!(listed().is_empty());
    referral("add", 2, Some("discovery"));
    referral("add", 2, Some(NQN));
    let subnqns: Vec<Value> = listed().iter().map(|it| it["subnqn"].clone()).collect();
    assert_eq!(subnqns, [DISCOVERY_NQN, NQN]);
    referral("remove", 2, Some(NQN));
    referral("remove", 2, Some("discovery"));
    assert!(listed().is_empty());
    // A port scanner: bytes that mean nothing, and it is gone.
    let mut scanner = std::net::TcpStream::connect(address).expect("a connection");
    std::io::Write::write_all(&mut scanner, &[0xa5; 128]).expect("sent");
    drop(scanner);
    raw::until(|| script.count("current_unassociated_qpairs") == 0);
}

/// failover.sh, timeout.sh and ns_rescan_reconnect.sh take listeners away and wait for the queues to end.
#[test]
fn listeners_that_go_and_come_back() {
    let script = Script::with_transport();
    for name in ["null0", "null1", "null2"] {
        script.rpc("bdev_null_create", json!({ "name": name, "num_blocks": 64 << 11, "block_size": 512 }));
    }
    script.subsystem(NQN);
    script.add_ns(NQN, "null0");
    script.add_ns(NQN, "null1");
    let [first, second] = [0, 1].map(|port| script.listener("add", NQN, port));
    let qpairs = || script.rpc("nvmf_subsystem_get_qpairs", json!({ "nqn": NQN })).as_array().map(Vec::len);
    let admins = [Host::admin(first), Host::admin(second)];
    let queues = [io_queue(&admins[0], first, HOST), io_queue(&admins[1], second, HOST)];
    assert_eq!(qpairs(), Some(4));
    script.listener("remove", NQN, 0);
    raw::until(|| qpairs() == Some(2));
    script.listener("remove", NQN, 1);
    raw::until(|| qpairs() == Some(0));
    drop((admins, queues));
    script.rpc("bdev_null_resize", json!({ "name": "null0", "new_size": 128 }));
    script.rpc("nvmf_subsystem_remove_ns", json!({ "nqn": NQN, "nsid": 2 }));
    script.rpc("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "null2", "nsid": 3 } }));
    script.listener("add", NQN, 0);
    let mut admin = Host::admin(first);
    assert_eq!(active(&mut admin), [1, 3]);
    let page = admin.fetch(Identify { cns: cns::NAMESPACE, cntid: 0, csi: 0 }.command(1)).unwrap();
    assert_eq!(u64::from_le_bytes(page[..8].try_into().unwrap()), 128 << 11);
}

#[test]
fn nvm_limits_sh_and_zcopy_sh_and_nmic_sh() {
    let script = Script::new(false);
    script.malloc("Malloc0");
    script.rpc("nvmf_create_transport", json!({ "trtype": "tcp", "in_capsule_data_size": 0, "zcopy": true }));
    let limits = json!({ "nqn": NQN, "allow_any_host": true, "dmrsl": 8, "wzsl": 1 });
    script.rpc("nvmf_create_subsystem", limits);
    script.add_ns(NQN, "Malloc0");
    let address = script.listener("add", NQN, 0);
    // The same device again, here and in another subsystem.
    let again = json!({ "nqn": NQN, "namespace": { "bdev_name": "Malloc0", "nsid": 1 } });
    script.refused("nvmf_subsystem_add_ns", again, "Malloc0");
    script.subsystem("nqn.2016-06.io.spdk:cnode2");
    let elsewhere = json!({ "nqn": "nqn.2016-06.io.spdk:cnode2", "namespace": { "bdev_name": "Malloc0" } });
    script.refused("nvmf_subsystem_add_ns", elsewhere, "Malloc0");
    let admin = Host::admin(address);
    let mut queue = io_queue(&admin, address, HOST);
    for (blocks, status) in [(7, Status::SUCCESS), (8, Status::SUCCESS), (9, Status::INVALID_FIELD.do_not_retry())] {
        let command = Command { sgl: Sgl::transport(16), ..Range::deallocate(1, 1) };
        let got = queue.send_data(command, &Range { attributes: 0, blocks, slba: 0 }.write(), 16);
        assert_eq!(got.is_ok(), status.is_ok(), "{blocks} blocks: {got}");
        let zeroes = Command::blocks(io::WRITE_ZEROES, 1, 0, 2 * blocks);
        assert_eq!(queue.command(zeroes, &[]).status, status, "{} blocks", 2 * blocks);
    }
    let stats = script.rpc("bdev_get_iostat", json!({ "names": ["Malloc0"], "per_channel": false }));
    assert_eq!(stats["bdevs"][0]["bytes_unmapped"], 15 * 512);
}

/// dup_host_policy.sh, auth.sh and wait_for_buf.sh start with `--wait-for-rpc`.
#[test]
fn scripts_that_configure_before_the_start() {
    let script = Script::new(true);
    script.refused("nvmf_create_transport", json!({ "trtype": "tcp" }), "framework_start_init");
    script.rpc("nvmf_set_config", json!({ "dup_host_policy": "restrict_per_listener" }));
    script.rpc("accel_set_options", json!({ "small_cache_size": 0, "large_cache_size": 0 }));
    script.rpc("iobuf_set_options", json!({ "small_pool_count": 154, "small_bufsize": 8192 }));
    script.rpc("framework_start_init", json!({}));
    script.rpc("framework_wait_init", json!({}));
    let buffers = json!({ "trtype": "tcp", "io_unit_size": 8192, "num_shared_buffers": 96, "buf_cache_size": 24 });
    script.rpc("nvmf_create_transport", buffers);
    script.malloc("Malloc0");
    script.subsystem(NQN);
    script.add_ns(NQN, "Malloc0");
    let (first, second) = (script.listener("add", NQN, 0), script.listener("add", NQN, 1));
    let admin = Host::admin(first);
    let again = |address| Host::open(address, false, false).connect(0, 32, raw::dynamic(), NQN, HOST).status;
    assert!(!again(first).is_ok() && again(second).is_ok());
    // Reads of 128 KiB go through buffers of 8 KiB.
    let mut queue = io_queue(&admin, first, HOST);
    let most = admin_page(&script);
    let blocks = most / 512;
    assert_eq!(queue.read(1, 0, blocks).map(|data| data.len() as u32), Ok(most));
}

/// aer.sh, identify.sh and nsid.sh: namespaces come while a host is connected, with blocks of another size, and devices
/// go while they are namespaces.
#[test]
fn aer_sh_and_identify_sh_and_nsid_sh() {
    let script = Script::with_transport();
    script.malloc("Malloc0");
    let create = json!({ "nqn": NQN, "serial_number": SERIAL, "allow_any_host": true, "max_namespaces": 2 });
    script.rpc("nvmf_create_subsystem", create);
    let named = json!({
        "bdev_name": "Malloc0", "nguid": "ABCDEF0123456789ABCDEF0123456789", "eui64": "ABCDEF0123456789"
    });
    script.rpc("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": named }));
    let address = script.listener("add", NQN, 0);
    let mut admin = Host::admin(address);
    let mut namespace = |nsid| {
        let page = admin.fetch(Identify { cns: cns::NAMESPACE, cntid: 0, csi: 0 }.command(nsid)).unwrap();
        IdentifyNamespace::read(page.first_chunk().unwrap())
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    assert_eq!(hex(&namespace(1).nguid), "ABCDEF0123456789ABCDEF0123456789");
    assert_eq!(hex(&namespace(1).eui64), "ABCDEF0123456789");
    let uuid = "8d3b2f1c-0a5e-4c77-9b1d-3f2e1d0c0b0a";
    let other = json!({ "name": "Malloc1", "num_blocks": 64 << 8, "block_size": 4096, "uuid": uuid });
    script.rpc("bdev_malloc_create", other);
    script.rpc("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "Malloc1", "nsid": 2 } }));
    let shown = namespace(2);
    assert_eq!((shown.block_bytes(), shown.nsze), (Some(4096), 64 << 8));
    assert_eq!(hex(&shown.nguid), uuid.replace('-', "").to_uppercase(), "the NGUID is the UUID of the device");
    let third = json!({ "nqn": NQN, "namespace": { "bdev_name": "Malloc1", "nsid": 3 } });
    assert!(script.answer("nvmf_subsystem_add_ns", third).is_err(), "two namespaces at most");
    script.rpc("bdev_malloc_delete", json!({ "name": "Malloc0" }));
    script.rpc("bdev_malloc_delete", json!({ "name": "Malloc1" }));
    assert!(active(&mut admin).is_empty());
    script.rpc("nvmf_delete_subsystem", json!({ "nqn": NQN }));
}

/// nvme_cli.sh and discovery_remove_ifc.sh: the first controller has the first number of the range.
#[test]
fn nvme_cli_sh_and_discovery_remove_ifc_sh() {
    let script = Script::with_transport();
    assert_eq!(script.rpc("log_set_flag", json!({ "flag": "bdev_null" })), true);
    script.malloc("Malloc0");
    let create = json!({
        "nqn": NQN, "serial_number": SERIAL, "allow_any_host": true, "model_number": "SPDK_Controller1",
        "min_cntlid": 291
    });
    script.rpc("nvmf_create_subsystem", create);
    script.add_ns(NQN, "Malloc0");
    let address = script.listener("add", NQN, 0);
    script.listener("add", "discovery", 0);
    script.listener("add", DISCOVERY_NQN, 1);
    let mut admin = Host::admin(address);
    assert_eq!(admin.cntlid, 0x123);
    let page = admin.fetch(Identify { cns: cns::CONTROLLER, cntid: 0, csi: 0 }.command(0)).unwrap();
    assert_eq!(&page[24..64], format!("{:40}", "SPDK_Controller1").as_bytes());
    assert_eq!(page[78..80], 0x123u16.to_le_bytes());
    let other = "nqn.2016-06.io.spdk:cnode0";
    script.rpc(
        "nvmf_create_subsystem",
        json!({ "nqn": other, "allow_any_host": true, "min_cntlid": 1, "max_cntlid": 100 }),
    );
    script.listener("add", other, 0);
    let mut first = Host::open(address, false, false);
    let done = first.connect(0, 32, raw::dynamic(), other, HOST);
    assert!(done.status.is_ok() && done.result as u16 == 1, "{}", done.result as u16);
}

/// create_transport.sh, discovery.sh, connect_stress.sh and shutdown.sh: namespaces come and go under a host that only
/// connects, ten subsystems share a port, hosts with commands in progress are killed, and at the end nothing is left.
#[test]
fn connect_stress_sh_and_shutdown_sh_and_create_transport_sh() {
    let script = Script::with_transport();
    let nqn = |number: usize| format!("nqn.2016-06.io.spdk:cnode{number}");
    for number in 1..=10 {
        script.malloc(&format!("Malloc{number}"));
        let create = json!({ "nqn": nqn(number), "serial_number": format!("SPDK{number}"), "allow_any_host": true });
        script.rpc("nvmf_create_subsystem", create);
        script.add_ns(&nqn(number), &format!("Malloc{number}"));
        script.listener("add", &nqn(number), 0);
    }
    let address = SocketAddr::from(([127, 0, 0, 1], script.ports[0]));
    script.rpc("bdev_null_create", json!({ "name": "NULL1", "num_blocks": 1000 << 11, "block_size": 512 }));
    for _ in 0..20 {
        let namespace = json!({ "nqn": NQN, "namespace": { "bdev_name": "NULL1" } });
        assert_eq!(script.rpc("nvmf_subsystem_add_ns", namespace), 2);
        assert_eq!(active(&mut Host::admin(address)), [1, 2]);
        script.rpc("nvmf_subsystem_remove_ns", json!({ "nqn": NQN, "nsid": 2 }));
    }
    for number in 1..=10 {
        let admin = Host::admin_of(address, &nqn(number), HOST, false);
        let mut queue = Host::open(address, false, false);
        assert!(queue.connect(1, 128, admin.cntlid, &nqn(number), HOST).status.is_ok());
        for lba in 0..64 {
            queue.send_command(Host::read_command(1, 128 * lba, 128), &[]);
        }
        // Killed: a socket with unread data goes by a reset.
        drop((admin, queue));
    }
    raw::until(|| script.count("current_io_qpairs") == 0 && script.count("current_admin_qpairs") == 0);
    assert_eq!(script.count("pending_bdev_io"), 0);
    assert_eq!(active(&mut Host::admin(address)), [1]);
    for number in 1..=10 {
        script.rpc("nvmf_delete_subsystem", json!({ "nqn": nqn(number) }));
        script.rpc("bdev_malloc_delete", json!({ "name": format!("Malloc{number}") }));
    }
    script.rpc("bdev_null_delete", json!({ "name": "NULL1" }));
    assert_eq!(script.rpc("bdev_get_bdevs", json!({})), json!([]));
}

/// wait_for_buf.sh counts the reads that had to wait for buffers; perf_adq.sh and interrupt.sh ask for sockets, masks
/// and polling.
#[test]
fn wait_for_buf_sh_and_perf_adq_sh_and_interrupt_sh() {
    let script = Script::on(2, false);
    assert_eq!(script.rpc("iobuf_get_stats", json!({})), json!([]));
    assert_eq!(script.rpc("sock_get_default_impl", json!({})), json!({ "impl_name": "posix" }));
    let options = json!({ "impl_name": "posix", "enable_placement_id": 0, "enable_zerocopy_send_server": true });
    script.rpc("sock_impl_set_options", options);
    let buffers = json!({ "trtype": "tcp", "io_unit_size": 8192, "num_shared_buffers": 48, "buf_cache_size": 24 });
    script.rpc("nvmf_create_transport", buffers);
    script.malloc("Malloc0");
    script.subsystem(NQN);
    script.add_ns(NQN, "Malloc0");
    let address = script.listener("add", NQN, 0);
    let admin = Host::admin(address);
    let mut queue = io_queue(&admin, address, HOST);
    // The tool splits its reads of 128 KiB by the largest transfer that the target names.
    let blocks = admin_page(&script) / 512;
    let stats = || script.rpc("iobuf_get_stats", json!({}))[0].clone();
    assert_eq!(stats()["small_pool"]["main"], 0);
    for lba in 0..16 {
        queue.send_command(Host::read_command(1, 256 * lba, blocks), &[]);
    }
    let mut done = 0;
    while done < 16 {
        match queue.unit().expect("data or a response").pdu {
            nvme::pdu::Pdu::C2hData(header) => done += u32::from(header.success),
            nvme::pdu::Pdu::CapsuleResp(completion) => {
                assert_eq!(completion.status, Status::SUCCESS);
                done += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    let now = stats();
    assert_eq!((&now["module"], &now["small_pool"]["main"]), (&json!("nvmf_TCP"), &json!(16)));
    assert!(now["small_pool"]["retry"].as_u64() > Some(0) && now["large_pool"]["main"] == 0, "{now}");
    let threads = script.rpc("thread_get_stats", json!({}));
    let masks: Vec<&str> =
        threads["threads"].as_array().unwrap().iter().filter_map(|it| it["cpumask"].as_str()).collect();
    assert_eq!(masks, ["1", "2"]);
    script.refused("bdev_kvmalloc_create", json!({ "name": "KVMalloc0" }), "there are no devices of keys and values");
}

/// abort.sh: an Abort reaches a read that a device delays by a second.
#[test]
fn abort_sh() {
    let script = Script::with_transport();
    script.malloc("Malloc0");
    let late = 600_000_000; // so late that an Abort which does not reach the device fails the test by its deadline
    let delay = json!({
        "base_bdev_name": "Malloc0", "name": "Delay0", "avg_read_latency": late, "p99_read_latency": late,
        "avg_write_latency": late, "p99_write_latency": late
    });
    script.rpc("bdev_delay_create", delay);
    script.subsystem(NQN);
    script.add_ns(NQN, "Delay0");
    let address = script.listener("add", NQN, 0);
    let mut admin = Host::admin(address);
    let mut queue = io_queue(&admin, address, HOST);
    let cids: Vec<u16> = (0..4).map(|lba| queue.send_command(Host::read_command(1, lba, 1), &[])).collect();
    raw::until(|| queue_depth(&script, "Delay0") == 4);
    for cid in cids {
        let abort = Command { cdw10: 1 | u32::from(cid) << 16, ..Command::new(admin_opcode::ABORT, 0) };
        let done = admin.command(abort, &[]);
        assert!(done.status.is_ok() && done.result & 1 == 0, "the command was aborted");
        let aborted = queue.response();
        assert_eq!((aborted.cid, aborted.status), (cid, Status::ABORTED_BY_REQUEST));
    }
    script.rpc("nvmf_delete_subsystem", json!({ "nqn": NQN }));
}

/// rpc_batch_delete.sh sends the calls of a file as one batch.
#[test]
fn rpc_batch_delete_sh() {
    let script = Script::with_transport();
    let nqn = |number: usize| format!("nqn.2016-06.io.spdk:cnode{number}");
    let batch = |of: &dyn Fn(usize) -> String| {
        let calls: Vec<Value> = (1..=20)
            .map(|id| json!({ "jsonrpc": "2.0", "method": "nvmf_delete_subsystem", "params": { "nqn": of(id) }, "id": id }))
            .collect();
        let call = &mut |method: &str, params: Option<&Value>| script.control.call(method, params);
        let answers = jsonrpc::answer(json!(calls).to_string().as_bytes(), call).expect("answers");
        answers.as_array().expect("a list").clone()
    };
    let left = || {
        let all = script.rpc("nvmf_get_subsystems", json!({})).as_array().expect("a list").clone();
        all.iter().filter(|it| it["nqn"].as_str().is_some_and(|nqn| nqn.contains("cnode"))).count()
    };
    (1..=20).for_each(|number| script.subsystem(&nqn(number)));
    assert_eq!(left(), 20);
    let answers = batch(&nqn);
    assert!(answers.len() == 20 && answers.iter().all(|it| it["result"] == true) && left() == 0, "{answers:?}");
    script.subsystem(&nqn(1));
    let answers = batch(&|_| nqn(1));
    let failed: Vec<u64> =
        answers.iter().filter(|it| it["error"].is_object()).filter_map(|it| it["id"].as_u64()).collect();
    assert_eq!((failed, left()), ((2..=20).collect(), 0));
}

/// delete_subsystem.sh, ns_hotplug_stress.sh and control_msg_list.sh: things go while commands are in a slow device.
#[test]
fn delete_subsystem_sh_and_ns_hotplug_stress_sh_and_control_msg_list_sh() {
    let script = Script::new(false);
    let transport = json!({ "trtype": "tcp", "in_capsule_data_size": 768, "control_msg_num": 1, "c2h_success": false });
    script.rpc("nvmf_create_transport", transport);
    script.rpc("bdev_null_create", json!({ "name": "NULL1", "num_blocks": 1000 << 11, "block_size": 512 }));
    let second = 1_000_000;
    let delay = json!({
        "base_bdev_name": "NULL1", "name": "Delay0", "avg_read_latency": second, "p99_read_latency": second,
        "avg_write_latency": second, "p99_write_latency": second
    });
    script.rpc("bdev_delay_create", delay);
    for round in 0..3 {
        let create = json!({ "nqn": NQN, "serial_number": SERIAL, "allow_any_host": true, "max_namespaces": 10 });
        script.rpc("nvmf_create_subsystem", create);
        script.add_ns(NQN, "Delay0");
        let address = script.listener("add", NQN, 0);
        if round == 0 {
            // The port of the subsystem, too.
            script.listener("add", "discovery", 0);
        }
        let admin = Host::admin(address);
        let mut queue = io_queue(&admin, address, HOST);
        for lba in 0..10 {
            queue.send_command(Host::read_command(1, lba, 1), &[]);
            queue.send_command(Command { sgl: Sgl::in_capsule(512), ..Host::write_command(1, lba, 512) }, &[1; 512]);
        }
        raw::until(|| queue_depth(&script, "Delay0") == 20);
        script.rpc("nvmf_subsystem_remove_ns", json!({ "nqn": NQN, "nsid": 1 }));
        script.add_ns(NQN, "Delay0");
        script.rpc("bdev_null_create", json!({ "name": "NULL2", "num_blocks": 100, "block_size": 512 }));
        script.add_ns(NQN, "NULL2");
        script.rpc("bdev_null_resize", json!({ "name": "NULL2", "new_size": 1001 + round }));
        script.rpc("bdev_null_delete", json!({ "name": "NULL2" }));
        script.rpc("nvmf_delete_subsystem", json!({ "nqn": NQN }));
        while queue.unit().is_some() {}
    }
}

fn queue_depth(script: &Script, device: &str) -> u64 {
    let stats = script.rpc("bdev_get_iostat", json!({ "name": device }));
    stats["bdevs"][0]["queue_depth"].as_u64().unwrap_or(0)
}

/// The bytes of the largest read, as `nvmf_get_transports` tells them.
fn admin_page(script: &Script) -> u32 {
    let transports = script.rpc("nvmf_get_transports", json!({}));
    transports[0]["max_io_size"].as_u64().expect("a size") as u32
}

//! The control socket, through `plimsoll rpc` and as bytes: SPDK's methods, names, results and errors.

mod common;
use common::served::{NQN, Served, free_port};
use common::*;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

fn empty(directory: &Path) -> Served {
    Served::start(directory, &[])
}

fn nqn() -> String {
    format!("nqn={NQN}")
}

#[test]
fn a_target_is_made_call_by_call_and_taken_apart_again() {
    let place = directory();
    let served = empty(place.path());
    assert_eq!(served.rpc(&["nvmf_create_transport", "trtype=tcp", "max_io_size=131072"]), json!(true));
    assert_eq!(served.rpc_text(&["bdev_null_create", "name=Null0", "num_blocks=2048", "block_size=4096"]), "Null0\n");
    assert_eq!(served.rpc_text(&["bdev_malloc_create", "num_blocks=16384", "block_size=512"]), "Malloc0\n");
    assert_eq!(
        served.rpc(&["bdev_split_create", "base_bdev=Malloc0", "split_count=2"]),
        json!(["Malloc0p0", "Malloc0p1"])
    );
    let slow = ["avg_read_latency=100", "p99_read_latency=100", "avg_write_latency=0", "p99_write_latency=0"];
    let delay = [&["bdev_delay_create", "name=Slow", "base_bdev_name=Malloc0p1"], &slow[..]].concat();
    assert_eq!(served.rpc(&delay), json!("Slow"));
    assert_eq!(served.rpc(&["bdev_error_create", "base_name=Null0"]), json!(true));

    assert_eq!(served.rpc(&["nvmf_create_subsystem", &nqn(), "allow_any_host=true", "serial_number=S1"]), json!(true));
    for (device, nsid) in [("Malloc0p0", 1), ("Slow", 2), ("EE_Null0", 3)] {
        let bdev = format!("namespace.bdev_name={device}");
        assert_eq!(served.rpc(&["nvmf_subsystem_add_ns", &nqn(), &bdev]), json!(nsid));
    }
    let listen = ["listen_address.trtype=TCP", "listen_address.traddr=127.0.0.1", "listen_address.trsvcid=0"];
    assert_eq!(served.rpc(&[&["nvmf_subsystem_add_listener", &nqn()], &listen[..]].concat()), json!(true));

    let devices = served.rpc(&["bdev_get_bdevs"]);
    let names: Vec<&str> = devices.as_array().expect("devices").iter().filter_map(|d| d["name"].as_str()).collect();
    assert_eq!(names, ["Null0", "Malloc0", "Malloc0p0", "Malloc0p1", "Slow", "EE_Null0"]);
    let slow = &served.rpc(&["bdev_get_bdevs", "name=Slow"])[0];
    assert_eq!((&slow["num_blocks"], &slow["block_size"]), (&json!(8192), &json!(512)));
    assert_eq!(slow["driver_specific"]["delay"]["avg_read_latency"], 100);
    let subsystem = &served.rpc(&["nvmf_get_subsystems", &nqn()])[0];
    assert_eq!((&subsystem["serial_number"], &subsystem["namespaces"][1]["bdev_name"]), (&json!("S1"), &json!("Slow")));

    // Used, counted, changed while connected.
    let load = ["run", "--name=x", "--ioengine=nvme_tcp", "--rw=read", "--bs=4k", "--number_ios=50", "--eta=never"];
    succeed(place.path(), &[&load[..], &["--output-format=json", &served.filename(2)]].concat());
    let stats = served.rpc(&["bdev_get_iostat", "name=Slow"]);
    let slow = &stats["bdevs"][0];
    assert_eq!((&slow["num_read_ops"], &slow["bytes_read"]), (&json!(50), &json!(204_800)));
    let (ticks, rate) =
        (slow["read_latency_ticks"].as_f64().expect("ticks"), stats["tick_rate"].as_f64().expect("a rate"));
    assert!(ticks / 50.0 / rate >= 100e-6, "each read took at least the delay");
    let update = ["delay_bdev_name=Slow", "latency_type=avg_read", "latency_us=2000"];
    assert_eq!(served.rpc(&[&["bdev_delay_update_latency"], &update[..]].concat()), json!(true));
    succeed(place.path(), &[&load[..], &[&served.filename(2)]].concat());
    let later = served.rpc(&["bdev_get_iostat", "name=Slow"])["bdevs"][0]["read_latency_ticks"].as_f64();
    assert!((later.expect("ticks") - ticks) / 50.0 / rate >= 1e-3, "99 of 100 take the new one");

    let groups = served.rpc(&["nvmf_get_stats"]);
    let pacer = &groups["poll_groups"][0]["transports"][0]["io_pacer"];
    assert!(pacer["ios"].as_u64() >= Some(100), "{groups}");
    for member in ["total_ticks", "polls", "bytes", "calls", "no_ios", "period_ticks", "window_bytes", "held_now"] {
        assert!(!pacer[member].is_null(), "{member}: {pacer}");
    }

    assert_eq!(served.rpc(&["nvmf_subsystem_remove_ns", &nqn(), "nsid=2"]), json!(true));
    assert!(served.refused(&["bdev_malloc_delete", "name=Malloc0"]).contains("(code -16)"), "parts stand on it");
    for (method, name) in [
        ("bdev_delay_delete", "name=Slow"),
        ("bdev_split_delete", "base_bdev=Malloc0"),
        ("bdev_malloc_delete", "name=Malloc0"),
    ] {
        assert_eq!(served.rpc(&[method, name]), json!(true), "{method}");
    }
    let subsystem = &served.rpc(&["nvmf_get_subsystems", &nqn()])[0];
    let left: Vec<&Value> = subsystem["namespaces"].as_array().expect("some").iter().map(|n| &n["nsid"]).collect();
    assert_eq!(left, [&json!(3)], "namespaces of deleted devices are gone");
    assert_eq!(served.rpc(&["nvmf_delete_subsystem", &nqn()]), json!(true));
    served.end();
}

#[test]
fn errors_say_what_is_wrong_under_spdks_codes() {
    let place = directory();
    let served = empty(place.path());
    let null = ["bdev_null_create", "name=N", "num_blocks=100", "block_size=512"];
    assert!(served.refused(&null[..2]).contains("num_blocks is missing (capacity in blocks) (code -32602)"));
    served.rpc(&null);
    for (words, part) in [
        (&["bdev_nvme_attach_controller", "name=x"][..], "Method not found: bdev_nvme_attach_controller"),
        (&null[..], "(code -17)"),
        (&["bdev_null_create", "nam=x"], "there is no parameter nam; did you mean name?; there are name, num_blocks"),
        (&["bdev_null_create", "name=x", "num_blocks=-1", "block_size=512"], "num_blocks takes a whole number, not -1"),
        (&["bdev_null_create", "name=x", "num_blocks=1", "block_size=1000"], "block_size 1000 is not a power of two"),
        (&["bdev_null_create", "name=x", "num_blocks=0", "block_size=512"], "num_blocks must be at least 1"),
        (&["bdev_null_create", "name=x", "num_blocks=1", "block_size=512", "md_size=8"], "md_size must be 0, not 8"),
        (
            &["bdev_set_qos_limit", "name=N", "rw_mbytes_per_sec=18446744073709551615"],
            "give at most 17592186044415 MiB/s",
        ),
        (&["nvmf_set_crdt", "crdt1=1"], "crdt1 must be 0, not 1: hosts may send a command again without a delay"),
        (&["framework_set_scheduler", "name=dynamic"], "name must be \"static\""),
        (&["framework_set_scheduler", "name=static", "period=1000"], "period must be 0, not 1000"),
        (&["framework_enable_cpumask_locks"], "the target does not lock processors"),
        (&["bdev_nvme_set_hotplug", "enable=true", "period_us=1000"], "enable must be false, not true"),
        (&["nvmf_create_subsystem", &nqn(), "tgt_name=foobar"], "Unable to find target \"foobar\""),
        (&["nvmf_create_subsystem", &nqn(), "serial_number=123456789012345678901"], "Invalid SN"),
        (&["nvmf_create_subsystem", &nqn(), "model_number=SPDK_Controller\x1f"], "Invalid MN"),
        (&["nvmf_set_config", "conn_sched=hostip"], "conn_sched must be \"roundrobin\""),
        (&["nvmf_set_config", "poll_groups_mask=0x3"], "start `plimsoll serve` with --cores 0,1"),
        (&["nvmf_set_config", "poll_groups_mask=x"], "is not a mask of processors"),
        (&["nvmf_get_transports", "trtype=RDMA"], "there is none: call nvmf_create_transport (code -19)"),
        (
            &["nvmf_subsystem_add_listener", &nqn(), "listen_address.traddr=::1", "sock_impl=ssl"],
            "sock_impl takes one of posix, uring, not \"ssl\"",
        ),
        (&["bdev_get_bdevs", "name=M", "timeout=1"], "No such device: M; there are N (code -19)"),
        (
            &["log_enable_timestamps", "enabled=true"],
            "Method not found: log_enable_timestamps: lines on standard error",
        ),
        (&["log_set_level", "level=LOUD"], "level takes one of ERROR, WARNING, NOTICE, INFO, DEBUG, not \"LOUD\""),
        (&["trace_get_info"], "Method not found: trace_get_info: there are no trace points"),
        (&["bdev_get_iostat", "names=[\"M\"]"], "No such device: M"),
        (&["nvmf_set_config", "admin_cmd_passthru={\"identify_ctrlr\": true}"], "identify_ctrlr must be false"),
        (&["sock_set_default_impl", "impl_name=ssl"], "impl_name takes one of posix, uring, not \"ssl\""),
        (&["keyring_linux_set_options", "enable=true"], "enable must be false, not true: keys come from files"),
        (&["bdev_malloc_delete", "name=N"], "N was made by bdev_null_create"),
        (&["bdev_null_delete", "name=M"], "No such device: M; there are N (code -19)"),
        (&["bdev_aio_create", "name=x", "filename=/nowhere/x"], "/nowhere/x"),
        (&["bdev_split_create", "base_bdev=N", "split_count=200"], "1 to 100 parts"),
        (&["nvmf_create_transport", "trtype=FC"], "Invalid transport type 'FC': this target speaks TCP and RDMA"),
        (&["nvmf_get_subsystems", "nqn=nqn.2016-06.io.spdk:none"], "No such subsystem"),
        (&["nvmf_subsystem_add_ns", "nqn=nqn.2016-06.io.spdk:none", "namespace.bdev_name=N"], "(code -19)"),
        (&["framework_get_config", "name=vhost"], "there are keyring, bdev and nvmf"),
        (&["nvmf_subsystem_add_ns", "namespace=N"], "namespace takes an object with bdev_name"),
        (&["spdk_kill_instance", "sig_name=SIGSTOP"], "sig_name takes one of"),
    ] {
        let told = served.refused(words);
        assert!(told.contains(part), "{words:?}: {told}");
    }
    let told = refused(place.path(), &["rpc", "-s", "nowhere.sock", "rpc_get_methods"]);
    assert!(told.contains("nowhere.sock: no target is listening there: start `plimsoll serve`"), "{told}");
    let told = refused(place.path(), &["rpc", "-s", "nowhere.sock", "bdev_null_create", "Null0"]);
    assert!(told.contains("\"Null0\" is not a parameter (expected NAME=VALUE)"), "{told}");
    served.end();
}

#[test]
fn the_socket_takes_requests_as_spdks_clients_send_them() {
    let place = directory();
    let served = empty(place.path());
    let two = b"{\"jsonrpc\":\"2.0\",\"method\":\"spdk_get_version\",\"id\":1}{\n  \"method\": \"framework_wait_init\",\n  \"id\": \"b\"\n}";
    let answers = served.say(two);
    assert_eq!(answers.len(), 2, "without a delimiter, one of them over several lines");
    assert_eq!(answers[0]["result"]["version"], concat!("plimsoll ", env!("CARGO_PKG_VERSION")));
    assert_eq!((&answers[1]["id"], &answers[1]["result"]), (&json!("b"), &json!(true)));

    let batch =
        br#"[{"method":"framework_wait_init","id":1},{"method":"framework_wait_init"},{"method":"none","id":2},7]"#;
    let answers = served.say(batch);
    let codes: Vec<&Value> = answers[0].as_array().expect("one array").iter().map(|a| &a["error"]["code"]).collect();
    assert_eq!(codes, [&Value::Null, &json!(-32601), &json!(-32600)], "a notification has no answer");

    let answers = served.say(b"{oops}{\"method\":\"framework_wait_init\",\"id\":3}");
    assert_eq!((&answers[0]["error"]["code"], &answers[1]["id"]), (&json!(-32700), &json!(3)));
    for lost in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{\"method\":", b"}"] {
        assert_eq!(served.say(lost)[0]["error"]["code"], -32700);
    }
    assert_eq!(served.rpc(&["framework_wait_init"]), json!(true), "bad clients harm nobody else");
    served.end();
}

#[test]
fn a_saved_configuration_makes_the_same_target_again() {
    let place = directory();
    let key = file(place.path(), "key", "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
    let served = Served::one_line(place.path(), &["--null", "1g", "--file", "disk.img", "--create", "8m"]);
    served.rpc(&["keyring_file_add_key", "name=k", &format!("path={}", key.display())]);
    let host = "host=nqn.2016-06.io.spdk:ours";
    served.rpc(&["nvmf_subsystem_add_host", &nqn(), host, "dhchap_key=k"]);
    served.rpc(&["bdev_null_resize", "name=Null0", "new_size=2048"]);
    served.rpc(&["nvmf_subsystem_allow_any_host", &nqn(), "allow_any_host=false"]);
    served.rpc(&["bdev_malloc_create", "name=M", "num_blocks=1024", "block_size=512"]);
    served.rpc(&["bdev_split_create", "base_bdev=M", "split_count=2"]);
    let saved = served.rpc(&["save_config"]);
    let subsystems = served.rpc(&["nvmf_get_subsystems"]);
    let devices = served.rpc(&["bdev_get_bdevs"]);
    assert!(served.refused(&["keyring_file_remove_key", "name=k"]).contains("uses the key k"));
    served.end();

    let config = file(place.path(), "saved.json", saved.to_string());
    let served = Served::start(place.path(), &["-c", config.to_str().expect("text")]);
    assert_eq!(served.rpc(&["save_config"]), saved);
    assert_eq!(served.rpc(&["nvmf_get_subsystems"]), subsystems);
    assert_eq!(served.rpc(&["bdev_get_bdevs"]), devices);
    served.end();

    // And into a target that runs already, through a pipe.
    let served = empty(place.path());
    let mut load = plimsoll(place.path())
        .args(["rpc", "-s", served.socket(), "load_config"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("the program starts");
    load.stdin.take().expect("a pipe").write_all(saved.to_string().as_bytes()).expect("it reads");
    assert!(load.wait().expect("it ends").success());
    assert_eq!(served.rpc(&["nvmf_get_subsystems"]), subsystems);
    served.end();
}

#[test]
fn keys_of_others_are_not_told_and_files_that_others_read_hold_none() {
    let place = directory();
    let served = empty(place.path());
    let secret = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let key = file(place.path(), "key", secret);
    let path = format!("path={}", key.display());
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("it is ours");
    assert!(served.refused(&["keyring_file_add_key", "name=k", &path]).contains("chmod 600 it"));
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
    served.rpc(&["keyring_file_add_key", "name=k", &path]);
    assert!(!served.rpc_text(&["keyring_get_keys"]).contains("AAEC"));
    file(place.path(), "key", secret.replace("AAEC", "AAED"));
    let told = served.refused(&["keyring_file_add_key", "name=l", &path]);
    assert!(told.contains("its checksum is wrong") && !told.contains("AAED"), "{told}");
    served.end();
}

#[test]
fn a_target_may_wait_to_be_configured_and_be_ended_by_a_call() {
    let place = directory();
    let served = Served::start(place.path(), &["--wait-for-rpc"]);
    let null = ["bdev_null_create", "name=N", "num_blocks=100", "block_size=512"];
    assert!(served.refused(&null).contains("after framework is initialized"));
    let now = served.rpc(&["rpc_get_methods", "current=true"]);
    assert!(now.as_array().expect("names").iter().all(|name| name != "bdev_null_create"));
    assert_eq!(served.rpc(&["iobuf_set_options", "small_pool_count=8192"]), json!(true));
    assert_eq!(served.rpc(&["framework_start_init"]), json!(true));
    assert_eq!(served.rpc(&["framework_wait_init"]), json!(true));
    served.rpc(&null);
    assert_eq!(served.rpc(&["spdk_kill_instance", "sig_name=SIGTERM"]), json!(true));
    let (status, _, err) = served.wait();
    assert_eq!(status.code(), Some(0), "{err}");
    assert!(err.contains("accepted, without effect here: iobuf_set_options"), "{err}");

    let served = empty(place.path());
    let _ = served.try_rpc(&["spdk_kill_instance", "sig_name=SIGKILL"]);
    let socket = served.socket().to_string();
    assert_eq!(served.wait().0.code(), Some(137));
    assert!(!Path::new(&socket).exists());
}

#[test]
fn every_method_is_listed_explained_and_documented() {
    let place = directory();
    let served = empty(place.path());
    let names = served.rpc(&["rpc_get_methods"]);
    let help = stdout(&succeed(place.path(), &["rpc"]));
    let made = stdout(&succeed(place.path(), &["rpc", "--markdown"]));
    for name in names.as_array().expect("names").iter().filter_map(Value::as_str) {
        assert!(help.contains(&format!("  {name} ")), "{name} in the help");
        assert!(made.contains(name), "{name} in the page");
        let one = stdout(&succeed(place.path(), &["rpc", name, "--help"]));
        assert!(one.starts_with(&format!("{name}: ")), "{one}");
    }
    let committed =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rpc.md")).expect("the page");
    assert!(made == committed, "docs/rpc.md is out of date: `make docs` writes it anew");
    served.end();
}

/// Parameters that SPDK's rpc.py sends with their defaults ask for what happens anyway.
#[test]
fn spdks_defaults_are_accepted() {
    let place = directory();
    let served = empty(place.path());
    let null =
        ["bdev_null_create", "name=N", "num_blocks=100", "block_size=512", "physical_block_size=512", "md_size=0"];
    served.rpc(&null);
    for words in [
        &["framework_get_config", "name=bdev", "with_batches=false"][..],
        &["bdev_get_iostat", "per_channel=false", "reset_mode=none", "names=[\"N\"]"],
        &[
            "bdev_malloc_create",
            "num_blocks=8",
            "block_size=512",
            "md_interleave=false",
            "optimal_io_boundary=0",
            "numa_id=-1",
        ],
        &["nvmf_set_max_subsystems", "max_subsystems=1024"],
        &["nvmf_set_crdt", "crdt1=0", "crdt2=0", "crdt3=0"],
        &["bdev_set_qos_limit", "name=N", "rw_ios_per_sec=0"],
        &["bdev_reset_iostat", "mode=all"],
        &["bdev_enable_histogram", "name=N", "enable=true"],
        &["bdev_get_histogram", "name=N"],
        &["thread_get_pollers"],
        &["framework_get_scheduler"],
        &["log_get_flags"],
        &["log_get_level"],
        &["log_set_print_level", "level=ERROR"],
        &["log_get_print_level"],
        &["log_set_print_level", "level=WARNING"],
        &["log_set_level", "level=DEBUG"],
        &["framework_set_scheduler", "name=static", "period=0"],
        &["bdev_nvme_set_hotplug", "enable=false", "period_us=100000"],
        &["bdev_get_bdevs", "name=N", "timeout=2000"],
        &["bdev_reset_iostat", "mode=error"],
        &["nvmf_create_transport", "trtype=TCP", "no_srq=false", "c2h_success=true", "zcopy=false", "sock_priority=0"],
        &[
            "nvmf_create_subsystem",
            &nqn(),
            "ana_reporting=false",
            "min_cntlid=1",
            "max_cntlid=65519",
            "enable_nssr=false",
        ],
        &["nvmf_subsystem_add_ns", &nqn(), "namespace.bdev_name=N", "namespace.no_auto_visible=false"],
    ] {
        served.rpc(words);
    }
    let file = place.path().join("disk");
    std::fs::write(&file, [0; 8192]).expect("written");
    let aio = ["bdev_aio_create", "name=A", "readonly=false", "fallocate=false", "nowait=false", "block_size=512"];
    served.rpc(&[&aio[..], &[&format!("filename={}", file.display())]].concat());
    // The limit is kept.
    served.rpc(&["nvmf_set_max_subsystems", "max_subsystems=2"]);
    let told = served.refused(&["nvmf_create_subsystem", "nqn=nqn.2016-06.io.spdk:cnode2"]);
    assert!(told.contains("there are 2 subsystems") && told.contains("(code -28)"), "{told}");
    served.end();
}

/// As SPDK's test/nvmf/target/rpc.sh reads it: there is no transport in the counters before there is one.
#[test]
fn the_transport_is_shown_once_it_is_made_with_the_limits_that_were_asked_for() {
    let place = directory();
    let served = empty(place.path());
    assert_eq!(served.rpc(&["nvmf_get_stats"])["poll_groups"][0]["transports"], json!([]));
    assert_eq!(served.rpc(&["nvmf_get_transports"]), json!([]));
    let limits = ["max_aq_depth=64", "ack_timeout=5000", "kas=20", "c2h_success=false"];
    served.rpc(&[&["nvmf_create_transport", "trtype=TCP"], &limits[..]].concat());
    assert_eq!(served.rpc(&["nvmf_get_stats"])["poll_groups"][0]["transports"][0]["trtype"], "TCP");
    let transport = &served.rpc(&["nvmf_get_transports", "trtype=tcp"])[0];
    for (name, value) in
        [("max_aq_depth", json!(64)), ("ack_timeout", json!(5000)), ("kas", json!(20)), ("c2h_success", json!(false))]
    {
        assert_eq!(transport[name], value, "{name}: {transport}");
    }
    served.end();
}

/// `bdev_get_bdevs` waits for a device that another client is about to make.
#[test]
fn a_client_can_wait_for_a_device() {
    let place = directory();
    let served = empty(place.path());
    let wait = plimsoll(place.path())
        .args(["rpc", "-s", served.socket(), "bdev_get_bdevs", "name=Late", "timeout=600000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    served.rpc(&["bdev_null_create", "name=Early", "num_blocks=8", "block_size=512"]);
    served.rpc(&["bdev_null_create", "name=Late", "num_blocks=8", "block_size=512"]);
    let output = wait.wait_with_output().expect("its end");
    assert!(output.status.success() && stdout(&output).contains("\"Late\""), "{}", stdout(&output));
    served.end();
}

/// With `fallocate=false` a file keeps its blocks, whatever a host deallocates.
#[test]
fn a_file_that_is_not_to_be_deallocated_keeps_its_blocks() {
    let place = directory();
    let served = empty(place.path());
    served.rpc(&["nvmf_create_transport", "trtype=TCP"]);
    served.rpc(&["nvmf_create_subsystem", &nqn(), "allow_any_host=true"]);
    let address = ["listen_address.traddr=127.0.0.1", "listen_address.trsvcid=0"];
    served.rpc(&[&["nvmf_subsystem_add_listener", &nqn()], &address[..]].concat());
    for (nsid, name) in [(1, "kept"), (2, "freed")] {
        let file = place.path().join(name);
        std::fs::write(&file, [7; 64 << 10]).expect("written");
        std::fs::File::open(&file).and_then(|file| file.sync_all()).expect("its blocks are allocated");
        let aio = [&format!("name={name}"), &format!("filename={}", file.display()), "block_size=4096"];
        let keeps = format!("fallocate={}", name == "freed");
        served.rpc(&[&["bdev_aio_create", &keeps], &aio[..]].concat());
        let unmap = &served.rpc(&["bdev_get_bdevs", &format!("name={name}")])[0]["supported_io_types"]["unmap"];
        assert_eq!(*unmap, json!(name == "freed"));
        served.rpc(&["nvmf_subsystem_add_ns", &nqn(), &format!("namespace.bdev_name={name}")]);
        let load = ["run", "--name=x", "--ioengine=nvme_tcp", "--rw=trim", "--bs=4k", "--size=64k", "--eta=never"];
        succeed(place.path(), &[&load[..], &[&served.filename(nsid)]].concat());
    }
    let blocks = |name: &str| {
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(place.path().join(name)).expect("it is there"))
    };
    assert_eq!(std::fs::read(place.path().join("kept")).expect("its content"), [7; 64 << 10]);
    assert_eq!((blocks("kept"), blocks("freed")), (128, 0));
    served.end();
}

/// A namespace with no_auto_visible is there for the hosts that are named, also in a target that loads what was saved.
#[test]
fn a_namespace_is_shown_to_the_hosts_that_are_named() {
    const MINE: &str = "nqn.2014-08.org.nvmexpress:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f";
    const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:10010203-0405-0607-0809-0a0b0c0d0e0f";
    let place = directory();
    let served = Served::one_line(place.path(), &["--null", "1g"]);
    served.rpc(&["bdev_null_create", "name=Masked", "num_blocks=2048", "block_size=4096"]);
    let masked = ["namespace.bdev_name=Masked", "namespace.no_auto_visible=true"];
    assert_eq!(served.rpc(&[&["nvmf_subsystem_add_ns", &nqn()], &masked[..]].concat()), json!(2));
    let sees = |served: &Served, host: &str| {
        let load = ["run", "--name=x", "--ioengine=nvme_tcp", "--rw=read", "--bs=4k", "--number_ios=5", "--eta=never"];
        let (host, filename) = (format!("--hostnqn={host}"), served.filename(2));
        let words = [&load[..], &[&host, &filename]].concat();
        run(place.path(), &words).status.success()
    };
    let call = |method: &str, nsid: u32, host: &str| {
        [String::from(method), nqn(), format!("nsid={nsid}"), format!("host={host}")]
    };
    let told = |served: &Served, words: [String; 4]| served.rpc(&words.each_ref().map(String::as_str));
    let refused = |words: [String; 4]| served.refused(&words.each_ref().map(String::as_str));
    assert!(!sees(&served, MINE));
    assert_eq!(told(&served, call("nvmf_ns_add_host", 2, MINE)), json!(true));
    assert!(sees(&served, MINE) && !sees(&served, OTHER));
    let shown = &served.rpc(&["nvmf_get_subsystems", &nqn()])[0]["namespaces"][1];
    assert_eq!((&shown["no_auto_visible"], &shown["hosts"]), (&json!(true), &json!([{ "nqn": MINE }])));
    assert!(refused(call("nvmf_ns_add_host", 1, MINE)).contains("every host sees namespace 1"));
    assert!(refused(call("nvmf_ns_add_host", 3, MINE)).contains("no namespace 3"));
    assert!(refused(call("nvmf_ns_add_host", 2, "mine")).contains("mine"));

    let saved = served.rpc_text(&["save_config"]);
    assert_eq!(saved.matches("nvmf_ns_add_host").count(), 1, "{saved}");
    let config = file(place.path(), "saved.json", &saved);
    told(&served, call("nvmf_ns_remove_host", 2, MINE));
    assert!(!sees(&served, MINE));
    assert!(!served.rpc_text(&["save_config"]).contains("nvmf_ns_add_host"));
    told(&served, call("nvmf_ns_add_host", 2, OTHER));
    served.rpc(&["bdev_null_delete", "name=Masked"]);
    assert!(!served.rpc_text(&["save_config"]).contains("nvmf_ns_add_host"), "the list goes with the device");
    served.end();
    let again = Served::start(place.path(), &["-c", &config.display().to_string()]);
    assert!(sees(&again, MINE) && !sees(&again, OTHER));
    again.end();
}

/// The discovery service has listeners of its own, and names others.
#[test]
fn discovery_has_listeners_and_referrals() {
    let place = directory();
    let served = empty(place.path());
    served.rpc(&["nvmf_create_transport", "trtype=TCP"]);
    let discovery = "nqn=nqn.2014-08.org.nvmexpress.discovery";
    let listen = ["listen_address.trtype=TCP", "listen_address.traddr=127.0.0.1", "listen_address.trsvcid=0"];
    served.rpc(&[&["nvmf_subsystem_add_listener", discovery], &listen[..]].concat());
    let at = served.rpc(&["nvmf_subsystem_get_listeners", discovery])[0]["address"]["trsvcid"].clone();
    assert_eq!(served.rpc(&["nvmf_get_subsystems"])[0]["listen_addresses"][0]["trsvcid"], at);
    let referred = ["address.trtype=tcp", "address.traddr=192.0.2.1", "address.trsvcid=8009"];
    let add = [&["nvmf_discovery_add_referral"], &referred[..]].concat();
    assert_eq!(served.rpc(&add), json!(true));
    assert!(served.refused(&add).contains("(code -17)"));
    let referrals = served.rpc(&["nvmf_discovery_get_referrals"]);
    assert_eq!(referrals[0]["address"]["traddr"], "192.0.2.1");
    let saved = served.rpc(&["save_config"]);
    assert!(saved.to_string().contains("nvmf_discovery_add_referral"), "{saved}");
    let config = file(place.path(), "saved.json", saved.to_string());
    served.rpc(&["nvmf_subsystem_allow_any_host", discovery, "allow_any_host=true"]);
    assert!(
        served.refused(&["nvmf_subsystem_allow_any_host", discovery, "allow_any_host=false"]).contains("every host")
    );

    // As SPDK's test/nvmf/target/referrals.sh: a subsystem of another target, at the same address.
    let subsystem = [&referred[..], &["subnqn=nqn.2016-06.io.spdk:cnode9"]].concat();
    served.rpc(&[&["nvmf_discovery_add_referral"], &subsystem[..]].concat());
    let both = served.rpc(&["nvmf_discovery_get_referrals"]);
    let of = |name: &str| both.as_array().expect("two").iter().map(|one| one[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("subtype"), ["discovery", "nvme"]);
    assert_eq!(of("subnqn"), ["nqn.2014-08.org.nvmexpress.discovery", "nqn.2016-06.io.spdk:cnode9"]);
    served.rpc(&[&["nvmf_discovery_remove_referral"], &subsystem[..]].concat());
    assert_eq!(served.rpc(&["nvmf_discovery_get_referrals"]).as_array().map(Vec::len), Some(1));
    let remove = [&["nvmf_discovery_remove_referral"], &referred[..]].concat();
    assert_eq!(served.rpc(&remove), json!(true));
    assert!(served.refused(&remove).contains("(code -19)"));
    assert_eq!(served.rpc(&["nvmf_discovery_get_referrals"]), json!([]));
    let gone = listen.map(|word| {
        if word.ends_with("=0") {
            format!("listen_address.trsvcid={}", at.as_str().expect("a port"))
        } else {
            word.into()
        }
    });
    let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
    served.rpc(&[&["nvmf_subsystem_remove_listener", discovery], &gone[..]].concat());
    assert_eq!(served.rpc(&["nvmf_subsystem_get_listeners", discovery]), json!([]));
    served.end();

    // Into a target that waits for it: what may be called before is, and the rest afterwards.
    let served = Served::start(place.path(), &["--wait-for-rpc"]);
    served.rpc_text(&["load_config", config.to_str().expect("text")]);
    assert_eq!(served.rpc(&["nvmf_discovery_get_referrals"]), referrals);
    assert_eq!(served.rpc(&["framework_start_init"]), json!(true), "scripts call it after load_config");
    let now = served.rpc(&["rpc_get_methods", "current=true"]);
    assert!(!now.as_array().expect("names").contains(&json!("framework_start_init")));
    served.end();
}

/// The ANA states of two listeners: set, shown, saved, and kept by `--state` through a kill.
#[test]
fn ana_states_are_set_shown_and_kept() {
    let place = directory();
    let ports = [free_port(), free_port()].map(|port| port.to_string());
    let listen = ports.clone().map(|port| format!("127.0.0.1:{port}"));
    let words = ["--null", "8m", "--null", "8m", "--ana", "--listen", &listen[0], "--listen", &listen[1]];
    let mut served = Served::start(place.path(), &[&words[..], &["--state", "kept"]].concat());
    let at = |port: &str| ["listen_address.traddr=127.0.0.1".into(), format!("listen_address.trsvcid={port}")];
    let set = |port: &str, more: &[&str]| {
        let words = ["nvmf_subsystem_listener_set_ana_state".to_string(), nqn()].into_iter().chain(at(port));
        words.chain(more.iter().map(|word| word.to_string())).collect::<Vec<_>>()
    };
    let call = |served: &Served, port: &str, more: &[&str]| {
        served.rpc(&set(port, more).iter().map(String::as_str).collect::<Vec<_>>())
    };
    let refused = |served: &Served, port: &str, more: &[&str]| {
        served.refused(&set(port, more).iter().map(String::as_str).collect::<Vec<_>>())
    };
    let states = |served: &Served| {
        let listeners = served.rpc(&["nvmf_subsystem_get_listeners", &nqn()]);
        let of = |listener: &Value| {
            let states = listener["ana_states"].as_array().expect("states").iter().take(3);
            states.map(|one| one["ana_state"].as_str().expect("a state").to_string()).collect::<Vec<_>>().join(" ")
        };
        listeners.as_array().expect("listeners").iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(states(&served), ["optimized optimized optimized"; 2]);
    assert_eq!(call(&served, &ports[0], &["ana_state=inaccessible"]), json!(true));
    assert_eq!(call(&served, &ports[1], &["ana_state=inaccessible", "anagrpid=3"]), json!(true));
    assert_eq!(call(&served, &ports[1], &["ana_state=non_optimized", "anagrpid=3"]), json!(true));
    assert_eq!(call(&served, &ports[0], &["ana_state=optimized", "anagrpid=2"]), json!(true));
    let expected = ["inaccessible optimized inaccessible", "optimized optimized non_optimized"];
    assert_eq!(states(&served), expected);
    let group = ["nvmf_subsystem_set_ns_ana_group", &nqn(), "nsid=2", "anagrpid=3"];
    assert_eq!(served.rpc(&group), json!(true));
    let shown = |served: &Served| {
        let subsystem = &served.rpc(&["nvmf_get_subsystems", &nqn()])[0];
        let groups = subsystem["namespaces"].as_array().expect("some").iter().map(|it| it["anagrpid"].clone());
        (subsystem["ana_reporting"].clone(), groups.collect::<Vec<_>>())
    };
    assert_eq!(shown(&served), (json!(true), vec![json!(1), json!(3)]));

    for (line, part) in [
        (refused(&served, &ports[0], &["ana_state=lost"]), "one of optimized, non_optimized, inaccessible, not"),
        (refused(&served, &ports[0], &["ana_state=optimized", "anagrpid=33"]), "give 1 to 32 (max_namespaces)"),
        (refused(&served, "1", &["ana_state=optimized"]), "does not listen on 127.0.0.1:1"),
        (refused(&served, &ports[0], &[]), "ana_state is missing"),
        (served.refused(&["nvmf_subsystem_set_ns_ana_group", &nqn(), "nsid=2", "anagrpid=0"]), "ANA group 0"),
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    // The listener of the closed path is saved as closed: it never opens on the way to the states that it had.
    let saved = served.rpc_text(&["save_config"]);
    assert_eq!(saved.matches("nvmf_subsystem_listener_set_ana_state").count(), 2, "{saved}");
    assert_eq!(saved.matches("\"inaccessible\"").count(), 1, "{saved}");
    served.kill();
    served.restart();
    assert_eq!(states(&served), expected);
    assert_eq!(shown(&served), (json!(true), vec![json!(1), json!(3)]));
    served.end();
    let config = file(place.path(), "saved.json", saved);
    let served = Served::start(place.path(), &["-c", config.to_str().expect("text")]);
    assert_eq!(states(&served), expected);
    let gone = at(&ports[0]);
    served.rpc(&["nvmf_subsystem_remove_listener", &nqn(), &gone[0], &gone[1]]);
    assert!(!served.rpc_text(&["save_config"]).contains("inaccessible"), "the states go with their listener");
    let again = ["nvmf_subsystem_add_listener", &nqn(), &gone[0], &gone[1], "ana_state=inaccessible"];
    served.rpc(&again);
    assert_eq!(states(&served), ["optimized optimized non_optimized", "inaccessible inaccessible inaccessible"]);
    served.end();

    let served = Served::one_line(place.path(), &["--null", "8m"]);
    let port = served.port().to_string();
    assert!(refused(&served, &port, &["ana_state=optimized"]).contains("create it with ana_reporting=true"));
    assert!(served.refused(&again).contains("create it with ana_reporting=true"));
    assert_eq!(served.rpc(&["nvmf_subsystem_get_listeners", &nqn()])[0]["ana_states"], Value::Null);
    served.end();
}

/// A host is listed queue by queue while it is connected.
#[test]
fn each_queue_pair_has_its_peer() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--null", "1g"]);
    let mut load = plimsoll(place.path());
    load.args(["run", "--name=x", "--ioengine=nvme_tcp", "--rw=read", "--bs=4k", "--time_based", "--runtime=600"]);
    load.args(["--eta=never", "--nr_io_queues=3", "--iodepth=4", &served.filename(1)]);
    let mut load = load.stdout(Stdio::null()).spawn().expect("it starts");
    let mine = loop {
        let queues = served.rpc(&["nvmf_subsystem_get_qpairs", &nqn()]);
        let queues = queues.as_array().expect("an array");
        // The files were looked at by another controller before, which may be on its way out: this is the last one.
        let of_last = |queue: &&Value| queue["cntlid"] == queues[queues.len() - 1]["cntlid"];
        let mine: Vec<Value> = queues.iter().filter(of_last).cloned().collect();
        if mine.len() == 4 {
            break mine;
        }
        assert!(load.try_wait().expect("its status").is_none(), "it has ended");
    };
    load.kill().and_then(|()| load.wait()).expect("its end");
    let (ids, ports): (Vec<_>, std::collections::BTreeSet<_>) = mine
        .iter()
        .map(|queue| {
            assert_eq!(queue["peer_address"]["traddr"], "127.0.0.1", "{queue}");
            (queue["qid"].as_u64(), queue["peer_address"]["trsvcid"].as_str().expect("a port").to_string())
        })
        .unzip();
    assert_eq!(ids, [Some(0), Some(1), Some(2), Some(3)]);
    assert_eq!(ports.len(), 4, "a connection each");
    served.end();
}

/// A call of SPDK chooses the methods that hosts may authenticate with, and the choice is saved.
#[test]
fn digests_and_groups_of_authentication_can_be_narrowed() {
    let place = directory();
    let served = empty(place.path());
    let narrow = ["nvmf_set_config", "dhchap_digests=[\"sha256\"]", "dhchap_dhgroups=[\"null\", \"ffdhe2048\"]"];
    assert_eq!(served.rpc(&narrow), json!(true));
    let line = served.refused(&["nvmf_set_config", "dhchap_digests=[\"md5\"]"]);
    assert!(line.contains("sha256, sha384, sha512"), "{line}");
    let saved = served.rpc_text(&["save_config"]);
    assert!(saved.contains("nvmf_set_config") && saved.contains("ffdhe2048") && !saved.contains("sha512"), "{saved}");
    // As SPDK saves it.
    let whole = ["nvmf_set_config", "admin_cmd_passthru={\"identify_ctrlr\": false}", "discovery_filter=match_any"];
    assert_eq!(served.rpc(&whole), json!(true));
    served.end();
}

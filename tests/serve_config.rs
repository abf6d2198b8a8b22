//! Configuration files: those that are shipped, and those that SPDK saves.

mod common;
use common::served::Served;
use common::*;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

fn shipped() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let entries = std::fs::read_dir(directory).expect("configs/");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

/// A shipped configuration on a free port, its files in `directory`.
fn moved(path: &Path, directory: &Path) -> PathBuf {
    let text = std::fs::read_to_string(path).expect("a configuration");
    let here = format!("{}/", directory.display());
    let text = text.replace("\"trsvcid\": \"4420\"", "\"trsvcid\": \"0\"").replace("/var/tmp/", &here);
    file(directory, path.file_name().and_then(|name| name.to_str()).expect("a name"), text)
}

#[test]
fn every_shipped_configuration_is_served() {
    let names: Vec<String> =
        shipped().iter().map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    for wanted in ["null_1", "null_16", "null_16_num_buffers", "files_16", "files_16_num_buffers", "split3_delay"] {
        assert!(names.iter().any(|name| name == wanted), "configs/{wanted}.json is missing");
    }
    for path in shipped() {
        let place = directory();
        let config = moved(&path, place.path());
        let served = Served::start(place.path(), &["-c", config.to_str().expect("text")]);
        let subsystems = served.rpc(&["nvmf_get_subsystems"]);
        let namespaces = subsystems[1]["namespaces"].as_array().expect("namespaces").len();
        let name = path.file_stem().expect("a name").to_string_lossy();
        let expected = match name.split('_').collect::<Vec<_>>()[..] {
            ["null", "1", ..] => 1,
            ["null" | "files", "16", ..] => 16,
            ["split3", ..] => 48,
            _ => 2,
        };
        assert_eq!(namespaces, expected, "{name}");
        let load =
            ["run", "--name=x", "--ioengine=nvme_tcp", "--rw=read", "--bs=128k", "--number_ios=20", "--eta=never"];
        succeed(place.path(), &[&load[..], &[&served.filename(namespaces as u32)]].concat());
        assert_eq!(served.end(), "", "{name} loads without a warning");
    }
}

#[test]
fn the_prototypes_buffers_bound_what_is_in_flight() {
    let place = directory();
    let path =
        shipped().into_iter().find(|path| path.ends_with("split3_delay_num_buffers.json")).expect("it is shipped");
    let served = Served::start(place.path(), &["-c", moved(&path, place.path()).to_str().expect("text")]);
    let load = ["run", "--name=x", "--ioengine=nvme_tcp", "--rw=randread", "--bs=128k", "--iodepth=256", "--eta=never"];
    // The first namespace is slow, here as slow as no processor is kept from anybody: 256 at once have to wait for 96
    // buffers.
    for latency in ["avg_read", "p99_read"] {
        let latency = format!("latency_type={latency}");
        served.rpc(&["bdev_delay_update_latency", "delay_bdev_name=Null0p0d", &latency, "latency_us=100000"]);
    }
    succeed(place.path(), &[&load[..], &["--number_ios=2000", &served.filename(1)]].concat());
    let stats = served.rpc(&["nvmf_get_stats"]);
    let pacer = &stats["poll_groups"][0]["transports"][0]["io_pacer"];
    let peak = pacer["in_flight_bytes_peak"].as_u64().expect("a number");
    assert!(peak <= 96 * 131_072, "{pacer}");
    assert!(peak > 64 * 131_072 && pacer["held"].as_u64() > Some(0), "the limit was reached: {pacer}");
    served.signal("TERM");
    let (_, _, log) = served.wait();
    let line = log.lines().find(|line| line.contains("pacing held ")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains(" of 2k ops of Null0p0d, for ") && line.ends_with(" on average"), "{line}");
}

#[test]
fn the_prototypes_transport_parameters_set_the_pacing() {
    for (given, method) in [
        (json!({"io_pacer_period": 22800, "io_pacer_tuner_period": 0}), "rate"),
        (
            json!({"io_pacer_period": 22800, "io_pacer_tuner_period": 10000, "io_pacer_tuner_step": 100}),
            "rate-delivered",
        ),
        (json!({"num_shared_buffers": 4095, "buf_cache_size": 32, "io_pacer_period": 0}), "auto"),
        (json!({"num_shared_buffers": 96}), "buffers"),
        (json!({"pacing": "none"}), "none"),
    ] {
        let place = directory();
        let mut params = json!({"trtype": "TCP"});
        given.as_object().expect("an object").iter().for_each(|(name, value)| params[name] = value.clone());
        let config = json!({"subsystems": [{"subsystem": "nvmf", "config": [
            {"method": "nvmf_create_transport", "params": params}
        ]}]});
        let config = file(place.path(), "config.json", config.to_string());
        let served = Served::start(place.path(), &["-c", config.to_str().expect("text")]);
        let transport = &served.rpc(&["nvmf_get_transports"])[0];
        assert_eq!(transport["pacing"]["method"], method, "{transport}");
        if method.starts_with("rate") {
            assert_eq!(
                served.rpc(&["nvmf_get_stats"])["poll_groups"][0]["transports"][0]["io_pacer"]["period_ticks"],
                22800
            );
        }
        served.end();
        // The command line decides, and says that it did.
        let served = Served::start(place.path(), &["-c", config.to_str().expect("text"), "--pacing", "buffers:7"]);
        assert_eq!(served.rpc(&["nvmf_get_transports"])[0]["pacing"]["count"], 7);
        let said = served.end();
        let asks = method != "auto";
        assert_eq!(said.contains("the command line decides on pacing"), asks, "{said}");
    }
}

/// The text that `save_config` of SPDK's target prints with two devices, shortened to one call of each kind.
const SPDKS: &str = r#"{
  "subsystems": [
    {"subsystem": "keyring", "config": []},
    {"subsystem": "iobuf", "config": [
      {"method": "iobuf_set_options", "params": {"small_pool_count": 8192, "large_pool_count": 1024, "small_bufsize": 8192, "large_bufsize": 135168}}
    ]},
    {"subsystem": "sock", "config": [
      {"method": "sock_set_default_impl", "params": {"impl_name": "posix"}},
      {"method": "sock_impl_set_options", "params": {"impl_name": "posix", "recv_buf_size": 2097152, "enable_zerocopy_send_server": true}}
    ]},
    {"subsystem": "vmd", "config": []},
    {"subsystem": "accel", "config": [{"method": "accel_set_options", "params": {"small_cache_size": 128}}]},
    {"subsystem": "bdev", "config": [
      {"method": "bdev_set_options", "params": {"bdev_io_pool_size": 65535, "bdev_auto_examine": true}},
      {"method": "bdev_raid_set_options", "params": {"process_window_size_kb": 1024}},
      {"method": "bdev_iscsi_set_options", "params": {"timeout_sec": 30}},
      {"method": "bdev_nvme_set_options", "params": {"action_on_timeout": "none", "dhchap_digests": ["sha256"]}},
      {"method": "bdev_nvme_set_hotplug", "params": {"period_us": 100000, "enable": false}},
      {"method": "bdev_malloc_create", "params": {"name": "Malloc0", "num_blocks": 16384, "block_size": 512, "physical_block_size": 512, "uuid": "d5d7b1a2-4a4b-4a7b-8a36-0e9c0a3c7f11", "optimal_io_boundary": 0, "md_size": 0, "dif_type": 0, "dif_is_head_of_md": false, "dif_pi_format": 0}},
      {"method": "bdev_null_create", "params": {"name": "Null0", "num_blocks": 25600, "block_size": 4096, "physical_block_size": 4096, "uuid": "5f1d2f86-4c25-4f39-a2a5-d5a3b9e0b2a4", "md_size": 0, "dif_type": 0, "dif_is_head_of_md": false}},
      {"method": "bdev_wait_for_examine"}
    ]},
    {"subsystem": "scsi", "config": null},
    {"subsystem": "scheduler", "config": [{"method": "framework_set_scheduler", "params": {"name": "static"}}]},
    {"subsystem": "vhost_scsi", "config": []},
    {"subsystem": "nbd", "config": []},
    {"subsystem": "nvmf", "config": [
      {"method": "nvmf_set_config", "params": {"discovery_filter": "match_any", "admin_cmd_passthru": {"identify_ctrlr": false}}},
      {"method": "nvmf_set_max_subsystems", "params": {"max_subsystems": 1024}},
      {"method": "nvmf_set_crdt", "params": {"crdt1": 0, "crdt2": 0, "crdt3": 0}},
      {"method": "nvmf_create_transport", "params": {"trtype": "TCP", "max_queue_depth": 128, "max_io_qpairs_per_ctrlr": 127, "in_capsule_data_size": 4096, "max_io_size": 131072, "io_unit_size": 131072, "max_aq_depth": 128, "num_shared_buffers": 511, "buf_cache_size": 4294967295, "dif_insert_or_strip": false, "zcopy": false, "c2h_success": true, "sock_priority": 0, "abort_timeout_sec": 1, "ack_timeout": 0, "data_wr_pool_size": 0}},
      {"method": "nvmf_create_subsystem", "params": {"nqn": "nqn.2016-06.io.spdk:cnode1", "allow_any_host": true, "serial_number": "SPDK00000000000001", "model_number": "SPDK bdev Controller", "max_namespaces": 10, "min_cntlid": 1, "max_cntlid": 65519, "ana_reporting": false}},
      {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "nqn.2016-06.io.spdk:cnode1", "namespace": {"nsid": 1, "bdev_name": "Malloc0", "nguid": "D5D7B1A24A4B4A7B8A360E9C0A3C7F11", "uuid": "d5d7b1a2-4a4b-4a7b-8a36-0e9c0a3c7f11", "no_auto_visible": false}}},
      {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "nqn.2016-06.io.spdk:cnode1", "namespace": {"nsid": 2, "bdev_name": "Null0", "eui64": "ABCDEF0123456789"}}},
      {"method": "nvmf_subsystem_add_listener", "params": {"nqn": "nqn.2016-06.io.spdk:cnode1", "listen_address": {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "0"}, "secure_channel": false}}
    ]},
    {"subsystem": "iscsi", "config": [{"method": "iscsi_set_options", "params": {"node_base": "iqn.2016-06.io.spdk"}}]}
  ]
}"#;

#[test]
fn what_spdk_saves_is_loaded() {
    let place = directory();
    let config = file(place.path(), "spdk.json", SPDKS);
    let served = Served::start(place.path(), &["-c", config.to_str().expect("text")]);
    let subsystem = &served.rpc(&["nvmf_get_subsystems", "nqn=nqn.2016-06.io.spdk:cnode1"])[0];
    assert_eq!(subsystem["serial_number"], "SPDK00000000000001");
    assert_eq!(subsystem["namespaces"][0]["nguid"], "D5D7B1A24A4B4A7B8A360E9C0A3C7F11");
    assert_eq!(subsystem["namespaces"][0]["uuid"], "d5d7b1a2-4a4b-4a7b-8a36-0e9c0a3c7f11");
    assert_eq!(subsystem["namespaces"][1]["eui64"], "ABCDEF0123456789");
    let said = served.end();
    assert!(said.starts_with("plimsoll: warning: accepted, without effect here: iobuf_set_options,"), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
}

#[test]
fn what_cannot_be_loaded_is_told_where_and_nothing_is_left() {
    let edited = |from: &str, to: &str| {
        assert!(SPDKS.contains(from), "{from}");
        SPDKS.replacen(from, to, 1)
    };
    for (text, part) in [
        (
            edited("bdev_null_create", "bdev_nvme_attach_controller"),
            "bdev: bdev_nvme_attach_controller {\"name\":\"Null0\"",
        ),
        (
            edited("\"num_blocks\": 25600", "\"blocks\": 25600"),
            "there is no parameter blocks; there are name, num_blocks",
        ),
        (edited("\"trtype\": \"TCP\"", "\"trtype\": \"FC\""), "Invalid transport type 'FC'"),
        (edited("\"md_size\": 0", "\"md_size\": 16"), "md_size must be 0"),
        (edited("127.0.0.1", "target.example"), "traddr \"target.example\" is not an IP address"),
        (edited("\"ana_reporting\": false", "\"ana_reporting\": 1"), "ana_reporting takes true or false, not 1"),
        (edited("]},", "]}"), "not valid JSON: "),
        (edited("{\"method\": \"bdev_wait_for_examine\"}", "{}"), "subsystems[5].config[7] (bdev) has no \"method\""),
    ] {
        let place = directory();
        let config = file(place.path(), "spdk.json", text);
        let told = refused_aloud(place.path(), &["serve", "-c", config.to_str().expect("text"), "--rpc-socket", "s"]);
        assert!(told.contains(part), "{part}: {told}");
        assert_eq!(names(place.path()), ["spdk.json"]);
    }
}

/// The last line on standard error with status 2: warnings may stand before it.
fn refused_aloud(directory: &Path, arguments: &[&str]) -> String {
    let output = run(directory, arguments);
    assert_eq!(output.status.code(), Some(2), "{}{}", stdout(&output), stderr(&output));
    stderr(&output).trim_end().lines().last().unwrap_or_default().to_string()
}

#[test]
fn a_configuration_may_have_comments_as_spdk_allows() {
    let place = directory();
    let text = SPDKS.replacen('{', "// from the lab\n{ /* two devices */", 1);
    let config = file(place.path(), "spdk.json", text);
    let served = Served::start(place.path(), &["-c", config.to_str().expect("text")]);
    let devices: Value = served.rpc(&["bdev_get_bdevs"]);
    assert_eq!(devices.as_array().map(Vec::len), Some(2));
    served.end();
}

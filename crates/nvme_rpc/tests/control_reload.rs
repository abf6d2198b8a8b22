//! A configuration that takes the place of another one: the target is then as one that began with it, whatever it was
//! before, and what both configurations have is left alone.

use nvme_rpc::{Control, Settings};
use nvme_target::Options;
use proptest::prelude::*;
use serde_json::{Value, json};

const NQNS: [&str; 2] = ["nqn.2016-06.io.spdk:cnode1", "nqn.2016-06.io.spdk:cnode2"];
const HOSTS: [&str; 2] = ["nqn.2014-08.org.example:host1", "nqn.2014-08.org.example:host2"];

fn control() -> Control {
    let settings = Settings {
        options: Options { reactors: 1, ..Options::default() },
        pacing_is_fixed: false,
        allow_in_use: false,
        wait_for_init: false,
    };
    Control::start(settings, Box::new(|_| {})).expect("a target")
}

fn reload(control: &Control, subsystems: &Value, keep: bool) -> Result<Value, String> {
    let params = json!({ "subsystems": subsystems, "keep": keep });
    control.call("framework_reload_config", Some(&params)).map_err(|error| error.to_string())
}

/// The configuration that the target has, without the order of calls, and without what a target chooses by itself.
fn has(control: &Control) -> Vec<String> {
    let mut calls = Vec::new();
    for part in ["keyring", "bdev", "nvmf"] {
        let config = control.call("framework_get_config", Some(&json!({ "name": part }))).expect("it has parts");
        for call in config.as_array().expect("calls") {
            let mut call = call.clone();
            for (place, member) in [("/params", "uuid"), ("/params/listen_address", "trsvcid")] {
                if let Some(Value::Object(members)) = call.pointer_mut(place) {
                    members.remove(member);
                }
            }
            let is_default = |(_, value): &(&String, &Value)| **value == json!(0) || **value == json!(false);
            let given = call["params"].as_object().expect("parameters");
            let said: Value = given
                .iter()
                .filter(|(name, value)| *name == "name" || !is_default(&(name, value)))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            calls.push(json!([call["method"], said]).to_string());
        }
    }
    calls.sort();
    calls
}

/// A device that hosts see: the parts of the configuration that make it.
#[derive(Clone, Debug)]
struct Disk {
    mib: u64,
    block: u64,
    limit: u64,
    is_delayed: bool,
    latency: u64,
    is_split: bool,
}

#[derive(Clone, Debug)]
struct Subsystem {
    any: bool,
    hosts: [bool; 2],
    namespaces: Vec<(u32, usize)>,
    listens: bool,
    serial: Option<u8>,
}

fn disk() -> impl Strategy<Value = Disk> {
    (1..3u64, prop_oneof![Just(512u64), Just(4096)], 0..2u64, any::<bool>(), 0..2u64, any::<bool>()).prop_map(
        |(mib, block, limit, is_delayed, latency, is_split)| Disk {
            mib,
            block,
            limit: limit * 5000,
            is_delayed,
            latency,
            is_split,
        },
    )
}

fn subsystem() -> impl Strategy<Value = Subsystem> {
    let namespaces = prop::collection::btree_map(1..4u32, 0..3usize, 0..3);
    (any::<bool>(), any::<[bool; 2]>(), namespaces, any::<bool>(), prop::option::of(0..2u8)).prop_map(
        |(any, hosts, namespaces, listens, serial)| Subsystem {
            any,
            hosts,
            namespaces: namespaces.into_iter().collect(),
            listens,
            serial,
        },
    )
}

type Configuration = ([Option<Disk>; 3], [Option<Subsystem>; 2]);

fn configuration() -> impl Strategy<Value = Configuration> {
    let disks = [prop::option::weighted(0.8, disk()), prop::option::of(disk()), prop::option::of(disk())];
    let subsystems = [prop::option::weighted(0.8, subsystem()), prop::option::of(subsystem())];
    (disks, subsystems)
}

fn text((disks, subsystems): &Configuration) -> Value {
    let mut bdev = Vec::new();
    let mut top: Vec<Option<String>> = Vec::new();
    for (number, disk) in disks.iter().enumerate() {
        let Some(Disk { mib, block, limit, is_delayed, latency, is_split }) = disk else {
            top.push(None);
            continue;
        };
        let mut name = format!("Disk{number}");
        let blocks = (mib << 20) / block;
        bdev.push(json!({ "method": "bdev_null_create", "params": { "name": name, "num_blocks": blocks, "block_size": block } }));
        if *is_split {
            bdev.push(json!({ "method": "bdev_split_create", "params": { "base_bdev": name, "split_count": 2 } }));
            name += "p1";
        }
        if *is_delayed {
            let mut params = json!({ "name": format!("{name}d"), "base_bdev_name": name });
            for latency_of in ["avg_read", "p99_read", "avg_write", "p99_write"] {
                params[format!("{latency_of}_latency")] = json!(latency);
            }
            bdev.push(json!({ "method": "bdev_delay_create", "params": params }));
            name += "d";
        }
        if *limit > 0 {
            bdev.push(json!({ "method": "bdev_set_qos_limit", "params": { "name": name, "rw_ios_per_sec": limit } }));
        }
        top.push(Some(name));
    }
    let mut nvmf = vec![json!({ "method": "nvmf_create_transport", "params": { "trtype": "TCP" } })];
    let mut taken = vec![false; top.len()];
    for (nqn, subsystem) in NQNS.iter().zip(subsystems) {
        let Some(Subsystem { any, hosts, namespaces, listens, serial }) = subsystem else { continue };
        let mut params = json!({ "nqn": nqn, "allow_any_host": any });
        if let Some(serial) = serial {
            params["serial_number"] = json!(format!("SERIAL{serial}"));
        }
        nvmf.push(json!({ "method": "nvmf_create_subsystem", "params": params }));
        for host in HOSTS.iter().zip(hosts).filter(|(_, listed)| **listed).map(|(host, _)| host) {
            nvmf.push(json!({ "method": "nvmf_subsystem_add_host", "params": { "nqn": nqn, "host": host } }));
        }
        for (nsid, device) in namespaces {
            let Some(name) = top[*device].as_ref().filter(|_| !std::mem::replace(&mut taken[*device], true)) else {
                continue;
            };
            let namespace = json!({ "nsid": nsid, "bdev_name": name });
            nvmf.push(json!({ "method": "nvmf_subsystem_add_ns", "params": { "nqn": nqn, "namespace": namespace } }));
        }
        if *listens {
            let to = json!({ "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "0" });
            nvmf.push(
                json!({ "method": "nvmf_subsystem_add_listener", "params": { "nqn": nqn, "listen_address": to } }),
            );
        }
    }
    json!([{ "subsystem": "bdev", "config": bdev }, { "subsystem": "nvmf", "config": nvmf }])
}

fn count(done: &Value, of: &str) -> usize {
    done[of].as_array().expect("names").len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// From any configuration to any other one, and back: the target is as one that began there. A second time, there
    /// is nothing to do.
    #[test]
    fn the_target_is_as_one_that_began_with_the_configuration(first in configuration(), second in configuration()) {
        let control = control();
        for next in [&first, &second, &first] {
            let next = text(next);
            reload(&control, &next, false).map_err(TestCaseError::fail)?;
            let fresh = self::control();
            fresh.load(&json!({ "subsystems": next }).to_string()).map_err(TestCaseError::fail)?;
            prop_assert_eq!(has(&control), has(&fresh));
            let again = reload(&control, &next, false).map_err(TestCaseError::fail)?;
            for of in ["added", "changed", "made_anew", "removed"] {
                prop_assert_eq!(count(&again, of), 0, "{}", again);
            }
            // A target that is saved, and has its saved configuration loaded again, does not change either.
            let saved: Value = ["bdev", "nvmf"].iter().map(|part| {
                let config = control.call("framework_get_config", Some(&json!({ "name": part }))).expect("it has it");
                json!({ "subsystem": part, "config": config })
            }).collect();
            let same = reload(&control, &saved, false).map_err(TestCaseError::fail)?;
            prop_assert_eq!(count(&same, "changed") + count(&same, "made_anew") + count(&same, "removed"), 0, "{}", same);
        }
    }

    /// A configuration that cannot be made leaves the target as it was.
    #[test]
    fn a_configuration_that_fails_changes_nothing(first in configuration(), second in configuration()) {
        let control = control();
        let next = text(&first);
        reload(&control, &next, false).map_err(TestCaseError::fail)?;
        let before = has(&control);
        let mut bad = text(&second);
        let missing = json!({ "method": "bdev_aio_create", "params": { "name": "Gone", "filename": "/nowhere/disk" } });
        bad[0]["config"].as_array_mut().expect("calls").push(missing);
        let error = reload(&control, &bad, false).expect_err("there is no such file");
        prop_assert!(error.contains("device Gone") && error.contains("the configuration is as it was"), "{}", error);
        prop_assert_eq!(has(&control), before);
    }
}

fn method(name: &str, params: Value) -> Value {
    json!({ "method": name, "params": params })
}

/// A small target: what changes in place, and what is made anew with all that stands on it.
fn small(more: &[Value]) -> Value {
    let mut calls = vec![
        method("bdev_null_create", json!({ "name": "A", "num_blocks": 2048, "block_size": 512 })),
        method("nvmf_create_transport", json!({ "trtype": "TCP", "max_io_qpairs_per_ctrlr": 4 })),
        method("nvmf_create_subsystem", json!({ "nqn": NQNS[0] })),
        method("nvmf_subsystem_add_host", json!({ "nqn": NQNS[0], "host": HOSTS[0] })),
        method("nvmf_subsystem_add_ns", json!({ "nqn": NQNS[0], "namespace": { "bdev_name": "A" } })),
    ];
    for call in more {
        let same = |there: &&mut Value| {
            there["method"] == call["method"] && there["params"]["trtype"] == call["params"]["trtype"]
        };
        match calls.iter_mut().find(same) {
            Some(there) => *there = call.clone(),
            None => calls.push(call.clone()),
        }
    }
    json!([{ "subsystem": "nvmf", "config": calls }])
}

#[test]
fn a_change_is_made_in_place_where_a_call_can_make_it() {
    let control = control();
    reload(&control, &small(&[]), false).expect("it is valid");
    let namespace = format!("namespace 1 of {}", NQNS[0]);
    for (call, kind, name) in [
        (
            method("bdev_null_create", json!({ "name": "A", "num_blocks": 4096, "block_size": 512 })),
            "changed",
            "device A",
        ),
        (
            method("nvmf_create_subsystem", json!({ "nqn": NQNS[0], "allow_any_host": true })),
            "changed",
            "subsystem nqn.2016-06.io.spdk:cnode1",
        ),
        (
            method("nvmf_create_transport", json!({ "trtype": "TCP", "max_io_qpairs_per_ctrlr": 8 })),
            "changed",
            "transport TCP",
        ),
        (
            method("bdev_null_create", json!({ "name": "A", "num_blocks": 512, "block_size": 4096 })),
            "made_anew",
            "device A",
        ),
        (
            method("nvmf_create_subsystem", json!({ "nqn": NQNS[0], "serial_number": "X" })),
            "made_anew",
            "subsystem nqn.2016-06.io.spdk:cnode1",
        ),
    ] {
        let done = reload(&control, &small(std::slice::from_ref(&call)), false).expect("it is valid");
        assert!(done[kind].as_array().expect("names").contains(&json!(name)), "{call}: {done}");
        let anew = done["made_anew"].as_array().expect("names").contains(&json!(namespace));
        assert_eq!(anew, kind == "made_anew", "{call}: what stands on it comes back with it: {done}");
        assert_eq!(count(&done, "removed") + count(&done, "added"), 0, "{call}: {done}");
        reload(&control, &small(&[]), false).expect("it is valid");
    }
}

#[test]
fn what_cannot_change_is_refused_before_anything_does() {
    let control = control();
    reload(&control, &small(&[]), false).expect("it is valid");
    let before = has(&control);
    let twice = |call: Value| json!([{ "subsystem": "bdev", "config": [call.clone(), call] }]);
    for (subsystems, part) in [
        (
            small(&[method("nvmf_create_transport", json!({ "trtype": "TCP", "max_queue_depth": 64 }))]),
            "transport TCP cannot change while the target runs (max_queue_depth",
        ),
        (small(&[method("nvmf_subsystem_remove_ns", json!({ "nqn": NQNS[0], "nsid": 1 }))]), "calls that make things"),
        (small(&[method("bdev_nul_create", json!({}))]), "did you mean bdev_null_create?"),
        (
            small(&[method("bdev_malloc_create", json!({ "num_block": 1, "block_size": 512 }))]),
            "did you mean num_blocks?",
        ),
        (
            twice(method("bdev_null_create", json!({ "name": "B", "num_blocks": 8, "block_size": 512 }))),
            "device B stands there twice",
        ),
    ] {
        let error = reload(&control, &subsystems, false).expect_err(part);
        assert!(error.contains(part), "{part}: {error}");
        assert_eq!(has(&control), before, "{part}");
    }
}

/// `load_config` adds and changes; what the file does not have stays.
#[test]
fn what_a_configuration_does_not_have_may_stay() {
    let control = control();
    reload(&control, &small(&[]), false).expect("it is valid");
    let disk =
        |blocks: u64| method("bdev_null_create", json!({ "name": "A", "num_blocks": blocks, "block_size": 4096 }));
    let more = json!([{ "subsystem": "bdev", "config": [
        disk(512), method("bdev_malloc_create", json!({ "num_blocks": 8, "block_size": 512 }))
    ] }]);
    let done = reload(&control, &more, true).expect("it is valid");
    assert_eq!(done["added"], json!(["device Malloc0"]));
    let namespace = format!("namespace 1 of {}", NQNS[0]);
    assert_eq!(done["made_anew"], json!(["device A", namespace]), "the namespace is on the device");
    assert_eq!((count(&done, "removed"), &done["left_alone"]), (0, &json!(4)));
    let replaced = reload(&control, &more, false).expect("it is valid");
    let subsystem = format!("subsystem {}", NQNS[0]);
    assert!(replaced["removed"].as_array().expect("names").contains(&json!(subsystem)), "{replaced}");
    assert_eq!(replaced["unchanged"], 2);
}

/// A host whose key is in a file that has another key now proves the new one.
#[test]
fn keys_are_read_again_and_an_unused_one_goes() {
    use std::os::unix::fs::PermissionsExt;
    const KEYS: [&str; 2] = [
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n",
        "DHHC-1:00:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:\n",
    ];
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("key");
    let write = |key: &str| {
        std::fs::write(&path, key).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is there");
    };
    write(KEYS[0]);
    let control = control();
    let key = method("keyring_file_add_key", json!({ "name": "k", "path": path }));
    let host = method("nvmf_subsystem_add_host", json!({ "nqn": NQNS[0], "host": HOSTS[0], "dhchap_key": "k" }));
    let with_key = json!([
        { "subsystem": "keyring", "config": [key] },
        { "subsystem": "nvmf", "config": [method("nvmf_create_subsystem", json!({ "nqn": NQNS[0] })), host] }
    ]);
    reload(&control, &with_key, false).expect("it is valid");
    let same = reload(&control, &with_key, false).expect("it is valid");
    assert_eq!((count(&same, "changed"), &same["unchanged"]), (0, &json!(3)), "{same}");
    write(KEYS[1]);
    let changed = reload(&control, &with_key, false).expect("it is valid");
    assert_eq!(changed["changed"], json!(["key k"]));
    // A key of another kind is refused, and the one from before stays.
    write("NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n");
    let error = reload(&control, &with_key, false).expect_err("no host can prove it");
    assert!(error.starts_with("key k") || error.contains("key of TLS"), "{error}");
    let without = json!([{ "subsystem": "nvmf", "config": [
        method("nvmf_create_subsystem", json!({ "nqn": NQNS[0] })),
        method("nvmf_subsystem_add_host", json!({ "nqn": NQNS[0], "host": HOSTS[0] }))
    ] }]);
    let gone = reload(&control, &without, false).expect("it is valid");
    assert_eq!((&gone["removed"], count(&gone, "changed")), (&json!(["key k"]), 1), "{gone}");
    let keys = control.call("keyring_get_keys", None).expect("an answer");
    assert_eq!(keys, json!([]));
}

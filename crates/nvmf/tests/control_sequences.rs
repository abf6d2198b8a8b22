//! Random sequences of calls. A call that fails changes nothing, a configuration that is saved makes the same target
//! again, and clients that call at the same time leave a target that can be taken apart.

use nvmf::control::{Control, Settings, jsonrpc};
use nvmf::target::Options;
use serde_json::{Value, json};

/// Names of devices, some of them odd.
const NAMES: [&str; 7] = ["Null0", "a b", "x\"y\\z", "ü🦀", "%s%n", "EE_Null0", "Null0p0"];
const SUBSYSTEMS: [&str; 3] =
    ["nqn.2016-06.io.spdk:a", "nqn.2016-06.io.spdk:b", "nqn.2014-08.org.nvmexpress.discovery"];
const HOSTS: [&str; 2] = ["nqn.2016-06.io.spdk:host1", "nqn.2016-06.io.spdk:host2"];

fn control() -> Control {
    let options = Options { publish: false, ..Options::default() };
    let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    Control::start(settings, Box::new(|_| {})).expect("a target")
}

/// The result of a call, or its error.
fn call(control: &Control, method: &str, params: Value) -> Result<Value, Value> {
    let request = json!({ "method": method, "params": params, "id": 1 });
    let mut answer =
        jsonrpc::answer(request.to_string().as_bytes(), &mut |method, params| control.call(method, params))
            .expect("an answer");
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(answer["error"].take()),
    }
}

fn told(control: &Control, method: &str, params: Value) -> Value {
    call(control, method, params).expect("it answers")
}

/// The configuration as `save_config` writes it.
fn saved(control: &Control) -> Value {
    let parts = told(control, "framework_get_subsystems", json!({}));
    let parts = parts.as_array().expect("parts").iter().map(|part| {
        let name = &part["subsystem"];
        json!({ "subsystem": name, "config": told(control, "framework_get_config", json!({ "name": name })) })
    });
    json!({ "subsystems": parts.collect::<Vec<_>>() })
}

/// All that a client can see of the configuration.
fn seen(control: &Control) -> Value {
    let of = |method| told(control, method, json!({}));
    json!([
        of("bdev_get_bdevs"),
        of("nvmf_get_subsystems"),
        of("nvmf_get_transports"),
        of("nvmf_discovery_get_referrals"),
        saved(control)
    ])
}

/// The places at which two values differ, with both.
fn differences(one: &Value, other: &Value, path: &str) -> Vec<String> {
    match (one, other) {
        (Value::Array(ones), Value::Array(others)) if ones.len() == others.len() => {
            let both = ones.iter().zip(others).enumerate();
            both.flat_map(|(at, (one, other))| differences(one, other, &format!("{path}/{at}"))).collect()
        }
        (Value::Object(ones), Value::Object(others)) if ones.keys().eq(others.keys()) => {
            ones.iter().flat_map(|(key, one)| differences(one, &others[key], &format!("{path}/{key}"))).collect()
        }
        _ if one == other => Vec::new(),
        _ => vec![format!("{path}: {one} and {other}")],
    }
}

/// A generator of pseudo-random numbers (the constants of Knuth's MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Parameters of a transport, some of them impossible.
    fn transport(&mut self) -> Value {
        let one = |dice: &mut Dice, values: &[Value]| values[dice.below(values.len())].clone();
        let budget =
            one(self, &[json!("auto"), json!("auto:16k"), json!("auto:8m"), json!("none"), json!("buffers:64")]);
        let masks = one(self, &[json!([]), json!(["reservs", "nvmcmps"]), json!(["nvmcpys"]), json!(["unknown"])]);
        json!({
            "trtype": "tcp",
            "in_capsule_data_size": self.one(&[0, 3, 4096, 8192, 1 << 20]),
            "max_io_size": self.one(&[4096, 8192, 131_072, 1 << 20, 3 << 20]),
            "max_io_qpairs_per_ctrlr": self.one(&[0, 1, 8, 127]),
            "pacing": budget,
            "masked_oncs": masks,
        })
    }

    /// The next call.
    fn call(&mut self, port: u16) -> (&'static str, Value) {
        let (name, base, nqn, host) = (self.one(&NAMES), self.one(&NAMES), self.one(&SUBSYSTEMS), self.one(&HOSTS));
        let (nsid, blocks) = (self.below(5), self.one(&[0_u64, 1, 64, 4096, 1 << 40, u64::MAX]));
        let options = self.transport();
        let (truth, most) = (self.below(2) == 0, self.one(&[0, 2, 3, 1024]));
        let limit = self.one(&[0_u64, 1, 7, u64::MAX]);
        let address = json!({ "trtype": "TCP", "traddr": "127.0.0.1", "trsvcid": port.to_string() });
        let calls = [
            ("nvmf_create_transport", json!({ "trtype": "TCP", "max_queue_depth": 64 + nsid })),
            ("nvmf_create_transport", options),
            ("bdev_null_create", json!({ "name": name, "num_blocks": blocks, "block_size": 512 })),
            ("bdev_null_create", json!({ "name": base, "num_blocks": 4096, "block_size": 4096 })),
            ("bdev_malloc_create", json!({ "name": name, "num_blocks": 64, "block_size": 512 })),
            ("bdev_malloc_create", json!({ "num_blocks": blocks.min(64), "block_size": 512 })),
            ("bdev_null_resize", json!({ "name": name, "new_size": nsid })),
            (
                "bdev_delay_create",
                json!({ "name": name, "base_bdev_name": base, "avg_read_latency": 1, "p99_read_latency": 1, "avg_write_latency": 1, "p99_write_latency": 1 }),
            ),
            (
                "bdev_delay_update_latency",
                json!({ "delay_bdev_name": name, "latency_type": "p99_read", "latency_us": limit }),
            ),
            ("bdev_error_create", json!({ "base_name": base })),
            (
                "bdev_error_inject_error",
                json!({ "name": "EE_Null0", "io_type": "read", "error_type": "failure", "num": nsid }),
            ),
            ("bdev_split_create", json!({ "base_bdev": base, "split_count": nsid })),
            ("bdev_split_delete", json!({ "base_bdev": base })),
            ("bdev_null_delete", json!({ "name": name })),
            ("bdev_malloc_delete", json!({ "name": name })),
            ("bdev_delay_delete", json!({ "name": name })),
            ("bdev_error_delete", json!({ "name": name })),
            ("bdev_set_qos_limit", json!({ "name": name, "rw_ios_per_sec": limit, "r_mbytes_per_sec": limit % 100 })),
            (
                "nvmf_create_subsystem",
                json!({ "nqn": nqn, "allow_any_host": truth, "max_namespaces": nsid, "serial_number": "S" }),
            ),
            ("nvmf_create_subsystem", json!({ "nqn": nqn, "min_cntlid": nsid, "max_cntlid": 9 })),
            ("nvmf_delete_subsystem", json!({ "nqn": nqn })),
            (
                "nvmf_subsystem_add_ns",
                json!({ "nqn": nqn, "namespace": { "bdev_name": name, "nsid": nsid, "no_auto_visible": truth } }),
            ),
            ("nvmf_subsystem_add_ns", json!({ "nqn": nqn, "namespace": { "bdev_name": base } })),
            ("nvmf_subsystem_remove_ns", json!({ "nqn": nqn, "nsid": nsid })),
            ("nvmf_ns_add_host", json!({ "nqn": nqn, "nsid": nsid, "host": host })),
            ("nvmf_ns_remove_host", json!({ "nqn": nqn, "nsid": nsid, "host": host })),
            ("nvmf_subsystem_add_host", json!({ "nqn": nqn, "host": host })),
            ("nvmf_subsystem_remove_host", json!({ "nqn": nqn, "host": host })),
            ("nvmf_subsystem_allow_any_host", json!({ "nqn": nqn, "allow_any_host": truth })),
            ("nvmf_subsystem_add_listener", json!({ "nqn": nqn, "listen_address": address })),
            ("nvmf_subsystem_remove_listener", json!({ "nqn": nqn, "listen_address": address })),
            (
                "nvmf_discovery_add_referral",
                json!({ "address": { "traddr": "192.0.2.1", "trsvcid": nsid.to_string() } }),
            ),
            (
                "nvmf_discovery_remove_referral",
                json!({ "address": { "trtype": "tcp", "traddr": "192.0.2.1", "trsvcid": nsid.to_string() } }),
            ),
            ("nvmf_set_max_subsystems", json!({ "max_subsystems": most })),
        ];
        let chosen = self.below(calls.len());
        calls[chosen].clone()
    }
}

/// A port of the loopback that nobody else listens on.
fn port() -> (std::net::TcpListener, u16) {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its port").port();
    (taken, port)
}

#[test]
fn a_call_that_fails_changes_nothing_and_what_is_saved_makes_the_same_target() {
    let (mut failed, mut made) = (0, 0);
    for seed in 60..100 {
        let mut dice = Dice(seed);
        let control = control();
        // Every other target has no transport at first, and so no listener.
        let (taken, port) = port();
        drop(taken);
        // The target is the same one all the time: transports come to it, and it does not make way for another.
        let target = control.target();
        let mut before = seen(&control);
        let mut calls = Vec::new();
        for _ in 0..60 {
            let (method, params) = dice.call(port);
            calls.push(format!("{method} {params}"));
            let outcome = call(&control, method, params);
            let after = seen(&control);
            if let Err(error) = &outcome {
                let changed = differences(&before, &after, "");
                assert!(changed.is_empty(), "seed {seed}: {changed:#?}: {error} after {calls:#?}");
            }
            *(if outcome.is_ok() { &mut made } else { &mut failed }) += 1;
            before = after;
        }
        assert_eq!(target.subsystems().len() + 1, before[1].as_array().expect("subsystems").len(), "seed {seed}");
        assert_eq!(target.devices().len(), before[0].as_array().expect("devices").len(), "seed {seed}");
        target.shutdown(std::time::Duration::ZERO); // its port is free for the next one
        let again = self::control();
        let text = before[4].to_string();
        again.load(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}\nafter {calls:#?}"));
        let changed = differences(&before, &seen(&again), "");
        assert!(changed.is_empty(), "seed {seed}: {changed:#?} after {calls:#?}");
        again.target().shutdown(std::time::Duration::ZERO);
    }
    assert!(made > 400 && failed > 400, "{made} calls succeed, {failed} fail");
}

#[test]
fn clients_that_call_at_once_leave_a_target_that_can_be_taken_apart() {
    let control = control();
    let (taken, port) = port();
    drop(taken);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let control = control.clone();
            scope.spawn(move || {
                let mut dice = Dice(1000 + client);
                for _ in 0..150 {
                    let (method, params) = dice.call(port);
                    let _ = call(&control, method, params); // any answer will do
                }
            });
        }
    });
    let subsystems = told(&control, "nvmf_get_subsystems", json!({}));
    for subsystem in &subsystems.as_array().expect("subsystems")[1..] {
        told(&control, "nvmf_delete_subsystem", json!({ "nqn": subsystem["nqn"] }));
    }
    let devices = told(&control, "bdev_get_bdevs", json!({}));
    // A device that stands on others comes after them.
    for name in devices.as_array().expect("devices").iter().rev().map(|device| &device["name"]) {
        let _ = call(&control, "bdev_split_delete", json!({ "base_bdev": name }));
        for delete in ["bdev_null_delete", "bdev_malloc_delete", "bdev_delay_delete", "bdev_error_delete"] {
            let _ = call(&control, delete, json!({ "name": name })); // one of them fits
        }
    }
    assert_eq!(told(&control, "bdev_get_bdevs", json!({})), json!([]));
    let left = saved(&control).to_string();
    for gone in ["bdev_", "nvmf_subsystem_add_ns", "nvmf_create_subsystem", "nvmf_ns_add_host"] {
        assert!(!left.contains(gone), "{left}");
    }
}

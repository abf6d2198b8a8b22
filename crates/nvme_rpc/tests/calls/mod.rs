//! Random calls that configure a target, some of them impossible.

use serde_json::{Value, json};

/// Names of devices, some of them odd.
pub const NAMES: [&str; 7] = ["Null0", "a b", "x\"y\\z", "ü🦀", "%s%n", "EE_Null0", "Null0p0"];
pub const SUBSYSTEMS: [&str; 3] =
    ["nqn.2016-06.io.spdk:a", "nqn.2016-06.io.spdk:b", "nqn.2014-08.org.nvmexpress.discovery"];
pub const HOSTS: [&str; 2] = ["nqn.2016-06.io.spdk:host1", "nqn.2016-06.io.spdk:host2"];

/// The places at which two values differ, with both.
pub fn differences(one: &Value, other: &Value, path: &str) -> Vec<String> {
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
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
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
    pub fn call(&mut self, port: u16) -> (&'static str, Value) {
        let (name, base, nqn, host) = (self.one(&NAMES), self.one(&NAMES), self.one(&SUBSYSTEMS), self.one(&HOSTS));
        let (nsid, blocks) = (self.below(5), self.one(&[0_u64, 1, 64, 4096, 1 << 40, u64::MAX]));
        let options = self.transport();
        let (truth, most) = (self.below(2) == 0, self.one(&[0, 2, 3, 1024]));
        let limit = self.one(&[0_u64, 1, 7, u64::MAX]);
        let (group, state) = (self.below(4), self.one(&["optimized", "non_optimized", "inaccessible"]));
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
            (
                "nvmf_create_subsystem",
                json!({ "nqn": nqn, "ana_reporting": true, "max_namespaces": 4, "allow_any_host": truth }),
            ),
            ("nvmf_delete_subsystem", json!({ "nqn": nqn })),
            (
                "nvmf_subsystem_add_ns",
                json!({ "nqn": nqn, "namespace": { "bdev_name": name, "nsid": nsid, "no_auto_visible": truth } }),
            ),
            ("nvmf_subsystem_add_ns", json!({ "nqn": nqn, "namespace": { "bdev_name": base } })),
            (
                "nvmf_subsystem_add_ns",
                json!({ "nqn": nqn, "namespace": { "bdev_name": name, "anagrpid": group, "detached_hosts": [host] } }),
            ),
            ("nvmf_subsystem_remove_ns", json!({ "nqn": nqn, "nsid": nsid })),
            ("nvmf_subsystem_set_ns_ana_group", json!({ "nqn": nqn, "nsid": nsid, "anagrpid": group })),
            ("nvmf_ns_detach_host", json!({ "nqn": nqn, "nsid": nsid, "host": host })),
            ("nvmf_ns_attach_host", json!({ "nqn": nqn, "nsid": nsid, "host": host })),
            ("nvmf_subsystem_add_ns_manager", json!({ "nqn": nqn, "host": host })),
            ("nvmf_subsystem_remove_ns_manager", json!({ "nqn": nqn, "host": host })),
            ("nvmf_ns_add_host", json!({ "nqn": nqn, "nsid": nsid, "host": host })),
            ("nvmf_ns_remove_host", json!({ "nqn": nqn, "nsid": nsid, "host": host })),
            ("nvmf_subsystem_add_host", json!({ "nqn": nqn, "host": host })),
            ("nvmf_subsystem_remove_host", json!({ "nqn": nqn, "host": host })),
            ("nvmf_subsystem_allow_any_host", json!({ "nqn": nqn, "allow_any_host": truth })),
            ("nvmf_subsystem_add_listener", json!({ "nqn": nqn, "listen_address": address })),
            ("nvmf_subsystem_add_listener", json!({ "nqn": nqn, "listen_address": address, "ana_state": state })),
            (
                "nvmf_subsystem_listener_set_ana_state",
                json!({ "nqn": nqn, "listen_address": address, "ana_state": state }),
            ),
            (
                "nvmf_subsystem_listener_set_ana_state",
                json!({ "nqn": nqn, "listen_address": address, "ana_state": state, "anagrpid": group }),
            ),
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

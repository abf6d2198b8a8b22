//! Random sequences of calls. A call that fails changes nothing, a configuration that is saved makes the same target
//! again, and clients that call at the same time leave a target that can be taken apart.

mod calls;
#[path = "../../../tests/common/free_port.rs"]
mod free_port;

use calls::{Dice, differences};
use free_port::free_port;
use nvme_rpc::{Control, Settings, jsonrpc};
use nvme_target::Options;
use serde_json::{Value, json};

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
    let subsystems = of("nvmf_get_subsystems");
    let nqns = subsystems.as_array().expect("subsystems").iter().map(|subsystem| &subsystem["nqn"]);
    let listeners = nqns.map(|nqn| told(control, "nvmf_subsystem_get_listeners", json!({ "nqn": nqn })));
    let listeners: Value = listeners.collect();
    json!([
        of("bdev_get_bdevs"),
        subsystems,
        of("nvmf_get_transports"),
        of("nvmf_discovery_get_referrals"),
        saved(control),
        listeners
    ])
}

#[test]
fn a_call_that_fails_changes_nothing_and_what_is_saved_makes_the_same_target() {
    let (mut failed, mut made) = (0, 0);
    for seed in 60..100 {
        let mut dice = Dice(seed);
        let control = control();
        // Every other target has no transport at first, and so no listener.
        let port = free_port();
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
    let port = free_port();
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

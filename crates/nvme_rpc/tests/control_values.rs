//! Wild values for every parameter of every method: the target answers each call and lives. A value of the wrong type
//! is always an error. At the end a host uses the namespaces that are left: a lost reactor would not serve
//! them.

#[path = "../../nvme_target/tests/raw/mod.rs"]
mod raw;

use std::path::Path;

use nvme::spec::opcode::admin;
use nvme::spec::{Command, Status};
use nvme_rpc::params::{Need, Param, ParamKind};
use nvme_rpc::{Control, METHODS, Method, Run, Settings, jsonrpc};
use nvme_target::Options;
use raw::{Host, NQN};
use serde_json::{Map, Value, json};

/// A target with devices of every kind that can be stacked on, one subsystem and one listener.
fn control() -> Control {
    let settings =
        Settings { options: Options::default(), pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    Control::start(settings, Box::new(|_| {})).expect("a target")
}

fn call(control: &Control, method: &str, params: Value) -> Value {
    let request = json!({ "method": method, "params": params, "id": 1 });
    answer(control, request.to_string().as_bytes())
}

fn answer(control: &Control, text: &[u8]) -> Value {
    jsonrpc::answer(text, &mut |method, params| control.call(method, params)).expect("an answer")
}

fn made(control: &Control, method: &str, params: Value) -> Value {
    let answer = call(control, method, params);
    assert!(answer.get("result").is_some(), "{method}: {answer}");
    answer["result"].clone()
}

/// Makes what is not there: wild calls may have deleted it.
fn make_all(control: &Control) {
    for (method, params) in [
        ("nvmf_create_transport", json!({ "trtype": "TCP" })),
        ("bdev_null_create", json!({ "name": "Null0", "num_blocks": 1u64 << 40, "block_size": 4096 })),
        ("bdev_null_create", json!({ "name": "Null1", "num_blocks": 1u64 << 48, "block_size": 4096 })),
        ("bdev_malloc_create", json!({ "name": "Malloc0", "num_blocks": 16_384, "block_size": 512 })),
        ("bdev_malloc_create", json!({ "name": "Malloc1", "num_blocks": 16_384, "block_size": 512 })),
        (
            "bdev_delay_create",
            json!({ "name": "Slow", "base_bdev_name": "Malloc1", "avg_read_latency": 0, "p99_read_latency": 0,
                    "avg_write_latency": 0, "p99_write_latency": 0 }),
        ),
        ("bdev_error_create", json!({ "base_name": "Slow" })),
        ("nvmf_create_subsystem", json!({ "nqn": NQN, "allow_any_host": true })),
        ("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "Malloc0", "nsid": 1 } })),
        ("nvmf_subsystem_add_ns", json!({ "nqn": NQN, "namespace": { "bdev_name": "EE_Slow", "nsid": 2 } })),
    ] {
        call(control, method, params); // an error if it is there
    }
}

/// A value that the call can do something with.
fn plausible(param: &Param, place: &Path) -> Value {
    match (param.name, param.kind) {
        ("name", _) => json!("wild"),
        ("filename" | "path", _) => json!(place.join("file")),
        ("create_size", _) => json!(1 << 20),
        ("num_blocks" | "new_size", _) => json!(64),
        ("block_size", _) => json!(4096),
        ("base_bdev" | "base_name", _) => json!("Null0"),
        ("base_bdev_name" | "bdev_name", _) => json!("Null1"),
        ("delay_bdev_name", _) => json!("Slow"),
        ("split_count", _) => json!(2),
        ("nqn", _) => json!(NQN),
        ("host", _) => json!(raw::HOST),
        ("traddr", _) => json!("127.0.0.1"),
        ("trsvcid", _) => json!("0"),
        ("trtype", _) => json!("TCP"),
        (_, ParamKind::Bool) => json!(true),
        (_, ParamKind::Number(_) | ParamKind::Integer) => json!(1),
        (_, ParamKind::Text) => json!("x"),
        (_, ParamKind::OneOf(texts)) => json!(texts.first()),
        (_, ParamKind::ListOf(texts)) => json!([texts[0]]),
        (_, ParamKind::Texts) => json!(["x"]),
        (_, ParamKind::Object(members)) => required(members, place),
        (_, ParamKind::Any) => Value::Null,
    }
}

fn required(params: &[Param], place: &Path) -> Value {
    let needed = params.iter().filter(|param| match param.need {
        Need::Required => true,
        Need::Default(_) => param.name == "create_size",
        Need::Ignored | Need::Only(_) => false,
    });
    Value::Object(needed.map(|param| (param.name.to_string(), plausible(param, place))).collect::<Map<_, _>>())
}

/// Values that programs trip over.
fn wild(place: &Path) -> Vec<Value> {
    let deep = (0..100).fold(json!(0), |inside, _| json!([inside]));
    let numbers = [
        0,
        1,
        511,
        u64::from(u16::MAX),
        u64::from(u32::MAX),
        1 << 32,
        // Shifted by 20, to bytes from MiB, these wrap around to 0 and to 1 MiB.
        1 << 44,
        (1 << 44) + 1,
        (1 << 53) + 1,
        i64::MAX as u64,
        1 << 63,
        u64::MAX / 1000,
        u64::MAX,
    ];
    let texts =
        ["", " ", "\0", "../../..", "/", "/dev/zero", "/dev/tty", "Malloc0", "EE_Slow", "Null0", NQN, "é\u{202e}🦀"];
    let mut all: Vec<Value> = numbers.iter().map(|number| json!(number)).collect();
    all.extend(texts.iter().map(|text| json!(text)));
    all.extend([json!(place.join("pipe")), json!("x".repeat(100_000)), json!("%s%n".repeat(30))]);
    all.extend([Value::Null, json!(true), json!(-1), json!(i64::MIN), json!(0.5), json!(1e308), json!(-1e308)]);
    all.extend([json!([]), json!({}), json!([[]]), json!({ "": {} }), json!([1, "x", null]), deep]);
    all
}

/// True if the value cannot be of that kind whatever it means.
fn is_wrong_type(kind: ParamKind, value: &Value) -> bool {
    match kind {
        ParamKind::Bool => !value.is_boolean(),
        ParamKind::Number(most) => value.as_u64().is_none_or(|number| number > most),
        ParamKind::Integer => !value.is_i64() && !value.is_u64(),
        ParamKind::Text | ParamKind::OneOf(_) => !value.is_string(),
        ParamKind::ListOf(_) | ParamKind::Texts => !value.is_array(),
        ParamKind::Object(_) => !value.is_object(),
        ParamKind::Any => false,
    }
}

/// Every way to put a wild value into the parameters, with the kind of the parameter that has it.
fn variants(params: &'static [Param], place: &Path) -> Vec<(ParamKind, Value, Value)> {
    let mut all = Vec::new();
    for param in params {
        for value in wild(place) {
            let mut given = required(params, place);
            given[param.name] = value.clone();
            all.push((param.kind, value, given));
        }
        if let ParamKind::Object(members) = param.kind {
            for (kind, value, inside) in variants(members, place) {
                let mut given = required(params, place);
                given[param.name] = inside;
                all.push((kind, value, given));
            }
        }
    }
    all
}

/// Deletes what a call may have made, so that the next one finds room.
fn tidy(control: &Control) {
    let devices = made(control, "bdev_get_bdevs", json!({}));
    for name in devices.as_array().expect("devices").iter().rev().filter_map(|device| device["name"].as_str()) {
        for delete in
            ["bdev_null_delete", "bdev_malloc_delete", "bdev_aio_delete", "bdev_delay_delete", "bdev_error_delete"]
        {
            call(control, delete, json!({ "name": name }));
        }
        call(control, "bdev_split_delete", json!({ "base_bdev": name }));
    }
    for subsystem in made(control, "nvmf_get_subsystems", json!({})).as_array().expect("subsystems") {
        call(control, "nvmf_delete_subsystem", json!({ "nqn": subsystem["nqn"] }));
    }
    make_all(control);
}

fn press(control: &Control, method: &Method, place: &Path) {
    for (kind, value, given) in variants(method.params, place) {
        let answer = call(control, method.name, given.clone());
        let failed = answer.get("error");
        assert!(failed.is_some() || answer.get("result").is_some(), "{} {given}: {answer}", method.name);
        if is_wrong_type(kind, &value) {
            assert!(failed.is_some(), "{} takes {value} in {given}", method.name);
        }
        match failed {
            Some(error) => assert!(error["message"].as_str().is_some_and(|line| !line.is_empty()), "{answer}"),
            // The next call finds nothing that this one has made in its way.
            None if ["create", "add", "delete"].iter().any(|verb| method.name.contains(verb)) => tidy(control),
            None => {}
        }
    }
}

fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    let pipe = place.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    place
}

#[test]
fn no_value_of_any_parameter_ends_the_target() {
    let place = place();
    // Relative names of files are wild values, too.
    std::env::set_current_dir(place.path()).expect("a directory");
    let control = control();
    make_all(&control);
    for method in METHODS.iter().copied().flatten().filter(|method| matches!(method.run, Run::Do(_))) {
        press(&control, method, place.path());
        tidy(&control);
    }
    // Each reactor serves still, at the speed of the device: latencies of centuries were set for a while.
    let listener = json!({ "nqn": NQN, "listen_address": { "traddr": "127.0.0.1", "trsvcid": "0" } });
    made(&control, "nvmf_subsystem_add_listener", listener);
    let subsystems = control.target().subsystems();
    let subsystem = subsystems.iter().find(|it| it.spec.nqn == NQN).expect("it is there");
    let address = subsystem.listeners.last().expect("one").address;
    let (_admin, mut queue) = Host::pair(address);
    for nsid in [1, 2] {
        assert_eq!(queue.write(nsid, 0, &[7; 4096]), Status::SUCCESS);
        assert_eq!(queue.read(nsid, 0, 8).expect("data"), [7; 4096]);
    }
}

/// A latency that is too large for a clock of 64 bits holds back the command that met it, until it is aborted, and no
/// command that comes when the latency is small again.
#[test]
fn a_latency_of_centuries_holds_back_one_command_and_no_other() {
    let control = control();
    make_all(&control);
    let listener = json!({ "nqn": NQN, "listen_address": { "traddr": "127.0.0.1", "trsvcid": "0" } });
    made(&control, "nvmf_subsystem_add_listener", listener);
    let address = control.target().subsystems()[0].listeners[0].address;
    let latency = |us: u64| {
        let update = json!({ "delay_bdev_name": "Slow", "latency_type": "avg_read", "latency_us": us });
        made(&control, "bdev_delay_update_latency", update);
    };
    let inside = || made(&control, "bdev_get_iostat", json!({ "name": "EE_Slow" }))["bdevs"][0]["queue_depth"].clone();
    let (mut host, mut queue) = Host::pair(address);
    latency(u64::MAX);
    let held = queue.send_command(Host::read_command(2, 0, 8), &[]);
    raw::until(|| inside() == json!(1));
    latency(0);
    for _ in 0..3 {
        assert_eq!(queue.read(2, 0, 8).expect("data"), [0; 4096]);
    }
    let abort = Command { cdw10: 1 | u32::from(held) << 16, ..Command::new(admin::ABORT, 0) };
    assert_eq!(host.command(abort, &[]).result, 0, "it is aborted");
    let ended = queue.response();
    assert_eq!((ended.cid, ended.status), (held, Status::ABORTED_BY_REQUEST));
}

/// True if one of the parameters has no effect.
fn is_ignored(method: &Method, given: &Value) -> bool {
    method.params.iter().any(|param| matches!(param.need, Need::Ignored) && given.get(param.name).is_some())
}

/// A transport is made once in the life of a target.
#[test]
fn no_value_of_any_parameter_of_the_transport_ends_the_target() {
    let place = place();
    let method = METHODS.iter().copied().flatten().find(|it| it.name == "nvmf_create_transport").expect("there");
    let mut control = control();
    for (kind, value, given) in variants(method.params, place.path()) {
        let answer = call(&control, method.name, given.clone());
        assert!(!is_wrong_type(kind, &value) || answer.get("error").is_some(), "{given}: {answer}");
        // Parameters without an effect make the same transport as without them.
        if answer.get("result").is_none() || is_ignored(method, &given) && value != json!(1) {
            if answer.get("result").is_some() {
                control = self::control();
            }
            continue;
        }
        make_all(&control);
        let listener = json!({ "nqn": NQN, "listen_address": { "traddr": "127.0.0.1", "trsvcid": "0" } });
        made(&control, "nvmf_subsystem_add_listener", listener);
        let address = control.target().subsystems()[0].listeners[0].address;
        let mut host = Host::admin(address);
        let mut queue = Host::open(address, false, false);
        let connected = queue.connect(1, 2, host.cntlid, NQN, raw::HOST);
        assert!(connected.status.is_ok(), "{given}: {}", connected.status);
        assert_eq!(queue.read(1, 0, 1).expect("data"), [0; 512], "{given}");
        assert!(host.command(Command::new(admin::KEEP_ALIVE, 0), &[]).status.is_ok());
        control.target().shutdown(std::time::Duration::ZERO);
        control = self::control();
    }
}

#[test]
fn text_that_is_not_json_is_answered_with_an_error() {
    let control = control();
    for text in [
        r#"{"method":"bdev_null_create","params":{"name":"x","num_blocks":NaN,"block_size":512},"id":1}"#.to_string(),
        r#"{"method":"bdev_null_create","params":{"num_blocks":1e999},"id":1}"#.to_string(),
        r#"{"method":"bdev_get_bdevs","params":{"name":"\ud800"},"id":1}"#.to_string(),
        format!(r#"{{"method":"bdev_get_bdevs","params":{}{},"id":1}}"#, "[".repeat(100_000), "]".repeat(100_000)),
        format!(r#"{{"method":"{}","id":1}}"#, "x".repeat(1 << 20)),
        r#"{"method":"bdev_get_bdevs","params":{"name":"a","name":"b"},"id":1}"#.to_string(),
    ] {
        let answer = answer(&control, text.as_bytes());
        assert!(answer.get("error").is_some(), "{answer}");
    }
    made(&control, "bdev_get_bdevs", json!({}));
}

//! `plimsoll serve --state DIR`: the configuration on disk, after kills at every system call of a save.

#[path = "../crates/nvme_rpc/tests/calls/mod.rs"]
mod calls;
mod common;
#[path = "../crates/nvme_target/tests/raw/mod.rs"]
mod raw;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use calls::{Dice, HOSTS, NAMES, SUBSYSTEMS, differences};
use common::served::{NQN, Served, free_port};
use common::*;
use nvme::pdu::Pdu;
use nvme::spec::Sgl;
use nvme::spec::reservation::{RegisterAction, ReservationCommand};
use nvme_rpc::{Control, Settings, client};
use nvme_target::Options;
use raw::Host;
use serde_json::{Value, json};

/// The target that kills itself before a system call.
fn launcher(directory: &Path) -> PathBuf {
    let launcher = directory.join("die_at");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/die_at.c");
    assert!(Command::new("cc").arg("-o").arg(&launcher).arg(source).status().expect("a compiler").success());
    launcher
}

fn configuration(state: &Path) -> Value {
    let text = std::fs::read_to_string(state.join("configuration.json")).expect("it is there at every moment");
    serde_json::from_str(&text).expect("it is whole at every moment")
}

/// A target that dies before system call `deadly` of a save by the threads of that name, once it is ready.
fn one_to_die(directory: &Path, launcher: &Path, state: &Path, thread: &str, deadly: u32, socket: &Path) -> Child {
    let target = plimsoll(directory);
    let mut child = Command::new(launcher)
        .args([&deadly.to_string(), thread])
        .arg(target.get_program())
        .args(["serve", "--state", state.to_str().expect("text"), "--rpc-socket", socket.to_str().expect("text")])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the launcher starts");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let ready = stdout.lines().map_while(Result::ok).any(|line| line.starts_with("Control: "));
    assert!(ready, "the state of a crash before call {} of a save is served: {:?}", deadly - 1, child.wait());
    child
}

/// Ends a target that outlived its save.
fn end_at_once(directory: &Path, socket: &Path) {
    run(directory, &["rpc", "-s", socket.to_str().expect("text"), "spdk_kill_instance", "sig_name=SIGKILL"]);
}

/// Asks a target that dies before system call `deadly` of its save for one device more. Returns true if it answered.
fn dies_at(directory: &Path, launcher: &Path, state: &Path, deadly: u32) -> (bool, Option<i32>) {
    let socket = directory.join("dying.sock");
    let mut child = one_to_die(directory, launcher, state, "rpc client", deadly, &socket);
    let mut stream = UnixStream::connect(&socket).expect("it listens");
    let uuid = format!("00000000-0000-4000-8000-{deadly:012}");
    let params = json!({ "name": format!("Null{deadly}"), "num_blocks": 8, "block_size": 512, "uuid": uuid });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "bdev_null_create", "params": params });
    let _ = stream.write_all(request.to_string().as_bytes()); // the target may be dead already
    let mut answer = [0; 1 << 10];
    let answered = stream.read(&mut answer).is_ok_and(|bytes| bytes > 0);
    if answered {
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("\"result\""), "{answer}");
        // The deadly call may be one after the answer; otherwise the target is ended here.
        end_at_once(directory, &socket);
    }
    (answered, child.wait().expect("its end").code())
}

#[test]
fn a_kill_at_every_system_call_of_a_save_leaves_the_old_or_the_new_configuration() {
    let place = directory();
    let (launcher, state) = (launcher(place.path()), place.path().join("state"));
    let listen = format!("127.0.0.1:{}", free_port());
    let words = ["--state", state.to_str().expect("text"), "--null", "8g", "--listen", &listen];
    Served::start(place.path(), &words).kill();
    let (mut deadly, mut old_stayed, mut new_came) = (1, 0, 0);
    loop {
        let old = configuration(&state);
        let (answered, status) = dies_at(place.path(), &launcher, &state, deadly);
        let now = configuration(&state);
        let mut new = old.clone();
        let uuid = format!("00000000-0000-4000-8000-{deadly:012}");
        let params = json!({ "name": format!("Null{deadly}"), "num_blocks": 8, "block_size": 512, "uuid": uuid });
        let devices = new["subsystems"][1]["config"].as_array_mut().expect("devices");
        devices.push(json!({ "method": "bdev_null_create", "params": params }));
        assert!(now == new || now == old && !answered, "call {deadly}, answered {answered}: {now:#}");
        old_stayed += u32::from(now == old);
        new_came += u32::from(now == new && !answered);
        if answered {
            break;
        }
        assert_eq!(status, Some(9), "call {deadly}");
        deadly += 1;
    }
    // openat, write, fsync, close and rename of the new file come before it is there; fsync of the directory after.
    assert!(old_stayed >= 3 && new_came >= 2 && deadly >= 7, "{old_stayed} old, {new_came} new, {deadly} calls");
    let served = Served::start(place.path(), &words);
    let names = |value: &Value, at: &str| -> Vec<String> {
        value
            .as_array()
            .expect("devices")
            .iter()
            .map(|device| device.pointer(at).expect("a name").to_string())
            .collect()
    };
    let mut there = names(&served.rpc(&["bdev_get_bdevs"]), "/name");
    let mut saved = names(&configuration(&state)["subsystems"][1]["config"], "/params/name");
    there.sort();
    saved.sort();
    assert_eq!(there, saved);
    let left: Vec<_> = std::fs::read_dir(&state).expect("there").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".part")), "{left:?}");
    served.end();
}

/// A host changes its key while the target dies before each system call of the save in turn: the file has the old key
/// or the new one, and the new one once the host was answered.
#[test]
fn a_kill_at_every_system_call_of_a_reservation_leaves_the_old_or_the_new_key() {
    let place = directory();
    let (launcher, state) = (launcher(place.path()), place.path().join("state"));
    let port = free_port();
    let words = ["--state", state.to_str().expect("text"), "--mem", "8m", "--listen", &format!("127.0.0.1:{port}")];
    Served::start(place.path(), &words).kill();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let register = |key: u64| {
        let action = if key == 1 { RegisterAction::Register } else { RegisterAction::Replace };
        let (command, data) =
            ReservationCommand::Register { action, ignores_key: true, persists: Some(true), current: 0, new: key }
                .command(1);
        (nvme::spec::Command { sgl: Sgl::in_capsule(data.len() as u32), ..command }, data)
    };
    let kept = || -> Option<u64> {
        let files = std::fs::read_dir(state.join("reservations")).expect("a directory").flatten();
        let mut files = files.filter(|file| file.path().extension().is_none());
        let text = std::fs::read_to_string(files.next()?.path()).expect("it is there");
        let value: Value = serde_json::from_str(&text).expect("it is whole at every moment");
        value.pointer("/registrants/0/rkey").and_then(Value::as_u64)
    };
    let socket = place.path().join("dying.sock");
    let (mut old_stayed, mut new_came) = (0, 0);
    for deadly in 1_u32.. {
        let before = kept();
        let mut child = one_to_die(place.path(), &launcher, &state, "nvmf-reservatio", deadly, &socket);
        let (_admin, mut queue) = Host::pair_of(address, [7; 16]);
        let key = before.unwrap_or(0) + 1;
        let (command, data) = register(key);
        queue.send_command(command, &data);
        let answer = queue.unit().map(|unit| match unit.pdu {
            Pdu::CapsuleResp(done) => done.status,
            other => panic!("{other:?}"),
        });
        assert!(answer.is_none_or(|status| status.is_ok()), "call {deadly}: {answer:?}");
        let now = kept();
        assert!(now == Some(key) || now == before && answer.is_none(), "call {deadly}: {now:?}, {answer:?}");
        old_stayed += u32::from(now == before);
        new_came += u32::from(now == Some(key) && answer.is_none());
        if answer.is_some() {
            // The deadly call may be one after the answer.
            end_at_once(place.path(), &socket);
            child.wait().expect("its end");
            break;
        }
        assert_eq!(child.wait().expect("its end").code(), Some(9), "call {deadly}");
    }
    assert!(old_stayed >= 3 && new_came >= 2, "{old_stayed} old, {new_came} new");
    let served = Served::start(place.path(), &words);
    let (_admin, mut queue) = Host::pair_of(address, [7; 16]);
    let (header, registered) = queue.reservation();
    assert_eq!((header.persists, registered[0].key), (1, kept().expect("a key")));
    served.end();
}

#[test]
fn a_killed_target_comes_back_with_all_its_calls_and_identities() {
    let place = directory();
    let state = place.path().join("state");
    let listen = format!("127.0.0.1:{}", free_port());
    let words = [
        &["--state", state.to_str().expect("text"), "--null", "8g", "--mem", "8m", "--file", "disk", "--create", "8m"]
            [..],
        &["--listen", &listen],
    ]
    .concat();
    let mut served = Served::start(place.path(), &words);
    served.rpc(&["bdev_malloc_create", "name=More", "num_blocks=8", "block_size=4096"]);
    served.rpc(&["nvmf_subsystem_add_ns", &format!("nqn={NQN}"), "namespace.bdev_name=More", "namespace.nsid=9"]);
    served.rpc(&["nvmf_create_subsystem", "nqn=nqn.2024-01.org.example:second", "allow_any_host=true"]);
    served.rpc(&["nvmf_subsystem_remove_ns", &format!("nqn={NQN}"), "nsid=1"]);
    let seen = |served: &Served| (served.rpc(&["nvmf_get_subsystems"]), served.rpc(&["bdev_get_bdevs"]));
    let before = seen(&served);
    served.kill();
    // With the options of the first start, and without.
    served.restart();
    assert_eq!(seen(&served).0, before.0);
    served.kill();
    // From another directory, where the relative path of the disk names another file.
    let elsewhere = directory();
    std::fs::File::create(elsewhere.path().join("disk")).and_then(|file| file.set_len(8 << 20)).expect("made");
    let alone = Served::start(elsewhere.path(), &["--state", state.to_str().expect("text")]);
    let after = seen(&alone);
    assert_eq!(after.0, before.0);
    let disk = place.path().join("disk");
    assert_eq!(after.1.to_string(), before.1.to_string().replace("\"disk\"", &format!("\"{}\"", disk.display())));
    let refused = |words: &[&str]| {
        let output = run(place.path(), &[&["serve", "--rpc-socket", "none"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let other = refused(&["--state", state.to_str().expect("text")]);
    assert!(other.contains(&format!("process {} uses it", alone.pid())), "{other}");
    alone.end();
    let changed = refused(&["--state", state.to_str().expect("text"), "--null", "4g"]);
    assert!(changed.contains("began with another configuration"), "{changed}");
    let output = run(elsewhere.path(), &[&["serve", "--rpc-socket", "none"], &words[..]].concat());
    assert!(stderr(&output).contains("began with another configuration"), "another disk: {}", stderr(&output));
    // A disk that is missing is not made anew.
    std::fs::rename(place.path().join("disk"), place.path().join("elsewhere")).expect("renamed");
    let missing = refused(&["--state", state.to_str().expect("text")]);
    assert!(missing.contains("disk") && !place.path().join("disk").exists(), "{missing}");
}

#[test]
fn a_change_that_cannot_be_saved_is_no_success() {
    let place = directory();
    let state = place.path().join("state");
    let served = Served::start(
        place.path(),
        &["--state", state.to_str().expect("text"), "--null", "8g", "--listen", "127.0.0.1:0"],
    );
    // A directory has the name of the file that a save writes first: this holds for root, too.
    let taken = state.join(format!("configuration.json.{}.part", served.pid()));
    std::fs::create_dir(&taken).expect("made");
    let before = configuration(&state);
    let refused = served.refused(&["bdev_null_create", "name=N1", "num_blocks=8", "block_size=512"]);
    assert!(refused.contains("in force, but not saved"), "{refused}");
    assert_eq!(configuration(&state), before);
    served.rpc(&["nvmf_get_stats"]); // what changes nothing succeeds
    std::fs::remove_dir(&taken).expect("removed");
    served.rpc(&["bdev_null_create", "name=N2", "num_blocks=8", "block_size=512"]);
    let text = configuration(&state).to_string();
    assert!(text.contains("\"N1\"") && text.contains("\"N2\""), "{text}");
    served.end();
}

/// A call about what only a target of its own process has: files, keys, and reservations that persist.
fn call_with_files(dice: &mut Dice, place: &Path) -> (&'static str, Value) {
    let (key, nqn, host) = (dice.one(&["k1", "k2"]), dice.one(&SUBSYSTEMS[..2]), dice.one(&HOSTS));
    let (name, nsid) = (dice.one(&["File0", "File1"]), dice.below(5));
    let path = |name: &str| place.join(name).to_str().expect("text").to_string();
    let calls = [
        ("keyring_file_add_key", json!({ "name": key, "path": path("key") })),
        ("keyring_file_remove_key", json!({ "name": key })),
        ("nvmf_subsystem_add_host", json!({ "nqn": nqn, "host": host, "dhchap_key": key })),
        ("nvmf_subsystem_set_keys", json!({ "nqn": nqn, "host": host, "dhchap_key": key })),
        ("bdev_aio_create", json!({ "name": name, "filename": path(name), "block_size": 512 })),
        ("bdev_aio_delete", json!({ "name": name })),
        (
            "nvmf_subsystem_add_ns",
            json!({ "nqn": nqn, "namespace": { "bdev_name": name, "nsid": nsid, "ptpl_file": path(dice.one(&NAMES[..2])) } }),
        ),
        ("nvmf_subsystem_add_ns", json!({ "nqn": nqn, "namespace": { "bdev_name": name } })),
    ];
    let chosen = dice.below(calls.len());
    calls[chosen].clone()
}

/// The configuration as `save_config` writes it, of whatever answers calls.
fn saved(tell: &dyn Fn(&str, Value) -> Value) -> Value {
    let parts = tell("framework_get_subsystems", json!({}));
    let config = |part: &Value| {
        let name = &part["subsystem"];
        json!({ "subsystem": name, "config": tell("framework_get_config", json!({ "name": name })) })
    };
    json!({ "subsystems": parts.as_array().expect("parts").iter().map(config).collect::<Vec<_>>() })
}

/// The configuration after one more call, as a target in this process has it.
fn after(configuration: &Value, method: &str, params: &Value) -> Value {
    let options = Options { publish: false, ..Options::default() };
    let settings = Settings { options, pacing_is_fixed: false, allow_in_use: false, wait_for_init: false };
    let control = Control::start(settings, Box::new(|_| {})).expect("a target");
    control.load(&configuration.to_string()).expect("what a target has saved is loaded");
    let _ = control.call(method, Some(params));
    let after = saved(&|method, params| control.call(method, Some(&params)).expect("it answers"));
    control.target().shutdown(Duration::ZERO);
    after
}

/// A configuration without the identities that a target draws by lot.
fn without_identities(mut configuration: Value) -> Value {
    for part in configuration["subsystems"].as_array_mut().expect("parts") {
        for call in part["config"].as_array_mut().into_iter().flatten() {
            if let Some(params) = call["params"].as_object_mut() {
                params.remove("uuid");
            }
        }
    }
    configuration
}

/// Random calls, and a kill -9 at a random moment of one of them, over and over (`STATE_KILLS` times, or few): the next
/// start has what was answered, and the call under way wholly or not at all.
#[test]
fn a_kill_at_a_random_moment_leaves_the_old_or_the_new_configuration() {
    let kills: u32 = std::env::var("STATE_KILLS").map_or(8, |text| text.parse().expect("STATE_KILLS is a number"));
    let place = directory();
    for name in ["File0", "File1"] {
        std::fs::File::create(place.path().join(name)).and_then(|file| file.set_len(1 << 20)).expect("made");
    }
    let key = place.path().join("key");
    std::fs::write(&key, "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:").expect("written");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let state = place.path().join("state");
    let listen = format!("127.0.0.1:{}", free_port());
    let words = ["--state", state.to_str().expect("text"), "--mem", "1m", "--listen", &listen];
    let mut served = Served::start(place.path(), &words);
    let (mut dice, port) = (Dice(u64::from(kills)), free_port());
    let (mut answered, mut changed) = (0, 0);
    for round in 0..kills {
        let socket = PathBuf::from(served.socket());
        let tell = |method: &str, params: Value| {
            let outcome = client::call(&socket, method, Some(&params), Duration::from_secs(300));
            outcome.expect("the target answers").expect("it can")
        };
        let next = |dice: &mut Dice| match dice.below(3) {
            0 => call_with_files(dice, place.path()),
            _ => dice.call(port),
        };
        for _ in 0..dice.below(12) {
            let before = saved(&tell);
            let (method, params) = next(&mut dice);
            let outcome = client::call(&socket, method, Some(&params), Duration::from_secs(300)).expect("an answer");
            let changes = differences(&before, &saved(&tell), "");
            assert!(outcome.is_ok() || changes.is_empty(), "{method} {params} fails and changes {changes:#?}");
            changed += u32::from(!changes.is_empty());
        }
        let before = saved(&tell);
        let (method, params) = next(&mut dice);
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        stream.write_all(request.to_string().as_bytes()).expect("it reads");
        std::thread::sleep(Duration::from_micros(dice.below(3000) as u64));
        served.kill();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text); // a reset is an end too
        let new = after(&before, method, &params);
        served.restart();
        let socket = PathBuf::from(served.socket());
        let now = saved(&|method, params| {
            let outcome = client::call(&socket, method, Some(&params), Duration::from_secs(300));
            outcome.expect("the target answers").expect("it can")
        });
        let is_new = without_identities(now.clone()) == without_identities(new.clone());
        let is_old = now == before;
        answered += u32::from(!text.is_empty());
        assert!(
            is_new || is_old && text.is_empty(),
            "round {round}: {method} {params}, answered {text:?}: {:#?}; from before: {:#?}",
            differences(&new, &now, ""),
            differences(&before, &now, "")
        );
    }
    assert!(changed > 0, "{answered} of {kills} calls were answered before the kill");
    served.end();
}

//! `plimsoll serve --state DIR`: the configuration on disk, after kills at every system call of a save.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::served::{NQN, Served, free_port};
use common::*;
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

/// Asks a target that dies before system call `deadly` of its save for one device more. Returns true if it answered.
fn dies_at(directory: &Path, launcher: &Path, state: &Path, deadly: u32) -> (bool, Option<i32>) {
    let socket = directory.join("dying.sock");
    let target = plimsoll(directory);
    let mut child = Command::new(launcher)
        .arg(deadly.to_string())
        .arg(target.get_program())
        .args(["serve", "--state", state.to_str().expect("text"), "--rpc-socket", socket.to_str().expect("text")])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the launcher starts");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let ready = stdout.lines().map_while(Result::ok).any(|line| line.starts_with("Control: "));
    assert!(ready, "the state of a crash before call {} of a save is served: {:?}", deadly - 1, child.wait());
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
        run(directory, &["rpc", "-s", socket.to_str().expect("text"), "spdk_kill_instance", "sig_name=SIGKILL"]);
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

//! Hostile clients of the control socket beside a host that reads and writes: the host sees no error, the target's
//! memory does not grow with the time that they go on, and the administrator is heard when they have gone.

mod common;
use common::served::Served;
use common::*;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

/// As many clients as the target has slots.
const CLIENTS: u64 = 64;
/// Requests of a client in each of the rounds.
const REQUESTS: u64 = 12;
/// The memory that the second round may leave beyond what the first one left.
const GROWTH: u64 = 32 << 20;

/// Numbers that look random (splitmix64), from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// One request, and whether the client waits for an answer.
fn request(dice: &mut Dice, client: u64) -> (Vec<u8>, bool) {
    let get = r#"{"jsonrpc":"2.0","method":"bdev_get_bdevs","id":1}"#;
    match dice.roll(9) {
        0 => ((0..dice.roll(5000)).map(|_| dice.roll(256) as u8).collect(), false),
        // The client closes before the answers, which are many times as large.
        1 => (format!("[{}]", vec![get; 2000].join(",")).into_bytes(), false),
        2 => (get.as_bytes()[..20].to_vec(), false),
        3 => (json!({ "method": "x".repeat(5000), "id": 1 }).to_string().into_bytes(), true),
        4 => {
            let params = json!({ "name": "missing", "timeout": 15_000 });
            (json!({ "method": "bdev_get_bdevs", "params": params, "id": 1 }).to_string().into_bytes(), false)
        }
        5 => {
            let params = json!({ "name": format!("Hostile{client}"), "num_blocks": 8, "block_size": 512 });
            (json!({ "method": "bdev_null_create", "params": params, "id": 1 }).to_string().into_bytes(), true)
        }
        6 => {
            let params = json!({ "name": format!("Hostile{client}") });
            (json!({ "method": "bdev_null_delete", "params": params, "id": 1 }).to_string().into_bytes(), true)
        }
        7 => (format!("[{}", "[".repeat(100_000)).into_bytes(), false),
        _ => (vec![b' '; 2 << 20], false),
    }
}

/// Sends requests over new connections. The target may do anything with a client, as long as it goes on serving.
fn attack(socket: &str, client: u64, round: u64) {
    let mut dice = Dice(client << 32 | round);
    for _ in 0..REQUESTS {
        let (bytes, waits) = request(&mut dice, client);
        let Ok(mut stream) = UnixStream::connect(socket) else { continue };
        let limit = Some(Duration::from_millis(200));
        let _ = stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit));
        if stream.write_all(&bytes).is_ok() && waits {
            let _ = stream.read(&mut [0; 4096]);
        }
    }
}

/// The memory of a process that is in use, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
    status.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
fn hostile_clients_cost_a_host_nothing_and_leave_nothing_behind() {
    let place = directory();
    let served = Served::one_line(place.path(), &["--mem", "64m", "--log-level", "error"]);
    let mut load = plimsoll(place.path())
        .args(["run", "--name=v", "--ioengine=nvme_tcp", "--rw=randwrite", "--bs=4k", "--size=16m", "--iodepth=8"])
        .args(["--verify=crc32c", "--loops=100000", "--eta=never", "--output-format=json"])
        .arg(served.filename(1))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the load starts");
    let mut left = Vec::new();
    for round in 0..2 {
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let socket = served.socket();
                scope.spawn(move || attack(socket, client, round));
            }
        });
        // The last calls of those who have gone end before the memory counts.
        while !served.try_rpc(&["nvmf_get_subsystems"]).status.success() {
            assert!(load.try_wait().expect("its status").is_none(), "the load has ended");
        }
        left.push(resident(served.pid()));
    }
    assert!(left[1] < left[0] + GROWTH, "{left:?} bytes after the first round and after the second");
    assert!(load.try_wait().expect("its status").is_none(), "the load has ended");
    tool("kill", &["-INT", &load.id().to_string()], place.path());
    let output = load.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let job = &json(&output)["jobs"][0];
    assert_eq!((&job["error"], &job["disturbances"]), (&json!(0), &serde_json::Value::Null));
    assert_eq!(served.end(), "");
}

//! The parts that the tests on real NFS share: rigs/nfs-lanes.sh from outside, and its lanes from inside.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;

use super::trapped::{self, Pool};
use super::{has_program, stderr, stdout};

/// Boots the rig for the test inside.
pub fn on_nfs(test: &str, variables: &[(&str, &str)]) {
    let needed = ["linux.uml", "rpc.nfsd", "rpcbind", "modprobe", "tc", "fio", "sqlite3", "rsync"];
    if !needed.into_iter().all(has_program) {
        return;
    }
    let mut rig = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rigs/nfs-lanes.sh"));
    // The rig ends what hangs; a machine that is merely slow gets its time.
    let output = trapped::inside(rig.env("RIG_TIMEOUT", "1200").envs(variables.iter().copied()), test);
    println!("{}", stdout(&output));
}

/// The lanes of the rig.
pub fn pool() -> Pool {
    let variable = |name: &str| std::env::var(name).expect("runs inside rigs/nfs-lanes.sh");
    Pool {
        lanes: variable("LANE_MOUNTS").split(' ').map(PathBuf::from).collect(),
        more: String::new(),
        seeds: 2,
        view: variable("NFS_EXPORT").into(),
        scratch: variable("TMPDIR").into(),
    }
}

/// Does something to a lane or to the server.
pub fn rig(command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", stderr(&output));
}

/// The rate of every lane.
pub fn cap(pool: &Pool, rate: &str) {
    for lane in &pool.lanes {
        rig(&format!("lane cap {} {rate}", number(lane)));
    }
}

/// The number of a lane, as the rig has it.
pub fn number(lane: &Path) -> &str {
    lane.to_str().unwrap().strip_prefix("/mnt/v").unwrap()
}

/// Bytes that a mount has read from and written to its server; none if it is not there.
pub fn served(lane: &Path) -> (u64, u64) {
    let stats = std::fs::read_to_string("/proc/self/mountstats").unwrap();
    let here = format!(" mounted on {} with fstype nfs", lane.display());
    let mut lines = stats.lines().skip_while(|line| !line.contains(&here));
    let Some(bytes) = lines.find_map(|line| line.trim().strip_prefix("bytes:")) else { return (0, 0) };
    let numbers: Vec<u64> = bytes.split_whitespace().map(|number| number.parse().unwrap()).collect();
    (numbers[4], numbers[5])
}

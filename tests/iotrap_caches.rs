//! The interposer on clients with separate caches: four FUSE mounts of a GlusterFS volume, whose write-behind
//! acknowledges what the brick does not have and whose quick-read answers from memory, O_DIRECT or not. As it is
//! installed, and with the volume and the pool set to direct I/O that is direct.

mod common;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use std::path::PathBuf;
use std::process::Command;
use trapped::{PATIENT, Pool};

fn on_gluster(test: &str, options: &str) {
    if !is_root("make hosts for a Gluster volume") || !["glusterd", "glusterfs", "ip"].into_iter().all(has_program) {
        return;
    }
    let mut rig = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rigs/gluster-volume.sh"));
    let output = trapped::inside(rig.env("LANES", "4").env("OPTIONS", options), test);
    println!("{}", stdout(&output));
}

fn pool(more: &str) -> Pool {
    let variable = |name: &str| PathBuf::from(std::env::var_os(name).expect("runs inside rigs/gluster-volume.sh"));
    let mounts = variable("GLUSTER_MOUNTS");
    Pool {
        lanes: (1..=4).map(|n| mounts.join(n.to_string())).collect(),
        more: format!("policy = \"round-robin\"\n{PATIENT}\n{more}"),
        seeds: 0,
        view: variable("GLUSTER_BRICKS").join("1"),
        scratch: variable("GLUSTER_LOCAL"),
    }
}

/// Rewrites files on both sides of the size that quick-read keeps; no data of them may be old or lost. Returns the
/// counts of the lanes.
fn rewritten(pool: &Pool) -> String {
    let rewrite = |file: &str, size: u64| {
        let script = format!("IOTRAP_STATS=1 exec python3 -IS \"$PROGRAMS/rewrite.py\" {file} {size} 400");
        let output = pool.bash(&script, "", true);
        assert!(output.status.success(), "{file}: {}{}", stdout(&output), stderr(&output));
        stderr(&output)
    };
    let small = rewrite("small", 16 << 10);
    assert!(small.contains("times on its own lane"), "{small}");
    rewrite("large", 4 << 20)
}

/// The reads and writes that were counted on each lane.
fn ops(said: &str, kind: &str) -> Vec<u64> {
    let of = |line: &str| line.split_once(&format!("{kind} "))?.1.split(' ').next()?.parse().ok();
    said.lines().filter(|line| line.contains(", lane ")).filter_map(of).collect()
}

#[test]
fn writes_that_are_held_back() {
    on_gluster("writes_that_are_held_back", "");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_writes_that_are_held_back() {
    let pool = pool("");
    let said = rewritten(&pool);
    assert_eq!(ops(&said, "write")[1..], [0; 3], "{said}");
    assert!(said.contains("strict-o-direct"), "the reason is recorded: {said}");
    // A program that only reads goes over all lanes, and sees data that were written a moment ago through one of them.
    let script = "dd if=/dev/urandom of=data bs=64k count=64 conv=notrunc 2> /dev/null
        IOTRAP_STATS=1 fio --name=f --filename=data --size=4m --rw=read --bs=64k --ioengine=libaio --iodepth=8 --direct=1 \
          --thread --readonly --minimal --verify_state_save=0 > /dev/null";
    let output = pool.bash(script, "", true);
    assert!(output.status.success(), "{}", stderr(&output));
    let reads = ops(&stderr(&output), "read");
    assert!(reads.len() == 4 && reads.iter().all(|&ops| ops > 0), "{}", stderr(&output));
}

#[test]
fn direct_that_is_direct() {
    on_gluster("direct_that_is_direct", "performance.strict-o-direct=on");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_direct_that_is_direct() {
    let pool = pool("strict-o-direct = true");
    let said = rewritten(&pool);
    for kind in ["read", "write"] {
        assert!(ops(&said, kind).iter().all(|&ops| ops > 100), "{kind}: {said}");
    }
}

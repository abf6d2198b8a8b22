//! Real programs under the interposer on four FUSE mounts of a GlusterFS volume: the same files as without it, looked
//! at where the brick has them.

mod common;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use std::path::PathBuf;
use std::process::Command;
use trapped::{PROGRAMS, Pool};

#[test]
fn four_mounts_of_a_volume() {
    let needed = ["glusterd", "glusterfs", "ip", "fio", "sqlite3", "rsync"];
    if !is_root("make hosts for a Gluster volume") || !needed.into_iter().all(has_program) {
        return;
    }
    let mut rig = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/rigs/gluster-volume.sh"));
    let output = trapped::inside(rig.env("LANES", "4"), "four_mounts_of_a_volume");
    println!("{}", stdout(&output));
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_four_mounts_of_a_volume() {
    let variable = |name: &str| PathBuf::from(std::env::var_os(name).expect("runs inside rigs/gluster-volume.sh"));
    let mounts = variable("GLUSTER_MOUNTS");
    let pool = Pool {
        lanes: (1..=4).map(|n| mounts.join(n.to_string())).collect(),
        more: String::new(),
        seeds: 4,
        view: variable("GLUSTER_BRICKS").join("1"),
        scratch: variable("GLUSTER_LOCAL"),
    };
    for (name, script) in PROGRAMS {
        // sqlite3 maps its write-ahead log shared, which FUSE with direct I/O, as the rig mounts, does not have.
        pool.same(name, &format!("MODES='delete truncate persist'\n{script}"));
    }
    pool.fio(|name| name.starts_with("libaio"), "2m");
}

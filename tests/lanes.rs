//! `plimsoll lanes`: what the doctor says of real mounts: NFS 3, 4.0 and 4.1 in a kernel of its own, Gluster, bind
//! mounts; and of programs.
//!
//! A test on NFS or Gluster sets up its rig and runs the test of the same name with `inside_` before it there.

mod common;
use common::*;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the test `inside_NAME` in a rig.
fn inside(rig: &str, variables: &[(&str, &str)], needed: &[&str], name: &str) {
    if !needed.iter().copied().all(has_program) {
        return;
    }
    let mut rig = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("rigs").join(rig));
    rig.envs(variables.iter().copied()).arg(std::env::current_exe().unwrap());
    let output = rig.args([&format!("inside_{name}"), "--exact", "--ignored", "--nocapture"]).output().unwrap();
    let (said, errors) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{errors}");
}

fn on_nfs(version: &str, name: &str) {
    // A MiB/s for each lane: it is the connections that limit what a lane does, however busy the machine is. The rig
    // ends what hangs.
    let variables =
        [("VERS", version), ("RATE", "8mbit"), ("RIG_MEM", "600M"), ("SIZE", "128m"), ("RIG_TIMEOUT", "1200")];
    inside("nfs-lanes.sh", &variables, &["linux.uml", "rpc.nfsd", "rpcbind", "modprobe", "tc"], name);
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("runs inside a rig")
}

/// A pool of all lanes of the NFS rig, with a file that is there.
fn nfs_pool() -> String {
    std::fs::write(Path::new(&variable("NFS_EXPORT")).join("data"), vec![7; 8 << 20]).unwrap();
    format!("e4a={}", variable("LANE_MOUNTS").replace(' ', ","))
}

/// The findings of the doctor with these arguments, and its exit status.
fn doctor(directory: &Path, arguments: &[&str]) -> (Value, i32) {
    let output = run(directory, &[&["lanes", "--json"], arguments].concat());
    (json(&output), output.status.code().unwrap())
}

/// The kinds of the findings in the only pool.
fn kinds(said: &Value) -> Vec<&str> {
    said["pools"][0]["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].as_str().unwrap()).collect()
}

fn text_of<'a>(said: &'a Value, kind: &str) -> &'a str {
    let findings = said["pools"][0]["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}: {said:#}"))["text"].as_str().unwrap()
}

/// The time for which a rate is measured: a moment of standstill makes it lower, and not by half.
const TIME: [&str; 2] = ["--seconds", "4s"];

/// The speed of all lanes together over that of the best lane alone: four, or one where they share a connection.
fn gain(said: &Value) -> f64 {
    let pool = &said["pools"][0];
    let alone = pool["lanes"].as_array().unwrap().iter().map(|lane| lane["alone_bytes_per_s"].as_f64().unwrap());
    pool["together_bytes_per_s"].as_f64().unwrap() / alone.fold(0.0, f64::max)
}

#[test]
fn four_lanes_of_nfs_3_and_what_may_happen_to_them() {
    on_nfs("3", "four_lanes_of_nfs_3_and_what_may_happen_to_them");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_four_lanes_of_nfs_3_and_what_may_happen_to_them() {
    let place = PathBuf::from(variable("TMPDIR"));
    let pool = nfs_pool();
    let (said, status) = doctor(&place, &[&["--pool", &pool, "--program", "/bin/sh"], &TIME[..]].concat());
    assert_eq!((kinds(&said), status), (vec![], 0), "{said:#}");
    assert_eq!(said["program"]["interceptable"], true);
    let lanes = said["pools"][0]["lanes"].as_array().unwrap();
    let distinct = |what: fn(&Value) -> String| lanes.iter().map(what).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(distinct(|lane| lane["connections"].to_string()), 4, "a connection each, known by both ends: {said:#}");
    assert_eq!(distinct(|lane| lane["device"].to_string()), 4, "a superblock each: {said:#}");
    assert!(lanes.iter().all(|lane| lane["nfs_version"] == "3"));
    assert!(gain(&said) > 2.0, "four capped lanes are faster than one: {said:#}");

    let listed = stdout(&run(&place, &["lanes", "--csv", "--no-rate", "--pool", &pool]));
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows[0], "pool,lane,usable,type,source,nfs_version,superblock,connection,bytes_per_s");
    assert_eq!(rows.len(), 5, "{listed}");
    assert!(rows[1].starts_with("e4a,/mnt/v32,true,nfs,127.0.0.32:/run/export,3,0:"), "{listed}");
    assert!(rows[1..].iter().all(|row| row.ends_with(',')), "no rate was measured: {listed}");

    // Nothing is left behind where something may be written, and all lanes see it.
    let (said, status) = doctor(&place, &["--pool", &pool, "--no-rate", "--write-probe"]);
    assert_eq!((kinds(&said), status), (vec![], 0), "{said:#}");
    assert_eq!(names(Path::new(&variable("NFS_EXPORT"))), ["data"]);

    // A slow lane; a file of another name; one lane that says nothing.
    tool("lane", &["cap", "34", "2500kbit"], &place);
    let (said, status) = doctor(&place, &[&["--pool", &pool], &TIME[..]].concat());
    assert_eq!(status, 1);
    assert!(text_of(&said, "slow-lane").starts_with("/mnt/v34 is slow"));
    tool("lane", &["cap", "34"], &place);
    tool("lane", &["unmount", "35"], &place);
    let (said, status) = doctor(&place, &["--pool", &pool, "--no-rate"]);
    assert_eq!(status, 1);
    assert!(text_of(&said, "other-volume").contains("/mnt/v35"), "{said:#}");
    tool("lane", &["mount", "35"], &place);
    tool("lane", &["freeze", "33"], &place);
    let (said, status) = doctor(&place, &["--pool", &pool, "--no-rate"]);
    assert_eq!(status, 1);
    assert!(text_of(&said, "silent").starts_with("/mnt/v33 gives no answer (nfs from 127.0.0.33:"), "{said:#}");
    tool("lane", &["thaw", "33"], &place);
}

#[test]
fn four_lanes_of_nfs_4_0() {
    on_nfs("4.0", "four_lanes_of_nfs_4_0");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_four_lanes_of_nfs_4_0() {
    let pool = nfs_pool();
    let (said, status) = doctor(Path::new(&variable("TMPDIR")), &[&["--pool", &pool], &TIME[..]].concat());
    assert_eq!((kinds(&said), status), (vec![], 0), "{said:#}");
    assert!(gain(&said) > 2.0, "{said:#}");
}

#[test]
fn four_lanes_of_nfs_4_1_are_one() {
    on_nfs("4.1", "four_lanes_of_nfs_4_1_are_one");
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_four_lanes_of_nfs_4_1_are_one() {
    let place = PathBuf::from(variable("TMPDIR"));
    let pool = nfs_pool();
    let (said, status) = doctor(&place, &[&["--pool", &pool], &TIME[..]].concat());
    assert_eq!((kinds(&said), status), (vec!["trunked"], 1), "{said:#}");
    let wanted =
        "these four mounts share ONE connection because the client trunks NFS 4.1: use vers=3, 4.0 or nconnect";
    assert!(text_of(&said, "trunked").starts_with(wanted));
    assert!(gain(&said) < 2.0, "which is why: {said:#}");
    let text = stdout(&run(&place, &["lanes", "--pool", &pool, "--no-rate"]));
    assert!(text.contains(&format!("bad: {wanted}")), "{text}");
}

#[test]
fn lanes_of_a_gluster_volume() {
    if is_root("make hosts for a Gluster volume") {
        inside("gluster-volume.sh", &[("LANES", "2")], &["glusterd", "glusterfs", "ip"], "lanes_of_a_gluster_volume");
    }
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_lanes_of_a_gluster_volume() {
    let mounts = PathBuf::from(variable("GLUSTER_MOUNTS"));
    std::fs::write(mounts.join("1/data"), "data").unwrap();
    let pool = format!("g={0}/1,{0}/2", mounts.display());
    let (said, status) = doctor(&mounts, &["--pool", &pool, "--no-rate"]);
    assert_eq!(
        (kinds(&said), status),
        (vec!["fuse-writes"], 0),
        "the volume's own identity of the file is the proof: {said:#}"
    );
}

/// A directory that is mounted in two places.
struct Bound {
    place: tempfile::TempDir,
}

impl Bound {
    fn new() -> Option<Bound> {
        if !is_root("mount a directory in a second place") {
            return None;
        }
        let place = directory();
        for name in ["one", "two"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        std::fs::write(place.path().join("one/data"), vec![1; 1 << 20]).unwrap();
        let mounted = Command::new("mount").args(["--bind", "one", "two"]).current_dir(place.path()).output().unwrap();
        if !mounted.status.success() {
            skip(&format!("bind mounts are not possible: {}", stderr(&mounted).trim()), false);
            return None;
        }
        Some(Bound { place })
    }

    fn pool(&self) -> String {
        format!("p={0}/one,{0}/two", self.place.path().display())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.place.path().join("two")).status(); // it goes with the directory
    }
}

#[test]
fn bind_mounts_are_safe_and_gain_nothing() {
    let Some(bound) = Bound::new() else { return };
    let (said, status) = doctor(bound.place.path(), &["--pool", &bound.pool(), "--no-rate"]);
    assert_eq!(status, 1);
    assert!(text_of(&said, "same-superblock").contains("safe and gains nothing"), "{said:#}");
    assert!(!kinds(&said).contains(&"other-volume"), "{said:#}");
}

#[test]
fn two_volumes_are_no_pool() {
    let (Some(one), Some(two)) = (Mount::new("tmpfs", "size=1m"), Mount::new("tmpfs", "size=1m")) else { return };
    std::fs::write(one.path().join("data"), "data").unwrap();
    let pool = format!("p={},{}", one.path().display(), two.path().display());
    let (said, status) = doctor(one.path(), &["--pool", &pool, "--no-rate"]);
    assert_eq!(status, 1);
    assert!(text_of(&said, "other-volume").contains("has no data"), "{said:#}");
    // The files have the same name, and even the same content: nothing proves that they are one.
    std::fs::write(two.path().join("data"), "data").unwrap();
    let (said, _) = doctor(one.path(), &["--pool", &pool, "--no-rate"]);
    assert!(text_of(&said, "unproven").contains("trust-inode = true"), "{said:#}");
    let (said, _) = doctor(one.path(), &["--pool", &pool, "--no-rate", "--write-probe"]);
    assert!(text_of(&said, "other-volume").contains("different volumes"), "{said:#}");
    assert_eq!(names(one.path()), ["data"], "what was written is gone");
}

#[test]
fn lanes_that_are_not_there_are_named() {
    let place = directory();
    std::fs::create_dir(place.path().join("here")).unwrap();
    let pool = format!("p={0}/here,{0}/gone", place.path().display());
    let output = run(place.path(), &["lanes", "--pool", &pool]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("gone: No such file or directory"), "{}", stdout(&output));
}

#[test]
fn programs_are_told_apart() {
    let place = directory();
    let program = |name: &str| -> (bool, String, i32) {
        let (said, status) = doctor(place.path(), &["--program", name]);
        let text = said["program"]["text"].as_str().unwrap().to_owned();
        (said["program"]["interceptable"].as_bool().unwrap(), text, status)
    };
    assert_eq!(program("cat"), (true, "can be intercepted".into(), 0));
    if cfg!(target_arch = "x86_64") && has_program("fio") {
        // fio enters its io_urings by calls of its own code.
        let (works, text, status) = program("fio");
        assert!(works && text.contains("trap --raw") && status == 0, "{text}");
    }
    let script = file(place.path(), "script", "#!/bin/bash -e\nexit 0\n");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    assert!(program("./script").0 && program("./script").1.contains("script for /bin/bash"));
    assert_eq!((program("./script").2, program("/etc/passwd").2), (0, 1));
    // A static one, made here.
    if has_program("cc") {
        file(place.path(), "static.c", "int main(void) { return 0; }");
        tool("cc", &["-static", "-o", "static", "static.c"], place.path());
        let (works, text, status) = program("./static");
        assert!(!works && text.contains("linked statically") && status == 1, "{text}");
    }
    // Setuid, as another user sees it: the program itself looks, so it must be that user.
    if is_root("make a program of another user's setuid") {
        let copy = place.path().join("setuid");
        std::fs::copy("/bin/true", &copy).unwrap();
        tool("chown", &["1", "setuid"], place.path());
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o4755)).unwrap();
        let (works, text, _) = program("./setuid");
        assert!(!works && text.contains("setuid") && text.contains("ignores LD_PRELOAD"), "{text}");
    }
}

#[test]
fn what_cannot_be_looked_at_is_refused() {
    let place = directory();
    let said = |arguments: &[&str]| refused(place.path(), &[&["lanes"], arguments].concat());
    assert!(said(&[]).contains("no pool"));
    assert!(said(&["e4a"]).contains("no pool e4a"));
    assert!(said(&["--pool", "p=/a,/b", "other"]).contains("there is p"));
    assert!(said(&["--pool", "/a,/b"]).contains("NAME=PATH,PATH"));
    assert!(said(&["--pool", "p=a,b"]).contains("not an absolute path"));
    assert!(said(&["--program", "no-such-program"]).contains("no program no-such-program"));
    assert!(said(&["--pool", "p=/a,/b", "--file", "/etc/passwd"]).contains("as seen from the lanes"));
    file(place.path(), "pools.toml", "[[pool]]\nname = \"a\"\nlane = []\n");
    assert!(said(&["--pool-file", "pools.toml"]).contains("pools.toml: line 3: unknown field `lane`"));
    assert!(said(&["--pool-file", "none.toml"]).contains("cannot read the pool file none.toml"));
    let output: Output = plimsoll(place.path()).args(["lanes"]).env("IOTRAP_MOUNT_POOLS", "x").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("IOTRAP_MOUNT_POOLS: "), "{}", stderr(&output));
}

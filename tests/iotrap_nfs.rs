//! Real programs under the interposer on real NFS: a server and its client in a kernel of their own, four connections.
//!
//! Each test boots the rig once (rigs/nfs-lanes.sh) and runs the test of the same name with `inside_` before it there.

mod common;
#[path = "common/nfs.rs"]
mod nfs;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use nfs::*;
use std::path::Path;
use std::process::Command;
use trapped::{PATIENT, PROGRAMS, Pool};

/// MiB/s of fio's jobs together.
fn fio_rate(jobs: &[String]) -> f64 {
    let common = ["--ioengine=libaio", "--direct=1", "--bs=64k", "--iodepth=32", "--output-format=json"];
    let mut fio = Command::new("fio");
    let output = fio.current_dir("/run/tmp").args(common).args(["--group_reporting", "--thread"]).args(jobs).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{jobs:?}: {}", stderr(&output));
    let text = stdout(&output);
    let result: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    ["read", "write"].map(|way| result["jobs"][0][way]["bw_bytes"].as_f64().unwrap()).iter().sum::<f64>() / 1048576.0
}

/// The speed of four mounts relative to one, without the interposer: the rig itself. A MiB/s for each lane, which a
/// busy machine manages too, and for so long that a moment of standstill makes little difference.
fn mounts_against_one(pool: &Pool) -> f64 {
    let job = |lane: &Path, rw: &str, mib: u32| {
        let file = lane.join(format!("f{}", number(lane)));
        [
            format!("--name=j{}", number(lane)),
            format!("--filename={}", file.display()),
            format!("--rw={rw}"),
            format!("--size={mib}m"),
        ]
    };
    cap(pool, "8mbit");
    let ratios = ["write", "read"].map(|rw| {
        let one = fio_rate(&job(&pool.lanes[0], rw, 4));
        let all: Vec<String> = pool.lanes.iter().flat_map(|lane| job(lane, rw, 3)).collect();
        fio_rate(&all) / one
    });
    println!("four mounts against one, write and read: {ratios:.2?}");
    cap(pool, "10gbit");
    ratios[0].min(ratios[1])
}

/// The requests of fio and fsperf go over all lanes; where the lanes are equal, in parts of about the same size.
fn spreads(pool: &Pool) {
    let make = "dd if=/dev/zero of=f bs=1M count=8 oflag=direct 2> /dev/null";
    assert!(pool.bash(make, "", false).status.success());
    let fio = "fio --name=f --filename=f --size=8m --bs=64k --iodepth=32 --direct=1 --thread --minimal --overwrite=1";
    let fsperf = "\"$PLIMSOLL\" fsperf -t read -m throughput -f 8m -b 64k -o short --noinit .";
    // Slow enough that it is the connections that limit what a lane does, however busy the machine is.
    cap(pool, "16mbit");
    let pool = &Pool { more: PATIENT.into(), ..self::pool() };
    for script in [
        format!("{fio} --ioengine=libaio --rw=read"),
        format!("{fio} --ioengine=libaio --rw=write"),
        format!("{make}; mv f fsperf.dat; {fsperf}; mv fsperf.dat f"),
    ] {
        let before: Vec<(u64, u64)> = pool.lanes.iter().map(|lane| served(lane)).collect();
        let output = pool.bash(&script, "", true);
        assert!(output.status.success(), "{script}: {}", stderr(&output));
        let served = pool.lanes.iter().zip(before).map(|(lane, before)| {
            let after = served(lane);
            (after.0 - before.0) + (after.1 - before.1)
        });
        let served: Vec<u64> = served.collect();
        let least = *served.iter().skip(1).min().unwrap();
        // An eighth of an equal part: a lane that stalls for a moment gets less, and rightly so.
        assert!(least >= 1 << 18, "{script}: bytes of the lanes: {served:?}");
        println!("{}: bytes of the lanes: {served:?}", script.split(' ').next_back().unwrap());
    }
    cap(pool, "10gbit");
}

/// A file is recognised on other lanes while somebody else writes it without end: no two of its attributes hold still.
fn spreads_while_written(pool: &Pool) {
    let write = "import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
while True:
    os.pwrite(fd, os.urandom(512), 0)";
    let make = "dd if=/dev/urandom of=g bs=1M count=8 oflag=direct 2> /dev/null";
    assert!(pool.bash(make, "", false).status.success());
    let mut writer = Command::new("python3").args(["-IS", "-c", write]).arg(pool.view.join("g")).spawn().unwrap();
    // Nothing is tried again while fio runs.
    let pool = Pool { more: format!("probe-after = \"1h\"\n{PATIENT}"), ..self::pool() };
    let read = "fio --name=g --filename=g --size=8m --bs=64k --iodepth=16 --direct=1 --thread --minimal --readonly \
                --ioengine=libaio --rw=read";
    let mut look = || -> Vec<u64> {
        let before: Vec<u64> = pool.lanes.iter().map(|lane| served(lane).0).collect();
        let output = pool.bash(read, "", true);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(writer.try_wait().unwrap().is_none(), "it is written all the time");
        pool.lanes.iter().zip(before).map(|(lane, before)| served(lane).0 - before).collect()
    };
    // A lane that did not recognise the file reads nothing; how much each gets is a matter of how busy they are. On a
    // busy machine the answers to two questions may be further apart than two writes: once in a while that is bad luck.
    let looks: Vec<Vec<u64>> = (0..4).map(|_| look()).collect();
    writer.kill().unwrap();
    writer.wait().unwrap();
    println!("written without end: bytes of the lanes: {looks:?}");
    let good = looks.iter().filter(|read| read.iter().all(|&bytes| bytes > 0)).count();
    assert!(good >= 2, "bytes of the lanes: {looks:?}");
}

#[test]
fn version_3() {
    on_nfs("version_3", &[("VERS", "3")]);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_version_3() {
    let pool = pool();
    assert!(mounts_against_one(&pool) > 2.0, "four connections");
    for (name, script) in PROGRAMS {
        pool.same(name, script);
    }
    pool.fio(|_| true, "1m");
    spreads(&pool);
}

#[test]
fn version_4_0() {
    on_nfs("version_4_0", &[("VERS", "4.0")]);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_version_4_0() {
    let pool = pool();
    assert!(mounts_against_one(&pool) > 2.0, "four connections");
    for (name, script) in PROGRAMS.iter().filter(|(name, _)| ["sqlite3", "python", "dd"].contains(name)) {
        pool.same(name, script);
    }
    pool.fio(|name| ["libaio", "libaio-mixed", "psync", "posixaio"].contains(&name), "1m");
    spreads(&pool);
    spreads_while_written(&pool);
}

#[test]
fn version_4_1_is_one_connection() {
    on_nfs("version_4_1_is_one_connection", &[("VERS", "4.1")]);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_version_4_1_is_one_connection() {
    let pool = pool();
    let ratio = mounts_against_one(&pool);
    assert!(ratio < 2.0, "the client trunks all mounts: {ratio}");
}

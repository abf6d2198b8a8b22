//! `plimsoll watch` on real NFS: what the client's own kernel counts of a load whose requests are known.

mod common;
#[path = "common/nfs.rs"]
mod nfs;
#[path = "common/trapped.rs"]
mod trapped;
use common::*;
use nfs::*;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

#[test]
fn the_requests_of_a_mount_are_counted() {
    on_nfs("the_requests_of_a_mount_are_counted", &[("VERS", "3")]);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_the_requests_of_a_mount_are_counted() {
    let pool = pool();
    let [lane, idle, ..] = &pool.lanes[..] else { panic!("four lanes") };
    let load = |rw: &str, more: &[&str]| {
        let (rw, filename) = (format!("--rw={rw}"), format!("--filename={}/f", lane.display()));
        let job = ["run", "--name=a", &filename, &rw, "--bs=16k", "--size=4m", "--direct=1", "--iodepth=8"];
        json(&succeed(&pool.scratch, &[&job[..], &["--ioengine=libaio", "--output-format=json"], more].concat()))
    };
    // Each request of 16 KiB is one READ or WRITE: the mount takes more at once.
    for way in ["write", "read"] {
        let before = [lane, idle].map(|lane| look(&pool.scratch, lane));
        let result = load(way, &[]);
        let after = [lane, idle].map(|lane| look(&pool.scratch, lane));
        let grown = |figure: &str| [0, 1].map(|k| of(&after[k], way, figure) - of(&before[k], way, figure));
        let done = &result["jobs"][0][way];
        assert_eq!(done["total_ios"], 256);
        // The layout of the file before it is read writes and never reads.
        if way == "read" {
            assert_eq!(grown("ops"), [256, 0], "{way}: {before:#?} {after:#?}");
            assert_eq!(grown("bytes"), [4 << 20, 0], "{way}");
        } else {
            assert!(grown("ops")[0] >= 256 && grown("bytes")[0] >= 4 << 20, "{way}: {before:#?} {after:#?}");
            assert_eq!(grown("ops")[1], 0, "{way}: a mount without a load");
        }
    }
}

/// A link of 8 Mbit/s carries about a MB/s, and eight requests wait for it: the figures of `watch` meet those of the
/// load that it watches.
#[test]
fn the_figures_of_a_slow_link_are_true() {
    on_nfs("the_figures_of_a_slow_link_are_true", &[("VERS", "4.0")]);
}

#[test]
#[ignore = "run by the test of the same name"]
fn inside_the_figures_of_a_slow_link_are_true() {
    let pool = pool();
    let lane = &pool.lanes[0];
    cap(&pool, "8mbit");
    let filename = format!("--filename={}/f", lane.display());
    let job = ["run", "--name=a", &filename, "--rw=read", "--bs=16k", "--size=4m", "--direct=1", "--iodepth=8"];
    let timed = ["--ioengine=libaio", "--time_based", "--runtime=12", "--ramp_time=1", "--output-format=json"];
    let mut load = plimsoll(&pool.scratch).args(job).args(timed).stdout(Stdio::piped()).spawn().unwrap();
    // The load itself says when it runs: the file is laid out first, over the same slow link.
    let begun = of(&look(&pool.scratch, lane), "read", "ops");
    while of(&look(&pool.scratch, lane), "read", "ops") < begun + 16 {
        assert!(load.try_wait().unwrap().is_none(), "the load ended before it read");
    }
    let watch = ["watch", lane.to_str().unwrap(), "--interval", "1s", "--for", "6s", "--json"];
    let lines = stdout(&succeed(&pool.scratch, &watch));
    let seen: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = json(&load.wait_with_output().unwrap());
    let median = |figure: &dyn Fn(&Value) -> f64| {
        let mut figures: Vec<f64> = seen.iter().map(|line| figure(&line["targets"][0])).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let read = &result["jobs"][0]["read"];
    let rate = median(&|target| target["read"]["bytes_per_s"].as_f64().unwrap()) / read["bw_bytes"].as_f64().unwrap();
    let latency =
        median(&|target| target["read"]["lat_ns"].as_f64().unwrap()) / read["clat_ns"]["mean"].as_f64().unwrap();
    let depth = median(&|target| target["depth"].as_f64().unwrap());
    println!("rate {rate:.2} and latency {latency:.2} of the load's own, depth {depth:.1} of 8");
    for (name, figure, true_one) in [("rate", rate, 1.0), ("latency", latency, 1.0), ("depth", depth, 8.0)] {
        assert!((0.7..1.4).contains(&(figure / true_one)), "{name}: {figure} of {true_one}: {lines}");
    }
}

/// The only target of one look.
fn look(directory: &Path, lane: &Path) -> Value {
    let seen = json(&succeed(directory, &["watch", lane.to_str().unwrap(), "--once", "--interval", "20ms", "--json"]));
    assert_eq!(
        (&seen["targets"][0]["kind"], seen["targets"].as_array().unwrap().len()),
        (&"nfs".into(), 1),
        "{seen:#}"
    );
    seen["targets"][0].clone()
}

fn of(target: &Value, way: &str, figure: &str) -> u64 {
    target[way][figure].as_u64().unwrap()
}

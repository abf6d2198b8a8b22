//! Disks of a kernel of Debian 13 in a guest: blktrace's recordings, limits of control groups of version 2, and
//! tracepoints, each beside a rate or a latency that is known.

mod common;
use common::guest::{disk_guest, has_rig};
use common::*;

use serde_json::Value;

/// The beginning of the scripts: a disk of 64 MiB whose requests take 10 ms. `say NAME FILE` hands a result over.
const DISK: &str = r#"
export TERM=dumb
mkdir /sys/kernel/config/nullb/nullb1 && cd /sys/kernel/config/nullb/nullb1 || failed no disk
echo 2 > irqmode; echo 10000000 > completion_nsec; echo 64 > size; echo 1 > power
cd /tmp; disk=/dev/nullb1; wait_for [ -b $disk ]
say() { echo "result $1: $(tr '\n' ' ' < $2)"; }
load() { $PLIMSOLL run --name=a --filename=$disk --rw=randread --bs=4k --direct=1 --ioengine=io_uring "$@" > /tmp/load 2>&1 || { cat /tmp/load; failed load; }; }
# Runs a sweep in a control group that may carry out this many reads a second.
limited() {
  limit=$1; name=$2; shift 2
  [ -d /cg ] || { mkdir /cg; mount -t cgroup2 cgroup /cg; echo +io > /cg/cgroup.subtree_control; mkdir /cg/limited; }
  echo "$(cat /sys/block/nullb1/dev) riops=$limit" > /cg/limited/io.max || failed io.max
  sh -c 'echo $$ > /cg/limited/cgroup.procs; exec "$@"' sh $PLIMSOLL sweep $disk --no-files --json "$@" > /tmp/$name 2> /tmp/error || { cat /tmp/error; failed "$name"; }
  say $name /tmp/$name
}
"#;

/// The results of a script by their names.
fn results(packages: &str, script: &str) -> impl Fn(&str) -> Vec<Value> + use<> {
    let said = disk_guest(directory().path(), packages, &format!("{DISK}{script}"));
    move |name| {
        let head = format!("result {name}: ");
        let texts = said.lines().filter_map(|line| line.strip_prefix(&head));
        texts.map(|text| serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))).collect()
    }
}

fn skipped() -> bool {
    let missing = !has_rig();
    if missing {
        skip("the rig of guests needs QEMU and more (rigs/nvme-kernel-client.sh)", false);
    }
    missing
}

#[test]
#[ignore = "boots a guest: make test-guest"]
fn a_recording_of_blktrace_is_replayed_by_its_threads() {
    if skipped() {
        return;
    }
    let of = results(
        "blktrace",
        r#"
mount -t debugfs debugfs /sys/kernel/debug
newer blktrace -d $disk -o trace > /tmp/blktrace 2>&1 &
wait_for [ -s trace.blktrace.0 -o -e /sys/kernel/debug/block/nullb1/trace0 ]
load --iodepth=4 --number_ios=400 --numjobs=2 --thread
kill -INT $!; wait; cat /tmp/blktrace
$PLIMSOLL sweep --workload trace.blktrace.0 $disk --axis replay_time_scale=100,400 --time 6s --json --no-files > swept 2> error || { cat error; failed sweep; }
say swept swept
"#,
    );
    let [swept] = &of("swept")[..] else { panic!("one result") };
    let points = swept["curves"][0]["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    for point in points {
        let ops = point["job"]["directions"]["read"]["ops"].as_u64().unwrap();
        assert!(ops > 0 && ops % 800 == 0, "whole passes of 800 requests: {ops}");
        // Eight in flight, each of which takes 10 ms.
        assert!(point["iops"]["mean"].as_f64().unwrap() < 801.0, "{point}");
    }
    let verdicts = swept["verdicts"].as_array().unwrap();
    let replayed = verdicts.iter().find(|verdict| verdict["code"] == "replayed").unwrap()["what"].as_str().unwrap();
    assert!(replayed.contains("all 800 requests") && replayed.contains("2 threads, 8 in flight"), "{replayed}");
}

/// 200 reads a second: the sweep over rates, the objective and the sweep over depths all stand against it.
#[test]
#[ignore = "boots a guest, and sweeps for minutes: make test-guest"]
fn the_limit_of_a_control_group_is_found() {
    if skipped() {
        return;
    }
    let of = results(
        "",
        r#"
limited 200 rate --axis rate_iops=50,100,150,180,220,260,320 --time 120s
limited 200 objective --axis rate_iops=50,100,150,180,220,260,320 --objective 'p90<100ms' --time 120s
limited 200 depth --axis iodepth=1,2,4,8,16 --time 60s
$PLIMSOLL watch /cg/limited --once --json > /tmp/seen; say seen /tmp/seen
"#,
    );
    for name in ["rate", "objective"] {
        let [swept] = &of(name)[..] else { panic!("one result") };
        let limit = &swept["curves"][0]["limit"];
        println!("{name}: {limit}");
        let (low, high) = (&limit["low"], &limit["high"]);
        assert!(low.as_f64().unwrap() <= 200.0 && high.as_f64().unwrap() >= 200.0, "{limit:#}");
    }
    let [swept] = &of("depth")[..] else { panic!("one result") };
    // Two in flight of 10 ms each give 200 a second, if nothing delays them.
    for point in swept["curves"][0]["points"].as_array().unwrap().iter().filter(|point| point["x"] != 1.0) {
        let iops = point["iops"]["mean"].as_f64().unwrap();
        assert!(iops <= 210.0, "beyond the limit: {point:#}");
    }
    let [seen] = &of("seen")[..] else { panic!("one result") };
    let read = &seen["targets"][0]["read"];
    assert!(read["ops"].as_u64().unwrap() > 1000 && read["bytes"].as_u64().unwrap() > 4096 * 1000, "{seen:#}");
}

#[test]
#[ignore = "boots a guest: make test-guest"]
fn tracepoints_show_the_latency_of_the_disk() {
    if skipped() {
        return;
    }
    let of = results(
        "",
        r#"
$PLIMSOLL watch $disk --trace --json --interval 1s > /tmp/seen &
wait_for [ -s /tmp/seen ]
load --iodepth=4 --number_ios=200
sleep 1; wait_for sh -c 'tail -n 1 /tmp/seen | grep -q "\"traced\":{\"is_part\":false,\"all\":{\"requests\":0,"'
kill $!; wait
while read -r line; do echo "result seen: $line"; done < /tmp/seen
"#,
    );
    let seen = of("seen");
    let all: Vec<&Value> = seen.iter().map(|line| &line["targets"][0]["traced"]["all"]).collect();
    let requests: u64 = all.iter().map(|all| all["requests"].as_u64().unwrap()).sum();
    let ops = |line: &Value| line["targets"][0]["read"]["ops"].as_u64().unwrap();
    assert!(
        requests >= 200 && requests == ops(seen.last().unwrap()) - ops(&seen[0]) + all[0]["requests"].as_u64().unwrap()
    );
    for all in all.iter().filter(|all| all["requests"] != 0) {
        assert!(all["p50_ns"].as_u64().unwrap() >= 10_000_000 && all["given_up"] == 0, "{all}");
    }
}

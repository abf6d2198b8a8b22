//! Jobs with ioengine=nvme_tcp on `plimsoll serve`.

mod common;
use common::served::{NQN, Served};
use common::*;

#[test]
fn every_way_to_write_an_address_reaches_the_namespace_and_its_data() {
    let place = directory();
    let target = Served::one_line(place.path(), &["--mem", "8m"]);
    let port = format!("--port={}", target.port());
    let subnqn = format!("--subnqn={NQN}");
    let escaped = format!("--filename={}", target.namespace(1).replace(':', "\\:"));
    let plain = target.filename(1);
    let discovered = format!("--filename=trtype=tcp traddr=127.0.0.1 trsvcid={}", target.port());
    let job = ["run", "--name=j", "--ioengine=nvme_tcp", "--bs=16k", "--iodepth=8", "--verify=crc32c"];
    let written = [&job[..], &["--rw=randwrite", &plain]].concat();
    succeed(place.path(), &written);
    for way in [
        vec![escaped.as_str(), "--digest_enable=BOTH"],
        vec![&discovered, "--nr_io_queues=3"],
        vec!["--filename=1", "--hostname=127.0.0.1", &port, &subnqn, "--iodepth=300"],
        vec![&plain, "--bs=1m", "--numjobs=2"],
    ] {
        let options = ["--rw=randread", "--output-format=json"];
        let job = if way.contains(&"--bs=1m") { &job[..3] } else { &job[..] };
        let result = json(&succeed(place.path(), &[job, &options, &way].concat()));
        assert_eq!(result["jobs"][0]["error"], 0, "{way:?}");
        assert_eq!(result["jobs"][0]["read"]["io_bytes"].as_u64().unwrap() % (8 << 20), 0, "{way:?}");
    }
    target.end();
}

/// Loops that never sleep, and loops that sleep at once, on both sides.
#[test]
fn both_sides_wait_as_they_are_told() {
    let place = directory();
    for (here, there) in [("always", "never"), ("never", "always"), ("never", "never"), ("adaptive", "adaptive")] {
        let target = Served::one_line(place.path(), &["--mem", "1m", "--poll", there]);
        let (name, poll) = (target.filename(1), format!("--poll={here}"));
        let job = ["run", "--name=j", "--ioengine=nvme_tcp", "--rw=randwrite", "--bs=4k", "--verify=crc32c"];
        let result = succeed(place.path(), &[&job[..], &["--output-format=json", &name, &poll]].concat());
        assert_eq!(json(&result)["jobs"][0]["write"]["total_ios"], 256, "{here} and {there}");
        target.end();
    }
}

#[test]
fn what_does_not_fit_is_refused_in_one_line() {
    let place = directory();
    let target = Served::one_line(place.path(), &["--null", "8m"]);
    let name = |change: (&str, &str)| format!("--filename={}", target.namespace(1).replace(change.0, change.1));
    for (options, why) in [
        (vec![name(("trtype=tcp", "trtype=rdma"))], "does not speak trtype=rdma in job j (ioengine=nvme_rdma does)"),
        (vec![name(("", "")), "--bs=512".into()], "blocks are of 4096 bytes"),
        (vec![name(("", "")), "--offset=16m".into()], "beyond the end"),
        (vec![name(("", "")), "--hostnqn=me".into()], "not an NVMe qualified name"),
        (vec![name(("", "")), "--dhchap_key=none".into()], "dhchap_key=none"),
        (vec![name(("", "")), "--discard_payload=1".into(), "--verify=crc32c".into()], "verify= compares them"),
        (vec![name(("", "")), "--discard_payload=1".into(), "--digest_enable=data".into()], "a data digest"),
    ] {
        let mut job = vec!["run", "--name=j", "--ioengine=nvme_tcp", "--rw=read", "--bs=4k"];
        job.extend(options.iter().map(String::as_str));
        let said = refused(place.path(), &job);
        assert!(said.contains(why), "{options:?}: {said}");
    }
}

/// Outstanding requests are issued again on the next connection, and what is read back is what was written.
#[test]
fn a_job_outlives_a_target_that_is_killed_and_started_again() {
    let place = directory();
    let mut target = Served::one_to_restart(place.path(), &["--file", "disk.img", "--create", "16m"]);
    let name = target.filename(1);
    let job = ["run", "--name=j", "--ioengine=nvme_tcp", "--rw=randwrite", "--bsrange=4k-64k", "--iodepth=32"];
    let rest = ["--rate_iops=200", "--verify=crc32c", "--digest_enable=BOTH", "--output-format=json", &name];
    let mut job = plimsoll(place.path()).args(job).args(rest).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let written = || {
        let stats: serde_json::Value = target.rpc(&["bdev_get_iostat"]);
        stats["bdevs"][0]["bytes_written"].as_u64().expect("what has been written")
    };
    while written() < 1 << 20 {
        assert!(job.try_wait().unwrap().is_none(), "it has most of its writes to do yet");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    target.kill();
    target.restart();
    let output = job.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stdout(&output));
    let result = json(&output);
    assert_eq!(result["jobs"][0]["error"], 0);
    let (write, read) = (&result["jobs"][0]["write"], &result["jobs"][0]["read"]);
    assert_eq!((write["io_bytes"].as_u64(), read["io_bytes"].as_u64()), (Some(16 << 20), Some(16 << 20)));
}

/// The first blocks, too: the look at what a namespace carries waits like every request.
#[test]
fn a_target_may_take_longer_than_a_wait_of_the_engine() {
    let place = directory();
    let target = Served::slow(place.path(), "bdev_malloc_create", 150_000, 150_000);
    let job = ["run", "--name=j", "--ioengine=nvme_tcp", "--rw=randwrite", "--bs=4k", "--iodepth=4", "--verify=crc32c"];
    let result =
        succeed(place.path(), &[&job[..], &["--size=32k", "--output-format=json", &target.filename(1)]].concat());
    assert_eq!(json(&result)["jobs"][0]["write"]["total_ios"], 8);
    target.end();
}

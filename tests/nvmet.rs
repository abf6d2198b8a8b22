//! The initiator of Plimsoll with the target of Linux (nvmet), in a kernel of Debian 13.

mod common;
use common::guest::{has_rig, key, target_guest};
use common::served::{NQN, free_port};
use common::*;

/// The initiator reads back all data that it wrote, with every mix of digests and queues. A load whose connections
/// nvmet cuts for good ends in an error; a load whose controller comes back in time goes on, and no byte is wrong. Each
/// side proves to the other who it is, with every hash function and three groups.
#[test]
fn linux_6_12_serves_the_initiator() {
    const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:2cc3c3a1-7d5d-4d4c-8a5e-0c8f6a9b1d11";
    if !has_rig() {
        return;
    }
    let place = directory();
    let directory = place.path();
    let port = free_port();
    let (host_key, host_path) = key(directory, "host.key", 0, HOST);
    let (back_key, back_path) = key(directory, "back.key", 0, NQN);
    let (_, wrong_path) = key(directory, "wrong.key", 0, HOST);
    let script = r#"
make_target
echo 1 > $here/attr_allow_any_host
open_port
outside verify
outside begin
close_port
outside cut
open_port
# A controller that goes and comes back in time costs nothing.
for round in 1 2 3; do
  outside begin-verify
  close_port
  sleep 1
  open_port
  outside survive
done
echo 0 > $here/attr_allow_any_host
outside refuse
mkdir hosts/$HOST && ln -s /sys/kernel/config/nvmet/hosts/$HOST $here/allowed_hosts/$HOST || failed 'no host'
outside prove
echo "$HOST_KEY" > hosts/$HOST/dhchap_key || failed 'no key'
outside refuse
outside refuse-wrong
for hash in 'hmac(sha256)' 'hmac(sha384)' 'hmac(sha512)'; do
  for group in null ffdhe2048 ffdhe8192; do
    echo "$hash" > hosts/$HOST/dhchap_hash && echo $group > hosts/$HOST/dhchap_dhgroup || failed "$hash $group"
    outside prove
  done
done
echo "$BACK_KEY" > hosts/$HOST/dhchap_ctrl_key || failed 'no key of the target'
outside prove-both
echo "all of it"
"#;
    let script = format!("HOST={HOST} HOST_KEY='{host_key}' BACK_KEY='{back_key}'\n{script}");
    let filename = format!("--filename=trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid={port} subnqn={NQN} ns=1");
    let verify = ["run", "--name=v", "--ioengine=nvme_tcp", "--rw=randwrite", "--bsrange=4k-128k", "--size=8m"];
    let verify = [&verify[..], &["--iodepth=16", "--verify=crc32c", "--eta=never", &filename]].concat();
    let read = ["run", "--name=r", "--ioengine=nvme_tcp", "--rw=randread", "--bs=4k", "--iodepth=4", "--eta=never"];
    let read = [&read[..], &[&filename]].concat();
    let as_host = format!("--hostnqn={HOST}");
    // The words of a run with these keys.
    let with_keys = |keys: &[String]| {
        let words = read.iter().copied().chain(["--number_ios=64", &as_host]).chain(keys.iter().map(String::as_str));
        run(directory, &words.collect::<Vec<_>>())
    };
    let (own, back) = (format!("--dhchap_key={host_path}"), format!("--dhchap_ctrlr_key={back_path}"));
    let wrong = format!("--dhchap_key={wrong_path}");
    let mut under_way = None;
    let said = target_guest(directory, port, &script, |action| match action {
        "verify" => {
            for digests in ["NONE", "HEADER", "DATA", "BOTH"] {
                for queues in ["1", "3"] {
                    let digests = format!("--digest_enable={digests}");
                    let queues = format!("--nr_io_queues={queues}");
                    succeed(directory, &[&verify[..], &[&digests, &queues]].concat());
                }
            }
        }
        "begin" => {
            let mut load = plimsoll(directory);
            load.args(&read).args(["--time_based", "--runtime=600"]);
            load.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            under_way = Some(load.spawn().expect("it starts"));
            std::thread::sleep(std::time::Duration::from_secs(3)); // it may be cut before it has begun, too
        }
        "cut" => {
            let ended = under_way.take().expect("begun").wait_with_output().expect("its end");
            assert!(!ended.status.success(), "a load whose connections are cut succeeds");
            assert!(stdout(&ended).contains("error "), "{}{}", stdout(&ended), stderr(&ended));
        }
        "begin-verify" => {
            let mut load = plimsoll(directory);
            load.args(&verify).args(["--digest_enable=BOTH", "--nr_io_queues=2", "--rate_iops=100"]);
            load.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            under_way = Some(load.spawn().expect("it starts"));
            std::thread::sleep(std::time::Duration::from_secs(1)); // it may be cut before it has begun, too
        }
        "survive" => {
            let ended = under_way.take().expect("begun").wait_with_output().expect("its end");
            assert!(ended.status.success(), "{}{}", stdout(&ended), stderr(&ended));
        }
        "refuse" => assert!(!with_keys(&[]).status.success()),
        "refuse-wrong" => assert!(!with_keys(std::slice::from_ref(&wrong)).status.success()),
        "prove" => {
            let proven = with_keys(std::slice::from_ref(&own));
            assert!(proven.status.success(), "{}", stderr(&proven));
        }
        "prove-both" => {
            let proven = with_keys(&[own.clone(), back.clone()]);
            assert!(proven.status.success(), "{}", stderr(&proven));
        }
        other => panic!("{other}"),
    });
    assert!(said.contains("all of it"), "{said}");
}

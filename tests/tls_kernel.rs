//! TLS between Plimsoll and the kernels of Debian 13 (Linux 6.12) and 14 (7.2 and later), whose tlshd does the
//! handshakes: the kernel as host and as target.

mod common;
use common::guest::{has_rig, key, tls_host_guest, tls_target_guest};
use common::served::{NQN, Served, free_port};
use common::*;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:9f2c1b1e-3c5b-4f57-8d2e-6a0d1f0b7c11";
/// A configured key and a retained one of SHA-256, and one of SHA-384.
const KEYS: [&str; 3] = [
    "NVMeTLSkey-1:01:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmZwJEiQ:",
    "NVMeTLSkey-1:00:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmZwJEiQ:",
    "NVMeTLSkey-1:02:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmYwMDExMjIzMzQ0NTU2Njc3wWXNJw==:",
];
/// A key that neither end has been given.
const OTHER: &str = "NVMeTLSkey-1:01:YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmLUSf1H:";

fn key_file(directory: &std::path::Path, key: &str) -> String {
    let path = file(directory, "tls.key", key);
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its owner");
    path.display().to_string()
}

/// The keys that the tlshd of this release takes. That of Debian 13 takes no key of SHA-384 but from itself: its GnuTLS
/// 3.8.9 proves each key by SHA-256 and therefore agrees on ChaCha20, which NVMe/TCP does not know.
fn keys(debian: &str) -> &'static [&'static str] {
    if debian == "13" { &KEYS[..2] } else { &KEYS }
}

#[test]
#[ignore = "takes minutes of emulation: make test-guest"]
fn linux_6_12_is_a_host_over_tls() {
    linux_is_a_host("13");
}

#[test]
#[ignore = "takes minutes of emulation: make test-guest"]
fn linux_of_debian_14_is_a_host_over_tls() {
    linux_is_a_host("14");
}

#[test]
#[ignore = "takes minutes of emulation: make test-guest"]
fn linux_6_12_is_a_target_over_tls() {
    linux_is_a_target("13");
}

#[test]
#[ignore = "takes minutes of emulation: make test-guest"]
fn linux_of_debian_14_is_a_target_over_tls() {
    linux_is_a_target("14");
}

/// The kernel's host verifies what it writes, while its controller is reset, with keys of each kind and identities of
/// both versions. It finds the subsystem by discovery. A host without TLS gets nothing.
fn linux_is_a_host(debian: &str) {
    if !has_rig() {
        return;
    }
    let place = directory();
    let directory = place.path();
    let path = key_file(directory, KEYS[0]);
    let target = Served::one_line(directory, &["--mem", "32m", "--allow-host", HOST, "--tls-key", &path]);
    let script = r#"
connect_secured() { try newer nvme connect $AT -n $SUBSYSTEM -k 20 --tls "$@"; wait_for [ -b /dev/nvme0n1 ]; }
nvme connect $AT -n $SUBSYSTEM > /tmp/said 2>&1 && failed 'a host without TLS gets in'
number=0
for key in $KEYS; do
  outside key $number; number=$((number + 1))
  for version in 0 1; do
    share_key $key $version $SUBSYSTEM
    share_key $key $version nqn.2014-08.org.nvmexpress.discovery
    connect_secured -i 2
    [ -n "$(cat /sys/class/nvme/nvme0/tls_key)" ] || failed 'no TLS'
    fio --name=v --ioengine=libaio --direct=1 --filename=/dev/nvme0n1 --rw=randwrite --bsrange=4k-64k --size=8m \
      --iodepth=8 --rate_iops=300 --verify=crc32c --verify_fatal=1 > /tmp/fio 2>&1 &
    fio=$!
    sleep 1
    try nvme reset /dev/nvme0
    wait_for grep -q live /sys/class/nvme/nvme0/state
    wait $fio || { cat /tmp/fio; failed "fio with $key, identity $version"; }
    disconnect
    says 'sectype: tls13' newer nvme discover $AT --tls
    forget_keys
  done
done
share_key $OTHER 1 $SUBSYSTEM
newer nvme connect $AT -n $SUBSYSTEM --tls > /tmp/said 2>&1 && failed 'a host with another key gets in'
dmesg | grep -iE 'I/O error|digest error' && failed 'errors'
echo "all of it"
"#;
    let script = format!("OTHER={OTHER} KEYS='{}'\n{script}", keys(debian).join(" "));
    let nqn = format!("nqn={NQN}");
    let said = tls_host_guest(debian, directory, target.port(), &script, |action| {
        match action.split(' ').collect::<Vec<_>>()[..] {
            ["key", "0"] => {}
            ["key", number] => {
                let path = key_file(directory, KEYS[number.parse::<usize>().expect("a number")]);
                target.rpc(&["keyring_file_add_key", &format!("name=k{number}"), &format!("path={path}")]);
                target.rpc(&["nvmf_subsystem_remove_host", &nqn, &format!("host={HOST}")]);
                target.rpc(&["nvmf_subsystem_add_host", &nqn, &format!("host={HOST}"), &format!("psk=k{number}")]);
            }
            _ => panic!("{action}"),
        }
    });
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// Our initiator verifies what it writes to the kernel's target, with keys of each kind; without TLS and with another
/// key it gets in nowhere.
fn linux_is_a_target(debian: &str) {
    if !has_rig() {
        return;
    }
    let place = directory();
    let directory = place.path();
    let port = free_port();
    let script = r#"
make_target
echo 1 > $here/attr_allow_any_host
echo tls1.3 > ports/1/addr_tsas && echo required > ports/1/addr_treq || failed 'no TLS'
number=0
for key in $KEYS; do
  for version in 0 1; do
    share_key $key $version $SUBSYSTEM
    open_port
    outside verify $number
    outside refuse $number
    close_port
    forget_keys
  done
  number=$((number + 1))
done
echo "all of it"
"#;
    let script = format!("OTHER={OTHER} KEYS='{}'\n{script}", keys(debian).join(" "));
    let filename = format!("--filename=trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid={port} subnqn={NQN} ns=1");
    let host = format!("--hostnqn={HOST}");
    let verify = ["run", "--name=v", "--ioengine=nvme_tcp", "--rw=randwrite", "--bsrange=4k-128k", "--size=8m"];
    let verify = [&verify[..], &["--iodepth=16", "--verify=crc32c", "--eta=never", &filename, &host]].concat();
    let said = tls_target_guest(debian, directory, port, &script, |action| {
        let (what, number) = action.split_once(' ').expect("a number");
        let number: usize = number.parse().expect("a number");
        let with =
            |key: &str| run(directory, &[&verify[..], &[&format!("--tls_key={}", key_file(directory, key))]].concat());
        match what {
            "verify" => {
                let output = with(KEYS[number]);
                assert!(output.status.success(), "{number}: {}{}", stdout(&output), stderr(&output));
            }
            "refuse" => {
                assert!(!run(directory, &verify).status.success(), "without TLS");
                assert!(!with(OTHER).status.success(), "with another key");
            }
            _ => panic!("{action}"),
        }
    });
    assert!(said.contains("all of it"), "{said}");
}

/// Linux as host authenticates on a plain connection, and speaks TLS with the key that this has made, in one direction
/// and in both, with resets. A host that does not concatenate gets in nowhere.
#[test]
#[ignore = "takes minutes of emulation: make test-guest"]
fn linux_of_debian_14_as_host_concatenates_secure_channels() {
    if !has_rig() {
        return;
    }
    let place = directory();
    let directory = place.path();
    let (own, own_path) = key(directory, "own", 1, HOST);
    let (back, back_path) = key(directory, "back", 2, NQN);
    let (port, plain) = (free_port(), ["--mem", "32m", "--allow-host", HOST]);
    let keys = ["--dhchap-key", &own_path, "--dhchap-ctrlr-key", &back_path];
    let target = Served::one_line(directory, &[&plain[..], &keys].concat());
    let nqn = format!("nqn={NQN}");
    let address = ["listen_address.trtype=TCP", "listen_address.adrfam=IPv4", "listen_address.traddr=127.0.0.1"];
    let port_of = format!("listen_address.trsvcid={port}");
    let secured = ["secure_channel=true", "secure_concatenation=true"];
    target.rpc(&[&["nvmf_subsystem_add_listener", &nqn][..], &address, &[&port_of], &secured].concat());
    let script = format!("OWN={own} BACK={back}\n")
        + r#"
newer nvme connect $AT -n $SUBSYSTEM --dhchap-secret="$OWN" > /tmp/said 2>&1 && failed 'a host that does not concatenate gets in'
for both in '' "--dhchap-ctrl-secret=$BACK"; do
  try newer nvme connect $AT -n $SUBSYSTEM -i 2 --dhchap-secret="$OWN" $both --concat
  wait_for [ -b /dev/nvme0n1 ]
  says 'NVMe1G0[12]' cat /proc/keys
  for round in 1 2; do
    fio --name=v --ioengine=libaio --direct=1 --filename=/dev/nvme0n1 --rw=randwrite --bsrange=4k-64k --size=8m \
      --iodepth=8 --verify=crc32c --verify_fatal=1 > /tmp/fio 2>&1 || { cat /tmp/fio; failed "fio, $both, round $round"; }
    try nvme reset /dev/nvme0
    wait_for grep -q live /sys/class/nvme/nvme0/state
  done
  disconnect
done
echo "all of it"
"#;
    let said = tls_host_guest("14", directory, port, &script, |action| panic!("{action}"));
    assert!(said.contains("all of it"), "{said}");
    target.end();
}

/// Plimsoll as host does so with Linux as target, in one direction: the target of Linux 7.2 makes no key where it
/// proves itself too ("failed to generate PSK": it has dropped the host's challenge by then).
#[test]
#[ignore = "takes minutes of emulation: make test-guest"]
fn linux_of_debian_14_as_target_concatenates_secure_channels() {
    if !has_rig() {
        return;
    }
    let place = directory();
    let directory = place.path();
    let (own, own_path) = key(directory, "own", 1, HOST);
    let port = free_port();
    let script = format!("OWN={own}\n")
        + r#"
make_target
mkdir hosts/$HOST && echo "$OWN" > hosts/$HOST/dhchap_key || failed 'no key'
ln -s /sys/kernel/config/nvmet/hosts/$HOST $here/allowed_hosts/$HOST || failed "no host"
echo tls1.3 > ports/1/addr_tsas && echo 'not required' > ports/1/addr_treq || failed 'no TLS'
open_port
# Without a group there is no secret for a key: the reason is told.
outside refuse
echo ffdhe2048 > hosts/$HOST/dhchap_dhgroup || failed 'no group'
for hash in 'hmac(sha256)' 'hmac(sha384)'; do
  echo "$hash" > hosts/$HOST/dhchap_hash || failed "$hash"
  outside verify
done
echo "all of it"
"#;
    let filename = format!("--filename=trtype=tcp adrfam=ipv4 traddr=127.0.0.1 trsvcid={port} subnqn={NQN} ns=1");
    let (host, own) = (format!("--hostnqn={HOST}"), format!("--dhchap_key={own_path}"));
    let verify = ["run", "--name=v", "--ioengine=nvme_tcp", "--rw=randwrite", "--bsrange=4k-128k", "--size=8m"];
    let verify = [&verify[..], &["--iodepth=16", "--verify=crc32c", "--eta=never", &filename, &host, &own]].concat();
    let said = tls_target_guest("14", directory, port, &script, |action| {
        let output = run(directory, &[&verify[..], &["--concat=1"]].concat());
        if action == "refuse" {
            assert!(stderr(&output).contains("secure channel concatenation does not match"), "{}", stderr(&output));
        } else {
            assert!(output.status.success(), "{action}: {}{}", stdout(&output), stderr(&output));
        }
    });
    assert!(said.contains("all of it"), "{said}");
}
